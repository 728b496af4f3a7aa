/* Partitioned graph -> plan: a slot a value, a step a node, lifetimes, and all sizes collected as expressions. */
#include "runtime/plan.h"

#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

typedef struct Planner {
    Plan *plan;
    Arena *scratch;
    bool *late_symbols; /* [symbol_count] bound by a step of this plan, or "$run" */
    bool *used;         /* [symbol_count] */
    Map expr_numbers;   /* Dim * -> 1 + number, for single expressions */
} Planner;

static int slot_of(const Value *value) { return value ? (int)value->tag : -1; }

/* --- expressions ------------------------------------------------------------------------------------------------ */
static void mark_used(int symbol, void *context) { ((Planner *)context)->used[symbol] = true; }

typedef struct LateSearch {
    const Planner *planner;
    bool found;
} LateSearch;

static void check_late(int symbol, void *context) {
    LateSearch *search = context;
    search->found |= search->planner->late_symbols[symbol];
}

static bool is_late(const Planner *planner, const Dim *dim) {
    LateSearch search = {planner, false};
    dim_each_symbol(dim, check_late, &search);
    return search.found;
}

static int add_expr(Planner *planner, const Dim *dim) {
    Plan *plan = planner->plan;
    dim_each_symbol(dim, mark_used, planner);
    if (is_late(planner, dim)) VEC_PUSH(plan->arena, plan->late_exprs, plan->exprs.count);
    VEC_PUSH(plan->arena, plan->exprs, dim);
    return plan->exprs.count - 1;
}

static int add_exprs(Planner *planner, const Dim *const *dims, int count) {
    int first = planner->plan->exprs.count;
    for (int i = 0; i < count; i++) add_expr(planner, dims[i]);
    return first;
}

/* --- slots -------------------------------------------------------------------------------------------------------- */
static int add_slot(Planner *planner, Value *value, Storage storage) {
    Plan *plan = planner->plan;
    int number = plan->slot_count++;
    value->tag = (uint64_t)number;
    Slot *slot = &plan->slots[number];
    *slot = (Slot){.value = value,
                   .storage = storage,
                   .root = number,
                   .inplace = -1,
                   .first = INT_MAX,
                   .last = -1,
                   .output = -1,
                   .dims_expr = -1,
                   .bytes_expr = -1};
    bool tensor = value->kind == VALUE_TENSOR && value->rank >= 0;
    if (!tensor) {
        if (storage != STORE_INPUT) slot->storage = STORE_ITEM;
        return number;
    }
    for (int d = 0; d < value->rank; d++) slot->late |= is_late(planner, value->dims[d]);
    slot->dims_expr = add_exprs(planner, value->dims, value->rank);
    const Dim *bytes = dim_mul(plan->graph->dims, value_elements(plan->graph, value),
                               dim_const(plan->graph->dims, (int64_t)dtype_size(value->dtype)));
    slot->bytes_expr = add_expr(planner, bytes);
    if (slot->storage == STORE_PLANNED && (slot->late || value->dtype == DT_STRING)) slot->storage = STORE_DYNAMIC;
    return number;
}

static void add_alias(Planner *planner, Node *node) {
    Plan *plan = planner->plan;
    int from = slot_of(node->inputs[0]), number = add_slot(planner, node->outputs[0], STORE_ALIAS);
    plan->slots[number].storage = STORE_ALIAS;
    plan->slots[number].root = plan->slots[from].root;
}

static void touch(Plan *plan, int slot, int step) {
    Slot *root = &plan->slots[plan->slots[slot].root];
    if (step < root->first) root->first = step;
    if (step > root->last) root->last = step;
}

/* --- symbols bound during the run ------------------------------------------------------------------------------ */
static void mark_late(Planner *planner, const Dim *dim, bool *binds) {
    int symbol = dim_symbol_index(dim);
    if (symbol < 0 || planner->used[symbol]) return; /* here: given by the inputs */
    planner->late_symbols[symbol] = true;
    if (binds) *binds = true;
}

