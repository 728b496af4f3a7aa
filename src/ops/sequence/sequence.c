/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences and optionals. At run time they are Items; the kernels here hand elements on without copying, the runtime
 * copies what it keeps. While lowering, a sequence whose elements are known one by one is the host node
 * SequenceConstruct of them: Insert, Erase, At, Length and Concat of such a sequence need no sequence at all. */
#include "ops/sequence/sequence.h"

#include "ops/families.h"
#include "lowering/item_type.h"

enum { MOST_STATIC = 256 }; /* elements of a sequence that is told element by element */

/* ---- host kernels ---- */

const Item *item_in(const HostCall *call, int index) {
    bool given = index < call->node->input_count && call->inputs[index] && call->inputs[index]->kind != ITEM_NONE;
    return given ? call->inputs[index] : NULL;
}

Status sequence_at(const HostCall *call, int index, const Item **out_item) {
    *out_item = item_in(call, index);
    if (!*out_item || (*out_item)->kind != ITEM_SEQUENCE) return host_error(call, "input %d is no sequence", index);
    return NULL;
}

static Status give_tensor(HostCall *call, int index, const Tensor *tensor) {
    Tensor *result;
    TRY(host_output(call, index, tensor->dtype, tensor->rank, tensor->dims, &result));
    if (result && tensor_bytes(tensor)) memcpy(result->data, tensor->data, tensor_bytes(tensor));
    return NULL;
}

void give_sequence(HostCall *call, Item *items, int count) {
    if (call->outputs[0]) *call->outputs[0] = (Item){.kind = ITEM_SEQUENCE, .items = items, .count = count};
}

Status give_item(HostCall *call, const Item *item) {
    if (item->kind == ITEM_TENSOR) return give_tensor(call, 0, &item->tensor);
    if (call->outputs[0]) *call->outputs[0] = *item;
    return NULL;
}

Status sequence_position(const HostCall *call, int index, int64_t count, int64_t most, int64_t otherwise,
                         int64_t *out_at) {
    const Tensor *given = host_input(call, index);
    *out_at = otherwise;
    if (given) {
        if (tensor_count(given) != 1 || !dtype_is_integer(given->dtype))
            return host_error(call, "the position is not one integer");
        *out_at = dtype_load_int(given->dtype, given->data, 0);
    }
    int64_t at = *out_at < 0 ? *out_at + count : *out_at;
    if (*out_at < -count || at < 0 || at > most)
        return host_error(call, "position %lld in a sequence of %lld", (long long)*out_at, (long long)count);
    *out_at = at;
    return NULL;
}

Status host_construct(HostCall *call) {
    int count = call->node->input_count;
    Item *items = ARENA_ARRAY(call->arena, Item, count);
    for (int i = 0; i < count; i++) {
        const Tensor *tensor = host_input(call, i);
        if (!tensor) return host_error(call, "input %d is no tensor", i);
        items[i] = (Item){.kind = ITEM_TENSOR, .tensor = *tensor};
    }
    give_sequence(call, items, count);
    return NULL;
}

Status give_changed(HostCall *call, const Item *from, int at, int removed, const Tensor *added) {
    if (call->splice) return call->splice(call, at, removed, added);
    int count = at, rest = from->count - at - removed;
    Item *items = ARENA_ARRAY(call->arena, Item, from->count + 1);
    if (at) memcpy(items, from->items, (size_t)at * sizeof *items);
    if (added) items[count++] = (Item){.kind = ITEM_TENSOR, .tensor = *added};
    if (rest) memcpy(items + count, from->items + at + removed, (size_t)rest * sizeof *items);
    give_sequence(call, items, count + rest);
    return NULL;
}

Status host_insert(HostCall *call) {
    const Item *from;
    const Tensor *tensor = host_input(call, 1);
    int64_t at;
    TRY(sequence_at(call, 0, &from));
    if (!tensor) return host_error(call, "input 1 is no tensor");
    TRY(sequence_position(call, 2, from->count, from->count, from->count, &at));
    if (from->count == INT32_MAX) return host_error(call, "the sequence is full");
    return give_changed(call, from, (int)at, 0, tensor);
}

Status host_erase(HostCall *call) {
    const Item *from;
    int64_t at;
    TRY(sequence_at(call, 0, &from));
    TRY(sequence_position(call, 1, from->count, from->count - 1, from->count - 1, &at));
    return give_changed(call, from, (int)at, 1, NULL);
}

