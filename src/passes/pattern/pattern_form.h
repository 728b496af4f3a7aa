/* SPDX-License-Identifier: Apache-2.0 */
/* What a pattern's text becomes (pattern.c), and the search reads (pattern_match.c). */
#ifndef ONNXFUSE_PASSES_PATTERN_PATTERN_FORM_H
#define ONNXFUSE_PASSES_PATTERN_PATTERN_FORM_H

#include "passes/pattern/pattern.h"

enum {
    MOST_TEXT = 1 << 16, /* bytes */
    MOST_NODES = 64,     /* of a pattern */
    MOST_VALUES = 256,
    MOST_TERMS = 32, /* operands, outputs or attributes of one node; elements of a list */
};

typedef enum TermKind { TERM_ABSENT, TERM_VALUE, TERM_NUMBER, TERM_LIST, TERM_CAPTURE, TERM_TEXT } TermKind;

/* An operand, or what an attribute has to be. */
typedef struct Term {
    TermKind kind;
    int index;             /* TERM_VALUE: of pattern->values; TERM_CAPTURE: of pattern->captures */
    const double *numbers; /* TERM_NUMBER, TERM_LIST */
    int count;
    const char *text;
} Term;

typedef struct AttrTerm {
    const char *name;
    Term term;
} AttrTerm;

typedef struct PatternNode {
    const char *domain, *op;
    const Term *inputs;
    int input_count;
    const int *outputs; /* of pattern->values; -1: "_" */
    int output_count;
    const AttrTerm *attrs;
    int attr_count;
    bool commutes;
} PatternNode;

typedef struct PatternValue {
    const char *name, *place; /* place: in the text, while it is parsed */
    int producer, output;     /* node and its output; producer -1: an input of the pattern */
    bool is_read, is_output;
} PatternValue;

/* An input that must not be made by this operator. */
typedef struct Guard {
    int value;
    const char *domain, *op;
} Guard;

/* How a node is found: as what makes the value, or as a reader of it. The first is given. */
typedef struct Visit {
    int node, value;
    bool makes;
} Visit;

struct Pattern {
    VEC(PatternNode) nodes;
    VEC(PatternValue) values;
    VEC(int) inputs;  /* of values; -1: "_" */
    VEC(int) outputs; /* likewise */
    VEC(Guard) guards;
    VEC(const char *) captures;
    const Visit *order; /* [nodes.count] */
};

#endif
