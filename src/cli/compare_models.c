/* onnxfuse compare: where do two ways to run a model begin to differ?
 *
 * One way (the model as it is asked for) is run and its values are kept; then the other way is run, and each value that
 * both store is compared. The first that differs, in the model's order, is told with what is known about it. Values
 * within a fused step are seen by running the model once more with fusion off. */
#include "commands.h"
#include "inputs.h"
#include "recording.h"
#include "session.h"
#include "show.h"
#include "topology.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LISTED = 10, AROUND = 2 };

typedef struct CompareOptions {
    Options common;
    TextList inputs, shapes;
    const char *against;
    double rtol, atol;
    double seed; /* < 0: as the policies say */
} CompareOptions;

static const CompareOptions defaults = {.rtol = 1e-3, .atol = -1, .seed = -1};

static const Flag compare_flags[] = {
    {"against", "PATH", FLAG_TEXT, offsetof(CompareOptions, against),
     "another model, or a folder of recorded values; see below"},
    {"input", "NAME=WHAT", FLAG_LIST, offsetof(CompareOptions, inputs), "what goes into an input; see below"},
    {"shape", "NAME=1x3x224x224", FLAG_LIST, offsetof(CompareOptions, shapes), "the shape to draw random numbers for"},
    {"rtol", "X", FLAG_REAL, offsetof(CompareOptions, rtol), "largest difference, relative to an element; default 1e-3",
     0, 1e30},
    {"atol", "X", FLAG_REAL, offsetof(CompareOptions, atol),
     "and absolute; default: rtol times the value's root mean square", 0, 1e30},
    {"seed", "N", FLAG_REAL, offsetof(CompareOptions, seed), "of random operators, on both sides", 0, 9007199254740992},
    {0},
};

/* --- the two sides -------------------------------------------------------------------------------------------------
 */
typedef struct Side {
    char *label, *policy; /* policy: JSON, or NULL: as the file says, or beside the model */
    const char *model, *policy_file, *device;
    OnnxfuseSession *session;
} Side;

static void side_free(Side *side) {
    onnxfuse_session_close(side->session);
    free(side->label);
    free(side->policy);
    *side = (Side){0};
}

static char *beside(const char *model) {
    size_t length = strlen(model);
    char *path = NULL;
    if (length > 5 && strcmp(model + length - 5, ".onnx") == 0) length -= 5;
    return asprintf(&path, "%.*s.policy.json", (int)length, model) < 0 ? NULL : path;
}

/* The policy that the side would read by itself; *out_policy is an empty object where there is none, and NULL where it
 * cannot be read as JSON, which the library then says better. */
static Problem *read_policy(const Side *side, cJSON **out_policy) {
    char *path = side->policy_file ? strdup(side->policy_file) : beside(side->model);
    if (!path) return problem_out_of_memory();
    Bytes bytes = {0};
    Problem *found = NULL;
    bool given = side->policy_file || file_exists(path);
    if (given) found = file_read(path, &bytes);
    free(path);
    if (found) return problem_at(found, "policy");
    *out_policy = given ? cJSON_Parse((const char *)bytes.data) : cJSON_CreateObject();
    free(bytes.data);
    if (cJSON_IsObject(*out_policy)) return NULL;
    cJSON_Delete(*out_policy);
    *out_policy = NULL;
    return NULL;
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
        TRY(read_policy(side, &policy));
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
                             .device = side->device,
                             .threads = options->common.threads};
    Problem *found = problem_from(onnxfuse_session_open(side->model, &given, &side->session));
    if (found) return problem_at(found, "%s", side->model);
    int made = asprintf(&side->label, "%s on %s%s%s%s", side->model, onnxfuse_session_device_name(side->session),
                        fusing == AS_ASKED ? "" : ", not fused", side->policy_file ? ", policy " : "",
                        side->policy_file ? side->policy_file : "");
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

/* --- recorded values -----------------------------------------------------------------------------------------------
 */
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

/* --- inputs ----------------------------------------------------------------------------------------------------------
 */
