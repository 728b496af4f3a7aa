/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan holds beside its steps: prepared anchors, constants in the device's memory, compiled kernels. */
#include "lowering/anchors.h"
#include "runtime/plan/planner.h"

/* --- constants that only anchors read, and these have packed --- */
/* Weights stay as they lie in the model's file where all steps of all plans that read them take them so. */
void align_constants(const Plan *plan) {
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        for (int i = 0; i < step->input_count; i++) {
            const Slot *slot = step->inputs[i] < 0 ? NULL : &plan->slots[plan->slots[step->inputs[i]].root];
            if (!slot || slot->storage != STORE_CONSTANT || tensor_is_aligned(slot->value->constant)) continue;
            bool own = (step->kind == STEP_ANCHOR || step->kind == STEP_PRIM) && step->node->inputs[i] == slot->value;
            if (!own || !step->on->table->takes_unaligned || !step->on->table->takes_unaligned(step->node, i))
                tensor_align(plan->graph->arena, slot->value->constant);
        }
        for (int n = 0; n < step->nested_count; n++) align_constants(step->nested[n]);
    }
    for (int i = 0; i < plan->graph->outputs.count; i++) {
        const Slot *slot = &plan->slots[plan->slots[plan->outputs[i]].root];
        if (slot->storage == STORE_CONSTANT) tensor_align(plan->graph->arena, slot->value->constant);
    }
}

/* A constant's data: how many reads of it are still to come in each place, and its copy on the device. */
typedef struct Data {
    int reads[PLACES];
    void *uploaded;
} Data;

/* Several constants may share data; what a compiled model lacks is a constant's own. */
static uint64_t data_key(const Tensor *constant) {
    return MAP_POINTER_KEY(constant->data ? constant->data : (const void *)constant);
}

/* NULL for a slot that is no constant. */
static Data *data_of(const Plan *plan, const Map *datas, int slot) {
    const Slot *root = slot < 0 ? NULL : &plan->slots[plan->slots[slot].root];
    return root && root->storage == STORE_CONSTANT ? map_get_id(datas, data_key(root->value->constant)) : NULL;
}

/* What stands beside a weight at its anchor, and goes with it; NULL: nothing. */
enum { WEIGHT_PARTS = 2 };
static const Tensor *weight_part(const Node *node, int part) {
    static const char *const names[WEIGHT_PARTS] = {WEIGHT_SCALES, WEIGHT_ZEROS};
    const Attr *attr = node->kind == NODE_ANCHOR ? node_attr(node, names[part]) : NULL;
    return attr && attr->kind == ATTR_TENSOR ? attr->tensor : NULL;
}

static void count_read(const Plan *plan, const Map *datas, int slot, Place place) {
    Data *data = data_of(plan, datas, slot);
    if (data) data->reads[place]++;
}

static Map count_reads(const Plan *plan, Arena *scratch) {
    Map datas = map_make(scratch);
    for (int i = 0; i < plan->slot_count; i++) {
        const Slot *slot = &plan->slots[i];
        if (slot->storage == STORE_CONSTANT && !data_of(plan, &datas, i))
            map_set_id(&datas, data_key(slot->value->constant), ARENA_NEW(scratch, Data));
    }
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        for (int i = 0; i < step->input_count; i++) count_read(plan, &datas, step->inputs[i], step->place);
        for (int i = 0; step->kind == STEP_ANCHOR && i < WEIGHT_PARTS; i++) {
            const Tensor *part = weight_part(step->node, i);
            if (!part) continue;
            Data *data = map_get_id(&datas, data_key(part));
            if (!data) map_set_id(&datas, data_key(part), data = ARENA_NEW(scratch, Data));
            data->reads[step->place]++;
        }
    }
    for (int i = 0; i < plan->graph->outputs.count; i++) count_read(plan, &datas, plan->outputs[i], PLACE_HOST);
    return datas;
}

/* Whether no other graph reads the data, which may go back then; holders NULL: it stays. */
static bool is_alone(const Map *holders, const Tensor *constant) {
    return holders && (uintptr_t)map_get_id(holders, data_key(constant)) <= 1;
}

static bool is_read(const Data *data) { return data->reads[PLACE_HOST] || data->reads[PLACE_DEVICE]; }

static Status data_missing(const Value *value) {
    return status_error(STATUS_INVALID, "the data of constant \"%s\" is missing", value->name);
}

static Status prepare_anchor(const Plan *plan, Step *step, const Tensor *const *constants, uint32_t *released) {
    const DeviceTable *table = step->on->table;
    const NodeGiven *given = given_of(plan, step);
    if (given && table->restore_anchor)
        return table->restore_anchor(step->on, step->node, constants, given->packed, given->packed_count, &step->anchor,
                                     released);
    for (int i = 0; i < step->node->input_count; i++) /* a compiled model says something else of the node */
        if (constants[i] && !constants[i]->data && tensor_bytes(constants[i]))
            return data_missing(step->node->inputs[i]);
    return table->prepare_anchor(step->on, step->node, constants, &step->anchor, released);
}

