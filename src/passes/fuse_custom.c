/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the fusions that the policy uses into the graph: the application's (policy->registry), the policy's own and the
 * built-in ones. With a kernel, the nodes of a place become one node of that operator; without, they get a group
 * number, by which groups.c makes them one region once they are lowered.
 *
 * The places of a pattern are looked for in the order of the nodes and do not overlap. Fusions that come first in the
 * list have their places first, and so have a fusion's first patterns. The nodes of a place are put next to each other,
 * behind what they read and before what reads them: so two places never wait for each other, and what they lower to
 * stays together.
 *
 * Where the graph is differentiated, the gradients of the places of a forward fusion are computed by the kernel of the backward one of its
 * name, whether forward is fused or not (adjoint.h).
 *
 * In and out: LEVEL_ONNX. */
#include "passes/passes.h"

#include "base/log.h"
#include "passes/adjoint.h"

/* Nodes looked at between a place's first and last: so many for each node of the graph, and some more. */
enum { SPAN_A_NODE = 256, SPAN_MORE = 1 << 20 };

typedef struct Fusion {
    const char *name; /* for messages: NAME, NAME.backward */
    const CustomOperator *kernel;
    bool required;                  /* an error when its nodes cannot be one kernel */
    const Pattern *const *patterns; /* [pattern_count] */
    int pattern_count, places;
    Adjoints adjoints; /* not empty: the patterns are those of the forward fusion, whose places keep their nodes */
} Fusion;

/* A fusion of any of the three sources. */
typedef struct Source {
    const char *name, *where; /* where: for messages about its patterns */
    int phase;
    const char *const *patterns;
    const CustomOperator *kernel;
    bool builtin;
} Source;

/* A place whose gradients a fusion makes. */
typedef struct AdjointPlace {
    const Fusion *fusion;
    const Pattern *backward, *forward;
    PatternMatch match;
} AdjointPlace;

typedef struct Fuser {
    Arena *arena;   /* of the pass */
    Arena *scratch; /* of one match; replaced now and then */
    Graph *root;
    VEC(Source) sources;
    VEC(Fusion) fusions;
    VEC(Fusion) adjoints; /* looked for first */
    Map differentiated;   /* names of values with respect to which there are derivatives */
    bool is_differentiated;
    /* of the graph at hand */
    Graph *graph;
    int64_t span_left;
    VEC(AdjointPlace) found;
} Fuser;

/* --- which fusions ------------------------------------------------------------------------------------------------ */

static void add_registry(Fuser *f, const Registry *registry, bool builtin) {
    for (int i = 0; registry && i < registry->fusions.count; i++) {
        const CustomFusion *fusion = registry->fusions.items[i];
        VEC_PUSH(f->arena, f->sources,
                 (Source){fusion->name, arena_format(f->arena, "fusion %s", fusion->name), fusion->phase,
                          fusion->patterns, fusion->kernel, builtin});
    }
}

static Status list_sources(Fuser *f, const Policy *policy) {
    add_registry(f, policy->registry, false);
    for (int i = 0; i < policy->fusion_count; i++) {
        const PolicyFusion *fusion = &policy->fusions[i];
        const char *where =
            arena_format(f->arena, "%s: %s, fusion %s", policy_source(policy), fusion->path, fusion->name);
        VEC_PUSH(f->arena, f->sources, (Source){fusion->name, where, fusion->phase, fusion->patterns, NULL, false});
    }
    add_registry(f, policy->builtins, true);
    for (int i = 0; i < f->sources.count; i++)
        for (int k = 0; k < i; k++) {
            const Source *a = &f->sources.items[k], *b = &f->sources.items[i];
            if (a->phase != b->phase || strcmp(a->name, b->name) != 0) continue;
            return status_error(STATUS_INVALID, "%s: there is a%s fusion of this name and phase already", b->where,
                                b->builtin ? " built-in" : "nother");
        }
    return NULL;
}

static const char *phase_name(int phase) { return phase == FUSION_BACKWARD ? "backward" : "forward"; }

