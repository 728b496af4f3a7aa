/* SPDX-License-Identifier: Apache-2.0 */
/* Training through the public interface: steps against the optimizers' formulas, checkpoints to the bit, what is refused. */
#include <criterion/criterion.h>

#include "graph/graph.h"
#include "importer/importer.h"
#include "onnxfuse.h"
#include "skip.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DONE(call)                                                                                                     \
    do {                                                                                                               \
        OnnxfuseStatus done_ = (call);                                                                                 \
        cr_assert_null(done_, "%s", onnxfuse_status_message(done_));                                                   \
    } while (0)

static char folder[] = "/tmp/onnxfuse-training-XXXXXX";

static const char *file_in(const char *name) {
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void make_folder(void) { cr_assert(mkdtemp(folder)); }

static void remove_folder(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

/* The model of a text, as a file. */
static const char *model_of(const char *name, const char *text) {
    Graph *graph = NULL;
    DONE(graph_parse(text, &graph));
    graph->info->ir_version = 8;
    void *bytes;
    size_t size;
    DONE(export_model(graph, graph->arena, &bytes, &size));
    const char *path = file_in(name);
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    graph_destroy(graph);
    return path;
}

static OnnxfuseTraining *open_with(const char *path, const char *policy) {
    OnnxfuseOptions options = {.size = sizeof options, .policy_json = policy};
    OnnxfuseTraining *training = NULL;
    DONE(onnxfuse_training_open(path, &options, &training));
    return training;
}

static void expect_refused(const char *path, const char *policy, OnnxfuseCode code, const char *message) {
    OnnxfuseOptions options = {.size = sizeof options, .policy_json = policy};
    OnnxfuseTraining *training = NULL;
    OnnxfuseStatus status = onnxfuse_training_open(path, &options, &training);
    cr_assert(status, "%s was taken", policy);
    cr_expect_eq(onnxfuse_status_code(status), code, "%s: %s", policy, onnxfuse_status_message(status));
    cr_expect(strstr(onnxfuse_status_message(status), message), "%s: %s", policy, onnxfuse_status_message(status));
    onnxfuse_status_free(status);
}

/* --- optimizers: loss = sum of (w x), so that the gradient is x ---------------------------------------------------------- */

static const char linear[] =
    "opset 17\ngraph (x: f32[3]) -> (y) {\n  w = constant f32[3] {0.5, -1, 2}\n  p = onnx Mul@17 w, x # from product\n"
    "  y = onnx ReduceSum@17 p {keepdims = 0} # from sum\n}\n";

typedef struct Reference {
    double w, m, v;
} Reference;

typedef void (*ReferenceFn)(Reference *r, double g, int step);

enum { STEPS = 5 };
static const double RATE = 0.1, DECAY = 0.01;

static void by_sgd(Reference *r, double g, int step) {
    (void)step;
    r->w -= RATE * (g + DECAY * r->w);
}

static void by_momentum(Reference *r, double g, int step) {
    (void)step;
    r->m = 0.9 * r->m + g + DECAY * r->w;
    r->w -= RATE * r->m;
}

static void adam_step(Reference *r, double g, int step) {
    r->m = 0.9 * r->m + 0.1 * g;
    r->v = 0.999 * r->v + 0.001 * g * g;
    r->w -= RATE * (r->m / (1 - pow(0.9, step))) / (sqrt(r->v / (1 - pow(0.999, step))) + 1e-8);
}

static void by_adam(Reference *r, double g, int step) { adam_step(r, g + DECAY * r->w, step); }

static void by_adamw(Reference *r, double g, int step) {
    r->w *= 1 - RATE * DECAY;
    adam_step(r, g, step);
}

static void by_adagrad(Reference *r, double g, int step) {
    (void)step;
    g += DECAY * r->w;
    r->v += g * g;
    r->w -= RATE * g / (sqrt(r->v) + 1e-8);
}

static const struct {
    const char *name;
    ReferenceFn step;
} optimizers[] = {
    {"sgd", by_sgd}, {"momentum", by_momentum}, {"adam", by_adam}, {"adamw", by_adamw}, {"adagrad", by_adagrad}};

Test(training, optimizers_follow_their_formulas, .init = make_folder, .fini = remove_folder) {
    const char *path = model_of("linear.onnx", linear);
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
        char policy[256];
        snprintf(policy, sizeof policy,
                 "{\"training\": {\"optimizer\": \"%s\", \"rate\": 0.1, \"weight_decay\": 0.01}}", optimizers[o].name);
        OnnxfuseTraining *training = open_with(path, policy);
        Reference want[3] = {{.w = 0.5}, {.w = -1}, {.w = 2}};
        for (int step = 1; step <= STEPS; step++) {
            float x[] = {1.f / (float)step, -2, 0.5f * (float)step};
            OnnxfuseValue *input;
            double loss, sum = 0;
            for (int i = 0; i < 3; i++) sum += want[i].w * x[i];
            DONE(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 1, (int64_t[]){3}, x, &input));
            DONE(onnxfuse_training_step(training, (const OnnxfuseValue *const[]){input}, NULL, &loss));
            onnxfuse_value_free(input);
            cr_expect(fabs(loss - sum) < 1e-5, "%s: the loss of step %d is %g, not %g", optimizers[o].name, step, loss,
                      sum);
            for (int i = 0; i < 3; i++) optimizers[o].step(&want[i], x[i], step);
            const float *w = onnxfuse_value_data(onnxfuse_training_tensor(training, 0));
            for (int i = 0; i < 3; i++) /* a few roundings of numbers up to 2 a step */
                cr_expect(fabs(w[i] - want[i].w) < 4e-6 * step, "%s: w[%d] is %.9g after step %d, not %.9g",
                          optimizers[o].name, i, w[i], step, want[i].w);
        }
        cr_expect_eq(onnxfuse_training_steps(training), STEPS);
        onnxfuse_training_close(training);
    }
}

Test(training, large_gradients_are_scaled_down, .init = make_folder, .fini = remove_folder) {
    const char *path = model_of("linear.onnx", linear);
    OnnxfuseTraining *training =
        open_with(path, "{\"training\": {\"optimizer\": \"sgd\", \"rate\": 1, \"clip_norm\": 2.5}}");
    float x[] = {3, 0, 4};
    OnnxfuseValue *input;
    DONE(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 1, (int64_t[]){3}, x, &input));
    DONE(onnxfuse_training_step(training, (const OnnxfuseValue *const[]){input}, NULL, NULL));
    const float *w = onnxfuse_value_data(onnxfuse_training_tensor(training, 0));
    cr_expect(fabsf(w[0] - (0.5f - 1.5f)) < 1e-5f && w[1] == -1 && fabsf(w[2] - (2 - 2)) < 1e-5f, "%g %g %g", w[0],
              w[1], w[2]);
    onnxfuse_value_free(input);
    onnxfuse_training_close(training);
}

