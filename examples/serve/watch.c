/* SPDX-License-Identifier: Apache-2.0 */
#include "watch.h"
#include "job.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

struct Watched {
    Watched *before, *next;
    Watch *watch;
    int socket;
    Phase phase;
    int64_t since;  /* ns: when the phase began */
    uint64_t bytes; /* that had passed then */
    bool ended;
};

struct Watch {
    WatchOptions options;
    pthread_mutex_t lock; /* of all that follows: while it is held, no socket in the list is closed */
    pthread_cond_t change;
    Watched *first;
    int64_t wake;  /* ns: until when the thread sleeps */
    uint64_t slow; /* connections that were ended */
    bool stopping;
    pthread_t thread;
};

/* That have come from the client, or, of an answer, that the client's side has acknowledged; 0 where the kernel does not tell. */
static uint64_t bytes_passed(const Watched *w) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (getsockopt(w->socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
    return w->phase == PHASE_SENDING ? info.tcpi_bytes_acked : info.tcpi_bytes_received;
}

/* When the phase is to be over, by what has passed until now. */
static int64_t end_of_phase(const WatchOptions *o, const Watched *w) {
    if (w->ended || w->phase == PHASE_COMPUTING) return INT64_MAX;
    if (w->phase == PHASE_BETWEEN) return w->since + o->header;
    return w->since + o->grace + (int64_t)((double)(bytes_passed(w) - w->bytes) / o->rate * 1e9);
}

/* Whoever reads or writes the socket finds its end, and what the client has not taken goes with it. */
static void end_connection(int socket) {
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    shutdown(socket, SHUT_RDWR);
}

/* Ends what is over, and sets when the next may be. */
static void look(Watch *watch) {
    int64_t at = now_ns();
    watch->wake = INT64_MAX;
    for (Watched *w = watch->first; w; w = w->next) {
        int64_t end = end_of_phase(&watch->options, w);
        if (end <= at) {
            w->ended = true;
            watch->slow++;
            end_connection(w->socket);
        } else if (end < watch->wake) {
            watch->wake = end;
        }
    }
}

static void *run(void *argument) {
    Watch *watch = argument;
    pthread_mutex_lock(&watch->lock);
    while (!watch->stopping) {
        look(watch);
        struct timespec t = {.tv_sec = watch->wake / 1000000000, .tv_nsec = watch->wake % 1000000000};
        if (watch->wake < INT64_MAX)
            pthread_cond_timedwait(&watch->change, &watch->lock, &t);
        else
            pthread_cond_wait(&watch->change, &watch->lock);
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

/* Under the lock. */
static void begin_phase(Watched *w, Phase phase) {
    Watch *watch = w->watch;
    w->phase = phase;
    w->since = now_ns();
    if (phase == PHASE_RECEIVING || phase == PHASE_SENDING) w->bytes = bytes_passed(w);
    if (end_of_phase(&watch->options, w) < watch->wake) pthread_cond_signal(&watch->change);
}

Watch *watch_create(const WatchOptions *options) {
    Watch *watch = calloc(1, sizeof *watch);
    if (!watch) return NULL;
    watch->options = *options;
    watch->wake = INT64_MAX;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->change, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&watch->lock, NULL);
    if (pthread_create(&watch->thread, NULL, run, watch) == 0) return watch;
    pthread_cond_destroy(&watch->change);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
    return NULL;
}

Watched *watch_begin(Watch *watch, int socket) {
    Watched *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->watch = watch;
    w->socket = socket;
    pthread_mutex_lock(&watch->lock);
    w->next = watch->first;
    if (w->next) w->next->before = w;
    watch->first = w;
    begin_phase(w, PHASE_BETWEEN);
    pthread_mutex_unlock(&watch->lock);
    return w;
}

void watch_phase(Watched *w, Phase phase) {
    if (!w) return;
    pthread_mutex_lock(&w->watch->lock);
    begin_phase(w, phase);
    pthread_mutex_unlock(&w->watch->lock);
}

void watch_end(Watched *w) {
    if (!w) return;
    pthread_mutex_lock(&w->watch->lock);
    *(w->before ? &w->before->next : &w->watch->first) = w->next;
    if (w->next) w->next->before = w->before;
    pthread_mutex_unlock(&w->watch->lock);
    free(w);
}

uint64_t watch_ended(Watch *watch) {
    pthread_mutex_lock(&watch->lock);
    uint64_t ended = watch->slow;
    pthread_mutex_unlock(&watch->lock);
    return ended;
}

void watch_destroy(Watch *watch) {
    if (!watch) return;
    pthread_mutex_lock(&watch->lock);
    watch->stopping = true;
    pthread_cond_signal(&watch->change);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->change);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}
