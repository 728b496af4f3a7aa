/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_isa.h: the transforms of Winograd's convolution F(4x4, 3x3) (conv/winograd.c has the matrices). Even
 * and odd powers of the points are summed apart, which the points +p and -p then share. */

/* Bytes ahead along a pixel's channels that are asked for: what 36 pixels at once have there no machine guesses by itself. */
enum { WINOGRAD_AHEAD = 128 };

/* B^T d */
TILE_INLINE void winograd_forward(const VF d[6], VF t[6]) {
    VF even = d[4] - splat(2.25f) * d[2], odd = splat(0.75f) * d[3] - splat(1.6875f) * d[1];
    t[0] = splat(1.265625f) * d[0] + (d[4] - splat(2.8125f) * d[2]);
    t[1] = even + odd;
    t[2] = even - odd;
    even = d[4] - splat(0.5625f) * d[2];
    odd = splat(1.5f) * d[3] - splat(0.84375f) * d[1];
    t[3] = even + odd;
    t[4] = even - odd;
    t[5] = splat(1.265625f) * d[1] + (d[5] - splat(2.8125f) * d[3]);
}

/* A^T m */
TILE_INLINE void winograd_backward(const VF m[6], VF y[4]) {
    VF sum1 = m[1] + m[2], difference1 = m[1] - m[2], sum2 = m[3] + m[4], difference2 = m[3] - m[4];
    y[0] = m[0] + (sum1 + sum2);
    y[1] = splat(0.75f) * difference1 + splat(1.5f) * difference2;
    y[2] = splat(0.5625f) * sum1 + splat(2.25f) * sum2;
    y[3] = splat(0.421875f) * difference1 + (splat(3.375f) * difference2 + m[5]);
}

/* `count` channels of the input from this element on. */
TILE_INLINE VF winograd_pixel(const WinogradInput *in, int64_t element, const int count, const bool halves) {
    const void *at = (const void *)((uintptr_t)in->x + (uintptr_t)(element * (halves ? 2 : (int64_t)sizeof(float))));
    __builtin_prefetch((const char *)at + WINOGRAD_AHEAD);
    if (!halves) return count == LANES ? (VF) * (const VFLoose *)at : f32_load_part(at, count);
    if (count == LANES) return from_f16(at);
    uint16_t part[LANES] = {0};
    memcpy(part, at, (size_t)count * sizeof *part);
    return from_f16(part);
}

/* One vector of channels. */
TILE_INLINE void winograd_input_vector(const WinogradInput *in, int64_t channel, const bool whole, const int count,
                                       const bool halves) {
    VF columns[6][6], d[6];
    TILE_UNROLL
    for (int x = 0; x < 6; x++) {
        TILE_UNROLL
        for (int y = 0; y < 6; y++) {
            bool inside = whole || ((in->lines >> y & 1) && (in->pixels >> x & 1));
            d[y] = inside ? winograd_pixel(in, y * in->line + x * in->pixel + channel, count, halves) : splat(0);
        }
        winograd_forward(d, columns[x]);
    }
    TILE_UNROLL
    for (int y = 0; y < 6; y++) {
        VF t[6];
        TILE_UNROLL
        for (int x = 0; x < 6; x++) d[x] = columns[x][y];
        winograd_forward(d, t);
        TILE_UNROLL
        for (int x = 0; x < 6; x++) *(VFLoose *)((float *)in->to + (y * 6 + x) * in->stride + channel) = t[x];
    }
}

TILE_INLINE void winograd_input_of(const WinogradInput *in, const bool halves) {
    const bool whole = in->lines == 63 && in->pixels == 63;
    int64_t channel = 0;
    for (; whole && channel + LANES <= in->channels; channel += LANES)
        winograd_input_vector(in, channel, true, LANES, halves);
    for (; channel < in->channels; channel += LANES) {
        int64_t left = in->channels - channel;
        winograd_input_vector(in, channel, false, left < LANES ? (int)left : LANES, halves);
    }
}

static void winograd_input(const WinogradInput *in) {
    if (in->halves)
        winograd_input_of(in, true);
    else
        winograd_input_of(in, false);
}

/* One vector of columns. */
TILE_INLINE void winograd_output_vector(const WinogradOutput *out, const f32_Limits *limits, int64_t first,
                                        const int count) {
    const TileCall *ends = &out->ends;
    const int64_t column = ends->column + first;
    VF columns[6][4], m[6];
    TILE_UNROLL
    for (int x = 0; x < 6; x++) {
        TILE_UNROLL
        for (int y = 0; y < 6; y++)
            m[y] = *(const VFLoose *)((const float *)out->from + (y * 6 + x) * out->stride + first);
        winograd_backward(m, columns[x]);
    }
    const BoundKind kind = bound_kind(&ends->bounds);
    VF bias = ends->bias ? (VF) * (const VFLoose *)((const float *)ends->bias + column) : splat(0);
    TILE_UNROLL
    for (int y = 0; y < 4; y++) {
        VF line[4];
        TILE_UNROLL
        for (int x = 0; x < 6; x++) m[x] = columns[x][y];
        winograd_backward(m, line);
        TILE_UNROLL
        for (int x = 0; x < 4; x++) {
            float *to = ends->results[y * 4 + x];
            if (!to) continue;
            VF value = line[x] + bias;
            if (ends->has_addend)
                value += f32_load((const float *)((intptr_t)to + ends->addend_shift) + column, 0, 1, count);
            f32_store(to + column, 0, 1, count, f32_bounded(value, limits, kind));
        }
    }
}

static void winograd_output(const WinogradOutput *out) {
    f32_Limits limits;
    f32_limits(&limits, &out->ends.bounds);
    for (int64_t first = 0; first < out->ends.columns; first += LANES) {
        int64_t left = out->ends.columns - first;
        winograd_output_vector(out, &limits, first, left < LANES ? (int)left : LANES);
    }
}