/* A compiled model leaves out the data of constants that anchors have packed: nothing else may read it. */
static Status check_data(const Plan *plan, const Map *datas) {
    for (int i = 0; i < plan->slot_count; i++) {
        const Slot *slot = &plan->slots[i];
        const Data *data = slot->root == i ? data_of(plan, datas, i) : NULL;
        if (data && is_read(data) && !slot->value->constant->data && tensor_bytes(slot->value->constant))
            return data_missing(slot->value);
    }
    return NULL;
}

static void count_holder(Map *holders, Map *own, const Tensor *constant) {
    uint64_t key = data_key(constant);
    if (map_get_id(own, key)) return;
    map_set_id(own, key, (void *)(uintptr_t)constant);
    map_set_id(holders, key, (void *)((uintptr_t)map_get_id(holders, key) + 1));
}

/* Each graph once, however often it reads the data. A region's body has none but single elements. */
void count_holders(const Graph *graph, Map *holders) {
    Arena *arena = arena_create_inside(holders->arena);
    Map own = map_make(arena);
    for (int i = 0; i < graph->values.count; i++) {
        const Value *v = graph->values.items[i];
        if (v->constant && value_is_read(v)) count_holder(holders, &own, v->constant);
    }
    FOR_EACH_NODE(node, graph)
    for (int i = 0; i < WEIGHT_PARTS; i++)
        if (weight_part(node, i)) count_holder(holders, &own, weight_part(node, i));
    arena_destroy(arena);
    FOR_EACH_NODE(node, graph)
    for (int i = 0; !node_has_body(node) && i < node->subgraph_count; i++) count_holders(node->subgraphs[i], holders);
}

/* One read less, and the data goes back if it was the last. */
static void read_done(Data *data, const Map *holders, const Tensor *constant, Place place) {
    if (data && --data->reads[place] == 0 && !is_read(data) && is_alone(holders, constant)) tensor_forget(constant);
}

typedef struct Preparing {
    const Plan *plan;
    Step *step;
    const Tensor **constants; /* [inputs of the node] */
    uint32_t released;
    Status status;
} Preparing;

static void prepare_piece(void *context, int64_t begin, int64_t end, int worker) {
    Preparing *all = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        all[i].status = prepare_anchor(all[i].plan, all[i].step, all[i].constants, &all[i].released);
}

static void give_back(const Preparing *p, const Map *datas, const Map *holders) {
    const Step *step = p->step;
    const Node *node = step->node;
    for (int i = 0; i < node->input_count && i < 32; i++)
        if (p->released >> i & 1)
            read_done(data_of(p->plan, datas, step->inputs[i]), holders, p->constants[i], step->place);
    for (int i = 0; p->released && i < WEIGHT_PARTS; i++) {
        const Tensor *part = weight_part(node, i);
        if (part) read_done(map_get_id(datas, data_key(part)), holders, part, step->place);
    }
}

/* Of several the first. */
static Status first_status(Preparing *all, int count) {
    Status first = NULL;
    for (int i = 0; i < count; i++) {
        const Node *node = all[i].step->node;
        if (!first)
            first = status_at(all[i].status, "node \"%s\" (%s)", node_origin_name(node), node->op);
        else
            status_free(all[i].status);
    }
    return first;
}

static bool is_apart(const Preparing *p) { return p->step->on->table->separate_memory; }

/* Weights go back as soon as they are packed, so that the model is not held twice. Anchors of a device with its own
 * memory, which copies them one after the other, compile their programs beside each other. */
static Status prepare_anchors(Plan *plan, const Map *datas, const Map *holders, Arena *scratch) {
    Preparing *all = ARENA_ARRAY(scratch, Preparing, plan->step_count + 1);
    int count = 0;
    for (int s = 0; s < plan->step_count; s++) {
        const Node *node = plan->steps[s].node;
        if (plan->steps[s].kind != STEP_ANCHOR) continue;
        const Tensor **constants = ARENA_ARRAY(scratch, const Tensor *, node->input_count);
        for (int i = 0; i < node->input_count; i++) constants[i] = node->inputs[i] ? node->inputs[i]->constant : NULL;
        all[count++] = (Preparing){.plan = plan, .step = &plan->steps[s], .constants = constants};
    }
    for (int from = 0, to; from < count; from = to) {
        for (to = from + 1; to < count && is_apart(&all[from]) && is_apart(&all[to]);) to++;
        pool_for(to - from > 1 ? all[from].step->on->pool : NULL, to - from, 1, prepare_piece, all + from);
        TRY(first_status(all + from, to - from));
        for (int i = from; i < to; i++) give_back(&all[i], datas, holders);
    }
    return NULL;
}

