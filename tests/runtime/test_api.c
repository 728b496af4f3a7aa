/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of onnxfuse.h that have no other test: runs that are ended from within and by a signal, what a call tells a
 * custom operator, where the log goes, texts about devices and stages. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models.h"

static const char apart[] = "{\"cache\": {\"enable\": false}, \"fusion\": {\"enable\": false}}";

static void expect_code(OnnxfuseStatus status, OnnxfuseCode code, const char *part, const char *what) {
    cr_expect_eq(onnxfuse_status_code(status), code, "%s: %s", what, onnxfuse_status_message(status));
    cr_expect(strstr(onnxfuse_status_message(status), part), "%s: %s", what, onnxfuse_status_message(status));
    onnxfuse_status_free(status);
}

/* --- ending runs: no step is begun after the call ------------------------------------------------------------------- */
enum { CHAIN = 30 };

static OnnxfuseSession *open_chain(void) {
    char text[CHAIN * 40 + 200], *at = text;
    at += sprintf(at, "graph (v0: f32[n]) -> (v%d) {\n", CHAIN);
    for (int i = 1; i <= CHAIN; i++) at += sprintf(at, "v%d = onnx %s@21 v%d\n", i, i % 2 ? "Exp" : "Neg", i - 1);
    sprintf(at, "}\n");
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_text(text, &(OnnxfuseOptions){.policy_json = apart, .threads = 2}, &session);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    return session;
}

static OnnxfuseCancel *signalled;

static void on_signal(int number) {
    (void)number;
    onnxfuse_cancel(signalled);
}

typedef struct Watcher {
    OnnxfuseCancel *cancel;
    int seen, cancel_at; /* values; 0: never */
    bool by_signal;
} Watcher;

static OnnxfuseStatus watch(void *user, const char *name, const char *node, const OnnxfuseValue *value) {
    Watcher *w = user;
    (void)name, (void)node, (void)value;
    if (++w->seen != w->cancel_at) return NULL;
    if (w->by_signal)
        raise(SIGUSR1);
    else
        onnxfuse_cancel(w->cancel);
    return NULL;
}

static OnnxfuseStatus run_chain(OnnxfuseSession *session, Watcher *w, OnnxfuseValue **out) {
    OnnxfuseValue *x = NULL;
    int64_t n = 5000;
    cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 1, &n, NULL, &x));
    OnnxfuseRunOptions options = {.size = sizeof options, .cancel = w->cancel, .observe = watch, .observe_user = w};
    *out = NULL;
    OnnxfuseStatus status = onnxfuse_session_run_with(session, (const OnnxfuseValue *const[]){x}, out, &options);
    onnxfuse_value_free(x);
    return status;
}

Test(api, a_cancelled_run_begins_no_further_step) {
    OnnxfuseSession *session = open_chain();
    OnnxfuseValue *out;
    Watcher all = {0};
    cr_assert_null(onnxfuse_cancel_create(&all.cancel));
    cr_assert_null(run_chain(session, &all, &out));
    cr_expect_geq(all.seen, CHAIN);
    onnxfuse_value_free(out);
    signalled = all.cancel;
    signal(SIGUSR1, on_signal);
    for (int by_signal = 0; by_signal < 2; by_signal++)
        for (int at = 1; at < CHAIN; at += 7) {
            Watcher w = {.cancel = all.cancel, .cancel_at = at, .by_signal = by_signal};
            expect_code(run_chain(session, &w, &out), ONNXFUSE_CANCELLED, "cancelled", "in the middle");
            cr_expect_eq(w.seen, at, "%d steps after the call", w.seen - at);
            cr_expect_null(out);
            w.seen = 0;
            expect_code(run_chain(session, &w, &out), ONNXFUSE_CANCELLED, "cancelled", "begun later");
            cr_expect_eq(w.seen, 0);
            onnxfuse_cancel_reset(w.cancel);
            w.cancel_at = 0;
            cr_expect_null(run_chain(session, &w, &out), "the session is as before");
            cr_expect_eq(w.seen, all.seen);
            onnxfuse_value_free(out);
        }
    signal(SIGUSR1, SIG_DFL);
    onnxfuse_cancel_free(all.cancel);
    onnxfuse_cancel_free(NULL);
    onnxfuse_session_close(session);
}

