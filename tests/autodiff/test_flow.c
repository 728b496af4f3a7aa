/* SPDX-License-Identifier: Apache-2.0 */
/* The least cut of random small networks, against all cuts there are. */
#include "autodiff/flow.h"

#include <criterion/criterion.h>

#include "graph/prim.h"

enum { VERTICES = 9, EDGES = 24, NETWORKS = 2000 };

typedef struct Edge {
    int from, to;
    double room;
} Edge;

static uint32_t drawn(uint64_t seed, int *next, uint32_t below) {
    return philox_u32(seed, (uint64_t)(*next)++) % below;
}

static void draw(uint64_t seed, Edge *edges) {
    int next = 0;
    for (int i = 0; i < EDGES; i++) {
        edges[i] = (Edge){(int)drawn(seed, &next, VERTICES), (int)drawn(seed, &next, VERTICES), drawn(seed, &next, 7)};
        bool whole = edges[i].from != FLOW_SOURCE && edges[i].to != FLOW_SINK && drawn(seed, &next, 4) == 0;
        if (whole) edges[i].room = FLOW_UNBOUNDED;
    }
}

/* Of what leads out of the source's side; bit v of `sinks`: vertex v is on the sink's. */
static double room_of(const Edge *edges, unsigned sinks) {
    double room = 0;
    for (int i = 0; i < EDGES; i++)
        if (!(sinks >> edges[i].from & 1) && (sinks >> edges[i].to & 1)) room += edges[i].room;
    return room;
}

Test(flow, is_the_least_cut_nearest_to_the_sink) {
    for (uint64_t seed = 1; seed <= NETWORKS; seed++) {
        Edge edges[EDGES];
        Arena *arena = arena_create(0);
        Flow flow = flow_make(arena);
        draw(seed, edges);
        while (flow.heads.count < VERTICES) flow_add_vertex(&flow);
        for (int i = 0; i < EDGES; i++) flow_add_edge(&flow, edges[i].from, edges[i].to, edges[i].room);
        const bool *side = flow_cut(&flow);
        unsigned got = 0, common = ~0u;
        double least = FLOW_UNBOUNDED * EDGES;
        for (int v = 0; v < VERTICES; v++) got |= (unsigned)side[v] << v;
        for (unsigned sinks = 0; sinks < 1u << VERTICES; sinks++) {
            if (sinks >> FLOW_SOURCE & 1 || !(sinks >> FLOW_SINK & 1)) continue;
            double room = room_of(edges, sinks);
            if (room < least) least = room, common = ~0u;
            if (room == least) common &= sinks; /* what is on the sink's side of all least cuts is one, too */
        }
        cr_assert_eq(room_of(edges, got), least, "network %llu", (unsigned long long)seed);
        cr_expect_eq(got, common & ((1u << VERTICES) - 1), "network %llu: a smaller side does as well",
                     (unsigned long long)seed);
        arena_destroy(arena);
    }
}
