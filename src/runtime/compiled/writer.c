/* SPDX-License-Identifier: Apache-2.0 */
/* Compiling ahead of time: what an open session has, written down (compiled.h), to a file or to memory. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "codegen/kernel_store.h"
#include "lowering/custom.h"
#include "runtime/compiled/compiled.h"
#include "runtime/device/cpu/tiles/tile.h"
#include "policy/json.h"

/* Data of a section that stays where it is until it is written. */
typedef struct Piece {
    const void *data;
    size_t bytes;
    uint64_t at; /* in its section */
} Piece;

typedef VEC(Piece) Pieces;

typedef struct Compiling {
    Arena *arena;
    CompileSource from;
    StoreWriter writer;
    Text model;
    Map steps;                 /* Node -> Step, of all plans */
    Map kept, left_out;        /* by a constant's data: something reads it; an anchor has packed it */
    Map places;                /* by a constant's data: 1 + the number of its piece */
    Map kernel_numbers;        /* kernel -> 1 + number */
    Map packed_places;         /* by packed data: 1 + the number of its piece */
    VEC(const Step *) kernels; /* the first of each */
    Pieces code, constants, weights;
    uint64_t ends[PARTS];
    CompiledHeader header;
    CompiledSection sections[PARTS];
} Compiling;

/* --- what is written --- */
static uint64_t add_piece(Compiling *c, Pieces *pieces, CompiledPart part, const void *data, size_t bytes) {
    uint64_t align = bytes >= 16 * COMPILED_PAGE ? COMPILED_PAGE : COMPILED_LINE;
    uint64_t at = (c->ends[part] + align - 1) / align * align;
    VEC_PUSH(c->arena, *pieces, (Piece){data, bytes, at});
    c->ends[part] = at + bytes;
    return at;
}

static void list_steps(Compiling *c, const Plan *plan) {
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        if (step->kind == STEP_KERNEL || step->kind == STEP_ANCHOR)
            map_set_id(&c->steps, MAP_POINTER_KEY(step->node), (void *)step);
        for (int n = 0; n < step->nested_count; n++) list_steps(c, step->nested[n]);
    }
}

static const Step *step_of(const Compiling *c, const Node *node) {
    return map_get_id(&c->steps, MAP_POINTER_KEY(node));
}

static int packed_of(const Step *step, const Packed **out_packed, uint32_t *out_released) {
    *out_released = 0;
    const DeviceTable *table = step->on->table;
    return table->anchor_packed ? table->anchor_packed(step->anchor, out_packed, out_released) : 0;
}

/* Whether an anchor has packed the constant and does not read it any more. */
static bool is_released(const Compiling *c, Use use) {
    const Step *step = use.node->kind == NODE_ANCHOR ? step_of(c, use.node) : NULL;
    const Packed *packed;
    uint32_t released = 0;
    if (step && step->anchor) packed_of(step, &packed, &released);
    return use.index < 32 && released >> use.index & 1;
}

/* An attribute may have the data of a value that nothing reads any more. */
static void keep_attributes(Compiling *c, const Node *node) {
    for (int i = 0; i < node->attrs.count; i++) {
        const Attr *attr = &node->attrs.items[i];
        if (attr->kind == ATTR_TENSOR) map_set_id(&c->kept, MAP_POINTER_KEY(attr->tensor->data), c);
        for (int k = 0; attr->kind == ATTR_TENSORS && k < attr->count; k++)
            map_set_id(&c->kept, MAP_POINTER_KEY(attr->tensors[k]->data), c);
    }
}

static void sort_constants(Compiling *c, const Graph *graph) {
    for (int i = 0; i < graph->values.count; i++) {
        const Value *value = graph->values.items[i];
        if (!value->constant || !value->constant->data) continue;
        uint64_t key = MAP_POINTER_KEY(value->constant->data);
        bool read = value_is_output(value);
        for (int u = 0; u < value->uses.count && !read; u++) read = !is_released(c, value->uses.items[u]);
        map_set_id(read ? &c->kept : &c->left_out, key, c);
    }
    FOR_EACH_NODE(node, graph) {
        keep_attributes(c, node);
        for (int i = 0; i < node->subgraph_count; i++) sort_constants(c, node->subgraphs[i]);
    }
}

