/* SPDX-License-Identifier: Apache-2.0 */
/* States of a session: between runs each is a tensor, or nothing where no run has used it yet. What a run needs room for is known before
 * it, from the output's size:
 *
 *     appended   held with its axis first, so that it is the beginning of a memory with room for more rows, which the run writes behind
 *                it. Room doubles, or is the capacity from the start. A run that fails has changed nothing
 *     room       is as long as its room, which grows likewise; what of it is used is the model's to know
 *     whole      is written to a second memory of the same size, which then takes the place of the first
 *
 * Where the plan does not make the output in the input's memory (a device of its own memory; a model that reads it otherwise, too), the
 * run makes a new tensor, which takes the old one's place. */
#include "runtime/api/state.h"

#include <stdlib.h>

#include "base/fork.h"
#include "graph/eval/eval.h"

typedef struct Kept {
    Item item;     /* tensor.data NULL: no memory yet */
    size_t bytes;  /* of that memory */
    void *second;  /* whole: the other memory, or NULL */
    bool begun;    /* a run or a set has left something in it */
    bool in_place; /* of the run that is going on: the output is in the item's memory */
    bool in_second;
} Kept;

struct OnnxfuseState {
    OnnxfuseSession *session;
    atomic_bool busy;
    bool broken;      /* a run that wrote over it has failed */
    int64_t *symbols; /* [plan->symbol_count] of the run that is going on */
    Kept kept[];      /* [graph->kept.count] */
};

enum { FIRST_ROOM = 16 }; /* rows */

/* ---- one call at a time ---- */

static Status claim(OnnxfuseState *state) {
    if (!atomic_exchange(&state->busy, true)) return NULL;
    return status_error(STATUS_USAGE, "the state is in use by another call: one at a time, or a state for each");
}

static void let_go(OnnxfuseState *state) { atomic_store(&state->busy, false); }

/* ---- what is known of a pair ---- */

static const GraphKept *pair_at(const OnnxfuseSession *s, int i) { return &s->graph->kept.items[i]; }
static const Value *input_of(const OnnxfuseSession *s, int i) { return s->graph->inputs.items[pair_at(s, i)->input]; }
static const Value *output_of(const OnnxfuseSession *s, int i) {
    return s->graph->outputs.items[pair_at(s, i)->output];
}
/* The axis along which it grows, as it is held. */
static int held_axis(const GraphKept *pair) { return pair->form == KEPT_APPENDED ? 0 : pair->axis; }

static Status at_pair(Status status, const OnnxfuseSession *s, int i) {
    return status_at(status, "state \"%s\" of \"%s\"", s->states[i].input, s->states[i].output);
}

static bool is_in_place(const Plan *plan, const GraphKept *pair) {
    if (pair->form == KEPT_APPENDED) return plan_appends(plan, pair->input, pair->output);
    return plan_writes_over(plan, pair->input, pair->output);
}

/* ---- memory ---- */

/* At least `bytes`, of which the first `used` are kept; what is new is zero if asked for. */
static Status ensure_memory(OnnxfuseSession *s, Kept *kept, size_t bytes, size_t used, bool zeroed) {
    void *data;
    if (kept->item.tensor.data && kept->bytes >= bytes) return NULL;
    TRY(memory_alloc(&s->memory, bytes, &data));
    if (used) memcpy(data, kept->item.tensor.data, used);
    if (zeroed) memset((char *)data + used, 0, bytes - used);
    memory_free(&s->memory, kept->item.tensor.data);
    kept->item.tensor.data = data;
    kept->bytes = bytes;
    return NULL;
}

static void drop(OnnxfuseSession *s, Kept *kept) {
    memory_free(&s->memory, kept->item.tensor.data);
    memory_free(&s->memory, kept->second);
    *kept = (Kept){.item.kind = ITEM_TENSOR};
}

