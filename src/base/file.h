/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear whole or not at all: written beside their place, without a name where the file system can do that, brought to the
 * disk, then moved there. What stood in the place before is untouched until then. */
#ifndef ONNXFUSE_BASE_FILE_H
#define ONNXFUSE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

typedef struct NewFile {
    const char *path; /* what the caller named; borrowed */
    char *place;      /* where it goes: `path`, or the file that a symbolic link there leads to; NULL: not begun */
    char *temporary;  /* NULL: it has no name yet, or is in its place */
    int file;         /* -1: closed */
    int64_t size;     /* written so far */
} NewFile;

/* Not begun yet; new_file_abandon is due from here on. */
NewFile new_file(const char *path);
/* STATUS_INVALID, as from all of these, with the path and the reason. A path that leads to something other than a regular
 * file, a device above all, is refused: it would be replaced. */
Status new_file_begin(NewFile *file);
Status new_file_append(NewFile *file, const void *data, size_t size);
/* Everything is on the disk when this returns. */
Status new_file_close(NewFile *file);
/* Moves a closed file to its place. */
Status new_file_publish(NewFile *file);
/* All of them, or none: where one cannot be moved, what stood in the places of the others is there again. */
Status new_files_publish(NewFile *const *files, int count);
/* Whatever has happened: closes, removes what is not in its place, frees. */
void new_file_abandon(NewFile *file);

/* Writes all bytes; false with errno. A write of no bytes is an error (EIO), not a reason to try for ever. */
bool file_put(int file, const void *data, size_t size);

#endif
