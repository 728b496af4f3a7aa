/* SPDX-License-Identifier: Apache-2.0 */
/* Where a model is trained: a place of a fusion of phase forward whose gradients its fusion of phase backward computes. The patterns' names
 * say what is what: where the forward one has an input x and an output y, dx and dy are their gradients in the backward one. */
#ifndef ONNXFUSE_PASSES_ADJOINT_H
#define ONNXFUSE_PASSES_ADJOINT_H

#include "lowering/custom.h"
#include "passes/pattern/pattern.h"

typedef struct Adjoints {
    const char *fusion;             /* the name that both have */
    const Pattern *const *patterns; /* [count] of phase backward */
    int count;
} Adjoints;

/* The first of the patterns that can be computed of what the place offers; NULL: none. */
const Pattern *adjoint_choose(const Adjoints *adjoints, const Pattern *forward, const PatternMatch *match);
/* Puts the operator Adjoint of INTERNAL_DOMAIN behind the place (before `before`): its results, which are now read in the place of the forward
 * pattern's outputs, are these themselves, and its gradients are what the kernel of the backward fusion makes (lowering/custom.c). */
Node *adjoint_insert(Graph *graph, Node *before, const char *fusion, const Pattern *backward, const Pattern *forward,
                     const PatternMatch *match, Origin origin);
/* Whether a graph or a body in it is differentiated; with the names of what is (attributes xs, zs of Gradient) in out_names. */
bool adjoint_is_asked(const Graph *graph, Map *out_names);

#endif