/* NAME, NAME.forward or NAME.backward. */
static bool is_named(const Source *source, const char *wanted) {
    size_t length = strlen(source->name);
    if (strncmp(source->name, wanted, length) != 0) return false;
    return !wanted[length] || (wanted[length] == '.' && strcmp(wanted + length + 1, phase_name(source->phase)) == 0);
}

static Status unknown_name(const Fuser *f, const Policy *policy, int index) {
    Text known = text_make(f->arena);
    for (int i = 0; i < f->sources.count; i++)
        text_add(&known, "%s%s.%s", i ? ", " : "", f->sources.items[i].name, phase_name(f->sources.items[i].phase));
    return status_error(STATUS_INVALID, "%s: fusion.custom_kernels[%d]: there is no fusion \"%s\" (there %s %s)",
                        policy_source(policy), index, policy->fusion.custom_kernels[index],
                        f->sources.count == 1 ? "is" : "are", f->sources.count ? known.data : "none");
}

static Status check_names(const Fuser *f, const Policy *policy) {
    for (int i = 0; policy->fusion.custom_kernels && policy->fusion.custom_kernels[i]; i++) {
        bool found = false;
        for (int k = 0; k < f->sources.count; k++)
            found |= is_named(&f->sources.items[k], policy->fusion.custom_kernels[i]);
        if (!found) return unknown_name(f, policy, i);
    }
    return NULL;
}

static bool is_used(const Source *source, const Policy *policy) {
    if (!policy->fusion.custom_kernels) return !source->builtin;
    for (int i = 0; policy->fusion.custom_kernels[i]; i++)
        if (is_named(source, policy->fusion.custom_kernels[i])) return true;
    return false;
}

/* The forward fusion of the name, used or not, says where gradients are those of the backward one. */
static Status add_adjoints(Fuser *f, const Source *source, const Fusion *backward) {
    for (int i = 0; i < f->sources.count; i++) {
        const Source *forward = &f->sources.items[i];
        if (forward->phase == FUSION_BACKWARD || strcmp(forward->name, source->name) != 0) continue;
        Fusion fusion = {.name = backward->name, .kernel = source->kernel};
        fusion.adjoints = (Adjoints){source->name, backward->patterns, backward->pattern_count};
        TRY(pattern_parse_all(f->arena, forward->patterns, forward->where, &fusion.patterns, &fusion.pattern_count));
        VEC_PUSH(f->arena, f->adjoints, fusion);
    }
    return NULL;
}

static Status add_fusion(Fuser *f, const Source *source, bool used) {
    bool backward = source->phase == FUSION_BACKWARD;
    const char *where = arena_format(f->arena, "%s%s", source->where, backward ? " backward" : "");
    Fusion fusion = {.name = arena_format(f->root->arena, "%s%s", source->name, backward ? ".backward" : ""),
                     .kernel = source->kernel,
                     .required = !source->builtin};
    TRY(pattern_parse_all(f->arena, source->patterns, where, &fusion.patterns, &fusion.pattern_count));
    if (used) VEC_PUSH(f->arena, f->fusions, fusion);
    return used && backward && source->kernel && f->is_differentiated ? add_adjoints(f, source, &fusion) : NULL;
}

/* Also the patterns of fusions that are not used have to be right. */
static Status choose_fusions(Fuser *f, const Policy *policy) {
    TRY(list_sources(f, policy));
    TRY(check_names(f, policy));
    for (int i = 0; i < f->sources.count; i++) {
        const Source *source = &f->sources.items[i];
        bool used = is_used(source, policy);
        if (used || !source->builtin) TRY(add_fusion(f, source, used));
    }
    return NULL;
}

/* --- one place ---------------------------------------------------------------------------------------------------- */
/* While the pass runs, a node's tag is its number in the order; of nodes that are gone, REMOVED. */
enum { REMOVED = -1 };

static bool is_free(const Node *node) { return node->kind == NODE_ONNX && !node->custom && !node->group; }

static bool all_free(const PatternMatch *match) {
    for (int i = 0; i < match->node_count; i++)
        if (!is_free(match->nodes[i])) return false;
    return true;
}

/* What a node between the first and the last of a place is to it. */
enum { ASIDE, INSIDE, AFTER }; /* AFTER: reads, at least by others, what the place makes */

