/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of rounding errors. */
#include "rounding.h"

#include <math.h>

typedef struct Format {
    int precision;      /* bits of the significand, the hidden one too */
    int least_exponent; /* of the smallest normal number */
    double largest;
} Format;

static Format format_of(DType dtype) {
    switch (dtype) {
    case DT_F16: return (Format){11, -14, 65504};
    case DT_BF16: return (Format){8, -126, 0x1.fep127};
    case DT_F64: return (Format){53, -1022, 0x1.fffffffffffffp1023};
    default: return (Format){24, -126, 0x1.fffffep127};
    }
}

double rounding_unit(DType dtype) { return ldexp(1, -format_of(dtype).precision); }

DType rounding_work_type(DType dtype) { return dtype == DT_F16 || dtype == DT_BF16 ? DT_F32 : dtype; }

double rounding_gamma(DType dtype, double roundings) {
    double lost = fmin(roundings, 8 * sqrt(roundings)) * rounding_unit(rounding_work_type(dtype));
    return lost < 1 ? lost / (1 - lost) : INFINITY;
}

/* Half the distance of the subnormal numbers: what is lost where a result underflows. */
static double least_step(DType dtype) {
    Format f = format_of(dtype);
    return ldexp(1, f.least_exponent - f.precision);
}

double rounding_stored(DType dtype, double exact, double error) {
    if (rounding_work_type(dtype) == dtype) return error;
    return error + rounding_unit(dtype) * (fabs(exact) + error) + least_step(dtype);
}

/* The last term is of products that underflow. */
double rounding_of_sum(DType dtype, double exact, double magnitude, double terms) {
    double underflow = (terms + 1) * 2 * least_step(rounding_work_type(dtype));
    return rounding_stored(dtype, exact, rounding_gamma(dtype, terms) * magnitude + underflow);
}

bool rounding_agrees(DType dtype, double got, double exact, double bound) {
    if (isnan(got) || isnan(exact)) return isnan(got) && isnan(exact);
    if (isinf(exact)) return got == exact;
    if (isinf(got)) return fabs(exact) + bound > format_of(dtype).largest && (got > 0) == (exact > 0);
    return fabs(got - exact) <= bound;
}
