/* SPDX-License-Identifier: Apache-2.0 */
/* Ends connections whose clients are too slow: with a byte now and then a client could hold a connection, and the memory
 * of a body or an answer, for as long as it likes, because each byte counts as traffic. How far it is, the kernel knows
 * (TCP_INFO). */
#ifndef SERVE_WATCH_H
#define SERVE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* What a connection's client is expected to do. */
typedef enum Phase {
    PHASE_BETWEEN,   /* send a header, some time */
    PHASE_RECEIVING, /* send a body */
    PHASE_COMPUTING, /* wait */
    PHASE_SENDING,   /* take an answer */
} Phase;

typedef struct WatchOptions {
    int64_t header; /* ns from one request to the end of the next one's header */
    int64_t grace;  /* ns that a body or an answer may take, and longer by: */
    double rate;    /* a second for so many bytes of it that have passed */
} WatchOptions;

typedef struct Watch Watch;
typedef struct Watched Watched; /* a connection */

Watch *watch_create(const WatchOptions *options); /* NULL: out of memory or threads */
Watched *watch_begin(Watch *watch, int socket);   /* NULL: out of memory; then it is not watched */
void watch_phase(Watched *watched, Phase phase);  /* accepts NULL */
void watch_end(Watched *watched);                 /* before the socket is closed; accepts NULL */
uint64_t watch_ended(Watch *watch);               /* connections that were too slow so far */
void watch_destroy(Watch *watch);                 /* no connection may be left; accepts NULL */

#endif
