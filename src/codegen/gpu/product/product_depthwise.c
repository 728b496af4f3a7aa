/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise convolutions whose taps and strides a program knows: a thread computes a patch of the result, PATCH_LINES by
 * PATCH_COLUMNS positions of PACK neighbouring channels, and reads each pack of the input that these positions meet once.
 * A block's threads stand beside and below each other, so that what patches share is found in the multiprocessor's cache. */
#include <string.h>
#include "codegen/gpu/product/product_parts.h"

/* clang-format off */

/* The taps of each position are added in order, as product_channels_text does, zeros in the padding included. The blocks of a
 * line of the result stand in order of channels, columns, lines and planes (images times the first axis). */
const char product_depthwise_text[] =
    "#define PATCH_LINES (STRIDE == 1 && WINDOW < 7 ? 2 : 1)\n" /* lines by strides share little; 7 x 7 has no registers left */
    "#define PATCH_COLUMNS 4\n"
    "#define BEHIND(p, bytes, count) ((GLOBAL const BITS *)((GLOBAL const u8 *)(p) + (bytes) * (count)))\n"
    "#define COLUMNS ((PATCH_COLUMNS - 1) * STRIDE + WINDOW)\n"
    "#define LINES ((PATCH_LINES - 1) * STRIDE + WINDOW)\n"
    "FUNCTION void read_whole(GLOBAL const BITS *p, i32 there, VALUE *v) {\n"
    "    WORD w;\n"
    "    CLEAR(w)\n"
    "    if (there) w = READ(WORD, p);\n"
    "    UNPACK(w, v)\n"
    "}\n"
    /* n / d of what the host made of d: n * multiplier >> shift, n below 2^31. */
    "FUNCTION u32 divided(u32 n, i64 by) { return (u32)((u64)n * (u32)by >> (by >> 32)); }\n"
    "KERNEL_BESIDE(THREADS, BLOCKS_BESIDE) NAME(BUFFER_ARG(a_buffer), BUFFER_ARG(b_buffer), BUFFER_ARG(out_buffer),\n"
    "    BUFFER_ARG(partial_buffer) STEP_BUFFERS, i64 in0, i64 in1, i64 in2, i64 out0, i64 out1, i64 out2, i64 stride0,\n"
    "    i64 pad0, i64 pad1, i64 pad2, i64 channels, i64 w_tap, i64 plane_bytes, i64 line_bytes, i64 step_bytes, i64 tap_bytes,\n"
    "    i64 block_packs, i64 by_packs, i64 block_columns, i64 by_columns, i64 block_lines, i64 pack_tiles, i64 by_pack_tiles,\n"
    "    i64 column_tiles, i64 by_column_tiles, i64 line_tiles, i64 by_line_tiles, i64 by_out0, i64 whole STEP_NUMBERS) {\n"
    "    BUFFER(const BITS, a, a_buffer);\n"
    "    BUFFER(const BITS, b, b_buffer);\n"
    "    BUFFER(BITS, out, out_buffer);\n"
    "    STEP_DECLARE\n"
    "    const u32 thread = (u32)THREAD, block = (u32)BLOCK, below = divided(thread, by_packs);\n"
    "    const u32 block1 = divided(block, by_pack_tiles), block2 = divided(block1, by_column_tiles);\n"
    "    const u32 plane = divided(block2, by_line_tiles), image = divided(plane, by_out0);\n"
    "    const u32 place1 = divided(below, by_columns), place2 = below - place1 * (u32)block_columns;\n"
    "    const u32 pack = (block - block1 * (u32)pack_tiles) * (u32)block_packs + thread - below * (u32)block_packs;\n"
    "    const i32 q1 = (i32)((block2 - plane * (u32)line_tiles) * (u32)block_lines + place1) * PATCH_LINES;\n"
    "    const i32 q2 = (i32)((block1 - block2 * (u32)column_tiles) * (u32)block_columns + place2) * PATCH_COLUMNS;\n"
    "    const i32 lines = (i32)out1, columns = (i32)out2, c0 = (i32)pack * PACK;\n"
    "    if (place1 >= (u32)block_lines || q1 >= lines || q2 >= columns || c0 >= (i32)channels) return;\n"
    "    const i64 i0 = (plane - image * (u32)out0) * stride0 - pad0;\n"
    /* Outside of the first axis there are no lines. */
    "    const i32 y0 = i0 < 0 || i0 >= in0 ? -(1 << 30) : q1 * STRIDE - (i32)pad1, x0 = q2 * STRIDE - (i32)pad2;\n"
    "    GLOBAL const BITS *weights = b + c0;\n"
    "    GLOBAL const BITS *line = BEHIND(a + c0, (image * in0 + i0) * plane_bytes + y0 * line_bytes + x0 * step_bytes, 1);\n"
    "    const i64 at0 = (((i64)plane * lines + q1) * columns + q2) * channels + c0;\n"
    "    i64 places[PACK];\n"
    "    UNROLL\n"
    "    for (i32 k = 0; k < PACK; k++) places[k] = c0 + k;\n"
    /* Memory that does not begin at a multiple of a pack: element by element, a position after the other. */
    "    if (!whole) {\n"
    "        ROLLED\n"
    "        for (i32 q = 0; q < PATCH_LINES * PATCH_COLUMNS; q++) {\n"
    "            const i32 h = q / PATCH_COLUMNS, s = q % PATCH_COLUMNS;\n"
    "            if (q1 + h >= lines || q2 + s >= columns) continue;\n"
    "            VALUE sums[PACK], v[PACK], weight[PACK];\n"
    "            UNROLL\n"
    "            for (i32 k = 0; k < PACK; k++) sums[k] = 0;\n"
    "            ROLLED\n"
    "            for (i32 t = 0; t < WINDOW * WINDOW; t++) {\n"
    "                const i32 y = y0 + h * STRIDE + t / WINDOW, x = x0 + s * STRIDE + t % WINDOW;\n"
    "                const i32 there = (u32)y < (u32)in1 && (u32)x < (u32)in2;\n"
    "                read_pack(BEHIND(line, (y - y0) * line_bytes + (x - x0) * step_bytes, 1), 1, there ? PACK : 0, 0, v);\n"
    "                read_pack(weights + t * w_tap, 1, PACK, 0, weight);\n"
    "                UNROLL\n"
    "                for (i32 k = 0; k < PACK; k++) sums[k] = MULTIPLY_ADD(v[k], weight[k], sums[k]);\n"
    "            }\n"
    "            const i64 at = at0 + (h * out2 + s) * channels;\n"
    "            finish_pack(sums, places, at, 1, PACK, 0 STEP_PASSED);\n"
    "            write_pack(out + at, 1, PACK, 0, sums);\n"
    "        }\n"
    "        return;\n"
    "    }\n"
    "    VALUE sums[PATCH_LINES * PATCH_COLUMNS * PACK];\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < PATCH_LINES * PATCH_COLUMNS * PACK; i++) sums[i] = 0;\n"
    "    BY_LINES\n"
    "    for (i32 j = 0; j < LINES; j++, line = BEHIND(line, line_bytes, 1)) {\n"
    "        VALUE v[COLUMNS * PACK];\n"
    "        const i32 extent = (u32)(y0 + j) < (u32)in1 ? (i32)in2 : 0;\n"
    "        UNROLL\n"
    "        for (i32 i = 0; i < COLUMNS; i++)\n"
    "            read_whole(BEHIND(line, step_bytes, i), (u32)(x0 + i) < (u32)extent, v + i * PACK);\n"
    "        UNROLL\n"
    "        for (i32 h = 0; h < PATCH_LINES; h++) {\n"
    "            const i32 t1 = j - h * STRIDE;\n"
    "            if (t1 < 0 || t1 >= WINDOW) continue;\n"
    "            UNROLL\n"
    "            for (i32 t2 = 0; t2 < WINDOW; t2++) {\n"
    "                VALUE weight[PACK];\n"
    "                read_whole(BEHIND(weights, tap_bytes, t1 * WINDOW + t2), 1, weight);\n"
    "                UNROLL\n"
    "                for (i32 s = 0; s < PATCH_COLUMNS; s++) {\n"
    "                    UNROLL\n"
    "                    for (i32 k = 0; k < PACK; k++)\n"
    "                        sums[(h * PATCH_COLUMNS + s) * PACK + k] = MULTIPLY_ADD(\n"
    "                            v[(s * STRIDE + t2) * PACK + k], weight[k], sums[(h * PATCH_COLUMNS + s) * PACK + k]);\n"
    "                }\n"
    "            }\n"
    "        }\n"
    "    }\n"
    /* All packs are finished before the first is written, so that operands a column are read once. */
    "#define AT(h, s) (at0 + (h) * line_out + (s) * channels)\n"
    "    const i64 line_out = out2 * channels;\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < PATCH_LINES * PATCH_COLUMNS; i++)\n"
    "        if (q1 + i / PATCH_COLUMNS < lines && q2 + i % PATCH_COLUMNS < columns)\n"
    "            finish_pack(sums + i * PACK, places, AT(i / PATCH_COLUMNS, i % PATCH_COLUMNS), 1, PACK, 1 STEP_PASSED);\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < PATCH_LINES * PATCH_COLUMNS; i++)\n"
    "        if (q1 + i / PATCH_COLUMNS < lines && q2 + i % PATCH_COLUMNS < columns)\n"
    "            write_pack(out + AT(i / PATCH_COLUMNS, i % PATCH_COLUMNS), 1, PACK, 1, sums + i * PACK);\n"
    "}\n";

