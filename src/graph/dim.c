/* SPDX-License-Identifier: Apache-2.0 */
/* Integer expressions in normal form: a sum of terms, a term being a coefficient times a monomial (a sorted multiset of
 * atoms). An atom is a symbol, or a non-linear function (floor division, mod, min, max, broadcast) of two normalised expressions.
 * All are interned, so equality is that of pointers. Terms and atoms are ordered by names and structure, not by age:
 * two tables print alike.
 *
 * Bounds keep hostile models cheap: a sum or product that would overflow int64, or grow past MAX_TERMS or MAX_DEGREE,
 * becomes an atom add(a, b) or mul(a, b), which still evaluates exactly; an expression deeper than MAX_DEPTH or larger
 * than MAX_SIZE is replaced by a fresh symbol. INT64_MIN is UNBOUND_DIM and never a coefficient, so coefficients can be
 * negated. */
#include "base/integer.h"
#include "graph/dim_form.h"

enum { MAX_TERMS = 64, MAX_DEGREE = 32, MAX_DEPTH = 64, MAX_SIZE = 4096 };

/* Ranges. */

static bool infinite(int64_t x) { return x == INT64_MIN || x == INT64_MAX; }

static int64_t clamp(__int128 x) {
    if (x >= INT64_MAX) return INT64_MAX;
    return x <= INT64_MIN ? INT64_MIN : (int64_t)x;
}

static int64_t extended_mul(int64_t x, int64_t y) {
    if (x == 0 || y == 0) return 0;
    if (infinite(x) || infinite(y)) return (x < 0) == (y < 0) ? INT64_MAX : INT64_MIN;
    return clamp((__int128)x * y);
}

static int64_t extended_add(int64_t x, int64_t y) {
    if (infinite(x)) return x;
    return infinite(y) ? y : clamp((__int128)x + y);
}

static Range range_add(Range a, Range b) {
    return (Range){a.low == INT64_MIN || b.low == INT64_MIN ? INT64_MIN : extended_add(a.low, b.low),
                   a.high == INT64_MAX || b.high == INT64_MAX ? INT64_MAX : extended_add(a.high, b.high)};
}

