/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that the policy expects or rounds up. */
#include "runtime/api/buckets.h"

#include <math.h>
#include <stdlib.h>

/* --- hints --- */
static int symbol_number(const Graph *graph, const char *name) {
    for (int i = 0; i < dim_symbol_count(graph->dims); i++)
        if (strcmp(dim_symbol_name(graph->dims, i), name) == 0) return i;
    return -1;
}

static bool is_input_symbol(const Plan *plan, int symbol) {
    for (int i = 0; i < plan->graph->inputs.count; i++) {
        const Value *v = plan->graph->inputs.items[i];
        for (int d = 0; v->kind == VALUE_TENSOR && d < v->rank; d++)
            if (dim_symbol_index(v->dims[d]) == symbol) return true;
    }
    return false;
}

static Status bind_hint(const Plan *plan, const ShapeHint *hint, int number, int64_t *symbols) {
    const Graph *graph = plan->graph;
    for (int i = 0; i < plan->symbol_count; i++) symbols[i] = UNBOUND_DIM;
    for (int i = 0; i < hint->count; i++) {
        int symbol = symbol_number(graph, hint->symbols[i]);
        if (symbol < 0 || symbol >= plan->symbol_count || !is_input_symbol(plan, symbol))
            return status_error(STATUS_INVALID, "shapes.hints[%d].%s: no input of the model has such a size", number,
                                hint->symbols[i]);
        symbols[symbol] = hint->sizes[i];
    }
    for (int i = 0; i < plan->input_symbols.count; i++) {
        int symbol = plan->input_symbols.items[i];
        if (symbols[symbol] == UNBOUND_DIM && is_input_symbol(plan, symbol))
            return status_error(STATUS_INVALID, "shapes.hints[%d]: the size \"%s\" is missing", number,
                                dim_symbol_name(graph->dims, symbol));
    }
    return NULL;
}

