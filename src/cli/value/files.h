/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files in memory, and files that appear whole or not at all. */
#ifndef ONNXFUSE_CLI_INPUT_FILES_H
#define ONNXFUSE_CLI_INPUT_FILES_H

#include <stdbool.h>
#include "cli/base/problem.h"

typedef struct Bytes {
    unsigned char *data; /* malloc; a zero byte follows the last */
    size_t size;
} Bytes;

/* ONNXFUSE_INVALID, naming the file, when it cannot be read. Reads regular files and pipes. */
Problem *file_read(const char *path, Bytes *out_bytes);
/* Makes the folder and those above it. */
Problem *folder_make(const char *path);
bool file_exists(const char *path);
/* Before the work whose result goes there: that there is a folder, which may be written to, and no folder or device in the file's place. */
Problem *file_may_be_written(const char *path);
/* Whether both paths lead to one file, which need not be there yet. */
bool file_is_same(const char *path, const char *other);
/* file_may_be_written, and is not the model's file. flag: what the path was given by. */
Problem *file_may_stand_beside(const char *model, const char *flag, const char *path);

/* A file under way: written beside its place, moved there by file_finish. */
typedef struct NewFile {
    FILE *stream;
    char *path, *temporary;
} NewFile;

Problem *file_begin(const char *path, NewFile *out_file);
Problem *file_finish(NewFile *file); /* on failure nothing is left */
Problem *file_write(const char *path, const void *data, size_t size);

#endif
