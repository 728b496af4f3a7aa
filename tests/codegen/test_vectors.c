/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that loops on vectors are written with (base/vectors/vector_math.h) give what compiled kernels give, to
 * the bit, on each instruction set that this machine runs; but for the exponentials of softmax, which keep a bound of their own. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/vectors/vector_isa.h"
#include "codegen/codegen.h"
#include "codegen/llvm_plugin.h"
#include "codegen/object.h"
#include "vector_cases.h"

enum { EVERY = 257, BLOCK = 1 << 14 };

static const struct {
    const char *level;
    VectorIsa isa;
    const VectorCases *cases;
} sets[] = {
#if defined(__x86_64__)
    {"x86-64", VECTOR_BASE, &vectors_base},
    {"x86-64-v3", VECTOR_AVX2, &vectors_avx2},
    {"x86-64-v4", VECTOR_AVX512, &vectors_avx512},
#else
    {"host", VECTOR_BASE, &vectors_base},
#endif
};

typedef struct Compiled {
    Graph *body;
    const Kernel *kernel;
    void *object;
    ObjectCode code;
    KernelFunction run;
} Compiled;

static Compiled compiled(const char *primitive, const char *level) {
    char text[128];
    snprintf(text, sizeof text, "graph (x: f32[n]) -> (v) {\n v: f32[n] = %s x\n}", primitive);
    Compiled c = {0};
    Target target = {.device = DEVICE_CPU, .level = level};
    const LlvmPlugin *plugin;
    RegionKernel lowered;
    size_t size;
    Status status = graph_parse(text, &c.body);
    Node region = {.kind = NODE_REGION, .op = "region", .subgraphs = &c.body, .subgraph_count = 1};
    if (!status) status = target_resolve(c.body->arena, &target);
    if (!status) status = codegen_region(c.body->arena, c.body->dims, &region, &target, &lowered);
    if (!status) status = llvm_plugin_get(&plugin);
    if (!status) status = plugin->compile(lowered.kernel, &target, &c.object, &size);
    if (!status) status = object_load(c.object, size, KERNEL_SYMBOL, &c.code);
    cr_assert_null(status, "%s: %s", level, status_message(status));
    c.kernel = lowered.kernel;
    memcpy(&c.run, &c.code.function, sizeof c.run);
    return c;
}

/* The results of a block are the same, but for the payload of NaN. */
static void compare(const char *what, const char *level, const float *x, const float *got, const float *want,
                    int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        bool same = memcmp(got + i, want + i, sizeof *got) == 0 || (isnan(got[i]) && isnan(want[i]));
        cr_assert(same, "%s(%a) at %s is %a, otherwise %a", what, (double)x[i], level, (double)got[i], (double)want[i]);
    }
}

/* The next block of all floats, each of EVERY. */
static int64_t draw(float *x, uint64_t *bits) {
    int64_t n = 0;
    for (; n < BLOCK && *bits <= UINT32_MAX; n++, *bits += EVERY) {
        uint32_t narrow = (uint32_t)*bits;
        memcpy(x + n, &narrow, sizeof narrow);
    }
    for (; n % 16; n++) x[n] = 0.5f;
    return n;
}

static void check(const char *primitive, const char *level, void (*function)(const float *, float *, int64_t)) {
    static float x[BLOCK], got[BLOCK], want[BLOCK];
    static const float special[] = {0,    -0.0f,      HUGE_VALF,   -HUGE_VALF, NAN, 1,        -1, 0x1p-149f, -105,
                                    -104, -87.33654f, -87.336555f, -87.33653f, 40,  0.25540f, 10, -0x1p-149f};
    Compiled c = compiled(primitive, level);
    uint64_t bits = 0;
    for (int block = 0; bits <= UINT32_MAX; block++) {
        int64_t n = draw(x, &bits);
        if (block == 0) memcpy(x, special, sizeof special);
        c.run((void *[]){x, want}, &n, 0, kernel_tasks(c.kernel, &n), NULL);
        function(x, got, n);
        compare(primitive, level, x, got, want, n);
    }
    object_unload(&c.code);
    free(c.object);
    graph_destroy(c.body);
}

Test(vectors, functions_are_those_of_kernels) {
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (sets[i].isa > vector_isa()) continue;
        check("tanh", sets[i].level, sets[i].cases->tanh);
        check("sigmoid", sets[i].level, sets[i].cases->sigmoid);
    }
}

/* By the bound that vector_math.h gives: of the polynomial and its arithmetic, and of the product x log2(e). */
static void check_exponentials(const char *level, const float *x, const float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double power = (double)x[i] * 1.4426950408889634, want = exp((double)x[i]),
               error = fabs((double)y[i] / want - 1);
        bool right = error <= 0x1.8p-23 + fabs(power) * 0x1p-24;
        if (isnan(x[i])) right = isnan(y[i]);
        if (power < -125.4999) right = y[i] == 0 || (power > -125.5001 && right);
        cr_assert(right, "exp(%a) at %s is %a: %g", (double)x[i], level, (double)y[i], error);
    }
}

Test(vectors, exponentials_of_softmax_keep_their_bound) {
    static float x[BLOCK], want[BLOCK], got[BLOCK];
    static const float special[] = {0, -0.0f, -HUGE_VALF, NAN, -3.4028235e38f, 8, -86.98970f, -86.9897f, -87.33654f};
    uint64_t bits = 0;
    for (int block = 0; bits <= UINT32_MAX; block++) {
        int64_t n = draw(x, &bits);
        for (int64_t i = 0; i < n; i++) x[i] = x[i] > 0 && x[i] < 16 ? x[i] : -fabsf(x[i]);
        if (block == 0) memcpy(x, special, sizeof special);
        sets[0].cases->exp_below(x, want, n);
        check_exponentials(sets[0].level, x, want, n);
        if (block == 0) cr_assert(want[0] == 1 && want[1] == 1 && want[2] == 0 && want[4] == 0);
        for (size_t i = 1; i < sizeof sets / sizeof *sets; i++) {
            if (sets[i].isa > vector_isa()) continue;
            sets[i].cases->exp_below(x, got, n);
            compare("exp", sets[i].level, x, got, want, n);
        }
    }
}
