/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent nets: RNN, GRU, LSTM. Lowering to a matmul and a host kernel (recurrent.h), and what that checks first. */
#include "ops/recurrent/recurrent_parts.h"

#include <math.h>

#include "base/plain.h"
#include "lowering/gradient.h"
#include "lowering/sizes.h"
#include "ops/families.h"
#include "ops/recurrent/recurrent_steps.h"

const struct CellInfo recurrent_cells[] = {
    [CELL_RNN] = {1, 1, RNN_UNITS}, [CELL_GRU] = {3, 2, GRU_UNITS}, [CELL_LSTM] = {4, 3, LSTM_UNITS}};

/* In the order of Activation: name, how many of alpha and beta it takes from the lists, and their defaults. */
static const struct ActivationInfo {
    const char *name;
    int alphas, betas;
    double alpha, beta;
} activations[ACT_COUNT] = {
    {"Relu", 0, 0, 0, 0},         {"Tanh", 0, 0, 0, 0},
    {"Sigmoid", 0, 0, 0, 0},      {"Affine", 1, 1, 1, 0},
    {"LeakyRelu", 1, 0, 0.01, 0}, {"ThresholdedRelu", 1, 0, 1, 0},
    {"ScaledTanh", 1, 1, 1, 1},   {"HardSigmoid", 1, 1, 0.2, 0.5},
    {"Elu", 1, 0, 1, 0},          {"Softsign", 0, 0, 0, 0},
    {"Softplus", 0, 0, 0, 0},
};

const char *recurrent_activation_name(Activation kind) { return activations[kind].name; }

static bool find_activation(StringView name, Activation *out_kind) {
    for (int i = 0; i < ACT_COUNT; i++) {
        if (!plain_equal(name.data, name.size, activations[i].name)) continue;
        *out_kind = (Activation)i;
        return true;
    }
    return false;
}

/* ---- the host kernel ---- */

void recurrent_clear_tail(const Net *net, int direction, int64_t row) {
    size_t bytes = (size_t)net->hidden * dtype_size(net->dtype);
    for (int64_t t = recurrent_length(net, row); net->y && t < net->time; t++)
        memset((char *)net->y->data + (size_t)((t * net->directions + direction) * net->batch + row) * bytes, 0, bytes);
}

static Status check_shape(const HostCall *call, const Tensor *tensor, const char *name, DType dtype, int rank,
                          const int64_t *dims) {
    bool fits = !tensor || (tensor->rank == rank && tensor->dtype == dtype);
    for (int i = 0; tensor && fits && i < rank; i++) fits = tensor->dims[i] == dims[i];
    return fits ? NULL : host_error(call, "%s does not have the shape or type that the other inputs ask for", name);
}

static void read_functions(const Node *node, Net *net) {
    int count;
    const int64_t *kinds = attr_ints(node, "function_kinds", &count);
    const Attr *scales = node_attr(node, "function_scales");
    net->usual = net->dtype == DT_F32;
    for (int i = 0; i < count && i < MOST_FUNCTIONS; i++) {
        net->functions[i] = (Function){(Activation)kinds[i], scales->floats[2 * i], scales->floats[2 * i + 1]};
        bool gate = net->cell != CELL_RNN && i % recurrent_cells[net->cell].functions == 0;
        net->usual &= net->functions[i].kind == (gate ? ACT_SIGMOID : ACT_TANH);
    }
}

