/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the choices by which a random attention graph is built: it is recognised, and means what it meant. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "random_attention.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Arena *arena = arena_create(0);
    const char *wrong = check_random_attention(1, data, size, arena);
    if (wrong) {
        fprintf(stderr, "%s\n", wrong);
        abort();
    }
    arena_destroy(arena);
    return 0;
}
