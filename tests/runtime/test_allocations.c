/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of the public interface fails once: of bulk memory, of small objects, texts and messages, and of JSON.
 * A call then ends with ONNXFUSE_FAULT or, where it can do without, with its result; nothing is lost, and no file is half
 * written. */
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "../base/share.h"
#include "counted_memory.h"
#include "models.h"

/* What all walks go over: a folder with a model, its policy and its weights, and what the model makes of ones. */
typedef struct Scene {
    char folder[64], model[96], policy[96], out[96], data[112];
    void *bytes;
    size_t size;
    OnnxfuseValue *x, *wanted;
} Scene;

static Scene scene;

#define UNLESS(call)                                                                                                   \
    do {                                                                                                               \
        if (!status) status = (call);                                                                                  \
    } while (0)

static void free_text(char **text) {
    onnxfuse_free(*text);
    *text = NULL;
}

static OnnxfuseStatus run_once(OnnxfuseSession *session, const OnnxfuseRunOptions *options) {
    OnnxfuseValue *y = NULL;
    OnnxfuseStatus status = onnxfuse_session_run_with(session, (const OnnxfuseValue *const[]){scene.x}, &y, options);
    cr_expect(!status == !!y, "a run that %s gives %s", status ? "fails" : "succeeds", y ? "a value" : "none");
    if (y && scene.wanted)
        cr_expect(onnxfuse_value_bytes(y) == onnxfuse_value_bytes(scene.wanted) &&
                      memcmp(onnxfuse_value_data(y), onnxfuse_value_data(scene.wanted), onnxfuse_value_bytes(y)) == 0,
                  "another result");
    onnxfuse_value_free(y);
    return status;
}

/* Opens and runs; what has come of the opening is closed. */
static OnnxfuseStatus open_and_run(const OnnxfuseOptions *options, const char *path, const void *bytes, size_t size) {
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = path ? onnxfuse_session_open(path, options, &session)
                                 : onnxfuse_session_open_memory(bytes, size, scene.folder, options, &session);
    cr_expect(!status == !!session);
    UNLESS(run_once(session, NULL));
    onnxfuse_session_close(session);
    return status;
}

static const char quiet[] = "{\"cache\": {\"enable\": false}}";
#define OPTIONS .size = sizeof(OnnxfuseOptions), .threads = 1, .device = "cpu"

/* --- files --- */
static int files_in(const char *folder, char *out_names, size_t room) {
    DIR *directory = opendir(folder);
    int count = 0;
    *out_names = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (*entry->d_name != '.') {
            count++;
            snprintf(out_names + strlen(out_names), room - strlen(out_names), "%s ", entry->d_name);
        }
    closedir(directory);
    return count;
}

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

/* The folder has what it had, and the files of a call that succeeded. */
static void expect_whole(const char *name, OnnxfuseStatus status, int before, bool with_data) {
    char names[1024];
    int count = files_in(scene.folder, names, sizeof names), more = status ? 0 : 1 + with_data;
    cr_expect(count == before + more && is_there(scene.out) == !status &&
                  is_there(scene.data) == (!status && with_data),
              "%s that %s leaves %s", name, status ? "fails" : "succeeds", names);
    unlink(scene.out);
    unlink(scene.data);
}

/* --- the walks --- */
static void hear(void *user, const char *what, double done) { (void)user, (void)what, (void)done; }

static OnnxfuseStatus see(void *user, const char *name, const char *node, const OnnxfuseValue *value) {
    (void)user, (void)name, (void)node, (void)value;
    return NULL;
}