Test(training, the_rate_follows_its_schedule, .init = make_folder, .fini = remove_folder) {
    static const struct {
        const char *schedule;
        double rates[7];
    } rows[] = {{"constant", {1, 2, 2, 2, 2, 2, 2}},
                {"linear", {1, 2, 2, 1.5, 1, 0.5, 0}},
                {"cosine", {1, 2, 2, 1.70710678, 1, 0.29289322, 0}}};
    const char *path = model_of("linear.onnx", linear);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        char policy[256];
        snprintf(policy, sizeof policy,
                 "{\"training\": {\"rate\": 2, \"schedule\": \"%s\", \"warmup_steps\": 2, \"steps\": 6}}",
                 rows[r].schedule);
        OnnxfuseTraining *training = open_with(path, policy);
        float x[] = {1, 1, 1};
        OnnxfuseValue *input;
        DONE(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 1, (int64_t[]){3}, x, &input));
        for (int step = 0; step < 7; step++) {
            cr_expect(fabs(onnxfuse_training_rate(training) - rows[r].rates[step]) < 1e-8, "%s, step %d: %g",
                      rows[r].schedule, step + 1, onnxfuse_training_rate(training));
            DONE(onnxfuse_training_step(training, (const OnnxfuseValue *const[]){input}, NULL, NULL));
        }
        onnxfuse_value_free(input);
        onnxfuse_training_close(training);
    }
}

/* --- a model with dropout and batch statistics ------------------------------------------------------------------------------ */

static const char net[] =
    "opset 17\ngraph (x: f32[n, 4]) -> (scores) {\n"
    "  w1 = constant f32[4, 8] {0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8, -0.1, 0.2, 0.3, 0.4, -0.5, 0.6, 0.7, -0.8, "
    "0.1, -0.2, 0.3, 0.4, 0.5, "
    "0.6, -0.7, 0.8, 0.1, 0.2, 0.3, -0.4, 0.5, 0.6, 0.7, -0.8}\n"
    "  b1 = constant f32[8] {0, 0.1, 0, 0.1, 0, 0.1, 0, 0.1}\n  scale = constant f32[8] {1, 1, 1, 1, 1, 1, 1, 1}\n"
    "  shift = constant f32[8] {0, 0, 0, 0, 0, 0, 0, 0}\n  mean = constant f32[8] {0, 0, 0, 0, 0, 0, 0, 0}\n"
    "  var = constant f32[8] {1, 1, 1, 1, 1, 1, 1, 1}\n"
    "  w2 = constant f32[8, 3] {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, 0.8, -0.9, 0.1, 0.2, -0.3, 0.4, 0.5, 0.6, -0.7, "
    "0.8, 0.9, 0.1, -0.2, 0.3, 0.4, "
    "0.5, -0.6}\n"
    "  ratio = constant f32[] 0.25\n"
    "  a = onnx Gemm@17 x, w1, b1 # from first\n  b = onnx BatchNormalization@17 a, scale, shift, mean, var # from "
    "norm\n"
    "  c = onnx Relu@17 b # from relu\n  d = onnx Dropout@17 c, ratio # from drop\n"
    "  logits = onnx MatMul@17 d, w2 # from second\n  scores = onnx Softmax@17 logits {axis = -1} # from softmax\n}\n";
static const char net_policy[] = "{\"training\": {\"loss\": \"cross_entropy:logits,labels\", \"rate\": 0.02}}";

enum { ROWS = 64 };

/* Three classes that a plane cannot tell apart. */
static void draw(float *x, int64_t *labels, int seed) {
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < 4; k++)
            x[4 * i + k] = (float)philox_u32((uint64_t)seed + 1, (uint64_t)(4 * i + k)) * 0x1p-31f - 1;
        float *p = x + 4 * i;
        labels[i] = p[0] * p[1] > 0.1f ? 0 : p[2] > 0 ? 1 : 2;
    }
}

static double step_net(OnnxfuseTraining *training, int seed) {
    float x[4 * ROWS];
    int64_t labels[ROWS];
    draw(x, labels, seed);
    OnnxfuseValue *inputs[2];
    double loss;
    DONE(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){ROWS, 4}, x, &inputs[0]));
    DONE(onnxfuse_value_tensor(ONNXFUSE_INT64, 1, (int64_t[]){ROWS}, labels, &inputs[1]));
    DONE(onnxfuse_training_step(training, (const OnnxfuseValue *const *)inputs, NULL, &loss));
    onnxfuse_value_free(inputs[0]);
    onnxfuse_value_free(inputs[1]);
    return loss;
}

static void expect_same_tensors(const OnnxfuseTraining *a, const OnnxfuseTraining *b) {
    cr_assert_eq(onnxfuse_training_tensor_count(a), onnxfuse_training_tensor_count(b));
    for (int i = 0; i < onnxfuse_training_tensor_count(a); i++) {
        const OnnxfuseValue *x = onnxfuse_training_tensor(a, i), *y = onnxfuse_training_tensor(b, i);
        cr_expect(memcmp(onnxfuse_value_data(x), onnxfuse_value_data(y), onnxfuse_value_bytes(x)) == 0, "%s differs",
                  onnxfuse_training_tensor_name(a, i));
    }
}

Test(training, a_net_learns, .init = make_folder, .fini = remove_folder) {
    const char *path = model_of("net.onnx", net);
    OnnxfuseTraining *training = open_with(path, net_policy);
    cr_assert_eq(onnxfuse_training_input_count(training), 2);
    cr_expect_str_eq(onnxfuse_training_input(training, 1)->name, "labels");
    static const char *const names[] = {"w1", "b1", "scale", "shift", "w2", "mean", "var", "w1.momentum"};
    for (int i = 0; i < 8; i++) cr_expect_str_eq(onnxfuse_training_tensor_name(training, i), names[i]);
    double first = step_net(training, 0), last = 0;
    for (int i = 1; i < 400; i++) last += i < 380 ? 0 * step_net(training, i % 8) : step_net(training, i % 8) / 20;
    cr_expect(last < 0.6 * first, "the loss fell from %g to %g", first, last);
    /* The model with its new weights runs, with the running statistics of training, and tells the classes apart. */
    const char *trained = file_in("trained.onnx");
    DONE(onnxfuse_training_save_model(training, trained));
    OnnxfuseSession *session = NULL;
    DONE(onnxfuse_session_open(trained, NULL, &session));
    float x[4 * ROWS];
    int64_t labels[ROWS];
    draw(x, labels, 100);
    OnnxfuseValue *input, *scores = NULL;
    DONE(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){ROWS, 4}, x, &input));
    DONE(onnxfuse_session_run(session, (const OnnxfuseValue *const[]){input}, &scores));
    int right = 0;
    const float *data = onnxfuse_value_data(scores);
    for (int i = 0; i < ROWS; i++) {
        int best = 0;
        for (int k = 1; k < 3; k++)
            if (data[3 * i + k] > data[3 * i + best]) best = k;
        right += best == labels[i];
    }
    cr_expect(right > ROWS * 6 / 10, "%d of %d", right, ROWS);
    onnxfuse_value_free(scores);
    onnxfuse_value_free(input);
    onnxfuse_session_close(session);
    onnxfuse_training_close(training);
}

