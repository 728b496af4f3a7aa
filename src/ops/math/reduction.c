/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over axes, arg-max and arg-min, running sums and products, losses. Axes that are known only at run time go
 * to a host kernel that reduces with the plain evaluator. */
#include "ops/families.h"

#include "graph/eval/eval.h"
#include "lowering/gradient.h"
#include "lowering/sizes.h"

#include <math.h>

/* --- reductions ------------------------------------------------------------------------------------------------- */

/* What a Reduce node reduces: known axes, or a vector of them. */
typedef struct Axes {
    int list[MAX_RANK], count;
    Value *vector; /* not NULL: the axes at run time */
    bool keepdims, none_is_none;
} Axes;

static bool axes_from(Lowering *l, const Node *n, const Value *x, Axes *axes) {
    int count;
    *axes = (Axes){.keepdims = attr_int(n, "keepdims", 1), .none_is_none = attr_int(n, "noop_with_empty_axes", 0)};
    const int64_t *values;
    bool given = node_attr(n, "axes") != NULL;
    Value *vector = given ? NULL : optional_in(l, n, 1);
    if (vector && !constant_ints(l, vector, &values, &count)) {
        if (vector->rank == 1 && dim_equals(vector->dims[0], 0))
            count = 0;
        else
            axes->vector = vector;
    } else {
        values = attr_or_input_ints(l, n, "axes", 1, &count);
    }
    if (l->error || axes->vector) return !l->error;
    int filled, *sorted = axes_of(l, values, count, x->rank, !axes->none_is_none, &filled);
    for (int i = 0; sorted && i < filled; i++) axes->list[i] = sorted[i];
    axes->count = filled;
    return !l->error;
}

/* The axes tensor as flags; all of them when it is empty, unless that means none. */
static Status read_axes(const HostCall *call, const Tensor *axes, int rank, bool *chosen) {
    int64_t count = tensor_count(axes);
    for (int i = 0; i < rank; i++) chosen[i] = count == 0 && !attr_int(call->node, "noop_with_empty_axes", 0);
    for (int64_t i = 0; i < count; i++) {
        int64_t axis = dtype_load_int(axes->dtype, axes->data, i);
        if (axis < -rank || axis >= rank)
            return host_error(call, "axis %lld is out of range for %d axes", (long long)axis, rank);
        chosen[axis < 0 ? axis + rank : axis] = true;
    }
    return NULL;
}

/* Inputs data, axes; attrs string reduce_prim, int reduce_keepdims. */
static Status reduce_kernel(HostCall *call) {
    const Tensor *x, *axes;
    TRY(host_tensor(call, 0, DT_NONE, &x));
    TRY(host_tensor(call, 1, DT_I64, &axes));
    bool chosen[MAX_RANK], keep = attr_int(call->node, "reduce_keepdims", 1);
    TRY(read_axes(call, axes, x->rank, chosen));
    DimTable *table = dim_table_create(call->arena);
    const Dim *dims[MAX_RANK];
    int64_t list[MAX_RANK], sizes[MAX_RANK];
    int count = 0, rank = 0;
    for (int i = 0; i < x->rank; i++) {
        dims[i] = dim_const(table, chosen[i] ? 1 : x->dims[i]);
        if (chosen[i]) list[count++] = i;
        if (keep || !chosen[i]) sizes[rank++] = chosen[i] ? 1 : x->dims[i];
    }
    Value result = {.name = "", .dtype = x->dtype, .rank = x->rank, .dims = dims};
    Value *outputs[] = {&result};
    Attr attr = {.name = "axes", .kind = ATTR_INTS, .count = count, .ints = list};
    Node node = {.kind = NODE_PRIM, .op = call->node->op, .input_count = 1, .outputs = outputs, .output_count = 1};
    node.inputs = (Value *[]){&(Value){.name = "", .dtype = x->dtype, .rank = x->rank}};
    node.prim = prim_from_name(attr_string(call->node, "reduce_prim", "reduce_sum"));
    node.origin = call->node->origin;
    node.attrs.items = &attr;
    node.attrs.count = 1;
    Tensor *reduced, *y;
    TRY(eval_prim(&node, (Tensor *[]){(Tensor *)x}, NULL, call->arena, &reduced));
    TRY(host_output(call, 0, x->dtype, rank, sizes, &y));
    if (y) memcpy(y->data, reduced->data, tensor_bytes(reduced));
    return NULL;
}

