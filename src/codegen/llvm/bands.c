/* SPDX-License-Identifier: Apache-2.0 */
/* Outer reductions in bands of rows (kernel.h). A task over a band walks its rows by the full width of its columns, so
 * that memory is read in long runs, and holds its sums in scratch memory, where they stay in the first cache. The tasks
 * that follow take the sums of all bands together and finish the columns. */
#include "codegen/llvm/render.h"

/* A pass takes as many rows as fill PASS_ELEMENTS, their sums staying in registers: one long row, or several short ones.
 * Long rows go one by one since the hardware's prefetching follows one run better than several (a sum of 4096 columns
 * of sigmoid(x) z on a 2.6 GHz Zen 5, one thread: 3.6 ms for 128 MB of which a plain read takes 3.2, 5.1 with 2 rows at
 * once, 5.8 with 8). It stops at pages, too; so what the next pass reads is prefetched, without which it takes 4.4.
 * Light bodies take LIGHT_ROWS at least and need no prefetching: the processor's window holds what several rows of them
 * load, whatever the distance between rows (a sum of 64 MB in 20000 columns: 2.1 ms, one by one 3.1). */
enum { PASS_ELEMENTS = 1024, LIGHT_WEIGHT = 12, LIGHT_ROWS = 8 };

static bool is_light(const Render *r) { return render_weight(r, 0) <= LIGHT_WEIGHT; }

static int rows_axis(const Render *r) {
    int axis = 0;
    while (r->kernel->axes[axis].role != AXIS_REDUCE) axis++;
    return axis;
}

static int64_t element_bytes(const KernelInst *inst) { return (int64_t)dtype_size(inst->dtype); }

/* Where each reduction's sums begin. */
static void lay_out(Render *r) {
    LLVMBuilderRef b = r->builder;
    LLVMValueRef elements = r->bands.count, at = constant_i64(r, 0);
    for (int a = 0; a < r->kernel->axis_count; a++)
        if (r->kernel->axes[a].role != AXIS_REDUCE) elements = LLVMBuildMul(b, elements, r->size[a], "");
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!kernel_op_is_reduce(s->inst->op)) continue;
        s->keep = LLVMBuildGEP2(b, r->i8, r->scratch, &at, 1, "");
        LLVMValueRef end = LLVMBuildMul(b, elements, constant_i64(r, element_bytes(s->inst)), "");
        end = LLVMBuildAdd(b, LLVMBuildAdd(b, at, end, ""), constant_i64(r, 63), "");
        at = LLVMBuildAnd(b, end, constant_i64(r, -64), "");
    }
}

/* The sums of band `band` of the present task, from the present columns on. */
static LLVMValueRef sums_at(Render *r, const Slot *s, LLVMValueRef band, int copy) {
    LLVMBuilderRef b = r->builder;
    LLVMValueRef row = LLVMBuildAdd(b, LLVMBuildMul(b, r->bands.outer, r->bands.count, ""), band, "");
    LLVMValueRef column = LLVMBuildAdd(b, r->index[r->vector_axis], constant_i64(r, (int64_t)copy * r->lanes), "");
    LLVMValueRef element = LLVMBuildAdd(b, LLVMBuildMul(b, row, r->size[r->vector_axis], ""), column, "");
    LLVMValueRef bytes = LLVMBuildMul(b, element, constant_i64(r, element_bytes(s->inst)), "");
    return LLVMBuildGEP2(b, r->i8, s->keep, &bytes, 1, "");
}

LLVMValueRef bands_ahead(Render *r, const KernelInst *inst) {
    int rows = rows_axis(r);
    bool line = inst->access->kind[r->vector_axis] == STRIDE_ONE && r->lanes == r->vector_lanes;
    if (r->bands.phase != BANDS_SUM || !line || inst->access->kind[rows] == STRIDE_ZERO || is_light(r)) return NULL;
    return LLVMBuildMul(r->builder, r->bands.rows, access_stride(r, inst, rows), "");
}

static bool is_own(const Render *r, int i) { return kernel_op_is_reduce(r->slots[i].inst->op); }

static void load_sums(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_own(r, i)) continue;
        reduce_begin(r, i);
        for (int c = 0; c < r->unroll && r->bands.phase == BANDS_SUM; c++) {
            LLVMTypeRef type = type_compute(r, s->inst->dtype, r->lanes);
            LLVMValueRef sum = load_line(r, type, sums_at(r, s, r->bands.index, c), element_bytes(s->inst));
            LLVMBuildStore(r->builder, sum, s->accumulator[c]);
        }
    }
}

