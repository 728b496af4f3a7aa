/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in fusions, which a policy switches on by name (fusion.custom_kernels). Each stands in a file of its own
 * that includes include/onnxfuse.h alone, and is registered through the public calls: what is done here, an application
 * can do. */
#ifndef ONNXFUSE_FUSIONS_FUSIONS_H
#define ONNXFUSE_FUSIONS_FUSIONS_H

#include "onnxfuse.h"

/* NULL-terminated; fusions.c lists them. */
extern const OnnxfuseFusion *const builtin_fusions[];

#endif
