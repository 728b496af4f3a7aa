/* SPDX-License-Identifier: Apache-2.0 */
/* Rendered kernels against the interpreter: every instruction on every type, every schedule class, all tail sizes, at
 * each CPU level that this machine runs. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/plugin.h"
#include "codegen/object.h"
#include "codegen/llvm_plugin.h"
#include "codegen/native/native.h"
#include "../base/share.h"
#include "render_cases.h"

static const char *const levels[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"};
enum { LEVELS = sizeof levels / sizeof *levels, CANARY = 64 };

static const LlvmPlugin *plugin(void) {
    static const LlvmPlugin *found;
    if (found) return found;
    char path[4096] = "", *slash = path;
    cr_assert(readlink("/proc/self/exe", path, sizeof path - sizeof LLVM_PLUGIN_FILE - 1) > 0 &&
              (slash = strrchr(path, '/')));
    strcpy(slash + 1, LLVM_PLUGIN_FILE);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(library, "%s", dlerror());
    found = ((PluginEntry)(uintptr_t)dlsym(library, LLVM_PLUGIN_ENTRY))();
    return found;
}

static bool same_bits(DType t, const char *a, const char *b, int64_t element) {
    size_t size = dtype_size(t);
    if (memcmp(a + (size_t)element * size, b + (size_t)element * size, size) == 0) return true;
    double x = dtype_is_float(t) ? dtype_load_double(t, a, element) : 0,
           y = dtype_is_float(t) ? dtype_load_double(t, b, element) : 0;
    return x != x && y != y; /* which NaN of several goes on is nobody's promise */
}

/* Kernels are compiled as though no output stayed in the caches, and buffers begin with lines, apart from each other in their pages. */
static bool past_the_caches;

static char *buffer_memory(Arena *arena, int number, size_t bytes, size_t shift) {
    enum { PAGE = 4096, LINE = 64, LINES_APART = 17 };
    if (!past_the_caches) return (char *)arena_alloc(arena, bytes + CANARY + shift + 64) + shift;
    size_t place = (size_t)number * LINES_APART * LINE;
    char *memory = arena_alloc(arena, bytes + CANARY + place + PAGE);
    return memory + (-(uintptr_t)memory & (PAGE - 1)) + place;
}

/* twin: NULL, or the same kernel by another generator, whose results have the same bits. */
static void launch(const Kernel *k, KernelFunction function, KernelFunction twin, const int64_t *params,
                   const char *level) {
    Arena *arena = arena_create(0);
    char *got[MOST_BUFFERS], *want[MOST_BUFFERS], *also[MOST_BUFFERS];
    int64_t count[MOST_BUFFERS] = {0};
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *inst = &k->insts.items[i];
        if (inst->op != K_LOAD && inst->op != K_STORE) continue;
        int64_t extent = extent_of(k, inst->access, params);
        if (extent > count[inst->buffer]) count[inst->buffer] = extent;
    }
    for (int b = 0; b < k->buffers.count; b++) {
        size_t element = dtype_size(k->buffers.items[b].dtype), bytes = (size_t)count[b] * element;
        size_t shift = element * (size_t)random_below(4); /* no alignment beyond the element's */
        got[b] = buffer_memory(arena, b, bytes, shift);
        want[b] = buffer_memory(arena, b, bytes, shift);
        also[b] = buffer_memory(arena, b, bytes, shift);
        memset(got[b], 0x5a, bytes + CANARY);
        memset(also[b], 0x5a, bytes + CANARY);
        memset(want[b], 0x5a, bytes + CANARY);
        if (k->buffers.items[b].output) continue;
        fill(k->buffers.items[b].dtype, got[b], count[b]);
        memcpy(want[b], got[b], bytes);
        memcpy(also[b], got[b], bytes);
    }
    kernel_oracle(arena, k, (void **)want, params);
    size_t scratch_bytes = kernel_scratch_bytes(k, params);
    unsigned char *scratch = arena_alloc(arena, scratch_bytes + 64 + CANARY);
    memset(scratch, 0xa5, scratch_bytes + CANARY);
    int64_t bands = kernel_band_tasks(k, params), tasks = kernel_tasks(k, params);
    int64_t within = bands ? random_below((int)bands + 1) : 0,
            middle = bands + (tasks ? random_below((int)tasks + 1) : 0);
    function((void **)got, params, within, bands, scratch);
    function((void **)got, params, 0, within, scratch);
    function((void **)got, params, middle, bands + tasks, scratch);
    function((void **)got, params, bands, middle, scratch);
    if (twin) {
        twin((void **)also, params, 0, bands, scratch);
        twin((void **)also, params, bands, bands + tasks, scratch);
    }
    for (int b = 0; b < k->buffers.count; b++) {
        DType t = k->buffers.items[b].dtype;
        for (int64_t i = 0; twin && k->buffers.items[b].output && i < count[b]; i++)
            cr_assert(same_bits(t, got[b], also[b], i),
                      "buffer %d, element %lld of %lld: %.17g, by the other generator %.17g\n%s", b, (long long)i,
                      (long long)count[b], dtype_load_double(t, got[b], i), dtype_load_double(t, also[b], i),
                      kernel_text(arena, k));
        if (k->buffers.items[b].output) compare_outputs(k, t, b, got[b], want[b], count[b], level);
        for (int i = 0; i < CANARY; i++)
            cr_assert(got[b][(size_t)count[b] * dtype_size(t) + (size_t)i] == 0x5a, "%s: written beyond buffer %d",
                      level, b);
    }
    for (int i = 0; i < CANARY; i++)
        cr_assert(scratch[scratch_bytes + (size_t)i] == 0xa5, "%s: written beyond the scratch", level);
    arena_destroy(arena);
}

