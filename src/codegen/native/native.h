/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels to machine code without LLVM: x86-64 with AVX-512 or AVX2. The renderer is the same (render/), and so are the results, to
 * the bit; compiling takes a hundredth of the time and no library. What has no rule here is LLVM's. */
#ifndef ONNXFUSE_CODEGEN_NATIVE_NATIVE_H
#define ONNXFUSE_CODEGEN_NATIVE_NATIVE_H

#include "codegen/codegen.h"

#define NATIVE_VERSION 5 /* of what it makes: part of every cache key */

/* A malloc'ed object file as object.c reads it; NULL with the reason (static text) when LLVM has to do it. out_listing: NULL,
 * or where the assembly goes, malloc'ed, too. */
Status native_compile(const Kernel *kernel, const Target *target, char **out_listing, void **out_object,
                      size_t *out_size, const char **out_reason);

#endif
