/* Compiles kernels for CUDA, which needs no GPU, and reads what the compiler made of them: a warning, local memory or
 * too many registers is a failure. */
#include "proof.h"
#include "cubin.h"
#include "render_many.h"

#include <stdio.h>
#include <stdlib.h>

#include "codegen/gpu/gpu.h"
#include "runtime/device/cuda/nvrtc.h"

/* Threads of 128 registers fill half of a multiprocessor: enough for what is bound by memory. */
enum { MOST_REGISTERS = 128, MOST_SHARED = 48 << 10 };
/* Divisions of 64-bit integers, and of floats near the ends of their range, are calls of the compiler's own functions,
 * around which some registers are saved: rare ways, and few bytes. Other local memory is none. */
enum { MOST_SAVED = 64 };

static Status open_compiler(Proof *proof) {
    (void)proof;
    return NULL;
}
static void close_compiler(Proof *proof) { (void)proof; }

/* "k12__held" -> 12 */
static int index_of(const char *name) { return name[0] == 'k' ? atoi(name + 1) : -1; }

static void judge(Proof *proof, const Cubin *cubin, int architecture, const char *source) {
    for (int i = 0; i < cubin->count; i++) {
        const CubinKernel *k = &cubin->kernels[i];
        int index = index_of(k->name);
        if (index < 0 || index >= proof->cases->items.count) continue;
        proof_tally(proof)->launches++;
        if (getenv("GPU_KERNELS_SHOW"))
            printf("sm_%d %s: %d registers, %d bytes of stack, %d of shared memory: %s\n", architecture, k->name,
                   k->registers, k->stack, k->shared, proof->cases->items.items[index]->origin);
        if (!k->registers)
            proof_fail(proof, index, source, "sm_%d: %s: the binary does not tell its registers", architecture,
                       k->name);
        else if (k->stack > (k->calls ? MOST_SAVED : 0) || k->registers > MOST_REGISTERS || k->shared > MOST_SHARED)
            proof_fail(proof, index, source,
                       "sm_%d: %s has %d registers, %d bytes of local memory, %d of shared memory", architecture,
                       k->name, k->registers, k->stack, k->shared);
    }
}

static Status compile(Proof *proof, int architecture, const char *source, Cubin *out_cubin) {
    void *binary = NULL;
    size_t size = 0;
    char *log = NULL;
    Status status = cuda_compile(proof->options.nvrtc, architecture, source, &binary, &size, &log);
    if (!status && log && *log) status = status_error(STATUS_FAULT, "warnings: %s", log);
    if (!status && !cubin_read(binary, size, out_cubin)) status = status_error(STATUS_FAULT, "the result is no cubin");
    free(log);
    free(binary);
    return status_at(status, "sm_%d", architecture);
}

static Status prove(Proof *proof, const int *indices, int count) {
    Arena *arena = arena_create(0);
    Cubin *cubin = malloc(sizeof *cubin);
    if (!arena || !cubin) abort();
    const char *source = render_many(proof->cases, indices, count, GPU_CUDA, arena);
    Status status = NULL;
    proof_begin(proof, indices[0]);
    for (const char *at = proof->options.architectures; at && !status;
         at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        status = compile(proof, atoi(at), source, cubin);
        if (!status) judge(proof, cubin, atoi(at), source);
    }
    if (status && count > 1 && status_code(status) != STATUS_USAGE) {
        for (int i = 0; i < count; i++) prove(proof, &indices[i], 1);
    } else if (status && status_code(status) != STATUS_USAGE) {
        proof_fail(proof, indices[0], source, "%s", status_message(status));
    }
    for (int i = 0; i < count; i++) proof_end(proof, indices[i]);
    arena_destroy(arena);
    free(cubin);
    if (status_code(status) == STATUS_USAGE) return status; /* there is no compiler */
    status_free(status);
    return NULL;
}

const ProofMode proof_cuda = {"cuda", open_compiler, prove, close_compiler};
