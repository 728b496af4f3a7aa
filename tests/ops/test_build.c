/* SPDX-License-Identifier: Apache-2.0 */
/* The builder: what an expression is simplified to, what shape and content it has, what is refused. Expressions over x:
 * f32[b, 4], y: f32[b, 4], i: i64[3]; results are told as formulas. */
#include <criterion/criterion.h>

#include "lowering/build.h"

typedef struct Fixture {
    Graph *graph;
    Lowering l;
    Value *x, *y, *i;
} Fixture;

static void open_fixture(Fixture *f) {
    *f = (Fixture){.graph = graph_create(0)};
    DimTable *dims = f->graph->dims;
    const Dim *shape[] = {dim_symbol(dims, "b"), dim_const(dims, 4)}, *three[] = {dim_const(dims, 3)};
    f->x = graph_add_input(f->graph, "x", DT_F32, 2, shape);
    f->y = graph_add_input(f->graph, "y", DT_F32, 2, shape);
    f->i = graph_add_input(f->graph, "i", DT_I64, 1, three);
    f->l = (Lowering){.graph = f->graph, .arena = f->graph->arena, .dims = dims};
}

static void close_fixture(Fixture *f) {
    status_free(f->l.error);
    graph_destroy(f->graph);
}

/* A constant as its elements, a size vector as <...>, else prim(inputs). */
static void tell(Text *text, const Value *value) {
    if (value->constant) {
        tensor_print(text, value->constant, 16);
    } else if (value->content && value->rank <= 1) {
        int64_t count = 1;
        if (value->rank == 1) dim_is_const(value->dims[0], &count);
        text_add(text, "<");
        for (int64_t k = 0; k < count; k++) {
            if (k) text_add(text, ", ");
            dim_print(text, value->content[k]);
        }
        text_add(text, ">");
    } else if (!value->producer) {
        text_add(text, "%s", value->name);
    } else {
        text_add(text, "%s(", value->producer->op);
        for (int k = 0; k < value->producer->input_count; k++) {
            if (k) text_add(text, ", ");
            tell(text, value->producer->inputs[k]);
        }
        text_add(text, ")");
    }
}

static Value *number(Lowering *l, double value) { return scalar(l, DT_F32, value); }
static Value *shape_of(Lowering *l, Value *x) { return dims_value(l, (const Dim *const *)x->dims, x->rank); }
static const Dim *size(Lowering *l, int64_t value) { return dim_const(l->dims, value); }

typedef Value *(*Expression)(Lowering *l, Value *x, Value *y, Value *i);

#define EXPRESSION(name, formula)                                                                                      \
    static Value *name(Lowering *l, Value *x, Value *y, Value *i) {                                                    \
        (void)l, (void)x, (void)y, (void)i;                                                                            \
        return formula;                                                                                                \
    }

static Value *vector_f32(Lowering *l) {
    Tensor *tensor = tensor_new(l->arena, DT_F32, 1, (const int64_t[]){4});
    for (int k = 0; k < 4; k++) ((float *)tensor->data)[k] = (float)k;
    return constant(l, tensor);
}

