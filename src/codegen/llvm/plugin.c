/* SPDX-License-Identifier: Apache-2.0 */
/* The plug-in's face: the one symbol that the library looks up. */
#include "codegen/llvm/builder.h"

const void *onnxfuse_llvm_plugin(void);

__attribute__((visibility("default"))) const void *onnxfuse_llvm_plugin(void) {
    static const LlvmPlugin plugin = {LLVM_PLUGIN_ABI, emit_object, emit_listing, emit_trim};
    return &plugin;
}
