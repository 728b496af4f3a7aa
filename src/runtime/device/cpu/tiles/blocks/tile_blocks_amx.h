/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_blocks.h with BLOCK_AMX: many rows in AMX's registers (amx_registers.h). Up to 64 depths of a block are one product of bytes
 * that are both signed: the weight's are less what stands for 0, so that sums begin at 0. A block's sums go through memory, where scales are
 * those of their row and column: the same sums as of few rows, and in the same order. */

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
    VU sums[AMX_HIGH][AMX_VECTORS];             /* of a block */
    VU weight[AMX_PAIRS][AMX_VECTORS];
    uint32_t rows[AMX_HIGH][AMX_PAIRS]; /* of those that are not equally spaced */
} AmxBlocks;

/* Words of the columns as rows of signed bytes, a quad each, `count` rows in all. */
static const char *amx_unpack(const char *words, int64_t row, int nv, int count, int filled, const WeightKind kind,
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
static void amx_add_block(const TileCall *call, const char *scales, int64_t row, const char *const *x, int nv,
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

/* Up to AMX_WIDE columns, from `first` on. depth: elements of four bytes of a block that are multiplied at once. */
static void amx_columns(const TileCall *call, int first, int64_t bytes, int depth, const WeightKind kind) {
    AmxBlocks m;
    const int64_t row = call->weight_stride * (int64_t)sizeof(float), block = call->form->block,
                  spacing = amx_spacing(call->rows, call->row_count);
    const int columns = call->columns - first < AMX_WIDE ? call->columns - first : AMX_WIDE;
    const int nv = (columns + LANES - 1) / LANES, word = weight_word(kind);
    const bool high = call->row_count > AMX_ROWS, wide = columns > AMX_PAIRS;
    const char *at = (const char *)call->weight + first * (int64_t)sizeof(float), *x[AMX_HIGH];
    memset(m.all, 0, sizeof m.all);
    memset(m.weight, 0, sizeof m.weight);
    for (int i = 0; i < call->row_count; i++) x[i] = (const char *)call->rows[i] + call->offset / block * bytes;
    for (int64_t left = call->depth; left > 0; left -= block) {
        const char *scales = at;
        const int64_t end = left < block ? left : block;
        at += row * (1 + call->form->zeros);
        amx_begin();
        for (int64_t k = 0; k < end; k += 4 * depth) {
            const int64_t words = (end - k + word - 1) / word * (word / 4);
            const size_t from = sizeof(RoundedHead) + (size_t)k;
            at = amx_unpack(at, row, nv, depth, words < depth ? (int)words : depth, kind, &m);
            if (spacing) {
                amx_step(x[0] + from, spacing, (const char *)m.weight, sizeof m.weight[0], high, wide);
                continue;
            }
            for (int i = 0; i < call->row_count; i++) memcpy(m.rows[i], x[i] + from, (size_t)depth * 4);
            amx_step((const char *)m.rows, sizeof m.rows[0], (const char *)m.weight, sizeof m.weight[0], high, wide);
        }
        amx_end(m.sums, high, wide);
        amx_add_block(call, scales, row, x, nv, kind, &m);
        for (int i = 0; i < call->row_count; i++) x[i] += bytes;
    }
    f32_Limits limits;
    f32_limits(&limits, &call->bounds);
    for (int i = 0; i < call->row_count; i++)
        for (int j = 0; j < nv; j++) {
            VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS] = {{m.all[i][j]}};
            const int last = columns - j * LANES;
            f32_finish(call, &limits, call->results + i, call->column + first + j * LANES, acc, 1, 1,
                       last < LANES ? last : LANES);
        }
}

static void amx_blocks(const TileCall *call, const WeightKind kind) {
    const int64_t block = call->form->block;
    const int depth = block < 4 * AMX_PAIRS ? (int)block / 4 : AMX_PAIRS;
    amx_shape(call->row_count, depth);
    for (int first = 0; first < call->columns; first += AMX_WIDE)
        amx_columns(call, first, rounded_block_bytes(block, false), depth, kind);
}

static void amx_blocks_int8(const TileCall *call) { amx_blocks(call, WEIGHT_INT8); }
static void amx_blocks_int4(const TileCall *call) { amx_blocks(call, WEIGHT_INT4); }
static void amx_blocks_int2(const TileCall *call) { amx_blocks(call, WEIGHT_INT2); }
