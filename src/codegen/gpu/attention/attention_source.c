/* SPDX-License-Identifier: Apache-2.0 */
/* The text of attention programs. The body stands once; macros before it choose the tile. Keep the order of the
 * arguments: attention.c fills them in that of attention_parts.h. */
#include <math.h>

#include "codegen/gpu/attention/attention_parts.h"
#include "codegen/gpu/dialect.h"
#include "codegen/gpu/matrix.h"
#include "codegen/gpu/region/divide.h"
#include "codegen/gpu/warpgroup.h"

/* clang-format off */

/* KEYS x CHUNK elements of keys or values from key t0 and element c0 on, as f32; zeros outside. `four` gives shared
 * memory as vectors; a row of it is 4 elements longer than its data, so that rows start in different banks. BLOCK_SIZE
 * is THREADS, but not known to the compiler, which would unroll the slow way and keep an address for every step. */
static const char load_tile[] =
    "FUNCTION void LOAD_TILE(SHARED_POINTER u128 *tile, GLOBAL const T *from, i32 t0, i32 count, i32 c0, i32 size,\n"
    "                        i64 row, i64 column, i32 mode, i32 thread) {\n"
    "    SHARED_POINTER f32 *to = (SHARED_POINTER f32 *)tile;\n"
    "    if (mode == MODE_WIDE) {\n"
    "        for (i32 i = thread; i < KEYS * CHUNK / WIDE; i += THREADS) {\n"
    "            i32 t = i / (CHUNK / WIDE), c = i % (CHUNK / WIDE) * WIDE;\n"
    "            u128 v; v.x = v.y = v.z = v.w = 0;\n"
    "            if (t0 + t < count && c0 + c < size) v = READ(u128, from + (i64)(t0 + t) * row + (c0 + c));\n"
    "            SPREAD(t * (CHUNK / 4 + 1) + c / 4)\n"
    "        }\n"
    "    } else {\n"
    "        for (i32 i = thread; i < KEYS * CHUNK; i += (i32)BLOCK_SIZE) {\n"
    "            i32 t = mode == MODE_KEYS ? i % KEYS : i / CHUNK, c = mode == MODE_KEYS ? i / KEYS : i % CHUNK;\n"
    "            f32 x = 0;\n"
    "            if (t0 + t < count && c0 + c < size) x = LOAD(from + (i64)(t0 + t) * row + (c0 + c) * column);\n"
    "            to[t * (CHUNK + 4) + c] = x;\n"
    "        }\n"
    "    }\n"
    "}\n";

/* larger: NaN wins. */
static const char functions[] =
    "FUNCTION f32 lane(u128 v, i32 i) { return FLOAT_u32(i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w); }\n"
    "FUNCTION f32 larger(f32 a, f32 b) { return b > a || b != b ? b : a; }\n";

static const char spread_f32[] = "#define WIDE 4\n#define SPREAD(at) tile[at] = v;\n";
static const char spread_16[] =
    "#define WIDE 8\n"
    "FUNCTION u128 four(u32 a, u32 b) {\n"
    "    u128 r;\n"
    "    r.x = BITS_f32(LOAD_16((u16)a)); r.y = BITS_f32(LOAD_16((u16)(a >> 16)));\n"
    "    r.z = BITS_f32(LOAD_16((u16)b)); r.w = BITS_f32(LOAD_16((u16)(b >> 16)));\n"
    "    return r;\n"
    "}\n"
    "#define SPREAD(at) tile[at] = four(v.x, v.y); tile[(at) + 1] = four(v.z, v.w);\n";

