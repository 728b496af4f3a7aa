/* SPDX-License-Identifier: Apache-2.0 */
/* Control flow: If, Loop, Scan and SequenceMap. Each becomes one host node without a host function; the runtime runs
 * its subgraphs as nested plans. An If whose condition is known is replaced by the branch that is taken.
 *
 * What the runtime does for such a node (node->op says which; inputs and outputs count from 0). Common to all four:
 *   - The last node->captures inputs are captured values; each subgraph has them, in the same order, as its last
 * inputs. C below is their number. Captures that are constants have been copied into the subgraphs and are gone from
 * the lists.
 *   - A nested run starts with a copy of the outer bindings of symbols. The body's input types may hold symbols that
 * are unbound there: each run of the body binds them from the actual shapes (bind_dims). Symbols bound inside do not
 * leave the body.
 *   - An output's dims may hold fresh symbols: they are bound from the actual shape after the step, as for every host
 * step.
 *   - Values may be sequences or optionals (Value.kind, ItemKind); they pass through by value.
 *   - Outputs that are not asked for are NULL.
 *
 * "If"  inputs: condition (bool, one element), C captures. subgraphs[0] runs when it is true, else subgraphs[1]; the
 * branch's inputs are the captures alone. Node output i = the branch's output i.
 *
 * "Loop"  inputs: trip count M (i64, one element; NULL: unlimited), condition (bool, one element; NULL: true), N
 * carried values, C captures. subgraphs[0] inputs: iteration number (i64, rank 0 or 1 as the body's input has it),
 * condition (bool, likewise), N carried, C captures; outputs: condition, N carried, K scan values. Attr int carried =
 * N. i = 0; c = condition; while (i < M && c) { run body(i, c, carried, captures); c, carried = outputs; append scan
 * values; i++; } Node outputs: the N carried values after the last iteration (after none: the inputs), then K tensors:
 * scan value k of all iterations stacked along a new axis 0, [iterations, body dims...]. After no iteration a scan
 * output has 0 along axis 0; its other sizes are those of the body's output where they are known before it runs, else
 * 0.
 *
 * "Scan"  attrs: int num_scan_inputs = M, ints scan_input_axes [M], scan_input_directions [M], scan_output_axes [K],
 *     scan_output_directions [K] (all present, axes non-negative; direction 1: backward). inputs: N states, M scan
 * inputs, C captures. subgraphs[0] inputs: N states, M slices (rank one less: index t along the axis, t from T-1 down
 * to 0 where the direction is 1), C captures; outputs: N states, K scan values. T = size of every scan input along its
 * axis (different sizes are an error). Node outputs: N final states, then K tensors: scan value k of all steps stacked
 * along the new axis scan_output_axes[k], in reverse order where its direction is 1. (Scan of opset 8, with a batch
 * axis, becomes a Scan over the batch whose body is the Scan.)
 *
 * "SequenceMap"  inputs: a sequence, further inputs (each a sequence of the same length, or a tensor), C captures.
 * subgraphs[0] inputs: the element i of each sequence (or the tensor itself), C captures. Node output k = the sequence
 * of the body's output k for all i; an output of the body is a tensor. */
#include "ops/control/bodies.h"
#include "ops/control/branch_tail.h"
#include "ops/control/sequence_map.h"
#include "ops/control/short_sequence.h"
#include "ops/families.h"

/* Input `index`, where it is there, is one element of that type, as far as is known. */
static Status check_scalar(Lowering *l, const Node *n, int index, DType dtype, const char *what) {
    const Value *value = own_input(n, index);
    int64_t size;
    if (!value) return NULL;
    if (value->kind != VALUE_TENSOR || (value->dtype != DT_NONE && value->dtype != dtype))
        return invalid(l, "%s is not %s, \"%s\" is %s", what, dtype_onnx_name(dtype), value->name,
                       value->kind == VALUE_TENSOR ? dtype_onnx_name(value->dtype) : "no tensor");
    for (int i = 0; i < value->rank; i++)
        if (dim_is_const(value->dims[i], &size) && size != 1)
            return invalid(l, "%s is one element, \"%s\" has %lld in axis %d", what, value->name, (long long)size, i);
    return NULL;
}

