/* SPDX-License-Identifier: Apache-2.0 */
/* GreedySearch, Sampling and BeamSearch (com.microsoft), told in operators that are there: the decoder as it stands for the prompt, and
 * a Loop around it for the tokens behind the first. With a decoder of GPT-2's form:
 *
 *   positions, mask, state = prompt(input_ids, attention_mask, ...)
 *   logits, caches = init_decoder or decoder(input_ids, positions, mask, no caches)
 *   go, tokens, state = SearchStep(logits, state, ...)
 *   Loop while go, max_length - length - 1 times:
 *       positions, mask = SearchInputs(iteration)
 *       logits, caches = decoder(tokens, positions, mask, caches)
 *       go, tokens, state = SearchStep(logits, state, ...)
 *
 * and of T5's, whose sequences begin with decoder_start_token_id:
 *
 *   start, mask, state = prompt(input_ids, attention_mask, ...)
 *   caches of cross attention = encoder(input_ids, mask)
 *   logits, caches = decoder(start, mask, no caches, caches of cross attention)
 *   ...
 *       logits, caches = decoder(tokens, mask, caches, caches of cross attention)
 *
 * Whisper's is T5's, but that the encoder reads features and all tokens that are there before, and no mask is there.
 * The prompt is read once for all beams of a sequence. Beams take the caches of the rows that they go on from (Gather). */
#include "ops/generation/search.h"

#include "lowering/sizes.h"
#include "lowering/subgraph.h"
#include "ops/families.h"
#include "ops/generation/form.h"

enum { STANDARD_OPSET = 13 }; /* of the operators of the standard that are made here */

/* What the operators read, and where it stands. */
typedef enum Input {
    IN_IDS,
    IN_MOST,
    IN_MIN,
    IN_BEAMS,
    IN_RETURNED,
    IN_LENGTH_PENALTY,
    IN_REPETITION,
    IN_VOCABULARY,
    IN_PREFIX,
    IN_MASK,
    IN_PRESENCE,
    IN_SEED,
    IN_DECODER_IDS,
    IN_LOGITS_PROCESSOR,
    INPUTS,
} Input;

static const struct {
    const char *name;
    int greedy, beam; /* place; -1: none */
    enum { WHOLE, NUMBER } type;
    int rank;
} inputs[INPUTS] = {
    [IN_IDS] = {"input_ids", 0, 0, WHOLE, 2},
    [IN_MOST] = {"max_length", 1, 1, WHOLE, 0},
    [IN_MIN] = {"min_length", 2, 2, WHOLE, 0},
    [IN_BEAMS] = {"num_beams", -1, 3, WHOLE, 0},
    [IN_RETURNED] = {"num_return_sequences", -1, 4, WHOLE, 0},
    [IN_LENGTH_PENALTY] = {"length_penalty", -1, 5, NUMBER, 0},
    [IN_REPETITION] = {"repetition_penalty", 3, 6, NUMBER, 0},
    [IN_VOCABULARY] = {"vocab_mask", 4, 7, WHOLE, 1},
    [IN_PREFIX] = {"prefix_vocab_mask", 5, 8, WHOLE, 2},
    [IN_MASK] = {"attention_mask", 6, 9, WHOLE, 2},
    [IN_PRESENCE] = {"presence_mask", 7, -1, WHOLE, 2},
    [IN_SEED] = {"seed", 8, -1, WHOLE, 0},
    [IN_DECODER_IDS] = {"decoder_input_ids", -1, 10, WHOLE, 2},
    [IN_LOGITS_PROCESSOR] = {"logits_processor", -1, 11, WHOLE, 0},
};

typedef VEC(Value *) Values;

typedef struct Search {
    Lowering *l;
    const Node *n;
    Node *before; /* what is made stands before this node; NULL: at the end */
    SearchKind kind;
    Value *in[INPUTS];
    Value *prompt; /* i32 [B, S]: input_ids; Whisper's decoder_input_ids */
    Form form;
} Search;

/* ---- what the node says ---- */

