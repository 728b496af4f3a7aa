/* SPDX-License-Identifier: Apache-2.0 */
/* The search for a pattern in a graph of ONNX nodes.
 *
 * It starts at the pattern's last node and goes along edges: from a value that is known already to the node that makes it, or to one of
 * those that read it. Only commutative operators and values with several readers leave a choice, which is gone back to where what
 * follows does not fit; the steps at one place are bounded, so that no graph makes a search long. */
#include <math.h>

#include "base/log.h"
#include "passes/pattern/pattern_form.h"

enum { MOST_STEPS = 1 << 12 }; /* node comparisons at one place */

/* --- what is known of operators ----------------------------------------------------------------------------------- */

/* Attributes that are constant inputs in other versions of the operator. "Reduce": all operators that begin so. */
static const struct {
    const char *op, *attr;
    int input;
} attribute_inputs[] = {
    {"Reduce", "axes", 1}, {"Squeeze", "axes", 1},  {"Unsqueeze", "axes", 1}, {"Clip", "min", 1},
    {"Clip", "max", 2},    {"Slice", "starts", 1},  {"Slice", "ends", 2},     {"Slice", "axes", 3},
    {"Slice", "steps", 4}, {"Pad", "pads", 1},      {"Pad", "value", 2},      {"Split", "split", 1},
    {"TopK", "k", 1},      {"Dropout", "ratio", 1}, {"Reshape", "shape", 1},  {"Upsample", "scales", 1},
};

static bool is_of(const char *family, const char *op) {
    return strcmp(family, "Reduce") == 0 ? strncmp(op, family, 6) == 0 : strcmp(family, op) == 0;
}

static const char *attribute_of_input(const Node *node, int input) {
    for (size_t i = 0; !*node->domain && i < sizeof attribute_inputs / sizeof *attribute_inputs; i++)
        if (attribute_inputs[i].input == input && is_of(attribute_inputs[i].op, node->op))
            return attribute_inputs[i].attr;
    return NULL;
}

static const Value *input_of_attribute(const Node *node, const char *attr) {
    for (size_t i = 0; !*node->domain && i < sizeof attribute_inputs / sizeof *attribute_inputs; i++) {
        int input = attribute_inputs[i].input;
        if (strcmp(attribute_inputs[i].attr, attr) != 0 || !is_of(attribute_inputs[i].op, node->op)) continue;
        return input < node->input_count - node->captures ? node->inputs[input] : NULL;
    }
    return NULL;
}

/* What an attribute is when it is left out (ONNX's and ONNX Runtime's operator schemas). op "": of any operator. */
static const struct {
    const char *op, *attr;
    int since; /* opset of the standard */
    double number;
    const char *text;
} defaults[] = {
    {"", "keepdims", 1, 1, NULL},
    {"", "noop_with_empty_axes", 1, 0, NULL},
    {"", "select_last_index", 1, 0, NULL},
    {"Softmax", "axis", 13, -1, NULL},
    {"LogSoftmax", "axis", 13, -1, NULL},
    {"LayerNormalization", "axis", 1, -1, NULL},
    {"RMSNormalization", "axis", 1, -1, NULL},
    {"SimplifiedLayerNormalization", "axis", 1, -1, NULL},
    {"LayerNormalization", "epsilon", 1, 1e-5, NULL},
    {"RMSNormalization", "epsilon", 1, 1e-5, NULL},
    {"SimplifiedLayerNormalization", "epsilon", 1, 1e-5, NULL},
    {"SkipLayerNormalization", "epsilon", 1, 1e-12, NULL},
    {"SkipSimplifiedLayerNormalization", "epsilon", 1, 1e-12, NULL},
    {"BatchNormalization", "epsilon", 1, 1e-5, NULL},
    {"InstanceNormalization", "epsilon", 1, 1e-5, NULL},
    {"GroupNormalization", "epsilon", 1, 1e-5, NULL},
    {"LeakyRelu", "alpha", 1, 0.01, NULL},
    {"Elu", "alpha", 1, 1, NULL},
    {"HardSigmoid", "alpha", 1, 0.2, NULL},
    {"HardSigmoid", "beta", 1, 0.5, NULL},
    {"Gelu", "approximate", 1, 0, "none"},
    {"Gemm", "alpha", 1, 1, NULL},
    {"Gemm", "beta", 1, 1, NULL},
    {"Gemm", "transA", 1, 0, NULL},
    {"Gemm", "transB", 1, 0, NULL},
    {"Gather", "axis", 1, 0, NULL},
    {"GatherElements", "axis", 1, 0, NULL},
    {"Split", "axis", 1, 0, NULL},
    {"Flatten", "axis", 1, 1, NULL},
    {"ArgMax", "axis", 1, 0, NULL},
    {"ArgMin", "axis", 1, 0, NULL},
    {"TopK", "axis", 1, -1, NULL},
    {"TopK", "largest", 1, 1, NULL},
    {"TopK", "sorted", 1, 1, NULL},
    {"CumSum", "exclusive", 1, 0, NULL},
    {"CumSum", "reverse", 1, 0, NULL},
    {"Mod", "fmod", 1, 0, NULL},
};

