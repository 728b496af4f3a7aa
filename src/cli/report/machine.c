/* SPDX-License-Identifier: Apache-2.0 */
/* Memory bandwidth and arithmetic speed of the CPU, on some threads at once. */
#include "cli/report/machine.h"
#include "cli/base/session.h"

#include <pthread.h>
#include <stdlib.h>

enum {
    MOST_THREADS = 256,
    ELEMENTS = 24 << 20, /* floats in each of three arrays: 96 MiB, beyond most caches */
    SWEEPS = 4,
    ROUNDS = 1 << 19, /* of 12 multiply-adds each */
    CHAINS = 12,      /* independent sums: as many as the latency of a multiply-add needs */
};

typedef struct Share {
    float *a, *b, *c;
    int count;
    float kept; /* so that nothing is left out */
} Share;

/* --- arithmetic: once for each width of vectors --- */
typedef float Vector __attribute__((vector_size(64)));
enum { LANES = sizeof(Vector) / sizeof(float) };

#define MULTIPLY_ADDS(name, attribute)                                                                                 \
    attribute static float name(float x) {                                                                             \
        Vector sums[CHAINS], factor = (Vector){0} + 0.999f, term = (Vector){0} + x;                                    \
        for (int i = 0; i < CHAINS; i++) sums[i] = term + (float)i;                                                    \
        for (int r = 0; r < ROUNDS; r++)                                                                               \
            for (int i = 0; i < CHAINS; i++) sums[i] = sums[i] * factor + term;                                        \
        float sum = 0;                                                                                                 \
        for (int i = 0; i < CHAINS; i++)                                                                               \
            for (int k = 0; k < LANES; k++) sum += sums[i][k];                                                         \
        return sum;                                                                                                    \
    }

MULTIPLY_ADDS(multiply_plain, )
#ifdef __x86_64__
MULTIPLY_ADDS(multiply_avx2, __attribute__((target("avx2,fma"))))
MULTIPLY_ADDS(multiply_avx512, __attribute__((target("avx512f,prefer-vector-width=512"))))
#endif

static float multiply(float x) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) return multiply_avx512(x);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_avx2(x);
#endif
    return multiply_plain(x);
}

/* --- on all threads --- */
static void *fill(void *given) {
    Share *s = given;
    for (int i = 0; i < s->count; i++) s->a[i] = s->b[i] = s->c[i] = (float)(i & 7);
    return NULL;
}

static void *triad(void *given) {
    Share *s = given;
    for (int i = 0; i < s->count; i++) s->a[i] = s->b[i] + 0.5f * s->c[i];
    return NULL;
}

static void *arithmetic(void *given) {
    Share *s = given;
    s->kept = multiply((float)s->count * 1e-9f) + s->a[s->count / 2];
    return NULL;
}

/* Milliseconds of all shares at once; 0 when there are not enough threads. */
static double time_all(void *(*work)(void *), Share *shares, pthread_t *handles, int threads) {
    int started = 1;
    double begin = now_ms();
    while (started < threads && pthread_create(&handles[started], NULL, work, &shares[started]) == 0) started++;
    work(&shares[0]);
    for (int t = 1; t < started; t++) pthread_join(handles[t], NULL);
    return started == threads ? now_ms() - begin : 0;
}

/* The best of several: others may be at work too. */
static double time_best(void *(*work)(void *), Share *shares, pthread_t *handles, int threads) {
    double best = 0;
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        double took = time_all(work, shares, handles, threads);
        if (took > 0 && (best == 0 || took < best)) best = took;
    }
    return best;
}

static MachineLimits measure(Share *shares, pthread_t *handles, int threads) {
    time_all(fill, shares, handles, threads);
    double moving = time_best(triad, shares, handles, threads),
           computing = time_best(arithmetic, shares, handles, threads);
    double bytes = 3.0 * sizeof(float) * (double)shares[0].count * threads;
    double operations = 2.0 * LANES * CHAINS * ROUNDS * threads;
    return (MachineLimits){moving > 0 ? bytes / moving * 1e3 : 0, computing > 0 ? operations / computing * 1e3 : 0,
                           threads};
}

MachineLimits machine_measure(int threads) {
    MachineLimits limits = {0};
    if (threads < 1) threads = 1;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    Share *shares = calloc((size_t)threads, sizeof *shares);
    pthread_t *handles = calloc((size_t)threads, sizeof *handles);
    int count = ELEMENTS / threads;
    float *memory = malloc(sizeof *memory * 3 * (size_t)count * (size_t)threads);
    for (int t = 0; shares && memory && t < threads; t++) {
        float *own = memory + 3 * (size_t)count * (size_t)t;
        shares[t] = (Share){.a = own, .b = own + count, .c = own + 2 * (size_t)count, .count = count};
    }
    if (shares && handles && memory) limits = measure(shares, handles, threads);
    free(memory);
    free(handles);
    free(shares);
    return limits;
}
