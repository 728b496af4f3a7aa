/* Equal primitives become one; what nobody reads goes. Random ones are equal when seed and shape are. */
#include "lowering/prune.h"
#include "passes/passes.h"

typedef struct Seen {
    Node *node;
    struct Seen *next;   /* of the same hash */
    VEC(Origin) origins; /* of those that it stands for, itself first; none: it stands for itself alone */
} Seen;

static size_t attr_bytes(const Attr *a, const void **out_data) {
    size_t n = (size_t)a->count;
    switch (a->kind) {
    case ATTR_INTS: return *out_data = a->ints, n * sizeof *a->ints;
    case ATTR_FLOATS: return *out_data = a->floats, n * sizeof *a->floats;
    case ATTR_DIMS: return *out_data = a->dims, n * sizeof *a->dims;
    case ATTR_STRING: return *out_data = a->s.data, a->s.size;
    case ATTR_FLOAT: return *out_data = &a->f, sizeof a->f;
    case ATTR_TYPE: return *out_data = &a->dtype, sizeof a->dtype;
    case ATTR_INT: return *out_data = &a->i, sizeof a->i;
    default: return *out_data = &a->tensor, sizeof a->tensor;
    }
}

static bool same_attr(const Attr *a, const Attr *b) {
    const void *x, *y;
    if (a->kind != b->kind || a->count != b->count) return false;
    size_t size = attr_bytes(a, &x);
    return size == attr_bytes(b, &y) && (!size || memcmp(x, y, size) == 0);
}

static bool same_node(const Node *a, const Node *b) {
    if (a->prim != b->prim || a->fence != b->fence || a->input_count != b->input_count ||
        a->attrs.count != b->attrs.count)
        return false;
    for (int i = 0; i < a->input_count; i++)
        if (a->inputs[i] != b->inputs[i]) return false;
    for (int i = 0; i < a->attrs.count; i++) {
        const Attr *other = node_attr(b, a->attrs.items[i].name);
        if (!other || !same_attr(&a->attrs.items[i], other)) return false;
    }
    return true;
}

static uint64_t hash_node(const Node *node) {
    uint64_t hash = (uint64_t)node->prim;
    for (int i = 0; i < node->input_count; i++) hash = hash_bytes(&node->inputs[i], sizeof(Value *), hash);
    for (int i = 0; i < node->attrs.count; i++) { /* order of attributes does not matter */
        const void *data;
        size_t size = attr_bytes(&node->attrs.items[i], &data);
        hash += hash_bytes(data, size, 7);
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
