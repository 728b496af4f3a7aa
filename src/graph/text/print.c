/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of a graph: one line a node, stable, and read back by parse.c; print(parse(print(g))) is print(g).
 *
 *   file      = { "opset" [string] INT NEWLINE } graph
 *   graph     = "graph" [string] "(" [param {"," param}] ")" "->" "(" [result {"," result}] ")" "{" NEWLINE
 *               { constant NEWLINE | node NEWLINE } "}"
 *   param     = name ":" type
 *   result    = name ["as" name] ["over" name]         what the graph calls its output, where the value's name differs; the
 *                                                      input whose new value it is
 *   constant  = name "=" "constant" literal
 *   node      = [output {"," output}] "=" what [operand {"," operand}] ["{" attr {"," attr} "}"] ["captures" INT]
 * {graph} output    = "_" | name [":" type]                  "_": not asked for; no type: nothing is known yet operand
 * = "_" | name                             "_": an optional input left out what      = ["backward" | "again"] (PRIMITIVE | "anchor" name |
 * "region" | ("onnx" | "host") [domain-string] name "@" OPSET) type      = DTYPE "[" ("*" | [dim {"," dim}]) "]" ["<"
 * dims ">"]      "*": rank not known; <...>: the elements, as sizes | ("seq" | "opt" | "optseq") "(" type ")" attr =
 * name "=" (INT | FLOAT | string | DTYPE | "tensor" literal | "(" dims ")" | "[" INTs, FLOATs, strings or tensors "]"
 *             | ("floats" | "strings" | "tensors") "[]")
 *   literal   = DTYPE "[" [INT {"," INT}] "]" (element | "{" [element {"," element}] "}")   without braces at rank 0
 *   element   = INT | FLOAT | "true" | "false" | string | "(" FLOAT "," FLOAT ")"
 *   name      = letters, digits, "_", ".", "/"  |  "%" string
 *   comment   = "#" to the end of the line; "# from A, B" behind a node (or its first "{") is its origin
 *
 * An INT has no ".", "e", "inf" or "nan", a FLOAT has one. Above 64 elements a literal is "{... 0xHASH}", the hash of
 * the elements' bytes, so that texts differ where data differ; such a literal cannot be read back. */
#include "graph/text/text_form.h"

#include <inttypes.h>
#include <math.h>

/* ---- names ---- */

bool text_form_plain(const char *name) {
    static const char *const keywords[] = {"_", "graph", "captures", "as", "over"};
    if (!*name) return false;
    for (const char *c = name; *c; c++)
        if (!text_form_name_char(*c)) return false;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(name, keywords[i]) == 0) return false;
    return true;
}

static void print_name(Text *t, const char *name) {
    if (text_form_plain(name)) {
        text_add_bytes(t, name, strlen(name));
    } else {
        text_add_bytes(t, "%", 1);
        text_add_quoted(t, name, strlen(name));
    }
}

/* "_" where an optional value is left out. */
static void print_value_name(Text *t, const Value *value) {
    if (value)
        print_name(t, value->name);
    else
        text_add_bytes(t, "_", 1);
}

/* ---- types ---- */

static void print_dims(Text *t, const Dim *const *dims, int count) {
    for (int i = 0; i < count; i++) {
        if (i) text_add_bytes(t, ", ", 2);
        dim_print(t, dims[i]);
    }
}

static void print_content(Text *t, const Value *value) {
    int64_t count = 1;
    if (!value->content || value->constant || value->rank < 0 || value->rank > 1) return;
    if (value->rank == 1 && !dim_is_const(value->dims[0], &count)) return;
    text_add_bytes(t, "<", 1);
    print_dims(t, value->content, (int)count);
    text_add_bytes(t, ">", 1);
}

