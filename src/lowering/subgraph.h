/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of graphs, a body kept for another lowering, a branch taken for good; and Scans that lowering makes. */
#ifndef ONNXFUSE_LOWERING_SUBGRAPH_H
#define ONNXFUSE_LOWERING_SUBGRAPH_H

#include "lowering/build.h"

/* Gives a body's input the type, and the content, of the value that is passed in. */
void pass_type(Value *to, const Value *from);
/* A copy as a subgraph of `parent`; inputs and outputs in the same order. */
Graph *clone_graph(Graph *parent, const Graph *source);
/* Puts a copy of the node into a graph (before == NULL: at its end). What it reads is found in `values` (source Value * -> target Value *), which gets
 * its results; constants are copied. */
void copy_node_to(Graph *target, Node *before, const Node *node, Map *values);
/* The importer copies constants into the bodies that read them. Those of `constants` (Tensor -> Value of the graph) that stand in bodies of the
 * graph's control flow, and in bodies of these, are captured instead. In: LEVEL_ONNX. */
void capture_constants(Graph *graph, const Map *constants);
/* Of the constants that stand in bodies alone those that are wanted become constants of the graph and are added to `constants`. Each has the name it has inside, or that with a number where another value has it: the same names, whichever are wanted. */
typedef bool (*WantedFn)(void *context, const Value *inside, const char *name);
void lift_constants(Graph *graph, WantedFn wanted, void *context, Map *constants);
/* Copies a body's nodes into a graph, before a node (NULL: to the end); its inputs become `inputs`. outputs: [body outputs]. */
void inline_graph_in(Graph *target, Node *before, const Graph *body, Value *const *inputs, Value **outputs);
/* Copies a lowered body's nodes before the node that is being lowered; its inputs become `inputs`. outputs: [body
 * outputs]. */
void inline_graph(Lowering *l, const Graph *body, Value *const *inputs, Value **outputs);
/* The same of a body that is not lowered: its nodes go behind the node that is being lowered, and are lowered next. */
void inline_graph_behind(Lowering *l, const Graph *body, Value *const *inputs, Value **outputs);

/* A Scan in primitives under construction, over axis 0. States come first, then what is scanned, then all that is captured. */
enum { MOST_SCAN_INPUTS = 16 };
typedef struct ScanBody {
    Lowering in; /* with which the body is told */
    Value *inputs[MOST_SCAN_INPUTS];
    int states, scanned, captured;
} ScanBody;
ScanBody scan_begin(Lowering *l, const char *name);
/* Of a value around the body, what the body has: a state that begins as it is, an element along axis 0, the same in all steps. NULL of NULL. */
Value *scan_state(ScanBody *s, Value *first);
Value *scan_element(ScanBody *s, Value *all);
Value *scan_captured(ScanBody *s, Value *value);
/* From the states behind the step, then what is stacked along axis 0, the Scan's results. length: of what is scanned. backwards: from its end. An
 * error, of the body too, is l's. */
void scan_end(Lowering *l, const Node *n, ScanBody *s, const Dim *length, bool backwards, Value *const *given,
              int count, Value **out_results);

#endif
