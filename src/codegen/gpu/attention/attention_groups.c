/* SPDX-License-Identifier: Apache-2.0 */
/* The text of tiles for warpgroups (warpgroup.h), after Shah et al., "FlashAttention-3" (2024). A warpgroup has 64 rows.
 * While a tile's scores become weights, the values of the tile before are summed; keys and values of the next come in
 * meanwhile. Each has two places in shared memory, so that a tile takes one barrier: behind it all warpgroups are done
 * with the keys of the tile before and the values of the one before that. */
#include "codegen/gpu/attention/attention_parts.h"

/* clang-format off */

/* A tile of keys or values from t0 on; zeros outside. A thread has 16 bytes of every so manieth key, from `at` on, and the
 * result is where it goes on. Copies are under way until COPY_WAIT. PLACED: from one of the two places of a tile to the
 * other. */
static const char functions[] =
    "#define MOST_GROWTH 8\n"
    "#define PLACED(padded) (TILE_KEYS * ((padded) / 8))\n"
    "#define FIRST_LINE(from, row, padded) ((from) + (i64)(begin + thread / ((padded) / 8)) * (row) + thread % ((padded) / 8) * 8)\n"
    "FUNCTION GLOBAL const T *load_lines(SHARED_POINTER u128 *tile, i32 turn, GLOBAL const T *at, i32 t0, i32 count, i32 padded, i32 size,\n"
    "                                    i64 row, i32 thread COPIES_ARG) {\n"
    "    i32 c = thread % (padded / 8), r = thread / (padded / 8), step = THREADS / (padded / 8);\n"
    "    i32 to = SWIZZLED(TILE_KEYS, r, c) + turn * PLACED(padded);\n"
    "    if (t0 + TILE_KEYS <= count) {\n"
    "        UNROLL\n"
    "        for (i32 i = 0; i < TILE_KEYS; i += step) COPY_LATER(tile, to, i * 8, at + i * row, c * 8 < size ? 16 : 0);\n"
    "    } else {\n"
    "        ROLLED\n"
    "        for (i32 i = 0; i < TILE_KEYS; i += step)\n"
    "            COPY_LATER(tile, to, i * 8, at + i * row, t0 + r + i < count && c * 8 < size ? 16 : 0);\n"
    "    }\n"
    "    return at + TILE_KEYS * row;\n"
    "}\n"
    "FUNCTION void load_query_lines(SHARED_POINTER u128 *tile, GLOBAL const T *from, SHARED_POINTER const i32 *heads,\n"
    "                               SHARED_POINTER const i32 *positions, i32 size, i64 head, i64 row, i32 thread COPIES_ARG) {\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < TILE_ROWS * (SIZE / 8); i += THREADS) {\n"
    "        i32 r = (i + thread) / (SIZE / 8), c = thread % (SIZE / 8);\n"
    "        GLOBAL const T *at = from + heads[r] * head + positions[r] * row + c * 8;\n"
    "        COPY_LATER(tile, SWIZZLED(TILE_ROWS, r, c), 0, at, c * 8 < size ? 16 : 0);\n"
    "    }\n"
    "}\n"
    "#define SUM_VALUES(turn) \\\n"
    "    UNROLL for (i32 j = 0; j < TILE_KEYS / 16; j++) \\\n"
    "        GROUP_TIMES_TURNED(WIDTH, acc[0], held[j], value_place + (turn) * PLACED(WIDTH), TILE_KEYS, j); \\\n"
    "    GROUP_END;\n"
    "#define END_TILE \\\n"
    "    GROUP_WAIT(0); \\\n"
    "    GROUP_HELD(WIDTH, acc[0]); \\\n"
    "    if (less[0][0] != 1 || less[0][1] != 1) { LESSEN(acc, less) } \\\n"
    "    UNROLL for (i32 j = 0; j < TILE_KEYS / 16; j++) { PACK_WEIGHTS(held[j], s[0], j * 2) }\n";

