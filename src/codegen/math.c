/* SPDX-License-Identifier: Apache-2.0 */
/* Every function reduces its argument to a short interval, evaluates a polynomial there (coefficients:
 * base/math/coefficients.h), and puts the result together; special values are put right by selects. One text serves three
 * kinds of arithmetic: f32; f64; and "mid", f64 with polynomials that are good enough for a result to be rounded to
 * f32. */
#include "codegen/math.h"

#include <math.h>
#include "base/math/coefficients.h"

enum { MOST_TERMS = 32 };

typedef struct Polynomial {
    const double *coefficients; /* from the constant term on */
    int count;
} Polynomial;

#define POLYNOMIAL(name)                                                                                               \
    { name, sizeof name / sizeof name[0] }

typedef struct Kind {
    DType dtype, bits; /* the float type and the signed integer of its size */
    int mantissa;      /* stored bits */
    int64_t bias;
    int64_t root_half;        /* bits of sqrt(1/2) */
    double shifter;           /* 1.5 * 2^mantissa: x + shifter has rint(x) in its low bits */
    int guard;                /* binary orders by which sigmoid keeps clear of subnormals and infinity */
    double exp_low, exp_high; /* beyond, exp is 0, also when doubled, or infinity, also when halved */
    double ln2[2];            /* the first times any exponent is exact */
    Polynomial exp_tail, log_tail, sin_tail, cos_tail, asin_tail, atan_tail, tanh_tail,
        sinh_tail; /* log: in f for f32, else in s^2 */
} Kind;

static const Kind f32 = {.dtype = DT_F32,
                         .bits = DT_I32,
                         .mantissa = 23,
                         .bias = 127,
                         .root_half = 0x3F3504F3,
                         .shifter = 0x1.8p23,
                         .guard = 32,
                         .exp_low = -105,
                         .exp_high = 90,
                         .ln2 = {LN2_F32_1, LN2_F32_2},
                         .exp_tail = POLYNOMIAL(exp_tail_f32),
                         .log_tail = POLYNOMIAL(log_tail_f32),
                         .sin_tail = POLYNOMIAL(sin_tail_f32),
                         .cos_tail = POLYNOMIAL(cos_tail_f32),
                         .atan_tail = POLYNOMIAL(atan_tail_f32),
                         .sinh_tail = POLYNOMIAL(sinh_tail_f32),
                         .tanh_tail = POLYNOMIAL(tanh_tail_f32)};
static const Kind f64 = {.dtype = DT_F64,
                         .bits = DT_I64,
                         .mantissa = 52,
                         .bias = 1023,
                         .root_half = 0x3FE6A09E667F3BCD,
                         .shifter = 0x1.8p52,
                         .guard = 64,
                         .exp_low = -747,
                         .exp_high = 711,
                         .ln2 = {LN2_F64_1, LN2_F64_2},
                         .exp_tail = POLYNOMIAL(exp_tail_f64),
                         .log_tail = POLYNOMIAL(atanh_tail_f64),
                         .sin_tail = POLYNOMIAL(sin_tail_f64),
                         .cos_tail = POLYNOMIAL(cos_tail_f64),
                         .asin_tail = POLYNOMIAL(asin_tail_f64),
                         .atan_tail = POLYNOMIAL(atan_tail_f64),
                         .sinh_tail = POLYNOMIAL(sinh_tail_f64),
                         .tanh_tail = POLYNOMIAL(tanh_tail_f64)};
static const Kind mid = {.dtype = DT_F64,
                         .bits = DT_I64,
                         .mantissa = 52,
                         .bias = 1023,
                         .root_half = 0x3FE6A09E667F3BCD,
                         .shifter = 0x1.8p52,
                         .guard = 64,
                         .exp_low = -747,
                         .exp_high = 711,
                         .ln2 = {LN2_F64_1, LN2_F64_2},
                         .exp_tail = POLYNOMIAL(exp_tail_mid),
                         .log_tail = POLYNOMIAL(atanh_tail_mid),
                         .sin_tail = POLYNOMIAL(sin_tail_mid),
                         .cos_tail = POLYNOMIAL(cos_tail_mid),
                         .asin_tail = POLYNOMIAL(asin_tail_mid)};

/* ---- arithmetic of a kind ---- */

typedef struct Math {
    Emit *e;
    const Kind *k;
} Math;

