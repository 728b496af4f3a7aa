/* SPDX-License-Identifier: Apache-2.0 */
/* The choice among the instruction sets for which the tiles are compiled. */
#include "runtime/device/cpu/tiles/tile.h"

#include <stdatomic.h>
#include <string.h>
#include "base/integer.h"
#include "base/log.h"
#include "base/vectors/vector_isa.h"

const TileIsa *tile_isa(void) {
#if defined(__x86_64__)
    VectorIsa isa = vector_isa();
    if (isa != VECTOR_BASE) return isa == VECTOR_AVX512 ? &tile_avx512 : &tile_avx2;
#endif
    return &tile_base;
}

const TileSet *tile_set(DType type) {
    const TileIsa *isa = tile_isa();
    return type == DT_F32 ? &isa->f32 : type == DT_F64 ? &isa->f64 : type == DT_U32 ? &isa->u32 : &isa->u64;
}

extern const TileSet tile_quads_base, tile_pairs_base;
extern const TileBlocks tile_blocks_base;
#if defined(__x86_64__)
extern const TileBlocks tile_blocks_avx2, tile_blocks_avxvnni, tile_blocks_avx512vnni, tile_blocks_amx;
extern const TileSet tile_quads_avx2, tile_quads_avxvnni, tile_quads_avx512vnni, tile_quads_amx;
extern const TileWinograd tile_winograd_words_avx2;
extern const TileSet tile_pairs_avx2, tile_pairs_avx512, tile_pairs_avx512bf16, tile_pairs_amx;
#elif defined(__aarch64__)
extern const TileBlocks tile_blocks_dotprod;
extern const TileSet tile_quads_dotprod, tile_quads_i8mm, tile_pairs_bf16;
#endif

void tile_products(const TileSet *set, int vectors, int count, TileCall *call, const void *next, int64_t bytes) {
    const int highest = set->rows[vectors];
    const int64_t depths = call->taps * call->depth;
    int tiles = (count + highest - 1) / highest, same;
    call->ahead = next;
    /* Upwards: 64 bytes a depth and 22 tiles are 3 for each, where 2 would leave a third of a panel behind. What is asked for beyond it is the
     * panel's that follows. */
    call->ahead_step = bytes && depths && tiles ? ceil_div(bytes, depths * tiles) : 0;
    for (; tiles > 0; tiles -= same) {
        int height = (count + tiles - 1) / tiles;
        same = count - (height - 1) * tiles; /* the others are one row lower */
        call->row_count = height;
        call->tiles = same;
        set->products[vectors][height](call);
        call->rows += same * height;
        call->results += same * height;
        call->ahead += same * depths * call->ahead_step;
        count -= same * height;
    }
}

int64_t tile_arranged(WeightKind kind, int lanes, int64_t depth) {
    const int64_t word = weight_word(kind), group = word * lanes;
    return (depth + group - 1) / group * lanes * (1 + word);
}

void tile_arrange_row(WeightKind kind, int lanes, const float *row, int64_t depth, float *to) {
    const int word = weight_word(kind);
    for (; depth > 0; row += word * lanes, depth -= word * lanes, to += (1 + word) * lanes) {
        if (depth < word * lanes) memset(to, 0, (size_t)((1 + word) * lanes) * sizeof *to);
        for (int l = 0; l < lanes && l * word < depth; l++) {
            const int some = depth - l * word < word ? (int)(depth - l * word) : word;
            float sum = 0;
            for (int k = 0; k < some; k++) {
                sum += row[l * word + k];
                to[(1 + k) * lanes + l] = row[l * word + k] / weight_up(kind, k);
            }
            to[l] = -weight_excess(kind) * sum;
        }
    }
}

/* ---- whether a set does what it should ---- */

enum { TRIED_ROWS = 69, TRIED_COLUMNS = 23, TRIED_DEPTH = 19, TRIED_WIDTH = 32 };

/* Whole numbers so small that their sums are exact in any order. */
static uint16_t small_bf16(int i) {
    static const uint16_t numbers[] = {0xc000, 0xbf80, 0, 0x3f80, 0x4000}; /* -2 to 2 */
    return numbers[i * 7 % 5];
}

