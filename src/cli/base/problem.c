/* SPDX-License-Identifier: Apache-2.0 */
/* Problems: exit code and message, owned by one holder. */
#include "cli/base/problem.h"
#include "cli/base/utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct Problem {
    OnnxfuseCode code;
    char *text;
};

static Problem out_of_memory = {ONNXFUSE_FAULT, (char *)(uintptr_t) "out of memory"};

static Problem *make(OnnxfuseCode code, char *text) {
    Problem *made = malloc(sizeof *made);
    if (!made || !text) {
        free(made);
        free(text);
        return &out_of_memory;
    }
    *made = (Problem){code, text};
    return made;
}

static char *format_text(const char *format, va_list args) {
    char *text = NULL;
    return vasprintf(&text, format, args) < 0 ? NULL : text;
}

Problem *problem(OnnxfuseCode code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    return make(code, text);
}

Problem *problem_from(OnnxfuseStatus status) {
    if (!status) return NULL;
    static const char options[] = "options: "; /* here they are flags */
    const char *message = onnxfuse_status_message(status);
    size_t length = sizeof options - 1;
    bool by_flag = strncmp(message, options, length) == 0;
    Problem *made = by_flag ? problem(onnxfuse_status_code(status), "command line: %s", message + length)
                            : make(onnxfuse_status_code(status), strdup(message));
    onnxfuse_status_free(status);
    return made;
}

/* The found problem's code with another text. Takes both over. */
static Problem *rewritten(Problem *found, char *text) {
    Problem *made = make(found->code, text);
    problem_free(found);
    return made;
}

Problem *problem_at(Problem *found, const char *format, ...) {
    if (!found || found == &out_of_memory) return found;
    va_list args;
    va_start(args, format);
    char *place = format_text(format, args), *text = NULL;
    va_end(args);
    if (asprintf(&text, "%s: %s", place ? place : "", found->text) < 0) text = NULL;
    free(place);
    return rewritten(found, text);
}

Problem *problem_with(Problem *found, const char *format, ...) {
    if (!found || found == &out_of_memory) return found;
    va_list args;
    va_start(args, format);
    char *more = format_text(format, args), *text = NULL;
    va_end(args);
    if (asprintf(&text, "%s; %s", found->text, more ? more : "") < 0) text = NULL;
    free(more);
    return rewritten(found, text);
}

Problem *problem_out_of_memory(void) { return &out_of_memory; }
Problem *problem_told(OnnxfuseCode code) { return make(code, strdup("")); }
OnnxfuseCode problem_code(const Problem *found) { return found ? found->code : ONNXFUSE_OK; }
const char *problem_text(const Problem *found) { return found ? found->text : ""; }

void problem_free(Problem *found) {
    if (!found || found == &out_of_memory) return;
    free(found->text);
    free(found);
}

/* Printable as it is: no control character (terminals obey those of U+0080 to U+009F too), nor a byte that is no UTF-8.
 */
static bool is_printable(uint32_t point, size_t bytes) {
    return point >= 0x20 && (point < 0x7f || point > 0x9f) && (bytes > 1 || point < 0x80);
}

void print_safe_n(FILE *out, const char *text, size_t size) {
    const unsigned char *at = (const unsigned char *)text, *end = at + size;
    while (at < end) {
        const unsigned char *begin = at;
        uint32_t point = utf8_decode(&at, end);
        if (is_printable(point, (size_t)(at - begin)))
            fwrite(begin, 1, (size_t)(at - begin), out);
        else
            for (; begin < at; begin++) fprintf(out, *begin == '\n' ? "\\n" : "\\x%02x", *begin);
    }
}

void print_safe(FILE *out, const char *text) { print_safe_n(out, text, strlen(text)); }
