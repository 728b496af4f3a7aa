/* SPDX-License-Identifier: Apache-2.0 */
/* The function around the instructions: tasks, stages, loops. */
#include "codegen/render/render.h"

/* --- types, constants, small helpers --- */

IrType type_lanes(IrType element, int lanes) { return ir_lanes(element, lanes); }

IrType type_compute(Render *r, DType dtype, int lanes) {
    (void)r;
    if (dtype == DT_BOOL) return ir_lanes(IR_I1, lanes);
    if (dtype_is_float(dtype)) return ir_lanes(dtype == DT_F64 ? IR_F64 : IR_F32, lanes);
    return type_integer(r, 8 * (int)dtype_size(dtype), ir_lanes(IR_I8, lanes));
}

int type_lane_count(IrType type) { return ir_lane_count(type); }
IrType type_element(IrType type) { return ir_element(type); }

IrType type_integer(Render *r, int bits, IrType like) {
    (void)r;
    IrType element = bits == 8 ? IR_I8 : bits == 16 ? IR_I16 : bits == 32 ? IR_I32 : IR_I64;
    return ir_lanes(element, ir_lane_count(like));
}

IrValue constant_int(Render *r, IrType type, int64_t value) { return ir_int(r->builder, type, value); }
IrValue constant_real(Render *r, IrType type, double value) { return ir_real(r->builder, type, value); }
IrValue constant_i64(Render *r, int64_t value) { return ir_int(r->builder, IR_I64, value); }
bool constant_value(IrValue value, int64_t *out_value) { return ir_constant(value, out_value); }

bool is_zero(IrValue value) {
    int64_t known;
    return ir_constant(value, &known) && known == 0;
}

IrValue splat(Render *r, IrValue scalar, int lanes) {
    return lanes == 1 ? scalar : build_splat(r->builder, scalar, lanes);
}

IrValue lane_iota(Render *r, IrType element, int lanes) {
    int64_t all[MAX_LANES];
    for (int i = 0; i < lanes; i++) all[i] = i;
    return ir_vector(r->builder, ir_lanes(element, lanes), all);
}

IrValue any_lane(Render *r, IrValue condition) {
    return ir_lane_count(ir_type(condition)) == 1 ? condition : build_any(r->builder, condition);
}

IrValue slot_alloca(Render *r, IrType type) { return build_variable(r->builder, type, 1); }

/* --- values --- */

IrValue slot_value(Render *r, int inst, int copy) {
    Slot *s = &r->slots[inst];
    if (s->vectorial) return s->vector[copy];
    if (r->lanes == 1) return s->scalar;
    return s->splat;
}

void slot_set(Render *r, int inst, int copy, IrValue value) {
    Slot *s = &r->slots[inst];
    if (s->vectorial) {
        s->vector[copy] = value;
        return;
    }
    s->scalar = value;
    s->splat = splat(r, value, r->vector_lanes);
}

/* Tested at the end; the first test stands before it. Iterations need not divide the range: the caller's limit does. */
Loop loop_begin(Render *r, IrValue start, IrValue limit, int64_t step) {
    Loop loop = {.index = start, .limit = limit, .step = step};
    int64_t from, to;
    bool known = constant_value(start, &from) && constant_value(limit, &to);
    if (known && from < to && (!step || from + step >= to)) return loop;
    IrBlock before = build_block(r->builder);
    loop.body = build_block_new(r->builder, "loop");
    loop.exit = build_block_new(r->builder, "done");
    build_condbr(r->builder, build_compare(r->builder, IR_SLT, start, limit), loop.body, loop.exit);
    build_at(r->builder, loop.body);
    if (!step) return loop;
    loop.index = build_phi(r->builder, IR_I64);
    phi_add(loop.index, start, before);
    return loop;
}

void loop_end(Render *r, Loop *loop) {
    if (!loop->body) return;
    if (!loop->step) {
        build_br(r->builder, loop->exit);
        build_at(r->builder, loop->exit);
        return;
    }
    IrValue next = build_add(r->builder, loop->index, constant_i64(r, loop->step));
    IrBlock here = build_block(r->builder);
    build_condbr(r->builder, build_compare(r->builder, IR_SLT, next, loop->limit), loop->body, loop->exit);
    phi_add(loop->index, next, here);
    build_at(r->builder, loop->exit);
}

/* --- one level's instructions --- */

static bool is_memory(const KernelInst *inst) { return inst->op == K_LOAD || inst->op == K_STORE; }

