/* SPDX-License-Identifier: Apache-2.0 */
/* See kernel.h. The text is CUDA C as onnxfuse writes it: C's preprocessor, then a few patterns; no C parser. */
#include "kernel.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Noreturn void give_up(const char *what, const char *at) {
    fprintf(stderr, "the double of CUDA cannot read a kernel: %s: %.200s\n", what, at);
    abort();
}

/* --- the preprocessor --- */

static char *read_all(FILE *file) {
    size_t size = 0, capacity = 1 << 16;
    char *text = malloc(capacity);
    for (size_t got = 1; text && got; size += got) {
        if (capacity - size < 4096) text = realloc(text, capacity *= 2);
        got = text ? fread(text + size, 1, capacity - size - 1, file) : 0;
    }
    if (!text) abort();
    text[size] = 0;
    return text;
}

static char *preprocess(const char *source) {
    char path[] = "/tmp/onnxfuse-double-XXXXXX", command[512];
    int fd = mkstemp(path);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out || fputs(source, out) < 0 || fclose(out)) give_up("no temporary file", path);
    snprintf(command, sizeof command, "%s -E -P -w -x c -D__CUDA_ARCH__=900 -D__CUDA_ARCH_FEAT_SM90_ALL %s",
             ONNXFUSE_C_COMPILER, path);
    FILE *in = popen(command, "r");
    if (!in) give_up("no preprocessor", ONNXFUSE_C_COMPILER);
    char *text = read_all(in);
    if (pclose(in) || !text[0]) give_up("the preprocessor fails", source);
    unlink(path);
    return text;
}

/* --- constant expressions: what sizes of arrays and launch bounds are made of --- */

static const char *skip(const char *at) {
    while (isspace((unsigned char)*at)) at++;
    return at;
}

static long expression(const char **at, int least);

static long primary(const char **at) {
    *at = skip(*at);
    if (**at == '(') {
        ++*at;
        long value = expression(at, 0);
        *at = skip(*at);
        if (**at != ')') give_up("a parenthesis is missing", *at);
        ++*at;
        return value;
    }
    if (**at == '!') {
        ++*at;
        return !primary(at);
    }
    char *end;
    long value = strtol(*at, &end, 0);
    if (end == *at) give_up("no constant", *at);
    while (isalpha((unsigned char)*end)) end++; /* L, UL */
    *at = end;
    return value;
}

static long expression(const char **at, int least) {
    static const struct {
        const char *text;
        int level;
    } operators[] = {{"==", 3}, {"!=", 3}, {"<=", 4}, {">=", 4}, {"<", 4}, {">", 4},
                     {"+", 5},  {"-", 5},  {"*", 6},  {"/", 6},  {"%", 6}};
    long left = primary(at);
    for (;;) {
        *at = skip(*at);
        int found = -1;
        for (int i = 0; i < (int)(sizeof operators / sizeof *operators) && found < 0; i++)
            if (strncmp(*at, operators[i].text, strlen(operators[i].text)) == 0) found = i;
        if (**at == '?' && least == 0) {
            ++*at;
            long yes = expression(at, 0);
            *at = skip(*at);
            if (**at != ':') give_up("a choice without its other side", *at);
            ++*at;
            long no = expression(at, 0);
            return left ? yes : no;
        }
        if (found < 0 || operators[found].level <= least) return left;
        *at += strlen(operators[found].text);
        long right = expression(at, operators[found].level);
        if ((found == 9 || found == 10) && !right) give_up("a division by zero", *at);
        const long results[] = {left == right,
                                left != right,
                                left <= right,
                                left >= right,
                                left<right, left>
                                    right,
                                left + right,
                                left - right,
                                left * right,
                                found == 9 ? left / right : 0,
                                found == 10 ? left % right : 0};
        left = results[found];
    }
}

/* --- types --- */

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool starts_with_word(const char *at, const char *word) {
    size_t length = strlen(word);
    return strncmp(at, word, length) == 0 && !is_word(at[length]);
}