static Status rows_for(const GraphKept *pair, int64_t need, int64_t have, int64_t *out_room) {
    if (pair->capacity && need > pair->capacity)
        return status_error(STATUS_INVALID, "%lld rows along axis %d, and its capacity is %lld", (long long)need,
                            pair->axis, (long long)pair->capacity);
    int64_t room = have * 2 > FIRST_ROOM ? have * 2 : FIRST_ROOM;
    while (room < need) room *= 2;
    *out_room = pair->capacity ? pair->capacity : need <= have ? have : room;
    return NULL;
}

/* ---- sizes ---- */

static Status bind_given(const OnnxfuseSession *s, const Item **items, int64_t *symbols) {
    for (int i = 0; i < s->plan->symbol_count; i++) symbols[i] = UNBOUND_DIM;
    for (int i = 0; i < session_inputs(s); i++) {
        const Value *v = s->graph->inputs.items[i];
        if (v->kind != VALUE_TENSOR || items[i]->kind != ITEM_TENSOR) continue; /* which the run says */
        TRY(bind_dims(s->graph->dims, v, items[i]->tensor.rank, items[i]->tensor.dims, symbols));
    }
    return NULL;
}

/* The sizes of a state in which nothing is: what no other input has is 0 rows. */
static Status first_dims(const OnnxfuseSession *s, int i, const int64_t *symbols, Tensor *t) {
    const Value *v = input_of(s, i);
    int unknown = -1, axis = held_axis(pair_at(s, i));
    t->dtype = v->dtype;
    t->rank = v->rank;
    for (int d = 0; d < v->rank; d++) {
        t->dims[d] = d == axis ? 0 : dim_eval(v->dims[d], symbols);
        if (t->dims[d] != UNBOUND_DIM) continue;
        if (unknown >= 0 || axis >= 0)
            return status_error(STATUS_INVALID,
                                "the size of axis %d is not known at the first run: no other input has it", d);
        unknown = d;
        t->dims[d] = 0;
    }
    return NULL;
}

static Status bytes_of(const Tensor *t, size_t *out_bytes) {
    return tensor_size_of(t->dtype, t->rank, t->dims, NULL, out_bytes);
}

/* The output's sizes; false: they are known in the run alone. */
static bool next_dims(const OnnxfuseSession *s, int i, const int64_t *symbols, Tensor *t) {
    const Value *v = output_of(s, i);
    *t = (Tensor){.dtype = v->dtype, .rank = v->rank};
    for (int d = 0; d < v->rank; d++)
        if ((t->dims[d] = dim_eval(v->dims[d], symbols)) < 0) return false;
    return true;
}

/* ---- before a run ---- */

static Status begin_appended(OnnxfuseState *state, int i, RunOutput *made) {
    OnnxfuseSession *s = state->session;
    const GraphKept *pair = pair_at(s, i);
    Kept *kept = &state->kept[i];
    Tensor *now = &kept->item.tensor, next, room;
    size_t row, bytes;
    if (!s->states[i].in_place || !next_dims(s, i, state->symbols, &next)) { /* the run makes another */
        TRY(bytes_of(now, &bytes));
        return ensure_memory(s, kept, bytes, bytes < kept->bytes ? bytes : kept->bytes, false);
    }
    room = next;
    room.dims[0] = 1;
    TRY(bytes_of(&room, &row));
    TRY(rows_for(pair, next.dims[0], row ? (int64_t)(kept->bytes / row) : 0, &room.dims[0]));
    TRY(bytes_of(&room, &bytes));
    TRY(ensure_memory(s, kept, bytes, (size_t)now->dims[0] * row, false));
    kept->in_place = true;
    next.data = now->data;
    *made = (RunOutput){.given = true, .item = {.kind = ITEM_TENSOR, .tensor = next}};
    return NULL;
}

