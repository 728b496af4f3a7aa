/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: loads that are contiguous along the tile axis come in strips: a vector along the tile axis from each lane of a vector,
 * or a few groups of 16 bytes put together, transposed in registers; the rest of the program then sees them as rows along
 * LANE. A strip takes whole cache lines on both sides: lanes, and rows, are often a power of two of bytes apart, so that
 * their lines share a set of a cache, and would be gone when the next strip came for its part. Where registers are too few
 * for that, what is transposed waits in memory, and if the output goes past the caches, a strip is as long as the tile and as high as
 * a first-level cache: of lines that are far apart, memory gives those next to each other several times faster (AVX2 on an AMD EPYC of
 * family 25, 2026-11-29, least of 5 runs in turn with 16 and with 32 kB, two threads and one: 4096 x 4096 f32 alone 7.0 -> 5.8 ms and
 * 12.2 -> 10.0, f16 plus another 6.5 -> 6.1 and 12.3 -> 10.1, channels last from first 2.1 -> 1.9 and 4.9 -> 4.0, f64 20.3 -> 21.8 and
 * 28.5 -> 28.5; 64 kB as 32). What is left at the edges is read element by element. */
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

/* What strips take: multiples of `rows` along the tile axis and of `vectors` along LANE. */
typedef struct Form {
    int rows, vectors;
    int part;                    /* rows that are in registers at once */
    int group;                   /* of which so many are transposed together, 16 bytes each */
    int most_rows, most_vectors; /* of a strip, what its memory holds */
} Form;

/* It takes whole lines through memory. */
static bool is_wide(const Form *form) { return form->vectors > 1; }

typedef struct Range {
    IrValue from, to;
} Range;

/* The rows of one load. */
typedef struct Strip {
    IrValue rows[TILE_LANES];
    IrValue memory;          /* [most_rows][most_vectors], when they are looped over */
    IrValue row[MAX_UNROLL]; /* [vectors]: the present ones */
} Strip;

static IrType row_type(Render *r, const Slot *s, int lanes) {
    return type_memory(r, r->kernel->buffers.items[s->inst->buffer].dtype, lanes);
}

static IrValue put_piece(Render *r, IrValue vector, IrValue piece, int at) {
    if (ir_type(vector) == ir_type(piece)) return piece;
    if (type_lane_count(ir_type(piece)) == 1) return build_insert(r->builder, vector, piece, at);
    return build_insert_lanes(r->builder, vector, piece, at);
}

static IrValue place_of(Render *r, const Slot *s, IrValue row, IrValue lane) {
    IrBuilder *b = r->builder;
    IrValue down = build_mul(b, row, access_stride(r, s->inst, r->kernel->tile_axis));
    IrValue across = build_mul(b, lane, access_stride(r, s->inst, r->vector_axis));
    return build_offset(b, s->pointer[1], build_add(b, down, across), 1);
}

/* A whole line's successor, which the next strip reads, is prefetched, so that it comes while the other lanes of this strip are done.
 * Vector n of `group` holds in its group g of lanes the piece of lane g * group + n; then the groups are transposed.
 * `count` rows, a multiple of `group`: all pieces of a lane are read one after the other. */
