/* SPDX-License-Identifier: Apache-2.0 */
/* Symbolic sizes: normal forms by their text, evaluation against direct computation, and bounds on hostile growth. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "graph/dim.h"

static const Dim *parse(DimTable *table, const char *text) {
    const char *at = text;
    const Dim *dim = dim_parse(table, &at);
    cr_assert(dim && !*at, "%s does not parse at \"%s\"", text, at);
    return dim;
}

static const char *print(Arena *arena, const Dim *dim) {
    Text text = text_make(arena);
    dim_print(&text, dim);
    return text.data;
}

/* op: + - * as in text, / floor division, ^ ceiling division, % mod, < min, > max, | broadcast */
static const Dim *apply(DimTable *table, const Dim *a, char op, const Dim *b) {
    switch (op) {
    case '+': return dim_add(table, a, b);
    case '-': return dim_sub(table, a, b);
    case '*': return dim_mul(table, a, b);
    case '/': return dim_div(table, a, b);
    case '^': return dim_ceil_div(table, a, b);
    case '%': return dim_mod(table, a, b);
    case '<': return dim_min(table, a, b);
    case '|': return dim_broadcast(table, a, b);
    default: return dim_max(table, a, b);
    }
}

static const struct {
    const char *what, *a;
    char op;
    const char *b, *result;
} normal_forms[] = {
    {"terms are sorted and merged", "p + s*2 + b*s", '+', "s - p", "b*s + s*3"},
    {"equal terms cancel", "b*s + 4", '-', "b*s + 4", "0"},
    {"products distribute", "s + p", '*', "s - p", "-p*p + s*s"},
    {"zero absorbs", "s", '*', "0", "0"},
    {"a product divides by a monomial", "b*s*768", '/', "b*12*64", "s"},
    {"a sum divides by a constant", "s*4 + 8", '/', "4", "s + 2"},
    {"a sum divides by itself", "(s + p)*768", '/', "s + p", "768"},
    {"a polynomial divides by a factor", "s*s - p*p", '/', "s + p", "-p + s"},
    {"a negative divisor turns positive", "s", '/', "-2", "floor((-s)/2)"},
    {"whole terms leave a floor", "s*4 + p + 9", '/', "4", "s + floor((p + 1)/4) + 2"},
    {"whole terms leave a symbolic floor", "b*s*12 + 7", '/', "b*4", "s*3 + floor(7/(b*4))"},
    {"common factors cancel", "s*6 + p*4", '/', "10", "floor((p*2 + s*3)/5)"},
    {"a floor's constant is coarsened", "s*4 + 3", '/', "6", "floor((s*2 + 1)/3)"},
    {"floors nest", "floor(s/2)", '/', "3", "floor(s/6)"},
    {"floors with an offset nest", "floor((s + 1)/2) + 1", '/', "2", "floor((s + 3)/4)"},
    {"a floor of a floor by a symbol", "floor(s/p)", '/', "b", "floor(s/(b*p))"},
    {"a bounded numerator vanishes", "mod(s, 4)", '/', "4", "0"},
    {"constants floor toward minus infinity", "-7", '/', "2", "-4"},
    {"division by zero stays", "s", '/', "0", "floor(s/0)"},
    {"exact ceiling division", "s*8", '^', "4", "s*2"},
    {"ceiling division rounds up", "s", '^', "4", "floor((s + 3)/4)"},
    {"ceiling division by a symbol", "s", '^', "p", "floor((s - 1)/p) + 1"},
    {"mod by 1", "s + p", '%', "1", "0"},
    {"mod by a divisor", "s*12", '%', "4", "0"},
    {"mod by a factor", "(s + p)*b", '%', "s + p", "0"},
    {"mod reduces coefficients", "s*7 + 9", '%', "4", "mod(s*3 + 1, 4)"},
    {"mods nest", "mod(s, 12) + p", '%', "4", "mod(p + s, 4)"},
    {"mod of what is smaller", "mod(s, 4)", '%', "7", "mod(s, 4)"},
    {"mod of constants floors", "-7", '%', "4", "1"},
    {"min of a common offset", "s", '<', "s + 3", "s"},
    {"sizes are not negative in min", "s", '<', "s + p", "s"},
    {"sizes are not negative in max", "s + p", '>', "0", "p + s"},
    {"min of what is known apart", "min(s, 5)", '<', "7", "min(s, 5)"},
    {"min absorbs max", "max(s, p)", '<', "s", "s"},
    {"max absorbs min", "min(s, p)", '>', "p", "p"},
    {"min drops a repeated operand", "min(s, p)", '<', "s + 1", "min(p, s)"},
    {"min replaces an operand", "min(s, p + 4)", '<', "p", "min(p, s)"},
    {"a clipped difference is not negative", "s - min(s, p)", '>', "0", "s - min(p, s)"},
    {"half a size is not more than it", "s - floor(s/2)", '>', "0", "s - floor(s/2)"},
    {"min commutes", "p*2", '<', "s", "min(p*2, s)"},
    {"broadcast of a size of 1", "s", '|', "1", "s"},
    {"broadcast of equal sizes", "s*2", '|', "s + s", "s*2"},
    {"broadcast of sizes above 0", "s + 1", '|', "p + s + 1", "p + s + 1"},
    {"broadcast of sizes one of which may be 0", "s", '|', "p + s", "broadcast(p + s, s)"},
    {"broadcast absorbs what it has", "broadcast(s, p)", '|', "p", "broadcast(p, s)"},
};

