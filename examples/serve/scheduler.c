/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler.h"
#include "queue.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_LINES = 16, /* different shapes that are looked at for a run, so that many cost no time */
};

struct Scheduler {
    SchedulerOptions options;
    Model *models;
    int model_count;
    OnnxfuseCancel *cancel;
    pthread_mutex_t lock; /* of all that follows, and of the models' lists */
    pthread_cond_t work;
    Job *incoming, **incoming_end; /* not parsed */
    int ready_count;               /* parsed and waiting, of all models */
    uint64_t parsed;               /* so far */
    Deadlines deadlines;           /* of the parsed */
    int running;
    int next_model;     /* the one that is asked first */
    bool trimmed;       /* since the last run */
    int64_t idle_since; /* ns; while running is 0 */
    bool stopping;
    pthread_t *workers;
    int worker_count;
};

/* Jobs that run together. */
typedef struct Group {
    Model *model;
    Job *jobs; /* a list */
    int count;
    int64_t rows;
    uint64_t shape;
} Group;

/* --- choosing, under the lock --- */
static void take_out(Scheduler *s, Job *job) {
    queue_remove(&job->model->ready, job);
    deadlines_remove(&s->deadlines, job);
    s->ready_count--;
    atomic_fetch_sub(&job->model->metrics.waiting, 1);
}

static bool is_batched(const Scheduler *s, const Model *m) { return !m->unbatched && s->options.max_rows > 1; }

static bool is_running(const Model *m, uint64_t shape) {
    for (int i = 0; i < m->running; i++)
        if (m->running_shapes[i] == shape) return true;
    return false;
}

/* Counts the jobs at the beginning of the line that may run together: up to the limit of rows. */
static Group group_of(const Scheduler *s, Model *m, const Line *line, bool *out_full) {
    const Job *first = line->first;
    Group g = {.model = m, .count = 1, .rows = first->rows, .shape = first->shape};
    *out_full = first->rows >= s->options.max_rows || first->rows < 1 || !is_batched(s, m);
    for (const Job *job = first->next; job && !*out_full; job = job->next) {
        if (g.rows + job->rows > s->options.max_rows) {
            *out_full = true;
            break;
        }
        g.rows += job->rows;
        g.count++;
        *out_full = g.rows == s->options.max_rows;
    }
    return g;
}

/* Whether the group is to run now. A group that is not full waits while another of its shape runs, because it grows
 * meanwhile, and then for the delay while the model has requests that may still join it: a lone one never waits. */
static bool is_due(const Scheduler *s, const Group *g, const Job *first, bool full, int64_t now, int64_t *wake) {
    if (full) return true;
    if (is_running(g->model, g->shape)) return false;
    int64_t until = first->queued + s->options.delay;
    if (s->options.delay == 0 || now >= until || atomic_load(&g->model->metrics.in_flight) <= g->count) return true;
    if (until < *wake) *wake = until;
    return false;
}

static void take_group(Scheduler *s, Group *g, Job *job) {
    Job **end = &g->jobs;
    for (int left = g->count; left > 0; left--) {
        Job *next = job->next;
        take_out(s, job);
        *end = job;
        end = &job->next;
        job = next;
    }
    g->model->running_shapes[g->model->running++] = g->shape;
    s->running++;
}

static bool pick_of(Scheduler *s, Model *m, int64_t now, int64_t *wake, Group *out_group) {
    int looked_at = 0;
    for (const Line *line = m->ready.oldest; line && looked_at < MOST_LINES; line = line->newer, looked_at++) {
        bool full;
        *out_group = group_of(s, m, line, &full);
        if (!is_due(s, out_group, line->first, full, now, wake)) continue;
        take_group(s, out_group, line->first);
        return true;
    }
    return false;
}

static bool pick(Scheduler *s, int64_t now, int64_t *wake, Group *out_group) {
    if (s->running >= s->options.runs || !s->ready_count) return false;
    for (int i = 0; i < s->model_count; i++) {
        Model *m = &s->models[(s->next_model + i) % s->model_count];
        if (!pick_of(s, m, now, wake, out_group)) continue;
        s->next_model = (int)(m - s->models + 1) % s->model_count;
        return true;
    }
    return false;
}

