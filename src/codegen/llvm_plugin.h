/* SPDX-License-Identifier: Apache-2.0 */
/* What the LLVM plug-in (libonnxfuse-llvm.so) offers to the library: kernels as relocatable objects, and as text for
 * people. The plug-in is opened on a kernel cache miss alone. Bump LLVM_PLUGIN_ABI with any change of this file, of kernel.h
 * or of the Target: it is part of every cache key. */
#ifndef ONNXFUSE_CODEGEN_LLVM_PLUGIN_H
#define ONNXFUSE_CODEGEN_LLVM_PLUGIN_H

#include "codegen/codegen.h"

#define LLVM_PLUGIN_ABI 3
#define LLVM_PLUGIN_FILE "libonnxfuse-llvm.so"
#define LLVM_PLUGIN_ENTRY "onnxfuse_llvm_plugin"
#define KERNEL_SYMBOL "onnxfuse_kernel" /* the function's name in the object; it is a KernelFunction */

typedef struct LlvmPlugin {
    int abi; /* LLVM_PLUGIN_ABI of its build; the first member (base/plugin.h) */
    /* Both are safe to call from several threads at once; results are malloc'ed and the caller's to free. */
    Status (*compile)(const Kernel *kernel, const Target *target, void **out_object, size_t *out_size);
    Status (*listing)(const Kernel *kernel, const Target *target, KernelListing what, char **out_text);
    /* Gives back what compiling has left in memory: the pages of the compiler's code, which come again from its file when they
     * are needed, and what the C library keeps. From any thread, whatever others do. */
    void (*trim)(void);
} LlvmPlugin;

/* llvm_plugin.c. Opens it on the first call; STATUS_FAULT that says where it was looked for, or what it lacks. */
Status llvm_plugin_get(const LlvmPlugin **out_plugin);
/* Changes with the plug-in's build, for cache keys; the plug-in is found, not opened. "any" when it is nowhere. */
const char *llvm_plugin_identity(void);

#endif
