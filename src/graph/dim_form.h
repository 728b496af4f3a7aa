/* SPDX-License-Identifier: Apache-2.0 */
/* How a size expression is held: what dim.c computes with and dim_text.c prints. */
#ifndef ONNXFUSE_GRAPH_DIM_FORM_H
#define ONNXFUSE_GRAPH_DIM_FORM_H

#include "base/map.h"
#include "graph/dim.h"

/* Keep the order of DimFunction. */
typedef enum AtomKind {
    ATOM_SYMBOL,
    ATOM_DIV,
    ATOM_MOD,
    ATOM_MIN,
    ATOM_MAX,
    ATOM_BROADCAST,
    ATOM_ADD,
    ATOM_MUL
} AtomKind;

/* Values lie in [low, high]; INT64_MIN and INT64_MAX stand for no bound. */
typedef struct Range {
    int64_t low, high;
} Range;

typedef struct Atom {
    AtomKind kind;
    int index;        /* the symbol's number */
    const char *name; /* of a symbol */
    const Dim *a, *b; /* operands of the other kinds */
    Range range;
    int size, depth; /* as in Dim */
} Atom;

typedef struct Monomial {
    uint64_t hash;
    struct Monomial *next; /* same hash */
    uint32_t id;
    Range range;
    int count;           /* its degree; 0: the constant term's */
    const Atom *atoms[]; /* ordered by compare_atoms, repeated for powers */
} Monomial;

typedef struct Term {
    int64_t coefficient; /* neither 0 nor INT64_MIN */
    const Monomial *monomial;
} Term;

struct Dim {
    uint64_t hash;
    Dim *next; /* same hash */
    uint32_t id;
    Range range;
    int size;           /* nodes when written out as a tree */
    int depth;          /* of nested functions */
    const Dim *instead; /* not NULL: too large, stands for this symbol */
    int count;          /* 0: the constant 0 */
    Term terms[];       /* ordered by compare_monomials, so a constant term is the last */
};

struct DimTable {
    Arena *arena;
    Map dims, monomials; /* by hash, chained */
    Map atoms, results;  /* by pair_key: interned atoms, results of the non-linear functions */
    Map names, hints;    /* symbol name -> Dim *; dim_fresh's next number of a hint */
    uint32_t next_id;
    const Monomial *one;
    VEC(const Dim *) symbols;
};

/* The atom that the expression is; NULL where it is more, or a number. */
const Atom *dim_atom(const Dim *dim);

#endif
