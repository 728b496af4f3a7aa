/* SPDX-License-Identifier: Apache-2.0 */
/* How many of a test's random cases run. In a sanitized build, where each takes five to twenty times as long, one of
 * so many, unless ONNXFUSE_TEST_ALL is set: the cases differ in numbers more than in the paths that they take. */
#ifndef ONNXFUSE_TESTS_BASE_SHARE_H
#define ONNXFUSE_TESTS_BASE_SHARE_H

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

#endif
