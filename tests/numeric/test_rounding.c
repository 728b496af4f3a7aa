/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds that other tests compare with: right results are within them, and what is wrong by a little is not. */
#include <criterion/criterion.h>
#include <math.h>

#include "rounding.h"

static const DType types[] = {DT_F64, DT_F32, DT_F16, DT_BF16};
enum { TYPES = sizeof types / sizeof *types };

static double uniform(uint64_t *state) { /* -1 to 1, SplitMix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1;
}

static double stored(DType dtype, double x) {
    double cell;
    dtype_store_double(dtype, &cell, 0, x);
    return dtype_load_double(dtype, &cell, 0);
}

/* A dot product with its exact value (long double has 11 bits more than f64), summed as a device would. */
typedef struct Sum {
    long double exact, magnitude;
    double got, last; /* stored; the last product */
} Sum;

static Sum sum_of(DType dtype, int terms, bool backwards, uint64_t seed) {
    Sum s = {0};
    double wide = 0;
    float narrow = 0;
    double a[4096], b[4096];
    for (int i = 0; i < terms; i++) a[i] = stored(dtype, uniform(&seed)), b[i] = stored(dtype, uniform(&seed));
    for (int n = 0; n < terms; n++) {
        int i = backwards ? terms - 1 - n : n;
        s.exact += (long double)a[i] * b[i];
        s.magnitude += fabsl((long double)a[i] * b[i]);
        wide += a[i] * b[i];
        narrow += (float)a[i] * (float)b[i];
        s.last = a[i] * b[i];
    }
    s.got = dtype == DT_F64 ? wide : stored(dtype, (double)narrow);
    return s;
}

static double bound_of(DType dtype, const Sum *s, int terms) {
    return rounding_of_sum(dtype, (double)s->exact, (double)s->magnitude, terms);
}

static const int lengths[] = {1, 2, 3, 17, 100, 576, 4096};

Test(rounding, sums_in_any_order_are_within_the_bound) {
    for (int t = 0; t < TYPES; t++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (uint64_t seed = 0; seed < 200; seed++) {
                Sum s = sum_of(types[t], lengths[l], seed & 1, seed);
                double bound = bound_of(types[t], &s, lengths[l]);
                cr_assert(rounding_agrees(types[t], s.got, (double)s.exact, bound),
                          "%s, %d terms, seed %llu: %g, not %Lg", dtype_name(types[t]), lengths[l],
                          (unsigned long long)seed, s.got, s.exact);
            }
}

/* Wrong by four units of the bound: the smallest numbers of the stored type that lie beyond it on either side. */
Test(rounding, what_is_a_few_units_beyond_the_bound_fails) {
    for (int t = 0; t < TYPES; t++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (uint64_t seed = 0; seed < 50; seed++)
                for (int side = -1; side <= 1; side += 2) {
                    Sum s = sum_of(types[t], lengths[l], false, seed);
                    double exact = (double)s.exact, bound = bound_of(types[t], &s, lengths[l]);
                    double unit = 2 * rounding_unit(types[t]) * (fabs(exact) + bound);
                    double wrong = stored(types[t], exact + side * (bound + 4 * unit));
                    cr_assert(!rounding_agrees(types[t], wrong, exact, bound),
                              "%s, %d terms, seed %llu: %g passes for %g", dtype_name(types[t]), lengths[l],
                              (unsigned long long)seed, wrong, exact);
                }
}

/* A product that is left out of a sum of up to 100 is seen, but where it is smaller than what the format can tell, which
 * is a tenth of them in bf16 and fewer in the others. */
Test(rounding, a_product_that_is_left_out_fails) {
    for (int t = 0; t < TYPES; t++)
        for (size_t l = 0; l < 5; l++) {
            int small = 0;
            for (uint64_t seed = 0; seed < 200; seed++) {
                Sum s = sum_of(types[t], lengths[l], false, seed);
                double exact = (double)s.exact, bound = bound_of(types[t], &s, lengths[l]);
                double wrong = stored(types[t], exact - s.last);
                if (fabs(s.last) <= 3 * bound)
                    small++;
                else
                    cr_assert(!rounding_agrees(types[t], wrong, exact, bound),
                              "%s, %d terms, seed %llu: %g passes for %g", dtype_name(types[t]), lengths[l],
                              (unsigned long long)seed, wrong, exact);
            }
            cr_expect_leq(small, types[t] == DT_BF16 ? 40 : 10, "%s, %d terms: %d of 200 are too small to tell",
                          dtype_name(types[t]), lengths[l], small);
        }
}

/* No looser than one unit in the last place (half of one is the rounding) where there is a single product. */
Test(rounding, one_product_is_rounded_once) {
    for (int t = 0; t < TYPES; t++)
        for (double x = 0.01; x < 100; x *= 1.7) {
            double bound = rounding_of_sum(types[t], x, x, 1), unit = ldexp(rounding_unit(types[t]), ilogb(x) + 1);
            cr_expect(bound > 0 && bound <= unit * 1.01, "%s: %g within %g, a unit is %g", dtype_name(types[t]), x,
                      bound, unit);
        }
}

Test(rounding, special_values) {
    static const struct {
        const char *must;
        DType dtype;
        double got, exact, bound;
        bool agrees;
    } rows[] = {
        {"not-a-number is itself", DT_F32, NAN, NAN, 0, true},
        {"not-a-number is no number", DT_F32, NAN, 0, INFINITY, false},
        {"a number is not not-a-number", DT_F32, 0, NAN, INFINITY, false},
        {"infinity is itself", DT_F32, INFINITY, INFINITY, 0, true},
        {"infinity has a sign", DT_F32, -INFINITY, INFINITY, INFINITY, false},
        {"a large number is not infinity", DT_F16, 65504, INFINITY, 1, false},
        {"infinity is no small number", DT_F16, INFINITY, 60000, 100, false},
        {"what may overflow may be infinite", DT_F16, INFINITY, 65500, 40, true},
        {"but not to the other side", DT_F16, -INFINITY, 65500, 40, false},
        {"a zero may be lost of what is below the smallest number", DT_F16, 0, 0x1p-25, 0x1p-25, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(rounding_agrees(rows[i].dtype, rows[i].got, rows[i].exact, rows[i].bound), rows[i].agrees, "%s",
                     rows[i].must);
}
