/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as JSON, with the sizes of its latest run and the times of the runs that were profiled:
 *
 *   {"arena": {"host","device"}, "steps": [...], "buffers": [...], "kernels": [...] (of the outermost plan, for all)}
 *
 * What is not known (no run yet, sizes that a step of the run finds out) is null. docs/c-api.md lists the members. */
#include "runtime/inspect/report.h"
#include "runtime/plan/cost.h"
#include "runtime/plan/planner.h"

#include "autodiff/autodiff.h"
#include "codegen/gpu/gpu.h"

typedef struct Report {
    Text *text;
    Map numbers; /* kernel -> 1 + number */
    int kernels;
    VEC(const Step *) first; /* of each kernel */
    StepTime *times;         /* by address */
    int time_count;
} Report;

static void add_string(Report *r, const char *string) { text_add_json(r->text, string, strlen(string)); }

static void add_key(Report *r, const char *key, const char *string) {
    text_add(r->text, ",\"%s\":", key);
    add_string(r, string);
}

/* --- kernels: numbered as `inspect` prints them, those of nested plans before the step's own ---------------------- */
static void number_kernels(Report *r, const Plan *plan) {
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        for (int n = 0; n < step->nested_count; n++) number_kernels(r, step->nested[n]);
        if (!step->region.kernel || map_get_id(&r->numbers, MAP_POINTER_KEY(step->region.kernel))) continue;
        map_set_id(&r->numbers, MAP_POINTER_KEY(step->region.kernel), (void *)(intptr_t)++r->kernels);
        VEC_PUSH(r->text->arena, r->first, step);
    }
}

static int kernel_number(const Report *r, const Step *step) {
    return (int)(intptr_t)map_get_id(&r->numbers, MAP_POINTER_KEY(step->region.kernel)) - 1;
}

static void add_kernels(Report *r) {
    text_add(r->text, ",\"kernels\":[");
    for (int k = 0; k < r->kernels; k++) {
        const Step *step = r->first.items[k];
        text_add(r->text, "%s\n{\"kernel\":%d,\"text\":", k ? "," : "", k);
        add_string(r, kernel_text(r->text->arena, step->region.kernel));
        if (step->place == PLACE_DEVICE) {
            Text source = text_make(r->text->arena);
            gpu_render(&source, step->region.kernel, step->on->table->kind == DEVICE_CUDA ? GPU_CUDA : GPU_OPENCL,
                       "kernel");
            add_key(r, "source", source.data);
        }
        text_add(r->text, "}");
    }
    text_add(r->text, "]");
}

/* --- steps --- */
static void add_slots(Report *r, const char *key, const int *slots, int count) {
    text_add(r->text, ",\"%s\":[", key);
    for (int i = 0; i < count; i++) text_add(r->text, i ? ",%d" : "%d", slots[i]);
    text_add(r->text, "]");
}

static void add_nodes(Report *r, const Origin *origin) {
    text_add(r->text, ",\"nodes\":[");
    for (int i = 0; i < origin->count; i++) {
        if (i) text_add(r->text, ",");
        add_string(r, origin->names[i]);
    }
    text_add(r->text, "]");
}

static int body_number(const Graph *body, const Node *wanted) {
    int number = 0;
    FOR_EACH_NODE(node, body) {
        if (node == wanted) return number;
        number++;
    }
    return -1;
}

/* A region's primitives, with which of them each one reads. */
static void add_body(Report *r, const Graph *body) {
    text_add(r->text, ",\"body\":[");
    FOR_EACH_NODE(node, body) {
        text_add(r->text, "%s{\"op\":", node == body->first ? "" : ",");
        add_string(r, node->op);
        add_key(r, "node", node_origin_name(node));
        text_add(r->text, ",\"inputs\":[");
        for (int i = 0, count = 0; i < node->input_count; i++) {
            const Node *from = node->inputs[i] ? node->inputs[i]->producer : NULL;
            if (from) text_add(r->text, count++ ? ",%d" : "%d", body_number(body, from));
        }
        text_add(r->text, "]}");
    }
    text_add(r->text, "]");
}

