/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions in a forked child: they run, or are refused with a message; nothing hangs. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "models.h"
#include "threads.h"

/* Large enough for a loop of several threads. */
static OnnxfuseValue *ones(void) {
    OnnxfuseValue *x = NULL;
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){4096, 64}, NULL, &x));
    float *data = onnxfuse_value_data(x);
    for (int i = 0; i < 4096 * 64; i++) data[i] = 1;
    return x;
}

/* The message of a failed run; "": it went well; static. */
static const char *run(OnnxfuseSession *session) {
    static char message[512];
    OnnxfuseValue *x = ones(), *y = NULL;
    OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)&x, &y);
    snprintf(message, sizeof message, "%s", onnxfuse_status_message(status));
    if (!status) {
        const float *data = onnxfuse_value_data(y);
        for (int i = 0; i < 4096 * 64; i++)
            if (data[i] != 1.0f / 4096) snprintf(message, sizeof message, "element %d is %g", i, data[i]);
    }
    onnxfuse_status_free(status);
    onnxfuse_value_free(x);
    onnxfuse_value_free(y);
    return message;
}

/* Ends the process with 0 where what it does returns 0 in time. */
static int child_of(int (*work)(void *), void *what) {
    pid_t child = fork_at_rest();
    if (!child) {
        alarm(60);
        _exit(work(what));
    }
    int state = 1;
    waitpid(child, &state, 0);
    return state;
}

static int said(const char *message, const char *part) {
    bool good = part ? strstr(message, part) != NULL : !*message;
    if (!good) fprintf(stderr, "the child: \"%s\", expected \"%s\"\n", message, part ? part : "");
    return good ? 0 : 1;
}

static OnnxfuseSession *open_threads(int threads) {
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status =
        open_text("graph (x: f32[n, 64]) -> (y) {\ny = onnx Softmax@21 x {axis = 0}\n}\n",
                  &(OnnxfuseOptions){.threads = threads, .policy_json = "{\"cache\": {\"enable\": false}}"}, &session);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    return session;
}

static int use_and_open(void *session) {
    int faults = said(run(session), NULL);
    OnnxfuseSession *own = open_threads(3);
    faults += said(run(own), NULL);
    onnxfuse_session_close(own);
    onnxfuse_session_close(session);
    return faults;
}

static int fork_again(void *session) { return said(run(session), NULL) + child_of(use_and_open, session); }

Test(fork, a_child_runs_what_its_parent_has_opened) {
    OnnxfuseSession *session = open_threads(4);
    cr_expect_eq(child_of(use_and_open, session), 0, "before the first run");
    cr_expect_str_empty(run(session));
    cr_expect_eq(child_of(use_and_open, session), 0);
    cr_expect_eq(child_of(fork_again, session), 0, "a child's child");
    cr_expect_str_empty(run(session));
    onnxfuse_session_close(session);
}

/* --- a fork while another thread runs ---------------------------------------------------------------------------- */
typedef struct Paused {
    OnnxfuseSession *session;
    sem_t inside, go_on;
} Paused;

static OnnxfuseStatus pause_run(void *user, const char *name, const char *node, const OnnxfuseValue *value) {
    Paused *p = user;
    (void)name, (void)node, (void)value;
    sem_post(&p->inside);
    sem_wait(&p->go_on);
    return NULL;
}

static void *run_paused(void *user) {
    Paused *p = user;
    OnnxfuseValue *x = ones(), *y = NULL;
    OnnxfuseRunOptions options = {.size = sizeof options, .observe = pause_run, .observe_user = p};
    OnnxfuseStatus status = onnxfuse_session_run_with(p->session, (const OnnxfuseValue *const *)&x, &y, &options);
    onnxfuse_value_free(x);
    onnxfuse_value_free(y);
    return status;
}

static int refused(void *session) {
    OnnxfuseSession *own = NULL;
    int faults = said(run(session), "forked during a call");
    OnnxfuseStatus status = open_text("graph (x: f32[1]) -> (y) {\ny = onnx Neg@21 x\n}\n", NULL, &own);
    faults += said(onnxfuse_status_message(status), "forked during a call");
    onnxfuse_status_free(status);
    onnxfuse_trim(session);
    onnxfuse_session_close(session);
    return faults;
}

Test(fork, a_child_of_a_call_is_refused) {
    Paused p = {.session = open_threads(2)};
    sem_init(&p.inside, 0, 0);
    sem_init(&p.go_on, 0, 0);
    pthread_t thread;
    cr_assert(!pthread_create(&thread, NULL, run_paused, &p));
    sem_wait(&p.inside);
    cr_expect_eq(child_of(refused, p.session), 0);
    for (int i = 0; i < 16; i++) sem_post(&p.go_on);
    void *status;
    pthread_join(thread, &status);
    cr_expect_null(status, "%s", onnxfuse_status_message(status));
    cr_expect_eq(child_of(use_and_open, p.session), 0, "after the call");
    onnxfuse_session_close(p.session);
}