static void load_strip(Render *r, const Slot *s, IrValue row, IrValue lane, int group, int count, IrValue *rows) {
    int lanes = r->vector_lanes;
    int64_t bytes = access_bytes(r, s->inst);
    IrValue stride = access_stride(r, s->inst, r->vector_axis);
    IrValue base = place_of(r, s, row, lane);
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

/* row, lane: from the strip's first. */
static IrValue row_address(Render *r, const Slot *s, const Strip *strip, IrValue row, IrValue lane, const Form *form) {
    int64_t bytes = access_bytes(r, s->inst);
    IrValue at = build_offset(r->builder, strip->memory, row, bytes * r->vector_lanes * form->most_vectors);
    return build_offset(r->builder, at, lane, bytes);
}

static void prefetch_lines(Render *r, IrValue from, IrValue stride, int count) {
    enum { AT_ONCE = 8 };
    int step = count < AT_ONCE ? count : AT_ONCE;
    Loop loop = loop_begin(r, constant_i64(r, 0), constant_i64(r, count), step);
    IrValue at = build_offset(r->builder, from, build_mul(r->builder, loop.index, stride), 1);
    for (int n = 0; n < step; n++) prefetch(r, at, build_mul(r->builder, stride, constant_i64(r, n)), 2);
    loop_end(r, &loop);
}

/* What is read of the next lanes of a tiled load, all rows of the strip; behind the last lanes, of the next strip's first ones. */
static void prefetch_lanes(Render *r, const Slot *s, IrValue row, Range lanes, IrValue lane, const Form *form) {
    IrBuilder *b = r->builder;
    int64_t bytes = form->most_rows * access_bytes(r, s->inst);
    IrValue next = build_add(b, lane, constant_i64(r, r->vector_lanes));
    IrValue over = build_compare(b, IR_SGE, next, lanes.to);
    IrValue down = build_select(b, over, constant_i64(r, form->most_rows), constant_i64(r, 0));
    IrValue from = place_of(r, s, build_add(b, row, down), build_select(b, over, lanes.from, next));
    for (int64_t at = 0; at < bytes; at += CACHE_LINE)
        prefetch_lines(r, build_offset(b, from, constant_i64(r, at), 1), access_stride(r, s->inst, r->vector_axis),
                       r->vector_lanes);
}

/* What other loads read of a row that comes soon. */
static void prefetch_row(Render *r, IrValue row, IrValue lane, const Form *form) {
    enum { ROWS_AHEAD = 4 };
    int axis = r->kernel->tile_axis;
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (s->inst->op != K_LOAD || !r->needed[0][i] || s->level < 3 || s->tiled) continue;
        if (s->inst->access->kind[r->vector_axis] != STRIDE_ONE || s->inst->access->kind[axis] == STRIDE_ZERO) continue;
        IrValue from = place_of(r, s, build_add(r->builder, row, constant_i64(r, ROWS_AHEAD)), lane);
        int64_t bytes = form->most_vectors * r->vector_lanes * access_bytes(r, s->inst);
        prefetch_lines(r, from, constant_i64(r, CACHE_LINE), (int)(bytes / CACHE_LINE));
    }
}

/* Over the lanes of a strip, `vectors` at a time; narrow ones have no more. */
static Loop lanes_begin(Render *r, Range lanes, int vectors, const Form *form) {
    if (!is_wide(form)) return (Loop){.index = lanes.from};
    return loop_begin(r, lanes.from, lanes.to, (int64_t)vectors * r->vector_lanes);
}

/* From the strip's first. */
static IrValue lane_in_strip(Render *r, Range lanes, IrValue lane) {
    return lane == lanes.from ? constant_i64(r, 0) : build_sub(r->builder, lane, lanes.from);
}

/* Into memory, part by part: of a few lanes all rows, which lie one behind the other. */
static void load_parts(Render *r, const Slot *s, Strip *strip, IrValue row, IrValue rows, Range lanes,
                       const Form *form) {
    IrBuilder *b = r->builder;
    strip->memory = build_variable(b, row_type(r, s, r->vector_lanes), form->most_rows * form->most_vectors);
    Loop across = lanes_begin(r, lanes, 1, form);
    if (is_wide(form)) prefetch_lanes(r, s, row, lanes, across.index, form);
    Loop parts = loop_begin(r, constant_i64(r, 0), rows, form->part);
    load_strip(r, s, build_add(b, row, parts.index), across.index, form->group, form->part, strip->rows);
    IrValue lane = lane_in_strip(r, lanes, across.index);
    for (int n = 0; n < form->part; n++) {
        IrValue at = build_add(b, parts.index, constant_i64(r, n));
        build_store(b, strip->rows[n], row_address(r, s, strip, at, lane, form), 0);
    }
    loop_end(r, &parts);
    loop_end(r, &across);
}

static void begin_row(Render *r, IrValue row) {
    int axis = r->kernel->tile_axis;
    r->index[axis] = row;
    render_advance(r, 0, 2, axis, row);
    render_level(r, 0, 2);
}

