/* SPDX-License-Identifier: Apache-2.0 */
/* First what is trained and the loss, then Gradient, then a formula an optimizer. */
#include "optimize/training.h"

#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "lowering/ops.h"
#include "lowering/subgraph.h"

enum { UPDATE_FENCE = -1 };                /* what writes weights and states is steps of its own, which come last */
enum { LARGEST_SCALE = 1 << 24 };          /* of a loss, beyond which zero gradients would let it grow without end */
enum { LOSS_OPSET = 12, MODE_OPSET = 14 }; /* of SoftmaxCrossEntropyLoss; of training modes as inputs and attributes */

typedef VEC(TrainedTensor) TrainedTensors;

typedef struct Build {
    Graph *graph, *twin; /* graph: where nodes are added */
    TrainingGraph which; /* it is */
    Arena *arena;
    const struct Training *wanted;
    TrainingKind kind;
    int opset; /* of the standard's operators */
    int made;  /* nodes */
    int fence; /* of those that are made */
    Value *loss;
    VEC(Value *) weights;    /* gradients are asked for these */
    VEC(Value *) statistics; /* constants that the forward pass changes */
    VEC(Value *) moved;      /* their new values */
    TrainedTensors tensors;
    int scale;     /* of the loss, a state: its number among the tensors; -1: the loss is not scaled */
    Value *finite; /* bool: whether the gradients are; NULL: it is not asked */
    TrainingStep *step;
} Build;

/* --- nodes ----------------------------------------------------------------------------------------------------------------- */

/* Beside the model all is computed in its own type, whatever the policy says of the model's nodes. */
static const Wanted own_type = {DT_F32, NULL};

/* before: NULL for the end. */
static Node *place_node(Build *b, Node *before, const char *domain, const char *op, int opset, Value *const *inputs,
                        int count) {
    Node *node = graph_add_node(b->graph, before, NODE_ONNX, op, inputs, count);
    const char *name = arena_format(b->graph->arena, "training/%s_%d", op, b->made++);
    node->domain = domain;
    node->opset = opset;
    node->origin = (Origin){arena_copy(b->graph->arena, &name, sizeof name), 1};
    return node;
}

static Node *add_node(Build *b, const char *domain, const char *op, int opset, Value *const *inputs, int count) {
    Node *node = place_node(b, NULL, domain, op, opset, inputs, count);
    node->fence = b->fence;
    node->wanted = b->kind == TRAIN_STEP ? &own_type : NULL;
    return node;
}

static Value *result(Node *node) { return node_add_output(node, node->origin.names[0], DT_NONE, -1, NULL); }

static Value *onnx1(Build *b, const char *op, Value *x) { return result(add_node(b, "", op, b->opset, &x, 1)); }

static Value *onnx2(Build *b, const char *op, Value *x, Value *y) {
    return result(add_node(b, "", op, b->opset, (Value *[]){x, y}, 2));
}

static Value *converted(Build *b, Value *x, DType from, DType to) {
    if (from == to) return x;
    Node *cast = add_node(b, "", "Cast", b->opset, &x, 1);
    node_set_dtype(cast, "to", to);
    return result(cast);
}

static Value *number(Build *b, const Value *like, double value) {
    Tensor *tensor = tensor_new(b->graph->arena, like->dtype, 0, NULL);
    dtype_store_double(like->dtype, tensor->data, 0, value);
    return graph_add_constant(b->graph, NULL, tensor);
}

/* --- names ------------------------------------------------------------------------------------------------------------------ */

static Status value_named(Build *b, const char *name, const char *what, Value **out_value) {
    *out_value = map_get(&b->graph->names, name);
    if (*out_value) return NULL;
    return status_error(STATUS_USAGE, "%s: the model has no value \"%s\"", what, name);
}

/* --- the loss --------------------------------------------------------------------------------------------------------------- */

/* Sizes of the twin's value, told with the graph's own symbols. */
static void own_dims(Build *b, const Value *value, const Dim **dims) {
    for (int i = 0; i < value->rank; i++) {
        int64_t size;
        int symbol = dim_symbol_index(value->dims[i]);
        dims[i] = dim_is_const(value->dims[i], &size) ? dim_const(b->graph->dims, size)
                  : symbol >= 0 ? dim_symbol(b->graph->dims, dim_symbol_name(b->twin->dims, symbol))
                                : dim_fresh(b->graph->dims, "target");
    }
}

typedef struct TensorType {
    DType dtype;
    int rank;
    const Dim *dims[MAX_RANK];
} TensorType;

/* The types that lowering, which can be done once, finds for these values, told with the graph's own symbols. */
static Status types_of(Build *b, const char *const *names, int count, TensorType *types) {
    int first = b->twin->outputs.count;
    for (int i = 0; i < count; i++) {
        Value *value = map_get(&b->twin->names, names[i]);
        if (!value) return status_error(STATUS_FAULT, "the model changed while it was read");
        graph_add_named_output(b->twin, value, names[i]);
    }
    Policy policy = policy_default();
    TRY(lower_graph(b->twin, &policy));
    for (int i = 0; i < count; i++) {
        const Value *value = b->twin->outputs.items[first + i];
        if (value->kind != VALUE_TENSOR)
            return status_error(STATUS_USAGE, "training.loss: \"%s\" is no tensor", names[i]);
        types[i].dtype = value->dtype;
        types[i].rank = value->rank;
        own_dims(b, value, types[i].dims);
    }
    return NULL;
}

