/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises softmax(steps(scale * q k^T)) v and makes it one anchor, "attention" (lowering/anchors.h), so that neither the
 * scores nor the probabilities are ever stored (Milakov and Gimelshein, "Online normalizer calculation for softmax",
 * 2018; Dao et al., "FlashAttention", 2022).
 *
 * The match walks from the second GEMM back to the first: probabilities, the primitives of the softmax with their
 * safeguards, the steps that change the scores. Heads that share keys (reshape(expand(k))), heads folded into the rows
 * or the batch for the products alone (reshapes around the steps), casts from and to 16-bit floats and permutes become
 * part of the anchor; queries, keys and values that are slices of one product are read where they lie in it. Nothing is made when something
 * else reads a value on the way.
 *
 * Where gradients are asked for, this is done before them, so that they are the anchor's own; but for what that cannot have
 * (repeats_nothing, masks_stay), which stays products and regions in both directions.
 *
 * In and out: LEVEL_PRIM. */
#include <float.h>
#include <math.h>

#include "autodiff/autodiff.h"
#include "lowering/anchors.h"
#include "lowering/build.h"
#include "lowering/prune.h"
#include "passes/passes.h"

/* q, k or v: permute(value, perm), of the shape that the anchor wants. */
typedef struct Operand {
    Value *value;
    int64_t perm[MAX_RANK];
    int64_t part[2]; /* first and number of the heads that it has; 0, 0: all */
} Operand;

typedef struct Step {
    ScoreStep kind;
    float alpha, beta;
    Value *input;
    int form;    /* reshapes between the step and the second GEMM */
    DType dtype; /* of a causal step: in which the model computes it */
} Step;

/* Elements up to which constants are searched for one number, and for a triangle. */
enum { MAX_FORMS = 2, MAX_CHAIN = 64, SPLAT_LIMIT = 1 << 16, TRIANGLE_LIMIT = 1 << 26 };

typedef struct Match {
    Lowering *l;
    bool drops, sinks;      /* the device's anchor may drop probabilities; have a score beside the keys' */
    const Map *trained;     /* what depends on values whose gradients are asked for later; NULL: none are */
    Node *scores, *product; /* the GEMMs */
    Value *top;             /* the scores as the softmax reads them */
    Value *result;          /* what the anchor takes the place of */
    const Dim *const *dims; /* [rank]: [lead..., s_q, s_k], in the form in which the steps are */
    int rank;
    double scale;
    AttentionEmpty empty;
    const Dim *offset; /* of SCORE_CAUSAL; NULL: no such step */
    bool keys_follow;  /* there are as many keys as values for certain, or the sizes do not fit */
    int forms;         /* reshapes between the GEMMs: 0, or 2: to the form of the steps and back */
    Step steps[ATTENTION_STEPS];
    int step_count; /* while matching, the last step comes first */
    Node *inside[MAX_CHAIN];
    int inside_count; /* what nothing else may read */
    Operand q, k, v;
    int64_t perm_out[MAX_RANK];
    bool free_form; /* the result's elements have the order of [lead..., s_q, d_v], its sizes may be others */
} Match;

/* --- small questions -------------------------------------------------------------------------------------- */

static bool made_by(const Value *v, Prim prim) {
    return v && v->producer && v->producer->kind == NODE_PRIM && v->producer->prim == prim;
}

/* A product whose factor is to be held otherwise stays one, for the device to say whether it can be. */
static bool is_gemm(const Node *node) {
    return node && node->kind == NODE_ANCHOR && strcmp(node->op, "matmul") == 0 && !node_attr(node, WEIGHT_PRECISION);
}

static bool narrow_float(DType dtype) { return dtype == DT_F16 || dtype == DT_BF16; }
static bool device_float(DType dtype) { return dtype == DT_F32 || narrow_float(dtype); }

/* A constant that holds one number throughout. */
static bool splat(const Value *v, double *out_number) {
    const Tensor *t = v->constant;
    if (!t || tensor_count(t) < 1 || tensor_count(t) > SPLAT_LIMIT || !dtype_is_float(t->dtype)) return false;
    size_t size = dtype_size(t->dtype);
    for (int64_t i = 1; i < tensor_count(t); i++)
        if (memcmp(t->data, (const char *)t->data + (size_t)i * size, size)) return false;
    *out_number = dtype_load_double(t->dtype, t->data, 0);
    return true;
}

/* A constant condition that is the same throughout. */
static bool all_are(const Value *condition, bool holds) {
    const Tensor *t = condition->constant;
    for (int64_t i = 0; i < tensor_count(t); i++)
        if ((dtype_load_int(t->dtype, t->data, i) != 0) != holds) return false;
    return true;
}

static bool splat_is(const Value *v, double number) {
    double got;
    return splat(v, &got) && got == number;
}

/* The other operand of a binary node where one is a splat; NULL when none is. */
static Value *beside_splat(const Node *node, double *out_number) {
    for (int i = 1; i >= 0; i--)
        if (splat(node->inputs[i], out_number)) return node->inputs[1 - i];
    return NULL;
}

static bool last_axis_alone(const Node *reduction) {
    int count;
    const int64_t *axes = attr_ints(reduction, "axes", &count);
    return count == 1 && axes[0] == reduction->inputs[0]->rank - 1;
}

static bool is_unit(const Dim *dim) { return dim_equals(dim, 1); }

static bool known_different(const Dim *a, const Dim *b) {
    int64_t x, y;
    return dim_is_const(a, &x) && dim_is_const(b, &y) && x != y;
}

static bool take(Match *m, Node *node) {
    if (m->inside_count == MAX_CHAIN) return false;
    m->inside[m->inside_count++] = node;
    return true;
}

static bool push(Match *m, Step step) {
    if (m->step_count == ATTENTION_STEPS) return false;
    step.form = m->forms;
    m->steps[m->step_count++] = step;
    return true;
}

/* --- causal masks ----------------------------------------------------------------------------------------- */

/* An integer tensor that is offset + the index along one axis: 0 the keys (the last), 1 the queries, -1 neither. */
typedef struct Ramp {
    int axis;
    const Dim *offset;
} Ramp;

/* Counted from the end: the axis that alone is not of size 1; -1 when there is none, -2 when there are several. */
static int lone_axis(const Value *v) {
    int found = -1;
    for (int i = 0; i < v->rank; i++)
        if (!is_unit(v->dims[i])) found = found == -1 ? v->rank - 1 - i : -2;
    return found;
}

static bool constant_ramp(const Match *m, const Value *v, Ramp *ramp) {
    int axis = lone_axis(v);
    const Tensor *t = v->constant;
    if (axis < -1 || axis > 1 || tensor_count(t) < 1) return false;
    int64_t first = dtype_load_int(t->dtype, t->data, 0);
    if (first < -LARGEST_SIZE || first > LARGEST_SIZE) return false;
    for (int64_t i = 1; i < tensor_count(t); i++)
        if (dtype_load_int(t->dtype, t->data, i) != first + i) return false;
    *ramp = (Ramp){axis, dim_const(m->l->dims, first)};
    return true;
}

/* Along the ramp's axis the whole has as many elements as the part: none is repeated. */
static bool same_extent(const Value *part, const Value *whole, int axis) {
    return axis < 0 || part->dims[part->rank - 1 - axis] == whole->dims[whole->rank - 1 - axis];
}

