/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that cannot run where something is missing. Each says so in a line that begins with "skipped: ", which ./check
 * counts, and is marked as skipped. */
#ifndef ONNXFUSE_TESTS_RUNTIME_SKIP_H
#define ONNXFUSE_TESTS_RUNTIME_SKIP_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

/* Of a part of a test: goes on with the rest. */
static inline void skip_part(const char *why) {
    fprintf(stderr, "skipped: %s::%s: %s\n", criterion_current_suite->name, criterion_current_test->name, why);
}

/* Ends the test. Takes ownership of the status. */
static inline void skip_test(const char *what, Status status) {
    char message[512];
    snprintf(message, sizeof message, "%s%s%s", what, status ? ": " : "", status_message(status));
    status_free(status);
    skip_part(message);
    cr_skip_test("%s", message);
}

/* After opening a device: goes on on success, skips where the machine has no such platform; whatever else has gone wrong
 * fails. */
static inline void skip_without_device(Status status) {
    if (!status) return;
    const char *message = status_message(status);
    cr_assert(strstr(message, "was not found") || strstr(message, "no OpenCL driver"), "%s", message);
    skip_test("no device", status);
}

#endif
