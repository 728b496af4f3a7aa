/* SPDX-License-Identifier: Apache-2.0 */
/* Policies as JSON: each key arrives in its field, each mistake is told by path; device names; CPU levels. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/policy.h"

static Status parse(const char *json, size_t size, Arena *arena, Policy *policy) {
    *policy = policy_default();
    return policy_parse(json, size, "p.json", arena, policy);
}

/* --- keys ------------------------------------------------------------------------------------------------------ */
/* All fields as one line, so that a row says what changes and that nothing else does. */
static const char *policy_text(const Policy *p, Arena *arena) {
    return arena_format(arena, "fusion %d %d %d, threads %d, device %s, cache %d %s %lld, limit %lld, seed %llu, %s",
                        p->fusion.enable, p->fusion.memory_efficient, p->fusion.max_region_nodes, p->threads,
                        device_name(p->device), p->cache.enable, p->cache.directory ? p->cache.directory : "-",
                        (long long)p->cache.max_megabytes, (long long)p->memory_limit_megabytes,
                        (unsigned long long)p->seed, p->target.level);
}

static const struct {
    const char *json, *expected;
} keys[] = {
    {"{}", "fusion 1 0 96, threads 0, device auto, cache 1 - 256, limit 0, seed 0, host"},
    {" {\n} \n", "fusion 1 0 96, threads 0, device auto, cache 1 - 256, limit 0, seed 0, host"},
    {"{\"fusion\": {}}", "fusion 1 0 96, threads 0, device auto, cache 1 - 256, limit 0, seed 0, host"},
    {"{\"fusion\": {\"enable\": false}}",
     "fusion 0 0 96, threads 0, device auto, cache 1 - 256, limit 0, seed 0, host"},
    {"{\"fusion\": {\"memory_efficient\": true, \"max_region_nodes\": 1000}}",
     "fusion 1 1 1000, threads 0, device auto, cache 1 - 256, limit 0, seed 0, host"},
    {"{\"threads\": 7}", "fusion 1 0 96, threads 7, device auto, cache 1 - 256, limit 0, seed 0, host"},
    {"{\"threads\": 2.0}", "fusion 1 0 96, threads 2, device auto, cache 1 - 256, limit 0, seed 0, host"},
    {"{\"device\": \"opencl\"}", "fusion 1 0 96, threads 0, device opencl, cache 1 - 256, limit 0, seed 0, host"},
    {"{\"cache\": {\"enable\": false, \"directory\": \"/a b\", \"max_megabytes\": 1}}",
     "fusion 1 0 96, threads 0, device auto, cache 0 /a b 1, limit 0, seed 0, host"},
    {"{\"memory_limit_megabytes\": 1073741824}",
     "fusion 1 0 96, threads 0, device auto, cache 1 - 256, limit 1073741824, seed 0, host"},
    {"{\"seed\": 9007199254740992}",
     "fusion 1 0 96, threads 0, device auto, cache 1 - 256, limit 0, seed 9007199254740992, host"},
    {"{\"target\": \"\\\\u0000\"}", "fusion 1 0 96, threads 0, device auto, cache 1 - 256, limit 0, seed 0, \\u0000"},
    {"{\"target\": \"x86-64-v3\"}", "fusion 1 0 96, threads 0, device auto, cache 1 - 256, limit 0, seed 0, x86-64-v3"},
};

Test(policy, keys) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        Arena *arena = arena_create(0);
        Policy policy;
        Status status = parse(keys[i].json, strlen(keys[i].json), arena, &policy);
        cr_expect(!status, "%s: %s", keys[i].json, status_message(status));
        if (!status) cr_expect_str_eq(policy_text(&policy, arena), keys[i].expected);
        status_free(status);
        arena_destroy(arena);
    }
}

/* fnmatch takes all of these. */
Test(policy, globs) {
    static const char *const globs[] = {"*",    "a?b",  "[a-z]*",        "[]]",    "[!]]", "[^]a]", "[[]",
                                        "[-a]", "[a-]", "[[:alpha:]_]x", "a\\\\*", "a]",   "-"};
    for (size_t i = 0; i < sizeof globs / sizeof *globs; i++) {
        Arena *arena = arena_create(0);
        Policy policy;
        const char *json =
            arena_format(arena, "{\"rules\": [{\"match\": {\"name\": \"%s\"}, \"fuse\": false}]}", globs[i]);
        Status status = parse(json, strlen(json), arena, &policy);
        cr_expect(!status, "%s: %s", globs[i], status_message(status));
        status_free(status);
        arena_destroy(arena);
    }
}

