/* SPDX-License-Identifier: Apache-2.0 */
/* Host kernels of MaxPool, AveragePool and LpPool over channels-last tensors: a result's row of channels is combined
 * from the rows under its window, some channels at a time, which stay in registers over all of them. Rows are dealt to the
 * pool's threads.
 *
 * Their gradients give a window's row back to the rows under it. Windows overlap, so that threads share out the channels. */
#include "ops/window/window.h"

#include <math.h>
#include "base/integer.h"
#include "lowering/sizes.h"

enum { AXES = 3 }; /* inputs with fewer spatial axes get leading ones of size 1 */

typedef enum PoolMode { POOL_MAX, POOL_AVERAGE, POOL_LP } PoolMode;

typedef struct Pooling {
    PoolMode mode;
    DType dtype;
    int64_t channels, plane; /* plane: elements of one channel's image */
    int64_t in[AXES], out[AXES], kernel[AXES], stride[AXES], dilation[AXES], before[AXES], after[AXES];
    int64_t place_step[AXES]; /* what an index of each axis counts in the indices output */
    bool count_pads;
    double p;
    const char *x;
    char *y;
    int64_t *places; /* NULL: not asked for */
} Pooling;

/* The taps [first, end) of one axis whose elements lie inside [low, high), for the window that starts at `start`. */
typedef struct Taps {
    int64_t start, first, end;
} Taps;

/* Steps of size d that lead over `distance`. */
static int64_t steps_over(int64_t distance, int64_t d) {
    return distance <= 0 ? 0 : d == 1 ? distance : ceil_div(distance, d);
}

static Taps taps_within(const Pooling *p, int axis, int64_t start, int64_t low, int64_t high) {
    int64_t d = p->dilation[axis], k = p->kernel[axis], end = steps_over(high - start, d);
    return (Taps){start, steps_over(low - start, d), end < k ? end : k};
}

/* ---- rows of channels ---- */

enum { AT_ONCE = 32, MOST_TAPS = 64 };

/* y: what the rows (at least one), in their order, and before them y itself if `begun`, come to by TAKE(element, what there is
 * so far); FIRST: of the first element alone. What is left of a row that nothing has gone into before is taken with some elements before
 * it, once more. */
#define DEFINE_TAPS(NAME, T, FIRST, TAKE)                                                                              \
    VECTORISED static void NAME(const void *const *rows, int taps, bool begun, T *y, int64_t count) {                  \
        int64_t i = 0;                                                                                                 \
        for (; i < count; i += AT_ONCE) {                                                                              \
            if (count - i < AT_ONCE && (begun || count < AT_ONCE)) break;                                              \
            if (count - i < AT_ONCE) i = count - AT_ONCE;                                                              \
            T so_far[AT_ONCE];                                                                                         \
            const T *first = (const T *)rows[0] + i;                                                                   \
            for (int k = 0; k < AT_ONCE; k++) so_far[k] = begun ? y[i + k] : FIRST(first[k]);                          \
            for (int t = !begun; t < taps; t++) {                                                                      \
                const T *x = (const T *)rows[t] + i;                                                                   \
                for (int k = 0; k < AT_ONCE; k++) so_far[k] = TAKE(x[k], so_far[k]);                                   \
            }                                                                                                          \
            for (int k = 0; k < AT_ONCE; k++) y[i + k] = so_far[k];                                                    \
        }                                                                                                              \
        for (int t = 0; t < taps; t++) {                                                                               \
            const T *x = rows[t];                                                                                      \
            for (int64_t k = i; k < count; k++) y[k] = t || begun ? TAKE(x[k], y[k]) : FIRST(x[k]);                    \
        }                                                                                                              \
    }