static Status read_inputs(Search *s) {
    Lowering *l = s->l;
    int own = s->n->input_count - s->n->captures;
    const bool hears = attr_int(s->n, "model_type", MODEL_GPT) == MODEL_WHISPER;
    for (int i = 0; i < INPUTS; i++) {
        int place = s->kind == SEARCH_BEAM ? inputs[i].beam : inputs[i].greedy;
        Value *value = place >= 0 && place < own ? s->n->inputs[place] : NULL;
        s->in[i] = value;
        if (!value) continue;
        bool features = hears && i == IN_IDS, whole = inputs[i].type == WHOLE && !features;
        int rank = features ? 3 : inputs[i].rank;
        if (value->kind != VALUE_TENSOR || !(whole ? value->dtype == DT_I32 : dtype_is_float(value->dtype)))
            return invalid(l, "%s is no tensor of %s", inputs[i].name, whole ? "int32" : "floats");
        if (value->rank != rank && (rank || value->rank != 1))
            return invalid(l, "%s has %d axes instead of %d", inputs[i].name, value->rank, rank);
    }
    if (!s->in[IN_IDS] || !s->in[IN_MOST]) return invalid(l, "input_ids or max_length is missing");
    if (!hears && s->in[IN_DECODER_IDS]) return unsupported(l, "decoder_input_ids, which Whisper alone has,");
    if (hears && s->in[IN_MASK]) return unsupported(l, "attention_mask beside the features of a Whisper");
    s->prompt = hears ? s->in[IN_DECODER_IDS] : s->in[IN_IDS];
    if (s->prompt && dim_equals(s->prompt->dims[1], 0))
        return invalid(l, "%s has no token", inputs[hears ? IN_DECODER_IDS : IN_IDS].name);
    return NULL;
}

/* Sequences of an encoder's decoder begin with a token of their own. Whisper's may be given more of them. */
static Status make_start(Search *s) {
    Lowering *l = s->l;
    int64_t first = attr_int(s->n, "decoder_start_token_id", -1);
    if (!s->form.encodes || (s->form.hears && s->prompt)) return NULL;
    if (first < 0)
        return invalid(l, "attribute decoder_start_token_id is missing or negative, which model_type %d needs",
                       s->form.hears ? MODEL_WHISPER : MODEL_T5);
    const Dim *dims[] = {s->in[IN_IDS]->dims[0], dim_const(l->dims, 1)};
    if (s->form.hears) s->prompt = expand(l, scalar_int(l, DT_I32, first), dims, 2);
    return l->error;
}

static Status check_attributes(Search *s) {
    Lowering *l = s->l;
    static const char *const needed[] = {"eos_token_id", "pad_token_id"}, *const natural[] = {"no_repeat_ngram_size",
                                                                                              "min_tokens_to_keep"};
    for (int i = 0; i < 2; i++)
        if (!node_attr(s->n, needed[i])) return invalid(l, "attribute %s is missing", needed[i]);
    for (int i = 0; i < 2; i++)
        if (attr_int(s->n, natural[i], 0) < 0) return invalid(l, "attribute %s is negative", natural[i]);
    return NULL;
}

/* ---- nodes that are lowered later ---- */

static Node *add_op(Search *s, Graph *graph, Node *before, const char *domain, const char *op, Value *const *given,
                    int count) {
    Node *made = graph_add_node(graph, before, NODE_ONNX, op, given, count);
    made->domain = domain;
    made->opset = *domain ? 1 : STANDARD_OPSET;
    made->origin = s->n->origin;
    node_follow_rules(made, s->n);
    return made;
}

static Value *add_result(Node *node) { return node_add_output(node, NULL, DT_NONE, -1, NULL); }

/* What it needs of the operator's attributes it has. */
static void hand_attributes_on(const Search *s, Node *node) {
    for (int i = 0; i < s->n->attrs.count; i++) node_set_attr(node, s->n->attrs.items[i]);
    node_set_int(node, SEARCH_KIND, s->kind);
    node_set_int(node, LENGTH_AXIS, s->form.length_axis);
}

static bool has_state(const Search *s, int state) {
    if (state == STATE_ENGINE) return s->kind == SEARCH_SAMPLING;
    return state == STATE_HISTORY || state == STATE_PROGRESS || s->kind == SEARCH_BEAM;
}