static bool ramp_of(const Match *m, const Value *v, Ramp *ramp, int depth) {
    const Node *n = v->producer;
    if (depth > 16 || dtype_class(v->dtype) != DTYPE_SIGNED || dtype_size(v->dtype) < 4) return false;
    if (v->constant) return constant_ramp(m, v, ramp);
    if (v->content && lone_axis(v) == -1) {
        *ramp = (Ramp){-1, v->content[0]};
        return true;
    }
    if (!n || n->kind != NODE_PRIM) return false;
    if (n->prim == PRIM_DIMS && lone_axis(v) == -1) {
        int count;
        *ramp = (Ramp){-1, *attr_dims(n, "shape", &count)};
        return count == 1;
    }
    switch (n->prim) {
    case PRIM_CAST: return ramp_of(m, n->inputs[0], ramp, depth + 1);
    case PRIM_EXPAND: return ramp_of(m, n->inputs[0], ramp, depth + 1) && same_extent(n->inputs[0], v, ramp->axis);
    case PRIM_IOTA:
        *ramp = (Ramp){v->rank - 1 - (int)attr_int(n, "axis", 0), dim_const(m->l->dims, 0)};
        return ramp->axis < 2;
    case PRIM_RESHAPE: { /* only where axes of size 1 come and go around the ramp's */
        const Value *x = n->inputs[0];
        int from = lone_axis(x), to = lone_axis(v);
        if (from == -2 || to == -2 || to > 1 || !ramp_of(m, x, ramp, depth + 1) || ramp->axis != from) return false;
        ramp->axis = to;
        return true;
    }
    case PRIM_ADD:
    case PRIM_SUB: {
        Ramp other;
        if (!ramp_of(m, n->inputs[0], ramp, depth + 1) || !ramp_of(m, n->inputs[1], &other, depth + 1)) return false;
        if (other.axis >= 0 && (ramp->axis >= 0 || n->prim == PRIM_SUB)) return false;
        if (!same_extent(n->inputs[0], v, ramp->axis) || !same_extent(n->inputs[1], v, other.axis)) return false;
        if (other.axis >= 0) ramp->axis = other.axis;
        ramp->offset = n->prim == PRIM_ADD ? dim_add(m->l->dims, ramp->offset, other.offset)
                                           : dim_sub(m->l->dims, ramp->offset, other.offset);
        return true;
    }
    default: return false;
    }
}

/* Whether the queries and keys of this condition are all of them: a size 1 would be repeated. */
static bool spans(const Value *condition, const Value *scores) {
    if (condition->rank < 2) return false;
    for (int i = 1; i <= 2; i++) {
        const Dim *own = condition->dims[condition->rank - i], *all = scores->dims[scores->rank - i];
        if (own != all && (is_unit(own) || known_different(own, all))) return false;
    }
    return true;
}

/* A constant that is `shown` exactly where key <= query + offset. */
static bool constant_triangle(const Match *m, const Value *v, double shown, const Dim **out_offset) {
    const Tensor *t = v->constant;
    if (v->rank < 2 || tensor_count(t) < 1 || tensor_count(t) > TRIANGLE_LIMIT) return false;
    for (int i = 0; i < v->rank - 2; i++)
        if (!is_unit(v->dims[i])) return false;
    int64_t rows = t->dims[t->rank - 2], keys = t->dims[t->rank - 1], first = 0;
    for (int64_t i = 0; i < rows * keys; i++) {
        double x = dtype_load_double(t->dtype, t->data, i);
        bool seen = x == shown;
        if (i == first && seen && i < keys) first++; /* the first row's */
        if (i >= keys && seen != (i % keys < first + i / keys)) return false;
        if (i < keys && seen != (i < first)) return false;
    }
    *out_offset = dim_const(m->l->dims, first - 1);
    return true;
}

/* condition == holds exactly where key <= query + offset. */
static bool causal(const Match *m, const Value *condition, bool holds, const Value *scores, const Dim **out_offset) {
    const Node *n = condition->producer;
    if (!spans(condition, scores)) return false;
    if (condition->constant) return constant_triangle(m, condition, holds, out_offset);
    if (!n || n->kind != NODE_PRIM || prim_info(n->prim)->klass != PRIM_CLASS_COMPARE) return false;
    if (n->prim == PRIM_EQ || n->prim == PRIM_NE) return false;
    Ramp a, b;
    if (!ramp_of(m, n->inputs[0], &a, 0) || !ramp_of(m, n->inputs[1], &b, 0)) return false;
    if (!same_extent(n->inputs[0], condition, a.axis) || !same_extent(n->inputs[1], condition, b.axis)) return false;
    /* To key REL query + offset, where REL is <= or <; the negation of > and >= likewise. */
    bool less = n->prim == PRIM_LT || n->prim == PRIM_LE, strict = n->prim == PRIM_LT || n->prim == PRIM_GT;
    bool keys_first = a.axis == 0 && b.axis == 1;
    if (!keys_first && !(a.axis == 1 && b.axis == 0)) return false;
    if (less != (keys_first == holds)) return false;
    Ramp keys = keys_first ? a : b, queries = keys_first ? b : a;
    DimTable *dims = m->l->dims;
    *out_offset = dim_sub(dims, queries.offset, keys.offset);
    if (strict == holds) *out_offset = dim_sub(dims, *out_offset, dim_const(dims, 1));
    return true;
}

/* --- steps between the scores and the softmax -------------------------------------------------------------- */

/* An input as it was before it was repeated and widened. */
static Value *narrowest(Value *v) {
    for (;;) {
        bool widened = made_by(v, PRIM_CAST) && v->dtype == DT_F32 && narrow_float(v->producer->inputs[0]->dtype);
        if (!made_by(v, PRIM_EXPAND) && !widened) return v;
        v = v->producer->inputs[0];
    }
}

static bool readable(const Value *v) {
    return v->rank <= ATTENTION_RANK && (device_float(v->dtype) || v->dtype == DT_BOOL);
}

/* A reshape that only adds or drops leading axes of size 1. */
static bool adds_leading_units(const Node *n) {
    const Value *x = n->inputs[0], *y = n->outputs[0];
    for (int i = 1; i <= x->rank || i <= y->rank; i++) {
        const Dim *a = i <= x->rank ? x->dims[x->rank - i] : NULL, *b = i <= y->rank ? y->dims[y->rank - i] : NULL;
        if (a != b && !((!a || is_unit(a)) && (!b || is_unit(b)))) return false;
    }
    return true;
}

/* x where the condition is `holds`, else hidden. Each part of a condition is a step of its own, so that no more of them can
 * be left to do than there may be steps. */
static bool push_condition(Match *m, Value *condition, bool holds, float hidden, const Value *scores) {
    struct {
        Value *condition;
        bool holds;
    } left[ATTENTION_STEPS];
    int count = 0;
    for (;;) {
        const Node *n = condition->producer;
        const Dim *offset;
        if (made_by(condition, PRIM_NOT) || made_by(condition, PRIM_EXPAND) ||
            (made_by(condition, PRIM_RESHAPE) && adds_leading_units(n))) {
            holds ^= n->prim == PRIM_NOT;
            condition = n->inputs[0];
            continue;
        }
        if (made_by(condition, holds ? PRIM_AND : PRIM_OR)) {
            if (count == ATTENTION_STEPS) return false;
            left[count].condition = n->inputs[1];
            left[count++].holds = holds;
            condition = n->inputs[0];
            continue;
        }
        if (condition->constant && all_are(condition, holds)) {
            /* hides nothing */
        } else if (!m->offset && causal(m, condition, holds, scores, &offset)) {
            m->offset = offset;
            if (!push(m, (Step){.kind = SCORE_CAUSAL, .alpha = hidden, .dtype = scores->dtype})) return false;
        } else if (!readable(condition) ||
                   !push(m, (Step){.kind = holds ? SCORE_KEEP : SCORE_HIDE, .alpha = hidden, .input = condition})) {
            return false;
        }
        if (!count--) return true;
        condition = left[count].condition;
        holds = left[count].holds;
    }
}

