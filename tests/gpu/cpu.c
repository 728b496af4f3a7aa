/* SPDX-License-Identifier: Apache-2.0 */
/* The same trials on the CPU's kernels: when these hold, sizes, inputs and comparison are right, and what fails on a
 * GPU is the GPU's. */
#include "proof.h"
#include "data.h"

#include <stdlib.h>

#include "runtime/device/session_memory.h"

static Status open_cpu(Proof *proof) {
    (void)proof;
    return NULL;
}
static void close_cpu(Proof *proof) { (void)proof; }

static const char *run(const KernelCase *c, const Binding *b, const KernelCode *code, Trial *trial, Arena *arena) {
    const Kernel *k = c->kernel;
    void **buffers = ARENA_ARRAY(arena, void *, k->buffers.count + 1);
    for (int i = 0; i < k->buffers.count; i++) {
        size_t bytes = binding_bytes(c, b, i);
        buffers[i] = k->buffers.items[i].output ? arena_alloc(arena, bytes) : trial->buffers[i];
        if (k->buffers.items[i].output) memset(buffers[i], 0xCB, bytes);
    }
    void *scratch = aligned_alloc(64, (kernel_scratch_bytes(k, b->params) + 64) / 64 * 64);
    kernel_code_function(code)(buffers, b->params, 0, kernel_tasks(k, b->params), scratch);
    free(scratch);
    const char *difference = NULL;
    for (int i = 0; i < k->buffers.count && !difference; i++)
        if (k->buffers.items[i].output) difference = trial_difference(trial, i, buffers[i], arena);
    return difference;
}

static Status prove(Proof *proof, const int *indices, int count) {
    for (int n = 0; n < count; n++) {
        const KernelCase *c = proof->cases->items.items[indices[n]];
        KernelCode *code;
        KernelCacheStats stats = {0};
        proof_begin(proof, indices[n]);
        TRY(kernel_cache_get(&c->kernel, 1, &proof->cases->policy, &stats, &code));
        if (!c->bindings.count) proof_tally(proof)->skipped++;
        for (int b = 0; b < c->bindings.count; b++) {
            bool special = b == 0 && !kernel_sums_floats(c->kernel);
            Trial *trial = trial_create(c, &c->bindings.items[b], (uint64_t)b + 1, special);
            Arena *arena = arena_create(0);
            const char *difference = run(c, &c->bindings.items[b], code, trial, arena);
            proof_tally(proof)->trials++;
            if (difference) proof_fail(proof, indices[n], NULL, "sizes %d: %s", b, difference);
            arena_destroy(arena);
            trial_free(trial);
            if (difference) break;
        }
        kernel_code_release(code);
        proof_end(proof, indices[n]);
    }
    return NULL;
}

const ProofMode proof_cpu = {"cpu", open_cpu, prove, close_cpu};