static bool wants_added(const Search *s) { return s->kind == SEARCH_BEAM && wants_output(s->n, 2); }

/* ---- the prompt ---- */

/* A scalar that is known, as a size; else one that the run binds. */
static const Dim *size_of(Search *s, Input input, const char *hint, int64_t otherwise) {
    const int64_t *known;
    int count;
    if (!s->in[input]) return dim_const(s->l->dims, otherwise);
    if (constant_of(s->in[input]) && constant_ints(s->l, s->in[input], &known, &count) && count == 1 && known[0] > 0 &&
        known[0] <= MOST_LENGTH)
        return dim_const(s->l->dims, known[0]);
    return dim_fresh(s->l->dims, hint);
}

static Status add_prompt(Search *s, Value **made) {
    Lowering *l = s->l;
    DimTable *d = l->dims;
    static const Input places[PROMPT_INPUTS] = {
        [PROMPT_IDS] = IN_IDS,           [PROMPT_MASK] = IN_MASK,
        [PROMPT_MOST] = IN_MOST,         [PROMPT_BEAMS] = IN_BEAMS,
        [PROMPT_RETURNED] = IN_RETURNED, [PROMPT_REPETITION] = IN_REPETITION,
        [PROMPT_SEED] = IN_SEED,         [PROMPT_LOGITS_PROCESSOR] = IN_LOGITS_PROCESSOR,
    };
    Value *given[PROMPT_INPUTS];
    for (int i = 0; i < PROMPT_INPUTS; i++) given[i] = s->in[places[i]];
    given[PROMPT_IDS] = s->prompt;
    Node *host = host_node(l, s->n, host_search_prompt, given, PROMPT_INPUTS);
    if (!host) return l->error;
    node_set_dims(host, "encoded", (const Dim *const *)s->in[IN_IDS]->dims, 1);
    const Dim *batch = s->prompt->dims[0], *one = dim_const(d, 1);
    const Dim *beams = size_of(s, IN_BEAMS, "beams", 1), *room = size_of(s, IN_MOST, "max_length", 0);
    const Dim *rows = dim_is_const(beams, NULL) ? dim_mul(d, batch, beams) : dim_fresh(d, "rows");
    const Dim *start[] = {batch, one}, *next[] = {rows, one}, *table[] = {rows, room}, *open[] = {rows},
              *progress[] = {batch, dim_const(d, PROGRESS)}, *ended[] = {batch, beams, dim_add(d, one, room)},
              *engine[] = {one};
    const struct {
        DType dtype;
        int rank;
        const Dim **dims;
    } types[PROMPT_OUTPUTS] = {
        [PROMPT_START] = {DT_I32, 2, start},
        [PROMPT_SEEN] = {DT_I32, 2, s->prompt->dims},
        [PROMPT_POSITIONS] = {DT_I32, 2, s->prompt->dims},
        [PROMPT_NEXT_POSITION] = {DT_I32, 2, next},
        [PROMPT_ROOM] = {DT_I32, 2, table},
        [PROMPT_STATE + STATE_HISTORY] = {DT_I32, 2, table},
        [PROMPT_STATE + STATE_PROGRESS] = {DT_I32, 2, progress},
        [PROMPT_STATE + STATE_OPEN] = {DT_F32, 1, open},
        [PROMPT_STATE + STATE_ENDED] = {DT_I32, 3, ended},
        [PROMPT_STATE + STATE_ENDED_SCORES] = {DT_F32, 2, ended},
        [PROMPT_STATE + STATE_ENGINE] = {DT_I64, 1, engine},
    };
    for (int i = 0; i < PROMPT_OUTPUTS; i++) {
        made[i] = NULL;
        bool wanted = i >= PROMPT_STATE   ? has_state(s, i - PROMPT_STATE)
                      : i == PROMPT_START ? s->form.encodes && !s->form.hears
                      : i == PROMPT_SEEN  ? !s->form.hears
                                          : !s->form.encodes;
        if (wanted)
            made[i] = host_result(l, host, types[i].dtype, types[i].rank, types[i].dims);
        else
            node_attach_output(host, NULL);
    }
    return l->error;
}