/* Longer room: rows move apart, and what is new of each is zero. */
static Status lengthen(OnnxfuseSession *s, Kept *kept, int axis, int64_t room) {
    Tensor *t = &kept->item.tensor, old = *t;
    size_t bytes, inner = dtype_size(t->dtype), before = 1;
    for (int d = 0; d < axis; d++) before *= (size_t)t->dims[d];
    for (int d = axis + 1; d < t->rank; d++) inner *= (size_t)t->dims[d];
    t->dims[axis] = room;
    Status status = bytes_of(t, &bytes);
    if (!status) status = memory_alloc(&s->memory, bytes, &t->data);
    if (status) {
        *t = old;
        return status;
    }
    size_t used = old.data ? (size_t)old.dims[axis] * inner : 0, all = (size_t)room * inner;
    for (size_t o = 0; o < before; o++) {
        if (used) memcpy((char *)t->data + o * all, (char *)old.data + o * used, used);
        memset((char *)t->data + o * all + used, 0, all - used);
    }
    memory_free(&s->memory, old.data);
    kept->bytes = bytes;
    return NULL;
}

static Status begin_room(OnnxfuseState *state, int i) {
    OnnxfuseSession *s = state->session;
    const GraphKept *pair = pair_at(s, i);
    Tensor *now = &state->kept[i].item.tensor;
    int symbol = dim_symbol_index(input_of(s, i)->dims[pair->axis]);
    int64_t bound = state->symbols[symbol], have = now->data ? now->dims[pair->axis] : 0, room;
    state->symbols[symbol] = 0;
    int64_t need = dim_eval(output_of(s, i)->dims[pair->axis], state->symbols);
    state->symbols[symbol] = bound;
    if (need == UNBOUND_DIM) return status_error(STATUS_INVALID, "how many rows it needs is not known before the run");
    TRY(rows_for(pair, need, have, &room));
    return room == have && now->data ? NULL : lengthen(s, &state->kept[i], pair->axis, room);
}

static Status begin_rest(OnnxfuseState *state, int i, RunOutput *made) {
    OnnxfuseSession *s = state->session;
    Kept *kept = &state->kept[i];
    Tensor *now = &kept->item.tensor, next;
    size_t bytes, next_bytes;
    TRY(bytes_of(now, &bytes));
    if (!kept->begun && pair_at(s, i)->form == KEPT_WHOLE) {
        TRY(ensure_memory(s, kept, bytes, 0, false));
        memset(now->data, 0, bytes);
    }
    if (!next_dims(s, i, state->symbols, &next)) return NULL;
    TRY(bytes_of(&next, &next_bytes));
    if (next_bytes != bytes) return NULL;
    kept->in_place = s->states[i].in_place;
    kept->in_second = !kept->in_place;
    if (kept->in_second && s->devices.device->table->separate_memory) kept->in_second = false;
    if (kept->in_second && kept->second && memory_size(kept->second) < bytes) {
        memory_free(&s->memory, kept->second);
        kept->second = NULL;
    }
    if (kept->in_second && !kept->second) TRY(memory_alloc(&s->memory, bytes, &kept->second));
    if (!kept->in_place && !kept->in_second) return NULL;
    next.data = kept->in_place ? now->data : kept->second;
    *made = (RunOutput){.given = true, .item = {.kind = ITEM_TENSOR, .tensor = next}};
    return NULL;
}

static Status begin(OnnxfuseState *state, int i, const Item **item, RunOutput *made) {
    OnnxfuseSession *s = state->session;
    Kept *kept = &state->kept[i];
    KeptForm form = pair_at(s, i)->form;
    *made = (RunOutput){0};
    kept->in_place = kept->in_second = false;
    if (!kept->begun && !(form == KEPT_ROOM && kept->item.tensor.data))
        TRY(first_dims(s, i, state->symbols, &kept->item.tensor));
    if (form == KEPT_ROOM) TRY(begin_room(state, i));
    TRY(bind_dims(s->graph->dims, input_of(s, i), kept->item.tensor.rank, kept->item.tensor.dims, state->symbols));
    TRY(form == KEPT_APPENDED ? begin_appended(state, i, made) : begin_rest(state, i, made));
    *item = &kept->item;
    return NULL;
}

static Status begin_all(OnnxfuseState *state, const Item **items, RunOutput *made) {
    OnnxfuseSession *s = state->session;
    if (state->broken)
        return status_error(STATUS_USAGE, "a run that wrote over the state has failed: it can be reset alone");
    TRY(bind_given(s, items, state->symbols));
    for (int i = 0; i < s->graph->kept.count; i++) {
        const GraphKept *pair = pair_at(s, i);
        TRY(at_pair(begin(state, i, &items[pair->input], &made[pair->output]), s, i));
    }
    return NULL;
}

