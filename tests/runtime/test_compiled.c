/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled models: the same bits as the model they are made of; whatever else a file holds is refused with its reason.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <dirent.h>
#include <unistd.h>

#include "models.h"
#include "runtime/compiled/compiled.h"

/* $(24,40) in a text is a constant of that shape. */
static char *with_weights(const char *text) {
    size_t size = 0;
    char *out = NULL;
    FILE *file = open_memstream(&out, &size);
    for (const char *at = text; *at; at++) {
        if (at[0] != '$' || at[1] != '(') {
            fputc(*at, file);
            continue;
        }
        const char *end = strchr(at, ')');
        int count = 1;
        fprintf(file, "f32[%.*s] {", (int)(end - at - 2), at + 2);
        for (const char *d = at + 2; d < end; d = strpbrk(d, ",)") + 1) count *= atoi(d);
        for (int i = 0; i < count; i++) fprintf(file, "%s%d.%02d", i ? ", " : "", i % 3 - 1, i * 37 % 100);
        fputc('}', file);
        at = end;
    }
    fclose(file);
    return out;
}

typedef struct Row {
    const char *name, *text;
    const char *inputs[MOST_VALUES]; /* further ones after a NULL: of another run */
} Row;

static const Row rows[] = {
    {"elementwise and reductions of any size",
     "graph (x: f32[n, m]) -> (y) {\n"
     "a = onnx ReduceMean@21 x {axes = [-1], keepdims = 1}\nb = onnx Sub@21 x, a\ny = onnx Tanh@21 b\n}\n",
     {"f32[2, 3] {1, 2, 3, 4, 5, 7}", NULL, "f32[1, 5] {1, -2, 3, 0.5, 8}"}},
    {"matrix products with packed weights and biases",
     "graph (x: f32[n, 24]) -> (y) {\nw = constant $(24,40)\nb = constant $(40)\nv = constant $(40,8)\n"
     "p = onnx MatMul@21 x, w\nq = onnx Add@21 p, b\nr = onnx Relu@21 q\ny = onnx MatMul@21 r, v\n}\n",
     {"$(3,24)", NULL, "$(1,24)"}},
    {"a weight that is also read as it is",
     "graph (x: f32[n, 24]) -> (y, z, u) {\nw = constant $(24,40)\ny = onnx MatMul@21 x, w\nz = onnx Neg@21 w\n"
     "a = onnx Exp@21 x\nu = onnx Tanh@21 a\n}\n",
     {"$(3,24)"}},
    {"weights of 4 bits, whose scales no node reads as a value",
     "opset 21\nopset \"com.microsoft\" 1\ngraph (x: f32[n, 96]) -> (y) {\nw = constant $(40,3,16)\nv = onnx Abs@21 "
     "w\nb = onnx Cast@21 v {to = 2}\ns = "
     "constant $(40,3)\ny = onnx \"com.microsoft\" MatMulNBits@1 x, b, s {K = 96, N = 40, bits = 4, block_size = 32, "
     "accuracy_level = 4}\n}\n",
     {"$(30,96)", NULL, "$(1,96)"}},
    {"a constant that is an output",
     "graph (x: f32[2, 9]) -> (y, w) {\nw = constant $(9,9)\ny = onnx MatMul@21 x, w\n}\n",
     {"$(2,9)"}},
    {"convolutions, depthwise and transposed too",
     "graph (x: f32[n, 4, h, h]) -> (y) {\nw = constant $(8,4,3,3)\nb = constant $(8)\nd = constant $(8,1,3,3)\n"
     "t = constant $(8,4,2,2)\n"
     "p = onnx Conv@21 x, w, b {kernel_shape = [3, 3], pads = [1, 1, 1, 1]}\n"
     "q = onnx Conv@21 p, d {kernel_shape = [3, 3], group = 8}\nr = onnx Relu@21 q\n"
     "y = onnx ConvTranspose@21 r, t {kernel_shape = [2, 2], strides = [2, 2]}\n}\n",
     {"$(1,4,6,6)", NULL, "$(2,4,5,5)"}},
    {"indices, and sizes that are known at run time alone",
     "graph (x: f32[n], k: i64[1]) -> (y, z) {\na = onnx NonZero@21 x\ny = onnx Transpose@21 a\nz = onnx Reshape@21 x, "
     "k\n}\n",
     {"f32[4] {1, 0, 2, 0}", "i64[1] {4}", NULL, "f32[2] {0, 0}", "i64[1] {-1}"}},
    {"slices and resizes by run-time values",
     "graph (x: f32[1, 1, 4], s: i64[1], e: i64[1], z: i64[3]) -> (y, u) {\naxis = constant i64[1] {2}\n"
     "y = onnx Slice@21 x, s, e, axis\nu = onnx Resize@21 x, _, _, z {mode = \"nearest\"}\n}\n",
     {"f32[1, 1, 4] {1, 2, 3, 4}", "i64[1] {1}", "i64[1] {3}", "i64[3] {1, 1, 8}"}},
    {"branches with constants of their own",
     "graph (c: bool[], x: f32[3, 9]) -> (y) {\nw = constant $(9,9)\n"
     "y = onnx If@21 c, x, w captures 2 graph \"then\" (x: f32[3, 9], w: f32[9, 9]) -> (t) {\nt = onnx MatMul@21 x, "
     "w\n} graph \"else\" (x: f32[3, 9], w: f32[9, 9]) -> (t) {\nv = constant $(9,9)\na = onnx MatMul@21 x, v\nt = "
     "onnx "
     "Exp@21 a\n}\n}\n",
     {"bool[] true", "$(3,9)", NULL, "bool[] false", "$(3,9)"}},
    {"loops",
     "graph (m: i64[], x: i64[k]) -> (y) {\n"
     "y = onnx Loop@21 m, _, x captures 0 graph \"body\" (i: i64[], c: bool[], v: i64[p]) -> (c, w) {\n"
     "axis = constant i64[1] {0}\nlast = onnx Unsqueeze@21 i, axis\nw = onnx Concat@21 v, last {axis = 0}\n}\n}\n",
     {"i64[] 3", "i64[1] {7}", NULL, "i64[] 0", "i64[2] {7, 8}"}},
    {"strings",
     "graph (x: string[n]) -> (y, u) {\nw = constant string[1] {\"-a much longer string than any name is\"}\n"
     "y = onnx StringConcat@21 x, w\nu = onnx StringNormalizer@21 x {case_change_action = \"UPPER\"}\n}\n",
     {"string[2] {\"one\", \"\"}"}},
    {"sequences and optionals",
     "graph (q: seq(f32[p]), o: opt(f32[2])) -> (r, h) {\n"
     "r = onnx ConcatFromSequence@21 q {axis = 0}\nh = onnx OptionalHasElement@21 o\n}\n",
     {"seq f32[1] {1} | f32[2] {1, 2}", "f32[2] {1, 2}", NULL, "seq f32[1] {5}", "none"}},
    {"results whose number of axes a run alone finds out",
     "graph (s: seq(f32[*])) -> (y) {\n"
     "y = onnx ConcatFromSequence@21 s {axis = 0}\n}\n",
     {"seq f32[1] {1} | f32[2] {1, 2}", NULL, "seq f32[1, 2] {5, 6}"}},
    {"the same draws",
     "graph (x: f32[n, 5]) -> (y, z) {\nr = constant f32[] 0.5\nt = constant bool[] true\n"
     "y = onnx Dropout@21 x, r, t {seed = 7}\nz = onnx RandomNormalLike@21 x\n}\n",
     {"$(4,5)", NULL, "$(4,5)"}},
    {"other element types",
     "graph (x: f16[4], i: i8[3], d: f64[2]) -> (a, b, e) {\na = onnx Add@21 x, x\nb = onnx Add@21 i, i\n"
     "e = onnx Exp@21 d\n}\n",
     {"f16[4] {1, 2, 3, 4}", "i8[3] {100, 27, -1}", "f64[2] {0, 1}"}},
    {"small types, as inputs and results of kernels and of the epilogue of a product",
     "graph (x: f32[n, 40]) -> (y, z, u) {\nw = constant $(40,40)\nt = constant f32[] 0.3\np = onnx MatMul@21 x, w\n"
     "y = onnx Cast@21 p {to = 17}\nd = onnx Cast@21 x {to = 19, saturate = 0}\nz = onnx Transpose@21 d\n"
     "q = onnx Cast@21 z {to = 1}\nr = onnx Mul@21 q, t\nu = onnx Cast@21 r {to = 22}\n}\n",
     {"$(3,40)", "$(1,40)"}},
    {"a weight and a bias of several products",
     "graph (x: f32[n, 40]) -> (y) {\nw = constant $(40,40)\nb = constant $(40)\np = onnx MatMul@21 x, w\n"
     "q = onnx Add@21 p, b\nr = onnx MatMul@21 q, w\ns = onnx Add@21 r, b\ny = onnx MatMul@21 s, w\n}\n",
     {"$(3,40)", "$(1,40)"}},
};
enum { ROWS = sizeof rows / sizeof *rows };

