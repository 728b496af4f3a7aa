/* SPDX-License-Identifier: Apache-2.0 */
/* Which sets of primitives share an iteration space, and how their inputs are read in it. */
#include <criterion/criterion.h>
#include "graph/space.h"

/* axes: sizes, r marks reduced ones; then each load as NAME[strides + offset]. Or "no: " and the reason. */
static const struct {
    const char *name, *text, *expected;
} rows[] = {
    {"broadcasting joins axes from the right",
     "graph (x: f32[b, s, 8], y: f32[8], z: f32[s, 1]) -> (v) {\n u: f32[b, s, 8] = add x, y\n v: f32[b, s, 8] = mul "
     "u, z\n}",
     "b s 8 | x[s*8 8 1] y[0 0 1] z[0 1 0]"},
    {"constant size 1 has no axis", "graph (x: f32[1, s, 1]) -> (v) {\n v: f32[1, s, 1] = neg x\n}", "s | x[1]"},
    {"a scalar has no axes", "graph (x: f32[]) -> (v) {\n v: f32[] = neg x\n}", " | x[]"},
    {"a reshape between computed values splits an axis",
     "graph (x: f32[b*s, 8], y: f32[b, s, 2, 4]) -> (v) {\n t: f32[b*s, 8] = neg x\n r: f32[b, s, 2, 4] = reshape t "
     "{shape = (b, s, 2, 4)}\n"
     " v: f32[b, s, 2, 4] = add r, y\n}",
     "b s 2 4 | x[s*8 8 4 1] y[s*8 8 4 1]"},
    {"a reshape may regroup blocks whose sizes divide",
     "graph (x: f32[4, 6]) -> (v) {\n t: f32[4, 6] = neg x\n v: f32[2, 12] = reshape t {shape = (2, 12)}\n}",
     "2 2 6 | x[12 6 1]"},
    {"a reshape whose blocks do not divide does not fit",
     "graph (x: f32[2, 3]) -> (v) {\n t: f32[2, 3] = neg x\n v: f32[3, 2] = reshape t {shape = (3, 2)}\n}",
     "no: axes of sizes that do not divide meet"},
    {"permutes reorder",
     "graph (x: f32[a, c], y: f32[c, a]) -> (v) {\n t: f32[a, c] = neg x\n p: f32[c, a] = permute t {perm = [1, 0]}\n"
     " v: f32[c, a] = add p, y\n}",
     "a c | x[c 1] y[1 a]"},
    {"a tensor and its transpose are two loads",
     "graph (x: f32[n, n]) -> (v) {\n p: f32[n, n] = permute x {perm = [1, 0]}\n v: f32[n, n] = add x, p\n}",
     "n n | x[n 1] x[1 n]"},
    {"a computed tensor and its transpose do not fit",
     "graph (x: f32[n, n]) -> (v) {\n t: f32[n, n] = neg x\n p: f32[n, n] = permute t {perm = [1, 0]}\n v: f32[n, n] = "
     "add t, p\n}",
     "no: two axes of one value would be the same"},
    {"a softmax reduces one axis twice",
     "graph (x: f32[m, n]) -> (v) {\n a: f32[m, 1] = reduce_max x {axes = [1]}\n d: f32[m, n] = sub x, a\n e: f32[m, "
     "n] = exp d\n"
     " s: f32[m, 1] = reduce_sum e {axes = [1]}\n v: f32[m, n] = div e, s\n}",
     "m nr | x[n 1]"},
    {"reductions over different axes do not fit",
     "graph (x: f32[m, n]) -> (v) {\n a: f32[m, 1] = reduce_max x {axes = [1]}\n b: f32[1, n] = reduce_sum x {axes = "
     "[0]}\n v: f32[m, n] = "
     "add a, b\n}",
     "no: reductions over different axes"},
    {"a sum of columns beside what rows reduce fits",
     "graph (x: f32[b, m, n]) -> (v, c) {\n a: f32[b, m, 1] = reduce_max x {axes = [2]}\n c: f32[1, 1, n] = reduce_sum "
     "x "
     "{axes = [0, 1]}\n v: f32[b, m, n] = sub x, a\n}",
     "b m nr | x[m*n n 1]"},
    {"one that is read does not",
     "graph (x: f32[m, n]) -> (v, d) {\n a: f32[m, 1] = reduce_max x {axes = [1]}\n c: f32[1, n] = reduce_sum x {axes "
     "= "
     "[0]}\n v: f32[m, n] = sub x, a\n d: f32[1, n] = neg c\n}",
     "no: reductions over different axes"},
    {"nor a sum of some of the axes that rows keep",
     "graph (x: f32[b, m, n]) -> (v, c) {\n a: f32[b, m, 1] = reduce_max x {axes = [2]}\n c: f32[1, m, n] = reduce_sum "
     "x "
     "{axes = [0]}\n v: f32[b, m, n] = sub x, a\n}",
     "no: reductions over different axes"},
    {"nor one along rows beside sums of columns that are read",
     "graph (x: f32[m, n]) -> (v, c) {\n a: f32[1, n] = reduce_max x {axes = [0]}\n c: f32[m, 1] = reduce_sum x {axes "
     "= "
     "[1]}\n v: f32[m, n] = sub x, a\n}",
     "no: reductions over different axes"},
    {"a reduction of a reduction does not fit",
     "graph (x: f32[n, n]) -> (b) {\n a: f32[n, 1] = reduce_max x {axes = [1]}\n b: f32[1, 1] = reduce_sum a {axes = "
     "[0]}\n}",
     "no: two axes of one value would be the same"},
    {"reductions of unrelated tensors over equal sizes join",
     "graph (x: f32[m, n], y: f32[m, n]) -> (v) {\n a: f32[m, 1] = reduce_sum x {axes = [1]}\n b: f32[m, 1] = "
     "reduce_sum y {axes = [1]}\n"
     " v: f32[m, 1] = add a, b\n}",
     "m nr | x[n 1] y[n 1]"},
    {"a tensor of the row's size behind a reduction runs with it",
     "graph (x: f32[m, n], y: f32[m, n]) -> (v) {\n a: f32[m, 1] = reduce_sum x {axes = [1]}\n v: f32[m, n] = mul y, "
     "a\n}",
     "m nr | x[n 1] y[n 1]"},
    {"a reduction that would be repeated does not fit",
     "graph (x: f32[n], y: f32[m, k]) -> (v) {\n a: f32[1] = reduce_sum x {axes = [0]}\n v: f32[m, k] = mul y, a\n}",
     "no: a reduction would be repeated along an axis that its input lacks"},
    {"a reduction over a constant size 1 is none",
     "graph (x: f32[m, 1]) -> (v) {\n v: f32[m, 1] = reduce_sum x {axes = [1]}\n}", "m | x[1]"},
    {"slices, reshapes and permutes of an input are one load",
     "graph (x: f32[b, s, 24]) -> (v) {\n r: f32[b, s, 3, 2, 4] = reshape x {shape = (b, s, 3, 2, 4)}\n k: f32[b, s, "
     "1, 2, 4] = slice r {shape = "
     "(b, s, 1, 2, 4), start = (0, 0, 1, 0, 0), step = [1, 1, 1, 1, 1]}\n"
     " p: f32[b, 2, s, 1, 4] = permute k {perm = [0, 3, 1, 2, 4]}\n v: f32[b, 2, s, 1, 4] = neg p\n}",
     "b 2 s 4 | x[s*24 4 24 1 + 8]"},
    {"a slice may run backwards",
     "graph (x: f32[8]) -> (v) {\n r: f32[4] = slice x {shape = (4), start = (7), step = [-2]}\n v: f32[4] = neg r\n}",
     "4 | x[-2 + 7]"},
    {"a slice of a computed value does not fit",
     "graph (x: f32[8]) -> (v) {\n t: f32[8] = neg x\n v: f32[4] = slice t {shape = (4), start = (0), step = [1]}\n}",
     "no: a slice of a computed value"},
    {"a repeated axis has stride 0",
     "graph (x: f32[m, 1]) -> (v) {\n e: f32[m, n] = expand x {shape = (m, n)}\n v: f32[m, n] = neg e\n}",
     "m n | x[1 0]"},
    {"a lone transpose is a load", "graph (x: f32[m, n]) -> (v) {\n v: f32[n, m] = permute x {perm = [1, 0]}\n}",
     "n m | x[1 n]"},
    {"a strided input that is reshaped keeps its axes apart",
     "graph (x: f32[m, n]) -> (v) {\n p: f32[n, m] = permute x {perm = [1, 0]}\n r: f32[n*m] = reshape p {shape = "
     "(n*m)}\n v: f32[n*m] = neg r\n}",
     "n m | x[1 n]"},
    {"constant sizes 0 stay outside: there is nothing to run",
     "graph (x: f32[0, n], y: f32[n]) -> (v) {\n v: f32[0, n] = add x, y\n}",
     "no: a primitive or type that no region holds"},
    {"sizes that may differ at run time do not fit", "graph (x: f32[m], y: f32[n]) -> (v) {\n v: f32[m] = add x, y\n}",
     "no: sizes that may differ at run time meet"},
    {"more axes than a kernel has do not fit",
     "graph (x: f32[a, b, c, d, e, f, g, h, i]) -> (v) {\n v: f32[i, h, g, f, e, d, c, b, a] = permute x {perm = [8, "
     "7, 6, 5, 4, 3, 2, 1, 0]}\n}",
     "no: too many axes"},
    {"many axes that run together fit",
     "graph (x: f32[a, b, c, d, e, f, g, h, i]) -> (v) {\n v: f32[a, b, c, d, e, f, g, h, i] = neg x\n}",
     "a b c d e f g h i | x[b*c*d*e*f*g*h*i c*d*e*f*g*h*i d*e*f*g*h*i e*f*g*h*i f*g*h*i g*h*i h*i i 1]"},
};

