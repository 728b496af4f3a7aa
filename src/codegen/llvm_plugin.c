/* SPDX-License-Identifier: Apache-2.0 */
/* The LLVM plug-in, as the library knows it. */
#include "codegen/llvm_plugin.h"

#include "base/plugin.h"

static Plugin llvm = {
    .file = LLVM_PLUGIN_FILE,
    .entry = LLVM_PLUGIN_ENTRY,
    .package = "libonnxfuse-llvm",
    .without = "kernels cannot be compiled",
    .abi = LLVM_PLUGIN_ABI,
};

Status llvm_plugin_get(const LlvmPlugin **out_plugin) {
    const void *table;
    TRY(plugin_open(&llvm, &table));
    *out_plugin = table;
    return NULL;
}

const char *llvm_plugin_identity(void) { return plugin_identity(&llvm); }
