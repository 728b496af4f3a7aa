/* SPDX-License-Identifier: Apache-2.0 */
/* LinearAttention: a state of [key size, value size] a head, updated token by token (Yang et al., "Gated Delta
 * Networks", 2024). S = exp(g) S;  v' = beta (v - S^T k) with delta, else v;  S = S + k v'^T;  o = scale S^T q The
 * kernel works in f32; heads and batch elements run in parallel. Inputs: query [B, T, Hq*dk], key [B, T, H*dk], value
 * [B, T, H*dv], state [B, H, dk, dv], decay [B, T, H] or [B, T, H*dk], beta [B, T, H] or [B, T, 1]; the last three may
 * be NULL. */
#include "ops/attention/linear_attention.h"

#include <math.h>

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

Status host_linear_attention(HostCall *call) {
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
    int64_t value_size = v->dims[2] / heads, state_dims[] = {batch, heads, key_size, value_size};
    for (int i = 0; state && i < 4; i++)
        if (state->rank != 4 || state->dims[i] != state_dims[i]) return host_error(call, "past_state does not fit");
    if (decay && decay->dims[2] != heads && decay->dims[2] != heads * key_size)
        return host_error(call, "decay does not fit the heads");
    if (beta && beta->dims[2] != heads && beta->dims[2] != 1) return host_error(call, "beta does not fit the heads");
    Tensor *y, *result;
    int64_t y_dims[] = {batch, time, queries * value_size};
    TRY(host_output(call, 0, DT_F32, 3, y_dims, &y));
    TRY(host_output(call, 1, DT_F32, 4, state_dims, &result));
    double scale = attr_float(call->node, "scale", 0);
    Recurrence r = {floats_of(q),
                    floats_of(k),
                    floats_of(v),
                    floats_of(state),
                    floats_of(decay),
                    floats_of(beta),
                    y ? y->data : NULL,
                    result ? result->data : NULL,
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
    Work work = {&r, ARENA_ARRAY(call->arena, float, batch *heads *key_size *value_size),
                 ARENA_ARRAY(call->arena, float, batch *heads *value_size)};
    pool_for(call->pool, batch * heads, 1, run_heads, &work);
    return NULL;
}

static Value *as_f32(Lowering *l, const Node *n, int index) {
    Value *x = optional_in(l, n, index);
    return x ? cast(l, x, DT_F32) : NULL;
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
    Node *host = host_node(l, n, host_linear_attention, inputs, 6);
    if (!host) return l->error;
    const Dim *h = dim_const(l->dims, heads), *value_size = dim_div(l->dims, v->dims[2], h);
    const Dim *key_size = dim_div(l->dims, k->dims[2], h);
    const Dim *y[] = {q->dims[0], q->dims[1], dim_mul(l->dims, dim_const(l->dims, queries), value_size)};
    const Dim *state[] = {q->dims[0], h, key_size, value_size};
    Value *results[] = {host_result(l, host, DT_F32, 3, y), host_result(l, host, DT_F32, 4, state)};
    out(l, n, 0, cast_like(l, results[0], q));
    if (wants_output(n, 1)) out(l, n, 1, cast_like(l, results[1], past ? past : q));
    return l->error;
}
