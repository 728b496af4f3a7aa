/* SPDX-License-Identifier: Apache-2.0 */
/* Random inputs, the interpreter's results, and the comparison. */
#include "data.h"

#include <math.h>
#include <stdlib.h>

#include "graph/prim.h"
#include "kernel_eval.h"

enum { GARBAGE = 0xCB };

/* --- inputs --------------------------------------------------------------------------------------------------- */
static double random_float(uint32_t word, bool special) {
    static const double specials[] = {0.0,    -0.0,  INFINITY, -INFINITY, NAN,  1e-40,
                                      -1e-42, 65520, 3e38,     1e-6,      88.8, -104};
    if (special && word % 16 == 3) return specials[(word >> 8) % (sizeof specials / sizeof *specials)];
    double x = (double)(int32_t)word / 2147483648.0;
    return word % 5 == 0 ? x * 12 : x * 2;
}

static int64_t random_integer(DType t, uint32_t word, bool special) {
    int bits = (int)dtype_size(t) * 8;
    if (t == DT_BOOL) return word >> 7 & 1;
    if (special && word % 16 == 3)
        return word & 256 ? (int64_t)(UINT64_MAX >> 1) >> (64 - bits) : INT64_MIN >> (64 - bits);
    int64_t x = (int64_t)(word >> 8) % 61;
    return dtype_class(t) == DTYPE_SIGNED ? x - 30 : x;
}

static void fill(DType t, void *data, int64_t count, uint64_t seed, bool special) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t word = philox_u32(seed, (uint64_t)i);
        if (dtype_is_float(t))
            dtype_store_double(t, data, i, random_float(word, special));
        else
            dtype_store_int(t, data, i, random_integer(t, word, special));
    }
}

bool kernel_sums_floats(const Kernel *kernel) {
    for (int i = 0; i < kernel->insts.count; i++) {
        const KernelInst *inst = &kernel->insts.items[i];
        bool sums = inst->op == K_REDUCE_SUM || inst->op == K_REDUCE_PROD;
        if (sums && dtype_is_float(inst->dtype)) return true;
    }
    return false;
}

/* --- the distance of other orders ------------------------------------------------------------------------------ */
/* By how much the perturbed results of an element differ from the plain one: infinite where they are of another kind.
 */
static double spread(const Trial *t, int buffer, int64_t i) {
    const Kernel *k = t->c->kernel;
    DType type = k->buffers.items[buffer].dtype;
    double expected = dtype_load_double(type, t->buffers[buffer], i), most = 0;
    for (int p = 0; p < PERTURBED; p++) {
        double x = dtype_load_double(type, t->perturbed[p * k->buffers.count + buffer], i);
        if ((x != x) != (expected != expected) || isinf(x) != isinf(expected)) return INFINITY;
        if (fabs(x - expected) > most) most = fabs(x - expected);
    }
    return most;
}

static double average_spread(const Trial *t, int buffer) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < t->binding->elements[buffer]; i++) {
        double s = spread(t, buffer, i);
        if (s > 0 && isfinite(s)) sum += s * s, count++;
    }
    return count ? sqrt(sum / (double)count) : 0;
}

/* --- trials ------------------------------------------------------------------------------------------------- */
static void *buffer_new(size_t bytes) {
    void *data = malloc(bytes + 8);
    if (!data) abort();
    return memset(data, GARBAGE, bytes + 8);
}

Trial *trial_inputs(const KernelCase *c, const Binding *binding, uint64_t seed, bool special) {
    const Kernel *k = c->kernel;
    size_t count = (size_t)k->buffers.count;
    Trial *t = calloc(1, sizeof *t);
    if (!t) abort();
    *t = (Trial){c, binding, calloc(count + 1, sizeof(void *)), true, NULL, NULL};
    if (!t->buffers) abort();
    for (int b = 0; b < k->buffers.count; b++) {
        t->buffers[b] = buffer_new(binding_bytes(c, binding, b));
        if (!k->buffers.items[b].output)
            fill(k->buffers.items[b].dtype, t->buffers[b], binding->elements[b], seed * 64 + (uint64_t)b, special);
    }
    return t;
}