/* The one number of a constant besides `one`; false where there are several or none. */
static bool other_number(const Value *v, double one, float *out_number) {
    const Tensor *t = v->constant;
    bool found = false;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        double x = dtype_load_double(v->dtype, t->data, i);
        if (x == one) continue;
        if (isnan(x) || (found && (float)x != *out_number)) return false;
        *out_number = (float)x;
        found = true;
    }
    return found;
}

/* x + hidden except where the condition is `holds`, which depends on the places of query and key alone. */
static bool push_causal_alone(Match *m, Value *condition, bool holds, float hidden, const Value *scores) {
    Match before = *m;
    Step *step = &m->steps[m->step_count];
    if (push_condition(m, condition, holds, hidden, scores) && m->step_count == before.step_count + 1 &&
        step->kind == SCORE_CAUSAL) {
        step->kind = SCORE_CAUSAL_ADD;
        return true;
    }
    *m = before;
    return false;
}

/* x + bias. A bias that is 0 or -inf by a condition is one. */
static bool push_bias(Match *m, Value *bias, bool hiding, const Value *scores) {
    const Dim *offset;
    const Node *n = bias->producer;
    if (splat_is(bias, 0)) return true;
    if (made_by(bias, PRIM_WHERE)) {
        bool holds = splat_is(n->inputs[1], 0);
        const Value *hidden = n->inputs[holds ? 2 : 1];
        double number;
        if (splat_is(n->inputs[holds ? 1 : 2], 0) && splat(hidden, &number)) {
            if (number == -INFINITY) return push_condition(m, n->inputs[0], holds, -INFINITY, scores);
            if (push_causal_alone(m, n->inputs[0], holds, (float)number, scores)) return true;
        }
    }
    float hidden;
    if (bias->constant && !m->offset && spans(bias, scores) && dtype_is_float(bias->dtype) &&
        constant_triangle(m, bias, 0, &offset) && other_number(bias, 0, &hidden)) {
        m->offset = offset;
        ScoreStep kind = hidden == -INFINITY ? SCORE_CAUSAL : SCORE_CAUSAL_ADD;
        return push(m, (Step){.kind = kind, .alpha = hidden, .dtype = scores->dtype});
    }
    Value *input = narrowest(bias);
    return readable(input) && input->dtype != DT_BOOL &&
           push(m, (Step){.kind = hiding ? SCORE_ADD_HIDING : SCORE_ADD, .input = input});
}

static bool match_chain(Match *m, Value *x);

/* Tries x as the way to the scores; what failed leaves no trace. */
static bool try_chain(Match *m, Value *x) {
    Match before = *m;
    if (match_chain(m, x)) return true;
    *m = before;
    return false;
}

/* hiding: the operand whose -inf hides whatever is added to it; NULL: neither. */
static bool match_sum(Match *m, Node *n, const Value *hiding) {
    for (int i = 0; i < 2; i++) {
        Match before = *m;
        if (hiding && n->inputs[1 - i] != hiding) continue;
        if (push_bias(m, n->inputs[1 - i], hiding != NULL, n->outputs[0]) && try_chain(m, n->inputs[i])) return true;
        *m = before;
    }
    return false;
}

/* The bias for which the condition is bias != -inf, where x is the sum with it; NULL when it is something else. */
static const Value *hiding_bias(const Value *condition, const Value *x) {
    const Node *n = condition->producer;
    if (!made_by(condition, PRIM_NE) || !made_by(x, PRIM_ADD) || !splat_is(n->inputs[1], -INFINITY)) return NULL;
    return n->inputs[0] == x->producer->inputs[0] || n->inputs[0] == x->producer->inputs[1] ? n->inputs[0] : NULL;
}

/* The same for one part of and(rest, part). */
static const Value *hiding_part(const Value *condition, const Value *x, Value **out_rest) {
    const Value *bias = hiding_bias(condition, x);
    *out_rest = NULL;
    for (int i = 0; !bias && i < 2 && made_by(condition, PRIM_AND); i++) {
        bias = hiding_bias(condition->producer->inputs[i], x);
        *out_rest = condition->producer->inputs[1 - i];
    }
    return bias;
}

static bool match_where(Match *m, Node *n) {
    for (int i = 1; i <= 2; i++) {
        double hidden;
        Value *x = n->inputs[i], *condition = n->inputs[0], *rest;
        if (!splat(n->inputs[3 - i], &hidden)) continue;
        const Value *bias = i == 1 && hidden == -INFINITY ? hiding_part(condition, x, &rest) : NULL;
        if (bias) {
            Match before = *m;
            if ((!rest || push_condition(m, rest, true, -INFINITY, n->outputs[0])) && take(m, x->producer) &&
                match_sum(m, x->producer, bias))
                return true;
            *m = before;
        }
        return push_condition(m, condition, i == 1, (float)hidden, n->outputs[0]) && match_chain(m, x);
    }
    return false;
}

/* Reshapes stand around the steps only: from the scores' form to that of the steps and back. */
static bool match_reshape(Match *m, Node *n) {
    const Value *y = n->outputs[0], *x = n->inputs[0];
    if (m->forms == MAX_FORMS || y->rank < 3) return false;
    if (m->forms == 0) {
        m->dims = (const Dim *const *)x->dims;
        m->rank = x->rank;
    }
    for (int i = 0; m->forms == 1 && i < m->rank; i++)
        if (y->rank != m->rank || y->dims[i] != m->dims[i]) return false;
    m->forms++;
    return match_chain(m, n->inputs[0]);
}

/* A run-time expand: sizes that agree or are 1, as in the product that follows. Keys are not repeated by the anchor: that
 * they are not here follows from the values, which are to be as many (shapes_fit). */
static bool match_expand(Match *m, Node *n) {
    const Value *x = n->inputs[0], *y = n->outputs[0];
    for (int i = 0; i < x->rank; i++) {
        bool last = i == x->rank - 1, is_size = dim_is_const(y->dims[i], NULL);
        if (x->dims[i] == y->dims[i]) continue;
        if (is_unit(x->dims[i]) || known_different(x->dims[i], y->dims[i]) || (is_size && m->forms)) return false;
        m->keys_follow |= last && is_size;
    }
    return match_chain(m, n->inputs[0]);
}

static bool match_clip(Match *m, Node *n) {
    double bound;
    Value *x = beside_splat(n, &bound);
    bool low = n->prim == PRIM_MAX;
    return x &&
           push(m, (Step){.kind = SCORE_CLIP,
                          .alpha = low ? (float)bound : -INFINITY,
                          .beta = low ? INFINITY : (float)bound}) &&
           match_chain(m, x);
}

static bool match_factor(Match *m, Node *n) {
    double c;
    Value *x = n->prim == PRIM_DIV && splat(n->inputs[1], &c) ? n->inputs[0]
               : n->prim == PRIM_MUL                          ? beside_splat(n, &c)
                                                              : NULL;
    return x && push(m, (Step){.kind = SCORE_SCALE, .alpha = (float)(n->prim == PRIM_DIV ? 1 / c : c)}) &&
           match_chain(m, x);
}

/* From x, what the softmax or a step reads, back to the first GEMM. */
static bool match_chain(Match *m, Value *x) {
    Node *n = x->producer;
    if (!n || !device_float(x->dtype) || !take(m, n)) return false;
    if (is_gemm(n)) {
        m->scores = n;
        return !n->subgraph_count && !node_attr(n, "perm_out") && n != m->product;
    }
    if (n->kind != NODE_PRIM) return false;
    switch (n->prim) {
    case PRIM_CAST: return match_chain(m, n->inputs[0]);
    case PRIM_EXPAND: return match_expand(m, n);
    case PRIM_RESHAPE: return match_reshape(m, n);
    case PRIM_MUL:
    case PRIM_DIV: return match_factor(m, n);
    case PRIM_TANH: return push(m, (Step){.kind = SCORE_TANH}) && match_chain(m, n->inputs[0]);
    case PRIM_MIN:
    case PRIM_MAX: return match_clip(m, n);
    case PRIM_ADD: return match_sum(m, n, NULL);
    case PRIM_WHERE: return match_where(m, n);
    default: return false;
    }
}

