/* SPDX-License-Identifier: Apache-2.0 */
/* Finding out what the model's free sizes are. */
#include "cli/value/sizes.h"
#include "cli/base/nearest.h"

#include <stdlib.h>
#include <string.h>

/* --- sizes --- */
void sizes_free(Sizes *sizes) {
    for (int i = 0; i < sizes->count; i++) free(sizes->items[i].name);
    free(sizes->items);
    *sizes = (Sizes){0};
}

/* What the library calls a free axis; NULL: the axis is not free, or a sequence's ("$any"), whose elements need not
 * agree. */
static const char *symbol_of(const OnnxfuseValueInfo *info, int axis) {
    const char *symbol = info->dims[axis] < 0 ? info->symbols[axis] : NULL;
    return symbol && strncmp(symbol, "\"$", 2) == 0 ? NULL : symbol;
}

static Size *size_of_axis(const Sizes *sizes, const OnnxfuseValueInfo *info, int axis) {
    const char *symbol = symbol_of(info, axis);
    for (int i = 0; symbol && i < sizes->count; i++)
        if (strcmp(sizes->items[i].symbol, symbol) == 0) return &sizes->items[i];
    return NULL;
}

static Size *size_named(const Sizes *sizes, const char *name) {
    for (int i = 0; i < sizes->count; i++)
        if (strcmp(sizes->items[i].name, name) == 0) return &sizes->items[i];
    return NULL;
}

static int hex_digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

/* The name as the model has it: the library puts one that is no identifier in quotes, with escapes, of which \xHH is
 * one byte. */
static char *plain_name(const char *symbol) {
    size_t length = strlen(symbol);
    char *name = strdup(symbol), *to = name;
    if (!name || *symbol != '"' || length < 2) return name;
    for (const char *at = symbol + 1, *end = symbol + length - 1; at < end; at++) {
        if (*at != '\\') {
            *to++ = *at;
        } else if (at[1] == 'x' && end - at >= 4) {
            *to++ = (char)(hex_digit(at[2]) << 4 | hex_digit(at[3]));
            at += 3;
        } else {
            at++;
            *to++ = *at == 'n' ? '\n' : *at == 't' ? '\t' : *at;
        }
    }
    *to = 0;
    return name;
}

static Problem *add_size(Sizes *sizes, const char *symbol) {
    Size *items = realloc(sizes->items, sizeof *items * ((size_t)sizes->count + 1));
    if (!items) return problem_out_of_memory();
    sizes->items = items;
    items[sizes->count] = (Size){.symbol = symbol, .name = plain_name(symbol), .value = -1};
    return items[sizes->count++].name ? NULL : problem_out_of_memory();
}

static Problem *collect(Sizes *sizes) {
    for (int i = 0; i < onnxfuse_session_input_count(sizes->session); i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(sizes->session, i);
        for (int d = 0; d < info->rank; d++) {
            const char *symbol = symbol_of(info, d);
            if (symbol && !size_of_axis(sizes, info, d)) TRY(add_size(sizes, symbol));
        }
    }
    return NULL;
}

/* "batch, sequence" in new memory; NULL when there is none left. */
static char *list_sizes(const Sizes *sizes) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    for (int i = 0; i < sizes->count; i++) fprintf(out, "%s%s", i ? ", " : "", sizes->items[i].name);
    fclose(out);
    return text;
}

/* The problem, and which sizes there are. Takes `found` over. */
static Problem *with_names(const Sizes *sizes, Problem *found) {
    char *list = list_sizes(sizes);
    Problem *made = sizes->count ? problem_with(found, "the model's free sizes are %s", list ? list : "")
                                 : problem_with(found, "the model's inputs have no free sizes");
    free(list);
    return made;
}

static Problem *take_flag(Sizes *sizes, const Shape *flag) {
    Size *size = size_named(sizes, flag->name);
    if (size) {
        size->value = flag->dims[0];
        size->origin = SIZE_OF_FLAG;
        return NULL;
    }
    Nearest nearest = {0};
    for (int i = 0; i < sizes->count; i++) nearest_try(&nearest, flag->name, strlen(flag->name), sizes->items[i].name);
    return with_names(sizes, problem(ONNXFUSE_USAGE, "--size %s=%lld: no input has a size of that name%s%s%s",
                                     flag->name, (long long)flag->dims[0], nearest.word ? " (do you mean " : "",
                                     nearest.word ? nearest.word : "", nearest.word ? "?)" : ""));
}