/* The two names behind "KIND:", in `text`. */
static bool two_names(Build *b, const char *text, const char *kind, const char **first, const char **second) {
    size_t length = strlen(kind);
    const char *comma = strncmp(text, kind, length) == 0 ? strchr(text + length, ',') : NULL;
    if (!comma) return false;
    *first = arena_string_n(b->arena, text + length, (size_t)(comma - text) - length);
    *second = comma + 1;
    return **first && **second;
}

/* What the loss compares with: a value of the model, or a new input of this type. */
static Value *target(Build *b, const char *name, DType dtype, int rank, const Dim *const *dims) {
    Value *value = map_get(&b->graph->names, name);
    return value ? value : graph_add_input(b->graph, name, dtype, rank, dims);
}

static void name_tensor(Text *text, const char *name, const TensorType *type) {
    text_add(text, "\"%s\" %s[", name, dtype_name(type->dtype));
    for (int i = 0; i < type->rank; i++) {
        if (i) text_add(text, ", ");
        dim_print(text, type->dims[i]);
    }
    text_add(text, "]");
}

/* Sizes that a run alone knows are not looked at. */
static Status check_same_shape(Build *b, const char *const *names, const TensorType *types) {
    bool same = types[0].rank == types[1].rank;
    for (int i = 0; same && i < types[0].rank; i++) {
        int64_t sizes[2];
        bool known = dim_is_const(types[0].dims[i], &sizes[0]) && dim_is_const(types[1].dims[i], &sizes[1]);
        same = !known || sizes[0] == sizes[1];
    }
    if (same) return NULL;
    Text text = text_make(b->arena);
    name_tensor(&text, names[0], &types[0]);
    text_add(&text, " and ");
    name_tensor(&text, names[1], &types[1]);
    return status_error(STATUS_USAGE, "training.loss: mse of tensors of different shapes, %s", text.data);
}

/* -log softmax(logits)[label], the mean over all labels but those that are -100; classes along the last axis (ONNX
 * SoftmaxCrossEntropyLoss-13). */
static Status cross_entropy(Build *b, const char *name, const char *labels) {
    TensorType type;
    Value *logits;
    if (b->opset < LOSS_OPSET)
        return status_error(STATUS_UNSUPPORTED,
                            "a loss of cross entropy needs version %d of the operator set, the model has %d (onnxfuse "
                            "optimize --convert-opset %d)",
                            LOSS_OPSET, b->opset, MODE_OPSET);
    TRY(value_named(b, name, "training.loss", &logits));
    TRY(types_of(b, &name, 1, &type));
    int rank = type.rank;
    if (rank < 2)
        return status_error(STATUS_USAGE, "training.loss: \"%s\" has no axis of classes behind another", name);
    dim_is_const(type.dims[rank - 1], &b->step->classes);
    Node *flatten = add_node(b, "", "Flatten", b->opset, &logits, 1);
    node_set_int(flatten, "axis", rank - 1);
    Tensor *all = tensor_new(b->arena, DT_I64, 1, (const int64_t[]){1});
    *(int64_t *)all->data = -1;
    Value *line =
        onnx2(b, "Reshape", target(b, labels, DT_I64, rank - 1, type.dims), graph_add_constant(b->graph, NULL, all));
    Node *loss = add_node(b, "", "SoftmaxCrossEntropyLoss", b->opset, (Value *[]){result(flatten), line}, 2);
    node_set_int(loss, "ignore_index", -100);
    b->loss = node_add_output(loss, "loss", DT_NONE, -1, NULL);
    return NULL;
}

/* The mean of (prediction - target)^2 over all elements. */
static Status mean_squares(Build *b, const char *name, const char *wanted) {
    const char *names[] = {name, wanted};
    TensorType types[2];
    Value *prediction;
    bool both = map_get(&b->graph->names, wanted) != NULL;
    TRY(value_named(b, name, "training.loss", &prediction));
    TRY(types_of(b, names, both ? 2 : 1, types));
    if (both) TRY(check_same_shape(b, names, types));
    Value *difference = onnx2(b, "Sub", prediction, target(b, wanted, types->dtype, types->rank, types->dims));
    Value *square = onnx2(b, "Mul", difference, difference);
    Node *mean = add_node(b, "", "ReduceMean", b->opset, &square, 1);
    node_set_int(mean, "keepdims", 0);
    b->loss = node_add_output(mean, "loss", DT_NONE, -1, NULL);
    return NULL;
}

static Status find_loss(Build *b) {
    const char *text = b->wanted->loss, *first, *second;
    if (!text) {
        if (b->graph->outputs.count != 1)
            return status_error(STATUS_USAGE, "training.loss is missing, and the model has %d outputs",
                                b->graph->outputs.count);
        b->loss = b->graph->outputs.items[0];
        return NULL;
    }
    if (two_names(b, text, "cross_entropy:", &first, &second)) return cross_entropy(b, first, second);
    if (two_names(b, text, "mse:", &first, &second)) return mean_squares(b, first, second);
    return value_named(b, text, "training.loss", &b->loss);
}

/* --- what is trained ---------------------------------------------------------------------------------------------------------- */

