/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of anchors over shapes of real models, on one and on two threads.  anchors [NAME]
 * anchors weights cached|memory: times of products with weights of reduced precision, as ratios to those of f32 in the
 * same run, of one weight again and again or of more than the caches hold.
 * Compiled with -DBENCH_ONEDNN (linked with dnnl, OpenMP), oneDNN's own matmul and convolution with packed weights and
 * its team of as many threads run next to ours, in turn, so that both see the same load of the machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "policy/policy.h"
#include "runtime/device/cpu/anchor.h"
#ifdef BENCH_ONEDNN
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#endif

typedef enum Epilogue { NONE, BIAS, RELU, CLIP, GELU, SIGMOID, HARD_SWISH, RESIDUAL } Epilogue; /* all behind a bias */

typedef struct Case {
    const char *name;
    const char *op;
    /* matmul: batch, rows, columns, depth; constant b or not. conv: batch, height (= width), inputs, outputs, kernel,
     * stride, group. */
    int64_t batch, rows, columns, depth;
    bool turned; /* matmul: b is transposed */
    bool constant;
    int64_t size, inputs, outputs, kernel, stride, group;
    Epilogue epilogue;
    Precision weights;
} Case;

#define GEMM(name, m, n, k, act)                                                                                       \
    { name, "matmul", 1, m, n, k, false, true, 0, 0, 0, 0, 0, 0, act, PRECISION_AS_IS }
#define BATCH(name, b, m, n, k, turned)                                                                                \
    { name, "matmul", b, m, n, k, turned, false, 0, 0, 0, 0, 0, 0, NONE, PRECISION_AS_IS }
#define CONV(name, size, c, o, kernel, stride, group, act)                                                             \
    { name, "conv", 1, 0, 0, 0, false, true, size, c, o, kernel, stride, group, act, PRECISION_AS_IS }

/* The kernel is as wide as its stride: each element of the result is written once. */
#define UNFOLD(name, size, c, o, kernel, act)                                                                          \
    { name, "conv_transpose", 1, 0, 0, 0, false, true, size, c, o, kernel, kernel, 1, act, PRECISION_AS_IS }

