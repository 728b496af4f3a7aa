/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs: which file or filling each one gets, and making it. */
#include "cli/value/inputs.h"
#include "cli/value/numbers.h"
#include "cli/value/picture.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const Flag input_flags[] = {
    {"input", "NAME=WHAT", FLAG_LIST, offsetof(InputOptions, inputs), "what goes into an input; see below"},
    {"size", "NAME=8", FLAG_LIST, offsetof(InputOptions, sizes),
     "a free size by its name, in all inputs; several after commas"},
    {"shape", "NAME=1x3x224x224", FLAG_LIST, offsetof(InputOptions, shapes), "the whole shape of an input"},
    {0},
};

void print_inputs_help(FILE *out) {
    fputs("\nWHAT is a file (.npy, .npz, or .pb with a serialized TensorProto, SequenceProto, OptionalProto or\n"
          "MapProto), image:FILE for a picture, text:TEXT for a string, bytes:FILE for the file's bytes as\n"
          "numbers, random, or zeros. --input FILE.npz alone gives every input that the archive holds.\n"
          "Inputs that are not given are drawn at random, the same every time: floats in -1..1, integers and\n"
          "booleans 0 or 1, the first of a row 1, strings words. Free sizes that neither --size, --shape nor a\n"
          "given input says are those of the policy's first shape hint, else 1. Standard error tells of both.\n\n",
          out);
    fputs(picture_help, out);
}

/* --- the flags --- */
void request_free(InputRequest *request) {
    shapes_free(&request->shapes);
    shapes_free(&request->sizes);
}

Problem *request_read(const InputOptions *options, InputRequest *out_request) {
    *out_request = (InputRequest){.files = &options->inputs};
    Problem *found = shapes_parse(&options->shapes, &out_request->shapes);
    if (!found) found = shapes_parse_sizes(&options->sizes, &out_request->sizes);
    if (found) request_free(out_request);
    return found;
}

/* --- saying what the model wants --- */
static const char *kind_prefix(OnnxfuseProto kind) {
    return kind == ONNXFUSE_PROTO_SEQUENCE ? "sequence of " : kind == ONNXFUSE_PROTO_OPTIONAL ? "optional " : "";
}