/* The sizes of what reduce_kernel has reduced, with 1 for each axis that it has. */
static const Dim *const *kept_sizes(Lowering *l, const Node *n) {
    const Value *x = n->inputs[0], *y = n->outputs[0];
    if (attr_int(n, "reduce_keepdims", 1)) return (const Dim *const *)y->dims;
    const Dim *rank = dim_const(l->dims, x->rank), *column[] = {rank, dim_const(l->dims, 1)};
    Value *axes = n->inputs[1], *zero = scalar_int(l, DT_I64, 0), *own = iota(l, column, 2, 0, DT_I64);
    Value *all = binary(l, PRIM_EQ, dim_scalar(l, axes->dims[0]), zero);
    if (attr_int(n, "noop_with_empty_axes", 0)) all = scalar_int(l, DT_BOOL, 0);
    axes = where(l, binary(l, PRIM_LT, axes, zero), add(l, axes, dim_scalar(l, rank)), axes);
    Value *hits = reduce(l, PRIM_REDUCE_SUM, cast(l, binary(l, PRIM_EQ, own, axes), DT_I64), (int[]){1}, 1, false);
    Value *reduced = where(l, all, scalar_int(l, DT_BOOL, 1), binary(l, PRIM_GT, hits, zero));
    Value *sizes = where(l, reduced, scalar_int(l, DT_I64, 1), dims_value(l, (const Dim *const *)x->dims, x->rank));
    return bind_sizes(l, sizes, "kept", x->rank);
}

/* Another reduction over the same axes, repeated along them. */
static Value *reduced_again(Backward *w, const Node *n, Prim prim, Value *x, const Dim *const *kept) {
    Lowering *l = w->l;
    Node *node = backward_host(w, n, n->op, reduce_kernel, (Value *[]){x, n->inputs[1]}, 2);
    if (!node) return NULL;
    node_set_string(node, "reduce_prim", prim_info(prim)->name);
    node_set_int(node, "reduce_keepdims", 1);
    Value *y = host_result(l, node, x->dtype, x->rank, kept);
    return y ? expand(l, y, x->dims, x->rank) : NULL;
}

/* As the rules of the primitives (autodiff/rules_reduction.c), the axes being known at run time. */
static void back_reduce_kernel(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *x = n->inputs[0], *zero = like(l, x, 0), *one = like(l, x, 1);
    const Dim *const *kept = kept_sizes(l, n);
    Prim prim = prim_from_name(attr_string(n, "reduce_prim", "reduce_sum"));
    if (!kept) return;
    Value *g = reshape(l, dy(w, n, 0), kept, x->rank), *y = reshape(l, n->outputs[0], kept, x->rank);
    if (!g || !y) return;
    g = expand(l, g, x->dims, x->rank);
    if (prim == PRIM_REDUCE_PROD) {
        Value *is_zero = binary(l, PRIM_EQ, x, zero), *others = where(l, is_zero, one, x);
        Value *zeros = reduced_again(w, n, PRIM_REDUCE_SUM, cast_like(l, is_zero, x), kept);
        Value *product = reduced_again(w, n, PRIM_REDUCE_PROD, others, kept);
        Value *of_zero = where(l, binary(l, PRIM_EQ, zeros, one), product, zero);
        Value *of_others = where(l, binary(l, PRIM_EQ, zeros, zero), divide(l, product, others), zero);
        g = mul(l, g, where(l, is_zero, of_zero, of_others));
    } else if (prim != PRIM_REDUCE_SUM) {
        Value *hits = cast_like(l, binary(l, PRIM_EQ, x, expand(l, y, x->dims, x->rank)), x);
        g = mul(l, hits, divide(l, g, reduced_again(w, n, PRIM_REDUCE_SUM, hits, kept)));
    }
    give(w, n, 0, g);
}

