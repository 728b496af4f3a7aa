/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph may contain at each level. A failure is always our own error (STATUS_FAULT): what users may get wrong is
 * refused by the importer and by shape inference before. Sizes are compared as expressions; where the standard lets
 * sizes agree at run time alone (reshape, concat, pad) only two different constants are an error. */
#include "graph/broadcast.h"
#include "graph/graph.h"
#include "graph/space.h"
#include "base/plain.h"

#include <stdio.h>

typedef struct Verifier {
    const Graph *graph;
    GraphLevel level;
    bool in_region;
    int nesting;
    Arena *arena; /* of the maps, freed at the end */
    Map members;  /* the graph's values */
    Map defined;  /* values computed so far */
    Map names;    /* of live values */
    const Node *node;
} Verifier;

/* ---- messages ---- */

static Status fault(const Verifier *v, const char *format, ...) STATUS_FORMAT(2, 3);

static Status fault(const Verifier *v, const char *format, ...) {
    char rule[512], place[512];
    va_list args;
    va_start(args, format);
    plain_vprint(rule, sizeof rule, format, args);
    va_end(args);
    const Node *n = v->node;
    if (!n) return status_error(STATUS_FAULT, "graph \"%.200s\": %s", v->graph->name, rule);
    const char *output = n->output_count && n->outputs[0] ? n->outputs[0]->name : "_";
    snprintf(place, sizeof place, "%.150s = %.100s (from %.150s)", output, n->op, node_origin_name(n));
    return status_error(STATUS_FAULT, "graph \"%.200s\": %s: %s", v->graph->name, place, rule);
}

#define RULE(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) return fault(v, __VA_ARGS__);                                                                \
    } while (0)

/* ---- sizes ---- */

static bool is_one(const Dim *dim) { return dim_equals(dim, 1); }

/* Different whatever the symbols are. */
static bool clash(const Dim *a, const Dim *b) {
    int64_t x, y;
    return dim_is_const(a, &x) && dim_is_const(b, &y) && x != y;
}

static bool same_dims(const Value *value, const Dim *const *dims, int count) {
    if (value->rank != count) return false;
    for (int i = 0; i < count; i++)
        if (value->dims[i] != dims[i]) return false;
    return true;
}

static Status check_shape_attr(const Verifier *v, const Value *out) {
    int count;
    const Dim *const *shape = attr_dims(v->node, "shape", &count);
    const Attr *attr = node_attr(v->node, "shape");
    RULE(attr && attr->kind == ATTR_DIMS, "attribute shape is missing");
    RULE(same_dims(out, shape, count), "attribute shape differs from the result's dims");
    return NULL;
}

static Status check_axis(const Verifier *v, int rank) {
    const Attr *attr = node_attr(v->node, "axis");
    RULE(attr && attr->kind == ATTR_INT && attr->i >= 0 && attr->i < rank, "attribute axis is not in [0, %d)", rank);
    return NULL;
}

/* A dims attribute with one element an axis. */
static Status check_dims_attr(const Verifier *v, const char *name, int rank) {
    const Attr *attr = node_attr(v->node, name);
    RULE(attr && attr->kind == ATTR_DIMS && attr->count == rank, "attribute %s does not have one size an axis", name);
    return NULL;
}

/* ---- primitives ---- */

static Status check_broadcast(const Verifier *v, const Value *out) {
    const Node *node = v->node;
    int rank = 0;
    for (int k = 0; k < node->input_count; k++)
        if (node->inputs[k]->rank > rank) rank = node->inputs[k]->rank;
    RULE(out->rank == rank, "a result of rank %d from inputs of rank %d", out->rank, rank);
    for (int i = 0; i < rank; i++) {
        bool given = is_one(out->dims[i]);
        for (int k = 0; k < node->input_count; k++) {
            int axis = i - (rank - node->inputs[k]->rank);
            const Dim *dim = axis < 0 ? NULL : node->inputs[k]->dims[axis];
            RULE(!dim || dim == out->dims[i] || is_one(dim), "axis %d of input %d does not broadcast to the result", i,
                 k);
            given |= dim == out->dims[i];
        }
        RULE(given, "axis %d of the result is no input's", i);
    }
    return NULL;
}

