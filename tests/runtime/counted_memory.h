/* SPDX-License-Identifier: Apache-2.0 */
/* The C library's memory, counted: one call of many fails, and what is not given back is known by where it was asked for.
 * For a program that is linked with --wrap for each of the functions in counted_memory.c (tests/CMakeLists.txt has the
 * list); what shared libraries ask for is not seen, but for cJSON, which is given these functions. */
#ifndef ONNXFUSE_TESTS_RUNTIME_COUNTED_MEMORY_H
#define ONNXFUSE_TESTS_RUNTIME_COUNTED_MEMORY_H

#include <stddef.h>

/* From now on calls of this thread are counted, and the nth fails; 0: none does. */
void counted_begin(long long fail_at);
/* How many there were. */
long long counted_end(void);
/* Blocks that are in use, of all threads. */
size_t counted_blocks(void);
/* From now on blocks are told from those that are in use already. */
void counted_mark(void);
/* Where a block that was taken since the mark and is still in use was asked for, for addr2line; NULL: there is none. */
const void *counted_lost(void);
/* Where the call was that failed. */
const void *counted_failed(void);

#endif
