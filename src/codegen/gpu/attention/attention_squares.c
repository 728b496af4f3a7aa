/* SPDX-License-Identifier: Apache-2.0 */
/* The text of the long tile in f32 on plain cores: a thread has 8 rows and 8 keys (or 4) of the scores, then 8 rows and 8
 * columns of the weighted values, so that 16 loads from shared memory serve 256 multiplications. Values come in while
 * scores are computed, the next keys while values are weighted (COPY_LATER of matrix.h).
 *
 * Shared memory is counted in quads, 16 bytes. Quad c of row r of queries, keys and weights stands at c ^ r % 8 of the row:
 * threads of a warp that read the same quad of different rows find it in different banks. Quad c of a row of weights has
 * those of the thread x = c % ACROSS: of keys x + (c / ACROSS * 4 + e) * ACROSS. */
#include "codegen/gpu/attention/attention_parts.h"

/* clang-format off */

/* A thread copies quads of the same column; `at`: of its first row. */
static const char functions[] =
    "#define QUAD(row, c, quads) ((row) * (quads) + ((c) ^ (row) % 8))\n"
    "FUNCTION GLOBAL const T *load_rows(SHARED_POINTER u128 *tile, GLOBAL const T *at, i32 t0, i32 count, i32 height, i32 quads, i32 size,\n"
    "                                   i64 row, bool turned, i32 thread COPIES_ARG) {\n"
    "    i32 t = thread / quads, c = thread % quads, step = THREADS / quads;\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < height; i += step) {\n"
    "        i32 to = turned ? QUAD(t + i, c, quads) : (t + i) * quads + c;\n"
    "        COPY_LATER(tile, to, 0, at, t0 + t + i < count && c * 4 < size ? 16 : 0);\n"
    "        at += step * row;\n"
    "    }\n"
    "    return at;\n"
    "}\n";

static const char scores[] =
    "    i32 x = thread % ACROSS, y = thread / ACROSS;\n"
    "    SHARED_POINTER u128 *key_tile = query_tile + TILE_ROWS * (SIZE / 4), *value_tile = key_tile + TILE_KEYS * (SIZE / 4);\n"
    "    SHARED_POINTER u128 *weight_tile = value_tile + TILE_KEYS * (WIDTH / 4);\n"
    "    GLOBAL const T *key_at = k + (i64)(begin + thread / (SIZE / 4)) * k_row + thread % (SIZE / 4) * 4;\n"
    "    GLOBAL const T *value_at = v + (i64)(begin + thread / (WIDTH / 4)) * v_row + thread % (WIDTH / 4) * 4;\n"
    "    if (begin < end) {\n"
    "        GLOBAL const T *query = q + kv_head * group * q_head + thread % (SIZE / 4) * 4;\n"
    "        for (i32 r = thread / (SIZE / 4); r < TILE_ROWS; r += THREADS / (SIZE / 4))\n"
    "            COPY_LATER(query_tile, QUAD(r, thread % (SIZE / 4), SIZE / 4), 0, query + heads[r] * q_head + positions[r] * q_row,\n"
    "                       thread % (SIZE / 4) * 4 < OWN_SIZE ? 16 : 0);\n"
    "        key_at = load_rows(key_tile, key_at, begin, count, TILE_KEYS, SIZE / 4, OWN_SIZE, k_row, 1, thread COPIES);\n"
    "        COPY_GROUP;\n"
    "    }\n"
    "    f32 top[ROWS], sum[ROWS], acc[ROWS][WIDTH / ACROSS];\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < ROWS; i++) {\n"
    "        top[i] = -INFINITY_f32; sum[i] = 0;\n"
    "        UNROLL\n"
    "        for (i32 j = 0; j < WIDTH / ACROSS; j++) acc[i][j] = 0;\n"
    "    }\n"
    "    for (i32 t0 = begin; t0 < end; t0 += TILE_KEYS) {\n"
    "        f32 s[ROWS][TILE_KEYS / ACROSS];\n"
    "        COPY_WAIT(0);\n"
    "        BARRIER;\n" /* the keys are there, the values and weights before are done with */
    "        value_at = load_rows(value_tile, value_at, t0, count, TILE_KEYS, WIDTH / 4, OWN_WIDTH, v_row, 0, thread COPIES);\n"
    "        COPY_GROUP;\n"
    "        UNROLL\n"
    "        for (i32 i = 0; i < ROWS; i++)\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < TILE_KEYS / ACROSS; j++) s[i][j] = 0;\n"
    "        UNROLL_4\n"
    "        for (i32 c = 0; c < SIZE / 4; c++) {\n"
    "            SHARED_POINTER const u128 *of_keys = key_tile + x * (SIZE / 4) + (c ^ x % 8);\n"
    "            SHARED_POINTER const u128 *of_queries = query_tile + y * (SIZE / 4) + (c ^ y % 8);\n"
    "            u128 b[TILE_KEYS / ACROSS];\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < TILE_KEYS / ACROSS; j++) b[j] = of_keys[j * ACROSS * (SIZE / 4)];\n"
    "            UNROLL\n"
    "            for (i32 i = 0; i < ROWS; i++) {\n"
    "                u128 a = of_queries[i * DOWN * (SIZE / 4)];\n"
    "                UNROLL\n"
    "                for (i32 e = 0; e < 4; e++)\n"
    "                    UNROLL\n"
    "                    for (i32 j = 0; j < TILE_KEYS / ACROSS; j++) s[i][j] = fma_f32(lane(a, e), lane(b[j], e), s[i][j]);\n"
    "            }\n"
    "        }\n";

