/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse: finds the subcommand, reads its flags, runs it, reports its problem. */
#include "cli/command/commands.h"
#include "cli/manual.h"
#include "cli/base/nearest.h"

#include <limits.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const Command *const commands[] = {&run_command,     &bench_command,    &test_command,    &inspect_command,
                                          &compare_command, &optimize_command, &compile_command, &differentiate_command,
                                          &train_command,   &quantize_command, &devices_command};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands, SUMMARY_COLUMN = 36 };

static void print_usage(FILE *out) {
    fprintf(out, "onnxfuse %s: runs ONNX models as fast as the machine allows.\n\n", onnxfuse_version());
    for (int i = 0; i < COMMAND_COUNT; i++) {
        int width = fprintf(out, "  onnxfuse %s %s", commands[i]->name, commands[i]->arguments);
        fprintf(out, "%*s%s\n", width < SUMMARY_COLUMN ? SUMMARY_COLUMN - width : 1, "", commands[i]->summary);
    }
    fprintf(out, "  onnxfuse serve MODEL...%*sserve models over HTTP: the program onnxfuse-serve\n",
            SUMMARY_COLUMN - 25, "");
    fprintf(out, "\nEach has its own --help. Results go to standard output, messages to standard error. Exit codes:\n");
    for (const ExitCode *exit = exit_codes; exit->code; exit++) fprintf(out, "  %s  %s\n", exit->code, exit->meaning);
}

static const Command *find_command(const char *name) {
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

static Problem *run_command_line(const Command *command, int argc, char **argv) {
    Options *options = calloc(1, command->options_size);
    if (!options) return problem_out_of_memory();
    if (command->defaults) memcpy(options, command->defaults, command->options_size);
    Problem *found = flags_parse(command, argc, argv, options);
    if (!found && options->help)
        flags_help(command, stdout);
    else if (!found)
        found = command->run(options);
    flags_free(command, options);
    free(options);
    return found;
}

/* The command NAME may be a program of its own, onnxfuse-NAME, beside this one or on the search path. argv begins with
 * its name. Returns where there is none. */
static void run_program(char **argv) {
    char path[PATH_MAX], file[64];
    if (strlen(argv[0]) > 32 || argv[0][strspn(argv[0], "abcdefghijklmnopqrstuvwxyz-")]) return;
    snprintf(file, sizeof file, "onnxfuse-%s", argv[0]);
    argv[0] = file;
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - sizeof file);
    while (size > 0 && path[size - 1] != '/') size--;
    if (size > 0) {
        memcpy(path + size, file, strlen(file) + 1);
        execv(path, argv);
    }
    execvp(file, argv);
}

static Problem *no_command(const char *name) {
    Nearest nearest = {0};
    for (int i = 0; i < COMMAND_COUNT; i++) nearest_try(&nearest, name, strlen(name), commands[i]->name);
    if (!nearest.word) return problem(ONNXFUSE_USAGE, "there is no command \"%s\" (see onnxfuse --help)", name);
    return problem(ONNXFUSE_USAGE, "there is no command \"%s\"; do you mean %s? (see onnxfuse --help)", name,
                   nearest.word);
}

static Problem *dispatch(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0) {
        printf("onnxfuse %s\n", onnxfuse_version());
        return NULL;
    }
    if (strcmp(name, "help") == 0 && argc > 2 && strcmp(argv[2], "--man") == 0) {
        manual_print(stdout, commands, COMMAND_COUNT);
        return NULL;
    }
    if (strcmp(name, "help") == 0 && argc > 2) {
        const Command *command = find_command(argv[2]);
        if (command) return flags_help(command, stdout), NULL;
        name = argv[2];
    } else if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_usage(stdout);
        return NULL;
    }
    const Command *command = find_command(name);
    if (command) return run_command_line(command, argc - 2, argv + 2);
    if (argc > 1 && argv[1] == name) run_program(argv + 1);
    if (strcmp(name, "serve") == 0) return problem(ONNXFUSE_USAGE, "onnxfuse-serve is not installed");
    if (argc > 1) return no_command(name);
    print_usage(stderr);
    return problem_told(ONNXFUSE_USAGE);
}

/* Numbers are read and printed in one way everywhere, also where a library that was loaded before has set a locale. */
int main(int argc, char **argv) {
    setlocale(LC_ALL, "C");
    Problem *found = dispatch(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        problem_free(found);
        found = problem(ONNXFUSE_FAULT, "standard output cannot be written");
    }
    if (*problem_text(found)) {
        fputs("onnxfuse: ", stderr);
        print_safe(stderr, problem_text(found));
        fputc('\n', stderr);
    }
    int code = (int)problem_code(found);
    problem_free(found);
    return code;
}
