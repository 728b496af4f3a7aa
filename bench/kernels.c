/* SPDX-License-Identifier: Apache-2.0 */
/* Bandwidth of rendered kernels, compiled as the library compiles them, against a plain streaming loop of the same
 * traffic, on two threads, and of those that compute much against a loop written by hand (marks.h): the numbers by
 * which the renderer's choices are tuned.
 * kernels [LEVEL] [NAME] */
#include "../tests/codegen/handmade.h"
#include "codegen/codegen.h"
#define MARK_BITS 256
#include "marks.h"
#define MARK_BITS 512
#include "marks.h"
#include "runtime/device/session_memory.h"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 2, MOST_BUFFERS = 8 };

typedef struct Case {
    const char *name;
    Kernel *(*make)(Arena *);
    size_t bytes[MOST_BUFFERS]; /* of each buffer */
    int64_t params[4];
    double flops;
    /* In the place of make, bytes and params: */
    const char *text;   /* a region */
    int64_t symbols[3]; /* its sizes, in the order of the text */
    Mark marks[2];      /* the same by hand, with vectors of 256 and of 512 bits */
    int64_t rows;       /* that the marks' work consists of */
} Case;

static Kernel *make_axpb(Arena *arena) { /* x * 2 + 1 */
    Maker m = maker(arena, 16384);
    axis(&m, AXIS_LANE, -1, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1));
    int y = op(&m, K_FMA, DT_F32, x, constant(&m, DT_F32, 2), constant(&m, DT_F32, 1));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1), y);
    return m.kernel;
}

/* tanh-like: a dozen multiply-adds and a division an element, in cache. */
static Kernel *make_polynomial(Arena *arena) {
    Maker m = maker(arena, 4096);
    axis(&m, AXIS_LANE, -1, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1)), p = constant(&m, DT_F32, 0.125);
    for (int n = 0; n < 20; n++) p = op(&m, K_FMA, DT_F32, p, x, constant(&m, DT_F32, 0.1 * n));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1), p);
    return m.kernel;
}

/* As long as several transcendental functions one after the other: a hundred dependent instructions. */
static Kernel *make_chain(Arena *arena) {
    Maker m = maker(arena, 4096);
    axis(&m, AXIS_LANE, -1, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1)), y = x;
    for (int n = 0; n < 100; n++)
        y = n % 8 == 7 ? op(&m, K_MAX, DT_F32, y, x, 0) : op(&m, K_FMA, DT_F32, y, x, constant(&m, DT_F32, 0.01 * n));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1), y);
    return m.kernel;
}

/* y = norm(x + residual + bias) * scale + shift over rows. */
static Kernel *make_norm(Arena *arena) {
    Maker m = maker(arena, 0);
    axis(&m, AXIS_TASK, -1, 1);
    axis(&m, AXIS_REDUCE_LANE, -2, 1);
    KernelAccess rows = STRIDES(&m, -2, 1), line = STRIDES(&m, 0, 1);
    int x = load(&m, buffer(&m, DT_F32, false), rows), b = load(&m, buffer(&m, DT_F32, false), line);
    int r = load(&m, buffer(&m, DT_F32, false), rows);
    int s = op(&m, K_ADD, DT_F32, op(&m, K_ADD, DT_F32, x, b, 0), r, 0);
    keep(&m, s);
    int n = op(&m, K_CAST, DT_F32, inst(&m, (KernelInst){.op = K_PARAM, .dtype = DT_I64, .bits = 1}), 0, 0);
    int mean = op(&m, K_DIV, DT_F32, op(&m, K_REDUCE_SUM, DT_F32, s, 0, 0), n, 0);
    int d = op(&m, K_SUB, DT_F32, s, mean, 0);
    int var = op(&m, K_DIV, DT_F32, op(&m, K_REDUCE_SUM, DT_F32, op(&m, K_MUL, DT_F32, d, d, 0), 0, 0), n, 0);
    int inverse = op(&m, K_DIV, DT_F32, constant(&m, DT_F32, 1),
                     op(&m, K_SQRT, DT_F32, op(&m, K_ADD, DT_F32, var, constant(&m, DT_F32, 1e-5), 0), 0, 0), 0);
    int scale = load(&m, buffer(&m, DT_F32, false), line), shift = load(&m, buffer(&m, DT_F32, false), line);
    int y = op(&m, K_FMA, DT_F32, op(&m, K_MUL, DT_F32, d, inverse, 0), scale, shift);
    store(&m, buffer(&m, DT_F32, true), rows, y);
    return m.kernel;
}