/* --- mistakes ---------------------------------------------------------------------------------------------------- */
static const struct {
    const char *json, *message;
} mistakes[] = {
#define NAMED(glob) "{\"rules\": [{\"match\": {\"name\": \"" glob "\"}, \"fuse\": false}]}"
#define NO_NAMES(glob) "p.json: rules[0].match.name: no pattern for names: \"" glob "\" has "
    {NAMED("a["), NO_NAMES("a[") "[ without ] (the character [ itself is [[])"},
    {NAMED("[]a"), NO_NAMES("[]a") "[ without ]"},
    {NAMED("[!]"), NO_NAMES("[!]") "[ without ]"},
    {NAMED("[[:digit:]"), NO_NAMES("[[:digit:]") "[ without ]"},
    {NAMED("[a\\\\]"), NO_NAMES("[a\\]") "[ without ]"},
    {NAMED("[9-0]"), NO_NAMES("[9-0]") "a range that ends before it begins"},
    {NAMED("a\\\\"), NO_NAMES("a\\") "\\ at its end, where no character follows"},
    {"{\"training\": {\"of\": [\"a*\", \"b[\"]}}",
     "p.json: training.of[1]: no pattern for names: \"b[\" has [ without ]"},
    {"", "p.json: line 1: not valid JSON"},
    {"{", "p.json: line 1: not valid JSON"},
    {"{\n\"threads\": 1,\n}", "p.json: line 3: not valid JSON"},
    {"{} {}", "p.json: line 1: not valid JSON"},
    {"[]", "p.json: expected an object, found an array"},
    {"3", "p.json: expected an object, found a number"},
    {"null", "p.json: expected an object, found null"},
    {"{\"fusing\": true}", "p.json: fusing: unknown key"},
    {"{\"Threads\": 1}", "p.json: Threads: unknown key"},
    {"{\"\": 1}", "p.json: : unknown key"},
    {"{\"fusion\": true}", "p.json: fusion: expected an object, found true or false"},
    {"{\"fusion\": {\"on\": true}}", "p.json: fusion.on: unknown key"},
    {"{\"fusion.enable\": true}", "p.json: fusion.enable: unknown key"},
    {"{\"fusion\": {\"enable\": \"yes\"}}", "p.json: fusion.enable: expected true or false, found a string"},
    {"{\"fusion\": {\"enable\": 1}}", "p.json: fusion.enable: expected true or false, found a number"},
    {"{\"fusion\": {\"fusion\": {\"enable\": true}}}", "p.json: fusion.fusion: unknown key"},
    {"{\"threads\": \"2\"}", "p.json: threads: expected a whole number, found a string"},
    {"{\"threads\": 1.5}", "p.json: threads: 1.5 is not a whole number"},
    {"{\"threads\": -1}", "p.json: threads: -1 is not between 0 and 1024"},
    {"{\"threads\": 1e300}", "is not between 0 and 1024"},
    {"{\"fusion\": {\"max_region_nodes\": 0}}", "p.json: fusion.max_region_nodes: 0 is not between 1 and 1000"},
    {"{\"device\": \"gpu\"}", "p.json: device: there is no \"gpu\""},
    {"{\"device\": null}", "p.json: device: expected a string, found null"},
    {"{\"cache\": {\"directory\": false}}", "p.json: cache.directory: expected a string, found true or false"},
    {"{\"cache\": [1]}", "p.json: cache: expected an object, found an array"},
    {"{\"seed\": -1}", "p.json: seed: -1 is not between 0 and"},
    {"{\"a\\u0000b\": 1}", "p.json: a zero byte in JSON"},
    {"{\"target\": \"\\\\\\u0000\"}", "p.json: a zero byte in JSON"},
    {"{\"threads\": 1, \"threads\": 2}", "p.json: threads: given twice"},
    {"{\"fusion\": {\"enable\": true, \"enable\": true}}", "p.json: fusion.enable: given twice"},
};

Test(policy, mistakes) {
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        Arena *arena = arena_create(0);
        Policy policy;
        Status status = parse(mistakes[i].json, strlen(mistakes[i].json), arena, &policy);
        cr_expect(status_code(status) == STATUS_INVALID && strstr(status_message(status), mistakes[i].message),
                  "%s: \"%s\", expected \"%s\"", mistakes[i].json, status_message(status), mistakes[i].message);
        status_free(status);
        arena_destroy(arena);
    }
}

Test(policy, zero_bytes_are_no_json) {
    Arena *arena = arena_create(0);
    Policy policy;
    Status status = parse("{}\0{}", 5, arena, &policy);
    cr_expect(status_code(status) == STATUS_INVALID);
    status_free(status);
    arena_destroy(arena);
}

