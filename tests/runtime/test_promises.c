/* SPDX-License-Identifier: Apache-2.0 */
/* What include/onnxfuse.h promises in half sentences: of values, options, registries, and of the process around. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models.h"

static const char quiet[] = "{\"cache\": {\"enable\": false}}";
static const char twice[] = "graph (x: f32[n]) -> (y) {\ny = onnx Add@21 x, x\n}\n";

static void succeeds(OnnxfuseStatus status) { cr_assert(!status, "%s", onnxfuse_status_message(status)); }

static void refused(OnnxfuseStatus status, OnnxfuseCode code, const char *part) {
    cr_expect(onnxfuse_status_code(status) == code && strstr(onnxfuse_status_message(status), part), "code %d: %s",
              onnxfuse_status_code(status), onnxfuse_status_message(status));
    onnxfuse_status_free(status);
}

/* --- the environment: the program is linked with --wrap for both functions --- */
static char asked[1024];

static void note(const char *name) {
    char entry[64];
    snprintf(entry, sizeof entry, " %s ", name);
    if (!strstr(asked, entry) && strlen(asked) + strlen(entry) < sizeof asked) strcat(asked, entry);
}

char *__real_getenv(const char *name);
char *__real_secure_getenv(const char *name);
char *__wrap_getenv(const char *name);
char *__wrap_secure_getenv(const char *name);

char *__wrap_getenv(const char *name) {
    note(name);
    return __real_getenv(name);
}

char *__wrap_secure_getenv(const char *name) {
    note(name);
    return __real_secure_getenv(name);
}

Test(promises, no_other_variable_of_the_environment_is_read) {
    static const char *const known[] = {"ONNXFUSE_DEBUG", "ONNXFUSE_VERIFY",   "XDG_CACHE_HOME", "HOME",
                                        "PATH",           "ONNXFUSE_GENERATOR"};
    OnnxfuseSession *session;
    char *text, folder[] = "/tmp/onnxfuse-promises-XXXXXX", command[64];
    cr_assert(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    succeeds(open_text(twice, &(OnnxfuseOptions){0}, &session));
    char *problem = run_and_compare(session, (const char *[]){"f32[1] {3}"}, (const char *[]){"f32[1] {6}"});
    cr_expect_null(problem, "%s", problem);
    onnxfuse_session_close(session);
    succeeds(onnxfuse_devices(&text)); /* all that is looked for */
    onnxfuse_free(text);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char entry[64], *at;
        snprintf(entry, sizeof entry, " %s ", known[i]);
        at = strstr(asked, entry);
        cr_expect(at || i == 3 || i == 4, "%s is not read", known[i]);
        if (at) memset(at, ' ', strlen(entry));
    }
    cr_expect_eq(strspn(asked, " "), strlen(asked), "these are read: %s", asked);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_expect_eq(system(command), 0);
}

