/* SPDX-License-Identifier: Apache-2.0 */
/* Where a convolution's positions meet the input, and its positions as rows of a product. */
#include "base/integer.h"
#include "runtime/device/cpu/conv/walk.h"

enum { LEAST_ALIKE = 6 };

static int64_t within(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }
static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static void walk_axis(const Conv *c, const Phase *p, const Sizes *s, int i, Walk *w) {
    const PhaseAxis *axis = &p->axes[i];
    w->taps[i] = axis->taps;
    if (c->transposed) {
        /* the result's positions o with (o + pad) % stride == remainder; the input's position is (o + pad - tap *
         * dilation) / stride */
        int64_t stride = c->strides[i], first = ((axis->remainder - s->pads[i]) % stride + stride) % stride;
        w->first[i] = first;
        w->step[i] = stride;
        w->input_step[i] = 1;
        w->count[i] = first < s->out[i] ? (s->out[i] - first - 1) / stride + 1 : 0;
        for (int64_t t = 0; t < axis->taps; t++)
            w->shift[i][t] = floor_div(first + s->pads[i] - axis->kernel_index[t] * c->dilations[i], stride);
    } else {
        w->first[i] = 0;
        w->step[i] = 1;
        w->input_step[i] = c->strides[i];
        w->count[i] = s->out[i];
        for (int64_t t = 0; t < axis->taps; t++) w->shift[i][t] = axis->kernel_index[t] * c->dilations[i] - s->pads[i];
    }
    int64_t least = axis->taps ? w->shift[i][0] : 0, most = axis->taps ? w->shift[i][axis->taps - 1] : 0,
            step = w->input_step[i];
    w->low[i] = within(floor_div(-least + step - 1, step), 0, w->count[i]);
    w->high[i] = within(floor_div(s->in[i] - 1 - most, step) + 1, w->low[i], w->count[i]);
}

void walk_phase(const Conv *c, const Phase *p, const Sizes *s, Walk *w) {
    for (int i = 0; i < AXES; i++) walk_axis(c, p, s, i, w);
}

int64_t walk_input_index(const Walk *w, int64_t n, int64_t i0, int64_t i1, int64_t i2) {
    const Sizes *s = w->sizes;
    return ((n * s->in[0] + i0) * s->in[1] + i1) * s->in[2] + i2;
}

/* Pointers of one position, a tap each. */
static void fill_edge(const Walk *w, int64_t n, const int64_t *q, const void **rows, int64_t capacity) {
    const Sizes *s = w->sizes;
    for (int64_t t0 = 0; t0 < w->taps[0]; t0++) {
        int64_t i0 = q[0] * w->input_step[0] + w->shift[0][t0];
        for (int64_t t1 = 0; t1 < w->taps[1]; t1++) {
            int64_t i1 = q[1] * w->input_step[1] + w->shift[1][t1];
            bool inside = i0 >= 0 && i0 < s->in[0] && i1 >= 0 && i1 < s->in[1];
            int64_t line = inside ? n * s->x_batch + i0 * s->x_steps[0] + i1 * s->x_steps[1] : 0;
            for (int64_t t2 = 0; t2 < w->taps[2]; t2++, rows += capacity) {
                int64_t i2 = q[2] * w->input_step[2] + w->shift[2][t2];
                *rows = inside && i2 >= 0 && i2 < s->in[2] ? w->x + (line + i2 * s->x_steps[2]) * w->x_size
                                                           : (const char *)w->zeros;
            }
        }
    }
}

typedef struct Taps {
    int64_t first, end;
} Taps;

/* The taps of an axis that meet the input at some of the positions from `from` to `to`. */
static Taps reached_along(const Walk *w, int axis, int64_t from, int64_t to) {
    const int64_t step = w->input_step[axis], *shift = w->shift[axis], extent = w->sizes->in[axis];
    Taps taps = {0, w->taps[axis]};
    while (!w->counts_padding && taps.first < taps.end && to * step + shift[taps.first] < 0) taps.first++;
    while (!w->counts_padding && taps.end > taps.first && from * step + shift[taps.end - 1] >= extent) taps.end--;
    return taps;
}