/* Halves that hold such, or any bytes. */
static uint16_t tried(int i, bool pairs) { return pairs ? small_bf16(i) : (uint16_t)(i * 40503); }

static void try_set(const TileSet *set, bool pairs, uint32_t results[TRIED_ROWS][TRIED_WIDTH]) {
    _Alignas(64) uint16_t x[TRIED_ROWS][2 * TRIED_DEPTH], weight[TRIED_DEPTH][2 * TRIED_WIDTH];
    const void *rows[TRIED_ROWS];
    void *to[TRIED_ROWS];
    const int64_t offset = 0;
    const int width = 2 * set->lanes;
    for (int i = 0; i < TRIED_ROWS; i++) {
        for (int k = 0; k < 2 * TRIED_DEPTH; k++) x[i][k] = tried(i * 3 + k, pairs);
        rows[i] = x[i];
        to[i] = results[i];
    }
    for (int k = 0; k < TRIED_DEPTH; k++)
        for (int j = 0; j < 2 * TRIED_WIDTH; j++) weight[k][j] = tried(k * 11 + j * 2 + 1, pairs);
    memset(results, 0, sizeof(uint32_t[TRIED_ROWS][TRIED_WIDTH]));
    for (int first = 0; first < TRIED_COLUMNS; first += width) {
        int columns = TRIED_COLUMNS - first < width ? TRIED_COLUMNS - first : width;
        TileCall call = {.rows = rows,
                         .offsets = &offset,
                         .taps = 1,
                         .depth = TRIED_DEPTH,
                         .weight = (const uint32_t *)(const void *)weight + first,
                         .weight_stride = TRIED_WIDTH,
                         .results = to,
                         .column = first,
                         .columns = columns};
        tile_products(set, (columns + set->lanes - 1) / set->lanes, TRIED_ROWS, &call, weight, 0);
    }
}

static bool agree(const TileSet *set, const TileSet *plain, bool pairs) {
    uint32_t wanted[TRIED_ROWS][TRIED_WIDTH], found[TRIED_ROWS][TRIED_WIDTH];
    try_set(plain, pairs, wanted);
    try_set(set, pairs, found);
    return memcmp(wanted, found, sizeof wanted) == 0;
}

bool tile_quads_agree(const TileSet *set) { return agree(set, &tile_quads_base, false); }
bool tile_pairs_agree(const TileSet *set) { return agree(set, &tile_pairs_base, true); }

/* A row in two blocks, of which the second ends early; scales are 1 and columns have powers of two. */
enum { TRIED_BLOCK = 64, TRIED_BLOCKS_DEPTH = 100, TRIED_BLOCK_BYTES = sizeof(RoundedHead) + TRIED_BLOCK };

/* Such a row's block as one in parts, of which any adds to its depth. */
static void try_parts(const char *block, WeightKind kind, uint16_t parts[ROW_PARTS][TRIED_BLOCK]) {
    const int word = weight_word(kind);
    memset(parts, 0, sizeof(uint16_t[ROW_PARTS][TRIED_BLOCK]));
    for (int k = 0; k < TRIED_BLOCK; k++) {
        const int in = k % word, quads = word / 4;
        const signed char byte =
            (signed char)block[sizeof(RoundedHead) + (size_t)(k - in + 4 * (in % quads) + in / quads)];
        parts[k % ROW_PARTS][k - in + in % (word / 2) * 2 + in / (word / 2)] = f32_to_bf16(byte);
    }
}

