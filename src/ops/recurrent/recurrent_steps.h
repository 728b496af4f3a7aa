/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent nets as control flow, where no kernel is to stand (lowers_to_standard). */
#ifndef ONNXFUSE_OPS_RECURRENT_RECURRENT_STEPS_H
#define ONNXFUSE_OPS_RECURRENT_RECURRENT_STEPS_H

#include "lowering/build.h"
#include "ops/recurrent/recurrent.h"

typedef struct RecurrentSteps {
    Cell cell;
    int directions;
    int64_t hidden;
    bool reverse_first, coupled, linear_before_reset;
    double limit;              /* of clip; infinite when there is none */
    const Function *functions; /* [directions][functions of the cell] */
    Value *projection;         /* all others as the kernel's inputs (recurrent.h) */
    Value *weights;            /* [D, G * H, H], as the operator has them */
    Value *lengths, *h0, *c0, *peepholes, *bias;
} RecurrentSteps;

/* Y [T, D, B, H], Y_h and Y_c [D, B, H] to out_results [3]; an error is the builder's. */
void recurrent_as_scans(Lowering *l, const Node *n, const RecurrentSteps *r, Value **out_results);

const char *recurrent_activation_name(Activation kind);

#endif