/* A cache of no position. */
static Value *no_past(Search *s, const Value *declared) {
    Lowering *l = s->l;
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < declared->rank; i++) dims[i] = declared->dims[i];
    dims[s->form.row_axis] = s->in[IN_IDS]->dims[0];
    dims[s->form.length_axis] = dim_const(l->dims, 0);
    return expand(l, scalar(l, declared->dtype, 0), dims, declared->rank);
}

/* ---- one token ---- */

/* One of the operator's graphs in another graph. given: its own inputs; captured: those from outside. Returns its outputs. */
static Value **add_graph(Search *s, Graph *to, Node *before, const Graph *graph, Value *const *given,
                         Value *const *captured) {
    int own = graph->inputs.count - s->n->captures;
    Value **all = ARENA_ARRAY(s->l->arena, Value *, graph->inputs.count),
          **results = ARENA_ARRAY(s->l->arena, Value *, graph->outputs.count);
    for (int i = 0; i < own; i++) all[i] = given[i];
    for (int i = 0; i < s->n->captures; i++) all[own + i] = captured[i];
    inline_graph_in(to, before, graph, all, results);
    return results;
}

static Value *const *captured_of(const Search *s) { return s->n->inputs + s->n->input_count - s->n->captures; }

static Value *add_gather(Search *s, Graph *graph, Node *before, Value *from, Value *rows, int axis) {
    Value *pick[] = {from, rows};
    Node *gather = add_op(s, graph, before, "", "Gather", pick, 2);
    node_set_int(gather, "axis", axis);
    return add_result(gather);
}

/* What a step reads beside the logits and the state, in the order of StepInput; `first`: of the first token. */
static Value *step_input(const Search *s, StepInput input, bool first) {
    switch (input) {
    case STEP_MIN: return s->in[IN_MIN];
    case STEP_REPETITION: return s->in[IN_REPETITION];
    case STEP_LENGTH_PENALTY: return s->in[IN_LENGTH_PENALTY];
    case STEP_VOCABULARY: return s->in[IN_VOCABULARY];
    case STEP_PREFIX: return first ? s->in[IN_PREFIX] : NULL;
    case STEP_PRESENCE: return s->in[IN_PRESENCE];
    default: return NULL;
    }
}

typedef struct Token {
    Value *made[STEP_OUTPUTS];
    Value **caches; /* [form.caches]: of the rows that go on */
} Token;

/* caches: what the decoder has made of them; fixed: STEP_MIN to STEP_PRESENCE at their places. */
static Token add_step(Search *s, Graph *graph, Node *before, Value *logits, Value *const *caches, Value *const *fixed,
                      Value *const *state) {
    Value *given[STEP_INPUTS + 1] = {[STEP_SCORES] = logits, [STEP_INPUTS] = caches[0]};
    for (int i = STEP_SCORES + 1; i < STEP_STATE; i++) given[i] = fixed[i];
    for (int i = 0; i < STATES; i++) given[STEP_STATE + i] = state[i];
    Node *step = add_op(s, graph, before, INTERNAL_DOMAIN, "SearchStep", given, STEP_INPUTS + 1);
    hand_attributes_on(s, step);
    Token token = {.caches = ARENA_ARRAY(s->l->arena, Value *, s->form.caches)};
    for (int i = 0; i < STEP_OUTPUTS; i++) {
        bool wanted = i == STEP_SOURCE  ? s->kind == SEARCH_BEAM
                      : i == STEP_ADDED ? wants_added(s)
                                        : i < STEP_NEW_STATE || has_state(s, i - STEP_NEW_STATE);
        if (wanted)
            token.made[i] = add_result(step);
        else
            node_attach_output(step, NULL);
    }
    for (int i = 0; i < s->form.caches; i++)
        token.caches[i] = s->kind != SEARCH_BEAM
                              ? caches[i]
                              : add_gather(s, graph, before, caches[i], token.made[STEP_SOURCE], s->form.row_axis);
    return token;
}

/* ---- the loop ---- */

/* Values that a Loop carries or its body reads from outside, and the body's inputs for them. */
typedef struct Passed {
    Values outer, inner;
} Passed;