void print_type(FILE *out, const OnnxfuseValueInfo *info) {
    if (info->key) {
        fprintf(out, info->kind == ONNXFUSE_PROTO_MAP ? "map from %s to %s" : "sequence of maps from %s to %s",
                onnxfuse_dtype_name(info->key), onnxfuse_dtype_name(info->dtype));
        return;
    }
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

/* --- making inputs --- */
typedef enum Fill { FILL_NONE, FILL_ASKED_RANDOM, FILL_ZEROS } Fill;

typedef struct Making {
    const OnnxfuseSession *session;
    const InputRequest *request;
    Inputs *inputs;
    Fill *fills; /* [count] asked for, and made when the sizes are known */
} Making;

/* From --shape, or the model with the sizes that are known so far. */
static Shape shape_of(const Making *m, const OnnxfuseValueInfo *info) {
    const Shape *given = shapes_find(&m->request->shapes, info->name);
    return given ? *given : sizes_shape(&m->inputs->sizes, info);
}

/* A sequence of the one tensor that was loaded. */
static Problem *wrap_in_sequence(Loaded *loaded) {
    OnnxfuseValue *sequence;
    TRY(problem_from(onnxfuse_value_sequence(&loaded->value, 1, &sequence)));
    loaded->value = sequence;
    return NULL;
}

static Problem *fill(const Making *m, int index, bool zeros) {
    const OnnxfuseValueInfo *info = onnxfuse_session_input(m->session, index);
    Loaded *loaded = &m->inputs->loaded[index];
    Shape shape = shape_of(m, info);
    if (info->key)
        return wants(m->session, ONNXFUSE_USAGE, "input \"%s\" is a map: it must be given (--input %s=FILE.pb)",
                     info->name, info->name);
    if (!info->dtype || shape.rank < 0)
        return wants(m->session, ONNXFUSE_USAGE,
                     "input \"%s\" has no declared %s: it must be given (--input %s=FILE%s)", info->name,
                     info->dtype ? "shape" : "type", info->name, info->dtype ? " or --shape" : "");
    for (int d = 0; d < shape.rank; d++)
        if (shape.dims[d] < 0) shape.dims[d] = 1; /* of a sequence's elements, which have sizes of their own */
    Problem *found = loaded_tensor(info->dtype, shape.rank, shape.dims, loaded);
    if (!found && !zeros) found = numbers_draw((uint64_t)index + 1, loaded);
    if (!found && info->kind == ONNXFUSE_PROTO_SEQUENCE) found = wrap_in_sequence(loaded);
    return problem_at(found, "input \"%s\"", info->name);
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

/* The file's bytes as a row: a vector, or [1, ..., size]; the whole of a shape that the model fixes. */
static Problem *from_bytes(const OnnxfuseValueInfo *info, const char *path, Loaded *out_loaded) {
    uint64_t ignored;
    OnnxfuseDType dtype = info->dtype ? info->dtype : ONNXFUSE_UINT8;
    if (!number_store(dtype, &ignored, 0, 0))
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
    for (size_t i = 0; !found && i < bytes.size; i++) number_store(dtype, out_loaded->data, (int64_t)i, bytes.data[i]);
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

static Problem *from_picture(const Making *m, const OnnxfuseValueInfo *info, const char *text, Loaded *out_loaded) {
    Shape shape = shape_of(m, info);
    if (info->kind != ONNXFUSE_PROTO_TENSOR) return problem(ONNXFUSE_INVALID, "image: is for tensors");
    return picture_load(text, info->dtype, &shape, out_loaded);
}

static Problem *make_one(const Making *m, int index, const char *what) {
    const OnnxfuseValueInfo *info = onnxfuse_session_input(m->session, index);
    Loaded *loaded = &m->inputs->loaded[index];
    if (loaded->value || m->fills[index]) return problem(ONNXFUSE_USAGE, "input \"%s\" is given twice", info->name);
    if (strcmp(what, "random") == 0 || strcmp(what, "zeros") == 0) {
        m->fills[index] = strcmp(what, "zeros") == 0 ? FILL_ZEROS : FILL_ASKED_RANDOM;
        return NULL;
    }
    Problem *found = strncmp(what, "text:", 5) == 0    ? from_text(info, what + 5, loaded)
                     : strncmp(what, "bytes:", 6) == 0 ? from_bytes(info, what + 6, loaded)
                     : strncmp(what, "image:", 6) == 0 ? from_picture(m, info, what + 6, loaded)
                                                       : from_file(info, what, loaded);
    return problem_at(found, "input \"%s\"", info->name);
}

/* FILE.npz without a name: every input that it holds. */
static Problem *from_whole_archive(const Making *m, const char *path) {
    Bytes archive;
    TRY(file_read(path, &archive));
    Problem *found = NULL;
    int count = 0;
    for (int i = 0; i < m->inputs->count && !found; i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(m->session, i);
        if (m->inputs->loaded[i].value || m->fills[i] || !npz_has(&archive, info->name)) continue;
        found =
            problem_at(from_archive(info, &archive, &m->inputs->loaded[i]), "\"%s\": input \"%s\"", path, info->name);
        count++;
    }
    if (!found && !count) found = wants(m->session, ONNXFUSE_USAGE, "\"%s\" holds none of the inputs", path);
    free(archive.data);
    return found;
}

static Problem *take_argument(const Making *m, const char *argument) {
    const char *what = argument;
    int index = find_named(m->session, argument, &what);
    if (index >= 0) return make_one(m, index, what);
    if (!strchr(argument, '=') || file_exists(argument)) {
        if (ends_with(argument, ".npz")) return from_whole_archive(m, argument);
        if (m->inputs->count == 1) return make_one(m, 0, argument);
    }
    return wants(m->session, ONNXFUSE_USAGE, "--input %s names no input", argument);
}

static Problem *check_shapes(const Making *m) {
    for (int s = 0; s < m->request->shapes.count; s++) {
        const Shape *shape = &m->request->shapes.items[s];
        const OnnxfuseValue *value = NULL;
        bool known = false;
        for (int i = 0; i < m->inputs->count; i++)
            if (strcmp(onnxfuse_session_input(m->session, i)->name, shape->name) == 0)
                known = true, value = m->inputs->loaded[i].value;
        if (!known) return wants(m->session, ONNXFUSE_USAGE, "there is no input \"%s\" to give a shape", shape->name);
        if (!value || onnxfuse_value_kind(value) != ONNXFUSE_TENSOR) continue;
        if (onnxfuse_value_rank(value) != shape->rank ||
            memcmp(onnxfuse_value_dims(value), shape->dims, sizeof(int64_t) * (size_t)shape->rank) != 0)
            return problem(ONNXFUSE_INVALID, "input \"%s\": what is given has another shape than --shape says",
                           shape->name);
    }
    return NULL;
}

/* --- telling what nobody said --- */
enum { LISTED = 2 }; /* inputs that a size is named with */

/* "batch = 1 (of ids, mask), sequence = 1 (of ids and 3 more)"; "" where there is none. */
static void print_guesses(FILE *out, const Inputs *inputs) {
    const char *between = "";
    for (int s = 0; s < inputs->sizes.count; s++) {
        const Size *size = &inputs->sizes.items[s];
        if (!size_is_guessed(size)) continue;
        fputs(between, out);
        print_safe(out, size->name);
        fprintf(out, " = %lld (%sof ", (long long)size->value, size->origin == SIZE_HINTED ? "the policy's hint " : "");
        int count = 0;
        for (int i = 0; i < inputs->count; i++) {
            const OnnxfuseValueInfo *info = onnxfuse_session_input(inputs->sizes.session, i);
            if (!size_is_in(&inputs->sizes, size, info) || count++ >= LISTED) continue;
            fputs(count > 1 ? ", " : "", out);
            print_safe(out, info->name);
        }
        if (count > LISTED) fprintf(out, " and %d more", count - LISTED);
        fputc(')', out);
        between = ", ";
    }
}

/* Behind the guesses: how to set one. */
static void print_size_advice(FILE *out, const Sizes *sizes, int guessed) {
    int s = 0;
    while (!size_is_guessed(&sizes->items[s])) s++;
    fputs("; --size ", out);
    print_safe(out, sizes->items[s].name);
    fprintf(out, "=8 sets %s", guessed > 1 ? "one" : "it");
}

static int guessed_count(const Inputs *inputs) {
    int count = 0;
    for (int s = 0; s < inputs->sizes.count; s++) count += size_is_guessed(&inputs->sizes.items[s]);
    return count;
}

static int print_drawn(FILE *out, const Inputs *inputs) {
    int count = 0;
    for (int i = 0; i < inputs->count; i++) {
        if (!inputs->drawn[i]) continue;
        fputs(count++ ? ", " : "random numbers for ", out);
        print_safe(out, onnxfuse_session_input(inputs->sizes.session, i)->name);
    }
    return count;
}

static void tell(const Inputs *inputs) {
    int guessed = guessed_count(inputs);
    if (guessed) {
        fputs("assumed sizes: ", stderr);
        print_guesses(stderr, inputs);
        print_size_advice(stderr, &inputs->sizes, guessed);
        fputc('\n', stderr);
    }
    if (print_drawn(stderr, inputs)) fputc('\n', stderr);
}

Problem *inputs_explain(const Inputs *inputs, Problem *found) {
    OnnxfuseCode code = problem_code(found);
    int guessed = guessed_count(inputs);
    char *sizes = NULL, *drawn = NULL;
    size_t length;
    if (code != ONNXFUSE_INVALID && code != ONNXFUSE_UNSUPPORTED && code != ONNXFUSE_FAULT) return found;
    FILE *out = guessed ? open_memstream(&sizes, &length) : NULL;
    if (out) {
        print_guesses(out, inputs);
        print_size_advice(out, &inputs->sizes, guessed);
        fclose(out);
        found = problem_with(found, "sizes that were assumed: %s", sizes);
    }
    out = open_memstream(&drawn, &length);
    if (out) {
        int count = print_drawn(out, inputs);
        fclose(out);
        if (count) found = problem_with(found, "it ran on %s", drawn);
    }
    free(sizes);
    free(drawn);
    return found;
}

void inputs_json(const Inputs *inputs, cJSON *object) {
    cJSON *sizes = cJSON_AddObjectToObject(object, "assumed_sizes");
    for (int s = 0; s < inputs->sizes.count; s++)
        if (size_is_guessed(&inputs->sizes.items[s]))
            cJSON_AddNumberToObject(sizes, inputs->sizes.items[s].name, (double)inputs->sizes.items[s].value);
    cJSON *names = cJSON_AddArrayToObject(object, "random_inputs");
    for (int i = 0; i < inputs->count; i++)
        if (inputs->drawn[i])
            cJSON_AddItemToArray(names, cJSON_CreateString(onnxfuse_session_input(inputs->sizes.session, i)->name));
}

/* --- all inputs --- */
static void take_recorded(const Making *m, Loaded *recorded) {
    for (int i = 0; i < m->inputs->count; i++) {
        if (m->inputs->loaded[i].value || m->fills[i] || !recorded[i].value) continue;
        m->inputs->loaded[i] = recorded[i];
        recorded[i] = (Loaded){0};
    }
}

static Problem *make_all(const Making *m, Loaded *recorded) {
    Inputs *inputs = m->inputs;
    TRY(sizes_begin(m->session, &m->request->sizes, &m->request->shapes, &inputs->sizes));
    for (int i = 0; i < m->request->files->count; i++) TRY(take_argument(m, m->request->files->items[i]));
    TRY(check_shapes(m));
    if (recorded) take_recorded(m, recorded);
    for (int i = 0; i < inputs->count; i++)
        if (inputs->loaded[i].value)
            TRY(sizes_take(&inputs->sizes, onnxfuse_session_input(m->session, i), inputs->loaded[i].value));
    sizes_settle(&inputs->sizes);
    for (int i = 0; i < inputs->count; i++) {
        bool optional = onnxfuse_session_input(m->session, i)->kind == ONNXFUSE_PROTO_OPTIONAL;
        if (inputs->loaded[i].value || (optional && !m->fills[i])) continue;
        TRY(fill(m, i, m->request->shapes_only || m->fills[i] == FILL_ZEROS));
        inputs->drawn[i] = !m->fills[i] && !m->request->shapes_only;
    }
    for (int i = 0; i < inputs->count; i++) inputs->values[i] = inputs->loaded[i].value;
    tell(inputs);
    return NULL;
}

Problem *inputs_make(const OnnxfuseSession *session, const InputRequest *request, Loaded *recorded,
                     Inputs *out_inputs) {
    int count = onnxfuse_session_input_count(session);
    Inputs inputs = {.values = calloc((size_t)count + 1, sizeof *inputs.values),
                     .loaded = calloc((size_t)count + 1, sizeof *inputs.loaded),
                     .drawn = calloc((size_t)count + 1, sizeof *inputs.drawn),
                     .count = count};
    Making making = {session, request, &inputs, calloc((size_t)count + 1, sizeof *making.fills)};
    Problem *found = NULL;
    if (!inputs.values || !inputs.loaded || !inputs.drawn || !making.fills) {
        found = problem_out_of_memory();
        inputs.count = 0;
    }
    if (!found) found = make_all(&making, recorded);
    free(making.fills);
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
    free(inputs->drawn);
    sizes_free(&inputs->sizes);
    *inputs = (Inputs){0};
}