static int number(const Math *m, double x) { return emit_float(m->e, m->k->dtype, x); }
static int integer(const Math *m, int64_t x) { return emit_int(m->e, m->k->bits, x); }
static int op1(const Math *m, KernelOp op, int a) { return emit1(m->e, op, m->k->dtype, a); }
static int op2(const Math *m, KernelOp op, int a, int b) { return emit2(m->e, op, m->k->dtype, a, b); }
static int add(const Math *m, int a, int b) { return op2(m, K_ADD, a, b); }
static int sub(const Math *m, int a, int b) { return op2(m, K_SUB, a, b); }
static int mul(const Math *m, int a, int b) { return op2(m, K_MUL, a, b); }
static int divide(const Math *m, int a, int b) { return op2(m, K_DIV, a, b); }
static int scaled(const Math *m, int a, double by) { return mul(m, a, number(m, by)); }
static int fma3(const Math *m, int a, int b, int c) { return emit_op(m->e, K_FMA, m->k->dtype, a, b, c); }
/* a * b - c, with b a constant. */
static int fma_by(const Math *m, int a, double b, int c) { return fma3(m, a, number(m, b), c); }
static int negate(const Math *m, int a) { return op1(m, K_NEG, a); }
static int magnitude(const Math *m, int a) { return op1(m, K_ABS, a); }
static int root(const Math *m, int a) { return op1(m, K_SQRT, a); }
static int test(const Math *m, KernelOp op, int a, int b) { return emit2(m->e, op, DT_BOOL, a, b); }
static int less(const Math *m, int a, double b) { return test(m, K_LT, a, number(m, b)); }
static int both(const Math *m, int a, int b) { return emit2(m->e, K_AND, DT_BOOL, a, b); }
static int choose(const Math *m, int condition, int a, int b) {
    return emit_op(m->e, K_SELECT, m->k->dtype, condition, a, b);
}
static int to_bits(const Math *m, int a) { return emit1(m->e, K_BITCAST, m->k->bits, a); }
static int from_bits(const Math *m, int a) { return emit1(m->e, K_BITCAST, m->k->dtype, a); }
static int bits2(const Math *m, KernelOp op, int a, int b) { return emit2(m->e, op, m->k->bits, a, b); }
/* NaN stays NaN. */
static int at_most(const Math *m, double bound, int a) { return op2(m, K_MIN, number(m, bound), a); }
static int at_least(const Math *m, double bound, int a) { return op2(m, K_MAX, number(m, bound), a); }

static int64_t sign_mask(const Math *m) { return m->k->bits == DT_I32 ? INT32_MIN : INT64_MIN; }

/* `a`, which is not negative where x is not, with the sign of x. */
static int with_sign(const Math *m, int a, int x) {
    int sign = bits2(m, K_AND, to_bits(m, x), integer(m, sign_mask(m)));
    return from_bits(m, bits2(m, K_OR, to_bits(m, a), sign));
}

static int horner(const Math *m, Polynomial p, int x) {
    int sum = number(m, p.coefficients[p.count - 1]);
    for (int i = p.count - 2; i >= 0; i--) sum = fma3(m, sum, x, number(m, p.coefficients[i]));
    return sum;
}

/* The same with half the steps one behind the other, given x^2: pairs of terms first, then Horner in x^2. */
static int paired(const Math *m, Polynomial p, int x, int square) {
    int sum = -1;
    for (int i = (p.count - 1) & ~1; i >= 0; i -= 2) {
        int pair = number(m, p.coefficients[i]);
        if (i + 1 < p.count) pair = fma3(m, number(m, p.coefficients[i + 1]), x, pair);
        sum = sum < 0 ? pair : fma3(m, sum, square, pair);
    }
    return sum;
}

/* p(-x). */
static int mirrored(const Math *m, Polynomial p, int x, int square) {
    double coefficients[MOST_TERMS];
    for (int i = 0; i < p.count; i++) coefficients[i] = i & 1 ? -p.coefficients[i] : p.coefficients[i];
    return paired(m, (Polynomial){coefficients, p.count}, x, square);
}

/* x + x z p(z): the odd functions near 0. */
static int odd_series(const Math *m, Polynomial p, int x, int z) { return fma3(m, mul(m, x, z), horner(m, p, z), x); }

/* hi + lo == a + b exactly (Knuth, "The Art of Computer Programming" 2, 4.2.2, theorem B). */
typedef struct Pair {
    int hi, lo;
} Pair;

static Pair two_sum(const Math *m, int a, int b) {
    int s = add(m, a, b), bb = sub(m, s, a);
    return (Pair){s, add(m, sub(m, a, sub(m, s, bb)), sub(m, b, bb))};
}

/* The same where |a| >= |b| (Dekker, 1971). */
static Pair fast_two_sum(const Math *m, int a, int b) {
    int s = add(m, a, b);
    return (Pair){s, add(m, sub(m, a, s), b)};
}

