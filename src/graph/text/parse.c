/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the text form (grammar: print.c) into a new graph. The text may be anyone's: every mistake is an error with
 * line and column, nesting is bounded, and nothing is allocated that the text is not long enough to fill. */
#include "graph/maps/map_value.h"
#include "graph/text/text_form.h"
#include "base/plain.h"

#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_ATTRS = 4096 };

typedef struct Parser {
    const char *source, *at, *end;
    Graph *graph; /* the innermost one */
    int nesting;
} Parser;

/* ---- places and characters ---- */

static Status error_at(const Parser *p, const char *place, const char *format, ...) STATUS_FORMAT(3, 4);

static Status error_at(const Parser *p, const char *place, const char *format, ...) {
    int line = 1;
    const char *start = p->source;
    for (const char *c = p->source; c < place; c++)
        if (*c == '\n') line++, start = c + 1;
    char message[256];
    va_list args;
    va_start(args, format);
    plain_vprint(message, sizeof message, format, args);
    va_end(args);
    return status_error(STATUS_INVALID, "%d:%d: %s", line, (int)(place - start) + 1, message);
}

static void blank(Parser *p) {
    while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r') p->at++;
}

static void comment(Parser *p) {
    if (*p->at == '#') p->at += strcspn(p->at, "\n");
}

/* Also over line ends and comments. */
static void space(Parser *p) {
    for (blank(p), comment(p); *p->at == '\n'; blank(p), comment(p)) p->at++;
}

static bool take(Parser *p, const char *token) {
    blank(p);
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
    while (text_form_name_char(p->at[n])) n++;
    return n;
}

static bool is_word(const Parser *p, const char *word) {
    return word_length(p) == strlen(word) && strncmp(p->at, word, strlen(word)) == 0;
}

static bool take_word(Parser *p, const char *word) {
    blank(p);
    if (!is_word(p, word)) return false;
    p->at += strlen(word);
    return true;
}

/* ---- tokens ---- */

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* One escape behind its backslash. */
static bool escape(Parser *p, char *out_byte) {
    char c = *p->at;
    if (c == '"' || c == '\\' || c == 'n' || c == 't') {
        *out_byte = c == 'n' ? '\n' : c == 't' ? '\t' : c;
        p->at++;
        return true;
    }
    int high = c == 'x' ? hex_digit(p->at[1]) : -1;
    int low = high < 0 ? -1 : hex_digit(p->at[2]);
    if (low < 0) return false;
    *out_byte = (char)(high * 16 + low);
    p->at += 3;
    return true;
}

static Status quoted(Parser *p, StringView *out_string) {
    blank(p);
    const char *start = p->at;
    if (*p->at != '"') return error_at(p, start, "a string in double quotes is expected");
    size_t length = strcspn(p->at + 1, "\n"); /* strings end on their line */
    size_t room = 0;
    for (const char *c = p->at + 1; room < length && *c != '"'; c++, room++)
        if (*c == '\\' && room + 1 < length) c++, room++;
    char *data = arena_alloc(p->graph->arena, room + 1);
    size_t size = 0;
    p->at++;
    while (*p->at != '"') {
        if (!*p->at || *p->at == '\n') return error_at(p, start, "a string that does not end");
        if (*p->at != '\\') {
            data[size++] = *p->at++;
            continue;
        }
        p->at++;
        if (!escape(p, &data[size++])) return error_at(p, p->at - 1, "an unknown escape");
    }
    p->at++;
    *out_string = (StringView){data, size};
    return NULL;
}

static Status quoted_name(Parser *p, const char **out_name) {
    const char *start = p->at;
    StringView s;
    TRY(quoted(p, &s));
    if (memchr(s.data, 0, s.size)) return error_at(p, start, "a zero byte in a name");
    *out_name = s.data;
    return NULL;
}

static Status name(Parser *p, const char **out_name) {
    blank(p);
    if (*p->at == '%') {
        p->at++;
        return quoted_name(p, out_name);
    }
    size_t n = word_length(p);
    if (!n) return error_at(p, p->at, "a name is expected");
    *out_name = arena_string_n(p->graph->arena, p->at, n);
    p->at += n;
    return NULL;
}

