/* SPDX-License-Identifier: Apache-2.0 */
/* One token more for each row of a search. Scores are changed in this order, which is ONNX Runtime's: repetition_penalty,
 * no_repeat_ngram_size, vocab_mask, prefix_vocab_mask, min_length, temperature, presence_mask; "lowest" is the least float. */
#include "lowering/sizes.h"
#include "ops/generation/beam.h"
#include "ops/generation/sample.h"

#include <float.h>
#include <math.h>

typedef struct Candidate {
    float score;
    int32_t row, token;
} Candidate;

typedef struct SearchStep {
    HostCall *call;
    SearchKind kind;
    const Tensor *scores, *history, *progress;
    Tensor *state[STATES], *tokens, *source, *added;              /* made */
    int64_t batch, beams, rows, room, length, vocabulary, shared; /* shared: rows to a row of scores */
    int32_t eos, pad;
    /* What changes scores; NULL, and numbers that change nothing, where it is not asked for. */
    const int32_t *vocabulary_mask, *prefix_mask, *presence;
    float repetition, temperature, presence_penalty;
    int64_t least, ngram;
    float *work;           /* GREEDY: [workers, V]; else [rows, V] */
    Ranked *ranked;        /* SAMPLING: [workers, V] */
    int32_t *chosen;       /* [rows] */
    Candidate *candidates; /* BEAM: [rows][candidate_count], best first */
    int64_t candidate_count;
    Candidate *merged; /* BEAM: [batch][2 * beams], best first */
} SearchStep;

/* ---- inputs ---- */

static float number(const SearchStep *s, int index, float otherwise) {
    const Tensor *given = host_input(s->call, index);
    return given && tensor_count(given) == 1 ? (float)dtype_load_double(given->dtype, given->data, 0) : otherwise;
}

static Status read_mask(SearchStep *s, int index, const char *name, int64_t rows, const int32_t **out_mask) {
    const Tensor *mask = host_input(s->call, index);
    if (!mask) return NULL;
    if (tensor_count(mask) != rows * s->vocabulary || mask->dims[mask->rank - 1] != s->vocabulary)
        return host_error(s->call, "%s should have %lld x %lld elements", name, (long long)rows,
                          (long long)s->vocabulary);
    *out_mask = mask->data;
    return NULL;
}

static Status read_masks(SearchStep *s) {
    TRY(read_mask(s, STEP_VOCABULARY, "vocab_mask", 1, &s->vocabulary_mask));
    TRY(read_mask(s, STEP_PREFIX, "prefix_vocab_mask", s->batch, &s->prefix_mask));
    return read_mask(s, STEP_PRESENCE, "presence_mask", s->batch, &s->presence);
}

static Status read_sizes(SearchStep *s) {
    HostCall *call = s->call;
    TRY(host_tensor(call, STEP_SCORES, DT_F32, &s->scores));
    TRY(host_tensor(call, STEP_STATE + STATE_HISTORY, DT_I32, &s->history));
    TRY(host_tensor(call, STEP_STATE + STATE_PROGRESS, DT_I32, &s->progress));
    int64_t cached, given = s->scores->dims[0];
    TRY(host_sizes(call, "cached", 1, &cached));
    s->rows = s->history->dims[0];
    s->room = s->history->dims[1];
    s->batch = s->progress->dims[0];
    s->vocabulary = s->scores->dims[1];
    if (!s->batch) return host_error(call, "input_ids has no sequence");
    s->beams = s->rows / s->batch;
    s->length = ((const int32_t *)s->progress->data)[PROGRESS_LENGTH];
    if (given != s->rows && given != s->batch)
        return host_error(call, "the decoder gives logits of %lld sequences where %lld are asked for", (long long)given,
                          (long long)s->rows);
    s->shared = s->rows / given;
    if (cached != s->length)
        return host_error(call, "the decoder's caches hold %lld positions after %lld tokens", (long long)cached,
                          (long long)s->length);
    if (s->vocabulary < 2 || s->vocabulary > INT32_MAX)
        return host_error(call, "a vocabulary of %lld tokens", (long long)s->vocabulary);
    return NULL;
}

static void read_rules(SearchStep *s) {
    const Node *n = s->call->node;
    s->eos = (int32_t)attr_int(n, "eos_token_id", -1);
    s->pad = (int32_t)attr_int(n, "pad_token_id", 0);
    s->ngram = attr_int(n, "no_repeat_ngram_size", 0);
    s->temperature = (float)attr_float(n, "temperature", 1);
    s->presence_penalty = (float)attr_float(n, "presence_penalty", 0);
    s->repetition = number(s, STEP_REPETITION, 1);
    const Tensor *least = host_input(s->call, STEP_MIN);
    s->least = least && tensor_count(least) == 1 ? dtype_load_int(least->dtype, least->data, 0) : 0;
}

