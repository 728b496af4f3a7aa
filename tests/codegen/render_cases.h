/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that cover the IR: every instruction on every type, every schedule class, all tail sizes, random programs.
 * Who includes this says what becomes of each: `check` runs it with each of `sets` sets of `width` parameters, and
 * compares with the oracle; `finish` is called when a case needs its kernels no more. */
#ifndef ONNXFUSE_TESTS_RENDER_CASES_H
#define ONNXFUSE_TESTS_RENDER_CASES_H

#include <criterion/criterion.h>
#include "rounding.h"
#include "handmade.h"
#include "kernel_oracle.h"

#ifndef RANDOM_PROGRAMS
#define RANDOM_PROGRAMS 150
#endif

static void check(const Kernel *k, const int64_t *params, int sets, int width);
static void finish(Arena *arena);

static const DType types[] = {DT_F32, DT_F64, DT_I8, DT_U8, DT_I16, DT_U16, DT_I32, DT_U32, DT_I64, DT_U64};
enum { TYPES = sizeof types / sizeof *types, MOST_BUFFERS = 8 };

/* --- data --- */

static uint64_t random_state = 88172645463325252u;
static uint64_t random_bits(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}
static int random_below(int n) { return (int)(random_bits() % (uint64_t)n); }

static bool wild;     /* infinities, NaN, extremes, any bits */
static bool near_one; /* for products */

static double random_float(DType t) {
    static const double special[] = {0.0,   -0.0,  1,     -1,   0.5,   2.5,          -2.5,          1e30,  -1e30,
                                     1e-40, 65504, 65520, 3e-8, -7e-6, 2147483648.0, -2147483649.0, 255.5, 1e300};
    double small = (double)(int64_t)random_bits() * 0x1p-61;
    if (near_one) return 1 + small / 16;
    if (!wild) return small;
    switch (random_below(6)) {
    case 0: return special[random_below(sizeof special / sizeof *special)];
    case 1: return random_below(2) ? INFINITY : -INFINITY;
    case 2: return NAN;
    case 3: return ldexp(small, random_below(t == DT_F64 ? 600 : 60) - (t == DT_F64 ? 300 : 30));
    default: return small;
    }
}

static int64_t random_integer(DType t) {
    if (t == DT_BOOL) return random_below(2);
    switch (wild ? random_below(5) : 4) {
    case 0: return 0;
    case 1: return -1;
    case 2: return (int64_t)((uint64_t)1 << (8 * dtype_size(t) - 1));
    case 3: return (int64_t)random_bits();
    default: return random_below(23) - 11;
    }
}

static void fill(DType t, void *data, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (dtype_is_float(t))
            dtype_store_double(t, data, i, random_float(t));
        else
            dtype_store_int(t, data, i, wrap(t, random_integer(t)));
}

/* --- one kernel, one launch
 * ------------------------------------------------------------------------------------------- */

static int64_t extent_of(const Kernel *k, const KernelAccess *access, const int64_t *params) {
    int64_t last = access->offset_kind == STRIDE_PARAM   ? params[access->offset]
                   : access->offset_kind == STRIDE_CONST ? access->offset
                                                         : 0;
    for (int a = 0; a < k->axis_count; a++) {
        int64_t size = k->axes[a].param < 0 ? k->axes[a].size : params[k->axes[a].param], s = access->stride[a];
        int64_t step = access->kind[a] == STRIDE_PARAM   ? params[s]
                       : access->kind[a] == STRIDE_ONE   ? 1
                       : access->kind[a] == STRIDE_CONST ? s
                                                         : 0;
        if (size == 0 && access->kind[a] != STRIDE_ZERO) return 0;
        if (step > 0) last += (size - 1) * step;
    }
    return last + 1;
}

static bool same_float(double a, double b, double tolerance) {
    if (a != a || b != b) return a != a && b != b;
    return a == b || fabs(a - b) <= tolerance * (1 + fabs(b));
}

static double loosest; /* of float outputs; 0: exact */
/* Roundings of a reduction of a few hundred numbers, in an order of its own. */
enum { REDUCED = 256 };

