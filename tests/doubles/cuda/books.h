/* SPDX-License-Identifier: Apache-2.0 */
/* What the three doubles share: the books in libcuda's double. All calls are made with the books' lock held, which
 * double_enter takes. */
#ifndef ONNXFUSE_TESTS_CUDA_BOOKS_H
#define ONNXFUSE_TESTS_CUDA_BOOKS_H

#include <stdbool.h>
#include "double.h"
#include "runtime/device/cuda/api.h"

typedef enum ObjectKind {
    OBJECT_CONTEXT,
    OBJECT_MODULE,
    OBJECT_FUNCTION, /* lives as long as its module; not counted */
    OBJECT_STREAM,
    OBJECT_EVENT,
    OBJECT_GRAPH,
    OBJECT_EXEC,
    OBJECT_MEMORY,
    OBJECT_PINNED,
    OBJECT_PROGRAM,
    OBJECT_LT_HANDLE,
    OBJECT_LT_DESC,
    OBJECT_LT_LAYOUT,
    OBJECT_LT_PREFERENCE,
    OBJECT_POOL,
} ObjectKind;

/* Every object begins with this; it stays in the books after its release, so that a later use is noticed. */
typedef struct Object {
    ObjectKind kind;
    bool alive;
    struct Object *context; /* that it belongs to and dies with; NULL: none */
    struct Object *next;
} Object;

enum { MOST_TOUCHED = 32 };

/* Takes the lock; the result that the call shall give: 0, or the injected failure. */
int books_enter(int failure);
void books_leave(void);
bool books_lost(void);
int64_t books_property(DoubleProperty property);
void books_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* of_context: of the one that is current on the thread. */
void *books_new(ObjectKind kind, size_t size, bool of_context);
/* The living object of that kind, of the thread's context if of any, or NULL and a violation that names `what`. */
void *books_check(const void *handle, ObjectKind kind, const char *what);
/* Notes the release; false and a violation when it is none of the living. */
bool books_release(const void *handle, ObjectKind kind, const char *what);
bool books_has_context(const char *what);
/* Whether the thread may make calls that a strict recording forbids; marks the recording as broken when not. */
bool books_unsafe_call(void);
/* The host's memory behind device memory; NULL and a violation when not all of it is in one living allocation. */
void *books_memory(CuDevicePointer data, size_t bytes, const char *what);
/* Work for the stream, or for its recording: run(copy of data) when the stream is waited for. exclusive: 0, or memory
 * that no other work may use at the same time. */
int books_enqueue(CuStream stream, const char *what, void (*run)(void *), const void *data, size_t size,
                  const CuDevicePointer *touched, int count, CuDevicePointer exclusive);
void books_count_heuristic(int reduction_mask);
void books_note_compute(int compute);

#endif
