/* SPDX-License-Identifier: Apache-2.0 */
/* Constants move into the weights and biases of the Conv, ConvTranspose, Gemm or MatMul before them; a Pad into the
 * Conv after it; MatMul and Add become a Gemm. Factors are multiplied in double and rounded once, so results differ
 * from the model's by roundings alone. */
#include "optimize/rewrite.h"

#include <math.h>

/* y = x * scale + shift, for each channel. */
typedef struct Affine {
    int64_t channels;
    double *scale, *shift; /* [channels] */
} Affine;

/* What takes it: a node with a constant weight. */
typedef struct Host {
    Node *node;
    const Tensor *weight;
    int weight_axis; /* of the channels */
    int rank, axis;  /* of the result, and where its channels stand */
    bool takes_bias; /* as input 2 */
} Host;

static const Tensor *constant_in(const Node *node, int index) {
    const Value *value = node_in(node, index);
    return value ? value->constant : NULL;
}

static const Tensor *floats_in(const Node *node, int index) {
    const Tensor *tensor = constant_in(node, index);
    return tensor && tensor->dtype == DT_F32 ? tensor : NULL;
}

/* Spreads a constant that is one number, or one a channel, over the channels. */
static bool spread(const Tensor *tensor, int rank, int axis, int64_t channels, double *out) {
    if (!tensor || tensor->dtype != DT_F32 || tensor->rank > rank) return false;
    for (int i = 0; i < tensor->rank; i++) {
        bool at_axis = i + rank - tensor->rank == axis;
        if (tensor->dims[i] != 1 && !(at_axis && tensor->dims[i] == channels)) return false;
    }
    const float *data = tensor->data;
    int64_t count = tensor_count(tensor);
    for (int64_t c = 0; c < channels; c++) out[c] = (double)data[count == 1 ? 0 : c];
    return true;
}

/* --- which node takes it --- */

static bool find_host(Rewrite *r, const Node *node, int input, Host *out) {
    static const struct {
        const char *op;
        int channel_axis;
        bool bias;
    } kinds[] = {{"Conv", 0, true}, {"ConvTranspose", 1, true}, {"Gemm", 1, true}, {"MatMul", 1, false}};
    for (int k = 0; k < 4; k++) {
        Node *host = sole_producer(node, input, kinds[k].op);
        if (!host) continue;
        const Tensor *weight = floats_in(host, 1);
        const Value *result = fact_of(r, host->outputs[0]);
        if (!weight || weight->rank < 2 || !result || result->rank < 2 || node_in(host, 1)->uses.count != 1)
            return false;
        bool convolution = k < 2;
        if (k == 1 && attr_int(host, "group", 1) != 1) return false;
        if (!convolution && weight->rank != 2) return false;
        *out = (Host){host,         weight, kinds[k].channel_axis, result->rank, convolution ? 1 : result->rank - 1,
                      kinds[k].bias};
        if (k == 2 && attr_int(host, "transB", 0)) out->weight_axis = 0;
        return true;
    }
    return false;
}

static Affine affine_of(const Rewrite *r, const Host *host) {
    Affine a = {.channels = host->weight->dims[host->weight_axis]};
    a.scale = ARENA_ARRAY(r->arena, double, a.channels);
    a.shift = ARENA_ARRAY(r->arena, double, a.channels);
    for (int64_t c = 0; c < a.channels; c++) a.scale[c] = 1;
    return a;
}

/* --- what is taken --- */

static bool batch_normalization(const Node *node, const Host *host, Affine *a) {
    if (node->opset < 7 || attr_int(node, "training_mode", 0) || !attr_int(node, "spatial", 1) || host->axis != 1)
        return false;
    for (int i = 1; i < node->output_count; i++)
        if (node->outputs[i] && node->outputs[i]->uses.count) return false;
    double epsilon = attr_float(node, "epsilon", 1e-5);
    const float *data[4];
    for (int i = 0; i < 4; i++) {
        const Tensor *tensor = floats_in(node, 1 + i);
        if (!tensor || tensor_count(tensor) != a->channels) return false;
        data[i] = tensor->data;
    }
    for (int64_t c = 0; c < a->channels; c++) { /* (x - mean) / sqrt(var + epsilon) * scale + B */
        a->scale[c] = (double)data[0][c] / sqrt((double)data[3][c] + epsilon);
        a->shift[c] = (double)data[1][c] - (double)data[2][c] * a->scale[c];
    }
    return true;
}