#define ITSELF(x) (x)
#define SQUARE(x) ((x) * (x))
#define GREATER(x, y) ((x) > (y) ? (x) : (y))
#define SUM(x, y) ((y) + (x))
#define SUM_SQUARE(x, y) ((y) + (x) * (x))
#define SUM_F32(x, y) ((y) + fabsf(x))
#define SUM_F64(x, y) ((y) + fabs(x))
DEFINE_TAPS(max_f32, float, ITSELF, GREATER)
DEFINE_TAPS(max_f64, double, ITSELF, GREATER)
DEFINE_TAPS(max_i8, int8_t, ITSELF, GREATER)
DEFINE_TAPS(max_u8, uint8_t, ITSELF, GREATER)
DEFINE_TAPS(add_f32, float, ITSELF, SUM)
DEFINE_TAPS(add_f64, double, ITSELF, SUM)
DEFINE_TAPS(add_square_f32, float, SQUARE, SUM_SQUARE)
DEFINE_TAPS(add_square_f64, double, SQUARE, SUM_SQUARE)
DEFINE_TAPS(add_absolute_f32, float, fabsf, SUM_F32)
DEFINE_TAPS(add_absolute_f64, double, fabs, SUM_F64)

#define DEFINE_PLACES(T, NAME)                                                                                         \
    static void max_place_##NAME(const T *x, T *y, int64_t *places, int64_t place, bool begun, int64_t count) {        \
        for (int64_t i = 0; i < count; i++)                                                                            \
            if (!begun || x[i] > y[i]) y[i] = x[i], places[i] = place;                                                 \
    }
DEFINE_PLACES(float, f32)
DEFINE_PLACES(double, f64)
DEFINE_PLACES(int8_t, i8)
DEFINE_PLACES(uint8_t, u8)

#define DEFINE_ENDS(T, NAME, ABS, POW)                                                                                 \
    static void add_power_##NAME(const void *const *rows, int taps, bool begun, T p, T *y, int64_t count) {            \
        for (int t = 0; t < taps; t++) {                                                                               \
            const T *x = rows[t];                                                                                      \
            for (int64_t i = 0; i < count; i++) y[i] = (t || begun ? y[i] : 0) + POW(ABS(x[i]), p);                    \
        }                                                                                                              \
    }                                                                                                                  \
    VECTORISED static void multiply_##NAME(T *y, T factor, int64_t count) {                                            \
        for (int64_t i = 0; i < count; i++) y[i] *= factor;                                                            \
    }                                                                                                                  \
    static void root_##NAME(T *y, T p, int64_t count) {                                                                \
        for (int64_t i = 0; i < count; i++) y[i] = POW(y[i], 1 / p);                                                   \
    }
DEFINE_ENDS(float, f32, fabsf, powf)
DEFINE_ENDS(double, f64, fabs, pow)

static void place_row(const Pooling *p, const void *x, void *y, int64_t *places, int64_t place, bool begun) {
    switch (p->dtype) {
    case DT_F32: max_place_f32(x, y, places, place, begun, p->channels); break;
    case DT_F64: max_place_f64(x, y, places, place, begun, p->channels); break;
    case DT_I8: max_place_i8(x, y, places, place, begun, p->channels); break;
    default: max_place_u8(x, y, places, place, begun, p->channels); break;
    }
}

static void max_rows(const Pooling *p, const void *const *rows, int taps, bool begun, void *y) {
    switch (p->dtype) {
    case DT_F32: max_f32(rows, taps, begun, y, p->channels); break;
    case DT_F64: max_f64(rows, taps, begun, y, p->channels); break;
    case DT_I8: max_i8(rows, taps, begun, y, p->channels); break;
    default: max_u8(rows, taps, begun, y, p->channels); break;
    }
}

static void take_rows(const Pooling *p, const void *const *rows, int taps, bool begun, void *y) {
    bool wide = p->dtype == DT_F64;
    int64_t n = p->channels;
    if (p->mode == POOL_MAX)
        max_rows(p, rows, taps, begun, y);
    else if (p->mode == POOL_AVERAGE)
        wide ? add_f64(rows, taps, begun, y, n) : add_f32(rows, taps, begun, y, n);
    else if (p->p == 1)
        wide ? add_absolute_f64(rows, taps, begun, y, n) : add_absolute_f32(rows, taps, begun, y, n);
    else if (p->p == 2)
        wide ? add_square_f64(rows, taps, begun, y, n) : add_square_f32(rows, taps, begun, y, n);
    else
        wide ? add_power_f64(rows, taps, begun, p->p, y, n) : add_power_f32(rows, taps, begun, (float)p->p, y, n);
}