static const Case cases[] = {
    GEMM("gemm 1x768x768", 1, 768, 768, NONE),
    GEMM("gemm 1x3072x768", 1, 3072, 768, NONE),
    GEMM("gemm 1x50257x768", 1, 50257, 768, NONE),
    GEMM("gemm 4x768x768", 4, 768, 768, NONE),
    GEMM("gemm 16x768x768", 16, 768, 768, NONE),
    GEMM("gemm 16x768x3072", 16, 768, 3072, NONE),
    GEMM("gemm 128x768x768 bias", 128, 768, 768, BIAS),
    GEMM("gemm 128x3072x768 gelu", 128, 3072, 768, GELU),
    GEMM("gemm 128x768x3072", 128, 768, 3072, NONE),
    GEMM("gemm 128x768x3072 residual", 128, 768, 3072, RESIDUAL),
    GEMM("gemm 128x3072x768 relu", 128, 3072, 768, RELU),
    GEMM("gemm 1024x768x768", 1024, 768, 768, NONE),
    GEMM("gemm 1024x3072x768 gelu", 1024, 3072, 768, GELU),
    GEMM("gemm 200x97x120", 200, 97, 120, NONE),
    BATCH("scores 12x128x128x64", 12, 128, 128, 64, true),
    BATCH("values 12x128x64x128", 12, 128, 64, 128, false),
    BATCH("scores 12x512x512x64", 12, 512, 512, 64, true),
    BATCH("values 12x512x64x512", 12, 512, 64, 512, false),
    BATCH("scores 12x1x512x64", 12, 1, 512, 64, true),
    BATCH("values 12x1x64x512", 12, 1, 64, 512, false),
    BATCH("activations 512x768x768", 1, 512, 768, 768, false),
    CONV("conv 224 3>64 7x7/2 relu", 224, 3, 64, 7, 2, 1, RELU),
    CONV("conv 56 64>64 1x1 relu", 56, 64, 64, 1, 1, 1, RELU),
    CONV("conv 56 64>64 3x3 relu", 56, 64, 64, 3, 1, 1, RELU),
    CONV("conv 56 64>256 1x1 relu", 56, 64, 256, 1, 1, 1, RELU),
    CONV("conv 56 64>256 1x1 residual", 56, 64, 256, 1, 1, 1, RESIDUAL),
    CONV("conv 56 256>64 1x1 relu", 56, 256, 64, 1, 1, 1, RELU),
    CONV("conv 56 128>128 3x3/2 relu", 56, 128, 128, 3, 2, 1, RELU),
    CONV("conv 28 128>128 3x3 relu", 28, 128, 128, 3, 1, 1, RELU),
    CONV("conv 14 256>256 3x3 relu", 14, 256, 256, 3, 1, 1, RELU),
    CONV("conv 14 1024>256 1x1 relu", 14, 1024, 256, 1, 1, 1, RELU),
    CONV("conv 7 512>512 3x3 relu", 7, 512, 512, 3, 1, 1, RELU),
    CONV("conv 7 512>2048 1x1 relu", 7, 512, 2048, 1, 1, 1, RELU),
    UNFOLD("unfold 160 24>24 2x2 relu", 160, 24, 24, 2, RELU),
    UNFOLD("unfold 320 24>1 2x2 sigmoid", 320, 24, 1, 2, SIGMOID),
    CONV("conv 224 3>16 3x3/2 hardswish", 224, 3, 16, 3, 2, 1, HARD_SWISH),
    CONV("conv 160 16>16 3x3 hardswish", 160, 16, 16, 3, 1, 1, HARD_SWISH),
    CONV("conv 80 24>96 1x1 hardswish", 80, 24, 96, 1, 1, 1, HARD_SWISH),
    CONV("conv 20 96>24 1x1", 20, 96, 24, 1, 1, 1, BIAS),
    CONV("conv 112 32 depthwise 3x3", 112, 32, 32, 3, 1, 32, CLIP),
    CONV("conv 56 72 depthwise 5x5/2", 56, 72, 72, 5, 2, 72, RELU),
    CONV("conv 14 512 depthwise 3x3", 14, 512, 512, 3, 1, 512, CLIP),
    CONV("conv 28 240 depthwise 3x3", 28, 240, 240, 3, 1, 240, HARD_SWISH),
    CONV("conv 14 32 depthwise 3x3", 14, 32, 32, 3, 1, 32, CLIP),
    CONV("conv 112 64 depthwise 3x3/2", 112, 64, 64, 3, 2, 64, CLIP),
    CONV("conv 56 24 depthwise 3x3", 56, 24, 24, 3, 1, 24, CLIP),
    CONV("conv 28 240 depthwise 5x5", 28, 240, 240, 5, 1, 240, CLIP),
    CONV("conv 14 672 depthwise 5x5", 14, 672, 672, 5, 1, 672, CLIP),
    CONV("conv 7 960 depthwise 5x5", 7, 960, 960, 5, 1, 960, CLIP),
    CONV("conv 56 96 depthwise 7x7", 56, 96, 96, 7, 1, 96, BIAS),
    CONV("conv 112 16>64 1x1", 112, 16, 64, 1, 1, 1, BIAS),
    CONV("conv 56 64>16 1x1", 56, 64, 16, 1, 1, 1, BIAS),
    CONV("conv 56 24>72 1x1", 56, 24, 72, 1, 1, 1, BIAS),
    CONV("conv 56 72>24 1x1", 56, 72, 24, 1, 1, 1, BIAS),
    CONV("conv 28 40>240 1x1", 28, 40, 240, 1, 1, 1, BIAS),
    CONV("conv 28 240>40 1x1", 28, 240, 40, 1, 1, 1, BIAS),
    CONV("conv 56 256>512 1x1/2", 56, 256, 512, 1, 2, 1, BIAS),
    CONV("conv 160 96>24 3x3 relu", 160, 96, 24, 3, 1, 1, RELU),
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static Tensor *filled(Arena *arena, int rank, const int64_t *dims) {
    Tensor *t = tensor_new(arena, DT_F32, rank, dims);
    for (int64_t i = 0; i < tensor_count(t); i++)
        ((float *)t->data)[i] = (float)((i * 2654435761u >> 8) & 0xff) / 256 - 0.5f;
    return t;
}

/* ---- ours ---- */

typedef struct Ours {
    CpuAnchor *anchor;
    RegionKernel region; /* of the epilogue */
    KernelCode *code;    /* NULL: it needs none */
    const Tensor *inputs[4];
    Tensor *output;
    Pool *pool;
} Ours;

static Value *add_value(Graph *graph, const Tensor *t) {
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < t->rank; i++) dims[i] = dim_const(graph->dims, t->dims[i]);
    return graph_add_input(graph, NULL, t->dtype, t->rank, dims);
}

