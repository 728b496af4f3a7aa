/* SPDX-License-Identifier: Apache-2.0 */
/* render/builder.h by LLVM: every function is one of LLVM's, or the few calls that say the same. */
#include "codegen/llvm/builder.h"

#include <stdio.h>
#include <string.h>

enum { MOST_LANES = 64 };

static LLVMValueRef llvm(IrValue value) { return (LLVMValueRef)(void *)value; }
static IrValue ours(LLVMValueRef value) { return (IrValue)(void *)value; }
static LLVMBasicBlockRef llvm_block(IrBlock block) { return (LLVMBasicBlockRef)(void *)block; }

/* --- types --- */

static LLVMTypeRef element_type(IrBuilder *b, IrType element) {
    switch (element) {
    case IR_VOID: return LLVMVoidTypeInContext(b->context);
    case IR_F16: return LLVMHalfTypeInContext(b->context);
    case IR_F32: return LLVMFloatTypeInContext(b->context);
    case IR_F64: return LLVMDoubleTypeInContext(b->context);
    case IR_POINTER: return LLVMPointerTypeInContext(b->context, 0);
    default: return LLVMIntTypeInContext(b->context, (unsigned)ir_bits(element));
    }
}

static LLVMTypeRef type_of(IrBuilder *b, IrType type) {
    LLVMTypeRef element = element_type(b, ir_element(type));
    return ir_lane_count(type) > 1 ? LLVMVectorType(element, (unsigned)ir_lane_count(type)) : element;
}

IrType ir_type(IrValue value) {
    LLVMTypeRef type = LLVMTypeOf(llvm(value));
    int lanes = 1;
    if (LLVMGetTypeKind(type) == LLVMVectorTypeKind) {
        lanes = (int)LLVMGetVectorSize(type);
        type = LLVMGetElementType(type);
    }
    switch (LLVMGetTypeKind(type)) {
    case LLVMHalfTypeKind: return ir_lanes(IR_F16, lanes);
    case LLVMFloatTypeKind: return ir_lanes(IR_F32, lanes);
    case LLVMDoubleTypeKind: return ir_lanes(IR_F64, lanes);
    case LLVMPointerTypeKind: return ir_lanes(IR_POINTER, lanes);
    default: break;
    }
    unsigned bits = LLVMGetIntTypeWidth(type);
    return ir_lanes(bits == 1 ? IR_I1 : bits == 8 ? IR_I8 : bits == 16 ? IR_I16 : bits == 32 ? IR_I32 : IR_I64, lanes);
}

/* --- constants --- */

static LLVMValueRef repeated(LLVMValueRef element, int lanes) {
    LLVMValueRef all[MOST_LANES];
    if (lanes == 1) return element;
    for (int i = 0; i < lanes; i++) all[i] = element;
    return LLVMConstVector(all, (unsigned)lanes);
}

IrValue ir_int(IrBuilder *b, IrType type, int64_t value) {
    LLVMValueRef element = LLVMConstInt(element_type(b, ir_element(type)), (unsigned long long)value, 1);
    return ours(repeated(element, ir_lane_count(type)));
}

IrValue ir_real(IrBuilder *b, IrType type, double value) {
    return ours(repeated(LLVMConstReal(element_type(b, ir_element(type)), value), ir_lane_count(type)));
}

IrValue ir_vector(IrBuilder *b, IrType type, const int64_t *bits) {
    LLVMValueRef all[MOST_LANES];
    int lanes = ir_lane_count(type);
    for (int i = 0; i < lanes; i++) all[i] = llvm(ir_int(b, ir_element(type), bits[i]));
    return ours(lanes == 1 ? all[0] : LLVMConstVector(all, (unsigned)lanes));
}

bool ir_constant(IrValue value, int64_t *out_value) {
    if (!LLVMIsAConstantInt(llvm(value))) return false;
    *out_value = LLVMConstIntGetSExtValue(llvm(value));
    return true;
}

IrValue ir_undefined(IrBuilder *b, IrType type) { return ours(LLVMGetPoison(type_of(b, type))); }

