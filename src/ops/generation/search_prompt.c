/* SPDX-License-Identifier: Apache-2.0 */
/* Before the first token of a search: its inputs are checked, the prompt gets positions and a mask, tables are made. */
#include "lowering/sizes.h"
#include "ops/generation/form.h"
#include "ops/generation/search.h"

typedef struct Prompt {
    HostCall *call;
    const Tensor *ids, *mask;
    bool encodes; /* T5's form: the encoder reads the ids, and sequences begin with decoder_start_token_id */
    int64_t batch, length, room, beams;
    int32_t pad;
    Tensor *start, *positions, *seen, *next_position, *masks, *history;
} Prompt;

/* A scalar input; `otherwise` where it is left out. */
static Status whole(HostCall *call, int index, const char *name, int64_t otherwise, int64_t *out_value) {
    const Tensor *given = host_input(call, index);
    *out_value = otherwise;
    if (!given) return NULL;
    if (tensor_count(given) != 1) return host_error(call, "%s is not one number", name);
    *out_value = dtype_load_int(given->dtype, given->data, 0);
    return NULL;
}

static Status between(HostCall *call, const char *name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return NULL;
    return host_error(call, "%s is %lld and should be %lld to %lld", name, (long long)value, (long long)least,
                      (long long)most);
}

static Status check_numbers(Prompt *p) {
    HostCall *call = p->call;
    int64_t returned, seed, processor;
    TRY(whole(call, PROMPT_MOST, "max_length", 0, &p->room));
    TRY(whole(call, PROMPT_BEAMS, "num_beams", 1, &p->beams));
    TRY(whole(call, PROMPT_RETURNED, "num_return_sequences", 1, &returned));
    TRY(whole(call, PROMPT_SEED, "seed", 0, &seed));
    TRY(whole(call, PROMPT_LOGITS_PROCESSOR, "logits_processor", 0, &processor));
    int64_t begun = p->encodes ? 1 : p->length;
    if (p->room <= begun)
        return host_error(call, "max_length is %lld, but the prompt has %lld tokens already", (long long)p->room,
                          (long long)begun);
    TRY(between(call, "max_length", p->room, 1, MOST_LENGTH));
    TRY(between(call, "num_beams", p->beams, 1, MOST_BEAMS));
    TRY(between(call, "num_return_sequences", returned, 1, p->beams));
    TRY(between(call, "seed", seed, 0, INT32_MAX));
    if (processor) return host_error(call, "logits_processor %lld is not supported", (long long)processor);
    const Tensor *penalty = host_input(call, PROMPT_REPETITION);
    if (penalty && (tensor_count(penalty) != 1 || !(dtype_load_double(penalty->dtype, penalty->data, 0) > 0)))
        return host_error(call, "repetition_penalty is not one number above 0");
    return NULL;
}

static Status check_prompt(Prompt *p) {
    TRY(host_tensor(p->call, PROMPT_IDS, DT_I32, &p->ids));
    p->batch = p->ids->dims[0];
    p->length = p->ids->dims[1];
    if (!p->length) return host_error(p->call, "input_ids has no token");
    int64_t encoded;
    TRY(host_sizes(p->call, "encoded", 1, &encoded));
    if (encoded != p->batch)
        return host_error(p->call, "decoder_input_ids has %lld sequences, and input_ids has %lld", (long long)p->batch,
                          (long long)encoded);
    p->mask = host_input(p->call, PROMPT_MASK);
    if (p->mask && !tensor_same_shape(p->mask, p->ids))
        return host_error(p->call, "attention_mask and input_ids differ in shape");
    return NULL;
}

static Status make_tables(Prompt *p) {
    HostCall *call = p->call;
    int64_t rows = p->batch * p->beams;
    TRY(host_output(call, PROMPT_START, DT_I32, 2, (int64_t[]){p->batch, 1}, &p->start));
    TRY(host_output(call, PROMPT_POSITIONS, DT_I32, 2, p->ids->dims, &p->positions));
    TRY(host_output(call, PROMPT_SEEN, DT_I32, 2, p->ids->dims, &p->seen));
    TRY(host_output(call, PROMPT_NEXT_POSITION, DT_I32, 2, (int64_t[]){rows, 1}, &p->next_position));
    TRY(host_output(call, PROMPT_ROOM, DT_I32, 2, (int64_t[]){rows, p->room}, &p->masks));
    return host_output(call, PROMPT_STATE + STATE_HISTORY, DT_I32, 2, (int64_t[]){rows, p->room}, &p->history);
}

