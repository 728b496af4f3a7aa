/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* cJSON makes an object of some 80 bytes of every number and a double of every integer. So the arrays of elements are
 * cut out of the text first, and read by tensor_read_json; in their place cJSON finds their number. */
typedef struct Span {
    char *begin;
    size_t size;
} Span;

typedef struct Skeleton {
    Text text;
    Span *spans; /* arrays that are the value of "data" in an item of "inputs" */
    int span_count, span_capacity;
} Skeleton;

static void skeleton_free(Skeleton *s) {
    text_free(&s->text);
    free(s->spans);
}

typedef struct Scanner {
    char *at, *end;
    int depth;
    bool inputs; /* inside the array that is the value of "inputs" in the outermost object */
    bool item;   /* inside an object in that array */
    Problem *problem;
} Scanner;

static char *skip_space(char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) at++;
    return at;
}

/* Behind the string that begins at `at`; NULL: it does not end. */
static char *string_end(char *at, const char *end) {
    for (at++; at < end; at++) {
        if (*at == '"') return at + 1;
        if (*at == '\\') at++;
    }
    return NULL;
}

/* Behind the array that begins at `at`; NULL: it does not end. */
static char *array_end(char *at, const char *end) {
    int64_t depth = 0;
    while (at && at < end) {
        if (*at == '"') {
            at = string_end(at, end);
            continue;
        }
        depth += (*at == '[') - (*at == ']');
        at++;
        if (depth == 0) return at;
    }
    return NULL;
}

static bool cut_span(Scanner *s, Skeleton *skeleton) {
    s->at = skip_space(s->at, s->end);
    if (s->at >= s->end || *s->at != '[') return problem_say(s->problem, "\"data\" of an input must be an array");
    char *end = array_end(s->at, s->end);
    if (!end) return problem_say(s->problem, "the request is not JSON: an array of data does not end");
    if (skeleton->span_count == REQUEST_MOST_TENSORS) return problem_say(s->problem, "the request has too many inputs");
    if (skeleton->span_count == skeleton->span_capacity) {
        int capacity = skeleton->span_capacity ? skeleton->span_capacity * 2 : 8;
        Span *spans = realloc(skeleton->spans, (size_t)capacity * sizeof *spans);
        if (!spans) return problem_memory(s->problem);
        skeleton->spans = spans;
        skeleton->span_capacity = capacity;
    }
    text_format(&skeleton->text, "%d", skeleton->span_count);
    skeleton->spans[skeleton->span_count++] = (Span){s->at, (size_t)(end - s->at)};
    s->at = end;
    return true;
}

static bool is_text(const char *begin, const char *end, const char *text) {
    return (size_t)(end - begin) == strlen(text) && memcmp(begin, text, (size_t)(end - begin)) == 0;
}

/* A string, and what follows it where it is a key that matters. */
static bool scan_string(Scanner *s, Skeleton *skeleton) {
    char *begin = s->at, *end = string_end(begin, s->end);
    if (!end) return problem_say(s->problem, "the request is not JSON: a string does not end");
    text_append(&skeleton->text, begin, (size_t)(end - begin));
    s->at = end;
    char *next = skip_space(end, s->end);
    if (next >= s->end || *next != ':') return true;
    text_append(&skeleton->text, ":", 1);
    s->at = next + 1;
    if (memchr(begin, '\\', (size_t)(end - begin)))
        return problem_say(s->problem, "the names of the request's members must be plain, without escapes");
    if (s->depth == 1 && is_text(begin, end, "\"inputs\"")) s->inputs = *skip_space(s->at, s->end) == '[';
    return !(s->item && s->depth == 3 && is_text(begin, end, "\"data\"")) || cut_span(s, skeleton);
}

static bool scan(Scanner *s, Skeleton *skeleton) {
    while (s->at < s->end) {
        if (skeleton->text.size > REQUEST_LARGEST_JSON)
            return problem_say(s->problem, "the request has more than %d bytes of JSON beside the inputs' data",
                               REQUEST_LARGEST_JSON);
        char c = *s->at;
        if (c == '"') {
            if (!scan_string(s, skeleton)) return false;
            continue;
        }
        if (c == '{' || c == '[') s->depth++;
        if (s->inputs && s->depth == 3 && c == '{') s->item = true;
        if (c == '}' || c == ']') {
            s->depth--;
            if (s->depth < 3) s->item = false;
            if (s->depth < 2) s->inputs = false;
        }
        if (c == 0) return problem_say(s->problem, "the request is not JSON: it has a byte 0");
        char *next = s->at + 1;
        while (next < s->end && !strchr("\"{}[]", *next)) next++; /* stops at 0 as well */
        text_append(&skeleton->text, s->at, (size_t)(next - s->at));
        s->at = next;
    }
    return !skeleton->text.failed || problem_memory(s->problem);
}