static Status check_elementwise(const Verifier *v, const Value *out) {
    const Node *node = v->node;
    PrimClass klass = prim_info(node->prim)->klass;
    int first = klass == PRIM_CLASS_SELECT ? 1 : 0;
    DType dtype = node->inputs[first]->dtype, result = dtype;
    RULE(prim_accepts(node->prim, dtype), "not defined on %s", dtype_name(dtype));
    RULE(!first || node->inputs[0]->dtype == DT_BOOL, "the condition is not bool");
    for (int k = first; k < node->input_count; k++)
        RULE(node->inputs[k]->dtype == dtype, "inputs of types %s and %s", dtype_name(dtype),
             dtype_name(node->inputs[k]->dtype));
    if (klass == PRIM_CLASS_COMPARE || klass == PRIM_CLASS_TEST) result = DT_BOOL;
    if (klass == PRIM_CLASS_CAST) {
        result = attr_dtype(node, "to", DT_NONE);
        RULE(prim_accepts(node->prim, result), "attribute to is %s", dtype_name(result));
        RULE(node->prim != PRIM_BITCAST || dtype_size(dtype) == dtype_size(result), "types of different sizes");
    }
    RULE(out->dtype == result, "a result of type %s, not %s", dtype_name(out->dtype), dtype_name(result));
    return check_broadcast(v, out);
}

static Status check_generate(const Verifier *v, const Value *out) {
    const Node *node = v->node;
    if (node->prim == PRIM_DIMS) {
        int count;
        attr_dims(node, "shape", &count);
        RULE(!v->in_region, "dims in a region");
        RULE(node_attr(node, "shape") && out->dtype == DT_I64 && out->rank == 1 && dim_equals(out->dims[0], count),
             "the result is not an i64 vector of attribute shape's length");
        return NULL;
    }
    TRY(check_shape_attr(v, out));
    if (node->prim == PRIM_IOTA) {
        RULE(out->dtype == attr_dtype(node, "dtype", DT_I64) && prim_accepts(PRIM_CAST, out->dtype),
             "the result's type is %s", dtype_name(out->dtype));
        return check_axis(v, out->rank);
    }
    RULE(node->inputs[0]->dtype == DT_U64 && node->inputs[0]->rank == 0, "the seed is not a u64 scalar");
    RULE(out->dtype == DT_U32, "the result is not u32");
    return NULL;
}

static Status check_reduce(const Verifier *v, const Value *out) {
    const Node *node = v->node;
    const Value *in = node->inputs[0];
    bool index = node->prim == PRIM_ARGMAX || node->prim == PRIM_ARGMIN;
    int count, next = 0;
    const int64_t *axes = attr_ints(node, "axes", &count);
    const Attr *attr = node_attr(node, "axes");
    RULE(attr && attr->kind == ATTR_INTS, "attribute axes is missing");
    RULE(prim_accepts(node->prim, in->dtype), "not defined on %s", dtype_name(in->dtype));
    RULE(out->dtype == (index ? DT_I64 : in->dtype), "a result of type %s", dtype_name(out->dtype));
    RULE(!index || count == 1, "%d axes, not one", count);
    RULE(out->rank == in->rank, "reduced axes do not stay with size 1");
    for (int i = 0; i < count; i++)
        RULE(axes[i] >= 0 && axes[i] < in->rank && (i == 0 || axes[i] > axes[i - 1]),
             "axes are not sorted and in [0, %d)", in->rank);
    for (int i = 0; i < in->rank; i++) {
        bool reduced = next < count && axes[next] == i;
        next += reduced;
        RULE(reduced ? is_one(out->dims[i]) : out->dims[i] == in->dims[i], "axis %d of the result has a wrong size", i);
    }
    return NULL;
}

static Status check_permute(const Verifier *v, const Value *in, const Value *out) {
    int count;
    const int64_t *perm = attr_ints(v->node, "perm", &count);
    bool seen[MAX_RANK] = {false};
    RULE(count == in->rank && out->rank == in->rank, "attribute perm does not fit rank %d", in->rank);
    for (int i = 0; i < count; i++) {
        RULE(perm[i] >= 0 && perm[i] < count && !seen[perm[i]], "attribute perm is not a permutation");
        seen[perm[i]] = true;
        RULE(out->dims[i] == in->dims[perm[i]], "axis %d of the result has a wrong size", i);
    }
    return NULL;
}

static Status check_slice(const Verifier *v, const Value *in, const Value *out) {
    int starts, steps;
    const Dim *const *start = attr_dims(v->node, "start", &starts);
    const int64_t *step = attr_ints(v->node, "step", &steps);
    TRY(check_shape_attr(v, out));
    TRY(check_dims_attr(v, "start", in->rank));
    RULE(out->rank == in->rank, "the rank changes");
    RULE(steps == in->rank, "attribute step does not have one element an axis");
    for (int i = 0; i < in->rank; i++) {
        int64_t size, count, first, last;
        RULE(step[i] != 0, "step 0");
        if (!dim_is_const(in->dims[i], &size) || !dim_is_const(out->dims[i], &count) || !dim_is_const(start[i], &first))
            continue;
        bool fits = count == 0 || (first >= 0 && first < size && !__builtin_mul_overflow(count - 1, step[i], &last) &&
                                   !__builtin_add_overflow(last, first, &last) && last >= 0 && last < size);
        RULE(fits, "axis %d is out of range", i);
    }
    return NULL;
}

