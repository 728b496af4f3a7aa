/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: loads that are contiguous along the tile axis come in strips: a few groups of 16 bytes along the tile axis from
 * each lane of a vector, put together and transposed in registers; the rest of the program then sees them as rows along
 * LANE. Where registers are many a strip takes whole cache lines: lanes are often a power of two of bytes apart, so that
 * their lines share a set of the first cache, and would be gone when the next strip came for its part. What is left at
 * the edges is read element by element. */
#include "codegen/llvm/render.h"

enum {
    TILE_LANES = 16,
    STRAIGHT_STRIP = 128 /* instructions of a strip that is written out whole; larger ones loop over its rows */
};

static LLVMValueRef shuffle(Render *r, LLVMValueRef a, LLVMValueRef b, const int *from, int lanes) {
    LLVMValueRef mask[TILE_LANES];
    for (int i = 0; i < lanes; i++) mask[i] = LLVMConstInt(r->i32, (unsigned)from[i], 0);
    return LLVMBuildShuffleVector(r->builder, a, b, LLVMConstVector(mask, (unsigned)lanes), "");
}

/* Interleaves the low (high) halves of each `group` elements, as x86's unpack within 16 bytes and ARM's zip. */
static LLVMValueRef zip(Render *r, LLVMValueRef a, LLVMValueRef b, int lanes, int group, bool high) {
    int from[TILE_LANES];
    for (int i = 0; i < lanes; i++)
        from[i] = i / group * group + i % group / 2 + (high ? group / 2 : 0) + (i & 1) * lanes;
    return shuffle(r, a, b, from, lanes);
}

/* log2(group) rounds of zips turn `group` rows into their columns, within each group of lanes. */
static void transpose_groups(Render *r, LLVMValueRef *rows, int lanes, int group) {
    for (int round = 1; round < group; round *= 2) {
        LLVMValueRef next[TILE_LANES];
        for (int n = 0; n < group / 2; n++) {
            next[2 * n] = zip(r, rows[n], rows[n + group / 2], lanes, group, false);
            next[2 * n + 1] = zip(r, rows[n], rows[n + group / 2], lanes, group, true);
        }
        memcpy(rows, next, (size_t)group * sizeof *next);
    }
}

/* --- one strip --- */

typedef struct Strip {
    LLVMValueRef rows[TILE_LANES];
    LLVMValueRef memory; /* the rows, when they are looped over */
} Strip;

static LLVMTypeRef row_type(Render *r, const Slot *s, int lanes) {
    return type_memory(r, r->kernel->buffers.items[s->inst->buffer].dtype, lanes);
}

static LLVMValueRef put_piece(Render *r, LLVMValueRef vector, LLVMValueRef piece, int at) {
    if (LLVMTypeOf(vector) == LLVMTypeOf(piece)) return piece;
    if (type_lane_count(LLVMTypeOf(piece)) == 1)
        return LLVMBuildInsertElement(r->builder, vector, piece, constant_i64(r, at), "");
    LLVMTypeRef overload[] = {LLVMTypeOf(vector), LLVMTypeOf(piece)};
    LLVMValueRef args[] = {vector, piece, constant_i64(r, at)};
    return intrinsic(r, "llvm.vector.insert", overload, 2, args, 3);
}

/* What the next strip reads is prefetched, so that it comes while the other lanes of this strip are done.
 * Vector n of `group` holds in its group g of lanes the piece of lane g * group + n; then the groups are transposed.
 * `count` rows, a multiple of `group`: all pieces of a lane are read one after the other. */
