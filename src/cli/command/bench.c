/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse bench: how long a model takes to open, to its first result and to run, how much memory it needs, and which
 * steps take the time. */
#include "cli/command/commands.h"
#include "cli/value/inputs.h"
#include "cli/base/session.h"
#include "cli/report/roofline.h"
#include "cli/value/show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RUNS = 1 << 22, LEAST_PROFILED = 5, MOST_PROFILED = 100 };

typedef struct BenchOptions {
    InputOptions base;
    const char *shape_list, *profile;
    double seconds;
    int warmup, top;
    bool measure_machine;
} BenchOptions;

static const Flag bench_flags[] = {
    {"shape-list", "FILE", FLAG_TEXT, offsetof(BenchOptions, shape_list),
     "JSON: [{\"NAME\": [1, 3, 224, 224]}, ...]; each in turn, in one session"},
    {"seconds", "S", FLAG_REAL, offsetof(BenchOptions, seconds), "how long to run (each shape); default 1", 0, 86400},
    {"warmup", "N", FLAG_INTEGER, offsetof(BenchOptions, warmup), "runs before the timed ones; default 2", 0, 1000000},
    {"profile", "FILE", FLAG_TEXT, offsetof(BenchOptions, profile),
     "keep what the runs are that were recorded step by step, as a Chrome trace (JSON)"},
    {"top", "N", FLAG_INTEGER, offsetof(BenchOptions, top), "how many steps to list; default 10", 0, 1000000},
    {"measure-machine", NULL, FLAG_SWITCH, offsetof(BenchOptions, measure_machine),
     "measure the machine's limits anew, which are remembered else"},
    {0},
};

static const char bench_details[] =
    "The numbers of --json: load_ms, opening the session; first_ms, that and the first run; median_ms, min_ms and "
    "p99_ms of\n"
    "the timed runs; peak_rss_mb, the most memory held beyond what the process held before opening, inputs left out;\n"
    "kernels_compiled, kernels_cached, compile_ms; device; steps, the --top ones, with time_ms, bytes, work and "
    "least_us;\n"
    "other_steps_ms; least_ms, what all steps take at least; machine, its limits; assumed_sizes and random_inputs, "
    "which\n"
    "nothing on the command line says; with --shape-list also shapes, one object a shape, which has these two.\n"
    "\n"
    "The table is of runs recorded after the timed ones, with the inputs of the last shape. A step moves at least its\n"
    "inputs, outputs and weights once; \"limit\" is the time that this machine needs for those bytes or for the\n"
    "arithmetic, whichever is more, over the time that the step took. Weights are read from the cache that holds all\n"
    "weights of the model, or from memory, where none does. The limits are measured once, in less than a second, and\n"
    "kept beside the compiled kernels.\n";

/* --- memory
 * ------------------------------------------------------------------------------------------------------------- */
/* A field of /proc/self/status, in MB; 0 where there is none. */
static double status_mb(const char *field) {
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    double kilobytes = 0;
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0) kilobytes = strtod(line + strlen(field) + 1, NULL);
    if (file) fclose(file);
    return kilobytes / 1024;
}

/* Forgets the peak so far; what is held now, in MB. */
static double reset_peak(void) {
    FILE *file = fopen("/proc/self/clear_refs", "we");
    if (file) {
        fputs("5", file);
        fclose(file);
    }
    return status_mb("VmRSS");
}

/* --- runs
 * -------------------------------------------------------------------------------------------------------------- */
typedef struct Times {
    double *ms;
    int count, capacity;
} Times;

typedef struct Summary {
    double median, least, p99;
} Summary;

