/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and stores: a vector at once where it lies in one piece and is aligned, else element by element. */
#include "codegen/gpu/region/render.h"

enum { ACCESS_BYTES = 16 };

const char *memory_type(DType dtype) {
    switch (dtype) {
    case DT_F32: return "f32";
    case DT_F64: return "f64";
    case DT_I8: return "i8";
    case DT_I16: return "i16";
    case DT_I32: return "i32";
    case DT_I64: return "i64";
    case DT_U16:
    case DT_F16:
    case DT_BF16: return "u16";
    case DT_U32: return "u32";
    case DT_U64: return "u64";
    default: return "u8"; /* u8, bool */
    }
}

const char *compute_type(DType dtype) { return dtype == DT_BOOL ? "i32" : memory_type(dtype); }

const char *size_text(GpuRender *r, int axis) {
    const KernelAxis *a = &r->k->axes[axis];
    if (a->param >= 0) return arena_format(r->arena, "p%d", a->param);
    return arena_format(r->arena, "%lld", (long long)a->size);
}

const char *loaded_value(GpuRender *r, int inst, const char *bits) {
    switch (r->k->buffers.items[inst_at(r, inst)->buffer].dtype) {
    case DT_F16: return arena_format(r->arena, "load_f16(%s)", bits);
    case DT_BF16: return arena_format(r->arena, "load_bf16(%s)", bits);
    case DT_BOOL: return arena_format(r->arena, "%s != 0", bits);
    default: return bits;
    }
}

const char *stored_bits(GpuRender *r, DType memory, const char *value) {
    switch (memory) {
    case DT_F16: return arena_format(r->arena, "store_f16(%s)", value);
    case DT_BF16: return arena_format(r->arena, "store_bf16(%s)", value);
    case DT_BOOL: return arena_format(r->arena, "(u8)(%s)", value);
    default: return value;
    }
}

/* --- addresses --- */
static int64_t multiple_of(const GpuRender *r, StrideKind kind, int64_t value) {
    switch (kind) {
    case STRIDE_ZERO: return ACCESS_BYTES;
    case STRIDE_ONE: return 1;
    case STRIDE_CONST: return value;
    default: return r->k->param_multiples ? r->k->param_multiples[value] : 1;
    }
}

/* Whether every vector of the access starts at a multiple of its size: then also of 16 bytes where it has as many,
 * since buffers are aligned. */
static bool is_aligned(const GpuRender *r, const KernelAccess *a) {
    for (int i = 0; i < r->k->axis_count; i++)
        if (i != r->vector_axis && multiple_of(r, a->kind[i], a->stride[i]) % r->schedule.vector) return false;
    return multiple_of(r, a->offset_kind, a->offset) % r->schedule.vector == 0;
}

static void add_term(Text *text, const char *index, StrideKind kind, int64_t value) {
    if (kind == STRIDE_ZERO) return;
    if (text->size) text_add(text, " + ");
    text_add(text, "%s", index);
    if (kind == STRIDE_CONST) text_add(text, "%s%lld", *index ? " * " : "", (long long)value);
    if (kind == STRIDE_PARAM) text_add(text, "%sp%lld", *index ? " * " : "", (long long)value);
}

void emit_offset(GpuRender *r, int inst, const char *name) {
    const KernelAccess *a = inst_at(r, inst)->access;
    Text text = text_make(r->arena);
    for (int i = 0; i < r->k->axis_count; i++)
        add_term(&text, arena_format(r->arena, "i%d", i), a->kind[i], a->stride[i]);
    add_term(&text, "", a->offset_kind, a->offset);
    emit_line(r, "const %s %s = %s;", r->index, name, text.size ? text.data : "0");
}

/* From one element of a vector to the next: "" with factor 1. */
static const char *element_step(GpuRender *r, const KernelAccess *a) {
    StrideKind kind = a->kind[r->vector_axis];
    int64_t value = a->stride[r->vector_axis];
    const char *place = place_of_element(r);
    if (kind == STRIDE_ONE) return place;
    if (kind == STRIDE_CONST) return arena_format(r->arena, "%s * %lld", place, (long long)value);
    return arena_format(r->arena, "%s * p%lld", place, (long long)value);
}

/* The pieces of a vector access: as large as may be. */
int piece_bytes(const GpuRender *r, DType dtype) {
    int bytes = run_of(r) * (int)dtype_size(dtype);
    return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : bytes % 2 == 0 ? 2 : 1;
}

const char *piece_type(int bytes) {
    return bytes == 16 ? "u128" : bytes == 8 ? "u64" : bytes == 4 ? "u32" : bytes == 2 ? "u16" : "u8";
}

static bool in_pieces(const GpuRender *r, const KernelInst *inst) {
    return run_of(r) > 1 && inst->access->kind[r->vector_axis] == STRIDE_ONE && is_aligned(r, inst->access);
}

/* Where piece n begins from the vector's first element, in pieces. */
static int piece_place(const GpuRender *r, int n) {
    return r->schedule.step > 1 ? n * r->schedule.step / run_of(r) : n;
}