/* The generator of our own at this machine's level; NULL where it leaves the kernel to LLVM. */
static KernelFunction load_native(const Kernel *k, const Target *target, ObjectCode *out_code) {
    void *object;
    size_t size;
    const char *reason;
    KernelFunction function = NULL;
    Status status = native_compile(k, target, NULL, &object, &size, &reason);
    cr_assert(!status, "%s", status_message(status));
    if (!object) return NULL;
    status = object_load(object, size, KERNEL_SYMBOL, out_code);
    cr_assert(!status, "native: %s", status_message(status));
    memcpy(&function, &out_code->function, sizeof function);
    free(object);
    return function;
}

/* Compiles at every level (of a share of them: base/share.h) and runs with each set of parameters, `width` of them each. What is drawn
 * for a level, and for later kernels, does not depend on which others are taken. */
static void check(const Kernel *k, const int64_t *params, int sets, int width) {
    Status bad = kernel_verify(k);
    cr_assert(!bad, "%s", status_message(bad));
    static unsigned long kernels;
    unsigned long number = kernels++;
    uint64_t drawn = random_state;
    Arena *arena = arena_create(0);
    for (int l = 0; l < LEVELS; l++) {
        if (!share_pair(number, (unsigned long)l)) continue;
        random_state =
            drawn + (uint64_t)(l + 1) * 0x9e3779b97f4a7c15u; /* 2^64 by the golden ratio: apart from the others */
        Target target = {.level = levels[l]};
        void *object;
        size_t size;
        ObjectCode code, own = {0};
        Status no = target_resolve(arena, &target);
        status_free(no);
        if (no) continue;
        if (past_the_caches) target.cache_bytes = 2;
        Status status = plugin()->compile(k, &target, &object, &size);
        if (!status) status = object_load(object, size, KERNEL_SYMBOL, &code);
        cr_assert(!status, "%s: %s", levels[l], status_message(status));
        KernelFunction function, native = load_native(k, &target, &own);
        memcpy(&function, &code.function, sizeof function);
        for (int s = 0; s < sets; s++) {
            const int64_t *own_params = params + (ptrdiff_t)s * width;
            launch(k, function, NULL, own_params, levels[l]);
            uint64_t state = random_state; /* the inputs of what follows do not depend on what is taken here */
            if (native) launch(k, native, function, own_params, "native");
            random_state = state;
        }
        object_unload(&code);
        object_unload(&own);
        free(object);
    }
    random_state = drawn;
    random_bits();
    arena_destroy(arena);
}

