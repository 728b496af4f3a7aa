/* SPDX-License-Identifier: Apache-2.0 */
/* What a process that embeds the library sees over time: each item is one that users of other runtimes complain about.
 *   embedding turns FOLDER...    models run in turn, beside the sum of each run by itself
 *   embedding sessions MODEL N   N sessions at once: the last ones opened beside the first
 *   embedding shapes FOLDER      memory over 1,000 shapes, after one huge request, and after a trim
 *   embedding idle FOLDER        processor time of ten seconds in which nothing is asked
 *   embedding tail FOLDER        p99 of two threads on one session beside that of two processes
 *   embedding reopen MODEL       opening with nothing kept, from the kernel cache, compiled ahead of time
 * FOLDER: a model.onnx with test_data_set_0, as the ONNX standard lays out its tests. Times compare within one run
 * alone. Built as any program: cc -O2 -D_GNU_SOURCE embedding.c $(pkg-config --cflags --libs onnxfuse) -lpthread */
#include <onnxfuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_INPUTS = 16, MOST_MODELS = 8, ROUNDS = 7 };

static void check(OnnxfuseStatus status) {
    if (!status) return;
    fprintf(stderr, "%s\n", onnxfuse_status_message(status));
    exit((int)onnxfuse_status_code(status));
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double processor_ms(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static double resident_mb(void) {
    long pages = 0, total;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &total, &pages) != 2) pages = 0;
    if (file) fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *times, int count, double q) {
    qsort(times, (size_t)count, sizeof *times, by_size);
    int at = (int)(q * (count - 1) + 0.5);
    return times[at];
}

/* --- a model with its recorded inputs ----------------------------------------------------------------------------- */
typedef struct Model {
    OnnxfuseSession *session;
    OnnxfuseValue *inputs[MOST_INPUTS];
    int input_count, output_count;
} Model;

static void *read_file(const char *path, size_t *out_size) {
    struct stat about;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &about) != 0) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(4);
    }
    void *bytes = malloc((size_t)about.st_size + 1);
    *out_size = bytes ? fread(bytes, 1, (size_t)about.st_size, file) : 0;
    fclose(file);
    return bytes;
}

static Model open_folder(const char *folder, const OnnxfuseOptions *options) {
    Model m = {0};
    char path[4096];
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    check(onnxfuse_session_open(path, options, &m.session));
    m.input_count = onnxfuse_session_input_count(m.session);
    m.output_count = onnxfuse_session_output_count(m.session);
    if (m.input_count > MOST_INPUTS || m.output_count > MOST_INPUTS) exit(2);
    for (int i = 0; i < m.input_count; i++) {
        size_t size;
        snprintf(path, sizeof path, "%s/test_data_set_0/input_%d.pb", folder, i);
        void *bytes = read_file(path, &size);
        check(onnxfuse_value_from_proto(ONNXFUSE_PROTO_TENSOR, bytes, size, &m.inputs[i], NULL));
        free(bytes);
    }
    return m;
}

static double run_once(const Model *m) {
    OnnxfuseValue *outputs[MOST_INPUTS] = {0};
    double begin = now_ms();
    check(onnxfuse_session_run(m->session, (const OnnxfuseValue *const *)m->inputs, outputs));
    double took = now_ms() - begin;
    for (int o = 0; o < m->output_count; o++) onnxfuse_value_free(outputs[o]);
    return took;
}

static void close_model(Model *m) {
    for (int i = 0; i < m->input_count; i++) onnxfuse_value_free(m->inputs[i]);
    onnxfuse_session_close(m->session);
}

/* --- several models in turn --------------------------------------------------------------------------------------- */
enum { RUNS = 60 };

static double alone(const Model *m) {
    double times[RUNS];
    for (int i = 0; i < RUNS; i++) times[i] = run_once(m);
    return quantile(times, RUNS, 0.5);
}

static double in_turn(const Model *models, int count) {
    double times[RUNS];
    for (int i = 0; i < RUNS; i++) {
        times[i] = 0;
        for (int k = 0; k < count; k++) times[i] += run_once(&models[k]);
    }
    return quantile(times, RUNS, 0.5);
}

