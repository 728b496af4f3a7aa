/* SPDX-License-Identifier: Apache-2.0 */
/* What models of many nodes cost: counts and bytes that must not grow with the square of the nodes, and stacks that must not
 * grow with them at all. bench/growth.py has the seconds. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "models.h"
#include "base/heap.h"
#include "passes/passes.h"
#include "runtime/plan/plan.h"
#include "runtime/api/devices.h"
#include "runtime/inspect/report.h"
#include "runtime/run/run.h"
#include "small_stack.h"

enum { NODES = 20000, LONG_CHAIN = 100000 };

static Value *onnx(Graph *graph, const char *op, Value *const *inputs, int count) {
    Node *node = graph_add_node(graph, NULL, NODE_ONNX, op, inputs, count);
    node->opset = 21;
    return node_add_output(node, NULL, DT_NONE, -1, NULL);
}

static Value *input(Graph *graph, const char *name, DType dtype, const char *symbol) {
    const Dim *dims[] = {symbol ? dim_symbol(graph->dims, symbol) : dim_const(graph->dims, 1)};
    return graph_add_input(graph, name, dtype, 1, dims);
}

static Policy policy_of(Graph *graph) {
    Policy policy = policy_default();
    policy.cache.enable = false;
    policy.threads = 1;
    policy.device = DEVICE_CPU;
    Status status = target_resolve(graph->arena, &policy.target);
    cr_assert(!status, "%s", status_message(status));
    return policy;
}

static void lower(Graph *graph, const Policy *policy) {
    Status status = pipeline_run(graph, policy, NULL, NULL);
    cr_assert(!status, "%s", status_message(status));
}

/* A chain of pointwise operators, ten kinds in turn. */
static Graph *pointwise(int nodes, bool all_outputs) {
    static const char *const ops[] = {"Relu", "Neg", "Abs",  "Sqrt", "Floor",
                                      "Relu", "Exp", "Ceil", "Sign", "Reciprocal"};
    Graph *graph = graph_create(0);
    Value *x = input(graph, "x", DT_F32, "n");
    for (int i = 0; i < nodes; i++) {
        x = onnx(graph, ops[i % 10], &x, 1);
        if (all_outputs || i + 1 == nodes) graph_add_output(graph, x);
    }
    return graph;
}

typedef struct Growth {
    int kernels, steps; /* different kernels */
    int exprs;
    size_t bytes; /* of the graph and the plan together */
} Growth;

static Growth cost_of(Graph *graph) {
    Policy policy = policy_of(graph);
    Device *device;
    Plan *plan;
    KernelCacheStats stats = {0};
    lower(graph, &policy);
    Status status = device_open(&policy, &device);
    if (!status) status = plan_create(graph, device, device, &stats, &plan);
    cr_assert(!status, "%s", status_message(status));
    Map seen = map_make(graph->arena);
    Growth cost = {.steps = plan->step_count,
                   .exprs = plan->exprs.count,
                   .bytes = arena_bytes(graph->arena) + arena_bytes(plan->arena)};
    for (int s = 0; s < plan->step_count; s++) {
        uint64_t key = MAP_POINTER_KEY(plan->steps[s].region.kernel);
        cost.kernels += key && !map_get_id(&seen, key);
        map_set_id(&seen, key, plan);
    }
    plan_destroy(plan);
    device->table->close(device);
    graph_destroy(graph);
    return cost;
}

/* Of regions that are alike one kernel is kept, and of values that are alike one list of sizes. */
Test(growth, a_long_chain, .timeout = 300) {
    Growth half = cost_of(pointwise(NODES / 2, false)), whole = cost_of(pointwise(NODES, false));
    cr_expect_lt(whole.kernels, 12, "%d kernels", whole.kernels);
    cr_expect_lt(whole.exprs, 50, "%d expressions", whole.exprs);
    cr_expect_lt(whole.bytes, (size_t)NODES * 3000, "%zu bytes a node", whole.bytes / NODES);
    cr_expect_lt(whole.bytes, 5 * half.bytes / 2, "%zu bytes, of half the nodes %zu", whole.bytes, half.bytes);
}

