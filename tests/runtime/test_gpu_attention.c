/* SPDX-License-Identifier: Apache-2.0 */
/* The anchor "attention" on a GPU, through OpenCL on whatever device the machine has, against the plain evaluator:
 * random sizes, types, permutes, masks; few and many rows, keys split over blocks. Without any OpenCL device the tests
 * say so and are skipped. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attention_cases.h"
#include "gpu_bench.h"
#include "codegen/gpu/attention/attention.h"
#include "lowering/anchor/anchor_eval.h"
#include "runtime/device/gpu/anchor_attention.h"

/* `lead`, or as little more as makes it a multiple of the element's size: devices load no element from elsewhere. */
static size_t lead_of(const Tensor *t, size_t lead) {
    size_t size = dtype_size(t->dtype);
    return (lead + size - 1) / size * size;
}

static void check(Bench *b, const AttentionCase *c, size_t lead) {
    Arena *arena = arena_create(0);
    AttentionSetup s = attention_case_setup(c, arena);
    Tensor *want, got;
    const Tensor *inputs[ATTENTION_STEPS];
    Placed placed[ATTENTION_STEPS];
    GpuAttention *attention;
    DONE(graph_verify(s.graph, LEVEL_PRIM));
    DONE(eval_anchor(s.node, s.inputs, NULL, arena, &want));
    for (int i = 0; i < s.count; i++) {
        placed[i] = place(b, arena, s.inputs[i], true, lead_of(s.inputs[i], lead));
        inputs[i] = &placed[i].tensor;
    }
    lead = lead_of(want, lead);
    Placed out = place(b, arena, want, false, lead);
    cr_assert(gpu_attention_runs(gpu_device(b->device), s.node), "%s: is not taken", c->name);
    DONE(gpu_attention_prepare(gpu_device(b->device), s.node, &attention));
    DONE(gpu_attention_run(gpu_device(b->device), b->stream, attention, inputs, NULL, &out.tensor));
    size_t begin = GUARD + lead, bytes = tensor_bytes(want);
    unsigned char *back = arena_alloc(arena, out.bytes);
    DONE(gpu_copy(b->device, b->stream, COPY_OUT, back, out.block, out.bytes));
    DONE(gpu_synchronize(b->device, b->stream));
    cr_assert(unchanged(back, begin) && unchanged(back + begin + bytes, out.bytes - begin - bytes),
              "%s: writes beyond its buffer", c->name);
    got = *want;
    got.data = back + begin;
    attention_case_compare(c, want, &got);
    for (int i = 0; i < s.count; i++) gpu_release(b->device, b->stream, NULL, placed[i].block);
    gpu_release(b->device, b->stream, NULL, out.block);
    gpu_attention_release(attention);
    graph_destroy(s.graph);
    arena_destroy(arena);
}

/* Those of the same types, sizes, mask and `empty` share a program. */
static const AttentionCase cases[] = {
    {"many queries", DT_F32, 2, 3, 3, 150, 130, 64, 64, MASK_NONE, 0, 0, false},
    {"heads between sequence and size", DT_F32, 2, 3, 3, 70, 75, 64, 64, MASK_BIAS, 0, 0, true},
    {"f16", DT_F16, 2, 2, 2, 65, 64, 64, 64, MASK_BIAS, 0, 0, false},
    {"bf16 with odd sizes", DT_BF16, 1, 2, 1, 33, 47, 20, 36, MASK_KEEP, 0, 0, true},
    {"heads of 128", DT_F32, 1, 2, 2, 80, 100, 128, 128, MASK_HIDE, 0, EMPTY_ZERO, false},
    {"heads of 256", DT_F16, 1, 1, 1, 40, 50, 256, 256, MASK_NONE, 0, 0, false},
    {"values wider than keys", DT_F32, 1, 2, 2, 20, 64, 96, 192, MASK_CAPPED, 0, 0, false},
    {"causal", DT_F32, 1, 4, 2, 100, 100, 64, 64, MASK_CAUSAL, 0, 0, false},
    {"causal behind a past", DT_F32, 1, 4, 4, 30, 90, 64, 64, MASK_CAUSAL, 60, 0, true},
    {"queries that see nothing are NaN", DT_F32, 1, 2, 2, 70, 70, 64, 64, MASK_CAUSAL, -3, 0, false},
    {"queries that see nothing are zero", DT_F16, 1, 2, 2, 70, 70, 24, 24, MASK_CAUSAL, -3, EMPTY_ZERO, false},
    {"a decoder's step", DT_F32, 2, 8, 2, 1, 700, 64, 64, MASK_NONE, 0, 0, false},
    {"a decoder's step with a mask", DT_BF16, 1, 4, 4, 1, 2000, 80, 48, MASK_HIDING, 0, EMPTY_NAN_ZERO, false},
    {"a few queries", DT_F16, 1, 2, 1, 7, 1100, 64, 64, MASK_BIAS, 0, 0, true},
    {"a causal mask over split keys", DT_F32, 1, 1, 1, 12, 3000, 64, 64, MASK_CAUSAL, 1500, 0, false},
    {"a head of one element", DT_F32, 1, 1, 1, 3, 5, 1, 1, MASK_NONE, 0, 0, false},
    {"one key", DT_F32, 2, 2, 2, 5, 1, 128, 128, MASK_HIDE, 0, EMPTY_ZERO, false},
    {"no keys", DT_F32, 2, 2, 2, 5, 0, 64, 64, MASK_NONE, 0, 0, false},
    {"a causal tile that sees no key", DT_F32, 1, 4, 2, 100, 70, 64, 64, MASK_CAUSAL, -200, 0, false},
    {"no queries", DT_F32, 2, 2, 2, 0, 5, 64, 64, MASK_NONE, 0, 0, false},
    {"fewer heads of values than of keys", DT_F32, 2, 12, 12, 9, 40, 64, 64, MASK_NONE, .v_heads = 2},
    {"heads of keys and of values that do not divide each other", DT_F32, 1, 12, 4, 70, 75, 64, 64, MASK_NONE,
     .v_heads = 6},
    {"parts of heads", DT_F32, 2, 4, 2, 70, 75, 64, 64, MASK_BIAS, .permuted = true, .parts = true},
    {"parts of heads of which there is one", DT_F16, 1, 1, 1, 1, 75, 24, 24, MASK_CAUSAL, .offset = 74, .parts = true},
};