/* This block's place. */
static const char place_part[] =
    "    BUFFER(const T, q, q_arg);\n"
    "    BUFFER(const T, k, k_arg);\n"
    "    BUFFER(const T, v, v_arg);\n"
    "    BUFFER(T, out, out_arg);\n"
    "    BUFFER(f32, scratch, scratch_arg);\n"
    "    SHARED i32 heads[TILE_ROWS], positions[TILE_ROWS];\n" /* of the queries */
    "    i32 thread = (i32)THREAD, rows = (i32)(group * queries), count = (i32)keys;\n"
    "    i32 unit = (i32)BLOCK / (i32)splits, split = (i32)BLOCK % (i32)splits;\n"
    /* long rows of causal masks first */
    "    i32 row0 = ((i32)row_tiles - 1 - unit % (i32)row_tiles) * TILE_ROWS, head = unit / (i32)row_tiles;\n"
    "    i32 kv_head = head % (i32)kv_heads, b1 = head / (i32)kv_heads % (i32)lead1;\n"
    "    i32 b0 = head / (i32)kv_heads / (i32)lead1;\n"
    "    q += b0 * q_lead0 + b1 * q_lead1;\n"
    "    k += b0 * k_lead0 + b1 * k_lead1 + kv_head / (i32)k_share * k_head;\n"
    "    v += b0 * v_lead0 + b1 * v_lead1 + kv_head / (i32)v_share * v_head;\n"
    "    for (i32 r = thread; r < TILE_ROWS; r += THREADS) {\n"
    "        i32 row = row0 + r < rows ? row0 + r : rows - 1;\n" /* of a row behind the last one nothing is kept */
    "        heads[r] = row / (i32)queries;\n"
    "        positions[r] = row % (i32)queries;\n"
    "    }\n"
    "    BARRIER;\n" /* the key loop, which has barriers of its own, may be empty */
    "    i32 begin = split * (i32)span, end = begin + (i32)span < count ? begin + (i32)span : count;\n"
    /* a causal step: how many keys the query that sees most of the tile's does, and the one that sees least */
    "    i32 last = (row0 + TILE_ROWS < rows ? row0 + TILE_ROWS : rows) - 1;\n"
    "    bool one_head = last / (i32)queries == row0 / (i32)queries;\n"
    "    i64 seen_by_one = (one_head ? last % (i32)queries : queries - 1) + offset + 1;\n"
    "    i64 seen_by_first = (one_head ? row0 % (i32)queries : 0) + offset + 1;\n"
    "    i32 seen_by_all = !CAUSAL || seen_by_first > count ? count : (i32)seen_by_first;\n"
    "    if (skip && seen_by_one < end) end = seen_by_one < 0 ? 0 : (i32)seen_by_one;\n";

/* The queries in shared memory, the scores s of the thread's rows and keys, up to the steps. */
static const char scores_part[] =
    "    i32 x = thread % ACROSS, y = thread / ACROSS;\n"
    "    for (i32 i = thread; i < TILE_ROWS * SIZE; i += THREADS) {\n"
    "        i32 r = i / SIZE, c = i % SIZE, row = row0 + r;\n"
    "        f32 e = 0;\n"
    "        if (row < rows && c < (i32)size) {\n"
    "            i32 g = row / (i32)queries;\n"
    "            e = LOAD(q + (kv_head * group + g) * q_head + (row - g * (i32)queries) * q_row + c * q_column);\n"
    "        }\n"
    "        ((SHARED_POINTER f32 *)query_tile)[r * (SIZE + 4) + c] = e;\n"
    "    }\n"
    "    f32 top[ROWS], sum[ROWS], acc[WIDTH / CHUNK][ROWS][CHUNK / ACROSS];\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < ROWS; i++) {\n"
    "        top[i] = -INFINITY_f32; sum[i] = 0;\n"
    "        UNROLL\n"
    "        for (i32 n = 0; n < WIDTH / CHUNK; n++)\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < CHUNK / ACROSS; j++) acc[n][i][j] = 0;\n"
    "    }\n"
    "    for (i32 t0 = begin; t0 < end; t0 += KEYS) {\n"
    "        f32 s[ROWS][KEYS / ACROSS];\n"
    "        UNROLL\n"
    "        for (i32 i = 0; i < ROWS; i++)\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < KEYS / ACROSS; j++) s[i][j] = 0;\n"
    "        for (i32 c0 = 0; c0 < SIZE; c0 += CHUNK) {\n"
    "            BARRIER;\n"
    "            LOAD_TILE(tile, k, t0, count, c0, (i32)size, k_row, k_column, (i32)k_mode, thread);\n"
    "            BARRIER;\n"
    "            for (i32 c = 0; c < CHUNK / 4; c++) {\n"
    "                u128 b[KEYS / ACROSS];\n"
    "                UNROLL\n"
    "                for (i32 j = 0; j < KEYS / ACROSS; j++) b[j] = tile[(x + j * ACROSS) * (CHUNK / 4 + 1) + c];\n"
    "                UNROLL\n"
    "                for (i32 i = 0; i < ROWS; i++) {\n"
    "                    u128 a = query_tile[(y + i * DOWN) * (SIZE / 4 + 1) + c0 / 4 + c];\n"
    "                    UNROLL\n"
    "                    for (i32 j = 0; j < KEYS / ACROSS; j++)\n"
    "                        UNROLL\n"
    "                        for (i32 l = 0; l < 4; l++) s[i][j] = fma_f32(lane(a, l), lane(b[j], l), s[i][j]);\n"
    "                }\n"
    "            }\n"
    "        }\n";