/* ---- If ---- */

static bool known_bool(const Value *value, bool *out_value) {
    const Tensor *tensor = constant_of(value);
    if (!tensor || tensor_count(tensor) != 1 || tensor->dtype == DT_STRING) return false;
    *out_value = dtype_load_int(tensor->dtype, tensor->data, 0) != 0;
    return true;
}

/* Puts the lowered branch in the node's place, its captures replaced by what they stand for. */
static Status inline_branch(Lowering *l, const Node *n, const Graph *branch, Value *const *captured) {
    Value **results = ARENA_ARRAY(l->arena, Value *, branch->outputs.count);
    inline_graph(l, branch, captured, results);
    for (int i = 0; i < n->output_count; i++)
        if (wants_output(n, i)) TRY(out(l, n, i, results[i]));
    return NULL;
}

static bool has_if(const Graph *graph) {
    FOR_EACH_NODE(node, graph)
    if (node->kind == NODE_ONNX && strcmp(node->op, "If") == 0) return true;
    return false;
}

static bool has_open_result(const Node *n, const Graph *branch) {
    for (int i = 0; i < n->output_count; i++) {
        const Value *result = branch->outputs.items[i];
        if (wants_output(n, i) && result->kind == VALUE_TENSOR && result->rank < 0) return true;
    }
    return false;
}

/* A result whose rank an If inside decides: that If takes what follows here along, so it has to stand here. */
static Status take_branch_as_it_is(Lowering *l, const Node *n, const Graph *branch) {
    Value **results = ARENA_ARRAY(l->arena, Value *, branch->outputs.count);
    inline_graph_behind(l, branch, n->inputs + own_inputs(n), results);
    for (int i = 0; i < n->output_count; i++)
        if (wants_output(n, i)) value_replace(l->graph, n->outputs[i], results[i]);
    return NULL;
}

static Status take_branch(Lowering *l, const Node *n, int which) {
    Graph *branch = n->subgraphs[which], *spare = has_if(branch) ? clone_graph(l->graph, branch) : NULL;
    pass_captures(n, branch);
    TRY(lower_subgraph(l, branch));
    if (spare && has_open_result(n, branch)) return take_branch_as_it_is(l, n, spare);
    int count;
    return inline_branch(l, n, branch, passed_captures(l, n, &count));
}

/* The branches of an If while it is lowered. */
typedef struct Branches {
    Graph *graphs[2], *spare[2]; /* spare: as they were before */
    Status failures[2];          /* why one cannot be lowered; owned */
    int base;                    /* symbols from here on are made inside */
    ItemType *types;             /* [node outputs]: of what holds the results of both */
} Branches;

/* Puts a refusal in the place of branch b; takes ownership of why. */
static void refuse(Lowering *l, const Node *n, Branches *b, int which, Status why) {
    const Graph *other = b->graphs[1 - which];
    for (int i = 0; i < other->outputs.count; i++) b->types[i] = outer_type(l, other->outputs.items[i], b->base);
    const char *message =
        arena_format(l->arena, "its %s branch would be taken, for whose results what follows cannot be computed: %s",
                     which ? "else" : "then", status_message(why));
    b->graphs[which] = refusal(l, n, other, b->types, message);
    status_free(why);
}

static Status lower_branches(Lowering *l, const Node *n, Branches *b) {
    bool tailed = attr_int(n, "tail", 0) != 0;
    b->base = dim_symbol_count(l->dims);
    l->tails += tailed;
    for (int i = 0; i < 2; i++) {
        b->graphs[i] = n->subgraphs[i];
        b->spare[i] = clone_graph(l->graph, b->graphs[i]);
        pass_captures(n, b->graphs[i]);
        b->failures[i] = lower_subgraph(l, b->graphs[i]);
    }
    l->tails -= tailed;
    bool one = !b->failures[0] != !b->failures[1],
         allowed = may_be_refused(b->failures[0]) && may_be_refused(b->failures[1]);
    if (tailed && one && allowed) {
        int which = b->failures[0] ? 0 : 1;
        refuse(l, n, b, which, b->failures[which]);
        return NULL;
    }
    Status failure = b->failures[0] ? b->failures[0] : b->failures[1];
    if (b->failures[0]) status_free(b->failures[1]);
    return failure;
}

