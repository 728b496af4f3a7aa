/* SPDX-License-Identifier: Apache-2.0 */
/* Counted by a handler that fork calls in the child. */
#include "base/fork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

static atomic_uint count;
static atomic_int calls;   /* under way */
static atomic_bool during; /* the process was forked during a call */

static void on_child(void) {
    if (atomic_load(&calls) > 0) atomic_store(&during, true);
    atomic_store(&calls, 0);
    atomic_fetch_add(&count, 1);
}

/* Without memory for the handler nothing is known of forks, as before the first call. */
static void watch(void) { pthread_atfork(NULL, NULL, on_child); }

unsigned fork_count(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch);
    return atomic_load_explicit(&count, memory_order_acquire);
}

Status fork_enter(void) {
    fork_count();
    if (atomic_load(&during))
        return status_error(STATUS_FAULT,
                            "the process was forked during a call of the library, which can only go on in the "
                            "parent: fork between calls, or start the program anew");
    atomic_fetch_add(&calls, 1);
    return NULL;
}

void fork_leave(void) { atomic_fetch_sub(&calls, 1); }
