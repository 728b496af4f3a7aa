/* SPDX-License-Identifier: Apache-2.0 */
/* A row for each step, those of nested plans before the step that they belong to; then the sums.
 *
 * Of profiled runs times are those of a run: the median of a step's times, times how often it runs in each. The time of
 * a step with nested plans is what theirs leave. */
#include "runtime/inspect/roofline.h"

#include "runtime/plan/cost.h"
#include "runtime/plan/split.h"

typedef struct Row {
    double time; /* microseconds; of a profile */
    int count;   /* how often the step ran */
    bool known;  /* the cost is */
    Cost cost;
    LeastTime least; /* seconds, on all threads */
    bool split;      /* the next is known */
    PoolCount shares;
    double slower; /* how many times `least` it takes where threads wait for the one with most to do */
} Row;

typedef struct Walk {
    const Roofline *of;
    Text *text;
    StepTime *times; /* by address */
    int time_count, runs, threads, rows;
    double scale; /* threads that are counted for, over those that were measured */
    double run;   /* bytes: all weights, and what the step with most moves besides */
    double timed; /* microseconds of all rows so far */
    double
        memory; /* seconds: the sums of `least`, of its part that is memory's, and of what it takes when threads wait */
    double least, waiting;
    Cost total;
    int unknown; /* steps whose cost or sizes are not known */
} Walk;

/* --- a row's numbers --- */
static void estimate(const Walk *w, const Step *step, Row *row) {
    double threads = w->threads;
    row->slower = row->split && row->shares.work > 0 ? row->shares.longest * threads / row->shares.work : threads;
    if (step->kind == STEP_CONTROL || step->kind == STEP_BIND || step->kind == STEP_DIMS) row->slower = 1;
    if (row->known && w->of->limits) row->least = limits_least_time(w->of->limits, &row->cost, w->run, w->scale);
}

/* false: not known. */
static bool find_cost(const Plan *plan, const Step *step, const StepTime *t, const int64_t *symbols, Cost *out_cost) {
    bool known = step_cost(plan, step, symbols, out_cost);
    if (t) *out_cost = t->cost;
    return known || cost_bytes(out_cost) > 0 || cost_all_work(out_cost) > 0;
}

static void fill_row(const Walk *w, const Plan *plan, const Step *step, const int64_t *symbols, double nested,
                     Row *row) {
    const StepTime *t = profile_time_of(w->times, w->time_count, step);
    *row = (Row){0};
    row->known = find_cost(plan, step, t, symbols, &row->cost);
    if (t) {
        row->count = t->count;
        row->time = t->median * t->count / w->runs - nested;
        if (row->time < 0) row->time = 0;
    }
    row->split = step_split(plan, step, symbols, &row->shares);
    estimate(w, step, row);
}

/* --- JSON --- */
static void add_string(Text *text, const char *key, const char *string) {
    text_add(text, ",\"%s\":", key);
    text_add_json(text, string, strlen(string));
}

static void add_number(Text *text, const char *key, double number) {
    text_add(text, ",\"%s\":", key);
    text_add_double(text, number);
}

static void add_cost(Text *text, const Cost *cost) {
    add_number(text, "bytes", cost_bytes(cost));
    add_number(text, "read", cost->read);
    add_number(text, "written", cost->written);
    add_number(text, "work", cost_all_work(cost));
    text_add(text, ",\"work_by_type\":{");
    const char *between = "";
    for (int t = 0; t < WORK_TYPES; t++) {
        if (!(cost_work(cost, (WorkType)t) > 0)) continue;
        text_add(text, "%s\"%s\":", between, work_type_name((WorkType)t));
        text_add_double(text, cost_work(cost, (WorkType)t));
        between = ",";
    }
    text_add(text, "}");
}

static void add_times(const Walk *w, const Row *row) {
    double least = least_seconds(row->least) * 1e6;
    if (w->of->profile) {
        text_add(w->text, ",\"count\":%d", row->count);
        add_number(w->text, "time_us", row->time);
    }
    if (!row->known || !w->of->limits) return;
    add_number(w->text, "least_us", least);
    if (least > 0) add_string(w->text, "bound", row->least.memory >= row->least.arithmetic ? "memory" : "arithmetic");
    if (w->of->profile && row->time > 0) add_number(w->text, "of_limit", least / row->time);
}

static void add_split(const Walk *w, const Row *row) {
    const PoolCount *s = &row->shares;
    if (!row->split) return;
    text_add(w->text, ",\"slices\":%lld", s->loops ? (long long)s->blocks : 1LL);
    add_number(w->text, "serial", s->work > 0 ? s->alone / s->work : 1);
    add_number(w->text, "idle", 1 - 1 / row->slower);
}

static void add_row(Walk *w, const Plan *plan, const Step *step, const char *path, const Row *row) {
    Text *text = w->text;
    text_add(text, "%s\n{\"step\":\"%s%d\"", w->rows++ ? "," : "", path, (int)(step - plan->steps));
    add_string(text, "kind", step_kind_name(step->kind));
    add_string(text, "name", step_name(plan, step));
    add_string(text, "device", step->on->table->name);
    if (step->kind == STEP_ANCHOR) add_string(text, "how", step->on->table->anchor_how(step->anchor));
    add_string(text, "node", node_origin_name(step->node));
    text_add(text, ",\"nodes\":%d", step->node->origin.count);
    if (row->known) add_cost(text, &row->cost);
    add_times(w, row);
    add_split(w, row);
    text_add(text, "}");
}