Status host_at(HostCall *call) {
    const Item *from;
    int64_t at;
    TRY(sequence_at(call, 0, &from));
    TRY(sequence_position(call, 1, from->count, from->count - 1, 0, &at));
    return give_item(call, &from->items[at]);
}

Status host_length(HostCall *call) {
    const Item *from;
    Tensor *result;
    TRY(sequence_at(call, 0, &from));
    TRY(host_output(call, 0, DT_I64, 0, NULL, &result));
    if (result) *(int64_t *)result->data = from->count;
    return NULL;
}

void copy_slab(Tensor *to, int64_t to_start, const Tensor *from, int64_t start, int64_t count, int axis) {
    size_t inner = dtype_size(from->dtype);
    int64_t outer = 1;
    for (int i = axis + 1; i < from->rank; i++) inner *= (size_t)from->dims[i];
    for (int i = 0; i < axis; i++) outer *= from->dims[i];
    for (int64_t o = 0; o < outer && count && inner; o++)
        memcpy((char *)to->data + ((size_t)(o * to->dims[axis] + to_start)) * inner,
               (const char *)from->data + ((size_t)(o * from->dims[axis] + start)) * inner, (size_t)count * inner);
}

Tensor joined_view(const Tensor *tensor, int axis, bool new_axis) {
    Tensor view = *tensor;
    if (!new_axis) return view;
    for (int i = view.rank++; i > axis; i--) view.dims[i] = view.dims[i - 1];
    view.dims[axis] = 1;
    return view;
}

Status host_concat(HostCall *call) {
    const Item *from;
    TRY(sequence_at(call, 0, &from));
    bool new_axis = attr_int(call->node, "new_axis", 0) != 0;
    if (from->count == 0) return host_error(call, "an empty sequence cannot be joined");
    const Tensor *first = &from->items[0].tensor;
    int rank = first->rank + new_axis;
    int64_t axis = attr_int(call->node, "axis", 0);
    if (axis < -rank || axis >= rank || rank > MAX_RANK)
        return host_error(call, "axis %lld of %d axes", (long long)axis, rank);
    if (axis < 0) axis += rank;
    Tensor whole = joined_view(first, (int)axis, new_axis), *result;
    whole.dims[axis] = 0;
    for (int e = 0; e < from->count; e++) {
        const Tensor *element = &from->items[e].tensor;
        Tensor view = joined_view(element, element->rank == first->rank ? (int)axis : 0,
                                  new_axis && element->rank == first->rank);
        bool fits = from->items[e].kind == ITEM_TENSOR && view.dtype == whole.dtype && view.rank == whole.rank;
        for (int i = 0; fits && i < rank; i++) fits = i == axis || view.dims[i] == whole.dims[i];
        if (!fits) return host_error(call, "element %d does not fit the first one", e);
        if (__builtin_add_overflow(whole.dims[axis], view.dims[axis], &whole.dims[axis]))
            return host_error(call, "the result is too large");
    }
    TRY(host_output(call, 0, whole.dtype, rank, whole.dims, &result));
    for (int64_t e = 0, at = 0; result && e < from->count; e++) {
        Tensor view = joined_view(&from->items[e].tensor, (int)axis, new_axis);
        copy_slab(result, at, &view, 0, view.dims[axis], (int)axis);
        at += view.dims[axis];
    }
    return NULL;
}

Status piece_sizes(HostCall *call, int64_t whole, int64_t **out_sizes, int64_t *out_count) {
    const Tensor *split = host_input(call, 1);
    if (split && (!dtype_is_integer(split->dtype) || split->rank > 1))
        return host_error(call, "split is no list of integers");
    if (split && split->rank == 1) {
        int64_t count = split->dims[0], sum = 0;
        *out_sizes = ARENA_ARRAY(call->arena, int64_t, count);
        for (int64_t i = 0; i < count; i++) {
            int64_t size = (*out_sizes)[i] = dtype_load_int(split->dtype, split->data, i);
            if (size < 0 || __builtin_add_overflow(sum, size, &sum))
                return host_error(call, "split[%lld] is %lld", (long long)i, (long long)size);
        }
        if (sum != whole)
            return host_error(call, "split adds up to %lld, the axis has %lld", (long long)sum, (long long)whole);
        *out_count = count;
        return NULL;
    }
    int64_t size = split ? dtype_load_int(split->dtype, split->data, 0) : 1;
    if (size < 1) return host_error(call, "split is %lld", (long long)size);
    *out_count = whole / size + (whole % size != 0);
    *out_sizes = ARENA_ARRAY(call->arena, int64_t, *out_count);
    for (int64_t i = 0; i < *out_count; i++) (*out_sizes)[i] = whole - i * size < size ? whole - i * size : size;
    return NULL;
}

