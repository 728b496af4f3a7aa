/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of 3x3 and stride 1 with a quarter of the multiplications: S. Winograd, Arithmetic Complexity of
 * Computations (1980), in the form of A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks (2015).
 * 4x4 pixels of the result (a tile) are
 *
 *     Y = A^T [(G g G^T) * (B^T d B)] A        (* element by element, summed over channels)
 *
 * of a 6x6 piece d of the input and the kernel g: 36 products of matrices [tiles][channels] and [channels][columns].
 * The matrices follow from five points at which polynomials are evaluated, and infinity (Toom-Cook). Those here are 0,
 * +-3/4 and +-3/2. With them, on normally distributed numbers and 64 channels, the error's root mean square is 1.9 times
 * that of the direct sum, with the customary 0, +-1 and +-2 4.6 times; all constants are exact. The bound on the error
 * that tests hold it to is the usual one, with the magnitudes of all matrices and factors:
 *
 *     |error| <= gamma(channels + 32) |A^T| [(|G| |g| |G^T|) * (|B^T| |d| |B|)] |A|
 *
 * (N. Higham, Accuracy and Stability of Numerical Algorithms, section 3: gamma(n) = n u / (1 - n u); 32 roundings are
 * more than the transforms do to any number). Transformed kernels are rounded once from double.
 *
 * Bytes are multiplied so, too, in 2x2 pixels of the result and 16 products (tiles/quads/tile_words_avx2.c), where that is faster.
 *
 * Groups are products of their own. A slice is some tiles and a range of panels; its pieces' transforms, of a group at a time,
 * and its products stay in the second-level cache. */
#include <string.h>
#include "base/integer.h"
#include "lowering/sizes.h"
#include "runtime/device/cpu/conv/walk.h"
#include "runtime/device/cpu/quads.h"

enum {
    SLICE_BYTES = 512 * 1024, /* of transforms and products: half of a second-level cache of 1 MB */
    MOST_TILES = 48,
    GROUP_PIXELS =
        48,   /* of tiles that are finished at once: of whole ones, whose raw results stay in the first-level cache */
    PAD = 16, /* elements between products, so that they do not all begin in the same set of the first-level cache */
};

/* G: row i is [1, p, p^2] / N(p), N(p) the product of the differences to the other points; the last is the leading
 * coefficient. */
static const double kernel_points[5] = {0, 0.75, -0.75, 1.5, -1.5};

static void kernel_rows(double g[WINOGRAD_PIXELS][3]) {
    for (int i = 0; i < 5; i++) {
        double n = 1, p = kernel_points[i];
        for (int j = 0; j < 5; j++)
            if (j != i) n *= p - kernel_points[j];
        g[i][0] = 1 / n;
        g[i][1] = p / n;
        g[i][2] = p * p / n;
    }
    g[5][0] = g[5][1] = 0;
    g[5][2] = 1;
}

/* ---- where it is used ---- */

/* Times of the direct product over this, on two threads of an AMD EPYC of family 26 with 512-bit vectors, weights in the
 * caches (cpu_anchor_run of one layer with and without attr winograd = 0, the shortest of each in turn):
 *
 *     channels>columns   7     14    28    56    112 pixels wide and high
 *       3>32           0.84  0.92  0.81  0.66  0.56
 *       8>32           1.13  1.17  1.17  1.04  1.00
 *      16>16           1.15  1.26  1.55  1.47  1.47
 *      32>8            1.29  1.62  2.08  2.05  2.01
 *      32>32           1.45  1.90  1.97  2.33  2.32
 *      64>64           1.46  2.24  3.17  3.07  2.64
 *      96>24           1.65  2.45  2.00  2.13  2.43
 *     128>128          1.65  2.01  3.17  3.34
 *     256>256          1.90  1.98  2.67
 *     512>512          1.20  0.89
 *
 * Where each run transforms its kernels, on 64x64 pixels (256 tiles), 16>16 1.4, 32>32 1.8, 128>128 2.4, and on 96x96 2.0 for 32>32, 2.7 for
 * 128>128 (whole runs of `onnxfuse bench` of one layer whose weight is an input, on an AMD EPYC of 2 cores, 2026-11-23).
 *
 * With vectors of 8 and weights from memory (four layers after each other, an AMD EPYC of family 25, `onnxfuse bench`, least of 2, one
 * thread and two, 2026-11-28): 192>192 on 28x28 3.0 and 2.6, 256>256 on 14x14 2.0 and 2.3, on 28x28 2.9 and 2.7, 320>320 on 32x32 2.8 and
 * 2.4, 384>384 on 14x14 2.0 and 1.9, 512>512 on 7x7 .9 and .9, on 14x14 1.2, on 28x28 1.8 and 1.7, 640>640 on 16x16 1.3 and 1.6.
 *
 * Of groups, so many channels and columns each (likewise, one thread): 16>16 of 32 groups on 14x14 1.0, on 28x28 1.3; 24>24 of 10 on 14x14
 * 1.3; 32>32 of 32 on 14x14 1.2, on 7x7 1.06; 48>48 of 8 on 14x14 1.8; in a RegNetY 64>64 of 3 on 28x28 2.5, of 8 on 14x14 1.9, on 7x7 1.45.
 *
 * With few channels, transforms cost what products save. Many kernels are four times their bytes, which a model reads
 * from memory, and keeps: they are taken only where there are tiles to pay for that. */