/* Inputs of operators that are weights where they are constants: bit i for input i. */
static const struct {
    const char *op;
    unsigned inputs;
} weight_roles[] = {
    {"Conv", 6},
    {"ConvTranspose", 6},
    {"Gemm", 6},
    {"MatMul", 3},
    {"FusedMatMul", 3},
    {"Einsum", ~0u},
    {"Gather", 1},
    {"LayerNormalization", 6},
    {"InstanceNormalization", 6},
    {"PRelu", 2},
    {"GroupNormalization", 6},
    {"BatchNormalization", 6},
    {"LSTM", 2 + 4 + 8 + 128},
    {"GRU", 2 + 4 + 8},
    {"RNN", 2 + 4 + 8},
    {"RMSNormalization", 2},
    {"SimplifiedLayerNormalization", 2},
    {"DeformConv", 2 + 8},
    {"SkipLayerNormalization", 4 + 8 + 16},
    {"SkipSimplifiedLayerNormalization", 4 + 8},
    {"EmbedLayerNormalization", 4 + 8 + 16 + 32 + 64},
    {"Attention", 2 + 4},
    {"MultiHeadAttention", 8},
    {"BiasGelu", 2},
    {"FastGelu", 2},
};

/* Masks are added, too: they hold what is meant as minus infinity. */
static bool looks_like_mask(const Tensor *tensor) {
    for (int64_t i = 0; i < tensor_count(tensor); i++)
        if (!(fabs(dtype_load_double(tensor->dtype, tensor->data, i)) < 1e4)) return true;
    return false;
}

