/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the machine's limits with loops that do nothing else. Each is run for some milliseconds, several times, and
 * the fastest time counts: others may be at work on the machine, and nothing makes it faster than it is. */
#include "runtime/machine/limits.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include "base/heap.h"
#include "base/vectors/vector_isa.h"

enum {
    TRIALS = 6,
    TRIAL_NS = 3000000,
    CHAINS = 12, /* independent sums: as many as the latency of a multiply-add needs at two a cycle, and a few more */
    ROUNDS = 4096,
    LINE = 64,
    STEP = 4 * LINE, /* bytes of a loop's body */
    SMALLEST = 64 << 10,
    LARGEST = 256 << 20,
};

/* --- loops, once for each width of vectors --- */
typedef struct Loops {
    float (*read)(const char *from, int64_t bytes);
    void (*write)(char *to, int64_t bytes);
    void (*copy)(char *to, const char *from, int64_t bytes);
    void (*write_past)(char *to, int64_t bytes); /* stores that leave the caches out; NULL: there are none */
    void (*copy_past)(char *to, const char *from, int64_t bytes);
    float (*multiply_f32)(float x);
    double (*multiply_f64)(double x);
    int width; /* bytes of their vectors */
} Loops;

#define MULTIPLY(name, type, scalar, attribute)                                                                        \
    attribute static scalar name(scalar x) {                                                                           \
        type sums[CHAINS], factor = (type){0} + (scalar)0.999, term = (type){0} + x;                                   \
        scalar sum = 0;                                                                                                \
        for (int i = 0; i < CHAINS; i++) sums[i] = term + (scalar)i;                                                   \
        for (int r = 0; r < ROUNDS; r++)                                                                               \
            for (int i = 0; i < CHAINS; i++) sums[i] = sums[i] * factor + term;                                        \
        for (int i = 0; i < CHAINS; i++)                                                                               \
            for (int k = 0; k < (int)(sizeof(type) / sizeof(scalar)); k++) sum += sums[i][k];                          \
        return sum;                                                                                                    \
    }

/* width: bytes of a register, since vectors of several are split badly. The compiler may make no call of memset or memcpy
 * of these: what is stored is not all the same, or comes through arithmetic that it must not leave out. */
