/* SPDX-License-Identifier: Apache-2.0 */
/* Large constants that were made while the model was compiled, and memory of those that nothing reads any more: a weight that is dequantized and then
 * scaled was three others before, each of them four bytes a number. What lies in the model's file or belongs to the caller is none of them. */
#ifndef ONNXFUSE_GRAPH_CONSTANTS_UNREAD_H
#define ONNXFUSE_GRAPH_CONSTANTS_UNREAD_H

#include "graph/graph.h"

/* Notes that the tensor's data is the graph's own: of the outermost graph's arena as it was allocated, and nobody's else. */
void graph_note_made(Graph *graph, const Tensor *tensor);
/* The same of data that the importer has copied, wherever that stands. */
void graph_note_pages(Graph *graph, const Tensor *tensor);
/* From now on what is noted is given back when nothing in the graph reads it: values that are read, what they were made of (Value.wider), attributes of
 * nodes, all of subgraphs, too. */
void graph_give_unread_back(Graph *graph);
/* Between two nodes' work, when nothing is held but by what stands in the graph: gives back what is unread if so much has been made since that it is worth
 * a search. A value whose data is gone is no constant any more (value_is_gone). */
void graph_give_back_many(Graph *graph);
/* The same after a pass, however little there is. */
void graph_give_back(Graph *graph);

#endif
