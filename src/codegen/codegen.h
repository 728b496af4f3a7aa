/* SPDX-License-Identifier: Apache-2.0 */
/* Codegen's face: region -> kernel -> machine code. */
#ifndef ONNXFUSE_CODEGEN_CODEGEN_H
#define ONNXFUSE_CODEGEN_CODEGEN_H

#include "codegen/kernel.h"
#include "graph/graph.h"
#include "graph/key.h"
#include "policy/policy.h"

typedef struct KernelCode KernelCode; /* machine code of the CPU; reference-counted */

/* What the caller of a kernel in tile form (see codegen_tile) sets a parameter to. */
typedef enum TileParamKind {
    TILE_PARAM_ROWS,        /* rows of the block */
    TILE_PARAM_COLUMNS,     /* columns of the block */
    TILE_PARAM_ROW_STRIDE,  /* elements from one row to the next of buffer `buffer` */
    TILE_PARAM_INDEX_STEP,  /* elements of the whole result's rows */
    TILE_PARAM_INDEX_START, /* the block's first element, counted in the whole result */
    TILE_PARAM_NUMBER,      /* `number`, which stands for a number */
    TILE_PARAM_KINDS,
} TileParamKind;

typedef struct TileParam {
    TileParamKind kind;
    int buffer;     /* of TILE_PARAM_ROW_STRIDE */
    int64_t number; /* of TILE_PARAM_NUMBER: kernel_param_of_number */
} TileParam;

/* A region's kernel and how to call it. */
typedef struct RegionKernel {
    const Kernel *kernel;
    KernelCode
        *code; /* its machine code where that is there already (a compiled model), borrowed; NULL: from the cache */
    int buffer_count;
    const int *buffer_input;  /* [buffer_count]: the region input that the buffer is, or -1 */
    const int *buffer_output; /* [buffer_count]: the region output that it is, or -1 */
    const Dim *const *params; /* [kernel->param_count]; NULL in tile form */
    const TileParam *tile;    /* [kernel->param_count] in tile form, with work and inplace NULL; else NULL */
    const Dim *work;          /* instructions executed, elements times instructions; for the grain */
    /* For each region output: the region inputs, of the first 64, whose buffer it may share (same element order, same
     * dtype size, read at the same index before it is written): bit i for input i. Two outputs may not share one.
     * [outputs] */
    const uint64_t *inplace;
} RegionKernel;

/* Lowers a NODE_REGION. Memory from `arena`. Fails (STATUS_FAULT) only when the body does not fit a space, which the
 * partition rules out. */
Status codegen_region(Arena *arena, DimTable *dims, const Node *region, const Target *target, RegionKernel *out_kernel);

/* Lowers the body of an anchor's epilogue (lowering/anchors.h) to a kernel in tile form, which is called on block after
 * block of results while they lie in a cache: two axes that are never merged, rows (tasks) and columns (lanes, all of a
 * row in one task), with their extents and a row stride a buffer given by the call; columns are neighbours, or the
 * buffer has one a row. Buffers begin at the block. The raw result (buffer_input 0; buffer_input i + 1 is the node's
 * input i + 2) is read in the type that the anchor computes in (`raw`), and rounded to its own. begin: what is read is
 * not the raw result, but this value of the body, of the same type: what makes it is done already; NULL: it is. Memory
 * from `arena`. */
Status codegen_tile(Arena *arena, const Node *anchor, const Value *begin, DType raw, const Target *target,
                    RegionKernel *out_kernel);

/* Of a kernel in tile form, as RegionKernel.inplace: the inputs of the anchor (bit i for input i) whose buffer its result
 * `output` may share. */
uint64_t codegen_tile_inplace(const Node *anchor, const RegionKernel *region, int output);

/* Regions of one plan, of which many have the same kernel: those share it. */
typedef struct KernelPool {
    Arena *arena;
    Map kernels;
    GraphKeyTable regions; /* RegionKernels by what their bodies are */
} KernelPool;
KernelPool kernel_pool(Arena *arena);
/* As codegen_region and codegen_tile, with memory from the pool's arena; what is needed on the way is freed. */
Status codegen_region_pooled(KernelPool *pool, DimTable *dims, const Node *region, const Target *target,
                             RegionKernel *out_kernel);
Status codegen_tile_pooled(KernelPool *pool, const Node *anchor, const Value *begin, DType raw, const Target *target,
                           RegionKernel *out_kernel);

/* --- kernel cache ---------------------------------------------------------------------------------------------------
 * Key: kernel text + target + compiler version. In memory one cache serves the process (thread-safe; code lives until
 * exit or kernel_cache_trim when unused); on disk the policy's directory. LLVM's plug-in is opened on a miss of a
 * kernel alone that the generator of our own (native/) has no rule for. */
typedef struct KernelCacheStats {
    int compiled;
    int by_llvm; /* of these */
    int from_disk;
    int from_memory;
    double compile_ms; /* wall time of that, the loading of LLVM included */
} KernelCacheStats;

/* Compiles (or finds) many kernels at once, on several threads where that pays; out_code[i] is for kernels[i] (equal
 * ones share). stats is added to. */
Status kernel_cache_get(const Kernel *const *kernels, int count, const Policy *policy, KernelCacheStats *stats,
                        KernelCode **out_code);
/* A kernel's key and object file, from the disk or compiled, for a compiled model. Both are malloc'ed. */
Status kernel_cache_object(const Kernel *kernel, const Policy *policy, char **out_key, void **out_object,
                           size_t *out_size);
/* Enters an object file under its key where there is none yet; the reference is the caller's. STATUS_INVALID when it
 * does not load. */
Status kernel_cache_put(const char *key, const void *object, size_t size, KernelCacheStats *stats,
                        KernelCode **out_code);
KernelCode *kernel_code_hold(KernelCode *code); /* one more reference */
KernelFunction kernel_code_function(const KernelCode *code);
size_t kernel_code_bytes(const KernelCode *code);
void kernel_code_release(KernelCode *code); /* accepts NULL */
void kernel_cache_trim(void);               /* frees code that nobody holds */

/* For `inspect`: LLVM IR after optimisation, or assembly, of one kernel. */
typedef enum KernelListing { LISTING_LLVM, LISTING_ASSEMBLY } KernelListing;
Status kernel_listing(const Kernel *kernel, const Policy *policy, KernelListing what, Text *text);

#endif