/* --- constants --- */

/* Numbers of the graph: a constant's or an attribute's. */
typedef struct Numbers {
    DType dtype;
    const void *data;
    int64_t count;
    int axes; /* not 0: they are axes of a tensor of so many, negative ones count from the end */
} Numbers;

static bool numbers_of_tensor(const Tensor *tensor, Numbers *out) {
    if (!tensor || (dtype_class(tensor->dtype) == DTYPE_OTHER)) return false;
    *out = (Numbers){tensor->dtype, tensor->data, tensor_count(tensor), 0};
    return true;
}

static bool numbers_of_attr(const Attr *attr, Numbers *out) {
    switch (attr->kind) {
    case ATTR_INT: *out = (Numbers){DT_I64, &attr->i, 1, 0}; return true;
    case ATTR_FLOAT: *out = (Numbers){DT_F32, &attr->f, 1, 0}; return true;
    case ATTR_INTS: *out = (Numbers){DT_I64, attr->ints, attr->count, 0}; return true;
    case ATTR_FLOATS: *out = (Numbers){DT_F32, attr->floats, attr->count, 0}; return true;
    case ATTR_TENSOR: return numbers_of_tensor(attr->tensor, out);
    default: return false;
    }
}

/* Also behind Identity nodes, and of Constant nodes that a pass may have left. */
static bool numbers_of_value(const Value *value, Numbers *out) {
    static const char *const attrs[] = {"value", "value_float", "value_int", "value_floats", "value_ints"};
    for (int hops = 0; value && hops < 4; hops++) {
        if (value->constant) return numbers_of_tensor(value->constant, out);
        const Node *node = value->producer;
        if (!node || node->kind != NODE_ONNX || *node->domain) return false;
        if (strcmp(node->op, "Constant") == 0)
            for (size_t i = 0; i < sizeof attrs / sizeof *attrs; i++) {
                const Attr *attr = node_attr(node, attrs[i]);
                if (attr) return numbers_of_attr(attr, out);
            }
        if (strcmp(node->op, "Identity") != 0 || node->input_count != 1) return false;
        value = node->inputs[0];
    }
    return false;
}

/* Equal in the precision of what the graph has; of a double also when it was widened from a float. */
static bool is_number(const Numbers *numbers, int64_t index, double wanted) {
    double found = dtype_load_double(numbers->dtype, numbers->data, index), rounded = wanted;
    if (numbers->axes && found < 0) found += numbers->axes;
    if (numbers->axes && wanted < 0) rounded = wanted += numbers->axes;
    if (found == wanted) return true;
    if (!dtype_is_float(numbers->dtype)) return false;
    uint64_t room[2] = {0};
    dtype_store_double(numbers->dtype, room, 0, wanted);
    rounded = dtype_load_double(numbers->dtype, room, 0);
    return found == rounded || (numbers->dtype == DT_F64 && found == (double)(float)wanted);
}