/* --- constants on the device --- */
static Status upload(Plan *plan, Stream *stream, const Tensor *constant, void **out_data) {
    const DeviceTable *table = plan->device->table;
    size_t bytes = tensor_bytes(constant);
    TRY(table->allocate(plan->device, stream, NULL, bytes ? bytes : 1, out_data));
    VEC_PUSH(plan->arena, plan->uploads, *out_data);
    plan->constant_bytes += bytes;
    return bytes ? table->copy(plan->device, stream, COPY_IN, *out_data, constant->data, bytes) : NULL;
}

static Status upload_constants(Plan *plan, Stream *stream, const Map *datas, const Map *holders) {
    for (int i = 0; i < plan->slot_count; i++) {
        Slot *slot = &plan->slots[i];
        if (slot->storage != STORE_CONSTANT || slot->place != PLACE_DEVICE) continue;
        const Tensor *constant = slot->value->constant;
        Data *data = data_of(plan, datas, i);
        if (!data->reads[PLACE_DEVICE]) continue;
        if (!data->uploaded) {
            TRY(upload(plan, stream, constant, &data->uploaded));
            if (is_alone(holders, constant) && !data->reads[PLACE_HOST]) tensor_forget(constant);
        }
        slot->uploaded = data->uploaded;
    }
    return NULL;
}

static bool has_uploads(const Plan *plan) {
    for (int i = 0; i < plan->slot_count; i++)
        if (plan->slots[i].storage == STORE_CONSTANT && plan->slots[i].place == PLACE_DEVICE) return true;
    return false;
}

static Status upload_all(Plan *plan, const Map *datas, const Map *holders) {
    const DeviceTable *table = plan->device->table;
    Stream *stream = NULL;
    if (!has_uploads(plan)) return NULL;
    if (table->stream_create) TRY(table->stream_create(plan->device, &stream));
    Status status = upload_constants(plan, stream, datas, holders);
    if (!status) status = table->synchronize(plan->device, stream);
    if (table->stream_destroy) table->stream_destroy(plan->device, stream);
    return status;
}

/* What a graph shares with another, around it or inside it, does not go back; nor does anything of a compiled model. */
Status prepare_constants(Plan *plan, const Map *holders, Arena *scratch) {
    Map datas = count_reads(plan, scratch);
    if (plan->given->keep_constants || plan->given->is_compiled) holders = NULL;
    TRY(prepare_anchors(plan, &datas, holders, scratch));
    TRY(check_data(plan, &datas));
    for (int i = 0; i < plan->slot_count; i++) {
        const Slot *slot = &plan->slots[i];
        const Data *data = slot->root == i && slot->place == PLACE_HOST ? data_of(plan, &datas, i) : NULL;
        if (data && slot->value->constant->data &&
            (data->reads[PLACE_HOST] > 0 || !is_alone(holders, slot->value->constant)))
            plan->constant_bytes += tensor_bytes(slot->value->constant);
    }
    return upload_all(plan, &datas, holders);
}

/* --- kernels --- */
Status prepare_prims(Plan *plan, KernelCacheStats *stats) {
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        bool prim = step->kind == STEP_PRIM || step->kind == STEP_RESOLVE || step->kind == STEP_DEVICE;
        if (prim && step->on->table->prepare_prim)
            TRY(status_at(step->on->table->prepare_prim(step->on, step->node, stats), "node \"%s\" (%s)",
                          node_origin_name(step->node), step->node->op));
        for (int n = 0; n < step->nested_count; n++) TRY(prepare_prims(step->nested[n], stats));
    }
    return NULL;
}

typedef struct KernelList {
    Arena *arena;
    VEC(Step *) steps;
} KernelList;

static void list_kernels(KernelList *list, Plan *plan, const Device *on) {
    for (int s = 0; s < plan->step_count; s++) {
        Step *step = &plan->steps[s];
        if (step->region.kernel && step->on == on) VEC_PUSH(list->arena, list->steps, step);
        for (int n = 0; n < step->nested_count; n++) list_kernels(list, step->nested[n], on);
    }
}

static Status compile_for(Plan *plan, Device *on, Arena *scratch, KernelCacheStats *stats) {
    KernelList list = {.arena = scratch};
    list_kernels(&list, plan, on);
    int count = list.steps.count;
    if (!count) return NULL;
    const RegionKernel **regions = ARENA_ARRAY(scratch, const RegionKernel *, count);
    DeviceKernel **kernels = ARENA_ARRAY(scratch, DeviceKernel *, count);
    for (int i = 0; i < count; i++) regions[i] = &list.steps.items[i]->region;
    TRY(on->table->compile(on, regions, count, stats, kernels));
    for (int i = 0; i < count; i++) list.steps.items[i]->kernel = kernels[i];
    return NULL;
}

Status prepare_kernels(Plan *plan, Arena *scratch, KernelCacheStats *stats) {
    TRY(compile_for(plan, plan->host, scratch, stats));
    return plan->device == plan->host ? NULL : compile_for(plan, plan->device, scratch, stats);
}