static void find_late(Planner *planner) {
    Plan *plan = planner->plan;
    Graph *graph = plan->graph;
    for (int i = 0; i < graph->inputs.count; i++) {
        const Value *v = graph->inputs.items[i];
        for (int d = 0; v->kind == VALUE_TENSOR && d < v->rank; d++) { /* an optional binds what is read from it */
            int symbol = dim_symbol_index(v->dims[d]);
            if (symbol >= 0) planner->used[symbol] = true;
        }
    }
    if (plan->run_symbol >= 0) planner->late_symbols[plan->run_symbol] = true;
    FOR_EACH_NODE(node, graph) {
        if (node->kind != NODE_HOST) continue;
        int count = 0;
        const Dim *const *bound = strcmp(node->op, "bind_sizes") == 0 ? attr_dims(node, "symbols", &count) : NULL;
        for (int i = 0; i < count; i++) mark_late(planner, bound[i], NULL);
        for (int o = 0; o < node->output_count; o++)
            for (int d = 0; node->outputs[o] && d < node->outputs[o]->rank; d++)
                mark_late(planner, node->outputs[o]->dims[d], NULL);
    }
    memset(planner->used, 0, sizeof(bool) * (size_t)plan->symbol_count);
}

/* --- steps ---------------------------------------------------------------------------------------------------------
 */
static StepKind kind_of(const Node *node) {
    switch (node->kind) {
    case NODE_REGION: return STEP_KERNEL;
    case NODE_ANCHOR: return STEP_ANCHOR;
    case NODE_HOST:
        if (strcmp(node->op, "bind_sizes") == 0) return STEP_BIND;
        return node->subgraph_count && !node->host ? STEP_CONTROL : STEP_HOST;
    default: return node->prim == PRIM_DIMS ? STEP_DIMS : node->prim == PRIM_EXPAND ? STEP_RESOLVE : STEP_PRIM;
    }
}

static bool is_alias(const Node *node) { return node->kind == NODE_PRIM && node->prim == PRIM_RESHAPE; }

static const int *slots_of(Planner *planner, Value *const *values, int count) {
    int *slots = ARENA_ARRAY(planner->plan->arena, int, count ? count : 1);
    for (int i = 0; i < count; i++) {
        Value *v = values[i];
        if (v && v->constant && v->tag == UINT64_MAX) add_slot(planner, v, STORE_CONSTANT);
        slots[i] = slot_of(v);
    }
    return slots;
}

static void choose_inplace(Plan *plan, const Step *step, int number) {
    if (step->kind != STEP_KERNEL) return;
    for (int o = 0; o < step->node->output_count; o++) {
        int input = step->region.inplace[o], out = step->outputs[o];
        if (input < 0 || out < 0) continue;
        int root = plan->slots[step->inputs[input]].root;
        Slot *from = &plan->slots[root], *to = &plan->slots[out];
        bool fits = from->storage == STORE_PLANNED && to->storage == STORE_PLANNED && from->last == number &&
                    from->output < 0 && to->output < 0 && from->first < number && !from->shared &&
                    plan->exprs.items[from->bytes_expr] == plan->exprs.items[to->bytes_expr];
        for (int k = 0; k < o; k++) /* not taken by another output of this step */
            fits &= step->outputs[k] < 0 || plan->slots[step->outputs[k]].inplace != root;
        for (int i = 0; i < step->node->input_count; i++) /* nor read in another order through an alias */
            fits &= i == input || step->inputs[i] < 0 || plan->slots[step->inputs[i]].root != root;
        if (fits) to->inplace = root;
    }
}

/* The result of a STEP_RESOLVE may be its input's memory: that lives as long as the result, and nobody writes over
 * either. Backwards, so that chains add up. */