static bool is_given(const TextList *inputs, const char *name) {
    size_t length = strlen(name);
    for (int i = 0; i < inputs->count; i++)
        if (strncmp(inputs->items[i], name, length) == 0 && inputs->items[i][length] == '=') return true;
    return false;
}

/* Where --against is a folder, its inputs are taken that --input does not give. */
static Problem *recorded_inputs(const CompareOptions *options, const OnnxfuseSession *session, Loaded *out_loaded) {
    for (int i = 0; i < onnxfuse_session_input_count(session); i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(session, i);
        if (!is_given(&options->inputs, info->name))
            TRY(read_recorded(options->against, "input", i, info, &out_loaded[i]));
    }
    return NULL;
}

typedef struct Fed {
    Inputs inputs;
    Loaded *recorded;             /* [count], or NULL */
    const OnnxfuseValue **values; /* [count] */
    int count;
} Fed;

static void fed_free(Fed *fed) {
    for (int i = 0; fed->recorded && i < fed->count; i++) loaded_free(&fed->recorded[i]);
    free(fed->recorded);
    free(fed->values);
    inputs_free(&fed->inputs);
}

static Problem *feed(const CompareOptions *options, const OnnxfuseSession *session, const Shapes *shapes, Fed *fed) {
    fed->count = onnxfuse_session_input_count(session);
    fed->values = calloc((size_t)fed->count + 1, sizeof *fed->values);
    fed->recorded = calloc((size_t)fed->count + 1, sizeof *fed->recorded);
    if (!fed->values || !fed->recorded) return problem_out_of_memory();
    bool all = options->against && is_folder(options->against);
    if (all) TRY(recorded_inputs(options, session, fed->recorded));
    for (int i = 0; i < fed->count; i++) all &= fed->recorded[i].value != NULL;
    if (!all || options->inputs.count) TRY(inputs_make(session, &options->inputs, shapes, &fed->inputs));
    for (int i = 0; i < fed->count; i++)
        fed->values[i] = fed->recorded[i].value ? fed->recorded[i].value : fed->inputs.values[i];
    return NULL;
}

/* The other model's inputs, by name; by position where it has none of that name. */
static Problem *match_inputs(const OnnxfuseSession *session, const OnnxfuseSession *other, const Fed *fed,
                             const OnnxfuseValue ***out_values) {
    int count = onnxfuse_session_input_count(other);
    if (count != fed->count) return problem(ONNXFUSE_USAGE, "the two models have %d and %d inputs", fed->count, count);
    const OnnxfuseValue **values = calloc((size_t)count + 1, sizeof *values);
    if (!values) return problem_out_of_memory();
    for (int i = 0; i < count; i++) {
        int from = i;
        for (int k = 0; k < count; k++)
            if (strcmp(onnxfuse_session_input(session, k)->name, onnxfuse_session_input(other, i)->name) == 0) from = k;
        values[i] = fed->values[from];
    }
    *out_values = values;
    return NULL;
}

/* --- what was found --------------------------------------------------------------------------------------------------
 */
typedef struct Ranked {
    const Entry *entry;
    const ModelNode *node; /* NULL: not known */
    bool output;
} Ranked;

typedef struct Outcome {
    Ranked *ranked; /* those compared, in the model's order */
    int count, different, skipped;
} Outcome;

static bool differs(const Finding *f) { return f->compared && (!f->comparable || f->different); }

static int in_model_order(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    int p = x->node ? x->node->outermost : -1, q = y->node ? y->node->outermost : -1;
    if (x->output != y->output && (p < 0 || q < 0)) return x->output - y->output;
    if (p != q) return p < q ? -1 : 1;
    return (x->entry->finding.arrival > y->entry->finding.arrival) -
           (x->entry->finding.arrival < y->entry->finding.arrival);
}

static int by_excess(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    double p = x->entry->finding.excess, q = y->entry->finding.excess;
    return p == q ? in_model_order(a, b) : p < q ? 1 : -1;
}