static LLVMValueRef i64_of(IrBuilder *b, int64_t value) { return llvm(ir_int(b, IR_I64, value)); }
static LLVMValueRef i32_of(IrBuilder *b, int64_t value) { return llvm(ir_int(b, IR_I32, value)); }

static LLVMValueRef intrinsic(IrBuilder *b, const char *name, LLVMTypeRef *overload, int overloads, LLVMValueRef *args,
                              int count) {
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef callee = LLVMGetIntrinsicDeclaration(b->module, id, overload, (size_t)overloads);
    LLVMTypeRef type = LLVMIntrinsicGetType(b->context, id, overload, (size_t)overloads);
    return LLVMBuildCall2(b->builder, type, callee, args, (unsigned)count, "");
}

/* --- blocks --- */

IrBlock build_block_new(IrBuilder *b, const char *name) {
    return (IrBlock)(void *)LLVMAppendBasicBlockInContext(b->context, b->function, name);
}

IrBlock build_block(IrBuilder *b) { return (IrBlock)(void *)LLVMGetInsertBlock(b->builder); }
void build_at(IrBuilder *b, IrBlock block) { LLVMPositionBuilderAtEnd(b->builder, llvm_block(block)); }
void build_br(IrBuilder *b, IrBlock to) { LLVMBuildBr(b->builder, llvm_block(to)); }
void build_retvoid(IrBuilder *b) { LLVMBuildRetVoid(b->builder); }
IrValue build_phi(IrBuilder *b, IrType type) { return ours(LLVMBuildPhi(b->builder, type_of(b, type), "")); }
IrValue build_parameter(IrBuilder *b, int number) { return ours(LLVMGetParam(b->function, (unsigned)number)); }

void build_condbr(IrBuilder *b, IrValue condition, IrBlock yes, IrBlock no) {
    LLVMBuildCondBr(b->builder, llvm(condition), llvm_block(yes), llvm_block(no));
}

void phi_add(IrValue phi, IrValue value, IrBlock from) {
    LLVMValueRef values[] = {llvm(value)};
    LLVMBasicBlockRef blocks[] = {llvm_block(from)};
    LLVMAddIncoming(llvm(phi), values, blocks, 1);
}

/* --- arithmetic --- */

IrValue build_binop(IrBuilder *b, IrOp op, IrValue x, IrValue y) {
    static const LLVMOpcode opcodes[] = {
        [IR_ADD] = LLVMAdd,   [IR_SUB] = LLVMSub,   [IR_MUL] = LLVMMul,   [IR_SDIV] = LLVMSDiv, [IR_UDIV] = LLVMUDiv,
        [IR_SREM] = LLVMSRem, [IR_UREM] = LLVMURem, [IR_AND] = LLVMAnd,   [IR_OR] = LLVMOr,     [IR_XOR] = LLVMXor,
        [IR_SHL] = LLVMShl,   [IR_LSHR] = LLVMLShr, [IR_ASHR] = LLVMAShr, [IR_FADD] = LLVMFAdd, [IR_FSUB] = LLVMFSub,
        [IR_FMUL] = LLVMFMul, [IR_FDIV] = LLVMFDiv,
    };
    if (op != IR_COPYSIGN) return ours(LLVMBuildBinOp(b->builder, opcodes[op], llvm(x), llvm(y), ""));
    LLVMTypeRef type = LLVMTypeOf(llvm(x));
    LLVMValueRef args[] = {llvm(x), llvm(y)};
    return ours(intrinsic(b, "llvm.copysign", &type, 1, args, 2));
}

IrValue build_unary(IrBuilder *b, IrUnary op, IrValue x) {
    static const char *const names[] = {
        [IR_FABS] = "llvm.fabs",   [IR_SQRT] = "llvm.sqrt", [IR_FLOOR] = "llvm.floor", [IR_CEIL] = "llvm.ceil",
        [IR_TRUNC] = "llvm.trunc", [IR_RINT] = "llvm.rint", [IR_CTLZ] = "llvm.ctlz",
    };
    if (op == IR_FNEG) return ours(LLVMBuildFNeg(b->builder, llvm(x), ""));
    LLVMTypeRef type = LLVMTypeOf(llvm(x));
    LLVMValueRef args[] = {llvm(x), llvm(ir_int(b, IR_I1, 0))};
    return ours(intrinsic(b, names[op], &type, 1, args, op == IR_CTLZ ? 2 : 1));
}

