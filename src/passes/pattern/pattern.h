/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of ONNX nodes, as text: what user fusions and policy rules name a subgraph by. docs/extending.md has the
 * grammar:
 *
 *     (x, scale) -> (y) {
 *         square = Mul(x, x)
 *         mean = ReduceMean<axes=[-1]>(square)
 *         y = com.microsoft.Foo(mean, $epsilon, 2.0)
 *     }
 *
 *     pattern   = "(" [name {"," name}] ")" "->" "(" [name {"," name}] ")" "{" {node | name "!=" operator} "}"
 *     node      = name {"," name} "=" operator ["<" [attribute {"," attribute}] ">"] "(" [operand {"," operand}] ")"
 *     operator  = {word "."} word         the domain before the last point
 *     operand   = name | constant |       nothing or "_": left out
 *     attribute = word "=" (constant | '"' text '"')
 *     constant  = number | "[" [number {"," number}] "]" | "$" word
 *     name      = word | "_"              "_": an input or output that this pattern lacks, a result that nothing reads
 *
 * `x != Sub`: the pattern's input x is not made by this operator.
 *
 * A pattern holds at a place of a graph when its nodes can be found there such that every value that is neither an
 * input nor an output of the pattern is read by nodes of the match alone. Operators that commute match either way
 * round. An attribute of the pattern also matches the input that holds the same as a constant in other opset versions
 * (axes, say), an attribute that the pattern leaves out has any value, and constants are found whether they are
 * initializers or Constant nodes. */
#ifndef ONNXFUSE_PASSES_PATTERN_PATTERN_H
#define ONNXFUSE_PASSES_PATTERN_PATTERN_H

#include "graph/graph.h"

typedef struct Pattern Pattern;

/* where: of the text, for messages ("fusion FusedRMSNorm, pattern 1"). STATUS_INVALID names line and column. */
Status pattern_parse(Arena *arena, const char *text, const char *where, const Pattern **out_pattern);
/* All patterns of a fusion, texts NULL-terminated: their inputs and outputs are the same operator's, so as many. where:
 * "fusion FusedRMSNorm". */
Status pattern_parse_all(Arena *arena, const char *const *texts, const char *where, const Pattern *const **out_patterns,
                         int *out_count);
int pattern_input_count(const Pattern *pattern);
int pattern_output_count(const Pattern *pattern);
int pattern_capture_count(const Pattern *pattern); /* distinct $NAMEs */
const char *pattern_capture_name(const Pattern *pattern, int index);

typedef struct PatternMatch {
    int node_count;
    Node *const *nodes;     /* [node_count] in topological order */
    Value *const *inputs;   /* [pattern_input_count] */
    Value *const *outputs;  /* [pattern_output_count] */
    const double *captures; /* [pattern_capture_count] */
} PatternMatch;

/* Whether the pattern holds with `last` for its last node. Graph of LEVEL_ONNX. */
bool pattern_match(const Pattern *pattern, Arena *arena, Node *last, PatternMatch *out_match);

#endif