static void print_type(Text *t, const Value *value) {
    static const char *const wrappers[] = {"", "seq(", "opt(", "optseq(", "map(", "mapseq("};
    text_add(t, "%s", wrappers[value->kind]);
    if (value_kind_has_maps(value->kind)) text_add(t, "%s, ", dtype_name(value->key));
    text_add(t, "%s[", dtype_name(value->dtype));
    if (value->rank < 0)
        text_add_bytes(t, "*", 1);
    else
        print_dims(t, value->dims, value->rank);
    text_add_bytes(t, "]", 1);
    print_content(t, value);
    if (value->kind != VALUE_TENSOR) text_add_bytes(t, ")", 1);
}

static void print_output(Text *t, const Value *value) {
    print_value_name(t, value);
    if (!value || (value->kind == VALUE_TENSOR && value->dtype == DT_NONE && value->rank < 0)) return;
    text_add_bytes(t, ": ", 2);
    print_type(t, value);
}

/* ---- literals ---- */

static void print_float_attr(Text *t, float value) {
    size_t start = t->size;
    text_add_float(t, value);
    if (isfinite(value) && !strpbrk(t->data + start, ".e")) text_add_bytes(t, ".0", 2);
}

static void print_complex(Text *t, DType dtype, const void *data, int64_t index) {
    double parts[2];
    for (int i = 0; i < 2; i++) parts[i] = dtype_load_double(dtype == DT_C64 ? DT_F32 : DT_F64, data, 2 * index + i);
    text_add_bytes(t, "(", 1);
    for (int i = 0; i < 2; i++) {
        if (i) text_add_bytes(t, ", ", 2);
        if (dtype == DT_C64)
            text_add_float(t, (float)parts[i]);
        else
            text_add_double(t, parts[i]);
    }
    text_add_bytes(t, ")", 1);
}

static void print_element(Text *t, const Tensor *tensor, int64_t index) {
    DType dtype = tensor->dtype;
    if (dtype == DT_STRING) {
        const StringView *s = (const StringView *)tensor->data + index;
        text_add_quoted(t, s->data, s->size);
    } else if (dtype == DT_C64 || dtype == DT_C128) {
        print_complex(t, dtype, tensor->data, index);
    } else if (dtype == DT_BOOL) {
        text_add(t, "%s", dtype_load_int(dtype, tensor->data, index) ? "true" : "false");
    } else if (dtype == DT_F64) {
        text_add_double(t, dtype_load_double(dtype, tensor->data, index));
    } else if (dtype_is_float(dtype)) {
        text_add_float(t, (float)dtype_load_double(dtype, tensor->data, index));
    } else if (dtype == DT_U64) {
        text_add(t, "%" PRIu64, (uint64_t)dtype_load_int(dtype, tensor->data, index));
    } else {
        text_add(t, "%" PRId64, dtype_load_int(dtype, tensor->data, index));
    }
}

static uint64_t hash_elements(const Tensor *tensor) {
    if (tensor->dtype != DT_STRING) return hash_bytes(tensor->data, tensor_bytes(tensor), 0);
    const StringView *s = tensor->data;
    uint64_t hash = 0;
    for (int64_t i = 0, count = tensor_count(tensor); i < count; i++) hash = hash_bytes(s[i].data, s[i].size, hash + 1);
    return hash;
}

static void print_literal(Text *t, const Tensor *tensor) {
    int64_t count = tensor_count(tensor);
    text_add(t, "%s[", dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->rank; i++) text_add(t, "%s%" PRId64, i ? ", " : "", tensor->dims[i]);
    text_add_bytes(t, "] ", 2);
    if (tensor->rank == 0) {
        print_element(t, tensor, 0);
        return;
    }
    text_add_bytes(t, "{", 1);
    if (count && !tensor->data) /* of a compiled model: an anchor has packed it */
        text_add_bytes(t, "...", 3);
    else if (count > TEXT_FORM_ELEMENTS)
        text_add(t, "... 0x%016" PRIx64, hash_elements(tensor));
    else
        for (int64_t i = 0; i < count; i++) {
            if (i) text_add_bytes(t, ", ", 2);
            print_element(t, tensor, i);
        }
    text_add_bytes(t, "}", 1);
}

