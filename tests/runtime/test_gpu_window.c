/* SPDX-License-Identifier: Apache-2.0 */
/* Pools and resizes on a GPU, through OpenCL on whatever device the machine has, against the host kernels: random
 * shapes, windows and coordinates in all types. Maxima and nearest elements are the same to the bit. Without any OpenCL
 * device the tests say so and are skipped. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../base/share.h"
#include "gpu_bench.h"
#include "rounding.h"
#include "codegen/gpu/window/window.h"
#include "ops/image/image.h"
#include "ops/window/window.h"
#include "runtime/device/gpu/gpu.h"

static uint64_t state;
static int64_t draw(int64_t from, int64_t to) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return from + (int64_t)((state >> 33) % (uint64_t)(to - from + 1));
}

/* --- the host kernel as oracle --- */

static Status allocate(HostCall *call, int index, DType dtype, int rank, const int64_t *dims, void **out_data) {
    size_t bytes;
    (void)index;
    TRY(tensor_size_of(dtype, rank, dims, NULL, &bytes));
    *out_data = arena_alloc(call->arena, bytes + 1);
    return NULL;
}

static Tensor *converted(Arena *arena, const Tensor *from, DType dtype) {
    Tensor *to = tensor_new(arena, dtype, from->rank, from->dims);
    for (int64_t i = 0; i < tensor_count(from); i++) {
        double value = dtype_is_float(from->dtype) ? dtype_load_double(from->dtype, from->data, i)
                                                   : (double)dtype_load_int(from->dtype, from->data, i);
        if (dtype_is_float(dtype))
            dtype_store_double(dtype, to->data, i, value);
        else /* where a window lies outside, the least value instead of -inf */
            dtype_store_int(dtype, to->data, i,
                            value > -INFINITY ? (int64_t)value
                            : dtype == DT_I64 ? INT64_MIN
                                              : INT32_MIN);
    }
    return to;
}

/* What the host kernels do not compute in is widened for them. */
static DType oracle_type(const Node *node, DType dtype) {
    bool moves = node->host == host_resize && attr_string(node, "mode", "")[0] == 'n';
    if (moves) return dtype;
    return dtype == DT_I32 || dtype == DT_I64 ? DT_F64 : dtype;
}

static Status host_result_of(const Node *node, const Tensor *x, Arena *arena, Tensor **out_result) {
    DType wide = oracle_type(node, x->dtype);
    Item items[4] = {{.kind = ITEM_TENSOR, .tensor = *(wide == x->dtype ? x : converted(arena, x, wide))}}, y = {0};
    const Item *inputs[4] = {&items[0]};
    Item *outputs[1] = {&y};
    for (int i = 1; i < node->input_count; i++) {
        if (!node->inputs[i]) continue;
        items[i] = (Item){.kind = ITEM_TENSOR, .tensor = *node->inputs[i]->constant};
        inputs[i] = &items[i];
    }
    HostCall call = {.node = node, .inputs = inputs, .outputs = outputs, .arena = arena, .allocate = allocate};
    y.kind = ITEM_TENSOR;
    TRY(node->host(&call));
    *out_result = wide == x->dtype ? &y.tensor : converted(arena, &y.tensor, x->dtype);
    Tensor *kept = ARENA_NEW(arena, Tensor);
    *kept = **out_result;
    *out_result = kept;
    return NULL;
}

/* --- one node on the device --- */

/* 0: the same bits. Means and interpolations have few roundings, in units of the larger of 1 and the value; places that a
 * resize computes have more. Both sides are rounded once more where the type is stored narrower. */
static double tolerance_of(const Node *node, DType dtype, double value) {
    bool resize = node->host == host_resize;
    if (node->host == host_max_pool || (resize && attr_string(node, "mode", "")[0] == 'n')) return 0;
    double error = rounding_gamma(dtype, resize ? 160 : 16) * fmax(1, fabs(value));
    return rounding_stored(dtype, value, error) + rounding_stored(dtype, value, 0);
}

