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
    "#define PATCH_LINES (STRIDE == 1 ? 2 : 1)\n" /* lines by strides share little of the input */
    "#define PATCH_COLUMNS 4\n"
    "#if WINDOW > 3 || PACK < 4\n" /* whose weights of all taps would not find room in registers */
    "#define BY_LINES ROLLED\n"
    "#else\n"
    "#define BY_LINES UNROLL\n"
    "#endif\n"
    "#define BEHIND(p, bytes, count) ((GLOBAL const BITS *)((GLOBAL const u8 *)(p) + (bytes) * (count)))\n"
    "#define COLUMNS ((PATCH_COLUMNS - 1) * STRIDE + WINDOW)\n"
    "#define LINES ((PATCH_LINES - 1) * STRIDE + WINDOW)\n"
    "FUNCTION void read_whole(GLOBAL const BITS *p, i32 there, VALUE *v) {\n"
    "    WORD w;\n"
    "    CLEAR(w)\n"
    "    if (there) w = READ(WORD, p);\n"
    "    UNPACK(w, v)\n"
    "}\n"
    "KERNEL_BESIDE(THREADS, BLOCKS_BESIDE) NAME(BUFFER_ARG(a_buffer), BUFFER_ARG(b_buffer), BUFFER_ARG(out_buffer),\n"
    "    BUFFER_ARG(partial_buffer) STEP_BUFFERS, i64 in0, i64 in1, i64 in2, i64 out0, i64 out1, i64 out2, i64 stride0,\n"
    "    i64 pad0, i64 pad1, i64 pad2, i64 channels, i64 w_tap, i64 step_bytes, i64 tap_bytes, i64 block_packs, i64 block_columns,\n"
    "    i64 block_lines, i64 pack_tiles, i64 column_tiles, i64 line_tiles, i64 whole STEP_NUMBERS) {\n"
    "    BUFFER(const BITS, a, a_buffer);\n"
    "    BUFFER(const BITS, b, b_buffer);\n"
    "    BUFFER(BITS, out, out_buffer);\n"
    "    STEP_DECLARE\n"
    "    const u32 thread = (u32)THREAD, below = thread / (u32)block_packs, block = (u32)BLOCK;\n"
    "    const u32 block1 = block / (u32)pack_tiles, block2 = block1 / (u32)column_tiles, plane = block2 / (u32)line_tiles;\n"
    "    const u32 place1 = below / (u32)block_columns, place2 = below - place1 * (u32)block_columns;\n"
    "    const u32 pack = (block - block1 * (u32)pack_tiles) * (u32)block_packs + thread - below * (u32)block_packs;\n"
    "    const i32 q1 = (i32)((block2 - plane * (u32)line_tiles) * (u32)block_lines + place1) * PATCH_LINES;\n"
    "    const i32 q2 = (i32)((block1 - block2 * (u32)column_tiles) * (u32)block_columns + place2) * PATCH_COLUMNS;\n"
    "    const i32 lines = (i32)out1, columns = (i32)out2, c0 = (i32)pack * PACK;\n"
    "    if (place1 >= (u32)block_lines || q1 >= lines || q2 >= columns || c0 >= (i32)channels) return;\n"
    "    const u32 image = plane / (u32)out0;\n"
    "    const i64 i0 = (plane - image * (u32)out0) * stride0 - pad0;\n"
    "    const i32 inside = i0 >= 0 && i0 < in0, y0 = q1 * STRIDE - (i32)pad1, x0 = q2 * STRIDE - (i32)pad2;\n"
    "    GLOBAL const BITS *from = a + (image * in0 + i0) * in1 * in2 * channels + c0, *weights = b + c0;\n"
    "    const i64 at0 = (((i64)plane * out1 + q1) * out2 + q2) * channels + c0;\n"
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
    "                const i32 there = inside && (u32)y < (u32)in1 && (u32)x < (u32)in2;\n"
    "                read_pack(from + ((i64)y * in2 + x) * channels, 1, there ? PACK : 0, 0, v);\n"
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
    "    GLOBAL const BITS *line = from + ((i64)y0 * (i32)in2 + x0) * channels;\n"
    "    const i64 line_bytes = in2 * step_bytes;\n"
    "    BY_LINES\n"
    "    for (i32 j = 0; j < LINES; j++, line = BEHIND(line, line_bytes, 1)) {\n"
    "        VALUE v[COLUMNS * PACK];\n"
    "        const i32 extent = inside && (u32)(y0 + j) < (u32)in1 ? (i32)in2 : 0;\n"
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
    "#define AT(h, s) (at0 + ((h) * out2 + (s)) * channels)\n"
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
static int64_t patch_lines(int64_t stride) { return stride == 1 ? 2 : 1; }

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
    int64_t height = patch_lines(v->stride), packs_tiles = product_ceil_div(all.packs, MOST_PACKS), least = -1;
    Cover best = {product_ceil_div(all.packs, packs_tiles), 1, 1};
    int64_t room = CHANNELS_THREADS / best.packs;
    for (int64_t lines = 1; lines <= room && lines <= all.lines; lines++) {
        int64_t columns = room / lines < all.columns ? room / lines : all.columns,
                tiles = product_ceil_div(all.columns, columns);
        columns = product_ceil_div(all.columns, tiles);
        tiles *= product_ceil_div(all.lines, lines);
        int64_t reach = c->kernel[2] - v->stride,
                read =
                    (lines * height * v->stride + reach) * (columns * PATCH_COLUMNS * v->stride + reach) * best.packs,
                cost = tiles * (read + CHANNELS_THREADS * height * PATCH_COLUMNS);
        if (least >= 0 && cost >= least) continue;
        least = cost;
        best.columns = columns;
        best.lines = lines;
    }
    return best;
}

void product_depthwise_launch(const GpuConv *c, bool whole, GpuProductLaunch *l) {
    Cover all = {c->group / product_pack(c->dtype), product_ceil_div(c->out[2], PATCH_COLUMNS),
                 product_ceil_div(c->out[1], patch_lines(l->variant.stride))};
    Cover block = cover_of(c, &l->variant, all);
    int64_t pack_tiles = product_ceil_div(all.packs, block.packs),
            column_tiles = product_ceil_div(all.columns, block.columns),
            line_tiles = product_ceil_div(all.lines, block.lines);
    int64_t size = (int64_t)dtype_size(c->dtype);
    l->splits = 1;
    l->block = CHANNELS_THREADS;
    l->grid = c->images * c->out[0] * pack_tiles * column_tiles * line_tiles;
    const int64_t arguments[] = {c->in[0],        c->in[1],        c->in[2],    c->out[0],     c->out[1],   c->out[2],
                                 c->strides[0],   c->pads[0],      c->pads[1],  c->pads[2],    c->group,    c->w_tap,
                                 c->group * size, c->w_tap * size, block.packs, block.columns, block.lines, pack_tiles,
                                 column_tiles,    line_tiles,      whole};
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) product_argument(l, arguments[i]);
}
