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

/* Numbers of an element of four bytes. */
TILE_INLINE int amx_numbers(const bool parts) { return parts ? 2 : 4; }

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

/* Words of the columns as rows of `count` elements: signed bytes, a quad each, or as rows in parts meet them. */
TILE_INLINE const char *amx_unpack(const char *words, int64_t row, int nv, int count, int filled, const WeightKind kind,
                                   const bool parts, AmxBlocks *m) {
    const int word = weight_word(kind), elements = word / amx_numbers(parts);
    const VU bytes = blocks_mask(kind) - (VU){0}, halves = 0x00010001u * ((1u << 32 / word) - 1) - (VU){0};
    const AmxBytes zero = (uint8_t)weight_zero(kind) - (AmxBytes){0};
    if (filled < count) memset(m->weight[filled], 0, (size_t)(count - filled) * sizeof m->weight[0]);
    for (int k = 0; k < filled; k += elements, words += row)
        for (int j = 0; j < nv; j++) {
            const VU loaded = *(const VULoose *)(const void *)(words + j * VECTOR_BYTES);
            TILE_UNROLL
            for (int e = 0; e < elements; e++) {
                const VU numbers = loaded >> (uint32_t)(32 / word * e);
                m->weight[k + e][j] =
                    parts ? amx_pair(numbers & halves, kind) : (VU)((AmxBytes)(numbers & bytes) - zero);
            }
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

/* All parts of the rows from depth k of their block on by what is unpacked, which is loaded once. */
TILE_INLINE void amx_step_parts(const TileCall *call, const AmxColumns *c, const char *const *x, int64_t k,
                                int64_t spacing, AmxBlocks *m) {
    AMX_LOAD(6, m->weight, sizeof m->weight[0]);
    if (c->wide) AMX_LOAD(7, (const char *)m->weight + AMX_PAIRS * 4, sizeof m->weight[0]);
    for (int part = ROW_PARTS - 1; part >= 0; part--) {
        int64_t step = spacing;
        const char *rows = amx_rows_at(call, x, (part * call->form->block + k) * 2, c->depth, &step, m);
        AMX_LOAD(4, rows, step);
        if (c->high) AMX_LOAD(5, rows + AMX_ROWS * step, step);
        AMX_DOT_PAIRS(0, 4, 6);
        if (c->wide) AMX_DOT_PAIRS(2, 4, 7);
        if (c->high) AMX_DOT_PAIRS(1, 5, 6);
        if (c->high && c->wide) AMX_DOT_PAIRS(3, 5, 7);
    }
}

TILE_INLINE void amx_columns(const TileCall *call, const AmxColumns *c, const WeightKind kind, const bool parts) {
    AmxBlocks m;
    const int64_t row = call->weight_stride * (int64_t)sizeof(float), block = call->form->block,
                  bytes = parts ? parts_block_bytes(call->form) : rounded_block_bytes(block, false),
                  spacing = amx_spacing(call->rows, call->row_count);
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
        for (int64_t k = 0; k < end; k += amx_numbers(parts) * c->depth) {
            const int64_t filled = (end - k + word - 1) / word * (word / amx_numbers(parts));
            at = amx_unpack(at, row, c->vectors, c->depth, filled < c->depth ? (int)filled : c->depth, kind, parts, &m);
            if (parts) {
                amx_step_parts(call, c, x, k, spacing, &m);
                continue;
            }
            int64_t step = spacing;
            const char *rows = amx_rows_at(call, x, (int64_t)sizeof(RoundedHead) + k, c->depth, &step, &m);
            amx_step(rows, step, (const char *)m.weight, sizeof m.weight[0], c->high, c->wide);
        }
        amx_end(m.sums, c->high, c->wide);
        if (parts)
            amx_add_parts(call, scales, row, x, c->vectors, &m);
        else
            amx_add_block(call, scales, row, x, c->vectors, kind, &m);
        for (int i = 0; i < call->row_count; i++) x[i] += bytes;
    }
    amx_finish_columns(call, c, &m);
}

TILE_INLINE void amx_blocks(const TileCall *call, const WeightKind kind, const bool parts) {
    const int whole = amx_numbers(parts) * AMX_PAIRS, block = call->form->block,
              depth = (block < whole ? block : whole) / amx_numbers(parts);
    amx_shape(call->row_count, depth);
    for (int first = 0; first < call->columns; first += AMX_WIDE) {
        const AmxColumns columns = amx_columns_of(call, first, depth);
        amx_columns(call, &columns, kind, parts);
    }
}

static void amx_blocks_int8(const TileCall *call) { amx_blocks(call, WEIGHT_INT8, false); }
static void amx_blocks_int4(const TileCall *call) { amx_blocks(call, WEIGHT_INT4, false); }
static void amx_blocks_int2(const TileCall *call) { amx_blocks(call, WEIGHT_INT2, false); }
static void amx_parts_int8(const TileCall *call) { amx_blocks(call, WEIGHT_INT8, true); }
static void amx_parts_int4(const TileCall *call) { amx_blocks(call, WEIGHT_INT4, true); }
static void amx_parts_int2(const TileCall *call) { amx_blocks(call, WEIGHT_INT2, true); }
