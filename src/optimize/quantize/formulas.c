/* SPDX-License-Identifier: Apache-2.0 */
#include "optimize/quantize/formulas.h"

#include <float.h>
#include <math.h>

Levels levels_of(double low, double high) {
    if (low > 0) low = 0;
    if (high < 0) high = 0;
    Levels levels = {(float)((high - low) / 255), 0};
    if (!(levels.scale >= FLT_MIN)) levels.scale = 1; /* all zeros, or what is no normal number */
    double zero_point = nearbyint(-low / levels.scale);
    levels.zero_point = (int)fmin(fmax(zero_point, 0), 255);
    return levels;
}

/* --- the range by entropy --- */

/* How much the first `kept` bins, with what lies above in the last of them, lose when `levels` groups of equal width are all that
 * is told apart: each group's sum is spread evenly over those of its bins in which there is something. */
static double divergence(const double *histogram, double above, int kept, int levels) {
    double inside = 0, sum = 0;
    for (int i = 0; i < kept; i++) inside += histogram[i];
    double total = inside + above;
    if (!(inside > 0)) return INFINITY;
    for (int level = 0; level < levels; level++) {
        int from = (int)((int64_t)kept * level / levels), to = (int)((int64_t)kept * (level + 1) / levels), filled = 0;
        double mass = 0;
        for (int i = from; i < to; i++) mass += histogram[i], filled += histogram[i] > 0;
        for (int i = from; i < to; i++) {
            double p = histogram[i] + (i == kept - 1 ? above : 0);
            /* A bin that holds nothing but what was cut off is told by nothing: as if half an element were in it. */
            double q = histogram[i] > 0 ? mass / filled : 0.5;
            if (p > 0) sum += p / total * log(p / q);
        }
    }
    return sum + log(inside / total); /* both are distributions */
}

double entropy_cut(const double *histogram, double largest, int levels) {
    enum { STEP = 8 }; /* bins: a two hundred and fifty-sixth of the range */
    double least = INFINITY, above = 0, all = 0;
    int best = HISTOGRAM_BINS;
    for (int i = 0; i < HISTOGRAM_BINS; i++) all += histogram[i];
    if (!(all > 0)) return largest;
    for (int kept = HISTOGRAM_BINS; kept >= levels; kept -= STEP) {
        double loss = divergence(histogram, above, kept, levels);
        if (loss < least) least = loss, best = kept;
        for (int i = kept - STEP; i < kept; i++) above += histogram[i];
    }
    return largest * best / HISTOGRAM_BINS;
}

/* --- weights --- */

static void compare(Stored *s, double weight, double stored) {
    double difference = fabs(weight - stored);
    s->noise += difference * difference;
    s->signal += weight * weight;
    if (difference > s->worst) s->worst = difference;
}

/* w as [outer][size][inner] around the axis. */
typedef struct Around {
    int64_t outer, size, inner;
} Around;

static Around around(const Tensor *w, int axis) {
    Around a = {1, w->dims[axis], 1};
    for (int i = 0; i < axis; i++) a.outer *= w->dims[i];
    for (int i = axis + 1; i < w->rank; i++) a.inner *= w->dims[i];
    return a;
}

static double clamped(double value, double low, double high) { return fmin(fmax(nearbyint(value), low), high); }

Stored weight_as_i8(Arena *arena, const Tensor *w, int axis, const float *least) {
    Around a = around(w, axis);
    Stored s = {tensor_new_unset(arena, DT_I8, w->rank, w->dims), tensor_new(arena, DT_F32, 1, &a.size),
                tensor_new(arena, DT_I8, 1, &a.size)};
    const float *from = w->data;
    float *scale = s.scale->data;
    int8_t *to = s.data->data;
    for (int64_t i = 0, n = a.outer * a.size * a.inner; i < n; i++) {
        float *largest = &scale[i / a.inner % a.size];
        if (fabsf(from[i]) > *largest) *largest = fabsf(from[i]);
    }
    for (int64_t c = 0; c < a.size; c++) {
        scale[c] = scale[c] / 127 >= FLT_MIN ? scale[c] / 127 : 1;
        if (least && scale[c] < least[c]) scale[c] = least[c];
    }
    for (int64_t i = 0, n = a.outer * a.size * a.inner; i < n; i++) {
        float step = scale[i / a.inner % a.size];
        to[i] = (int8_t)clamped(from[i] / step, -127, 127);
        compare(&s, from[i], (double)to[i] * step);
    }
    return s;
}

Stored weight_as_i4(Arena *arena, const Tensor *w, int axis, int64_t block) {
    Around a = around(w, axis);
    int64_t dims[MAX_RANK], blocks = (a.size + block - 1) / block;
    for (int i = 0; i < w->rank; i++) dims[i] = i == axis ? blocks : w->dims[i];
    Stored s = {tensor_new_unset(arena, DT_I4, w->rank, w->dims), tensor_new(arena, DT_F32, w->rank, dims), NULL};
    const float *from = w->data;
    float *scale = s.scale->data;
    int8_t *to = s.data->data;
#define BLOCK_OF(i) (((i) / a.inner / a.size * blocks + (i) / a.inner % a.size / block) * a.inner + (i) % a.inner)
    for (int64_t i = 0, n = a.outer * a.size * a.inner; i < n; i++) {
        float *furthest = &scale[BLOCK_OF(i)];
        if (fabsf(from[i]) > fabsf(*furthest)) *furthest = from[i];
    }
    for (int64_t i = 0; i < a.outer * blocks * a.inner; i++)
        scale[i] = fabsf(scale[i]) / 8 >= FLT_MIN ? scale[i] / -8 : 1;
    for (int64_t i = 0, n = a.outer * a.size * a.inner; i < n; i++) {
        float step = scale[BLOCK_OF(i)];
        to[i] = (int8_t)clamped(from[i] / step, -8, 7);
        compare(&s, from[i], (double)to[i] * step);
    }
#undef BLOCK_OF
    return s;
}

Stored weight_as_bf16(Arena *arena, const Tensor *w) {
    Stored s = {tensor_new_unset(arena, DT_BF16, w->rank, w->dims)};
    const float *from = w->data;
    uint16_t *to = s.data->data;
    for (int64_t i = 0, n = tensor_count(w); i < n; i++) {
        to[i] = f32_to_bf16(from[i]);
        compare(&s, from[i], bf16_to_f32(to[i]));
    }
    return s;
}
