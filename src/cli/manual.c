/* SPDX-License-Identifier: Apache-2.0 */
/* The manual page, made of the tables that --help is made of: `onnxfuse help --man` prints it in man(7)'s macros, and
 * the build installs that as onnxfuse.1. */
#include "cli/manual.h"
#include "cli/value/inputs.h"

#include <stdlib.h>
#include <string.h>

const ExitCode exit_codes[] = {
    {"0", "done"},
    {"1", "outputs differ from recorded ones, or from those of the other side"},
    {"2", "wrong usage: a flag, a name that the model lacks, a device that is not there"},
    {"3", "the model needs something that is not supported; names operator, opset and node"},
    {"4", "a file or an input is missing, unreadable, malformed or does not fit its declared type or shape"},
    {"5", "anything else: out of memory, device fault"},
    {NULL, NULL},
};

/* troff takes a backslash, and a dot or quote that begins a line, for its own; hyphens that are typed are \-. */
static void print_text(FILE *out, const char *text) {
    bool begins = true;
    for (const char *p = text; *p; p++) {
        if (begins && (*p == '.' || *p == '\'')) fputs("\\&", out);
        if (*p == '\\')
            fputs("\\e", out);
        else if (*p == '-')
            fputs("\\-", out);
        else
            fputc(*p, out);
        begins = *p == '\n';
    }
}

static void print_section(FILE *out, const char *title) { fprintf(out, ".SH %s\n", title); }

/* Text whose lines are laid out already. */
static void print_lines(FILE *out, const char *text) {
    fputs(".PP\n.nf\n", out);
    print_text(out, text);
    if (*text && text[strlen(text) - 1] != '\n') fputc('\n', out);
    fputs(".fi\n", out);
}

static void print_flag(FILE *out, const Flag *flag) {
    fputs(".TP\n\\fB\\-\\-", out);
    print_text(out, flag->name);
    fputs("\\fR", out);
    if (flag->value) {
        fputs(" \\fI", out);
        print_text(out, flag->value);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    print_text(out, flag->help);
    fputc('\n', out);
}

static void print_more(FILE *out, void (*more)(FILE *)) {
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (!memory) return;
    more(memory);
    fclose(memory);
    if (text && size) print_lines(out, text + (*text == '\n'));
    free(text);
}

static bool is_shared(const Flag *table) {
    return table == common_flags || table == model_flags || table == input_flags;
}

static void print_command(FILE *out, const Command *command) {
    bool runs_models = false, takes_inputs = false;
    fputs(".SS onnxfuse ", out);
    print_text(out, command->name);
    if (*command->arguments) fputc(' ', out);
    print_text(out, command->arguments);
    fputc('\n', out);
    print_text(out, command->summary);
    fputs(".\n", out);
    for (const Flag *const *table = command->flag_tables; *table; table++) {
        runs_models |= *table == model_flags;
        takes_inputs |= *table == input_flags;
        for (const Flag *flag = *table; !is_shared(*table) && flag->name; flag++) print_flag(out, flag);
    }
    if (runs_models)
        fprintf(out, ".PP\nTakes the options of commands that run a model%s, too.\n",
                takes_inputs ? ", and those that say what its inputs are" : "");
    if (command->details) print_lines(out, command->details);
    if (command->more && command->more != print_inputs_help) print_more(out, command->more);
}

static void print_shared_flags(FILE *out) {
    print_section(out, "OPTIONS");
    fputs(".SS Of every command\n", out);
    for (const Flag *flag = common_flags; flag->name; flag++) print_flag(out, flag);
    fputs(".SS Of commands that run a model\n", out);
    for (const Flag *flag = model_flags; flag->name; flag++) print_flag(out, flag);
    fputs(".SS That say what a model's inputs are\n", out);
    for (const Flag *flag = input_flags; flag->name; flag++) print_flag(out, flag);
    print_more(out, print_inputs_help);
}

typedef struct Entry {
    const char *term, *text;
} Entry;

static void print_entry(FILE *out, const char *term, const char *text) {
    fputs(".TP\n\\fB", out);
    print_text(out, term);
    fputs("\\fR\n", out);
    print_text(out, text);
    fputc('\n', out);
}

static void print_entries(FILE *out, const char *title, const Entry *entries) {
    print_section(out, title);
    for (; entries->term; entries++) print_entry(out, entries->term, entries->text);
}

static const Entry environment[] = {
    {"ONNXFUSE_DEBUG", "1 tells what each pass did, 2 each step of a run, 3 graphs and kernels too; on standard error"},
    {"ONNXFUSE_VERIFY",
     "1 verifies the graph after each pass, and kernels; what is found ends with code 5, internal error"},
    {"XDG_CACHE_HOME", "where the folder onnxfuse of compiled kernels is; without it ~/.cache"},
    {NULL, NULL},
};
static const Entry files[] = {
    {"MODEL.policy.json", "what is wanted of the model beside it, where --policy names no other"},
    {"~/.cache/onnxfuse", "compiled kernels, which may be deleted at any time"},
    {NULL, NULL},
};

void manual_print(FILE *out, const Command *const *commands, int count) {
    fprintf(out, ".TH ONNXFUSE 1 \"\" \"onnxfuse %s\" \"User Commands\"\n", onnxfuse_version());
    print_section(out, "NAME");
    fputs("onnxfuse \\- runs ONNX models as fast as the machine allows\n", out);
    print_section(out, "SYNOPSIS");
    for (int i = 0; i < count; i++) {
        fputs(i ? ".br\n\\fBonnxfuse " : "\\fBonnxfuse ", out);
        print_text(out, commands[i]->name);
        fputs(*commands[i]->arguments ? "\\fR " : "\\fR", out);
        print_text(out, commands[i]->arguments);
        fputs(" [\\fIOPTION\\fR]...\n", out);
    }
    print_section(out, "DESCRIPTION");
    fputs("Loads an ONNX model, fuses what lies between its matrix products and convolutions into kernels, compiles "
          "these for "
          "the processor or the GPU, and runs them.\nResults go to standard output, messages to standard error.\n",
          out);
    print_section(out, "COMMANDS");
    for (int i = 0; i < count; i++) print_command(out, commands[i]);
    print_shared_flags(out);
    print_section(out, "EXIT STATUS");
    for (const ExitCode *exit = exit_codes; exit->code; exit++) print_entry(out, exit->code, exit->meaning);
    print_entries(out, "ENVIRONMENT", environment);
    print_entries(out, "FILES", files);
}
