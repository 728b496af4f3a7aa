/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* --- results and replies ------------------------------------------------------------------------------------------ */
Results *results_create(int count) {
    Results *results = calloc(1, sizeof *results + (size_t)count * sizeof *results->values);
    if (!results) return NULL;
    atomic_init(&results->users, 1);
    results->count = count;
    return results;
}

void results_release(Results *results) {
    if (!results || atomic_fetch_sub(&results->users, 1) != 1) return;
    for (int i = 0; i < results->count; i++) onnxfuse_value_free(results->values[i]);
    free(results);
}

void reply_free(Reply *reply) {
    for (int i = 0; i < reply->part_count; i++) text_free(&reply->texts[i]);
    free(reply->texts);
    free(reply->parts);
    text_free(&reply->head);
    results_release(reply->results);
    *reply = (Reply){0};
}

void reply_error(Reply *reply, int status, const char *message) {
    reply_free(reply);
    reply->status = status;
    reply->retry = status == 503;
    char plain[PROBLEM_SIZE * 4];
    size_t size = strnlen(message, sizeof plain - 1);
    memcpy(plain, message, size);
    /* A name may have been cut within a character. */
    if (!text_is_utf8(plain, size))
        for (size_t i = 0; i < size; i++)
            if ((unsigned char)plain[i] >= 128) plain[i] = '?';
    text_format(&reply->head, "{\"error\":");
    text_json_string(&reply->head, plain, size);
    text_format(&reply->head, "}");
}

/* --- fitting a request to the model --- */
static int find(const OnnxfuseValueInfo *const *infos, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(infos[i]->name, name) == 0) return i;
    return -1;
}

static bool wrong_shape(const Tensor *t, const OnnxfuseValueInfo *info, Problem *problem) {
    Text found = {0}, wanted = {0};
    for (int i = 0; i < t->rank; i++) text_format(&found, "%s%" PRId64, i ? ", " : "", t->dims[i]);
    model_write_shape(&wanted, info);
    problem_say(problem, "input \"%.64s\": its shape is [%.64s], the model takes %.96s", t->name,
                found.size ? found.data : "", wanted.size ? wanted.data : "");
    text_free(&found);
    text_free(&wanted);
    return false;
}

/* Of the context, a Model. */
static bool takes_datatype(const void *context, const char *input, const char *datatype, Problem *problem) {
    const Model *m = context;
    int at = find(m->inputs, m->input_count, input);
    if (at < 0) return problem_say(problem, "model %.64s has no input \"%.64s\"", m->name, input);
    const char *taken = datatype_of(m->inputs[at]->dtype)->name;
    return strcmp(datatype, taken) == 0 ||
           problem_say(problem, "input \"%.64s\": its datatype is \"%.32s\", the model takes %s", input, datatype,
                       taken);
}

static bool fits(const Tensor *t, const OnnxfuseValueInfo *info, Problem *problem) {
    if (info->rank < 0) return true;
    if (t->rank != info->rank) return wrong_shape(t, info, problem);
    for (int i = 0; i < t->rank; i++)
        if (info->dims[i] >= 0 && info->dims[i] != t->dims[i]) return wrong_shape(t, info, problem);
    return true;
}

static bool bind_inputs(Job *job, Problem *problem) {
    Model *m = job->model;
    job->inputs = calloc((size_t)m->input_count + 1, sizeof *job->inputs);
    if (!job->inputs) return problem_memory(problem);
    for (int i = 0; i < job->request.input_count; i++) {
        const Tensor *t = &job->request.inputs[i];
        int at = find(m->inputs, m->input_count, t->name);
        if (at < 0) return problem_say(problem, "model %.64s has no input \"%.64s\"", m->name, t->name);
        if (job->inputs[at]) return problem_say(problem, "input \"%.64s\" stands twice in the request", t->name);
        if (!fits(t, m->inputs[at], problem)) return false;
        job->inputs[at] = t;
    }
    for (int i = 0; i < m->input_count; i++)
        if (!job->inputs[i] && model_wants_tensor(m->inputs[i]))
            return problem_say(problem, "the request lacks the input \"%.64s\" of model %.64s", m->inputs[i]->name,
                               m->name);
    return true;
}

static bool check_outputs(const Job *job, Problem *problem) {
    const Request *r = &job->request;
    const Model *m = job->model;
    for (int i = 0; i < r->output_count; i++) {
        if (find(m->outputs, m->output_count, r->outputs[i].name) < 0)
            return problem_say(problem, "model %.64s has no output \"%.64s\"", m->name, r->outputs[i].name);
        for (int k = 0; k < i; k++)
            if (strcmp(r->outputs[k].name, r->outputs[i].name) == 0)
                return problem_say(problem, "output \"%.64s\" is asked for twice", r->outputs[i].name);
    }
    return true;
}

