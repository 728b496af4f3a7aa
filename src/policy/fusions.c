/* SPDX-License-Identifier: Apache-2.0 */
/* "fusions": the policy's custom fusions, whose nodes become a kernel of their own. The patterns are parsed where they are
 * used (passes/fuse_custom.c). */
#include <string.h>

#include "policy/reader.h"

static Status read_patterns(const Reader *r, const char *path, const cJSON *array, PolicyFusion *fusion) {
    TRY(reader_array(r, path, array));
    int count = cJSON_GetArraySize(array), filled = 0;
    if (!count) return reader_error(r, path, "a fusion needs a pattern");
    const char **patterns = ARENA_ARRAY(r->arena, const char *, count + 1);
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        const char *at = arena_format(r->arena, "%s[%d]", path, filled);
        TRY(reader_filled_string(r, at, item, &patterns[filled++]));
    }
    fusion->patterns = patterns;
    return NULL;
}

static Status read_phase(const Reader *r, const char *path, const cJSON *item, PolicyFusion *fusion) {
    static const char *const names[] = {"forward", "backward"}; /* the order of PolicyFusion.phase, from 1 on */
    int index = 0;
    TRY(reader_choice(r, path, item, names, 2, &index));
    fusion->phase = 1 + index;
    return NULL;
}

static Status read_name(const Reader *r, const char *path, const cJSON *item, PolicyFusion *fusion) {
    TRY(reader_filled_string(r, path, item, &fusion->name));
    if (!strchr(fusion->name, '.')) return NULL;
    return reader_error(r, path, "\"%s\": a name with a point (\"NAME.forward\" is one phase of fusion NAME)",
                        fusion->name);
}

static Status read_fusion(const Reader *r, const cJSON *object, PolicyFusion *fusion) {
    const cJSON *item;
    TRY(reader_object(r, fusion->path, object));
    cJSON_ArrayForEach(item, object) {
        const char *at = arena_format(r->arena, "%s.%s", fusion->path, item->string);
        if (strcmp(item->string, "name") == 0)
            TRY(read_name(r, at, item, fusion));
        else if (strcmp(item->string, "patterns") == 0)
            TRY(read_patterns(r, at, item, fusion));
        else if (strcmp(item->string, "phase") == 0)
            TRY(read_phase(r, at, item, fusion));
        else
            return reader_error(r, at, "unknown key (name, patterns and phase are possible)");
    }
    if (!fusion->name) return reader_error(r, fusion->path, "the key name is missing");
    if (!fusion->patterns) return reader_error(r, fusion->path, "the key patterns is missing");
    return NULL;
}

Status policy_read_fusions(const cJSON *array, const char *name, Arena *arena, Policy *policy) {
    Reader r = {.name = name, .arena = arena, .policy = policy};
    TRY(reader_array(&r, "fusions", array));
    PolicyFusion *fusions = ARENA_ARRAY(arena, PolicyFusion, cJSON_GetArraySize(array) + 1);
    int count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        PolicyFusion *fusion = &fusions[count];
        *fusion = (PolicyFusion){.phase = 1, .path = arena_format(arena, "fusions[%d]", count)};
        TRY(read_fusion(&r, item, fusion));
        for (int i = 0; i < count; i++)
            if (fusions[i].phase == fusion->phase && strcmp(fusions[i].name, fusion->name) == 0)
                return reader_error(&r, fusion->path, "fusion %s is given twice for this phase", fusion->name);
        count++;
    }
    policy->fusions = fusions;
    policy->fusion_count = count;
    return NULL;
}