/* --- values --- */
Test(promises, an_elements_size) {
    static const struct {
        OnnxfuseDType dtype;
        size_t size;
    } rows[] = {{ONNXFUSE_FLOAT32, 4},
                {ONNXFUSE_UINT8, 1},
                {ONNXFUSE_INT8, 1},
                {ONNXFUSE_UINT16, 2},
                {ONNXFUSE_INT16, 2},
                {ONNXFUSE_INT32, 4},
                {ONNXFUSE_INT64, 8},
                {ONNXFUSE_BOOL, 1},
                {ONNXFUSE_FLOAT16, 2},
                {ONNXFUSE_FLOAT64, 8},
                {ONNXFUSE_UINT32, 4},
                {ONNXFUSE_UINT64, 8},
                {ONNXFUSE_COMPLEX64, 8},
                {ONNXFUSE_COMPLEX128, 16},
                {ONNXFUSE_BFLOAT16, 2},
                {ONNXFUSE_FLOAT8E4M3FN, 1},
                {ONNXFUSE_FLOAT8E5M2, 1},
                {ONNXFUSE_UINT4, 1},
                {ONNXFUSE_INT4, 1},
                {ONNXFUSE_FLOAT4E2M1, 1},
                {ONNXFUSE_UINT2, 1},
                {ONNXFUSE_INT2, 1},
                {ONNXFUSE_STRING, sizeof(OnnxfuseString)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(onnxfuse_dtype_size(rows[i].dtype), rows[i].size, "%s", onnxfuse_dtype_name(rows[i].dtype));
}

Test(promises, memory_of_a_values_own_is_zeroed) {
    for (int time = 0; time < 4; time++) { /* what was freed is used again */
        OnnxfuseValue *value;
        int64_t dims[] = {1000};
        succeeds(onnxfuse_value_tensor(ONNXFUSE_INT32, 1, dims, NULL, &value));
        int32_t *data = onnxfuse_value_data(value);
        for (int i = 0; i < 1000; i++) cr_assert_eq(data[i], 0);
        memset(data, 0x5a, 4000);
        onnxfuse_value_free(value);
    }
}

Test(promises, what_a_sequence_and_nothing_tell) {
    OnnxfuseValue *item = value_from("f32[2] {1, 2}"), *sequence, *absent;
    succeeds(onnxfuse_value_sequence(&item, 1, &sequence));
    succeeds(onnxfuse_value_absent(&absent));
    const OnnxfuseValue *all[] = {sequence, absent};
    for (int i = 0; i < 2; i++)
        cr_expect(onnxfuse_value_dtype(all[i]) == ONNXFUSE_NONE && !onnxfuse_value_data(all[i]) &&
                  !onnxfuse_value_is_on_device(all[i]));
    cr_expect_eq(onnxfuse_value_count(sequence), 1);
    cr_expect_eq(onnxfuse_value_element(onnxfuse_value_item(sequence, 0), 1), 2);
    onnxfuse_value_free(sequence);
    onnxfuse_value_free(absent);
}

Test(promises, what_a_sequence_does_not_take_stays_the_callers) {
    static float elsewhere; /* not followed: it could be a device's */
    OnnxfuseValue *good = value_from("f32[1] {5}"), *there, *sequence = NULL;
    succeeds(onnxfuse_value_tensor_on_device(ONNXFUSE_FLOAT32, 1, (int64_t[]){1}, &elsewhere, &there));
    refused(onnxfuse_value_sequence((OnnxfuseValue *[]){good, there}, 2, &sequence), ONNXFUSE_INVALID, "device");
    cr_expect_null(sequence);
    cr_expect_eq(onnxfuse_value_element(good, 0), 5);
    onnxfuse_value_free(good);
    onnxfuse_value_free(there);
}

Test(promises, what_a_map_tells) {
    OnnxfuseValue *map = value_from("map string[3] {\"b\", \"\", \"ab\"} to f32[3] {1, 2, 3}");
    cr_expect(onnxfuse_value_kind(map) == ONNXFUSE_MAP && onnxfuse_value_count(map) == 3);
    cr_expect(onnxfuse_value_dtype(map) == ONNXFUSE_NONE && !onnxfuse_value_data(map) && !onnxfuse_value_rank(map));
    cr_expect_null(onnxfuse_value_item(map, 0));
    const OnnxfuseValue *keys = onnxfuse_value_keys(map), *values = onnxfuse_value_values(map);
    char *text = value_text(map);
    cr_expect_str_eq(text, "map string[3] [\"\", \"ab\", \"b\"] to f32[3] [2, 3, 1]");
    cr_expect(keys == onnxfuse_value_keys(map) && values == onnxfuse_value_values(map));
    cr_expect(!onnxfuse_value_keys(keys) && !onnxfuse_value_values(values));
    free(text);
    onnxfuse_value_free(map);
}

Test(promises, what_a_map_does_not_take_stays_the_callers) {
    static float elsewhere;
    OnnxfuseValue *keys = value_from("i64[2] {5, 3}"), *doubled = value_from("i64[2] {3, 3}"),
                  *values = value_from("f32[2] {1, 2}"), *three = value_from("f32[3] {1, 2, 3}"),
                  *sequence = value_from("seq f32[1] {1}"), *there, *map = NULL;
    succeeds(onnxfuse_value_tensor_on_device(ONNXFUSE_FLOAT32, 1, (int64_t[]){1}, &elsewhere, &there));
    refused(onnxfuse_value_map(doubled, values, &map), ONNXFUSE_INVALID, "twice");
    refused(onnxfuse_value_map(keys, three, &map), ONNXFUSE_INVALID, "length");
    refused(onnxfuse_value_map(keys, sequence, &map), ONNXFUSE_INVALID, "no tensors");
    refused(onnxfuse_value_map(keys, there, &map), ONNXFUSE_INVALID, "host's memory");
    refused(onnxfuse_value_map(values, keys, &map), ONNXFUSE_UNSUPPORTED, "maps from float32 to int64");
    cr_expect_null(map);
    OnnxfuseValue *all[] = {keys, doubled, values, three, sequence, there};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cr_expect(i == 5 || onnxfuse_value_count(all[i]));
        onnxfuse_value_free(all[i]);
    }
}

/* --- options --- */
static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(text, file) >= 0 && !fclose(file));
}