/* Numbers end where no more of these follow; plain_double and strtoll judge the rest. */
static size_t number_length(const Parser *p) { return strspn(p->at, "+-.0123456789abcdefinxABCDEF"); }

static Status integer(Parser *p, int64_t *out_value) {
    blank(p);
    char *end;
    errno = 0;
    long long value = *p->at == '-' || (*p->at >= '0' && *p->at <= '9') ? strtoll(p->at, &end, 10) : (end = NULL, 0);
    if (!end || end == p->at || errno) return error_at(p, p->at, "a whole number is expected");
    p->at = end;
    *out_value = value;
    return NULL;
}

static Status small_integer(Parser *p, int *out_value) {
    const char *start = p->at;
    int64_t value;
    TRY(integer(p, &value));
    if (value < 0 || value > INT32_MAX) return error_at(p, start, "out of range");
    *out_value = (int)value;
    return NULL;
}

static Status real(Parser *p, bool single, double *out_value) {
    blank(p);
    char digits[64], *end;
    size_t n = number_length(p);
    if (!n || n >= sizeof digits) return error_at(p, p->at, "a number is expected");
    memcpy(digits, p->at, n);
    digits[n] = 0;
    *out_value = single ? (double)plain_float(digits, &end) : plain_double(digits, &end);
    if (*end) return error_at(p, p->at, "a number is expected");
    p->at += n;
    return NULL;
}

static DType dtype_word(Parser *p) {
    blank(p);
    size_t n = word_length(p);
    DType dtype = dtype_from_name(p->at, n);
    if (dtype != DT_NONE) p->at += n;
    return dtype;
}

/* ---- sizes and types ---- */

typedef VEC(const Dim *) DimList;

/* Up to `close`, whose opening has been read. */
static Status dim_list(Parser *p, const char *close, DimList *out_dims) {
    *out_dims = (DimList){0};
    for (space(p); !take(p, close); space(p)) {
        if (out_dims->count) TRY(expect(p, ","));
        space(p);
        const Dim *dim = dim_parse(p->graph->dims, &p->at);
        if (!dim) return error_at(p, p->at, "a size is expected");
        VEC_PUSH(p->graph->arena, *out_dims, dim);
    }
    return NULL;
}

/* A value without name, node and users: what a type says. */
static Status content(Parser *p, Value *type) {
    const char *start = p->at;
    DimList list;
    int64_t count = 1;
    if (!take(p, "<")) return NULL;
    TRY(dim_list(p, ">", &list));
    if (type->rank < 0 || type->rank > 1 || (type->rank == 1 && !dim_is_const(type->dims[0], &count)) ||
        count != list.count || !dtype_is_integer(type->dtype))
        return error_at(p, start, "elements that do not fit the type");
    type->content = ARENA_ARRAY(p->graph->arena, const Dim *, count ? count : 1);
    if (count) memcpy(type->content, list.items, (size_t)count * sizeof *type->content);
    return NULL;
}

static Status tensor_type(Parser *p, Value *type) {
    DimList list;
    type->dtype = dtype_word(p);
    if (type->dtype == DT_NONE && !take_word(p, "none")) return error_at(p, p->at, "a type is expected");
    TRY(expect(p, "["));
    type->rank = -1;
    if (take(p, "*")) return expect(p, "]");
    const char *start = p->at;
    TRY(dim_list(p, "]", &list));
    if (list.count > MAX_RANK) return error_at(p, start, "a rank of %d is above %d", list.count, MAX_RANK);
    type->rank = list.count;
    type->dims = list.items;
    return content(p, type);
}

static Status type_of(Parser *p, Value *type) {
    static const struct {
        const char *word;
        ValueKind kind;
    } wrappers[] = {{"seq", VALUE_SEQUENCE},
                    {"opt", VALUE_OPTIONAL},
                    {"optseq", VALUE_OPTIONAL_SEQUENCE},
                    {"map", VALUE_MAP},
                    {"mapseq", VALUE_MAP_SEQUENCE}};
    *type = (Value){.kind = VALUE_TENSOR};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (take_word(p, wrappers[i].word)) type->kind = wrappers[i].kind;
    if (type->kind == VALUE_TENSOR) return tensor_type(p, type);
    TRY(expect(p, "("));
    if (value_kind_has_maps(type->kind)) {
        const char *start = p->at;
        type->key = dtype_word(p);
        if (!map_takes_key(type->key)) return error_at(p, start, "the type of a map's keys is expected");
        TRY(expect(p, ","));
    }
    const char *start = p->at;
    TRY(tensor_type(p, type));
    if (value_kind_has_maps(type->kind) && (!map_takes_value(type->dtype) || type->rank != -1))
        return error_at(p, start, "the type of a map's values is expected");
    return expect(p, ")");
}

