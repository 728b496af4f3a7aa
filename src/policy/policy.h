/* SPDX-License-Identifier: Apache-2.0 */
/* What the user wants (a JSON object, or the defaults) and what the device can do. Read by passes, codegen and runtime;
 * immutable once made. */
#ifndef ONNXFUSE_POLICY_POLICY_H
#define ONNXFUSE_POLICY_POLICY_H

#include <stddef.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/pool.h"
#include "base/text.h"

typedef enum DeviceKind { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA, DEVICE_OPENCL } DeviceKind;

/* What a kind of device offers to the passes and to codegen. */
typedef struct Target {
    DeviceKind device;
    /* For CPUs: "host", or a feature level: "x86-64" (SSE2), "x86-64-v3" (AVX2), "x86-64-v4" (AVX-512), "aarch64". With
     * "host" the three fields below are read off the machine by target_resolve. */
    const char *level;
    const char *cpu;      /* LLVM's name of the CPU */
    const char *features; /* LLVM's feature string, "" for the CPU's own */
    int vector_bytes;     /* 16, 32, 64 */
    /* What epilogues (lowering/anchors.h) its products and convolutions may have. */
    struct EpilogueLimits {
        int outputs;    /* most results; 0: no epilogues */
        bool any_types; /* else all is of the anchor's type, but in between for truth values, and f32 of f16 and bf16 */
    } epilogue;
    struct AnchorLimits { /* which anchors the device runs beside those that all do */
        bool attention, attention_backward;
        bool attention_drop;  /* both with SCORE_DROP */
        bool attention_sink;  /* both with SCORE_SINK */
        bool bytes;           /* products and convolutions of u8 by i8 */
        bool bits;            /* products with weights in blocks of few bits */
        bool grouped;         /* "matmul_grouped" */
        bool turned_conv;     /* "conv" with perm_x and perm_w */
        bool joined_products; /* products of one input are faster as one */
    } anchors;
    /* What is lowered is to be written in the standard's operators: where these have no gradient, Scans and primitives take the
     * place of our kernels. */
    bool standard;
    size_t cache_bytes; /* last-level cache, for the choice of streaming stores; 0 when unknown */
} Target;

static inline bool target_is_gpu(const Target *target) {
    return target->device == DEVICE_CUDA || target->device == DEVICE_OPENCL;
}

/* How exactly something is computed or kept. */
typedef enum Precision {
    PRECISION_AS_IS, /* as the model says */
    PRECISION_F32,
    PRECISION_F16,
    PRECISION_BF16,
    PRECISION_INT8, /* weights alone: blocks of 32 with a scale each */
    PRECISION_INT4, /* likewise */
} Precision;

/* One of the policy's rules: what is wanted of the nodes that match all of its conditions. */
typedef struct Rule {
    /* Conditions; NULL: any. */
    const char *name;      /* glob over the node's name: *, ?, [a-z] */
    const char *op;        /* operator, as in the model */
    const char *domain;    /* "" is the standard's */
    const char *pattern;   /* text (passes/pattern/pattern.h): the nodes of each place where it holds */
    bool optional;         /* no error when no node matches */
    Precision precision;   /* the nodes' floating-point computation and results */
    Precision weights;     /* their constant matrices */
    Precision activations; /* f32 or int8: what meets those of 2 and 4 bits */
    double tolerance;      /* the largest difference of the model's outputs from those of f32 that is accepted,
                            relative to the output's largest element; 0: not checked */
    enum {
        FUSE_AS_IS,
        FUSE_NEVER,
        FUSE_FREELY
    } fuse;            /* never: a step of its own for each node; freely: takes an
                          earlier rule back */
    DeviceKind device; /* DEVICE_CPU: not on the policy's device; DEVICE_AUTO: as is */
    const char *where; /* in the policy: "rules[2]", or the keys of the whole model: "precision, weights" */
    bool whole;        /* of the whole model: no conditions, and what has no floating point or weights stays as it is */
} Rule;

/* Whether it changes the numbers that nodes compute with, so that a tolerance has something to check. */
static inline bool rule_changes_numbers(const Rule *rule) {
    return rule->precision || rule->weights || rule->activations;
}