static void render_lanes(Render *r, IrValue lane) {
    r->index[r->vector_axis] = lane;
    render_advance(r, 0, 3, r->vector_axis, lane);
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

int tile_vectors(const Render *r) {
    enum { LEAST_BYTES = 2 }; /* of single bytes a line takes more vectors than a body should have */
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

/* As many rows as fill a line of the narrowest load; of a strip as many as a first-level cache of 32 kB would hold. */
static Form whole_lines(const Render *r, Form part) {
    enum { MOST_BYTES = 32768 };
    int64_t narrow = CACHE_LINE, row_bytes = 0;
    Form form = part;
    form.vectors = tile_vectors(r);
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (!s->tiled || !r->needed[0][i]) continue;
        if (access_bytes(r, s->inst) < narrow) narrow = access_bytes(r, s->inst);
        row_bytes += access_bytes(r, s->inst) * r->kernel->lane_block;
    }
    if (!is_wide(&form)) return form;
    while (form.rows * narrow < CACHE_LINE) form.rows *= 2;
    form.most_rows = form.rows;
    form.most_vectors = (r->kernel->lane_block + r->vector_lanes - 1) / r->vector_lanes;
    while (2 * form.most_rows <= r->kernel->tile_block && 2 * form.most_rows * row_bytes <= MOST_BYTES)
        form.most_rows *= 2;
    return form;
}

/* row: of all; rows: how many; lanes: from the task's first. */
static void render_strip(Render *r, IrValue row, IrValue rows, Range lanes, const Form *form) {
    IrBuilder *b = r->builder;
    int count = r->kernel->insts.count;
    Strip *strips = ARENA_ARRAY(r->arena, Strip, count);
    bool straight = !is_wide(form) && render_weight(r, 0) * form->rows <= STRAIGHT_STRIP;
    const Range elements = {build_add(b, r->range_start, lanes.from), build_add(b, r->range_start, lanes.to)};
    r->lanes = r->vector_lanes, r->unroll = form->vectors, r->mask = r->live = NULL;
    for (int i = 0; i < count; i++) {
        Slot *s = &r->slots[i];
        if (!s->tiled || !r->needed[0][i]) continue;
        s->tile_row = strips[i].row;
        if (straight)
            load_strip(r, s, row, elements.from, form->group, form->rows, strips[i].rows);
        else
            load_parts(r, s, &strips[i], row, rows, elements, form);
    }
    Loop loop = {.index = constant_i64(r, 0)};
    if (!straight) loop = loop_begin(r, constant_i64(r, 0), rows, 1);
    for (int n = 0; n < (straight ? form->rows : 1); n++) {
        IrValue at = straight ? constant_i64(r, n) : loop.index, present = build_add(b, row, at);
        if (is_wide(form)) prefetch_row(r, present, elements.from, form);
        begin_row(r, present);
        Loop across = lanes_begin(r, elements, form->vectors, form);
        for (int i = 0; i < count; i++) {
            const Slot *s = &r->slots[i];
            strips[i].row[0] = strips[i].rows[n];
            for (int v = 0; v < form->vectors && strips[i].memory; v++) {
                IrValue lane = build_add(b, lane_in_strip(r, elements, across.index),
                                         constant_i64(r, (int64_t)v * r->vector_lanes));
                strips[i].row[v] =
                    build_load(b, row_type(r, s, r->vector_lanes), row_address(r, s, &strips[i], at, lane, form), 0);
            }
        }
        render_lanes(r, across.index);
        loop_end(r, &across);
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
    IrValue none = build_compare(r->builder, IR_EQ, whole, r->range_count);
    IrValue start = build_select(r->builder, none, whole_rows, constant_i64(r, 0));
    Loop loop = loop_begin(r, start, rows, 1);
    IrValue covered = build_compare(r->builder, IR_SLT, loop.index, whole_rows);
    IrValue lane = build_select(r->builder, covered, whole, constant_i64(r, 0));
    begin_row(r, build_add(r->builder, first, loop.index));
    render_vector_range(r, 0, 3, lane, r->range_count, NULL);
    loop_end(r, &loop);
}

/* Strips over rows and lanes of the tile; wide ones take all of its lanes. */
static void render_strips(Render *r, IrValue first, Range rows, Range lanes, const Form *form) {
    IrBuilder *b = r->builder;
    IrValue most = constant_i64(r, form->most_rows), step = constant_i64(r, (int64_t)form->vectors * r->vector_lanes);
    Loop outer = loop_begin(r, rows.from, rows.to, form->most_rows);
    IrValue row = build_add(b, first, outer.index);
    if (is_wide(form)) {
        IrValue left = build_smin(b, build_sub(b, rows.to, outer.index), most);
        render_strip(r, row, left, lanes, form);
    } else {
        Loop inner = loop_begin(r, lanes.from, lanes.to, form->vectors * r->vector_lanes);
        render_strip(r, row, most, (Range){inner.index, build_add(b, inner.index, step)}, form);
        loop_end(r, &inner);
    }
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

/* Whether strips of whole lines pay: they meet whole lines, which they store past the caches. */
static IrValue meets_lines(Render *r, IrValue so_far) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (s->stream || s->tiled) {
            IrValue bits = place_bits(r, s, s->tiled ? r->kernel->tile_axis : r->vector_axis);
            so_far = build_and(r->builder, so_far, is_multiple(r, bits, CACHE_LINE));
        }
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
    const Form low = {group, 1, group, group, group, 1}, high = {height, 1, height, group, height, 1},
               lines = whole_lines(r, high);
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