static const OnnxfuseOptions quiet = {.size = sizeof quiet, .policy_json = "{\"cache\": {\"enable\": false}}"};

static void ok(OnnxfuseStatus status, const char *name) {
    cr_assert(status == NULL, "%s: %s", name, onnxfuse_status_message(status));
}

typedef struct Bytes {
    void *data;
    size_t size;
} Bytes;

static Bytes model_of(const Row *row) {
    Bytes bytes;
    char *text = with_weights(row->text);
    bytes.data = model_bytes(text, &bytes.size);
    free(text);
    return bytes;
}

static Bytes compiled_of(const Row *row, const OnnxfuseOptions *options) {
    Bytes model = model_of(row), out;
    ok(onnxfuse_compile_memory(model.data, model.size, NULL, options, &out.data, &out.size), row->name);
    free(model.data);
    return out;
}

static void run(OnnxfuseSession *session, const char *const *texts, char **results) {
    OnnxfuseValue *inputs[MOST_VALUES] = {NULL}, *outputs[MOST_VALUES] = {NULL};
    int ins = onnxfuse_session_input_count(session), outs = onnxfuse_session_output_count(session);
    for (int i = 0; i < ins; i++) {
        char *text = with_weights(texts[i]);
        inputs[i] = value_from(text);
        free(text);
    }
    ok(onnxfuse_session_run(session, (const OnnxfuseValue *const *)inputs, outputs), "run");
    for (int o = 0; o < outs; o++) results[o] = value_text(outputs[o]);
    for (int i = 0; i < MOST_VALUES; i++) {
        onnxfuse_value_free(inputs[i]);
        onnxfuse_value_free(outputs[i]);
    }
}

