/* SPDX-License-Identifier: Apache-2.0 */
/* Work on a stack of 256 KB, the least that hosts give their threads: what recurses as deep as its input says ends there. */
#ifndef ONNXFUSE_TESTS_RUNTIME_SMALL_STACK_H
#define ONNXFUSE_TESTS_RUNTIME_SMALL_STACK_H

#include <criterion/criterion.h>
#include <pthread.h>

/* The sanitizers' frames are several times as large. */
#ifdef __SANITIZE_ADDRESS__
enum { SMALL_STACK = 1 << 20 };
#else
enum { SMALL_STACK = 256 << 10 };
#endif

static inline void on_small_stack(void *(*work)(void *), void *argument) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    cr_assert(!pthread_attr_setstacksize(&attributes, SMALL_STACK));
    cr_assert(!pthread_create(&thread, &attributes, work, argument));
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

#endif