static Problem *times_add(Times *times, double ms) {
    if (times->count == times->capacity) {
        int capacity = times->capacity ? 2 * times->capacity : 1024;
        double *more = realloc(times->ms, sizeof *more * (size_t)capacity);
        if (!more) return problem_out_of_memory();
        times->ms = more;
        times->capacity = capacity;
    }
    times->ms[times->count++] = ms;
    return NULL;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static Summary summarize(const Times *times) {
    int n = times->count;
    qsort(times->ms, (size_t)n, sizeof *times->ms, compare_doubles);
    double middle = n % 2 ? times->ms[n / 2] : (times->ms[n / 2 - 1] + times->ms[n / 2]) / 2;
    return (Summary){middle, times->ms[0], times->ms[(int)ceil(0.99 * n) - 1]};
}

typedef struct Bench {
    const BenchOptions *options;
    const InputRequest *request;
    OnnxfuseSession *session;
    Inputs inputs;
    OnnxfuseValue *
        *outputs; /* of the last run; tensors are written in place by the next one, as a server would have it */
    int output_count;
} Bench;

/* Whether a run can write into it in place. */
static bool is_reusable(const OnnxfuseValue *value) {
    return onnxfuse_value_kind(value) == ONNXFUSE_TENSOR && onnxfuse_value_dtype(value) != ONNXFUSE_STRING;
}

static void drop_outputs(Bench *b, bool all) {
    for (int i = 0; i < b->output_count; i++) {
        if (!b->outputs[i] || (!all && is_reusable(b->outputs[i]))) continue;
        onnxfuse_value_free(b->outputs[i]);
        b->outputs[i] = NULL;
    }
}

/* One run; *out_ms its time. Outputs whose size differs from run to run get new memory each time. */
static Problem *one_run(Bench *b, double *out_ms) {
    drop_outputs(b, false);
    double begin = now_ms();
    OnnxfuseStatus status = onnxfuse_session_run(b->session, b->inputs.values, b->outputs);
    if (status && onnxfuse_status_code(status) == ONNXFUSE_INVALID) {
        onnxfuse_status_free(status);
        drop_outputs(b, true);
        begin = now_ms();
        status = onnxfuse_session_run(b->session, b->inputs.values, b->outputs);
    }
    *out_ms = now_ms() - begin;
    return inputs_explain(&b->inputs, problem_from(status));
}

/* The first run, the warm-up and the timed runs of the inputs as they are. */
static Problem *run_shape(Bench *b, double *out_first, Times *times) {
    double ms;
    drop_outputs(b, true);
    TRY(one_run(b, out_first));
    for (int i = 0; i < b->options->warmup; i++) TRY(one_run(b, &ms));
    double end = now_ms() + b->options->seconds * 1e3;
    do {
        TRY(one_run(b, &ms));
        TRY(times_add(times, ms));
    } while (now_ms() < end && times->count < MOST_RUNS);
    return NULL;
}

static int compiled(const OnnxfuseSession *session) {
    OnnxfuseStats stats;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    return stats.kernels_compiled;
}

/* --- shapes
 * --------------------------------------------------------------------------------------------------------------- */
static Problem *read_shape(const char *path, const cJSON *item, Shapes *shapes) {
    Shape shape = {item->string, 0, {0}};
    const cJSON *dim;
    if (!cJSON_IsArray(item)) return problem(ONNXFUSE_INVALID, "\"%s\": a shape is a list of numbers", path);
    cJSON_ArrayForEach(dim, item) {
        if (shape.rank == ONNXFUSE_MAX_RANK || !cJSON_IsNumber(dim) || !(dim->valuedouble >= 0) ||
            dim->valuedouble != floor(dim->valuedouble) || dim->valuedouble > 1e15)
            return problem(ONNXFUSE_INVALID, "\"%s\": a shape is a list of at most %d whole numbers", path,
                           ONNXFUSE_MAX_RANK);
        shape.dims[shape.rank++] = (int64_t)dim->valuedouble;
    }
    return shapes_add(shapes, &shape);
}

static Problem *read_shape_list(const char *path, cJSON **out_list) {
    Bytes text;
    TRY(file_read(path, &text));
    cJSON *list = cJSON_ParseWithOpts((const char *)text.data, NULL, 1);
    free(text.data);
    bool good = cJSON_IsArray(list) && cJSON_GetArraySize(list) > 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list) good = good && cJSON_IsObject(item);
    if (good) {
        *out_list = list;
        return NULL;
    }
    cJSON_Delete(list);
    return problem(ONNXFUSE_INVALID, "\"%s\" is no JSON list of objects {\"NAME\": [dims]}", path);
}

/* The shapes of the command line and those of one object of the list, which win. */
static Problem *collect_shapes(const Bench *b, const cJSON *object, Shapes *out_shapes) {
    const Shapes *given = &b->request->shapes;
    const cJSON *item;
    Problem *found = NULL;
    *out_shapes = (Shapes){0};
    cJSON_ArrayForEach(item, object) if (!found) found = read_shape(b->options->shape_list, item, out_shapes);
    for (int i = 0; i < given->count && !found; i++)
        if (!cJSON_GetObjectItemCaseSensitive(object, given->items[i].name))
            found = shapes_add(out_shapes, &given->items[i]);
    if (found) shapes_free(out_shapes);
    return found;
}

static Problem *load_inputs(Bench *b, const cJSON *object) {
    InputRequest request = *b->request;
    TRY(collect_shapes(b, object, &request.shapes));
    inputs_free(&b->inputs);
    Problem *found = inputs_make(b->session, &request, NULL, &b->inputs);
    shapes_free(&request.shapes);
    return found;
}