static char *described(const Space *space, Arena *arena) {
    Text t = text_make(arena);
    for (int a = 0; a < space->axis_count; a++) {
        if (a) text_add(&t, " ");
        dim_print(&t, space->axes[a].size);
        if (space->axes[a].reduced) text_add(&t, "r");
    }
    text_add(&t, " |");
    for (int i = 0; i < space->loads.count; i++) {
        const SpaceLoad *load = &space->loads.items[i];
        text_add(&t, " %s[", load->source->name);
        for (int a = 0; a < space->axis_count; a++) {
            if (a) text_add(&t, " ");
            dim_print(&t, load->stride[a]);
        }
        if (!dim_equals(load->offset, 0)) {
            text_add(&t, " + ");
            dim_print(&t, load->offset);
        }
        text_add(&t, "]");
    }
    return t.data;
}

static Space *analyse(Graph *graph, const char **why) {
    Node *nodes[64];
    int count = 0;
    FOR_EACH_NODE(node, graph) nodes[count++] = node;
    return space_analyse(graph->arena, graph->dims, nodes, count, true, why);
}

Test(space, sets) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Graph *graph = NULL;
        Status status = graph_parse(rows[i].text, &graph);
        cr_assert(!status, "%s: %s", rows[i].name, status_message(status));
        const char *why;
        Space *space = analyse(graph, &why);
        char *got = space ? described(space, graph->arena) : arena_format(graph->arena, "no: %s", why);
        cr_expect_str_eq(got, rows[i].expected, "%s: %s", rows[i].name, got);
        graph_destroy(graph);
    }
}

