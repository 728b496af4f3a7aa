/* SPDX-License-Identifier: Apache-2.0 */
#include "custom_operators.h"

#include "base/plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int count_of(const OnnxfuseValue *value) { return (int)onnxfuse_value_count(value); }

/* ---- Scale ---- */
static OnnxfuseStatus infer_scale(void *user, OnnxfuseCall *call) {
    OnnxfuseDim dims[ONNXFUSE_MAX_RANK];
    int rank = onnxfuse_call_input_rank(call, 0);
    (void)user;
    if (onnxfuse_call_input_dtype(call, 0) != ONNXFUSE_FLOAT32)
        return onnxfuse_error(ONNXFUSE_UNSUPPORTED, "only float32 can be scaled");
    for (int i = 0; i < rank; i++) dims[i] = onnxfuse_call_input_dim(call, 0, i);
    OnnxfuseStatus status = onnxfuse_call_set_type(call, 0, ONNXFUSE_FLOAT32, rank, dims);
    return status ? status : onnxfuse_call_set_type(call, 1, ONNXFUSE_INT64, 0, NULL);
}

typedef struct Scaling {
    const float *x;
    float *y, factor, summand;
    int count, tasks;
} Scaling;

static void scale_part(void *context, int task) {
    const Scaling *s = context;
    for (int i = s->count * task / s->tasks; i < s->count * (task + 1) / s->tasks; i++)
        s->y[i] = s->factor * s->x[i] + s->summand;
}

static OnnxfuseStatus compute_scale(void *user, OnnxfuseCall *call) {
    const OnnxfuseValue *x = onnxfuse_call_input(call, 0), *summand = onnxfuse_call_input(call, 1);
    double factor = 1;
    void *y, *count;
    (void)user;
    onnxfuse_call_float(call, "factor", &factor);
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, onnxfuse_value_rank(x), onnxfuse_value_dims(x), &y);
    if (!status) status = onnxfuse_call_output(call, 1, 0, NULL, &count);
    if (status) return status;
    if (count) *(int64_t *)count = onnxfuse_value_count(x);
    Scaling s = {onnxfuse_value_data(x), y, (float)factor, 0, count_of(x), 8};
    if (summand) s.summand = *(const float *)onnxfuse_value_data(summand);
    if (y) onnxfuse_call_parallel(call, s.tasks, scale_part, &s);
    return NULL;
}

/* Of the gradients of both results (that of the count left out), x, the summand, and both results. */
static OnnxfuseStatus compute_scale_gradient(void *user, OnnxfuseCall *call) {
    const OnnxfuseValue *g = onnxfuse_call_input(call, 0), *x = onnxfuse_call_input(call, 2);
    double factor = 1;
    void *dx, *dsummand;
    (void)user;
    if (onnxfuse_call_input_count(call) < 5 || onnxfuse_call_input(call, 1) || !x)
        return onnxfuse_error(ONNXFUSE_FAULT, "a gradient's inputs");
    onnxfuse_call_float(call, "factor", &factor);
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, onnxfuse_value_rank(x), onnxfuse_value_dims(x), &dx);
    bool summed = onnxfuse_call_output_count(call) > 1;
    if (!status && summed) status = onnxfuse_call_output(call, 1, 0, NULL, &dsummand);
    if (status) return status;
    if (summed && dsummand) *(float *)dsummand = 0;
    for (int i = 0; i < count_of(g); i++) {
        float element = ((const float *)onnxfuse_value_data(g))[i];
        if (dx) ((float *)dx)[i] = (float)factor * element;
        if (summed && dsummand) *(float *)dsummand += element;
    }
    return NULL;
}

