/* SPDX-License-Identifier: Apache-2.0 */
/* What a model becomes at each stage, as text. */
#include "runtime/api/session.h"
#include "runtime/api/state.h"

#include <stdlib.h>

#include "codegen/gpu/gpu.h"
#include "importer/importer.h"
#include "passes/passes.h"
#include "runtime/compiled/compiled.h"
#include "runtime/inspect/report.h"

enum { MOST_STAGES = 32 };

const char *const *onnxfuse_inspect_stages(void) {
    static const char *stages[MOST_STAGES];
    int count = 0;
    stages[count++] = "import";
    for (const Pass *pass = pipeline(); pass->name; pass++) stages[count++] = pass->name;
    stages[count++] = "plan";
    stages[count++] = "kernels";
    stages[count++] = "llvm";
    stages[count++] = "assembly";
    stages[count++] = "source";
    stages[count++] = "policy";
    stages[count++] = "summary";
    stages[count] = NULL;
    return stages;
}

typedef struct Inspection {
    const char *stage;
    bool dot;
    Text *text;
    bool done;
    int nodes, primitives;
} Inspection;

static void after_pass(void *user, const char *pass, const Graph *graph) {
    Inspection *in = user;
    if (strcmp(pass, "import") == 0) in->nodes = count_nodes(graph);
    if (strcmp(pass, "merge_common") == 0) in->primitives = count_nodes(graph);
    if (strcmp(pass, in->stage) != 0) return;
    if (in->dot)
        graph_print_dot(in->text, graph);
    else
        graph_print(in->text, graph);
    in->done = true;
}

/* --- kernels
 * -------------------------------------------------------------------------------------------------------------- */
typedef struct Kernels {
    const Policy *policy;
    const char *stage;
    Text *text;
    Map seen;
    int count;
} Kernels;

/* The kernel IR of all kernels; machine code of those on the CPU; text of those on a GPU. */
static bool is_printed(const Kernels *k, const Step *step) {
    if (strcmp(k->stage, "kernels") == 0) return true;
    return (strcmp(k->stage, "source") == 0) == (step->place == PLACE_DEVICE);
}

static Status print_kernel(Kernels *k, const Step *step) {
    if (strcmp(k->stage, "kernels") == 0) {
        kernel_print(k->text, step->region.kernel);
    } else if (step->place == PLACE_DEVICE) {
        GpuDialect dialect = step->on->table->kind == DEVICE_CUDA ? GPU_CUDA : GPU_OPENCL;
        gpu_render(k->text, step->region.kernel, dialect, "kernel");
    } else {
        TRY(kernel_listing(step->region.kernel, k->policy,
                           strcmp(k->stage, "llvm") == 0 ? LISTING_LLVM : LISTING_ASSEMBLY, k->text));
    }
    return NULL;
}

static Status print_kernels(Kernels *k, const Plan *plan) {
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        for (int n = 0; n < step->nested_count; n++) TRY(print_kernels(k, step->nested[n]));
        if (!step->region.kernel || map_get_id(&k->seen, MAP_POINTER_KEY(step->region.kernel))) continue;
        if (!is_printed(k, step)) continue;
        map_set_id(&k->seen, MAP_POINTER_KEY(step->region.kernel), (void *)step);
        text_add(k->text, "# kernel %d, first for", k->count++);
        for (int i = 0; i < step->node->origin.count && i < 8; i++)
            text_add(k->text, " %s", step->node->origin.names[i]);
        text_add(k->text, "%s\n", step->node->origin.count > 8 ? " ..." : "");
        TRY(print_kernel(k, step));
        text_add(k->text, "\n");
    }
    return NULL;
}

static void print_summary(Text *text, const Inspection *in, const Plan *plan, const KernelCacheStats *stats) {
    PlanCounts counts;
    plan_count(plan, &counts);
    text_add(
        text,
        "%d nodes became %d primitives, anchors and host steps, these %d steps: %d regions, %d anchors, %d others\n",
        in->nodes, in->primitives, counts.steps - counts.copies, counts.regions, counts.anchors, counts.host_steps);
    text_add(text, "%d distinct kernels (%d compiled now, %d from the cache), %.1f MB of weights\n", counts.kernels,
             stats->compiled, stats->from_disk + stats->from_memory, (double)counts.weight_bytes / 1e6);
    if (plan->device != plan->host)
        text_add(text, "%d steps on %s, %d on the CPU, %d copies between them\n", counts.on_device,
                 plan->device->table->name, counts.steps - counts.copies - counts.on_device, counts.copies);
    states_describe(text, plan);
    plan_print_recorded(text, plan);
    plan_print_saved(text, plan);
    plan_print_orders(text, plan);
}

static Status print_plan(const Plan *plan, const KernelCacheStats *stats, Inspection *in) {
    if (strcmp(in->stage, "plan") == 0) {
        plan_print(in->text, plan, 0);
    } else if (strcmp(in->stage, "policy") == 0) {
        TRY(inspect_policy(in->text, plan->device->policy, plan));
        text_add(in->text, "\n# summary\n");
        print_summary(in->text, in, plan, stats);
    } else if (strcmp(in->stage, "summary") == 0) {
        print_summary(in->text, in, plan, stats);
    } else {
        Kernels kernels = {plan->host->policy, in->stage, in->text, map_make(in->text->arena), 0};
        TRY(print_kernels(&kernels, plan));
        if (!kernels.count)
            text_add(in->text,
                     "# none: \"source\" is of kernels on a GPU, \"llvm\" and \"assembly\" of those on the CPU\n");
    }
    return NULL;
}

