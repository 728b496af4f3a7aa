/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse compare: where do two ways to run a model begin to differ?
 *
 * One way (the model as it is asked for) is run and its values are kept; then the other way is run, and each value that
 * both store is compared. The first that differs, in the model's order, is told with what is known about it. Values
 * within a fused step are seen by running the model once more with fusion off. */
#include "cli/command/commands.h"
#include "cli/command/compare_outcome.h"
#include "cli/value/inputs.h"
#include "cli/command/policy_file.h"
#include "cli/base/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct CompareOptions {
    InputOptions base;
    const char *against;
    double rtol, atol;
    double seed; /* < 0: as the policies say */
} CompareOptions;

static const CompareOptions defaults = {.rtol = 1e-3, .atol = -1, .seed = -1};

static const Flag compare_flags[] = {
    {"against", "PATH", FLAG_TEXT, offsetof(CompareOptions, against),
     "another model, or a folder of recorded values; see below"},
    {"rtol", "X", FLAG_REAL, offsetof(CompareOptions, rtol), "largest difference, relative to an element; default 1e-3",
     0, 1e30},
    {"atol", "X", FLAG_REAL, offsetof(CompareOptions, atol),
     "and absolute; default: rtol times the value's root mean square", 0, 1e30},
    {"seed", "N", FLAG_REAL, offsetof(CompareOptions, seed), "of random operators, on both sides", 0, 9007199254740992},
    {0},
};

/* --- the two sides --- */
typedef struct Side {
    char *label, *policy; /* policy: JSON, or NULL: as the file says, or beside the model */
    const char *model, *policy_file, *precision, *device;
    OnnxfuseSession *session;
} Side;

static void side_free(Side *side) {
    onnxfuse_session_close(side->session);
    free(side->label);
    free(side->policy);
    *side = (Side){0};
}

static void set_item(cJSON *policy, const char *key, cJSON *item) {
    cJSON_DeleteItemFromObjectCaseSensitive(policy, key);
    cJSON_AddItemToObject(policy, key, item);
}

static void set_unfused(cJSON *policy) {
    cJSON *fusion = cJSON_CreateObject();
    cJSON_AddBoolToObject(fusion, "enable", false);
    cJSON_DeleteItemFromObjectCaseSensitive(policy, "kernel_fusion");
    set_item(policy, "fusion", fusion);
}

typedef enum Fusing { AS_ASKED, UNFUSED, PLAIN } Fusing; /* PLAIN: unfused, and nothing else of any policy */

static Problem *side_policy(const CompareOptions *options, Side *side, Fusing fusing) {
    cJSON *policy = NULL;
    if (fusing == AS_ASKED && options->seed < 0) return NULL;
    if (fusing == PLAIN)
        policy = cJSON_CreateObject();
    else
        TRY(policy_of(side->policy_file, side->model, &policy));
    if (!policy) return NULL;
    if (fusing != AS_ASKED) set_unfused(policy);
    if (options->seed >= 0) set_item(policy, "seed", cJSON_CreateNumber(options->seed));
    side->policy = cJSON_PrintUnformatted(policy);
    cJSON_Delete(policy);
    return side->policy ? NULL : problem_out_of_memory();
}

static Problem *side_open(const CompareOptions *options, Side *side, Fusing fusing) {
    TRY(side_policy(options, side, fusing));
    OnnxfuseOptions given = {.policy_file = side->policy_file,
                             .policy_json = side->policy,
                             .precision = side->precision,
                             .device = side->device,
                             .threads = options->base.common.threads};
    Problem *found = problem_from(onnxfuse_session_open(side->model, &given, &side->session));
    if (found) return problem_at(found, "%s", side->model);
    int made = asprintf(&side->label, "%s on %s%s%s%s%s%s", side->model, onnxfuse_session_device_name(side->session),
                        fusing == AS_ASKED ? "" : ", not fused", side->policy_file ? ", policy " : "",
                        side->policy_file ? side->policy_file : "", side->precision ? ", precision " : "",
                        side->precision ? side->precision : "");
    return made < 0 ? problem_out_of_memory() : NULL;
}

/* "A,B" in two; the second NULL where there is no comma. */
static Problem *split(const char *text, char **out_first, char **out_second) {
    const char *comma = text ? strchr(text, ',') : NULL;
    *out_first = *out_second = NULL;
    if (!text) return NULL;
    *out_first = comma ? strndup(text, (size_t)(comma - text)) : strdup(text);
    *out_second = comma ? strdup(comma + 1) : NULL;
    return *out_first && (!comma || *out_second) ? NULL : problem_out_of_memory();
}

