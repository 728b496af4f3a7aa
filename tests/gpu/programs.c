/* SPDX-License-Identifier: Apache-2.0 */
#include "programs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "codegen/gpu/attention/attention.h"
#include "codegen/gpu/movement/movement.h"
#include "codegen/gpu/product/product.h"
#include "codegen/gpu/window/window.h"
#include "runtime/device/gpu/gpu.h"

/* Of an NVIDIA GPU of compute capability 8.0 and up. */
static const GpuLimits limits = {.multiprocessors = 108,
                                 .block_threads = 1024,
                                 .shared_bytes = 48 << 10,
                                 .shared_most = 163 << 10,
                                 .fp64 = true,
                                 .matrix = true,
                                 .argument_bytes = 4096};

static void add_program(Cases *cases, const char *text, const char *origin) {
    if (map_get(&cases->by_text, text)) return;
    KernelCase *c = ARENA_NEW(cases->arena, KernelCase);
    *c = (KernelCase){.program = true, .text = arena_string(cases->arena, text), .origin = origin};
    map_set(&cases->by_text, c->text, c);
    VEC_PUSH(cases->arena, cases->items, c);
}

/* --- all of them ------------------------------------------------------------------------------------------------- */

static const DType all_types[] = {DT_F32, DT_F64, DT_F16, DT_BF16, DT_I8,  DT_U8,  DT_I16,
                                  DT_U16, DT_I32, DT_U32, DT_I64,  DT_U64, DT_BOOL};
enum { ALL_TYPES = sizeof all_types / sizeof *all_types };

static void add_variant(Cases *cases, const GpuVariant *v) {
    Text text = text_make(cases->arena);
    gpu_product_render(&text, v, GPU_CUDA, "product");
    add_program(cases, text.data,
                arena_format(
                    cases->arena, "product of kind %d, tile %d, %s%s%s%s%s%s%s%s, %s", v->kind, v->tile,
                    dtype_name(v->dtype), v->matrix ? ", on matrix units" : "", v->gather ? ", gathered" : "",
                    v->a_outer ? ", a turned" : "", v->b_outer ? "" : ", b turned", v->transposed ? ", transposed" : "",
                    v->window ? arena_format(cases->arena, ", depthwise %dx%d by %d", v->window, v->window, v->stride)
                    : v->depthwise ? ", depthwise"
                                   : "",
                    v->partial ? ", partial" : "", v->epilogue ? "with an epilogue" : "bare"));
}

/* Steps that make y of r, of type T[M, N], with operands b: T[N], a: T[M, N] and s: T[M, 1]: a bias, a step more, and
 * the sum with a tensor. Integers take the first of the steps between. */
static const char *const middles[] = {
    "h: T[M, N] = max g, zero",
    "h: T[M, N] = min g, zero",
    "h: T[M, N] = mul g, s",
    "h: T[M, N] = tanh g",
    "h: T[M, N] = sigmoid g",
    "h: T[M, N] = erf g",
    "k: bool[M, N] = lt g, zero\n  l: T[M, N] = abs g\n  h: T[M, N] = where k, l, g",
    "w: u32[M, N] = philox seed {shape = (M, N), halves = 1}\n  k: bool[M, N] = lt w, most\n  h: T[M, N] = where k, g, "
    "zero",
};
enum { MIDDLES = sizeof middles / sizeof *middles, INTEGER_MIDDLES = 3 };

static const char *typed(Arena *arena, const char *text, DType type) {
    Text out = text_make(arena);
    for (; *text; text++)
        if (*text == 'T' && text[1] == '[')
            text_add(&out, "%s", dtype_name(type));
        else
            text_add_bytes(&out, text, 1);
    return out.data;
}

