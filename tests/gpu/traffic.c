/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what kernels read and write of global memory. The words READ and WRITE, through which device code touches
 * memory (codegen/gpu/dialect.h), are told to count bytes by address. That needs a device whose memory is the
 * process's, as PoCL's is: buffers are the host's memory, and the counters stand at an address that the program names.
 *
 * What varies along every axis must be read once and written once. What does not (a bias, a scale, a mask) is read
 * again for each row that needs it, from the first caches; it is listed apart. */
#include "proof.h"
#include "data.h"
#include "machine.h"
#include "render_many.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "codegen/gpu/dialect.h"

enum { MULTIPROCESSORS = 132 }; /* as many as an H100 has */
#define SLOTS 32
#define COUNTERS_AT 0x200000000000u
#define TEXT_OF(x) #x
#define STRING(x) TEXT_OF(x)

typedef struct Slot {
    uint64_t begin, end; /* addresses; 0: unused */
    uint64_t bytes[2];   /* read, written */
} Slot;

static const char counting[] = "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"
                               "FUNCTION void count_access(u64 at, u64 bytes, i32 way) {\n"
                               "    volatile __global u64 *slot = (volatile __global u64 *)(u64)" STRING(
                                   COUNTERS_AT) "L;\n"
                                                "    for (i32 i = 0; i < " STRING(
                                                    SLOTS) "; i++, slot += 4)\n"
                                                           "        if (at >= slot[0] && at < slot[1]) {\n"
                                                           "            atom_add(slot + 2 + way, bytes);\n"
                                                           "            return;\n"
                                                           "        }\n"
                                                           "}\n"
                                                           "#undef READ\n"
                                                           "#define READ(type, pointer) (count_access((u64)(pointer), "
                                                           "sizeof(type), 0), *(const __global "
                                                           "type *)(pointer))\n"
                                                           "#undef WRITE\n"
                                                           "#define WRITE(type, pointer, value) \\\n"
                                                           "    (count_access((u64)(pointer), sizeof(type), 1), "
                                                           "*(__global type *)(pointer) = (value))\n";

static Slot *slots; /* [SLOTS] at COUNTERS_AT */

static Status open_device(Proof *proof) {
    slots = mmap((void *)COUNTERS_AT, sizeof(Slot) * SLOTS, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (slots == MAP_FAILED) return status_error(STATUS_FAULT, "no memory at the counters' address");
    return machine_open(proof, (Machine **)&proof->state);
}
static void close_device(Proof *proof) { machine_close(proof->state); }

/* --- what must be moved ------------------------------------------------------------------------------------------- */
typedef struct Need {
    int64_t bytes; /* of the elements that are accessed, each once */
    bool whole;    /* some access varies along every axis */
    bool inputs;   /* read, not written */
} Need;

static Need need_of(const KernelCase *c, const Binding *binding, int buffer) {
    const Kernel *k = c->kernel;
    Need need = {0, false, !k->buffers.items[buffer].output};
    uint32_t all = 0;
    int64_t most = binding->elements[buffer];
    for (int a = 0; a < k->axis_count; a++)
        if (kernel_axis_size(k, a, binding->params) > 1) all |= 1u << a;
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *inst = &k->insts.items[i];
        if ((inst->op != K_LOAD && inst->op != K_STORE) || inst->buffer != buffer) continue;
        int64_t elements = 1;
        for (int a = 0; a < k->axis_count; a++)
            if (inst->axes >> a & 1) elements *= kernel_axis_size(k, a, binding->params);
        need.bytes += elements;
        if ((inst->axes & all) == all) need.whole = true;
    }
    if (need.bytes > most) need.bytes = most;
    need.bytes *= (int64_t)dtype_size(k->buffers.items[buffer].dtype);
    return need;
}

/* --- running ------------------------------------------------------------------------------------------------------ */
typedef struct Run {
    Machine *machine;
    Place *places; /* [buffers + 1] */
    void **host;
    int count;
} Run;

static Status make_buffers(Run *run, const Trial *trial, size_t scratch) {
    const Kernel *k = trial->c->kernel;
    memset(slots, 0, sizeof(Slot) * SLOTS);
    for (run->count = 0; run->count <= k->buffers.count; run->count++) {
        int b = run->count;
        size_t bytes = b < k->buffers.count ? binding_bytes(trial->c, trial->binding, b) : scratch + 64;
        cl_int error;
        run->host[b] = aligned_alloc(4096, (bytes + 4096) / 4096 * 4096);
        if (!run->host[b]) return status_out_of_memory();
        if (b < k->buffers.count) memcpy(run->host[b], trial->buffers[b], bytes);
        run->places[b] = (Place){run->machine->context->cl->clCreateBuffer(run->machine->context->context,
                                                                           CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                                                           bytes, run->host[b], &error),
                                 0, bytes};
        TRY(opencl_check(error, "buffer of %zu bytes", bytes));
        slots[b] = (Slot){(uint64_t)(uintptr_t)run->host[b], (uint64_t)(uintptr_t)run->host[b] + bytes, {0, 0}};
    }
    return NULL;
}

