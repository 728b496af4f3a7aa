/* SPDX-License-Identifier: Apache-2.0 */
/* Loads, stores and kept values, in the present form: scalars, vectors, masked vectors. No buffer is aligned beyond its
 * elements. */
#include "codegen/render/render.h"

IrType type_memory(Render *r, DType dtype, int lanes) {
    if (dtype == DT_BOOL) return type_lanes(IR_I8, lanes);
    if (dtype == DT_F16 && r->isa.half) return type_lanes(IR_F16, lanes);
    if (dtype == DT_F16 || dtype == DT_BF16) return type_lanes(IR_I16, lanes);
    return type_compute(r, dtype, lanes);
}

int64_t access_bytes(const Render *r, const KernelInst *inst) {
    if (kernel_is_sum(inst)) return (int64_t)dtype_size(inst->dtype); /* in scratch memory, as it is computed */
    return (int64_t)dtype_size(r->kernel->buffers.items[inst->buffer].dtype);
}

IrValue access_stride(Render *r, const KernelInst *inst, int axis) {
    int64_t bytes = access_bytes(r, inst), value = inst->access->stride[axis];
    switch (inst->access->kind[axis]) {
    case STRIDE_ZERO: return constant_i64(r, 0);
    case STRIDE_ONE: return constant_i64(r, bytes);
    case STRIDE_CONST: return constant_i64(r, (int64_t)((uint64_t)value * (uint64_t)bytes));
    case STRIDE_PARAM: return build_mul(r->builder, r->params[value], constant_i64(r, bytes));
    }
    return NULL;
}

IrValue lane_mask(Render *r, IrValue live, int lanes) {
    IrType element = lanes > 16 ? IR_I8 : IR_I32;
    IrValue count = splat(r, build_cast(r->builder, IR_CUT, live, element), lanes);
    return build_compare(r->builder, IR_ULT, lane_iota(r, element, lanes), count);
}

static IrValue offset_pointer(Render *r, IrValue pointer, IrValue bytes) {
    return build_offset(r->builder, pointer, bytes, 1);
}

/* --- contiguous --- */

IrValue load_line(Render *r, IrType type, IrValue pointer, int64_t align) {
    if (!r->mask || type_lane_count(type) == 1) return build_load(r->builder, type, pointer, align);
    return build_load_masked(r->builder, type, pointer, align, r->mask);
}

void store_line(Render *r, IrValue value, IrValue pointer, int64_t align) {
    IrType type = ir_type(value);
    if (!r->mask || type_lane_count(type) == 1) {
        build_store(r->builder, value, pointer, align);
        return;
    }
    build_store_masked(r->builder, value, pointer, align, r->mask);
}

/* --- strided --- */

/* Element by element; lanes beyond the live ones read the last live element. */
static IrValue load_elements(Render *r, IrType type, IrValue pointer, IrValue stride, int64_t align) {
    IrValue vector = ir_undefined(r->builder, type);
    IrValue last = r->live ? build_sub(r->builder, r->live, constant_i64(r, 1)) : NULL;
    for (int lane = 0; lane < type_lane_count(type); lane++) {
        IrValue n = constant_i64(r, lane);
        if (last) n = build_smin(r->builder, n, last);
        IrValue at = offset_pointer(r, pointer, build_mul(r->builder, n, stride));
        IrValue element = build_load(r->builder, type_element(type), at, align);
        vector = build_insert(r->builder, vector, element, lane);
    }
    return vector;
}

static IrValue load_strided(Render *r, IrType type, IrValue pointer, IrValue stride, int64_t align) {
    if (!r->isa.avx512 || align < 4) return load_elements(r, type, pointer, stride, align);
    return build_gather(r->builder, type, pointer, stride, align, r->mask);
}

static void store_strided(Render *r, IrValue value, IrValue pointer, IrValue stride, int64_t align) {
    IrType type = ir_type(value);
    int lanes = type_lane_count(type);
    if (r->isa.avx512 && align >= 4) {
        build_scatter(r->builder, value, pointer, stride, align, r->mask);
        return;
    }
    for (int lane = 0; lane < lanes; lane++) {
        IrValue n = constant_i64(r, lane), at = offset_pointer(r, pointer, build_mul(r->builder, n, stride));
        build_store(r->builder, build_extract(r->builder, value, lane), at, align);
    }
}

