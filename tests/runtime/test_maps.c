/* SPDX-License-Identifier: Apache-2.0 */
/* Maps through sessions: as inputs and results, in branches, and what is said where they do not fit. */
#include "models.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPSETS "opset 21\nopset \"ai.onnx.ml\" 1\n"
#define ML "onnx \"ai.onnx.ml\" "

static const struct {
    const char *name, *model, *inputs[2], *outputs[3];
} results[] = {
    {"a classifier's end",
     "graph (x: f32[n, 2]) -> (z, y) {\n  y = onnx Softmax@21 x\n  z = " ML
     "ZipMap@1 y {classlabels_strings = [\"dog\", \"cat\"]}\n}\n",
     {"f32[2, 2] {0, 0, 5, 5}"},
     {"seq map string[2] {\"dog\", \"cat\"} to f32[2] {0.5, 0.5} | map string[2] {\"cat\", \"dog\"} to f32[2] {0.5, "
      "0.5}",
      "f32[2, 2] {0.5, 0.5, 0.5, 0.5}"}},
    {"two outputs of one value, which is an input's rows",
     "graph (x: f32[n]) -> (z as a, z as b) {\n  z = " ML "ZipMap@1 x {classlabels_int64s = [7, -1]}\n}\n",
     {"f32[2] {1, 2}"},
     {"seq map i64[2] {-1, 7} to f32[2] {2, 1}", "seq map i64[2] {-1, 7} to f32[2] {2, 1}"}},
    {"a map as it is, and what is made of it",
     "graph (m: map(string, f32[*])) -> (m as same, y) {\n  y = " ML
     "DictVectorizer@1 m {string_vocabulary = [\"a\", \"b\"]}\n}\n",
     {"map string[2] {\"c\", \"b\"} to f32[2] {1, 2}"},
     {"map string[2] {\"b\", \"c\"} to f32[2] {2, 1}", "f32[1, 2] {0, 2}"}},
    {"a map that a branch captures",
     "graph (c: bool[], m: map(i64, f32[*])) -> (y) {\n"
     "  y = onnx If@21 c, m captures 1 graph \"yes\" (m: map(i64, f32[*])) -> (a) {\n    a = " ML
     "CastMap@1 m {cast_to = \"TO_INT64\"}\n  } graph \"no\" (m: map(i64, f32[*])) -> (b2) {\n    b = " ML
     "DictVectorizer@1 m {int64_vocabulary = [1]}\n    b2 = onnx Cast@21 b {to = 7}\n  }\n}\n",
     {"bool[] true", "map i64[3] {2, 1, 0} to f32[3] {1.5, 2.5, 3.5}"},
     {"i64[1, 3] {3, 2, 1}"}},
    {"a map without entries has values of any type",
     "graph (m: map(i64, f32[*]), s: map(i64, string[*])) -> (a, b, c) {\n  a = " ML "CastMap@1 m\n  b = " ML
     "CastMap@1 s {map_form = \"SPARSE\", max_map = 2}\n  c = " ML "DictVectorizer@1 s {int64_vocabulary = [4]}\n}\n",
     {"map i64[0] {} to f64[0] {}", "map i64[0] {} to f32[0] {}"},
     {"f32[1, 0] {}", "f32[1, 2] {0, 0}", "string[1, 1] {\"\"}"}},
    {"a sequence of maps passes through",
     "graph (s: mapseq(i64, string[*])) -> (s as same) {\n}\n",
     {"seq map i64[1] {1} to string[1] {\"x\"} | map i64[0] {} to string[0] {}"},
     {"seq map i64[1] {1} to string[1] {\"x\"} | map i64[0] {} to string[0] {}"}},
};

Test(maps, results) {
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        char text[2048];
        snprintf(text, sizeof text, OPSETS "%s", results[i].model);
        OnnxfuseSession *session = must_open(text);
        char *wrong = run_and_compare(session, results[i].inputs, results[i].outputs);
        cr_expect_null(wrong, "%s: %s", results[i].name, wrong);
        free(wrong);
        onnxfuse_session_close(session);
    }
}