Test(growth, every_value_an_output, .timeout = 300) {
    Growth cost = cost_of(pointwise(NODES, true));
    cr_expect_lt(cost.kernels, 12, "%d kernels", cost.kernels);
    cr_expect_lt(cost.bytes, (size_t)NODES * 4000, "%zu bytes a node", cost.bytes / NODES);
}

/* --- a residual stream and its gradients --- */
/* A layer of a stream t0, t1, ...; %1$d and %2$d are its number and the next one's. Its weights w and u are inputs. */
static const char *const streams[] = {
    "h%1$d = onnx LayerNormalization@17 t%1$d, scale {axis = -1}\na%1$d = onnx MatMul@13 h%1$d, w%1$d\n"
    "b%1$d = onnx Gelu@20 a%1$d\nc%1$d = onnx MatMul@13 b%1$d, u%1$d\nt%2$d = onnx Add@14 t%1$d, c%1$d\n",
    "a%1$d = onnx Tanh@13 t%1$d\nb%1$d = onnx MatMul@13 a%1$d, w%1$d\nm%1$d = onnx Add@14 b%1$d, t%1$d\n"
    "c%1$d = onnx Tanh@13 m%1$d\nd%1$d = onnx MatMul@13 c%1$d, u%1$d\nt%2$d = onnx Add@14 d%1$d, m%1$d\n",
    "a%1$d = onnx Mul@14 t%1$d, t%1$d\nb%1$d = onnx Exp@13 a%1$d\nc%1$d = onnx MatMul@13 b%1$d, w%1$d\nd%1$d = onnx "
    "MatMul@13 c%1$d, u%1$d\n"
    "e%1$d = onnx Mul@14 t%1$d, half\nt%2$d = onnx Add@14 e%1$d, d%1$d\n",
};

static Graph *residual_stream(const char *layer, int layers) {
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    text_add(&text, "opset 20\nopset \"ai.onnx.preview.training\" 1\ngraph (t0: f32[n, 32]");
    for (int i = 0; i < layers; i++) text_add(&text, ", w%d: f32[32, 32], u%d: f32[32, 32]", i, i);
    text_add(&text, ") -> (t%d, g0", layers);
    for (int i = 0; i < layers; i++) text_add(&text, ", gw%d, gu%d", i, i);
    text_add(&text, ") {\nscale = constant f32[1] {1}\nhalf = constant f32[] 0.5\n");
    for (int i = 0; i < layers; i++) text_add(&text, layer, i, i + 1);
    text_add(&text, "loss = onnx ReduceSumSquare@18 t%d {keepdims = 0}\ng0", layers);
    for (int i = 0; i < layers; i++) text_add(&text, ", gw%d, gu%d", i, i);
    text_add(&text, " = onnx \"ai.onnx.preview.training\" Gradient@1 t0");
    for (int i = 0; i < layers; i++) text_add(&text, ", w%d, u%d", i, i);
    text_add(&text, " {xs = [\"t0\"");
    for (int i = 0; i < layers; i++) text_add(&text, ", \"w%d\", \"u%d\"", i, i);
    text_add(&text, "], y = \"loss\"}\n}\n");
    Graph *graph = NULL;
    Status status = graph_parse(text.data, &graph);
    cr_assert(!status, "%s\n%s", status_message(status), text.data);
    arena_destroy(arena);
    return graph;
}