static OnnxfuseStatus walk_session(void) {
    OnnxfuseSession *session = NULL;
    OnnxfuseCancel *cancel = NULL;
    OnnxfuseOptions options = {OPTIONS, .policy_file = scene.policy, .progress = hear};
    char *text = NULL;
    OnnxfuseStatus status = onnxfuse_session_open(scene.model, &options, &session);
    UNLESS(onnxfuse_cancel_create(&cancel));
    OnnxfuseRunOptions run = {.size = sizeof run, .cancel = cancel, .timeout_ms = 1e7, .observe = see};
    UNLESS(run_once(session, &run));
    if (session) onnxfuse_session_profile(session, true);
    UNLESS(run_once(session, NULL));
    UNLESS(onnxfuse_session_profile_json(session, &text));
    free_text(&text);
    UNLESS(onnxfuse_session_report_json(session, &text));
    free_text(&text);
    if (session) {
        OnnxfuseStats stats;
        onnxfuse_session_stats(session, &stats, sizeof stats);
        onnxfuse_trim(session);
    }
    UNLESS(run_once(session, NULL)); /* a session is as before, whatever has failed */
    onnxfuse_session_close(session);
    onnxfuse_cancel_free(cancel);
    return status;
}

/* A run that fails does no harm to the next one. */
static OnnxfuseStatus walk_runs(void) {
    static OnnxfuseSession *session;
    if (!session) {
        OnnxfuseOptions options = {OPTIONS, .policy_json = quiet};
        OnnxfuseStatus status = onnxfuse_session_open(scene.model, &options, &session);
        if (status) return status;
    }
    OnnxfuseStatus status = run_once(session, NULL);
    onnxfuse_trim(session);
    return status;
}

static OnnxfuseStatus walk_check(void) {
    OnnxfuseOptions options = {OPTIONS, .policy_json = quiet};
    char *node = NULL;
    OnnxfuseStatus status = onnxfuse_check_memory(scene.bytes, scene.size, scene.folder, &options, &node);
    cr_expect(!node || status);
    free_text(&node);
    return status;
}

/* What is refused, is so for its reason, or for lack of memory. */
static OnnxfuseStatus walk_errors(void) {
    static const char *const unsupported = "opset 21\nopset \"nowhere\" 1\ngraph (x: f32[n]) -> (y) {\na = onnx Neg@21 "
                                           "x\ny = onnx \"nowhere\" Magic@1 a # from it\n}\n";
    static void *bytes;
    static size_t size;
    OnnxfuseOptions options = {OPTIONS, .policy_json = quiet};
    OnnxfuseOptions wrong[] = {{OPTIONS, .policy_json = "{\"rules\": [{\"match\": {\"op\": 7}}]}"},
                               {OPTIONS, .policy_json = "{\"threads\": 1"},
                               {OPTIONS, .policy_file = "nowhere/policy.json"}};
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status[8] = {0}, memory = NULL;
    char *node = NULL;
    int count = 0;
    if (!bytes) bytes = model_bytes(unsupported, &size);
    status[count++] = onnxfuse_check_memory(bytes, size, NULL, &options, &node);
    status[count++] = onnxfuse_session_open_memory(bytes, size, NULL, &options, &session);
    status[count++] = onnxfuse_session_open_memory(scene.bytes, scene.size / 2, NULL, &options, &session);
    status[count++] = onnxfuse_session_open("nowhere/model.onnx", &options, &session);
    for (int i = 0; i < 3; i++) status[count++] = onnxfuse_session_open(scene.model, &wrong[i], &session);
    free_text(&node);
    cr_expect_null(session);
    static const OnnxfuseCode codes[] = {ONNXFUSE_UNSUPPORTED, ONNXFUSE_UNSUPPORTED, ONNXFUSE_INVALID, ONNXFUSE_INVALID,
                                         ONNXFUSE_INVALID,     ONNXFUSE_INVALID,     ONNXFUSE_INVALID};
    for (int i = 0; i < count; i++) {
        if (onnxfuse_status_code(status[i]) == ONNXFUSE_FAULT && !memory) {
            memory = status[i];
            continue;
        }
        cr_expect_eq(onnxfuse_status_code(status[i]), codes[i], "error %d: %s", i, onnxfuse_status_message(status[i]));
        onnxfuse_status_free(status[i]);
    }
    return memory;
}

