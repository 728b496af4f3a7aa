/* SPDX-License-Identifier: Apache-2.0 */
/* JSON -> Policy, and back to text. Every key is a row of one table: where it goes, its type and its range, or who
 * reads it. */
#include "policy/reader.h"
#include "policy/json.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGEST_FILE = 1 << 20, MOST_CUSTOM_KERNELS = 256 };

/* --- the table of keys ------------------------------------------------------------------------------------------- */
typedef enum KeyType { KEY_BOOL, KEY_INT, KEY_INT64, KEY_NUMBER, KEY_STRING, KEY_DEVICE, KEY_CHOICE, KEY_LIST } KeyType;

typedef struct Key {
    const char *path; /* with a dot where the key stands in an object */
    KeyType type;
    size_t offset;    /* in Policy; of what holds of the whole model, and is no number, in Rule */
    double low, high; /* of numbers */
    /* KEY_CHOICE: the enum's names, in its order, NULL-terminated */
    const char *const *names;
    /* KEY_LIST: what is more than one value */
    Status (*read)(Reader *r, const char *path, const cJSON *item);
    void (*print)(Text *text, const Policy *policy);
    const char *stands_for; /* another name of this key */
} Key;

static const char *const device_fallbacks[] = {"error", "cpu", NULL};
static const char *const step_fallbacks[] = {"allow", "forbid", NULL};
static const char *const optimizers[] = {"adam", "adamw", "sgd", "momentum", "adagrad", NULL};
static const char *const schedules[] = {"constant", "linear", "cosine", NULL};
static const char *const precisions[] = {"as is", "f32", "f16", "bf16", NULL};

static Status read_custom_kernels(Reader *r, const char *path, const cJSON *item);
static Status read_check_inputs(Reader *r, const char *path, const cJSON *item);
static Status read_whole_precision(Reader *r, const char *path, const cJSON *item);
static Status read_whole_weights(Reader *r, const char *path, const cJSON *item);
static Status read_whole_activations(Reader *r, const char *path, const cJSON *item);
static Status read_whole_tolerance(Reader *r, const char *path, const cJSON *item);
static Status read_fusions(Reader *r, const char *path, const cJSON *item);
static Status read_trained(Reader *r, const char *path, const cJSON *item);
static void print_custom_kernels(Text *text, const Policy *policy);
static void print_check_inputs(Text *text, const Policy *policy);
static void print_fusions(Text *text, const Policy *policy);
static void print_trained(Text *text, const Policy *policy);
static void print_rule_count(Text *text, const Policy *policy);

#define BELOW_ONE 0.9999999999 /* averages whose coefficient is 1 never move */