static void compare_outputs(const Kernel *k, DType t, int b, const void *got, const void *want, int64_t count,
                            const char *what) {
    for (int64_t i = 0; i < count; i++) {
        bool same = dtype_is_float(t) ? same_float(dtype_load_double(t, got, i), dtype_load_double(t, want, i), loosest)
                                      : dtype_load_int(t, got, i) == dtype_load_int(t, want, i);
        if (same) continue;
        Arena *arena = arena_create(0);
        Text text = text_make(arena);
        kernel_print(&text, k);
        cr_assert(false, "%s: buffer %d of %s, element %lld of %lld: %.17g, expected %.17g\n%s", what, b, dtype_name(t),
                  (long long)i, (long long)count, dtype_load_double(t, got, i), dtype_load_double(t, want, i),
                  text.data);
    }
}

static int64_t tails[64]; /* 0 .. 52 and some larger ones */
static int fill_tails(void) {
    int n = 0;
    for (int64_t size = 0; size <= 50; size++) tails[n++] = size;
    static const int64_t more[] = {63, 64, 65, 100, 127, 128, 129, 192, 193, 257};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) tails[n++] = more[i];
    return n;
}

/* --- instructions
 * ----------------------------------------------------------------------------------------------------- */

static int arity_input(Maker *m, DType t, int64_t stride) { return load(m, buffer(m, t, false), STRIDES(m, stride)); }

static bool op_takes(KernelOp o, DType t) {
    bool real = dtype_is_float(t);
    if (o >= K_AND && o <= K_SHR) return !real;
    if (o == K_SQRT || o == K_FMA || (o >= K_FLOOR && o <= K_RINT)) return real;
    if (o == K_ROUND_F16 || o == K_ROUND_BF16) return t == DT_F32;
    return true;
}

static void check_op(KernelOp o, DType t) {
    Arena *arena = arena_create(0);
    Maker m = maker(arena, 128);
    axis(&m, AXIS_LANE, -1, 1);
    int args[3] = {0};
    for (int n = 0; n < kernel_op_args(o); n++) args[n] = arity_input(&m, t, 1);
    bool comparison_op = o >= K_EQ && o <= K_GE;
    int result = op(&m, o, comparison_op ? DT_BOOL : t, args[0], args[1], args[2]);
    store(&m, buffer(&m, comparison_op ? DT_BOOL : t, true), STRIDES(&m, 1), result);
    int64_t sizes[] = {1, 3, 16, 37, 300};
    wild = true;
    /* Without the hardware's, fma of f32 is rounded twice, of f64 at the product too. */
    loosest = o == K_FMA ? 1e-6 : 0;
    check(m.kernel, sizes, 5, 1);
    loosest = 0;
    finish(arena);
}

static void each_instruction_on_each_type(void) {
    for (KernelOp o = K_ADD; o <= K_ROUND_BF16; o++)
        for (int t = 0; t < TYPES; t++)
            if (o != K_SELECT && o != K_CAST && o != K_BITCAST && o != K_FMA && o != K_SCALE && op_takes(o, types[t]))
                check_op(o, types[t]);
}

/* Powers of two into what is subnormal and infinite. */
static void scaling(void) {
    for (int t = 0; t < 2; t++) {
        Arena *arena = arena_create(0);
        Maker m = maker(arena, 128);
        axis(&m, AXIS_LANE, -1, 1);
        DType real = types[t];
        int i = arity_input(&m, DT_I32, 1), x = arity_input(&m, real, 1);
        int low = op(&m, K_AND, DT_I32, i, inst(&m, (KernelInst){.op = K_CONST, .dtype = DT_I32, .bits = 255}), 0);
        int power = op(&m, K_CAST, real, low, 0, 0);
        power = op(&m, K_SUB, real, power, constant(&m, real, 128), 0);
        if (real == DT_F64) power = op(&m, K_MUL, real, power, constant(&m, real, 8), 0);
        int positive = op(&m, K_GT, DT_BOOL, x, constant(&m, real, 0), 0);
        int a = op(&m, K_SELECT, real, positive, constant(&m, real, 3.3), constant(&m, real, -0.7));
        a = op(&m, K_SELECT, real, op(&m, K_NE, DT_BOOL, x, x, 0), x, a);
        store(&m, buffer(&m, real, true), STRIDES(&m, 1), op(&m, K_SCALE, real, a, power, 0));
        int down = op(&m, K_MIN, real, power, constant(&m, real, 0), 0);
        KernelInst scaled = {.op = K_SCALE, .dtype = real, .args = {a, down}, .bits = 1};
        store(&m, buffer(&m, real, true), STRIDES(&m, 1), inst(&m, scaled));
        int64_t sizes[] = {1, 3, 8, 16, 37, 300};
        wild = true;
        check(m.kernel, sizes, 6, 1);
        finish(arena);
    }
}

