/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ONNXFUSE_OPS_CONTROL_SEQUENCE_MAP_H
#define ONNXFUSE_OPS_CONTROL_SEQUENCE_MAP_H

#include "lowering/ops.h"

Status lower_sequence_map(Lowering *l, const Node *n);
/* Whether input 0, a tensor, has fewer axes than the attribute "axes": a bool. */
Status host_has_fewer_axes(HostCall *call);

#endif