Status recurrent_read(HostCall *call, Net *net) {
    const Node *node = call->node;
    net->cell = (Cell)attr_int(node, "cell", 0);
    net->gates = recurrent_cells[net->cell].gates;
    net->hidden = attr_int(node, "hidden_size", 0);
    net->directions = (int)attr_int(node, "directions", 1);
    net->reverse[0] = attr_int(node, "reverse_first", 0) != 0;
    net->reverse[1] = true;
    net->units = recurrent_cells[net->cell].units;
    net->panels = (net->hidden + net->units - 1) / net->units;
    double clip_at = attr_float(node, "clip", 0);
    net->limit = clip_at > 0 ? clip_at : INFINITY;
    net->coupled = attr_int(node, "input_forget", 0) != 0;
    net->linear_before_reset = attr_int(node, "linear_before_reset", 0) != 0;
    net->first_gates = recurrent_first_gates(net->cell, net->linear_before_reset);
    net->projection = host_input(call, 0);
    net->weights = host_input(call, 1);
    net->lengths = host_input(call, 2);
    net->h0 = host_input(call, 3);
    net->c0 = host_input(call, 4);
    net->peepholes = host_input(call, 5);
    net->bias = host_input(call, 6);
    if (!net->projection || net->projection->rank != 3 || !net->weights) return host_error(call, "inputs are missing");
    net->dtype = net->projection->dtype;
    net->time = net->projection->dims[0];
    net->batch = net->projection->dims[1];
    int64_t d = net->directions, hidden = net->hidden, state[] = {d, net->batch, hidden}, holes[] = {d, 3 * hidden};
    int64_t packed[] = {d, net->panels, hidden * net->gates * net->units}, bias[] = {d, hidden};
    int64_t projected[] = {net->time, net->batch, d * net->gates * hidden};
    TRY(check_shape(call, net->projection, "W", net->dtype, 3, projected));
    TRY(check_shape(call, net->weights, "R", net->dtype, 3, packed));
    TRY(check_shape(call, net->h0, "initial_h", net->dtype, 3, state));
    TRY(check_shape(call, net->c0, "initial_c", net->dtype, 3, state));
    TRY(check_shape(call, net->peepholes, "P", net->dtype, 2, holes));
    TRY(check_shape(call, net->bias, "B", net->dtype, 2, bias));
    TRY(check_shape(call, net->lengths, "sequence_lens", DT_I32, 1, &net->batch));
    for (int64_t b = 0; net->lengths && b < net->batch; b++)
        if (recurrent_length(net, b) < 0 || recurrent_length(net, b) > net->time)
            return host_error(call, "sequence_lens[%lld] is %lld, and there are %lld time steps", (long long)b,
                              (long long)recurrent_length(net, b), (long long)net->time);
    read_functions(node, net);
    return NULL;
}

bool recurrent_keeps(const Node *node) {
    Net net = {.dtype = node->inputs[0]->dtype, .cell = (Cell)attr_int(node, "cell", 0)};
    read_functions(node, &net);
    bool holes = node->input_count > 5 && node->inputs[5];
    return net.usual && !holes && !attr_int(node, "input_forget", 0) && !(attr_float(node, "clip", 0) > 0);
}

static Status host_recurrent(HostCall *call) {
    Net net = {.pool = call->pool, .arena = call->arena};
    TRY(recurrent_read(call, &net));
    int64_t all[] = {net.time, net.directions, net.batch, net.hidden};
    TRY(host_output(call, 0, net.dtype, 4, all, &net.y));
    TRY(host_output(call, 1, net.dtype, 3, all + 1, &net.y_h));
    if (net.cell == CELL_LSTM) TRY(host_output(call, 2, net.dtype, 3, all + 1, &net.y_c));
    int64_t gates[] = {net.time, net.batch, net.directions * net.gates * net.hidden};
    int64_t inner[] = {net.time, net.batch, net.directions * net.hidden};
    if (call->node->output_count > KEPT_GATES) TRY(host_output(call, KEPT_GATES, net.dtype, 3, gates, &net.kept_gates));
    if (call->node->output_count > KEPT_INNER) TRY(host_output(call, KEPT_INNER, net.dtype, 3, inner, &net.kept_inner));
    if (net.batch == 0) return NULL;
    if (net.usual)
        recurrent_run_fast(&net);
    else
        recurrent_run_plain(&net);
    return NULL;
}

/* ---- lowering ---- */

