/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, channels last: their texts, and which of them suits which sizes. */
#include <string.h>
#include "codegen/gpu/product/product_conv.h"
#include "codegen/gpu/product/product_parts.h"

/* clang-format off */

/* Along the depth, the input's channels are faster than the taps. A thread's packs of x have one depth and several rows;
 * while no tap is left behind, a step along the depth is one along the channels. */
const char product_conv_text[] =
    CONV_FUNCTIONS
    "#define PACKS_A LOADS(TILE_ROWS)\n"
    "#define PACKS_B LOADS(TILE_COLUMNS)\n"
    CONV_TAPS
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
    "    tile_at(tile, (u32)row_tiles, (u32)column_tiles, &row0, &column0);\n"
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

/* Positions of the result along all axes, at most, in one phase; and the number of phases. */
static int64_t phase_rows(const GpuConv *c, int64_t *out_phases) {
    int64_t rows = c->images;
    *out_phases = 1;
    for (int i = 0; i < GPU_CONV_AXES; i++) {
        rows *= c->transposed ? ceil_div(c->out[i], c->strides[i]) : c->out[i];
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
        v.window = product_window(c);
        if (v.window) v.stride = (int)c->strides[2];
        return v;
    }
    int64_t large = ceil_div(rows, 128) * ceil_div(c->outputs, 128) * c->group * phases;
    bool fills = rows > 64 && c->outputs > 64 && large >= limits->multiprocessors;
    v.tile = c->outputs <= 16 ? GPU_TILE_TALL : fills && dtype_size(c->dtype) < 8 ? GPU_TILE_LARGE : GPU_TILE_MEDIUM;
    v.exact = product_exact(limits, c->dtype);
    v.matrix = product_on_matrix(limits, c->dtype) && !(v.exact && v.tile == GPU_TILE_TALL) &&
               rows < INT32_MAX; /* which are counted in 32 bits there */
    v.exact &= v.matrix;
    if (v.matrix) v.tile = product_matrix_tile(limits, rows, c->outputs, c->group * phases, product_without_large(&v));
    v.b_outer = true;
    return v;
}

static bool divides(int64_t pack, int64_t size, int64_t alignment, int64_t stride) {
    return alignment % (pack * size) == 0 && stride % pack == 0;
}

static int64_t flags_of(const GpuConv *c, const GpuVariant *v) {
    int64_t size = (int64_t)dtype_size(c->dtype), flags = 0, inputs = c->inputs, outputs = c->outputs,
            out_pack = product_pack(c->dtype), pack = v->matrix ? 16 / size : out_pack;
    bool channels = v->kind == GPU_PRODUCT_CHANNELS; /* its packs run across groups */
    if (divides(pack, size, c->x_alignment, channels ? inputs * c->group : inputs)) flags |= WHOLE_A;
    if (divides(pack, size, c->w_alignment, c->w_tap)) {
        if (v->depthwise && c->w_group == 1) flags |= WHOLE_B;
        bool lines = c->w_input % pack == 0 && (c->group == 1 || c->w_group % pack == 0);
        bool dense = !v->matrix || c->transposed || c->w_tap == c->inputs * c->w_input; /* one line after the other */
        if (!channels && c->w_output == 1 && lines && dense) flags |= WHOLE_B;
    }
    if (divides(out_pack, size, c->out_alignment, outputs * c->group) && (channels || outputs % out_pack == 0))
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
    int64_t flags = flags_of(c, v);
    v->gather = v->matrix && (flags & (WHOLE_A | WHOLE_B)) != (WHOLE_A | WHOLE_B);
    if (v->gather) v->tile = GPU_TILE_MEDIUM;
    if (v->window) {
        product_depthwise_launch(c, flags == (WHOLE_A | WHOLE_B | WHOLE_OUT), l);
        return;
    }
    for (int i = 0; i < GPU_CONV_AXES; i++) {
        periods[i] = c->strides[i] / common_divisor(c->strides[i], c->dilations[i]);
        depth *= c->transposed ? ceil_div(c->kernel[i], periods[i]) : c->kernel[i];
    }
    l->splits = 1;
    if (v->kind == GPU_PRODUCT_CHANNELS) {
        int64_t packs = ceil_div(c->group * c->outputs, product_pack(c->dtype));
        row_tiles = ceil_div(ceil_div(rows, CHANNELS_ROWS) * packs, CHANNELS_THREADS);
        column_tiles = 1;
        l->block = CHANNELS_THREADS;
        l->grid = row_tiles * phases;
    } else {
        TileShape shape = {0};
        MatrixShape matrix = {0};
        if (v->matrix)
            matrix = product_matrix_shape(v->tile);
        else
            shape = product_tile(v->tile, c->dtype);
        row_tiles = ceil_div(rows, v->matrix ? matrix.rows : shape.rows);
        column_tiles = ceil_div(c->outputs, v->matrix ? matrix.columns : shape.columns);
        int64_t blocks = row_tiles * column_tiles * c->group * phases;
        l->splits = product_splits(limits, blocks, 2, depth);
        l->block = v->matrix ? product_matrix_threads(&matrix) : product_threads(&shape);
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
                            c->w_group, row_tiles, column_tiles, l->splits, elements,   flags};
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
        if (launch.variant.matrix && !(sizes && weight) && (!launch.variant.gather || !weight))
            count = product_add_matrix_tiles(out, count, &launch.variant);
        if (launch.splits < 2) continue;
        gpu_finish_launch(c.dtype, 1, launch.splits, 1, 1, 1, 1, limits, epilogue, &launch);
        count = product_add_variant(out, count, &launch.variant);
    }
    for (int i = 0; !weight && i < product_window_count; i++) {
        GpuConv c = *known;
        GpuProductLaunch launch;
        c.kernel[0] = c.inputs = c.outputs = 1;
        c.kernel[1] = c.kernel[2] = product_windows[i];
        if (!sizes) c.images = c.out[0] = c.out[1] = c.out[2] = 1;
        gpu_conv_launch(&c, limits, epilogue, &launch);
        count = product_add_variant(out, count, &launch.variant);
    }
    return count;
}
