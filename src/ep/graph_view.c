/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a runtime's graph. */
#include "ep/graph_view.h"

#include <string.h>

/* --- values ------------------------------------------------------------------------------------------------------ */
static OrtStatus *add_value(GraphView *view, const OrtValueInfo *info, int *out_number) {
    const Ort *ort = view->ort;
    *out_number = -1;
    const char *name = "";
    if (info) TRY(ORT(ort, GetValueInfoName)(info, &name));
    if (!*name) return NULL;
    *out_number = names_find(&view->names, name);
    if (*out_number >= 0) return NULL;
    if (view->value_count == view->value_capacity) {
        int capacity = 2 * view->value_capacity + 64;
        ViewValue *larger = SCRATCH_ARRAY(view->scratch, ViewValue, capacity);
        NEED(ort, larger);
        if (view->value_count) memcpy(larger, view->values, (size_t)view->value_count * sizeof *larger);
        view->values = larger;
        view->value_capacity = capacity;
    }
    ViewValue value = {.name = name, .info = info, .producer = -1};
    TRY(ORT(ort, ValueInfo_IsConstantInitializer)(info, &value.is_constant));
    TRY(ORT(ort, ValueInfo_IsGraphOutput)(info, &value.is_output));
    *out_number = view->value_count;
    view->values[view->value_count++] = value;
    if (!names_set(&view->names, name, *out_number)) return ep_out_of_memory(ort);
    return NULL;
}

static OrtStatus *add_values(GraphView *view, const OrtValueInfo *const *infos, size_t count, int *out_numbers) {
    for (size_t i = 0; i < count; i++) TRY(add_value(view, infos[i], &out_numbers[i]));
    return NULL;
}

OrtStatus *view_type(const Ort *ort, Scratch *scratch, const OrtValueInfo *info, TensorType *out_type) {
    *out_type = (TensorType){.dtype = ONNXFUSE_NONE, .rank = -1};
    const OrtTypeInfo *type;
    TRY(ORT(ort, GetValueInfoTypeInfo)(info, &type));
    OrtOnnxType kind = ORT_TYPE_UNKNOWN;
    if (type) TRY(ORT(ort, GetOnnxTypeFromTypeInfo)(type, &kind));
    if (kind != ORT_TYPE_TENSOR) return NULL;
    const OrtTensorInfo *tensor;
    TRY(ORT(ort, CastTypeInfoToTensorInfo)(type, &tensor));
    TRY(ORT(ort, GetTensorElementType)(tensor, &out_type->dtype));
    if (!ORT(ort, TensorTypeAndShape_HasShape)(tensor)) return NULL;
    size_t rank;
    TRY(ORT(ort, GetDimensionsCount)(tensor, &rank));
    int64_t *dims = SCRATCH_ARRAY(scratch, int64_t, rank);
    out_type->symbols = SCRATCH_ARRAY(scratch, const char *, rank);
    NEED(ort, dims && out_type->symbols);
    TRY(ORT(ort, GetDimensions)(tensor, dims, rank));
    TRY(ORT(ort, GetSymbolicDimensions)(tensor, out_type->symbols, rank));
    out_type->dims = dims;
    out_type->rank = (int)rank;
    return NULL;
}

/* --- nodes ------------------------------------------------------------------------------------------------------- */
static OrtStatus *view_inputs(GraphView *view, ViewNode *n) {
    const Ort *ort = view->ort;
    size_t plain, implicit;
    TRY(ORT(ort, Node_GetNumInputs)(n->node, &plain));
    TRY(ORT(ort, Node_GetNumImplicitInputs)(n->node, &implicit));
    const OrtValueInfo **infos = SCRATCH_ARRAY(view->scratch, const OrtValueInfo *, plain + implicit);
    n->inputs = SCRATCH_ARRAY(view->scratch, int, plain + implicit);
    NEED(ort, infos && n->inputs);
    if (plain) TRY(ORT(ort, Node_GetInputs)(n->node, infos, plain));
    if (implicit) TRY(ORT(ort, Node_GetImplicitInputs)(n->node, infos + plain, implicit));
    n->explicit_count = (int)plain;
    n->input_count = (int)(plain + implicit);
    return add_values(view, infos, plain + implicit, n->inputs);
}

