/* SPDX-License-Identifier: Apache-2.0 */
/* Runs kernels on the device: several a program, with few and with many multiprocessors, so that grids are
 * smaller than the work and rows are shared by blocks; outputs beside inputs and in their place; guarded memory around
 * every buffer. */
#include "proof.h"
#include "data.h"
#include "machine.h"
#include "render_many.h"

#include <stdio.h>
#include <stdlib.h>

#include "codegen/gpu/gpu.h"

enum { GUARD = 256, GUARD_BYTE = 0xFF, GARBAGE = 0xCB };
enum { MOST_THREADS = 1 << 20 };

/* Multiprocessors that launches are laid out for. */
static const int sizes_of_device[] = {1, 12, 300};

typedef struct Source {
    Program program;
    const char *text;
} Source;

static Status open_device(Proof *proof) { return machine_open(proof, (Machine **)&proof->state); }
static void close_device(Proof *proof) { machine_close(proof->state); }

/* --- one run -------------------------------------------------------------------------------------------------- */
typedef struct Attempt {
    Machine *machine;
    const Trial *trial;
    const GpuLaunches *launches;
    const Program *program;
    const char *name;
    bool inplace;
    Arena *arena;
    void **device; /* [buffers + 1] allocations; the last is scratch */
    int *shares;   /* [buffers] the buffer whose memory it has, or -1 */
} Attempt;

static size_t bytes_of(const Attempt *a, int buffer) { return binding_bytes(a->trial->c, a->trial->binding, buffer); }

static Status upload(Attempt *a, int buffer) {
    Machine *m = a->machine;
    const KernelBuffer *b = &a->trial->c->kernel->buffers.items[buffer];
    size_t bytes = bytes_of(a, buffer), whole = bytes + 2 * GUARD;
    char *host = arena_alloc(a->arena, whole);
    memset(host, GUARD_BYTE, whole);
    if (b->output)
        memset(host + GUARD, GARBAGE, bytes);
    else
        memcpy(host + GUARD, a->trial->buffers[buffer], bytes);
    TRY(m->driver->allocate(m->context, m->stream, whole, &a->device[buffer]));
    return m->driver->copy(m->context, m->stream, COPY_IN, a->device[buffer], host, whole);
}

static Status upload_all(Attempt *a) {
    const Kernel *k = a->trial->c->kernel;
    for (int b = 0; b < k->buffers.count; b++) {
        a->shares[b] = -1;
        int input = k->buffers.items[b].output && a->inplace ? a->trial->c->inplace[b] : -1;
        bool fits = input >= 0 && bytes_of(a, input) == bytes_of(a, b);
        for (int other = 0; other < b && fits; other++) fits = a->shares[other] != input;
        if (fits)
            a->shares[b] = input;
        else
            TRY(upload(a, b));
    }
    size_t scratch = a->launches->scratch_bytes + 2 * GUARD;
    char *host = arena_alloc(a->arena, scratch);
    memset(host, GUARD_BYTE, scratch); /* NaN: what is read before it is written shows */
    Machine *m = a->machine;
    TRY(m->driver->allocate(m->context, m->stream, scratch, &a->device[k->buffers.count]));
    return m->driver->copy(m->context, m->stream, COPY_IN, a->device[k->buffers.count], host, scratch);
}

static Status launch_all(Attempt *a) {
    Machine *m = a->machine;
    const Kernel *k = a->trial->c->kernel;
    void **addresses = ARENA_ARRAY(a->arena, void *, k->buffers.count + 1);
    for (int b = 0; b <= k->buffers.count; b++) {
        int from = b < k->buffers.count && a->shares[b] >= 0 ? a->shares[b] : b;
        addresses[b] = (char *)a->device[from] + GUARD;
    }
    return machine_launch(m, a->program, a->name, k, addresses, a->trial->binding->params, a->launches);
}