static void finish_row(const Pooling *p, void *y, int64_t divisor) {
    bool wide = p->dtype == DT_F64;
    if (p->mode == POOL_AVERAGE)
        wide ? multiply_f64(y, 1.0 / (double)divisor, p->channels)
             : multiply_f32(y, 1.0f / (float)divisor, p->channels);
    else if (p->p != 1)
        wide ? root_f64(y, p->p, p->channels) : root_f32(y, (float)p->p, p->channels);
}

/* What no window element reaches: the least value for a maximum, 0 for a sum. */
static void start_row(const Pooling *p, void *y, int64_t *places) {
    memset(y, 0, (size_t)p->channels * dtype_size(p->dtype));
    if (p->mode != POOL_MAX) return;
    for (int64_t i = 0; i < p->channels; i++) {
        if (p->dtype == DT_F32)
            ((float *)y)[i] = -INFINITY;
        else if (p->dtype == DT_F64)
            ((double *)y)[i] = -(double)INFINITY;
        else if (p->dtype == DT_I8)
            ((int8_t *)y)[i] = INT8_MIN;
        if (places) places[i] = 0;
    }
}

/* ---- windows ---- */

/* The window of a result's row: in which image, where in the result, which taps lie in it, and how many are counted. Windows are
 * mostly taken in turn, for the divisions of one take as long as some rows of channels. */
typedef struct Window {
    int64_t image, at[AXES], counted[AXES];
    Taps taps[AXES];
} Window;

static void find_taps(const Pooling *p, int axis, Window *w) {
    int64_t start = w->at[axis] * p->stride[axis] - p->before[axis];
    Taps taps = taps_within(p, axis, start, 0, p->in[axis]);
    Taps counted = p->count_pads ? taps_within(p, axis, start, -p->before[axis], p->in[axis] + p->after[axis]) : taps;
    w->taps[axis] = taps;
    w->counted[axis] = counted.end > counted.first ? counted.end - counted.first : 0;
}

static Window window_of(const Pooling *p, int64_t row) {
    Window w = {.image = row};
    for (int i = AXES - 1; i >= 0; i--) {
        w.at[i] = w.image % p->out[i];
        w.image /= p->out[i];
        find_taps(p, i, &w);
    }
    return w;
}

static void next_window(const Pooling *p, Window *w) {
    for (int i = AXES - 1; i >= 0; i--) {
        bool ends = ++w->at[i] == p->out[i];
        if (ends) w->at[i] = 0;
        find_taps(p, i, w);
        if (!ends) return;
    }
    w->image++;
}

static int64_t divisor_of(const Window *w) {
    int64_t counted = w->counted[0] * w->counted[1] * w->counted[2];
    return counted ? counted : 1;
}

static void window_row(const Pooling *p, const Window *w, int64_t row) {
    const Taps *taps = w->taps;
    int64_t image = w->image;
    size_t size = dtype_size(p->dtype);
    char *y = p->y + (size_t)(row * p->channels) * size;
    int64_t *places = p->places ? p->places + row * p->channels : NULL;
    const void *rows[MOST_TAPS];
    int held = 0;
    bool begun = false;
    const int64_t row_step = p->dilation[2] * p->channels * (int64_t)size,
                  place_step = p->dilation[2] * p->place_step[2], i2 = taps[2].start + taps[2].first * p->dilation[2];
    for (int64_t a = taps[0].first; a < taps[0].end; a++) {
        int64_t i0 = taps[0].start + a * p->dilation[0];
        for (int64_t b = taps[1].first; b < taps[1].end; b++) {
            int64_t i1 = taps[1].start + b * p->dilation[1];
            int64_t place = i0 * p->place_step[0] + i1 * p->place_step[1] + i2 * p->place_step[2];
            const char *x =
                p->x + (size_t)((((image * p->in[0] + i0) * p->in[1] + i1) * p->in[2] + i2) * p->channels) * size;
            for (int64_t c = taps[2].first; c < taps[2].end; c++, x += row_step, place += place_step) {
                if (places) {
                    place_row(p, x, y, places, place, begun);
                } else {
                    rows[held++] = x;
                    if (held < MOST_TAPS) continue;
                    take_rows(p, rows, held, begun, y);
                    held = 0;
                }
                begun = true;
            }
        }
    }
    if (held) take_rows(p, rows, held, begun, y);
    if (!held && !begun) start_row(p, y, places);
    if (p->mode != POOL_MAX) finish_row(p, y, divisor_of(w));
    for (int64_t k = 0; places && k < p->channels; k++) places[k] += (image * p->channels + k) * p->plane;
}