Trial *trial_create(const KernelCase *c, const Binding *binding, uint64_t seed, bool special) {
    const Kernel *k = c->kernel;
    size_t count = (size_t)k->buffers.count;
    Trial *t = trial_inputs(c, binding, seed, special);
    t->exact = !kernel_sums_floats(k);
    t->perturbed = calloc(count * PERTURBED + 1, sizeof(void *));
    t->usual = calloc(count + 1, sizeof *t->usual);
    if (!t->perturbed || !t->usual) abort();
    kernel_eval_perturbed(k, t->buffers, binding->params, 0);
    for (int p = 0; p < PERTURBED && !t->exact; p++) {
        void **variant = t->perturbed + (size_t)p * count;
        for (int b = 0; b < k->buffers.count; b++)
            variant[b] = k->buffers.items[b].output ? buffer_new(binding_bytes(c, binding, b)) : t->buffers[b];
        kernel_eval_perturbed(k, variant, binding->params, (uint64_t)p + 1);
    }
    for (int b = 0; b < k->buffers.count && !t->exact; b++)
        if (k->buffers.items[b].output && dtype_is_float(k->buffers.items[b].dtype)) t->usual[b] = average_spread(t, b);
    return t;
}

void trial_free(Trial *t) {
    if (!t) return;
    for (int b = 0; b < t->c->kernel->buffers.count; b++) {
        for (int p = 0; p < PERTURBED && !t->exact; p++)
            if (t->c->kernel->buffers.items[b].output) free(t->perturbed[p * t->c->kernel->buffers.count + b]);
        free(t->buffers[b]);
    }
    free(t->usual);
    free(t->perturbed);
    free(t->buffers);
    free(t);
}

/* --- judging ------------------------------------------------------------------------------------------------- */
/* The distance between neighbouring numbers of the type at x. */
static double spacing(DType t, double x) {
    int digits = t == DT_F64 ? 53 : t == DT_F16 ? 11 : t == DT_BF16 ? 8 : 24;
    int least = t == DT_F64 ? -1074 : t == DT_F16 ? -24 : t == DT_BF16 ? -133 : -149, exponent;
    frexp(x, &exponent);
    return ldexp(1, exponent - digits > least ? exponent - digits : least);
}

/* How far the order of sums may take this element; infinite where it may take it anywhere. */
static double tolerance(const Trial *t, int buffer, int64_t i, double expected) {
    DType type = t->c->kernel->buffers.items[buffer].dtype;
    double most = spread(t, buffer, i);
    if (!dtype_is_float(type)) return most > 0 ? INFINITY : 0;
    return 4 * most + 6 * t->usual[buffer] + 2 * spacing(type, expected);
}

static bool float_agrees(const Trial *t, int buffer, int64_t i, double expected, double got) {
    if (expected != expected && got != got) return true;
    if (expected == got && (expected != 0 || !t->exact || signbit(expected) == signbit(got))) return true;
    if (t->exact) return false;
    double most = tolerance(t, buffer, i, expected);
    return isinf(most) || fabs(expected - got) <= most;
}

const char *trial_difference(const Trial *t, int buffer, const void *got, Arena *arena) {
    DType type = t->c->kernel->buffers.items[buffer].dtype;
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < t->binding->elements[buffer]; i++) {
        bool agrees;
        if (dtype_is_float(type)) {
            agrees = float_agrees(t, buffer, i, dtype_load_double(type, t->buffers[buffer], i),
                                  dtype_load_double(type, got, i));
        } else {
            size_t size = dtype_size(type);
            agrees = !memcmp((char *)t->buffers[buffer] + (size_t)i * size, (const char *)got + (size_t)i * size, size);
            if (!agrees && !t->exact) agrees = isinf(tolerance(t, buffer, i, 0));
        }
        if (agrees) continue;
        if (first < 0) first = i;
        wrong++;
    }
    if (!wrong) return NULL;
    if (dtype_is_float(type))
        return arena_format(
            arena, "buffer %d (%s): %lld of %lld elements differ; element %lld is %.9g, expected %.9g +- %.3g", buffer,
            dtype_name(type), (long long)wrong, (long long)t->binding->elements[buffer], (long long)first,
            dtype_load_double(type, got, first), dtype_load_double(type, t->buffers[buffer], first),
            t->exact ? 0 : tolerance(t, buffer, first, dtype_load_double(type, t->buffers[buffer], first)));
    return arena_format(arena, "buffer %d (%s): %lld of %lld elements differ; element %lld is %lld, expected %lld",
                        buffer, dtype_name(type), (long long)wrong, (long long)t->binding->elements[buffer],
                        (long long)first, (long long)dtype_load_int(type, got, first),
                        (long long)dtype_load_int(type, t->buffers[buffer], first));
}
