/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles kernels and programs for CUDA, which needs no GPU, and reads what the compiler made of them: a warning, local
 * memory or too many registers is a failure, and so is machine code that computes what nothing reads (sass.h). */
#include "proof.h"
#include "cubin.h"
#include "render_many.h"
#include "sass.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../base/share.h"
#include "codegen/gpu/gpu.h"
#include "runtime/device/cuda/nvrtc.h"

/* Threads of 128 registers fill half of a multiprocessor: enough for what is bound by memory, as regions are. Programs of
 * products hold tiles in registers: a block of them must fit a multiprocessor's, which are given out by eights. */
enum { MOST_REGISTERS = 128, MOST_SHARED = 48 << 10, MULTIPROCESSOR_REGISTERS = 65536 };
/* Binaries for sm_90 and up count what the system keeps of a block's shared memory, too, which is not of the 48 KB. */
enum { SYSTEM_SHARED = 1 << 10 };
/* Divisions of 64-bit integers, and of floats near the ends of their range, are calls of the compiler's own functions,
 * around which some registers are saved: rare ways, and few bytes. Other local memory is none. */
enum { MOST_SAVED = 64 };
/* In loops three deep, as pools have them and, for sm_100, rows that several blocks share, the compiler keeps a pair of registers aside
 * although many are free. */
enum { MOST_ASIDE = 8 };
/* Long tiles of attention with heads of 128 take all 255: a few numbers stand aside, 2 of 100 instructions of the loop. */
enum { ALL_REGISTERS = 255, MOST_BESIDE_ALL = 80 };

static Status open_compiler(Proof *proof) {
    (void)proof;
    return NULL;
}
static void close_compiler(Proof *proof) { (void)proof; }

/* "k12__held" -> 12; the functions of a program are its own, whatever their names. */
static int index_of(const Proof *proof, const char *name, int first) {
    if (proof->cases->items.items[first]->program) return first;
    int index = name[0] == 'k' ? atoi(name + 1) : -1;
    return index < proof->cases->items.count ? index : -1;
}

/* NULL, or what is wrong. */
static const char *wrong_with(const CubinKernel *k, bool program) {
    if (!k->registers) return "the binary does not tell its registers";
    int most = k->registers == ALL_REGISTERS ? MOST_BESIDE_ALL : MOST_ASIDE;
    if (k->stack > (k->calls ? MOST_SAVED : most)) return "local memory";
    if (k->shared > MOST_SHARED + SYSTEM_SHARED) return "more shared memory than a block has";
    if (!program) return k->registers > MOST_REGISTERS ? "too many registers" : NULL;
    if (!k->threads) return "the binary does not tell its launch bounds";
    return (k->registers + 7) / 8 * 8 * k->threads > MULTIPROCESSOR_REGISTERS ? "a block does not fit" : NULL;
}

/* first: the first case of the source. */
static void judge(Proof *proof, const Cubin *cubin, int architecture, const char *source, int first) {
    for (int i = 0; i < cubin->count; i++) {
        const CubinKernel *k = &cubin->kernels[i];
        int index = index_of(proof, k->name, first);
        if (index < 0) continue;
        const KernelCase *c = proof->cases->items.items[index];
        const char *wrong = wrong_with(k, c->program);
        proof_tally(proof)->launches++;
        if (getenv("GPU_KERNELS_SHOW"))
            printf("sm_%d %s: %d registers, %d threads, %d bytes of stack, %d of shared memory: %s\n", architecture,
                   k->name, k->registers, k->threads, k->stack, k->shared, c->origin);
        if (wrong)
            proof_fail(proof, index, source,
                       "sm_%d: %s: %s: %d registers, %d threads, %d bytes of local memory, %d of shared memory",
                       architecture, k->name, wrong, k->registers, k->threads, k->stack, k->shared);
    }
}