/* --- the softmax ------------------------------------------------------------------------------------------- */

/* The largest number of a row that has none but -inf, or less, is replaced by a finite one. */
static bool guarded_top(Match *m, Value *v, Value **out_top) {
    Node *n = v->producer;
    double c;
    *out_top = NULL;
    if (made_by(v, PRIM_MAX) && (*out_top = beside_splat(n, &c)) && c <= -1e30 && c >= -FLT_MAX) return take(m, n);
    if (!made_by(v, PRIM_WHERE) || !made_by(n->inputs[0], PRIM_EQ) || !splat(n->inputs[1], &c)) return false;
    Node *test = n->inputs[0]->producer;
    *out_top = n->inputs[2];
    return isfinite(c) && test->inputs[0] == *out_top && splat_is(test->inputs[1], -INFINITY) && take(m, n) &&
           take(m, test);
}

/* A sum that is at least 1 when anything is seen stays what it is, and is not 0 otherwise. An addend up to half the
 * distance to the next f32 is lost. */
static bool guarded_sum(Match *m, Value *v, Value **out_sum) {
    Node *n = v->producer;
    double c;
    *out_sum = NULL;
    if (made_by(v, PRIM_MAX) && (*out_sum = beside_splat(n, &c)) && c > 0 && c <= 1) return take(m, n);
    if (made_by(v, PRIM_ADD) && (*out_sum = beside_splat(n, &c)) && c > 0 && c <= 0x1p-24) return take(m, n);
    if (!made_by(v, PRIM_WHERE) || !made_by(n->inputs[0], PRIM_EQ) || !splat(n->inputs[1], &c)) return false;
    Node *test = n->inputs[0]->producer;
    *out_sum = n->inputs[2];
    return c != 0 && test->inputs[0] == *out_sum && splat_is(test->inputs[1], 0) && take(m, n) && take(m, test);
}

/* Where *sum is the sum of e^(x - *top) and e^(sink - *top), *top being the greater of the greatest x and the sink: the sum and the greatest x
 * alone. Else they stay. False: it does not go. */
static bool match_sink(Match *m, Value **sum, Value **top) {
    if (!m->sinks || m->step_count || !made_by(*sum, PRIM_ADD) || !made_by(*top, PRIM_MAX)) return true;
    Node *sums = (*sum)->producer, *tops = (*top)->producer;
    for (int i = 0; i < 4; i++) {
        Value *term = sums->inputs[i & 1], *sink = tops->inputs[i >> 1];
        Node *distance = made_by(term, PRIM_EXP) ? term->producer->inputs[0]->producer : NULL;
        if (!distance || distance->kind != NODE_PRIM || distance->prim != PRIM_SUB) continue;
        if (distance->inputs[0] != sink || distance->inputs[1] != *top) continue;
        Value *input = narrowest(sink);
        bool one_a_row = !input->rank || is_unit(input->dims[input->rank - 1]);
        m->empty = EMPTY_ZERO; /* a row that sees nothing has no share of what the sink leaves */
        *sum = sums->inputs[1 - (i & 1)];
        *top = tops->inputs[1 - (i >> 1)];
        return one_a_row && readable(input) && input->dtype != DT_BOOL &&
               push(m, (Step){.kind = SCORE_SINK, .input = input}) && take(m, sums) && take(m, tops) &&
               take(m, distance) && take(m, term->producer);
    }
    return true;
}

static bool match_softmax(Match *m, Value *probabilities) {
    Node *n = probabilities->producer;
    if (!made_by(probabilities, PRIM_DIV) && !made_by(probabilities, PRIM_MUL)) return false;
    Value *e = n->inputs[0], *sum = n->inputs[1], *under;
    if (!take(m, n)) return false;
    if (n->prim == PRIM_MUL) {
        if (made_by(e, PRIM_RECIPROCAL)) e = n->inputs[1], sum = n->inputs[0];
        if (!made_by(sum, PRIM_RECIPROCAL) || !take(m, sum->producer)) return false;
        sum = sum->producer->inputs[0];
    }
    bool safe_sum = guarded_sum(m, sum, &under);
    if (safe_sum) sum = under;
    if (!made_by(e, PRIM_EXP) || !take(m, e->producer)) return false;
    Value *distance = e->producer->inputs[0];
    if (!made_by(distance, PRIM_SUB) || !take(m, distance->producer)) return false;
    Value *x = distance->producer->inputs[0], *top = distance->producer->inputs[1];
    if (!match_sink(m, &sum, &top)) return false;
    if (!made_by(sum, PRIM_REDUCE_SUM) || !last_axis_alone(sum->producer) || sum->producer->inputs[0] != e ||
        !take(m, sum->producer))
        return false;
    bool safe_top = guarded_top(m, top, &under);
    if (safe_top) top = under;
    if (!made_by(top, PRIM_REDUCE_MAX) || !last_axis_alone(top->producer) || top->producer->inputs[0] != x)
        return false;
    if (x->dtype != DT_F32 && !narrow_float(x->dtype)) return false;
    if (safe_sum && safe_top && m->empty == EMPTY_NAN) m->empty = EMPTY_ZERO;
    m->top = x;
    return take(m, top->producer) && match_chain(m, x);
}

/* reduce_max(bias) == -inf for a bias that the steps add: rows in which nothing is seen. */
static bool tests_empty_rows(const Value *condition, const Value **out_bias) {
    const Node *n = condition->producer;
    if (!made_by(condition, PRIM_EQ) || !splat_is(n->inputs[1], -INFINITY)) return false;
    if (!made_by(n->inputs[0], PRIM_REDUCE_MAX) || !last_axis_alone(n->inputs[0]->producer)) return false;
    *out_bias = narrowest(n->inputs[0]->producer->inputs[0]);
    return true;
}

static bool adds(const Match *m, const Value *bias) {
    for (int i = 0; i < m->step_count; i++)
        if (m->steps[i].kind == SCORE_ADD && m->steps[i].input == bias) return true;
    /* constants and conditions may have become other steps */
    for (int i = 0; i < m->inside_count; i++)
        for (int k = 0; m->inside[i]->kind == NODE_PRIM && m->inside[i]->prim == PRIM_ADD && k < 2; k++)
            if (narrowest(m->inside[i]->inputs[k]) == bias) return true;
    return false;
}

/* where(test, 0, p): the rows that the safeguard makes zero. *out_bias: what its test reads, to be one of the steps'.
 */
static bool match_zeroed(Match *m, Node *n, const Value **out_bias) {
    Value *test = n->inputs[0];
    if (m->empty != EMPTY_NAN || !splat_is(n->inputs[1], 0) || !take(m, n)) return false;
    if (made_by(test, PRIM_ISNAN) && test->producer->inputs[0] == n->inputs[2]) {
        m->empty = EMPTY_NAN_ZERO;
        return take(m, test->producer);
    }
    m->empty = EMPTY_ZERO;
    return tests_empty_rows(test, out_bias);
}

static bool whole_is(const Value *v, int64_t *out_number) {
    const Tensor *t = v->constant;
    if (!t || tensor_count(t) != 1 || dtype_is_float(t->dtype) || t->dtype == DT_STRING) return false;
    *out_number = dtype_load_int(t->dtype, t->data, 0);
    return true;
}