static void must(Status status) {
    if (!status) return;
    fprintf(stderr, "%s\n", status_message(status));
    exit(1);
}

/* ---- epilogues ---- */

typedef struct Body {
    Graph *graph;
    const Value *raw;
} Body;

static Value *step(const Body *b, Prim prim, Value *x, Value *y) {
    Node *node = graph_add_prim(b->graph, NULL, prim, (Value *[]){x, y}, y ? 2 : 1);
    return node_add_output(node, NULL, DT_F32, b->raw->rank, b->raw->dims);
}

static Value *number(const Body *b, double value) {
    return graph_add_constant(b->graph, NULL, tensor_scalar_double(b->graph->arena, DT_F32, value));
}

static Value *bounded(const Body *b, Value *x, double low, double high) {
    return step(b, PRIM_MIN, step(b, PRIM_MAX, x, number(b, low)), number(b, high));
}

static Value *activated(const Body *b, Epilogue epilogue, Value *x) {
    switch (epilogue) {
    case RELU: return step(b, PRIM_MAX, x, number(b, 0));
    case CLIP: return bounded(b, x, 0, 6);
    case SIGMOID: return step(b, PRIM_SIGMOID, x, NULL);
    case GELU: {
        Value *erf = step(b, PRIM_ERF, step(b, PRIM_MUL, x, number(b, 0.7071067811865476)), NULL);
        return step(b, PRIM_MUL, step(b, PRIM_MUL, x, step(b, PRIM_ADD, erf, number(b, 1))), number(b, 0.5));
    }
    case HARD_SWISH: {
        Value *line = step(b, PRIM_ADD, step(b, PRIM_MUL, x, number(b, 1.0 / 6)), number(b, 0.5));
        return step(b, PRIM_MUL, x, bounded(b, line, 0, 1));
    }
    default: return x;
    }
}

/* The node's inputs and its body (lowering/anchors.h). */
static void add_epilogue(Epilogue epilogue, Node *node, const Tensor *bias, const Tensor *addend, const Tensor *y) {
    Body b = {.graph = graph_sub(node->graph, "epilogue")};
    Value *raw = add_value(b.graph, y), *x;
    b.raw = raw;
    node_append_input(node, add_value(node->graph, bias));
    x = step(&b, PRIM_ADD, raw, add_value(b.graph, bias));
    if (addend) {
        node_append_input(node, add_value(node->graph, addend));
        x = step(&b, PRIM_ADD, x, add_value(b.graph, addend));
    }
    graph_add_output(b.graph, activated(&b, epilogue, x));
    node_add_subgraph(node, b.graph);
}

static void compile_epilogue(const Node *node, Ours *out) {
    const Value *begin = NULL;
    DType raw = cpu_anchor_finishes_with(node, &begin);
    if (raw == DT_NONE) return;
    Policy policy = policy_default();
    KernelCacheStats stats = {0};
    policy.cache.enable = false;
    policy.device = DEVICE_CPU;
    must(target_resolve(node->graph->arena, &policy.target));
    must(codegen_tile(node->graph->arena, node, begin, raw, &policy.target, &out->region));
    must(kernel_cache_get(&out->region.kernel, 1, &policy, &stats, &out->code));
}

/* ---- one case ---- */

static bool is_matmul(const Case *c) { return strcmp(c->op, "matmul") == 0; }
static bool is_transposed(const Case *c) { return strcmp(c->op, "conv_transpose") == 0; }

static int64_t out_size(const Case *c) {
    return is_transposed(c) ? c->size * c->stride : (c->size + c->kernel / 2 * 2 - c->kernel) / c->stride + 1;
}

