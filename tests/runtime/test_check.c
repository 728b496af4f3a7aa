/* SPDX-License-Identifier: Apache-2.0 */
/* What embedders ask before they open a session, and weights that they hand over in memory. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "models.h"

/* --- operators ------------------------------------------------------------------------------------------------- */
Test(check, operators) {
    static const struct {
        const char *domain, *name;
        int opset;
        bool there;
    } rows[] = {
        {"", "Relu", 14, true},         {"ai.onnx", "Relu", 21, true},    {"", "Relu", 0, false},
        {"", "NoSuchThing", 21, false}, {"elsewhere", "Relu", 21, false}, {"ai.onnx.ml", "Scaler", 1, true},
        {"", "Gelu", 19, false},        {"", "Gelu", 20, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(onnxfuse_has_operator(rows[i].domain, rows[i].name, rows[i].opset), rows[i].there, "%s.%s-%d",
                     rows[i].domain, rows[i].name, rows[i].opset);
}

/* --- models ---------------------------------------------------------------------------------------------------- */
static const struct {
    const char *must, *model, *policy, *node, *message;
    OnnxfuseCode code;
} checks[] = {
    {"a model that can be run", "graph (x: f32[n]) -> (y) {\ny = onnx Relu@21 x\n}\n", NULL, NULL, NULL, ONNXFUSE_OK},
    {"the second node is to blame",
     "graph (x: f32[n]) -> (z) {\ny = onnx Relu@21 x  # from first\nz = onnx NoSuchThing@21 y  # from second\n}\n",
     NULL, "second", "NoSuchThing", ONNXFUSE_UNSUPPORTED},
    {"an operator that is there, on types that it is not there for",
     "graph (x: string[n]) -> (z) {\nz = onnx Relu@21 x  # from only\n}\n", NULL, "only", "only", ONNXFUSE_INVALID},
    {"the policy is read", "graph (x: f32[n]) -> (y) {\ny = onnx Relu@21 x\n}\n", "{\"nonsense\": 1}", NULL, "nonsense",
     ONNXFUSE_INVALID},
};

Test(check, models) {
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        size_t size;
        char *node = (char *)checks;
        void *bytes = model_bytes(checks[i].model, &size);
        OnnxfuseOptions options = {.policy_json = checks[i].policy};
        OnnxfuseStatus status = onnxfuse_check_memory(bytes, size, NULL, &options, &node);
        cr_expect_eq(onnxfuse_status_code(status), checks[i].code, "%s: %s", checks[i].must,
                     onnxfuse_status_message(status));
        if (checks[i].message)
            cr_expect(strstr(onnxfuse_status_message(status), checks[i].message), "%s: %s", checks[i].must,
                      onnxfuse_status_message(status));
        cr_expect_eq(node == NULL, checks[i].node == NULL, "%s: %s", checks[i].must, node);
        if (node && checks[i].node) cr_expect_str_eq(node, checks[i].node, "%s", checks[i].must);
        onnxfuse_free(node);
        onnxfuse_status_free(status);
        status = onnxfuse_check_memory(bytes, size, NULL, &options, NULL);
        cr_expect_eq(onnxfuse_status_code(status), checks[i].code, "%s, nobody asks for the node", checks[i].must);
        onnxfuse_status_free(status);
        free(bytes);
    }
}

Test(check, no_model) {
    char *node;
    OnnxfuseStatus status = onnxfuse_check_memory("\x7fnonsense", 9, NULL, NULL, &node);
    cr_expect_eq(onnxfuse_status_code(status), ONNXFUSE_INVALID);
    cr_expect_null(node);
    onnxfuse_status_free(status);
}

/* --- weights in memory ----------------------------------------------------------------------------------------- */
/* w, f32 [2], is an output; its data is in the file "memory". */
static const char external[] = "\x08\x0a"
                               "\x3a\x2d"
                               "\x2a\x1d\x08\x02\x10\x01\x42\x01w\x6a\x12\x0a\x08location\x12\x06memory\x70\x01"
                               "\x12\x01g"
                               "\x62\x09\x0a\x01w\x12\x04\x0a\x02\x08\x01"
                               "\x42\x02\x10\x15";

typedef struct HandedOver {
    float numbers[2];
    size_t size;
    bool known;
} HandedOver;

static const void *hand_over(void *user, const char *location, size_t *out_size) {
    HandedOver *memory = user;
    if (!memory->known || strcmp(location, "memory") != 0) return NULL;
    *out_size = memory->size;
    return memory->numbers;
}

Test(check, weights_in_memory_are_copied) {
    HandedOver memory = {{3, 4}, 8, true};
    OnnxfuseOptions options = {.external_data = hand_over, .external_data_user = &memory};
    OnnxfuseSession *session;
    cr_assert_null(onnxfuse_check_memory(external, sizeof external - 1, NULL, &options, NULL));
    cr_assert_null(onnxfuse_session_open_memory(external, sizeof external - 1, NULL, &options, &session));
    memory.numbers[0] = memory.numbers[1] = -1;
    char *problem = run_and_compare(session, NULL, (const char *const[]){"f32[2] {3, 4}"});
    cr_expect_null(problem, "%s", problem);
    free(problem);
    onnxfuse_session_close(session);
}

Test(check, weights_in_memory_that_do_not_fit) {
    static const struct {
        HandedOver memory;
        const char *message;
    } rows[] = {{{{3, 4}, 7, true}, "ends after"}, {{{3, 4}, 8, false}, "no folder"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        HandedOver memory = rows[i].memory;
        OnnxfuseOptions options = {.external_data = hand_over, .external_data_user = &memory};
        OnnxfuseSession *session = NULL;
        OnnxfuseStatus status = onnxfuse_session_open_memory(external, sizeof external - 1, NULL, &options, &session);
        cr_expect_eq(onnxfuse_status_code(status), ONNXFUSE_INVALID);
        cr_expect(strstr(onnxfuse_status_message(status), rows[i].message), "%s", onnxfuse_status_message(status));
        onnxfuse_status_free(status);
    }
}
