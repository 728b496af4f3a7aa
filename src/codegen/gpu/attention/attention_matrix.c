/* SPDX-License-Identifier: Apache-2.0 */
/* The text of the long and the tall tile on matrix units (matrix.h), after Dao, "FlashAttention-2" (2023). A warp has
 * BANDS times 16 rows: scores leave the first product in the layout in which the second takes its weights, so neither leaves
 * registers; weights are rounded to 16 bits for it. Values come in while scores are computed, the next keys while values
 * are weighted. Scores are kept as they are where only their size matters to the steps: then the scale is part of what
 * weights are 2 to the power of.
 *
 * Rows of the tiles in shared memory are 16 bytes longer than their data, so that 8 of them, as one matrix takes, lie in
 * different banks. */
#include "codegen/gpu/attention/attention_parts.h"

/* clang-format off */

/* A tile of keys or values from t0 on; zeros outside. By rows a thread has 16 bytes of every so manieth key, from `at` on,
 * and the result is where it goes on. Copies are under way until COPY_WAIT. The slow way stays short, for it is in the
 * main loop. LESSEN: what is summed, by each row's factor. LINE: chunks of 16 bytes from a row of a tile to the next. */
static const char functions[] =
    "#define LESSEN(acc, factor) \\\n"
    "    UNROLL for (i32 m = 0; m < BANDS; m++) UNROLL for (i32 n = 0; n < WIDTH / 8; n++) \\\n"
    "        UNROLL for (i32 e = 0; e < 4; e++) acc[m][n][e] *= factor[m][e / 2];\n"
    "#define PACK_WEIGHTS(a, s, j) \\\n"
    "    a[0] = PACK(s[j][0], s[j][1]); a[1] = PACK(s[j][2], s[j][3]); \\\n"
    "    a[2] = PACK(s[j + 1][0], s[j + 1][1]); a[3] = PACK(s[j + 1][2], s[j + 1][3]);\n"
    "#define LINE(padded) ((padded) / 8 + 1)\n"
    "#define BY_ROWS(padded) (THREADS % ((padded) / 8) == 0)\n"
    "#define FIRST_OF(from, t0, padded, row) ((from) + (i64)((t0) + thread / ((padded) / 8)) * (row) + thread % ((padded) / 8) * 8)\n"
    "FUNCTION GLOBAL const T *load_tile(SHARED_POINTER u128 *tile, GLOBAL const T *from, GLOBAL const T *at, i32 t0, i32 count,\n"
    "                                   i32 keys, i32 padded, i32 size, i64 row, i64 column, i32 mode, i32 thread COPIES_ARG) {\n"
    "    if (mode == MODE_WIDE && BY_ROWS(padded)) {\n"
    "        i32 t = thread / (padded / 8), c = thread % (padded / 8), step = THREADS / (padded / 8);\n"
    "        i32 to = t * LINE(padded) + c;\n"
    "        if (t0 + keys <= count) {\n"
    "            UNROLL\n"
    "            for (i32 i = 0; i < keys; i += step) { COPY_LATER(tile, to, i * LINE(padded), at, c * 8 < size ? 16 : 0); at += step * row; }\n"
    "        } else {\n"
    "            ROLLED\n"
    "            for (i32 i = 0; i < keys; i += step) {\n"
    "                COPY_LATER(tile, to, i * LINE(padded), at, t0 + t + i < count && c * 8 < size ? 16 : 0);\n"
    "                at += step * row;\n"
    "            }\n"
    "        }\n"
    "    } else if (mode == MODE_WIDE) {\n"
    "        for (i32 i = thread; i < keys * (padded / 8); i += THREADS) {\n"
    "            i32 t = i / (padded / 8), c = i % (padded / 8);\n"
    "            i32 bytes = t0 + t < count && c * 8 < size ? 16 : 0;\n"
    "            COPY_LATER(tile, t * LINE(padded) + c, 0, from + (i64)(t0 + t) * row + c * 8, bytes);\n"
    "        }\n"
    "    } else {\n"
    "        ROLLED\n"
    "        for (i32 i = thread; i < keys * padded; i += THREADS) {\n"
    "            i32 t = mode == MODE_KEYS ? i % keys : i / padded;\n"
    "            i32 c = mode == MODE_KEYS ? i / keys : i % padded;\n"
    "            u16 x = 0;\n"
    "            if (t0 + t < count && c < size) x = READ(u16, from + (i64)(t0 + t) * row + c * column);\n"
    "            ((SHARED_POINTER u16 *)tile)[t * (padded + 8) + c] = x;\n"
    "        }\n"
    "    }\n"
    "    return at;\n"
    "}\n"
    /* All rows of the tile; of those behind the last one nothing is kept. */
    "FUNCTION void load_queries(SHARED_POINTER u128 *tile, GLOBAL const T *from, SHARED_POINTER const i32 *heads,\n"
    "                           SHARED_POINTER const i32 *positions, i32 height, i32 size, i64 head, i64 row, i64 column,\n"
    "                           i32 mode, i32 thread COPIES_ARG) {\n"
    "    if (mode == MODE_WIDE) {\n"
    "        for (i32 i = thread; i < height * (SIZE / 8); i += THREADS) {\n"
    "            i32 r = i / (SIZE / 8), c = i % (SIZE / 8);\n"
    "            GLOBAL const T *at = from + heads[r] * head + positions[r] * row;\n"
    "            COPY_LATER(tile, r * LINE(SIZE) + c, 0, at + c * 8, c * 8 < size ? 16 : 0);\n"
    "        }\n"
    "    } else {\n"
    "        ROLLED\n"
    "        for (i32 i = thread; i < height * SIZE; i += THREADS) {\n"
    "            i32 r = i / SIZE, c = i % SIZE;\n"
    "            u16 x = 0;\n"
    "            if (c < size) x = READ(u16, from + heads[r] * head + positions[r] * row + c * column);\n"
    "            ((SHARED_POINTER u16 *)tile)[r * (SIZE + 8) + c] = x;\n"
    "        }\n"
    "    }\n"
    "}\n"
    /* Two neighbours of a row of the result. */
    "FUNCTION void store_pair(GLOBAL T *to, f32 x, f32 y) { WRITE(u32, to, PACK(x, y)); }\n";