/* Behind the steps: the running maximum and sum, the weighted values, the result. */
static const char values_part[] =
    "        BARRIER;\n"
    "        UNROLL\n"
    "        for (i32 i = 0; i < ROWS; i++) {\n"
    "            f32 most = top[i];\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < ACROSS / 4; j++) {\n"
    "                u128 four_of = weight_tile[(y + i * DOWN) * (KEYS / 4 + 1) + j];\n"
    "                UNROLL\n"
    "                for (i32 l = 0; l < 4; l++) most = larger(most, lane(four_of, l));\n"
    "            }\n"
    "            f32 finite = most == -INFINITY_f32 ? 0 : most;\n"
    "            f32 factor = exp_f32(top[i] - finite);\n"
    "            top[i] = most;\n"
    "            sum[i] *= factor;\n"
    "            UNROLL\n"
    "            for (i32 n = 0; n < WIDTH / CHUNK; n++)\n"
    "                UNROLL\n"
    "                for (i32 j = 0; j < CHUNK / ACROSS; j++) acc[n][i][j] *= factor;\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < KEYS / ACROSS; j++) {\n"
    "                s[i][j] = exp_f32(s[i][j] - finite);\n"
    "                sum[i] += s[i][j];\n"
    "            }\n"
    "        }\n"
    "        BARRIER;\n"
    "        UNROLL\n"
    "        for (i32 i = 0; i < ROWS; i++)\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < KEYS / ACROSS; j++)\n"
    "                weights[(y + i * DOWN) * (KEYS + 4) + x + j * ACROSS] = s[i][j];\n"
    "        UNROLL\n"
    "        for (i32 n = 0; n < WIDTH / CHUNK; n++) {\n"
    "            BARRIER;\n"
    "            LOAD_TILE(tile, v, t0, count, n * CHUNK, (i32)width, v_row, v_column, (i32)v_mode, thread);\n"
    "            BARRIER;\n"
    "            for (i32 t = 0; t < KEYS / 4; t++) {\n"
    "                f32 b[4][CHUNK / ACROSS];\n"
    "                UNROLL\n"
    "                for (i32 l = 0; l < 4; l++) { VALUES(b[l], t * 4 + l) }\n"
    "                UNROLL\n"
    "                for (i32 i = 0; i < ROWS; i++) {\n"
    "                    u128 p = weight_tile[(y + i * DOWN) * (KEYS / 4 + 1) + t];\n"
    "                    UNROLL\n"
    "                    for (i32 l = 0; l < 4; l++)\n"
    "                        UNROLL\n"
    "                        for (i32 j = 0; j < CHUNK / ACROSS; j++)\n"
    "                            acc[n][i][j] = fma_f32(lane(p, l), b[l][j], acc[n][i][j]);\n"
    "                }\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "    BARRIER;\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < ROWS; i++) weights[(y + i * DOWN) * (KEYS + 4) + x] = sum[i];\n"
    "    BARRIER;\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < ROWS; i++) {\n"
    "        i32 row = row0 + y + i * DOWN;\n"
    "        if (row >= rows) continue;\n"
    "        f32 whole = 0;\n"
    "        for (i32 j = 0; j < ACROSS; j++) whole += weights[(y + i * DOWN) * (KEYS + 4) + j];\n"
    "        i64 to = (kv_head * group + heads[y + i * DOWN]) * out_head + positions[y + i * DOWN] * out_row + b0 * out_lead0 + b1 * out_lead1;\n"
    "        i64 part = (((i64)head * rows + row) * splits + split) * (width + 2);\n"
    "        f32 inverse = inverse_of(top[i], whole, keys);\n"
    "        if (splits > 1 && x == 0) { WRITE(f32, scratch + part, top[i]); WRITE(f32, scratch + part + 1, whole); }\n"
    "        UNROLL\n"
    "        for (i32 n = 0; n < WIDTH / CHUNK; n++)\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < CHUNK / ACROSS; j++) {\n"
    "                i32 c = n * CHUNK + x * (CHUNK / ACROSS) + j;\n"
    "                if (c >= (i32)width) continue;\n"
    "                if (splits > 1) WRITE(f32, scratch + part + 2 + c, acc[n][i][j]);\n"
    "                else STORE(out + to + c * out_column, result_of(acc[n][i][j], inverse));\n"
    "            }\n"
    "    }\n"
    "}\n";

