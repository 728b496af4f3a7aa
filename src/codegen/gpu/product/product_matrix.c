/* SPDX-License-Identifier: Apache-2.0 */
/* Products and convolutions by tiles on matrix units (codegen/gpu/matrix.h): their texts, and which tile suits which
 * sizes. Types of 16 bits, and f32 as tf32 where that is allowed; sums are f32.
 *
 * A block's tiles of both factors come in chunks of 16 bytes, 4 chunks deep, by copies that run two steps ahead of the
 * products, in a ring of three. A line of a tile is what has neighbours in memory: a row or column along the depth, or, where
 * the factor's outer axis has the neighbours, all of one depth, which is turned when it is loaded into fragments. Chunks of
 * a line change places by the line's number, so that neither copies nor loads meet on a bank of shared memory. Factors
 * whose lines do not begin at multiples of 16 bytes are gathered element by element instead, by programs of their own for
 * medium tiles. */
#include <string.h>
#include "codegen/gpu/product/product_conv.h"
#include "codegen/gpu/product/product_parts.h"

/* clang-format off */

/* A fragment is 16 rows or columns by MATRIX_DEPTH. fragment_at: where the lane's part of the warp's first fragment stands,
 * which `first` begins; in words for tf32 whose outer axis has neighbours, for only elements of 16 bits can be turned,
 * else in chunks. All others of the warp follow from it by an exclusive or and a constant. */
