/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions whose kernels go their own ways, depthwise ones and those of Winograd's algorithm: tables of shapes against
 * the evaluator, the same bits for any number of threads, and the tiles of each instruction set by themselves. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "anchor_body.h"
#include "anchor_kernel.h"
#include "anchor_winograd.h"
#include "base/math/divide.h"
#include "lowering/anchor/anchor_eval.h"
#include "rounding.h"
#include "runtime/device/cpu/anchor.h"
#include "runtime/device/cpu/tiles/tile.h"

typedef struct Shape {
    const char *how;
    int64_t batch, in[2], group, inputs, outputs; /* channels of a group */
    int64_t kernel[2], strides[2], dilations[2], pads[4];
    AnchorStep steps[4];
    int step_count;
    bool direct; /* the policy forbids Winograd's algorithm */
    bool transposed;
    int pad_value; /* of bytes */
    bool ends;     /* bytes of the greatest magnitude alone */
} Shape;

static Pool *pool_of(int threads) {
    Pool *pool;
    cr_assert_null(pool_shared(threads, &pool));
    return pool;
}

/* Sizes of the result; false where there is none. */
static bool result_dims(const Shape *s, int64_t *out) {
    out[0] = s->batch;
    out[3] = s->outputs * s->group;
    for (int i = 0; i < 2; i++) {
        int64_t room = s->in[i] + s->pads[i] + s->pads[2 + i] - ((s->kernel[i] - 1) * s->dilations[i] + 1);
        if (room < 0) return false;
        out[1 + i] = room / s->strides[i] + 1;
        if (!s->transposed) continue;
        out[1 + i] =
            (s->in[i] - 1) * s->strides[i] + (s->kernel[i] - 1) * s->dilations[i] + 1 - s->pads[i] - s->pads[2 + i];
        if (out[1 + i] < 1) return false;
    }
    return true;
}

static AnchorCase make_case(const Shape *s, DType dtype, uint64_t seed, const int64_t *y) {
    const char *op = s->transposed ? "conv_transpose" : "conv";
    int64_t first = (s->transposed ? s->inputs : s->outputs) * s->group,
            second = s->transposed ? s->outputs : s->inputs;
    AnchorCase c = anchor_case_new(op, seed);
    Value *x = anchor_case_input(&c, dtype, 4, (int64_t[]){s->batch, s->in[0], s->in[1], s->inputs * s->group});
    Value *w = anchor_case_input(&c, dtype == DT_U8 ? DT_I8 : dtype, 4,
                                 (int64_t[]){first, second, s->kernel[0], s->kernel[1]});
    const Dim *pads[4], *sizes[4];
    c.constant[1] = true;
    c.terms = s->inputs * s->kernel[0] * s->kernel[1];
    c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, op, (Value *[]){x, w}, 2);
    node_set_ints(c.node, "strides", s->strides, 2);
    node_set_ints(c.node, "dilations", s->dilations, 2);
    node_set_int(c.node, "group", s->group);
    if (s->direct) node_set_int(c.node, "winograd", 0);
    if (s->pad_value) node_set_int(c.node, PAD_VALUE, s->pad_value);
    for (int i = 0; i < 4; i++)
        pads[i] = dim_const(c.graph->dims, s->pads[i]), sizes[i] = dim_const(c.graph->dims, y[i]);
    node_set_dims(c.node, "pads", pads, 4);
    anchor_case_results(&c, dtype_of_sums(dtype), 4, sizes, s->steps, s->step_count);
    return c;
}

/* What its errors are in proportion to. A transposed convolution is one by the kernel turned round. */
static const double *magnitudes_of(const AnchorCase *c, const Shape *s, const int64_t *y) {
    Arena *arena = c->graph->arena;
    if (!s->transposed) return winograd_magnitudes(c, s->pads, y, arena);
    AnchorCase turned = *c;
    int64_t pads[4], inputs = s->inputs, outputs = s->outputs;
    const Tensor *from = c->tensors[1];
    Tensor *w = turned.tensors[1] = tensor_new(arena, DT_F32, 4, (int64_t[]){outputs, inputs, 3, 3});
    for (int i = 0; i < 4; i++) pads[i] = 2 - s->pads[i];
    for (int64_t o = 0; o < outputs; o++)
        for (int64_t k = 0; k < inputs; k++)
            for (int64_t i = 0; i < 9; i++)
                ((float *)w->data)[(o * inputs + k) * 9 + i] =
                    (float)dtype_load_double(from->dtype, from->data, (k * outputs + o) * 9 + 8 - i);
    return winograd_magnitudes(&turned, pads, y, arena);
}

/* What is said of a weight of f16 that is too large to be widened once. */
static const char *how_it_goes(const Shape *s, const Tensor *weight, char text[64]) {
    bool held = weight->dtype == DT_F16 && tensor_count(weight) * (int64_t)sizeof(float) > 16384;
    snprintf(text, 64, "%s%s", s->how, held && strcmp(s->how, "winograd") != 0 ? ", weights f16" : "");
    return text;
}

/* On 1, 2 and 16 threads: within the bound, and the same bits. */
static void check_type(const Shape *s, DType dtype, uint64_t seed) {
    static const int threads[] = {1, 2, 16};
    int64_t y[4];
    if (!result_dims(s, y)) return;
    AnchorCase c = make_case(s, dtype, seed, y);
    Arena *arena = c.graph->arena;
    const Tensor *constants[ANCHOR_CASE_INPUTS] = {NULL, c.tensors[1]}, *inputs[ANCHOR_CASE_INPUTS];
    Tensor shape = {.dtype = dtype_of_sums(dtype), .rank = 4, .dims = {y[0], y[1], y[2], y[3]}}, *first = NULL;
    for (int i = 0; i < c.count; i++) inputs[i] = c.tensors[i];
    if (s->ends) {
        memset(c.tensors[0]->data, 255, tensor_bytes(c.tensors[0]));
        memset(c.tensors[1]->data, seed % 2 ? 0x80 : 0x7f, tensor_bytes(c.tensors[1])); /* -128, 127 */
    }
    if (strcmp(s->how, "winograd") == 0 && dtype != DT_U8) {
        c.magnitudes = magnitudes_of(&c, s, y);
        c.terms = s->inputs + 32; /* conv/winograd.c */
    }
    for (int t = 0; t < 3; t++) {
        CpuAnchor *anchor;
        uint32_t released;
        Pool *pool = pool_of(threads[t]);
        cr_assert_null(cpu_anchor_prepare(c.node, constants, pool, NULL, &anchor, &released));
        char how[64];
        cr_assert_str_eq(cpu_anchor_how(anchor), how_it_goes(s, c.tensors[1], how));
        Tensor *got = anchor_case_room(&c, arena, &shape);
        cr_assert_null(anchor_run_once(anchor, c.node, inputs, got, pool));
        if (!t) anchor_case_expect(&c, c.tensors, got);
        if (!first) first = got;
        cr_assert_arr_eq(got->data, first->data, tensor_bytes(got), "seed %llu: %d threads make another result",
                         (unsigned long long)seed, threads[t]);
        cpu_anchor_destroy(anchor);
    }
    graph_destroy(c.graph);
}

static void check(const Shape *s, uint64_t seed) { check_type(s, DT_F32, seed); }

/* ---- depthwise ---- */