static void finish(Arena *arena) { arena_destroy(arena); }

/* --- bands: on CPUs alone
 * --------------------------------------------------------------------------------------------------------- */

/* Two reductions of one axis in bands of 4 rows, a value that varies along columns alone, a store of each row. */
static void check_bands(KernelOp o, DType t, int64_t columns, int block) {
    Arena *arena = arena_create(0);
    Maker m = maker(arena, block);
    m.kernel->band = 4;
    axis(&m, AXIS_TASK, 2, 1);
    axis(&m, AXIS_LANE, columns, 1);
    axis(&m, AXIS_REDUCE, -2, 1);
    KernelAccess at = columns < 0 ? STRIDES(&m, -3, 1, -1) : STRIDES(&m, -3, 1, columns);
    KernelAccess line = columns < 0 ? STRIDES(&m, -1, 1, 0) : STRIDES(&m, columns, 1, 0);
    int x = load(&m, buffer(&m, t, false), at), bias = load(&m, buffer(&m, t, false), line);
    int y = op(&m, K_SUB, t, x, bias, 0), first = inst(&m, (KernelInst){.op = o, .dtype = t, .args = {x}});
    int second = op(&m, o == K_REDUCE_PROD ? K_REDUCE_PROD : K_REDUCE_MAX, t, o == K_REDUCE_PROD ? x : y, 0, 0);
    store(&m, buffer(&m, t, true), at, y);
    store(&m, buffer(&m, t, true), line, op(&m, K_MIN, t, first, bias, 0));
    store(&m, buffer(&m, t, true), line, second);
    static const int64_t wide[] = {343, 600, 1100}; /* passes of 3, 2 and 1 rows; several blocks of a band */
    int64_t params[64][3];
    int narrow = fill_tails(), count = narrow + 3;
    for (int i = 0; i < count; i++) {
        int64_t c = columns >= 0 ? columns : i < narrow ? tails[i] : wide[i - narrow], rows = i % 23;
        params[i][0] = c, params[i][1] = rows, params[i][2] = c * rows;
    }
    m.kernel->param_count = 3;
    wild = o >= K_REDUCE_MAX;
    near_one = o == K_REDUCE_PROD;
    loosest = o < K_REDUCE_MAX && dtype_is_float(t) ? REDUCED * rounding_unit(t) : 0;
    check(m.kernel, params[0], count, 3);
    loosest = near_one = 0;
    finish(arena);
}

static void outer_reductions_in_bands(void) {
    for (KernelOp o = K_REDUCE_SUM; o <= K_REDUCE_MIN; o++)
        for (int t = 0; t < TYPES; t++) check_bands(o, types[t], -1, t & 1 ? 64 : 16);
    for (int64_t size = 1; size <= 70; size += size < 20 ? 4 : 12) check_bands(K_REDUCE_SUM, DT_F32, size, 128);
}

/* --- sums of columns beside reductions of rows: on CPUs alone
 * --------------------------------------------------------------------------------------------------------- */

/* Rows of two axes: their maxima, their elements without these, sums of the columns of both stages; turned: the columns of the first
 * as another order of their axes has them. */
