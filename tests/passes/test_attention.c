/* SPDX-License-Identifier: Apache-2.0 */
/* fuse_attention on the graphs of random_attention.h. */
#include <criterion/criterion.h>

#include "random_attention.h"
#include "random_graph.h"

Test(attention, random_graphs) {
    uint64_t first, last;
    random_seeds(1000, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++) {
        Arena *arena = arena_create(0);
        const char *wrong = check_random_attention(seed, NULL, 0, arena);
        cr_expect(!wrong, "seed %llu: %s", (unsigned long long)seed, wrong);
        arena_destroy(arena);
    }
}
