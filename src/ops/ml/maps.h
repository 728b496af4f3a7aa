/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of ai.onnx.ml on maps (graph/maps/map_value.h): their rows stand with the family's. */
#ifndef ONNXFUSE_OPS_ML_MAPS_H
#define ONNXFUSE_OPS_ML_MAPS_H

#include "lowering/build.h"

Status lower_zip_map(Lowering *l, const Node *n);
Status lower_dict_vectorizer(Lowering *l, const Node *n);
Status lower_cast_map(Lowering *l, const Node *n);
Status host_zip_map(HostCall *call);
Status host_dict_vectorizer(HostCall *call);
Status host_cast_map(HostCall *call);

#endif
