/* SPDX-License-Identifier: Apache-2.0 */
/* The anchor "attention" on the GPU device: the program for a node, the strides of a run, the launches. */
#include "runtime/device/gpu/anchor_attention.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/integer.h"
#include "codegen/gpu/attention/attention.h"
#include "runtime/device/attention_shape.h"

_Static_assert(ATTENTION_RANK - 2 == (int)GPU_ATTENTION_LEAD,
               "the kernels take as many leading axes as the anchor has");
_Static_assert((int)ATTENTION_STEPS == (int)GPU_ATTENTION_STEPS && (int)SCORE_DROP == (int)GPU_SCORE_COUNT,
               "likewise for steps");
_Static_assert((int)ATTENTION_HEAD == (int)GPU_ATTENTION_HEAD, "likewise for the size of a head");

enum { Q, K, V, STEPS }; /* inputs */

struct GpuAttention {
    const Node *node; /* borrowed */
    GpuAttentionText text;
    int input[ATTENTION_STEPS]; /* of each step; -1: none */
    float scale;
    pthread_mutex_t lock;
    /* One a function, so that they are compiled beside each other, and so that those alone are that runs ask for. */
    GpuProgram *programs[GPU_ATTENTION_FUNCTIONS];
    const GpuFunction *functions[GPU_ATTENTION_FUNCTIONS]; /* NULL: not asked for so far */
};

/* ---- the node ---- */

static bool device_float(DType dtype) { return dtype == DT_F32 || dtype == DT_F16 || dtype == DT_BF16; }

/* The size of the last axis of permute(value, perm), when it is known. */
static bool last_size(const Node *node, const Value *v, const char *perm_name, int *out_size) {
    int count;
    int64_t size;
    const int64_t *perm = attr_ints(node, perm_name, &count);
    if (v->rank < 2 || (perm && count != v->rank) || (perm && (perm[count - 1] < 0 || perm[count - 1] >= count)))
        return false;
    if (!dim_is_const(v->dims[perm ? perm[count - 1] : v->rank - 1], &size)) return false;
    *out_size = (int)size;
    return size > 0 && size <= ATTENTION_HEAD;
}

static bool describe_steps(const Node *node, GpuAttentionText *text, int *input) {
    AttentionStep steps[ATTENTION_STEPS];
    if (attention_drops(node) || attention_has_sink(node) || !attention_steps(node, steps, &text->step_count))
        return false;
    for (int i = 0; i < text->step_count; i++) {
        const AttentionStep *s = &steps[i];
        DType dtype = s->input < 0 ? DT_NONE : node->inputs[s->input]->dtype;
        if (s->input >= 0 && dtype != DT_BOOL && !device_float(dtype)) return false;
        text->steps[i] = (GpuScore){(GpuScoreKind)s->kind, s->alpha, s->beta, dtype};
        input[i] = s->input;
    }
    return true;
}

/* What the program depends on; false where there is none. */
static bool describe(const GpuDevice *device, const Node *node, GpuAttentionText *text, int *input) {
    *text = (GpuAttentionText){.shared_bytes = device->limits->shared_bytes,
                               .shared_most = device->limits->shared_most,
                               .positive = (float)attr_float(node, "scale", 1) > 0,
                               .matrix = device->limits->matrix,
                               .groups = device->limits->groups,
                               .empty = (GpuEmpty)attr_int(node, "empty", EMPTY_NAN)};
    if (node->input_count < STEPS || !node->inputs[Q] || !node->inputs[K] || !node->inputs[V]) return false;
    text->dtype = node->inputs[Q]->dtype;
    if (!device_float(text->dtype) || node->inputs[Q]->rank > ATTENTION_RANK || text->empty > GPU_EMPTY_NAN_ZERO)
        return false;
    return last_size(node, node->inputs[K], "perm_k", &text->size) &&
           last_size(node, node->inputs[V], "perm_v", &text->width) && describe_steps(node, text, input);
}

bool gpu_attention_runs(const GpuDevice *device, const Node *node) {
    GpuAttentionText text;
    int input[ATTENTION_STEPS];
    return describe(device, node, &text, input) && gpu_attention_fits(&text, device->limits);
}

static Status render_functions(Arena *arena, const GpuAttentionText *attention, GpuDialect dialect,
                               const char *const *suffixes, int count, const char **sources) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
    for (int i = 0; i < count; i++) {
        Text text = text_make(arena);
        gpu_attention_render(&text, attention, dialect, "attention", suffixes[i]);
        sources[i] = text.data;
    }
    arena_guard(arena, NULL);
    return NULL;
}

