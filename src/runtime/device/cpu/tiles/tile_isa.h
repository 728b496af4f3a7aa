/* SPDX-License-Identifier: Apache-2.0 */
/* Included once an instruction set: defines the TileIsa tile_<ISA>. Wants
 *   ISA           the set's name
 *   ISA_TARGET    the compiler's feature string; not defined for the architecture's least
 *   VECTOR_BYTES  a register's size
 *   REGISTERS     how many there are */
#include <math.h>
#include <string.h>
#include "runtime/device/cpu/tiles/tile_unit.h"

enum { LANES = VECTOR_BYTES / 4 };

#define SELECT(mask, yes, no) (((mask) & (yes)) | (~(mask) & (no)))
typedef double VD __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t VL __attribute__((vector_size(VECTOR_BYTES)));

TILE_INLINE VD f64_clamp(VD x, VD low, VD high) {
    x = (VD)SELECT((VL)(x < low), (VL)low, (VL)x);
    return (VD)SELECT((VL)(x > high), (VL)high, (VL)x);
}

#if VECTOR_BYTES == 32
/* low += x * first, high += x * second for element `at` + number of the row, `number` a literal below TILE_PAIR_DEPTHS. With 16
 * registers there is one left beside six rows' sums and two vectors of the weight, and GCC 12 wants more: it moves sums about, puts one
 * into memory and counts in a register a depth. Where another thread shares the core, each instruction less is time. */
#ifdef __OPTIMIZE__ /* else a product and a sum in C are two roundings */
#define TILE_ADD_TO_PAIR(low, high, row, at, number, first, second)                                                    \
    do {                                                                                                               \
        VF spread;                                                                                                     \
        __asm__ volatile("vbroadcastss 4*" #number "(%3,%4,4), %2\n\t"                                                 \
                         "vfmadd231ps %5, %2, %0\n\t"                                                                  \
                         "vfmadd231ps %6, %2, %1"                                                                      \
                         : "+x"(low), "+x"(high), "=&x"(spread)                                                        \
                         : "r"(row), "r"(at), "x"(first), "x"(second)                                                  \
                         : "memory");                                                                                  \
    } while (0)

/* A sum times its gate (`bounded`), by limits in memory. Beside the sums of six rows and two numbers in registers there are two left, and
 * GCC 12 wants all numbers and all products in some: sums went to memory and came back. */
#define TILE_GATE(x, limits)                                                                                           \
    do {                                                                                                               \
        VF gate;                                                                                                       \
        __asm__("vmulps %[scale], %[sum], %[gate]\n\t"                                                                 \
                "vaddps %[shift], %[gate], %[gate]\n\t"                                                                \
                "vmaxps %[gate], %[low], %[gate]\n\t"                                                                  \
                "vminps %[gate], %[high], %[gate]\n\t"                                                                 \
                "vmulps %[gate], %[sum], %[sum]"                                                                       \
                : [sum] "+x"(x), [gate] "=&x"(gate)                                                                    \
                : [scale] "m"((limits)->scale), [shift] "m"((limits)->shift), [low] "x"((limits)->low),                \
                  [high] "x"((limits)->high));                                                                         \
    } while (0)
#define TILE_GATE_END(x, limits)                                                                                       \
    do {                                                                                                               \
        VF part;                                                                                                       \
        __asm__("vmulps %[rest], %[sum], %[part]\n\t"                                                                  \
                "vfmadd132ps %[inverse], %[part], %[sum]\n\t"                                                          \
                "vmulps %[factor], %[sum], %[sum]\n\t"                                                                 \
                "vaddps %[addend], %[sum], %[sum]"                                                                     \
                : [sum] "+x"(x), [part] "=&x"(part)                                                                    \
                : [inverse] "m"((limits)->inverse), [rest] "m"((limits)->rest), [factor] "m"((limits)->factor),        \
                  [addend] "m"((limits)->addend));                                                                     \
    } while (0)

/* Sums of `rounds` rounds of TILE_PAIR_DEPTHS depths, from 0 on, of m dense rows x against two vectors a depth, which follow each other from
 * `weight` on; each round asks for what lies at `ahead`, `ahead_step` bytes further each time. One text, since GCC 12 finds no registers for
 * a loop of six rows but with sums in memory, or moved about. */
