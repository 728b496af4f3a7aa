/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel IR: one fused region as a scalar program over a small iteration space, with its schedule. Devices render
 * it; it holds no symbol names and no sizes but small constants, so equal regions of any model give the same text,
 * which is the cache key.
 *
 * Axes stand in loop order and each has a role:
 *   TASK         parallel, outermost; tasks are numbered over all TASK axes row-major
 *   LANE         kept, along vector lanes (CPU) or threads (GPU); cut into blocks of `lane_block` elements, each block
 *                a task of its own
 *   REDUCE       a sequential loop inside a task
 *   REDUCE_LANE  reduced, along vector lanes, innermost
 * so that the classes are
 *   pointwise        TASK* LANE
 *   inner reduction  TASK* REDUCE* REDUCE_LANE    (a row a task)
 *   outer reduction  TASK* LANE REDUCE+           (columns in lanes)
 *   transpose        as pointwise, with `tile_axis`: the TASK axis along which some loads are contiguous that are not
 *                    along LANE; it is cut into blocks of `tile_block`, and a task is one tile of tile_block x lane_block
 * There is always exactly one of LANE and REDUCE_LANE (of constant size 1 where the region is a scalar).
 *
 * An outer reduction may run in bands: `band` rows of its REDUCE axis at a time. Then every KERNEL_BAND_BLOCKS blocks of
 * columns have a task a band, whose sums go to scratch memory that all workers share, and every block one that adds these
 * up in the order of the bands. So memory is read row by row, all threads have work, and the result does not depend on
 * their number.
 *
 * An inner reduction may also have sums of columns: stores of what is added up over all TASK axes. Then `band` rows at most are
 * a task, which adds up in scratch memory, and later tasks add the bands up in their order, likewise.
 *
 * A program with reductions runs in stages: stage s loops over all REDUCE and REDUCE_LANE axes, and computes the
 * reductions and stores of that stage; the results of its reductions are ready for stage s + 1. Instructions varying
 * over reduced axes are computed again in each stage that needs them, or, with `keep`, stored in scratch memory in the
 * stage where they stand and read back later. */
#ifndef ONNXFUSE_CODEGEN_KERNEL_H
#define ONNXFUSE_CODEGEN_KERNEL_H

#include "base/arena.h"
#include "base/text.h"
#include "graph/dtype.h"
#include "policy/policy.h"

enum {
    KERNEL_MAX_AXES = 8,
    KERNEL_BAND_BLOCKS = 16,
    KERNEL_BANDS = 128,     /* of an inner reduction: until bands have their full height, no more than this */
    KERNEL_BAND_LEAST = 16, /* and no lower than this */
    KERNEL_SUM_BLOCK = 256, /* elements of its sums that a task adds up */
    KERNEL_NUMBERS = 48,    /* most parameters that are numbers */
    /* lane_block of a kernel in tile form (codegen_tile): more columns than any call has, so a row is a task. Its first buffer is
     * raw results, which are in the first cache. */
    KERNEL_WHOLE_ROW = 1 << 20
};

typedef enum AxisRole { AXIS_TASK, AXIS_LANE, AXIS_REDUCE, AXIS_REDUCE_LANE } AxisRole;

typedef struct KernelAxis {
    AxisRole role;
    int64_t size;     /* when param < 0: the constant size (at least 1) */
    int param;        /* the size is params[param]; may be 0 at run time */
    int64_t multiple; /* a power of two that divides every size (1: nothing known) */
} KernelAxis;

typedef enum StrideKind {
    STRIDE_ZERO, /* does not vary along the axis */
    STRIDE_ONE,
    STRIDE_CONST, /* value */
    STRIDE_PARAM, /* params[value] */
} StrideKind;

/* Element index = offset + sum over axes of stride * axis index. */
typedef struct KernelAccess {
    StrideKind kind[KERNEL_MAX_AXES];
    int64_t stride[KERNEL_MAX_AXES]; /* value of CONST, index of PARAM */
    StrideKind offset_kind;          /* ZERO, CONST or PARAM */
    int64_t offset;
} KernelAccess;

typedef struct KernelBuffer {
    DType dtype; /* as in memory */
    bool output;
} KernelBuffer;

/* Instructions compute in: bool, i8..i64, u8..u64, f32, f64. f16 and bf16 exist in memory alone: a load widens to f32,
 * a store rounds to nearest even. Small types (dtype_is_small) are bytes here (small_types.h).
 * X(enumerator, name, arguments, comment) */
