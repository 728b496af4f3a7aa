/* SPDX-License-Identifier: Apache-2.0 */
/* --size and --shape: what their text comes to. A case is the text of one flag, and the names with their numbers, or what the message
 * says. */
#include <criterion/criterion.h>
#include <string.h>

#include "cli/value/sizes.h"

typedef struct Case {
    const char *text;
    const char *result; /* "NAME: 1 2; NAME: 3"; of a failure: part of the message */
    bool fails;
} Case;

static const Case sizes[] = {
    {"batch=8", "batch: 8", false},
    {"batch=8,sequence=128", "batch: 8; sequence: 128", false},
    {"batch=0", "batch: 0", false},
    {"a=b=8", "a=b: 8", false},               /* names are the model's: they may hold '=' */
    {"a,b=8", "a,b: 8", false},               /* and commas */
    {"a=x,b=8,c=9", "a=x,b: 8; c: 9", false}, /* whatever comes before the first "=NUMBER" */
    {"p2o.Dim.0=3", "p2o.Dim.0: 3", false},
    {"batch", "NAME=8", true},
    {"=8", "NAME=8", true},
    {"batch=", "NAME=8", true},
    {"batch=-1", "NAME=8", true},
    {"batch=8x", "NAME=8", true},
    {"batch=8,", "NAME=8", true},
    {"batch=99999999999999999999", "NAME=8", true},
    {"batch=8,batch=8", "given twice", true},
    {"", "NAME=8", true},
};

static const Case shapes[] = {
    {"x=1x3x224x224", "x: 1 3 224 224", false},
    {"x=1,3", "x: 1 3", false},
    {"x=", "x:", false},
    {"a=b=2", "a=b: 2", false},
    {"x", "NAME=1x3x224x224", true},
    {"x=1x-3", "NAME=1x3x224x224", true},
    {"x=1 3", "NAME=1x3x224x224", true},
    {"x=1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1", "more than 16", true},
};

static void describe(const Shapes *got, char *text, size_t size) {
    FILE *out = fmemopen(text, size, "w");
    for (int i = 0; i < got->count; i++) {
        fprintf(out, "%s%s:", i ? "; " : "", got->items[i].name);
        for (int d = 0; d < got->items[i].rank; d++) fprintf(out, " %lld", (long long)got->items[i].dims[d]);
    }
    fclose(out);
}

static void check(const Case *c, Problem *(*parse)(const TextList *, Shapes *)) {
    TextList arguments = {(const char *[]){c->text}, 1};
    Shapes got;
    char text[256] = "";
    Problem *found = parse(&arguments, &got);
    cr_assert_eq(found != NULL, c->fails, "%s: %s", c->text, problem_text(found));
    if (found) {
        cr_expect_eq(problem_code(found), ONNXFUSE_USAGE, "%s", c->text);
        cr_expect_not_null(strstr(problem_text(found), c->result), "%s: %s", c->text, problem_text(found));
    } else {
        describe(&got, text, sizeof text);
        cr_expect_str_eq(text, c->result, "%s: %s", c->text, text);
    }
    problem_free(found);
    if (!c->fails) shapes_free(&got);
}

Test(sizes, are_read) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check(&sizes[i], shapes_parse_sizes);
}

Test(sizes, shapes_are_read) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check(&shapes[i], shapes_parse);
}

Test(sizes, of_one_name_in_two_flags_are_refused) {
    TextList arguments = {(const char *[]){"batch=8", "batch=9"}, 2};
    Shapes got;
    Problem *found = shapes_parse_sizes(&arguments, &got);
    cr_expect_eq(problem_code(found), ONNXFUSE_USAGE);
    problem_free(found);
}
