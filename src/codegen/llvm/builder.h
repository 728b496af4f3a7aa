/* SPDX-License-Identifier: Apache-2.0 */
/* The state of render/builder.h's functions by LLVM, and what the plug-in offers. Internal to the plug-in. */
#ifndef ONNXFUSE_CODEGEN_LLVM_BUILDER_H
#define ONNXFUSE_CODEGEN_LLVM_BUILDER_H

#include <llvm-c/Core.h>
#include "codegen/llvm_plugin.h"
#include "codegen/render/builder.h"

struct IrBuilder {
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef builder;
    LLVMValueRef function;         /* the present one */
    LLVMValueRef outer;            /* while a function inside is built: the other */
    LLVMBasicBlockRef outer_block; /* and where it goes on */
    int vector_bytes;
    void (*attributes)(IrBuilder *b, LLVMValueRef function); /* of everything that runs on the target */
};

/* emit.c */
void emit_trim(void);
Status emit_object(const Kernel *kernel, const Target *target, void **out_object, size_t *out_size);
Status emit_listing(const Kernel *kernel, const Target *target, KernelListing what, char **out_text);

#endif