static void fused_multiply_add_rounds_once_where_the_hardware_does(void) {
    wild = false;
    for (int t = 0; t < 2; t++) {
        Arena *arena = arena_create(0);
        Maker m = maker(arena, 128);
        axis(&m, AXIS_LANE, -1, 1);
        int a = arity_input(&m, types[t], 1), b = arity_input(&m, types[t], 1), c = arity_input(&m, types[t], 1);
        store(&m, buffer(&m, types[t], true), STRIDES(&m, 1), op(&m, K_FMA, types[t], a, b, c));
        int64_t size = 100;
        loosest = types[t] == DT_F32 ? 1e-7 : 1e-15;
        check(m.kernel, &size, 1, 1);
        loosest = 0;
        finish(arena);
    }
}

static void casts_between_all_types(void) {
    for (int from = -1; from < TYPES; from++)
        for (int to = -1; to < TYPES; to++) {
            DType a = from < 0 ? DT_BOOL : types[from], b = to < 0 ? DT_BOOL : types[to];
            Arena *arena = arena_create(0);
            Maker m = maker(arena, 128);
            axis(&m, AXIS_LANE, -1, 1);
            int x = arity_input(&m, a, 1);
            store(&m, buffer(&m, b, true), STRIDES(&m, 1), op(&m, K_CAST, b, x, 0, 0));
            if (a != DT_BOOL && b != DT_BOOL && dtype_size(a) == dtype_size(b))
                store(&m, buffer(&m, b, true), STRIDES(&m, 1), op(&m, K_BITCAST, b, x, 0, 0));
            int64_t sizes[] = {1, 17, 150};
            wild = true;
            check(m.kernel, sizes, 3, 1);
            finish(arena);
        }
}

static void divisors_and_distances_that_are_constants(void) {
    static const int64_t values[] = {0, 1, -1, 3, 7, 8, -8, 31, 64};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
        for (int t = 2; t < TYPES; t++) {
            Arena *arena = arena_create(0);
            Maker m = maker(arena, 128);
            axis(&m, AXIS_LANE, -1, 1);
            int x = arity_input(&m, types[t], 1);
            int c = inst(&m, (KernelInst){.op = K_CONST, .dtype = types[t], .bits = wrap(types[t], values[v])});
            static const KernelOp all[] = {K_DIV, K_REM, K_SHL, K_SHR};
            for (int o = 0; o < 4; o++)
                store(&m, buffer(&m, types[t], true), STRIDES(&m, 1), op(&m, all[o], types[t], x, c, 0));
            int64_t size = 70;
            wild = true;
            check(m.kernel, &size, 1, 1);
            finish(arena);
        }
}

/* --- pointwise
 * --------------------------------------------------------------------------------------------------------- */