Test(gpu_attention, cases) {
    Bench b;
    bench_open(&b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t lead = 0; lead <= 4; lead += 4) check(&b, &cases[i], lead);
    bench_close(&b);
}

/* Few rows whose keys are read straight to registers; an odd address takes the ordinary function. */
static const AttentionCase few_rows[] = {
    {"one row streamed, split keys", DT_F16, 1, 2, 2, 1, 1500, 128, 128, MASK_NONE, 0, 0, false},
    {"three rows streamed under a mask", DT_BF16, 1, 6, 2, 1, 300, 80, 80, MASK_BIAS, 0, 0, true},
    {"eight rows streamed, a causal mask", DT_F16, 1, 2, 1, 4, 150, 128, 64, MASK_CAUSAL, 100, 0, false},
    {"rows streamed that see no key", DT_F16, 1, 4, 2, 3, 100, 64, 64, MASK_CAUSAL, -2, EMPTY_ZERO, false},
    {"eight rows streamed of heads of 256", DT_F32, 1, 1, 1, 8, 700, 256, 256, MASK_CAPPED, 0, 0, false},
    {"rows streamed of values narrower than keys", DT_F32, 2, 3, 3, 3, 70, 128, 20, MASK_HIDING, 0, EMPTY_NAN_ZERO,
     true},
};

Test(gpu_attention, few_rows) {
    Bench b;
    bench_open(&b);
    for (size_t i = 0; i < sizeof few_rows / sizeof *few_rows; i++)
        for (size_t lead = 0; lead <= 4; lead += 4) check(&b, &few_rows[i], lead);
    bench_close(&b);
}

/* Matrix units are imitated on OpenCL, so that the layouts of their fragments are seen to fit. */
static const AttentionCase matrix_cases[] = {
    {"f16 on matrix units", DT_F16, 2, 2, 2, 150, 130, 64, 64, MASK_BIAS, 0, 0, false},
    {"heads between sequence and size on matrix units", DT_F16, 2, 4, 2, 70, 75, 64, 64, MASK_BIAS, 0, 0, true},
    {"bf16 with odd sizes on matrix units", DT_BF16, 1, 2, 1, 33, 47, 20, 36, MASK_KEEP, 0, 0, true},
    {"values wider than keys on matrix units", DT_F16, 1, 1, 1, 65, 70, 64, 96, MASK_CAPPED, 0, 0, false},
    {"queries that see nothing, on matrix units", DT_F16, 1, 2, 2, 70, 70, 24, 24, MASK_CAUSAL, -3, EMPTY_ZERO, false},
    {"split keys on matrix units", DT_F16, 1, 1, 1, 40, 1000, 64, 64, MASK_BIAS, 0, 0, false},
    {"no keys on matrix units", DT_F16, 2, 2, 2, 150, 0, 64, 64, MASK_BIAS, 0, 0, true},
    {"long causal tiles in f32 of heads that share keys", DT_F32, 1, 4, 2, 120, 200, 64, 64, MASK_CAUSAL, 70, 0, false},
    {"long tiles in f32 with a mask, large heads", DT_F32, 1, 2, 2, 256, 100, 128, 128, MASK_BIAS, 0, 0, false},
    {"long tiles", DT_F16, 1, 2, 2, 250, 130, 64, 64, MASK_NONE, 0, 0, false},
    {"long causal tiles of large heads that share keys", DT_BF16, 1, 4, 2, 120, 200, 128, 128, MASK_CAUSAL, 70, 0,
     false},
    {"a causal tile that sees no key, on matrix units", DT_F16, 1, 4, 2, 150, 70, 24, 24, MASK_CAUSAL, -200, EMPTY_ZERO,
     true},
};

