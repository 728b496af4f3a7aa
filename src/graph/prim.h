/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives: what every operator is decomposed into, what regions consist of, what the evaluator computes.
 * One line a primitive; the verifier, the text form, the evaluator and the lowering all read this table.
 *
 * Types: elementwise primitives take inputs of one shape rule (numpy broadcasting: equal dims, or 1) and, unless said
 * otherwise, one dtype, which is the result's. Integer arithmetic wraps. f16 and bf16 results are those of f32
 * arithmetic rounded (a fused kernel may keep f32 between primitives).
 *
 * X(enumerator, name, class, inputs, comment) */
#ifndef ONNXFUSE_GRAPH_PRIM_H
#define ONNXFUSE_GRAPH_PRIM_H

#include <stdbool.h>
#include <stdint.h>
#include "graph/dtype.h"

#define PRIMS(X)                                                                                                       \
    /* unary; result dtype = input dtype */                                                                            \
    X(PRIM_NEG, "neg", UNARY, 1, "-x; wraps")                                                                          \
    X(PRIM_ABS, "abs", UNARY, 1, "")                                                                                   \
    X(PRIM_SIGN, "sign", UNARY, 1, "-1, 0, 1; NaN stays")                                                              \
    X(PRIM_FLOOR, "floor", UNARY, 1, "identity on integers")                                                           \
    X(PRIM_CEIL, "ceil", UNARY, 1, "")                                                                                 \
    X(PRIM_ROUND, "round", UNARY, 1, "half to even")                                                                   \
    X(PRIM_TRUNC, "trunc", UNARY, 1, "")                                                                               \
    X(PRIM_SQRT, "sqrt", UNARY, 1, "")                                                                                 \
    X(PRIM_RECIPROCAL, "reciprocal", UNARY, 1, "1/x")                                                                  \
    X(PRIM_EXP, "exp", UNARY, 1, "")                                                                                   \
    X(PRIM_LOG, "log", UNARY, 1, "")                                                                                   \
    X(PRIM_LOG1P, "log1p", UNARY, 1, "")                                                                               \
    X(PRIM_EXPM1, "expm1", UNARY, 1, "")                                                                               \
    X(PRIM_SIN, "sin", UNARY, 1, "")                                                                                   \
    X(PRIM_COS, "cos", UNARY, 1, "")                                                                                   \
    X(PRIM_TAN, "tan", UNARY, 1, "")                                                                                   \
    X(PRIM_ASIN, "asin", UNARY, 1, "")                                                                                 \
    X(PRIM_ACOS, "acos", UNARY, 1, "")                                                                                 \
    X(PRIM_ATAN, "atan", UNARY, 1, "")                                                                                 \
    X(PRIM_SINH, "sinh", UNARY, 1, "")                                                                                 \
    X(PRIM_COSH, "cosh", UNARY, 1, "")                                                                                 \
    X(PRIM_TANH, "tanh", UNARY, 1, "")                                                                                 \
    X(PRIM_ASINH, "asinh", UNARY, 1, "")                                                                               \
    X(PRIM_ACOSH, "acosh", UNARY, 1, "")                                                                               \
    X(PRIM_ATANH, "atanh", UNARY, 1, "")                                                                               \
    X(PRIM_ERF, "erf", UNARY, 1, "")                                                                                   \
    X(PRIM_SIGMOID, "sigmoid", UNARY, 1, "1 / (1 + exp(-x))")                                                          \
    X(PRIM_NOT, "not", UNARY, 1, "bool; bitwise complement on integers")                                               \
    X(PRIM_ISNAN, "isnan", TEST, 1, "float -> bool")                                                                   \
    X(PRIM_ISINF, "isinf", TEST, 1, "float -> bool; either sign")                                                      \
    /* binary */                                                                                                       \
    X(PRIM_ADD, "add", BINARY, 2, "")                                                                                  \
    X(PRIM_SUB, "sub", BINARY, 2, "")                                                                                  \
    X(PRIM_MUL, "mul", BINARY, 2, "")                                                                                  \
    X(PRIM_DIV, "div", BINARY, 2, "integers: toward zero; x/0 is 0, so that nothing traps")                            \
    X(PRIM_MOD, "mod", BINARY, 2, "sign of the divisor (Python's %); integers: x mod 0 is 0")                          \
    X(PRIM_FMOD, "fmod", BINARY, 2, "sign of the dividend (C's fmod)")                                                 \
    X(PRIM_POW, "pow", BINARY, 2, "x ** y; y is cast to x's dtype beforehand; integers by repeated squaring")          \
    X(PRIM_MIN, "min", BINARY, 2, "NaN if either is NaN")                                                              \
    X(PRIM_MAX, "max", BINARY, 2, "NaN if either is NaN")                                                              \
    X(PRIM_AND, "and", BINARY, 2, "logical on bool, bitwise on integers")                                              \
    X(PRIM_OR, "or", BINARY, 2, "likewise")                                                                            \
    X(PRIM_XOR, "xor", BINARY, 2, "likewise")                                                                          \
    X(PRIM_SHL, "shl", BINARY, 2, "integers; 0 when the distance reaches the width")                                   \
    X(PRIM_SHR, "shr", BINARY, 2, "integers; arithmetic on signed ones")                                               \
    /* comparisons -> bool */                                                                                          \
    X(PRIM_EQ, "eq", COMPARE, 2, "")                                                                                   \
    X(PRIM_NE, "ne", COMPARE, 2, "true for NaN")                                                                       \
    X(PRIM_LT, "lt", COMPARE, 2, "")                                                                                   \
    X(PRIM_LE, "le", COMPARE, 2, "")                                                                                   \
    X(PRIM_GT, "gt", COMPARE, 2, "")                                                                                   \
    X(PRIM_GE, "ge", COMPARE, 2, "")                                                                                   \
    X(PRIM_WHERE, "where", SELECT, 3, "bool condition, then, else; no arithmetic on the branch not taken")             \
    X(PRIM_CAST, "cast", CAST, 1,                                                                                      \
      "attr to (dtype); float to int toward zero, saturating; to bool: != 0; int saturate=1 for f8; int loose=1: a "   \
      "policy's type, to which what stays in a kernel need not be rounded")                                            \
    X(PRIM_BITCAST, "bitcast", CAST, 1, "attr to, of the same element size")                                           \
    /* no input; shape in attr `shape` (dims) */                                                                       \
    X(PRIM_IOTA, "iota", GENERATE, 0, "attrs shape, int axis, int dtype: the index along axis")                        \
    X(PRIM_PHILOX, "philox", GENERATE, 1,                                                                              \
      "attr shape; input seed u64 scalar: u32 bits at the element's row-major index (Philox4x32-10); int halves=1: "   \
      "of bits that are only compared, two elements share a word")                                                     \
    X(PRIM_DIMS, "dims", GENERATE, 0, "attr shape: an i64 vector holding these sizes; never in a region")              \
    /* reductions over attr ints axes (sorted, non-negative), the axes stay with size 1 */                             \
    X(PRIM_REDUCE_SUM, "reduce_sum", REDUCE, 1, "f16, bf16 accumulate in f32; integers wrap; 0 when empty")            \
    X(PRIM_REDUCE_PROD, "reduce_prod", REDUCE, 1, "1 when empty")                                                      \
    X(PRIM_REDUCE_MAX, "reduce_max", REDUCE, 1, "NaN wins; lowest (-inf, or the least integer) when empty; also bool") \
    X(PRIM_REDUCE_MIN, "reduce_min", REDUCE, 1, "NaN wins; highest when empty; also bool")                             \
    X(PRIM_ARGMAX, "argmax", REDUCE, 1, "one axis; i64; the first, or the last with int last=1; NaN wins")             \
    X(PRIM_ARGMIN, "argmin", REDUCE, 1, "likewise")                                                                    \
    /* movement; values are copied bit for bit, any dtype */                                                           \
    X(PRIM_RESHAPE, "reshape", MOVE, 1, "attr shape; same number of elements")                                         \
    X(PRIM_PERMUTE, "permute", MOVE, 1, "attr ints perm: result axis i is input axis perm[i]")                         \
    X(PRIM_EXPAND, "expand", MOVE, 1, "attr shape, same rank: axes of size 1 are repeated")                            \
    X(PRIM_SLICE, "slice", MOVE, 1,                                                                                    \
      "attrs shape (the result's), dims start, ints step (may be negative): x[start + i*step]; never out of range")    \
    X(PRIM_PAD, "pad", MOVE, 2, "attrs dims before, dims after (negative crops); input 1: the fill, a scalar")         \
    X(PRIM_CONCAT, "concat", MOVE, -1, "attr int axis; 1 and more inputs")                                             \
    X(PRIM_GATHER, "gather", INDEXED, 2,                                                                               \
      "data, indices (i32/i64): data[..., indices, ...] along attr int axis; negative indices count from the end; "    \
      "out of range is an error at run time")                                                                          \
    X(PRIM_GATHER_ELEMENTS, "gather_elements", INDEXED, 2, "as ONNX GatherElements, attr int axis")                    \
    X(PRIM_SCATTER_ELEMENTS, "scatter_elements", INDEXED, 3,                                                           \
      "data, indices, updates; attrs int axis, string reduction none|add|mul|min|max")                                 \
    X(PRIM_SCATTER_ND, "scatter_nd", INDEXED, 3, "as ONNX ScatterND; attr string reduction")

