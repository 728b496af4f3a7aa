/* SPDX-License-Identifier: Apache-2.0 */
#include "counted_memory.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);

/* --- which fails --- */
static _Thread_local bool counting;
static _Thread_local long long calls, fails_at;
static _Thread_local const void *failed_at;

void counted_begin(long long fail_at) {
    calls = 0;
    fails_at = fail_at;
    failed_at = NULL;
    counting = true;
}

long long counted_end(void) {
    counting = false;
    return calls;
}

const void *counted_failed(void) { return failed_at; }

static bool fails(const void *caller) {
    if (!counting || ++calls != fails_at) return false;
    failed_at = caller;
    errno = ENOMEM;
    return true;
}

/* --- what is in use: a table by address, with linear probing --- */
enum { ROOM = 1 << 20 };
static const char gone; /* its address: a block was here */
static struct Block {
    const void *memory, *caller;
    unsigned mark;
} blocks[ROOM];
static size_t in_use;
static unsigned current_mark;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t place_of(const void *memory) { return ((uintptr_t)memory >> 4) * 0x9e3779b97f4a7c15u >> 44; }

static void *taken(void *memory, const void *caller) {
    if (!memory) return NULL;
    pthread_mutex_lock(&lock);
    if (in_use > ROOM / 2) abort();
    size_t at = place_of(memory);
    while (blocks[at].memory && blocks[at].memory != &gone) at = (at + 1) % ROOM;
    blocks[at] = (struct Block){memory, caller, current_mark};
    in_use++;
    pthread_mutex_unlock(&lock);
    return memory;
}

/* Of what another library has made nothing is known. */
static void given_back(const void *memory) {
    if (!memory) return;
    pthread_mutex_lock(&lock);
    size_t at = place_of(memory), steps = 0;
    while (blocks[at].memory && blocks[at].memory != memory && steps++ < ROOM) at = (at + 1) % ROOM;
    if (blocks[at].memory == memory) {
        size_t next = (at + 1) % ROOM;
        blocks[at].memory = blocks[next].memory ? &gone : NULL;
        in_use--;
    }
    pthread_mutex_unlock(&lock);
}

size_t counted_blocks(void) { return in_use; }

void counted_mark(void) { current_mark++; }

const void *counted_lost(void) {
    for (size_t i = 0; i < ROOM; i++)
        if (blocks[i].memory && blocks[i].memory != &gone && blocks[i].mark == current_mark) return blocks[i].caller;
    return NULL;
}

/* --- the functions --- */
#define CALLER __builtin_return_address(0)

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *memory);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
int __wrap_vasprintf(char **out_text, const char *format, va_list args);
int __wrap_asprintf(char **out_text, const char *format, ...);
char *__wrap_realpath(const char *path, char *resolved);

void *__wrap_malloc(size_t bytes) { return fails(CALLER) ? NULL : taken(__real_malloc(bytes), CALLER); }

void *__wrap_calloc(size_t count, size_t bytes) {
    return fails(CALLER) ? NULL : taken(__real_calloc(count, bytes), CALLER);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return fails(CALLER) ? NULL : taken(__real_aligned_alloc(alignment, bytes), CALLER);
}

void *__wrap_realloc(void *memory, size_t bytes) {
    if (fails(CALLER)) return NULL;
    given_back(memory);
    return taken(__real_realloc(memory, bytes), CALLER);
}

void __wrap_free(void *memory) {
    given_back(memory);
    __real_free(memory);
}

static char *copy_of(const char *text, size_t size, const void *caller) {
    char *copy = fails(caller) ? NULL : taken(__real_malloc(size + 1), caller);
    if (!copy) return NULL;
    memcpy(copy, text, size);
    copy[size] = 0;
    return copy;
}

char *__wrap_strdup(const char *text) { return copy_of(text, strlen(text), CALLER); }

char *__wrap_strndup(const char *text, size_t size) { return copy_of(text, strnlen(text, size), CALLER); }

static int print(char **out_text, const char *format, va_list args, const void *caller) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = length < 0 || fails(caller) ? NULL : taken(__real_malloc((size_t)length + 1), caller);
    if (!text) return -1;
    *out_text = text;
    return vsnprintf(text, (size_t)length + 1, format, args);
}

int __wrap_vasprintf(char **out_text, const char *format, va_list args) {
    return print(out_text, format, args, CALLER);
}

int __wrap_asprintf(char **out_text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = print(out_text, format, args, CALLER);
    va_end(args);
    return length;
}

char *__real_realpath(const char *path, char *resolved);
char *__wrap_realpath(const char *path, char *resolved) {
    if (resolved) return __real_realpath(path, resolved);
    char *made = __real_malloc(PATH_MAX);
    if (!made) return NULL;
    char *found = __real_realpath(path, made);
    char *copy = found ? copy_of(found, strlen(found), CALLER) : NULL;
    __real_free(made);
    return copy;
}