static Kernel *make_row_sums(Arena *arena) {
    Maker m = maker(arena, 0);
    axis(&m, AXIS_TASK, -1, 1);
    axis(&m, AXIS_REDUCE_LANE, -2, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, -2, 1));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1, 0), op(&m, K_REDUCE_SUM, DT_F32, x, 0, 0));
    return m.kernel;
}

static Kernel *make_row_max(Arena *arena) {
    Maker m = maker(arena, 0);
    axis(&m, AXIS_TASK, -1, 1);
    axis(&m, AXIS_REDUCE_LANE, -2, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, -2, 1));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1, 0), op(&m, K_REDUCE_MAX, DT_F32, x, 0, 0));
    return m.kernel;
}

static int column_block = 1024, column_band = 64;
static Kernel *make_column_sums(Arena *arena) {
    Maker m = maker(arena, column_block);
    axis(&m, AXIS_LANE, -1, 1);
    axis(&m, AXIS_REDUCE, -2, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1, -1));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1, 0), op(&m, K_REDUCE_SUM, DT_F32, x, 0, 0));
    m.kernel->band = column_band;
    return m.kernel;
}

static int tile_rows = 256, tile_lanes = 128;
static Kernel *make_transpose_add(Arena *arena) {
    Maker m = maker(arena, tile_lanes);
    m.kernel->tile_axis = axis(&m, AXIS_TASK, -1, 1);
    m.kernel->tile_block = tile_rows;
    axis(&m, AXIS_LANE, -2, 1);
    int a = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1, -1)),
        b = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, -2, 1));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, -2, 1), op(&m, K_ADD, DT_F32, a, b, 0));
    return m.kernel;
}

/* The patterns whose kernels are bound by arithmetic. */
#define WIDE_ROWS "graph (x: f32[b, 4096], bias: f32[4096]) -> (y) {\n a: f32[b, 4096] = add x, bias\n"
#define GELU_ERF(result)                                                                                               \
    " root = constant f32[] 1.4142135\n one = constant f32[] 1\n half = constant f32[] 0.5\n"                          \
    " d: f32[b, 4096] = div a, root\n e: f32[b, 4096] = erf d\n o: f32[b, 4096] = add e, one\n"                        \
    " g: f32[b, 4096] = mul a, o\n " result ": f32[b, 4096] = mul g, half\n"
#define DROPOUT(rows, of, to)                                                                                          \
    " eight = constant u32[] 8\n ratio = constant u32[] 1677722\n scale = constant f32[] 1.1111112\n"                  \
    " zero = constant f32[] 0\n w: u32" rows " = philox seed {shape = " to "}\n i: u32" rows " = shr w, eight\n"       \
    " kept: bool" rows " = ge i, ratio\n up: f32" rows " = mul " of ", scale\n"

static const char gelu_erf[] = WIDE_ROWS GELU_ERF("y") "}";
static const char gelu_tanh[] =
    WIDE_ROWS " c = constant f32[] 0.044715\n s = constant f32[] 0.7978846\n one = constant f32[] 1\n half = "
              "constant f32[] 0.5\n q: f32[b, 4096] = mul a, a\n p: f32[b, 4096] = mul a, q\n k: f32[b, 4096] = mul p, "
              "c\n m: f32[b, 4096] = add a, k\n u: f32[b, 4096] = mul m, s\n t: f32[b, 4096] = tanh u\n o: f32[b, "
              "4096] = add t, one\n g: f32[b, 4096] = mul a, o\n y: f32[b, 4096] = mul g, half\n}";
