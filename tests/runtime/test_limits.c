/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's limits: remembered, measured where they are not, and what costs come to by them. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "runtime/machine/limits.h"

static const MachineLimits some = {
    .threads = 2,
    .count = 2,
    .bandwidths = {{1e5, 8e9, 4e9, 6e9}, {1e7, 2e9, 1e9, 1.5e9}},
    .products = {1e9, 5e8, 1e9, 2e9, 4e9},
};

static bool same(const MachineLimits *a, const MachineLimits *b) {
    if (a->threads != b->threads || a->count != b->count || memcmp(a->products, b->products, sizeof a->products))
        return false;
    return memcmp(a->bandwidths, b->bandwidths, sizeof *a->bandwidths * (size_t)a->count) == 0;
}

/* --- as text --- */
Test(limits, read_back_as_they_were_and_nothing_else_does) {
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    MachineLimits back;
    limits_print(&text, "a machine", &some);
    cr_assert(limits_parse(text.data, text.size, "a machine", &back) && same(&some, &back));
    cr_expect(!limits_parse(text.data, text.size, "a machin", &back), "of another machine");
    cr_expect(!limits_parse(text.data, text.size, "a machine, larger", &back), "of another machine");
    for (size_t size = 0; size < text.size; size++)
        cr_expect(!limits_parse(text.data, size, "a machine", &back), "%zu bytes of it", size);
    for (size_t at = 0; at < text.size; at++) {
        char *changed = arena_copy(arena, text.data, text.size + 1);
        changed[at] ^= 1;
        cr_expect(!limits_parse(changed, text.size, "a machine", &back), "byte %zu is another", at);
    }
    arena_destroy(arena);
}

/* What was written with a sound hash but makes no sense as limits. */
Test(limits, that_make_no_sense_are_refused) {
    MachineLimits wrong[4] = {some, some, some, some};
    wrong[0].products[WORK_F64] = -1;
    wrong[1].bandwidths[1].bytes = 1e4; /* does not rise */
    wrong[2].bandwidths[0].read = (double)INFINITY;
    wrong[3].count = 0;
    for (int i = 0; i < 4; i++) {
        Arena *arena = arena_create(0);
        Text text = text_make(arena);
        MachineLimits back;
        limits_print(&text, "m", &wrong[i]);
        cr_expect(!limits_parse(text.data, text.size, "m", &back), "%d", i);
        arena_destroy(arena);
    }
}

/* --- as time --- */
static bool is_near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

Test(limits, what_costs_come_to) {
    Cost cost = {.read = 5e4, .written = 1e4, .products = {2e5}, .others = {1e4}};
    LeastTime t = limits_least_time(&some, &cost, 0, 1); /* 6e4 bytes: the first row; 1e4 are copied, 4e4 read beside */
    cr_expect(is_near(t.memory, 2e4 / 6e9 + 4e4 / 8e9), "%g", t.memory);
    cr_expect(is_near(t.arithmetic, (2e5 + 2e4) / 1e9), "%g", t.arithmetic);
    cr_expect(is_near(least_seconds(t), t.arithmetic));
    LeastTime half = limits_least_time(&some, &cost, 0, 2);
    cr_expect(is_near(half.memory * 2, t.memory) && is_near(half.arithmetic * 2, t.arithmetic));
    cost = (Cost){.written = 1e6, .others = {0, 3}}; /* midway between the rows by its logarithm */
    t = limits_least_time(&some, &cost, 0, 1);
    cr_expect(is_near(t.memory, 1e6 / 2.5e9), "%g", t.memory);
    cr_expect(is_near(t.arithmetic, 6 / 5e8), "%g", t.arithmetic);
    cost = (Cost){.products = {[WORK_BF16] = 6e5, [WORK_BYTES] = 8e5}, .others = {1e5}}; /* each by its rate */
    t = limits_least_time(&some, &cost, 0, 1);
    cr_expect(is_near(t.arithmetic, 6e5 / 2e9 + 8e5 / 4e9 + 2e5 / 1e9), "%g", t.arithmetic);
    cost = (Cost){.read = 5e4, .written = 1e4, .weights = 3e4}; /* from where all of a run's bytes are */
    t = limits_least_time(&some, &cost, 1e9, 1);
    cr_expect(is_near(t.memory, 2e4 / 6e9 + 1e4 / 8e9 + 3e4 / 2e9), "%g", t.memory);
    cost = (Cost){.read = 1e9};
    cr_expect(is_near(limits_least_time(&some, &cost, 0, 1).memory, 0.5));
}