static OrtStatus *view_outputs(GraphView *view, ViewNode *n) {
    const Ort *ort = view->ort;
    size_t count;
    TRY(ORT(ort, Node_GetNumOutputs)(n->node, &count));
    const OrtValueInfo **infos = SCRATCH_ARRAY(view->scratch, const OrtValueInfo *, count);
    n->outputs = SCRATCH_ARRAY(view->scratch, int, count);
    NEED(ort, infos && n->outputs);
    if (count) TRY(ORT(ort, Node_GetOutputs)(n->node, infos, count));
    n->output_count = (int)count;
    return add_values(view, infos, count, n->outputs);
}

static OrtStatus *view_subgraphs(GraphView *view, ViewNode *n) {
    const Ort *ort = view->ort;
    size_t count;
    TRY(ORT(ort, Node_GetNumSubgraphs)(n->node, &count));
    if (!count) return NULL;
    n->subgraphs = SCRATCH_ARRAY(view->scratch, const OrtGraph *, count);
    n->subgraph_names = SCRATCH_ARRAY(view->scratch, const char *, count);
    NEED(ort, n->subgraphs && n->subgraph_names);
    TRY(ORT(ort, Node_GetSubgraphs)(n->node, n->subgraphs, count, n->subgraph_names));
    n->subgraph_count = (int)count;
    return NULL;
}

OrtStatus *view_node(GraphView *view, const OrtNode *node, ViewNode *out_node) {
    const Ort *ort = view->ort;
    *out_node = (ViewNode){.node = node};
    TRY(ORT(ort, Node_GetOperatorType)(node, &out_node->op));
    TRY(ORT(ort, Node_GetDomain)(node, &out_node->domain));
    TRY(ORT(ort, Node_GetName)(node, &out_node->name));
    TRY(view_inputs(view, out_node));
    TRY(view_outputs(view, out_node));
    return view_subgraphs(view, out_node);
}

/* --- graphs ------------------------------------------------------------------------------------------------------ */
static OrtStatus *view_model(GraphView *view) {
    const Ort *ort = view->ort;
    TRY(ORT(ort, Graph_GetOnnxIRVersion)(view->graph, &view->ir_version));
    size_t count;
    TRY(ORT(ort, Graph_GetNumOperatorSets)(view->graph, &count));
    view->domains = SCRATCH_ARRAY(view->scratch, const char *, count);
    view->opsets = SCRATCH_ARRAY(view->scratch, int64_t, count);
    NEED(ort, view->domains && view->opsets);
    TRY(ORT(ort, Graph_GetOperatorSets)(view->graph, view->domains, view->opsets, count));
    view->opset_count = (int)count;
    const char *path;
    TRY(ORT(ort, Graph_GetModelPath)(view->graph, &path));
    if (!path || !*path) return NULL;
    const char *slash = strrchr(path, '/');
    view->folder = slash ? scratch_format(view->scratch, "%.*s", (int)(slash == path ? 1 : slash - path), path) : ".";
    NEED(ort, view->folder);
    return NULL;
}

OrtStatus *view_graph(const Ort *ort, Scratch *scratch, const OrtGraph *graph, GraphView *out_view) {
    GraphView *view = out_view;
    *view = (GraphView){.ort = ort, .scratch = scratch, .graph = graph, .names = {.scratch = scratch}};
    TRY(view_model(view));
    size_t count;
    TRY(ORT(ort, Graph_GetNumNodes)(graph, &count));
    const OrtNode **nodes = SCRATCH_ARRAY(scratch, const OrtNode *, count);
    view->nodes = SCRATCH_ARRAY(scratch, ViewNode, count);
    NEED(ort, nodes && view->nodes);
    TRY(ORT(ort, Graph_GetNodes)(graph, nodes, count));
    view->node_count = (int)count;
    for (int n = 0; n < view->node_count; n++) {
        TRY(view_node(view, nodes[n], &view->nodes[n]));
        for (int o = 0; o < view->nodes[n].output_count; o++)
            if (view->nodes[n].outputs[o] >= 0) view->values[view->nodes[n].outputs[o]].producer = n;
    }
    return NULL;
}

static const char *plain_domain(const char *domain) { return strcmp(domain, "ai.onnx") == 0 ? "" : domain; }

int view_opset(const GraphView *view, const char *domain) {
    for (int i = 0; i < view->opset_count; i++)
        if (strcmp(plain_domain(view->domains[i]), plain_domain(domain)) == 0) return (int)view->opsets[i];
    return 0;
}
