/* SPDX-License-Identifier: Apache-2.0 */
/* The policy's "shapes": hints, prepared for when a session opens, and buckets, to which sizes are rounded up. */
#ifndef ONNXFUSE_RUNTIME_API_BUCKETS_H
#define ONNXFUSE_RUNTIME_API_BUCKETS_H

#include "runtime/run/run.h"

/* Sizes are evaluated and remembered, and memory taken and given back, so that the first runs find both. */
Status hints_prepare(const Plan *plan, const Policy *policy, struct RunMemory *buffers);

/* Bytes of the arenas that a run of the hint's shapes plans; hint NULL: of a model whose inputs have constant sizes. */
Status hint_arena(const Plan *plan, const ShapeHint *hint, int number, int64_t *out_bytes);

typedef struct Buckets Buckets;
/* Which axes of inputs and outputs have the sizes that are rounded up; NULL where the policy has no buckets. Immutable.
 */
Status buckets_make(Arena *arena, const Policy *policy, const Graph *graph, const Buckets **out_buckets);

/* What one run has padded. */
typedef struct Padding {
    int64_t *sizes;   /* [buckets] as given; -1: not rounded up in this run */
    Item *inputs;     /* [inputs] padded; ITEM_NONE: as given */
    RunOutput *given; /* [outputs] the caller's, where a result is cropped into it */
    bool *cropped;    /* [outputs] */
    const Graph *graph;
} Padding;

/* Puts padded inputs in the place of those in `items`, and takes outputs that need cropping out of `made`.
 * in_on_device, out_on_device: whose data is in the device's memory, which cannot be padded. Whatever comes,
 * buckets_release is to be called with what was given for out_padding. */
Status buckets_pad(const Buckets *buckets, Memory *memory, const Item **items, const bool *in_on_device,
                   RunOutput *made, const bool *out_on_device, Padding *out_padding);
/* After a run that went well. */
Status buckets_crop(const Buckets *buckets, Memory *memory, const Padding *padding, RunOutput *made);
void buckets_release(Memory *memory, Padding *padding);

#endif