/* Behind the type; *out_size: of an element. */
static const char *read_type(const char *at, int *out_size, bool *out_real) {
    static const struct {
        const char *name;
        int size;
        bool real;
    } types[] = {{"u128", 16, false}, {"uint4", 16, false},  {"u64", 8, false},  {"i64", 8, false},
                 {"f64", 8, true},    {"u32", 4, false},     {"i32", 4, false},  {"f32", 4, true},
                 {"float", 4, true},  {"double", 8, true},   {"u16", 2, false},  {"i16", 2, false},
                 {"u8", 1, false},    {"i8", 1, false},      {"void", 1, false}, {"long long", 8, false},
                 {"int", 4, false},   {"unsigned", 4, false}};
    at = skip(at);
    while (starts_with_word(at, "const") || starts_with_word(at, "volatile")) at = skip(at + (*at == 'c' ? 5 : 8));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (starts_with_word(at, types[i].name)) {
            *out_size = types[i].size;
            *out_real = types[i].real;
            at = skip(at + strlen(types[i].name));
            while (starts_with_word(at, "const")) at = skip(at + 5);
            return at;
        }
    return NULL;
}

static const char *read_name(const char *at, char *out, size_t size) {
    size_t length = 0;
    at = skip(at);
    while (is_word(at[length])) length++;
    if (!length || length >= size) give_up("no name", at);
    memcpy(out, at, length);
    out[length] = 0;
    return skip(at + length);
}

/* --- kernels --- */

/* Behind the matching brace. */
static const char *end_of_body(const char *at) {
    int depth = 0;
    for (; *at; at++) {
        if (*at == '"')
            for (at++; *at && *at != '"'; at++) at += *at == '\\' && at[1];
        if (*at == '{') depth++;
        if (*at == '}' && --depth == 0) return at + 1;
    }
    give_up("a body without end", "");
}

static const char *read_params(const char *at, SourceKernel *k) {
    at = skip(at);
    if (*at == ')') return at + 1;
    for (;;) {
        if (k->param_count == KERNEL_MOST_PARAMS) give_up("too many parameters", k->name);
        KernelParam *p = &k->params[k->param_count++];
        bool real;
        const char *next = read_type(at, &p->size, &real);
        if (!next) give_up("a parameter of an unknown type", at);
        p->kind = real ? 'f' : 'i';
        p->alignment = 1;
        if (*next == '*') {
            p->kind = 'p';
            if (p->size > p->alignment) p->alignment = p->size;
            p->size = 8;
            next++;
        }
        next = read_name(next, p->name, sizeof p->name);
        if (*next == ')') return next + 1;
        if (*next != ',') give_up("a parameter list", next);
        at = next + 1;
    }
}

static size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/* typedef struct NAME { TYPE a, b; ... } NAME; behind it, with its size. */
static const char *read_struct(const char *at, const char *text, int *out_size) {
    char name[64], pattern[96];
    at = read_name(at, name, sizeof name);
    snprintf(pattern, sizeof pattern, "typedef struct %s {", name);
    const char *field = strstr(text, pattern);
    if (!field) return NULL;
    size_t bytes = 0, most = 1;
    for (field = skip(field + strlen(pattern)); *field != '}'; field = skip(field + 1)) {
        int size;
        bool real;
        char unused[64];
        field = read_type(field, &size, &real);
        if (!field) give_up("a field of an unknown type", name);
        if ((size_t)size > most) most = (size_t)size;
        for (;;) {
            field = read_name(field, unused, sizeof unused);
            bytes = round_up(bytes, (size_t)size) + (size_t)size;
            if (*field != ',') break;
            field++;
        }
        if (*field != ';') give_up("a field", name);
    }
    *out_size = (int)round_up(bytes, most);
    return at;
}

/* __shared__ TYPE a[N], b[M]; extern __shared__ TYPE a[]; */
static void add_shared(SourceKernel *k, const char *text, const char *body, const char *end) {
    for (const char *at = body; (at = strstr(at, "__shared__")) && at < end;) {
        int size;
        bool real;
        char name[64];
        const char *next = read_type(at + strlen("__shared__"), &size, &real);
        if (!next) next = read_struct(at + strlen("__shared__"), text, &size);
        if (!next) give_up("shared memory of an unknown type", at);
        do {
            next = read_name(next + (*next == ','), name, sizeof name);
            long count = 1;
            if (*next == '[') {
                next = skip(next + 1);
                k->shared_given |= *next == ']';
                count = *next == ']' ? 0 : expression(&next, 0);
                next = skip(next);
                if (*next != ']') give_up("the size of shared memory", next);
                next = skip(next + 1);
            }
            k->shared = round_up(k->shared, (size_t)size) + (size_t)count * (size_t)size;
        } while (*next == ',');
        at = next;
    }
}