/* where(word >> 8 >= limit, p * kept, 0), what a Dropout becomes. */
static bool match_drop(Match *m, Node *n, Value **out_p) {
    Value *keeps = n->inputs[0], *scaled = n->inputs[1];
    int64_t bits, limit;
    double kept;
    if (!m->drops || m->step_count || !splat_is(n->inputs[2], 0) || !made_by(keeps, PRIM_GE)) return false;
    Value *top = keeps->producer->inputs[0], *word;
    if (!made_by(top, PRIM_SHR) || !whole_is(top->producer->inputs[1], &bits) || bits != 8) return false;
    word = top->producer->inputs[0];
    if (!made_by(word, PRIM_PHILOX) || !attr_int(word->producer, "halves", 0) ||
        !whole_is(keeps->producer->inputs[1], &limit) || !made_by(scaled, PRIM_MUL))
        return false;
    *out_p = beside_splat(scaled->producer, &kept);
    return *out_p && value_same_shape(*out_p, word) && value_same_shape(*out_p, n->outputs[0]) &&
           push(m, (Step){SCORE_DROP, (float)limit, (float)kept, word->producer->inputs[0], 0}) && take(m, n) &&
           take(m, keeps->producer) && take(m, top->producer) && take(m, word->producer) && take(m, scaled->producer);
}

/* From the second GEMM's first operand back: casts, the reshape to the form of the steps, zeros where a row sees
 * nothing, what is dropped, the softmax. */
static bool match_probabilities(Match *m, Value *p) {
    const Value *bias = NULL;
    Value *dropped;
    for (;;) {
        Node *n = p->producer;
        if (made_by(p, PRIM_CAST) && device_float(n->inputs[0]->dtype)) {
            if (!take(m, n)) return false;
            p = n->inputs[0];
        } else if (made_by(p, PRIM_RESHAPE) && m->forms == 0 && p->rank >= 3) {
            if (!take(m, n)) return false;
            p = n->inputs[0];
            m->forms = 1;
            m->dims = (const Dim *const *)p->dims;
            m->rank = p->rank;
        } else if (made_by(p, PRIM_WHERE) && match_drop(m, n, &dropped)) {
            p = dropped;
        } else if (made_by(p, PRIM_WHERE)) {
            if (!match_zeroed(m, n, &bias)) return false;
            p = n->inputs[2];
        } else {
            return match_softmax(m, p) && (!bias || adds(m, bias));
        }
    }
}

/* --- operands ---------------------------------------------------------------------------------------------- */

static Operand operand_of(const Node *gemm, int index, const char *name) {
    Operand o = {.value = gemm->inputs[index], .part = {0, 0}};
    int count;
    const int64_t *perm = attr_ints(gemm, name, &count);
    for (int i = 0; i < o.value->rank; i++) o.perm[i] = perm ? perm[i] : i;
    return o;
}

static const Dim *operand_dim(const Match *m, const Operand *o, int axis) {
    if (o->part[1] && axis == o->value->rank - 3) return dim_const(m->l->dims, o->part[1]);
    return o->value->dims[o->perm[axis]];
}

static void look_through_permute(Operand *o) {
    int count;
    const int64_t *inner = attr_ints(o->value->producer, "perm", &count);
    for (int i = 0; i < o->value->rank; i++) o->perm[i] = inner[o->perm[i]];
    o->value = o->value->producer->inputs[0];
}

/* Leading axes that are repeated from size 1 by the model itself: the anchor does so anyway. */
static bool look_through_expand(const Match *m, Operand *o) {
    const Value *x = o->value->producer->inputs[0];
    for (int i = 0; i < x->rank; i++) {
        const Dim *own = x->dims[o->perm[i]];
        if (own != operand_dim(m, o, i) && (i >= x->rank - 2 || !is_unit(own))) return false;
    }
    o->value = o->value->producer->inputs[0];
    return true;
}

static bool scaled(const Value *v, Value **out_x, double *out_factor) {
    const Node *n = v->producer;
    if (!made_by(v, PRIM_MUL) && !made_by(v, PRIM_DIV)) return false;
    double c;
    Value *x = n->prim == PRIM_MUL ? beside_splat(n, &c) : splat(n->inputs[1], &c) ? n->inputs[0] : NULL;
    if (!x || !value_same_shape(x, v)) return false;
    *out_x = x;
    *out_factor = n->prim == PRIM_MUL ? c : 1 / c;
    return true;
}

/* Keys of several heads: reshape(permute(expand(x))), where the expand repeats each head and the reshape joins the
 * copies with the heads, heads outside. The operand becomes x without the axis that was repeated. */
static bool look_through_groups(Match *m, Operand *o) {
    const Value *v = o->value, *y = v->producer->inputs[0];
    int rank = v->rank, joined = 0, from[MAX_RANK + 1], count;
    if (rank < 3 || y->rank != rank + 1) return false;
    while (joined < rank && v->dims[joined] == y->dims[joined]) joined++;
    if (joined == rank || joined != o->perm[rank - 3]) return false;
    if (dim_mul(m->l->dims, y->dims[joined], y->dims[joined + 1]) != v->dims[joined]) return false;
    for (int i = joined + 1; i < rank; i++)
        if (v->dims[i] != y->dims[i + 1]) return false;
    for (int i = 0; i <= rank; i++) from[i] = i;
    if (made_by(y, PRIM_PERMUTE)) {
        const int64_t *perm = attr_ints(y->producer, "perm", &count);
        for (int i = 0; i <= rank; i++) from[i] = (int)perm[i];
        y = y->producer->inputs[0];
    }
    if (!made_by(y, PRIM_EXPAND)) return false;
    Value *x = y->producer->inputs[0];
    int copies = from[joined + 1];
    for (int i = 0; i <= rank; i++)
        if (i == copies ? !is_unit(x->dims[i]) : x->dims[i] != y->dims[i]) return false;
    const Dim *dims[MAX_RANK];
    for (int i = 0, to = 0; i <= rank; i++)
        if (i != copies) dims[to++] = x->dims[i];
    for (int i = 0; i < rank; i++) {
        int axis = from[o->perm[i] <= joined ? o->perm[i] : o->perm[i] + 1];
        o->perm[i] = axis - (axis > copies);
    }
    o->value = reshape(m->l, x, dims, rank);
    return o->value != NULL;
}

/* reshape(permute(reshape(x))), where the permute leaves the first axis outside, which the last reshape makes two, as
 * exporters turn the keys of all heads. The operand becomes x, with two axes from the beginning. */
static bool look_through_joined(Match *m, Operand *o) {
    const Value *v = o->value, *y = v->producer->inputs[0];
    int rank = v->rank, count;
    if (!made_by(y, PRIM_PERMUTE) || y->rank != rank - 1 || !made_by(y->producer->inputs[0], PRIM_RESHAPE))
        return false;
    const Value *z = y->producer->inputs[0];
    const int64_t *perm = attr_ints(y->producer, "perm", &count);
    if (perm[0] != 0 || dim_mul(m->l->dims, v->dims[0], v->dims[1]) != y->dims[0]) return false;
    const Dim *dims[MAX_RANK] = {v->dims[0], v->dims[1]};
    for (int i = 2; i < rank; i++) {
        if (v->dims[i] != y->dims[i - 1]) return false;
        dims[i] = z->dims[i - 1];
    }
    for (int i = 0; i < rank; i++)
        if (o->perm[i] >= 2) o->perm[i] = perm[o->perm[i] - 1] + 1;
    o->value = reshape(m->l, z->producer->inputs[0], dims, rank);
    return o->value != NULL;
}

