/* SPDX-License-Identifier: Apache-2.0 */
/* Selection by order: TopK and Unique. Elements become 64-bit keys whose unsigned order is the elements' order (NaN
 * above all, -0 equal to 0), so that one comparison serves all number types. */
#include "lowering/gradient.h"
#include "lowering/sizes.h"
#include "ops/families.h"

static uint64_t key_of_float(double value) {
    uint64_t bits;
    if (value == 0) value = 0; /* drops the sign */
    if (value != value) return UINT64_MAX;
    memcpy(&bits, &value, sizeof bits);
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

static uint64_t key_of(const Tensor *t, int64_t i) {
    if (t->dtype == DT_F32) return key_of_float((double)((const float *)t->data)[i]);
    if (dtype_is_float(t->dtype)) return key_of_float(dtype_load_double(t->dtype, t->data, i));
    uint64_t bits = (uint64_t)dtype_load_int(t->dtype, t->data, i);
    return dtype_class(t->dtype) == DTYPE_SIGNED ? bits ^ UINT64_C(1) << 63 : bits;
}

static bool has_order(DType dtype) { return dtype_is_float(dtype) || dtype_is_integer(dtype) || dtype == DT_BOOL; }

/* ---- TopK ---- */

typedef struct Entry {
    uint64_t key;
    int64_t index;
} Entry;

typedef struct TopK {
    const Tensor *x;
    Tensor *values, *indices; /* either may be NULL */
    int64_t length, inner, k;
    bool largest;
    Entry *heaps; /* [workers][k] */
} TopK;

/* a comes before b in the result. */
static bool before(Entry a, Entry b) { return a.key != b.key ? a.key > b.key : a.index < b.index; }

/* Restores the heap whose root is the entry that comes last, below `at`. */
static void sink(Entry *heap, int64_t count, int64_t at) {
    Entry moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(heap[child], heap[child + 1])) child++;
        if (!before(moved, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* The heap's last entry in order gives way to a better one. */
static void offer(const TopK *t, int64_t first, int64_t i, Entry *heap) {
    uint64_t key = key_of(t->x, first + i * t->inner);
    Entry entry = {t->largest ? key : ~key, i};
    if (!before(entry, heap[0])) return;
    heap[0] = entry;
    sink(heap, t->k, 0);
}

/* As offering each element, with one comparison for all that are no better than the worst kept; NaN passes it. */
static void offer_line_f32(const TopK *t, int64_t first, Entry *heap) {
    const float *x = (const float *)t->x->data + first;
    for (int64_t i = t->k; i < t->length;) {
        float limit = x[heap[0].index];
        if (t->largest)
            while (i < t->length && x[i] <= limit) i++;
        else
            while (i < t->length && x[i] >= limit) i++;
        if (i < t->length) offer(t, first, i++, heap);
    }
}

static void select_line(const TopK *t, int64_t first, Entry *heap) {
    for (int64_t i = 0; i < t->k; i++) {
        uint64_t key = key_of(t->x, first + i * t->inner);
        heap[i] = (Entry){t->largest ? key : ~key, i};
    }
    for (int64_t at = t->k / 2; at >= 0; at--) sink(heap, t->k, at);
    if (t->x->dtype == DT_F32 && t->inner == 1)
        offer_line_f32(t, first, heap);
    else
        for (int64_t i = t->k; i < t->length; i++) offer(t, first, i, heap);
    for (int64_t count = t->k - 1; count > 0; count--) { /* the last in order goes to the end */
        Entry last = heap[0];
        heap[0] = heap[count];
        heap[count] = last;
        sink(heap, count, 0);
    }
}

static void select_lines(void *context, int64_t begin, int64_t end, int worker) {
    const TopK *t = context;
    Entry *heap = t->heaps + worker * t->k;
    size_t size = dtype_size(t->x->dtype);
    for (int64_t line = begin; line < end; line++) {
        int64_t outer = line / t->inner, offset = line % t->inner, first = outer * t->length * t->inner + offset;
        select_line(t, first, heap);
        for (int64_t i = 0; i < t->k; i++) {
            int64_t to = (outer * t->k + i) * t->inner + offset, from = first + heap[i].index * t->inner;
            if (t->values)
                memcpy((char *)t->values->data + (size_t)to * size, (const char *)t->x->data + (size_t)from * size,
                       size);
            if (t->indices) ((int64_t *)t->indices->data)[to] = heap[i].index;
        }
    }
}

static Status host_top_k(HostCall *call) {
    TopK t = {.inner = 1, .largest = attr_int(call->node, "largest", 1) != 0};
    int64_t dims[MAX_RANK], outer = 1;
    int axis = (int)attr_int(call->node, "axis", 0);
    TRY(host_tensor(call, 0, DT_NONE, &t.x));
    TRY(host_sizes(call, "k", 1, &t.k));
    t.length = t.x->dims[axis];
    if (t.k < 0 || t.k > t.length)
        return host_error(call, "%lld elements are asked for of %lld", (long long)t.k, (long long)t.length);
    memcpy(dims, t.x->dims, sizeof dims);
    dims[axis] = t.k;
    for (int i = 0; i < axis; i++) outer *= dims[i];
    for (int i = axis + 1; i < t.x->rank; i++) t.inner *= dims[i];
    TRY(host_output(call, 0, t.x->dtype, t.x->rank, dims, &t.values));
    TRY(host_output(call, 1, DT_I64, t.x->rank, dims, &t.indices));
    if (!t.k) return NULL;
    t.heaps = arena_array(call->arena, (size_t)pool_threads(call->pool), (size_t)t.k * sizeof *t.heaps);
    pool_for(call->pool, outer * t.inner, 1 + 4096 / (t.length + 1), select_lines, &t);
    return NULL;
}

/* Each value came from one place. */
static void back_top_k(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *zeros = full_like(l, n->inputs[0], 0);
    give(w, n, 0, scatter_elements(l, zeros, n->outputs[1], dy(w, n, 0), (int)attr_int(n, "axis", 0), "add"));
}

static Status lower_top_k(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    if (!has_order(x->dtype)) return invalid(l, "elements of type %s have no order", dtype_onnx_name(x->dtype));
    int axis = axis_of(l, attr_int(n, "axis", -1), x->rank);
    int64_t given = attr_int(n, "k", -1), known, length;
    const Dim *k = size_const(l, given);
    if (n->opset >= 10) k = size_from(l, in(l, n, 1), "k");
    if (l->error) return l->error;
    if (dim_is_const(k, &known) && (known < 0 || (dim_is_const(x->dims[axis], &length) && known > length)))
        return invalid(l, "%lld elements are asked for, more than axis %d has", (long long)known, axis);
    Node *host = host_node(l, n, host_top_k, &x, 1);
    node_set_int(host, "axis", axis);
    node_set_dims(host, "k", &k, 1);
    const Dim **dims = dims_copy(l, x, x->rank);
    dims[axis] = k;
    Value *values = host_result(l, host, x->dtype, x->rank, dims),
          *indices = host_result(l, host, DT_I64, x->rank, dims);
    if (wants_output(n, 0)) TRY(out(l, n, 0, values));
    return wants_output(n, 1) ? out(l, n, 1, indices) : l->error;
}

/* ---- Unique ---- */

/* Items are elements, or the slices along an axis; an item is `length` elements. */
typedef struct Items {
    const Tensor *x;
    int64_t count, length, inner, outer; /* x is [outer, count, inner], length = outer * inner */
    uint64_t *keys;                      /* [outer * count * inner]; NULL for strings */
} Items;

static int compare_strings(StringView a, StringView b) {
    size_t common = a.size < b.size ? a.size : b.size;
    int order = common ? memcmp(a.data, b.data, common) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

static int compare_items(const Items *s, int64_t a, int64_t b) {
    for (int64_t o = 0; o < s->outer; o++) {
        for (int64_t i = 0; i < s->inner; i++) {
            int64_t x = (o * s->count + a) * s->inner + i, y = (o * s->count + b) * s->inner + i;
            const StringView *strings = s->x->data;
            int order = s->keys ? (s->keys[x] > s->keys[y]) - (s->keys[x] < s->keys[y])
                                : compare_strings(strings[x], strings[y]);
            if (order) return order;
        }
    }
    return 0;
}

/* Stable merge sort of item numbers, bottom up; `to` is scratch [count]. Returns whichever of the two arrays holds the
 * result. */
static int64_t *sort_items(const Items *s, int64_t *from, int64_t *to) {
    for (int64_t width = 1; width < s->count; width *= 2) {
        for (int64_t start = 0; start < s->count; start += 2 * width) {
            int64_t middle = start + width < s->count ? start + width : s->count;
            int64_t end = middle + width < s->count ? middle + width : s->count;
            for (int64_t a = start, b = middle, k = start; k < end; k++)
                to[k] = a < middle && (b >= end || compare_items(s, from[a], from[b]) <= 0) ? from[a++] : from[b++];
        }
        int64_t *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* As sort_items for items of one key: by the eight bytes of the key, the lowest first. Bytes that are all equal cost
 * one look. */
static int64_t *sort_keys(Arena *arena, const Items *s) {
    Entry *from = ARENA_ARRAY(arena, Entry, s->count), *to = ARENA_ARRAY(arena, Entry, s->count);
    for (int64_t i = 0; i < s->count; i++) from[i] = (Entry){s->keys[i], i};
    for (int shift = 0; shift < 64; shift += 8) {
        int64_t place[257] = {0};
        for (int64_t i = 0; i < s->count; i++) place[(from[i].key >> shift & 255) + 1]++;
        if (s->count && place[(from[0].key >> shift & 255) + 1] == s->count) continue;
        for (int i = 1; i < 257; i++) place[i] += place[i - 1];
        for (int64_t i = 0; i < s->count; i++) to[place[from[i].key >> shift & 255]++] = from[i];
        Entry *swap = from;
        from = to;
        to = swap;
    }
    int64_t *order = ARENA_ARRAY(arena, int64_t, s->count);
    for (int64_t i = 0; i < s->count; i++) order[i] = from[i].index;
    return order;
}

static int64_t *sorted_items(Arena *arena, const Items *s) {
    if (s->keys && s->length == 1) return sort_keys(arena, s);
    int64_t *numbers = ARENA_ARRAY(arena, int64_t, s->count);
    for (int64_t i = 0; i < s->count; i++) numbers[i] = i;
    return sort_items(s, numbers, ARENA_ARRAY(arena, int64_t, s->count));
}

typedef struct Groups {
    int64_t count;
    int64_t *first, *size; /* [count]: the first item of each group, and how many are in it */
    int64_t *group;        /* [items]: the group of each item */
} Groups;

static Groups group_items(Arena *arena, const Items *s, bool sorted) {
    int64_t *rank = ARENA_ARRAY(arena, int64_t, s->count), *order = sorted_items(arena, s);
    Groups g = {0, ARENA_ARRAY(arena, int64_t, s->count), ARENA_ARRAY(arena, int64_t, s->count),
                ARENA_ARRAY(arena, int64_t, s->count)};
    for (int64_t i = 0; i < s->count; i++) {
        if (i == 0 || compare_items(s, order[i - 1], order[i]) != 0) g.first[g.count++] = order[i];
        g.group[order[i]] = g.count - 1;
        g.size[g.count - 1]++;
    }
    if (sorted) return g;
    /* Renumbered by first appearance. */
    Groups by_place = {0, ARENA_ARRAY(arena, int64_t, s->count), ARENA_ARRAY(arena, int64_t, s->count), g.group};
    for (int64_t i = 0; i < s->count; i++) {
        int64_t old = g.group[i];
        if (g.first[old] == i) {
            by_place.size[by_place.count] = g.size[old];
            by_place.first[by_place.count] = i;
            rank[old] = by_place.count++;
        }
        by_place.group[i] = rank[old];
    }
    return by_place;
}

static Status items_of(HostCall *call, const Tensor *x, Items *s, bool flat, int axis) {
    int64_t elements = tensor_count(x);
    *s = (Items){x, flat ? elements : x->dims[axis], 1, 1, 1, NULL};
    for (int i = 0; !flat && i < x->rank; i++) {
        if (i < axis) s->outer *= x->dims[i];
        if (i > axis) s->inner *= x->dims[i];
    }
    s->length = s->outer * s->inner;
    if (x->dtype == DT_STRING) return NULL;
    if (!has_order(x->dtype)) return host_error(call, "elements of type %s have no order", dtype_onnx_name(x->dtype));
    s->keys = ARENA_ARRAY(call->arena, uint64_t, elements);
    for (int64_t i = 0; i < elements; i++) s->keys[i] = key_of(x, i);
    return NULL;
}

static void copy_items(const Items *s, const Groups *g, Tensor *y) {
    size_t size = dtype_size(s->x->dtype) * (size_t)s->inner;
    for (int64_t o = 0; o < s->outer; o++)
        for (int64_t i = 0; i < g->count; i++)
            memcpy((char *)y->data + (size_t)(o * g->count + i) * size,
                   (const char *)s->x->data + (size_t)(o * s->count + g->first[i]) * size, size);
}

static Status host_unique(HostCall *call) {
    const Tensor *x;
    Tensor *y;
    Items items;
    TRY(host_tensor(call, 0, DT_NONE, &x));
    const Attr *attr = node_attr(call->node, "axis");
    bool flat = attr == NULL;
    int axis = flat ? 0 : (int)attr_int(call->node, "axis", 0);
    TRY(items_of(call, x, &items, flat, axis));
    Groups g = group_items(call->arena, &items, attr_int(call->node, "sorted", 1) != 0);
    int64_t dims[MAX_RANK] = {g.count};
    if (!flat) {
        memcpy(dims, x->dims, sizeof dims);
        dims[axis] = g.count;
    }
    TRY(host_output(call, 0, x->dtype, flat ? 1 : x->rank, dims, &y));
    if (y) copy_items(&items, &g, y);
    const int64_t *lists[] = {g.first, g.group, g.size};
    for (int i = 0; i < 3 && 1 + i < call->node->output_count; i++) {
        int64_t length = i == 1 ? items.count : g.count;
        TRY(host_output(call, 1 + i, DT_I64, 1, &length, &y));
        if (y && length) memcpy(y->data, lists[i], (size_t)length * sizeof *lists[i]);
    }
    return NULL;
}

/* A value is its first occurrence. */
static void back_unique(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *x = n->inputs[0], *places = places_of(l, x);
    bool flat = !node_attr(n, "axis");
    if (flat && places) places = flatten_to(l, places, 0, x->rank);
    places = gather(l, places, n->outputs[1], flat ? 0 : (int)attr_int(n, "axis", 0));
    give(w, n, 0, added_at(l, x, places, dy(w, n, 0)));
}

static Status lower_unique(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    bool flat = !node_attr(n, "axis");
    int axis = flat ? 0 : axis_of(l, attr_int(n, "axis", 0), x->rank);
    if (l->error) return l->error;
    const Dim *found = dim_fresh(l->dims, "unique"), **dims = dims_copy(l, x, x->rank + 1);
    dims[axis] = found;
    Node *host = host_node(l, n, host_unique, &x, 1);
    if (!flat) node_set_int(host, "axis", axis);
    const Dim *items = flat ? value_elements(l->graph, x) : x->dims[axis];
    Value *results[4] = {host_result(l, host, x->dtype, flat ? 1 : x->rank, dims)};
    for (int i = 1; i < 4; i++) results[i] = host_result(l, host, DT_I64, 1, i == 2 ? &items : &found);
    for (int i = 0; i < 4; i++)
        if (wants_output(n, i)) TRY(out(l, n, i, results[i]));
    return l->error;
}

/* com.microsoft's: in the order of the first appearances, whose places are no output. */
static Status lower_unique_in_place(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    const Dim *found = dim_fresh(l->dims, "unique"), *items = value_elements(l->graph, x);
    Node *host = host_node(l, n, host_unique, &x, 1);
    node_set_int(host, "sorted", 0);
    static const int places[] = {0, -1, 1, 2};
    for (int i = 0; i < 4; i++) {
        Value *result = host_result(l, host, i ? DT_I64 : x->dtype, 1, i == 2 ? &items : &found);
        if (places[i] >= 0 && wants_output(n, places[i])) TRY(out(l, n, places[i], result));
    }
    return l->error;
}

const OpRow ops_select[] = {
    {"", "TopK", 1, 0, lower_top_k, host_top_k, 0},
    {"", "Unique", 11, 0, lower_unique, host_unique, 0},
    {"com.microsoft", "Unique", 1, 0, lower_unique_in_place, host_unique, 0},
    {0},
};

const HostRow hosts_select[] = {
    {"TopK", host_top_k, back_top_k},
    {"Unique", host_unique, back_unique},
    {0},
};
