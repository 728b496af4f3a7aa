/* SPDX-License-Identifier: Apache-2.0 */
/* The text of the tiles for few rows, a decoder's step: all their time is that of reading keys and values once. Eight
 * lanes share a key and its value, by 16 bytes each, so that a warp reads four of them at once, straight to registers:
 * the values of a step while its keys are used, the next keys while values are. The eight keep a running maximum, a sum
 * and weighted values of the keys that they have had; these are scaled only when the maximum grows, and meet at the end, first within
 * a warp, then through shared memory.
 *
 * All threads of a block take as many steps, for where shuffles are imitated there are barriers in them; keys that the
 * block does not have are zeros. */
#include "codegen/gpu/attention/attention_parts.h"

/* clang-format off */

/* ELEMENT of a chunk of WIDE elements. CHUNKS: of a row of n elements that one lane has, KEY_LANES chunks apart. */
static const char words[] =
    /* PoCL takes long to compile barriers, of its shuffles, in loops that it unrolls. */
    "#ifdef POCL_DEVICE_ADDRESS_BITS\n"
    "#undef UNROLL\n"
    "#define UNROLL _Pragma(\"nounroll\")\n"
    "#endif\n"
    "#define KEY_LANES 8\n"
    "#define KEYS_AT_ONCE (THREADS / KEY_LANES)\n"
    "#define CHUNKS(n) (((n) + KEY_LANES * WIDE - 1) / (KEY_LANES * WIDE))\n"
    "#define CHUNK_AT(c) (((c) * KEY_LANES + x) * WIDE)\n"
    "FUNCTION void load_chunks(u128 *to, GLOBAL const T *from, i32 size, i32 x, bool there) {\n"
    "    UNROLL\n"
    "    for (i32 c = 0; c < CHUNKS(size); c++) {\n"
    "        to[c].x = to[c].y = to[c].z = to[c].w = 0;\n"
    "        if (there && CHUNK_AT(c) < size) to[c] = READ(u128, from + c * KEY_LANES * WIDE);\n"
    "    }\n"
    "}\n"
    "#if WIDE == 4\n"
    "#define ELEMENT(v, e) lane(v, e)\n"
    "#else\n"
    "#define ELEMENT(v, e) LOAD_16((u16)(BITS_f32(lane(v, (e) / 2)) >> (e) % 2 * 16))\n"
    "#endif\n";

