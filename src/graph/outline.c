/* SPDX-License-Identifier: Apache-2.0 */
/* A model's nodes by name. */
#include "graph/outline.h"

typedef struct OutlineNode {
    const char *name, *op, *domain;
    const char **values; /* inputs, then outputs; NULL where left out */
    int inputs, outputs;
    const Outline **graphs;
    int graph_count;
} OutlineNode;

struct Outline {
    OutlineNode *nodes;
    int count;
};

static void describe(Arena *arena, const Node *node, OutlineNode *out) {
    *out = (OutlineNode){.name = node_origin_name(node),
                         .op = node->op,
                         .domain = node->domain ? node->domain : "",
                         .inputs = node->input_count - node->captures,
                         .outputs = node->output_count,
                         .graph_count = node->subgraph_count};
    out->values = ARENA_ARRAY(arena, const char *, out->inputs + out->outputs + 1);
    for (int i = 0; i < out->inputs; i++) out->values[i] = node->inputs[i] ? node->inputs[i]->name : NULL;
    for (int o = 0; o < out->outputs; o++)
        out->values[out->inputs + o] = node->outputs[o] ? node->outputs[o]->name : NULL;
    out->graphs = ARENA_ARRAY(arena, const Outline *, out->graph_count + 1);
    for (int g = 0; g < out->graph_count; g++) out->graphs[g] = outline_make(node->subgraphs[g]);
}

const Outline *outline_make(const Graph *graph) {
    Outline *outline = ARENA_NEW(graph->arena, Outline);
    outline->nodes = ARENA_ARRAY(graph->arena, OutlineNode, graph->node_count + 1);
    FOR_EACH_NODE(node, graph) describe(graph->arena, node, &outline->nodes[outline->count++]);
    return outline;
}

static void print_names(Text *text, const char *key, const char *const *names, int count) {
    text_add(text, ",\"%s\":[", key);
    for (int i = 0; i < count; i++) {
        if (i) text_add(text, ",");
        if (names[i])
            text_add_json(text, names[i], strlen(names[i]));
        else
            text_add(text, "null");
    }
    text_add(text, "]");
}

void outline_print(Text *text, const Outline *outline) {
    if (!outline) {
        text_add(text, "null");
        return;
    }
    text_add(text, "[");
    for (int i = 0; i < outline->count; i++) {
        const OutlineNode *n = &outline->nodes[i];
        text_add(text, "%s\n{\"name\":", i ? "," : "");
        text_add_json(text, n->name, strlen(n->name));
        text_add(text, ",\"op\":");
        text_add_json(text, n->op, strlen(n->op));
        text_add(text, ",\"domain\":");
        text_add_json(text, n->domain, strlen(n->domain));
        print_names(text, "inputs", n->values, n->inputs);
        print_names(text, "outputs", n->values + n->inputs, n->outputs);
        if (n->graph_count) text_add(text, ",\"graphs\":[");
        for (int g = 0; g < n->graph_count; g++) {
            if (g) text_add(text, ",");
            outline_print(text, n->graphs[g]);
        }
        text_add(text, n->graph_count ? "]}" : "}");
    }
    text_add(text, "]");
}