/* --- objects ------------------------------------------------------------------------------------------------------ */
/* The member of that name; NULL: there is none. False: there are two. */
static bool member(const cJSON *object, const char *name, const cJSON **out_member, Problem *problem) {
    *out_member = NULL;
    for (const cJSON *at = object->child; at; at = at->next) {
        if (strcmp(at->string, name) != 0) continue;
        if (*out_member) return problem_say(problem, "\"%s\" stands twice in an object of the request", name);
        *out_member = at;
    }
    return true;
}

static bool string_member(const cJSON *object, const char *name, const char *where, const char **out_string,
                          Problem *problem) {
    const cJSON *found;
    *out_string = NULL;
    if (!member(object, name, &found, problem)) return false;
    if (!found) return true;
    if (!cJSON_IsString(found)) return problem_say(problem, "\"%s\" of %s must be a string", name, where);
    *out_string = found->valuestring;
    return true;
}

static bool bool_member(const cJSON *object, const char *name, bool *inout_value, Problem *problem) {
    const cJSON *found;
    if (!object) return true;
    if (!member(object, name, &found, problem)) return false;
    if (!found) return true;
    if (!cJSON_IsBool(found)) return problem_say(problem, "parameter \"%s\" must be true or false", name);
    *inout_value = cJSON_IsTrue(found);
    return true;
}

/* A whole number from 0 to 2^53, the last that a double tells from the next. */
static bool whole_number(const cJSON *item, int64_t *out_value) {
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= 0x1p53)) return false;
    *out_value = (int64_t)item->valuedouble;
    return (double)*out_value == item->valuedouble;
}

static bool parameters_of(const cJSON *object, const cJSON **out_parameters, Problem *problem) {
    if (!member(object, "parameters", out_parameters, problem)) return false;
    return !*out_parameters || cJSON_IsObject(*out_parameters) ||
           problem_say(problem, "\"parameters\" must be an object");
}

/* Parameters that change what a result is, of extensions that are not offered: to leave them out of account would be a
 * wrong answer. All others may be anything. */
static bool refuse_parameters(const cJSON *parameters, Problem *problem) {
    static const char *const refused[] = {
        "sequence_id",          "sequence_start", "sequence_end", "shared_memory_region",
        "shared_memory_offset", "classification", "priority"};
    for (size_t i = 0; parameters && i < sizeof refused / sizeof *refused; i++) {
        const cJSON *found;
        if (!member(parameters, refused[i], &found, problem)) return false;
        if (found) return problem_say(problem, "parameter \"%s\" is not supported", refused[i]);
    }
    return true;
}

/* --- inputs ------------------------------------------------------------------------------------------------------- */
typedef struct Parser {
    char *binary; /* what is not taken yet */
    size_t binary_size;
    const Skeleton *skeleton;
    RequestCheck check;
    Problem *problem;
} Parser;

static bool read_shape(const cJSON *input, Tensor *tensor, Problem *problem) {
    const cJSON *shape, *dim;
    if (!member(input, "shape", &shape, problem)) return false;
    if (!cJSON_IsArray(shape)) return problem_say(problem, "input \"%.64s\": \"shape\" must be an array", tensor->name);
    cJSON_ArrayForEach(dim, shape) {
        if (tensor->rank == ONNXFUSE_MAX_RANK)
            return problem_say(problem, "input \"%.64s\": more than %d dimensions", tensor->name, ONNXFUSE_MAX_RANK);
        if (!whole_number(dim, &tensor->dims[tensor->rank++]))
            return problem_say(problem, "input \"%.64s\": a dimension must be a whole number, 0 or more", tensor->name);
    }
    return true;
}

