/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define JSON "application/json"
#define HEADER_LENGTH "Inference-Header-Content-Length" /* bytes of JSON before the binary tensor data */
#define HEADER_TIMEOUT "Onnxfuse-Timeout-Ms"

enum {
    BODIES_AT_ONCE = 16,     /* all bodies together take at most as much as this many of the largest */
    HEADER_BYTES = 32 << 10, /* of a connection's request line, headers and buffers */
    FIRST_CHUNKED_BYTES = 64 << 10,
};

struct Server {
    ServerOptions options;
    Model *models;
    int model_count;
    Scheduler *scheduler;
    struct MHD_Daemon *daemon;
    Watch *watch;
    int port;
    double start_time;
    ModelMetrics other; /* of requests that name no model */
    atomic_int connections, in_flight;
    atomic_int computing;     /* of those in flight: with the scheduler */
    atomic_size_t body_bytes; /* of all requests */
    atomic_bool draining;
};

/* --- one inference request -------------------------------------------------------------------------------------------
 * Its life: RECEIVING until the body is there, then WAITING (its connection is suspended) until a worker is DONE. A
 * REFUSED one is received as well, where its body is not too long, because a client reads the answer only when it has
 * sent all; what comes is forgotten. */
typedef enum State { RECEIVING, REFUSED, WAITING, DONE } State;

typedef struct Exchange {
    Job job;
    Server *server;
    struct MHD_Connection *connection;
    _Atomic State state;
    int socket;
    char *allocation; /* job.body lies in it so that the binary data is aligned */
    size_t capacity;  /* of job.body, without the byte for its end */
    size_t json_size; /* as the header says; SIZE_MAX: it says nothing */
    size_t reserved;  /* share in server->body_bytes */
    size_t ignored;   /* bytes received in vain */
    bool close;       /* the connection ends with the answer */
} Exchange;

static void log_request(Server *server, const char *method, const char *path, int status, int64_t begun) {
    if (!server->options.log_requests) return;
    Text line = {0};
    text_format(&line, "%s ", method);
    text_json_string(&line, path, strlen(path)); /* no control characters */
    text_format(&line, " %d %.3f ms", status, (double)(now_ns() - begun) * 1e-6);
    if (!line.failed) server->options.log(line.data);
    text_free(&line);
}