enum {
    LEAST_CHANNELS = 16,
    LEAST_COLUMNS = 8,
    SMALL_KERNELS = 128 * 128, /* up to so many, the size of the result does not matter */
    KERNELS_A_TILE = 10240,    /* beyond: at least a tile for so many kernels */
    /* Likewise, with vectors of 16, whose products take half the time and leave less to save. */
    KERNELS_A_TILE_16 = 2048,
    TILES_AT_RUN = 256, /* of all images, where each run transforms its kernels */
};

/* Bytes, where products are of words of 16 bits (AVX2), by F(2x2, 3x3), which is exact: its matrices hold whole numbers, those of kernels
 * doubled, and four times the result is less than 2^31. Times of the direct product over this, one thread of an AMD EPYC of family 25, the
 * shortest runs of `onnxfuse bench` of one layer with and without {"winograd": false} in turn, beside other programs:
 *
 *     channels>columns   7     14    28    56 pixels wide and high
 *      16>16           1.25  1.18  1.04  0.97
 *      16>64                       0.94
 *      32>16                       1.23
 *      32>32           1.21  1.29  1.23  1.21
 *      64>64           1.47  1.64  1.57  1.60
 *     128>128          1.62  1.86  1.91
 *     256>256          1.76  2.14
 *     512>512          1.90
 *
 * In a model many kernels come from memory, and are 3.6 times their bytes. */
enum {
    MOST_BYTES = ((1 << 29) - 1) / (9 * 255 * 128), /* channels */
    LEAST_BYTES = 32,                               /* likewise */
    LEAST_BYTE_COLUMNS = 16,
    BYTE_KERNELS_A_TILE = 2048, /* beyond SMALL_KERNELS */
};

static int64_t tiles_along(int64_t extent, int results) { return (extent + results - 1) / results; }

static int64_t known_tiles(const Node *node, int results) {
    const Value *y = node->outputs[0];
    int64_t height, width;
    if (!dim_is_const(y->dims[1], &height) || !dim_is_const(y->dims[2], &width)) return 0;
    return tiles_along(height, results) * tiles_along(width, results);
}

/* A transposed convolution of stride 1 is one by the kernel turned round. */
static bool winograd_computes(const CpuAnchor *anchor, const Conv *c) {
    const Node *node = anchor->node;
    if (c->spatial != 2 || c->turned || anchor->form.kind) return false;
    if (c->group > 1 && (c->transposed || anchor->dtype == DT_U8)) return false;
    if (!attr_int(node, "winograd", 1)) return false;
    for (int i = 1; i < AXES; i++)
        if (c->kernel[i] != 3 || c->strides[i] != 1 || c->dilations[i] != 1) return false;
    if (anchor->dtype == DT_U8)
        return !c->transposed && c->inputs >= LEAST_BYTES && c->inputs <= MOST_BYTES &&
               c->outputs >= LEAST_BYTE_COLUMNS;
    return anchor->type == DT_F32 && c->inputs >= LEAST_CHANNELS && c->outputs >= LEAST_COLUMNS;
}

static TileWinograd loops_of(const CpuAnchor *anchor) { return tile_winograd(anchor->dtype == DT_U8 ? DT_U8 : DT_F32); }