/* ---- Join ---- */
static OnnxfuseStatus infer_join(void *user, OnnxfuseCall *call) {
    int64_t width;
    (void)user;
    OnnxfuseDim columns = onnxfuse_call_input_dim(call, 0, -1);
    if (columns != onnxfuse_call_input_dim(call, 1, -1))
        return onnxfuse_error(ONNXFUSE_INVALID, "matrices of different widths");
    if (onnxfuse_dim_value(columns, &width) && width == 0) return onnxfuse_error(ONNXFUSE_INVALID, "no columns");
    OnnxfuseDim rows = onnxfuse_call_dim_of(call, ONNXFUSE_DIM_ADD, onnxfuse_call_input_dim(call, 0, 0),
                                            onnxfuse_call_input_dim(call, 1, 0));
    return onnxfuse_call_set_type(call, 0, onnxfuse_call_input_dtype(call, 0), 2, (OnnxfuseDim[]){rows, columns});
}

static OnnxfuseStatus compute_join(void *user, OnnxfuseCall *call) {
    const OnnxfuseValue *a = onnxfuse_call_input(call, 0), *b = onnxfuse_call_input(call, 1);
    int64_t dims[] = {onnxfuse_value_dims(a)[0] + onnxfuse_value_dims(b)[0], onnxfuse_value_dims(a)[1]};
    void *y;
    (void)user;
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, 2, dims, &y);
    if (status || !y) return status;
    if (onnxfuse_value_bytes(a)) memcpy(y, onnxfuse_value_data(a), onnxfuse_value_bytes(a));
    if (onnxfuse_value_bytes(b))
        memcpy((char *)y + onnxfuse_value_bytes(a), onnxfuse_value_data(b), onnxfuse_value_bytes(b));
    return NULL;
}

/* ---- Positive ---- */
static OnnxfuseStatus infer_positive(void *user, OnnxfuseCall *call) {
    (void)user;
    return onnxfuse_call_set_type(call, 0, ONNXFUSE_FLOAT32, 1, NULL);
}

static OnnxfuseStatus compute_positive(void *user, OnnxfuseCall *call) {
    const OnnxfuseValue *x = onnxfuse_call_input(call, 0);
    const float *from = onnxfuse_value_data(x);
    int64_t found = 0;
    void *y;
    (void)user;
    for (int i = 0; i < count_of(x); i++) found += from[i] > 0;
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, 1, &found, &y);
    for (int i = 0, to = 0; !status && y && i < count_of(x); i++)
        if (from[i] > 0) ((float *)y)[to++] = from[i];
    return status;
}

/* ---- Any ---- */
static OnnxfuseStatus infer_any(void *user, OnnxfuseCall *call) {
    (void)user;
    return onnxfuse_call_set_type(call, 0, onnxfuse_call_input_dtype(call, 0), -1, NULL);
}

static OnnxfuseStatus compute_any(void *user, OnnxfuseCall *call) {
    const OnnxfuseValue *x = onnxfuse_call_input(call, 0);
    void *y;
    (void)user;
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, onnxfuse_value_rank(x), onnxfuse_value_dims(x), &y);
    if (!status && y && onnxfuse_value_bytes(x)) memcpy(y, onnxfuse_value_data(x), onnxfuse_value_bytes(x));
    return status;
}

/* ---- Text ---- */
static OnnxfuseStatus infer_text(void *user, OnnxfuseCall *call) {
    OnnxfuseDim size = onnxfuse_call_input_dim(call, 0, 0);
    (void)user;
    return onnxfuse_call_set_type(call, 0, ONNXFUSE_STRING, 1, &size);
}

static OnnxfuseStatus compute_text(void *user, OnnxfuseCall *call) {
    const OnnxfuseValue *x = onnxfuse_call_input(call, 0);
    void *y;
    (void)user;
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, 1, onnxfuse_value_dims(x), &y);
    for (int i = 0; !status && y && i < count_of(x); i++) {
        char *text = onnxfuse_call_scratch(call, 32);
        if (!text) return onnxfuse_error(ONNXFUSE_FAULT, "no memory");
        ((OnnxfuseString *)y)[i] =
            (OnnxfuseString){text, (size_t)plain_print(text, 32, "%g", onnxfuse_value_element(x, i))};
    }
    return status;
}

