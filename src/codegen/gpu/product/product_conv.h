/* SPDX-License-Identifier: Apache-2.0 */
/* What the texts of convolutions share, on matrix units or without: where rows and taps meet the input, the arguments, and
 * what a block has of the work. */
#ifndef ONNXFUSE_CODEGEN_GPU_PRODUCT_PRODUCT_CONV_H
#define ONNXFUSE_CODEGEN_GPU_PRODUCT_PRODUCT_CONV_H

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
    "    const u32 tile = (u32)BLOCK % (u32)(row_tiles * column_tiles);\n"                                             \
    "    i64 part = (u32)BLOCK / (u32)(row_tiles * column_tiles);\n"

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

/* Along the depth, the input's channels are faster than the taps. A depth is below 2^30. */
#define CONV_TAPS                                                                                                      \
    "FUNCTION Tap tap_at(i64 depth, i64 inputs, AXIS *x1, AXIS *x2) {\n"                                               \
    "    Tap tap;\n"                                                                                                   \
    "    i64 t = depth / inputs;\n"                                                                                    \
    "    tap.c = (i32)(depth % inputs);\n"                                                                             \
    "    tap.t2 = (i32)(t % x2->taps);\n"                                                                              \
    "    t /= x2->taps;\n"                                                                                             \
    "    tap.t1 = (i32)(t % x1->taps);\n"                                                                              \
    "    tap.t0 = (i32)(t / x1->taps);\n"                                                                              \
    "    return tap;\n"                                                                                                \
    "}\n"                                                                                                              \
    /* Where a tap's weights begin. Of an ordinary convolution the number of the tap suffices, which t2 holds alone. */ \
    "#if TRANSPOSED\n"                                                                                                 \
    "#define WEIGHT_TAP_AT(depth) tap_at(depth, inputs, x1, x2)\n"                                                     \
    "#define WEIGHT_AT(tap) kernel_at(x0, x1, x2, tap, kernel1, kernel2)\n"                                            \
    "#define ADVANCE_WEIGHT(tap) advance_tap(tap, TILE_DEPTH, (i32)inputs, x1, x2)\n"                                  \
    "#else\n"                                                                                                          \
    "#define WEIGHT_TAP_AT(depth) number_at(depth, inputs)\n"                                                          \
    "#define WEIGHT_AT(tap) (i64)(tap)->t2\n"                                                                          \
    "#define ADVANCE_WEIGHT(tap) advance_number(tap, TILE_DEPTH, (i32)inputs)\n"                                       \
    "#endif\n"                                                                                                         \
    "FUNCTION Tap number_at(i64 depth, i64 inputs) {\n"                                                                \
    "    Tap tap;\n"                                                                                                   \
    "    tap.t0 = tap.t1 = 0;\n"                                                                                       \
    "    tap.t2 = (i32)(depth / inputs);\n"                                                                            \
    "    tap.c = (i32)(depth % inputs);\n"                                                                             \
    "    return tap;\n"                                                                                                \
    "}\n"                                                                                                              \
    "FUNCTION void advance_number(Tap *tap, i32 by, i32 inputs) {\n"                                                   \
    "    for (tap->c += by; tap->c >= inputs; tap->c -= inputs) tap->t2++;\n"                                          \
    "}\n"                                                                                                              \
    /* Returns whether the tap is another one. */                                                                      \
    "FUNCTION i32 advance_tap(Tap *tap, i32 by, i32 inputs, AXIS *x1, AXIS *x2) {\n"                                   \
    "    i32 changed = 0;\n"                                                                                           \
    "    tap->c += by;\n"                                                                                              \
    "    while (tap->c >= inputs) {\n"                                                                                 \
    "        tap->c -= inputs;\n"                                                                                      \
    "        changed = 1;\n"                                                                                           \
    "        if (++tap->t2 == x2->taps) {\n"                                                                           \
    "            tap->t2 = 0;\n"                                                                                       \
    "            if (++tap->t1 == x1->taps) {\n"                                                                       \
    "                tap->t1 = 0;\n"                                                                                   \
    "                tap->t0++;\n"                                                                                     \
    "            }\n"                                                                                                  \
    "        }\n"                                                                                                      \
    "    }\n"                                                                                                          \
    "    return changed;\n"                                                                                            \
    "}\n"

/* clang-format on */

#endif