static Value *reduce_at_run_time(Lowering *l, Prim prim, Value *x, Value *vector, bool keepdims) {
    int64_t count = 0;
    if (vector->rank != 1 || (!keepdims && !dim_is_const(vector->dims[0], &count))) {
        unsupported(l, "the number of axes (\"%s\") is not known", vector->name);
        return NULL;
    }
    if (count > x->rank) {
        invalid(l, "%lld axes are more than the %d there are", (long long)count, x->rank);
        return NULL;
    }
    const Dim *dims[MAX_RANK];
    int rank = keepdims ? x->rank : x->rank - (int)count;
    for (int i = 0; i < rank; i++) dims[i] = dim_fresh(l->dims, "reduced");
    Node *host = host_node(l, l->node, reduce_kernel, (Value *[]){x, cast(l, vector, DT_I64)}, 2);
    if (!host) return NULL;
    node_set_string(host, "reduce_prim", prim_info(prim)->name);
    node_set_int(host, "reduce_keepdims", keepdims);
    return host_result(l, host, x->dtype, rank, dims);
}

static Value *reduce_over(Lowering *l, Prim prim, Value *x, const Axes *axes, bool keepdims) {
    if (!x) return NULL;
    if (axes->vector) return reduce_at_run_time(l, prim, x, axes->vector, keepdims);
    return reduce(l, prim, x, axes->list, axes->count, keepdims);
}

static Value *sum_over(Lowering *l, Value *x, const Axes *axes) {
    return reduce_over(l, PRIM_REDUCE_SUM, x, axes, axes->keepdims);
}

static Value *mean_over(Lowering *l, Value *x, const Axes *axes) {
    if (!axes->vector) return mean(l, x, axes->list, axes->count, axes->keepdims);
    Value *sum = sum_over(l, x, axes);
    if (!sum) return NULL;
    const Dim *left = dim_max(l->dims, value_elements(l->graph, sum), dim_const(l->dims, 1));
    return divide(l, sum, cast_like(l, dim_scalar(l, dim_div(l->dims, value_elements(l->graph, x), left)), x));
}

/* max + log(sum(exp(x - max))), where an infinite max is taken as 0 so that no inf - inf arises. */
static Value *log_sum_exp(Lowering *l, Value *x, const Axes *axes) {
    Value *max = reduce_over(l, PRIM_REDUCE_MAX, x, axes, true), *zero = like(l, x, 0);
    Value *base = where(l, unary(l, PRIM_ISINF, max), zero, max);
    Value *log = unary(l, PRIM_LOG, sum_over(l, unary(l, PRIM_EXP, sub(l, x, base)), axes));
    if (axes->keepdims) return add(l, log, base);
    if (!axes->vector) return add(l, log, squeeze(l, base, axes->list, axes->count));
    Value *flat = reduce_over(l, PRIM_REDUCE_MAX, x, axes, false);
    return add(l, log, where(l, unary(l, PRIM_ISINF, flat), zero, flat));
}

typedef enum ReduceKind { PLAIN, MEAN, L1, L2, LOG_SUM, LOG_SUM_EXP, SUM_SQUARE } ReduceKind;

static const struct {
    const char *op;
    ReduceKind kind;
    Prim prim;        /* of PLAIN */
    bool needs_float; /* integers are computed in double */
} reductions[] = {
    {"ReduceSum", PLAIN, PRIM_REDUCE_SUM, false},
    {"ReduceProd", PLAIN, PRIM_REDUCE_PROD, false},
    {"ReduceMax", PLAIN, PRIM_REDUCE_MAX, false},
    {"ReduceMin", PLAIN, PRIM_REDUCE_MIN, false},
    {"ReduceMean", MEAN, PRIM_NONE, false},
    {"ReduceL1", L1, PRIM_NONE, false},
    {"ReduceL2", L2, PRIM_NONE, true},
    {"ReduceLogSum", LOG_SUM, PRIM_NONE, true},
    {"ReduceLogSumExp", LOG_SUM_EXP, PRIM_NONE, true},
    {"ReduceSumSquare", SUM_SQUARE, PRIM_NONE, false},
};
enum { REDUCTION_COUNT = sizeof reductions / sizeof *reductions };