static void extend_resolved(Plan *plan) {
    for (int s = plan->step_count - 1; s >= 0; s--) {
        const Step *step = &plan->steps[s];
        if (step->kind != STEP_RESOLVE) continue;
        Slot *from = &plan->slots[plan->slots[step->inputs[0]].root], *to = &plan->slots[step->outputs[0]];
        if (from->last < to->last) from->last = to->last;
        from->shared = to->shared = true;
    }
}

static void list_deaths(Planner *planner, int number) {
    Plan *plan = planner->plan;
    Step *step = &plan->steps[number];
    VEC(int) dies = {0};
    for (int i = 0; i < step->node->input_count + step->node->output_count; i++) {
        int slot = i < step->node->input_count ? step->inputs[i] : step->outputs[i - step->node->input_count];
        if (slot < 0) continue;
        int root = plan->slots[slot].root;
        const Slot *r = &plan->slots[root];
        bool owned = r->storage == STORE_DYNAMIC || r->storage == STORE_ITEM;
        for (int k = 0; k < dies.count; k++) owned &= dies.items[k] != root;
        if (owned && r->last == number && r->output < 0) VEC_PUSH(plan->arena, dies, root);
    }
    step->dies = dies.items;
    step->die_count = dies.count;
}

static Status add_step(Planner *planner, Node *node) {
    Plan *plan = planner->plan;
    Step *step = &plan->steps[plan->step_count];
    *step = (Step){.kind = kind_of(node), .node = node};
    step->inputs = slots_of(planner, node->inputs, node->input_count);
    int *outputs = ARENA_ARRAY(plan->arena, int, node->output_count + 1);
    for (int o = 0; o < node->output_count; o++) {
        outputs[o] = node->outputs[o] ? add_slot(planner, node->outputs[o], STORE_PLANNED) : -1;
        if (node->kind == NODE_HOST && node->outputs[o])
            for (int d = 0; d < node->outputs[o]->rank; d++) {
                int symbol = dim_symbol_index(node->outputs[o]->dims[d]);
                step->binds |= symbol >= 0 && planner->late_symbols[symbol];
            }
    }
    step->outputs = outputs;
    if (step->kind == STEP_DIMS || step->kind == STEP_BIND) {
        const Dim *const *sizes = attr_dims(node, step->kind == STEP_DIMS ? "shape" : "symbols", &step->sizes_count);
        step->sizes_expr = add_exprs(planner, sizes, step->sizes_count);
        int *symbols = ARENA_ARRAY(plan->arena, int, step->sizes_count + 1);
        for (int i = 0; i < step->sizes_count; i++) symbols[i] = dim_symbol_index(sizes[i]);
        step->symbols = symbols;
    }
    if (step->kind == STEP_HOST) {
        step->host = (HostFn)node->host;
        if (!step->host)
            return status_error(STATUS_FAULT, "node \"%s\" (%s) has no host kernel", node_origin_name(node), node->op);
    }
    if (step->kind == STEP_KERNEL) {
        TRY(codegen_region(plan->arena, plan->graph->dims, node, &plan->device->policy->target, &step->region));
        step->params_expr = add_exprs(planner, step->region.params, step->region.kernel->param_count);
        step->work_expr = add_expr(planner, step->region.work);
        step->moved_expr = add_expr(planner, step->region.bytes);
    }
    for (int i = 0; i < node->input_count; i++)
        if (step->inputs[i] >= 0) touch(plan, step->inputs[i], plan->step_count);
    for (int o = 0; o < node->output_count; o++)
        if (outputs[o] >= 0) touch(plan, outputs[o], plan->step_count);
    plan->step_count++;
    return NULL;
}

static void assign_outputs(Planner *planner) {
    Plan *plan = planner->plan;
    Graph *graph = plan->graph;
    plan->outputs = slots_of(planner, graph->outputs.items, graph->outputs.count);
    for (int o = 0; o < graph->outputs.count; o++) {
        Slot *root = &plan->slots[plan->slots[plan->outputs[o]].root];
        root->last = plan->step_count;
        bool own = root->storage == STORE_PLANNED || root->storage == STORE_DYNAMIC || root->storage == STORE_ITEM;
        if (own && root->output < 0) root->output = o;
    }
}

