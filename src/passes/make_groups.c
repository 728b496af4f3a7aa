/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of nodes that fusions without a kernel have made (custom.c), lowered by now, become a region each: one
 * kernel of their own, which later passes neither enter nor take anything out of. The nodes of a group stand side by
 * side, so a region in the place of its first waits for nothing behind it.
 *
 * In: LEVEL_PRIM. Out: LEVEL_PRIM, with regions that have an attribute "fusion". */
#include "passes/passes.h"

#include "base/log.h"
#include "graph/space.h"
#include "passes/region.h"

typedef VEC(Node *) Nodes;

typedef struct Groups {
    Graph *graph;
    Arena *arena;
    bool columns; /* as space_analyse has it */
} Groups;

static bool is_among(const Nodes *nodes, const Node *node) {
    for (int i = 0; i < nodes->count; i++)
        if (nodes->items[i] == node) return true;
    return false;
}

static bool is_read_inside(const Nodes *nodes, const Value *value) {
    for (int i = 0; i < value->uses.count; i++)
        if (is_among(nodes, value->uses.items[i].node)) return true;
    return false;
}

static void leave_out(Nodes *nodes, int index) {
    nodes->count--;
    memmove(nodes->items + index, nodes->items + index + 1, sizeof(Node *) * (size_t)(nodes->count - index));
}

/* What is made of sizes alone, a mean's divisor say, is known before the kernel runs. */
static bool is_of_sizes(const Nodes *nodes, const Node *node) {
    if (node->kind != NODE_PRIM) return false;
    if (node->prim == PRIM_DIMS) return true;
    bool tiny = node->input_count > 0 && is_tiny(node);
    for (int i = 0; i < node->input_count && tiny; i++) {
        const Node *from = node->inputs[i]->producer;
        tiny =
            node->inputs[i]->constant || (from && (from->prim == PRIM_DIMS || (from->group && !is_among(nodes, from))));
    }
    return tiny;
}

/* A reshape at the edge is free outside, where it is another view of the same memory. */
static bool is_edge_reshape(const Nodes *nodes, const Node *node) {
    if (node->kind != NODE_PRIM || node->prim != PRIM_RESHAPE) return false;
    const Node *from = node->inputs[0]->producer;
    return !from || !is_among(nodes, from) || !is_read_inside(nodes, node->outputs[0]);
}

static void leave_edges(Nodes *nodes) {
    for (int i = 0; i < nodes->count;) {
        if (is_of_sizes(nodes, nodes->items[i]))
            leave_out(nodes, i);
        else
            i++;
    }
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < nodes->count && !again; i++)
            if ((again = is_edge_reshape(nodes, nodes->items[i]))) leave_out(nodes, i);
    }
}

/* What is left out goes before the group, or behind it where it is made of the group's results. The tag marks the
 * latter. */
static void put_side_by_side(Groups *g, const Nodes *nodes) {
    Node *first = nodes->items[0], *last = nodes->items[nodes->count - 1];
    Nodes between = {0};
    for (Node *node = first; node != last; node = node->next)
        if (!is_among(nodes, node)) VEC_PUSH(g->arena, between, node);
    for (int i = 0; i < between.count; i++) {
        Node *node = between.items[i];
        bool after = false;
        for (int k = 0; k < node->input_count; k++) {
            const Node *from = node->inputs[k]->producer;
            after |= from && (from->tag == 1 || is_among(nodes, from));
        }
        node->tag = after;
        graph_move_before(g->graph, node, after ? last->next : first);
        if (after) last = node;
    }
    for (int i = 0; i < between.count; i++) between.items[i]->tag = 0;
}

static bool is_used_outside(const Nodes *nodes, const Value *value) {
    for (int i = 0; i < value->uses.count; i++)
        if (!is_among(nodes, value->uses.items[i].node)) return true;
    return value_is_output(value);
}

/* Why the nodes are not one kernel; NULL: they are. */
static const char *obstacle(const Groups *g, const Nodes *nodes) {
    Arena *arena = g->graph->arena;
    const char *why = NULL;
    for (int i = 0; i < nodes->count; i++) {
        const Node *node = nodes->items[i];
        if (!space_accepts(node))
            return arena_format(arena, "%s of node \"%s\" is computed by no kernel that others can join", node->op,
                                node_origin_name(node));
    }
    const Space *space = space_analyse(g->arena, g->graph->dims, nodes->items, nodes->count, g->columns, &why);
    if (!space) return arena_string(arena, why ? why : "its nodes have no common space of elements");
    for (int i = 0; i < nodes->count; i++) {
        const Value *value = nodes->items[i]->outputs[0];
        if (is_used_outside(nodes, value) && !space_covers(space, value))
            return arena_format(arena, "the result of node \"%s\" is smaller than what is computed beside it",
                                node_origin_name(nodes->items[i]));
    }
    return NULL;
}

static void note_not_made(ModelInfo *info, Arena *arena, int number, const char *reason) {
    NodeGroup *group = &info->groups.items[number - 1];
    int noted = group->original ? group->original : number;
    group->reason = reason;
    LOG(1, "fusion %s is not made: %s", group->name, reason);
    for (int i = 0; i < info->applied.count; i++)
        if (info->applied.items[i].group == noted)
            info->applied.items[i].what = arena_format(arena, "fusion %s, not made: %s", group->name, reason);
}

static Status make_one(Groups *g, const Nodes *all) {
    Nodes copy = {arena_copy(g->arena, all->items, sizeof(Node *) * (size_t)all->count), all->count, all->count};
    Nodes *nodes = &copy;
    Graph *graph = g->graph;
    int number = nodes->items[0]->group;
    const NodeGroup *group = &graph->info->groups.items[number - 1];
    leave_edges(nodes); /* by their group numbers */
    for (int i = 0; i < all->count; i++) all->items[i]->group = 0;
    if (!nodes->count) return NULL; /* all of it was constant */
    const char *reason = obstacle(g, nodes);
    if (reason) {
        if (group->required)
            return status_error(STATUS_UNSUPPORTED, "fusion %s, node \"%s\": it cannot be one kernel: %s", group->name,
                                node_origin_name(nodes->items[nodes->count - 1]), reason);
        note_not_made(graph->info, graph->arena, number, reason);
        return NULL;
    }
    put_side_by_side(g, nodes);
    Node *region = region_make(graph, g->arena, nodes->items, nodes->count);
    node_set_string(region, "fusion", group->name);
    return NULL;
}

Status make_groups(Graph *graph, const Policy *policy) {
    if (!graph->info->groups.count) return NULL;
    Groups g = {graph, NULL, !target_is_gpu(&policy->target)};
    FOR_EACH_NODE(node, graph) node->tag = 0;
    Status status = NULL;
    for (Node *node = graph->first, *next; node && !status; node = next) {
        int group = node->group;
        next = node->next;
        if (!group) continue;
        Nodes nodes = {0};
        g.arena = arena_create_inside(graph->arena);
        for (; node && node->group == group; node = node->next) VEC_PUSH(g.arena, nodes, node);
        next = node;
        status = make_one(&g, &nodes);
        arena_destroy(g.arena);
    }
    return status;
}
