/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a partitioned graph's nodes that holds least at once, for fusion.memory_efficient. Several topological
 * orders are tried on stand-in sizes, and the one with the lowest peak is taken; as it was where none is lower:
 *
 *   greedy        of the nodes that can run next the one that frees most beyond what it makes
 *   depth first   from the nodes that nothing reads, what needs most before what needs less (Sethi and Ullman, "The
 *                 Generation of Optimal Code for Arithmetic Expressions", JACM 17, 1970, for values of any size)
 *
 * In and out: LEVEL_PARTITIONED. */
#include "passes/memory_order.h"

#include <stdlib.h>

#include "base/log.h"
#include "lowering/sizes.h"

enum { MOST_FOR_GREEDY = 20000 /* it looks at all that can run next */ };
static const int64_t LARGEST = (int64_t)1 << 40; /* bytes of one value */

/* Memory that a value, and the reshapes of it, live in. */
typedef struct Room {
    int64_t bytes;
    int readers; /* nodes */
} Room;

typedef struct Order {
    Graph *graph;
    Arena *arena;
    const Waits *nodes; /* [count] in topological order; a node's tag is its number */
    int count;
    VEC(Room) rooms;
    int *left;        /* [rooms] readers still to come */
    VEC(int) * reads; /* [count] rooms, each once */
    VEC(int) * makes; /* [count] rooms */
} Order;

/* --- sizes --- */
static int64_t bytes_of(const Value *v, const int64_t *sizes) {
    int64_t bytes = (int64_t)dtype_size(v->dtype);
    for (int d = 0; v->kind == VALUE_TENSOR && d < v->rank; d++) {
        int64_t size = dim_eval(v->dims[d], sizes);
        if (size <= 0) return 0;
        bytes = bytes > LARGEST / size ? LARGEST : bytes * size;
    }
    return bytes;
}

static bool is_alias(const Node *node) { return node->kind == NODE_PRIM && node->prim == PRIM_RESHAPE; }

static bool has(const int *items, int count, int item) {
    for (int i = 0; i < count; i++)
        if (items[i] == item) return true;
    return false;
}

/* A value's tag is 1 + its room, 0 where it takes none: constants, and inputs and outputs of the graph. */
static void find_rooms(Order *o, const int64_t *sizes) {
    for (int i = 0; i < o->graph->values.count; i++) o->graph->values.items[i]->tag = 0;
    for (int n = 0; n < o->count; n++) {
        const Node *node = o->nodes[n].node;
        for (int i = 0; i < node->input_count; i++) {
            int room = node->inputs[i] ? (int)node->inputs[i]->tag - 1 : -1;
            if (room < 0 || has(o->reads[n].items, o->reads[n].count, room)) continue;
            VEC_PUSH(o->arena, o->reads[n], room);
            o->rooms.items[room].readers++;
        }
        for (int k = 0; k < node->output_count; k++) {
            Value *v = node->outputs[k];
            if (!v) continue;
            if (is_alias(node)) {
                v->tag = node->inputs[0]->tag;
            } else if (!value_is_output(v)) {
                VEC_PUSH(o->arena, o->rooms, (Room){.bytes = bytes_of(v, sizes)});
                v->tag = (uint64_t)o->rooms.count;
                VEC_PUSH(o->arena, o->makes[n], o->rooms.count - 1);
            }
        }
    }
}

/* --- what an order comes to --- */
static void start(Order *o) {
    for (int r = 0; r < o->rooms.count; r++) o->left[r] = o->rooms.items[r].readers;
}

static int64_t made(const Order *o, int n) {
    int64_t bytes = 0;
    for (int i = 0; i < o->makes[n].count; i++) bytes += o->rooms.items[o->makes[n].items[i]].bytes;
    return bytes;
}

/* By the node when it runs next. */
static int64_t freed(const Order *o, int n) {
    int64_t bytes = 0;
    for (int i = 0; i < o->reads[n].count; i++)
        if (o->left[o->reads[n].items[i]] == 1) bytes += o->rooms.items[o->reads[n].items[i]].bytes;
    for (int i = 0; i < o->makes[n].count; i++)
        if (!o->rooms.items[o->makes[n].items[i]].readers) bytes += o->rooms.items[o->makes[n].items[i]].bytes;
    return bytes;
}

static void run(Order *o, int n) {
    for (int i = 0; i < o->reads[n].count; i++) o->left[o->reads[n].items[i]]--;
}

static int64_t peak_of(Order *o, const int *order) {
    int64_t live = 0, peak = 0;
    start(o);
    for (int i = 0; i < o->count; i++) {
        live += made(o, order[i]);
        if (live > peak) peak = live;
        live -= freed(o, order[i]);
        run(o, order[i]);
    }
    return peak;
}

/* --- orders
 * ----------------------------------------------------------------------------------------------------------- */
static void as_it_was(Order *o, int *order) {
    for (int i = 0; i < o->count; i++) order[i] = i;
}

static void greedy(Order *o, int *order) {
    int *waiting = ARENA_ARRAY(o->arena, int, o->count + 1);
    VEC(int) *after = arena_array(o->arena, (size_t)o->count + 1, sizeof *after);
    VEC(int) ready = {0};
    start(o);
    for (int n = 0; n < o->count; n++) {
        waiting[n] = o->nodes[n].count;
        for (int i = 0; i < o->nodes[n].count; i++) VEC_PUSH(o->arena, after[(int)o->nodes[n].before[i]->tag], n);
        if (!waiting[n]) VEC_PUSH(o->arena, ready, n);
    }
    for (int done = 0; ready.count; done++) {
        int best = 0;
        int64_t least = INT64_MAX;
        for (int i = 0; i < ready.count; i++) {
            int64_t growth = made(o, ready.items[i]) - freed(o, ready.items[i]);
            if (growth < least || (growth == least && ready.items[i] < ready.items[best])) least = growth, best = i;
        }
        int n = ready.items[best];
        ready.items[best] = ready.items[--ready.count];
        order[done] = n;
        run(o, n);
        for (int i = 0; i < after[n].count; i++)
            if (--waiting[after[n].items[i]] == 0) VEC_PUSH(o->arena, ready, after[n].items[i]);
    }
}

typedef struct Need {
    int node;
    int64_t need, result;
} Need;

static int by_surplus(const void *a, const void *b) {
    const Need *x = a, *y = b;
    int64_t p = x->need - x->result, q = y->need - y->result;
    return p != q ? (p > q ? -1 : 1) : x->node - y->node;
}

/* What a node waits for, in the order in which it is best made; as if each were made for it alone. */
static Need *sorted_before(Order *o, int n, const Need *needs) {
    int count = o->nodes[n].count;
    Need *before = ARENA_ARRAY(o->arena, Need, count + 1);
    for (int i = 0; i < count; i++) before[i] = needs[(int)o->nodes[n].before[i]->tag];
    qsort(before, (size_t)count, sizeof *before, by_surplus);
    return before;
}

static void depth_first(Order *o, int *order) {
    typedef struct Frame {
        int node, next;
    } Frame;
    Need *needs = ARENA_ARRAY(o->arena, Need, o->count + 1), **before = ARENA_ARRAY(o->arena, Need *, o->count + 1);
    bool *seen = ARENA_ARRAY(o->arena, bool, o->count + 1), *read = ARENA_ARRAY(o->arena, bool, o->count + 1);
    VEC(Frame) stack = {0};
    int done = 0;
    for (int n = 0; n < o->count; n++) {
        int64_t held = 0, most = 0;
        before[n] = sorted_before(o, n, needs);
        for (int i = 0; i < o->nodes[n].count; i++) {
            if (held + before[n][i].need > most) most = held + before[n][i].need;
            held += before[n][i].result;
            read[before[n][i].node] = true;
        }
        int64_t result = made(o, n);
        needs[n] = (Need){n, held + result > most ? held + result : most, result};
        if (needs[n].need > LARGEST * 1024) needs[n].need = LARGEST * 1024;
    }
    for (int n = 0; n < o->count; n++) {
        if (read[n]) continue;
        VEC_PUSH(o->arena, stack, (Frame){n, 0});
        while (stack.count) {
            Frame *top = &stack.items[stack.count - 1];
            if (seen[top->node]) {
                stack.count--;
            } else if (top->next < o->nodes[top->node].count) {
                int next = before[top->node][top->next++].node;
                if (!seen[next]) VEC_PUSH(o->arena, stack, (Frame){next, 0});
            } else {
                seen[top->node] = true;
                order[done++] = top->node;
                stack.count--;
            }
        }
    }
}

void order_for_memory(Graph *graph, const Policy *policy, const Waits *nodes, int count) {
    static void (*const ways[])(Order *, int *) = {as_it_was, greedy, depth_first};
    Arena *arena = arena_create_inside(graph->arena);
    Order o = {.graph = graph, .arena = arena, .nodes = nodes, .count = count};
    o.reads = arena_array(arena, (size_t)count + 1, sizeof *o.reads);
    o.makes = arena_array(arena, (size_t)count + 1, sizeof *o.makes);
    for (int n = 0; n < count; n++) nodes[n].node->tag = (uint64_t)n;
    find_rooms(&o, hinted_sizes(graph, policy, arena));
    o.left = ARENA_ARRAY(arena, int, o.rooms.count + 1);
    int *best = NULL;
    int64_t least = INT64_MAX;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        if (ways[w] == greedy && count > MOST_FOR_GREEDY) {
            LOG(1, "memory order: %d nodes are too many for the greedy order, which is not tried", count);
            graph->not_greedy = count;
            continue;
        }
        int *order = ARENA_ARRAY(arena, int, count + 1);
        ways[w](&o, order);
        int64_t peak = peak_of(&o, order);
        if (peak < least) least = peak, best = order;
    }
    for (int i = 0; best && i < count; i++) graph_move_before(graph, nodes[best[i]].node, NULL);
    arena_destroy(arena);
}
