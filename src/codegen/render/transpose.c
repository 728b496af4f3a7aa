/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: loads that are contiguous along the tile axis come in strips: a vector along the tile axis from each lane of a vector,
 * or a few groups of 16 bytes put together, transposed in registers; the rest of the program then sees them as rows along
 * LANE. A strip takes whole cache lines on both sides: lanes, and rows, are often a power of two of bytes apart, so that
 * their lines share a set of a cache, and would be gone when the next strip came for its part. Where registers are too few
 * for that, what is transposed waits in memory. What is left at the edges is read element by element. */
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

/* Its size. */
typedef struct Form {
    int rows, vectors; /* along the tile axis, and along LANE */
    int part;          /* rows that are in registers at once */
    int group;         /* of which so many are transposed together, 16 bytes each */
} Form;

/* It takes whole lines through memory. */
static bool is_wide(const Form *form) { return form->vectors > 1; }

/* The rows of one load. */
typedef struct Strip {
    IrValue rows[TILE_LANES];
    IrValue memory;          /* [rows][vectors], when they are looped over */
    IrValue row[MAX_UNROLL]; /* [vectors]: the present one */
} Strip;

static IrType row_type(Render *r, const Slot *s, int lanes) {
    return type_memory(r, r->kernel->buffers.items[s->inst->buffer].dtype, lanes);
}

static IrValue put_piece(Render *r, IrValue vector, IrValue piece, int at) {
    if (ir_type(vector) == ir_type(piece)) return piece;
    if (type_lane_count(ir_type(piece)) == 1) return build_insert(r->builder, vector, piece, at);
    return build_insert_lanes(r->builder, vector, piece, at);
}

/* A whole line's successor, which the next strip reads, is prefetched, so that it comes while the other lanes of this strip are done.
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
        if (count * bytes >= CACHE_LINE) prefetch(r, at, constant_i64(r, count * bytes), 1);
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

static IrValue row_address(Render *r, const Slot *s, const Strip *strip, IrValue row, const Form *form, int vector) {
    int bytes = (int)access_bytes(r, s->inst) * r->vector_lanes;
    IrValue at = build_offset(r->builder, strip->memory, row, bytes * form->vectors);
    return build_offset(r->builder, at, constant_i64(r, (int64_t)vector * bytes), 1);
}

/* Into memory, part by part. */
static void load_parts(Render *r, const Slot *s, Strip *strip, IrValue row, IrValue lane, const Form *form) {
    strip->memory = build_variable(r->builder, row_type(r, s, r->vector_lanes), form->rows * form->vectors);
    Loop parts = loop_begin(r, constant_i64(r, 0), constant_i64(r, form->rows), form->part);
    for (int v = 0; v < form->vectors; v++) {
        IrValue from = build_add(r->builder, lane, constant_i64(r, (int64_t)v * r->vector_lanes));
        load_strip(r, s, build_add(r->builder, row, parts.index), from, form->group, form->part, strip->rows);
        for (int n = 0; n < form->part; n++) {
            IrValue at = build_add(r->builder, parts.index, constant_i64(r, n));
            build_store(r->builder, strip->rows[n], row_address(r, s, strip, at, form, v), 0);
        }
    }
    loop_end(r, &parts);
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

/* Of elements of two bytes and less, strips of whole lines are so large that they gain nothing (4096 x 4096 f16: 9.2 ms instead of
 * 8.3). */
int tile_vectors(const Render *r) {
    enum { LEAST_BYTES = 4 };
    int wide = 1, vectors = 1;
    if (!r->isa.avx2 || r->isa.avx512) return 1; /* vectors are lines, or registers are few and short */
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (s->inst->op != K_LOAD && s->inst->op != K_STORE) continue;
        int bytes = (int)access_bytes(r, s->inst);
        bool line = s->inst->access->kind[r->vector_axis] == STRIDE_ONE;
        if ((s->tiled || line) && bytes < LEAST_BYTES) return 1;
        if (!s->tiled && line && bytes > wide) wide = bytes;
    }
    while (vectors * r->vector_lanes * wide < CACHE_LINE) vectors *= 2;
    return vectors;
}

/* As many rows as fill a line of the narrowest load. */
static Form whole_lines(const Render *r, Form part) {
    int narrow = CACHE_LINE;
    Form form = {part.rows, tile_vectors(r), part.part, part.group};
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (s->tiled && r->needed[0][i] && access_bytes(r, s->inst) < narrow) narrow = (int)access_bytes(r, s->inst);
    }
    while (form.vectors > 1 && form.rows * narrow < CACHE_LINE) form.rows *= 2;
    return form;
}