static void window_rows(void *context, int64_t begin, int64_t end, int worker) {
    const Pooling *p = context;
    Window w = window_of(p, begin);
    (void)worker;
    for (int64_t row = begin; row < end; row++, next_window(p, &w)) window_row(p, &w, row);
}

static Status pooling_of(HostCall *call, const Tensor *x, PoolMode mode, Pooling *p) {
    int spatial = x->rank - 2, count;
    int64_t pads[2 * AXES], size[AXES];
    if (spatial < 1 || spatial > AXES) return host_error(call, "pools tensors of rank 3 to 5, not %d", x->rank);
    TRY(host_sizes(call, "pads", 2 * spatial, pads));
    TRY(host_sizes(call, "size", spatial, size));
    const int64_t *lists[3];
    static const char *const names[] = {"kernel_shape", "strides", "dilations"};
    for (int i = 0; i < 3; i++) {
        lists[i] = attr_ints(call->node, names[i], &count);
        if (count != spatial) return host_error(call, "attribute %s does not fit the input", names[i]);
    }
    *p = (Pooling){.mode = mode, .dtype = x->dtype, .channels = x->dims[x->rank - 1], .plane = 1};
    for (int i = 0; i < AXES; i++) {
        int k = i - (AXES - spatial);
        bool given = k >= 0;
        p->in[i] = given ? x->dims[1 + k] : 1;
        p->out[i] = given ? size[k] : 1;
        p->kernel[i] = given ? lists[0][k] : 1;
        p->stride[i] = given ? lists[1][k] : 1;
        p->dilation[i] = given ? lists[2][k] : 1;
        p->before[i] = given ? pads[k] : 0;
        p->after[i] = given ? pads[spatial + k] : 0;
        p->plane *= p->in[i];
        if (p->out[i] < 0) return host_error(call, "the window is larger than the padded input");
        if (p->out[i] > (INT64_MAX / 4) / p->stride[i]) return host_error(call, "a size is out of range");
    }
    bool columns = attr_int(call->node, "storage_order", 0) == 1;
    for (int i = 0; i < AXES; i++) {
        p->place_step[i] = 1;
        for (int k = columns ? 0 : i + 1; k < (columns ? i : AXES); k++) p->place_step[i] *= p->in[k];
    }
    p->count_pads = mode == POOL_AVERAGE && attr_int(call->node, "count_include_pad", 0);
    p->p = attr_float(call->node, "p", 2);
    p->x = x->data;
    return NULL;
}

