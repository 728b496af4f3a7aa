/* SPDX-License-Identifier: Apache-2.0 */
/* What the renderer builds a kernel's code with: typed values in basic blocks, as compilers know them (static single assignment;
 * variables are memory that becomes registers). Two implementations, each linked with its own copy of the renderer: llvm/builder.c
 * hands all on to LLVM; native/ makes machine code itself. They differ in speed of compiling and in what they can do, never
 * in results: every function rounds as IEEE 754 says, and nothing may be reordered that changes a bit. */
#ifndef ONNXFUSE_CODEGEN_RENDER_BUILDER_H
#define ONNXFUSE_CODEGEN_RENDER_BUILDER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct IrBuilder IrBuilder; /* an implementation's own */
typedef struct IrNode *IrValue;     /* opaque here, as the next */
typedef struct IrBlockBody *IrBlock;

/* Element and lanes: a scalar's type is its element. Pointers and i1 have vectors only where said. */
typedef uint32_t IrType;
enum { IR_VOID, IR_I1, IR_I8, IR_I16, IR_I32, IR_I64, IR_F16, IR_F32, IR_F64, IR_POINTER };
static inline IrType ir_lanes(IrType element, int lanes) { return element | (uint32_t)(lanes - 1) << 8; }
static inline int ir_lane_count(IrType type) { return (int)(type >> 8) + 1; }
static inline IrType ir_element(IrType type) { return type & 255; }
static inline int ir_bits(IrType type) { /* of an element */
    static const unsigned char bits[] = {0, 1, 8, 16, 32, 64, 16, 32, 64, 64};
    return bits[type & 255];
}
IrType ir_type(IrValue value);

/* Constants: the same in all lanes, or each lane's bits. Integers are cut to their width. */
IrValue ir_int(IrBuilder *b, IrType type, int64_t value);
IrValue ir_real(IrBuilder *b, IrType type, double value);
IrValue ir_vector(IrBuilder *b, IrType type, const int64_t *bits);
bool ir_constant(IrValue value, int64_t *out_value); /* whether it is a constant integer, no vector */
IrValue ir_undefined(IrBuilder *b, IrType type);

/* Blocks. What is built goes to the end of the present one. */
IrBlock build_block_new(IrBuilder *b, const char *name);
IrBlock build_block(IrBuilder *b);
void build_at(IrBuilder *b, IrBlock block);
void build_br(IrBuilder *b, IrBlock to);
void build_condbr(IrBuilder *b, IrValue condition, IrBlock yes, IrBlock no);
void build_retvoid(IrBuilder *b);
IrValue build_phi(IrBuilder *b, IrType type);
void phi_add(IrValue phi, IrValue value, IrBlock from);
IrValue build_parameter(IrBuilder *b, int number); /* of KernelFunction */

/* Arithmetic, lane by lane. Shifts: by less than the width. */
typedef enum IrOp {
    IR_ADD,
    IR_SUB,
    IR_MUL,
    IR_SDIV,
    IR_UDIV,
    IR_SREM,
    IR_UREM,
    IR_AND,
    IR_OR,
    IR_XOR,
    IR_SHL,
    IR_LSHR,
    IR_ASHR,
    IR_FADD,
    IR_FSUB,
    IR_FMUL,
    IR_FDIV,
    IR_COPYSIGN,
} IrOp;
typedef enum IrUnary { IR_FABS, IR_SQRT, IR_FLOOR, IR_CEIL, IR_TRUNC, IR_RINT, IR_FNEG, IR_CTLZ } IrUnary;
/* Integers; floats: ordered (false with NaN), unordered (true). Keep the order of the table in llvm/builder.c. */
typedef enum IrCompare {
    IR_EQ,
    IR_NE,
    IR_SLT,
    IR_SLE,
    IR_SGT,
    IR_SGE,
    IR_ULT,
    IR_ULE,
    IR_UGT,
    IR_UGE,
    IR_FOEQ,
    IR_FOLT,
    IR_FOLE,
    IR_FOGT,
    IR_FOGE,
    IR_FONE,
    IR_FORD,
    IR_FUNE,
    IR_FULT,
    IR_FULE,
    IR_FUGT,
    IR_FUGE,
    IR_FUNO,
} IrCompare;
/* Zero and sign extension, cutting; between floats, to nearest even; integers from floats toward zero, of values that fit. */
typedef enum IrCast {
    IR_ZEXT,
    IR_SEXT,
    IR_CUT,
    IR_FEXT,
    IR_FCUT,
    IR_FTOSI,
    IR_FTOUI,
    IR_SITOF,
    IR_UITOF,
    IR_BITS
} IrCast;