static GpuEpilogue *epilogue_of(Arena *arena, DType dtype, int number) {
    static const char form[] =
        "graph (p: T[M, K], q: T[K, N], c: T[N], d: T[M, N], t: T[M, 1]) -> (out) {\n"
        "out: T[M, N] = anchor matmul p, q, c, d, t graph \"epilogue\" (r: T[M, N], b: T[N], a: T[M, N], s: T[M, 1]) "
        "-> "
        "(y) {\n  zero = constant T[] 0\n  seed = constant u64[] 42\n  most = constant u32[] 3435973837\n"
        "  g: T[M, N] = add r, %s\n  %s\n  y: T[M, N] = add h, %s\n}\n}\n";
    const char *middle = middles[number % (dtype_is_float(dtype) ? MIDDLES : INTEGER_MIDDLES)];
    const char *text = arena_format(arena, form, number % 2 ? "b" : "s", middle, number % 3 ? "a" : "b");
    Graph *graph = NULL;
    GpuEpilogue *e = NULL;
    DType raw = dtype == DT_F16 || dtype == DT_BF16 ? DT_F32 : dtype;
    Status status = graph_parse(typed(arena, text, dtype), &graph);
    if (!status) status = gpu_epilogue_of(arena, graph->first, raw, GPU_CUDA, &e);
    if (status) {
        fprintf(stderr, "an epilogue of %s: %s\n", dtype_name(dtype), status_message(status));
        abort();
    }
    graph_destroy(graph);
    return e;
}

/* All that launches may ask for where no size is known, by the functions that say so to the runtime. Texts for integers
 * differ in the type's name alone: each of those has one order of the factors and one kind of convolution, in turn. */
static void add_products_of(Cases *cases, const GpuLimits *device, int types) {
    GpuVariant variants[GPU_MAX_VARIANTS];
    int number = 0;
    for (int t = 0; t < types; t++) {
        if (!gpu_product_type(device, all_types[t])) continue;
        bool all = dtype_is_float(all_types[t]);
        for (int order = 0; order < 4; order++) {
            if (!all && order != t % 4) continue;
            GpuMatmul m = {.dtype = all_types[t],
                           .rows = -1,
                           .columns = -1,
                           .depth = -1,
                           .batch = {-1, -1, -1},
                           .a_outer = order & 1,
                           .b_outer = order & 2};
            GpuEpilogue *epilogue = epilogue_of(cases->arena, m.dtype, number++);
            int count = gpu_matmul_variants(&m, device, epilogue, variants);
            for (int i = 0; i < count; i++) add_variant(cases, &variants[i]);
        }
        for (int kind = 0; kind < 4; kind++) {
            if (!all && kind != (t + 1) % 4) continue;
            GpuConv c = {.dtype = all_types[t],
                         .transposed = kind & 1,
                         .images = -1,
                         .in = {-1, -1, -1},
                         .out = {-1, -1, -1},
                         .kernel = {-1, -1, -1},
                         .strides = {1, 1, 1},
                         .dilations = {1, 1, 1},
                         .group = kind & 2 ? 32 : 1,
                         .inputs = -1,
                         .outputs = -1};
            if (kind & 2) { /* depthwise */
                c.inputs = c.outputs = c.w_group = c.w_output = 1;
                c.w_input = c.w_tap = c.group;
                for (int i = 0; i < GPU_CONV_AXES; i++) c.kernel[i] = i ? 3 : 1;
            }
            GpuEpilogue *epilogue = epilogue_of(cases->arena, c.dtype, number++);
            int count = gpu_conv_variants(&c, device, epilogue, variants);
            for (int i = 0; i < count; i++) add_variant(cases, &variants[i]);
            for (int stride = 1; kind == 2 && stride <= 2; stride++)
                for (int size = 3; size <= 7; size += 2) {
                    c.kernel[1] = c.kernel[2] = size;
                    c.strides[1] = c.strides[2] = stride;
                    epilogue = epilogue_of(cases->arena, c.dtype, number++);
                    count = gpu_conv_variants(&c, device, epilogue, variants);
                    for (int i = 0; i < count; i++) add_variant(cases, &variants[i]);
                }
        }
        GpuProductLaunch finish; /* the epilogue of a library's result */
        GpuEpilogue *epilogue = epilogue_of(cases->arena, all_types[t], number++);
        gpu_finish_launch(all_types[t], 1, 0, 1, 1, 1, 1, device, epilogue, &finish);
        add_variant(cases, &finish.variant);
    }
}

