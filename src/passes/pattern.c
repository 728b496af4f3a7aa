/* Patterns: text to a small graph of nodes, and the search for it in a graph of ONNX nodes.
 *
 * The search starts at the pattern's last node and goes along edges: from a value that is known already to the node
 * that makes it, or to one of those that read it. Only commutative operators and values with several readers leave a
 * choice, which is gone back to where what follows does not fit; the steps at one place are bounded, so that no graph
 * makes a search long. */
#include "passes/pattern.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

enum {
    MOST_TEXT = 1 << 16, /* bytes */
    MOST_NODES = 64,     /* of a pattern */
    MOST_VALUES = 256,
    MOST_TERMS = 32,      /* operands, outputs or attributes of one node; elements of a list */
    MOST_STEPS = 1 << 12, /* node comparisons at one place */
};

typedef enum TermKind { TERM_ABSENT, TERM_VALUE, TERM_NUMBER, TERM_LIST, TERM_CAPTURE, TERM_TEXT } TermKind;

/* An operand, or what an attribute has to be. */
typedef struct Term {
    TermKind kind;
    int index;             /* TERM_VALUE: of pattern->values; TERM_CAPTURE: of pattern->captures */
    const double *numbers; /* TERM_NUMBER, TERM_LIST */
    int count;
    const char *text;
} Term;

typedef struct AttrTerm {
    const char *name;
    Term term;
} AttrTerm;

typedef struct PatternNode {
    const char *domain, *op;
    const Term *inputs;
    int input_count;
    const int *outputs; /* of pattern->values; -1: "_" */
    int output_count;
    const AttrTerm *attrs;
    int attr_count;
    bool commutes;
} PatternNode;

typedef struct PatternValue {
    const char *name, *place; /* place: in the text, while it is parsed */
    int producer, output;     /* node and its output; producer -1: an input of the pattern */
    bool is_read, is_output;
} PatternValue;

/* An input that must not be made by this operator. */
typedef struct Guard {
    int value;
    const char *domain, *op;
} Guard;

/* How a node is found: as what makes the value, or as a reader of it. The first is given. */
typedef struct Visit {
    int node, value;
    bool makes;
} Visit;

struct Pattern {
    VEC(PatternNode) nodes;
    VEC(PatternValue) values;
    VEC(int) inputs;  /* of values; -1: "_" */
    VEC(int) outputs; /* likewise */
    VEC(Guard) guards;
    VEC(const char *) captures;
    const Visit *order; /* [nodes.count] */
};

int pattern_input_count(const Pattern *pattern) { return pattern->inputs.count; }
int pattern_output_count(const Pattern *pattern) { return pattern->outputs.count; }
int pattern_capture_count(const Pattern *pattern) { return pattern->captures.count; }
const char *pattern_capture_name(const Pattern *pattern, int index) { return pattern->captures.items[index]; }

/* --- what is known of operators ----------------------------------------------------------------------------------- */

static bool commutes(const char *domain, const char *op) {
    static const char *const ops[] = {"Add", "Mul", "And", "Or",   "Xor",       "Equal",     "BitwiseAnd",
                                      "Max", "Min", "Sum", "Mean", "BitwiseOr", "BitwiseXor"};
    for (size_t i = 0; !*domain && i < sizeof ops / sizeof *ops; i++)
        if (strcmp(ops[i], op) == 0) return true;
    return false;
}

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

/* --- parsing -------------------------------------------------------------------------------------------------------
 */

typedef struct Parser {
    Arena *arena;
    const char *where, *text, *at;
    Pattern *pattern;
    Map values; /* name -> its number + 1 */
} Parser;

static Status error_at(const Parser *p, const char *place, const char *format, ...) STATUS_FORMAT(3, 4);

static Status error_at(const Parser *p, const char *place, const char *format, ...) {
    int line = 1;
    const char *start = p->text;
    for (const char *c = p->text; c < place; c++)
        if (*c == '\n') line++, start = c + 1;
    char message[256];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return status_error(STATUS_INVALID, "%s: line %d, column %d: %s", p->where, line, (int)(place - start) + 1,
                        message);
}

static void skip_space(Parser *p) {
    for (;;) {
        while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r' || *p->at == '\n' || *p->at == ';') p->at++;
        if (*p->at != '#') return;
        p->at += strcspn(p->at, "\n");
    }
}

static bool take(Parser *p, const char *token) {
    skip_space(p);
    size_t size = strlen(token);
    if (strncmp(p->at, token, size) != 0) return false;
    p->at += size;
    return true;
}