static Problem *rank(const Recording *r, const Topology *t, Outcome *out) {
    out->ranked = calloc((size_t)r->count + 1, sizeof *out->ranked);
    if (!out->ranked) return problem_out_of_memory();
    for (int i = 0; i < r->count; i++) {
        const Entry *entry = &r->entries[i];
        if (!entry->finding.compared) {
            out->skipped += i < r->values;
            continue;
        }
        out->ranked[out->count++] = (Ranked){entry, topology_maker(t, entry->name), i >= r->values};
        out->different += differs(&entry->finding);
    }
    out->skipped += r->unmatched;
    if (out->count) qsort(out->ranked, (size_t)out->count, sizeof *out->ranked, in_model_order);
    return NULL;
}

static const Ranked *first_different(const Outcome *o) {
    for (int i = 0; i < o->count; i++)
        if (differs(&o->ranked[i].entry->finding)) return &o->ranked[i];
    return NULL;
}

static const Entry *entry_of(const Recording *r, const char *value, int occurrence) {
    for (int i = 0; i < r->values; i++)
        if (r->entries[i].occurrence == occurrence && strcmp(r->entries[i].name, value) == 0) return &r->entries[i];
    return NULL;
}

static const char *input_state(const Recording *r, const Topology *t, const char *value, int occurrence) {
    const Entry *entry = entry_of(r, value, occurrence);
    if (entry && entry->finding.compared) return differs(&entry->finding) ? "differs" : "agrees";
    return topology_maker(t, value) ? "not compared: not stored by both" : "an input or a constant";
}

/* --- telling: text ---------------------------------------------------------------------------------------------------
 */
static const char *node_name(const Ranked *r) {
    return r->node ? r->node->name : *r->entry->node ? r->entry->node : "?";
}

static void print_type_of(const Finding *f) {
    if (f->comparable || strcmp(f->got_type, f->expected_type) == 0)
        print_safe(stdout, f->got_type);
    else
        printf("got %s, expected %s", f->got_type, f->expected_type);
}

static void print_ulps(const Finding *f) {
    if (isfinite(f->ulps)) printf(", %.0f ULP", f->ulps);
}

static void print_worst(const Finding *f) {
    if (!f->comparable || !f->index) return;
    if (f->item >= 0) printf("item %d of the sequence, ", f->item);
    printf("worst element %s: got %s, expected ", f->index, f->got);
    print_safe(stdout, f->expected);
    if (isfinite(f->distance)) printf(" (difference %.4g", f->distance), print_ulps(f), putchar(')');
    printf("\n  %lld of %lld elements differ", (long long)f->different, (long long)f->count);
}

static void print_inputs(const Recording *r, const Topology *t, const Ranked *first) {
    const cJSON *input;
    if (!first->node) return;
    fputs("  what the node reads:\n", stdout);
    cJSON_ArrayForEach(input, first->node->inputs) {
        if (!cJSON_IsString(input)) continue;
        fputs("    \"", stdout);
        print_safe(stdout, input->valuestring);
        printf("\" %s\n", input_state(r, t, input->valuestring, first->entry->occurrence));
    }
}

static void print_steps(const Topology *t, const Ranked *first) {
    int at;
    const cJSON *plan = topology_step(t, first->entry->name, &at);
    if (!plan) return;
    fputs("  steps around it:\n", stdout);
    for (int s = at - AROUND < 0 ? 0 : at - AROUND; s <= at + AROUND; s++) {
        char *text = topology_step_text(plan, s);
        if (!text) continue;
        fputs(s == at ? "  > " : "    ", stdout);
        print_safe(stdout, text);
        putchar('\n');
        free(text);
    }
}

static void print_first(const Recording *r, const Topology *t, const Ranked *first) {
    const Finding *f = &first->entry->finding;
    fputs("\nfirst: node \"", stdout);
    print_safe(stdout, node_name(first));
    printf("\"%s%s%s, value \"", first->node ? " (" : "", first->node ? first->node->op : "", first->node ? ")" : "");
    print_safe(stdout, first->entry->name);
    fputs("\" ", stdout);
    print_type_of(f);
    if (first->entry->occurrence) printf(", time %d", first->entry->occurrence + 1);
    fputs("\n  ", stdout);
    print_worst(f);
    putchar('\n');
    print_inputs(r, t, first);
    print_steps(t, first);
}