static const char scores[] =
    "    i32 x = thread % KEY_LANES, y = thread / KEY_LANES;\n"
    "    f32 query[TILE_ROWS][CHUNKS(OWN_SIZE) * WIDE], acc[TILE_ROWS][CHUNKS(OWN_WIDTH) * WIDE], top[TILE_ROWS], sum[TILE_ROWS];\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < TILE_ROWS; i++) {\n"
    "        GLOBAL const T *from = q + (kv_head * group + heads[i]) * q_head + positions[i] * q_row;\n"
    "        UNROLL\n"
    "        for (i32 e = 0; e < CHUNKS(OWN_SIZE) * WIDE; e++) {\n"
    "            i32 c = CHUNK_AT(e / WIDE) + e % WIDE;\n"
    "            query[i][e] = 0;\n"
    "            if (c < OWN_SIZE) query[i][e] = LOAD(from + c * q_column);\n"
    "        }\n"
    "        top[i] = -INFINITY_f32; sum[i] = 0;\n"
    "        UNROLL\n"
    "        for (i32 e = 0; e < CHUNKS(OWN_WIDTH) * WIDE; e++) acc[i][e] = 0;\n"
    "    }\n"
    "    GLOBAL const T *key_at = k + (i64)(begin + y) * k_row + x * WIDE, *value_at = v + (i64)(begin + y) * v_row + x * WIDE;\n"
    "    u128 key[STEPS][CHUNKS(OWN_SIZE)], value[STEPS][CHUNKS(OWN_WIDTH)];\n"
    "#define LOAD_KEYS(t0) UNROLL for (i32 j = 0; j < STEPS; j++) { \\\n"
    "        load_chunks(key[j], key_at, OWN_SIZE, x, (t0) + y + j * KEYS_AT_ONCE < end); \\\n"
    "        key_at += KEYS_AT_ONCE * k_row; \\\n"
    "    }\n"
    "    LOAD_KEYS(begin)\n"
    "    for (i32 t0 = begin; t0 < end; t0 += TILE_KEYS) {\n"
    "        f32 s[TILE_ROWS][STEPS];\n"
    "        UNROLL\n"
    "        for (i32 j = 0; j < STEPS; j++) {\n"
    "            load_chunks(value[j], value_at, OWN_WIDTH, x, t0 + y + j * KEYS_AT_ONCE < end);\n"
    "            value_at += KEYS_AT_ONCE * v_row;\n"
    "        }\n"
    "        UNROLL\n"
    "        for (i32 j = 0; j < STEPS; j++) {\n"
    "            UNROLL\n"
    "            for (i32 i = 0; i < TILE_ROWS; i++) s[i][j] = 0;\n"
    "            UNROLL\n"
    "            for (i32 e = 0; e < CHUNKS(OWN_SIZE) * WIDE; e++) {\n"
    "                f32 of_key = ELEMENT(key[j][e / WIDE], e % WIDE);\n"
    "                UNROLL\n"
    "                for (i32 i = 0; i < TILE_ROWS; i++) s[i][j] = fma_f32(query[i][e], of_key, s[i][j]);\n"
    "            }\n"
    "        }\n"
    "        LOAD_KEYS(t0 + TILE_KEYS)\n"
    "#undef LOAD_KEYS\n"
    "        UNROLL\n"
    "        for (i32 m = 1; m < KEY_LANES; m *= 2)\n"
    "            UNROLL\n"
    "            for (i32 i = 0; i < TILE_ROWS; i++)\n"
    "                UNROLL\n"
    "                for (i32 j = 0; j < STEPS; j++) s[i][j] += SHUFFLE_XOR_f32(s[i][j], m, exchange);\n";