/* reshape(permute(x)), where the reshape drops an axis of size 1. */
static bool look_through_dropped(Match *m, Operand *o) {
    const Value *v = o->value, *y = v->producer->inputs[0];
    int rank = v->rank, unit = 0, count;
    if (!made_by(y, PRIM_PERMUTE) || y->rank != rank + 1) return false;
    while (unit < rank && v->dims[unit] == y->dims[unit]) unit++;
    if (!is_unit(y->dims[unit])) return false;
    for (int i = unit; i < rank; i++)
        if (v->dims[i] != y->dims[i + 1]) return false;
    const int64_t *perm = attr_ints(y->producer, "perm", &count);
    Value *x = y->producer->inputs[0];
    int64_t dropped = perm[unit];
    const Dim *dims[MAX_RANK];
    for (int i = 0; i <= rank; i++)
        if (i != dropped) dims[i - (i > dropped)] = x->dims[i];
    for (int i = 0; i < rank; i++) {
        int64_t axis = perm[o->perm[i] + (o->perm[i] >= unit)];
        o->perm[i] = axis - (axis > dropped);
    }
    o->value = reshape(m->l, x, dims, rank);
    return o->value != NULL;
}

/* Elements of the axes from `from` on, where they are known and there are any. */
static bool known_product(const Match *m, const Value *v, int from, int64_t *out_count) {
    const Dim *count = dim_product(m->l->dims, (const Dim *const *)v->dims + from, v->rank - from);
    return dim_is_const(count, out_count) && *out_count > 0;
}

/* Whether an anchor gives it, perhaps with an epilogue and in another shape: all of it is stored whoever reads a part. */
static bool is_stored_whole(const Value *x) {
    for (int depth = 0; depth < 8 && x->producer; depth++) {
        const Node *n = x->producer;
        if (n->kind == NODE_ANCHOR) return true;
        if (n->kind != NODE_PRIM || (n->prim != PRIM_RESHAPE && !prim_is_elementwise(n->prim))) return false;
        x = n->inputs[0];
    }
    return false;
}

/* reshape(slice(x)), some of the heads of a product that gives queries, keys and values at once. The operand becomes all
 * heads of x, of which the anchor reads its own. */
static bool look_through_part(Match *m, Operand *o) {
    const Value *v = o->value, *s = v->producer->inputs[0];
    int axis, rank = v->rank;
    int64_t start, inner, outer, row, part, head;
    if (m->trained || rank < 3 || !made_by(s, PRIM_SLICE) || !is_range(s->producer, &axis, &start)) return false;
    Value *x = s->producer->inputs[0];
    int heads = (int)o->perm[rank - 3];
    if (!known_product(m, x, axis, &row) || !known_product(m, s, axis, &part) ||
        !known_product(m, s, axis + 1, &inner) || !known_product(m, v, heads, &outer) ||
        !known_product(m, v, heads + 1, &head) || !is_stored_whole(x))
        return false;
    if (part != outer || row % head || start * inner % head ||
        dim_product(m->l->dims, (const Dim *const *)s->dims, axis) !=
            dim_product(m->l->dims, (const Dim *const *)v->dims, heads))
        return false;
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = i == heads ? dim_const(m->l->dims, row / head) : v->dims[i];
    o->part[0] = start * inner / head;
    o->part[1] = part / head;
    o->value = reshape(m->l, x, dims, rank);
    return o->value != NULL;
}

static void simplify_operand(Match *m, Operand *o, bool is_value) {
    while (!o->part[1]) {
        Value *x;
        double factor;
        if (made_by(o->value, PRIM_PERMUTE)) {
            look_through_permute(o);
        } else if (!is_value && scaled(o->value, &x, &factor)) {
            m->scale *= factor;
            o->value = x;
        } else if (made_by(o->value, PRIM_EXPAND)) {
            if (!look_through_expand(m, o)) return;
        } else if (!made_by(o->value, PRIM_RESHAPE) || !(look_through_groups(m, o) || look_through_joined(m, o) ||
                                                         look_through_dropped(m, o) || look_through_part(m, o))) {
            return;
        }
    }
}

/* --- forms --------------------------------------------------------------------------------------------------- */

/* What reshapes the GEMM's form [lead..., rows, s_k] into that of the steps. */
typedef struct Regroup {
    enum { NO_REGROUP, ROWS, SPLIT } kind; /* ROWS: heads out of rows; SPLIT: a leading axis becomes two */
    int axis;                              /* the last axis of the GEMM's form that changes */
} Regroup;

static bool regroup_of(const Match *m, const Value *scores, Regroup *r) {
    *r = (Regroup){NO_REGROUP, -1};
    if (!m->forms) return true;
    int rank = scores->rank, axis = 0;
    if (m->forms != 2 || rank < 3 || m->dims[m->rank - 1] != scores->dims[rank - 1]) return false;
    if (m->rank == rank) {
        for (int i = 0; i < rank - 3; i++)
            if (m->dims[i] != scores->dims[i]) return false;
        *r = (Regroup){ROWS, rank - 2};
        return true;
    }
    if (m->rank != rank + 1) return false;
    while (axis < rank && m->dims[axis] == scores->dims[axis]) axis++;
    if (axis > rank - 3 || dim_mul(m->l->dims, m->dims[axis], m->dims[axis + 1]) != scores->dims[axis]) return false;
    for (int i = axis + 1; i < rank; i++)
        if (m->dims[i + 1] != scores->dims[i]) return false;
    *r = (Regroup){SPLIT, axis};
    return true;
}

/* Steps that stand in the GEMM's form mean the same in that of the steps when they do not touch what changes. */
static bool steps_fit(const Match *m, Regroup r, int gemm_rank) {
    for (int i = 0; i < m->step_count; i++) {
        const Step *s = &m->steps[i];
        int same = gemm_rank - 1 - r.axis; /* axes from the end that the forms share */
        if (r.kind == NO_REGROUP || s->form == 1) continue;
        if (score_step_is_causal(s->kind) && same < 2) return false;
        for (int a = same; s->input && a < s->input->rank; a++)
            if (!is_unit(s->input->dims[s->input->rank - 1 - a])) return false;
    }
    return true;
}

/* The operand's leading axis `axis` as two. */
static bool split_operand(Match *m, Operand *o, int axis) {
    int rank = o->value->rank, at = (int)o->perm[axis];
    const Dim *dims[MAX_RANK];
    int64_t perm[MAX_RANK];
    if (o->value->dims[at] != dim_mul(m->l->dims, m->dims[axis], m->dims[axis + 1])) return false;
    for (int i = 0; i < rank; i++) dims[i + (i > at)] = o->value->dims[i];
    dims[at] = m->dims[axis];
    dims[at + 1] = m->dims[axis + 1];
    for (int i = 0; i < rank; i++) perm[i + (i > axis)] = o->perm[i] + (o->perm[i] > at);
    perm[axis + 1] = at + 1;
    memcpy(o->perm, perm, sizeof perm);
    o->value = reshape(m->l, o->value, dims, rank + 1);
    return o->value != NULL;
}

/* q with its heads out of its rows: the value before the reshape that put them there. */
static bool split_rows(Match *m, Operand *q, const Value *scores) {
    while (made_by(q->value, PRIM_MUL) || made_by(q->value, PRIM_DIV)) {
        Value *x;
        double factor;
        if (!scaled(q->value, &x, &factor)) return false;
        m->scale *= factor;
        q->value = x;
    }
    for (int i = 0; i < q->value->rank; i++)
        if (q->perm[i] != i || (i < q->value->rank - 1 && q->value->dims[i] != scores->dims[i])) return false;
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < m->rank - 1; i++) dims[i] = m->dims[i];
    dims[m->rank - 1] = q->value->dims[q->value->rank - 1];
    q->value = reshape(m->l, q->value, dims, m->rank);
    return q->value != NULL;
}

/* --- the whole ------------------------------------------------------------------------------------------------ */