/* --- what a call tells an operator -------------------------------------------------------------------------------- */
/* "ok", or the first promise that does not hold. */
typedef struct Told {
    const char *infer, *compute;
} Told;

#define HOLDS(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) return #condition;                                                                           \
    } while (0)

static const char *attributes_hold(const OnnxfuseCall *call) {
    int64_t number = 77;
    double real = 77;
    int count = 77;
    HOLDS(onnxfuse_call_int(call, "i", &number) && number == INT64_C(-9007199254740993));
    HOLDS(onnxfuse_call_float(call, "f", &real) && real == 0.25);
    HOLDS(strcmp(onnxfuse_call_string(call, "s"), "text") == 0);
    const int64_t *ints = onnxfuse_call_ints(call, "is", &count);
    HOLDS(ints && count == 3 && ints[0] == 1 && ints[2] == -3);
    const float *floats = onnxfuse_call_floats(call, "fs", &count);
    HOLDS(floats && count == 2 && floats[0] == 0.5f && floats[1] == -2);
    /* of another name, or another type */
    number = 77, real = 77;
    HOLDS(!onnxfuse_call_int(call, "j", &number) && !onnxfuse_call_int(call, "f", &number) && number == 77);
    HOLDS(!onnxfuse_call_float(call, "i", &real) && !onnxfuse_call_float(call, "none", &real) && real == 77);
    HOLDS(!onnxfuse_call_string(call, "i") && !onnxfuse_call_string(call, "none"));
    HOLDS(!onnxfuse_call_ints(call, "fs", &count) && !onnxfuse_call_ints(call, "none", &count));
    HOLDS(!onnxfuse_call_floats(call, "is", &count) && !onnxfuse_call_floats(call, "none", &count));
    HOLDS(onnxfuse_call_input_count(call) == 4);
    HOLDS(onnxfuse_call_output_count(call) == 3);
    HOLDS(!onnxfuse_call_input(call, 1)); /* left out */
    return NULL;
}

static const char *memory_holds(OnnxfuseCall *call) {
    for (size_t bytes = 1; bytes < 100000; bytes *= 7) {
        const unsigned char *scratch = onnxfuse_call_scratch(call, bytes);
        HOLDS(scratch && (uintptr_t)scratch % 64 == 0);
        for (size_t i = 0; i < bytes; i++) HOLDS(scratch[i] == 0);
        memset(onnxfuse_call_scratch(call, bytes), 0xAA, bytes); /* is not what comes next */
    }
    return NULL;
}

static const char *types_hold(OnnxfuseCall *call) {
    int64_t size = 77;
    OnnxfuseDim n = onnxfuse_call_input_dim(call, 0, 0), three = onnxfuse_call_input_dim(call, 0, 1);
    HOLDS(onnxfuse_call_input_dtype(call, 0) == ONNXFUSE_FLOAT32 && onnxfuse_call_input_rank(call, 0) == 2);
    HOLDS(onnxfuse_call_input_dtype(call, 1) == ONNXFUSE_NONE && onnxfuse_call_input_rank(call, 1) == -1);
    HOLDS(!onnxfuse_call_input(call, 0) && onnxfuse_call_input(call, 3)); /* a constant is there in infer */
    HOLDS(onnxfuse_value_element(onnxfuse_call_input(call, 3), 1) == 8);
    HOLDS(!onnxfuse_dim_value(n, &size) && size == 77);
    HOLDS(onnxfuse_dim_value(three, &size) && size == 3);
    HOLDS(three == onnxfuse_call_input_dim(call, 0, -1) && three == onnxfuse_call_dim(call, 3));
    HOLDS(n == onnxfuse_call_input_dim(call, 2, 0)); /* equal sizes are equal pointers */
    static const struct {
        OnnxfuseDimOperation operation;
        int64_t result; /* of 7 and 3 */
    } rows[] = {{ONNXFUSE_DIM_ADD, 10}, {ONNXFUSE_DIM_SUB, 4}, {ONNXFUSE_DIM_MUL, 21},
                {ONNXFUSE_DIM_DIV, 2},  {ONNXFUSE_DIM_MIN, 3}, {ONNXFUSE_DIM_MAX, 7}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        OnnxfuseDim made = onnxfuse_call_dim_of(call, rows[i].operation, onnxfuse_call_dim(call, 7), three);
        HOLDS(onnxfuse_dim_value(made, &size) && size == rows[i].result);
        HOLDS(!onnxfuse_call_dim_of(call, rows[i].operation, NULL, three));
        HOLDS(!onnxfuse_call_dim_of(call, rows[i].operation, three, NULL));
    }
    return NULL;
}

