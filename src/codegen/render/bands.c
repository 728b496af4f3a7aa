/* SPDX-License-Identifier: Apache-2.0 */
/* Outer reductions in bands of rows (kernel.h). A task over a band walks its rows by the full width of its columns, so
 * that memory is read in long runs, and holds its sums in scratch memory, where they stay in the first cache. The tasks
 * that follow take the sums of all bands together and finish the columns. */
#include "codegen/render/render.h"

/* A pass takes as many rows as fill PASS_ELEMENTS, their sums staying in registers: one long row, or several short ones.
 * Long rows go one by one since the hardware's prefetching follows one run better than several (a sum of 4096 columns
 * of sigmoid(x) z on a 2.6 GHz Zen 5, one thread: 3.6 ms for 128 MB of which a plain read takes 3.2, 5.1 with 2 rows at
 * once, 5.8 with 8). It stops at pages, too; so what comes next is prefetched, AHEAD_BYTES on in a long row, else what the
 * next pass reads. (The same sum on an AMD EPYC of family 25, medians of 7 runs in turn, where the bytes alone take 11.9 ms
 * on one thread and 7.8 on two: without 17, 9.6; a row of 16 KB on, which leaves the first cache before it is read, 17.5,
 * 8.6; 1 KB 15.8, 8.8; 2 KB 14.5, 8.8; 3 KB 11.8, 7.8; 4 KB 13.8, 8.3; 8 KB 14.6, 9.5.) Light bodies take LIGHT_ROWS at least
 * and need no prefetching: the processor's window holds what several rows of them load, whatever the distance between
 * rows. */
enum { PASS_ELEMENTS = 1024, AHEAD_BYTES = 3072, LIGHT_WEIGHT = 12, LIGHT_ROWS = 8 };

static bool is_light(const Render *r) { return render_weight(r, 0) <= LIGHT_WEIGHT && !random_in_stage(r, 0); }

static int rows_axis(const Render *r) {
    int axis = 0;
    while (r->kernel->axes[axis].role != AXIS_REDUCE) axis++;
    return axis;
}

static int64_t element_bytes(const KernelInst *inst) { return (int64_t)dtype_size(inst->dtype); }

/* Where each reduction's sums begin. */
static void lay_out(Render *r) {
    IrBuilder *b = r->builder;
    IrValue elements = r->bands.count, at = constant_i64(r, 0);
    for (int a = 0; a < r->kernel->axis_count; a++)
        if (r->kernel->axes[a].role != AXIS_REDUCE) elements = build_mul(b, elements, r->size[a]);
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!kernel_op_is_reduce(s->inst->op)) continue;
        s->keep = build_offset(b, r->scratch, at, 1);
        IrValue end = build_mul(b, elements, constant_i64(r, element_bytes(s->inst)));
        end = build_add(b, build_add(b, at, end), constant_i64(r, 63));
        at = build_and(b, end, constant_i64(r, -64));
    }
}

/* The sums of band `band` of the present task, from the present columns on. */
static IrValue sums_at(Render *r, const Slot *s, IrValue band, int copy) {
    IrBuilder *b = r->builder;
    IrValue row = build_add(b, build_mul(b, r->bands.outer, r->bands.count), band);
    IrValue column = build_add(b, r->index[r->vector_axis], constant_i64(r, (int64_t)copy * r->lanes));
    IrValue element = build_add(b, build_mul(b, row, r->size[r->vector_axis]), column);
    IrValue bytes = build_mul(b, element, constant_i64(r, element_bytes(s->inst)));
    return build_offset(b, s->keep, bytes, 1);
}

IrValue bands_ahead(Render *r, const KernelInst *inst) {
    if (r->bands.phase != BANDS_SUM) return NULL;
    int rows = rows_axis(r);
    bool line = inst->access->kind[r->vector_axis] == STRIDE_ONE && r->lanes == r->vector_lanes;
    if (!line || inst->access->kind[rows] == STRIDE_ZERO || is_light(r)) return NULL;
    IrValue flat = constant_i64(r, AHEAD_BYTES),
            pass = build_mul(r->builder, r->bands.rows, access_stride(r, inst, rows));
    IrValue row = build_mul(r->builder, r->range_count, constant_i64(r, access_bytes(r, inst)));
    return build_select(r->builder, build_compare(r->builder, IR_SGT, row, flat), flat, pass);
}

static bool is_own(const Render *r, int i) { return kernel_op_is_reduce(r->slots[i].inst->op); }

static void load_sums(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_own(r, i)) continue;
        reduce_begin(r, i);
        for (int c = 0; c < r->unroll && r->bands.phase == BANDS_SUM; c++) {
            IrType type = type_compute(r, s->inst->dtype, r->lanes);
            IrValue sum = load_line(r, type, sums_at(r, s, r->bands.index, c), element_bytes(s->inst));
            build_store(r->builder, sum, s->accumulator[c], 0);
        }
    }
}

static void store_sums(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        for (int c = 0; c < r->unroll && is_own(r, i); c++) {
            IrType type = type_compute(r, s->inst->dtype, r->lanes);
            IrValue sum = build_load(r->builder, type, s->accumulator[c], 0);
            store_line(r, sum, sums_at(r, s, r->bands.index, c), element_bytes(s->inst));
        }
    }
}