/* A body without JSON: the model's only input. Of its variable dims the first counts as 1 where requests can be put
 * together, and one more follows from the size. */
static bool read_raw(Job *job, Problem *problem) {
    const Model *m = job->model;
    const OnnxfuseValueInfo *info = m->input_count == 1 ? m->inputs[0] : NULL;
    if (!info || info->rank < 0)
        return problem_say(problem, "a body without JSON needs a model with one input of a known rank");
    Request *r = &job->request;
    r->inputs = calloc(1, sizeof *r->inputs);
    if (!r->inputs) return problem_memory(problem);
    r->input_count = 1;
    r->binary_outputs = true;
    Tensor *t = &r->inputs[0];
    *t = (Tensor){.name = info->name, .dtype = info->dtype, .rank = info->rank};
    const DatatypeInfo *type = datatype_of(info->dtype);
    int unknown = -1;
    int64_t known = 1;
    bool strings = info->dtype == ONNXFUSE_STRING;
    for (int i = 0; i < info->rank; i++) {
        t->dims[i] = info->dims[i];
        if (info->dims[i] < 0) t->dims[i] = 1;
        bool open = info->dims[i] < 0 && !(i == 0 && !m->unbatched && info->rank > 1);
        if (open && (unknown >= 0 || strings))
            return problem_say(problem, "a body without JSON leaves more than one dimension of input \"%.64s\" open",
                               info->name);
        if (open)
            unknown = i;
        else if (__builtin_mul_overflow(known, t->dims[i], &known))
            known = 0;
    }
    if (unknown >= 0 && known > 0) t->dims[unknown] = (int64_t)(job->size / type->size) / known;
    if (!tensor_set_dims(t, problem)) return false;
    if (strings) return tensor_read_strings(t, job->body, job->size, problem);
    if (t->bytes != job->size)
        return problem_say(problem, "the body of %zu bytes does not fit input \"%.64s\"", job->size, info->name);
    for (size_t i = 0; info->dtype == ONNXFUSE_BOOL && i < job->size; i++)
        if ((unsigned char)job->body[i] > 1)
            return problem_say(problem, "input \"%.64s\": a BOOL must be 0 or 1", info->name);
    t->data = job->body; /* aligned, because no JSON stands before it */
    return true;
}

