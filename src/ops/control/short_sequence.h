/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences of a batch that end before the longest does: Scan-8's sequence_lens. A Scan over a part of its inputs, and
 * zeros behind what comes out. */
#ifndef ONNXFUSE_OPS_SHORT_SEQUENCE_H
#define ONNXFUSE_OPS_SHORT_SEQUENCE_H

#include "lowering/ops.h"

/* In: sequence_lens, and the first scan input, [batch, time, ...]. Out: the same lengths, each checked. */
Status host_sequence_ends(HostCall *call);

/* What the body of a Scan over the batch makes for its element first. */
typedef struct ShortSequence {
    Value *zero, *end, *rest; /* int64 [1]: 0, the sequence's length, how much longer the longest is */
} ShortSequence;

/* length: int64 []; x: [time, ...]. */
ShortSequence short_sequence(Graph *body, Value *length, Value *x);
Value *up_to_end(Graph *body, const ShortSequence *s, Value *x);
Value *zeros_behind(Graph *body, const ShortSequence *s, Value *y);

#endif