static const AttentionParts plain_parts = {
    .memory = "    SHARED u128 query_tile[TILE_ROWS * (SIZE / 4 + 1)];\n"
              "    SHARED u128 tile[KEYS * (CHUNK / 4 + 1)];\n"
              "    SHARED u128 weight_tile[TILE_ROWS * (KEYS / 4 + 1)];\n"
              "    SHARED_POINTER f32 *weights = (SHARED_POINTER f32 *)weight_tile;\n",
    .scores = scores_part,
    .rows = "        UNROLL\n"
            "        for (i32 i = 0; i < ROWS; i++) {\n"
            "            f32 most = -INFINITY_f32;\n"
            "            i32 own = t0 + x;\n",
    .keys = "            UNROLL\n"
            "            for (i32 j = 0; j < KEYS / ACROSS; j++) {\n"
            "                f32 score = s[i][j];\n",
    .at = "j * ACROSS",
    .end = "                s[i][j] = score;\n"
           "                most = larger(most, score);\n"
           "            }\n"
           "            weights[(y + i * DOWN) * (KEYS + 4) + x] = most;\n"
           "        }\n",
    .values = values_part,
};

/* A thread joins the parts of one element of the result. */
static const char join_part[] =
    "    BUFFER(T, out, out_arg);\n"
    "    BUFFER(const f32, scratch, scratch_arg);\n"
    "    i64 i = (BLOCK * THREADS + THREAD) * JOIN_STEP;\n"
    "    if (i >= elements) return;\n"
    "    i64 row = quotient(i, JOIN_WIDTH), c = i - row * JOIN_WIDTH;\n"
    "    scratch += row * splits * (JOIN_WIDTH + 2);\n"
    "    f32 top = -INFINITY_f32, sum = 0, acc[JOIN_STEP];\n"
    "    UNROLL\n"
    "    for (i32 e = 0; e < JOIN_STEP; e++) acc[e] = 0;\n"
    "    for (i64 s = 0; s < splits; s++) top = larger(top, READ(f32, scratch + s * (JOIN_WIDTH + 2)));\n"
    "    f32 finite = top == -INFINITY_f32 ? 0 : top;\n"
    "    for (i64 s = 0; s < splits; s++) {\n"
    "        GLOBAL const f32 *part = scratch + s * (JOIN_WIDTH + 2);\n"
    "        f32 factor = exp_f32(READ(f32, part) - finite);\n"
    "        sum += READ(f32, part + 1) * factor;\n"
    "        UNROLL\n"
    "        for (i32 e = 0; e < JOIN_STEP; e++) acc[e] += READ(f32, part + 2 + c + e) * factor;\n"
    "    }\n"
    "    i64 rows = group * queries, head = quotient(row, rows), b1 = quotient(head, kv_heads), b0 = quotient(b1, lead1);\n"
    "    row -= head * rows;\n"
    "    i64 own = quotient(row, queries), h = (head - b1 * kv_heads) * group + own;\n"
    "    b1 -= b0 * lead1;\n"
    "    out += b0 * out_lead0 + b1 * out_lead1 + h * out_head + (row - own * queries) * out_row + c * out_column;\n"
    "    f32 inverse = inverse_of(top, sum, keys);\n"
    "    UNROLL\n"
    "    for (i32 e = 0; e < JOIN_STEP; e++) STORE(out + e * out_column, result_of(acc[e], inverse));\n"
    "}\n";

/* What weighted values are multiplied by, 0 for a row of zeros; without keys at all the product is an empty sum, and where
 * all are hidden the row is as asked for. */
static const char *const results[] = {
    [GPU_EMPTY_NAN] = "keys == 0 ? 0 : sum == 0 ? NAN_f32 : 1 / sum",
    [GPU_EMPTY_ZERO] = "sum == 0 ? 0 : 1 / sum",
    [GPU_EMPTY_NAN_ZERO] = "sum == 0 || sum != sum || top != top ? 0 : 1 / sum",
};

/* clang-format on */

enum {
    MOST_HELD = 128
}; /* elements of a row of queries, all bands, that a lane's warp holds in registers: 32 of them */

typedef struct ElementType {
    DType dtype;
    const char *type, *load, *words;
} ElementType;