static OnnxfuseStatus walk_values(void) {
    static const char picture[] = "P6 2 1 255\nabcdef";
    static const char proto[] = "\x08\x02\x10\x01\x42\x01y\x22\x08\0\0\x80\x3f\0\0\0\x40"; /* float y[2] */
    int64_t dims[] = {2, 2};
    OnnxfuseValue *tensor = NULL, *absent = NULL, *sequence = NULL, *read = NULL, *image = NULL, *back = NULL,
                  *keys = NULL, *map = NULL;
    OnnxfuseDlpack *dlpack = NULL;
    const char *name = NULL;
    OnnxfuseStatus status = onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, dims, NULL, &tensor);
    UNLESS(onnxfuse_value_sequence(&tensor, 1, &sequence));
    if (sequence) tensor = NULL; /* taken over on success alone */
    int64_t pair[] = {9, 4};
    UNLESS(onnxfuse_value_tensor(ONNXFUSE_INT64, 1, dims, pair, &keys));
    OnnxfuseValue *values = NULL;
    UNLESS(onnxfuse_value_tensor(ONNXFUSE_INT64, 1, dims, pair, &values));
    UNLESS(onnxfuse_value_map(keys, values, &map));
    if (map) keys = values = NULL;
    const OnnxfuseValue *view = map ? onnxfuse_value_keys(map) : NULL; /* NULL also where its memory is refused */
    if (view) cr_expect_eq(onnxfuse_value_element(view, 0), 4);
    UNLESS(onnxfuse_value_absent(&absent));
    UNLESS(onnxfuse_value_from_proto(ONNXFUSE_PROTO_TENSOR, proto, sizeof proto - 1, &read, &name));
    if (read) cr_expect_eq(onnxfuse_value_element(read, 1), 2);
    if (read) cr_expect_str_eq(name, "y");
    UNLESS(onnxfuse_value_from_image(picture, sizeof picture - 1, "BGR", &image));
    if (image) cr_expect(((char *)onnxfuse_value_data(image))[0] == 'c');
    UNLESS(onnxfuse_value_to_dlpack(image, &dlpack));
    if (dlpack) image = NULL;
    UNLESS(onnxfuse_value_from_dlpack(dlpack, &back));
    if (dlpack && !back) dlpack->deleter(dlpack);
    OnnxfuseValue *all[] = {tensor, absent, sequence, read, image, back, keys, values, map};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) onnxfuse_value_free(all[i]);
    return status;
}

/* A model of one output, f32 [2], whose data is in the file "memory". */
static const char external[] = "\x08\x0a"
                               "\x3a\x2d"
                               "\x2a\x1d\x08\x02\x10\x01\x42\x01w\x6a\x12\x0a\x08location\x12\x06memory\x70\x01"
                               "\x12\x01g"
                               "\x62\x09\x0a\x01w\x12\x04\x0a\x02\x08\x01"
                               "\x42\x02\x10\x15";

static const void *hand_over(void *user, const char *location, size_t *out_size) {
    static const float numbers[2] = {3, 4};
    (void)user, (void)location;
    *out_size = sizeof numbers;
    return numbers;
}

static OnnxfuseStatus walk_memory(void) {
    OnnxfuseOptions options = {OPTIONS, .policy_json = quiet, .external_data = hand_over};
    OnnxfuseSession *session = NULL;
    OnnxfuseValue *w = NULL;
    OnnxfuseStatus status = onnxfuse_session_open_memory(external, sizeof external - 1, NULL, &options, &session);
    UNLESS(onnxfuse_session_run(session, NULL, &w));
    if (w) cr_expect_eq(onnxfuse_value_element(w, 1), 4);
    onnxfuse_value_free(w);
    onnxfuse_session_close(session);
    return status;
}

static OnnxfuseStatus walk_compile(void) {
    OnnxfuseOptions options = {OPTIONS, .policy_json = quiet};
    char names[1024], *report = NULL;
    int before = files_in(scene.folder, names, sizeof names);
    OnnxfuseStatus status = onnxfuse_compile(scene.model, &options, scene.out, &report);
    cr_expect(!status == !!report);
    free_text(&report);
    if (!status) status = open_and_run(NULL, scene.out, NULL, 0);
    if (status && is_there(scene.out)) { /* it is the opening that has failed */
        unlink(scene.out);
        cr_expect_eq(files_in(scene.folder, names, sizeof names), before, "%s", names);
    } else {
        expect_whole("compile", status, before, false);
    }
    return status;
}

