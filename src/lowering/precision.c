/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that a rule wants to compute in another type of floating point. Their floating-point inputs are turned into it
 * before they are lowered, and their results back; where one such node reads another's result, it takes what that has
 * made, so between the two nothing is turned.
 *
 * Which type a result turns back to is the type of the first floating-point input: so it is for all operators that
 * op_has_precision names. */
#include <float.h>
#include <math.h>

#include "graph/constants/unread.h"
#include "lowering/build.h"

/* Values turned before: the constants of several nodes, and what a turned-back result was made of. */
struct Precisions {
    Map constants; /* value and type -> the constant in that type */
    Map sources;   /* a turned-back result -> the value before */
};

/* --- which operators ---------------------------------------------------------------------------------------------- */
typedef struct Exception {
    const char *domain, *op;
    int inputs; /* only so many of the first are turned; 0: the operator names its types itself, or has none */
} Exception;

static const Exception exceptions[] = {
    {"", "BatchNormalization", 1},
    {"", "Resize", 1},
    {"", "Upsample", 1},
    {"", "Cast", 0},
    {"", "CastLike", 0},
    {"", "BitCast", 0},
    {"", "Bernoulli", 0},
    {"", "Multinomial", 0},
    {"", "RandomNormal", 0},
    {"", "RandomNormalLike", 0},
    {"", "RandomUniform", 0},
    {"", "RandomUniformLike", 0},
    {"", "QuantizeLinear", 0},
    {"", "DequantizeLinear", 0},
    {"", "DynamicQuantizeLinear", 0},
    {"", "QLinearConv", 0},
    {"", "QLinearMatMul", 0},
    {"", "MatMulInteger", 0},
    {"", "ConvInteger", 0},
    {"", "NonMaxSuppression", 0},
    {"", "ConstantOfShape", 0},
    {"", "EyeLike", 0},
    {"", "OneHot", 0},
    {"", "Range", 0},
    {"", "MelWeightMatrix", 0},
    {"", "HannWindow", 0},
    {"", "HammingWindow", 0},
    {"", "BlackmanWindow", 0},
    {"", "DFT", 0},
    {"", "STFT", 0},
    {"", "Det", 0},
    {"", "ImageDecoder", 0},
    {"", "TfIdfVectorizer", 0},
    {"", "SequenceConstruct", 0},
    {"", "SequenceEmpty", 0},
    {"", "SequenceInsert", 0},
    {"", "SequenceErase", 0},
    {"", "SequenceAt", 0},
    {"", "SequenceLength", 0},
    {"", "SplitToSequence", 0},
    {"", "ConcatFromSequence", 0},
    {"", "Optional", 0},
    {"", "OptionalGetElement", 0},
    {"", "OptionalHasElement", 0},
    {"com.microsoft", "MatMulNBits", 1},
    {"com.microsoft", "MatMulInteger16", 0},
    {"com.microsoft", "MatMulIntegerToFloat", 0},
    {"com.microsoft", "QAttention", 0},
    {"com.microsoft", "QEmbedLayerNormalization", 0},
    {"com.microsoft", "QGemm", 0},
    {"com.microsoft", "Range", 0},
};

/* How many of the first inputs are turned. */
static int turned_inputs(const char *domain, const char *op, int opset) {
    const OpRow *row = ops_find(domain, op, opset);
    if (!row || row->flags & (OP_CONTROL_FLOW | OP_RANDOM)) return 0;
    if (*domain && strcmp(domain, "com.microsoft") != 0) return 0;
    if (strncmp(op, "QLinear", 7) == 0 || strncmp(op, "DynamicQuantize", 15) == 0) return 0;
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
        if (strcmp(exceptions[i].op, op) == 0 && strcmp(exceptions[i].domain, domain) == 0) return exceptions[i].inputs;
    return INT32_MAX;
}

bool op_has_precision(const char *domain, const char *op, int opset) { return turned_inputs(domain, op, opset) > 0; }

/* --- constants ---------------------------------------------------------------------------------------------------- */
static const double LARGEST_F16 = 65504, SMALLEST_F16 = 0x1p-24;

static double load(const Tensor *t, int64_t i) { return dtype_load_double(t->dtype, t->data, i); }