static const ElementType element_types[] = {
    {DT_F32, "f32", "READ(f32, p)",
     "#define T f32\n#define LOAD(p) READ(f32, p)\n#define STORE(p, x) WRITE(f32, p, x)\n"},
    {DT_F16, "u16", "load_f16(READ(u16, p))",
     "#define T u16\n#define LOAD(p) load_f16(READ(u16, p))\n#define STORE(p, x) WRITE(u16, p, store_f16(x))\n"
     "#define LOAD_16(x) load_f16(x)\n#define PACK(x, y) pack_f16(x, y)\n"},
    {DT_BF16, "u16", "load_bf16(READ(u16, p))",
     "#define T u16\n#define LOAD(p) load_bf16(READ(u16, p))\n#define STORE(p, x) WRITE(u16, p, store_bf16(x))\n"
     "#define LOAD_16(x) load_bf16(x)\n#define PACK(x, y) pack_bf16(x, y)\n"},
    {DT_BOOL, "u8", "READ(u8, p)", ""},
};

static const ElementType *element_type(DType dtype) {
    for (size_t i = 0; i < sizeof element_types / sizeof *element_types; i++)
        if (element_types[i].dtype == dtype) return &element_types[i];
    return &element_types[0];
}

static bool is_causal(GpuScoreKind kind) { return kind == GPU_SCORE_CAUSAL || kind == GPU_SCORE_CAUSAL_ADD; }

static void add_number(Text *text, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    text_add(text, "FLOAT_u32(0x%08xu)", bits);
}

/* Where the row's elements of a step's tensor are, or how far a causal step lets it see. */
static void add_row_of_step(Text *text, const GpuScore *step, int index, const char *from) {
    if (gpu_score_reads(step->kind))
        text_add(text,
                 "                GLOBAL const %s *r%d = s%d + (kv_head * group + heads[TILE_ROW]) * s%d_head + "
                 "positions[TILE_ROW] * s%d_row + %s * s%d_column;\n",
                 element_type(step->dtype)->type, index, index, index, index, from, index);
    else if (is_causal(step->kind))
        text_add(text, "                i64 seen%d = positions[TILE_ROW] + offset;\n", index);
}

/* One step on `score`; `at`: the key, from the row's place on. */
static void add_step(Text *text, const GpuScore *step, int index, const char *at) {
    text_add(text, "                    { ");
    if (gpu_score_reads(step->kind))
        text_add(text, "GLOBAL const %s *p = r%d + %s * (i32)s%d_column; f32 y = %s; ", element_type(step->dtype)->type,
                 index, at, index, element_type(step->dtype)->load);
    switch (step->kind) {
    case GPU_SCORE_SCALE: text_add(text, "score *= "), add_number(text, step->alpha); break;
    case GPU_SCORE_TANH: text_add(text, "score = tanh_f32(score)"); break;
    case GPU_SCORE_CLIP:
        text_add(text, "f32 low = "), add_number(text, step->alpha);
        text_add(text, ", high = "), add_number(text, step->beta);
        text_add(text, "; score = score < low ? low : score > high ? high : score");
        break;
    case GPU_SCORE_ADD: text_add(text, "score += y"); break;
    case GPU_SCORE_ADD_HIDING: text_add(text, "score = y == -INFINITY_f32 ? y : score + y"); break;
    case GPU_SCORE_KEEP: text_add(text, "score = y != 0 ? score : "), add_number(text, step->alpha); break;
    case GPU_SCORE_HIDE:
        text_add(text, "score = y != 0 ? "), add_number(text, step->alpha), text_add(text, " : score");
        break;
    case GPU_SCORE_CAUSAL_ADD:
    default:
        text_add(text, "score = own + at <= seen%d ? score : %s", index,
                 step->kind == GPU_SCORE_CAUSAL_ADD ? "score + " : "");
        add_number(text, step->alpha);
        break;
    }
    text_add(text, "; }\n");
}

static void add_strides(Text *text, const char *name, int index) {
    static const char *const parts[] = {"lead0", "lead1", "head", "row", "column"};
    for (int i = 0; i < 5; i++) {
        if (index < 0)
            text_add(text, ", i64 %s_%s", name, parts[i]);
        else
            text_add(text, ", i64 %s%d_%s", name, index, parts[i]);
    }
}

#define ADD_ARGUMENT(name) text_add(text, ", i64 " #name);