void render_advance(Render *r, int stage, int level, int axis, IrValue index) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_memory(s->inst) || !r->needed[stage][i] || s->level < level) continue;
        IrValue from = s->pointer[level - 1];
        s->pointer[level] = from;
        if (axis < 0 || s->inst->access->kind[axis] == STRIDE_ZERO) continue;
        IrValue bytes = build_mul(r->builder, index, access_stride(r, s->inst, axis));
        s->pointer[level] = build_offset(r->builder, from, bytes, 1);
    }
}

/* Pointers at the vector axis: the start of its range is applied before the loop, elements of the range inside. */
static void range_pointers(Render *r, int stage, int level) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_memory(s->inst) || s->level < level) continue;
        if (r->class != CLASS_OUTER && !r->needed[stage][i]) continue;
        s->range_pointer = s->pointer[level - 1];
        if (s->inst->access->kind[r->vector_axis] == STRIDE_ZERO || is_zero(r->range_start)) continue;
        IrValue bytes = build_mul(r->builder, r->range_start, access_stride(r, s->inst, r->vector_axis));
        s->range_pointer = build_offset(r->builder, s->range_pointer, bytes, 1);
    }
}

static void advance_in_range(Render *r, int stage, int level, IrValue index) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_memory(s->inst) || !r->needed[stage][i] || s->level < level) continue;
        StrideKind kind = s->inst->access->kind[r->vector_axis];
        s->pointer[level] = s->range_pointer;
        if (kind == STRIDE_ZERO) continue;
        IrValue steps = index;
        if (kind != STRIDE_ONE) steps = build_mul(r->builder, index, access_stride(r, s->inst, r->vector_axis));
        int unit = kind == STRIDE_ONE ? (int)access_bytes(r, s->inst) : 1;
        s->pointer[level] = build_offset(r->builder, s->range_pointer, steps, unit);
    }
}

static void render_copy(Render *r, int i, int copy) {
    const KernelInst *inst = r->slots[i].inst;
    IrValue values[3];
    for (int n = 0; n < render_op_args(inst->op); n++) values[n] = slot_value(r, inst->args[n], copy);
    bool index = inst->op == K_INDEX;
    slot_set(r, i, copy, index ? vector_index(r, inst->axis, copy) : render_arithmetic(r, inst, values));
}

/* Nothing but arithmetic on vectors, of which each copy may stand by itself. */
static bool is_plain(const Render *r, int i) {
    const KernelInst *inst = r->slots[i].inst;
    bool other = inst->op == K_LOAD || inst->op == K_STORE || inst->op == K_RANDOM || (inst->op == K_DIV && inst->bits);
    return r->slots[i].vectorial && !other && !inst->keep;
}

/* An instruction of all copies, then the next; of many copies a piece of one at a time (pieces.c). Of four, loads would come later, which
 * costs up to 6 % where memory is the limit. */
static void render_run(Render *r, const int *run, int count) {
    int *ends = ARENA_ARRAY(r->arena, int, count + 1), pieces = count;
    if (r->unroll < 8 || !count)
        for (int n = 0; n < count; n++) ends[n] = n + 1;
    else
        pieces = render_pieces(r, run, count, ends);
    for (int p = 0, from = 0; p < pieces; from = ends[p++])
        for (int c = 0; c < r->unroll; c++)
            for (int n = from; n < ends[p]; n++) render_copy(r, run[n], c);
}

static void render_one(Render *r, int stage, int i) {
    Slot *s = &r->slots[i];
    const KernelInst *inst = s->inst;
    bool inside = s->level > r->outlive;
    if (inst->keep && inst->stage < stage && inside) {
        render_keep(r, i, false);
        return;
    }
    if (inst->op == K_LOAD) {
        render_load(r, i);
    } else if (inst->op == K_STORE) {
        render_store(r, i);
    } else if (inst->op == K_RANDOM) {
        render_random(r, i);
    } else if (inst->op == K_DIV && inst->bits && s->vectorial) {
        render_divide_row(r, i);
    } else {
        int copies = s->vectorial ? r->unroll : 1, lanes = r->lanes;
        if (!s->vectorial) r->lanes = 1;
        for (int c = 0; c < copies; c++) render_copy(r, i, c);
        r->lanes = lanes;
    }
    if (inst->keep && inst->stage == stage && inside) render_keep(r, i, true);
}