Test(dim, normal_forms) {
    for (size_t i = 0; i < sizeof normal_forms / sizeof *normal_forms; i++) {
        Arena *arena = arena_create(0);
        DimTable *table = dim_table_create(arena);
        const Dim *a = parse(table, normal_forms[i].a), *b = parse(table, normal_forms[i].b);
        const Dim *result = apply(table, a, normal_forms[i].op, b);
        cr_expect_str_eq(print(arena, result), normal_forms[i].result, "%s", normal_forms[i].what);
        cr_expect_eq(result, parse(table, normal_forms[i].result), "%s: interned", normal_forms[i].what);
        arena_destroy(arena);
    }
}

static const struct {
    const char *what, *text, *printed, *rest; /* printed NULL: no expression */
} texts[] = {
    {"odd names are quoted", "\"unk 1\"*\"a.b\"*2", "\"a.b\"*\"unk 1\"*2", ""},
    {"a quoted identifier needs no quotes", "\"s\"", "s", ""},
    {"escapes read back", "\"a\\\"\\\\\\n\\xff\"", "\"a\\\"\\\\\\n\\xff\"", ""},
    {"an empty name", "\"\"", "\"\"", ""},
    {"a function's name alone is a symbol", "min + floor", "floor + min", ""},
    {"blanks", "  - s * 2+1 ", "-s*2 + 1", " "},
    {"stops before what follows", "s -> t", "s", " -> t"},
    {"stops before a comma", "b*s, 4]", "b*s", ", 4]"},
    {"the largest number", "9223372036854775807", "9223372036854775807", ""},
    {"a number that is too large", "9223372036854775808", NULL, NULL},
    {"nothing", "", NULL, NULL},
    {"an open parenthesis", "(s", NULL, NULL},
    {"an open quote", "\"s", NULL, NULL},
    {"a cut escape", "\"s\\", NULL, NULL},
    {"floor of no quotient", "floor(s)", NULL, NULL},
};

Test(dim, text) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Arena *arena = arena_create(0);
        DimTable *table = dim_table_create(arena);
        const char *at = texts[i].text;
        const Dim *dim = dim_parse(table, &at);
        cr_assert_eq(dim != NULL, texts[i].printed != NULL, "%s", texts[i].what);
        cr_expect_str_eq(dim ? print(arena, dim) : "", dim ? texts[i].printed : "", "%s", texts[i].what);
        cr_expect_str_eq(at, dim ? texts[i].rest : texts[i].text, "%s", texts[i].what);
        arena_destroy(arena);
    }
}

Test(dim, deeply_nested_text_is_refused) {
    Arena *arena = arena_create(0);
    char text[100001];
    memset(text, '(', sizeof text - 1);
    text[sizeof text - 1] = 0;
    const char *at = text;
    cr_expect_null(dim_parse(dim_table_create(arena), &at));
    arena_destroy(arena);
}

Test(dim, symbols) {
    Arena *arena = arena_create(0);
    DimTable *table = dim_table_create(arena);
    const Dim *n = dim_symbol(table, "N");
    cr_expect_eq(n, dim_symbol(table, "N"));
    cr_expect_eq(dim_symbol_index(n), 0);
    cr_expect_eq(dim_symbol_index(dim_add(table, n, n)), -1);
    const char *const fresh[] = {"N_1", "N_3", "k", "k_1"}, *const hints[] = {"N", "N", "k", "k"};
    dim_symbol(table, "N_2");
    for (int i = 0; i < 4; i++)
        cr_expect_str_eq(dim_symbol_name(table, dim_symbol_index(dim_fresh(table, hints[i]))), fresh[i]);
    cr_expect_eq(dim_symbol_count(table), 6);
    arena_destroy(arena);
}