static void make_ours(const Case *c, Graph *graph, int threads, Ours *out) {
    Arena *arena = graph->arena;
    bool conv = !is_matmul(c), transposed = is_transposed(c);
    int64_t o = conv ? out_size(c) : 0;
    Tensor *x, *w, *y;
    if (conv) {
        x = filled(arena, 4, (int64_t[]){c->batch, c->size, c->size, c->inputs});
        w = filled(arena, 4,
                   (int64_t[]){transposed ? c->inputs : c->outputs, transposed ? c->outputs : c->inputs / c->group,
                               c->kernel, c->kernel});
        y = tensor_new(arena, DT_F32, 4, (int64_t[]){c->batch, o, o, c->outputs});
    } else {
        int rank = c->batch > 1 ? 3 : 2, skip = 3 - rank;
        x = filled(arena, rank, (int64_t[]){c->batch, c->rows, c->depth} + skip);
        w = filled(arena, rank,
                   (int64_t[]){c->batch, c->turned ? c->columns : c->depth, c->turned ? c->depth : c->columns} + skip);
        y = tensor_new(arena, DT_F32, rank, (int64_t[]){c->batch, c->rows, c->columns} + skip);
    }
    bool residual = c->epilogue == RESIDUAL;
    Tensor *bias = filled(arena, 1, &y->dims[y->rank - 1]), *addend = residual ? filled(arena, y->rank, y->dims) : NULL;
    Value *values[] = {add_value(graph, x), add_value(graph, w)};
    Node *node = graph_add_node(graph, NULL, NODE_ANCHOR, c->op, values, 2);
    if (conv) {
        const Dim *pad = dim_const(graph->dims, transposed ? 0 : c->kernel / 2);
        node_set_ints(node, "strides", (int64_t[]){c->stride, c->stride}, 2);
        node_set_ints(node, "dilations", (int64_t[]){1, 1}, 2);
        node_set_dims(node, "pads", (const Dim *[]){pad, pad, pad, pad}, 4);
        node_set_int(node, "group", c->group);
    } else if (c->turned) {
        node_set_ints(node, "perm_b", c->batch > 1 ? (int64_t[]){0, 2, 1} : (int64_t[]){1, 0, 2}, c->batch > 1 ? 3 : 2);
    }
    if (c->epilogue != NONE) add_epilogue(c->epilogue, node, bias, addend, y);
    if (c->weights) node_set_int(node, WEIGHT_PRECISION, c->weights);
    node_add_output(node, NULL, DT_F32, y->rank, add_value(graph, y)->dims);
    uint32_t released;
    *out = (Ours){.inputs = {x, w, bias, addend}, .output = y};
    must(pool_shared(threads, &out->pool));
    compile_epilogue(node, out);
    must(cpu_anchor_prepare(node, (const Tensor *[]){NULL, c->constant ? w : NULL, bias, NULL}, out->pool, NULL,
                            &out->anchor, &released));
}

static void destroy_ours(Ours *ours) {
    cpu_anchor_destroy(ours->anchor);
    kernel_code_release(ours->code);
}

static void run_ours(void *context) {
    Ours *ours = context;
    KernelFunction finish = ours->code ? kernel_code_function(ours->code) : NULL;
    must(cpu_anchor_run(ours->anchor, finish, finish ? &ours->region : NULL, ours->inputs, NULL, ours->output,
                        ours->pool));
}

/* ---- oneDNN's ---- */

#ifdef BENCH_ONEDNN
typedef struct Theirs {
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[8];
    int arg_count, threads;
} Theirs;

static void dnn(dnnl_status_t status) {
    if (status != dnnl_success) fprintf(stderr, "oneDNN: %d\n", status), exit(1);
}

static dnnl_memory_desc_t described(int rank, const int64_t *dims, dnnl_format_tag_t tag) {
    dnnl_memory_desc_t desc;
    dnnl_dims_t all = {0};
    memcpy(all, dims, (size_t)rank * sizeof *dims);
    dnn(dnnl_memory_desc_init_by_tag(&desc, rank, all, dnnl_f32, tag));
    return desc;
}

