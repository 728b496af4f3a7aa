/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of a policy is decided when a plan is made, and whether two policies agree on it: for compiled models. */
#include "policy/policy.h"
#include "policy/json.h"

/* What may differ from run to run of the same plan; a key stands for all below it. */
static const char *const free_keys[] = {"threads",     "cache",       "memory_limit_megabytes",
                                        "seed",        "device",      "check",
                                        "shapes",      "tolerance",   "fallback",
                                        "cuda.device", "opencl",      "cuda.libraries",
                                        "cuda.graphs", "cuda.strict", "training"};

/* What a policy says that does not say it. */
static const char defaults[] =
    "{\"fusion\": {\"enable\": true, \"memory_efficient\": false, \"max_region_nodes\": 96},"
    " \"deterministic\": false, \"winograd\": true, \"cuda\": {\"tf32\": false}, \"target\": \"host\"}";

static bool is_free(const char *path) {
    for (size_t i = 0; i < sizeof free_keys / sizeof *free_keys; i++)
        if (strcmp(path, free_keys[i]) == 0) return true;
    return false;
}

/* Objects of these keys are told apart key by key. */
static bool is_group(const cJSON *item) {
    return cJSON_IsObject(item) && (strcmp(item->string, "fusion") == 0 || strcmp(item->string, "cuda") == 0);
}

/* The form of OSLO becomes our own. */
static Status take_other_names(cJSON *root) {
    static const char *const names[][2] = {{"enable", "enable"},
                                           {"memory_efficient_fusion", "memory_efficient"},
                                           {"custom_cuda_kernels", "custom_kernels"}};
    cJSON *theirs = cJSON_GetObjectItemCaseSensitive(root, "kernel_fusion");
    cJSON *ours = cJSON_GetObjectItemCaseSensitive(root, "fusion");
    if (!theirs) return NULL;
    if (!ours) ours = cJSON_AddObjectToObject(root, "fusion");
    if (!ours) return status_out_of_memory();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cJSON *value = cJSON_DetachItemFromObjectCaseSensitive(theirs, names[i][0]);
        if (!value || cJSON_AddItemToObject(ours, names[i][1], value)) continue;
        cJSON_Delete(value);
        return status_out_of_memory();
    }
    cJSON_DeleteItemFromObjectCaseSensitive(root, "kernel_fusion");
    return NULL;
}

/* Checked once, when the plan was made. */
static void take_tolerances_out(cJSON *root) {
    cJSON *rule;
    cJSON_ArrayForEach(rule, cJSON_GetObjectItemCaseSensitive(root, "rules"))
        cJSON_DeleteItemFromObjectCaseSensitive(rule, "tolerance");
}

Status policy_plan_part(const char *json, Arena *arena, const char **out_part) {
    cJSON *root;
    TRY(json_parse(arena, json, &root));
    TRY(take_other_names(root));
    take_tolerances_out(root);
    for (cJSON *item = root->child, *next; item; item = next) {
        next = item->next;
        for (cJSON *inner = is_group(item) ? item->child : NULL, *after; inner; inner = after) {
            after = inner->next;
            const char *path = arena_format(arena, "%s.%s", item->string, inner->string);
            if (is_free(path)) cJSON_Delete(cJSON_DetachItemViaPointer(item, inner));
        }
        if (is_free(item->string)) cJSON_Delete(cJSON_DetachItemViaPointer(root, item));
    }
    return json_text(arena, root, out_part);
}

typedef struct Policies {
    Arena *arena;
    cJSON *made, *given, *defaults;
} Policies;

static const cJSON *at(const cJSON *root, const char *group, const char *key) {
    const cJSON *object = group ? cJSON_GetObjectItemCaseSensitive(root, group) : root;
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static Status compare_item(const Policies *p, const char *group, const cJSON *given) {
    const cJSON *made = at(p->made, group, given->string);
    if (!made) made = at(p->defaults, group, given->string);
    if (made && cJSON_Compare(made, given, 1)) return NULL;
    const char *text;
    TRY(json_text(p->arena, made, &text));
    return status_error(STATUS_USAGE, "the policy's %s%s%s differs from what it was compiled with (%.200s)",
                        group ? group : "", group ? "." : "", given->string, text ? text : "nothing of it");
}

static Status compare(const Policies *p) {
    const cJSON *item, *inner;
    cJSON_ArrayForEach(item, p->given) {
        if (!is_group(item)) {
            TRY(compare_item(p, NULL, item));
            continue;
        }
        cJSON_ArrayForEach(inner, item) TRY(compare_item(p, item->string, inner));
    }
    return NULL;
}

Status policy_plan_agrees(const char *made, const char *given, Arena *arena) {
    Policies p = {.arena = arena};
    const char *part;
    TRY(policy_plan_part(given, arena, &part));
    TRY(json_parse(arena, made, &p.made));
    TRY(json_parse(arena, part, &p.given));
    TRY(json_parse(arena, defaults, &p.defaults));
    return compare(&p);
}