/* --- constants that only anchors read, and these have packed --------------------------------------------------- */
static void release_constant(const Tensor *constant) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)constant->data,
              to = from + tensor_bytes(constant);
    from = (from + page - 1) / page * page;
    to = to / page * page;
    if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
}

/* How many reads of a constant's data are still to come; NULL for a slot that is no constant. Several constants may
 * share data. */
static int *reads_of(const Plan *plan, const Map *reads, int slot) {
    const Slot *root = slot < 0 ? NULL : &plan->slots[plan->slots[slot].root];
    return root && root->storage == STORE_CONSTANT ? map_get_id(reads, MAP_POINTER_KEY(root->value->constant->data))
                                                   : NULL;
}

static Map count_reads(Planner *planner) {
    Plan *plan = planner->plan;
    Map reads = map_make(planner->scratch);
    for (int i = 0; i < plan->slot_count; i++) {
        const Slot *slot = &plan->slots[i];
        if (slot->storage == STORE_CONSTANT && !reads_of(plan, &reads, i))
            map_set_id(&reads, MAP_POINTER_KEY(slot->value->constant->data), ARENA_NEW(planner->scratch, int));
    }
    for (int s = 0; s < plan->step_count; s++)
        for (int i = 0; i < plan->steps[s].node->input_count; i++) {
            int *count = reads_of(plan, &reads, plan->steps[s].inputs[i]);
            if (count) ++*count;
        }
    for (int i = 0; i < plan->graph->outputs.count; i++) {
        int *count = reads_of(plan, &reads, plan->outputs[i]);
        if (count) ++*count;
    }
    return reads;
}

/* Weights go back as soon as they are packed, so that the model is not held twice. Subgraphs share constants with what
 * is around them: there nothing goes back. */
static Status prepare_anchors(Planner *planner) {
    Plan *plan = planner->plan;
    Map reads = count_reads(planner);
    bool alone = !plan->graph->parent;
    FOR_EACH_NODE(node, plan->graph) alone &= node->kind == NODE_REGION || !node->subgraph_count;
    for (int s = 0; s < plan->step_count; s++) {
        Step *step = &plan->steps[s];
        const Node *node = step->node;
        if (step->kind != STEP_ANCHOR) continue;
        uint32_t released = 0;
        const Tensor **constants = ARENA_ARRAY(planner->scratch, const Tensor *, node->input_count);
        for (int i = 0; i < node->input_count; i++) constants[i] = node->inputs[i] ? node->inputs[i]->constant : NULL;
        TRY(status_at(plan->device->table->prepare_anchor(plan->device, node, constants, &step->anchor, &released),
                      "node \"%s\" (%s)", node_origin_name(node), node->op));
        for (int i = 0; i < node->input_count && i < 32; i++) {
            int *count = released >> i & 1 ? reads_of(plan, &reads, step->inputs[i]) : NULL;
            if (count && --*count == 0 && alone) release_constant(constants[i]);
        }
    }
    for (int i = 0; i < plan->slot_count; i++) {
        const int *count = plan->slots[i].root == i ? reads_of(plan, &reads, i) : NULL;
        if (count && (*count > 0 || !alone)) plan->constant_bytes += tensor_bytes(plan->slots[i].value->constant);
    }
    return NULL;
}

/* --- kernels, of all nested plans at once ----------------------------------------------------------------------- */
typedef struct KernelList {
    Arena *arena;
    VEC(Step *) steps;
} KernelList;

static void list_kernels(KernelList *list, Plan *plan) {
    for (int s = 0; s < plan->step_count; s++) {
        if (plan->steps[s].kind == STEP_KERNEL) VEC_PUSH(list->arena, list->steps, &plan->steps[s]);
        for (int n = 0; n < plan->steps[s].nested_count; n++) list_kernels(list, plan->steps[s].nested[n]);
    }
}

