/* SPDX-License-Identifier: Apache-2.0 */
/* What all files of the provider share: errors, log lines, memory that is freed at once, names in a map. */
#ifndef ONNXFUSE_EP_COMMON_H
#define ONNXFUSE_EP_COMMON_H

#include "ep/ort_api.h"
#include "onnxfuse.h"

#define EP_NAME "OnnxfuseExecutionProvider"
#define EP_VENDOR "onnxfuse"
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

/* --- errors ------------------------------------------------------------------------------------------------------ */
OrtStatus *ep_error(const Ort *ort, OrtErrorCode code, const char *format, ...) PRINTF_LIKE(3, 4);
OrtStatus *ep_out_of_memory(const Ort *ort);
/* The library's status as the runtime's; takes it over. where: what was being done, for the message. */
OrtStatus *ep_status(const Ort *ort, const char *where, OnnxfuseStatus status);

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        OrtStatus *try_status_ = (call);                                                                               \
        if (try_status_) return try_status_;                                                                           \
    } while (0)
#define NEED(ort, memory)                                                                                              \
    do {                                                                                                               \
        if (!(memory)) return ep_out_of_memory(ort);                                                                   \
    } while (0)

void ep_log(const Ort *ort, const OrtLogger *logger, OrtLoggingLevel level, const char *format, ...) PRINTF_LIKE(4, 5);

/* --- memory of one call ------------------------------------------------------------------------------------------ */
typedef struct Scratch {
    struct ScratchBlock *blocks;
} Scratch; /* zero-initialise */

void *scratch_alloc(Scratch *scratch, size_t size); /* zeroed; NULL when there is no memory */
void *scratch_array(Scratch *scratch, size_t count, size_t size);
char *scratch_format(Scratch *scratch, const char *format, ...) PRINTF_LIKE(2, 3);
void scratch_free(Scratch *scratch);
#define SCRATCH_ARRAY(scratch, type, count) ((type *)scratch_array(scratch, (size_t)(count), sizeof(type)))

/* --- names to numbers -------------------------------------------------------------------------------------------- */
typedef struct Names {
    Scratch *scratch;
    const char **keys; /* [capacity], borrowed */
    int *numbers;
    int count, capacity;
} Names; /* initialise with its scratch */

int names_find(const Names *names, const char *name);       /* -1: not there */
bool names_set(Names *names, const char *name, int number); /* false when there is no memory */

#endif