static void add_argument(Theirs *t, dnnl_engine_t engine, int argument, const dnnl_memory_desc_t *desc) {
    dnnl_memory_t memory;
    dnn(dnnl_memory_create(&memory, desc, engine, DNNL_MEMORY_ALLOCATE));
    void *data;
    dnn(dnnl_memory_get_data_handle(memory, &data));
    for (size_t i = 0; i < dnnl_memory_desc_get_size(desc) / 4; i++) ((float *)data)[i] = 0.01f;
    t->args[t->arg_count++] = (dnnl_exec_arg_t){argument, memory};
}

static void run_theirs(void *context) {
    Theirs *t = context;
    omp_set_num_threads(t->threads);
    dnn(dnnl_primitive_execute(t->primitive, t->stream, t->arg_count, t->args));
}

static void make_theirs(const Case *c, int threads, Theirs *t) {
    static dnnl_engine_t engine;
    if (!engine) dnn(dnnl_engine_create(&engine, dnnl_cpu, 0));
    omp_set_num_threads(threads);
    *t = (Theirs){.threads = threads};
    dnn(dnnl_stream_create(&t->stream, engine, dnnl_stream_default_flags));
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops;
    dnn(dnnl_primitive_attr_create(&attr));
    dnn(dnnl_post_ops_create(&ops));
    if (c->epilogue == RELU) dnn(dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0));
    if (c->epilogue == CLIP) dnn(dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_clip, 0, 6));
    if (c->epilogue == GELU) dnn(dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_gelu_erf, 0, 0));
    if (c->epilogue == HARD_SWISH) dnn(dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_hardswish, 0, 0));
    dnn(dnnl_primitive_attr_set_post_ops(attr, ops));
    bool bias = c->epilogue != NONE;
    dnnl_primitive_desc_t pd;
    dnnl_memory_desc_t x, w, b, y;
    if (strcmp(c->op, "conv") == 0) {
        int64_t o = out_size(c);
        dnnl_dims_t steps = {c->stride, c->stride}, none = {0}, before = {c->kernel / 2, c->kernel / 2}, after;
        after[0] = after[1] = (o - 1) * c->stride + c->kernel - c->size - c->kernel / 2;
        x = described(4, (int64_t[]){c->batch, c->inputs, c->size, c->size}, dnnl_nhwc);
        y = described(4, (int64_t[]){c->batch, c->outputs, o, o}, dnnl_nhwc);
        w = c->group == 1
                ? described(4, (int64_t[]){c->outputs, c->inputs, c->kernel, c->kernel}, dnnl_format_tag_any)
                : described(5, (int64_t[]){c->group, c->outputs / c->group, c->inputs / c->group, c->kernel, c->kernel},
                            dnnl_format_tag_any);
        b = described(1, &c->outputs, dnnl_a);
        dnnl_convolution_desc_t desc;
        dnn(dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_inference, dnnl_convolution_direct, &x, &w,
                                                       bias ? &b : NULL, &y, steps, none, before, after));
        dnn(dnnl_primitive_desc_create(&pd, &desc, attr, engine, NULL));
    } else {
        x = described(3, (int64_t[]){c->batch, c->rows, c->depth}, dnnl_abc);
        w = described(3, (int64_t[]){c->batch, c->depth, c->columns},
                      c->constant ? dnnl_format_tag_any
                      : c->turned ? dnnl_acb
                                  : dnnl_abc);
        y = described(3, (int64_t[]){c->batch, c->rows, c->columns}, dnnl_abc);
        b = described(3, (int64_t[]){1, 1, c->columns}, dnnl_abc);
        if (c->batch == 1) {
            x = described(2, (int64_t[]){c->rows, c->depth}, dnnl_ab);
            w = described(2, (int64_t[]){c->depth, c->columns},
                          c->constant ? dnnl_format_tag_any
                          : c->turned ? dnnl_ba
                                      : dnnl_ab);
            y = described(2, (int64_t[]){c->rows, c->columns}, dnnl_ab);
            b = described(2, (int64_t[]){1, c->columns}, dnnl_ab);
        }
        dnnl_matmul_desc_t desc;
        dnn(dnnl_matmul_desc_init(&desc, &x, &w, bias ? &b : NULL, &y));
        dnn(dnnl_primitive_desc_create(&pd, &desc, attr, engine, NULL));
    }
    dnn(dnnl_primitive_create(&t->primitive, pd));
    add_argument(t, engine, DNNL_ARG_SRC, dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0));
    add_argument(t, engine, DNNL_ARG_WEIGHTS, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0));
    add_argument(t, engine, DNNL_ARG_DST, dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0));
    if (bias) add_argument(t, engine, DNNL_ARG_BIAS, &b);
}
#endif