static void print_row(const Ranked *row) {
    const Finding *f = &row->entry->finding;
    char distance[32] = "-", ulps[32] = "-", bound[32] = "-";
    if (f->comparable && isfinite(f->distance)) snprintf(distance, sizeof distance, "%.3g", f->distance);
    if (f->comparable && isfinite(f->ulps)) snprintf(ulps, sizeof ulps, "%.0f", f->ulps);
    if (isfinite(f->excess)) snprintf(bound, sizeof bound, "%.3g", f->excess);
    printf("  %10s %12s %10s %10lld  %-4s  ", distance, ulps, bound, (long long)f->different,
           differs(f) ? "DIFF" : "ok");
    print_safe(stdout, row->entry->name);
    if (row->entry->occurrence) printf(" (time %d)", row->entry->occurrence + 1);
    if (row->output) fputs(" (output)", stdout);
    if (row->node) printf("  [%s]", row->node->op);
    putchar('\n');
}

static void print_table(const Outcome *o) {
    if (!o->count) return;
    printf("\nlargest differences\n  %10s %12s %10s %10s\n", "|got-exp.|", "ULP", "of bound", "differ");
    for (int i = 0; i < o->count && i < LISTED; i++) print_row(&o->ranked[i]);
}

/* --- telling: JSON -------------------------------------------------------------------------------------------------
 */
static void add_number(cJSON *object, const char *key, double number) {
    if (isfinite(number))
        cJSON_AddNumberToObject(object, key, number);
    else
        cJSON_AddNullToObject(object, key);
}

static cJSON *json_row(const Ranked *row) {
    const Finding *f = &row->entry->finding;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "value", row->entry->name);
    cJSON_AddStringToObject(object, "node", node_name(row));
    if (row->node) cJSON_AddStringToObject(object, "operator", row->node->op);
    cJSON_AddNumberToObject(object, "occurrence", row->entry->occurrence);
    cJSON_AddBoolToObject(object, "output", row->output);
    cJSON_AddBoolToObject(object, "differs", differs(f));
    cJSON_AddStringToObject(object, "got_type", f->got_type);
    cJSON_AddStringToObject(object, "expected_type", f->expected_type);
    if (!f->comparable) return object;
    cJSON_AddNumberToObject(object, "elements", (double)f->count);
    cJSON_AddNumberToObject(object, "elements_different", (double)f->different);
    if (!f->index) return object;
    cJSON_AddStringToObject(object, "index", f->index);
    cJSON_AddStringToObject(object, "got", f->got);
    cJSON_AddStringToObject(object, "expected", f->expected);
    add_number(object, "difference", f->distance);
    add_number(object, "ulp", f->ulps);
    add_number(object, "of_bound", f->excess);
    return object;
}

static cJSON *json_first(const Recording *r, const Topology *t, const Ranked *first) {
    cJSON *object = json_row(first), *inputs = cJSON_AddArrayToObject(object, "inputs");
    const cJSON *input;
    const cJSON *read = first->node ? first->node->inputs : NULL;
    cJSON_ArrayForEach(input, read) {
        if (!cJSON_IsString(input)) continue;
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "value", input->valuestring);
        cJSON_AddStringToObject(one, "state", input_state(r, t, input->valuestring, first->entry->occurrence));
        cJSON_AddItemToArray(inputs, one);
    }
    int at;
    const cJSON *plan = topology_step(t, first->entry->name, &at);
    cJSON *steps = cJSON_AddArrayToObject(object, "steps");
    for (int s = plan ? at - AROUND : 0; plan && s <= at + AROUND; s++) {
        char *text = s < 0 ? NULL : topology_step_text(plan, s);
        if (text) cJSON_AddItemToArray(steps, cJSON_CreateString(text));
        free(text);
    }
    if (plan) cJSON_AddNumberToObject(object, "step", at);
    return object;
}

/* --- within a fused step ---------------------------------------------------------------------------------------------
 */