/* The result of the second GEMM has no more rows than the probabilities: values repeat none. */
static bool repeats_no_rows(const Node *product) {
    const Value *p = product->inputs[0], *y = product->outputs[0];
    for (int i = 0; i < y->rank - 1; i++)
        if (y->dims[i] != p->dims[i]) return false;
    return true;
}

/* What the second GEMM gives, behind the reshape that follows. Where that leads elsewhere than to the form of the steps (the permute of one query is a
 * reshape, and two of them are one), the elements have the same order all the same: *out_free. NULL: neither. */
static Value *regrouped_result(const Match *m, bool *out_free) {
    Value *y = m->product->outputs[0];
    const Node *user = value_only_user(y);
    if (node_attr(m->product, "perm_out")) return NULL;
    if (user && user->kind == NODE_PRIM && user->prim == PRIM_RESHAPE) y = user->outputs[0];
    *out_free = y->rank != m->rank;
    for (int i = 0; !*out_free && i < m->rank - 1; i++) *out_free = y->dims[i] != m->dims[i];
    return !*out_free || repeats_no_rows(m->product) ? y : NULL;
}

/* The result in the form of the steps, or of another whose elements follow in the same order, out of any 16-bit casts and permutes that follow. */
static bool find_result(Match *m, Regroup r, bool narrow) {
    Value *y = m->product->outputs[0];
    int count, rank = m->rank;
    m->free_form = false;
    for (int i = 0; i < rank; i++) m->perm_out[i] = i;
    if (r.kind != NO_REGROUP) {
        if (!(y = regrouped_result(m, &m->free_form))) return false;
    } else {
        const int64_t *perm = attr_ints(m->product, "perm_out", &count);
        if (perm) memcpy(m->perm_out, perm, sizeof *perm * (size_t)rank);
    }
    DType dtype = m->q.value->dtype;
    for (Node *user; (user = value_only_user(y)) && user->kind == NODE_PRIM;) {
        if (user->prim == PRIM_CAST && narrow && y->dtype != dtype && user->outputs[0]->dtype == dtype) {
            y = user->outputs[0];
        } else if (user->prim == PRIM_PERMUTE && !m->free_form) {
            const int64_t *after = attr_ints(user, "perm", &count);
            int64_t perm[MAX_RANK];
            if (after[rank - 1] != rank - 1) break;
            for (int i = 0; i < rank; i++) perm[i] = m->perm_out[after[i]];
            memcpy(m->perm_out, perm, sizeof perm);
            y = user->outputs[0];
        } else {
            break;
        }
    }
    m->result = y;
    return y->dtype == dtype;
}

/* Casts of all three from one 16-bit type are left out when the result goes back to it. */
static bool drop_casts(Match *m, Regroup r) {
    Operand *all[] = {&m->q, &m->k, &m->v};
    Operand before[3];
    double scale = m->scale;
    bool narrow = true;
    for (int i = 0; i < 3; i++) {
        before[i] = *all[i];
        narrow &= made_by(all[i]->value, PRIM_CAST) && narrow_float(all[i]->value->producer->inputs[0]->dtype);
    }
    if (narrow) {
        for (int i = 0; i < 3; i++) {
            all[i]->value = all[i]->value->producer->inputs[0];
            simplify_operand(m, all[i], i == 2);
        }
        if (m->q.value->dtype == m->k.value->dtype && find_result(m, r, true)) return true;
        for (int i = 0; i < 3; i++) *all[i] = before[i];
        m->scale = scale;
    }
    return find_result(m, r, false);
}

static bool leading_fits(const Match *m, const Operand *o, int axis, bool shared) {
    const Dim *own = operand_dim(m, o, axis), *all = m->dims[axis];
    int64_t few, many;
    if (own == all || is_unit(own)) return true;
    if (shared && axis == m->rank - 3 && dim_is_const(own, &few) && dim_is_const(all, &many))
        return few > 0 && many % few == 0;
    return !known_different(own, all) && !(shared && axis == m->rank - 3);
}

static bool shapes_fit(const Match *m) {
    int64_t size;
    const Operand *all[] = {&m->q, &m->k, &m->v};
    if (m->rank < 2 || m->rank > ATTENTION_RANK) return false;
    for (int i = 0; i < 3; i++) {
        if (all[i]->value->rank != m->rank || all[i]->value->dtype != m->q.value->dtype) return false;
        for (int a = 0; a < m->rank - 2; a++)
            if (!leading_fits(m, all[i], a, i > 0)) return false;
        if (!dim_is_const(operand_dim(m, all[i], m->rank - 1), &size) || size < 1 || size > ATTENTION_HEAD)
            return false;
    }
    for (int i = 0; i < m->step_count; i++)
        if (m->steps[i].input && m->steps[i].input->rank > m->rank) return false;
    const Dim *keys = operand_dim(m, &m->k, m->rank - 2);
    if (known_different(keys, operand_dim(m, &m->v, m->rank - 2)) || known_different(keys, m->dims[m->rank - 1]))
        return false;
    if (m->keys_follow && keys != operand_dim(m, &m->v, m->rank - 2)) return false;
    if (!leading_fits(m, &m->q, m->rank - 2, false)) return false;
    return device_float(m->q.value->dtype) && operand_dim(m, &m->q, m->rank - 1) == operand_dim(m, &m->k, m->rank - 1);
}

/* No queries, keys or values are repeated but for heads that share both. */
static bool repeats_nothing(const Match *m) {
    const int heads = m->rank - 3, queries = m->rank - 2;
    for (int i = 0; i <= queries; i++) {
        bool shared = i == heads && operand_dim(m, &m->k, i) == operand_dim(m, &m->v, i);
        if (operand_dim(m, &m->q, i) != m->dims[i]) return false;
        if (i == queries
                ? operand_dim(m, &m->k, i) != operand_dim(m, &m->v, i)
                : !shared && (operand_dim(m, &m->k, i) != m->dims[i] || operand_dim(m, &m->v, i) != m->dims[i]))
            return false;
    }
    return true;
}

/* Probabilities that are dropped are numbered by their own places: all axes before the last are those of the queries. */
static bool numbers_places(const Match *m) {
    const int heads = m->rank - 3, queries = m->rank - 2;
    for (int i = 0; i <= queries; i++) {
        if (operand_dim(m, &m->q, i) != m->dims[i]) return false;
        for (int k = 0; k < 2 && i < heads; k++) {
            const Dim *own = operand_dim(m, k ? &m->v : &m->k, i);
            if (own != m->dims[i] && !is_unit(own)) return false;
        }
    }
    return true;
}

/* "attention_backward" gives masks no gradient. */
static bool masks_stay(const Match *m) {
    for (int i = 0; i < m->step_count; i++)
        if (m->steps[i].input && map_get_id(m->trained, MAP_POINTER_KEY(m->steps[i].input))) return false;
    return true;
}

static bool within_fence(const Match *m) {
    bool same = m->scores->fence == m->product->fence;
    for (int i = 0; i < m->inside_count; i++) same &= m->inside[i]->fence == m->product->fence;
    return same;
}

/* Nothing else reads what is computed on the way. */
static bool is_closed(const Match *m, uint64_t mark) {
    if (!within_fence(m)) return false;
    m->product->tag = mark;
    for (int i = 0; i < m->inside_count; i++) m->inside[i]->tag = mark;
    for (int i = 0; i < m->inside_count; i++) {
        const Value *v = m->inside[i]->outputs[0];
        if (value_is_output(v)) return false;
        for (int u = 0; u < v->uses.count; u++)
            if (v->uses.items[u].node->tag != mark) return false;
    }
    return true;
}

