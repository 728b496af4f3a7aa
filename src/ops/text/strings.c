/* SPDX-License-Identifier: Apache-2.0 */
/* Strings: StringNormalizer, StringConcat, StringSplit, RegexFullMatch, and TfIdfVectorizer. All are host kernels. */
#include "ops/families.h"

#include <locale.h>
#include <wctype.h>

#include "lowering/sizes.h"
#include "ops/text/regex.h"

/* ---- StringNormalizer ---- */

typedef enum CaseChange { CASE_KEEP, CASE_LOWER, CASE_UPPER } CaseChange;

static int put_point(char *to, uint32_t point) {
    if (point < 0x80) return to[0] = (char)point, 1;
    int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xC0, 0xE0, 0xF0};
    to[0] = (char)(lead[more] | point >> (6 * more));
    for (int i = 1; i <= more; i++) to[i] = (char)(0x80 | (point >> (6 * (more - i)) & 0x3F));
    return more + 1;
}

/* Letters by Unicode's simple mappings (one to one), in UTF-8; other bytes stay. */
static StringView change_case(Arena *arena, StringView text, CaseChange change, locale_t locale) {
    if (change == CASE_KEEP || text.size == 0) return text;
    char *to = arena_array(arena, text.size, 4);
    size_t size = 0;
    for (size_t at = 0; at < text.size;) {
        uint32_t point;
        size_t taken = text_point(text.data + at, text.size - at, &point);
        if (taken == 0) {
            to[size++] = text.data[at++];
            continue;
        }
        at += taken;
        if (point < 0x80) {
            bool letter = (point | 0x20) >= 'a' && (point | 0x20) <= 'z';
            if (letter) point = change == CASE_LOWER ? point | 0x20 : point & ~0x20u;
        } else if (locale) {
            point = (uint32_t)(change == CASE_LOWER ? towlower_l((wint_t)point, locale)
                                                    : towupper_l((wint_t)point, locale));
        }
        size += (size_t)put_point(to + size, point);
    }
    return (StringView){to, size};
}

static bool same_text(StringView a, StringView b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static Status read_case(const HostCall *call, CaseChange *out_change) {
    const char *name = attr_string(call->node, "case_change_action", "NONE");
    *out_change = strcmp(name, "LOWER") == 0 ? CASE_LOWER : strcmp(name, "UPPER") == 0 ? CASE_UPPER : CASE_KEEP;
    if (*out_change == CASE_KEEP && strcmp(name, "NONE") != 0)
        return host_error(call, "case_change_action \"%s\"", name);
    return NULL;
}

static bool is_stopword(const StringView *words, int count, StringView text) {
    for (int i = 0; i < count; i++)
        if (same_text(words[i], text)) return true;
    return false;
}

static Status host_normalize(HostCall *call) {
    const Tensor *x = host_input(call, 0);
    if (!x || x->dtype != DT_STRING || x->rank < 1 || x->rank > 2 || (x->rank == 2 && x->dims[0] != 1))
        return host_error(call, "expected strings of shape [C] or [1, C]");
    CaseChange change;
    TRY(read_case(call, &change));
    bool sensitive = attr_int(call->node, "is_case_sensitive", 0) != 0;
    const Attr *stop = node_attr(call->node, "stopwords");
    int stop_count = stop && stop->kind == ATTR_STRINGS ? stop->count : 0;
    locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    StringView *words = ARENA_ARRAY(call->arena, StringView, stop_count);
    for (int i = 0; i < stop_count; i++)
        words[i] = sensitive ? stop->strings[i] : change_case(call->arena, stop->strings[i], CASE_LOWER, locale);
    int64_t count = tensor_count(x), kept = 0;
    StringView *texts = ARENA_ARRAY(call->arena, StringView, count + 1);
    for (int64_t i = 0; i < count; i++) {
        StringView text = ((const StringView *)x->data)[i];
        StringView compared = sensitive || !stop_count ? text : change_case(call->arena, text, CASE_LOWER, locale);
        if (!is_stopword(words, stop_count, compared)) texts[kept++] = change_case(call->arena, text, change, locale);
    }
    if (locale) freelocale(locale);
    if (kept == 0) texts[kept++] = (StringView){"", 0};
    int64_t dims[] = {1, kept};
    Tensor *result;
    TRY(host_output(call, 0, DT_STRING, x->rank, dims + 2 - x->rank, &result));
    if (result) memcpy(result->data, texts, (size_t)kept * sizeof *texts);
    return NULL;
}

static Status expect_strings(Lowering *l, const Value *x) {
    if (l->error) return l->error;
    return x->dtype == DT_STRING ? NULL : invalid(l, "expected strings, found %s", dtype_name(x->dtype));
}

static Status lower_normalize(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    TRY(expect_strings(l, x));
    if (x->rank != 1 && x->rank != 2) return invalid(l, "expected strings of shape [C] or [1, C]");
    const Dim *dims[] = {dim_const(l->dims, 1), dim_fresh(l->dims, "kept")};
    Node *host = host_node(l, n, host_normalize, &x, 1);
    return host ? out(l, n, 0, host_result(l, host, DT_STRING, x->rank, dims + 2 - x->rank)) : l->error;
}

/* ---- StringConcat ---- */

/* Strides of `from` in the index space of rank `rank`, 0 along repeated axes. */
static bool broadcast_strides(const Tensor *from, int rank, const int64_t *dims, int64_t *strides) {
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        int axis = i - (rank - from->rank);
        int64_t size = axis >= 0 ? from->dims[axis] : 1;
        if (size != 1 && size != dims[i]) return false;
        strides[i] = size == 1 ? 0 : stride;
        stride *= size;
    }
    return true;
}