/* who: "--shape of" or the like, which says these dims of the input. Those that do not fit the declared type are for the library to refuse. */
static Problem *bind(Sizes *sizes, const OnnxfuseValueInfo *info, int rank, const int64_t *dims, const char *who) {
    for (int d = 0; d < rank && rank == info->rank; d++) {
        Size *size = size_of_axis(sizes, info, d);
        if (size && size->origin == SIZE_OF_FLAG && size->value != dims[d])
            return with_names(sizes, problem(ONNXFUSE_USAGE, "--size %s=%lld contradicts %s \"%s\": there it is %lld",
                                             size->name, (long long)size->value, who, info->name, (long long)dims[d]));
        if (!size || size->origin != SIZE_FREE) continue;
        size->value = dims[d];
        size->origin = SIZE_OF_INPUT;
    }
    return NULL;
}

static Problem *fill_sizes(Sizes *sizes, const Shapes *flags, const Shapes *shapes) {
    TRY(collect(sizes));
    for (int i = 0; i < flags->count; i++) TRY(take_flag(sizes, &flags->items[i]));
    for (int i = 0; i < onnxfuse_session_input_count(sizes->session); i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(sizes->session, i);
        const Shape *shape = shapes_find(shapes, info->name);
        if (shape) TRY(bind(sizes, info, shape->rank, shape->dims, "--shape of"));
    }
    return NULL;
}

Problem *sizes_begin(const OnnxfuseSession *session, const Shapes *size_flags, const Shapes *shapes, Sizes *out_sizes) {
    *out_sizes = (Sizes){.session = session};
    Problem *found = fill_sizes(out_sizes, size_flags, shapes);
    if (found) sizes_free(out_sizes);
    return found;
}

Problem *sizes_take(Sizes *sizes, const OnnxfuseValueInfo *info, const OnnxfuseValue *value) {
    if (onnxfuse_value_kind(value) != ONNXFUSE_TENSOR) return NULL;
    return bind(sizes, info, onnxfuse_value_rank(value), onnxfuse_value_dims(value), "the value given for");
}

/* Height or width of an input that is surely a picture: [n, 3, h, w] or [n, h, w, 3]. Networks of pictures halve them some times, and
 * have nothing left of a picture of one pixel. */
static bool is_side(const OnnxfuseValueInfo *info, int axis) {
    if (info->rank != 4 || axis == 0) return false;
    return (info->dims[1] == 3 && axis >= 2) || (info->dims[3] == 3 && axis <= 2);
}

void sizes_settle(Sizes *sizes) {
    enum { SIDE = 224 }; /* of ImageNet's pictures */
    for (int i = 0; i < onnxfuse_session_input_count(sizes->session); i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(sizes->session, i);
        for (int d = 0; d < info->rank; d++) {
            Size *size = size_of_axis(sizes, info, d);
            if (!size || size->origin != SIZE_FREE) continue;
            bool hinted = info->hinted[d] >= 0;
            size->value = hinted ? info->hinted[d] : is_side(info, d) ? SIDE : 1;
            size->origin = hinted ? SIZE_HINTED : SIZE_ASSUMED;
        }
    }
}

Shape sizes_shape(Sizes *sizes, const OnnxfuseValueInfo *info) {
    Shape shape = {.rank = info->rank};
    for (int d = 0; d < info->rank; d++) {
        Size *size = size_of_axis(sizes, info, d);
        shape.dims[d] = size ? size->value : info->dims[d];
        if (size) size->used = true;
    }
    return shape;
}

bool size_is_in(const Sizes *sizes, const Size *size, const OnnxfuseValueInfo *info) {
    for (int d = 0; d < info->rank; d++)
        if (size_of_axis(sizes, info, d) == size) return true;
    return false;
}

bool size_is_guessed(const Size *size) {
    return size->used && (size->origin == SIZE_ASSUMED || size->origin == SIZE_HINTED);
}
