/* SPDX-License-Identifier: Apache-2.0 */
/* What the environment asks for when an error is searched.
 *
 * ONNXFUSE_DEBUG: 0 silent, 1 what each pass did, 2 a line an executed step, 3 kernels and graphs as text.
 * Messages go to stderr, or to the embedder's logger.
 * ONNXFUSE_VERIFY: 1: the verifiers look at the graph after each pass, at kernels and at LLVM's code. What they find is
 * always our own error: the call ends with STATUS_FAULT, "internal error".
 * ONNXFUSE_GENERATOR: what compiles kernels of CPUs. llvm: LLVM alone. native: the generator of our own alone; a kernel
 * that it has no rule for is an error. Without it: the one of our own where that has rules, LLVM for the rest. */
#ifndef ONNXFUSE_BASE_LOG_H
#define ONNXFUSE_BASE_LOG_H

#include <stdbool.h>
#include "base/status.h"

typedef void (*LogSink)(void *user, int level, const char *message);

int log_level(void); /* read once from the environment unless log_set_level was called */
void log_set_level(int level);
void log_set_sink(LogSink sink, void *user); /* NULL: stderr */
void log_write(int level, const char *format, ...) STATUS_FORMAT(2, 3);

bool log_verify(void); /* read once from the environment; without the variable true in debug builds */

typedef enum Generator { GENERATOR_ANY, GENERATOR_LLVM, GENERATOR_NATIVE } Generator;
Generator log_generator(void); /* read once from the environment */

#define LOG(level, ...)                                                                                                \
    do {                                                                                                               \
        if (log_level() >= (level)) log_write(level, __VA_ARGS__);                                                     \
    } while (0)

#endif