static bool put_constant(void *user, const Tensor *tensor, uint64_t *out_place) {
    Compiling *c = user;
    uint64_t key = MAP_POINTER_KEY(tensor->data);
    if (!map_get_id(&c->kept, key) && map_get_id(&c->left_out, key)) return false;
    intptr_t number = (intptr_t)map_get_id(&c->places, key);
    if (!number || c->constants.items[number - 1].bytes != tensor_bytes(tensor)) {
        add_piece(c, &c->constants, PART_CONSTANTS, tensor->data, tensor_bytes(tensor));
        number = c->constants.count;
        map_set_id(&c->places, key, (void *)number);
    }
    *out_place = c->constants.items[number - 1].at;
    return true;
}

static const char *host_name(void *user, const Node *node) {
    Compiling *c = user;
    if (node->custom) return arena_format(c->arena, "custom:%s", node->custom->name);
    return ops_host_name(c->arena, node->host);
}

/* --- kernels and nodes --- */
static void list_kernels(Compiling *c, const Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        const Step *step = node->kind == NODE_REGION || node->kind == NODE_ANCHOR ? step_of(c, node) : NULL;
        for (int i = 0; i < node->subgraph_count && !node_has_body(node); i++) list_kernels(c, node->subgraphs[i]);
        if (!step || !step->region.kernel) continue;
        if (!map_get_id(&c->kernel_numbers, MAP_POINTER_KEY(step->region.kernel))) {
            VEC_PUSH(c->arena, c->kernels, step);
            map_set_id(&c->kernel_numbers, MAP_POINTER_KEY(step->region.kernel), (void *)(intptr_t)c->kernels.count);
        }
    }
}

static void free_object(void *object) { free(object); }

static Status store_code(Compiling *c, const Step *step) {
    char *key;
    void *object;
    size_t size;
    TRY(kernel_cache_object(step->region.kernel, step->on->policy, &key, &object, &size));
    arena_defer(c->arena, free_object, key);
    arena_defer(c->arena, free_object, object);
    store_string(&c->writer, key);
    store_number(&c->writer, add_piece(c, &c->code, PART_CODE, object, size));
    store_number(&c->writer, size);
    return NULL;
}

static Status store_kernels(Compiling *c) {
    store_number(&c->writer, (uint64_t)c->kernels.count);
    for (int i = 0; i < c->kernels.count; i++) {
        const Step *step = c->kernels.items[i];
        store_kernel(&c->writer, step->region.kernel);
        store_number(&c->writer, step->place == PLACE_HOST);
        if (step->place == PLACE_HOST) TRY(store_code(c, step));
    }
    return NULL;
}

static void store_packed(Compiling *c, const Step *step) {
    const Packed *packed = NULL;
    uint32_t released;
    int count = packed_of(step, &packed, &released);
    store_number(&c->writer, (uint64_t)count);
    for (int i = 0; i < count; i++) {
        uint64_t key = MAP_POINTER_KEY(packed[i].data);
        intptr_t number = (intptr_t)map_get_id(&c->packed_places, key);
        if (!number) {
            add_piece(c, &c->weights, PART_WEIGHTS, packed[i].data, packed[i].bytes);
            number = c->weights.count;
            map_set_id(&c->packed_places, key, (void *)number);
        }
        store_number(&c->writer, c->weights.items[number - 1].at);
        store_number(&c->writer, packed[i].bytes);
    }
}

static Status store_given(Compiling *c, const Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        if (node->kind != NODE_REGION && node->kind != NODE_ANCHOR) {
            for (int i = 0; i < node->subgraph_count; i++) TRY(store_given(c, node->subgraphs[i]));
            continue;
        }
        const Step *step = step_of(c, node);
        if (!step) return status_error(STATUS_FAULT, "node \"%s\" has no step", node_origin_name(node));
        store_number(&c->writer, step->place);
        if (node->kind == NODE_ANCHOR) {
            store_packed(c, step);
            store_number(&c->writer, step->region.kernel != NULL);
            if (!step->region.kernel) continue;
        }
        store_number(&c->writer,
                     (uint64_t)(intptr_t)map_get_id(&c->kernel_numbers, MAP_POINTER_KEY(step->region.kernel)) - 1);
        store_region(&c->writer, node, &step->region);
    }
    return NULL;
}