static void add_products(Cases *cases) {
    GpuLimits tf32 = limits;
    tf32.tf32 = true;
    add_products_of(cases, &limits, ALL_TYPES);
    add_products_of(cases, &tf32, 1); /* f32 */
    GpuVariant v;
    const char *name;
    for (int i = 0; gpu_product_sample(cases->arena, i, &v, &name); i++) add_variant(cases, &v);
}

/* Every size of a head that its padding tells apart, with and without matrix units, steps and `empty` in turn. */
static void add_attention(Cases *cases) {
    static const DType dtypes[] = {DT_F32, DT_F16, DT_BF16};
    static const int sizes[][2] = {{1, 1}, {24, 40}, {64, 64}, {80, 48}, {96, 64}, {128, 128}, {192, 96}, {256, 256}};
    static const GpuScore masks[][GPU_ATTENTION_STEPS] = {
        {{GPU_SCORE_ADD, 0, 0, DT_F32}, {GPU_SCORE_ADD, 0, 0, DT_F16}},
        {{GPU_SCORE_ADD_HIDING, 0, 0, DT_F32}, {GPU_SCORE_KEEP, -INFINITY, 0, DT_BOOL}, {GPU_SCORE_CAUSAL, -INFINITY}},
        {{GPU_SCORE_SCALE, 0.2f, 0}, {GPU_SCORE_TANH}, {GPU_SCORE_SCALE, 5, 0}, {GPU_SCORE_CLIP, -3, 4}},
        {{GPU_SCORE_HIDE, -INFINITY, 0, DT_BOOL}, {GPU_SCORE_ADD, 0, 0, DT_BF16}},
        {{GPU_SCORE_CAUSAL, -1e9f}},
    };
    static const int counts[] = {2, 3, 4, 2, 1};
    static const char *const ways[] = {"", " on matrix units", " by warpgroups"};
    int number = 0;
    for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int matrix = 0; matrix <= (dtypes[t] != DT_F32) * 2; matrix++) {
                int mask = number++ % 6 - 1;
                GpuAttentionText a = {.dtype = dtypes[t],
                                      .size = sizes[s][0],
                                      .width = sizes[s][1],
                                      .shared_bytes = limits.shared_bytes,
                                      .shared_most = limits.shared_most,
                                      .positive = number % 2,
                                      .matrix = matrix > 0,
                                      .groups = matrix == 2,
                                      .empty = (GpuEmpty)(number % 3),
                                      .step_count = mask < 0 ? 0 : counts[mask]};
                if (mask >= 0) memcpy(a.steps, masks[mask], sizeof a.steps);
                if (!gpu_attention_fits(&a, &limits)) continue;
                Text text = text_make(cases->arena);
                gpu_attention_render(&text, &a, GPU_CUDA, "attention", NULL);
                add_program(cases, text.data,
                            arena_format(cases->arena, "attention of %s, heads of %d and %d%s, mask %d",
                                         dtype_name(a.dtype), a.size, a.width, ways[matrix], mask));
            }
}

static void add_windows(Cases *cases) {
    int number = 0;
    for (int kind = 0; kind < GPU_WINDOW_KINDS; kind++)
        for (int t = 0; t < ALL_TYPES; t++) {
            DType dtype = all_types[t];
            bool nearest = kind == GPU_WINDOW_NEAREST,
                 mover = dtype == DT_U8 || dtype == DT_U16 || dtype == DT_U32 || dtype == DT_I64,
                 integer = kind == GPU_WINDOW_MAX && dtype != DT_U16 && dtype != DT_U32;
            if (gpu_window_type_number(dtype) < 0 || (nearest ? !mover : !dtype_is_float(dtype) && !integer)) continue;
            for (int form = 0; form < 4; form++) {
                GpuWindowProgram p = {(GpuWindowKind)kind, dtype, 3, form & 1, form & 2};
                if (kind >= GPU_WINDOW_NEAREST)
                    p.axes = 1 + number++ % (kind == GPU_WINDOW_CUBIC ? 3 : GPU_WINDOW_AXES);
                Text text = text_make(cases->arena);
                gpu_window_source(&text, GPU_CUDA, p);
                add_program(cases, text.data,
                            arena_format(cases->arena, "window of kind %d, %s, %d axes%s%s", kind, dtype_name(dtype),
                                         p.axes, p.wide ? ", wide" : "", p.far ? ", far" : ""));
            }
        }
}