/* ---- scores ---- */

static const int32_t *tokens_of(const SearchStep *s, int64_t row) {
    return (const int32_t *)s->history->data + row * s->room;
}

static bool is_score(const SearchStep *s, int32_t token) { return token >= 0 && token < s->vocabulary; }

/* A token that comes again is punished once: what it is made from stays. */
static void punish_repetition(const SearchStep *s, const int32_t *tokens, const float *given, float *scores) {
    for (int64_t i = 0; i < s->length; i++) {
        if (!is_score(s, tokens[i])) continue;
        float score = given[tokens[i]];
        scores[tokens[i]] = score < 0 ? score * s->repetition : score / s->repetition;
    }
}

static void block_ngrams(const SearchStep *s, const int32_t *tokens, float *scores) {
    int64_t before = s->ngram - 1;
    const int32_t *last = tokens + s->length - before;
    for (int64_t i = 0; i + s->ngram <= s->length; i++)
        if (is_score(s, tokens[i + before]) && memcmp(tokens + i, last, (size_t)before * sizeof *tokens) == 0)
            scores[tokens[i + before]] = -FLT_MAX;
}

static void keep_masked(const SearchStep *s, const int32_t *mask, float *scores) {
    for (int64_t v = 0; v < s->vocabulary; v++)
        if (!mask[v]) scores[v] = -FLT_MAX;
}

/* Writes a row's scores as the rules leave them. */
static void score_row(const SearchStep *s, int64_t row, float *scores) {
    int64_t vocabulary = s->vocabulary, b = row / s->beams;
    const float *given = (const float *)s->scores->data + row / s->shared * vocabulary;
    memcpy(scores, given, (size_t)vocabulary * sizeof *scores);
    if (s->repetition != 1) punish_repetition(s, tokens_of(s, row), given, scores);
    if (s->ngram > 0 && s->ngram <= s->length) block_ngrams(s, tokens_of(s, row), scores);
    if (s->vocabulary_mask) keep_masked(s, s->vocabulary_mask, scores);
    if (s->prefix_mask) keep_masked(s, s->prefix_mask + b * vocabulary, scores);
    if (s->length < s->least && is_score(s, s->eos)) scores[s->eos] = -FLT_MAX;
    for (int64_t v = 0; s->temperature > 0 && s->temperature != 1 && v < vocabulary; v++) scores[v] /= s->temperature;
    for (int64_t v = 0; s->presence && s->presence_penalty != 0 && v < vocabulary; v++)
        scores[v] -= (float)s->presence[b * vocabulary + v] * s->presence_penalty;
}

/* ---- a token for each row ---- */

static bool is_done(const SearchStep *s, int64_t b) {
    return ((const int32_t *)s->progress->data)[b * PROGRESS + PROGRESS_DONE] != 0;
}

static void choose_best(void *context, int64_t begin, int64_t end, int worker) {
    const SearchStep *s = context;
    float *scores = s->work + worker * s->vocabulary;
    for (int64_t row = begin; row < end; row++) {
        if (is_done(s, row)) continue;
        score_row(s, row, scores);
        int64_t best = 0;
        for (int64_t v = 1; v < s->vocabulary; v++)
            if (scores[v] > scores[best]) best = v;
        s->chosen[row] = (int32_t)best;
    }
}

static void filter_rows(void *context, int64_t begin, int64_t end, int worker) {
    const SearchStep *s = context;
    for (int64_t row = begin; row < end; row++) {
        float *scores = s->work + row * s->vocabulary;
        score_row(s, row, scores);
        sample_filter(s->call->node, scores, s->vocabulary, s->ranked + worker * s->vocabulary);
    }
}

/* One after the other, rows that are done too: their numbers are drawn from one engine. */
static Status draw_rows(SearchStep *s) {
    const Tensor *before;
    TRY(host_tensor(s->call, STEP_STATE + STATE_ENGINE, DT_I64, &before));
    uint32_t engine = (uint32_t) * (const int64_t *)before->data;
    for (int64_t row = 0; row < s->rows; row++) {
        s->chosen[row] = (int32_t)sample_draw(s->work + row * s->vocabulary, s->vocabulary, &engine);
        if (s->chosen[row] < 0) return host_error(s->call, "no token of row %lld has a finite score", (long long)row);
    }
    if (s->state[STATE_ENGINE]) *(int64_t *)s->state[STATE_ENGINE]->data = engine;
    return NULL;
}

