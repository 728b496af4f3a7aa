/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors lie over a larger one in two numbers, and in which. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "graph/broadcast.h"

/* ---- sizes ---- */

typedef struct Sizes {
    int rank;
    int64_t dims[5];
} Sizes;

static const struct {
    const char *name;
    Sizes part, whole;
    bool is_one;
    int64_t period, inner;
} forms[] = {
    {"the same shape", {3, {2, 3, 4}}, {3, {2, 3, 4}}, true, 24, 24},
    {"a scalar of no axes", {0, {0}}, {3, {2, 3, 4}}, true, 24, 1},
    {"a scalar of many axes", {3, {1, 1, 1}}, {3, {2, 3, 4}}, true, 24, 1},
    {"a row", {1, {4}}, {3, {2, 3, 4}}, true, 24, 4},
    {"a row of many axes", {3, {1, 1, 4}}, {3, {2, 3, 4}}, true, 24, 4},
    {"a matrix for each image", {2, {3, 4}}, {3, {2, 3, 4}}, true, 24, 12},
    {"a column of rows", {3, {2, 3, 1}}, {3, {2, 3, 4}}, true, 4, 1},
    {"an element an image", {3, {2, 1, 1}}, {3, {2, 3, 4}}, true, 12, 1},
    {"a row an image", {3, {2, 1, 4}}, {3, {2, 3, 4}}, true, 12, 4},
    {"an element an image and channel", {4, {2, 1, 1, 5}}, {4, {2, 3, 4, 5}}, true, 60, 5},
    {"two leading axes, one repeated, two trailing", {5, {2, 3, 1, 5, 6}}, {5, {2, 3, 4, 5, 6}}, true, 120, 30},
    {"the middle alone", {3, {1, 3, 1}}, {3, {2, 3, 4}}, false, 0, 0},
    {"the middle of missing leading axes", {2, {3, 1}}, {3, {2, 3, 4}}, false, 0, 0},
    {"every second axis", {4, {2, 1, 4, 1}}, {4, {2, 3, 4, 5}}, false, 0, 0},
    {"every other second axis", {4, {1, 3, 1, 5}}, {4, {2, 3, 4, 5}}, false, 0, 0},
    {"a repeated axis of size 1 says nothing", {4, {2, 1, 1, 5}}, {4, {2, 1, 4, 5}}, true, 20, 5},
    {"an axis of size 1 in between says nothing", {4, {1, 1, 4, 1}}, {4, {1, 1, 4, 1}}, true, 4, 4},
    {"the middle, where nothing is outside of it", {3, {1, 3, 1}}, {3, {1, 3, 1}}, true, 3, 3},
    {"the middle, where nothing is behind it", {3, {1, 3, 1}}, {3, {2, 3, 1}}, true, 6, 3},
    {"the middle, where nothing is before it", {3, {1, 3, 1}}, {3, {1, 3, 4}}, true, 4, 1},
    {"over a scalar", {0, {0}}, {0, {0}}, true, 1, 1},
    {"over nothing", {1, {4}}, {2, {0, 4}}, true, 1, 1},
    {"of no columns", {2, {3, 1}}, {2, {3, 0}}, true, 1, 1},
    {"a rank above the whole's", {3, {1, 3, 4}}, {2, {3, 4}}, false, 0, 0},
    {"a size that is neither 1 nor the whole's", {2, {3, 2}}, {2, {3, 4}}, false, 0, 0},
    {"a leading size that is neither", {2, {2, 4}}, {2, {3, 4}}, false, 0, 0},
    {"a size over an axis of 1", {2, {3, 4}}, {2, {1, 4}}, false, 0, 0},
    {"nothing over something", {2, {3, 0}}, {2, {3, 4}}, false, 0, 0},
};
enum { FORMS = sizeof forms / sizeof *forms };