static void set_perm(Node *node, const char *name, const int64_t *perm, int rank) {
    for (int i = 0; i < rank; i++)
        if (perm[i] != i) {
            node_set_ints(node, name, perm, rank);
            return;
        }
}

static void set_part(Node *node, const char *name, const Operand *o) {
    if (o->part[1]) node_set_ints(node, name, o->part, 2);
}

static void set_steps(Node *node, const Match *m, Arena *arena) {
    int count = m->step_count;
    if (!count) return;
    int64_t *kinds = ARENA_ARRAY(arena, int64_t, count);
    float *alpha = ARENA_ARRAY(arena, float, count), *beta = ARENA_ARRAY(arena, float, count);
    for (int i = 0; i < count; i++) {
        const Step *s = &m->steps[count - 1 - i];
        kinds[i] = s->kind;
        alpha[i] = s->alpha;
        beta[i] = s->beta;
        if (s->input) node_append_input(node, s->input);
    }
    node_set_ints(node, "steps", kinds, count);
    node_set_attr(node, (Attr){.name = "steps_alpha", .kind = ATTR_FLOATS, .count = count, .floats = alpha});
    node_set_attr(node, (Attr){.name = "steps_beta", .kind = ATTR_FLOATS, .count = count, .floats = beta});
    if (m->offset) node_set_dims(node, "offset", &m->offset, 1);
}

static void build(Graph *graph, Match *m) {
    Value *inputs[] = {m->q.value, m->k.value, m->v.value}, *old = m->result;
    Node *node = graph_add_node(graph, m->product, NODE_ANCHOR, "attention", inputs, 3);
    set_perm(node, "perm_q", m->q.perm, m->rank);
    set_perm(node, "perm_k", m->k.perm, m->rank);
    set_perm(node, "perm_v", m->v.perm, m->rank);
    set_perm(node, "perm_out", m->perm_out, m->rank);
    set_part(node, "part_q", &m->q);
    set_part(node, "part_k", &m->k);
    set_part(node, "part_v", &m->v);
    if (m->scale != 1) node_set_float(node, "scale", m->scale);
    if (m->empty != EMPTY_NAN) node_set_int(node, "empty", m->empty);
    set_steps(node, m, graph->arena);
    node_follow_rules(node, m->product);
    node_add_origin(node, m->scores->origin);
    for (int i = m->inside_count - 1; i >= 0; i--) node_add_origin(node, m->inside[i]->origin);
    node_add_origin(node, m->product->origin);
    const Dim *dims[MAX_RANK];
    const int rank = m->free_form ? m->rank : old->rank;
    for (int i = 0; i < rank; i++) dims[i] = m->free_form ? m->dims[i] : old->dims[i];
    if (m->free_form) dims[rank - 1] = operand_dim(m, &m->v, rank - 1);
    Value *y = node_add_output(node, NULL, old->dtype, rank, dims);
    Value *formed = reshape(m->l, y, (const Dim *const *)old->dims, old->rank);
    if (formed) value_replace(graph, old, formed);
}

/* A factor on the bare scores is the scale. */
static void fold_scale(Match *m) {
    m->scale *= attr_float(m->scores, "alpha", 1);
    while (m->step_count && m->steps[m->step_count - 1].kind == SCORE_SCALE)
        m->scale *= (double)m->steps[--m->step_count].alpha;
}

/* Whether a score has no weight beside another when this is added to it or stands for it: the lowest number of a model in
 * float16, whose scores are no larger, or one that no score of float32 comes near. */
static bool hides_by_size(const Step *step) { return step->alpha <= (step->dtype == DT_F16 ? -65504.0F : -1e30F); }

/* A causal step that hides by a number hides for good where every row sees its first key: then what is hidden has no weight
 * either way, and its keys need not be read. */
static void hide_for_good(Match *m) {
    int at = 0;
    while (at < m->step_count && !score_step_is_causal(m->steps[at].kind)) {
        if (m->steps[at].kind != SCORE_SCALE || m->steps[at].alpha <= 0) return;
        at++;
    }
    if (at == m->step_count || !hides_by_size(&m->steps[at]) || !dim_is_nonnegative(m->offset)) return;
    for (int i = 0; i < m->step_count; i++)
        if (m->steps[i].input) return;
    m->steps[at].kind = SCORE_CAUSAL;
    m->steps[at].alpha = -INFINITY;
}

static bool match(Match *m, Node *product, uint64_t mark) {
    Regroup r;
    m->product = product;
    m->scale = 1;
    if (product->subgraph_count || attr_float(product, "alpha", 1) != 1 || node_attr(product, "perm_a")) return false;
    if (!device_float(product->outputs[0]->dtype) || !match_probabilities(m, product->inputs[0])) return false;
    const Value *scores = m->scores->outputs[0];
    if (!m->forms) {
        m->dims = (const Dim *const *)m->top->dims;
        m->rank = m->top->rank;
    }
    if (!regroup_of(m, scores, &r) || !steps_fit(m, r, scores->rank) || !is_closed(m, mark)) return false;
    if (m->scores->inputs[0]->rank != scores->rank || m->scores->inputs[1]->rank != scores->rank ||
        product->inputs[1]->rank != scores->rank || product->inputs[0]->rank != scores->rank)
        return false;
    fold_scale(m);
    hide_for_good(m);
    m->q = operand_of(m->scores, 0, "perm_a");
    m->k = operand_of(m->scores, 1, "perm_b");
    m->v = operand_of(product, 1, "perm_b");
    int rank = scores->rank;
    if (r.kind == NO_REGROUP && m->rank != rank) return false;
    int64_t swap = m->k.perm[rank - 1];
    m->k.perm[rank - 1] = m->k.perm[rank - 2];
    m->k.perm[rank - 2] = swap;
    if (r.kind == ROWS && !split_rows(m, &m->q, scores)) return false;
    if (r.kind == SPLIT &&
        (!split_operand(m, &m->q, r.axis) || !split_operand(m, &m->k, r.axis) || !split_operand(m, &m->v, r.axis)))
        return false;
    simplify_operand(m, &m->q, false);
    simplify_operand(m, &m->k, false);
    simplify_operand(m, &m->v, true);
    bool dropped = m->step_count && m->steps[0].kind == SCORE_DROP;
    return drop_casts(m, r) && shapes_fit(m) && (!dropped || numbers_places(m)) &&
           (!m->trained || (repeats_nothing(m) && masks_stay(m)));
}

static Status fuse_all(Graph *graph, const Policy *policy, const Map *trained) {
    uint64_t mark = 0;
    FOR_EACH_NODE(node, graph) node->tag = 0;
    for (Node *node = graph->first; node; node = node->next) {
        if (!is_gemm(node)) continue;
        Lowering l = {.graph = graph, .arena = graph->arena, .dims = graph->dims, .policy = policy, .node = node};
        Match m = {.l = &l,
                   .trained = trained,
                   .drops = policy->target.anchors.attention_drop,
                   .sinks = policy->target.anchors.attention_sink};
        bool found = match(&m, node, ++mark);
        if (found && !l.error) build(graph, &m);
        if (l.error) return l.error;
    }
    graph_prune(graph);
    return NULL;
}

Status fuse_attention(Graph *graph, const Policy *policy) {
    if (!policy->target.anchors.attention || !policy->fusion.enable) return NULL;
    return fuse_all(graph, policy, NULL);
}

Status fuse_trained_attention(Graph *graph, const Policy *policy) {
    if (!policy->target.anchors.attention_backward || !policy->fusion.enable) return NULL;
    Arena *scratch = arena_create_inside(graph->arena);
    Map trained = map_make(scratch);
    Status status = differentiated_once(graph, &trained) ? fuse_all(graph, policy, &trained) : NULL;
    arena_destroy(scratch);
    return status;
}