#define TILE_PAIR_SUMS_3(acc)                                                                                          \
    [a0] "=&x"(acc[0][0]), [b0] "=&x"(acc[0][1]), [a1] "=&x"(acc[1][0]), [b1] "=&x"(acc[1][1]), [a2] "=&x"(acc[2][0]), \
        [b2] "=&x"(acc[2][1])
#define TILE_PAIR_SUMS_4(acc) TILE_PAIR_SUMS_3(acc), [a3] "=&x"(acc[3][0]), [b3] "=&x"(acc[3][1])
#define TILE_PAIR_SUMS_5(acc) TILE_PAIR_SUMS_4(acc), [a4] "=&x"(acc[4][0]), [b4] "=&x"(acc[4][1])
#define TILE_PAIR_SUMS_6(acc) TILE_PAIR_SUMS_5(acc), [a5] "=&x"(acc[5][0]), [b5] "=&x"(acc[5][1])
#define TILE_PAIR_ROWS_3(x) [x0] "r"(x[0]), [x1] "r"(x[1]), [x2] "r"(x[2])
#define TILE_PAIR_ROWS_4(x) TILE_PAIR_ROWS_3(x), [x3] "r"(x[3])
#define TILE_PAIR_ROWS_5(x) TILE_PAIR_ROWS_4(x), [x4] "r"(x[4])
#define TILE_PAIR_ROWS_6(x) TILE_PAIR_ROWS_5(x), [x5] "r"(x[5])
#define TILE_PAIR_CLEAR(i) "vxorps %[a" #i "], %[a" #i "], %[a" #i "]\n\tvxorps %[b" #i "], %[b" #i "], %[b" #i "]\n\t"
#define TILE_PAIR_CLEAR_3 TILE_PAIR_CLEAR(0) TILE_PAIR_CLEAR(1) TILE_PAIR_CLEAR(2)
#define TILE_PAIR_CLEAR_4 TILE_PAIR_CLEAR_3 TILE_PAIR_CLEAR(3)
#define TILE_PAIR_CLEAR_5 TILE_PAIR_CLEAR_4 TILE_PAIR_CLEAR(4)
#define TILE_PAIR_CLEAR_6 TILE_PAIR_CLEAR_5 TILE_PAIR_CLEAR(5)
#define TILE_PAIR_ADD(i, number)                                                                                       \
    "vbroadcastss 4*" #number "(%[x" #i "],%[k],4), %[x]\n\t"                                                          \
    "vfmadd231ps %[v], %[x], %[a" #i "]\n\t"                                                                           \
    "vfmadd231ps %[w], %[x], %[b" #i "]\n\t"
#define TILE_PAIR_DEPTH(number)                                                                                        \
    "vmovups 64*" #number "(%[weight]), %[v]\n\t"                                                                      \
    "vmovups 64*" #number "+32(%[weight]), %[w]\n\t"
#define TILE_PAIR_DEPTH_3(n) TILE_PAIR_DEPTH(n) TILE_PAIR_ADD(0, n) TILE_PAIR_ADD(1, n) TILE_PAIR_ADD(2, n)
#define TILE_PAIR_DEPTH_4(n) TILE_PAIR_DEPTH_3(n) TILE_PAIR_ADD(3, n)
#define TILE_PAIR_DEPTH_5(n) TILE_PAIR_DEPTH_4(n) TILE_PAIR_ADD(4, n)
#define TILE_PAIR_DEPTH_6(n) TILE_PAIR_DEPTH_5(n) TILE_PAIR_ADD(5, n)
#define TILE_PAIR_LOOP(m, acc, x_rows, weight_at, ahead_at, ahead_bytes, rounds)                                       \
    do {                                                                                                               \
        VF spread, first, second;                                                                                      \
        int64_t at, left = rounds;                                                                                     \
        __asm__ volatile(TILE_PAIR_CLEAR_##m "xorq %[k], %[k]\n\t"                                                     \
                                             "0:\n\t"                                                                  \
                                             "prefetcht1 (%[ahead])\n\t"                                               \
                                             "addq %[step], %[ahead]\n\t" TILE_PAIR_DEPTH_##m(0)                       \
                                                 TILE_PAIR_DEPTH_##m(1) TILE_PAIR_DEPTH_##m(2)                         \
                                                     TILE_PAIR_DEPTH_##m(3) "addq $4, %[k]\n\t"                        \
                                                                            "addq $256, %[weight]\n\t"                 \
                                                                            "decq %[left]\n\t"                         \
                                                                            "jnz 0b\n\t"                               \
                         : TILE_PAIR_SUMS_##m(acc), [x] "=&x"(spread), [v] "=&x"(first), [w] "=&x"(second),            \
                           [weight] "+r"(weight_at), [ahead] "+r"(ahead_at), [k] "=&r"(at), [left] "+r"(left)          \
                         : TILE_PAIR_ROWS_##m(x_rows), [step] "r"(ahead_bytes)                                         \
                         : "memory", "cc");                                                                            \
    } while (0)