static void pointwise_tails_and_broadcasts(void) {
    static const DType memory[] = {DT_F32, DT_F16, DT_BF16, DT_F64};
    int count = fill_tails();
    for (int t = 0; t < 4; t++) {
        Arena *arena = arena_create(0);
        Maker m = maker(arena, 64);
        axis(&m, AXIS_TASK, 3, 1);
        axis(&m, AXIS_LANE, -1, 1);
        DType compute = memory[t] == DT_F64 ? DT_F64 : DT_F32;
        int x = load(&m, buffer(&m, memory[t], false), STRIDES(&m, -1, 1)),
            row = load(&m, buffer(&m, memory[t], false), STRIDES(&m, 1, 0));
        int line = load(&m, buffer(&m, memory[t], false), STRIDES(&m, 0, 1)),
            two = load(&m, buffer(&m, memory[t], false), STRIDES(&m, 0, 2));
        int one = load(&m, buffer(&m, memory[t], false), STRIDES(&m, 0, 0));
        int y = op(&m, K_ADD, compute, op(&m, K_MUL, compute, op(&m, K_MUL, compute, x, row, 0), line, 0),
                   op(&m, K_MUL, compute, two, one, 0), 0);
        int index = op(&m, K_CAST, compute, inst(&m, (KernelInst){.op = K_INDEX, .dtype = DT_I64, .axis = 1}), 0, 0);
        store(&m, buffer(&m, memory[t], true), STRIDES(&m, -1, 1), op(&m, K_ADD, compute, y, index, 0));
        store(&m, buffer(&m, DT_BOOL, true), STRIDES(&m, -1, 1), op(&m, K_LT, DT_BOOL, x, line, 0));
        store(&m, buffer(&m, memory[t], true), STRIDES(&m, 1, 16), op(&m, K_NEG, compute, x, 0, 0));
        wild = false;
        check(m.kernel, tails, count, 1);
        finish(arena);
    }
}

static void pointwise_of_constant_sizes(void) {
    for (int64_t size = 1; size <= 70; size += size < 34 ? 1 : 7)
        for (int bytes = 0; bytes < 2; bytes++) {
            Arena *arena = arena_create(0);
            Maker m = maker(arena, 256);
            DType t = bytes ? DT_U8 : DT_F32;
            axis(&m, AXIS_TASK, -1, 1);
            axis(&m, AXIS_TASK, 2, 1);
            axis(&m, AXIS_LANE, size, 1);
            KernelAccess at = STRIDES(&m, 2 * size, size, 1);
            int x = load(&m, buffer(&m, t, false), at), c = load(&m, buffer(&m, t, false), STRIDES(&m, 0, 1, 0));
            store(&m, buffer(&m, t, true), at, op(&m, K_ADD, t, x, c, 0));
            int64_t rows = 5;
            wild = false;
            check(m.kernel, &rows, 1, 1);
            finish(arena);
        }
}

static void large_programs_use_one_masked_loop(void) {
    Arena *arena = arena_create(0);
    Maker m = maker(arena, 64);
    axis(&m, AXIS_LANE, -1, 1);
    int x = arity_input(&m, DT_F32, 1), y = x;
    for (int n = 0; n < 80; n++) y = op(&m, n % 3 ? K_ADD : K_MUL, DT_F32, y, n % 5 ? x : constant(&m, DT_F32, 0.5), 0);
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1), y);
    wild = false;
    int count = fill_tails();
    check(m.kernel, tails, count, 1);
    finish(arena);
}

/* --- reductions
 * -------------------------------------------------------------------------------------------------------- */

static void check_inner(KernelOp o, DType t, int64_t row_size, bool last) {
    Arena *arena = arena_create(0);
    Maker m = maker(arena, 0);
    axis(&m, AXIS_TASK, 3, 1);
    axis(&m, AXIS_REDUCE, 2, 1);
    axis(&m, AXIS_REDUCE_LANE, row_size, 1);
    int x = row_size < 0 ? load(&m, buffer(&m, t, false), STRIDES(&m, -2, -1, 1))
                         : load(&m, buffer(&m, t, false), STRIDES(&m, 2 * row_size, row_size, 1));
    DType to = o >= K_REDUCE_ARGMAX ? DT_I64 : t;
    int result = inst(&m, (KernelInst){.op = o, .dtype = to, .args = {x}, .bits = last});
    store(&m, buffer(&m, to, true), STRIDES(&m, 1, 0, 0), result);
    int64_t params[64][2];
    int count = row_size < 0 ? fill_tails() : 1;
    for (int i = 0; i < count; i++) params[i][0] = tails[i], params[i][1] = 2 * tails[i];
    wild = o >= K_REDUCE_MAX;
    near_one = o == K_REDUCE_PROD;
    loosest = o < K_REDUCE_MAX && dtype_is_float(t) ? REDUCED * rounding_unit(t) : 0;
    check(m.kernel, params[0], count, 2);
    loosest = near_one = 0;
    finish(arena);
}

