/* SPDX-License-Identifier: Apache-2.0 */
/* Permutes become strides; sizes of 1 become strides of 0. */
#include "runtime/device/attention_shape.h"

enum { Q, K, V }; /* inputs */
enum { ROWS = ATTENTION_LEAD, COLUMNS };

static Status wrong(const Node *node, const char *what) {
    return status_error(STATUS_INVALID, "%s (attention): %s", node_origin_name(node), what);
}

static float nth_float(const Node *node, const char *name, int index) {
    const Attr *attr = node_attr(node, name);
    return attr && attr->kind == ATTR_FLOATS && index < attr->count ? attr->floats[index] : 0;
}

bool attention_steps(const Node *node, AttentionStep *steps, int *out_count) {
    int count, next = strcmp(node->op, ATTENTION) == 0 ? ATTENTION_INPUTS : ATTENTION_BACKWARD_INPUTS;
    const int64_t *kinds = attr_ints(node, "steps", &count);
    if (count > ATTENTION_STEPS) return false;
    for (int i = 0; i < count; i++) {
        if (kinds[i] < 0 || kinds[i] >= SCORE_COUNT || (kinds[i] >= SCORE_DROP && i != count - 1)) return false;
        steps[i] = (AttentionStep){(ScoreStep)kinds[i], nth_float(node, "steps_alpha", i),
                                   nth_float(node, "steps_beta", i), -1};
        if (!score_step_reads_input(steps[i].kind)) continue;
        if (next >= node->input_count || !node->inputs[next]) return false;
        steps[i].input = next++;
    }
    *out_count = count;
    return next == node->input_count;
}

/* A tensor as permute(tensor, perm): its sizes and strides, the last axis last, missing leading axes of size 1. */
typedef struct View {
    int64_t dims[ATTENTION_RANK], strides[ATTENTION_RANK];
} View;

static bool view_of(const Node *node, const Tensor *t, const char *perm_name, View *view) {
    int count = 0, rank = t->rank, missing = ATTENTION_RANK - rank;
    const int64_t *perm = perm_name ? attr_ints(node, perm_name, &count) : NULL;
    int64_t steps[ATTENTION_RANK], step = 1;
    if (rank > ATTENTION_RANK || (perm && count != rank)) return false;
    for (int i = rank - 1; i >= 0; i--) {
        steps[i] = step;
        step *= t->dims[i];
    }
    for (int i = 0; i < missing; i++) view->dims[i] = 1, view->strides[i] = 0;
    for (int i = 0; i < rank; i++) {
        int64_t axis = perm ? perm[i] : i;
        if (axis < 0 || axis >= rank) return false;
        view->dims[missing + i] = t->dims[axis];
        view->strides[missing + i] = steps[axis];
    }
    return true;
}

/* The result is permuted the other way: its sizes and strides by the axes of r. */
static bool result_view(const Node *node, const Tensor *output, View *view) {
    int count, missing = ATTENTION_RANK - output->rank;
    const int64_t *perm = attr_ints(node, "perm_out", &count);
    View stored;
    if (!view_of(node, output, NULL, &stored) || (perm && count != output->rank)) return false;
    *view = stored;
    for (int i = 0; perm && i < count; i++) {
        if (perm[i] < 0 || perm[i] >= count) return false;
        view->dims[missing + perm[i]] = stored.dims[missing + i];
        view->strides[missing + perm[i]] = stored.strides[missing + i];
    }
    return true;
}

/* The heads that are the operand's. */
static bool take_part(const Node *node, const char *name, View *view, int64_t *out_at) {
    int count;
    const int64_t *part = attr_ints(node, name, &count);
    int64_t *heads = &view->dims[ATTENTION_HEADS];
    *out_at = 0;
    if (!part) return true;
    if (count != 2 || part[0] < 0 || part[1] < 1 || part[0] > *heads - part[1]) return false;
    *out_at = part[0] * view->strides[ATTENTION_HEADS];
    *heads = part[1];
    return true;
}

static AttentionStrides strides_of(const View *v) {
    AttentionStrides s = {.row = v->dims[ROWS] == 1 ? 0 : v->strides[ROWS],
                          .column = v->dims[COLUMNS] == 1 ? 0 : v->strides[COLUMNS]};
    for (int i = 0; i < ATTENTION_LEAD; i++) s.lead[i] = v->dims[i] == 1 ? 0 : v->strides[i];
    return s;
}

