/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of all kinds of products, for tests: together they hold every line of the texts. */
#include "codegen/gpu/product/product.h"

/* Bodies of epilogues over the result r: T[M, N], from the operands b: T[N], a: T[M, N], s: T[M, 1] and x: T[1, 1]. T
 * stands for the products' type. */
#define SUM(to, x, y) "  " to ": T[M, N] = add " x ", " y "\n"
#define BIAS SUM("y", "r", "b")
#define ADD SUM("y", "r", "a")
#define BIAS_ADD SUM("h", "r", "b") SUM("y", "h", "a")
#define BIAS_RELU "  zero = constant T[] 0\n" SUM("h", "r", "b") "  y: T[M, N] = max h, zero\n"
#define BIAS_ADD_RELU "  zero = constant T[] 0\n" SUM("h", "r", "b") SUM("i", "h", "a") "  y: T[M, N] = max i, zero\n"
#define GELU(to, h)                                                                                                    \
    "  q: T[M, N] = mul " h ", root\n  e: T[M, N] = erf q\n  f: T[M, N] = add e, one\n  g: T[M, N] = mul " h           \
    ", f\n  " to ": T[M, N] = mul g, half\n"
#define GELU_NUMBERS "  root = constant T[] 0.70710677\n  one = constant T[] 1\n  half = constant T[] 0.5\n"
#define BIAS_GELU GELU_NUMBERS SUM("h", "r", "b") GELU("y", "h")
#define BIAS_GELU_ADD GELU_NUMBERS SUM("h", "r", "b") GELU("i", "h") SUM("y", "i", "a")
#define BIAS_TANH SUM("h", "r", "b") "  y: T[M, N] = tanh h\n"
#define GATED SUM("h", "r", "b") "  i: T[M, N] = sigmoid h\n  j: T[M, N] = mul h, i\n  y: T[M, N] = mul j, s\n"
#define SCALED "  h: T[M, N] = mul r, s\n  i: T[M, N] = add h, x\n  y: T[M, N] = abs i\n"
#define DROPOUT                                                                                                        \
    "  seed = constant u64[] 42\n  most = constant u32[] 3435973837\n  zero = constant T[] 0\n"                        \
    "  w: u32[M, N] = philox seed {shape = (M, N), halves = 1}\n  k: bool[M, N] = lt w, most\n  y: T[M, N] = where "   \
    "k, r, zero\n"

typedef struct Sample {
    const char *name;
    GpuVariant variant;
    const char *epilogue; /* a body; NULL: none */
} Sample;