static OnnxfuseStatus infer_told(void *user, OnnxfuseCall *call) {
    Told *told = user;
    told->infer = attributes_hold(call);
    if (!told->infer) told->infer = types_hold(call);
    if (!told->infer) told->infer = memory_holds(call);
    if (!told->infer) told->infer = "ok";
    OnnxfuseDim dims[] = {onnxfuse_call_input_dim(call, 0, 0), onnxfuse_call_input_dim(call, 0, 1)};
    OnnxfuseStatus status = onnxfuse_call_set_type(call, 0, ONNXFUSE_FLOAT32, 2, dims);
    for (int i = 1; i < 3 && !status; i++) status = onnxfuse_call_set_type(call, i, ONNXFUSE_FLOAT32, 2, dims);
    return status;
}

static OnnxfuseStatus compute_told(void *user, OnnxfuseCall *call) {
    Told *told = user;
    void *y, *left_out = told, *u;
    const OnnxfuseValue *x = onnxfuse_call_input(call, 0);
    told->compute = attributes_hold(call);
    if (!told->compute) told->compute = memory_holds(call);
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, 2, onnxfuse_value_dims(x), &y);
    if (!status) status = onnxfuse_call_output(call, 1, 2, onnxfuse_value_dims(x), &left_out);
    if (!status) status = onnxfuse_call_output(call, 2, 2, onnxfuse_value_dims(x), &u);
    if (status) return status;
    if (!told->compute) told->compute = left_out ? "NULL where the node leaves the output out" : "ok";
    memcpy(y, onnxfuse_value_data(x), onnxfuse_value_bytes(x));
    return NULL;
}

Test(api, a_call_tells_its_node) {
    static Told told;
    const OnnxfuseOperator op = {.size = sizeof op,
                                 .domain = "test",
                                 .name = "Told",
                                 .since = 1,
                                 .infer = infer_told,
                                 .compute = compute_told,
                                 .user = &told};
    OnnxfuseRegistry *registry = NULL;
    OnnxfuseSession *session = NULL;
    cr_assert_null(onnxfuse_registry_create(&registry));
    cr_assert_null(onnxfuse_registry_add_operator(registry, &op));
    OnnxfuseOptions options = {.size = sizeof options, .policy_json = apart, .registry = registry};
    OnnxfuseStatus status = open_text(
        "opset 21\nopset \"test\" 1\ngraph (x: f32[n, 3], z: f32[n]) -> (y) {\nk = constant i64[2] {7, 8}\n"
        "y, _, u = onnx \"test\" Told@1 x, _, z, k {i = -9007199254740993, f = 0.25, s = \"text\", is = [1, 2, -3], "
        "fs = [0.5, -2.0]}\n}\n",
        &options, &session);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    char *wrong = run_and_compare(session, (const char *const[]){"f32[1, 3] {1, 2, 3}", "f32[1] {1}"},
                                  (const char *const[]){"f32[1, 3] {1, 2, 3}"});
    cr_expect_null(wrong, "%s", wrong);
    cr_expect_str_eq(told.infer, "ok");
    cr_expect_str_eq(told.compute, "ok");
    free(wrong);
    onnxfuse_session_close(session);
    onnxfuse_registry_free(registry);
    onnxfuse_registry_free(NULL);
}