Test(dim, divides) {
    Arena *arena = arena_create(0);
    DimTable *table = dim_table_create(arena);
    const Dim *quotient = NULL;
    cr_expect(dim_divides(table, parse(table, "b*s*6 + b*3"), parse(table, "b*3"), &quotient));
    cr_expect_str_eq(print(arena, quotient), "s*2 + 1");
    cr_expect(dim_divides(table, parse(table, "0"), parse(table, "s"), &quotient));
    cr_expect(dim_equals(quotient, 0));
    cr_expect_not(dim_divides(table, parse(table, "s*3 + 1"), parse(table, "3"), NULL));
    cr_expect_not(dim_divides(table, parse(table, "s"), parse(table, "s + p"), NULL));
    cr_expect_not(dim_divides(table, parse(table, "s"), parse(table, "0"), NULL));
    arena_destroy(arena);
}

static const struct {
    const char *what, *text;
    int64_t s, p, value;
} evaluations[] = {
    {"a polynomial", "s*s*2 - p + 1", 5, 3, 48},
    {"functions", "floor((s + 1)/2) + mod(s, p) + min(s, p)*10 + max(s, p)*100", 5, 3, 3 + 2 + 30 + 500},
    {"broadcast of 1 and 0", "broadcast(s, p)", 1, 0, 0},
    {"broadcast of 0 and 1", "broadcast(s, p)", 0, 1, 0},
    {"broadcast of 1 and 3", "broadcast(s, p)", 1, 3, 3},
    {"broadcast of 3 and 3", "broadcast(s, p)", 3, 3, 3},
    {"an unbound symbol", "s + p", 5, UNBOUND_DIM, UNBOUND_DIM},
    {"an unbound symbol that plays no part", "s + p - p", 5, UNBOUND_DIM, 5},
    {"division by zero", "floor(s/p)", 5, 0, UNBOUND_DIM},
    {"mod by zero", "mod(s, p)", 5, 0, UNBOUND_DIM},
    {"an overflowing product", "s*s", INT64_C(1) << 32, 0, UNBOUND_DIM},
    {"an overflowing sum", "s + p", INT64_MAX, 1, UNBOUND_DIM},
    {"constants that overflow", "9223372036854775807 + s + 9223372036854775807", 1, 0, UNBOUND_DIM},
    {"coefficients that overflow but fit", "floor(s*9223372036854775807*2/9223372036854775807)", 0, 0, 0},
};

Test(dim, evaluation) {
    for (size_t i = 0; i < sizeof evaluations / sizeof *evaluations; i++) {
        Arena *arena = arena_create(0);
        DimTable *table = dim_table_create(arena);
        dim_symbol(table, "s");
        dim_symbol(table, "p");
        int64_t values[] = {evaluations[i].s, evaluations[i].p};
        const Dim *dim = parse(table, evaluations[i].text);
        cr_expect_eq(dim_eval(dim, values), evaluations[i].value, "%s", evaluations[i].what);
        arena_destroy(arena);
    }
}

/* An expression, and its value computed beside it. */
typedef struct Pair {
    const Dim *dim;
    int64_t value;
} Pair;

static const int64_t bound[] = {3, 7, 1, 12};
static const char *const bound_names[] = {"b", "s", "p", "q"};
enum { BOUND_COUNT = 4 };

static int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static Pair random_pair(DimTable *table, unsigned *seed, int depth) {
    int pick = rand_r(seed) % 16;
    if (depth == 0 || pick == 0) {
        int i = rand_r(seed) % (BOUND_COUNT * 2);
        int64_t c = rand_r(seed) % 20 - 5;
        return i < BOUND_COUNT ? (Pair){dim_symbol(table, bound_names[i]), bound[i]} : (Pair){dim_const(table, c), c};
    }
    Pair a = random_pair(table, seed, depth - 1), b = random_pair(table, seed, depth - 1);
    if (llabs(a.value) > 1000000 || llabs(b.value) > 1000000) return b;
    char op = "+-*+-*/^%<>+*/<>"[pick];
    bool divides = op == '/' || op == '^' || op == '%';
    if (divides && (b.value == 0 || pick % 2)) {
        int64_t c = 1 + rand_r(seed) % 8;
        b = (Pair){dim_const(table, c), c};
    }
    int64_t x = a.value, y = b.value, value = 0;
    if (op == '+') value = x + y;
    if (op == '-') value = x - y;
    if (op == '*') value = x * y;
    if (op == '/') value = floor_quotient(x, y);
    if (op == '^') value = -floor_quotient(-x, y);
    if (op == '%') value = x - floor_quotient(x, y) * y;
    if (op == '<') value = x < y ? x : y;
    if (op == '>') value = x > y ? x : y;
    return (Pair){apply(table, a.dim, op, b.dim), value};
}