/* Each step is 2^-14 of the weight, of which neither f16 nor bf16 has a neighbour so near; the gradient is x, whatever the weight. */
Test(training, weights_of_narrow_types_take_small_steps, .init = make_folder, .fini = remove_folder) {
    static const struct {
        const char *name;
        OnnxfuseDType dtype;
        uint16_t one, less; /* 1, and 1 - 64 * 2^-14 to nearest even */
        bool scaled;
    } types[] = {{"f16", ONNXFUSE_FLOAT16, 0x3c00, 0x3bf8, true}, {"bf16", ONNXFUSE_BFLOAT16, 0x3f80, 0x3f7f, false}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char text[400];
        snprintf(
            text, sizeof text,
            "opset 17\ngraph (x: %s[2]) -> (y) {\n  w = constant %s[2] {1, 1}\n  p = onnx Mul@17 w, x # from product\n"
            "  y = onnx ReduceSum@17 p {keepdims = 0} # from sum\n}\n",
            types[i].name, types[i].name);
        const char *path = model_of("narrow.onnx", text), *saved = file_in("saved.onnx"),
                   *checkpoint = file_in("narrow_64.onnx");
        OnnxfuseTraining *training =
            open_with(path, "{\"training\": {\"optimizer\": \"sgd\", \"rate\": 6.103515625e-05, \"of\": [\"w\"]}}");
        OnnxfuseValue *x;
        uint16_t numbers[] = {types[i].one, 0};
        DONE(onnxfuse_value_tensor(types[i].dtype, 1, (int64_t[]){2}, numbers, &x));
        while (onnxfuse_training_steps(training) < 64) /* the loss's first scale is too large for f16 */
            DONE(onnxfuse_training_step(training, (const OnnxfuseValue *const[]){x}, NULL, NULL));
        const OnnxfuseValue *w = onnxfuse_training_tensor(training, 0);
        cr_assert_eq(onnxfuse_value_dtype(w), ONNXFUSE_FLOAT32);
        cr_expect_eq(((const float *)onnxfuse_value_data(w))[0], 1 - 64 * 0x1p-14f, "%s: %.9g", types[i].name,
                     ((const float *)onnxfuse_value_data(w))[0]);
        cr_expect_eq(((const float *)onnxfuse_value_data(w))[1], 1);
        bool scaled = false;
        for (int t = 0; t < onnxfuse_training_tensor_count(training); t++)
            scaled |= strcmp(onnxfuse_training_tensor_name(training, t), "training.loss_scale") == 0;
        cr_expect_eq(scaled, types[i].scaled, "%s", types[i].name);
        DONE(onnxfuse_training_save_checkpoint(training, checkpoint));
        DONE(onnxfuse_training_load_checkpoint(training, checkpoint));
        DONE(onnxfuse_training_save_model(training, saved));
        onnxfuse_training_close(training);
        /* The saved model has weights of its own type. */
        Graph *graph = NULL;
        DONE(import_file(saved, NULL, &graph));
        const Tensor *narrow = ((Value *)map_get(&graph->names, "w"))->constant;
        cr_assert_eq((int)narrow->dtype, (int)types[i].dtype);
        cr_expect_eq(((const uint16_t *)narrow->data)[0], types[i].less, "%s: %#x", types[i].name,
                     ((const uint16_t *)narrow->data)[0]);
        cr_expect_eq(((const uint16_t *)narrow->data)[1], types[i].one);
        graph_destroy(graph);
        onnxfuse_value_free(x);
    }
}

Test(training, goes_on_from_a_checkpoint_with_the_same_bits, .init = make_folder, .fini = remove_folder) {
    const char *path = model_of("net.onnx", net), *checkpoint = file_in("at_7.onnx");
    OnnxfuseTraining *whole = open_with(path, net_policy);
    for (int i = 0; i < 7; i++) step_net(whole, i);
    DONE(onnxfuse_training_save_checkpoint(whole, checkpoint));
    for (int i = 7; i < 12; i++) step_net(whole, i);
    OnnxfuseTraining *resumed = open_with(path, net_policy);
    DONE(onnxfuse_training_load_checkpoint(resumed, checkpoint));
    cr_expect_eq(onnxfuse_training_steps(resumed), 7);
    for (int i = 7; i < 12; i++) step_net(resumed, i);
    expect_same_tensors(whole, resumed);
    /* One that does not fit changes nothing. */
    OnnxfuseStatus status = onnxfuse_training_load_checkpoint(resumed, path);
    cr_assert(status && strstr(onnxfuse_status_message(status), "is no checkpoint of a training"), "%s",
              onnxfuse_status_message(status));
    onnxfuse_status_free(status);
    OnnxfuseTraining *other = open_with(model_of("linear.onnx", linear), "{}");
    status = onnxfuse_training_load_checkpoint(other, checkpoint);
    cr_assert(status && strstr(onnxfuse_status_message(status), "has no \"w\""), "%s", onnxfuse_status_message(status));
    onnxfuse_status_free(status);
    onnxfuse_training_close(other);
    expect_same_tensors(whole, resumed);
    onnxfuse_training_close(resumed);
    onnxfuse_training_close(whole);
}

/* --- narrow numbers ---------------------------------------------------------------------------------------------------------- */

static double number_named(const OnnxfuseTraining *training, const char *name) {
    for (int i = 0; i < onnxfuse_training_tensor_count(training); i++)
        if (strcmp(onnxfuse_training_tensor_name(training, i), name) == 0)
            return onnxfuse_value_element(onnxfuse_training_tensor(training, i), 0);
    cr_assert_fail("there is no tensor %s", name);
    return NAN;
}

/* The gradient of w is the product of x and of `by` times the loss's scale, which is an operand in f16. (What no kernel stores in
 * f16 may be of any size.) */
static const char product[] =
    "opset 17\ngraph (x: f32[n, 2], by: f32[n, 1]) -> (y) {\n  w = constant f32[2, 1] {0.5, -1}\n"
    "  p = onnx MatMul@17 x, w # from product\n  q = onnx Mul@17 p, by # from weighted\n"
    "  y = onnx ReduceSum@17 q {keepdims = 0} # from sum\n}\n";

