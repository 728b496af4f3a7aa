/* SPDX-License-Identifier: Apache-2.0 */
/* Symbolic sizes: integer expressions over named symbols, interned, so that equal expressions (after normalisation) are
 * equal pointers. Held as sums of products: b*s*768 / (b*12*64) is s, exactly.
 *
 * A DimTable is shared by a graph, its subgraphs and region bodies and by the plan made from them. */
#ifndef ONNXFUSE_GRAPH_DIM_H
#define ONNXFUSE_GRAPH_DIM_H

#include <stdint.h>
#include "base/text.h"

typedef struct Dim Dim; /* immutable; lives in its table's arena */
typedef struct DimTable DimTable;

DimTable *dim_table_create(Arena *arena);
const Dim *dim_const(DimTable *table, int64_t value);
/* Symbols stand for sizes: they are between 0 and this in every binding, which whoever binds one checks. Models write
 * bounds like it for "to the end", so min(s, 1000000000) is s. */
enum { LARGEST_SIZE = 1000000000 };
/* The symbol of this name, made when new. */
const Dim *dim_symbol(DimTable *table, const char *name);
/* A symbol unlike any other, named HINT, HINT_1, HINT_2, ... */
const Dim *dim_fresh(DimTable *table, const char *hint);

const Dim *dim_add(DimTable *table, const Dim *a, const Dim *b);
const Dim *dim_sub(DimTable *table, const Dim *a, const Dim *b);
const Dim *dim_mul(DimTable *table, const Dim *a, const Dim *b);
const Dim *dim_div(DimTable *table, const Dim *a, const Dim *b); /* floor; exact divisions simplify away */
const Dim *dim_ceil_div(DimTable *table, const Dim *a, const Dim *b);
const Dim *dim_mod(DimTable *table, const Dim *a, const Dim *b);
const Dim *dim_min(DimTable *table, const Dim *a, const Dim *b);
const Dim *dim_max(DimTable *table, const Dim *a, const Dim *b);
/* The one that is not 1; the larger one where neither is. */
const Dim *dim_broadcast(DimTable *table, const Dim *a, const Dim *b);
const Dim *dim_product(DimTable *table, const Dim *const *dims, int count); /* 1 when empty */

bool dim_is_const(const Dim *dim, int64_t *out_value); /* out_value may be NULL */
bool dim_equals(const Dim *dim, int64_t value);
bool dim_is_nonnegative(const Dim *dim); /* by the bounds of what it is made of; false where these do not tell */
/* True when a == k * b for an expression k, which is returned through out_quotient (may be NULL). Assumes b != 0. */
bool dim_divides(DimTable *table, const Dim *a, const Dim *b, const Dim **out_quotient);
/* The symbol's number when the expression is a lone symbol, else -1. */
int dim_symbol_index(const Dim *dim);
int dim_symbol_count(const DimTable *table);
const char *dim_symbol_name(const DimTable *table, int index);

/* values[i] is symbol i's; UNBOUND_DIM where not known yet. Division by zero and overflow, and any unbound symbol, give
 * UNBOUND_DIM. */
#define UNBOUND_DIM INT64_MIN
int64_t dim_eval(const Dim *dim, const int64_t *values);
/* Replaces symbols by expressions of the same table; NULL entries stay. */
const Dim *dim_substitute(DimTable *table, const Dim *dim, const Dim *const *by_symbol, int count);

/* Calls visit for each symbol in the expression, repeated ones repeatedly. */
void dim_each_symbol(const Dim *dim, void (*visit)(int index, void *context), void *context);

/* How an expression is made, for writing it down: a sum of terms, each a coefficient times a product of factors, each a
 * symbol or a function of two expressions. */
typedef enum DimFunction {
    DIM_SYMBOL,
    DIM_DIV,
    DIM_MOD,
    DIM_MIN,
    DIM_MAX,
    DIM_BROADCAST,
    DIM_ADD,
    DIM_MUL
} DimFunction;
typedef struct DimFactor {
    DimFunction function;
    int symbol;       /* its number, of DIM_SYMBOL */
    const Dim *a, *b; /* of the others */
} DimFactor;
int dim_term_count(const Dim *dim);
int64_t dim_term(const Dim *dim, int term, int *out_factor_count); /* its coefficient */
DimFactor dim_factor(const Dim *dim, int term, int factor);
/* The function of its number, simplified as above; not DIM_SYMBOL. */
const Dim *dim_apply(DimTable *table, DimFunction function, const Dim *a, const Dim *b);

void dim_print(Text *text, const Dim *dim); /* "b*s*768 + 1", "floor(s/2)", "min(a, b)" */
/* Parses what dim_print prints, at *cursor; NULL and an unmoved cursor when it is no expression. */
const Dim *dim_parse(DimTable *table, const char **cursor);

#endif