#endif
#endif

#define T float
#define NAME(word) TILE_JOIN(f32, word)
#define IS_FLOAT 1
#define IS_F32 1
#define WIDE (REGISTERS == 32)
#include "runtime/device/cpu/tiles/tile_type.h"
#define T double
#define NAME(word) TILE_JOIN(f64, word)
#define IS_FLOAT 1
#define IS_F32 0
#define WIDE 0
#include "runtime/device/cpu/tiles/tile_type.h"
#define T uint32_t
#define NAME(word) TILE_JOIN(u32, word)
#define IS_FLOAT 0
#define IS_F32 0
#define WIDE 0
#include "runtime/device/cpu/tiles/tile_type.h"
#define T uint64_t
#define NAME(word) TILE_JOIN(u64, word)
#define IS_FLOAT 0
#define IS_F32 0
#define WIDE 0
#include "runtime/device/cpu/tiles/tile_type.h"

#ifdef __clang__
#define TILE_SHUFFLE(a, b, mask) shuffle_lanes(a, b, mask)
TILE_INLINE VU shuffle_lanes(VU a, VU b, VI mask) {
    VU out;
    for (int i = 0; i < LANES; i++) out[i] = mask[i] < LANES ? a[mask[i]] : b[mask[i] - LANES];
    return out;
}
#else
#define TILE_SHUFFLE(a, b, mask) __builtin_shuffle(a, b, mask)
#endif

#if VECTOR_BYTES == 64
#define LANE_NUMBERS                                                                                                   \
    { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 }
#elif VECTOR_BYTES == 32
#define LANE_NUMBERS                                                                                                   \
    { 0, 1, 2, 3, 4, 5, 6, 7 }
#else
#define LANE_NUMBERS                                                                                                   \
    { 0, 1, 2, 3 }
#endif

/* Of each 2 * step lanes, a's second half and b's first one change places. The masks are an expression of constants: of
 * those filled lane by lane GCC 12 makes numbers of the run, and of a shuffle several instructions. */
TILE_INLINE void exchange(VU *a, VU *b, const int step) {
    const VI lane = LANE_NUMBERS, second = (lane & (step - (VI){0})) != 0;
    const VI low = lane + (second & (LANES - step - (VI){0})), high = low + (step - (VI){0});
    const VU x = TILE_SHUFFLE(*a, *b, low), y = TILE_SHUFFLE(*a, *b, high);
    *a = x;
    *b = y;
}

/* In round `step`, rows i and i + step exchange their off-diagonal sub-blocks of `step` lanes (% LANES: rounds that
 * narrow vectors do not have must compile). */
TILE_INLINE void transpose_round(VU r[LANES], const int step) {
    TILE_UNROLL
    for (int i = 0; i < LANES; i++)
        if (!(i & step)) exchange(&r[i], &r[i + step], step);
}

/* Square blocks turned in registers. */
static void transpose_block(const void *rows, int64_t row_stride, void *const *columns) {
    typedef uint32_t Loose __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));
    VU r[LANES];
    TILE_UNROLL
    for (int i = 0; i < LANES; i++) r[i] = *(const Loose *)((const char *)rows + i * row_stride * 4);
    transpose_round(r, 1);
    transpose_round(r, 2);
    if (LANES > 4) transpose_round(r, 4 % LANES);
    if (LANES > 8) transpose_round(r, 8 % LANES);
    TILE_UNROLL
    for (int i = 0; i < LANES; i++) *(Loose *)columns[i] = r[i];
}

#include "runtime/device/cpu/tiles/tile_score.h"