static void try_blocks(const TileBlocks *set, bool in_parts, float results[TRIED_ROWS][TRIED_WIDTH]) {
    static const WeightForm form = {WEIGHT_INT4, TRIED_BLOCK, false};
    const int word = weight_word(form.kind);
    _Alignas(64) char x[TRIED_ROWS][2 * TRIED_BLOCK_BYTES] = {{0}};
    _Alignas(64) uint16_t parts[TRIED_ROWS][2][ROW_PARTS][TRIED_BLOCK];
    uint32_t weight[2 + 2 * TRIED_BLOCK][TRIED_WIDTH];
    const void *rows[TRIED_ROWS];
    void *to[TRIED_ROWS];
    int at = 0;
    for (int i = 0; i < TRIED_ROWS; i++) {
        RoundedHead heads[2] = {{1, 0}, {1, 0}};
        for (int k = 0; k < TRIED_BLOCKS_DEPTH; k++) {
            const int b = k / TRIED_BLOCK;
            const int8_t byte = (int8_t)(uint8_t)tried(i * 5 + k, false);
            x[i][b * TRIED_BLOCK_BYTES + (int)sizeof(RoundedHead) + k % TRIED_BLOCK] = (char)byte;
            heads[b].start -= weight_zero(form.kind) * byte;
        }
        for (int b = 0; b < 2; b++) {
            memcpy(x[i] + b * TRIED_BLOCK_BYTES, &heads[b], sizeof heads[b]);
            if (in_parts) try_parts(x[i] + b * TRIED_BLOCK_BYTES, form.kind, parts[i][b]);
        }
        rows[i] = in_parts ? (const void *)parts[i] : x[i];
        to[i] = results[i];
    }
    for (int k = 0; k < TRIED_BLOCKS_DEPTH; k += word, at++) {
        const float scales[] = {1, 0.5f, -2};
        if (k % TRIED_BLOCK == 0) {
            for (int j = 0; j < TRIED_WIDTH; j++) memcpy(&weight[at][j], &scales[(j + k) % 3], sizeof(float));
            at++;
        }
        for (int j = 0; j < TRIED_WIDTH; j++)
            weight[at][j] = (uint32_t)tried(k * 11 + j * 2, false) << 16 | tried(k * 3 + j, false);
    }
    memset(results, 0, sizeof(float[TRIED_ROWS][TRIED_WIDTH]));
    for (int first = 0, count; first < TRIED_ROWS; first += count) {
        count = TRIED_ROWS - first < set->rows ? TRIED_ROWS - first : set->rows;
        (in_parts ? set->parts[form.kind] : set->products[form.kind][count])(&(TileCall){.rows = rows + first,
                                                                                         .row_count = count,
                                                                                         .taps = 1,
                                                                                         .depth = TRIED_BLOCKS_DEPTH,
                                                                                         .weight = weight,
                                                                                         .weight_stride = TRIED_WIDTH,
                                                                                         .form = &form,
                                                                                         .results = to + first,
                                                                                         .columns = TRIED_COLUMNS});
    }
}

bool tile_blocks_agree(const TileBlocks *set) {
    float wanted[TRIED_ROWS][TRIED_WIDTH], found[TRIED_ROWS][TRIED_WIDTH];
    try_blocks(&tile_blocks_base, false, wanted);
    try_blocks(set, false, found);
    bool same = memcmp(wanted, found, sizeof wanted) == 0;
    if (same && set->parts[WEIGHT_INT4]) try_blocks(set, true, found);
    return same && memcmp(wanted, found, sizeof wanted) == 0;
}

/* ---- the sets of narrow numbers ---- */

#if defined(__x86_64__) || defined(__aarch64__)
/* This project has had these under emulators alone: where they do not give what plain C gives, they are left alone. */
typedef struct Untried {
    const char *name;
    bool (*there)(void);
    bool (*agrees)(const TileSet *set);
    const TileSet *set;
    const TileBlocks *blocks; /* of the same instructions; NULL: none */
    _Atomic int known;        /* 1: not used, 2: used; 0: not asked yet */
} Untried;

static bool works(Untried *u) {
    int answer = u->known;
    if (!answer) {
        const bool there = u->there();
        u->known = answer = 1 + (there && u->agrees(u->set) && (!u->blocks || tile_blocks_agree(u->blocks)));
        if (answer == 1 && there) LOG(1, "%s is not used: its products are wrong", u->name);
    }
    return answer == 2;
}
#endif

#if defined(__x86_64__)
/* Blocks take both, which all processors have that have one. */
static bool has_amx(void) { return vector_has_amx_int8() && vector_has_amx_bf16(); }

static Untried amx_int8 = {"AMX-INT8", has_amx, tile_quads_agree, &tile_quads_amx, &tile_blocks_amx, 0},
               amx_bf16 = {"AMX-BF16", vector_has_amx_bf16, tile_pairs_agree, &tile_pairs_amx, NULL, 0};
