/* Inputs: which file or filling each one gets, and making it. */
#include "cli/value/inputs.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char inputs_help[] =
    "WHAT is a file (.npy, .npz, or .pb with a serialized TensorProto, SequenceProto or OptionalProto), text:TEXT for "
    "a string,\n"
    "bytes:FILE for the file's bytes as numbers, random or zeros. --input FILE.npz alone gives every input that the\n"
    "archive holds. Inputs that are not given get random numbers, the same ones every time, where their shape is "
    "known.\n";

/* --- shapes ------------------------------------------------------------------------------------------------------- */
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

/* "1x3x224x224", or with commas. */
static Problem *parse_dims(const char *argument, const char *text, Shape *shape) {
    while (*text) {
        char *end = NULL;
        long long dim = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : -1;
        if (dim < 0 || dim > INT64_MAX / 2 || (*end && *end != 'x' && *end != ','))
            return problem(ONNXFUSE_USAGE, "--shape %s: a shape reads NAME=1x3x224x224", argument);
        if (shape->rank == ONNXFUSE_MAX_RANK)
            return problem(ONNXFUSE_USAGE, "--shape %s: more than %d dims", argument, ONNXFUSE_MAX_RANK);
        shape->dims[shape->rank++] = dim;
        text = *end ? end + 1 : end;
    }
    return NULL;
}

Problem *shapes_parse(const TextList *arguments, Shapes *out_shapes) {
    *out_shapes = (Shapes){0};
    Problem *found = NULL;
    for (int i = 0; i < arguments->count && !found; i++) {
        const char *argument = arguments->items[i], *equals = strrchr(argument, '=');
        if (!equals) {
            found = problem(ONNXFUSE_USAGE, "--shape %s: a shape reads NAME=1x3x224x224", argument);
            break;
        }
        Shape shape = {strndup(argument, (size_t)(equals - argument)), 0, {0}};
        found = shape.name ? parse_dims(argument, equals + 1, &shape) : problem_out_of_memory();
        if (!found) found = shapes_add(out_shapes, &shape);
        free(shape.name);
    }
    if (found) shapes_free(out_shapes);
    return found;
}

/* --- saying what the model wants --- */
static const char *kind_prefix(OnnxfuseProto kind) {
    return kind == ONNXFUSE_PROTO_SEQUENCE ? "sequence of " : kind == ONNXFUSE_PROTO_OPTIONAL ? "optional " : "";
}

void print_type(FILE *out, const OnnxfuseValueInfo *info) {
    fprintf(out, "%s%s", kind_prefix(info->kind), info->dtype ? onnxfuse_dtype_name(info->dtype) : "values");
    if (info->rank < 0) return;
    fputc('[', out);
    for (int d = 0; d < info->rank; d++) {
        if (d) fputs(", ", out);
        if (info->dims[d] >= 0)
            fprintf(out, "%lld", (long long)info->dims[d]);
        else
            print_safe(out, info->symbols && info->symbols[d] ? info->symbols[d] : "?");
    }
    fputc(']', out);
}

/* "x float32[1, 3], y int64[n]" in new memory; NULL when there is none left. */
static char *list_inputs(const OnnxfuseSession *session) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    for (int i = 0; i < onnxfuse_session_input_count(session); i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(session, i);
        fprintf(out, "%s%s ", i ? ", " : "", info->name);
        print_type(out, info);
    }
    fclose(out);
    return text;
}

__attribute__((format(printf, 3, 4))) static Problem *wants(const OnnxfuseSession *session, OnnxfuseCode code,
                                                            const char *format, ...) {
    char *text = NULL, *list = list_inputs(session);
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) text = NULL;
    va_end(args);
    Problem *found = problem(code, "%s; the model's inputs: %s", text ? text : "", list && *list ? list : "none");
    free(list);
    free(text);
    return found;
}

/* --- numbers
 * -------------------------------------------------------------------------------------------------------------- */
typedef struct Draw {
    uint64_t state;
} Draw;

