/* SPDX-License-Identifier: Apache-2.0 */
/* Groups primitives into regions, each of which becomes one kernel.
 *
 * Nodes are visited in topological order; each joins the regions that make its inputs when the union
 *   - fits one iteration space (graph/space.h), so that one kernel can compute it;
 *   - is convex: nothing outside lies on a path between two of its nodes, other regions taken whole;
 *   - broadcasts no region: what was computed over few axes is not computed again along others; storing the small
 * tensor costs less;
 *   - stays within the policy's bound.
 * A value that several regions use is stored by the region that makes it and read by the others, so a residual stream
 * through L layers gives regions of bounded size. What is cheap to read through instead of storing (slices, expands) is
 * repeated for each reader beforehand.
 *
 * In: LEVEL_PRIM. Out: LEVEL_PARTITIONED. */
#include "passes/passes.h"

#include <stdlib.h>

#include "base/log.h"
#include "graph/space.h"
#include "lowering/prune.h"
#include "passes/memory_order.h"
#include "passes/region.h"
#include "passes/region_fits.h"

typedef struct Group {
    VEC(Node *) nodes;    /* in topological order */
    int first, last;      /* topological numbers of its first and last node */
    int part;             /* which one of those that are to be joined */
    uint64_t visited;     /* mark of the latest search */
    struct Group *merged; /* where its nodes went, or NULL */
    bool fusible;         /* false: a lone node that stays as it is */
    bool repeats;         /* all its nodes compute again what a forward node has computed (Node.repeats) */
} Group;

typedef VEC(Node *) Nodes;

typedef struct Partition {
    Graph *graph;
    const Policy *policy;
    Arena *arena;                  /* scratch of the pass */
    VEC(Group *) stack;            /* of a search */
    Nodes before, reached, joined; /* of a search, of the search for one node of it, of a merge that is tried */
    VEC(int) part_of;              /* [joined] */
    Fits *fits;
    Group **groups; /* [node number] */
    int count;
    uint64_t mark;
    Node **binders; /* [symbol]: the node that gives a symbol its value at run time, NULL for the inputs' symbols */
    int symbols;
    bool any_binder;
} Partition;

static int number_of(const Node *node) { return (int)node->tag; }

static Group *group_of(const Partition *p, const Node *node) {
    Group *g = p->groups[number_of(node)];
    while (g->merged) g = g->merged;
    return g;
}

/* --- what a node waits for ---------------------------------------------------------------------------------- */
/* The first to give a size at run time is the symbol's binder; NULL: it is there before the first node. */
static void note_binder(Partition *p, bool *given, const Dim *dim, Node *binder) {
    int symbol = dim_symbol_index(dim);
    if (symbol < 0 || given[symbol]) return;
    given[symbol] = true;
    p->binders[symbol] = binder;
    p->any_binder |= binder != NULL;
}

static void note_sizes(Partition *p, bool *given, const Value *value, Node *binder) {
    for (int d = 0; value && value->kind == VALUE_TENSOR && d < value->rank; d++)
        note_binder(p, given, value->dims[d], binder);
}

/* Sizes known only at run time: symbols that a bind_sizes step, or a host step by the shape of its result, defines. */
static void note_graph(Partition *p, bool *given, const Graph *graph) {
    bool own = graph == p->graph;
    for (int i = 0; i < graph->inputs.count; i++) note_sizes(p, given, graph->inputs.items[i], NULL);
    FOR_EACH_NODE(node, graph) {
        if (node->kind != NODE_HOST) continue;
        int count = 0;
        const Dim *const *bound = attr_dims(node, "symbols", &count);
        for (int i = 0; i < count; i++) note_binder(p, given, bound[i], own ? node : NULL);
        for (int o = 0; o < node->output_count; o++) note_sizes(p, given, node->outputs[o], own ? node : NULL);
    }
}

/* A body's run begins with the sizes that are known around it, so nothing in it waits for these. */
static void find_binders(Partition *p) {
    p->symbols = dim_symbol_count(p->graph->dims);
    p->binders = ARENA_ARRAY(p->arena, Node *, p->symbols);
    bool *given = ARENA_ARRAY(p->arena, bool, p->symbols);
    for (const Graph *around = p->graph->parent; around; around = around->parent) note_graph(p, given, around);
    note_graph(p, given, p->graph);
}