static void inner_reductions_of_each_type_and_tail(void) {
    for (KernelOp o = K_REDUCE_SUM; o <= K_REDUCE_ARGMIN; o++)
        for (int t = 0; t < TYPES; t++) check_inner(o, types[t], -1, t & 1);
}

static void inner_reductions_of_constant_rows(void) {
    for (int64_t size = 1; size <= 80; size += size < 34 ? 3 : 9) {
        check_inner(K_REDUCE_SUM, DT_F32, size, false);
        check_inner(K_REDUCE_MAX, DT_F32, size, false);
        check_inner(K_REDUCE_ARGMIN, DT_F32, size, true);
    }
}

static void check_outer(KernelOp o, DType t, int64_t columns, int block) {
    Arena *arena = arena_create(0);
    Maker m = maker(arena, block);
    axis(&m, AXIS_TASK, 2, 1);
    axis(&m, AXIS_LANE, columns, 1);
    axis(&m, AXIS_REDUCE, -2, 1);
    axis(&m, AXIS_REDUCE, 3, 1);
    int x = columns < 0 ? load(&m, buffer(&m, t, false), STRIDES(&m, -4, 1, -3, -1))
                        : load(&m, buffer(&m, t, false), STRIDES(&m, -4, 1, 3 * columns, columns));
    DType to = o >= K_REDUCE_ARGMAX ? DT_I64 : t;
    int result = inst(&m, (KernelInst){.op = o, .dtype = to, .args = {x}, .bits = t == DT_F64});
    store(&m, buffer(&m, to, true), columns < 0 ? STRIDES(&m, -1, 1, 0, 0) : STRIDES(&m, columns, 1, 0, 0), result);
    int64_t params[64][4];
    int count = fill_tails();
    for (int i = 0; i < count; i++) {
        int64_t c = columns < 0 ? tails[i] : columns, rows = columns < 0 ? i % 5 : tails[i % 12];
        params[i][0] = c, params[i][1] = rows, params[i][2] = 3 * c, params[i][3] = 3 * c * rows;
    }
    m.kernel->param_count = 4;
    wild = o >= K_REDUCE_MAX;
    near_one = o == K_REDUCE_PROD;
    loosest = o < K_REDUCE_MAX && dtype_is_float(t) ? REDUCED * rounding_unit(t) : 0;
    check(m.kernel, params[0], count, 4);
    loosest = near_one = 0;
    finish(arena);
}

static void outer_reductions_of_each_type_and_tail(void) {
    for (KernelOp o = K_REDUCE_SUM; o <= K_REDUCE_ARGMIN; o++)
        for (int t = 0; t < TYPES; t++) check_outer(o, types[t], -1, t & 1 ? 64 : 256);
}

static void outer_reductions_of_constant_columns(void) {
    for (int64_t size = 1; size <= 70; size += size < 20 ? 4 : 12) check_outer(K_REDUCE_SUM, DT_F32, size, 128);
}

