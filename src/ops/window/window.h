/* SPDX-License-Identifier: Apache-2.0 */
/* The host kernels of pooling (pooling.c). */
#ifndef ONNXFUSE_OPS_WINDOW_WINDOW_H
#define ONNXFUSE_OPS_WINDOW_WINDOW_H

#include "lowering/build.h"

/* Pooling of channels-last input 0. The node's attrs: ints kernel_shape, strides, dilations, dims pads and size (the
 * result's). */
Status host_max_pool(HostCall *call);     /* output 1: the maxima's places; int storage_order */
Status host_average_pool(HostCall *call); /* int count_include_pad */
Status host_lp_pool(HostCall *call);      /* p */
/* Of x and dy, the gradient of x; of dy alone, where the attribute `image` has the dims of x, each element's sum over its windows. */
Status host_max_pool_gradient(HostCall *call);
Status host_spread_windows(HostCall *call);

/* AveragePool of the channels-first x, as node n's attributes say. */
Value *average_pool(Lowering *l, const Node *n, Value *x);

/* Gradients (window_gradient.c). */
void back_max_pool(Backward *w, const Node *n);
void back_max_pool_gradient(Backward *w, const Node *n);
void back_average_pool(Backward *w, const Node *n);
void back_spread_windows(Backward *w, const Node *n);
void back_lp_pool(Backward *w, const Node *n);

#endif