/* ---- Total ---- */
static OnnxfuseStatus infer_total(void *user, OnnxfuseCall *call) {
    (void)user;
    return onnxfuse_call_set_type(call, 0, ONNXFUSE_FLOAT32, 0, NULL);
}

static OnnxfuseStatus compute_total(void *user, OnnxfuseCall *call) {
    const OnnxfuseValue *sequence = onnxfuse_call_input(call, 0);
    float sum = 0;
    void *y;
    (void)user;
    if (onnxfuse_value_kind(sequence) != ONNXFUSE_SEQUENCE)
        return onnxfuse_error(ONNXFUSE_INVALID, "a sequence is needed");
    for (int i = 0; i < count_of(sequence); i++) {
        const OnnxfuseValue *item = onnxfuse_value_item(sequence, i);
        for (int k = 0; k < count_of(item); k++) sum += (float)onnxfuse_value_element(item, k);
    }
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, 0, NULL, &y);
    if (!status && y) *(float *)y = sum;
    return status;
}

/* ---- Draw ---- */
static OnnxfuseStatus compute_draw(void *user, OnnxfuseCall *call) {
    const OnnxfuseValue *x = onnxfuse_call_input(call, 0);
    void *y;
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, onnxfuse_value_rank(x), onnxfuse_value_dims(x), &y);
    for (int i = 0; !status && y && i < count_of(x); i++) ((float *)y)[i] = (float)++*(int *)user;
    return status;
}

/* ---- Fill ---- */
static OnnxfuseStatus infer_fill(void *user, OnnxfuseCall *call) {
    int count;
    OnnxfuseDim dims[ONNXFUSE_MAX_RANK];
    const int64_t *sizes = onnxfuse_call_ints(call, "dims", &count);
    const OnnxfuseValue *value = onnxfuse_call_input(call, 0);
    (void)user;
    if (!sizes || count > ONNXFUSE_MAX_RANK) return onnxfuse_error(ONNXFUSE_INVALID, "no dims");
    if (!value) return onnxfuse_error(ONNXFUSE_UNSUPPORTED, "the value has to be a constant");
    for (int i = 0; i < count; i++) dims[i] = onnxfuse_call_dim(call, sizes[i]);
    return onnxfuse_call_set_type(call, 0, onnxfuse_value_dtype(value), count, dims);
}

static OnnxfuseStatus compute_fill(void *user, OnnxfuseCall *call) {
    int count, floats;
    int64_t elements = 1;
    const int64_t *dims = onnxfuse_call_ints(call, "dims", &count);
    const float *more = onnxfuse_call_floats(call, "more", &floats);
    const OnnxfuseValue *value = onnxfuse_call_input(call, 0);
    void *y;
    (void)user;
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, count, dims, &y);
    for (int i = 0; i < count; i++) elements *= dims[i];
    for (int64_t i = 0; !status && y && i < elements; i++)
        ((float *)y)[i] = (float)onnxfuse_value_element(value, 0) + (more && i < floats ? more[i] : 0);
    return status;
}

/* ---- Relu ---- */
static OnnxfuseStatus compute_relu(void *user, OnnxfuseCall *call) {
    const OnnxfuseValue *x = onnxfuse_call_input(call, 0);
    void *y;
    (void)user;
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, onnxfuse_value_rank(x), onnxfuse_value_dims(x), &y);
    for (int i = 0; !status && y && i < count_of(x); i++) {
        double element = onnxfuse_value_element(x, i);
        ((float *)y)[i] = element < 0 ? 7 : (float)element;
    }
    return status;
}

