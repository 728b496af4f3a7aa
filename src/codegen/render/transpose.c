/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: loads that are contiguous along the tile axis come in strips: a vector along the tile axis from each lane of a vector,
 * or a few groups of 16 bytes put together, transposed in registers; the rest of the program then sees them as rows along
 * LANE. Where registers are many a strip takes whole cache lines: lanes are often a power of two of bytes apart, so that
 * their lines share a set of the first cache, and would be gone when the next strip came for its part. What is left at
 * the edges is read element by element. */
#include "codegen/render/render.h"

enum {
    TILE_LANES = 16,
    STRAIGHT_STRIP = 128 /* instructions of a strip that is written out whole; larger ones loop over its rows */
};

/* Interleaves the low (high) halves of each `group` elements, as x86's unpack within 16 bytes and ARM's zip. */
static IrValue zip(Render *r, IrValue a, IrValue b, int lanes, int group, bool high) {
    int from[TILE_LANES];
    for (int i = 0; i < lanes; i++)
        from[i] = i / group * group + i % group / 2 + (high ? group / 2 : 0) + (i & 1) * lanes;
    return build_shuffle(r->builder, a, b, from, lanes);
}

/* log2(group) rounds of zips turn `group` rows into their columns, within each group of lanes. */
static void transpose_groups(Render *r, IrValue *rows, int lanes, int group) {
    for (int round = 1; round < group; round *= 2) {
        IrValue next[TILE_LANES];
        for (int n = 0; n < group / 2; n++) {
            next[2 * n] = zip(r, rows[n], rows[n + group / 2], lanes, group, false);
            next[2 * n + 1] = zip(r, rows[n], rows[n + group / 2], lanes, group, true);
        }
        memcpy(rows, next, (size_t)group * sizeof *next);
    }
}

static IrValue take_groups(Render *r, IrValue a, IrValue b, int lanes, int group, bool odd) {
    int from[TILE_LANES];
    for (int i = 0; i < lanes; i++) from[i] = (i / group * 2 + odd) * group + i % group;
    return build_shuffle(r->builder, a, b, from, lanes);
}

/* As many rows as lanes become their columns: within groups of lanes, then whole groups change places. */
static void transpose_square(Render *r, IrValue *rows, int lanes, int group) {
    int groups = lanes / group;
    for (int n = 0; n < groups; n++) transpose_groups(r, rows + n * group, lanes, group);
    for (int m = 0; m < group; m++)
        for (int round = 1; round < groups; round *= 2) {
            IrValue next[TILE_LANES];
            for (int n = 0; n < groups; n++) {
                const IrValue *pair = rows + n % (groups / 2) * 2 * group + m;
                next[n] = take_groups(r, pair[0], pair[group], lanes, group, n >= groups / 2);
            }
            for (int n = 0; n < groups; n++) rows[n * group + m] = next[n];
        }
}

/* --- one strip --- */

typedef struct Strip {
    IrValue rows[TILE_LANES];
    IrValue memory; /* the rows, when they are looped over */
} Strip;

static IrType row_type(Render *r, const Slot *s, int lanes) {
    return type_memory(r, r->kernel->buffers.items[s->inst->buffer].dtype, lanes);
}

static IrValue put_piece(Render *r, IrValue vector, IrValue piece, int at) {
    if (ir_type(vector) == ir_type(piece)) return piece;
    if (type_lane_count(ir_type(piece)) == 1) return build_insert(r->builder, vector, piece, at);
    return build_insert_lanes(r->builder, vector, piece, at);
}

/* What the next strip reads is prefetched, so that it comes while the other lanes of this strip are done.
 * Vector n of `group` holds in its group g of lanes the piece of lane g * group + n; then the groups are transposed.
 * `count` rows, a multiple of `group`: all pieces of a lane are read one after the other. */