/* The functions whose bits are set and that are not there yet. With the lock held, or before the anchor runs. */
static Status load_functions(GpuDevice *device, GpuAttention *attention, uint32_t wanted) {
    const char *sources[GPU_ATTENTION_FUNCTIONS], *all[GPU_ATTENTION_FUNCTIONS], *suffixes[GPU_ATTENTION_FUNCTIONS];
    GpuProgram *programs[GPU_ATTENTION_FUNCTIONS];
    int of[GPU_ATTENTION_FUNCTIONS], count = 0, every = gpu_attention_suffixes(&attention->text, all);
    for (int i = 0; i < every; i++)
        if (wanted >> i & 1 && !attention->functions[i]) of[count] = i, suffixes[count++] = all[i];
    if (!count) return NULL;
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Status status = render_functions(arena, &attention->text, device->driver->dialect, suffixes, count, sources);
    if (!status) status = gpu_programs_get(device, sources, count, NULL, programs);
    arena_destroy(arena);
    TRY(status);
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "attention%s", suffixes[i]);
        gpu_program_release(attention->programs[of[i]]); /* of a function that was not found before */
        attention->programs[of[i]] = programs[i];
        if (!status) status = gpu_program_function(programs[i], name, &attention->functions[of[i]]);
    }
    return status;
}

/* ---- sizes ---- */

static Status wrong(const GpuAttention *attention, const char *what) {
    return status_error(STATUS_INVALID, "%s (attention): %s", node_origin_name(attention->node), what);
}

_Static_assert((int)ATTENTION_LEAD == (int)GPU_ATTENTION_LEAD, "strides are handed on as they are");

static GpuAttentionStrides strides_of(const AttentionStrides *from) {
    GpuAttentionStrides s = {.row = from->row, .column = from->column};
    memcpy(s.lead, from->lead, sizeof s.lead);
    return s;
}

static bool aligned(const void *data, size_t bytes) { return (uintptr_t)data % bytes == 0; }

static Status bind_run(const GpuAttention *a, const Tensor *const *given, const int64_t *symbols, const Tensor *output,
                       AttentionInputs *operands, GpuAttentionRun *run) {
    const Node *node = a->node;
    const Tensor *const *inputs = operands->all;
    AttentionShape shape;
    for (int i = 0; i < node->input_count; i++)
        if (!given[i] || given[i]->dtype != node->inputs[i]->dtype) return wrong(a, "an input is missing");
    TRY(attention_shape(node, given, symbols, output, &shape));
    attention_inputs(&shape, given, node->input_count, operands);
    int64_t k_heads = most(shape.k_heads, 1), v_heads = most(shape.v_heads, 1), kv_heads = k_heads;
    while (kv_heads % v_heads) kv_heads += k_heads; /* the least multiple of both divides the heads as they do */
    if (shape.size != a->text.size || shape.width != a->text.width)
        return wrong(a, "the sizes of keys and values are not those of the program");
    *run = (GpuAttentionRun){.lead = {shape.lead[0], shape.lead[1], shape.lead[2]},
                             .kv_heads = kv_heads,
                             .k_share = kv_heads / k_heads,
                             .v_share = kv_heads / v_heads,
                             .queries = shape.queries,
                             .keys = shape.keys,
                             .offset = shape.offset,
                             .q = strides_of(&shape.q),
                             .k = strides_of(&shape.k),
                             .v = strides_of(&shape.v),
                             .out = strides_of(&shape.out),
                             .q_aligned = aligned(inputs[Q]->data, 16),
                             .k_aligned = aligned(inputs[K]->data, 16),
                             .v_aligned = aligned(inputs[V]->data, 16),
                             .out_aligned = aligned(output->data, 2 * dtype_size(output->dtype))};
    for (int i = 0; i < a->text.step_count; i++) run->steps[i] = strides_of(&shape.steps[i]);
    return NULL;
}

static int function_of(const GpuAttention *a, const char *suffix) {
    const char *suffixes[GPU_ATTENTION_FUNCTIONS];
    int function = 0;
    gpu_attention_suffixes(&a->text, suffixes);
    while (strcmp(suffixes[function], suffix)) function++;
    return function;
}

static bool known_tensor(const Value *value, Tensor *t) {
    *t = (Tensor){.dtype = value->dtype, .rank = value->rank};
    for (int i = 0; i < value->rank; i++)
        if (!dim_is_const(value->dims[i], &t->dims[i])) return false;
    return true;
}

/* The functions that runs will ask for: where all sizes are known, those of tensors that begin at whole 16 bytes, which most
 * do, else all of them. */