static Status run_pool(HostCall *call, PoolMode mode) {
    const Tensor *given;
    Tensor *y, *places = NULL;
    Pooling p;
    TRY(host_tensor(call, 0, DT_NONE, &given));
    const Tensor *x = host_widened(call, given);
    bool small = x->dtype == DT_I8 || x->dtype == DT_U8;
    if (x->dtype != DT_F32 && x->dtype != DT_F64 && !(small && mode == POOL_MAX))
        return host_error(call, "does not pool elements of type %s", dtype_onnx_name(x->dtype));
    TRY(pooling_of(call, x, mode, &p));
    int64_t dims[MAX_RANK] = {x->dims[0]};
    int spatial = x->rank - 2;
    for (int i = 0; i < spatial; i++) dims[1 + i] = p.out[AXES - spatial + i];
    dims[1 + spatial] = p.channels;
    TRY(host_output(call, 0, given->dtype, x->rank, dims, &y));
    if (mode == POOL_MAX && call->node->output_count > 1) TRY(host_output(call, 1, DT_I64, x->rank, dims, &places));
    int64_t rows = x->dims[0] * p.out[0] * p.out[1] * p.out[2],
            work = p.channels * p.kernel[0] * p.kernel[1] * p.kernel[2];
    bool direct = y && x == given;
    p.y = direct ? y->data : arena_array(call->arena, (size_t)rows, (size_t)p.channels * dtype_size(x->dtype) + 1);
    if (!p.channels || !rows) return NULL;
    p.places = places ? places->data : NULL;
    pool_for(call->pool, rows, work > 16384 ? 1 : 16384 / (work + 1) + 1, window_rows, &p);
    if (y && !direct) host_narrow(&(Tensor){.data = p.y}, y);
    return NULL;
}

Status host_max_pool(HostCall *call) { return run_pool(call, POOL_MAX); }
Status host_average_pool(HostCall *call) { return run_pool(call, POOL_AVERAGE); }
Status host_lp_pool(HostCall *call) { return run_pool(call, POOL_LP); }

/* ---- gradients ---- */

enum { BLOCK = 16 }; /* channels that one task has: a cache line of f32 */

/* The rows under a window, by their number in the input. */
static int64_t rows_under(const Pooling *p, const Window *w, int64_t *rows) {
    int64_t count = 0;
    for (int64_t a = w->taps[0].first; a < w->taps[0].end; a++)
        for (int64_t b = w->taps[1].first; b < w->taps[1].end; b++)
            for (int64_t c = w->taps[2].first; c < w->taps[2].end; c++) {
                int64_t i0 = w->taps[0].start + a * p->dilation[0], i1 = w->taps[1].start + b * p->dilation[1];
                rows[count++] =
                    ((w->image * p->in[0] + i0) * p->in[1] + i1) * p->in[2] + w->taps[2].start + c * p->dilation[2];
            }
    return count;
}

typedef struct Giving {
    Pooling p; /* x: the input of MaxPool */
    const char *dy;
    char *dx;
    int64_t *rows; /* [workers][taps of the kernel] */
    int64_t taps;
} Giving;

/* To the first of the largest under the window, as the forward kernel takes it, or to all. dx and x stand at the task's
 * channels of row 0. */
#define DEFINE_GIVE(T, NAME)                                                                                           \
    VECTORISED static void give_max_##NAME(const T *x, const T *dy, T *dx, const int64_t *rows, int64_t count,         \
                                           int64_t channels, int64_t block) {                                          \
        T most[BLOCK];                                                                                                 \
        int32_t best[BLOCK] = {0};                                                                                     \
        memcpy(most, x + rows[0] * channels, (size_t)block * sizeof(T));                                               \
        for (int32_t t = 1; t < (int32_t)count; t++) {                                                                 \
            const T *row = x + rows[t] * channels;                                                                     \
            for (int64_t i = 0; i < block; i++) {                                                                      \
                bool more = row[i] > most[i];                                                                          \
                most[i] = more ? row[i] : most[i];                                                                     \
                best[i] = more ? t : best[i];                                                                          \
            }                                                                                                          \
        }                                                                                                              \
        for (int64_t i = 0; i < block; i++) dx[rows[best[i]] * channels + i] += dy[i];                                 \
    }                                                                                                                  \
    VECTORISED static void give_all_##NAME(const T *dy, T *dx, const int64_t *rows, int64_t count, int64_t channels,   \
                                           int64_t block) {                                                            \
        for (int64_t t = 0; t < count; t++)                                                                            \
            for (int64_t i = 0; i < block; i++) dx[rows[t] * channels + i] += dy[i];                                   \
    }                                                                                                                  \
    static void give_rows_##NAME(const Giving *g, int64_t image, int64_t from, int64_t block, int64_t *rows) {         \
        const Pooling *p = &g->p;                                                                                      \
        int64_t channels = p->channels, windows = p->out[0] * p->out[1] * p->out[2];                                   \
        T *dx = (T *)g->dx + from;                                                                                     \
        for (int64_t i = 0; i < p->plane; i++)                                                                         \
            memset(dx + (image * p->plane + i) * channels, 0, (size_t)block * sizeof(T));                              \
        if (!windows) return;                                                                                          \
        Window w = window_of(p, image * windows);                                                                      \
        for (int64_t row = image * windows; row < (image + 1) * windows; row++, next_window(p, &w)) {                  \
            int64_t count = rows_under(p, &w, rows);                                                                   \
            const T *dy = (const T *)g->dy + row * channels + from;                                                    \
            if (p->mode != POOL_MAX)                                                                                   \
                give_all_##NAME(dy, dx, rows, count, channels, block);                                                 \
            else if (count)                                                                                            \
                give_max_##NAME((const T *)p->x + from, dy, dx, rows, count, channels, block);                         \
        }                                                                                                              \
    }
