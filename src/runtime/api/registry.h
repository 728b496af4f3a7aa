/* SPDX-License-Identifier: Apache-2.0 */
/* The public registry as the passes see it (lowering/custom.h). */
#ifndef ONNXFUSE_RUNTIME_API_REGISTRY_H
#define ONNXFUSE_RUNTIME_API_REGISTRY_H

#include "lowering/build.h"
#include "lowering/custom.h"
#include "runtime/api/session.h"

const Registry *registry_of(const OnnxfuseRegistry *registry); /* borrowed; NULL for NULL */
/* The built-in fusions (src/fusions), in the arena. */
Status registry_of_builtins(Arena *arena, const Registry **out_registry);

#endif