/* --- recorded values --- */
static bool is_folder(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* A name as `run --output-dir` writes it; "_2" and so on, which it puts behind names that would be the same, are not
 * found again. */
static Problem *path_in(const char *folder, const char *name, const char *ending, char **out_path) {
    enum { LONGEST_NAME = 200 };
    if (asprintf(out_path, "%s/%.*s%s", folder, LONGEST_NAME, *name ? name : "_", ending) < 0)
        return problem_out_of_memory();
    char *begin = *out_path + strlen(folder) + 1, *end = *out_path + strlen(*out_path) - strlen(ending);
    for (char *c = begin; c < end; c++) {
        unsigned char u = (unsigned char)*c;
        bool plain = (u >= 'a' && u <= 'z') || (u >= 'A' && u <= 'Z') || (u >= '0' && u <= '9') || u == '-' ||
                     (u == '.' && c > begin) || u >= 0x80;
        if (!plain) *c = '_';
    }
    return NULL;
}

/* out_loaded->value stays NULL where there is no such file. */
static Problem *read_npy(const char *folder, const char *name, OnnxfuseDType dtype, Loaded *out_loaded) {
    char *path;
    Bytes bytes = {0};
    TRY(path_in(folder, name, ".npy", &path));
    Problem *found = NULL;
    if (file_exists(path)) {
        found = file_read(path, &bytes);
        if (!found) found = npy_parse(&bytes, dtype, out_loaded);
    }
    free(bytes.data);
    free(path);
    return problem_at(found, "%s.npy", name);
}

static Problem *read_proto(const char *folder, const char *role, int index, OnnxfuseProto kind, Loaded *out_loaded) {
    char *path;
    Bytes bytes = {0};
    if (asprintf(&path, "%s/test_data_set_0/%s_%d.pb", folder, role, index) < 0) return problem_out_of_memory();
    Problem *found = NULL;
    if (file_exists(path)) {
        found = file_read(path, &bytes);
        if (!found)
            found = problem_from(onnxfuse_value_from_proto(kind, bytes.data, bytes.size, &out_loaded->value, NULL));
    }
    free(bytes.data);
    free(path);
    return problem_at(found, "test_data_set_0/%s_%d.pb", role, index);
}

static Problem *read_recorded(const char *folder, const char *role, int index, const OnnxfuseValueInfo *info,
                              Loaded *out_loaded) {
    TRY(read_proto(folder, role, index, info->kind, out_loaded));
    return out_loaded->value ? NULL : read_npy(folder, info->name, info->dtype, out_loaded);
}

static Problem *compare_recorded(const char *folder, OnnxfuseSession *session, Recording *r, Closeness closeness) {
    int before = 0;
    for (int i = 0; i < r->values; i++) {
        Loaded loaded = {0};
        Entry *entry = &r->entries[i];
        if (entry->occurrence) continue; /* a file holds one value: the first */
        Problem *found = read_npy(folder, entry->name, onnxfuse_value_dtype(entry->value), &loaded);
        if (!found && loaded.value) found = recording_compare(r, entry, loaded.value, closeness, false), before++;
        loaded_free(&loaded);
        if (found) return found;
    }
    for (int o = 0; o < onnxfuse_session_output_count(session); o++) {
        Loaded loaded = {0};
        const OnnxfuseValueInfo *info = onnxfuse_session_output(session, o);
        Problem *found = read_recorded(folder, "output", o, info, &loaded);
        if (!found && loaded.value)
            found = recording_compare(r, recording_output(r, o), loaded.value, closeness, info->random), before++;
        loaded_free(&loaded);
        if (found) return found;
    }
    return before ? NULL
                  : problem(ONNXFUSE_INVALID,
                            "\"%s\" holds neither test_data_set_0/output_N.pb nor NAME.npy of any value", folder);
}

/* --- inputs --- */
/* Where --against is a folder, its inputs are taken that --input does not give. */
static Problem *recorded_inputs(const char *folder, const OnnxfuseSession *session, Loaded *out_loaded) {
    for (int i = 0; i < onnxfuse_session_input_count(session); i++)
        TRY(read_recorded(folder, "input", i, onnxfuse_session_input(session, i), &out_loaded[i]));
    return NULL;
}

static Problem *feed(const char *folder, const OnnxfuseSession *session, const InputRequest *request,
                     Inputs *out_inputs) {
    int count = onnxfuse_session_input_count(session);
    Loaded *recorded = calloc((size_t)count + 1, sizeof *recorded);
    if (!recorded) return problem_out_of_memory();
    Problem *found = folder ? recorded_inputs(folder, session, recorded) : NULL;
    if (!found) found = inputs_make(session, request, recorded, out_inputs);
    for (int i = 0; i < count; i++) loaded_free(&recorded[i]);
    free(recorded);
    return found;
}

/* The other model's inputs, by name; by position where it has none of that name. */
static Problem *match_inputs(const OnnxfuseSession *session, const OnnxfuseSession *other, const Inputs *inputs,
                             const OnnxfuseValue ***out_values) {
    int count = onnxfuse_session_input_count(other);
    if (count != inputs->count)
        return problem(ONNXFUSE_USAGE, "the two models have %d and %d inputs", inputs->count, count);
    const OnnxfuseValue **values = calloc((size_t)count + 1, sizeof *values);
    if (!values) return problem_out_of_memory();
    for (int i = 0; i < count; i++) {
        int from = i;
        for (int k = 0; k < count; k++)
            if (strcmp(onnxfuse_session_input(session, k)->name, onnxfuse_session_input(other, i)->name) == 0) from = k;
        values[i] = inputs->values[from];
    }
    *out_values = values;
    return NULL;
}

/* --- within a fused step --- */
static bool is_node_of(const cJSON *step, const char *name) {
    const cJSON *node;
    cJSON_ArrayForEach(node, cJSON_GetObjectItemCaseSensitive(step, "nodes")) {
        if (strcmp(cJSON_GetStringValue(node), name) == 0) return true;
    }
    return false;
}

typedef struct Comparing {
    const CompareOptions *options;
    Side side, other;
    const char *folder; /* of recorded values, or NULL */
    bool plain;         /* the other side is the model itself with nothing fused */
    Inputs inputs;
    const OnnxfuseValue **other_inputs;
    Closeness closeness;
    Recording recording;
    Topology topology;
    Verdict verdict;
} Comparing;

static Problem *compare_side(Comparing *c, OnnxfuseSession *session, OnnxfuseSession *other, Recording *out_recording) {
    TRY(inputs_explain(&c->inputs, recording_make(session, c->inputs.values, out_recording)));
    return c->folder
               ? compare_recorded(c->folder, session, out_recording, c->closeness)
               : inputs_explain(&c->inputs, recording_compare_run(out_recording, other, c->other_inputs, c->closeness));
}

static Problem *summarise_inside(Comparing *c, const cJSON *step, const Outcome *outcome) {
    Inside *inside = &c->verdict.inside;
    inside->looked = true;
    inside->nodes = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(step, "nodes"));
    for (int i = 0; i < outcome->count; i++) {
        const Ranked *row = &outcome->ranked[i];
        if (row->output || !is_node_of(step, ranked_node(row))) continue;
        inside->compared++;
        if (inside->node || !finding_differs(&row->entry->finding)) continue;
        inside->node = strdup(ranked_node(row));
        inside->op = strdup(row->node ? row->node->op : "");
        inside->value = strdup(row->entry->name);
        if (!inside->node || !inside->op || !inside->value) return problem_out_of_memory();
    }
    return NULL;
}

