/* SPDX-License-Identifier: Apache-2.0 */
/* Random graphs of primitives and GEMMs, for properties that must hold of every graph. The same seed gives the same
 * graph on every machine.
 *
 * Each value carries a bound of its magnitude and of the rounding error that two correct implementations may differ by,
 * so outputs can be compared as closely as the arithmetic allows, and steps that jump (comparisons, rounding, casts to
 * integers) are only put on values that every implementation computes exactly. */
#ifndef ONNXFUSE_TESTS_RANDOM_GRAPH_H
#define ONNXFUSE_TESTS_RANDOM_GRAPH_H

#include "graph/graph.h"

typedef struct RandomOptions {
    int nodes;       /* about as many */
    bool anchors;    /* GEMMs too */
    bool no_symbols; /* constant sizes alone */
    bool large;      /* sizes up to thousands, so that several threads share a kernel */
    /* What to build is chosen by these bytes first, one a choice, then by the seed: for fuzzing. Borrowed by the call. */
    const unsigned char *choices;
    size_t choice_count;
} RandomOptions;

typedef struct RandomGraph {
    uint64_t seed;
    RandomOptions options;
    Graph *graph;
    double *tolerance; /* [outputs] absolute; 0: exact */
    double *low;       /* [inputs] range that their elements are drawn from */
    double *high;
} RandomGraph;

RandomGraph *random_graph(uint64_t seed, RandomOptions options); /* freed with graph_destroy(result->graph) */

/* Sizes for the graph's symbols, another choice each round; [dim_symbol_count], others are UNBOUND_DIM. */
int64_t *random_sizes(const RandomGraph *random, int round, Arena *arena);
/* Inputs of those sizes. */
Tensor **random_inputs(const RandomGraph *random, int round, const int64_t *symbols, Arena *arena);

/* The evaluator over primitives, regions and anchors: what a graph means. out_outputs [outputs]. */
Status evaluate_graph(const Graph *graph, Tensor *const *inputs, const int64_t *symbols, Arena *arena,
                      Tensor **out_outputs);

/* NULL when they agree within the tolerance, else where and how they differ, in the arena. */
const char *tensor_difference(const Tensor *expected, const Tensor *got, double tolerance, Arena *arena);
const char *graph_text(const Graph *graph, Arena *arena);

/* Which seeds to try: `count` of them from 1 on; the environment overrides: ONNXFUSE_TEST_SEED=N that one alone,
 * ONNXFUSE_TEST_SEEDS=N as many. */
void random_seeds(int count, uint64_t *out_first, uint64_t *out_last);

#endif