void render_level(Render *r, int stage, int level) {
    int *run = ARENA_ARRAY(r->arena, int, r->kernel->insts.count + 1), count = 0;
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (s->level != level || !r->needed[stage][i] || kernel_op_is_reduce(s->inst->op)) continue;
        if (level <= r->outlive && (s->done || s->stage > stage)) continue;
        s->done = true;
        if (is_plain(r, i)) {
            run[count++] = i;
            continue;
        }
        if (s->vectorial) {
            render_run(r, run, count);
            count = 0;
        }
        render_one(r, stage, i);
    }
    render_run(r, run, count);
    if (level != r->levels) return;
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (r->needed[stage][i] && kernel_op_is_reduce(r->slots[i].inst->op) && r->slots[i].inst->stage == stage)
            reduce_step(r, i, level);
}

/* --- loops over the axes of a task --- */

static void render_nest(Render *r, int stage, int level);
static void render_stage(Render *r, int stage, int level);

static void set_flat(Render *r, int level, IrValue index) {
    IrValue size = r->size[r->level_axis[level]];
    IrValue outer = level > 2 && r->flat[level - 1] ? r->flat[level - 1] : constant_i64(r, 0);
    r->flat[level] = build_add(r->builder, build_mul(r->builder, outer, size), index);
}

/* The body at the vector axis, in the present form, from `index` elements into the task's range. */
static void vector_body(Render *r, int stage, int level, IrValue index) {
    int axis = r->vector_axis;
    r->index[axis] = build_add(r->builder, r->range_start, index);
    if (r->class != CLASS_OUTER) {
        advance_in_range(r, stage, level, index);
        ahead_body(r, stage, index);
        set_flat(r, level, r->index[axis]);
        render_level(r, stage, level);
        return;
    }
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (r->slots[i].level >= level) r->slots[i].done = false;
    r->flat[level] = constant_i64(r, 0);
    if (r->bands.phase != BANDS_NONE) {
        for (int s = 0; s < r->kernel->stage_count; s++) advance_in_range(r, s, level, index);
        bands_body(r, level);
        return;
    }
    for (int s = 0; s < r->kernel->stage_count; s++) {
        advance_in_range(r, s, level, index);
        render_stage(r, s, level);
    }
}

static void vector_form(Render *r, int lanes, int unroll, IrValue live) {
    r->lanes = lanes;
    r->unroll = unroll;
    r->live = live;
    r->mask = live ? lane_mask(r, live, lanes) : NULL;
}

static IrValue rounded_down(Render *r, IrValue start, IrValue limit, int64_t step) {
    IrValue span = build_sub(r->builder, limit, start);
    IrValue whole = step & (step - 1) ? build_mul(r->builder, build_udiv(r->builder, span, constant_i64(r, step)),
                                                  constant_i64(r, step))
                                      : build_and(r->builder, span, constant_i64(r, -step));
    return build_add(r->builder, start, whole);
}

static IrValue vector_loop(Render *r, int stage, int level, IrValue start, IrValue limit, int unroll) {
    int64_t step = (int64_t)unroll * r->vector_lanes, from, to;
    IrValue whole = rounded_down(r, start, limit, step);
    if (constant_value(start, &from) && constant_value(whole, &to) && from >= to) return start;
    vector_form(r, r->vector_lanes, unroll, NULL);
    Loop loop = loop_begin(r, start, whole, step);
    vector_body(r, stage, level, loop.index);
    loop_end(r, &loop);
    return whole;
}

/* Random words are drawn for a group of elements, which the loop inside then takes from memory. */
static IrValue grouped_loop(Render *r, int stage, int level, IrValue start, IrValue limit) {
    int64_t step = (int64_t)r->main_unroll * r->vector_lanes, from, to;
    IrValue whole = rounded_down(r, start, limit, r->group);
    if (constant_value(start, &from) && constant_value(whole, &to) && from >= to) return start;
    Loop groups = loop_begin(r, start, whole, r->group);
    r->index[r->vector_axis] = build_add(r->builder, r->range_start, groups.index);
    random_begin(r, stage);
    vector_form(r, r->vector_lanes, r->main_unroll, NULL);
    Loop loop = loop_begin(r, constant_i64(r, 0), constant_i64(r, r->group), step);
    r->in_group = loop.index;
    vector_body(r, stage, level, build_add(r->builder, groups.index, loop.index));
    loop_end(r, &loop);
    random_end(r);
    loop_end(r, &groups);
    return whole;
}