Status host_split(HostCall *call) {
    const Tensor *x = host_input(call, 0);
    int64_t axis = attr_int(call->node, "axis", 0), *sizes = NULL, count = 0;
    if (!x || axis < -x->rank || axis >= x->rank) return host_error(call, "axis %lld is out of range", (long long)axis);
    if (axis < 0) axis += x->rank;
    TRY(piece_sizes(call, x->dims[axis], &sizes, &count));
    if (count > INT32_MAX) return host_error(call, "%lld pieces", (long long)count);
    bool drop = !item_in(call, 1) && attr_int(call->node, "keepdims", 1) == 0;
    Item *items = ARENA_ARRAY(call->arena, Item, count);
    for (int64_t i = 0, at = 0; i < count; at += sizes[i++]) {
        int64_t dims[MAX_RANK];
        memcpy(dims, x->dims, sizeof dims);
        dims[axis] = sizes[i];
        Tensor *piece = tensor_new(call->arena, x->dtype, x->rank, dims);
        copy_slab(piece, 0, x, at, sizes[i], (int)axis);
        if (drop) {
            for (int a = (int)axis; a + 1 < piece->rank; a++) piece->dims[a] = piece->dims[a + 1];
            piece->rank--;
        }
        items[i] = (Item){.kind = ITEM_TENSOR, .tensor = *piece};
    }
    give_sequence(call, items, (int)count);
    return NULL;
}

Status host_optional(HostCall *call) {
    const Item *item = item_in(call, 0);
    if (item) return give_item(call, item);
    if (call->outputs[0]) *call->outputs[0] = (Item){.kind = ITEM_NONE};
    return NULL;
}

Status host_get_element(HostCall *call) {
    const Item *item = item_in(call, 0);
    if (!item) return host_error(call, "the optional is empty");
    return give_item(call, item);
}

Status host_has_element(HostCall *call) {
    const Item *item = item_in(call, 0);
    Tensor *result;
    TRY(host_output(call, 0, DT_BOOL, 0, NULL, &result));
    if (result) *(uint8_t *)result->data = item != NULL;
    return NULL;
}

/* ---- lowering: sequences ---- */

/* The elements of a sequence told element by element; false when it is not. */
static bool known_elements(const Value *sequence, Value *const **out_items, int *out_count) {
    const Node *producer = sequence->producer;
    if (!producer || producer->kind != NODE_HOST || producer->host != host_construct) return false;
    *out_items = producer->inputs;
    *out_count = producer->input_count;
    return true;
}

uint32_t sequence_ranks(const Value *sequence) {
    Value *const *items;
    int count;
    uint32_t ranks = 0;
    if (!known_elements(sequence, &items, &count)) count = 0;
    for (int i = 0; i < count; i++)
        if (items[i]->rank >= 0) ranks |= (uint32_t)1 << items[i]->rank;
    return ranks ? ranks : ((uint32_t)1 << (MAX_RANK + 1)) - 1;
}

/* A constant position in a sequence of `count`, 0 .. most; false when it is not known (or wrong: the kernel says so).
 */
static bool known_position(const Value *value, int64_t count, int64_t most, int64_t otherwise, int64_t *out_at) {
    const Tensor *constant = constant_of(value);
    if (value && (!constant || tensor_count(constant) != 1 || !dtype_is_integer(constant->dtype))) return false;
    *out_at = value ? dtype_load_int(constant->dtype, constant->data, 0) : otherwise;
    if (*out_at < -count) return false;
    if (*out_at < 0) *out_at += count;
    return *out_at >= 0 && *out_at <= most;
}