static Status check_pad(const Verifier *v, const Value *in, const Value *out) {
    int count;
    DimTable *table = v->graph->dims;
    RULE(v->node->inputs[1]->dtype == in->dtype && v->node->inputs[1]->rank == 0,
         "the fill is not a scalar of the data's type");
    TRY(check_dims_attr(v, "before", in->rank));
    TRY(check_dims_attr(v, "after", in->rank));
    RULE(out->rank == in->rank, "the rank changes");
    const Dim *const *before = attr_dims(v->node, "before", &count), *const *after =
                                                                         attr_dims(v->node, "after", &count);
    for (int i = 0; i < in->rank; i++)
        RULE(!clash(out->dims[i], dim_add(table, in->dims[i], dim_add(table, before[i], after[i]))),
             "axis %d of the result has a wrong size", i);
    return NULL;
}

static Status check_concat(const Verifier *v, const Value *out) {
    const Node *node = v->node;
    TRY(check_axis(v, out->rank));
    int axis = (int)attr_int(node, "axis", 0);
    const Dim *total = dim_const(v->graph->dims, 0);
    for (int k = 0; k < node->input_count; k++) {
        const Value *in = node->inputs[k];
        RULE(in->dtype == out->dtype && in->rank == out->rank, "input %d differs in type or rank", k);
        for (int i = 0; i < in->rank; i++)
            RULE(i == axis || !clash(in->dims[i], out->dims[i]), "axis %d of input %d differs from the result's", i, k);
        total = dim_add(v->graph->dims, total, in->dims[axis]);
    }
    RULE(!clash(total, out->dims[axis]), "axis %d of the result is not the sum of the inputs'", axis);
    return NULL;
}

static Status check_move(const Verifier *v, const Value *out) {
    const Value *in = v->node->inputs[0];
    RULE(out->dtype == in->dtype, "the type changes");
    switch (v->node->prim) {
    case PRIM_PERMUTE: return check_permute(v, in, out);
    case PRIM_SLICE: return check_slice(v, in, out);
    case PRIM_PAD: return check_pad(v, in, out);
    case PRIM_CONCAT: return check_concat(v, out);
    case PRIM_EXPAND:
        RULE(out->rank == in->rank, "the rank changes");
        for (int i = 0; i < in->rank; i++)
            RULE(is_one(in->dims[i]) || !clash(in->dims[i], out->dims[i]), "axis %d is not of size 1", i);
        return check_shape_attr(v, out);
    default:
        RULE(!clash(value_elements(v->graph, in), value_elements(v->graph, out)), "the number of elements changes");
        return check_shape_attr(v, out);
    }
}

static Status check_gather(const Verifier *v, const Value *data, const Value *indices, const Value *out) {
    int axis = (int)attr_int(v->node, "axis", 0);
    RULE(out->rank == data->rank - 1 + indices->rank, "a result of rank %d", out->rank);
    for (int i = 0; i < out->rank; i++) {
        const Dim *dim = i < axis                   ? data->dims[i]
                         : i < axis + indices->rank ? indices->dims[i - axis]
                                                    : data->dims[i - indices->rank + 1];
        RULE(out->dims[i] == dim, "axis %d of the result has a wrong size", i);
    }
    return NULL;
}

static Status check_indexed(const Verifier *v, const Value *out) {
    const Node *node = v->node;
    const Value *data = node->inputs[0], *indices = node->inputs[1];
    RULE(indices->dtype == DT_I32 || indices->dtype == DT_I64, "indices of type %s", dtype_name(indices->dtype));
    RULE(out->dtype == data->dtype, "the type changes");
    if (node->prim != PRIM_SCATTER_ND) TRY(check_axis(v, data->rank));
    if (node->prim == PRIM_GATHER) return check_gather(v, data, indices, out);
    if (node->prim == PRIM_GATHER_ELEMENTS) {
        RULE(indices->rank == data->rank && value_same_shape(out, indices), "the result's shape is not the indices'");
        return NULL;
    }
    RULE(node->inputs[2]->dtype == data->dtype, "updates of type %s", dtype_name(node->inputs[2]->dtype));
    RULE(value_same_shape(out, data), "the result's shape is not the data's");
    return NULL;
}