typedef enum PrimClass {
    PRIM_CLASS_NONE,
    PRIM_CLASS_UNARY,
    PRIM_CLASS_TEST,
    PRIM_CLASS_BINARY,
    PRIM_CLASS_COMPARE,
    PRIM_CLASS_SELECT,
    PRIM_CLASS_CAST,
    PRIM_CLASS_GENERATE,
    PRIM_CLASS_REDUCE,
    PRIM_CLASS_MOVE,
    PRIM_CLASS_INDEXED,
} PrimClass;

typedef enum Prim {
    PRIM_NONE,
#define X(enumerator, ...) enumerator,
    PRIMS(X)
#undef X
        PRIM_COUNT
} Prim;

typedef struct PrimInfo {
    const char *name;
    PrimClass klass;
    int inputs; /* -1: one or more */
} PrimInfo;

const PrimInfo *prim_info(Prim prim);
Prim prim_from_name(const char *name); /* PRIM_NONE when unknown */
/* Elementwise: UNARY, TEST, BINARY, COMPARE, SELECT, CAST. */
static inline int prim_is_elementwise(Prim prim) {
    PrimClass c = prim_info(prim)->klass;
    return c >= PRIM_CLASS_UNARY && c <= PRIM_CLASS_CAST;
}

static inline int prim_is_scatter(Prim prim) { return prim == PRIM_SCATTER_ELEMENTS || prim == PRIM_SCATTER_ND; }

