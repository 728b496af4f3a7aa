/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_blocks.h with BLOCK_AMX: many rows in AMX's registers (amx_registers.h). Up to 64 depths of a block are one product of bytes
 * that are both signed: the weight's are less what stands for 0, so that sums begin at 0. A block's sums go through memory, where scales are
 * those of their row and column: the same sums as of few rows, and in the same order.
 *
 * Rows of f32 are three parts of bf16 (tile.h), of which each is multiplied by the same whole numbers of the weight, which bf16 holds, and added to
 * the same sums, the least first: three products of 512 multiply-adds a cycle, where f32's vectors have 32. */

#ifdef TILE_AMX_PLAIN
static void amx_add_product(uint32_t *sum, const uint32_t *row, const uint32_t *column) {
    for (int k = 0; k < 16; k++)
        for (int b = 0; b < 32; b += 8)
            *sum += (uint32_t)((int8_t)(uint8_t)(row[k] >> b & 255) * (int8_t)(uint8_t)(column[k] >> b & 255));
}
#endif
#define AMX_PRODUCT(c, a, b) _tile_dpbssd(c, a, b)
#include "runtime/device/cpu/tiles/amx_registers.h"

enum { AMX_HIGH = 2 * AMX_ROWS, AMX_WIDE = 2 * AMX_PAIRS, AMX_VECTORS = AMX_WIDE / LANES };

/* They are multiplied as signed ones: differences wrap. */
typedef uint8_t AmxBytes __attribute__((vector_size(VECTOR_BYTES)));

typedef struct AmxBlocks {
    _Alignas(64) VF all[AMX_HIGH][AMX_VECTORS]; /* sums of all blocks so far */
    VU sums[AMX_HIGH][AMX_VECTORS];             /* of a block; of rows in parts floats */
    VU weight[AMX_PAIRS][AMX_VECTORS];
    uint32_t rows[AMX_HIGH][AMX_PAIRS]; /* of those that are not equally spaced */
} AmxBlocks;

/* What of a tile a call of columns meets. */
typedef struct AmxColumns {
    int first, count, vectors;
    bool high, wide;
    int depth; /* elements of four bytes of a block that are multiplied at once */
} AmxColumns;

/* Words of the columns as rows of signed bytes, a quad each, `count` rows in all. */
TILE_INLINE const char *amx_unpack(const char *words, int64_t row, int nv, int count, int filled, const WeightKind kind,
                                   AmxBlocks *m) {
    const int quads = weight_word(kind) / 4;
    const VU mask = blocks_mask(kind) - (VU){0};
    const AmxBytes zero = (uint8_t)weight_zero(kind) - (AmxBytes){0};
    if (filled < count) memset(m->weight[filled], 0, (size_t)(count - filled) * sizeof m->weight[0]);
    for (int k = 0; k < filled; k += quads, words += row)
        for (int j = 0; j < nv; j++) {
            const VU word = *(const VULoose *)(const void *)(words + j * VECTOR_BYTES);
            TILE_UNROLL
            for (int q = 0; q < quads; q++)
                m->weight[k + q][j] = (VU)((AmxBytes)(word >> (uint32_t)(8 / quads * q) & mask) - zero);
        }
    return words;
}

/* The block's sums by the scales of its columns, which points follow, and those of rows at `x`. */
TILE_INLINE void amx_add_block(const TileCall *call, const char *scales, int64_t row, const char *const *x, int nv,
                               const WeightKind kind, AmxBlocks *m) {
    const float zero = (float)weight_zero(kind);
    const bool zeros = call->form->zeros;
    for (int j = 0; j < nv; j++) {
        const VF column = *(const VFLoose *)(const void *)(scales + j * VECTOR_BYTES);
        VF point = {0};
        if (zeros) point = *(const VFLoose *)(const void *)(scales + row + j * VECTOR_BYTES) / zero;
        for (int i = 0; i < call->row_count; i++) {
            VF sum = __builtin_convertvector((VI)m->sums[i][j], VF);
            if (zeros) {
                VI start = (VI)blocks_spread(x[i] + offsetof(RoundedHead, start));
                sum += __builtin_convertvector(start, VF) * point;
            }
            m->all[i][j] += sum * (column * (VF)blocks_spread(x[i]));
        }
    }
}

static AmxColumns amx_columns_of(const TileCall *call, int first, int depth) {
    const int count = call->columns - first < AMX_WIDE ? call->columns - first : AMX_WIDE;
    return (AmxColumns){first, count, (count + LANES - 1) / LANES, call->row_count > AMX_ROWS, count > AMX_PAIRS,
                        depth};
}

/* Rows' blocks at the call's offset, of so many bytes each. */
static void amx_begin_rows(const TileCall *call, int64_t bytes, const char *x[AMX_HIGH]) {
    for (int i = 0; i < call->row_count; i++)
        x[i] = (const char *)call->rows[i] + call->offset / call->form->block * bytes;
}