typedef struct Span {
    Node **nodes; /* [count] from the place's first to its last, by their numbers; NULL: no node has this number now */
    char *roles;  /* [count] */
    int count;
    uint64_t from; /* number of the first */
} Span;

static int role_of(const Span *span, const Node *node) {
    uint64_t at = node->tag - span->from;
    return node->tag >= span->from && at < (uint64_t)span->count && span->nodes[at] == node ? span->roles[at] : ASIDE;
}

static bool waits_for_place(const Span *span, const Node *node) {
    for (int i = 0; i < node->input_count; i++) {
        const Node *from = node->inputs[i] ? node->inputs[i]->producer : NULL;
        if (from && role_of(span, from) != ASIDE) return true;
    }
    return false;
}

static bool reads_after(const Span *span, const Node *node) {
    for (int i = 0; i < node->input_count; i++) {
        const Node *from = node->inputs[i] ? node->inputs[i]->producer : NULL;
        if (from && role_of(span, from) == AFTER) return true;
    }
    return false;
}

/* The nodes of a group made earlier stand side by side and wait together. */
static int end_of_unit(const Span *span, int at) {
    int end = at + 1, group = span->nodes[at]->group;
    while (group && end < span->count && span->nodes[end] && span->nodes[end]->group == group) end++;
    return end;
}

static Status span_of(Fuser *f, const Fusion *fusion, const PatternMatch *match, Span *span) {
    Node *first = match->nodes[0], *last = first;
    for (int i = 0; i < match->node_count; i++) {
        if (match->nodes[i]->tag < first->tag) first = match->nodes[i];
        if (match->nodes[i]->tag > last->tag) last = match->nodes[i];
    }
    *span = (Span){.count = (int)(last->tag - first->tag) + 1, .from = first->tag};
    f->span_left -= span->count;
    if (f->span_left < 0)
        return status_error(STATUS_UNSUPPORTED, "fusion %s: the nodes of its places stand too far apart", fusion->name);
    span->nodes = ARENA_ARRAY(f->scratch, Node *, span->count);
    span->roles = ARENA_ARRAY(f->scratch, char, span->count);
    for (Node *node = first; node != last->next; node = node->next) span->nodes[node->tag - span->from] = node;
    for (int i = 0; i < match->node_count; i++) span->roles[match->nodes[i]->tag - span->from] = INSIDE;
    return NULL;
}

/* Finds what has to stand after the place; false when the place would wait for some of it. */
static bool find_roles(const Span *span) {
    for (int at = 0, end; at < span->count; at = end) {
        end = at + 1;
        if (!span->nodes[at]) continue;
        end = end_of_unit(span, at);
        if (span->roles[at] == INSIDE) {
            if (reads_after(span, span->nodes[at])) return false;
            continue;
        }
        bool after = false;
        for (int i = at; i < end; i++) after |= waits_for_place(span, span->nodes[i]);
        for (int i = at; after && i < end; i++) span->roles[i] = AFTER;
    }
    return true;
}

/* What is aside, then the place, then what is after it; numbered as it stands now. */
static void put_together(Graph *graph, const Span *span) {
    static const char order[] = {ASIDE, INSIDE, AFTER};
    Node *behind = span->nodes[span->count - 1]->next;
    uint64_t number = span->from;
    for (size_t k = 0; k < sizeof order; k++)
        for (int i = 0; i < span->count; i++) {
            if (!span->nodes[i] || span->roles[i] != order[k]) continue;
            graph_move_before(graph, span->nodes[i], behind);
            span->nodes[i]->tag = number++;
        }
}

/* --- the two kinds of fusions --- */

static void note(Fuser *f, const Fusion *fusion, const PatternMatch *match, int group) {
    ModelInfo *info = f->root->info;
    Arena *arena = f->root->arena;
    const char *what = arena_format(arena, "fusion %s", fusion->name);
    for (int i = 0; i < match->node_count; i++)
        VEC_PUSH(arena, info->applied, (Applied){what, node_origin_name(match->nodes[i]), group});
    LOG(1, "fusion %s: %d nodes up to %s", fusion->name, match->node_count,
        node_origin_name(match->nodes[match->node_count - 1]));
}

