/* SPDX-License-Identifier: Apache-2.0 */
/* What K_DIV with bits = 1 computes: many quotients a/b of f32 by one divisor, two instructions each.
 *
 * 1/b is held in two parts: r, which is 1/b rounded toward zero, and l, what is left of it (N. Brisebarre,
 * J.-M. Muller, S. K. Raina, "Accelerating correctly rounded floating-point division when the divisor is known in
 * advance", 2004). r + l is 1/b to 2^-46 relative, so r a + (l a), rounded once, is the correctly rounded quotient but
 * where a/b is closer than 2^-46 to the middle between two floats: about one quotient in ten million, which is then off
 * by 0.5000001 units. Where a/b is a float it is exact. Since r and l have the same sign and neither is zero, zeros
 * keep their sign, infinities and NaN stay; overflow is where it should be. Quotients below 2^-100 have an error of up
 * to one unit, for the small product loses bits there.
 * Divisors outside [2^-60, 2^60], zero, infinities and NaN among them, divide as ever. */
#ifndef ONNXFUSE_CODEGEN_DIVIDE_H
#define ONNXFUSE_CODEGEN_DIVIDE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define DIVISOR_LEAST 0x1p-60
#define DIVISOR_MOST 0x1p60
#define DIVISOR_REST 0x1p-60 /* times r: what l has at least, so that it is not zero where r is exact */

/* The same by scalars: what renderers must agree with to the bit. */
static inline float divide_by_row(float a, float b) {
    float size = fabsf(b), r = 1 / b;
    if (!(size >= (float)DIVISOR_LEAST && size <= (float)DIVISOR_MOST)) return a / b;
    if (fmaf(-r, b, 1) < 0) { /* r was rounded away from zero */
        uint32_t bits;
        memcpy(&bits, &r, sizeof bits);
        bits--;
        memcpy(&r, &bits, sizeof r);
    }
    float l = fmaf(fmaf(-r, b, 1), r, r * (float)DIVISOR_REST);
    return fmaf(a, r, a * l);
}

#endif