/* Whose gradient is [a, b]. */
static void step_product(OnnxfuseTraining *training, float a, float b) {
    OnnxfuseValue *x, *by;
    DONE(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){1, 2}, (float[]){1, b / a}, &x));
    DONE(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){1, 1}, (float[]){a}, &by));
    DONE(onnxfuse_training_step(training, (const OnnxfuseValue *const[]){x, by}, NULL, NULL));
    onnxfuse_value_free(x);
    onnxfuse_value_free(by);
}

Test(training, an_overflow_is_skipped_and_halves_the_scale, .init = make_folder, .fini = remove_folder) {
    static const char *const policies[] = {
        "{\"training\": {\"optimizer\": \"momentum\", \"rate\": 0.5, \"precision\": \"f16\", \"loss_scale\": 1024, "
        "\"loss_scale_steps\": 3}}",
        "{\"training\": {\"optimizer\": \"momentum\", \"rate\": 0.5, \"precision\": \"f16\", \"loss_scale\": 1024, "
        "\"loss_scale_steps\": 3, \"accumulation\": 2}}"};
    const char *path = model_of("product.onnx", product);
    for (int each = 1; each <= 2; each++) {
        OnnxfuseTraining *training = open_with(path, policies[each - 1]);
        static const struct {
            float a; /* 1024 times what is too large for f16 */
            int steps;
            double scale, at_scale;
        } rows[] = {{1, 1, 1024, 1}, {64, 1, 512, 0}, {64, 2, 512, 1}, {1, 3, 512, 2},
                    {1, 4, 1024, 0}, {1, 5, 1024, 1}, {64, 5, 512, 0}};
        double w[] = {0.5, -1}, m[] = {0, 0};
        int steps = 0;
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            for (int i = 0; i < each; i++) step_product(training, i ? 1 : rows[r].a, 0.25f);
            if (rows[r].steps > steps)
                for (int k = 0; k < 2; k++) {
                    m[k] = 0.9 * m[k] + (k ? 0.25 : (rows[r].a + each - 1) / each);
                    w[k] -= 0.5 * m[k];
                }
            steps = rows[r].steps;
            cr_expect_eq(onnxfuse_training_steps(training), steps, "row %zu: %lld", r,
                         (long long)onnxfuse_training_steps(training));
            cr_expect_eq(number_named(training, "training.loss_scale"), rows[r].scale, "row %zu", r);
            cr_expect_eq(number_named(training, "training.steps_at_scale"), rows[r].at_scale, "row %zu", r);
            const float *now = onnxfuse_value_data(onnxfuse_training_tensor(training, 0));
            for (int k = 0; k < 2; k++)
                cr_expect(fabs(now[k] - w[k]) < 1e-5 * (1 + fabs(w[k])), "%d a step, row %zu: w[%d] is %g, not %g",
                          each, r, k, now[k], w[k]);
        }
        onnxfuse_training_close(training);
    }
}

/* Sums of many steps differ by roundings of the products' inputs. */
Test(training, learns_in_narrow_numbers_as_in_f32, .init = make_folder, .fini = remove_folder) {
    static const struct {
        const char *name;
        double bound;
    } kinds[] = {{"bf16", 0.03}, {"f16", 0.01}};
    const char *path = model_of("net.onnx", net);
    OnnxfuseTraining *f32 = open_with(path, net_policy);
    double want = 0;
    for (int i = 0; i < 200; i++) want += i < 160 ? 0 * step_net(f32, i % 8) : step_net(f32, i % 8) / 40;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        OnnxfuseOptions options = {.size = sizeof options, .policy_json = net_policy, .precision = kinds[k].name};
        OnnxfuseTraining *training = NULL;
        DONE(onnxfuse_training_open(path, &options, &training));
        double loss = 0;
        while (onnxfuse_training_steps(training) < 200) {
            int64_t step = onnxfuse_training_steps(training);
            double now = step_net(training, (int)step % 8);
            if (step >= 160 && onnxfuse_training_steps(training) > step) loss += now / 40;
        }
        cr_expect(fabs(loss - want) < kinds[k].bound * want, "%s: the loss is %g, that of f32 %g", kinds[k].name, loss,
                  want);
        for (int i = 0; i < onnxfuse_training_tensor_count(training); i++)
            cr_expect_eq(onnxfuse_value_dtype(onnxfuse_training_tensor(training, i)), ONNXFUSE_FLOAT32);
        const float *a = onnxfuse_value_data(onnxfuse_training_tensor(f32, 0)),
                    *b = onnxfuse_value_data(onnxfuse_training_tensor(training, 0));
        cr_expect(a[0] != b[0], "%s: computed in f32", kinds[k].name);
        onnxfuse_training_close(training);
    }
    onnxfuse_training_close(f32);
}

Test(training, goes_on_with_the_scale_of_the_checkpoint, .init = make_folder, .fini = remove_folder) {
    static const char policy[] =
        "{\"training\": {\"loss\": \"cross_entropy:logits,labels\", \"rate\": 0.02, \"precision\": \"f16\", "
        "\"loss_scale\": 1e7, \"loss_scale_steps\": 4}}";
    const char *path = model_of("net.onnx", net), *checkpoint = file_in("half.onnx");
    OnnxfuseTraining *whole = open_with(path, policy), *resumed = open_with(path, policy);
    for (int i = 0; i < 20; i++) step_net(whole, (int)onnxfuse_training_steps(whole));
    cr_expect_lt(onnxfuse_training_steps(whole), 20, "none was skipped");
    DONE(onnxfuse_training_save_checkpoint(whole, checkpoint));
    DONE(onnxfuse_training_load_checkpoint(resumed, checkpoint));
    for (int i = 0; i < 12; i++) step_net(whole, (int)onnxfuse_training_steps(whole));
    for (int i = 0; i < 12; i++) step_net(resumed, (int)onnxfuse_training_steps(resumed));
    cr_expect_eq(onnxfuse_training_steps(whole), onnxfuse_training_steps(resumed));
    expect_same_tensors(whole, resumed);
    onnxfuse_training_close(resumed);
    onnxfuse_training_close(whole);
}

/* --- several batches a step ------------------------------------------------------------------------------------------------ */

static const char regression[] =
    "opset 17\ngraph (x: f32[n, 4]) -> (y) {\n"
    "  w = constant f32[4, 2] {0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8}\n  b = constant f32[2] {0, 0.1}\n"
    "  a = onnx Gemm@17 x, w, b # from first\n  y = onnx Tanh@17 a # from tanh\n}\n";

/* A step on rows first .. first + count - 1. */
static void step_rows(OnnxfuseTraining *training, const float *x, const float *t, int first, int count) {
    OnnxfuseValue *inputs[2];
    DONE(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){count, 4}, (void *)(x + 4 * first), &inputs[0]));
    DONE(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){count, 2}, (void *)(t + 2 * first), &inputs[1]));
    DONE(onnxfuse_training_step(training, (const OnnxfuseValue *const *)inputs, NULL, NULL));
    onnxfuse_value_free(inputs[0]);
    onnxfuse_value_free(inputs[1]);
}