static OnnxfuseStatus walk_compile_memory(void) {
    OnnxfuseOptions options = {OPTIONS, .policy_json = quiet};
    void *bytes = NULL;
    size_t size = 0;
    OnnxfuseStatus status = onnxfuse_compile_memory(scene.bytes, scene.size, scene.folder, &options, &bytes, &size);
    cr_expect(!status == !!bytes);
    UNLESS(open_and_run(NULL, NULL, bytes, size));
    onnxfuse_free(bytes);
    return status;
}

static OnnxfuseStatus optimize(const OnnxfuseOptimizeOptions *options) {
    char names[1024], *report = NULL;
    int before = files_in(scene.folder, names, sizeof names);
    OnnxfuseStatus status = onnxfuse_optimize(scene.model, scene.out, options, &report);
    cr_expect(!status == !!report);
    expect_whole("optimize", status, before, options->external_data);
    free_text(&report);
    return status;
}

static OnnxfuseStatus walk_optimize(void) {
    return optimize(
        &(OnnxfuseOptimizeOptions){sizeof(OnnxfuseOptimizeOptions), .fix_shapes = "x=2x64", .external_data = true});
}

static OnnxfuseStatus walk_optimize_more(void) {
    return optimize(&(OnnxfuseOptimizeOptions){sizeof(OnnxfuseOptimizeOptions), .extract = "x:r", .regions = true,
                                               .convert_opset = 17, .policy_file = scene.policy});
}

static OnnxfuseStatus walk_inspect(void) {
    OnnxfuseOptions options = {OPTIONS, .policy_json = quiet};
    static const char *const others[] = {"plan", "policy", "kernels", "summary", NULL};
    OnnxfuseStatus status = NULL;
    char *text = NULL;
    for (int kind = 0; kind < 2; kind++)
        for (const char *const *stage = kind ? others : onnxfuse_inspect_stages(); *stage; stage++) {
            if (strcmp(*stage, "source") == 0) continue; /* of GPUs */
            UNLESS(onnxfuse_inspect(scene.model, &options, *stage, "text", &text));
            free_text(&text);
        }
    UNLESS(onnxfuse_inspect(scene.model, &options, "partition", "dot", &text));
    free_text(&text);
    return status;
}

static OnnxfuseStatus copy(void *user, OnnxfuseCall *call) {
    (void)user;
    const OnnxfuseValue *x = onnxfuse_call_input(call, 0);
    void *y = NULL;
    if (!onnxfuse_call_scratch(call, 1000)) return onnxfuse_error(ONNXFUSE_FAULT, "no memory");
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, onnxfuse_value_rank(x), onnxfuse_value_dims(x), &y);
    if (!status && y) memcpy(y, onnxfuse_value_data(x), onnxfuse_value_bytes(x));
    return status;
}

static OnnxfuseStatus walk_registry(void) {
    static const char *const patterns[] = {"(x) -> (y) { y = Relu(x) }", NULL};
    static const OnnxfuseOperator
        op = {.size = sizeof op, .domain = "", .name = "Identity", .since = 1, .compute = copy},
        relu = {.size = sizeof relu, .domain = "test", .name = "Relu", .since = 1, .compute = copy};
    static const OnnxfuseFusion fusion = {
        .size = sizeof fusion, .name = "Rectify", .phase = ONNXFUSE_FORWARD, .patterns = patterns, .kernel = &relu};
    OnnxfuseRegistry *registry = NULL;
    OnnxfuseStatus status = onnxfuse_registry_create(&registry);
    UNLESS(onnxfuse_registry_add_operator(registry, &op));
    UNLESS(onnxfuse_registry_add_fusion(registry, &fusion));
    OnnxfuseOptions options = {OPTIONS, .policy_json = quiet, .registry = registry};
    if (!status) {
        OnnxfuseValue *wanted = scene.wanted;
        scene.wanted = NULL; /* its Relu is a copy */
        status = open_and_run(&options, scene.model, NULL, 0);
        scene.wanted = wanted;
    }
    onnxfuse_registry_free(registry);
    return status;
}