/* The largest scratch memory of kernels whose sizes are known before a run. */
static size_t scratch_of(const Plan *plan, const Sizes *sizes, Place place) {
    size_t most = 0;
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        if (step->kind != STEP_KERNEL || step->place != place) continue;
        bool known = true;
        for (int i = 0; i < step->region.kernel->param_count; i++)
            known &= sizes->values[step->params_expr + i] != UNBOUND_DIM;
        size_t bytes =
            known ? step->on->table->kernel_scratch(step->on, step->kernel, sizes->values + step->params_expr) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

enum { MOST_BLOCKS = 16 }; /* that RunMemory keeps */

/* Blocks that a hint's run would take, of those not taken for others yet. */
typedef struct Taken {
    Block blocks[PLACES][MOST_BLOCKS];
    int count[PLACES];
} Taken;

/* As run_memory_take chooses. */
static bool fits(Block block, size_t bytes) { return block.bytes >= bytes && block.bytes / 4 <= bytes + 4096; }

static Status take(Taken *taken, struct RunMemory *buffers, Place place, const size_t *wanted, int count) {
    bool used[MOST_BLOCKS] = {false};
    for (int w = 0; w < count; w++) {
        bool found = !wanted[w];
        for (int i = 0; i < taken->count[place] && !found; i++)
            found = used[i] = !used[i] && fits(taken->blocks[place][i], wanted[w]);
        if (found || taken->count[place] == MOST_BLOCKS) continue;
        TRY(run_memory_take(buffers, place, wanted[w], &taken->blocks[place][taken->count[place]]));
        used[taken->count[place]++] = true;
    }
    return NULL;
}

static Status prepare_hint(const Plan *plan, const ShapeHint *hint, int number, int64_t *symbols,
                           struct RunMemory *buffers, Taken *taken) {
    const Sizes *sizes;
    TRY(bind_hint(plan, hint, number, symbols));
    TRY(status_at(sizes_get(plan, symbols, &sizes), "shapes.hints[%d]", number));
    Status status = NULL;
    for (int place = 0; place < PLACES && !status; place++) {
        size_t wanted[2] = {sizes->arena_bytes[place], scratch_of(plan, sizes, (Place)place)};
        status = take(taken, buffers, (Place)place, wanted, 2);
    }
    sizes_release(plan, sizes);
    return status_at(status, "shapes.hints[%d]", number);
}

Status hint_arena(const Plan *plan, const ShapeHint *hint, int number, int64_t *out_bytes) {
    static const ShapeHint none = {0};
    const Sizes *sizes = NULL;
    int64_t *symbols = malloc(sizeof *symbols * ((size_t)plan->symbol_count + 1));
    Status status = symbols ? status_at(bind_hint(plan, hint ? hint : &none, number, symbols), "%s",
                                        policy_source(plan->device->policy))
                            : status_out_of_memory();
    if (!status) status = sizes_get(plan, symbols, &sizes);
    *out_bytes = 0;
    for (int place = 0; sizes && place < PLACES; place++) *out_bytes += (int64_t)sizes->arena_bytes[place];
    if (sizes) sizes_release(plan, sizes);
    free(symbols);
    return status;
}

Status hints_prepare(const Plan *plan, const Policy *policy, struct RunMemory *buffers) {
    int count = policy->shapes.hint_count;
    Taken taken = {0};
    if (!count) return NULL;
    int64_t *symbols = malloc(sizeof *symbols * ((size_t)plan->symbol_count + 1));
    Status status = symbols ? NULL : status_out_of_memory();
    for (int i = 0; i < count && !status; i++)
        status = status_at(prepare_hint(plan, &policy->shapes.hints[i], i, symbols, buffers, &taken), "%s",
                           policy_source(policy));
    for (int place = 0; place < PLACES; place++)
        for (int i = 0; i < taken.count[place]; i++) run_memory_give(buffers, (Place)place, taken.blocks[place][i]);
    free(symbols);
    return status;
}

/* --- buckets --- */
typedef struct Axis {
    int value; /* number of the input or output */
    int axis, bucket;
    double pad; /* of inputs */
} Axis;

struct Buckets {
    const Policy *policy;
    const Graph *graph;
    VEC(Axis) inputs, outputs; /* by value, then by axis */
};

/* Whether an expression has the symbol in it. */
typedef struct Search {
    int symbol;
    bool found;
} Search;

static void look(int symbol, void *context) {
    Search *search = context;
    search->found |= symbol == search->symbol;
}

static bool has_symbol(const Dim *dim, int symbol) {
    Search search = {symbol, false};
    dim_each_symbol(dim, look, &search);
    return search.found;
}

static Status check_pad(const ShapeBucket *bucket, int number, const Value *v) {
    _Alignas(16) char element[16];
    double pad = bucket->pads[number];
    if (v->dtype == DT_STRING || !(dtype_is_float(v->dtype) || dtype_is_integer(v->dtype) || v->dtype == DT_BOOL))
        return status_error(STATUS_INVALID, "shapes.buckets.%s.pad.%s: an input of %s cannot be padded", bucket->symbol,
                            v->name, dtype_onnx_name(v->dtype));
    if (dtype_is_float(v->dtype)) return NULL;
    bool whole = pad == floor(pad) && fabs(pad) <= 0x1p53;
    if (whole) dtype_store_int(v->dtype, element, 0, (int64_t)pad);
    if (whole && (double)dtype_load_int(v->dtype, element, 0) == pad) return NULL;
    return status_error(STATUS_INVALID, "shapes.buckets.%s.pad.%s: %g is no %s", bucket->symbol, v->name, pad,
                        dtype_onnx_name(v->dtype));
}

static int pad_of(const ShapeBucket *bucket, const char *input) {
    for (int i = 0; i < bucket->pad_count; i++)
        if (strcmp(bucket->inputs[i], input) == 0) return i;
    return -1;
}

static Status find_inputs(Buckets *b, Arena *arena, int number, int symbol) {
    const ShapeBucket *bucket = &b->policy->shapes.buckets[number];
    bool *seen = ARENA_ARRAY(arena, bool, bucket->pad_count);
    for (int i = 0; i < b->graph->inputs.count; i++) {
        const Value *v = b->graph->inputs.items[i];
        int pad = pad_of(bucket, v->name);
        for (int d = 0; v->kind == VALUE_TENSOR && d < v->rank; d++) {
            if (dim_symbol_index(v->dims[d]) != symbol) continue;
            if (pad < 0)
                return status_error(STATUS_INVALID,
                                    "shapes.buckets.%s.pad: input \"%s\" has this size too, and is not named",
                                    bucket->symbol, v->name);
            if (!seen[pad]) TRY(check_pad(bucket, pad, v));
            seen[pad] = true;
            VEC_PUSH(arena, b->inputs, (Axis){.value = i, .axis = d, .bucket = number, .pad = bucket->pads[pad]});
        }
    }
    for (int i = 0; i < bucket->pad_count; i++)
        if (!seen[i])
            return status_error(STATUS_INVALID, "shapes.buckets.%s.pad.%s: no input of this name has this size",
                                bucket->symbol, bucket->inputs[i]);
    return NULL;
}

static Status find_outputs(Buckets *b, Arena *arena, int number, int symbol) {
    const ShapeBucket *bucket = &b->policy->shapes.buckets[number];
    for (int o = 0; o < b->graph->outputs.count; o++) {
        const Value *v = b->graph->outputs.items[o];
        for (int d = 0; v->kind == VALUE_TENSOR && d < v->rank; d++) {
            if (!has_symbol(v->dims[d], symbol)) continue;
            if (dim_symbol_index(v->dims[d]) != symbol) {
                Text text = text_make(arena);
                dim_print(&text, v->dims[d]);
                return status_error(STATUS_INVALID,
                                    "shapes.buckets.%s: output \"%s\" has the size %s, which cannot be cropped",
                                    bucket->symbol, b->graph->output_names.items[o], text.data);
            }
            VEC_PUSH(arena, b->outputs, (Axis){.value = o, .axis = d, .bucket = number});
        }
    }
    return NULL;
}

static Status find_axes(Buckets *b, Arena *arena, int number) {
    const char *name = b->policy->shapes.buckets[number].symbol;
    int symbol = symbol_number(b->graph, name);
    if (symbol < 0)
        return status_error(STATUS_INVALID, "shapes.buckets.%s: no input of the model has such a size", name);
    TRY(find_inputs(b, arena, number, symbol));
    return find_outputs(b, arena, number, symbol);
}

Status buckets_make(Arena *arena, const Policy *policy, const Graph *graph, const Buckets **out_buckets) {
    *out_buckets = NULL;
    if (!policy->shapes.bucket_count) return NULL;
    Buckets *b = ARENA_NEW(arena, Buckets);
    *b = (Buckets){.policy = policy, .graph = graph};
    for (int i = 0; i < policy->shapes.bucket_count; i++)
        TRY(status_at(find_axes(b, arena, i), "%s", policy_source(policy)));
    *out_buckets = b;
    return NULL;
}

/* --- a run --- */
static int64_t rounded(const ShapeBucket *bucket, int64_t size) {
    for (int i = 0; i < bucket->size_count; i++)
        if (bucket->sizes[i] >= size) return bucket->sizes[i];
    return size;
}

/* The sizes as given; inputs that disagree must not be padded until they agree. */
static Status read_sizes(const Buckets *b, const Item *const *items, int64_t *sizes) {
    for (int i = 0; i < b->inputs.count; i++) {
        const Axis *a = &b->inputs.items[i];
        const Value *v = b->graph->inputs.items[a->value];
        const Item *item = items[a->value];
        if (!item || item->kind != ITEM_TENSOR || item->tensor.rank != v->rank) continue; /* the run says so */
        int64_t size = item->tensor.dims[a->axis];
        if (sizes[a->bucket] >= 0 && sizes[a->bucket] != size)
            return status_error(STATUS_INVALID, "input \"%s\": axis %d has %lld elements, but \"%s\" is %lld", v->name,
                                a->axis, (long long)size, b->policy->shapes.buckets[a->bucket].symbol,
                                (long long)sizes[a->bucket]);
        sizes[a->bucket] = size;
    }
    for (int i = 0; i < b->policy->shapes.bucket_count; i++)
        if (sizes[i] >= 0 && rounded(&b->policy->shapes.buckets[i], sizes[i]) == sizes[i]) sizes[i] = -1;
    return NULL;
}

static int64_t product(const int64_t *dims, int from, int to) {
    int64_t all = 1;
    for (int i = from; i < to; i++) all *= dims[i];
    return all;
}

static void fill(Tensor *t, double value) {
    int64_t count = tensor_count(t);
    bool is_float = dtype_is_float(t->dtype);
    size_t size = dtype_size(t->dtype);
    if (!count) return;
    if (value == 0) {
        memset(t->data, 0, size * (size_t)count);
        return;
    }
    if (is_float)
        dtype_store_double(t->dtype, t->data, 0, value);
    else
        dtype_store_int(t->dtype, t->data, 0, (int64_t)value);
    for (size_t done = size, all = size * (size_t)count; done < all;) { /* doubling */
        size_t more = done < all - done ? done : all - done;
        memcpy((char *)t->data + done, t->data, more);
        done += more;
    }
}

/* What both have along one axis, the others being equal. */
static void copy_common(const Tensor *from, Tensor *to, int axis) {
    int64_t outer = product(from->dims, 0, axis), inner = product(from->dims, axis + 1, from->rank);
    int64_t rows = from->dims[axis] < to->dims[axis] ? from->dims[axis] : to->dims[axis];
    size_t size = dtype_size(from->dtype), bytes = size * (size_t)(rows * inner);
    for (int64_t i = 0; i < outer && bytes; i++)
        memcpy((char *)to->data + size * (size_t)(i * to->dims[axis] * inner),
               (const char *)from->data + size * (size_t)(i * from->dims[axis] * inner), bytes);
}

static Status resize(Memory *memory, const Tensor *from, int axis, int64_t size, const double *pad, Item *out_item) {
    int64_t dims[MAX_RANK];
    memcpy(dims, from->dims, sizeof *dims * (size_t)from->rank);
    dims[axis] = size;
    TRY(item_new_tensor(memory, from->dtype, from->rank, dims, out_item));
    if (pad) fill(&out_item->tensor, *pad);
    copy_common(from, &out_item->tensor, axis);
    return NULL;
}

static Status pad_inputs(const Buckets *b, Memory *memory, const Item **items, const bool *on_device, Padding *p) {
    for (int i = 0; i < b->inputs.count; i++) {
        const Axis *a = &b->inputs.items[i];
        const Value *v = b->graph->inputs.items[a->value];
        const Item *item = items[a->value];
        if (p->sizes[a->bucket] < 0 || !item || item->kind != ITEM_TENSOR || item->tensor.rank != v->rank ||
            item->tensor.dtype != v->dtype)
            continue;
        if (on_device[a->value])
            return status_error(
                STATUS_USAGE, "input \"%s\": the policy's bucket for \"%s\" pads it, which works in host memory alone",
                v->name, b->policy->shapes.buckets[a->bucket].symbol);
        int64_t size = rounded(&b->policy->shapes.buckets[a->bucket], p->sizes[a->bucket]);
        Item padded;
        TRY(status_at(resize(memory, &item->tensor, a->axis, size, &a->pad, &padded), "input \"%s\"", v->name));
        item_free(memory, &p->inputs[a->value]);
        p->inputs[a->value] = padded;
        items[a->value] = &p->inputs[a->value];
    }
    return NULL;
}

static Status take_outputs(const Buckets *b, RunOutput *made, const bool *on_device, Padding *p) {
    for (int i = 0; i < b->outputs.count; i++) {
        const Axis *a = &b->outputs.items[i];
        if (p->sizes[a->bucket] < 0 || p->cropped[a->value]) continue;
        if (on_device[a->value])
            return status_error(
                STATUS_USAGE,
                "output \"%s\": the policy's bucket for \"%s\" crops it, which works in host memory alone",
                b->graph->output_names.items[a->value], b->policy->shapes.buckets[a->bucket].symbol);
        p->cropped[a->value] = true;
        p->given[a->value] = made[a->value];
        made[a->value] = (RunOutput){0};
    }
    return NULL;
}

Status buckets_pad(const Buckets *b, Memory *memory, const Item **items, const bool *in_on_device, RunOutput *made,
                   const bool *out_on_device, Padding *p) {
    size_t inputs = (size_t)b->graph->inputs.count, outputs = (size_t)b->graph->outputs.count;
    int buckets = b->policy->shapes.bucket_count;
    *p = (Padding){.sizes = malloc(sizeof(int64_t) * (size_t)buckets),
                   .inputs = calloc(inputs + 1, sizeof(Item)),
                   .given = calloc(outputs + 1, sizeof(RunOutput)),
                   .cropped = calloc(outputs + 1, sizeof(bool)),
                   .graph = b->graph};
    if (!p->sizes || !p->inputs || !p->given || !p->cropped) return status_out_of_memory();
    for (int i = 0; i < buckets; i++) p->sizes[i] = -1;
    TRY(read_sizes(b, items, p->sizes));
    TRY(pad_inputs(b, memory, items, in_on_device, p));
    return take_outputs(b, made, out_on_device, p);
}

static Status crop_axes(const Buckets *b, Memory *memory, const Padding *p, int output, Item *item) {
    for (int i = 0; i < b->outputs.count; i++) {
        const Axis *a = &b->outputs.items[i];
        if (a->value != output || p->sizes[a->bucket] < 0) continue;
        Item cropped;
        TRY(resize(memory, &item->tensor, a->axis, p->sizes[a->bucket], NULL, &cropped));
        item_free(memory, item);
        *item = cropped;
    }
    return NULL;
}

static Status hand_over(Memory *memory, const char *name, const RunOutput *given, RunOutput *made) {
    const Tensor *from = &made->item.tensor, *to = &given->item.tensor;
    bool same = tensor_same_shape(from, to);
    if (same && tensor_bytes(from)) memcpy(to->data, from->data, tensor_bytes(from));
    item_free(memory, &made->item);
    *made = *given;
    if (same) return NULL;
    return status_error(STATUS_INVALID, "output \"%s\": the given buffer has another shape than the result", name);
}

Status buckets_crop(const Buckets *b, Memory *memory, const Padding *p, RunOutput *made) {
    Status status = NULL;
    for (int o = 0; o < b->graph->outputs.count && !status; o++) {
        if (!p->cropped[o]) continue;
        status = status_at(crop_axes(b, memory, p, o, &made[o].item), "output \"%s\"", b->graph->output_names.items[o]);
        if (!status && p->given[o].given)
            status = hand_over(memory, b->graph->output_names.items[o], &p->given[o], &made[o]);
    }
    for (int o = 0; o < b->graph->outputs.count && status; o++)
        if (!made[o].given) item_free(memory, &made[o].item);
    return status;
}

void buckets_release(Memory *memory, Padding *p) {
    for (int i = 0; p->inputs && i < p->graph->inputs.count; i++) item_free(memory, &p->inputs[i]);
    free(p->sizes);
    free(p->inputs);
    free(p->given);
    free(p->cropped);
    *p = (Padding){0};
}