static const char *difference(const Node *node, const Tensor *expected, const char *got, Arena *arena) {
    size_t size = dtype_size(expected->dtype);
    for (int64_t i = 0; i < tensor_count(expected); i++) {
        const char *want = (const char *)expected->data + (size_t)i * size;
        if (memcmp(want, got + (size_t)i * size, size) == 0) continue;
        if (!dtype_is_float(expected->dtype)) return arena_format(arena, "element %lld differs", (long long)i);
        double a = dtype_load_double(expected->dtype, want, 0), b = dtype_load_double(expected->dtype, got, i);
        double most = tolerance_of(node, expected->dtype, a);
        if ((isnan(a) && isnan(b)) || (most > 0 && rounding_agrees(expected->dtype, b, a, most))) continue;
        return arena_format(arena, "element %lld is %.9g instead of %.9g", (long long)i, b, a);
    }
    return NULL;
}

/* NULL, or what is wrong. `lead`: how far source and result stand behind multiples of 256 bytes. */
static const char *check_node(Bench *b, const Node *node, const Tensor *x, size_t lead, Arena *arena) {
    Tensor *expected;
    if (!gpu_window_runs(b->device, node)) return "does not run on the device";
    Status status = host_result_of(node, x, arena, &expected);
    if (status) return status_message(status);
    Placed from = place(b, arena, x, true, lead), to = place(b, arena, expected, false, lead);
    size_t begin = GUARD + lead, bytes = tensor_bytes(expected);
    const Tensor *inputs[4] = {&from.tensor};
    status = gpu_step_prepare(b->device, node, NULL);
    if (!status) status = gpu_step_run(b->device, b->stream, node, inputs, NULL, &to.tensor, arena);
    unsigned char *back = arena_alloc(arena, to.bytes);
    if (!status) status = gpu_copy(b->device, b->stream, COPY_OUT, back, to.block, to.bytes);
    if (!status) status = gpu_synchronize(b->device, b->stream);
    gpu_release(b->device, b->stream, NULL, from.block);
    gpu_release(b->device, b->stream, NULL, to.block);
    if (status) return status_message(status);
    if (!unchanged(back, begin) || !unchanged(back + begin + bytes, to.bytes - begin - bytes))
        return "writes beyond its buffer";
    return difference(node, expected, (const char *)back + begin, arena);
}

/* --- random nodes --- */

typedef struct Drawing {
    Arena *arena;
    Graph *graph;
    Node *node;
    Tensor *x;
    int64_t dims[8], out[8];
    int rank;
} Drawing;

static const Dim *const *const_dims(Drawing *g, int count, const int64_t *dims) {
    const Dim **made = ARENA_ARRAY(g->arena, const Dim *, count + 1);
    for (int d = 0; d < count; d++) made[d] = dim_const(g->graph->dims, dims[d]);
    return made;
}

static void draw_source(Drawing *g, DType dtype) {
    Tensor *t = g->x = tensor_new(g->arena, dtype, g->rank, g->dims);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        if (!dtype_is_float(dtype))
            dtype_store_int(dtype, t->data, i,
                            dtype == DT_BOOL ? draw(0, 1) : draw(0, 255) - (dtype == DT_U8 ? 0 : 128));
        else if (draw(0, 400) == 0)
            dtype_store_double(dtype, t->data, i, draw(0, 1) ? -INFINITY : -0.0);
        else
            dtype_store_double(dtype, t->data, i, (double)draw(-4000, 4000) / 512);
    }
}

static void make_node(Drawing *g, const char *op, HostFn host, Tensor *const *constants, int count) {
    Value *inputs[4] = {graph_add_input(g->graph, NULL, g->x->dtype, g->rank, const_dims(g, g->rank, g->dims))};
    for (int i = 0; i < count; i++)
        inputs[1 + i] = constants[i] ? graph_add_constant(g->graph, NULL, constants[i]) : NULL;
    g->node = graph_add_node(g->graph, NULL, NODE_HOST, op, inputs, 1 + count);
    g->node->host = host;
    g->node->domain = "";
}