/* ---- timing ---- */

typedef struct Timed {
    void (*run)(void *);
    void *context;
    double best;
} Timed;

/* The shortest time of each, taken in turn, for `seconds` together. */
static void time_all(Timed *timed, int count, double seconds) {
    for (int i = 0; i < count; i++) timed[i].best = INFINITY;
    double end = now() + seconds;
    for (int round = 0; round < 3 || now() < end; round++)
        for (int i = 0; i < count; i++)
            for (int r = 0; r < 5; r++) {
                double start = now();
                timed[i].run(timed[i].context);
                double took = now() - start;
                if (took < timed[i].best) timed[i].best = took;
            }
}

static double flops(const Case *c) {
    if (is_matmul(c)) return 2.0 * (double)(c->batch * c->rows * c->columns * c->depth);
    if (is_transposed(c)) return 2.0 * (double)(c->size * c->size * c->inputs * c->outputs * c->kernel * c->kernel);
    return 2.0 *
           (double)(c->batch * out_size(c) * out_size(c) * c->outputs * (c->inputs / c->group) * c->kernel * c->kernel);
}

/* ---- weights of reduced precision ---- */

static const Precision forms[] = {PRECISION_F32, PRECISION_F16, PRECISION_BF16, PRECISION_INT8, PRECISION_INT4};
static const char *const form_names[] = {"f32", "f16", "bf16", "int8", "int4"};
enum { FORMS = 5, COLD_BYTES = 400 << 20, MOST_ANCHORS = 800 };

/* Products by one weight, which may stay in the caches. */
static void compare_forms(int64_t rows, int64_t columns, int64_t depth, int threads) {
    Graph *graph = graph_create(0);
    Ours ours[FORMS];
    Timed timed[FORMS];
    for (int i = 0; i < FORMS; i++) {
        Case c = GEMM("", rows, columns, depth, NONE);
        c.weights = forms[i];
        make_ours(&c, graph, threads, &ours[i]);
        timed[i] = (Timed){run_ours, &ours[i], 0};
    }
    time_all(timed, FORMS, 0.8);
    printf("%4lld x %4lld x %4lld, %d thr: f32 %8.4f ms", (long long)rows, (long long)columns, (long long)depth,
           threads, timed[0].best * 1e3);
    for (int i = 1; i < FORMS; i++) printf("   %s %.2f", form_names[i], timed[i].best / timed[0].best);
    printf("\n");
    fflush(stdout);
    for (int i = 0; i < FORMS; i++) destroy_ours(&ours[i]);
    graph_destroy(graph);
}

typedef struct Reading {
    const float *data;
    int64_t parts;
    Pool *pool;
    float sums[64];
} Reading;

enum { PART = 1 << 16 }; /* floats */

static void read_parts(void *context, int64_t begin, int64_t end, int worker) {
    Reading *r = context;
    float sums[64] = {0};
    for (int64_t i = begin * PART; i < end * PART; i += 64)
        for (int j = 0; j < 64; j++) sums[j] += r->data[i + j];
    for (int j = 0; j < 64; j++) r->sums[worker % 64] += sums[j];
}

static void read_all(void *context) {
    Reading *r = context;
    pool_for(r->pool, r->parts, 1, read_parts, r);
}