static Status store_model(Compiling *c) {
    const Graph *graph = c->from.graph;
    c->model = text_make(c->arena);
    c->writer = store_writer(c->arena, graph->dims, &c->model);
    c->writer.put_data = put_constant;
    c->writer.host_name = host_name;
    c->writer.user = c;
    list_steps(c, c->from.plan);
    sort_constants(c, graph);
    TRY(store_graph(&c->writer, graph));
    for (int i = 0; i < graph->outputs.count; i++) store_number(&c->writer, c->from.outputs[i].random);
    list_kernels(c, graph);
    TRY(store_kernels(c));
    return store_given(c, graph);
}

static void add_string(Text *text, const char *name, const char *value) {
    text_add(text, "%s\"%s\":", text->data[text->size - 1] == '{' ? "" : ",", name);
    text_add_json(text, value, strlen(value));
}

static void add_count(Text *text, const char *name, uint64_t value) {
    text_add(text, "%s\"%s\":%llu", text->data[text->size - 1] == '{' ? "" : ",", name, (unsigned long long)value);
}

static Status make_about(Compiling *c, const char **out_text) {
    const Plan *plan = c->from.plan;
    const Policy *host = plan->host->policy;
    const char *policy = "{}";
    if (c->from.policy_json) TRY(policy_plan_part(c->from.policy_json, c->arena, &policy));
    Text text = text_make(c->arena);
    text_add(&text, "{");
    add_string(&text, "version", ONNXFUSE_VERSION);
    add_string(&text, "device", plan->device->table->name);
    add_string(&text, "target", target_level_name(&host->target));
    add_string(&text, "tiles", tile_isa()->name);
    add_count(&text, "nodes", (uint64_t)c->from.nodes);
    add_count(&text, "primitives", (uint64_t)c->from.primitives);
    add_count(&text, "kernels", (uint64_t)c->kernels.count);
    text_add(&text, ",\"policy\":");
    text_add_bytes(&text, policy, strlen(policy));
    text_add(&text, "}");
    *out_text = text.data;
    return NULL;
}

/* --- layout --- */
static uint64_t page_up(uint64_t bytes) { return (bytes + COMPILED_PAGE - 1) / COMPILED_PAGE * COMPILED_PAGE; }

/* All pieces of a section in order, with what fills it up between them. */
static const char zeros[COMPILED_PAGE];

typedef Status (*WriteFn)(void *user, const void *bytes, size_t size);

static Status each_piece(const Pieces *pieces, WriteFn write, void *user) {
    uint64_t at = 0;
    for (int i = 0; i < pieces->count; i++) {
        const Piece *p = &pieces->items[i];
        if (p->at > at) TRY(write(user, zeros, (size_t)(p->at - at)));
        TRY(write(user, p->data, p->bytes));
        at = p->at + p->bytes;
    }
    return NULL;
}

static Status hash_piece(void *user, const void *bytes, size_t size) {
    compiled_checksum_add(user, bytes, size);
    return NULL;
}

static Status sections_of(Compiling *c, Pieces *pieces) {
    const char *about;
    TRY(store_model(c));
    TRY(make_about(c, &about));
    pieces[PART_CODE] = c->code;
    pieces[PART_CONSTANTS] = c->constants;
    pieces[PART_WEIGHTS] = c->weights;
    add_piece(c, &pieces[PART_ABOUT], PART_ABOUT, about, strlen(about));
    add_piece(c, &pieces[PART_MODEL], PART_MODEL, c->model.data, c->model.size);
    uint64_t at = page_up(sizeof(CompiledHeader) + sizeof c->sections);
    for (int i = 0; i < PARTS; i++) {
        struct CompiledChecksum *sum = compiled_checksum_begin();
        if (!sum) return status_out_of_memory();
        Status status = each_piece(&pieces[i], hash_piece, sum);
        c->sections[i] = (CompiledSection){.at = at, .bytes = c->ends[i], .checksum = compiled_checksum_end(sum)};
        snprintf(c->sections[i].name, sizeof c->sections[i].name, "%s", compiled_part_name((CompiledPart)i));
        TRY(status);
        at = page_up(at + c->ends[i]);
    }
    c->header = (CompiledHeader){
        .format = COMPILED_FORMAT, .sections = PARTS, .bytes = c->sections[PARTS - 1].at + c->ends[PARTS - 1]};
    memcpy(c->header.magic, compiled_magic, sizeof c->header.magic);
    snprintf(c->header.version, sizeof c->header.version, "%s", ONNXFUSE_VERSION);
    return NULL;
}

