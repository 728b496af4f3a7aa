/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse test: runs models on recorded inputs and compares with recorded outputs.
 *
 * A folder is laid out as the ONNX standard's backend tests: model.onnx; test_data_set_K/input_J.pb and output_J.pb, J
 * the position among the model's inputs (outputs), each a TensorProto, SequenceProto, OptionalProto or MapProto as declared;
 * perhaps data.json with rtol and atol, and integer_step where integers may be that far from what is recorded. */
#include "cli/command/commands.h"
#include "cli/value/compare.h"
#include "cli/base/session.h"
#include "cli/value/show.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_SET_NUMBER = 6 /* digits */ };
static const Tolerance default_tolerance = {1e-3, 1e-7, 0};
static const char set_prefix[] = "test_data_set_";

typedef struct TestOptions {
    Options common;
    bool compiled;
} TestOptions;

static const Flag test_flags[] = {
    {"compiled", NULL, FLAG_SWITCH, offsetof(TestOptions, compiled), "compile each model first, and run that file"},
    {0},
};

/* --- a folder's files
 * -------------------------------------------------------------------------------------------------- */
static Problem *path_in(char **out_path, const char *format, ...) __attribute__((format(printf, 2, 3)));
static Problem *path_in(char **out_path, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vasprintf(out_path, format, args);
    va_end(args);
    return length < 0 ? problem_out_of_memory() : NULL;
}

static Problem *read_bound(const cJSON *object, const char *path, const char *name, double *bound) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!item) return NULL;
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0))
        return problem(ONNXFUSE_INVALID, "\"%s\": %s is no number of 0 or more", path, name);
    *bound = item->valuedouble;
    return NULL;
}

static Problem *read_tolerance_file(const char *path, Tolerance *tolerance) {
    Bytes text;
    if (!file_exists(path)) return NULL;
    TRY(file_read(path, &text));
    cJSON *object = cJSON_ParseWithOpts((const char *)text.data, NULL, 1);
    free(text.data);
    Problem *found = cJSON_IsObject(object) ? NULL : problem(ONNXFUSE_INVALID, "\"%s\" is no JSON object", path);
    if (!found) found = read_bound(object, path, "rtol", &tolerance->rtol);
    if (!found) found = read_bound(object, path, "atol", &tolerance->atol);
    if (!found) found = read_bound(object, path, "integer_step", &tolerance->step);
    cJSON_Delete(object);
    return found;
}

static Problem *read_tolerance(const char *folder, Tolerance *out_tolerance) {
    char *path;
    *out_tolerance = default_tolerance;
    TRY(path_in(&path, "%s/data.json", folder));
    Problem *found = read_tolerance_file(path, out_tolerance);
    free(path);
    return found;
}

typedef struct Sets {
    int *numbers; /* rising */
    int count;
} Sets;

