/* Operators of the window family that stand in files of their own: pooling.c (host kernels), signal.c. */
#ifndef ONNXFUSE_OPS_WINDOW_WINDOW_H
#define ONNXFUSE_OPS_WINDOW_WINDOW_H

#include "lowering/ops.h"

/* Pooling of channels-last input 0. The node's attrs: ints kernel_shape, strides, dilations, dims pads and size (the
 * result's). */
Status host_max_pool(HostCall *call);     /* output 1: the maxima's places; int storage_order */
Status host_average_pool(HostCall *call); /* int count_include_pad */
Status host_lp_pool(HostCall *call);      /* p */

Status lower_hann_window(Lowering *l, const Node *n);
Status lower_hamming_window(Lowering *l, const Node *n);
Status lower_blackman_window(Lowering *l, const Node *n);
Status lower_dft(Lowering *l, const Node *n);
Status lower_stft(Lowering *l, const Node *n);
Status lower_mel_weight_matrix(Lowering *l, const Node *n);
Status host_dft(HostCall *call);
Status host_stft(HostCall *call);
Status host_mel_weight_matrix(HostCall *call);

#endif
