/* SPDX-License-Identifier: Apache-2.0 */
/* Values in device memory and DLPack, through the public interface: a producer that hands its arrays on as array
 * libraries do, and a consumer. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models.h"

static void expect_error(OnnxfuseStatus status, OnnxfuseCode code, const char *part, const char *name) {
    cr_expect(status && onnxfuse_status_code(status) == code && strstr(onnxfuse_status_message(status), part),
              "%s: code %d, expected %d; \"%s\" should hold \"%s\"", name, onnxfuse_status_code(status), code,
              onnxfuse_status_message(status), part);
    onnxfuse_status_free(status);
}

/* --- the producer: an array that is kept as long as a structure is out ------------------------------------------- */
typedef struct Array {
    OnnxfuseDlpack dlpack;
    int64_t shape[3], strides[3];
    int deleted;
} Array;

static void delete_array(OnnxfuseDlpack *self) { ((Array *)self->manager)->deleted++; }

static OnnxfuseDlpack *hand_on(Array *a, void *data, int code, int bits, int rank, const int64_t *shape,
                               const int64_t *strides) {
    *a = (Array){.dlpack = {.version = {1, 0}, .manager = a, .deleter = delete_array}};
    memcpy(a->shape, shape, sizeof *shape * (size_t)rank);
    if (strides) memcpy(a->strides, strides, sizeof *strides * (size_t)rank);
    a->dlpack.tensor.data = data;
    a->dlpack.tensor.device.type = 1;
    a->dlpack.tensor.rank = rank;
    a->dlpack.tensor.dtype.code = (uint8_t)code;
    a->dlpack.tensor.dtype.bits = (uint8_t)bits;
    a->dlpack.tensor.dtype.lanes = 1;
    a->dlpack.tensor.shape = a->shape;
    a->dlpack.tensor.strides = strides ? a->strides : NULL;
    return &a->dlpack;
}

static float numbers[24] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24};