Test(convolutions, depthwise_kernels_strides_dilations_paddings_and_channels) {
    static const int64_t channels[] = {2, 3, 7, 8, 15, 16, 17, 24, 31, 32, 33, 40, 70},
                         extents[] = {1, 2, 3, 7, 9, 14, 17, 28, 41}, kernels[] = {1, 2, 3, 4, 5, 7};
    uint64_t seed = 0;
    for (size_t c = 0; c < sizeof channels / sizeof *channels; c++)
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
            for (int64_t stride = 1; stride <= 3; stride++, seed++) {
                int64_t kernel = kernels[k], dilation = 1 + seed % 4 / 3;
                Shape s = {
                    "depthwise", 1 + (int64_t)seed % 2, {extents[seed % 9], extents[seed / 2 % 9]}, channels[c], 1, 1};
                s.kernel[0] = seed % 5 ? kernel : 1 + (int64_t)seed % 3;
                s.kernel[1] = kernel;
                s.strides[0] = seed % 7 ? stride : 1;
                s.strides[1] = stride;
                s.dilations[0] = 1 + seed % 6 / 5;
                s.dilations[1] = dilation;
                for (int i = 0; i < 4; i++) s.pads[i] = (int64_t)(seed >> i) % (kernel + 1);
                check(&s, seed);
                check_type(&s, DT_F16, seed);
            }
}

Test(convolutions, groups_of_few_channels) {
    static const int64_t groups[] = {2, 3, 4, 5, 8, 9, 17, 33}, extents[] = {1, 2, 3, 7, 9, 14, 17, 28, 41},
                         kernels[] = {1, 2, 3, 5, 7};
    static const AnchorStep steps[][3] = {{ANCHOR_BIAS, ANCHOR_RELU},
                                          {ANCHOR_BIAS, ANCHOR_SWISH},
                                          {ANCHOR_BIAS, ANCHOR_ADD},
                                          {ANCHOR_CHANNELS, ANCHOR_TANH}};
    uint64_t seed = 0;
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
            for (int64_t stride = 1; stride <= 3; stride++)
                for (int64_t width = 2; width <= 8; width *= 2, seed++) {
                    Shape s = {width < 8 || tile_isa()->f32.lanes == 8 ? "depthwise" : "packed",
                               1 + (int64_t)seed % 2,
                               {extents[seed % 9], extents[seed / 2 % 9]},
                               groups[g],
                               width,
                               width,
                               {seed % 5 ? kernels[k] : 1 + (int64_t)seed % 3, kernels[k]},
                               {seed % 7 ? stride : 1, stride},
                               {1 + seed % 6 / 5, 1 + seed % 4 / 3}};
                    for (int i = 0; i < 4; i++) s.pads[i] = (int64_t)(seed >> i) % (kernels[k] + 1);
                    memcpy(s.steps, steps[seed % 4], sizeof steps[0]);
                    s.step_count = seed % 3 ? 2 : 0;
                    check(&s, seed);
                    check_type(&s, DT_F16, seed);
                }
}

/* In pairs or fours they are products where they are of other types, transposed, or do not give as many. */
Test(convolutions, other_groups_are_products) {
    Shape s = {"packed", 1, {6, 19}, 5, 4, 4, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}};
    check_type(&s, DT_F64, 0);
    check_type(&s, DT_I32, 0);
    s.outputs = 2;
    check(&s, 0);
    s.outputs = 4;
    s.transposed = true;
    check(&s, 0);
}

Test(convolutions, depthwise_with_epilogues) {
    static const Shape shapes[] = {
        {"depthwise", 1, {9, 30}, 40, 1, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {ANCHOR_BIAS}, 1},
        {"depthwise", 2, {9, 30}, 17, 1, 1, {3, 3}, {2, 2}, {1, 1}, {0, 0, 1, 1}, {ANCHOR_BIAS, ANCHOR_RELU}, 2},
        {"depthwise",
         1,
         {9, 30},
         24,
         1,
         1,
         {5, 5},
         {1, 1},
         {1, 1},
         {2, 2, 2, 2},
         {ANCHOR_BIAS, ANCHOR_ADD, ANCHOR_BOUNDS},
         3},
        {"depthwise", 1, {3, 300}, 33, 1, 1, {5, 5}, {2, 1}, {1, 1}, {2, 2, 2, 2}, {ANCHOR_BIAS, ANCHOR_SWISH}, 2},
        {"depthwise",
         1,
         {3, 300},
         33,
         1,
         1,
         {5, 5},
         {2, 1},
         {1, 1},
         {2, 2, 2, 2},
         {ANCHOR_BIAS, ANCHOR_WRITTEN_OUT},
         2},
        {"depthwise",
         2,
         {9, 30},
         17,
         1,
         1,
         {3, 3},
         {2, 2},
         {1, 1},
         {0, 0, 1, 1},
         {ANCHOR_BIAS, ANCHOR_ADD, ANCHOR_HARD_SWISH},
         3},
        {"depthwise", 1, {1, 700}, 6, 1, 1, {1, 31}, {1, 1}, {1, 1}, {0, 15, 0, 15}, {ANCHOR_BIAS}, 1},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check(&shapes[i], i);
}

Test(convolutions, depthwise_of_all_types) {
    static const DType types[] = {DT_F64, DT_F16, DT_BF16, DT_I32, DT_I64, DT_I16};
    for (int i = 0; i < 6; i++)
        for (int64_t stride = 1; stride <= 2; stride++) {
            Shape s = {"depthwise", 1, {6, 19}, 21, 1, 1, {3, 3}, {stride, stride}, {1, 1}, {1, 1, 1, 1}};
            check_type(&s, types[i], (uint64_t)i);
        }
}

/* ---- products ---- */

/* Few and many columns behind a kernel that finishes, in rows of one panel and of several. */
Test(convolutions, products_with_epilogues) {
    static const int64_t columns[] = {1, 7, 16, 24, 63, 64, 65, 72, 100, 130, 200, 400}, depths[] = {1, 3, 16, 24, 70};
    static const AnchorStep steps[][4] = {{ANCHOR_BIAS, ANCHOR_SWISH},       {ANCHOR_BIAS, ANCHOR_ADD, ANCHOR_BOUNDS},
                                          {ANCHOR_SWISH, ANCHOR_ADD},        {ANCHOR_BIAS, ANCHOR_HARD_SWISH},
                                          {ANCHOR_BIAS, ANCHOR_WRITTEN_OUT}, {ANCHOR_HARD_SWISH, ANCHOR_ADD}};
    static const int counts[] = {2, 3, 2, 2, 2, 2};
    uint64_t seed = 0;
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
        for (size_t k = 0; k < sizeof depths / sizeof *depths; k++, seed++) {
            int64_t kernel = seed % 4 ? 1 : 3, pad = kernel / 2;
            Shape s = {"packed",
                       1 + (int64_t)seed % 2,
                       {1 + (int64_t)seed % 13, 1 + (int64_t)(seed * 7) % 31},
                       1,
                       depths[k],
                       columns[c],
                       {kernel, kernel},
                       {1, 1 + (int64_t)seed % 2},
                       {1, 1},
                       {pad, pad, pad, pad}};
            memcpy(s.steps, steps[seed % 6], sizeof s.steps);
            s.step_count = counts[seed % 6];
            s.direct = true;
            check(&s, seed);
            if (seed % 3 == 0) check_type(&s, DT_F16, seed);
        }
}

/* Of one to three channels, whose rows are gathered where taps are no neighbours or columns are many; on 16 threads rows are too few for
 * that and come tap by tap, to the same bits. */
Test(convolutions, of_few_channels) {
    static const int64_t columns[] = {1, 16, 33, 65, 130}, kernels[][2] = {{9, 1}, {3, 3}, {5, 4}, {1, 8}, {16, 16}};
    uint64_t seed = 0;
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++, seed++) {
            Shape s = {"packed",
                       1 + (int64_t)seed % 2,
                       {20 + (int64_t)(seed * 5) % 13, 40 + (int64_t)(seed * 7) % 31},
                       1,
                       1 + (int64_t)seed % 3,
                       columns[c],
                       {kernels[k][0], kernels[k][1]},
                       {1 + (int64_t)seed % 2, 1 + (int64_t)(seed / 2) % 2},
                       {1, 1 + (int64_t)seed % 2},
                       {(int64_t)seed % 5, (int64_t)seed % 4, kernels[k][0] / 2, kernels[k][1]}};
            s.direct = true;
            s.transposed = seed % 5 == 4;
            s.step_count = seed % 3 ? 2 : 0;
            s.steps[0] = ANCHOR_BIAS, s.steps[1] = ANCHOR_SWISH;
            check(&s, seed);
        }
}

