/* SPDX-License-Identifier: Apache-2.0 */
/* Accuracy of the expanded functions of doubles, and of powers, run by the interpreter, against libm in a wider type, on
 * random numbers of all magnitudes (tests/accuracy has those of one float); and of row divisions. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include "base/math/divide.h"
#include "codegen/math.h"
#include "kernel_eval.h"

enum { DOUBLES = 200000 };

typedef struct Function {
    const char *name;
    Prim prim;
    long double (*widest)(long double);
} Function;

static long double sigmoidl(long double x) { return 1 / (1 + expl(-x)); }

static long double one_plus_tanhl(long double x) { return 2 / (1 + expl(-2 * x)); }

static const Function functions[] = {
    {"exp", PRIM_EXP, expl},
    {"log", PRIM_LOG, logl},
    {"log1p", PRIM_LOG1P, log1pl},
    {"expm1", PRIM_EXPM1, expm1l},
    {"sin", PRIM_SIN, sinl},
    {"cos", PRIM_COS, cosl},
    {"tan", PRIM_TAN, tanl},
    {"asin", PRIM_ASIN, asinl},
    {"acos", PRIM_ACOS, acosl},
    {"atan", PRIM_ATAN, atanl},
    {"sinh", PRIM_SINH, sinhl},
    {"cosh", PRIM_COSH, coshl},
    {"tanh", PRIM_TANH, tanhl},
    {"asinh", PRIM_ASINH, asinhl},
    {"acosh", PRIM_ACOSH, acoshl},
    {"atanh", PRIM_ATANH, atanhl},
    {"erf", PRIM_ERF, erfl},
    {"sigmoid", PRIM_SIGMOID, sigmoidl},
    {"1+tanh", PRIM_COUNT, one_plus_tanhl},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

typedef int Argument(Emit *e, int x);

enum { ARGUMENT_ALONE = PRIM_COUNT + 1 };

/* y[i] = prim(x[i]) or prim(x[i], z[i]), of `dtype`; PRIM_COUNT: 1 + tanh(x[i]). argument: not NULL, of that of x[i], or
 * this alone. */
static Kernel *kernel_of_argument(Arena *arena, Prim prim, Argument *argument, DType dtype) {
    Kernel *k = ARENA_NEW(arena, Kernel);
    *k = (Kernel){.axis_count = 1, .lane_block = 1024, .tile_axis = -1, .param_count = 1, .stage_count = 1};
    k->axes[0] = (KernelAxis){.role = AXIS_LANE, .param = 0, .multiple = 1};
    bool binary = prim < PRIM_COUNT && prim_info(prim)->inputs == 2;
    for (int i = 0; i < 1 + binary; i++) VEC_PUSH(arena, k->buffers, (KernelBuffer){.dtype = dtype});
    VEC_PUSH(arena, k->buffers, (KernelBuffer){.dtype = dtype, .output = true});
    Emit e;
    emit_begin(&e, arena, k);
    KernelInst access = {.op = K_LOAD, .dtype = dtype, .access = ARENA_NEW(arena, KernelAccess)};
    access.access->kind[0] = STRIDE_ONE;
    int x = emit_inst(&e, access), z = x;
    access.buffer = 1;
    if (binary) z = emit_inst(&e, access);
    if (argument) x = argument(&e, x);
    KernelInst store = {.op = K_STORE, .dtype = dtype, .buffer = 1 + binary, .access = access.access};
    store.args[0] = prim == (Prim)ARGUMENT_ALONE ? x
                    : prim == PRIM_COUNT         ? math_one_plus_tanh(&e, x)
                                                 : math_expand(&e, prim, x, z);
    emit_inst(&e, store);
    emit_sweep(&e);
    Status status = kernel_verify(k);
    cr_assert_null(status, "%d: %s", (int)prim, status_message(status));
    return k;
}

static Kernel *kernel_of(Arena *arena, Prim prim, DType dtype) { return kernel_of_argument(arena, prim, NULL, dtype); }

/* Distance from the exact value in units of the last place of the result's type. */
static double ulps(double got, long double exact, int digits, int least_exponent) {
    if (isnan(got) || isnan(exact)) return isnan(got) && isnan(exact) ? 0 : HUGE_VAL;
    long double limit = ldexpl(2 - ldexpl(1, -digits), digits == 24 ? 127 : 1023);
    if (isinf(got)) return fabsl(exact) >= limit && (got > 0) == (exact > 0) ? 0 : HUGE_VAL;
    if (isinf(exact)) return HUGE_VAL;
    int exponent;
    frexpl(exact, &exponent);
    if (exact == 0 || exponent - 1 < least_exponent) exponent = least_exponent + 1;
    return (double)(fabsl((long double)got - exact) / ldexpl(1, exponent - digits));
}