/* ---- literals ---- */

static Status complex_element(Parser *p, Tensor *tensor, int64_t index) {
    DType part = tensor->dtype == DT_C64 ? DT_F32 : DT_F64;
    for (int i = 0; i < 2; i++) {
        double value;
        TRY(expect(p, i ? "," : "("));
        TRY(real(p, part == DT_F32, &value));
        dtype_store_double(part, tensor->data, 2 * index + i, value);
    }
    return expect(p, ")");
}

static Status integer_element(Parser *p, Tensor *tensor, int64_t index) {
    blank(p);
    const char *start = p->at;
    if (tensor->dtype != DT_U64) {
        int64_t value;
        TRY(integer(p, &value));
        dtype_store_int(tensor->dtype, tensor->data, index, value);
        if (dtype_load_int(tensor->dtype, tensor->data, index) != value)
            return error_at(p, start, "out of range for %s", dtype_name(tensor->dtype));
        return NULL;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long value = *start >= '0' && *start <= '9' ? strtoull(start, &end, 10) : 0;
    if (!end || errno) return error_at(p, start, "a whole number is expected");
    p->at = end;
    ((uint64_t *)tensor->data)[index] = value;
    return NULL;
}

static Status element(Parser *p, Tensor *tensor, int64_t index) {
    DType dtype = tensor->dtype;
    space(p);
    if (dtype == DT_STRING) return quoted(p, (StringView *)tensor->data + index);
    if (dtype == DT_C64 || dtype == DT_C128) return complex_element(p, tensor, index);
    if (dtype == DT_BOOL) {
        bool yes = take_word(p, "true");
        if (!yes && !take_word(p, "false")) return error_at(p, p->at, "true or false is expected");
        ((uint8_t *)tensor->data)[index] = yes;
        return NULL;
    }
    if (!dtype_is_float(dtype)) return integer_element(p, tensor, index);
    double value;
    TRY(real(p, dtype != DT_F64, &value));
    dtype_store_double(dtype, tensor->data, index, value);
    return NULL;
}

static Status literal_shape(Parser *p, Tensor *out_shape, int64_t *out_count) {
    const char *start = p->at;
    *out_shape = (Tensor){.dtype = dtype_word(p)};
    if (out_shape->dtype == DT_NONE) return error_at(p, p->at, "an element type is expected");
    TRY(expect(p, "["));
    while (!take(p, "]")) {
        if (out_shape->rank) TRY(expect(p, ","));
        if (out_shape->rank == MAX_RANK) return error_at(p, start, "a rank above %d", MAX_RANK);
        TRY(integer(p, &out_shape->dims[out_shape->rank++]));
    }
    Status status = tensor_size_of(out_shape->dtype, out_shape->rank, out_shape->dims, out_count, NULL);
    if (!status) return NULL;
    status_free(status);
    return error_at(p, start, "an impossible shape");
}

static Status literal(Parser *p, Tensor **out_tensor) {
    blank(p);
    const char *start = p->at;
    Tensor shape;
    int64_t count;
    TRY(literal_shape(p, &shape, &count));
    bool braces = shape.rank > 0;
    if (braces) TRY(expect(p, "{"));
    if (braces && take(p, "..."))
        return error_at(p, start, "the elements of this constant were left out when it was printed (more than %d)",
                        TEXT_FORM_ELEMENTS);
    if (count > p->end - p->at) return error_at(p, start, "fewer than %lld elements", (long long)count);
    *out_tensor = tensor_new(p->graph->arena, shape.dtype, shape.rank, shape.dims);
    for (int64_t i = 0; i < count; i++) {
        if (i) TRY(expect(p, ","));
        TRY(element(p, *out_tensor, i));
    }
    if (!braces) return NULL;
    space(p);
    return expect(p, "}");
}

/* ---- attributes ---- */

static bool looks_real(const Parser *p) {
    size_t n = number_length(p), digits = strspn(p->at, "+-0123456789");
    return n && digits < n;
}

/* One value, of a kind that can also be a list's item. */
static Status item(Parser *p, Attr *attr) {
    space(p);
    double value;
    if (*p->at == '"') {
        attr->kind = ATTR_STRING;
        return quoted(p, &attr->s);
    }
    if (take_word(p, "tensor")) {
        Tensor *tensor = NULL;
        attr->kind = ATTR_TENSOR;
        Status status = literal(p, &tensor);
        attr->tensor = tensor;
        return status;
    }
    if ((*p->at >= '0' && *p->at <= '9') || *p->at == '-' || is_word(p, "inf") || is_word(p, "nan")) {
        attr->kind = looks_real(p) ? ATTR_FLOAT : ATTR_INT;
        if (attr->kind == ATTR_INT) return integer(p, &attr->i);
        TRY(real(p, true, &value));
        attr->f = (float)value;
        return NULL;
    }
    attr->kind = ATTR_TYPE;
    attr->dtype = dtype_word(p);
    if (attr->dtype == DT_NONE && !take_word(p, "none")) return error_at(p, p->at, "an attribute's value is expected");
    return NULL;
}

static bool list_kind(AttrKind one, AttrKind *out_many) {
    static const AttrKind pairs[][2] = {
        {ATTR_INT, ATTR_INTS}, {ATTR_FLOAT, ATTR_FLOATS}, {ATTR_STRING, ATTR_STRINGS}, {ATTR_TENSOR, ATTR_TENSORS}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (pairs[i][0] != one) continue;
        *out_many = pairs[i][1];
        return true;
    }
    return false;
}

static void fill_list(Arena *arena, Attr *attr, const Attr *items, int count) {
    int64_t *ints = ARENA_ARRAY(arena, int64_t, count);
    float *floats = ARENA_ARRAY(arena, float, count);
    StringView *strings = ARENA_ARRAY(arena, StringView, count);
    const Tensor **tensors = ARENA_ARRAY(arena, const Tensor *, count);
    for (int i = 0; i < count; i++) {
        switch (attr->kind) {
        case ATTR_INTS: ints[i] = items[i].i; break;
        case ATTR_FLOATS: floats[i] = items[i].f; break;
        case ATTR_STRINGS: strings[i] = items[i].s; break;
        default: tensors[i] = items[i].tensor; break;
        }
    }
    attr->count = count;
    switch (attr->kind) {
    case ATTR_INTS: attr->ints = ints; break;
    case ATTR_FLOATS: attr->floats = floats; break;
    case ATTR_STRINGS: attr->strings = strings; break;
    default: attr->tensors = tensors; break;
    }
}

static Status item_list(Parser *p, Attr *attr) {
    VEC(Attr) items = {0};
    attr->kind = ATTR_INTS;
    for (space(p); !take(p, "]"); space(p)) {
        Attr one = {0};
        if (items.count) TRY(expect(p, ","));
        space(p);
        const char *start = p->at;
        TRY(item(p, &one));
        AttrKind many;
        if (!list_kind(one.kind, &many) || (items.count && many != attr->kind))
            return error_at(p, start, "a list of one kind of values is expected");
        attr->kind = many;
        VEC_PUSH(p->graph->arena, items, one);
    }
    fill_list(p->graph->arena, attr, items.items, items.count);
    return NULL;
}

static Status attr_value(Parser *p, Attr *attr) {
    static const struct {
        const char *word;
        AttrKind kind;
    } empties[] = {{"floats", ATTR_FLOATS}, {"strings", ATTR_STRINGS}, {"tensors", ATTR_TENSORS}};
    space(p);
    if (take(p, "[")) return item_list(p, attr);
    if (take(p, "(")) {
        DimList list;
        TRY(dim_list(p, ")", &list));
        attr->kind = ATTR_DIMS;
        attr->count = list.count;
        attr->dims = list.items;
        return NULL;
    }
    for (size_t i = 0; i < sizeof empties / sizeof *empties; i++) {
        if (!take_word(p, empties[i].word)) continue;
        attr->kind = empties[i].kind;
        fill_list(p->graph->arena, attr, NULL, 0);
        TRY(expect(p, "["));
        return expect(p, "]");
    }
    return item(p, attr);
}

/* Behind the opening brace. */
static Status attrs(Parser *p, Node *node) {
    for (space(p); !take(p, "}"); space(p)) {
        Attr attr = {0};
        if (node->attrs.count) TRY(expect(p, ","));
        space(p);
        const char *start = p->at;
        TRY(name(p, &attr.name));
        if (node->attrs.count == MAX_ATTRS) return error_at(p, start, "more than %d attributes", MAX_ATTRS);
        if (node_attr(node, attr.name)) return error_at(p, start, "attribute %s is given twice", attr.name);
        space(p);
        TRY(expect(p, "="));
        TRY(attr_value(p, &attr));
        node_set_attr(node, attr);
    }
    return NULL;
}

/* ---- origins ---- */

/* "# from A, B", when that follows. */
static Status origin(Parser *p, Origin *out_origin) {
    VEC(const char *) names = {0};
    *out_origin = (Origin){0};
    if (!take(p, "# from ")) return NULL;
    do {
        const char *one = "";
        blank(p);
        if (*p->at == '"') {
            TRY(quoted_name(p, &one));
        } else {
            size_t n = 0;
            while (text_form_origin_char(p->at[n])) n++;
            one = arena_string_n(p->graph->arena, p->at, n);
            p->at += n;
        }
        if (*one) VEC_PUSH(p->graph->arena, names, one);
    } while (take(p, ","));
    *out_origin = (Origin){names.items, names.count};
    return NULL;
}

/* ---- nodes ---- */

typedef struct OutputText {
    const char *name; /* NULL: not asked for */
    const char *place;
    Value type;
} OutputText;

typedef VEC(OutputText) OutputList;
typedef VEC(Value *) ValueList;

static Status output_texts(Parser *p, OutputList *out_list) {
    *out_list = (OutputList){0};
    while (!take(p, "=")) {
        OutputText output = {.type = {.rank = -1}};
        if (out_list->count) TRY(expect(p, ","));
        blank(p);
        output.place = p->at;
        if (!take_word(p, "_")) TRY(name(p, &output.name));
        if (output.name && take(p, ":")) TRY(type_of(p, &output.type));
        VEC_PUSH(p->graph->arena, *out_list, output);
    }
    return NULL;
}

static Status check_new(const Parser *p, const char *place, const char *value_name) {
    if (!map_get(&p->graph->names, value_name)) return NULL;
    return error_at(p, place, "value %s is defined twice", value_name);
}

static Status operand(Parser *p, Value **out_value) {
    const char *value_name;
    *out_value = NULL;
    blank(p);
    const char *place = p->at;
    if (take_word(p, "_")) return NULL;
    TRY(name(p, &value_name));
    *out_value = map_get(&p->graph->names, value_name);
    return *out_value ? NULL : error_at(p, place, "value %s is not defined before", value_name);
}

static bool operands_follow(Parser *p) {
    blank(p);
    if (*p->at == '%') return true;
    return word_length(p) && !is_word(p, "graph") && !is_word(p, "captures");
}

static Status operands(Parser *p, ValueList *out_list) {
    *out_list = (ValueList){0};
    if (!operands_follow(p)) return NULL;
    do {
        Value *value;
        TRY(operand(p, &value));
        VEC_PUSH(p->graph->arena, *out_list, value);
    } while (take(p, ","));
    return NULL;
}

typedef struct What {
    NodeKind kind;
    const char *op, *domain;
    int opset;
    bool backward, repeats;
} What;

static Status what(Parser *p, What *out) {
    bool repeats = take_word(p, "again");
    *out = (What){.kind = NODE_PRIM, .repeats = repeats, .backward = repeats || take_word(p, "backward")};
    if (take_word(p, "region")) {
        out->kind = NODE_REGION;
        out->op = "region";
        return NULL;
    }
    if (take_word(p, "anchor")) {
        out->kind = NODE_ANCHOR;
        return name(p, &out->op);
    }
    bool onnx = take_word(p, "onnx");
    if (onnx || take_word(p, "host")) {
        out->kind = onnx ? NODE_ONNX : NODE_HOST;
        out->domain = "";
        blank(p);
        if (*p->at == '"') TRY(quoted_name(p, &out->domain));
        TRY(name(p, &out->op));
        TRY(expect(p, "@"));
        return small_integer(p, &out->opset);
    }
    blank(p);
    const char *place = p->at;
    TRY(name(p, &out->op));
    return prim_from_name(out->op) ? NULL : error_at(p, place, "no primitive is called %s", out->op);
}

static Status add_outputs(const Parser *p, Node *node, const OutputList *outputs) {
    for (int i = 0; i < outputs->count; i++) {
        const OutputText *o = &outputs->items[i];
        if (!o->name) {
            node_attach_output(node, NULL);
            continue;
        }
        TRY(check_new(p, o->place, o->name));
        Value *value = node_add_output(node, o->name, o->type.dtype, o->type.rank, o->type.dims);
        value->kind = o->type.kind;
        value->key = o->type.key;
        value->content = o->type.content;
    }
    return NULL;
}

static Status graph_text(Parser *p, Graph *graph, Origin *out_origin);

static Status subgraphs(Parser *p, Node *node) {
    while (take_word(p, "graph")) {
        Origin from;
        Graph *outer = p->graph, *inner = graph_sub(outer, "");
        if (++p->nesting > GRAPH_MOST_NESTING)
            return error_at(p, p->at, "graphs nested more than %d deep", GRAPH_MOST_NESTING);
        TRY(graph_text(p, inner, &from));
        p->nesting--;
        p->graph = outer;
        if (!node->subgraph_count) node->origin = from;
        node_add_subgraph(node, inner);
    }
    return NULL;
}

static Status node_text(Parser *p, const OutputList *outputs) {
    What w;
    ValueList inputs;
    TRY(what(p, &w));
    TRY(operands(p, &inputs));
    Node *node = graph_add_node(p->graph, NULL, w.kind, w.op, inputs.items, inputs.count);
    node->domain = w.domain;
    node->opset = w.opset;
    node->backward = w.backward;
    node->repeats = w.repeats;
    if (take(p, "{")) TRY(attrs(p, node));
    if (take_word(p, "captures")) TRY(small_integer(p, &node->captures));
    if (node->captures > node->input_count) return error_at(p, p->at, "more captures than inputs");
    TRY(subgraphs(p, node));
    if (!node->subgraph_count) TRY(origin(p, &node->origin));
    return add_outputs(p, node, outputs);
}

static Status constant_text(Parser *p, const OutputList *outputs) {
    Tensor *tensor;
    if (outputs->count != 1 || !outputs->items[0].name) return error_at(p, p->at, "a constant has one name");
    TRY(check_new(p, outputs->items[0].place, outputs->items[0].name));
    TRY(literal(p, &tensor));
    graph_add_constant(p->graph, outputs->items[0].name, tensor);
    return NULL;
}

static Status statement(Parser *p) {
    OutputList outputs;
    TRY(output_texts(p, &outputs));
    TRY(take_word(p, "constant") ? constant_text(p, &outputs) : node_text(p, &outputs));
    blank(p);
    comment(p);
    if (*p->at == '\n' || *p->at == '}' || !*p->at) return NULL;
    return error_at(p, p->at, "the end of the line is expected");
}

/* ---- graphs ---- */

static Status params(Parser *p) {
    TRY(expect(p, "("));
    for (space(p); !take(p, ")"); space(p)) {
        Value type;
        const char *value_name;
        if (p->graph->inputs.count) TRY(expect(p, ","));
        space(p);
        const char *place = p->at;
        TRY(name(p, &value_name));
        TRY(check_new(p, place, value_name));
        TRY(expect(p, ":"));
        TRY(type_of(p, &type));
        Value *value = graph_add_input(p->graph, value_name, type.dtype, type.rank, type.dims);
        value->kind = type.kind;
        value->key = type.key;
        value->content = type.content;
    }
    return NULL;
}

typedef struct ResultText {
    const char *name, *called, *place;
    const char *over;  /* or NULL */
    const char *keeps; /* or NULL */
    GraphKept kept;
} ResultText;

typedef VEC(ResultText) ResultList;

static Status kept_text(Parser *p, ResultText *result) {
    int capacity = 0;
    TRY(name(p, &result->keeps));
    result->kept.axis = -1;
    for (KeptForm form = KEPT_ROOM; form <= KEPT_APPENDED; form++) {
        if (!take_word(p, kept_form_name(form))) continue;
        result->kept.form = form;
        TRY(small_integer(p, &result->kept.axis));
    }
    if (take_word(p, "capacity")) TRY(small_integer(p, &capacity));
    result->kept.capacity = capacity;
    return NULL;
}

static Status results(Parser *p, ResultList *out_list) {
    *out_list = (ResultList){0};
    TRY(expect(p, "("));
    for (space(p); !take(p, ")"); space(p)) {
        ResultText result = {0};
        if (out_list->count) TRY(expect(p, ","));
        space(p);
        result.place = p->at;
        TRY(name(p, &result.name));
        result.called = result.name;
        if (take_word(p, "as")) TRY(name(p, &result.called));
        if (take_word(p, "over")) TRY(name(p, &result.over));
        if (take_word(p, "keeps")) TRY(kept_text(p, &result));
        VEC_PUSH(p->graph->arena, *out_list, result);
    }
    return NULL;
}

static Status input_number(Parser *p, const ResultText *result, const char *input, int *out_number) {
    const Graph *graph = p->graph;
    for (*out_number = 0; *out_number < graph->inputs.count; (*out_number)++)
        if (strcmp(graph->inputs.items[*out_number]->name, input) == 0) return NULL;
    return error_at(p, result->place, "%s is no input", input);
}

static Status add_result(Parser *p, const ResultText *result) {
    Graph *graph = p->graph;
    Value *value = map_get(&graph->names, result->name);
    if (!value) return error_at(p, result->place, "output %s is not defined", result->name);
    graph_add_named_output(graph, value, result->called);
    int input, output = graph->outputs.count - 1;
    if (result->over) {
        TRY(input_number(p, result, result->over, &input));
        VEC_PUSH(graph->arena, graph->states, (GraphState){input, output});
    }
    if (!result->keeps) return NULL;
    TRY(input_number(p, result, result->keeps, &input));
    const GraphKept *k = &result->kept;
    VEC_PUSH(graph->arena, graph->kept, (GraphKept){input, output, k->form, k->axis, k->capacity});
    return NULL;
}

/* Behind the word "graph". */
static Status graph_text(Parser *p, Graph *graph, Origin *out_origin) {
    ResultList list;
    p->graph = graph;
    blank(p);
    if (*p->at == '"') TRY(quoted_name(p, &graph->name));
    TRY(params(p));
    TRY(expect(p, "->"));
    TRY(results(p, &list));
    TRY(expect(p, "{"));
    TRY(origin(p, out_origin));
    for (space(p); !take(p, "}"); space(p)) {
        if (!*p->at) return error_at(p, p->at, "the text ends inside a graph");
        TRY(statement(p));
    }
    for (int i = 0; i < list.count; i++) TRY(add_result(p, &list.items[i]));
    return NULL;
}

static Status opset_lines(Parser *p) {
    for (space(p); take_word(p, "opset"); space(p)) {
        OpsetImport opset = {.domain = ""};
        blank(p);
        if (*p->at == '"') TRY(quoted_name(p, &opset.domain));
        TRY(integer(p, &opset.version));
        VEC_PUSH(p->graph->arena, p->graph->info->opsets, opset);
    }
    return NULL;
}

static Status parse_file(Parser *p) {
    Origin none;
    TRY(opset_lines(p));
    if (!take_word(p, "graph")) return error_at(p, p->at, "\"graph\" is expected");
    TRY(graph_text(p, p->graph, &none));
    space(p);
    return *p->at ? error_at(p, p->at, "the end of the text is expected") : NULL;
}

Status graph_parse(const char *source, Graph **out_graph) {
    Graph *volatile graph = graph_create(0);
    if (!graph) return status_out_of_memory();
    jmp_buf guard;
    if (setjmp(guard)) {
        graph_destroy(graph);
        return status_out_of_memory();
    }
    arena_guard(graph->arena, &guard);
    Parser p = {source, source, source + strlen(source), graph, 0};
    Status status = parse_file(&p);
    arena_guard(graph->arena, NULL);
    if (status) {
        graph_destroy(graph);
        return status;
    }
    *out_graph = graph;
    return NULL;
}
