/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and histograms, updated from any thread without locks, and their text in Prometheus' exposition format. */
#ifndef SERVE_METRICS_H
#define SERVE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>
#include "text.h"

enum { METRICS_MOST_BUCKETS = 20, METRICS_CODES = 16 };

typedef struct Histogram {
    atomic_uint_fast64_t buckets[METRICS_MOST_BUCKETS]; /* not cumulative; the last used one is +Inf */
    atomic_uint_fast64_t sum;                           /* of what is observed: ns, or rows */
} Histogram;

/* Zero-initialised. */
typedef struct ModelMetrics {
    atomic_uint_fast64_t codes[METRICS_CODES]; /* answers by HTTP status */
    Histogram queue, compute, total;           /* ns */
    Histogram rows;                            /* of a run */
    atomic_int waiting;                        /* requests that wait for their run */
    atomic_int in_flight;                      /* requests that are being received, wait, run or are being sent */
    atomic_uint_fast64_t received_bytes, sent_bytes;
} ModelMetrics;

/* What a scrape shows of one model. */
typedef struct ModelSample {
    const char *name; /* "": requests that name no model */
    ModelMetrics *metrics;
    int64_t memory_bytes, weight_bytes, runs; /* of the session; 0 where there is none */
} ModelSample;

typedef struct ServerSample {
    const char *version;
    double start_time; /* seconds since 1970 */
    int connections;
    uint64_t slow; /* connections that were ended because their clients were too slow */
    bool ready;
} ServerSample;

void histogram_time(Histogram *histogram, int64_t ns);
void histogram_rows(Histogram *histogram, int64_t rows);
void metrics_count_code(ModelMetrics *metrics, int code);
void metrics_write(Text *out, const ServerSample *server, const ModelSample *models, int count);

#endif