/* At most 64 rows: Policy.in_file and by_flag. */
static const Key keys[] = {
    {"fusion.enable", KEY_BOOL, offsetof(Policy, fusion.enable), 0, 0},
    {"fusion.memory_efficient", KEY_BOOL, offsetof(Policy, fusion.memory_efficient), 0, 0},
    {"fusion.custom_kernels", KEY_LIST, 0, .read = read_custom_kernels, .print = print_custom_kernels},
    {"fusion.max_region_nodes", KEY_INT, offsetof(Policy, fusion.max_region_nodes), 1, 1000},
    {"fusions", KEY_LIST, 0, .read = read_fusions, .print = print_fusions},
    {"precision", KEY_LIST, offsetof(Rule, precision), .read = read_whole_precision},
    {"weights", KEY_LIST, offsetof(Rule, weights), .read = read_whole_weights},
    {"activations", KEY_LIST, offsetof(Rule, activations), .read = read_whole_activations},
    {"tolerance", KEY_LIST, 0, .read = read_whole_tolerance},
    {"rules", KEY_LIST, 0, .read = read_rules, .print = print_rule_count},
    {"check.inputs", KEY_LIST, 0, .read = read_check_inputs, .print = print_check_inputs},
    {"threads", KEY_INT, offsetof(Policy, threads), 0, 1024},
    {"device", KEY_DEVICE, offsetof(Policy, device), 0, 0},
    {"fallback.device", KEY_CHOICE, offsetof(Policy, fallback.device), .names = device_fallbacks},
    {"fallback.steps", KEY_CHOICE, offsetof(Policy, fallback.steps), .names = step_fallbacks},
    {"shapes.hints", KEY_LIST, 0, .read = read_hints, .print = hints_print},
    {"shapes.buckets", KEY_LIST, 0, .read = read_buckets, .print = buckets_print},
    {"state", KEY_LIST, 0, .read = read_states, .print = states_print},
    {"cache.enable", KEY_BOOL, offsetof(Policy, cache.enable), 0, 0},
    {"cache.directory", KEY_STRING, offsetof(Policy, cache.directory), 0, 0},
    {"cache.max_megabytes", KEY_INT64, offsetof(Policy, cache.max_megabytes), 1, 1 << 20},
    {"memory_limit_megabytes", KEY_INT64, offsetof(Policy, memory_limit_megabytes), 0, 1 << 30},
    {"seed", KEY_INT64, offsetof(Policy, seed), 0, 9007199254740992.0},
    {"deterministic", KEY_BOOL, offsetof(Policy, deterministic), 0, 0},
    {"winograd", KEY_BOOL, offsetof(Policy, winograd), 0, 0},
    {"cuda.device", KEY_INT, offsetof(Policy, cuda.device), 0, 255},
    {"cuda.libraries", KEY_STRING, offsetof(Policy, cuda.libraries), 0, 0},
    {"cuda.strict", KEY_BOOL, offsetof(Policy, cuda.strict), 0, 0},
    {"cuda.tf32", KEY_BOOL, offsetof(Policy, cuda.tf32), 0, 0},
    {"cuda.graphs", KEY_BOOL, offsetof(Policy, cuda.graphs), 0, 0},
    {"opencl.device", KEY_STRING, offsetof(Policy, opencl.device), 0, 0},
    {"opencl.library", KEY_STRING, offsetof(Policy, opencl.library), 0, 0},
    {"training.loss", KEY_STRING, offsetof(Policy, training.loss), 0, 0},
    {"training.of", KEY_LIST, 0, .read = read_trained, .print = print_trained},
    {"training.optimizer", KEY_CHOICE, offsetof(Policy, training.optimizer), .names = optimizers},
    {"training.rate", KEY_NUMBER, offsetof(Policy, training.rate), 0, 1e6},
    {"training.schedule", KEY_CHOICE, offsetof(Policy, training.schedule), .names = schedules},
    {"training.warmup_steps", KEY_INT64, offsetof(Policy, training.warmup_steps), 0, 1e12},
    {"training.steps", KEY_INT64, offsetof(Policy, training.steps), 0, 1e12},
    {"training.momentum", KEY_NUMBER, offsetof(Policy, training.momentum), 0, 1},
    {"training.beta1", KEY_NUMBER, offsetof(Policy, training.beta1), 0, BELOW_ONE},
    {"training.beta2", KEY_NUMBER, offsetof(Policy, training.beta2), 0, BELOW_ONE},
    {"training.epsilon", KEY_NUMBER, offsetof(Policy, training.epsilon), 0, 1},
    {"training.weight_decay", KEY_NUMBER, offsetof(Policy, training.weight_decay), 0, 1},
    {"training.accumulation", KEY_INT64, offsetof(Policy, training.accumulation), 1, 1e6},
    {"training.clip_norm", KEY_NUMBER, offsetof(Policy, training.clip_norm), 0, 1e12},
    {"training.precision", KEY_CHOICE, offsetof(Policy, training.precision), .names = precisions},
    {"training.loss_scale", KEY_NUMBER, offsetof(Policy, training.loss_scale), 0x1p-24, 0x1p24},
    {"training.loss_scale_steps", KEY_INT64, offsetof(Policy, training.loss_scale_steps), 1, 1e6},
    {"training.saved_megabytes", KEY_INT64, offsetof(Policy, training.saved_megabytes), 0, 1 << 30},
    {"target", KEY_STRING, offsetof(Policy, target.level), 0, 0},
    /* OSLO's form of "fusion" */
    {"kernel_fusion.enable", KEY_BOOL, offsetof(Policy, fusion.enable), .stands_for = "fusion.enable"},
    {"kernel_fusion.memory_efficient_fusion", KEY_BOOL, offsetof(Policy, fusion.memory_efficient),
     .stands_for = "fusion.memory_efficient"},
    {"kernel_fusion.custom_cuda_kernels", KEY_LIST, 0, .read = read_custom_kernels,
     .stands_for = "fusion.custom_kernels"},
};
enum { KEY_COUNT = sizeof keys / sizeof *keys };
_Static_assert(KEY_COUNT <= 64, "a bit a key");

static int key_number(const char *path) {
    for (int i = 0; i < KEY_COUNT; i++)
        if (strcmp(keys[i].path, path) == 0) return i;
    return -1;
}

