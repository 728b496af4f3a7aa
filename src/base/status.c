/* SPDX-License-Identifier: Apache-2.0 */
/* Status values: a heap block with code and message. */
#include "base/status.h"
#include "base/plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct StatusDetail {
    StatusCode code;
    char message[];
};

/* Handed out when there is no memory left for a message; never freed. */
static struct {
    StatusCode code;
    char message[16];
} out_of_memory = {STATUS_FAULT, "out of memory"};

Status status_out_of_memory(void) { return (Status)(void *)&out_of_memory; }

static Status status_vformat(StatusCode code, const char *format, va_list args, const char *tail) {
    va_list again;
    va_copy(again, args);
    int length = plain_vprint(NULL, 0, format, again);
    va_end(again);
    size_t tail_length = strlen(tail);
    Status status = length < 0 ? NULL : malloc(sizeof *status + (size_t)length + tail_length + 3);
    if (!status) return status_out_of_memory();
    status->code = code;
    plain_vprint(status->message, (size_t)length + 1, format, args);
    if (tail_length) {
        memcpy(status->message + length, ": ", 2);
        memcpy(status->message + length + 2, tail, tail_length + 1);
    }
    return status;
}

Status status_error(StatusCode code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    Status status = status_vformat(code, format, args, "");
    va_end(args);
    return status;
}

Status status_at(Status inner, const char *format, ...) {
    if (!inner) return NULL;
    va_list args;
    va_start(args, format);
    Status status = status_vformat(inner->code, format, args, inner->message);
    va_end(args);
    status_free(inner);
    return status;
}

StatusCode status_code(Status status) { return status ? status->code : STATUS_OK; }

const char *status_message(Status status) { return status ? status->message : ""; }

void status_free(Status status) {
    if (status != status_out_of_memory()) free(status);
}