/* The same for f32, quick for finite values: the unit is read off the exponent field. */
static double float_ulps(double got, double exact) {
    uint64_t bits;
    memcpy(&bits, &exact, sizeof bits);
    int64_t exponent = (int64_t)(bits >> 52 & 0x7FF);
    if (exponent > 1023 + 126 || !isfinite(got)) return ulps(got, (long double)exact, 24, -126);
    if (exponent < 1023 - 126) exponent = 1023 - 126;
    bits = (uint64_t)(1023 * 2 + 23 - exponent) << 52;
    double per_unit;
    memcpy(&per_unit, &bits, sizeof bits);
    return fabs(got - exact) * per_unit;
}

typedef struct Worst {
    double error;
    double at, other, got;
    long double exact;
} Worst;

/* ---- f64 ---- */

static uint64_t random_bits(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t x = *state;
    x ^= x >> 29;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    return x ^ x >> 32;
}

static double from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Any double; or one of moderate size, where functions are interesting. */
static double random_double(uint64_t *state) {
    uint64_t bits = random_bits(state);
    switch (random_bits(state) % 4) {
    case 0: return from_bits(bits);
    case 1: return ldexp((double)(int64_t)bits, -63);
    case 2: return ldexp((double)(int64_t)bits, -60);
    default: return ldexp((double)(int64_t)bits, -63 + (int)(random_bits(state) % 30) - 18);
    }
}

static const double special[] = {
    0.0, -0.0, 1, -1, 0.5, -0.5, 2, HUGE_VAL, -HUGE_VAL, (double)NAN, 0x1p-1074, -0x1p-1074, 0x1p-1022,
    0x1.fffffffffffffp1023, 709.78, 710.4, -745.1, 0x1.fffffffffffffp-1, 0x1.0000000000001p0,
    /* close to a multiple of pi/2: Muller, "Elementary Functions", 2nd edition, table 10.1 */
    0x1.6ac5b262ca1ffp849, 3.14159265358979311600, 1.57079632679489655800, 1e22};
enum { SPECIALS = sizeof special / sizeof *special };

static void check_doubles(const Function *f) {
    Arena *arena = arena_create(0);
    const Kernel *k = kernel_of(arena, f->prim, DT_F64);
    static double x[DOUBLES], y[DOUBLES];
    int64_t count = DOUBLES;
    uint64_t state = 1;
    Worst worst = {0};
    for (int i = 0; i < DOUBLES; i++) x[i] = i < SPECIALS ? special[i] : random_double(&state);
    kernel_eval(k, (void *[]){x, y}, &count);
    for (int i = 0; i < DOUBLES; i++) {
        long double exact = f->widest((long double)x[i]);
        double error = ulps(y[i], exact, 53, -1022);
        bool wrong_zero = y[i] == 0 && exact == 0 && !signbit(y[i]) != !signbit(exact);
        cr_expect(!wrong_zero, "%s(%a) is a zero of the wrong sign", f->name, x[i]);
        if (error > worst.error) worst = (Worst){error, x[i], 0, y[i], exact};
    }
    if (getenv("ONNXFUSE_REPORT")) cr_log_warn("f64 %-8s %.3f at %a", f->name, worst.error, worst.at);
    cr_expect(worst.error <= 4, "%s(%a) = %a, not %La: %g units", f->name, worst.at, worst.got, worst.exact,
              worst.error);
    arena_destroy(arena);
}

Test(math, functions_of_doubles_are_within_four_units) {
    if (sizeof(long double) == sizeof(double)) return; /* no wider type to compare with */
    for (int i = 0; i < FUNCTIONS; i++) check_doubles(&functions[i]);
}

/* ---- arguments whose sign is known ---- */

static int magnitude(Emit *e, int x) { return emit1(e, K_ABS, emit_dtype(e, x), x); }
static int negated(Emit *e, int x) { return emit1(e, K_NEG, emit_dtype(e, x), x); }
static int plus(Emit *e, int x, double y) {
    return emit2(e, K_ADD, emit_dtype(e, x), x, emit_float(e, emit_dtype(e, x), y));
}
static int less_magnitude(Emit *e, int x) { return negated(e, magnitude(e, x)); }
static int less_root(Emit *e, int x) {
    return negated(e, plus(e, emit1(e, K_SQRT, emit_dtype(e, x), magnitude(e, x)), 1.3));
}
static int at_most_nothing(Emit *e, int x) {
    return emit2(e, K_MIN, emit_dtype(e, x), emit_float(e, emit_dtype(e, x), 0), x);
}
static int less_square(Emit *e, int x) {
    return emit2(e, K_MUL, emit_dtype(e, x), less_magnitude(e, x), magnitude(e, x));
}
static int with_epsilon(Emit *e, int x) { return plus(e, magnitude(e, x), 1e-6); }
static int at_least_epsilon(Emit *e, int x) {
    return emit2(e, K_MAX, emit_dtype(e, x), emit_float(e, emit_dtype(e, x), 1e-30), x);
}
static int plus_one(Emit *e, int x) { return plus(e, x, 1); } /* may be anything */