static Value *pass(Search *s, Graph *body, Passed *passed, Value *outer) {
    if (!outer) return NULL;
    Value *inner = graph_add_input(body, NULL, DT_NONE, -1, NULL);
    VEC_PUSH(s->l->arena, passed->outer, outer);
    VEC_PUSH(s->l->arena, passed->inner, inner);
    return inner;
}

typedef struct Carried {
    Value *tokens, *state[STATES], **caches;
} Carried;

static void each_carried(const Search *s, Carried *c, void (*visit)(void *context, Value **value), void *context) {
    visit(context, &c->tokens);
    for (int i = 0; i < STATES; i++)
        if (has_state(s, i)) visit(context, &c->state[i]);
    for (int i = 0; i < s->form.caches; i++) visit(context, &c->caches[i]);
}

typedef struct Body {
    Search *s;
    Graph *graph;
    Passed carried, captured;
    Node *loop;
} Body;

static void make_carried(void *context, Value **value) {
    Body *b = context;
    *value = pass(b->s, b->graph, &b->carried, *value);
}

static void give_carried(void *context, Value **value) { graph_add_output(((Body *)context)->graph, *value); }

static void add_carried_result(void *context, Value **value) { *value = add_result(((Body *)context)->loop); }

static Carried carried_of(const Token *token) {
    Carried c = {.tokens = token->made[STEP_TOKENS], .caches = token->caches};
    for (int i = 0; i < STATES; i++) c.state[i] = token->made[STEP_NEW_STATE + i];
    return c;
}

/* What the decoder reads in each iteration, in its order; `rows`: what it reads of the encoder, of all rows, at its places. */
static Value **decoder_inputs(Body *b, const Carried *c, Value *iteration, Value *const *prompt, Value *const *rows) {
    Search *s = b->s;
    int count = s->form.decoder->inputs.count - s->n->captures;
    Value **given = ARENA_ARRAY(s->l->arena, Value *, count);
    given[0] = c->tokens;
    for (int i = 1; i < count; i++) given[i] = pass(s, b->graph, &b->captured, rows[i]);
    for (int i = 0; i < s->form.caches; i++) given[s->form.first_past + i] = c->caches[i];
    if (s->form.encodes) return given;
    Value *reads[] = {pass(s, b->graph, &b->captured, prompt[PROMPT_NEXT_POSITION]),
                      pass(s, b->graph, &b->captured, prompt[PROMPT_ROOM]), c->caches[0], iteration};
    Node *node = add_op(s, b->graph, NULL, INTERNAL_DOMAIN, "SearchInputs", reads, 4);
    given[1] = add_result(node);
    given[2] = add_result(node);
    return given;
}

/* The body; `c`: what it carries, outside. */
static void fill_body(Body *b, const Carried *c, Value *const *prompt, Value *const *rows) {
    Search *s = b->s;
    Graph *body = b->graph;
    Value *iteration = graph_add_input(body, NULL, DT_NONE, -1, NULL), *fixed[STEP_STATE] = {0};
    graph_add_input(body, NULL, DT_NONE, -1, NULL);
    Carried inner = *c;
    inner.caches = ARENA_ARRAY(s->l->arena, Value *, s->form.caches);
    for (int i = 0; i < s->form.caches; i++) inner.caches[i] = c->caches[i];
    each_carried(s, &inner, make_carried, b);
    Value **given = decoder_inputs(b, &inner, iteration, prompt, rows);
    for (int i = STEP_SCORES + 1; i < STEP_STATE; i++)
        fixed[i] = pass(s, body, &b->captured, step_input(s, (StepInput)i, false));
    Value **from_outside = ARENA_ARRAY(s->l->arena, Value *, s->n->captures);
    for (int i = 0; i < s->n->captures; i++) from_outside[i] = pass(s, body, &b->captured, captured_of(s)[i]);

    Value **results = add_graph(s, body, NULL, s->form.decoder, given, from_outside);
    Token token = add_step(s, body, NULL, results[0], results + FORM_PRESENT, fixed, inner.state);
    graph_add_output(body, token.made[STEP_GO]);
    Carried made = carried_of(&token);
    each_carried(s, &made, give_carried, b);
    if (wants_added(s)) graph_add_output(body, token.made[STEP_ADDED]);
}

