/* SPDX-License-Identifier: Apache-2.0 */
/* The policy's rules: finds the nodes that each matches, and notes at the nodes what is wanted of them. Of two rules
 * that say the same of a node the later one holds.
 *
 *   precision   Node.wanted, which lowering follows (lowering/precision.c)
 *   weights     attribute weight_precision, which lowering hands to the node's anchor
 *   activations attribute rows_int8, likewise
 *   fuse false  a fence of its own: no later pass makes one step of it and another node
 *   device cpu  Node.on_host, and a fence around all such nodes, so that no step is of both
 *
 * In and out: LEVEL_ONNX; whole models, subgraphs included. */
#include <fnmatch.h>

#include "lowering/anchors.h"
#include "lowering/build.h"
#include "passes/passes.h"
#include "passes/pattern/pattern.h"

/* What holds of a node. */
typedef struct Wish {
    Node *node;
    const Rule *precision, *weights, *activations, *fuse, *device;
} Wish;

typedef struct Rules {
    const Policy *policy;
    Arena *arena; /* of the pass */
    Graph *root;
    Map wishes;      /* node -> Wish * */
    VEC(Wish *) all; /* in the order in which nodes were matched first */
    /* of the rule at hand */
    const Rule *rule;
    const Pattern *pattern;
    int matched, precise; /* nodes; those of them that have a precision */
} Rules;

/* --- conditions --- */
static bool has_name(const Node *node, const char *glob) {
    for (int i = 0; i < node->origin.count; i++)
        if (fnmatch(glob, node->origin.names[i], 0) == 0) return true;
    return node->origin.count == 0 && fnmatch(glob, node->op, 0) == 0;
}

static const char *domain_of(const Node *node) { return node->domain ? node->domain : ""; }

static bool matches(const Rule *rule, const Node *node) {
    return (!rule->op || strcmp(rule->op, node->op) == 0) &&
           (!rule->domain || strcmp(rule->domain, domain_of(node)) == 0) && (!rule->name || has_name(node, rule->name));
}

/* --- what a rule can do to a node --- */
static bool is_weighted(const Node *node) {
    const OpRow *row = node->custom ? NULL : ops_find(domain_of(node), node->op, node->opset);
    return row && row->flags & OP_WEIGHTED;
}

/* Of what no node makes the tag says nothing. */
static bool is_constant(const Value *v) { return v->constant || (v->producer && v->tag); }

/* Marks what is made of constants alone, which lowering folds: nodes stand in the order in which they are made. */
static void find_constants(Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        bool all = node->input_count > 0 && !node->subgraph_count;
        for (int i = 0; all && i < node->input_count; i++) all = !node->inputs[i] || is_constant(node->inputs[i]);
        for (int o = 0; o < node->output_count; o++)
            if (node->outputs[o]) node->outputs[o]->tag = all;
        for (int i = 0; i < node->subgraph_count; i++) find_constants(node->subgraphs[i]);
    }
}

static bool has_weight(const Node *node) {
    return is_weighted(node) && node->input_count > 1 && node->inputs[1] && is_constant(node->inputs[1]);
}

static bool has_precision(const Node *node) {
    return !node->custom && op_has_precision(domain_of(node), node->op, node->opset);
}

static Wish *wish_of(Rules *r, Node *node) {
    Wish *wish = map_get_id(&r->wishes, MAP_POINTER_KEY(node));
    if (wish) return wish;
    wish = ARENA_NEW(r->arena, Wish);
    *wish = (Wish){.node = node};
    map_set_id(&r->wishes, MAP_POINTER_KEY(node), wish);
    VEC_PUSH(r->arena, r->all, wish);
    return wish;
}

static Status take(Rules *r, Node *node) {
    const Rule *rule = r->rule;
    r->matched++;
    bool precise = rule->precision && has_precision(node), weighted = rule->weights && has_weight(node),
         meets = rule->activations && has_weight(node);
    const char *missed = rule->weights && !weighted ? "weights" : rule->activations && !meets ? "activations" : NULL;
    if (missed && !rule->optional)
        return status_error(STATUS_INVALID,
                            "%s.%s: node \"%s\" (%s) has no constant matrix that could be %s so; a narrower match, or "
                            "\"optional\": true, leaves it out",
                            rule->where, missed, node_origin_name(node), node->op,
                            weighted || !rule->weights ? "met" : "kept");
    r->precise += precise;
    if (!precise && !weighted && !meets && !rule->fuse && !rule->device) return NULL;
    Wish *wish = wish_of(r, node);
    if (precise) wish->precision = rule;
    if (weighted) wish->weights = rule;
    if (meets) wish->activations = rule;
    if (rule->fuse) wish->fuse = rule;
    if (rule->device) wish->device = rule;
    return NULL;
}