static bool repeats_to(const View *v, const View *whole, int axes) {
    for (int i = 0; i < axes; i++)
        if (v->dims[i] != 1 && v->dims[i] != whole->dims[i]) return false;
    return true;
}

static bool divides(int64_t own, int64_t all) { return own > 0 ? all % own == 0 : !all; }

static Status bind_steps(const Node *node, const Tensor *const *inputs, const View *out, AttentionShape *shape) {
    AttentionStep steps[ATTENTION_STEPS];
    int count;
    View scores = *out, view;
    if (!attention_steps(node, steps, &count)) return wrong(node, "its steps do not fit its inputs");
    for (int i = 0; i < count; i++) {
        if (steps[i].input < 0) continue;
        scores.dims[COLUMNS] = steps[i].kind == SCORE_SINK ? 1 : shape->keys;
        if (!view_of(node, inputs[steps[i].input], NULL, &view) || !repeats_to(&view, &scores, ATTENTION_RANK))
            return wrong(node, "a mask does not have as many queries or keys as there are");
        shape->steps[i] = strides_of(&view);
    }
    return NULL;
}

Status attention_shape(const Node *node, const Tensor *const *inputs, const int64_t *symbols, const Tensor *output,
                       AttentionShape *shape) {
    View q, k, v, out;
    int count;
    if (!view_of(node, inputs[Q], "perm_q", &q) || !view_of(node, inputs[K], "perm_k", &k) ||
        !view_of(node, inputs[V], "perm_v", &v) || !result_view(node, output, &out))
        return wrong(node, "queries, keys, values and the result do not have the number of axes that was planned");
    int64_t heads = out.dims[ATTENTION_HEADS], at[ATTENTION_INPUTS];
    bool fits = take_part(node, "part_q", &q, &at[Q]) && take_part(node, "part_k", &k, &at[K]) &&
                take_part(node, "part_v", &v, &at[V]);
    fits &=
        repeats_to(&q, &out, COLUMNS) && repeats_to(&k, &out, ATTENTION_HEADS) && repeats_to(&v, &out, ATTENTION_HEADS);
    fits &= divides(k.dims[ATTENTION_HEADS], heads) && divides(v.dims[ATTENTION_HEADS], heads);
    fits &= k.dims[COLUMNS] == q.dims[COLUMNS] && v.dims[COLUMNS] == out.dims[COLUMNS] && v.dims[ROWS] == k.dims[ROWS];
    if (!fits) return wrong(node, "the shapes of queries, keys and values do not fit together");
    *shape = (AttentionShape){.k_heads = k.dims[ATTENTION_HEADS],
                              .v_heads = v.dims[ATTENTION_HEADS],
                              .queries = out.dims[ROWS],
                              .keys = k.dims[ROWS],
                              .size = q.dims[COLUMNS],
                              .width = out.dims[COLUMNS],
                              .q = strides_of(&q),
                              .k = strides_of(&k),
                              .v = strides_of(&v),
                              .out = strides_of(&out)};
    memcpy(shape->lead, out.dims, sizeof shape->lead);
    memcpy(shape->at, at, sizeof shape->at);
    TRY(bind_steps(node, inputs, &out, shape));
    const Dim *const *offset = attr_dims(node, "offset", &count);
    shape->offset = count ? dim_eval(offset[0], symbols) : 0;
    return shape->offset == UNBOUND_DIM ? wrong(node, "the offset of a causal mask is not known") : NULL;
}

void attention_inputs(const AttentionShape *shape, const Tensor *const *inputs, int count, AttentionInputs *out) {
    for (int i = 0; i < count; i++) out->all[i] = inputs[i];
    for (int i = 0; i < ATTENTION_INPUTS; i++) {
        if (!shape->at[i]) continue;
        out->moved[i] = (Tensor){.dtype = inputs[i]->dtype,
                                 .rank = 1,
                                 .dims = {tensor_count(inputs[i]) - shape->at[i]},
                                 .data = (char *)inputs[i]->data + (size_t)shape->at[i] * dtype_size(inputs[i]->dtype)};
        out->all[i] = &out->moved[i];
    }
}
