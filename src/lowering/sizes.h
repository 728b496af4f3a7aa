/* SPDX-License-Identifier: Apache-2.0 */
/* Shorthands for what the operators do with sizes while lowering, and for what their host kernels share at run time. */
#ifndef ONNXFUSE_LOWERING_SIZES_H
#define ONNXFUSE_LOWERING_SIZES_H

#include "lowering/build.h"

/* --- symbolic sizes ---------------------------------------------------------------------------------------- */
static inline const Dim *size_const(const Lowering *l, int64_t value) { return dim_const(l->dims, value); }
static inline const Dim *size_add(const Lowering *l, const Dim *a, const Dim *b) { return dim_add(l->dims, a, b); }
static inline const Dim *size_sub(const Lowering *l, const Dim *a, const Dim *b) { return dim_sub(l->dims, a, b); }
static inline const Dim *size_mul(const Lowering *l, const Dim *a, const Dim *b) { return dim_mul(l->dims, a, b); }
/* False only when both are known and differ. */
static inline bool sizes_agree(const Dim *a, const Dim *b) {
    int64_t x, y;
    return a == b || !dim_is_const(a, &x) || !dim_is_const(b, &y) || x == y;
}
/* numpy's broadcast of two sizes; NULL when they cannot be broadcast. */
static inline const Dim *size_broadcast(const Lowering *l, const Dim *a, const Dim *b) {
    int64_t x, y;
    if (a == b || dim_equals(b, 1)) return a;
    if (dim_equals(a, 1)) return b;
    bool a_known = dim_is_const(a, &x), b_known = dim_is_const(b, &y);
    if (a_known && b_known) return NULL;
    return a_known ? a : b_known ? b : dim_broadcast(l->dims, a, b);
}
static inline const Dim **size_array(const Lowering *l, int count) {
    return ARENA_ARRAY(l->arena, const Dim *, count ? count : 1);
}
/* A copy of a value's dims that may be edited. */
static inline const Dim **dims_copy(const Lowering *l, const Value *x, int room) {
    const Dim **dims = size_array(l, room > x->rank ? room : x->rank);
    for (int i = 0; i < x->rank; i++) dims[i] = x->dims[i];
    return dims;
}

/* A vector that must have `count` elements, where its type does not say how many; others stay. */
Value *with_length(Lowering *l, Value *vector, int count);
/* An input that holds one integer, as a size: known, or a symbol named `hint` bound at run time. NULL on error. */
const Dim *size_from(Lowering *l, Value *number, const char *hint);

/* What passes weigh values by: for each symbol of the graph the policy's first hint, 64 where it has none. In the arena. */
int64_t *hinted_sizes(const Graph *graph, const Policy *policy, Arena *arena);

/* --- host kernels ----------------------------------------------------------------------------------------------- */
/* The dims attribute `name` of the kernel's node at this run's sizes; out [count]. */
Status host_sizes(const HostCall *call, const char *name, int count, int64_t *out);
/* host_input that must be there and of this element type (DT_NONE: any). */
Status host_tensor(const HostCall *call, int index, DType dtype, const Tensor **out_tensor);
/* Whether f16 and bf16 are left to a kernel as they are: a GPU widens them as it reads. Else the graph casts them to
 * f32 before a host kernel, where the casts fuse with what is around them. */
static inline bool keeps_small_floats(const Lowering *l) {
    return l->policy && l->policy->target.device != DEVICE_CPU && l->policy->target.device != DEVICE_AUTO;
}
/* x, or where it is f16 or bf16 its values in f32, in the call's scratch memory; and back into y. */
const Tensor *host_widened(HostCall *call, const Tensor *x);
void host_narrow(const Tensor *wide, Tensor *y);

/* Loops that the compiler vectorises are compiled for the wider registers as well; the loader picks. clang 14 makes what picks
 * visible to other units, where a static function of the same name may have the like. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&              \
    !defined(__SANITIZE_THREAD__)
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED
#endif

#endif
