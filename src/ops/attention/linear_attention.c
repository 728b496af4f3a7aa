/* SPDX-License-Identifier: Apache-2.0 */
/* LinearAttention: a state of [key size, value size] a head, updated token by token (Yang et al., "Gated Delta
 * Networks", 2024). S = exp(g) S;  v' = beta (v - S^T k) with delta, else v;  S = S + k v'^T;  o = scale S^T q The
 * kernel works in f32; heads and batch elements run in parallel. Inputs: query [B, T, Hq*dk], key [B, T, H*dk], value
 * [B, T, H*dv], state [B, H, dk, dv], decay [B, T, H] or [B, T, H*dk], beta [B, T, H] or [B, T, 1]; the last three may
 * be NULL. */
#include "ops/attention/linear_attention.h"

#include <math.h>
#include "lowering/sizes.h"
#include "lowering/subgraph.h"

typedef struct Recurrence {
    const float *q, *k, *v, *state, *decay, *beta;
    float *y, *result; /* [B, T, Hq*dv], [B, H, dk, dv] */
    int64_t batch, time, heads, group, key_size, value_size, decays,
        betas; /* decays: a head, 1 or dk; betas: a token, 1 or H */
    float scale;
    bool delta;
} Recurrence;

static void update(const Recurrence *r, int64_t b, int64_t h, int64_t t, float *state, float *value) {
    int64_t dk = r->key_size, dv = r->value_size, token = b * r->time + t;
    const float *k = r->k + (token * r->heads + h) * dk, *v = r->v + (token * r->heads + h) * dv;
    for (int64_t i = 0; r->decay && i < dk; i++) {
        float factor = expf(r->decay[(token * r->heads + h) * r->decays + (r->decays > 1 ? i : 0)]);
        for (int64_t j = 0; j < dv; j++) state[i * dv + j] *= factor;
    }
    memcpy(value, v, (size_t)dv * sizeof *value);
    if (r->delta) {
        float beta = r->beta[token * r->betas + (r->betas > 1 ? h : 0)];
        for (int64_t i = 0; i < dk; i++)
            for (int64_t j = 0; j < dv; j++) value[j] -= state[i * dv + j] * k[i];
        for (int64_t j = 0; j < dv; j++) value[j] *= beta;
    }
    for (int64_t i = 0; i < dk; i++)
        for (int64_t j = 0; j < dv; j++) state[i * dv + j] += k[i] * value[j];
}

static void read_out(const Recurrence *r, int64_t b, int64_t h, int64_t t, const float *state) {
    int64_t dk = r->key_size, dv = r->value_size, queries = r->heads * r->group;
    for (int64_t g = 0; r->y && g < r->group; g++) {
        int64_t at = (b * r->time + t) * queries + h * r->group + g;
        float *y = r->y + at * dv;
        memset(y, 0, (size_t)dv * sizeof *y);
        for (int64_t i = 0; i < dk; i++)
            for (int64_t j = 0; j < dv; j++) y[j] += r->q[at * dk + i] * state[i * dv + j];
        for (int64_t j = 0; j < dv; j++) y[j] *= r->scale;
    }
}

typedef struct Work {
    const Recurrence *r;
    float *states, *values; /* [B * H] of [dk, dv] and [dv] */
} Work;

static void run_heads(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Work *work = context;
    const Recurrence *r = work->r;
    int64_t size = r->key_size * r->value_size;
    for (int64_t i = begin; i < end; i++) {
        float *state = work->states + i * size;
        if (r->state) memcpy(state, r->state + i * size, (size_t)size * sizeof *state);
        for (int64_t t = 0; t < r->time; t++) {
            update(r, i / r->heads, i % r->heads, t, state, work->values + i * r->value_size);
            read_out(r, i / r->heads, i % r->heads, t, state);
        }
        if (r->result) memcpy(r->result + i * size, state, (size_t)size * sizeof *state);
    }
}

static Status check_input(const HostCall *call, int index, int64_t batch, int64_t time, const Tensor **out_tensor) {
    const Tensor *x = *out_tensor = host_input(call, index);
    if (x && (x->dtype != DT_F32 || x->rank != 3 || x->dims[0] != batch || x->dims[1] != time))
        return host_error(call, "input %d does not fit the query", index);
    return NULL;
}

