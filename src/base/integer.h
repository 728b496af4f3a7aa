/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on sizes. */
#ifndef ONNXFUSE_BASE_INTEGER_H
#define ONNXFUSE_BASE_INTEGER_H

#include <stdint.h>

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
/* a >= 0, b > 0. */
static inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static inline int64_t round_up(int64_t a, int64_t to) { return ceil_div(a, to) * to; } /* likewise, and it fits */

/* The greatest, and not below 0; of a number and 0 its magnitude. */
static inline int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

#endif
