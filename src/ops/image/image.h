/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of the image family that stand in files of their own: image_resize.c, image_sample.c, image_boxes.c. */
#ifndef ONNXFUSE_OPS_IMAGE_IMAGE_H
#define ONNXFUSE_OPS_IMAGE_IMAGE_H

#include "lowering/ops.h"

Status lower_resize(Lowering *l, const Node *n);
Status lower_upsample(Lowering *l, const Node *n);
Status host_resize(HostCall *call);
Status host_resize_sizes(HostCall *call); /* of the result, where they are known at run time alone */

/* What gradients are made of. */
Status host_resize_gradient(HostCall *call);
Status host_grid_sample_gradient(HostCall *call);
void back_resize(Backward *w, const Node *n);
void back_resize_gradient(Backward *w, const Node *n);
void back_grid_sample(Backward *w, const Node *n);

Status lower_grid_sample(Lowering *l, const Node *n);
Status host_grid_sample(HostCall *call);
Status lower_affine_grid(Lowering *l, const Node *n);

Status lower_roi_align(Lowering *l, const Node *n);
Status host_roi_align(HostCall *call);
Status lower_non_max_suppression(Lowering *l, const Node *n);
Status host_non_max_suppression(HostCall *call);

Status lower_image_decoder(Lowering *l, const Node *n); /* image_decoder.c */
Status host_image_decoder(HostCall *call);

#endif