static const float *floats_of(const Tensor *tensor) { return tensor ? tensor->data : NULL; }

/* The inputs of both kernels; the results' pointers stay NULL. y_dims [3], state_dims [4]. */
static Status recurrence_of(HostCall *call, Recurrence *out, int64_t *y_dims, int64_t *state_dims) {
    const Tensor *q = host_input(call, 0), *k, *v, *state = host_input(call, 3), *decay, *beta;
    int64_t heads = attr_int(call->node, "kv_num_heads", 0), queries = attr_int(call->node, "q_num_heads", 0);
    if (!q || q->rank != 3 || q->dtype != DT_F32) return host_error(call, "the query needs 3 axes");
    int64_t batch = q->dims[0], time = q->dims[1], key_size = q->dims[2] / queries;
    TRY(check_input(call, 1, batch, time, &k));
    TRY(check_input(call, 2, batch, time, &v));
    TRY(check_input(call, 4, batch, time, &decay));
    TRY(check_input(call, 5, batch, time, &beta));
    if (!k || !v || q->dims[2] % queries || k->dims[2] != heads * key_size || v->dims[2] % heads)
        return host_error(call, "the sizes of query, key and value do not fit the heads");
    int64_t value_size = v->dims[2] / heads, states[] = {batch, heads, key_size, value_size};
    for (int i = 0; state && i < 4; i++)
        if (state->rank != 4 || state->dims[i] != states[i]) return host_error(call, "past_state does not fit");
    if (decay && decay->dims[2] != heads && decay->dims[2] != heads * key_size)
        return host_error(call, "decay does not fit the heads");
    if (beta && beta->dims[2] != heads && beta->dims[2] != 1) return host_error(call, "beta does not fit the heads");
    double scale = attr_float(call->node, "scale", 0);
    memcpy(state_dims, states, sizeof states);
    y_dims[0] = batch, y_dims[1] = time, y_dims[2] = queries * value_size;
    *out = (Recurrence){floats_of(q),
                        floats_of(k),
                        floats_of(v),
                        floats_of(state),
                        floats_of(decay),
                        floats_of(beta),
                        NULL,
                        NULL,
                        batch,
                        time,
                        heads,
                        queries / heads,
                        key_size,
                        value_size,
                        decay ? decay->dims[2] / heads : 0,
                        beta ? beta->dims[2] : 0,
                        (float)(scale != 0 ? scale : 1 / sqrt((double)key_size)),
                        beta != NULL};
    return NULL;
}

Status host_linear_attention(HostCall *call) {
    Recurrence r;
    Tensor *y, *result;
    int64_t y_dims[3], state_dims[4];
    TRY(recurrence_of(call, &r, y_dims, state_dims));
    TRY(host_output(call, 0, DT_F32, 3, y_dims, &y));
    TRY(host_output(call, 1, DT_F32, 4, state_dims, &result));
    if (y) r.y = y->data;
    if (result) r.result = result->data;
    int64_t all = r.batch * r.heads;
    Work work = {&r, ARENA_ARRAY(call->arena, float, all *r.key_size *r.value_size),
                 ARENA_ARRAY(call->arena, float, all *r.value_size)};
    pool_for(call->pool, all, 1, run_heads, &work);
    return NULL;
}

/* --- its gradient --------------------------------------------------------------------------------------------------- */

enum { RECURRENT_INPUTS = 6 };

typedef struct RecurrenceGradient {
    Recurrence r;
    const float *dy, *dresult;      /* either may be NULL */
    float *out[RECURRENT_INPUTS];   /* as the inputs; that of beta [B, T, H]; each may be NULL */
    float *states, *work;           /* a worker: [T + 1] states; two states and three values */
    int64_t states_size, work_size; /* of a worker */
} RecurrenceGradient;

/* dq = scale S dy; dS += scale q dy^T. */
static void give_reads(const RecurrenceGradient *g, int64_t b, int64_t h, int64_t t, const float *state,
                       float *dstate) {
    const Recurrence *r = &g->r;
    int64_t dk = r->key_size, dv = r->value_size;
    for (int64_t k = 0; k < r->group; k++) {
        int64_t at = ((b * r->time + t) * r->heads + h) * r->group + k;
        for (int64_t i = 0; i < dk; i++) {
            float sum = 0, q = r->scale * r->q[at * dk + i];
            for (int64_t j = 0; g->dy && j < dv; j++) {
                sum += state[i * dv + j] * g->dy[at * dv + j];
                dstate[i * dv + j] += q * g->dy[at * dv + j];
            }
            if (g->out[0]) g->out[0][at * dk + i] = r->scale * sum;
        }
    }
}

