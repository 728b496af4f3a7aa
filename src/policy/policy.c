/* JSON -> Policy. Every key is a row of one table: where it goes, its type and its range. */
#include "policy/policy.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGEST_FILE = 1 << 20 };

Policy policy_default(void) {
    return (Policy){
        .fusion = {.enable = true, .max_region_nodes = 96},
        .cache = {.enable = true, .max_megabytes = 256},
        .cuda = {.graphs = true},
        .target = {.device = DEVICE_CPU, .level = "host"},
    };
}

Status policy_pool(const Policy *policy, Pool **out_pool) {
    *out_pool = policy->pool;
    return policy->pool ? NULL : pool_shared(policy->threads, out_pool);
}

static const char *const device_names[] = {"auto", "cpu", "cuda", "opencl"};
enum { DEVICE_COUNT = sizeof device_names / sizeof *device_names };

const char *device_name(DeviceKind device) { return device_names[device]; }

Status device_from_name(const char *name, DeviceKind *out_device) {
    for (int i = 0; i < DEVICE_COUNT; i++)
        if (strcmp(name, device_names[i]) == 0) {
            *out_device = (DeviceKind)i;
            return NULL;
        }
    return status_error(STATUS_USAGE, "there is no device \"%s\" (auto, cpu, cuda and opencl are known)", name);
}

/* --- the table of keys
 * -------------------------------------------------------------------------------------------------- */
typedef enum KeyType { KEY_BOOL, KEY_INT, KEY_INT64, KEY_STRING, KEY_DEVICE } KeyType;

typedef struct Key {
    const char *path; /* with a dot where the key stands in an object */
    KeyType type;
    size_t offset;    /* in Policy */
    double low, high; /* of numbers */
} Key;

static const Key keys[] = {
    {"fusion.enable", KEY_BOOL, offsetof(Policy, fusion.enable), 0, 0},
    {"fusion.memory_efficient", KEY_BOOL, offsetof(Policy, fusion.memory_efficient), 0, 0},
    {"fusion.max_region_nodes", KEY_INT, offsetof(Policy, fusion.max_region_nodes), 1, 1000},
    {"threads", KEY_INT, offsetof(Policy, threads), 0, 1024},
    {"device", KEY_DEVICE, offsetof(Policy, device), 0, 0},
    {"cache.enable", KEY_BOOL, offsetof(Policy, cache.enable), 0, 0},
    {"cache.directory", KEY_STRING, offsetof(Policy, cache.directory), 0, 0},
    {"cache.max_megabytes", KEY_INT64, offsetof(Policy, cache.max_megabytes), 1, 1 << 20},
    {"memory_limit_megabytes", KEY_INT64, offsetof(Policy, memory_limit_megabytes), 0, 1 << 30},
    {"seed", KEY_INT64, offsetof(Policy, seed), 0, 9007199254740992.0},
    {"deterministic", KEY_BOOL, offsetof(Policy, deterministic), 0, 0},
    {"cuda.device", KEY_INT, offsetof(Policy, cuda.device), 0, 255},
    {"cuda.libraries", KEY_STRING, offsetof(Policy, cuda.libraries), 0, 0},
    {"cuda.tf32", KEY_BOOL, offsetof(Policy, cuda.tf32), 0, 0},
    {"cuda.graphs", KEY_BOOL, offsetof(Policy, cuda.graphs), 0, 0},
    {"opencl.device", KEY_STRING, offsetof(Policy, opencl.device), 0, 0},
    {"opencl.library", KEY_STRING, offsetof(Policy, opencl.library), 0, 0},
    {"target", KEY_STRING, offsetof(Policy, target.level), 0, 0},
};
enum { KEY_COUNT = sizeof keys / sizeof *keys };

typedef struct Reader {
    const char *name;
    Arena *arena;
    Policy *policy;
} Reader;

static const char *kind_of(const cJSON *item) {
    if (cJSON_IsBool(item)) return "true or false";
    if (cJSON_IsNumber(item)) return "a number";
    if (cJSON_IsString(item)) return "a string";
    if (cJSON_IsArray(item)) return "an array";
    return cJSON_IsObject(item) ? "an object" : "null";
}

static Status wrong_type(const Reader *r, const char *path, const char *expected, const cJSON *item) {
    return status_error(STATUS_INVALID, "%s: %s: expected %s, found %s", r->name, path, expected, kind_of(item));
}