static Watched *watched(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* Takes over the response. */
static enum MHD_Result queue_response(struct MHD_Connection *connection, int status, struct MHD_Response *response) {
    if (!response) return MHD_NO;
    watch_phase(watched(connection), PHASE_SENDING);
    enum MHD_Result result = MHD_queue_response(connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

/* Takes over the text. */
static struct MHD_Response *text_response(Text *text, const char *type) {
    if (text->failed || !text->data) {
        text_free(text);
        return NULL;
    }
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback(text->size, text->data, free);
    if (!response) {
        text_free(text);
        return NULL;
    }
    *text = (Text){0};
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    return response;
}

static enum MHD_Result respond_text(struct MHD_Connection *connection, int status, Text *text, const char *type,
                                    const char *allow) {
    struct MHD_Response *response = text_response(text, type);
    if (!response) return MHD_NO;
    if (allow) MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allow);
    return queue_response(connection, status, response);
}

static enum MHD_Result respond_error(struct MHD_Connection *connection, int status, const char *message,
                                     const char *allow) {
    Reply reply = {0};
    reply_error(&reply, status, message);
    return respond_text(connection, status, &reply.head, JSON, allow);
}

static void free_sent(void *user) {
    reply_free(user);
    free(user);
}

/* A response whose body is the reply's parts where they are; takes over the reply. */
static struct MHD_Response *parts_response(Reply *reply, size_t *out_bytes) {
    Reply *sent = malloc(sizeof *sent);
    struct MHD_IoVec *parts = malloc(((size_t)reply->part_count + 1) * sizeof *parts);
    struct MHD_Response *response = NULL;
    if (sent && parts) {
        int count = 0;
        parts[count++] = (struct MHD_IoVec){reply->head.data, reply->head.size};
        for (int i = 0; i < reply->part_count; i++)
            if (reply->parts[i].iov_len)
                parts[count++] = (struct MHD_IoVec){reply->parts[i].iov_base, reply->parts[i].iov_len};
        for (int i = 0; i < count; i++) *out_bytes += parts[i].iov_len;
        *sent = *reply;
        response = MHD_create_response_from_iovec(parts, (unsigned)count, free_sent, sent);
    }
    free(parts);
    if (!response) {
        free(sent);
        return NULL;
    }
    char size[24];
    snprintf(size, sizeof size, "%zu", reply->head.size);
    MHD_add_response_header(response, HEADER_LENGTH, size);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/octet-stream");
    *reply = (Reply){0};
    return response;
}

static enum MHD_Result respond(Exchange *e, struct MHD_Connection *connection) {
    Reply *reply = &e->job.reply;
    ModelMetrics *metrics = &e->job.model->metrics;
    int status = reply->status;
    bool retry = reply->retry;
    size_t bytes = reply->binary ? 0 : reply->head.size;
    struct MHD_Response *response = reply->binary ? parts_response(reply, &bytes) : text_response(&reply->head, JSON);
    if (!response) return MHD_NO;
    if (retry) MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (e->close || atomic_load(&e->server->draining))
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    metrics_count_code(metrics, status);
    histogram_time(&metrics->total, now_ns() - e->job.begun);
    atomic_fetch_add(&metrics->sent_bytes, bytes);
    log_request(e->server, "POST", e->job.model->name, status, e->job.begun);
    return queue_response(connection, status, response);
}

static void job_done(Job *job) {
    Exchange *e = (Exchange *)job;
    struct MHD_Connection *connection = e->connection;
    atomic_store(&e->state, DONE);
    atomic_fetch_sub(&e->server->computing, 1);
    MHD_resume_connection(connection); /* from here on the exchange may be gone */
}

/* The client has closed its side, and nothing is left to read. */
static bool job_is_gone(const Job *job) {
    const Exchange *e = (const Exchange *)job;
    struct pollfd p = {.fd = e->socket, .events = POLLRDHUP};
    return e->socket >= 0 && poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

static void exchange_free(Exchange *e) {
    atomic_fetch_sub(&e->server->body_bytes, e->reserved);
    atomic_fetch_sub(&e->job.model->metrics.in_flight, 1);
    atomic_fetch_sub(&e->server->in_flight, 1);
    job_free(&e->job);
    free(e->allocation);
    free(e);
}

/* --- receiving --- */
static bool refuse(Exchange *e, int status, const char *message) {
    reply_error(&e->job.reply, status, message);
    atomic_store(&e->state, REFUSED);
    return false;
}

static bool refuse_large(Exchange *e) {
    char message[96];
    snprintf(message, sizeof message, "the body is larger than the %zu bytes that are taken",
             e->server->options.max_body);
    e->close = true;
    return refuse(e, 413, message);
}

/* Memory for a body of that size, such that what comes after the JSON is aligned. What is there already is kept. */
static bool reserve_body(Exchange *e, size_t size) {
    Server *server = e->server;
    size_t limit = server->options.max_body * BODIES_AT_ONCE;
    size_t more = size - e->capacity;
    if (atomic_fetch_add(&server->body_bytes, more) > limit - more) {
        atomic_fetch_sub(&server->body_bytes, more);
        return refuse(e, 503, "the server holds as many requests as it can");
    }
    e->reserved += more;
    char *allocation = malloc(size + REQUEST_ALIGNMENT + 1);
    if (!allocation) return refuse(e, 503, "out of memory");
    size_t json = e->json_size == SIZE_MAX ? 0 : e->json_size;
    char *body =
        allocation + (REQUEST_ALIGNMENT - ((uintptr_t)allocation + json) % REQUEST_ALIGNMENT) % REQUEST_ALIGNMENT;
    if (e->job.size) memcpy(body, e->job.body, e->job.size);
    free(e->allocation);
    e->allocation = allocation;
    e->job.body = body;
    e->capacity = size;
    return true;
}

/* A whole number in decimal; false: the header is no such number. *out_value stays as it is where there is no header.
 */
static bool number_header(struct MHD_Connection *connection, const char *name, uint64_t *out_value) {
    const char *text = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
    if (!text) return true;
    uint64_t value = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || value > (UINT64_MAX - 9) / 10) return false;
        value = value * 10 + (uint64_t)(*text - '0');
    }
    *out_value = value;
    return true;
}

/* All that can be said before the body is there. *out_unread: the body is not to be read at all. */
static bool receive_headers(Exchange *e, bool *out_unread) {
    Server *server = e->server;
    uint64_t length = 0, json = UINT64_MAX, timeout = 0;
    bool good_length = number_header(e->connection, MHD_HTTP_HEADER_CONTENT_LENGTH, &length);
    if (!good_length || length > server->options.max_body) {
        *out_unread = true;
        return good_length ? refuse_large(e) : refuse(e, 400, "the header Content-Length is no number");
    }
    if (atomic_load(&server->draining)) return refuse(e, 503, "the server is shutting down");
    const char *encoding =
        MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_ENCODING);
    if (encoding && strcasecmp(encoding, "identity") != 0) return refuse(e, 415, "compressed bodies are not taken");
    if (!number_header(e->connection, HEADER_LENGTH, &json))
        return refuse(e, 400, "the header " HEADER_LENGTH " is no number");
    if (!number_header(e->connection, HEADER_TIMEOUT, &timeout))
        return refuse(e, 400, "the header " HEADER_TIMEOUT " is no whole number of milliseconds");
    e->job.timeout_ms = timeout ? (double)timeout : server->options.timeout_ms;
    e->job.raw = json == 0;
    e->json_size = json > SIZE_MAX - 1 ? SIZE_MAX : (size_t)json;
    if (e->json_size != SIZE_MAX && e->json_size > server->options.max_body)
        return refuse(e, 400, "the header " HEADER_LENGTH " is larger than the body");
    if (!scheduler_has_room(server->scheduler, e->job.model)) return refuse(e, 503, "the queue is full");
    return length == 0 || reserve_body(e, (size_t)length);
}

