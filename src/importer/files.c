/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, mapping and the rule that a model reads nothing outside its folder. */
#include "importer/files.h"
#include "base/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Mapping {
    void *bytes; /* NULL: nothing to unmap */
    size_t size;
} Mapping;

static void unmap(void *what) {
    Mapping *mapping = what;
    if (mapping->bytes) munmap(mapping->bytes, mapping->size);
}

/* Registered before anything is opened or mapped, so that an exhausted arena loses neither. */
static Mapping *new_mapping(Arena *arena) {
    Mapping *mapping = ARENA_NEW(arena, Mapping);
    arena_defer(arena, unmap, mapping);
    return mapping;
}

static Status map_descriptor(int fd, const char *path, Mapping *mapping) {
    struct stat info;
    if (fstat(fd, &info)) return status_error(STATUS_INVALID, "%s: %s", path, plain_error(errno));
    if (!S_ISREG(info.st_mode)) return status_error(STATUS_INVALID, "%s: is not a regular file", path);
    if (info.st_size == 0) return NULL;
    void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) return status_error(STATUS_FAULT, "%s: cannot be mapped: %s", path, plain_error(errno));
    *mapping = (Mapping){bytes, (size_t)info.st_size};
    return NULL;
}

Status file_map(Arena *arena, const char *path, MappedFile *out_file) {
    Mapping *mapping = new_mapping(arena);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* not blocking: a pipe is refused, not waited for */
    if (fd < 0) return status_error(STATUS_INVALID, "%s: %s", path, plain_error(errno));
    Status status = map_descriptor(fd, path, mapping);
    close(fd);
    *out_file = (MappedFile){mapping->bytes ? mapping->bytes : (const void *)"", mapping->size};
    return status;
}

char *folder_of(Arena *arena, const char *file_path) {
    const char *slash = strrchr(file_path, '/');
    if (!slash) return arena_string(arena, ".");
    return slash == file_path ? arena_string(arena, "/")
                              : arena_string_n(arena, file_path, (size_t)(slash - file_path));
}

Folder folder_open(Arena *arena, const char *path) {
    char resolved[PATH_MAX];
    return (Folder){.arena = arena,
                    .path = path && realpath(path, resolved) ? arena_string(arena, resolved) : NULL,
                    .files = map_make(arena)};
}

static bool climbs(const char *location) {
    for (const char *part = location; part; part = strchr(part, '/'), part = part ? part + 1 : NULL)
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == 0)) return true;
    return false;
}

Status folder_map(Folder *folder, const char *location, const MappedFile **out_file) {
    if (!folder->path)
        return status_error(STATUS_INVALID, "its data is in the file \"%.200s\", but the model has no folder",
                            location);
    if (!*location || *location == '/' || climbs(location))
        return status_error(STATUS_INVALID, "its data file \"%.200s\" is not inside the model's folder", location);
    char joined[PATH_MAX], resolved[PATH_MAX];
    int length = snprintf(joined, sizeof joined, "%s/%s", folder->path, location);
    if (length < 0 || (size_t)length >= sizeof joined || !realpath(joined, resolved))
        return status_error(STATUS_INVALID, "its data file \"%.200s\" cannot be read: %s", location,
                            plain_error(errno));
    size_t root = strlen(folder->path);
    if (root == 1) root = 0; /* the folder is "/" */
    if (strncmp(resolved, folder->path, root) != 0 || resolved[root] != '/')
        return status_error(STATUS_INVALID, "its data file \"%.200s\" is a link that leaves the model's folder",
                            location);
    MappedFile *file = map_get(&folder->files, resolved);
    if (!file) {
        file = ARENA_NEW(folder->arena, MappedFile);
        TRY(status_at(file_map(folder->arena, resolved, file), "its data file"));
        map_set(&folder->files, arena_string(folder->arena, resolved), file);
        if (folder->info) VEC_PUSH(folder->arena, folder->info->mapped, *file);
    }
    *out_file = file;
    return NULL;
}

/* From this size on a copy takes its own pages: arena memory is zeroed first, and small pages cost a fault each. */
enum { OWN_PAGES_FROM = 1 << 20 };

void *bytes_copy_aligned(Arena *arena, const void *bytes, size_t size) {
    if (size >= OWN_PAGES_FROM) {
        Mapping *mapping = new_mapping(arena);
        void *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (copy != MAP_FAILED) {
            *mapping = (Mapping){copy, size};
            madvise(copy, size, MADV_HUGEPAGE);
            return memcpy(copy, bytes, size);
        }
    }
    void *copy = arena_alloc_unset(arena, size < 64 ? 64 : size);
    return size ? memcpy(copy, bytes, size) : copy;
}
