/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for GPUs: the schedule of a kernel (codegen/kernel.h), its text in a C-like dialect, and the launches that a
 * run takes. A dialect is a table of text (dialect.h); what a device must do with the result is launch functions over a
 * grid of blocks, so devices hold no schedule.
 *
 * How a kernel maps to a GPU. A block has `block` threads in one dimension; the grid has one dimension.
 *   pointwise   a thread takes `vector` neighbouring elements of LANE at a time, grid-stride over TASK x LANE
 *   inner       `group` threads (a power of two) share a row; a block has block / group rows. A thread takes vectors of
 *               the row in turn; partial results meet by shuffles and through shared memory
 *   outer       the block is lanes x group: neighbouring threads take neighbouring columns (vectors of LANE), the group
 *               shares the reduced axes
 *   transpose   a block takes square tiles; loads that are contiguous along the other axis go through padded shared
 * memory Inner and outer kernels of several stages have two functions: `held` keeps what later stages read again in
 * registers (a row of at most hold * group vectors, so global memory is read once), `long` computes it again. A row
 * that is shared by several blocks (`splits`) takes one launch a stage: a launch combines the partial results that
 * earlier ones left in scratch memory, so nothing waits for other blocks and results are the same each time.
 *
 * Sizes are run-time arguments: a new shape compiles nothing. Where a size or a stride is not known to be a multiple of
 * the elements that 16 bytes hold, there are two functions of each kind: one for any sizes, and `even` for those that
 * are such multiples, which most are; the launch chooses. */
#ifndef ONNXFUSE_CODEGEN_GPU_GPU_H
#define ONNXFUSE_CODEGEN_GPU_GPU_H

#include "codegen/kernel.h"

typedef enum GpuDialect { GPU_CUDA, GPU_OPENCL } GpuDialect;

/* What launches depend on. */
typedef struct GpuLimits {
    int multiprocessors;
    int block_threads;   /* most threads a block; at least 256, of which 1024 are used */
    size_t shared_bytes; /* most shared memory a block may have */
    size_t shared_most;  /* the same with what a launch gives it (SHARED_ARG of dialect.h); at least shared_bytes */
    bool fp64;           /* double precision */
    bool matrix;         /* PTX's mma.sync of 16 x 8 x 16 elements of f16 and bf16: compute capability 8.0 and up */
    bool groups;         /* PTX's wgmma of f16 and bf16: compute capability 9.0 alone */
    bool tf32;           /* such units, and products of f32 may round their factors to tf32 */
    int argument_bytes;  /* most bytes of a launch's arguments; 0: unknown, the least of the dialect's standard */
} GpuLimits;

typedef enum GpuClass { GPU_POINTWISE, GPU_INNER, GPU_OUTER, GPU_TRANSPOSE } GpuClass;

/* Of functions for sizes that divide by whole vectors. */
typedef struct GpuEven {
    int vector; /* as in GpuSchedule, as are step, hold and partial; 0: there are no such functions */
    int step, hold, partial;
    int lane;        /* the size of the vector axis, and of TRANSPOSE's other one, must be a multiple of this, */
    uint64_t params; /* and of `vector` each parameter whose bit is set: strides and offsets */
} GpuEven;

typedef struct GpuSchedule {
    GpuClass class;
    int vector; /* elements along the vector axis (LANE, or REDUCE_LANE of inner kernels) that a thread takes at once:
                   1, 2, 4, 8 */
    int step;   /* elements between two of a vector: 1, or 16 where a thread draws random words (four elements 16 apart
                   share a Philox counter, graph/prim.h); vectors of 8 are then 4 pairs of neighbours (of halves) */
    int hold;  /* vectors of a row that a thread keeps in registers; 0: no `held` function; TRANSPOSE: rows of a tile */
    int tile;  /* TRANSPOSE: the tile's side */
    int block; /* most threads of a block that holds rows or columns */
    /* Bytes of scratch that a row, or a vector of columns, takes for each of the blocks that share it. */
    int partial;
    GpuEven even;
} GpuSchedule;

GpuSchedule gpu_schedule(const Kernel *kernel);

/* The accesses that differ of a kernel's: their number, and out_accesses [kernel->insts.count]. */
int gpu_accesses(const Kernel *kernel, const KernelAccess **out_accesses);
/* Whether indices of these sizes fit 32 bits, in which kernels count; those with Kernel.general count in 64. accesses:
 * gpu_accesses's. */
#define GPU_SMALL (INT64_C(1) << 30)
bool gpu_is_small(const Kernel *kernel, const KernelAccess *const *accesses, int count, const int64_t *params);

/* The program of a kernel: functions `<name>`, or `<name>_held` and `<name>_long`; the same with `_even` before them.
 * Complete: nothing is included. */
void gpu_render(Text *text, const Kernel *kernel, GpuDialect dialect, const char *name);

/* Several kernels as one program. */
void gpu_render_all(Text *text, const Kernel *const *kernels, const char *const *names, int count, GpuDialect dialect);

/* One launch. Arguments in order: the kernel's buffers, scratch, then i64: the kernel's params, then `extra`. */
enum { GPU_MAX_EXTRA = 6, GPU_MAX_LAUNCHES = 16 };
typedef struct GpuLaunch {
    const char *suffix; /* of the function's name: gpu_suffix's */
    int64_t grid;       /* blocks */
    int block;          /* threads a block; a multiple of 32 */
    int extra_count;
    int64_t extra[GPU_MAX_EXTRA];
} GpuLaunch;

typedef struct GpuLaunches {
    int count; /* 0: there is nothing to compute */
    GpuLaunch items[GPU_MAX_LAUNCHES];
    size_t scratch_bytes; /* device memory, uninitialised, shared by these launches alone */
} GpuLaunches;

/* schedule: gpu_schedule's of this kernel; without its `even`, functions for any sizes run, whose vectors are shorter. */
void gpu_launches(const Kernel *kernel, const GpuSchedule *schedule, const GpuLimits *limits, const int64_t *params,
                  GpuLaunches *out_launches);
/* The functions that launches of this kernel may ask for: the i-th of at most GPU_MOST_FUNCTIONS; NULL behind the last. */
enum { GPU_MOST_FUNCTIONS = 4 };
const char *gpu_suffix(const GpuSchedule *schedule, int i);

#endif
