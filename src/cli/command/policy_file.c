/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command/policy_file.h"

#include <stdlib.h>
#include <string.h>

#include "cli/value/files.h"

static char *beside(const char *model) {
    size_t length = strlen(model);
    char *path = NULL;
    if (length > 5 && strcmp(model + length - 5, ".onnx") == 0) length -= 5;
    return asprintf(&path, "%.*s.policy.json", (int)length, model) < 0 ? NULL : path;
}

/* A relative folder of recorded inputs is meant from the policy's folder. */
static bool move_inputs(cJSON *policy, const char *path) {
    cJSON *inputs = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(policy, "check"), "inputs");
    const char *folder = cJSON_GetStringValue(inputs), *slash = strrchr(path, '/');
    if (!folder || !*folder || *folder == '/' || !slash) return true;
    char *moved;
    if (asprintf(&moved, "%.*s/%s", (int)(slash - path), path, folder) < 0) return false;
    bool done = cJSON_SetValuestring(inputs, moved) != NULL;
    free(moved);
    return done;
}

Problem *policy_of(const char *given, const char *model, cJSON **out_policy) {
    *out_policy = NULL;
    char *path = given ? strdup(given) : beside(model);
    if (!path) return problem_out_of_memory();
    Bytes bytes = {0};
    bool there = given || file_exists(path);
    Problem *found = there ? problem_at(file_read(path, &bytes), "policy") : NULL;
    cJSON *policy = found ? NULL : there ? cJSON_Parse((const char *)bytes.data) : cJSON_CreateObject();
    free(bytes.data);
    if (!found && cJSON_IsObject(policy)) {
        if (move_inputs(policy, path))
            *out_policy = policy;
        else
            found = problem_out_of_memory();
    }
    if (policy != *out_policy) cJSON_Delete(policy);
    free(path);
    return found;
}