static OnnxfuseStatus walk_devices(void) {
    char *text = NULL;
    OnnxfuseStatus status = onnxfuse_devices(&text);
    free_text(&text);
    return status;
}

/* What is kept after a step that failed is what was kept before it, and a file is whole or not there. */
static OnnxfuseStatus walk_steps(void) {
    OnnxfuseOptions options = {OPTIONS, .policy_json = "{\"cache\": {\"enable\": false}, \"training\": {\"optimizer\": "
                                                       "\"adam\", \"rate\": 0.1, \"accumulation\": 2}}"};
    OnnxfuseTraining *training = NULL;
    double loss = 0, first = 0;
    char names[1024];
    int before = files_in(scene.folder, names, sizeof names);
    OnnxfuseStatus status = onnxfuse_training_open(scene.model, &options, &training);
    cr_expect(!status == !!training);
    for (int i = 0; i < 5; i++) {
        UNLESS(onnxfuse_training_step(training, (const OnnxfuseValue *const[]){scene.x}, NULL, &loss));
        if (!status && i == 0) first = loss;
        if (!status && i < 2) cr_expect_eq(loss, first, "weights change before two batches are there");
        if (i == 2) UNLESS(onnxfuse_training_save_checkpoint(training, scene.out));
    }
    if (!status) cr_expect_lt(loss, first);
    UNLESS(onnxfuse_training_load_checkpoint(training, scene.out));
    UNLESS(onnxfuse_training_save_model(training, scene.out));
    onnxfuse_training_close(training);
    int left = files_in(scene.folder, names, sizeof names) - is_there(scene.out);
    cr_expect_eq(left, before, "training that %s leaves %s", status ? "fails" : "succeeds", names);
    unlink(scene.out);
    return status;
}

/* Cold, then from disk: what cannot be kept there for lack of memory is compiled again. */
static OnnxfuseStatus walk_cache(void) {
    char command[200], policy[200], where[96];
    snprintf(where, sizeof where, "%s/cache", scene.folder);
    snprintf(policy, sizeof policy, "{\"cache\": {\"directory\": \"%s\"}}", where);
    OnnxfuseOptions options = {OPTIONS, .policy_json = policy};
    OnnxfuseStatus status = open_and_run(&options, scene.model, NULL, 0);
    onnxfuse_trim(NULL);
    UNLESS(open_and_run(&options, scene.model, NULL, 0));
    snprintf(command, sizeof command, "rm -rf %s", where);
    cr_assert_eq(system(command), 0);
    return status;
}

/* --- the scene --- */
static void write_file(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(data, 1, size, file) == size && fclose(file) == 0, "%s", path);
}

/* Each makes y of x; # stands for the numbers of a matrix. */
static const char plain_model[] =
    "graph (x: f32[n, 64]) -> (y) {\nw = constant f32[64, 8] {#}\na = constant i64[] 1\n"
    "b = constant f32[8] {1, 2, 3, 4, 5, 6, 7, 8}\n"
    "p = onnx MatMul@21 x, w # from product\nq = onnx Add@21 p, b\nr = onnx Relu@21 q\n"
    "s = onnx Softmax@21 r {axis = -1}\ni = onnx Identity@21 s\nk = onnx CumSum@21 i, a\ny = onnx Exp@21 k\n}\n";

