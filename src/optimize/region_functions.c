/* SPDX-License-Identifier: Apache-2.0 */
/* The way back from kernels to nodes is the origins that every pass keeps. */
#include "optimize/region_functions.h"

/* --- names --- */

static void name_nodes(RegionNames *names, Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        const char *given = node->origin.count ? node->origin.names[node->origin.count - 1] : node->op;
        const char *name = given;
        for (int i = 2; !*name || map_get(&names->nodes, name); i++)
            name = arena_format(names->arena, "%s#%d", *given ? given : node->op, i);
        map_set(&names->nodes, name, node);
        VEC_PUSH(names->arena, names->kept, (KeptOrigin){node, node->origin});
        node->origin = (Origin){arena_copy(names->arena, &name, sizeof name), 1};
        for (int i = 0; i < node->subgraph_count; i++) name_nodes(names, node->subgraphs[i]);
    }
}

RegionNames regions_name(Graph *graph) {
    RegionNames names = {.arena = graph->arena, .nodes = map_make(graph->arena)};
    name_nodes(&names, graph);
    return names;
}

void regions_restore(RegionNames *names) {
    for (int i = 0; i < names->kept.count; i++) names->kept.items[i].node->origin = names->kept.items[i].origin;
}

/* --- kernels -> nodes --- */

typedef struct Marking {
    Arena *arena;
    const RegionNames *names;
    Regions *regions;
} Marking;

static const char *kind_of(Arena *arena, const Node *node) {
    if (node->kind == NODE_ANCHOR) return arena_format(arena, "%s of the library, with what follows in it", node->op);
    int reductions = 0;
    const Graph *body = node->subgraphs[0];
    FOR_EACH_NODE(inner, body) reductions += inner->kind == NODE_PRIM && strncmp(inner->op, "reduce", 6) == 0;
    return arena_format(arena, "one kernel of %d primitives%s", body->node_count,
                        reductions ? ", with a reduction" : "");
}

static void mark_kernels(Marking *m, const Graph *partitioned) {
    FOR_EACH_NODE(kernel, partitioned) {
        if (kernel->kind != NODE_REGION && kernel->kind != NODE_ANCHOR) {
            for (int i = 0; i < kernel->subgraph_count; i++) mark_kernels(m, kernel->subgraphs[i]);
            continue;
        }
        VEC_PUSH(m->arena, m->regions->kinds, (RegionKind){kind_of(m->arena, kernel)});
        for (int i = 0; i < kernel->origin.count; i++) {
            Node *node = map_get(&m->names->nodes, kernel->origin.names[i]);
            if (node && !node->tag && !node->subgraph_count) node->tag = (uint64_t)m->regions->kinds.count;
        }
    }
}

/* --- no path leaves a region and comes back --- */

typedef struct Cluster {
    VEC(Node *) nodes; /* in topological order */
    int first, last;   /* numbers of its first and last node */
    int region;        /* 0: none */
    int visited;       /* mark of the latest search */
    bool placed;
} Cluster;

typedef VEC(Cluster *) Clusters;

typedef struct Splitting {
    Arena *arena;
    Graph *graph;
    Map open; /* region -> the Cluster * that its nodes still join */
    Clusters all, stack;
    int mark;
} Splitting;

static Cluster *cluster_of(const Node *node) { return (Cluster *)(uintptr_t)node->tag; }

static void visit(Splitting *s, Cluster *cluster, int first) {
    if (cluster->visited == s->mark || cluster->last < first) return;
    cluster->visited = s->mark;
    VEC_PUSH(s->arena, s->stack, cluster);
}

static void visit_inputs(Splitting *s, const Node *node, const Cluster *except, int first) {
    for (int i = 0; i < node->input_count; i++) {
        const Node *maker = node->inputs[i] ? node->inputs[i]->producer : NULL;
        if (maker && cluster_of(maker) != except) visit(s, cluster_of(maker), first);
    }
}