Test(training, summed_gradients_are_those_of_a_larger_batch, .init = make_folder, .fini = remove_folder) {
    const char *path = model_of("regression.onnx", regression);
    enum { BATCHES = 4, EACH = 3, ALL = BATCHES * EACH };
    float x[4 * ALL], t[2 * ALL];
    for (int i = 0; i < 4 * ALL; i++) x[i] = (float)(i * 37 % 23 - 11) / 8;
    for (int i = 0; i < 2 * ALL; i++) t[i] = (float)(i * 29 % 13 - 6) / 8;
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
        static const char form[] = "{\"training\": {\"loss\": \"mse:y,t\", \"optimizer\": \"%s\", \"rate\": 0.05, "
                                   "\"clip_norm\": 0.2, \"weight_decay\": 0.01, \"accumulation\": %d}}";
        char policies[2][256];
        for (int i = 0; i < 2; i++)
            snprintf(policies[i], sizeof policies[i], form, optimizers[o].name, i ? BATCHES : 1);
        OnnxfuseTraining *whole = open_with(path, policies[0]), *parts = open_with(path, policies[1]);
        for (int step = 0; step < 5; step++) {
            step_rows(whole, x, t, 0, ALL);
            for (int batch = 0; batch < BATCHES; batch++) {
                cr_expect_eq(onnxfuse_training_batches(parts), step * BATCHES + batch);
                step_rows(parts, x, t, batch * EACH, EACH);
            }
            cr_expect_eq(onnxfuse_training_steps(parts), step + 1);
        }
        for (int i = 0; i < onnxfuse_training_tensor_count(whole); i++) {
            const char *name = onnxfuse_training_tensor_name(whole, i);
            int own = 0;
            while (own < onnxfuse_training_tensor_count(parts) &&
                   strcmp(name, onnxfuse_training_tensor_name(parts, own)))
                own++;
            const float *a = onnxfuse_value_data(onnxfuse_training_tensor(whole, i)),
                        *b = onnxfuse_value_data(onnxfuse_training_tensor(parts, own));
            for (int64_t k = 0; k < onnxfuse_value_count(onnxfuse_training_tensor(whole, i)); k++)
                cr_expect(fabsf(a[k] - b[k]) < 2e-6f, "%s: %s[%lld] is %g, not %g", optimizers[o].name, name,
                          (long long)k, b[k], a[k]);
        }
        onnxfuse_training_close(whole);
        onnxfuse_training_close(parts);
    }
}

Test(training, goes_on_between_batches_with_the_same_bits, .init = make_folder, .fini = remove_folder) {
    static const char policy[] =
        "{\"training\": {\"loss\": \"cross_entropy:logits,labels\", \"rate\": 0.01, \"accumulation\": 3}}";
    const char *path = model_of("net.onnx", net);
    for (int at = 6; at < 9; at++) {
        const char *checkpoint = file_in("between.onnx");
        OnnxfuseTraining *whole = open_with(path, policy), *resumed = open_with(path, policy),
                         *fewer = open_with(path, net_policy);
        for (int i = 0; i < at; i++) step_net(whole, i);
        DONE(onnxfuse_training_save_checkpoint(whole, checkpoint));
        DONE(onnxfuse_training_load_checkpoint(resumed, checkpoint));
        cr_expect_eq(onnxfuse_training_batches(resumed), at);
        for (int i = at; i < 14; i++) step_net(whole, i);
        for (int i = at; i < 14; i++) step_net(resumed, i);
        expect_same_tensors(whole, resumed);
        OnnxfuseStatus status = onnxfuse_training_load_checkpoint(fewer, checkpoint);
        cr_expect_eq(status == NULL, at == 6, "%d: %s", at, status ? onnxfuse_status_message(status) : "taken");
        if (status)
            cr_expect(strstr(onnxfuse_status_message(status), "an update takes 1"), "%s",
                      onnxfuse_status_message(status));
        onnxfuse_status_free(status);
        onnxfuse_training_close(whole);
        onnxfuse_training_close(resumed);
        onnxfuse_training_close(fewer);
    }
}

Test(training, a_failed_step_changes_nothing, .init = make_folder, .fini = remove_folder) {
    const char *path = model_of("net.onnx", net);
    OnnxfuseTraining *training = open_with(path, net_policy), *other = open_with(path, net_policy);
    step_net(training, 0);
    step_net(other, 0);
    float x[8] = {0};
    int64_t labels[] = {0, 7}; /* there are 3 classes */
    OnnxfuseValue *inputs[2];
    DONE(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){2, 4}, x, &inputs[0]));
    DONE(onnxfuse_value_tensor(ONNXFUSE_INT64, 1, (int64_t[]){2}, labels, &inputs[1]));
    OnnxfuseCancel *cancel;
    DONE(onnxfuse_cancel_create(&cancel));
    onnxfuse_cancel(cancel);
    OnnxfuseRunOptions options = {.size = sizeof options, .cancel = cancel};
    OnnxfuseStatus status = onnxfuse_training_step(training, (const OnnxfuseValue *const *)inputs, &options, NULL);
    cr_assert_eq(onnxfuse_status_code(status), ONNXFUSE_CANCELLED);
    onnxfuse_status_free(status);
    cr_expect_eq(onnxfuse_training_steps(training), 1);
    expect_same_tensors(training, other);
    onnxfuse_cancel_free(cancel);
    onnxfuse_value_free(inputs[0]);
    onnxfuse_value_free(inputs[1]);
    onnxfuse_training_close(other);
    onnxfuse_training_close(training);
}

/* --- on a device of its own memory --------------------------------------------------------------------------------------- */