/* Elements stay in the body where they are aligned for their type. */
static bool take_binary(Parser *p, Tensor *tensor, size_t size) {
    if (size > p->binary_size)
        return problem_say(p->problem, "input \"%.64s\": binary_data_size %zu is more than the body still has, %zu",
                           tensor->name, size, p->binary_size);
    char *bytes = p->binary;
    p->binary += size;
    p->binary_size -= size;
    if (tensor->dtype == ONNXFUSE_STRING) return tensor_read_strings(tensor, bytes, size, p->problem);
    if (size != tensor->bytes)
        return problem_say(p->problem, "input \"%.64s\": binary_data_size is %zu, but its shape and datatype take %zu",
                           tensor->name, size, tensor->bytes);
    for (size_t i = 0; tensor->dtype == ONNXFUSE_BOOL && i < size; i++)
        if ((unsigned char)bytes[i] > 1)
            return problem_say(p->problem, "input \"%.64s\": a BOOL must be 0 or 1", tensor->name);
    tensor->data = bytes;
    if ((uintptr_t)bytes % datatype_of(tensor->dtype)->align == 0) return true;
    tensor->data = malloc(size ? size : 1);
    tensor->owned = true;
    if (!tensor->data) return problem_memory(p->problem);
    memcpy(tensor->data, bytes, size);
    return true;
}

static bool read_data(Parser *p, const cJSON *input, Tensor *tensor) {
    const cJSON *parameters, *data, *binary = NULL;
    if (!parameters_of(input, &parameters, p->problem) || !refuse_parameters(parameters, p->problem) ||
        !member(input, "data", &data, p->problem) ||
        (parameters && !member(parameters, "binary_data_size", &binary, p->problem)))
        return false;
    if (!data == !binary)
        return problem_say(p->problem,
                           "input \"%.64s\": it needs either \"data\" or the parameter \"binary_data_size\"",
                           tensor->name);
    if (binary) {
        int64_t size;
        if (!whole_number(binary, &size))
            return problem_say(p->problem, "input \"%.64s\": binary_data_size must be a whole number", tensor->name);
        return take_binary(p, tensor, (size_t)size);
    }
    /* The scanner has put a span's number in the place of each array, and refused all else. */
    int64_t span;
    if (!whole_number(data, &span) || span >= p->skeleton->span_count)
        return problem_say(p->problem, "input \"%.64s\": \"data\" must be an array", tensor->name);
    const Span *s = &p->skeleton->spans[span];
    return tensor_read_json(tensor, s->begin, s->size, p->problem);
}

static bool read_input(Parser *p, const cJSON *input, Tensor *tensor) {
    const char *datatype;
    if (!cJSON_IsObject(input)) return problem_say(p->problem, "an input must be an object");
    if (!string_member(input, "name", "an input", &tensor->name, p->problem)) return false;
    if (!tensor->name) return problem_say(p->problem, "an input has no \"name\"");
    if (!string_member(input, "datatype", "an input", &datatype, p->problem)) return false;
    if (!datatype) return problem_say(p->problem, "input \"%.64s\" has no \"datatype\"", tensor->name);
    /* Before its data is read by a type that the model does not take: what is wrong with that would be said instead. */
    if (!p->check.datatype(p->check.context, tensor->name, datatype, p->problem)) return false;
    const DatatypeInfo *info = datatype_named(datatype);
    if (!info)
        return problem_say(p->problem, "input \"%.64s\": there is no datatype \"%.32s\"", tensor->name, datatype);
    tensor->dtype = info->dtype;
    return read_shape(input, tensor, p->problem) && tensor_set_dims(tensor, p->problem) && read_data(p, input, tensor);
}

static bool read_inputs(Parser *p, const cJSON *root, Request *request) {
    const cJSON *inputs, *input;
    if (!member(root, "inputs", &inputs, p->problem)) return false;
    if (!cJSON_IsArray(inputs)) return problem_say(p->problem, "the request needs an array \"inputs\"");
    int count = cJSON_GetArraySize(inputs);
    if (count > REQUEST_MOST_TENSORS) return problem_say(p->problem, "the request has too many inputs");
    request->inputs = calloc((size_t)count + 1, sizeof *request->inputs);
    if (!request->inputs) return problem_memory(p->problem);
    cJSON_ArrayForEach(input, inputs) {
        if (!read_input(p, input, &request->inputs[request->input_count++])) return false;
    }
    return p->binary_size == 0 ||
           problem_say(p->problem, "the body has %zu bytes more than the JSON and the inputs' binary data",
                       p->binary_size);
}