/* --- on disk --- */
static char folder[64];

static Policy policy_in(const char *directory) {
    Policy policy = policy_default();
    policy.cache.directory = directory;
    return policy;
}

static void path_of(char *path, size_t size) {
    char command[160];
    snprintf(command, sizeof command, "ls %s/machine-*.limits 2>/dev/null", folder);
    FILE *list = popen(command, "r");
    *path = 0;
    if (fgets(path, (int)size, list)) path[strcspn(path, "\n")] = 0;
    pclose(list);
}

static void write_over(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static void make_folder(void) {
    strcpy(folder, "/tmp/onnxfuse-limits-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void remove_folder(void) {
    char command[160];
    chmod(folder, 0700);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_expect(system(command) == 0);
}

static MachineLimits take(const Policy *policy, bool again) {
    MachineLimits limits;
    Pool *pool;
    Status status = pool_shared(1, &pool);
    if (!status) status = machine_limits(policy, pool, again, &limits);
    cr_assert(!status, "%s", status_message(status));
    cr_expect(limits.threads == 1 && limits.count > 1);
    for (int i = 0; i < limits.count; i++) {
        const Bandwidth *b = &limits.bandwidths[i];
        cr_expect(b->read > 1e8 && b->write > 1e8 && b->copy > 1e8 && (!i || b->bytes > b[-1].bytes));
    }
    for (int t = 0; t < WORK_TYPES; t++) cr_expect(limits.products[t] > 1e8);
    return limits;
}

Test(limits, are_measured_once_and_remembered, .init = make_folder, .fini = remove_folder) {
    char path[160];
    Policy policy = policy_in(folder);
    MachineLimits first = take(&policy, false), second = take(&policy, false);
    cr_expect(same(&first, &second));
    path_of(path, sizeof path);
    cr_assert(*path);
    struct stat before, after;
    cr_assert(stat(path, &before) == 0);
    take(&policy, true);
    cr_assert(stat(path, &after) == 0);
    cr_expect(before.st_ino != after.st_ino, "measured again, it is another file");
}

Test(limits, that_are_damaged_or_foreign_are_replaced, .init = make_folder, .fini = remove_folder) {
    char path[160];
    Policy policy = policy_in(folder);
    take(&policy, false);
    path_of(path, sizeof path);
    Arena *arena = arena_create(0);
    Text foreign = text_make(arena);
    limits_print(&foreign, "some other machine", &some);
    const char *const texts[] = {"", "onnxfuse limits 3 0123456789abcdef\n", "nonsense", foreign.data};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_over(path, texts[i]);
        MachineLimits fresh = take(&policy, false), next = take(&policy, false);
        cr_expect(same(&fresh, &next) && !same(&fresh, &some), "%zu", i);
    }
    arena_destroy(arena);
}

Test(limits, without_a_place_are_measured_each_time, .init = make_folder, .fini = remove_folder) {
    char path[160], nowhere[96];
    snprintf(nowhere, sizeof nowhere, "%s/file", folder);
    write_over(nowhere, "not a folder");
    Policy policy = policy_in(nowhere);
    take(&policy, false);
    policy = policy_in(folder);
    policy.cache.enable = false;
    take(&policy, false);
    policy.cache.enable = true;
    chmod(folder, 0777); /* others could write there */
    take(&policy, false);
    chmod(folder, 0500);
    if (geteuid() != 0) take(&policy, false);
    chmod(folder, 0700);
    path_of(path, sizeof path);
    cr_expect(!*path, "%s", path);
}