typedef struct Waiting {
    const Partition *p;
    Nodes *found;
    const Node *node;
} Waiting;

static void add_binder(int symbol, void *context) {
    Waiting *w = context;
    Node *binder = symbol < w->p->symbols ? w->p->binders[symbol] : NULL;
    if (!binder || binder == w->node) return;
    for (int i = 0; i < w->found->count; i++)
        if (w->found->items[i] == binder) return;
    VEC_PUSH(w->p->arena, *w->found, binder);
}

/* The nodes that must run before: the inputs' producers and whoever binds the symbols of the results' sizes. */
static void dependencies(const Partition *p, const Node *node, Nodes *found) {
    found->count = 0;
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && node->inputs[i]->producer) VEC_PUSH(p->arena, *found, node->inputs[i]->producer);
    if (!p->any_binder) return;
    Waiting waiting = {p, found, node};
    for (int o = 0; o < node->output_count; o++)
        for (int d = 0; node->outputs[o] && d < node->outputs[o]->rank; d++)
            dim_each_symbol(node->outputs[o]->dims[d], add_binder, &waiting);
    for (int a = 0; a < node->attrs.count; a++)
        if (node->attrs.items[a].kind == ATTR_DIMS)
            for (int d = 0; d < node->attrs.items[a].count; d++)
                dim_each_symbol(node->attrs.items[a].dims[d], add_binder, &waiting);
    for (int s = 0; s < node->subgraph_count; s++) FOR_EACH_NODE(inner, node->subgraphs[s]) {
            if (node->kind != NODE_REGION) break;
            for (int a = 0; a < inner->attrs.count; a++)
                if (inner->attrs.items[a].kind == ATTR_DIMS)
                    for (int d = 0; d < inner->attrs.items[a].count; d++)
                        dim_each_symbol(inner->attrs.items[a].dims[d], add_binder, &waiting);
        }
}

/* --- repeating what is cheap to read through ------------------------------------------------------------- */
static bool reads_through(const Node *node) {
    return node->kind == NODE_PRIM && (node->prim == PRIM_SLICE || node->prim == PRIM_EXPAND) && space_accepts(node);
}

static Node *repeat(Graph *graph, Node *node, Node *before) {
    Node *copy = graph_add_node(graph, before, node->kind, node->op, node->inputs, node->input_count);
    copy->prim = node->prim;
    for (int i = 0; i < node->attrs.count; i++) node_set_attr(copy, node->attrs.items[i]);
    copy->origin = node->origin;
    node_follow_rules(copy, node);
    const Value *v = node->outputs[0];
    node_add_output(copy, NULL, v->dtype, v->rank, v->dims);
    return copy;
}

/* To save memory: what is much larger than all it is made of, a mask spread over rows say, and not used too often. */
static bool is_spread(const Node *node) {
    enum { MOST_USES = 64 };
    if (node->kind != NODE_PRIM || !prim_is_elementwise(node->prim) || !space_accepts(node)) return false;
    const Value *v = node->outputs[0];
    int64_t elements;
    if (v->uses.count > MOST_USES || (dim_is_const(value_elements(node->graph, v), &elements) && elements <= 1))
        return false;
    for (int i = 0; i < node->input_count; i++) {
        const Value *in = node->inputs[i];
        bool whole = in->rank == v->rank && value_same_shape(in, v);
        if (!in->constant && in->producer && whole) return false; /* what lives for it is as large */
    }
    return true;
}

static void repeat_cheap(Graph *graph, const Policy *policy) {
    for (Node *node = graph->last, *prev; node; node = prev) { /* backwards, so that chains are repeated whole */
        prev = node->prev;
        if (!reads_through(node) && !(policy->fusion.memory_efficient && policy->fusion.enable && is_spread(node)))
            continue;
        Value *v = node->outputs[0];
        for (int i = v->uses.count - 1; i >= 0 && v->uses.count > 1; i--) {
            if (i >= v->uses.count) continue;
            Use use = v->uses.items[i];
            if (use.node->kind != NODE_PRIM || !space_accepts(use.node) || use.node->fence != node->fence) continue;
            node_set_input(use.node, use.index, repeat(graph, node, use.node)->outputs[0]);
        }
    }
}

