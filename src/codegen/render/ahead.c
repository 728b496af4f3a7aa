/* SPDX-License-Identifier: Apache-2.0 */
/* What is read from memory once, element by element, is prefetched: the processor's own prefetching ends with a page, and
 * has nothing to follow while a row's later stages read what is in a cache. (Bands do likewise by themselves, bands.c.) */
#include "codegen/render/render.h"

/* How far ahead, all streams of a kernel together: what is prefetched shares the first cache with what is read. Rows of 4 KB
 * with two streams are then prefetched two rows ahead, each stream in one of the later stages. (An AMD EPYC of family 26, two
 * threads. Loops in C, of the time without prefetching: bias, ReLU and square of 8192 x 4096 take 0.97 at 2 KB, 0.88 at 4, 0.87 at
 * 8, 0.82 at 16; residual sum and LayerNormalization of rows of 4 KB 0.71 with one row ahead, 0.68 with two, 0.72 with three, and
 * 0.87 with both streams in the first stage, which waits for memory anyway. `bench_kernels`: the latter on rows of 3 KB from the
 * third cache 1.02 with two rows ahead, 1.08 with three.) Where one stage computes for longer than memory takes,
 * all streams come in it: dropout before a LayerNormalization of 8192 x 1024 takes .8 of the time that it takes with them in the
 * later stages, which then wait. (An AMD EPYC of family 25, two threads, 2026-11-29, `bench_kernels`.) */
enum { AHEAD_BYTES = 12288 };

static int inner_task_axis(const Render *r) {
    int axis = -1;
    for (int a = 0; a < r->kernel->axis_count; a++)
        if (r->kernel->axes[a].role == AXIS_TASK) axis = a;
    return axis;
}

static bool is_stream(const Render *r, const Slot *s, int inner) {
    if (s->inst->op != K_LOAD || s->level != r->levels) return false;
    if (kernel_is_block(r->kernel) && s->inst->buffer == 0) return false;
    return s->inst->access->kind[r->vector_axis] == STRIDE_ONE &&
           (inner < 0 || s->inst->access->kind[inner] != STRIDE_ZERO);
}

/* In bytes: whole rows, of which the task axis has the distance, or so much of a long one. */
static IrValue distance(Render *r, const Slot *s, int inner, int64_t bytes, bool whole_rows) {
    IrBuilder *b = r->builder;
    IrValue flat = constant_i64(r, bytes);
    if (inner < 0) return flat;
    IrValue row = build_mul(b, r->size[r->vector_axis], constant_i64(r, access_bytes(r, s->inst)));
    IrValue held = build_or(b, row, constant_i64(r, 1)); /* may be 0 */
    IrValue rows = build_udiv(b, constant_i64(r, bytes - 1), held);
    IrValue stride = access_stride(r, s->inst, inner);
    IrValue ahead = build_mul(b, build_add(b, rows, constant_i64(r, 1)), stride);
    if (whole_rows) return ahead;
    return build_select(b, build_compare(b, IR_SGT, row, flat), flat, ahead);
}

/* The stage that computes more than all the others, and for so long that memory can bring every stream's next part meanwhile: -1
 * if there is none. */
static int busiest_stage(const Render *r, const int *stages, int count, int streams) {
    enum { BUSY_WEIGHT = 16 }; /* vector instructions a stream */
    int weights[MAX_AHEAD_STAGES], all = 0, most = 0;
    for (int i = 0; i < count; i++) {
        weights[i] = render_weight(r, stages[i]) + (random_in_stage(r, stages[i]) ? RANDOM_WEIGHT : 0);
        if (weights[i] > weights[most]) most = i;
        all += weights[i];
    }
    return count && 2 * weights[most] > all && weights[most] >= BUSY_WEIGHT * streams ? stages[most] : -1;
}

void ahead_setup(Render *r) {
    int stages[MAX_AHEAD_STAGES], loops = 0, streams = 0, inner = inner_task_axis(r), at = 0;
    if (r->levels != 2 || (r->class != CLASS_POINTWISE && r->class != CLASS_INNER)) return;
    for (int s = 0; s < r->kernel->stage_count && loops < MAX_AHEAD_STAGES; s++)
        if (render_has_inside(r, s, 1)) stages[loops++] = s;
    for (int i = 0; i < r->kernel->insts.count; i++) streams += is_stream(r, &r->slots[i], inner);
    int busiest = busiest_stage(r, stages, loops, streams), later = loops > 1 && inner >= 0 ? loops - 1 : 0;
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_stream(r, s, inner)) continue;
        int spread = stages[later ? 1 + at++ * later / streams : 0];
        s->ahead = distance(r, s, inner, AHEAD_BYTES / streams, later > 0);
        s->ahead_stage = busiest >= 0 ? busiest : spread;
    }
}

static bool comes_in(const Slot *s, int stage) { return s->ahead && s->ahead_stage == stage; }

void ahead_range(Render *r, int stage) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!comes_in(s, stage)) continue;
        IrValue bytes = build_mul(r->builder, r->range_start, constant_i64(r, access_bytes(r, s->inst)));
        bytes = build_add(r->builder, bytes, s->ahead);
        s->ahead_pointer = build_offset(r->builder, s->pointer[1], bytes, 1);
    }
}

void ahead_body(Render *r, int stage, IrValue index) {
    if (r->lanes != r->vector_lanes) return;
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!comes_in(s, stage)) continue;
        int64_t bytes = access_bytes(r, s->inst), vector = bytes * r->lanes;
        IrValue from = build_offset(r->builder, s->ahead_pointer, index, (int)bytes);
        for (int c = 0; c < r->unroll; c++)
            if (c * vector % CACHE_LINE == 0) prefetch(r, from, constant_i64(r, c * vector), 1);
    }
}