static Pair two_product(const Math *m, int a, int b) {
    int p = mul(m, a, b);
    return (Pair){p, fma3(m, a, b, negate(m, p))};
}

/* ---- exponentials: e^x = 2^n e^r, |r| <= log(2)/2 ---- */

typedef struct Exponent {
    int power; /* 2^(n + guard) */
    int r;
} Exponent;

/* The sum with 1.5 * 2^mantissa + bias rounds x / log(2) to an integer and leaves it in the low bits as an exponent
 * field. */
static Exponent reduce_exponent(const Math *m, int x, int shifter) {
    int shifted = fma3(m, x, number(m, LOG2_E), shifter), n = sub(m, shifted, shifter);
    int r = fma_by(m, n, -m->k->ln2[1], fma_by(m, n, -m->k->ln2[0], x));
    int field = bits2(m, K_SHL, to_bits(m, shifted), integer(m, m->k->mantissa));
    return (Exponent){from_bits(m, field), r};
}

/* scale * e^(x + rest), scale from 1/2 to 2; rest: a correction, or -1. */
static int exponential(const Math *m, int x, int rest, double scale) {
    const Kind *k = m->k;
    const bool down = rest < 0 && emit_never_positive(m->e, x);
    x = at_least(m, k->exp_low, x);
    if (!down) x = at_most(m, k->exp_high, x);
    int shifter = number(m, k->shifter), n = sub(m, fma3(m, x, number(m, LOG2_E), shifter), shifter);
    int r = fma_by(m, n, -k->ln2[1], fma_by(m, n, -k->ln2[0], x)), one = number(m, 1);
    if (rest >= 0) r = add(m, r, rest);
    int p = fma3(m, fma3(m, horner(m, k->exp_tail, r), r, one), r, one);
    return emit_inst(m->e,
                     (KernelInst){.op = K_SCALE, .dtype = k->dtype, .args = {scaled(m, p, scale), n}, .bits = down});
}

/* scale (e^x - 1): scale 2^n (e^r - 1) + scale (2^n - 1), scale a power of two. No subnormals: |x| is at most 40, or
 * bounded as by exp. */
static int exp_minus_one(const Math *m, int x, int order) {
    Exponent e = reduce_exponent(m, x, number(m, m->k->shifter + (double)m->k->bias + order));
    int square = mul(m, e.r, e.r), p = fma3(m, square, paired(m, m->k->exp_tail, e.r, square), e.r);
    return fma3(m, e.power, p, sub(m, e.power, number(m, ldexp(1, order))));
}

static int expand_exp(const Math *m, int x) { return exponential(m, x, -1, 1); }

/* By halves, so that 2^n does not overflow before the result does. */
static int expand_expm1(const Math *m, int x) {
    int y = exp_minus_one(m, at_most(m, m->k->exp_high - 1, at_least(m, -40, x)), -1);
    return with_sign(m, add(m, y, y), x);
}

/* by / (1 + e^-x), by a power of two, with e^-x = 2^n (1 + t), all by 2^-guard against overflow: the sum is rounded
 * little more than once. `by` beyond 40. r is what is left of x, not of -x. */
static int sigmoid_by(const Math *m, int x, double by) {
    const Kind *k = m->k;
    int one = number(m, ldexp(1, -k->guard)), shifter = number(m, k->shifter + (double)k->bias - k->guard);
    x = at_most(m, 40, at_least(m, k->exp_low, x));
    int shifted = fma3(m, x, number(m, -LOG2_E), shifter), n = sub(m, shifted, shifter);
    int r = fma_by(m, n, k->ln2[1], fma_by(m, n, k->ln2[0], x)), square = mul(m, r, r);
    int power = from_bits(m, bits2(m, K_SHL, to_bits(m, shifted), integer(m, k->mantissa)));
    int t = fma3(m, square, mirrored(m, k->exp_tail, r, square), negate(m, r));
    return divide(m, number(m, ldexp(by, -k->guard)), add(m, power, fma3(m, power, t, one)));
}

static int expand_sigmoid(const Math *m, int x) { return sigmoid_by(m, x, 1); }

/* 1 + tanh(x) = 2 / (1 + e^(-2x)), without the sum's loss where tanh is near -1. */
static int one_plus_tanh(const Math *m, int x) { return sigmoid_by(m, add(m, x, x), 2); }

/* t / (t + 2) with t = e^(2|x|) - 1, 1 beyond 20; below atanh(1/4), where roundings of t and t + 2 would count most, a
 * series. */
