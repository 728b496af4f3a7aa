/* Files that appear whole or not at all: written beside their place under a name of their own, brought to the disk, then
 * moved there. What stood in the place before is untouched until then. */
#ifndef ONNXFUSE_BASE_FILE_H
#define ONNXFUSE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

typedef struct AtomicFile {
    const char *path; /* what the caller named; borrowed */
    char *place;      /* where it goes: `path`, or the file that a symbolic link there leads to; NULL: not begun */
    char *temporary;  /* NULL: not begun, or in its place */
    int file;         /* -1: closed */
    int64_t size;     /* written so far */
} AtomicFile;

/* Not begun yet; atomic_file_abandon is due from here on. */
AtomicFile atomic_file(const char *path);
/* STATUS_INVALID, as from all of these, with the path and the reason. A path that leads to something other than a regular
 * file, a device above all, is refused: it would be replaced. */
Status atomic_file_begin(AtomicFile *file);
Status atomic_file_append(AtomicFile *file, const void *data, size_t size);
/* Everything is on the disk when this returns. */
Status atomic_file_close(AtomicFile *file);
/* Moves a closed file to its place. */
Status atomic_file_publish(AtomicFile *file);
/* Whatever has happened: closes, removes what is not in its place, frees. */
void atomic_file_abandon(AtomicFile *file);

/* Writes all bytes; false with errno. A write of no bytes is an error (EIO), not a reason to try for ever. */
bool write_whole(int file, const void *data, size_t size);

#endif