static void check_columns(DType t, DType stored, int64_t columns, bool turned) {
    Arena *arena = arena_create(0);
    Maker m = maker(arena, 0);
    m.kernel->band = 20;
    axis(&m, AXIS_TASK, -2, 1);
    axis(&m, AXIS_REDUCE, 3, 1);
    axis(&m, AXIS_REDUCE_LANE, columns, 1);
    KernelAccess at = columns < 0 ? STRIDES(&m, -3, -1, 1) : STRIDES(&m, 3 * columns, columns, 1);
    KernelAccess line = columns < 0 ? STRIDES(&m, 0, -1, 1) : STRIDES(&m, 0, columns, 1);
    KernelAccess other = STRIDES(&m, 0, 1, 3);
    int x = load(&m, buffer(&m, t, false), at), bias = load(&m, buffer(&m, stored, false), line);
    int product = op(&m, K_MUL, computed(t), x, bias, 0), most = op(&m, K_REDUCE_MAX, computed(t), product, 0, 0);
    int y = op(&m, K_SUB, computed(t), product, most, 0);
    keep(&m, product);
    store(&m, buffer(&m, t, true), at, y);
    store(&m, buffer(&m, t, true), STRIDES(&m, 1, 0, 0), most);
    store(&m, buffer(&m, stored, true), turned ? other : line, x);
    m.kernel->insts.items[m.kernel->insts.count - 1].bits = 1;
    store(&m, buffer(&m, stored, true), line, y);
    m.kernel->insts.items[m.kernel->insts.count - 1].bits = 1;
    static const int64_t sizes[] = {0,  1,  2,  3,  5,  8,   13,
                                    16, 21, 32, 47, 64, 100, 343}; /* 256 of three axes are a task */
    static const int64_t heights[] = {0, 1, 15, 17, 33}; /* bands of the least height; of more, of the most: */
    enum { SETS = sizeof sizes / sizeof *sizes, HIGHER = KERNEL_BANDS * 18, MOST = KERNEL_BANDS * 21 };
    int64_t params[SETS][3];
    for (int i = 0; i < SETS; i++) {
        int64_t c = columns >= 0 ? columns : sizes[i], rows = heights[i % 5];
        if (columns < 0 && (i == 3 || i == 4)) rows = i == 3 ? HIGHER : MOST;
        params[i][0] = c, params[i][1] = rows, params[i][2] = 3 * c;
    }
    m.kernel->param_count = 3;
    /* of thousands of terms up to 20 that may come to nothing; a term that is missing shows */
    loosest = 16 * REDUCED * rounding_unit(computed(t)) + 2 * rounding_unit(stored);
    check(m.kernel, params[0], columns < 0 ? SETS : 5, 3);
    loosest = 0;
    finish(arena);
}

static void columns_beside_rows(void) {
    static const DType stored[][2] = {{DT_F32, DT_F32}, {DT_F64, DT_F64}, {DT_F32, DT_F16}, {DT_BF16, DT_BF16}};
    for (int i = 0; i < 4; i++)
        for (int turned = 0; turned < 2; turned++) check_columns(stored[i][0], stored[i][1], -1, turned);
    for (int64_t size = 1; size <= 70; size += size < 20 ? 4 : 12) check_columns(DT_F32, DT_F32, size, false);
}

/* --- rows divided by one number: to the bit as divide.h says, on CPUs alone
 * --------------------------------------------------------------------------------------------------------- */

static void check_row_division(bool special, bool outer) {
    Arena *arena = arena_create(0);
    Maker m = maker(arena, 64);
    axis(&m, AXIS_TASK, 5, 1);
    axis(&m, AXIS_LANE, -1, 1);
    if (outer) axis(&m, AXIS_REDUCE, 3, 1);
    KernelAccess at = outer ? STRIDES(&m, -2, 1, -1) : STRIDES(&m, -1, 1), row = STRIDES(&m, 1, 0, 0);
    if (outer) row = STRIDES(&m, -1, 1, 0);
    int x = load(&m, buffer(&m, DT_F32, false), at), by = load(&m, buffer(&m, DT_F32, false), row);
    if (!special) by = op(&m, K_MAX, DT_F32, op(&m, K_ABS, DT_F32, by, 0, 0), constant(&m, DT_F32, 0.01), 0);
    KernelInst divide = {.op = K_DIV, .dtype = DT_F32, .args = {x, by}, .bits = 1};
    store(&m, buffer(&m, DT_F32, true), at, inst(&m, divide));
    divide.args[1] = constant(&m, DT_F32, 1.41421356);
    store(&m, buffer(&m, DT_F32, true), at, inst(&m, divide));
    int64_t params[64][2];
    int count = fill_tails();
    for (int i = 0; i < count; i++) params[i][0] = tails[i], params[i][1] = 3 * tails[i];
    wild = special;
    loosest = special ? 1e-5 : 0; /* of subnormal results, which fma in two roundings may miss by one unit */
    check(m.kernel, params[0], count, 2);
    loosest = 0;
    finish(arena);
}