static int count_of(const Kernel *k) {
    int count = 0;
    for (int n = 0; n < k->insts.count; n++) count += k->insts.items[n].op != K_CONST;
    return count;
}

/* A function has the same bits whether it sees where its argument comes from or reads it from memory. */
static void check_argument(Prim prim, Argument *argument, bool shorter, DType dtype) {
    Arena *arena = arena_create(0);
    const Kernel *whole = kernel_of_argument(arena, prim, argument, dtype), *function = kernel_of(arena, prim, dtype),
                 *first = kernel_of_argument(arena, (Prim)ARGUMENT_ALONE, argument, dtype);
    static double x[DOUBLES], z[DOUBLES], want[DOUBLES], got[DOUBLES];
    uint64_t state = 11;
    int64_t count = DOUBLES;
    const size_t size = dtype_size(dtype);
    for (int i = 0; i < DOUBLES; i++)
        dtype_store_double(dtype, x, i, i < SPECIALS ? special[i] : random_double(&state));
    kernel_eval(first, (void *[]){x, z}, &count);
    kernel_eval(function, (void *[]){z, want}, &count);
    kernel_eval(whole, (void *[]){x, got}, &count);
    for (int i = 0; i < DOUBLES; i++) {
        double a = dtype_load_double(dtype, want, i), b = dtype_load_double(dtype, got, i);
        bool same = !memcmp((char *)want + (size_t)i * size, (char *)got + (size_t)i * size, size);
        cr_assert(same || (isnan(a) && isnan(b)), "%s of %a: %a, not %a", prim_info(prim)->name,
                  dtype_load_double(dtype, z, i), b, a);
    }
    /* a load and a store are counted twice */
    cr_expect_eq(count_of(whole) < count_of(first) + count_of(function) - 2, shorter, "%s: %d, %d and %d instructions",
                 prim_info(prim)->name, count_of(whole), count_of(first), count_of(function));
    arena_destroy(arena);
}

Test(math, known_signs_shorten_functions_and_change_no_bits) {
    static const DType types[] = {DT_F32, DT_F64};
    for (int t = 0; t < 2; t++) {
        check_argument(PRIM_EXP, less_magnitude, true, types[t]);
        check_argument(PRIM_EXP, less_root, true, types[t]);
        check_argument(PRIM_EXP, at_most_nothing, true, types[t]);
        check_argument(PRIM_EXP, less_square, true, types[t]);
        check_argument(PRIM_EXP, with_epsilon, false, types[t]);
        check_argument(PRIM_EXP, plus_one, false, types[t]);
        check_argument(PRIM_LOG, with_epsilon, true, types[t]);
        check_argument(PRIM_LOG, at_least_epsilon, true, types[t]);
        check_argument(PRIM_LOG, magnitude, false, types[t]);
        check_argument(PRIM_LOG, plus_one, false, types[t]);
    }
}

/* ---- pow ---- */

static void check_powers(DType dtype, double limit) {
    Arena *arena = arena_create(0);
    const Kernel *k = kernel_of(arena, PRIM_POW, dtype);
    bool single = dtype == DT_F32;
    static double x[DOUBLES], y[DOUBLES], r[DOUBLES];
    static float fx[DOUBLES], fy[DOUBLES], fr[DOUBLES];
    int64_t count = DOUBLES;
    uint64_t state = 7;
    Worst worst = {0};
    for (int i = 0; i < DOUBLES; i++) {
        bool table = i < SPECIALS * SPECIALS;
        x[i] = table ? special[i % SPECIALS] : random_double(&state);
        y[i] = table ? special[i / SPECIALS] : random_double(&state);
        if (!table && i % 3 == 0) x[i] = 1 + ldexp(random_double(&state), -20);
        if (!table && i % 5 == 0) y[i] = rint(fmod(y[i], 1000));
        fx[i] = (float)x[i];
        fy[i] = (float)y[i];
        if (single) x[i] = (double)fx[i], y[i] = (double)fy[i];
    }
    kernel_eval(k, single ? (void *[]){fx, fy, fr} : (void *[]){x, y, r}, &count);
    for (int i = 0; i < DOUBLES; i++) {
        double got = single ? (double)fr[i] : r[i];
        long double exact = powl((long double)x[i], (long double)y[i]);
        double error = single ? ulps(got, exact, 24, -126) : ulps(got, exact, 53, -1022);
        if (error > worst.error) worst = (Worst){error, x[i], y[i], got, exact};
    }
    if (getenv("ONNXFUSE_REPORT"))
        cr_log_warn("%s pow %.3f at %a, %a", dtype_name(dtype), worst.error, worst.at, worst.other);
    cr_expect(worst.error <= limit, "pow(%a, %a) = %a, not %La: %g units", worst.at, worst.other, worst.got,
              worst.exact, worst.error);
    arena_destroy(arena);
}

