/* SPDX-License-Identifier: Apache-2.0 */
/* Collects kernels and chooses sizes. Sizes are values of the graph's symbols, so whatever relation the model has
 * between its shapes holds; a choice under which some access would leave its tensor is one that no input can give, and
 * is dropped. */
#include "cases.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "importer/importer.h"
#include "passes/passes.h"
#include "programs.h"
#include "random_graph.h"
#include "runtime/device/device.h"
#include "runtime/api/devices.h"

enum {
    MOST_BINDINGS = 10,
    MOST_BYTES = 192 << 20, /* of all buffers of a kernel */
    MOST_SYMBOLS = 4,       /* that are made long, or zero, one at a time */
};

static struct EpilogueLimits epilogue_of(DeviceKind device) {
    for (const DeviceTable *const *t = device_tables(); *t; t++)
        if ((*t)->kind == device) return (*t)->epilogue;
    return (struct EpilogueLimits){0};
}

Status cases_create(DeviceKind device, int64_t most_work, Cases **out_cases) {
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Cases *c = ARENA_NEW(arena, Cases);
    *c = (Cases){.arena = arena, .policy = policy_default(), .most_work = most_work, .by_text = map_make(arena)};
    c->policy.device = device;
    c->policy.target.level = "host";
    c->policy.target.epilogue = epilogue_of(device);
    Status status = target_resolve(arena, &c->policy.target);
    c->policy.target.device = device;
    *out_cases = c;
    return status;
}

void cases_destroy(Cases *cases) {
    if (!cases) return;
    program_recorder_close(cases->recorder);
    arena_destroy(cases->arena);
}

/* --- sizes -------------------------------------------------------------------------------------------------- */
int64_t kernel_axis_size(const Kernel *kernel, int axis, const int64_t *params) {
    const KernelAxis *a = &kernel->axes[axis];
    return a->param < 0 ? a->size : params[a->param];
}

size_t binding_bytes(const KernelCase *c, const Binding *binding, int buffer) {
    return (size_t)binding->elements[buffer] * dtype_size(c->kernel->buffers.items[buffer].dtype);
}

static int64_t stride_of(StrideKind kind, int64_t value, const int64_t *params) {
    return kind == STRIDE_ZERO ? 0 : kind == STRIDE_ONE ? 1 : kind == STRIDE_CONST ? value : params[value];
}

/* The elements that an access touches: false when it leaves its tensor at the front. */
static bool access_range(const Kernel *k, const KernelAccess *access, const int64_t *params, int64_t *out_last) {
    __int128 first = stride_of(access->offset_kind, access->offset, params), last = first;
    for (int a = 0; a < k->axis_count; a++) {
        int64_t size = kernel_axis_size(k, a, params);
        __int128 way = (__int128)stride_of(access->kind[a], access->stride[a], params) * (size > 1 ? size - 1 : 0);
        *(way < 0 ? &first : &last) += way;
    }
    *out_last = (int64_t)last;
    return first >= 0 && last < (1 << 30);
}

/* Fills elements and work; false when no input can give such sizes, or they are beyond the budget. */
static bool measure(const Cases *cases, const Kernel *k, Binding *b, bool *out_too_large) {
    __int128 points = k->stage_count;
    for (int a = 0; a < k->axis_count; a++) {
        int64_t size = kernel_axis_size(k, a, b->params);
        if (size < 0 || size > (1 << 30) || (k->axes[a].multiple > 1 && size % k->axes[a].multiple)) return false;
        points *= size;
        if (points > (int64_t)1 << 50) points = (int64_t)1 << 50;
    }
    b->work = (int64_t)(points * k->insts.count);
    *out_too_large = b->work > cases->most_work;
    size_t bytes = 0;
    for (int i = 0; i < k->buffers.count; i++) b->elements[i] = 1;
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *inst = &k->insts.items[i];
        if (inst->op != K_LOAD && inst->op != K_STORE) continue;
        int64_t last;
        if (!access_range(k, inst->access, b->params, &last)) return false;
        if (b->elements[inst->buffer] <= last) b->elements[inst->buffer] = last + 1;
    }
    for (int i = 0; i < k->buffers.count; i++) bytes += (size_t)b->elements[i] * dtype_size(k->buffers.items[i].dtype);
    if (bytes > MOST_BYTES) *out_too_large = true;
    return !*out_too_large;
}