static void finish_node(Drawing *g) {
    node_add_output(g->node, NULL, g->x->dtype, g->rank, const_dims(g, g->rank, g->out));
}

static int64_t draw_lanes(void) {
    static const int64_t lanes[] = {1, 2, 3, 7, 16, 32, 48};
    return lanes[draw(0, 6)];
}

static void draw_pool(Drawing *g, const char *op, HostFn host, DType dtype) {
    int64_t kernel[3], stride[3], dilation[3], pads[6], size[3];
    int spatial = (int)draw(1, 3);
    g->rank = spatial + 2;
    g->dims[0] = draw(1, 2);
    g->dims[g->rank - 1] = draw_lanes();
    for (int i = 0; i < spatial; i++) {
        g->dims[1 + i] = draw(1, spatial == 3 ? 7 : 15);
        kernel[i] = draw(1, 4);
        stride[i] = draw(1, 3);
        dilation[i] = draw(1, 3);
        pads[i] = draw(0, 3);
        pads[spatial + i] = draw(0, 3);
        if (draw(0, 15) == 0) dilation[i] += INT64_C(1) << 29, pads[i] += (kernel[i] - 1) * dilation[i]; /* far */
        int64_t room = g->dims[1 + i] + pads[i] + pads[spatial + i] - (kernel[i] - 1) * dilation[i] - 1;
        if (room < 0) pads[spatial + i] -= room, room = 0;
        size[i] = room / stride[i] + 1 + draw(0, 1); /* with a last window that hangs over, as ceil_mode has it */
        g->out[1 + i] = size[i];
    }
    g->out[0] = g->dims[0];
    g->out[g->rank - 1] = g->dims[g->rank - 1];
    draw_source(g, dtype);
    make_node(g, op, host, NULL, 0);
    node_set_ints(g->node, "kernel_shape", kernel, spatial);
    node_set_ints(g->node, "strides", stride, spatial);
    node_set_ints(g->node, "dilations", dilation, spatial);
    node_set_dims(g->node, "pads", const_dims(g, 2 * spatial, pads), 2 * spatial);
    node_set_dims(g->node, "size", const_dims(g, spatial, size), spatial);
    node_set_int(g->node, "count_include_pad", draw(0, 1));
    node_set_float(g->node, "p", (double)draw(1, 2));
    finish_node(g);
}

static const char *const coordinates[] = {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",  "align_corners",
                                          "asymmetric", "tf_crop_and_resize",   "tf_half_pixel_for_nn"};
static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};

/* One axis of a resize: by a scale, or to a size; now and then it is left as it is. */
static int64_t draw_size(int64_t in, bool scaled, float *scale) {
    int64_t out = draw(0, 5) ? draw(1, 23) : in;
    if (!scaled) return out;
    *scale = draw(0, 5) ? (float)draw(1, 40) / (float)draw(8, 16) : (float)draw(1, 4);
    out = (int64_t)((float)in * *scale);
    if (out < 1) *scale = 1, out = in;
    return out;
}