/* What the nodes of the step come to when each is a step of its own. */
typedef struct Inside {
    bool looked;
    int nodes, compared;
    char *node, *op, *value; /* the first that differs then; NULL: none does */
} Inside;

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
    Fed fed;
    const OnnxfuseValue **other_inputs;
    Closeness closeness;
    Recording recording;
    Topology topology;
    Outcome outcome;
    Inside inside;
} Comparing;

static Problem *compare_side(Comparing *c, OnnxfuseSession *session, OnnxfuseSession *other, Recording *out_recording) {
    TRY(recording_make(session, c->fed.values, out_recording));
    return c->folder ? compare_recorded(c->folder, session, out_recording, c->closeness)
                     : recording_compare_run(out_recording, other, c->other_inputs, c->closeness);
}

static Problem *summarise_inside(Comparing *c, const cJSON *step, const Outcome *outcome) {
    Inside *inside = &c->inside;
    inside->looked = true;
    inside->nodes = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(step, "nodes"));
    for (int i = 0; i < outcome->count; i++) {
        const Ranked *row = &outcome->ranked[i];
        if (row->output || !is_node_of(step, node_name(row))) continue;
        inside->compared++;
        if (inside->node || !differs(&row->entry->finding)) continue;
        inside->node = strdup(node_name(row));
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
    Side side = {.model = c->side.model, .policy_file = c->side.policy_file, .device = c->side.device};
    Side other = {.model = c->other.model, .policy_file = c->other.policy_file, .device = c->other.device};
    Recording recording = {0};
    Outcome outcome = {0};
    Problem *found = side_open(c->options, &side, UNFUSED);
    if (!found && !c->folder) found = side_open(c->options, &other, c->plain ? PLAIN : UNFUSED);
    if (!found) found = compare_side(c, side.session, other.session, &recording);
    if (!found) found = rank(&recording, &c->topology, &outcome);
    if (!found) found = summarise_inside(c, step, &outcome);
    free(outcome.ranked);
    recording_free(&recording);
    side_free(&side);
    side_free(&other);
    return problem_at(found, "when not fused");
}

static void print_inside(const Inside *inside) {
    if (!inside->looked) return;
    fputs("  when not fused, ", stdout);
    if (inside->node) {
        printf("of the step's %d nodes the first that differs is \"", inside->nodes);
        print_safe(stdout, inside->node);
        printf("\" (%s), value \"", inside->op);
        print_safe(stdout, inside->value);
        puts("\"");
    } else {
        printf("none of the step's %d nodes differs (%d of their values were compared)\n", inside->nodes,
               inside->compared);
    }
}

static cJSON *json_inside(const Inside *inside) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "nodes", inside->nodes);
    cJSON_AddNumberToObject(object, "values_compared", inside->compared);
    if (inside->node) {
        cJSON_AddStringToObject(object, "node", inside->node);
        cJSON_AddStringToObject(object, "operator", inside->op);
        cJSON_AddStringToObject(object, "value", inside->value);
    }
    return object;
}

/* --- the command ---------------------------------------------------------------------------------------------------
 */
