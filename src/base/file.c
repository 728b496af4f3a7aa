/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "base/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static Status cannot_write(const NewFile *file) {
    return status_error(STATUS_INVALID, "\"%s\" cannot be written: %s", file->path, plain_error(errno));
}

NewFile new_file(const char *path) { return (NewFile){.path = path, .file = -1}; }

/* A link that leads nowhere is replaced like a file. */
static Status find_place(NewFile *file) {
    struct stat info;
    bool there = stat(file->path, &info) == 0;
    if (there && !S_ISREG(info.st_mode))
        return status_error(STATUS_INVALID, "\"%s\" cannot be written: it is no regular file", file->path);
    file->place = there ? realpath(file->path, NULL) : strdup(file->path);
    if (file->place) return NULL;
    return errno == ENOMEM ? status_out_of_memory() : cannot_write(file);
}

/* A file that has no name until it is whole, so that nothing is left of it where the process is killed. -1: there is no such thing in
 * this file system, or no /proc to give it a name by. */
static int open_nameless(const char *place) {
    const char *slash = strrchr(place, '/');
    char *folder = slash ? strndup(place, (size_t)(slash - place) + 1) : strdup(".");
    bool possible = folder && access("/proc/self/fd", X_OK) == 0;
    int file = possible ? open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666) : -1;
    free(folder);
    return file;
}

/* Makes a name beside the place that nothing has yet, and the file there: a new one where it is not open, else its own. False with
 * errno; ENOMEM: there is no memory. */
static bool take_name(NewFile *file) {
    static atomic_uint number;
    enum { TRIES = 100 };
    char own[32];
    snprintf(own, sizeof own, "/proc/self/fd/%d", file->file);
    for (int i = 0; i < TRIES; i++) {
        char *name;
        if (asprintf(&name, "%s.%ld-%u.tmp", file->place, (long)getpid(), atomic_fetch_add(&number, 1)) < 0) {
            errno = ENOMEM;
            return false;
        }
        bool taken;
        if (file->file >= 0)
            taken = linkat(AT_FDCWD, own, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
        else
            taken = (file->file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) >= 0;
        if (taken) {
            file->temporary = name;
            return true;
        }
        int reason = errno;
        free(name);
        errno = reason;
        if (errno != EEXIST) break;
    }
    return false;
}

static Status no_name(const NewFile *file) { return errno == ENOMEM ? status_out_of_memory() : cannot_write(file); }

Status new_file_begin(NewFile *file) {
    TRY(find_place(file));
    file->file = open_nameless(file->place);
    return file->file >= 0 || take_name(file) ? NULL : no_name(file);
}

bool file_put(int file, const void *data, size_t size) {
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

Status new_file_append(NewFile *file, const void *data, size_t size) {
    if (!file_put(file->file, data, size)) return cannot_write(file);
    file->size += (int64_t)size;
    return NULL;
}

Status new_file_close(NewFile *file) {
    bool failed = fsync(file->file) < 0 && errno != EINVAL; /* EINVAL: a file system without it */
    failed = failed || (!file->temporary && !take_name(file));
    int reason = errno;
    if (close(file->file) < 0 && !failed) failed = true, reason = errno;
    file->file = -1;
    errno = reason;
    return failed ? no_name(file) : NULL;
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

/* Out of the way of what is about to be moved to its place; nothing may stand there. */
static Status set_aside(const NewFile *file, char **out_before) {
    char *name;
    if (asprintf(&name, "%s.before", file->temporary) < 0) return status_out_of_memory();
    if (rename(file->place, name) == 0) {
        *out_before = name;
        return NULL;
    }
    Status status = errno == ENOENT ? NULL : cannot_write(file);
    free(name);
    return status;
}

/* To where it was written; what stood in its place comes back. */
static void take_back(const NewFile *file, const char *before) {
    (void)!rename(file->place, file->temporary);
    if (before) (void)!rename(before, file->place);
}

static Status move_all(NewFile *const *files, char **before, int count) {
    for (int i = 0; i < count; i++) {
        bool last = i + 1 == count; /* nothing can fail behind it, so that it replaces what is there in one step */
        Status status = last ? NULL : set_aside(files[i], &before[i]);
        if (!status && rename(files[i]->temporary, files[i]->place) < 0) {
            status = cannot_write(files[i]);
            if (before[i]) (void)!rename(before[i], files[i]->place);
        }
        if (!status) continue;
        while (i-- > 0) take_back(files[i], before[i]);
        return status;
    }
    return NULL;
}

Status new_files_publish(NewFile *const *files, int count) {
    char **before = calloc((size_t)count + 1, sizeof *before);
    if (!before) return status_out_of_memory();
    Status status = move_all(files, before, count);
    for (int i = 0; i < count; i++) {
        if (!status && before[i]) unlink(before[i]);
        free(before[i]);
        if (status) continue;
        free(files[i]->temporary);
        files[i]->temporary = NULL;
        synchronize_folder(files[i]->place);
    }
    free(before);
    return status;
}

Status new_file_publish(NewFile *file) { return new_files_publish((NewFile *[]){file}, 1); }

void new_file_abandon(NewFile *file) {
    if (file->file >= 0) close(file->file);
    if (file->temporary) unlink(file->temporary);
    free(file->temporary);
    free(file->place);
    *file = new_file(file->path);
}