static const char swish[] = WIDE_ROWS " s: f32[b, 4096] = sigmoid a\n y: f32[b, 4096] = mul a, s\n}";
static const char gelu_dropout[] =
    "graph (x: f32[b, 4096], bias: f32[4096], seed: u64[]) -> (y) {\n a: f32[b, 4096] = add x, bias\n" GELU_ERF("h")
        DROPOUT("[b, 4096]", "h", "(b, 4096)") " y: f32[b, 4096] = where kept, up, zero\n}";
static const char norm_dropout[] =
    "graph (x: f32[b, 1024], bias: f32[1024], seed: u64[], r: f32[b, 1024], g: f32[1024], t: f32[1024]) -> (y) {\n"
    " a: f32[b, 1024] = add x, bias\n" DROPOUT(
        "[b, 1024]", "a", "(b, 1024)") " e = constant f32[] 1e-05\n n = constant f32[] 0.0009765625\n"
                                       " z: f32[b, 1024] = where kept, up, zero\n v: f32[b, 1024] = add z, r\n"
                                       " s: f32[b, 1] = reduce_sum v {axes = [1]}\n m: f32[b, 1] = mul s, n\n"
                                       " d: f32[b, 1024] = sub v, m\n q: f32[b, 1024] = mul d, d\n"
                                       " c: f32[b, 1] = reduce_sum q {axes = [1]}\n k: f32[b, 1] = mul c, n\n"
                                       " l: f32[b, 1] = add k, e\n o: f32[b, 1] = sqrt l\n"
                                       " f: f32[b, 1024] = div d, o\n h: f32[b, 1024] = mul f, g\n"
                                       " y: f32[b, 1024] = add h, t\n}";
static const char softmax[] =
    "graph (s: f32[b, 12, q, k], m: f32[b, 1, 1, k]) -> (y) {\n c = constant f32[] 0.125\n x: f32[b, 12, q, k] = mul "
    "s, "
    "c\n a: f32[b, 12, q, k] = add x, m\n t: f32[b, 12, q, 1] = reduce_max a {axes = [3]}\n d: f32[b, 12, q, k] = sub "
    "a, t\n e: f32[b, 12, q, k] = exp d\n n: f32[b, 12, q, 1] = reduce_sum e {axes = [3]}\n y: f32[b, 12, q, k] = div "
    "e, n\n}";
static const char chain[] =
    "graph (x: f32[b, 4096]) -> (y) {\n c1 = constant f32[] 1.05\n c3 = constant f32[] 1.15\n c6 = constant f32[] 1.3\n"
    " c9 = constant f32[] 1.45\n c10 = constant f32[] 1.5\n c12 = constant f32[] 1.6\n c13 = constant f32[] 1.65\n"
    " c15 = constant f32[] 1.75\n c16 = constant f32[] 1.8\n c17 = constant f32[] 0\n c18 = constant f32[] 1.9\n"
    " v1: f32[b, 4096] = add x, c1\n v2: f32[b, 4096] = tanh v1\n v3: f32[b, 4096] = sub v2, c3\n"
    " v4: f32[b, 4096] = abs v3\n v5: f32[b, 4096] = sqrt v4\n v6: f32[b, 4096] = add v5, c6\n"
    " v7: f32[b, 4096] = neg v6\n v8: f32[b, 4096] = exp v7\n v9: f32[b, 4096] = mul v8, c9\n"
    " v10: f32[b, 4096] = add v9, c10\n v11: f32[b, 4096] = log v10\n v12: f32[b, 4096] = max v11, c12\n"
    " v13: f32[b, 4096] = mul v12, c13\n v14: f32[b, 4096] = sigmoid v13\n v15: f32[b, 4096] = sub v14, c15\n"
    " v16: f32[b, 4096] = mul v15, c16\n v17: f32[b, 4096] = max v16, c17\n v18: f32[b, 4096] = add v17, c18\n"
    " y: f32[b, 4096] = reciprocal v18\n}";

static const char transpose_add[] = "graph (x: f32[b, 4096], z: f32[4096, b]) -> (y) {\n c = constant f32[] 0\n t: "
                                    "f32[b, 4096] = permute z {perm = [1, 0]}\n"
                                    " a: f32[b, 4096] = add x, t\n y: f32[b, 4096] = max a, c\n}";