/* One row by one weight after the other, more of them than caches hold: bytes a second, beside plain reading. */
static void rows_from_memory(int64_t columns, int64_t depth, int threads) {
    static Ours ours[FORMS][MOST_ANCHORS];
    Reading reading = {.parts = COLD_BYTES / 4 / PART};
    double best[FORMS + 1];
    size_t bytes[FORMS + 1] = {0};
    int counts[FORMS] = {0};
    must(pool_shared(threads, &reading.pool));
    float *data = malloc((size_t)reading.parts * PART * sizeof(float));
    if (!data) exit(1);
    memset(data, 1, bytes[FORMS] = (size_t)reading.parts * PART * sizeof(float));
    reading.data = data;
    Graph *graph = graph_create(0);
    for (int i = 0; i < FORMS; i++) {
        Case c = GEMM("", 1, columns, depth, NONE);
        uint32_t released;
        c.weights = forms[i];
        make_ours(&c, graph, threads, &ours[i][0]);
        const Node *node = graph->last;
        while (bytes[i] < COLD_BYTES && counts[i] < MOST_ANCHORS) {
            Ours *o = &ours[i][counts[i]];
            if (counts[i]++) {
                *o = ours[i][0];
                must(cpu_anchor_prepare(node, (const Tensor *[]){NULL, o->inputs[1]}, o->pool, NULL, &o->anchor,
                                        &released));
            }
            bytes[i] += cpu_anchor_bytes(o->anchor);
        }
    }
    for (int i = 0; i <= FORMS; i++) best[i] = INFINITY;
    for (int round = 0; round < 8; round++)
        for (int i = 0; i <= FORMS; i++) {
            double start = now();
            if (i == FORMS) read_all(&reading);
            for (int n = 0; i < FORMS && n < counts[i]; n++) run_ours(&ours[i][n]);
            best[i] = fmin(best[i], now() - start);
        }
    printf("1 x %lld x %lld from memory, %d thr: reads %.1f GB/s", (long long)columns, (long long)depth, threads,
           (double)bytes[FORMS] / best[FORMS] * 1e-9);
    for (int i = 0; i < FORMS; i++) {
        printf("   %s %.4f ms (%.2f) %.1f GB/s", form_names[i], best[i] / counts[i] * 1e3,
               best[i] / counts[i] / (best[0] / counts[0]), (double)bytes[i] / best[i] * 1e-9);
        for (int n = 0; n < counts[i]; n++) destroy_ours(&ours[i][n]);
    }
    printf("\n");
    fflush(stdout);
    free(data);
    graph_destroy(graph);
}

static int compare_weights(const char *which) {
    static const int64_t rows[] = {1, 4, 8, 9, 16, 32, 128, 512},
                         sizes[][2] = {{1024, 1024}, {1024, 4096}, {4096, 1024}};
    printf("rows x columns x depth; time as a ratio to f32's\n");
    for (int threads = 1; threads <= 2; threads++) {
        for (size_t s = 0; !strcmp(which, "cached") && s < sizeof sizes / sizeof *sizes; s++)
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                compare_forms(rows[r], sizes[s][0], sizes[s][1], threads);
        for (size_t s = 0; !strcmp(which, "memory") && s < sizeof sizes / sizeof *sizes; s++)
            rows_from_memory(sizes[s][0], sizes[s][1], threads);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "weights") == 0) return compare_weights(argv[2]);
    printf("%-32s %10s %8s %8s %8s %8s\n", "GFLOP/s", "ms, 2 thr", "1 thr", "2 thr", "dnn 1", "dnn 2");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        if (argc > 1 && !strstr(c->name, argv[1])) continue;
        double rates[4] = {0}, best = 0;
        Graph *graphs[2];
        for (int t = 0; t < 2; t++) {
            Ours ours;
            graphs[t] = graph_create(0);
            make_ours(c, graphs[t], t + 1, &ours);
            Timed timed[2] = {{run_ours, &ours, 0}};
            int count = 1;
#ifdef BENCH_ONEDNN
            Theirs theirs;
            bool is_compared = !is_transposed(c) && c->epilogue != RESIDUAL;
            if (is_compared) make_theirs(c, t + 1, &theirs);
            if (is_compared) timed[count++] = (Timed){run_theirs, &theirs, 0};
#endif
            time_all(timed, count, 0.3);
            rates[t] = flops(c) / timed[0].best * 1e-9;
            if (count > 1) rates[2 + t] = flops(c) / timed[1].best * 1e-9;
            best = timed[0].best;
            destroy_ours(&ours);
            graph_destroy(graphs[t]);
        }
        printf("%-32s %10.4f %8.1f %8.1f %8.1f %8.1f\n", c->name, best * 1e3, rates[0], rates[1], rates[2], rates[3]);
        fflush(stdout);
    }
    return 0;
}