/* What is computed again for the backward pass stays within its layer: layers have the same steps and kernels, however many there are. */
Test(growth, residual_streams_and_their_gradients, .timeout = 300) {
    for (size_t s = 0; s < sizeof streams / sizeof *streams; s++) {
        Growth one = cost_of(residual_stream(streams[s], 1)), few = cost_of(residual_stream(streams[s], 8)),
               more = cost_of(residual_stream(streams[s], 32)), many = cost_of(residual_stream(streams[s], 128));
        cr_expect_eq(few.kernels, more.kernels, "stream %zu: %d kernels, then %d", s, few.kernels, more.kernels);
        cr_expect_eq(few.kernels, many.kernels, "stream %zu: %d kernels, then %d", s, few.kernels, many.kernels);
        cr_expect_eq(many.steps - more.steps, 4 * (more.steps - few.steps), "stream %zu: %d, %d, %d, %d steps", s,
                     one.steps, few.steps, more.steps, many.steps);
        cr_expect_lt(many.bytes, 9 * more.bytes / 2, "stream %zu: %zu bytes, of a quarter of it %zu", s, many.bytes,
                     more.bytes);
    }
}

/* An order of the steps that is left out since it would take too long is told. */
Test(growth, orders_that_are_not_tried_are_told, .timeout = 300) {
    for (int more = 0; more < 2; more++) {
        Graph *graph = graph_create(0);
        const Dim *dims[] = {dim_symbol(graph->dims, "n")};
        Value *x = graph_add_input(graph, "x", DT_STRING, 1, dims), *y = x;
        for (int i = 0; i < NODES + more; i++) y = onnx(graph, "StringConcat", (Value *[]){y, x}, 2);
        graph_add_output(graph, y);
        Policy policy = policy_of(graph);
        policy.fusion.memory_efficient = true;
        Device *device;
        Plan *plan;
        KernelCacheStats stats = {0};
        lower(graph, &policy);
        Status status = device_open(&policy, &device);
        if (!status) status = plan_create(graph, device, device, &stats, &plan);
        cr_assert(!status, "%s", status_message(status));
        Text text = text_make(graph->arena);
        plan_print_orders(&text, plan);
        cr_expect_eq(strstr(text.data, "20001 nodes in one graph are too many") != NULL, more, "%s", text.data);
        plan_destroy(plan);
        device->table->close(device);
        graph_destroy(graph);
    }
}

/* --- small stacks --------------------------------------------------------------------------------------------- */
/* A shape that is joined piece by piece; what it comes to is asked of the whole chain. */
static void *lower_joined_shape(void *unused) {
    (void)unused;
    Graph *graph = graph_create(0);
    Value *x = input(graph, "x", DT_F32, "n"), *shape = input(graph, "c", DT_I64, NULL),
          *more = input(graph, "k", DT_I64, NULL);
    for (int i = 0; i < LONG_CHAIN; i++) {
        shape = onnx(graph, "Concat", (Value *[]){shape, more}, 2);
        node_set_int(shape->producer, "axis", 0);
    }
    graph_add_output(graph, onnx(graph, "Tile", (Value *[]){x, shape}, 2));
    Policy policy = policy_of(graph);
    Status status = pipeline_run(graph, &policy, NULL, NULL); /* one axis, and 100,001 counts: an error */
    cr_expect(status);
    status_free(status);
    graph_destroy(graph);
    return NULL;
}

static void *lower_pointwise(void *unused) {
    (void)unused;
    Graph *graph = pointwise(LONG_CHAIN, false);
    Policy policy = policy_of(graph);
    lower(graph, &policy);
    graph_destroy(graph);
    return NULL;
}

/* Attention of which `link` is what all of a long chain is made of, in the text form of a graph; %1$d and %2$d are the numbers of
 * a value and of the one after it. The chain begins at c0 and ends where `end` reads it. */