/* All bands' sums in their order, then what needs them. */
static void finish_columns(Render *r, int level) {
    load_sums(r);
    Loop loop = loop_begin(r, constant_i64(r, 0), r->bands.count, 1);
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        for (int c = 0; c < r->unroll && is_own(r, i); c++) {
            IrType type = type_compute(r, s->inst->dtype, r->lanes);
            IrValue sum = load_line(r, type, sums_at(r, s, loop.index, c), element_bytes(s->inst));
            reduce_take(r, i, c, sum);
        }
    }
    loop_end(r, &loop);
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (is_own(r, i)) reduce_finish(r, i);
    for (int s = 1; s < r->kernel->stage_count; s++) render_level(r, s, level);
}

void bands_body(Render *r, int level) {
    if (r->bands.phase == BANDS_FINISH) {
        finish_columns(r, level);
        return;
    }
    load_sums(r);
    if (r->bands.phase == BANDS_SUM) {
        render_level(r, 0, level);
        reduce_range(r, 0, level + 1, r->bands.from, r->bands.to);
    }
    store_sums(r);
}

/* Of columns, as wide as those of the present phase. */
static IrValue block_count(Render *r) {
    return build_pieces(r->builder, r->size[r->vector_axis], constant_i64(r, r->lane_block));
}

/* Indices of the TASK axes, of the band and of the block of columns from a task's number. */
static void set_indices(Render *r, IrValue number) {
    const Kernel *k = r->kernel;
    IrBuilder *b = r->builder;
    IrValue blocks = block_count(r);
    r->index[r->vector_axis] = build_urem(b, number, blocks);
    number = build_udiv(b, number, blocks);
    if (r->bands.phase == BANDS_SUM) {
        r->bands.index = build_urem(b, number, r->bands.count);
        number = build_udiv(b, number, r->bands.count);
    }
    r->bands.outer = number;
    for (int a = k->axis_count - 1; a >= 0; a--) {
        if (k->axes[a].role != AXIS_TASK) continue;
        r->index[a] = build_urem(b, number, r->size[a]);
        number = build_udiv(b, number, r->size[a]);
    }
}

static void forget_values(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (r->slots[i].level > 0) r->slots[i].done = false;
}

static void render_band(Render *r) {
    IrBuilder *b = r->builder;
    IrValue height = constant_i64(r, r->kernel->band), rows = r->size[rows_axis(r)];
    IrValue start = build_mul(b, r->bands.index, height);
    IrValue end = build_smin(b, build_add(b, start, height), rows);
    render_task_begin(r);
    render_level(r, 0, 1);
    r->bands.phase = BANDS_EMPTY;
    render_vector_range(r, 0, 2, constant_i64(r, 0), r->range_count, r->range_count);
    r->bands.phase = BANDS_SUM;
    r->bands.rows = build_pieces(b, constant_i64(r, PASS_ELEMENTS), r->range_count);
    if (is_light(r)) r->bands.rows = build_smax(b, r->bands.rows, constant_i64(r, LIGHT_ROWS));
    if (random_in_stage(r, 0))
        r->bands.rows = constant_i64(r, 1); /* words are drawn for groups of columns of one row */
    IrValue passes = build_pieces(b, build_sub(b, end, start), r->bands.rows);
    Loop pass = loop_begin(r, constant_i64(r, 0), passes, 1);
    r->bands.from = build_add(b, start, build_mul(b, pass.index, r->bands.rows));
    r->bands.to = build_smin(b, build_add(b, r->bands.from, r->bands.rows), end);
    r->index[rows_axis(r)] = r->bands.from;
    render_vector_range(r, 0, 2, constant_i64(r, 0), r->range_count, r->range_count);
    loop_end(r, &pass);
}

void render_bands(Render *r, IrValue begin, IrValue end) {
    IrBuilder *b = r->builder;
    IrValue height = constant_i64(r, r->kernel->band), tasks = constant_i64(r, 1);
    r->bands.count = build_pieces(b, r->size[rows_axis(r)], height);
    lay_out(r);
    for (int a = 0; a < r->kernel->axis_count; a++)
        if (r->kernel->axes[a].role == AXIS_TASK) tasks = build_mul(b, tasks, r->size[a]);
    r->bands.phase = BANDS_SUM;
    r->lane_block = (int64_t)r->kernel->lane_block * KERNEL_BAND_BLOCKS;
    IrValue all = build_mul(b, build_mul(b, tasks, block_count(r)), r->bands.count);

    Loop sums = loop_begin(r, begin, build_smin(b, end, all), 1);
    set_indices(r, sums.index);
    render_band(r);
    loop_end(r, &sums);

    r->bands.phase = BANDS_FINISH;
    r->lane_block = r->kernel->lane_block;
    IrValue later = build_smax(b, begin, all);
    forget_values(r);
    Loop columns = loop_begin(r, later, end, 1);
    set_indices(r, build_sub(b, columns.index, all));
    render_task_begin(r);
    for (int s = 1; s < r->kernel->stage_count; s++) render_level(r, s, 1);
    render_vector_range(r, 0, 2, constant_i64(r, 0), r->range_count, r->range_count);
    loop_end(r, &columns);
}