static void add_header(Text *text, const GpuAttentionText *a, const AttentionTile *tile, const char *name) {
    text_add(text,
             "KERNEL_OF(THREADS) %s%s(BUFFER_ARG(q_arg), BUFFER_ARG(k_arg), BUFFER_ARG(v_arg), BUFFER_ARG(out_arg), "
             "BUFFER_ARG(scratch_arg)",
             name, tile->suffix);
    for (int i = 0; i < a->step_count; i++)
        if (gpu_score_reads(a->steps[i].kind)) text_add(text, ", BUFFER_ARG(s%d_arg)", i);
    text_add(text, ", f32 scale");
    ATTENTION_ARGUMENTS(ADD_ARGUMENT)
    add_strides(text, "q", -1);
    add_strides(text, "k", -1);
    add_strides(text, "v", -1);
    add_strides(text, "out", -1);
    for (int i = 0; i < a->step_count; i++)
        if (gpu_score_reads(a->steps[i].kind)) add_strides(text, "s", i);
    text_add(text, "%s) {\n", tile->given_bytes ? " SHARED_ARG(query_tile)" : "");
}

/* The step that hides keys behind those that a row sees whatever the other steps make of them; -1: none. */
static int hiding_step(const GpuAttentionText *a) {
    int64_t least;
    int at = attention_skips(a, &least);
    return at >= 0 && a->steps[at].alpha == -INFINITY ? at : -1;
}

/* The loops over the thread's scores with the steps; at the edge there are keys that some or all rows do not see. */
static void add_steps(Text *text, const GpuAttentionText *a, const AttentionParts *parts, bool scaled, bool edge) {
    int hiding = hiding_step(a);
    bool plain = parts == &plain_parts; /* has no registers for places of its own in each row */
    text_add(text, "%s", parts->rows);
    if (edge && hiding >= 0)
        text_add(text, "                i64 seen = positions[TILE_ROW] + offset + 1;\n"
                       "                i32 limit = (seen > count ? count : seen < 0 ? 0 : (i32)seen) - own;\n");
    else if (edge)
        text_add(text, "                i32 limit = count - own;\n");
    for (int i = 0; i < a->step_count && !plain; i++)
        if (i != hiding && (edge || !is_causal(a->steps[i].kind))) add_row_of_step(text, &a->steps[i], i, "own");
    text_add(text, "%s                    i32 at = %s;\n", parts->keys, parts->at);
    if (!scaled) text_add(text, "                    score *= scale;\n");
    if (edge) text_add(text, "                    if (at < limit) {\n");
    for (int i = 0; i < a->step_count; i++)
        if (i != hiding && (edge || !is_causal(a->steps[i].kind))) {
            if (plain) add_row_of_step(text, &a->steps[i], i, "(own + at)");
            add_step(text, &a->steps[i], i, plain ? "0" : "at");
        }
    if (edge)
        text_add(text, "                    } else {\n                        score = -INFINITY_f32;\n"
                       "                    }\n");
    text_add(text, "%s", parts->end);
}

/* The steps twice, so that only tiles at the edge look where they are: what is left for the others may be nothing. */
static void add_steps_by_tile(Text *text, const GpuAttentionText *a, const AttentionParts *parts, bool scaled) {
    bool left = !scaled;
    for (int i = 0; i < a->step_count; i++) left |= !is_causal(a->steps[i].kind);
    text_add(text, "        if (t0 + TILE_KEYS > seen_by_all) {\n");
    add_steps(text, a, parts, scaled, true);
    if (left) {
        text_add(text, "        } else {\n");
        add_steps(text, a, parts, scaled, false);
    }
    text_add(text, "        }\n");
}

static void add_part(Text *text, const char *part) {
    if (part) text_add(text, "%s", part);
}

static void add_body(Text *text, const GpuAttentionText *a, const AttentionTile *tile, const AttentionParts *parts) {
    for (int i = 0; i < a->step_count; i++)
        if (gpu_score_reads(a->steps[i].kind))
            text_add(text, "    BUFFER(const %s, s%d, s%d_arg);\n", element_type(a->steps[i].dtype)->type, i, i);
    text_add(text, "%s%s", parts->memory, place_part);
    for (int i = 0; i < a->step_count; i++)
        if (gpu_score_reads(a->steps[i].kind)) text_add(text, "    s%d += b0 * s%d_lead0 + b1 * s%d_lead1;\n", i, i, i);
    add_part(text, parts->places);
    add_part(text, parts->scores);
    if (tile->form == FORM_PLAIN)
        add_steps(text, a, parts, false, true);
    else
        add_steps_by_tile(text, a, parts, attention_keeps_order(a));
    add_part(text, parts->weights);
    add_part(text, parts->values);
    add_part(text, parts->result);
}