Test(dlpack, views_of_an_array) {
    static const struct {
        const char *name;
        int rank;
        int64_t shape[3], strides[3];
        bool has_strides;
        uint64_t offset; /* bytes */
        const char *text;
        bool copied;
    } rows[] = {
        {"dense without strides", 2, {2, 3}, {0}, false, 0, "f32[2, 3] {1, 2, 3, 4, 5, 6}", false},
        {"dense with strides", 2, {2, 3}, {3, 1}, true, 0, "f32[2, 3] {1, 2, 3, 4, 5, 6}", false},
        {"an axis of size 1 may have any stride",
         3,
         {2, 1, 3},
         {3, 99, 1},
         true,
         0,
         "f32[2, 1, 3] {1, 2, 3, 4, 5, 6}",
         false},
        {"at an offset", 1, {2}, {1}, true, 8, "f32[2] {3, 4}", false},
        {"transposed", 2, {3, 2}, {1, 3}, true, 0, "f32[3, 2] {1, 4, 2, 5, 3, 6}", true},
        {"every other row", 2, {2, 2}, {6, 1}, true, 0, "f32[2, 2] {1, 2, 7, 8}", true},
        {"backwards", 1, {3}, {-1}, true, 8, "f32[3] {3, 2, 1}", true},
        {"broadcast", 2, {2, 3}, {0, 1}, true, 0, "f32[2, 3] {1, 2, 3, 1, 2, 3}", true},
        {"a scalar", 0, {0}, {0}, false, 4, "f32[] 2", false},
        {"no elements", 2, {0, 3}, {7, 7}, true, 0, "f32[0, 3] {}", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Array array;
        OnnxfuseValue *value = NULL;
        OnnxfuseDlpack *d =
            hand_on(&array, numbers, 2, 32, rows[i].rank, rows[i].shape, rows[i].has_strides ? rows[i].strides : NULL);
        d->tensor.byte_offset = rows[i].offset;
        OnnxfuseStatus status = onnxfuse_value_from_dlpack(d, &value);
        cr_assert(!status, "%s: %s", rows[i].name, onnxfuse_status_message(status));
        OnnxfuseValue *want = value_from(rows[i].text);
        char *got_text = value_text(value), *want_text = value_text(want);
        cr_expect_str_eq(got_text, want_text, "%s: %s, expected %s", rows[i].name, got_text, want_text);
        bool inside =
            (float *)onnxfuse_value_data(value) >= numbers && (float *)onnxfuse_value_data(value) < numbers + 24;
        cr_expect(inside == !rows[i].copied || !onnxfuse_value_count(value), "%s", rows[i].name);
        cr_expect(!array.deleted && !onnxfuse_value_is_on_device(value), "%s", rows[i].name);
        onnxfuse_value_free(value);
        cr_expect(array.deleted == 1, "%s: deleted %d times", rows[i].name, array.deleted);
        onnxfuse_value_free(want);
        free(got_text);
        free(want_text);
    }
}

Test(dlpack, unaligned_data_is_copied) {
    Array array;
    OnnxfuseValue *value;
    OnnxfuseDlpack *d = hand_on(&array, (char *)numbers + 1, 2, 32, 1, (int64_t[]){2}, NULL);
    cr_assert(!onnxfuse_value_from_dlpack(d, &value));
    cr_expect(((uintptr_t)onnxfuse_value_data(value) & 3) == 0 &&
              memcmp(onnxfuse_value_data(value), (char *)numbers + 1, 8) == 0);
    onnxfuse_value_free(value);
}

Test(dlpack, all_types_go_there_and_back) {
    static const OnnxfuseDType types[] = {
        ONNXFUSE_FLOAT32,        ONNXFUSE_FLOAT64,    ONNXFUSE_FLOAT16,        ONNXFUSE_BFLOAT16,
        ONNXFUSE_INT8,           ONNXFUSE_INT16,      ONNXFUSE_INT32,          ONNXFUSE_INT64,
        ONNXFUSE_UINT8,          ONNXFUSE_UINT16,     ONNXFUSE_UINT32,         ONNXFUSE_UINT64,
        ONNXFUSE_BOOL,           ONNXFUSE_COMPLEX64,  ONNXFUSE_COMPLEX128,     ONNXFUSE_FLOAT8E4M3FN,
        ONNXFUSE_FLOAT8E4M3FNUZ, ONNXFUSE_FLOAT8E5M2, ONNXFUSE_FLOAT8E5M2FNUZ, ONNXFUSE_FLOAT8E8M0,
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        OnnxfuseValue *value, *back;
        OnnxfuseDlpack *d;
        cr_assert(!onnxfuse_value_tensor(types[i], 2, (int64_t[]){2, 5}, NULL, &value));
        cr_assert(!onnxfuse_value_to_dlpack(value, &d), "%s", onnxfuse_dtype_name(types[i]));
        cr_expect(d->version.major == 1 && d->tensor.rank == 2 && d->tensor.strides[0] == 5 &&
                  d->tensor.dtype.bits == 8 * onnxfuse_dtype_size(types[i]) && d->tensor.device.type == 1);
        cr_assert(!onnxfuse_value_from_dlpack(d, &back), "%s", onnxfuse_dtype_name(types[i]));
        cr_expect(onnxfuse_value_dtype(back) == types[i] && onnxfuse_value_dims(back)[1] == 5);
        onnxfuse_value_free(back); /* calls the deleter, which frees the first value */
    }
}

Test(dlpack, what_cannot_be_handed_on) {
    OnnxfuseDlpack *d = NULL;
    static const char *const texts[] = {"string[1] {\"a\"}", "seq f32[1] {1}", "none", "i4[2] {1, 2}"};
    for (int i = 0; i < 4; i++) {
        OnnxfuseValue *value = value_from(texts[i]);
        OnnxfuseStatus status = onnxfuse_value_to_dlpack(value, &d);
        cr_expect(status && !d, "%s", texts[i]);
        onnxfuse_status_free(status);
        onnxfuse_value_free(value); /* still the caller's */
    }
}

static void wrong_version(OnnxfuseDlpack *d) { d->version.major = 2; }
static void wrong_rank(OnnxfuseDlpack *d) { d->tensor.rank = 17; }
static void negative_rank(OnnxfuseDlpack *d) { d->tensor.rank = -1; }
static void negative_size(OnnxfuseDlpack *d) { d->tensor.shape[0] = -1; }
static void absurd_size(OnnxfuseDlpack *d) { d->tensor.shape[0] = d->tensor.shape[1] = INT64_MAX; }
static void wrong_type(OnnxfuseDlpack *d) { d->tensor.dtype.code = 77; }
static void wrong_bits(OnnxfuseDlpack *d) { d->tensor.dtype.bits = 33; }
static void wrong_lanes(OnnxfuseDlpack *d) { d->tensor.dtype.lanes = 4; }
static void wrong_device(OnnxfuseDlpack *d) { d->tensor.device.type = 8; }
static void no_data(OnnxfuseDlpack *d) { d->tensor.data = NULL; }
static void sparse_device(OnnxfuseDlpack *d) {
    d->tensor.device.type = 2;
    d->tensor.strides[0] = 7;
}

Test(dlpack, wrong_structures_are_errors) {
    static const struct {
        const char *name;
        void (*spoil)(OnnxfuseDlpack *d);
        OnnxfuseCode code;
        const char *part;
    } rows[] = {
        {"a version", wrong_version, ONNXFUSE_UNSUPPORTED, "version 2"},
        {"too many axes", wrong_rank, ONNXFUSE_INVALID, "rank 17"},
        {"a negative rank", negative_rank, ONNXFUSE_INVALID, "rank -1"},
        {"a negative size", negative_size, ONNXFUSE_INVALID, ""},
        {"more bytes than there are", absurd_size, ONNXFUSE_INVALID, ""},
        {"a type", wrong_type, ONNXFUSE_UNSUPPORTED, "77"},
        {"bits", wrong_bits, ONNXFUSE_UNSUPPORTED, "33"},
        {"lanes", wrong_lanes, ONNXFUSE_UNSUPPORTED, "4 lanes"},
        {"a device", wrong_device, ONNXFUSE_UNSUPPORTED, "type 8"},
        {"no data", no_data, ONNXFUSE_INVALID, "without data"},
        {"gaps in device memory", sparse_device, ONNXFUSE_UNSUPPORTED, "dense"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Array array;
        OnnxfuseValue *value = NULL;
        OnnxfuseDlpack *d = hand_on(&array, numbers, 2, 32, 2, (int64_t[]){2, 3}, (int64_t[]){3, 1});
        rows[i].spoil(d);
        expect_error(onnxfuse_value_from_dlpack(d, &value), rows[i].code, rows[i].part, rows[i].name);
        cr_expect(!value && !array.deleted, "%s: the structure is still its maker's", rows[i].name);
    }
}

/* --- sessions
 * ---------------------------------------------------------------------------------------------------------- */
#define MODEL "graph (x: f32[2, 3]) -> (y) {\ny = onnx Neg@21 x\n}"

Test(dlpack, a_session_reads_and_writes_arrays) {
    OnnxfuseSession *session = must_open(MODEL);
    Array in, out;
    float result[6];
    OnnxfuseValue *x, *y;
    int64_t shape[] = {2, 3};
    cr_assert(!onnxfuse_value_from_dlpack(hand_on(&in, numbers, 2, 32, 2, shape, NULL), &x));
    cr_assert(!onnxfuse_value_from_dlpack(hand_on(&out, result, 2, 32, 2, shape, NULL), &y));
    OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const[]){x}, &y);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    for (int i = 0; i < 6; i++) cr_expect(result[i] == -numbers[i]);
    out.dlpack.flags = 1;
    expect_error(onnxfuse_session_run(session, (const OnnxfuseValue *const[]){x}, &y), ONNXFUSE_INVALID, "read-only",
                 "a read-only array");
    onnxfuse_value_free(x);
    onnxfuse_value_free(y);
    onnxfuse_session_close(session);
}