static Status expect(Parser *p, const char *token) {
    if (take(p, token)) return NULL;
    if (!*p->at) return error_at(p, p->at, "the text ends where \"%s\" is expected", token);
    return error_at(p, p->at, "\"%s\" is expected", token);
}

static size_t word_length(const Parser *p) {
    size_t n = 0;
    while (isalnum((unsigned char)p->at[n]) || p->at[n] == '_') n++;
    return isdigit((unsigned char)*p->at) ? 0 : n;
}

static Status word(Parser *p, const char *what, const char **out_word) {
    skip_space(p);
    size_t n = word_length(p);
    if (!n) return error_at(p, p->at, "%s is expected", what);
    *out_word = arena_string_n(p->arena, p->at, n);
    p->at += n;
    return NULL;
}

static bool is_left_out(const char *name) { return strcmp(name, "_") == 0; }

/* A decimal number, or inf or -inf. */
static bool looks_like_number(const Parser *p) {
    const char *c = p->at + (*p->at == '-' || *p->at == '+');
    return isdigit((unsigned char)*c) || (*c == '.' && isdigit((unsigned char)c[1])) ||
           (strncmp(c, "inf", 3) == 0 && !isalnum((unsigned char)c[3]) && c[3] != '_');
}

/* Characters of the number at p->at, which looks like one. */
static size_t number_length(const Parser *p) {
    const char *c = p->at;
    size_t n = *c == '-' || *c == '+';
    if (c[n] == 'i') return n + 3;
    n += strspn(c + n, "0123456789.");
    if (c[n] != 'e' && c[n] != 'E') return n;
    size_t exponent = n + 1 + (c[n + 1] == '-' || c[n + 1] == '+');
    return isdigit((unsigned char)c[exponent]) ? exponent + strspn(c + exponent, "0123456789") : n;
}

static Status number(Parser *p, double *out_number) {
    char digits[64], *end;
    skip_space(p);
    if (!looks_like_number(p)) return error_at(p, p->at, "a number is expected");
    size_t n = number_length(p);
    if (n >= sizeof digits) return error_at(p, p->at, "a number of more than %d characters", (int)sizeof digits - 1);
    memcpy(digits, p->at, n);
    digits[n] = 0;
    *out_number = strtod(digits, &end);
    if (*end) return error_at(p, p->at, "\"%s\" is not a number", digits);
    p->at += n;
    return NULL;
}

static Status text_term(Parser *p, Term *out_term) {
    const char *start = p->at++;
    size_t n = strcspn(p->at, "\"\n");
    if (p->at[n] != '"') return error_at(p, start, "a string that does not end on its line");
    *out_term = (Term){.kind = TERM_TEXT, .text = arena_string_n(p->arena, p->at, n)};
    p->at += n + 1;
    return NULL;
}

static Status list_term(Parser *p, Term *out_term) {
    const char *start = p->at++;
    double *numbers = ARENA_ARRAY(p->arena, double, MOST_TERMS);
    int count = 0;
    while (!take(p, "]")) {
        if (count) TRY(expect(p, ","));
        if (count == MOST_TERMS) return error_at(p, start, "a list of more than %d numbers", MOST_TERMS);
        TRY(number(p, &numbers[count++]));
    }
    *out_term = (Term){.kind = TERM_LIST, .numbers = numbers, .count = count};
    return NULL;
}

static Status capture_term(Parser *p, Term *out_term) {
    Pattern *pattern = p->pattern;
    const char *start = p->at++, *name;
    if (!word_length(p)) return error_at(p, start, "a name is expected behind \"$\"");
    TRY(word(p, "a name", &name));
    int index = 0;
    while (index < pattern->captures.count && strcmp(pattern->captures.items[index], name) != 0) index++;
    if (index == MOST_TERMS) return error_at(p, start, "more than %d names with \"$\"", MOST_TERMS);
    if (index == pattern->captures.count) VEC_PUSH(p->arena, pattern->captures, name);
    *out_term = (Term){.kind = TERM_CAPTURE, .index = index};
    return NULL;
}