IrValue build_binop(IrBuilder *b, IrOp op, IrValue x, IrValue y);
IrValue build_unary(IrBuilder *b, IrUnary op, IrValue x);
IrValue build_fma(IrBuilder *b, IrValue x, IrValue y, IrValue z); /* x * y + z rounded once */
IrValue build_compare(IrBuilder *b, IrCompare how, IrValue x, IrValue y);
IrValue build_cast(IrBuilder *b, IrCast cast, IrValue x, IrType type);
/* The condition may be one for all lanes. */
IrValue build_select(IrBuilder *b, IrValue condition, IrValue yes, IrValue no);

static inline IrValue build_add(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_ADD, x, y); }
static inline IrValue build_sub(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_SUB, x, y); }
static inline IrValue build_mul(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_MUL, x, y); }
static inline IrValue build_udiv(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_UDIV, x, y); }
static inline IrValue build_urem(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_UREM, x, y); }
static inline IrValue build_and(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_AND, x, y); }
static inline IrValue build_or(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_OR, x, y); }
static inline IrValue build_xor(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_XOR, x, y); }
static inline IrValue build_shl(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_SHL, x, y); }
static inline IrValue build_lshr(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_LSHR, x, y); }
static inline IrValue build_fadd(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_FADD, x, y); }
static inline IrValue build_fsub(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_FSUB, x, y); }
static inline IrValue build_fmul(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_FMUL, x, y); }
static inline IrValue build_fdiv(IrBuilder *b, IrValue x, IrValue y) { return build_binop(b, IR_FDIV, x, y); }
/* The lesser and the greater of two signed integers. */
static inline IrValue build_smin(IrBuilder *b, IrValue x, IrValue y) {
    return build_select(b, build_compare(b, IR_SLT, x, y), x, y);
}
static inline IrValue build_smax(IrBuilder *b, IrValue x, IrValue y) {
    return build_select(b, build_compare(b, IR_SGT, x, y), x, y);
}
/* How many pieces of a size cover it all. */
static inline IrValue build_pieces(IrBuilder *b, IrValue all, IrValue piece) {
    return build_udiv(b, build_sub(b, build_add(b, all, piece), ir_int(b, ir_type(all), 1)), piece);
}
static inline IrValue build_neg(IrBuilder *b, IrValue x) { return build_sub(b, ir_int(b, ir_type(x), 0), x); }
static inline IrValue build_not(IrBuilder *b, IrValue x) { return build_xor(b, x, ir_int(b, ir_type(x), -1)); }

/* Memory. A pointer `index * scale` bytes on; loads and stores of any alignment that `align` divides (0: the type's). */
IrValue build_offset(IrBuilder *b, IrValue pointer, IrValue index, int scale);
IrValue build_load(IrBuilder *b, IrType type, IrValue pointer, int64_t align);
void build_store(IrBuilder *b, IrValue value, IrValue pointer, int64_t align);
void build_store_past(IrBuilder *b, IrValue value, IrValue pointer, int64_t align); /* around the caches, aligned */
IrValue build_load_masked(IrBuilder *b, IrType type, IrValue pointer, int64_t align, IrValue mask); /* else 0 */
void build_store_masked(IrBuilder *b, IrValue value, IrValue pointer, int64_t align, IrValue mask);
/* Lanes `stride` bytes apart; mask NULL: all. */
IrValue build_gather(IrBuilder *b, IrType type, IrValue pointer, IrValue stride, int64_t align, IrValue mask);
void build_scatter(IrBuilder *b, IrValue value, IrValue pointer, IrValue stride, int64_t align, IrValue mask);
void build_prefetch(IrBuilder *b, IrValue pointer, int cache); /* into the first or second and those behind it */
void build_fence(IrBuilder *b);                                /* x86: stores around the caches are seen by others */
/* Memory for one value, which becomes a register, or for `count`, one behind the other. It lives as long as the call. */
IrValue build_variable(IrBuilder *b, IrType type, int count);

/* Lanes. */
IrValue build_splat(IrBuilder *b, IrValue scalar, int lanes);
IrValue build_extract(IrBuilder *b, IrValue vector, int lane);
IrValue build_insert(IrBuilder *b, IrValue vector, IrValue scalar, int lane);
IrValue build_insert_lanes(IrBuilder *b, IrValue vector, IrValue piece, int lane);
/* Lane i is lane from[i] of x and y one behind the other; -1: any value. */
IrValue build_shuffle(IrBuilder *b, IrValue x, IrValue y, const int *from, int lanes);
IrValue build_any(IrBuilder *b, IrValue condition); /* i1: whether any lane is set */

/* What only some instruction sets have: AVX-512's a * 2^b. */
IrValue build_scale(IrBuilder *b, IrValue x, IrValue exponent);

/* Functions inside, by their names: begin says whether it has to be built now (its parameters: build_parameter; no other
 * values of the caller), until end. An implementation without them has begin answer false, and build_call gives NULL: then
 * the caller repeats the code. */
bool build_function_begin(IrBuilder *b, const char *name, IrType result, const IrType *parameters, int count);
void build_function_end(IrBuilder *b, IrValue result);
IrValue build_call(IrBuilder *b, const char *name, const IrValue *arguments, int count);

#endif
