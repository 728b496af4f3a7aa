/* SPDX-License-Identifier: Apache-2.0 */
/* The process's debug level, where its messages go, and whether the verifiers run. */
#include "base/log.h"
#include "base/plain.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_int current_level = -1;
static _Atomic(LogSink) current_sink;
static _Atomic(void *) current_user;

int log_level(void) {
    int level = atomic_load_explicit(&current_level, memory_order_relaxed);
    if (level < 0) {
        const char *text = getenv("ONNXFUSE_DEBUG");
        level = text ? atoi(text) : 0;
        if (level < 0) level = 0;
        atomic_store_explicit(&current_level, level, memory_order_relaxed);
    }
    return level;
}

bool log_verify(void) {
    static atomic_int wanted = -1;
    int known = atomic_load_explicit(&wanted, memory_order_relaxed);
    if (known < 0) {
        const char *text = getenv("ONNXFUSE_VERIFY");
#ifdef ONNXFUSE_VERIFY_BY_DEFAULT
        known = !text || atoi(text) > 0;
#else
        known = text && atoi(text) > 0;
#endif
        atomic_store_explicit(&wanted, known, memory_order_relaxed);
    }
    return known;
}

Generator log_generator(void) {
    static atomic_int wanted = -1;
    int known = atomic_load_explicit(&wanted, memory_order_relaxed);
    if (known < 0) {
        const char *text = getenv("ONNXFUSE_GENERATOR");
        known = GENERATOR_ANY;
        if (text && strcmp(text, "llvm") == 0) known = GENERATOR_LLVM;
        if (text && strcmp(text, "native") == 0) known = GENERATOR_NATIVE;
        atomic_store_explicit(&wanted, known, memory_order_relaxed);
    }
    return (Generator)known;
}

void log_set_level(int level) { atomic_store(&current_level, level < 0 ? 0 : level); }

void log_set_sink(LogSink sink, void *user) {
    atomic_store(&current_user, user);
    atomic_store(&current_sink, sink);
}

void log_write(int level, const char *format, ...) {
    char message[4096];
    va_list args;
    va_start(args, format);
    plain_vprint(message, sizeof message, format, args);
    va_end(args);
    LogSink sink = atomic_load(&current_sink);
    if (sink)
        sink(atomic_load(&current_user), level, message);
    else
        fprintf(stderr, "onnxfuse: %s\n", message);
}
