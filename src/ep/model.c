/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a set of nodes as a ModelProto. Field numbers are those of the ONNX standard (src/importer/onnx.proto). */
#include "ep/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_IR_VERSION = 1, MODEL_PRODUCER = 2, MODEL_GRAPH = 7, MODEL_OPSET = 8 };
enum { OPSET_DOMAIN = 1, OPSET_VERSION = 2 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5, NODE_DOMAIN = 7 };
enum { ATTR_NAME = 1, ATTR_F = 2, ATTR_I = 3, ATTR_S = 4, ATTR_T = 5, ATTR_G = 6 };
enum { ATTR_FLOATS = 7, ATTR_INTS = 8, ATTR_STRINGS = 9, ATTR_TYPE = 20 };
enum { VALUE_NAME = 1, VALUE_TYPE = 2, TYPE_TENSOR = 1, TENSOR_ELEMENT = 1, TENSOR_SHAPE = 2 };
enum { SHAPE_DIM = 1, DIM_VALUE = 1, DIM_NAME = 2 };
enum { DATA_DIMS = 1, DATA_TYPE = 2, DATA_STRING = 6, DATA_NAME = 8, DATA_RAW = 9, DATA_EXTERNAL = 13 };
enum { DATA_LOCATION = 14, LOCATION_EXTERNAL = 1, ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { PROTO_FLOAT = 1, PROTO_INT, PROTO_STRING, PROTO_TENSOR, PROTO_GRAPH, PROTO_FLOATS, PROTO_INTS, PROTO_STRINGS };

/* Below this, referring to a weight takes more than holding it. */
enum { REFER_FROM = 1024, MOST_NESTING = 64 };

typedef struct Writer {
    const Ort *ort;
    Scratch *scratch;
    const char *folder;
    Weights *weights;
    Wire *wire;
    int depth;
} Writer;

/* --- weights ----------------------------------------------------------------------------------------------------- */
static const char weight_prefix[] = "onnxruntime:";

const void *weights_find(void *user, const char *location, size_t *out_size) {
    const Weights *weights = user;
    if (strncmp(location, weight_prefix, sizeof weight_prefix - 1) != 0) return NULL;
    char *end;
    long index = strtol(location + sizeof weight_prefix - 1, &end, 10);
    if (*end || index < 0 || index >= weights->count) return NULL;
    *out_size = weights->items[index].size;
    return weights->items[index].data;
}

static OrtStatus *refer(Writer *w, const void *data, size_t size, int *out_index) {
    Weights *weights = w->weights;
    if (weights->count == weights->capacity) {
        int capacity = 2 * weights->capacity + 64;
        struct Weight *larger = SCRATCH_ARRAY(w->scratch, struct Weight, capacity);
        NEED(w->ort, larger);
        if (weights->count) memcpy(larger, weights->items, (size_t)weights->count * sizeof *larger);
        weights->items = larger;
        weights->capacity = capacity;
    }
    weights->items[weights->count] = (struct Weight){data, size};
    *out_index = weights->count++;
    return NULL;
}

static void write_entry(Wire *wire, const char *key, const char *value) {
    size_t entry = wire_begin(wire, DATA_EXTERNAL);
    wire_string(wire, ENTRY_KEY, key);
    wire_string(wire, ENTRY_VALUE, value);
    wire_end(wire, entry);
}

/* The part of a data file's path below the model's folder; NULL: it is elsewhere, or its path is not plain. */
static const char *below_folder(const char *folder, const char *path) {
    if (!folder || !path || !*path || strstr(path, "..")) return NULL;
    if (*path != '/') return path;
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && path[length] == '/' && path[length + 1] ? path + length + 1 : NULL;
}

/* A weight that lies in a file beside the model is mapped from there. */
static OrtStatus *write_file_reference(Writer *w, const OrtValueInfo *info, bool *out_written) {
    const Ort *ort = w->ort;
    OrtExternalInfo *external = NULL;
    TRY(ORT(ort, ValueInfo_GetExternalInitializerInfo)(info, &external));
    if (!external) return NULL;
    const char *path = below_folder(w->folder, ORT(ort, ExternalInitializerInfo_GetFilePath)(external));
    if (path) {
        char number[32];
        write_entry(w->wire, "location", path);
        snprintf(number, sizeof number, "%lld", (long long)ORT(ort, ExternalInitializerInfo_GetFileOffset)(external));
        write_entry(w->wire, "offset", number);
        snprintf(number, sizeof number, "%zu", ORT(ort, ExternalInitializerInfo_GetByteSize)(external));
        write_entry(w->wire, "length", number);
        wire_int(w->wire, DATA_LOCATION, LOCATION_EXTERNAL);
        *out_written = true;
    }
    ORT(ort, ReleaseExternalInitializerInfo)(external);
    return NULL;
}

/* --- tensors ----------------------------------------------------------------------------------------------------- */
static OrtStatus *write_strings(Writer *w, const OrtValue *value, int64_t count) {
    const Ort *ort = w->ort;
    size_t size;
    TRY(ORT(ort, GetStringTensorDataLength)(value, &size));
    char *text = SCRATCH_ARRAY(w->scratch, char, size);
    size_t *offsets = SCRATCH_ARRAY(w->scratch, size_t, count);
    NEED(ort, text && offsets);
    if (count) TRY(ORT(ort, GetStringTensorContent)(value, text, size, offsets, (size_t)count));
    offsets[count] = size;
    for (int64_t i = 0; i < count; i++)
        wire_bytes(w->wire, DATA_STRING, text + offsets[i], offsets[i + 1] - offsets[i]);
    return NULL;
}

static OrtStatus *write_reference(Writer *w, const void *data, size_t size) {
    int index;
    char location[64];
    TRY(refer(w, data, size, &index));
    snprintf(location, sizeof location, "%s%d", weight_prefix, index);
    write_entry(w->wire, "location", location);
    wire_int(w->wire, DATA_LOCATION, LOCATION_EXTERNAL);
    return NULL;
}

/* info: the value's, where it is an initializer. */
static OrtStatus *write_elements(Writer *w, const OrtValue *value, const OrtValueInfo *info, int dtype, int64_t count) {
    const Ort *ort = w->ort;
    if (dtype == ONNXFUSE_STRING) return write_strings(w, value, count);
    bool written = false;
    if (info && w->weights) TRY(write_file_reference(w, info, &written));
    if (written) return NULL;
    const void *data;
    size_t size;
    TRY(ORT(ort, GetTensorSizeInBytes)(value, &size));
    TRY(ORT(ort, GetTensorData)(value, &data));
    if (info && w->weights && size >= REFER_FROM) return write_reference(w, data, size);
    wire_bytes(w->wire, DATA_RAW, data, size);
    return NULL;
}

static OrtStatus *write_tensor(Writer *w, int field, const char *name, const OrtValue *value,
                               const OrtValueInfo *info) {
    const Ort *ort = w->ort;
    const int64_t *dims;
    size_t rank;
    int dtype;
    TRY(ORT(ort, GetTensorElementTypeAndShapeDataReference)(value, &dtype, &dims, &rank));
    size_t tensor = wire_begin(w->wire, field);
    int64_t count = 1;
    for (size_t d = 0; d < rank; d++) {
        wire_int(w->wire, DATA_DIMS, dims[d]);
        count *= dims[d];
    }
    wire_int(w->wire, DATA_TYPE, dtype);
    wire_string(w->wire, DATA_NAME, name);
    TRY(write_elements(w, value, info, dtype, count));
    wire_end(w->wire, tensor);
    return NULL;
}

static OrtStatus *write_initializer(Writer *w, const char *name, const OrtValueInfo *info) {
    const OrtValue *value;
    TRY(ORT(w->ort, ValueInfo_GetInitializerValue)(info, &value));
    if (!value) return ep_error(w->ort, ORT_EP_FAIL, "initializer \"%s\" has no value", name);
    return write_tensor(w, GRAPH_INITIALIZER, name, value, info);
}

/* --- declared values --------------------------------------------------------------------------------------------- */
static void write_shape(Wire *wire, const TensorType *type) {
    size_t shape = wire_begin(wire, TENSOR_SHAPE);
    for (int d = 0; d < type->rank; d++) {
        size_t dim = wire_begin(wire, SHAPE_DIM);
        if (type->dims[d] >= 0)
            wire_int(wire, DIM_VALUE, type->dims[d]);
        else if (type->symbols[d] && *type->symbols[d])
            wire_string(wire, DIM_NAME, type->symbols[d]);
        wire_end(wire, dim);
    }
    wire_end(wire, shape);
}

/* Outputs' shapes follow from the nodes, so only inputs declare theirs. */
static OrtStatus *write_value(Writer *w, int field, const char *name, const OrtValueInfo *info) {
    TensorType type;
    TRY(view_type(w->ort, w->scratch, info, &type));
    size_t value = wire_begin(w->wire, field);
    wire_string(w->wire, VALUE_NAME, name);
    if (type.dtype != ONNXFUSE_NONE) {
        size_t outer = wire_begin(w->wire, VALUE_TYPE), tensor = wire_begin(w->wire, TYPE_TENSOR);
        wire_int(w->wire, TENSOR_ELEMENT, type.dtype);
        if (field == GRAPH_INPUT && type.rank >= 0) write_shape(w->wire, &type);
        wire_end(w->wire, tensor);
        wire_end(w->wire, outer);
    }
    wire_end(w->wire, value);
    return NULL;
}

/* --- attributes -------------------------------------------------------------------------------------------------- */
/* The bytes of an attribute that is no graph and no tensor. */
static OrtStatus *read_attribute(Writer *w, const OrtOpAttr *attr, OrtAttrType type, char **out_bytes,
                                 size_t *out_size) {
    const Ort *ort = w->ort;
    char probe[64];
    size_t size = 0;
    *out_size = 0;
    OrtStatus *status = ORT(ort, ReadOpAttr)(attr, type, probe, sizeof probe, &size);
    if (status) ORT(ort, ReleaseStatus)(status); /* says the size needed */
    size_t room = size < sizeof probe ? sizeof probe : size;
    *out_bytes = scratch_alloc(w->scratch, room);
    NEED(ort, *out_bytes);
    return ORT(ort, ReadOpAttr)(attr, type, *out_bytes, room, out_size);
}

static void write_numbers(Wire *wire, OrtAttrType type, const char *bytes, size_t size) {
    if (type == ORT_ATTR_INT || type == ORT_ATTR_INTS) {
        int64_t number;
        for (size_t i = 0; i + sizeof number <= size; i += sizeof number) {
            memcpy(&number, bytes + i, sizeof number);
            wire_int(wire, type == ORT_ATTR_INT ? ATTR_I : ATTR_INTS, number);
        }
    } else {
        float number;
        for (size_t i = 0; i + sizeof number <= size; i += sizeof number) {
            memcpy(&number, bytes + i, sizeof number);
            wire_float(wire, type == ORT_ATTR_FLOAT ? ATTR_F : ATTR_FLOATS, number);
        }
    }
}

/* Several strings come one after the other, each ended by a zero. */
static void write_texts(Wire *wire, OrtAttrType type, const char *bytes, size_t size) {
    if (type == ORT_ATTR_STRING) {
        wire_bytes(wire, ATTR_S, bytes, size);
        return;
    }
    for (size_t at = 0, length; at < size; at += length + 1) {
        length = strnlen(bytes + at, size - at);
        wire_bytes(wire, ATTR_STRINGS, bytes + at, length);
    }
}

static const int proto_types[] = {
    [ORT_ATTR_INT] = PROTO_INT,       [ORT_ATTR_INTS] = PROTO_INTS,     [ORT_ATTR_FLOAT] = PROTO_FLOAT,
    [ORT_ATTR_FLOATS] = PROTO_FLOATS, [ORT_ATTR_STRING] = PROTO_STRING, [ORT_ATTR_STRINGS] = PROTO_STRINGS,
    [ORT_ATTR_GRAPH] = PROTO_GRAPH,   [ORT_ATTR_TENSOR] = PROTO_TENSOR,
};

static OrtStatus *write_attribute_value(Writer *w, const OrtOpAttr *attr, OrtAttrType type) {
    const Ort *ort = w->ort;
    if (type == ORT_ATTR_TENSOR) {
        OrtValue *value = NULL;
        TRY(ORT(ort, OpAttr_GetTensorAttributeAsOrtValue)(attr, &value));
        OrtStatus *status = write_tensor(w, ATTR_T, "", value, NULL);
        ORT(ort, ReleaseValue)(value);
        return status;
    }
    char *bytes;
    size_t size;
    TRY(read_attribute(w, attr, type, &bytes, &size));
    if (type == ORT_ATTR_STRING || type == ORT_ATTR_STRINGS)
        write_texts(w->wire, type, bytes, size);
    else
        write_numbers(w->wire, type, bytes, size);
    return NULL;
}

static OrtStatus *write_attributes(Writer *w, const OrtNode *node) {
    const Ort *ort = w->ort;
    size_t count;
    TRY(ORT(ort, Node_GetNumAttributes)(node, &count));
    const OrtOpAttr **attrs = SCRATCH_ARRAY(w->scratch, const OrtOpAttr *, count);
    NEED(ort, attrs);
    if (count) TRY(ORT(ort, Node_GetAttributes)(node, attrs, count));
    for (size_t i = 0; i < count; i++) {
        OrtAttrType type;
        const char *name;
        TRY(ORT(ort, OpAttr_GetType)(attrs[i], &type));
        TRY(ORT(ort, OpAttr_GetName)(attrs[i], &name));
        if (type == ORT_ATTR_GRAPH) continue; /* comes with the node's subgraphs */
        size_t attribute = wire_begin(w->wire, NODE_ATTRIBUTE);
        wire_string(w->wire, ATTR_NAME, name);
        TRY(write_attribute_value(w, attrs[i], type));
        wire_int(w->wire, ATTR_TYPE, proto_types[type]);
        wire_end(w->wire, attribute);
    }
    return NULL;
}

OrtStatus *model_can_hold(const Ort *ort, Scratch *scratch, const OrtNode *node, bool *out_can) {
    *out_can = true;
    size_t count;
    TRY(ORT(ort, Node_GetNumAttributes)(node, &count));
    const OrtOpAttr **attrs = SCRATCH_ARRAY(scratch, const OrtOpAttr *, count);
    NEED(ort, attrs);
    if (count) TRY(ORT(ort, Node_GetAttributes)(node, attrs, count));
    for (size_t i = 0; i < count && *out_can; i++) {
        OrtAttrType type = ORT_ATTR_UNDEFINED;
        OrtStatus *status = ORT(ort, OpAttr_GetType)(attrs[i], &type);
        if (status) ORT(ort, ReleaseStatus)(status); /* a type that the interface does not have */
        *out_can = type > ORT_ATTR_UNDEFINED && type <= ORT_ATTR_TENSOR;
    }
    return NULL;
}

/* --- nodes and graphs -------------------------------------------------------------------------------------------- */
static OrtStatus *write_subgraph(Writer *w, const OrtGraph *graph);

static void write_names(Wire *wire, int field, const GraphView *view, const int *numbers, int count) {
    while (count > 0 && numbers[count - 1] < 0) count--;
    for (int i = 0; i < count; i++) wire_string(wire, field, numbers[i] < 0 ? "" : view->values[numbers[i]].name);
}

static OrtStatus *write_node(Writer *w, const GraphView *view, const ViewNode *n, const char *name) {
    size_t node = wire_begin(w->wire, GRAPH_NODE);
    write_names(w->wire, NODE_INPUT, view, n->inputs, n->explicit_count);
    write_names(w->wire, NODE_OUTPUT, view, n->outputs, n->output_count);
    wire_string(w->wire, NODE_NAME, name);
    wire_string(w->wire, NODE_OP, n->op);
    if (*n->domain) wire_string(w->wire, NODE_DOMAIN, n->domain);
    TRY(write_attributes(w, n->node));
    for (int i = 0; i < n->subgraph_count; i++) {
        size_t attribute = wire_begin(w->wire, NODE_ATTRIBUTE);
        wire_string(w->wire, ATTR_NAME, n->subgraph_names[i]);
        size_t body = wire_begin(w->wire, ATTR_G);
        TRY(write_subgraph(w, n->subgraphs[i]));
        wire_end(w->wire, body);
        wire_int(w->wire, ATTR_TYPE, PROTO_GRAPH);
        wire_end(w->wire, attribute);
    }
    wire_end(w->wire, node);
    return NULL;
}

typedef OrtStatus *(*InfoCountFn)(const OrtGraph *, size_t *);
typedef OrtStatus *(*InfoListFn)(const OrtGraph *, const OrtValueInfo **, size_t);

/* Inputs, outputs or initializers of a subgraph. */
static OrtStatus *write_infos(Writer *w, const OrtGraph *graph, int field, InfoCountFn get_count, InfoListFn get_list) {
    size_t count;
    TRY(get_count(graph, &count));
    const OrtValueInfo **infos = SCRATCH_ARRAY(w->scratch, const OrtValueInfo *, count);
    NEED(w->ort, infos);
    if (count) TRY(get_list(graph, infos, count));
    for (size_t i = 0; i < count; i++) {
        const char *name;
        TRY(ORT(w->ort, GetValueInfoName)(infos[i], &name));
        if (field == GRAPH_INITIALIZER)
            TRY(write_initializer(w, name, infos[i]));
        else
            TRY(write_value(w, field, name, infos[i]));
    }
    return NULL;
}

static OrtStatus *write_subgraph(Writer *w, const OrtGraph *graph) {
    const Ort *ort = w->ort;
    if (++w->depth > MOST_NESTING)
        return ep_error(ort, ORT_INVALID_GRAPH, "subgraphs nest deeper than %d", MOST_NESTING);
    GraphView view;
    TRY(view_graph(ort, w->scratch, graph, &view));
    for (int n = 0; n < view.node_count; n++) TRY(write_node(w, &view, &view.nodes[n], view.nodes[n].name));
    const char *name;
    TRY(ORT(ort, Graph_GetName)(graph, &name));
    wire_string(w->wire, GRAPH_NAME, name && *name ? name : "body");
    TRY(write_infos(w, graph, GRAPH_INITIALIZER, ORT(ort, Graph_GetNumInitializers), ORT(ort, Graph_GetInitializers)));
    TRY(write_infos(w, graph, GRAPH_INPUT, ORT(ort, Graph_GetNumInputs), ORT(ort, Graph_GetInputs)));
    TRY(write_infos(w, graph, GRAPH_OUTPUT, ORT(ort, Graph_GetNumOutputs), ORT(ort, Graph_GetOutputs)));
    w->depth--;
    return NULL;
}

/* Which values the chosen nodes make, and which they were seen to read. */
enum { MADE = 1, READ = 2 };

static OrtStatus *write_outside(Writer *w, const ModelRequest *r) {
    const GraphView *view = r->view;
    char *marks = SCRATCH_ARRAY(w->scratch, char, view->value_count);
    NEED(w->ort, marks);
    for (int i = 0; i < r->node_count; i++) {
        const ViewNode *n = &view->nodes[r->nodes[i]];
        for (int o = 0; o < n->output_count; o++)
            if (n->outputs[o] >= 0) marks[n->outputs[o]] = MADE;
    }
    for (int i = 0; i < r->node_count; i++) {
        const ViewNode *n = &view->nodes[r->nodes[i]];
        for (int k = 0; k < n->input_count; k++) {
            if (n->inputs[k] < 0 || marks[n->inputs[k]]) continue;
            const ViewValue *value = &view->values[n->inputs[k]];
            marks[n->inputs[k]] = READ;
            if (value->is_constant)
                TRY(write_initializer(w, value->name, value->info));
            else
                TRY(write_value(w, GRAPH_INPUT, value->name, value->info));
        }
    }
    return NULL;
}

static OrtStatus *write_graph(Writer *w, const ModelRequest *r) {
    const GraphView *view = r->view;
    for (int i = 0; i < r->node_count; i++) {
        const ViewNode *n = &view->nodes[r->nodes[i]];
        char number[32];
        snprintf(number, sizeof number, "%d", r->nodes[i]);
        TRY(write_node(w, view, n, r->number_nodes ? number : n->name));
    }
    wire_string(w->wire, GRAPH_NAME, "onnxfuse");
    TRY(write_outside(w, r));
    for (int o = 0; o < r->output_count; o++) {
        const ViewValue *value = &view->values[r->outputs[o]];
        TRY(write_value(w, GRAPH_OUTPUT, value->name, value->info));
    }
    return NULL;
}

OrtStatus *model_write(const ModelRequest *r, Wire *out_model) {
    const GraphView *view = r->view;
    Writer w = {view->ort, view->scratch, r->weights ? view->folder : NULL, r->weights, out_model, 0};
    wire_int(out_model, MODEL_IR_VERSION, view->ir_version);
    wire_string(out_model, MODEL_PRODUCER, EP_NAME);
    for (int i = 0; i < view->opset_count; i++) {
        size_t opset = wire_begin(out_model, MODEL_OPSET);
        wire_string(out_model, OPSET_DOMAIN, view->domains[i]);
        wire_int(out_model, OPSET_VERSION, view->opsets[i]);
        wire_end(out_model, opset);
    }
    size_t graph = wire_begin(out_model, MODEL_GRAPH);
    TRY(write_graph(&w, r));
    wire_end(out_model, graph);
    return out_model->failed ? ep_out_of_memory(view->ort) : NULL;
}