static void free_buffers(Run *run, int most) {
    for (int b = 0; b <= most; b++) {
        if (run->places[b].memory) run->machine->context->cl->clReleaseMemObject(run->places[b].memory);
        free(run->host[b]);
    }
}

/* Whether what was counted is what is needed, and a line a buffer on it. */
static bool judge(const Trial *trial, Text *out) {
    const Kernel *k = trial->c->kernel;
    bool good = true;
    uint64_t total = 0;
    for (int b = 0; b <= k->buffers.count; b++) {
        bool scratch = b == k->buffers.count;
        Need need = scratch ? (Need){0} : need_of(trial->c, trial->binding, b);
        uint64_t bytes = slots[b].bytes[!scratch && !need.inputs], other = slots[b].bytes[!scratch && need.inputs];
        bool fair = scratch                      ? (bytes + other) * 20 <= total
                    : need.whole || !need.inputs ? (double)bytes <= 1.01 * (double)need.bytes &&
                                                       (double)bytes >= 0.99 * (double)need.bytes && !other
                                                 : true;
        total += bytes + other;
        if (!fair) good = false;
        text_add(out, "      %s %s %lld bytes, needs %lld%s%s\n",
                 scratch ? "scratch" : dtype_name(k->buffers.items[b].dtype),
                 scratch       ? "moves"
                 : need.inputs ? "reads"
                               : "writes",
                 (long long)(scratch ? bytes + other : bytes), (long long)need.bytes,
                 scratch || need.whole || !need.inputs ? "" : " (broadcast)", fair ? "" : "  <--");
        if (!scratch && other)
            text_add(out, "      and %s %lld bytes of it\n", need.inputs ? "writes" : "reads", (long long)other);
    }
    return good;
}

static Status prove_binding(Proof *proof, int index, const Binding *binding, const Program *program,
                            const char *source) {
    Machine *m = proof->state;
    const KernelCase *c = proof->cases->items.items[index];
    const Kernel *k = c->kernel;
    if (k->buffers.count + 1 > SLOTS) return status_error(STATUS_FAULT, "more buffers than counters");
    Arena *arena = arena_create(0);
    GpuSchedule schedule = gpu_schedule(k);
    GpuLimits limits = *m->driver->limits(m->context);
    GpuLaunches launches;
    limits.multiprocessors = MULTIPROCESSORS;
    gpu_launches(k, &schedule, &limits, binding->params, &launches);
    Trial *trial = trial_inputs(c, binding, 1, false);
    Run run = {m, ARENA_ARRAY(arena, Place, k->buffers.count + 1), ARENA_ARRAY(arena, void *, k->buffers.count + 1), 0};
    Status status = make_buffers(&run, trial, launches.scratch_bytes);
    if (!status)
        status = machine_launch_places(m, program, arena_format(arena, "k%d_", index), k, run.places, binding->params,
                                       &launches);
    if (!status) {
        Text text = text_make(arena);
        bool good = judge(trial, &text);
        printf("%s\n%s", c->origin, text.data);
        if (!good) proof_fail(proof, index, source, "moves more than it needs\n%s", text.data);
        proof_tally(proof)->launches += launches.count;
        proof_tally(proof)->split += launches.scratch_bytes > 0;
    }
    proof_tally(proof)->trials++;
    free_buffers(&run, k->buffers.count);
    trial_free(trial);
    arena_destroy(arena);
    return status;
}

static Status prove_one(Proof *proof, int index) {
    Machine *m = proof->state;
    const KernelCase *c = proof->cases->items.items[index];
    Arena *arena = arena_create(0);
    const char *prelude = gpu_prelude(GPU_OPENCL), *text = render_many(proof->cases, &index, 1, GPU_OPENCL, arena);
    char *source = arena_format(arena, "%s%s%s", prelude, counting, text + strlen(prelude));
    Program program;
    proof_begin(proof, index);
    Status status = machine_compile(m, source, &program);
    if (!c->bindings.count) proof_tally(proof)->skipped++;
    for (int b = 0; b < c->bindings.count && !status; b++)
        status = prove_binding(proof, index, &c->bindings.items[b], &program, source);
    if (status) proof_fail(proof, index, source, "%s", status_message(status));
    status_free(status);
    proof_end(proof, index);
    machine_unload(m, &program);
    arena_destroy(arena);
    return NULL;
}

static Status prove(Proof *proof, const int *indices, int count) {
    for (int i = 0; i < count; i++) TRY(prove_one(proof, indices[i]));
    return NULL;
}

const ProofMode proof_traffic = {"traffic", open_device, prove, close_device};
