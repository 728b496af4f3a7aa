/* SPDX-License-Identifier: Apache-2.0 */
/* Any lines as a command's arguments: a table with a flag of each type, and shapes. Refused with a message, or numbers
 * within the table's bounds and shapes that hold. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/value/sizes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_ARGUMENTS = 64 };

typedef struct FuzzOptions {
    Options options;
    bool on;
    const char *text, *set;
    TextList shapes, sizes;
    int integer;
    double real;
} FuzzOptions;

static const Flag flags[] = {
    {"on", NULL, FLAG_SWITCH, offsetof(FuzzOptions, on), "a switch"},
    {"text", "TEXT", FLAG_TEXT, offsetof(FuzzOptions, text), "a text"},
    {"shape", "SHAPE", FLAG_LIST, offsetof(FuzzOptions, shapes), "a list"},
    {"size", "SIZE", FLAG_LIST, offsetof(FuzzOptions, sizes), "another list"},
    {"integer", "N", FLAG_INTEGER, offsetof(FuzzOptions, integer), "an integer", .low = -3, .high = 1000},
    {"real", "X", FLAG_REAL, offsetof(FuzzOptions, real), "a number", .low = 0, .high = 10},
    {"set", NULL, FLAG_SET, offsetof(FuzzOptions, set), "another switch", .set = "set"},
    {NULL},
};
static const Flag *const tables[] = {flags, common_flags, model_flags, NULL};
static const Command command = {.name = "fuzz",
                                .arguments = "WHAT...",
                                .summary = "is given any arguments",
                                .flag_tables = tables,
                                .options_size = sizeof(FuzzOptions),
                                .least = 0,
                                .most = 5};

static void check_message(Problem *found) {
    if (found && !*problem_text(found)) abort();
    problem_free(found);
}

/* rank: that all have; -1: any. */
static void check_shapes(Problem *(*parse)(const TextList *, Shapes *), const TextList *list, int rank) {
    Shapes shapes;
    Problem *found = parse(list, &shapes);
    for (int i = 0; !found && i < shapes.count; i++) {
        const Shape *shape = &shapes.items[i];
        if (shape->rank < 0 || shape->rank > ONNXFUSE_MAX_RANK || (rank >= 0 && shape->rank != rank)) abort();
        for (int d = 0; d < shape->rank; d++)
            if (shape->dims[d] < 0) abort();
        if (shapes_find(&shapes, shape->name) != shape) abort(); /* each name once */
    }
    if (!found && shapes.count < list->count) abort();
    if (!found) shapes_free(&shapes);
    check_message(found);
}

static void check(const FuzzOptions *options) {
    if (options->integer < -3 || options->integer > 1000 || !(options->real >= 0 && options->real <= 10)) abort();
    if (options->options.arguments.count > 5 && !options->options.help) abort();
    check_shapes(shapes_parse, &options->shapes, -1);
    check_shapes(shapes_parse_sizes, &options->sizes, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1), *arguments[MOST_ARGUMENTS + 1];
    int count = 0;
    if (!text) abort();
    memcpy(text, data, size);
    text[size] = 0;
    for (char *at = text; at && count < MOST_ARGUMENTS;) { arguments[count++] = strsep(&at, "\n"); }
    arguments[count] = NULL;
    FuzzOptions options = {0};
    Problem *found = flags_parse(&command, count, arguments, &options);
    if (!found) check(&options);
    check_message(found);
    flags_free(&command, &options);
    free(text);
    return 0;
}
