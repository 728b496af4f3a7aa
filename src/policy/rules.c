/* SPDX-License-Identifier: Apache-2.0 */
/* "rules": conditions on nodes, and what is wanted of the nodes that meet them. */
#include <string.h>

#include "policy/reader.h"

/* --- reading ------------------------------------------------------------------------------------------------------ */
static Status read_match(const Reader *r, const char *path, const cJSON *match, Rule *rule) {
    const cJSON *item;
    TRY(reader_object(r, path, match));
    cJSON_ArrayForEach(item, match) {
        const char *at = arena_format(r->arena, "%s.%s", path, item->string);
        if (strcmp(item->string, "name") == 0) {
            TRY(reader_glob(r, at, item, &rule->name));
        } else if (strcmp(item->string, "operator") == 0) {
            TRY(reader_filled_string(r, at, item, &rule->op));
        } else if (strcmp(item->string, "domain") == 0) {
            TRY(reader_string(r, at, item, &rule->domain));
            if (strcmp(rule->domain, "ai.onnx") == 0) rule->domain = "";
        } else if (strcmp(item->string, "pattern") == 0) {
            TRY(reader_filled_string(r, at, item, &rule->pattern));
        } else {
            return reader_error(r, at, "unknown key (name, operator, domain and pattern are possible)");
        }
    }
    if (rule->name || rule->op || rule->domain || rule->pattern) return NULL;
    return reader_error(r, path,
                        "no condition: name, operator, domain or pattern is needed (for all nodes: "
                        "\"name\": \"*\")");
}

static Status read_rule_device(const Reader *r, const char *path, const cJSON *item, Rule *rule) {
    static const char *const names[] = {"cpu"};
    int index;
    TRY(reader_choice(r, path, item, names, 1, &index));
    rule->device = DEVICE_CPU;
    return NULL;
}

static Status read_effect(const Reader *r, const char *path, const cJSON *item, Rule *rule) {
    const char *key = item->string;
    bool fuse = false;
    if (strcmp(key, "precision") == 0) return reader_precision(r, path, item, PRECISION_NAMES, &rule->precision);
    if (strcmp(key, "weights") == 0) return reader_precision(r, path, item, WEIGHT_NAMES, &rule->weights);
    if (strcmp(key, "activations") == 0) return reader_activations(r, path, item, &rule->activations);
    if (strcmp(key, "tolerance") == 0) return reader_tolerance(r, path, item, &rule->tolerance);
    if (strcmp(key, "optional") == 0) return reader_bool(r, path, item, &rule->optional);
    if (strcmp(key, "device") == 0) return read_rule_device(r, path, item, rule);
    if (strcmp(key, "fuse") != 0) return reader_error(r, path, "unknown key");
    TRY(reader_bool(r, path, item, &fuse));
    rule->fuse = fuse ? FUSE_FREELY : FUSE_NEVER;
    return NULL;
}

/* What cannot both hold of one node. */
static Status check_rule(const Reader *r, const char *path, const Rule *rule) {
    Precision weights = rule->weights, precision = rule->precision;
    bool float_weights = weights == PRECISION_F32 || weights == PRECISION_F16 || weights == PRECISION_BF16;
    if (rule->tolerance > 0 && !rule_changes_numbers(rule))
        return reader_error(r, path, "tolerance without precision, weights or activations: there is nothing to check");
    if (float_weights && precision && weights != precision && precision != PRECISION_F32)
        return reader_error(r, path,
                            "weights %s with precision %s: what is computed in %s reads its weights in %s, or in int8 "
                            "or int4",
                            precision_name(weights), precision_name(precision), precision_name(precision),
                            precision_name(precision));
    return NULL;
}

static Status read_rule(const Reader *r, const char *path, const cJSON *object, Rule *rule) {
    const cJSON *item, *match = NULL;
    TRY(reader_object(r, path, object));
    rule->where = path;
    cJSON_ArrayForEach(item, object) {
        const char *at = arena_format(r->arena, "%s.%s", path, item->string);
        if (strcmp(item->string, "match") == 0) {
            match = item;
            TRY(read_match(r, at, item, rule));
        } else {
            TRY(read_effect(r, at, item, rule));
        }
    }
    if (!match) return reader_error(r, path, "match is missing");
    if (!rule_changes_numbers(rule) && !rule->fuse && !rule->device && !(rule->tolerance > 0))
        return reader_error(r, path, "no effect: precision, weights, activations, fuse or device is needed");
    return check_rule(r, path, rule);
}