static void add_move(Cases *cases, GpuMoveProgram p) {
    Text text = text_make(cases->arena);
    gpu_move_source(&text, GPU_CUDA, p);
    add_program(cases, text.data,
                arena_format(cases->arena, "movement of kind %d by %d bytes, combining by %d of %s%s", p.kind, p.unit,
                             p.combine, dtype_name(p.dtype), p.far ? ", far" : ""));
}

static void add_moves(Cases *cases) {
    static const Prim combines[] = {PRIM_ADD, PRIM_MUL, PRIM_MIN, PRIM_MAX};
    for (int kind = GPU_MOVE_COPY; kind <= GPU_MOVE_SCATTER_ND; kind++) {
        for (int unit = 1; unit <= 16; unit *= 2)
            for (int far = 0; far < 2; far++)
                add_move(cases, (GpuMoveProgram){(GpuMoveKind)kind, far, unit, PRIM_NONE, DT_NONE});
        if (kind < GPU_MOVE_SCATTER_ELEMENTS) continue;
        for (int t = 0; t < ALL_TYPES; t++)
            for (int c = 0; c < 4; c++)
                if (gpu_move_combines(all_types[t]) && prim_accepts(combines[c], all_types[t]))
                    add_move(cases, (GpuMoveProgram){(GpuMoveKind)kind, (t + c) % 2, (int)dtype_size(all_types[t]),
                                                     combines[c], all_types[t]});
    }
}

void programs_add_all(Cases *cases) {
    add_products(cases);
    add_attention(cases);
    add_windows(cases);
    add_moves(cases);
}

/* --- what the runtime asks for ----------------------------------------------------------------------------------- */

struct ProgramRecorder {
    Cases *cases;
    Device *device;
    const char *where; /* the node at hand */
};
struct GpuContext {
    ProgramRecorder *recorder;
};
struct GpuModule {
    char unused;
};
struct GpuFunction {
    char unused;
};

static struct GpuContext context;
static struct GpuModule module;
static const struct GpuFunction function;

static Status rec_open(const Policy *policy, GpuContext **out_context) {
    (void)policy;
    *out_context = &context;
    return NULL;
}
static void rec_close(GpuContext *c) { (void)c; }
static const GpuLimits *rec_limits(const GpuContext *c) { return (void)c, &limits; }
static const char *rec_target(const GpuContext *c) { return (void)c, "recorder"; }

