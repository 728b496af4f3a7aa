/* SPDX-License-Identifier: Apache-2.0 */
/* LinearAttention: its row stands with attention's. */
#ifndef ONNXFUSE_OPS_ATTENTION_LINEAR_ATTENTION_H
#define ONNXFUSE_OPS_ATTENTION_LINEAR_ATTENTION_H

#include "lowering/gradient.h"

Status lower_linear_attention(Lowering *l, const Node *n);
Status host_linear_attention(HostCall *call);
Status host_linear_attention_gradient(HostCall *call);
void back_linear_attention(Backward *w, const Node *n);

#endif