/* Rows of several taps, which are widened at once where there are many (wide_rows.c): too few for that, several chunks, edges alone,
 * taps in lines of their own, groups, a padding that is no 0, sums of several blocks, and more than is widened at a time. */
Test(convolutions, products_of_bytes) {
    static const struct {
        const char *what;
        Shape shape;
    } rows[] = {
        {"a few positions", {"packed", 1, {3, 3}, 1, 8, 20, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}},
        {"one image", {"packed", 1, {7, 7}, 1, 64, 40, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}},
        {"chunks", {"packed", 1, {31, 29}, 1, 32, 20, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}},
        {"images", {"packed", 3, {9, 8}, 1, 12, 17, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}},
        {"strides", {"packed", 2, {17, 18}, 1, 16, 33, {3, 3}, {2, 2}, {1, 1}, {0, 0, 1, 1}}},
        {"dilations", {"packed", 1, {19, 20}, 1, 20, 16, {3, 3}, {1, 2}, {3, 2}, {2, 2, 2, 2}}},
        {"far taps", {"packed", 2, {14, 15}, 1, 20, 18, {3, 3}, {1, 1}, {12, 7}, {12, 7, 12, 7}}},
        {"taps farther than the picture",
         {"packed", 1, {14, 14}, 1, 40, 34, {3, 3}, {1, 1}, {24, 36}, {24, 36, 24, 36}}},
        {"far taps by strides", {"packed", 1, {33, 40}, 1, 20, 18, {5, 4}, {2, 3}, {8, 9}, {16, 13, 17, 14}}},
        {"far taps of a line", {"packed", 2, {1, 50}, 1, 10, 9, {1, 5}, {1, 1}, {1, 11}, {0, 22, 0, 22}}},
        {"pixels of three", {"packed", 1, {30, 31}, 1, 3, 24, {7, 7}, {2, 2}, {1, 1}, {3, 3, 3, 3}}},
        {"one line", {"packed", 2, {1, 150}, 1, 10, 9, {1, 9}, {1, 1}, {1, 1}, {0, 4, 0, 4}}},
        {"groups", {"packed", 1, {14, 15}, 3, 8, 10, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}},
        {"long sums", {"packed", 1, {6, 7}, 1, 600, 18, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}},
        {"no padding", {"packed", 1, {12, 13}, 1, 24, 12, {3, 3}, {1, 1}, {1, 1}, {0, 0, 0, 0}}},
        {"padding alone", {"packed", 1, {2, 2}, 1, 9, 5, {2, 2}, {1, 1}, {1, 1}, {6, 6, 6, 6}}},
        {"lines too long", {"packed", 1, {3, 700}, 1, 128, 8, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int pad_value = 0; pad_value < 256; pad_value += 77) {
            Shape s = rows[i].shape;
            s.pad_value = pad_value;
            s.direct = true;
            check_type(&s, DT_U8, i);
        }
}

/* ---- Winograd ---- */

Test(convolutions, winograd_extents_paddings_and_channels) {
    static const int64_t inputs[] = {16, 17, 24, 40, 65}, outputs[] = {8, 20, 33, 48, 70, 130},
                         extents[] = {1, 2, 3, 4, 5, 6, 8, 13, 22, 31};
    uint64_t seed = 0;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        for (size_t o = 0; o < sizeof outputs / sizeof *outputs; o++, seed++) {
            Shape s = {"winograd",
                       1 + (int64_t)seed % 2,
                       {extents[seed % 10], extents[seed / 3 % 10]},
                       1,
                       inputs[i],
                       outputs[o],
                       {3, 3},
                       {1, 1},
                       {1, 1}};
            for (int p = 0; p < 4; p++) s.pads[p] = (int64_t)(seed >> p) % 4;
            check(&s, seed);
            check_type(&s, DT_F16, seed);
            for (int p = 0; p < 4; p++) s.pads[p] %= 3;
            s.transposed = true;
            check(&s, seed);
            check_type(&s, DT_F16, seed);
        }
}

/* Of groups whose channels are no whole vectors, too. */
Test(convolutions, winograd_in_groups) {
    static const Shape shapes[] = {
        {"winograd", 1, {11, 18}, 2, 32, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {ANCHOR_BIAS, ANCHOR_RELU}, 2},
        {"winograd", 2, {7, 9}, 5, 17, 20, {3, 3}, {1, 1}, {1, 1}, {1, 0, 2, 1}, {ANCHOR_CHANNELS, ANCHOR_TANH}, 2},
        {"winograd", 1, {30, 5}, 3, 20, 9, {3, 3}, {1, 1}, {1, 1}, {0, 2, 1, 0}, {ANCHOR_BIAS, ANCHOR_ADD}, 2},
        {"winograd", 1, {4, 4}, 7, 16, 24, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {ANCHOR_BIAS, ANCHOR_SWISH}, 2},
        {"winograd", 1, {14, 14}, 4, 64, 72, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check(&shapes[i], i);
        check_type(&shapes[i], DT_F16, i);
    }
}

/* Bytes, exactly: channels that fill no quad, numbers at their ends, paddings of any value. */
Test(convolutions, winograd_of_bytes) {
    static const int64_t inputs[] = {32, 33, 47, 64, 130}, outputs[] = {16, 17, 40, 72, 100},
                         extents[] = {1, 2, 3, 4, 7, 9, 14, 26, 33};
    static const AnchorStep steps[][2] = {{ANCHOR_BIAS}, {ANCHOR_BIAS, ANCHOR_ADD}};
    const char *how = tile_quads_in_pairs() ? "winograd" : "packed";
    uint64_t seed = 0;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        for (size_t o = 0; o < sizeof outputs / sizeof *outputs; o++, seed++) {
            Shape s = {how,       1 + (int64_t)seed % 3, {extents[seed % 9], extents[seed / 2 % 9]}, 1, inputs[i],
                       outputs[o]};
            for (int axis = 0; axis < 2; axis++) s.kernel[axis] = 3, s.strides[axis] = s.dilations[axis] = 1;
            for (int p = 0; p < 4; p++) s.pads[p] = (int64_t)(seed >> p) % 4;
            s.pad_value = (int)(seed * 51 % 256);
            s.ends = seed % 4 == 3;
            s.step_count = (int)seed % 3;
            if (s.step_count) memcpy(s.steps, steps[s.step_count - 1], sizeof steps[0]);
            check_type(&s, DT_U8, seed);
        }
}

/* A compiled model may come from where bytes are not multiplied so. */
Test(convolutions, bytes_that_were_packed_otherwise) {
    Shape s = {"packed", 1, {12, 13}, 1, 64, 64, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}};
    int64_t y[4];
    CpuAnchor *direct, *restored;
    const Packed *packed;
    uint32_t released;
    Pool *pool = pool_of(1);
    cr_assert(result_dims(&s, y));
    AnchorCase other = make_case(&s, DT_U8, 1, y);
    s.direct = true;
    AnchorCase c = make_case(&s, DT_U8, 1, y);
    const Tensor *constants[ANCHOR_CASE_INPUTS] = {NULL, c.tensors[1]};
    const Tensor *inputs[ANCHOR_CASE_INPUTS] = {c.tensors[0], c.tensors[1]};
    Tensor shape = {.dtype = DT_I32, .rank = 4, .dims = {y[0], y[1], y[2], y[3]}};
    cr_assert_null(cpu_anchor_prepare(c.node, constants, pool, NULL, &direct, &released));
    int count = cpu_anchor_packed(direct, &packed, &released);
    cr_assert_null(cpu_anchor_restore(other.node, constants, packed, count, pool, &restored, &released));
    cr_expect_str_eq(cpu_anchor_how(restored), "packed");
    Tensor *got = anchor_case_room(&c, c.graph->arena, &shape);
    cr_assert_null(anchor_run_once(restored, other.node, inputs, got, pool));
    anchor_case_expect(&c, c.tensors, got);
    cpu_anchor_destroy(restored);
    Status status = cpu_anchor_restore(other.node, constants, packed, 0, pool, &restored, &released);
    cr_expect(status);
    status_free(status);
    cpu_anchor_destroy(direct);
    graph_destroy(c.graph);
    graph_destroy(other.graph);
}

/* Runs that bring their weight transform its kernels, where there are tiles to pay for that: to the bits of one that was there before. */
Test(convolutions, winograd_by_weights_of_a_run) {
    static const Shape shapes[] = {
        {"winograd", 3, {38, 41}, 1, 17, 23, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {ANCHOR_BIAS, ANCHOR_RELU}, 2},
        {"winograd", 3, {38, 41}, 1, 17, 23, {3, 3}, {1, 1}, {1, 1}, {1, 0, 2, 1}, .transposed = true},
        {"winograd", 3, {38, 41}, 2, 17, 23, {3, 3}, {1, 1}, {1, 1}, {1, 0, 2, 1}, {ANCHOR_BIAS}, 1},
        {"packed", 3, {38, 41}, 1, 17, 23, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, .direct = true},
        {"packed", 3, {38, 41}, 1, 17, 23, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, .direct = true, .transposed = true},
    };
    Tensor *results[4][2];
    AnchorCase cases[4];
    for (int i = 0; i < 4; i++) {
        int64_t y[4];
        cr_assert(result_dims(&shapes[i], y));
        AnchorCase *c = &cases[i];
        *c = make_case(&shapes[i], DT_F32, 7, y);
        const Tensor *inputs[ANCHOR_CASE_INPUTS];
        Tensor shape = {.dtype = DT_F32, .rank = 4, .dims = {y[0], y[1], y[2], y[3]}};
        for (int k = 0; k < c->count; k++) inputs[k] = c->tensors[k];
        for (int run = 0; run < 2; run++) {
            CpuAnchor *anchor;
            uint32_t released;
            const Tensor *constants[ANCHOR_CASE_INPUTS] = {NULL, run ? NULL : c->tensors[1]};
            cr_assert_null(cpu_anchor_prepare(c->node, constants, pool_of(2), NULL, &anchor, &released));
            cr_assert_str_eq(cpu_anchor_how(anchor), run ? "packed at run" : shapes[i].how);
            results[i][run] = anchor_case_room(c, c->graph->arena, &shape);
            cr_assert_null(anchor_run_once(anchor, c->node, inputs, results[i][run], pool_of(1 + run)));
            cpu_anchor_destroy(anchor);
        }
        cr_expect_arr_eq(results[i][0]->data, results[i][1]->data, tensor_bytes(results[i][0]), "case %d", i);
    }
    for (int i = 0; i < 4; i++) graph_destroy(cases[i].graph);
}

/* ---- turned tensors ---- */

/* Sums over batch and positions of x [batch, (height - 1) step + (taps - 1) reach + 1, ..., channels] times g [batch, height, width,
 * outputs], a tap each: x's channels are the batch of a convolution by g. */
typedef struct Turned {
    int64_t batch, height, width, channels, outputs, taps, step, reach, pad;
} Turned;

static void check_turned(const Turned *t, DType dtype, uint64_t seed) {
    static const int threads[] = {1, 2, 16};
    AnchorCase c = anchor_case_new("conv", seed);
    int64_t high = (t->height - 1) * t->step + (t->taps - 1) * t->reach + 1 - 2 * t->pad,
            wide = (t->width - 1) * t->step + (t->taps - 1) * t->reach + 1 - 2 * t->pad,
            y[] = {t->channels, 1, t->taps, t->taps, t->outputs};
    Value *x = anchor_case_input(&c, dtype, 5, (int64_t[]){t->batch, high, wide, t->channels, 1});
    Value *w = anchor_case_input(&c, dtype, 5, (int64_t[]){t->batch, 1, t->height, t->width, t->outputs});
    const Dim *pads[6];
    for (int i = 0; i < 6; i++) pads[i] = dim_const(c.graph->dims, i % 3 ? t->pad : 0);
    c.terms = t->batch * t->height * t->width;
    c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, "conv", (Value *[]){x, w}, 2);
    node_set_ints(c.node, "strides", (int64_t[]){1, t->reach, t->reach}, 3);
    node_set_ints(c.node, "dilations", (int64_t[]){1, t->step, t->step}, 3);
    node_set_ints(c.node, "perm_x", (int64_t[]){3, 0, 1, 2, 4}, 5);
    node_set_ints(c.node, "perm_w", (int64_t[]){4, 1, 0, 2, 3}, 5);
    node_set_int(c.node, "group", 1);
    node_set_dims(c.node, "pads", pads, 6);
    anchor_case_output(&c, dtype, 5, y);
    const Tensor *constants[2] = {NULL, NULL};
    Tensor shape = {.dtype = dtype, .rank = 5}, *first = NULL;
    memcpy(shape.dims, y, sizeof y);
    for (int i = 0; i < 3; i++) {
        CpuAnchor *anchor;
        uint32_t released;
        cr_assert_null(cpu_anchor_prepare(c.node, constants, pool_of(threads[i]), NULL, &anchor, &released));
        Tensor *got = anchor_case_room(&c, c.graph->arena, &shape);
        cr_assert_null(
            anchor_run_once(anchor, c.node, (const Tensor *[]){c.tensors[0], c.tensors[1]}, got, pool_of(threads[i])));
        if (!i) anchor_case_expect(&c, c.tensors, first = got);
        cr_assert_arr_eq(got->data, first->data, tensor_bytes(got), "%d threads make another result", threads[i]);
        cpu_anchor_destroy(anchor);
    }
    graph_destroy(c.graph);
}

Test(convolutions, of_turned_tensors) {
    static const Turned cases[] = {
        {2, 6, 9, 5, 32, 3, 1, 1, 0},  {3, 4, 7, 17, 16, 2, 2, 1, 0}, {1, 5, 8, 33, 130, 3, 1, 2, 0},
        {2, 3, 5, 1, 7, 1, 1, 1, 0},   {2, 5, 6, 40, 64, 5, 2, 3, 0}, {1, 2, 1500, 3, 16, 3, 1, 1, 0},
        {2, 9, 8, 20, 48, 3, 1, 1, 1}, {2, 9, 8, 6, 33, 3, 2, 1, 1},
    };
    static const DType types[] = {DT_F64, DT_BF16};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_turned(&cases[i], DT_F32, i);
        check_turned(&cases[i], types[i % 2], i);
    }
}

