/* SPDX-License-Identifier: Apache-2.0 */
/* Drawing a token: which ones may be drawn, and the numbers that decide. */
#ifndef ONNXFUSE_OPS_GENERATION_SAMPLE_H
#define ONNXFUSE_OPS_GENERATION_SAMPLE_H

#include "ops/generation/search.h"

typedef struct Ranked {
    float score;
    int32_t token;
} Ranked;

/* Sets the scores [vocabulary] that top_p, min_tokens_to_keep and custom of Sampling leave out to filter_value. ranked:
 * scratch [vocabulary]. */
void sample_filter(const Node *n, float *scores, int64_t vocabulary, Ranked *ranked);
/* The token that is drawn where each has a share exp(score); -1: no score is finite. engine: its state, moved on. */
int64_t sample_draw(const float *scores, int64_t vocabulary, uint32_t *engine);

#endif