/* --- the log -------------------------------------------------------------------------------------------------------- */
typedef struct Lines {
    int of_level[8], others;
    bool passes;
} Lines;

static void collect(void *user, int level, const char *message) {
    Lines *lines = user;
    if (level >= 1 && level < 8)
        lines->of_level[level]++;
    else
        lines->others++;
    lines->passes |= strstr(message, "pass partition: ") != NULL;
}

static void open_and_run(void) {
    OnnxfuseSession *session = must_open("graph (x: f32[n]) -> (y) {\ny = onnx Exp@21 x\n}\n");
    char *wrong = run_and_compare(session, (const char *const[]){"f32[1] {0}"}, (const char *const[]){"f32[1] {1}"});
    cr_expect_null(wrong, "%s", wrong);
    free(wrong);
    onnxfuse_session_close(session);
}

/* The level overrides the environment's; a sink gets all lines of it, and standard error none. */
Test(api, the_log_goes_where_it_is_told_to) {
    setenv("ONNXFUSE_DEBUG", "3", 1);
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    cr_assert(file && kept >= 0);
    dup2(fileno(file), STDERR_FILENO);
    Lines lines[4] = {0};
    for (int level = 0; level < 4; level++) {
        onnxfuse_log(level, collect, &lines[level]);
        open_and_run();
    }
    long by_sink = ftell(file);
    fseek(file, 0, SEEK_END);
    by_sink = ftell(file);
    onnxfuse_log(1, NULL, NULL);
    open_and_run();
    fseek(file, 0, SEEK_END);
    long by_default = ftell(file);
    onnxfuse_log(0, NULL, NULL);
    open_and_run();
    fseek(file, 0, SEEK_END);
    long silent = ftell(file) - by_default;
    dup2(kept, STDERR_FILENO);
    close(kept);
    fclose(file);
    cr_expect_eq(by_sink, 0, "%ld bytes on standard error beside the sink", by_sink);
    cr_expect_gt(by_default, 0);
    cr_expect_eq(silent, 0);
    for (int level = 0; level < 4; level++) {
        cr_expect_eq(lines[level].passes, level >= 1, "level %d", level);
        cr_expect_eq(lines[level].others, 0);
        for (int i = 1; i < 4; i++)
            cr_expect(i <= level ? lines[level].of_level[i] > 0 : lines[level].of_level[i] == 0,
                      "level %d: %d lines of level %d", level, lines[level].of_level[i], i);
    }
}

/* --- texts ---------------------------------------------------------------------------------------------------------- */
Test(api, a_line_a_device) {
    char *text = NULL;
    cr_assert_null(onnxfuse_devices(&text));
    static const char *const names[] = {"cpu", "cuda", "opencl"};
    int lines = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        bool known = false;
        for (int i = 0; i < 3; i++) known |= strncmp(line, names[i], strlen(names[i])) == 0;
        cr_expect(known, "%s", line);
        cr_assert(strchr(line, '\n'));
        lines++;
    }
    cr_expect_geq(lines, 3);
    onnxfuse_free(text);
    onnxfuse_free(NULL);
}