IrValue build_fma(IrBuilder *b, IrValue x, IrValue y, IrValue z) {
    LLVMTypeRef type = LLVMTypeOf(llvm(x));
    LLVMValueRef args[] = {llvm(x), llvm(y), llvm(z)};
    return ours(intrinsic(b, "llvm.fma", &type, 1, args, 3));
}

IrValue build_compare(IrBuilder *b, IrCompare how, IrValue x, IrValue y) {
    static const int predicates[] = {
        LLVMIntEQ,   LLVMIntNE,   LLVMIntSLT,  LLVMIntSLE,  LLVMIntSGT,  LLVMIntSGE,  LLVMIntULT,  LLVMIntULE,
        LLVMIntUGT,  LLVMIntUGE,  LLVMRealOEQ, LLVMRealOLT, LLVMRealOLE, LLVMRealOGT, LLVMRealOGE, LLVMRealONE,
        LLVMRealORD, LLVMRealUNE, LLVMRealULT, LLVMRealULE, LLVMRealUGT, LLVMRealUGE, LLVMRealUNO,
    };
    if (how < IR_FOEQ) return ours(LLVMBuildICmp(b->builder, (LLVMIntPredicate)predicates[how], llvm(x), llvm(y), ""));
    return ours(LLVMBuildFCmp(b->builder, (LLVMRealPredicate)predicates[how], llvm(x), llvm(y), ""));
}

IrValue build_cast(IrBuilder *b, IrCast cast, IrValue x, IrType type) {
    static const LLVMOpcode opcodes[] = {LLVMZExt,   LLVMSExt,   LLVMTrunc,  LLVMFPExt,  LLVMFPTrunc,
                                         LLVMFPToSI, LLVMFPToUI, LLVMSIToFP, LLVMUIToFP, LLVMBitCast};
    bool pointer = cast == IR_BITS && ir_type(x) == IR_POINTER;
    return ours(LLVMBuildCast(b->builder, pointer ? LLVMPtrToInt : opcodes[cast], llvm(x), type_of(b, type), ""));
}

IrValue build_select(IrBuilder *b, IrValue condition, IrValue yes, IrValue no) {
    return ours(LLVMBuildSelect(b->builder, llvm(condition), llvm(yes), llvm(no), ""));
}

/* --- memory --- */

IrValue build_offset(IrBuilder *b, IrValue pointer, IrValue index, int scale) {
    LLVMTypeRef byte = element_type(b, IR_I8), unit = scale == 1 ? byte : LLVMArrayType(byte, (unsigned)scale);
    if (scale == 2 || scale == 4 || scale == 8) unit = LLVMIntTypeInContext(b->context, 8 * (unsigned)scale);
    LLVMValueRef indices[] = {llvm(index)};
    return ours(LLVMBuildGEP2(b->builder, unit, llvm(pointer), indices, 1, ""));
}

IrValue build_load(IrBuilder *b, IrType type, IrValue pointer, int64_t align) {
    LLVMValueRef load = LLVMBuildLoad2(b->builder, type_of(b, type), llvm(pointer), "");
    if (align) LLVMSetAlignment(load, (unsigned)align);
    return ours(load);
}

static LLVMValueRef store(IrBuilder *b, IrValue value, IrValue pointer, int64_t align) {
    LLVMValueRef store = LLVMBuildStore(b->builder, llvm(value), llvm(pointer));
    if (align) LLVMSetAlignment(store, (unsigned)align);
    return store;
}

void build_store(IrBuilder *b, IrValue value, IrValue pointer, int64_t align) { store(b, value, pointer, align); }