static const char values[] =
    "        UNROLL\n"
    "        for (i32 i = 0; i < ROWS; i++) {\n"
    "            f32 most = top[i];\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < TILE_KEYS / ACROSS; j++) most = max_f32(most, s[i][j]);\n"
    "            UNROLL\n"
    "            for (i32 m = 1; m < ACROSS; m *= 2) most = max_f32(most, SHUFFLE_XOR_f32(most, m, EXCHANGE));\n"
    "            f32 finite = most == -INFINITY_f32 ? 0 : most * LOG2, factor = exp2_f32(fma_f32(top[i], LOG2, -finite));\n"
    "            top[i] = most;\n"
    "            sum[i] *= factor;\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < WIDTH / ACROSS; j++) acc[i][j] *= factor;\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < TILE_KEYS / ACROSS; j++) {\n"
    "                s[i][j] = exp2_f32(fma_f32(s[i][j], LOG2, -finite));\n"
    "                sum[i] += s[i][j];\n"
    "            }\n"
    "            UNROLL\n"
    "            for (i32 h = 0; h < TILE_KEYS / ACROSS / 4; h++) {\n"
    "                u128 p;\n"
    "                p.x = BITS_f32(s[i][h * 4]); p.y = BITS_f32(s[i][h * 4 + 1]);\n"
    "                p.z = BITS_f32(s[i][h * 4 + 2]); p.w = BITS_f32(s[i][h * 4 + 3]);\n"
    "                weight_tile[(y + i * DOWN) * (TILE_KEYS / 4) + ((x + h * ACROSS) ^ y % 8)] = p;\n"
    "            }\n"
    "        }\n"
    "        COPY_WAIT(0);\n"
    "        BARRIER;\n" /* the values and weights are there, the keys are done with */
    "        if (t0 + TILE_KEYS < end) {\n"
    "            key_at = load_rows(key_tile, key_at, t0 + TILE_KEYS, count, TILE_KEYS, SIZE / 4, OWN_SIZE, k_row, 1, thread COPIES);\n"
    "            COPY_GROUP;\n"
    "        }\n"
    "        UNROLL_4\n"
    "        for (i32 c = 0; c < TILE_KEYS / 4; c++) {\n"
    "            SHARED_POINTER const u128 *of_values = value_tile + (c % ACROSS + c / ACROSS * 4 * ACROSS) * (WIDTH / 4) + x;\n"
    "            SHARED_POINTER const u128 *of_weights = weight_tile + y * (TILE_KEYS / 4) + (c ^ y % 8);\n"
    "            u128 b[4][WIDTH / ACROSS / 4];\n"
    "            UNROLL\n"
    "            for (i32 e = 0; e < 4; e++)\n"
    "                UNROLL\n"
    "                for (i32 w = 0; w < WIDTH / ACROSS / 4; w++) b[e][w] = of_values[e * ACROSS * (WIDTH / 4) + w * ACROSS];\n"
    "            UNROLL\n"
    "            for (i32 i = 0; i < ROWS; i++) {\n"
    "                u128 p = of_weights[i * DOWN * (TILE_KEYS / 4)];\n"
    "                UNROLL\n"
    "                for (i32 e = 0; e < 4; e++)\n"
    "                    UNROLL\n"
    "                    for (i32 j = 0; j < WIDTH / ACROSS; j++) acc[i][j] = fma_f32(lane(p, e), lane(b[e][j / 4], j % 4), acc[i][j]);\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "    BARRIER;\n" /* the places are there, also where no key is */
    "    UNROLL\n"
    "    for (i32 i = 0; i < ROWS; i++) {\n"
    "        f32 whole = sum[i], most = top[i] * SCORE_SCALE;\n"
    "        UNROLL\n"
    "        for (i32 m = 1; m < ACROSS; m *= 2) whole += SHUFFLE_XOR_f32(whole, m, EXCHANGE);\n"
    "        i64 place = places[y + i * DOWN];\n"
    "        if (place >= 0) {\n"
    "            f32 inverse = inverse_of(most, whole, keys);\n"
    "            if (splits > 1 && x == 0) { WRITE(f32, scratch + place, most); WRITE(f32, scratch + place + 1, whole); }\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < WIDTH / ACROSS; j++) {\n"
    "                i32 column = (x + j / 4 * ACROSS) * 4 + j % 4;\n"
    "                if (column < OWN_WIDTH && splits > 1) WRITE(f32, scratch + place + 2 + column, acc[i][j]);\n"
    "                else if (column < OWN_WIDTH) STORE(out + place + column * out_column, result_of(acc[i][j], inverse));\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "}\n";

const AttentionParts attention_squares_parts = {
    .words = functions,
    .memory = "    SHARED_GIVEN(query_tile);\n"
              "    SHARED i64 places[TILE_ROWS];\n"
              "    MATRIX_MEMORY\n",
    .places = attention_places,
    .scores = scores,
    .rows = "        UNROLL\n"
            "        for (i32 i = 0; i < ROWS; i++) {\n"
            "            i32 own = t0 + x;\n",
    .keys = "            UNROLL\n"
            "            for (i32 j = 0; j < TILE_KEYS / ACROSS; j++) {\n"
            "                f32 score = s[i][j];\n",
    .at = "j * ACROSS",
    .end = "                s[i][j] = score;\n"
           "            }\n"
           "        }\n",
    .values = values,
};

/* clang-format on */
