/* SPDX-License-Identifier: Apache-2.0 */
/* What graph/cost.h says that functions take an element, against the kernels that compute them. Costs are for who compares
 * ways to do a thing, so they may be a quarter off before the table is to be written anew. */
#include <criterion/criterion.h>
#include "codegen/math.h"
#include "graph/cost.h"

/* y[i] = prim(x[i]), or prim(x[i], z[i]). */
static Kernel *kernel_of(Arena *arena, Prim prim, DType dtype) {
    Kernel *k = ARENA_NEW(arena, Kernel);
    *k = (Kernel){.axis_count = 1, .lane_block = 1024, .tile_axis = -1, .param_count = 1, .stage_count = 1};
    k->axes[0] = (KernelAxis){.role = AXIS_LANE, .param = 0, .multiple = 1};
    for (int i = 0; i < 3; i++) VEC_PUSH(arena, k->buffers, (KernelBuffer){.dtype = dtype, .output = i == 2});
    Emit e;
    emit_begin(&e, arena, k);
    KernelInst access = {.op = K_LOAD, .dtype = dtype, .access = ARENA_NEW(arena, KernelAccess)};
    access.access->kind[0] = STRIDE_ONE;
    int x = emit_inst(&e, access), z = x;
    access.buffer = 1;
    if (prim_info(prim)->inputs == 2) z = emit_inst(&e, access);
    KernelInst store = {.op = K_STORE, .dtype = dtype, .buffer = 2, .access = access.access};
    store.args[0] = math_expand(&e, prim, x, z);
    emit_inst(&e, store);
    emit_sweep(&e);
    return k;
}

static int arithmetic(const Kernel *k) {
    int count = 0;
    for (int i = 0; i < k->insts.count; i++) {
        KernelOp op = k->insts.items[i].op;
        count += op != K_CONST && op != K_PARAM && op != K_LOAD && op != K_STORE && op != K_BITCAST;
    }
    return count;
}

static bool is_near(int said, int counted) { return 4 * abs(said - counted) <= counted; }

Test(cost, functions_take_what_their_kernels_do) {
    int tried = 0;
    for (Prim prim = PRIM_NONE + 1; prim < PRIM_COUNT; prim++) {
        if (!math_expands(prim)) continue;
        Arena *arena = arena_create(0);
        int f32 = arithmetic(kernel_of(arena, prim, DT_F32)), f64 = arithmetic(kernel_of(arena, prim, DT_F64));
        cr_expect(is_near(prim_work(prim, DT_F32), f32) && is_near(prim_work(prim, DT_F64), f64),
                  "graph/cost.c should have for %s: %d, %d", prim_info(prim)->name, f32, f64);
        arena_destroy(arena);
        tried++;
    }
    cr_expect(tried > 15);
}

Test(cost, what_is_no_function_takes_one_instruction_or_none) {
    cr_expect_eq(prim_work(PRIM_ADD, DT_F32), 1);
    cr_expect_eq(prim_work(PRIM_REDUCE_SUM, DT_F64), 1);
    cr_expect_eq(prim_work(PRIM_WHERE, DT_I32), 1);
    cr_expect_eq(prim_work(PRIM_PERMUTE, DT_F32), 0);
    cr_expect_eq(prim_work(PRIM_CAST, DT_F16), 0);
}
