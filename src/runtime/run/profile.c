/* SPDX-License-Identifier: Apache-2.0 */
/* What each step took, as Chrome trace events. */
#include "runtime/run/profile.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

typedef struct Event {
    const Step *step;
    const char *name, *origin; /* live as long as the plan */
    const char *how, *device;
    StepKind kind;
    double start, end; /* microseconds */
    Cost cost;
} Event;

struct Profile {
    pthread_mutex_t lock;
    Event *events;
    size_t count, capacity;
};

enum { MOST_EVENTS = 1 << 20 };

double profile_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

Profile *profile_create(void) {
    Profile *profile = calloc(1, sizeof *profile);
    if (profile) pthread_mutex_init(&profile->lock, NULL);
    return profile;
}

void profile_destroy(Profile *profile) {
    if (!profile) return;
    free(profile->events);
    pthread_mutex_destroy(&profile->lock);
    free(profile);
}

void profile_add(Profile *profile, const Step *step, const char *name, const char *how, double start, double end,
                 const Cost *cost) {
    pthread_mutex_lock(&profile->lock);
    if (profile->count == profile->capacity && profile->count < MOST_EVENTS) {
        size_t capacity = profile->capacity ? profile->capacity * 2 : 1024;
        Event *events = realloc(profile->events, capacity * sizeof *events);
        if (events) {
            profile->events = events;
            profile->capacity = capacity;
        }
    }
    if (profile->count < profile->capacity)
        profile->events[profile->count++] = (Event){
            step, name, node_origin_name(step->node), how, step->on->table->name, step->kind, start, end, *cost};
    pthread_mutex_unlock(&profile->lock);
}

Status profile_json(Profile *profile, Text *text) {
    pthread_mutex_lock(&profile->lock);
    text_add(text, "{\"traceEvents\": [");
    for (size_t i = 0; i < profile->count; i++) {
        const Event *e = &profile->events[i];
        text_add(text,
                 "%s\n{\"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"ts\": %.3f, \"dur\": %.3f, \"cat\": \"%s\", \"name\": ",
                 i ? "," : "", e->start, e->end - e->start, step_kind_name(e->kind));
        text_add_json(text, e->name, strlen(e->name));
        text_add(text, ", \"args\": {\"node\": ");
        text_add_json(text, e->origin, strlen(e->origin));
        text_add(text, ", \"how\": \"%s\", \"device\": \"%s\", \"bytes\": %lld, \"work\": %lld}}", e->how, e->device,
                 (long long)cost_bytes(&e->cost), (long long)cost_all_work(&e->cost));
    }
    text_add(text, "\n]}\n");
    pthread_mutex_unlock(&profile->lock);
    return NULL;
}

/* --- times by step --- */
typedef struct Duration {
    const Step *step;
    double took;
    int event;
} Duration;

static int by_step_then_time(const void *a, const void *b) {
    const Duration *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return (x->took > y->took) - (x->took < y->took);
}

static int summarise(const Profile *profile, const Duration *sorted, int count, StepTime *times) {
    int steps = 0;
    for (int i = 0, end; i < count; i = end) {
        double total = 0;
        int latest = 0;
        for (end = i; end < count && sorted[end].step == sorted[i].step; end++) {
            total += sorted[end].took;
            if (sorted[end].event > latest) latest = sorted[end].event;
        }
        double middle = (sorted[i + (end - i) / 2].took + sorted[i + (end - i - 1) / 2].took) / 2;
        times[steps++] =
            (StepTime){sorted[i].step, end - i, sorted[i].took, middle, total, profile->events[latest].cost};
    }
    return steps;
}

int profile_times(Profile *profile, Arena *arena, StepTime **out_times) {
    pthread_mutex_lock(&profile->lock);
    int count = (int)profile->count;
    pthread_mutex_unlock(&profile->lock);
    Duration *all = ARENA_ARRAY(arena, Duration, count + 1); /* may leave by the guard: not under the lock */
    StepTime *times = ARENA_ARRAY(arena, StepTime, count + 1);
    pthread_mutex_lock(&profile->lock);
    for (int i = 0; i < count; i++)
        all[i] = (Duration){profile->events[i].step, profile->events[i].end - profile->events[i].start, i};
    if (count) qsort(all, (size_t)count, sizeof *all, by_step_then_time);
    int steps = summarise(profile, all, count, times);
    pthread_mutex_unlock(&profile->lock);
    *out_times = times;
    return steps;
}

const StepTime *profile_time_of(const StepTime *times, int count, const Step *step) {
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (times[middle].step < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && times[low].step == step ? &times[low] : NULL;
}