static void compare_runs(const Row *row, OnnxfuseSession *a, OnnxfuseSession *b) {
    int ins = onnxfuse_session_input_count(a);
    for (const char *const *texts = row->inputs; texts - row->inputs < MOST_VALUES && *texts; texts += ins + 1) {
        char *expected[MOST_VALUES] = {NULL}, *got[MOST_VALUES] = {NULL};
        run(a, texts, expected);
        run(b, texts, got);
        for (int o = 0; o < MOST_VALUES && expected[o]; o++) {
            cr_expect_str_eq(got[o], expected[o], "%s: output %d", row->name, o);
            free(expected[o]);
            free(got[o]);
        }
    }
}

static void compare_infos(const char *name, const OnnxfuseValueInfo *a, const OnnxfuseValueInfo *b) {
    cr_expect_str_eq(a->name, b->name, "%s", name);
    cr_expect(a->kind == b->kind && a->dtype == b->dtype && a->rank == b->rank && a->random == b->random, "%s: %s",
              name, a->name);
    for (int d = 0; d < a->rank; d++) {
        cr_expect_eq(a->dims[d], b->dims[d], "%s", name);
        if (a->symbols[d]) cr_expect_str_eq(a->symbols[d], b->symbols[d], "%s", name);
    }
}

Test(compiled, gives_the_same_bits) {
    for (int i = 0; i < ROWS; i++) {
        OnnxfuseSession *model, *compiled;
        char *text = with_weights(rows[i].text);
        ok(open_text(text, NULL, &model), rows[i].name);
        Bytes bytes = compiled_of(&rows[i], &quiet);
        ok(onnxfuse_session_open_memory(bytes.data, bytes.size, NULL, &quiet, &compiled), rows[i].name);
        memset(bytes.data, 0xee, bytes.size); /* is not needed any more */
        onnxfuse_free(bytes.data);
        for (int k = 0; k < onnxfuse_session_input_count(model); k++)
            compare_infos(rows[i].name, onnxfuse_session_input(model, k), onnxfuse_session_input(compiled, k));
        for (int k = 0; k < onnxfuse_session_output_count(model); k++)
            compare_infos(rows[i].name, onnxfuse_session_output(model, k), onnxfuse_session_output(compiled, k));
        compare_runs(&rows[i], model, compiled);
        OnnxfuseStats stats, same;
        onnxfuse_session_stats(compiled, &stats, sizeof stats);
        onnxfuse_session_stats(model, &same, sizeof same);
        cr_expect_eq(stats.kernels_compiled, 0, "%s: %d kernels compiled", rows[i].name, stats.kernels_compiled);
        cr_expect(stats.nodes == same.nodes && stats.primitives == same.primitives && stats.anchors == same.anchors,
                  "%s: other counts", rows[i].name);
        onnxfuse_session_close(model);
        onnxfuse_session_close(compiled);
        free(text);
    }
}