static const Sample samples[] = {
    {"large tiles of f32",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_LARGE, .dtype = DT_F32, .b_outer = true},
     BIAS_GELU_ADD},
    {"large tiles of f32, both factors turned",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_LARGE, .dtype = DT_F32, .a_outer = true}},
    {"large tiles of bf16",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_LARGE, .dtype = DT_BF16, .b_outer = true},
     BIAS_RELU},
    {"medium tiles of f32",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_MEDIUM, .dtype = DT_F32, .b_outer = true},
     GATED},
    {"medium tiles of f64",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_MEDIUM, .dtype = DT_F64, .b_outer = true},
     BIAS_TANH},
    {"medium tiles of f16",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_MEDIUM, .dtype = DT_F16, .a_outer = true, .b_outer = true},
     SCALED},
    {"medium tiles of i8", {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_MEDIUM, .dtype = DT_I8, .b_outer = true}},
    {"medium tiles of i64", {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_MEDIUM, .dtype = DT_I64}, ADD},
    {"tall tiles of f32",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_TALL, .dtype = DT_F32, .b_outer = true},
     DROPOUT},
    {"a row of f32", {.kind = GPU_PRODUCT_NARROW, .tile = GPU_TILE_ROW, .dtype = DT_F32, .b_outer = true}, BIAS_TANH},
    {"a row of f32 by a turned factor", {.kind = GPU_PRODUCT_NARROW, .tile = GPU_TILE_ROW, .dtype = DT_F32}},
    {"eight rows of bf16",
     {.kind = GPU_PRODUCT_NARROW, .tile = GPU_TILE_ROWS, .dtype = DT_BF16, .b_outer = true},
     BIAS_ADD},
    {"eight rows of f16 by a turned factor", {.kind = GPU_PRODUCT_NARROW, .tile = GPU_TILE_ROWS, .dtype = DT_F16}},
    {"eight rows of u64 by a turned factor", {.kind = GPU_PRODUCT_NARROW, .tile = GPU_TILE_ROWS, .dtype = DT_U64}},
    {"a convolution by large tiles",
     {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_LARGE, .dtype = DT_F32, .b_outer = true},
     BIAS_ADD_RELU},
    {"a convolution of f16 by large tiles",
     {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_LARGE, .dtype = DT_F16, .b_outer = true},
     BIAS_RELU},
    {"a convolution by medium tiles",
     {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_MEDIUM, .dtype = DT_F32, .b_outer = true},
     BIAS_TANH},
    {"a convolution of f64", {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_MEDIUM, .dtype = DT_F64, .b_outer = true}},
    {"a convolution by tall tiles",
     {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_TALL, .dtype = DT_F32, .b_outer = true},
     SCALED},
    {"a transposed convolution by large tiles",
     {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_LARGE, .dtype = DT_F32, .b_outer = true, .transposed = true},
     BIAS},
    {"a transposed convolution of i32",
     {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_MEDIUM, .dtype = DT_I32, .b_outer = true, .transposed = true}},
    {"large tiles of f16 on matrix units",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_LARGE, .dtype = DT_F16, .b_outer = true, .matrix = true},
     BIAS_GELU_ADD},
    {"half tiles of bf16 on matrix units, both factors turned",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_HALF, .dtype = DT_BF16, .a_outer = true, .matrix = true},
     BIAS_RELU},
    {"medium tiles of f16 on matrix units",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_MEDIUM, .dtype = DT_F16, .matrix = true}},
    {"large tiles of tf32",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_LARGE, .dtype = DT_F32, .b_outer = true, .matrix = true},
     GATED},
    {"half tiles of tf32, a turned",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_HALF, .dtype = DT_F32, .a_outer = true, .matrix = true}},
    {"a convolution of f16 by large tiles on matrix units",
     {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_LARGE, .dtype = DT_F16, .b_outer = true, .matrix = true},
     BIAS_ADD_RELU},
    {"a convolution of bf16 by half tiles on matrix units",
     {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_HALF, .dtype = DT_BF16, .b_outer = true, .matrix = true},
     BIAS_RELU},
    {"a convolution of f16 by medium tiles on matrix units",
     {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_MEDIUM, .dtype = DT_F16, .b_outer = true, .matrix = true},
     SCALED},
    {"a convolution of bf16 on matrix units, gathered",
     {.kind = GPU_PRODUCT_CONV,
      .tile = GPU_TILE_MEDIUM,
      .dtype = DT_BF16,
      .b_outer = true,
      .matrix = true,
      .gather = true},
     BIAS_RELU},
    {"medium tiles of f16 on matrix units, gathered",
     {.kind = GPU_PRODUCT_MATMUL,
      .tile = GPU_TILE_MEDIUM,
      .dtype = DT_F16,
      .b_outer = true,
      .matrix = true,
      .gather = true},
     BIAS},
    {"a convolution of tf32",
     {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_HALF, .dtype = DT_F32, .b_outer = true, .matrix = true},
     BIAS_RELU},
    {"a transposed convolution of f16 on matrix units",
     {.kind = GPU_PRODUCT_CONV,
      .tile = GPU_TILE_HALF,
      .dtype = DT_F16,
      .b_outer = true,
      .matrix = true,
      .transposed = true},
     BIAS},
    {"half tiles of f32 by copies ahead",
     {.kind = GPU_PRODUCT_MATMUL,
      .tile = GPU_TILE_HALF,
      .dtype = DT_F32,
      .b_outer = true,
      .matrix = true,
      .exact = true},
     BIAS_RELU},
    {"a convolution of f32 by copies ahead",
     {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_HALF, .dtype = DT_F32, .b_outer = true, .matrix = true, .exact = true},
     BIAS_RELU},
    {"a convolution of f32 by copies ahead, gathered",
     {.kind = GPU_PRODUCT_CONV,
      .tile = GPU_TILE_MEDIUM,
      .dtype = DT_F32,
      .b_outer = true,
      .matrix = true,
      .exact = true,
      .gather = true},
     SCALED},
    {"a depthwise convolution", {.kind = GPU_PRODUCT_CHANNELS, .dtype = DT_F32, .depthwise = true}, GATED},
    {"a depthwise convolution of 3 x 3 taps",
     {.kind = GPU_PRODUCT_CHANNELS, .dtype = DT_F32, .depthwise = true, .window = 3, .stride = 1},
     BIAS_RELU},
    {"a depthwise convolution of 3 x 3 taps, by strides, of f16",
     {.kind = GPU_PRODUCT_CHANNELS, .dtype = DT_F16, .depthwise = true, .window = 3, .stride = 2},
     GATED},
    {"a bare depthwise convolution of 3 x 3 taps, by strides, of f16",
     {.kind = GPU_PRODUCT_CHANNELS, .dtype = DT_F16, .depthwise = true, .window = 3, .stride = 2}},
    {"a depthwise convolution of 5 x 5 taps",
     {.kind = GPU_PRODUCT_CHANNELS, .dtype = DT_F32, .depthwise = true, .window = 5, .stride = 1},
     BIAS_ADD_RELU},
    {"a depthwise convolution of 7 x 7 taps of f16",
     {.kind = GPU_PRODUCT_CHANNELS, .dtype = DT_F16, .depthwise = true, .window = 7, .stride = 1},
     BIAS},
    {"a depthwise transposed convolution of f16",
     {.kind = GPU_PRODUCT_CHANNELS, .dtype = DT_F16, .depthwise = true, .transposed = true}},
    {"a convolution of small groups", {.kind = GPU_PRODUCT_CHANNELS, .dtype = DT_F32}, BIAS_RELU},
    {"the sum of partial sums", {.kind = GPU_PRODUCT_FINISH, .dtype = DT_F32, .partial = true}, BIAS_ADD_RELU},
    {"the sum of partial sums of u16", {.kind = GPU_PRODUCT_FINISH, .dtype = DT_U16, .partial = true}},
    {"the epilogue of a result of f16 in longer lines",
     {.kind = GPU_PRODUCT_FINISH, .dtype = DT_F16, .lines = true},
     BIAS_ADD_RELU},
    {"the epilogue of a result of bf16", {.kind = GPU_PRODUCT_FINISH, .dtype = DT_BF16}, BIAS_GELU},
};

