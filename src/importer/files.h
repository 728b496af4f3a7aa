/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped files: the model's own, and those its external tensors name. Mappings are read-only and live as long as the
 * arena. */
#ifndef ONNXFUSE_IMPORTER_FILES_H
#define ONNXFUSE_IMPORTER_FILES_H

#include "base/arena.h"
#include "base/map.h"
#include "graph/graph.h"

/* The folder that external tensors may lie in, and what has been mapped from it. */
typedef struct Folder {
    Arena *arena;
    const char *path; /* resolved; NULL: the model has no folder (it came from memory) */
    Map files;        /* resolved path -> MappedFile * */
    ModelInfo *info;  /* told of each; NULL: nobody is */
} Folder;

/* A regular file, mapped. A file that is changed or cut while it is mapped is the user's fault, as with any mapped
 * file. */
Status file_map(Arena *arena, const char *path, MappedFile *out_file);
/* path may be NULL. A folder that is not there gives no error until an external tensor is read. */
Folder folder_open(Arena *arena, const char *path);
/* The folder part of a file's path: "." when it has none. */
char *folder_of(Arena *arena, const char *file_path);
/* `location` is relative to the folder and must not leave it: not by being absolute, not by "..", not through a
 * symbolic link. */
Status folder_map(Folder *folder, const char *location, const MappedFile **out_file);

/* A copy of mapped or other bytes at a 64-byte boundary; large ones take huge pages where the system has them. */
void *bytes_copy_aligned(Arena *arena, const void *bytes, size_t size);
#endif
