/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, channels last: their texts, and which of them suits which sizes. */
#include <string.h>
#include "codegen/gpu/product/product_parts.h"

/* clang-format off */

/* One spatial axis of the work that a block has. Position q of `count` is the result's first + q * step; its tap t of
 * `taps` is the kernel's kernel_first + t * kernel_step and meets the input's q * in_step + base + t * tap_step.
 *
 * A transposed convolution's phase r has the result's positions o with (o + pad) % stride == r, and the taps k with
 * k * dilation % stride == r, which come again every `period` = stride / gcd(stride, dilation) taps; all divisions by the
 * stride are exact then. Positions of the input are kept below 2^30 on both sides, far outside of which no tap reaches
 * back, so that they fit 32 bits. */
#define CONV_FUNCTIONS                                                                                                 \
    "typedef struct Axis {\n"                                                                                          \
    "    i64 count, first, step, in_step, base;\n"                                                                     \
    "    i32 taps, tap_step, kernel_first, kernel_step, extent;\n"                                                     \
    "} Axis;\n"                                                                                                        \
    "#if TRANSPOSED\n"                                                                                                 \
    "#define AXIS SHARED_POINTER const Axis\n"                                                                        \
    "#else\n"                                                                                                         \
    "#define AXIS const Axis\n"                                                                                       \
    "#endif\n"                                                                                                        \
    "typedef struct Tap { i32 t0, t1, t2, c; } Tap;\n"                                                                 \
    "FUNCTION Axis axis_of(i64 phase, i64 in, i64 out, i64 size, i64 stride, i64 dilation, i64 pad, i64 period) {\n" \
    "    Axis x;\n"                                                                                                    \
    "    x.extent = (i32)in;\n"                                                                                        \
    "#if TRANSPOSED\n"                                                                                                 \
    "    const i64 limit = size < period ? size : period;\n"                                                       \
    "    i64 t = 0;\n"                                                                                                 \
    "    while (t < limit && t * dilation % stride != phase) t++;\n"                                                   \
    "    x.first = ((phase - pad) % stride + stride) % stride;\n"                                                      \
    "    x.step = stride;\n"                                                                                           \
    "    x.in_step = 1;\n"                                                                                             \
    "    x.count = x.first < out ? (out - x.first - 1) / stride + 1 : 0;\n"                                            \
    "    x.taps = t < limit ? (i32)((size - t - 1) / period + 1) : 0;\n"                                             \
    "    x.base = t < limit ? (x.first + pad - t * dilation) / stride : 0;\n"                                          \
    "    x.tap_step = (i32)-(period * dilation / stride);\n"                                                           \
    "    x.kernel_first = (i32)t;\n"                                                                                   \
    "    x.kernel_step = (i32)period;\n"                                                                               \
    "#else\n"                                                                                                          \
    "    x.first = 0;\n"                                                                                               \
    "    x.step = 1;\n"                                                                                                \
    "    x.in_step = stride;\n"                                                                                        \
    "    x.count = out;\n"                                                                                             \
    "    x.taps = (i32)size;  \n"                                                                                      \
    "    x.base = -pad;\n"                                                                                             \
    "    x.tap_step = (i32)dilation;\n"                                                                                \
    "    x.kernel_first = 0;\n"                                                                                        \
    "    x.kernel_step = 1;\n"                                                                                         \
    "#endif\n"                                                                                                         \
    "    return x;\n"                                                                                                  \
    "}\n"                                                                                                              \
    "FUNCTION i32 position_at(AXIS *x, i64 q) {\n"                                                               \
    "    const i64 most = 1 << 30, i = q * x->in_step + x->base;\n"                                                    \
    "    return (i32)(i > most ? most : i < -most ? -most : i);\n"                                                     \
    "}\n"                                                                                                              \
    /* Where a tap of a row meets the input, a position of all images; -1: in the padding, or no row. */                         \
    "FUNCTION i64 place_at(AXIS *x0, AXIS *x1, AXIS *x2, i32 n, i32 p0, i32 p1, i32 p2, const Tap *tap) {\n" \
    "    const i32 i0 = p0 + tap->t0 * x0->tap_step, i1 = p1 + tap->t1 * x1->tap_step, i2 = p2 + tap->t2 * x2->tap_step;\n" \
    "    if (n < 0 || (u32)i0 >= (u32)x0->extent || (u32)i1 >= (u32)x1->extent || (u32)i2 >= (u32)x2->extent) return -1;\n"     \
    "    return (((i64)n * x0->extent + i0) * x1->extent + i1) * x2->extent + i2;\n"                                                      \
    "}\n"                                                                                                              \
    "FUNCTION i64 kernel_at(AXIS *x0, AXIS *x1, AXIS *x2, const Tap *tap, i64 kernel1, i64 kernel2) {\n" \
    "    return ((x0->kernel_first + (i64)tap->t0 * x0->kernel_step) * kernel1 + x1->kernel_first +\n"                 \
    "            (i64)tap->t1 * x1->kernel_step) * kernel2 + x2->kernel_first + (i64)tap->t2 * x2->kernel_step;\n"     \
    "}\n"                                                                                                              \
    /* Row r of the product: its image and positions along the axes. */                                                \
    "FUNCTION i64 row_at(i64 r, AXIS *x0, AXIS *x1, AXIS *x2, i64 *q0, i64 *q1, i64 *q2) {\n"        \
    "    *q2 = r % x2->count;\n"                                                                                       \
    "    r /= x2->count;\n"                                                                                            \
    "    *q1 = r % x1->count;\n"                                                                                       \
    "    r /= x1->count;\n"                                                                                            \
    "    *q0 = r % x0->count;\n"                                                                                       \
    "    return r / x0->count;\n"                                                                                      \
    "}\n"                                                                                                              \
    "FUNCTION void advance_row(AXIS *x0, AXIS *x1, AXIS *x2, i64 *n, i64 *q0, i64 *q1, i64 *q2) {\n"   \
    "    if (++*q2 < x2->count) return;\n"                                                                            \
    "    *q2 = 0;\n"                                                                                                  \
    "    if (++*q1 < x1->count) return;\n"                                                                            \
    "    *q1 = 0;\n"                                                                                                  \
    "    if (++*q0 < x0->count) return;\n"                                                                            \
    "    *q0 = 0;\n"                                                                                                  \
    "    ++*n;\n"                                                                                                     \
    "}\n"                                                                                                              \
    /* Where row r's positions stand in the result. */                                                                 \
    "FUNCTION i64 out_row_at(i64 r, AXIS *x0, AXIS *x1, AXIS *x2, i64 out0, i64 out1, i64 out2) {\n" \
    "#if TRANSPOSED\n"                                                                                                 \
    "    i64 q0, q1, q2;\n"                                                                                            \
    "    const i64 n = row_at(r, x0, x1, x2, &q0, &q1, &q2);\n"                                                        \
    "    return ((n * out0 + x0->first + q0 * x0->step) * out1 + x1->first + q1 * x1->step) * out2 + x2->first +\n"    \
    "           q2 * x2->step;\n"                                                                                      \
    "#else\n"                                                                                                          \
    "    return r;\n"                                                                                                  \
    "#endif\n"                                                                                                         \
    "}\n"