#define MATRIX_FUNCTIONS                                                                                               \
    "#define DEPTH_CHUNKS 4\n"                                                                                         \
    "#define TILE_DEPTH (DEPTH_CHUNKS * UNIT)\n"                                                                       \
    "#define CHUNKS_A (A_OUTER ? TILE_ROWS / UNIT : DEPTH_CHUNKS)\n"                                                   \
    "#define CHUNKS_B (B_OUTER ? TILE_COLUMNS / UNIT : DEPTH_CHUNKS)\n"                                                \
    "#define SIZE_A (TILE_ROWS * DEPTH_CHUNKS)\n"                                                                      \
    "#define SIZE_B (TILE_COLUMNS * DEPTH_CHUNKS)\n"                                                                   \
    "#define LOADS_A (SIZE_A / THREADS)\n"                                                                             \
    "#define LOADS_B (SIZE_B / THREADS)\n"                                                                             \
    "#define LINES_A (THREADS / CHUNKS_A)\n"                                                                           \
    "#define LINES_B (THREADS / CHUNKS_B)\n"                                                                           \
    "#define STAGES 3\n"                                                                                               \
    "#define FRAGMENTS_A (WARP_ROWS / 16)\n"                                                                           \
    "#define FRAGMENTS_B (WARP_COLUMNS / 16)\n"                                                                        \
    /* EXACT, f32 on ordinary units: a lane has LANE_ROWS rows, ROW_LANES apart, and columns in fours. */ \
    "#define LANE_ROWS 8\n"                                                                                           \
    "#define ROW_LANES (WARP_ROWS / LANE_ROWS)\n"                                                                     \
    "#define COLUMN_LANES (32 / ROW_LANES)\n"                                                                         \
    "#define LANE_COLUMNS (WARP_COLUMNS / COLUMN_LANES)\n"                                                            \
    "#define BY_WORDS(outer_first) ((outer_first) && UNIT == 4)\n"                                                     \
    "#define SWIZZLE(line, outer_first) ((outer_first) ? (UNIT == 4 ? ((line) & 3) << 1 : (line) & 7) : (line) / 2 & 3)\n" \
    "FUNCTION i32 fragment_at(i32 outer_first, i32 of_b, i32 chunks, i32 first, i32 lane) {\n"                         \
    "    if (BY_WORDS(outer_first)) {\n"                                                                               \
    "        const i32 line = lane % 4;\n"                                                                             \
    "        return (line * chunks + ((first / 4 + lane / 16) ^ SWIZZLE(line, 1))) * 4 + lane / 4 % 4;\n"              \
    "    }\n"                                                                                                          \
    "    i32 line = outer_first == of_b ? lane % 16 : lane % 8 + lane / 16 * 8;\n"                                     \
    "    i32 chunk = outer_first == of_b ? lane / 16 : lane / 8 % 2;\n"                                                \
    "    if (outer_first) chunk += first / UNIT; else line += first;\n"                                                \
    "    return line * chunks + (chunk ^ SWIZZLE(line, outer_first));\n"                                               \
    "}\n"                                                                                                              \
    "FUNCTION void load_words(u32 *r, SHARED_POINTER const u128 *tile, i32 at, i32 of_b, i32 chunks, i32 n) {\n"       \
    "    SHARED_POINTER const u32 *words = (SHARED_POINTER const u32 *)tile;\n"                                        \
    "    UNROLL\n"                                                                                                     \
    "    for (i32 i = 0; i < 4; i++) {\n"                                                                              \
    "        const i32 outer = of_b ? i / 2 : i % 2, depth = of_b ? i % 2 : i / 2;\n"                                  \
    "        r[i] = words[(at ^ (n * 2 + outer) * 8) + depth * 4 * chunks * 4];\n"                                     \
    "    }\n"                                                                                                          \
    "}\n"                                                                                                              \
    /* Fragment n of the k-th products along the depth. */                                                             \
    "#define LOAD_FRAGMENT(r, tile, at, outer_first, of_b, chunks, n, k) do { \\\n"                                    \
    "        if (BY_WORDS(outer_first)) load_words(r, (tile) + (k) * MATRIX_DEPTH * (chunks), at, of_b, chunks, n); \\\n" \
    "        else if (outer_first) LOAD_TURNED(r, tile, (at) ^ (n) * 2, (k) * MATRIX_DEPTH * (chunks)); \\\n"       \
    "        else LOAD_MATRICES(r, tile, (at) ^ (k) * 2, (n) * 16 * (chunks)); \\\n"                                \
    "        UNROLL for (i32 w = 0; w < 4; w++) (r)[w] = ROUND_TO_MATRIX((r)[w]); \\\n"                                \
    "    } while (0)\n"                                                                                                \
    /* Element e of a chunk of UNIT. */                                                                                \
    "#define WORD_OF(e) ((e) * 4 / UNIT)\n"                                                                            \
    "#define IN_WORD(bits, e) ((u32)(bits) << ((e) % (UNIT / 4) * 16))\n"                                              \
    "FUNCTION u128 gather(GLOBAL const BITS *from, i64 stride, i32 count) {\n"                                         \
    "    u32 words[4];\n"                                                                                              \
    "    words[0] = words[1] = words[2] = words[3] = 0;\n"                                                             \
    "    UNROLL\n"                                                                                                     \
    "    for (i32 e = 0; e < UNIT; e++)\n"                                                                             \
    "        if (e < count) words[WORD_OF(e)] |= IN_WORD(READ(BITS, from + e * stride), e);\n"                         \
    "    u128 chunk;\n"                                                                                                \
    "    chunk.x = words[0]; chunk.y = words[1]; chunk.z = words[2]; chunk.w = words[3];\n"                            \
    "    return chunk;\n"                                                                                              \
    "}\n"                                                                                                              \
    "FUNCTION i32 chunk_left(i32 left) { return left < 0 ? 0 : left < UNIT ? left : UNIT; }\n"

#define MATRIX_DECLARED                                                                                                \
    "    SHARED u128 tiles[STAGES * (SIZE_A + SIZE_B)];\n"                                                             \
    "    MATRIX_MEMORY\n"