/* The taps that meet the input at some of the positions [q[2], end) of the line q; they follow each other where only one of the outer
 * axes has several, and along the line where no more than one of those is left, as of far dilated kernels. */
static Taps reached_taps(const Walk *w, const int64_t *q, int64_t end) {
    int axis = w->taps[0] > 1 ? 0 : 1;
    int64_t inner = axis == 0 ? w->taps[1] * w->taps[2] : w->taps[2];
    Taps outer = reached_along(w, axis, q[axis], q[axis]), line = {0, inner};
    if (inner == w->taps[2] && outer.end - outer.first == 1) line = reached_along(w, 2, q[2], end - 1);
    return (Taps){outer.first * inner + line.first, (outer.end - 1) * inner + line.end};
}

void walk_results(const Walk *w, int64_t n, const int64_t *q, int64_t count, void **results) {
    const Sizes *s = w->sizes;
    int64_t pixel = s->out_channels * w->size, o[AXES];
    for (int a = 0; a < AXES; a++) o[a] = w->first[a] + q[a] * w->step[a];
    char *y = w->y + (((n * s->out[0] + o[0]) * s->out[1] + o[1]) * s->out[2] + o[2]) * pixel;
    point_rows(y, w->step[2] * pixel, count, (const void **)results);
}

/* Where those positions of [q[2], end) end that the same taps reach as the first. They are as many as taps are apart, mostly: where that is
 * less than a tile's rows, all of them go together by the taps that any of them meets. */
static int64_t end_of_alike(const Walk *w, const int64_t *q, int64_t end) {
    const int64_t *shift = w->shift[2];
    if (w->taps[2] < 2 || shift[1] - shift[0] < LEAST_ALIKE) return end;
    const Taps taps = reached_taps(w, q, q[2] + 1);
    for (int64_t at[AXES] = {q[0], q[1], q[2] + 1}; at[2] < end; at[2]++) {
        const Taps others = reached_taps(w, at, at[2] + 1);
        if (others.first != taps.first || others.end != taps.end) return at[2];
    }
    return end;
}

/* Positions [q[2], end) of a line. */
static void fill_edges(const Walk *w, int64_t n, int64_t *q, int64_t end, RowBlock *block) {
    while (q[2] < end) {
        const int64_t next = end_of_alike(w, q, end);
        const Taps taps = reached_taps(w, q, next);
        int at = row_block_edges(block, (int)(next - q[2]), taps.first, taps.end);
        walk_results(w, n, q, next - q[2], block->results + at);
        for (; q[2] < next; q[2]++) fill_edge(w, n, q, block->rows + at++, block->capacity);
    }
}

static void fill_interior(const Walk *w, int64_t n, int64_t *q, int64_t end, RowBlock *block) {
    const Sizes *s = w->sizes;
    int64_t first = n * s->x_batch;
    int count = (int)(end - q[2]);
    if (count <= 0) return;
    int at = row_block_interior(block, count);
    walk_results(w, n, q, count, block->results + at);
    for (int a = 0; a < AXES; a++)
        first += (q[a] * w->input_step[a] + (w->taps[a] ? w->shift[a][0] : 0)) * s->x_steps[a];
    point_rows(w->x + first * w->x_size, w->input_step[2] * s->x_steps[2] * w->x_size, count, block->rows + at);
    q[2] = end;
}

static void fill_line(const Walk *w, int64_t n, int64_t *q, int64_t end, RowBlock *block) {
    bool inside = true;
    for (int a = 0; a < AXES - 1; a++) inside &= q[a] >= w->low[a] && q[a] < w->high[a];
    if (inside) {
        int64_t low = within(w->low[2], q[2], end), high = within(w->high[2], low, end);
        fill_edges(w, n, q, low, block);
        fill_interior(w, n, q, high, block);
    }
    fill_edges(w, n, q, end, block);
}