/* Runs until nothing is left to do; *c becomes what it carries in the end. Returns what STEP_ADDED was, stacked; NULL when it is not
 * wanted. */
static Value *add_loop(Search *s, Value *go, Carried *c, Value *trips, Value *const *prompt, Value *const *rows) {
    Body b = {.s = s, .graph = graph_sub(s->l->graph, "search")};
    fill_body(&b, c, prompt, rows);
    Values given = {0};
    VEC_PUSH(s->l->arena, given, trips);
    VEC_PUSH(s->l->arena, given, go);
    for (int i = 0; i < b.carried.outer.count; i++) VEC_PUSH(s->l->arena, given, b.carried.outer.items[i]);
    for (int i = 0; i < b.captured.outer.count; i++) VEC_PUSH(s->l->arena, given, b.captured.outer.items[i]);
    b.loop = add_op(s, s->l->graph, s->before, "", "Loop", given.items, given.count);
    b.loop->captures = b.captured.outer.count;
    node_add_subgraph(b.loop, b.graph);
    each_carried(s, c, add_carried_result, &b);
    return wants_added(s) ? add_result(b.loop) : NULL;
}

/* ---- what comes before the loop ---- */

typedef struct Start {
    Value *logits, **caches; /* of the first step */
    Value *
        *encoded; /* [decoder's inputs]: what it reads of the encoder, at its places; of each sequence of the batch */
} Start;

/* The decoder reads the prompt. */
static Start start_gpt(Search *s, Value *const *prompt) {
    const Graph *first = s->form.first;
    int count = s->form.first_past + s->form.caches;
    Value **given = ARENA_ARRAY(s->l->arena, Value *, count);
    given[0] = s->in[IN_IDS];
    given[1] = prompt[PROMPT_POSITIONS];
    given[2] = prompt[PROMPT_SEEN];
    for (int i = s->form.first_past; i < count; i++) given[i] = no_past(s, first->inputs.items[i]);
    Value **results = add_graph(s, s->l->graph, s->before, first, given, captured_of(s));
    return (Start){results[0], results + FORM_PRESENT, ARENA_ARRAY(s->l->arena, Value *, count)};
}

/* The encoder reads the prompt, and it or the decoder the first token (Whisper: tokens). */
static Start start_encoded(Search *s, Value *const *prompt) {
    const Form *f = &s->form;
    Value *given[] = {s->in[IN_IDS], f->hears ? s->prompt : prompt[PROMPT_SEEN], prompt[PROMPT_START]};
    Value **made = add_graph(s, s->l->graph, s->before, f->first, given, captured_of(s)),
          **encoded = ARENA_ARRAY(s->l->arena, Value *, f->first_past + 2 * f->caches),
          **cross = made + f->first->outputs.count - f->caches;
    if (!f->hears) encoded[1] = prompt[PROMPT_SEEN];
    if (f->reads_hidden) encoded[f->first_past - 1] = made[FORM_HIDDEN];
    for (int i = 0; i < f->caches; i++) encoded[f->first_past + f->caches + i] = cross[i];
    if (f->starts) return (Start){made[0], made + FORM_FIRST_PRESENT, encoded};
    int count = f->first_past + 2 * f->caches;
    Value **reads = ARENA_ARRAY(s->l->arena, Value *, count);
    for (int i = 0; i < count; i++) reads[i] = encoded[i];
    reads[0] = prompt[PROMPT_START];
    for (int i = 0; i < f->caches; i++)
        reads[f->first_past + i] = no_past(s, f->decoder->inputs.items[f->first_past + i]);
    Value **results = add_graph(s, s->l->graph, s->before, f->decoder, reads, captured_of(s));
    return (Start){results[0], results + FORM_PRESENT, encoded};
}

/* ---- results ---- */

static void give(Search *s, int index, Value *value) {
    if (wants_output(s->n, index)) value_replace(s->l->graph, s->n->outputs[index], value);
}