#define KERNEL_OPS(X)                                                                                                  \
    X(K_CONST, "const", 0, "bits: the value (f64 bits for floats, i64 otherwise)")                                     \
    X(K_PARAM, "param", 0,                                                                                             \
      "i64: params[index]; on CPUs also i32 and f32: the number whose bits that is, f32 in [2^-60, 2^60] (divide.h)")  \
    X(K_INDEX, "index", 0, "i64: the index along `axis`")                                                              \
    X(K_LOAD, "load", 0, "buffer, access")                                                                             \
    X(K_STORE, "store", 1,                                                                                             \
      "buffer, access; bits = 1: the sum over the TASK axes, along which the access does not vary; dense")             \
    X(K_ADD, "add", 2, "integers wrap")                                                                                \
    X(K_SUB, "sub", 2, "")                                                                                             \
    X(K_MUL, "mul", 2, "")                                                                                             \
    X(K_DIV, "div", 2,                                                                                                 \
      "floats (bits = 1, f32: by what is the same along the lanes, see divide.h); integers toward zero, x/0 = 0, "     \
      "MIN/-1 = MIN")                                                                                                  \
    X(K_REM, "rem", 2, "integers, C's %, x % 0 = 0, MIN % -1 = 0; floats: C's fmod")                                   \
    X(K_FMA, "fma", 3, "a * b + c rounded once (floats)")                                                              \
    X(K_SCALE, "scale", 2,                                                                                             \
      "a * 2^b rounded once (floats): |a| in [1/4, 4], b whole, |b| <= 160 (f64: 1080); NaN where a is; bits = 1: "    \
      "b is not above 0")                                                                                              \
    X(K_NEG, "neg", 1, "")                                                                                             \
    X(K_ABS, "abs", 1, "floats clear the sign bit")                                                                    \
    X(K_MIN, "min", 2, "floats: a < b ? a : b, so b when either is NaN")                                               \
    X(K_MAX, "max", 2, "floats: a > b ? a : b, likewise")                                                              \
    X(K_SQRT, "sqrt", 1, "")                                                                                           \
    X(K_FLOOR, "floor", 1, "")                                                                                         \
    X(K_CEIL, "ceil", 1, "")                                                                                           \
    X(K_TRUNC, "trunc", 1, "")                                                                                         \
    X(K_RINT, "rint", 1, "half to even")                                                                               \
    X(K_AND, "and", 2, "bits; bool")                                                                                   \
    X(K_OR, "or", 2, "")                                                                                               \
    X(K_XOR, "xor", 2, "")                                                                                             \
    X(K_NOT, "not", 1, "")                                                                                             \
    X(K_SHL, "shl", 2, "0 when the distance is not below the width")                                                   \
    X(K_SHR, "shr", 2, "arithmetic on signed types; distance not below the width: 0, or -1 for negative")              \
    X(K_EQ, "eq", 2, "-> bool; floats ordered")                                                                        \
    X(K_NE, "ne", 2, "floats unordered: true for NaN")                                                                 \
    X(K_LT, "lt", 2, "floats ordered")                                                                                 \
    X(K_LE, "le", 2, "")                                                                                               \
    X(K_GT, "gt", 2, "")                                                                                               \
    X(K_GE, "ge", 2, "")                                                                                               \
    X(K_SELECT, "select", 3, "condition (bool), then, else")                                                           \
    X(K_CAST, "cast", 1, "to dtype: float to int toward zero, saturating, NaN 0; int to int wraps; to bool: != 0")     \
    X(K_BITCAST, "bitcast", 1, "to dtype of the same size")                                                            \
    X(K_ROUND_F16, "round_f16", 1, "f32 rounded to f16 and back")                                                      \
    X(K_ROUND_BF16, "round_bf16", 1, "f32 rounded to bf16 and back")                                                   \
    X(K_RANDOM, "random", 2, "u32: philox_u32 (graph/prim.h) of seed u64 and index u64; bits: RandomBits")             \
    /* reductions over all REDUCE and REDUCE_LANE axes */                                                              \
    X(K_REDUCE_SUM, "reduce_sum", 1, "order free")                                                                     \
    X(K_REDUCE_PROD, "reduce_prod", 1, "")                                                                             \
    X(K_REDUCE_MAX, "reduce_max", 1, "NaN wins; -inf or the least integer when empty")                                 \
    X(K_REDUCE_MIN, "reduce_min", 1, "likewise")                                                                       \
    X(K_REDUCE_ARGMAX, "reduce_argmax", 1,                                                                             \
      "-> i64 row-major index over the reduced axes; first, or last with bits = 1; NaN wins")                          \
    X(K_REDUCE_ARGMIN, "reduce_argmin", 1, "likewise")

typedef enum KernelOp {
#define X(enumerator, ...) enumerator,
    KERNEL_OPS(X)
#undef X
        KERNEL_OP_COUNT
} KernelOp;

/* Of K_RANDOM. CONSECUTIVE: the index grows by one along the lanes; HALVES: philox_half_u32 (graph/prim.h). */
typedef enum RandomBits { RANDOM_CONSECUTIVE = 1, RANDOM_HALVES = 2 } RandomBits;