static bool arithmetic(const Node *node, int constant, const Host *host, Affine *a) {
    bool product = is_standard(node, "Mul"), quotient = is_standard(node, "Div"), sum = is_standard(node, "Add");
    if (node->opset < 7 || (constant == 0 && !product && !sum)) return false;
    const Tensor *tensor = constant_in(node, constant);
    if (!spread(tensor, host->rank, host->axis, a->channels, product || quotient ? a->scale : a->shift)) return false;
    for (int64_t c = 0; c < a->channels; c++) {
        if (quotient) a->scale[c] = 1 / a->scale[c];
        if (!product && !quotient && !sum) a->shift[c] = -a->shift[c];
    }
    return true;
}

static bool is_finite(const Affine *a) {
    for (int64_t c = 0; c < a->channels; c++)
        if (!isfinite(a->scale[c]) || !isfinite(a->shift[c])) return false;
    return true;
}

/* --- and put there --- */

static bool all_are(const double *values, int64_t count, double value) {
    for (int64_t i = 0; i < count; i++)
        if (values[i] != value) return false;
    return true;
}

static Value *scaled_weight(Rewrite *r, const Host *host, const Affine *a) {
    const Tensor *old = host->weight;
    Tensor *made = tensor_new(r->arena, DT_F32, old->rank, old->dims);
    const float *from = old->data;
    float *to = made->data;
    int64_t count = tensor_count(old), inner = 1;
    for (int i = host->weight_axis + 1; i < old->rank; i++) inner *= old->dims[i];
    for (int64_t i = 0; i < count; i++) to[i] = (float)((double)from[i] * a->scale[i / inner % a->channels]);
    return graph_add_constant(host->node->graph, node_in(host->node, 1)->name, made);
}

/* The bias afterwards; NULL when there is none. */
static bool new_bias(Rewrite *r, const Host *host, const Affine *a, Value **out_bias) {
    double *bias = ARENA_ARRAY(r->arena, double, a->channels);
    const Value *old = node_in(host->node, 2);
    *out_bias = NULL;
    bool gemm = is_standard(host->node, "Gemm"), shifts = !all_are(a->shift, a->channels, 0);
    if (gemm && (old || shifts) && attr_float(host->node, "beta", 1) != 1) return false;
    if (old && !spread(old->constant, gemm ? 2 : 1, gemm ? 1 : 0, a->channels, bias)) return false;
    if (!old && !shifts) return true;
    if (!host->takes_bias) return false;
    Tensor *made = tensor_new(r->arena, DT_F32, 1, &a->channels);
    for (int64_t c = 0; c < a->channels; c++) ((float *)made->data)[c] = (float)(bias[c] * a->scale[c] + a->shift[c]);
    const char *name = old ? old->name : arena_format(r->arena, "%s_bias", host->node->outputs[0]->name);
    *out_bias = graph_add_constant(host->node->graph, name, made);
    return true;
}

static void take_place(Rewrite *r, Node *node, Node *host) {
    void *fact = map_get_id(&r->facts, MAP_POINTER_KEY(node->outputs[0]));
    map_set_id(&r->facts, MAP_POINTER_KEY(host->outputs[0]), fact);
    rewrite_replace(r, node->graph, node->outputs[0], host->outputs[0]);
}

static bool absorb(Rewrite *r, Node *node, const Host *host, const Affine *a) {
    Value *bias;
    if (!is_finite(a) || !new_bias(r, host, a, &bias)) return false;
    if (!all_are(a->scale, a->channels, 1)) node_set_input(host->node, 1, scaled_weight(r, host, a));
    if (bias) node_put_input(host->node, 2, bias);
    take_place(r, node, host->node);
    return true;
}

bool rewrite_weights(Rewrite *r, Node *node) {
    static const char *const ops[] = {"BatchNormalization", "Mul", "Div", "Add", "Sub"};
    int op = 0;
    while (op < 5 && !is_standard(node, ops[op])) op++;
    if (op == 5) return false;
    for (int input = 0; input < (op == 0 ? 1 : 2); input++) {
        Host host;
        if (!find_host(r, node, input, &host)) continue;
        Affine affine = affine_of(r, &host);
        if (op == 0 ? batch_normalization(node, &host, &affine) : arithmetic(node, 1 - input, &host, &affine))
            return absorb(r, node, &host, &affine);
    }
    return false;
}