/* splitmix64 */
static uint64_t draw(Draw *d) {
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double draw_unit(Draw *d) { return (double)(draw(d) >> 11) * 0x1p-52 - 1; } /* -1..1 */

/* Float16 and bfloat16 by cutting a float32's bits off; |value| <= 1, and what is below float16's normal range becomes
 * zero. */
static uint16_t half_of(double value, bool brain) {
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (brain) return (uint16_t)(bits >> 16);
    uint32_t sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 0xff;
    if (exponent < 113) return (uint16_t)sign;
    return (uint16_t)(sign | (exponent - 112) << 10 | (bits >> 13 & 0x3ff));
}

/* Numbers in -1..1; integers that are safe as indices: 0 or 1. */
static void fill_random(OnnxfuseDType dtype, void *data, int64_t count, Draw *d) {
    for (int64_t i = 0; i < count; i++) {
        switch (dtype) {
        case ONNXFUSE_FLOAT32: ((float *)data)[i] = (float)draw_unit(d); break;
        case ONNXFUSE_FLOAT64: ((double *)data)[i] = draw_unit(d); break;
        case ONNXFUSE_FLOAT16: ((uint16_t *)data)[i] = half_of(draw_unit(d), false); break;
        case ONNXFUSE_BFLOAT16: ((uint16_t *)data)[i] = half_of(draw_unit(d), true); break;
        case ONNXFUSE_COMPLEX64:
            ((float *)data)[2 * i] = (float)draw_unit(d);
            ((float *)data)[2 * i + 1] = (float)draw_unit(d);
            break;
        case ONNXFUSE_COMPLEX128:
            ((double *)data)[2 * i] = draw_unit(d);
            ((double *)data)[2 * i + 1] = draw_unit(d);
            break;
        case ONNXFUSE_INT16:
        case ONNXFUSE_UINT16: ((uint16_t *)data)[i] = draw(d) & 1; break;
        case ONNXFUSE_INT32:
        case ONNXFUSE_UINT32: ((uint32_t *)data)[i] = draw(d) & 1; break;
        case ONNXFUSE_INT64:
        case ONNXFUSE_UINT64: ((uint64_t *)data)[i] = draw(d) & 1; break;
        /* Of every 8-bit float format these bits are a small normal number. */
        case ONNXFUSE_FLOAT8E4M3FN:
        case ONNXFUSE_FLOAT8E4M3FNUZ:
        case ONNXFUSE_FLOAT8E5M2:
        case ONNXFUSE_FLOAT8E5M2FNUZ: ((uint8_t *)data)[i] = (uint8_t)(0x30 | (draw(d) & 0x87)); break;
        case ONNXFUSE_FLOAT8E8M0: ((uint8_t *)data)[i] = (uint8_t)(0x7e + (draw(d) & 1)); break;
        default: ((uint8_t *)data)[i] = draw(d) & 1; break; /* bool and the small integers */
        }
    }
}

/* The dims from --shape or the model; a problem when some is not known. */
static Problem *known_dims(const OnnxfuseSession *session, const OnnxfuseValueInfo *info, const Shapes *shapes,
                           Shape *out_shape) {
    for (int i = 0; i < shapes->count; i++)
        if (strcmp(shapes->items[i].name, info->name) == 0) {
            *out_shape = shapes->items[i];
            return NULL;
        }
    bool known =
        info->kind == ONNXFUSE_PROTO_TENSOR && info->dtype && info->rank >= 0 && info->rank <= ONNXFUSE_MAX_RANK;
    for (int d = 0; known && d < info->rank; d++) known = info->dims[d] >= 0;
    if (!known)
        return wants(session, ONNXFUSE_USAGE, "input \"%s\" is not given (--input %s=FILE%s)", info->name, info->name,
                     info->kind == ONNXFUSE_PROTO_TENSOR ? ", or --shape to draw one" : "");
    out_shape->rank = info->rank;
    if (info->rank) memcpy(out_shape->dims, info->dims, sizeof *info->dims * (size_t)info->rank);
    return NULL;
}

static Problem *fill(const OnnxfuseSession *session, const OnnxfuseValueInfo *info, const Shapes *shapes, bool zeros,
                     int index, Loaded *out_loaded) {
    Shape shape = {0};
    TRY(known_dims(session, info, shapes, &shape));
    if (!info->dtype || (!zeros && info->dtype == ONNXFUSE_STRING))
        return wants(session, ONNXFUSE_USAGE, "input \"%s\" cannot be drawn at random", info->name);
    TRY(problem_at(loaded_tensor(info->dtype, shape.rank, shape.dims, out_loaded), "input \"%s\"", info->name));
    Draw d = {(uint64_t)index + 1};
    if (!zeros) fill_random(info->dtype, out_loaded->data, onnxfuse_value_count(out_loaded->value), &d);
    return NULL;
}

/* --- text:TEXT and bytes:FILE
 * ------------------------------------------------------------------------------------------- */
static Problem *from_text(const OnnxfuseValueInfo *info, const char *text, Loaded *out_loaded) {
    int64_t dims[ONNXFUSE_MAX_RANK];
    int rank = info->rank < 0 ? 1 : info->rank;
    if (info->dtype != ONNXFUSE_STRING)
        return problem(ONNXFUSE_INVALID, "text: is for strings, the input is %s", onnxfuse_dtype_name(info->dtype));
    if (rank > ONNXFUSE_MAX_RANK) return problem(ONNXFUSE_INVALID, "the input's rank is %d", rank);
    for (int d = 0; d < rank; d++) dims[d] = 1;
    TRY(loaded_tensor(ONNXFUSE_STRING, rank, dims, out_loaded));
    *(OnnxfuseString *)out_loaded->data = (OnnxfuseString){text, strlen(text)}; /* the command line outlives it */
    return NULL;
}

static bool store_byte(OnnxfuseDType dtype, void *data, size_t i, unsigned char byte) {
    switch (dtype) {
    case ONNXFUSE_UINT8:
    case ONNXFUSE_INT8: ((uint8_t *)data)[i] = byte; return true;
    case ONNXFUSE_INT16:
    case ONNXFUSE_UINT16: ((uint16_t *)data)[i] = byte; return true;
    case ONNXFUSE_INT32:
    case ONNXFUSE_UINT32: ((uint32_t *)data)[i] = byte; return true;
    case ONNXFUSE_INT64:
    case ONNXFUSE_UINT64: ((uint64_t *)data)[i] = byte; return true;
    case ONNXFUSE_FLOAT32: ((float *)data)[i] = byte; return true;
    default: return false;
    }
}

/* The file's bytes as a row: a vector, or [1, ..., size]; the whole of a shape that the model fixes. */
static Problem *from_bytes(const OnnxfuseValueInfo *info, const char *path, Loaded *out_loaded) {
    unsigned char ignored[8];
    OnnxfuseDType dtype = info->dtype ? info->dtype : ONNXFUSE_UINT8;
    if (!store_byte(dtype, ignored, 0, 0))
        return problem(ONNXFUSE_INVALID, "bytes: is for numbers, the input is %s", onnxfuse_dtype_name(dtype));
    Bytes bytes;
    TRY(file_read(path, &bytes));
    int64_t dims[ONNXFUSE_MAX_RANK] = {(int64_t)bytes.size};
    int rank = info->rank < 0 || info->rank > ONNXFUSE_MAX_RANK ? 1 : info->rank;
    int64_t product = 1;
    bool fixed = info->rank >= 0;
    for (int d = 0; d < rank && fixed; d++)
        fixed = info->dims[d] >= 0 && !__builtin_mul_overflow(product, info->dims[d], &product);
    if (fixed && product == (int64_t)bytes.size)
        memcpy(dims, info->dims, sizeof *dims * (size_t)rank);
    else
        for (int d = 0; d < rank; d++) dims[d] = d == rank - 1 ? (int64_t)bytes.size : 1;
    Problem *found = rank == 0 && bytes.size != 1
                         ? problem(ONNXFUSE_INVALID, "\"%s\" holds %zu bytes for a scalar", path, bytes.size)
                         : loaded_tensor(dtype, rank, dims, out_loaded);
    for (size_t i = 0; !found && i < bytes.size; i++) store_byte(dtype, out_loaded->data, i, bytes.data[i]);
    free(bytes.data);
    return found;
}

/* --- files
 * ----------------------------------------------------------------------------------------------------------------- */
static bool ends_with(const char *text, const char *ending) {
    size_t size = strlen(text), length = strlen(ending);
    return size >= length && strcasecmp(text + size - length, ending) == 0;
}

static Problem *from_archive(const OnnxfuseValueInfo *info, const Bytes *archive, Loaded *out_loaded) {
    Bytes npy;
    TRY(npz_member(archive, info->name, true, &npy));
    Problem *found = npy_parse(&npy, info->dtype, out_loaded);
    free(npy.data);
    return found;
}

static Problem *from_file(const OnnxfuseValueInfo *info, const char *path, Loaded *out_loaded) {
    Bytes bytes;
    TRY(file_read(path, &bytes));
    bool numpy = bytes.size >= 6 && memcmp(bytes.data, "\x93NUMPY", 6) == 0;
    bool zip = bytes.size >= 4 && (memcmp(bytes.data, "PK\3\4", 4) == 0 || memcmp(bytes.data, "PK\5\6", 4) == 0);
    Problem *found;
    if (ends_with(path, ".npz") || (zip && !ends_with(path, ".pb")))
        found = from_archive(info, &bytes, out_loaded);
    else if (ends_with(path, ".npy") || (numpy && !ends_with(path, ".pb")))
        found = npy_parse(&bytes, info->dtype, out_loaded);
    else
        found = problem_from(onnxfuse_value_from_proto(info->kind, bytes.data, bytes.size, &out_loaded->value, NULL));
    free(bytes.data);
    return problem_at(found, "\"%s\"", path);
}

/* --- all inputs
 * ------------------------------------------------------------------------------------------------------------- */
/* The input that "NAME=WHAT" names: the longest name that fits, since names may hold '='. -1: none. */
static int find_named(const OnnxfuseSession *session, const char *argument, const char **out_what) {
    int best = -1;
    size_t best_length = 0;
    for (int i = 0; i < onnxfuse_session_input_count(session); i++) {
        const char *name = onnxfuse_session_input(session, i)->name;
        size_t length = strlen(name);
        if (strncmp(argument, name, length) != 0 || argument[length] != '=' || (best >= 0 && length < best_length))
            continue;
        best = i;
        best_length = length;
        *out_what = argument + length + 1;
    }
    return best;
}

static Problem *make_one(const OnnxfuseSession *session, int index, const char *what, const Shapes *shapes,
                         Inputs *inputs) {
    const OnnxfuseValueInfo *info = onnxfuse_session_input(session, index);
    Loaded *loaded = &inputs->loaded[index];
    if (loaded->value) return problem(ONNXFUSE_USAGE, "input \"%s\" is given twice", info->name);
    Problem *found = strncmp(what, "text:", 5) == 0    ? from_text(info, what + 5, loaded)
                     : strncmp(what, "bytes:", 6) == 0 ? from_bytes(info, what + 6, loaded)
                     : strcmp(what, "random") == 0     ? fill(session, info, shapes, false, index, loaded)
                     : strcmp(what, "zeros") == 0      ? fill(session, info, shapes, true, index, loaded)
                                                       : from_file(info, what, loaded);
    return problem_at(found, "input \"%s\"", info->name);
}

/* FILE.npz without a name: every input that it holds. */
static Problem *from_whole_archive(const OnnxfuseSession *session, const char *path, Inputs *inputs) {
    Bytes archive;
    TRY(file_read(path, &archive));
    Problem *found = NULL;
    int count = 0;
    for (int i = 0; i < inputs->count && !found; i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(session, i);
        if (inputs->loaded[i].value || !npz_has(&archive, info->name)) continue;
        found = problem_at(from_archive(info, &archive, &inputs->loaded[i]), "\"%s\": input \"%s\"", path, info->name);
        count++;
    }
    if (!found && !count) found = wants(session, ONNXFUSE_USAGE, "\"%s\" holds none of the inputs", path);
    free(archive.data);
    return found;
}

static Problem *take_argument(const OnnxfuseSession *session, const char *argument, const Shapes *shapes,
                              Inputs *inputs) {
    const char *what = argument;
    int index = find_named(session, argument, &what);
    if (index >= 0) return make_one(session, index, what, shapes, inputs);
    if (!strchr(argument, '=') || file_exists(argument)) {
        if (ends_with(argument, ".npz")) return from_whole_archive(session, argument, inputs);
        if (inputs->count == 1) return make_one(session, 0, argument, shapes, inputs);
    }
    return wants(session, ONNXFUSE_USAGE, "--input %s names no input", argument);
}

static Problem *check_shapes(const OnnxfuseSession *session, const Shapes *shapes, const Inputs *inputs) {
    for (int s = 0; s < shapes->count; s++) {
        const Shape *shape = &shapes->items[s];
        const OnnxfuseValue *value = NULL;
        bool known = false;
        for (int i = 0; i < inputs->count; i++)
            if (strcmp(onnxfuse_session_input(session, i)->name, shape->name) == 0)
                known = true, value = inputs->loaded[i].value;
        if (!known) return wants(session, ONNXFUSE_USAGE, "there is no input \"%s\" to give a shape", shape->name);
        if (!value || onnxfuse_value_kind(value) != ONNXFUSE_TENSOR) continue;
        if (onnxfuse_value_rank(value) != shape->rank ||
            memcmp(onnxfuse_value_dims(value), shape->dims, sizeof(int64_t) * (size_t)shape->rank) != 0)
            return problem(ONNXFUSE_INVALID, "input \"%s\": what is given has another shape than --shape says",
                           shape->name);
    }
    return NULL;
}

static Problem *make_all(const OnnxfuseSession *session, const TextList *files, const Shapes *shapes, Inputs *inputs) {
    for (int i = 0; i < files->count; i++) TRY(take_argument(session, files->items[i], shapes, inputs));
    TRY(check_shapes(session, shapes, inputs));
    bool drawn = false;
    for (int i = 0; i < inputs->count; i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(session, i);
        if (inputs->loaded[i].value || info->kind == ONNXFUSE_PROTO_OPTIONAL) continue;
        TRY(fill(session, info, shapes, false, i, &inputs->loaded[i]));
        fprintf(stderr, drawn ? ", " : "random numbers for ");
        print_safe(stderr, info->name);
        drawn = true;
    }
    if (drawn) fprintf(stderr, "\n");
    for (int i = 0; i < inputs->count; i++) inputs->values[i] = inputs->loaded[i].value;
    return NULL;
}

Problem *inputs_make(const OnnxfuseSession *session, const TextList *files, const Shapes *shapes, Inputs *out_inputs) {
    int count = onnxfuse_session_input_count(session);
    Inputs inputs = {calloc((size_t)count + 1, sizeof *inputs.values), calloc((size_t)count + 1, sizeof *inputs.loaded),
                     count};
    Problem *found = NULL;
    if (!inputs.values || !inputs.loaded) {
        found = problem_out_of_memory();
        inputs.count = 0;
    }
    if (!found) found = make_all(session, files, shapes, &inputs);
    if (found)
        inputs_free(&inputs);
    else
        *out_inputs = inputs;
    return found;
}

void inputs_free(Inputs *inputs) {
    for (int i = 0; i < inputs->count; i++) loaded_free(&inputs->loaded[i]);
    free(inputs->loaded);
    free(inputs->values);
    *inputs = (Inputs){0};
}