static Value *sequence_in(Lowering *l, const Node *n, int index) {
    Value *value = in(l, n, index);
    if (value && value->kind != VALUE_SEQUENCE) {
        invalid(l, "input %d is no sequence of tensors", index);
        return NULL;
    }
    return value;
}

static Status construct(Lowering *l, const Node *n, DType dtype, Value *const *items, int count) {
    ItemType type = {VALUE_SEQUENCE, dtype, RANK_EMPTY, NULL};
    for (int i = 0; i < count; i++) {
        ItemType element = item_type_held(l, item_type_of(items[i]), VALUE_SEQUENCE);
        if (items[i]->kind != VALUE_TENSOR || !item_type_join(l, &type, &element, "element", &type))
            return invalid(l, "element %d has another type than those before it", i);
    }
    Node *host = host_node(l, n, host_construct, items, count);
    if (!host) return l->error;
    host->op = "SequenceConstruct";
    return out(l, n, 0, item_result(l, host, &type));
}

static Status lower_construct(Lowering *l, const Node *n) {
    for (int i = 0; i < n->input_count; i++)
        if (!in(l, n, i)) return l->error;
    return construct(l, n, n->input_count ? n->inputs[0]->dtype : DT_F32, n->inputs, n->input_count);
}

static Status lower_empty(Lowering *l, const Node *n) {
    return construct(l, n, attr_dtype(n, "dtype", DT_F32), NULL, 0);
}

static Status lower_insert(Lowering *l, const Node *n) {
    Value *sequence = sequence_in(l, n, 0), *tensor = in(l, n, 1), *where_to = optional_in(l, n, 2);
    Value *const *items;
    int count;
    int64_t at;
    if (l->error) return l->error;
    if (known_elements(sequence, &items, &count) && count < MOST_STATIC &&
        known_position(where_to, count, count, count, &at)) {
        Value **more = ARENA_ARRAY(l->arena, Value *, count + 1);
        for (int i = 0; i < count; i++) more[i < at ? i : i + 1] = items[i];
        more[at] = tensor;
        return construct(l, n, sequence->dtype, more, count + 1);
    }
    ItemType whole = item_type_of(sequence), element = item_type_held(l, item_type_of(tensor), VALUE_SEQUENCE), type;
    if (!item_type_join(l, &whole, &element, "element", &type))
        return invalid(l, "the tensor is %s, the sequence's are %s", dtype_name(element.dtype),
                       dtype_name(whole.dtype));
    Node *host = host_node(l, n, host_insert, (Value *const[]){sequence, tensor, where_to}, 3);
    return host ? out(l, n, 0, item_result(l, host, &type)) : l->error;
}

static Status lower_erase(Lowering *l, const Node *n) {
    Value *sequence = sequence_in(l, n, 0), *which = optional_in(l, n, 1);
    Value *const *items;
    int count;
    int64_t at;
    if (l->error) return l->error;
    if (known_elements(sequence, &items, &count) && known_position(which, count, count - 1, count - 1, &at)) {
        Value **fewer = ARENA_ARRAY(l->arena, Value *, count);
        for (int i = 0; i < count; i++)
            if (i != at) fewer[i < at ? i : i - 1] = items[i];
        return construct(l, n, sequence->dtype, fewer, count - 1);
    }
    ItemType type = item_type_of(sequence);
    Node *host = host_node(l, n, host_erase, (Value *const[]){sequence, which}, 2);
    return host ? out(l, n, 0, item_result(l, host, &type)) : l->error;
}

static Value *tensor_from(Lowering *l, Node *host, ItemType type, const char *hint) {
    type.kind = VALUE_TENSOR;
    type.dims = item_type_sizes(l, &type, hint);
    return item_result(l, host, &type);
}

static Status lower_at(Lowering *l, const Node *n) {
    Value *sequence = sequence_in(l, n, 0), *which = in(l, n, 1);
    Value *const *items;
    int count;
    int64_t at;
    if (l->error) return l->error;
    if (known_elements(sequence, &items, &count) && known_position(which, count, count - 1, 0, &at))
        return out(l, n, 0, items[at]);
    Node *host = host_node(l, n, host_at, (Value *const[]){sequence, which}, 2);
    if (!host) return l->error;
    ItemType type = item_type_of(sequence);
    if (type.rank == RANK_EMPTY) type.rank = RANK_ANY;
    return out(l, n, 0, tensor_from(l, host, type, "element"));
}

