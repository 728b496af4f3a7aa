/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the section "model" of a compiled model: graph, kernels and what regions and anchors are given are read
 * and verified, or refused with a status. Machine code is left out. What a plan makes of altered models is tested by
 * tests/runtime/test_compiled.c. */
#include <stdint.h>
#include <stdlib.h>

#include "lowering/custom.h"
#include "runtime/compiled/compiled.h"
#include "runtime/device/cpu/tiles/tile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DATA_BYTES = 1 << 16 };

static _Alignas(COMPILED_PAGE) unsigned char constants[DATA_BYTES], weights[DATA_BYTES], code[DATA_BYTES];

/* Operators and tiles are not part of this program: nothing is run, and a sanitizing compiler takes minutes for tiles.
 */
const TileIsa *tile_isa(void) { return NULL; }
Status host_custom(HostCall *call) { return status_error(STATUS_FAULT, "%s is not run", call->node->op); }
HostFn ops_host_named(const char *name) { return *name ? host_custom : NULL; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Compiled compiled = {.target = "x86-64", .tiles = "", .policy = "{}", .device = DEVICE_CPU};
    compiled.parts[PART_MODEL] = (CompiledBytes){data, size};
    compiled.parts[PART_CODE] = (CompiledBytes){code, sizeof code};
    compiled.parts[PART_CONSTANTS] = (CompiledBytes){constants, sizeof constants};
    compiled.parts[PART_WEIGHTS] = (CompiledBytes){weights, sizeof weights};
    Policy policy = policy_default();
    KernelCacheStats stats = {0};
    CompiledGraph made = {0};
    Status status = compiled_graph(&compiled, &policy, 0, &stats, &made);
    status_free(status);
    graph_destroy(made.graph);
    return 0;
}
