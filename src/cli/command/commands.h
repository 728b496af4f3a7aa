/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands; main.c lists them. */
#ifndef ONNXFUSE_CLI_COMMAND_COMMANDS_H
#define ONNXFUSE_CLI_COMMAND_COMMANDS_H

#include "cli/base/flags.h"

extern const Command run_command, bench_command, test_command, inspect_command, optimize_command, devices_command,
    compare_command, compile_command, differentiate_command, train_command, quantize_command;

#endif