/* Takes out the waiting jobs whose time is over. */
static Job *pick_late(Scheduler *s, int64_t now, int64_t *wake) {
    Job *late = NULL, *job;
    while ((job = deadlines_first(&s->deadlines)) && job->deadline <= now) {
        take_out(s, job);
        job->next = late;
        late = job;
    }
    if (job && job->deadline < *wake) *wake = job->deadline;
    return late;
}

/* --- running --- */
static void finish(Job *job) { job->done(job); }

static void fail(Job *job, int status, const char *message) {
    reply_error(&job->reply, status, message);
    finish(job);
}

static void fail_late(Job *job) { fail(job, 504, "the request's time is over"); }

static int http_status(OnnxfuseCode code) {
    switch (code) {
    case ONNXFUSE_INVALID:
    case ONNXFUSE_USAGE: return 400;
    case ONNXFUSE_CANCELLED: return 503;
    case ONNXFUSE_DEADLINE: return 504;
    default: return 500;
    }
}

/* The latest deadline of the group, as milliseconds from now; 0: none. */
static double time_left(const Group *g, int64_t now) {
    int64_t latest = 0;
    for (const Job *job = g->jobs; job; job = job->next) {
        if (!job->deadline) return 0;
        if (job->deadline > latest) latest = job->deadline;
    }
    return latest > now ? (double)(latest - now) * 1e-6 : 1e-6;
}

/* One input of the group: a lone job's own memory, else all rows one after the other in *out_memory. */
static OnnxfuseStatus join_input(const Group *g, int input, OnnxfuseValue **out_value, void **out_memory) {
    const Tensor *first = g->jobs->inputs[input];
    if (!first) return NULL;
    if (g->count == 1)
        return onnxfuse_value_tensor(first->dtype, first->rank, first->dims, first->bytes ? first->data : NULL,
                                     out_value);
    size_t bytes = 0;
    for (const Job *job = g->jobs; job; job = job->next) bytes += job->inputs[input]->bytes;
    char *at = *out_memory = malloc(bytes ? bytes : 1);
    if (!at) return onnxfuse_error(ONNXFUSE_FAULT, "out of memory");
    for (const Job *job = g->jobs; job; job = job->next) {
        if (job->inputs[input]->bytes) memcpy(at, job->inputs[input]->data, job->inputs[input]->bytes);
        at += job->inputs[input]->bytes;
    }
    int64_t dims[ONNXFUSE_MAX_RANK];
    memcpy(dims, first->dims, sizeof dims);
    dims[0] = g->rows;
    return onnxfuse_value_tensor(first->dtype, first->rank, dims, *out_memory, out_value);
}

static OnnxfuseStatus run_session(Scheduler *s, const Group *g, Results *results) {
    Model *m = g->model;
    OnnxfuseStatus status = NULL;
    OnnxfuseValue **inputs = calloc((size_t)m->input_count + 1, sizeof *inputs);
    void **memory = calloc((size_t)m->input_count + 1, sizeof *memory);
    if (!inputs || !memory) status = onnxfuse_error(ONNXFUSE_FAULT, "out of memory");
    for (int i = 0; !status && i < m->input_count; i++) status = join_input(g, i, &inputs[i], &memory[i]);
    OnnxfuseRunOptions options = {.size = sizeof options, .cancel = s->cancel, .timeout_ms = time_left(g, now_ns())};
    if (!status)
        status = onnxfuse_session_run_with(m->session, (const OnnxfuseValue *const *)inputs, results->values, &options);
    for (int i = 0; i < m->input_count; i++) {
        if (inputs) onnxfuse_value_free(inputs[i]);
        if (memory) free(memory[i]);
    }
    free(inputs);
    free(memory);
    return status;
}

/* Whether the results have the rows that the inputs had: else the model's first dims are not what they seem. */
static bool has_rows(const Results *results, int64_t rows) {
    for (int i = 0; i < results->count; i++) {
        const OnnxfuseValue *value = results->values[i];
        if (onnxfuse_value_rank(value) < 1 || onnxfuse_value_dims(value)[0] != rows) return false;
    }
    return true;
}