/* --- the search --- */

typedef struct Search {
    const Pattern *pattern;
    Value *values[MOST_VALUES]; /* of the graph; NULL: not known yet */
    Node *nodes[MOST_NODES];
    double captures[MOST_TERMS];
    bool captured[MOST_TERMS];
    /* What was found out, latest last, so that it can be taken back: values' numbers, captures' as -1 - number. */
    int trail[MOST_VALUES + MOST_TERMS], trail_count;
    int steps;
} Search;

static void take_back(Search *s, int count) {
    while (s->trail_count > count) {
        int what = s->trail[--s->trail_count];
        if (what >= 0)
            s->values[what] = NULL;
        else
            s->captured[-1 - what] = false;
    }
}

static bool bind_value(Search *s, int index, Value *value) {
    if (s->values[index]) return s->values[index] == value;
    s->values[index] = value;
    s->trail[s->trail_count++] = index;
    return true;
}

static bool bind_capture(Search *s, int index, double number) {
    if (s->captured[index]) return s->captures[index] == number;
    s->captures[index] = number;
    s->captured[index] = true;
    s->trail[s->trail_count++] = -1 - index;
    return true;
}

static bool match_numbers(Search *s, const Term *term, const Numbers *numbers) {
    if (term->kind == TERM_CAPTURE)
        return numbers->count == 1 && bind_capture(s, term->index, dtype_load_double(numbers->dtype, numbers->data, 0));
    if ((term->kind != TERM_NUMBER && term->kind != TERM_LIST) || term->count != numbers->count) return false;
    for (int i = 0; i < term->count; i++)
        if (!is_number(numbers, i, term->numbers[i])) return false;
    return true;
}

/* How many axes the numbers of attribute `name` count along; 0: they are no axes, or that is not known. */
static int axes_counted(const Node *node, const char *name, int64_t count) {
    if (strcmp(name, "axes") != 0 && strcmp(name, "axis") != 0) return 0;
    const Value *data = node->input_count ? node->inputs[0] : NULL;
    if (!data || data->kind != VALUE_TENSOR || data->rank < 0) return 0;
    return data->rank + (strcmp(node->op, "Unsqueeze") == 0 && count < MAX_RANK ? (int)count : 0);
}

/* Types are named: to="float16". */
static bool match_text(const char *text, const Attr *attr) {
    if (attr->kind == ATTR_STRING) return strlen(text) == attr->s.size && memcmp(text, attr->s.data, attr->s.size) == 0;
    if (attr->kind != ATTR_INT && attr->kind != ATTR_TYPE) return false;
    int64_t number = attr->kind == ATTR_INT ? attr->i : (int64_t)attr->dtype;
    return number > 0 && number < DTYPE_COUNT && strcmp(text, dtype_onnx_name((DType)number)) == 0;
}

static bool match_default(Search *s, const Node *node, const AttrTerm *attr) {
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        if (strcmp(defaults[i].attr, attr->name) != 0 || node->opset < defaults[i].since) continue;
        if (*defaults[i].op && strcmp(defaults[i].op, node->op) != 0) continue;
        if (attr->term.kind == TERM_TEXT) return defaults[i].text && strcmp(defaults[i].text, attr->term.text) == 0;
        float number = (float)defaults[i].number;
        Numbers numbers = {DT_F32, &number, 1, axes_counted(node, attr->name, 1)};
        return !defaults[i].text && match_numbers(s, &attr->term, &numbers);
    }
    return false;
}