/* --- instructions --- */

static IrValue copy_pointer(Render *r, Slot *s, int copy) {
    IrValue pointer = s->pointer[s->level];
    if (copy == 0) return pointer;
    IrValue stride = access_stride(r, s->inst, r->vector_axis);
    return offset_pointer(r, pointer, build_mul(r->builder, stride, constant_i64(r, (int64_t)copy * r->lanes)));
}

void prefetch(Render *r, IrValue address, IrValue bytes, int cache) {
    build_prefetch(r->builder, offset_pointer(r, address, bytes), cache);
}

void render_load(Render *r, int i) {
    Slot *s = &r->slots[i];
    DType dtype = r->kernel->buffers.items[s->inst->buffer].dtype;
    int64_t align = access_bytes(r, s->inst);
    if (!s->vectorial) {
        IrValue scalar = build_load(r->builder, type_memory(r, dtype, 1), s->pointer[s->level], align);
        slot_set(r, i, 0, convert_from_memory(r, scalar, dtype));
        return;
    }
    IrType type = type_memory(r, dtype, r->lanes);
    IrValue ahead = bands_ahead(r, s->inst);
    for (int c = 0; c < r->unroll; c++) {
        IrValue value = s->tile_row ? s->tile_row[c] : NULL;
        if (!value) {
            IrValue pointer = copy_pointer(r, s, c);
            if (ahead && c * r->lanes * align % CACHE_LINE == 0) prefetch(r, pointer, ahead, 1);
            bool line = r->lanes == 1 || s->inst->access->kind[r->vector_axis] == STRIDE_ONE;
            value = line ? load_line(r, type, pointer, align)
                         : load_strided(r, type, pointer, access_stride(r, s->inst, r->vector_axis), align);
        }
        slot_set(r, i, c, convert_from_memory(r, value, dtype));
    }
}

/* Adds to what is there. */
static void add_to_sums(Render *r, int i) {
    Slot *s = &r->slots[i];
    DType dtype = s->inst->dtype;
    int64_t align = access_bytes(r, s->inst);
    IrType type = type_memory(r, dtype, s->vectorial ? r->lanes : 1);
    bool line = type_lane_count(type) == 1 || s->inst->access->kind[r->vector_axis] == STRIDE_ONE;
    IrValue stride = access_stride(r, s->inst, r->vector_axis);
    for (int c = 0; c < (s->vectorial ? r->unroll : 1); c++) {
        IrValue pointer = copy_pointer(r, s, c);
        IrValue sum = line ? load_line(r, type, pointer, align) : load_strided(r, type, pointer, stride, align);
        sum = build_fadd(r->builder, sum, slot_value(r, s->inst->args[0], c));
        if (line)
            store_line(r, sum, pointer, align);
        else
            store_strided(r, sum, pointer, stride, align);
    }
}

enum { PIECE = 16 }; /* bytes of a store past the caches that is aligned so far */

static void store_pieces(Render *r, IrValue value, IrValue pointer, int64_t element) {
    int lanes = type_lane_count(ir_type(value)), piece = (int)(PIECE / element), from[PIECE];
    for (int start = 0; start < lanes; start += piece) {
        for (int n = 0; n < piece; n++) from[n] = start + n;
        IrValue part = lanes == piece ? value : build_shuffle(r->builder, value, value, from, piece);
        build_store_past(r->builder, part, offset_pointer(r, pointer, constant_i64(r, start * element)), PIECE);
    }
}

typedef enum StoreWay { STORE_PLAIN, STORE_PAST, STORE_PIECES } StoreWay;

static void store_copies(Render *r, int i, StoreWay way) {
    Slot *s = &r->slots[i];
    int64_t align = access_bytes(r, s->inst);
    StrideKind kind = s->inst->access->kind[r->vector_axis];
    for (int c = 0; c < r->unroll; c++) {
        IrValue value = s->memory[c], pointer = copy_pointer(r, s, c);
        if (way == STORE_PIECES)
            store_pieces(r, value, pointer, align);
        else if (way == STORE_PAST)
            build_store_past(r->builder, value, pointer, align * r->lanes);
        else if (r->lanes == 1 || kind == STRIDE_ONE)
            store_line(r, value, pointer, align);
        else if (kind == STRIDE_ZERO) /* all lanes hold the one element */
            build_store(r->builder, build_extract(r->builder, value, 0), pointer, align);
        else
            store_strided(r, value, pointer, access_stride(r, s->inst, r->vector_axis), align);
    }
}

