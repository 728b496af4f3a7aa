/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of cases as the text of one program. */
#ifndef ONNXFUSE_TESTS_GPU_RENDER_MANY_H
#define ONNXFUSE_TESTS_GPU_RENDER_MANY_H

#include "cases.h"
#include "codegen/gpu/gpu.h"

/* Behind one prelude; case 12's functions are k12_, or k12__held and k12__long. In the arena. */
const char *render_many(const Cases *cases, const int *indices, int count, GpuDialect dialect, Arena *arena);

#endif