static Status check(Attempt *a, const char **out_difference) {
    Machine *m = a->machine;
    const Kernel *k = a->trial->c->kernel;
    for (int b = 0; b <= k->buffers.count && !*out_difference; b++) {
        if (b < k->buffers.count && a->shares[b] >= 0) continue;
        bool scratch = b == k->buffers.count;
        size_t bytes = scratch ? a->launches->scratch_bytes : bytes_of(a, b), whole = bytes + 2 * GUARD;
        unsigned char *host = arena_alloc(a->arena, whole);
        TRY(m->driver->copy(m->context, m->stream, COPY_OUT, host, a->device[b], whole));
        TRY(m->driver->synchronize(m->context, m->stream));
        for (size_t i = 0; i < GUARD && !*out_difference; i++)
            if (host[i] != GUARD_BYTE || host[GUARD + bytes + i] != GUARD_BYTE)
                *out_difference = arena_format(a->arena, "writes beyond buffer %d%s", b, scratch ? " (scratch)" : "");
        if (scratch || *out_difference) continue;
        int holds = b; /* the output that has this memory */
        for (int o = 0; o < k->buffers.count; o++)
            if (a->shares[o] == b) holds = o;
        if (k->buffers.items[holds].output)
            *out_difference = trial_difference(a->trial, holds, host + GUARD, a->arena);
        else if (memcmp(host + GUARD, a->trial->buffers[b], bytes))
            *out_difference = arena_format(a->arena, "writes into input %d", b);
    }
    return NULL;
}

static Status attempt(Attempt *a, const char **out_difference) {
    int count = a->trial->c->kernel->buffers.count;
    a->device = ARENA_ARRAY(a->arena, void *, count + 1);
    a->shares = ARENA_ARRAY(a->arena, int, count + 1);
    Status status = upload_all(a);
    if (!status) status = launch_all(a);
    if (!status) status = check(a, out_difference);
    for (int b = 0; b <= count; b++) a->machine->driver->release(a->machine->context, a->machine->stream, a->device[b]);
    return status;
}

static Status prove(Proof *proof, const int *indices, int count);

/* --- one kernel ----------------------------------------------------------------------------------------------- */
typedef struct Coverage {
    GpuSchedule schedule;
    bool run[4];
} Coverage;

static bool same_launches(const GpuLaunches *a, const GpuLaunches *b) {
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++) {
        const GpuLaunch *x = &a->items[i], *y = &b->items[i];
        if (x->grid != y->grid || x->block != y->block || strcmp(x->suffix, y->suffix) != 0) return false;
        if (memcmp(x->extra, y->extra, sizeof x->extra[0] * (size_t)x->extra_count)) return false;
    }
    return true;
}

/* Threads cost, idle ones too, where a processor plays the GPU. */
static bool is_dear(const GpuLaunches *launches) {
    int64_t threads = 0;
    for (int i = 0; i < launches->count; i++) threads += launches->items[i].grid * launches->items[i].block;
    return threads > MOST_THREADS;
}

static void count_launches(Tally *tally, Coverage *coverage, const GpuLaunches *launches) {
    tally->launches += launches->count;
    if (launches->scratch_bytes) tally->split++;
    for (int l = 0; l < launches->count; l++)
        for (int s = 0; gpu_suffix(&coverage->schedule, s); s++)
            if (!strcmp(gpu_suffix(&coverage->schedule, s), launches->items[l].suffix)) coverage->run[s] = true;
}

static const char *describe(const Trial *t, const GpuLaunches *launches, int processors, bool inplace, Arena *arena) {
    Text text = text_make(arena);
    text_add(&text, "sizes");
    for (int a = 0; a < t->c->kernel->axis_count; a++)
        text_add(&text, " %lld", (long long)kernel_axis_size(t->c->kernel, a, t->binding->params));
    text_add(&text, ", %d multiprocessors%s, launches", processors, inplace ? ", in place" : "");
    for (int l = 0; l < launches->count; l++) {
        const GpuLaunch *launch = &launches->items[l];
        text_add(&text, " %s<%lld, %d>(", launch->suffix, (long long)launch->grid, launch->block);
        for (int e = 0; e < launch->extra_count; e++)
            text_add(&text, e ? " %lld" : "%lld", (long long)launch->extra[e]);
        text_add(&text, ")");
    }
    return text.data;
}