static void render_strip(Render *r, IrValue row, IrValue lane, const Form *form) {
    int count = r->kernel->insts.count, lanes = r->vector_lanes;
    Strip *strips = ARENA_ARRAY(r->arena, Strip, count);
    bool straight = !is_wide(form) && render_weight(r, 0) * form->rows <= STRAIGHT_STRIP;
    IrValue element = build_add(r->builder, r->range_start, lane);
    r->lanes = lanes, r->unroll = form->vectors, r->mask = r->live = NULL;
    for (int i = 0; i < count; i++) {
        Slot *s = &r->slots[i];
        if (!s->tiled || !r->needed[0][i]) continue;
        s->tile_row = strips[i].row;
        if (straight)
            load_strip(r, s, row, element, form->group, form->rows, strips[i].rows);
        else
            load_parts(r, s, &strips[i], row, element, form);
    }
    Loop loop = {.index = constant_i64(r, 0)};
    if (!straight) loop = loop_begin(r, constant_i64(r, 0), constant_i64(r, form->rows), 1);
    for (int n = 0; n < (straight ? form->rows : 1); n++) {
        IrValue at = straight ? constant_i64(r, n) : loop.index;
        for (int i = 0; i < count; i++) {
            Slot *s = &r->slots[i];
            strips[i].row[0] = strips[i].rows[n];
            for (int v = 0; v < form->vectors && strips[i].memory; v++)
                strips[i].row[v] =
                    build_load(r->builder, row_type(r, s, lanes), row_address(r, s, &strips[i], at, form, v), 0);
        }
        render_row(r, build_add(r->builder, row, at), lane);
    }
    if (!straight) loop_end(r, &loop);
    for (int i = 0; i < count; i++) r->slots[i].tile_row = NULL;
}

static void prefetch_lines(Render *r, IrValue from, IrValue stride, int count) {
    enum { AT_ONCE = 8 };
    Loop loop = loop_begin(r, constant_i64(r, 0), constant_i64(r, count), AT_ONCE);
    IrValue at = build_offset(r->builder, from, build_mul(r->builder, loop.index, stride), 1);
    for (int n = 0; n < AT_ONCE; n++) prefetch(r, at, build_mul(r->builder, stride, constant_i64(r, n)), 2);
    loop_end(r, &loop);
}

/* Whole lines that the strip at `row` and `lane` reads, to the second cache: more of them than a set of the first holds may
 * be a power of two of bytes apart. */
static void prefetch_strip(Render *r, IrValue row, IrValue lane, const Form *form) {
    IrBuilder *b = r->builder;
    int axis = r->kernel->tile_axis;
    IrValue element = build_add(b, r->range_start, lane);
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (s->inst->op != K_LOAD || !r->needed[0][i] || s->level < 3) continue;
        bool is_line = s->inst->access->kind[r->vector_axis] == STRIDE_ONE;
        if (!s->tiled && (!is_line || s->inst->access->kind[axis] == STRIDE_ZERO)) continue;
        IrValue down = access_stride(r, s->inst, axis), across = access_stride(r, s->inst, r->vector_axis);
        IrValue offset = build_add(b, build_mul(b, row, down), build_mul(b, element, across));
        IrValue from = build_offset(b, s->pointer[1], offset, 1);
        prefetch_lines(r, from, s->tiled ? across : down, s->tiled ? form->vectors * r->vector_lanes : form->rows);
    }
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

typedef struct Range {
    IrValue from, to;
} Range;

/* Strips over rows and lanes of the tile. Each wide one prefetches what the next one reads. */
static void render_strips(Render *r, IrValue first, Range rows, Range lanes, const Form *form) {
    IrBuilder *b = r->builder;
    int64_t step = (int64_t)form->vectors * r->vector_lanes;
    Loop outer = loop_begin(r, rows.from, rows.to, form->rows);
    Loop inner = loop_begin(r, lanes.from, lanes.to, step);
    IrValue row = build_add(b, first, outer.index);
    if (is_wide(form)) {
        IrValue next = build_add(b, inner.index, constant_i64(r, step));
        IrValue over = build_compare(b, IR_SGE, next, lanes.to);
        IrValue down = build_select(b, over, constant_i64(r, form->rows), constant_i64(r, 0));
        prefetch_strip(r, build_add(b, row, down), build_select(b, over, lanes.from, next), form);
    }
    render_strip(r, row, inner.index, form);
    loop_end(r, &inner);
    loop_end(r, &outer);
}

/* In strips of whole lines, as far as they go. */
static void render_lines(Render *r, IrValue first, Range rows, Range lanes, const Form *form, const Form *lines) {
    const Kernel *k = r->kernel;
    int64_t step = (int64_t)lines->vectors * r->vector_lanes;
    IrValue down = whole_steps(r, rows.to, lines->rows), across = whole_steps(r, lanes.to, step);
    render_strips(r, first, (Range){rows.from, down}, (Range){lanes.from, across}, lines);
    for (int i = 0; i < r->kernel->insts.count; i++) r->slots[i].stream = NULL;
    if (!divides(&k->axes[r->vector_axis], k->lane_block, step))
        render_strips(r, first, (Range){rows.from, down}, (Range){across, lanes.to}, form);
    if (!divides(&k->axes[k->tile_axis], k->tile_block, lines->rows))
        render_strips(r, first, (Range){down, rows.to}, lanes, form);
}