static Status join_branches(Lowering *l, const Node *n, Branches *b) {
    for (int i = 0; i < n->output_count; i++) {
        ItemType types[2];
        for (int k = 0; k < 2; k++) types[k] = outer_type(l, b->graphs[k]->outputs.items[i], b->base);
        if (!item_type_join(l, &types[0], &types[1], "branch", &b->types[i]))
            return invalid(l, "output %d has different types in the two branches", i);
    }
    return NULL;
}

/* Tensors whose rank is not known outside and that are read there. */
static bool find_open(const Node *n, const Branches *b, bool *open) {
    bool some = false;
    for (int i = 0; i < n->output_count; i++) {
        const Value *output = n->outputs[i];
        open[i] = output && output->uses.count && b->types[i].kind == VALUE_TENSOR && b->types[i].rank < 0;
        some |= open[i];
    }
    return some;
}

static bool may_have_tail(const Lowering *l, const Node *n) {
    if (!l->tails) return true;
    int64_t copies = 0;
    for (const Node *node = n->next; node; node = node->next) copies++;
    for (int i = 0; i <= l->tails && copies <= MOST_COPIES; i++) copies *= 2;
    return copies <= MOST_COPIES;
}

/* Branches whose results differ in rank take what follows along, twice as far each time, until the ranks agree or nothing
 * reads the results; a branch for which it makes no sense fails when it is taken. */
static Status lower_if(Lowering *l, const Node *n) {
    TRY(check_control(l, n, 2));
    Value *condition = own_inputs(n) == 1 ? n->inputs[0] : NULL;
    if (!condition) return invalid(l, "expected one input, the condition");
    TRY(check_scalar(l, n, 0, DT_BOOL, "the condition"));
    for (int b = 0; b < 2; b++) { TRY(check_body(l, n, n->subgraphs[b], 0, n->output_count)); }
    bool known;
    if (known_bool(condition, &known)) return take_branch(l, n, known ? 0 : 1);
    Branches b = {.types =
                      ARENA_ARRAY(l->arena, ItemType, n->subgraphs[0]->outputs.count + n->subgraphs[1]->outputs.count)};
    TRY(lower_branches(l, n, &b));
    TRY(join_branches(l, n, &b));
    bool *open = ARENA_ARRAY(l->arena, bool, n->output_count + 1);
    if (find_open(n, &b, open)) {
        int reach = (int)attr_int(n, "tail", 0);
        if (may_have_tail(l, n)) {
            replace_by_tailed(l, n, b.spare, open, l->tails ? WHOLE_TAIL : reach ? 2 * reach : 1);
            return l->error;
        }
        refuse(l, n, &b, 1,
               status_error(STATUS_UNSUPPORTED, "too many Ifs in a row have branches whose results differ in rank"));
    }
    Node *host = control_node(l, n, &condition, 1, b.graphs, 2);
    if (!host) return l->error;
    for (int i = 0; i < n->output_count; i++) TRY(control_result(l, n, host, i, &b.types[i]));
    return NULL;
}

/* ---- values carried from one iteration to the next ---- */

typedef struct Carried {
    int count;
    ItemType *types; /* [count]: as the body's inputs; the first guess is the type of the initial values */
    bool **free;     /* [count][rank]: this size changes between iterations and is a symbol of the body */
    Graph *body;     /* lowered for these types */
    int base;        /* symbols from here on are bound inside the body */
} Carried;

/* declared: what the body calls its first. */
static void carried_start(Lowering *l, Carried *c, Value *const *initial, Value *const *declared, int count) {
    *c = (Carried){.count = count, .base = dim_symbol_count(l->dims)};
    c->types = ARENA_ARRAY(l->arena, ItemType, count);
    c->free = ARENA_ARRAY(l->arena, bool *, count);
    for (int i = 0; i < count; i++) {
        c->types[i] = item_type_of(initial[i]);
        if (c->types[i].kind != VALUE_TENSOR) {
            ItemType said = item_type_of(declared[i]);
            bool says_more = c->types[i].rank == RANK_EMPTY && said.kind != VALUE_TENSOR && said.rank >= 0 &&
                             item_type_join(l, &c->types[i], &said, "carried", &said);
            c->types[i] = item_type_held(l, says_more ? said : c->types[i], c->types[i].kind);
        }
        c->free[i] = ARENA_ARRAY(l->arena, bool, c->types[i].rank > 0 ? c->types[i].rank : 1);
    }
}