static bool hands_on(const Node *node) {
    static const char *const ops[] = {"Identity", "Cast", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Flatten"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(node->op, ops[i]) == 0) return true;
    return false;
}

/* Sums with biases and products with scales are written out by some exporters: a vector is one; of tables only what is added, as
 * tables that are multiplied hold positions' cosines. */
static bool is_bias_or_scale(const Node *node, const Tensor *tensor) {
    bool sum = strcmp(node->op, "Add") == 0, product = strcmp(node->op, "Mul") == 0;
    if (tensor_count(tensor) < 2 || (!sum && !product)) return false;
    int64_t largest = 0;
    for (int i = 0; i < tensor->rank; i++) largest = tensor->dims[i] > largest ? tensor->dims[i] : largest;
    return tensor_count(tensor) == largest || (sum && !looks_like_mask(tensor));
}

enum { MOST_STEPS = 8 }; /* transposes and casts between a weight and its operator */

static bool is_weight_of(const Use *use, const Tensor *tensor, int steps) {
    const Node *node = use->node;
    for (size_t i = 0; i < sizeof weight_roles / sizeof *weight_roles; i++)
        if (strcmp(node->op, weight_roles[i].op) == 0 && use->index < 32 && weight_roles[i].inputs >> use->index & 1)
            return true;
    if (is_bias_or_scale(node, tensor)) return true;
    int capture = use->index - (node->input_count - node->captures);
    for (int i = 0; capture >= 0 && i < node->subgraph_count; i++) {
        const Graph *body = node->subgraphs[i];
        const Value *inner = body->inputs.items[body->inputs.count - node->captures + capture];
        for (int k = 0; k < inner->uses.count; k++)
            if (is_weight_of(&inner->uses.items[k], tensor, steps)) return true;
    }
    if (!steps || use->index || !hands_on(node)) return false;
    const Value *handed = node->outputs[0];
    for (int i = 0; i < handed->uses.count; i++)
        if (is_weight_of(&handed->uses.items[i], tensor, steps - 1)) return true;
    return false;
}

static bool looks_like_weight(const Value *value) {
    for (int i = 0; i < value->uses.count; i++)
        if (is_weight_of(&value->uses.items[i], value->constant, MOST_STEPS)) return true;
    return false;
}

/* used [globs]: those that have named something. */
static bool is_named(const char *const *globs, bool *used, const char *name) {
    bool named = false;
    for (int i = 0; globs[i]; i++) {
        bool fits = fnmatch(globs[i], name, 0) == 0;
        used[i] |= fits;
        named |= fits;
    }
    return named;
}

/* The values that the loss is computed of. */
static Map ancestors(Build *b) {
    Map needed = map_make(b->arena);
    map_set_id(&needed, MAP_POINTER_KEY(b->loss), b->loss);
    for (const Node *node = b->graph->last; node; node = node->prev) {
        bool makes = false;
        for (int i = 0; i < node->output_count; i++)
            makes |= node->outputs[i] && map_get_id(&needed, MAP_POINTER_KEY(node->outputs[i]));
        for (int i = 0; makes && i < node->input_count; i++)
            if (node->inputs[i]) map_set_id(&needed, MAP_POINTER_KEY(node->inputs[i]), node->inputs[i]);
    }
    return needed;
}

static bool is_statistic(const Build *b, const Value *value) {
    for (int i = 0; i < b->statistics.count; i++)
        if (b->statistics.items[i] == value) return true;
    return false;
}

static bool is_differentiable(const Value *input, const Map *needed) {
    return input->kind == VALUE_TENSOR && dtype_is_float(input->dtype) && map_get_id(needed, MAP_POINTER_KEY(input));
}

static bool is_trained_type(DType dtype) { return training_type(dtype) == DT_F32 || dtype == DT_F64; }

/* A weight inside a body, which names itself or looks like one: the graph's own from here on. */
typedef struct Globs {
    const char *const *globs; /* NULL: none */
    bool *used;
} Globs;

static bool is_weight_inside(void *context, const Value *inside, const char *name) {
    const Globs *g = context;
    if (!dtype_is_float(inside->dtype) || !value_is_read(inside)) return false;
    return g->globs ? is_named(g->globs, g->used, name) : looks_like_weight(inside);
}

static Status find_weights(Build *b) {
    Map constants = map_make(b->arena);
    const char *const *globs = b->wanted->of;
    int named = 0;
    while (globs && globs[named]) named++;
    bool *used = ARENA_ARRAY(b->arena, bool, named + 1);
    for (int i = 0; i < b->graph->values.count; i++) {
        Value *value = b->graph->values.items[i];
        if (value->constant && dtype_is_float(value->dtype))
            map_set_id(&constants, MAP_POINTER_KEY(value->constant), value);
    }
    lift_constants(b->graph, is_weight_inside, &(Globs){globs, used}, &constants);
    memset(used, 0, sizeof *used * (size_t)(named + 1)); /* what the loss does not depend on is named in vain */
    capture_constants(b->graph, &constants);
    Map needed = ancestors(b);
    int count = b->graph->values.count;
    for (int i = 0; i < count; i++) {
        Value *value = b->graph->values.items[i];
        if (!value->constant || !dtype_is_float(value->dtype) || is_statistic(b, value) ||
            !map_get_id(&needed, MAP_POINTER_KEY(value)))
            continue;
        if (globs ? !is_named(globs, used, value->name) : !looks_like_weight(value)) continue;
        if (b->kind == TRAIN_STEP && !is_trained_type(value->dtype))
            return status_error(STATUS_UNSUPPORTED,
                                "weight \"%s\" is %s: float64, float32, float16 and bfloat16 weights are trained",
                                value->name, dtype_onnx_name(value->dtype));
        VEC_PUSH(b->arena, b->weights, value);
    }
    int inputs = b->kind == TRAIN_APART ? b->step->seeds : b->graph->inputs.count;
    for (int i = 0; i < inputs && b->kind != TRAIN_STEP; i++) { /* of inputs, too */
        Value *input = b->graph->inputs.items[i];
        if (globs ? is_named(globs, used, input->name) : b->kind == TRAIN_APART && is_differentiable(input, &needed))
            VEC_PUSH(b->arena, b->weights, input);
    }
    for (int i = 0; i < named; i++)
        if (!used[i])
            return status_error(STATUS_USAGE, "training.of: no weight that the loss depends on is called \"%s\"",
                                globs[i]);
    if (b->weights.count) return NULL;
    return status_error(STATUS_USAGE, "the model has no weights that the loss depends on (training.of names some)");
}

/* --- training mode --------------------------------------------------------------------------------------------------------------- */

static Status too_old(const Node *node) {
    return status_error(
        STATUS_UNSUPPORTED,
        "node \"%s\": %s of version %d of the operator set has no training mode (onnxfuse optimize --convert-opset %d)",
        node_origin_name(node), node->op, node->opset, MODE_OPSET + 3);
}

/* Statistics of the batch, whose running averages are new values of constants (ONNX BatchNormalization-14). */
static Status train_batch_norm(Build *b, Node *node) {
    if (node->opset < MODE_OPSET) return too_old(node);
    node_set_int(node, "training_mode", 1);
    for (int i = 3; i < 5; i++) {
        Value *statistic = node->inputs[i];
        if (!statistic->constant || is_statistic(b, statistic)) continue;
        while (node->output_count < i - 2 + 1) node_attach_output(node, NULL);
        if (!node->outputs[i - 2]) {
            node->output_count = i - 2;
            node_add_output(node, NULL, DT_NONE, -1, NULL);
        }
        VEC_PUSH(b->arena, b->statistics, statistic);
        VEC_PUSH(b->arena, b->moved, node->outputs[i - 2]);
    }
    return NULL;
}

static Status train_dropout(Build *b, Node *node) {
    if (node->opset < LOSS_OPSET) return too_old(node);
    Tensor *yes = tensor_new(b->arena, DT_BOOL, 0, NULL);
    *(bool *)yes->data = true;
    while (node->input_count < 3) node_append_input(node, NULL);
    node_set_input(node, 2, graph_add_constant(b->graph, NULL, yes));
    return NULL;
}

static Status set_training_mode(Build *b) {
    FOR_EACH_NODE(node, b->graph) {
        if (node->domain && *node->domain) continue;
        if (strcmp(node->op, "BatchNormalization") == 0) TRY(train_batch_norm(b, node));
        if (strcmp(node->op, "Dropout") == 0) TRY(train_dropout(b, node));
    }
    return NULL;
}

/* --- what is kept from step to step, and numbers of a step --------------------------------------------------------------------------- */

static Value *step_number(Build *b, TrainingNumber which, const Value *like) {
    static const char *const names[] = {"training.rate", "training.correction1", "training.correction2",
                                        "training.old"};
    int *input = &b->step->numbers[b->which][which];
    if (*input < 0) {
        *input = b->graph->inputs.count;
        graph_add_input(b->graph, names[which], DT_F32, 0, NULL);
    }
    return converted(b, b->graph->inputs.items[*input], DT_F32, like->dtype);
}

static const TrainedTensor nowhere = {.in = {{-1, -1}, {-1, -1}}};

/* The graph's own input for a tensor. */
static Value *add_tensor_input(Build *b, TrainedTensor *tensor) {
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < tensor->like->rank; i++) {
        int64_t size = 0;
        dim_is_const(tensor->like->dims[i], &size); /* as weights are */
        dims[i] = dim_const(b->graph->dims, size);
    }
    tensor->in[b->which].input = b->graph->inputs.count;
    return graph_add_input(b->graph, tensor->name, tensor->like->dtype, tensor->like->rank, dims);
}

/* A state of the weight's shape, which begins at zero and becomes what set_state says. */
static Value *state(Build *b, const Value *weight, const char *name) {
    TrainedTensor state = nowhere;
    state.name = arena_format(b->arena, "%s.%s", weight->name, name);
    state.like = weight;
    state.is_state = true;
    VEC_PUSH(b->arena, b->tensors, state);
    return add_tensor_input(b, &b->tensors.items[b->tensors.count - 1]);
}