/* What a thread has of the tiles: its chunks (lines LINES_A apart), its warp's part of the sums. */
#define MATRIX_THREAD                                                                                                  \
    "    const u32 whole_thread = (u32)thread;\n" /* divides without a sign */                                         \
    "    const i32 line_a = (i32)(whole_thread / CHUNKS_A), chunk_a = (i32)(whole_thread % CHUNKS_A);\n"               \
    "    const i32 line_b = (i32)(whole_thread / CHUNKS_B), chunk_b = (i32)(whole_thread % CHUNKS_B);\n"               \
    "    const i32 to_a = line_a * CHUNKS_A + (chunk_a ^ SWIZZLE(line_a, A_OUTER));\n"                                 \
    "    const i32 to_b = SIZE_A + line_b * CHUNKS_B + (chunk_b ^ SWIZZLE(line_b, B_OUTER));\n"                        \
    "    const i32 lane = (i32)(whole_thread % 32), warp_row = (i32)(whole_thread / 32 / (TILE_COLUMNS / WARP_COLUMNS)),\n" \
    "              warp_column = (i32)(whole_thread / 32 % (TILE_COLUMNS / WARP_COLUMNS));\n"                          \
    "#if EXACT\n"                                                                                                     \
    "    const i32 lane_row = lane / COLUMN_LANES, lane_column = lane % COLUMN_LANES;\n"                              \
    "    const i32 from_a = (warp_row * WARP_ROWS + lane_row) * CHUNKS_A + SWIZZLE(lane_row, 0);\n"                   \
    "    const i32 from_b = warp_column * (WARP_COLUMNS / UNIT) + lane_column;\n"                                     \
    "#else\n"                                                                                                         \
    "    const i32 from_a = fragment_at(A_OUTER, 0, CHUNKS_A, warp_row * WARP_ROWS, lane);\n"                          \
    "    const i32 from_b = fragment_at(B_OUTER, 1, CHUNKS_B, warp_column * WARP_COLUMNS, lane);\n"                    \
    "#endif\n"                                                                                                         \
    "    f32 sums[FRAGMENTS_A * FRAGMENTS_B * 8];\n"                                                                   \
    "    UNROLL\n"                                                                                                     \
    "    for (i32 i = 0; i < FRAGMENTS_A * FRAGMENTS_B * 8; i++) sums[i] = 0;\n"                                       \
    "    LEFT left = end > begin ? (LEFT)(end - begin) : 0;\n"                                                         \
    "    i32 fill = 0;\n"

/* Steps -2 and -1 only copy. Copies of a step go where the products of the one before it have read, which the barrier
 * lies between; what is filled next is what they read. The caller's part between the two macros copies `ahead` elements
 * along the depth to `to`. LEFT is the type of what is left of the depth. */
#define MATRIX_LOOP                                                                                                    \
    "    for (i32 step = -2; left > -2 * TILE_DEPTH; step++) {\n"                                                                \
    "        COPY_WAIT(1);\n"                                                                                          \
    "        BARRIER;\n"                                                                                               \
    "        if (left > 0) {\n"                                                                                        \
    "            const i32 ahead = left < TILE_DEPTH ? (i32)left : TILE_DEPTH;\n"                                      \
    "            SHARED_POINTER u128 *to = tiles + fill;\n"