static void rows_divided_by_one_number(void) {
    for (int n = 0; n < 4; n++) check_row_division(n & 1, n & 2);
}

/* --- parameters that are numbers --- */

static int number(Maker *m, DType t) {
    return inst(m, (KernelInst){.op = K_PARAM, .dtype = t, .bits = m->kernel->param_count++});
}

/* In vectors and in rows: bytes less a zero point, times a scale, divided by another, and integers times a factor. */
static void check_numbers(bool rows) {
    Arena *arena = arena_create(0);
    Maker m = maker(arena, rows ? 0 : 64);
    if (rows) axis(&m, AXIS_TASK, 3, 1);
    axis(&m, rows ? AXIS_REDUCE_LANE : AXIS_LANE, -1, 1);
    KernelAccess at = rows ? STRIDES(&m, -1, 1) : STRIDES(&m, 1);
    int level = op(&m, K_CAST, DT_F32, load(&m, buffer(&m, DT_U8, false), at), 0, 0);
    int scaled = op(&m, K_MUL, DT_F32, op(&m, K_SUB, DT_F32, level, number(&m, DT_F32), 0), number(&m, DT_F32), 0);
    KernelInst divide = {.op = K_DIV, .dtype = DT_F32, .args = {scaled, number(&m, DT_F32)}, .bits = 1};
    int sum = op(&m, K_MUL, DT_I32, load(&m, buffer(&m, DT_I32, false), at), number(&m, DT_I32), 0);
    store(&m, buffer(&m, DT_F32, true), at, inst(&m, divide));
    store(&m, buffer(&m, DT_I32, true), at, sum);
    if (rows) {
        int total = op(&m, K_REDUCE_SUM, DT_I32, sum, 0, 0);
        store(&m, buffer(&m, DT_I32, true), STRIDES(&m, 1, 0), total);
    }
    int64_t params[64][5];
    int count = fill_tails();
    for (int i = 0; i < count; i++) {
        params[i][0] = tails[i];
        params[i][1] = kernel_param_of_number(117);
        params[i][2] = kernel_param_of_number(-0.037f);
        params[i][3] = kernel_param_of_number(0.3f);
        params[i][4] = (uint32_t)-129;
    }
    check(m.kernel, params[0], count, 5);
    finish(arena);
}

static void parameters_that_are_numbers(void) {
    check_numbers(false);
    check_numbers(true);
}

/* One step of a chain; a's and b's values live on. Operands of all kinds: constants, values in registers and on the stack. */
static int chain_step(Maker *m, DType t, int kind, int last, int a, int b) {
    int number = constant(m, t, (random_below(41) - 20) / 16.0);
    switch (kind) {
    case 0: return op(m, K_FMA, t, a, number, last);
    case 1: return op(m, K_FMA, t, a, last, number);
    case 2: return op(m, K_FMA, t, constant(m, t, 0.25), b, last);
    case 3: return op(m, K_FMA, t, last, a, b);
    case 4: return op(m, K_SELECT, t, op(m, K_LT, DT_BOOL, a, number, -1), last, b);
    case 5: return op(m, K_SELECT, t, op(m, K_LT, DT_BOOL, last, b, -1), a, number);
    case 6: return op(m, K_SUB, t, number, last, -1);
    default: return op(m, K_MAX, t, op(m, K_MIN, t, last, a, -1), constant(m, t, -4), -1);
    }
}

