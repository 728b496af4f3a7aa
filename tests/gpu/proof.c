/* SPDX-License-Identifier: Apache-2.0 */
/* Worker processes take batches in turn. What they have done stands in shared memory, so that one that dies is replaced
 * by another that goes on behind the kernel that killed it. */
#include "proof.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_JOBS = 16 };

typedef struct ProofShared {
    struct {
        int at;    /* the case being proven, or -1 */
        int batch; /* the first case of the batch */
        Tally tally;
    } workers[MOST_JOBS];
    char done[]; /* [cases] */
} ProofShared;

Tally *proof_tally(Proof *proof) { return &proof->shared->workers[proof->worker].tally; }

void proof_begin(Proof *proof, int index) { proof->shared->workers[proof->worker].at = index; }

void proof_end(Proof *proof, int index) {
    proof->shared->workers[proof->worker].at = -1;
    if (!proof->shared->done[index]) proof_tally(proof)->kernels++;
    proof->shared->done[index] = 1;
}

static void append(const char *path, const char *text, size_t size) {
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return;
    if (write(file, text, size) < 0) perror(path);
    close(file);
}

void proof_fail(Proof *proof, int index, const char *source, const char *format, ...) {
    const KernelCase *c = proof->cases->items.items[index];
    Arena *arena = arena_create(0);
    if (!arena) abort();
    va_list args;
    va_start(args, format);
    char *message = NULL;
    if (vasprintf(&message, format, args) < 0) abort();
    va_end(args);
    proof_tally(proof)->failed++;
    printf("FAIL  %s: %s\n", c->origin, message);
    fflush(stdout);
    if (proof->options.report) {
        Text text = text_make(arena);
        text_add(&text, "==== %s\n%s\n---- kernel\n%s", c->origin, message, c->text);
        if (source) text_add(&text, "---- program\n%s", source);
        text_add(&text, "\n");
        append(proof->options.report, text.data, text.size);
    }
    free(message);
    arena_destroy(arena);
}

/* --- a worker --- */
static Status work(Proof *proof, const ProofMode *mode) {
    int count = proof->cases->items.count, batch = proof->options.batch;
    int *indices = calloc((size_t)batch, sizeof *indices);
    if (!indices) return status_out_of_memory();
    Status status = mode->open(proof);
    for (int first = proof->worker * batch; first < count && !status; first += batch * proof->options.jobs) {
        int left = 0;
        for (int i = first; i < first + batch && i < count; i++)
            if (!proof->shared->done[i]) indices[left++] = i;
        proof->shared->workers[proof->worker].batch = first;
        alarm((unsigned)proof->options.seconds);
        if (left) status = mode->prove(proof, indices, left);
    }
    alarm(0);
    mode->close(proof);
    free(indices);
    return status;
}

static pid_t start(Proof *proof, const ProofMode *mode, int worker) {
    fflush(stdout);
    pid_t child = fork();
    if (child) return child;
    proof->worker = worker;
    Status status = work(proof, mode);
    if (status) printf("FAIL  %s: %s\n", mode->name, status_message(status));
    fflush(stdout);
    _exit(status ? 3 : 0);
}

/* A worker that died: whose fault it was, and whether another can go on. */
static bool blame(Proof *proof, int worker, int state) {
    int at = proof->shared->workers[worker].at, count = proof->cases->items.count;
    proof->worker = worker;
    if (at < 0) at = proof->shared->workers[worker].batch;
    if (!WIFSIGNALED(state) || at >= count) {
        proof_tally(proof)->failed++;
        return false;
    }
    int number = WTERMSIG(state);
    while (at < count && proof->shared->done[at]) at++; /* between two kernels: the batch's next one */
    if (at >= count) return false;
    if (number == SIGALRM)
        proof_fail(proof, at, NULL, "no end in %d s", proof->options.seconds);
    else
        proof_fail(proof, at, NULL, "crashes: %s", strsignal(number));
    proof->shared->done[at] = 1;
    proof->shared->workers[worker].at = -1;
    return true;
}

bool proof_run(const Cases *cases, const ProofMode *mode, ProofOptions options, Tally *out_tally) {
    size_t bytes = sizeof(ProofShared) + (size_t)cases->items.count + 1;
    ProofShared *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return false;
    if (options.jobs > MOST_JOBS) options.jobs = MOST_JOBS;
    Proof proof = {cases, options, NULL, shared, 0};
    pid_t children[MOST_JOBS];
    for (int w = 0; w < options.jobs; w++) {
        shared->workers[w].at = -1;
        children[w] = start(&proof, mode, w);
    }
    for (int alive = options.jobs; alive > 0;) {
        int state;
        pid_t ended = wait(&state);
        if (ended < 0) break;
        for (int w = 0; w < options.jobs; w++) {
            if (children[w] != ended) continue;
            bool again = state != 0 && blame(&proof, w, state);
            if (again)
                children[w] = start(&proof, mode, w);
            else
                alive--;
        }
    }
    *out_tally = (Tally){0};
    for (int w = 0; w < options.jobs; w++) {
        const int64_t *from = (const int64_t *)&shared->workers[w].tally;
        for (size_t i = 0; i < sizeof(Tally) / sizeof(int64_t); i++) ((int64_t *)out_tally)[i] += from[i];
    }
    munmap(shared, bytes);
    return out_tally->failed == 0;
}