/* T becomes the type's name where it stands for a type. */
static const char *typed(Arena *arena, const char *body, DType type) {
    Text text = text_make(arena);
    for (const char *at = body; *at; at++) {
        if (*at == 'T' && at[1] == '[')
            text_add(&text, "%s", dtype_name(type));
        else
            text_add_bytes(&text, at, 1);
    }
    return text.data;
}

static GpuEpilogue *epilogue_of(Arena *arena, const Sample *s) {
    const char *format = "graph (p: T[M, K], q: T[K, N], c: T[N], d: T[M, N], t: T[M, 1], z: T[1, 1]) -> (out) {\n"
                         "out: T[M, N] = anchor matmul p, q, c, d, t, z graph \"epilogue\" (r: T[M, N], b: T[N], "
                         "a: T[M, N], s: T[M, 1], x: T[1, 1]) -> (y) {\n";
    const char *text = typed(arena, arena_format(arena, "%s%s}\n}\n", format, s->epilogue), s->variant.dtype);
    Graph *graph;
    GpuEpilogue *e = NULL;
    Status status = graph_parse(text, &graph);
    if (!status) {
        DType type = s->variant.dtype, raw = type == DT_F16 || type == DT_BF16 ? DT_F32 : type;
        status = gpu_epilogue_of(arena, graph->first, raw, GPU_CUDA, &e);
        graph_destroy(graph);
    }
    if (status) e = NULL;
    status_free(status);
    return e;
}

bool gpu_product_sample(Arena *arena, int i, GpuVariant *out_variant, const char **out_name) {
    if (i < 0 || i >= (int)(sizeof samples / sizeof *samples)) return false;
    *out_variant = samples[i].variant;
    *out_name = samples[i].name;
    if (samples[i].epilogue) out_variant->epilogue = epilogue_of(arena, &samples[i]);
    return !samples[i].epilogue || out_variant->epilogue;
}