/* several: more than one vector may be left. */
static void masked_rest(Render *r, int stage, int level, IrValue start, IrValue limit, bool several) {
    Loop loop = loop_begin(r, start, limit, several ? r->vector_lanes : 0);
    IrValue left = build_sub(r->builder, limit, loop.index), all = constant_i64(r, r->vector_lanes);
    IrValue live = build_smin(r->builder, left, all);
    vector_form(r, r->vector_lanes, 1, live);
    vector_body(r, stage, level, loop.index);
    loop_end(r, &loop);
}

static void scalar_rest(Render *r, int stage, int level, IrValue start, IrValue limit) {
    Loop loop = loop_begin(r, start, limit, 1);
    vector_form(r, 1, 1, NULL);
    vector_body(r, stage, level, loop.index);
    loop_end(r, &loop);
}

void render_vector_range(Render *r, int stage, int level, IrValue start, IrValue limit, IrValue count) {
    int64_t from, to, known = constant_value(start, &from) && constant_value(limit, &to) ? to - from : -1;
    int64_t multiple = known >= 0 ? known : count ? r->count_multiple : 1;
    range_pointers(r, stage, level);
    ahead_range(r, stage);
    int64_t step = (int64_t)r->main_unroll * r->vector_lanes, at;
    bool masked_loop = r->masked && r->isa.avx512 && multiple % r->vector_lanes != 0 && r->class != CLASS_OUTER;
    if (!r->one_loop) {
        bool grouped = random_in_stage(r, stage);
        if (grouped) step = r->group;
        start = grouped ? grouped_loop(r, stage, level, start, limit)
                        : vector_loop(r, stage, level, start, limit, r->main_unroll);
        if (step > r->vector_lanes && multiple % step != 0 && !masked_loop)
            start = vector_loop(r, stage, level, start, limit, 1);
    }
    bool over = constant_value(start, &at) && constant_value(limit, &to) && at >= to;
    if (multiple % r->vector_lanes != 0 && !over) {
        if (!r->masked)
            scalar_rest(r, stage, level, start, limit);
        else
            masked_rest(r, stage, level, start, limit, r->one_loop || (masked_loop && step > r->vector_lanes));
    }
    vector_form(r, r->vector_lanes, 1, NULL);
}

static void reduce_loop(Render *r, int stage, int level, IrValue start, IrValue limit, int rows) {
    int axis = r->level_axis[level];
    Loop loop = loop_begin(r, start, limit, rows);
    for (int row = 0; row < rows; row++) {
        r->index[axis] = build_add(r->builder, loop.index, constant_i64(r, row));
        r->accumulator_base = row * r->unroll;
        render_advance(r, stage, level, axis, r->index[axis]);
        set_flat(r, level, r->index[axis]);
        render_level(r, stage, level);
        if (level < r->levels) render_nest(r, stage, level + 1);
    }
    r->accumulator_base = 0;
    loop_end(r, &loop);
}

void reduce_range(Render *r, int stage, int level, IrValue start, IrValue limit) {
    int rows = level == r->levels && r->class == CLASS_OUTER ? r->accumulators / r->main_unroll : 1;
    if (rows > 1 && r->lanes == r->vector_lanes && r->unroll == r->main_unroll) {
        int64_t size;
        IrValue whole = rounded_down(r, start, limit, rows);
        if (!constant_value(whole, &size) || size > 0) reduce_loop(r, stage, level, start, whole, rows);
        start = whole;
        if (constant_value(limit, &size) && size % rows == 0) return;
    }
    reduce_loop(r, stage, level, start, limit, 1);
}

static void render_nest(Render *r, int stage, int level) {
    int axis = r->level_axis[level];
    if (axis == r->vector_axis) {
        render_vector_range(r, stage, level, constant_i64(r, 0), r->range_count, r->range_count);
        return;
    }
    if (!reduce_in_chunks(r, stage, level)) {
        reduce_range(r, stage, level, constant_i64(r, 0), r->size[axis]);
        return;
    }
    Loop chunks = loop_begin(r, constant_i64(r, 0), r->size[axis], REDUCE_CHUNK);
    IrValue end = build_add(r->builder, chunks.index, constant_i64(r, REDUCE_CHUNK));
    IrValue over = build_compare(r->builder, IR_SGT, end, r->size[axis]);
    reduce_range(r, stage, level, chunks.index, build_select(r->builder, over, r->size[axis], end));
    reduce_flush(r, stage);
    loop_end(r, &chunks);
}