static Value *reduced(Lowering *l, int which, Value *x, const Axes *axes) {
    switch (reductions[which].kind) {
    case MEAN: return mean_over(l, x, axes);
    case L1: return sum_over(l, unary(l, PRIM_ABS, x), axes);
    case L2: return unary(l, PRIM_SQRT, sum_over(l, mul(l, x, x), axes));
    case LOG_SUM: return unary(l, PRIM_LOG, sum_over(l, x, axes));
    case LOG_SUM_EXP: return log_sum_exp(l, x, axes);
    case SUM_SQUARE: return sum_over(l, mul(l, x, x), axes);
    default: return reduce_over(l, reductions[which].prim, x, axes, axes->keepdims);
    }
}

static Status lower_reduce(Lowering *l, const Node *n) {
    int which = 0;
    while (which < REDUCTION_COUNT - 1 && strcmp(reductions[which].op, n->op) != 0) which++;
    Value *x = in(l, n, 0), *wide = x;
    if (!x) return l->error;
    if (x->rank < 0) return unsupported(l, "the number of axes of \"%s\" is not known", x->name);
    if (reductions[which].needs_float && dtype_is_integer(x->dtype))
        wide = cast(l, x, DT_F64);
    else if (reductions[which].kind != PLAIN || reductions[which].prim == PRIM_REDUCE_PROD)
        wide = widen(l, x);
    Axes axes;
    if (!wide || !axes_from(l, n, x, &axes)) return l->error;
    return out(l, n, 0, cast_like(l, reduced(l, which, wide, &axes), x));
}

static Status lower_arg(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    if (x->rank == 0) return out(l, n, 0, scalar_int(l, DT_I64, 0));
    int axis = axis_of(l, attr_int(n, "axis", 0), x->rank);
    Prim prim = strcmp(n->op, "ArgMax") == 0 ? PRIM_ARGMAX : PRIM_ARGMIN;
    return out(l, n, 0, arg_reduce(l, prim, x, axis, attr_int(n, "keepdims", 1), attr_int(n, "select_last_index", 0)));
}

/* --- running sums and products ---------------------------------------------------------------------------------- */

typedef struct Running {
    const Tensor *from;
    Tensor *to;
    int64_t length, inner; /* elements along the axis, and of the axes after it */
    bool product, exclusive, reverse;
} Running;

/* One line along the axis: elements start, start + inner, ... */
#define RUN_LINE(type, accumulator)                                                                                    \
    static void run_##type(const Running *r, int64_t start) {                                                          \
        const type *from = r->from->data;                                                                              \
        type *to = r->to->data;                                                                                        \
        accumulator total = r->product ? 1 : 0;                                                                        \
        for (int64_t i = 0; i < r->length; i++) {                                                                      \
            int64_t at = start + (r->reverse ? r->length - 1 - i : i) * r->inner;                                      \
            accumulator next = r->product ? total * (accumulator)from[at] : total + (accumulator)from[at];             \
            to[at] = (type)(r->exclusive ? total : next);                                                              \
            total = next;                                                                                              \
        }                                                                                                              \
    }
RUN_LINE(float, double)
RUN_LINE(double, double)
RUN_LINE(int64_t, uint64_t)
RUN_LINE(int32_t, uint32_t)

