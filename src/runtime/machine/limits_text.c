/* SPDX-License-Identifier: Apache-2.0 */
/* Limits as text, for the file in which they are remembered:
 *
 *     onnxfuse limits 3 <hash of all that follows>
 *     AMD EPYC 9R14, 2 cores, 2 threads
 *     threads 2
 *     products 2.9e11 1.4e11 2.9e11 5.8e11 1.2e12
 *     bandwidth 131072 5e11 2e11 3e11
 *     ...
 */
#include "runtime/machine/limits.h"

#include <math.h>
#include <string.h>
#include "base/map.h"
#include "base/plain.h"

static const char title[] = "onnxfuse limits 3 ";
enum { HASH_DIGITS = 16 };

static void hash_text(const char *text, size_t size, char out[HASH_DIGITS + 1]) {
    plain_print(out, HASH_DIGITS + 1, "%016llx", (unsigned long long)hash_bytes(text, size, 1));
}

static void add_numbers(Text *text, const char *name, const double *numbers, int count) {
    text_add(text, "%s", name);
    for (int i = 0; i < count; i++) {
        text_add(text, " ");
        text_add_double(text, numbers[i]);
    }
    text_add(text, "\n");
}

void limits_print(Text *text, const char *key, const MachineLimits *limits) {
    Text body = text_make(text->arena);
    text_add(&body, "%s\nthreads %d\n", key, limits->threads);
    add_numbers(&body, "products", limits->products, WORK_TYPES);
    for (int i = 0; i < limits->count; i++) {
        const Bandwidth *b = &limits->bandwidths[i];
        add_numbers(&body, "bandwidth", (double[]){b->bytes, b->read, b->write, b->copy}, 4);
    }
    char hash[HASH_DIGITS + 1];
    hash_text(body.data, body.size, hash);
    text_add(text, "%s%s\n", title, hash);
    text_add_bytes(text, body.data, body.size);
}

/* --- reading --- */
static bool take(const char **at, const char *end, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(end - *at) < length || memcmp(*at, word, length) != 0) return false;
    *at += length;
    return true;
}

/* " 1 2 3\n", all above 0. The text is terminated behind `end`. */
static bool take_numbers(const char **at, const char *end, double *out, int count) {
    for (int i = 0; i < count; i++) {
        char *after;
        if (!take(at, end, " ")) return false;
        out[i] = plain_double(*at, &after);
        if (after == *at || after > end || !isfinite(out[i]) || !(out[i] > 0)) return false;
        *at = after;
    }
    return take(at, end, "\n");
}

static bool take_body(const char *at, const char *end, const char *key, MachineLimits *out) {
    double threads, row[4];
    if (!take(&at, end, key) || !take(&at, end, "\nthreads") || !take_numbers(&at, end, &threads, 1)) return false;
    if (threads > 1e6 || !take(&at, end, "products") || !take_numbers(&at, end, out->products, WORK_TYPES))
        return false;
    out->threads = (int)threads;
    while (out->count < MOST_BANDWIDTHS && take(&at, end, "bandwidth") && take_numbers(&at, end, row, 4)) {
        if (out->count && row[0] <= out->bandwidths[out->count - 1].bytes) return false;
        out->bandwidths[out->count++] = (Bandwidth){row[0], row[1], row[2], row[3]};
    }
    return at == end && out->count > 0;
}

bool limits_parse(const char *text, size_t size, const char *key, MachineLimits *out_limits) {
    const char *at = text, *end = text + size;
    char hash[HASH_DIGITS + 1], copy[4096];
    *out_limits = (MachineLimits){0};
    if (size >= sizeof copy || !take(&at, end, title) || (size_t)(end - at) < HASH_DIGITS + 1) return false;
    const char *body = at + HASH_DIGITS + 1;
    hash_text(body, (size_t)(end - body), hash);
    if (memcmp(at, hash, HASH_DIGITS) != 0 || at[HASH_DIGITS] != '\n') return false;
    size_t length = (size_t)(end - body);
    memcpy(copy, body, length);
    copy[length] = 0;
    return take_body(copy, copy + length, key, out_limits);
}