static void answer(Group *g, Results *results, int64_t begin, int64_t end) {
    int64_t row = 0;
    ModelMetrics *metrics = &g->model->metrics;
    histogram_rows(&metrics->rows, g->rows < 0 ? 1 : g->rows);
    while (g->jobs) {
        Job *job = g->jobs;
        g->jobs = job->next;
        histogram_time(&metrics->queue, begin - job->queued);
        histogram_time(&metrics->compute, end - begin);
        int64_t rows = job->rows;
        if (job->deadline && job->deadline <= end) {
            fail_late(job);
        } else {
            job_answer(job, results, g->count > 1 ? row : -1);
            finish(job);
        }
        row += rows;
    }
}

static void run_group(Scheduler *s, Group *g);

/* One wrong request must not fail those beside it. */
static void run_each(Scheduler *s, Group *g) {
    while (g->jobs) {
        Job *job = g->jobs;
        g->jobs = job->next;
        job->next = NULL;
        Group alone = {.model = g->model, .jobs = job, .count = 1, .rows = job->rows, .shape = job->shape};
        run_group(s, &alone);
    }
}

static void fail_group(Group *g, OnnxfuseStatus status) {
    while (g->jobs) {
        Job *job = g->jobs;
        g->jobs = job->next;
        fail(job, http_status(onnxfuse_status_code(status)), onnxfuse_status_message(status));
    }
}

static void run_group(Scheduler *s, Group *g) {
    Results *results = results_create(g->model->output_count);
    int64_t begin = now_ns();
    OnnxfuseStatus status = results ? run_session(s, g, results) : onnxfuse_error(ONNXFUSE_FAULT, "out of memory");
    OnnxfuseCode code = onnxfuse_status_code(status);
    if (!status && g->count > 1 && !has_rows(results, g->rows)) {
        s->options.log(
            "a model's results do not have as many rows as its inputs: its requests run one by one from now on");
        pthread_mutex_lock(&s->lock);
        g->model->unbatched = "its results do not have as many rows as its inputs";
        pthread_mutex_unlock(&s->lock);
        run_each(s, g);
    } else if (!status) {
        answer(g, results, begin, now_ns());
    } else if (g->count > 1 && code != ONNXFUSE_CANCELLED && code != ONNXFUSE_DEADLINE) {
        run_each(s, g);
    } else {
        fail_group(g, status);
    }
    onnxfuse_status_free(status);
    results_release(results);
}

/* Leaves out what nobody waits for. */
static void drop_gone(Group *g) {
    for (Job **link = &g->jobs; *link;) {
        Job *job = *link;
        if (!job->is_gone(job)) {
            link = &job->next;
            continue;
        }
        *link = job->next;
        g->count--;
        g->rows -= job->rows;
        fail(job, 499, "the client has gone");
    }
}

/* --- workers --- */
static void run_picked(Scheduler *s, Group *g) {
    if (g->count == 1) g->rows = g->jobs->rows;
    drop_gone(g);
    if (g->count > 0) run_group(s, g);
}

static void leave_running(Scheduler *s, const Group *g) {
    Model *m = g->model;
    int i = 0;
    while (m->running_shapes[i] != g->shape) i++;
    m->running_shapes[i] = m->running_shapes[--m->running];
    s->running--;
    s->trimmed = false;
    s->idle_since = now_ns();
}

/* Under the lock. False: out of memory. */
static bool make_ready(Scheduler *s, Job *job) {
    job->number = s->parsed++;
    if (!queue_add(&job->model->ready, job)) return false;
    if (!deadlines_add(&s->deadlines, job)) {
        queue_remove(&job->model->ready, job);
        return false;
    }
    s->ready_count++;
    return true;
}

/* Parses one job, and lets others have it when it is good. Called and left with the lock held. */
static void parse_next(Scheduler *s) {
    Job *job = s->incoming;
    s->incoming = job->next;
    if (!s->incoming) s->incoming_end = &s->incoming;
    job->next = NULL;
    pthread_mutex_unlock(&s->lock);
    bool good = job_prepare(job);
    pthread_mutex_lock(&s->lock);
    if (good && make_ready(s, job)) return;
    pthread_mutex_unlock(&s->lock);
    if (good) reply_error(&job->reply, 503, "out of memory");
    atomic_fetch_sub(&job->model->metrics.waiting, 1);
    finish(job);
    pthread_mutex_lock(&s->lock);
}