static void make_group(Fuser *f, const Fusion *fusion, const PatternMatch *match) {
    ModelInfo *info = f->root->info;
    VEC_PUSH(f->root->arena, info->groups, (NodeGroup){fusion->name, fusion->required, NULL});
    for (int i = 0; i < match->node_count; i++) match->nodes[i]->group = info->groups.count;
}

static Origin merged_origin(const Fuser *f, const PatternMatch *match) {
    Origin *origins = ARENA_ARRAY(f->scratch, Origin, match->node_count);
    for (int i = 0; i < match->node_count; i++) origins[i] = match->nodes[match->node_count - 1 - i]->origin;
    return origin_merge(f->root->arena, origins, match->node_count);
}

static void make_node(Fuser *f, const Fusion *fusion, const Pattern *pattern, const PatternMatch *match) {
    Graph *graph = f->graph;
    Node *last = match->nodes[0];
    for (int i = 0; i < match->node_count; i++)
        if (match->nodes[i]->tag > last->tag) last = match->nodes[i];
    Node *node =
        graph_add_node(graph, last->next, NODE_ONNX, fusion->kernel->name, match->inputs, pattern_input_count(pattern));
    node->domain = fusion->kernel->domain;
    node->opset = fusion->kernel->since > 0 ? fusion->kernel->since : 1;
    node->custom = fusion->kernel;
    node->origin = merged_origin(f, match);
    node->tag = last->tag;
    for (int i = 0; i < pattern_capture_count(pattern); i++)
        node_set_float(node, arena_string(graph->arena, pattern_capture_name(pattern, i)), match->captures[i]);
    for (int i = 0; i < match->node_count; i++) {
        graph_remove_node(graph, match->nodes[i]);
        match->nodes[i]->group = REMOVED;
    }
    for (int i = 0; i < pattern_output_count(pattern); i++)
        node_attach_output(node, match->outputs[i] && value_is_read(match->outputs[i]) ? match->outputs[i] : NULL);
}

/* Derivatives with respect to what is made inside go their own ways. */
static bool is_differentiated_inside(const Fuser *f, const PatternMatch *match) {
    for (int i = 0; i < match->node_count; i++)
        for (int o = 0; o < match->nodes[i]->output_count; o++)
            if (match->nodes[i]->outputs[o] && map_get(&f->differentiated, match->nodes[i]->outputs[o]->name))
                return true;
    return false;
}

/* For a while the nodes of the place are a group, so that they stay together. */
static void note_adjoint(Fuser *f, const Fusion *fusion, const Pattern *backward, const Pattern *forward,
                         const PatternMatch *match) {
    AdjointPlace place = {fusion, backward, forward, *match};
    int count = match->node_count;
    place.match.nodes = arena_copy(f->arena, match->nodes, sizeof(Node *) * (size_t)count);
    place.match.inputs = arena_copy(f->arena, match->inputs, sizeof(Value *) * (size_t)pattern_input_count(forward));
    place.match.outputs = arena_copy(f->arena, match->outputs, sizeof(Value *) * (size_t)pattern_output_count(forward));
    place.match.captures =
        arena_copy(f->arena, match->captures, sizeof(double) * (size_t)pattern_capture_count(forward));
    VEC_PUSH(f->arena, f->found, place);
    for (int i = 0; i < count; i++) match->nodes[i]->group = f->found.count;
}

/* What the place reads of an earlier one it reads behind that one's node from now on. */
static void follow_results(AdjointPlace *place, const Node *adjoint) {
    Value **inputs = (Value **)(uintptr_t)place->match.inputs;
    for (int i = 0; i < pattern_input_count(place->forward); i++)
        for (int o = 0; o < adjoint->output_count; o++)
            if (inputs[i] == adjoint->inputs[o]) inputs[i] = adjoint->outputs[o];
}