/* Where `count` elements of the rows are, equally spaced by *spacing, once more if they are not so where they stand. */
static const char *amx_rows_at(const TileCall *call, const char *const *x, int64_t from, int count, int64_t *spacing,
                               AmxBlocks *m) {
    if (*spacing) return x[0] + from;
    for (int i = 0; i < call->row_count; i++) memcpy(m->rows[i], x[i] + from, (size_t)count * sizeof m->rows[0][0]);
    *spacing = sizeof m->rows[0];
    return (const char *)m->rows;
}

static void amx_finish_columns(const TileCall *call, const AmxColumns *c, const AmxBlocks *m) {
    f32_Limits limits;
    f32_limits(&limits, &call->bounds);
    for (int i = 0; i < call->row_count; i++)
        for (int j = 0; j < c->vectors; j++) {
            VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS] = {{m->all[i][j]}};
            const int last = c->count - j * LANES;
            f32_finish(call, &limits, call->results + i, call->column + c->first + j * LANES, acc, 1, 1,
                       last < LANES ? last : LANES);
        }
}

/* ---- rows rounded to bytes ---- */

TILE_INLINE void amx_columns(const TileCall *call, const AmxColumns *c, const WeightKind kind) {
    AmxBlocks m;
    const int64_t row = call->weight_stride * (int64_t)sizeof(float), block = call->form->block,
                  bytes = rounded_block_bytes(block, false), spacing = amx_spacing(call->rows, call->row_count);
    const int word = weight_word(kind);
    const char *at = (const char *)call->weight + c->first * (int64_t)sizeof(float), *x[AMX_HIGH];
    memset(m.all, 0, sizeof m.all);
    memset(m.weight, 0, sizeof m.weight);
    amx_begin_rows(call, bytes, x);
    for (int64_t left = call->depth; left > 0; left -= block) {
        const char *scales = at;
        const int64_t end = left < block ? left : block;
        at += row * (1 + call->form->zeros);
        amx_begin();
        for (int64_t k = 0; k < end; k += 4 * c->depth) {
            const int64_t words = (end - k + word - 1) / word * (word / 4);
            int64_t step = spacing;
            at = amx_unpack(at, row, c->vectors, c->depth, words < c->depth ? (int)words : c->depth, kind, &m);
            const char *rows = amx_rows_at(call, x, (int64_t)sizeof(RoundedHead) + k, c->depth, &step, &m);
            amx_step(rows, step, (const char *)m.weight, sizeof m.weight[0], c->high, c->wide);
        }
        amx_end(m.sums, c->high, c->wide);
        amx_add_block(call, scales, row, x, c->vectors, kind, &m);
        for (int i = 0; i < call->row_count; i++) x[i] += bytes;
    }
    amx_finish_columns(call, c, &m);
}

TILE_INLINE void amx_blocks(const TileCall *call, const WeightKind kind) {
    const int64_t block = call->form->block;
    const int depth = block < 4 * AMX_PAIRS ? (int)block / 4 : AMX_PAIRS;
    amx_shape(call->row_count, depth);
    for (int first = 0; first < call->columns; first += AMX_WIDE) {
        const AmxColumns columns = amx_columns_of(call, first, depth);
        amx_columns(call, &columns, kind);
    }
}

static void amx_blocks_int8(const TileCall *call) { amx_blocks(call, WEIGHT_INT8); }
static void amx_blocks_int4(const TileCall *call) { amx_blocks(call, WEIGHT_INT4); }
static void amx_blocks_int2(const TileCall *call) { amx_blocks(call, WEIGHT_INT2); }

/* ---- rows in parts ---- */

/* Two numbers of a weight in the halves of each lane, less what stands for 0, as bf16. All of them have 8 bits at most, so that the lower half of
 * their f32 is 0. */
TILE_INLINE VU amx_pair(VU numbers, const WeightKind kind) {
#if VECTOR_BYTES == 64
    static const uint16_t four_bits[32] = {0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80,
                                           0,      0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0},
                          two_bits[32] = {0xc000, 0xbf80, 0, 0x3f80};
    if (kind != WEIGHT_INT8)
        return (VU)_mm512_permutexvar_epi16((__m512i)numbers,
                                            _mm512_loadu_si512(kind == WEIGHT_INT4 ? four_bits : two_bits));
#endif
    const VF zero = (float)weight_zero(kind) - (VF){0}, low = __builtin_convertvector((VI)(numbers & 0xffff), VF),
             high = __builtin_convertvector((VI)(numbers >> 16), VF);
    return (VU)(low - zero) >> 16 | (VU)(high - zero);
}