EXPRESSION(times_one, mul(l, x, number(l, 1)))
EXPRESSION(plus_zero, add(l, x, number(l, 0)))
EXPRESSION(plus_minus_zero, add(l, x, number(l, -0.0)))
EXPRESSION(minus_zero, sub(l, x, number(l, 0)))
EXPRESSION(integer_plus_zero, add(l, i, scalar_int(l, DT_I64, 0)))
EXPRESSION(over_eight, divide(l, x, number(l, 8)))
EXPRESSION(over_three, divide(l, x, number(l, 3)))
EXPRESSION(square, binary(l, PRIM_POW, x, number(l, 2)))
EXPRESSION(root, binary(l, PRIM_POW, x, number(l, 0.5)))
EXPRESSION(double_negation, unary(l, PRIM_NEG, unary(l, PRIM_NEG, x)))
EXPRESSION(known_choice, where(l, scalar_int(l, DT_BOOL, 1), x, y))
EXPRESSION(cast_there_and_back, cast(l, cast(l, x, DT_F64), DT_F32))
EXPRESSION(narrow_and_back, cast(l, cast(l, x, DT_F16), DT_F32))
EXPRESSION(narrow_twice, cast(l, cast(l, i, DT_I32), DT_I8))
EXPRESSION(transposed_twice, swap_last(l, swap_last(l, x)))
EXPRESSION(move_of_ones, permute(l, unsqueeze(l, x, (const int[]){0}, 1), (const int[]){1, 0, 2}))
EXPRESSION(flat_and_back, reshape(l, flatten_to(l, x, 0, 2), (const Dim *const *)x->dims, 2))
EXPRESSION(one_part, concat(l, &x, 1, 0))
EXPRESSION(same_twice, sub(l, add(l, x, y), add(l, x, y)))
EXPRESSION(expanded_operand, add(l, x, expand(l, vector_f32(l), (const Dim *const *)x->dims, 2)))
EXPRESSION(folded, mul(l, add(l, number(l, 1), number(l, 2)), number(l, 2)))
EXPRESSION(reduce_of_ones, reduce(l, PRIM_REDUCE_SUM, unsqueeze(l, x, (const int[]){1}, 1), (const int[]){1}, 1, false))

EXPRESSION(right_half, slice_axis(l, x, 1, size(l, 2), size(l, 2)))
EXPRESSION(left_half, slice_axis(l, x, 1, size(l, 0), size(l, 2)))
EXPRESSION(turned, concat(l, (Value *const[]){unary(l, PRIM_NEG, right_half(l, x, y, i)), left_half(l, x, y, i)}, 2, 1))
EXPRESSION(turned_as_is, concat(l, (Value *const[]){right_half(l, x, y, i), left_half(l, x, y, i)}, 2, 1))
EXPRESSION(halves_of_two, concat(l, (Value *const[]){right_half(l, x, y, i), left_half(l, y, x, i)}, 2, 1))

EXPRESSION(shape_product, reduce(l, PRIM_REDUCE_PROD, shape_of(l, x), (const int[]){0}, 1, true))
EXPRESSION(shape_element, gather(l, shape_of(l, x), scalar_int(l, DT_I64, -1), 0))
EXPRESSION(shape_joined, concat(l, (Value *const[]){shape_of(l, x), vector_i64(l, (const int64_t[]){-1}, 1)}, 2, 0))
EXPRESSION(shape_halved, divide(l, shape_of(l, x), scalar_int(l, DT_I64, 2)))
EXPRESSION(shape_as_i32, cast(l, shape_of(l, x), DT_I32))
EXPRESSION(shape_as_float, cast(l, shape_of(l, x), DT_F32))
EXPRESSION(shape_times_itself, mul(l, shape_of(l, x), shape_of(l, x)))
EXPRESSION(shape_is_minus_one, binary(l, PRIM_EQ, shape_of(l, x), scalar_int(l, DT_I64, -1)))
EXPRESSION(shape_is_four, binary(l, PRIM_EQ, shape_of(l, x), scalar_int(l, DT_I64, 4)))
EXPRESSION(shape_exceeds_itself, binary(l, PRIM_GT, add(l, shape_of(l, x), scalar_int(l, DT_I64, 1)), shape_of(l, x)))
EXPRESSION(shape_part, slice_axis(l, shape_of(l, x), 0, size(l, 1), size(l, 1)))