/* False: the connection is to be closed. */
static bool receive_bytes(Exchange *e, const char *bytes, size_t size) {
    atomic_fetch_add(&e->job.model->metrics.received_bytes, size);
    if (atomic_load(&e->state) == REFUSED) {
        e->ignored += size;
        return e->ignored <= e->server->options.max_body;
    }
    size_t need = e->job.size + size;
    if (need > e->server->options.max_body) {
        refuse_large(e);
        return true;
    }
    if (need > e->capacity) { /* chunked: the size is not known */
        size_t capacity = e->capacity * 2 > FIRST_CHUNKED_BYTES ? e->capacity * 2 : FIRST_CHUNKED_BYTES;
        if (capacity < need) capacity = need;
        if (capacity > e->server->options.max_body) capacity = e->server->options.max_body;
        if (!reserve_body(e, capacity)) return true;
    }
    memcpy(e->job.body + e->job.size, bytes, size);
    e->job.size = need;
    return true;
}

/* Hands the body over; the connection does nothing until job_done. */
static enum MHD_Result dispatch(Exchange *e, struct MHD_Connection *connection) {
    Job *job = &e->job;
    if (!e->allocation && !reserve_body(e, 1)) return respond(e, connection);
    job->body[job->size] = 0;
    job->json_size = e->json_size == SIZE_MAX ? job->size : e->json_size;
    if (job->json_size > job->size) {
        refuse(e, 400, "the header " HEADER_LENGTH " is larger than the body");
        return respond(e, connection);
    }
    job->queued = now_ns();
    atomic_store(&e->state, WAITING);
    atomic_fetch_add(&e->server->computing, 1);
    watch_phase(watched(connection), PHASE_COMPUTING);
    MHD_suspend_connection(connection);
    if (scheduler_submit(e->server->scheduler, job)) return MHD_YES;
    reply_error(&job->reply, 503, "the queue is full");
    job_done(job);
    return MHD_YES;
}

