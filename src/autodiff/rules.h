/* SPDX-License-Identifier: Apache-2.0 */
/* The rules by the kind of primitive; internal to autodiff. NULL: not of this kind. */
#ifndef ONNXFUSE_AUTODIFF_RULES_H
#define ONNXFUSE_AUTODIFF_RULES_H

#include "autodiff/autodiff.h"

BackwardFn rule_elementwise(Prim prim);
BackwardFn rule_reduction(Prim prim);
BackwardFn rule_movement(Prim prim);
BackwardFn rule_indexed(Prim prim);

#endif
