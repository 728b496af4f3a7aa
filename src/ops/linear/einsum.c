/* SPDX-License-Identifier: Apache-2.0 */
/* Einsum: the equation becomes permutes, matrix products, products and sums.
 *
 * Every letter is a label; the axes that an ellipsis stands for get labels of their own. Operands are joined from the
 * left. Two operands are joined by a batched matrix product: labels that both have and that are still needed are batch
 * axes, labels that both have and nothing later needs are summed by the product, the rest are rows and columns. Where
 * nothing is summed it is a plain product. */
#include "ops/linear/linear.h"

#include "lowering/sizes.h"
#include "base/plain.h"

enum { LETTERS = 52, LABELS = LETTERS + MAX_RANK, MOST_OPERANDS = 64 };

/* A set of labels in the order of a tensor's axes. */
typedef struct Term {
    int labels[MAX_RANK];
    int count;
    int ellipsis; /* where it stands among the labels while parsing; -1: none */
} Term;

typedef struct Operand {
    Value *value;
    Term term; /* no label twice once prepared */
} Operand;

typedef struct Equation {
    Term terms[MOST_OPERANDS], result;
    int count;
    bool explicit_result;
} Equation;

static int letter(char c) { return c >= 'a' ? c - 'a' + 26 : c - 'A'; }

static bool has_label(const Term *term, int label) {
    for (int i = 0; i < term->count; i++)
        if (term->labels[i] == label) return true;
    return false;
}

static Status parse_term(Lowering *l, const char **cursor, Term *term) {
    *term = (Term){.ellipsis = -1};
    for (;; (*cursor)++) {
        char c = **cursor;
        if (c == ' ') continue;
        if (c == '.') {
            if (strncmp(*cursor, "...", 3) != 0 || term->ellipsis >= 0)
                return invalid(l, "the equation has a stray '.'");
            term->ellipsis = term->count;
            *cursor += 2;
        } else if (plain_is_letter(c)) {
            if (term->count == MAX_RANK) return invalid(l, "the equation has a term of more than %d letters", MAX_RANK);
            term->labels[term->count++] = letter(c);
        } else {
            return NULL;
        }
    }
}

static Status parse_equation(Lowering *l, const char *text, Equation *equation) {
    for (;;) {
        if (equation->count == MOST_OPERANDS)
            return unsupported(l, "the equation has more than %d terms", MOST_OPERANDS);
        TRY(parse_term(l, &text, &equation->terms[equation->count++]));
        if (*text != ',') break;
        text++;
    }
    equation->result = (Term){.ellipsis = -1};
    equation->explicit_result = text[0] == '-' && text[1] == '>';
    if (equation->explicit_result) {
        text += 2;
        TRY(parse_term(l, &text, &equation->result));
    }
    return *text ? invalid(l, "the equation cannot be read from \"%s\" on", text) : NULL;
}

/* Puts the labels of `axes` ellipsis axes into the term; they are counted from the right, as numpy broadcasts. */
static Status spell_ellipsis(Lowering *l, Term *term, int axes) {
    if (term->count + axes > MAX_RANK) return invalid(l, "a term stands for more than %d axes", MAX_RANK);
    int at = term->ellipsis;
    memmove(term->labels + at + axes, term->labels + at, (size_t)(term->count - at) * sizeof *term->labels);
    for (int i = 0; i < axes; i++) term->labels[at + i] = LETTERS + MAX_RANK - axes + i;
    term->count += axes;
    return NULL;
}

/* Without "->": the ellipsis, then the letters that stand once, in alphabetical order. */
static Status implicit_result(Lowering *l, Equation *equation) {
    int seen[LABELS] = {0};
    for (int t = 0; t < equation->count; t++)
        for (int i = 0; i < equation->terms[t].count; i++) seen[equation->terms[t].labels[i]]++;
    Term *result = &equation->result;
    for (int k = 0; k < LABELS; k++) {
        int label = (k + LETTERS) % LABELS; /* the ellipsis' labels first */
        if (label >= LETTERS ? !seen[label] : seen[label] != 1) continue;
        if (result->count == MAX_RANK) return invalid(l, "the result has more than %d axes", MAX_RANK);
        result->labels[result->count++] = label;
    }
    return NULL;
}

static Status resolve_ellipses(Lowering *l, const Node *n, Equation *equation) {
    int most = 0;
    for (int t = 0; t < equation->count; t++) {
        Value *x = in(l, n, t);
        Term *term = &equation->terms[t];
        if (!x) return l->error;
        int axes = x->rank - term->count;
        if (axes < 0 || (axes && term->ellipsis < 0))
            return invalid(l, "input %d has rank %d, but its term has %d letters", t, x->rank, term->count);
        if (term->ellipsis >= 0) TRY(spell_ellipsis(l, term, axes));
        if (axes > most) most = axes;
    }
    if (!equation->explicit_result) return implicit_result(l, equation);
    if (equation->result.ellipsis >= 0) TRY(spell_ellipsis(l, &equation->result, most));
    for (int i = 0; i < equation->result.count; i++) {
        bool found = false;
        for (int t = 0; t < equation->count; t++) found |= has_label(&equation->terms[t], equation->result.labels[i]);
        for (int k = 0; k < i; k++) found &= equation->result.labels[k] != equation->result.labels[i];
        if (!found) return invalid(l, "a letter of the equation's result is in no term, or stands there twice");
    }
    return NULL;
}