/* --- growing ---------------------------------------------------------------------------------------------- */
/* Groups that are that far apart are not worth joining: what is small enough to wait that long costs little to store. The
 * bound keeps what one join may cost from growing with the model. */
enum { MOST_SEARCHED = 4096 }; /* nodes */

/* Whether `from` reaches any group marked `target` going backwards, or may; groups that end before `floor` cannot. */
static bool reaches(Partition *p, Group *from, uint64_t target, uint64_t seen, int floor, int *left) {
    p->stack.count = 0;
    VEC_PUSH(p->arena, p->stack, from);
    while (p->stack.count) {
        Group *g = p->stack.items[--p->stack.count];
        if (g->visited == target) return true;
        if (g->visited == seen || g->last < floor) continue;
        g->visited = seen;
        if ((*left -= g->nodes.count) < 0) return true;
        for (int n = 0; n < g->nodes.count; n++) {
            dependencies(p, g->nodes.items[n], &p->reached);
            for (int i = 0; i < p->reached.count; i++) {
                Group *next = group_of(p, p->reached.items[i]);
                if (next->visited != seen && next != g) VEC_PUSH(p->arena, p->stack, next);
            }
        }
    }
    return false;
}

/* Whether the groups together, with nothing else merged, have no path that leaves and comes back. */
static bool is_convex(Partition *p, Group *const *parts, int count) {
    uint64_t target = ++p->mark, seen = ++p->mark;
    int floor = parts[0]->first;
    for (int i = 0; i < count; i++)
        if (parts[i]->first < floor) floor = parts[i]->first;
    int left = MOST_SEARCHED;
    for (int k = 0; k < count; k++) parts[k]->visited = target;
    for (int k = 0; k < count; k++)
        for (int n = 0; n < parts[k]->nodes.count; n++) {
            dependencies(p, parts[k]->nodes.items[n], &p->before);
            for (int i = 0; i < p->before.count; i++) {
                Group *g = group_of(p, p->before.items[i]);
                if (g->visited == target || g->visited == seen) continue;
                if (reaches(p, g, target, seen, floor, &left)) return false;
            }
        }
    return true;
}

static int by_number(const void *a, const void *b) {
    return number_of(*(Node *const *)a) - number_of(*(Node *const *)b);
}

static bool merge(Partition *p, Group *const *parts, int count) {
    int total = 0;
    for (int i = 0; i < count; i++) {
        if (parts[i]->nodes.items[0]->fence != parts[0]->nodes.items[0]->fence) return false;
        total += parts[i]->nodes.count;
    }
    if (total > p->policy->fusion.max_region_nodes || !is_convex(p, parts, count)) return false;
    p->joined.count = 0;
    p->part_of.count = 0;
    for (int i = 0; i < count; i++) {
        parts[i]->part = i; /* the last one is the new node */
        for (int n = 0; n < parts[i]->nodes.count; n++) VEC_PUSH(p->arena, p->joined, parts[i]->nodes.items[n]);
    }
    Node **nodes = p->joined.items;
    qsort(nodes, (size_t)total, sizeof *nodes, by_number);
    for (int i = 0; i < total; i++) VEC_PUSH(p->arena, p->part_of, group_of(p, nodes[i])->part);
    const char *why = fits_region(p->fits, nodes, p->part_of.items, total, count);
    if (why) {
        LOG(3, "partition: %s does not join: %s", node_origin_name(nodes[total - 1]), why);
        return false;
    }
    Group *into = parts[0];
    for (int i = 1; i < count; i++) {
        parts[i]->merged = into;
        if (parts[i]->first < into->first) into->first = parts[i]->first;
        if (parts[i]->last > into->last) into->last = parts[i]->last;
    }
    for (int i = 0; i < count; i++) into->repeats &= parts[i]->repeats;
    into->nodes.count = 0;
    for (int i = 0; i < total; i++) VEC_PUSH(p->arena, into->nodes, nodes[i]);
    return true;
}

static void join(Partition *p, Node *node) {
    Group *self = group_of(p, node), *producers[16];
    int count = 0;
    for (int i = 0; i < node->input_count && count < 15; i++) {
        if (!node->inputs[i] || !node->inputs[i]->producer) continue;
        Group *g = group_of(p, node->inputs[i]->producer);
        bool known = !g->fusible || g == self || (node->repeats && !g->repeats);
        for (int k = 0; k < count; k++) known |= producers[k] == g;
        if (!known) producers[count++] = g;
    }
    if (count > 1) {
        producers[count] = self;
        if (merge(p, producers, count + 1)) return;
    }
    for (int k = count - 1; k >= 0; k--) { /* one at a time, then more with what it has become */
        Group *parts[2] = {producers[k], group_of(p, node)};
        if (parts[0]->merged || parts[0] == parts[1]) continue;
        merge(p, parts, 2);
    }
}

