/* SPDX-License-Identifier: Apache-2.0 */
/* Equal primitives become one; what nobody reads goes. Random ones are equal when seed and shape are. */
#include "lowering/prune.h"
#include "passes/passes.h"

typedef struct Seen {
    Node *node;
    struct Seen *next;   /* of the same hash */
    VEC(Origin) origins; /* of those that it stands for, itself first; none: it stands for itself alone */
} Seen;

static bool same_node(const Node *a, const Node *b) {
    if (a->prim != b->prim || a->fence != b->fence || a->repeats != b->repeats || a->input_count != b->input_count)
        return false;
    for (int i = 0; i < a->input_count; i++)
        if (a->inputs[i] != b->inputs[i]) return false;
    return node_same_attrs(a, b);
}

static uint64_t hash_node(const Node *node) {
    uint64_t hash = (uint64_t)node->prim;
    for (int i = 0; i < node->input_count; i++) hash = hash_bytes(&node->inputs[i], sizeof(Value *), hash);
    for (int i = 0; i < node->attrs.count; i++) { /* order of attributes does not matter */
        size_t size;
        const void *data = attr_data(&node->attrs.items[i], &size);
        hash += size ? hash_bytes(data, size, 7) : 7;
    }
    return hash;
}

Status merge_common(Graph *graph, const Policy *policy) {
    (void)policy;
    Arena *arena = arena_create_inside(graph->arena);
    Map seen = map_make(arena);
    VEC(Seen *) merged = {0};
    FOR_EACH_NODE_SAFE(node, graph) {
        if (node->kind != NODE_PRIM) continue;
        uint64_t hash = hash_node(node);
        Seen *head = map_get_id(&seen, hash), *twin = head;
        while (twin && !same_node(twin->node, node)) twin = twin->next;
        if (twin) {
            if (!twin->origins.count) {
                VEC_PUSH(arena, twin->origins, twin->node->origin);
                VEC_PUSH(arena, merged, twin);
            }
            VEC_PUSH(arena, twin->origins, node->origin);
            value_replace(graph, node->outputs[0], twin->node->outputs[0]);
            graph_remove_node(graph, node);
            continue;
        }
        Seen *entry = ARENA_NEW(arena, Seen);
        *entry = (Seen){.node = node, .next = head};
        map_set_id(&seen, hash, entry);
    }
    for (int i = 0; i < merged.count; i++) /* at once: one by one, each would copy all before it */
        merged.items[i]->node->origin =
            origin_merge(graph->arena, merged.items[i]->origins.items, merged.items[i]->origins.count);
    arena_destroy(arena);
    graph_prune(graph);
    return NULL;
}