/* What the text's arena frees: running out of memory for the text unwinds past all that is below. */
typedef struct Held {
    Graph *graph;
    Plan *plan;
    OnnxfuseSession *session;
} Held;

static void let_go(void *what) {
    const Held *held = what;
    onnxfuse_session_close(held->session);
    plan_destroy(held->plan);
    graph_destroy(held->graph);
}

static Held *held_by(Arena *arena) {
    Held *held = ARENA_NEW(arena, Held);
    *held = (Held){0};
    arena_defer(arena, let_go, held);
    return held;
}

static Status inspect_plan(Held *held, const Devices *devices, Inspection *in) {
    KernelCacheStats stats = {0};
    TRY(plan_create(held->graph, devices->device, devices->host, &stats, &held->plan));
    return print_plan(held->plan, &stats, in);
}

/* What a compiled model still knows. */
static Status inspect_compiled(Arena *arena, const char *path, const OnnxfuseOptions *options, Inspection *in) {
    static const char *const kept[] = {"partition", "plan", "kernels", "llvm", "assembly", "source", "summary"};
    bool known = false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) known |= strcmp(in->stage, kept[i]) == 0;
    if (!known)
        return status_error(STATUS_USAGE,
                            "a compiled model has no stage \"%s\": partition, plan, kernels, llvm, assembly, source "
                            "and summary are possible",
                            in->stage);
    Held *held = held_by(arena);
    TRY(onnxfuse_session_open(path, options, &held->session));
    const OnnxfuseSession *session = held->session;
    in->nodes = session->nodes;
    in->primitives = session->primitives;
    if (strcmp(in->stage, "partition")) return print_plan(session->plan, &session->kernels, in);
    after_pass(in, in->stage, session->graph);
    return NULL;
}

static Status inspect_graph(const char *path, const Devices *devices, Inspection *in) {
    Held *held = held_by(in->text->arena);
    TRY(import_file(path, NULL, &held->graph));
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(held->graph->arena, &guard);
    Status status = pipeline_run(held->graph, devices->device->policy, after_pass, in);
    if (in->done) status_free(status), status = NULL; /* a later pass may fail: the stage asked for is there */
    return !status && !in->done ? inspect_plan(held, devices, in) : status;
}

static bool is_stage(const char *name) {
    for (const char *const *s = onnxfuse_inspect_stages(); *s; s++)
        if (strcmp(*s, name) == 0) return true;
    return false;
}

static void close_devices(void *devices) { devices_close(devices); }

typedef struct Asked {
    const char *path;
    const OnnxfuseOptions *options;
    const char *stage, *format;
    char **out_text;
} Asked;

static Status inspect(Arena *arena, void *context) {
    const Asked *asked = context;
    if (!asked->stage || !asked->format) return status_error(STATUS_USAGE, "a stage and a format are needed");
    bool dot = strcmp(asked->format, "dot") == 0;
    if (!is_stage(asked->stage)) return status_error(STATUS_USAGE, "there is no stage \"%s\"", asked->stage);
    if (!dot && strcmp(asked->format, "text") != 0)
        return status_error(STATUS_USAGE, "format \"%s\": text and dot are possible", asked->format);
    Policy policy;
    Text text = text_make(arena);
    Inspection in = {.stage = asked->stage, .dot = dot, .text = &text};
    if (compiled_is_file(asked->path)) {
        TRY(inspect_compiled(arena, asked->path, asked->options, &in));
    } else {
        TRY(session_policy(asked->options, asked->path, arena, &policy));
        Devices *devices = ARENA_NEW(arena, Devices);
        arena_defer(arena, close_devices, devices);
        TRY(devices_open(&policy, arena, devices));
        TRY(inspect_graph(asked->path, devices, &in));
    }
    if (dot && !in.done) return status_error(STATUS_USAGE, "stage \"%s\" is no graph", asked->stage);
    *asked->out_text = strdup(text.data);
    return *asked->out_text ? NULL : status_out_of_memory();
}

OnnxfuseStatus onnxfuse_inspect(const char *path, const OnnxfuseOptions *options, const char *stage, const char *format,
                                char **out_text) {
    return call_with_arena(inspect, &(Asked){path, options, stage, format, out_text});
}

static Status list_devices(Arena *arena, void *out) {
    char **out_text = out;
    Text text = text_make(arena);
    Policy policy = policy_default();
    for (const DeviceTable *const *t = device_tables(); *t; t++) {
        policy.device = (*t)->kind;
        text_add(&text, "%-8s", (*t)->name);
        Status status = device_claim(*t);
        if (!status) status = (*t)->describe(&policy, &text);
        if (status) text_add(&text, "not available: %s", status_message(status));
        status_free(status);
        text_add(&text, "\n");
    }
    *out_text = strdup(text.data);
    return *out_text ? NULL : status_out_of_memory();
}

OnnxfuseStatus onnxfuse_devices(char **out_text) { return call_with_arena(list_devices, out_text); }
