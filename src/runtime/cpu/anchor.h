/* Anchors on the CPU: GEMM and convolution through oneDNN, one thread a call, sliced over our own pool; a plain fallback for what the library
 * lacks. A prepared anchor holds the packed weights and the primitives; it is immutable to its callers and may run from several threads at once
 * (primitives for a new shape are created once under a lock and shared). */
#ifndef ONNXFUSE_RUNTIME_CPU_ANCHOR_H
#define ONNXFUSE_RUNTIME_CPU_ANCHOR_H

#include "base/pool.h"
#include "graph/graph.h"
#include "ops/anchors.h"

typedef struct CpuAnchor CpuAnchor;

/* node: as ops/anchors.h says. constants: [input_count], the data of constant inputs, else NULL; a constant weight is packed here and `*out_released`
 * (bit i for input i) tells that constants[i] is not read any more by runs of this anchor, so that its memory may be given back. */
Status cpu_anchor_prepare(const Node *node, const Tensor *const *constants, Pool *pool, CpuAnchor **out_anchor, uint32_t *out_released);
void cpu_anchor_destroy(CpuAnchor *anchor); /* accepts NULL */
size_t cpu_anchor_bytes(const CpuAnchor *anchor); /* packed weights */
/* inputs: [input_count] dense row-major tensors with their actual dims (data NULL for a released constant); output: dims and memory given by the caller.
 * The shapes fit each other as the verifier demands, but the actual sizes are checked again where a mismatch would read beyond a buffer:
 * STATUS_INVALID. */
Status cpu_anchor_run(CpuAnchor *anchor, const Tensor *const *inputs, Tensor *output, Pool *pool);
/* What the anchor runs on, for profiles and inspect: "onednn packed", "sgemm", "plain". */
const char *cpu_anchor_how(const CpuAnchor *anchor);

#endif