static void load_strip(Render *r, const Slot *s, IrValue row, IrValue lane, int group, int count, IrValue *rows) {
    int lanes = r->vector_lanes;
    int64_t bytes = access_bytes(r, s->inst);
    IrValue stride = access_stride(r, s->inst, r->vector_axis);
    IrValue along = build_mul(r->builder, row, constant_i64(r, bytes));
    IrValue across = build_mul(r->builder, lane, stride);
    IrValue offset = build_add(r->builder, along, across);
    IrValue base = build_offset(r->builder, s->pointer[1], offset, 1);
    for (int n = 0; n < count; n++) rows[n] = ir_undefined(r->builder, row_type(r, s, lanes));
    int64_t own = 16 / bytes;
    bool square = count == lanes && lanes > own && lanes * bytes <= r->isa.vector_bytes;
    for (int n = 0; n < lanes; n++) {
        IrValue step = build_mul(r->builder, stride, constant_i64(r, n));
        IrValue at = build_offset(r->builder, base, step, 1);
        if (count * bytes >= CACHE_LINE) prefetch(r, at, constant_i64(r, count * bytes));
        if (square) {
            rows[n] = build_load(r->builder, row_type(r, s, lanes), at, bytes);
            continue;
        }
        for (int k = 0; k < count; k += group) {
            IrValue skip = constant_i64(r, k * bytes), from = build_offset(r->builder, at, skip, 1);
            IrValue piece = build_load(r->builder, row_type(r, s, group), from, bytes);
            rows[k + n % group] = put_piece(r, rows[k + n % group], piece, n - n % group);
        }
    }
    if (square) {
        transpose_square(r, rows, lanes, (int)own);
        return;
    }
    for (int k = 0; k < count; k += group) transpose_groups(r, rows + k, lanes, group);
}

static IrValue row_address(Render *r, const Slot *s, const Strip *strip, IrValue row) {
    return build_offset(r->builder, strip->memory, row, (int)access_bytes(r, s->inst) * r->vector_lanes);
}