/* Who reads what a group makes ends no earlier than it: only then may `reaches` leave out what ends before. Nodes that join in their
 * order need no more than their own numbers. */
static void delay_readers(Partition *p, Group *group) {
    p->stack.count = 0;
    VEC_PUSH(p->arena, p->stack, group);
    while (p->stack.count) {
        Group *g = p->stack.items[--p->stack.count];
        for (int n = 0; n < g->nodes.count; n++)
            for (int o = 0; o < g->nodes.items[n]->output_count; o++) {
                const Value *v = g->nodes.items[n]->outputs[o];
                for (int i = 0; v && i < v->uses.count; i++) {
                    Group *reader = group_of(p, v->uses.items[i].node);
                    if (reader->last >= g->last) continue;
                    reader->last = g->last;
                    VEC_PUSH(p->arena, p->stack, reader);
                }
            }
    }
}

/* Sums of columns of what a region of rows reads, too, are taken in the same pass over memory. Not where nodes wait for others
 * that they do not read. */
static void join_columns(Partition *p) {
    if (p->any_binder) return;
    for (int i = 0; i < p->count; i++)
        if (!p->groups[i]->merged) delay_readers(p, p->groups[i]);
    FOR_EACH_NODE(node, p->graph) {
        if (node->kind != NODE_PRIM || node->prim != PRIM_REDUCE_SUM || !group_of(p, node)->fusible) continue;
        const Value *in = node->inputs[0];
        for (int i = 0; i < in->uses.count; i++) {
            Group *parts[2] = {group_of(p, in->uses.items[i].node), group_of(p, node)};
            if (!parts[0]->fusible || parts[0] == parts[1] || !merge(p, parts, 2)) continue;
            delay_readers(p, group_of(p, node));
            break;
        }
    }
}

/* --- making the region nodes ---------------------------------------------------------------------------------- */
static bool used_inside(const Partition *p, const Group *g, const Value *v) {
    for (int i = 0; i < v->uses.count; i++)
        if (group_of(p, v->uses.items[i].node) == g) return true;
    return false;
}

static void evict(Partition *p, Group *g, int index) {
    Node *node = g->nodes.items[index];
    memmove(g->nodes.items + index, g->nodes.items + index + 1, sizeof(Node *) * (size_t)(g->nodes.count - index - 1));
    g->nodes.count--;
    Group *own = ARENA_NEW(p->arena, Group);
    VEC_PUSH(p->arena, own->nodes, node);
    own->first = own->last = number_of(node);
    p->groups[number_of(node)] = own;
}

/* A reshape at a region's edge is free outside it, and inside it might be stored twice. */
static void evict_reshapes(Partition *p, Group *g) {
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < g->nodes.count; i++) {
            Node *node = g->nodes.items[i];
            if (node->prim != PRIM_RESHAPE) continue;
            const Node *producer = node->inputs[0]->producer;
            bool leading = !producer || group_of(p, producer) != g;
            if (leading || !used_inside(p, g, node->outputs[0])) {
                evict(p, g, i);
                again = true;
                break;
            }
        }
    }
}

static void make_region(Partition *p, Group *g) {
    uint64_t number = g->nodes.items[0]->tag;
    region_make(p->graph, p->arena, g->nodes.items, g->nodes.count)->tag = number;
}