#elif defined(__aarch64__)
static Untried i8mm = {"FEAT_I8MM", vector_has_i8mm, tile_quads_agree, &tile_quads_i8mm, NULL, 0},
               dot_product = {"FEAT_DotProd", vector_has_dot_product, tile_quads_agree, &tile_quads_dotprod, NULL, 0},
               bf16 = {"FEAT_BF16", vector_has_bf16, tile_pairs_agree, &tile_pairs_bf16, NULL, 0};
#endif

int tile_sets_of_quads(const TileSet *out_sets[5]) {
    int count = 0;
#if defined(__x86_64__)
    VectorIsa isa = vector_isa();
    if (isa == VECTOR_AVX512 && works(&amx_int8)) out_sets[count++] = &tile_quads_amx;
    if (isa == VECTOR_AVX512 && vector_has_vnni()) out_sets[count++] = &tile_quads_avx512vnni;
    if (isa != VECTOR_BASE && vector_has_avx_vnni()) out_sets[count++] = &tile_quads_avxvnni;
    if (isa != VECTOR_BASE) out_sets[count++] = &tile_quads_avx2;
#elif defined(__aarch64__)
    if (works(&i8mm)) out_sets[count++] = &tile_quads_i8mm;
    if (works(&dot_product)) out_sets[count++] = &tile_quads_dotprod;
#endif
    out_sets[count++] = &tile_quads_base;
    return count;
}

const TileSet *tile_set_quads(void) {
    const TileSet *sets[5];
    tile_sets_of_quads(sets);
    return sets[0];
}

bool tile_quads_in_pairs(void) {
#if defined(__x86_64__)
    return tile_set_quads() == &tile_quads_avx2;
#else
    return false;
#endif
}

TileWinograd tile_winograd(DType type) {
    const TileIsa *isa = tile_isa();
    if (type == DT_F32)
        return (TileWinograd){WINOGRAD_RESULTS, WINOGRAD_PIXELS, &isa->f32, isa->winograd_input, isa->winograd_output};
#if defined(__x86_64__)
    if (isa != &tile_base) return tile_winograd_words_avx2;
#endif
    return (TileWinograd){0};
}

int tile_sets_of_pairs(const TileSet *out_sets[5]) {
    int count = 0;
#if defined(__x86_64__)
    VectorIsa isa = vector_isa();
    if (isa == VECTOR_AVX512 && works(&amx_bf16)) out_sets[count++] = &tile_pairs_amx;
    if (isa == VECTOR_AVX512 && vector_has_bf16()) out_sets[count++] = &tile_pairs_avx512bf16;
    if (isa == VECTOR_AVX512) out_sets[count++] = &tile_pairs_avx512;
    if (isa != VECTOR_BASE) out_sets[count++] = &tile_pairs_avx2;
#elif defined(__aarch64__)
    if (works(&bf16)) out_sets[count++] = &tile_pairs_bf16;
#endif
    out_sets[count++] = &tile_pairs_base;
    return count;
}

const TileSet *tile_set_pairs(void) {
    const TileSet *sets[5];
    tile_sets_of_pairs(sets);
    return sets[0];
}

int tile_sets_of_blocks(const TileBlocks *out_sets[5]) {
    int count = 0;
#if defined(__x86_64__)
    VectorIsa isa = vector_isa();
    if (isa == VECTOR_AVX512 && vector_has_vnni() && works(&amx_int8)) out_sets[count++] = &tile_blocks_amx;
    if (isa == VECTOR_AVX512 && vector_has_vnni()) out_sets[count++] = &tile_blocks_avx512vnni;
    if (isa != VECTOR_BASE && vector_has_avx_vnni()) out_sets[count++] = &tile_blocks_avxvnni;
    if (isa != VECTOR_BASE) out_sets[count++] = &tile_blocks_avx2;
#elif defined(__aarch64__)
    if (vector_has_dot_product()) out_sets[count++] = &tile_blocks_dotprod;
#endif
    out_sets[count++] = &tile_blocks_base;
    return count;
}

const TileBlocks *tile_blocks(void) {
    const TileBlocks *sets[5];
    tile_sets_of_blocks(sets);
    return sets[0];
}