static Status rec_compile(GpuContext *c, const char *source, void **out_binary, size_t *out_size) {
    add_program(c->recorder->cases, source, c->recorder->where);
    *out_binary = calloc(1, 1);
    *out_size = 1;
    return *out_binary ? NULL : status_out_of_memory();
}
static Status rec_load(GpuContext *c, const void *binary, size_t size, GpuModule **out_module) {
    (void)c, (void)binary, (void)size;
    *out_module = &module;
    return NULL;
}
static void rec_unload(GpuContext *c, GpuModule *m) { (void)c, (void)m; }
static Status rec_function(GpuContext *c, GpuModule *m, const char *name, const GpuFunction **out_function) {
    (void)c, (void)m, (void)name;
    *out_function = &function;
    return NULL;
}
static Status rec_stream(GpuContext *c, Stream **out_stream) {
    (void)c;
    *out_stream = NULL;
    return NULL;
}
static void rec_stream_destroy(GpuContext *c, Stream *stream) { (void)c, (void)stream; }
static Status rec_synchronize(GpuContext *c, Stream *stream) { return (void)c, (void)stream, NULL; }
/* Nothing is launched or read back: an address of its own is all that a weight needs. */
static Status rec_allocate(GpuContext *c, Stream *stream, size_t bytes, void **out_data) {
    (void)c, (void)stream, (void)bytes;
    *out_data = aligned_alloc(256, 256);
    return *out_data ? NULL : status_out_of_memory();
}
static void rec_release(GpuContext *c, Stream *stream, void *data) {
    (void)c, (void)stream;
    free(data);
}
static Status rec_copy(GpuContext *c, Stream *stream, CopyKind kind, void *to, const void *from, size_t bytes) {
    (void)c, (void)stream, (void)kind, (void)to, (void)from, (void)bytes;
    return NULL;
}
static Status rec_fill(GpuContext *c, Stream *stream, void *data, size_t bytes) {
    (void)c, (void)stream, (void)data, (void)bytes;
    return NULL;
}

static const GpuDriver driver = {.dialect = GPU_CUDA,
                                 .open = rec_open,
                                 .close = rec_close,
                                 .limits = rec_limits,
                                 .target = rec_target,
                                 .compile = rec_compile,
                                 .load = rec_load,
                                 .unload = rec_unload,
                                 .function = rec_function,
                                 .stream_create = rec_stream,
                                 .stream_destroy = rec_stream_destroy,
                                 .synchronize = rec_synchronize,
                                 .allocate = rec_allocate,
                                 .release = rec_release,
                                 .copy = rec_copy,
                                 .fill_zero = rec_fill};

static Status open_table(const Policy *policy, Device **out_device);
static const DeviceTable table = {.kind = DEVICE_CUDA, .name = "recorder", .open = open_table, GPU_DEVICE_FUNCTIONS};
static Status open_table(const Policy *policy, Device **out_device) {
    return gpu_open(&table, &driver, policy, out_device);
}

Status program_recorder_open(Cases *cases, ProgramRecorder **out_recorder) {
    ProgramRecorder *recorder = ARENA_NEW(cases->arena, ProgramRecorder);
    Policy *policy = ARENA_NEW(cases->arena, Policy);
    *policy = cases->policy;
    policy->cache.enable = false;
    policy->threads = 1; /* sources are taken down one after the other */
    *recorder = (ProgramRecorder){.cases = cases};
    context.recorder = recorder;
    TRY(open_table(policy, &recorder->device));
    *out_recorder = recorder;
    return NULL;
}

void program_recorder_close(ProgramRecorder *recorder) {
    if (!recorder) return;
    gpu_close(recorder->device);
    gpu_program_trim();
}

static Status prepare_anchor(ProgramRecorder *recorder, const Node *node) {
    const Tensor **constants = ARENA_ARRAY(recorder->cases->arena, const Tensor *, node->input_count + 1);
    for (int i = 0; i < node->input_count; i++) constants[i] = node->inputs[i] ? node->inputs[i]->constant : NULL;
    DeviceAnchor *anchor;
    uint32_t released;
    TRY(gpu_anchor_prepare(recorder->device, node, constants, &anchor, &released));
    gpu_anchor_release(recorder->device, anchor);
    return NULL;
}

Status program_recorder_add(ProgramRecorder *recorder, const Node *node, const char *where) {
    Device *device = recorder->device;
    recorder->where = arena_format(recorder->cases->arena, "%s: %s", where, node_origin_name(node));
    if (node->kind == NODE_ANCHOR && gpu_anchor_runs(device, node)) return prepare_anchor(recorder, node);
    if (node->kind == NODE_PRIM && gpu_prim_runs(device, node)) return gpu_prim_prepare(device, node, NULL);
    if (node->kind == NODE_HOST && gpu_window_runs(device, node)) return gpu_window_prepare(device, node, NULL);
    return NULL;
}
