/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled kernels on disk. Every failure is a miss: a cache that cannot be read or written costs time, never a run. */
#ifndef ONNXFUSE_CODEGEN_DISK_H
#define ONNXFUSE_CODEGEN_DISK_H

#include "policy/policy.h"

/* The directory to use, made if missing; NULL when caching is off or the directory cannot be trusted: it holds code, so
 * it must be the user's own and not writable by others. */
const char *disk_directory(Arena *arena, const Policy *policy);

/* true: *out_object (malloc'ed) is what disk_write put there for exactly this key, unaltered. */
bool disk_read(const char *directory, const char *key, size_t key_size, void **out_object, size_t *out_size);
/* Safe beside other processes that read and write the same entry. */
void disk_write(const char *directory, const char *key, size_t key_size, const void *object, size_t size);
/* Removes the entries used longest ago until at most max_megabytes are left, and what writers that died left behind. */
void disk_trim(const char *directory, int64_t max_megabytes);

#endif