Test(api, operators_by_version) {
    static const struct {
        const char *domain, *name;
        int opset;
        bool there;
    } rows[] = {
        {"", "Gelu", 20, true},         {"", "Gelu", 19, false},           {"", "Gelu", 21, true},
        {"", "Upsample", 9, true},      {"", "Upsample", 11, false},       {"", "NoSuch", 21, false},
        {"no.such", "Gelu", 20, false}, {"ai.onnx.ml", "Scaler", 3, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(onnxfuse_has_operator(rows[i].domain, rows[i].name, rows[i].opset), rows[i].there, "%s.%s in %d",
                     rows[i].domain, rows[i].name, rows[i].opset);
}

Test(api, optimizing_refuses_structures_that_it_does_not_know) {
    char *report = (char *)(uintptr_t) "untouched", *before = report;
    OnnxfuseOptimizeOptions options = {.size = sizeof options + 8};
    expect_code(onnxfuse_optimize("tests/models/classifier/model.onnx", "/nowhere/out.onnx", &options, &report),
                ONNXFUSE_USAGE, "OnnxfuseOptimizeOptions", "a newer structure");
    cr_expect_eq(report, before);
    expect_code(onnxfuse_optimize("tests/models/classifier/model.onnx", "/nowhere/out.onnx", NULL, &report),
                ONNXFUSE_INVALID, "/nowhere/out.onnx", "a folder that is not there");
    cr_expect_eq(report, before);
}

/* --- structures and owners ------------------------------------------------------------------------------------------- */
Test(api, structures_of_a_later_version_are_refused) {
    OnnxfuseSession *session = open_chain(), *other = NULL;
    OnnxfuseOptions options = {.size = sizeof options + 8};
    OnnxfuseThreadPool pool = {.size = sizeof pool + 8};
    OnnxfuseAllocator allocator = {.size = sizeof allocator + 8};
    OnnxfuseRunOptions run = {.size = sizeof run + 8};
    const OnnxfuseValue *in = NULL;
    OnnxfuseValue *out = NULL;
    expect_code(onnxfuse_session_open("tests/models/classifier/model.onnx", &options, &other), ONNXFUSE_USAGE, "bytes",
                "options");
    options = (OnnxfuseOptions){.size = sizeof options, .thread_pool = &pool};
    expect_code(onnxfuse_session_open("tests/models/classifier/model.onnx", &options, &other), ONNXFUSE_USAGE, "",
                "a pool");
    expect_code(onnxfuse_set_allocator(&allocator), ONNXFUSE_USAGE, "", "an allocator");
    expect_code(onnxfuse_session_run_with(session, &in, &out, &run), ONNXFUSE_USAGE, "bytes", "options of a run");
    onnxfuse_session_close(session);
}

/* Whatever was handed to the opening is written over, and the session closed, before what it gave is read. */
Test(api, what_the_program_owns) {
    OnnxfuseSession *session = NULL;
    OnnxfuseOptions options = {.size = sizeof options, .policy_json = strdup(apart)};
    OnnxfuseStatus status = open_text("graph (x: f32[n]) -> (y, x as z, c) {\nc = constant f32[2] {7, 8}\n"
                                      "y = onnx Neg@21 x\n}\n",
                                      &options, &session);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    memset((char *)(uintptr_t)options.policy_json, '!', sizeof apart - 1);
    free((char *)(uintptr_t)options.policy_json);
    memset(&options, 0xff, sizeof options);
    float data[] = {1, 2};
    OnnxfuseValue *x = NULL, *out[3] = {NULL};
    cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 1, (const int64_t[]){2}, data, &x));
    status = onnxfuse_session_run(session, (const OnnxfuseValue *const[]){x}, out);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    onnxfuse_session_close(session);
    onnxfuse_value_free(x);
    data[0] = data[1] = 99;
    static const double expected[3][2] = {{-1, -2}, {1, 2}, {7, 8}};
    for (int o = 0; o < 3; o++) {
        for (int i = 0; i < 2; i++) cr_expect_eq(onnxfuse_value_element(out[o], i), expected[o][i], "output %d", o);
        onnxfuse_value_free(out[o]);
    }
}