/* Whether the primitive computes on this dtype (of its arithmetic inputs: the branches of `where`, the data of
 * `gather`). */
bool prim_accepts(Prim prim, DType dtype);

/* Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), key = seed. A counter gives
 * four words; 64 elements in a row take 16 counters, word by word: element i has counter i / 64 * 16 + i % 16 and word
 * i / 16 % 4. So vectors of up to 16 lanes compute all four words of their counters at once and lose none. The one
 * definition that evaluator, folding and tests use; kernels compute the same. */
uint32_t philox_u32(uint64_t seed, uint64_t index);

/* Bits that are only compared with a bound, for half the work: elements 2i and 2i + 1 share a word, the second with its
 * halves swapped, so 64 elements in a row take 8 counters. Each element alone is as uniform as a word; one tells of the
 * other only where its upper half equals the bound's, once in 65,536. Not for numbers: those of a pair would be the same
 * bits in another order. */
uint32_t philox_half_u32(uint64_t seed, uint64_t index);

/* Where philox_u32 has the word of that element. */
static inline uint64_t philox_half_place(uint64_t index) {
    return index >> 7 << 6 | (index >> 6 & 1) << 3 | (index & 0x30) | (index & 15) >> 1;
}

/* Elements in a row that share counters; multipliers and Weyl increments: table 2 and section 4 of the paper. */
enum { PHILOX_ROUNDS = 10, PHILOX_GROUP = 64, PHILOX_COUNTERS = 16 };
#define PHILOX_FACTOR_0 0xD2511F53u
#define PHILOX_FACTOR_1 0xCD9E8D57u
#define PHILOX_STEP_0 0x9E3779B9u
#define PHILOX_STEP_1 0xBB67AE85u

#endif