/* A row that has ended goes on with padding. */
static void append_tokens(const SearchStep *s) {
    int32_t *progress = s->state[STATE_PROGRESS]->data;
    for (int64_t row = 0; row < s->rows; row++, progress += PROGRESS) {
        if (s->chosen[row] == s->eos) progress[PROGRESS_DONE] = 1;
        if (progress[PROGRESS_DONE]) s->chosen[row] = s->pad;
        ((int32_t *)s->state[STATE_HISTORY]->data)[row * s->room + s->length] = s->chosen[row];
    }
}

static Status step_rows(SearchStep *s) {
    HostCall *call = s->call;
    bool sampling = s->kind == SEARCH_SAMPLING;
    int64_t lines = sampling ? s->rows : pool_threads(call->pool);
    s->work = arena_array(call->arena, (size_t)lines, (size_t)s->vocabulary * sizeof *s->work);
    if (sampling)
        s->ranked =
            arena_array(call->arena, (size_t)pool_threads(call->pool), (size_t)s->vocabulary * sizeof *s->ranked);
    pool_for(call->pool, s->rows, 1 + 16384 / s->vocabulary, sampling ? filter_rows : choose_best, s);
    if (sampling) TRY(draw_rows(s));
    memcpy(s->state[STATE_HISTORY]->data, s->history->data, tensor_bytes(s->history));
    append_tokens(s);
    return NULL;
}

/* ---- beams ---- */

/* a comes before b: of equal scores the first. */
static bool before(const Candidate *a, float score) { return a->score >= score; }

/* The best of a row, best first; of equal scores the first token. */
static void find_candidates(const SearchStep *s, int64_t row, const float *scores, Candidate *best) {
    int64_t count = 0;
    for (int64_t v = 0; v < s->vocabulary; v++) {
        if (count == s->candidate_count && before(&best[count - 1], scores[v])) continue;
        int64_t at = count < s->candidate_count ? count++ : count - 1;
        for (; at > 0 && !before(&best[at - 1], scores[v]); at--) best[at] = best[at - 1];
        best[at] = (Candidate){scores[v], (int32_t)row, (int32_t)v};
    }
}

static void score_beams(void *context, int64_t begin, int64_t end, int worker) {
    const SearchStep *s = context;
    for (int64_t row = begin; row < end; row++) {
        float *scores = s->added ? (float *)s->added->data + row * s->vocabulary : s->work + worker * s->vocabulary;
        float sum = ((const float *)host_input(s->call, STEP_STATE + STATE_OPEN)->data)[row];
        score_row(s, row, scores);
        for (int64_t v = 0; v < s->vocabulary; v++) scores[v] += sum;
        find_candidates(s, row, scores, s->candidates + row * s->candidate_count);
    }
}

/* The 2 * beams best of all beams of one sequence of the batch, of equal scores those of the first beam. next: scratch [beams]. */
static void merge_candidates(const SearchStep *s, int64_t b, int64_t *next) {
    for (int64_t k = 0; k < s->beams; k++) next[k] = 0;
    for (int64_t i = 0; i < 2 * s->beams; i++) {
        int64_t best = -1;
        const Candidate *chosen = NULL;
        for (int64_t k = 0; k < s->beams; k++) {
            const Candidate *at = s->candidates + (b * s->beams + k) * s->candidate_count + next[k];
            if (next[k] < s->candidate_count && (!chosen || at->score > chosen->score)) chosen = at, best = k;
        }
        s->merged[2 * b * s->beams + i] = *chosen;
        next[best]++;
    }
}

/* The sum that a sequence of the batch is taken to be able to reach still. ONNX Runtime looks for it in the candidates from place
 * b * beams on, not 2 * b * beams, which for b > 0 are also those of sequences before it; its results follow from that. */
static float best_sum(const SearchStep *s, int64_t b) {
    const Candidate *from = s->merged + b * s->beams;
    float best = from[0].score;
    for (int64_t i = 1; i < 2 * s->beams; i++)
        if (from[i].score > best) best = from[i].score;
    return best;
}

/* Where a row goes on from, with which token. */
static void follow(const SearchStep *s, int64_t row, int64_t from, int32_t token, float sum) {
    int32_t *history = (int32_t *)s->state[STATE_HISTORY]->data + row * s->room;
    memcpy(history, tokens_of(s, from), (size_t)s->room * sizeof *history);
    history[s->length] = token;
    s->chosen[row] = token;
    ((float *)s->state[STATE_OPEN]->data)[row] = sum;
    if (s->source) ((int64_t *)s->source->data)[row] = from / s->shared;
}