static enum MHD_Result begin_inference(Server *server, struct MHD_Connection *connection, Model *model,
                                       void **context) {
    Exchange *e = calloc(1, sizeof *e);
    if (!e) return MHD_NO;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    e->server = server;
    e->connection = connection;
    e->socket = info ? info->connect_fd : -1;
    e->json_size = SIZE_MAX;
    e->job.model = model;
    e->job.done = job_done;
    e->job.is_gone = job_is_gone;
    e->job.begun = now_ns();
    atomic_fetch_add(&server->in_flight, 1);
    atomic_fetch_add(&model->metrics.in_flight, 1);
    *context = e;
    watch_phase(watched(connection), PHASE_RECEIVING);
    bool unread = false;
    if (receive_headers(e, &unread) || !unread) return MHD_YES;
    return respond(e, connection);
}

static enum MHD_Result continue_inference(Exchange *e, struct MHD_Connection *connection, const char *bytes,
                                          size_t *size) {
    if (*size) {
        bool good = receive_bytes(e, bytes, *size);
        *size = 0;
        return good ? MHD_YES : MHD_NO;
    }
    switch (atomic_load(&e->state)) {
    case RECEIVING: return dispatch(e, connection);
    case WAITING: return MHD_YES;
    default: return respond(e, connection);
    }
}

/* --- routes --- */
typedef enum Target {
    TARGET_NONE,
    TARGET_SERVER,
    TARGET_LIVE,
    TARGET_READY,
    TARGET_METRICS,
    TARGET_MODEL,
    TARGET_MODEL_READY,
    TARGET_INFER,
} Target;

typedef struct Route {
    Target target;
    Model *model;
    Problem problem; /* of TARGET_NONE */
} Route;

static Model *find_model(Server *server, const char *name, size_t size) {
    for (int i = 0; i < server->model_count; i++) {
        Model *m = &server->models[i];
        if (strlen(m->name) == size && memcmp(m->name, name, size) == 0) return m;
    }
    return NULL;
}

/* NAME[/versions/1][/ready|/infer] */
static Target model_target(Server *server, const char *path, Route *route) {
    size_t size = strcspn(path, "/");
    route->model = find_model(server, path, size);
    if (!route->model) {
        problem_say(&route->problem, "there is no model \"%.*s\"", size < 64 ? (int)size : 64, path);
        return TARGET_NONE;
    }
    path += size;
    if (strncmp(path, "/versions/", 10) == 0) {
        const char *version = path + 10;
        size = strcspn(version, "/");
        if (size != 1 || *version != '1') {
            problem_say(&route->problem, "model %.64s has version 1 alone", route->model->name);
            return TARGET_NONE;
        }
        path = version + size;
    }
    if (strcmp(path, "") == 0 || strcmp(path, "/") == 0) return TARGET_MODEL;
    if (strcmp(path, "/ready") == 0) return TARGET_MODEL_READY;
    return strcmp(path, "/infer") == 0 ? TARGET_INFER : TARGET_NONE;
}

static Route route_of(Server *server, const char *path) {
    static const struct {
        const char *path;
        Target target;
    } plain[] = {{"/v2", TARGET_SERVER},
                 {"/v2/", TARGET_SERVER},
                 {"/v2/health/live", TARGET_LIVE},
                 {"/v2/health/ready", TARGET_READY},
                 {"/metrics", TARGET_METRICS}};
    Route route = {.target = TARGET_NONE};
    problem_say(&route.problem, "there is nothing here; see /v2");
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(path, plain[i].path) == 0) route.target = plain[i].target;
    if (strncmp(path, "/v2/models/", 11) == 0) route.target = model_target(server, path + 11, &route);
    return route;
}