static uint32_t expected_functions(const GpuDevice *device, const GpuAttention *a) {
    enum { ALL = (1u << GPU_ATTENTION_FUNCTIONS) - 1 };
    const Node *node = a->node;
    Tensor tensors[STEPS + ATTENTION_STEPS], output;
    const Tensor *inputs[STEPS + ATTENTION_STEPS];
    AttentionInputs operands;
    GpuAttentionRun run;
    GpuAttentionLaunches launches;
    int count;
    const Dim *const *offset = attr_dims(node, "offset", &count);
    bool known = known_tensor(node->outputs[0], &output) && (!count || dim_is_const(offset[0], NULL));
    for (int i = 0; i < node->input_count && known; i++) {
        known = known_tensor(node->inputs[i], &tensors[i]);
        inputs[i] = &tensors[i];
    }
    if (!known) return ALL;
    Status wrong_sizes = bind_run(a, inputs, NULL, &output, &operands, &run); /* which the run will tell */
    status_free(wrong_sizes);
    if (wrong_sizes || !gpu_attention_launches(&a->text, &run, device->limits, &launches)) return 0;
    uint32_t functions = 0;
    for (int i = 0; i < launches.count; i++) functions |= 1u << function_of(a, launches.items[i].suffix);
    return functions;
}

Status gpu_attention_prepare(GpuDevice *device, const Node *node, GpuAttention **out_attention) {
    *out_attention = NULL;
    GpuAttention *attention = calloc(1, sizeof *attention);
    if (!attention) return status_out_of_memory();
    pthread_mutex_init(&attention->lock, NULL);
    attention->node = node;
    attention->scale = (float)attr_float(node, "scale", 1);
    Status status = describe(device, node, &attention->text, attention->input)
                        ? load_functions(device, attention, expected_functions(device, attention))
                        : status_error(STATUS_FAULT, "an attention that this device does not run");
    if (status) {
        gpu_attention_release(attention);
        return status_at(status, "node \"%s\"", node_origin_name(node));
    }
    *out_attention = attention;
    return NULL;
}

void gpu_attention_release(GpuAttention *attention) {
    if (!attention) return;
    for (int i = 0; i < GPU_ATTENTION_FUNCTIONS; i++) gpu_program_release(attention->programs[i]);
    pthread_mutex_destroy(&attention->lock);
    free(attention);
}

const char *gpu_attention_how(const GpuAttention *attention) {
    (void)attention;
    return "blockwise";
}

/* ---- runs ---- */

static GpuArgument buffer_argument(void *data) { return (GpuArgument){.kind = GPU_ARG_BUFFER, .buffer = data}; }

static Status find_function(GpuDevice *d, GpuAttention *a, const char *suffix, const GpuFunction **out_function) {
    int i = function_of(a, suffix);
    pthread_mutex_lock(&a->lock);
    Status status = a->functions[i] ? NULL : load_functions(d, a, 1u << i);
    *out_function = a->functions[i];
    pthread_mutex_unlock(&a->lock);
    return status;
}

static Status launch(GpuDevice *d, GpuStream *stream, GpuAttention *a, const GpuAttentionLaunch *l,
                     const Tensor *const *inputs, void *scratch, const Tensor *output) {
    GpuArgument arguments[GPU_ATTENTION_ARGUMENTS + GPU_ATTENTION_STEPS + 7];
    const GpuFunction *function;
    int count = 0;
    TRY(find_function(d, a, l->suffix, &function));
    for (int i = Q; i <= V && !l->join; i++) arguments[count++] = buffer_argument(inputs[i]->data);
    arguments[count++] = buffer_argument(output->data);
    arguments[count++] = buffer_argument(scratch);
    for (int i = 0; i < a->text.step_count && !l->join; i++)
        if (a->input[i] >= 0) arguments[count++] = buffer_argument(inputs[a->input[i]]->data);
    if (!l->join) arguments[count++] = (GpuArgument){.kind = GPU_ARG_F32, .f32 = a->scale};
    for (int i = 0; i < l->count; i++) arguments[count++] = (GpuArgument){.kind = GPU_ARG_I64, .i64 = l->arguments[i]};
    if (l->shared_bytes) arguments[count++] = (GpuArgument){.kind = GPU_ARG_SHARED, .i64 = (int64_t)l->shared_bytes};
    return gpu_watch(d, d->driver->launch(d->context, stream->stream, function, l->grid, l->block, arguments, count));
}

Status gpu_attention_run(GpuDevice *device, Stream *stream, GpuAttention *a, const Tensor *const *inputs,
                         const int64_t *symbols, Tensor *output) {
    AttentionInputs operands;
    GpuAttentionRun run;
    GpuAttentionLaunches launches;
    void *scratch = NULL;
    TRY(bind_run(a, inputs, symbols, output, &operands, &run));
    if (!gpu_attention_launches(&a->text, &run, device->limits, &launches))
        return status_error(STATUS_UNSUPPORTED, "%s (attention): more queries or keys than one launch takes",
                            node_origin_name(a->node));
    if (launches.scratch_bytes) TRY(gpu_stream_scratch(&device->base, stream, launches.scratch_bytes, &scratch));
    Status status = NULL;
    for (int i = 0; i < launches.count && !status; i++)
        status = launch(device, gpu_stream(stream), a, &launches.items[i], operands.all, scratch, output);
    return status;
}