/* Whether some output may stand in an input's place. Where there is nothing to compute its memory is the input's. */
static bool can_share(const KernelCase *c, const Binding *binding) {
    for (int a = 0; a < c->kernel->axis_count; a++)
        if (kernel_axis_size(c->kernel, a, binding->params) == 0) return false;
    for (int b = 0; b < c->kernel->buffers.count; b++)
        if (c->inplace[b] >= 0) return true;
    return false;
}

/* One set of sizes on devices of several sizes, and again with buffers that begin anywhere; false when something failed. */
static bool prove_binding(Proof *proof, int index, const Binding *binding, const Source *source, Coverage *coverage,
                          int number) {
    Machine *m = proof->state;
    const KernelCase *c = proof->cases->items.items[index];
    GpuSchedule schedule = gpu_schedule(c->kernel);
    Trial *trial = trial_create(c, binding, (uint64_t)number + 1, number == 0 && !kernel_sums_floats(c->kernel));
    enum { DEVICES = 3 };
    GpuLaunches tried[2 * DEVICES];
    bool good = true, shares = can_share(c, binding);
    for (int n = 0; n < 2 * DEVICES && good; n++) {
        Arena *arena = arena_create(0);
        GpuLimits limits = *m->driver->limits(m->context);
        limits.multiprocessors = sizes_of_device[n % DEVICES];
        if (n == DEVICES) schedule.even = (GpuEven){0};
        gpu_launches(c->kernel, &schedule, &limits, binding->params, &tried[n]);
        bool known = number > 0 && m->dialect == GPU_OPENCL && is_dear(&tried[n]);
        for (int before = 0; before < n; before++) known |= same_launches(&tried[before], &tried[n]);
        for (int inplace = 0; inplace <= shares && !known && good; inplace++) {
            Attempt a = {m, trial, &tried[n], &source->program, arena_format(arena, "k%d_", index), inplace, arena};
            const char *difference = NULL;
            Status status = attempt(&a, &difference);
            count_launches(proof_tally(proof), coverage, &tried[n]);
            proof_tally(proof)->trials++;
            good = !status && !difference;
            m->broken |= status != NULL;
            if (!good)
                proof_fail(proof, index, source->text, "%s\n      %s", status ? status_message(status) : difference,
                           describe(trial, &tried[n], limits.multiprocessors, inplace, arena));
            status_free(status);
        }
        arena_destroy(arena);
    }
    trial_free(trial);
    return good;
}

static void prove_case(Proof *proof, int index, const Source *source) {
    const KernelCase *c = proof->cases->items.items[index];
    Coverage coverage = {gpu_schedule(c->kernel), {0}};
    proof_begin(proof, index);
    bool good = true;
    for (int b = 0; b < c->bindings.count && good; b++)
        good = prove_binding(proof, index, &c->bindings.items[b], source, &coverage, b);
    if (!c->bindings.count) proof_tally(proof)->skipped++;
    for (int s = 0; gpu_suffix(&coverage.schedule, s) && c->bindings.count; s++) {
        proof_tally(proof)->functions++;
        proof_tally(proof)->functions_run += coverage.run[s];
    }
    proof_end(proof, index);
}

/* Those behind a kernel that the device failed on, in a new context. */
static Status go_on(Proof *proof, const int *indices, int count) {
    machine_close(proof->state);
    proof->state = NULL;
    TRY(open_device(proof));
    return count ? prove(proof, indices, count) : NULL;
}

static Status prove(Proof *proof, const int *indices, int count) {
    Machine *m = proof->state;
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Source source = {.text = render_many(proof->cases, indices, count, m->dialect, arena)};
    Status status = machine_compile(m, source.text, &source.program);
    int done = 0;
    while (done < count && !status && !m->broken) prove_case(proof, indices[done++], &source);
    if (status && count == 1) {
        proof_begin(proof, indices[0]);
        proof_fail(proof, indices[0], source.text, "%s", status_message(status));
        proof_end(proof, indices[0]);
        done = 1;
    }
    status_free(status);
    machine_unload(m, &source.program);
    arena_destroy(arena);
    if (m->broken) return go_on(proof, indices + done, count - done);
    for (; done < count; done++) TRY(prove(proof, &indices[done], 1)); /* it did not compile: whose fault is it? */
    return NULL;
}

const ProofMode proof_run_device = {"run", open_device, prove, close_device};
