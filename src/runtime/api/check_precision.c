/* SPDX-License-Identifier: Apache-2.0 */
/* Tolerances: the outputs of a model whose rules change precision or weights, against those without, on recorded inputs
 * (folders as of the ONNX standard's backend tests: test_data_set_K/input_J.pb, or input_J.pb itself). */
#include "runtime/api/session.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "importer/importer.h"

bool has_tolerance(const Policy *policy) {
    for (int i = 0; i < policy->rule_count; i++)
        if (policy->rules[i].tolerance > 0) return true;
    return false;
}

void policy_without_precision(Arena *arena, Policy *policy) {
    Rule *rules = ARENA_ARRAY(arena, Rule, policy->rule_count + 1);
    int kept = 0;
    for (int i = 0; i < policy->rule_count; i++) {
        Rule rule = policy->rules[i];
        rule.precision = rule.weights = rule.activations = PRECISION_AS_IS;
        rule.tolerance = 0;
        if (rule.fuse || rule.device) rules[kept++] = rule;
    }
    policy->rules = rules;
    policy->rule_count = kept;
    policy->check.inputs = NULL;
}

/* --- data sets --- */
typedef struct Sets {
    Arena *arena;
    VEC(const char *) folders;
} Sets;

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static Status list_sets(Sets *sets, const char *folder) {
    static const char prefix[] = "test_data_set_";
    if (access(arena_format(sets->arena, "%s/input_0.pb", folder), F_OK) == 0) {
        VEC_PUSH(sets->arena, sets->folders, folder);
        return NULL;
    }
    DIR *directory = opendir(folder);
    if (!directory) return status_error(STATUS_INVALID, "check.inputs: \"%s\" cannot be read: %m", folder);
    for (struct dirent *entry; (entry = readdir(directory));)
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0)
            VEC_PUSH(sets->arena, sets->folders, arena_format(sets->arena, "%s/%s", folder, entry->d_name));
    closedir(directory);
    if (!sets->folders.count)
        return status_error(STATUS_INVALID, "check.inputs: \"%s\" has neither input_0.pb nor %sK", folder, prefix);
    qsort(sets->folders.items, (size_t)sets->folders.count, sizeof *sets->folders.items, by_name);
    return NULL;
}

static ValueKind kind_of(OnnxfuseProto proto) {
    return proto == ONNXFUSE_PROTO_TENSOR     ? VALUE_TENSOR
           : proto == ONNXFUSE_PROTO_SEQUENCE ? VALUE_SEQUENCE
           : proto == ONNXFUSE_PROTO_MAP      ? VALUE_MAP
                                              : VALUE_OPTIONAL;
}

/* A set's inputs; those of optional kind may be missing. */
static Status read_inputs(Arena *arena, const OnnxfuseSession *session, const char *folder,
                          const OnnxfuseValue **inputs) {
    for (int i = 0; i < onnxfuse_session_input_count(session); i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(session, i);
        const char *path = arena_format(arena, "%s/input_%d.pb", folder, i);
        if (access(path, F_OK) != 0) {
            if (info->kind == ONNXFUSE_PROTO_OPTIONAL) continue;
            return status_error(STATUS_INVALID, "check.inputs: \"%s\", for input \"%s\", is missing", path, info->name);
        }
        OnnxfuseValue *value = ARENA_NEW(arena, OnnxfuseValue);
        *value = (OnnxfuseValue){0};
        TRY(status_at(item_from_file(arena, path, kind_of(info->kind), &value->item, NULL), "check.inputs"));
        inputs[i] = value;
    }
    return NULL;
}

/* --- differences --- */
typedef struct Worst {
    double difference; /* relative to the output's largest element */
    const char *output, *folder;
    int64_t element; /* its number; -1: the shapes differ */
} Worst;

typedef struct Found {
    double difference, largest;
    int64_t element;
} Found;

static double distance(double a, double b) {
    if (a == b || (isnan(a) && isnan(b))) return 0;
    double d = fabs(a - b);
    return isnan(d) ? INFINITY : d;
}

static void compare_strings(const Tensor *a, const Tensor *b, Found *found) {
    const StringView *x = a->data, *y = b->data;
    for (int64_t i = 0; i < tensor_count(a) && isfinite(found->difference); i++)
        if (x[i].size != y[i].size || (x[i].size && memcmp(x[i].data, y[i].data, x[i].size) != 0))
            *found = (Found){INFINITY, found->largest, i};
}

static void compare_tensors(const Tensor *a, const Tensor *b, Found *found) {
    if (!tensor_same_shape(a, b) || a->dtype != b->dtype) {
        *found = (Found){INFINITY, found->largest, -1};
        return;
    }
    if (a->dtype == DT_STRING) {
        compare_strings(a, b, found);
        return;
    }
    for (int64_t i = 0, count = tensor_count(a); i < count; i++) {
        double x = dtype_load_double(a->dtype, a->data, i), y = dtype_load_double(b->dtype, b->data, i);
        double d = distance(x, y);
        if (isfinite(y) && fabs(y) > found->largest) found->largest = fabs(y);
        if (d > found->difference) found->difference = d, found->element = i;
    }
}