static Status find_functions(Lowering *l, const Node *n, Cell cell, int directions, Function *functions) {
    int count = recurrent_cells[cell].functions * directions, alpha_at = 0, beta_at = 0;
    const Attr *names = node_attr(n, "activations"), *alphas = node_attr(n, "activation_alpha"),
               *betas = node_attr(n, "activation_beta");
    if (names && names->count == 0) names = NULL;
    if (names && (names->kind != ATTR_STRINGS || names->count != count))
        return invalid(l, "activations has %d names where %d are needed", names->count, count);
    for (int i = 0; i < count; i++) {
        bool gate = cell != CELL_RNN && i % recurrent_cells[cell].functions == 0;
        Activation kind = gate ? ACT_SIGMOID : ACT_TANH;
        if (names && !find_activation(names->strings[i], &kind))
            return unsupported(l, "activation function \"%.*s\"", (int)names->strings[i].size, names->strings[i].data);
        const struct ActivationInfo *info = &activations[kind];
        bool has_alpha = info->alphas && alphas && alphas->kind == ATTR_FLOATS && alpha_at < alphas->count;
        bool has_beta = info->betas && betas && betas->kind == ATTR_FLOATS && beta_at < betas->count;
        functions[i] = (Function){kind, has_alpha ? alphas->floats[alpha_at++] : (float)info->alpha,
                                  has_beta ? betas->floats[beta_at++] : (float)info->beta};
    }
    return NULL;
}

static void set_functions(Lowering *l, Node *host, const Function *functions, int count) {
    int64_t *kinds = ARENA_ARRAY(l->arena, int64_t, count);
    float *scales = ARENA_ARRAY(l->arena, float, 2 * count);
    for (int i = 0; i < count; i++) {
        kinds[i] = functions[i].kind;
        scales[2 * i] = (float)functions[i].alpha;
        scales[2 * i + 1] = (float)functions[i].beta;
    }
    node_set_ints(host, "function_kinds", kinds, count);
    node_set_attr(host, (Attr){.name = "function_scales", .kind = ATTR_FLOATS, .count = 2 * count, .floats = scales});
}

/* Gates [first, first + count) of r [D, G, H, H] -> [D, panels, H * count * units]. */
static Value *pack_gates(Lowering *l, Value *r, int64_t directions, int64_t hidden, int first, int count, int units) {
    int64_t panels = (hidden + units - 1) / units, width = panels * units;
    const Dim *zero = dim_const(l->dims, 0), *d = dim_const(l->dims, directions), *h = dim_const(l->dims, hidden),
              *u = dim_const(l->dims, units), *g = dim_const(l->dims, count), *p = dim_const(l->dims, panels);
    r = slice_axis(l, r, 1, dim_const(l->dims, first), g);
    if (width > hidden) {
        const Dim *none[] = {zero, zero, zero, zero}, *after[] = {zero, zero, dim_const(l->dims, width - hidden), zero};
        r = pad(l, r, none, after, r ? like(l, r, 0) : NULL);
    }
    r = permute(l, reshape(l, r, (const Dim *const[]){d, g, p, u, h}, 5), (int[]){0, 2, 4, 1, 3});
    return reshape(l, r, (const Dim *const[]){d, p, dim_const(l->dims, hidden * count * units)}, 3);
}

/* Of R [D, G * H, H], what recurrent.h says. */
static Value *pack_weights(Lowering *l, Value *r, int64_t directions, int64_t hidden, Cell cell, bool after) {
    const struct CellInfo *info = &recurrent_cells[cell];
    const Dim *h = dim_const(l->dims, hidden);
    r = reshape(l, r, (const Dim *const[]){dim_const(l->dims, directions), dim_const(l->dims, info->gates), h, h}, 4);
    int first = recurrent_first_gates(cell, after);
    Value *parts[2] = {pack_gates(l, r, directions, hidden, 0, first, info->units)};
    if (first == info->gates) return parts[0];
    parts[1] = pack_gates(l, r, directions, hidden, first, info->gates - first, info->units);
    return concat(l, parts, 2, 2);
}

static Value *part(Lowering *l, Value *x, int axis, int64_t start, int64_t size) {
    return slice_axis(l, x, axis, dim_const(l->dims, start), dim_const(l->dims, size));
}

/* B is [D, Wb, Rb], G * H each. The sum of what does not depend on the state, [D * G * H]; GRU with linear_before_reset
 * keeps the hidden gate's recurrent bias apart, [D, H]. */
static Value *input_bias(Lowering *l, Value *b, int64_t directions, int64_t gates, int64_t hidden, Value **apart) {
    int64_t size = gates * hidden;
    Value *w = part(l, b, 1, 0, size), *r = part(l, b, 1, size, size);
    if (apart) {
        *apart = part(l, r, 1, 2 * hidden, hidden);
        const Dim *zero = dim_const(l->dims, 0), *none[] = {zero, zero}, *after[] = {zero, dim_const(l->dims, hidden)};
        r = pad(l, part(l, r, 1, 0, 2 * hidden), none, after, r ? like(l, r, 0) : NULL);
    }
    const Dim *flat = dim_const(l->dims, directions * size);
    return reshape(l, add(l, w, r), &flat, 1);
}