/* Whether there are enough of them to pay for the kernels. */
static bool has_tiles(const CpuAnchor *anchor, const Conv *c, int64_t tiles) {
    int64_t a_tile = anchor->dtype == DT_U8              ? BYTE_KERNELS_A_TILE
                     : loops_of(anchor).set->lanes >= 16 ? KERNELS_A_TILE_16
                                                         : KERNELS_A_TILE;
    const int64_t kernels = c->group * c->inputs * c->outputs;
    return kernels <= SMALL_KERNELS || tiles >= ceil_div(kernels, a_tile);
}

/* Whether a compiled model holds bytes so: it may have been made where products of bytes are others. */
static bool holds_words(const CpuAnchor *anchor, const Conv *c) {
    const int lanes = loops_of(anchor).set->lanes;
    int64_t direct = (c->outputs + lanes - 1) / lanes * lanes * 9 * quads_in(c->inputs, 1) * QUAD;
    return anchor->given_count > 0 && (int64_t)anchor->given[0].bytes >= 2 * direct;
}

int winograd_fits(const CpuAnchor *anchor, const Conv *c) {
    const TileWinograd loops = loops_of(anchor);
    const bool bytes = anchor->dtype == DT_U8;
    if (!loops.set || !winograd_computes(anchor, c)) return 0;
    if (!has_tiles(anchor, c, known_tiles(anchor->node, loops.results))) return 0;
    if (bytes && !(anchor->given ? holds_words(anchor, c) : tile_quads_in_pairs())) return 0;
    return loops.pixels * loops.pixels;
}

int winograd_fits_run(const CpuAnchor *anchor, const Conv *c, const Sizes *s) {
    int64_t tiles = s->batch * tiles_along(s->out[1], WINOGRAD_RESULTS) * tiles_along(s->out[2], WINOGRAD_RESULTS);
    bool fits =
        anchor->dtype != DT_U8 && tiles >= TILES_AT_RUN && winograd_computes(anchor, c) && has_tiles(anchor, c, tiles);
    return fits ? WINOGRAD_PRODUCTS : 0;
}

/* ---- kernels ---- */

enum { TOGETHER = 16 }; /* kernels that are transformed side by side */

typedef struct Transform {
    const char *from; /* float [count][3][3], of any alignment */
    float *to;        /* [count][WINOGRAD_PRODUCTS] */
    int64_t count;
    bool turned; /* by 180 degrees */
    double g[WINOGRAD_PIXELS][3];
} Transform;

/* a, b, c: [TOGETHER] */
static inline void combine(const double *g, const double *a, const double *b, const double *c, double *to) {
    for (int k = 0; k < TOGETHER; k++) to[k] = a[k] * g[0] + b[k] * g[1] + c[k] * g[2];
}

VECTORISED static void transform_some(const double g[WINOGRAD_PIXELS][3], double kernels[9][TOGETHER],
                                      float to[WINOGRAD_PRODUCTS][TOGETHER]) {
    double half[WINOGRAD_PIXELS][3][TOGETHER], whole[TOGETHER];
    for (int i = 0; i < WINOGRAD_PIXELS; i++)
        for (int x = 0; x < 3; x++) combine(g[i], kernels[x], kernels[3 + x], kernels[6 + x], half[i][x]);
    for (int i = 0; i < WINOGRAD_PIXELS; i++)
        for (int j = 0; j < WINOGRAD_PIXELS; j++) {
            combine(g[j], half[i][0], half[i][1], half[i][2], whole);
            for (int k = 0; k < TOGETHER; k++) to[i * WINOGRAD_PIXELS + j][k] = (float)whole[k];
        }
}

static void transform_kernels(void *context, int64_t begin, int64_t end, int worker) {
    const Transform *t = context;
    double kernels[9][TOGETHER] = {{0}};
    float to[WINOGRAD_PRODUCTS][TOGETHER], from[9];
    (void)worker;
    for (int64_t first = begin * TOGETHER; first < end * TOGETHER; first += TOGETHER) {
        int64_t some = t->count - first < TOGETHER ? t->count - first : TOGETHER;
        for (int64_t k = 0; k < some; k++) {
            memcpy(from, t->from + (first + k) * (int64_t)sizeof from, sizeof from);
            for (int i = 0; i < 9; i++) kernels[i][k] = (double)from[t->turned ? 8 - i : i];
        }
        transform_some(t->g, kernels, to);
        for (int64_t k = 0; k < some; k++)
            for (int p = 0; p < WINOGRAD_PRODUCTS; p++) t->to[(first + k) * WINOGRAD_PRODUCTS + p] = to[p][k];
    }
}