static Status compile_kernels(Plan *plan, Arena *scratch, KernelCacheStats *stats) {
    KernelList list = {.arena = scratch};
    list_kernels(&list, plan);
    int count = list.steps.count;
    if (!count) return NULL;
    const RegionKernel **regions = ARENA_ARRAY(scratch, const RegionKernel *, count);
    DeviceKernel **kernels = ARENA_ARRAY(scratch, DeviceKernel *, count);
    for (int i = 0; i < count; i++) regions[i] = &list.steps.items[i]->region;
    TRY(plan->device->table->compile(plan->device, regions, count, stats, kernels));
    for (int i = 0; i < count; i++) list.steps.items[i]->kernel = kernels[i];
    return NULL;
}

static Status make_plan(Graph *graph, Device *device, Plan **out_plan);

static Status make_nested(Plan *plan) {
    for (int s = 0; s < plan->step_count; s++) {
        Step *step = &plan->steps[s];
        if (step->kind != STEP_CONTROL) continue;
        step->nested = ARENA_ARRAY(plan->arena, Plan *, step->node->subgraph_count);
        for (; step->nested_count < step->node->subgraph_count; step->nested_count++)
            TRY(make_plan(step->node->subgraphs[step->nested_count], plan->device, &step->nested[step->nested_count]));
    }
    return NULL;
}

static Status fill_plan(Plan *plan, Arena *scratch) {
    Graph *graph = plan->graph;
    Planner planner = {.plan = plan, .scratch = scratch};
    plan->run_symbol = dim_symbol_index(dim_symbol(graph->dims, "$run"));
    plan->symbol_count = dim_symbol_count(graph->dims);
    planner.late_symbols = ARENA_ARRAY(scratch, bool, plan->symbol_count);
    planner.used = ARENA_ARRAY(scratch, bool, plan->symbol_count);
    find_late(&planner);

    int values = graph->inputs.count + graph->outputs.count;
    for (int i = 0; i < graph->values.count; i++) graph->values.items[i]->tag = UINT64_MAX;
    FOR_EACH_NODE(node, graph) values += node->input_count + node->output_count;
    plan->slots = ARENA_ARRAY(plan->arena, Slot, values);
    plan->steps = ARENA_ARRAY(plan->arena, Step, graph->node_count);
    int *inputs = ARENA_ARRAY(plan->arena, int, graph->inputs.count + 1);
    for (int i = 0; i < graph->inputs.count; i++) inputs[i] = add_slot(&planner, graph->inputs.items[i], STORE_INPUT);
    plan->inputs = inputs;
    FOR_EACH_NODE(node, graph) {
        if (is_alias(node)) {
            slots_of(&planner, node->inputs, 1);
            add_alias(&planner, node);
        } else {
            TRY(add_step(&planner, node));
        }
    }
    assign_outputs(&planner);
    extend_resolved(plan);
    for (int s = 0; s < plan->step_count; s++) {
        choose_inplace(plan, &plan->steps[s], s);
        list_deaths(&planner, s);
    }
    for (int i = 0; i < plan->symbol_count; i++)
        if (planner.used[i] && !planner.late_symbols[i]) VEC_PUSH(plan->arena, plan->input_symbols, i);
    TRY(prepare_anchors(&planner));
    return make_nested(plan);
}

/* Releases what the plan made, whatever was made so far. */
void plan_destroy(Plan *plan) {
    if (!plan) return;
    const DeviceTable *table = plan->device->table;
    for (int s = 0; s < plan->step_count; s++) {
        Step *step = &plan->steps[s];
        if (step->kernel) table->release_kernel(plan->device, step->kernel);
        if (step->anchor) table->release_anchor(plan->device, step->anchor);
        for (int n = 0; n < step->nested_count; n++) plan_destroy(step->nested[n]);
    }
    sizes_cache_destroy(plan->sizes);
    arena_destroy(plan->arena);
}