void build_store_past(IrBuilder *b, IrValue value, IrValue pointer, int64_t align) {
    LLVMMetadataRef one = LLVMValueAsMetadata(i32_of(b, 1)), node = LLVMMDNodeInContext2(b->context, &one, 1);
    LLVMSetMetadata(store(b, value, pointer, align), LLVMGetMDKindIDInContext(b->context, "nontemporal", 11),
                    LLVMMetadataAsValue(b->context, node));
}

IrValue build_load_masked(IrBuilder *b, IrType type, IrValue pointer, int64_t align, IrValue mask) {
    LLVMTypeRef of = type_of(b, type), overload[] = {of, LLVMTypeOf(llvm(pointer))};
    LLVMValueRef args[] = {llvm(pointer), i32_of(b, align), llvm(mask), LLVMConstNull(of)};
    return ours(intrinsic(b, "llvm.masked.load", overload, 2, args, 4));
}

void build_store_masked(IrBuilder *b, IrValue value, IrValue pointer, int64_t align, IrValue mask) {
    LLVMTypeRef overload[] = {LLVMTypeOf(llvm(value)), LLVMTypeOf(llvm(pointer))};
    LLVMValueRef args[] = {llvm(value), llvm(pointer), i32_of(b, align), llvm(mask)};
    intrinsic(b, "llvm.masked.store", overload, 2, args, 4);
}

static LLVMValueRef lane_pointers(IrBuilder *b, IrValue pointer, IrValue stride, int lanes) {
    int64_t numbers[MOST_LANES];
    for (int i = 0; i < lanes; i++) numbers[i] = i;
    IrValue iota = ir_vector(b, ir_lanes(IR_I64, lanes), numbers);
    LLVMValueRef offsets = llvm(build_mul(b, iota, build_splat(b, stride, lanes)));
    return LLVMBuildGEP2(b->builder, element_type(b, IR_I8), llvm(pointer), &offsets, 1, "");
}

static LLVMValueRef full_mask(IrBuilder *b, IrValue mask, int lanes) {
    return mask ? llvm(mask) : LLVMConstAllOnes(type_of(b, ir_lanes(IR_I1, lanes)));
}

IrValue build_gather(IrBuilder *b, IrType type, IrValue pointer, IrValue stride, int64_t align, IrValue mask) {
    int lanes = ir_lane_count(type);
    LLVMValueRef pointers = lane_pointers(b, pointer, stride, lanes);
    LLVMTypeRef of = type_of(b, type), overload[] = {of, LLVMTypeOf(pointers)};
    LLVMValueRef args[] = {pointers, i32_of(b, align), full_mask(b, mask, lanes), LLVMConstNull(of)};
    return ours(intrinsic(b, "llvm.masked.gather", overload, 2, args, 4));
}

void build_scatter(IrBuilder *b, IrValue value, IrValue pointer, IrValue stride, int64_t align, IrValue mask) {
    int lanes = ir_lane_count(ir_type(value));
    LLVMValueRef pointers = lane_pointers(b, pointer, stride, lanes);
    LLVMTypeRef overload[] = {LLVMTypeOf(llvm(value)), LLVMTypeOf(pointers)};
    LLVMValueRef args[] = {llvm(value), pointers, i32_of(b, align), full_mask(b, mask, lanes)};
    intrinsic(b, "llvm.masked.scatter", overload, 2, args, 4);
}

void build_prefetch(IrBuilder *b, IrValue pointer, int cache) {
    LLVMTypeRef type = element_type(b, IR_POINTER);
    LLVMValueRef args[] = {llvm(pointer), i32_of(b, 0), i32_of(b, 4 - cache), i32_of(b, 1)};
    intrinsic(b, "llvm.prefetch", &type, 1, args, 4);
}

void build_fence(IrBuilder *b) { intrinsic(b, "llvm.x86.sse.sfence", NULL, 0, NULL, 0); }