static void write_samples(Server *server, Text *out) {
    ServerSample sample = {onnxfuse_version(), server->start_time, atomic_load(&server->connections),
                           watch_ended(server->watch), !atomic_load(&server->draining)};
    ModelSample *models = calloc((size_t)server->model_count + 1, sizeof *models);
    if (!models) {
        out->failed = true;
        return;
    }
    for (int i = 0; i < server->model_count; i++) {
        OnnxfuseStats stats = {0};
        onnxfuse_session_stats(server->models[i].session, &stats, sizeof stats);
        models[i] = (ModelSample){server->models[i].name, &server->models[i].metrics, stats.memory_bytes,
                                  stats.weight_bytes, stats.runs};
    }
    models[server->model_count] = (ModelSample){.name = "", .metrics = &server->other};
    metrics_write(out, &sample, models, server->model_count + 1);
    free(models);
}

/* What GET answers; *out_status is 200 unless it says otherwise. */
static const char *write_answer(Server *server, const Route *route, Text *out, int *out_status) {
    bool ready = !atomic_load(&server->draining);
    const char *word = ready ? "true" : "false";
    *out_status = 200;
    switch (route->target) {
    case TARGET_SERVER:
        text_format(out, "{\"name\":\"onnxfuse\",\"version\":\"%s\",\"extensions\":[\"binary_tensor_data\"]}",
                    onnxfuse_version());
        break;
    case TARGET_LIVE: text_format(out, "{\"live\":true}"); break;
    case TARGET_READY:
        text_format(out, "{\"ready\":%s}", word);
        if (!ready) *out_status = 503;
        break;
    case TARGET_MODEL: text_append(out, route->model->metadata.data, route->model->metadata.size); break;
    case TARGET_MODEL_READY:
        text_format(out, "{\"name\":");
        text_json_string(out, route->model->name, strlen(route->model->name));
        text_format(out, ",\"ready\":%s}", word);
        if (!ready) *out_status = 503;
        break;
    default: write_samples(server, out); return "text/plain; version=0.0.4; charset=utf-8";
    }
    return JSON;
}

static enum MHD_Result handle(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *bytes, size_t *size, void **context) {
    (void)version;
    static char seen; /* the header of a request that is no inference */
    Server *server = user;
    if (*context && *context != &seen) return continue_inference(*context, connection, bytes, size);
    int64_t begun = now_ns();
    Route route = route_of(server, url);
    bool get = strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    bool post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
    if (route.target == TARGET_INFER && post) return begin_inference(server, connection, route.model, context);
    if (get && !*context) { /* who is answered now loses the connection, as one who sends a body in vain ought to */
        *context = &seen;
        return MHD_YES;
    }
    *context = NULL;
    ModelMetrics *metrics = route.model ? &route.model->metrics : &server->other;
    int status;
    enum MHD_Result result;
    if (route.target == TARGET_NONE) {
        status = 404;
        result = respond_error(connection, status, route.problem.text, NULL);
    } else if (route.target == TARGET_INFER) {
        status = 405;
        result = respond_error(connection, status, "an inference is asked for with POST", "POST");
    } else if (!get) {
        status = 405;
        result = respond_error(connection, status, "this takes GET and HEAD alone", "GET, HEAD");
    } else {
        Text text = {0};
        const char *type = write_answer(server, &route, &text, &status);
        result = respond_text(connection, status, &text, type, NULL);
    }
    metrics_count_code(metrics, status);
    log_request(server, method, url, status, begun);
    return result;
}

static void completed(void *user, struct MHD_Connection *connection, void **context,
                      enum MHD_RequestTerminationCode code) {
    (void)user, (void)code;
    watch_phase(watched(connection), PHASE_BETWEEN);
    if (*context) exchange_free(*context);
    *context = NULL;
}

static void connected(void *user, struct MHD_Connection *connection, void **context,
                      enum MHD_ConnectionNotificationCode code) {
    Server *server = user;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (info) *context = watch_begin(server->watch, info->connect_fd);
        atomic_fetch_add(&server->connections, 1);
    } else {
        watch_end(*context);
        atomic_fetch_sub(&server->connections, 1);
    }
}

