/* SPDX-License-Identifier: Apache-2.0 */
/* Discrete Fourier transforms. Lengths whose prime factors are small go through one pass a factor (transform_passes.h);
 * others are a convolution of a power-of-two length, in f64 (Bluestein, "A linear filtering approach to the computation
 * of discrete Fourier transform", 1970). */
#include "ops/signal/transform.h"

#include <math.h>

enum { LARGEST_RADIX = 31 };

struct Transform {
    int64_t n;
    bool wide;
    int factor_count; /* 0 for Bluestein */
    int64_t factors[MAX_FACTORS];
    void *table; /* for each pass its twiddles, then the roots of its radix */
    /* Bluestein: */
    Transform *inner; /* of length >= 2n - 1 */
    void *chirp;      /* [n] exp(-pi i k^2 / n) */
    void *filter;     /* [inner->n] the transform of the chirp's conjugate */
};

static double root_angle(int64_t k, int64_t n) { return -2 * M_PI * (double)(k % n) / (double)n; }

#define REAL float
#define NAMED(x) x##_f32
#include "ops/signal/transform_passes.h"
#define REAL double
#define NAMED(x) x##_f64
#include "ops/signal/transform_passes.h"

/* Fours first, then what is left; false when a prime is too large. */
static bool factorise(Transform *t) {
    int64_t rest = t->n;
    while (rest % 4 == 0) {
        t->factors[t->factor_count++] = 4;
        rest /= 4;
    }
    if (rest % 2 == 0) { /* the two goes to the front */
        int64_t first = t->factor_count ? t->factors[0] : 2;
        t->factors[t->factor_count++] = first;
        t->factors[0] = 2;
        rest /= 2;
    }
    for (int64_t p = 3; p <= LARGEST_RADIX; p += 2) {
        while (rest % p == 0) {
            t->factors[t->factor_count++] = p;
            rest /= p;
        }
    }
    return rest == 1;
}

static void make_chirp(Arena *arena, Transform *t) {
    int64_t length = 1, square = 0;
    while (length < 2 * t->n - 1) length *= 2;
    t->factor_count = 0;
    t->inner = transform_make(arena, length, true);
    Complex_f64 *chirp = ARENA_ARRAY(arena, Complex_f64, t->n), *filter = ARENA_ARRAY(arena, Complex_f64, length);
    for (int64_t k = 0; k < t->n; k++) { /* square: k^2 mod 2n */
        double angle = root_angle(square, 2 * t->n);
        chirp[k] = (Complex_f64){cos(angle), sin(angle)};
        filter[k] = (Complex_f64){chirp[k].re, -chirp[k].im};
        if (k) filter[length - k] = filter[k];
        square = (square + 2 * k + 1) % (2 * t->n);
    }
    forward_f64(t->inner, filter, ARENA_ARRAY(arena, Complex_f64, length));
    t->chirp = chirp;
    t->filter = filter;
}

Transform *transform_make(Arena *arena, int64_t n, bool wide) {
    Transform *t = ARENA_NEW(arena, Transform);
    t->n = n;
    t->wide = wide;
    if (!factorise(t))
        make_chirp(arena, t);
    else
        t->table = wide ? tables_f64(arena, t) : tables_f32(arena, t);
    return t;
}

size_t transform_scratch(const Transform *t) {
    if (t->inner) return 2 * (size_t)t->inner->n * sizeof(Complex_f64);
    return (size_t)t->n * (t->wide ? sizeof(Complex_f64) : sizeof(Complex_f32));
}

static Complex_f64 element(const Transform *t, const void *x, int64_t i) {
    if (t->wide) return ((const Complex_f64 *)x)[i];
    Complex_f32 value = ((const Complex_f32 *)x)[i];
    return (Complex_f64){(double)value.re, (double)value.im};
}

static void chirp_forward(const Transform *t, void *x, Complex_f64 *line) {
    const Complex_f64 *chirp = t->chirp, *filter = t->filter;
    int64_t length = t->inner->n;
    memset(line, 0, (size_t)length * sizeof *line);
    for (int64_t i = 0; i < t->n; i++) line[i] = times_f64(element(t, x, i), chirp[i]);
    forward_f64(t->inner, line, line + length);
    for (int64_t i = 0; i < length; i++) line[i] = times_f64(line[i], filter[i]);
    conjugate_f64(line, length, 1); /* so that a forward transform brings it back */
    forward_f64(t->inner, line, line + length);
    conjugate_f64(line, length, 1 / (double)length);
    for (int64_t i = 0; i < t->n; i++) {
        Complex_f64 value = times_f64(line[i], chirp[i]);
        if (t->wide)
            ((Complex_f64 *)x)[i] = value;
        else
            ((Complex_f32 *)x)[i] = (Complex_f32){(float)value.re, (float)value.im};
    }
}

static void conjugate(const Transform *t, void *x, double factor) {
    if (t->wide)
        conjugate_f64(x, t->n, factor);
    else
        conjugate_f32(x, t->n, (float)factor);
}

/* The inverse is the conjugate of the forward transform of the conjugate, over n. */
void transform_run(const Transform *t, bool inverse, void *x, void *scratch) {
    if (inverse) conjugate(t, x, 1);
    if (t->inner)
        chirp_forward(t, x, scratch);
    else if (t->wide)
        forward_f64(t, x, scratch);
    else
        forward_f32(t, x, scratch);
    if (inverse) conjugate(t, x, 1 / (double)t->n);
}