static Status check_prim(const Verifier *v) {
    const Node *node = v->node;
    const PrimInfo *info = prim_info(node->prim);
    RULE(info->klass != PRIM_CLASS_NONE, "no primitive");
    RULE(info->inputs < 0 ? node->input_count > 0 : node->input_count == info->inputs, "%d inputs", node->input_count);
    for (int i = 0; i < node->input_count; i++) {
        const Value *in = node->inputs[i];
        RULE(in && in->kind == VALUE_TENSOR && in->dtype != DT_NONE && in->rank >= 0, "input %d is missing or unknown",
             i);
    }
    RULE(node->output_count == 1 && node->outputs[0], "not one output");
    const Value *out = node->outputs[0];
    RULE(out->kind == VALUE_TENSOR && out->dtype != DT_NONE && out->rank >= 0, "the result's type or rank is unknown");
    switch (info->klass) {
    case PRIM_CLASS_GENERATE: return check_generate(v, out);
    case PRIM_CLASS_REDUCE: return check_reduce(v, out);
    case PRIM_CLASS_MOVE: return check_move(v, out);
    case PRIM_CLASS_INDEXED: return check_indexed(v, out);
    default: return check_elementwise(v, out);
    }
}

/* ---- anchors ---- */

static Status check_perm(const Verifier *v, const char *name, int rank) {
    int count;
    uint32_t seen = 0;
    const int64_t *perm = attr_ints(v->node, name, &count);
    if (!node_attr(v->node, name)) return NULL;
    RULE(perm && count == rank, "attribute %s does not have one axis an axis", name);
    for (int i = 0; i < count; i++) {
        RULE(perm[i] >= 0 && perm[i] < rank && !(seen >> perm[i] & 1), "attribute %s is no permutation", name);
        seen |= 1u << perm[i];
    }
    return NULL;
}

static bool is_attention_backward(const Node *node) { return strcmp(node->op, "attention_backward") == 0; }
static bool is_attention(const Node *node) { return strcmp(node->op, "attention") == 0 || is_attention_backward(node); }

/* Of an operand of "attention" behind its permute. */
static Status check_part(const Verifier *v, const char *name, int input) {
    int count;
    const int64_t *part = attr_ints(v->node, name, &count);
    RULE(!part || (count == 2 && part[0] >= 0 && part[1] >= 1 && v->node->inputs[input]->rank >= 3 &&
                   v->node->output_count == 1),
         "attribute %s is no first and number of heads", name);
    return NULL;
}

/* What lowering/anchors.h says of the anchor "attention" and its gradient, as far as it does not need the steps' meaning. */
static Status check_attention(const Verifier *v) {
    const Node *node = v->node;
    bool backward = is_attention_backward(node);
    int own = backward ? 6 : 3, whole = backward ? 4 : 3; /* inputs before the steps'; those of the result's rank */
    RULE(node->input_count >= own && node->outputs[0], "not %d inputs and an output", own);
    RULE(backward ? node->output_count == 3 : node->output_count <= 2, "%d outputs", node->output_count);
    int rank = node->outputs[0]->rank, steps, alpha;
    DType dtype = node->outputs[0]->dtype;
    for (int i = 0; i < node->input_count; i++) {
        const Value *in = node->inputs[i];
        RULE(in && in->kind == VALUE_TENSOR && in->rank >= 0, "input %d is missing or unknown", i);
        RULE(i < whole ? in->rank == rank && in->dtype == dtype
             : i < own ? in->rank == rank - 1
                       : in->rank <= rank,
             "input %d differs from the result in type or rank", i);
    }
    for (int i = 0; backward && i < 3; i++)
        RULE(node->outputs[i] && node->outputs[i]->dtype == dtype &&
                 value_same_shape(node->outputs[i], node->inputs[i]),
             "gradient %d is not of its input's type and shape", i);
    RULE(backward || node->output_count < 2 || !node->outputs[1] || node->outputs[1]->rank == rank - 1,
         "the second output is no number a row");
    TRY(check_perm(v, "perm_q", rank));
    TRY(check_perm(v, "perm_k", rank));
    TRY(check_perm(v, "perm_v", rank));
    TRY(check_perm(v, "perm_out", rank));
    TRY(check_part(v, "part_q", 0));
    TRY(check_part(v, "part_k", 1));
    TRY(check_part(v, "part_v", 2));
    attr_ints(node, "steps", &steps);
    const Attr *alphas = node_attr(node, "steps_alpha");
    alpha = alphas && alphas->kind == ATTR_FLOATS ? alphas->count : 0;
    RULE(alpha == steps && node->input_count - own <= steps, "%d steps with %d numbers and %d inputs", steps, alpha,
         node->input_count - own);
    return NULL;
}

static bool is_grouped(const Node *node) { return strcmp(node->op, "matmul_grouped") == 0; }