/* From dS of the state behind the update to that before it. */
static void give_update(const RecurrenceGradient *g, int64_t b, int64_t h, int64_t t, const float *before,
                        float *dstate, float *work) {
    const Recurrence *r = &g->r;
    int64_t dk = r->key_size, dv = r->value_size, token = (b * r->time + t) * r->heads + h;
    float *decayed = work, *value = decayed + dk * dv, *error = value + dv, *dvalue = error + dv;
    const float *k = r->k + token * dk, *v = r->v + token * dv;
    float beta = r->delta ? r->beta[(b * r->time + t) * r->betas + (r->betas > 1 ? h : 0)] : 1, dbeta = 0;
    for (int64_t i = 0; i < dk; i++) {
        float factor = r->decay ? expf(r->decay[token * r->decays + (r->decays > 1 ? i : 0)]) : 1;
        for (int64_t j = 0; j < dv; j++) decayed[i * dv + j] = factor * before[i * dv + j];
    }
    memcpy(error, v, (size_t)dv * sizeof *error);
    for (int64_t i = 0; r->delta && i < dk; i++)
        for (int64_t j = 0; j < dv; j++) error[j] -= decayed[i * dv + j] * k[i];
    memset(dvalue, 0, (size_t)dv * sizeof *dvalue);
    for (int64_t i = 0; i < dk; i++)
        for (int64_t j = 0; j < dv; j++) dvalue[j] += dstate[i * dv + j] * k[i];
    for (int64_t j = 0; j < dv; j++) {
        dbeta += dvalue[j] * error[j];
        value[j] = beta * error[j];
    }
    for (int64_t i = 0; i < dk; i++) {
        float dkey = 0;
        for (int64_t j = 0; j < dv; j++) dkey += dstate[i * dv + j] * value[j];
        for (int64_t j = 0; r->delta && j < dv; j++) {
            dkey -= beta * dvalue[j] * decayed[i * dv + j];
            dstate[i * dv + j] -= k[i] * beta * dvalue[j];
        }
        if (g->out[1]) g->out[1][token * dk + i] = dkey;
    }
    for (int64_t j = 0; g->out[2] && j < dv; j++) g->out[2][token * dv + j] = beta * dvalue[j];
    if (g->out[5]) g->out[5][token] = dbeta;
    for (int64_t i = 0; r->decay && i < dk; i++) {
        int64_t at = token * r->decays + (r->decays > 1 ? i : 0);
        float sum = 0, factor = expf(r->decay[at]);
        for (int64_t j = 0; j < dv; j++) {
            sum += dstate[i * dv + j] * decayed[i * dv + j];
            dstate[i * dv + j] *= factor;
        }
        if (g->out[4]) g->out[4][at] = sum + (r->decays > 1 || !i ? 0 : g->out[4][at]);
    }
}

static void give_heads(void *context, int64_t begin, int64_t end, int worker) {
    const RecurrenceGradient *g = context;
    const Recurrence *r = &g->r;
    int64_t size = r->key_size * r->value_size;
    float *states = g->states + worker * g->states_size, *dstate = g->work + worker * g->work_size;
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / r->heads, h = i % r->heads;
        if (r->state)
            memcpy(states, r->state + i * size, (size_t)size * sizeof *states);
        else
            memset(states, 0, (size_t)size * sizeof *states);
        for (int64_t t = 0; t < r->time; t++) {
            float *next = states + (t + 1) * size;
            memcpy(next, states + t * size, (size_t)size * sizeof *next);
            update(r, b, h, t, next, dstate);
        }
        if (g->dresult)
            memcpy(dstate, g->dresult + i * size, (size_t)size * sizeof *dstate);
        else
            memset(dstate, 0, (size_t)size * sizeof *dstate);
        for (int64_t t = r->time - 1; t >= 0; t--) {
            give_reads(g, b, h, t, states + (t + 1) * size, dstate);
            give_update(g, b, h, t, states + t * size, dstate, dstate + size);
        }
        if (g->out[3]) memcpy(g->out[3] + i * size, dstate, (size_t)size * sizeof *dstate);
    }
}