Test(broadcast, two_numbers_tell_where_an_operand_lies) {
    for (int i = 0; i < FORMS; i++) {
        const Sizes *part = &forms[i].part, *whole = &forms[i].whole;
        Broadcast got;
        bool is_one = broadcast_of(part->rank, part->dims, whole->rank, whole->dims, &got);
        cr_expect_eq(is_one, forms[i].is_one, "%s", forms[i].name);
        if (!is_one || !forms[i].is_one) continue;
        cr_expect(got.period == forms[i].period && got.inner == forms[i].inner, "%s: %lld, %lld", forms[i].name,
                  (long long)got.period, (long long)got.inner);
    }
}

/* By numpy's rule, an axis after the other. */
static int64_t element_of_part(const Sizes *part, const Sizes *whole, int64_t element) {
    int64_t at = 0, step = 1;
    for (int i = whole->rank - 1; i >= 0; i--) {
        int axis = i - (whole->rank - part->rank);
        int64_t index = element % whole->dims[i];
        element /= whole->dims[i];
        if (axis < 0) continue;
        if (part->dims[axis] != 1) at += index * step;
        step *= part->dims[axis];
    }
    return at;
}

static int64_t count_of(const Sizes *s) {
    int64_t count = 1;
    for (int i = 0; i < s->rank; i++) count *= s->dims[i];
    return count;
}

static bool broadcasts(const Sizes *part, const Sizes *whole) {
    for (int i = 0; i < part->rank; i++)
        if (part->dims[i] != 1 && part->dims[i] != whole->dims[i + whole->rank - part->rank]) return false;
    return true;
}

/* How often the row-major order of the whole goes from kept axes to repeated ones and back. */
static int changes(const Sizes *part, const Sizes *whole) {
    int count = 0, before = -1;
    for (int i = 0; i < whole->rank; i++) {
        int axis = i - (whole->rank - part->rank);
        if (whole->dims[i] == 1) continue;
        int kept = axis >= 0 && part->dims[axis] != 1;
        count += before >= 0 && kept != before;
        before = kept;
    }
    return count;
}

static bool starts_kept(const Sizes *part, const Sizes *whole) {
    for (int i = 0; i < whole->rank; i++)
        if (whole->dims[i] != 1)
            return i >= whole->rank - part->rank && part->dims[i - (whole->rank - part->rank)] != 1;
    return true;
}

static bool in_range(int64_t number, int64_t count) { return number >= 0 && number < count; }

static void check_every_element(const Sizes *part, const Sizes *whole, bool *out_is_one) {
    Broadcast b;
    *out_is_one = broadcast_of(part->rank, part->dims, whole->rank, whole->dims, &b);
    int most = starts_kept(part, whole) ? 2 : 1;
    cr_assert_eq(*out_is_one, broadcasts(part, whole) && changes(part, whole) <= most);
    if (!*out_is_one) return;
    cr_assert_eq(b.period % b.inner, 0);
    for (int64_t e = 0, count = count_of(whole); e < count; e++) {
        int64_t at = e / b.period * b.inner + e % b.inner;
        cr_assert_eq(at, element_of_part(part, whole, e), "element %lld is at %lld", (long long)e, (long long)at);
        cr_assert(in_range(at, count_of(part)));
    }
}

/* All ranks up to 4, axes of 1 to 3 elements: of the form where the numbers can say it, and then for each element. */
Test(broadcast, every_element_of_all_small_shapes) {
    int is_one = 0, not = 0;
    for (int rank = 0; rank <= 4; rank++)
        for (int whole_code = 0; whole_code < 81; whole_code++)
            for (int part_rank = 0; part_rank <= rank; part_rank++)
                for (int part_code = 0; part_code < 81; part_code++) {
                    Sizes whole = {.rank = rank}, part = {.rank = part_rank};
                    int w = whole_code, p = part_code;
                    for (int i = 0; i < rank; i++, w /= 3) whole.dims[i] = 1 + w % 3;
                    for (int i = 0; i < part_rank; i++, p /= 3) part.dims[i] = 1 + p % 3;
                    if (w || p) continue; /* the same sizes have been met */
                    bool found;
                    check_every_element(&part, &whole, &found);
                    *(found ? &is_one : &not ) += 1;
                }
    cr_expect(is_one > 500 && not > 500, "%d and %d", is_one, not );
}

/* ---- symbols ---- */