static Status value_term(Parser *p, Term *out_term) {
    skip_space(p);
    const char *start = p->at, *name;
    TRY(word(p, "a value, a number or \"_\"", &name));
    *out_term = (Term){.kind = TERM_ABSENT};
    if (is_left_out(name)) return NULL;
    intptr_t known = (intptr_t)map_get(&p->values, name);
    if (!known) return error_at(p, start, "\"%s\" is neither an input nor made before", name);
    p->pattern->values.items[known - 1].is_read = true;
    *out_term = (Term){.kind = TERM_VALUE, .index = (int)known - 1};
    return NULL;
}

/* What operands and attributes have in common; false: neither a constant nor a capture stands here. */
static Status constant_term(Parser *p, Term *out_term, bool *out_found) {
    skip_space(p);
    *out_found = true;
    if (*p->at == '$') return capture_term(p, out_term);
    if (*p->at == '[') return list_term(p, out_term);
    if (looks_like_number(p)) {
        double *value = ARENA_NEW(p->arena, double);
        *out_term = (Term){.kind = TERM_NUMBER, .numbers = value, .count = 1};
        return number(p, value);
    }
    *out_found = false;
    return NULL;
}

static Status operands(Parser *p, PatternNode *node) {
    Term *terms = ARENA_ARRAY(p->arena, Term, MOST_TERMS);
    TRY(expect(p, "("));
    for (bool more = !take(p, ")"); more;) {
        if (node->input_count == MOST_TERMS) return error_at(p, p->at, "more than %d operands", MOST_TERMS);
        Term *term = &terms[node->input_count++];
        bool found;
        TRY(constant_term(p, term, &found));
        if (!found && *p->at != ',' && *p->at != ')') TRY(value_term(p, term)); /* nothing: left out */
        more = !take(p, ")");
        if (more) TRY(expect(p, ","));
    }
    node->inputs = terms;
    return NULL;
}

static Status attributes(Parser *p, PatternNode *node) {
    if (!take(p, "<")) return NULL;
    AttrTerm *attrs = ARENA_ARRAY(p->arena, AttrTerm, MOST_TERMS);
    for (bool more = !take(p, ">"); more;) {
        if (node->attr_count == MOST_TERMS) return error_at(p, p->at, "more than %d attributes", MOST_TERMS);
        AttrTerm *attr = &attrs[node->attr_count];
        skip_space(p);
        const char *start = p->at;
        bool found;
        TRY(word(p, "an attribute's name", &attr->name));
        for (int i = 0; i < node->attr_count; i++)
            if (strcmp(attrs[i].name, attr->name) == 0)
                return error_at(p, start, "attribute \"%s\" is given twice", attr->name);
        TRY(expect(p, "="));
        TRY(constant_term(p, &attr->term, &found));
        if (!found && *p->at != '"')
            return error_at(p, p->at, "a number, a list of numbers, a string or \"$NAME\" is expected");
        if (!found) TRY(text_term(p, &attr->term));
        node->attr_count++;
        more = !take(p, ">");
        if (more) TRY(expect(p, ","));
    }
    node->attrs = attrs;
    return NULL;
}

/* The last word is the operator, those before it are the domain. */
static Status operator_name(Parser *p, const char **out_domain, const char **out_op) {
    const char *last;
    skip_space(p);
    const char *start = p->at, *dot = start;
    TRY(word(p, "an operator", &last));
    while (*p->at == '.') {
        dot = p->at++;
        TRY(word(p, "an operator", &last));
    }
    *out_op = last;
    *out_domain = arena_string_n(p->arena, start, (size_t)(dot - start));
    if (strcmp(*out_domain, "ai.onnx") == 0) *out_domain = "";
    return NULL;
}

static Status new_value(Parser *p, const char *place, const char *name, int producer, int output, int *out_index) {
    Pattern *pattern = p->pattern;
    if (map_get(&p->values, name)) return error_at(p, place, "\"%s\" is made twice", name);
    if (pattern->values.count == MOST_VALUES) return error_at(p, place, "more than %d values", MOST_VALUES);
    *out_index = pattern->values.count;
    VEC_PUSH(p->arena, pattern->values, (PatternValue){name, place, producer, output, false, false});
    map_set(&p->values, name, (void *)(intptr_t)pattern->values.count);
    return NULL;
}

/* Behind "!=". */
static Status guard_text(Parser *p, const char *place, const char *name) {
    Guard guard = {.value = (int)(intptr_t)map_get(&p->values, name) - 1};
    if (guard.value < 0 || p->pattern->values.items[guard.value].producer >= 0)
        return error_at(p, place, "\"%s\" is no input of the pattern", name);
    if (p->pattern->guards.count == MOST_TERMS) return error_at(p, place, "more than %d conditions", MOST_TERMS);
    TRY(operator_name(p, &guard.domain, &guard.op));
    VEC_PUSH(p->arena, p->pattern->guards, guard);
    return NULL;
}

