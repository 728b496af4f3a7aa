/* Several kernels as one program: compilers take most of their time for a program's begin. */
#include "render_many.h"

#include "codegen/gpu/dialect.h"

/* Kernels of one program may bring the same helper functions: each gets its own names for them. */
static void rename_helpers(Text *out, const char *text, int index, bool begin) {
    for (const char *at = strstr(text, "FUNCTION "); at; at = strstr(at, "FUNCTION ")) {
        const char *end = strchr(at, '('), *name = end;
        while (name && name > at && name[-1] != ' ' && name[-1] != '*') name--;
        if (!end) return;
        int size = (int)(end - name);
        if (begin)
            text_add(out, "#define %.*s %.*s_%d\n", size, name, size, name, index);
        else
            text_add(out, "#undef %.*s\n", size, name);
        at = end;
    }
}

const char *render_many(const Cases *cases, const int *indices, int count, GpuDialect dialect, Arena *arena) {
    const char *prelude = gpu_prelude(dialect);
    Text all = text_make(arena);
    text_add(&all, "%s", prelude);
    for (int i = 0; i < count; i++) {
        Text text = text_make(arena);
        gpu_render(&text, cases->items.items[indices[i]]->kernel, dialect, arena_format(arena, "k%d_", indices[i]));
        const char *own = text.data + (strncmp(text.data, prelude, strlen(prelude)) ? 0 : strlen(prelude));
        if (count > 1) rename_helpers(&all, own, indices[i], true);
        text_add(&all, "%s", own);
        if (count > 1) rename_helpers(&all, own, indices[i], false);
    }
    return all.data;
}