static int expand_tanh(const Math *m, int x) {
    int a = at_most(m, m->k->dtype == DT_F32 ? 10 : 20, magnitude(m, x));
    int t = exp_minus_one(m, add(m, a, a), 0), far = divide(m, t, add(m, t, number(m, 2)));
    int near = odd_series(m, m->k->tanh_tail, a, mul(m, a, a));
    return with_sign(m, choose(m, less(m, a, TANH_NEAR), near, far), x);
}

static int expand_sinh(const Math *m, int x) {
    int a = magnitude(m, x), e = exponential(m, a, -1, 0.5);
    int far = sub(m, e, divide(m, number(m, 0.25), e)), near = odd_series(m, m->k->sinh_tail, a, mul(m, a, a));
    return with_sign(m, choose(m, less(m, a, 1), near, far), x);
}

static int expand_cosh(const Math *m, int x) {
    int e = exponential(m, magnitude(m, x), -1, 0.5);
    return add(m, e, divide(m, number(m, 0.25), e));
}

/* x/4 + x P(x^2)/Q(x^2), which is 1 from ERF_MOST on: one quotient is less than a polynomial of exponentials, or than
 * tables, which a permutation of lanes would look up (AVX2, cycles for eight: 12 against 17). */
static int erf_by_quotient(const Math *m, int x) {
    Polynomial over = POLYNOMIAL(erf_over_f32), under = POLYNOMIAL(erf_under_f32);
    int y = at_most(m, ERF_MOST, at_least(m, -ERF_MOST, x)), z = mul(m, y, y);
    return fma3(m, y, divide(m, horner(m, over, z), horner(m, under, z)), scaled(m, y, 0.25));
}

/* Doubles: 1 - e^-y with y = |x| (1 + q(|x|)): relative errors of y are never amplified; a series below 1 saves terms of
 * q. Beyond 6 the result is 1. */
static int expand_erf(const Math *m, int x) {
    if (m->k->dtype == DT_F32) return erf_by_quotient(m, x);
    Polynomial far = POLYNOMIAL(erf_exponent_f64), near = POLYNOMIAL(erf_near_f64);
    int a = at_most(m, 6, magnitude(m, x)), q = horner(m, far, sub(m, a, number(m, ERF_CENTRE)));
    int y = negate(m, exp_minus_one(m, negate(m, fma3(m, a, q, a)), 0));
    return with_sign(m, choose(m, less(m, a, 1), fma3(m, a, horner(m, near, mul(m, a, a)), a), y), x);
}

/* ---- logarithms: x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2) ---- */

typedef struct Split {
    int f;        /* exact */
    int e;        /* as a float */
    int exponent; /* as an integer */
} Split;

static Split split(const Math *m, int x) {
    int bits = to_bits(m, x), width = integer(m, m->k->mantissa);
    int exponent = bits2(m, K_SHR, bits2(m, K_SUB, bits, integer(m, m->k->root_half)), width);
    int mantissa = from_bits(m, bits2(m, K_SUB, bits, bits2(m, K_SHL, exponent, width)));
    int e = emit_cast(m->e, m->k->dtype, emit_cast(m->e, DT_I32, exponent));
    return (Split){sub(m, mantissa, number(m, 1)), e, exponent};
}

/* The same where x may be subnormal. */
static Split split_any(const Math *m, int x) {
    int lift = m->k->mantissa + 2;
    int small = less(m, x, ldexp(1, 1 - (int)m->k->bias));
    Split s = split(m, choose(m, small, scaled(m, x, ldexp(1, lift)), x));
    s.e = add(m, s.e, choose(m, small, number(m, -lift), number(m, 0)));
    return s;
}

/* e log(2) + log(1 + f). */
static int log_sum(const Math *m, int e, int f) {
    int square = mul(m, f, f), low = scaled(m, e, m->k->ln2[1]), high = number(m, m->k->ln2[0]);
    if (m->k->dtype == DT_F32) {
        int t = fma3(m, mul(m, square, f), paired(m, m->k->log_tail, f, square), low);
        return fma3(m, e, high, add(m, f, fma_by(m, square, -0.5, t)));
    }
    /* With s = f/(2+f): log(1+f) = 2 atanh(s) = 2s + s z p(z), z = s^2, and 2s = f - s f = f - f^2/2 + s f^2/2. */
    int s = divide(m, f, add(m, f, number(m, 2))), z = mul(m, s, s), half = scaled(m, square, 0.5);
    int t = fma3(m, s, fma3(m, z, horner(m, m->k->log_tail, z), half), low);
    return fma3(m, e, high, sub(m, f, sub(m, half, t)));
}