/* What several nodes share is written once. */
Test(compiled, shared_weights_are_written_once) {
    enum { WEIGHT = 128 * 128 * 4 };
    size_t sizes[2];
    for (int many = 0; many < 2; many++) {
        char text[2000];
        int length = snprintf(text, sizeof text, "graph (x0: f32[n, 128]) -> (y) {\nw = constant $(128,128)\n");
        for (int i = 0; i < (many ? 9 : 1); i++)
            length += snprintf(text + length, sizeof text - (size_t)length, "x%d = onnx MatMul@21 x%d, w\n", i + 1, i);
        snprintf(text + length, sizeof text - (size_t)length, "y = onnx Identity@21 x%d\n}\n", many ? 9 : 1);
        Row row = {"a weight of one node or nine", text};
        Bytes bytes = compiled_of(&row, &quiet);
        sizes[many] = bytes.size;
        onnxfuse_free(bytes.data);
    }
    cr_expect(sizes[0] > WEIGHT && sizes[1] < sizes[0] + WEIGHT, "%zu and %zu bytes", sizes[0], sizes[1]);
}

/* --- files --- */
static char folder[] = "/tmp/onnxfuse-compiled-XXXXXX";
static char model_path[64], compiled_path[64];

static void write_bytes(const char *path, Bytes bytes) {
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes.data, 1, bytes.size, file) == bytes.size && fclose(file) == 0);
}

static void make_folder(void) {
    cr_assert(mkdtemp(folder));
    snprintf(model_path, sizeof model_path, "%s/m.onnx", folder);
    snprintf(compiled_path, sizeof compiled_path, "%s/m.ofx", folder);
    Bytes bytes = model_of(&rows[1]);
    write_bytes(model_path, bytes);
    free(bytes.data);
}

static int files_in_folder(void) {
    int count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *d; (d = readdir(dir));) count += d->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void remove_folder(void) {
    remove(model_path);
    remove(compiled_path);
    rmdir(folder);
}

Test(compiled, files, .init = make_folder, .fini = remove_folder) {
    char *report;
    OnnxfuseSession *model, *compiled;
    ok(onnxfuse_compile(model_path, &quiet, compiled_path, &report), "compile");
    cr_expect(strstr(report, "\"weights\":"), "%s", report);
    onnxfuse_free(report);
    cr_expect_eq(files_in_folder(), 2);
    ok(onnxfuse_session_open(model_path, &quiet, &model), "model");
    ok(onnxfuse_session_open(compiled_path, &quiet, &compiled), "compiled");
    unlink(compiled_path); /* the session has its pages */
    compare_runs(&rows[1], model, compiled);
    onnxfuse_session_close(model);
    onnxfuse_session_close(compiled);
    OnnxfuseStatus status = onnxfuse_compile(model_path, &quiet, "/nowhere/at/all.ofx", NULL);
    cr_expect_eq(onnxfuse_status_code(status), ONNXFUSE_INVALID);
    onnxfuse_status_free(status);
}

Test(compiled, nothing_is_left_of_what_could_not_be_written, .init = make_folder, .fini = remove_folder) {
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096});
    OnnxfuseStatus status = onnxfuse_compile(model_path, &quiet, compiled_path, NULL);
    cr_expect_eq(onnxfuse_status_code(status), ONNXFUSE_INVALID, "%s", onnxfuse_status_message(status));
    onnxfuse_status_free(status);
    cr_expect_eq(files_in_folder(), 1);
}

