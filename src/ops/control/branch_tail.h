/* SPDX-License-Identifier: Apache-2.0 */
/* What follows an If whose branches' outputs differ in rank. */
#ifndef ONNXFUSE_OPS_CONTROL_BRANCH_TAIL_H
#define ONNXFUSE_OPS_CONTROL_BRANCH_TAIL_H

#include "lowering/build.h"

enum { WHOLE_TAIL = 1 << 30 };

/* Puts another If, not lowered yet, in the place of `n`: behind each of `branches`, as they were before they were lowered, it
 * has a copy of the nodes that come up to `reach` nodes behind the outputs that are `open` [n->output_count], and of what
 * lies between these. It stands after all that it does not feed. Its attribute int "tail" is `reach`. */
void replace_by_tailed(Lowering *l, const Node *n, Graph *const *branches, const bool *open, int reach);

#endif