static void run_other(const Running *r, int64_t start) {
    bool is_float = dtype_is_float(r->from->dtype);
    double total = r->product;
    uint64_t whole = r->product;
    for (int64_t i = 0; i < r->length; i++) {
        int64_t at = start + (r->reverse ? r->length - 1 - i : i) * r->inner;
        if (is_float) {
            double x = dtype_load_double(r->from->dtype, r->from->data, at), next = r->product ? total * x : total + x;
            dtype_store_double(r->to->dtype, r->to->data, at, r->exclusive ? total : next);
            total = next;
        } else {
            uint64_t x = (uint64_t)dtype_load_int(r->from->dtype, r->from->data, at);
            uint64_t next = r->product ? whole * x : whole + x;
            dtype_store_int(r->to->dtype, r->to->data, at, (int64_t)(r->exclusive ? whole : next));
            whole = next;
        }
    }
}

static void run_lines(void *context, int64_t begin, int64_t end, int worker) {
    const Running *r = context;
    (void)worker;
    for (int64_t line = begin; line < end; line++) {
        int64_t start = line / r->inner * r->inner * r->length + line % r->inner;
        switch (r->from->dtype) {
        case DT_F32: run_float(r, start); break;
        case DT_F64: run_double(r, start); break;
        case DT_I64:
        case DT_U64: run_int64_t(r, start); break;
        case DT_I32:
        case DT_U32: run_int32_t(r, start); break;
        default: run_other(r, start); break;
        }
    }
}

enum { RUNNING_GRAIN = 1 << 14 }; /* elements a thread takes at least: below, waking one costs more than it does */

/* Inputs x, axis; attrs exclusive, reverse: CumSum, CumProd. */
static Status running_kernel(HostCall *call) {
    const Tensor *x, *axis_tensor;
    TRY(host_tensor(call, 0, DT_NONE, &x));
    TRY(host_tensor(call, 1, DT_NONE, &axis_tensor));
    if (tensor_count(axis_tensor) != 1 || !dtype_is_integer(axis_tensor->dtype))
        return host_error(call, "the axis must be one integer");
    int64_t axis = dtype_load_int(axis_tensor->dtype, axis_tensor->data, 0);
    if (axis < -x->rank || axis >= x->rank)
        return host_error(call, "axis %lld is out of range for %d axes", (long long)axis, x->rank);
    if (axis < 0) axis += x->rank;
    Tensor *y;
    TRY(host_output(call, 0, x->dtype, x->rank, x->dims, &y));
    if (!y || tensor_count(x) == 0) return NULL;
    Running r = {.from = x, .to = y, .length = x->dims[axis], .inner = 1};
    for (int i = (int)axis + 1; i < x->rank; i++) r.inner *= x->dims[i];
    r.product = strcmp(call->node->op, "CumProd") == 0;
    r.exclusive = attr_int(call->node, "exclusive", 0);
    r.reverse = attr_int(call->node, "reverse", 0);
    int64_t lines = tensor_count(x) / r.length;
    pool_for(call->pool, lines, RUNNING_GRAIN / (r.length < RUNNING_GRAIN ? r.length : RUNNING_GRAIN) + 1, run_lines,
             &r);
    return NULL;
}

static Value *run_again(Backward *w, const Node *n, const char *op, Value *x, bool exclusive, bool reverse) {
    Node *node = backward_host(w, n, op, running_kernel, (Value *[]){x, n->inputs[1]}, 2);
    if (!node) return NULL;
    node_set_int(node, "exclusive", exclusive);
    node_set_int(node, "reverse", reverse);
    return host_result_like(w->l, node, x);
}

/* y_i sums x_1 to x_i: dx_i sums dy_i to dy_n. Of products, dx_j is the sum of y_i dy_i, divided by x_j; that of the first zero is the sum
 * over products without it, and the others behind it have none. */
