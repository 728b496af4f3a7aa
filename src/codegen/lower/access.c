/* SPDX-License-Identifier: Apache-2.0 */
/* Loads from the space, stores and indices row-major over the values they belong to; then strides as kinds and
 * parameters. */
#include "codegen/lower/lower_region.h"

static bool is_const(const Dim *dim, int64_t value) { return dim_equals(dim, value); }

static Access *add(Lowered *l, AccessKind kind, const Value *value) {
    Access a = {.kind = kind, .value = value, .element = dtype_size(value->dtype), .offset = dim_const(l->dims, 0)};
    for (int i = 0; i < SPACE_MAX_AXES; i++) a.stride[i] = a.offset;
    VEC_PUSH(l->arena, l->accesses, a);
    return &l->accesses.items[l->accesses.count - 1];
}

/* Strides row-major over those of the value's axes for which `chosen` has a bit. */
static void dense(Lowered *l, Access *access, const SpaceValue *v, uint32_t chosen) {
    const Dim *stride = dim_const(l->dims, 1);
    for (int i = v->value->rank - 1; i >= 0; i--) {
        if (!(chosen >> i & 1)) continue;
        for (int k = v->axis_count[i] - 1; k >= 0; k--) {
            int axis = v->axes[i][k];
            access->stride[axis] = stride;
            stride = dim_mul(l->dims, stride, l->axes[axis].size);
        }
    }
}

static void add_load(Lowered *l, const SpaceLoad *load) {
    Access *a = add(l, ACCESS_LOAD, load->value);
    a->source = load->source;
    a->offset = load->offset;
    memcpy(a->stride, load->stride, sizeof(const Dim *) * (size_t)l->axis_count);
}

/* The index that a node needs of its own accord. */
static void add_index(Lowered *l, const Node *node) {
    const Value *out = node->outputs[0];
    if (node->prim == PRIM_IOTA)
        dense(l, add(l, ACCESS_INDEX, out), space_value(l->space, out), 1u << attr_int(node, "axis", 0));
    if (node->prim == PRIM_PHILOX) dense(l, add(l, ACCESS_INDEX, out), space_value(l->space, out), ~0u);
    if (node->prim == PRIM_ARGMAX || node->prim == PRIM_ARGMIN) {
        int count;
        const int64_t *axes = attr_ints(node, "axes", &count);
        uint32_t chosen = 0;
        for (int i = 0; i < count; i++) chosen |= 1u << axes[i];
        dense(l, add(l, ACCESS_INDEX, out), space_value(l->space, node->inputs[0]), chosen);
    }
}

void access_collect(Lowered *l) {
    for (int i = 0; i < l->space->loads.count; i++) add_load(l, &l->space->loads.items[i]);
    FOR_EACH_NODE(node, l->body) add_index(l, node);
    for (int i = 0; i < l->body->outputs.count; i++) {
        const Value *out = l->body->outputs.items[i];
        dense(l, add(l, ACCESS_STORE, out), space_value(l->space, out), ~0u);
    }
    for (int i = 0; i < l->accesses.count; i++) { /* they do not move any more */
        Access *a = &l->accesses.items[i];
        if (a->kind == ACCESS_LOAD) map_set_id(&l->loads, MAP_POINTER_KEY(a->value), a);
        if (a->kind == ACCESS_INDEX) map_set_id(&l->indices, MAP_POINTER_KEY(a->value), a);
    }
}

int access_param(Lowered *l, const Dim *dim) {
    for (int i = 0; i < l->params.count; i++)
        if (l->params.items[i] == dim) return i;
    VEC_PUSH(l->arena, l->params, dim);
    return l->params.count - 1;
}

enum { MOST_PARAM_MULTIPLE = 16 }; /* bytes of the widest access */

const int64_t *access_param_multiples(const Lowered *l) {
    int64_t *multiples = ARENA_ARRAY(l->arena, int64_t, l->params.count + 1);
    for (int i = 0; i < l->params.count; i++) {
        int64_t m = MOST_PARAM_MULTIPLE;
        while (m > 1 && !dim_divides(l->dims, l->params.items[i], dim_const(l->dims, m), NULL)) m /= 2;
        multiples[i] = m;
    }
    return multiples;
}

KernelAccess *access_resolve(Lowered *l, const Access *access) {
    KernelAccess *to = ARENA_NEW(l->arena, KernelAccess);
    for (int i = 0; i < l->axis_count; i++) {
        const Dim *stride = access->stride[i];
        to->kind[i] = is_const(stride, 0) ? STRIDE_ZERO : is_const(stride, 1) ? STRIDE_ONE : STRIDE_PARAM;
        if (to->kind[i] == STRIDE_PARAM) to->stride[i] = access_param(l, stride);
    }
    if (!is_const(access->offset, 0)) {
        to->offset_kind = STRIDE_PARAM;
        to->offset = access_param(l, access->offset);
    }
    return to;
}

int access_emit_index(Lowered *l, const Access *access) {
    Emit *e = &l->emit;
    int64_t start;
    int sum = dim_is_const(access->offset, &start)
                  ? emit_int(e, DT_I64, start)
                  : emit_inst(e, (KernelInst){.op = K_PARAM, .dtype = DT_I64, .bits = access_param(l, access->offset)});
    for (int i = 0; i < l->axis_count; i++) {
        if (is_const(access->stride[i], 0)) continue;
        int index = emit_inst(e, (KernelInst){.op = K_INDEX, .dtype = DT_I64, .axis = i});
        if (!is_const(access->stride[i], 1)) {
            KernelInst param = {.op = K_PARAM, .dtype = DT_I64, .bits = access_param(l, access->stride[i])};
            index = emit2(e, K_MUL, DT_I64, index, emit_inst(e, param));
        }
        sum = emit2(e, K_ADD, DT_I64, sum, index);
    }
    return sum;
}