/* FNV-1a, 64 bits. */
static uint64_t hash(uint64_t h, const void *data, size_t size) {
    for (size_t i = 0; i < size; i++) h = (h ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    return h;
}

static void find_shape(Job *job) {
    uint64_t shape = UINT64_C(0xcbf29ce484222325);
    job->rows = -1;
    bool same = true;
    for (int i = 0; i < job->model->input_count; i++) {
        const Tensor *t = job->inputs[i];
        int rank = t ? t->rank : -1;
        shape = hash(shape, &rank, sizeof rank);
        if (rank < 1) {
            same = false;
            continue;
        }
        shape = hash(shape, t->dims + 1, (size_t)(rank - 1) * sizeof *t->dims);
        same &= job->rows < 0 || job->rows == t->dims[0];
        job->rows = t->dims[0];
    }
    if (!same) job->rows = -1;
    job->shape = shape;
}

bool job_prepare(Job *job) {
    Problem problem;
    RequestCheck check = {takes_datatype, job->model};
    bool good = job->raw ? read_raw(job, &problem)
                         : request_parse(job->body, job->size, job->json_size, check, &job->request, &problem);
    good = good && bind_inputs(job, &problem) && check_outputs(job, &problem);
    if (!good) {
        reply_error(&job->reply, problem.status, problem.text);
        return false;
    }
    double timeout_ms = job->request.timeout_ms > 0 ? job->request.timeout_ms : job->timeout_ms;
    if (timeout_ms > 0) job->deadline = job->begun + (timeout_ms < 9e12 ? (int64_t)(timeout_ms * 1e6) : INT64_MAX / 2);
    find_shape(job);
    return true;
}

static int compare_numbers(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

/* All dims but the first; NULL: an optional input that is left out. */
static int compare_shapes(const Tensor *x, const Tensor *y) {
    if (!x || !y) return (x != NULL) - (y != NULL);
    int order = x->rank - y->rank;
    for (int i = 1; i < x->rank && !order; i++) order = compare_numbers((uint64_t)x->dims[i], (uint64_t)y->dims[i]);
    return order;
}

int job_compare(const Job *a, const Job *b) {
    int order = compare_numbers(a->shape, b->shape);
    for (int i = 0; i < a->model->input_count && !order; i++) order = compare_shapes(a->inputs[i], b->inputs[i]);
    return order;
}

/* --- the answer --- */
typedef struct Slice {
    OnnxfuseDType dtype;
    int rank;
    int64_t dims[ONNXFUSE_MAX_RANK];
    int64_t count;
    const char *data;
    size_t bytes;
} Slice;

static bool slice_of(const OnnxfuseValue *value, int64_t row, int64_t rows, Slice *s) {
    if (onnxfuse_value_kind(value) != ONNXFUSE_TENSOR || onnxfuse_value_is_on_device(value)) return false;
    *s = (Slice){.dtype = onnxfuse_value_dtype(value),
                 .rank = onnxfuse_value_rank(value),
                 .count = onnxfuse_value_count(value),
                 .data = onnxfuse_value_data(value)};
    memcpy(s->dims, onnxfuse_value_dims(value), (size_t)s->rank * sizeof *s->dims);
    if (row >= 0) {
        int64_t each = s->dims[0] ? s->count / s->dims[0] : 0;
        s->count = each * rows;
        s->data += (size_t)(each * row) * datatype_of(s->dtype)->size;
        s->dims[0] = rows;
    }
    s->bytes = (size_t)s->count * datatype_of(s->dtype)->size;
    return true;
}

/* Strings become a text of their own, all else stays where it is. */
static bool add_part(Reply *reply, const Slice *s, Problem *problem) {
    struct iovec *part = &reply->parts[reply->part_count];
    Text *text = &reply->texts[reply->part_count++];
    *part = (struct iovec){(void *)s->data, s->bytes};
    if (s->dtype != ONNXFUSE_STRING) return true;
    if (!tensor_write_strings(text, (const OnnxfuseString *)s->data, s->count, problem)) return false;
    *part = (struct iovec){text->data, text->size};
    return !text->failed || problem_memory(problem);
}

static bool write_output(Reply *reply, const OnnxfuseValueInfo *info, const Slice *s, bool binary, Problem *problem) {
    Text *out = &reply->head;
    text_format(out, "{\"name\":");
    text_json_string(out, info->name, strlen(info->name));
    text_format(out, ",\"datatype\":\"%s\",\"shape\":[", datatype_of(s->dtype)->name);
    for (int i = 0; i < s->rank; i++) text_format(out, "%s%" PRId64, i ? "," : "", s->dims[i]);
    text_append(out, "]", 1);
    if (binary) {
        if (!add_part(reply, s, problem)) return false;
        text_format(out, ",\"parameters\":{\"binary_data_size\":%zu}}", reply->parts[reply->part_count - 1].iov_len);
        reply->binary = true;
        return true;
    }
    text_format(out, ",\"data\":");
    Problem element;
    if (!tensor_write_json(out, s->dtype, s->data, s->count, &element))
        return problem_say(problem, "output \"%.64s\": %.160s; ask for it as binary data", info->name, element.text);
    text_append(out, "}", 1);
    return true;
}

static bool write_outputs(Job *job, const Results *results, int64_t row, Problem *problem) {
    const Request *r = &job->request;
    const Model *m = job->model;
    Reply *reply = &job->reply;
    int count = r->output_count ? r->output_count : m->output_count;
    reply->parts = calloc((size_t)count + 1, sizeof *reply->parts);
    reply->texts = calloc((size_t)count + 1, sizeof *reply->texts);
    if (!reply->parts || !reply->texts) return problem_memory(problem);
    for (int i = 0; i < count; i++) {
        int at = r->output_count ? find(m->outputs, m->output_count, r->outputs[i].name) : i;
        bool binary = r->output_count ? r->outputs[i].binary : r->binary_outputs;
        Slice slice;
        if (i) text_append(&reply->head, ",", 1);
        if (!slice_of(results->values[at], row, job->rows, &slice)) {
            problem_say(problem, "output \"%.64s\" is no tensor", m->outputs[at]->name);
            return problem->status = 500, false;
        }
        if (!write_output(reply, m->outputs[at], &slice, binary, problem)) return false;
    }
    return true;
}

void job_answer(Job *job, Results *results, int64_t row) {
    Reply *reply = &job->reply;
    Problem problem;
    reply_free(reply);
    reply->status = 200;
    reply->results = results;
    atomic_fetch_add(&results->users, 1);
    text_format(&reply->head, "{\"model_name\":");
    text_json_string(&reply->head, job->model->name, strlen(job->model->name));
    text_format(&reply->head, ",\"model_version\":\"1\"");
    if (job->request.id) {
        text_format(&reply->head, ",\"id\":");
        text_json_string(&reply->head, job->request.id, strlen(job->request.id));
    }
    text_format(&reply->head, ",\"outputs\":[");
    bool good = write_outputs(job, results, row, &problem);
    text_format(&reply->head, "]}");
    if (reply->head.failed)
        reply_error(reply, 500, "out of memory");
    else if (!good)
        reply_error(reply, problem.status, problem.text);
}

void job_free(Job *job) {
    reply_free(&job->reply);
    free(job->inputs);
    job->inputs = NULL;
    request_free(&job->request);
}