static int threads_now(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    cr_assert(folder);
    for (const struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

Test(api, sessions_of_as_many_threads_share_them) {
    static const struct { int threads, more; } rows[] = {{3, 2}, {3, 0}, {5, 4}, {3, 0}, {5, 0}};
    OnnxfuseSession *sessions[5];
    for (int i = 0; i < 5; i++) {
        int before = threads_now();
        OnnxfuseOptions options = {.size = sizeof options, .policy_json = apart, .threads = rows[i].threads};
        OnnxfuseStatus status = open_text("graph (x: f32[2]) -> (y) {\ny = onnx Neg@21 x\n}\n", &options, &sessions[i]);
        cr_assert(!status, "%s", onnxfuse_status_message(status));
        char *problem =
            run_and_compare(sessions[i], (const char *[]){"f32[2] {1, 2}"}, (const char *[]){"f32[2] {-1, -2}"});
        cr_expect(!problem, "%s", problem);
        free(problem);
        cr_expect_eq(threads_now() - before, rows[i].more, "session %d starts %d threads", i, threads_now() - before);
    }
    for (int i = 0; i < 5; i++) onnxfuse_session_close(sessions[i]);
}

/* --- failing calls --------------------------------------------------------------------------------------------------- */
/* What a failing call leaves where its result would be. */
static char untouched;

#define LEAVES(call)                                                                                                   \
    do {                                                                                                               \
        void *out = &untouched;                                                                                        \
        OnnxfuseStatus status = call;                                                                                  \
        cr_expect(status, "%s does not fail", #call);                                                                  \
        cr_expect(!status || *onnxfuse_status_message(status), "%s says nothing", #call);                              \
        cr_expect(out == &untouched, "%s leaves %p", #call, out);                                                      \
        onnxfuse_status_free(status);                                                                                  \
    } while (0)

Test(api, a_failing_call_leaves_its_results_as_they_were) {
    static const char junk[] = "this is no model";
    const int64_t two = 2, negative = -1;
    OnnxfuseValue *sequence = NULL;
    OnnxfuseOptions wrong = {.policy_json = "{"};
    OnnxfuseDlpack dlpack = {.version = {99, 0}};
    cr_assert_null(onnxfuse_value_sequence(NULL, 0, &sequence));
    LEAVES(onnxfuse_value_tensor((OnnxfuseDType)1000, 1, &two, NULL, (OnnxfuseValue **)&out));
    LEAVES(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 1, &negative, NULL, (OnnxfuseValue **)&out));
    LEAVES(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 99, &two, NULL, (OnnxfuseValue **)&out));
    LEAVES(onnxfuse_value_tensor_on_device(ONNXFUSE_FLOAT32, 1, &negative, NULL, (OnnxfuseValue **)&out));
    LEAVES(onnxfuse_value_sequence(NULL, -1, (OnnxfuseValue **)&out));
    LEAVES(onnxfuse_value_from_proto(ONNXFUSE_PROTO_TENSOR, junk, sizeof junk, (OnnxfuseValue **)&out, NULL));
    LEAVES(onnxfuse_value_from_dlpack(&dlpack, (OnnxfuseValue **)&out));
    LEAVES(onnxfuse_value_to_dlpack(sequence, (OnnxfuseDlpack **)&out));
    LEAVES(onnxfuse_session_open("no/such/file", NULL, (OnnxfuseSession **)&out));
    LEAVES(onnxfuse_session_open("tests/models/classifier/model.onnx", &wrong, (OnnxfuseSession **)&out));
    LEAVES(onnxfuse_session_open_memory(junk, sizeof junk, NULL, NULL, (OnnxfuseSession **)&out));
    LEAVES(onnxfuse_compile("no/such/file", NULL, "/nowhere/out", (char **)&out));
    LEAVES(onnxfuse_compile_memory(junk, sizeof junk, NULL, NULL, &out, &(size_t){0}));
    LEAVES(onnxfuse_inspect("no/such/file", NULL, "plan", "text", (char **)&out));
    LEAVES(onnxfuse_inspect("tests/models/classifier/model.onnx", NULL, "no such stage", "text", (char **)&out));
    LEAVES(onnxfuse_inspect("tests/models/classifier/model.onnx", NULL, NULL, NULL, (char **)&out));
    LEAVES(onnxfuse_optimize("no/such/file", "/nowhere/out", NULL, (char **)&out));
    onnxfuse_value_free(sequence);
}