/* Whether f16 has every element to within its rounding, infinities and zeros included. */
static bool fits_f16(const Tensor *t) {
    int64_t count = tensor_count(t);
    for (int64_t i = 0; i < count; i++) {
        double x = fabs(load(t, i));
        if ((x > LARGEST_F16 && isfinite(x)) || (x < SMALLEST_F16 && x > 0)) return false;
    }
    return true;
}

/* Masks stay finite, so that a difference of two is no NaN, and epsilons above zero. */
static double within_f16(double x) {
    double size = fabs(x);
    if (!isfinite(x) || x == 0) return x;
    return copysign(size > LARGEST_F16 ? LARGEST_F16 : size < SMALLEST_F16 ? SMALLEST_F16 : size, x);
}

static Value *turn_constant(Lowering *l, const Value *v, DType to) {
    uint64_t key = MAP_POINTER_KEY(v) * 64 + (uint64_t)to;
    Value *known = map_get_id(&l->precisions->constants, key);
    if (known && !known->gone) return known;
    const Tensor *from = v->constant;
    Value *made;
    if (to == DT_F16 && !fits_f16(from)) {
        Tensor *t = tensor_new(l->graph->arena, to, from->rank, from->dims);
        graph_note_made(l->graph, t);
        int64_t count = tensor_count(t);
        for (int64_t i = 0; i < count; i++) dtype_store_double(to, t->data, i, within_f16(load(from, i)));
        graph_forget(l->graph, from);
        made = constant(l, t);
    } else {
        made = cast(l, (Value *)(uintptr_t)v, to);
    }
    if (made && made != v && made->constant && from->dtype == DT_F32) made->wider = from;
    if (made) map_set_id(&l->precisions->constants, key, made);
    return made;
}

/* --- inputs and results --- */
static bool is_turnable(DType dtype) { return dtype == DT_F32 || dtype == DT_F16 || dtype == DT_BF16; }

static Value *turn(Lowering *l, Value *v, DType to) {
    if (v->dtype == to) return v;
    if (v->constant) return turn_constant(l, v, to);
    Value *source = map_get_id(&l->precisions->sources, MAP_POINTER_KEY(v));
    return source && source->dtype == to ? source : cast(l, v, to);
}

static void start(Lowering *l) {
    if (l->precisions) return;
    l->precisions = ARENA_NEW(l->arena, struct Precisions);
    *l->precisions = (struct Precisions){map_make(l->arena), map_make(l->arena)};
}

static void note_applied(Lowering *l, const Node *n) {
    if (!n->wanted->what) return;
    ModelInfo *info = l->graph->info;
    const char *name = arena_string(l->arena, node_origin_name(n));
    VEC_PUSH(l->arena, info->applied, (Applied){.what = n->wanted->what, .node = name});
}

Status take_precision(Lowering *l, Node *n) {
    DType to = n->wanted->computes_in, first = DT_NONE;
    int most = turned_inputs(n->domain ? n->domain : "", n->op, n->opset);
    int count = n->input_count - n->captures < most ? n->input_count - n->captures : most;
    l->restores = DT_NONE;
    for (int i = 0; i < count && first == DT_NONE; i++) {
        const Value *v = n->inputs[i];
        if (v && v->kind == VALUE_TENSOR && dtype_is_float(v->dtype)) first = v->dtype;
    }
    if (!is_turnable(first)) return NULL;
    start(l);
    for (int i = 0; i < count; i++) {
        Value *v = n->inputs[i];
        if (!v || v->kind != VALUE_TENSOR || !is_turnable(v->dtype)) continue;
        Value *turned = turn(l, v, to);
        if (!turned) return l->error;
        node_set_input(n, i, turned);
    }
    if (first != to) l->restores = first;
    note_applied(l, n);
    return NULL;
}

/* Results that are f32 whatever the inputs are: statistics. */
static bool is_fixed(const Node *n, int output) {
    size_t length = strlen(n->op), suffix = strlen("LayerNormalization");
    return (output == 1 || output == 2) && length >= suffix &&
           strcmp(n->op + length - suffix, "LayerNormalization") == 0;
}

Value *restore_precision(Lowering *l, int output, Value *value) {
    if (is_fixed(l->node, output)) return value;
    if (value->kind != VALUE_TENSOR || value->dtype != l->node->wanted->computes_in) return value;
    Value *restored = cast(l, value, l->restores);
    if (restored && restored != value) map_set_id(&l->precisions->sources, MAP_POINTER_KEY(restored), value);
    return restored;
}
