/* SPDX-License-Identifier: Apache-2.0 */
/* One file an entry: a header, the key's text, the object. It is named by a hash of the key; the key is compared, the
 * content's hash checked. */
#include "codegen/cache/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/log.h"
#include "base/map.h"
#include "base/plain.h"

static const char suffix[] = ".kernel", temporary_prefix[] = ".new-";
enum { MOST_PATH = 4096, LARGEST_ENTRY = 64 << 20, STALE_SECONDS = 3600 };

typedef struct Header {
    char magic[8];
    uint64_t key_size, object_size, hash[2]; /* hash: of key and object, under two seeds */
} Header;
static const char magic[8] = "onxfus1";

static void hash_twice(const void *data, size_t size, uint64_t seed, uint64_t *out_hash) {
    out_hash[0] = hash_bytes(data, size, 0x243f6a8885a308d3u ^ seed);
    out_hash[1] = hash_bytes(data, size, 0x13198a2e03707344u + seed);
}

static void hash_content(const char *key, size_t key_size, const void *object, size_t size, uint64_t *out_hash) {
    uint64_t a[2], b[2];
    hash_twice(key, key_size, 1, a);
    hash_twice(object, size, 2, b);
    out_hash[0] = a[0] ^ b[0] * 3;
    out_hash[1] = a[1] + b[1] * 5;
}

/* --- the directory --- */

static bool trusted(const struct stat *info) {
    return info->st_uid == geteuid() && !(info->st_mode & (S_IWGRP | S_IWOTH));
}

static bool make_path(char *path) {
    for (char *at = path + 1; *at; at++) {
        if (*at != '/') continue;
        *at = 0;
        bool made = mkdir(path, 0700) == 0 || errno == EEXIST || errno == EISDIR;
        *at = '/';
        if (!made) return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static char *default_directory(Arena *arena) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg && xdg[0] == '/') return arena_format(arena, "%s/onnxfuse", xdg);
    return home && home[0] == '/' ? arena_format(arena, "%s/.cache/onnxfuse", home) : NULL;
}

const char *disk_directory(Arena *arena, const Policy *policy) {
    if (!policy->cache.enable) return NULL;
    char *path = policy->cache.directory ? arena_string(arena, policy->cache.directory) : default_directory(arena);
    if (!path || !path[0] || strlen(path) > MOST_PATH - 128) return NULL;
    struct stat info;
    if (!make_path(path) || stat(path, &info) || !S_ISDIR(info.st_mode)) {
        LOG(1, "kernel cache: cannot use %s: %s", path, plain_error(errno));
        return NULL;
    }
    if (trusted(&info)) return path;
    LOG(1, "kernel cache: %s is ignored, since others than its user may write there", path);
    return NULL;
}

static void entry_path(const char *directory, const char *key, size_t key_size, char *out_path) {
    uint64_t hash[2];
    hash_twice(key, key_size, 0, hash);
    snprintf(out_path, MOST_PATH, "%s/%016llx%016llx%s", directory, (unsigned long long)hash[0],
             (unsigned long long)hash[1], suffix);
}

/* --- reading --- */

