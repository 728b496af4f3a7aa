/* SPDX-License-Identifier: Apache-2.0 */
/* The sequences of a beam search that have ended. */
#ifndef ONNXFUSE_OPS_GENERATION_BEAM_H
#define ONNXFUSE_OPS_GENERATION_BEAM_H

#include "ops/generation/search.h"

/* The best ended ones of one sequence of the batch: parts of STATE_ENDED, STATE_ENDED_SCORES and STATE_PROGRESS. */
typedef struct Ended {
    int32_t *tokens; /* [beams][1 + room]: length, tokens */
    float *scores;   /* [beams], falling */
    int32_t *count;
    int64_t beams, room;
    float length_penalty;
} Ended;

/* sum / length ^ length_penalty */
float ended_score(const Ended *ended, float sum, int64_t length);
/* Takes the place of the worst one where there is none left. */
void ended_add(Ended *ended, const int32_t *tokens, int64_t length, float sum);

#endif