/* clang-format on */

enum { PATCH_COLUMNS = 4, MOST_CHANNELS = 1 << 26 };

/* As in the text. */
static int64_t patch_lines(const GpuVariant *v) { return v->stride == 1 && v->window < 7 ? 2 : 1; }

const int product_windows[] = {3, 5, 7};
const int product_window_count = (int)(sizeof product_windows / sizeof *product_windows);

int product_window(const GpuConv *c) {
    int64_t pack = product_pack(c->dtype), stride = c->strides[2];
    if (c->transposed || c->group < 2 || c->inputs != 1 || c->outputs != 1 || c->kernel[0] != 1) return 0;
    if (c->group % pack || c->group > MOST_CHANNELS || c->w_group != 1 || c->w_tap % pack ||
        c->w_tap > 2 * MOST_CHANNELS)
        return 0;
    if (c->kernel[1] != c->kernel[2] || c->strides[1] != stride || stride > 2) return 0;
    if (c->dilations[1] != 1 || c->dilations[2] != 1) return 0;
    for (int i = 0; i < product_window_count; i++)
        if (c->kernel[2] == product_windows[i]) return product_windows[i];
    return 0;
}

/* What a block covers: packs, and patches beside and below each other; at most CHANNELS_THREADS of them. */
typedef struct Cover {
    int64_t packs, columns, lines;
} Cover;