static const struct {
    const char *part, *whole;
    bool fits, keeps_last, is_row;
} symbolic[] = {
    {"n, m, 4", "n, m, 4", true, true, false},
    {"", "n, m, 4", true, false, true},
    {"4", "n, m, 4", true, true, true},
    {"1", "n, m, 4", true, false, true},
    {"1, 1, 4", "n, m, 4", true, true, true},
    {"n, m, 1", "n, m, 4", true, false, false},
    {"n, 1, 4", "n, m, 4", true, true, false},
    {"m, 4", "n, m, 4", true, true, false},
    {"m", "n, m", true, true, true},
    {"n, 1, 1, 5", "n, m, m, 5", true, true, false},
    {"1, m, 1", "n, m, 4", false, false, false},
    {"m, 1", "n, m, 4", false, false, false},
    {"n, m, 4", "m, n, 4", false, true, false}, /* equal at run time, perhaps */
    {"k", "n, m", false, true, true},           /* 1 at run time, perhaps */
    {"n, 1, 4", "n, k, 4", true, true, false},
    {"n, 1, 4, 1", "n, m, 4, 5", false, false, false},
    {"n, 1, 1", "n, 1, 5", true, false, false},
    {"1, 3, 1", "1, 3, 4", true, false, false},
    {"2*n", "m, 2*n", true, true, true},
    {"1, n, m", "n, m", false, true, false},
    {"3", "n, m, 4", false, true, true},
};

static const Value *shaped(Graph **out_graph, const char *part, const char *whole) {
    Arena *arena = arena_create(0);
    Status status =
        graph_parse(arena_format(arena, "graph (p: f32[%s], w: f32[%s]) -> () {\n}\n", part, whole), out_graph);
    cr_assert(!status, "[%s] over [%s]: %s", part, whole, status_message(status));
    arena_destroy(arena);
    return (*out_graph)->inputs.items[0];
}

Test(broadcast, symbols_must_fit_whatever_they_are) {
    for (size_t i = 0; i < sizeof symbolic / sizeof *symbolic; i++) {
        Graph *graph = NULL;
        const Value *part = shaped(&graph, symbolic[i].part, symbolic[i].whole), *whole = graph->inputs.items[1];
        cr_expect_eq(broadcast_fits(part, whole), symbolic[i].fits, "[%s] over [%s]", symbolic[i].part,
                     symbolic[i].whole);
        cr_expect_eq(broadcast_keeps_last(part), symbolic[i].keeps_last, "[%s]", symbolic[i].part);
        cr_expect_eq(broadcast_is_row(part), symbolic[i].is_row, "[%s]", symbolic[i].part);
        graph_destroy(graph);
    }
}

Test(broadcast, an_unknown_rank_fits_nothing) {
    Graph *graph = NULL;
    cr_assert(!graph_parse("graph (p: f32[*], w: f32[n]) -> () {\n}\n", &graph));
    cr_expect(!broadcast_fits(graph->inputs.items[0], graph->inputs.items[1]));
    graph_destroy(graph);
}

/* What fits by symbols lies so for every size of theirs. */
Test(broadcast, what_fits_by_symbols_fits_by_sizes) {
    for (size_t i = 0; i < sizeof symbolic / sizeof *symbolic; i++) {
        Graph *graph = NULL;
        const Value *part = shaped(&graph, symbolic[i].part, symbolic[i].whole), *whole = graph->inputs.items[1];
        for (int round = 0; symbolic[i].fits && round < 27; round++) {
            int64_t symbols[3] = {1 + round % 3, 1 + round / 3 % 3, 1 + round / 9};
            Sizes p = {.rank = part->rank}, w = {.rank = whole->rank};
            Broadcast b;
            for (int a = 0; a < p.rank; a++) p.dims[a] = dim_eval(part->dims[a], symbols);
            for (int a = 0; a < w.rank; a++) w.dims[a] = dim_eval(whole->dims[a], symbols);
            cr_expect(broadcast_of(p.rank, p.dims, w.rank, w.dims, &b), "[%s] over [%s], round %d", symbolic[i].part,
                      symbolic[i].whole, round);
        }
        graph_destroy(graph);
    }
}
