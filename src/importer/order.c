/* SPDX-License-Identifier: Apache-2.0 */
/* A topological order of a list of nodes. Files are nearly always in order already; then nothing is moved. What a node
 * reads are its inputs and whatever its subgraphs, at any depth, read from outside themselves. */
#include "importer/build.h"

typedef struct Reads {
    Arena *arena;
    VEC(const char *) names;
} Reads;

/* Names that a nested graph defines itself. */
typedef struct Bound {
    const struct Bound *outer;
    Map names;
} Bound;

static bool is_bound(const Bound *bound, const char *name) {
    for (; bound; bound = bound->outer)
        if (map_get(&bound->names, name)) return true;
    return false;
}

static void add_read(Reads *reads, const Bound *bound, const char *name) {
    if (name && *name && !is_bound(bound, name)) VEC_PUSH(reads->arena, reads->names, name);
}

static void bind(Bound *bound, const char *name) {
    if (name && *name) map_set(&bound->names, name, bound);
}

static void add_graph_reads(Reads *reads, const Bound *outer, const Onnx__GraphProto *graph);

static void add_node_reads(Reads *reads, const Bound *bound, const Onnx__NodeProto *node) {
    for (size_t i = 0; i < node->n_input; i++) add_read(reads, bound, node->input[i]);
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__AttributeProto *attribute = node->attribute[i];
        if (attribute->g) add_graph_reads(reads, bound, attribute->g);
        for (size_t k = 0; k < attribute->n_graphs; k++) add_graph_reads(reads, bound, attribute->graphs[k]);
    }
}

static void add_graph_reads(Reads *reads, const Bound *outer, const Onnx__GraphProto *graph) {
    Bound bound = {outer, map_make(reads->arena)};
    for (size_t i = 0; i < graph->n_input; i++) bind(&bound, graph->input[i]->name);
    for (size_t i = 0; i < graph->n_initializer; i++) bind(&bound, graph->initializer[i]->name);
    for (size_t i = 0; i < graph->n_sparse_initializer; i++)
        if (graph->sparse_initializer[i]->values) bind(&bound, graph->sparse_initializer[i]->values->name);
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_output; k++) bind(&bound, graph->node[i]->output[k]);
    for (size_t i = 0; i < graph->n_node; i++) add_node_reads(reads, &bound, graph->node[i]);
    for (size_t i = 0; i < graph->n_output; i++) add_read(reads, &bound, graph->output[i]->name);
}

/* Who reads whom: node i reads the nodes to[from[i] .. from[i + 1]). */
typedef struct Edges {
    int *from;
    VEC(int) to;
    bool forward; /* some node reads itself or a later one */
} Edges;

static Edges find_edges(Arena *arena, Onnx__NodeProto *const *nodes, int count) {
    Map producers = map_make(arena); /* name -> index + 1 */
    map_reserve(&producers, count);
    for (int i = 0; i < count; i++)
        for (size_t k = 0; k < nodes[i]->n_output; k++)
            if (*nodes[i]->output[k]) map_set(&producers, nodes[i]->output[k], (void *)(uintptr_t)(i + 1));
    Edges edges = {.from = ARENA_ARRAY(arena, int, count + 1)};
    Reads reads = {.arena = arena};
    for (int i = 0; i < count; i++) {
        edges.from[i] = edges.to.count;
        reads.names.count = 0;
        add_node_reads(&reads, NULL, nodes[i]);
        for (int k = 0; k < reads.names.count; k++) {
            int producer = (int)(uintptr_t)map_get(&producers, reads.names.items[k]) - 1;
            if (producer < 0) continue;
            VEC_PUSH(arena, edges.to, producer);
            edges.forward |= producer >= i;
        }
    }
    edges.from[count] = edges.to.count;
    return edges;
}

enum { UNSEEN, OPEN, DONE };

/* Depth first from each node in the file's order, what it reads before it. The stack is our own: chains are long. */
static Status sort(Importer *im, const Edges *edges, Onnx__NodeProto *const *nodes, int count, int *order) {
    Arena *arena = im->scratch;
    int *stack = ARENA_ARRAY(arena, int, count), *next = ARENA_ARRAY(arena, int, count), done = 0;
    char *state = arena_alloc(arena, (size_t)count);
    for (int root = 0; root < count; root++) {
        int depth = 0;
        if (state[root] == UNSEEN) {
            stack[depth++] = root;
            state[root] = OPEN;
            next[root] = edges->from[root];
        }
        while (depth) {
            int node = stack[depth - 1];
            if (next[node] == edges->from[node + 1]) {
                state[node] = DONE;
                order[done++] = node;
                depth--;
                continue;
            }
            int read = edges->to.items[next[node]++];
            if (state[read] == OPEN)
                return status_error(STATUS_INVALID, "node \"%s\" (%s): its inputs depend on its own outputs, a cycle",
                                    shown(im, node_name(im, nodes[read], read)), shown(im, nodes[read]->op_type));
            if (state[read] == DONE) continue;
            stack[depth++] = read;
            state[read] = OPEN;
            next[read] = edges->from[read];
        }
    }
    return NULL;
}

Status order_nodes(Importer *im, Onnx__NodeProto *const *nodes, size_t count, const int **out_order) {
    static const int in_order;
    const int *known = count ? map_get_id(&im->orders, MAP_POINTER_KEY(nodes)) : &in_order;
    if (!known) {
        Edges edges = find_edges(im->scratch, nodes, (int)count);
        known = &in_order;
        if (edges.forward) {
            int *order = ARENA_ARRAY(im->scratch, int, count);
            TRY(sort(im, &edges, nodes, (int)count, order));
            known = order;
        }
        map_set_id(&im->orders, MAP_POINTER_KEY(nodes), (void *)(uintptr_t)known);
    }
    *out_order = known == &in_order ? NULL : known;
    return NULL;
}