/* In the second-level cache, and as large as in memory. */
#define PATTERN(name, body, few, many, ...)                                                                            \
    {name " (L2)", .text = body, .symbols = {few}, .rows = few, .marks = __VA_ARGS__}, {                               \
        name, .text = body, .symbols = {many}, .rows = many, .marks = __VA_ARGS__                                      \
    }

#define MB ((size_t)1 << 20)
static const Case cases[] = {
    {"x*2+1 of 32M", make_axpb, {128 * MB, 128 * MB}, {32 << 20}, 0},
    {"x*2+1 of 64K (L2)", make_axpb, {256 << 10, 256 << 10}, {64 << 10}, 0},
    {"20 fma of 8K (L1)", make_polynomial, {32 << 10, 32 << 10}, {8 << 10}, 40.0 * (8 << 10)},
    {"100 dependent of 64K (L2)", make_chain, {256 << 10, 256 << 10}, {64 << 10}, 188.0 * (64 << 10)},
    PATTERN("bias, GELU by erf", gelu_erf, 16, 8192, MARKS(gelu_erf, 74.5, 32.4)),
    PATTERN("bias, GELU by tanh", gelu_tanh, 16, 8192, MARKS(gelu_tanh, 79.8, 30.9)),
    PATTERN("bias, swish", swish, 16, 8192, MARKS(swish, 56.5, 23.9)),
    PATTERN("bias, GELU by erf, dropout", gelu_dropout, 16, 8192, MARKS(gelu_dropout, 175.5, 68.6)),
    PATTERN("bias, dropout, residual, LayerNorm", norm_dropout, 64, 8192, MARKS(norm_dropout, 147.8, 57)),
    PATTERN("chain of twenty", chain, 16, 4096, MARKS(chain, 304.5, 119.1)),
    {"scale, mask, softmax (L2)", .text = softmax, .symbols = {1, 8, 512}, .rows = 96,
     .marks = MARKS(softmax, 63, 28.6)},
    {"scale, mask, softmax", .text = softmax, .symbols = {8, 512, 512}, .rows = 49152,
     .marks = MARKS(softmax, 63, 28.6)},
    {"bias+residual+LayerNorm [8192,1024]", make_norm, {32 * MB, 4096, 32 * MB, 4096, 4096, 32 * MB}, {8192, 1024}, 0},
    {"bias+residual+LayerNorm [512,768] (L2)",
     make_norm,
     {1536 << 10, 3072, 1536 << 10, 3072, 3072, 1536 << 10},
     {512, 768},
     0},
    {"row sums 4096x4096", make_row_sums, {64 * MB, 16384}, {4096, 4096}, 0},
    {"row max 4096x4096", make_row_max, {64 * MB, 16384}, {4096, 4096}, 0},
    {"row max 128x1024 (L2)", make_row_max, {512 << 10, 512}, {128, 1024}, 0},
    {"column sums 4096x4096", make_column_sums, {64 * MB, 16384}, {4096, 4096}, 0},
    {"transpose, add, ReLU", .text = transpose_add, .symbols = {4096}, .rows = 4096,
     .marks = MARKS(transpose_add, 21, 17)},
    {"transpose-add 512x512 (L2)", make_transpose_add, {1 * MB, 1 * MB, 1 * MB}, {512, 512}, 0},
};

static double own_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* --- two threads that start together --- */

typedef struct Job {
    KernelFunction function;
    bool by_hand; /* the mark runs in the kernel's place */
    void *buffers[MOST_BUFFERS], *scratch[THREADS];
    void *values[MOST_BUFFERS]; /* as the mark has them */
    size_t bytes[MOST_BUFFERS];
    const int64_t *params;
    int64_t tasks, bands;
    const Case *what; /* with function NULL: the streaming loop */
    const Mark *mark; /* of the target's width; NULL: none */
    bool past;        /* its stores go past the caches */
    int repeats;
} Job;

typedef float Part16 __attribute__((vector_size(16)));
typedef struct Line {
    Part16 part[4];
} Line;

