/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong, for the user: an exit code and a message. NULL is success; whoever holds a Problem last frees it.
 * The exit codes are those of OnnxfuseCode. */
#ifndef ONNXFUSE_CLI_PROBLEM_H
#define ONNXFUSE_CLI_PROBLEM_H

#include <stdio.h>
#include "onnxfuse.h"

typedef struct Problem Problem;

__attribute__((format(printf, 2, 3))) Problem *problem(OnnxfuseCode code, const char *format, ...);
/* The same for a failed call of the library: takes the status over; NULL for NULL. */
Problem *problem_from(OnnxfuseStatus status);
/* "place: " before the message. Takes the problem over; passes NULL through. */
__attribute__((format(printf, 2, 3))) Problem *problem_at(Problem *found, const char *format, ...);
/* "; more" behind the message, likewise. */
__attribute__((format(printf, 2, 3))) Problem *problem_with(Problem *found, const char *format, ...);
Problem *problem_out_of_memory(void);
/* An exit code whose reason was printed already. */
Problem *problem_told(OnnxfuseCode code);
OnnxfuseCode problem_code(const Problem *found); /* ONNXFUSE_OK for NULL */
const char *problem_text(const Problem *found);  /* "" when told already */
void problem_free(Problem *found);               /* accepts NULL */

/* Writes text that may come from a hostile file: control characters as \xHH. */
void print_safe(FILE *out, const char *text);
void print_safe_n(FILE *out, const char *text, size_t size);

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        Problem *try_problem_ = (call);                                                                                \
        if (try_problem_) return try_problem_;                                                                         \
    } while (0)

#endif
