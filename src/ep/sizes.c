/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions of sizes, as onnxfuse writes them:
 *     sum = ["-"] product {("+" | "-") product}
 *     product = factor {"*" factor}
 *     factor = number | name | "(" sum ")" | "floor(" product "/" factor ")" | function "(" sum "," sum ")"
 * where a name is letters, digits and underscores, or anything in double quotes. */
#include "ep/sizes.h"

#include <string.h>

typedef enum SizeOp { PUSH, INPUT, ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO, MINIMUM, MAXIMUM } SizeOp;

typedef struct SizeStep {
    SizeOp op;
    int64_t number; /* PUSH; INPUT: which input */
    int axis;
} SizeStep;

enum { MOST_STEPS = 256, MOST_STACK = 32, MOST_DEPTH = 24 };

/* --- compiling --------------------------------------------------------------------------------------------------- */
typedef struct Reader {
    const OnnxfuseSession *session;
    const char *at;
    SizeStep steps[MOST_STEPS];
    int count, depth;
} Reader;

static bool read_sum(Reader *r);

static bool emit(Reader *r, SizeStep step) {
    if (r->count == MOST_STEPS) return false;
    r->steps[r->count++] = step;
    return true;
}

static bool take(Reader *r, char c) {
    while (*r->at == ' ') r->at++;
    if (*r->at != c) return false;
    r->at++;
    return true;
}

/* The C library's isdigit and isalnum depend on the locale. */
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static bool read_number(Reader *r) {
    int64_t number = 0;
    for (; is_digit(*r->at); r->at++)
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *r->at - '0', &number))
            return false;
    return emit(r, (SizeStep){.op = PUSH, .number = number});
}

/* An input's dimension that is just this name. */
static bool find_symbol(Reader *r, const char *name, size_t length) {
    for (int i = 0; i < onnxfuse_session_input_count(r->session); i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(r->session, i);
        for (int d = 0; d < info->rank; d++) {
            const char *symbol = info->symbols[d];
            if (symbol && strncmp(symbol, name, length) == 0 && !symbol[length])
                return emit(r, (SizeStep){.op = INPUT, .number = i, .axis = d});
        }
    }
    return false;
}

static bool read_call(Reader *r, const char *name, size_t length) {
    static const struct {
        const char *name;
        SizeOp op;
    } functions[] = {{"floor", DIVIDE}, {"mod", MODULO}, {"min", MINIMUM},
                     {"max", MAXIMUM},  {"add", ADD},    {"mul", MULTIPLY}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strlen(functions[i].name) != length || strncmp(functions[i].name, name, length) != 0) continue;
        /* Both operands of a division are products, which are sums without a sign between. */
        return read_sum(r) && take(r, functions[i].op == DIVIDE ? '/' : ',') && read_sum(r) && take(r, ')') &&
               emit(r, (SizeStep){.op = functions[i].op});
    }
    return false;
}

static bool read_name(Reader *r) {
    const char *name = r->at;
    if (*name == '"') {
        for (r->at++; *r->at && *r->at != '"'; r->at++)
            if (*r->at == '\\' && r->at[1]) r->at++;
        if (*r->at) r->at++;
    } else {
        while (is_word(*r->at)) r->at++;
        size_t length = (size_t)(r->at - name);
        if (length && *r->at == '(') {
            r->at++;
            return read_call(r, name, length);
        }
    }
    return r->at > name && find_symbol(r, name, (size_t)(r->at - name));
}

static bool read_factor(Reader *r) {
    if (r->depth == MOST_DEPTH) return false;
    r->depth++;
    bool good;
    if (take(r, '('))
        good = read_sum(r) && take(r, ')');
    else
        good = is_digit(*r->at) ? read_number(r) : read_name(r);
    r->depth--;
    return good;
}

static bool read_product(Reader *r) {
    if (!read_factor(r)) return false;
    while (take(r, '*'))
        if (!read_factor(r) || !emit(r, (SizeStep){.op = MULTIPLY})) return false;
    return true;
}

static bool read_sum(Reader *r) {
    if (take(r, '-')) {
        if (!emit(r, (SizeStep){.op = PUSH}) || !read_product(r) || !emit(r, (SizeStep){.op = SUBTRACT})) return false;
    } else if (!read_product(r)) {
        return false;
    }
    for (;;) {
        SizeOp op = take(r, '+') ? ADD : take(r, '-') ? SUBTRACT : PUSH;
        if (op == PUSH) return true;
        if (!read_product(r) || !emit(r, (SizeStep){.op = op})) return false;
    }
}

bool size_compile(Scratch *scratch, const OnnxfuseSession *session, const char *expression, SizeProgram *out_program) {
    Reader r = {.session = session, .at = expression};
    *out_program = (SizeProgram){NULL, 0};
    if (!read_sum(&r) || *r.at) return true;
    SizeStep *steps = SCRATCH_ARRAY(scratch, SizeStep, r.count);
    if (!steps) return false;
    memcpy(steps, r.steps, (size_t)r.count * sizeof *steps);
    *out_program = (SizeProgram){steps, r.count};
    return true;
}

/* --- evaluating -------------------------------------------------------------------------------------------------- */
static bool apply(SizeOp op, int64_t a, int64_t b, int64_t *out) {
    if ((op == DIVIDE || op == MODULO) && b <= 0) return false; /* sizes are divided by sizes */
    int64_t rest = op == DIVIDE || op == MODULO ? a % b : 0;
    switch (op) {
    case ADD: return !__builtin_add_overflow(a, b, out);
    case SUBTRACT: return !__builtin_sub_overflow(a, b, out);
    case MULTIPLY: return !__builtin_mul_overflow(a, b, out);
    case DIVIDE: *out = a / b - (rest < 0); return true;
    case MODULO: *out = rest < 0 ? rest + b : rest; return true;
    case MINIMUM: *out = a < b ? a : b; return true;
    case MAXIMUM: *out = a > b ? a : b; return true;
    default: return false;
    }
}

bool size_evaluate(const SizeProgram *program, const int64_t *const *dims, int64_t *out_size) {
    int64_t stack[MOST_STACK];
    int top = 0;
    for (int i = 0; i < program->count; i++) {
        const SizeStep *step = &program->steps[i];
        if (step->op == PUSH || step->op == INPUT) {
            if (top == MOST_STACK) return false;
            stack[top++] = step->op == PUSH ? step->number : dims[step->number][step->axis];
        } else {
            top--;
            if (!apply(step->op, stack[top - 1], stack[top], &stack[top - 1])) return false;
        }
    }
    *out_size = stack[0];
    return true;
}
