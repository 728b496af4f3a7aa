/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-made ONNX messages for the tests: short calls that add to a message in an arena, and its bytes. */
#ifndef ONNXFUSE_TESTS_IMPORTER_MESSAGES_H
#define ONNXFUSE_TESTS_IMPORTER_MESSAGES_H

#include "importer/importer.h"
#include "importer/tensor_proto.h"

typedef Onnx__ModelProto Model;
typedef Onnx__GraphProto GraphMessage;
typedef Onnx__NodeProto NodeMessage;
typedef Onnx__AttributeProto Attribute;
typedef Onnx__FunctionProto Function;

extern Arena *test_arena; /* of all messages of a test */

/* Lists of names are written "a, b, , c"; an empty place is an empty name. */
Model *make_model(int64_t ir_version, const char *domains_and_versions); /* "=21, my=1" */
GraphMessage *make_graph(const char *name);
void add_input(GraphMessage *graph, const char *name, DType dtype, const char *dims_or_null);     /* "N, 4, " */
void add_map_input(GraphMessage *graph, const char *name, DType key, DType value, bool sequence); /* of such maps */
void add_output(GraphMessage *graph, const char *names);
NodeMessage *make_node(const char *op, const char *inputs, const char *outputs);
NodeMessage *add_node(GraphMessage *graph, const char *op, const char *inputs, const char *outputs);
Attribute *add_attribute(NodeMessage *node, const char *name, int type);
void add_branch(NodeMessage *node, const char *name, GraphMessage *graph);
void add_reference(NodeMessage *node, const char *name, const char *of);
Onnx__TensorProto *make_floats(const char *name, const char *dims, const float *values, size_t count);
void add_initializer(GraphMessage *graph, Onnx__TensorProto *tensor);
Function *add_function(Model *model, const char *domain, const char *name, const char *inputs, const char *outputs);
void add_function_node(Function *function, NodeMessage *node);
void *pack(const ProtobufCMessage *message, size_t *out_size);

#endif
