/* Problems: exit code and message, owned by one holder. */
#include "problem.h"

#include <stdarg.h>
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
    Problem *made = make(onnxfuse_status_code(status), strdup(onnxfuse_status_message(status)));
    onnxfuse_status_free(status);
    return made;
}

Problem *problem_at(Problem *found, const char *format, ...) {
    if (!found || found == &out_of_memory) return found;
    va_list args;
    va_start(args, format);
    char *place = format_text(format, args);
    va_end(args);
    Problem *made = problem(found->code, "%s: %s", place ? place : "", found->text);
    free(place);
    problem_free(found);
    return made;
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

void print_safe_n(FILE *out, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            fprintf(out, c == '\n' ? "\\n" : "\\x%02x", c);
        else
            fputc(c, out);
    }
}

void print_safe(FILE *out, const char *text) { print_safe_n(out, text, strlen(text)); }