/* --- what is more than one value ---------------------------------------------------------------------------------- */
/* "NAME" is both phases of a fusion, "NAME.forward" and "NAME.backward" one. */
static bool names_overlap(const char *a, const char *b) {
    size_t lengths[2] = {strlen(a), strlen(b)};
    size_t shorter = lengths[0] < lengths[1] ? lengths[0] : lengths[1];
    if (strncmp(a, b, shorter) != 0) return false;
    const char *rest = lengths[0] < lengths[1] ? b + shorter : a + shorter;
    return !*rest || strcmp(rest, ".forward") == 0 || strcmp(rest, ".backward") == 0;
}

static Status read_trained(Reader *r, const char *path, const cJSON *array) {
    const cJSON *item;
    TRY(reader_array(r, path, array));
    int count = cJSON_GetArraySize(array), number = 0;
    if (!count) return reader_error(r, path, "names no weight");
    const char **globs = ARENA_ARRAY(r->arena, const char *, count + 1);
    cJSON_ArrayForEach(item, array) {
        TRY(reader_glob(r, arena_format(r->arena, "%s[%d]", path, number), item, &globs[number]));
        number++;
    }
    r->policy->training.of = globs;
    return NULL;
}

static void print_trained(Text *text, const Policy *policy) {
    const char *const *glob = policy->training.of;
    if (!glob) text_add(text, "all weights");
    for (int i = 0; glob && glob[i]; i++) text_add(text, "%s%s", i ? ", " : "", glob[i]);
}

static Status read_custom_kernels(Reader *r, const char *path, const cJSON *array) {
    const cJSON *item;
    TRY(reader_array(r, path, array));
    int count = cJSON_GetArraySize(array), number = 0;
    if (count > MOST_CUSTOM_KERNELS) return reader_error(r, path, "more than %d names", MOST_CUSTOM_KERNELS);
    const char **names = ARENA_ARRAY(r->arena, const char *, count + 1);
    cJSON_ArrayForEach(item, array) {
        const char *at = arena_format(r->arena, "%s[%d]", path, number);
        TRY(reader_filled_string(r, at, item, &names[number]));
        for (int i = 0; i < number; i++)
            if (names_overlap(names[i], names[number]))
                return reader_error(r, at, "\"%.100s\" is named already, by %s[%d]", names[number], path, i);
        number++;
    }
    r->policy->fusion.custom_kernels = names;
    return NULL;
}

static void print_custom_kernels(Text *text, const Policy *policy) {
    const char *const *name = policy->fusion.custom_kernels;
    if (!name) text_add(text, "those of the application");
    if (name && !*name) text_add(text, "none");
    for (int i = 0; name && name[i]; i++) text_add(text, "%s%s", i ? ", " : "", name[i]);
}

static Status read_check_inputs(Reader *r, const char *path, const cJSON *item) {
    const char *folder;
    TRY(reader_filled_string(r, path, item, &folder));
    bool relative = r->folder && folder[0] != '/';
    r->policy->check.inputs = relative ? arena_format(r->arena, "%s/%s", r->folder, folder) : folder;
    return NULL;
}

static void print_check_inputs(Text *text, const Policy *policy) {
    text_add(text, "%s", policy->check.inputs ? policy->check.inputs : "none");
}

static Status read_whole_precision(Reader *r, const char *path, const cJSON *item) {
    return reader_precision(r, path, item, PRECISION_NAMES, &r->whole.precision);
}

static Status read_whole_weights(Reader *r, const char *path, const cJSON *item) {
    return reader_precision(r, path, item, WEIGHT_NAMES, &r->whole.weights);
}

static Status read_whole_activations(Reader *r, const char *path, const cJSON *item) {
    return reader_activations(r, path, item, &r->whole.activations);
}

static Status read_whole_tolerance(Reader *r, const char *path, const cJSON *item) {
    return reader_tolerance(r, path, item, &r->whole.tolerance);
}

static Status read_fusions(Reader *r, const char *path, const cJSON *item) {
    TRY(reader_array(r, path, item));
    return policy_read_fusions(item, r->name, r->arena, r->policy);
}

static void print_fusions(Text *text, const Policy *policy) {
    for (int i = 0; i < policy->fusion_count; i++) text_add(text, "%s%s", i ? ", " : "", policy->fusions[i].name);
    if (!policy->fusion_count) text_add(text, "none");
}

static void print_rule_count(Text *text, const Policy *policy) {
    int count = 0;
    for (int i = 0; i < policy->rule_count; i++) count += !policy->rules[i].whole;
    if (count)
        text_add(text, "%d, see below", count);
    else
        text_add(text, "none");
}

/* --- reading --- */
static Status read_device(const Reader *r, const char *path, const cJSON *item, DeviceKind *out_device) {
    int index = 0;
    TRY(reader_choice(r, path, item, device_names, DEVICE_NAMES, &index));
    *out_device = (DeviceKind)index;
    return NULL;
}