Status state_begin(OnnxfuseSession *s, OnnxfuseState *state, const Item **items, RunOutput *made, StateRun *out_run) {
    *out_run = (StateRun){0};
    if (state && state->session != s) return status_error(STATUS_USAGE, "the state is of another session");
    if (!s->graph->kept.count) return NULL;
    if (!state) state = s->own_state;
    TRY(claim(state));
    Status status = begin_all(state, items, made);
    if (status)
        let_go(state);
    else
        out_run->state = state;
    return status;
}

/* ---- behind a run ---- */

static void take(OnnxfuseSession *s, Kept *kept, const RunOutput *made) {
    Tensor *now = &kept->item.tensor;
    void *old = now->data;
    *now = made->item.tensor;
    if (kept->in_place) return;
    if (kept->in_second) {
        kept->second = old;
    } else {
        memory_free(&s->memory, old);
    }
    kept->bytes = memory_size(now->data);
}

void state_end(const StateRun *run, Status status, RunOutput *made) {
    OnnxfuseState *state = run->state;
    if (!state) return;
    OnnxfuseSession *s = state->session;
    for (int i = 0; i < s->graph->kept.count; i++) {
        const GraphKept *pair = pair_at(s, i);
        Kept *kept = &state->kept[i];
        if (!status) take(s, kept, &made[pair->output]);
        kept->begun |= !status;
        state->broken |= status && kept->in_place && pair->form != KEPT_APPENDED;
    }
    let_go(state);
}

/* ---- states of a session ---- */

static Status new_state(OnnxfuseSession *s, OnnxfuseState **out_state) {
    size_t count = (size_t)s->graph->kept.count, symbols = (size_t)s->plan->symbol_count + 1;
    OnnxfuseState *state = calloc(1, sizeof *state + count * sizeof *state->kept);
    int64_t *room = calloc(symbols, sizeof *room);
    if (!state || !room) {
        free(state);
        free(room);
        return status_out_of_memory();
    }
    state->session = s;
    state->symbols = room;
    for (size_t i = 0; i < count; i++) state->kept[i].item.kind = ITEM_TENSOR;
    *out_state = state;
    return NULL;
}

Status states_make(OnnxfuseSession *s) {
    int count = s->graph->kept.count;
    s->states = ARENA_ARRAY(s->arena, OnnxfuseStateInfo, count + 1);
    if (!count) return NULL;
    if (s->policy.shapes.bucket_count)
        return status_error(STATUS_INVALID, "%s: shapes.buckets: sizes are not rounded up where there are states",
                            policy_source(&s->policy));
    for (int i = 0; i < count; i++) {
        const GraphKept *pair = pair_at(s, i);
        s->states[i] = (OnnxfuseStateInfo){.input = input_of(s, i)->name,
                                           .output = s->graph->output_names.items[pair->output],
                                           .dtype = (OnnxfuseDType)input_of(s, i)->dtype,
                                           .rank = input_of(s, i)->rank,
                                           .axis = pair->axis,
                                           .capacity = pair->capacity,
                                           .in_place = is_in_place(s->plan, pair)};
    }
    return new_state(s, &s->own_state);
}

static void free_state(OnnxfuseState *state) {
    if (!state) return;
    for (int i = 0; i < state->session->graph->kept.count; i++) drop(state->session, &state->kept[i]);
    free(state->symbols);
    free(state);
}

void states_destroy(OnnxfuseSession *s) { free_state(s->own_state); }

void states_describe(Text *text, const Plan *plan) {
    const Graph *graph = plan->graph;
    for (int i = 0; i < graph->kept.count; i++) {
        const GraphKept *pair = &graph->kept.items[i];
        text_add(text, "%s is the next %s", graph->output_names.items[pair->output],
                 graph->inputs.items[pair->input]->name);
        if (pair->axis >= 0) text_add(text, ", growing along axis %d", pair->axis);
        if (pair->capacity) text_add(text, ", at most %lld", (long long)pair->capacity);
        text_add(text, "%s\n", is_in_place(plan, pair) ? ", in place" : "");
    }
}