bool render_has_inside(const Render *r, int stage, int level) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (!r->needed[stage][i]) continue;
        if (s->level > level && s->inst->op != K_CONST && !kernel_op_is_reduce(s->inst->op)) return true;
        if (kernel_op_is_reduce(s->inst->op) && s->inst->stage == stage) return true;
    }
    return false;
}

/* What stands at `level` of the stage, then its loops. */
static void render_stage(Render *r, int stage, int level) {
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (kernel_op_is_reduce(r->slots[i].inst->op) && r->slots[i].inst->stage == stage) reduce_begin(r, i);
    render_level(r, stage, level);
    if (level < r->levels && render_has_inside(r, stage, level)) render_nest(r, stage, level + 1);
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (kernel_op_is_reduce(r->slots[i].inst->op) && r->slots[i].inst->stage == stage) reduce_finish(r, i);
}

/* --- tasks --- */

static IrValue ceil_divide(Render *r, IrValue value, int64_t by) {
    if (by <= 1) return value;
    return build_pieces(r->builder, value, constant_i64(r, by));
}

/* Digits of the task number, outermost first: the TASK axes (the tile axis in blocks), then the blocks of LANE. */
typedef struct Digits {
    int count, axis[KERNEL_MAX_AXES + 1];
    IrValue radix[KERNEL_MAX_AXES + 1], memory[KERNEL_MAX_AXES + 1];
} Digits;

static bool is_one(IrValue value) {
    int64_t known;
    return constant_value(value, &known) && known == 1;
}

static Digits task_digits(Render *r, IrValue begin) {
    const Kernel *k = r->kernel;
    Digits d = {0};
    for (int a = 0; a < k->axis_count; a++) {
        if (k->axes[a].role != AXIS_TASK && k->axes[a].role != AXIS_LANE) continue;
        int64_t block = k->axes[a].role == AXIS_LANE ? k->lane_block : a == k->tile_axis ? k->tile_block : 1;
        bool whole = kernel_is_block(k) && k->axes[a].role == AXIS_LANE;
        IrValue radix = whole ? NULL : ceil_divide(r, r->size[a], block);
        if (whole || is_one(radix)) { /* no digit */
            r->index[a] = constant_i64(r, 0);
            continue;
        }
        d.axis[d.count] = a;
        d.radix[d.count++] = radix;
    }
    IrValue rest = begin;
    for (int n = d.count - 1; n >= 0; n--) {
        d.memory[n] = slot_alloca(r, IR_I64);
        IrValue digit = n ? build_urem(r->builder, rest, d.radix[n]) : rest;
        if (n) rest = build_udiv(r->builder, rest, d.radix[n]);
        build_store(r->builder, digit, d.memory[n], 0);
    }
    return d;
}

static void count_on(Render *r, const Digits *d) {
    IrValue carry = constant_int(r, IR_I1, 1);
    for (int n = d->count - 1; n >= 0; n--) {
        IrValue old = build_load(r->builder, IR_I64, d->memory[n], 0);
        IrValue next = build_add(r->builder, old, build_cast(r->builder, IR_ZEXT, carry, IR_I64));
        if (n > 0) {
            carry = build_compare(r->builder, IR_EQ, next, d->radix[n]);
            next = build_select(r->builder, carry, constant_i64(r, 0), next);
        }
        build_store(r->builder, next, d->memory[n], 0);
    }
}

/* The vector axis in the present task. */
static void set_range(Render *r) {
    int a = r->vector_axis;
    const KernelAxis *axis = &r->kernel->axes[a];
    r->range_start = constant_i64(r, 0);
    r->range_count = r->size[a];
    if (axis->role != AXIS_LANE || kernel_is_block(r->kernel)) return;
    IrValue block = constant_i64(r, r->lane_block);
    r->range_start = build_mul(r->builder, r->index[a], block);
    r->range_count = r->constant_count >= 0
                         ? constant_i64(r, r->constant_count)
                         : build_smin(r->builder, build_sub(r->builder, r->size[a], r->range_start), block);
}

static void task_pointers(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_memory(s->inst)) continue;
        IrValue at = s->pointer[0];
        for (int a = 0; a < r->kernel->axis_count; a++) {
            if (r->axis_level[a] != 1 || s->inst->access->kind[a] == STRIDE_ZERO) continue;
            IrValue bytes = build_mul(r->builder, r->index[a], access_stride(r, s->inst, a));
            at = build_offset(r->builder, at, bytes, 1);
        }
        s->pointer[1] = at;
    }
}