/* A size that changes between iterations. */
typedef struct CarriedSize {
    const Dim *before, *after; /* in one iteration */
    const Dim *now;            /* how it is called from now on */
} CarriedSize;
typedef VEC(CarriedSize) CarriedSizes;

/* Sizes that are equal before the loop and become equal in an iteration are equal in all of them, so they are one symbol: caches of
 * all layers grow together. named: `before` is such a symbol, which the first of the sizes that are no longer equal keeps. */
static const Dim *carried_size(Lowering *l, CarriedSizes *sizes, const Dim *before, const Dim *after, bool named) {
    for (int i = 0; i < sizes->count; i++) {
        const CarriedSize *known = &sizes->items[i];
        if (known->before == before && known->after == after) return known->now;
        named &= known->before != before;
    }
    CarriedSize made = {before, after, named ? before : dim_fresh(l->dims, "carried")};
    VEC_PUSH(l->arena, *sizes, made);
    return made.now;
}

/* Widens the types by what the body returns; *out_changed when the body must be lowered again. all: after one change,
 * all sizes are free. */
static Status carried_widen(Lowering *l, Carried *c, int first_output, bool all, bool *out_changed) {
    CarriedSizes sizes = {0};
    *out_changed = false;
    for (int i = 0; i < c->count; i++) {
        ItemType *type = &c->types[i], result = item_type_of(c->body->outputs.items[first_output + i]);
        if (type->kind == VALUE_TENSOR && result.kind == VALUE_TENSOR) {
            if (type->dtype != DT_NONE && type->dtype != result.dtype)
                return invalid(l, "carried value %d begins as %s and becomes %s", i, dtype_name(type->dtype),
                               dtype_name(result.dtype));
            if (type->rank < 0 || result.rank < 0)
                return unsupported(l, "carried value %d, whose number of axes is not the same in every iteration", i);
            if (type->rank != result.rank)
                return unsupported(l, "carried value %d begins with %d axes and becomes one with %d", i, type->rank,
                                   result.rank);
            const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, type->rank > 0 ? type->rank : 1);
            bool some = false;
            for (int a = 0; a < type->rank; a++) some |= type->dims[a] != result.dims[a] && !c->free[i][a];
            for (int a = 0; a < type->rank; a++) {
                bool changes = some && !c->free[i][a] && (all || type->dims[a] != result.dims[a]);
                c->free[i][a] |= changes;
                dims[a] = type->dims[a];
                if (c->free[i][a]) dims[a] = carried_size(l, &sizes, dims[a], result.dims[a], !changes);
                *out_changed |= dims[a] != type->dims[a];
            }
            type->dims = dims;
            continue;
        }
        ItemType joined;
        if (!item_type_join(l, type, &result, "carried", &joined))
            return invalid(l, "carried value %d changes its type between iterations", i);
        joined = item_type_held(l, joined, joined.kind);
        *out_changed |= !item_type_same(type, &joined);
        *type = joined;
    }
    return NULL;
}

/* Gives up on telling which sizes stay. */
static void carried_free_all(Lowering *l, Carried *c) {
    for (int i = 0; i < c->count; i++) {
        ItemType *type = &c->types[i];
        if (type->kind != VALUE_TENSOR || type->rank <= 0) continue;
        const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, type->rank);
        for (int a = 0; a < type->rank; a++) {
            dims[a] = dim_fresh(l->dims, "carried");
            c->free[i][a] = true;
        }
        type->dims = dims;
    }
}

enum {
    FEW_ATTEMPTS = 3,       /* with only those sizes free that were seen to change */
    MOST_ATTEMPTS = 16,     /* lowerings of one body; each is as many of every body inside it */
    MOST_WIDENED_DEPTH = 6, /* of loops in loops whose carried sizes change */
};

/* Lowers copies of the body until the types of its carried inputs hold for every iteration. `set` types the other
 * inputs. */
