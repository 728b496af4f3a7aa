/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of columns beside reductions of rows (kernel.h). A task over a band takes its rows one after the other and adds what is
 * summed to a row of sums in scratch memory, which stays in the first cache: no tensor is read twice. The tasks that follow take
 * the sums of all bands together. */
#include "codegen/render/render.h"

static bool is_sum(const Render *r, int i) { return kernel_is_sum(r->slots[i].inst); }

/* A vector of one task's elements, behind the loop's body. */
typedef void Body(Render *r, IrValue element, void *context);

/* Elements [from, to), whole vectors first. */
static void over_elements(Render *r, IrValue from, IrValue to, Body *body, void *context) {
    IrValue span = build_sub(r->builder, to, from), whole = constant_i64(r, -r->vector_lanes);
    IrValue end = build_add(r->builder, from, build_and(r->builder, span, whole));
    r->lanes = r->vector_lanes;
    Loop vectors = loop_begin(r, from, end, r->lanes);
    body(r, vectors.index, context);
    loop_end(r, &vectors);
    r->lanes = 1;
    Loop rest = loop_begin(r, end, to, 1);
    body(r, rest.index, context);
    loop_end(r, &rest);
    r->lanes = r->vector_lanes;
}

static IrValue at_element(Render *r, IrValue base, IrValue element, int64_t bytes) {
    return build_offset(r->builder, base, build_mul(r->builder, element, constant_i64(r, bytes)), 1);
}

static void empty(Render *r, IrValue element, void *context) {
    const Slot *s = context;
    int64_t bytes = access_bytes(r, s->inst);
    IrType type = type_compute(r, s->inst->dtype, r->lanes);
    build_store(r->builder, constant_real(r, type, 0), at_element(r, s->keep, element, bytes), bytes);
}

typedef struct Finish {
    const Slot *slot;
    IrValue bands, bytes; /* their number, the distance from one to the next */
} Finish;

static void add_bands(Render *r, IrValue element, void *context) {
    const Finish *f = context;
    const KernelInst *inst = f->slot->inst;
    IrType type = type_compute(r, inst->dtype, r->lanes);
    IrValue sum = slot_alloca(r, type);
    int64_t bytes = access_bytes(r, inst);
    build_store(r->builder, constant_real(r, type, 0), sum, 0);
    Loop bands = loop_begin(r, constant_i64(r, 0), f->bands, 1);
    IrValue band = build_offset(r->builder, f->slot->keep, build_mul(r->builder, bands.index, f->bytes), 1);
    IrValue own = build_load(r->builder, type, at_element(r, band, element, bytes), bytes);
    build_store(r->builder, build_fadd(r->builder, build_load(r->builder, type, sum, 0), own), sum, 0);
    loop_end(r, &bands);
    DType dtype = r->kernel->buffers.items[inst->buffer].dtype;
    int64_t stored = (int64_t)dtype_size(dtype);
    IrValue result = convert_to_memory(r, build_load(r->builder, type, sum, 0), dtype);
    build_store(r->builder, result, at_element(r, r->buffers[inst->buffer], element, stored), stored);
}

static IrValue elements_of(Render *r, bool reduced) {
    IrValue elements = constant_i64(r, 1);
    for (int a = 0; a < r->kernel->axis_count; a++)
        if ((r->kernel->axes[a].role != AXIS_TASK) == reduced) elements = build_mul(r->builder, elements, r->size[a]);
    return elements;
}

void render_columns(Render *r, IrValue begin, IrValue end) {
    IrBuilder *b = r->builder;
    IrValue rows = elements_of(r, false), columns = elements_of(r, true), base = r->scratch;
    IrValue height = build_pieces(b, rows, constant_i64(r, KERNEL_BANDS)); /* kernel_band_rows */
    height = build_smin(b, build_smax(b, height, constant_i64(r, KERNEL_BAND_LEAST)), constant_i64(r, r->kernel->band));
    IrValue count = build_pieces(b, rows, height), bytes = render_scratch(r);

    Loop bands = loop_begin(r, begin, build_smin(b, end, count), 1);
    r->scratch = build_offset(b, base, build_mul(b, bands.index, bytes), 1);
    render_scratch(r);
    for (int i = 0; i < r->kernel->insts.count; i++) {
        if (!is_sum(r, i)) continue;
        r->slots[i].pointer[0] = r->slots[i].keep;
        over_elements(r, constant_i64(r, 0), columns, empty, &r->slots[i]);
    }
    IrValue first = build_mul(b, bands.index, height);
    render_tasks(r, first, build_smin(b, build_add(b, first, height), rows));
    loop_end(r, &bands);

    r->scratch = base;
    render_scratch(r);
    IrValue from = build_sub(b, build_smax(b, begin, count), count), to = build_sub(b, end, count);
    Loop blocks = loop_begin(r, from, to, 1);
    IrValue start = build_mul(b, blocks.index, constant_i64(r, KERNEL_SUM_BLOCK));
    IrValue stop = build_smin(b, build_add(b, start, constant_i64(r, KERNEL_SUM_BLOCK)), columns);
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Finish finish = {&r->slots[i], count, bytes};
        if (is_sum(r, i)) over_elements(r, start, stop, add_bands, &finish);
    }
    loop_end(r, &blocks);
}