/* Likewise of "matmul_grouped". */
static Status check_grouped(const Verifier *v) {
    const Node *node = v->node;
    RULE((node->input_count == 3 || node->input_count == 4) && node->output_count == 1 && node->outputs[0],
         "not 3 or 4 inputs and an output");
    bool bits = node_attr(node, "weight_bits");
    const Value *a = node->inputs[0], *b = node->inputs[1], *groups = node->inputs[2], *y = node->outputs[0];
    for (int i = 0; i < node->input_count; i++)
        RULE(node->inputs[i] && node->inputs[i]->kind == VALUE_TENSOR && node->inputs[i]->rank >= 0,
             "input %d is missing or unknown", i);
    RULE(y->dtype == DT_F32 || y->dtype == DT_F64, "the result is neither f32 nor f64");
    RULE(a->dtype == y->dtype && a->rank >= 1 && a->rank <= y->rank, "rows and result do not go together");
    RULE(bits ? b->dtype == DT_U8 && b->rank == 4 && b->constant && y->dtype == DT_F32
              : b->dtype == y->dtype && b->rank == 3,
         "the second factor is no matrix a group");
    RULE(groups->dtype == DT_I64 && groups->rank == y->rank - 1, "not a group a row");
    RULE(node->input_count < 4 || (node->inputs[3]->dtype == y->dtype && node->inputs[3]->rank == 2),
         "the bias is no vector a group");
    return check_perm(v, "perm_b", b->rank);
}

static bool comes_with_run(const Node *node) { return strcmp(node->op, "matmul_blocks") == 0; }
static bool is_of_blocks(const Node *node) { return strcmp(node->op, "matmul_bits") == 0 || comes_with_run(node); }

/* Whether a tensor has so many elements, as far as its sizes are known. */
static bool has_elements(const Value *value, int64_t count) {
    int64_t elements = 1, size;
    for (int i = 0; i < value->rank; i++) {
        if (!dim_is_const(value->dims[i], &size)) return true;
        elements *= size;
    }
    return elements == count;
}

/* Scales or zero points: floats, or bytes that hold packed numbers, as many as it takes (scales: none do). */
static Status check_numbers(const Verifier *v, const char *what, DType dtype, bool fits, bool fits_packed) {
    RULE(dtype == DT_U8 ? fits_packed : dtype_is_float(dtype) && fits, "%s are no number a block", what);
    return NULL;
}

static Status check_attached(const Verifier *v, const char *name, int64_t blocks, int64_t packed) {
    const Attr *attr = node_attr(v->node, name);
    if (!attr) return NULL;
    RULE(attr->kind == ATTR_TENSOR, "attribute %s is no tensor", name);
    int64_t count = tensor_count(attr->tensor);
    return check_numbers(v, name, attr->tensor->dtype, count == blocks, count == packed);
}

static Status check_read(const Verifier *v, int input, const char *name, int64_t blocks, int64_t packed) {
    if (input >= v->node->input_count) return NULL;
    const Value *value = v->node->inputs[input];
    return check_numbers(v, name, value->dtype, has_elements(value, blocks),
                         packed >= 0 && has_elements(value, packed));
}

/* Likewise of "matmul_bits" and "matmul_blocks". */
static Status check_blocks(const Verifier *v) {
    const Node *node = v->node;
    bool of_run = comes_with_run(node);
    int own = of_run ? 4 : 2;
    RULE(of_run ? node->input_count == 3 || node->input_count == 4
                : node->input_count >= 2 && (node->input_count == 2 || node->subgraph_count),
         "%d inputs", node->input_count);
    RULE(node->output_count >= 1 && node->outputs[0] && (node->output_count == 1 || node->subgraph_count), "%d outputs",
         node->output_count);
    for (int i = 0; i < node->input_count && i < own; i++)
        RULE(node->inputs[i] && node->inputs[i]->kind == VALUE_TENSOR && node->inputs[i]->rank >= 0,
             "input %d is missing or unknown", i);
    const Value *a = node->inputs[0], *b = node->inputs[1], *y = node->outputs[0];
    int64_t depth = attr_int(node, "weight_depth", 0), block = attr_int(node, "weight_block", 0),
            bits = attr_int(node, "weight_bits", 0), columns, size;
    RULE(a->dtype == DT_F32 && a->rank >= 1 && y->rank == a->rank && (node->subgraph_count || y->dtype == DT_F32),
         "rows and result do not go together");
    RULE(b->dtype == DT_U8 && b->rank == 3 && (of_run || b->constant), "the second factor is no matrix in blocks");
    RULE(bits == 2 || bits == 3 || bits == 4 || bits == 8, "weight_bits is %lld", (long long)bits);
    RULE(block >= 16 && block % 16 == 0, "weight_block is %lld", (long long)block);
    RULE(depth >= 1, "weight_depth is %lld", (long long)depth);
    int64_t blocks = (depth + block - 1) / block;
    RULE((!dim_is_const(b->dims[1], &size) || size == blocks) &&
             (!dim_is_const(b->dims[2], &size) || size == (block * bits + 7) / 8),
         "the second factor has not the blocks of its depth");
    TRY(check_perm(v, "perm_a", a->rank));
    TRY(check_perm(v, "perm_out", a->rank));
    RULE(!of_run || !(node_attr(node, "perm_a") || node_attr(node, "perm_out")), "permutes of weights of the run");
    RULE(of_run || node_attr(node, "weight_scales"), "it has no scales");
    RULE(!of_run || !(node_attr(node, "weight_scales") || node_attr(node, "weight_zeros")),
         "scales or zero points of weights of the run are no inputs");
    if (!dim_is_const(b->dims[0], &columns)) return NULL;
    int64_t packed = columns * ((blocks * bits + 7) / 8);
    TRY(check_attached(v, "weight_scales", columns * blocks, -1));
    TRY(check_attached(v, "weight_zeros", columns * blocks, packed));
    if (!of_run) return NULL;
    TRY(check_read(v, 2, "scales", columns * blocks, -1));
    return check_read(v, 3, "zero points", columns * blocks, packed);
}

