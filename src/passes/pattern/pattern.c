/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns: text to a small graph of nodes, with the order in which they will be looked for. */
#include <stdio.h>
#include <stdlib.h>

#include "base/plain.h"
#include "passes/pattern/pattern_form.h"

int pattern_input_count(const Pattern *pattern) { return pattern->inputs.count; }
int pattern_output_count(const Pattern *pattern) { return pattern->outputs.count; }
int pattern_capture_count(const Pattern *pattern) { return pattern->captures.count; }
const char *pattern_capture_name(const Pattern *pattern, int index) { return pattern->captures.items[index]; }

static bool commutes(const char *domain, const char *op) {
    static const char *const ops[] = {"Add", "Mul", "And", "Or",   "Xor",       "Equal",     "BitwiseAnd",
                                      "Max", "Min", "Sum", "Mean", "BitwiseOr", "BitwiseXor"};
    for (size_t i = 0; !*domain && i < sizeof ops / sizeof *ops; i++)
        if (strcmp(ops[i], op) == 0) return true;
    return false;
}

/* --- parsing --- */

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
    plain_vprint(message, sizeof message, format, args);
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
    while (plain_is_word(p->at[n])) n++;
    return plain_is_digit(*p->at) ? 0 : n;
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
    return plain_is_digit(*c) || (*c == '.' && plain_is_digit(c[1])) ||
           (strncmp(c, "inf", 3) == 0 && !plain_is_word(c[3]));
}

/* Characters of the number at p->at, which looks like one. */
static size_t number_length(const Parser *p) {
    const char *c = p->at;
    size_t n = *c == '-' || *c == '+';
    if (c[n] == 'i') return n + 3;
    n += strspn(c + n, "0123456789.");
    if (c[n] != 'e' && c[n] != 'E') return n;
    size_t exponent = n + 1 + (c[n + 1] == '-' || c[n + 1] == '+');
    return plain_is_digit(c[exponent]) ? exponent + strspn(c + exponent, "0123456789") : n;
}

static Status number(Parser *p, double *out_number) {
    char digits[64], *end;
    skip_space(p);
    if (!looks_like_number(p)) return error_at(p, p->at, "a number is expected");
    size_t n = number_length(p);
    if (n >= sizeof digits) return error_at(p, p->at, "a number of more than %d characters", (int)sizeof digits - 1);
    memcpy(digits, p->at, n);
    digits[n] = 0;
    *out_number = plain_double(digits, &end);
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
