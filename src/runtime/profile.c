/* What each step took, as Chrome trace events. */
#include "runtime/plan.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

typedef struct Event {
    const char *name, *origin; /* live as long as the plan */
    const char *how, *device;
    StepKind kind;
    double start, end; /* microseconds */
    int64_t bytes, work;
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
                 int64_t bytes, int64_t work) {
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
            name, node_origin_name(step->node), how, step->on->table->name, step->kind, start, end, bytes, work};
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
        text_add_quoted(text, e->name, strlen(e->name));
        text_add(text, ", \"args\": {\"node\": ");
        text_add_quoted(text, e->origin, strlen(e->origin));
        text_add(text, ", \"how\": \"%s\", \"device\": \"%s\", \"bytes\": %lld, \"work\": %lld}}", e->how, e->device,
                 (long long)e->bytes, (long long)e->work);
    }
    text_add(text, "\n]}\n");
    pthread_mutex_unlock(&profile->lock);
    return NULL;
}