/* Whether nothing that is loaded lies at the same place of a page as what is stored: rows are often a multiple of a page apart,
 * and a load waits for an earlier store with the same last twelve bits of its address, for long where that goes past the caches. */
static IrValue is_apart(Render *r, const Slot *to, IrValue so_far) {
    enum { PAGE = 4096, NEAR = 512 };
    IrBuilder *b = r->builder;
    IrValue at = build_cast(b, IR_BITS, to->pointer[1], IR_I64);
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (s->inst->op != K_LOAD || s->tiled || s->inst->access->kind[r->kernel->tile_axis] == STRIDE_ZERO) continue;
        IrValue distance = build_sub(b, build_cast(b, IR_BITS, s->pointer[1], IR_I64), at);
        distance = build_and(b, build_add(b, distance, constant_i64(r, NEAR)), constant_i64(r, PAGE - 1));
        so_far = build_and(b, so_far, build_compare(b, IR_SGT, distance, constant_i64(r, 2 * NEAR)));
    }
    return so_far;
}

/* Whether strips of whole lines pay: they meet whole lines, which they store past the caches. */
static IrValue meets_lines(Render *r, IrValue so_far) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (s->stream || s->tiled) {
            IrValue bits = place_bits(r, s, s->tiled ? r->kernel->tile_axis : r->vector_axis);
            so_far = build_and(r->builder, so_far, is_multiple(r, bits, CACHE_LINE));
        }
        if (s->stream) so_far = is_apart(r, s, so_far);
    }
    return so_far;
}

/* The same, with one question for all that they store, not one a row: whether all of it goes past the caches, in strips of the form
 * `lines`, or none. */
static void render_high_strips(Render *r, IrValue first, Range rows, Range lanes, const Form *form, const Form *lines) {
    int count = r->kernel->insts.count;
    IrValue *streams = ARENA_ARRAY(r->arena, IrValue, count), all = NULL;
    for (int i = 0; i < count; i++) {
        streams[i] = r->slots[i].stream;
        if (streams[i]) all = all ? build_and(r->builder, all, streams[i]) : streams[i];
    }
    if (!all) {
        render_strips(r, first, rows, lanes, form);
        return;
    }
    if (is_wide(lines)) all = meets_lines(r, all);
    IrBlock ways[] = {build_block_new(r->builder, "plain"), build_block_new(r->builder, "past")};
    IrBlock over = build_block_new(r->builder, "over");
    build_condbr(r->builder, all, ways[1], ways[0]);
    for (int past = 0; past < 2; past++) {
        build_at(r->builder, ways[past]);
        for (int i = 0; i < count; i++)
            if (streams[i]) r->slots[i].stream = past ? constant_int(r, IR_I1, 1) : NULL;
        if (past && is_wide(lines))
            render_lines(r, first, rows, lanes, form, lines);
        else
            render_strips(r, first, rows, lanes, form);
        build_br(r->builder, over);
    }
    /* What is left is less than lines. */
    for (int i = 0; i < count; i++) r->slots[i].stream = is_wide(lines) ? NULL : streams[i];
    build_at(r->builder, over);
}

void render_tiles(Render *r) {
    const Kernel *k = r->kernel;
    int axis = k->tile_axis, group = strip_rows(r), height = group * strip_groups(r, group);
    int64_t lanes = r->vector_lanes;
    const Form low = {group, 1, group, group}, high = {height, 1, height, group}, lines = whole_lines(r, high);
    IrValue block = constant_i64(r, k->tile_block), zero = constant_i64(r, 0);
    IrValue first = build_mul(r->builder, r->index[axis], block);
    IrValue rows = build_smin(r->builder, build_sub(r->builder, r->size[axis], first), block);
    IrValue whole_rows = zero, whole = zero;
    if (lanes > 1) {
        IrValue high_rows = whole_steps(r, rows, height);
        whole = whole_steps(r, r->range_count, lanes);
        render_high_strips(r, first, (Range){zero, high_rows}, (Range){zero, whole}, &high, &lines);
        whole_rows = high_rows;
        if (height > group && !divides(&k->axes[axis], k->tile_block, height)) {
            whole_rows = whole_steps(r, rows, group);
            render_strips(r, first, (Range){high_rows, whole_rows}, (Range){zero, whole}, &low);
        }
    }
    bool even =
        divides(&k->axes[axis], k->tile_block, group) && divides(&k->axes[r->vector_axis], k->lane_block, lanes);
    if (lanes == 1 || !even) render_edges(r, first, rows, whole_rows, whole);
}
