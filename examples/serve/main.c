/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse-serve: serves models over HTTP until it is told to stop. Options, start, signals, end. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "server.h"

typedef enum Level { LEVEL_ERROR, LEVEL_INFO, LEVEL_DEBUG } Level;
static const char *const level_names[] = {"error", "info", "debug"};
static Level level = LEVEL_INFO;

typedef struct Settings {
    ServerOptions server;
    SchedulerOptions scheduler;
    OnnxfuseOptions session;
    double delay_ms, max_body_mb, drain_seconds, transfer_seconds, transfer_kb;
} Settings;

/* --- log --- */
static void log_line(const char *message) {
    struct timespec t;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &utc);
    fprintf(stderr, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s\n", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
            utc.tm_hour, utc.tm_min, utc.tm_sec, t.tv_nsec / 1000000, message);
}

static void log_at(Level at, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void log_at(Level at, const char *format, ...) {
    if (at > level) return;
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    log_line(message);
}

static void log_info(const char *message) { log_at(LEVEL_INFO, "%s", message); }

/* --- options --- */
typedef struct Option {
    const char *name, *value, *help;
    enum { OPTION_TEXT, OPTION_INTEGER, OPTION_REAL, OPTION_LEVEL } type;
    size_t offset; /* in Settings */
    double low, high;
} Option;

#define AT(member) offsetof(Settings, member)
static const Option options[] = {
    {"port", "N", "port to listen on; 0: any that is free (8000)", OPTION_INTEGER, AT(server.port), 0, 65535},
    {"host", "ADDR", "address to listen on; :: or 0.0.0.0: all (127.0.0.1)", OPTION_TEXT, AT(server.host), 0, 0},
    {"threads", "N", "threads that take part in a run (the policy's, else all cores)", OPTION_INTEGER,
     AT(session.threads), 1, 1024},
    {"runs", "N", "most runs at once (one a core)", OPTION_INTEGER, AT(scheduler.runs), 1, 1024},
    {"max-batch", "N", "most rows of requests that are put together; 1: none are (8)", OPTION_INTEGER,
     AT(scheduler.max_rows), 1, 65536},
    {"batch-delay-ms", "T", "how long a request waits for others to join it (0)", OPTION_REAL, AT(delay_ms), 0, 10000},
    {"queue", "N", "most requests of a model that wait; more are answered by 503 (256)", OPTION_INTEGER,
     AT(scheduler.queue), 1, 1000000},
    {"timeout-ms", "T", "time that a request may take; 0: any (0)", OPTION_REAL, AT(server.timeout_ms), 0, 1e9},
    {"max-body-mb", "N", "largest body in MiB; larger ones are answered by 413 (64)", OPTION_REAL, AT(max_body_mb),
     0.001, 16384},
    {"connections", "N", "most connections at once (1024)", OPTION_INTEGER, AT(server.connections), 1, 60000},
    {"connections-per-address", "N", "most of one address; more are closed at once; 0: any (0)", OPTION_INTEGER,
     AT(server.connections_an_address), 0, 60000},
    {"transfer-seconds", "T", "in which a client sends a body, or takes an answer (20)", OPTION_REAL,
     AT(transfer_seconds), 0.1, 86400},
    {"transfer-kb", "N", "of a body or an answer, for which a client is given a second more (16)", OPTION_REAL,
     AT(transfer_kb), 0.001, 1e9},
    {"idle-seconds", "N", "after which idle connections are closed and memory is given back (60)", OPTION_INTEGER,
     AT(server.idle_seconds), 1, 86400},
    {"drain-seconds", "T", "how long running requests may take to end after SIGTERM (30)", OPTION_REAL,
     AT(drain_seconds), 0, 86400},
    {"policy", "FILE", "policy of the models (docs/policy.md)", OPTION_TEXT, AT(session.policy_file), 0, 0},
    {"device", "NAME", "auto, cpu, cuda, opencl", OPTION_TEXT, AT(session.device), 0, 0},
    {"log", "LEVEL", "error, info, or debug: a line a request (info)", OPTION_LEVEL, 0, 0, 0},
};
enum { OPTIONS = sizeof options / sizeof *options, OPTION_HELP = OPTIONS, OPTION_VERSION };

static void print_help(FILE *out) {
    fprintf(out, "usage: onnxfuse-serve [NAME=]MODEL... [options]\n\n"
                 "Serves models over HTTP with the KServe v2 protocol (Open Inference Protocol).\n\n");
    for (int i = 0; i < OPTIONS; i++) {
        int width = fprintf(out, "  --%s %s", options[i].name, options[i].value);
        fprintf(out, "%*s%s\n", width < 24 ? 24 - width : 1, "", options[i].help);
    }
    fprintf(out,
            "  --help, --version\n\n"
            "SIGTERM or SIGINT: no new requests, those that are running end, exit code 0; a second one: at once.\n");
}

static bool wrong(const Option *option, const char *found, const char *expected) {
    fprintf(stderr, "onnxfuse-serve: --%s: expected %s, found \"%s\"\n", option->name, expected, found);
    return false;
}

static bool set_level(const Option *option, const char *value) {
    for (int i = 0; i <= LEVEL_DEBUG; i++)
        if (strcmp(value, level_names[i]) == 0) return level = (Level)i, true;
    return wrong(option, value, "error, info or debug");
}

static bool set_option(const Option *option, const char *value, Settings *settings) {
    void *at = (char *)settings + option->offset;
    if (option->type == OPTION_LEVEL) return set_level(option, value);
    if (option->type == OPTION_TEXT) return *(const char **)at = value, true;
    char *end, expected[64];
    double number = strtod(value, &end);
    bool whole = option->type == OPTION_INTEGER;
    snprintf(expected, sizeof expected, "%s from %g to %g", whole ? "a whole number" : "a number", option->low,
             option->high);
    if (end == value || *end || !(number >= option->low && number <= option->high) ||
        (whole && number != floor(number)))
        return wrong(option, value, expected);
    if (whole)
        *(int *)at = (int)number;
    else
        *(double *)at = number;
    return true;
}

/* -1: go on; else the exit code. */
static int parse(int argc, char **argv, Settings *settings) {
    struct option table[OPTIONS + 3] = {{0}};
    for (int i = 0; i < OPTIONS; i++) table[i] = (struct option){options[i].name, required_argument, NULL, i};
    table[OPTIONS] = (struct option){"help", no_argument, NULL, OPTION_HELP};
    table[OPTIONS + 1] = (struct option){"version", no_argument, NULL, OPTION_VERSION};
    for (int found; (found = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        if (found == OPTION_HELP) return print_help(stdout), 0;
        if (found == OPTION_VERSION) return printf("onnxfuse-serve %s\n", onnxfuse_version()), 0;
        if (found == '?' || !set_option(&options[found], optarg, settings)) return ONNXFUSE_USAGE;
    }
    if (optind < argc) return -1;
    print_help(stderr);
    return ONNXFUSE_USAGE;
}

static int core_count(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? count : 1;
}

/* Reading and writing takes a small part of what runs take: one thread serves some ten cores. */
static void complete(Settings *settings) {
    int cores = core_count();
    if (!settings->scheduler.runs) settings->scheduler.runs = cores;
    settings->server.threads = cores >= 16 ? cores / 8 : 1;
    if (settings->server.threads > settings->server.connections) settings->server.threads = 1;
    settings->scheduler.delay = (int64_t)(settings->delay_ms * 1e6);
    settings->scheduler.idle = (int64_t)settings->server.idle_seconds * 1000000000;
    settings->server.max_body = (size_t)(settings->max_body_mb * 1048576);
    WatchOptions *watch = &settings->server.watch;
    watch->grace = (int64_t)(settings->transfer_seconds * 1e9);
    watch->rate = settings->transfer_kb * 1024;
    watch->header = settings->scheduler.idle + watch->grace;
    settings->server.log_requests = level >= LEVEL_DEBUG;
}

/* --- start and end --- */
static int open_models(char **arguments, int count, const Settings *settings, Model *models) {
    for (int i = 0; i < count; i++) {
        OnnxfuseStatus status = model_open(arguments[i], &settings->session, &models[i]);
        for (int k = 0; !status && k < i; k++)
            if (strcmp(models[k].name, models[i].name) == 0)
                status = onnxfuse_error(ONNXFUSE_USAGE, "two models have this name; say NAME=MODEL");
        if (status) {
            int code = (int)onnxfuse_status_code(status);
            fprintf(stderr, "onnxfuse-serve: %s: %s\n", arguments[i], onnxfuse_status_message(status));
            onnxfuse_status_free(status);
            return code;
        }
        const char *unbatched = models[i].unbatched;
        if (settings->scheduler.max_rows <= 1) unbatched = "--max-batch is 1";
        log_at(LEVEL_INFO, "model %s on %s: requests %s%s", models[i].name,
               onnxfuse_session_device_name(models[i].session),
               unbatched ? "are run one by one, because " : "of equal shapes are run together",
               unbatched ? unbatched : "");
    }
    return 0;
}

static bool wait_signal(const sigset_t *set, double milliseconds) {
    struct timespec t = {(time_t)(milliseconds / 1000), (long)(fmod(milliseconds, 1000) * 1e6)};
    return sigtimedwait(set, NULL, &t) > 0;
}

/* Until nothing is in flight; false: a second signal has come. Runs that outlast the time are ended, and clients that
 * do not read their answers are left after a moment. */
static bool drain(Server *server, Scheduler *scheduler, const sigset_t *set, double seconds) {
    enum { LOOK_MS = 5, MOMENT_NS = 1000000000 };
    server_drain(server);
    log_at(LEVEL_INFO, "draining: %d requests are left", server_in_flight(server));
    int64_t end = now_ns() + (int64_t)(seconds * 1e9);
    bool cancelled = false;
    while (server_in_flight(server) > 0) {
        if (wait_signal(set, LOOK_MS)) return false;
        if (now_ns() < end) continue;
        if (!cancelled) log_at(LEVEL_INFO, "ending %d requests that take too long", server_in_flight(server));
        if (!cancelled) scheduler_cancel(scheduler);
        cancelled = true;
        if (now_ns() > end + MOMENT_NS && server_computing(server) == 0) break;
    }
    return true;
}

static int serve(const Settings *settings, Model *models, int count, const sigset_t *set) {
    Problem problem;
    Scheduler *scheduler = scheduler_create(&settings->scheduler, models, count);
    Server *server = NULL;
    if (scheduler)
        server = server_start(&settings->server, models, count, scheduler, &problem);
    else
        problem_memory(&problem);
    if (!server) {
        fprintf(stderr, "onnxfuse-serve: %s\n", problem.text);
        scheduler_destroy(scheduler);
        return ONNXFUSE_USAGE;
    }
    /* The one line of standard output: whoever has asked for port 0 reads it here. */
    printf("listening on http://%s:%d\n", settings->server.host, server_port(server));
    fflush(stdout);
    while (sigwaitinfo(set, NULL) < 0 && errno == EINTR) {}
    if (!drain(server, scheduler, set, settings->drain_seconds)) _exit(1);
    server_stop(server);
    scheduler_destroy(scheduler);
    log_at(LEVEL_INFO, "stopped");
    return 0;
}

int main(int argc, char **argv) {
    Settings settings = {
        .server = {.host = "127.0.0.1", .port = 8000, .connections = 1024, .idle_seconds = 60, .log = log_info},
        .scheduler = {.max_rows = 8, .queue = 256, .log = log_info},
        .session = {.size = sizeof settings.session},
        .max_body_mb = 64,
        .drain_seconds = 30,
        .transfer_seconds = 20,
        .transfer_kb = 16,
    };
    int code = parse(argc, argv, &settings);
    if (code >= 0) return code;
    complete(&settings);
    /* Before any thread begins, so that the signals come to sigwaitinfo alone. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    int count = argc - optind;
    Model *models = calloc((size_t)count, sizeof *models);
    if (!models) return ONNXFUSE_FAULT;
    code = open_models(argv + optind, count, &settings, models);
    if (!code) code = serve(&settings, models, count, &set);
    for (int i = 0; i < count; i++) model_close(&models[i]);
    free(models);
    return code;
}