/* With the device's units, or imitated ones. */
static void check_units(const AttentionCase *all, size_t count, size_t most_lead, bool groups) {
    Bench b;
    bench_open(&b);
    GpuLimits limits = *gpu_device(b.device)->limits;
    limits.matrix = true;
    limits.groups |= groups && gpu_device(b.device)->driver->dialect == GPU_OPENCL;
    gpu_device(b.device)->limits = &limits;
    for (size_t i = 0; i < count; i++)
        for (size_t lead = 0; lead <= most_lead; lead += 2) check(&b, &all[i], lead);
    bench_close(&b);
}

Test(gpu_attention, matrix_units) { check_units(matrix_cases, sizeof matrix_cases / sizeof *matrix_cases, 2, false); }

/* Tiles that are full and that are not, one and several tiles of keys and none, keys that share heads. */
static const AttentionCase group_cases[] = {
    {"warpgroups, two tiles of keys", DT_F16, 1, 2, 2, 120, 70, 64, 64, MASK_BIAS, 0, 0, true},
    {"warpgroups, one tile of keys", DT_F16, 1, 2, 2, 128, 30, 64, 64, MASK_BIAS, 0, 0, false},
    {"warpgroups, split keys", DT_F16, 1, 1, 1, 256, 600, 64, 64, MASK_BIAS, 0, 0, false},
    {"warpgroups, parts of heads", DT_F16, 2, 2, 2, 128, 70, 64, 64, MASK_CAUSAL, .permuted = true, .parts = true},
    {"warpgroups, no keys", DT_F16, 2, 2, 2, 128, 0, 64, 64, MASK_BIAS, 0, 0, true},
    {"warpgroups, causal, keys that share heads", DT_BF16, 1, 4, 2, 64, 200, 128, 56, MASK_CAUSAL, 70, 0, false},
    {"warpgroups, split keys, long tiles of them", DT_BF16, 1, 1, 1, 256, 330, 128, 56, MASK_CAUSAL, 90, 0, false},
    {"warpgroups, a causal tile that sees no key", DT_BF16, 1, 4, 2, 120, 70, 128, 56, MASK_CAUSAL, -200, 0, true},
};

Test(gpu_attention, warpgroups) { check_units(group_cases, sizeof group_cases / sizeof *group_cases, 0, true); }

/* What threads of a block write for each other is there before any of them reads it, also where the key loop and its
 * barriers are not entered: a block's first access of the rows' places behind their writing stands behind a barrier. */
Test(gpu_attention, a_barrier_stands_behind_the_places_of_rows) {
    static const bool matrix[] = {false, true};
    for (int i = 0; i < 4; i++) {
        GpuAttentionText a = {
            .dtype = DT_F16, .size = 64, .width = 64, .shared_bytes = 48 << 10, .matrix = matrix[i % 2]};
        Arena *arena = arena_create(0);
        Text text = text_make(arena);
        gpu_attention_render(&text, &a, i / 2 ? GPU_OPENCL : GPU_CUDA, "attention", NULL);
        int kernels = 0;
        for (const char *at = text.data; (at = strstr(at, "positions[r] =")); kernels++) {
            const char *barrier = strstr(at, "BARRIER;"), *keys = strstr(at, "for (i32 t0 = begin");
            at += strlen("positions[r] =");
            cr_expect(barrier && keys && barrier < keys, "kernel %d: no barrier before the keys", kernels);
        }
        cr_expect(kernels == 5 + matrix[i % 2], "%d kernels", kernels);
        arena_destroy(arena);
    }
}

static uint64_t state = 1;
static int64_t among(int64_t least, int64_t most) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return least + (int64_t)((state >> 33) % (uint64_t)(most - least + 1));
}

/* A program each, for any sizes. */
static const AttentionCase programs[] = {
    {"random sizes, bias", DT_F32, .size = 64, .width = 64, .mask = MASK_BIAS, .permuted = true},
    {"random sizes, causal", DT_F16, .size = 24, .width = 24, .mask = MASK_CAUSAL, .empty = EMPTY_ZERO},
    {"random sizes, a hiding bias", DT_BF16, .size = 80, .width = 48, .mask = MASK_HIDING, .empty = EMPTY_NAN_ZERO},
};

Test(gpu_attention, random) {
    Bench b;
    bench_open(&b);
    for (int round = 0; round < 90; round++) {
        AttentionCase c = programs[round % 3];
        char name[96];
        c.batch = among(1, 2);
        c.kv_heads = among(1, 3);
        c.heads = c.kv_heads * among(1, 3);
        c.queries = among(1, among(0, 1) ? 6 : 90);
        c.keys = among(1, among(0, 2) ? 90 : 700);
        c.offset = among(-3, 40);
        snprintf(name, sizeof name, "round %d: %s, %lld queries, %lld keys", round, c.name, (long long)c.queries,
                 (long long)c.keys);
        c.name = name;
        check(&b, &c, (size_t)among(0, 3) * 4);
    }
    bench_close(&b);
}