static StringView joined(Arena *arena, StringView a, StringView b) {
    char *text = arena_alloc(arena, a.size + b.size + 1);
    if (a.size) memcpy(text, a.data, a.size);
    if (b.size) memcpy(text + a.size, b.data, b.size);
    return (StringView){text, a.size + b.size};
}

static Status host_concat_strings(HostCall *call) {
    const Tensor *x = host_input(call, 0), *y = host_input(call, 1);
    if (!x || !y || x->dtype != DT_STRING || y->dtype != DT_STRING) return host_error(call, "expected strings");
    int rank = x->rank > y->rank ? x->rank : y->rank;
    int64_t dims[MAX_RANK], strides_x[MAX_RANK], strides_y[MAX_RANK], index[MAX_RANK] = {0}, at_x = 0, at_y = 0;
    for (int i = 0; i < rank; i++) {
        int64_t a = i < rank - x->rank ? 1 : x->dims[i - (rank - x->rank)];
        int64_t b = i < rank - y->rank ? 1 : y->dims[i - (rank - y->rank)];
        dims[i] = a == 1 ? b : a;
    }
    if (!broadcast_strides(x, rank, dims, strides_x) || !broadcast_strides(y, rank, dims, strides_y))
        return host_error(call, "the shapes do not broadcast");
    Tensor *result;
    TRY(host_output(call, 0, DT_STRING, rank, dims, &result));
    int64_t count = result ? tensor_count(result) : 0;
    for (int64_t i = 0; i < count; i++) {
        ((StringView *)result->data)[i] =
            joined(call->arena, ((const StringView *)x->data)[at_x], ((const StringView *)y->data)[at_y]);
        for (int axis = rank - 1; axis >= 0; axis--) {
            at_x += strides_x[axis], at_y += strides_y[axis];
            if (++index[axis] < dims[axis]) break;
            at_x -= strides_x[axis] * dims[axis], at_y -= strides_y[axis] * dims[axis];
            index[axis] = 0;
        }
    }
    return NULL;
}

static const Dim *joint_size(Lowering *l, const Value *x, const Value *y, int rank, int axis) {
    const Dim *a = axis < rank - x->rank ? NULL : x->dims[axis - (rank - x->rank)];
    const Dim *b = axis < rank - y->rank ? NULL : y->dims[axis - (rank - y->rank)];
    return !a ? b : !b ? a : size_broadcast(l, a, b);
}

static Status lower_concat_strings(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *y = in(l, n, 1);
    TRY(expect_strings(l, x));
    TRY(expect_strings(l, y));
    int rank = x->rank > y->rank ? x->rank : y->rank;
    const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, rank > 0 ? rank : 1);
    for (int i = 0; i < rank; i++)
        if (!(dims[i] = joint_size(l, x, y, rank, i))) return invalid(l, "the shapes do not broadcast");
    Node *host = host_node(l, n, host_concat_strings, (Value *const[]){x, y}, 2);
    return host ? out(l, n, 0, host_result(l, host, DT_STRING, rank, dims)) : l->error;
}

/* ---- StringSplit ---- */

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F); }

static size_t find_text(StringView text, size_t from, StringView part) {
    for (size_t at = from; at + part.size <= text.size; at++)
        if (memcmp(text.data + at, part.data, part.size) == 0) return at;
    return text.size;
}

/* As Python's str.split: the pieces of text into out (NULL: only counted); at most `most` splits (negative: no limit).
 * An empty delimiter: at runs of white space, none at the ends. */