static Status gradient_input(HostCall *call, int index, int rank, const int64_t *dims, const float **out) {
    const Tensor *x = host_input(call, index);
    if (x && (x->dtype != DT_F32 || x->rank != rank || memcmp(x->dims, dims, (size_t)rank * sizeof *dims)))
        return host_error(call, "a gradient does not fit");
    *out = floats_of(x);
    return NULL;
}

/* Inputs: those of the forward kernel, then the gradients of its results, which may be NULL. */
Status host_linear_attention_gradient(HostCall *call) {
    RecurrenceGradient g = {0};
    int64_t y_dims[3], state_dims[4];
    TRY(recurrence_of(call, &g.r, y_dims, state_dims));
    TRY(gradient_input(call, RECURRENT_INPUTS, 3, y_dims, &g.dy));
    TRY(gradient_input(call, RECURRENT_INPUTS + 1, 4, state_dims, &g.dresult));
    for (int i = 0; i < RECURRENT_INPUTS; i++) {
        const Tensor *x = host_input(call, i);
        Tensor *made = NULL;
        int64_t dims[MAX_RANK] = {0};
        if (!x) continue;
        memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
        if (i == 5) dims[2] = g.r.heads;
        TRY(host_output(call, i, DT_F32, x->rank, dims, &made));
        g.out[i] = made ? made->data : NULL;
    }
    int64_t size = g.r.key_size * g.r.value_size, threads = pool_threads(call->pool);
    g.states_size = (g.r.time + 1) * size;
    g.work_size = 2 * size + 3 * g.r.value_size;
    g.states = ARENA_ARRAY(call->arena, float, threads *g.states_size + 1);
    g.work = ARENA_ARRAY(call->arena, float, threads *g.work_size + 1);
    pool_for(call->pool, g.r.batch * g.r.heads, 1, give_heads, &g);
    return NULL;
}

/* Back through the tokens, from the states that are computed again. A beta for all heads has the sum of theirs. */
void back_linear_attention(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *inputs[RECURRENT_INPUTS + 2] = {NULL};
    for (int i = 0; i < RECURRENT_INPUTS; i++) inputs[i] = n->inputs[i];
    for (int i = 0; i < 2; i++) inputs[RECURRENT_INPUTS + i] = has_dy(w, n, i) ? dy(w, n, i) : NULL;
    Node *node =
        backward_host(w, n, "LinearAttentionGradient", host_linear_attention_gradient, inputs, RECURRENT_INPUTS + 2);
    for (int i = 0; node && i < RECURRENT_INPUTS; i++) {
        Value *x = n->inputs[i];
        if (!wants(w, n, i)) {
            node_attach_output(node, NULL);
            continue;
        }
        const Dim *dims[MAX_RANK];
        for (int k = 0; k < x->rank; k++) dims[k] = x->dims[k];
        if (i == 5) dims[2] = dim_const(l->dims, attr_int(n, "kv_num_heads", 0));
        Value *g = host_result(l, node, DT_F32, x->rank, dims);
        give(w, n, i, sum_if_repeated(l, g, x, x->rank));
    }
}

static Value *as_f32(Lowering *l, const Node *n, int index) {
    Value *x = optional_in(l, n, index);
    return x ? cast(l, x, DT_F32) : NULL;
}

/* --- as a Scan ------------------------------------------------------------------------------------------------------ */

/* x [B, T, what the parts multiply to] -> [T, B, parts...] of three parts. */
static Value *by_token(Lowering *l, Value *x, const Dim *first, const Dim *second, const Dim *third) {
    if (!x) return NULL;
    const Dim *dims[] = {x->dims[0], x->dims[1], first, second, third};
    return permute(l, reshape(l, x, dims, 5), (int[]){1, 0, 2, 3, 4});
}