typedef struct Chooser {
    Cases *cases;
    KernelCase *c;
    DimTable *dims;
    const RegionKernel *region;
    int64_t *symbols; /* [dim_symbol_count] */
    int symbol_count;
    int *used; /* [used_count] symbols of the parameters */
    int used_count;
    bool *is_used;
} Chooser;

/* Takes the present values when they are possible and new. */
static bool take(Chooser *ch) {
    const Kernel *k = ch->region->kernel;
    if (ch->c->bindings.count >= MOST_BINDINGS) return false;
    Arena *arena = ch->cases->arena;
    Binding b = {ARENA_ARRAY(arena, int64_t, k->param_count + 1), ARENA_ARRAY(arena, int64_t, k->buffers.count + 1), 0};
    for (int p = 0; p < k->param_count; p++) {
        b.params[p] = dim_eval(ch->region->params[p], ch->symbols);
        if (b.params[p] == UNBOUND_DIM) return false;
        int64_t multiple = k->param_multiples ? k->param_multiples[p] : 1;
        if (multiple > 1 && b.params[p] % multiple) return false;
    }
    bool too_large = false, possible = measure(ch->cases, k, &b, &too_large);
    if (too_large) ch->c->too_large = true;
    if (!possible) return false;
    for (int i = 0; i < ch->c->bindings.count; i++)
        if (!memcmp(ch->c->bindings.items[i].params, b.params, sizeof *b.params * (size_t)k->param_count)) return true;
    VEC_PUSH(arena, ch->c->bindings, b);
    return true;
}

static void note_symbol(int index, void *context) {
    Chooser *ch = context;
    if (index >= ch->symbol_count || ch->is_used[index]) return;
    ch->is_used[index] = true;
    if (strcmp(dim_symbol_name(ch->dims, index), "$run") != 0) ch->used[ch->used_count++] = index;
}

static void set_all(Chooser *ch, int64_t value) {
    for (int i = 0; i < ch->used_count; i++) ch->symbols[ch->used[i]] = value;
}

static bool take_odd(Chooser *ch) { /* distinct, odd, beyond a warp */
    static const int64_t odd[] = {7, 37, 5, 13, 3, 11, 19, 9};
    for (int i = 0; i < ch->used_count; i++) ch->symbols[ch->used[i]] = odd[i % 8];
    return take(ch);
}

/* Several sizes for a region: odd ones, round ones (vectors without tails), ones, one long, one zero. */
static void choose_sizes(Chooser *ch) {
    static const int64_t round[] = {16, 64, 8, 32}, longest[] = {20483, 4099, 1030, 260};
    int found = take_odd(ch);
    if (!ch->used_count) return;
    for (int i = 0; i < ch->used_count; i++) ch->symbols[ch->used[i]] = round[i % 4];
    found += take(ch);
    for (int s = 0; s < ch->used_count && s < MOST_SYMBOLS; s++)
        for (size_t n = 0; n < sizeof longest / sizeof *longest; n++) {
            set_all(ch, 3);
            ch->symbols[ch->used[s]] = longest[n];
            if (take(ch)) break;
        }
    for (int s = 0; s < ch->used_count && s < 2; s++) {
        set_all(ch, 3);
        ch->symbols[ch->used[s]] = 0;
        take(ch);
    }
    for (int s = 0; s < ch->used_count && s < 2; s++) /* long, and whole vectors */
        for (size_t n = 0; n < sizeof longest / sizeof *longest; n++) {
            set_all(ch, 16);
            ch->symbols[ch->used[s]] = longest[n] / 64 * 64;
            if (take(ch)) break;
        }
    set_all(ch, 1);
    take(ch);
    uint64_t state = 88172645463325252u; /* what a model asks of its sizes (a window that fits, say) is met by luck */
    for (int tries = 0; found == 0 && tries < 400; tries++) {
        for (int i = 0; i < ch->used_count; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            ch->symbols[ch->used[i]] = 1 + (int64_t)(state % (tries < 200 ? 40 : 700));
        }
        found += take(ch);
    }
}