#define CONV_HEAD                                                                                                      \
    "KERNEL_BESIDE(THREADS, BLOCKS_BESIDE) NAME(BUFFER_ARG(a_buffer), BUFFER_ARG(b_buffer), BUFFER_ARG(out_buffer),\n"                    \
    "    BUFFER_ARG(partial_buffer) STEP_BUFFERS, i64 images, i64 in0, i64 in1, i64 in2, i64 out0, i64 out1, i64 out2,\n" \
    "    i64 kernel0, i64 kernel1, i64 kernel2, i64 stride0, i64 stride1, i64 stride2, i64 dilation0, i64 dilation1,\n" \
    "    i64 dilation2, i64 pad0, i64 pad1, i64 pad2, i64 period0, i64 period1, i64 period2, i64 group, i64 inputs,\n" \
    "    i64 outputs, i64 w_tap, i64 w_input, i64 w_output, i64 w_group, i64 row_tiles, i64 column_tiles, i64 splits,\n" \
    "    i64 elements, i64 flags STEP_NUMBERS) {\n"                                                                    \
    "    BUFFER(const BITS, a, a_buffer);\n"                                                                           \
    "    BUFFER(const BITS, b, b_buffer);\n"                                                                           \
    "    BUFFER(BITS, out, out_buffer);\n"                                                                             \
    "    STEP_DECLARE\n"                                                                                               \
    "#if TRANSPOSED\n"                                                                                                 \
    "    SHARED Axis axes[3];\n"                                                                                       \
    "#endif\n"