static Status read_named(const Reader *r, const Key *key, const char *path, const cJSON *item, int *out_index) {
    int count = 0;
    while (key->names[count]) count++;
    return reader_choice(r, path, item, key->names, count, out_index);
}

static Status read_value(Reader *r, const Key *key, const char *path, const cJSON *item) {
    void *field = (char *)r->policy + key->offset;
    int64_t number = 0;
    switch (key->type) {
    case KEY_BOOL: return reader_bool(r, path, item, field);
    case KEY_INT:
        TRY(reader_whole(r, path, item, key->low, key->high, &number));
        *(int *)field = (int)number;
        return NULL;
    case KEY_INT64: return reader_whole(r, path, item, key->low, key->high, field);
    case KEY_NUMBER:
        TRY(reader_number(r, path, item, field));
        if (*(double *)field >= key->low && *(double *)field <= key->high) return NULL;
        return reader_error(r, path, "%g is not in %g to %g", *(double *)field, key->low, key->high);
    case KEY_STRING: return reader_string(r, path, item, field);
    case KEY_DEVICE: return read_device(r, path, item, field);
    case KEY_CHOICE: return read_named(r, key, path, item, field);
    default: return key->read(r, path, item);
    }
}

static bool is_section(const char *path) {
    size_t length = strlen(path);
    for (int i = 0; i < KEY_COUNT; i++)
        if (strncmp(keys[i].path, path, length) == 0 && keys[i].path[length] == '.') return true;
    return false;
}

static Status read_key(Reader *r, int number, const char *path, const cJSON *item) {
    const Key *key = &keys[number];
    TRY(read_value(r, key, path, item));
    r->policy->in_file |= UINT64_C(1) << number;
    return NULL;
}

static Status read_section(Reader *r, const cJSON *object, const char *prefix, int depth) {
    const cJSON *item;
    TRY(reader_object(r, prefix, object));
    cJSON_ArrayForEach(item, object) {
        const char *path = *prefix ? arena_format(r->arena, "%s.%s", prefix, item->string) : item->string;
        int number = strchr(item->string, '.') ? -1 : key_number(path);
        if (number >= 0)
            TRY(read_key(r, number, path, item));
        else if (depth == 0 && *path && is_section(path))
            TRY(read_section(r, item, path, 1));
        else
            return reader_error(r, path, "unknown key");
    }
    return NULL;
}

static Status check_other_names(const Reader *r) {
    for (int i = 0; i < KEY_COUNT; i++) {
        int other = keys[i].stands_for ? key_number(keys[i].stands_for) : -1;
        if (other >= 0 && r->policy->in_file >> i & 1 && r->policy->in_file >> other & 1)
            return reader_error(r, keys[i].path, "%s says the same; one of the two is to go", keys[other].path);
    }
    return NULL;
}

/* What is there already, from a policy that this one is read over, stays where this one says nothing. */
static Status read_root(Reader *r, const cJSON *root) {
    Policy *policy = r->policy;
    uint64_t before = policy->in_file;
    policy->in_file = 0;
    if (policy->rule_count && policy->rules[0].whole) {
        r->whole = *policy->rules++;
        policy->rule_count--;
    }
    TRY(read_section(r, root, "", 0));
    TRY(check_other_names(r));
    policy->in_file |= before;
    return finish_rules(r);
}

/* cJSON ends a string at the escape of a zero byte, and what follows would be lost. */
static bool has_zero_escape(const char *text) {
    for (const char *c = text; (c = strchr(c, '\\')); c += 2) {
        if (strncmp(c, "\\u0000", 6) == 0) return true;
        if (!c[1]) return false;
    }
    return false;
}

static Status parse_in(const char *json, size_t size, const char *name, const char *folder, Arena *arena,
                       Policy *out_policy) {
    Reader reader = {.name = name, .folder = folder, .arena = arena, .policy = out_policy};
    char *text = arena_string_n(arena, json, size);
    cJSON *root;
    out_policy->name = arena_string(arena, name);
    if (strlen(text) != size || has_zero_escape(text))
        return status_error(STATUS_INVALID, "%s: a zero byte in JSON", name);
    TRY(status_at(json_parse(arena, text, &root), "%s", name));
    return read_root(&reader, root);
}

Status policy_parse(const char *json, size_t size, const char *name, Arena *arena, Policy *out_policy) {
    return parse_in(json, size, name, NULL, arena, out_policy);
}

/* --- where values come from --- */
void policy_by_flag(Policy *policy, const char *key) {
    int number = key_number(key);
    if (number >= 0) policy->by_flag |= UINT64_C(1) << number;
}