static int turns(char **folders, int count) {
    Model models[MOST_MODELS];
    double ratios[ROUNDS];
    if (count > MOST_MODELS) return 2;
    for (int k = 0; k < count; k++) models[k] = open_folder(folders[k], NULL);
    in_turn(models, count);
    for (int round = 0; round < ROUNDS; round++) {
        double sum = 0;
        for (int k = 0; k < count; k++) sum += alone(&models[k]);
        double together = in_turn(models, count);
        ratios[round] = together / sum;
        printf("%d models by themselves %8.3f ms, in turn %8.3f ms: %.3fx\n", count, sum, together, ratios[round]);
    }
    printf("in turn / by themselves: median %.3f\n", quantile(ratios, ROUNDS, 0.5));
    for (int k = 0; k < count; k++) close_model(&models[k]);
    return 0;
}

/* --- many sessions ------------------------------------------------------------------------------------------------ */
static int many_sessions(const char *path, int count) {
    size_t size;
    void *bytes = read_file(path, &size);
    OnnxfuseOptions options = {.size = sizeof options, .threads = 1};
    OnnxfuseSession **sessions = calloc((size_t)count, sizeof *sessions);
    double *times = calloc((size_t)count, sizeof *times), before = resident_mb();
    if (!sessions || !times || count < 200) return 2;
    for (int i = 0; i < count; i++) {
        double begin = now_ms();
        check(onnxfuse_session_open_memory(bytes, size, NULL, &options, &sessions[i]));
        times[i] = now_ms() - begin;
    }
    double held = resident_mb() - before;
    double first = quantile(times + 1, 100, 0.5), last = quantile(times + count - 100, 100, 0.5);
    printf(
        "%d sessions: %.1f KB each; a median of the first hundred opened in %.3f ms, of the last in %.3f ms: %.2fx\n",
        count, held * 1024 / count, first, last, last / first);
    double begin = now_ms();
    for (int i = 0; i < count; i++) onnxfuse_session_close(sessions[i]);
    onnxfuse_trim(NULL);
    printf("closed in %.1f us each; %.1f MB left of %.1f\n", (now_ms() - begin) * 1e3 / count, resident_mb() - before,
           held);
    free(sessions);
    free(times);
    free(bytes);
    return 0;
}

/* --- many shapes -------------------------------------------------------------------------------------------------- */
/* Zeros of the first input's recorded dims, its first axis as given; the other inputs likewise. */
static void run_shape(const Model *m, int64_t rows) {
    OnnxfuseValue *inputs[MOST_INPUTS], *outputs[MOST_INPUTS] = {0};
    for (int i = 0; i < m->input_count; i++) {
        int64_t dims[ONNXFUSE_MAX_RANK];
        int rank = onnxfuse_value_rank(m->inputs[i]);
        for (int d = 0; d < rank; d++) dims[d] = d ? onnxfuse_value_dims(m->inputs[i])[d] : rows;
        check(onnxfuse_value_tensor(onnxfuse_value_dtype(m->inputs[i]), rank, dims, NULL, &inputs[i]));
    }
    check(onnxfuse_session_run(m->session, (const OnnxfuseValue *const *)inputs, outputs));
    for (int i = 0; i < m->input_count; i++) onnxfuse_value_free(inputs[i]);
    for (int o = 0; o < m->output_count; o++) onnxfuse_value_free(outputs[o]);
}

static void print_memory(const Model *m, const char *when) {
    OnnxfuseStats stats;
    onnxfuse_session_stats(m->session, &stats, sizeof stats);
    printf("%-32s resident %7.1f MB, kept for runs %7.1f MB, kernels compiled %d\n", when, resident_mb(),
           (double)stats.memory_bytes / (1 << 20), stats.kernels_compiled);
}

static int many_shapes(const char *folder) {
    enum { SHAPES = 1000, HUGE_ROWS = 400000 };
    Model m = open_folder(folder, NULL);
    print_memory(&m, "opened");
    for (int i = 0; i < SHAPES; i++) {
        run_shape(&m, 1 + i * 37 % SHAPES % 64 + i / 64 % 16); /* up and down */
        if (i == 99) print_memory(&m, "after 100 runs");
    }
    print_memory(&m, "after 1,000 runs");
    run_shape(&m, HUGE_ROWS);
    print_memory(&m, "after a huge one");
    for (int i = 0; i < 20; i++) run_shape(&m, 1);
    print_memory(&m, "after 20 small ones");
    onnxfuse_trim(m.session);
    print_memory(&m, "after a trim");
    close_model(&m);
    return 0;
}

/* --- nothing to do ------------------------------------------------------------------------------------------------ */
static int idle(const char *folder) {
    enum { SECONDS = 10 };
    Model m = open_folder(folder, NULL);
    for (int i = 0; i < 20; i++) run_once(&m);
    usleep(50000);
    double before = processor_ms();
    sleep(SECONDS);
    printf("%d s idle: %.2f ms of processor time\n", SECONDS, processor_ms() - before);
    close_model(&m);
    return 0;
}