static bool read_all(int file, void *data, size_t size) {
    for (size_t at = 0; at < size;) {
        ssize_t got = read(file, (char *)data + at, size - at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += (size_t)got;
    }
    return true;
}

static bool check_entry(const char *data, size_t size, const char *key, size_t key_size) {
    Header h;
    if (size < sizeof h) return false;
    memcpy(&h, data, sizeof h);
    size_t rest = size - sizeof h;
    if (memcmp(h.magic, magic, sizeof magic) || h.key_size > rest || h.object_size != rest - h.key_size) return false;
    const char *stored = data + sizeof h, *object = stored + h.key_size;
    uint64_t hash[2];
    hash_content(stored, h.key_size, object, h.object_size, hash);
    return hash[0] == h.hash[0] && hash[1] == h.hash[1] && h.key_size == key_size && memcmp(stored, key, key_size) == 0;
}

static char *read_entry(int file, size_t *out_size) {
    struct stat info;
    if (fstat(file, &info) || !S_ISREG(info.st_mode) || !trusted(&info) || info.st_size < 0 ||
        info.st_size > LARGEST_ENTRY)
        return NULL;
    char *data = malloc((size_t)info.st_size + 1);
    *out_size = (size_t)info.st_size;
    if (data && read_all(file, data, *out_size)) return data;
    free(data);
    return NULL;
}

bool disk_read(const char *directory, const char *key, size_t key_size, void **out_object, size_t *out_size) {
    char path[MOST_PATH];
    entry_path(directory, key, key_size, path);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return false;
    size_t size;
    char *data = read_entry(file, &size);
    bool good = data && check_entry(data, size, key, key_size);
    if (good) {
        size_t before = sizeof(Header) + key_size;
        memmove(data, data + before, size - before);
        *out_object = data;
        *out_size = size - before;
        futimens(file, NULL); /* used now */
    } else {
        LOG(1, "kernel cache: %s is damaged and will be replaced", path);
        free(data);
    }
    close(file);
    return good;
}

/* --- writing --- */

void disk_write(const char *directory, const char *key, size_t key_size, const void *object, size_t size) {
    static atomic_uint counter;
    char path[MOST_PATH], temporary[MOST_PATH];
    if (sizeof(Header) + key_size + size > LARGEST_ENTRY) return;
    entry_path(directory, key, key_size, path);
    snprintf(temporary, sizeof temporary, "%s/%s%ld-%u", directory, temporary_prefix, (long)getpid(),
             atomic_fetch_add(&counter, 1));
    int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) {
        LOG(1, "kernel cache: cannot write to %s: %s", directory, plain_error(errno));
        return;
    }
    Header h = {.key_size = key_size, .object_size = size};
    memcpy(h.magic, magic, sizeof magic);
    hash_content(key, key_size, object, size, h.hash);
    bool written = file_put(file, &h, sizeof h) && file_put(file, key, key_size) && file_put(file, object, size);
    written = close(file) == 0 && written;
    if (written && rename(temporary, path) == 0) return;
    LOG(1, "kernel cache: cannot write %s: %s", path, plain_error(errno));
    unlink(temporary);
}

/* --- trimming --- */

typedef struct Entry {
    char name[64];
    struct timespec used;
    off_t size;
} Entry;

static int by_age(const void *a, const void *b) {
    const struct timespec *x = &((const Entry *)a)->used, *y = &((const Entry *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static bool ends_with(const char *name, const char *end) {
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

static Entry *list_entries(DIR *directory, int *out_count) {
    Entry *entries = NULL;
    int count = 0, capacity = 0;
    for (struct dirent *d; (d = readdir(directory));) {
        struct stat info;
        bool left = strncmp(d->d_name, temporary_prefix, sizeof temporary_prefix - 1) == 0;
        if ((!left && !ends_with(d->d_name, suffix)) || strlen(d->d_name) >= sizeof entries->name) continue;
        if (fstatat(dirfd(directory), d->d_name, &info, AT_SYMLINK_NOFOLLOW) || !S_ISREG(info.st_mode)) continue;
        if (left) {
            if (time(NULL) - info.st_mtime > STALE_SECONDS) unlinkat(dirfd(directory), d->d_name, 0);
            continue;
        }
        if (count == capacity) {
            capacity = capacity ? capacity * 2 : 64;
            Entry *grown = realloc(entries, (size_t)capacity * sizeof *entries);
            if (!grown) break;
            entries = grown;
        }
        entries[count] = (Entry){.used = info.st_mtim, .size = info.st_size};
        strcpy(entries[count++].name, d->d_name);
    }
    *out_count = count;
    return entries;
}

void disk_trim(const char *directory, int64_t max_megabytes) {
    DIR *open_directory = opendir(directory);
    if (!open_directory) return;
    int count;
    Entry *entries = list_entries(open_directory, &count);
    int64_t total = 0, most = max_megabytes << 20;
    for (int i = 0; i < count; i++) total += entries[i].size;
    if (total > most) {
        qsort(entries, (size_t)count, sizeof *entries, by_age);
        for (int i = 0; i < count && total > most - most / 8; i++) {
            unlinkat(dirfd(open_directory), entries[i].name, 0);
            total -= entries[i].size;
        }
    }
    free(entries);
    closedir(open_directory);
}
