/* SPDX-License-Identifier: Apache-2.0 */
/* The manual page. */
#ifndef ONNXFUSE_CLI_MANUAL_H
#define ONNXFUSE_CLI_MANUAL_H

#include "cli/base/flags.h"

typedef struct ExitCode {
    const char *code, *meaning; /* code NULL: the table's end */
} ExitCode;
extern const ExitCode exit_codes[];

/* In man(7)'s macros, of all commands. */
void manual_print(FILE *out, const Command *const *commands, int count);

#endif