static void load_strip(Render *r, const Slot *s, LLVMValueRef row, LLVMValueRef lane, int group, int count,
                       LLVMValueRef *rows) {
    int lanes = r->vector_lanes;
    int64_t bytes = access_bytes(r, s->inst);
    LLVMValueRef stride = access_stride(r, s->inst, r->vector_axis);
    LLVMValueRef along = LLVMBuildMul(r->builder, row, constant_i64(r, bytes), "");
    LLVMValueRef across = LLVMBuildMul(r->builder, lane, stride, "");
    LLVMValueRef offset = LLVMBuildAdd(r->builder, along, across, "");
    LLVMValueRef base = LLVMBuildGEP2(r->builder, r->i8, s->pointer[1], &offset, 1, "");
    for (int n = 0; n < count; n++) rows[n] = LLVMGetPoison(row_type(r, s, lanes));
    for (int n = 0; n < lanes; n++) {
        LLVMValueRef step = LLVMBuildMul(r->builder, stride, constant_i64(r, n), "");
        LLVMValueRef at = LLVMBuildGEP2(r->builder, r->i8, base, &step, 1, "");
        if (count * bytes >= CACHE_LINE) prefetch(r, at, constant_i64(r, count * bytes));
        for (int k = 0; k < count; k += group) {
            LLVMValueRef skip = constant_i64(r, k * bytes), from = LLVMBuildGEP2(r->builder, r->i8, at, &skip, 1, "");
            LLVMValueRef piece = LLVMBuildLoad2(r->builder, row_type(r, s, group), from, "");
            LLVMSetAlignment(piece, (unsigned)bytes);
            rows[k + n % group] = put_piece(r, rows[k + n % group], piece, n - n % group);
        }
    }
    for (int k = 0; k < count; k += group) transpose_groups(r, rows + k, lanes, group);
}

static LLVMValueRef row_address(Render *r, const Slot *s, const Strip *strip, LLVMValueRef row) {
    return LLVMBuildGEP2(r->builder, row_type(r, s, r->vector_lanes), strip->memory, &row, 1, "");
}

static void render_row(Render *r, LLVMValueRef row, LLVMValueRef lane) {
    int axis = r->kernel->tile_axis;
    r->index[axis] = row;
    render_advance(r, 0, 2, axis, row);
    render_level(r, 0, 2);
    r->index[r->vector_axis] = LLVMBuildNSWAdd(r->builder, r->range_start, lane, "");
    render_advance(r, 0, 3, r->vector_axis, r->index[r->vector_axis]);
    render_level(r, 0, 3);
}

/* Rows of a strip: what 16 bytes hold of the widest of its loads' elements. */
static int strip_rows(const Render *r) {
    int rows = r->vector_lanes;
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (!s->tiled || !r->needed[0][i]) continue;
        int held = 16 / (int)access_bytes(r, s->inst);
        if (held < rows) rows = held;
    }
    return rows;
}

/* How many groups of rows a strip takes: what fills a line of the narrowest load, a row a register. */
static int strip_groups(const Render *r, int group) {
    int groups = r->isa.avx512 ? TILE_LANES / group : r->isa.avx2 ? TILE_LANES / 2 / group : 1;
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (!s->tiled || !r->needed[0][i]) continue;
        while (groups > 1 && groups * group * (int)access_bytes(r, s->inst) > CACHE_LINE) groups /= 2;
    }
    return groups > 1 ? groups : 1;
}

static void render_strip(Render *r, LLVMValueRef row, LLVMValueRef lane, int group, int height) {
    int count = r->kernel->insts.count, lanes = r->vector_lanes;
    Strip *strips = ARENA_ARRAY(r->arena, Strip, count);
    bool straight = render_weight(r, 0) * height <= STRAIGHT_STRIP;
    LLVMValueRef element = LLVMBuildNSWAdd(r->builder, r->range_start, lane, "");
    r->lanes = lanes, r->unroll = 1, r->mask = r->live = NULL;
    for (int i = 0; i < count; i++) {
        Slot *s = &r->slots[i];
        if (!s->tiled || !r->needed[0][i]) continue;
        load_strip(r, s, row, element, group, height, strips[i].rows);
        if (straight) continue;
        strips[i].memory = slot_alloca(r, LLVMArrayType(row_type(r, s, lanes), (unsigned)height), "strip");
        for (int n = 0; n < height; n++)
            LLVMBuildStore(r->builder, strips[i].rows[n], row_address(r, s, &strips[i], constant_i64(r, n)));
    }
    Loop loop = {.index = constant_i64(r, 0)};
    if (!straight) loop = loop_begin(r, constant_i64(r, 0), constant_i64(r, height), 1);
    for (int n = 0; n < (straight ? height : 1); n++) {
        LLVMValueRef at = straight ? constant_i64(r, n) : loop.index;
        for (int i = 0; i < count; i++) {
            Slot *s = &r->slots[i];
            s->tile_row = strips[i].rows[n];
            if (strips[i].memory)
                s->tile_row = LLVMBuildLoad2(r->builder, row_type(r, s, lanes), row_address(r, s, &strips[i], at), "");
        }
        render_row(r, LLVMBuildNSWAdd(r->builder, row, at, ""), lane);
    }
    if (!straight) loop_end(r, &loop);
    for (int i = 0; i < count; i++) r->slots[i].tile_row = NULL;
}