static inline void add_line(Line *sum, const Line *at) {
    for (int n = 0; n < 4; n++) sum->part[n] += at->part[n];
}

static inline void store_past(Line *at, Line value) {
#ifdef __SSE2__
    for (int n = 0; n < 4; n++) _mm_stream_ps((float *)&at->part[n], value.part[n]);
#else
    *at = value;
#endif
}

/* Reads and writes the case's buffers abreast, as shared/limits do: the least that any kernel must move. */
static void stream(const Job *job, int part) {
    Line sum = {{{0}}};
    size_t longest = 0;
    for (int b = 0; b < MOST_BUFFERS; b++)
        if (job->bytes[b] > longest) longest = job->bytes[b];
    long blocks = (long)((longest + 8191) / 8192);
    int last = 0;
    while (last + 1 < MOST_BUFFERS && job->bytes[last + 1]) last++;
    for (long k = blocks * part / THREADS; k < blocks * (part + 1) / THREADS; k++)
        for (int b = 0; b <= last; b++) {
            long lines = (long)(job->bytes[b] / 64), from = lines * k / blocks, to = lines * (k + 1) / blocks;
            Line *at = job->buffers[b];
            if (b < last)
                for (long i = from; i < to; i++) add_line(&sum, at + i);
            else if (job->past)
                for (long i = from; i < to; i++) store_past(&at[i], sum);
            else
                for (long i = from; i < to; i++) at[i] = sum;
        }
    if (sum.part[0][0] + sum.part[1][0] + sum.part[2][0] + sum.part[3][0] == 42) puts("");
}

typedef struct Part {
    const Job *job;
    int part;
    pthread_barrier_t *barrier, *among; /* among: the threads alone */
    double taken;                       /* of processor time: what others take of the machine's time does not count */
} Part;

/* This thread's tasks; those over bands, whose scratch memory is shared, come before the rest. */
static void run_part(const Job *job, const Part *p) {
    if (job->bands) {
        job->function(job->buffers, job->params, job->bands * p->part / THREADS, job->bands * (p->part + 1) / THREADS,
                      job->scratch[0]);
        pthread_barrier_wait(p->among);
    }
    job->function(job->buffers, job->params, job->bands + job->tasks * p->part / THREADS,
                  job->bands + job->tasks * (p->part + 1) / THREADS, job->scratch[job->bands ? 0 : p->part]);
    if (job->bands) pthread_barrier_wait(p->among);
}

static void run_mark(const Job *job, int part) {
    const Case *c = job->what;
    job->mark->loop(job->values, c->symbols, c->rows * part / THREADS, c->rows * (part + 1) / THREADS, job->past);
}

static void *work(void *argument) {
    Part *p = argument;
    const Job *job = p->job;
    pthread_barrier_wait(p->barrier);
    double start = own_time();
    for (int n = 0; n < job->repeats; n++)
        if (job->by_hand)
            run_mark(job, p->part);
        else if (job->function)
            run_part(job, p);
        else
            stream(job, p->part);
    p->taken = own_time() - start;
    pthread_barrier_wait(p->barrier);
    return NULL;
}

static double time_job(Job *job) {
    pthread_barrier_t barrier, among;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    pthread_barrier_init(&among, NULL, THREADS);
    pthread_t threads[THREADS];
    Part parts[THREADS];
    for (int i = 0; i < THREADS; i++) {
        parts[i] = (Part){job, i, &barrier, &among, 0};
        pthread_create(&threads[i], NULL, work, &parts[i]);
    }
    double taken = 0;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (parts[i].taken > taken) taken = parts[i].taken;
    }
    pthread_barrier_destroy(&barrier);
    pthread_barrier_destroy(&among);
    return taken / job->repeats;
}