/* As on the CPU, but for the order of sums; weights stay there, and are brought when they are asked for. */
Test(training, a_device_keeps_the_weights, .init = make_folder, .fini = remove_folder, .timeout = 300) {
    const char *path = model_of("regression.onnx", regression), *checkpoint = file_in("device.onnx");
    static const char form[] =
        "{\"device\": \"%s\", \"training\": {\"loss\": \"mse:y,t\", \"rate\": 0.05, \"accumulation\": %d}}";
    float x[4 * 6], t[2 * 6];
    for (int i = 0; i < 4 * 6; i++) x[i] = (float)(i * 37 % 23 - 11) / 8;
    for (int i = 0; i < 2 * 6; i++) t[i] = (float)(i * 29 % 13 - 6) / 8;
    for (int accumulation = 1; accumulation < 3; accumulation++) {
        char here[256], there[256];
        snprintf(here, sizeof here, form, "cpu", accumulation);
        snprintf(there, sizeof there, form, "opencl", accumulation);
        OnnxfuseOptions options = {.size = sizeof options, .policy_json = there};
        OnnxfuseTraining *cpu = open_with(path, here), *device = NULL, *resumed = NULL;
        skip_without_device(onnxfuse_training_open(path, &options, &device));
        for (int step = 0; step < 6; step++) {
            step_rows(cpu, x, t, step % 2 * 3, 3);
            step_rows(device, x, t, step % 2 * 3, 3);
            if (step != 2) continue;
            DONE(onnxfuse_training_save_checkpoint(device, checkpoint));
            DONE(onnxfuse_training_open(path, &options, &resumed));
            DONE(onnxfuse_training_load_checkpoint(resumed, checkpoint));
        }
        for (int step = 3; step < 6; step++) step_rows(resumed, x, t, step % 2 * 3, 3);
        for (int i = 0; i < onnxfuse_training_tensor_count(cpu); i++) {
            const OnnxfuseValue *want = onnxfuse_training_tensor(cpu, i), *got = onnxfuse_training_tensor(device, i);
            cr_assert(got && !onnxfuse_value_is_on_device(got));
            for (int64_t k = 0; k < onnxfuse_value_count(want); k++)
                cr_expect(fabs(onnxfuse_value_element(want, k) - onnxfuse_value_element(got, k)) < 1e-5,
                          "%s[%lld] is %g, not %g", onnxfuse_training_tensor_name(cpu, i), (long long)k,
                          onnxfuse_value_element(got, k), onnxfuse_value_element(want, k));
        }
        expect_same_tensors(device, resumed);
        onnxfuse_training_close(resumed);
        onnxfuse_training_close(device);
        onnxfuse_training_close(cpu);
    }
}

/* --- forward and backward apart --------------------------------------------------------------------------------------------- */

static OnnxfuseValue *tensor_of(int rows, int columns, float *data) {
    OnnxfuseValue *value;
    DONE(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){rows, columns}, data, &value));
    return value;
}

static OnnxfusePasses *open_passes(const char *path, const char *policy) {
    OnnxfuseOptions options = {.size = sizeof options, .policy_json = policy};
    OnnxfusePasses *passes = NULL;
    DONE(onnxfuse_passes_open(path, &options, &passes));
    return passes;
}

Test(training, apart_gives_the_gradients_of_a_step, .init = make_folder, .fini = remove_folder) {
    enum { ROWS_APART = 5 };
    const char *path = model_of("regression.onnx", regression);
    float x[4 * ROWS_APART], t[2 * ROWS_APART], dy[2 * ROWS_APART],
        weights[8] = {0.1f, 0.2f, -0.3f, 0.4f, 0.5f, -0.6f, 0.7f, 0.8f};
    for (int i = 0; i < 4 * ROWS_APART; i++) x[i] = (float)(i * 37 % 23 - 11) / 8;
    for (int i = 0; i < 2 * ROWS_APART; i++) t[i] = (float)(i * 29 % 13 - 6) / 8;
    OnnxfuseTraining *training =
        open_with(path, "{\"training\": {\"loss\": \"mse:y,t\", \"optimizer\": \"sgd\", \"rate\": 1}}");
    step_rows(training, x, t, 0, ROWS_APART);
    OnnxfusePasses *passes = open_passes(path, "{}");
    cr_assert_eq(onnxfuse_passes_input_count(passes), 3);
    cr_assert_eq(onnxfuse_passes_output_count(passes), 1);
    cr_assert_eq(onnxfuse_passes_gradient_count(passes), 3);
    cr_expect_str_eq(onnxfuse_passes_input(passes, 0)->name, "x");
    cr_expect_str_eq(onnxfuse_passes_output(passes, 0)->name, "y");
    cr_expect_null(onnxfuse_passes_input(passes, 3));
    cr_expect_null(onnxfuse_passes_output(passes, 1));
    cr_expect_null(onnxfuse_passes_weight(passes, 0));
    OnnxfuseValue *input = tensor_of(ROWS_APART, 4, x), *y = NULL, *gradients[3] = {0};
    const OnnxfuseValue *inputs[3] = {input, onnxfuse_passes_weight(passes, 1), onnxfuse_passes_weight(passes, 2)};
    cr_expect_str_eq(onnxfuse_passes_input(passes, 1)->name, "w");
    cr_expect(memcmp(onnxfuse_value_data(inputs[1]), weights, sizeof weights) == 0);
    OnnxfuseSaved *saved = NULL;
    DONE(onnxfuse_passes_forward(passes, inputs, &y, NULL, &saved));
    for (int i = 0; i < 2 * ROWS_APART; i++)
        dy[i] = 2 * (((float *)onnxfuse_value_data(y))[i] - t[i]) / (2 * ROWS_APART);
    OnnxfuseValue *seed = tensor_of(ROWS_APART, 2, dy), *wrong = tensor_of(2, ROWS_APART, dy);
    DONE(onnxfuse_passes_backward(saved, (const OnnxfuseValue *const[]){seed}, gradients, NULL));
    cr_expect_geq(onnxfuse_saved_bytes(saved), 2 * ROWS_APART * 4); /* tanh's results, say */
    for (int g = 0; g < 3; g++) {
        int of = onnxfuse_passes_gradient_of(passes, g);
        const float *own = onnxfuse_value_data(gradients[g]);
        if (of == 0) { /* dx = (dy (1 - y^2)) w^T */
            for (int r = 0; r < ROWS_APART; r++)
                for (int c = 0; c < 4; c++) {
                    double sum = 0;
                    for (int k = 0; k < 2; k++) {
                        double value = ((float *)onnxfuse_value_data(y))[2 * r + k];
                        sum += dy[2 * r + k] * (1 - value * value) * weights[2 * c + k];
                    }
                    cr_expect(fabs(own[4 * r + c] - sum) < 1e-6, "dx[%d, %d] is %g, not %g", r, c, own[4 * r + c], sum);
                }
            continue;
        }
        const float *before = onnxfuse_value_data(inputs[of]),
                    *after = onnxfuse_value_data(onnxfuse_training_tensor(training, of - 1));
        for (int64_t i = 0; i < onnxfuse_value_count(inputs[of]); i++)
            cr_expect(fabsf(own[i] - (before[i] - after[i])) < 1e-6f, "gradient %d [%lld] is %g, not %g", g,
                      (long long)i, own[i], before[i] - after[i]);
    }
    /* Once more, into the memory that is there; without a gradient; with one that does not fit. */
    float kept[8];
    int w = onnxfuse_passes_gradient_of(passes, 0) == 1 ? 0 : onnxfuse_passes_gradient_of(passes, 1) == 1 ? 1 : 2;
    memcpy(kept, onnxfuse_value_data(gradients[w]), sizeof kept);
    memset(onnxfuse_value_data(gradients[w]), 0, sizeof kept);
    DONE(onnxfuse_passes_backward(saved, (const OnnxfuseValue *const[]){seed}, gradients, NULL));
    cr_expect(memcmp(kept, onnxfuse_value_data(gradients[w]), sizeof kept) == 0);
    DONE(onnxfuse_passes_backward(saved, (const OnnxfuseValue *const[]){NULL}, gradients, NULL));
    for (int i = 0; i < 8; i++) cr_expect_eq(((float *)onnxfuse_value_data(gradients[w]))[i], 0);
    OnnxfuseStatus status = onnxfuse_passes_backward(saved, (const OnnxfuseValue *const[]){wrong}, gradients, NULL);
    cr_assert(status && strstr(onnxfuse_status_message(status), "output \"y\" has another shape"), "%s",
              onnxfuse_status_message(status));
    onnxfuse_status_free(status);
    onnxfuse_saved_free(saved);
    for (int i = 0; i < 3; i++) onnxfuse_value_free(gradients[i]);
    onnxfuse_value_free(seed);
    onnxfuse_value_free(wrong);
    onnxfuse_value_free(y);
    onnxfuse_value_free(input);
    onnxfuse_passes_close(passes);
    onnxfuse_training_close(training);
}