const char attention_places[] =
    "    for (i32 r = thread; r < TILE_ROWS; r += THREADS) {\n"
    "        i64 place = (kv_head * group + heads[r]) * out_head + positions[r] * out_row + b0 * out_lead0 + b1 * out_lead1;\n"
    "        i64 part = (((i64)head * rows + row0 + r) * splits + split) * (OWN_WIDTH + 2);\n"
    "        places[r] = row0 + r >= rows ? -1 : splits > 1 ? part : place;\n"
    "    }\n";

/* Up to the steps. */
static const char scores[] =
    "    i32 l = thread % 32, warp = thread / 32 * 16 * BANDS;\n"
    "    SHARED_POINTER u128 *key_tile = query_tile + TILE_ROWS * LINE(SIZE);\n"
    "    SHARED_POINTER u128 *value_tile = key_tile + TILE_KEYS * LINE(SIZE);\n"
    "    i32 query_from = (warp + l % 16) * LINE(SIZE) + l / 16;\n"
    "    i32 key_from = (l % 8 + l / 16 * 8) * LINE(SIZE) + l / 8 % 2;\n"
    "    i32 value_from = l % 16 * LINE(WIDTH) + l / 16;\n"
    "    GLOBAL const T *key_at = FIRST_OF(k, begin, SIZE, k_row), *value_at = FIRST_OF(v, begin, WIDTH, v_row);\n"
    "    if (begin < end) {\n"
    "        load_queries(query_tile, q + kv_head * group * q_head, heads, positions, TILE_ROWS, OWN_SIZE, q_head,\n"
    "                     q_row, q_column, MODE_OF(q_mode), thread COPIES);\n"
    "        key_at = load_tile(key_tile, k, key_at, begin, count, TILE_KEYS, SIZE, OWN_SIZE, k_row, k_column, MODE_OF(k_mode), thread COPIES);\n"
    "        COPY_GROUP;\n"
    "    }\n"
    "    f32 top[BANDS][2], sum[BANDS][2], acc[BANDS][WIDTH / 8][4];\n"
    "#if QUERIES_HELD\n"
    "    u32 held[BANDS][SIZE / 16][4];\n"
    "    COPY_WAIT(0);\n"
    "    BARRIER;\n"
    "    UNROLL\n"
    "    for (i32 m = 0; m < BANDS; m++)\n"
    "        UNROLL\n"
    "        for (i32 c = 0; c < SIZE / 16; c++) LOAD_MATRICES(held[m][c], query_tile, query_from, m * 16 * LINE(SIZE) + c * 2);\n"
    "#endif\n"
    "    UNROLL\n"
    "    for (i32 m = 0; m < BANDS; m++) {\n"
    "        top[m][0] = top[m][1] = -INFINITY_f32; sum[m][0] = sum[m][1] = 0;\n"
    "        UNROLL\n"
    "        for (i32 n = 0; n < WIDTH / 8; n++) acc[m][n][0] = acc[m][n][1] = acc[m][n][2] = acc[m][n][3] = 0;\n"
    "    }\n"
    "    for (i32 t0 = begin; t0 < end; t0 += TILE_KEYS) {\n"
    "        f32 s[BANDS][TILE_KEYS / 8][4];\n"
    "        COPY_WAIT(0);\n"
    "        BARRIER;\n" /* the keys are there, the values before are done with */
    "        value_at = load_tile(value_tile, v, value_at, t0, count, TILE_KEYS, WIDTH, OWN_WIDTH, v_row, v_column, MODE_OF(v_mode), thread COPIES);\n"
    "        COPY_GROUP;\n"
    "        UNROLL\n"
    "        for (i32 m = 0; m < BANDS; m++)\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < TILE_KEYS / 8; j++) s[m][j][0] = s[m][j][1] = s[m][j][2] = s[m][j][3] = 0;\n"
    "        UNROLL\n"
    "        for (i32 c = 0; c < SIZE / 16; c++) {\n"
    "#if QUERIES_HELD\n"
    "#define QUERIES(m) held[m][c]\n"
    "#else\n"
    "            u32 a[BANDS][4];\n"
    "            UNROLL\n"
    "            for (i32 m = 0; m < BANDS; m++) LOAD_MATRICES(a[m], query_tile, query_from, m * 16 * LINE(SIZE) + c * 2);\n"
    "#define QUERIES(m) a[m]\n"
    "#endif\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < TILE_KEYS / 8; j += 2) {\n"
    "                u32 b[4];\n"
    "                LOAD_MATRICES(b, key_tile, key_from, j * 8 * LINE(SIZE) + c * 2);\n"
    "                UNROLL\n"
    "                for (i32 m = 0; m < BANDS; m++) {\n"
    "                    MULTIPLY_MATRICES(s[m][j], QUERIES(m), b[0], b[1]);\n"
    "                    MULTIPLY_MATRICES(s[m][j + 1], QUERIES(m), b[2], b[3]);\n"
    "                }\n"
    "            }\n"
    "        }\n"
    "#undef QUERIES\n"
    "        COPY_WAIT(0);\n"
    "        BARRIER;\n" /* the values are there, the keys are done with */
    "        if (t0 + TILE_KEYS < end) {\n"
    "            key_at = load_tile(key_tile, k, key_at, t0 + TILE_KEYS, count, TILE_KEYS, SIZE, OWN_SIZE, k_row, k_column, MODE_OF(k_mode), thread COPIES);\n"
    "            COPY_GROUP;\n"
    "        }\n";