static Status node_text(Parser *p) {
    Pattern *pattern = p->pattern;
    PatternNode node = {0};
    const char *names[MOST_TERMS], *places[MOST_TERMS];
    int *outputs = ARENA_ARRAY(p->arena, int, MOST_TERMS);
    skip_space(p);
    const char *start = p->at;
    if (pattern->nodes.count == MOST_NODES) return error_at(p, start, "more than %d nodes", MOST_NODES);
    do {
        if (node.output_count == MOST_TERMS) return error_at(p, p->at, "more than %d outputs", MOST_TERMS);
        skip_space(p);
        places[node.output_count] = p->at;
        TRY(word(p, "a value", &names[node.output_count++]));
    } while (take(p, ","));
    if (node.output_count == 1 && take(p, "!=")) return guard_text(p, start, names[0]);
    TRY(expect(p, "="));
    TRY(operator_name(p, &node.domain, &node.op));
    TRY(attributes(p, &node));
    TRY(operands(p, &node));
    node.commutes = node.input_count == 2 && commutes(node.domain, node.op);
    bool any = false;
    for (int i = 0; i < node.output_count; i++) {
        outputs[i] = -1;
        if (is_left_out(names[i])) continue;
        any = true;
        TRY(new_value(p, places[i], names[i], pattern->nodes.count, i, &outputs[i]));
    }
    if (!any) return error_at(p, start, "a node without a result");
    node.outputs = outputs;
    VEC_PUSH(p->arena, pattern->nodes, node);
    return NULL;
}

static Status input_list(Parser *p) {
    TRY(expect(p, "("));
    for (bool more = !take(p, ")"); more;) {
        int index = -1;
        skip_space(p);
        const char *place = p->at, *name;
        TRY(word(p, "an input", &name));
        if (p->pattern->inputs.count == MOST_TERMS) return error_at(p, place, "more than %d inputs", MOST_TERMS);
        if (!is_left_out(name)) TRY(new_value(p, place, name, -1, 0, &index));
        VEC_PUSH(p->arena, p->pattern->inputs, index);
        more = !take(p, ")");
        if (more) TRY(expect(p, ","));
    }
    return NULL;
}

typedef struct OutputName {
    const char *name, *place;
} OutputName;

typedef VEC(OutputName) OutputNames;

static Status output_list(Parser *p, OutputNames *out_names) {
    TRY(expect(p, "("));
    for (bool more = !take(p, ")"); more;) {
        OutputName output;
        skip_space(p);
        output.place = p->at;
        TRY(word(p, "an output", &output.name));
        if (out_names->count == MOST_TERMS) return error_at(p, output.place, "more than %d outputs", MOST_TERMS);
        VEC_PUSH(p->arena, *out_names, output);
        more = !take(p, ")");
        if (more) TRY(expect(p, ","));
    }
    return NULL;
}

static Status resolve_outputs(Parser *p, const OutputNames *names) {
    Pattern *pattern = p->pattern;
    for (int i = 0; i < names->count; i++) {
        const OutputName *output = &names->items[i];
        intptr_t known = is_left_out(output->name) ? 0 : (intptr_t)map_get(&p->values, output->name);
        VEC_PUSH(p->arena, pattern->outputs, (int)known - 1);
        if (is_left_out(output->name)) continue;
        PatternValue *value = known ? &pattern->values.items[known - 1] : NULL;
        if (!value || value->producer < 0)
            return error_at(p, output->place, "output \"%s\" is made by no node", output->name);
        if (value->is_output) return error_at(p, output->place, "output \"%s\" stands here twice", output->name);
        value->is_output = true;
    }
    for (int v = 0; v < pattern->values.count; v++) {
        const PatternValue *value = &pattern->values.items[v];
        if (value->is_read || value->is_output) continue;
        return value->producer < 0 ? error_at(p, value->place, "input \"%s\" is read by no node", value->name)
                                   : error_at(p, value->place, "\"%s\" is neither read nor an output", value->name);
    }
    return NULL;
}

/* --- the order of the search -------------------------------------------------------------------------------------- */

static void mark_values(const PatternNode *node, bool *known) {
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i].kind == TERM_VALUE) known[node->inputs[i].index] = true;
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] >= 0) known[node->outputs[i]] = true;
}