static bool match_attr(Search *s, const Node *node, const AttrTerm *wanted) {
    const Attr *attr = node_attr(node, wanted->name);
    const Value *input = attr ? NULL : input_of_attribute(node, wanted->name);
    Numbers numbers;
    if (attr && wanted->term.kind == TERM_TEXT) return match_text(wanted->term.text, attr);
    if (attr && attr->kind == ATTR_TYPE) {
        int64_t number = (int64_t)attr->dtype;
        return match_numbers(s, &wanted->term, &(Numbers){DT_I64, &number, 1, 0});
    }
    if (!attr && !input) return match_default(s, node, wanted);
    if (attr ? !numbers_of_attr(attr, &numbers) : !numbers_of_value(input, &numbers)) return false;
    numbers.axes = axes_counted(node, wanted->name, numbers.count);
    return match_numbers(s, &wanted->term, &numbers);
}

static Value *graph_input(const Node *node, int index) {
    return index < node->input_count - node->captures ? node->inputs[index] : NULL;
}

/* term NULL: the pattern says nothing of this input, which must then be left out or be an attribute elsewhere. */
static bool match_operand(Search *s, const Node *node, int index, const Term *term) {
    Value *value = graph_input(node, index);
    const char *attr = attribute_of_input(node, index);
    Numbers numbers;
    if (!term) return !value || (attr && numbers_of_value(value, &numbers));
    if (term->kind == TERM_ABSENT) return !value;
    if (term->kind == TERM_VALUE) return value && bind_value(s, term->index, value);
    if (value) return numbers_of_value(value, &numbers) && match_numbers(s, term, &numbers);
    return attr && match_attr(s, node, &(AttrTerm){attr, *term});
}

static bool match_edges(Search *s, const PatternNode *wanted, Node *node, bool swapped) {
    int inputs = node->input_count - node->captures, most = inputs > wanted->input_count ? inputs : wanted->input_count;
    for (int i = 0; i < wanted->output_count; i++) {
        Value *value = i < node->output_count ? node->outputs[i] : NULL;
        if (wanted->outputs[i] < 0) continue;
        const PatternValue *known = &s->pattern->values.items[wanted->outputs[i]];
        if (value ? !bind_value(s, wanted->outputs[i], value) : known->is_read) return false;
    }
    for (int i = 0; i < most; i++) {
        int at = swapped && i < 2 ? 1 - i : i;
        if (!match_operand(s, node, i, at < wanted->input_count ? &wanted->inputs[at] : NULL)) return false;
    }
    for (int i = 0; i < wanted->attr_count; i++)
        if (!match_attr(s, node, &wanted->attrs[i])) return false;
    return true;
}

static bool is_matched(const Search *s, const Node *node) {
    for (int i = 0; i < s->pattern->nodes.count; i++)
        if (s->nodes[i] == node) return true;
    return false;
}

static bool read_inside(const Search *s, const Value *value) {
    for (int i = 0; i < value->uses.count; i++)
        if (!is_matched(s, value->uses.items[i].node)) return false;
    return true;
}

/* Whether nothing outside reads what is no output of the pattern, and inputs come from where they may. */
static bool is_closed(const Search *s) {
    for (int n = 0; n < s->pattern->nodes.count; n++) {
        const PatternNode *wanted = &s->pattern->nodes.items[n];
        const Node *node = s->nodes[n];
        for (int o = 0; o < node->output_count; o++) {
            const Value *value = node->outputs[o];
            int index = o < wanted->output_count ? wanted->outputs[o] : -1;
            if (!value || (index >= 0 && s->pattern->values.items[index].is_output)) continue;
            if (!read_inside(s, value) || value_is_output(value)) return false;
        }
    }
    for (int i = 0; i < s->pattern->inputs.count; i++) { /* an input comes from outside */
        const Value *value = s->pattern->inputs.items[i] < 0 ? NULL : s->values[s->pattern->inputs.items[i]];
        if (value && value->producer && is_matched(s, value->producer)) return false;
    }
    for (int i = 0; i < s->pattern->guards.count; i++) {
        const Guard *guard = &s->pattern->guards.items[i];
        const Node *maker = s->values[guard->value]->producer;
        if (maker && strcmp(maker->op, guard->op) == 0 && strcmp(maker->domain, guard->domain) == 0) return false;
    }
    return true;
}