/* Behind the steps: weights, and by how much what is summed so far is less now; LOG2: what a score is multiplied by for
 * powers of two. */
static const char weights[] =
    "        f32 factor[BANDS][2];\n"
    "        UNROLL\n"
    "        for (i32 m = 0; m < BANDS; m++)\n"
    "            UNROLL\n"
    "            for (i32 of = 0; of < 2; of++) {\n"
    "                f32 most = top[m][of];\n"
    "                UNROLL\n"
    "                for (i32 j = 0; j < TILE_KEYS / 8; j++)\n"
    "                    most = max_f32(max_f32(most, s[m][j][of * 2]), s[m][j][of * 2 + 1]);\n"
    "                most = max_f32(most, SHUFFLE_XOR_f32(most, 1, EXCHANGE));\n"
    "                most = max_f32(most, SHUFFLE_XOR_f32(most, 2, EXCHANGE));\n"
    "                f32 finite = most == -INFINITY_f32 ? 0 : most * LOG2;\n"
    "                factor[m][of] = exp2_f32(fma_f32(top[m][of], LOG2, -finite));\n"
    "                top[m][of] = most;\n"
    "                sum[m][of] *= factor[m][of];\n"
    "                UNROLL\n"
    "                for (i32 j = 0; j < TILE_KEYS / 8; j++)\n"
    "                    UNROLL\n"
    "                    for (i32 e = of * 2; e < of * 2 + 2; e++) {\n"
    "                        s[m][j][e] = exp2_f32(fma_f32(s[m][j][e], LOG2, -finite));\n"
    "                        sum[m][of] += s[m][j][e];\n"
    "                    }\n"
    "            }\n";

