/* SPDX-License-Identifier: Apache-2.0 */
/* The device's own function for the step is called with loops that are counted, not run (base/pool.h). What it gets for
 * tensors is memory that is reserved, not used: beyond its loops it looks at sizes alone. */
#include "runtime/plan/split.h"

#include <sys/mman.h>

typedef struct Try {
    const Plan *plan;
    const Step *step;
    const int64_t *symbols;
    Arena *arena;
    void *memory; /* for all tensors that are no constants; NULL: none */
    size_t bytes;
} Try;

/* --- tensors --- */
static bool shape_tensor(const Try *t, int slot, Tensor *out) {
    const Value *value = t->plan->slots[slot].value;
    if (value->kind != VALUE_TENSOR || value->dtype == DT_STRING || value->rank < 0) return false;
    *out = (Tensor){.dtype = value->dtype, .rank = value->rank};
    for (int d = 0; d < value->rank; d++) {
        out->dims[d] = dim_eval(value->dims[d], t->symbols);
        if (out->dims[d] < 0) return false; /* UNBOUND_DIM among them */
    }
    size_t bytes;
    Status wrong = tensor_size_of(out->dtype, out->rank, out->dims, NULL, &bytes);
    status_free(wrong);
    out->data = t->plan->constants[slot];
    return !wrong;
}

static bool shape_all(Try *t, Tensor *inputs, Tensor *outputs) {
    const Step *step = t->step;
    for (int i = 0; i < step->input_count; i++)
        if (step->inputs[i] >= 0 && !shape_tensor(t, step->inputs[i], &inputs[i])) return false;
    for (int o = 0; o < step->output_count; o++) {
        if (step->outputs[o] < 0 || !shape_tensor(t, step->outputs[o], &outputs[o])) return false;
        if (tensor_bytes(&outputs[o]) > t->bytes) t->bytes = tensor_bytes(&outputs[o]);
    }
    for (int i = 0; i < step->input_count; i++)
        if (step->inputs[i] >= 0 && tensor_bytes(&inputs[i]) > t->bytes) t->bytes = tensor_bytes(&inputs[i]);
    return true;
}

static bool reserve(Try *t) {
    enum { SLACK = 1 << 16 };
    t->bytes += SLACK;
    t->memory = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return t->memory != MAP_FAILED;
}

/* A constant that an anchor has packed has no data in a run, either. */
static void place_all(const Try *t, Tensor *inputs, Tensor *outputs) {
    for (int i = 0; i < t->step->input_count; i++)
        if (t->step->inputs[i] >= 0 && t->plan->slots[t->step->inputs[i]].storage != STORE_CONSTANT)
            inputs[i].data = t->memory;
    for (int o = 0; o < t->step->output_count; o++) outputs[o].data = t->memory;
}

/* --- kinds of steps --- */
static bool count_kernel(const Try *t) {
    const RegionKernel *region = &t->step->region;
    int64_t *params = ARENA_ARRAY(t->arena, int64_t, region->kernel->param_count + 1),
            work = dim_eval(region->work, t->symbols);
    void **buffers = ARENA_ARRAY(t->arena, void *, region->buffer_count + 1);
    bool known = work != UNBOUND_DIM;
    for (int i = 0; i < region->kernel->param_count; i++) {
        params[i] = dim_eval(region->params[i], t->symbols);
        known = known && params[i] != UNBOUND_DIM;
    }
    if (!known) return false;
    Status status = t->step->on->table->launch(t->step->on, NULL, t->step->kernel, buffers, params, work, NULL);
    status_free(status);
    return !status;
}

static bool count_tensors(Try *t) {
    const Step *step = t->step;
    Tensor *inputs = ARENA_ARRAY(t->arena, Tensor, step->input_count + 1),
           *outputs = ARENA_ARRAY(t->arena, Tensor, step->output_count + 1);
    const Tensor **given = ARENA_ARRAY(t->arena, const Tensor *, step->input_count + 1);
    if (!shape_all(t, inputs, outputs) || !reserve(t)) return false;
    place_all(t, inputs, outputs);
    for (int i = 0; i < step->input_count; i++)
        if (step->inputs[i] >= 0) given[i] = &inputs[i];
    const DeviceTable *table = step->on->table;
    AnchorFinish finish = {&step->region, step->kernel};
    Status status =
        step->kind == STEP_ANCHOR
            ? table->run_anchor(step->on, NULL, step->anchor, step->kernel ? &finish : NULL, given, t->symbols, outputs)
            : table->run_prim(step->on, NULL, step->node, given, t->symbols, outputs, t->arena);
    status_free(status);
    return !status;
}

/* What the evaluator computes begins no loops, and would be computed here. */
static bool is_evaluated(const Step *step) {
    if (step->kind == STEP_ANCHOR) return strcmp(step->on->table->anchor_how(step->anchor), "plain") == 0;
    return prim_info(step->node->prim)->klass != PRIM_CLASS_MOVE && step->node->prim != PRIM_GATHER;
}

static bool count_in(Try *t) {
    jmp_buf guard;
    if (setjmp(guard)) return false;
    arena_guard(t->arena, &guard);
    return t->step->kind == STEP_KERNEL ? count_kernel(t) : count_tensors(t);
}

bool step_split(const Plan *plan, const Step *step, const int64_t *symbols, PoolCount *out_count) {
    *out_count = (PoolCount){0};
    bool counts = step->kind == STEP_KERNEL || step->kind == STEP_ANCHOR || step->kind == STEP_PRIM;
    if (!counts || step->on->table->kind != DEVICE_CPU) return false;
    if (step->kind != STEP_KERNEL && is_evaluated(step)) return true;
    Try t = {.plan = plan, .step = step, .symbols = symbols, .arena = arena_create(0)};
    if (!t.arena) return false;
    pool_count(out_count);
    bool known = count_in(&t);
    pool_count(NULL);
    if (t.memory && t.memory != MAP_FAILED) munmap(t.memory, t.bytes);
    arena_destroy(t.arena);
    return known;
}