/* Allocas stand at the function's begin, where mem2reg finds them. */
IrValue build_variable(IrBuilder *b, IrType type, int count) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(b->builder), entry = LLVMGetEntryBasicBlock(b->function);
    LLVMValueRef first = LLVMGetFirstInstruction(entry);
    if (first)
        LLVMPositionBuilderBefore(b->builder, first);
    else
        LLVMPositionBuilderAtEnd(b->builder, entry);
    LLVMTypeRef of = type_of(b, type);
    LLVMValueRef memory = LLVMBuildAlloca(b->builder, count > 1 ? LLVMArrayType(of, (unsigned)count) : of, "");
    LLVMPositionBuilderAtEnd(b->builder, here);
    return ours(memory);
}

/* --- lanes --- */

static LLVMValueRef shuffled(IrBuilder *b, LLVMValueRef x, LLVMValueRef y, const int *from, int lanes) {
    LLVMValueRef mask[MOST_LANES];
    for (int i = 0; i < lanes; i++) mask[i] = from[i] < 0 ? LLVMGetPoison(element_type(b, IR_I32)) : i32_of(b, from[i]);
    return LLVMBuildShuffleVector(b->builder, x, y, LLVMConstVector(mask, (unsigned)lanes), "");
}

IrValue build_shuffle(IrBuilder *b, IrValue x, IrValue y, const int *from, int lanes) {
    LLVMValueRef second = x == y ? LLVMGetPoison(LLVMTypeOf(llvm(x))) : llvm(y);
    return ours(shuffled(b, llvm(x), second, from, lanes));
}

IrValue build_splat(IrBuilder *b, IrValue scalar, int lanes) {
    static const int first[MOST_LANES];
    if (LLVMIsConstant(llvm(scalar))) return ours(repeated(llvm(scalar), lanes));
    IrValue vector = ir_undefined(b, ir_lanes(ir_type(scalar), lanes)), one = build_insert(b, vector, scalar, 0);
    return ours(shuffled(b, llvm(one), llvm(vector), first, lanes));
}

IrValue build_extract(IrBuilder *b, IrValue vector, int lane) {
    return ours(LLVMBuildExtractElement(b->builder, llvm(vector), i64_of(b, lane), ""));
}

IrValue build_insert(IrBuilder *b, IrValue vector, IrValue scalar, int lane) {
    return ours(LLVMBuildInsertElement(b->builder, llvm(vector), llvm(scalar), i64_of(b, lane), ""));
}

/* Pieces below 16 bytes by shuffles: LLVM 14 gives up on llvm.vector.insert of those. */
static IrValue insert_small(IrBuilder *b, IrValue vector, IrValue piece, int lane) {
    int at[MOST_LANES], from[MOST_LANES], all = ir_lane_count(ir_type(vector)), some = ir_lane_count(ir_type(piece));
    for (int i = 0; i < all; i++) {
        bool inside = i >= lane && i < lane + some;
        at[i] = inside ? i - lane : -1;
        from[i] = inside ? all + i : i;
    }
    return build_shuffle(b, vector, build_shuffle(b, piece, piece, at, all), from, all);
}

IrValue build_insert_lanes(IrBuilder *b, IrValue vector, IrValue piece, int lane) {
    if (ir_lane_count(ir_type(piece)) * ir_bits(ir_type(piece)) < 128) return insert_small(b, vector, piece, lane);
    LLVMTypeRef overload[] = {LLVMTypeOf(llvm(vector)), LLVMTypeOf(llvm(piece))};
    LLVMValueRef args[] = {llvm(vector), llvm(piece), i64_of(b, lane)};
    return ours(intrinsic(b, "llvm.vector.insert", overload, 2, args, 3));
}

IrValue build_any(IrBuilder *b, IrValue condition) {
    LLVMTypeRef bits = LLVMIntTypeInContext(b->context, (unsigned)ir_lane_count(ir_type(condition)));
    LLVMValueRef word = LLVMBuildBitCast(b->builder, llvm(condition), bits, "");
    return ours(LLVMBuildICmp(b->builder, LLVMIntNE, word, LLVMConstNull(bits), ""));
}