/* ---- levels ---- */

/* Tensors of more axes may have it as well, where neighbouring axes count as one. */
static bool has_space_for(const Node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i]->rank > SPACE_MAX_AXES) return false;
    return node->outputs[0]->rank <= SPACE_MAX_AXES;
}

/* What the partition must put into a region. */
static bool fusible(const Node *node) {
    return (prim_is_elementwise(node->prim) || prim_info(node->prim)->klass == PRIM_CLASS_REDUCE) &&
           space_accepts(node) && has_space_for(node);
}

/* Custom operators of an application, what hands tensors on to bodies that may hold some, and kernels that say so. What a run
 * alone finds out, such as the axes of what a sequence holds, is for these or for the graph's reader. */
static bool takes_any_rank(const Node *node) {
    return node->kind == NODE_HOST && (node->custom || node->subgraph_count || node_attr(node, "any_rank"));
}

static bool only_read_with_any_rank(const Value *value) {
    for (int i = 0; i < value->uses.count; i++)
        if (!takes_any_rank(value->uses.items[i].node)) return false;
    return true;
}

static Status check_level(const Verifier *v) {
    const Node *node = v->node;
    if (v->level == LEVEL_ONNX) {
        RULE(node->kind == NODE_ONNX, "not an ONNX node");
        return NULL;
    }
    RULE(node->kind != NODE_ONNX, "an ONNX node that was not lowered");
    RULE(!v->in_region || node->kind == NODE_PRIM, "only primitives may stand in a region");
    RULE(node->kind != NODE_REGION || v->level == LEVEL_PARTITIONED || node_attr(node, "fusion"),
         "a region before the partition");
    for (int i = 0; i < node->output_count; i++) {
        const Value *out = node->outputs[i];
        if (!out || out->kind != VALUE_TENSOR) continue;
        bool any_rank = takes_any_rank(node) || (node->kind == NODE_HOST && only_read_with_any_rank(out));
        RULE(out->dtype != DT_NONE && (out->rank >= 0 || any_rank), "type or rank of output %d is unknown", i);
    }
    if (node->kind == NODE_ANCHOR && is_attention(node)) return check_attention(v);
    if (node->kind == NODE_ANCHOR && is_grouped(node)) return check_grouped(v);
    if (node->kind == NODE_ANCHOR && is_of_blocks(node)) return check_blocks(v);
    if (node->kind != NODE_PRIM) return NULL;
    TRY(check_prim(v));
    RULE(v->level != LEVEL_PARTITIONED || v->in_region || !fusible(node) || is_tiny(node),
         "a fusible primitive outside regions");
    return NULL;
}

/* ---- values and edges ---- */

static Status check_value(Verifier *v, const Value *value) {
    Value *other = map_get(&v->names, value->name);
    RULE(!other || other == value, "two values are called %s", value->name);
    map_set(&v->names, value->name, (void *)value);
    RULE((unsigned)value->dtype < DTYPE_COUNT, "value %s has no type", value->name);
    RULE(value->rank >= (value->kind == VALUE_TENSOR ? -1 : -2) && value->rank <= MAX_RANK, "value %s has rank %d",
         value->name, value->rank);
    for (int i = 0; i < value->rank; i++) RULE(value->dims[i], "value %s lacks dim %d", value->name, i);
    if (value_kind_has_maps(value->kind))
        RULE((value->key == DT_I64 || value->key == DT_STRING) && value->dtype != DT_NONE && value->rank == -1,
             "the types of %s's keys and values make no map", value->name);
    else
        RULE(value->key == DT_NONE, "value %s has keys and is no map", value->name);
    const Tensor *t = value->constant;
    if (!t) return NULL;
    RULE(t->dtype == value->dtype && t->rank == value->rank, "constant %s differs from its tensor", value->name);
    for (int i = 0; i < t->rank; i++)
        RULE(dim_equals(value->dims[i], t->dims[i]), "constant %s differs from its tensor in axis %d", value->name, i);
    return NULL;
}

