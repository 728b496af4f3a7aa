/* Shapes and sizes: reading them, and finding out what the model's free sizes are. */
#include "cli/value/sizes.h"
#include "cli/base/nearest.h"

#include <stdlib.h>
#include <string.h>

/* --- shapes --- */
void shapes_free(Shapes *shapes) {
    for (int i = 0; i < shapes->count; i++) free(shapes->items[i].name);
    free(shapes->items);
    *shapes = (Shapes){0};
}

Problem *shapes_add(Shapes *shapes, const Shape *shape) {
    Shape *items = realloc(shapes->items, sizeof *items * ((size_t)shapes->count + 1));
    if (!items) return problem_out_of_memory();
    shapes->items = items;
    items[shapes->count] = *shape;
    items[shapes->count].name = strdup(shape->name);
    return items[shapes->count++].name ? NULL : problem_out_of_memory();
}

const Shape *shapes_find(const Shapes *shapes, const char *name) {
    for (int i = 0; i < shapes->count; i++)
        if (strcmp(shapes->items[i].name, name) == 0) return &shapes->items[i];
    return NULL;
}

/* The whole number at *at, which moves behind it; -1: there is none, or it is too large. */
static int64_t read_dim(const char **at) {
    char *end;
    if (**at < '0' || **at > '9') return -1;
    long long dim = strtoll(*at, &end, 10);
    *at = end;
    return dim > INT64_MAX / 2 ? -1 : dim;
}

/* "1x3x224x224", or with commas. */
static Problem *parse_dims(const char *argument, const char *text, Shape *shape) {
    while (*text) {
        int64_t dim = read_dim(&text);
        if (dim < 0 || (*text && *text != 'x' && *text != ','))
            return problem(ONNXFUSE_USAGE, "--shape %s: a shape reads NAME=1x3x224x224", argument);
        if (shape->rank == ONNXFUSE_MAX_RANK)
            return problem(ONNXFUSE_USAGE, "--shape %s: more than %d dims", argument, ONNXFUSE_MAX_RANK);
        shape->dims[shape->rank++] = dim;
        text += *text != 0;
    }
    return NULL;
}

static Problem *parse_shape(const char *argument, Shapes *shapes) {
    const char *equals = strrchr(argument, '=');
    if (!equals) return problem(ONNXFUSE_USAGE, "--shape %s: a shape reads NAME=1x3x224x224", argument);
    Shape shape = {strndup(argument, (size_t)(equals - argument)), 0, {0}};
    Problem *found = shape.name ? parse_dims(argument, equals + 1, &shape) : problem_out_of_memory();
    if (!found && shapes_find(shapes, shape.name))
        found = problem(ONNXFUSE_USAGE, "--shape %s: the shape is given twice", argument);
    if (!found) found = shapes_add(shapes, &shape);
    free(shape.name);
    return found;
}

/* "NAME=8", which ends at the text's end or a comma; a name may hold both of '=' and ','. NULL: it is not of that
 * form. */
static const char *read_size(const char *text, size_t *out_name_size, int64_t *out_size) {
    for (const char *equals = strchr(text, '='); equals; equals = strchr(equals + 1, '=')) {
        const char *at = equals + 1;
        *out_size = read_dim(&at);
        *out_name_size = (size_t)(equals - text);
        if (*out_size >= 0 && *out_name_size && (!*at || *at == ',')) return at;
    }
    return NULL;
}

static Problem *parse_sizes(const char *argument, Shapes *sizes) {
    const char *at = argument;
    Problem *found = NULL;
    do {
        const char *begin = at + (at > argument); /* behind the comma */
        Shape size = {NULL, 1, {0}};
        size_t length;
        at = read_size(begin, &length, &size.dims[0]);
        if (!at) return problem(ONNXFUSE_USAGE, "--size %s: a size reads NAME=8, several NAME=8,NAME=16", argument);
        size.name = strndup(begin, length);
        if (!size.name) return problem_out_of_memory();
        found = shapes_find(sizes, size.name)
                    ? problem(ONNXFUSE_USAGE, "--size %s: the size \"%s\" is given twice", argument, size.name)
                    : shapes_add(sizes, &size);
        free(size.name);
    } while (!found && *at);
    return found;
}

static Problem *parse_all(const TextList *arguments, Problem *(*parse)(const char *, Shapes *), Shapes *out_shapes) {
    *out_shapes = (Shapes){0};
    Problem *found = NULL;
    for (int i = 0; i < arguments->count && !found; i++) found = parse(arguments->items[i], out_shapes);
    if (found) shapes_free(out_shapes);
    return found;
}

Problem *shapes_parse(const TextList *arguments, Shapes *out_shapes) {
    return parse_all(arguments, parse_shape, out_shapes);
}

Problem *shapes_parse_sizes(const TextList *arguments, Shapes *out_sizes) {
    return parse_all(arguments, parse_sizes, out_sizes);
}

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

void sizes_settle(Sizes *sizes) {
    for (int i = 0; i < onnxfuse_session_input_count(sizes->session); i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(sizes->session, i);
        for (int d = 0; d < info->rank; d++) {
            Size *size = size_of_axis(sizes, info, d);
            if (!size || size->origin != SIZE_FREE) continue;
            bool hinted = info->hinted[d] >= 0;
            size->value = hinted ? info->hinted[d] : 1;
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