/* --- finding --- */
static Status take_places(Rules *r, Node *last) {
    Arena *arena = arena_create_inside(r->arena);
    PatternMatch match;
    Status status = NULL;
    if (pattern_match(r->pattern, arena, last, &match))
        for (int i = 0; i < match.node_count && !status; i++)
            if (matches(r->rule, match.nodes[i])) status = take(r, match.nodes[i]);
    arena_destroy(arena);
    return status;
}

static Status find(Rules *r, Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        if (r->pattern)
            TRY(take_places(r, node));
        else if (matches(r->rule, node))
            TRY(take(r, node));
        for (int i = 0; i < node->subgraph_count; i++) TRY(find(r, node->subgraphs[i]));
    }
    return NULL;
}

static Status find_all(Rules *r, const Rule *rule) {
    r->rule = rule;
    r->pattern = NULL;
    r->matched = r->precise = 0;
    if (rule->pattern)
        TRY(pattern_parse(r->arena, rule->pattern, arena_format(r->arena, "%s.match.pattern", rule->where),
                          &r->pattern));
    TRY(find(r, r->root));
    if (rule->optional) return NULL;
    if (!r->matched)
        return status_error(STATUS_INVALID, "%s.match: no node of the model matches (\"optional\": true allows it)",
                            rule->where);
    if (rule->precision && !r->precise)
        return status_error(STATUS_INVALID,
                            "%s.precision: no node that matches computes in a floating-point type of its "
                            "inputs (\"optional\": true allows it)",
                            rule->where);
    return NULL;
}

/* --- doing
 * ------------------------------------------------------------------------------------------------------------ */
static void note(Rules *r, const Rule *rule, const char *what, const Node *node) {
    Arena *arena = r->root->arena;
    Applied applied = {.what = arena_format(arena, "%s: %s", rule->where, what),
                       .node = arena_string(arena, node_origin_name(node))};
    VEC_PUSH(arena, r->root->info->applied, applied);
}

static DType type_of(Precision precision) {
    return precision == PRECISION_F16 ? DT_F16 : precision == PRECISION_BF16 ? DT_BF16 : DT_F32;
}

static void want(Rules *r, Node *node, const Rule *rule) {
    if (node->wanted && !node->wanted->what) return; /* what training computes beside the model */
    Arena *arena = r->root->arena;
    Wanted *wanted = ARENA_NEW(arena, Wanted);
    *wanted = (Wanted){.computes_in = type_of(rule->precision),
                       .what = arena_format(arena, "%s: precision %s", rule->where, precision_name(rule->precision))};
    node->wanted = wanted;
}

enum { HOST_FENCE = 1 }; /* around what runs on the CPU; fences of single nodes are above */

static void fulfil(Rules *r, const Wish *wish, int *fences) {
    Node *node = wish->node;
    if (wish->precision) want(r, node, wish->precision);
    if (wish->weights) {
        Precision weights = wish->weights->weights;
        node_set_int(node, WEIGHT_PRECISION, weights == PRECISION_F32 ? PRECISION_AS_IS : weights);
        note(r, wish->weights, arena_format(r->arena, "weights %s", precision_name(weights)), node);
    }
    if (wish->activations) {
        Precision activations = wish->activations->activations;
        node_set_int(node, ROWS_INT8, activations == PRECISION_INT8);
        note(r, wish->activations, arena_format(r->arena, "activations %s", precision_name(activations)), node);
    }
    if (wish->device) {
        node->on_host = true;
        node->fence = HOST_FENCE;
        note(r, wish->device, "device cpu", node);
    }
    if (wish->fuse && wish->fuse->fuse == FUSE_NEVER) {
        node->fence = ++*fences;
        note(r, wish->fuse, "fuse false", node);
    }
}

Status apply_rules(Graph *graph, const Policy *policy) {
    if (!policy->rule_count) return NULL;
    Arena *arena = arena_create_inside(graph->arena);
    Rules r = {.policy = policy, .arena = arena, .root = graph, .wishes = map_make(arena)};
    Status status = NULL;
    find_constants(graph);
    for (int i = 0; i < policy->rule_count && !status; i++)
        status = status_at(find_all(&r, &policy->rules[i]), "%s", policy_source(policy));
    int fences = HOST_FENCE;
    for (int i = 0; i < r.all.count && !status; i++) fulfil(&r, r.all.items[i], &fences);
    arena_destroy(arena);
    return status;
}
