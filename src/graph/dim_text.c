/* SPDX-License-Identifier: Apache-2.0 */
/* Size expressions as text, and back. */
#include "graph/dim_form.h"

enum { MAX_NESTING = 256 }; /* of parsed text */

static const char *const function_names[] = {[ATOM_DIV] = "floor",
                                             [ATOM_MOD] = "mod",
                                             [ATOM_MIN] = "min",
                                             [ATOM_MAX] = "max",
                                             [ATOM_ADD] = "add",
                                             [ATOM_MUL] = "mul",
                                             [ATOM_BROADCAST] = "broadcast"};
enum { FUNCTION_COUNT = sizeof function_names / sizeof *function_names };

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static void print_symbol(Text *text, const char *name) {
    const char *end = name;
    while (is_letter(*end) || (end > name && is_digit(*end))) end++;
    if (end > name && !*end)
        text_add(text, "%s", name);
    else
        text_add_quoted(text, name, strlen(name));
}

static void print_operand(Text *text, const Dim *dim, bool bare) {
    text_add(text, bare ? "" : "(");
    dim_print(text, dim);
    text_add(text, bare ? "" : ")");
}

static void print_atom(Text *text, const Atom *atom) {
    if (atom->kind == ATOM_SYMBOL) {
        print_symbol(text, atom->name);
        return;
    }
    text_add(text, "%s(", function_names[atom->kind]);
    if (atom->kind == ATOM_DIV) {
        bool product = atom->a->count == 1 && atom->a->terms[0].coefficient > 0;
        print_operand(text, atom->a, product || !atom->a->count);
        text_add(text, "/");
        bool positive = dim_is_const(atom->b, NULL) && atom->b->range.low >= 0;
        print_operand(text, atom->b, positive || dim_atom(atom->b));
    } else {
        dim_print(text, atom->a);
        text_add(text, ", ");
        dim_print(text, atom->b);
    }
    text_add(text, ")");
}

void dim_print(Text *text, const Dim *dim) {
    if (!dim->count) text_add(text, "0");
    for (int i = 0; i < dim->count; i++) {
        int64_t coefficient = dim->terms[i].coefficient, magnitude = coefficient < 0 ? -coefficient : coefficient;
        const Monomial *m = dim->terms[i].monomial;
        text_add(text, "%s", coefficient < 0 ? (i ? " - " : "-") : (i ? " + " : ""));
        for (int j = 0; j < m->count; j++) {
            text_add(text, j ? "*" : "");
            print_atom(text, m->atoms[j]);
        }
        if (magnitude != 1 || !m->count) text_add(text, "%s%lld", m->count ? "*" : "", (long long)magnitude);
    }
}

/* sum = ["-"] product {("+" | "-") product};  product = factor {"*" factor};
 * factor = number | symbol | "(" sum ")" | "floor(" product "/" factor ")" | name "(" sum "," sum ")".
 * Each function gives NULL, or the expression and moves `at` behind it. */
typedef struct Parser {
    DimTable *table;
    const char *at;
    int nesting;
} Parser;

static const Dim *parse_sum(Parser *p);

static bool take(Parser *p, char c) {
    const char *at = p->at;
    while (*at == ' ') at++;
    if (*at != c) return false;
    p->at = at + 1;
    return true;
}

static const Dim *parse_number(Parser *p) {
    int64_t value = 0;
    for (; is_digit(*p->at); p->at++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *p->at - '0', &value))
            return NULL;
    return dim_const(p->table, value);
}

static int hex_digit(char c) {
    if (is_digit(c)) return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static const Dim *parse_quoted(Parser *p) {
    Text name = text_make(p->table->arena);
    for (p->at++; *p->at && *p->at != '"'; p->at++) {
        char c = *p->at;
        if (c == '\\') {
            c = *++p->at;
            if (c == 'n') c = '\n';
            if (c == 't') c = '\t';
            if (c == 'x') {
                int high = hex_digit(p->at[1]), low = high < 0 ? -1 : hex_digit(p->at[2]);
                if (low < 0) return NULL;
                p->at += 2;
                c = (char)(high * 16 + low);
            }
            if (!c) return NULL;
        }
        text_add_bytes(&name, &c, 1);
    }
    if (*p->at != '"') return NULL;
    p->at++;
    return dim_symbol(p->table, name.data);
}

static const Dim *parse_product(Parser *p);
static const Dim *parse_factor(Parser *p);

static const Dim *parse_function(Parser *p, AtomKind kind) {
    const Dim *a = kind == ATOM_DIV ? parse_product(p) : parse_sum(p);
    if (!a || !take(p, kind == ATOM_DIV ? '/' : ',')) return NULL;
    const Dim *b = kind == ATOM_DIV ? parse_factor(p) : parse_sum(p);
    return b && take(p, ')') ? dim_apply(p->table, (DimFunction)kind, a, b) : NULL;
}

static const Dim *parse_name(Parser *p) {
    const char *name = p->at;
    while (is_letter(*p->at) || is_digit(*p->at)) p->at++;
    size_t size = (size_t)(p->at - name);
    if (*p->at == '(') {
        for (int kind = ATOM_DIV; kind < FUNCTION_COUNT; kind++) {
            if (strlen(function_names[kind]) != size || memcmp(function_names[kind], name, size) != 0) continue;
            p->at++;
            return parse_function(p, (AtomKind)kind);
        }
    }
    return dim_symbol(p->table, arena_string_n(p->table->arena, name, size));
}

static const Dim *parse_parenthesised(Parser *p) {
    const Dim *inner = take(p, '(') ? parse_sum(p) : NULL;
    return inner && take(p, ')') ? inner : NULL;
}

static const Dim *parse_factor(Parser *p) {
    while (*p->at == ' ') p->at++;
    if (p->nesting >= MAX_NESTING) return NULL;
    p->nesting++;
    const Dim *factor = is_digit(*p->at)    ? parse_number(p)
                        : is_letter(*p->at) ? parse_name(p)
                        : *p->at == '"'     ? parse_quoted(p)
                                            : parse_parenthesised(p);
    p->nesting--;
    return factor;
}

/* An operator without an operand behind it belongs to the text that follows ("s -> ..."). */
static const Dim *parse_product(Parser *p) {
    const Dim *product = parse_factor(p);
    while (product) {
        const char *end = p->at;
        const Dim *factor = take(p, '*') ? parse_factor(p) : NULL;
        if (!factor) {
            p->at = end;
            break;
        }
        product = dim_mul(p->table, product, factor);
    }
    return product;
}

static const Dim *parse_sum(Parser *p) {
    bool negative = take(p, '-');
    const Dim *sum = parse_product(p);
    if (sum && negative) sum = dim_mul(p->table, sum, dim_const(p->table, -1));
    while (sum) {
        const char *end = p->at;
        bool minus = take(p, '-');
        const Dim *term = minus || take(p, '+') ? parse_product(p) : NULL;
        if (!term) {
            p->at = end;
            break;
        }
        sum = minus ? dim_sub(p->table, sum, term) : dim_add(p->table, sum, term);
    }
    return sum;
}

const Dim *dim_parse(DimTable *table, const char **cursor) {
    Parser p = {table, *cursor, 0};
    const Dim *dim = parse_sum(&p);
    if (dim) *cursor = p.at;
    return dim;
}
