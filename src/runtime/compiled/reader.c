/* SPDX-License-Identifier: Apache-2.0 */
/* Reading compiled models: the container, whether it fits this machine, and the graph with what is known of it. All of
 * it may be anyone's bytes but for the machine code, which is run as it is. */
#include "runtime/compiled/compiled.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/kernel_store.h"
#include "lowering/custom.h"
#include "runtime/device/cpu/tiles/tile.h"
#include "policy/json.h"

/* Fuzzing builds load no machine code: what mutations make of it says nothing of the reader. */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
enum { without_code = 1 };
#else
enum { without_code = 0 };
#endif

/* Neither text nor a protobuf message begins so, and a transfer as text damages it. */
const char compiled_magic[8] = "\x93OFX\r\n\x1a\n";

const char *compiled_part_name(CompiledPart part) {
    static const char *const names[PARTS] = {"about", "model", "code", "constants", "weights"};
    return names[part];
}

uint64_t compiled_checksum(const void *bytes, size_t size) { return XXH3_64bits(bytes, size); }

struct CompiledChecksum *compiled_checksum_begin(void) {
    XXH3_state_t *state = XXH3_createState();
    if (state) XXH3_64bits_reset(state);
    return (struct CompiledChecksum *)state;
}

void compiled_checksum_add(struct CompiledChecksum *sum, const void *bytes, size_t size) {
    XXH3_64bits_update((XXH3_state_t *)sum, bytes, size);
}

uint64_t compiled_checksum_end(struct CompiledChecksum *sum) {
    uint64_t result = XXH3_64bits_digest((XXH3_state_t *)sum);
    XXH3_freeState((XXH3_state_t *)sum);
    return result;
}

/* --- the container ------------------------------------------------------------------------------------------------ */
bool compiled_is(const void *bytes, size_t size) {
    return size >= sizeof compiled_magic && memcmp(bytes, compiled_magic, sizeof compiled_magic) == 0;
}

bool compiled_is_file(const char *path) {
    char begin[sizeof compiled_magic];
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is =
        file >= 0 && pread(file, begin, sizeof begin, 0) == (ssize_t)sizeof begin && compiled_is(begin, sizeof begin);
    if (file >= 0) close(file);
    return is;
}

static Status damaged(const char *what) {
    return status_error(STATUS_INVALID, "the compiled model is damaged: %s", what);
}

static Status check_header(const CompiledHeader *header, size_t size) {
    if (memchr(header->version, 0, sizeof header->version) && header->format == COMPILED_FORMAT &&
        strcmp(header->version, ONNXFUSE_VERSION) == 0)
        return header->sections == PARTS && header->bytes == size ? NULL : damaged("it is not as long as it was");
    return status_error(STATUS_USAGE,
                        "the model was compiled by onnxfuse %.31s (format %u), and this is " ONNXFUSE_VERSION
                        " (format %d): compile it again",
                        header->version, header->format, COMPILED_FORMAT);
}

static Status check_table(const uint8_t *bytes, CompiledHeader header, const CompiledSection *sections, size_t size) {
    uint64_t expected = header.checksum;
    size_t table = sizeof header + PARTS * sizeof *sections;
    char copy[sizeof header + PARTS * sizeof *sections];
    memcpy(copy, bytes, table);
    header.checksum = 0;
    memcpy(copy, &header, sizeof header);
    if (compiled_checksum(copy, table) != expected) return damaged("its header");
    for (int i = 0; i < PARTS; i++) {
        const CompiledSection *s = &sections[i];
        if (strncmp(s->name, compiled_part_name((CompiledPart)i), sizeof s->name) || s->at % COMPILED_LINE ||
            s->at > size || s->bytes > size - s->at)
            return status_error(STATUS_INVALID, "the compiled model is damaged: section \"%s\" lies outside",
                                compiled_part_name((CompiledPart)i));
    }
    return NULL;
}

static Status check_part(const Compiled *c, CompiledPart part) {
    if (compiled_checksum(c->parts[part].data, c->parts[part].size) == c->sections[part].checksum) return NULL;
    return status_error(STATUS_INVALID, "the compiled model is damaged: section \"%s\" is not what was written",
                        compiled_part_name(part));
}

static const char *text_at(Arena *arena, const cJSON *about, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(about, name);
    return cJSON_IsString(item) ? arena_string(arena, item->valuestring) : NULL;
}

static int number_at(const cJSON *about, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(about, name);
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= INT32_MAX ? item->valueint : 0;
}

static Status read_about(Arena *arena, Compiled *c) {
    cJSON *about;
    const void *bytes = c->parts[PART_ABOUT].data;
    TRY(status_at(json_parse(arena, arena_string_n(arena, bytes, c->parts[PART_ABOUT].size), &about),
                  "the compiled model is damaged: section \"about\""));
    const char *device = text_at(arena, about, "device");
    c->target = text_at(arena, about, "target");
    c->tiles = text_at(arena, about, "tiles");
    c->nodes = number_at(about, "nodes");
    c->primitives = number_at(about, "primitives");
    TRY(json_text(arena, cJSON_GetObjectItemCaseSensitive(about, "policy"), &c->policy));
    if (!c->policy) c->policy = "{}";
    return device && c->target && c->tiles ? device_from_name(device, &c->device) : damaged("section \"about\"");
}