static int bits_step(Maker *m, DType t, int kind, int last, int a, int b) {
    int number = constant(m, t, random_below(1 << 20) - (1 << 19));
    switch (kind) {
    case 0: return op(m, K_MUL, t, last, number, -1);
    case 1: return op(m, K_ADD, t, last, a, -1);
    case 2: return op(m, K_XOR, t, b, last, -1);
    case 3: return op(m, K_SHR, t, last, constant(m, t, random_below(9)), -1);
    case 4: return op(m, K_SELECT, t, op(m, K_GT, DT_BOOL, a, number, -1), b, last);
    case 5: return op(m, K_AND, t, last, op(m, K_OR, t, a, number, -1), -1);
    case 6: return op(m, K_SUB, t, a, last, -1);
    default: return op(m, K_BITCAST, t, op(m, K_ABS, DT_F32, op(m, K_BITCAST, DT_F32, last, 0, -1), 0, -1), 0, -1);
    }
}

/* Copies of a body side by side, of which `lives` values live from its first instruction to its last: with the last ones more than
 * there are registers. summed: a reduction, whose accumulators live as well. */
static void long_body(DType t, int lives, int lanes, bool summed) {
    Arena *arena = arena_create(0);
    Maker m = maker(arena, lanes);
    if (summed) axis(&m, AXIS_TASK, 3, 1);
    axis(&m, summed ? AXIS_REDUCE_LANE : AXIS_LANE, -1, 1);
    KernelAccess at = summed ? STRIDES(&m, -1, 1) : STRIDES(&m, 1), to = summed ? STRIDES(&m, 1, 0) : STRIDES(&m, 1);
    int values[16], x = load(&m, buffer(&m, t, false), at), last = x;
    for (int i = 0; i < lives; i++)
        values[i] =
            op(&m, i % 2 ? K_MUL : K_ADD, t, x, constant(&m, t, dtype_is_float(t) ? 1 + i / 16.0 : 3 * i + 1), -1);
    for (int i = 0; i < 40;
         i++) { /* what is not the chain's last value is no chain, for the interpreter computes it each time */
        int a = values[random_below(lives)], b = values[random_below(lives)];
        last = (dtype_is_float(t) ? chain_step : bits_step)(&m, t, i < 8 ? i : random_below(8), last, a, b);
    }
    for (int i = 0; i < lives; i++) last = op(&m, i % 2 ? K_MIN : K_MAX, t, last, values[i], -1);
    if (summed) last = inst(&m, (KernelInst){.op = K_REDUCE_MAX, .dtype = t, .args = {last}});
    store(&m, buffer(&m, t, true), to, last);
    static const int64_t sizes[] = {1000, 1024, 7};
    check(m.kernel, sizes, 3, 1);
    finish(arena);
}

static void long_bodies_with_more_values_than_registers(void) {
    static const int lanes[] = {1024, 192}; /* eight copies and four */
    for (int n = 0; n < 2; n++) {
        long_body(DT_F32, 15, lanes[n], false);
        long_body(DT_F64, 12, lanes[n], false);
        long_body(DT_I32, 15, lanes[n], false);
    }
    long_body(DT_F32, 3, 1024, false);
    long_body(DT_F32, 15, 1024, true);
    long_body(DT_I32, 12, 1024, true);
}

/* --- the cases
 * --------------------------------------------------------------------------------------------------------- */

Test(render, each_instruction_on_each_type) { each_instruction_on_each_type(); }
Test(render, fused_multiply_add_rounds_once_where_the_hardware_does) {
    fused_multiply_add_rounds_once_where_the_hardware_does();
}
Test(render, casts_between_all_types) { casts_between_all_types(); }
Test(render, divisors_and_distances_that_are_constants) { divisors_and_distances_that_are_constants(); }
Test(render, scaling) { scaling(); }
Test(render, rows_divided_by_one_number) { rows_divided_by_one_number(); }
Test(render, parameters_that_are_numbers) { parameters_that_are_numbers(); }
Test(render, pointwise_tails_and_broadcasts) { pointwise_tails_and_broadcasts(); }
Test(render, pointwise_of_constant_sizes) { pointwise_of_constant_sizes(); }
Test(render, long_bodies_with_more_values_than_registers) { long_bodies_with_more_values_than_registers(); }
Test(render, large_programs_use_one_masked_loop) { large_programs_use_one_masked_loop(); }
Test(render, inner_reductions_of_each_type_and_tail) { inner_reductions_of_each_type_and_tail(); }
Test(render, inner_reductions_of_constant_rows) { inner_reductions_of_constant_rows(); }
Test(render, outer_reductions_of_each_type_and_tail) { outer_reductions_of_each_type_and_tail(); }
Test(render, outer_reductions_in_bands) { outer_reductions_in_bands(); }
Test(render, columns_beside_rows) { columns_beside_rows(); }
Test(render, outer_reductions_of_constant_columns) { outer_reductions_of_constant_columns(); }
Test(render, reductions_in_stages) { reductions_in_stages(); }
Test(render, tiles_of_each_size_of_element) { tiles_of_each_size_of_element(); }
Test(render, tiles_of_elements_of_two_sizes) { tiles_of_elements_of_two_sizes(); }
Test(render, random_programs) { random_programs(); }