#define MATRIX_LOOP_END                                                                                                \
    "        }\n"                                                                                                      \
    "        COPY_GROUP;\n"                                                                                            \
    "        left -= TILE_DEPTH;\n"                                                                                    \
    "        fill = fill == (STAGES - 1) * (SIZE_A + SIZE_B) ? 0 : fill + SIZE_A + SIZE_B;\n"                          \
    "        if (step >= 0) {\n"                                                                                       \
    "            SHARED_POINTER const u128 *tile_a = tiles + fill, *tile_b = tiles + fill + SIZE_A;\n"                   \
    "#if EXACT\n"                                                                                                      \
    "            UNROLL\n"                                                                                             \
    "            for (i32 c = 0; c < DEPTH_CHUNKS; c++) {\n"                                                           \
    "                f32 x[LANE_ROWS * 4];\n"                                                                          \
    "                UNROLL\n"                                                                                         \
    "                for (i32 i = 0; i < LANE_ROWS; i++)\n"                                                            \
    "                    read_sums((SHARED_POINTER const f32 *)(tile_a + (from_a ^ c ^ SWIZZLE(i * ROW_LANES, 0)) + i * ROW_LANES * DEPTH_CHUNKS),\n"\
    "                              x + i * 4);\n"                                                                      \
    "                UNROLL\n"                                                                                         \
    "                for (i32 d = 0; d < 4; d++) {\n"                                                                  \
    "                    f32 y[LANE_COLUMNS];\n"                                                                       \
    "                    UNROLL\n"                                                                                     \
    "                    for (i32 j = 0; j < LANE_COLUMNS; j += 4)\n"                                                  \
    "                        read_sums((SHARED_POINTER const f32 *)(tile_b + (from_b ^ SWIZZLE(d, 1) ^ j / 4 * COLUMN_LANES) + (c * 4 + d) * CHUNKS_B),\n"\
    "                                  y + j);\n"                                                                      \
    "                    UNROLL\n"                                                                                     \
    "                    for (i32 i = 0; i < LANE_ROWS; i++) {\n"                                                      \
    "                        UNROLL\n"                                                                                 \
    "                        for (i32 j = 0; j < LANE_COLUMNS; j++)\n"                                                 \
    "                            sums[i * LANE_COLUMNS + j] = MULTIPLY_ADD(x[i * 4 + d], y[j], sums[i * LANE_COLUMNS + j]);\n"\
    "                    }\n"                                                                                          \
    "                }\n"                                                                                              \
    "            }\n"                                                                                                  \
    "#else\n"                                                                                                          \
    "            UNROLL\n"                                                                                             \
    "            for (i32 k = 0; k < TILE_DEPTH / MATRIX_DEPTH; k++) {\n"                                              \
    "                u32 fb[FRAGMENTS_B * 4];\n"                                                                       \
    "                UNROLL\n"                                                                                         \
    "                for (i32 j = 0; j < FRAGMENTS_B; j++)\n"                                                          \
    "                    LOAD_FRAGMENT(fb + j * 4, tile_b, from_b, B_OUTER, 1, CHUNKS_B, j, k);\n"                     \
    "                UNROLL\n"                                                                                         \
    "                for (i32 i = 0; i < FRAGMENTS_A; i++) {\n"                                                        \
    "                    u32 fa[4];\n"                                                                                 \
    "                    LOAD_FRAGMENT(fa, tile_a, from_a, A_OUTER, 0, CHUNKS_A, i, k);\n"                             \
    "                    UNROLL\n"                                                                                     \
    "                    for (i32 j = 0; j < FRAGMENTS_B * 2; j++)\n"                                                  \
    "                        MULTIPLY_MATRICES(sums + (i * FRAGMENTS_B * 2 + j) * 4, fa, fb[j * 2], fb[j * 2 + 1]);\n" \
    "                }\n"                                                                                              \
    "            }\n"                                                                                                  \
    "#endif\n"                                                                                                         \
    "        }\n"                                                                                                      \
    "    }\n"                                                                                                          \
    "    COPY_WAIT(0);\n"                                                                                              \
    "    BARRIER;\n"

/* The end, as PRODUCT_STORE's: sums go through shared memory, 16 rows of each warp at a time. */
#define MATRIX_STORE                                                                                                   \
    "#define STAGED_ROWS (TILE_ROWS / WARP_ROWS * 16)\n"                                                               \
    "#define STAGED_LINE (TILE_COLUMNS + 8)\n"                                                                         \
    "    SHARED_POINTER f32 *staged = (SHARED_POINTER f32 *)tiles;\n"                                                  \
    "    for (i32 pass = 0; pass < FRAGMENTS_A; pass++) {\n"                                                           \
    "        UNROLL\n"                                                                                                 \
    "        for (i32 i = 0; i < FRAGMENTS_A; i++) {\n"                                                                \
    "            if (i != pass) continue;\n"                                                                           \
    "#if EXACT\n"                                                                                                      \
    "            UNROLL\n"                                                                                             \
    "            for (i32 n = 0; n < LANE_ROWS / FRAGMENTS_A; n++) {\n"                                                \
    "                UNROLL\n"                                                                                         \
    "                for (i32 j = 0; j < LANE_COLUMNS; j += 4) {\n"                                                    \
    "                    const f32 *s = sums + (i * (LANE_ROWS / FRAGMENTS_A) + n) * LANE_COLUMNS + j;\n"              \
    "                    const i32 r = warp_row * 16 + n * ROW_LANES + lane_row, c = warp_column * WARP_COLUMNS + (j / 4 * COLUMN_LANES + lane_column) * 4;\n"\
    "                    u128 four;\n"                                                                                 \
    "                    four.x = BITS_f32(s[0]); four.y = BITS_f32(s[1]); four.z = BITS_f32(s[2]); four.w = BITS_f32(s[3]);\n"\
    "                    *(SHARED_POINTER u128 *)(staged + r * STAGED_LINE + c) = four;\n"                             \
    "                }\n"                                                                                              \
    "            }\n"                                                                                                  \
    "#else\n"                                                                                                          \
    "            UNROLL\n"                                                                                             \
    "            for (i32 j = 0; j < FRAGMENTS_B * 4; j++) {\n"                                                        \
    "                const f32 *s = sums + i * FRAGMENTS_B * 8 + j * 2;\n"                                             \
    "                const i32 r = warp_row * 16 + lane / 4 + j % 2 * 8, c = warp_column * WARP_COLUMNS + j / 2 * 8 + lane % 4 * 2;\n" \
    "                ((SHARED_POINTER u64 *)staged)[(r * STAGED_LINE + c) / 2] = (u64)BITS_f32(s[0]) | (u64)BITS_f32(s[1]) << 32;\n" \
    "            }\n"                                                                                                  \
    "#endif\n"                                                                                                         \
    "        }\n"                                                                                                      \
    "        BARRIER;\n"                                                                                               \
    "        for (i32 e = thread; e < STAGED_ROWS * (TILE_COLUMNS / PACK); e += THREADS) {\n"                          \
    "            const i32 line = e / (TILE_COLUMNS / PACK), first = e % (TILE_COLUMNS / PACK) * PACK;\n"              \
    "            const i64 r = (i64)row0 + (line / 16 * WARP_ROWS + pass * 16 + line % 16), c = (i64)column0 + first;\n"           \
    "            if (r >= rows || c >= columns) continue;\n"                                                           \
    PRODUCT_STORE_PACK("staged + line * STAGED_LINE + first")

