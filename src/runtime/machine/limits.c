/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of this machine from the cache's folder, or measured and put there; and what a cost comes to by them. */
#include "runtime/machine/limits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include "base/file.h"
#include "base/log.h"
#include "base/map.h"
#include "codegen/cache/disk.h"

/* --- what they are remembered by --- */
/* The value of the first line of /proc/cpuinfo that begins with `field`; NULL: there is none. */
static const char *cpu_field(Arena *arena, const char *field) {
    char line[512], *found = NULL;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, field, strlen(field)) != 0) continue;
        colon += strspn(colon, ": \t");
        colon[strcspn(colon, "\n")] = 0;
        found = arena_string(arena, colon);
    }
    if (file) fclose(file);
    return found;
}

/* Processors of ARM have numbers alone. */
static const char *cpu_model(Arena *arena) {
    const char *name = cpu_field(arena, "model name"), *maker, *part;
    if (name) return name;
    maker = cpu_field(arena, "CPU implementer");
    part = cpu_field(arena, "CPU part");
    if (maker && part) return arena_format(arena, "processor %s of maker %s", part, maker);
    struct utsname about;
    return uname(&about) == 0 ? arena_string(arena, about.machine) : "processor";
}

const char *machine_key(Arena *arena, int threads) {
    int cores = pool_cores();
    return arena_format(arena, "%s, %d core%s, %d thread%s", cpu_model(arena), cores, cores == 1 ? "" : "s", threads,
                        threads == 1 ? "" : "s");
}

/* --- remembered --- */
enum { LARGEST_FILE = 64 << 10 };

static const char *limits_path(Arena *arena, const Policy *policy, const char *key) {
    const char *folder = disk_directory(arena, policy);
    uint64_t hash = hash_bytes(key, strlen(key), 0);
    return folder ? arena_format(arena, "%s/machine-%016llx.limits", folder, (unsigned long long)hash) : NULL;
}

static bool recall(Arena *arena, const char *path, const char *key, MachineLimits *out_limits) {
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file) return false;
    char *text = arena_alloc(arena, LARGEST_FILE);
    size_t size = fread(text, 1, LARGEST_FILE, file);
    bool good = !ferror(file) && limits_parse(text, size, key, out_limits);
    fclose(file);
    if (!good) LOG(1, "machine limits: %s is damaged or of another machine and will be replaced", path);
    return good;
}

static void remember(Arena *arena, const char *path, const char *key, const MachineLimits *limits) {
    if (!path) return;
    Text text = text_make(arena);
    limits_print(&text, key, limits);
    NewFile file = new_file(path);
    Status status = new_file_begin(&file);
    if (!status) status = new_file_append(&file, text.data, text.size);
    if (!status) status = new_file_close(&file);
    if (!status) status = new_file_publish(&file);
    new_file_abandon(&file);
    if (status) LOG(1, "machine limits are measured again next time: %s", status_message(status));
    status_free(status);
}

static Status find_limits(Arena *arena, const Policy *policy, Pool *pool, bool again, MachineLimits *out_limits) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
    int threads = pool_threads(pool);
    if (threads > pool_cores()) {
        threads = pool_cores();
        TRY(pool_shared(threads, &pool));
    }
    const char *key = machine_key(arena, threads), *path = limits_path(arena, policy, key);
    if (!again && recall(arena, path, key, out_limits)) return NULL;
    TRY(machine_measure(pool, out_limits));
    remember(arena, path, key, out_limits);
    return NULL;
}

Status machine_limits(const Policy *policy, Pool *pool, bool again, MachineLimits *out_limits) {
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Status status = find_limits(arena, policy, pool, again, out_limits);
    arena_destroy(arena);
    return status;
}

/* --- what a cost comes to --- */
/* For that many bytes: between two sizes that were measured by the logarithm of the size. */
static Bandwidth bandwidth_for(const MachineLimits *limits, double bytes) {
    const Bandwidth *b = limits->bandwidths, *last = b + limits->count - 1;
    while (b < last && b[1].bytes <= bytes) b++;
    if (b == last || bytes <= b->bytes) return *b;
    double part = log(bytes / b->bytes) / log(b[1].bytes / b->bytes);
    return (Bandwidth){bytes, b->read + part * (b[1].read - b->read), b->write + part * (b[1].write - b->write),
                       b->copy + part * (b[1].copy - b->copy)};
}

LeastTime limits_least_time(const MachineLimits *limits, const Cost *cost, double run, double scale) {
    LeastTime t = {0};
    double bytes = cost_bytes(cost), read = cost->read - cost->weights;
    Bandwidth b = bandwidth_for(limits, bytes), far = bandwidth_for(limits, run > bytes ? run : bytes);
    double both = read < cost->written ? read : cost->written;
    t.memory = 2 * both / b.copy + (read - both) / b.read + (cost->written - both) / b.write;
    t.memory = (t.memory + cost->weights / far.read) / scale;
    for (int type = 0; type < WORK_TYPES; type++) /* an instruction takes as long as a multiply-add, which counts two */
        t.arithmetic += (cost->products[type] + 2 * cost->others[type]) / (limits->products[type] * scale);
    return t;
}