Test(training, several_forward_passes_wait_with_their_own_masks, .init = make_folder, .fini = remove_folder) {
    static const char dropout[] = "opset 17\ngraph (x: f32[n, 64]) -> (y, z) {\n  ratio = constant f32[] 0.5\n"
                                  "  d = onnx Dropout@17 x, ratio # from drop\n  e = onnx Exp@17 d # from e\n"
                                  "  y = onnx Mul@17 e, d # from y\n  z = onnx Shape@17 x\n}\n";
    enum { WAITING = 4, ELEMENTS = 3 * 64 };
    OnnxfusePasses *passes = open_passes(model_of("dropout.onnx", dropout), "{}");
    float x[ELEMENTS], dy[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) x[i] = (float)(i % 7 + 1) / 8, dy[i] = (float)(i % 5 - 2);
    OnnxfuseValue *input = tensor_of(3, 64, x), *seed = tensor_of(3, 64, dy), *outputs[WAITING][2] = {0};
    OnnxfuseSaved *saved[WAITING];
    for (int i = 0; i < WAITING; i++)
        DONE(onnxfuse_passes_forward(passes, (const OnnxfuseValue *const[]){input}, outputs[i], NULL, &saved[i]));
    cr_expect(memcmp(onnxfuse_value_data(outputs[0][0]), onnxfuse_value_data(outputs[1][0]), sizeof x) != 0,
              "two masks are one");
    int64_t bytes = onnxfuse_saved_bytes(saved[0]); /* beside one tensor, the number that the mask is drawn with */
    cr_expect_leq(bytes, (int64_t)sizeof x + 8, "%lld bytes are handed over", (long long)bytes);
    onnxfuse_saved_free(saved[2]); /* no backward pass */
    for (int i = WAITING - 1; i >= 0; i--) {
        if (i == 2) continue;
        OnnxfuseValue *dx = NULL;
        DONE(onnxfuse_passes_backward(saved[i], (const OnnxfuseValue *const[]){seed, NULL}, &dx, NULL));
        for (int k = 0; k < ELEMENTS; k++) {
            float value = ((float *)onnxfuse_value_data(outputs[i][0]))[k], d = value != 0 ? 2 * x[k] : 0;
            float want = value != 0 ? dy[k] * 2 * expf(d) * (1 + d) : 0, got = ((float *)onnxfuse_value_data(dx))[k];
            cr_assert(fabsf(got - want) <= 1e-4f * fabsf(want), "pass %d: dx[%d] is %g, not %g", i, k, got, want);
        }
        onnxfuse_value_free(dx);
        onnxfuse_saved_free(saved[i]);
    }
    for (int i = 0; i < WAITING; i++)
        for (int o = 0; o < 2; o++) onnxfuse_value_free(outputs[i][o]);
    onnxfuse_value_free(input);
    onnxfuse_value_free(seed);
    onnxfuse_passes_close(passes);
}

/* Rows x, x p0, (x + x p0) p1: each iteration reads all before it, and an element of a sequence from outside. */
Test(training, sequences_of_a_loop_cross_between_passes, .init = make_folder, .fini = remove_folder) {
    static const char rows[] =
        "opset 17\ngraph (x: f32[1, 2], p: f32[2, 2]) -> (y) {\n  n = constant i64[] 2\n  one = constant i64[] 1\n"
        "  q0 = onnx SequenceConstruct@17 x\n  s = onnx SplitToSequence@17 p, one {axis = 0}\n"
        "  q = onnx Loop@17 n, _, q0, s captures 1 graph \"body\" (i: i64[], c: bool[], v: seq(f32[*]), s: "
        "seq(f32[*])) -> (c, u) {\n    axes = constant i64[1] {0}\n    h = onnx ConcatFromSequence@17 v {axis = 0}\n"
        "    m = onnx ReduceSum@17 h, axes {keepdims = 1}\n    e = onnx SequenceAt@17 s, i\n    f = onnx Mul@17 m, e\n"
        "    u = onnx SequenceInsert@17 v, f\n  }\n  y = onnx ConcatFromSequence@17 q {axis = 0}\n}\n";
    float x[] = {2, -3}, p[] = {5, 7, 0.5f, -1}, dy[] = {1, 1, 1, 1, 1, 1};
    OnnxfusePasses *passes = open_passes(model_of("rows.onnx", rows), "{}");
    OnnxfuseValue *inputs[] = {tensor_of(1, 2, x), tensor_of(2, 2, p)}, *seed = tensor_of(3, 2, dy), *y = NULL,
                  *gradients[2] = {0};
    OnnxfuseSaved *saved;
    DONE(onnxfuse_passes_forward(passes, (const OnnxfuseValue *const *)inputs, &y, NULL, &saved));
    DONE(onnxfuse_passes_backward(saved, (const OnnxfuseValue *const[]){seed}, gradients, NULL));
    for (int k = 0; k < 2; k++) {
        const float p0 = p[k], p1 = p[2 + k], *dx = onnxfuse_value_data(gradients[0]),
                    *dp = onnxfuse_value_data(gradients[1]);
        cr_expect_eq(((float *)onnxfuse_value_data(y))[4 + k], (x[k] + x[k] * p0) * p1);
        cr_expect_eq(dx[k], 1 + p0 + (1 + p0) * p1, "dx[%d] is %g", k, dx[k]);
        cr_expect_eq(dp[k], x[k] + x[k] * p1, "dp[0, %d] is %g", k, dp[k]);
        cr_expect_eq(dp[2 + k], x[k] + x[k] * p0, "dp[1, %d] is %g", k, dp[2 + k]);
    }
    for (int i = 0; i < 2; i++) {
        onnxfuse_value_free(inputs[i]);
        onnxfuse_value_free(gradients[i]);
    }
    onnxfuse_value_free(y);
    onnxfuse_value_free(seed);
    onnxfuse_saved_free(saved);
    onnxfuse_passes_close(passes);
}