/* part: the block's number without its tile. */
#define CONV_PLACE                                                                                                     \
    "    const i32 thread = (i32)THREAD;\n"                                                                            \
    "    const i32 whole_a = (i32)flags & 1, whole_b = (i32)flags & 2, whole_out = (i32)flags & 4;\n"                  \
    "    const i64 tile = BLOCK % (row_tiles * column_tiles);\n"                                                       \
    "    i64 part = BLOCK / (row_tiles * column_tiles);\n"

/* A transposed convolution's axes depend on the phase: a thread each computes them for all, in shared memory, which
 * spares the registers. */
#define CONV_AXES                                                                                                      \
    "#if TRANSPOSED\n"                                                                                                 \
    "    if (thread == 0) axes[0] = axis_of(part / stride2 / stride1, in0, out0, kernel0, stride0, dilation0, pad0,\n" \
    "                                       period0);\n"                                                               \
    "    if (thread == 1) axes[1] = axis_of(part / stride2 % stride1, in1, out1, kernel1, stride1, dilation1, pad1,\n" \
    "                                       period1);\n"                                                               \
    "    if (thread == 2) axes[2] = axis_of(part % stride2, in2, out2, kernel2, stride2, dilation2, pad2, period2);\n" \
    "    BARRIER;\n"                                                                                                   \
    "#else\n"                                                                                                          \
    "    Axis axes[3];\n"                                                                                              \
    "    axes[0] = axis_of(0, in0, out0, kernel0, stride0, dilation0, pad0, period0);\n"                               \
    "    axes[1] = axis_of(0, in1, out1, kernel1, stride1, dilation1, pad1, period1);\n"                               \
    "    axes[2] = axis_of(0, in2, out2, kernel2, stride2, dilation2, pad2, period2);\n"                               \
    "#endif\n"                                                                                                         \
    "    AXIS *x0 = axes, *x1 = axes + 1, *x2 = axes + 2;\n"                                                           \
    "    const i64 rows = images * x0->count * x1->count * x2->count, channels_in = group * inputs,\n"                    \
    "              channels_out = group * outputs;\n"

/* Along the depth, the input's channels are faster than the taps. A thread's packs of x have one depth and several rows;
 * while no tap is left behind, a step along the depth is one along the channels. */
