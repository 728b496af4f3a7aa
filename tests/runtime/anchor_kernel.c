/* SPDX-License-Identifier: Apache-2.0 */
#include "anchor_kernel.h"

#include <criterion/criterion.h>

/* This machine's, and nothing on the disk. */
static const Policy *own_policy(Arena *arena) {
    Policy *policy = ARENA_NEW(arena, Policy);
    *policy = policy_default();
    policy->cache.enable = false;
    policy->device = DEVICE_CPU;
    cr_assert_null(target_resolve(arena, &policy->target));
    return policy;
}

AnchorKernel anchor_kernel(Arena *arena, const Node *node) {
    AnchorKernel made = {0};
    const Value *begin = NULL;
    DType raw = cpu_anchor_finishes_with(node, &begin);
    if (raw == DT_NONE) return made;
    const Policy *policy = own_policy(arena);
    KernelCacheStats stats = {0};
    Status status = codegen_tile(arena, node, begin, raw, &policy->target, &made.region);
    cr_assert_null(status, "%s", status_message(status));
    status = kernel_cache_get(&made.region.kernel, 1, policy, &stats, &made.code);
    cr_assert_null(status, "%s", status_message(status));
    return made;
}

void anchor_kernel_release(AnchorKernel *kernel) { kernel_code_release(kernel->code); }

Status anchor_kernel_run(CpuAnchor *anchor, const AnchorKernel *kernel, const Tensor *const *inputs, Tensor *outputs,
                         Pool *pool) {
    KernelFunction function = kernel->code ? kernel_code_function(kernel->code) : NULL;
    return cpu_anchor_run(anchor, function, function ? &kernel->region : NULL, inputs, NULL, outputs, pool);
}

Status anchor_run_once(CpuAnchor *anchor, const Node *node, const Tensor *const *inputs, Tensor *outputs, Pool *pool) {
    AnchorKernel kernel = anchor_kernel(node->graph->arena, node);
    Status status = anchor_kernel_run(anchor, &kernel, inputs, outputs, pool);
    anchor_kernel_release(&kernel);
    return status;
}