static void add_beam_results(Search *s, const Carried *c, Value *first_added, Value *added, const Dim *steps) {
    Value *given[RESULT_INPUTS] = {[RESULT_RETURNED] = s->in[IN_RETURNED],
                                   [RESULT_LENGTH_PENALTY] = s->in[IN_LENGTH_PENALTY],
                                   [RESULT_FIRST_ADDED] = first_added,
                                   [RESULT_ADDED] = added};
    for (int i = 0; i < STATES; i++) given[RESULT_STATE + i] = c->state[i];
    Node *result = add_op(s, s->l->graph, s->before, INTERNAL_DOMAIN, "SearchResult", given, RESULT_INPUTS);
    hand_attributes_on(s, result);
    const Dim *sizes[] = {size_of(s, IN_RETURNED, "returned", 1)};
    node_set_dims(result, "steps", &steps, 1);
    node_set_dims(result, "returned", sizes, 1);
    const Value *penalty = s->in[IN_LENGTH_PENALTY] ? s->in[IN_LENGTH_PENALTY] : s->in[IN_REPETITION];
    node_set_dtype(result, "to", penalty ? penalty->dtype : DT_F32);
    for (int i = 0; i < 3; i++) {
        if (wants_output(s->n, i))
            give(s, i, add_result(result));
        else
            node_attach_output(result, NULL);
    }
}

static Status add_search(Search *s) {
    Lowering *l = s->l;
    Value *prompt[PROMPT_OUTPUTS], *fixed[STEP_STATE] = {0};
    TRY(add_prompt(s, prompt));
    const Dim *zero = dim_const(l->dims, 0), *one = dim_const(l->dims, 1), *room = prompt[PROMPT_STATE]->dims[1],
              *length = s->form.encodes && !s->form.hears ? one : s->prompt->dims[1],
              *steps = dim_max(l->dims, zero, dim_sub(l->dims, room, length));
    Value *trips = dim_scalar(l, dim_sub(l->dims, steps, one));
    for (int i = STEP_SCORES + 1; i < STEP_STATE; i++) fixed[i] = step_input(s, (StepInput)i, true);
    Start start = s->form.encodes ? start_encoded(s, prompt) : start_gpt(s, prompt);
    if (l->error) return l->error;
    Token first = add_step(s, l->graph, s->before, start.logits, start.caches, fixed, prompt + PROMPT_STATE);
    int count = s->form.decoder->inputs.count - s->n->captures;
    for (int i = 0; i < count; i++)
        if (start.encoded[i])
            start.encoded[i] = add_gather(s, l->graph, s->before, start.encoded[i], first.made[STEP_SOURCE], 0);
    Carried c = carried_of(&first);
    c.caches = ARENA_ARRAY(l->arena, Value *, s->form.caches);
    for (int i = 0; i < s->form.caches; i++) c.caches[i] = first.caches[i];
    Value *added = add_loop(s, first.made[STEP_GO], &c, trips, prompt, start.encoded);
    if (s->kind == SEARCH_BEAM)
        add_beam_results(s, &c, first.made[STEP_ADDED], added, steps);
    else
        give(s, 0, c.state[STATE_HISTORY]);
    return l->error;
}

static Status lower_search(Lowering *l, const Node *n, SearchKind kind) {
    Search s = {.l = l, .n = n, .before = n->next, .kind = kind};
    TRY(read_inputs(&s));
    TRY(check_attributes(&s));
    TRY(read_form(l, n, &s.form));
    TRY(make_start(&s));
    return add_search(&s);
}

static Status lower_greedy(Lowering *l, const Node *n) { return lower_search(l, n, SEARCH_GREEDY); }
static Status lower_sampling(Lowering *l, const Node *n) { return lower_search(l, n, SEARCH_SAMPLING); }
static Status lower_beam(Lowering *l, const Node *n) { return lower_search(l, n, SEARCH_BEAM); }

const OpRow ops_generation[] = {
    {"com.microsoft", "GreedySearch", 1, 0, lower_greedy, host_search_prompt, OP_CONTROL_FLOW},
    {"com.microsoft", "Sampling", 1, 0, lower_sampling, host_search_prompt, OP_CONTROL_FLOW},
    {"com.microsoft", "BeamSearch", 1, 0, lower_beam, host_search_prompt, OP_CONTROL_FLOW},
    {0},
};