/* With the macros of the tile's form around it, which end here with TILE_ROW. */
static void add_kernel(Text *text, const GpuAttentionText *a, const AttentionTile *tile, const AttentionParts *parts,
                       const char *name) {
    text_add(text, "#undef THREADS\n#define THREADS %d\n#define TILE_ROWS %d\n", tile->threads, tile_rows(tile));
    add_part(text, parts->words);
    add_header(text, a, tile, name);
    add_body(text, a, tile, parts);
    text_add(text, "#undef TILE_ROWS\n#undef TILE_ROW\n#undef THREADS\n#define THREADS %d\n", ATTENTION_THREADS);
}

static void add_tile_function(Text *text, const GpuAttentionText *a, const AttentionTile *tile, const char *name) {
    int columns = tile->chunk / tile->across;
    text_add(text, "#define ROWS %d\n#define ACROSS %d\n#define DOWN %d\n#define CHUNK %d\n", tile->rows, tile->across,
             tile->down, tile->chunk);
    text_add(text, "#define TILE_ROW (y + i * DOWN)\n#define LOAD_TILE load%s\n%s", tile->suffix, load_tile);
    if (columns == 4)
        text_add(text, "#define VALUES(to, t) u128 w = tile[(t) * (CHUNK / 4 + 1) + x]; UNROLL for (i32 j = 0; j < 4; "
                       "j++) to[j] = lane(w, j);\n");
    else
        text_add(text,
                 "#define VALUES(to, t) UNROLL for (i32 j = 0; j < %d; j++) to[j] = ((SHARED_POINTER f32 "
                 "*)tile)[(t) * (CHUNK + 4) + x * %d + j];\n",
                 columns, columns);
    add_kernel(text, a, tile, &plain_parts, name);
    text_add(text, "#undef ROWS\n#undef ACROSS\n#undef DOWN\n#undef CHUNK\n#undef LOAD_TILE\n#undef VALUES\n");
}

static void add_matrix_function(Text *text, const GpuAttentionText *a, const AttentionPlan *plan,
                                const AttentionTile *tile, const AttentionParts *parts, const char *name) {
    bool scaled = attention_keeps_order(a);
    text_add(text, "#define BANDS %d\n#define TILE_KEYS %d\n#define QUERIES_HELD %d\n", tile->rows, tile->keys,
             tile->rows * plan->size <= MOST_HELD);
    text_add(text, "#define OWN_SIZE %d\n#define OWN_WIDTH %d\n", a->size, a->width);
    text_add(text, "#define MODE_OF(mode) %s\n", tile->wide ? "MODE_WIDE" : "(i32)(mode)");
    text_add(text, "#define SCORE_SCALE %s\n#define LOG2 (SCORE_SCALE * 1.44269504f)\n", scaled ? "scale" : "1.0f");
    text_add(text, "#define TILE_ROW (warp + m * 16 + l / 4 + of * 8)\n");
    add_kernel(text, a, tile, parts, name);
    text_add(text, "#undef BANDS\n#undef TILE_KEYS\n#undef QUERIES_HELD\n#undef OWN_SIZE\n#undef MODE_OF\n#undef "
                   "OWN_WIDTH\n#undef SCORE_SCALE\n#undef LOG2\n");
}

static void add_groups_function(Text *text, const GpuAttentionText *a, const AttentionPlan *plan,
                                const AttentionTile *tile, GpuDialect dialect, const char *name) {
    const AttentionParts parts = attention_groups_parts();
    gpu_warpgroup_words(text, a->dtype, dialect);
    text_add(text, "#if HAS_GROUPS\n");
    add_matrix_function(text, a, plan, tile, &parts, name);
    text_add(text, "#endif\n");
}

static void add_squares_function(Text *text, const GpuAttentionText *a, const AttentionTile *tile, const char *name) {
    bool scaled = attention_keeps_order(a);
    text_add(text, "#define ROWS %d\n#define ACROSS %d\n#define DOWN %d\n#define TILE_KEYS %d\n", tile->rows,
             tile->across, tile->down, tile->keys);
    text_add(text, "#define OWN_SIZE %d\n#define OWN_WIDTH %d\n", a->size, a->width);
    text_add(text, "#define SCORE_SCALE %s\n#define LOG2 (SCORE_SCALE * 1.44269504f)\n", scaled ? "scale" : "1.0f");
    text_add(text, "#define TILE_ROW (y + i * DOWN)\n");
    add_kernel(text, a, tile, &attention_squares_parts, name);
    text_add(text, "#undef ROWS\n#undef ACROSS\n#undef DOWN\n#undef TILE_KEYS\n#undef OWN_SIZE\n#undef OWN_WIDTH\n"
                   "#undef SCORE_SCALE\n#undef LOG2\n");
}