/* In a round, vectors i and i + step exchange halves of 2 * step lanes and are added. */
TILE_INLINE void fold_round(VF sums[LANES], const int step) {
    TILE_UNROLL
    for (int i = 0; i < step; i++) {
        VU a = (VU)sums[i], b = (VU)sums[i + step];
        exchange(&a, &b, step);
        sums[i] = (VF)a + (VF)b;
    }
}

/* Lane c is the sum of vector c. */
TILE_INLINE VF fold_sums(VF sums[LANES]) {
    if (LANES > 8) fold_round(sums, 8 % LANES);
    if (LANES > 4) fold_round(sums, 4 % LANES);
    fold_round(sums, 2);
    fold_round(sums, 1);
    return sums[0];
}

/* As many columns at a time as a vector has lanes, a vector of partial sums each. */
static void dot(const float *row, const float *columns, int64_t stride, int64_t depth, float *result, int64_t count) {
    for (int64_t j = 0; j < count; j += LANES) {
        VF sums[LANES];
        int some = count - j < LANES ? (int)(count - j) : LANES, whole = (int)(depth / LANES * LANES);
        TILE_UNROLL
        for (int g = 0; g < LANES; g += 4) {
            const float *at[4];
            TILE_UNROLL
            for (int c = 0; c < 4; c++) {
                at[c] = columns + (j + (g + c < some ? g + c : some - 1)) * stride;
                sums[g + c] = (VF){0};
            }
            for (int64_t k = 0; k < whole; k += LANES) {
                VF x = *(const VFLoose *)(row + k);
                TILE_UNROLL
                for (int c = 0; c < 4; c++) sums[g + c] += x * *(const VFLoose *)(at[c] + k);
            }
            if (whole == depth) continue;
            VF x = f32_load_part(row + whole, (int)(depth - whole));
            TILE_UNROLL
            for (int c = 0; c < 4; c++) sums[g + c] += x * f32_load_part(at[c] + whole, (int)(depth - whole));
        }
        VF folded = fold_sums(sums);
        if (some == LANES)
            *(VFLoose *)(result + j) = folded;
        else
            f32_store_part(result + j, some, folded);
    }
}

/* m rows by as many columns as have a vector of partial sums each then: what is loaded is used several times. */
TILE_INLINE void dots_of_rows(const Dots *call, int first, const int m) {
    enum { MOST = LANES };
    const int n = LANES / m, whole = (int)(call->depth / LANES * LANES), rest = (int)call->depth - whole;
    const float *rows = call->rows + first * call->row_stride;
    float *results = call->results + first * call->result_stride;
    for (int64_t j = 0; j < call->columns; j += n) {
        VF sums[MOST], y[MOST];
        const float *at[MOST];
        const int some = call->columns - j < n ? (int)(call->columns - j) : n;
        TILE_UNROLL
        for (int c = 0; c < n; c++) at[c] = call->weight + (j + (c < some ? c : some - 1)) * call->stride;
        TILE_UNROLL
        for (int i = 0; i < LANES; i++) sums[i] = (VF){0};
        for (int64_t k = 0; k < whole; k += LANES) {
            TILE_UNROLL
            for (int c = 0; c < n; c++) y[c] = *(const VFLoose *)(at[c] + k);
            TILE_UNROLL
            for (int i = 0; i < m; i++) {
                VF x = *(const VFLoose *)(rows + i * call->row_stride + k);
                TILE_UNROLL
                for (int c = 0; c < n; c++) sums[i * n + c] += x * y[c];
            }
        }
        if (rest) {
            TILE_UNROLL
            for (int c = 0; c < n; c++) y[c] = f32_load_part(at[c] + whole, rest);
            TILE_UNROLL
            for (int i = 0; i < m; i++) {
                VF x = f32_load_part(rows + i * call->row_stride + whole, rest);
                TILE_UNROLL
                for (int c = 0; c < n; c++) sums[i * n + c] += x * y[c];
            }
        }
        const VF folded = fold_sums(sums);
        float lanes[LANES];
        memcpy(lanes, &folded, sizeof lanes);
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            float *to = results + i * call->result_stride + j;
            if (some == n)
                memcpy(to, lanes + i * n, (size_t)n * sizeof *to);
            else
                for (int c = 0; c < some; c++) to[c] = lanes[i * n + c];
        }
    }
}

