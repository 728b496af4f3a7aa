/* SPDX-License-Identifier: Apache-2.0 */
/* The operators of INTERNAL_DOMAIN that searches are told in: what a step reads, the choice of tokens, the results of BeamSearch. */
#include "lowering/sizes.h"
#include "ops/families.h"
#include "ops/generation/search.h"

/* next_position [rows, 1], room [rows, M], a cache, iteration -> the position of each row's token, and the mask of all positions in
 * the caches and this one. */
static Status lower_search_inputs(Lowering *l, const Node *n) {
    Value *next = in(l, n, 0), *room = in(l, n, 1), *past = in(l, n, 2), *iteration = in(l, n, 3);
    if (!present(l, (Value *const[]){next, room, past, iteration}, 4)) return l->error;
    const Dim *zero = dim_const(l->dims, 0), *length = dim_add(l->dims, past->dims[3], dim_const(l->dims, 1));
    TRY(out(l, n, 0, add(l, next, cast(l, iteration, DT_I32))));
    return out(l, n, 1, slice_axis(l, room, 1, zero, length));
}

/* logits [rows, length, W >= V] -> f32 [rows, V] of the last position. */
static Value *last_scores(Lowering *l, const Node *n, Value *logits) {
    if (!present(l, &logits, 1)) return NULL;
    int64_t wanted = attr_int(n, "vocab_size", 0), given;
    if (logits->rank != 3 || !dtype_is_float(logits->dtype)) {
        invalid(l, "logits of the decoder are %s of %d axes instead of floats [batch, length, vocabulary]",
                dtype_onnx_name(logits->dtype), logits->rank);
        return NULL;
    }
    if (wanted > 0 && dim_is_const(logits->dims[2], &given) && given < wanted) {
        invalid(l, "vocab_size is %lld, and the decoder's logits have %lld", (long long)wanted, (long long)given);
        return NULL;
    }
    const Dim *one = dim_const(l->dims, 1), *last = dim_sub(l->dims, logits->dims[1], one),
              *vocabulary = wanted > 0 ? dim_const(l->dims, wanted) : logits->dims[2],
              *dims[] = {logits->dims[0], vocabulary};
    Value *row = slice_axis(l, slice_axis(l, logits, 1, last, one), 2, dim_const(l->dims, 0), vocabulary);
    return cast(l, reshape(l, row, dims, 2), DT_F32);
}

static Status lower_search_step(Lowering *l, const Node *n) {
    Value *given[STEP_INPUTS], *cache = in(l, n, STEP_INPUTS), *history = in(l, n, STEP_STATE + STATE_HISTORY);
    for (int i = 0; i < STEP_INPUTS; i++) given[i] = optional_in(l, n, i);
    if (!present(l, (Value *const[]){cache, history}, 2)) return l->error;
    int64_t axis = attr_int(n, LENGTH_AXIS, 0);
    if (cache->rank != axis + 2) return invalid(l, "the decoder's first cache has %d axes", cache->rank);
    Value *scores = last_scores(l, n, in(l, n, STEP_SCORES));
    bool beams = attr_int(n, SEARCH_KIND, 0) == SEARCH_BEAM;
    given[STEP_SCORES] = scores && beams ? log_softmax(l, scores, 1) : scores;
    Node *host = host_node(l, n, host_search_step, given, STEP_INPUTS);
    if (!host) return l->error;
    node_set_dims(host, "cached", (const Dim *const *)&cache->dims[axis], 1);
    const Dim *rows = history->dims[0], *tokens[] = {rows, dim_const(l->dims, 1)}, *added[] = {rows, scores->dims[1]};
    for (int i = 0; i < STEP_OUTPUTS; i++) {
        if (!wants_output(n, i)) {
            node_attach_output(host, NULL);
            continue;
        }
        Value *made = i == STEP_GO       ? host_result(l, host, DT_BOOL, 0, NULL)
                      : i == STEP_TOKENS ? host_result(l, host, DT_I32, 2, tokens)
                      : i == STEP_SOURCE ? host_result(l, host, DT_I64, 1, &rows)
                      : i == STEP_ADDED  ? host_result(l, host, DT_F32, 2, added)
                                         : host_result_like(l, host, given[STEP_STATE + i - STEP_NEW_STATE]);
        TRY(out(l, n, i, made));
    }
    return NULL;
}

static Status lower_search_result(Lowering *l, const Node *n) {
    Value *given[RESULT_INPUTS], *ended = in(l, n, RESULT_STATE + STATE_ENDED),
                                 *history = in(l, n, RESULT_STATE + STATE_HISTORY);
    for (int i = 0; i < RESULT_INPUTS; i++) given[i] = optional_in(l, n, i);
    if (!present(l, (Value *const[]){ended, history}, 2)) return l->error;
    Node *host = host_node(l, n, host_search_result, given, RESULT_INPUTS);
    if (!host) return l->error;
    int count;
    const Dim *returned = attr_dims(n, "returned", &count)[0], *steps = attr_dims(n, "steps", &count)[0];
    const Value *first = given[RESULT_FIRST_ADDED];
    const Dim *sequences[] = {ended->dims[0], returned, history->dims[1]},
              *added[] = {steps, ended->dims[0], ended->dims[1], first ? first->dims[1] : NULL};
    DType to = attr_dtype(n, "to", DT_F32);
    for (int i = 0; i < 3; i++) {
        if (!wants_output(n, i)) {
            node_attach_output(host, NULL);
            continue;
        }
        Value *made = i == 0   ? host_result(l, host, DT_I32, 3, sequences)
                      : i == 1 ? host_result(l, host, DT_F32, 2, sequences)
                               : host_result(l, host, DT_F32, 4, added);
        TRY(out(l, n, i, i ? cast(l, made, to) : made));
    }
    return NULL;
}

const OpRow ops_search_parts[] = {
    {INTERNAL_DOMAIN, "SearchInputs", 1, 0, lower_search_inputs},
    {INTERNAL_DOMAIN, "SearchStep", 1, 0, lower_search_step, host_search_step},
    {INTERNAL_DOMAIN, "SearchResult", 1, 0, lower_search_result, host_search_result},
    {0},
};