/* Deep nesting must not exhaust the stack. */
Test(policy, nesting) {
    enum { DEPTH = 200000 };
    Arena *arena = arena_create(0);
    char *json = malloc(DEPTH);
    Policy policy;
    memset(json, '[', DEPTH);
    Status status = parse(json, DEPTH, arena, &policy);
    cr_expect(status_code(status) == STATUS_INVALID);
    status_free(status);
    free(json);
    arena_destroy(arena);
}

/* --- printing ---------------------------------------------------------------------------------------------------- */
Test(policy, printing_says_where_values_come_from) {
    static const char json[] = "{\"threads\": 3, \"kernel_fusion\": {\"enable\": false}, \"precision\": \"f16\", "
                               "\"rules\": [{\"match\": {\"name\": \"a*\"}, \"fuse\": false, \"optional\": true}]}";
    static const char *const lines[] = {"# file: p.json\n",
                                        "flag     device                   cpu\n",
                                        "file     threads                  3\n",
                                        "file     fusion.enable            false\n",
                                        "default  seed                     0\n",
                                        "file     precision                f16\n",
                                        "file     rules                    1, see below\n",
                                        "default  cache.directory          the usual\n",
                                        "precision: all nodes -> precision f16\n",
                                        "rules[0]: name \"a*\" -> fuse false, optional\n"};
    Arena *arena = arena_create(0);
    Policy policy;
    cr_assert(!parse(json, strlen(json), arena, &policy));
    policy.device = DEVICE_CPU;
    policy_by_flag(&policy, "device");
    Text text = text_make(arena);
    policy_print(&text, &policy);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_expect(strstr(text.data, lines[i]), "\"%s\" is missing in\n%s", lines[i], text.data);
    arena_destroy(arena);
}

/* A policy may be read over another one. */
Test(policy, over_another) {
    static const char *const texts[] = {
        "{\"kernel_fusion\": {\"enable\": false}, \"precision\": \"f16\", \"rules\": [{\"match\": {\"name\": \"*\"}, "
        "\"fuse\": false}], \"threads\": 2}",
        "{\"fusion\": {\"enable\": true}, \"weights\": \"int8\", \"seed\": 3}"};
    Arena *arena = arena_create(0);
    Policy policy = policy_default();
    for (int i = 0; i < 2; i++) {
        Status status = policy_parse(texts[i], strlen(texts[i]), "p", arena, &policy);
        cr_assert(!status, "%s", status_message(status));
    }
    cr_expect(policy.fusion.enable && policy.threads == 2 && policy.seed == 3 && policy.rule_count == 2);
    cr_expect(policy.rules[0].whole && policy.rules[0].precision == PRECISION_F16 &&
              policy.rules[0].weights == PRECISION_INT8 && policy.rules[1].fuse == FUSE_NEVER);
    cr_expect_str_eq(policy.rules[0].where, "precision, weights");
    arena_destroy(arena);
}

static const struct {
    const char *made, *given, *word; /* word NULL: one plan does for both */
} agreements[] = {
    {"{\"kernel_fusion\": {\"enable\": false}}", "{\"fusion\": {\"enable\": false}}", NULL},
    {"{\"fusion\": {\"custom_kernels\": [\"A\"]}}", "{\"kernel_fusion\": {\"custom_cuda_kernels\": [\"B\"]}}",
     "fusion.custom_kernels"},
    {"{\"precision\": \"f16\"}", "{\"precision\": \"f16\", \"tolerance\": 0.1, \"check\": {\"inputs\": \"x\"}}", NULL},
    {"{\"precision\": \"f16\"}", "{\"precision\": \"bf16\"}", "precision"},
    {"{\"rules\": [{\"match\": {\"name\": \"*\"}, \"weights\": \"int8\", \"tolerance\": 0.1}]}",
     "{\"rules\": [{\"match\": {\"name\": \"*\"}, \"weights\": \"int8\"}], \"shapes\": {\"hints\": []}}", NULL},
    {"{}", "{\"rules\": [{\"match\": {\"name\": \"*\"}, \"weights\": \"int8\"}]}", "rules"},
};

Test(policy, what_one_plan_does_for) {
    for (size_t i = 0; i < sizeof agreements / sizeof *agreements; i++) {
        Arena *arena = arena_create(0);
        const char *made = NULL, *word = agreements[i].word;
        Status status = policy_plan_part(agreements[i].made, arena, &made);
        if (!status) status = policy_plan_agrees(made, agreements[i].given, arena);
        cr_expect(word ? status && strstr(status_message(status), word) : !status, "%s, %s: %s", agreements[i].made,
                  agreements[i].given, status_message(status));
        Policy policy = policy_default();
        Status again = policy_parse(made, strlen(made), "p", arena, &policy);
        cr_expect(!again, "%s: %s", made, status_message(again));
        status_free(status);
        status_free(again);
        arena_destroy(arena);
    }
}

