/* SPDX-License-Identifier: Apache-2.0 */
/* The result of every call that can fail: NULL on success, else a code and a message in the user's words.
 * A Status is owned by whoever holds it last: hand it on, or free it with status_free. */
#ifndef ONNXFUSE_BASE_STATUS_H
#define ONNXFUSE_BASE_STATUS_H

#include <stdarg.h>

/* Numbered as the exit codes of the command line; keep the order of OnnxfuseCode in include/onnxfuse.h. */
typedef enum StatusCode {
    STATUS_OK = 0,
    STATUS_DIFFERENT = 1, /* outputs differ from the recorded ones (`onnxfuse test`), or by more than a policy allows */
    STATUS_USAGE = 2,     /* a wrong flag, a name that the model lacks, a device that is not there */
    STATUS_UNSUPPORTED = 3, /* the model needs something that onnxfuse does not do; names operator, opset and node */
    STATUS_INVALID = 4,     /* a file or an input is missing, unreadable, malformed or does not fit */
    STATUS_FAULT = 5,       /* out of memory, device fault, our own error */
    STATUS_CANCELLED = 6,   /* the caller has ended the run */
    STATUS_DEADLINE = 7,    /* the caller's time for the run is over */
} StatusCode;

typedef struct StatusDetail *Status;

#define STATUS_FORMAT(text, first) __attribute__((format(printf, text, first)))

Status status_error(StatusCode code, const char *format, ...) STATUS_FORMAT(2, 3);
/* Puts "place: " before the message; passes success through. Takes ownership of `status`. */
Status status_at(Status status, const char *format, ...) STATUS_FORMAT(2, 3);
/* A Status that needs no memory. */
Status status_out_of_memory(void);
StatusCode status_code(Status status);
const char *status_message(Status status); /* "" on success; borrowed from `status` */
void status_free(Status status);

/* Returns from the calling function with the first failure. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        Status try_status_ = (call);                                                                                   \
        if (try_status_) return try_status_;                                                                           \
    } while (0)

#endif
