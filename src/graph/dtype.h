/* SPDX-License-Identifier: Apache-2.0 */
/* Element types. The numbers are those of the ONNX standard (TensorProto.DataType). */
#ifndef ONNXFUSE_GRAPH_DTYPE_H
#define ONNXFUSE_GRAPH_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(enumerator, ONNX number, name in text form, bytes in memory, class)
 * The 4-bit and 2-bit types are held one element a byte in memory (sign-extended where signed); files pack them. */
#define DTYPES(X)                                                                                                      \
    X(DT_NONE, 0, "none", 0, 0)                                                                                        \
    X(DT_F32, 1, "f32", 4, DTYPE_FLOAT)                                                                                \
    X(DT_U8, 2, "u8", 1, DTYPE_UNSIGNED)                                                                               \
    X(DT_I8, 3, "i8", 1, DTYPE_SIGNED)                                                                                 \
    X(DT_U16, 4, "u16", 2, DTYPE_UNSIGNED)                                                                             \
    X(DT_I16, 5, "i16", 2, DTYPE_SIGNED)                                                                               \
    X(DT_I32, 6, "i32", 4, DTYPE_SIGNED)                                                                               \
    X(DT_I64, 7, "i64", 8, DTYPE_SIGNED)                                                                               \
    X(DT_STRING, 8, "string", sizeof(StringView), DTYPE_OTHER)                                                         \
    X(DT_BOOL, 9, "bool", 1, DTYPE_LOGICAL)                                                                            \
    X(DT_F16, 10, "f16", 2, DTYPE_FLOAT)                                                                               \
    X(DT_F64, 11, "f64", 8, DTYPE_FLOAT)                                                                               \
    X(DT_U32, 12, "u32", 4, DTYPE_UNSIGNED)                                                                            \
    X(DT_U64, 13, "u64", 8, DTYPE_UNSIGNED)                                                                            \
    X(DT_C64, 14, "c64", 8, DTYPE_OTHER)                                                                               \
    X(DT_C128, 15, "c128", 16, DTYPE_OTHER)                                                                            \
    X(DT_BF16, 16, "bf16", 2, DTYPE_FLOAT)                                                                             \
    X(DT_F8E4M3FN, 17, "f8e4m3fn", 1, DTYPE_FLOAT)                                                                     \
    X(DT_F8E4M3FNUZ, 18, "f8e4m3fnuz", 1, DTYPE_FLOAT)                                                                 \
    X(DT_F8E5M2, 19, "f8e5m2", 1, DTYPE_FLOAT)                                                                         \
    X(DT_F8E5M2FNUZ, 20, "f8e5m2fnuz", 1, DTYPE_FLOAT)                                                                 \
    X(DT_U4, 21, "u4", 1, DTYPE_UNSIGNED)                                                                              \
    X(DT_I4, 22, "i4", 1, DTYPE_SIGNED)                                                                                \
    X(DT_F4E2M1, 23, "f4e2m1", 1, DTYPE_FLOAT)                                                                         \
    X(DT_F8E8M0, 24, "f8e8m0", 1, DTYPE_FLOAT)                                                                         \
    X(DT_U2, 25, "u2", 1, DTYPE_UNSIGNED)                                                                              \
    X(DT_I2, 26, "i2", 1, DTYPE_SIGNED)

typedef enum DTypeClass { DTYPE_OTHER, DTYPE_FLOAT, DTYPE_SIGNED, DTYPE_UNSIGNED, DTYPE_LOGICAL } DTypeClass;

typedef struct StringView {
    const char *data; /* not terminated; borrowed from the tensor's owner */
    size_t size;      /* bytes */
} StringView;

typedef enum DType {
#define X(enumerator, number, ...) enumerator = number,
    DTYPES(X)
#undef X
        DTYPE_COUNT = 27
} DType;

const char *dtype_name(DType dtype);                  /* "f32"; "none" for numbers that are no type */
DType dtype_from_name(const char *name, size_t size); /* DT_NONE when unknown */
const char *dtype_onnx_name(DType dtype);             /* "float32", as numpy and the ONNX documentation call it */
size_t dtype_size(DType dtype);                       /* bytes an element takes in memory */
DTypeClass dtype_class(DType dtype);
static inline bool dtype_is_float(DType t) { return dtype_class(t) == DTYPE_FLOAT; }
static inline bool dtype_is_integer(DType t) {
    return dtype_class(t) == DTYPE_SIGNED || dtype_class(t) == DTYPE_UNSIGNED;
}
/* What sums of products of such elements are: i32 of 8-bit integers, else the elements' own type. */
static inline DType dtype_of_sums(DType t) { return dtype_is_integer(t) && dtype_size(t) == 1 ? DT_I32 : t; }
int dtype_file_bits(DType dtype); /* bits an element takes in a file: 4 for i4, 2 for u2, else 8 * dtype_size */
/* The f8 and f4 types and integers of fewer than 8 bits. Nothing is computed in them: they are moved, selected and cast. */
static inline bool dtype_is_small(DType t) {
    return dtype_size(t) == 1 && (dtype_is_float(t) || (dtype_is_integer(t) && dtype_file_bits(t) < 8));
}
/* The type of bytes that are the codes of such elements; else the type itself. */
static inline DType dtype_of_code(DType t) {
    if (!dtype_is_small(t)) return t;
    return dtype_class(t) == DTYPE_SIGNED ? DT_I8 : DT_U8;
}

/* Conversions of the narrow floats; to-nearest-even. `saturate` as in ONNX Cast: out of range gives the largest finite
 * value instead of infinity or NaN (f8 types only). */
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);
/* Formats of one sign bit, exponent and mantissa. FNUZ formats have neither -0 nor infinity; their one NaN is the code
 * of -0. */
typedef struct SmallFloat {
    int mantissa_bits, bias;
    uint8_t sign;    /* the sign's bit */
    uint8_t largest; /* code of the largest finite value */
    uint8_t beyond;  /* code of what is larger, unless saturated: infinity, NaN, or the largest value */
    uint8_t nan;
    bool unsigned_nan; /* FNUZ: the sign is dropped from zero and NaN */
} SmallFloat;
const SmallFloat *small_float(DType dtype);          /* of the f8 and f4 types but f8e8m0; else NULL */
float small_float_to_f32(DType dtype, uint8_t bits); /* the f8 and f4 types */
uint8_t f32_to_small_float(DType dtype, float value, bool saturate);
/* The `round_mode` of ONNX Cast-24 for f8e8m0, a power of two without sign; f32_to_small_float rounds up, Cast's
 * default. */
typedef enum PowerRounding { POWER_UP, POWER_DOWN, POWER_NEAREST } PowerRounding;
uint8_t f32_to_f8e8m0(float value, bool saturate, PowerRounding rounding);

/* One element of a number or bool tensor as double or as int64 and back; conversions as C's where defined, saturating
 * to the target's range where C leaves them undefined. Not for strings and complex numbers. */
double dtype_load_double(DType dtype, const void *data, int64_t index);
int64_t dtype_load_int(DType dtype, const void *data, int64_t index); /* floats are truncated; u64 keeps its bits */
void dtype_store_double(DType dtype, void *data, int64_t index, double value);
void dtype_store_int(DType dtype, void *data, int64_t index, int64_t value);

#endif