/* The shortest of many runs, the ways in turn: other load on the machine then meets all of them. */
static void best_times(Job *job, KernelFunction function, double *out_stream, double *out_kernel, double *out_mark) {
    enum { KERNEL, STREAM = 2, MARK = 4, WAYS = 6 }; /* the odd ones past the caches */
    *out_stream = *out_kernel = *out_mark = 1e9;
    for (int n = 0; n < 40 * WAYS; n++) {
        int way = n % WAYS;
        job->function = way < STREAM ? function : NULL;
        job->past = way & 1;
        job->by_hand = way >= MARK;
        if (way == KERNEL + 1 || (job->by_hand && !job->mark)) continue;
        double t = time_job(job), *best = way >= MARK ? out_mark : way >= STREAM ? out_stream : out_kernel;
        if (t < *best) *best = t;
    }
}

/* By a chain of additions, one a cycle; eight a turn, for a turn may take two cycles where threads share a core. */
static double cycles_in_ms(void) {
    double best = 1e9;
    for (int n = 0; n < 20; n++) {
        double start = own_time();
        unsigned long x = 0;
        for (int i = 0; i < 1000000; i += 8)
            for (int k = 0; k < 8; k++) {
                x += 3;
                __asm__ volatile("" : "+r"(x));
            }
        double t = own_time() - start;
        if (t < best) best = t;
    }
    return 1000000 / best;
}

static void must(Status status) {
    if (!status) return;
    fprintf(stderr, "%s\n", status_message(status));
    exit(5);
}

/* A region's kernel, with its buffers in the order of the body's inputs and result too. */
static const Kernel *lowered(Arena *arena, const Target *target, const Case *c, Job *job) {
    Graph *body;
    RegionKernel k;
    must(graph_parse(c->text, &body));
    Node region = {.kind = NODE_REGION, .op = "region", .subgraphs = &body, .subgraph_count = 1};
    must(codegen_region(arena, body->dims, &region, target, &k));
    int64_t *params = ARENA_ARRAY(arena, int64_t, k.kernel->param_count + 1);
    for (int i = 0; i < k.kernel->param_count; i++) params[i] = dim_eval(k.params[i], c->symbols);
    job->params = params;
    for (int b = 0; b < k.buffer_count; b++) {
        bool input = k.buffer_input[b] >= 0;
        const Value *v = input ? body->inputs.items[k.buffer_input[b]] : body->outputs.items[0];
        job->bytes[b] = dtype_size(v->dtype);
        for (int i = 0; i < v->rank; i++) job->bytes[b] *= (size_t)dim_eval(v->dims[i], c->symbols);
        must(memory_alloc(NULL, job->bytes[b], &job->buffers[b])); /* placed as tensors are */
        job->values[input ? k.buffer_input[b] : body->inputs.count] = job->buffers[b];
    }
    return k.kernel; /* the body stays: a few KB a case */
}

static void fill(const Job *job, int count) {
    uint32_t state = 1;
    for (int b = 0; b < count; b++)
        for (size_t i = 0; i < job->bytes[b] / 4; i++) {
            state = state * 1664525 + 1013904223;
            ((float *)job->buffers[b])[i] = (float)(int32_t)state * 0x1p-29f; /* -4 to 4 */
        }
}

/* How many results of the kernel are other floats than those of the mark. */
static void compare(Job *job, int output) {
    size_t count = job->bytes[output] / 4, differ = 0;
    float *mark = malloc(job->bytes[output]), *kernel = job->buffers[output];
    job->by_hand = true;
    time_job(job);
    memcpy(mark, kernel, job->bytes[output]);
    job->by_hand = false;
    time_job(job);
    for (size_t i = 0; i < count; i++) differ += memcmp(mark + i, kernel + i, sizeof *mark) != 0;
    printf(", %.3g %% other bits", 100 * (double)differ / (double)count);
    free(mark);
}

static void dump(Arena *arena, const Kernel *kernel, const Policy *policy) {
    Text text = text_make(arena);
    must(kernel_listing(kernel, policy, getenv("DUMP")[0] == 'i' ? LISTING_LLVM : LISTING_ASSEMBLY, &text));
    puts(text.data);
}

/* The mark of vectors as wide as the target's. */
static const Mark *mark_of(const Case *c, const Target *target) {
    const Mark *mark = target->vector_bytes == 64 ? &c->marks[1] : target->vector_bytes == 32 ? &c->marks[0] : NULL;
    return mark && mark->loop ? mark : NULL;
}

