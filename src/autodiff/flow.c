/* SPDX-License-Identifier: Apache-2.0 */
/* The largest flow (Dinic, "Algorithm for Solution of a Problem of Maximum Flow in Networks with Power Estimation", 1970), whose full edges
 * are the least cut (Ford and Fulkerson, "Maximal Flow through a Network", 1956). */
#include "autodiff/flow.h"

#include <string.h>

Flow flow_make(Arena *arena) {
    Flow flow = {.arena = arena};
    flow_add_vertex(&flow);
    flow_add_vertex(&flow);
    return flow;
}

int flow_add_vertex(Flow *flow) {
    VEC_PUSH(flow->arena, flow->heads, -1);
    return flow->heads.count - 1;
}

static void add_half(Flow *flow, int from, int to, double room) {
    VEC_PUSH(flow->arena, flow->edges, (FlowEdge){to, flow->heads.items[from], room});
    flow->heads.items[from] = flow->edges.count - 1;
}

void flow_add_edge(Flow *flow, int from, int to, double room) {
    add_half(flow, from, to, room);
    add_half(flow, to, from, 0);
}

static bool number_depths(Flow *f) {
    int begin = 0, end = 0;
    for (int i = 0; i < f->heads.count; i++) f->depth[i] = -1;
    f->depth[FLOW_SOURCE] = 0;
    f->queue[end++] = FLOW_SOURCE;
    while (begin < end) {
        int vertex = f->queue[begin++];
        for (int e = f->heads.items[vertex]; e >= 0; e = f->edges.items[e].next) {
            const FlowEdge *edge = &f->edges.items[e];
            if (edge->room <= 0 || f->depth[edge->to] >= 0) continue;
            f->depth[edge->to] = f->depth[vertex] + 1;
            f->queue[end++] = edge->to;
        }
    }
    return f->depth[FLOW_SINK] >= 0;
}

/* One more path along rising depths; at [vertex]: the edges before it lead nowhere. `queue` holds the path's edges. */
static bool push_path(Flow *f) {
    int length = 0, vertex = FLOW_SOURCE;
    while (vertex != FLOW_SINK) {
        int e = f->at[vertex];
        while (e >= 0 && (f->edges.items[e].room <= 0 || f->depth[f->edges.items[e].to] != f->depth[vertex] + 1))
            e = f->edges.items[e].next;
        f->at[vertex] = e;
        if (e >= 0) {
            f->queue[length++] = e;
            vertex = f->edges.items[e].to;
        } else if (vertex == FLOW_SOURCE) {
            return false;
        } else { /* back, and not here again */
            int last = f->queue[--length];
            vertex = f->edges.items[last ^ 1].to;
            f->at[vertex] = f->edges.items[last].next;
        }
    }
    double room = FLOW_UNBOUNDED;
    for (int i = 0; i < length; i++)
        if (f->edges.items[f->queue[i]].room < room) room = f->edges.items[f->queue[i]].room;
    for (int i = 0; i < length; i++) {
        f->edges.items[f->queue[i]].room -= room;
        f->edges.items[f->queue[i] ^ 1].room += room;
    }
    return true;
}

bool *flow_cut(Flow *f) {
    int vertices = f->heads.count, begin = 0, end = 0;
    f->depth = ARENA_ARRAY(f->arena, int, vertices);
    f->queue = ARENA_ARRAY(f->arena, int, vertices);
    f->at = ARENA_ARRAY(f->arena, int, vertices);
    while (number_depths(f)) {
        memcpy(f->at, f->heads.items, (size_t)vertices * sizeof *f->at);
        while (push_path(f)) continue;
    }
    bool *side = ARENA_ARRAY(f->arena, bool, vertices); /* what can still send to the sink */
    side[FLOW_SINK] = true;
    f->queue[end++] = FLOW_SINK;
    while (begin < end) {
        int vertex = f->queue[begin++];
        for (int e = f->heads.items[vertex]; e >= 0; e = f->edges.items[e].next) {
            int from = f->edges.items[e].to;
            if (f->edges.items[e ^ 1].room <= 0 || side[from]) continue;
            side[from] = true;
            f->queue[end++] = from;
        }
    }
    return side;
}