/* ---- preparing one operand ---- */

static void drop_axis(Term *term, int axis) {
    term->count--;
    memmove(term->labels + axis, term->labels + axis + 1, (size_t)(term->count - axis) * sizeof *term->labels);
}

static Value *sum_axis(Lowering *l, Value *x, int axis) { return reduce(l, PRIM_REDUCE_SUM, x, &axis, 1, false); }

/* A letter that stands twice takes the diagonal: all else is masked to zero, then summed away. */
static Status take_diagonals(Lowering *l, Operand *o) {
    for (int i = 0; i < o->term.count; i++) {
        for (int k = o->term.count - 1; k > i; k--) {
            if (o->term.labels[k] != o->term.labels[i]) continue;
            Value *x = o->value;
            if (!sizes_agree(x->dims[i], x->dims[k]))
                return invalid(l, "a repeated letter stands for axes of different sizes");
            const Dim **dims = size_array(l, x->rank);
            for (int a = 0; a < x->rank; a++) dims[a] = a == i || a == k ? x->dims[a] : size_const(l, 1);
            Value *on = binary(l, PRIM_EQ, iota(l, dims, x->rank, i, DT_I64), iota(l, dims, x->rank, k, DT_I64));
            o->value = sum_axis(l, where(l, on, x, like(l, x, 0)), k);
            if (!o->value) return l->error;
            drop_axis(&o->term, k);
        }
    }
    return NULL;
}

/* Sums the labels that are not needed. */
static Status reduce_alone(Lowering *l, Operand *o, const bool *needed) {
    for (int i = o->term.count - 1; i >= 0; i--) {
        if (needed[o->term.labels[i]]) continue;
        o->value = sum_axis(l, o->value, i);
        if (!o->value) return l->error;
        drop_axis(&o->term, i);
    }
    return NULL;
}

static int axis_with(const Term *term, int label) {
    for (int i = 0; i < term->count; i++)
        if (term->labels[i] == label) return i;
    return -1;
}

/* ---- joining two operands ---- */

typedef struct Labels {
    int items[2 * MAX_RANK];
    int count;
} Labels;

typedef struct Join {
    Labels batch, rows, columns, summed;
} Join;

/* The axes of `groups` in that order; a label that the operand lacks becomes an axis of size 1. */
static Value *arrange(Lowering *l, const Operand *o, const Labels *const *groups, int group_count) {
    int perm[MAX_RANK], kept = 0, rank = 0;
    const Dim *dims[8 * MAX_RANK];
    for (int g = 0; g < group_count; g++) {
        for (int i = 0; i < groups[g]->count; i++) {
            int axis = axis_with(&o->term, groups[g]->items[i]);
            dims[rank++] = axis < 0 ? size_const(l, 1) : o->value->dims[axis];
            if (axis >= 0) perm[kept++] = axis;
        }
    }
    if (rank > MAX_RANK) {
        unsupported(l, "an intermediate product has more than %d axes", MAX_RANK);
        return NULL;
    }
    Value *x = permute(l, o->value, perm);
    return x ? reshape(l, x, dims, rank) : NULL;
}

/* [batch..., first as one axis, second as one axis] */
static Value *as_matrices(Lowering *l, const Operand *o, const Labels *batch, const Labels *first,
                          const Labels *second) {
    Value *x = arrange(l, o, (const Labels *const[]){batch, first, second}, 3);
    if (!x) return NULL;
    int b = batch->count;
    const Dim **dims = dims_copy(l, x, b + 2);
    dims[b] = dim_product(l->dims, x->dims + b, first->count);
    dims[b + 1] = dim_product(l->dims, x->dims + b + first->count, second->count);
    return reshape(l, x, dims, b + 2);
}

static void append(Labels *to, const Labels *from) {
    for (int i = 0; i < from->count; i++) to->items[to->count++] = from->items[i];
}

static Status set_term(Lowering *l, Term *term, const Labels *labels) {
    if (labels->count > MAX_RANK) return unsupported(l, "an intermediate product has more than %d axes", MAX_RANK);
    term->count = labels->count;
    memcpy(term->labels, labels->items, (size_t)labels->count * sizeof *term->labels);
    return NULL;
}

static Status multiply(Lowering *l, Operand *a, const Operand *b, const Join *join, const Labels *all) {
    const Labels *order[] = {&join->batch, &join->rows, &join->columns, &join->summed};
    Value *product = mul(l, arrange(l, a, order, 4), arrange(l, b, order, 4));
    int axes[MAX_RANK], count = join->summed.count;
    if (!product) return l->error;
    for (int i = 0; i < count; i++) axes[i] = product->rank - count + i;
    a->value = count ? reduce(l, PRIM_REDUCE_SUM, product, axes, count, false) : product;
    return a->value ? set_term(l, &a->term, all) : l->error;
}