/* What the mark's instructions take, in ms, at two a cycle of 512 bits or four of 256 (as AMD's cores begin them). */
static double counted_time(const Job *job, size_t result_bytes) {
    double groups = (double)result_bytes / 64 / THREADS, a_cycle = job->mark == &job->what->marks[1] ? 2 : 4;
    return groups * job->mark->counted / a_cycle / cycles_in_ms();
}

static void print_mark(Job *job, double kernel, double stream_time, double mark, int output) {
    double counted = counted_time(job, job->bytes[output]), least = counted > stream_time ? counted : stream_time;
    printf("  by hand %.4f ms, ratio %.2f; counted %.4f ms, by hand %.2f of it or stream", mark, mark / kernel, counted,
           least / mark);
    compare(job, output);
}

static void run_case(const Policy *policy, const Case *c) {
    Arena *arena = arena_create(0);
    Job job = {.params = c->params, .what = c, .mark = mark_of(c, &policy->target)};
    int buffers = 0;
    for (; c->make && buffers < MOST_BUFFERS && c->bytes[buffers]; buffers++) {
        job.bytes[buffers] = c->bytes[buffers];
        must(memory_alloc(NULL, c->bytes[buffers], &job.buffers[buffers]));
    }
    const Kernel *kernel = c->make ? c->make(arena) : lowered(arena, &policy->target, c, &job);
    while (buffers < kernel->buffers.count) buffers++;
    must(kernel_verify(kernel));
    KernelCode *code;
    KernelCacheStats stats = {0};
    must(kernel_cache_get(&kernel, 1, policy, &stats, &code));
    if (getenv("DUMP")) dump(arena, kernel, policy);
    job.tasks = kernel_tasks(kernel, job.params);
    job.bands = kernel_band_tasks(kernel, job.params);
    size_t total = 0;
    for (int b = 0; b < buffers; b++) total += job.bytes[b];
    fill(&job, buffers);
    for (int t = 0; t < THREADS; t++)
        job.scratch[t] = aligned_alloc(64, (kernel_scratch_bytes(kernel, job.params) + 127) / 64 * 64);
    job.repeats = (int)(((size_t)32 << 20) / total) + 1;
    double limit, taken, mark;
    best_times(&job, kernel_code_function(code), &limit, &taken, &mark);
    printf("%-40s %8.4f ms %6.1f GB/s  stream %8.4f ms  ratio %.2f", c->name, taken, (double)total / taken * 1e-6,
           limit, limit / taken);
    if (c->flops > 0) printf("  %.0f GFLOP/s", c->flops / taken * 1e-6);
    job.function = kernel_code_function(code);
    if (job.mark) print_mark(&job, taken, limit, mark, buffers - 1);
    printf("  compiled by %s in %.1f ms to %zu bytes\n", stats.by_llvm ? "LLVM" : "the native generator",
           stats.compile_ms, kernel_code_bytes(code));
    for (int b = 0; b < buffers; b++) memory_free(NULL, job.buffers[b]);
    for (int t = 0; t < THREADS; t++) free(job.scratch[t]);
    kernel_code_release(code);
    kernel_cache_trim(); /* the next case may have the same kernel, and is to compile it as well */
    arena_destroy(arena);
}

int main(int argc, char **argv) {
    Policy policy = {.target = {.device = DEVICE_CPU, .level = argc > 1 ? argv[1] : "host"}}; /* nothing kept on disk */
    Arena *arena = arena_create(0);
    must(target_resolve(arena, &policy.target));
    if (getenv("CACHE")) policy.target.cache_bytes = (size_t)atol(getenv("CACHE"));
    if (getenv("TILE")) sscanf(getenv("TILE"), "%dx%d", &tile_rows, &tile_lanes);
    if (getenv("COLUMNS_BLOCK")) sscanf(getenv("COLUMNS_BLOCK"), "%dx%d", &column_block, &column_band);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc < 3 || strstr(cases[i].name, argv[2])) run_case(&policy, &cases[i]);
    arena_destroy(arena);
    return 0;
}
