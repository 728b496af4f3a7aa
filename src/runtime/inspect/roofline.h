/* SPDX-License-Identifier: Apache-2.0 */
/* Steps beside what the machine could do: as they ran, or before any run. */
#ifndef ONNXFUSE_RUNTIME_INSPECT_ROOFLINE_H
#define ONNXFUSE_RUNTIME_INSPECT_ROOFLINE_H

#include "runtime/machine/limits.h"
#include "runtime/run/profile.h"

typedef struct Roofline {
    const Plan *plan;
    const MachineLimits *limits; /* NULL: not known, as of GPUs */
    const char *machine;         /* what they were measured on */
    Profile *profile;            /* the runs that are told of; NULL: an estimate */
    const int64_t *symbols;      /* of an estimate: bound from the inputs' shapes, UNBOUND_DIM for others */
} Roofline;

/* As JSON; include/onnxfuse.h lists the members. */
void roofline_print(Text *text, const Roofline *roofline);

#endif