Test(convolutions, winograd_with_epilogues) {
    static const Shape shapes[] = {
        {"winograd", 1, {30, 30}, 1, 16, 24, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {ANCHOR_BIAS}, 1},
        {"winograd", 2, {9, 14}, 1, 32, 33, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {ANCHOR_BIAS, ANCHOR_RELU}, 2},
        {"winograd",
         1,
         {7, 7},
         1,
         24,
         70,
         {3, 3},
         {1, 1},
         {1, 1},
         {1, 1, 1, 1},
         {ANCHOR_BIAS, ANCHOR_ADD, ANCHOR_BOUNDS},
         3},
        {"winograd", 1, {13, 6}, 1, 40, 20, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {ANCHOR_BIAS, ANCHOR_SWISH}, 2},
        {"winograd", 1, {13, 6}, 1, 40, 20, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {ANCHOR_CHANNELS, ANCHOR_TANH}, 2},
        {"winograd", 1, {13, 6}, 1, 40, 20, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {ANCHOR_BIAS, ANCHOR_HARD_SWISH}, 2},
        {"winograd", 1, {13, 6}, 1, 40, 20, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {ANCHOR_BIAS, ANCHOR_WRITTEN_OUT}, 2},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check(&shapes[i], i);
}

Test(convolutions, winograd_stays_away) {
    static const Shape shapes[] = {
        {"packed", 1, {9, 9}, 1, 32, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, .direct = true},
        {"packed", 1, {9, 9}, 1, 32, 32, {3, 3}, {2, 1}, {1, 1}, {1, 1, 1, 1}},
        {"packed", 1, {9, 9}, 1, 32, 32, {3, 3}, {1, 1}, {1, 2}, {1, 1, 1, 1}},
        {"packed", 1, {9, 9}, 1, 32, 32, {3, 1}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
        {"packed", 1, {9, 9}, 2, 32, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, .transposed = true},
        {"packed", 1, {9, 9}, 8, 8, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
        {"packed", 1, {9, 9}, 1, 3, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
        {"packed", 1, {9, 9}, 1, 32, 3, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
        {"packed", 1, {7, 7}, 1, 256, 256, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check(&shapes[i], i);
    Shape wide = {"packed", 1, {9, 9}, 1, 32, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}};
    check_type(&wide, DT_F64, 0);
}

/* On average errors are about twice those of the direct sum (conv/winograd.c): more is a worse choice of points or of the
 * order of sums. */
Test(convolutions, winograd_errors_are_small_on_average) {
    Shape s = {"winograd", 1, {40, 40}, 1, 64, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}};
    double squares[2] = {0};
    for (int direct = 0; direct < 2; direct++) {
        int64_t y[4];
        CpuAnchor *anchor;
        uint32_t released;
        s.direct = direct;
        cr_assert(result_dims(&s, y));
        AnchorCase c = make_case(&s, DT_F32, 5, y);
        Arena *arena = c.graph->arena;
        Tensor shape = {.dtype = DT_F32, .rank = 4, .dims = {y[0], y[1], y[2], y[3]}}, *wide[2],
               *exact[EPILOGUE_OUTPUTS];
        for (int i = 0; i < 2; i++) {
            wide[i] = tensor_new(arena, DT_F64, 4, c.tensors[i]->dims);
            for (int64_t n = 0; n < tensor_count(wide[i]); n++)
                ((double *)wide[i]->data)[n] = (double)((const float *)c.tensors[i]->data)[n];
        }
        cr_assert_null(eval_anchor(c.node, wide, NULL, arena, exact));
        cr_assert_null(
            cpu_anchor_prepare(c.node, (const Tensor *[]){NULL, c.tensors[1]}, NULL, NULL, &anchor, &released));
        Tensor *got = anchor_case_room(&c, arena, &shape);
        cr_assert_null(anchor_run_once(anchor, c.node, (const Tensor *[]){c.tensors[0], c.tensors[1]}, got, NULL));
        for (int64_t n = 0; n < tensor_count(got); n++) {
            double error = (double)((const float *)got->data)[n] - ((const double *)exact[0]->data)[n];
            squares[direct] += error * error;
        }
        cpu_anchor_destroy(anchor);
        graph_destroy(c.graph);
    }
    cr_expect_leq(sqrt(squares[0]), 3.5 * sqrt(squares[1]), "%g against %g", sqrt(squares[0]), sqrt(squares[1]));
}

/* ---- the tiles of each instruction set ---- */

static int all_sets(const TileIsa **out) {
    int count = 0;
    out[count++] = &tile_base;
#if defined(__x86_64__)
    if (tile_isa() != &tile_base) out[count++] = &tile_avx2;
    if (tile_isa() == &tile_avx512) out[count++] = &tile_avx512;
#endif
    return count;
}

static void fill(float *to, int count, uint64_t *state) {
    for (int i = 0; i < count; i++) to[i] = (float)(anchor_case_bits(state) >> 40) * 0x1p-23f - 1;
}

enum { LINE_CHANNELS = 37, LINE_PIXELS = 60, LINE_ROWS = 3, LINE_POSITIONS = 21, FILLER = 0x7fc0dead };

typedef struct LineCase {
    int taps, vectors, group;                       /* group: channels of one */
    int64_t first, pixels, position_step, tap_step; /* pixels */
    int64_t count;
    int columns;
} LineCase;

static void check_line(const TileIsa *isa, LineKind kind, const LineCase *l, uint64_t *state) {
    static float x[LINE_ROWS][LINE_PIXELS * LINE_CHANNELS], w[LINE_ROWS * 11 * 8 * 32], bias[64],
        y[LINE_POSITIONS][LINE_CHANNELS];
    const int lanes = isa->f32.lanes, width = l->vectors * lanes, column = 3;
    LineRow rows[LINE_ROWS];
    void *results[LINE_POSITIONS];
    uint32_t filler = FILLER;
    for (int r = 0; r < LINE_ROWS; r++) {
        fill(x[r], LINE_PIXELS * LINE_CHANNELS, state);
        rows[r] = (LineRow){x[r], (LINE_ROWS - 1 - r) * l->taps};
    }
    fill(w, LINE_ROWS * l->taps * l->group * width, state);
    fill(bias, 64, state);
    for (int i = 0; i < LINE_POSITIONS; i++) {
        results[i] = y[i];
        for (int j = 0; j < LINE_CHANNELS; j++) memcpy(&y[i][j], &filler, sizeof filler);
    }
    LinesCall call = {.rows = rows,
                      .row_count = LINE_ROWS,
                      .first = l->first * LINE_CHANNELS,
                      .limit = l->pixels * LINE_CHANNELS,
                      .position_step = l->position_step * LINE_CHANNELS,
                      .tap_step = l->tap_step * LINE_CHANNELS,
                      .count = l->count};
    call.ends = (TileCall){.results = results,
                           .column = column,
                           .columns = l->columns,
                           .weight = w,
                           .weight_stride = width,
                           .taps = l->taps,
                           .bias = bias};
    LinesFunction run = isa->f32.lines[kind][l->vectors];
    (run ? run : isa->f32.lines[LINE_ANY][l->vectors])(&call);
    for (int64_t i = 0; i < LINE_POSITIONS; i++)
        for (int j = 0; j < LINE_CHANNELS; j++) {
            bool written = i < l->count && j >= column && j < column + l->columns;
            uint32_t bits;
            memcpy(&bits, &y[i][j], sizeof bits);
            cr_assert_eq(bits == FILLER, !written, "%s, kind %d: position %d, column %d", isa->name, kind, (int)i, j);
            if (!written) continue;
            double exact = (double)bias[j], magnitude = fabs(exact);
            for (int r = 0; r < LINE_ROWS; r++)
                for (int t = 0; t < l->taps; t++) {
                    int64_t pixel = l->first + i * l->position_step + t * l->tap_step;
                    if (pixel < 0 || pixel >= l->pixels) continue;
                    const int first = column + (j - column) / l->group * l->group;
                    for (int k = 0; k < l->group; k++) {
                        double term = (double)x[r][pixel * LINE_CHANNELS + first + k] *
                                      (double)w[((rows[r].tap + t) * l->group + k) * width + j - column];
                        exact += term, magnitude += fabs(term);
                    }
                }
            cr_assert(rounding_agrees(DT_F32, (double)y[i][j], exact,
                                      rounding_gamma(DT_F32, LINE_ROWS * l->taps * l->group + 1) * magnitude),
                      "%s, kind %d, %d taps, %d vectors: position %d of %d, column %d: %g, not %g", isa->name, kind,
                      l->taps, l->vectors, (int)i, (int)l->count, j, (double)y[i][j], exact);
        }
}

Test(convolutions, lines_of_all_instruction_sets) {
    static const struct {
        LineKind kind;
        int taps, step, group;
    } kinds[] = {{LINE_3X1, 3, 1, 1},   {LINE_3X2, 3, 2, 1},   {LINE_5X1, 5, 1, 1},    {LINE_5X2, 5, 2, 1},
                 {LINE_7X1, 7, 1, 1},   {LINE_ANY, 1, 1, 1},   {LINE_ANY, 2, 3, 1},    {LINE_ANY, 7, 1, 1},
                 {LINE_ANY, 11, 1, 1},  {LINE_PAIRS, 3, 1, 2}, {LINE_PAIRS, 1, 2, 2},  {LINE_FOURS, 3, 1, 4},
                 {LINE_FOURS, 3, 2, 4}, {LINE_FOURS, 1, 1, 4}, {LINE_EIGHTS, 3, 1, 8}, {LINE_EIGHTS, 2, 2, 8}};
    const TileIsa *sets[3];
    int count = all_sets(sets);
    uint64_t state = 3;
    for (int s = 0; s < count; s++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            for (int vectors = 1; vectors <= sets[s]->f32.line_vectors; vectors++)
                for (int64_t positions = 1; positions <= LINE_POSITIONS; positions++)
                    for (int64_t before = 0; before < 4; before++) {
                        int lanes = sets[s]->f32.lanes, missing = anchor_case_below(&state, lanes);
                        int64_t spacing = 1 + anchor_case_below(&state, 2);
                        const int group = kinds[k].group;
                        if (kinds[k].kind == LINE_EIGHTS && lanes != 8) continue; /* AVX2 alone has them */
                        LineCase l = {kinds[k].taps,           vectors, group,    -before, 0,
                                      kinds[k].step * spacing, spacing, positions};
                        l.columns = (vectors * lanes - missing + group - 1) / group * group;
                        int64_t needed = (positions - 1) * l.position_step + (l.taps - 1) * l.tap_step + 1 - before;
                        l.pixels = needed - anchor_case_below(&state, 4);
                        if (l.pixels < 1) l.pixels = 1;
                        if (l.pixels > LINE_PIXELS || l.columns > LINE_CHANNELS - 3) continue;
                        check_line(sets[s], kinds[k].kind, &l, &state);
                    }
}

/* x min(max(x + 3, 0), 6), then divided by 6 as kernels do it, times a factor, plus an addend: the same bits in all sets. */
Test(convolutions, gates_of_all_instruction_sets) {
    enum { COUNT = 4099 };
    static float x[COUNT], y[COUNT];
    const TileIsa *sets[3];
    int count = all_sets(sets);
    float r, l;
    cr_assert(inverse_in_parts(6, &r, &l));
    const Bounds gate = {true, true, true, 0, 6, 1, 3, 1, 0x1p-40, 1, -0.0};
    Bounds bounds[] = {gate, gate, gate, gate};
    bounds[0].then = false;
    for (int b = 1; b < 4; b++) {
        if (b != 2) bounds[b].inverse = (double)r, bounds[b].rest = (double)l;
        if (b > 1) bounds[b].factor = 0.16666667, bounds[b].addend = 0.25;
    }
    uint64_t state = 5;
    fill(x, COUNT, &state);
    for (int i = 0; i < COUNT; i++) x[i] = ldexpf(x[i], i % 90 - 45);
    memcpy(x, (float[]){0, -0.0f, INFINITY, -INFINITY, NAN, 6, -3, 0x1p127f, -0x1p-140f}, 9 * sizeof *x);
    for (int s = 0; s < count; s++)
        for (int b = 0; b < 4; b++) {
            memcpy(y, x, sizeof y);
            sets[s]->f32.bound(y, COUNT, &bounds[b]);
            for (int i = 0; i < COUNT; i++) {
                float bounded = x[i] + 3;
                bounded = bounded < 0 ? 0 : bounded > 6 ? 6 : bounded;
                float want = x[i] * bounded;
                if (b & 1) want = divide_by_row(want, 6);
                if (b > 1) want = want * 0.16666667f + 0.25f;
                cr_assert(isnan(want) ? isnan(y[i]) : memcmp(&want, &y[i], sizeof want) == 0,
                          "%s, gate %d of %a: %a, not %a", sets[s]->name, b, (double)x[i], (double)y[i], (double)want);
            }
        }
}

/* All halves, infinities and subnormal ones among them, at any alignment; of floats those between them, halfway and beside that. */
Test(convolutions, f16_and_back_of_all_instruction_sets) {
    enum { HALVES = 1 << 16, ODD = 13 };
    static char bytes[2 * HALVES + 1];
    static uint16_t halves[HALVES];
    static float wide[HALVES], panel[HALVES];
    const TileIsa *sets[3];
    int count = all_sets(sets);
    const WeightForm form = {WEIGHT_F16, NARROW_BLOCK, false};
    for (int i = 0; i < HALVES; i++) halves[i] = (uint16_t)i;
    memcpy(bytes + 1, halves, sizeof halves);
    for (int s = 0; s < count; s++) {
        sets[s]->widen_f16(bytes + 1, wide, HALVES - ODD);
        sets[s]->widen_f16(bytes + 1 + 2 * (HALVES - ODD), wide + HALVES - ODD, ODD);
        sets[s]->widen(&(WidenCall){&form, halves, HALVES, 0, 1, panel});
        for (int i = 0; i < HALVES; i++) {
            float want = f16_to_f32((uint16_t)i);
            cr_assert(isnan(want) ? isnan(wide[i]) && isnan(panel[i]) : wide[i] == want && panel[i] == want,
                      "%s: %04x becomes %g and %g", sets[s]->name, (unsigned)i, (double)wide[i], (double)panel[i]);
            float near[16];
            uint32_t bits, base;
            memcpy(&base, &want, sizeof base);
            for (uint32_t k = 0; k < 16; k++) {
                static const uint32_t steps[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x800, 0x1800};
                bits = base + (k < 8 ? 1 : -1u) * steps[k % 8];
                memcpy(near + k, &bits, sizeof bits);
            }
            uint16_t got[16];
            sets[s]->narrow_f16(near, got, i % 2 ? 16 : 13);
            for (int k = 0; k < (i % 2 ? 16 : 13); k++)
                cr_assert(isnan(near[k]) ? isnan(f16_to_f32(got[k])) : got[k] == f32_to_f16(near[k]),
                          "%s: %a becomes %04x", sets[s]->name, (double)near[k], got[k]);
        }
    }
}

/* matrix in matrix^T, rounded nowhere; its magnitudes. */
static void transformed(const double *matrix, int rows, const double *in, double *out, double *magnitudes) {
    for (int i = 0; i < rows * rows; i++) {
        out[i] = magnitudes[i] = 0;
        for (int k = 0; k < 36; k++) {
            double term = matrix[i / rows * 6 + k / 6] * matrix[i % rows * 6 + k % 6] * in[k];
            out[i] += term, magnitudes[i] += fabs(term);
        }
    }
}

Test(convolutions, winograd_transforms_of_all_instruction_sets) {
    enum { CHANNELS = 40, STRIDE = 48, PIXELS = 6 };
    static float x[PIXELS * PIXELS * CHANNELS], products[36 * STRIDE], of_halves[36 * STRIDE], y[16][CHANNELS];
    static uint16_t halves[PIXELS * PIXELS * CHANNELS];
    const TileIsa *sets[3];
    const WinogradMatrices m = winograd_matrices();
    int count = all_sets(sets);
    uint64_t state = 9;
    double in[36], exact[36], magnitudes[36];
    const double gamma = rounding_gamma(DT_F32, 16);
    for (int s = 0; s < count; s++)
        for (int channels = 1; channels <= CHANNELS; channels++) {
            uint32_t lines = channels % 3 ? 63 : 63u << channels % 5 & 63,
                     pixels = channels % 4 ? 63 : 63u >> channels % 5;
            fill(x, PIXELS * PIXELS * CHANNELS, &state);
            sets[s]->winograd_input(
                &(WinogradInput){x, PIXELS * CHANNELS, CHANNELS, lines, pixels, channels, products, STRIDE});
            for (int c = 0; c < channels; c++) {
                for (int i = 0; i < 36; i++)
                    in[i] = lines >> i / 6 & pixels >> i % 6 & 1 ? (double)x[i * CHANNELS + c] : 0;
                transformed(m.input[0], 6, in, exact, magnitudes);
                for (int i = 0; i < 36; i++)
                    cr_assert(
                        rounding_agrees(DT_F32, (double)products[i * STRIDE + c], exact[i], gamma * magnitudes[i]),
                        "%s: product %d of channel %d: %g, not %g", sets[s]->name, i, c,
                        (double)products[i * STRIDE + c], exact[i]);
            }
            /* the same numbers from f16 */
            sets[s]->narrow_f16(x, halves, PIXELS * PIXELS * CHANNELS);
            sets[s]->widen_f16(halves, x, PIXELS * PIXELS * CHANNELS);
            for (int h = 0; h < 2; h++) {
                const void *from = h ? (const void *)halves : x;
                float *to = h ? of_halves : products;
                memset(to, 0, sizeof products);
                sets[s]->winograd_input(
                    &(WinogradInput){from, PIXELS * CHANNELS, CHANNELS, lines, pixels, channels, to, STRIDE, h});
            }
            cr_assert_arr_eq(products, of_halves, sizeof products, "%s: %d channels of f16", sets[s]->name, channels);
            void *results[16];
            fill(products, 36 * STRIDE, &state);
            memset(y, 0, sizeof y);
            for (int i = 0; i < 16; i++) results[i] = (channels + i) % 5 ? y[i] : NULL;
            WinogradOutput out = {.from = products, .stride = STRIDE};
            out.ends =
                (TileCall){.results = results, .columns = channels, .bounds = {.clamp = true, .low = -3, .high = 2}};
            sets[s]->winograd_output(&out);
            for (int c = 0; c < CHANNELS; c++) {
                for (int i = 0; i < 36; i++) in[i] = (double)products[i * STRIDE + c];
                transformed(m.output[0], 4, in, exact, magnitudes);
                for (int i = 0; i < 16; i++) {
                    double want = c < channels && results[i] ? fmin(2, fmax(-3, exact[i])) : 0;
                    cr_assert(rounding_agrees(DT_F32, (double)y[i][c], want, want == 0 ? 0 : gamma * magnitudes[i]),
                              "%s: pixel %d of column %d: %g, not %g", sets[s]->name, i, c, (double)y[i][c], want);
                }
            }
        }
}

/* ---- depthwise, then 1x1 ---- */

typedef struct Pair {
    Shape depthwise;
    int64_t outputs; /* of the 1x1 convolution */
    AnchorStep steps[4];
    int step_count;
} Pair;

static const Tensor *const *given_to(const AnchorCase *c, const Tensor **inputs) {
    for (int i = 0; i < c->count; i++) inputs[i] = c->tensors[i];
    return inputs;
}

static CpuAnchor *prepared(const AnchorCase *c) {
    const Tensor *constants[ANCHOR_CASE_INPUTS] = {NULL, c->tensors[1]};
    CpuAnchor *anchor;
    uint32_t released;
    cr_assert_null(cpu_anchor_prepare(c->node, constants, pool_of(1), NULL, &anchor, &released));
    return anchor;
}

/* The weights are constants of the graph, too, which is what pairs are told by. */
static void keep_weight(AnchorCase *c) { c->node->inputs[1]->constant = c->tensors[1]; }

/* Whether the second's result, with the first as its prologue, has the bits that both by themselves make. */
static void check_pair(const Pair *pair, uint64_t seed) {
    static const int threads[] = {1, 2, 16};
    int64_t between[4], y[4];
    cr_assert(result_dims(&pair->depthwise, between));
    Shape second = {"packed", between[0], {between[1], between[2]}, 1, between[3], pair->outputs, {1, 1},
                    {1, 1},   {1, 1}};
    memcpy(second.steps, pair->steps, sizeof second.steps);
    second.step_count = pair->step_count;
    cr_assert(result_dims(&second, y));
    AnchorCase maker = make_case(&pair->depthwise, DT_F32, seed, between),
               reader = make_case(&second, DT_F32, seed + 1, y);
    keep_weight(&maker);
    keep_weight(&reader);
    cr_assert(cpu_anchor_is_prologue(maker.node, reader.node));
    cr_assert_not(cpu_anchor_is_prologue(reader.node, maker.node));
    Arena *arena = reader.graph->arena;
    const Tensor *before[ANCHOR_CASE_INPUTS], *behind[ANCHOR_CASE_INPUTS];
    given_to(&maker, before);
    given_to(&reader, behind);
    Tensor made = {.dtype = DT_F32, .rank = 4}, shape = made, *apart = NULL;
    memcpy(made.dims, between, sizeof between);
    memcpy(shape.dims, y, sizeof y);
    CpuAnchor *first = prepared(&maker), *then = prepared(&reader);
    AnchorKernel ends[2] = {anchor_kernel(maker.graph->arena, maker.node), anchor_kernel(arena, reader.node)};
    for (int t = 0; t < 3; t++) {
        Pool *pool = pool_of(threads[t]);
        Tensor *whole = anchor_case_room(&maker, arena, &made), *got = anchor_case_room(&reader, arena, &shape);
        if (!t) {
            cr_assert_null(anchor_kernel_run(first, &ends[0], before, whole, pool));
            apart = anchor_case_room(&reader, arena, &shape);
            behind[0] = whole;
            cr_assert_null(anchor_kernel_run(then, &ends[1], behind, apart, pool));
            anchor_case_expect(&maker, maker.tensors, whole);
        }
        behind[0] = &made; /* has no data */
        KernelFunction functions[2];
        for (int i = 0; i < 2; i++) functions[i] = ends[i].code ? kernel_code_function(ends[i].code) : NULL;
        const CpuPrologue prologue = {
            first, functions[0], functions[0] ? &ends[0].region : NULL, before, maker.node->input_count, &made};
        cr_assert_null(cpu_anchor_run_behind(&prologue, then, functions[1], functions[1] ? &ends[1].region : NULL,
                                             behind, NULL, got, pool));
        cr_expect_arr_eq(got->data, apart->data, tensor_bytes(got), "seed %llu: %d threads make another result",
                         (unsigned long long)seed, threads[t]);
    }
    for (int i = 0; i < 2; i++) anchor_kernel_release(&ends[i]);
    cpu_anchor_destroy(first);
    cpu_anchor_destroy(then);
    graph_destroy(maker.graph);
    graph_destroy(reader.graph);
}

Test(convolutions, depthwise_within_pointwise) {
    static const int64_t channels[] = {2, 7, 8, 16, 17, 33, 40, 70, 130, 300},
                         widths[] = {1, 2, 9, 14, 28, 41, 97, 230}, outputs[] = {1, 7, 16, 24, 70};
    static const AnchorStep steps[][3] = {{ANCHOR_BIAS},
                                          {ANCHOR_BIAS, ANCHOR_RELU},
                                          {ANCHOR_BIAS, ANCHOR_ADD, ANCHOR_BOUNDS},
                                          {ANCHOR_BIAS, ANCHOR_SWISH},
                                          {ANCHOR_ROWS, ANCHOR_CHANNELS, ANCHOR_TANH},
                                          {ANCHOR_BIAS, ANCHOR_HARD_SWISH, ANCHOR_ADD}};
    static const int counts[] = {0, 2, 3, 2, 3, 3};
    for (uint64_t seed = 0; seed < 120; seed++) {
        int64_t kernel = 1 + 2 * (int64_t)(seed % 3), stride = 1 + (int64_t)(seed / 3 % 2),
                pad = (int64_t)seed % kernel;
        Pair pair = {{"depthwise",
                      1 + (int64_t)seed % 2,
                      {kernel + (int64_t)seed % 23, kernel + widths[seed % 8]},
                      channels[seed % 10],
                      1,
                      1,
                      {kernel, kernel},
                      {stride, 1 + (int64_t)seed % 2},
                      {1, 1},
                      {pad, pad, pad, (int64_t)seed % 2}},
                     outputs[seed % 5]};
        memcpy(pair.depthwise.steps, steps[seed % 6], sizeof steps[0]);
        pair.depthwise.step_count = counts[seed % 6];
        memcpy(pair.steps, steps[seed / 6 % 6], sizeof steps[0]);
        pair.step_count = counts[seed / 6 % 6];
        check_pair(&pair, seed);
    }
}

/* Whoever reads the input otherwise than position by position reads what is made elsewhere, too. */
Test(convolutions, what_is_no_prologue) {
    Shape depthwise = {"depthwise", 1, {9, 9}, 16, 1, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
          pointwise = {"packed", 1, {9, 9}, 1, 16, 8, {1, 1}, {1, 1}, {1, 1}};
    static const struct {
        int64_t kernel, stride, pad, group;
        bool may;
    } cases[] = {
        {1, 1, 0, 1, true}, {3, 1, 0, 1, false}, {1, 2, 0, 1, false}, {1, 1, 1, 1, false}, {1, 1, 0, 2, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Shape second = pointwise;
        int64_t y[4], z[4];
        second.kernel[0] = second.kernel[1] = cases[i].kernel;
        second.strides[1] = cases[i].stride;
        second.pads[3] = cases[i].pad;
        second.group = cases[i].group;
        second.inputs /= second.group;
        cr_assert(result_dims(&depthwise, y) && result_dims(&second, z));
        AnchorCase maker = make_case(&depthwise, DT_F32, 1, y), reader = make_case(&second, DT_F32, 2, z);
        keep_weight(&maker);
        cr_expect_not(cpu_anchor_is_prologue(maker.node, reader.node), "case %zu: a weight of the run", i);
        keep_weight(&reader);
        cr_expect_eq(cpu_anchor_is_prologue(maker.node, reader.node), cases[i].may, "case %zu", i);
        graph_destroy(maker.graph);
        graph_destroy(reader.graph);
    }
}

/* ---- 1x1 over tensors that are joined along their channels ---- */

/* Channels [first, first + its own) of each pixel of `whole`, by itself. */
static Tensor *part_of(Arena *arena, const Tensor *whole, int64_t first, int64_t channels) {
    int64_t dims[4] = {whole->dims[0], whole->dims[1], whole->dims[2], channels}, all = whole->dims[3];
    Tensor *part = tensor_new(arena, DT_F32, 4, dims);
    for (int64_t i = 0; i < dims[0] * dims[1] * dims[2]; i++)
        memcpy((float *)part->data + i * channels, (const float *)whole->data + i * all + first,
               (size_t)channels * sizeof(float));
    return part;
}

Test(convolutions, pointwise_over_parts) {
    static const int64_t parts[][8] =
        {{16, 16},         {16, 48},        {32, 64, 96},         {80, 16},
         {24, 24, 24, 24}, {1024, 512},     {17, 17, 17},         {16, 16, 16, 16, 16, 16, 16},
         {17, 34},         {600, 300, 300}, {256, 160, 160, 160}, {1072, 16},
         {255, 102, 51}},
                         outputs[] = {1, 7, 16, 24, 70};
    static const AnchorStep steps[][3] = {{ANCHOR_BIAS, ANCHOR_RELU},
                                          {ANCHOR_BIAS, ANCHOR_ADD, ANCHOR_BOUNDS},
                                          {ANCHOR_BIAS, ANCHOR_SWISH},
                                          {ANCHOR_ROWS, ANCHOR_CHANNELS, ANCHOR_TANH}};
    static const int counts[] = {2, 3, 2, 3}, threads[] = {1, 2, 16};
    for (uint64_t seed = 0; seed < 78; seed++) {
        const int64_t *lengths = parts[seed % 13];
        int count = 0;
        int64_t all = 0, y[4];
        for (; count < 8 && lengths[count]; count++) all += lengths[count];
        Shape shape = {"packed",
                       1 + (int64_t)seed % 2,
                       {1 + (int64_t)seed % 13, 1 + (int64_t)(seed * 7) % 23},
                       1,
                       all,
                       outputs[seed % 5],
                       {1, 1},
                       {1, 1},
                       {1, 1}};
        memcpy(shape.steps, steps[seed % 4], sizeof steps[0]);
        shape.step_count = counts[seed % 4];
        cr_assert(result_dims(&shape, y));
        AnchorCase c = make_case(&shape, DT_F32, seed, y);
        keep_weight(&c);
        Arena *arena = c.graph->arena;
        const Tensor *inputs[ANCHOR_CASE_INPUTS], *pieces[8];
        Tensor like = {.dtype = DT_F32, .rank = 4}, joined = *c.tensors[0], *first = NULL;
        memcpy(like.dims, y, sizeof y);
        joined.data = NULL;
        given_to(&c, inputs);
        inputs[0] = &joined;
        for (int64_t i = 0, at = 0; i < count; at += lengths[i++])
            pieces[i] = part_of(arena, c.tensors[0], at, lengths[i]);
        CpuAnchor *anchor = prepared(&c);
        AnchorKernel end = anchor_kernel(arena, c.node);
        KernelFunction function = end.code ? kernel_code_function(end.code) : NULL;
        const CpuPrologue prologue = {.inputs = pieces, .input_count = count, .output = &joined};
        for (int t = 0; t < 3; t++) {
            Tensor *got = anchor_case_room(&c, arena, &like);
            cr_assert_null(cpu_anchor_run_behind(&prologue, anchor, function, function ? &end.region : NULL, inputs,
                                                 NULL, got, pool_of(threads[t])));
            if (!t) anchor_case_expect(&c, c.tensors, first = got);
            cr_assert_arr_eq(got->data, first->data, tensor_bytes(got), "seed %llu: %d threads make another result",
                             (unsigned long long)seed, threads[t]);
        }
        anchor_kernel_release(&end);
        cpu_anchor_destroy(anchor);
        graph_destroy(c.graph);
    }
}

/* Parts that do not make up the weight's depth, or have another number of rows. */
Test(convolutions, parts_that_do_not_fit) {
    static const int64_t wrong[][2][2] = {{{16, 9}, {8, 9}}, {{16, 9}, {16, 8}}, {{31, 9}, {1, 9}}};
    Shape shape = {"packed", 1, {1, 9}, 1, 32, 8, {1, 1}, {1, 1}, {1, 1}};
    int64_t y[4];
    cr_assert(result_dims(&shape, y));
    AnchorCase c = make_case(&shape, DT_F32, 1, y);
    const Tensor *inputs[ANCHOR_CASE_INPUTS];
    Tensor like = {.dtype = DT_F32, .rank = 4, .dims = {y[0], y[1], y[2], y[3]}}, joined = *c.tensors[0];
    given_to(&c, inputs);
    joined.data = NULL;
    inputs[0] = &joined;
    CpuAnchor *anchor = prepared(&c);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const Tensor *pieces[2];
        for (int k = 0; k < 2; k++)
            pieces[k] = tensor_new(c.graph->arena, DT_F32, 4, (int64_t[]){1, 1, wrong[i][k][1], wrong[i][k][0]});
        const CpuPrologue prologue = {.inputs = pieces, .input_count = 2, .output = &joined};
        Tensor *got = anchor_case_room(&c, c.graph->arena, &like);
        Status status = cpu_anchor_run_behind(&prologue, anchor, NULL, NULL, inputs, NULL, got, pool_of(1));
        cr_assert(status && status_code(status) == STATUS_FAULT, "case %zu", i);
        status_free(status);
    }
    cpu_anchor_destroy(anchor);
    graph_destroy(c.graph);
}