/* Puts right what `result`, the logarithm of x, is for x that is not positive and finite. */
static int log_specials(const Math *m, int x, int result) {
    int zero = number(m, 0), infinite = number(m, (double)INFINITY);
    int usual = both(m, test(m, K_GT, x, zero), test(m, K_LT, x, infinite));
    int other = choose(m, test(m, K_LT, x, zero), number(m, (double)NAN), x);
    other = choose(m, test(m, K_EQ, x, zero), number(m, (double)-INFINITY), other);
    return choose(m, usual, result, other);
}

static int expand_log(const Math *m, int x) {
    if (emit_never_small(m->e, x)) { /* NaN and infinity are left */
        Split s = split(m, x);
        int finite = test(m, K_LT, x, number(m, (double)INFINITY));
        return choose(m, finite, log_sum(m, s.e, s.f), x);
    }
    Split s = split_any(m, x);
    return log_specials(m, x, log_sum(m, s.e, s.f));
}

/* log(1 + x), 0 for -0. 1 + x = u + lo exactly; lo is put back into f. */
static int log_of_sum(const Math *m, int x) {
    Pair u = two_sum(m, number(m, 1), x);
    Split s = split(m, u.hi);
    int field = bits2(m, K_MAX, bits2(m, K_SUB, integer(m, m->k->bias), s.exponent), integer(m, 0));
    int inverse = bits2(m, K_SHL, field, integer(m, m->k->mantissa));
    int f = fma3(m, u.lo, from_bits(m, inverse), s.f);
    return log_specials(m, u.hi, log_sum(m, s.e, f));
}

static int expand_log1p(const Math *m, int x) { return with_sign(m, log_of_sum(m, x), x); }

/* ---- inverse hyperbolic functions, by log1p; large arguments by log(2x) ---- */

/* log1p(t), or log(a) + log(2) where a is large: the squares in t would overflow. */
static int log1p_or_twice(const Math *m, int a, int t) {
    int large = test(m, K_GT, a, number(m, 0x1p28));
    int log = log_of_sum(m, choose(m, large, sub(m, a, number(m, 1)), t));
    return add(m, log, choose(m, large, number(m, 0.69314718055994530942), number(m, 0)));
}

static int expand_asinh(const Math *m, int x) {
    int a = magnitude(m, x), one = number(m, 1), square = mul(m, a, a);
    int t = add(m, a, divide(m, square, add(m, one, root(m, add(m, square, one)))));
    return with_sign(m, log1p_or_twice(m, a, t), x);
}

static int expand_acosh(const Math *m, int x) {
    int above = sub(m, x, number(m, 1));
    int t = add(m, above, root(m, mul(m, above, add(m, above, number(m, 2)))));
    return choose(m, less(m, x, 1), number(m, (double)NAN), log1p_or_twice(m, x, t));
}

static int expand_atanh(const Math *m, int x) {
    int a = magnitude(m, x), log = log_of_sum(m, divide(m, add(m, a, a), sub(m, number(m, 1), a)));
    return with_sign(m, scaled(m, log, 0.5), x);
}

/* ---- powers: e^(y log|x|) ---- */

static int is_whole(const Math *m, int y) { return test(m, K_EQ, op1(m, K_RINT, y), y); }

static int is_odd(const Math *m, int y) {
    int half = scaled(m, y, 0.5);
    return both(m, is_whole(m, y), test(m, K_NE, op1(m, K_RINT, half), half));
}

/* log(a) as an unevaluated sum to some 100 bits, a positive and finite: as log_sum, with every term that counts in two
 * parts. */
static Pair log_pair(const Math *m, int a) {
    Split x = split_any(m, a);
    Pair t = fast_two_sum(m, number(m, 2), x.f);
    int s = divide(m, x.f, t.hi);
    int s_lo = divide(m, sub(m, fma3(m, negate(m, s), t.hi, x.f), mul(m, s, t.lo)), t.hi);
    Pair z = two_product(m, s, s);
    z.lo = fma3(m, add(m, s, s), s_lo, z.lo);
    Polynomial second = POLYNOMIAL(atanh_second_f64);
    Pair u = fast_two_sum(m, number(m, TWO_THIRDS_1), mul(m, z.hi, horner(m, second, z.hi)));
    u.lo = add(m, u.lo, number(m, TWO_THIRDS_2));
    Pair p = two_product(m, z.hi, u.hi);
    p.lo = add(m, p.lo, fma3(m, z.hi, u.lo, mul(m, z.lo, u.hi)));
    Pair w = two_product(m, s, p.hi);
    w.lo = add(m, w.lo, fma3(m, s, p.lo, mul(m, s_lo, p.hi)));
    Pair log = fast_two_sum(m, add(m, s, s), w.hi);
    log.lo = add(m, log.lo, add(m, add(m, s_lo, s_lo), w.lo));
    Pair sum = fast_two_sum(m, scaled(m, x.e, m->k->ln2[0]), log.hi);
    sum.lo = add(m, sum.lo, fma_by(m, x.e, m->k->ln2[1], log.lo));
    return sum;
}