/* Both sides once more, with nothing fused in either. */
static Problem *look_inside(Comparing *c, const Ranked *first) {
    int at;
    const cJSON *plan = topology_step(&c->topology, first->entry->name, &at);
    const cJSON *step = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(plan, "steps"), at);
    if (!plan || cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(step, "nodes")) < 2) return NULL;
    Side side = {.model = c->side.model,
                 .policy_file = c->side.policy_file,
                 .precision = c->side.precision,
                 .device = c->side.device};
    Side other = {.model = c->other.model, .policy_file = c->other.policy_file, .device = c->other.device};
    Recording recording = {0};
    Outcome outcome = {0};
    Problem *found = side_open(c->options, &side, UNFUSED);
    if (!found && !c->folder) found = side_open(c->options, &other, c->plain ? PLAIN : UNFUSED);
    if (!found) found = compare_side(c, side.session, other.session, &recording);
    if (!found) found = outcome_make(&recording, &c->topology, &outcome);
    if (!found) found = summarise_inside(c, step, &outcome);
    free(outcome.ranked);
    recording_free(&recording);
    side_free(&side);
    side_free(&other);
    return problem_at(found, "when not fused");
}

/* --- the command --- */
static Problem *open_sides(const CompareOptions *options, Comparing *c, char *const devices[2],
                           char *const policies[2]) {
    const char *model = options->base.common.arguments.items[0];
    bool pair = devices[1] || policies[1], folder = options->against && is_folder(options->against);
    if (options->against && pair)
        return problem(ONNXFUSE_USAGE, "--against, and two devices or policies: one of these at a time");
    if (options->against && !folder && !file_exists(options->against))
        return problem(ONNXFUSE_INVALID, "\"%s\" is not there", options->against);
    c->side = (Side){.model = model,
                     .precision = options->base.common.precision,
                     .device = devices[1] ? devices[1] : devices[0],
                     .policy_file = policies[1] ? policies[1] : policies[0]};
    c->other = (Side){.model = model, .device = devices[0], .policy_file = policies[0]};
    c->folder = folder ? options->against : NULL;
    TRY(side_open(options, &c->side, AS_ASKED));
    if (folder) return NULL;
    if (options->against) c->other.model = options->against;
    c->plain = !options->against && !pair;
    if (c->plain) c->other = (Side){.model = model, .device = "cpu"};
    return side_open(options, &c->other, c->plain ? PLAIN : AS_ASKED);
}