/* Asked for, and read by something. */
static bool is_needed(const Node *n, int index) { return wants_output(n, index) && value_is_read(n->outputs[index]); }

static Value *widened(Lowering *l, const Node *n, int index) {
    Value *x = optional_in(l, n, index);
    return x ? widen(l, x) : NULL;
}

/* initial_h and initial_c: [B, D, H] with layout 1. */
static Value *initial_state(Lowering *l, const Node *n, int index, bool batch_first) {
    Value *x = widened(l, n, index);
    if (!x || !batch_first) return x;
    if (x->rank != 3) {
        invalid(l, "input %d has %d axes where 3 are needed", index, x->rank);
        return NULL;
    }
    return permute(l, x, (int[]){1, 0, 2});
}

/* Results that nothing reads stay NULL. */
static void run_kernel(Lowering *l, const Node *n, const RecurrentSteps *r, Value **out_results) {
    Value *weights = pack_weights(l, r->weights, r->directions, r->hidden, r->cell, r->linear_before_reset);
    Value *inputs[] = {r->projection, weights, r->lengths, r->h0, r->c0, r->peepholes, r->bias};
    Node *host = host_node(l, n, host_recurrent, inputs, 7);
    if (!host) return;
    node_set_int(host, "cell", r->cell);
    node_set_int(host, "hidden_size", r->hidden);
    node_set_int(host, "directions", r->directions);
    node_set_int(host, "reverse_first", r->reverse_first);
    set_functions(l, host, r->functions, recurrent_cells[r->cell].functions * r->directions);
    DType dtype = r->projection->dtype;
    const Dim *all[] = {r->projection->dims[0], dim_const(l->dims, r->directions), r->projection->dims[1],
                        dim_const(l->dims, r->hidden)};
    for (int i = 0; i < (r->cell == CELL_LSTM ? 3 : 2); i++) {
        if (is_needed(n, i))
            out_results[i] = i == 0 ? host_result(l, host, dtype, 4, all) : host_result(l, host, dtype, 3, all + 1);
        else
            node_attach_output(host, NULL);
    }
}

static Status lower_recurrent_of(Lowering *l, const Node *n, Cell cell, Value *w, Value *r) {
    const char *direction = attr_string(n, "direction", "forward");
    size_t length = strlen(direction);
    bool both = plain_equal(direction, length, "bidirectional"), reverse = plain_equal(direction, length, "reverse");
    if (!both && !reverse && !plain_equal(direction, length, "forward"))
        return invalid(l, "direction \"%s\"", direction);
    bool batch_first = attr_int(n, "layout", 0) != 0;
    int64_t directions = both ? 2 : 1, gates = recurrent_cells[cell].gates, hidden;
    Value *x = in(l, n, 0);
    if (l->error) return l->error;
    if (x->rank != 3 || w->rank != 3 || r->rank != 3) return invalid(l, "X, W and R need 3 axes");
    if (!dim_is_const(r->dims[2], &hidden) && (hidden = attr_int(n, "hidden_size", 0)) <= 0)
        return unsupported(l, "a hidden size known only at run time");
    if (hidden <= 0 || hidden > (1 << 24)) return invalid(l, "hidden size %lld", (long long)hidden);
    const Dim *rows = dim_const(l->dims, directions * gates * hidden);

    x = widen(l, x);
    if (batch_first) x = permute(l, x, (int[]){1, 0, 2});
    w = reshape(l, widen(l, w), (const Dim *const[]){rows, w->dims[2]}, 2);
    Value *projection = matmul(l, x, swap_last(l, w)), *bias = widened(l, n, 3), *apart = NULL;
    bool keep_apart = cell == CELL_GRU && attr_int(n, "linear_before_reset", 0) != 0;
    if (bias)
        projection = add(l, projection, input_bias(l, bias, directions, gates, hidden, keep_apart ? &apart : NULL));
    double limit = attr_float(n, "clip", 0);
    Function functions[MOST_FUNCTIONS];
    TRY(find_functions(l, n, cell, (int)directions, functions));
    RecurrentSteps steps = {.cell = cell,
                            .directions = (int)directions,
                            .hidden = hidden,
                            .reverse_first = reverse,
                            .coupled = attr_int(n, "input_forget", 0) != 0,
                            .linear_before_reset = keep_apart,
                            .limit = limit > 0 ? limit : INFINITY,
                            .functions = functions,
                            .projection = projection,
                            .weights = widen(l, r),
                            .lengths = optional_in(l, n, 4),
                            .h0 = initial_state(l, n, 5, batch_first),
                            .c0 = cell == CELL_LSTM ? initial_state(l, n, 6, batch_first) : NULL,
                            .peepholes = cell == CELL_LSTM ? widened(l, n, 7) : NULL,
                            .bias = apart};
    Value *results[3] = {NULL};
    if (l->error) return l->error;
    if (lowers_to_standard(l))
        recurrent_as_scans(l, n, &steps, results);
    else
        run_kernel(l, n, &steps, results);
    for (int i = 0; i < (cell == CELL_LSTM ? 3 : 2); i++) {
        Value *y = results[i];
        if (l->error) return l->error;
        if (!is_needed(n, i)) continue;
        if (batch_first) y = permute(l, y, i == 0 ? (int[]){2, 0, 1, 3} : (int[]){1, 0, 2});
        TRY(out(l, n, i, cast_like(l, y, n->inputs[0])));
    }
    return NULL;
}