/* "n=4096,m=64" */
static void set_given(Chooser *ch, const char *sizes) {
    for (const char *at = sizes; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const char *equals = strchr(at, '=');
        if (!equals) return;
        for (int s = 0; s < ch->symbol_count; s++) {
            const char *name = dim_symbol_name(ch->dims, s);
            if (strlen(name) == (size_t)(equals - at) && !memcmp(name, at, strlen(name)))
                ch->symbols[s] = strtoll(equals + 1, NULL, 10);
        }
    }
}

static void bind(Cases *cases, KernelCase *c, DimTable *dims, const RegionKernel *region, const char *sizes) {
    int count = dim_symbol_count(dims);
    Arena *arena = cases->arena;
    Chooser ch = {cases, c, dims, region, ARENA_ARRAY(arena, int64_t, count + 1), count};
    ch.used = ARENA_ARRAY(arena, int, count + 1);
    ch.is_used = ARENA_ARRAY(arena, bool, count + 1);
    for (int s = 0; s < count; s++) ch.symbols[s] = 12345; /* "$run", and what no parameter reads */
    for (int p = 0; p < region->kernel->param_count; p++) dim_each_symbol(region->params[p], note_symbol, &ch);
    if (!sizes) {
        choose_sizes(&ch);
        return;
    }
    set_given(&ch, sizes);
    take(&ch);
}

/* --- kernels ------------------------------------------------------------------------------------------------ */
static int *inplace_buffers(Arena *arena, const RegionKernel *region) {
    int *inplace = ARENA_ARRAY(arena, int, region->buffer_count + 1);
    for (int b = 0; b < region->buffer_count; b++) {
        inplace[b] = -1;
        int output = region->buffer_output[b];
        for (int i = 0; i < region->buffer_count && output >= 0 && inplace[b] < 0; i++) {
            int input = region->buffer_input[i];
            bool taken = input < 0 || input >= 64 || !(region->inplace[output] >> input & 1);
            for (int before = 0; before < b; before++) taken |= inplace[before] == i;
            if (!taken) inplace[b] = i;
        }
    }
    return inplace;
}

static Status add_region(Cases *cases, const Node *node, const char *where, const char *sizes) {
    RegionKernel region;
    Arena *scratch = arena_create(0);
    if (!scratch) return status_out_of_memory();
    cases->regions++;
    Status status = codegen_region(scratch, node->graph->dims, node, &cases->policy.target, &region);
    if (status) {
        arena_destroy(scratch);
        return status_at(status, "%s", where);
    }
    KernelCase *known = map_get(&cases->by_text, kernel_text(scratch, region.kernel));
    if (!known) {
        known = ARENA_NEW(cases->arena, KernelCase);
        codegen_region(cases->arena, node->graph->dims, node, &cases->policy.target, &region);
        known->kernel = region.kernel;
        known->text = kernel_text(cases->arena, region.kernel);
        known->origin = arena_format(cases->arena, "%s: %s", where, node_origin_name(node));
        known->inplace = inplace_buffers(cases->arena, &region);
        map_set(&cases->by_text, known->text, known);
        VEC_PUSH(cases->arena, cases->items, known);
    }
    if (known->bindings.count < MOST_BINDINGS) bind(cases, known, node->graph->dims, &region, sizes);
    arena_destroy(scratch);
    return NULL;
}