DEFINE_GIVE(float, f32)
DEFINE_GIVE(double, f64)

static void give_blocks(void *context, int64_t begin, int64_t end, int worker) {
    const Giving *g = context;
    int64_t channels = g->p.channels, blocks = (channels + BLOCK - 1) / BLOCK;
    for (int64_t task = begin; task < end; task++) {
        int64_t from = task % blocks * BLOCK, block = channels - from < BLOCK ? channels - from : BLOCK;
        if (g->p.dtype == DT_F64)
            give_rows_f64(g, task / blocks, from, block, g->rows + worker * g->taps);
        else
            give_rows_f32(g, task / blocks, from, block, g->rows + worker * g->taps);
    }
}

/* Inputs x of MaxPool, and dy; or dy alone, the attribute `image` saying the sizes of x. */
static Status run_giving(HostCall *call, PoolMode mode) {
    const Tensor *given, *dy;
    Tensor *dx, shape = {0};
    Giving g = {.taps = 1};
    TRY(host_tensor(call, 0, DT_NONE, &given));
    TRY(host_tensor(call, mode == POOL_MAX, given->dtype, &dy));
    const Tensor *x = host_widened(call, given), *wide = host_widened(call, dy);
    if (x->dtype != DT_F32 && x->dtype != DT_F64)
        return host_error(call, "does not pool elements of type %s", dtype_onnx_name(x->dtype));
    if (mode != POOL_MAX) {
        shape = *x;
        TRY(host_sizes(call, "image", x->rank, shape.dims));
        x = &shape;
    }
    TRY(pooling_of(call, x, mode, &g.p));
    Pooling *p = &g.p;
    int64_t windows = x->dims[0] * p->out[0] * p->out[1] * p->out[2], blocks = (p->channels + BLOCK - 1) / BLOCK;
    if (tensor_count(dy) != windows * p->channels) return host_error(call, "the gradient does not fit the windows");
    TRY(host_output(call, 0, given->dtype, x->rank, x->dims, &dx));
    if (!dx || !tensor_count(dx)) return NULL;
    for (int i = 0; i < AXES; i++)
        if (__builtin_mul_overflow(g.taps, p->kernel[i] < p->in[i] ? p->kernel[i] : p->in[i], &g.taps))
            return host_error(call, "a size is out of range");
    g.rows = arena_array(call->arena, (size_t)pool_threads(call->pool), (size_t)g.taps * sizeof *g.rows);
    bool direct = dx->dtype == p->dtype;
    g.dy = wide->data;
    g.dx = direct ? dx->data : arena_array(call->arena, (size_t)tensor_count(dx), dtype_size(p->dtype));
    pool_for(call->pool, x->dims[0] * blocks, 1, give_blocks, &g);
    if (!direct) host_narrow(&(Tensor){.data = g.dx}, dx);
    return NULL;
}

Status host_max_pool_gradient(HostCall *call) { return run_giving(call, POOL_MAX); }
Status host_spread_windows(HostCall *call) { return run_giving(call, POOL_AVERAGE); }
