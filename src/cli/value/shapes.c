/* SPDX-License-Identifier: Apache-2.0 */
/* --shape and --size: what the command line says. */
#include <stdlib.h>
#include <string.h>

#include "cli/value/sizes.h"

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
        if (*text && !*++text) return problem(ONNXFUSE_USAGE, "--shape %s: a size is missing at its end", argument);
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