static Problem *open_sides(const CompareOptions *options, Comparing *c, char *const devices[2],
                           char *const policies[2]) {
    const char *model = options->common.arguments.items[0];
    bool pair = devices[1] || policies[1], folder = options->against && is_folder(options->against);
    if (options->against && pair)
        return problem(ONNXFUSE_USAGE, "--against, and two devices or policies: one of these at a time");
    if (options->against && !folder && !file_exists(options->against))
        return problem(ONNXFUSE_INVALID, "\"%s\" is not there", options->against);
    c->side = (Side){.model = model,
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

static void print_outcome(const Comparing *c, const Ranked *first) {
    const Outcome *o = &c->outcome;
    fputs("compared: ", stdout);
    print_safe(stdout, c->side.label);
    fputs("\nwith:     ", stdout);
    print_safe(stdout, c->folder ? c->folder : c->other.label);
    printf("\n%s: %d of %d values differ; %d that one side alone has were skipped (rtol %g, ",
           first ? "DIFFERENT" : "equal", o->different, o->count, o->skipped, c->closeness.rtol);
    if (c->closeness.atol < 0)
        printf("atol %g of a value's root mean square)\n", c->closeness.rtol);
    else
        printf("atol %g)\n", c->closeness.atol);
    if (first) print_first(&c->recording, &c->topology, first);
    print_inside(&c->inside);
}

static void print_outcome_json(const Comparing *c, const Ranked *first, cJSON *first_json) {
    const Outcome *o = &c->outcome;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddBoolToObject(object, "equal", !first);
    cJSON_AddStringToObject(object, "got", c->side.label);
    cJSON_AddStringToObject(object, "expected", c->folder ? c->folder : c->other.label);
    cJSON_AddNumberToObject(object, "compared", o->count);
    cJSON_AddNumberToObject(object, "different", o->different);
    cJSON_AddNumberToObject(object, "skipped", o->skipped);
    if (first_json) cJSON_AddItemToObject(object, "first", first_json);
    if (c->inside.looked) cJSON_AddItemToObject(object, "when_not_fused", json_inside(&c->inside));
    cJSON *rows = cJSON_AddArrayToObject(object, "largest");
    for (int i = 0; i < o->count && i < LISTED; i++) cJSON_AddItemToArray(rows, json_row(&o->ranked[i]));
    print_json(object);
}

static Problem *tell(Comparing *c) {
    const Ranked *first = first_different(&c->outcome);
    bool json = c->options->common.json;
    Ranked kept = first ? *first : (Ranked){0};
    if (first) TRY(look_inside(c, first));
    cJSON *first_json = json && first ? json_first(&c->recording, &c->topology, first) : NULL;
    print_outcome(c, first ? &kept : NULL);
    qsort(c->outcome.ranked, (size_t)c->outcome.count, sizeof *c->outcome.ranked, by_excess);
    print_table(&c->outcome);
    if (json) print_outcome_json(c, first ? &kept : NULL, first_json);
    return first ? problem_told(ONNXFUSE_DIFFERENT) : NULL;
}

static Problem *compare_sides(Comparing *c, const Shapes *shapes) {
    TRY(feed(c->options, c->side.session, shapes, &c->fed));
    if (!c->folder) TRY(match_inputs(c->side.session, c->other.session, &c->fed, &c->other_inputs));
    TRY(compare_side(c, c->side.session, c->other.session, &c->recording));
    TRY(topology_read(c->side.session, &c->topology));
    TRY(rank(&c->recording, &c->topology, &c->outcome));
    if (!c->outcome.count) return problem(ONNXFUSE_INVALID, "the two have no value in common");
    return tell(c);
}

static void comparing_free(Comparing *c) {
    free(c->inside.node);
    free(c->inside.op);
    free(c->inside.value);
    free(c->outcome.ranked);
    free(c->other_inputs);
    topology_free(&c->topology);
    recording_free(&c->recording);
    fed_free(&c->fed);
    side_free(&c->side);
    side_free(&c->other);
}

static Problem *compare(void *given) {
    const CompareOptions *options = given;
    Comparing c = {.options = options, .closeness = {options->rtol, options->atol}};
    Shapes shapes;
    char *devices[2], *policies[2] = {NULL, NULL};
    TRY(shapes_parse(&options->shapes, &shapes));
    Problem *found = split(options->common.device, &devices[0], &devices[1]);
    if (!found) found = split(options->common.policy, &policies[0], &policies[1]);
    if (!found) found = open_sides(options, &c, devices, policies);
    if (!found) found = compare_sides(&c, &shapes);
    comparing_free(&c);
    for (int i = 0; i < 2; i++) free(devices[i]), free(policies[i]);
    shapes_free(&shapes);
    return found;
}

static void print_more(FILE *out) { fputs(inputs_help, out); }

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
        "and else with itself on the CPU with nothing fused. Values that one side alone stores, since the other has\n"
        "fused them away, are skipped. An element differs when |got - expected| > atol + rtol * |expected|.\n"
        "The exit code is 0 when nothing differs, 1 when something does.\n\n",
    .more = print_more,
    .flag_tables = (const Flag *const[]){compare_flags, model_flags, common_flags, NULL},
    .options_size = sizeof(CompareOptions),
    .defaults = &defaults,
    .least = 1,
    .most = 1,
    .run = compare,
};