Test(dlpack, device_memory_needs_a_session_on_that_device) {
    OnnxfuseSession *session = must_open(MODEL);
    cr_expect_str_eq(onnxfuse_session_device_name(session), "cpu");
    OnnxfuseValue *there, *here, *y = NULL, *cuda;
    Array array;
    int64_t shape[] = {2, 3};
    cr_assert(!onnxfuse_value_tensor_on_device(ONNXFUSE_FLOAT32, 2, shape, (void *)4096, &there));
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, shape, NULL, &here));
    cr_expect(onnxfuse_value_is_on_device(there) && !onnxfuse_value_is_on_device(here));
    cr_expect(isnan(onnxfuse_value_element(there, 0)) && onnxfuse_value_data(there) == (void *)4096);
    expect_error(onnxfuse_session_run(session, (const OnnxfuseValue *const[]){there}, &y), ONNXFUSE_USAGE, "\"x\"",
                 "an input");
    expect_error(onnxfuse_session_run(session, (const OnnxfuseValue *const[]){here}, &there), ONNXFUSE_USAGE, "\"y\"",
                 "an output");
    OnnxfuseDlpack *d = hand_on(&array, (void *)4096, 2, 32, 2, shape, NULL), *back;
    d->tensor.device.type = 2;
    d->tensor.device.id = 3;
    cr_assert(!onnxfuse_value_from_dlpack(d, &cuda));
    expect_error(onnxfuse_session_run(session, (const OnnxfuseValue *const[]){cuda}, &y), ONNXFUSE_USAGE, "CPU",
                 "a CUDA array");
    cr_assert(!onnxfuse_value_to_dlpack(cuda, &back));
    cr_expect(back->tensor.device.type == 2 && back->tensor.device.id == 3 && back->tensor.data == (void *)4096);
    back->deleter(back);
    cr_expect(array.deleted == 1);
    expect_error(onnxfuse_value_to_dlpack(there, &back), ONNXFUSE_USAGE, "device", "memory of some device");
    OnnxfuseValue *sequence = NULL;
    expect_error(onnxfuse_value_sequence(&there, 1, &sequence), ONNXFUSE_INVALID, "device", "a sequence");
    onnxfuse_value_free(there);
    onnxfuse_value_free(here);
    onnxfuse_session_close(session);
}

Test(dlpack, absurd_device_tensors_are_errors) {
    OnnxfuseValue *value = NULL;
    int64_t huge[] = {INT64_MAX, 2}, two[] = {2};
    expect_error(onnxfuse_value_tensor_on_device(ONNXFUSE_FLOAT32, 2, huge, numbers, &value), ONNXFUSE_INVALID, "",
                 "huge");
    expect_error(onnxfuse_value_tensor_on_device(ONNXFUSE_FLOAT32, 17, huge, numbers, &value), ONNXFUSE_INVALID, "17",
                 "rank");
    expect_error(onnxfuse_value_tensor_on_device((OnnxfuseDType)99, 1, two, numbers, &value), ONNXFUSE_INVALID, "99",
                 "type");
    expect_error(onnxfuse_value_tensor_on_device(ONNXFUSE_STRING, 1, two, numbers, &value), ONNXFUSE_INVALID, "strings",
                 "strings");
    expect_error(onnxfuse_value_tensor_on_device(ONNXFUSE_FLOAT32, 1, two, NULL, &value), ONNXFUSE_INVALID, "8 bytes",
                 "no memory");
    cr_expect(!value);
}