/* ---- kernels of bytes ---- */

/* 2 G g, whose factors are whole numbers */
static void combine_bytes(const int *g, int step, int *to) {
    const int a = g[0], b = g[step], c = g[2 * step];
    to[0] = 2 * a;
    to[1] = a + b + c;
    to[2] = a - b + c;
    to[3] = 2 * c;
}

static void transform_bytes(const int8_t *from, int16_t *to, int64_t step) {
    int kernel[9], half[3][4], whole[4];
    for (int i = 0; i < 9; i++) kernel[i] = from[i];
    for (int x = 0; x < 3; x++) combine_bytes(kernel + x, 3, half[x]);
    for (int i = 0; i < 4; i++) {
        combine_bytes(&half[0][i], 4, whole);
        for (int j = 0; j < 4; j++) to[(i * 4 + j) * step] = (int16_t)whole[j];
    }
}

typedef struct ByteTransform {
    const Conv *conv;
    const int8_t *from;
    int16_t *to;
} ByteTransform;

/* Pairs of channels are elements: [outputs][pairs][products][2]. */
static void transform_outputs(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const ByteTransform *t = context;
    const Conv *c = t->conv;
    const int64_t pairs = 2 * c->inputs;
    for (int64_t o = begin; o < end; o++)
        for (int64_t k = 0; k < c->channels; k++)
            transform_bytes(t->from + (o * c->channels + k) * 9, t->to + (o * pairs + k / 2) * c->winograd * 2 + k % 2,
                            2);
}

static Status weight_of_bytes(const Conv *c, Scratch *scratch, Pool *pool, const void **w) {
    size_t bytes = (size_t)(c->outputs * 2 * c->inputs * c->winograd) * 2 * sizeof(int16_t);
    void *to;
    TRY(scratch_take(scratch, bytes, &to));
    memset(to, 0, bytes); /* channels that fill up the last quad */
    ByteTransform t = {c, *w, to};
    pool_for(pool, c->outputs, 1, transform_outputs, &t);
    *w = to;
    return NULL;
}

Status winograd_weight(const Conv *c, Scratch *scratch, Pool *pool, const void **w) {
    if (c->quads) return weight_of_bytes(c, scratch, pool, w);
    Transform t = {.from = *w, .count = c->group * c->inputs * c->outputs, .turned = c->transposed};
    void *to;
    TRY(scratch_take(scratch, (size_t)t.count * WINOGRAD_PRODUCTS * sizeof(float), &to));
    t.to = to;
    kernel_rows(t.g);
    pool_for(pool, (t.count + TOGETHER - 1) / TOGETHER, 16, transform_kernels, &t);
    *w = to;
    return NULL;
}

/* ---- runs ---- */

typedef struct Loop {
    TileWinograd loops;
    int products;
    const Walk *walk;
    const Weight *weight;
    const BoundEpilogue *epilogue;
    int64_t down, across, tiles;                        /* of an image; of all */
    int64_t slice_tiles, chunks, ranges;                /* ranges: of panels */
    int64_t channels, width, input_stride, sums_stride; /* the first two in whole vectors */
    char *memory;
    size_t worker_bytes;
} Loop;

/* What a worker holds. */
typedef struct Slice {
    float *input, *sums, *raw; /* raw: some tiles' columns of a panel, where a kernel finishes them */
    const void **rows;         /* [slice_tiles] of the input's first product */
    void **results;            /* likewise of the sums' */
} Slice;

/* Which of the tile's positions from `first` on are in [0, count). */
static uint32_t inside(int pixels, int64_t first, int64_t count) {
    uint32_t bits = 0;
    for (int i = 0; i < pixels; i++) bits |= (uint32_t)(first + i >= 0 && first + i < count) << i;
    return bits;
}