static void sleep_until(Scheduler *s, int64_t wake) {
    if (wake == INT64_MAX) {
        pthread_cond_wait(&s->work, &s->lock);
        return;
    }
    struct timespec t = {.tv_sec = wake / 1000000000, .tv_nsec = wake % 1000000000};
    pthread_cond_timedwait(&s->work, &s->lock, &t);
}

/* Whether memory is to be given back now; else when, if at all. */
static bool is_trim_due(const Scheduler *s, int64_t now, int64_t *wake) {
    if (s->trimmed || s->running) return false;
    int64_t until = s->idle_since + s->options.idle;
    if (until > now && until < *wake) *wake = until;
    return until <= now;
}

static void trim(Scheduler *s) {
    s->trimmed = true;
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->model_count; i++) onnxfuse_trim(s->models[i].session);
    pthread_mutex_lock(&s->lock);
}

static void *work(void *argument) {
    Scheduler *s = argument;
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        int64_t now = now_ns(), wake = INT64_MAX;
        Group group;
        Job *late = pick_late(s, now, &wake);
        if (late) {
            pthread_mutex_unlock(&s->lock);
            while (late) {
                Job *job = late;
                late = job->next;
                fail_late(job);
            }
            pthread_mutex_lock(&s->lock);
        } else if (s->incoming && s->ready_count < s->options.max_rows) {
            parse_next(s);
        } else if (pick(s, now, &wake, &group)) {
            if (s->incoming || s->ready_count) pthread_cond_signal(&s->work);
            pthread_mutex_unlock(&s->lock);
            run_picked(s, &group);
            pthread_mutex_lock(&s->lock);
            leave_running(s, &group);
        } else if (s->incoming) {
            parse_next(s);
        } else if (is_trim_due(s, now, &wake)) {
            trim(s);
        } else {
            sleep_until(s, wake);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- from outside --- */
bool scheduler_has_room(Scheduler *s, const Model *model) {
    return atomic_load(&((Model *)model)->metrics.waiting) < s->options.queue;
}

bool scheduler_submit(Scheduler *s, Job *job) {
    if (atomic_fetch_add(&job->model->metrics.waiting, 1) >= s->options.queue) {
        atomic_fetch_sub(&job->model->metrics.waiting, 1);
        return false;
    }
    job->next = NULL;
    pthread_mutex_lock(&s->lock);
    *s->incoming_end = job;
    s->incoming_end = &job->next;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    return true;
}

void scheduler_cancel(Scheduler *s) { onnxfuse_cancel(s->cancel); }

static bool make_models_ready(Scheduler *s) {
    for (int i = 0; i < s->model_count; i++) {
        s->models[i].running_shapes = calloc((size_t)s->options.runs, sizeof *s->models[i].running_shapes);
        if (!s->models[i].running_shapes) return false;
    }
    return true;
}

/* One worker more than there may be runs, so that requests are parsed and put together meanwhile. */
static bool start_workers(Scheduler *s) {
    s->workers = calloc((size_t)s->options.runs + 1, sizeof *s->workers);
    if (!s->workers) return false;
    for (; s->worker_count <= s->options.runs; s->worker_count++)
        if (pthread_create(&s->workers[s->worker_count], NULL, work, s) != 0) return false;
    return true;
}

Scheduler *scheduler_create(const SchedulerOptions *options, Model *models, int model_count) {
    Scheduler *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->options = *options;
    s->models = models;
    s->model_count = model_count;
    s->incoming_end = &s->incoming;
    s->trimmed = true;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&s->work, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&s->lock, NULL);
    OnnxfuseStatus status = onnxfuse_cancel_create(&s->cancel);
    if (!status && make_models_ready(s) && start_workers(s)) return s;
    onnxfuse_status_free(status);
    scheduler_destroy(s);
    return NULL;
}

void scheduler_destroy(Scheduler *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->worker_count; i++) pthread_join(s->workers[i], NULL);
    free(s->workers);
    deadlines_free(&s->deadlines);
    onnxfuse_cancel_free(s->cancel);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
