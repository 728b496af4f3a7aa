/* SPDX-License-Identifier: Apache-2.0 */
/* The model as it was imported, for who wants to know which node reads what: names alone, since the nodes themselves
 * are gone once the model is lowered. */
#ifndef ONNXFUSE_GRAPH_OUTLINE_H
#define ONNXFUSE_GRAPH_OUTLINE_H

#include "graph/graph.h"

typedef struct Outline Outline;

/* In the graph's arena. */
const Outline *outline_make(const Graph *graph);
/* [{"name","op","domain","inputs","outputs","graphs"}], in topological order; null for NULL. */
void outline_print(Text *text, const Outline *outline);

#endif