static Status lower_length(Lowering *l, const Node *n) {
    Value *sequence = sequence_in(l, n, 0);
    Value *const *items;
    int count;
    if (l->error) return l->error;
    if (known_elements(sequence, &items, &count)) return out(l, n, 0, scalar_int(l, DT_I64, count));
    Node *host = host_node(l, n, host_length, &sequence, 1);
    return host ? out(l, n, 0, host_result(l, host, DT_I64, 0, NULL)) : l->error;
}

/* Pieces whose number and sizes are known; NULL when they are not. A scalar split of a known axis, or a constant list.
 */
static const int64_t *known_pieces(Lowering *l, const Value *split, const Dim *whole, int *out_count) {
    const Tensor *constant = constant_of(split);
    int64_t total = 0, size = 1;
    bool known = dim_is_const(whole, &total);
    if (split && (!constant || !dtype_is_integer(constant->dtype))) return NULL;
    if (split && constant->rank == 1) {
        if (constant->dims[0] > MOST_STATIC) return NULL;
        *out_count = (int)constant->dims[0];
        int64_t *sizes = ARENA_ARRAY(l->arena, int64_t, *out_count), sum = 0;
        for (int i = 0; i < *out_count; i++) {
            sizes[i] = dtype_load_int(constant->dtype, constant->data, i);
            if (sizes[i] < 0 || __builtin_add_overflow(sum, sizes[i], &sum)) return NULL;
        }
        return known && sum == total ? sizes : NULL;
    }
    if (split) size = dtype_load_int(constant->dtype, constant->data, 0);
    if (!known || size < 1 || total / size >= MOST_STATIC) return NULL;
    *out_count = (int)((total + size - 1) / size);
    int64_t *sizes = ARENA_ARRAY(l->arena, int64_t, *out_count);
    for (int i = 0; i < *out_count; i++) sizes[i] = total - i * size < size ? total - i * size : size;
    return sizes;
}

static Status lower_split(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *split = optional_in(l, n, 1);
    if (l->error) return l->error;
    int axis = axis_of(l, attr_int(n, "axis", 0), x->rank), count;
    bool drop = !split && attr_int(n, "keepdims", 1) == 0;
    if (l->error) return l->error;
    const int64_t *sizes = known_pieces(l, split, x->dims[axis], &count);
    if (sizes) {
        Value **pieces = ARENA_ARRAY(l->arena, Value *, count);
        int64_t at = 0;
        for (int i = 0; i < count; at += sizes[i++]) {
            pieces[i] = slice_axis(l, x, axis, dim_const(l->dims, at), dim_const(l->dims, sizes[i]));
            if (drop) pieces[i] = squeeze(l, pieces[i], &axis, 1);
        }
        return l->error ? l->error : construct(l, n, x->dtype, pieces, count);
    }
    ItemType type = item_type_held(l, item_type_of(x), VALUE_SEQUENCE);
    const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, x->rank);
    int rank = 0;
    for (int i = 0; i < x->rank; i++) {
        if (i == axis && drop) continue;
        dims[rank++] = i != axis ? type.dims[i] : split ? dim_symbol(l->dims, "$any") : dim_const(l->dims, 1);
    }
    type.dims = dims;
    type.rank = rank;
    Node *host = host_node(l, n, host_split, (Value *const[]){x, split}, 2);
    return host ? out(l, n, 0, item_result(l, host, &type)) : l->error;
}

static Status lower_concat(Lowering *l, const Node *n) {
    Value *sequence = sequence_in(l, n, 0);
    Value *const *items;
    int count;
    if (l->error) return l->error;
    bool new_axis = attr_int(n, "new_axis", 0) != 0;
    ItemType type = item_type_of(sequence);
    if (type.rank < 0) {
        Node *host = host_node(l, n, host_concat, &sequence, 1);
        type.rank = RANK_ANY;
        return host ? out(l, n, 0, tensor_from(l, host, type, "joined")) : l->error;
    }
    int axis = axis_of(l, attr_int(n, "axis", 0), type.rank + new_axis);
    if (l->error) return l->error;
    if (known_elements(sequence, &items, &count) && count > 0) {
        Value **parts = ARENA_ARRAY(l->arena, Value *, count);
        for (int i = 0; i < count; i++) parts[i] = new_axis ? unsqueeze(l, items[i], &axis, 1) : items[i];
        return out(l, n, 0, concat(l, parts, count, axis));
    }
    const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, type.rank + 1);
    for (int i = 0, from = 0; i < type.rank + new_axis; i++) {
        if (i == axis) {
            dims[i] = dim_symbol(l->dims, "$any");
            from += !new_axis;
        } else {
            dims[i] = type.dims[from++];
        }
    }
    type.dims = dims;
    type.rank += new_axis;
    Node *host = host_node(l, n, host_concat, &sequence, 1);
    return host ? out(l, n, 0, tensor_from(l, host, type, "joined")) : l->error;
}

