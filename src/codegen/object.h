/* SPDX-License-Identifier: Apache-2.0 */
/* A relocatable ELF object -> executable memory. Needs no LLVM, so that kernels from the disk cache run without it. */
#ifndef ONNXFUSE_CODEGEN_OBJECT_H
#define ONNXFUSE_CODEGEN_OBJECT_H

#include <stddef.h>
#include "base/status.h"

typedef struct ObjectCode {
    void *memory; /* mapped, read and execute */
    size_t bytes;
    void *function; /* inside memory */
} ObjectCode;

/* `data` may be anything: malformed content, undefined symbols and relocations that we do not know give STATUS_INVALID.
 * What the code does when called is not checked: only call what comes from a trusted place. `data` is not needed
 * afterwards. */
Status object_load(const void *data, size_t size, const char *symbol, ObjectCode *out_code);
void object_unload(ObjectCode *code);

#endif