/* The sizes of `labels` in the operand. */
static void sizes_with(const Operand *o, const Labels *labels, const Dim **out) {
    for (int i = 0; i < labels->count; i++) out[i] = o->value->dims[axis_with(&o->term, labels->items[i])];
}

static Status contract(Lowering *l, Operand *a, const Operand *b, const Join *join, const Labels *all) {
    Value *left = as_matrices(l, a, &join->batch, &join->rows, &join->summed);
    Value *right = as_matrices(l, b, &join->batch, &join->summed, &join->columns);
    Value *y = left && right ? matmul(l, left, right) : NULL;
    if (!y) return l->error;
    const Dim **dims = size_array(l, all->count);
    for (int i = 0; i < join->batch.count; i++) dims[i] = y->dims[i];
    sizes_with(a, &join->rows, dims + join->batch.count);
    sizes_with(b, &join->columns, dims + join->batch.count + join->rows.count);
    TRY(set_term(l, &a->term, all));
    a->value = reshape(l, y, dims, all->count);
    return a->value ? NULL : l->error;
}

/* Sums what the pair does not share and nothing later needs. An axis of size 1 against a longer one that is summed: the
 * sum of the longer one is all that counts. */
static Status reduce_pair(Lowering *l, Operand *a, Operand *b, const bool *needed) {
    bool a_needs[LABELS], b_needs[LABELS];
    for (int label = 0; label < LABELS; label++) {
        int i = axis_with(&a->term, label), k = axis_with(&b->term, label);
        a_needs[label] = needed[label] || k >= 0;
        b_needs[label] = needed[label] || i >= 0;
        if (i < 0 || k < 0) continue;
        const Dim *da = a->value->dims[i], *db = b->value->dims[k];
        if (!size_broadcast(l, da, db)) return invalid(l, "a letter stands for axes of different sizes");
        if (da == db || needed[label]) continue;
        if (dim_equals(da, 1) || dim_equals(db, 1)) a_needs[label] = b_needs[label] = false;
    }
    TRY(reduce_alone(l, a, a_needs));
    return reduce_alone(l, b, b_needs);
}

/* a becomes the join of a and b. */
static Status join_pair(Lowering *l, Operand *a, Operand *b, const bool *needed) {
    Join join = {0};
    Labels all = {0};
    TRY(reduce_pair(l, a, b, needed));
    for (int i = 0; i < a->term.count; i++) {
        int label = a->term.labels[i];
        Labels *to = axis_with(&b->term, label) < 0 ? &join.rows : needed[label] ? &join.batch : &join.summed;
        to->items[to->count++] = label;
    }
    for (int i = 0; i < b->term.count; i++)
        if (axis_with(&a->term, b->term.labels[i]) < 0) join.columns.items[join.columns.count++] = b->term.labels[i];
    append(&all, &join.batch);
    append(&all, &join.rows);
    append(&all, &join.columns);
    bool product = !join.summed.count || (!join.rows.count && !join.columns.count);
    return product ? multiply(l, a, b, &join, &all) : contract(l, a, b, &join, &all);
}

/* Labels that the result or an operand from `from` on has. */
static void needed_from(const Equation *equation, int from, bool *needed) {
    memset(needed, 0, LABELS * sizeof *needed);
    for (int i = 0; i < equation->result.count; i++) needed[equation->result.labels[i]] = true;
    for (int t = from; t < equation->count; t++)
        for (int i = 0; i < equation->terms[t].count; i++) needed[equation->terms[t].labels[i]] = true;
}

Status lower_einsum(Lowering *l, const Node *n) {
    Equation *equation = ARENA_NEW(l->arena, Equation);
    const char *text = attr_string(n, "equation", NULL);
    if (!text) return invalid(l, "attribute equation is missing");
    TRY(parse_equation(l, text, equation));
    if (equation->count != n->input_count)
        return invalid(l, "the equation has %d terms for %d inputs", equation->count, n->input_count);
    TRY(resolve_ellipses(l, n, equation));
    Operand joined =
                {
                    in(l, n, 0),
                    equation->terms[0],
                },
            next;
    bool needed[LABELS];
    TRY(take_diagonals(l, &joined));
    for (int t = 1; t < equation->count; t++) {
        next = (Operand){in(l, n, t), equation->terms[t]};
        TRY(take_diagonals(l, &next));
        needed_from(equation, t + 1, needed);
        TRY(join_pair(l, &joined, &next, needed));
    }
    needed_from(equation, equation->count, needed);
    TRY(reduce_alone(l, &joined, needed));
    int perm[MAX_RANK];
    for (int i = 0; i < equation->result.count; i++) perm[i] = axis_with(&joined.term, equation->result.labels[i]);
    return out(l, n, 0, permute(l, joined.value, perm));
}