/* Softmax-like: two reductions, the second over what the first feeds, a kept value; in both orders of axes. */
static void check_stages(bool outer, bool kept, DType memory) {
    Arena *arena = arena_create(0);
    Maker m = maker(arena, outer ? 64 : 0);
    axis(&m, AXIS_TASK, 3, 1);
    if (outer) axis(&m, AXIS_LANE, -1, 1);
    axis(&m, AXIS_REDUCE, 5, 1);
    if (!outer) axis(&m, AXIS_REDUCE_LANE, -1, 1);
    KernelAccess at = outer ? STRIDES(&m, -2, 1, -1) : STRIDES(&m, -2, -1, 1),
                 line = outer ? STRIDES(&m, 0, 1, 0) : STRIDES(&m, 0, 0, 1);
    KernelAccess row = outer ? STRIDES(&m, -1, 1, 0) : STRIDES(&m, 1, 0, 0);
    int x = load(&m, buffer(&m, memory, false), at), scale = load(&m, buffer(&m, memory, false), line);
    int y = op(&m, K_MUL, DT_F32, x, scale, 0), flag = op(&m, K_LT, DT_BOOL, x, scale, 0);
    if (kept) {
        keep(&m, y);
        keep(&m, flag);
    }
    int most = op(&m, K_REDUCE_MAX, DT_F32, y, 0, 0), d = op(&m, K_SUB, DT_F32, y, most, 0);
    int e = op(&m, K_DIV, DT_F32, constant(&m, DT_F32, 1), op(&m, K_FMA, DT_F32, d, d, constant(&m, DT_F32, 1)), 0);
    if (kept) keep(&m, e);
    int sum = op(&m, K_REDUCE_SUM, DT_F32, e, 0, 0),
        squares = op(&m, K_REDUCE_SUM, DT_F32, op(&m, K_MUL, DT_F32, e, d, 0), 0, 0);
    int result =
        op(&m, K_SELECT, DT_F32, flag, op(&m, K_DIV, DT_F32, e, sum, 0), op(&m, K_ADD, DT_F32, squares, most, 0));
    store(&m, buffer(&m, memory, true), at, result);
    store(&m, buffer(&m, DT_F32, true), row, op(&m, K_ADD, DT_F32, most, sum, 0));
    int64_t params[64][2];
    int count = fill_tails();
    for (int i = 0; i < count; i++) params[i][0] = tails[i], params[i][1] = 5 * tails[i];
    wild = false;
    loosest = (memory == DT_F32 ? 64 : 2) * rounding_unit(memory);
    check(m.kernel, params[0], count, 2);
    loosest = 0;
    finish(arena);
}

static void reductions_in_stages(void) {
    for (int n = 0; n < 4; n++) {
        check_stages(n & 1, n & 2, DT_F32);
        check_stages(n & 1, n & 2, DT_BF16);
        check_stages(n & 1, n & 2, DT_F16);
    }
}

/* --- tiles
 * ------------------------------------------------------------------------------------------------------------- */

/* Tiles of `rows` by `lanes`; `loads` of them are turned. */
static void check_tiles_of(DType t, DType turned, int loads, bool large, int rows, int lanes, const int64_t *sizes,
                           int size_count) {
    enum { MOST = 13 };
    Arena *arena = arena_create(0);
    Maker m = maker(arena, lanes);
    m.kernel->tile_block = rows;
    axis(&m, AXIS_TASK, 2, 1);
    m.kernel->tile_axis = axis(&m, AXIS_TASK, -1, 1);
    axis(&m, AXIS_LANE, -2, 1);
    DType compute = t == DT_F16 || t == DT_BF16 ? DT_F32 : t;
    int b = load(&m, buffer(&m, t, false), STRIDES(&m, -3, -2, 1)), a = b;
    for (int n = 0; n < loads; n++) {
        a = load(&m, buffer(&m, turned, false), STRIDES(&m, -3, 1, -1));
        if (turned != t) a = op(&m, K_CAST, compute, a, 0, 0);
        b = op(&m, K_ADD, compute, a, b, 0);
    }
    int line = load(&m, buffer(&m, t, false), STRIDES(&m, 0, 0, 1)),
        row = load(&m, buffer(&m, t, false), STRIDES(&m, 0, 1, 0));
    int y = op(&m, K_ADD, compute, b, op(&m, K_ADD, compute, line, row, 0), 0);
    for (int n = 0; large && n < 30; n++) y = op(&m, K_ADD, compute, y, a, 0);
    store(&m, buffer(&m, t, true), STRIDES(&m, -3, -2, 1), y);
    int64_t params[MOST * MOST][3];
    int count = 0;
    for (int i = 0; i < size_count; i++)
        for (int j = 0; j < size_count; j++) {
            params[count][0] = sizes[i], params[count][1] = sizes[j], params[count++][2] = sizes[i] * sizes[j];
        }
    wild = false;
    check(m.kernel, params[0], count, 3);
    finish(arena);
}

static void check_tiles(DType t, DType turned, bool large) {
    static const int64_t sizes[] = {0, 1, 3, 8, 15, 16, 17, 32, 33, 48, 64, 65, 100};
    check_tiles_of(t, turned, 1, large, 32, 64, sizes, 13);
}

static void tiles_of_each_size_of_element(void) {
    static const DType all[] = {DT_F32, DT_U8, DT_F16, DT_I16, DT_F64};
    for (int t = 0; t < 5; t++) {
        check_tiles(all[t], all[t], false);
        check_tiles(all[t], all[t], true);
    }
}