static const char values[] =
    "        UNROLL\n"
    "        for (i32 i = 0; i < TILE_ROWS; i++) {\n"
    "            f32 most = top[i];\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < STEPS; j++) most = max_f32(most, s[i][j]);\n"
    "            if (most > top[i]) {\n"
    "                f32 factor = exp2_f32(top[i] * LOG2 - most * LOG2);\n"
    "                top[i] = most;\n"
    "                sum[i] *= factor;\n"
    "                UNROLL\n"
    "                for (i32 e = 0; e < CHUNKS(OWN_WIDTH) * WIDE; e++) acc[i][e] *= factor;\n"
    "            }\n"
    "            f32 finite = most == -INFINITY_f32 ? 0 : most * LOG2;\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < STEPS; j++) {\n"
    "                s[i][j] = exp2_f32(fma_f32(s[i][j], LOG2, -finite));\n"
    "                sum[i] += s[i][j];\n"
    "            }\n"
    "        }\n"
    "        UNROLL\n"
    "        for (i32 j = 0; j < STEPS; j++)\n"
    "            UNROLL\n"
    "            for (i32 e = 0; e < CHUNKS(OWN_WIDTH) * WIDE; e++) {\n"
    "                f32 of_value = ELEMENT(value[j][e / WIDE], e % WIDE);\n"
    "                UNROLL\n"
    "                for (i32 i = 0; i < TILE_ROWS; i++) acc[i][e] = fma_f32(s[i][j], of_value, acc[i][e]);\n"
    "            }\n"
    "    }\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < TILE_ROWS; i++) {\n"
    "        f32 most = top[i];\n"
    "        UNROLL\n"
    "        for (i32 m = KEY_LANES; m < 32; m *= 2) most = max_f32(most, SHUFFLE_XOR_f32(most, m, exchange));\n"
    "        f32 factor = top[i] == -INFINITY_f32 ? 0 : exp2_f32(top[i] * LOG2 - most * LOG2);\n"
    "        sum[i] *= factor;\n"
    "        UNROLL\n"
    "        for (i32 m = KEY_LANES; m < 32; m *= 2) sum[i] += SHUFFLE_XOR_f32(sum[i], m, exchange);\n"
    "        i32 part = thread / 32 * TILE_ROWS + i;\n"
    "        if (thread % 32 == 0) { tops[part] = most; sums[part] = sum[i]; }\n"
    "        UNROLL\n"
    "        for (i32 e = 0; e < CHUNKS(OWN_WIDTH) * WIDE; e++) {\n"
    "            i32 c = CHUNK_AT(e / WIDE) + e % WIDE;\n"
    "            f32 whole = acc[i][e] * factor;\n"
    "            UNROLL\n"
    "            for (i32 m = KEY_LANES; m < 32; m *= 2) whole += SHUFFLE_XOR_f32(whole, m, exchange);\n"
    "            if (thread % 32 < KEY_LANES && c < OWN_WIDTH) parts[part * OWN_WIDTH + c] = whole;\n"
    "        }\n"
    "    }\n"
    "    BARRIER;\n"
    "    for (i32 e = thread; e < TILE_ROWS * OWN_WIDTH; e += (i32)BLOCK_SIZE) {\n"
    "        i32 r = e / OWN_WIDTH, c = e % OWN_WIDTH, row = row0 + r;\n"
    "        if (row >= rows) continue;\n"
    "        f32 most = tops[r], whole = 0, value = 0;\n"
    "        for (i32 w = 1; w < THREADS / 32; w++) most = max_f32(most, tops[w * TILE_ROWS + r]);\n"
    "        for (i32 w = 0; w < THREADS / 32; w++) {\n"
    "            i32 part = w * TILE_ROWS + r;\n"
    "            f32 factor = tops[part] == -INFINITY_f32 ? 0 : exp2_f32(tops[part] * LOG2 - most * LOG2);\n"
    "            whole = fma_f32(sums[part], factor, whole);\n"
    "            value = fma_f32(parts[part * OWN_WIDTH + c], factor, value);\n"
    "        }\n"
    "        most *= SCORE_SCALE;\n"
    "        if (splits > 1) {\n"
    "            GLOBAL f32 *part = scratch + (((i64)head * rows + row) * splits + split) * (OWN_WIDTH + 2);\n"
    "            if (c == 0) { WRITE(f32, part, most); WRITE(f32, part + 1, whole); }\n"
    "            WRITE(f32, part + 2 + c, value);\n"
    "        } else {\n"
    "            i64 to = (kv_head * group + heads[r]) * out_head + positions[r] * out_row + b0 * out_lead0 + b1 * out_lead1;\n"
    "            STORE(out + to + c * out_column, result_of(value, inverse_of(most, whole, keys)));\n"
    "        }\n"
    "    }\n"
    "}\n";

const AttentionParts attention_stream_parts = {
    .memory = "    SHARED f32 parts[THREADS / 32 * TILE_ROWS * OWN_WIDTH], tops[THREADS / 32 * TILE_ROWS], sums[THREADS / 32 * TILE_ROWS];\n"
              "    SHARED u64 exchange[THREADS];\n",
    .scores = scores,
    .rows = "        UNROLL\n"
            "        for (i32 i = 0; i < TILE_ROWS; i++) {\n"
            "            i32 own = t0 + y;\n",
    .keys = "            UNROLL\n"
            "            for (i32 j = 0; j < STEPS; j++) {\n"
            "                f32 score = s[i][j];\n",
    .at = "j * KEYS_AT_ONCE",
    .end = "                s[i][j] = score;\n"
           "            }\n"
           "        }\n",
    .values = values,
};

/* clang-format on */

void attention_stream_words(Text *text) { text_add(text, "%s", words); }