void render_task_begin(Render *r) {
    set_range(r);
    task_pointers(r);
    stream_task(r);
}

static void render_task(Render *r, const Digits *digits) {
    for (int n = 0; n < digits->count; n++)
        r->index[digits->axis[n]] = build_load(r->builder, IR_I64, digits->memory[n], 0);
    render_task_begin(r);
    if (r->class == CLASS_TILE) {
        render_level(r, 0, 1);
        render_tiles(r);
    } else if (r->class == CLASS_OUTER) {
        for (int s = 0; s < r->kernel->stage_count; s++) render_level(r, s, 1);
        render_nest(r, 0, 2);
    } else {
        for (int s = 0; s < r->kernel->stage_count; s++) render_stage(r, s, 1);
    }
}

/* --- the function --- */

static void load_arguments(Render *r) {
    const Kernel *k = r->kernel;
    IrValue buffers = build_parameter(r->builder, 0), params = build_parameter(r->builder, 1);
    r->scratch = build_parameter(r->builder, 4);
    r->buffers = ARENA_ARRAY(r->arena, IrValue, k->buffers.count + 1);
    r->params = ARENA_ARRAY(r->arena, IrValue, k->param_count + 1);
    for (int i = 0; i < k->buffers.count; i++) {
        IrValue n = constant_i64(r, i), at = build_offset(r->builder, buffers, n, 8);
        r->buffers[i] = build_load(r->builder, IR_POINTER, at, 8);
    }
    IrType *types = ARENA_ARRAY(r->arena, IrType, k->param_count + 1);
    for (int i = 0; i < k->param_count; i++) types[i] = IR_I64;
    for (int i = 0; i < k->insts.count; i++)
        if (k->insts.items[i].op == K_PARAM)
            types[k->insts.items[i].bits] = type_compute(r, k->insts.items[i].dtype, 1);
    for (int i = 0; i < k->param_count; i++) {
        IrValue n = constant_i64(r, i), at = build_offset(r->builder, params, n, 8);
        r->params[i] = build_load(r->builder, types[i], at, ir_bits(types[i]) / 8);
    }
    for (int a = 0; a < k->axis_count; a++) {
        const KernelAxis *axis = &k->axes[a];
        r->size[a] = axis->param < 0 ? constant_i64(r, axis->size) : r->params[axis->param];
    }
}

static void entry_pointers(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_memory(s->inst)) continue;
        const KernelAccess *access = s->inst->access;
        s->pointer[0] = r->buffers[s->inst->buffer];
        if (access->offset_kind == STRIDE_ZERO) continue;
        IrValue offset =
            access->offset_kind == STRIDE_PARAM ? r->params[access->offset] : constant_i64(r, access->offset);
        IrValue bytes = build_mul(r->builder, offset, constant_i64(r, access_bytes(r, s->inst)));
        s->pointer[0] = build_offset(r->builder, s->pointer[0], bytes, 1);
    }
}

void render_tasks(Render *r, IrValue from, IrValue to) {
    Digits digits = task_digits(r, from);
    Loop tasks = loop_begin(r, from, to, 1);
    render_task(r, &digits);
    count_on(r, &digits);
    loop_end(r, &tasks);
}

void render_kernel(Render *r) {
    IrBlock entry = build_block(r->builder);
    IrBlock setup = build_block_new(r->builder, "setup"), end = build_block_new(r->builder, "end");
    build_at(r->builder, end);
    build_retvoid(r->builder);
    IrValue from = build_parameter(r->builder, 2), to = build_parameter(r->builder, 3);
    build_at(r->builder, entry);
    build_condbr(r->builder, build_compare(r->builder, IR_SLT, from, to), setup, end);
    build_at(r->builder, setup);
    load_arguments(r);
    entry_pointers(r);
    vector_form(r, r->vector_lanes, 1, NULL);
    if (!r->kernel->band) render_scratch(r);
    stream_setup(r);
    ahead_setup(r);
    for (int s = 0; s < r->kernel->stage_count; s++) render_level(r, s, 0);
    if (r->kernel->band && r->class == CLASS_INNER)
        render_columns(r, from, to);
    else if (r->kernel->band)
        render_bands(r, from, to);
    else
        render_tasks(r, from, to);
    stream_end(r);
    build_br(r->builder, end);
}