/* log(a) also for 0 and infinity, where the low part does not count. */
static int log_ends(const Math *m, int a, int log) {
    int infinite = number(m, (double)INFINITY);
    log = choose(m, test(m, K_LT, a, infinite), log, a);
    return choose(m, test(m, K_EQ, a, number(m, 0)), negate(m, infinite), log);
}

static int power_of_magnitude(const Math *m, int a, int y) {
    if (m->k == &mid) {
        Split s = split(m, a);
        return exponential(m, mul(m, y, log_ends(m, a, log_sum(m, s.e, s.f))), -1, 1);
    }
    Pair log = log_pair(m, a);
    log.hi = log_ends(m, a, log.hi);
    Pair p = two_product(m, y, log.hi);
    int rest = fma3(m, y, log.lo, p.lo), finite = less(m, magnitude(m, p.hi), 1e3);
    return exponential(m, p.hi, choose(m, finite, rest, number(m, 0)), 1);
}

/* C's pow, special values included. */
static int expand_pow(const Math *m, int x, int y) {
    int a = magnitude(m, x), one = number(m, 1), zero = number(m, 0), infinite = number(m, (double)INFINITY);
    int r = power_of_magnitude(m, a, y);
    r = choose(m, is_odd(m, y), with_sign(m, r, x), r);
    int root_of_negative = both(m, both(m, test(m, K_LT, x, zero), test(m, K_LT, a, infinite)),
                                emit1(m->e, K_NOT, DT_BOOL, is_whole(m, y)));
    r = choose(m, root_of_negative, number(m, (double)NAN), r);
    int minus_one = both(m, test(m, K_EQ, a, one), test(m, K_EQ, magnitude(m, y), infinite));
    int is_one = emit2(m->e, K_OR, DT_BOOL, test(m, K_EQ, x, one),
                       emit2(m->e, K_OR, DT_BOOL, minus_one, test(m, K_EQ, y, zero)));
    return choose(m, is_one, one, r);
}

/* ---- circular functions: x = q pi/2 + r, |r| <= pi/4 ---- */

typedef struct Angle {
    int r, r_lo;  /* r_lo: of f64 alone */
    int quadrant; /* its low two bits, as integer of the kind's size */
} Angle;

/* x 2/pi as a fraction, by the constants for x's binary order. inputs: parts[k] chosen among the segments. */
static void choose_parts(const Math *m, int a, int segments, const double *begins, const double *table, int count,
                         int *parts) {
    for (int k = 0; k < count; k++) parts[k] = number(m, table[k]);
    for (int s = 1; s < segments; s++) {
        int beyond = test(m, K_GE, a, number(m, begins[s]));
        for (int k = 0; k < count; k++) parts[k] = choose(m, beyond, number(m, table[s * count + k]), parts[k]);
    }
}

/* rint(x) and its low bits. |x| < 2^50. */
static int nearest(const Math *m, int x, int *out_bits) {
    int shifter = number(m, m->k->shifter), shifted = add(m, x, shifter);
    *out_bits = to_bits(m, shifted);
    return sub(m, shifted, shifter);
}

/* x: an f32 held in f64. The products' integer parts are below 2^50, and the fraction is good to 2^-56: floats come no
 * closer than 2^-30 to a multiple of pi/2. The parts are positive, so that a zero keeps its sign. */
static Angle reduce_single(const Math *m, int x) {
    int parts[PARTS_F32], quadrant;
    choose_parts(m, magnitude(m, x), SEGMENTS_F32, two_over_pi_f32_begin, &two_over_pi_f32[0][0], PARTS_F32, parts);
    int n = nearest(m, fma3(m, x, parts[0], mul(m, x, parts[1])), &quadrant);
    int fraction = fma3(m, x, parts[1], fma3(m, x, parts[0], negate(m, n)));
    return (Angle){scaled(m, fraction, HALF_PI_1), -1, quadrant};
}