static Status lower_carried(Lowering *l, const Node *n, Carried *c, int first_input, int first_output,
                            Status (*set)(Lowering *l, const Node *n, Graph *body)) {
    int depth = 0, attempts = 0;
    for (const Graph *graph = l->graph; graph->parent; graph = graph->parent) depth++;
    for (bool changed = true; changed; attempts++) {
        if (attempts >= (depth ? MOST_ATTEMPTS / 2 : MOST_ATTEMPTS) || (attempts && depth > MOST_WIDENED_DEPTH))
            return unsupported(l, "carried values whose types do not settle");
        c->body = clone_graph(l->graph, n->subgraphs[0]);
        for (int i = 0; i < c->count; i++) item_type_set(l, c->body->inputs.items[first_input + i], &c->types[i]);
        TRY(set(l, n, c->body));
        pass_captures(n, c->body);
        TRY(lower_subgraph(l, c->body));
        TRY(carried_widen(l, c, first_output, attempts || depth, &changed));
        if (changed && attempts + 1 >= FEW_ATTEMPTS) carried_free_all(l, c);
    }
    return NULL;
}

/* The carried value after the last iteration. */
static ItemType carried_result(Lowering *l, const Carried *c, int index, int first_output) {
    ItemType type = c->types[index];
    const Value *last = c->body->outputs.items[first_output + index];
    if (type.kind != VALUE_TENSOR) type.kind = last->kind;
    if (type.rank <= 0) return type;
    const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, type.rank);
    for (int a = 0; a < type.rank; a++) dims[a] = c->free[index][a] ? dim_fresh(l->dims, "size") : type.dims[a];
    type.dims = dims;
    return type;
}

/* A scan output: the body's dims with the number of iterations put in at `axis`. */
static Status stacked_type(Lowering *l, const Carried *c, const Value *result, const Dim *iterations, int64_t axis,
                           ItemType *out_type) {
    ItemType type = outer_type(l, result, c->base);
    if (type.kind != VALUE_TENSOR) return invalid(l, "a scan output of the body is no tensor");
    *out_type = type;
    if (type.rank < 0) return NULL;
    if (type.rank + 1 > MAX_RANK) return unsupported(l, "a scan output of more than %d axes", MAX_RANK);
    const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, type.rank + 1);
    for (int a = 0, from = 0; a <= type.rank; a++) dims[a] = a == axis ? iterations : type.dims[from++];
    out_type->rank = type.rank + 1;
    out_type->dims = dims;
    return NULL;
}

/* ---- Loop ---- */

static void set_scalar(Value *input, DType dtype) {
    input->kind = VALUE_TENSOR;
    input->dtype = dtype;
    input->rank = 0;
    input->dims = NULL;
    input->content = NULL;
}

static Status set_loop_inputs(Lowering *l, const Node *n, Graph *body) {
    (void)l, (void)n;
    set_scalar(body->inputs.items[0], DT_I64);
    set_scalar(body->inputs.items[1], DT_BOOL);
    return NULL;
}

/* True in every iteration: neither the condition given nor the one that the body returns can end the loop. */
static bool runs_to_the_end(const Node *n, const Graph *body) {
    bool known;
    const Value *condition = own_input(n, 1), *next = body->outputs.items[0];
    if (condition && (!known_bool(condition, &known) || !known)) return false;
    return next == body->inputs.items[1] || (known_bool(next, &known) && known);
}

static const Dim *loop_count(Lowering *l, const Node *n, const Graph *body) {
    const Value *trips = own_input(n, 0);
    if (!trips || !runs_to_the_end(n, body)) return dim_fresh(l->dims, "iterations");
    const Tensor *constant = constant_of(trips);
    if (constant && tensor_count(constant) == 1) {
        int64_t count = dtype_load_int(constant->dtype, constant->data, 0);
        return dim_const(l->dims, count > 0 ? count : 0);
    }
    if (trips->content) return dim_max(l->dims, dim_const(l->dims, 0), trips->content[0]);
    return dim_fresh(l->dims, "iterations");
}

