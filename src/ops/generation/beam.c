/* SPDX-License-Identifier: Apache-2.0 */
/* The sequences of a beam search that have ended, best first. */
#include "ops/generation/beam.h"

#include <math.h>

float ended_score(const Ended *ended, float sum, int64_t length) {
    return sum / powf((float)length, ended->length_penalty);
}

static int32_t *place(const Ended *ended, int64_t index) { return ended->tokens + index * (1 + ended->room); }

void ended_add(Ended *ended, const int32_t *tokens, int64_t length, float sum) {
    float score = ended_score(ended, sum, length);
    int64_t at = *ended->count, size = 1 + ended->room;
    if (at == ended->beams) {
        if (score <= ended->scores[--at]) return;
    } else {
        ++*ended->count;
    }
    for (; at > 0 && score > ended->scores[at - 1]; at--) {
        memcpy(place(ended, at), place(ended, at - 1), (size_t)size * sizeof(int32_t));
        ended->scores[at] = ended->scores[at - 1];
    }
    place(ended, at)[0] = (int32_t)length;
    memcpy(place(ended, at) + 1, tokens, (size_t)length * sizeof(int32_t));
    ended->scores[at] = score;
}