/* A condition that the run knows, in a body that the loop around it captures weights for. */
static const char loop_model[] =
    "graph (x: f32[n, 64]) -> (y) {\nw = constant f32[64, 8] {#}\nt = constant i64[] 3\nlimit = constant f32[] 2\n"
    "p = onnx MatMul@21 x, w # from product\n"
    "h, s = onnx Loop@21 t, _, p, limit captures 1 graph \"body\" (i: i64[], k: bool[], v: f32[n, 8], limit: f32[]) -> "
    "(k, u, m) {\n"
    "m = onnx ReduceMax@21 v {keepdims = 0}\nc = onnx Less@21 m, limit\n"
    "u = onnx If@21 c, v captures 1 graph \"then\" (v: f32[n, 8]) -> (a) {\n"
    "a = onnx Add@21 v, v\n} graph \"else\" (v: f32[n, 8]) -> (b) {\nb = onnx Sqrt@21 v\n}\n}\n"
    "z = constant i64[1] {-1}\nflat = onnx Reshape@21 h, z\ny = onnx Concat@21 flat, s {axis = 0}\n}\n";

static const char scan_model[] =
    "graph (x: f32[n, 64]) -> (y) {\nw = constant f32[64, 8] {#}\nzero = constant f32[8] {0, 0, 0, 0, 0, 0, 0, 0}\n"
    "l, z = onnx Scan@21 zero, x, w {num_scan_inputs = 1} captures 1 graph \"body\" (a: f32[8], row: f32[64], w: "
    "f32[64, "
    "8]) -> (c, d) {\n"
    "p = onnx MatMul@21 row, w # from product\nc = onnx Add@21 a, p\nd = onnx Tanh@21 c\n}\n"
    "h = onnx MatMul@21 x, w\nm = onnx Add@21 z, l\ny = onnx Add@21 m, h\n}\n";

static const char sequence_model[] =
    "graph (x: f32[n, 64]) -> (y) {\nw = constant f32[64, 8] {#}\np = onnx MatMul@21 x, w # from product\n"
    "one = constant i64[] 1\nq = onnx SplitToSequence@21 p, one {axis = 0}\n"
    "r = onnx SequenceMap@21 q, w captures 1 graph \"body\" (a: f32[1, 8], w: f32[64, 8]) -> (c) {\n"
    "t = onnx Transpose@21 w {perm = [1, 0]}\nc = onnx MatMul@21 a, t\n}\n"
    "s = onnx ConcatFromSequence@21 r {axis = 0}\nwords = onnx Cast@21 s {to = 8}\n"
    "zero = constant i64[] 0\nzeros = onnx Cast@21 zero {to = 8}\n"
    "more = onnx StringConcat@21 words, zeros\ny = onnx Cast@21 more {to = 1}\n}\n";

static const char training_model[] =
    "graph (x: f32[n, 64]) -> (y) {\nw = constant f32[64, 8] {#}\np = onnx MatMul@21 x, w # from product\n"
    "t = onnx Tanh@21 p\nm = onnx Mul@21 t, t\ny = onnx ReduceMean@21 m {keepdims = 0}\n}\n";

/* A sequence of which only elements are kept for the backward pass, one that is kept as a whole, and a tensor that grows. */
static const char training_loop_model[] =
    "graph (x: f32[n, 64]) -> (y) {\nw = constant f32[64, 8] {#}\np = onnx MatMul@21 x, w # from product\n"
    "three = constant i64[] 3\nq = onnx SequenceConstruct@21 p\n"
    "a, b, g = onnx Loop@21 three, _, q, q, p captures 0 graph \"body\" (i: i64[], k: bool[], a: seq(f32[*]), b: "
    "seq(f32[*]), g: f32[m, 8]) -> (k, c, d, h) {\nlast = constant i64[] -1\ne = onnx SequenceAt@21 a, last\n"
    "t = onnx Tanh@21 e\nc = onnx SequenceInsert@21 a, t\nj = onnx ConcatFromSequence@21 b {axis = 0, new_axis = 1}\n"
    "axes = constant i64[1] {0}\nr = onnx ReduceSum@21 j, axes {keepdims = 0}\nd = onnx SequenceInsert@21 b, r\n"
    "h = onnx Concat@21 g, t {axis = 0}\n}\n"
    "l = onnx ConcatFromSequence@21 a {axis = 0}\nm = onnx ConcatFromSequence@21 b {axis = 0}\n"
    "all = onnx Concat@21 l, m, g {axis = 0}\ns = onnx Mul@21 all, all\ny = onnx ReduceMean@21 s {keepdims = 0}\n}\n";