static Status lower_loop(Lowering *l, const Node *n) {
    TRY(check_control(l, n, 1));
    TRY(check_scalar(l, n, 0, DT_I64, "the number of iterations"));
    TRY(check_scalar(l, n, 1, DT_BOOL, "the condition"));
    int count = own_inputs(n) > 2 ? own_inputs(n) - 2 : 0; /* what is left out at the end may be missing */
    TRY(check_body(l, n, n->subgraphs[0], 2 + count, 1 + count));
    TRY(check_given(l, n, 2, count));
    if (n->output_count > n->subgraphs[0]->outputs.count - 1)
        return invalid(l, "%d outputs, and the body has only %d", n->output_count, n->subgraphs[0]->outputs.count);
    Value **own = ARENA_ARRAY(l->arena, Value *, 2 + count);
    for (int i = 0; i < 2 + count; i++) own[i] = own_input(n, i);
    Carried carried;
    carried_start(l, &carried, own + 2, n->subgraphs[0]->inputs.items + 2, count);
    TRY(lower_carried(l, n, &carried, 2, 1, set_loop_inputs));

    Node *host = control_node(l, n, own, 2 + count, &carried.body, 1);
    if (!host) return l->error;
    node_set_int(host, "carried", count);
    const Dim *iterations = loop_count(l, n, carried.body);
    for (int i = 0; i < n->output_count; i++) {
        ItemType type;
        if (i < count)
            type = carried_result(l, &carried, i, 1);
        else
            TRY(stacked_type(l, &carried, carried.body->outputs.items[1 + i], iterations, 0, &type));
        TRY(control_result(l, n, host, i, &type));
    }
    return NULL;
}

/* ---- Scan ---- */

typedef struct ScanShape {
    int states, scanned, stacked;
} ScanShape;

static Status scan_shape(Lowering *l, const Node *n, ScanShape *out_shape) {
    TRY(check_control(l, n, 1));
    int64_t scanned = attr_int(n, "num_scan_inputs", 0);
    if (scanned < 1 || scanned > own_inputs(n)) return invalid(l, "num_scan_inputs is %lld", (long long)scanned);
    int states = own_inputs(n) - (int)scanned;
    TRY(check_body(l, n, n->subgraphs[0], own_inputs(n), states));
    TRY(check_given(l, n, 0, own_inputs(n)));
    *out_shape = (ScanShape){states, (int)scanned, n->subgraphs[0]->outputs.count - states};
    if (n->output_count > states + out_shape->stacked)
        return invalid(l, "%d outputs, and the body has only %d", n->output_count, states + out_shape->stacked);
    return NULL;
}

/* A list attribute of `count` numbers, zeros when missing. */
static Status scan_list(Lowering *l, const Node *n, const char *name, int count, int64_t *out_list) {
    int given;
    const int64_t *list = attr_ints(n, name, &given);
    if (given && given != count) return invalid(l, "%s has %d elements where %d are needed", name, given, count);
    for (int i = 0; i < given; i++) out_list[i] = list[i];
    return NULL;
}

static Status scan_axis(Lowering *l, int64_t *axis, int rank) {
    if (*axis < -rank || *axis >= rank)
        return invalid(l, "scan axis %lld of a value of rank %d", (long long)*axis, rank);
    if (*axis < 0) *axis += rank;
    return NULL;
}

/* The types of the slices; also called for each copy of the body, when the axes have been checked. */
static Status set_scan_inputs(Lowering *l, const Node *n, Graph *body) {
    int count = (int)attr_int(n, "num_scan_inputs", 0), first = own_inputs(n) - count, given;
    const int64_t *axes = attr_ints(n, "scan_input_axes", &given);
    for (int i = 0; i < count; i++) {
        const Value *whole = n->inputs[first + i];
        int64_t axis = i < given ? axes[i] : 0;
        if (axis < 0) axis += whole->rank;
        const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, whole->rank);
        int rank = 0;
        for (int a = 0; a < whole->rank; a++)
            if (a != axis) dims[rank++] = whole->dims[a];
        ItemType type = {VALUE_TENSOR, whole->dtype, rank, dims};
        item_type_set(l, body->inputs.items[first + i], &type);
    }
    return NULL;
}

typedef struct ScanAxes {
    int64_t *in, *in_directions, *out, *out_directions;
} ScanAxes;