/* ---- lowering: optionals ---- */

/* The node that made this optional from a value (or from none). */
static const Node *made_by_optional(const Value *value) {
    const Node *producer = value->producer;
    return producer && producer->kind == NODE_HOST && producer->host == host_optional ? producer : NULL;
}

static Status lower_optional(Lowering *l, const Node *n) {
    Value *x = optional_in(l, n, 0);
    if (l->error) return l->error;
    ValueKind kind =
        attr_int(n, "type_kind", VALUE_TENSOR) == VALUE_SEQUENCE ? VALUE_OPTIONAL_SEQUENCE : VALUE_OPTIONAL;
    ItemType type = {kind, attr_dtype(n, "type", DT_NONE), RANK_EMPTY, NULL};
    if (x && value_kind_is_optional(x->kind)) return out(l, n, 0, x);
    if (x && value_kind_has_maps(x->kind)) return invalid(l, "maps in optionals are not supported");
    if (x)
        type = item_type_held(l, item_type_of(x), x->kind == VALUE_SEQUENCE ? VALUE_OPTIONAL_SEQUENCE : VALUE_OPTIONAL);
    Node *host = host_node(l, n, host_optional, &x, x ? 1 : 0);
    return host ? out(l, n, 0, item_result(l, host, &type)) : l->error;
}

static Status lower_get_element(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (l->error) return l->error;
    if (!value_kind_is_optional(x->kind)) return out(l, n, 0, x);
    const Node *made = made_by_optional(x);
    if (made && made->input_count) return out(l, n, 0, made->inputs[0]);
    Node *host = host_node(l, n, host_get_element, &x, 1);
    if (!host) return l->error;
    ItemType type = item_type_of(x);
    if (x->kind == VALUE_OPTIONAL_SEQUENCE) {
        type.kind = VALUE_SEQUENCE;
        return out(l, n, 0, item_result(l, host, &type));
    }
    if (type.rank < 0) type.rank = RANK_ANY;
    return out(l, n, 0, tensor_from(l, host, type, "element"));
}

static Status lower_has_element(Lowering *l, const Node *n) {
    Value *x = optional_in(l, n, 0);
    if (l->error) return l->error;
    const Node *made = x ? made_by_optional(x) : NULL;
    if (!x || !value_kind_is_optional(x->kind) || made) {
        bool has = x && (!made || made->input_count > 0);
        return out(l, n, 0, scalar_int(l, DT_BOOL, has));
    }
    Node *host = host_node(l, n, host_has_element, &x, 1);
    return host ? out(l, n, 0, host_result(l, host, DT_BOOL, 0, NULL)) : l->error;
}

const OpRow ops_sequence[] = {
    {"", "SequenceConstruct", 11, 0, lower_construct, host_construct, 0},
    {"", "SequenceEmpty", 11, 0, lower_empty, host_construct, 0},
    {"", "SequenceInsert", 11, 0, lower_insert, host_insert, 0},
    {"", "SequenceErase", 11, 0, lower_erase, host_erase, 0},
    {"", "SequenceAt", 11, 0, lower_at, host_at, 0},
    {"", "SequenceLength", 11, 0, lower_length, host_length, 0},
    {"", "SplitToSequence", 11, 0, lower_split, host_split, 0},
    {"", "ConcatFromSequence", 11, 0, lower_concat, host_concat, 0},
    {"", "Optional", 15, 0, lower_optional, host_optional, 0},
    {"", "OptionalGetElement", 15, 0, lower_get_element, host_get_element, 0},
    {"", "OptionalHasElement", 15, 0, lower_has_element, host_has_element, 0},
    {0},
};
