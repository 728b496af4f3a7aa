/* SPDX-License-Identifier: Apache-2.0 */
/* Outer reductions in bands of rows (kernel.h). A task over a band walks its rows a few at a time by the full width of
 * its columns, so that memory is read in long runs, and holds its sums in scratch memory, where they stay in the first
 * cache. The tasks that follow take the sums of all bands together and finish the columns. */
#include "codegen/render/render.h"

/* Rows whose sums stay in registers before they are put aside: their lines are as many streams for the hardware's
 * prefetching, and putting aside costs two memory accesses in this many. */
enum { PASS_ROWS = 8 };

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

static bool is_own(const Render *r, int i) { return kernel_op_is_reduce(r->slots[i].inst->op); }

void bands_body(Render *r, int level) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_own(r, i)) continue;
        reduce_begin(r, i);
        for (int c = 0; c < r->unroll; c++) {
            IrType type = type_compute(r, s->inst->dtype, r->lanes);
            IrValue at = sums_at(r, s, r->bands.index, c), old = load_line(r, type, at, element_bytes(s->inst));
            IrValue none = build_load(r->builder, type, s->accumulator[c], 0);
            build_store(r->builder, build_select(r->builder, r->bands.first, none, old), s->accumulator[c], 0);
        }
    }
    render_level(r, 0, level);
    reduce_range(r, 0, level + 1, r->bands.from, r->bands.to);
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
void bands_finish(Render *r, int level) {
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (is_own(r, i)) reduce_begin(r, i);
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

/* Indices of the TASK axes, of the band (where `bands`) and of the block of columns from a task's number. */
static void set_indices(Render *r, IrValue number, bool bands) {
    const Kernel *k = r->kernel;
    IrBuilder *b = r->builder;
    IrValue up = constant_i64(r, k->lane_block - 1), block = constant_i64(r, k->lane_block);
    IrValue blocks = build_udiv(b, build_add(b, r->size[r->vector_axis], up), block);
    r->index[r->vector_axis] = build_urem(b, number, blocks);
    number = build_udiv(b, number, blocks);
    if (bands) {
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

static IrValue lesser(Render *r, IrValue a, IrValue b) {
    return build_select(r->builder, build_compare(r->builder, IR_SLT, a, b), a, b);
}

static void forget_values(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (r->slots[i].level > 0) r->slots[i].done = false;
}

static void render_band(Render *r) {
    IrBuilder *b = r->builder;
    IrValue height = constant_i64(r, r->kernel->band), rows = r->size[rows_axis(r)];
    IrValue start = build_mul(b, r->bands.index, height);
    IrValue end = lesser(r, build_add(b, start, height), rows);
    render_task_begin(r);
    render_level(r, 0, 1);
    Loop pass = loop_begin(r, start, end, PASS_ROWS);
    r->bands.phase = BANDS_SUM;
    r->bands.first = build_compare(b, IR_EQ, pass.index, start);
    r->bands.from = pass.index;
    r->bands.to = lesser(r, build_add(b, pass.index, constant_i64(r, PASS_ROWS)), end);
    render_vector_range(r, 0, 2, constant_i64(r, 0), r->range_count, r->range_count);
    loop_end(r, &pass);
}

void render_bands(Render *r, IrValue begin, IrValue end) {
    IrBuilder *b = r->builder;
    IrValue height = constant_i64(r, r->kernel->band), tasks = constant_i64(r, 1);
    IrValue rows = build_add(b, r->size[rows_axis(r)], constant_i64(r, r->kernel->band - 1));
    r->bands.count = build_udiv(b, rows, height);
    lay_out(r);
    for (int a = 0; a < r->kernel->axis_count; a++)
        if (r->kernel->axes[a].role == AXIS_TASK) tasks = build_mul(b, tasks, r->size[a]);
    IrValue up = constant_i64(r, r->kernel->lane_block - 1), block = constant_i64(r, r->kernel->lane_block);
    IrValue blocks = build_udiv(b, build_add(b, r->size[r->vector_axis], up), block);
    IrValue all = build_mul(b, build_mul(b, tasks, blocks), r->bands.count);

    Loop sums = loop_begin(r, begin, lesser(r, end, all), 1);
    set_indices(r, sums.index, true);
    render_band(r);
    loop_end(r, &sums);

    IrValue later = build_select(b, build_compare(b, IR_SGT, begin, all), begin, all);
    forget_values(r);
    Loop columns = loop_begin(r, later, end, 1);
    set_indices(r, build_sub(b, columns.index, all), false);
    render_task_begin(r);
    for (int s = 1; s < r->kernel->stage_count; s++) render_level(r, s, 1);
    r->bands.phase = BANDS_FINISH;
    render_vector_range(r, 0, 2, constant_i64(r, 0), r->range_count, r->range_count);
    loop_end(r, &columns);
}