static int64_t split_text(StringView text, StringView delimiter, int64_t most, StringView *out_pieces) {
    int64_t count = 0;
    size_t at = 0;
    bool spaces = delimiter.size == 0;
    for (;;) {
        while (spaces && at < text.size && is_space(text.data[at])) at++;
        if (spaces && at == text.size) return count;
        size_t end = text.size, next = text.size + 1;
        if (most < 0 || count < most) {
            if (spaces) {
                for (end = at; end < text.size && !is_space(text.data[end]);) end++;
                next = end;
            } else if ((end = find_text(text, at, delimiter)) < text.size || at + delimiter.size <= text.size) {
                next = end < text.size ? end + delimiter.size : text.size + 1;
            }
        }
        if (out_pieces) out_pieces[count] = (StringView){text.data + at, end - at};
        count++;
        if (next > text.size) return count;
        at = next;
    }
}

static Status host_split_strings(HostCall *call) {
    const Tensor *x = host_input(call, 0);
    if (!x || x->dtype != DT_STRING || x->rank >= MAX_RANK) return host_error(call, "expected strings");
    const Attr *given = node_attr(call->node, "delimiter");
    StringView delimiter = given && given->kind == ATTR_STRING ? given->s : (StringView){"", 0};
    int64_t most = attr_int(call->node, "maxsplit", -1), count = tensor_count(x), width = 0, dims[MAX_RANK] = {0};
    const StringView *texts = x->data;
    Tensor *pieces, *counts;
    memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
    TRY(host_output(call, 1, DT_I64, x->rank, dims, &counts));
    for (int64_t i = 0; i < count; i++) {
        int64_t found = split_text(texts[i], delimiter, most, NULL);
        if (counts) ((int64_t *)counts->data)[i] = found;
        if (found > width) width = found;
    }
    dims[x->rank] = width;
    TRY(host_output(call, 0, DT_STRING, x->rank + 1, dims, &pieces));
    for (int64_t i = 0; pieces && i < count; i++) {
        StringView *row = (StringView *)pieces->data + i * width;
        int64_t found = split_text(texts[i], delimiter, most, row);
        for (; found < width; found++) row[found] = (StringView){"", 0};
    }
    return NULL;
}

static Status lower_split_strings(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    TRY(expect_strings(l, x));
    if (x->rank >= MAX_RANK) return unsupported(l, "strings of %d axes", x->rank);
    const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, x->rank + 1);
    for (int i = 0; i < x->rank; i++) dims[i] = x->dims[i];
    dims[x->rank] = dim_fresh(l->dims, "pieces");
    Node *host = host_node(l, n, host_split_strings, &x, 1);
    if (!host) return l->error;
    for (int i = 0; i < 2; i++) {
        if (!wants_output(n, i)) {
            node_attach_output(host, NULL);
            continue;
        }
        TRY(out(l, n, i, host_result(l, host, i ? DT_I64 : DT_STRING, x->rank + !i, dims)));
    }
    return NULL;
}

/* ---- RegexFullMatch ---- */

static Status host_regex(HostCall *call) {
    const Tensor *x = host_input(call, 0);
    const Attr *pattern = node_attr(call->node, "pattern");
    Regex *regex;
    if (!x || x->dtype != DT_STRING) return host_error(call, "expected strings");
    if (!pattern || pattern->kind != ATTR_STRING) return host_error(call, "the attribute pattern is missing");
    Status status = regex_compile(pattern->s.data, pattern->s.size, call->arena, &regex);
    if (status) return status_at(status, "%s", node_origin_name(call->node));
    Tensor *result;
    TRY(host_output(call, 0, DT_BOOL, x->rank, x->dims, &result));
    int64_t count = result ? tensor_count(result) : 0;
    for (int64_t i = 0; i < count; i++) {
        StringView text = ((const StringView *)x->data)[i];
        TRY(regex_matches_all(regex, text.data, text.size, &((bool *)result->data)[i]));
    }
    return NULL;
}

static Status lower_regex(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    TRY(expect_strings(l, x));
    const Attr *pattern = node_attr(n, "pattern");
    if (!pattern || pattern->kind != ATTR_STRING) return invalid(l, "the attribute pattern is missing");
    Regex *regex;
    Status status = regex_compile(pattern->s.data, pattern->s.size, l->arena, &regex);
    if (status) {
        invalid(l, "%s", status_message(status));
        status_free(status);
        return l->error;
    }
    Node *host = host_node(l, n, host_regex, &x, 1);
    return host ? out(l, n, 0, host_result(l, host, DT_BOOL, x->rank, (const Dim *const *)x->dims)) : l->error;
}

/* ---- TfIdfVectorizer ---- */