static void add_stream_function(Text *text, const GpuAttentionText *a, const AttentionTile *tile, const char *name) {
    bool scaled = attention_keeps_order(a);
    text_add(text, "#define STEPS %d\n#define TILE_KEYS %d\n", tile->across, tile->keys);
    text_add(text, "#define OWN_SIZE %d\n#define OWN_WIDTH %d\n", a->size, a->width);
    text_add(text, "#define SCORE_SCALE %s\n#define LOG2 (SCORE_SCALE * 1.44269504f)\n", scaled ? "scale" : "1.0f");
    text_add(text, "#define TILE_ROW i\n");
    add_kernel(text, a, tile, &attention_stream_parts, name);
    text_add(text,
             "#undef STEPS\n#undef TILE_KEYS\n#undef OWN_SIZE\n#undef OWN_WIDTH\n#undef SCORE_SCALE\n#undef LOG2\n");
}

static void add_join_function(Text *text, const GpuAttentionText *a, const char *name) {
    text_add(text, "%s#define JOIN_STEP %d\n#define JOIN_WIDTH %d\n", GPU_QUOTIENT_SOURCE, attention_join_step(a),
             a->width);
    text_add(text, "KERNEL_OF(THREADS) %s_join(BUFFER_ARG(out_arg), BUFFER_ARG(scratch_arg)", name);
    const char *separator = ", i64 ";
#define ADD_JOIN_ARGUMENT(argument) text_add(text, "%s" #argument, separator);
    ATTENTION_JOIN_ARGUMENTS(ADD_JOIN_ARGUMENT)
    add_strides(text, "out", -1);
    text_add(text, ") {\n%s", join_part);
}

static bool is_wanted(const char *suffix, const char *wanted) { return !wanted || strcmp(suffix, wanted) == 0; }

void gpu_attention_render(Text *text, const GpuAttentionText *attention, GpuDialect dialect, const char *name,
                          const char *suffix) {
    AttentionPlan plan = attention_plan(attention);
    const ElementType *type = element_type(attention->dtype);
    text_add(text, "%s%s", gpu_prelude(dialect), type->words);
    text_add(text, "#define MODE_KEYS %d\n#define MODE_WIDE %d\n", READ_KEYS, READ_WIDE);
    text_add(text, "#define THREADS %d\n#define KEYS %d\n#define SIZE %d\n#define WIDTH %d\n", ATTENTION_THREADS,
             ATTENTION_KEYS, plan.size, plan.width);
    bool causal = false;
    for (int i = 0; i < attention->step_count; i++) causal |= is_causal(attention->steps[i].kind);
    text_add(text, "#define CAUSAL %d\n", causal);
    text_add(text, "%s%s", attention->dtype == DT_F32 ? spread_f32 : spread_16, functions);
    text_add(text,
             "FUNCTION f32 inverse_of(f32 top, f32 sum, i64 keys) { return %s; }\n"
             "FUNCTION f32 result_of(f32 acc, f32 inverse) { return inverse == 0 ? 0 : acc * inverse; }\n",
             results[attention->empty]);
    bool matrix = plan.tiles[TILE_TALL].form == FORM_MATRIX, squares = plan.tiles[TILE_LONG].form == FORM_SQUARES;
    if (matrix || squares) gpu_matrix_words(text, attention->dtype, dialect);
    if (matrix) attention_matrix_words(text);
    if (plan.tiles[TILE_STREAM].form == FORM_STREAM) attention_stream_words(text);
    for (int i = 0; i < TILE_COUNT; i++) {
        const AttentionTile *tile = &plan.tiles[i];
        if (!is_wanted(tile->suffix, suffix)) continue;
        if (tile->form == FORM_STREAM) add_stream_function(text, attention, tile, name);
        if (tile->form == FORM_MATRIX) add_matrix_function(text, attention, &plan, tile, &attention_matrix_parts, name);
        if (tile->form == FORM_GROUPS) add_groups_function(text, attention, &plan, tile, dialect, name);
        if (tile->form == FORM_SQUARES) add_squares_function(text, attention, tile, name);
        if (tile->form == FORM_PLAIN) add_tile_function(text, attention, tile, name);
    }
    if (is_wanted("_join", suffix)) add_join_function(text, attention, name);
}