/* The position's number in its image; the image. */
static int64_t place_of(const Walk *w, int64_t position, int64_t *q) {
    for (int a = AXES - 1; a >= 0; a--) {
        q[a] = position % w->count[a];
        position /= w->count[a];
    }
    return position;
}

/* Along the first axis that has more than one place, from the first position's least tap to the last one's greatest, as far as that
 * is inside; of the axes behind it all. */
void walk_reach(const void *context, int64_t first, int64_t count, const char **out_begin, const char **out_end) {
    const Walk *w = context;
    const Sizes *s = w->sizes;
    int64_t q[AXES], n = place_of(w, first, q);
    int axis = 0;
    while (axis < AXES - 1 && s->in[axis] == 1 && w->count[axis] == 1) axis++;
    const int64_t step = w->input_step[axis], *shift = w->shift[axis];
    int64_t begin = n * s->x_batch + within(q[axis] * step + shift[0], 0, s->in[axis]) * s->x_steps[axis];
    n = place_of(w, first + count - 1, q);
    int64_t last = within(q[axis] * step + shift[w->taps[axis] - 1] + 1, 0, s->in[axis]),
            end = n * s->x_batch + last * s->x_steps[axis];
    *out_begin = w->x + begin * w->x_size;
    *out_end = w->x + (end > begin ? end : begin) * w->x_size;
}

void walk_fill(const void *context, int64_t first, RowBlock *block) {
    const Walk *w = context;
    int64_t q[AXES], n = place_of(w, first, q);
    for (int64_t left = block->count; left > 0;) {
        int64_t end = q[2] + left < w->count[2] ? q[2] + left : w->count[2];
        left -= end - q[2];
        fill_line(w, n, q, end, block);
        q[2] = 0;
        if (++q[1] < w->count[1]) continue;
        q[1] = 0;
        if (++q[0] < w->count[0]) continue;
        q[0] = 0;
        n++;
    }
}

void walk_offsets(const Walk *w, int64_t *offsets, int64_t *merged_offsets) {
    const Sizes *s = w->sizes;
    for (int64_t t0 = 0; t0 < w->taps[0]; t0++)
        for (int64_t t1 = 0; t1 < w->taps[1]; t1++)
            for (int64_t t2 = 0; t2 < w->taps[2]; t2++) {
                *offsets = (w->shift[0][t0] - w->shift[0][0]) * s->x_steps[0] +
                           (w->shift[1][t1] - w->shift[1][0]) * s->x_steps[1] +
                           (w->shift[2][t2] - w->shift[2][0]) * s->x_steps[2];
                if (t2 == 0) *merged_offsets++ = *offsets;
                offsets++;
            }
}

bool walk_is_merged(const Walk *w) {
    for (int64_t t = 1; t < w->taps[2]; t++)
        if (w->shift[2][t] != w->shift[2][t - 1] + 1) return false;
    return w->taps[2] > 1;
}

bool walk_is_inside(const Walk *w) {
    for (int a = 0; a < AXES; a++)
        if (w->low[a] > 0 || w->high[a] < w->count[a]) return false;
    return true;
}

/* ---- rows of few channels ---- */

/* Gathering costs by the element, what it saves by the product: with as many columns as PANEL for each element of one, it pays. Few
 * threads have rows gathered where many do not; the sums are the same, for joined.c cuts none of this depth into parts. */
enum { LEAST_GATHERED = 8, MOST_GATHERED = 511, PANEL = 16 };

typedef struct Gathered {
    const Walk *walk;
    Weight weight; /* the phase's as one tap */
    RowMaker maker;
    int64_t none; /* the offset of that tap */
} Gathered;

/* What a tap meets at the positions [q2, q2 + count) of a line, one channel of it, `depth` elements apart. line: NULL where that is
 * padding. */