/* ---- Bad ---- */
static OnnxfuseStatus infer_bad(void *user, OnnxfuseCall *call) {
    const char *how = onnxfuse_call_string(call, "how");
    OnnxfuseDim size = onnxfuse_call_input_dim(call, 0, 0), wrong = onnxfuse_call_dim(call, -3);
    void *memory;
    (void)user;
    if (!how) return onnxfuse_error(ONNXFUSE_USAGE, "the attribute how is missing");
    if (strcmp(how, "no type") == 0) return NULL;
    if (strcmp(how, "infer fails") == 0) return onnxfuse_error(ONNXFUSE_UNSUPPORTED, "not today");
    if (strcmp(how, "dtype") == 0) return onnxfuse_call_set_type(call, 0, (OnnxfuseDType)99, 1, &size);
    if (strcmp(how, "rank") == 0) return onnxfuse_call_set_type(call, 0, ONNXFUSE_FLOAT32, 17, NULL);
    if (strcmp(how, "negative size") == 0) return onnxfuse_call_set_type(call, 0, ONNXFUSE_FLOAT32, 1, &wrong);
    if (strcmp(how, "output in infer") == 0) return onnxfuse_call_output(call, 0, 0, NULL, &memory);
    return onnxfuse_call_set_type(call, 0, ONNXFUSE_FLOAT32, 1, &size);
}

static OnnxfuseStatus compute_bad(void *user, OnnxfuseCall *call) {
    const char *how = onnxfuse_call_string(call, "how");
    int64_t size = onnxfuse_value_dims(onnxfuse_call_input(call, 0))[0], dims[] = {size + 1, -4};
    void *y;
    (void)user;
    if (strcmp(how, "compute fails") == 0) return onnxfuse_error(ONNXFUSE_INVALID, "no luck");
    if (strcmp(how, "a code of none") == 0) return onnxfuse_error((OnnxfuseCode)1000, "strange");
    if (strcmp(how, "no output") == 0) return NULL;
    if (strcmp(how, "other dims") == 0) return onnxfuse_call_output(call, 0, 1, dims, &y);
    if (strcmp(how, "other rank") == 0) return onnxfuse_call_output(call, 0, 2, (int64_t[]){size, 1}, &y);
    if (strcmp(how, "negative dims") == 0) return onnxfuse_call_output(call, 0, 1, dims + 1, &y);
    if (strcmp(how, "type in compute") == 0) return onnxfuse_call_set_type(call, 0, ONNXFUSE_FLOAT32, 0, NULL);
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, 1, &size, &y);
    if (!status && strcmp(how, "asked twice") == 0) return onnxfuse_call_output(call, 0, 1, dims, &y);
    return status;
}

OnnxfuseRegistry *custom_operators(void) {
    static int drawn;
    const OnnxfuseOperator operators[] = {
        {.name = "Scale", .infer = infer_scale, .compute = compute_scale, .in_place = 1, .gradient = "ScaleGradient"},
        {.name = "ScaleGradient", .compute = compute_scale_gradient, .gradient = "Nowhere"},
        {.name = "Join", .infer = infer_join, .compute = compute_join},
        {.name = "Positive", .infer = infer_positive, .compute = compute_positive},
        {.name = "Any", .infer = infer_any, .compute = compute_any},
        {.name = "Text", .infer = infer_text, .compute = compute_text},
        {.name = "Total", .infer = infer_total, .compute = compute_total},
        {.name = "Draw", .compute = compute_draw, .random = true, .user = &drawn},
        {.name = "Fill", .infer = infer_fill, .compute = compute_fill},
        {.name = "Relu", .domain = "ai.onnx", .compute = compute_relu},
        {.name = "Bad", .infer = infer_bad, .compute = compute_bad},
        {.name = "bind_sizes", .compute = compute_relu},
    };
    OnnxfuseRegistry *registry;
    OnnxfuseStatus status = onnxfuse_registry_create(&registry);
    for (size_t i = 0; !status && i < sizeof operators / sizeof *operators; i++) {
        OnnxfuseOperator op = operators[i];
        op.size = sizeof op;
        op.since = 1;
        if (!op.domain) op.domain = "test";
        status = onnxfuse_registry_add_operator(registry, &op);
    }
    if (!status) return registry;
    fprintf(stderr, "%s\n", onnxfuse_status_message(status));
    abort();
}
