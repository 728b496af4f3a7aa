/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions under several threads: opened at once with a cold kernel cache, run at once, opened and closed while others
 * run. A plain program, so that ThreadSanitizer can watch it; it also checks every result. An argument names the
 * device. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "onnxfuse.h"

enum { THREADS = 4, RUNS = 20, SETS = 3 };

typedef struct Model {
    const char *folder;
    int input_count;
} Model;

static const Model models[] = {{"tests/models/classifier", 1}, {"tests/models/loop", 2}};
enum { MODEL_COUNT = sizeof models / sizeof *models, MOST_INPUTS = 2 };

typedef struct DataSet {
    OnnxfuseValue *inputs[MOST_INPUTS], *expected;
} DataSet;

static DataSet data[MODEL_COUNT][SETS];
static atomic_int failures;
static const char *device = "cpu";

static void fail(const char *what, const char *why) {
    fprintf(stderr, "FAIL  %s: %s\n", what, why);
    atomic_fetch_add(&failures, 1);
}

static bool succeeds(const char *what, OnnxfuseStatus status) {
    if (!status) return true;
    fail(what, onnxfuse_status_message(status));
    onnxfuse_status_free(status);
    return false;
}

static OnnxfuseValue *read_value(const Model *model, int set, const char *name) {
    char path[256], bytes[1 << 16];
    snprintf(path, sizeof path, "%s/test_data_set_%d/%s.pb", model->folder, set, name);
    FILE *file = fopen(path, "rb");
    OnnxfuseValue *value = NULL;
    if (!file) {
        fail(path, "cannot be read");
        exit(1);
    }
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    if (!succeeds(path, onnxfuse_value_from_proto(ONNXFUSE_PROTO_TENSOR, bytes, size, &value, NULL))) exit(1);
    return value;
}

static void read_data(void) {
    for (int m = 0; m < MODEL_COUNT; m++)
        for (int s = 0; s < SETS; s++) {
            for (int i = 0; i < models[m].input_count; i++) {
                char name[24];
                snprintf(name, sizeof name, "input_%d", i);
                data[m][s].inputs[i] = read_value(&models[m], s, name);
            }
            data[m][s].expected = read_value(&models[m], s, "output_0");
        }
}

static void free_data(void) {
    for (int m = 0; m < MODEL_COUNT; m++)
        for (int s = 0; s < SETS; s++) {
            for (int i = 0; i < models[m].input_count; i++) onnxfuse_value_free(data[m][s].inputs[i]);
            onnxfuse_value_free(data[m][s].expected);
        }
}

static bool is_close(const OnnxfuseValue *got, const OnnxfuseValue *expected) {
    if (onnxfuse_value_count(got) != onnxfuse_value_count(expected)) return false;
    for (int64_t i = 0; i < onnxfuse_value_count(got); i++) {
        double difference = onnxfuse_value_element(got, i) - onnxfuse_value_element(expected, i);
        if (!(difference <= 1e-5 && difference >= -1e-5)) return false;
    }
    return true;
}

static void run_one(OnnxfuseSession *session, int model, int set) {
    const DataSet *d = &data[model][set];
    OnnxfuseValue *output = NULL;
    if (!succeeds(models[model].folder,
                  onnxfuse_session_run(session, (const OnnxfuseValue *const *)d->inputs, &output)))
        return;
    if (!is_close(output, d->expected)) fail(models[model].folder, "a result is wrong");
    onnxfuse_value_free(output);
}

static OnnxfuseSession *open_model(int model, int threads) {
    char path[256];
    snprintf(path, sizeof path, "%s/model.onnx", models[model].folder);
    OnnxfuseOptions options = {.threads = threads, .device = device};
    OnnxfuseSession *session = NULL;
    succeeds(path, onnxfuse_session_open(path, &options, &session));
    return session;
}

typedef struct Work {
    int number;
    OnnxfuseSession *shared[MODEL_COUNT]; /* NULL: each opens its own */
} Work;

static void *use_shared(void *given) {
    const Work *work = given;
    for (int r = 0; r < RUNS; r++) {
        int model = (r + work->number) % MODEL_COUNT;
        run_one(work->shared[model], model, (r + work->number) % SETS);
    }
    return NULL;
}

static void *use_own(void *given) {
    const Work *work = given;
    for (int r = 0; r < RUNS / 4; r++) {
        int model = (r + work->number) % MODEL_COUNT;
        OnnxfuseSession *session = open_model(model, 1 + (r + work->number) % 3);
        for (int s = 0; session && s < SETS; s++) run_one(session, model, s);
        onnxfuse_session_close(session);
    }
    return NULL;
}

static void run_threads(void *(*body)(void *), const Work *common) {
    pthread_t threads[THREADS];
    Work works[THREADS];
    for (int t = 0; t < THREADS; t++) {
        works[t] = *common;
        works[t].number = t;
        if (pthread_create(&threads[t], NULL, body, &works[t])) exit(1);
    }
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
}

/* One thread runs a shared session while others open and close theirs. */
static void *use_either(void *given) {
    const Work *work = given;
    return work->number % 2 ? use_own(given) : use_shared(given);
}

/* A machine without the device has nothing to test: a property of the test in CMake says the code to ctest. */
enum { SKIPPED = 77 };
static bool is_missing(void) {
    OnnxfuseOptions options = {.device = device};
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = onnxfuse_session_open("tests/models/classifier/model.onnx", &options, &session);
    bool missing = status && onnxfuse_status_code(status) == ONNXFUSE_USAGE;
    if (missing) printf("skipped: %s\n", onnxfuse_status_message(status));
    onnxfuse_status_free(status);
    onnxfuse_session_close(session);
    return missing;
}

int main(int count, char **arguments) {
    char cache[] = "/tmp/onnxfuse-test-XXXXXX", remove[64];
    if (count > 1) {
        device = arguments[1];
        if (is_missing()) return SKIPPED;
    }
    if (!mkdtemp(cache)) return 1;
    setenv("XDG_CACHE_HOME", cache, 1);
    read_data();
    Work work = {0};
    run_threads(use_own, &work); /* the cache is cold */
    for (int m = 0; m < MODEL_COUNT; m++)
        if (!(work.shared[m] = open_model(m, 2))) return 1;
    run_threads(use_shared, &work);
    run_threads(use_either, &work);
    for (int m = 0; m < MODEL_COUNT; m++) onnxfuse_session_close(work.shared[m]);
    free_data();
    snprintf(remove, sizeof remove, "rm -rf '%s'", cache);
    if (system(remove)) fail(cache, "cannot be removed");
    printf("%d passed, %d failed\n", atomic_load(&failures) ? 0 : 3, atomic_load(&failures));
    return atomic_load(&failures) ? 1 : 0;
}