/* ---- attributes ---- */

static void print_list_item(Text *t, const Attr *attr, int i) {
    switch (attr->kind) {
    case ATTR_INTS: text_add(t, "%" PRId64, attr->ints[i]); break;
    case ATTR_FLOATS: print_float_attr(t, attr->floats[i]); break;
    case ATTR_STRINGS: text_add_quoted(t, attr->strings[i].data, attr->strings[i].size); break;
    case ATTR_TENSORS:
        text_add_bytes(t, "tensor ", 7);
        print_literal(t, attr->tensors[i]);
        break;
    default: break;
    }
}

static void print_list(Text *t, const Attr *attr) {
    const char *empty = attr->kind == ATTR_FLOATS    ? "floats "
                        : attr->kind == ATTR_STRINGS ? "strings "
                        : attr->kind == ATTR_TENSORS ? "tensors "
                                                     : "";
    text_add(t, "%s[", attr->count ? "" : empty);
    for (int i = 0; i < attr->count; i++) {
        if (i) text_add_bytes(t, ", ", 2);
        print_list_item(t, attr, i);
    }
    text_add_bytes(t, "]", 1);
}

static void print_attr(Text *t, const Attr *attr) {
    print_name(t, attr->name);
    text_add_bytes(t, " = ", 3);
    switch (attr->kind) {
    case ATTR_INT: text_add(t, "%" PRId64, attr->i); break;
    case ATTR_FLOAT: print_float_attr(t, attr->f); break;
    case ATTR_STRING: text_add_quoted(t, attr->s.data, attr->s.size); break;
    case ATTR_TYPE: text_add(t, "%s", dtype_name(attr->dtype)); break;
    case ATTR_TENSOR:
        text_add_bytes(t, "tensor ", 7);
        print_literal(t, attr->tensor);
        break;
    case ATTR_DIMS:
        text_add_bytes(t, "(", 1);
        print_dims(t, attr->dims, attr->count);
        text_add_bytes(t, ")", 1);
        break;
    default: print_list(t, attr); break;
    }
}

static void print_attrs(Text *t, const Node *node) {
    if (!node->attrs.count) return;
    for (int i = 0; i < node->attrs.count; i++) {
        text_add(t, "%s", i ? ", " : " {");
        print_attr(t, &node->attrs.items[i]);
    }
    text_add_bytes(t, "}", 1);
}

/* ---- nodes ---- */

static void print_origin(Text *t, const Node *node) {
    for (int i = 0; i < node->origin.count; i++) {
        text_add(t, "%s", i ? ", " : " # from ");
        const char *name = node->origin.names[i];
        if (text_form_plain_origin(name))
            text_add(t, "%s", name);
        else
            text_add_quoted(t, name, strlen(name));
    }
}

static void print_what(Text *t, const Node *node) {
    if (node->backward) text_add(t, node->repeats ? "again " : "backward ");
    switch (node->kind) {
    case NODE_PRIM: text_add(t, "%s", prim_info(node->prim)->name); return;
    case NODE_REGION: text_add(t, "region"); return;
    case NODE_ANCHOR:
        text_add(t, "anchor ");
        print_name(t, node->op);
        return;
    default: break;
    }
    text_add(t, "%s ", node->kind == NODE_ONNX ? "onnx" : "host");
    if (node->domain && *node->domain) {
        text_add_quoted(t, node->domain, strlen(node->domain));
        text_add_bytes(t, " ", 1);
    }
    print_name(t, node->op);
    text_add(t, "@%d", node->opset);
}

static void print_graph(Text *t, const Graph *graph, int indent, const Node *owner);