/* The one that takes the least: packs that all blocks read, and threads, in packs of their results. */
static Cover cover_of(const GpuConv *c, const GpuVariant *v, Cover all) {
    enum { MOST_PACKS = 16 };
    int64_t height = patch_lines(v), packs_tiles = ceil_div(all.packs, MOST_PACKS), lowest = -1;
    Cover best = {ceil_div(all.packs, packs_tiles), 1, 1};
    int64_t room = CHANNELS_THREADS / best.packs;
    for (int64_t lines = 1; lines <= room && lines <= all.lines; lines++) {
        int64_t columns = room / lines < all.columns ? room / lines : all.columns,
                tiles = ceil_div(all.columns, columns);
        columns = ceil_div(all.columns, tiles);
        tiles *= ceil_div(all.lines, lines);
        int64_t reach = c->kernel[2] - v->stride,
                read =
                    (lines * height * v->stride + reach) * (columns * PATCH_COLUMNS * v->stride + reach) * best.packs,
                cost = tiles * (read + CHANNELS_THREADS * height * PATCH_COLUMNS);
        if (lowest >= 0 && cost >= lowest) continue;
        lowest = cost;
        best.columns = columns;
        best.lines = lines;
    }
    return best;
}

/* What `divided` of the text takes, of 1 <= d < 2^31. With 2^(k - 1) < d <= 2^k, the multiplier m = ceil(2^(31 + k) / d) fits
 * 32 bits, and n * m / 2^(31 + k) is above n / d by less than n / 2^31 / d, which does not reach the next integer. */
static int64_t divisor_of(int64_t d) {
    int64_t k = 0;
    if (d < 1) return 0;
    while ((int64_t)1 << k < d) k++;
    uint64_t one = (uint64_t)1 << (31 + k), m = one / (uint64_t)d + (one % (uint64_t)d != 0);
    return (31 + k) << 32 | (int64_t)m;
}

void product_depthwise_launch(const GpuConv *c, bool whole, GpuProductLaunch *l) {
    Cover all = {c->group / product_pack(c->dtype), ceil_div(c->out[2], PATCH_COLUMNS),
                 ceil_div(c->out[1], patch_lines(&l->variant))};
    Cover block = cover_of(c, &l->variant, all);
    int64_t pack_tiles = ceil_div(all.packs, block.packs), column_tiles = ceil_div(all.columns, block.columns),
            line_tiles = ceil_div(all.lines, block.lines);
    l->splits = 1;
    l->block = CHANNELS_THREADS;
    l->grid = c->images * c->out[0] * pack_tiles * column_tiles * line_tiles;
    const int64_t step = c->group * (int64_t)dtype_size(c->dtype), line = c->in[2] * step;
    const int64_t arguments[] = {c->in[0],
                                 c->in[1],
                                 c->in[2],
                                 c->out[0],
                                 c->out[1],
                                 c->out[2],
                                 c->strides[0],
                                 c->pads[0],
                                 c->pads[1],
                                 c->pads[2],
                                 c->group,
                                 c->w_tap,
                                 c->in[1] * line,
                                 line,
                                 step,
                                 c->w_tap * (int64_t)dtype_size(c->dtype),
                                 block.packs,
                                 divisor_of(block.packs),
                                 block.columns,
                                 divisor_of(block.columns),
                                 block.lines,
                                 pack_tiles,
                                 divisor_of(pack_tiles),
                                 column_tiles,
                                 divisor_of(column_tiles),
                                 line_tiles,
                                 divisor_of(line_tiles),
                                 divisor_of(c->out[0]),
                                 whole};
    _Static_assert(sizeof arguments / sizeof *arguments <= GPU_PRODUCT_ARGUMENTS, "GpuProductLaunch");
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) product_argument(l, arguments[i]);
}