/* Attention, whose scores are masked by a condition, and a recurrent layer. */
static const char attention_model[] =
    "graph (x: f32[n, 64]) -> (y) {\nw = constant f32[64, 8] {#}\nq = onnx MatMul@21 x, w # from product\n"
    "k = onnx Transpose@21 q {perm = [1, 0]}\nscores = onnx MatMul@21 q, k\nhalf = constant f32[] 0.5\n"
    "scaled = onnx Mul@21 scores, half\nzero = constant f32[] 0\nlow = constant f32[] -1000\n"
    "sum = onnx ReduceSum@21 x {keepdims = 0}\nc = onnx Greater@21 sum, zero\n"
    "bias = onnx If@21 c, scaled, zero, low captures 3 graph \"then\" (s: f32[n, n], zero: f32[], low: f32[]) -> (a) "
    "{\n"
    "g = onnx Greater@21 s, zero\na = onnx Where@21 g, zero, low\n} graph \"else\" (s: f32[n, n], zero: f32[], low: "
    "f32[]) "
    "-> (b) {\nb = onnx Mul@21 s, zero\n}\n"
    "masked = onnx Add@21 scaled, bias\nshares = onnx Softmax@21 masked {axis = -1}\n"
    "o = onnx MatMul@21 shares, q\nln = constant f32[8] {1, 1, 1, 1, 1, 1, 1, 1}\n"
    "y = onnx LayerNormalization@21 o, ln {axis = -1}\n}\n";

static const char policy_text[] =
    "{\"cache\": {\"enable\": false}, \"seed\": 3, \"fusion\": {\"memory_efficient\": true, \"max_region_nodes\": 8},"
    " \"fusions\": [{\"name\": \"Twice\", \"patterns\": [\"(x) -> (y) { h = Relu(x) y = Softmax(h) }\"]}],"
    " \"rules\": [{\"match\": {\"name\": \"product\", \"operator\": \"MatMul\"}, \"precision\": \"f32\", \"optional\": "
    "true}],"
    " \"shapes\": {\"hints\": [{\"n\": 2}, {\"n\": 3}]}}";

static void prepare_model(const char *model_text) {
    cJSON_InitHooks(&(cJSON_Hooks){malloc, free}); /* these */
    strcpy(scene.folder, "/tmp/onnxfuse-allocations-XXXXXX");
    cr_assert(mkdtemp(scene.folder));
    snprintf(scene.model, sizeof scene.model, "%s/model.onnx", scene.folder);
    snprintf(scene.policy, sizeof scene.policy, "%s/policy.json", scene.folder);
    snprintf(scene.out, sizeof scene.out, "%s/out", scene.folder);
    snprintf(scene.data, sizeof scene.data, "%s.data", scene.out);
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    const char *numbers = strchr(model_text, '#');
    text_add_bytes(&text, model_text, (size_t)(numbers - model_text));
    for (int i = 0; i < 64 * 8; i++) text_add(&text, "%s%d.5", i ? ", " : "", i % 5 - 2);
    text_add(&text, "%s", numbers + 1);
    scene.bytes = model_bytes(text.data, &scene.size);
    arena_destroy(arena);
    write_file(scene.model, scene.bytes, scene.size);
    write_file(scene.policy, policy_text, strlen(policy_text));
    cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){2, 64}, NULL, &scene.x));
    for (int i = 0; i < 128; i++) ((float *)onnxfuse_value_data(scene.x))[i] = (float)(i % 7) / 64;
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status =
        onnxfuse_session_open(scene.model, &(OnnxfuseOptions){OPTIONS, .policy_json = quiet}, &session);
    UNLESS(onnxfuse_session_run(session, (const OnnxfuseValue *const[]){scene.x}, &scene.wanted));
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    onnxfuse_session_close(session);
}

static void prepare(void) { prepare_model(plain_model); }

