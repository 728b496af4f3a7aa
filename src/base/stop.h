/* SPDX-License-Identifier: Apache-2.0 */
/* What ends work early: a flag that another thread raises, a point in time. Work asks at moments of its own choosing;
 * what it was told once stays so, for all who ask. */
#ifndef ONNXFUSE_BASE_STOP_H
#define ONNXFUSE_BASE_STOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

typedef struct Stop {
    const atomic_int *cancelled; /* not 0: stop; NULL: there is none */
    int64_t deadline_ns;         /* of CLOCK_MONOTONIC; 0: none */
    double timeout_ms;           /* what the deadline was made of, for the message */
    atomic_int reached;          /* a StatusCode once it was, else STATUS_OK */
} Stop;

/* Thread-safe; 1 ns without a deadline, 25 ns with one. */
bool stop_is_reached(Stop *stop);
/* STATUS_CANCELLED or STATUS_DEADLINE when it was reached before or is now. */
Status stop_status(Stop *stop);
/* The deadline of a timeout that begins now. */
int64_t stop_deadline(double timeout_ms);

#endif