Test(promises, where_a_policy_comes_from) {
    char folder[] = "/tmp/onnxfuse-promises-XXXXXX", model[64], beside[64], given[64], command[64];
    size_t size;
    cr_assert(mkdtemp(folder));
    snprintf(model, sizeof model, "%s/m.onnx", folder);
    snprintf(beside, sizeof beside, "%s/m.policy.json", folder);
    snprintf(given, sizeof given, "%s/p.json", folder);
    void *bytes = model_bytes(twice, &size);
    FILE *file = fopen(model, "wb");
    cr_assert(file && fwrite(bytes, 1, size, file) == size && !fclose(file));
    free(bytes);
    write_text(beside, "{\"threads\": 3, \"cache\": {\"enable\": false}}");
    write_text(given, "{\"threads\": 2, \"cache\": {\"enable\": false}}");
    const struct {
        const char *name;
        OnnxfuseOptions options;
        int threads;
    } rows[] = {{"beside the model", {0}, 3},
                {"a file instead", {.policy_file = given}, 2},
                {"a text instead of any file", {.policy_file = given, .policy_json = quiet, .threads = 4}, 4},
                {"a member overrides it", {.policy_file = given, .threads = 1}, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        OnnxfuseSession *session;
        OnnxfuseStats stats;
        succeeds(onnxfuse_session_open(model, &rows[i].options, &session));
        onnxfuse_session_stats(session, &stats, sizeof stats);
        cr_expect_eq(stats.threads, rows[i].threads, "%s: %d threads", rows[i].name, stats.threads);
        onnxfuse_session_close(session);
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_expect_eq(system(command), 0);
}

typedef struct Heard {
    int calls;
    char what[64];
    double last;
    bool wrong;
} Heard;

static void hear(void *user, const char *what, double done) {
    Heard *heard = user;
    heard->calls++;
    heard->wrong |= !*what || !(done >= heard->last && done <= 1);
    heard->last = done;
    snprintf(heard->what, sizeof heard->what, "%s", what);
}

Test(promises, progress_grows_from_0_to_1) {
    Heard heard = {0};
    OnnxfuseSession *session;
    succeeds(open_text(twice, &(OnnxfuseOptions){.policy_json = quiet, .progress = hear, .progress_user = &heard},
                       &session));
    cr_expect(heard.calls > 1 && !heard.wrong && heard.last == 1, "%d calls, the last at %g: %s", heard.calls,
              heard.last, heard.what);
    onnxfuse_session_close(session);
}

/* --- registries --- */
static OnnxfuseStatus triple(void *user, OnnxfuseCall *call) {
    const OnnxfuseValue *x = onnxfuse_call_input(call, 0);
    unsigned char *zeros = onnxfuse_call_scratch(call, 1000);
    float *y;
    if (!zeros || (uintptr_t)zeros % 64) return onnxfuse_error(ONNXFUSE_FAULT, "scratch memory is not aligned");
    for (int i = 0; i < 1000; i++)
        if (zeros[i]) return onnxfuse_error(ONNXFUSE_FAULT, "scratch memory is not zeroed");
    memset(zeros, 0xff, 1000); /* the next call's must be zero all the same */
    if (onnxfuse_call_scratch(call, (size_t)1 << 62)) return onnxfuse_error(ONNXFUSE_FAULT, "memory without end");
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, 1, onnxfuse_value_dims(x), (void **)&y);
    for (int64_t i = 0; !status && i < onnxfuse_value_count(x); i++)
        y[i] = *(const float *)user * (float)onnxfuse_value_element(x, i);
    return status;
}

/* All but what `user` points to is copied: the strings are gone when the session opens. */
Test(promises, what_a_registry_is_given_is_copied) {
    static float three = 3;
    char domain[] = "own", name[] = "Triple", fusion_name[] = "Negate", pattern[] = "(x) -> (y) { y = Neg(x) }";
    const char *patterns[] = {pattern, NULL};
    OnnxfuseRegistry *registry;
    succeeds(onnxfuse_registry_create(&registry));
    OnnxfuseOperator op = {sizeof op, domain, name, 1, 0, .compute = triple, .user = &three};
    succeeds(onnxfuse_registry_add_operator(registry, &op));
    OnnxfuseFusion fusion = {sizeof fusion, fusion_name, ONNXFUSE_FORWARD, patterns, &op};
    succeeds(onnxfuse_registry_add_fusion(registry, &fusion));
    memset(domain, '#', sizeof domain - 1);
    memset(name, '#', sizeof name - 1);
    memset(fusion_name, '#', sizeof fusion_name - 1);
    memset(pattern, '#', sizeof pattern - 1);
    patterns[0] = "nothing";
    op = (OnnxfuseOperator){0};
    fusion = (OnnxfuseFusion){0};
    OnnxfuseSession *session;
    OnnxfuseOptions options = {.policy_json =
                                   "{\"cache\": {\"enable\": false}, \"fusion\": {\"custom_kernels\": [\"Negate\"]}}",
                               .registry = registry};
    succeeds(open_text(
        "opset 21\nopset \"own\" 1\ngraph (x: f32[n]) -> (y) {\nt = onnx \"own\" Triple@1 x\ny = onnx Neg@21 t\n}\n",
        &options, &session));
    for (int time = 0; time < 2; time++) {
        char *problem = run_and_compare(session, (const char *[]){"f32[2] {1, 2}"}, (const char *[]){"f32[2] {9, 18}"});
        cr_expect_null(problem, "%s", problem);
        free(problem);
    }
    onnxfuse_session_close(session);
    onnxfuse_registry_free(registry);
}

Test(promises, the_version_is_the_headers) { cr_expect_str_eq(onnxfuse_version(), ONNXFUSE_VERSION); }
