/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that the process has beside the calling one. */
#ifndef ONNXFUSE_TESTS_RUNTIME_THREADS_H
#define ONNXFUSE_TESTS_RUNTIME_THREADS_H

#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct OtherThreads {
    int count;
    long long switches; /* how often they have been switched to */
    bool asleep;        /* all of them wait now */
} OtherThreads;

static inline OtherThreads other_threads(void) {
    OtherThreads others = {.asleep = true};
    long own = (long)syscall(SYS_gettid);
    DIR *folder = opendir("/proc/self/task");
    if (!folder) abort();
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[300], line[256], state = 0;
        if (atol(entry->d_name) <= 0 || atol(entry->d_name) == own) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue; /* has ended */
        while (fgets(line, sizeof line, file)) {
            long long count;
            const char *at = strstr(line, "voluntary_ctxt_switches:"); /* nonvoluntary ones as well */
            if (at && sscanf(strchr(at, ':') + 1, "%lld", &count) == 1) others.switches += count;
            sscanf(line, "State: %c", &state);
        }
        fclose(file);
        others.asleep &= state == 'S';
        others.count++;
    }
    closedir(folder);
    return others;
}

/* fork() once the other threads wait. AddressSanitizer's allocator has locks of its own, which a child inherits as they
 * are: of a worker that is just starting, one that nobody opens again. */
static inline pid_t fork_at_rest(void) {
    while (!other_threads().asleep) sched_yield();
    return fork();
}

#endif