static void compare_items(const Item *a, const Item *b, Found *found) {
    if (a->kind != b->kind || (item_has_items(a) && a->count != b->count))
        *found = (Found){INFINITY, found->largest, -1};
    else if (a->kind == ITEM_TENSOR)
        compare_tensors(&a->tensor, &b->tensor, found);
    else if (item_has_items(a))
        for (int i = 0; i < a->count; i++) compare_items(&a->items[i], &b->items[i], found);
}

static void compare_outputs(const OnnxfuseSession *session, OnnxfuseValue *const *ruled, OnnxfuseValue *const *plain,
                            const char *folder, Worst *worst) {
    for (int o = 0; o < onnxfuse_session_output_count(session); o++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_output(session, o);
        Found found = {0};
        if (info->random) continue;
        compare_items(&ruled[o]->item, &plain[o]->item, &found);
        double relative = found.difference == 0 ? 0 : found.largest > 0 ? found.difference / found.largest : INFINITY;
        if (relative > worst->difference || (relative > 0 && !worst->output))
            *worst = (Worst){relative, info->name, folder, found.element};
    }
}

/* --- the check --- */
static Status check_set(Arena *arena, OnnxfuseSession *session, OnnxfuseSession *plain, const char *folder,
                        Worst *worst) {
    int in = onnxfuse_session_input_count(session), out = onnxfuse_session_output_count(session);
    const OnnxfuseValue **inputs = ARENA_ARRAY(arena, const OnnxfuseValue *, in + 1);
    OnnxfuseValue **ruled = ARENA_ARRAY(arena, OnnxfuseValue *, out + 1),
                  **expected = ARENA_ARRAY(arena, OnnxfuseValue *, out + 1);
    TRY(read_inputs(arena, session, folder, inputs));
    Status status = onnxfuse_session_run(session, inputs, ruled);
    if (!status) status = onnxfuse_session_run(plain, inputs, expected);
    if (!status) compare_outputs(session, ruled, expected, folder, worst);
    for (int o = 0; o < out; o++) {
        onnxfuse_value_free(ruled[o]);
        onnxfuse_value_free(expected[o]);
    }
    return status_at(status, "check.inputs: \"%s\"", folder);
}

static Status too_different(Arena *arena, const Policy *policy, const Worst *worst, const Rule *strictest) {
    Text rules = text_make(arena);
    for (int i = 0; i < policy->rule_count; i++) {
        const Rule *rule = &policy->rules[i];
        if (!rule_changes_numbers(rule)) continue;
        text_add(&rules, "%s%s%s", rules.size ? ", " : "", rule->whole ? "" : rule->where, rule->whole ? "" : ": ");
        if (rule->precision) text_add(&rules, "precision %s", precision_name(rule->precision));
        if (rule->weights)
            text_add(&rules, "%sweights %s", rule->precision ? " and " : "", precision_name(rule->weights));
        if (rule->activations)
            text_add(&rules, "%sactivations %s", rule->precision || rule->weights ? " and " : "",
                     precision_name(rule->activations));
    }
    const char *place =
        worst->element < 0 ? "its shape" : arena_format(arena, "element %lld", (long long)worst->element);
    return status_error(STATUS_DIFFERENT,
                        "on \"%s\" output \"%s\" differs by %.3g of its largest element (%s) from what it is "
                        "without the policy's precision, weights and activations (%s); %s%stolerance is %g",
                        worst->folder, worst->output, worst->difference, place, rules.data,
                        strictest->whole ? "" : strictest->where, strictest->whole ? "the " : ".",
                        strictest->tolerance);
}

typedef struct Checked {
    OnnxfuseSession *session, *plain;
    const Policy *policy;
} Checked;

static Status check_sets(Arena *arena, void *context) {
    const Checked *c = context;
    const Policy *policy = c->policy;
    const Rule *strictest = NULL;
    for (int i = 0; i < policy->rule_count; i++) {
        const Rule *rule = &policy->rules[i];
        if (rule->tolerance > 0 && (!strictest || rule->tolerance < strictest->tolerance)) strictest = rule;
    }
    Sets sets = {.arena = arena};
    Worst worst = {0};
    TRY(list_sets(&sets, policy->check.inputs));
    for (int i = 0; i < sets.folders.count; i++) {
        Arena *own = arena_create_inside(arena);
        Status status = check_set(own, c->session, c->plain, sets.folders.items[i], &worst);
        arena_destroy(own);
        TRY(status);
    }
    return worst.difference > strictest->tolerance ? too_different(arena, policy, &worst, strictest) : NULL;
}

Status check_precision(OnnxfuseSession *session, OnnxfuseSession *plain, const Policy *policy) {
    return status_at(with_arena(check_sets, &(Checked){session, plain, policy}), "%s", policy_source(policy));
}