Status policy_override(const char *json, Arena *arena, Policy *policy) {
    const char *name = policy->name;
    uint64_t in_file = policy->in_file;
    policy->in_file = 0;
    TRY(policy_parse(json, strlen(json), "options", arena, policy));
    policy->by_flag |= policy->in_file;
    policy->in_file = in_file;
    if (name) policy->name = name;
    return NULL;
}

Status policy_blamed(const Policy *policy, Status status) {
    const char *message = status ? status_message(status) : "";
    for (int i = 0; i < KEY_COUNT; i++) {
        size_t length = strlen(keys[i].path);
        if (strncmp(message, keys[i].path, length) != 0 || message[length] != ':') continue;
        return status_at(status, "%s", policy->by_flag >> i & 1 ? "options" : policy_source(policy));
    }
    return status;
}

static const char *source_of(const Policy *policy, int number) {
    uint64_t in_file = policy->in_file >> number & 1;
    for (int i = 0; i < KEY_COUNT; i++)
        if (keys[i].stands_for && strcmp(keys[i].stands_for, keys[number].path) == 0)
            in_file |= policy->in_file >> i & 1;
    return policy->by_flag >> number & 1 ? "flag" : in_file ? "file" : "default";
}

static void print_value(Text *text, const Policy *policy, const Key *key) {
    const void *field = (const char *)policy + key->offset;
    const char *string;
    switch (key->type) {
    case KEY_BOOL: text_add(text, "%s", *(const bool *)field ? "true" : "false"); break;
    case KEY_INT: text_add(text, "%d", *(const int *)field); break;
    case KEY_INT64: text_add(text, "%lld", (long long)*(const int64_t *)field); break;
    case KEY_NUMBER: text_add(text, "%g", *(const double *)field); break;
    case KEY_STRING:
        string = *(const char *const *)field;
        text_add(text, "%s", string ? string : "the usual");
        break;
    case KEY_DEVICE:
        text_add(text, "%s", device_name(*(const DeviceKind *)field));
        if (policy->fallback.instead_of)
            text_add(text, " (fallback: %s is not there)", device_name(policy->fallback.instead_of));
        break;
    case KEY_CHOICE: text_add(text, "%s", key->names[*(const int *)field]); break;
    default: key->print(text, policy); break;
    }
}

/* What holds of the whole model is a rule in Policy. */
static bool print_whole(Text *text, const Policy *policy, const Key *key) {
    const Rule *rule = policy->rule_count && policy->rules[0].whole ? &policy->rules[0] : NULL;
    if (key->type != KEY_LIST || key->print) return false;
    if (strcmp(key->path, "tolerance") == 0) {
        if (rule && rule->tolerance > 0)
            text_add(text, "%g", rule->tolerance);
        else
            text_add(text, "not checked");
        return true;
    }
    Precision precision = rule ? *(const Precision *)(const void *)((const char *)rule + key->offset) : PRECISION_AS_IS;
    text_add(text, "%s", precision_name(precision));
    return true;
}

void policy_print(Text *text, const Policy *policy) {
    if (policy->name) text_add(text, "# file: %s\n", policy->name);
    for (int i = 0; i < KEY_COUNT; i++) {
        if (keys[i].stands_for) continue;
        text_add(text, "%-8s %-24s ", source_of(policy, i), keys[i].path);
        if (!print_whole(text, policy, &keys[i])) print_value(text, policy, &keys[i]);
        text_add(text, "\n");
    }
    rules_print(text, policy);
}

/* --- files --- */
static const char *folder_of(Arena *arena, const char *path) {
    const char *slash = strrchr(path, '/');
    return !slash ? NULL : slash == path ? "" : arena_string_n(arena, path, (size_t)(slash - path));
}

Status policy_read(const char *path, Arena *arena, Policy *out_policy) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return status_error(STATUS_INVALID, "policy \"%s\" cannot be read: %m", path);
    Arena *scratch = arena_create_inside(arena);
    char *bytes = arena_alloc(scratch, LARGEST_FILE + 1);
    size_t size = 0;
    ssize_t got = -1;
    while (size <= LARGEST_FILE && (got = read(file, bytes + size, LARGEST_FILE + 1 - size)) > 0) size += (size_t)got;
    close(file);
    Status status = got < 0 ? status_error(STATUS_INVALID, "policy \"%s\" cannot be read", path)
                    : size > LARGEST_FILE
                        ? status_error(STATUS_INVALID, "policy \"%s\" is larger than %d bytes", path, LARGEST_FILE)
                        : parse_in(bytes, size, path, folder_of(arena, path), arena, out_policy);
    arena_destroy(scratch);
    return status;
}