static void dots(const Dots *call) {
    int i = 0;
    for (; i + 4 <= call->row_count; i += 4) dots_of_rows(call, i, 4);
    for (; i + 2 <= call->row_count; i += 2) dots_of_rows(call, i, 2);
    if (i < call->row_count)
        dot(call->rows + i * call->row_stride, call->weight, call->stride, call->depth,
            call->results + i * call->result_stride, call->columns);
}

#include "runtime/device/cpu/tiles/tile_narrow.h"
#include "runtime/device/cpu/tiles/tile_block_dots.h"
#include "runtime/device/cpu/tiles/tile_winograd.h"

/* Conversions. */

/* Exponent and fraction moved to their places make the value times 2^-112, subnormals included; infinity and NaN get
 * the largest exponent. */
static void widen_f16(const void *from, float *to, int64_t count) {
    const char *at = from;
    int64_t i = 0;
#if VECTOR_BYTES > 16
    for (; i + LANES <= count; i += LANES) *(VFLoose *)(to + i) = from_f16(at + i * 2);
#endif
    for (; i < count; i++) {
        uint16_t half;
        memcpy(&half, at + i * 2, sizeof half);
        uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = (uint32_t)(half & 0x7fff) << 13, bits;
        float scaled;
        memcpy(&scaled, &rest, sizeof scaled);
        scaled *= 0x1p112f;
        memcpy(&bits, &scaled, sizeof bits);
        bits |= sign | (rest >= 0x0f800000 ? 0x7f800000 : 0);
        memcpy(to + i, &bits, sizeof bits);
    }
}

/* To nearest even: normal numbers in integers; subnormals by adding 0.5, whose last place is 2^-24, the least f16. */
static void narrow_f16(const float *from, uint16_t *to, int64_t count) {
    int64_t i = 0;
#if VECTOR_BYTES == 64
    for (; i + LANES <= count; i += LANES)
        _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm512_cvtps_ph(_mm512_loadu_ps(from + i), 0));
#elif VECTOR_BYTES == 32
    for (; i + LANES <= count; i += LANES)
        _mm_storeu_si128((__m128i *)(void *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), 0));
#endif
    for (; i < count; i++) {
        uint32_t bits, small;
        memcpy(&bits, from + i, sizeof bits);
        uint32_t sign = bits >> 16 & 0x8000;
        bits &= 0x7fffffff;
        float value;
        memcpy(&value, &bits, sizeof value);
        value += 0.5f;
        memcpy(&small, &value, sizeof small);
        uint32_t normal = (bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13;
        uint32_t half = bits < 0x38800000 ? small - 0x3f000000 : bits >= 0x477ff000 ? 0x7c00 : normal;
        to[i] = (uint16_t)(sign | (bits > 0x7f800000 ? 0x7e00 : half));
    }
}

static void widen_bf16(const void *from, float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, (const char *)from + i * 2, sizeof half);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(to + i, &bits, sizeof bits);
    }
}

static void narrow_bf16(const float *from, uint16_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        to[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded);
    }
}

const TileIsa TILE_JOIN(tile, ISA) = {
    .name = VECTOR_BYTES == 64   ? "512-bit"
            : VECTOR_BYTES == 32 ? "256-bit"
                                 : "128-bit",
    .f32 = SET_WIDE(f32, float, transpose_block, f32_bound_row),
    .f64 = SET_NARROW(f64, double, NULL, f64_bound_row),
    .u32 = SET_NARROW(u32, uint32_t, transpose_block, NULL),
    .u64 = SET_NARROW(u64, uint64_t, NULL, NULL),
    .narrow = NARROW_SETS,
    .widen = widen,
    .winograd_input = winograd_input,
    .winograd_output = winograd_output,
    .dot = dot,
    .dots = dots,
    .block_dots = {[WEIGHT_INT8] = BLOCK_DOTS_NAMES(int8),
                   [WEIGHT_INT4] = BLOCK_DOTS_NAMES(int4),
                   [WEIGHT_INT2] = BLOCK_DOTS_NAMES(int2)},
    .score_step = score_step,
    .score_limit = score_limit,
    .score_softmax_columns = score_softmax_columns,
    .score_softmax_rows = score_softmax_rows,
    .score_gradient = score_gradient,
    .score_draw = score_draw,
    .score_scale = score_scale,
    .widen_f16 = widen_f16,
    .narrow_f16 = narrow_f16,
    .widen_bf16 = widen_bf16,
    .narrow_bf16 = narrow_bf16,
};

VECTOR_END