/* --- Pad into Conv --- */

static const int64_t *pads_of(const Node *pad, int *out_count) {
    if (strcmp(attr_string(pad, "mode", "constant"), "constant") != 0 || node_in(pad, 3)) return NULL;
    const Tensor *pads = constant_in(pad, 1), *value = constant_in(pad, 2);
    if (pad->opset < 11) return attr_float(pad, "value", 0) != 0 ? NULL : attr_ints(pad, "pads", out_count);
    if (node_in(pad, 2) && (!value || dtype_class(value->dtype) != DTYPE_FLOAT || tensor_count(value) != 1 ||
                            dtype_load_double(value->dtype, value->data, 0) != 0))
        return NULL;
    if (!pads || pads->dtype != DT_I64) return NULL;
    *out_count = (int)tensor_count(pads);
    return pads->data;
}

static bool pad_into_conv(Node *conv) {
    Node *pad = sole_producer(conv, 0, "Pad");
    const char *automatic = attr_string(conv, "auto_pad", "NOTSET");
    bool none = strcmp(automatic, "VALID") == 0;
    int count = 0, own_count = 0;
    const int64_t *pads = pad ? pads_of(pad, &count) : NULL, *own = attr_ints(conv, "pads", &own_count);
    if (!pads || !(none || strcmp(automatic, "NOTSET") == 0) || count < 6 || count > 2 * MAX_RANK || count % 2)
        return false;
    int rank = count / 2, spatial = rank - 2;
    if (own && !none && own_count != 2 * spatial) return false;
    int64_t sums[2 * MAX_RANK] = {0};
    for (int i = 0; i < count; i++) {
        int axis = i % rank, at = i / rank * spatial + axis - 2;
        if (pads[i] < 0 || pads[i] > LARGEST_SIZE || (axis < 2 && pads[i])) return false;
        if (axis < 2) continue;
        sums[at] = own && !none ? own[at] : 0;
        if (sums[at] < 0 || sums[at] > LARGEST_SIZE) return false;
        sums[at] += pads[i];
    }
    node_set_ints(conv, "pads", sums, 2 * spatial);
    if (none) node_set_string(conv, "auto_pad", "NOTSET");
    node_set_input(conv, 0, node_in(pad, 0));
    return true;
}

/* --- MatMul and Add to Gemm --- */

/* Whether C can be a Gemm's: it broadcasts to [M, N] without making that larger. */
static bool fits_gemm(const Value *c, const Value *product) {
    if (c->rank > 2) return false;
    for (int i = 0; i < c->rank; i++) {
        int64_t size;
        bool one = dim_is_const(c->dims[i], &size) && size == 1;
        int64_t a, b;
        bool same = c->dims[i] == product->dims[i + 2 - c->rank] ||
                    (dim_is_const(c->dims[i], &a) && dim_is_const(product->dims[i + 2 - c->rank], &b) && a == b);
        if (!one && !same) return false;
    }
    return true;
}

static bool matmul_add(Rewrite *r, Node *add) {
    for (int input = 0; input < 2; input++) {
        Node *matmul = sole_producer(add, input, "MatMul");
        if (!matmul || add->opset < 7) continue;
        Value *a = node_in(matmul, 0), *b = node_in(matmul, 1), *c = node_in(add, 1 - input);
        const Value *fa = fact_of(r, a), *fb = fact_of(r, b), *fc = fact_of(r, c);
        const Value *product = fact_of(r, matmul->outputs[0]);
        if (!fa || !fb || !fc || !product || fa->rank != 2 || fb->rank != 2 || !fits_gemm(fc, product)) continue;
        if (product->dtype != DT_F32 && product->dtype != DT_F64) continue;
        add->op = "Gemm";
        add->attrs.count = 0;
        node_set_input(add, 0, a);
        node_set_input(add, 1, b);
        node_put_input(add, 2, c);
        return true;
    }
    return false;
}

bool rewrite_neighbour(Rewrite *r, Node *node) {
    if (is_standard(node, "Conv")) return pad_into_conv(node);
    return is_standard(node, "Add") && matmul_add(r, node);
}
