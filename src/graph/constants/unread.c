/* SPDX-License-Identifier: Apache-2.0 */
/* A search marks the noted blocks that something points into, and frees the others. Blocks are found by address, so whatever shares one's data keeps it. */
#include "graph/constants/unread.h"

#include <stdlib.h>
#include "base/heap.h"

static void note(Graph *graph, const Tensor *tensor, bool in_pages) {
    ModelInfo *info = graph->info;
    size_t bytes = tensor_bytes(tensor);
    if (bytes <= ARENA_LARGE || tensor->dtype == DT_STRING) return;
    VEC_PUSH(graph->arena, info->made, (MadeData){tensor->data, bytes, in_pages, false});
    info->made_since += bytes;
}

void graph_note_made(Graph *graph, const Tensor *tensor) { note(graph, tensor, false); }

void graph_note_pages(Graph *graph, const Tensor *tensor) { note(graph, tensor, true); }

static int by_address(const void *a, const void *b) {
    uintptr_t x = (uintptr_t)((const MadeData *)a)->data, y = (uintptr_t)((const MadeData *)b)->data;
    return x < y ? -1 : x > y;
}

static MadeData *made_that_holds(const ModelInfo *info, const Tensor *tensor) {
    uintptr_t at = tensor ? (uintptr_t)tensor->data : 0;
    int from = 0, to = info->made.count;
    while (from < to) {
        int middle = (from + to) / 2;
        MadeData *made = &info->made.items[middle];
        if (at < (uintptr_t)made->data)
            to = middle;
        else if (at >= (uintptr_t)made->data + made->bytes)
            from = middle + 1;
        else
            return made;
    }
    return NULL;
}

static void mark(const ModelInfo *info, const Tensor *tensor) {
    MadeData *made = made_that_holds(info, tensor);
    if (made) made->read = true;
}

static void mark_attr(const ModelInfo *info, const Attr *attr) {
    if (attr->kind == ATTR_TENSOR) mark(info, attr->tensor);
    for (int i = 0; attr->kind == ATTR_TENSORS && i < attr->count; i++) mark(info, attr->tensors[i]);
}

static void mark_read(const ModelInfo *info, const Graph *graph) {
    for (int i = 0; i < graph->values.count; i++) {
        const Value *value = graph->values.items[i];
        if (!value->constant || !value_is_read(value)) continue;
        mark(info, value->constant);
        mark(info, value->wider);
    }
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; i < node->attrs.count; i++) mark_attr(info, &node->attrs.items[i]);
        for (int i = 0; i < node->subgraph_count; i++) mark_read(info, node->subgraphs[i]);
    }
}

static void take_unread_out(const ModelInfo *info, const Graph *graph) {
    for (int i = 0; i < graph->values.count; i++) {
        Value *value = graph->values.items[i];
        const MadeData *made = value->constant ? made_that_holds(info, value->constant) : NULL;
        const MadeData *wider = value->wider ? made_that_holds(info, value->wider) : NULL;
        if (wider && !wider->read) value->wider = NULL;
        if (!made || made->read) continue;
        value->constant = NULL;
        value->gone = true;
    }
    FOR_EACH_NODE(node, graph)
    for (int i = 0; i < node->subgraph_count; i++) take_unread_out(info, node->subgraphs[i]);
}

static void give_back(Graph *graph, const MadeData *made) {
    if (made->in_pages)
        bytes_forget(made->data, made->bytes);
    else
        arena_free_large(graph->arena, made->data, made->bytes);
}

void graph_give_unread_back(Graph *graph) { graph->info->gives_unread_back = true; }

void graph_give_back(Graph *graph) {
    ModelInfo *info = graph->info;
    if (!info->gives_unread_back || graph->parent || !info->made.count) return;
    qsort(info->made.items, (size_t)info->made.count, sizeof *info->made.items, by_address);
    for (int i = 0; i < info->made.count; i++) info->made.items[i].read = false;
    mark_read(info, graph);
    take_unread_out(info, graph);
    int kept = 0;
    info->made_since = info->made_kept = 0;
    for (int i = 0; i < info->made.count; i++) {
        MadeData *made = &info->made.items[i];
        if (!made->read) {
            give_back(graph, made);
            continue;
        }
        info->made_kept += made->bytes;
        info->made.items[kept++] = *made;
    }
    info->made.count = kept;
}

void graph_give_back_many(Graph *graph) {
    enum { WORTH = 4 << 20, SHARE = 8 }; /* bytes; of what is kept, so that searches stay few where there is much */
    const ModelInfo *info = graph->info;
    if (info->made_since >= WORTH && info->made_since >= info->made_kept / SHARE) graph_give_back(graph);
}