/* --- the loss's scale -------------------------------------------------------------------------------------------------------------- */
/* Gradients that f16 has no numbers for would be zero, so those of a larger loss are computed (Micikevicius et al., "Mixed Precision Training",
 * 2018). Where one overflows all stays as it is, and the scale is halved; after some steps without that it is doubled. */

/* Products and what is made of them; everything else keeps its type, as under PyTorch's autocast. */
static const char *const products[] = {"MatMul",
                                       "Gemm",
                                       "FusedMatMul",
                                       "Conv",
                                       "ConvTranspose",
                                       "Einsum",
                                       "Attention",
                                       "MultiHeadAttention",
                                       "GroupQueryAttention"};

static void want_precision(Graph *graph, const Wanted *wanted) {
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; i < node->subgraph_count; i++) want_precision(node->subgraphs[i], wanted);
        for (size_t i = 0; i < sizeof products / sizeof *products; i++)
            if (strcmp(node->op, products[i]) == 0) node->wanted = wanted;
    }
}

static void set_precision(Build *b) {
    static const DType types[] = {[PRECISION_F32] = DT_F32, [PRECISION_F16] = DT_F16, [PRECISION_BF16] = DT_BF16};
    Precision precision = b->wanted->precision;
    if (precision == PRECISION_AS_IS) return;
    Wanted *wanted = ARENA_NEW(b->arena, Wanted);
    *wanted = (Wanted){types[precision], arena_format(b->arena, "training.precision: %s", precision_name(precision))};
    want_precision(b->graph, wanted);
}

/* A number that is kept, f32. */
static int add_number_state(Build *b, const char *name, double initial) {
    static const Value f32 = {.dtype = DT_F32};
    TrainedTensor state = nowhere;
    Value *value = number(b, &f32, initial);
    state.name = name;
    state.like = value;
    state.initial = value->constant;
    state.is_state = true;
    VEC_PUSH(b->arena, b->tensors, state);
    return b->tensors.count - 1;
}

/* As the graph reads it. */
static Value *number_state(Build *b, int tensor) {
    TrainedTensor *t = &b->tensors.items[tensor];
    return t->in[b->which].input < 0 ? add_tensor_input(b, t) : b->graph->inputs.items[t->in[b->which].input];
}

static Value *as_f32(Build *b, Value *x) { return converted(b, x, DT_NONE, DT_F32); }

static Value *scaled_loss(Build *b) { return onnx2(b, "Mul", as_f32(b, b->loss), number_state(b, b->scale)); }

static Value *choose(Build *b, Value *condition, Value *x, Value *y) {
    return result(add_node(b, "", "Where", b->opset, (Value *[]){condition, x, y}, 3));
}

/* --- gradients -------------------------------------------------------------------------------------------------------------------- */

static Value **add_gradients(Build *b) {
    int count = b->weights.count;
    Node *node = add_node(b, TRAINING_DOMAIN, "Gradient", 1, b->weights.items, count);
    StringView *names = ARENA_ARRAY(b->arena, StringView, count);
    Value **gradients = ARENA_ARRAY(b->arena, Value *, count);
    for (int i = 0; i < count; i++) {
        const char *name = b->weights.items[i]->name;
        names[i] = (StringView){name, strlen(name)};
        gradients[i] = node_add_output(node, arena_format(b->arena, "%s_grad", name), DT_NONE, -1, NULL);
    }
    node_set_attr(node, (Attr){.name = "xs", .kind = ATTR_STRINGS, .count = count, .strings = names});
    node_set_string(node, "y", (b->scale < 0 ? b->loss : scaled_loss(b))->name);
    bool imported = false;
    for (int i = 0; i < b->graph->info->opsets.count; i++)
        imported |= strcmp(b->graph->info->opsets.items[i].domain, TRAINING_DOMAIN) == 0;
    if (!imported) VEC_PUSH(b->graph->arena, b->graph->info->opsets, (OpsetImport){TRAINING_DOMAIN, 1});
    return gradients;
}

/* All scaled by min(1, most / (norm + 1e-6)), the norm that of all elements together (Pascanu, Mikolov and Bengio, "On the difficulty of
 * training recurrent neural networks", 2013). */
static void clip_gradients(Build *b, Value **gradients) {
    Value *sum = NULL;
    for (int i = 0; i < b->weights.count; i++) {
        Node *node = add_node(b, "", "ReduceSumSquare", b->opset, &gradients[i], 1);
        node_set_int(node, "keepdims", 0);
        Value *part = converted(b, result(node), b->weights.items[i]->dtype, DT_F32);
        sum = sum ? onnx2(b, "Add", sum, part) : part;
    }
    const Value f32 = {.dtype = DT_F32};
    Value *norm = onnx2(b, "Add", onnx1(b, "Sqrt", sum), number(b, &f32, 1e-6));
    Value *factor = onnx2(b, "Min", number(b, &f32, 1), onnx2(b, "Div", number(b, &f32, b->wanted->clip_norm), norm));
    b->fence = UPDATE_FENCE;
    for (int i = 0; i < b->weights.count; i++) {
        Value *own = converted(b, factor, DT_F32, b->weights.items[i]->dtype);
        gradients[i] = onnx2(b, "Mul", gradients[i], own);
    }
}