/* The pool: for n = 1, 2, ..., n-grams of n items each, from counts[n-1] to counts[n]; gram g adds to result column
 * indexes[g]. */
typedef struct Grams {
    const int64_t *counts, *indexes, *numbers; /* numbers: pool_int64s, NULL for strings */
    const StringView *strings;
    int count_count, index_count, item_count;
    int64_t shortest, longest, skip; /* gram lengths, most skipped items between two of a gram */
    int64_t width;                   /* columns */
    int64_t *heads, *chains;         /* hash table of grams: heads [buckets], chains [grams] */
    int64_t *starts;                 /* [grams]: first item in the pool */
    int *lengths;                    /* [grams] */
    uint64_t buckets;
    const Tensor *x;
} Grams;

static uint64_t hash_number(int64_t value, uint64_t seed) { return hash_bytes(&value, sizeof value, seed); }

static uint64_t hash_pool(const Grams *g, int64_t at, uint64_t seed) {
    return g->numbers ? hash_number(g->numbers[at], seed) : hash_bytes(g->strings[at].data, g->strings[at].size, seed);
}

static uint64_t hash_input(const Grams *g, int64_t at, uint64_t seed) {
    if (g->numbers) return hash_number(dtype_load_int(g->x->dtype, g->x->data, at), seed);
    const StringView *text = (const StringView *)g->x->data + at;
    return hash_bytes(text->data, text->size, seed);
}

static bool same_item(const Grams *g, int64_t pool_at, int64_t input_at) {
    if (g->numbers) return g->numbers[pool_at] == dtype_load_int(g->x->dtype, g->x->data, input_at);
    return same_text(g->strings[pool_at], ((const StringView *)g->x->data)[input_at]);
}

static Status read_grams(const HostCall *call, Grams *g) {
    const Node *n = call->node;
    const Attr *strings = node_attr(n, "pool_strings");
    *g = (Grams){.x = host_input(call, 0)};
    g->counts = attr_ints(n, "ngram_counts", &g->count_count);
    g->indexes = attr_ints(n, "ngram_indexes", &g->index_count);
    g->numbers = attr_ints(n, "pool_int64s", &g->item_count);
    g->shortest = attr_int(n, "min_gram_length", 1);
    g->longest = attr_int(n, "max_gram_length", 1);
    g->skip = attr_int(n, "max_skip_count", 0);
    if (!g->numbers && strings && strings->kind == ATTR_STRINGS)
        g->strings = strings->strings, g->item_count = strings->count;
    if (!g->numbers && !g->strings) return host_error(call, "the pool of n-grams is missing");
    if (g->shortest < 1 || g->longest < g->shortest || g->skip < 0) return host_error(call, "bad lengths of n-grams");
    if (!g->x || g->x->rank < 1 || g->x->rank > 2) return host_error(call, "expected items of shape [C] or [N, C]");
    if (g->strings ? g->x->dtype != DT_STRING : !dtype_is_integer(g->x->dtype))
        return host_error(call, "the items are %s, unlike the pool's", dtype_name(g->x->dtype));
    for (int i = 0; i < g->index_count; i++) {
        if (g->indexes[i] < 0 || g->indexes[i] >= INT32_MAX)
            return host_error(call, "ngram_indexes holds %lld", (long long)g->indexes[i]);
        if (g->indexes[i] >= g->width) g->width = g->indexes[i] + 1;
    }
    return NULL;
}

static Status index_grams(HostCall *call, Grams *g) {
    g->buckets = 64;
    while (g->buckets < 2 * (uint64_t)g->index_count) g->buckets *= 2;
    g->heads = ARENA_ARRAY(call->arena, int64_t, g->buckets);
    memset(g->heads, 0xFF, g->buckets * sizeof *g->heads);
    g->chains = ARENA_ARRAY(call->arena, int64_t, g->index_count);
    g->starts = ARENA_ARRAY(call->arena, int64_t, g->index_count);
    g->lengths = ARENA_ARRAY(call->arena, int, g->index_count);
    int64_t gram = 0;
    for (int i = 0; i < g->count_count; i++) {
        int64_t from = g->counts[i], to = i + 1 < g->count_count ? g->counts[i + 1] : g->item_count;
        if (from < 0 || to < from || to > g->item_count || (to - from) % (i + 1))
            return host_error(call, "ngram_counts does not fit the pool");
        for (int64_t at = from; at < to; at += i + 1, gram++) {
            if (gram >= g->index_count) return host_error(call, "ngram_indexes is shorter than the pool");
            uint64_t hash = 0;
            for (int k = 0; k <= i; k++) hash = hash_pool(g, at + k, hash);
            g->starts[gram] = at;
            g->lengths[gram] = i + 1;
            g->chains[gram] = g->heads[hash % g->buckets];
            g->heads[hash % g->buckets] = gram;
        }
    }
    return NULL;
}