static bool match_rest(Search *s, int k);

static bool match_node(Search *s, int k, Node *node) {
    int n = s->pattern->order[k].node, known = s->trail_count;
    const PatternNode *wanted = &s->pattern->nodes.items[n];
    if (++s->steps > MOST_STEPS) return false;
    if (node->kind != NODE_ONNX || node->custom || node->subgraph_count || strcmp(node->op, wanted->op) != 0 ||
        strcmp(node->domain, wanted->domain) != 0 || is_matched(s, node))
        return false;
    bool both = wanted->commutes && node->input_count == 2;
    s->nodes[n] = node;
    for (int swapped = 0; swapped <= both; swapped++) {
        if (match_edges(s, wanted, node, swapped) && match_rest(s, k + 1)) return true;
        take_back(s, known);
    }
    s->nodes[n] = NULL;
    return false;
}

static bool match_rest(Search *s, int k) {
    if (k == s->pattern->nodes.count) return is_closed(s);
    const Visit *visit = &s->pattern->order[k];
    Value *value = s->values[visit->value];
    if (!value) return false; /* an optional result that the graph does not ask for */
    if (visit->makes) {
        Node *node = value->producer;
        return node && value->output_index == s->pattern->values.items[visit->value].output && match_node(s, k, node);
    }
    for (int i = 0; i < value->uses.count && s->steps <= MOST_STEPS; i++) {
        Node *node = value->uses.items[i].node;
        bool again = i && value->uses.items[i - 1].node == node;
        if (!again && match_node(s, k, node)) return true;
    }
    return false;
}

static bool holds_all(const Search *s) {
    for (int i = 0; i < s->pattern->captures.count; i++)
        if (!s->captured[i]) return false;
    for (int i = 0; i < s->pattern->inputs.count; i++)
        if (s->pattern->inputs.items[i] >= 0 && !s->values[s->pattern->inputs.items[i]]) return false;
    return true;
}

bool pattern_match(const Pattern *pattern, Arena *arena, Node *last, PatternMatch *out_match) {
    const PatternNode *wanted = &pattern->nodes.items[pattern->nodes.count - 1];
    if (strcmp(last->op, wanted->op) != 0) return false; /* the most, before anything is set up */
    Search s;
    s.pattern = pattern;
    memset(s.values, 0, sizeof *s.values * (size_t)pattern->values.count);
    memset(s.nodes, 0, sizeof *s.nodes * (size_t)pattern->nodes.count);
    memset(s.captured, 0, sizeof s.captured);
    s.trail_count = s.steps = 0;
    bool found = match_node(&s, 0, last) && holds_all(&s);
    if (s.steps > MOST_STEPS)
        LOG(1, "pattern at %s: no match within %d steps of the search", node_origin_name(last), MOST_STEPS);
    if (!found) return false;
    Value **inputs = ARENA_ARRAY(arena, Value *, pattern->inputs.count + 1);
    Value **outputs = ARENA_ARRAY(arena, Value *, pattern->outputs.count + 1);
    for (int i = 0; i < pattern->inputs.count; i++)
        inputs[i] = pattern->inputs.items[i] >= 0 ? s.values[pattern->inputs.items[i]] : NULL;
    for (int i = 0; i < pattern->outputs.count; i++)
        outputs[i] = pattern->outputs.items[i] >= 0 ? s.values[pattern->outputs.items[i]] : NULL;
    *out_match =
        (PatternMatch){.node_count = pattern->nodes.count,
                       .nodes = arena_copy(arena, s.nodes, sizeof *s.nodes * (size_t)pattern->nodes.count),
                       .inputs = inputs,
                       .outputs = outputs,
                       .captures = arena_copy(arena, s.captures, sizeof *s.captures * (size_t)pattern->captures.count)};
    return true;
}
