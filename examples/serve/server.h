/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP: routes of the KServe v2 protocol (Open Inference Protocol) over libmicrohttpd, limits, and what is counted. */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include "scheduler.h"
#include "watch.h"

typedef struct ServerOptions {
    const char *host;
    int port;                   /* 0: any that is free */
    int threads;                /* that read and write */
    int connections;            /* most at once; more wait to be accepted */
    int connections_an_address; /* most of these; more are closed at once; 0: any */
    WatchOptions watch;         /* clients whose connections are ended */
    int idle_seconds;
    size_t max_body;   /* bytes */
    double timeout_ms; /* of a request that names none; 0: none */
    bool log_requests;
    void (*log)(const char *message);
} ServerOptions;

typedef struct Server Server;
/* models and scheduler must outlive it. NULL: *out_problem says why. */
Server *server_start(const ServerOptions *options, Model *models, int model_count, Scheduler *scheduler,
                     Problem *out_problem);
int server_port(const Server *server);
void server_drain(Server *server);    /* from now on it is not ready and takes no inference request */
int server_in_flight(Server *server); /* inference requests whose answer is not sent */
int server_computing(Server *server); /* of these, those that the scheduler has */
void server_stop(Server *server);     /* the scheduler may have none; accepts NULL */

#endif