static const char values[] =
    "        LESSEN(acc, factor)\n"
    "        UNROLL\n"
    "        for (i32 j = 0; j < TILE_KEYS / 8; j += 2) {\n"
    "            u32 a[BANDS][4];\n"
    "            UNROLL\n"
    "            for (i32 m = 0; m < BANDS; m++) {\n"
    "                PACK_WEIGHTS(a[m], s[m], j)\n"
    "            }\n"
    "            UNROLL\n"
    "            for (i32 n = 0; n < WIDTH / 8; n += 2) {\n"
    "                u32 b[4];\n"
    "                LOAD_TURNED(b, value_tile, value_from, j * 8 * LINE(WIDTH) + n);\n"
    "                UNROLL\n"
    "                for (i32 m = 0; m < BANDS; m++) {\n"
    "                    MULTIPLY_MATRICES(acc[m][n], a[m], b[0], b[1]);\n"
    "                    MULTIPLY_MATRICES(acc[m][n + 1], a[m], b[2], b[3]);\n"
    "                }\n"
    "            }\n"
    "        }\n"
    "    }\n";

/* Behind the keys. */
static const char result[] =
    "    BARRIER;\n" /* the places are there, also where no key is */
    "    UNROLL\n"
    "    for (i32 m = 0; m < BANDS; m++)\n"
    "        UNROLL\n"
    "        for (i32 of = 0; of < 2; of++) {\n"
    "            f32 whole = sum[m][of], most = top[m][of] * SCORE_SCALE;\n"
    "            whole += SHUFFLE_XOR_f32(whole, 1, EXCHANGE);\n"
    "            whole += SHUFFLE_XOR_f32(whole, 2, EXCHANGE);\n"
    "            i64 place = places[TILE_ROW];\n"
    "            if (place >= 0 && splits > 1) {\n"
    "                GLOBAL f32 *part = scratch + place;\n"
    "                if (l % 4 == 0) { WRITE(f32, part, most); WRITE(f32, part + 1, whole); }\n"
    "                part += 2 + l % 4 * 2;\n"
    "                UNROLL\n"
    "                for (i32 n = 0; n < WIDTH / 8; n++) {\n"
    "                    i32 left = OWN_WIDTH - n * 8 - l % 4 * 2;\n"
    "                    if (left > 0) WRITE(f32, part + n * 8, acc[m][n][of * 2]);\n"
    "                    if (left > 1) WRITE(f32, part + n * 8 + 1, acc[m][n][of * 2 + 1]);\n"
    "                }\n"
    "            } else if (place >= 0) {\n"
    "                GLOBAL T *to = out + place + l % 4 * 2 * out_column;\n"
    "                f32 inverse = inverse_of(most, whole, keys);\n"
    "                UNROLL\n"
    "                for (i32 n = 0; n < WIDTH / 8; n++)\n"
    "                    UNROLL\n"
    "                    for (i32 e = of * 2; e < of * 2 + 2; e++) acc[m][n][e] = result_of(acc[m][n][e], inverse);\n"
    "                if (pairs) {\n"
    "                    UNROLL\n"
    "                    for (i32 n = 0; n < WIDTH / 8; n++)\n"
    "                        if (n * 8 + l % 4 * 2 < OWN_WIDTH) store_pair(to + n * 8, acc[m][n][of * 2], acc[m][n][of * 2 + 1]);\n"
    "                } else {\n"
    "                    UNROLL\n"
    "                    for (i32 n = 0; n < WIDTH / 8; n++) {\n"
    "                        i32 left = OWN_WIDTH - n * 8 - l % 4 * 2;\n"
    "                        if (left > 0) STORE(to, acc[m][n][of * 2]);\n"
    "                        if (left > 1) STORE(to + out_column, acc[m][n][of * 2 + 1]);\n"
    "                        to += 8 * out_column;\n"
    "                    }\n"
    "                }\n"
    "            }\n"
    "        }\n"
    "}\n";

const AttentionParts attention_matrix_parts = {
    .memory = "    SHARED_GIVEN(query_tile);\n"
              "    SHARED i64 places[TILE_ROWS];\n"
              "    MATRIX_MEMORY\n",
    .places = attention_places,
    .scores = scores,
    .rows = "        UNROLL\n"
            "        for (i32 m = 0; m < BANDS; m++)\n"
            "            UNROLL\n"
            "            for (i32 of = 0; of < 2; of++) {\n"
            "                i32 own = t0 + l % 4 * 2;\n",
    .keys = "                UNROLL\n"
            "                for (i32 j = 0; j < TILE_KEYS / 8; j++)\n"
            "                    UNROLL\n"
            "                    for (i32 e = of * 2; e < of * 2 + 2; e++) {\n"
            "                        f32 score = s[m][j][e];\n",
    .at = "j * 8 + e % 2",
    .end = "                        s[m][j][e] = score;\n"
           "                    }\n"
           "            }\n",
    .weights = weights,
    .values = values,
    .result = result,
};

/* clang-format on */

void attention_matrix_words(Text *text) { text_add(text, "%s", functions); }