Test(compiled, inspect_tells_what_is_left, .init = make_folder, .fini = remove_folder) {
    static const char *const stages[] = {"partition", "plan", "kernels", "summary"};
    ok(onnxfuse_compile(model_path, &quiet, compiled_path, NULL), "compile");
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        char *text;
        ok(onnxfuse_inspect(compiled_path, &quiet, stages[i], "text", &text), stages[i]);
        cr_expect(*text, "%s", stages[i]);
        onnxfuse_free(text);
    }
    char *text = NULL;
    OnnxfuseStatus status = onnxfuse_inspect(compiled_path, &quiet, "lower", "text", &text);
    cr_expect_eq(onnxfuse_status_code(status), ONNXFUSE_USAGE);
    onnxfuse_status_free(status);
}

/* --- refusals
 * --------------------------------------------------------------------------------------------------------- */
static OnnxfuseStatus open_bytes(Bytes bytes, const OnnxfuseOptions *options) {
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = onnxfuse_session_open_memory(bytes.data, bytes.size, NULL, options, &session);
    onnxfuse_session_close(session);
    return status;
}

static void expect(Bytes bytes, const OnnxfuseOptions *options, OnnxfuseCode code, const char *word, const char *name) {
    OnnxfuseStatus status = open_bytes(bytes, options);
    cr_expect_eq(onnxfuse_status_code(status), code, "%s: %s", name, onnxfuse_status_message(status));
    cr_expect(!word || strstr(onnxfuse_status_message(status), word), "%s: %s", name, onnxfuse_status_message(status));
    onnxfuse_status_free(status);
}

static CompiledSection *sections_of(Bytes bytes) {
    return (CompiledSection *)(void *)((char *)bytes.data + sizeof(CompiledHeader));
}

/* Checksums as they would be if somebody meant it. */
static void seal(Bytes bytes) {
    CompiledHeader *header = bytes.data;
    CompiledSection *sections = sections_of(bytes);
    for (int i = 0; i < PARTS; i++)
        sections[i].checksum = compiled_checksum((char *)bytes.data + sections[i].at, sections[i].bytes);
    header->checksum = 0;
    header->checksum = compiled_checksum(bytes.data, sizeof *header + PARTS * sizeof *sections);
}

static void replace_in_about(Bytes bytes, const char *from, const char *to) {
    CompiledSection *about = &sections_of(bytes)[PART_ABOUT];
    char *at = memmem((char *)bytes.data + about->at, about->bytes, from, strlen(from));
    cr_assert(at && strlen(from) == strlen(to), "%s", from);
    memcpy(at, to, strlen(to));
    seal(bytes);
}

Test(compiled, what_does_not_fit_is_refused_with_its_reason) {
    Bytes bytes = compiled_of(&rows[1], &quiet);
    CompiledHeader *header = bytes.data;
    char version[sizeof header->version];
    expect(bytes, &quiet, ONNXFUSE_OK, NULL, "as it is");
    memcpy(version, header->version, sizeof version);
    snprintf(header->version, sizeof header->version, "0.0.7");
    expect(bytes, &quiet, ONNXFUSE_USAGE, "onnxfuse 0.0.7", "another version");
    memcpy(header->version, version, sizeof version);
    header->format++;
    expect(bytes, &quiet, ONNXFUSE_USAGE, "compile it again", "another format");
    header->format--;
    OnnxfuseOptions other = quiet;
    other.device = "opencl";
    expect(bytes, &other, ONNXFUSE_USAGE, "device cpu, not opencl", "another device");
    const char *target = strstr((char *)bytes.data + sections_of(bytes)[PART_ABOUT].at, "\"target\":\"") + 10;
    char level[32], wrong[32];
    snprintf(level, sizeof level, "%.*s", (int)strcspn(target, "\""), target);
    snprintf(wrong, sizeof wrong, "%s", level);
    wrong[strlen(wrong) - 1] = '9';
    replace_in_about(bytes, level, wrong);
    expect(bytes, &quiet, ONNXFUSE_USAGE, "another processor", "another processor");
    replace_in_about(bytes, wrong, level);
    replace_in_about(bytes, "\"tiles\":\"", "\"tales\":\"");
    expect(bytes, &quiet, ONNXFUSE_INVALID, "about", "no tiles");
    replace_in_about(bytes, "\"tales\":\"", "\"tiles\":\"");
    const char *tiles = strstr((char *)bytes.data + sections_of(bytes)[PART_ABOUT].at, "\"tiles\":\"");
    snprintf(level, sizeof level, "%.*s", (int)strcspn(tiles + 9, "\"") + 9, tiles);
    snprintf(wrong, sizeof wrong, "%s", level);
    wrong[strlen(wrong) - 1]++;
    replace_in_about(bytes, level, wrong);
    expect(bytes, &quiet, ONNXFUSE_USAGE, "packed for", "another instruction set");
    onnxfuse_free(bytes.data);
}