/* The gram of items at, at + step, ... (length of them), or -1. */
static int64_t find_gram(const Grams *g, int64_t at, int64_t step, int length) {
    uint64_t hash = 0;
    for (int k = 0; k < length; k++) hash = hash_input(g, at + k * step, hash);
    for (int64_t gram = g->heads[hash % g->buckets]; gram >= 0; gram = g->chains[gram]) {
        bool same = g->lengths[gram] == length;
        for (int k = 0; same && k < length; k++) same = same_item(g, g->starts[gram] + k, at + k * step);
        if (same) return gram;
    }
    return -1;
}

/* Adds one row's n-grams; single items count once, longer grams at every distance 1 .. skip + 1. */
static void count_grams(const Grams *g, int64_t row, int64_t size, float *counts) {
    for (int64_t length = g->shortest; length <= g->longest && length <= g->count_count && length <= size; length++)
        for (int64_t step = 1; step - 1 <= g->skip && (step == 1 || length > 1); step++) {
            if (length > 1 && step > (size - 1) / (length - 1)) break;
            for (int64_t at = 0; at + (length - 1) * step < size; at++) {
                int64_t gram = find_gram(g, row * size + at, step, (int)length);
                if (gram >= 0) counts[g->indexes[gram]]++;
            }
        }
}

static Status weigh_grams(const HostCall *call, const Grams *g, float *counts) {
    const char *mode = attr_string(call->node, "mode", "");
    const Attr *weights = node_attr(call->node, "weights");
    const float *factor = weights && weights->kind == ATTR_FLOATS && weights->count ? weights->floats : NULL;
    if (factor && weights->count != g->index_count)
        return host_error(call, "weights and ngram_indexes differ in length");
    bool frequency = strcmp(mode, "TF") == 0, inverse = strcmp(mode, "IDF") == 0;
    if (!frequency && !inverse && strcmp(mode, "TFIDF") != 0) return host_error(call, "mode \"%s\"", mode);
    if (frequency) return NULL;
    for (int64_t i = 0; inverse && i < g->width; i++) counts[i] = counts[i] > 0;
    for (int i = 0; factor && i < g->index_count; i++) counts[g->indexes[i]] *= factor[i];
    return NULL;
}

static Status host_tfidf(HostCall *call) {
    Grams g;
    TRY(read_grams(call, &g));
    TRY(index_grams(call, &g));
    int64_t rows = g.x->rank == 2 ? g.x->dims[0] : 1, size = g.x->dims[g.x->rank - 1], dims[] = {rows, g.width};
    Tensor *result;
    TRY(host_output(call, 0, DT_F32, g.x->rank, dims + 2 - g.x->rank, &result));
    if (!result) return NULL;
    if (tensor_bytes(result)) memset(result->data, 0, tensor_bytes(result));
    for (int64_t row = 0; row < rows; row++) {
        float *counts = (float *)result->data + row * g.width;
        count_grams(&g, row, size, counts);
        TRY(weigh_grams(call, &g, counts));
    }
    return NULL;
}

static Status lower_tfidf(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (l->error) return l->error;
    if (x->rank != 1 && x->rank != 2) return invalid(l, "expected items of shape [C] or [N, C]");
    int count;
    const int64_t *indexes = attr_ints(n, "ngram_indexes", &count);
    int64_t width = 0;
    for (int i = 0; i < count; i++) {
        if (indexes[i] < 0 || indexes[i] >= INT32_MAX)
            return invalid(l, "ngram_indexes holds %lld", (long long)indexes[i]);
        if (indexes[i] >= width) width = indexes[i] + 1;
    }
    const Dim *dims[] = {x->dims[0], dim_const(l->dims, width)};
    Node *host = host_node(l, n, host_tfidf, &x, 1);
    return host ? out(l, n, 0, host_result(l, host, DT_F32, x->rank, dims + 2 - x->rank)) : l->error;
}

const OpRow ops_text[] = {
    {"", "StringNormalizer", 10, 0, lower_normalize, host_normalize, 0},
    {"", "StringConcat", 20, 0, lower_concat_strings, host_concat_strings, 0},
    {"", "StringSplit", 20, 0, lower_split_strings, host_split_strings, 0},
    {"", "RegexFullMatch", 20, 0, lower_regex, host_regex, 0},
    {"", "TfIdfVectorizer", 9, 0, lower_tfidf, host_tfidf, 0},
    {0},
};
