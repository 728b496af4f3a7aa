/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_amx.h and blocks/tile_blocks_amx.h: AMX's registers of 16 rows of 64 bytes. Wants
 *   AMX_PRODUCT(c, a, b)              the instruction
 *   amx_add_product(sum, a, b)        where TILE_AMX_PLAIN: what it adds to a sum for a row and a column, AMX_PAIRS elements of each
 * and, of pairs of bf16, TDPBF16PS is AMX_DOT_PAIRS and amx_add_pairs.
 *
 * 32 rows by 32 columns of sums are four registers, so that two loads of rows and two of weights feed four products. An element of the depth is
 * four bytes: two halves or four numbers of 8 bits.
 *
 * TILE_AMX_PLAIN: with the registers in plain memory, which tests run on any machine. */

enum { AMX_ROWS = 16, AMX_PAIRS = 16 }; /* AMX_PAIRS: elements of four bytes */

#ifdef TILE_AMX_PLAIN
typedef struct AmxPlain {
    int rows, width; /* width: elements */
    uint32_t data[AMX_ROWS][AMX_PAIRS];
} AmxPlain;
static _Thread_local AmxPlain amx_plain[8];

static void amx_heights(int even, int odd, int depth) {
    for (int t = 0; t < 8; t++) {
        amx_plain[t].rows = t > 5 ? depth : t % 2 ? odd : even;
        amx_plain[t].width = t == 4 || t == 5 ? depth : AMX_PAIRS;
    }
}

static void amx_zero(int t) { memset(amx_plain[t].data, 0, sizeof amx_plain[t].data); }

static void amx_load(int t, const void *from, int64_t stride) {
    amx_zero(t);
    for (int i = 0; i < amx_plain[t].rows; i++)
        memcpy(amx_plain[t].data[i], (const char *)from + i * stride, (size_t)amx_plain[t].width * sizeof(uint32_t));
}

static void amx_store(int t, void *to, int64_t stride) {
    for (int i = 0; i < amx_plain[t].rows; i++)
        memcpy((char *)to + i * stride, amx_plain[t].data[i], sizeof amx_plain[t].data[i]);
}

static float amx_half(uint32_t pair, int odd) {
    uint32_t bits = odd ? pair & 0xffff0000 : pair << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x > -0x1p-126f && x < 0x1p-126f ? 0 : x; /* subnormal ones */
}

/* The first and the second products of pairs are summed apart (Intel's manual, volume 2, TDPBF16PS). */
static void amx_add_pairs(uint32_t *sum, const uint32_t *row, const uint32_t *column) {
    float sums[2] = {0, 0}, all;
    memcpy(&all, sum, sizeof all);
    for (int k = 0; k < AMX_PAIRS; k++)
        for (int h = 0; h < 2; h++) sums[h] += amx_half(row[k], h) * amx_half(column[k], h);
    all += sums[0] + sums[1];
    memcpy(sum, &all, sizeof all);
}

static void amx_dot(int c, int a, int b, bool pairs) {
    for (int i = 0; i < amx_plain[c].rows; i++)
        for (int j = 0; j < AMX_PAIRS; j++) {
            uint32_t column[AMX_PAIRS];
            for (int k = 0; k < AMX_PAIRS; k++) column[k] = amx_plain[b].data[k][j];
            (pairs ? amx_add_pairs : amx_add_product)(&amx_plain[c].data[i][j], amx_plain[a].data[i], column);
        }
}

#define AMX_ZERO(t) amx_zero(t)
#define AMX_LOAD(t, from, stride) amx_load(t, from, stride)
#define AMX_STORE(t, to, stride) amx_store(t, to, stride)
#define AMX_DOT(c, a, b) amx_dot(c, a, b, false)
#define AMX_DOT_PAIRS(c, a, b) amx_dot(c, a, b, true)
#else
typedef struct AmxShape {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} AmxShape;
_Static_assert(sizeof(AmxShape) == 64, "as LDTILECFG reads it");

/* 0 to 3: sums; 4, 5: rows, of the same heights; 6, 7: weights. depth: elements of the rows, at most AMX_PAIRS. Whoever else uses them in
 * this thread shapes them, too. */
static void amx_heights(int even, int odd, int depth) {
    AmxShape shape = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        shape.row_bytes[t] = (uint16_t)(4 * (t == 4 || t == 5 ? depth : AMX_PAIRS));
        shape.rows[t] = (uint8_t)(t > 5 ? depth : t % 2 ? odd : even);
    }
    _tile_loadconfig(&shape);
}

#define AMX_ZERO(t) _tile_zero(t)
#define AMX_LOAD(t, from, stride) _tile_loadd(t, from, (size_t)(stride))
#define AMX_STORE(t, to, stride) _tile_stored(t, to, (size_t)(stride))
#define AMX_DOT(c, a, b) AMX_PRODUCT(c, a, b)
#define AMX_DOT_PAIRS(c, a, b) _tile_dpbf16ps(c, a, b)
#endif

/* For up to twice AMX_ROWS rows, by elements of the depth. */
static void amx_shape(int rows, int depth) {
    const int odd = rows > AMX_ROWS ? rows - AMX_ROWS : 0;
    amx_heights(rows - odd, odd ? odd : AMX_ROWS, depth);
}

/* Sums of 0. */
TILE_INLINE void amx_begin(void) {
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
}

/* The sums, to rows of 2 * AMX_PAIRS elements; of one or two heights and widths. */
TILE_INLINE void amx_end(void *sums, bool high, bool wide) {
    enum { STEP = 2 * AMX_PAIRS * 4 };
    char *to = sums;
    AMX_STORE(0, to, STEP);
    if (high) AMX_STORE(1, to + AMX_ROWS * STEP, STEP);
    if (wide) AMX_STORE(2, to + AMX_PAIRS * 4, STEP);
    if (high && wide) AMX_STORE(3, to + AMX_ROWS * STEP + AMX_PAIRS * 4, STEP);
}

/* How far apart, in bytes, rows that follow each other in memory as they are begin; 0: they do not. */
static int64_t amx_spacing(const void *const *rows, int count) {
    int64_t step = count > 1 ? (const char *)rows[1] - (const char *)rows[0] : 64;
    for (int i = 1; i < count; i++)
        if ((const char *)rows[i] - (const char *)rows[0] != i * step) return 0;
    return step;
}

/* A register's depth of one or two heights of rows by one or two widths of columns. */
TILE_INLINE void amx_step(const char *rows, int64_t row_step, const char *weight, int64_t weight_step, bool high,
                          bool wide) {
    AMX_LOAD(4, rows, row_step);
    AMX_LOAD(6, weight, weight_step);
    AMX_DOT(0, 4, 6);
    if (high) {
        AMX_LOAD(5, rows + AMX_ROWS * row_step, row_step);
        AMX_DOT(1, 5, 6);
    }
    if (wide) {
        AMX_LOAD(7, weight + AMX_PAIRS * 4, weight_step);
        AMX_DOT(2, 4, 7);
    }
    if (high && wide) AMX_DOT(3, 5, 7);
}
