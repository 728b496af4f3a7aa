/* SPDX-License-Identifier: Apache-2.0 */
/* How many of a test's cases run.
 *
 * Random ones in a sanitized build, where each takes five to twenty times as long: one of so many, unless ONNXFUSE_TEST_ALL is
 * set. They differ in numbers more than in the paths that they take.
 *
 * Kernels for GPUs, which OpenCL's compiler takes its time for: all, or with ONNXFUSE_TEST_TURN=N every second one; with N + 1
 * the others. */
#ifndef ONNXFUSE_TESTS_BASE_SHARE_H
#define ONNXFUSE_TESTS_BASE_SHARE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Has no factor in common with what tests take their seeds' remainders by, but seven. */
static inline uint64_t share_step(void) {
#ifdef __SANITIZE_ADDRESS__
    return getenv("ONNXFUSE_TEST_ALL") ? 1 : 7;
#else
    return 1;
#endif
}

/* Asked once a case. */
static inline bool share_turn(void) {
    static unsigned long number;
    const char *turn = getenv("ONNXFUSE_TEST_TURN");
    return !turn || (number++ + strtoul(turn, NULL, 10)) % 2 == 0;
}

#endif