static const struct {
    const char *name, *model, *part;
} refused[] = {
    {"arithmetic on a map", "graph (m: map(i64, f32[*])) -> (y) {\n  y = onnx Neg@21 m\n}\n", "\"m\" is not a tensor"},
    {"a sequence's operators on maps", "graph (m: mapseq(i64, f32[*])) -> (y) {\n  y = onnx SequenceLength@21 m\n}\n",
     "input 0 is no sequence"},
    {"a map in a sequence of tensors", "graph (m: map(i64, f32[*])) -> (y) {\n  y = onnx SequenceConstruct@21 m\n}\n",
     "element 0 has another type"},
    {"a map in an optional", "graph (m: map(i64, f32[*])) -> (y) {\n  y = onnx Optional@21 m\n}\n", "maps"},
    {"a sequence of maps where a map is needed",
     "graph (m: mapseq(i64, f32[*])) -> (y) {\n  y = " ML "CastMap@1 m\n}\n", "input 0 is no map"},
    {"branches that give maps of different keys",
     "graph (c: bool[], x: f32[2]) -> (y) {\n"
     "  y = onnx If@21 c, x captures 1 graph \"yes\" (x: f32[2]) -> (a) {\n    a = " ML
     "ZipMap@1 x {classlabels_int64s = [1, 2]}\n  } graph \"no\" (x: f32[2]) -> (b) {\n    b = " ML
     "ZipMap@1 x {classlabels_strings = [\"a\", \"b\"]}\n  }\n}\n",
     "If"},
};

Test(maps, what_is_refused) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char text[2048];
        OnnxfuseSession *session = NULL;
        snprintf(text, sizeof text, OPSETS "%s", refused[i].model);
        OnnxfuseStatus status = open_text(text, NULL, &session);
        cr_expect(status && strstr(onnxfuse_status_message(status), refused[i].part), "%s: %s", refused[i].name,
                  status ? onnxfuse_status_message(status) : "opened");
        onnxfuse_status_free(status);
        onnxfuse_session_close(session);
    }
}

Test(maps, inputs_must_be_as_declared) {
    static const struct {
        const char *input, *part;
    } rows[] = {
        {"f32[1] {1}", "input \"m\": a map is expected"},
        {"seq map i64[1] {1} to f32[1] {1}", "input \"m\": a map is expected"},
        {"map string[1] {\"a\"} to f32[1] {1}", "a map from int64 to float32 is expected, one from string to float32"},
        {"map i64[1] {1} to f64[1] {1}", "one from int64 to float64 was given"},
        {"none", "input \"m\": a map is expected"},
        {NULL, "input \"m\" is missing"},
    };
    OnnxfuseSession *session = must_open(OPSETS "graph (m: map(i64, f32[*])) -> (y) {\n  y = " ML "CastMap@1 m\n}\n"),
                    *sequence = must_open(OPSETS "graph (m: mapseq(i64, f32[*])) -> (m as y) {\n}\n");
    const OnnxfuseValueInfo *info = onnxfuse_session_input(session, 0), *y = onnxfuse_session_output(session, 0),
                            *of_sequence = onnxfuse_session_output(sequence, 0);
    cr_expect(info->kind == ONNXFUSE_PROTO_MAP && info->key == ONNXFUSE_INT64 && info->dtype == ONNXFUSE_FLOAT32);
    cr_expect(y->kind == ONNXFUSE_PROTO_TENSOR && y->key == ONNXFUSE_NONE && y->rank == 2);
    cr_expect(of_sequence->kind == ONNXFUSE_PROTO_SEQUENCE && of_sequence->key == ONNXFUSE_INT64);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *wrong = run_and_compare(session, &rows[i].input, (const char *[]){NULL});
        cr_expect(wrong && strstr(wrong, rows[i].part), "%zu: %s", i, wrong);
        free(wrong);
    }
    char *wrong = run_and_compare(sequence, (const char *[]){"seq f32[1] {1}"}, (const char *[]){NULL});
    cr_expect(wrong && strstr(wrong, "a map is expected in the sequence"), "%s", wrong);
    free(wrong);
    onnxfuse_session_close(session);
    onnxfuse_session_close(sequence);
}