const char product_conv_text[] =
    CONV_FUNCTIONS
    "#define PACKS_A LOADS(TILE_ROWS)\n"
    "#define PACKS_B LOADS(TILE_COLUMNS)\n"
    "FUNCTION Tap tap_at(i64 depth, i64 inputs, AXIS *x1, AXIS *x2) {\n"
    "    Tap tap;\n"
    "    i64 t = depth / inputs;\n"
    "    tap.c = (i32)(depth % inputs);\n"
    "    tap.t2 = (i32)(t % x2->taps);\n"
    "    t /= x2->taps;\n"
    "    tap.t1 = (i32)(t % x1->taps);\n"
    "    tap.t0 = (i32)(t / x1->taps);\n"
    "    return tap;\n"
    "}\n"
    /* Where a tap's weights begin. Of an ordinary convolution the number of the tap suffices, which t2 holds alone. */
    "#if TRANSPOSED\n"
    "#define WEIGHT_TAP_AT(depth) tap_at(depth, inputs, x1, x2)\n"
    "#define WEIGHT_AT(tap) kernel_at(x0, x1, x2, tap, kernel1, kernel2)\n"
    "#define ADVANCE_WEIGHT(tap) advance_tap(tap, TILE_DEPTH, (i32)inputs, x1, x2)\n"
    "#else\n"
    "#define WEIGHT_TAP_AT(depth) number_at(depth, inputs)\n"
    "#define WEIGHT_AT(tap) (i64)(tap)->t2\n"
    "#define ADVANCE_WEIGHT(tap) advance_number(tap, TILE_DEPTH, (i32)inputs)\n"
    "#endif\n"
    "FUNCTION Tap number_at(i64 depth, i64 inputs) {\n"
    "    Tap tap;\n"
    "    tap.t0 = tap.t1 = 0;\n"
    "    tap.t2 = (i32)(depth / inputs);\n"
    "    tap.c = (i32)(depth % inputs);\n"
    "    return tap;\n"
    "}\n"
    "FUNCTION void advance_number(Tap *tap, i32 by, i32 inputs) {\n"
    "    for (tap->c += by; tap->c >= inputs; tap->c -= inputs) tap->t2++;\n"
    "}\n"
    /* Returns whether the tap is another one. */
    "FUNCTION i32 advance_tap(Tap *tap, i32 by, i32 inputs, AXIS *x1, AXIS *x2) {\n"
    "    i32 changed = 0;\n"
    "    tap->c += by;\n"
    "    while (tap->c >= inputs) {\n"
    "        tap->c -= inputs;\n"
    "        changed = 1;\n"
    "        if (++tap->t2 == x2->taps) {\n"
    "            tap->t2 = 0;\n"
    "            if (++tap->t1 == x1->taps) {\n"
    "                tap->t1 = 0;\n"
    "                tap->t0++;\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "    return changed;\n"
    "}\n"
    CONV_HEAD
    "    BUFFER(VALUE, partial, partial_buffer);\n"
    TILES_DECLARED
    "    SHARED i64 kept[4];\n"
    TILES_NAMED
    CONV_PLACE
    "    i64 split = part % splits;\n"
    "    part /= splits;\n"
    "    const i64 g = part % group;\n"
    "    part /= group;\n"
    CONV_AXES
    "    const i64 depth = (i64)x0->taps * x1->taps * x2->taps * inputs;\n"
    "    const i64 length = (depth + splits * TILE_DEPTH - 1) / (splits * TILE_DEPTH) * TILE_DEPTH;\n"
    "    const i64 begin = split * length, end = begin + length < depth ? begin + length : depth;\n"
    "    i64 row0, column0;\n"
    "    tile_at(tile, row_tiles, column_tiles, &row0, &column0);\n"
    "    if (row0 >= rows) return;\n"
    /* What the end wants again, so that no registers hold it meanwhile. */
    "    if (thread == 0) {\n"
    "        kept[0] = row0;\n"
    "        kept[1] = column0;\n"
    "        kept[2] = g * outputs;\n"
    "        kept[3] = split;\n"
    "    }\n"
    "    BARRIER;\n"
    "    a += g * inputs;\n"
    "    b += g * w_group + column0 * w_output;\n"
    /* Rows that this thread loads. */
    "    const i32 depth_a = PACK_DEPTH(thread, TILE_ROWS, 0);\n"
    "    i32 p0[PACKS_A], p1[PACKS_A], p2[PACKS_A];\n"
    "    i32 image[PACKS_A];\n"
    "    i64 place[PACKS_A];\n"
    "    UNROLL\n"
    "    for (i32 p = 0; p < PACKS_A; p++) {\n"
    "        const i64 r = row0 + PACK_OUTER(thread + p * THREADS, TILE_ROWS, 0);\n"
    "        i64 q0 = 0, q1 = 0, q2 = 0;\n"
    "        image[p] = r < rows ? (i32)row_at(r, x0, x1, x2, &q0, &q1, &q2) : -1;\n"
    "        p0[p] = position_at(x0, q0);\n"
    "        p1[p] = position_at(x1, q1);\n"
    "        p2[p] = position_at(x2, q2);\n"
    "        place[p] = -1;\n"
    "    }\n"
    "    Tap tap_a, tap_b[PACKS_B];\n"
    "    tap_a.t0 = tap_a.t1 = tap_a.t2 = tap_a.c = 0;\n"
    "    i32 moved = 1;\n"
    "    UNROLL\n"
    "    for (i32 p = 0; p < PACKS_B; p++) tap_b[p] = tap_a;\n"
    "    if (begin < end) {\n"
    "        tap_a = tap_at(begin + depth_a, inputs, x1, x2);\n"
    "        UNROLL\n"
    "        for (i32 p = 0; p < PACKS_B; p++)\n"
    "            tap_b[p] = WEIGHT_TAP_AT(begin + PACK_DEPTH(thread + p * THREADS, TILE_COLUMNS, 1));\n"
    "    }\n"
    "    const i32 row = thread / (TILE_COLUMNS / THREAD_COLUMNS) * 4, column = thread % (TILE_COLUMNS / THREAD_COLUMNS) * 4;\n"
    "    VALUE sums[THREAD_ROWS * THREAD_COLUMNS], next_a[PACKS_A * PACK], next_b[PACKS_B * PACK];\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < THREAD_ROWS * THREAD_COLUMNS; i++) sums[i] = 0;\n"
    "    const i32 columns_left = NEAR(outputs - column0);\n"
    "    i32 now = 0;\n"
    /* Step -1 only loads. */
    "    const i32 whole_depth = (i32)(end - begin);\n"
    "    for (i32 ahead = whole_depth; ahead > -TILE_DEPTH; ahead -= TILE_DEPTH) {\n"
    "        if (ahead > 0) {\n"
    "            if (whole_a) {\n"
    "                UNROLL\n"
    "                for (i32 p = 0; p < PACKS_A; p++) {\n"
    "                    if (moved) place[p] = place_at(x0, x1, x2, image[p], p0[p], p1[p], p2[p], &tap_a) * channels_in;\n"
    "                    read_pack(a + place[p] + tap_a.c, 1,\n"
    "                              depth_a < ahead && place[p] >= 0 ? PACK : 0, 1, next_a + p * PACK);\n"
    "                }\n"
    "                moved = advance_tap(&tap_a, TILE_DEPTH, (i32)inputs, x1, x2);\n"
    "            } else {\n"
    "                Tap tap = tap_a;\n"
    "                UNROLL\n"
    "                for (i32 i = 0; i < PACK; i++) {\n"
    "                    UNROLL\n"
    "                    for (i32 p = 0; p < PACKS_A; p++) {\n"
    "                        if (moved) place[p] = place_at(x0, x1, x2, image[p], p0[p], p1[p], p2[p], &tap) * channels_in;\n"
    "                        next_a[p * PACK + i] = depth_a + i < ahead && place[p] >= 0\n"
    "                            ? FROM_BITS(READ(BITS, a + place[p] + tap.c)) : (VALUE)0;\n"
    "                    }\n"
    "                    moved = advance_tap(&tap, 1, (i32)inputs, x1, x2);\n"
    "                }\n"
    "                advance_tap(&tap_a, TILE_DEPTH, (i32)inputs, x1, x2);\n"
    "                moved = 1;\n"
    "            }\n"
    "            UNROLL\n"
    "            for (i32 p = 0; p < PACKS_B; p++) {\n"
    "                const i32 e = thread + p * THREADS;\n"
    "                const i32 o = PACK_OUTER(e, TILE_COLUMNS, 1), d = PACK_DEPTH(e, TILE_COLUMNS, 1);\n"
    "                const i32 count = d < ahead && d < TILE_DEPTH ? columns_left - o : 0;\n"
    "                read_pack(b + WEIGHT_AT(&tap_b[p]) * w_tap + tap_b[p].c * w_input +\n"
    "                          o * w_output, w_output, count, whole_b, next_b + p * PACK);\n"
    "                ADVANCE_WEIGHT(&tap_b[p]);\n"
    "            }\n"
    "        }\n"
    "        if (ahead < whole_depth)\n"
    "            multiply_tiles(tiles_a + now * TILE_DEPTH * LINE(TILE_ROWS), tiles_b + now * TILE_DEPTH * LINE(TILE_COLUMNS),\n"
    "                           row, column, sums);\n"
    "        now = 1 - now;\n"
    "        if (ahead > 0) {\n"
    "            store_tile(tiles_a + now * TILE_DEPTH * LINE(TILE_ROWS), 0, TILE_ROWS, thread, next_a);\n"
    "            store_tile(tiles_b + now * TILE_DEPTH * LINE(TILE_COLUMNS), 1, TILE_COLUMNS, thread, next_b);\n"
    "        }\n"
    "        BARRIER;\n"
    "    }\n"
    "#define OUT_AT(r) (out_row_at(r, x0, x1, x2, out0, out1, out2) * channels_out + place0)\n"
    "    row0 = kept[0];\n"
    "    column0 = kept[1];\n"
    "    split = kept[3];\n"
    "    const i64 place0 = kept[2], columns = outputs, out_column = 1;\n"
    "#undef SCALE\n"
    "#define SCALE(x, alpha) (x)\n"
    PRODUCT_STORE
    "}\n";