Status compiled_read(Arena *arena, const void *bytes, size_t size, Compiled *out) {
    CompiledHeader header;
    CompiledSection *sections = ARENA_ARRAY(arena, CompiledSection, PARTS);
    *out = (Compiled){.sections = sections};
    if (size < sizeof header + PARTS * sizeof *sections) return damaged("it ends in its header");
    memcpy(&header, bytes, sizeof header);
    TRY(check_header(&header, size));
    memcpy(sections, (const char *)bytes + sizeof header, PARTS * sizeof *sections);
    TRY(check_table(bytes, header, sections, size));
    for (int i = 0; i < PARTS; i++)
        out->parts[i] = (CompiledBytes){(const uint8_t *)bytes + sections[i].at, (size_t)sections[i].bytes};
    for (int i = PART_ABOUT; i <= PART_CODE; i++) TRY(check_part(out, (CompiledPart)i));
    return read_about(arena, out);
}

Status compiled_check(const Compiled *compiled) {
    for (int i = 0; i < PARTS; i++) TRY(check_part(compiled, (CompiledPart)i));
    return NULL;
}

/* --- does it fit --- */
Status compiled_fits(Arena *arena, const Compiled *c, const Policy *policy, const char *given_policy) {
    Target target = {.device = DEVICE_CPU, .level = c->target};
    if (policy->device != DEVICE_AUTO && policy->device != c->device)
        return status_error(STATUS_USAGE, "the model was compiled for device %s, not %s: compile it again",
                            device_name(c->device), device_name(policy->device));
    TRY(status_at(target_resolve(arena, &target), "the model was compiled for another processor"));
    if (c->parts[PART_WEIGHTS].size && strcmp(c->tiles, tile_isa()->name))
        return status_error(STATUS_USAGE,
                            "the model's weights were packed for processors with %s, and this one takes %s: compile it "
                            "again",
                            c->tiles, tile_isa()->name);
    return given_policy ? status_at(policy_plan_agrees(c->policy, given_policy, arena), "compiled model") : NULL;
}

/* --- the graph --- */
typedef struct ReadKernel {
    const Kernel *kernel;
    KernelCode *code; /* NULL: of a GPU */
} ReadKernel;

typedef struct Reading {
    const Compiled *compiled;
    const Policy *policy;
    StoreReader *reader;
    KernelCacheStats *stats;
    PlanGiven *given;
    ReadKernel *kernels; /* [kernel_count] */
    int kernel_count;
    bool lacks_memory; /* for code: then it is not the model that is to blame */
} Reading;

static const void *slice(const CompiledBytes *part, uint64_t at, uint64_t bytes) {
    return at % COMPILED_LINE || at > part->size || bytes > part->size - at ? NULL : part->data + at;
}

static const void *constant_at(void *user, uint64_t place, size_t bytes) {
    return slice(&((Reading *)user)->compiled->parts[PART_CONSTANTS], place, bytes);
}

/* Custom operators are looked up by name: versions were chosen when the model was compiled. */
static const CustomOperator *custom_operator(const Registry *registry, const char *name) {
    for (int i = 0; registry && i < registry->operators.count; i++)
        if (strcmp(registry->operators.items[i]->name, name) == 0) return registry->operators.items[i];
    for (int i = 0; registry && i < registry->fusions.count; i++) {
        const CustomOperator *kernel = registry->fusions.items[i]->kernel;
        if (kernel && strcmp(kernel->name, name) == 0) return kernel;
    }
    return NULL;
}

static HostFn host_named(void *user, const char *name, Node *node) {
    const Reading *reading = user;
    if (strncmp(name, "custom:", 7)) return ops_host_named(name);
    node->custom = custom_operator(reading->policy->registry, name + 7);
    if (!node->custom) node->custom = custom_operator(reading->policy->builtins, name + 7);
    return node->custom ? host_custom : NULL;
}

static void release_code(void *code) { kernel_code_release(code); }

static KernelCode *load_code(Reading *g) {
    StoreReader *r = g->reader;
    const char *key = restore_string(r);
    uint64_t at = restore_number(r), bytes = restore_number(r);
    const void *object = slice(&g->compiled->parts[PART_CODE], at, bytes);
    if (!key) store_wrong(r, "the code of a kernel has no name");
    if (!object) store_wrong(r, "the code of a kernel lies outside");
    if (store_failed(r)) return NULL;
    KernelCode *code = NULL;
    if (without_code) return NULL;
    Status status = kernel_cache_put(key, object, bytes, g->stats, &code);
    g->lacks_memory |= status == status_out_of_memory();
    if (status) store_wrong(r, "%s", status_message(status));
    status_free(status);
    if (code) arena_defer(r->graph->arena, release_code, code);
    return code;
}