static void print_node(Text *t, const Node *node, int indent) {
    text_add(t, "%*s", indent, "");
    for (int i = 0; i < node->output_count; i++) {
        if (i) text_add_bytes(t, ", ", 2);
        print_output(t, node->outputs[i]);
    }
    text_add(t, "%s= ", node->output_count ? " " : "");
    print_what(t, node);
    for (int i = 0; i < node->input_count; i++) {
        text_add(t, "%s", i ? ", " : " ");
        print_value_name(t, node->inputs[i]);
    }
    print_attrs(t, node);
    if (node->captures) text_add(t, " captures %d", node->captures);
    if (!node->subgraph_count) print_origin(t, node);
    for (int i = 0; i < node->subgraph_count; i++) {
        text_add_bytes(t, " ", 1);
        print_graph(t, node->subgraphs[i], indent, i ? NULL : node);
    }
    text_add_bytes(t, "\n", 1);
}

/* ---- graphs ---- */

static void print_kept(Text *t, const Graph *graph, const GraphKept *kept) {
    text_add(t, " keeps ");
    print_name(t, graph->inputs.items[kept->input]->name);
    if (kept->form != KEPT_WHOLE) text_add(t, " %s %d", kept_form_name(kept->form), kept->axis);
    if (kept->capacity) text_add(t, " capacity %lld", (long long)kept->capacity);
}

static void print_header(Text *t, const Graph *graph) {
    text_add(t, "graph ");
    if (*graph->name) {
        text_add_quoted(t, graph->name, strlen(graph->name));
        text_add_bytes(t, " ", 1);
    }
    text_add_bytes(t, "(", 1);
    for (int i = 0; i < graph->inputs.count; i++) {
        if (i) text_add_bytes(t, ", ", 2);
        print_name(t, graph->inputs.items[i]->name);
        text_add_bytes(t, ": ", 2);
        print_type(t, graph->inputs.items[i]);
    }
    text_add(t, ") -> (");
    for (int i = 0; i < graph->outputs.count; i++) {
        const char *name = graph->outputs.items[i]->name, *called = graph->output_names.items[i];
        if (i) text_add_bytes(t, ", ", 2);
        print_name(t, name);
        if (strcmp(name, called) != 0) {
            text_add(t, " as ");
            print_name(t, called);
        }
        for (int s = 0; s < graph->states.count; s++) {
            if (graph->states.items[s].output != i) continue;
            text_add(t, " over ");
            print_name(t, graph->inputs.items[graph->states.items[s].input]->name);
        }
        for (int k = 0; k < graph->kept.count; k++)
            if (graph->kept.items[k].output == i) print_kept(t, graph, &graph->kept.items[k]);
    }
    text_add(t, ") {");
}

static void print_constants(Text *t, const Graph *graph, int indent) {
    for (int i = 0; i < graph->values.count; i++) {
        const Value *value = graph->values.items[i];
        if (!value->constant || value->producer || !value_is_read(value)) continue;
        text_add(t, "%*s", indent, "");
        print_name(t, value->name);
        text_add(t, " = constant ");
        print_literal(t, value->constant);
        text_add_bytes(t, "\n", 1);
    }
}

static void print_graph(Text *t, const Graph *graph, int indent, const Node *owner) {
    print_header(t, graph);
    if (owner) print_origin(t, owner);
    text_add_bytes(t, "\n", 1);
    print_constants(t, graph, indent + 2);
    FOR_EACH_NODE(node, graph) print_node(t, node, indent + 2);
    text_add(t, "%*s}", indent, "");
}

void graph_print(Text *text, const Graph *graph) {
    for (int i = 0; !graph->parent && i < graph->info->opsets.count; i++) {
        const OpsetImport *opset = &graph->info->opsets.items[i];
        text_add(text, "opset ");
        if (opset->domain && *opset->domain) {
            text_add_quoted(text, opset->domain, strlen(opset->domain));
            text_add_bytes(text, " ", 1);
        }
        text_add(text, "%" PRId64 "\n", opset->version);
    }
    print_graph(text, graph, 0, NULL);
    text_add_bytes(text, "\n", 1);
}