/* Sizes that the user expects. */
typedef struct ShapeHint {
    const char *const *symbols; /* [count] symbolic sizes of the model's inputs */
    const int64_t *sizes;       /* [count] */
    int count;
} ShapeHint;

/* A symbolic size that is rounded up, so that runs share their preparation. */
typedef struct ShapeBucket {
    const char *symbol;
    const int64_t *sizes; /* [size_count], rising */
    int size_count;
    const char *const *inputs; /* [pad_count] the inputs that have this size */
    const double *pads;        /* [pad_count] what they are filled up with */
    int pad_count;
} ShapeBucket;

/* One of the policy's custom fusions: its nodes become a kernel of their own. */
typedef struct PolicyFusion {
    const char *name;
    int phase;                   /* 1: forward, 2: backward, as OnnxfusePhase */
    const char *const *patterns; /* texts (passes/pattern/pattern.h), NULL-terminated */
    const char *path;            /* of the object in the policy, for messages: "fusions[0]" */
} PolicyFusion;

/* An output that is an input's value in the next run: of all inputs that the glob matches. */
typedef struct PolicyState {
    const char *input, *output; /* each * of the output's stands for what that of the input's has matched */
    int64_t capacity;           /* most rows along the axis; 0: not said */
    int axis;                   /* along which it grows; NO_AXIS: not said */
    const char *where;          /* "state[0]" */
} PolicyState;
enum { NO_AXIS = 1000 };

typedef enum Optimizer {
    OPTIMIZER_ADAM,
    OPTIMIZER_ADAMW,
    OPTIMIZER_SGD,
    OPTIMIZER_MOMENTUM,
    OPTIMIZER_ADAGRAD
} Optimizer;
typedef enum Schedule { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE } Schedule;

typedef struct Policy {
    struct {
        bool enable;                       /* fuse across operators; off: one region a primitive */
        bool memory_efficient;             /* prefer recomputing and the order of least peak memory */
        int max_region_nodes;              /* most primitives in one region */
        const char *const *custom_kernels; /* names of fusions to use, NULL-terminated; NULL: all that are registered,
                                              none of the built-in ones */
    } fusion;
    const Rule *rules; /* [rule_count], in the order of the policy; of two that say something of a node the later one
                          holds */
    int rule_count;
    const PolicyFusion *fusions; /* [fusion_count] */
    int fusion_count;
    struct {
        const char *inputs; /* folder of recorded inputs that the rules' tolerances are checked on; NULL: none */
    } check;
    struct {
        enum { FALLBACK_DEVICE_ERROR, FALLBACK_DEVICE_CPU } device; /* where `device` is not there */
        enum { FALLBACK_STEPS_ALLOW, FALLBACK_STEPS_FORBID } steps; /* the CPU for what `device` cannot do */
        DeviceKind instead_of; /* the device that was not there, where `device` is the CPU for that; else DEVICE_AUTO */
    } fallback;
    struct {
        const ShapeHint *hints; /* [hint_count] */
        int hint_count;
        const ShapeBucket *buckets; /* [bucket_count] */
        int bucket_count;
    } shapes;
    const PolicyState *states; /* [state_count] */
    int state_count;
    const struct Registry *registry; /* lowering/custom.h: the application's; NULL: none */
    const struct Registry *builtins; /* the built-in fusions (src/fusions); NULL: none */
    int threads;                     /* 0: the cores this process may run on */
    Pool *pool;                      /* the embedder's, used instead; NULL: the shared one of `threads` threads */
    DeviceKind device;
    struct {
        bool enable;           /* keep compiled kernels on disk */
        const char *directory; /* NULL: $XDG_CACHE_HOME/onnxfuse or ~/.cache/onnxfuse */
        int64_t max_megabytes; /* oldest entries go beyond it */
    } cache;
    int64_t
        memory_limit_megabytes; /* most memory a session may hold, weights and runs together, of the host's and of a GPU's
                                       so much each; 0: no limit but the
                                       machine's */
    uint64_t seed;              /* of random operators */
    bool deterministic;         /* the same bits in every run on the same machine, where a library could choose
                                       otherwise; our own kernels always are */
    bool winograd; /* the CPU's 3x3 convolutions of f32 may take Winograd's algorithm, where it is faster */
    struct {
        int device; /* ordinal among the machine's GPUs */
        const char
            *libraries; /* folder in which libcuda, libnvrtc, libcublasLt are looked for first; NULL: the usual */
        bool
            strict; /* a library that is missing or refuses a product is an error; else our own kernels take its place */
        bool tf32;  /* f32 products and convolutions may round their factors to 10 bits of mantissa */
        bool graphs; /* replay runs of known shapes as CUDA graphs */
    } cuda;
    struct {
        const char
            *device; /* part of the name of the device or its platform; NULL: the first GPU, else the first device */
        const char *library; /* the ICD loader; NULL: libOpenCL.so.1 */
    } opencl;
    struct Training {
        const char *loss;      /* what falls: as optimize/training.h reads it; NULL: the model's only output */
        const char *const *of; /* globs over the names of weights, NULL-terminated; NULL: all that look like weights */
        Optimizer optimizer;
        double rate; /* at its highest */
        Schedule schedule;
        int64_t warmup_steps, steps; /* of the schedule; steps 0: not known, so the rate stays */
        double momentum, beta1, beta2, epsilon, weight_decay;
        int64_t accumulation;     /* batches whose gradients one update takes */
        double clip_norm;         /* most that the norm of all gradients together may be; 0: not clipped */
        Precision precision;      /* of products and convolutions, forward and backward; with f16 the loss is scaled */
        double loss_scale;        /* to begin with */
        int64_t loss_scale_steps; /* after so many without an overflow it is doubled */
        int64_t
            saved_megabytes; /* most that is kept from forward to backward, where recomputing can do it; 0: no bound */
    } training;
    Target target;             /* resolved */
    const char *name;          /* of the file or text it was read from; NULL: the defaults */
    uint64_t in_file, by_flag; /* bits of 1 << the key's number in keys.c: where its value comes from */
} Policy;