/* --- results
 * ---------------------------------------------------------------------------------------------------------------- */
typedef struct ShapeResult {
    double first, median;
    int compiled;
    cJSON *inputs; /* what inputs_json says */
} ShapeResult;

typedef struct Result {
    double load, first, peak_mb;
    Times all;
    ShapeResult *shapes;
    int shape_count;
} Result;

/* The most memory held beyond `base`, with the memory of the inputs left out: it is the caller's. */
typedef struct Peak {
    double base, most, inputs;
} Peak;

static void peak_note(Peak *peak) { peak->most = fmax(peak->most, status_mb("VmHWM") - peak->base - peak->inputs); }

static Problem *bench_shape(Bench *b, const cJSON *object, Peak *peak, Result *result) {
    peak_note(peak);
    double before = status_mb("VmRSS") - peak->inputs;
    TRY(load_inputs(b, object));
    peak->inputs = fmax(0, reset_peak() - before);
    Times times = {0};
    double first = 0;
    int compiled_before = compiled(b->session);
    Problem *found = run_shape(b, &first, &times);
    for (int i = 0; i < times.count && !found; i++) found = times_add(&result->all, times.ms[i]);
    if (result->first < 0) result->first = result->load + first;
    if (!found) {
        ShapeResult *shape = &result->shapes[result->shape_count++];
        *shape = (ShapeResult){first, summarize(&times).median, compiled(b->session) - compiled_before,
                               cJSON_CreateObject()};
        inputs_json(&b->inputs, shape->inputs);
    }
    free(times.ms);
    peak_note(peak);
    return found;
}

static Problem *bench_all(Bench *b, const cJSON *list, Peak *peak, Result *result) {
    if (!list) return bench_shape(b, NULL, peak, result);
    const cJSON *object;
    cJSON_ArrayForEach(object, list) TRY(bench_shape(b, object, peak, result));
    return NULL;
}

/* A third of the time of the timed runs, so that short steps get a median worth its name. */
static Problem *profile_runs(Bench *b) {
    double ms, end = now_ms() + b->options->seconds * 1e3 / 3;
    onnxfuse_session_profile(b->session, true);
    for (int i = 0; i < LEAST_PROFILED || (i < MOST_PROFILED && now_ms() < end); i++) TRY(one_run(b, &ms));
    onnxfuse_session_profile(b->session, false);
    return NULL;
}

static Problem *write_profile(Bench *b) {
    char *json;
    TRY(problem_from(onnxfuse_session_profile_json(b->session, &json)));
    Problem *found = file_write(b->options->profile, json, strlen(json));
    onnxfuse_free(json);
    return found;
}

static void move_items(cJSON *from, cJSON *to) {
    while (from && from->child) {
        cJSON *item = cJSON_DetachItemViaPointer(from, from->child);
        cJSON_AddItemToObject(to, item->string, item);
    }
}

static cJSON *json_result(const Result *result, const Summary *summary, const OnnxfuseStats *stats, cJSON *roofline,
                          const BenchOptions *options) {
    bool shapes = options->shape_list != NULL;
    cJSON *object = cJSON_CreateObject();
    json_add_measure(object, "load_ms", result->load);
    json_add_measure(object, "first_ms", result->first);
    json_add_measure(object, "median_ms", summary->median);
    json_add_measure(object, "min_ms", summary->least);
    json_add_measure(object, "p99_ms", summary->p99);
    cJSON_AddNumberToObject(object, "runs", result->all.count);
    json_add_measure(object, "peak_rss_mb", result->peak_mb);
    cJSON_AddNumberToObject(object, "kernels_compiled", stats->kernels_compiled);
    cJSON_AddNumberToObject(object, "kernels_cached", stats->kernels_cached);
    json_add_measure(object, "compile_ms", stats->compile_ms);
    cJSON_AddStringToObject(object, "device", stats->device);
    roofline_add_to(object, roofline, options->top);
    cJSON *list = shapes ? cJSON_AddArrayToObject(object, "shapes") : NULL;
    for (int i = 0; i < result->shape_count && shapes; i++) {
        cJSON *shape = cJSON_CreateObject();
        json_add_measure(shape, "first_ms", result->shapes[i].first);
        json_add_measure(shape, "median_ms", result->shapes[i].median);
        cJSON_AddNumberToObject(shape, "kernels_compiled", result->shapes[i].compiled);
        move_items(result->shapes[i].inputs, shape);
        cJSON_AddItemToArray(list, shape);
    }
    if (!shapes) move_items(result->shapes[0].inputs, object);
    return object;
}

