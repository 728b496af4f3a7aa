/* SPDX-License-Identifier: Apache-2.0 */
/* The passes of a transform in one precision; included by transform.c with REAL (the type) and NAMED(x) (x_f32, x_f64)
 * set. The algorithm is Stockham's: each factor's pass reads [count, factor, rest] and writes [factor, count, rest],
 * which leaves the result in order. Radices 2, 3, 4, 5 have their butterflies, other small primes a sum. */

typedef struct NAMED(Complex) {
    REAL re, im;
} NAMED(Complex);

static NAMED(Complex) NAMED(plus)(NAMED(Complex) a, NAMED(Complex) b) {
    return (NAMED(Complex)){a.re + b.re, a.im + b.im};
}
static NAMED(Complex) NAMED(minus)(NAMED(Complex) a, NAMED(Complex) b) {
    return (NAMED(Complex)){a.re - b.re, a.im - b.im};
}
static NAMED(Complex) NAMED(times)(NAMED(Complex) a, NAMED(Complex) b) {
    return (NAMED(Complex)){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
/* a * -i */
static NAMED(Complex) NAMED(turned)(NAMED(Complex) a) { return (NAMED(Complex)){a.im, -a.re}; }
/* a + x * b */
static NAMED(Complex) NAMED(plus_scaled)(NAMED(Complex) a, REAL x, NAMED(Complex) b) {
    return (NAMED(Complex)){a.re + x * b.re, a.im + x * b.im};
}

static void NAMED(butterfly2)(NAMED(Complex) * v) {
    NAMED(Complex) a = v[0];
    v[0] = NAMED(plus)(a, v[1]);
    v[1] = NAMED(minus)(a, v[1]);
}

static void NAMED(butterfly3)(NAMED(Complex) * v) {
    const REAL sine = (REAL)0.86602540378443864676;
    NAMED(Complex) sum = NAMED(plus)(v[1], v[2]), middle = NAMED(plus_scaled)(v[0], (REAL)-0.5, sum);
    NAMED(Complex) side = NAMED(turned)(NAMED(minus)(v[1], v[2]));
    side = (NAMED(Complex)){sine * side.re, sine * side.im};
    v[0] = NAMED(plus)(v[0], sum);
    v[1] = NAMED(plus)(middle, side);
    v[2] = NAMED(minus)(middle, side);
}

static void NAMED(butterfly4)(NAMED(Complex) * v) {
    NAMED(Complex) even = NAMED(plus)(v[0], v[2]), even_difference = NAMED(minus)(v[0], v[2]);
    NAMED(Complex) odd = NAMED(plus)(v[1], v[3]), odd_difference = NAMED(turned)(NAMED(minus)(v[1], v[3]));
    v[0] = NAMED(plus)(even, odd);
    v[2] = NAMED(minus)(even, odd);
    v[1] = NAMED(plus)(even_difference, odd_difference);
    v[3] = NAMED(minus)(even_difference, odd_difference);
}

static void NAMED(butterfly5)(NAMED(Complex) * v) {
    const REAL c1 = (REAL)0.30901699437494742410, c2 = (REAL)-0.80901699437494742410;
    const REAL s1 = (REAL)0.95105651629515357212, s2 = (REAL)0.58778525229247312917;
    NAMED(Complex) outer = NAMED(plus)(v[1], v[4]), outer_side = NAMED(minus)(v[1], v[4]);
    NAMED(Complex) inner = NAMED(plus)(v[2], v[3]), inner_side = NAMED(minus)(v[2], v[3]), first = v[0];
    v[0] = (NAMED(Complex)){first.re + outer.re + inner.re, first.im + outer.im + inner.im};
    NAMED(Complex) a = {first.re + c1 * outer.re + c2 * inner.re, first.im + c1 * outer.im + c2 * inner.im};
    NAMED(Complex) b = {s1 * outer_side.re + s2 * inner_side.re, s1 * outer_side.im + s2 * inner_side.im};
    NAMED(Complex) c = {first.re + c2 * outer.re + c1 * inner.re, first.im + c2 * outer.im + c1 * inner.im};
    NAMED(Complex) d = {s2 * outer_side.re - s1 * inner_side.re, s2 * outer_side.im - s1 * inner_side.im};
    b = NAMED(turned)(b);
    d = NAMED(turned)(d);
    v[1] = NAMED(plus)(a, b);
    v[4] = NAMED(minus)(a, b);
    v[2] = NAMED(plus)(c, d);
    v[3] = NAMED(minus)(c, d);
}

/* roots [p]: exp(-2 pi i k / p) */
static void NAMED(butterfly)(NAMED(Complex) * v, int64_t p, const NAMED(Complex) * roots) {
    NAMED(Complex) sum[LARGEST_RADIX];
    for (int64_t k = 0; k < p; k++) {
        sum[k] = v[0];
        for (int64_t j = 1; j < p; j++) sum[k] = NAMED(plus)(sum[k], NAMED(times)(v[j], roots[j * k % p]));
    }
    memcpy(v, sum, (size_t)p * sizeof *v);
}

/* from [count][p][rest] -> to [p][count][rest]; twiddles [p - 1][rest]; roots of a radix that has no butterfly. */
static void NAMED(pass)(const NAMED(Complex) * from, NAMED(Complex) * to, int64_t count, int64_t p, int64_t rest,
                        const NAMED(Complex) * twiddles, const NAMED(Complex) * roots) {
    NAMED(Complex) v[LARGEST_RADIX];
    for (int64_t k = 0; k < count; k++) {
        for (int64_t i = 0; i < rest; i++) {
            for (int64_t j = 0; j < p; j++) v[j] = from[(k * p + j) * rest + i];
            switch (p) {
            case 2: NAMED(butterfly2)(v); break;
            case 3: NAMED(butterfly3)(v); break;
            case 4: NAMED(butterfly4)(v); break;
            case 5: NAMED(butterfly5)(v); break;
            default: NAMED(butterfly)(v, p, roots);
            }
            to[k * rest + i] = v[0];
            for (int64_t j = 1; j < p; j++)
                to[(j * count + k) * rest + i] = i ? NAMED(times)(v[j], twiddles[(j - 1) * rest + i]) : v[j];
        }
    }
}

static void *NAMED(tables)(Arena *arena, const Transform *t) {
    int64_t total = 0, count = 1, at = 0;
    for (int f = 0; f < t->factor_count; f++) {
        count *= t->factors[f];
        total += (t->factors[f] - 1) * (t->n / count) + t->factors[f];
    }
    NAMED(Complex) *table = ARENA_ARRAY(arena, NAMED(Complex), total + 1);
    count = 1;
    for (int f = 0; f < t->factor_count; f++) {
        int64_t p = t->factors[f], rest = t->n / (count * p);
        for (int64_t j = 1; j < p; j++)
            for (int64_t i = 0; i < rest; i++) {
                double angle = root_angle(j * i, p * rest);
                table[at++] = (NAMED(Complex)){(REAL)cos(angle), (REAL)sin(angle)};
            }
        for (int64_t k = 0; k < p; k++) {
            double angle = root_angle(k, p);
            table[at++] = (NAMED(Complex)){(REAL)cos(angle), (REAL)sin(angle)};
        }
        count *= p;
    }
    return table;
}

/* In place; scratch [n]. */
static void NAMED(forward)(const Transform *t, NAMED(Complex) * x, NAMED(Complex) * scratch) {
    const NAMED(Complex) *table = t->table;
    NAMED(Complex) *from = x, *to = scratch;
    int64_t count = 1;
    for (int f = 0; f < t->factor_count; f++) {
        int64_t p = t->factors[f], rest = t->n / (count * p);
        NAMED(pass)(from, to, count, p, rest, table, table + (p - 1) * rest);
        table += (p - 1) * rest + p;
        NAMED(Complex) *swap = from;
        from = to;
        to = swap;
        count *= p;
    }
    if (from != x) memcpy(x, from, (size_t)t->n * sizeof *x);
}

/* The conjugate, over n. */
static void NAMED(conjugate)(NAMED(Complex) * x, int64_t n, REAL factor) {
    for (int64_t i = 0; i < n; i++) x[i] = (NAMED(Complex)){x[i].re * factor, -x[i].im * factor};
}

#undef REAL
#undef NAMED