static Ended ended_of(const SearchStep *s, int64_t b) {
    int32_t *progress = (int32_t *)s->state[STATE_PROGRESS]->data + b * PROGRESS;
    return (Ended){.tokens = (int32_t *)s->state[STATE_ENDED]->data + b * s->beams * (1 + s->room),
                   .scores = (float *)s->state[STATE_ENDED_SCORES]->data + b * s->beams,
                   .count = progress + PROGRESS_ENDED,
                   .beams = s->beams,
                   .room = s->room,
                   .length_penalty = number(s, STEP_LENGTH_PENALTY, 1)};
}

/* An end token among the first `beams` candidates ends its row; the best others are what is followed. */
static void step_beams_of(const SearchStep *s, int64_t b) {
    const Candidate *best = s->merged + 2 * b * s->beams;
    Ended ended = ended_of(s, b);
    int64_t row = b * s->beams, end = row + s->beams;
    for (int64_t i = 0; row < end; i++) {
        if (best[i].token != s->eos)
            follow(s, row++, best[i].row, best[i].token, best[i].score);
        else if (i < s->beams)
            ended_add(&ended, tokens_of(s, best[i].row), s->length, best[i].score);
    }
    if (*ended.count < s->beams) return;
    bool done = attr_int(s->call->node, "early_stopping", 0) == 1 ||
                ended.scores[s->beams - 1] >= ended_score(&ended, best_sum(s, b), s->length);
    ((int32_t *)s->state[STATE_PROGRESS]->data)[b * PROGRESS + PROGRESS_DONE] = done;
}

static Status step_beams(SearchStep *s) {
    HostCall *call = s->call;
    s->merged = arena_array(call->arena, (size_t)s->rows, 2 * sizeof *s->merged);
    int64_t *next = ARENA_ARRAY(call->arena, int64_t, s->beams);
    s->candidate_count = 2 * s->beams < s->vocabulary ? 2 * s->beams : s->vocabulary;
    s->candidates = arena_array(call->arena, (size_t)s->rows, (size_t)s->candidate_count * sizeof *s->candidates);
    if (!s->added)
        s->work = arena_array(call->arena, (size_t)pool_threads(call->pool), (size_t)s->vocabulary * sizeof *s->work);
    pool_for(call->pool, s->rows, 1 + 4096 / s->vocabulary, score_beams, s);
    for (int64_t b = 0; b < s->batch; b++) merge_candidates(s, b, next);
    for (int64_t b = 0; b < s->batch; b++) {
        if (!is_done(s, b)) step_beams_of(s, b);
        /* Padding from here on, behind the first sequence of the batch, as ONNX Runtime has it. */
        for (int64_t k = 0; is_done(s, b) && k < s->beams; k++) follow(s, b * s->beams + k, 0, s->pad, 0);
    }
    return NULL;
}

/* ---- the kernel ---- */

static Status make_results(SearchStep *s) {
    HostCall *call = s->call;
    for (int i = 0; i < STATES; i++) {
        const Tensor *from = host_input(call, STEP_STATE + i);
        if (!from) continue;
        TRY(host_output(call, STEP_NEW_STATE + i, from->dtype, from->rank, from->dims, &s->state[i]));
        if (!s->state[i]) s->state[i] = tensor_new(call->arena, from->dtype, from->rank, from->dims);
        if (i != STATE_HISTORY) memcpy(s->state[i]->data, from->data, tensor_bytes(from));
    }
    TRY(host_output(call, STEP_TOKENS, DT_I32, 2, (int64_t[]){s->rows, 1}, &s->tokens));
    TRY(host_output(call, STEP_SOURCE, DT_I64, 1, (int64_t[]){s->rows}, &s->source));
    s->chosen = ARENA_ARRAY(call->arena, int32_t, s->rows);
    return host_output(call, STEP_ADDED, DT_F32, 2, (int64_t[]){s->rows, s->vocabulary}, &s->added);
}

static Status finish(SearchStep *s) {
    int32_t *progress = s->state[STATE_PROGRESS]->data;
    bool go = false;
    for (int64_t b = 0; b < s->batch; b++, progress += PROGRESS) {
        progress[PROGRESS_LENGTH]++;
        go |= !progress[PROGRESS_DONE];
    }
    if (s->tokens) memcpy(s->tokens->data, s->chosen, tensor_bytes(s->tokens));
    Tensor *flag;
    TRY(host_output(s->call, STEP_GO, DT_BOOL, 0, NULL, &flag));
    if (flag) *(uint8_t *)flag->data = go;
    return NULL;
}

Status host_search_step(HostCall *call) {
    SearchStep s = {.call = call, .kind = (SearchKind)attr_int(call->node, SEARCH_KIND, SEARCH_GREEDY)};
    TRY(read_sizes(&s));
    TRY(read_masks(&s));
    read_rules(&s);
    TRY(make_results(&s));
    TRY(s.kind == SEARCH_BEAM ? step_beams(&s) : step_rows(&s));
    return finish(&s);
}