/* A chunk's elements are neighbours, its lines `line_step` apart; outer_left, ahead: elements of the two axes that are
 * there from the tile's beginning on. */
const char product_matrix_matmul_text[] =
    MATRIX_FUNCTIONS
    TILE_AT
    "#define COPY_TILE(place, from, outer_step, depth_step, outer_first, line, chunk, lines, loads, outer_left, whole) \\\n"
    "            UNROLL \\\n"
    "            for (i32 p = 0; p < loads; p++) { \\\n"
    "                const i32 l = (line) + p * (lines), c = (chunk) * UNIT; \\\n"
    "                const i32 outer = (outer_first) ? chunk_left((outer_left) - c) : l < (outer_left) ? UNIT : 0; \\\n"
    "                const i32 depth = (outer_first) ? l < ahead ? UNIT : 0 : chunk_left(ahead - c); \\\n"
    "                const i32 count = outer < depth ? outer : depth; \\\n"
    "                GLOBAL const BITS *f = (from) + p * (lines) * ((outer_first) ? (depth_step) : (outer_step)); \\\n"
    "                if (!GATHER || (whole)) COPY_LATER(to, place, p * THREADS, f, count * (16 / UNIT)); \\\n"
    "                else to[(place) + p * THREADS] = gather(f, (outer_first) ? (outer_step) : (depth_step), count); \\\n"
    "            } \\\n"
    "            from += TILE_DEPTH * (depth_step)\n"
    "#define UNIT_DEPTH TILE_DEPTH\n"
    "#define LEFT i64\n"
    MATMUL_HEAD
    MATRIX_DECLARED
    MATMUL_PLACE
    "    i64 row_at0, column_at0;\n"
    "    tile_at(tile, (u32)row_tiles, (u32)column_tiles, &row_at0, &column_at0);\n"
    "    const u32 row0 = (u32)row_at0, column0 = (u32)column_at0;\n"
    MATRIX_THREAD
    "    const i32 rows_left = NEAR(rows - row0), columns_left = NEAR(columns - column0);\n"
    "    GLOBAL const BITS *chunks_a = a + ((i64)row0 + (A_OUTER ? chunk_a * UNIT : line_a)) * a_row +\n"
    "                                  (begin + (A_OUTER ? line_a : chunk_a * UNIT)) * a_depth;\n"
    "    GLOBAL const BITS *chunks_b = b + ((i64)column0 + (B_OUTER ? chunk_b * UNIT : line_b)) * b_column +\n"
    "                                  (begin + (B_OUTER ? line_b : chunk_b * UNIT)) * b_depth;\n"
    MATRIX_LOOP
    "            COPY_TILE(to_a, chunks_a, a_row, a_depth, A_OUTER, line_a, chunk_a, LINES_A, LOADS_A, rows_left, whole_a);\n"
    "            COPY_TILE(to_b, chunks_b, b_column, b_depth, B_OUTER, line_b, chunk_b, LINES_B, LOADS_B, columns_left, whole_b);\n"
    MATRIX_LOOP_END
    "#define OUT_AT(r) (out_at + (r) * out_row)\n"
    "    const i64 place0 = 0;\n"
    MATRIX_STORE
    "}\n";