static void gather_tap(const Walk *w, const float *line, int64_t q2, int64_t count, int64_t shift, int64_t depth,
                       float *to) {
    const int64_t step = w->input_step[2], pixel = w->sizes->x_steps[2], first = q2 * step + shift;
    int64_t low = count, high = count;
    if (line) {
        low = within(floor_div(step - 1 - first, step), 0, count);
        high = within(floor_div(w->sizes->in[2] - 1 - first, step) + 1, low, count);
    }
    for (int64_t i = 0; i < low; i++) to[i * depth] = 0;
    for (int64_t i = low; i < high; i++) to[i * depth] = line[(first + i * step) * pixel];
    for (int64_t i = high; i < count; i++) to[i * depth] = 0;
}

static void gather_line(const Walk *w, int64_t n, const int64_t *q, int64_t count, int64_t depth, float *to) {
    const Sizes *s = w->sizes;
    const float *image = (const float *)(const void *)w->x + n * s->x_batch;
    for (int64_t t0 = 0; t0 < w->taps[0]; t0++) {
        const int64_t i0 = q[0] * w->input_step[0] + w->shift[0][t0];
        for (int64_t t1 = 0; t1 < w->taps[1]; t1++) {
            const int64_t i1 = q[1] * w->input_step[1] + w->shift[1][t1];
            const bool inside = i0 >= 0 && i0 < s->in[0] && i1 >= 0 && i1 < s->in[1];
            const float *line = inside ? image + i0 * s->x_steps[0] + i1 * s->x_steps[1] : NULL;
            for (int64_t t2 = 0; t2 < w->taps[2]; t2++)
                for (int64_t c = 0; c < s->in_channels; c++)
                    gather_tap(w, line ? line + c : NULL, q[2], count, w->shift[2][t2], depth, to++);
        }
    }
}

static void make_gathered(const void *context, int64_t first, int64_t count, void *to, int worker) {
    const Gathered *g = context;
    const Walk *w = g->walk;
    float *rows = to;
    (void)worker;
    for (int64_t at = first, end = first + count, run; at < end; at += run, rows += run * g->weight.depth) {
        int64_t q[AXES], n = place_of(w, at, q);
        run = least(w->count[2] - q[2], end - at);
        gather_line(w, n, q, run, g->weight.depth, rows);
    }
}

/* Results alone. */
static void fill_made(const void *context, int64_t first, RowBlock *block) {
    const Walk *w = context;
    for (int64_t at = first, end = first + block->count, run; at < end; at += run) {
        int64_t q[AXES], n = place_of(w, at, q);
        run = least(w->count[2] - q[2], end - at);
        walk_results(w, n, q, run, block->results + row_block_interior(block, (int)run));
    }
}

bool walk_gathers(const Product *p, const Pool *pool) {
    const Walk *w = p->context;
    const int64_t channels = w->sizes->in_channels, depth = p->weight->taps * channels;
    return p->weight->groups == 1 && !p->weight->form.kind && p->weight->taps > p->merged &&
           p->merged * channels <= ceil_div(p->weight->columns, PANEL) && depth >= LEAST_GATHERED &&
           depth <= MOST_GATHERED && product_makes_rows(p->rows, p->line, depth * w->size, pool);
}

Status walk_gather(Product *p, Scratch *scratch) {
    const Walk *w = p->context;
    void *memory;
    TRY(scratch_take(scratch, sizeof(Gathered), &memory));
    Gathered *g = memory;
    *g = (Gathered){.walk = w, .weight = *p->weight, .maker = {make_gathered, g}};
    g->weight.taps = 1;
    g->weight.depth = p->weight->taps * w->sizes->in_channels;
    p->weight = &g->weight;
    p->maker = &g->maker;
    p->fill = fill_made;
    p->offsets = p->zeros = p->merged_offsets = &g->none;
    p->merged = 1;
    p->depth_gap = 0;
    p->inside = true;
    return NULL;
}