Status read_rules(Reader *r, const char *path, const cJSON *array) {
    const cJSON *item;
    TRY(reader_array(r, path, array));
    int count = cJSON_GetArraySize(array), number = 0;
    Rule *rules = ARENA_ARRAY(r->arena, Rule, count + 1);
    cJSON_ArrayForEach(item, array) {
        rules[number] = (Rule){0};
        TRY(read_rule(r, arena_format(r->arena, "%s[%d]", path, number), item, &rules[number]));
        number++;
    }
    r->policy->rules = rules;
    r->policy->rule_count = count;
    return NULL;
}

/* --- together --- */
static const char *whole_keys(const Reader *r) {
    const char *keys = "";
    const struct {
        Precision precision;
        const char *key;
    } all[] = {{r->whole.precision, "precision"}, {r->whole.weights, "weights"}, {r->whole.activations, "activations"}};
    for (int i = 0; i < 3; i++)
        if (all[i].precision) keys = arena_format(r->arena, "%s%s%s", keys, *keys ? ", " : "", all[i].key);
    return keys;
}

static void put_whole_first(Reader *r) {
    Policy *policy = r->policy;
    if (!rule_changes_numbers(&r->whole)) return;
    Rule *rules = ARENA_ARRAY(r->arena, Rule, policy->rule_count + 1);
    r->whole.where = whole_keys(r);
    r->whole.whole = r->whole.optional = true;
    rules[0] = r->whole;
    if (policy->rule_count) memcpy(rules + 1, policy->rules, sizeof *rules * (size_t)policy->rule_count);
    policy->rules = rules;
    policy->rule_count++;
}

Status finish_rules(Reader *r) {
    const Policy *policy = r->policy;
    if (r->whole.tolerance > 0 && !rule_changes_numbers(&r->whole))
        return reader_error(r, "tolerance", "without precision, weights or activations there is nothing to check");
    if (rule_changes_numbers(&r->whole)) TRY(check_rule(r, whole_keys(r), &r->whole));
    put_whole_first(r);
    bool checked = false;
    for (int i = 0; i < policy->rule_count; i++) {
        const Rule *rule = &policy->rules[i];
        checked |= rule->tolerance > 0;
        if (rule->tolerance > 0 && !policy->check.inputs)
            return reader_error(r, rule->whole ? "tolerance" : arena_format(r->arena, "%s.tolerance", rule->where),
                                "needs \"check\": {\"inputs\": FOLDER}, recorded inputs to compare on");
        if (rule->device && policy->device == rule->device)
            return reader_error(r, arena_format(r->arena, "%s.device", rule->where),
                                "the policy's device is %s already", device_name(rule->device));
    }
    if (policy->check.inputs && !checked)
        return reader_error(r, "check.inputs", "no rule has a tolerance that could be checked");
    return NULL;
}

/* --- printing --- */
static void add_quoted(Text *text, const char *key, const char *value, const char **separator) {
    if (!value) return;
    text_add(text, "%s%s ", *separator, key);
    text_add_quoted(text, value, strlen(value));
    *separator = ", ";
}

static void add_rule(Text *text, const Rule *rule) {
    const char *separator = " ";
    text_add(text, "%s:%s", rule->where, rule->whole ? " all nodes" : "");
    add_quoted(text, "name", rule->name, &separator);
    add_quoted(text, "operator", rule->op, &separator);
    add_quoted(text, "domain", rule->domain, &separator);
    add_quoted(text, "pattern", rule->pattern, &separator);
    text_add(text, " ->");
    separator = " ";
    if (rule->precision) text_add(text, "%sprecision %s", separator, precision_name(rule->precision)), separator = ", ";
    if (rule->weights) text_add(text, "%sweights %s", separator, precision_name(rule->weights)), separator = ", ";
    if (rule->activations)
        text_add(text, "%sactivations %s", separator, precision_name(rule->activations)), separator = ", ";
    if (rule->tolerance > 0) text_add(text, "%stolerance %g", separator, rule->tolerance), separator = ", ";
    if (rule->fuse)
        text_add(text, "%sfuse %s", separator, rule->fuse == FUSE_NEVER ? "false" : "true"), separator = ", ";
    if (rule->device) text_add(text, "%sdevice %s", separator, device_name(rule->device)), separator = ", ";
    text_add(text, "%s\n", rule->optional && !rule->whole ? ", optional" : "");
}

void rules_print(Text *text, const Policy *policy) {
    for (int i = 0; i < policy->rule_count; i++) add_rule(text, &policy->rules[i]);
}