static int32_t *row_of(const Tensor *table, int64_t row) {
    return table ? (int32_t *)table->data + row * table->dims[1] : NULL;
}

/* A token that is padding is not seen unless the mask says so, and has position 0; the others count up. To an encoder padding is what
 * stands before the first other token. Returns the next position. */
static int32_t fill_prompt(const Prompt *p, int64_t b, int32_t *seen) {
    const int32_t *ids = row_of(p->ids, b), *mask = row_of(p->mask, b);
    int32_t *positions = row_of(p->positions, b), count = 0;
    for (int64_t i = 0; i < p->length; i++) {
        bool padding = ids[i] == p->pad && !(p->encodes && count);
        seen[i] = mask ? mask[i] : !padding;
        if (positions) positions[i] = padding ? 0 : count;
        count += !padding;
    }
    return count;
}

static void fill_rows(const Prompt *p, int64_t b, int32_t *seen) {
    const int32_t first = (int32_t)attr_int(p->call->node, "decoder_start_token_id", 0),
                  *begun = p->encodes ? &first : row_of(p->ids, b);
    int64_t length = p->encodes ? 1 : p->length;
    int32_t next = fill_prompt(p, b, seen);
    size_t bytes = (size_t)p->length * sizeof *seen;
    if (p->seen) memcpy(row_of(p->seen, b), seen, bytes);
    if (p->start) *row_of(p->start, b) = first;
    for (int64_t row = b * p->beams; row < (b + 1) * p->beams; row++) {
        int32_t *masks = row_of(p->masks, row), *history = row_of(p->history, row);
        if (p->next_position) *row_of(p->next_position, row) = next;
        if (masks) memcpy(masks, seen, bytes);
        for (int64_t i = p->length; masks && i < p->room; i++) masks[i] = 1;
        if (history) memcpy(history, begun, (size_t)length * sizeof *history);
        for (int64_t i = length; history && i < p->room; i++) history[i] = p->pad;
    }
}

/* Of the beams, which are all the prompt yet, the first has the score 0 and the others are no candidates. */
static Status start_beams(const Prompt *p) {
    HostCall *call = p->call;
    Tensor *open, *ended, *scores;
    TRY(host_output(call, PROMPT_STATE + STATE_OPEN, DT_F32, 1, (int64_t[]){p->batch * p->beams}, &open));
    TRY(host_output(call, PROMPT_STATE + STATE_ENDED, DT_I32, 3, (int64_t[]){p->batch, p->beams, 1 + p->room}, &ended));
    TRY(host_output(call, PROMPT_STATE + STATE_ENDED_SCORES, DT_F32, 2, (int64_t[]){p->batch, p->beams}, &scores));
    for (int64_t row = 0; open && row < p->batch * p->beams; row++)
        ((float *)open->data)[row] = row % p->beams ? -1e9f : 0;
    if (ended) memset(ended->data, 0, tensor_bytes(ended));
    if (scores) memset(scores->data, 0, tensor_bytes(scores));
    return NULL;
}

static Status start_state(const Prompt *p) {
    HostCall *call = p->call;
    Tensor *progress, *engine;
    TRY(host_output(call, PROMPT_STATE + STATE_PROGRESS, DT_I32, 2, (int64_t[]){p->batch, PROGRESS}, &progress));
    for (int64_t b = 0; progress && b < p->batch; b++)
        memcpy(row_of(progress, b), (int32_t[PROGRESS]){[PROGRESS_LENGTH] = p->encodes ? 1 : (int32_t)p->length},
               PROGRESS * sizeof(int32_t));
    TRY(host_output(call, PROMPT_STATE + STATE_ENGINE, DT_I64, 1, (int64_t[]){1}, &engine));
    if (engine) TRY(whole(call, PROMPT_SEED, "seed", 0, engine->data));
    return start_beams(p);
}

Status host_search_prompt(HostCall *call) {
    Prompt p = {.call = call,
                .encodes = attr_int(call->node, "model_type", MODEL_GPT) == MODEL_T5,
                .pad = (int32_t)attr_int(call->node, "pad_token_id", 0)};
    TRY(check_prompt(&p));
    TRY(check_numbers(&p));
    TRY(make_tables(&p));
    int32_t *seen = ARENA_ARRAY(call->arena, int32_t, p.length);
    for (int64_t b = 0; b < p.batch; b++) fill_rows(&p, b, seen);
    return start_state(&p);
}