static void draw_resize(Drawing *g, const char *mode, DType dtype) {
    int64_t axes[4], places[4], size[4];
    int first = (int)draw(0, 2), span = (int)draw(1, mode[0] == 'c' ? 3 : 4), count = 0;
    bool scaled = draw(0, 1), crop;
    g->rank = first + span + (int)draw(0, 1);
    const char *coordinate = coordinates[draw(0, 6)];
    crop = strcmp(coordinate, "tf_crop_and_resize") == 0;
    for (int d = 0; d < g->rank; d++) g->out[d] = g->dims[d] = draw(1, 3);
    if (g->rank > first + span) g->out[g->rank - 1] = g->dims[g->rank - 1] = draw_lanes();
    Tensor *scales = tensor_new(g->arena, DT_F32, 1, &(int64_t){4});
    Tensor *roi = tensor_new(g->arena, DT_F32, 1, &(int64_t){8});
    for (int i = 0; i < 4; i++) {
        ((float *)scales->data)[i] = 1;
        ((float *)roi->data)[i] = (float)draw(-3, 6) / 8;
        ((float *)roi->data)[4 + i] = (float)draw(4, 12) / 8;
    }
    for (int i = 0; i < span; i++) {
        if (i > 0 && i + 1 < span && draw(0, 3) == 0) continue; /* an axis between that stays */
        g->dims[first + i] = draw(1, span > 3 ? 5 : 11);
        size[count] = g->out[first + i] = draw_size(g->dims[first + i], scaled, (float *)scales->data + i);
        axes[count] = first + i;
        places[count++] = i;
    }
    draw_source(g, dtype);
    make_node(g, "Resize", host_resize, (Tensor *[]){scaled ? scales : NULL, crop ? roi : NULL, NULL}, 3);
    node_set_ints(g->node, "axes", axes, count);
    node_set_ints(g->node, "places", places, count);
    node_set_int(g->node, "named_axes", 4);
    node_set_dims(g->node, "size", const_dims(g, count, size), count);
    node_set_string(g->node, "mode", mode);
    node_set_string(g->node, "coordinate_transformation_mode", coordinate);
    node_set_string(g->node, "nearest_mode", roundings[draw(0, 3)]);
    node_set_int(g->node, "exclude_outside", draw(0, 1));
    node_set_float(g->node, "extrapolation_value", (double)draw(-3, 3));
    node_set_float(g->node, "cubic_coeff_a", draw(0, 1) ? -0.75 : -0.5);
    finish_node(g);
}

typedef struct Subject {
    const char *name;
    HostFn host;
    int types;
} Subject;
static const DType dtypes[] = {DT_F32, DT_F64, DT_F16, DT_BF16, DT_I8, DT_U8, DT_I32, DT_I64, DT_U16, DT_BOOL};
static const Subject subjects[] = {
    {"MaxPool", host_max_pool, 8}, {"AveragePool", host_average_pool, 4},
    {"LpPool", host_lp_pool, 4},   {"nearest", host_resize, 10},
    {"linear", host_resize, 4},    {"cubic", host_resize, 4},
};

static void check_random(Bench *b, const Subject *subject, DType dtype, uint64_t seed) {
    state = seed * 0x9E3779B97F4A7C15u + 1;
    Arena *arena = arena_create(0);
    Drawing g = {.arena = arena, .graph = graph_create(0)};
    if (subject->host == host_resize)
        draw_resize(&g, subject->name, dtype);
    else
        draw_pool(&g, subject->name, subject->host, dtype);
    static const size_t leads[] = {0, 0, 8, 16};
    const char *wrong = check_node(b, g.node, g.x, leads[draw(0, 3)], arena);
    if (wrong) {
        Text text = text_make(arena);
        graph_print(&text, g.graph);
        cr_expect_fail("%s of %s, seed %llu: %s\n%s", subject->name, dtype_name(dtype), (unsigned long long)seed, wrong,
                       text.data);
    }
    graph_destroy(g.graph);
    arena_destroy(arena);
}

/* Places between elements of f64 (Resize), which are f64 as well; the nearest of them are only moved. */
static bool is_left_to_the_host(const Subject *subject, DType dtype) {
    return subject->host == host_resize && dtype == DT_F64 && strcmp(subject->name, "nearest") != 0;
}

enum { SEEDS = 24 };

Test(gpu_window, random_nodes, .timeout = 900) {
    Bench b;
    bench_open(&b);
    const char *more = getenv("GPU_WINDOW_SEEDS");
    uint64_t seeds = more ? strtoull(more, NULL, 10) : SEEDS;
    bool fp64 = gpu_device(b.device)->limits->fp64;
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++)
        for (int t = 0; t < subjects[s].types; t++)
            if (share_turn() && !is_left_to_the_host(&subjects[s], dtypes[t]) && (fp64 || dtypes[t] != DT_F64))
                for (uint64_t seed = 0; seed < seeds; seed++) check_random(&b, &subjects[s], dtypes[t], seed);
    bench_close(&b);
}

