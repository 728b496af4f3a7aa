/* SPDX-License-Identifier: Apache-2.0 */
/* Strided bytes and halves to dense quads. */
#include "runtime/device/cpu/quads.h"

#include <string.h>
#include "runtime/device/cpu/work.h"

enum { PIECE = 1 << 12 }; /* quads a task takes at least: some microseconds */

typedef struct Gather {
    const QuadSource *source;
    uint32_t *to;
} Gather;

static const char *outer_at(const QuadSource *s, int64_t flat) {
    int64_t at = 0;
    for (int i = s->rank - 1; i >= 0; i--) {
        at += flat % s->dims[i] * s->strides[i];
        flat /= s->dims[i];
    }
    return (const char *)s->from + at * s->size;
}

static uint32_t number_at(const char *from, int size) {
    uint16_t half;
    if (size == 1) return (uint8_t)*from;
    memcpy(&half, from, sizeof half);
    return half;
}

/* Rows of numbers side by side, `stride` bytes apart: four of bytes, two of halves. */
static void interleave(const char *from, int size, int64_t stride, int64_t count, uint32_t *to) {
    const uint8_t *a = (const uint8_t *)from, *b = a + stride, *c = b + stride, *d = c + stride;
    if (size == 1)
        for (int64_t i = 0; i < count; i++)
            to[i] = (uint32_t)a[i] | (uint32_t)b[i] << 8 | (uint32_t)c[i] << 16 | (uint32_t)d[i] << 24;
    else
        for (int64_t i = 0; i < count; i++)
            to[i] = number_at((const char *)a + 2 * i, 2) | number_at((const char *)b + 2 * i, 2) << 16;
}

/* A quad of each inner index, of `depths` numbers. */
static void gather_quads(const QuadSource *s, const char *from, int64_t depths, uint32_t *to) {
    int64_t depth_stride = s->depth_stride * s->size, inner_stride = s->inner_stride * s->size;
    if (depths * s->size == QUAD && s->inner_stride == 1) {
        interleave(from, s->size, depth_stride, s->inner, to);
        return;
    }
    for (int64_t i = 0; i < s->inner; i++, from += inner_stride) {
        uint32_t quad = 0;
        for (int64_t k = 0; k < depths; k++) quad |= number_at(from + k * depth_stride, s->size) << 8 * s->size * k;
        to[i] = quad;
    }
}

/* Rows of at most eight bytes, as the pixels of a picture are, from row `first` on: each is read with what is behind it, which is
 * masked out, as far as there are eight bytes. How many rows that was. */
static int64_t gather_short_rows(const QuadSource *s, int64_t first, int64_t count, uint32_t *to) {
    const int64_t bytes = s->depth * s->size, stride = s->strides[0] * s->size, quads = quads_in(s->depth, s->size);
    const int64_t readable = (s->dims[0] - 1) * stride + bytes;
    const char *from = (const char *)s->from + first * stride;
    const uint64_t mask = bytes < 8 ? ((uint64_t)1 << 8 * bytes) - 1 : UINT64_MAX;
    int64_t done = 0;
    for (; done < count && (first + done) * stride + 8 <= readable; done++, from += stride, to += quads) {
        uint64_t row;
        memcpy(&row, from, sizeof row);
        row &= mask;
        to[0] = (uint32_t)row;
        if (quads > 1) to[1] = (uint32_t)(row >> 32);
    }
    return done;
}

static void gather(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Gather *g = context;
    const QuadSource *s = g->source;
    int64_t quads = quads_in(s->depth, s->size), most = QUAD / s->size;
    const bool is_short = s->rank == 1 && s->strides[0] >= 0 && s->depth_stride == 1 && s->inner == 1 && quads <= 2;
    for (int64_t at = begin; at < end;) {
        if (is_short && at % quads == 0) at += quads * gather_short_rows(s, at / quads, (end - at) / quads, g->to + at);
        if (at == end) break;
        int64_t quad = at % quads, until = end - at < quads - quad ? end : at + quads - quad;
        const char *from = outer_at(s, at / quads) + quad * QUAD * s->depth_stride;
        if (s->depth_stride == 1 && s->inner == 1) { /* a row as it lies */
            int64_t left = s->depth * s->size - quad * QUAD, bytes = (until - at) * QUAD;
            g->to[until - 1] = 0;
            memcpy(g->to + at, from, (size_t)(left < bytes ? left : bytes));
            at = until;
            continue;
        }
        for (; at < until; at++, quad++, from += QUAD * s->depth_stride) {
            int64_t left = s->depth - quad * most;
            gather_quads(s, from, left < most ? left : most, g->to + at * s->inner);
        }
    }
}

static int64_t quads_of(const QuadSource *s) {
    int64_t count = quads_in(s->depth, s->size);
    for (int i = 0; i < s->rank; i++) count *= s->dims[i];
    return count;
}

void quads_gather(const QuadSource *source, uint32_t *to, Pool *pool) {
    int64_t count = quads_of(source);
    if (!count || !source->inner) return;
    Gather g = {source, to};
    pool_tell((double)count * (double)source->inner * MOVING_WORK);
    pool_for(pool, count, source->inner < PIECE ? PIECE / source->inner : 1, gather, &g);
}

Status quads_take(const QuadSource *source, Pool *pool, Scratch *scratch, const void **out_data) {
    void *quads;
    TRY(scratch_take(scratch, (size_t)(quads_of(source) * source->inner) * QUAD, &quads));
    quads_gather(source, quads, pool);
    *out_data = quads;
    return NULL;
}