static void give_new(Build *b, int number, Value *value) {
    TrainedTensor *tensor = &b->tensors.items[number];
    int input = tensor->in[b->which].input, output = b->graph->outputs.count;
    if (b->finite) value = choose(b, b->finite, value, b->graph->inputs.items[input]);
    tensor->in[b->which].output = output;
    graph_add_named_output(b->graph, value, arena_format(b->graph->arena, "%s.new", tensor->name));
    VEC_PUSH(b->graph->arena, b->graph->states, (GraphState){input, output});
}

/* Divides gradients by the scale and finds out whether all are finite; the scale's new value. */
static void unscale(Build *b, Value **gradients) {
    static const Value f32 = {.dtype = DT_F32};
    const struct Training *t = b->wanted;
    Value *scale = number_state(b, b->scale), *good = number_state(b, b->scale + 1), *largest = NULL;
    for (int i = 0; i < b->weights.count; i++) {
        Value *size = onnx1(b, "Abs", gradients[i]);
        Node *most = add_node(b, "", "ReduceMax", b->opset, &size, 1); /* not a number where one is not */
        node_set_int(most, "keepdims", 0);
        Value *own = converted(b, result(most), b->weights.items[i]->dtype, DT_F32);
        largest = largest ? onnx2(b, "Max", largest, own) : own;
    }
    b->fence = UPDATE_FENCE;
    Value *finite = onnx2(b, "Less", largest, number(b, &f32, INFINITY));
    Value *next = onnx2(b, "Add", good, number(b, &f32, 1)), *zero = number(b, &f32, 0);
    Value *waits = onnx2(b, "Less", next, number(b, &f32, (double)t->loss_scale_steps));
    Value *doubled = onnx2(b, "Min", onnx2(b, "Mul", scale, number(b, &f32, 2)), number(b, &f32, LARGEST_SCALE));
    Value *halved = onnx2(b, "Mul", scale, number(b, &f32, 0.5));
    give_new(b, b->scale, choose(b, finite, choose(b, waits, scale, doubled), halved));
    give_new(b, b->scale + 1, choose(b, finite, choose(b, waits, next, zero), zero));
    b->step->finite[b->which] = b->graph->outputs.count;
    graph_add_named_output(b->graph, as_f32(b, finite), "training.finite");
    b->finite = finite;
    for (int i = 0; i < b->weights.count; i++) {
        Value *own = converted(b, scale, DT_F32, b->weights.items[i]->dtype);
        gradients[i] = onnx2(b, "Div", gradients[i], own);
    }
}

/* --- optimizers, as torch.optim of PyTorch 2 has them ------------------------------------------------------------------------------ */

static Value *set_state(Build *b, Value *value) {
    give_new(b, b->tensors.count - 1, value);
    return value;
}

/* share * old + (1 - share) * new */
static Value *average(Build *b, const Value *weight, double share, Value *old, Value *new) {
    return onnx2(b, "Add", onnx2(b, "Mul", number(b, weight, share), old),
                 onnx2(b, "Mul", number(b, weight, 1 - share), new));
}

/* Kingma and Ba, "Adam", 2015; with decay beside the step: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019. */
static Value *adam(Build *b, Value *w, Value *g) {
    const struct Training *t = b->wanted;
    Value *rate = step_number(b, NUMBER_RATE, w);
    Value *m = set_state(b, average(b, w, t->beta1, state(b, w, "momentum"), g));
    Value *v = set_state(b, average(b, w, t->beta2, state(b, w, "variance"), onnx2(b, "Mul", g, g)));
    Value *root = onnx1(b, "Sqrt", onnx2(b, "Mul", v, step_number(b, NUMBER_CORRECTION2, w)));
    Value *step = onnx2(b, "Mul", rate, step_number(b, NUMBER_CORRECTION1, w));
    Value *kept = w;
    if (t->optimizer == OPTIMIZER_ADAMW && t->weight_decay > 0)
        kept = onnx2(b, "Sub", w, onnx2(b, "Mul", onnx2(b, "Mul", rate, number(b, w, t->weight_decay)), w));
    return onnx2(b, "Sub", kept,
                 onnx2(b, "Div", onnx2(b, "Mul", step, m), onnx2(b, "Add", root, number(b, w, t->epsilon))));
}

static Value *momentum(Build *b, Value *w, Value *g) {
    Value *v = onnx2(b, "Mul", number(b, w, b->wanted->momentum), state(b, w, "momentum"));
    v = set_state(b, onnx2(b, "Add", v, g));
    return onnx2(b, "Sub", w, onnx2(b, "Mul", step_number(b, NUMBER_RATE, w), v));
}

/* Duchi, Hazan and Singer, "Adaptive Subgradient Methods", JMLR 2011. */
static Value *adagrad(Build *b, Value *w, Value *g) {
    Value *sum = set_state(b, onnx2(b, "Add", state(b, w, "sum"), onnx2(b, "Mul", g, g)));
    Value *root = onnx2(b, "Add", onnx1(b, "Sqrt", sum), number(b, w, b->wanted->epsilon));
    return onnx2(b, "Sub", w, onnx2(b, "Div", onnx2(b, "Mul", step_number(b, NUMBER_RATE, w), g), root));
}

static Value *sgd(Build *b, Value *w, Value *g) {
    return onnx2(b, "Sub", w, onnx2(b, "Mul", step_number(b, NUMBER_RATE, w), g));
}