Policy policy_default(void);
/* What messages about it begin with: the file that it was read from, or "policy". */
const char *policy_source(const Policy *policy);
/* Reads a JSON object over the defaults; strings go to the arena. `name` is the file's name for messages. Unknown keys,
 * wrong types and values out of range: STATUS_INVALID naming the JSON path ("fusion.enable: expected true or false,
 * found a string"). */
Status policy_parse(const char *json, size_t size, const char *name, Arena *arena, Policy *out_policy);
/* A relative check.inputs is looked for in the file's folder. */
Status policy_read(const char *path, Arena *arena, Policy *out_policy);
/* Reads over a policy what its user's options say: these are called "options" in messages, and what is told of the policy later names it. */
Status policy_override(const char *json, Arena *arena, Policy *policy);
/* Where a failure's message begins with a key ("training.of: ..."), what its value came from goes before that. */
Status policy_blamed(const Policy *policy, Status status);
/* Says that this key's value was given outside of the policy, which it overrides. */
void policy_by_flag(Policy *policy, const char *key);
/* A line a key: its value, and where that comes from ("default", "file", "flag"); then a line a rule. */
void policy_print(Text *text, const Policy *policy);
const char *precision_name(Precision precision); /* "f16"; "as is" */
/* fusions.c: fills policy->fusions from the section "fusions", a cJSON array. name: the file's, for messages. The
 * patterns are parsed when a session opens. */
struct cJSON;
Status policy_read_fusions(const struct cJSON *array, const char *name, Arena *arena, Policy *policy);
/* fits.c. What of a policy's JSON a plan is made by, without what may differ from run to run (threads, cache, seed);
 * and whether a policy that is given later asks for the same: STATUS_USAGE naming the first key that does not. */
Status policy_plan_part(const char *json, Arena *arena, const char **out_part);
Status policy_plan_agrees(const char *made, const char *given, Arena *arena);
Status policy_pool(const Policy *policy, Pool **out_pool);
Status device_from_name(const char *name, DeviceKind *out_device); /* STATUS_USAGE when unknown */
const char *device_name(DeviceKind device);
/* Fills cpu, features, vector_bytes and cache_bytes for target->level; STATUS_USAGE for a level that this machine
 * cannot run. */
Status target_resolve(Arena *arena, Target *target);
const char *target_level_name(const Target *target); /* of a resolved one: never "host" */

#endif