static Problem *tell(Comparing *c) {
    Verdict *v = &c->verdict;
    const Ranked *first = outcome_first(&v->outcome);
    v->got = c->side.label;
    v->expected = c->folder ? c->folder : c->other.label;
    v->closeness = c->closeness;
    v->recording = &c->recording;
    v->topology = &c->topology;
    v->inputs = &c->inputs;
    if (first) TRY(look_inside(c, first));
    verdict_tell(v, c->options->base.common.json);
    return first ? problem_told(ONNXFUSE_DIFFERENT) : NULL;
}

static Problem *compare_sides(Comparing *c, const InputRequest *request) {
    TRY(feed(c->folder, c->side.session, request, &c->inputs));
    if (!c->folder) TRY(match_inputs(c->side.session, c->other.session, &c->inputs, &c->other_inputs));
    TRY(compare_side(c, c->side.session, c->other.session, &c->recording));
    TRY(topology_read(c->side.session, &c->topology));
    TRY(outcome_make(&c->recording, &c->topology, &c->verdict.outcome));
    if (!c->verdict.outcome.count) return problem(ONNXFUSE_INVALID, "the two have no value in common");
    return tell(c);
}

static void comparing_free(Comparing *c) {
    verdict_free(&c->verdict);
    free(c->other_inputs);
    topology_free(&c->topology);
    recording_free(&c->recording);
    inputs_free(&c->inputs);
    side_free(&c->side);
    side_free(&c->other);
}

static Problem *compare(void *given) {
    const CompareOptions *options = given;
    Comparing c = {.options = options, .closeness = {options->rtol, options->atol}};
    InputRequest request;
    char *devices[2], *policies[2] = {NULL, NULL};
    TRY(request_read(&options->base, &request));
    Problem *found = split(options->base.common.device, &devices[0], &devices[1]);
    if (!found) found = split(options->base.common.policy, &policies[0], &policies[1]);
    if (!found) found = open_sides(options, &c, devices, policies);
    if (!found) found = compare_sides(&c, &request);
    comparing_free(&c);
    for (int i = 0; i < 2; i++) free(devices[i]), free(policies[i]);
    request_free(&request);
    return found;
}

const Command compare_command = {
    .name = "compare",
    .arguments = "MODEL",
    .summary = "find the first node whose value differs from another run's",
    .details =
        "The model is compared with\n"
        "  --against OTHER.onnx   another model on the same inputs: values by name, outputs by position\n"
        "  --against FOLDER       recorded values: FOLDER/test_data_set_0 as in the ONNX standard's backend tests, or\n"
        "                         NAME.npy of any values; inputs that the folder has are taken from it\n"
        "  --device A,B           itself: on device B, with device A\n"
        "  --policy A,B           itself: with policy B, with policy A\n"
        "  --precision TYPE       itself: in this type, on the CPU with nothing fused in the model's own\n"
        "and else with itself on the CPU with nothing fused. Values that one side alone stores, since the other has\n"
        "fused them away, are skipped. An element differs when |got - expected| > atol + rtol * |expected|.\n"
        "Integers differ when they are not equal, or are further apart than --atol.\n"
        "The exit code is 0 when nothing differs, 1 when something does.\n",
    .more = print_inputs_help,
    .flag_tables = (const Flag *const[]){input_flags, compare_flags, model_flags, common_flags, NULL},
    .options_size = sizeof(CompareOptions),
    .defaults = &defaults,
    .least = 1,
    .most = 1,
    .run = compare,
};