/* How the node can be found from known values: what leaves the fewest choices. 0: not at all; 3: it makes one. */
static int way_to(const Pattern *pattern, int n, const bool *known, Visit *out_visit) {
    const PatternNode *node = &pattern->nodes.items[n];
    int best = 0;
    for (int i = 0; i < node->output_count; i++) {
        if (node->outputs[i] < 0 || !known[node->outputs[i]]) continue;
        *out_visit = (Visit){n, node->outputs[i], true};
        return 3;
    }
    for (int i = 0; i < node->input_count; i++) {
        if (node->inputs[i].kind != TERM_VALUE || !known[node->inputs[i].index]) continue;
        int rank = pattern->values.items[node->inputs[i].index].producer >= 0 ? 2 : 1;
        if (rank <= best) continue;
        best = rank;
        *out_visit = (Visit){n, node->inputs[i].index, false};
    }
    return best;
}

static Status find_order(Parser *p, const char *const *places) {
    Pattern *pattern = p->pattern;
    int count = pattern->nodes.count;
    bool known[MOST_VALUES] = {false}, done[MOST_NODES] = {false};
    Visit *order = ARENA_ARRAY(p->arena, Visit, count);
    order[0] = (Visit){count - 1, -1, false};
    for (int k = 0;;) {
        done[order[k].node] = true;
        mark_values(&pattern->nodes.items[order[k].node], known);
        if (++k == count) break;
        int best = 0, missing = 0;
        for (int n = count - 1; n >= 0; n--) {
            Visit visit;
            if (done[n]) continue;
            missing = n;
            int rank = way_to(pattern, n, known, &visit);
            if (rank <= best) continue;
            best = rank;
            order[k] = visit;
        }
        if (!best) return error_at(p, places[missing], "this node has no value in common with those after it");
    }
    pattern->order = order;
    return NULL;
}

static Status parse(Parser *p) {
    const char *places[MOST_NODES];
    OutputNames outputs = {0};
    TRY(input_list(p));
    TRY(expect(p, "->"));
    TRY(output_list(p, &outputs));
    TRY(expect(p, "{"));
    while (!take(p, "}")) {
        if (!*p->at) return error_at(p, p->at, "the text ends where \"}\" or a node is expected");
        if (p->pattern->nodes.count < MOST_NODES) places[p->pattern->nodes.count] = p->at;
        TRY(node_text(p));
    }
    skip_space(p);
    if (*p->at) return error_at(p, p->at, "the end of the pattern is expected");
    if (!p->pattern->nodes.count) return error_at(p, p->text, "a pattern without nodes");
    TRY(resolve_outputs(p, &outputs));
    return find_order(p, places);
}

Status pattern_parse(Arena *arena, const char *text, const char *where, const Pattern **out_pattern) {
    if (strlen(text) > MOST_TEXT) return status_error(STATUS_INVALID, "%s: more than %d bytes", where, MOST_TEXT);
    Pattern *pattern = ARENA_NEW(arena, Pattern);
    Parser parser = {arena, where, text, text, pattern, map_make(arena)};
    TRY(parse(&parser));
    *out_pattern = pattern;
    return NULL;
}

static Status check_signature(const Pattern *pattern, const Pattern *first, const char *where) {
    if (pattern->inputs.count == first->inputs.count && pattern->outputs.count == first->outputs.count) return NULL;
    return status_error(
        STATUS_INVALID,
        "%s: %d inputs and %d outputs, but pattern 1 has %d and %d (\"_\" stands for one that a pattern "
        "lacks)",
        where, pattern->inputs.count, pattern->outputs.count, first->inputs.count, first->outputs.count);
}

Status pattern_parse_all(Arena *arena, const char *const *texts, const char *where, const Pattern *const **out_patterns,
                         int *out_count) {
    int count = 0;
    while (texts[count]) count++;
    const Pattern **patterns = ARENA_ARRAY(arena, const Pattern *, count + 1);
    for (int i = 0; i < count; i++) {
        const char *place = arena_format(arena, "%s, pattern %d", where, i + 1);
        TRY(pattern_parse(arena, texts[i], place, &patterns[i]));
        TRY(check_signature(patterns[i], patterns[0], place));
    }
    *out_patterns = patterns;
    *out_count = count;
    return NULL;
}

/* --- constants ------------------------------------------------------------------------------------------------------
 */

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

/* --- the search -----------------------------------------------------------------------------------------------------
 */

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
