/* SPDX-License-Identifier: Apache-2.0 */
/* How exact compiled kernels' functions of one f32 are: runs each on floats, on all cores, against the C library's
 * functions of doubles, and those of long doubles where two floats are about equally near.
 *   accuracy [--every N] [--level LEVEL] [FUNCTION...]
 * takes every Nth float, by default all of them; LEVEL is a CPU level of the policy's, by default the machine's own.
 * Prints a table in Markdown. The exit status is 1 when a function is beyond its bound, or a special value is wrong. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tgmath.h>
#include <unistd.h>
#include "codegen/codegen.h"
#include "codegen/llvm_plugin.h"
#include "codegen/object.h"

/* ---- functions ---- */

#define FORM(name, ...)                                                                                                \
    static double name##_f64(double x) { return __VA_ARGS__; }                                                         \
    static long double name##_widest(long double x) { return __VA_ARGS__; }
#define NUMBER(value) ((__typeof__(x))value##L)
#define GELU_ARGUMENT (NUMBER(0.7978845608028653558798921198687637369) * (x + NUMBER(0.044715) * x * x * x))

FORM(negative, -x)
FORM(sign, x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x)
FORM(inverse, 1 / x)
FORM(inverse_root, 1 / sqrt(x))
FORM(sigmoid, 1 / (1 + exp(-x)))
FORM(one_plus_tanh, 2 / (1 + exp(-2 * x)))
FORM(gelu_erf, x / 2 * erfc(-x * NUMBER(0.7071067811865475244008443621048490393)))
FORM(gelu_tanh, x / (1 + exp(-2 * GELU_ARGUMENT)))
FORM(swish, x / (1 + exp(-x)))

typedef struct Function {
    const char *name;
    const char *body; /* from x to v; NULL: the primitive of that name */
    double (*f64)(double);
    long double (*widest)(long double);
    double bound;     /* units in the last place */
    bool of_argument; /* units of x: a sum within cancels where the result is much smaller */
} Function;