static void print_result(const Result *result, const Summary *summary, const OnnxfuseStats *stats) {
    printf("opening        %10.3f ms   (%d kernels compiled in %.1f ms, %d from the cache)\n", result->load,
           stats->kernels_compiled, stats->compile_ms, stats->kernels_cached);
    printf("first result   %10.3f ms   (opening included)\n", result->first);
    printf("run            %10.3f ms   median of %d; least %.3f, 99 %% below %.3f\n", summary->median,
           result->all.count, summary->least, summary->p99);
    printf("memory         %10.1f MB   at most, inputs left out\n", result->peak_mb);
    printf("device         %10s\n", stats->device);
    for (int i = 0; i < result->shape_count && result->shape_count > 1; i++)
        printf("shape %-3d      %10.3f ms   median; first %.3f ms, %d kernels compiled\n", i + 1,
               result->shapes[i].median, result->shapes[i].first, result->shapes[i].compiled);
}

static void report(const Bench *b, const Result *result, cJSON *roofline) {
    Summary summary = summarize(&result->all);
    OnnxfuseStats stats;
    onnxfuse_session_stats(b->session, &stats, sizeof stats);
    if (b->options->base.common.json) {
        print_json(json_result(result, &summary, &stats, roofline, b->options));
        return;
    }
    print_result(result, &summary, &stats);
    roofline_print_machine(stdout, roofline);
    if (b->options->top) roofline_print_times(stdout, roofline, b->options->top);
}

/* --- the command
 * -------------------------------------------------------------------------------------------------------------- */
static Problem *bench_session(const BenchOptions *options, const InputRequest *request, const cJSON *list,
                              OnnxfuseSession *session, Peak *peak, Result *result) {
    Bench b = {.options = options,
               .request = request,
               .session = session,
               .output_count = onnxfuse_session_output_count(session)};
    cJSON *roofline = NULL;
    b.outputs = calloc((size_t)b.output_count + 1, sizeof *b.outputs);
    if (!b.outputs) return problem_out_of_memory();
    Problem *found = bench_all(&b, list, peak, result);
    result->peak_mb = peak->most;
    if (!found) found = profile_runs(&b);
    if (!found && options->profile) found = write_profile(&b);
    if (!found) found = roofline_take(session, NULL, options->measure_machine, &roofline);
    if (!found) report(&b, result, roofline);
    cJSON_Delete(roofline);
    drop_outputs(&b, true);
    free(b.outputs);
    inputs_free(&b.inputs);
    return found;
}

static Problem *bench_model(const BenchOptions *options, const InputRequest *request, const cJSON *list,
                            Result *result) {
    Peak peak = {.base = reset_peak()};
    double begin = now_ms();
    OnnxfuseSession *session;
    TRY(session_open(&options->base.common, options->base.common.arguments.items[0], &session));
    result->load = now_ms() - begin;
    Problem *found = bench_session(options, request, list, session, &peak, result);
    onnxfuse_session_close(session);
    return found;
}

static Problem *bench(void *given) {
    const BenchOptions *options = given;
    InputRequest request;
    cJSON *list = NULL;
    if (options->profile)
        TRY(file_may_stand_beside(options->base.common.arguments.items[0], "profile", options->profile));
    TRY(request_read(&options->base, &request));
    Problem *found = options->shape_list ? read_shape_list(options->shape_list, &list) : NULL;
    Result result = {.first = -1};
    result.shapes = calloc(list ? (size_t)cJSON_GetArraySize(list) : 1, sizeof *result.shapes);
    if (!found) found = result.shapes ? bench_model(options, &request, list, &result) : problem_out_of_memory();
    for (int i = 0; i < result.shape_count; i++) cJSON_Delete(result.shapes[i].inputs);
    free(result.all.ms);
    free(result.shapes);
    cJSON_Delete(list);
    request_free(&request);
    return found;
}

static const BenchOptions bench_defaults = {.seconds = 1, .warmup = 2, .top = 10};

const Command bench_command = {
    .name = "bench",
    .arguments = "MODEL",
    .summary = "measure time and memory",
    .details = bench_details,
    .more = print_inputs_help,
    .flag_tables = (const Flag *const[]){input_flags, bench_flags, model_flags, common_flags, NULL},
    .options_size = sizeof(BenchOptions),
    .defaults = &bench_defaults,
    .least = 1,
    .most = 1,
    .run = bench,
};
