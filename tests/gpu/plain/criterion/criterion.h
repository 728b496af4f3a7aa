/* SPDX-License-Identifier: Apache-2.0 */
/* As much of Criterion as the tests of a GPU's kernels use, for a program of one process and no library that runs them on
 * another machine and under compute-sanitizer: tests/gpu/plain/main.c. */
#ifndef ONNXFUSE_TESTS_GPU_PLAIN_CRITERION_H
#define ONNXFUSE_TESTS_GPU_PLAIN_CRITERION_H

#include <stdbool.h>
#include <stddef.h>

typedef struct PlainTest {
    const char *name;
    void (*run)(void);
    double timeout; /* what the test asks of Criterion; no meaning here */
} PlainTest;

/* Counts a failure and says where; with `stop` the test ends there. */
void plain_failed(bool stop, const char *file, int line, const char *what, const char *format, ...);

/* Ends the test, which then neither fails nor passes. */
void plain_skipped(void);
#define cr_skip_test(...) plain_skipped() /* who calls it has said why */

typedef struct PlainNamed {
    const char *name;
} PlainNamed;
extern const PlainNamed *criterion_current_suite, *criterion_current_test;

/* Tests of all files stand in one section, which the linker makes an array of. */
#define Test(suite, test, ...)                                                                                         \
    static void suite##_##test(void);                                                                                  \
    static const PlainTest suite##_##test##_entry = {.name = #suite "/" #test, .run = suite##_##test, __VA_ARGS__};    \
    __attribute__((section("plain_tests"), used)) static const PlainTest *const suite##_##test##_place =               \
        &suite##_##test##_entry;                                                                                       \
    static void suite##_##test(void)

#define PLAIN_CHECK(stop, condition, ...)                                                                              \
    do {                                                                                                               \
        if (!(condition)) plain_failed(stop, __FILE__, __LINE__, #condition, "" __VA_ARGS__);                          \
    } while (0)
#define cr_assert(...) PLAIN_CHECK(true, __VA_ARGS__)
#define cr_expect(...) PLAIN_CHECK(false, __VA_ARGS__)
#define cr_assert_eq(a, b, ...) PLAIN_CHECK(true, (a) == (b), __VA_ARGS__)
#define cr_expect_eq(a, b, ...) PLAIN_CHECK(false, (a) == (b), __VA_ARGS__)
#define cr_assert_gt(a, b, ...) PLAIN_CHECK(true, (a) > (b), __VA_ARGS__)
#define cr_assert_geq(a, b, ...) PLAIN_CHECK(true, (a) >= (b), __VA_ARGS__)
#define cr_expect_leq(a, b, ...) PLAIN_CHECK(false, (a) <= (b), __VA_ARGS__)
#define cr_assert_null(a, ...) PLAIN_CHECK(true, !(a), __VA_ARGS__)
#define cr_expect_fail(...) PLAIN_CHECK(false, false, __VA_ARGS__)

#endif