/* --- the tile --- */

static bool divides(const KernelAxis *axis, int64_t block, int64_t by) {
    int64_t multiple = axis->param < 0 ? axis->size : axis->multiple;
    return multiple % by == 0 && block % by == 0;
}

static LLVMValueRef smaller(Render *r, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(r->builder, LLVMBuildICmp(r->builder, LLVMIntSLT, a, b, ""), a, b, "");
}

static LLVMValueRef whole_steps(Render *r, LLVMValueRef count, int64_t step) {
    return LLVMBuildAnd(r->builder, count, constant_i64(r, -step), "");
}

/* Rows that the strips leave out whole, and the ends of the others. */
static void render_edges(Render *r, LLVMValueRef first, LLVMValueRef rows, LLVMValueRef whole_rows,
                         LLVMValueRef whole) {
    int axis = r->kernel->tile_axis;
    LLVMValueRef none = LLVMBuildICmp(r->builder, LLVMIntEQ, whole, r->range_count, "");
    LLVMValueRef start = LLVMBuildSelect(r->builder, none, whole_rows, constant_i64(r, 0), "");
    Loop loop = loop_begin(r, start, rows, 1);
    LLVMValueRef covered = LLVMBuildICmp(r->builder, LLVMIntSLT, loop.index, whole_rows, "");
    LLVMValueRef lane = LLVMBuildSelect(r->builder, covered, whole, constant_i64(r, 0), "");
    r->index[axis] = LLVMBuildNSWAdd(r->builder, first, loop.index, "");
    render_advance(r, 0, 2, axis, r->index[axis]);
    render_level(r, 0, 2);
    render_vector_range(r, 0, 3, lane, r->range_count, NULL);
    loop_end(r, &loop);
}

/* Strips of `height` rows from row `from` to row `to` of the tile. */
static void render_strips(Render *r, LLVMValueRef first, LLVMValueRef from, LLVMValueRef to, LLVMValueRef whole,
                          int group, int height) {
    Loop outer = loop_begin(r, from, to, height);
    Loop inner = loop_begin(r, constant_i64(r, 0), whole, r->vector_lanes);
    render_strip(r, LLVMBuildNSWAdd(r->builder, first, outer.index, ""), inner.index, group, height);
    loop_end(r, &inner);
    loop_end(r, &outer);
}

void render_tiles(Render *r) {
    const Kernel *k = r->kernel;
    int axis = k->tile_axis, group = strip_rows(r), height = group * strip_groups(r, group);
    int64_t lanes = r->vector_lanes;
    LLVMValueRef block = constant_i64(r, k->tile_block), zero = constant_i64(r, 0);
    LLVMValueRef first = LLVMBuildNSWMul(r->builder, r->index[axis], block, "");
    LLVMValueRef rows = smaller(r, LLVMBuildSub(r->builder, r->size[axis], first, ""), block);
    LLVMValueRef whole_rows = zero, whole = zero;
    if (lanes > 1) {
        LLVMValueRef high_rows = whole_steps(r, rows, height);
        whole = whole_steps(r, r->range_count, lanes);
        render_strips(r, first, zero, high_rows, whole, group, height);
        whole_rows = high_rows;
        if (height > group && !divides(&k->axes[axis], k->tile_block, height)) {
            whole_rows = whole_steps(r, rows, group);
            render_strips(r, first, high_rows, whole_rows, whole, group, group);
        }
    }
    bool even =
        divides(&k->axes[axis], k->tile_block, group) && divides(&k->axes[r->vector_axis], k->lane_block, lanes);
    if (lanes == 1 || !even) render_edges(r, first, rows, whole_rows, whole);
}