/* Rows are fewer than 2^31 here. A thread's chunks of x have one depth and several rows. While no tap is left behind, a step
 * along the depth is one along the channels; a tap is inside of the picture or not for all channels of a chunk. */
const char product_matrix_conv_text[] =
    MATRIX_FUNCTIONS
    TILE_AT
    CONV_FUNCTIONS
    CONV_TAPS
    "#define LEFT i32\n"
    "FUNCTION void place_of(u32 block, u32 row_tiles, u32 column_tiles, u32 splits, u32 group, u32 *row, u32 *column, u32 *split,\n"
    "                       u32 *g, u32 *phase) {\n"
    "    const u32 part = block / (row_tiles * column_tiles);\n"
    "    i64 r, c;\n"
    "    tile_at(block % (row_tiles * column_tiles), row_tiles, column_tiles, &r, &c);\n"
    "    *row = (u32)r;\n"
    "    *column = (u32)c;\n"
    "    *split = part % splits;\n"
    "    *g = part / splits % group;\n"
    "    *phase = part / splits / group;\n"
    "}\n"
    CONV_HEAD
    "    BUFFER(VALUE, partial, partial_buffer);\n"
    MATRIX_DECLARED
    "    const i32 thread = (i32)THREAD, whole_out = (i32)flags & 4;\n"
    "    u32 block = (u32)BLOCK, split, g, part, row0, column0;\n"
    "    place_of(block, (u32)row_tiles, (u32)column_tiles, (u32)splits, (u32)group, &row0, &column0, &split, &g, &part);\n"
    CONV_AXES
    "    const u32 depth = (u32)x0->taps * (u32)x1->taps * (u32)x2->taps * (u32)inputs, unit = (u32)splits * TILE_DEPTH;\n"
    "    const u32 length = (depth + unit - 1) / unit * TILE_DEPTH;\n"
    "    const u32 begin = split * length, end = begin + length < depth ? begin + length : depth;\n"
    "    if (row0 >= rows) return;\n"
    "    b += g * w_group + column0 * w_output;\n"
    MATRIX_THREAD
    /* Rows of this thread; one that is not there lies far outside of the picture. */
    "    i32 p0[LOADS_A], p1[LOADS_A], p2[LOADS_A];\n"
    "    i64 place[LOADS_A];\n"
    "    UNROLL\n"
    "    for (i32 p = 0; p < LOADS_A; p++) {\n"
    "        const u32 r = row0 + (u32)(line_a + p * LINES_A);\n"
    "        u32 n = r < rows ? r : 0;\n"
    "        const u32 q2 = n % (u32)x2->count;\n"
    "        n /= (u32)x2->count;\n"
    "        const u32 q1 = n % (u32)x1->count;\n"
    "        n /= (u32)x1->count;\n"
    "        const u32 q0 = n % (u32)x0->count;\n"
    "        n /= (u32)x0->count;\n"
    "        p0[p] = r < rows ? position_at(x0, q0) : -(1 << 30);\n"
    "        p1[p] = position_at(x1, q1);\n"
    "        p2[p] = position_at(x2, q2);\n"
    "        place[p] = ((((i64)n * x0->extent + p0[p]) * x1->extent + p1[p]) * x2->extent + p2[p]) * channels_in + g * inputs;\n"
    "    }\n"
    "    const i32 depth_a = chunk_a * UNIT, count_b = chunk_left(NEAR(outputs - column0) - chunk_b * UNIT);\n"
    "    i32 moved = 1, inside = 0;\n"
    "    i64 reach = 0;\n" /* from a row's place to where the tap meets the input */
    "    Tap tap_a;\n"
    "    tap_a.t0 = tap_a.t1 = tap_a.t2 = tap_a.c = 0;\n"
    "#if TRANSPOSED\n"
    "    Tap tap_b[LOADS_B];\n"
    "    UNROLL\n"
    "    for (i32 p = 0; p < LOADS_B; p++) tap_b[p] = tap_a;\n"
    "#else\n"
    "    GLOBAL const BITS *chunks_b = b + (i64)(begin + line_b) * w_input + chunk_b * UNIT;\n"
    "#endif\n"
    "    if (left > 0) {\n"
    "        tap_a = tap_at(begin + depth_a, inputs, x1, x2);\n"
    "#if TRANSPOSED\n"
    "        UNROLL\n"
    "        for (i32 p = 0; p < LOADS_B; p++) tap_b[p] = tap_at(begin + line_b + p * LINES_B, inputs, x1, x2);\n"
    "#endif\n"
    "    }\n"
    MATRIX_LOOP
    "#if GATHER\n"
    "            const u32 done = end - left;\n"
    "            Tap tap = tap_at(done + depth_a, inputs, x1, x2);\n"
    "            u32 words[LOADS_A * 4];\n"
    "            UNROLL\n"
    "            for (i32 i = 0; i < LOADS_A * 4; i++) words[i] = 0;\n"
    "            UNROLL\n"
    "            for (i32 e = 0; e < UNIT; e++) {\n"
    "                const i32 i0 = tap.t0 * x0->tap_step, i1 = tap.t1 * x1->tap_step, i2 = tap.t2 * x2->tap_step;\n"
    "                const i64 at = (((i64)i0 * x1->extent + i1) * x2->extent + i2) * channels_in + tap.c;\n"
    "                UNROLL\n"
    "                for (i32 p = 0; p < LOADS_A; p++)\n"
    "                    if (depth_a + e < ahead && (u32)(p0[p] + i0) < (u32)x0->extent &&\n"
    "                        (u32)(p1[p] + i1) < (u32)x1->extent && (u32)(p2[p] + i2) < (u32)x2->extent)\n"
    "                        words[p * 4 + WORD_OF(e)] |= IN_WORD(READ(BITS, a + place[p] + at), e);\n"
    "                advance_tap(&tap, 1, (i32)inputs, x1, x2);\n"
    "            }\n"
    "            UNROLL\n"
    "            for (i32 p = 0; p < LOADS_A; p++) {\n"
    "                u128 chunk;\n"
    "                chunk.x = words[p * 4]; chunk.y = words[p * 4 + 1]; chunk.z = words[p * 4 + 2]; chunk.w = words[p * 4 + 3];\n"
    "                to[to_a + p * THREADS] = chunk;\n"
    "            }\n"
    "#else\n"
    "            if (moved) {\n"
    "                const i32 i0 = tap_a.t0 * x0->tap_step, i1 = tap_a.t1 * x1->tap_step, i2 = tap_a.t2 * x2->tap_step;\n"
    "                reach = (((i64)i0 * x1->extent + i1) * x2->extent + i2) * channels_in + tap_a.c;\n"
    "                inside = 0;\n"
    "                UNROLL\n"
    "                for (i32 p = 0; p < LOADS_A; p++)\n"
    "                    if ((u32)(p0[p] + i0) < (u32)x0->extent && (u32)(p1[p] + i1) < (u32)x1->extent &&\n"
    "                        (u32)(p2[p] + i2) < (u32)x2->extent) inside |= 1 << p;\n"
    "            }\n"
    "            const i32 there = depth_a < ahead ? inside : 0;\n"
    "            UNROLL\n"
    "            for (i32 p = 0; p < LOADS_A; p++)\n"
    "                COPY_LATER(to, to_a, p * THREADS, a + (place[p] + reach), (there >> p & 1) * 16);\n"
    "            moved = advance_tap(&tap_a, TILE_DEPTH, (i32)inputs, x1, x2);\n"
    "            reach += TILE_DEPTH;\n"
    "#endif\n"
    "            UNROLL\n"
    "            for (i32 p = 0; p < LOADS_B; p++) {\n"
    "                const i32 count = line_b + p * LINES_B < ahead ? count_b : 0;\n"
    "#if GATHER\n"
    "                const Tap tap = WEIGHT_TAP_AT(done + line_b + p * LINES_B);\n"
    "                to[to_b + p * THREADS] = gather(b + WEIGHT_AT(&tap) * w_tap + tap.c * w_input + chunk_b * UNIT * w_output,\n"
    "                                                w_output, count);\n"
    "#else\n"
    "#if TRANSPOSED\n"
    "                GLOBAL const BITS *from = b + WEIGHT_AT(&tap_b[p]) * w_tap + tap_b[p].c * w_input + chunk_b * UNIT;\n"
    "                ADVANCE_WEIGHT(&tap_b[p]);\n"
    "#else\n"
    "                GLOBAL const BITS *from = chunks_b + p * LINES_B * w_input;\n"
    "#endif\n"
    "                COPY_LATER(to, to_b, p * THREADS, from, count ? 16 : 0);\n" /* lines end with whole chunks */
    "#endif\n"
    "            }\n"
    "#if !TRANSPOSED\n"
    "            chunks_b += TILE_DEPTH * w_input;\n"
    "#endif\n"
    MATRIX_LOOP_END
    "#define OUT_AT(r) (out_row_at(r, x0, x1, x2, out0, out1, out2) * channels_out + place0)\n"
    "    FORGET(block);\n"
    "    place_of(block, (u32)row_tiles, (u32)column_tiles, (u32)splits, (u32)group, &row0, &column0, &split, &g, &part);\n"
    "    const i64 place0 = g * outputs, columns = outputs, out_column = 1;\n"
    "#undef SCALE\n"
    "#define SCALE(x, alpha) (x)\n"
    MATRIX_STORE
    "}\n";

