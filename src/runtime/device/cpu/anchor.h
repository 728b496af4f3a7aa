/* SPDX-License-Identifier: Apache-2.0 */
/* Anchors on the CPU: matrix products and convolutions as products of rows (found through pointers) and packed weights,
 * sliced over our own pool, with the epilogue applied while a tile is in registers or in the first-level cache. A
 * prepared anchor holds the packed weights; it is immutable and may run from several threads at once. A new shape
 * prepares nothing. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_ANCHOR_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_ANCHOR_H

#include "base/pool.h"
#include "codegen/codegen.h"
#include "graph/graph.h"
#include "lowering/anchors.h"
#include "runtime/device/cpu/packing/packs.h"
#include "runtime/device/packed.h"

typedef struct CpuAnchor CpuAnchor;

/* The type in which results meet the kernel of the anchor's epilogue, and from which value of its body on: what stands
 * before that tiles have built in. DT_NONE: it needs no kernel. */
DType cpu_anchor_finishes_with(const Node *node, const Value **out_begin);

/* The inputs (bit i for input i) in whose memory the result may be that is finished without such a kernel. */
uint64_t cpu_anchor_inplace(const Node *node);

/* node: as lowering/anchors.h says; borrowed for the anchor's life. Its attr weight_precision (a Precision) holds the
 * constant weight in that form: STATUS_INVALID where it is not constant or not all of it finite, STATUS_UNSUPPORTED
 * where the product is not of f32 at most. constants: [input_count], the data of constant inputs,
 * else NULL; a constant weight is packed here and `*out_released` (bit i for input i) tells that constants[i] is not
 * read any more by runs of this anchor, so that its memory may be given back. What an anchor of the same store has packed
 * of the same data in the same way is shared; store NULL: nothing is. */
Status cpu_anchor_prepare(const Node *node, const Tensor *const *constants, Pool *pool, PackStore *store,
                          CpuAnchor **out_anchor, uint32_t *out_released);
/* Whether a constant weight is packed from wherever its data lies, aligned or not. */
bool cpu_anchor_packs_weight(const Node *node);
/* What was packed, for cpu_anchor_restore, which takes it instead of packing; it is borrowed for the anchor's life. */
int cpu_anchor_packed(const CpuAnchor *anchor, const Packed **out_packed, uint32_t *out_released);
Status cpu_anchor_restore(const Node *node, const Tensor *const *constants, const Packed *packed, int count, Pool *pool,
                          CpuAnchor **out_anchor, uint32_t *out_released);
void cpu_anchor_destroy(CpuAnchor *anchor);       /* accepts NULL */
size_t cpu_anchor_bytes(const CpuAnchor *anchor); /* packed weights, shared ones too */
/* inputs: [input_count] dense row-major tensors with their actual dims (data NULL for a released constant); outputs:
 * [output_count], dims and memory given by the caller. finish, region: the kernel of the epilogue and how to call it,
 * where cpu_anchor_finishes_with asks for one; else NULL. The shapes fit each other as the verifier demands, but the actual sizes are
 * checked again where a mismatch would read beyond a buffer: STATUS_INVALID. symbols: the values of the graph's
 * symbols, as dim_eval takes them, for paddings that depend on the input's size; NULL when none does. */
Status cpu_anchor_run(CpuAnchor *anchor, KernelFunction finish, const RegionKernel *region, const Tensor *const *inputs,
                      const int64_t *symbols, Tensor *outputs, Pool *pool);

/* An anchor that makes the first input of another as that needs it, with what its run is given; or tensors that are that input, joined
 * along its last axis. */
typedef struct CpuPrologue {
    CpuAnchor *anchor; /* NULL: the latter */
    KernelFunction finish;
    const RegionKernel *region;
    const Tensor *const *inputs;
    int input_count;
    const Tensor *output; /* without data */
} CpuPrologue;

/* Whether the node `maker` may be the prologue of `reader`, whose first input it makes: for nobody else, if it computes. */
bool cpu_anchor_is_prologue(const Node *maker, const Node *reader);
/* Whether it is worth it where what stands between the two has this shape: rows are made once, and there are enough of them for all
 * threads; or so many are joined that their copy would be felt. */
bool cpu_anchor_takes_prologue(const Node *maker, const Tensor *between, const Pool *pool);
/* As cpu_anchor_run, where both say so: inputs[0] has no data. */
Status cpu_anchor_run_behind(const CpuPrologue *prologue, CpuAnchor *anchor, KernelFunction finish,
                             const RegionKernel *region, const Tensor *const *inputs, const int64_t *symbols,
                             Tensor *outputs, Pool *pool);
/* What the anchor runs on, for profiles and inspect: "packed", "packed, bf16", "packed at run", "depthwise" (groups of few
 * channels, too), "winograd", "plain"; "packed, weights int8" and the like. */
const char *cpu_anchor_how(const CpuAnchor *anchor);

#endif