static void add_time(Report *r, const StepTime *t) {
    if (!t) return;
    text_add(r->text, ",\"time\":{\"count\":%d,\"min_us\":%.3f,\"median_us\":%.3f,\"total_us\":%.3f}", t->count,
             t->least, t->median, t->total);
}

static void add_plan(Report *r, const Plan *plan);

/* Whether it computes gradients, perhaps besides values of the model. */
static bool is_backward(const Step *step) {
    if (step->node->backward || !node_has_body(step->node)) return step->node->backward;
    for (const Node *node = step->node->subgraphs[0]->first; node; node = node->next)
        if (node->backward) return true;
    return false;
}

/* Whether one of its results is a value of the model rather than a gradient or what is made for one. */
static bool gives_forward_values(const Step *step) {
    for (int i = 0; i < step->node->output_count; i++)
        if (step->node->outputs[i] && is_of_forward_pass(step->node->outputs[i])) return true;
    return false;
}

static void add_step(Report *r, const Plan *plan, const Step *step, const int64_t *symbols) {
    bool anchor = step->kind == STEP_ANCHOR;
    text_add(r->text, "%s\n{\"step\":%d", step == plan->steps ? "" : ",", (int)(step - plan->steps));
    add_key(r, "kind", step_kind_name(step->kind));
    add_key(r, "name", step_name(plan, step));
    add_key(r, "device", step->on->table->name);
    if (anchor && step->anchor) {
        add_key(r, "how", step->on->table->anchor_how(step->anchor));
        text_add(r->text, ",\"weight_bytes\":%zu", step->on->table->anchor_bytes(step->anchor));
    }
    if (step->within >= 0) text_add(r->text, ",\"within\":%d", step->within);
    if (is_backward(step)) text_add(r->text, ",\"backward\":true");
    if (is_backward(step) && gives_forward_values(step)) text_add(r->text, ",\"forward\":true");
    add_nodes(r, &step->node->origin);
    add_slots(r, "inputs", step->inputs, step->input_count);
    add_slots(r, "outputs", step->outputs, step->output_count);
    if (step->region.kernel) text_add(r->text, ",\"kernel\":%d", kernel_number(r, step));
    if (node_has_body(step->node)) add_body(r, step->node->subgraphs[0]);
    const StepTime *time = profile_time_of(r->times, r->time_count, step);
    Cost cost = {0};
    if (time)
        cost = time->cost;
    else if (symbols)
        step_cost(plan, step, symbols, &cost);
    if (symbols)
        text_add(r->text, ",\"bytes\":%lld,\"work\":%lld", (long long)cost_bytes(&cost),
                 (long long)cost_all_work(&cost));
    add_time(r, time);
    if (step->nested_count) text_add(r->text, ",\"plans\":[");
    for (int n = 0; n < step->nested_count; n++) {
        if (n) text_add(r->text, ",");
        add_plan(r, step->nested[n]);
    }
    text_add(r->text, step->nested_count ? "]}" : "}");
}

/* --- buffers --- */
static void add_number(Report *r, const char *key, int64_t number) {
    if (number == UNBOUND_DIM)
        text_add(r->text, ",\"%s\":null", key);
    else
        text_add(r->text, ",\"%s\":%lld", key, (long long)number);
}

static void add_shape(Report *r, const Slot *slot, const int64_t *values) {
    text_add(r->text, ",\"shape\":[");
    for (int d = 0; d < slot->value->rank; d++) {
        int64_t size = values ? values[slot->dims_expr + d] : UNBOUND_DIM;
        if (d) text_add(r->text, ",");
        if (size != UNBOUND_DIM) {
            text_add(r->text, "%lld", (long long)size);
            continue;
        }
        Text symbol = text_make(r->text->arena);
        dim_print(&symbol, slot->value->dims[d]);
        add_string(r, symbol.data);
    }
    text_add(r->text, "]");
}