/* A group's channels. */
static void transform_tile(const Loop *loop, int64_t tile, int64_t group, float *to) {
    const Walk *w = loop->walk;
    const Sizes *s = w->sizes;
    const int step = loop->loops.results, pixels = loop->loops.pixels;
    int64_t n = tile / (loop->down * loop->across), y = tile / loop->across % loop->down * step,
            x = tile % loop->across * step;
    y += w->shift[1][0];
    x += w->shift[2][0];
    WinogradInput in = {.line = s->in[2] * s->in_channels,
                        .pixel = s->in_channels,
                        .halves = w->x_size != w->size,
                        .lines = inside(pixels, y, s->in[1]),
                        .pixels = inside(pixels, x, s->in[2]),
                        .channels = s->in_channels / loop->weight->groups,
                        .to = to,
                        .stride = loop->input_stride};
    memcpy(&in.padding, w->zeros, sizeof in.padding);
    const int64_t at = ((n * s->in[1] + y) * s->in[2] + x) * s->in_channels + group * in.channels;
    in.x = (const void *)((uintptr_t)w->x + (uintptr_t)(at * w->x_size));
    loop->loops.input(&in);
}

/* The products of one panel. */
static void multiply(const Loop *loop, const Slice *slice, int64_t count, const Panel *panel) {
    const Weight *w = loop->weight;
    const TileSet *set = w->set;
    const int64_t none = 0, width = (int64_t)panel->vectors * set->lanes;
    const size_t product_bytes = (size_t)(w->depth * width) * sizeof(float);
    TileCall call = {.offsets = &none, .taps = 1, .depth = w->depth, .weight_stride = width, .columns = (int)width};
    for (int p = 0; p < loop->products; p++) {
        call.weight = (const char *)w->data + panel->at + (size_t)p * product_bytes;
        call.offset = p * loop->input_stride;
        call.column = p * loop->sums_stride;
        call.rows = slice->rows;
        call.results = slice->results;
        tile_products(set, panel->vectors, (int)count, &call, (const char *)call.weight + product_bytes,
                      (int64_t)product_bytes);
    }
}

/* How many tiles from this one on, of `left`, are finished at once: neighbours in a line of tiles, whose pixels follow each other in
 * the result, so that a kernel has long runs of them. */
static int tiles_together(const Loop *loop, int64_t tile, int64_t left) {
    const int pixels = loop->loops.results * loop->loops.results;
    return (int)least(least(left, GROUP_PIXELS / pixels), loop->across - tile % loop->across);
}

/* Their pixels in the result, line by line: how many there are; which of which tile's they are. */
static int group_pixels(const Loop *loop, int64_t tile, int tiles, void **results, int *places) {
    const Walk *w = loop->walk;
    const Sizes *s = w->sizes;
    int count = 0;
    const int step = loop->loops.results;
    int64_t n = tile / (loop->down * loop->across), y = tile / loop->across % loop->down * step,
            x = tile % loop->across * step;
    for (int i = 0; i < step; i++)
        for (int j = 0; j < tiles * step; j++) {
            if (y + i >= s->out[1] || x + j >= s->out[2]) continue;
            int64_t at = ((n * s->out[1] + y + i) * s->out[2] + x + j) * s->out_channels;
            places[count] = (j / step * step + i) * step + j % step;
            results[count++] = w->y + at * (int64_t)sizeof(float);
        }
    return count;
}

/* A panel's columns of neighbouring tiles, from their products. */
static void finish_tiles(const Loop *loop, const Slice *slice, int64_t tile, int64_t index, int tiles,
                         const Panel *panel) {
    const BoundEpilogue *e = loop->epilogue;
    const int64_t column = panel->group * loop->weight->columns + panel->first;
    void *results[GROUP_PIXELS], *raw_rows[GROUP_PIXELS], *to[GROUP_PIXELS] = {NULL};
    int places[GROUP_PIXELS], count = group_pixels(loop, tile, tiles, results, places);
    int64_t stride = loop->width;
    if (e->finish) {
        stride = finish_stride(e->finish, panel->columns, stride);
        finish_raw_rows(slice->raw, count, stride, column, (int64_t)sizeof(float), raw_rows);
    }
    for (int i = 0; i < count; i++) to[places[i]] = e->finish ? raw_rows[i] : results[i];
    WinogradOutput out = {.stride = loop->sums_stride};
    out.ends = (TileCall){.column = column,
                          .columns = panel->columns,
                          .bias = e->bias,
                          .has_addend = e->addend != NULL,
                          .bounds = e->bounds};
    if (e->addend) out.ends.addend_shift = (intptr_t)e->addend - (intptr_t)e->result;
    for (int t = 0; t < tiles; t++) {
        out.from = slice->results[index + t];
        out.ends.results = to + t * loop->loops.results * loop->loops.results;
        loop->loops.output(&out);
    }
    if (e->finish) finish_rows(e->finish, results, count, column, panel->columns, slice->raw, stride);
}