Test(math, powers_are_within_two_units_of_floats_and_four_of_doubles) {
    check_powers(DT_F32, 2);
    if (sizeof(long double) > sizeof(double)) check_powers(DT_F64, 4);
}

/* ---- many divided by one (divide.h) ---- */

/* Every mantissa of the dividend, for divisors at the edges and in between: within half a unit and what the two parts of
 * the inverse leave out; exact where the quotient is a float. */
Test(math, rows_divided_by_one_number_are_within_half_a_unit) {
    static const float fixed[] = {1,     1.5f,       3,        10,    1.41421356f,     0x1.fffffep0f, 0x1.000002p0f,
                                  0.05f, 0x1p-60f,   0x1p60f,  -7,    0x1.555556p-30f, 127,           255,
                                  1e-5f, 0x1.8p-59f, 1.0f / 3, 96.0f, 0x1.fffffep59f,  768,           1e9f};
    enum { FIXED = sizeof fixed / sizeof *fixed, DIVISORS = FIXED + 12 };
    uint64_t state = 3;
    const char *text = getenv("ONNXFUSE_EXHAUSTIVE");
    uint32_t step = text && atoll(text) > 0 ? 1 : 61;
    int64_t differ = 0, all = 0;
    for (int d = 0; d < DIVISORS; d++) {
        float by =
            d < FIXED ? fixed[d] : (float)ldexp(1 + (double)(random_bits(&state) >> 11) * 0x1p-53, d - FIXED - 6);
        for (uint32_t mantissa = 0; mantissa < 1u << 23; mantissa += step) {
            float x = (float)ldexp(1 + mantissa * 0x1p-23, (int)(mantissa % 41) - 20), got = divide_by_row(x, by);
            double exact = (double)x / (double)by;
            double error = float_ulps((double)got, exact);
            all++;
            differ += got != x / by;
            cr_assert(error <= 0.500001, "%a / %a = %a: %g units", (double)x, (double)by, (double)got, error);
            cr_assert((double)(float)exact != exact || (double)got == exact, "%a / %a", (double)x, (double)by);
        }
    }
    if (getenv("ONNXFUSE_REPORT"))
        cr_log_warn("divide_by_row: %lld of %lld quotients are not the nearest float", (long long)differ,
                    (long long)all);
    cr_expect(differ <= all / 100000 + 1, "%lld of %lld", (long long)differ, (long long)all);
}

Test(math, rows_divided_by_one_number_keep_special_values) {
    static const float values[] = {0.0f,      -0.0f,     HUGE_VALF, -HUGE_VALF, NAN,    1,     -3,
                                   0x1p-149f, 0x1p-126f, 3e38f,     -3e38f,     1e-30f, 1e30f, 0x1.fffffep127f};
    enum { COUNT = sizeof values / sizeof *values };
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < COUNT; k++) {
            float want = values[i] / values[k], got = divide_by_row(values[i], values[k]);
            bool tiny = fabsf(want) < 0x1p-100f && want != 0; /* within one unit of what is subnormal */
            bool same = (want != want && got != got) || (want == got && !signbit(want) == !signbit(got));
            cr_expect(same || (tiny && fabsf(got - want) <= 0x1p-149f + fabsf(want) * 0x1p-23f), "%a / %a = %a, not %a",
                      (double)values[i], (double)values[k], (double)got, (double)want);
        }
}

/* ---- size ---- */

Test(math, frequent_functions_stay_short) {
    static const struct {
        Prim prim;
        int most;
    } rows[] = {{PRIM_EXP, 13}, {PRIM_TANH, 28}, {PRIM_SIGMOID, 17}, {PRIM_ERF, 21}, {PRIM_LOG, 34}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *arena = arena_create(0);
        const Kernel *k = kernel_of(arena, rows[i].prim, DT_F32);
        int count = 0;
        for (int n = 0; n < k->insts.count; n++)
            count += k->insts.items[n].op != K_CONST && k->insts.items[n].op != K_BITCAST;
        if (getenv("ONNXFUSE_REPORT")) cr_log_warn("%s: %d instructions", prim_info(rows[i].prim)->name, count - 2);
        cr_expect_leq(count - 2, rows[i].most, "%s: %d instructions", prim_info(rows[i].prim)->name, count - 2);
        arena_destroy(arena);
    }
}