Test(compiled, policies) {
    static const struct {
        const char *made, *given, *word; /* word NULL: fits */
    } cases[] = {
        {"{}", "{\"threads\": 1, \"seed\": 5, \"cache\": {\"enable\": false}, \"memory_limit_megabytes\": 500}", NULL},
        {"{}", "{\"fusion\": {\"enable\": true}}", NULL},
        {"{}", "{\"fusion\": {\"enable\": false}}", "fusion.enable"},
        {"{\"fusion\": {\"enable\": false}}", "{}", NULL},
        {"{\"fusion\": {\"enable\": false}}", "{\"threads\": 2, \"fusion\": {\"enable\": false}}", NULL},
        {"{\"fusion\": {\"enable\": false}}", "{\"fusion\": {\"enable\": true}}", "fusion.enable"},
        {"{\"fusion\": {\"max_region_nodes\": 5}}", "{\"fusion\": {\"max_region_nodes\": 6}}", "max_region_nodes"},
        {"{\"threads\": 2}", "{\"deterministic\": true}", "deterministic"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OnnxfuseOptions made = {.size = sizeof made, .policy_json = cases[i].made},
                        given = {.size = sizeof given, .policy_json = cases[i].given};
        Bytes bytes = compiled_of(&rows[0], &made);
        expect(bytes, NULL, ONNXFUSE_OK, NULL, cases[i].made);
        expect(bytes, &given, cases[i].word ? ONNXFUSE_USAGE : ONNXFUSE_OK, cases[i].word, cases[i].given);
        onnxfuse_free(bytes.data);
    }
}

/* --- damage
 * ----------------------------------------------------------------------------------------------------------- */
static const CompiledSection *section_at(Bytes bytes, size_t at) {
    for (int i = 0; i < PARTS; i++) {
        const CompiledSection *s = &sections_of(bytes)[i];
        if (at >= s->at && at < s->at + s->bytes) return s;
    }
    return NULL;
}

Test(compiled, cut_and_altered_files_are_refused) {
    Bytes bytes = compiled_of(&rows[1], &quiet);
    for (size_t size = 9; size <= bytes.size; size += bytes.size - size > 61 ? 61 : 1) {
        char *cut = malloc(size);
        memcpy(cut, bytes.data, size);
        expect((Bytes){cut, size - 1}, &quiet, ONNXFUSE_INVALID, NULL, "cut");
        free(cut);
    }
    unsigned char *data = bytes.data;
    size_t table = sizeof(CompiledHeader) + PARTS * sizeof(CompiledSection);
    for (size_t at = 12; at < bytes.size; at += at < table ? 1 : 7) { /* behind magic and format */
        const CompiledSection *s = section_at(bytes, at);
        if (at >= table && (!s || s >= sections_of(bytes) + PART_CONSTANTS)) continue;
        data[at] ^= (unsigned char)(1 << at % 8);
        OnnxfuseStatus status = open_bytes(bytes, &quiet);
        OnnxfuseCode code = onnxfuse_status_code(status);
        bool in_version = at >= offsetof(CompiledHeader, version) && at < sizeof(CompiledHeader);
        cr_expect(code == ONNXFUSE_INVALID || (code == ONNXFUSE_USAGE && in_version), "byte %zu: %s", at,
                  onnxfuse_status_message(status));
        if (at >= table) cr_expect(strstr(onnxfuse_status_message(status), s->name), "byte %zu", at);
        onnxfuse_status_free(status);
        data[at] ^= (unsigned char)(1 << at % 8);
    }
    expect(bytes, &quiet, ONNXFUSE_OK, NULL, "whole again");
    onnxfuse_free(bytes.data);
}

/* Weights are checked when somebody asks. */
Test(compiled, altered_weights_are_found_by_a_check) {
    Bytes bytes = compiled_of(&rows[2], &quiet);
    Arena *arena = arena_create(0);
    for (int part = 0; part < PARTS; part++) {
        CompiledSection s = sections_of(bytes)[part];
        Compiled compiled;
        ok(compiled_read(arena, bytes.data, bytes.size, &compiled), s.name);
        ok(compiled_check(&compiled), s.name);
        cr_assert(s.bytes > 0, "%s is empty", s.name);
        ((char *)bytes.data)[s.at + s.bytes / 2] ^= 4;
        OnnxfuseStatus status = compiled_check(&compiled);
        cr_expect(status && strstr(onnxfuse_status_message(status), s.name), "%s", s.name);
        onnxfuse_status_free(status);
        ((char *)bytes.data)[s.at + s.bytes / 2] ^= 4;
    }
    arena_destroy(arena);
    onnxfuse_free(bytes.data);
}

/* With checksums that fit: nothing but the machine code itself is taken on trust. Not run, as its numbers are wrong. */
Test(compiled, altered_models_do_no_harm_when_they_open) {
    for (int row = 0; row < ROWS; row++) {
        Bytes bytes = compiled_of(&rows[row], &quiet);
        CompiledSection model = sections_of(bytes)[PART_MODEL];
        unsigned char *data = (unsigned char *)bytes.data + model.at;
        for (size_t at = 0; at < model.bytes; at += 1 + model.bytes / 600) {
            unsigned char was = data[at];
            data[at] ^= (unsigned char)(1 << (at + (size_t)row) % 8);
            seal(bytes);
            onnxfuse_status_free(open_bytes(bytes, &quiet));
            data[at] = was;
        }
        onnxfuse_free(bytes.data);
    }
}

/* --- sharing
 * ---------------------------------------------------------------------------------------------------------- */
static void *open_and_run(void *path) {
    OnnxfuseSession *session;
    for (int i = 0; i < 10; i++) {
        OnnxfuseStatus status = onnxfuse_session_open(path, &quiet, &session);
        if (status) return status;
        char *results[MOST_VALUES] = {NULL};
        run(session, rows[1].inputs, results);
        free(results[0]);
        onnxfuse_session_close(session);
    }
    return NULL;
}

Test(compiled, sessions_of_one_file_at_once, .init = make_folder, .fini = remove_folder) {
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    ok(onnxfuse_compile(model_path, &quiet, compiled_path, NULL), "compile");
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, open_and_run, compiled_path);
    for (int i = 0; i < THREADS; i++) {
        void *status;
        pthread_join(threads[i], &status);
        ok(status, "thread");
    }
    onnxfuse_trim(NULL);
}

