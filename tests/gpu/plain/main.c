/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the tests of tests/runtime/test_gpu_{anchor,attention,movement,window}.c on the device that ONNXFUSE_TEST_DEVICE
 * names ("cuda", "opencl"), one after the other in this process:
 *
 *   gpu_steps [--list] [PART...]     those whose names have one of the parts; all without
 *
 * Prints a line a test; ends with code 1 when some fail. */
#include <criterion/criterion.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

extern const PlainTest *const __start_plain_tests[], *const __stop_plain_tests[];

static jmp_buf end_of_test;
static int failures; /* of the test that runs */
static PlainNamed suite = {"gpu_steps"}, current;
const PlainNamed *criterion_current_suite = &suite, *criterion_current_test = &current;

enum { RAN, STOPPED, SKIPPED }; /* how a test has ended */

void plain_skipped(void) { longjmp(end_of_test, SKIPPED); }

void plain_failed(bool stop, const char *file, int line, const char *what, const char *format, ...) {
    va_list args;
    printf("%s:%d: %s: ", file, line, what);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    failures++;
    if (stop) longjmp(end_of_test, STOPPED);
}

static bool is_wanted(const char *name, char **parts, int count) {
    for (int i = 0; i < count; i++)
        if (strstr(name, parts[i])) return true;
    return count == 0;
}

/* Whether all went well. */
static bool run_test(const PlainTest *test) {
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    failures = 0;
    current.name = test->name;
    int volatile ended = setjmp(end_of_test);
    if (ended == RAN) test->run();
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
    printf("%s %s (%.1f s)\n", failures ? "FAIL" : ended == SKIPPED ? "skip" : "ok  ", test->name, seconds);
    fflush(stdout);
    return !failures;
}

int main(int argc, char **argv) {
    bool list = argc > 1 && strcmp(argv[1], "--list") == 0;
    int skip = list ? 2 : 1, bad = 0;
    for (const PlainTest *const *t = __start_plain_tests; t < __stop_plain_tests; t++) {
        if (!is_wanted((*t)->name, argv + skip, argc - skip)) continue;
        if (list)
            printf("%s\n", (*t)->name);
        else
            bad += !run_test(*t);
    }
    return bad > 0;
}
