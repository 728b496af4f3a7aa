/* The plug-in's face: the one symbol that the library looks up. */
#include "codegen/llvm/render.h"

const LlvmPlugin *onnxfuse_llvm_plugin(void);

__attribute__((visibility("default"))) const LlvmPlugin *onnxfuse_llvm_plugin(void) {
    static const LlvmPlugin plugin = {PLUGIN_ABI, emit_object, emit_listing};
    return &plugin;
}