/* x^2 p0 p1: the first of two iterations finds nothing to multiply with. */
Test(training, optionals_of_a_loop_cross_between_passes, .init = make_folder, .fini = remove_folder) {
    static const char twice[] =
        "opset 18\ngraph (x: f32[1, 2], p: f32[2, 1, 2]) -> (y) {\n  o = onnx Optional@18 {type = 1}\n"
        "  n = constant i64[] 2\n"
        "  q = onnx Loop@18 n, _, o, x, p captures 2 graph \"body\" (i: i64[], c: bool[], v: opt(f32[1, 2]), x: f32[1, "
        "2], p: f32[2, 1, 2]) -> (c, u) {\n    e = onnx Gather@18 p, i\n    h = onnx OptionalHasElement@18 v\n"
        "    m = onnx If@18 h, v captures 1 graph \"then\" (v: opt(f32[1, 2])) -> (t) {\n"
        "      t = onnx OptionalGetElement@18 v\n    } graph \"else\" (v: opt(f32[1, 2])) -> (t) {\n"
        "      t = constant f32[1, 2] {1, 1}\n    }\n    f = onnx Mul@18 m, e\n    g = onnx Mul@18 f, x\n"
        "    u = onnx Optional@18 g\n  }\n  y = onnx OptionalGetElement@18 q\n}\n";
    float x[] = {2, -3}, p[] = {5, 7, 0.5f, -1}, dy[] = {1, 1};
    OnnxfusePasses *passes = open_passes(model_of("twice.onnx", twice), "{}");
    OnnxfuseValue *inputs[] = {tensor_of(1, 2, x), NULL}, *seed = tensor_of(1, 2, dy), *y = NULL, *gradients[2] = {0};
    OnnxfuseSaved *saved;
    DONE(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 3, (const int64_t[]){2, 1, 2}, p, &inputs[1]));
    DONE(onnxfuse_passes_forward(passes, (const OnnxfuseValue *const *)inputs, &y, NULL, &saved));
    DONE(onnxfuse_passes_backward(saved, (const OnnxfuseValue *const[]){seed}, gradients, NULL));
    for (int k = 0; k < 2; k++) {
        const float p0 = p[k], p1 = p[2 + k], *dx = onnxfuse_value_data(gradients[0]),
                    *dp = onnxfuse_value_data(gradients[1]);
        cr_expect_eq(((float *)onnxfuse_value_data(y))[k], x[k] * x[k] * p0 * p1);
        cr_expect_eq(dx[k], 2 * x[k] * p0 * p1, "dx[%d] is %g", k, dx[k]);
        cr_expect_eq(dp[k], x[k] * x[k] * p1, "dp[0, %d] is %g", k, dp[k]);
        cr_expect_eq(dp[2 + k], x[k] * x[k] * p0, "dp[1, %d] is %g", k, dp[2 + k]);
    }
    for (int i = 0; i < 2; i++) {
        onnxfuse_value_free(inputs[i]);
        onnxfuse_value_free(gradients[i]);
    }
    onnxfuse_value_free(y);
    onnxfuse_value_free(seed);
    onnxfuse_saved_free(saved);
    onnxfuse_passes_close(passes);
}

Test(training, says_what_is_wrong, .init = make_folder, .fini = remove_folder) {
    const char *path = model_of("net.onnx", net), *plain = model_of("linear.onnx", linear);
    expect_refused(path, "{\"training\": {\"loss\": \"score\"}}", ONNXFUSE_USAGE, "the model has no value \"score\"");
    expect_refused(path, "{}", ONNXFUSE_USAGE, "\"scores\" is no single number");
    expect_refused(path, "{\"training\": {\"loss\": \"mse:q,t\"}}", ONNXFUSE_USAGE, "the model has no value \"q\"");
    expect_refused(path, "{\"training\": {\"loss\": \"mse:scores,t\", \"of\": [\"weight*\"]}}", ONNXFUSE_USAGE,
                   "is called \"weight*\"");
    expect_refused(plain, "{\"training\": {\"of\": [\"w\", \"v*\"]}}", ONNXFUSE_USAGE, "is called \"v*\"");
    const char *pair = model_of("pair.onnx", "opset 17\ngraph (x: f32[n, 3], z: f32[n, 4], r: f32[3]) -> (y) {\n"
                                             " w = constant f32[3, 3] {1, 2, 3, 4, 5, 6, 7, 8, 9}\n"
                                             " y = onnx MatMul@17 x, w\n u = onnx Neg@17 z\n v = onnx Neg@17 r\n}\n");
    expect_refused(pair, "{\"training\": {\"loss\": \"mse:y,z\"}}", ONNXFUSE_USAGE,
                   "training.loss: mse of tensors of different shapes, \"y\" f32[n, 3] and \"z\" f32[n, 4]");
    expect_refused(pair, "{\"training\": {\"loss\": \"mse:y,r\"}}", ONNXFUSE_USAGE, "\"y\" f32[n, 3] and \"r\" f32[3]");
    expect_refused(plain, "{\"training\": {\"schedule\": \"cosine\", \"warmup_steps\": 5, \"steps\": 5}}",
                   ONNXFUSE_USAGE, "must be more than training.warmup_steps (5)");
    expect_refused(plain, "{\"training\": {\"accumulation\": 0}}", ONNXFUSE_INVALID, "training.accumulation");
    expect_refused(plain, "{\"training\": {\"of\": [\"x\"]}}", ONNXFUSE_USAGE, "is called \"x\"");
    expect_refused(
        model_of("two.onnx", "opset 17\ngraph (x: f32[3]) -> (y, z) {\n y = onnx Neg@17 x\n z = onnx Abs@17 x\n}\n"),
        "{}", ONNXFUSE_USAGE, "training.loss is missing, and the model has 2 outputs");
    expect_refused(model_of("old.onnx", "opset 9\ngraph (x: f32[3, 2]) -> (y) {\n y = onnx Neg@9 x\n}\n"),
                   "{\"training\": {\"loss\": \"cross_entropy:y,l\"}}", ONNXFUSE_UNSUPPORTED,
                   "needs version 12 of the operator set");
    expect_refused(model_of("argmax.onnx", "opset 17\ngraph (x: f32[3, 2]) -> (y) {\n w = constant f32[2, 2] {1, 2, 3, "
                                           "4}\n p = onnx MatMul@17 x, w # from p\n i = onnx NonZero@17 p # from nz\n"
                                           " f = onnx Cast@17 p {to = f16}\n g = onnx Cast@17 f {to = f32}\n y = onnx "
                                           "ReduceSum@17 g {keepdims = 0}\n}\n"),
                   "{\"training\": {\"of\": [\"nothing\"]}}", ONNXFUSE_USAGE, "is called \"nothing\"");
}
