/* Any bytes as the section "model" of a compiled model, in a container whose checksums hold: reading, verifying and
 * planning it end with a session's plan or with a status. Machine code is left out, so that no plan is ever complete or
 * run. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/compiled.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DATA_BYTES = 1 << 16 };

static _Alignas(COMPILED_PAGE) unsigned char constants[DATA_BYTES], weights[DATA_BYTES], code[DATA_BYTES];

static void plan(const CompiledGraph *made, const Devices *devices) {
    KernelCacheStats stats = {0};
    Plan *plan = NULL;
    status_free(plan_create_given(made->graph, devices->device, devices->host, &made->given, &stats, &plan));
    plan_destroy(plan);
}

static void open_model(Arena *arena, const Compiled *compiled) {
    jmp_buf guard;
    Policy policy = policy_default();
    KernelCacheStats stats = {0};
    Devices devices = {0};
    CompiledGraph made = {0};
    if (setjmp(guard)) return;
    arena_guard(arena, &guard);
    policy.cache.enable = false;
    policy.device = DEVICE_CPU;
    policy.threads = 1;
    if (devices_open(&policy, arena, &devices)) abort();
    Status status = compiled_graph(compiled, &policy, 0, &stats, &made);
    if (!status) plan(&made, &devices);
    status_free(status);
    graph_destroy(made.graph);
    devices_close(&devices);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Arena *arena = arena_create(0);
    Compiled compiled = {.target = "x86-64", .tiles = "", .policy = "{}", .device = DEVICE_CPU};
    if (!arena) return 0;
    compiled.parts[PART_MODEL] = (CompiledBytes){data, size};
    compiled.parts[PART_CODE] = (CompiledBytes){code, sizeof code};
    compiled.parts[PART_CONSTANTS] = (CompiledBytes){constants, sizeof constants};
    compiled.parts[PART_WEIGHTS] = (CompiledBytes){weights, sizeof weights};
    open_model(arena, &compiled);
    arena_destroy(arena);
    return 0;
}
