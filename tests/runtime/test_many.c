/* SPDX-License-Identifier: Apache-2.0 */
/* A process that lives long: many shapes, many sessions, one request that was too large. What is kept is bounded and
 * can be given back, and nothing is done twice. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <string.h>
#include <unistd.h>

#include "models.h"
#include "onnxfuse.h"
#include "threads.h"

static const char *const small = "graph (x: f32[n, s]) -> (z) {\n"
                                 "a = onnx Exp@21 x\n"
                                 "b = onnx Add@21 a, x\n"
                                 "y = onnx Softmax@21 b {axis = -1}\n"
                                 "z = onnx Mul@21 y, b\n"
                                 "}\n";

static void run(OnnxfuseSession *session, int64_t rows, int64_t columns) {
    OnnxfuseValue *input, *output = NULL;
    OnnxfuseStatus status = onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){rows, columns}, NULL, &input);
    cr_assert(!status);
    status = onnxfuse_session_run(session, (const OnnxfuseValue *const[]){input}, &output);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    cr_assert(onnxfuse_value_dims(output)[0] == rows && onnxfuse_value_dims(output)[1] == columns);
    onnxfuse_value_free(input);
    onnxfuse_value_free(output);
}

static OnnxfuseStats stats_of(const OnnxfuseSession *session) {
    OnnxfuseStats stats;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    return stats;
}

static long resident_kilobytes(void) {
    long total, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &total, &pages) != 2) pages = 0;
    if (file) fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

Test(many, a_thousand_shapes_keep_what_a_few_do) {
    OnnxfuseSession *session = must_open(small);
    for (int i = 0; i < 100; i++) run(session, 1 + i % 40, 1 + i);
    int64_t kept = stats_of(session).memory_bytes;
    int compiled = stats_of(session).kernels_compiled;
    long resident = resident_kilobytes();
    for (int i = 0; i < 1000; i++) run(session, 1 + i % 40, 1 + i % 97);
    OnnxfuseStats after = stats_of(session);
    cr_expect(after.memory_bytes <= kept, "%ld bytes after 100 shapes, %ld after 1,000", (long)kept,
              (long)after.memory_bytes);
    cr_expect(after.kernels_compiled == compiled, "a new shape compiles nothing");
#if !defined(__SANITIZE_ADDRESS__)
    cr_expect(resident_kilobytes() < resident + 4096, "%ld KB were resident after 100 shapes, %ld after 1,000",
              resident, resident_kilobytes());
#else
    (void)resident;
#endif
    onnxfuse_session_close(session);
}

Test(many, a_huge_request_is_given_back) {
    enum { ROWS = 1 << 16, COLUMNS = 64 };
    OnnxfuseSession *session = must_open("graph (x: f32[n, s]) -> (z) {\n"
                                         "y = onnx Softmax@21 x {axis = -1}\n"
                                         "t = onnx Transpose@21 y {perm = [1, 0]}\n"
                                         "u = onnx Softmax@21 t {axis = -1}\n"
                                         "z = onnx Transpose@21 u {perm = [1, 0]}\n"
                                         "}\n");
    run(session, 2, COLUMNS);
    int64_t before = stats_of(session).memory_bytes;
    run(session, ROWS, COLUMNS);
    cr_expect(stats_of(session).memory_peak_bytes >= (int64_t)ROWS * COLUMNS * 4, "what lies between was held");
    onnxfuse_trim(session);
    cr_expect(stats_of(session).memory_bytes == 0, "%ld bytes after a trim", (long)stats_of(session).memory_bytes);
    run(session, 2, COLUMNS);
    cr_expect(stats_of(session).memory_bytes <= before);
    onnxfuse_session_close(session);
}

Test(many, a_thousand_sessions_share_their_kernels) {
    enum { SESSIONS = 1000 };
    static OnnxfuseSession *sessions[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        sessions[i] = must_open(small);
        if (i) cr_assert(stats_of(sessions[i]).kernels_compiled == 0, "session %d compiles again", i);
    }
    run(sessions[0], 3, 5);
    run(sessions[SESSIONS - 1], 3, 5);
    for (int i = 0; i < SESSIONS; i++) onnxfuse_session_close(sessions[i]);
}

/* Threads that wait are not woken; a thread that polled or span would be switched to, however slow the machine is. */
Test(many, nothing_is_burnt_while_nothing_is_asked) {
    OnnxfuseSession *session = NULL;
    cr_assert_null(open_text(small, &(OnnxfuseOptions){.threads = 2}, &session));
    for (int i = 0; i < 10; i++) run(session, 512, 512);
    OtherThreads now = other_threads();
    for (int i = 0; i < 1000 && !now.asleep; i++) {
        usleep(10000);
        now = other_threads();
    }
    cr_assert(now.asleep && now.count > 0, "a thread does not come to rest");
    long long woken = 1; /* on a busy machine some come to rest later */
    for (int second = 0; second < 5 && (woken || !now.asleep); second++) {
        long long switches = now.switches;
        usleep(1000000);
        now = other_threads();
        woken = now.switches - switches;
    }
    cr_expect(!woken && now.asleep, "threads were woken %lld times in a second of nothing", woken);
    onnxfuse_session_close(session);
}
