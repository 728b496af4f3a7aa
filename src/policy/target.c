/* SPDX-License-Identifier: Apache-2.0 */
/* Feature levels of CPUs: what they are called by the compiler, how wide their vectors are, whether this machine runs
 * them. */
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/vectors/vector_isa.h"

typedef struct Level {
    const char *name, *cpu, *features;
    int vector_bytes;
    bool (*runs)(void);
} Level;

#if defined(__x86_64__)
static bool runs_baseline(void) { return true; }
static bool runs_v2(void) {
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("popcnt");
}

static bool runs_v3(void) {
    return runs_v2() && vector_has_f16c() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool runs_v4(void) {
    return runs_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
static bool runs_arm(void) { return false; }
#else
static bool runs_baseline(void) { return false; }
#define runs_v2 runs_baseline
#define runs_v3 runs_baseline
#define runs_v4 runs_baseline
static bool runs_arm(void) {
#if defined(__aarch64__)
    return true;
#else
    return false;
#endif
}
#endif

/* Best first: "host" takes the first that runs. */
static const Level levels[] = {
    {"x86-64-v4", "x86-64-v4", "", 64, runs_v4}, {"x86-64-v3", "x86-64-v3", "", 32, runs_v3},
    {"x86-64-v2", "x86-64-v2", "", 16, runs_v2}, {"x86-64", "x86-64", "", 16, runs_baseline},
    {"aarch64", "generic", "", 16, runs_arm},
};

enum {
    CACHE_SHARE = 8 << 20
}; /* bytes of last-level cache a core, at most: virtual machines report that of a socket they share */

/* Bytes of last-level cache that this process may count upon. The system tells sizes as "260M", "1024K". */
static size_t last_level_cache(void) {
    size_t most = 0;
    for (int index = 0; index < 8; index++) {
        char path[96], unit = 0;
        unsigned long size;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        FILE *file = fopen(path, "r");
        if (!file) break;
        if (fscanf(file, "%lu%c", &size, &unit) >= 1) {
            size_t bytes = (size_t)size << (unit == 'M' ? 20 : unit == 'K' ? 10 : 0);
            if (bytes > most) most = bytes;
        }
        fclose(file);
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t share = (size_t)(cores > 0 ? cores : 1) * CACHE_SHARE;
    return most < share ? most : share;
}

Status target_resolve(Arena *arena, Target *target) {
    bool host = !target->level || strcmp(target->level, "host") == 0;
    (void)arena;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const Level *level = &levels[i];
        if (!host && strcmp(target->level, level->name)) continue;
        if (host && !level->runs()) continue;
        if (!level->runs()) return status_error(STATUS_USAGE, "this machine does not run code for %s", level->name);
        target->cpu = level->cpu;
        target->features = level->features;
        target->vector_bytes = level->vector_bytes;
        target->cache_bytes = last_level_cache();
        return NULL;
    }
    return status_error(STATUS_USAGE, "unknown CPU level %s: host, x86-64, x86-64-v2, x86-64-v3, x86-64-v4 or aarch64",
                        host ? "host" : target->level);
}

const char *target_level_name(const Target *target) {
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (strcmp(target->cpu, levels[i].cpu) == 0) return levels[i].name;
    return target->cpu;
}