static void lower_attention(const char *link, int links, const char *begin, const char *end) {
    Graph *graph;
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    text_add(&text,
             "graph (q: f32[2, 3, n, 4], k: f32[2, 3, 4, n], v: f32[2, 3, n, 4], m: bool[2, 3, n, n], b: f32[2, 3, n, "
             "n]) -> (y) {\n"
             "s = onnx MatMul@21 q, k\nlow = constant f32[] -1e9\nzero = constant f32[] 0\n%s\n",
             begin);
    for (int i = 0; i < links; i++) text_add(&text, link, i, i + 1);
    text_add(&text, end, links);
    text_add(&text, "p = onnx Softmax@21 t {axis = -1}\ny = onnx MatMul@21 p, v\n}\n");
    Status status = graph_parse(text.data, &graph);
    cr_assert(!status, "%s", status_message(status));
    arena_destroy(arena);
    Policy policy = policy_of(graph);
    policy.target.anchors.attention = true;
    lower(graph, &policy);
    graph_destroy(graph);
}

static void *lower_negated_mask(void *unused) {
    lower_attention("c%2$d = onnx Not@21 c%1$d\n", LONG_CHAIN, "c0 = onnx Identity@21 m",
                    "t = onnx Where@21 c%d, s, low\n");
    return unused;
}

static void *lower_joined_masks(void *unused) {
    lower_attention("c%2$d = onnx And@21 c%1$d, m\n", LONG_CHAIN, "c0 = onnx IsInf@21 b",
                    "t = onnx Where@21 c%d, s, low\n");
    return unused;
}

static void *lower_added_zeros(void *unused) {
    lower_attention("c%2$d = onnx Add@21 c%1$d, zero\n", 60, "c0 = onnx Identity@21 s", "t = onnx Identity@21 c%d\n");
    return unused;
}

/* What onnxfuse_optimize looks for in products of products. */
static void *optimize_product(void *unused) {
    char path[] = "/tmp/onnxfuse_growth_XXXXXX", out_path[sizeof path + 8];
    int file = mkstemp(path);
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    text_add(&text, "graph (c0: f32[n], x: f32[n]) -> (c%d) {\n", LONG_CHAIN);
    for (int i = 0; i < LONG_CHAIN; i++) text_add(&text, "c%d = onnx Mul@21 c%d, x\n", i + 1, i);
    text_add(&text, "}\n");
    size_t size;
    void *bytes = model_bytes(text.data, &size);
    arena_destroy(arena);
    cr_assert(file >= 0 && write(file, bytes, size) == (ssize_t)size);
    close(file);
    free(bytes);
    snprintf(out_path, sizeof out_path, "%s.onnx", path);
    Status status = onnxfuse_optimize(path, out_path, NULL, NULL);
    cr_expect(!status, "%s", status_message(status));
    status_free(status);
    unlink(path);
    unlink(out_path);
    return unused;
}

Test(growth, stack_of_joined_shapes, .timeout = 300) { on_small_stack(lower_joined_shape, NULL); }
Test(growth, stack_of_pointwise_operators, .timeout = 300) { on_small_stack(lower_pointwise, NULL); }
Test(growth, stack_of_a_negated_mask, .timeout = 300) { on_small_stack(lower_negated_mask, NULL); }
Test(growth, stack_of_joined_masks, .timeout = 300) { on_small_stack(lower_joined_masks, NULL); }
Test(growth, stack_of_added_zeros, .timeout = 300) { on_small_stack(lower_added_zeros, NULL); }
Test(growth, stack_of_a_product, .timeout = 300) { on_small_stack(optimize_product, NULL); }

/* --- searches ------------------------------------------------------------------------------------------------- */
/* Whether a weight is made of constants is noted once a value: nine levels of which each reads the one before it a hundred
 * times have more paths than can be walked. */