/* Inputs as host_linear_attention has them; the state [B, H, dk, dv] is the Scan's. */
static void told_linear_attention(Lowering *l, const Node *n, Value *const *in, const Dim *const *y,
                                  const Dim *const *state, Value **out_results) {
    const Dim *one = size_const(l, 1), *h = state[1], *dk = state[2], *dv = state[3];
    const Dim *group = size_const(l, attr_int(n, "q_num_heads", 0) / attr_int(n, "kv_num_heads", 1));
    Value *first = in[3] ? in[3] : expand(l, scalar(l, DT_F32, 0), state, 4), *made[2];
    Value *decays = in[4] ? by_token(l, in[4], h, dim_div(l->dims, in[4]->dims[2], h), one) : NULL;
    Value *betas = in[5] ? by_token(l, in[5], in[5]->dims[2], one, one) : NULL;
    Value *queries = by_token(l, in[0], h, group, dk), *keys = by_token(l, in[1], h, dk, one);
    Value *values = by_token(l, in[2], h, one, dv);
    if (l->error) return;

    ScanBody scan = scan_begin(l, "token");
    Lowering *b = &scan.in;
    Value *s = scan_state(&scan, first), *q = scan_element(&scan, queries), *k = scan_element(&scan, keys);
    Value *v = scan_element(&scan, values), *decay = scan_element(&scan, decays), *beta = scan_element(&scan, betas);
    if (decay) s = mul(b, unary(b, PRIM_EXP, decay), s);
    if (beta) v = mul(b, beta, sub(b, v, reduce(b, PRIM_REDUCE_SUM, mul(b, s, k), (int[]){2}, 1, true)));
    s = reshape(b, add(b, s, mul(b, k, v)), state, 4);
    scan_end(l, n, &scan, y[1], false, (Value *[]){s, matmul(b, q, s)}, 2, made);
    if (l->error) return;

    double scale = attr_float(n, "scale", 0);
    Value *factor = scalar(l, DT_F32, scale), *read = permute(l, made[1], (int[]){1, 0, 2, 3, 4});
    if (scale == 0) factor = rsqrt(l, cast(l, dim_scalar(l, dk), DT_F32));
    out_results[0] = reshape(l, mul(l, read, factor), y, 3);
    out_results[1] = made[0];
}

Status lower_linear_attention(Lowering *l, const Node *n) {
    Value *q = in(l, n, 0), *k = in(l, n, 1), *v = in(l, n, 2), *past = optional_in(l, n, 3);
    if (l->error) return l->error;
    int64_t heads = attr_int(n, "kv_num_heads", 0), queries = attr_int(n, "q_num_heads", 0);
    const char *rule = attr_string(n, "update_rule", "gated_delta");
    bool gated = strncmp(rule, "gated", 5) == 0, delta = strstr(rule, "delta") != NULL;
    if (!gated && !delta && strcmp(rule, "linear") != 0) return invalid(l, "update_rule \"%s\"", rule);
    if (heads < 1 || queries < 1 || queries % heads)
        return invalid(l, "%lld query heads and %lld key heads", (long long)queries, (long long)heads);
    if (q->rank != 3 || k->rank != 3 || v->rank != 3) return invalid(l, "query, key and value need 3 axes");
    Value *inputs[] = {cast(l, q, DT_F32), cast(l, k, DT_F32), cast(l, v, DT_F32),
                       as_f32(l, n, 3),    as_f32(l, n, 4),    as_f32(l, n, 5)};
    if (gated != (inputs[4] != NULL) || delta != (inputs[5] != NULL))
        return invalid(l, "decay and beta do not fit update_rule \"%s\"", rule);
    if (l->error) return l->error;
    const Dim *h = dim_const(l->dims, heads), *value_size = dim_div(l->dims, v->dims[2], h);
    const Dim *key_size = dim_div(l->dims, k->dims[2], h);
    const Dim *y[] = {q->dims[0], q->dims[1], dim_mul(l->dims, dim_const(l->dims, queries), value_size)};
    const Dim *state[] = {q->dims[0], h, key_size, value_size};
    Value *results[2] = {NULL};
    if (lowers_to_standard(l)) {
        told_linear_attention(l, n, inputs, y, state, results);
    } else {
        Node *host = host_node(l, n, host_linear_attention, inputs, 6);
        results[0] = host_result(l, host, DT_F32, 3, y);
        results[1] = host_result(l, host, DT_F32, 4, state);
    }
    out(l, n, 0, cast_like(l, results[0], q));
    if (wants_output(n, 1)) out(l, n, 1, cast_like(l, results[1], past ? past : q));
    return l->error;
}
