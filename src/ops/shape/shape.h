/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of shape.c that stand in files of their own. */
#ifndef ONNXFUSE_OPS_SHAPE_SHAPE_H
#define ONNXFUSE_OPS_SHAPE_SHAPE_H

#include "lowering/build.h"

Status lower_slice(Lowering *l, const Node *n);
Status slice_kernel(HostCall *call);
void back_slice_kernel(Backward *w, const Node *n);
Status slice_sizes_kernel(HostCall *call);
Status lower_split(Lowering *l, const Node *n);
Status lower_pad(Lowering *l, const Node *n);
Status pad_sizes_kernel(HostCall *call);
Status lower_reshape(Lowering *l, const Node *n);
Status reshape_sizes_kernel(HostCall *call);
Status lower_squeeze(Lowering *l, const Node *n);
Status squeeze_sizes_kernel(HostCall *call);
Status lower_unsqueeze(Lowering *l, const Node *n);
Status unsqueeze_sizes_kernel(HostCall *call);

/* Sizes that the first version of an operator takes in the data's type: integers. NULL stays NULL. */
static inline Value *whole_numbers(Lowering *l, Value *v) {
    return v && dtype_is_float(v->dtype) && l->node->opset < 6 ? cast(l, v, DT_I64) : v;
}

/* Symbols bound from the i64 vector [count] that the host kernel computes from the sizes of x (its input 0) and
 * `vector` (input 1; more may follow). NULL on error. */
const Dim *const *sizes_at_run_time(Lowering *l, const Node *n, HostFn kernel, Value *const *inputs, int input_count,
                                    const char *hint, int count);

#endif
