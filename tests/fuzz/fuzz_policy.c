/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a policy: it is refused with a message, or holds what printing it again needs. */
#include "policy/policy.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ARENA_LIMIT = 64 << 20 };

static void read_and_print(Arena *arena, const uint8_t *data, size_t size) {
    jmp_buf guard;
    if (setjmp(guard)) return;
    arena_guard(arena, &guard);
    Policy policy = policy_default();
    Status status = policy_parse((const char *)data, size, "policy", arena, &policy);
    if (status) {
        if (status_code(status) != STATUS_INVALID || !*status_message(status)) abort();
    } else {
        Text text = text_make(arena);
        policy_print(&text, &policy);
        if (!text.size) abort();
    }
    status_free(status);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Arena *arena = arena_create(ARENA_LIMIT);
    if (arena) read_and_print(arena, data, size);
    arena_destroy(arena);
    return 0;
}