static const struct {
    const char *name;
    Expression build;
    const char *expected;
} expressions[] = {
    {"x * 1 is x", times_one, "x"},
    {"x + 0 turns -0 to 0, so it stays", plus_zero, "add(x, 0)"},
    {"x + -0 is x", plus_minus_zero, "x"},
    {"x - 0 is x", minus_zero, "x"},
    {"an integer plus 0 is itself", integer_plus_zero, "i"},
    {"a division by a power of two is an exact product", over_eight, "mul(x, 0.125)"},
    {"another division stays", over_three, "div(x, 3)"},
    {"x ** 2 is x * x", square, "mul(x, x)"},
    {"x ** 0.5 is a root", root, "sqrt(x)"},
    {"- - x is x", double_negation, "x"},
    {"a choice by a known condition is the branch", known_choice, "x"},
    {"a cast to a wider type and back is nothing", cast_there_and_back, "x"},
    {"a cast to a narrower type rounds", narrow_and_back, "cast(cast(x))"},
    {"a narrowing chain of casts stays", narrow_twice, "cast(cast(i))"},
    {"two transpositions cancel", transposed_twice, "x"},
    {"moving axes of size 1 is a reshape", move_of_ones, "reshape(x)"},
    {"a reshape back to the shape is nothing", flat_and_back, "x"},
    {"joining one part is the part", one_part, "x"},
    {"equal expressions are one node", same_twice, "sub(add(x, y), add(x, y))"},
    {"an operand is not expanded where the other has the shape", expanded_operand, "add(x, [[0, 1, 2, 3]])"},
    {"constants are folded", folded, "6"},
    {"a reduction of an axis of size 1 is nothing", reduce_of_ones, "x"},
    {"halves turned by an angle are a slice", turned, "reshape(mul(slice(reshape(x)), [[[-1], [1]]]))"},
    {"halves in the other order are a slice", turned_as_is, "reshape(slice(reshape(x)))"},
    {"halves of two values are joined", halves_of_two, "concat(slice(x), slice(y))"},
    {"product of a shape", shape_product, "<b*4>"},
    {"element of a shape from the end", shape_element, "4"},
    {"shapes joined", shape_joined, "<b, 4, -1>"},
    {"sizes are divided with floor", shape_halved, "<floor(b/2), 2>"},
    {"sizes in another integer type", shape_as_i32, "<b, 4>"},
    {"sizes in a float type are computed", shape_as_float, "cast(<b, 4>)"},
    {"sizes squared", shape_times_itself, "<b*b, 16>"},
    {"no size is -1", shape_is_minus_one, "[false, false]"},
    {"whether a symbol is 4 is not known", shape_is_four, "eq(<b, 4>, 4)"},
    {"a size plus 1 exceeds it", shape_exceeds_itself, "[true, true]"},
    {"part of a shape", shape_part, "[4]"},
};

Test(build, expressions) {
    for (size_t k = 0; k < sizeof expressions / sizeof *expressions; k++) {
        Fixture f;
        open_fixture(&f);
        Value *value = expressions[k].build(&f.l, f.x, f.y, f.i);
        cr_assert(value, "%s: %s", expressions[k].name, status_message(f.l.error));
        Text text = text_make(f.graph->arena);
        tell(&text, value);
        cr_expect_str_eq(text.data, expressions[k].expected, "%s", expressions[k].name);
        close_fixture(&f);
    }
}

EXPRESSION(mixed_types, add(l, x, cast(l, y, DT_F64)))
EXPRESSION(no_broadcast, add(l, x, expand(l, number(l, 1), (const Dim *const[]){size(l, 3)}, 1)))
EXPRESSION(slice_beyond, slice_axis(l, x, 1, size(l, 2), size(l, 3)))
EXPRESSION(squeeze_of_four, squeeze(l, x, (const int[]){1}, 1))
EXPRESSION(missing_operand, mul(l, x, NULL))
EXPRESSION(negative_size, pad(l, x, (const Dim *const[]){size(l, 0), size(l, -3)},
                              (const Dim *const[]){size(l, 0), size(l, -3)}, number(l, 0)))
EXPRESSION(float_index, gather(l, x, y, 0))
EXPRESSION(joined_shapes_differ, concat(l, (Value *const[]){x, slice_axis(l, x, 1, size(l, 0), size(l, 2))}, 2, 0))

static const struct {
    const char *name;
    Expression build;
    const char *message;
} errors[] = {
    {"operands of two types", mixed_types, "add of float32 (\"x\") and float64 (\"v0\"): the types must be equal"},
    {"shapes that do not fit", no_broadcast, "shapes [b, 4] and [3] do not broadcast"},
    {"a slice out of range", slice_beyond, "3 elements from 2 in steps of 1 are not in axis 1 of [b, 4]"},
    {"squeezing an axis of size 4", squeeze_of_four, "axis 1 of [b, 4] is not of size 1"},
    {"an operand left out", missing_operand, "an input that it needs is missing"},
    {"more cropped than there is", negative_size, "the result would have a negative size: [b, -2]"},
    {"indices that are no integers", float_index, "indices must be int32 or int64, \"y\" is float32"},
    {"parts of different sizes", joined_shapes_differ, "f32[b, 4] and f32[b, 2] cannot be joined along axis 0"},
};

