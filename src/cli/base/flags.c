/* SPDX-License-Identifier: Apache-2.0 */
/* Reads flags by their tables, and prints the tables as help. */
#include "cli/base/flags.h"
#include "cli/base/nearest.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 29 };

const Flag common_flags[] = {
    {"json", NULL, FLAG_SWITCH, offsetof(Options, json), "the last line of standard output is one JSON object"},
    {"help", NULL, FLAG_SWITCH, offsetof(Options, help), "print this and exit"},
    {0},
};

const Flag model_flags[] = {
    {"policy", "FILE", FLAG_TEXT, offsetof(Options, policy),
     "JSON of what is wanted (docs/policy.md); default: MODEL.policy.json beside the model, if there"},
    {"precision", "TYPE", FLAG_TEXT, offsetof(Options, precision),
     "compute in f32, f16 or bf16; default: the policy's, else as the model says"},
    {"device", "NAME", FLAG_TEXT, offsetof(Options, device), "auto, cpu, cuda or opencl"},
    {"threads", "N", FLAG_INTEGER, offsetof(Options, threads), "threads to run with; default: all cores", 1, 1024},
    {0},
};

static const Flag *find_flag(const Command *command, const char *name, size_t length) {
    for (const Flag *const *table = command->flag_tables; *table; table++)
        for (const Flag *flag = *table; flag->name; flag++)
            if (strlen(flag->name) == length && strncmp(flag->name, name, length) == 0) return flag;
    return NULL;
}

static Problem *list_add(TextList *list, const char *item) {
    const char **items = realloc(list->items, sizeof *items * ((size_t)list->count + 1));
    if (!items) return problem_out_of_memory();
    list->items = items;
    list->items[list->count++] = item;
    return NULL;
}

static Problem *read_number(const Flag *flag, const char *text, double *out_number) {
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number) || (flag->type == FLAG_INTEGER && number != floor(number)))
        return problem(ONNXFUSE_USAGE, "--%s: \"%s\" is no %s", flag->name, text,
                       flag->type == FLAG_INTEGER ? "whole number" : "number");
    if (number < flag->low || number > flag->high)
        return problem(ONNXFUSE_USAGE, "--%s: %s is not between %.10g and %.10g", flag->name, text, flag->low,
                       flag->high);
    *out_number = number;
    return NULL;
}

static Problem *store(const Flag *flag, const char *text, void *options) {
    void *field = (char *)options + flag->offset;
    double number = 0;
    switch (flag->type) {
    case FLAG_SWITCH: *(bool *)field = true; return NULL;
    case FLAG_SET: *(const char **)field = flag->set; return NULL;
    case FLAG_TEXT: *(const char **)field = text; return NULL;
    case FLAG_LIST: return list_add(field, text);
    case FLAG_INTEGER:
        TRY(read_number(flag, text, &number));
        *(int *)field = (int)number;
        return NULL;
    case FLAG_REAL:
        TRY(read_number(flag, text, &number));
        *(double *)field = number;
        return NULL;
    }
    return NULL;
}

static Problem *no_flag(const Command *command, const char *typed, const char *name, size_t length) {
    Nearest nearest = {0};
    for (const Flag *const *table = command->flag_tables; *table; table++)
        for (const Flag *flag = *table; flag->name; flag++) nearest_try(&nearest, name, length, flag->name);
    if (!nearest.word)
        return problem(ONNXFUSE_USAGE, "there is no flag %s (see onnxfuse %s --help)", typed, command->name);
    return problem(ONNXFUSE_USAGE, "there is no flag %s; do you mean --%s? (see onnxfuse %s --help)", typed,
                   nearest.word, command->name);
}

/* The flag at argv[*at], with its value from behind '=' or from the next argument. */
static Problem *read_flag(const Command *command, int argc, char **argv, int *at, void *options) {
    const char *name = argv[*at] + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    bool help = strcmp(argv[*at], "-h") == 0, output = strcmp(argv[*at], "-o") == 0;
    if (help || output) name = help ? "help" : "output", length = strlen(name), equals = NULL;
    const Flag *flag = argv[*at][1] == '-' || help || output ? find_flag(command, name, length) : NULL;
    if (!flag) return no_flag(command, argv[*at], name, length);
    if (!flag->value) {
        if (equals) return problem(ONNXFUSE_USAGE, "--%s takes no value", flag->name);
        return store(flag, NULL, options);
    }
    if (equals) return store(flag, equals + 1, options);
    if (*at + 1 >= argc) return problem(ONNXFUSE_USAGE, "--%s needs a value: %s", flag->name, flag->value);
    return store(flag, argv[++*at], options);
}

Problem *flags_parse(const Command *command, int argc, char **argv, void *options) {
    Options *common = options;
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        if (!ended && strcmp(argv[i], "--") == 0)
            ended = true;
        else if (!ended && argv[i][0] == '-' && argv[i][1])
            TRY(read_flag(command, argc, argv, &i, options));
        else
            TRY(list_add(&common->arguments, argv[i]));
    }
    if (common->help) return NULL;
    int count = common->arguments.count;
    if (count < command->least || (command->most >= 0 && count > command->most))
        return problem(ONNXFUSE_USAGE, "%s; usage: onnxfuse %s %s (see --help)",
                       count < command->least ? "an argument is missing" : "too many arguments", command->name,
                       command->arguments);
    return NULL;
}

void flags_free(const Command *command, void *options) {
    for (const Flag *const *table = command->flag_tables; *table; table++)
        for (const Flag *flag = *table; flag->name; flag++)
            if (flag->type == FLAG_LIST) free(((TextList *)(void *)((char *)options + flag->offset))->items);
    free(((Options *)options)->arguments.items);
}

void flags_help(const Command *command, FILE *out) {
    fprintf(out, "onnxfuse %s%s%s\n  %s\n\n", command->name, *command->arguments ? " " : "", command->arguments,
            command->summary);
    for (const Flag *const *table = command->flag_tables; *table; table++)
        for (const Flag *flag = *table; flag->name; flag++) {
            int width = fprintf(out, "  --%s%s%s", flag->name, flag->value ? " " : "", flag->value ? flag->value : "");
            fprintf(out, "%*s%s\n", width < HELP_COLUMN ? HELP_COLUMN - width : 1, "", flag->help);
        }
    if (command->details) fprintf(out, "\n%s", command->details);
    if (command->more) command->more(out);
}