static void add_model_values(Report *r, const Value *value) {
    if (!value->stands_for) return;
    text_add(r->text, ",\"values\":[");
    for (const ModelValue *m = value->stands_for; m; m = m->next) {
        if (m != value->stands_for) text_add(r->text, ",");
        add_string(r, m->name);
    }
    text_add(r->text, "]");
}

/* What the latest run came to. */
typedef struct Latest {
    bool known;
    int64_t *symbols, *values;
    size_t *offsets, arena_bytes[PLACES];
} Latest;

static void add_buffer(Report *r, const Plan *plan, int number, const Latest *latest) {
    static const char *const storages[] = {"unused", "input", "constant", "planned", "dynamic", "alias", "item"};
    const Slot *slot = &plan->slots[number], *root = &plan->slots[slot->root];
    const int64_t *values = latest->known ? latest->values : NULL;
    text_add(r->text, "%s\n{\"buffer\":%d", number ? "," : "", number);
    add_key(r, "name", slot->value->name);
    add_model_values(r, slot->value);
    add_key(r, "storage", slot->output >= 0 ? "output" : storages[slot->storage]);
    add_key(r, "place", slot->place == PLACE_HOST ? "host" : "device");
    if (slot->dims_expr >= 0) {
        add_key(r, "dtype", dtype_onnx_name(slot->value->dtype));
        add_shape(r, slot, values);
        add_number(r, "bytes", values ? values[slot->bytes_expr] : UNBOUND_DIM);
    }
    if (slot->root != number) text_add(r->text, ",\"root\":%d", slot->root);
    if (slot->inplace >= 0) text_add(r->text, ",\"inplace\":%d", slot->inplace);
    if (slot->over >= 0) text_add(r->text, ",\"over\":%d", slot->over);
    if (latest->known && slot->storage == STORE_PLANNED && slot->output < 0 && slot->root == number)
        text_add(r->text, ",\"offset\":%zu", latest->offsets[number]);
    if (root->last >= 0 && root->first <= root->last)
        text_add(r->text, ",\"first\":%d,\"last\":%d", root->first, root->last);
    text_add(r->text, "}");
}

/* --- a plan --- */
static void add_plan(Report *r, const Plan *plan) {
    Arena *arena = r->text->arena;
    Latest latest = {.symbols = ARENA_ARRAY(arena, int64_t, plan->symbol_count + 1),
                     .values = ARENA_ARRAY(arena, int64_t, plan->exprs.count + 1),
                     .offsets = ARENA_ARRAY(arena, size_t, plan->slot_count + 1)};
    latest.known = sizes_latest(plan, latest.symbols, latest.values, latest.offsets, latest.arena_bytes);
    text_add(r->text, "{\"name\":");
    add_string(r, plan->graph->name ? plan->graph->name : "");
    if (latest.known)
        text_add(r->text, ",\"arena\":{\"host\":%zu,\"device\":%zu}", latest.arena_bytes[PLACE_HOST],
                 latest.arena_bytes[PLACE_DEVICE]);
    if (plan->recorded_end) text_add(r->text, ",\"replayed\":[%d,%d]", plan->recorded_first, plan->recorded_end - 1);
    if (plan->not_recorded) add_key(r, "not_replayed", plan->not_recorded);
    text_add(r->text, ",\"steps\":[");
    for (int s = 0; s < plan->step_count; s++) add_step(r, plan, &plan->steps[s], latest.known ? latest.symbols : NULL);
    text_add(r->text, "],\"buffers\":[");
    for (int i = 0; i < plan->slot_count; i++) add_buffer(r, plan, i, &latest);
    text_add(r->text, "]");
    add_slots(r, "inputs", plan->inputs, plan->graph->inputs.count);
    add_slots(r, "outputs", plan->outputs, plan->graph->outputs.count);
    text_add(r->text, "}");
}

void plan_report(Text *text, const Plan *plan, Profile *profile) {
    Report r = {.text = text, .numbers = map_make(text->arena)};
    number_kernels(&r, plan);
    if (profile) r.time_count = profile_times(profile, text->arena, &r.times);
    text_add(text, "\"plan\":");
    add_plan(&r, plan);
    add_kernels(&r);
}
