#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static Status cannot_write(const AtomicFile *file) {
    return status_error(STATUS_INVALID, "\"%s\" cannot be written: %s", file->path, strerror(errno));
}

AtomicFile atomic_file(const char *path) { return (AtomicFile){.path = path, .file = -1}; }

/* A link that leads nowhere is replaced like a file. */
static Status find_place(AtomicFile *file) {
    struct stat info;
    bool there = stat(file->path, &info) == 0;
    if (there && !S_ISREG(info.st_mode))
        return status_error(STATUS_INVALID, "\"%s\" cannot be written: it is no regular file", file->path);
    file->place = there ? realpath(file->path, NULL) : strdup(file->path);
    return file->place ? NULL : cannot_write(file);
}

Status atomic_file_begin(AtomicFile *file) {
    static atomic_uint number;
    enum { TRIES = 100 };
    TRY(find_place(file));
    for (int i = 0; i < TRIES && file->file < 0; i++) {
        char *name;
        if (asprintf(&name, "%s.%ld-%u.tmp", file->place, (long)getpid(), atomic_fetch_add(&number, 1)) < 0)
            return status_out_of_memory();
        file->file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->file >= 0) {
            file->temporary = name;
            return NULL;
        }
        int reason = errno;
        free(name);
        errno = reason;
        if (errno != EEXIST) break;
    }
    return cannot_write(file);
}

bool write_whole(int file, const void *data, size_t size) {
    enum { MOST_AT_ONCE = 1 << 30 }; /* below what one call writes on Linux */
    const char *bytes = data;
    while (size) {
        ssize_t put = write(file, bytes, size < MOST_AT_ONCE ? size : MOST_AT_ONCE);
        if (put < 0 && errno == EINTR) continue;
        if (put == 0) errno = EIO;
        if (put <= 0) return false;
        bytes += put;
        size -= (size_t)put;
    }
    return true;
}

Status atomic_file_append(AtomicFile *file, const void *data, size_t size) {
    if (!write_whole(file->file, data, size)) return cannot_write(file);
    file->size += (int64_t)size;
    return NULL;
}

Status atomic_file_close(AtomicFile *file) {
    bool failed = fsync(file->file) < 0 && errno != EINVAL; /* EINVAL: a file system without it */
    int reason = errno;
    if (close(file->file) < 0 && !failed) failed = true, reason = errno;
    file->file = -1;
    errno = reason;
    return failed ? cannot_write(file) : NULL;
}

/* So that a new name, too, is on the disk; the file is in its place all the same. */
static void synchronize_folder(const char *path) {
    char *copy = strdup(path), *slash = copy ? strrchr(copy, '/') : NULL;
    if (slash) slash[slash == copy] = 0;
    int folder = copy ? open(slash ? copy : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (folder >= 0) {
        fsync(folder);
        close(folder);
    }
    free(copy);
}

Status atomic_file_publish(AtomicFile *file) {
    if (rename(file->temporary, file->place) < 0) return cannot_write(file);
    free(file->temporary);
    file->temporary = NULL;
    synchronize_folder(file->place);
    return NULL;
}

void atomic_file_abandon(AtomicFile *file) {
    if (file->file >= 0) close(file->file);
    if (file->temporary) unlink(file->temporary);
    free(file->temporary);
    free(file->place);
    *file = atomic_file(file->path);
}
