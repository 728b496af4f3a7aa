/* SPDX-License-Identifier: Apache-2.0 */
/* SequenceMap. A body is lowered for elements of one rank. Where a run alone says how many axes these have, there is a copy
 * of the body for each rank that may occur, and Ifs around the copies choose by the element. */
#include "ops/control/sequence_map.h"

#include "base/integer.h"
#include "ops/control/bodies.h"
#include "ops/sequence/sequence.h"

typedef struct Mapped {
    Lowering *l;
    const Node *n;
    ItemType *types; /* [own inputs]: of the body's; of an open one with the rank of the present copy, or RANK_ANY */
    uint32_t *ranks; /* [own inputs]: bit r: an element of rank r may come; 0: its rank is known */
    bool copied;     /* some input is open */
    int base;        /* symbols from here on are made inside */
} Mapped;

/* The body for elements of these ranks. */
typedef struct Copy {
    int rank;            /* of the open input that is looked at: this one, up to the next copy's */
    Graph *body;         /* NULL: it cannot be lowered, */
    const char *failure; /* and why */
} Copy;

Status host_has_fewer_axes(HostCall *call) {
    const Tensor *tensor = host_input(call, 0);
    Tensor *result;
    if (!tensor) return host_error(call, "an element is no tensor");
    TRY(host_output(call, 0, DT_BOOL, 0, NULL, &result));
    if (result) *(uint8_t *)result->data = tensor->rank < attr_int(call->node, "axes", 0);
    return NULL;
}

static ItemType of_rank(Lowering *l, DType dtype, int rank) {
    const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, rank + 1);
    for (int i = 0; i < rank; i++) dims[i] = dim_fresh(l->dims, "element");
    return (ItemType){VALUE_TENSOR, dtype, rank, dims};
}

static ItemType of_any_rank(DType dtype) { return (ItemType){VALUE_TENSOR, dtype, RANK_ANY, NULL}; }

static Node *add_host(Graph *graph, const Node *n, const char *op, HostFn host, Value *const *inputs, int count) {
    Node *node = graph_add_node(graph, NULL, NODE_HOST, op, inputs, count);
    node->host = host;
    node->domain = "";
    node->opset = n->opset;
    node->origin = n->origin;
    node_follow_rules(node, n);
    return node;
}

/* A body that takes the one or the other, by the axes of its input number `input`. */
static Status add_choice(const Mapped *m, int input, int axes, Graph *const *sides, Graph **out_body) {
    Lowering *l = m->l;
    int inputs = sides[0]->inputs.count;
    Graph *body = graph_sub(l->graph, m->n->subgraphs[0]->name);
    for (int i = 0; i < inputs; i++) {
        const Value *model = sides[0]->inputs.items[i];
        pass_type(graph_add_input(body, model->name, DT_NONE, -1, NULL), model);
    }
    item_type_set(l, body->inputs.items[input], &m->types[input]);
    Node *test = add_host(body, m->n, m->n->op, host_has_fewer_axes, &body->inputs.items[input], 1);
    node_set_int(test, "axes", axes);
    node_set_int(test, "any_rank", 1);
    Value **passed = ARENA_ARRAY(l->arena, Value *, inputs + 1);
    passed[0] = node_add_output(test, NULL, DT_BOOL, 0, NULL);
    int captures = pass_read(sides, 2, 0, body->inputs.items, passed + 1);
    Node *choice = add_host(body, m->n, "If", NULL, passed, 1 + captures);
    choice->captures = captures;
    for (int k = 0; k < 2; k++) {
        sides[k]->parent = body;
        node_add_subgraph(choice, sides[k]);
    }
    for (int i = 0; i < sides[0]->outputs.count; i++) {
        ItemType types[2], joined;
        for (int k = 0; k < 2; k++) types[k] = outer_type(l, sides[k]->outputs.items[i], m->base);
        if (!item_type_join(l, &types[0], &types[1], "element", &joined))
            return invalid(l, "output %d of the body has another type for elements of %d axes than for those of fewer",
                           i, axes);
        Value *result = node_add_output(choice, NULL, DT_NONE, -1, NULL);
        item_type_set(l, result, &joined);
        graph_add_output(body, result);
    }
    *out_body = body;
    return NULL;
}

static Status choose(const Mapped *m, int input, const Copy *copies, int count, Graph **out_body) {
    Graph *sides[2];
    *out_body = copies->body;
    if (count == 1) return NULL;
    TRY(choose(m, input, copies, count / 2, &sides[0]));
    TRY(choose(m, input, copies + count / 2, count - count / 2, &sides[1]));
    return add_choice(m, input, copies[count / 2].rank, sides, out_body);
}

/* Bodies that fail when they are taken, where an element has axes of which the body makes nothing. */
static void refuse_others(const Mapped *m, int input, Copy *copies, int count) {
    const Graph *model = NULL;
    for (int i = 0; i < count; i++)
        if (copies[i].body) model = copies[i].body;
    ItemType *types = ARENA_ARRAY(m->l->arena, ItemType, model->outputs.count);
    for (int i = 0; i < model->outputs.count; i++) types[i] = outer_type(m->l, model->outputs.items[i], m->base);
    for (int i = 0; i < count; i++) {
        if (copies[i].body) continue;
        copies[i].body =
            refusal(m->l, m->n, model, types,
                    arena_format(m->l->arena, "the body cannot be computed of an element of so many axes: %s",
                                 copies[i].failure));
        item_type_set(m->l, copies[i].body->inputs.items[input], &m->types[input]);
    }
}