Test(growth, weights_made_in_many_ways, .timeout = 60) {
    enum { LEVELS = 9, READS = 100, SIZE = 64 };
    Graph *graph = graph_create(0);
    const Dim *dims[] = {dim_symbol(graph->dims, "n"), dim_const(graph->dims, SIZE)};
    Value *x = graph_add_input(graph, "x", DT_F32, 2, dims), *reads[READS];
    Value *w = graph_add_constant(graph, "w", tensor_new(graph->arena, DT_F32, 2, (int64_t[]){SIZE, SIZE}));
    for (int level = 0; level < LEVELS; level++) {
        for (int i = 0; i < READS; i++) reads[i] = w;
        w = onnx(graph, "Max", reads, READS);
    }
    graph_add_output(graph, onnx(graph, "MatMul", (Value *[]){x, w}, 2));
    Policy policy = policy_of(graph);
    static const char json[] = "{\"rules\": [{\"match\": {\"operator\": \"MatMul\"}, \"weights\": \"int8\"}]}";
    Status status = policy_parse(json, sizeof json - 1, "policy", graph->arena, &policy);
    cr_assert(!status, "%s", status_message(status));
    lower(graph, &policy);
    graph_destroy(graph);
}

/* --- memory between runs ---------------------------------------------------------------------------------------- */
static int allocated;
static const DeviceTable *plain;

static Status count_allocate(Device *device, Stream *stream, Memory *memory, size_t bytes, void **out_data) {
    allocated++;
    return plain->allocate(device, stream, memory, bytes, out_data);
}

Test(growth, arenas_of_shapes_that_alternate_are_kept) {
    Graph *graph = graph_create(0);
    Policy policy = policy_of(graph);
    Device *device;
    Memory memory;
    Status status = device_open(&policy, &device);
    cr_assert(!status, "%s", status_message(status));
    memory_init(&memory, 0);
    plain = device->table;
    DeviceTable counting = *plain;
    counting.allocate = count_allocate;
    device->table = &counting;
    struct RunMemory *buffers = run_memory_create(device, device, &memory);
    static const size_t sizes[] = {1 << 16, 1 << 22, 1 << 19, 1 << 22};
    for (int run = 0; run < 100; run++) {
        Block block;
        status = run_memory_take(buffers, PLACE_HOST, sizes[run % 4], &block);
        cr_assert(!status && block.bytes >= sizes[run % 4]);
        run_memory_give(buffers, PLACE_HOST, block);
    }
    cr_expect_eq(allocated, 3, "%d allocations for three sizes", allocated);
    for (size_t size = 1 << 16; size < 1 << 20; size += 1 << 12) { /* shapes that grow do not pile up */
        Block block;
        status = run_memory_take(buffers, PLACE_HOST, size, &block);
        cr_assert(!status);
        run_memory_give(buffers, PLACE_HOST, block);
    }
    cr_expect_lt(atomic_load(&memory.used), (size_t)8 << 20, "%zu bytes are kept", atomic_load(&memory.used));
    run_memory_destroy(buffers);
    cr_expect_eq(atomic_load(&memory.used), 0);
    device->table = plain;
    device->table->close(device);
    graph_destroy(graph);
}

/* Of 20 runs at once, 16 leave their arenas behind; streams likewise, which the CPU has none of. */
Test(growth, at_most_16_arenas_are_kept) {
    enum { RUNS = 20, KEPT = 16, BYTES = 1 << 16 };
    Graph *graph = graph_create(0);
    Policy policy = policy_of(graph);
    Device *device;
    Memory memory;
    Block blocks[RUNS];
    Status status = device_open(&policy, &device);
    cr_assert(!status, "%s", status_message(status));
    memory_init(&memory, 0);
    struct RunMemory *buffers = run_memory_create(device, device, &memory);
    for (int i = 0; i < RUNS; i++) {
        status = run_memory_take(buffers, PLACE_HOST, BYTES, &blocks[i]);
        cr_assert(!status, "%s", status_message(status));
    }
    size_t each = atomic_load(&memory.used) / RUNS;
    for (int i = 0; i < RUNS; i++) run_memory_give(buffers, PLACE_HOST, blocks[i]);
    cr_expect_eq(atomic_load(&memory.used), KEPT * each, "%zu bytes of %zu each are kept", atomic_load(&memory.used),
                 each);
    run_memory_trim(buffers);
    cr_expect_eq(atomic_load(&memory.used), 0);
    run_memory_destroy(buffers);
    device->table->close(device);
    graph_destroy(graph);
}