static Status lower_recurrent(Lowering *l, const Node *n, Cell cell) {
    return lower_recurrent_of(l, n, cell, in(l, n, 1), in(l, n, 2));
}

static Status lower_rnn(Lowering *l, const Node *n) { return lower_recurrent(l, n, CELL_RNN); }
static Status lower_gru(Lowering *l, const Node *n) { return lower_recurrent(l, n, CELL_GRU); }
static Status lower_lstm(Lowering *l, const Node *n) { return lower_recurrent(l, n, CELL_LSTM); }

/* Weights in bytes, [D, size, 4 * hidden], turned and as numbers; a scale and a zero point a direction or a column of one. */
static Value *weights_of_bytes(Lowering *l, const Node *n, int index, int scale) {
    Value *w = in(l, n, index), *parts[] = {in(l, n, scale), in(l, n, scale + 1)};
    if (l->error) return NULL;
    if (w->rank != 3) return invalid(l, "input %d has %d axes where 3 are needed", index, w->rank), NULL;
    for (int i = 0; i < 2; i++) {
        const Dim *dims[] = {w->dims[0], size_const(l, 1), parts[i]->rank == 2 ? w->dims[2] : size_const(l, 1)};
        parts[i] = reshape(l, cast(l, parts[i], DT_F32), dims, 3);
    }
    return swap_last(l, mul(l, sub(l, cast(l, w, DT_F32), parts[1]), parts[0]));
}

/* What is rounded to bytes there to be multiplied, x and h, stays as it is. */
static Status lower_lstm_of_bytes(Lowering *l, const Node *n) {
    return lower_recurrent_of(l, n, CELL_LSTM, weights_of_bytes(l, n, 1, 8), weights_of_bytes(l, n, 2, 10));
}

/* ---- the gradient ---- */

/* [T, B, D * size] as a matrix a direction, [D, T * B, size]. */
static Value *by_direction(Lowering *l, Value *x, const Dim *directions, const Dim *size) {
    if (!present(l, &x, 1)) return NULL;
    const Dim *rows = size_mul(l, x->dims[0], x->dims[1]);
    return permute(l, reshape(l, x, (const Dim *const[]){rows, directions, size}, 3), (int[]){1, 0, 2});
}

static Value *cut(Lowering *l, Value *x, int64_t start, const Dim *size) {
    return slice_axis(l, x, 2, dim_const(l->dims, start), size);
}

/* A result of the forward node, which gives it from now on. */
static Value *kept(const Node *n, int index, int rank, const Dim *const *dims) {
    Node *node = (Node *)n; /* of the graph that is being differentiated */
    return node_output_at(node, index, n->inputs[0]->dtype, rank, dims);
}