/* --- the tail ----------------------------------------------------------------------------------------------------- */
enum { TAIL_RUNS = 2000 };

typedef struct Client {
    const Model *model;
    double *times;
} Client;

static void *tail_client(void *argument) {
    Client *c = argument;
    for (int i = 0; i < TAIL_RUNS; i++) c->times[i] = run_once(c->model);
    return NULL;
}

static const OnnxfuseOptions one_thread = {.size = sizeof one_thread, .threads = 1};

/* In a process of its own, `clients` threads on one session; times is shared memory. */
static pid_t tail_process(const char *folder, double *times, int clients) {
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) exit(5);
    if (child) return child;
    Model m = open_folder(folder, &one_thread);
    Client here = {&m, times}, there = {&m, times + TAIL_RUNS};
    pthread_t other;
    for (int i = 0; i < 20; i++) run_once(&m);
    if (clients == 2 && pthread_create(&other, NULL, tail_client, &there)) _exit(5);
    tail_client(&here);
    if (clients == 2) pthread_join(other, NULL);
    _exit(0);
}

static void wait_for(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) exit(5);
}

static int tail(const char *folder) {
    double ratios[ROUNDS];
    double *times =
        mmap(NULL, 2 * TAIL_RUNS * sizeof *times, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (times == MAP_FAILED) return 5;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t one = tail_process(folder, times, 1), two = tail_process(folder, times + TAIL_RUNS, 1);
        wait_for(one);
        wait_for(two);
        double processes = quantile(times, 2 * TAIL_RUNS, 0.99), middle = quantile(times, 2 * TAIL_RUNS, 0.5);
        wait_for(tail_process(folder, times, 2));
        double threads = quantile(times, 2 * TAIL_RUNS, 0.99);
        ratios[round] = threads / processes;
        printf("two processes: median %.3f ms, p99 %.3f ms; two threads on one session: %.3f ms, %.3f ms: p99 %.3fx\n",
               middle, processes, quantile(times, 2 * TAIL_RUNS, 0.5), threads, ratios[round]);
    }
    printf("p99 of threads / of processes: median %.3f\n", quantile(ratios, ROUNDS, 0.5));
    return 0;
}

/* --- opening again ------------------------------------------------------------------------------------------------ */
static double open_once(const char *path, const char *policy, int *out_compiled) {
    OnnxfuseOptions options = {.size = sizeof options, .policy_json = policy};
    OnnxfuseSession *session;
    OnnxfuseStats stats;
    double begin = now_ms();
    check(onnxfuse_session_open(path, &options, &session));
    double took = now_ms() - begin;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    *out_compiled = stats.kernels_compiled;
    onnxfuse_session_close(session);
    onnxfuse_trim(NULL); /* or the next one finds its kernels in memory */
    return took;
}

static void print_open(const char *how, const char *path, const char *policy) {
    double times[ROUNDS];
    int compiled = 0;
    for (int round = 0; round < ROUNDS; round++) times[round] = open_once(path, policy, &compiled);
    printf("%-28s %8.2f ms, %d kernels compiled\n", how, quantile(times, ROUNDS, 0.5), compiled);
}

static int reopen(const char *path) {
    char compiled[] = "/tmp/onnxfuse-bench-XXXXXX";
    int file = mkstemp(compiled);
    if (file < 0) return 5;
    close(file);
    check(onnxfuse_compile(path, NULL, compiled, NULL));
    print_open("nothing kept", path, "{\"cache\": {\"enable\": false}}");
    print_open("kernels in the cache", path, "{}");
    print_open("compiled ahead of time", compiled, "{}");
    unlink(compiled);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[1] : "";
    if (strcmp(what, "turns") == 0) return turns(argv + 2, argc - 2);
    if (strcmp(what, "sessions") == 0) return many_sessions(argv[2], argc > 3 ? atoi(argv[3]) : 10000);
    if (strcmp(what, "shapes") == 0) return many_shapes(argv[2]);
    if (strcmp(what, "idle") == 0) return idle(argv[2]);
    if (strcmp(what, "tail") == 0) return tail(argv[2]);
    if (strcmp(what, "reopen") == 0) return reopen(argv[2]);
    fprintf(
        stderr,
        "embedding turns FOLDER... | sessions MODEL [N] | shapes FOLDER | idle FOLDER | tail FOLDER | reopen MODEL\n");
    return 2;
}