static void store_sums(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        for (int c = 0; c < r->unroll && is_own(r, i); c++) {
            LLVMTypeRef type = type_compute(r, s->inst->dtype, r->lanes);
            LLVMValueRef sum = LLVMBuildLoad2(r->builder, type, s->accumulator[c], "");
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
            LLVMTypeRef type = type_compute(r, s->inst->dtype, r->lanes);
            LLVMValueRef sum = load_line(r, type, sums_at(r, s, loop.index, c), element_bytes(s->inst));
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
static LLVMValueRef block_count(Render *r) {
    LLVMValueRef up = constant_i64(r, r->lane_block - 1), block = constant_i64(r, r->lane_block);
    return LLVMBuildUDiv(r->builder, LLVMBuildAdd(r->builder, r->size[r->vector_axis], up, ""), block, "");
}

/* Indices of the TASK axes, of the band and of the block of columns from a task's number. */
static void set_indices(Render *r, LLVMValueRef number) {
    const Kernel *k = r->kernel;
    LLVMBuilderRef b = r->builder;
    LLVMValueRef blocks = block_count(r);
    r->index[r->vector_axis] = LLVMBuildURem(b, number, blocks, "");
    number = LLVMBuildUDiv(b, number, blocks, "");
    if (r->bands.phase == BANDS_SUM) {
        r->bands.index = LLVMBuildURem(b, number, r->bands.count, "");
        number = LLVMBuildUDiv(b, number, r->bands.count, "");
    }
    r->bands.outer = number;
    for (int a = k->axis_count - 1; a >= 0; a--) {
        if (k->axes[a].role != AXIS_TASK) continue;
        r->index[a] = LLVMBuildURem(b, number, r->size[a], "");
        number = LLVMBuildUDiv(b, number, r->size[a], "");
    }
}

static LLVMValueRef lesser(Render *r, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(r->builder, LLVMBuildICmp(r->builder, LLVMIntSLT, a, b, ""), a, b, "");
}

static LLVMValueRef greater(Render *r, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(r->builder, LLVMBuildICmp(r->builder, LLVMIntSGT, a, b, ""), a, b, "");
}

static void forget_values(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (r->slots[i].level > 0) r->slots[i].done = false;
}

static void render_band(Render *r) {
    LLVMBuilderRef b = r->builder;
    LLVMValueRef height = constant_i64(r, r->kernel->band), rows = r->size[rows_axis(r)];
    LLVMValueRef start = LLVMBuildNSWMul(b, r->bands.index, height, "");
    LLVMValueRef end = lesser(r, LLVMBuildNSWAdd(b, start, height, ""), rows);
    render_task_begin(r);
    render_level(r, 0, 1);
    r->bands.phase = BANDS_EMPTY;
    render_vector_range(r, 0, 2, constant_i64(r, 0), r->range_count, r->range_count);
    r->bands.phase = BANDS_SUM;
    LLVMValueRef one = constant_i64(r, 1), more = constant_i64(r, PASS_ELEMENTS - 1);
    r->bands.rows = LLVMBuildAdd(b, LLVMBuildUDiv(b, more, r->range_count, ""), one, "");
    if (is_light(r)) r->bands.rows = greater(r, r->bands.rows, constant_i64(r, LIGHT_ROWS));
    LLVMValueRef last = LLVMBuildSub(b, LLVMBuildSub(b, end, start, ""), one, "");
    LLVMValueRef passes = LLVMBuildAdd(b, LLVMBuildUDiv(b, last, r->bands.rows, ""), one, "");
    Loop pass = loop_begin(r, constant_i64(r, 0), passes, 1);
    r->bands.from = LLVMBuildNSWAdd(b, start, LLVMBuildNSWMul(b, pass.index, r->bands.rows, ""), "");
    r->bands.to = lesser(r, LLVMBuildNSWAdd(b, r->bands.from, r->bands.rows, ""), end);
    render_vector_range(r, 0, 2, constant_i64(r, 0), r->range_count, r->range_count);
    loop_end(r, &pass);
}

void render_bands(Render *r, LLVMValueRef begin, LLVMValueRef end) {
    LLVMBuilderRef b = r->builder;
    LLVMValueRef height = constant_i64(r, r->kernel->band), tasks = constant_i64(r, 1);
    LLVMValueRef rows = LLVMBuildAdd(b, r->size[rows_axis(r)], constant_i64(r, r->kernel->band - 1), "");
    r->bands.count = LLVMBuildUDiv(b, rows, height, "");
    lay_out(r);
    for (int a = 0; a < r->kernel->axis_count; a++)
        if (r->kernel->axes[a].role == AXIS_TASK) tasks = LLVMBuildMul(b, tasks, r->size[a], "");
    r->bands.phase = BANDS_SUM;
    r->lane_block = (int64_t)r->kernel->lane_block * KERNEL_BAND_BLOCKS;
    LLVMValueRef all = LLVMBuildMul(b, LLVMBuildMul(b, tasks, block_count(r), ""), r->bands.count, "");

    Loop sums = loop_begin(r, begin, lesser(r, end, all), 1);
    set_indices(r, sums.index);
    render_band(r);
    loop_end(r, &sums);

    r->bands.phase = BANDS_FINISH;
    r->lane_block = r->kernel->lane_block;
    LLVMValueRef later = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSGT, begin, all, ""), begin, all, "");
    forget_values(r);
    Loop columns = loop_begin(r, later, end, 1);
    set_indices(r, LLVMBuildSub(b, columns.index, all, ""));
    render_task_begin(r);
    for (int s = 1; s < r->kernel->stage_count; s++) render_level(r, s, 1);
    render_vector_range(r, 0, 2, constant_i64(r, 0), r->range_count, r->range_count);
    loop_end(r, &columns);
}