Test(dim, random_expressions_keep_their_value) {
    for (unsigned round = 1; round <= 3000; round++) {
        Arena *arena = arena_create(0);
        DimTable *table = dim_table_create(arena), *other = dim_table_create(arena);
        int64_t values[64];
        const Dim *by_symbol[BOUND_COUNT];
        for (int i = 0; i < 64; i++) values[i] = i < BOUND_COUNT ? bound[i] : UNBOUND_DIM;
        for (int i = 0; i < BOUND_COUNT; i++) dim_symbol(table, bound_names[i]);
        for (int i = 0; i < BOUND_COUNT; i++) by_symbol[i] = i % 2 ? dim_const(table, bound[i]) : NULL;
        unsigned seed = round;
        Pair pair = random_pair(table, &seed, 5);
        const char *text = print(arena, pair.dim);
        cr_assert_eq(dim_eval(pair.dim, values), pair.value, "round %u: %s", round, text);
        cr_assert_eq(parse(table, text), pair.dim, "round %u: %s parses to itself", round, text);
        cr_assert_str_eq(print(arena, parse(other, text)), text, "round %u: in a new table", round);
        const Dim *half = dim_substitute(table, pair.dim, by_symbol, BOUND_COUNT);
        cr_assert_eq(dim_eval(half, values), pair.value, "round %u: %s substituted", round, text);
        arena_destroy(arena);
    }
}

/* As many factors as a tensor has axes, of as many symbols as a padded axis has. */
Test(dim, long_products_are_exact) {
    enum { FACTORS = 16, SYMBOLS = 4 };
    Arena *arena = arena_create(0);
    DimTable *table = dim_table_create(arena);
    const Dim *product = dim_const(table, 1);
    int64_t values[FACTORS * SYMBOLS], wanted = 1;
    for (int i = 0; i < FACTORS; i++) {
        const Dim *factor = dim_const(table, 1);
        int64_t value = 1;
        for (int j = 0; j < SYMBOLS; j++) {
            values[i * SYMBOLS + j] = (i + j) % 3;
            value += values[i * SYMBOLS + j];
            factor = dim_add(table, factor, dim_symbol(table, arena_format(arena, "n%d", i * SYMBOLS + j)));
        }
        product = dim_mul(table, product, factor);
        wanted *= value;
        cr_expect_eq(dim_symbol_count(table), (i + 1) * SYMBOLS, "%d factors: a symbol stands for the product", i + 1);
        cr_expect_eq(dim_eval(product, values), wanted, "%d factors", i + 1);
    }
    arena_destroy(arena);
}

/* Each of these would take exponential time or memory, or overflow the stack, without bounds. */
Test(dim, hostile_growth_is_bounded, .timeout = 20) {
    Arena *arena = arena_create(64 << 20);
    jmp_buf guard;
    cr_assert(setjmp(guard) == 0, "out of memory");
    arena_guard(arena, &guard);
    DimTable *table = dim_table_create(arena);
    const Dim *square = dim_add(table, dim_symbol(table, "s"), dim_symbol(table, "p"));
    for (int i = 0; i < 200; i++) square = dim_mul(table, square, square);
    const Dim *sum = dim_const(table, 0), *product = dim_const(table, 1);
    for (int i = 0; i < 1000; i++) {
        const Dim *term = dim_symbol(table, arena_format(arena, "n%d", i));
        sum = dim_add(table, sum, term);
        product = dim_mul(table, product, dim_add(table, term, dim_const(table, 1)));
    }
    const Dim *nested = dim_symbol(table, "x");
    for (int i = 0; i < 2000; i++) {
        const Dim *k = dim_const(table, i % 7 + 3);
        nested = dim_add(table, dim_mod(table, nested, k), dim_max(table, dim_div(table, nested, k), nested));
    }
    int64_t *values = ARENA_ARRAY(arena, int64_t, dim_symbol_count(table));
    for (int i = 0; i < dim_symbol_count(table); i++) values[i] = 2;
    cr_expect_eq(dim_eval(sum, values), 2000);
    const Dim *all[] = {square, sum, product, nested};
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(parse(table, print(arena, all[i])), all[i]);
        dim_eval(all[i], values);
    }
    arena_destroy(arena);
}
