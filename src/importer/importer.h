/* SPDX-License-Identifier: Apache-2.0 */
/* The importer: the bytes of an ONNX model -> a graph of ONNX nodes (LEVEL_ONNX), and recorded inputs and outputs <->
 * items.
 *
 * What the graph of a model looks like:
 * - Initializers are constants. One that is also listed as an input (as IR version 3 demands) is a constant and no
 * input. Sparse ones are made dense. Constant nodes are constants as well, so no node of that name is left.
 * - Inputs have the dtype and shape that the model declares; a named dimension is the symbol of that name, an unknown
 * one a symbol of its own, "INPUT_AXIS". Nothing else that a file says about types is believed: values inside have
 * dtype DT_NONE and rank -1, inputs of subgraphs have at most their dtype.
 * - A subgraph is closed: what it reads from outside is passed in through `captures`; an outer constant is a constant
 * inside too.
 * - Calls of model-local functions are replaced by the function's nodes, with the function's own opset versions; their
 * values are named "CALL/NAME", their origins begin with the call.
 * - Nodes are in topological order, in the file's where that is one. Trailing inputs that are left out are dropped.
 * - The domain "ai.onnx" is "". Every node has the opset version that the model (or function) imports for its domain.
 * - An attribute of TypeProto kind is ATTR_TYPE with the element type, and a second attribute NAME_kind holds its
 * ValueKind.
 *
 * A file that is wrong gives STATUS_INVALID, one that asks for what we lack STATUS_UNSUPPORTED, with the file, node and
 * name. */
#ifndef ONNXFUSE_IMPORTER_IMPORTER_H
#define ONNXFUSE_IMPORTER_IMPORTER_H

#include "graph/graph.h"

enum { OLDEST_IR_VERSION = 3, NEWEST_IR_VERSION = 14, NEWEST_OPSET = 28 };

/* The bytes of a data file that external_data names; NULL: to be looked up in the model's folder. */
typedef const void *(*ExternalDataFn)(void *user, const char *location, size_t *out_size);

typedef struct ImportOptions {
    size_t arena_limit;     /* most bytes the graph's arena may take, 0: no limit */
    bool unaligned_weights; /* float weights that only products, convolutions and Gather read, scales of their blocks
                                     included, stay as they lie in the file: tensor_is_aligned tells. Who reads
                                     elements by their C type aligns them */
    bool borrow_bytes;      /* import_memory: the bytes outlive the graph, so weights are used where they are */
    ExternalDataFn external_data; /* import_memory; may be NULL. What it gives is borrowed as the bytes are */
    void *external_data_user;
} ImportOptions;

/* options may be NULL. The file stays mapped until graph_destroy. *out_graph is NULL on failure. */
Status import_file(const char *path, const ImportOptions *options, Graph **out_graph);
/* folder: where external tensors lie, NULL when there is none. The bytes may go after the call unless borrow_bytes. */
Status import_memory(const void *bytes, size_t size, const char *folder, const ImportOptions *options,
                     Graph **out_graph);

/* Says that this constant's data is not read any more, by anyone (say, it has been packed into a library's own layout):
 * large ones give their memory back. What is read after all is the file's bytes, or zeros. Does nothing for models from
 * memory. */
void import_discard(const Graph *graph, const Tensor *tensor);

/* The reverse of import: a graph of ONNX nodes -> the bytes of a model, in `arena`. Values keep their names, those of
 * subgraphs where no outer value has the same; the result is under 2 GiB, as protobuf demands, else STATUS_UNSUPPORTED.
 */
Status export_model(const Graph *graph, Arena *arena, void **out_bytes, size_t *out_size);

/* What an exported model has beyond the graph; zero: nothing. */
typedef struct ExportOptions {
    const void *original; /* the bytes of the model that the graph was imported from: declared types of inputs, outputs
                             and values, versions, texts and metadata are taken from it; NULL: none */
    size_t original_size;
    const Map *fixed; /* name of a size -> int64_t *: what it is everywhere in these types; may be NULL */
    /* Takes the data of initializers out of a model of more than most_inside bytes: keeps it, and says in which file,
     * as the model names it, and where in that. NULL: all stays inside. */
    Status (*write)(void *user, const void *data, size_t size, const char **out_location, int64_t *out_offset);
    void *user;
    size_t most_inside;
    /* Nodes that stand together and have the same tag, from 1 to region_count, become a call of a model-local function:
     * regions[tag - 1] describes it. No path may leave such nodes and come back. 0: tags mean nothing. */
    const char *const *regions;
    int region_count;
} ExportOptions;
/* Domain of the functions that regions become. */
#define REGIONS_DOMAIN "onnxfuse.regions"
Status export_model_with(const Graph *graph, Arena *arena, const ExportOptions *options, void **out_bytes,
                         size_t *out_size);

/* A TensorProto (VALUE_TENSOR), SequenceProto (of tensors or maps), MapProto (VALUE_MAP) or OptionalProto (the others),
 * as the backend tests record them. *out_name (may be NULL): the message's own name, "" when it has none. Everything lives in the arena, the
 * mapped file included. */
Status item_from_file(Arena *arena, const char *path, ValueKind kind, Item *out_item, const char **out_name);
Status item_from_memory(Arena *arena, const void *bytes, size_t size, ValueKind kind, Item *out_item,
                        const char **out_name);
/* The reverse; the bytes are in the arena. Names may be NULL. */
Status item_to_memory(Arena *arena, const Item *item, ValueKind kind, const char *name, void **out_bytes,
                      size_t *out_size);

#endif