Test(render, tiles_past_the_caches) {
    past_the_caches = true;
    check_tiles(DT_F32, DT_F32, false);
    check_tiles(DT_F32, DT_F32, true);
    check_tiles(DT_F64, DT_F64, false);
    check_tiles(DT_F64, DT_F32, false);
    check_tiles(DT_F32, DT_F16, false);
    /* several strips a task, the last of which has fewer rows */
    static const int64_t sizes[] = {16, 112, 137, 272};
    check_tiles_of(DT_F32, DT_F32, 1, false, 256, 128, sizes, 4);
    check_tiles_of(DT_F32, DT_F32, 3, false, 256, 128, sizes, 4);
    check_tiles_of(DT_F64, DT_F32, 2, false, 256, 32, sizes, 4);
    check_tiles_of(DT_F16, DT_F16, 1, false, 256, 128, sizes, 4);
    past_the_caches = false;
}

/* --- what runs nowhere here
 * -------------------------------------------------------------------------------------------- */

Test(render, tiles_are_stored_past_the_caches_in_whole_lines_alone) {
    static const Target targets[] = {
        {.cpu = "x86-64-v4", .features = "", .vector_bytes = 64, .cache_bytes = 1 << 20},
        {.cpu = "x86-64-v3", .features = "", .vector_bytes = 32, .cache_bytes = 1 << 20},
        {.cpu = "x86-64-v2", .features = "", .vector_bytes = 16, .cache_bytes = 1 << 20},
    };
    Arena *arena = arena_create(0);
    Maker m = maker(arena, 64);
    m.kernel->tile_block = 32;
    m.kernel->tile_axis = axis(&m, AXIS_TASK, -1, 1);
    axis(&m, AXIS_LANE, -2, 1);
    int turned = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1, -1));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, -2, 1), turned);
    for (size_t n = 0; n < sizeof targets / sizeof *targets; n++) {
        char *text;
        Status status = plugin()->listing(m.kernel, &targets[n], LISTING_ASSEMBLY, &text);
        cr_assert(!status, "%s", status_message(status));
        cr_assert_eq(strstr(text, "movnt") != NULL, n <= 1, "%s:\n%s", targets[n].cpu, text);
        free(text);
    }
    arena_destroy(arena);
}

Test(render, assembly_for_other_machines) {
    Arena *arena = arena_create(0);
    Maker m = maker(arena, 128);
    axis(&m, AXIS_LANE, -1, 1);
    int x = arity_input(&m, DT_F16, 1);
    store(&m, buffer(&m, DT_F16, true), STRIDES(&m, 1), op(&m, K_SQRT, DT_F32, op(&m, K_FLOOR, DT_F32, x, 0, 0), 0, 0));
    Target target = {.cpu = "generic", .features = "", .vector_bytes = 16};
    char *text;
    Status status = plugin()->listing(m.kernel, &target, LISTING_ASSEMBLY, &text);
    cr_assert(!status, "%s", status_message(status));
    cr_assert(strstr(text, "frintm"));
    cr_assert(!strstr(text, "\tbl\t"), "calls a function:\n%s", text);
    free(text);
    arena_destroy(arena);
}
