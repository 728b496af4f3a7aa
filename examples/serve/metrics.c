/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Upper bounds, inclusive; what is above the last counts as +Inf. */
static const double time_bounds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                     0.05,   0.1,     0.25,   0.5,   1,      2.5,   5,    10};
static const double row_bounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
enum {
    TIME_BOUNDS = sizeof time_bounds / sizeof *time_bounds,
    ROW_BOUNDS = sizeof row_bounds / sizeof *row_bounds,
};
_Static_assert((int)TIME_BOUNDS < METRICS_MOST_BUCKETS && (int)ROW_BOUNDS < METRICS_MOST_BUCKETS, "a bucket for +Inf");

/* Last: all others. */
static const int codes[METRICS_CODES] = {200, 400, 404, 405, 408, 411, 413, 415, 429, 431, 499, 500, 501, 503, 504, 0};

static void add(atomic_uint_fast64_t *counter, uint64_t value) {
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

static void observe(Histogram *h, const double *bounds, int count, double value, uint64_t exact) {
    int bucket = 0;
    while (bucket < count && value > bounds[bucket]) bucket++;
    add(&h->buckets[bucket], 1);
    add(&h->sum, exact);
}

void histogram_time(Histogram *h, int64_t ns) { observe(h, time_bounds, TIME_BOUNDS, (double)ns * 1e-9, (uint64_t)ns); }
void histogram_rows(Histogram *h, int64_t rows) { observe(h, row_bounds, ROW_BOUNDS, (double)rows, (uint64_t)rows); }

void metrics_count_code(ModelMetrics *metrics, int code) {
    int i = 0;
    while (codes[i] && codes[i] != code) i++;
    add(&metrics->codes[i], 1);
}

/* --- text --- */
static void head(Text *out, const char *name, const char *type, const char *help) {
    text_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* The value of a label: backslash, quote and line feed are escaped. */
static void label(Text *out, const char *value) {
    for (; *value; value++) {
        if (*value == '\n')
            text_append(out, "\\n", 2);
        else if (*value == '\\' || *value == '"')
            text_format(out, "\\%c", *value);
        else
            text_append(out, value, 1);
    }
}

static void sample(Text *out, const char *name, const char *model) {
    text_format(out, "%s{model=\"", name);
    label(out, model);
}

static void write_codes(Text *out, const ModelSample *models, int count) {
    head(out, "onnxfuse_requests_total", "counter", "Requests answered, by model and HTTP status.");
    for (int m = 0; m < count; m++) {
        for (int i = 0; i < METRICS_CODES; i++) {
            uint64_t value = atomic_load_explicit(&models[m].metrics->codes[i], memory_order_relaxed);
            if (!value) continue;
            sample(out, "onnxfuse_requests_total", models[m].name);
            if (codes[i])
                text_format(out, "\",code=\"%d\"} %" PRIu64 "\n", codes[i], value);
            else
                text_format(out, "\",code=\"other\"} %" PRIu64 "\n", value);
        }
    }
}

typedef struct HistogramInfo {
    const char *name, *help;
    size_t offset; /* in ModelMetrics */
    const double *bounds;
    int bound_count;
    double unit; /* of `sum` */
} HistogramInfo;

static const HistogramInfo histograms[] = {
    {"onnxfuse_queue_duration_seconds", "Time from a request's last byte to the begin of its run.",
     offsetof(ModelMetrics, queue), time_bounds, TIME_BOUNDS, 1e-9},
    {"onnxfuse_compute_duration_seconds", "Time of the run that a request was part of.",
     offsetof(ModelMetrics, compute), time_bounds, TIME_BOUNDS, 1e-9},
    {"onnxfuse_request_duration_seconds", "Time from a request's header to its answer.", offsetof(ModelMetrics, total),
     time_bounds, TIME_BOUNDS, 1e-9},
    {"onnxfuse_batch_rows", "Rows of the first axis that a run computed.", offsetof(ModelMetrics, rows), row_bounds,
     ROW_BOUNDS, 1},
};

static void write_histogram(Text *out, const HistogramInfo *info, const ModelSample *model) {
    Histogram *h = (Histogram *)((char *)model->metrics + info->offset);
    char name[64];
    uint64_t total = 0;
    double sum = (double)atomic_load_explicit(&h->sum, memory_order_relaxed) * info->unit;
    snprintf(name, sizeof name, "%s_bucket", info->name);
    for (int i = 0; i <= info->bound_count; i++) {
        total += atomic_load_explicit(&h->buckets[i], memory_order_relaxed);
        sample(out, name, model->name);
        if (i < info->bound_count)
            text_format(out, "\",le=\"%g\"} %" PRIu64 "\n", info->bounds[i], total);
        else
            text_format(out, "\",le=\"+Inf\"} %" PRIu64 "\n", total);
    }
    snprintf(name, sizeof name, "%s_sum", info->name);
    sample(out, name, model->name);
    text_format(out, "\"} %.9g\n", sum);
    snprintf(name, sizeof name, "%s_count", info->name);
    sample(out, name, model->name);
    text_format(out, "\"} %" PRIu64 "\n", total);
}

static void write_number(Text *out, const char *name, const char *model, double value) {
    sample(out, name, model);
    text_format(out, "\"} %.17g\n", value);
}

static void write_models(Text *out, const ModelSample *models, int count) {
    static const char *const names[][3] = {
        {"onnxfuse_queue_length", "gauge", "Requests that wait for their run."},
        {"onnxfuse_inflight_requests", "gauge", "Requests between their header and the last byte of their answer."},
        {"onnxfuse_received_bytes_total", "counter", "Bytes of inference requests' bodies."},
        {"onnxfuse_sent_bytes_total", "counter", "Bytes of answers to inference requests."},
        {"onnxfuse_session_memory_bytes", "gauge",
         "Memory of the session's runs, of those going on and kept for the next."},
        {"onnxfuse_session_weight_bytes", "gauge", "Memory held for the model's constants."},
        {"onnxfuse_session_runs_total", "counter", "Runs of the session."},
    };
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        head(out, names[n][0], names[n][1], names[n][2]);
        for (int m = 0; m < count; m++) {
            const ModelSample *s = &models[m];
            const double values[] = {atomic_load(&s->metrics->waiting),
                                     atomic_load(&s->metrics->in_flight),
                                     (double)atomic_load(&s->metrics->received_bytes),
                                     (double)atomic_load(&s->metrics->sent_bytes),
                                     (double)s->memory_bytes,
                                     (double)s->weight_bytes,
                                     (double)s->runs};
            write_number(out, names[n][0], s->name, values[n]);
        }
    }
}

static void write_single(Text *out, const char *name, const char *type, const char *help, double value) {
    head(out, name, type, help);
    text_format(out, "%s %.17g\n", name, value);
}

/* Of /proc/self/statm, in bytes; 0 when it cannot be read. */
static double resident_bytes(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void metrics_write(Text *out, const ServerSample *server, const ModelSample *models, int count) {
    head(out, "onnxfuse_info", "gauge", "The server's version.");
    text_format(out, "onnxfuse_info{version=\"%s\"} 1\n", server->version);
    write_single(out, "onnxfuse_ready", "gauge", "1: requests are taken; 0: the server is draining.", server->ready);
    write_single(out, "onnxfuse_connections", "gauge", "Open connections.", server->connections);
    write_single(out, "onnxfuse_slow_connections_total", "counter",
                 "Connections that were ended because their clients were too slow.", (double)server->slow);
    write_codes(out, models, count);
    for (size_t i = 0; i < sizeof histograms / sizeof *histograms; i++) {
        head(out, histograms[i].name, "histogram", histograms[i].help);
        for (int m = 0; m < count; m++)
            if (*models[m].name) write_histogram(out, &histograms[i], &models[m]);
    }
    write_models(out, models, count);
    write_single(out, "process_start_time_seconds", "gauge", "When the process began, in seconds since 1970.",
                 server->start_time);
    write_single(out, "process_cpu_seconds_total", "counter", "Processor time of the process.", cpu_seconds());
    write_single(out, "process_resident_memory_bytes", "gauge", "Memory of the process.", resident_bytes());
}