static const Function functions[] = {
    {"neg", NULL, negative_f64, negative_widest, 0},
    {"abs", NULL, (fabs), fabsl, 0},
    {"sign", NULL, sign_f64, sign_widest, 0},
    {"floor", NULL, (floor), floorl, 0},
    {"ceil", NULL, (ceil), ceill, 0},
    {"round", NULL, (rint), rintl, 0},
    {"trunc", NULL, (trunc), truncl, 0},
    {"sqrt", NULL, (sqrt), sqrtl, 0.5},
    {"reciprocal", NULL, inverse_f64, inverse_widest, 0.5},
    {"rsqrt", "r: f32[n] = sqrt x\n v: f32[n] = reciprocal r", inverse_root_f64, inverse_root_widest, 2},
    {"exp", NULL, (exp), expl, 2},
    {"log", NULL, (log), logl, 2},
    {"log1p", NULL, (log1p), log1pl, 2},
    {"expm1", NULL, (expm1), expm1l, 2},
    {"sin", NULL, (sin), sinl, 2},
    {"cos", NULL, (cos), cosl, 2},
    {"tan", NULL, (tan), tanl, 2},
    {"asin", NULL, (asin), asinl, 2},
    {"acos", NULL, (acos), acosl, 2},
    {"atan", NULL, (atan), atanl, 2},
    {"sinh", NULL, (sinh), sinhl, 2},
    {"cosh", NULL, (cosh), coshl, 2},
    {"tanh", NULL, (tanh), tanhl, 2},
    {"asinh", NULL, (asinh), asinhl, 2},
    {"acosh", NULL, (acosh), acoshl, 2},
    {"atanh", NULL, (atanh), atanhl, 2},
    {"erf", NULL, (erf), erfl, 2.6},
    {"sigmoid", NULL, sigmoid_f64, sigmoid_widest, 2},
    {"1 + tanh(x)", "one = constant f32[] 1\n t: f32[n] = tanh x\n v: f32[n] = add t, one", one_plus_tanh_f64,
     one_plus_tanh_widest, 2},
    {"GELU by erf",
     "root = constant f32[] 1.41421356\n one = constant f32[] 1\n half = constant f32[] 0.5\n d: f32[n] = div x, root\n"
     " e: f32[n] = erf d\n a: f32[n] = add e, one\n h: f32[n] = mul x, half\n v: f32[n] = mul h, a",
     gelu_erf_f64, gelu_erf_widest, 4, .of_argument = true},
    {"GELU by tanh",
     "c = constant f32[] 0.044715\n s = constant f32[] 0.7978845608\n one = constant f32[] 1\n half = constant f32[] "
     "0.5\n xx: f32[n] = mul x, x\n xxx: f32[n] = mul xx, x\n m: f32[n] = mul xxx, c\n p: f32[n] = add x, m\n"
     " u: f32[n] = mul p, s\n t: f32[n] = tanh u\n a: f32[n] = add t, one\n h: f32[n] = mul x, half\n"
     " v: f32[n] = mul h, a",
     gelu_tanh_f64, gelu_tanh_widest, 4, .of_argument = true},
    {"swish", "s: f32[n] = sigmoid x\n v: f32[n] = mul x, s", swish_f64, swish_widest, 3, .of_argument = true},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static const float special_floats[] = {
    0,         -0.0f,      HUGE_VALF,        -HUGE_VALF,      NAN,           -NAN,     1,           -1,
    0x1p-149f, -0x1p-149f, 0x1.fffffep-127f, 0x1p-126f,       -0x1p-126f,    0.5f,     -0.5f,       88.7f,
    88.8f,     -87.4f,     -103.97f,         0x1.fffffep127f, -0x1p127f,     0x1p64f,  0x1p22f,     -0x1p23f,
    1.5f,      2.5f,       0x1.fffffep-1f,   0x1.000002p0f,   0x1.921fb6p0f, 16777216, -0.99999994f};
enum { SPECIALS = sizeof special_floats / sizeof *special_floats, BLOCK = 1 << 15 };

/* ---- what is counted ---- */

typedef struct Tally {
    double error; /* the largest */
    float at, got;
    int64_t values, not_nearest, special_wrong;
    int64_t subnormal, subnormal_not_nearest; /* results below 2^-126 */
    float special_at;
} Tally;

/* The number of the last places of `scale`, as a float, in 1. */
static double units_in_one(double scale) {
    uint64_t bits;
    memcpy(&bits, &scale, sizeof bits);
    int64_t exponent = (int64_t)(bits >> 52 & 0x7FF) - 1023;
    exponent = exponent < -126 ? -126 : exponent > 127 ? 127 : exponent;
    bits = (uint64_t)(1023 + 23 - exponent) << 52;
    double result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

static void count(const Function *f, float x, float got, Tally *t) {
    double exact = f->f64((double)x);
    t->values++;
    bool wrong = false;
    if (isnan(got) || isnan(exact))
        wrong = !isnan(got) || !isnan(exact);
    else if (isinf(exact))
        wrong = (double)got != exact;
    else {
        float nearest = (float)exact;
        double places = units_in_one(exact), value = isinf(got) ? copysign(0x1p128, (double)got) : (double)got;
        if (fabs(fabs(exact - (double)nearest) * places - 0.5) < 0x1p-20) nearest = (float)f->widest((long double)x);
        if (isinf(got) && isinf(nearest)) value = exact;
        double error = fabs(value - exact) * (f->of_argument ? units_in_one((double)x) : places);
        bool tiny = fabs(exact) < 0x1p-126 && exact != 0;
        wrong = got == 0 && nearest == 0 && !signbit(got) != !signbit(exact);
        t->not_nearest += got != nearest;
        t->subnormal += tiny;
        t->subnormal_not_nearest += tiny && got != nearest;
        if (error > t->error) t->error = error, t->at = x, t->got = got;
    }
    if (wrong && !t->special_wrong++) t->special_at = x;
}

static void add_tally(Tally *sum, const Tally *t) {
    if (t->error > sum->error) sum->error = t->error, sum->at = t->at, sum->got = t->got;
    if (!sum->special_wrong) sum->special_at = t->special_at;
    sum->values += t->values;
    sum->not_nearest += t->not_nearest;
    sum->special_wrong += t->special_wrong;
    sum->subnormal += t->subnormal;
    sum->subnormal_not_nearest += t->subnormal_not_nearest;
}

/* ---- kernels, on all cores ---- */

static void must(Status status) {
    if (!status) return;
    fprintf(stderr, "%s\n", status_message(status));
    exit(5);
}

typedef struct Sweep {
    const Function *function;
    const Kernel *kernel;
    KernelFunction run;
    uint64_t every, blocks;
    atomic_uint_fast64_t next; /* block */
} Sweep;

/* The floats of a block; the special ones stand before all others. */
static int64_t floats_of(const Sweep *s, uint64_t block, float *x) {
    if (block == 0) {
        memcpy(x, special_floats, sizeof special_floats);
        return SPECIALS;
    }
    int64_t n = 0;
    for (uint64_t bits = (block - 1) * BLOCK * s->every; n < BLOCK && bits <= UINT32_MAX; bits += s->every, n++) {
        uint32_t narrow = (uint32_t)bits;
        memcpy(x + n, &narrow, sizeof narrow);
    }
    return n;
}

static void *work(void *argument) {
    Sweep *s = argument;
    Tally *tally = calloc(1, sizeof *tally);
    float *x = aligned_alloc(64, 2 * BLOCK * sizeof *x), *y = x + BLOCK;
    uint64_t block;
    while ((block = atomic_fetch_add(&s->next, 1)) < s->blocks) {
        int64_t n = floats_of(s, block, x);
        s->run((void *[]){x, y}, &n, 0, kernel_tasks(s->kernel, &n), NULL);
        for (int64_t i = 0; i < n; i++) count(s->function, x[i], y[i], tally);
    }
    free(x);
    return tally;
}

static Graph *body_of(const Function *f) {
    char text[1024];
    if (f->body)
        snprintf(text, sizeof text, "graph (x: f32[n]) -> (v) {\n %s\n}", f->body);
    else
        snprintf(text, sizeof text, "graph (x: f32[n]) -> (v) {\n v: f32[n] = %s x\n}", f->name);
    Graph *body;
    must(graph_parse(text, &body));
    return body;
}

static Tally sweep(const Function *f, const LlvmPlugin *plugin, const Target *target, uint64_t every) {
    Graph *body = body_of(f);
    Node region = {.kind = NODE_REGION, .op = "region", .subgraphs = &body, .subgraph_count = 1};
    RegionKernel lowered;
    void *object;
    size_t size;
    ObjectCode code;
    must(codegen_region(body->arena, body->dims, &region, target, &lowered));
    must(plugin->compile(lowered.kernel, target, &object, &size));
    must(object_load(object, size, KERNEL_SYMBOL, &code));
    uint64_t values = (UINT64_C(1) << 32) / every + 1;
    Sweep s = {.function = f, .kernel = lowered.kernel, .every = every, .blocks = 2 + values / BLOCK};
    memcpy(&s.run, &code.function, sizeof s.run);

    enum { MOST_THREADS = 1024 };
    pthread_t threads[MOST_THREADS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int started = 0;
    while (started < MOST_THREADS && started < cores && !pthread_create(&threads[started], NULL, work, &s)) started++;
    Tally sum = {0};
    for (int i = 0; i < started; i++) {
        void *part;
        pthread_join(threads[i], &part);
        add_tally(&sum, part);
        free(part);
    }
    object_unload(&code);
    free(object);
    graph_destroy(body);
    return sum;
}

/* ---- the table ---- */

static bool print_row(const Function *f, const Tally *t) {
    double share = 100 * (double)t->not_nearest / (double)t->values;
    printf("| %s | %.3f%s | %a | %.3g %% | %lld | %lld of %lld |\n", f->name, t->error, f->of_argument ? " of x" : "",
           (double)t->at, share, (long long)t->special_wrong, (long long)t->subnormal_not_nearest,
           (long long)t->subnormal);
    fflush(stdout);
    bool good = t->values > 0 && t->error <= f->bound && !t->special_wrong;
    if (t->error > f->bound)
        fprintf(stderr, "%s(%a) = %a is %g units in the last place off, not at most %g\n", f->name, (double)t->at,
                (double)t->got, t->error, f->bound);
    if (t->special_wrong) fprintf(stderr, "%s(%a) is a wrong special value\n", f->name, (double)t->special_at);
    return good;
}

int main(int argc, char **argv) {
    Target target = {.device = DEVICE_CPU, .level = "host"};
    uint64_t every = 1;
    int first = 1;
    for (; first + 1 < argc && argv[first][0] == '-'; first += 2)
        if (strcmp(argv[first], "--every") == 0 && atoll(argv[first + 1]) > 0)
            every = (uint64_t)atoll(argv[first + 1]);
        else if (strcmp(argv[first], "--level") == 0)
            target.level = argv[first + 1];
        else
            break;
    if (first < argc && argv[first][0] == '-') {
        fputs("usage: accuracy [--every N] [--level LEVEL] [FUNCTION...]\n", stderr);
        return 2;
    }
    Arena *arena = arena_create(0);
    must(target_resolve(arena, &target));
    const LlvmPlugin *plugin;
    must(llvm_plugin_get(&plugin));
    bool good = true;
    int ran = 0;
    puts("| function | largest error | at | not nearest | wrong special values | subnormal results not nearest |\n"
         "|---|---|---|---|---|---|");
    for (int i = 0; i < FUNCTIONS; i++) {
        bool wanted = first == argc;
        for (int a = first; a < argc; a++) wanted |= strcmp(argv[a], functions[i].name) == 0;
        if (!wanted) continue;
        Tally t = sweep(&functions[i], plugin, &target, every);
        good &= print_row(&functions[i], &t);
        ran++;
    }
    arena_destroy(arena);
    if (!ran) fputs("there is no such function\n", stderr);
    return good && ran ? 0 : 1;
}