static void render_row(Render *r, IrValue row, IrValue lane) {
    int axis = r->kernel->tile_axis;
    r->index[axis] = row;
    render_advance(r, 0, 2, axis, row);
    render_level(r, 0, 2);
    r->index[r->vector_axis] = build_add(r->builder, r->range_start, lane);
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

static void render_strip(Render *r, IrValue row, IrValue lane, int group, int height) {
    int count = r->kernel->insts.count, lanes = r->vector_lanes;
    Strip *strips = ARENA_ARRAY(r->arena, Strip, count);
    bool straight = render_weight(r, 0) * height <= STRAIGHT_STRIP;
    IrValue element = build_add(r->builder, r->range_start, lane);
    r->lanes = lanes, r->unroll = 1, r->mask = r->live = NULL;
    for (int i = 0; i < count; i++) {
        Slot *s = &r->slots[i];
        if (!s->tiled || !r->needed[0][i]) continue;
        load_strip(r, s, row, element, group, height, strips[i].rows);
        if (straight) continue;
        strips[i].memory = build_variable(r->builder, row_type(r, s, lanes), height);
        for (int n = 0; n < height; n++)
            build_store(r->builder, strips[i].rows[n], row_address(r, s, &strips[i], constant_i64(r, n)), 0);
    }
    Loop loop = {.index = constant_i64(r, 0)};
    if (!straight) loop = loop_begin(r, constant_i64(r, 0), constant_i64(r, height), 1);
    for (int n = 0; n < (straight ? height : 1); n++) {
        IrValue at = straight ? constant_i64(r, n) : loop.index;
        for (int i = 0; i < count; i++) {
            Slot *s = &r->slots[i];
            s->tile_row = strips[i].rows[n];
            if (strips[i].memory)
                s->tile_row = build_load(r->builder, row_type(r, s, lanes), row_address(r, s, &strips[i], at), 0);
        }
        render_row(r, build_add(r->builder, row, at), lane);
    }
    if (!straight) loop_end(r, &loop);
    for (int i = 0; i < count; i++) r->slots[i].tile_row = NULL;
}

/* --- the tile --- */

static bool divides(const KernelAxis *axis, int64_t block, int64_t by) {
    int64_t multiple = axis->param < 0 ? axis->size : axis->multiple;
    return multiple % by == 0 && block % by == 0;
}

static IrValue whole_steps(Render *r, IrValue count, int64_t step) {
    return build_and(r->builder, count, constant_i64(r, -step));
}

/* Rows that the strips leave out whole, and the ends of the others. */
static void render_edges(Render *r, IrValue first, IrValue rows, IrValue whole_rows, IrValue whole) {
    int axis = r->kernel->tile_axis;
    IrValue none = build_compare(r->builder, IR_EQ, whole, r->range_count);
    IrValue start = build_select(r->builder, none, whole_rows, constant_i64(r, 0));
    Loop loop = loop_begin(r, start, rows, 1);
    IrValue covered = build_compare(r->builder, IR_SLT, loop.index, whole_rows);
    IrValue lane = build_select(r->builder, covered, whole, constant_i64(r, 0));
    r->index[axis] = build_add(r->builder, first, loop.index);
    render_advance(r, 0, 2, axis, r->index[axis]);
    render_level(r, 0, 2);
    render_vector_range(r, 0, 3, lane, r->range_count, NULL);
    loop_end(r, &loop);
}

/* Strips of `height` rows from row `from` to row `to` of the tile. */
static void render_strips(Render *r, IrValue first, IrValue from, IrValue to, IrValue whole, int group, int height) {
    Loop outer = loop_begin(r, from, to, height);
    Loop inner = loop_begin(r, constant_i64(r, 0), whole, r->vector_lanes);
    render_strip(r, build_add(r->builder, first, outer.index), inner.index, group, height);
    loop_end(r, &inner);
    loop_end(r, &outer);
}

/* The same, with one question for all that they store, not one a row: whether all of it goes past the caches, or none. */
static void render_high_strips(Render *r, IrValue first, IrValue to, IrValue whole, int group, int height) {
    int count = r->kernel->insts.count;
    IrValue *streams = ARENA_ARRAY(r->arena, IrValue, count), all = NULL, zero = constant_i64(r, 0);
    for (int i = 0; i < count; i++) {
        streams[i] = r->slots[i].stream;
        if (streams[i]) all = all ? build_and(r->builder, all, streams[i]) : streams[i];
    }
    if (!all) {
        render_strips(r, first, zero, to, whole, group, height);
        return;
    }
    IrBlock ways[] = {build_block_new(r->builder, "plain"), build_block_new(r->builder, "past")};
    IrBlock over = build_block_new(r->builder, "over");
    build_condbr(r->builder, all, ways[1], ways[0]);
    for (int past = 0; past < 2; past++) {
        build_at(r->builder, ways[past]);
        for (int i = 0; i < count; i++)
            if (streams[i]) r->slots[i].stream = past ? constant_int(r, IR_I1, 1) : NULL;
        render_strips(r, first, zero, to, whole, group, height);
        build_br(r->builder, over);
    }
    for (int i = 0; i < count; i++) r->slots[i].stream = streams[i];
    build_at(r->builder, over);
}

void render_tiles(Render *r) {
    const Kernel *k = r->kernel;
    int axis = k->tile_axis, group = strip_rows(r), height = group * strip_groups(r, group);
    int64_t lanes = r->vector_lanes;
    IrValue block = constant_i64(r, k->tile_block), zero = constant_i64(r, 0);
    IrValue first = build_mul(r->builder, r->index[axis], block);
    IrValue rows = build_smin(r->builder, build_sub(r->builder, r->size[axis], first), block);
    IrValue whole_rows = zero, whole = zero;
    if (lanes > 1) {
        IrValue high_rows = whole_steps(r, rows, height);
        whole = whole_steps(r, r->range_count, lanes);
        render_high_strips(r, first, high_rows, whole, group, height);
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