/* A thread has PACK channels of THREAD_ROWS rows, so that a weight is read once for all of these. */
const char product_channels_text[] =
    CONV_FUNCTIONS
    CONV_HEAD
    CONV_PLACE
    CONV_AXES
    "    const i64 packs = (channels_out + PACK - 1) / PACK, item = tile * THREADS + thread;\n"
    "    const i64 c0 = item % packs * PACK, row0 = item / packs * THREAD_ROWS;\n"
    "    const i32 count = NEAR(channels_out - c0);\n"
    "    if (row0 >= rows) return;\n"
    "    VALUE sums[THREAD_ROWS * PACK];\n"
    "    i32 p0[THREAD_ROWS], p1[THREAD_ROWS], p2[THREAD_ROWS];\n"
    "    i32 image[THREAD_ROWS];\n"
    "    i64 q0, q1, q2, n = row_at(row0, x0, x1, x2, &q0, &q1, &q2);\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < THREAD_ROWS; i++) {\n"
    "        image[i] = row0 + i < rows ? (i32)n : -1;\n"
    "        p0[i] = position_at(x0, q0);\n"
    "        p1[i] = position_at(x1, q1);\n"
    "        p2[i] = position_at(x2, q2);\n"
    "        advance_row(x0, x1, x2, &n, &q0, &q1, &q2);\n"
    "        UNROLL\n"
    "        for (i32 j = 0; j < PACK; j++) sums[i * PACK + j] = 0;\n"
    "    }\n"
    "#if !DEPTHWISE\n"
    "    i64 from_a[PACK], from_b[PACK];\n"
    "    UNROLL\n"
    "    for (i32 j = 0; j < PACK; j++) {\n"
    "        const i64 c = j < count ? c0 + j : c0;\n"
    "        from_a[j] = c / outputs * inputs;\n"
    "        from_b[j] = c / outputs * w_group + c % outputs * w_output;\n"
    "    }\n"
    "#endif\n"
    "    Tap tap;\n"
    "    tap.c = 0;\n"
    "    for (tap.t0 = 0; tap.t0 < x0->taps; tap.t0++)\n"
    "        for (tap.t1 = 0; tap.t1 < x1->taps; tap.t1++)\n"
    "            for (tap.t2 = 0; tap.t2 < x2->taps; tap.t2++) {\n"
    "                GLOBAL const BITS *w = b + kernel_at(x0, x1, x2, &tap, kernel1, kernel2) * w_tap;\n"
    "                i64 place[THREAD_ROWS];\n"
    "                UNROLL\n"
    "                for (i32 i = 0; i < THREAD_ROWS; i++)\n"
    "                    place[i] = place_at(x0, x1, x2, image[i], p0[i], p1[i], p2[i], &tap) * channels_in;\n"
    "#if DEPTHWISE\n"
    "                VALUE weight[PACK], v[THREAD_ROWS * PACK];\n"
    "                read_pack(w + c0 * w_group, w_group, count, whole_b, weight);\n"
    "                UNROLL\n"
    "                for (i32 i = 0; i < THREAD_ROWS; i++)\n"
    "                    read_pack(a + place[i] + c0, 1, place[i] >= 0 ? count : 0, whole_a,\n"
    "                              v + i * PACK);\n"
    "                UNROLL\n"
    "                for (i32 i = 0; i < THREAD_ROWS; i++) {\n"
    "                    UNROLL\n"
    "                    for (i32 j = 0; j < PACK; j++)\n"
    "                        sums[i * PACK + j] = MULTIPLY_ADD(v[i * PACK + j], weight[j], sums[i * PACK + j]);\n"
    "                }\n"
    "#else\n"
    "                for (i64 c = 0; c < inputs; c++) {\n"
    "                    VALUE weight[PACK];\n"
    "                    UNROLL\n"
    "                    for (i32 j = 0; j < PACK; j++) weight[j] = FROM_BITS(READ(BITS, w + from_b[j] + c * w_input));\n"
    "                    UNROLL\n"
    "                    for (i32 i = 0; i < THREAD_ROWS; i++) {\n"
    "                        if (place[i] < 0) continue;\n"
    "                        UNROLL\n"
    "                        for (i32 j = 0; j < PACK; j++)\n"
    "                            sums[i * PACK + j] = MULTIPLY_ADD(\n"
    "                                FROM_BITS(READ(BITS, a + place[i] + from_a[j] + c)), weight[j],\n"
    "                                sums[i * PACK + j]);\n"
    "                    }\n"
    "                }\n"
    "#endif\n"
    "            }\n"
    "    n = row_at(row0, x0, x1, x2, &q0, &q1, &q2);\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < THREAD_ROWS; i++) {\n"
    "        if (row0 + i >= rows) break;\n"
    "        const i64 at = (((n * out0 + x0->first + q0 * x0->step) * out1 + x1->first + q1 * x1->step) * out2 + x2->first +\n"
    "                        q2 * x2->step) * channels_out + c0;\n"
    "        i64 places[PACK];\n"
    "        UNROLL\n"
    "        for (i32 k = 0; k < PACK; k++) places[k] = c0 + k;\n"
    "        finish_pack(sums + i * PACK, places, at, 1, count, whole_out STEP_PASSED);\n"
    "        write_pack(out + at, 1, count, whole_out, sums + i * PACK);\n"
    "        advance_row(x0, x1, x2, &n, &q0, &q1, &q2);\n"
    "    }\n"
    "}\n";