/* Goes on where that is not so. */
static void store_if(Render *r, int i, IrValue condition, StoreWay way, IrBlock stored) {
    IrBlock here = build_block_new(r->builder, "past"), otherwise = build_block_new(r->builder, "plain");
    build_condbr(r->builder, condition, here, otherwise);
    build_at(r->builder, here);
    store_copies(r, i, way);
    build_br(r->builder, stored);
    build_at(r->builder, otherwise);
}

void render_store(Render *r, int i) {
    Slot *s = &r->slots[i];
    DType dtype = r->kernel->buffers.items[s->inst->buffer].dtype;
    int arg = s->inst->args[0];
    if (kernel_is_sum(s->inst)) {
        add_to_sums(r, i);
        return;
    }
    if (!s->vectorial) {
        build_store(r->builder, convert_to_memory(r, r->slots[arg].scalar, dtype), s->pointer[s->level],
                    access_bytes(r, s->inst));
        return;
    }
    for (int c = 0; c < r->unroll; c++) s->memory[c] = convert_to_memory(r, slot_value(r, arg, c), dtype);
    if (!s->stream || r->mask || r->lanes != r->vector_lanes) {
        store_copies(r, i, STORE_PLAIN);
        return;
    }
    int64_t always;
    if (constant_value(s->stream, &always)) {
        store_copies(r, i, always ? STORE_PAST : STORE_PLAIN);
        return;
    }
    IrBlock stored = build_block_new(r->builder, "stored");
    store_if(r, i, s->stream, STORE_PAST, stored);
    if (s->pieces) store_if(r, i, s->pieces, STORE_PIECES, stored);
    store_copies(r, i, STORE_PLAIN);
    build_br(r->builder, stored);
    build_at(r->builder, stored);
}

/* --- stores past the caches --- */

/* An output that would not stay in the caches anyway is written around them: that saves reading each line first (measured: 3x on
 * 128 MB, 2x on 32 MB). The instructions want alignment, which is tested a task; all ways stand in the loop, behind branches that
 * are always predicted. Memory that others have allocated is often aligned to 16 bytes alone (NumPy's large arrays); then vectors
 * are stored in pieces of 16, but for tiles, of whose rows the pieces do not follow each other at once. Pieces take 0.54 to 0.9 of
 * the time of plain stores and 1.04 to 1.1 of that of whole vectors (an AMD EPYC of family 26, two threads, training forms of
 * rmsnorm and of a GELU with dropout). Tiles store whole lines so, or else go through the caches: other rows come between
 * the parts of a line, which leave one by one (a transposed sum of 4096 x 4096 f32, AVX2 on an AMD EPYC of family 25, two threads,
 * 2026-11-23: 37 ms past the caches, 20 with two vectors next to each other, 13 through them; in long strips, transpose.c, less yet). */
static bool is_short_of_lines(const Render *r, const Slot *s) {
    return r->class == CLASS_TILE && r->isa.vector_bytes < CACHE_LINE &&
           tile_vectors(r) * r->vector_lanes * access_bytes(r, s->inst) < CACHE_LINE;
}

static bool may_stream(const Render *r, const Slot *s) {
    if (!r->isa.x86 || s->inst->op != K_STORE || kernel_is_sum(s->inst) || !s->vectorial || s->level != r->levels ||
        r->cache_bytes == 0 || kernel_is_block(r->kernel))
        return false;
    if (is_short_of_lines(r, s)) return false;
    int64_t bytes = access_bytes(r, s->inst) * r->vector_lanes;
    return s->inst->access->kind[r->vector_axis] == STRIDE_ONE && bytes >= 16 && bytes <= r->isa.vector_bytes;
}