/* --- sequences -------------------------------------------------------------------------------------------------- */
static size_t heap_bytes;

static void *counting_allocate(void *user, size_t bytes) {
    (void)user;
    heap_bytes += bytes;
    return aligned_alloc(HEAP_ALIGNMENT, (bytes + HEAP_ALIGNMENT - 1) / HEAP_ALIGNMENT * HEAP_ALIGNMENT);
}

static void counting_release(void *user, void *memory, size_t bytes) {
    (void)user;
    (void)bytes;
    free(memory);
}

/* Bytes taken while a loop of `trips` puts its input into a sequence, in every second trip inside a branch. */
static size_t bytes_of_appending(int64_t trips) {
    static const char text[] =
        "graph (n: i64[], x: f32[1024]) -> (y) {\n"
        "  e = onnx SequenceEmpty@21\n"
        "  s = onnx Loop@21 n, _, e, x captures 1 graph \"body\" (i: i64[], c: bool[], q: seq(f32[*]), x: f32[1024]) "
        "-> "
        "(c, r) {\n"
        "    two = constant i64[] 2\n    k = onnx Mod@21 i, two\n    b = onnx Cast@21 k {to = 9}\n"
        "    p = onnx SequenceInsert@21 q, x\n"
        "    r = onnx If@21 b, p, x captures 2 graph \"then\" (q: seq(f32[*]), x: f32[1024]) -> (u) {\n"
        "      u = onnx SequenceInsert@21 q, x\n    } graph \"else\" (q: seq(f32[*]), x: f32[1024]) -> (q) {\n    }\n"
        "  }\n"
        "  y = onnx SequenceLength@21 s\n}\n";
    Graph *graph;
    Plan *plan;
    Device *device;
    Memory memory;
    KernelCacheStats stats = {0};
    Status status = graph_parse(text, &graph);
    cr_assert(!status, "%s", status_message(status));
    Policy policy = policy_of(graph);
    lower(graph, &policy);
    status = device_open(&policy, &device);
    if (!status) status = plan_create(graph, device, device, &stats, &plan);
    cr_assert(!status, "%s", status_message(status));
    memory_init(&memory, 0);
    float x[1024] = {1};
    atomic_size_t peak = 0;
    const Item items[] = {{.kind = ITEM_TENSOR, .tensor = {.dtype = DT_I64, .data = &trips}},
                          {.kind = ITEM_TENSOR, .tensor = {.dtype = DT_F32, .rank = 1, .dims = {1024}, .data = x}}};
    RunOutput output = {0};
    Run run = {.memory = &memory, .buffers = run_memory_create(device, device, &memory), .peak_arena = &peak};
    size_t before = heap_bytes;
    status = plan_run(plan, &run, NULL, (const Item *const[]){&items[0], &items[1]}, &output);
    size_t bytes = heap_bytes - before;
    cr_assert(!status, "%s", status_message(status));
    cr_expect_eq(*(const int64_t *)output.item.tensor.data, trips + trips / 2);
    item_free(&memory, &output.item);
    run_memory_destroy(run.buffers);
    cr_expect_eq(atomic_load(&memory.used), 0);
    plan_destroy(plan);
    device->table->close(device);
    graph_destroy(graph);
    return bytes;
}

/* What a loop puts into a sequence is copied once, not once more in each later trip. */
Test(growth, sequences_grow_in_place, .timeout = 60) {
    Status status = heap_set_host((HeapHost){counting_allocate, counting_release, NULL});
    cr_assert(!status, "%s", status_message(status));
    size_t some = bytes_of_appending(64), more = bytes_of_appending(256);
    cr_expect_lt(more, 5 * some, "256 trips take %zu bytes, 64 take %zu", more, some);
}