static void run_slice(const Loop *loop, int64_t index, const Slice *slice) {
    int64_t chunk = index % loop->chunks, range = index / loop->chunks, panels = weight_panels(loop->weight),
            first = chunk * loop->slice_tiles, count = least(loop->slice_tiles, loop->tiles - first), group = -1;
    if (count <= 0) return;
    for (int64_t t = 0; t < count; t++) slice->rows[t] = slice->input + t * loop->channels;
    for (int64_t i = range * panels / loop->ranges; i < (range + 1) * panels / loop->ranges; i++) {
        if (pool_is_stopped()) return;
        Panel panel = weight_panel(loop->weight, i);
        int64_t width = (int64_t)panel.vectors * loop->weight->set->lanes;
        for (int64_t t = 0; panel.group != group && t < count; t++)
            transform_tile(loop, first + t, panel.group, slice->input + t * loop->channels);
        group = panel.group;
        for (int64_t t = 0; t < count; t++) slice->results[t] = slice->sums + t * width;
        multiply(loop, slice, count, &panel);
        for (int64_t t = 0, some; t < count; t += some) {
            some = tiles_together(loop, first + t, count - t);
            finish_tiles(loop, slice, first + t, t, (int)some, &panel);
        }
    }
}

static void run_slices(void *context, int64_t begin, int64_t end, int worker) {
    const Loop *loop = context;
    char *memory = loop->memory + loop->worker_bytes * (size_t)worker;
    Slice slice = {.input = (float *)(void *)memory};
    slice.sums = slice.input + loop->products * loop->input_stride;
    slice.raw = slice.sums + loop->products * loop->sums_stride;
    slice.rows = (const void **)(void *)(slice.raw + GROUP_PIXELS * loop->width);
    slice.results = (void **)(uintptr_t)(slice.rows + loop->slice_tiles);
    for (int64_t i = begin; i < end; i++) run_slice(loop, i, &slice);
}

/* Slices as large as the cache holds, a whole number of them a thread. */
static void cut(Loop *loop, int64_t threads) {
    int64_t panels = weight_panels(loop->weight), bytes = loop->products * (int64_t)sizeof(float),
            tiles = most(1, least(MOST_TILES, SLICE_BYTES / (bytes * (loop->channels + loop->width))));
    loop->chunks = ceil_div(loop->tiles, tiles);
    loop->ranges = least(panels, ceil_div(threads, loop->chunks));
    if (loop->ranges == 1) loop->chunks = least(loop->tiles, ceil_div(loop->chunks, threads) * threads);
    loop->slice_tiles = ceil_div(loop->tiles, loop->chunks);
    loop->input_stride = loop->slice_tiles * loop->channels + PAD;
    loop->sums_stride = loop->slice_tiles * loop->width + PAD;
    size_t worker = (size_t)(loop->input_stride + loop->sums_stride) * (size_t)bytes +
                    (size_t)(GROUP_PIXELS * loop->width) * sizeof(float) +
                    (size_t)loop->slice_tiles * 2 * sizeof(void *);
    loop->worker_bytes = (worker + 63) / 64 * 64;
}

Status winograd_run(const Walk *walk, const Phase *phase, const BoundEpilogue *epilogue, Pool *pool, Scratch *scratch) {
    const Sizes *s = walk->sizes;
    const Weight *w = &phase->weight;
    const TileWinograd loops = tile_winograd(w->set->sums == DT_F32 ? DT_F32 : DT_U8);
    Loop loop = {.loops = loops,
                 .products = loops.pixels * loops.pixels,
                 .walk = walk,
                 .weight = w,
                 .epilogue = epilogue,
                 .down = ceil_div(s->out[1], loops.results),
                 .across = ceil_div(s->out[2], loops.results)};
    void *memory;
    loop.tiles = s->batch * loop.down * loop.across;
    if (!loop.tiles) return NULL;
    loop.channels = ceil_div(w->depth, w->set->lanes) * w->set->lanes;
    loop.width = least(w->set->vectors, ceil_div(w->columns, w->set->lanes)) * w->set->lanes;
    cut(&loop, pool_threads(pool));
    TRY(scratch_take(scratch, loop.worker_bytes * (size_t)pool_threads(pool), &memory));
    loop.memory = memory;
    pool_for(pool, loop.chunks * loop.ranges, 1, run_slices, &loop);
    return NULL;
}