/* ---- the interface ---- */

int onnxfuse_session_state_count(const OnnxfuseSession *s) { return s->graph->kept.count; }

const OnnxfuseStateInfo *onnxfuse_session_state(const OnnxfuseSession *s, int index) {
    return index >= 0 && index < s->graph->kept.count ? &s->states[index] : NULL;
}

OnnxfuseState *onnxfuse_session_own_state(OnnxfuseSession *s) { return s->own_state; }

OnnxfuseStatus onnxfuse_state_create(OnnxfuseSession *s, OnnxfuseState **out_state) {
    if (!s->graph->kept.count) return status_error(STATUS_USAGE, "the policy names no states of this session's model");
    return new_state(s, out_state);
}

static Status copy_kept(OnnxfuseSession *s, const Kept *from, Kept *to) {
    size_t used;
    TRY(bytes_of(&from->item.tensor, &used));
    TRY(memory_alloc(&s->memory, from->bytes, &to->item.tensor.data));
    memcpy(to->item.tensor.data, from->item.tensor.data, used);
    void *data = to->item.tensor.data;
    to->item = from->item;
    to->item.tensor.data = data;
    to->bytes = from->bytes;
    to->begun = true;
    return NULL;
}

static Status copy_into(OnnxfuseState *from, OnnxfuseState *to) {
    for (int i = 0; i < from->session->graph->kept.count; i++)
        if (from->kept[i].begun) TRY(copy_kept(from->session, &from->kept[i], &to->kept[i]));
    to->broken = from->broken;
    return NULL;
}

OnnxfuseStatus onnxfuse_state_copy(OnnxfuseState *from, OnnxfuseState **out_copy) {
    OnnxfuseState *to;
    TRY(claim(from));
    Status status = new_state(from->session, &to);
    if (!status && (status = copy_into(from, to))) free_state(to);
    let_go(from);
    if (!status) *out_copy = to;
    return status;
}

/* Room begins as zeros, which fresh memory gives. */
OnnxfuseStatus onnxfuse_state_reset(OnnxfuseState *state) {
    TRY(claim(state));
    const OnnxfuseSession *s = state->session;
    for (int i = 0; i < s->graph->kept.count; i++) {
        if (pair_at(s, i)->form == KEPT_ROOM) drop(state->session, &state->kept[i]);
        state->kept[i].begun = false;
    }
    state->broken = false;
    let_go(state);
    return NULL;
}

void onnxfuse_state_free(OnnxfuseState *state) { free_state(state); }

int64_t onnxfuse_state_bytes(OnnxfuseState *state) {
    int64_t bytes = 0;
    if (atomic_exchange(&state->busy, true)) return -1;
    for (int i = 0; i < state->session->graph->kept.count; i++) {
        const Kept *kept = &state->kept[i];
        if (kept->item.tensor.data) bytes += (int64_t)memory_size(kept->item.tensor.data);
        if (kept->second) bytes += (int64_t)memory_size(kept->second);
    }
    let_go(state);
    return bytes;
}

/* Between the model's order of axes and that with `axis` first. */
static void turn(const Tensor *model, int axis, char *in_order, char *first, bool to_first) {
    size_t inner = dtype_size(model->dtype), before = 1, rows = (size_t)model->dims[axis];
    for (int d = 0; d < axis; d++) before *= (size_t)model->dims[d];
    for (int d = axis + 1; d < model->rank; d++) inner *= (size_t)model->dims[d];
    for (size_t o = 0; o < before && inner; o++)
        for (size_t r = 0; r < rows; r++) {
            char *a = in_order + (o * rows + r) * inner, *b = first + (r * before + o) * inner;
            memcpy(to_first ? b : a, to_first ? a : b, inner);
        }
}