/* --- outputs ------------------------------------------------------------------------------------------------------ */
static bool read_output(const cJSON *output, const Request *request, RequestedOutput *out, Problem *problem) {
    const cJSON *parameters;
    if (!cJSON_IsObject(output)) return problem_say(problem, "a requested output must be an object");
    if (!string_member(output, "name", "an output", &out->name, problem)) return false;
    if (!out->name) return problem_say(problem, "a requested output has no \"name\"");
    out->binary = request->binary_outputs;
    return parameters_of(output, &parameters, problem) && refuse_parameters(parameters, problem) &&
           bool_member(parameters, "binary_data", &out->binary, problem);
}

static bool read_outputs(const cJSON *root, Request *request, Problem *problem) {
    const cJSON *outputs, *output;
    if (!member(root, "outputs", &outputs, problem)) return false;
    if (!outputs) return true;
    if (!cJSON_IsArray(outputs)) return problem_say(problem, "\"outputs\" must be an array");
    int count = cJSON_GetArraySize(outputs);
    if (count > REQUEST_MOST_TENSORS) return problem_say(problem, "the request has too many outputs");
    request->outputs = calloc((size_t)count + 1, sizeof *request->outputs);
    if (!request->outputs) return problem_memory(problem);
    cJSON_ArrayForEach(output, outputs) {
        if (!read_output(output, request, &request->outputs[request->output_count++], problem)) return false;
    }
    return true;
}

/* The parameter "timeout" counts microseconds. */
static bool read_parameters(const cJSON *root, Request *request, Problem *problem) {
    const cJSON *parameters, *timeout;
    if (!parameters_of(root, &parameters, problem)) return false;
    if (!parameters) return true;
    if (!refuse_parameters(parameters, problem) ||
        !bool_member(parameters, "binary_data_output", &request->binary_outputs, problem) ||
        !member(parameters, "timeout", &timeout, problem))
        return false;
    int64_t microseconds = 0;
    if (timeout && !whole_number(timeout, &microseconds))
        return problem_say(problem, "parameter \"timeout\" must be a whole number of microseconds");
    request->timeout_ms = (double)microseconds / 1000;
    return true;
}

static bool read_root(Parser *p, Request *request) {
    const cJSON *root = request->json;
    if (!cJSON_IsObject(root)) return problem_say(p->problem, "the request must be a JSON object");
    return string_member(root, "id", "the request", &request->id, p->problem) &&
           read_parameters(root, request, p->problem) && read_inputs(p, root, request) &&
           read_outputs(root, request, p->problem);
}

static bool parse_skeleton(const Skeleton *skeleton, Request *request, Problem *problem) {
    const char *text = skeleton->text.size ? skeleton->text.data : "", *end = text;
    if (strstr(text, "\\u0000")) return problem_say(problem, "the request has a string with a character 0");
    if (!text_is_utf8(text, skeleton->text.size)) return problem_say(problem, "the request is not UTF-8");
    request->json = cJSON_ParseWithLengthOpts(text, skeleton->text.size, &end, false);
    if (request->json) end = skip_space((char *)end, text + skeleton->text.size);
    if (request->json && end == text + skeleton->text.size) return true;
    if (!text[0]) return problem_say(problem, "the request is empty; it must be a JSON object");
    /* Printable ASCII alone, because the answer is JSON itself. */
    char near[24];
    size_t size = 0;
    for (; end && size < sizeof near - 1 && end < text + skeleton->text.size && *end >= ' ' && *end < 127; end++)
        near[size++] = *end;
    near[size] = 0;
    return problem_say(problem, "the request is not JSON%s%s", size ? ", at: " : "", near);
}

bool request_parse(char *body, size_t size, size_t json_size, RequestCheck check, Request *out_request,
                   Problem *problem) {
    Skeleton skeleton = {0};
    Request request = {0};
    Scanner scanner = {.at = body, .end = body + json_size, .problem = problem};
    Parser parser = {body + json_size, size - json_size, &skeleton, check, problem};
    bool good =
        scan(&scanner, &skeleton) && parse_skeleton(&skeleton, &request, problem) && read_root(&parser, &request);
    skeleton_free(&skeleton);
    if (!good) request_free(&request);
    *out_request = request;
    return good;
}

void request_free(Request *request) {
    for (int i = 0; i < request->input_count; i++)
        if (request->inputs[i].owned) free(request->inputs[i].data);
    free(request->inputs);
    free(request->outputs);
    cJSON_Delete(request->json);
    *request = (Request){0};
}
