/* SPDX-License-Identifier: Apache-2.0 */
/* What other families take from the elementwise operators. */
#ifndef ONNXFUSE_OPS_MATH_ELEMENTWISE_H
#define ONNXFUSE_OPS_MATH_ELEMENTWISE_H

#include "lowering/build.h"

/* Cast between strings and numbers: one of x's type and `to` is DT_STRING. */
Value *cast_strings(Lowering *l, const Node *n, Value *x, DType to);

#endif