void stream_setup(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!may_stream(r, s)) continue;
        IrValue bytes = constant_i64(r, access_bytes(r, s->inst));
        for (int a = 0; a < r->kernel->axis_count; a++)
            if (s->inst->access->kind[a] != STRIDE_ZERO) bytes = build_mul(r->builder, bytes, r->size[a]);
        s->large = build_compare(r->builder, IR_SGT, bytes, constant_i64(r, r->cache_bytes / 2));
        if (is_zero(s->large)) s->large = NULL;
    }
}

IrValue is_multiple(Render *r, IrValue bits, int64_t power) {
    IrValue rest = build_and(r->builder, bits, constant_i64(r, power - 1));
    return build_compare(r->builder, IR_EQ, rest, constant_i64(r, 0));
}

IrValue place_bits(Render *r, const Slot *s, int along) {
    IrValue bits = build_cast(r->builder, IR_BITS, s->pointer[1], IR_I64);
    if (along == r->vector_axis) {
        IrValue start = build_mul(r->builder, r->range_start, constant_i64(r, access_bytes(r, s->inst)));
        bits = build_add(r->builder, bits, start);
    }
    for (int a = 0; a < r->kernel->axis_count; a++)
        if (r->axis_level[a] > 1 && a != along) bits = build_or(r->builder, bits, access_stride(r, s->inst, a));
    return bits;
}

void stream_task(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!s->large) continue;
        IrValue bits = place_bits(r, s, r->vector_axis);
        s->stream = build_and(r->builder, s->large, is_multiple(r, bits, access_bytes(r, s->inst) * r->vector_lanes));
        if (r->class != CLASS_TILE) s->pieces = build_and(r->builder, s->large, is_multiple(r, bits, PIECE));
    }
}

/* Such stores are not ordered by the lock or flag that tells other threads of the result. */
void stream_end(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (r->slots[i].large) {
            build_fence(r->builder);
            return;
        }
}

/* --- kept values: [reduced axes row-major][elements of the lane block, where they vary along LANE]
 * -------------------- */

static int64_t keep_bytes(const KernelInst *inst) {
    return inst->dtype == DT_BOOL ? 1 : (int64_t)dtype_size(inst->dtype);
}

static bool keeps_lanes(const Render *r, const Slot *s) { return r->class == CLASS_OUTER && s->vectorial; }

IrValue render_scratch(Render *r) {
    IrValue rows = constant_i64(r, 1), at = constant_i64(r, 0);
    for (int a = 0; a < r->kernel->axis_count; a++)
        if (r->kernel->axes[a].role == AXIS_REDUCE || r->kernel->axes[a].role == AXIS_REDUCE_LANE)
            rows = build_mul(r->builder, rows, r->size[a]);
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!s->inst->keep && !kernel_is_sum(s->inst)) continue;
        int64_t element = keep_bytes(s->inst) * (keeps_lanes(r, s) ? r->kernel->lane_block : 1);
        s->keep = offset_pointer(r, r->scratch, at);
        IrValue end = build_add(r->builder, at, build_mul(r->builder, rows, constant_i64(r, element)));
        at = build_and(r->builder, build_add(r->builder, end, constant_i64(r, 63)), constant_i64(r, -64));
    }
    return at;
}

void render_keep(Render *r, int i, bool store) {
    Slot *s = &r->slots[i];
    int64_t bytes = keep_bytes(s->inst);
    IrValue index = r->flat[r->levels];
    if (keeps_lanes(r, s)) {
        IrValue lane = build_sub(r->builder, r->index[r->vector_axis], r->range_start);
        index = build_add(r->builder, build_mul(r->builder, index, constant_i64(r, r->kernel->lane_block)), lane);
    }
    IrValue base = offset_pointer(r, s->keep, build_mul(r->builder, index, constant_i64(r, bytes)));
    IrType type = type_memory(r, s->inst->dtype, s->vectorial ? r->lanes : 1);
    IrValue mask = r->mask;
    if (!s->vectorial) r->mask = NULL;
    for (int c = 0; c < (s->vectorial ? r->unroll : 1); c++) {
        IrValue at = offset_pointer(r, base, constant_i64(r, c * bytes * r->lanes));
        if (store)
            store_line(r, convert_to_memory(r, s->vectorial ? s->vector[c] : s->scalar, s->inst->dtype), at, bytes);
        else
            slot_set(r, i, c, convert_from_memory(r, load_line(r, type, at, bytes), s->inst->dtype));
    }
    r->mask = mask;
}
