/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: the double's functions, taken from the library where they stand. */
#ifndef ONNXFUSE_TESTS_CUDA_LOAD_H
#define ONNXFUSE_TESTS_CUDA_LOAD_H

#include <criterion/criterion.h>
#include <dlfcn.h>

#include "double.h"

#define DOUBLE_POINTER(result, name, parameters) __attribute__((unused)) static result(*name) parameters;
DOUBLE_FUNCTIONS(DOUBLE_POINTER)
#undef DOUBLE_POINTER

static void double_load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(library, "%s", dlerror());
#define DOUBLE_TAKE(result, name, parameters) *(void **)&name = dlsym(library, #name);
    DOUBLE_FUNCTIONS(DOUBLE_TAKE)
#undef DOUBLE_TAKE
    double_reset();
}

static void books_are_even(const char *when) {
    cr_expect(double_violations() == 0, "%s: %d violations: %s", when, double_violations(), double_first_violation());
    cr_expect(double_outstanding() == 0, "%s: %d objects left: %s", when, double_outstanding(),
              double_first_outstanding());
    cr_expect(double_memory_used() == 0, "%s: %zu bytes left", when, double_memory_used());
}

#endif