/* A plan holds thousands of them for each of its kernels, and few have an access: it stands elsewhere. */
typedef struct KernelInst {
    KernelOp op : 8;
    DType dtype : 8;   /* of the result; of the stored value for STORE */
    int axis : 8;      /* INDEX */
    uint32_t axes : 8; /* bit i: varies along axis i */
    int args[3];       /* instruction numbers, smaller than its own */
    int64_t
        bits; /* CONST: the value; PARAM: the index; RANDOM: RandomBits; STORE, DIV, SCALE, ARGMAX, ARGMIN: 1, see there */
    int buffer;           /* LOAD, STORE */
    int stage : 31;       /* the first in which it can be computed; of STORE and reductions: the one that does it */
    bool keep : 1;        /* see above; only for instructions varying along all reduced axes; on CPUs alone */
    KernelAccess *access; /* LOAD, STORE; else NULL */
} KernelInst;

typedef struct Kernel {
    int axis_count;
    KernelAxis axes[KERNEL_MAX_AXES];
    int lane_block; /* elements of LANE in one task; 0 without a LANE axis */
    int tile_axis;  /* -1, or the TASK axis of a transpose */
    int tile_block;
    int band;        /* rows of a band, or most; 0: no bands */
    int param_count; /* i64 values given at run time: sizes, strides, offsets */
    /* [param_count], or NULL when nothing is known: a power of two that divides every value of the parameter. Known for
     * GPUs alone, whose vector accesses need it. */
    const int64_t *param_multiples;
    int stage_count; /* 1 without reductions */
    /* For GPUs: buffers may begin at any element, and sizes go beyond GPU_SMALL. Not part of the text. */
    bool general;
    VEC(KernelBuffer) buffers;
    VEC(KernelInst) insts;
} Kernel;

static inline bool kernel_is_block(const Kernel *kernel) { return kernel->lane_block == KERNEL_WHOLE_ROW; }
const char *kernel_op_name(KernelOp op);
int kernel_op_args(KernelOp op);
static inline int kernel_op_is_reduce(KernelOp op) { return op >= K_REDUCE_SUM && op <= K_REDUCE_ARGMIN; }
/* The canonical text: the cache key and what `inspect` shows. */
void kernel_print(Text *text, const Kernel *kernel);
const char *kernel_text(Arena *arena, const Kernel *kernel); /* the same */
bool kernel_same_access(const Kernel *kernel, const KernelAccess *a, const KernelAccess *b);
bool kernel_same_inst(const Kernel *kernel, const KernelInst *a, const KernelInst *b); /* what it computes */
bool kernel_same(const Kernel *a, const Kernel *b); /* in all that the text holds, without printing it */
uint64_t kernel_hash(const Kernel *kernel);         /* the same for the same */
Kernel *kernel_copy(Arena *arena, const Kernel *kernel);
/* The number that a parameter's value stands for, and back. */
static inline int64_t kernel_param_of_number(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}
/* What the IR may contain; checked in debug builds. */
Status kernel_verify(const Kernel *kernel);

/* Tasks of a launch, and bytes of scratch memory that each worker needs. Kept values stand in scratch memory in the
 * order of their instructions, each from a multiple of 64 bytes on: one element a point of the reduced axes, row-major,
 * times lane_block (innermost) where there is a LANE axis; bool takes a byte. With bands the workers share the scratch
 * memory: for each reduction, from a multiple of 64 bytes on, [TASK axes][bands][LANE]; of an inner reduction for each band
 * its kept values, then as the store has them the sums of each, from multiples of 64 bytes on. */
int64_t kernel_tasks(const Kernel *kernel, const int64_t *params);
/* Tasks over bands, which come before all others and must be over when those begin; 0 without bands. A launch's tasks
 * are numbered from 0 to kernel_band_tasks + kernel_tasks. */
int64_t kernel_band_tasks(const Kernel *kernel, const int64_t *params);
/* Whether it is an outer reduction that may run in bands: one reduced axis, nothing that varies along it after stage 0,
 * no positions, no store that each band would repeat. */
bool kernel_can_band(const Kernel *kernel);
static inline bool kernel_is_sum(const KernelInst *inst) { return inst->op == K_STORE && inst->bits; }
/* Of an inner reduction of so many rows: those of a band. */
static inline int64_t kernel_band_rows(const Kernel *kernel, int64_t rows) {
    int64_t height = (rows + KERNEL_BANDS - 1) / KERNEL_BANDS;
    if (height < KERNEL_BAND_LEAST) height = KERNEL_BAND_LEAST;
    return height < kernel->band ? height : kernel->band;
}
size_t kernel_scratch_bytes(const Kernel *kernel, const int64_t *params);

/* The compiled form on a CPU: runs tasks [begin, end). Never fails, allocates nothing. buffers: in the kernel's order;
 * an output may be the same memory as an input that is accessed in the same way. scratch: 64-byte aligned. */
typedef void (*KernelFunction)(void *const *buffers, const int64_t *params, int64_t begin, int64_t end, void *scratch);

#endif