static Range range_mul(Range a, Range b) {
    int64_t ll = extended_mul(a.low, b.low), lh = extended_mul(a.low, b.high);
    int64_t hl = extended_mul(a.high, b.low), hh = extended_mul(a.high, b.high);
    return (Range){least(least(ll, lh), least(hl, hh)), most(most(ll, lh), most(hl, hh))};
}

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static int64_t floor_mod(int64_t a, int64_t b) {
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* Divisors are never 0, so one that is not negative is at least 1. */
static Range range_of(AtomKind kind, Range a, Range b) {
    Range all = {INT64_MIN, INT64_MAX};
    switch (kind) {
    case ATOM_SYMBOL: return (Range){0, LARGEST_SIZE};
    case ATOM_DIV:
        if (b.low == b.high && b.low > 0)
            return (Range){infinite(a.low) ? a.low : floor_div(a.low, b.low),
                           infinite(a.high) ? a.high : floor_div(a.high, b.low)};
        if (b.low >= 0) return (Range){least(a.low, 0), a.high >= 0 ? a.high : -1};
        return all;
    case ATOM_MOD: return b.low >= 0 ? (Range){0, b.high == INT64_MAX ? INT64_MAX : most(b.high - 1, 0)} : all;
    case ATOM_MIN: return (Range){least(a.low, b.low), least(a.high, b.high)};
    case ATOM_MAX: return (Range){most(a.low, b.low), most(a.high, b.high)};
    case ATOM_BROADCAST: return (Range){least(a.low, b.low), most(a.high, b.high)};
    case ATOM_ADD: return range_add(a, b);
    case ATOM_MUL: return range_mul(a, b);
    }
    return all;
}

/* The order of atoms, monomials and expressions. The order of monomials (degree, then lexicographic) is kept by
 * multiplication, which polynomial division relies on. */

static int compare_dims(const Dim *a, const Dim *b);

static int compare_atoms(const Atom *a, const Atom *b) {
    if (a == b) return 0;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    if (a->kind == ATOM_SYMBOL) return strcmp(a->name, b->name);
    int order = compare_dims(a->a, b->a);
    return order ? order : compare_dims(a->b, b->b);
}

static int compare_monomials(const Monomial *a, const Monomial *b) {
    if (a == b) return 0;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    for (int i = 0; i < a->count; i++) {
        int order = compare_atoms(a->atoms[i], b->atoms[i]);
        if (order) return order;
    }
    return 0;
}

static int compare_dims(const Dim *a, const Dim *b) {
    if (a == b) return 0;
    for (int i = 0; i < a->count && i < b->count; i++) {
        int order = compare_monomials(a->terms[i].monomial, b->terms[i].monomial);
        if (order) return order;
        if (a->terms[i].coefficient != b->terms[i].coefficient)
            return a->terms[i].coefficient < b->terms[i].coefficient ? -1 : 1;
    }
    return a->count < b->count ? -1 : 1;
}

/* Interning. */

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Exact for fewer than 2^30 expressions in a table, which would take more memory than a machine has. */
static uint64_t pair_key(AtomKind kind, const Dim *a, const Dim *b) {
    return (uint64_t)kind << 60 | (uint64_t)a->id << 30 | b->id;
}

static const Monomial *intern_monomial(DimTable *table, const Atom *const *atoms, int count) {
    uint64_t hash = (uint64_t)count;
    for (int i = 0; i < count; i++) hash = mix(hash, MAP_POINTER_KEY(atoms[i]));
    Monomial *first = map_get_id(&table->monomials, hash);
    for (Monomial *m = first; m; m = m->next)
        if (m->count == count && memcmp(m->atoms, atoms, (size_t)count * sizeof *atoms) == 0) return m;
    Monomial *m = arena_alloc(table->arena, sizeof *m + (size_t)count * sizeof *atoms);
    *m = (Monomial){.hash = hash, .next = first, .id = table->next_id++, .range = {1, 1}, .count = count};
    for (int i = 0; i < count; i++) {
        m->atoms[i] = atoms[i];
        m->range = range_mul(m->range, atoms[i]->range);
    }
    map_set_id(&table->monomials, hash, m);
    return m;
}

static void measure(Dim *dim) {
    dim->size = 1;
    for (int i = 0; i < dim->count; i++) {
        const Term *t = &dim->terms[i];
        dim->range = range_add(dim->range, range_mul((Range){t->coefficient, t->coefficient}, t->monomial->range));
        dim->size++;
        for (int j = 0; j < t->monomial->count; j++) {
            const Atom *atom = t->monomial->atoms[j];
            dim->size += atom->size;
            if (atom->depth > dim->depth) dim->depth = atom->depth;
        }
    }
}

static const Dim *intern(DimTable *table, const Term *terms, int count) {
    uint64_t hash = (uint64_t)count;
    for (int i = 0; i < count; i++) hash = mix(mix(hash, (uint64_t)terms[i].coefficient), terms[i].monomial->id);
    Dim *first = map_get_id(&table->dims, hash);
    for (Dim *d = first; d; d = d->next) {
        int same = d->count == count ? 0 : -1;
        while (same >= 0 && same < count && d->terms[same].coefficient == terms[same].coefficient &&
               d->terms[same].monomial == terms[same].monomial)
            same++;
        if (same == count) return d->instead ? d->instead : d;
    }
    Dim *dim = arena_alloc(table->arena, sizeof *dim + (size_t)count * sizeof *terms);
    *dim = (Dim){.hash = hash, .next = first, .id = table->next_id++, .count = count};
    if (count) memcpy(dim->terms, terms, (size_t)count * sizeof *terms);
    measure(dim);
    map_set_id(&table->dims, hash, dim);
    if (dim->size > MAX_SIZE || dim->depth > MAX_DEPTH) return dim->instead = dim_fresh(table, "size");
    return dim;
}

static const Dim *from_atom(DimTable *table, const Atom *atom) {
    return intern(table, &(Term){1, intern_monomial(table, &atom, 1)}, 1);
}

static const Dim *function(DimTable *table, AtomKind kind, const Dim *a, const Dim *b) {
    if (kind >= ATOM_MIN && compare_dims(a, b) > 0) { /* these commute */
        const Dim *swap = a;
        a = b;
        b = swap;
    }
    uint64_t key = pair_key(kind, a, b);
    Atom *atom = map_get_id(&table->atoms, key);
    if (!atom) {
        atom = ARENA_NEW(table->arena, Atom);
        *atom = (Atom){.kind = kind, .index = -1, .a = a, .b = b, .range = range_of(kind, a->range, b->range)};
        atom->size = 1 + a->size + b->size;
        atom->depth = 1 + (a->depth > b->depth ? a->depth : b->depth);
        map_set_id(&table->atoms, key, atom);
    }
    return from_atom(table, atom);
}

DimTable *dim_table_create(Arena *arena) {
    DimTable *table = ARENA_NEW(arena, DimTable);
    table->arena = arena;
    table->dims = table->monomials = table->atoms = table->results = table->names = table->hints = map_make(arena);
    table->one = intern_monomial(table, NULL, 0);
    return table;
}

const Dim *dim_const(DimTable *table, int64_t value) {
    if (value == INT64_MIN) value++;
    return intern(table, &(Term){value, table->one}, value != 0);
}

const Dim *dim_symbol(DimTable *table, const char *name) {
    const Dim *known = map_get(&table->names, name);
    if (known) return known;
    Atom *atom = ARENA_NEW(table->arena, Atom);
    *atom = (Atom){.kind = ATOM_SYMBOL, .index = table->symbols.count, .name = arena_string(table->arena, name)};
    atom->range = range_of(ATOM_SYMBOL, (Range){0}, (Range){0});
    atom->size = 1;
    const Dim *dim = from_atom(table, atom);
    VEC_PUSH(table->arena, table->symbols, dim);
    map_set(&table->names, atom->name, (void *)(uintptr_t)dim);
    return dim;
}

const Dim *dim_fresh(DimTable *table, const char *hint) {
    uintptr_t next = (uintptr_t)map_get(&table->hints, hint);
    const char *name = hint;
    for (; next || map_get(&table->names, name); next++) {
        if (next) name = arena_format(table->arena, "%s_%zu", hint, (size_t)next);
        if (!map_get(&table->names, name)) break;
    }
    map_set(&table->hints, arena_string(table->arena, hint), (void *)(next + 1));
    return dim_symbol(table, name);
}

/* Sums and products. */

/* A sum under construction. */
typedef struct Sum {
    bool full; /* overflowed a coefficient or MAX_TERMS: the sum is not the right one any more */
    int count;
    Term terms[MAX_TERMS];
} Sum;

static void sum_add(Sum *sum, int64_t coefficient, const Monomial *monomial) {
    if (!coefficient || sum->full) return;
    int at = sum->count, order = 1;
    while (at > 0 && (order = compare_monomials(monomial, sum->terms[at - 1].monomial)) < 0) at--;
    size_t tail = (size_t)(sum->count - at) * sizeof(Term);
    if (at > 0 && order == 0) {
        int64_t *total = &sum->terms[at - 1].coefficient;
        if (__builtin_add_overflow(*total, coefficient, total) || *total == INT64_MIN) sum->full = true;
        if (*total != 0) return;
        memmove(&sum->terms[at - 1], &sum->terms[at], tail);
        sum->count--;
    } else if (sum->count == MAX_TERMS || coefficient == INT64_MIN) {
        sum->full = true;
    } else {
        memmove(&sum->terms[at + 1], &sum->terms[at], tail);
        sum->terms[at] = (Term){coefficient, monomial};
        sum->count++;
    }
}

/* NULL when the degree is too large. */
static const Monomial *monomial_mul(DimTable *table, const Monomial *a, const Monomial *b) {
    if (!a->count || !b->count) return a->count ? a : b;
    if (a->count + b->count > MAX_DEGREE) return NULL;
    const Atom *atoms[MAX_DEGREE];
    int i = 0, j = 0, n = 0;
    while (i < a->count || j < b->count) {
        bool left = j == b->count || (i < a->count && compare_atoms(a->atoms[i], b->atoms[j]) <= 0);
        atoms[n++] = left ? a->atoms[i++] : b->atoms[j++];
    }
    return intern_monomial(table, atoms, n);
}

/* a / b; NULL when b is not a part of a. */
static const Monomial *monomial_div(DimTable *table, const Monomial *a, const Monomial *b) {
    if (!b->count) return a;
    const Atom *atoms[MAX_DEGREE];
    int n = 0, j = 0;
    for (int i = 0; i < a->count; i++) {
        if (j < b->count && a->atoms[i] == b->atoms[j])
            j++;
        else
            atoms[n++] = a->atoms[i];
    }
    return j == b->count ? intern_monomial(table, atoms, n) : NULL;
}

static const Monomial *monomial_gcd(DimTable *table, const Monomial *a, const Monomial *b) {
    const Atom *atoms[MAX_DEGREE];
    int n = 0;
    for (int i = 0, j = 0; i < a->count && j < b->count;) {
        int order = compare_atoms(a->atoms[i], b->atoms[j]);
        if (order == 0) atoms[n++] = a->atoms[i];
        i += order <= 0;
        j += order >= 0;
    }
    return intern_monomial(table, atoms, n);
}

/* sum += scale * unit * dim */
static void sum_add_scaled(DimTable *table, Sum *sum, const Dim *dim, int64_t scale, const Monomial *unit) {
    for (int i = 0; i < dim->count && !sum->full; i++) {
        int64_t coefficient;
        const Monomial *m = monomial_mul(table, dim->terms[i].monomial, unit);
        if (!m || __builtin_mul_overflow(dim->terms[i].coefficient, scale, &coefficient))
            sum->full = true;
        else
            sum_add(sum, coefficient, m);
    }
}

const Dim *dim_add(DimTable *table, const Dim *a, const Dim *b) {
    if (!a->count || !b->count) return a->count ? a : b;
    Sum sum;
    sum.full = false;
    sum.count = a->count;
    memcpy(sum.terms, a->terms, (size_t)a->count * sizeof(Term));
    for (int i = 0; i < b->count; i++) sum_add(&sum, b->terms[i].coefficient, b->terms[i].monomial);
    return sum.full ? function(table, ATOM_ADD, a, b) : intern(table, sum.terms, sum.count);
}

static int sum_size(const Sum *sum) {
    int size = 0;
    for (int i = 0; i < sum->count; i++)
        for (int j = 0; j < sum->terms[i].monomial->count; j++) size += sum->terms[i].monomial->atoms[j]->size;
    return size;
}

/* Multiplied out, unless each term would repeat large atoms: as an atom a product is as large as its factors. */
const Dim *dim_mul(DimTable *table, const Dim *a, const Dim *b) {
    if (a->count > b->count) return dim_mul(table, b, a);
    Sum sum;
    sum.full = false;
    sum.count = 0;
    for (int i = 0; i < a->count && !sum.full; i++)
        sum_add_scaled(table, &sum, b, a->terms[i].coefficient, a->terms[i].monomial);
    int size = sum.full ? 0 : sum_size(&sum);
    return sum.full || (size > MAX_SIZE / 4 && size > a->size + b->size) ? function(table, ATOM_MUL, a, b)
                                                                         : intern(table, sum.terms, sum.count);
}

static const Dim *scale(DimTable *table, const Dim *a, int64_t by) { return dim_mul(table, a, dim_const(table, by)); }

const Dim *dim_sub(DimTable *table, const Dim *a, const Dim *b) { return dim_add(table, a, scale(table, b, -1)); }

const Dim *dim_product(DimTable *table, const Dim *const *dims, int count) {
    const Dim *product = dim_const(table, 1);
    for (int i = 0; i < count; i++) product = dim_mul(table, product, dims[i]);
    return product;
}

/* Questions. */

bool dim_is_const(const Dim *dim, int64_t *out_value) {
    if (dim->count > 1 || (dim->count == 1 && dim->terms[0].monomial->count)) return false;
    if (out_value) *out_value = dim->count ? dim->terms[0].coefficient : 0;
    return true;
}

bool dim_is_nonnegative(const Dim *dim) { return dim->range.low >= 0; }

bool dim_equals(const Dim *dim, int64_t value) {
    int64_t constant;
    return dim_is_const(dim, &constant) && constant == value;
}

/* The atom when the expression is nothing else, else NULL. */
const Atom *dim_atom(const Dim *dim) {
    bool lone = dim->count == 1 && dim->terms[0].coefficient == 1 && dim->terms[0].monomial->count == 1;
    return lone ? dim->terms[0].monomial->atoms[0] : NULL;
}

int dim_symbol_index(const Dim *dim) {
    const Atom *atom = dim_atom(dim);
    return atom ? atom->index : -1;
}

int dim_symbol_count(const DimTable *table) { return table->symbols.count; }

const char *dim_symbol_name(const DimTable *table, int index) { return dim_atom(table->symbols.items[index])->name; }

/* Division. */

/* Polynomial long division by the leading term; in Z[x] the quotient is found whenever it exists. Each step takes the
 * remainder's leading term away, so a quotient that fits MAX_TERMS takes no more steps than that. */
bool dim_divides(DimTable *table, const Dim *a, const Dim *b, const Dim **out_quotient) {
    if (!b->count) return false;
    Sum rest, quotient;
    rest.full = quotient.full = false;
    quotient.count = 0;
    rest.count = a->count;
    memcpy(rest.terms, a->terms, (size_t)a->count * sizeof(Term));
    while (rest.count) {
        Term lead = rest.terms[0];
        if (lead.coefficient % b->terms[0].coefficient) return false;
        int64_t coefficient = lead.coefficient / b->terms[0].coefficient;
        const Monomial *m = monomial_div(table, lead.monomial, b->terms[0].monomial);
        if (!m) return false;
        sum_add(&quotient, coefficient, m);
        sum_add_scaled(table, &rest, b, -coefficient, m);
        if (rest.full || quotient.full) return false;
    }
    if (out_quotient) *out_quotient = intern(table, quotient.terms, quotient.count);
    return true;
}

/* Divides every term by coefficient * monomial, which must divide it. */
static const Dim *divide_terms(DimTable *table, const Dim *dim, int64_t coefficient, const Monomial *monomial) {
    Term terms[MAX_TERMS];
    for (int i = 0; i < dim->count; i++)
        terms[i] =
            (Term){dim->terms[i].coefficient / coefficient, monomial_div(table, dim->terms[i].monomial, monomial)};
    return intern(table, terms, dim->count);
}

/* Takes the greatest common factor out of both; negative divisors turn positive where the leading term tells. False
 * when nothing changed. */
static bool cancel_common(DimTable *table, const Dim **a, const Dim **b) {
    int64_t content = 0;
    const Monomial *common = (*b)->terms[0].monomial;
    for (int side = 0; side < 2; side++) {
        const Dim *dim = side ? *b : *a;
        for (int i = 0; i < dim->count; i++) {
            content = common_divisor(content, dim->terms[i].coefficient);
            common = monomial_gcd(table, common, dim->terms[i].monomial);
        }
    }
    if ((*b)->terms[0].coefficient < 0) content = -content;
    if (content == 1 && !common->count) return false;
    *a = divide_terms(table, *a, content, common);
    *b = divide_terms(table, *b, content, common);
    return true;
}

/* For a divisor of one term: a = whole * b + rest, where rest has no term left that b divides. The constant's rest is
 * made non-negative, that of other coefficients keeps its sign, which keeps the range known. */
static const Dim *split_whole(DimTable *table, const Dim *a, Term b, const Dim **out_rest) {
    Sum whole, rest;
    whole.full = rest.full = false;
    whole.count = rest.count = 0;
    for (int i = 0; i < a->count; i++) {
        Term t = a->terms[i];
        const Monomial *m = monomial_div(table, t.monomial, b.monomial);
        bool constant = !t.monomial->count && !b.monomial->count;
        int64_t q = !m ? 0 : constant ? floor_div(t.coefficient, b.coefficient) : t.coefficient / b.coefficient;
        int64_t r = !m         ? t.coefficient
                    : constant ? floor_mod(t.coefficient, b.coefficient)
                               : t.coefficient % b.coefficient;
        sum_add(&whole, q, m);
        sum_add(&rest, r, t.monomial);
    }
    *out_rest = intern(table, rest.terms, rest.count);
    return intern(table, whole.terms, whole.count);
}

/* floor((g*P + c) / (g*k)) = floor((P + floor(c/g)) / k); false when g is 1. */
static bool cancel_content(DimTable *table, const Dim **a, int64_t *divisor) {
    int64_t g = *divisor;
    for (int i = 0; i < (*a)->count; i++)
        if ((*a)->terms[i].monomial->count) g = common_divisor(g, (*a)->terms[i].coefficient);
    if (g == 1) return false;
    Sum sum;
    sum.full = false;
    sum.count = 0;
    for (int i = 0; i < (*a)->count; i++)
        sum_add(&sum, floor_div((*a)->terms[i].coefficient, g), (*a)->terms[i].monomial);
    *a = intern(table, sum.terms, sum.count);
    *divisor /= g;
    return true;
}

/* a is floor(x/m) + c with a constant c. */
static const Atom *div_plus_constant(const Dim *a, int64_t *out_c) {
    bool offset = a->count == 2 && !a->terms[1].monomial->count;
    *out_c = offset ? a->terms[1].coefficient : 0;
    if ((a->count != 1 && !offset) || a->terms[0].coefficient != 1 || a->terms[0].monomial->count != 1) return NULL;
    const Atom *atom = a->terms[0].monomial->atoms[0];
    return atom->kind == ATOM_DIV ? atom : NULL;
}

/* What add and mul give when the result does not fit. */
static bool is_opaque(const Dim *dim) {
    const Atom *atom = dim_atom(dim);
    return atom && atom->kind >= ATOM_ADD;
}

static const Dim *simplify_div(DimTable *table, const Dim *a, const Dim *b) {
    const Dim *quotient, *rest;
    int64_t k, c;
    if (!b->count) return function(table, ATOM_DIV, a, b);
    if (dim_divides(table, a, b, &quotient)) return quotient;
    if (cancel_common(table, &a, &b)) return dim_div(table, a, b);
    if (b->count == 1) {
        const Dim *whole = split_whole(table, a, b->terms[0], &rest);
        if (whole->count) return dim_add(table, whole, dim_div(table, rest, b));
    }
    bool constant = dim_is_const(b, &k) && k > 0;
    if (constant && !infinite(a->range.low) && !infinite(a->range.high) &&
        floor_div(a->range.low, k) == floor_div(a->range.high, k))
        return dim_const(table, floor_div(a->range.low, k));
    if (constant && cancel_content(table, &a, &k)) return dim_div(table, a, dim_const(table, k));
    if (!constant && b->range.low >= 0 && a->range.low >= 0 && !infinite(a->range.high) && a->range.high < b->range.low)
        return dim_const(table, 0);
    /* floor((floor(x/m) + c) / b) = floor((x + c*m) / (m*b)) for b > 0 */
    const Atom *inner = b->range.low >= 0 ? div_plus_constant(a, &c) : NULL;
    if (inner) {
        const Dim *over = dim_mul(table, inner->b, b), *under = dim_add(table, inner->a, scale(table, inner->b, c));
        if (!is_opaque(over) && !is_opaque(under)) return dim_div(table, under, over);
    }
    return function(table, ATOM_DIV, a, b);
}

static const Dim *simplify_mod(DimTable *table, const Dim *a, const Dim *b) {
    int64_t k, constant;
    if (!b->count) return function(table, ATOM_MOD, a, b);
    if (dim_is_const(a, &constant) && dim_is_const(b, &k)) return dim_const(table, floor_mod(constant, k));
    if (dim_divides(table, a, b, NULL)) return dim_const(table, 0);
    if (b->range.low >= 0 && a->range.low >= 0 && !infinite(a->range.high) && a->range.high < b->range.low) return a;
    if (dim_is_const(b, &k)) {
        Sum sum; /* coefficients count modulo k alone, and so do inner mods by a multiple of k */
        sum.full = false;
        sum.count = 0;
        const Dim *inner = NULL;
        for (int i = 0; i < a->count; i++) {
            const Monomial *m = a->terms[i].monomial;
            const Atom *atom = m->count == 1 ? m->atoms[0] : NULL;
            int64_t c = floor_mod(a->terms[i].coefficient, k);
            if (!inner && atom && atom->kind == ATOM_MOD && dim_divides(table, atom->b, b, NULL))
                inner = scale(table, atom->a, c);
            else
                sum_add(&sum, c, m);
        }
        const Dim *reduced = intern(table, sum.terms, sum.count);
        if (inner) reduced = dim_add(table, reduced, inner);
        if (reduced != a) return dim_mod(table, reduced, b);
    }
    return function(table, ATOM_MOD, a, b);
}

/* Minimum and maximum. */

/* d with the term `index` replaced: weight * (d - term) + coefficient * by. */
static const Dim *replace_term(DimTable *table, const Dim *d, int index, int64_t weight, const Dim *by) {
    Term terms[MAX_TERMS];
    memcpy(terms, d->terms, (size_t)index * sizeof(Term));
    memcpy(terms + index, d->terms + index + 1, (size_t)(d->count - index - 1) * sizeof(Term));
    const Dim *rest = scale(table, intern(table, terms, d->count - 1), weight);
    return dim_add(table, rest, scale(table, by, d->terms[index].coefficient));
}

/* Bounds of atoms by their operands: min(a, b) <= a; max(a, b) >= a; x - k + 1 <= k*floor(x/k) <= x; mod(x, b) <= x.
 * They replace a term of d by something smaller: when that is still >= 0, so is d. At most `depth` replacements of the
 * first few terms. */
static bool is_nonnegative(DimTable *table, const Dim *d, int depth) {
    if (d->range.low >= 0) return true;
    if (depth == 0 || d->range.high < 0) return false;
    int tried = 0;
    for (int i = 0; i < d->count && tried < 3; i++) {
        const Term *t = &d->terms[i];
        const Atom *atom = t->monomial->count == 1 ? t->monomial->atoms[0] : NULL;
        const Dim *by[2] = {NULL, NULL};
        int64_t k = 1;
        if (!atom) continue;
        if (atom->kind == (t->coefficient < 0 ? ATOM_MIN : ATOM_MAX)) {
            by[0] = atom->a;
            by[1] = atom->b;
        } else if (atom->kind == ATOM_DIV && dim_is_const(atom->b, &k) && k > 0) {
            by[0] = t->coefficient < 0 ? atom->a : dim_sub(table, atom->a, dim_const(table, k - 1));
        } else if (atom->kind == ATOM_MOD && t->coefficient < 0 && atom->a->range.low >= 0 && atom->b->range.low >= 0) {
            by[0] = atom->a;
        }
        for (int j = 0; j < 2 && by[j]; j++)
            if (is_nonnegative(table, replace_term(table, d, i, k, by[j]), depth - 1)) return true;
        tried += by[0] != NULL;
    }
    return false;
}

/* Whether a (for ATOM_MIN: a <= b, for ATOM_MAX: a >= b) is the one chosen, as far as can be told. */
static bool wins(DimTable *table, AtomKind kind, const Dim *a, const Dim *b) {
    if (kind == ATOM_BROADCAST && (a == b || dim_equals(b, 1))) return true;
    if (kind == ATOM_BROADCAST && b->range.low < 1) return false; /* 0 beats 1 */
    return is_nonnegative(table, kind == ATOM_MIN ? dim_sub(table, b, a) : dim_sub(table, a, b), 2);
}

static const Dim *remembered(DimTable *table, AtomKind kind, const Dim *a, const Dim *b);

static const Dim *choose(DimTable *table, AtomKind kind, const Dim *a, const Dim *b) {
    return remembered(table, kind, a, b);
}

static const Dim *simplify_choice(DimTable *table, AtomKind kind, const Dim *a, const Dim *b) {
    if (wins(table, kind, a, b)) return a;
    if (wins(table, kind, b, a)) return b;
    for (int side = 0; side < 2; side++) {
        const Dim *nested = side ? b : a, *other = side ? a : b;
        const Atom *atom = dim_atom(nested);
        if (!atom || atom->kind != kind) continue;
        if (wins(table, kind, other, atom->a)) return choose(table, kind, other, atom->b);
        if (wins(table, kind, other, atom->b)) return choose(table, kind, other, atom->a);
    }
    return function(table, kind, a, b);
}

/* The non-linear functions remember their results: passes ask for the same ones over and over. */
static const Dim *remembered(DimTable *table, AtomKind kind, const Dim *a, const Dim *b) {
    uint64_t key = pair_key(kind, a, b);
    const Dim *result = map_get_id(&table->results, key);
    if (result) return result;
    switch (kind) {
    case ATOM_DIV: result = simplify_div(table, a, b); break;
    case ATOM_MOD: result = simplify_mod(table, a, b); break;
    default: result = simplify_choice(table, kind, a, b); break;
    }
    map_set_id(&table->results, key, (void *)(uintptr_t)result);
    return result;
}

const Dim *dim_div(DimTable *table, const Dim *a, const Dim *b) { return remembered(table, ATOM_DIV, a, b); }
const Dim *dim_mod(DimTable *table, const Dim *a, const Dim *b) { return remembered(table, ATOM_MOD, a, b); }
const Dim *dim_min(DimTable *table, const Dim *a, const Dim *b) { return remembered(table, ATOM_MIN, a, b); }
const Dim *dim_max(DimTable *table, const Dim *a, const Dim *b) { return remembered(table, ATOM_MAX, a, b); }
const Dim *dim_broadcast(DimTable *table, const Dim *a, const Dim *b) {
    return remembered(table, ATOM_BROADCAST, a, b);
}

const Dim *dim_ceil_div(DimTable *table, const Dim *a, const Dim *b) {
    if (b->range.low < 0) return scale(table, dim_div(table, scale(table, a, -1), b), -1);
    return dim_div(table, dim_add(table, a, dim_sub(table, b, dim_const(table, 1))), b);
}

/* Evaluation. */

static int64_t eval_function(const Atom *atom, const int64_t *values) {
    int64_t a = dim_eval(atom->a, values), b = a == UNBOUND_DIM ? a : dim_eval(atom->b, values), result;
    if (b == UNBOUND_DIM) return UNBOUND_DIM;
    switch (atom->kind) {
    case ATOM_DIV: return b ? floor_div(a, b) : UNBOUND_DIM;
    case ATOM_MOD: return b ? floor_mod(a, b) : UNBOUND_DIM;
    case ATOM_MIN: return least(a, b);
    case ATOM_MAX: return most(a, b);
    case ATOM_BROADCAST: return a == 1 ? b : b == 1 ? a : most(a, b);
    case ATOM_ADD: return __builtin_add_overflow(a, b, &result) ? UNBOUND_DIM : result;
    case ATOM_MUL: return __builtin_mul_overflow(a, b, &result) ? UNBOUND_DIM : result;
    case ATOM_SYMBOL: break;
    }
    return UNBOUND_DIM;
}

int64_t dim_eval(const Dim *dim, const int64_t *values) {
    int64_t total = 0;
    for (int i = 0; i < dim->count; i++) {
        const Monomial *m = dim->terms[i].monomial;
        int64_t product = dim->terms[i].coefficient;
        for (int j = 0; j < m->count; j++) {
            const Atom *atom = m->atoms[j];
            int64_t value = atom->kind == ATOM_SYMBOL ? values[atom->index] : eval_function(atom, values);
            if (value == UNBOUND_DIM || __builtin_mul_overflow(product, value, &product)) return UNBOUND_DIM;
        }
        if (__builtin_add_overflow(total, product, &total)) return UNBOUND_DIM;
    }
    return total;
}

static const Dim *apply(DimTable *table, AtomKind kind, const Dim *a, const Dim *b) {
    switch (kind) {
    case ATOM_ADD: return dim_add(table, a, b);
    case ATOM_MUL: return dim_mul(table, a, b);
    default: return remembered(table, kind, a, b);
    }
}

static const Dim *substitute_atom(DimTable *table, const Atom *atom, const Dim *const *by_symbol, int count) {
    if (atom->kind != ATOM_SYMBOL)
        return apply(table, atom->kind, dim_substitute(table, atom->a, by_symbol, count),
                     dim_substitute(table, atom->b, by_symbol, count));
    bool replaced = atom->index < count && by_symbol[atom->index];
    return replaced ? by_symbol[atom->index] : table->symbols.items[atom->index];
}

const Dim *dim_substitute(DimTable *table, const Dim *dim, const Dim *const *by_symbol, int count) {
    if (dim_is_const(dim, NULL)) return dim;
    const Dim *total = dim_const(table, 0);
    for (int i = 0; i < dim->count; i++) {
        const Monomial *m = dim->terms[i].monomial;
        const Dim *product = dim_const(table, dim->terms[i].coefficient);
        for (int j = 0; j < m->count; j++)
            product = dim_mul(table, product, substitute_atom(table, m->atoms[j], by_symbol, count));
        total = dim_add(table, total, product);
    }
    return total;
}

void dim_each_symbol(const Dim *dim, void (*visit)(int index, void *context), void *context) {
    for (int i = 0; i < dim->count; i++)
        for (int j = 0; j < dim->terms[i].monomial->count; j++) {
            const Atom *atom = dim->terms[i].monomial->atoms[j];
            if (atom->kind == ATOM_SYMBOL) {
                visit(atom->index, context);
            } else {
                dim_each_symbol(atom->a, visit, context);
                dim_each_symbol(atom->b, visit, context);
            }
        }
}

/* The parts. */

int dim_term_count(const Dim *dim) { return dim->count; }

int64_t dim_term(const Dim *dim, int term, int *out_factor_count) {
    *out_factor_count = dim->terms[term].monomial->count;
    return dim->terms[term].coefficient;
}

DimFactor dim_factor(const Dim *dim, int term, int factor) {
    const Atom *atom = dim->terms[term].monomial->atoms[factor];
    return (DimFactor){(DimFunction)atom->kind, atom->index, atom->a, atom->b};
}

const Dim *dim_apply(DimTable *table, DimFunction function, const Dim *a, const Dim *b) {
    return apply(table, (AtomKind)function, a, b);
}