static void add_to_sums(Walk *w, const Row *row) {
    double least = least_seconds(row->least);
    w->timed += row->time;
    w->unknown += !row->known;
    cost_add(&w->total, &row->cost);
    w->least += least;
    w->waiting += least * row->slower;
    if (row->least.memory >= row->least.arithmetic) w->memory += least;
}

/* --- the plan --- */
static const int64_t *symbols_of(const Walk *w, const Plan *plan, const int64_t *outer) {
    Arena *arena = w->text->arena;
    int count = dim_symbol_count(plan->graph->dims);
    int64_t *symbols = ARENA_ARRAY(arena, int64_t, count + 1);
    for (int i = 0; i < count; i++) symbols[i] = outer ? outer[i] : UNBOUND_DIM;
    if (!w->of->profile) return symbols;
    int64_t *own = ARENA_ARRAY(arena, int64_t, plan->symbol_count + 1),
            *values = ARENA_ARRAY(arena, int64_t, plan->exprs.count + 1);
    size_t *offsets = ARENA_ARRAY(arena, size_t, plan->slot_count + 1), arena_bytes[PLACES];
    if (sizes_latest(plan, own, values, offsets, arena_bytes))
        for (int i = 0; i < plan->symbol_count; i++)
            if (own[i] != UNBOUND_DIM) symbols[i] = own[i];
    return symbols;
}

static void find_run(const Walk *w, const Plan *plan, const int64_t *outer, double *weights, double *most) {
    const int64_t *symbols = symbols_of(w, plan, outer);
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        Cost cost;
        for (int n = 0; n < step->nested_count; n++) find_run(w, step->nested[n], symbols, weights, most);
        find_cost(plan, step, profile_time_of(w->times, w->time_count, step), symbols, &cost);
        *weights += cost.weights;
        if (cost_bytes(&cost) - cost.weights > *most) *most = cost_bytes(&cost) - cost.weights;
    }
}

static void add_plan(Walk *w, const Plan *plan, const int64_t *outer, const char *path) {
    const int64_t *symbols = symbols_of(w, plan, outer);
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        double before = w->timed;
        Row row;
        for (int n = 0; n < step->nested_count; n++)
            add_plan(w, step->nested[n], symbols, arena_format(w->text->arena, "%s%d.%d.", path, s, n));
        fill_row(w, plan, step, symbols, w->timed - before, &row);
        add_row(w, plan, step, path, &row);
        add_to_sums(w, &row);
    }
}

static void add_machine(const Walk *w) {
    const MachineLimits *l = w->of->limits;
    text_add(w->text, "\"machine\":{\"name\":");
    text_add_json(w->text, w->of->machine, strlen(w->of->machine));
    text_add(w->text, ",\"threads\":%d,\"bandwidths\":[", l->threads);
    for (int i = 0; i < l->count; i++) {
        text_add(w->text, "%s{\"working_set\":", i ? "," : "");
        text_add_double(w->text, l->bandwidths[i].bytes);
        add_number(w->text, "read", l->bandwidths[i].read);
        add_number(w->text, "write", l->bandwidths[i].write);
        add_number(w->text, "copy", l->bandwidths[i].copy);
        text_add(w->text, "}");
    }
    text_add(w->text, "],\"products\":{");
    for (int t = 0; t < WORK_TYPES; t++) {
        text_add(w->text, "%s\"%s\":", t ? "," : "", work_type_name((WorkType)t));
        text_add_double(w->text, l->products[t]);
    }
    text_add(w->text, "}},");
}

/* Of an idle share: of the threads' time together, in a run in which each step takes what its thread with most takes. */
static void add_totals(const Walk *w) {
    text_add(w->text, "\n],\"totals\":{\"steps\":%d,\"unknown\":%d", w->rows, w->unknown);
    add_cost(w->text, &w->total);
    if (w->of->profile) add_number(w->text, "time_us", w->timed);
    if (w->of->limits) {
        add_number(w->text, "least_us", w->least * 1e6);
        add_number(w->text, "least_memory_us", w->memory * 1e6);
        add_number(w->text, "waiting_us", w->waiting * 1e6);
        add_number(w->text, "idle", w->waiting > 0 ? 1 - w->least / w->waiting : 0);
    }
    text_add(w->text, "}}\n");
}

void roofline_print(Text *text, const Roofline *roofline) {
    Walk w = {.of = roofline, .text = text, .scale = 1, .runs = 1};
    w.threads = pool_threads(roofline->plan->host->pool);
    if (roofline->limits) w.scale = (double)w.threads / roofline->limits->threads;
    if (roofline->profile) w.time_count = profile_times(roofline->profile, text->arena, &w.times);
    for (int s = 0; s < roofline->plan->step_count; s++) {
        const StepTime *t = profile_time_of(w.times, w.time_count, &roofline->plan->steps[s]);
        if (t && t->count > w.runs) w.runs = t->count;
    }
    double weights = 0, most = 0;
    find_run(&w, roofline->plan, roofline->symbols, &weights, &most);
    w.run = weights + most;
    text_add(text, "{\"threads\":%d,\"scale\":", w.threads);
    text_add_double(text, w.scale);
    if (roofline->profile) text_add(text, ",\"runs\":%d", w.runs);
    text_add(text, ",");
    if (roofline->limits) add_machine(&w);
    text_add(text, "\"steps\":[");
    add_plan(&w, roofline->plan, roofline->symbols, "");
    add_totals(&w);
}