static Status make_plan(Graph *graph, Device *device, Plan **out_plan) {
    Arena *arena = arena_create(0), *scratch = arena_create(0);
    struct SizesCache *sizes = sizes_cache_create();
    if (!arena || !scratch || !sizes) {
        arena_destroy(arena);
        arena_destroy(scratch);
        sizes_cache_destroy(sizes);
        return status_out_of_memory();
    }
    Plan *plan = ARENA_NEW(arena, Plan);
    *plan = (Plan){.graph = graph, .device = device, .arena = arena, .sizes = sizes};
    Status status = fill_plan(plan, scratch);
    arena_destroy(scratch);
    if (status) {
        plan_destroy(plan);
        return status;
    }
    *out_plan = plan;
    return NULL;
}

Status plan_create(Graph *graph, Device *device, KernelCacheStats *stats, Plan **out_plan) {
    Plan *plan;
    TRY(make_plan(graph, device, &plan));
    Arena *scratch = arena_create(0);
    Status status = scratch ? compile_kernels(plan, scratch, stats) : status_out_of_memory();
    arena_destroy(scratch);
    if (status) {
        plan_destroy(plan);
        return status;
    }
    *out_plan = plan;
    return NULL;
}

/* --- looking at a plan -------------------------------------------------------------------------------------------- */
static void count_into(const Plan *plan, PlanCounts *counts, Map *texts) {
    counts->weight_bytes += (int64_t)plan->constant_bytes;
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        counts->steps++;
        if (step->kind == STEP_KERNEL) {
            counts->regions++;
            if (!map_get(texts, step->region.text)) {
                map_set(texts, step->region.text, (void *)step);
                counts->kernels++;
            }
        } else if (step->kind == STEP_ANCHOR) {
            counts->anchors++;
            counts->weight_bytes += (int64_t)plan->device->table->anchor_bytes(step->anchor);
        } else {
            counts->host_steps++;
        }
        for (int n = 0; n < step->nested_count; n++) count_into(step->nested[n], counts, texts);
    }
}

void plan_count(const Plan *plan, PlanCounts *counts) {
    *counts = (PlanCounts){0};
    Arena *scratch = arena_create(0);
    if (!scratch) return;
    Map texts = map_make(scratch);
    count_into(plan, counts, &texts);
    arena_destroy(scratch);
}

const char *step_kind_name(StepKind kind) {
    static const char *const names[] = {"kernel", "anchor", "host", "move", "dims", "bind", "resolve", "control"};
    return names[kind];
}

static void print_slot(Text *text, const Plan *plan, int number) {
    static const char *const storages[] = {"unused", "input", "constant", "planned", "dynamic", "alias", "item"};
    if (number < 0) {
        text_add(text, " _");
        return;
    }
    const Slot *slot = &plan->slots[number];
    text_add(text, " %s", slot->value->name);
    if (slot->root != number) text_add(text, "=%s", plan->slots[slot->root].value->name);
    text_add(text, ":%s", slot->output >= 0 ? "output" : storages[slot->storage]);
    if (slot->inplace >= 0) text_add(text, "@%s", plan->slots[slot->inplace].value->name);
}

void plan_print(Text *text, const Plan *plan, int indent) {
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        text_add(text, "%*s%d %s %s", indent, "", s, step_kind_name(step->kind), step->node->op);
        if (step->anchor) text_add(text, " (%s)", plan->device->table->anchor_how(step->anchor));
        for (int i = 0; i < step->node->input_count; i++) print_slot(text, plan, step->inputs[i]);
        text_add(text, " ->");
        for (int o = 0; o < step->node->output_count; o++) print_slot(text, plan, step->outputs[o]);
        text_add(text, "  # %s\n", node_origin_name(step->node));
        for (int n = 0; n < step->nested_count; n++) {
            text_add(text, "%*s  plan %d:\n", indent, "", n);
            plan_print(text, step->nested[n], indent + 4);
        }
    }
}