/* --- putting the nodes in order again ------------------------------------------------------------------------- */
/* Depth-first from each node in list order, inputs first: keeps the list's order where it is already topological. */
static void sort_nodes(Partition *p) {
    Graph *graph = p->graph;
    Arena *arena = p->arena;
    int count = graph->node_count, done = 0;
    Node **order = ARENA_ARRAY(arena, Node *, count);
    typedef struct Frame {
        Node *node;
        Nodes before;
        int next;
    } Frame;
    find_binders(p);
    VEC(Frame) stack = {0};
    FOR_EACH_NODE(node, graph) node->tag = 0;
    FOR_EACH_NODE(start, graph) {
        if (start->tag) continue;
        start->tag = 1;
        VEC_PUSH(arena, stack, (Frame){start, {0}, 0});
        dependencies(p, start, &stack.items[0].before);
        while (stack.count) {
            Frame *top = &stack.items[stack.count - 1];
            if (top->next < top->before.count) {
                Node *before = top->before.items[top->next++];
                if (before->tag) continue;
                before->tag = 1;
                VEC_PUSH(arena, stack, (Frame){before, {0}, 0});
                dependencies(p, before, &stack.items[stack.count - 1].before);
            } else {
                order[done++] = top->node;
                stack.count--;
            }
        }
    }
    for (int i = 0; i < done; i++) graph_move_before(graph, order[i], NULL);
}

static void sort_for_memory(Partition *p) {
    int count = 0;
    Waits *nodes = ARENA_ARRAY(p->arena, Waits, p->graph->node_count + 1);
    Nodes found = {0};
    FOR_EACH_NODE(node, p->graph) {
        dependencies(p, node, &found);
        Node **before = ARENA_ARRAY(p->arena, Node *, found.count + 1);
        int distinct = 0;
        for (int i = 0; i < found.count; i++) {
            bool known = false;
            for (int k = 0; k < distinct; k++) known |= before[k] == found.items[i];
            if (!known) before[distinct++] = found.items[i];
        }
        nodes[count++] = (Waits){node, before, distinct};
    }
    order_for_memory(p->graph, p->policy, nodes, count);
}

/* A handful of elements is not worth a kernel, unless a GPU has made them: then the CPU would wait for it, and it for
 * the CPU. */
static bool is_worth_a_kernel(const Partition *p, const Node *node) {
    bool gpu = target_is_gpu(&p->policy->target);
    if (!is_tiny(node)) return true;
    for (int i = 0; gpu && i < node->input_count; i++) {
        const Node *from = node->inputs[i] ? node->inputs[i]->producer : NULL;
        if (!from) continue;
        if (from->kind == NODE_ANCHOR || from->kind == NODE_REGION || p->groups[from->tag]->fusible ||
            (from->kind == NODE_PRIM && !is_tiny(from)))
            return true;
    }
    return false;
}

Status partition(Graph *graph, const Policy *policy) {
    graph_prune(graph); /* a region without results would be no step */
    repeat_cheap(graph, policy);
    Partition p = {.graph = graph, .policy = policy, .arena = arena_create_inside(graph->arena)};
    p.fits = fits_create(p.arena, graph, graph->node_count, !target_is_gpu(&policy->target));
    p.groups = ARENA_ARRAY(p.arena, Group *, graph->node_count);
    find_binders(&p);
    FOR_EACH_NODE(node, graph) node->tag = (uint64_t)p.count++;
    FOR_EACH_NODE(node, graph) {
        Group *g = p.groups[node->tag] = ARENA_NEW(p.arena, Group);
        VEC_PUSH(p.arena, g->nodes, node);
        g->first = g->last = number_of(node);
        g->repeats = node->repeats;
        g->fusible = space_accepts(node) && is_worth_a_kernel(&p, node);
        if (g->fusible) g->fusible = !fits_region(p.fits, &node, &g->part, 1, 1);
    }
    if (policy->fusion.enable) FOR_EACH_NODE(node, graph)
    if (group_of(&p, node)->fusible) join(&p, node);
    VEC(Group *) fused = {0};
    for (int i = 0; i < p.count; i++)
        if (!p.groups[i]->merged && p.groups[i]->fusible) VEC_PUSH(p.arena, fused, p.groups[i]);
    for (int i = 0; i < fused.count; i++) evict_reshapes(&p, fused.items[i]);
    if (policy->fusion.enable) join_columns(&p);
    int regions = 0;
    for (int i = 0; i < fused.count; i++) {
        if (fused.items[i]->merged || !fused.items[i]->nodes.count) continue;
        make_region(&p, fused.items[i]);
        regions++;
    }
    sort_nodes(&p);
    if (policy->fusion.memory_efficient) sort_for_memory(&p);
    LOG(1, "partition: %d primitives, anchors and host steps became %d steps, %d of them regions", p.count,
        graph->node_count, regions);
    arena_destroy(p.arena);
    return NULL;
}