/* The kernel goes back through the steps (Werbos, "Backpropagation through time", Proceedings of the IEEE, 1990); what the weights get is a
 * product over all steps at once. */
static void back_recurrent(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Cell cell = (Cell)attr_int(n, "cell", 0);
    int64_t hidden = attr_int(n, "hidden_size", 0), gates = recurrent_cells[cell].gates;
    bool after = attr_int(n, "linear_before_reset", 0) != 0, resets = cell == CELL_GRU && !after;
    const Dim *directions = dim_const(l->dims, attr_int(n, "directions", 1)), *h = dim_const(l->dims, hidden);
    Value *projection = n->inputs[0], *inputs[12] = {NULL};
    const Dim *states[] = {projection->dims[0], projection->dims[1], size_mul(l, directions, h)};
    const Dim *initial[] = {directions, projection->dims[1], h};
    for (int i = 0; i < n->input_count; i++) inputs[i] = n->inputs[i];
    for (int i = 0; i < n->output_count && i < KEPT_GATES; i++) inputs[7 + i] = has_dy(w, n, i) ? dy(w, n, i) : NULL;
    if (recurrent_keeps(n)) {
        const Dim *y[] = {projection->dims[0], directions, projection->dims[1], h};
        inputs[0] = kept(n, KEPT_GATES, 3, (const Dim *const *)projection->dims);
        inputs[10] = kept(n, 0, 4, y);
        if (cell == CELL_LSTM || after) inputs[11] = kept(n, KEPT_INNER, 3, states);
    }
    Node *node = backward_host(w, n, "RecurrentGradient", host_recurrent_gradient, inputs, 12);
    if (!node) return;
    const Dim *holes[] = {directions, projection->dims[1], dim_const(l->dims, 3 * hidden)};
    Value *products = host_result_like(l, node, projection), *reset = NULL;
    give(w, n, 0, products);
    if (after)
        products = host_result_like(l, node, projection);
    else
        node_attach_output(node, NULL);
    Value *multiplied = host_result(l, node, projection->dtype, 3, states);
    if (resets)
        reset = host_result(l, node, projection->dtype, 3, states);
    else
        node_attach_output(node, NULL);
    for (int i = 3; i < 6; i++) { /* initial h and c, peepholes */
        if (!wants(w, n, i)) {
            node_attach_output(node, NULL);
            continue;
        }
        Value *g = host_result(l, node, projection->dtype, 3, i == 5 ? holes : initial);
        give(w, n, i, i == 5 ? reduce(l, PRIM_REDUCE_SUM, g, (int[]){1}, 1, false) : g);
    }
    products = by_direction(l, products, directions, dim_const(l->dims, gates * hidden));
    if (wants(w, n, 6)) {
        Value *sum = reduce(l, PRIM_REDUCE_SUM, cut(l, products, 2 * hidden, h), (int[]){1}, 1, false);
        give(w, n, 6, sum);
    }
    if (!wants(w, n, 1)) return;
    const Dim *first = dim_const(l->dims, (resets ? 2 : gates) * hidden);
    Value *weights = matmul(l, swap_last(l, cut(l, products, 0, first)), by_direction(l, multiplied, directions, h));
    if (resets) {
        Value *third = swap_last(l, cut(l, products, 2 * hidden, h));
        weights = concat(l, (Value *[]){weights, matmul(l, third, by_direction(l, reset, directions, h))}, 2, 1);
    }
    give(w, n, 1, pack_weights(l, weights, attr_int(n, "directions", 1), hidden, cell, after));
}

const OpRow ops_recurrent[] = {
    {"", "RNN", 1, 0, lower_rnn, host_recurrent, 0},
    {"", "GRU", 1, 0, lower_gru, host_recurrent, 0},
    {"", "LSTM", 1, 0, lower_lstm, host_recurrent, 0},
    {"com.microsoft", "DynamicQuantizeLSTM", 1, 0, lower_lstm_of_bytes, host_recurrent, 0},
    {0},
};

const HostRow hosts_recurrent[] = {
    {"Recurrent", host_recurrent, back_recurrent},
    {"RecurrentGradient", host_recurrent_gradient, NULL},
    {0},
};