static Status write_sections(Compiling *c, const Pieces *pieces, WriteFn write, void *user) {
    char begin[sizeof c->header + sizeof c->sections];
    memcpy(begin, &c->header, sizeof c->header);
    memcpy(begin + sizeof c->header, c->sections, sizeof c->sections);
    c->header.checksum = compiled_checksum(begin, sizeof begin);
    memcpy(begin, &c->header, sizeof c->header);
    TRY(write(user, begin, sizeof begin));
    uint64_t at = sizeof begin;
    for (int i = 0; i < PARTS; i++) {
        TRY(write(user, zeros, (size_t)(c->sections[i].at - at)));
        TRY(each_piece(&pieces[i], write, user));
        at = c->sections[i].at + c->sections[i].bytes;
    }
    return NULL;
}

/* --- where it goes --- */
static Status write_file(void *user, const void *bytes, size_t size) { return new_file_append(user, bytes, size); }

typedef struct MemorySink {
    char *bytes;
    size_t size;
} MemorySink;

static Status write_memory(void *user, const void *bytes, size_t size) {
    MemorySink *sink = user;
    if (size) memcpy(sink->bytes + sink->size, bytes, size);
    sink->size += size;
    return NULL;
}

/* --- all of it --- */
static Status report(const Compiling *c, char **out_report) {
    Text text = text_make(c->arena);
    text_add(&text, "{\"parts\":{");
    for (int i = 0; i < PARTS; i++) add_count(&text, compiled_part_name((CompiledPart)i), c->sections[i].bytes);
    text_add(&text, "}");
    add_count(&text, "bytes", c->header.bytes);
    add_count(&text, "kernels", (uint64_t)c->kernels.count);
    add_count(&text, "nodes", (uint64_t)c->from.nodes);
    add_string(&text, "device", c->from.plan->device->table->name);
    add_string(&text, "target", target_level_name(&c->from.plan->host->policy->target));
    text_add(&text, "}");
    *out_report = strdup(text.data);
    return *out_report ? NULL : status_out_of_memory();
}

static Status write_to_file(Compiling *c, NewFile *file, const Pieces *pieces) {
    TRY(new_file_begin(file));
    TRY(write_sections(c, pieces, write_file, file));
    TRY(new_file_close(file));
    return new_file_publish(file);
}

static Status write_to_memory(Compiling *c, const CompileTarget *to, const Pieces *pieces) {
    MemorySink sink = {malloc(c->header.bytes), 0};
    if (!sink.bytes) return status_out_of_memory();
    Status status = write_sections(c, pieces, write_memory, &sink);
    if (status) {
        free(sink.bytes);
        return status;
    }
    *to->out_bytes = sink.bytes;
    *to->out_size = sink.size;
    return NULL;
}

static Status write_down(Arena *arena, const CompileSource *source, const CompileTarget *to, NewFile *file,
                         char **out_report) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
    Compiling *c = ARENA_NEW(arena, Compiling);
    Pieces pieces[PARTS] = {0};
    *c = (Compiling){.arena = arena, .from = *source};
    c->steps = c->kept = c->left_out = c->places = c->kernel_numbers = c->packed_places = map_make(arena);
    TRY(sections_of(c, pieces));
    if (out_report) TRY(report(c, out_report));
    return to->path ? write_to_file(c, file, pieces) : write_to_memory(c, to, pieces);
}

Status compiled_write(Arena *arena, const CompileSource *source, const CompileTarget *to, char **out_report) {
    NewFile file = new_file(to->path);
    char *text = NULL;
    Status status = write_down(arena, source, to, &file, out_report ? &text : NULL);
    new_file_abandon(&file); /* what is in its place is not touched */
    if (status)
        free(text);
    else if (out_report)
        *out_report = text;
    return status;
}
