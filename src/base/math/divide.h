/* SPDX-License-Identifier: Apache-2.0 */
/* What K_DIV with bits = 1 computes, and tiles whose gates divide: many quotients a/b of f32 by one divisor, two instructions each.
 *
 * 1/b is held in two parts: r, a float one or two units nearer to zero than 1/b, and l, what is left of it (after N. Brisebarre,
 * J.-M. Muller, S. K. Raina, "Accelerating correctly rounded floating-point division when the divisor is known in
 * advance", 2004). r + l is 1/b to 2^-45 relative, so r a + (l a), rounded once, is the correctly rounded quotient but
 * where a/b is about that close to the middle between two floats: one quotient in some million, which is then off
 * by 0.5000002 units. Where a/b is a float it is exact. Since r and l have the same sign and neither is zero, zeros
 * keep their sign, infinities and NaN stay; overflow is where it should be. Quotients below 2^-100 have an error of up
 * to one unit, for the small product loses bits there.
 * Divisors outside [2^-60, 2^60], zero, infinities and NaN among them, divide as ever. */
#ifndef ONNXFUSE_BASE_MATH_DIVIDE_H
#define ONNXFUSE_BASE_MATH_DIVIDE_H

#include <math.h>
#include <stdbool.h>

#define DIVISOR_LEAST 0x1p-60
#define DIVISOR_MOST 0x1p60
#define DIVISOR_BEFORE 0x1.fffffcp-1 /* 1 - 2^-23 */

/* 1/b as r + l; false: b divides as ever. */
static inline bool inverse_in_parts(float b, float *out_r, float *out_l) {
    float size = fabsf(b);
    if (!(size >= (float)DIVISOR_LEAST && size <= (float)DIVISOR_MOST)) return false;
    *out_r = 1 / b * (float)DIVISOR_BEFORE;
    *out_l = fmaf(-*out_r, b, 1) * *out_r;
    return true;
}

/* The same by scalars: what renderers must agree with to the bit. */
static inline float divide_by_row(float a, float b) {
    float r, l;
    return inverse_in_parts(b, &r, &l) ? fmaf(a, r, a * l) : a / b;
}

#endif