static Value *updated(Build *b, Value *w, Value *g) {
    const struct Training *t = b->wanted;
    if (t->weight_decay > 0 && t->optimizer != OPTIMIZER_ADAMW)
        g = onnx2(b, "Add", g, onnx2(b, "Mul", number(b, w, t->weight_decay), w));
    switch (t->optimizer) {
    case OPTIMIZER_SGD: return sgd(b, w, g);
    case OPTIMIZER_MOMENTUM: return momentum(b, w, g);
    case OPTIMIZER_ADAGRAD: return adagrad(b, w, g);
    default: return adam(b, w, g);
    }
}

/* --- the step ------------------------------------------------------------------------------------------------------------------------- */

/* A constant becomes an input of the same name. */
static void make_input(Build *b, Value *value) {
    TrainedTensor tensor = nowhere;
    tensor.name = value->name;
    tensor.initial = value->constant;
    tensor.like = value;
    tensor.in[GRAPH_STEP].input = b->graph->inputs.count;
    value->constant = NULL;
    value->content = NULL;
    VEC_PUSH(b->graph->arena, b->graph->inputs, value);
    VEC_PUSH(b->arena, b->tensors, tensor);
}

/* A step may be less than what a narrow number can change by, so such a weight is kept in f32, and the model computes with what it is
 * rounded to ("master weights", Micikevicius et al., as above). The constant's data stays as it is: what training begins with. */
static void keep_wide(Build *b, Value *weight) {
    DType narrow = weight->dtype;
    if (training_type(narrow) == narrow) return;
    Value *none = NULL;
    Node *cast = place_node(b, b->graph->first, "", "Cast", b->opset, &none, 1);
    node_set_dtype(cast, "to", narrow);
    value_replace(b->graph, weight, result(cast));
    node_set_input(cast, 0, weight);
    weight->dtype = training_type(narrow);
}

/* Whether the loss is scaled: some gradient is of f16, by the policy's wish or by the model's own type. */
static bool has_halves(const Build *b) {
    bool halves = b->wanted->precision == PRECISION_F16;
    for (int i = 0; i < b->weights.count; i++) halves |= b->weights.items[i]->dtype == DT_F16;
    return halves;
}

/* Clipping and the optimizer's formula: from the weights' gradients to their new values. */
static void update(Build *b, Value *const *weights, Value **gradients) {
    if (b->scale >= 0) unscale(b, gradients);
    if (b->wanted->clip_norm > 0) clip_gradients(b, gradients);
    b->fence = UPDATE_FENCE;
    for (int i = 0; i < b->weights.count; i++) give_new(b, i, updated(b, weights[i], gradients[i]));
}

/* Each gradient is added to what is there of the batches before, and the sum is a state. */
static int sum_gradients(Build *b, Value **gradients) {
    int first = b->tensors.count;
    b->fence = UPDATE_FENCE;
    for (int i = 0; i < b->weights.count; i++) {
        const Value *weight = b->weights.items[i];
        Value *before = state(b, weight, "gradient"), *old = step_number(b, NUMBER_OLD, weight);
        b->tensors.items[first + i].is_sum = true;
        Node *is_old = add_node(b, "", "Cast", b->opset, &old, 1);
        node_set_dtype(is_old, "to", DT_BOOL);
        Value *sum = onnx2(b, "Add", before, gradients[i]);
        set_state(b, result(add_node(b, "", "Where", b->opset, (Value *[]){result(is_old), sum, gradients[i]}, 3)));
    }
    return first;
}

/* The mean over the batches is one step's gradient. */
static Status update_by_sums(Build *b, int first_sum) {
    Graph *graph = graph_create(0);
    if (!graph) return status_out_of_memory();
    b->step->update = b->graph = graph;
    b->which = GRAPH_UPDATE;
    jmp_buf *outer = arena_guard(b->arena, NULL);
    arena_guard(b->arena, outer);
    arena_guard(graph->arena, outer);
    graph->name = "update";
    graph->info->ir_version = 8;
    VEC_PUSH(graph->arena, graph->info->opsets, (OpsetImport){"", b->opset});
    Value **weights = ARENA_ARRAY(b->arena, Value *, b->weights.count);
    Value **gradients = ARENA_ARRAY(b->arena, Value *, b->weights.count);
    for (int i = 0; i < b->weights.count; i++) {
        weights[i] = add_tensor_input(b, &b->tensors.items[i]);
        Value *sum = add_tensor_input(b, &b->tensors.items[first_sum + i]);
        gradients[i] = onnx2(b, "Mul", sum, number(b, sum, 1 / (double)b->wanted->accumulation));
    }
    update(b, weights, gradients);
    arena_guard(graph->arena, NULL);
    return NULL;
}

static Status train(Build *b) {
    graph_truncate_outputs(b->graph, 0);
    graph_add_named_output(b->graph, b->loss, b->loss->name);
    b->step->data_inputs = b->graph->inputs.count;
    const bool scaled = has_halves(b);
    for (int i = 0; i < b->weights.count; i++) keep_wide(b, b->weights.items[i]);
    for (int i = 0; i < b->weights.count; i++) make_input(b, b->weights.items[i]);
    for (int i = 0; i < b->statistics.count; i++) make_input(b, b->statistics.items[i]);
    if (scaled) {
        b->scale = add_number_state(b, "training.loss_scale", b->wanted->loss_scale);
        add_number_state(b, "training.steps_at_scale", 0);
    }
    Value **gradients = add_gradients(b);
    for (int i = 0; i < b->statistics.count; i++) give_new(b, b->weights.count + i, b->moved.items[i]);
    if (b->wanted->accumulation > 1) return update_by_sums(b, sum_gradients(b, gradients));
    update(b, b->weights.items, gradients);
    return NULL;
}