/* One If anywhere does not keep the weights that products have packed, unless a branch reads them as well. */
Test(growth, weights_beside_control_flow_are_held_once) {
    for (int shared = 0; shared < 2; shared++) {
        char text[2000];
        snprintf(text, sizeof text,
                 "graph (c: bool[], x: f32[n, 4]) -> (y) {\n"
                 "  w = constant f32[4, 4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}\n"
                 "  a = onnx MatMul@21 x, w\n"
                 "  y = onnx If@21 c, a, w captures 2 graph \"then\" (a: f32[n, 4], w: f32[4, 4]) -> (p) {\n"
                 "    p = onnx Neg@21 a\n  } graph \"else\" (a: f32[n, 4], w: f32[4, 4]) -> (q) {\n"
                 "    q = onnx %s\n  }\n}\n",
                 shared ? "MatMul@21 a, w" : "Abs@21 a");
        Graph *graph;
        Plan *plan;
        Device *device;
        KernelCacheStats stats = {0};
        Status status = graph_parse(text, &graph);
        cr_assert(!status, "%s", status_message(status));
        Policy policy = policy_of(graph);
        lower(graph, &policy);
        status = device_open(&policy, &device);
        if (!status) status = plan_create(graph, device, device, &stats, &plan);
        cr_assert(!status, "%s", status_message(status));
        cr_expect_eq(plan->constant_bytes, (size_t)(shared ? 64 : 0), "shared %d: %zu bytes", shared,
                     plan->constant_bytes);
        plan_destroy(plan);
        device->table->close(device);
        graph_destroy(graph);
    }
}

/* --- weights that nodes share ----------------------------------------------------------------------------------- */
enum { WIDTH = 256 };

/* One layer `layers` times: products by a weight as it is and turned, with a bias, and a convolution. The weights are three. */
static Graph *same_layer(int layers) {
    Graph *graph = graph_create(0);
    const Dim *dims[] = {dim_symbol(graph->dims, "n"), dim_const(graph->dims, WIDTH), dim_const(graph->dims, 4)};
    Value *x = graph_add_input(graph, "x", DT_F32, 3, dims);
    Tensor *square = tensor_new(graph->arena, DT_F32, 2, (int64_t[]){WIDTH, WIDTH}),
           *kernel = tensor_new(graph->arena, DT_F32, 3, (int64_t[]){WIDTH, WIDTH, 1}),
           *bias = tensor_new(graph->arena, DT_F32, 1, (int64_t[]){WIDTH});
    for (int64_t i = 0; i < WIDTH * WIDTH; i++) {
        ((float *)square->data)[i] = (float)(i % 7) - 3;
        ((float *)kernel->data)[i] = (float)(i % 5) - 2;
        ((float *)bias->data)[i % WIDTH] = (float)(i % 3);
    }
    Value *w = graph_add_constant(graph, "w", square), *k = graph_add_constant(graph, "k", kernel),
          *b = graph_add_constant(graph, "b", bias);
    for (int i = 0; i < layers; i++) {
        x = onnx(graph, "Conv", (Value *[]){x, k, b}, 3);
        Value *turned = onnx(graph, "Transpose", &x, 1);
        node_set_ints(turned->producer, "perm", (int64_t[]){0, 2, 1}, 3);
        Value *other = onnx(graph, "Transpose", &w, 1);
        node_set_ints(other->producer, "perm", (int64_t[]){1, 0}, 2);
        x = onnx(graph, "Add", (Value *[]){onnx(graph, "MatMul", (Value *[]){turned, w}, 2), b}, 2);
        x = onnx(graph, "Relu", (Value *[]){onnx(graph, "MatMul", (Value *[]){x, other}, 2)}, 1);
        x = onnx(graph, "Transpose", &x, 1);
        node_set_ints(x->producer, "perm", (int64_t[]){0, 2, 1}, 3);
    }
    graph_add_output(graph, x);
    return graph;
}

typedef struct Held {
    int64_t weights;
    size_t heap; /* taken while the plan was made */
} Held;