/* clang-format on */

/* ---- which variant ---- */

/* Groups of fewer outputs would leave most of a tile's columns empty. */
enum { LEAST_TILED_OUTPUTS = 16 };

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

/* Positions of the result along all axes, at most, in one phase; and the number of phases. */
static int64_t phase_rows(const GpuConv *c, int64_t *out_phases) {
    int64_t rows = c->images;
    *out_phases = 1;
    for (int i = 0; i < GPU_CONV_AXES; i++) {
        rows *= c->transposed ? product_ceil_div(c->out[i], c->strides[i]) : c->out[i];
        if (c->transposed) *out_phases *= c->strides[i];
    }
    return rows;
}

static GpuVariant variant_of(const GpuConv *c, const GpuLimits *limits, const GpuEpilogue *epilogue, int64_t rows,
                             int64_t phases) {
    GpuVariant v;
    memset(&v, 0, sizeof v); /* compared as bytes */
    v.epilogue = epilogue;
    v.dtype = c->dtype;
    v.transposed = c->transposed;
    v.kind = GPU_PRODUCT_CONV;
    if (c->group > 1 && c->outputs < LEAST_TILED_OUTPUTS) {
        v.kind = GPU_PRODUCT_CHANNELS;
        v.depthwise = c->inputs == 1 && c->outputs == 1;
        return v;
    }
    int64_t large = product_ceil_div(rows, 128) * product_ceil_div(c->outputs, 128) * c->group * phases;
    bool fills = rows > 64 && c->outputs > 64 && large >= limits->multiprocessors;
    v.tile = c->outputs <= 16 ? GPU_TILE_TALL : fills && dtype_size(c->dtype) < 8 ? GPU_TILE_LARGE : GPU_TILE_MEDIUM;
    v.b_outer = true;
    return v;
}

