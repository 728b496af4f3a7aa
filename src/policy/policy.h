/* What the user wants (a JSON object, or the defaults) and what the device can do. Read by passes, codegen and runtime;
 * immutable once made. */
#ifndef ONNXFUSE_POLICY_POLICY_H
#define ONNXFUSE_POLICY_POLICY_H

#include <stddef.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/pool.h"

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
    int epilogue_kinds;   /* bits of 1 << EpilogueKind (ops/anchors.h) that the device's library fuses into GEMM and
                             convolution */
    bool attention;       /* the device runs the anchor "attention" */
    size_t cache_bytes;   /* last-level cache, for the choice of streaming stores; 0 when unknown */
} Target;

typedef struct Policy {
    struct {
        bool enable;           /* fuse across operators; off: one region a primitive */
        bool memory_efficient; /* prefer recomputing and the order of least peak memory */
        int max_region_nodes;  /* most primitives in one region */
    } fusion;
    int threads; /* 0: the cores this process may run on */
    Pool *pool;  /* the embedder's, used instead; NULL: the shared one of `threads` threads */
    DeviceKind device;
    struct {
        bool enable;           /* keep compiled kernels on disk */
        const char *directory; /* NULL: $XDG_CACHE_HOME/onnxfuse or ~/.cache/onnxfuse */
        int64_t max_megabytes; /* oldest entries go beyond it */
    } cache;
    int64_t memory_limit_megabytes; /* most memory a session may hold, weights and runs together; 0: no limit but the
                                       machine's */
    uint64_t seed;                  /* of random operators */
    bool deterministic;             /* the same bits in every run on the same machine, where a library could choose
                                       otherwise; our own kernels always are */
    struct {
        int device; /* ordinal among the machine's GPUs */
        const char
            *libraries; /* folder in which libcuda, libnvrtc, libcublasLt are looked for first; NULL: the usual */
        bool tf32;      /* f32 products may round their factors to 10 bits of mantissa */
        bool graphs;    /* replay runs of known shapes as CUDA graphs */
    } cuda;
    struct {
        const char
            *device; /* part of the name of the device or its platform; NULL: the first GPU, else the first device */
        const char *library; /* the ICD loader; NULL: libOpenCL.so.1 */
    } opencl;
    Target target; /* resolved */
} Policy;

Policy policy_default(void);
/* Reads a JSON object over the defaults; strings go to the arena. `name` is the file's name for messages. Unknown keys,
 * wrong types and values out of range: STATUS_INVALID naming the JSON path ("fusion.enable: expected true or false,
 * found a string"). */
Status policy_parse(const char *json, size_t size, const char *name, Arena *arena, Policy *out_policy);
Status policy_read(const char *path, Arena *arena, Policy *out_policy);
Status policy_pool(const Policy *policy, Pool **out_pool);
Status device_from_name(const char *name, DeviceKind *out_device); /* STATUS_USAGE when unknown */
const char *device_name(DeviceKind device);
/* Fills cpu, features, vector_bytes and cache_bytes for target->level; STATUS_USAGE for a level that this machine
 * cannot run. */
Status target_resolve(Arena *arena, Target *target);

#endif
