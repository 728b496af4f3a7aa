/* SPDX-License-Identifier: Apache-2.0 */
/* What Sampling draws and how. The sums are floats, as ONNX Runtime's are, so that the same tokens are at the edge; the random
 * numbers are those of its builds for Linux: std::minstd_rand0 (Park and Miller, "Random Number Generators: Good Ones Are Hard
 * to Find", 1988), of which a uniform double takes two. */
#include "ops/generation/sample.h"

#include <math.h>
#include <stdlib.h>

/* ---- what may be drawn ---- */

static int falling(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return (x->token > y->token) - (x->token < y->token);
}

static int rising(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? 1 : -1;
    return (x->token > y->token) - (x->token < y->token);
}

/* Turns the scores of ranked tokens into their shares, in [0, 1]. */
static void take_shares(Ranked *ranked, int64_t count, float largest) {
    float total = 0;
    for (int64_t i = 0; i < count; i++) total += ranked[i].score = expf(ranked[i].score - largest);
    for (int64_t i = 0; i < count; i++) ranked[i].score /= total;
}

/* Best first: each token behind those that make up more than top_p is left out. */
static void leave_out_rest(const Ranked *ranked, int64_t count, float top_p, float filter, float *scores) {
    float sum = 0;
    for (int64_t i = 0; i + 1 < count; i++) {
        sum += ranked[i].score;
        if (sum > top_p) scores[ranked[i + 1].token] = filter;
    }
}

/* Worst first: tokens that make up no more than 1 - top_p are left out, but not the last `keep` ones. */
static void leave_out_tail(const Ranked *ranked, int64_t count, float top_p, int64_t keep, float filter,
                           float *scores) {
    float sum = 0;
    for (int64_t i = 0; i < count - keep || i == 0; i++) {
        sum += ranked[i].score;
        if (sum <= 1 - top_p) scores[ranked[i].token] = filter;
    }
}

void sample_filter(const Node *n, float *scores, int64_t vocabulary, Ranked *ranked) {
    float top_p = (float)attr_float(n, "top_p", 0), filter = (float)attr_float(n, "filter_value", -1e20);
    bool custom = attr_int(n, "custom", 0) != 0;
    float largest = -INFINITY;
    for (int64_t v = 0; v < vocabulary; v++) {
        ranked[v] = (Ranked){scores[v], (int32_t)v};
        if (scores[v] > largest) largest = scores[v];
    }
    qsort(ranked, (size_t)vocabulary, sizeof *ranked, custom ? falling : rising);
    take_shares(ranked, vocabulary, largest);
    if (custom)
        leave_out_rest(ranked, vocabulary, top_p, filter, scores);
    else
        leave_out_tail(ranked, vocabulary, top_p, attr_int(n, "min_tokens_to_keep", 0), filter, scores);
}

/* ---- the draw ---- */

enum { ENGINE_FACTOR = 16807, ENGINE_MODULUS = 2147483647 };

static double next_number(uint32_t *engine) {
    if (*engine % ENGINE_MODULUS == 0) *engine = 1;
    *engine = (uint32_t)((uint64_t)*engine * ENGINE_FACTOR % ENGINE_MODULUS);
    return *engine - 1.0;
}

static double uniform(uint32_t *engine) {
    const double range = ENGINE_MODULUS - 1.0;
    double low = next_number(engine), high = next_number(engine), u = (low + high * range) / (range * range);
    return u < 1 ? u : nextafter(1, 0);
}

int64_t sample_draw(const float *scores, int64_t vocabulary, uint32_t *engine) {
    float largest = -INFINITY;
    double total = 0, sum = 0;
    for (int64_t v = 0; v < vocabulary; v++)
        if (isfinite(scores[v]) && scores[v] > largest) largest = scores[v];
    for (int64_t v = 0; v < vocabulary; v++)
        if (isfinite(scores[v])) total += exp((double)(scores[v] - largest));
    double target = uniform(engine) * total;
    int64_t last = -1;
    for (int64_t v = 0; v < vocabulary; v++) {
        if (!isfinite(scores[v])) continue;
        sum += exp((double)(scores[v] - largest));
        last = v;
        if (sum > target) break;
    }
    return last;
}
