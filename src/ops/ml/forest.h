/* SPDX-License-Identifier: Apache-2.0 */
/* Tree ensembles of ai.onnx.ml: their rows stand with the family's. */
#ifndef ONNXFUSE_OPS_ML_FOREST_H
#define ONNXFUSE_OPS_ML_FOREST_H

#include "lowering/build.h"

Status lower_tree_ensemble(Lowering *l, const Node *n);   /* TreeEnsemble, since 5 */
Status lower_tree_regressor(Lowering *l, const Node *n);  /* TreeEnsembleRegressor */
Status lower_tree_classifier(Lowering *l, const Node *n); /* TreeEnsembleClassifier */
Status host_forest(HostCall *call);
Status host_forest_classifier(HostCall *call);

#endif