static Status check_defined(Verifier *v, const Value *value, const char *role, int index) {
    uint64_t key = MAP_POINTER_KEY(value);
    if (map_get_id(&v->defined, key)) return NULL;
    RULE(map_get_id(&v->members, key), "%s %d (%s) belongs to another graph", role, index, value->name);
    RULE(value->constant && !value->producer, "%s %d (%s) is computed later or never", role, index, value->name);
    map_set_id(&v->defined, key, (void *)value);
    return check_value(v, value);
}

static bool use_recorded(const Node *node, int index) {
    const Value *value = node->inputs[index];
    int slot = node->use_slots[index];
    if (slot >= 0 && slot < value->uses.count && value->uses.items[slot].node == node &&
        value->uses.items[slot].index == index)
        return true;
    for (int i = 0; i < value->uses.count; i++)
        if (value->uses.items[i].node == node && value->uses.items[i].index == index) return true;
    return false;
}

static Status check_edges(Verifier *v, int64_t *edges) {
    const Node *node = v->node;
    for (int i = 0; i < node->input_count; i++) {
        const Value *in = node->inputs[i];
        if (!in) continue;
        TRY(check_defined(v, in, "input", i));
        RULE(use_recorded(node, i), "input %d (%s) does not list this use", i, in->name);
        ++*edges;
    }
    for (int i = 0; i < node->output_count; i++) {
        const Value *out = node->outputs[i];
        if (!out) continue;
        RULE(out->producer == node && out->output_index == i, "output %d (%s) names another producer", i, out->name);
        RULE(!out->constant, "output %d (%s) is a constant", i, out->name);
        RULE(map_get_id(&v->members, MAP_POINTER_KEY(out)), "output %d (%s) belongs to another graph", i, out->name);
        TRY(check_value(v, out));
        map_set_id(&v->defined, MAP_POINTER_KEY(out), (void *)out);
    }
    return NULL;
}

/* ---- subgraphs ---- */

static Status check_region(const Verifier *v) {
    const Node *node = v->node;
    RULE(node->subgraph_count == 1, "%d bodies", node->subgraph_count);
    const Graph *body = node->subgraphs[0];
    RULE(body->inputs.count == node->input_count && body->outputs.count == node->output_count,
         "inputs or outputs are not the body's");
    for (int i = 0; i < node->input_count; i++) {
        const Value *outer = node->inputs[i], *inner = body->inputs.items[i];
        RULE(outer && outer->dtype == inner->dtype && value_same_shape(outer, inner), "input %d is not the body's", i);
    }
    for (int i = 0; i < node->output_count; i++) {
        const Value *outer = node->outputs[i], *inner = body->outputs.items[i];
        RULE(outer && outer->dtype == inner->dtype && value_same_shape(outer, inner), "output %d is not the body's", i);
    }
    return NULL;
}

/* The body of an anchor's epilogue: its first input is the raw result, the others are the node's from the third on. */
static Status check_epilogue(const Verifier *v) {
    const Node *node = v->node;
    RULE(node->subgraph_count == 1 && !is_attention(node) && !is_grouped(node) && !comes_with_run(node), "%d epilogues",
         node->subgraph_count);
    const Graph *body = node->subgraphs[0];
    RULE(node->input_count >= 2 && body->inputs.count == node->input_count - 1 &&
             body->outputs.count == node->output_count && node->output_count > 0,
         "inputs or outputs are not the epilogue's");
    const Value *raw = body->inputs.items[0];
    RULE(node->inputs[0] && raw->dtype == dtype_of_sums(node->inputs[0]->dtype) && raw->rank >= 1,
         "the epilogue's result is none");
    for (int i = 2; i < node->input_count; i++) {
        const Value *outer = node->inputs[i], *inner = body->inputs.items[i - 1];
        RULE(outer && outer->dtype == inner->dtype && value_same_shape(outer, inner), "input %d is not the epilogue's",
             i);
        RULE(broadcast_fits(inner, raw), "input %d does not lie over the result", i);
    }
    for (int i = 0; i < node->output_count; i++) {
        const Value *outer = node->outputs[i], *inner = body->outputs.items[i];
        RULE(outer && outer->dtype == inner->dtype && value_same_shape(outer, inner), "output %d is not the epilogue's",
             i);
    }
    FOR_EACH_NODE(inner, body)
    RULE(inner->kind == NODE_PRIM && (prim_is_elementwise(inner->prim) || inner->prim == PRIM_PHILOX) &&
             inner->output_count == 1 && inner->outputs[0] && value_same_shape(inner->outputs[0], raw),
         "%s in an epilogue is not of the result's elements", inner->op);
    return NULL;
}

