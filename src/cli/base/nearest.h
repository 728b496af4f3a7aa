/* SPDX-License-Identifier: Apache-2.0 */
/* The word that was meant. */
#ifndef ONNXFUSE_CLI_BASE_NEAREST_H
#define ONNXFUSE_CLI_BASE_NEAREST_H

#include <stddef.h>

typedef struct Nearest {
    const char *word; /* NULL: none is near enough */
    int distance;
} Nearest;

/* Takes `candidate` where it is nearer to the typed text than what was taken before. Begin with {0}. */
void nearest_try(Nearest *nearest, const char *typed, size_t size, const char *candidate);

#endif