/* Decodes %XX in a path, but for %00, which would end it. */
static size_t unescape(void *user, struct MHD_Connection *connection, char *path) {
    (void)user, (void)connection;
    char *out = path;
    for (const char *at = path; *at;) {
        char hex[3] = {at[0] == '%' ? at[1] : 0, 0}, *end = hex;
        if (hex[0]) hex[1] = at[2];
        long code = hex[0] && isxdigit((unsigned char)hex[0]) ? strtol(hex, &end, 16) : 0;
        if (code > 0 && end == hex + 2) {
            *out++ = (char)code;
            at += 3;
        } else {
            *out++ = *at++;
        }
    }
    *out = 0;
    return (size_t)(out - path);
}

static void library_message(void *user, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));
static void library_message(void *user, const char *format, va_list arguments) {
    Server *server = user;
    if (!server->options.log_requests) return;
    char message[256];
    vsnprintf(message, sizeof message, format, arguments);
    message[strcspn(message, "\n")] = 0;
    server->options.log(message);
}

/* --- starting and stopping --- */
static int listen_on(const struct addrinfo *address) {
    int socket_fd =
        socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->ai_protocol);
    if (socket_fd < 0) return -1;
    setsockopt(socket_fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(socket_fd, address->ai_addr, address->ai_addrlen) == 0 && listen(socket_fd, 1024) == 0) return socket_fd;
    int error = errno;
    close(socket_fd);
    errno = error;
    return -1;
}

static int open_socket(const ServerOptions *options, int *out_port, Problem *problem) {
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *addresses;
    snprintf(service, sizeof service, "%d", options->port);
    int code = getaddrinfo(options->host, service, &hints, &addresses);
    if (code != 0) {
        problem_say(problem, "--host %.64s: %s", options->host, gai_strerror(code));
        return -1;
    }
    int socket_fd = -1;
    for (struct addrinfo *at = addresses; at && socket_fd < 0; at = at->ai_next) socket_fd = listen_on(at);
    freeaddrinfo(addresses);
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    if (socket_fd < 0 || getsockname(socket_fd, (struct sockaddr *)&bound, &size) != 0) {
        problem_say(problem, "cannot listen on %.64s, port %d: %s", options->host, options->port, strerror(errno));
        return -1;
    }
    char port[16] = "0";
    getnameinfo((struct sockaddr *)&bound, size, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    *out_port = atoi(port);
    return socket_fd;
}

static struct MHD_Daemon *start_daemon(Server *server, int socket_fd) {
    const ServerOptions *o = &server->options;
    struct MHD_OptionItem threads[] = {{MHD_OPTION_THREAD_POOL_SIZE, o->threads, NULL}, {MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, handle, server,
        MHD_OPTION_EXTERNAL_LOGGER, library_message, server, MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,
        MHD_OPTION_LISTEN_SOCKET, socket_fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->connections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)o->connections_an_address, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)o->idle_seconds, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
        MHD_OPTION_NOTIFY_COMPLETED, completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, connected, server,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, o->threads > 1 ? threads : threads + 1, MHD_OPTION_END);
}

Server *server_start(const ServerOptions *options, Model *models, int model_count, Scheduler *scheduler,
                     Problem *problem) {
    Server *server = calloc(1, sizeof *server);
    if (!server) {
        problem_memory(problem);
        return NULL;
    }
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    server->start_time = (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
    server->options = *options;
    server->models = models;
    server->model_count = model_count;
    server->scheduler = scheduler;
    server->watch = watch_create(&options->watch);
    if (!server->watch) problem_memory(problem);
    int socket_fd = server->watch ? open_socket(options, &server->port, problem) : -1;
    if (socket_fd >= 0) {
        server->daemon = start_daemon(server, socket_fd);
        if (server->daemon) return server;
        close(socket_fd);
        problem_say(problem, "the HTTP server cannot be started");
    }
    watch_destroy(server->watch);
    free(server);
    return NULL;
}

int server_port(const Server *server) { return server->port; }
void server_drain(Server *server) { atomic_store(&server->draining, true); }
int server_in_flight(Server *server) { return atomic_load(&server->in_flight); }
int server_computing(Server *server) { return atomic_load(&server->computing); }

void server_stop(Server *server) {
    if (!server) return;
    MHD_stop_daemon(server->daemon);
    watch_destroy(server->watch);
    free(server);
}