/* --- instructions of registers of one size, for vectors of any --- */

/* Lanes [from, from + lanes) of a vector; those beyond its end are poison. */
static LLVMValueRef piece_of(IrBuilder *b, IrValue vector, int from, int lanes) {
    int at[MOST_LANES], all = ir_lane_count(ir_type(vector));
    if (all == lanes) return llvm(vector);
    if (all == 1) return llvm(build_insert(b, ir_undefined(b, ir_lanes(ir_type(vector), lanes)), vector, 0));
    for (int i = 0; i < lanes; i++) at[i] = from + i < all ? from + i : -1;
    return llvm(build_shuffle(b, vector, vector, at, lanes));
}

/* The first `lanes` lanes of pieces one behind the other. */
static IrValue joined(IrBuilder *b, LLVMValueRef *pieces, int count, int lanes) {
    int at[MOST_LANES];
    for (int i = 0; i < MOST_LANES; i++) at[i] = i;
    for (; count > 1; count /= 2)
        for (int n = 0; n < count / 2; n++) {
            int half = ir_lane_count(ir_type(ours(pieces[2 * n])));
            pieces[n] = shuffled(b, pieces[2 * n], pieces[2 * n + 1], at, 2 * half);
        }
    return lanes == 1 ? build_extract(b, ours(pieces[0]), 0) : ours(piece_of(b, ours(pieces[0]), 0, lanes));
}

IrValue build_scale(IrBuilder *b, IrValue x, IrValue exponent) {
    IrType type = ir_type(x);
    bool wide = ir_element(type) == IR_F64;
    int lanes = ir_lane_count(type), size = wide ? 8 : 4, bits = 512;
    while (bits > 128 && lanes * size * 8 < bits) bits /= 2;
    int native = bits / 8 / size, count = lanes > native ? lanes / native : 1;
    char name[64];
    snprintf(name, sizeof name, "llvm.x86.avx512.mask.scalef.%s.%d", wide ? "pd" : "ps", bits);
    LLVMTypeRef mask = LLVMIntTypeInContext(b->context, native > 8 ? 16 : 8);
    LLVMValueRef pieces[MOST_LANES];
    for (int n = 0; n < count; n++) {
        LLVMValueRef u = piece_of(b, x, n * native, native), v = piece_of(b, exponent, n * native, native);
        LLVMValueRef args[] = {u, v, LLVMConstNull(LLVMTypeOf(u)), LLVMConstAllOnes(mask), i32_of(b, 4)};
        pieces[n] = intrinsic(b, name, NULL, 0, args, bits == 512 ? 5 : 4);
    }
    return joined(b, pieces, count, lanes);
}

/* --- functions inside --- */

bool build_function_begin(IrBuilder *b, const char *name, IrType result, const IrType *parameters, int count) {
    LLVMTypeRef types[8];
    if (LLVMGetNamedFunction(b->module, name)) return false;
    for (int i = 0; i < count; i++) types[i] = type_of(b, parameters[i]);
    LLVMValueRef function =
        LLVMAddFunction(b->module, name, LLVMFunctionType(type_of(b, result), types, (unsigned)count, 0));
    LLVMSetLinkage(function, LLVMInternalLinkage);
    b->attributes(b, function);
    b->outer = b->function;
    b->outer_block = LLVMGetInsertBlock(b->builder);
    b->function = function;
    build_at(b, build_block_new(b, "entry"));
    return true;
}

void build_function_end(IrBuilder *b, IrValue result) {
    LLVMBuildRet(b->builder, llvm(result));
    b->function = b->outer;
    LLVMPositionBuilderAtEnd(b->builder, b->outer_block);
}

IrValue build_call(IrBuilder *b, const char *name, const IrValue *arguments, int count) {
    LLVMValueRef function = LLVMGetNamedFunction(b->module, name), values[8];
    for (int i = 0; i < count; i++) values[i] = llvm(arguments[i]);
    return ours(LLVMBuildCall2(b->builder, LLVMGlobalGetValueType(function), function, values, (unsigned)count, ""));
}