static Status lower_copy(const Mapped *m, Graph **out_body) {
    Graph *body = *out_body = m->copied ? clone_graph(m->l->graph, m->n->subgraphs[0]) : m->n->subgraphs[0];
    for (int i = 0; i < own_inputs(m->n); i++) item_type_set(m->l, body->inputs.items[i], &m->types[i]);
    pass_captures(m->n, body);
    return lower_subgraph(m->l, body);
}

/* The body for elements whose inputs before `input` have the ranks that stand in m->types, and the others any that may come. */
static Status lower_from(Mapped *m, int input, Graph **out_body) {
    while (input < own_inputs(m->n) && !m->ranks[input]) input++;
    if (input == own_inputs(m->n)) return lower_copy(m, out_body);
    Copy copies[MAX_RANK + 1];
    DType dtype = m->types[input].dtype;
    int count = 0, fit = 0;
    Status first = NULL;
    for (int rank = 0; rank <= MAX_RANK; rank++) {
        if (!(m->ranks[input] >> rank & 1)) continue;
        Copy copy = {.rank = rank};
        m->types[input] = of_rank(m->l, dtype, rank);
        Status failure = lower_from(m, input + 1, &copy.body);
        if (!may_be_refused(failure)) {
            status_free(first);
            return failure;
        }
        if (failure) copy.body = NULL;
        if (failure) copy.failure = arena_format(m->l->arena, "%s", status_message(failure));
        if (!first)
            first = failure;
        else
            status_free(failure);
        fit += copy.body != NULL;
        bool joins = count && !copy.body && !copies[count - 1].body;
        if (!joins) copies[count++] = copy;
    }
    m->types[input] = of_any_rank(dtype);
    if (!fit) return first;
    status_free(first);
    refuse_others(m, input, copies, count);
    return choose(m, input, copies, count, out_body);
}

/* Of the body's input `index`. */
static void find_type(Mapped *m, int index) {
    const Value *given = m->n->inputs[index], *declared = m->n->subgraphs[0]->inputs.items[index];
    ItemType type = item_type_of(given);
    if (type.kind == VALUE_SEQUENCE) {
        type.kind = VALUE_TENSOR;
        if (type.rank < 0 && declared->rank >= 0) {
            type.rank = declared->rank;
            type.dims = (const Dim *const *)declared->dims;
            type = item_type_held(m->l, type, VALUE_TENSOR);
        }
        if (type.rank < 0) {
            m->ranks[index] = sequence_ranks(given);
            m->copied = true;
            type = of_any_rank(type.dtype);
        }
        type.dims = item_type_sizes(m->l, &type, "element");
    }
    m->types[index] = type;
}

static int log2_above(int64_t n) {
    int power = 0;
    while (INT64_C(1) << power < n) power++;
    return power;
}

/* Copies of copies are refused where they come to too many nodes. */
static Status lower_body(Mapped *m, Graph **out_body) {
    Lowering *l = m->l;
    int64_t copies = 1, nodes = 0;
    int around = l->tails, open = 0;
    for (int i = 0; i < own_inputs(m->n); i++) {
        if (!m->ranks[i]) continue;
        copies = least(copies * __builtin_popcount(m->ranks[i]), MOST_COPIES + 1);
        open++;
    }
    FOR_EACH_NODE(node, m->n->subgraphs[0]) nodes++;
    bool within = open > 1 || (open && around);
    if (within && (around >= log2_above(MOST_COPIES) || (copies * nodes) << around > MOST_COPIES))
        return unsupported(l, "it maps sequences of tensors whose ranks are not declared, for all of which its body "
                              "would be copied too often");
    l->tails += log2_above(copies);
    Status status = lower_from(m, 0, out_body);
    l->tails = around;
    return status;
}

Status lower_sequence_map(Lowering *l, const Node *n) {
    TRY(check_control(l, n, 1));
    int own = own_inputs(n);
    if (own < 1) return invalid(l, "expected a sequence");
    TRY(check_body(l, n, n->subgraphs[0], own, n->output_count));
    TRY(check_given(l, n, 0, own));
    if (n->inputs[0]->kind != VALUE_SEQUENCE) return invalid(l, "the first input is no sequence");
    Mapped m = {.l = l, .n = n, .base = dim_symbol_count(l->dims)};
    m.types = ARENA_ARRAY(l->arena, ItemType, own);
    m.ranks = ARENA_ARRAY(l->arena, uint32_t, own);
    for (int i = 0; i < own; i++) find_type(&m, i);
    Graph *body;
    TRY(lower_body(&m, &body));
    Node *host = control_node(l, n, n->inputs, own, &body, 1);
    if (!host) return l->error;
    for (int i = 0; i < n->output_count; i++) {
        ItemType type = outer_type(l, body->outputs.items[i], m.base);
        if (type.kind != VALUE_TENSOR) return invalid(l, "output %d of the body is no tensor", i);
        type = item_type_held(l, type, VALUE_SEQUENCE);
        TRY(control_result(l, n, host, i, &type));
    }
    return NULL;
}
