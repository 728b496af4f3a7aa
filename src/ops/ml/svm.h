/* SPDX-License-Identifier: Apache-2.0 */
/* Support vector machines of ai.onnx.ml: their rows stand with the family's. */
#ifndef ONNXFUSE_OPS_ML_SVM_H
#define ONNXFUSE_OPS_ML_SVM_H

#include "lowering/build.h"

Status lower_svm_regressor(Lowering *l, const Node *n);
Status lower_svm_classifier(Lowering *l, const Node *n);
Status host_svm_regressor(HostCall *call);
Status host_svm_classifier(HostCall *call);

#endif