static Status check_graph(const Graph *graph, GraphLevel level, bool in_region, int nesting);

static Status check_subgraphs(const Verifier *v) {
    const Node *node = v->node;
    if (node->kind == NODE_REGION) TRY(check_region(v));
    if (node->kind == NODE_ANCHOR && node->subgraph_count) TRY(check_epilogue(v));
    RULE(node->captures >= 0 && node->captures <= node->input_count, "%d captures", node->captures);
    for (int i = 0; i < node->subgraph_count; i++) {
        const Graph *inner = node->subgraphs[i];
        RULE(inner->parent == v->graph && inner->dims == v->graph->dims, "subgraph %d has another parent", i);
        RULE(inner->inputs.count >= node->captures, "subgraph %d lacks captured inputs", i);
        TRY(check_graph(inner, v->level, node_has_body(node), v->nesting + 1));
    }
    return NULL;
}

/* ---- the graph ---- */

static Status check_nodes(Verifier *v, int64_t *edges) {
    const Node *prev = NULL;
    int count = 0;
    FOR_EACH_NODE(node, v->graph) {
        v->node = node;
        RULE(node->prev == prev && node->graph == v->graph, "the list of nodes is broken");
        TRY(check_edges(v, edges));
        TRY(check_level(v));
        TRY(check_subgraphs(v));
        prev = node;
        count++;
    }
    v->node = NULL;
    RULE(prev == v->graph->last && count == v->graph->node_count, "the list of nodes is broken");
    return NULL;
}

static Status check_all(Verifier *v) {
    const Graph *g = v->graph;
    int64_t edges = 0, uses = 0;
    for (int i = 0; i < g->values.count; i++) {
        map_set_id(&v->members, MAP_POINTER_KEY(g->values.items[i]), g->values.items[i]);
        uses += g->values.items[i]->uses.count;
    }
    for (int i = 0; i < g->inputs.count; i++) {
        const Value *in = g->inputs.items[i];
        RULE(!in->producer && !in->constant, "input %s is computed or constant", in->name);
        RULE(v->level == LEVEL_ONNX || in->kind != VALUE_TENSOR ||
                 (in->dtype != DT_NONE && (in->rank >= 0 || only_read_with_any_rank(in))),
             "type or rank of input %s is unknown", in->name);
        TRY(check_value(v, in));
        map_set_id(&v->defined, MAP_POINTER_KEY(in), (void *)in);
    }
    TRY(check_nodes(v, &edges));
    RULE(uses == edges, "%lld uses are listed for %lld inputs of nodes", (long long)uses, (long long)edges);
    RULE(g->outputs.count == g->output_names.count, "outputs and their names differ in number");
    for (int i = 0; i < g->states.count; i++)
        RULE(g->states.items[i].input < g->inputs.count && g->states.items[i].output < g->outputs.count,
             "state %d has no input or output", i);
    for (int i = 0; i < g->kept.count; i++) {
        const GraphKept *k = &g->kept.items[i];
        RULE(k->input == g->inputs.count - g->kept.count + i && k->output == g->outputs.count - g->kept.count + i,
             "kept state %d is not the last inputs and outputs", i);
        const Value *in = g->inputs.items[k->input], *out = g->outputs.items[k->output];
        RULE(in->kind == VALUE_TENSOR && out->kind == VALUE_TENSOR && in->dtype == out->dtype && in->rank == out->rank,
             "kept state %d: input and output are of different types", i);
        RULE(k->axis >= -1 && k->axis < in->rank && (k->axis >= 0) == (k->form != KEPT_WHOLE) && k->capacity >= 0,
             "kept state %d: axis %d", i, k->axis);
    }
    for (int i = 0; i < g->outputs.count; i++) TRY(check_defined(v, g->outputs.items[i], "graph output", i));
    return NULL;
}

static Status check_graph(const Graph *graph, GraphLevel level, bool in_region, int nesting) {
    Verifier v = {.graph = graph, .level = level, .in_region = in_region, .nesting = nesting};
    if (nesting > GRAPH_MOST_NESTING) return fault(&v, "nested more than %d deep", GRAPH_MOST_NESTING);
    v.arena = arena_create(0);
    if (!v.arena) return status_out_of_memory();
    jmp_buf guard;
    if (setjmp(guard)) {
        arena_destroy(v.arena);
        return status_out_of_memory();
    }
    arena_guard(v.arena, &guard);
    v.members = v.defined = v.names = map_make(v.arena);
    Status status = check_all(&v);
    arena_destroy(v.arena);
    return status;
}

Status graph_verify(const Graph *graph, GraphLevel level) { return check_graph(graph, level, false, 0); }