static void back_running(Backward *w, const Node *n) {
    Lowering *l = w->l;
    bool exclusive = attr_int(n, "exclusive", 0), reverse = attr_int(n, "reverse", 0);
    Value *x = n->inputs[0], *g = dy(w, n, 0);
    if (strcmp(n->op, "CumProd") != 0) {
        give(w, n, 0, run_again(w, n, "CumSum", g, exclusive, !reverse));
        return;
    }
    Value *zero = like(l, x, 0), *one = like(l, x, 1), *is_zero = binary(l, PRIM_EQ, x, zero);
    Value *zeros = run_again(w, n, "CumSum", cast_like(l, is_zero, x), false, reverse);
    Value *first = binary(l, PRIM_AND, is_zero, binary(l, PRIM_EQ, zeros, one));
    Value *without = run_again(w, n, "CumProd", where(l, first, one, x), exclusive, reverse);
    Value *sum = run_again(w, n, "CumSum", mul(l, g, n->outputs[0]), exclusive, !reverse);
    Value *of_first = run_again(w, n, "CumSum", mul(l, g, without), exclusive, !reverse);
    Value *quotient = divide(l, sum, where(l, is_zero, one, x));
    give(w, n, 0, where(l, first, of_first, where(l, is_zero, zero, quotient)));
}

static Status lower_running(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *axis = in(l, n, 1);
    if (!x || !axis) return l->error;
    if (!dtype_is_float(x->dtype) && !dtype_is_integer(x->dtype))
        return invalid(l, "the data is %s, not numbers", dtype_onnx_name(x->dtype));
    Node *host = host_node(l, n, running_kernel, (Value *[]){x, axis}, 2);
    return out(l, n, 0, host_result_like(l, host, x));
}

/* --- losses ------------------------------------------------------------------------------------------------------- */

static Value *all_of(Lowering *l, Value *x) {
    int axes[MAX_RANK];
    for (int i = 0; x && i < x->rank; i++) axes[i] = i;
    return x ? reduce(l, PRIM_REDUCE_SUM, x, axes, x->rank, false) : NULL;
}

/* The logarithms of probabilities as sums: x less these, each of which may be NULL. */
typedef struct Scores {
    Value *x, *less[2];
} Scores;

/* -log_probability[target] * weight[target] at each target; 0 where the target is ignore_index; then the sum, or the
 * mean over the weights. Of x [N, C, d...] only the targets' elements are read: its gradient is a comparison of the targets with the
 * class, which fuses with that of what is taken off. target: [N, d...], weight: [C] or NULL. */
static Value *likelihood_loss(Lowering *l, const Node *n, const Scores *s, Value *target, Value *weight) {
    const Attr *ignore = node_attr(n, "ignore_index");
    const char *reduction = attr_string(n, "reduction", "mean");
    if (s->x->rank < 2 || target->rank != s->x->rank - 1) {
        invalid(l, "scores of %d axes and targets of %d do not fit", s->x->rank, target->rank);
        return NULL;
    }
    Value *ignored = NULL, *weights = NULL;
    if (ignore) {
        ignored = binary(l, PRIM_EQ, target, scalar_int(l, target->dtype, ignore->i));
        target = where(l, ignored, scalar_int(l, target->dtype, 0), target);
        if (!target) return NULL;
    }
    /* One below 0 is as wrong as one above the classes, where an index counts from the end: none is as far below as that. */
    Value *classes = cast_like(l, dim_scalar(l, s->x->dims[1]), target);
    target = where(l, binary(l, PRIM_LT, target, scalar_int(l, target->dtype, 0)), sub(l, target, classes), target);
    if (l->error) return NULL;
    Value *picked = widen(l, gather_elements_at_labels(l, s->x, unsqueeze(l, target, (const int[]){1}, 1), 1, n->op));
    for (int i = 0; i < 2; i++)
        if (s->less[i]) picked = sub(l, picked, s->less[i]);
    Value *loss = unary(l, PRIM_NEG, squeeze(l, picked, (const int[]){1}, 1));
    if (!loss) return NULL;
    if (weight)
        weights = cast_like(l, gather_at_labels(l, weight, target, 0, n->op), loss);
    else if (ignored)
        weights = like(l, loss, 1);
    if (ignored) weights = where(l, ignored, like(l, loss, 0), weights);
    if (weights) loss = mul(l, loss, weights);
    if (strcmp(reduction, "none") == 0) return loss;
    Value *sum = all_of(l, loss);
    if (strcmp(reduction, "sum") == 0 || !loss) return sum;
    Value *count = weights ? all_of(l, weights) : cast_like(l, dim_scalar(l, value_elements(l->graph, loss)), loss);
    return divide(l, sum, count);
}

