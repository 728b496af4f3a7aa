/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of lowering share: a region's body between graph and kernel. Internal to codegen.
 *   access.c      which memory is touched, as strides over the space's axes
 *   schedule.c    axes: merged, ordered, their roles and blocks
 *   primitives.c  elementwise primitives as instructions
 *   numbers.c     scales and zero points as parameters
 *   stages.c      which values are kept between stages
 *   lower_region.c, lower_tile.c   the whole: of a region, and of the epilogue of an anchor */
#ifndef ONNXFUSE_CODEGEN_LOWER_REGION_H
#define ONNXFUSE_CODEGEN_LOWER_REGION_H

#include "codegen/codegen.h"
#include "codegen/emit.h"
#include "graph/space.h"

typedef enum AccessKind {
    ACCESS_LOAD,
    ACCESS_STORE,
    ACCESS_INDEX, /* touches no memory: the linear index that an iota, a philox or an argmax needs */
} AccessKind;

/* Element index = offset + sum over axes of stride * index, symbolically. The axes are those of Lowered, in its present
 * order. */
typedef struct Access {
    AccessKind kind;
    const Value *value;  /* loaded, stored, or with an index */
    const Value *source; /* of loads: the external value */
    size_t element;      /* bytes */
    const Dim *offset;
    const Dim *stride[SPACE_MAX_AXES];
} Access;

typedef struct Lowered {
    Arena *arena;
    DimTable *dims;
    const Graph *body;
    const Space *space; /* NULL: an epilogue's body, of which all is in the space */
    int axis_count;
    SpaceAxis axes[SPACE_MAX_AXES];
    VEC(Access) accesses;
    Map loads;   /* value -> Access of ACCESS_LOAD */
    Map indices; /* value -> Access of ACCESS_INDEX */
    Kernel *kernel;
    bool for_gpu;
    Emit emit;
    VEC(const Dim *) params;
    VEC(const Value *) sources; /* parallel to the kernel's buffers: the external value, or NULL for an output */
    VEC(int) outputs;           /* likewise: the output's index, or -1 */
} Lowered;

static inline DType compute_dtype(DType t) { return t == DT_F16 || t == DT_BF16 ? DT_F32 : dtype_of_code(t); }

/* lower_region.c: the body's nodes and stores, its parameters and buffers in canonical order. values: Value ->
 * instruction + 1 of what is known already; is added to. */
void lower_body(Lowered *l, Map *values);
int lower_load(Lowered *l, const Access *access);

/* access.c */
void access_collect(Lowered *l);
int access_param(Lowered *l, const Dim *dim);            /* the parameter that holds this size, made when new */
const int64_t *access_param_multiples(const Lowered *l); /* Kernel.param_multiples */
KernelAccess *access_resolve(Lowered *l, const Access *access);
int access_emit_index(Lowered *l, const Access *access); /* the linear index, i64 */

/* schedule.c: kernel->axes and blocks; needs the accesses. */
Status schedule_axes(Lowered *l);
void schedule_blocks(Lowered *l); /* once the instructions stand */

/* primitives.c: an elementwise primitive; args are its inputs' instructions. */
int lower_elementwise(Emit *e, const Node *node, const int *args);

/* numbers.c, before instructions are put in order. */
void numbers_as_params(Lowered *l);

/* stages.c: sets `keep`. */
void choose_kept(Lowered *l);
int instruction_cost(const KernelInst *inst); /* in vector instructions a vector */

#endif