static int compare_ints(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static int set_number(const char *name) {
    size_t length = sizeof set_prefix - 1;
    if (strncmp(name, set_prefix, length) != 0) return -1;
    const char *digits = name + length;
    size_t count = strspn(digits, "0123456789");
    return !count || digits[count] || count > LONGEST_SET_NUMBER ? -1 : atoi(digits);
}

static Problem *find_sets(const char *folder, Sets *out_sets) {
    DIR *directory = opendir(folder);
    if (!directory) return problem(ONNXFUSE_INVALID, "the folder cannot be read: %s", strerror(errno));
    Sets sets = {0};
    Problem *found = NULL;
    for (struct dirent *entry; !found && (entry = readdir(directory));) {
        int number = set_number(entry->d_name);
        if (number < 0) continue;
        int *numbers = realloc(sets.numbers, sizeof *numbers * ((size_t)sets.count + 1));
        if (numbers)
            sets.numbers = numbers, numbers[sets.count++] = number;
        else
            found = problem_out_of_memory();
    }
    closedir(directory);
    if (!found && !sets.count) found = problem(ONNXFUSE_INVALID, "the folder holds no %sN", set_prefix);
    if (found) {
        free(sets.numbers);
        return found;
    }
    qsort(sets.numbers, (size_t)sets.count, sizeof *sets.numbers, compare_ints);
    *out_sets = sets;
    return NULL;
}

/* --- a data set
 * --------------------------------------------------------------------------------------------------------------- */
typedef struct Set {
    const char *folder;
    int number;
    const OnnxfuseSession *session;
    int input_count, output_count;
    OnnxfuseValue **inputs, **outputs, **expected;
    unsigned rules; /* RULE_*, of what has been compared */
} Set;

/* input_J.pb or output_J.pb; *out_value stays NULL where there is no such file. */
static Problem *read_value(const Set *set, const char *role, int index, const OnnxfuseValueInfo *info,
                           OnnxfuseValue **out_value) {
    char *path;
    Bytes bytes = {0};
    TRY(path_in(&path, "%s/%s%d/%s_%d.pb", set->folder, set_prefix, set->number, role, index));
    Problem *found = NULL;
    if (file_exists(path)) {
        found = file_read(path, &bytes);
        if (!found)
            found = problem_from(onnxfuse_value_from_proto(info->kind, bytes.data, bytes.size, out_value, NULL));
    }
    free(bytes.data);
    free(path);
    return problem_at(found, "%s_%d.pb", role, index);
}

static Problem *read_set(Set *set) {
    for (int i = 0; i < set->input_count; i++)
        TRY(read_value(set, "input", i, onnxfuse_session_input(set->session, i), &set->inputs[i]));
    for (int i = 0; i < set->output_count; i++) {
        TRY(read_value(set, "output", i, onnxfuse_session_output(set->session, i), &set->expected[i]));
        if (!set->expected[i]) return problem(ONNXFUSE_INVALID, "output_%d.pb is missing", i);
    }
    return NULL;
}

static Problem *compare_set(Set *set, Tolerance tolerance) {
    for (int i = 0; i < set->output_count; i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_output(set->session, i);
        set->rules |= compare_rules(set->expected[i], tolerance, info->random);
        TRY(problem_at(compare_values(set->outputs[i], set->expected[i], tolerance, info->random), "output \"%s\"",
                       info->name));
    }
    return NULL;
}

static void free_values(OnnxfuseValue **values, int count) {
    for (int i = 0; values && i < count; i++) onnxfuse_value_free(values[i]);
    free(values);
}

static Problem *run_set(OnnxfuseSession *session, const char *folder, int number, Tolerance tolerance,
                        unsigned *rules) {
    Set set = {.folder = folder,
               .number = number,
               .session = session,
               .input_count = onnxfuse_session_input_count(session),
               .output_count = onnxfuse_session_output_count(session)};
    set.inputs = calloc((size_t)set.input_count + 1, sizeof *set.inputs);
    set.outputs = calloc((size_t)set.output_count + 1, sizeof *set.outputs);
    set.expected = calloc((size_t)set.output_count + 1, sizeof *set.expected);
    Problem *found = set.inputs && set.outputs && set.expected ? read_set(&set) : problem_out_of_memory();
    if (!found)
        found = problem_from(onnxfuse_session_run(session, (const OnnxfuseValue *const *)set.inputs, set.outputs));
    if (!found) found = compare_set(&set, tolerance);
    *rules |= set.rules;
    free_values(set.inputs, set.input_count);
    free_values(set.outputs, set.output_count);
    free_values(set.expected, set.output_count);
    return problem_at(found, "%s%d", set_prefix, number);
}

/* --- a folder
 * ----------------------------------------------------------------------------------------------------------------------
 */
typedef struct Outcome {
    Problem *problem; /* NULL: passed */
    Sets sets;
    int sets_run;
    int compiled_opening, *compiled; /* kernels; [sets_run] */
    Tolerance tolerance;
    unsigned rules; /* RULE_* */
    cJSON *random;  /* names of outputs compared by type and shape alone */
} Outcome;

static int kernels_compiled(const OnnxfuseSession *session) {
    OnnxfuseStats stats;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    return stats.kernels_compiled;
}

static Problem *run_sets(OnnxfuseSession *session, const char *folder, Outcome *outcome) {
    outcome->compiled_opening = kernels_compiled(session);
    for (int i = 0; i < onnxfuse_session_output_count(session); i++)
        if (onnxfuse_session_output(session, i)->random)
            cJSON_AddItemToArray(outcome->random, cJSON_CreateString(onnxfuse_session_output(session, i)->name));
    outcome->compiled = calloc((size_t)outcome->sets.count, sizeof *outcome->compiled);
    if (!outcome->compiled) return problem_out_of_memory();
    for (int before = outcome->compiled_opening; outcome->sets_run < outcome->sets.count;) {
        TRY(run_set(session, folder, outcome->sets.numbers[outcome->sets_run], outcome->tolerance, &outcome->rules));
        int after = kernels_compiled(session);
        outcome->compiled[outcome->sets_run++] = after - before;
        before = after;
    }
    return NULL;
}

/* The session holds the file's pages, so that the file itself need not stay. */
static Problem *open_compiled(const TestOptions *options, const char *model, OnnxfuseSession **out_session) {
    OnnxfuseOptions how = session_options(&options->common);
    const char *folder = getenv("TMPDIR");
    char *path;
    TRY(path_in(&path, "%s/onnxfuse-XXXXXX", folder && *folder ? folder : "/tmp"));
    int file = mkstemp(path);
    Problem *found = file < 0 ? problem(ONNXFUSE_INVALID, "\"%s\" cannot be written: %s", path, strerror(errno)) : NULL;
    if (file >= 0) close(file);
    if (!found) found = problem_from(onnxfuse_compile(model, &how, path, NULL));
    if (!found) found = session_open(&options->common, path, out_session);
    if (file >= 0) unlink(path);
    free(path);
    return found;
}

static Problem *run_folder(const TestOptions *options, const char *folder, Outcome *outcome) {
    char *model;
    TRY(read_tolerance(folder, &outcome->tolerance));
    TRY(find_sets(folder, &outcome->sets));
    TRY(path_in(&model, "%s/model.onnx", folder));
    OnnxfuseSession *session;
    Problem *found =
        options->compiled ? open_compiled(options, model, &session) : session_open(&options->common, model, &session);
    free(model);
    if (found) return found;
    found = run_sets(session, folder, outcome);
    onnxfuse_session_close(session);
    return found;
}

static void print_outcome(const char *folder, const Outcome *outcome) {
    if (outcome->problem) {
        printf("FAIL  ");
        print_safe(stdout, folder);
        putchar('\n');
        fflush(stdout);
        print_safe(stderr, folder);
        fputs(": ", stderr);
        print_safe(stderr, problem_text(outcome->problem));
        fputc('\n', stderr);
        return;
    }
    fputs("ok    ", stdout);
    print_safe(stdout, folder);
    printf(": %d data set%s; kernels compiled: %d at opening", outcome->sets_run, outcome->sets_run == 1 ? "" : "s",
           outcome->compiled_opening);
    for (int i = 0; i < outcome->sets_run; i++)
        printf(", %d for set %d", outcome->compiled[i], outcome->sets.numbers[i]);
    fputs("; compared: ", stdout);
    print_rules(stdout, outcome->rules, outcome->tolerance);
    const cJSON *name;
    const char *before = "; random, so compared by type and shape: ";
    cJSON_ArrayForEach(name, outcome->random) {
        fputs(before, stdout);
        print_safe(stdout, name->valuestring);
        before = ", ";
    }
    putchar('\n');
}

static cJSON *json_outcome(const char *folder, const Outcome *outcome) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "folder", folder);
    cJSON_AddNumberToObject(object, "code", problem_code(outcome->problem));
    if (outcome->problem) cJSON_AddStringToObject(object, "message", problem_text(outcome->problem));
    cJSON_AddNumberToObject(object, "kernels_compiled_opening", outcome->compiled_opening);
    cJSON *sets = cJSON_AddArrayToObject(object, "sets");
    for (int i = 0; i < outcome->sets_run; i++) {
        cJSON *set = cJSON_CreateObject();
        cJSON_AddNumberToObject(set, "set", outcome->sets.numbers[i]);
        cJSON_AddNumberToObject(set, "kernels_compiled", outcome->compiled[i]);
        cJSON_AddItemToArray(sets, set);
    }
    cJSON_AddItemToObject(object, "random_outputs", cJSON_Duplicate(outcome->random, true));
    return object;
}

