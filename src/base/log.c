/* SPDX-License-Identifier: Apache-2.0 */
/* The process's debug level, where its messages go, and whether the verifiers run. */
#include "base/log.h"
#include "base/plain.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_int current_level = -1;
static _Atomic(LogSink) current_sink;
static _Atomic(void *) current_user;

/* The whole number that a variable holds, 0 where it is not set; what is no number is told, not taken for a wish. */
static int number_in(const char *variable) {
    const char *text = getenv(variable);
    if (!text || !*text) return 0;
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (!*end && !errno && number >= 0 && number <= INT_MAX) return (int)number;
    fprintf(stderr, "onnxfuse: %s: \"%.40s\" is no whole number from 0 on, it is passed over\n", variable, text);
    return 0;
}

int log_level(void) {
    int level = atomic_load_explicit(&current_level, memory_order_relaxed);
    if (level < 0) {
        level = number_in("ONNXFUSE_DEBUG");
        atomic_store_explicit(&current_level, level, memory_order_relaxed);
    }
    return level;
}

bool log_verify(void) {
    static atomic_int wanted = -1;
    int known = atomic_load_explicit(&wanted, memory_order_relaxed);
    if (known < 0) {
        known = number_in("ONNXFUSE_VERIFY") > 0;
#ifdef ONNXFUSE_VERIFY_BY_DEFAULT
        known |= !getenv("ONNXFUSE_VERIFY");
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
        if (text && *text && known == GENERATOR_ANY)
            fprintf(stderr,
                    "onnxfuse: ONNXFUSE_GENERATOR: there is no \"%.40s\" (llvm and native are possible), it is passed "
                    "over\n",
                    text);
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