/* All that a program prints, malloc'ed; NULL when it fails. */
static char *output_of(const char *program, const char *argument) {
    char command[4096];
    int length = snprintf(command, sizeof command, "'%s' -c '%s'", program, argument);
    FILE *pipe = length < (int)sizeof command ? popen(command, "r") : NULL;
    if (!pipe) return NULL;
    size_t size = 0, capacity = 1 << 16, got;
    char *text = malloc(capacity);
    while (text && (got = fread(text + size, 1, capacity - size - 1, pipe))) {
        size += got;
        if (size + 1 < capacity) continue;
        char *grown = realloc(text, capacity *= 2);
        if (!grown) free(text);
        text = grown;
    }
    if (text) text[size] = 0;
    if (pclose(pipe) == 0 && size) return text;
    free(text);
    return NULL;
}

static Status read_code(const char *disassembler, const void *binary, size_t size) {
    char path[] = "/tmp/gpu-kernels-XXXXXX", unread[200];
    int file = mkstemp(path);
    if (file < 0) return status_error(STATUS_FAULT, "no temporary file");
    bool written = write(file, binary, size) == (ssize_t)size;
    close(file);
    char *text = written ? output_of(disassembler, path) : NULL;
    unlink(path);
    if (!text) return status_error(STATUS_FAULT, "%s does not print the binary", disassembler);
    Status status = NULL;
    if (sass_unread(text, unread, sizeof unread))
        status = status_error(STATUS_FAULT, "nothing reads what is computed by: %s", unread);
    free(text);
    return status;
}

static Status compile(Proof *proof, int architecture, const char *source, bool reads, Cubin *out_cubin) {
    void *binary = NULL;
    size_t size = 0;
    char *log = NULL;
    Status status = cuda_compile(proof->options.nvrtc, architecture, source, &binary, &size, &log);
    if (!status && log && *log) status = status_error(STATUS_FAULT, "warnings: %s", log);
    if (!status && !cubin_read(binary, size, out_cubin)) status = status_error(STATUS_FAULT, "the result is no cubin");
    if (!status && reads) status = read_code(proof->options.disassembler, binary, size);
    free(log);
    free(binary);
    return status_at(status, "sm_%d", architecture);
}

/* Printing the machine code takes as long as compiling: in turn, that of one of so many. */
enum { READ_IN_TURN = 3 };

/* Of kernels of regions, or one program. */
static Status prove_source(Proof *proof, const int *indices, int count) {
    Arena *arena = arena_create(0);
    Cubin *cubin = malloc(sizeof *cubin);
    if (!arena || !cubin) abort();
    const KernelCase *first = proof->cases->items.items[indices[0]];
    const char *source = first->program ? first->text : render_many(proof->cases, indices, count, GPU_CUDA, arena);
    Status status = NULL;
    proof_begin(proof, indices[0]);
    int count_of_all = 1, number = 0;
    int turn = proof->options.turn + (first->program ? indices[0] : indices[0] / proof->options.batch);
    for (const char *at = proof->options.architectures; *at; at++) count_of_all += *at == ',';
    int round = count_of_all * (int)share_of_slow();
    bool reads = proof->options.disassembler && (!proof->options.in_turn || turn / round % READ_IN_TURN == 0);
    for (const char *at = proof->options.architectures; at && !status;
         at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (proof->options.in_turn && number++ != turn % round) continue;
        status = compile(proof, atoi(at), source, reads, cubin);
        if (!status) judge(proof, cubin, atoi(at), source, indices[0]);
    }
    if (status && count > 1 && status_code(status) != STATUS_USAGE) {
        for (int i = 0; i < count; i++) prove_source(proof, &indices[i], 1);
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

static Status prove(Proof *proof, const int *indices, int count) {
    for (int done = 0, size; done < count; done += size) {
        bool program = proof->cases->items.items[indices[done]]->program;
        for (size = 1; !program && done + size < count; size++)
            if (proof->cases->items.items[indices[done + size]]->program) break;
        TRY(prove_source(proof, indices + done, size));
    }
    return NULL;
}

const ProofMode proof_cuda = {"cuda", open_compiler, prove, close_compiler};