static void outcome_free(Outcome *outcome) {
    problem_free(outcome->problem);
    free(outcome->sets.numbers);
    free(outcome->compiled);
    cJSON_Delete(outcome->random);
}

/* --- the command
 * ---------------------------------------------------------------------------------------------------------------------
 */
static Problem *test(void *given) {
    const TestOptions *options = given;
    const TextList *folders = &options->common.arguments;
    cJSON *all = cJSON_CreateArray();
    int failed = 0, highest = 0;
    for (int i = 0; i < folders->count; i++) {
        Outcome outcome = {.random = cJSON_CreateArray()};
        outcome.problem = run_folder(options, folders->items[i], &outcome);
        int code = (int)problem_code(outcome.problem);
        if (code > highest) highest = code;
        failed += code != 0;
        print_outcome(folders->items[i], &outcome);
        if (options->common.json) cJSON_AddItemToArray(all, json_outcome(folders->items[i], &outcome));
        outcome_free(&outcome);
    }
    printf("%d passed, %d failed\n", folders->count - failed, failed);
    if (options->common.json) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddNumberToObject(object, "passed", folders->count - failed);
        cJSON_AddNumberToObject(object, "failed", failed);
        cJSON_AddItemToObject(object, "folders", all);
        print_json(object);
    } else {
        cJSON_Delete(all);
    }
    return highest ? problem_told((OnnxfuseCode)highest) : NULL;
}

const Command test_command = {
    .name = "test",
    .arguments = "FOLDER...",
    .summary = "run recorded inputs, compare with recorded outputs",
    .details =
        "FOLDER is laid out as the ONNX standard's backend tests: model.onnx, test_data_set_N/input_J.pb and "
        "output_J.pb,\n"
        "perhaps data.json with rtol (default 1e-3) and atol (default 1e-7). Integers, bools and strings must be "
        "equal; integer_step\n"
        "in data.json allows integers to be that far apart. An output that depends on a random operator is "
        "compared by type and\n"
        "shape. The rule is printed. The exit code is the highest of all folders.\n",
    .flag_tables = (const Flag *const[]){test_flags, model_flags, common_flags, NULL},
    .options_size = sizeof(TestOptions),
    .least = 1,
    .most = -1,
    .run = test,
};