static Status add_graph(Cases *cases, const Graph *graph, const char *where, const char *sizes) {
    FOR_EACH_NODE(node, graph) {
        if (node->kind == NODE_REGION) {
            TRY(add_region(cases, node, where, sizes));
            continue;
        }
        if (cases->recorder) TRY(status_at(program_recorder_add(cases->recorder, node, where), "%s", where));
        for (int i = 0; i < node->subgraph_count; i++) TRY(add_graph(cases, node->subgraphs[i], where, sizes));
    }
    return NULL;
}

/* Of a graph that is made of primitives. */
static Status run_passes(Graph *graph, const Policy *policy) {
    for (const Pass *p = pipeline(); p->name; p++)
        if (strcmp(p->name, "lower") != 0) TRY(p->run(graph, policy));
    return NULL;
}

static Status add_model(Cases *cases, const char *path, const char *sizes) {
    Graph *graph = NULL;
    cases->models++;
    Status status = import_file(path, NULL, &graph);
    if (!status) status = pipeline_run(graph, &cases->policy, NULL, NULL);
    if (status) { /* what the CPU does not run either */
        status_free(status);
        cases->refused++;
    } else {
        status = add_graph(cases, graph, path, sizes);
        graph_destroy(graph);
        return status;
    }
    graph_destroy(graph);
    return NULL;
}

static bool ends_in(const char *name, const char *end) {
    size_t length = strlen(name), size = strlen(end);
    return length > size && !strcmp(name + length - size, end);
}

/* A graph of primitives as text. */
static Status add_text(Cases *cases, const char *path, const char *sizes) {
    char *text = NULL;
    size_t capacity = 0;
    FILE *file = fopen(path, "r");
    if (!file || getdelim(&text, &capacity, 0, file) < 0) text = NULL;
    if (file) fclose(file);
    if (!text) return status_error(STATUS_INVALID, "%s cannot be read", path);
    Graph *graph = NULL;
    cases->models++;
    Status status = status_at(graph_parse(text, &graph), "%s", path);
    if (!status) status = run_passes(graph, &cases->policy);
    if (!status) status = add_graph(cases, graph, path, sizes);
    graph_destroy(graph);
    free(text);
    return status;
}

static Status add_file(Cases *cases, const char *path, const char *sizes) {
    return ends_in(path, ".onnx")    ? add_model(cases, path, sizes)
           : ends_in(path, ".graph") ? add_text(cases, path, sizes)
                                     : NULL;
}

static Status add_folder(Cases *cases, const char *path, const char *sizes) {
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0) return status_error(STATUS_INVALID, "%s: cannot be read", path);
    Status status = NULL;
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        char *inner = NULL;
        struct stat info;
        if (!status && name[0] != '.' && asprintf(&inner, "%s/%s", path, name) >= 0 && !stat(inner, &info)) {
            if (S_ISDIR(info.st_mode))
                status = add_folder(cases, inner, sizes);
            else
                status = add_file(cases, inner, sizes);
        }
        free(inner);
        free(entries[i]);
    }
    free(entries);
    return status;
}

Status cases_add(Cases *cases, const char *path, const char *sizes) {
    struct stat info;
    if (stat(path, &info)) return status_error(STATUS_INVALID, "%s: no such file or folder", path);
    return S_ISDIR(info.st_mode) ? add_folder(cases, path, sizes) : add_file(cases, path, sizes);
}

Status cases_add_random(Cases *cases, int count) {
    for (int seed = 1; seed <= count; seed++) {
        RandomOptions options = {.nodes = seed % 3 == 0 ? 40 : seed % 3 == 1 ? 6 : 16, .anchors = seed % 2 == 0};
        RandomGraph *random = random_graph((uint64_t)seed, options);
        char *where = arena_format(cases->arena, "random graph %d", seed);
        cases->models++;
        Status status = run_passes(random->graph, &cases->policy);
        if (!status) status = add_graph(cases, random->graph, where, NULL);
        graph_destroy(random->graph);
        TRY(status);
    }
    return NULL;
}