static Status get(const OnnxfuseState *state, int index, OnnxfuseValue **out_value) {
    const GraphKept *pair = pair_at(state->session, index);
    const Tensor *held = &state->kept[index].item.tensor;
    int64_t dims[MAX_RANK] = {0};
    *out_value = NULL;
    if (!state->kept[index].begun) return NULL;
    memcpy(dims, held->dims, sizeof *dims * (size_t)held->rank);
    if (pair->form == KEPT_APPENDED)
        for (int d = 0; d < held->rank; d++) dims[d] = held->dims[d == pair->axis ? 0 : d < pair->axis ? d + 1 : d];
    TRY(onnxfuse_value_tensor((OnnxfuseDType)held->dtype, held->rank, dims, NULL, out_value));
    const Tensor *to = &(*out_value)->item.tensor;
    if (pair->form == KEPT_APPENDED)
        turn(to, pair->axis, to->data, held->data, false);
    else
        memcpy(to->data, held->data, tensor_bytes(to));
    return NULL;
}

static Status check_index(const OnnxfuseState *state, int index) {
    int count = state->session->graph->kept.count;
    if (index >= 0 && index < count) return NULL;
    return status_error(STATUS_USAGE, "state %d of %d", index, count);
}

OnnxfuseStatus onnxfuse_state_get(OnnxfuseState *state, int index, OnnxfuseValue **out_value) {
    TRY(check_index(state, index));
    TRY(claim(state));
    Status status = get(state, index, out_value);
    let_go(state);
    return status;
}

static Status check_value(const OnnxfuseSession *s, int i, const OnnxfuseValue *value, Tensor *out_held) {
    const Value *v = input_of(s, i);
    const Tensor *t = &value->item.tensor;
    const GraphKept *pair = pair_at(s, i);
    if (value->item.kind != ITEM_TENSOR || value->on_device || t->dtype != v->dtype || t->rank != v->rank)
        return status_error(STATUS_INVALID, "a tensor of %s and rank %d in the host's memory is expected",
                            dtype_onnx_name(v->dtype), v->rank);
    *out_held = *t;
    if (pair->form == KEPT_APPENDED)
        for (int d = 0; d < t->rank; d++)
            out_held->dims[d] = t->dims[d == 0 ? pair->axis : d <= pair->axis ? d - 1 : d];
    for (int d = 0; d < t->rank; d++) {
        int64_t size;
        if (dim_is_const(v->dims[d], &size) && size != out_held->dims[d])
            return status_error(STATUS_INVALID, "it has %lld in an axis that is declared to have %lld",
                                (long long)out_held->dims[d], (long long)size);
    }
    int64_t rows = pair->axis >= 0 ? t->dims[pair->axis] : 0;
    if (!pair->capacity || rows <= pair->capacity) return NULL;
    return status_error(STATUS_INVALID, "%lld rows along axis %d, and its capacity is %lld", (long long)rows,
                        pair->axis, (long long)pair->capacity);
}

static Status set(OnnxfuseState *state, int i, const OnnxfuseValue *value) {
    OnnxfuseSession *s = state->session;
    Kept *kept = &state->kept[i];
    Tensor held;
    size_t bytes;
    TRY(check_value(s, i, value, &held));
    TRY(bytes_of(&held, &bytes));
    TRY(ensure_memory(s, kept, bytes, 0, false));
    held.data = kept->item.tensor.data;
    kept->item.tensor = held;
    kept->begun = true;
    if (pair_at(s, i)->form == KEPT_APPENDED)
        turn(&value->item.tensor, pair_at(s, i)->axis, value->item.tensor.data, held.data, true);
    else
        memcpy(held.data, value->item.tensor.data, bytes);
    return NULL;
}

/* In a new state, the others are what they are in a new one: a run finds their sizes beside this one's. */
OnnxfuseStatus onnxfuse_state_set(OnnxfuseState *state, int index, const OnnxfuseValue *value) {
    TRY(check_index(state, index));
    TRY(claim(state));
    Status status = at_pair(set(state, index, value), state->session, index);
    let_go(state);
    return status;
}
