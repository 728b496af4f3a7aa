/* SPDX-License-Identifier: Apache-2.0 */
/* The first reason that is seen is kept. */
#include "base/stop.h"

#include <time.h>

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t stop_deadline(double timeout_ms) {
    static const double most_ms = 1e12; /* 31 years; a double of nanoseconds beyond fits no int64_t some day */
    return now_ns() + (int64_t)((timeout_ms < most_ms ? timeout_ms : most_ms) * 1e6);
}

bool stop_is_reached(Stop *stop) {
    if (atomic_load_explicit(&stop->reached, memory_order_relaxed)) return true;
    int reason = STATUS_OK, none = STATUS_OK;
    if (stop->cancelled && atomic_load_explicit(stop->cancelled, memory_order_relaxed))
        reason = STATUS_CANCELLED;
    else if (stop->deadline_ns && now_ns() >= stop->deadline_ns)
        reason = STATUS_DEADLINE;
    if (reason) atomic_compare_exchange_strong(&stop->reached, &none, reason);
    return reason != STATUS_OK;
}

Status stop_status(Stop *stop) {
    if (!stop_is_reached(stop)) return NULL;
    if (atomic_load(&stop->reached) == STATUS_CANCELLED) return status_error(STATUS_CANCELLED, "the run was cancelled");
    return status_error(STATUS_DEADLINE, "the run did not end within %g ms", stop->timeout_ms);
}