static void give_gradients(Build *b) {
    TrainingStep *step = b->step;
    bool is_output = value_is_output(b->loss);
    step->data_inputs = b->graph->inputs.count;
    if (!is_output) graph_add_named_output(b->graph, b->loss, b->loss->name);
    for (int i = 0; i < b->graph->outputs.count; i++)
        if (b->graph->outputs.items[i] == b->loss) step->loss = i;
    step->gradients = b->graph->outputs.count;
    Value **gradients = add_gradients(b);
    for (int i = 0; i < b->weights.count; i++) {
        const Value *weight = b->weights.items[i];
        TrainedTensor tensor = nowhere;
        tensor.name = weight->name;
        tensor.like = weight;
        VEC_PUSH(b->arena, b->tensors, tensor);
        graph_add_named_output(b->graph, gradients[i], gradients[i]->name);
    }
}

/* --- forward and backward apart ------------------------------------------------------------------------------------------------------ */

/* What is differentiated: the sum over all outputs of floats, each times its gradient, an input of its type. */
static Status add_seeds(Build *b) {
    Policy policy = policy_default();
    TRY(lower_graph(b->twin, &policy));
    int outputs = b->graph->outputs.count, *seeds = ARENA_ARRAY(b->arena, int, outputs + 1);
    b->step->seeds = b->graph->inputs.count;
    b->step->seed_of = seeds;
    for (int i = 0; i < outputs; i++) {
        const Value *fact = b->twin->outputs.items[i];
        Value *output = b->graph->outputs.items[i];
        const Dim *dims[MAX_RANK];
        seeds[i] = -1;
        if (fact->kind != VALUE_TENSOR || !dtype_is_float(fact->dtype)) continue;
        seeds[i] = b->graph->inputs.count;
        own_dims(b, fact, dims);
        const char *name = arena_format(b->arena, "%s_grad", b->graph->output_names.items[i]);
        Value *seed = graph_add_input(b->graph, name, fact->dtype, fact->rank, dims);
        Value *product = onnx2(b, "Mul", output, seed);
        Node *sum = add_node(b, "", "ReduceSum", b->opset, &product, 1);
        node_set_int(sum, "keepdims", 0);
        Value *part = converted(b, result(sum), fact->dtype, DT_F32);
        b->loss = b->loss ? onnx2(b, "Add", b->loss, part) : part;
    }
    if (b->loss) return NULL;
    return status_error(STATUS_USAGE, "the model has no output of floats");
}

static void give_apart(Build *b) {
    TrainingStep *step = b->step;
    int seeds = b->graph->inputs.count - step->seeds, weights = 0;
    Value **gradients = add_gradients(b);
    step->gradients = b->graph->outputs.count;
    for (int i = 0; i < b->weights.count; i++) {
        Value *weight = b->weights.items[i];
        graph_add_named_output(b->graph, gradients[i], arena_format(b->arena, "%s_grad", weight->name));
        if (weight->constant) {
            make_input(b, weight);
            weights++;
        } else {
            TrainedTensor tensor = nowhere;
            tensor.name = weight->name;
            tensor.like = weight;
            VEC_PUSH(b->arena, b->tensors, tensor);
        }
    }
    /* The outputs' gradients come last. */
    Value **inputs = b->graph->inputs.items, **moved = ARENA_ARRAY(b->arena, Value *, seeds + 1);
    memcpy(moved, inputs + step->seeds, (size_t)seeds * sizeof *moved);
    memmove(inputs + step->seeds, inputs + step->seeds + seeds, (size_t)weights * sizeof *inputs);
    memcpy(inputs + step->seeds + weights, moved, (size_t)seeds * sizeof *inputs);
    for (int i = 0; i < b->tensors.count; i++)
        if (b->tensors.items[i].in[GRAPH_STEP].input >= 0) b->tensors.items[i].in[GRAPH_STEP].input -= seeds;
    for (int i = 0; i < step->gradients; i++)
        if (step->seed_of[i] >= 0) ((int *)(uintptr_t)step->seed_of)[i] += weights;
    step->data_inputs = step->seeds;
    step->seeds += weights;
}

static int standard_opset(const Graph *graph) {
    for (int i = 0; i < graph->info->opsets.count; i++)
        if (!*graph->info->opsets.items[i].domain) return (int)graph->info->opsets.items[i].version;
    return 0;
}

Status training_step(Graph *graph, const TrainingOptions *options, TrainingStep *out_step) {
    Build b = {.graph = graph,
               .twin = options->twin,
               .arena = graph->arena,
               .wanted = options->wanted,
               .kind = options->kind,
               .opset = standard_opset(graph),
               .scale = -1,
               .step = out_step};
    *out_step = (TrainingStep){.gradients = -1, .classes = -1};
    memset(out_step->numbers, -1, sizeof out_step->numbers);
    memset(out_step->finite, -1, sizeof out_step->finite);
    if (b.kind == TRAIN_STEP) set_precision(&b);
    TRY(b.kind == TRAIN_APART ? add_seeds(&b) : find_loss(&b));
    if (b.kind != TRAIN_GRADIENTS) TRY(set_training_mode(&b));
    TRY(find_weights(&b));
    if (b.kind == TRAIN_APART)
        give_apart(&b);
    else if (b.kind == TRAIN_GRADIENTS)
        give_gradients(&b);
    else
        TRY(train(&b));
    out_step->tensors = b.tensors.items;
    out_step->tensor_count = b.tensors.count;
    return NULL;
}