/* Whether a path from the cluster to the node leads through others. Those whose nodes all stand before it are not
 * searched. */
static bool is_reached(Splitting *s, const Node *node, const Cluster *from) {
    s->mark++;
    s->stack.count = 0;
    visit_inputs(s, node, from, from->first);
    while (s->stack.count) {
        const Cluster *at = s->stack.items[--s->stack.count];
        if (at == from) return true;
        for (int i = 0; i < at->nodes.count; i++) visit_inputs(s, at->nodes.items[i], at, from->first);
    }
    return false;
}

static void put(Splitting *s, Node *node, int number) {
    int region = (int)node->tag;
    Cluster *cluster = region ? map_get_id(&s->open, (uint64_t)region) : NULL;
    if (!cluster || is_reached(s, node, cluster)) {
        cluster = ARENA_NEW(s->arena, Cluster);
        cluster->first = number;
        cluster->region = region;
        VEC_PUSH(s->arena, s->all, cluster);
        if (region) map_set_id(&s->open, (uint64_t)region, cluster);
    }
    cluster->last = number;
    VEC_PUSH(s->arena, cluster->nodes, node);
    node->tag = MAP_POINTER_KEY(cluster);
}

/* A cluster that must come before and is not placed yet; NULL: none. */
static Cluster *waits_for(const Cluster *cluster) {
    for (int i = 0; i < cluster->nodes.count; i++) {
        const Node *node = cluster->nodes.items[i];
        for (int k = 0; k < node->input_count; k++) {
            const Node *maker = node->inputs[k] ? node->inputs[k]->producer : NULL;
            if (maker && cluster_of(maker) != cluster && !cluster_of(maker)->placed) return cluster_of(maker);
        }
    }
    return NULL;
}

/* All nodes in the order of their clusters. */
static void arrange(Splitting *s) {
    for (int i = 0; i < s->all.count; i++) {
        s->stack.count = 0;
        if (!s->all.items[i]->placed) VEC_PUSH(s->arena, s->stack, s->all.items[i]);
        while (s->stack.count) {
            Cluster *cluster = s->stack.items[s->stack.count - 1], *before = waits_for(cluster);
            if (before) {
                VEC_PUSH(s->arena, s->stack, before);
                continue;
            }
            s->stack.count--;
            cluster->placed = true;
            for (int k = 0; k < cluster->nodes.count; k++) graph_move_before(s->graph, cluster->nodes.items[k], NULL);
        }
    }
}

static void split_graph(Arena *arena, Graph *graph, Regions *regions, RegionKinds *kinds) {
    Splitting s = {.arena = arena, .graph = graph, .open = map_make(arena)};
    int number = 0;
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; i < node->subgraph_count; i++) split_graph(arena, node->subgraphs[i], regions, kinds);
        put(&s, node, number++);
    }
    arrange(&s);
    for (int i = 0; i < s.all.count; i++) {
        const Cluster *cluster = s.all.items[i];
        bool several = cluster->region && cluster->nodes.count > 1;
        if (several) VEC_PUSH(arena, *kinds, regions->kinds.items[cluster->region - 1]);
        if (several) regions->nodes += cluster->nodes.count;
        for (int k = 0; k < cluster->nodes.count; k++)
            cluster->nodes.items[k]->tag = several ? (uint64_t)kinds->count : 0;
    }
}

static void clear_tags(Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        node->tag = 0;
        for (int i = 0; i < node->subgraph_count; i++) clear_tags(node->subgraphs[i]);
    }
}

void regions_mark(Graph *graph, const RegionNames *names, const Graph *partitioned, Regions *out_regions) {
    Marking m = {graph->arena, names, out_regions};
    RegionKinds kinds = {0};
    *out_regions = (Regions){0};
    clear_tags(graph);
    mark_kernels(&m, partitioned);
    split_graph(graph->arena, graph, out_regions, &kinds);
    out_regions->kinds = kinds;
}