/* Up to the steps. */
static const char scores[] =
    "    i32 l = thread % 32, warp = thread / 32 * 16, turn = 0;\n"
    "    SHARED_POINTER u128 *query_lines = GROUP_ALIGNED(query_tile);\n"
    "    SHARED_POINTER u128 *key_tile = query_lines + TILE_ROWS * (SIZE / 8);\n"
    "    SHARED_POINTER u128 *value_tile = key_tile + 2 * PLACED(SIZE);\n"
    "    GROUP_PLACE query_place = GROUP_PLACE_OF(query_lines, TILE_ROWS) + warp / 64 * 64 * 8;\n"
    "    GROUP_PLACE key_place = GROUP_PLACE_OF(key_tile, TILE_KEYS), value_place = GROUP_PLACE_OF(value_tile, TILE_KEYS);\n"
    "    GLOBAL const T *key_at = FIRST_LINE(k, k_row, SIZE), *value_at = FIRST_LINE(v, v_row, WIDTH);\n"
    "    if (begin < end) {\n"
    "        load_query_lines(query_lines, q + kv_head * group * q_head, heads, positions, OWN_SIZE, q_head, q_row,\n"
    "                         thread COPIES);\n"
    "        key_at = load_lines(key_tile, 0, key_at, begin, count, SIZE, OWN_SIZE, k_row, thread COPIES);\n"
    "        COPY_GROUP;\n"
    "    }\n"
    "    f32 top[BANDS][2], sum[BANDS][2], acc[BANDS][WIDTH / 8][4];\n"
    /* The weights of the tile before, and by how much what was summed before them is less. Before the first one, zeros
     * for values of zero, for products must not depend on branches. */
    "    u32 held[TILE_KEYS / 16][4];\n"
    "    f32 s[BANDS][TILE_KEYS / 8][4], less[BANDS][2];\n"
    "    UNROLL\n"
    "    for (i32 j = 0; j < TILE_KEYS / 16; j++) held[j][0] = held[j][1] = held[j][2] = held[j][3] = 0;\n"
    "    for (i32 i = thread; i < TILE_KEYS * (WIDTH / 8); i += THREADS) {\n"
    "        u128 zeros; zeros.x = zeros.y = zeros.z = zeros.w = 0;\n"
    "        value_tile[PLACED(WIDTH) + i] = zeros;\n"
    "    }\n"
    "    top[0][0] = top[0][1] = -INFINITY_f32; sum[0][0] = sum[0][1] = 0;\n"
    "    UNROLL\n"
    "    for (i32 n = 0; n < WIDTH / 8; n++) acc[0][n][0] = acc[0][n][1] = acc[0][n][2] = acc[0][n][3] = 0;\n"
    "    if (begin < end) for (i32 t0 = begin;;) {\n"
    "        COPY_WAIT(0);\n"
    "        GROUP_SEES;\n"
    "        BARRIER;\n"
    "        if (t0 + TILE_KEYS < end)\n"
    "            key_at = load_lines(key_tile, turn ^ 1, key_at, t0 + TILE_KEYS, count, SIZE, OWN_SIZE, k_row, thread COPIES);\n"
    "        value_at = load_lines(value_tile, turn, value_at, t0, count, WIDTH, OWN_WIDTH, v_row, thread COPIES);\n"
    "        COPY_GROUP;\n"
    "        GROUP_BEGIN;\n"
    "        UNROLL\n"
    "        for (i32 c = 0; c < SIZE / 16; c++)\n"
    "            GROUP_TIMES_ROWS(TILE_KEYS, s[0], query_place, TILE_ROWS, key_place + turn * PLACED(SIZE), TILE_KEYS, c, c > 0);\n"
    "        GROUP_END;\n"
    "        SUM_VALUES(turn ^ 1)\n"
    "        GROUP_WAIT(1);\n"
    "        GROUP_HELD(TILE_KEYS, s[0]);\n";

/* A maximum that grows by less than what 16-bit floats bear as weights is left as it is, for then nothing must be made
 * less. */
static const char weights[] =
    "        UNROLL\n"
    "        for (i32 of = 0; of < 2; of++) {\n"
    "            f32 most = -INFINITY_f32;\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < TILE_KEYS / 8; j++) most = max_f32(max_f32(most, s[0][j][of * 2]), s[0][j][of * 2 + 1]);\n"
    "            most = max_f32(most, SHUFFLE_XOR_f32(most, 1, EXCHANGE));\n"
    "            most = max_f32(most, SHUFFLE_XOR_f32(most, 2, EXCHANGE));\n"
    "            bool grows = (most - top[0][of]) * LOG2 > MOST_GROWTH;\n"
    "            f32 before = top[0][of] * LOG2;\n"
    "            top[0][of] = grows ? most : top[0][of];\n"
    "            f32 finite = top[0][of] == -INFINITY_f32 ? 0 : top[0][of] * LOG2;\n"
    "            less[0][of] = grows ? exp2_f32(before - finite) : 1;\n"
    "            sum[0][of] *= less[0][of];\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < TILE_KEYS / 8; j++)\n"
    "                UNROLL\n"
    "                for (i32 e = of * 2; e < of * 2 + 2; e++) {\n"
    "                    s[0][j][e] = exp2_f32(fma_f32(s[0][j][e], LOG2, -finite));\n"
    "                    sum[0][of] += s[0][j][e];\n"
    "                }\n"
    "        }\n";

/* The products are waited for behind a branch: within one block the compiler would wait before it makes the weights. */
static const char values[] =
    "        t0 += TILE_KEYS;\n"
    "        turn ^= 1;\n"
    "        if (t0 >= end) break;\n"
    "        END_TILE\n"
    "    }\n"
    "    if (begin < end) { END_TILE }\n"
    "    COPY_WAIT(0);\n"
    "    GROUP_SEES;\n"
    "    BARRIER;\n"
    "    GROUP_BEGIN;\n"
    "    SUM_VALUES(turn ^ 1)\n"
    "    GROUP_WAIT(0);\n"
    "    GROUP_HELD(WIDTH, acc[0]);\n";

/* clang-format on */

AttentionParts attention_groups_parts(void) {
    AttentionParts parts = attention_matrix_parts; /* a lane has the same rows and columns of its warp's */
    parts.words = functions;
    parts.scores = scores;
    parts.weights = weights;
    parts.values = values;
    return parts;
}