/* A folder of inputs is found from the policy's file. */
Test(policy, inputs_beside_the_file) {
    Arena *arena = arena_create(0);
    Policy policy = policy_default();
    static const char json[] = "{\"precision\": \"f16\", \"tolerance\": 0.1, \"check\": {\"inputs\": \"data\"}}";
    char folder[] = "/tmp/onnxfuse_policy_XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    const char *path = arena_format(arena, "%s/p.json", folder);
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(json, 1, sizeof json - 1, file) == sizeof json - 1);
    fclose(file);
    cr_assert(!policy_read(path, arena, &policy));
    cr_expect_str_eq(policy.check.inputs, arena_format(arena, "%s/data", folder));
    cr_assert(!parse(json, sizeof json - 1, arena, &policy));
    cr_expect_str_eq(policy.check.inputs, "data");
    unlink(path);
    rmdir(folder);
    arena_destroy(arena);
}

/* --- files ------------------------------------------------------------------------------------------------------- */
Test(policy, files) {
    Arena *arena = arena_create(0);
    Policy policy = policy_default();
    char path[] = "/tmp/onnxfuse_policy_XXXXXX";
    int file = mkstemp(path);
    cr_assert(file >= 0 && write(file, "{\"threads\": 3}", 14) == 14);
    Status status = policy_read(path, arena, &policy);
    cr_expect(!status && policy.threads == 3, "%s", status_message(status));
    cr_assert(ftruncate(file, 2 << 20) == 0);
    status = policy_read(path, arena, &policy);
    cr_expect(status_code(status) == STATUS_INVALID && strstr(status_message(status), "larger"), "%s",
              status_message(status));
    status_free(status);
    close(file);
    unlink(path);
    static const char *const missing[] = {"/nonexistent/policy.json", "/tmp"};
    for (int i = 0; i < 2; i++) {
        status = policy_read(missing[i], arena, &policy);
        cr_expect(status_code(status) == STATUS_INVALID && strstr(status_message(status), missing[i]), "%s",
                  status_message(status));
        status_free(status);
    }
    arena_destroy(arena);
}

/* --- devices and targets ------------------------------------------------------------------------------------------ */
Test(policy, device_names) {
    static const DeviceKind kinds[] = {DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA, DEVICE_OPENCL};
    DeviceKind found;
    for (int i = 0; i < 4; i++) {
        cr_assert(!device_from_name(device_name(kinds[i]), &found));
        cr_expect(found == kinds[i]);
    }
    static const char *const wrong[] = {"", "CPU", "cpu ", "gpu"};
    for (int i = 0; i < 4; i++) {
        Status status = device_from_name(wrong[i], &found);
        cr_expect(status_code(status) == STATUS_USAGE, "%s", wrong[i]);
        status_free(status);
    }
}

static const struct {
    const char *level;
    int vector_bytes;
} levels[] = {{"x86-64", 16}, {"x86-64-v2", 16}, {"x86-64-v3", 32}, {"x86-64-v4", 64}, {"aarch64", 16}};

Test(policy, targets) {
    Arena *arena = arena_create(0);
    Target host = {.level = "host"}, none = {0};
    cr_assert(!target_resolve(arena, &host) && !target_resolve(arena, &none));
    cr_expect_str_eq(host.cpu, none.cpu);
    cr_expect(host.vector_bytes == 16 || host.vector_bytes == 32 || host.vector_bytes == 64);
    int widest = 0;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        Target target = {.level = levels[i].level};
        Status status = target_resolve(arena, &target);
        if (status) {
            cr_expect(status_code(status) == STATUS_USAGE && strstr(status_message(status), levels[i].level));
        } else {
            cr_expect(target.vector_bytes == levels[i].vector_bytes && target.cpu && target.features);
            if (target.vector_bytes > widest) widest = target.vector_bytes;
        }
        status_free(status);
    }
    cr_expect(host.vector_bytes == widest, "the host is its best level");
    Target wrong = {.level = "x86-64-v9"};
    Status status = target_resolve(arena, &wrong);
    cr_expect(status_code(status) == STATUS_USAGE && strstr(status_message(status), "x86-64-v9"));
    status_free(status);
    arena_destroy(arena);
}
