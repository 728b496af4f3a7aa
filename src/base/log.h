/* ONNXFUSE_DEBUG: 0 silent, 1 what each pass did, 2 a line an executed step, 3 kernels and graphs as text.
 * Messages go to stderr, or to the embedder's logger. */
#ifndef ONNXFUSE_BASE_LOG_H
#define ONNXFUSE_BASE_LOG_H

#include <stdbool.h>
#include "base/status.h"

typedef void (*LogSink)(void *user, int level, const char *message);

int log_level(void); /* read once from the environment unless log_set_level was called */
void log_set_level(int level);
void log_set_sink(LogSink sink, void *user); /* NULL: stderr */
void log_write(int level, const char *format, ...) STATUS_FORMAT(2, 3);

#define LOG(level, ...)                                                                                                \
    do {                                                                                                               \
        if (log_level() >= (level)) log_write(level, __VA_ARGS__);                                                     \
    } while (0)

#endif
