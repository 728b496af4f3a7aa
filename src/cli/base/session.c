/* SPDX-License-Identifier: Apache-2.0 */
/* Opening sessions, with a line of progress for whoever waits at a terminal. */
#include "cli/base/session.h"

#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 400 }; /* what takes no longer shows no progress */

typedef struct Progress {
    double begin;
    bool shown;
} Progress;

double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void show_progress(void *user, const char *what, double done) {
    Progress *progress = user;
    if (now_ms() - progress->begin < PATIENCE_MS) return;
    progress->shown = true;
    fprintf(stderr, "\r\033[K%3.0f %%  %s", done * 100, what);
    fflush(stderr);
}

OnnxfuseOptions session_options(const Options *options) {
    return (OnnxfuseOptions){.policy_file = options->policy,
                             .precision = options->precision,
                             .device = options->device,
                             .threads = options->threads};
}

Problem *session_open(const Options *options, const char *model, OnnxfuseSession **out_session) {
    Progress progress = {now_ms(), false};
    OnnxfuseOptions given = session_options(options);
    if (isatty(STDERR_FILENO)) {
        given.progress = show_progress;
        given.progress_user = &progress;
    }
    OnnxfuseStatus status = onnxfuse_session_open(model, &given, out_session);
    if (progress.shown) fputs("\r\033[K", stderr);
    return problem_from(status);
}