/* "((u128 *)(name" -> "name" */
static const char *skip_casts(const char *at) {
    for (;;) {
        int size;
        bool real;
        while (*at == '(') at = skip(at + 1);
        const char *cast = read_type(at, &size, &real);
        if (!cast || *cast != '*') return at;
        cast = skip(cast + 1);
        if (*cast != ')') return at;
        at = skip(cast + 1);
    }
}

/* "TYPE *name = (TYPE *)param;", then "(*(TYPE *)(name" or "(*(const TYPE *)(name": accesses of the body itself. */
static void find_accesses(SourceKernel *k, KernelParam *p, const char *body, const char *end) {
    char pattern[80], name[64] = "";
    int size;
    bool real;
    snprintf(pattern, sizeof pattern, "*)%s", p->name);
    const char *use = strstr(body, pattern);
    if (!use || use >= end) return;
    const char *begin = use;
    while (begin > body && *begin != ';' && *begin != '{') begin--;
    const char *at = read_type(begin + 1, &size, &real);
    if (!at || *at != '*') give_up("a buffer's declaration", begin);
    read_name(at + 1, name, sizeof name);
    if (size > p->alignment) p->alignment = size;
    for (at = body; (at = strstr(at, "(*(")) && at < end; at++) {
        const char *access = read_type(at + 3, &size, &real);
        if (!access || *access != '*') continue;
        access = skip(access + 1);
        if (*access != ')') continue;
        access = skip_casts(skip(access + 1));
        if (starts_with_word(access, name) && size > p->alignment) p->alignment = size;
    }
    (void)k;
}

/* What read_pack reads at once where it may. */
static int pack_bytes(const char *text) {
    int size = 0;
    bool real;
    const char *at = strstr(text, "void read_pack(");
    at = at ? strstr(at, "(*(const ") : NULL;
    if (!at || !read_type(at + 3, &size, &real)) return 0;
    return size;
}

static const char *read_kernel(const char *at, const char *text, SourceKernels *out) {
    static const char global[] = "__global__ void", bounds[] = "__launch_bounds__(";
    if (out->count == KERNEL_MOST) give_up("too many kernels", at);
    SourceKernel *k = &out->items[out->count++];
    at = skip(at + strlen(global));
    if (strncmp(at, bounds, strlen(bounds)) == 0) {
        at += strlen(bounds);
        k->most_threads = (int)expression(&at, 0);
        at = skip(at);
        if (*at == ',') {
            at++;
            expression(&at, 0);
            at = skip(at);
        }
        if (*at != ')') give_up("launch bounds", at);
        at++;
    }
    at = read_name(at, k->name, sizeof k->name);
    if (*at != '(') give_up("a kernel without parameters", at);
    at = skip(read_params(at + 1, k));
    if (*at != '{') give_up("a kernel without body", at);
    const char *end = end_of_body(at);
    k->pack = pack_bytes(text);
    add_shared(k, text, at, end);
    for (int i = 0; i < k->param_count; i++)
        if (k->params[i].kind == 'p') find_accesses(k, &k->params[i], at, end);
    return end;
}

typedef struct Known {
    struct Known *next;
    char *source;
    SourceKernels kernels;
} Known;

const SourceKernels *kernels_of_source(const char *source) {
    static Known *all; /* under the books' lock */
    for (const Known *k = all; k; k = k->next)
        if (strcmp(k->source, source) == 0) return &k->kernels;
    Known *made = calloc(1, sizeof *made);
    if (!made || !(made->source = strdup(source))) abort();
    char *text = preprocess(source);
    for (const char *at = text; (at = strstr(at, "__global__ void"));) at = read_kernel(at, text, &made->kernels);
    free(text);
    made->next = all;
    all = made;
    return &made->kernels;
}