Test(build, errors) {
    for (size_t k = 0; k < sizeof errors / sizeof *errors; k++) {
        Fixture f;
        open_fixture(&f);
        Value *value = errors[k].build(&f.l, f.x, f.y, f.i);
        cr_expect(!value, "%s", errors[k].name);
        cr_expect_str_eq(status_message(f.l.error), errors[k].message, "%s", errors[k].name);
        cr_expect_null(add(&f.l, f.x, f.y), "%s: nothing is built after an error", errors[k].name);
        close_fixture(&f);
    }
}

Test(build, large_constants_are_computed_where_they_are_used) {
    Fixture f;
    open_fixture(&f);
    const Dim *shape[] = {size(&f.l, 4096), size(&f.l, 4096)};
    Value *row = iota(&f.l, &shape[0], 1, 0, DT_I32);
    Value *mask = binary(&f.l, PRIM_LE, row, unsqueeze(&f.l, row, (const int[]){1}, 1));
    cr_expect(row->constant, "4096 numbers are stored");
    cr_expect(mask && !mask->constant, "16 million flags are not");
    Value *ones = expand(&f.l, number(&f.l, 1), shape, 2);
    cr_expect(ones && !ones->constant, "an expand does not become data");
    Value *zeros = constant(&f.l, tensor_new(f.l.arena, DT_I32, 1, (const int64_t[]){4096}));
    Value *all = binary(&f.l, PRIM_EQ, zeros, unsqueeze(&f.l, zeros, (const int[]){1}, 1));
    Text text = text_make(f.graph->arena);
    tell(&text, all);
    cr_expect_str_eq(text.data, "expand([[true]])", "what is the same throughout is computed once");
    cr_expect_eq(binary(&f.l, PRIM_AND, mask, all), mask, "and is known to change nothing");
    const Dim *rows[] = {size(&f.l, 1024), size(&f.l, 4)};
    for (int64_t n = 200; n <= 2048; n += 1848) {
        Tensor *places = tensor_new(f.l.arena, DT_I32, 2, (const int64_t[]){n, n});
        for (int64_t i = 0; i < n * n; i++) ((int32_t *)places->data)[i] = (int32_t)(i % 1024);
        Value *gathered = gather(&f.l, reshape(&f.l, row, rows, 2), constant(&f.l, places), 0);
        cr_expect(gathered && !gathered->constant == (n > 200), "what is gathered is stored, up to some megabytes");
    }
    close_fixture(&f);
}

Test(build, sizes_of_the_run_are_bound_once) {
    Fixture f;
    open_fixture(&f);
    int count, again_count;
    const Dim *const *sizes = sizes_of(&f.l, f.i, "n", &count), *const *again = sizes_of(&f.l, f.i, "n", &again_count);
    cr_assert(sizes && again && count == 3 && again_count == 3);
    for (int k = 0; k < 3; k++) cr_expect_eq(sizes[k], again[k]);
    cr_expect_str_eq(f.graph->last->op, "bind_sizes");
    cr_expect_eq(f.graph->node_count, 1);
    close_fixture(&f);
}

Test(build, random_streams_differ_and_seeds_repeat) {
    Fixture f;
    open_fixture(&f);
    const Dim *const *shape = (const Dim *const *)f.x->dims;
    Value *a = random_choices(&f.l, shape, 2, false, 0), *b = random_choices(&f.l, shape, 2, false, 0);
    Value *c = random_choices(&f.l, shape, 2, true, 7), *d = random_choices(&f.l, shape, 2, true, 7);
    cr_expect_neq(a, b, "nodes without a seed draw from streams of their own");
    cr_expect_eq(c, d, "nodes of one seed and shape draw the same");
    close_fixture(&f);
}
