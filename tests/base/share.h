/* SPDX-License-Identifier: Apache-2.0 */
/* How many of a test's cases run.
 *
 * Random ones in a sanitized build, where each takes five to twenty times as long: one of so many. They differ in numbers more
 * than in the paths that they take.
 *
 * Kernels for GPUs, which OpenCL's compiler takes its time for: all, or with ONNXFUSE_TEST_TURN=N every second one; with N + 1
 * the others.
 *
 * Pairs, such as kernels and the levels of processors that LLVM compiles each for, most of whose time is LLVM's: with
 * ONNXFUSE_TEST_TURN as many as of random cases, others the next time.
 *
 * ONNXFUSE_TEST_SHARE=N, for a slow machine: one of N of all these. ONNXFUSE_TEST_ALL: all. */
#ifndef ONNXFUSE_TESTS_BASE_SHARE_H
#define ONNXFUSE_TESTS_BASE_SHARE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static inline unsigned long share_number(const char *name) {
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 10) : 0;
}

/* ONNXFUSE_TEST_SHARE. */
static inline unsigned long share_of_slow(void) {
    unsigned long share = getenv("ONNXFUSE_TEST_ALL") ? 1 : share_number("ONNXFUSE_TEST_SHARE");
    return share >= 1 && share <= 16 ? share : 1;
}

/* Of so many random cases one runs. */
static inline uint64_t share_of(void) {
#ifdef __SANITIZE_ADDRESS__
    return getenv("ONNXFUSE_TEST_ALL") ? 1 : 7 * share_of_slow();
#else
    return share_of_slow();
#endif
}

/* How many of `count` run. */
static inline uint64_t share_count(uint64_t count) { return count ? (count - 1) / share_of() + 1 : 0; }

/* From one random case to the next: that many on average, and uneven, since tests take remainders of their seeds. */
static inline uint64_t share_step(void) {
    static uint32_t state = 1;
    state = state * 1664525 + 1013904223; /* Numerical Recipes' generator */
    return 1 + (state >> 16) % (2 * share_of() - 1);
}

/* Asked once a case. */
static inline bool share_turn(void) {
    static unsigned long number;
    if (!getenv("ONNXFUSE_TEST_TURN")) return true;
    return (number++ + share_number("ONNXFUSE_TEST_TURN")) % (2 * share_of_slow()) == 0;
}

/* Whether this pair runs: neighbours of one number run with different others. */
static inline bool share_pair(unsigned long one, unsigned long other) {
    return !getenv("ONNXFUSE_TEST_TURN") || (one + other + share_number("ONNXFUSE_TEST_TURN")) % share_of() == 0;
}

#endif