static void read_kernels(Reading *g) {
    StoreReader *r = g->reader;
    g->kernel_count = restore_count(r, 8);
    g->kernels = ARENA_ARRAY(r->graph->arena, ReadKernel, g->kernel_count + 1);
    for (int i = 0; i < g->kernel_count && !store_failed(r); i++) {
        g->kernels[i].kernel = restore_kernel(r);
        if (restore_int(r, 1)) g->kernels[i].code = load_code(g);
    }
}

static void read_region(Reading *g, const Node *node, NodeGiven *given) {
    int number = restore_int(g->reader, g->kernel_count - 1);
    if (!g->kernel_count) store_wrong(g->reader, "a region has no kernel");
    if (store_failed(g->reader)) return;
    given->region = (RegionKernel){.kernel = g->kernels[number].kernel, .code = g->kernels[number].code};
    if (given->place == PLACE_HOST && !given->region.code && !without_code)
        store_wrong(g->reader, "a kernel has no code");
    if (!store_failed(g->reader)) restore_region(g->reader, node, &given->region);
}

static void read_anchor(Reading *g, NodeGiven *given) {
    StoreReader *r = g->reader;
    given->packed_count = restore_count(r, 2);
    Packed *packed = ARENA_ARRAY(r->graph->arena, Packed, given->packed_count + 1);
    for (int i = 0; i < given->packed_count && !store_failed(r); i++) {
        uint64_t at = restore_number(r);
        packed[i].bytes = restore_number(r);
        packed[i].data = slice(&g->compiled->parts[PART_WEIGHTS], at, packed[i].bytes);
        if (!packed[i].data) store_wrong(r, "packed weights lie outside");
    }
    given->packed = packed;
}

static void read_nodes(Reading *g, const Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        if (store_failed(g->reader)) return;
        if (node->kind == NODE_REGION || node->kind == NODE_ANCHOR) {
            NodeGiven *given = ARENA_NEW(graph->arena, NodeGiven);
            given->place = (Place)restore_int(g->reader, PLACE_DEVICE);
            if (node->kind == NODE_ANCHOR) read_anchor(g, given);
            if (node->kind == NODE_REGION || restore_int(g->reader, node_has_body(node))) read_region(g, node, given);
            map_set_id(&g->given->nodes, MAP_POINTER_KEY(node), given);
        } else {
            for (int i = 0; i < node->subgraph_count; i++) read_nodes(g, node->subgraphs[i]);
        }
    }
}

static Status read_graph(Reading *g, CompiledGraph *out) {
    StoreReader *r = g->reader;
    Arena *arena = r->graph->arena;
    TRY(restore_graph(r));
    TRY(graph_verify(r->graph, LEVEL_PARTITIONED));
    bool *random = ARENA_ARRAY(arena, bool, r->graph->outputs.count + 1);
    for (int i = 0; i < r->graph->outputs.count; i++) random[i] = restore_int(r, 1);
    out->random = random;
    out->given = (PlanGiven){.is_compiled = true, .nodes = map_make(arena)};
    read_kernels(g);
    read_nodes(g, r->graph);
    if (!store_failed(r) && r->at != r->end) store_wrong(r, "more follows than it says");
    Status status = r->error;
    r->error = NULL;
    return status;
}

/* Everybody's mistakes, those that the verifier calls ours among them. */
static Status as_damaged(Status status) {
    if (!status || status == status_out_of_memory()) return status;
    if (status_code(status) != STATUS_INVALID && status_code(status) != STATUS_FAULT) return status;
    Status damage =
        status_error(STATUS_INVALID, "the compiled model is damaged: section \"model\": %s", status_message(status));
    status_free(status);
    return damage;
}

Status compiled_graph(const Compiled *c, const Policy *policy, size_t limit, KernelCacheStats *stats,
                      CompiledGraph *out) {
    /* A byte of a graph that is no mistake becomes some 20 in memory. */
    enum { MOST_GROWTH = 256, ROOM = 64 << 20, LEAST_SHARE = 16 };
    size_t most = c->parts[PART_MODEL].size * MOST_GROWTH + ROOM;
    Graph *graph = graph_create(limit && limit < most ? limit : most);
    if (!graph) return status_out_of_memory();
    StoreReader reader = store_reader(graph, c->parts[PART_MODEL].data, c->parts[PART_MODEL].size);
    Reading reading = {.compiled = c, .policy = policy, .reader = &reader, .stats = stats, .given = &out->given};
    reader.data = constant_at;
    reader.host = host_named;
    reader.user = &reading;
    reader.most_left_out = LEAST_SHARE * (uint64_t)c->parts[PART_WEIGHTS].size;
    out->graph = graph;
    jmp_buf guard;
    Status status;
    if (setjmp(guard)) {
        status_free(reader.error);
        status = status_out_of_memory();
    } else {
        arena_guard(graph->arena, &guard);
        status = as_damaged(read_graph(&reading, out));
        arena_guard(graph->arena, NULL);
        if (reading.lacks_memory) {
            status_free(status);
            status = status_out_of_memory();
        }
    }
    if (!status) return NULL;
    graph_destroy(graph);
    out->graph = NULL;
    return status;
}