/* Kilobytes of the file's mappings in this process, by the name of the counter. */
static long mapped(const char *path, const char *counter) {
    char line[512];
    long total = 0, number;
    bool ours = false;
    FILE *maps = fopen("/proc/self/smaps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        if (strchr(line, '-') && strchr(line, ' ') && !strstr(line, "kB")) ours = strstr(line, path) != NULL;
        if (ours && strncmp(line, counter, strlen(counter)) == 0 &&
            sscanf(line + strlen(counter), ": %ld", &number) == 1)
            total += number;
    }
    if (maps) fclose(maps);
    return total;
}

Test(compiled, processes_share_the_pages, .init = make_folder, .fini = remove_folder) {
    int ready[2], done[2];
    char byte = 0;
    ok(onnxfuse_compile(model_path, &quiet, compiled_path, NULL), "compile");
    cr_assert(pipe(ready) == 0 && pipe(done) == 0);
    pid_t child = fork();
    if (!child) {
        OnnxfuseSession *session;
        char *results[MOST_VALUES];
        OnnxfuseStatus status = onnxfuse_session_open(compiled_path, &quiet, &session);
        if (!status) run(session, rows[1].inputs, results);
        if (write(ready[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 1) _exit(2);
        _exit(status != NULL);
    }
    OnnxfuseSession *session;
    char *results[MOST_VALUES];
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    ok(onnxfuse_session_open(compiled_path, &quiet, &session), "parent");
    run(session, rows[1].inputs, results);
    cr_expect_eq(mapped(compiled_path, "Private_Dirty"), 0);
    cr_expect(mapped(compiled_path, "Shared_Clean") >= 8, "%ld kB are shared", mapped(compiled_path, "Shared_Clean"));
    onnxfuse_session_close(session);
    cr_expect_eq(mapped(compiled_path, "Size"), 0);
    free(results[0]);
    int status;
    cr_assert(write(done[1], &byte, 1) == 1 && waitpid(child, &status, 0) == child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
