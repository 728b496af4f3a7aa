/* SPDX-License-Identifier: Apache-2.0 */
/* Activation functions as a part of another operator. */
#ifndef ONNXFUSE_OPS_MATH_ACTIVATION_H
#define ONNXFUSE_OPS_MATH_ACTIVATION_H

#include "lowering/build.h"

/* x, or the function of x that node n's attribute `activation` names, by its attributes activation_params, or activation_alpha and
 * the like. */
Value *activated(Lowering *l, const Node *n, Value *x);
/* The function of that name, which the standard's recurrent nets have too, by its numbers [2]. */
Value *activation(Lowering *l, const char *name, Value *x, const double *numbers);

#endif