/* x - 4 rint(x/4), exactly. */
static int modulo_four(const Math *m, int x) { return fma_by(m, op1(m, K_RINT, scaled(m, x, 0.25)), -4, x); }

/* To about 2^-110. */
static Angle reduce_double(const Math *m, int x) {
    int parts[PARTS_F64], quadrant, a = magnitude(m, x);
    choose_parts(m, a, SEGMENTS_F64, two_over_pi_f64_begin, &two_over_pi_f64[0][0], PARTS_F64, parts);
    int y = choose(m, test(m, K_GE, a, number(m, 0x1p504)), scaled(m, x, 0x1p-512), x);
    Pair p1 = two_product(m, y, parts[0]), p2 = two_product(m, y, parts[1]), p3 = two_product(m, y, parts[2]);
    Pair s = two_sum(m, modulo_four(m, p1.hi), modulo_four(m, p1.lo));
    int c = modulo_four(m, p2.hi), n = nearest(m, add(m, s.hi, c), &quadrant);
    Pair t = two_sum(m, sub(m, s.hi, n), c), u = two_sum(m, t.hi, p2.lo), v = two_sum(m, u.hi, p3.hi);
    int low = add(m, add(m, add(m, s.lo, t.lo), add(m, u.lo, v.lo)), fma3(m, y, parts[3], p3.lo));
    Pair f = fast_two_sum(m, v.hi, low), r = two_product(m, f.hi, number(m, HALF_PI_1));
    r.lo = add(m, r.lo, fma_by(m, f.hi, HALF_PI_2, scaled(m, f.lo, HALF_PI_1)));
    int tiny = less(m, a, 0x1p-30);
    return (Angle){choose(m, tiny, x, r.hi), choose(m, tiny, number(m, 0), r.lo), quadrant};
}

/* with_sign: the sum of -0 and what comes after it would be 0. */
static int sine(const Math *m, Angle a, int z) {
    if (a.r_lo < 0) return with_sign(m, odd_series(m, m->k->sin_tail, a.r, z), a.r);
    int correction = mul(m, a.r_lo, fma_by(m, z, -0.5, number(m, 1)));
    int rest = fma3(m, mul(m, a.r, z), horner(m, m->k->sin_tail, z), correction);
    return with_sign(m, add(m, a.r, rest), a.r);
}

static int cosine(const Math *m, Angle a, int z) {
    int one = number(m, 1), w = fma_by(m, z, -0.5, one), fourth = mul(m, z, z);
    if (a.r_lo < 0) return fma3(m, fourth, horner(m, m->k->cos_tail, z), w);
    int lost = fma_by(m, z, -0.5, sub(m, one, w));
    int correction = fma3(m, negate(m, a.r), a.r_lo, lost);
    return add(m, w, fma3(m, fourth, horner(m, m->k->cos_tail, z), correction));
}

static int is_odd_quadrant(const Math *m, int quadrant) {
    return emit2(m->e, K_NE, DT_BOOL, bits2(m, K_AND, quadrant, integer(m, 1)), integer(m, 0));
}

/* The sine of the angle turned by `turn` quarters. */
static int sine_of(const Math *m, Angle a, int turn) {
    int z = mul(m, a.r, a.r), q = bits2(m, K_ADD, a.quadrant, integer(m, turn));
    int y = choose(m, is_odd_quadrant(m, q), cosine(m, a, z), sine(m, a, z));
    int sign = bits2(m, K_SHL, bits2(m, K_AND, q, integer(m, 2)), integer(m, m->k->bits == DT_I32 ? 30 : 62));
    return from_bits(m, bits2(m, K_XOR, to_bits(m, y), sign));
}

static int expand_sine(const Math *m, int x, int turn) {
    if (m->k->dtype == DT_F64) return sine_of(m, reduce_double(m, x), turn);
    const Math wide = {m->e, &mid};
    Angle a = reduce_single(&wide, emit_cast(m->e, DT_F64, x));
    a.r = emit_cast(m->e, DT_F32, a.r);
    a.quadrant = emit_cast(m->e, DT_I32, a.quadrant);
    return sine_of(m, a, turn);
}

static int expand_tan(const Math *m, int x) {
    Angle a = m->k == &mid ? reduce_single(m, x) : reduce_double(m, x);
    int z = mul(m, a.r, a.r), s = sine(m, a, z), c = cosine(m, a, z), odd = is_odd_quadrant(m, a.quadrant);
    return divide(m, choose(m, odd, c, s), choose(m, odd, negate(m, s), c));
}

/* ---- their inverses ---- */