static void insert_adjoints(Fuser *f) {
    for (int i = 0; i < f->found.count; i++) {
        const AdjointPlace *place = &f->found.items[i];
        Node *last = place->match.nodes[0];
        while (last->next && last->next->group == i + 1) last = last->next;
        const Node *adjoint = adjoint_insert(f->graph, last->next, place->fusion->adjoints.fusion, place->backward,
                                             place->forward, &place->match, merged_origin(f, &place->match));
        note(f, place->fusion, &place->match, 0);
        for (int k = i + 1; k < f->found.count; k++) follow_results(&f->found.items[k], adjoint);
    }
    for (int i = 0; i < f->found.count; i++)
        for (int k = 0; k < f->found.items[i].match.node_count; k++) f->found.items[i].match.nodes[k]->group = 0;
    f->found.count = 0;
}

static Status apply(Fuser *f, Fusion *fusion, const Pattern *pattern, const PatternMatch *match) {
    Span span;
    const Pattern *backward = NULL;
    if (fusion->adjoints.count) {
        backward = is_differentiated_inside(f, match) ? NULL : adjoint_choose(&fusion->adjoints, pattern, match);
        if (!backward) return NULL;
    }
    TRY(span_of(f, fusion, match, &span));
    if (!find_roles(&span)) return NULL;
    put_together(f->graph, &span);
    if (backward) {
        note_adjoint(f, fusion, backward, pattern, match);
    } else if (fusion->kernel) {
        note(f, fusion, match, 0);
        make_node(f, fusion, pattern, match);
    } else {
        make_group(f, fusion, match);
        note(f, fusion, match, f->root->info->groups.count);
    }
    fusion->places++;
    return NULL;
}

/* --- the graph --- */

static Status try_node(Fuser *f, Fusion *fusion, const Pattern *pattern, Node *node) {
    PatternMatch match;
    if (arena_bytes(f->scratch) > 1u << 20) {
        arena_destroy(f->scratch);
        f->scratch = arena_create_inside(f->root->arena);
    }
    if (!pattern_match(pattern, f->scratch, node, &match) || !all_free(&match)) return NULL;
    return apply(f, fusion, pattern, &match);
}

/* nodes: room for all of the graph's. */
static Status find_places(Fuser *f, Fusion *fusion, const Pattern *pattern, Node **nodes) {
    int count = f->graph->node_count, filled = 0;
    FOR_EACH_NODE(node, f->graph) {
        node->tag = (uint64_t)filled;
        nodes[filled++] = node;
    }
    for (int i = 0; i < count; i++)
        if (is_free(nodes[i])) TRY(try_node(f, fusion, pattern, nodes[i]));
    return NULL;
}

static Status find_all(Fuser *f, Fusion *fusions, int count) {
    Node **nodes = ARENA_ARRAY(f->arena, Node *, f->graph->node_count);
    for (int k = 0; k < count; k++)
        for (int i = 0; i < fusions[k].pattern_count; i++)
            TRY(find_places(f, &fusions[k], fusions[k].patterns[i], nodes));
    return NULL;
}

static Status fuse_graph(Fuser *f, Graph *graph) {
    FOR_EACH_NODE(node, graph)
    for (int i = 0; i < node->subgraph_count; i++) TRY(fuse_graph(f, node->subgraphs[i]));
    f->graph = graph;
    f->span_left = (int64_t)graph->node_count * SPAN_A_NODE + SPAN_MORE;
    TRY(find_all(f, f->adjoints.items, f->adjoints.count));
    insert_adjoints(f);
    return find_all(f, f->fusions.items, f->fusions.count);
}

static Status fuse(Fuser *f, const Policy *policy) {
    f->differentiated = map_make(f->arena);
    f->is_differentiated = adjoint_is_asked(f->root, &f->differentiated);
    TRY(choose_fusions(f, policy));
    if (f->fusions.count) TRY(fuse_graph(f, f->root));
    for (int k = 0; k < f->fusions.count; k++)
        LOG(1, "fusion %s: %d places", f->fusions.items[k].name, f->fusions.items[k].places);
    return NULL;
}

Status fuse_custom(Graph *graph, const Policy *policy) {
    if (!policy->registry && !policy->fusion_count && !policy->fusion.custom_kernels) return NULL;
    Fuser f = {.root = graph, .arena = arena_create_inside(graph->arena), .scratch = arena_create_inside(graph->arena)};
    Status status = fuse(&f, policy);
    arena_destroy(f.scratch);
    arena_destroy(f.arena);
    return status;
}