#define LOOPS(name, attribute, width)                                                                                  \
    typedef float floats_##name __attribute__((vector_size(width), may_alias));                                        \
    typedef double doubles_##name __attribute__((vector_size(width), may_alias));                                      \
    attribute static float read_##name(const char *from, int64_t bytes) {                                              \
        floats_##name a = {0}, b = a, c = a, d = a;                                                                    \
        float sum = 0;                                                                                                 \
        for (int64_t i = 0; i < bytes; i += 4 * (width)) {                                                             \
            const floats_##name *v = (const floats_##name *)(const void *)(from + i);                                  \
            a += v[0], b += v[1], c += v[2], d += v[3];                                                                \
        }                                                                                                              \
        a += b + c + d;                                                                                                \
        for (int k = 0; k < (int)((width) / sizeof(float)); k++) sum += a[k];                                          \
        return sum;                                                                                                    \
    }                                                                                                                  \
    attribute static void write_##name(char *to, int64_t bytes) {                                                      \
        floats_##name a = (floats_##name){0} + 1;                                                                      \
        for (int64_t i = 0; i < bytes; i += 4 * (width)) {                                                             \
            floats_##name *v = (floats_##name *)(void *)(to + i);                                                      \
            v[0] = v[1] = v[2] = v[3] = a;                                                                             \
            __asm__ volatile("" ::: "memory");                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    attribute static void copy_##name(char *to, const char *from, int64_t bytes) {                                     \
        for (int64_t i = 0; i < bytes; i += 4 * (width)) {                                                             \
            const floats_##name *v = (const floats_##name *)(const void *)(from + i);                                  \
            floats_##name *w = (floats_##name *)(void *)(to + i), a = v[0], b = v[1], c = v[2], d = v[3];              \
            w[0] = a, w[1] = b, w[2] = c, w[3] = d;                                                                    \
            __asm__ volatile("" ::: "memory");                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    MULTIPLY(multiply_f32_##name, floats_##name, float, attribute)                                                     \
    MULTIPLY(multiply_f64_##name, doubles_##name, double, attribute)

/* prefix: of the intrinsics; width: bytes of their vectors. */
#define STREAMS(name, attribute, vector, prefix, width)                                                                \
    attribute static void write_past_##name(char *to, int64_t bytes) {                                                 \
        vector a = prefix##_set1_ps(1);                                                                                \
        for (int64_t i = 0; i < bytes; i += (width)) prefix##_stream_ps((float *)(void *)(to + i), a);                 \
        _mm_sfence();                                                                                                  \
    }                                                                                                                  \
    attribute static void copy_past_##name(char *to, const char *from, int64_t bytes) {                                \
        for (int64_t i = 0; i < bytes; i += (width))                                                                   \
            prefix##_stream_ps((float *)(void *)(to + i), prefix##_load_ps((const float *)(const void *)(from + i)));  \
        _mm_sfence();                                                                                                  \
    }

#define ROW(name, past, width)                                                                                         \
    {                                                                                                                  \
        read_##name, write_##name, copy_##name, past(write_past_##name), past(copy_past_##name), multiply_f32_##name,  \
            multiply_f64_##name, width                                                                                 \
    }
#define PAST(function) function
#define NONE(function) NULL

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f")))
LOOPS(base, , 16)
STREAMS(base, , __m128, _mm, 16)
LOOPS(avx2, AVX2, 32)
STREAMS(avx2, AVX2, __m256, _mm256, 32)
LOOPS(avx512, AVX512, 64)
STREAMS(avx512, AVX512, __m512, _mm512, 64)
static const Loops base_loops = ROW(base, PAST, 16), avx2_loops = ROW(avx2, PAST, 32),
                   avx512_loops = ROW(avx512, PAST, 64);
#else
LOOPS(base, , 16)
static const Loops base_loops = ROW(base, NONE, 16);
#endif

static const Loops *loops_here(void) {
#if defined(__x86_64__)
    VectorIsa isa = vector_isa();
    if (isa != VECTOR_BASE) return isa == VECTOR_AVX512 ? &avx512_loops : &avx2_loops;
#endif
    return &base_loops;
}

/* --- products of narrow numbers, which have instructions of their own --- */
typedef struct NarrowLoop {
    int (*run)(int x);
    double work; /* multiplications and additions of a call */
} NarrowLoop;

#if defined(__x86_64__)
#define ANY_VECTOR(x) "+v"(x)
#else
#define ANY_VECTOR(x) "+w"(x)
#endif
/* step: of `sum`, x and y; they do not stand still for the compiler, which would take them out of the loop. */
#define NARROW(name, attribute, vector, step)                                                                          \
    attribute static int name(int from) {                                                                              \
        typedef int Lanes __attribute__((vector_size(sizeof(vector))));                                                \
        vector sums[CHAINS], x = (vector)((Lanes){0} + from), y = x;                                                   \
        Lanes all = (Lanes)x;                                                                                          \
        for (int i = 0; i < CHAINS; i++) sums[i] = x;                                                                  \
        for (int r = 0; r < ROUNDS; r++)                                                                               \
            for (int i = 0; i < CHAINS; i++) {                                                                         \
                vector sum = sums[i];                                                                                  \
                __asm__("" : ANY_VECTOR(x));                                                                           \
                sums[i] = step;                                                                                        \
            }                                                                                                          \
        for (int i = 0; i < CHAINS; i++) all ^= (Lanes)sums[i];                                                        \
        return all[0];                                                                                                 \
    }
#define NARROW_WORK(products) (2.0 * CHAINS * ROUNDS * (products))

/* AMX: two tiles of rows by two of weights, of 16 x 64 bytes each, into four of sums. */
#define AMX_SUMS 4
#define NARROW_AMX(name, attribute, dot)                                                                               \
    attribute static int name(int from) {                                                                              \
        unsigned char shape[64] = {1}, sums[64] = {0};                                                                 \
        for (int t = 0; t < 8; t++) shape[16 + 2 * t] = 64, shape[48 + t] = 16;                                        \
        _tile_loadconfig(shape);                                                                                       \
        _tile_zero(0);                                                                                                 \
        _tile_zero(1);                                                                                                 \
        _tile_zero(2);                                                                                                 \
        _tile_zero(3);                                                                                                 \
        _tile_zero(4);                                                                                                 \
        _tile_zero(5);                                                                                                 \
        _tile_zero(6);                                                                                                 \
        _tile_zero(7);                                                                                                 \
        for (int r = 0; r < ROUNDS; r++) {                                                                             \
            dot(0, 4, 6);                                                                                              \
            dot(1, 5, 6);                                                                                              \
            dot(2, 4, 7);                                                                                              \
            dot(3, 5, 7);                                                                                              \
        }                                                                                                              \
        _tile_stored(0, sums, 0);                                                                                      \
        return sums[0] + from;                                                                                         \
    }
#define AMX_WORK(numbers) (2.0 * AMX_SUMS * ROUNDS * 16 * 16 * (numbers))

#if defined(__x86_64__)
#define VNNI512 __attribute__((target("avx512f,avx512vnni")))
#define VNNI256 __attribute__((target("avx2,avxvnni")))
#define BF16 __attribute__((target("avx512f,avx512bf16")))
#define AMX __attribute__((target("amx-tile,amx-int8,amx-bf16")))
NARROW(bytes_avx2, AVX2, __m256i, _mm256_add_epi32(sum, _mm256_madd_epi16(x, y)))
NARROW(bytes_avxvnni, VNNI256, __m256i, _mm256_dpbusd_avx_epi32(sum, x, y))
NARROW(bytes_avx512vnni, VNNI512, __m512i, _mm512_dpbusd_epi32(sum, x, y))
NARROW(pairs_avx512bf16, BF16, __m512, _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y))
NARROW_AMX(bytes_amx, AMX, _tile_dpbusd)
NARROW_AMX(pairs_amx, AMX, _tile_dpbf16ps)
#elif defined(__aarch64__) && !defined(__clang__) /* which wants a unit for each */
#define ARM_LOOPS
#define DOT_PRODUCT __attribute__((target("arch=armv8.2-a+dotprod")))
#define I8MM __attribute__((target("arch=armv8.2-a+i8mm")))
#define BF16 __attribute__((target("arch=armv8.2-a+bf16")))
NARROW(bytes_dotprod, DOT_PRODUCT, int32x4_t, vdotq_s32(sum, (int8x16_t)x, (int8x16_t)y))
NARROW(bytes_i8mm, I8MM, int32x4_t, vusmmlaq_s32(sum, (uint8x16_t)x, (int8x16_t)y))
NARROW(pairs_bf16, BF16, float32x4_t, vbfmmlaq_f32(sum, (bfloat16x8_t)x, (bfloat16x8_t)y))
#endif

/* run NULL: there are none, and the numbers are widened. */
static NarrowLoop bytes_here(void) {
#if defined(__x86_64__)
    if (vector_has_amx_int8()) return (NarrowLoop){bytes_amx, AMX_WORK(64)};
    if (vector_isa() == VECTOR_AVX512 && vector_has_vnni()) return (NarrowLoop){bytes_avx512vnni, NARROW_WORK(64)};
    if (vector_has_avx_vnni()) return (NarrowLoop){bytes_avxvnni, NARROW_WORK(32)};
    if (vector_isa() != VECTOR_BASE) return (NarrowLoop){bytes_avx2, NARROW_WORK(16)};
#elif defined(ARM_LOOPS)
    if (vector_has_i8mm()) return (NarrowLoop){bytes_i8mm, NARROW_WORK(32)};
    if (vector_has_dot_product()) return (NarrowLoop){bytes_dotprod, NARROW_WORK(16)};
#endif
    return (NarrowLoop){0};
}

static NarrowLoop pairs_here(void) {
#if defined(__x86_64__)
    if (vector_has_amx_bf16()) return (NarrowLoop){pairs_amx, AMX_WORK(32)};
    if (vector_isa() == VECTOR_AVX512 && vector_has_bf16()) return (NarrowLoop){pairs_avx512bf16, NARROW_WORK(32)};
#elif defined(ARM_LOOPS)
    if (vector_has_bf16()) return (NarrowLoop){pairs_bf16, NARROW_WORK(16)};
#endif
    return (NarrowLoop){0};
}

/* --- on all threads --- */
typedef enum Kind { READ, WRITE, WRITE_PAST, COPY, COPY_PAST, MULTIPLY_F32, MULTIPLY_F64, MULTIPLY_NARROW } Kind;

typedef struct Measurement {
    const Loops *loops;
    NarrowLoop narrow;
    Pool *pool;
    Kind kind;
    char *memory;
    int64_t share; /* bytes a thread */
    int repeats;
    float kept; /* so that nothing is left out */
} Measurement;

static float run_once(const Measurement *m, char *own) {
    int64_t half = m->share / 2;
    switch (m->kind) {
    case READ: return m->loops->read(own, m->share);
    case WRITE: m->loops->write(own, m->share); break;
    case WRITE_PAST: m->loops->write_past(own, m->share); break;
    case COPY: m->loops->copy(own + half, own, half); break;
    case COPY_PAST: m->loops->copy_past(own + half, own, half); break;
    case MULTIPLY_F32: return m->loops->multiply_f32(m->memory[0]);
    case MULTIPLY_F64: return (float)m->loops->multiply_f64(m->memory[0]);
    default: return (float)m->narrow.run(m->memory[0]);
    }
    return 0;
}

static void run_share(void *context, int64_t begin, int64_t end, int worker) {
    Measurement *m = context;
    (void)worker;
    for (int64_t t = begin; t < end; t++) {
        float sum = 0;
        for (int r = 0; r < m->repeats; r++) sum += run_once(m, m->memory + m->share * t);
        if (sum == 42.25f) m->kept = sum;
    }
}

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double seconds_of(Measurement *m) {
    double begin = now_seconds();
    pool_for(m->pool, pool_threads(m->pool), 1, run_share, m);
    return now_seconds() - begin;
}

/* Seconds that one repeat takes at best. */
static double best_seconds(Measurement *m, Kind kind) {
    m->kind = kind;
    m->repeats = 1;
    double took = seconds_of(m), best = took; /* also brings the working set where it stays */
    m->repeats = took > 0 && took < TRIAL_NS * 1e-9 ? (int)(TRIAL_NS * 1e-9 / took) + 1 : 1;
    for (int trial = 0; trial < TRIALS; trial++) {
        took = seconds_of(m) / m->repeats;
        if (took < best) best = took;
    }
    return best;
}

static double more(double a, double b) { return a > b ? a : b; }

static Bandwidth measure_bandwidth(Measurement *m, int64_t share) {
    double bytes = (double)share * pool_threads(m->pool);
    m->share = share;
    Bandwidth b = {bytes, bytes / best_seconds(m, READ), bytes / best_seconds(m, WRITE), bytes / best_seconds(m, COPY)};
    if (!m->loops->write_past || share < SMALLEST * 8) return b;
    b.write = more(b.write, bytes / best_seconds(m, WRITE_PAST));
    b.copy = more(b.copy, bytes / best_seconds(m, COPY_PAST));
    return b;
}

static double measure_narrow(Measurement *m, NarrowLoop loop, double widened) {
    m->narrow = loop;
    return loop.run ? loop.work * pool_threads(m->pool) / best_seconds(m, MULTIPLY_NARROW) : widened;
}

/* Of the working sets, by thread: in second-level caches, at their edge, in a shared cache, and from memory. */
static void measure_all(Measurement *m, int64_t largest, MachineLimits *out) {
    for (int64_t share = SMALLEST; share < largest; share *= 8)
        out->bandwidths[out->count++] = measure_bandwidth(m, share);
    out->bandwidths[out->count++] = measure_bandwidth(m, largest);
    /* a larger working set is no faster: what says so was disturbed */
    for (int i = out->count - 2; i >= 0; i--) {
        Bandwidth *b = &out->bandwidths[i];
        b->read = more(b->read, b[1].read);
        b->write = more(b->write, b[1].write);
        b->copy = more(b->copy, b[1].copy);
    }
    double bytes = 2.0 * CHAINS * ROUNDS * pool_threads(m->pool) * m->loops->width;
    out->products[WORK_F32] = bytes / sizeof(float) / best_seconds(m, MULTIPLY_F32);
    out->products[WORK_F64] = bytes / sizeof(double) / best_seconds(m, MULTIPLY_F64);
    out->products[WORK_INTEGER] = out->products[WORK_F32]; /* instructions on as many lanes */
    out->products[WORK_BF16] = measure_narrow(m, pairs_here(), out->products[WORK_F32]);
    out->products[WORK_BYTES] = measure_narrow(m, bytes_here(), out->products[WORK_F32]);
}

/* Bytes that may be taken for a moment: a quarter of what is free. */
static int64_t room(void) {
    int64_t pages = sysconf(_SC_AVPHYS_PAGES), bytes = pages > 0 ? pages * sysconf(_SC_PAGESIZE) / 4 : LARGEST;
    long long limit = 0;
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "re"); /* of a container; "max" where there is none */
    if (file && fscanf(file, "%lld", &limit) == 1 && limit / 4 < bytes) bytes = limit / 4;
    if (file) fclose(file);
    return bytes < LARGEST ? bytes : LARGEST;
}

Status machine_measure(Pool *pool, MachineLimits *out_limits) {
    int threads = pool_threads(pool);
    int64_t largest = room() / threads / (2 * STEP) * (2 * STEP);
    if (largest < SMALLEST) largest = SMALLEST;
    Measurement m = {.loops = loops_here(), .pool = pool};
    m.memory = heap_alloc((size_t)largest * (size_t)threads);
    *out_limits = (MachineLimits){.threads = threads};
    if (!m.memory) return status_out_of_memory();
    m.share = largest;
    m.kind = WRITE; /* each thread its own pages, so that they are near it */
    m.repeats = 1;
    seconds_of(&m);
    measure_all(&m, largest, out_limits);
    heap_free(m.memory, (size_t)largest * (size_t)threads);
    return NULL;
}
