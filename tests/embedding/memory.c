/* SPDX-License-Identifier: Apache-2.0 */
/* Eight requests at once hold the weights once, and an arena each: memory MODEL BATCH WIDTH. The model has one input
 * and one output, both [batch, WIDTH]. An allocator of the program counts what the library takes, to the byte; what the
 * kernel counts (VmHWM) has the mapped file and code in it, too.
 */
#include <onnxfuse.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8 };
static OnnxfuseSession *session;
static int64_t dims[2];
static pthread_barrier_t together;

static void check(OnnxfuseStatus status) {
    if (!status) return;
    fprintf(stderr, "%s\n", onnxfuse_status_message(status));
    exit(1);
}

static void *request(void *unused) {
    (void)unused;
    OnnxfuseValue *input, *output = NULL;
    check(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, dims, NULL, &input));
    pthread_barrier_wait(&together);
    check(onnxfuse_session_run(session, (const OnnxfuseValue *const[]){input}, &output));
    pthread_barrier_wait(&together);
    onnxfuse_value_free(output);
    onnxfuse_value_free(input);
    return NULL;
}

static atomic_llong held, most_held;

static void *take(void *user, size_t bytes) {
    (void)user;
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) return NULL;
    long long now = atomic_fetch_add(&held, (long long)bytes) + (long long)bytes, most = atomic_load(&most_held);
    while (now > most && !atomic_compare_exchange_weak(&most_held, &most, now)) {}
    return memory;
}

static void give(void *user, void *memory, size_t bytes) {
    (void)user;
    atomic_fetch_sub(&held, (long long)bytes);
    free(memory);
}

static double megabytes(const char *what) {
    char line[256];
    long kilobytes = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, what, strlen(what)) == 0) kilobytes = atol(line + strlen(what) + 1);
    if (file) fclose(file);
    return (double)kilobytes / 1024;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    dims[0] = atoi(argv[2]);
    dims[1] = atoi(argv[3]);
    double before = megabytes("VmRSS:");
    check(onnxfuse_set_allocator(&(OnnxfuseAllocator){sizeof(OnnxfuseAllocator), take, give, NULL}));
    check(onnxfuse_session_open(argv[1], NULL, &session));
    pthread_t threads[THREADS];
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, request, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);

    OnnxfuseStats stats;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    const double mib = 1 << 20;
    double peak = megabytes("VmHWM:") - before, weights = (double)stats.weight_bytes / mib;
    double arenas = THREADS * (double)stats.arena_bytes / mib, runs = (double)stats.memory_peak_bytes / mib;
    double values = THREADS * 2 * (double)(dims[0] * dims[1]) * sizeof(float) / mib;
    /* Handles, plans and scratch memory of the threads: 8. */
    double taken = (double)atomic_load(&most_held) / mib, promised = weights + arenas + values + 8;
    /* While a weight is packed it is there twice, as the mapped file and packed; code, LLVM and stacks: 96. */
    double most = 2 * weights + arenas + values + 96;
    printf(
        "by the program's books %.0f MB at most, promised %.0f: weights %.0f, 8 arenas %.0f, inputs and outputs %.0f\n",
        taken, promised, weights, arenas, values);
    printf("by the library's books runs held %.0f MB at most; resident were %.0f MB, at most %.0f may be\n", runs, peak,
           most);
    onnxfuse_session_close(session);
    onnxfuse_trim(NULL);
    long long left = atomic_load(&held);
    if (left) printf("%lld bytes are not given back\n", left);
    return left || weights < 60 || taken > promised || taken < weights + arenas || peak > most ||
           runs > arenas + values + 8;
}