const char *loaded_name(GpuRender *r, int i) {
    return arena_format(r->arena, r->hoisted && r->hoisted[i] ? "l%d[e]" : "l%d", i);
}

void declare_loaded(GpuRender *r, int i) {
    const KernelInst *inst = inst_at(r, i);
    DType dtype = r->k->buffers.items[inst->buffer].dtype;
    int vector = r->schedule.vector, bytes = vector * (int)dtype_size(dtype), piece = piece_bytes(r, dtype);
    const char *times = r->hoisted && r->hoisted[i] ? arena_format(r->arena, "[%d]", r->schedule.hold) : "";
    if (in_pieces(r, inst))
        emit_line(r, "union { %s e[%d]; %s q[%d]; } l%d%s;", memory_type(dtype), vector, piece_type(piece),
                  bytes / piece, i, times);
    else
        emit_line(r, "struct { %s e[%d]; } l%d%s;", memory_type(dtype), vector, i, times);
}

static void emit_wide_load(GpuRender *r, int i, const char *offset) {
    const KernelInst *inst = inst_at(r, i);
    DType dtype = r->k->buffers.items[inst->buffer].dtype;
    const char *type = memory_type(dtype), *name = loaded_name(r, i);
    int vector = r->schedule.vector, bytes = vector * (int)dtype_size(dtype), piece = piece_bytes(r, dtype);
    for (int n = 0; in_pieces(r, inst) && n < bytes / piece; n++)
        emit_line(r, "%s.q[%d] = READ(%s, (GLOBAL %s *)(b%d + %s) + %d);", name, n, piece_type(piece),
                  piece_type(piece), inst->buffer, offset, piece_place(r, n));
    if (!in_pieces(r, inst))
        emit_line(r, "UNROLL for (i32 j = 0; j < %d; j++) %s.e[j] = READ(%s, b%d + %s + %s);", vector, name, type,
                  inst->buffer, offset, element_step(r, inst->access));
}

void emit_load(GpuRender *r, int i) {
    const KernelInst *inst = inst_at(r, i);
    const char *type = memory_type(r->k->buffers.items[inst->buffer].dtype), *offset = arena_format(r->arena, "o%d", i);
    if (r->tiled && r->tiled[i]) {
        emit_line(r, "UNROLL for (i32 j = 0; j < %d; j++) l%d.e[j] = t%d[(x + j) * %d + y];", r->schedule.vector, i, i,
                  r->schedule.tile + 1);
        return;
    }
    emit_offset(r, i, offset);
    if (is_wide(r, i)) {
        emit_wide_load(r, i, offset);
    } else {
        const char *bits = arena_format(r->arena, "READ(%s, b%d + %s)", type, inst->buffer, offset);
        emit_line(r, "const %s x%d = %s;", compute_type(inst->dtype), i, loaded_value(r, i, bits));
    }
}

/* A store that does not vary along an axis is done where that axis begins. */
static const char *store_guard(GpuRender *r, const KernelInst *inst, uint32_t axes) {
    Text text = text_make(r->arena);
    for (int i = 0; i < r->k->axis_count; i++) {
        const KernelAxis *a = &r->k->axes[i];
        if (!(axes >> i & 1) || inst->axes >> i & 1 || (a->param < 0 && a->size == 1)) continue;
        text_add(&text, "%si%d == 0", text.size ? " && " : "", i);
    }
    return text.size ? arena_format(r->arena, "if (%s) ", text.data) : "";
}

void emit_store(GpuRender *r, int i) {
    const KernelInst *inst = inst_at(r, i);
    DType dtype = r->k->buffers.items[inst->buffer].dtype;
    const char *type = memory_type(dtype), *offset = arena_format(r->arena, "o%d", i);
    uint32_t all = (1u << r->k->axis_count) - 1;
    const char *guard = store_guard(r, inst, in_loop(r, i) ? all : all & ~r->reduced);
    int vector = r->schedule.vector, bytes = vector * (int)dtype_size(dtype), piece = piece_bytes(r, dtype);
    emit_offset(r, i, offset);
    if (inst->access->kind[r->vector_axis] == STRIDE_ZERO) {
        const char *value = stored_bits(r, dtype, value_of(r, inst->args[0]));
        emit_line(r, "%sWRITE(%s, b%d + %s, %s);", guard, type, inst->buffer, offset, value);
    } else if (in_pieces(r, inst)) {
        for (int n = 0; n < bytes / piece; n++)
            emit_line(r, "%sWRITE(%s, (GLOBAL %s *)(b%d + %s) + %d, s%d.q[%d]);", guard, piece_type(piece),
                      piece_type(piece), inst->buffer, offset, piece_place(r, n), i, n);
    } else {
        emit_line(r, "UNROLL for (i32 j = 0; j < %d; j++) %sWRITE(%s, b%d + %s + %s, s%d.e[j]);", vector, guard, type,
                  inst->buffer, offset, element_step(r, inst->access), i);
    }
}