/* Words of the columns as rows of pairs, `count` of them in all, as rows in parts meet them. */
TILE_INLINE const char *amx_unpack_pairs(const char *words, int64_t row, int nv, int count, int filled,
                                         const WeightKind kind, AmxBlocks *m) {
    const int pairs = weight_word(kind) / 2;
    const VU mask = 0x00010001u * ((1u << 16 / pairs) - 1) - (VU){0};
    if (filled < count) memset(m->weight[filled], 0, (size_t)(count - filled) * sizeof m->weight[0]);
    for (int k = 0; k < filled; k += pairs, words += row)
        for (int j = 0; j < nv; j++) {
            const VU word = *(const VULoose *)(const void *)(words + j * VECTOR_BYTES);
            TILE_UNROLL
            for (int p = 0; p < pairs; p++)
                m->weight[k + p][j] = amx_pair(word >> (uint32_t)(16 / pairs * p) & mask, kind);
        }
    return words;
}

/* A register's depth of a part of the rows by the pairs of the weight, which are there. */
TILE_INLINE void amx_step_part(const char *rows, int64_t spacing, const AmxColumns *c) {
    AMX_LOAD(4, rows, spacing);
    if (c->high) AMX_LOAD(5, rows + AMX_ROWS * spacing, spacing);
    AMX_DOT_PAIRS(0, 4, 6);
    if (c->wide) AMX_DOT_PAIRS(2, 4, 7);
    if (c->high) AMX_DOT_PAIRS(1, 5, 6);
    if (c->high && c->wide) AMX_DOT_PAIRS(3, 5, 7);
}

/* The block's sums, and what their zero points come to, by the scales of the columns. */
TILE_INLINE void amx_add_parts(const TileCall *call, const char *scales, int64_t row, const char *const *x, int nv,
                               AmxBlocks *m) {
    const int64_t at = parts_sum_at(call->form->block);
    const bool zeros = call->form->zeros;
    for (int j = 0; j < nv; j++) {
        const VF scale = *(const VFLoose *)(const void *)(scales + j * VECTOR_BYTES);
        VF point = {0};
        if (zeros) point = *(const VFLoose *)(const void *)(scales + row + j * VECTOR_BYTES);
        for (int i = 0; i < call->row_count; i++) {
            VF sum = (VF)m->sums[i][j];
            if (zeros) sum -= (VF)blocks_spread(x[i] + at) * point;
            m->all[i][j] += sum * scale;
        }
    }
}

TILE_INLINE void amx_columns_parts(const TileCall *call, const AmxColumns *c, const WeightKind kind) {
    AmxBlocks m;
    const int64_t row = call->weight_stride * (int64_t)sizeof(float), block = call->form->block,
                  bytes = parts_block_bytes(call->form), spacing = amx_spacing(call->rows, call->row_count);
    const int word = weight_word(kind);
    const char *at = (const char *)call->weight + c->first * (int64_t)sizeof(float), *x[AMX_HIGH];
    memset(m.all, 0, sizeof m.all);
    memset(m.weight, 0, sizeof m.weight);
    amx_begin_rows(call, bytes, x);
    for (int64_t left = call->depth; left > 0; left -= block) {
        const char *scales = at;
        const int64_t end = left < block ? left : block;
        at += row * (1 + call->form->zeros);
        amx_begin();
        for (int64_t k = 0; k < end; k += 2 * c->depth) {
            const int64_t pairs = (end - k + word - 1) / word * (word / 2);
            at = amx_unpack_pairs(at, row, c->vectors, c->depth, pairs < c->depth ? (int)pairs : c->depth, kind, &m);
            AMX_LOAD(6, m.weight, sizeof m.weight[0]);
            if (c->wide) AMX_LOAD(7, (const char *)m.weight + AMX_PAIRS * 4, sizeof m.weight[0]);
            for (int part = ROW_PARTS - 1; part >= 0; part--) {
                int64_t step = spacing;
                const char *rows = amx_rows_at(call, x, (part * block + k) * 2, c->depth, &step, &m);
                amx_step_part(rows, step, c);
            }
        }
        amx_end(m.sums, c->high, c->wide);
        amx_add_parts(call, scales, row, x, c->vectors, &m);
        for (int i = 0; i < call->row_count; i++) x[i] += bytes;
    }
    amx_finish_columns(call, c, &m);
}

TILE_INLINE void amx_parts(const TileCall *call, const WeightKind kind) {
    const int64_t block = call->form->block;
    const int depth = block < 2 * AMX_PAIRS ? (int)block / 2 : AMX_PAIRS;
    amx_shape(call->row_count, depth);
    for (int first = 0; first < call->columns; first += AMX_WIDE) {
        const AmxColumns columns = amx_columns_of(call, first, depth);
        amx_columns_parts(call, &columns, kind);
    }
}

static void amx_parts_int8(const TileCall *call) { amx_parts(call, WEIGHT_INT8); }
static void amx_parts_int4(const TileCall *call) { amx_parts(call, WEIGHT_INT4); }
static void amx_parts_int2(const TileCall *call) { amx_parts(call, WEIGHT_INT2); }
