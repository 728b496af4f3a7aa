/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing files. */
#include "cli/value/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_STEP = 1 << 16 };

/* expected: the size that a regular file says it has; 0 for a pipe. */
static Problem *read_stream(int file, size_t expected, const char *path, Bytes *bytes) {
    size_t capacity = expected + 2; /* the zero byte, and one more so that the end is met without growing */
    for (bool grow = true;;) {
        if (grow) {
            unsigned char *data = realloc(bytes->data, capacity);
            if (!data) return problem_out_of_memory();
            bytes->data = data;
        }
        ssize_t got = read(file, bytes->data + bytes->size, capacity - 1 - bytes->size);
        if (got < 0 && errno != EINTR)
            return problem(ONNXFUSE_INVALID, "\"%s\" cannot be read: %s", path, strerror(errno));
        bytes->size += got > 0 ? (size_t)got : 0;
        bytes->data[bytes->size] = 0;
        if (!got) return NULL;
        grow = bytes->size + 1 == capacity;
        if (grow) capacity += capacity / 2 + READ_STEP;
    }
}

Problem *file_read(const char *path, Bytes *out_bytes) {
    *out_bytes = (Bytes){0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (file < 0 || fstat(file, &about) < 0) {
        Problem *found = problem(ONNXFUSE_INVALID, "\"%s\" cannot be read: %s", path, strerror(errno));
        if (file >= 0) close(file);
        return found;
    }
    Problem *found = NULL;
    if (!S_ISREG(about.st_mode) && !S_ISFIFO(about.st_mode))
        found = problem(ONNXFUSE_INVALID, "\"%s\" is not a regular file", path);
    else
        found = read_stream(file, S_ISREG(about.st_mode) ? (size_t)about.st_size : 0, path, out_bytes);
    close(file);
    if (found) {
        free(out_bytes->data);
        *out_bytes = (Bytes){0};
    }
    return found;
}

bool file_exists(const char *path) { return access(path, F_OK) == 0; }

/* Of the folder that the path's file is in; NULL: there is none, or no memory. The caller frees it. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup("."),
         *resolved = folder ? realpath(folder, NULL) : NULL;
    free(folder);
    return resolved;
}

Problem *file_may_be_written(const char *path) {
    struct stat about;
    char *leads_to = realpath(path, NULL);
    bool there = leads_to && stat(leads_to, &about) == 0;
    char *folder = folder_of(leads_to ? leads_to : path);
    Problem *found = NULL;
    if (there && !S_ISREG(about.st_mode))
        found = problem(ONNXFUSE_INVALID, "\"%s\" cannot be written: it is no regular file", path);
    else if (!folder || access(folder, W_OK | X_OK) < 0)
        found = problem(ONNXFUSE_INVALID, "\"%s\" cannot be written: %s", path, strerror(errno));
    free(folder);
    free(leads_to);
    return found;
}

bool file_is_same(const char *path, const char *other) {
    struct stat a, b;
    if (stat(path, &a) == 0) return stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    if (stat(other, &b) == 0) return false;
    const char *name = strrchr(path, '/'), *other_name = strrchr(other, '/');
    if (strcmp(name ? name + 1 : path, other_name ? other_name + 1 : other) != 0) return false;
    char *folder = folder_of(path), *other_folder = folder_of(other);
    bool same = folder && other_folder && strcmp(folder, other_folder) == 0;
    free(folder);
    free(other_folder);
    return same;
}

Problem *folder_make(const char *path) {
    char *copy = strdup(path);
    if (!copy) return problem_out_of_memory();
    Problem *found = NULL;
    for (char *end = copy + 1; *copy && !found; end++) {
        if (*end && *end != '/') continue;
        char kept = *end;
        *end = 0;
        if (mkdir(copy, 0777) < 0 && errno != EEXIST)
            found = problem(ONNXFUSE_INVALID, "folder \"%s\" cannot be made: %s", copy, strerror(errno));
        *end = kept;
        if (!kept) break;
    }
    struct stat about;
    if (!found && (stat(path, &about) < 0 || !S_ISDIR(about.st_mode)))
        found = problem(ONNXFUSE_INVALID, "\"%s\" is no folder", path);
    free(copy);
    return found;
}

Problem *file_may_stand_beside(const char *model, const char *flag, const char *path) {
    if (file_is_same(path, model))
        return problem(ONNXFUSE_USAGE, "--%s \"%s\" is the file of the model: it would take that file's place", flag,
                       path);
    return file_may_be_written(path);
}

static void forget(NewFile *file) {
    if (file->stream) fclose(file->stream);
    free(file->path);
    free(file->temporary);
    *file = (NewFile){0};
}

Problem *file_begin(const char *path, NewFile *out_file) {
    TRY(file_may_be_written(path));
    NewFile file = {NULL, strdup(path), NULL};
    if (!file.path || asprintf(&file.temporary, "%s.XXXXXX", path) < 0) {
        file.temporary = NULL;
        forget(&file);
        return problem_out_of_memory();
    }
    mode_t mask = umask(0);
    umask(mask);
    int descriptor = mkostemp(file.temporary, O_CLOEXEC);
    if (descriptor >= 0) file.stream = fdopen(descriptor, "wb");
    if (!file.stream || fchmod(descriptor, 0666 & ~mask) < 0) {
        Problem *found = problem(ONNXFUSE_INVALID, "\"%s\" cannot be written: %s", path, strerror(errno));
        if (descriptor >= 0) unlink(file.temporary);
        if (descriptor >= 0 && !file.stream) close(descriptor);
        forget(&file);
        return found;
    }
    *out_file = file;
    return NULL;
}

Problem *file_finish(NewFile *file) {
    bool failed = ferror(file->stream) != 0;
    failed |= fclose(file->stream) != 0;
    file->stream = NULL;
    Problem *found = NULL;
    if (failed || rename(file->temporary, file->path) < 0) {
        found = problem(ONNXFUSE_INVALID, "\"%s\" cannot be written: %s", file->path,
                        errno ? strerror(errno) : "write error");
        unlink(file->temporary);
    }
    forget(file);
    return found;
}

Problem *file_write(const char *path, const void *data, size_t size) {
    NewFile file;
    TRY(file_begin(path, &file));
    fwrite(data, 1, size, file.stream);
    return file_finish(&file);
}