static Status scan_axes(Lowering *l, const Node *n, const ScanShape *s, ScanAxes *axes) {
    int64_t *lists = ARENA_ARRAY(l->arena, int64_t, 2 * s->scanned + 2 * s->stacked);
    *axes = (ScanAxes){lists, lists + s->scanned, lists + 2 * s->scanned, lists + 2 * s->scanned + s->stacked};
    TRY(scan_list(l, n, "scan_input_axes", s->scanned, axes->in));
    TRY(scan_list(l, n, "scan_input_directions", s->scanned, axes->in_directions));
    TRY(scan_list(l, n, "scan_output_axes", s->stacked, axes->out));
    TRY(scan_list(l, n, "scan_output_directions", s->stacked, axes->out_directions));
    for (int i = 0; i < s->scanned; i++) {
        const Value *whole = n->inputs[s->states + i];
        if (whole->kind != VALUE_TENSOR || whole->rank < 1) return invalid(l, "scan input %d has no axis to scan", i);
        TRY(scan_axis(l, &axes->in[i], whole->rank));
    }
    return NULL;
}

/* The number of steps: that of a scan input, preferably a constant. */
static const Dim *scan_length(const Node *n, const ScanShape *s, const ScanAxes *axes) {
    const Dim *length = NULL;
    for (int i = 0; i < s->scanned; i++) {
        const Dim *size = n->inputs[s->states + i]->dims[axes->in[i]];
        if (!length || (dim_is_const(size, NULL) && !dim_is_const(length, NULL))) length = size;
    }
    return length;
}

static Status lower_scan(Lowering *l, const Node *n) {
    ScanShape s = {0};
    ScanAxes axes;
    TRY(scan_shape(l, n, &s));
    TRY(scan_axes(l, n, &s, &axes));
    Carried carried;
    carried_start(l, &carried, n->inputs, n->subgraphs[0]->inputs.items, s.states);
    TRY(lower_carried(l, n, &carried, 0, 0, set_scan_inputs));

    const Dim *length = scan_length(n, &s, &axes);
    Node *host = control_node(l, n, n->inputs, own_inputs(n), &carried.body, 1);
    if (!host) return l->error;
    for (int i = 0; i < s.states + s.stacked; i++) {
        ItemType type;
        const Value *result = carried.body->outputs.items[i];
        if (i < s.states) {
            type = carried_result(l, &carried, i, 0);
        } else {
            if (result->rank < 0) return unsupported(l, "scan output %d has no known rank", i - s.states);
            TRY(scan_axis(l, &axes.out[i - s.states], result->rank + 1));
            TRY(stacked_type(l, &carried, result, length, axes.out[i - s.states], &type));
        }
        if (i < n->output_count) TRY(control_result(l, n, host, i, &type));
    }
    node_set_ints(host, "scan_input_axes", axes.in, s.scanned);
    node_set_ints(host, "scan_input_directions", axes.in_directions, s.scanned);
    node_set_ints(host, "scan_output_axes", axes.out, s.stacked);
    node_set_ints(host, "scan_output_directions", axes.out_directions, s.stacked);
    return NULL;
}

static Value *sequence_ends(Lowering *l, const Node *n) {
    Value *inputs[] = {n->inputs[0], n->inputs[1 + own_inputs(n) - 1 - (int)attr_int(n, "num_scan_inputs", 0)]};
    if (inputs[0]->kind != VALUE_TENSOR || inputs[0]->dtype != DT_I64 || inputs[0]->rank != 1) {
        invalid(l, "sequence_lens is no int64 [batch]");
        return NULL;
    }
    Node *host = host_node(l, n, host_sequence_ends, inputs, 2);
    return host ? host_result(l, host, DT_I64, 1, (const Dim *const *)inputs[0]->dims) : NULL;
}

/* The batch element's Scan: a graph of one node, whose inputs are those of the batched node without the batch axis. With
 * lengths, the last of its own inputs is this element's. */