static void tidy_up(void) {
    char command[128];
    onnxfuse_value_free(scene.x);
    onnxfuse_value_free(scene.wanted);
    free(scene.bytes);
    snprintf(command, sizeof command, "rm -rf %s", scene.folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(allocations, .init = prepare, .fini = tidy_up, .timeout = 600);

/* --- the test --- */
/* Each allocation; with a sanitizer, where a walk takes several times as long, one of so many, others in another turn. */
static int step_between(void) {
    const char *step = getenv("ONNXFUSE_ALLOCATION_STEP");
#ifdef __SANITIZE_ADDRESS__
    return step ? atoi(step) : 12 * (int)share_of_slow();
#else
    return step ? atoi(step) : 1;
#endif
}

static void fail_each(const char *name, OnnxfuseStatus (*walk)(void), int least) {
    for (int i = 0; i < 2; i++) { /* what is made once a process is made */
        OnnxfuseStatus status = walk();
        cr_assert(!status, "%s: %s", name, onnxfuse_status_message(status));
        onnxfuse_trim(NULL);
    }
    int refused = 0, tried = 0, step = step_between();
    for (long long n = 1 + (long long)(share_number("ONNXFUSE_TEST_TURN") % (unsigned)step);; n += step) {
        size_t before = counted_blocks();
        counted_mark();
        counted_begin(n);
        OnnxfuseStatus status = walk();
        counted_end();
        const void *at = counted_failed();
        cr_expect(!status || at, "%s: fails though no allocation does: %s", name, onnxfuse_status_message(status));
        cr_expect(!status || (onnxfuse_status_code(status) == ONNXFUSE_FAULT &&
                              strstr(onnxfuse_status_message(status), "memory")),
                  "%s, allocation %lld at %p: code %d, %s", name, n, at, onnxfuse_status_code(status),
                  onnxfuse_status_message(status));
        refused += status != NULL;
        onnxfuse_status_free(status);
        onnxfuse_trim(NULL);
        cr_expect_leq(counted_blocks(), before, "%s, allocation %lld at %p: %zu blocks are lost, one from %p", name, n,
                      at, counted_blocks() - before, counted_lost());
        if (!at) break; /* there are fewer */
        tried++;
        cr_assert_lt(n, 20000, "%s: no end", name);
    }
    printf("%s: %d allocations failed, %d of them the call\n", name, tried, refused);
    cr_expect_geq(refused, least / step, "%s: %d allocations are refused", name, refused);
}

#define WALK(name, least)                                                                                              \
    Test(allocations, name) { fail_each(#name, walk_##name, least); }

WALK(session, 50)
WALK(runs, 5)
WALK(check, 15)
WALK(errors, 10)
WALK(values, 5)
WALK(memory, 10)
WALK(compile, 50)
WALK(compile_memory, 50)
WALK(optimize, 20)
WALK(optimize_more, 20)
WALK(inspect, 50)
WALK(registry, 50)
WALK(devices, 1)
WALK(cache, 50)

#define MODEL_WALKS(model)                                                                                             \
    static void prepare_##model(void) { prepare_model(model##_model); }                                                \
    MODEL_WALK(model, session, 50)                                                                                     \
    MODEL_WALK(model, runs, 2)                                                                                         \
    MODEL_WALK(model, compile_memory, 50)                                                                              \
    MODEL_WALK(model, optimize, 20)                                                                                    \
    MODEL_WALK(model, registry, 50)
#define MODEL_WALK(model, name, least)                                                                                 \
    Test(allocations_of_models, model##_##name, .init = prepare_##model, .fini = tidy_up, .timeout = 600) {            \
        fail_each(#model ", " #name, walk_##name, least);                                                              \
    }

MODEL_WALKS(loop)
MODEL_WALKS(scan)
MODEL_WALKS(sequence)
MODEL_WALKS(attention)

static void prepare_training(void) { prepare_model(training_model); }
MODEL_WALK(training, steps, 50)

static void prepare_training_loop(void) { prepare_model(training_loop_model); }
MODEL_WALK(training_loop, steps, 50)