static Held held_of_layers(int layers) {
    Graph *graph = same_layer(layers);
    Policy policy = policy_of(graph);
    Device *device;
    Plan *plan;
    KernelCacheStats stats = {0};
    lower(graph, &policy);
    size_t before = heap_bytes;
    Status status = device_open(&policy, &device);
    if (!status) status = plan_create(graph, device, device, &stats, &plan);
    cr_assert(!status, "%s", status_message(status));
    PlanCounts counts;
    plan_count(plan, &counts);
    Held held = {counts.weight_bytes, heap_bytes - before};
    plan_destroy(plan);
    device->table->close(device);
    graph_destroy(graph);
    return held;
}

/* A layer that is used twelve times is packed once. */
Test(growth, weights_that_nodes_share_are_held_once, .timeout = 60) {
    Status status = heap_set_host((HeapHost){counting_allocate, counting_release, NULL});
    cr_assert(!status, "%s", status_message(status));
    Held one = held_of_layers(1), many = held_of_layers(12);
    const int64_t weights = 3 * WIDTH * WIDTH * (int64_t)sizeof(float);
    cr_expect(one.weights >= weights && one.weights < weights + 16384, "%lld bytes", (long long)one.weights);
    cr_expect_eq(many.weights, one.weights, "twelve layers hold %lld bytes, one holds %lld", (long long)many.weights,
                 (long long)one.weights);
    cr_expect_lt(many.heap, one.heap + (size_t)weights, "twelve layers take %zu bytes, one takes %zu", many.heap,
                 one.heap);
}

/* --- a compiler's memory ---------------------------------------------------------------------------------------- */
static int packed_anchors, packed_at_compile = -1;

static Status note_compile(Device *device, const RegionKernel *const *kernels, int count, KernelCacheStats *stats,
                           DeviceKernel **out_kernels) {
    packed_at_compile = packed_anchors;
    return plain->compile(device, kernels, count, stats, out_kernels);
}

static Status note_anchor(Device *device, const Node *node, const Tensor *const *constants, DeviceAnchor **out_anchor,
                          uint32_t *out_released) {
    packed_anchors++;
    return plain->prepare_anchor(device, node, constants, out_anchor, out_released);
}

/* The compiler is done, and has given its memory back, before a weight is packed. */
Test(growth, weights_are_packed_after_kernels_are_compiled, .timeout = 60) {
    Graph *graph;
    Plan *plan;
    Device *device;
    KernelCacheStats stats = {0};
    Status status = graph_parse("graph (c: bool[], x: f32[n, 4]) -> (y) {\n"
                                "  w = constant f32[4, 4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}\n"
                                "  a = onnx MatMul@21 x, w\n  b = onnx Softmax@21 a\n"
                                "  y = onnx If@21 c, b captures 1 graph \"then\" (b: f32[n, 4]) -> (p) {\n"
                                "    v = constant f32[4, 4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 2, 3, 4, 5, 6}\n"
                                "    q = onnx MatMul@21 b, v\n    p = onnx LogSoftmax@21 q\n"
                                "  } graph \"else\" (b: f32[n, 4]) -> (q) {\n    q = onnx Abs@21 b\n  }\n}\n",
                                &graph);
    cr_assert(!status, "%s", status_message(status));
    Policy policy = policy_of(graph);
    lower(graph, &policy);
    status = device_open(&policy, &device);
    cr_assert(!status, "%s", status_message(status));
    plain = device->table;
    DeviceTable noting = *plain;
    noting.compile = note_compile;
    noting.prepare_anchor = note_anchor;
    device->table = &noting;
    status = plan_create(graph, device, device, &stats, &plan);
    cr_assert(!status, "%s", status_message(status));
    cr_expect(packed_at_compile == 0 && packed_anchors == 2, "%d of %d anchors were prepared before kernels were",
              packed_at_compile, packed_anchors);
    plan_destroy(plan);
    device->table = plain;
    device->table->close(device);
    graph_destroy(graph);
}