static Graph *scan_of_element(Lowering *l, const Node *n, int own, bool lengths) {
    Graph *body = graph_sub(l->graph, n->subgraphs[0]->name);
    int scanned = (int)attr_int(n, "num_scan_inputs", 0), states = own - scanned, given = 0;
    Value **inputs = ARENA_ARRAY(l->arena, Value *, own + n->captures + 1);
    for (int i = 0; i < own; i++) inputs[i] = graph_add_input(body, NULL, DT_NONE, -1, NULL);
    Value *length = lengths ? graph_add_input(body, NULL, DT_NONE, -1, NULL) : NULL;
    for (int i = 0; i < n->captures; i++) inputs[own + i] = graph_add_input(body, NULL, DT_NONE, -1, NULL);
    ShortSequence s = {0};
    if (length) s = short_sequence(body, length, inputs[states]);
    for (int i = states; length && i < own; i++) inputs[i] = up_to_end(body, &s, inputs[i]);
    Node *scan = graph_add_node(body, NULL, NODE_ONNX, "Scan", inputs, own + n->captures);
    scan->domain = n->domain;
    scan->opset = 9;
    scan->captures = n->captures;
    scan->origin = n->origin;
    node_add_subgraph(scan, clone_graph(body, n->subgraphs[0]));
    node_set_int(scan, "num_scan_inputs", scanned);
    const int64_t *directions = attr_ints(n, "directions", &given);
    if (given) node_set_ints(scan, "scan_input_directions", directions, given);
    for (int i = 0; i < n->subgraphs[0]->outputs.count; i++) {
        Value *result = node_add_output(scan, NULL, DT_NONE, -1, NULL);
        graph_add_output(body, length && i >= states ? zeros_behind(body, &s, result) : result);
    }
    return body;
}

/* Scan-8: sequence_lens (optional), states [batch, ...], scan inputs [batch, time, ...]; results likewise, with zeros
 * behind the end of a sequence. A Scan over the batch. */
static Status lower_scan_8(Lowering *l, const Node *n) {
    TRY(check_control(l, n, 1));
    int own = own_inputs(n) - 1;
    int64_t scanned = attr_int(n, "num_scan_inputs", 0);
    if (own < 1) return invalid(l, "expected scan inputs");
    if (scanned < 1 || scanned > own) return invalid(l, "num_scan_inputs is %lld", (long long)scanned);
    TRY(check_given(l, n, 1, own));
    Value *ends = n->inputs[0] ? sequence_ends(l, n) : NULL;
    if (l->error) return l->error;
    Value **inputs = ARENA_ARRAY(l->arena, Value *, own + 1 + n->captures);
    memcpy(inputs, n->inputs + 1, sizeof *inputs * (size_t)own);
    int count = own;
    if (ends) inputs[count++] = ends;
    memcpy(inputs + count, n->inputs + 1 + own, sizeof *inputs * (size_t)n->captures);
    Node *batched = graph_add_node(l->graph, (Node *)l->node, NODE_ONNX, "Scan", inputs, count + n->captures);
    batched->domain = n->domain;
    batched->opset = 9;
    batched->captures = n->captures;
    batched->origin = n->origin;
    node_set_int(batched, "num_scan_inputs", count);
    node_add_subgraph(batched, scan_of_element(l, n, own, ends != NULL));
    for (int i = 0; i < n->output_count; i++)
        node_attach_output(batched, n->outputs[i] ? graph_add_value(l->graph, NULL, DT_NONE, -1, NULL) : NULL);
    for (int i = 0; i < n->output_count; i++)
        if (n->outputs[i]) value_replace(l->graph, n->outputs[i], batched->outputs[i]);
    Status status = lower_scan(l, batched);
    graph_remove_node(l->graph, batched);
    return status;
}

const OpRow ops_control[] = {
    {"", "If", 1, 0, lower_if, host_refuse, OP_CONTROL_FLOW},
    {"", "Loop", 1, 0, lower_loop, NULL, OP_CONTROL_FLOW},
    {"", "Scan", 9, 0, lower_scan, NULL, OP_CONTROL_FLOW},
    {"", "Scan", 8, 8, lower_scan_8, host_sequence_ends, OP_CONTROL_FLOW},
    {"", "SequenceMap", 17, 0, lower_sequence_map, host_has_fewer_axes, OP_CONTROL_FLOW},
    {0},
};
