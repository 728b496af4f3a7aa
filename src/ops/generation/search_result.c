/* SPDX-License-Identifier: Apache-2.0 */
/* The results of BeamSearch: the best sequences that have ended, or were followed to the end. */
#include "lowering/sizes.h"
#include "ops/generation/beam.h"

typedef struct Result {
    HostCall *call;
    const Tensor *state[STATES];
    int64_t batch, beams, room, returned;
    float length_penalty;
} Result;

static Status read_state(Result *r) {
    HostCall *call = r->call;
    for (int i = 0; i < STATES; i++) {
        bool whole = i == STATE_HISTORY || i == STATE_PROGRESS || i == STATE_ENDED;
        if (i != STATE_ENGINE) TRY(host_tensor(call, RESULT_STATE + i, whole ? DT_I32 : DT_F32, &r->state[i]));
    }
    const Tensor *penalty = host_input(call, RESULT_LENGTH_PENALTY), *returned = host_input(call, RESULT_RETURNED);
    r->length_penalty = penalty ? (float)dtype_load_double(penalty->dtype, penalty->data, 0) : 1;
    r->returned = returned ? dtype_load_int(returned->dtype, returned->data, 0) : 1;
    r->batch = r->state[STATE_ENDED]->dims[0];
    r->beams = r->state[STATE_ENDED]->dims[1];
    r->room = r->state[STATE_HISTORY]->dims[1];
    return NULL;
}

/* What is still followed ends where it is. The state is an input: it is changed in copies. */
static void end_open(const Result *r, int64_t b, Ended *ended) {
    const int32_t *progress = (const int32_t *)r->state[STATE_PROGRESS]->data + b * PROGRESS;
    size_t size = (size_t)(r->beams * (1 + r->room));
    memcpy(ended->tokens, (const int32_t *)r->state[STATE_ENDED]->data + (size_t)b * size, size * sizeof(int32_t));
    memcpy(ended->scores, (const float *)r->state[STATE_ENDED_SCORES]->data + b * r->beams,
           (size_t)r->beams * sizeof(float));
    *ended->count = progress[PROGRESS_ENDED];
    for (int64_t row = b * r->beams; !progress[PROGRESS_DONE] && row < (b + 1) * r->beams; row++)
        ended_add(ended, (const int32_t *)r->state[STATE_HISTORY]->data + row * r->room, progress[PROGRESS_LENGTH],
                  ((const float *)r->state[STATE_OPEN]->data)[row]);
}

static Status give_sequences(const Result *r) {
    HostCall *call = r->call;
    Tensor *sequences, *scores;
    TRY(host_output(call, 0, DT_I32, 3, (int64_t[]){r->batch, r->returned, r->room}, &sequences));
    TRY(host_output(call, 1, DT_F32, 2, (int64_t[]){r->batch, r->returned}, &scores));
    int32_t count, pad = (int32_t)attr_int(call->node, "pad_token_id", 0);
    Ended ended = {.tokens = ARENA_ARRAY(call->arena, int32_t, r->beams * (1 + r->room)),
                   .scores = ARENA_ARRAY(call->arena, float, r->beams),
                   .count = &count,
                   .beams = r->beams,
                   .room = r->room,
                   .length_penalty = r->length_penalty};
    for (int64_t b = 0; b < r->batch; b++) {
        end_open(r, b, &ended);
        for (int64_t k = 0; k < r->returned; k++) {
            const int32_t *from = ended.tokens + k * (1 + r->room);
            int32_t *to = sequences ? (int32_t *)sequences->data + (b * r->returned + k) * r->room : NULL;
            for (int64_t i = 0; to && i < r->room; i++) to[i] = i < from[0] ? from[1 + i] : pad;
            if (scores) ((float *)scores->data)[b * r->returned + k] = ended.scores[k];
        }
    }
    return NULL;
}

static Status give_added(const Result *r) {
    HostCall *call = r->call;
    const Tensor *first = host_input(call, RESULT_FIRST_ADDED), *further = host_input(call, RESULT_ADDED);
    if (!first || !further) return NULL;
    int64_t steps;
    TRY(host_sizes(call, "steps", 1, &steps));
    Tensor *all;
    TRY(host_output(call, 2, DT_F32, 4, (int64_t[]){steps, r->batch, r->beams, first->dims[1]}, &all));
    if (!all) return NULL;
    size_t at = tensor_bytes(first), more = tensor_bytes(further);
    memcpy(all->data, first->data, at);
    if (more) memcpy((char *)all->data + at, further->data, more);
    memset((char *)all->data + at + more, 0, tensor_bytes(all) - at - more);
    return NULL;
}

Status host_search_result(HostCall *call) {
    Result r = {.call = call};
    TRY(read_state(&r));
    TRY(give_sequences(&r));
    return give_added(&r);
}