Test(space, a_value_covers_the_space_unless_it_lacks_a_kept_axis) {
    Graph *graph = NULL;
    Status status =
        graph_parse("graph (x: f32[m, n], y: f32[n]) -> (v, a, u) {\n u: f32[n] = neg y\n v: f32[m, n] = add x, u\n"
                    " a: f32[m, 1] = reduce_sum v {axes = [1]}\n}",
                    &graph);
    cr_assert(!status, "%s", status_message(status));
    const char *why;
    const Space *space = analyse(graph, &why);
    cr_assert(space, "%s", why);
    static const bool covers[] = {true, true, false}; /* v, a, u */
    for (int i = 0; i < 3; i++) cr_expect_eq(space_covers(space, graph->outputs.items[i]), covers[i], "output %d", i);
    graph_destroy(graph);
}

Test(space, what_regions_cannot_hold) {
    static const char *const texts[] = {
        "graph (x: f32[2], y: i64[2]) -> (v) {\n v: f32[2] = gather x, y {axis = 0}\n}",
        "graph (x: f16[2]) -> (v) {\n v: i16[2] = bitcast x {to = i16}\n}",
        "graph (x: f8e5m2[2]) -> (v) {\n v: f8e5m2[2] = neg x\n}",
        "graph (x: i4[2]) -> (v) {\n v: bool[2] = eq x, x\n}",
        "graph (x: u2[2]) -> (v) {\n v: u2[1] = reduce_max x {axes = [0]}\n}",
        "graph () -> (v) {\n v: i4[2] = iota {shape = (2), axis = 0, dtype = i4}\n}",
        "graph (x: f32[n]) -> (v) {\n v: f32[m] = expand x {shape = (m)}\n}",
        "graph () -> (v) {\n v: i64[2] = dims {shape = (2, 3)}\n}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Graph *graph = NULL;
        Status status = graph_parse(texts[i], &graph);
        cr_assert(!status, "%s", status_message(status));
        cr_expect_not(space_accepts(graph->first), "%s", texts[i]);
        graph_destroy(graph);
    }
}