static bool divides(int64_t pack, int64_t size, int64_t alignment, int64_t stride) {
    return alignment % (pack * size) == 0 && stride % pack == 0;
}

static int64_t flags_of(const GpuConv *c, const GpuVariant *v) {
    int64_t pack = product_pack(c->dtype), size = (int64_t)dtype_size(c->dtype), flags = 0, inputs = c->inputs,
            outputs = c->outputs;
    bool channels = v->kind == GPU_PRODUCT_CHANNELS; /* its packs run across groups */
    if (divides(pack, size, c->x_alignment, channels ? inputs * c->group : inputs)) flags |= WHOLE_A;
    if (divides(pack, size, c->w_alignment, c->w_tap)) {
        if (v->depthwise && c->w_group == 1) flags |= WHOLE_B;
        bool lines = c->w_input % pack == 0 && (c->group == 1 || c->w_group % pack == 0);
        if (!channels && c->w_output == 1 && lines) flags |= WHOLE_B;
    }
    if (divides(pack, size, c->out_alignment, outputs * c->group) && (channels || outputs % pack == 0))
        flags |= WHOLE_OUT;
    return flags;
}

static void add_axes(GpuProductLaunch *l, const int64_t *values) {
    for (int i = 0; i < GPU_CONV_AXES; i++) product_argument(l, values[i]);
}