/* --- what is refused --- */

typedef struct Refusal {
    const char *name, *attribute;
    int64_t value;
    int output_count;
} Refusal;

Test(gpu_window, what_stays_on_the_host) {
    Bench b;
    bench_open(&b);
    Arena *arena = arena_create(0);
    Drawing g = {.arena = arena, .graph = graph_create(0)};
    draw_pool(&g, "MaxPool", host_max_pool, DT_F32);
    cr_expect(gpu_window_runs(b.device, g.node), "a pool runs on the device");
    node_add_output(g.node, NULL, DT_I64, g.rank, const_dims(&g, g.rank, g.out));
    cr_expect(!gpu_window_runs(b.device, g.node), "places of maxima are the host's");
    draw_pool(&g, "LpPool", host_lp_pool, DT_F32);
    node_set_float(g.node, "p", 3);
    cr_expect(!gpu_window_runs(b.device, g.node), "other powers than 1 and 2 are the host's");
    draw_resize(&g, "linear", DT_F32);
    cr_expect(gpu_window_runs(b.device, g.node), "a resize runs on the device");
    node_set_int(g.node, "antialias", 1);
    cr_expect(!gpu_window_runs(b.device, g.node), "antialiasing is the host's");
    draw_resize(&g, "linear", DT_F64);
    cr_expect(!gpu_window_runs(b.device, g.node), "places of f64 are the host's");
    draw_resize(&g, "nearest", DT_F32);
    node_set_input(g.node, 1, graph_add_input(g.graph, NULL, DT_F32, 1, const_dims(&g, 1, (int64_t[]){4})));
    cr_expect(!gpu_window_runs(b.device, g.node), "scales that only the run knows are the host's");
    graph_destroy(g.graph);
    arena_destroy(arena);
    bench_close(&b);
}

Test(gpu_window, sizes_out_of_range) {
    static const int64_t hostile[][6] = {
        /* kernel, stride, dilation, before, after, result */
        {1, INT64_MAX, 1, 0, 0, 2}, {INT64_MAX / 2, 1, 4, 0, 0, 1},
        {1, 1, 1, INT64_MIN, 0, 1}, {1, 1, 1, 0, INT64_MAX, 1},
        {0, 1, 1, 0, 0, 1},         {1, 1, 0, 0, 0, 1},
    };
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        const int64_t *h = hostile[i];
        Arena *arena = arena_create(0);
        Drawing g = {.arena = arena, .graph = graph_create(0), .rank = 3};
        memcpy(g.dims, (int64_t[]){1, 4, 1}, 3 * sizeof(int64_t));
        memcpy(g.out, (int64_t[]){1, h[5], 1}, 3 * sizeof(int64_t));
        draw_source(&g, DT_F32);
        make_node(&g, "MaxPool", host_max_pool, NULL, 0);
        node_set_ints(g.node, "kernel_shape", &h[0], 1);
        node_set_ints(g.node, "strides", &h[1], 1);
        node_set_ints(g.node, "dilations", &h[2], 1);
        node_set_dims(g.node, "pads", const_dims(&g, 2, &h[3]), 2);
        finish_node(&g);
        Tensor y = *g.x;
        y.dims[1] = h[5];
        GpuWindowLaunch launch;
        Status status = gpu_window_launch(GPU_WINDOW_MAX_POOL, g.node, (const Tensor *[]){g.x}, NULL, &y, &launch);
        cr_expect(status_code(status) == STATUS_INVALID, "row %zu is refused", i);
        status_free(status);
        graph_destroy(g.graph);
        arena_destroy(arena);
    }
}
