/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that have become others (another type that a rule asks for, the factors of a normalisation folded in) are read no
 * more: their memory goes back. */
#include "importer/importer.h"
#include "runtime/api/session.h"

static void note_tensor(Map *read, const Tensor *tensor) {
    if (tensor && tensor->data) map_set_id(read, MAP_POINTER_KEY(tensor->data), (void *)(uintptr_t)tensor);
}

static void note_read(const Graph *graph, Map *read) {
    for (int i = 0; i < graph->values.count; i++) {
        const Value *v = graph->values.items[i];
        if (value_is_read(v)) note_tensor(read, v->constant);
    }
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; i < node->attrs.count; i++) {
            const Attr *attr = &node->attrs.items[i];
            if (attr->kind == ATTR_TENSOR) note_tensor(read, attr->tensor);
            for (int k = 0; attr->kind == ATTR_TENSORS && k < attr->count; k++) note_tensor(read, attr->tensors[k]);
        }
        for (int s = 0; s < node->subgraph_count; s++) note_read(node->subgraphs[s], read);
    }
}

void discard_unread(const Graph *graph) {
    Arena *scratch = arena_create_inside(graph->arena);
    Map read = map_make(scratch);
    note_read(graph, &read);
    for (int i = 0; i < graph->values.count; i++) {
        const Tensor *constant = graph->values.items[i]->constant;
        if (constant && constant->data && !map_get_id(&read, MAP_POINTER_KEY(constant->data)))
            import_discard(graph, constant);
    }
    arena_destroy(scratch);
}
