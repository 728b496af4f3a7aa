/* SPDX-License-Identifier: Apache-2.0 */
/* Subcommands and their flags as tables. --help is generated from them, so each fact about a flag stands once. */
#ifndef ONNXFUSE_CLI_FLAGS_H
#define ONNXFUSE_CLI_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include "cli/base/problem.h"

typedef struct TextList {
    const char **items; /* the command line's own strings */
    int count;
} TextList;

/* The first member of every subcommand's options. */
typedef struct Options {
    TextList arguments; /* what is no flag */
    bool json, help;
    /* of the commands that run a model */
    const char *policy, *precision, *device;
    int threads;
} Options;

typedef enum FlagType {
    FLAG_SWITCH,  /* bool */
    FLAG_TEXT,    /* const char * */
    FLAG_LIST,    /* TextList: may be given several times */
    FLAG_INTEGER, /* int, low..high */
    FLAG_REAL,    /* double, low..high */
    FLAG_SET,     /* const char *: a switch that stores `set` */
} FlagType;

typedef struct Flag {
    const char *name;  /* without the dashes; NULL ends a table */
    const char *value; /* what --help calls it; NULL for switches */
    FlagType type;
    size_t offset; /* in the command's options */
    const char *help;
    double low, high;
    const char *set;
} Flag;

typedef struct Command {
    const char *name, *arguments, *summary;
    const char *details;            /* printed by --help after the flags; may be NULL */
    void (*more)(FILE *out);        /* prints what --help says beyond that; may be NULL */
    const Flag *const *flag_tables; /* NULL-terminated */
    size_t options_size;            /* of the struct that begins with Options */
    const void *defaults;           /* such a struct, or NULL: all zero */
    int least, most;                /* arguments; most -1: any number */
    Problem *(*run)(void *options); /* results to standard output */
} Command;

/* Flags of every command (json, help), and of those that run a model (policy, precision, device, threads). */
extern const Flag common_flags[], model_flags[];

/* argv begins after the command's name. */
Problem *flags_parse(const Command *command, int argc, char **argv, void *options);
void flags_free(const Command *command, void *options); /* the lists */
void flags_help(const Command *command, FILE *out);

#endif