static Status lower_likelihood_loss(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *target = in(l, n, 1), *weight = optional_in(l, n, 2);
    if (!x || !target) return l->error;
    return out(l, n, 0, cast_like(l, likelihood_loss(l, n, &(Scores){.x = x}, target, weight), x));
}

static Status lower_cross_entropy_loss(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *wide = widen(l, x), *target = in(l, n, 1), *weight = optional_in(l, n, 2);
    if (!x || !target) return l->error;
    if (x->rank < 2) return invalid(l, "the scores need a batch and a class axis");
    const int axis = 1;
    Value *most = reduce(l, PRIM_REDUCE_MAX, wide, &axis, 1, true), *rest = sub(l, wide, most);
    Value *log_sum = unary(l, PRIM_LOG, reduce(l, PRIM_REDUCE_SUM, unary(l, PRIM_EXP, rest), &axis, 1, true));
    if (wants_output(n, 1)) out(l, n, 1, cast_like(l, sub(l, rest, log_sum), x));
    Scores scores = {x, {most, log_sum}};
    return out(l, n, 0, cast_like(l, likelihood_loss(l, n, &scores, target, weight), x));
}

/* com.microsoft's: the distance of each row of A [m, d] to each of B [k, d]. */
static Status lower_distances(Lowering *l, const Node *n) {
    Value *a = in(l, n, 0), *b = in(l, n, 1);
    const char *metric = attr_string(n, "metric", "sqeuclidean");
    bool root = strcmp(metric, "euclidean") == 0;
    if (l->error) return l->error;
    if (!root && strcmp(metric, "sqeuclidean") != 0) return unsupported(l, "metric \"%s\"", metric);
    if (a->rank != 2 || b->rank != 2) return invalid(l, "both inputs need 2 axes");
    Value *d = sub(l, unsqueeze(l, a, (int[]){1}, 1), unsqueeze(l, b, (int[]){0}, 1));
    Value *sum = reduce(l, PRIM_REDUCE_SUM, mul(l, d, d), (int[]){2}, 1, false);
    return out(l, n, 0, root ? unary(l, PRIM_SQRT, sum) : sum);
}

const OpRow ops_reduction[] = {
    {"com.microsoft", "CDist", 1, 0, lower_distances},
    {"", "ArgMax", 1, 0, lower_arg},
    {"", "ArgMin", 1, 0, lower_arg},
    {"", "CumProd", 26, 0, lower_running, running_kernel},
    {"", "CumSum", 11, 0, lower_running, running_kernel},
    {"", "NegativeLogLikelihoodLoss", 12, 0, lower_likelihood_loss},
    {"", "ReduceL1", 1, 0, lower_reduce, reduce_kernel},
    {"", "ReduceL2", 1, 0, lower_reduce, reduce_kernel},
    {"", "ReduceLogSum", 1, 0, lower_reduce, reduce_kernel},
    {"", "ReduceLogSumExp", 1, 0, lower_reduce, reduce_kernel},
    {"", "ReduceMax", 1, 0, lower_reduce, reduce_kernel},
    {"", "ReduceMean", 1, 0, lower_reduce, reduce_kernel},
    {"", "ReduceMin", 1, 0, lower_reduce, reduce_kernel},
    {"", "ReduceProd", 1, 0, lower_reduce, reduce_kernel},
    {"", "ReduceSum", 1, 0, lower_reduce, reduce_kernel},
    {"", "ReduceSumSquare", 1, 0, lower_reduce, reduce_kernel},
    {"", "SoftmaxCrossEntropyLoss", 12, 0, lower_cross_entropy_loss},
    {0},
};

const HostRow hosts_reduction[] = {
    {"ReduceAtRunTime", reduce_kernel, back_reduce_kernel},
    {"Running", running_kernel, back_running},
    {0},
};