typedef struct ArcSine {
    int a, steep; /* |x|, |x| > 1/2 */
    int p;        /* asin(|x|), where steep half of its complement to pi/2: asin(a) = pi/2 - 2 asin(sqrt((1-a)/2)) */
} ArcSine;

static ArcSine arc_sine(const Math *m, int x) {
    int a = magnitude(m, x), steep = test(m, K_GT, a, number(m, 0.5));
    int z = choose(m, steep, fma_by(m, a, -0.5, number(m, 0.5)), mul(m, a, a));
    int t = choose(m, steep, root(m, z), a);
    return (ArcSine){a, steep, odd_series(m, m->k->asin_tail, t, z)};
}

/* pi/2 + by * p. */
static int right_angle_plus(const Math *m, double by, int p) {
    return add(m, number(m, HALF_PI_1), fma_by(m, p, by, number(m, HALF_PI_2)));
}

static int expand_asin(const Math *m, int x) {
    ArcSine s = arc_sine(m, x);
    return with_sign(m, choose(m, s.steep, right_angle_plus(m, -2, s.p), s.p), x);
}

static int expand_acos(const Math *m, int x) {
    ArcSine s = arc_sine(m, x);
    int negative = less(m, x, 0), twice = add(m, s.p, s.p);
    int steep = choose(m, negative, sub(m, number(m, 2 * HALF_PI_1), sub(m, twice, number(m, 2 * HALF_PI_2))), twice);
    int flat = choose(m, negative, right_angle_plus(m, 1, s.p), right_angle_plus(m, -1, s.p));
    return choose(m, s.steep, steep, flat);
}

static int expand_atan(const Math *m, int x) {
    int a = magnitude(m, x), one = number(m, 1), steep = test(m, K_GT, a, one);
    int t = choose(m, steep, divide(m, one, a), a), p = odd_series(m, m->k->atan_tail, t, mul(m, t, t));
    return with_sign(m, choose(m, steep, right_angle_plus(m, -1, p), p), x);
}

/* ---- the table ---- */

typedef struct Expansion {
    int (*unary)(const Math *m, int x);
    bool through_double; /* f32 is computed in mid */
} Expansion;

static int expand_sin(const Math *m, int x) { return expand_sine(m, x, 0); }
static int expand_cos(const Math *m, int x) { return expand_sine(m, x, 1); }

static const Expansion expansions[PRIM_COUNT] = {
    [PRIM_EXP] = {expand_exp, false},     [PRIM_LOG] = {expand_log, false},    [PRIM_LOG1P] = {expand_log1p, false},
    [PRIM_EXPM1] = {expand_expm1, false}, [PRIM_SIN] = {expand_sin, false},    [PRIM_COS] = {expand_cos, false},
    [PRIM_TAN] = {expand_tan, true},      [PRIM_ASIN] = {expand_asin, true},   [PRIM_ACOS] = {expand_acos, true},
    [PRIM_ATAN] = {expand_atan, false},   [PRIM_SINH] = {expand_sinh, false},  [PRIM_COSH] = {expand_cosh, false},
    [PRIM_TANH] = {expand_tanh, false},   [PRIM_ASINH] = {expand_asinh, true}, [PRIM_ACOSH] = {expand_acosh, true},
    [PRIM_ATANH] = {expand_atanh, true},  [PRIM_ERF] = {expand_erf, false},    [PRIM_SIGMOID] = {expand_sigmoid, false},
};

bool math_expands(Prim prim) { return prim == PRIM_POW || expansions[prim].unary; }

/* Sines reduce their argument in f64 alone. */
bool math_through_double(Prim prim) {
    return prim == PRIM_POW || prim == PRIM_SIN || prim == PRIM_COS || expansions[prim].through_double;
}

int math_one_plus_tanh(Emit *e, int x) {
    Math m = {e, emit_dtype(e, x) == DT_F32 ? &f32 : &f64};
    return one_plus_tanh(&m, x);
}

int math_expand(Emit *e, Prim prim, int x, int y) {
    bool single = emit_dtype(e, x) == DT_F32, through_double = prim == PRIM_POW || expansions[prim].through_double;
    Math m = {e, single ? through_double ? &mid : &f32 : &f64};
    if (single && through_double) x = emit_cast(e, DT_F64, x);
    if (single && prim == PRIM_POW) y = emit_cast(e, DT_F64, y);
    int result = prim == PRIM_POW ? expand_pow(&m, x, y) : expansions[prim].unary(&m, x);
    if (prim == PRIM_TANH) VEC_PUSH(e->arena, e->tanhs, ((EmitPair){result, x}));
    return emit_cast(e, single ? DT_F32 : DT_F64, result);
}
