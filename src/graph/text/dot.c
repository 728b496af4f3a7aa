/* SPDX-License-Identifier: Apache-2.0 */
/* A graph as Graphviz input: boxes for nodes, ellipses for inputs and outputs, clusters for subgraphs, types along the
 * edges. */
#include "graph/graph.h"

#include <inttypes.h>

typedef struct Dot {
    Text *text;
    Map points; /* value -> the name of what it comes out of */
    int next;   /* of names */
} Dot;

static void add_escaped(Text *t, const char *text) {
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\') text_add_bytes(t, "\\", 1);
        text_add_bytes(t, (unsigned char)*c < 32 ? " " : c, 1);
    }
}

static void add_type(Text *t, const Value *value) {
    text_add(t, "%s[", dtype_name(value->dtype));
    for (int i = 0; i < value->rank; i++) {
        if (i) text_add_bytes(t, ", ", 2);
        Text dim = text_make(t->arena);
        dim_print(&dim, value->dims[i]);
        add_escaped(t, dim.data);
    }
    text_add(t, "%s]", value->rank < 0 ? "*" : "");
}

static char *new_point(Dot *d) { return arena_format(d->text->arena, "n%d", d->next++); }

static void set_point(Dot *d, const Value *value, char *point) {
    map_set_id(&d->points, MAP_POINTER_KEY(value), point);
}

/* Constants get their box where they are first used. */
static const char *point_of(Dot *d, const Value *value) {
    char *point = map_get_id(&d->points, MAP_POINTER_KEY(value));
    if (point) return point;
    point = new_point(d);
    set_point(d, value, point);
    text_add(d->text, "  %s [shape=note, color=gray, label=\"", point);
    add_escaped(d->text, value->name);
    text_add(d->text, "\\n");
    add_type(d->text, value);
    if (value->constant && value->constant->dtype != DT_STRING && tensor_count(value->constant) <= 4) {
        Text elements = text_make(d->text->arena);
        tensor_print(&elements, value->constant, 4);
        text_add(d->text, "\\n");
        add_escaped(d->text, elements.data);
    }
    text_add(d->text, "\"];\n");
    return point;
}

static void add_edge(Dot *d, const char *from, const char *to, const Value *value) {
    text_add(d->text, "  %s -> %s [label=\"", from, to);
    add_type(d->text, value);
    text_add(d->text, "\"];\n");
}

static void add_input(Dot *d, const Value *value) {
    char *point = new_point(d);
    set_point(d, value, point);
    text_add(d->text, "  %s [shape=ellipse, label=\"", point);
    add_escaped(d->text, value->name);
    text_add(d->text, "\\n");
    add_type(d->text, value);
    text_add(d->text, "\"];\n");
}

static void add_node_box(Dot *d, const Node *node, const char *point) {
    static const char *const colors[] = {"white", "white", "lightblue", "lightyellow", "palegreen"};
    text_add(d->text, "  %s [shape=box, style=filled, fillcolor=%s, label=\"", point, colors[node->kind]);
    add_escaped(d->text, node->op);
    if (node->origin.count) {
        text_add(d->text, "\\n");
        add_escaped(d->text, node_origin_name(node));
    }
    text_add(d->text, "\"];\n");
}

static void add_nodes(Dot *d, const Graph *graph);

/* A region has no box: its inputs lead into the body, its outputs come out of it. */
static void add_region(Dot *d, const Node *node) {
    const Graph *body = node->subgraphs[0];
    text_add(d->text, "  subgraph cluster_%d {\n  style=filled; fillcolor=palegreen; label=\"region\";\n", d->next++);
    for (int i = 0; i < body->inputs.count; i++) add_input(d, body->inputs.items[i]);
    add_nodes(d, body);
    text_add(d->text, "  }\n");
    for (int i = 0; i < node->input_count && i < body->inputs.count; i++)
        if (node->inputs[i])
            add_edge(d, point_of(d, node->inputs[i]), point_of(d, body->inputs.items[i]), node->inputs[i]);
    for (int i = 0; i < node->output_count && i < body->outputs.count; i++)
        if (node->outputs[i]) set_point(d, node->outputs[i], (char *)point_of(d, body->outputs.items[i]));
}

static void add_subgraph(Dot *d, const Graph *graph, const char *owner) {
    text_add(d->text, "  subgraph cluster_%d {\n  label=\"", d->next++);
    add_escaped(d->text, graph->name);
    text_add(d->text, "\";\n");
    for (int i = 0; i < graph->inputs.count; i++) add_input(d, graph->inputs.items[i]);
    add_nodes(d, graph);
    text_add(d->text, "  }\n");
    for (int i = 0; i < graph->inputs.count; i++)
        text_add(d->text, "  %s -> %s [style=dashed];\n", owner, point_of(d, graph->inputs.items[i]));
}

static void add_nodes(Dot *d, const Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        if (node->kind == NODE_REGION && node->subgraph_count == 1) {
            add_region(d, node);
            continue;
        }
        char *point = new_point(d);
        add_node_box(d, node, point);
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i]) add_edge(d, point_of(d, node->inputs[i]), point, node->inputs[i]);
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i]) set_point(d, node->outputs[i], point);
        for (int i = 0; i < node->subgraph_count; i++) add_subgraph(d, node->subgraphs[i], point);
    }
}

void graph_print_dot(Text *text, const Graph *graph) {
    Dot d = {text, map_make(text->arena), 0};
    text_add(text, "digraph \"");
    add_escaped(text, graph->name);
    text_add(text, "\" {\n");
    for (int i = 0; i < graph->inputs.count; i++) add_input(&d, graph->inputs.items[i]);
    add_nodes(&d, graph);
    for (int i = 0; i < graph->outputs.count; i++) {
        const char *from = point_of(&d, graph->outputs.items[i]);
        char *point = new_point(&d);
        text_add(text, "  %s [shape=ellipse, style=bold, label=\"", point);
        add_escaped(text, graph->output_names.items[i]);
        text_add(text, "\"];\n");
        add_edge(&d, from, point, graph->outputs.items[i]);
    }
    text_add(text, "}\n");
}
