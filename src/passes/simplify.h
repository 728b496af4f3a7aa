/* SPDX-License-Identifier: Apache-2.0 */
/* What simplify.c and join_sums.c share. */
#ifndef ONNXFUSE_PASSES_SIMPLIFY_H
#define ONNXFUSE_PASSES_SIMPLIFY_H

#include "lowering/build.h"

/* Whether a constant is one number, or one for each channel, the last axis of `like`. */
bool is_channel_vector(const Value *v, const Value *like);
/* Such a constant as a vector [channels]; NULL when it is none. */
Value *channel_vector(Lowering *l, Value *v, const Value *like);

/* sum: an addition or subtraction. Where its sides are convolutions of one value, one of them may be the value itself, they and the sum become
 * *out_conv, with a bias behind it where they had one; else *out_conv is NULL. */
Status join_sum(Lowering *l, Node *sum, Node **out_conv);

#endif