/* clang-format on */

/* ---- which tile ---- */

bool product_on_matrix(const GpuLimits *limits, DType dtype) {
    return limits->matrix && (dtype == DT_F32 || dtype == DT_F16 || dtype == DT_BF16);
}

bool product_exact(const GpuLimits *limits, DType dtype) { return dtype == DT_F32 && !limits->tf32; }

/* A warp's part of 64 x 32 reads each element of shared memory for more products than one of 32 x 32. The time that a
 * multiprocessor takes for a tile is its area times `weight`. */
static const MatrixShape shapes[] = {
    [GPU_TILE_LARGE] = {128, 128, 64, 32, 2, 10},
    [GPU_TILE_MEDIUM] = {64, 64, 32, 32, 5, 13},
    [GPU_TILE_HALF] = {128, 64, 64, 32, 4, 11},
};

MatrixShape product_matrix_shape(GpuTile tile) { return shapes[tile]; }
int product_matrix_threads(const MatrixShape *s) {
    return 32 * (s->rows / s->warp_rows) * (s->columns / s->warp_columns);
}

/* A transposed convolution's blocks keep more in shared memory than large tiles leave; f32 as it is takes more registers. */
bool product_without_large(const GpuVariant *v) { return v->transposed || v->exact; }

/* The tile of which the multiprocessor that has most of them has the least work. */
GpuTile product_matrix_tile(const GpuLimits *limits, int64_t rows, int64_t columns, int64_t times, bool no_large) {
    static const GpuTile tiles[] = {GPU_TILE_LARGE, GPU_TILE_HALF, GPU_TILE_MEDIUM};
    GpuTile best = GPU_TILE_MEDIUM;
    int64_t least = INT64_MAX;
    for (size_t i = no_large; i < sizeof tiles / sizeof *tiles; i++) {
        const MatrixShape *s = &shapes[tiles[i]];
        int64_t blocks = ceil_div(rows, s->rows) * ceil_div(columns, s->columns) * times;
        int64_t work = ceil_div(blocks, limits->multiprocessors) * (s->rows * s->columns * s->weight);
        if (work >= least) continue;
        least = work;
        best = tiles[i];
    }
    return best;
}

int product_add_matrix_tiles(GpuVariant *variants, int count, const GpuVariant *variant) {
    static const GpuTile tiles[] = {GPU_TILE_LARGE, GPU_TILE_HALF, GPU_TILE_MEDIUM};
    GpuVariant v = *variant;
    v.gather = false;
    for (size_t i = product_without_large(&v); i < sizeof tiles / sizeof *tiles; i++) {
        v.tile = tiles[i];
        count = product_add_variant(variants, count, &v);
    }
    return count;
}
