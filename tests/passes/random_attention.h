/* SPDX-License-Identifier: Apache-2.0 */
/* Random attention graphs: every combination of masks, safeguards, shared heads, layouts and types becomes one anchor by
 * fuse_attention, and means what it meant: the graph is evaluated before and after. */
#ifndef ONNXFUSE_TESTS_RANDOM_ATTENTION_H
#define ONNXFUSE_TESTS_RANDOM_ATTENTION_H

#include "base/arena.h"

#include <stdint.h>

/* NULL, or what is wrong with the graph of this seed, in the arena. The bytes, one a choice, choose before the seed does. */
const char *check_random_attention(uint64_t seed, const unsigned char *choices, size_t count, Arena *arena);

#endif