static void tiles_of_elements_of_two_sizes(void) {
    static const DType turned[] = {DT_BOOL, DT_U8, DT_I16, DT_F16, DT_F64};
    for (int t = 0; t < 5; t++) {
        check_tiles(DT_F32, turned[t], false);
        check_tiles(DT_F64, turned[t], false);
    }
}

/* --- random programs
 * --------------------------------------------------------------------------------------------------- */

static int random_value(Maker *m, DType t, int *values, int count) {
    int first = random_below(count);
    for (int n = 0; n < count; n++) {
        int v = values[(first + n) % count];
        if (m->kernel->insts.items[v].dtype == t) return v;
    }
    return op(m, K_CAST, t, values[first], 0, 0);
}

static void check_random(void) {
    static const KernelOp safe[] = {K_ADD, K_SUB,    K_MUL,  K_MIN, K_MAX, K_NEG, K_ABS, K_EQ, K_LT,
                                    K_GE,  K_SELECT, K_CAST, K_AND, K_XOR, K_SHR, K_DIV, K_REM};
    Arena *arena = arena_create(0);
    Maker m = maker(arena, 16 << random_below(4));
    int class = random_below(3), values[64], count = 0;
    if (class == 1) m.kernel->lane_block = 0;
    axis(&m, AXIS_TASK, 2, 1);
    axis(&m, class == 1 ? AXIS_REDUCE : AXIS_LANE, class == 1 ? 3 : -1, 1);
    if (class) axis(&m, class == 1 ? AXIS_REDUCE_LANE : AXIS_REDUCE, class == 1 ? -1 : 3, 1);
    KernelAccess at[] = {class == 1 ? STRIDES(&m, -2, -1, 1) : STRIDES(&m, -2, 1, -1),
                         class == 1 ? STRIDES(&m, 0, 0, 1) : STRIDES(&m, 0, 1, 0), STRIDES(&m, 1, 0, 0)};
    if (class == 0) at[0] = STRIDES(&m, -1, 1);
    for (int n = 0; n < 4; n++)
        values[count++] =
            load(&m, buffer(&m, n == 3 ? DT_BOOL : types[random_below(TYPES)], false), at[random_below(3)]);
    for (int n = 0; n < 20; n++) {
        KernelOp o = safe[random_below(sizeof safe / sizeof *safe)];
        DType t = types[2 + random_below(TYPES - 2)]; /* integers: exact in any order */
        if (o == K_CAST) {
            int from = values[random_below(count)];
            values[count++] = op(&m, o, t, from, 0, 0);
            continue;
        }
        int a = random_value(&m, t, values, count), b = random_value(&m, t, values, count);
        bool comparison_op = o == K_EQ || o == K_LT || o == K_GE;
        int condition = o == K_SELECT ? random_value(&m, DT_BOOL, values, count) : 0;
        int made_now = o == K_SELECT ? op(&m, o, t, condition, a, b) : op(&m, o, comparison_op ? DT_BOOL : t, a, b, 0);
        values[count++] = made_now;
        if (class && random_below(6) == 0)
            values[count++] = op(&m, K_REDUCE_SUM + (KernelOp)random_below(4), t, a, 0, 0);
        const KernelInst *made = &m.kernel->insts.items[values[count - 1]];
        if (class && made->axes == 7 && random_below(4) == 0) keep(&m, values[count - 1]);
    }
    for (int n = 0; n < 3; n++) {
        int v = values[count - 1 - n];
        store(&m, buffer(&m, m.kernel->insts.items[v].dtype, true), at[0], v);
    }
    int64_t params[16][2];
    for (int i = 0; i < 16; i++) {
        int64_t size = i < 8 ? i * 7 : random_below(200), inner = class == 1 ? 3 * size : class == 2 ? 3 * size : size;
        params[i][0] = size, params[i][1] = inner;
    }
    m.kernel->param_count = 2;
    wild = true;
    check(m.kernel, params[0], 16, 2);
    finish(arena);
}

static void random_programs(void) {
    for (int n = 0; n < RANDOM_PROGRAMS; n++) check_random();
}

#endif
