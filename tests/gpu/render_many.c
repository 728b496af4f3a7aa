/* SPDX-License-Identifier: Apache-2.0 */
/* Several kernels as one program: compilers take most of their time for a program's begin. */
#include "render_many.h"

const char *render_many(const Cases *cases, const int *indices, int count, GpuDialect dialect, Arena *arena) {
    Text text = text_make(arena);
    const Kernel **kernels = ARENA_ARRAY(arena, const Kernel *, count);
    const char **names = ARENA_ARRAY(arena, const char *, count);
    for (int i = 0; i < count; i++) {
        kernels[i] = cases->items.items[indices[i]]->kernel;
        names[i] = arena_format(arena, "k%d_", indices[i]);
    }
    gpu_render_all(&text, kernels, names, count, dialect);
    return text.data;
}