static Status read_number(const Reader *r, const Key *key, const char *path, const cJSON *item, int64_t *out_value) {
    if (!cJSON_IsNumber(item)) return wrong_type(r, path, "a whole number", item);
    double value = item->valuedouble;
    if (value != floor(value))
        return status_error(STATUS_INVALID, "%s: %s: %g is not a whole number", r->name, path, value);
    if (!(value >= key->low && value <= key->high))
        return status_error(STATUS_INVALID, "%s: %s: %.0f is not between %.0f and %.0f", r->name, path, value, key->low,
                            key->high);
    *out_value = (int64_t)value;
    return NULL;
}

static Status read_value(const Reader *r, const Key *key, const char *path, const cJSON *item) {
    char *field = (char *)r->policy + key->offset;
    int64_t number;
    switch (key->type) {
    case KEY_BOOL:
        if (!cJSON_IsBool(item)) return wrong_type(r, path, "true or false", item);
        *(bool *)(void *)field = cJSON_IsTrue(item);
        return NULL;
    case KEY_INT:
        TRY(read_number(r, key, path, item, &number));
        *(int *)(void *)field = (int)number;
        return NULL;
    case KEY_INT64:
        TRY(read_number(r, key, path, item, &number));
        *(int64_t *)(void *)field = number;
        return NULL;
    case KEY_STRING:
        if (!cJSON_IsString(item)) return wrong_type(r, path, "a string", item);
        *(const char **)(void *)field = arena_string(r->arena, item->valuestring);
        return NULL;
    default: break;
    }
    if (!cJSON_IsString(item)) return wrong_type(r, path, "a string", item);
    Status status = device_from_name(item->valuestring, (DeviceKind *)(void *)field);
    if (!status) return NULL;
    Status invalid = status_error(STATUS_INVALID, "%s: %s: %s", r->name, path, status_message(status));
    status_free(status);
    return invalid;
}

static bool is_section(const char *path, size_t length) {
    for (int i = 0; i < KEY_COUNT; i++)
        if (strncmp(keys[i].path, path, length) == 0 && keys[i].path[length] == '.') return true;
    return false;
}

static Status read_object(const Reader *r, const cJSON *object, const char *prefix, int depth) {
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        const char *path = *prefix ? arena_format(r->arena, "%s.%s", prefix, item->string) : item->string;
        for (const cJSON *other = item->next; other; other = other->next)
            if (strcmp(other->string, item->string) == 0)
                return status_error(STATUS_INVALID, "%s: %s: given twice", r->name, path);
        const Key *key = NULL;
        for (int i = 0; i < KEY_COUNT; i++)
            if (strcmp(keys[i].path, path) == 0 && !strchr(item->string, '.')) key = &keys[i];
        if (key) {
            TRY(read_value(r, key, path, item));
        } else if (depth == 0 && is_section(path, strlen(path))) {
            if (!cJSON_IsObject(item)) return wrong_type(r, path, "an object", item);
            TRY(read_object(r, item, path, 1));
        } else {
            return status_error(STATUS_INVALID, "%s: %s: unknown key", r->name, path);
        }
    }
    return NULL;
}

Status policy_parse(const char *json, size_t size, const char *name, Arena *arena, Policy *out_policy) {
    Reader reader = {name, arena, out_policy};
    const char *end = NULL;
    char *text = arena_string_n(arena, json, size);
    if (strlen(text) != size) return status_error(STATUS_INVALID, "%s: a zero byte in JSON", name);
    cJSON *root = cJSON_ParseWithOpts(text, &end, 1);
    if (!root) {
        int line = 1;
        for (const char *p = text; end && p < end; p++) line += *p == '\n';
        return status_error(STATUS_INVALID, "%s: line %d: not valid JSON", name, line);
    }
    Status status = cJSON_IsObject(root)
                        ? read_object(&reader, root, "", 0)
                        : status_error(STATUS_INVALID, "%s: expected an object, found %s", name, kind_of(root));
    cJSON_Delete(root);
    return status;
}

Status policy_read(const char *path, Arena *arena, Policy *out_policy) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return status_error(STATUS_INVALID, "policy \"%s\" cannot be read: %m", path);
    char *bytes = malloc(LARGEST_FILE + 1);
    size_t size = 0;
    ssize_t got = -1;
    while (bytes && size <= LARGEST_FILE && (got = read(file, bytes + size, LARGEST_FILE + 1 - size)) > 0)
        size += (size_t)got;
    close(file);
    Status status = !bytes    ? status_out_of_memory()
                    : got < 0 ? status_error(STATUS_INVALID, "policy \"%s\" cannot be read", path)
                    : size > LARGEST_FILE
                        ? status_error(STATUS_INVALID, "policy \"%s\" is larger than %d bytes", path, LARGEST_FILE)
                        : policy_parse(bytes, size, path, arena, out_policy);
    free(bytes);
    return status;
}