void gpu_conv_launch(const GpuConv *c, const GpuLimits *limits, const GpuEpilogue *epilogue, GpuProductLaunch *l) {
    memset(l, 0, sizeof *l);
    int64_t phases, rows = phase_rows(c, &phases), periods[GPU_CONV_AXES], row_tiles, column_tiles, depth = c->inputs;
    GpuVariant *v = &l->variant;
    *v = variant_of(c, limits, epilogue, rows, phases);
    for (int i = 0; i < GPU_CONV_AXES; i++) {
        periods[i] = c->strides[i] / common_divisor(c->strides[i], c->dilations[i]);
        depth *= c->transposed ? product_ceil_div(c->kernel[i], periods[i]) : c->kernel[i];
    }
    l->splits = 1;
    if (v->kind == GPU_PRODUCT_CHANNELS) {
        int64_t packs = product_ceil_div(c->group * c->outputs, product_pack(c->dtype));
        row_tiles = product_ceil_div(product_ceil_div(rows, CHANNELS_ROWS) * packs, CHANNELS_THREADS);
        column_tiles = 1;
        l->block = CHANNELS_THREADS;
        l->grid = row_tiles * phases;
    } else {
        TileShape shape = product_tile(v->tile, c->dtype);
        row_tiles = product_ceil_div(rows, shape.rows);
        column_tiles = product_ceil_div(c->outputs, shape.columns);
        int64_t blocks = row_tiles * column_tiles * c->group * phases;
        l->splits = product_splits(limits, blocks, 2, depth);
        l->block = product_threads(&shape);
        l->grid = blocks * l->splits;
    }
    product_argument(l, c->images);
    add_axes(l, c->in);
    add_axes(l, c->out);
    add_axes(l, c->kernel);
    add_axes(l, c->strides);
    add_axes(l, c->dilations);
    add_axes(l, c->pads);
    add_axes(l, periods);
    int64_t elements = c->images * c->out[0] * c->out[1] * c->out[2] * c->outputs * c->group;
    const int64_t rest[] = {c->group,   c->inputs, c->outputs,   c->w_tap,  c->w_input, c->w_output,
                            c->w_group, row_tiles, column_tiles, l->splits, elements,   flags_of(c, v)};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) product_argument(l, rest[i]);
}

/* ---- what may come ---- */

/* Sizes on both sides of the limits above. */
static const int64_t some_images[] = {1, 1 << 20}, some_inputs[] = {1, 1 << 10},
                     some_outputs[] = {1, 16, 17, 65, 1 << 16};

int gpu_conv_variants(const GpuConv *known, const GpuLimits *limits, const GpuEpilogue *epilogue, GpuVariant *out) {
    int count = 0;
    bool sizes = known->images >= 0, weight = known->inputs >= 0 && known->outputs >= 0;
    for (int i = 0; i < GPU_CONV_AXES; i++) {
        sizes &= known->in[i] >= 0 && known->out[i] >= 0;
        weight &= known->kernel[i] >= 0;
    }
    for (int i = 0; i < 4 * 5; i++) {
        GpuConv c = *known;
        GpuProductLaunch launch;
        for (int k = 0; k < GPU_CONV_AXES; k++) {
            if (!sizes) c.out[k] = 1;
            if (!weight) c.kernel[k] = i & 2 ? 16 : 1;
        }
        if (!sizes) c.images = some_images[i & 1];
        if (!weight) c.inputs = some_inputs[i >> 1 & 1];
        if (!weight) c.outputs = some_outputs[i >> 2];
        gpu_conv_launch(&c, limits, epilogue, &launch);
        count = product_add_variant(out, count, &launch.variant);
        if (launch.splits < 2) continue;
        gpu_finish_launch(c.dtype, 1, launch.splits, 1, 1, 1, 1, limits, epilogue, &launch);
        count = product_add_variant(out, count, &launch.variant);
    }
    return count;
}
