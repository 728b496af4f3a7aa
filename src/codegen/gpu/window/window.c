/* SPDX-License-Identifier: Apache-2.0 */
/* From a pool or a resize and its tensors to the launch of a program in window_source.c: axes, coordinates, grids. */
#include "codegen/gpu/window/window.h"

#include <math.h>
#include "codegen/gpu/region/divide.h"

enum {
    POOL_AXES = 3,
    AXES = GPU_WINDOW_AXES,
    CUBIC_AXES = 3, /* of which 64 elements are read; one more would take long to compile */
    BLOCK_THREADS = 256,
    MOST_BLOCKS = 1 << 20,
    WIDE_BYTES = 16,
};
static const int64_t near_limit = INT64_C(1) << 31;      /* results: what `divide` takes */
static const int64_t near_coordinate = INT64_C(1) << 28; /* of sums of four of them, in 32 bits */
static const int64_t far_coordinate = INT64_C(1) << 60;

/* --- what runs --- */

static bool equal(const char *a, const char *b) { return strcmp(a, b) == 0; }

static bool is_crop(const Node *node) {
    return equal(attr_string(node, "coordinate_transformation_mode", ""), "tf_crop_and_resize");
}

static GpuWindowKind resize_kind(const Node *node) {
    const char *mode = attr_string(node, "mode", "");
    return mode[0] == 'n' ? GPU_WINDOW_NEAREST : mode[0] == 'c' ? GPU_WINDOW_CUBIC : GPU_WINDOW_LINEAR;
}

static bool resize_runs(const Node *node) {
    int count;
    const int64_t *axes = attr_ints(node, "axes", &count);
    if (count < 1 || axes[count - 1] - axes[0] >= (resize_kind(node) == GPU_WINDOW_CUBIC ? CUBIC_AXES : AXES))
        return false;
    for (int i = 1; i < count; i++)
        if (axes[i] <= axes[i - 1]) return false;
    for (int i = 1; i < node->input_count; i++) /* scales, regions and sizes that only the run knows are the host's */
        if (node->inputs[i] && !node->inputs[i]->constant) return false;
    if (resize_kind(node) == GPU_WINDOW_NEAREST) return true;
    return node->inputs[0]->dtype != DT_F64 && !attr_int(node, "antialias", 0); /* of f64 the places are f64, too */
}

static bool pool_runs(GpuWindowOp op, const Node *node) {
    double p = attr_float(node, "p", 2);
    bool places = node->output_count > 1 && node->outputs[1];
    return !places && (op != GPU_WINDOW_LP_POOL || p == 1 || p == 2);
}

static GpuWindowKind kind_of(GpuWindowOp op, const Node *node) {
    switch (op) {
    case GPU_WINDOW_MAX_POOL: return GPU_WINDOW_MAX;
    case GPU_WINDOW_AVERAGE_POOL: return GPU_WINDOW_AVERAGE;
    case GPU_WINDOW_LP_POOL: return attr_float(node, "p", 2) == 1 ? GPU_WINDOW_LP1 : GPU_WINDOW_LP2;
    default: return resize_kind(node);
    }
}

static bool type_runs(GpuWindowKind kind, DType dtype, const GpuLimits *limits) {
    if (kind == GPU_WINDOW_NEAREST) return dtype_is_float(dtype) || dtype_is_integer(dtype) || dtype == DT_BOOL;
    if (dtype == DT_F64 && !limits->fp64) return false;
    bool integers = kind == GPU_WINDOW_MAX && dtype != DT_U16 && dtype != DT_U32;
    return gpu_window_type_number(dtype) >= 0 && (dtype_is_float(dtype) || integers);
}

/* Nearest only moves: one type for all of a size. */
static DType program_type(GpuWindowKind kind, DType dtype) {
    static const DType movers[] = {[1] = DT_U8, [2] = DT_U16, [4] = DT_U32, [8] = DT_I64};
    return kind == GPU_WINDOW_NEAREST ? movers[dtype_size(dtype)] : dtype;
}

static int axes_of(GpuWindowOp op, const Node *node) {
    int count;
    if (op != GPU_WINDOW_RESIZE) return POOL_AXES;
    const int64_t *axes = attr_ints(node, "axes", &count);
    return (int)(axes[count - 1] - axes[0]) + 1;
}

/* Of a resize: behind the last axis that is resized; of a pool: behind the last axis of the window. */
static int lanes_axis(GpuWindowOp op, const Node *node, int rank) {
    int count;
    if (op != GPU_WINDOW_RESIZE) return rank - 1;
    const int64_t *axes = attr_ints(node, "axes", &count);
    return (int)axes[count - 1] + 1;
}

/* Wide, narrow, or both where the number of lanes is not known. */
int gpu_window_programs(GpuWindowOp op, const Node *node, const GpuLimits *limits, GpuWindowProgram *out_programs) {
    const Value *x = node->input_count ? node->inputs[0] : NULL, *y = node->output_count ? node->outputs[0] : NULL;
    if (op == GPU_WINDOW_NONE || !x || !y || x->dtype != y->dtype || x->rank != y->rank) return 0;
    bool pool = op != GPU_WINDOW_RESIZE;
    if (pool ? !pool_runs(op, node) || x->rank < 3 || x->rank > 2 + POOL_AXES : !resize_runs(node)) return 0;
    GpuWindowKind kind = kind_of(op, node);
    if (!type_runs(kind, x->dtype, limits)) return 0;
    int64_t lanes = 1, known, each = WIDE_BYTES / (int64_t)dtype_size(x->dtype);
    bool all = true;
    for (int d = lanes_axis(op, node, x->rank); d < x->rank; d++) {
        if (!dim_is_const(x->dims[d], &known)) all = false;
        lanes = all && known > 0 && lanes <= INT32_MAX ? lanes * (known % each ? known : each) : lanes;
    }
    GpuWindowProgram program = {kind, program_type(kind, x->dtype), axes_of(op, node), false, false};
    int count = 0;
    if (!all || lanes % each) out_programs[count++] = program;
    program.wide = true;
    if (!all || lanes % each == 0) out_programs[count++] = program;
    return count;
}

int gpu_window_number(GpuWindowProgram p) {
    int number = (int)p.kind * GPU_WINDOW_TYPES + gpu_window_type_number(p.dtype);
    return ((number * AXES + p.axes - 1) * 2 + p.wide) * 2 + p.far;
}

/* --- launches --- */

static void put(GpuWindowLaunch *l, int64_t value) { l->arguments[l->count++] = (GpuWindowArgument){.i64 = value}; }

static void put_real(GpuWindowLaunch *l, float value) {
    l->arguments[l->count++] = (GpuWindowArgument){.real = true, .f32 = value};
}

static void put_size(GpuWindowLaunch *l, int64_t size) {
    put(l, size);
    if (!l->program.far) put(l, gpu_divide_magic(size));
}

static Status wrong(const Node *node, const char *what) {
    return status_error(STATUS_INVALID, "node \"%s\" (%s): %s", node_origin_name(node), node->op, what);
}

static int64_t product(const int64_t *dims, int from, int to) {
    int64_t count = 1;
    for (int d = from; d < to; d++) count *= dims[d];
    return count;
}

/* Chooses the width and begins the arguments: results in units, then sizes from the innermost axis on. */
static void begin(GpuWindowLaunch *l, const Tensor *x, const Tensor *y, int64_t lanes, const int64_t *sizes, bool far) {
    int64_t each = WIDE_BYTES / (int64_t)dtype_size(x->dtype), count = tensor_count(y);
    uintptr_t addresses = (uintptr_t)x->data | (uintptr_t)y->data;
    l->program.wide = lanes % each == 0 && addresses % WIDE_BYTES == 0;
    if (l->program.wide) lanes /= each, count /= each;
    l->program.far = far || count >= near_limit || lanes >= near_limit;
    for (int d = 0; d < l->program.axes; d++) l->program.far |= sizes[d] >= near_limit;
    int64_t blocks = count / BLOCK_THREADS + (count % BLOCK_THREADS != 0);
    l->grid = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
    l->block = BLOCK_THREADS;
    put(l, count);
    put_size(l, lanes);
    for (int d = l->program.axes - 1; d >= 0; d--) put_size(l, sizes[d]);
}

/* --- pools --- */

typedef struct PoolAxis {
    int64_t in, out, kernel, stride, dilation, before, after;
} PoolAxis;

static Status pool_axes(const Node *node, const int64_t *symbols, const Tensor *x, const Tensor *y, PoolAxis *axes) {
    static const char *const names[] = {"kernel_shape", "strides", "dilations"};
    int spatial = x->rank - 2, count, pad_count;
    const int64_t *lists[3];
    const Dim *const *pads = attr_dims(node, "pads", &pad_count);
    for (int i = 0; i < 3; i++) {
        lists[i] = attr_ints(node, names[i], &count);
        if (count != spatial) return wrong(node, "the sizes of the window do not fit the input");
    }
    if (pad_count != 2 * spatial || y->rank != x->rank || y->dims[0] != x->dims[0] ||
        y->dims[x->rank - 1] != x->dims[x->rank - 1])
        return wrong(node, "the sizes of its tensors do not fit each other");
    for (int i = 0; i < POOL_AXES; i++) {
        int k = i - (POOL_AXES - spatial);
        axes[i] = (PoolAxis){1, 1, 1, 1, 1, 0, 0};
        if (k < 0) continue;
        axes[i] = (PoolAxis){x->dims[1 + k],
                             y->dims[1 + k],
                             lists[0][k],
                             lists[1][k],
                             lists[2][k],
                             dim_eval(pads[k], symbols),
                             dim_eval(pads[spatial + k], symbols)};
    }
    return NULL;
}

/* The largest coordinate of an axis, about; INT64_MAX when it is out of range. */
static int64_t reach_of(const PoolAxis *a) {
    int64_t most = a->in, steps, taps, before = a->before < 0 ? -(a->before + 1) : a->before,
            after = a->after < 0 ? -(a->after + 1) : a->after;
    if (a->out < 0 || a->kernel < 1 || a->stride < 1 || a->dilation < 1) return INT64_MAX;
    if (__builtin_mul_overflow(a->out, a->stride, &steps) || __builtin_mul_overflow(a->kernel, a->dilation, &taps))
        return INT64_MAX;
    const int64_t all[] = {steps, taps, before, after};
    for (int i = 0; i < 4; i++) most = all[i] > most ? all[i] : most;
    return most;
}

static Status launch_pool(const Node *node, const Tensor *x, const int64_t *symbols, const Tensor *y,
                          GpuWindowLaunch *l) {
    PoolAxis axes[POOL_AXES];
    int64_t out[POOL_AXES], reach = 0;
    if (x->rank < 3 || x->rank > 2 + POOL_AXES) return wrong(node, "pools tensors of rank 3 to 5");
    TRY(pool_axes(node, symbols, x, y, axes));
    for (int i = 0; i < POOL_AXES; i++) {
        int64_t most = reach_of(&axes[i]);
        reach = most > reach ? most : reach;
        out[i] = axes[i].out;
    }
    if (reach >= far_coordinate) return wrong(node, "a size is out of range");
    begin(l, x, y, x->dims[x->rank - 1], out, reach >= near_coordinate);
    for (int i = 0; i < POOL_AXES; i++) {
        const int64_t all[] = {axes[i].in,       axes[i].kernel, axes[i].stride,
                               axes[i].dilation, axes[i].before, axes[i].after};
        for (int k = 0; k < 6; k++) put(l, all[k]);
    }
    put(l, attr_int(node, "count_include_pad", 0) != 0);
    return NULL;
}

/* --- resizes --- */

/* x = base + (i + shift) * mul / div - minus, the formulas of ONNX Resize-19 in f32 with each rounding where the host
 * has it. */
typedef struct ResizeAxis {
    int64_t in, out;
    double scale;
    float region[2];
    bool keep;
    float base, shift, mul, div, minus;
} ResizeAxis;

static ResizeAxis kept_axis(int64_t size) {
    return (ResizeAxis){.in = size, .out = size, .scale = 1, .region = {0, 1}, .keep = true, .mul = 1, .div = 1};
}

static void set_coordinates(const char *mode, ResizeAxis *a) {
    float scale = (float)a->scale, width = scale * (float)a->in, last = (float)(a->in - 1);
    bool corners = equal(mode, "align_corners"), crop = equal(mode, "tf_crop_and_resize");
    a->base = a->shift = a->minus = 0;
    a->mul = 1;
    a->div = scale;
    if (corners || crop) {
        float span = crop ? (a->region[1] - a->region[0]) * last : last;
        a->base = crop ? a->region[0] * last : 0;
        if (width == 1 && crop) a->base += span / 2;
        a->mul = width == 1 ? 0 : span;
        a->div = width == 1 ? 1 : width - 1;
    } else if (!equal(mode, "asymmetric")) {
        a->shift = 0.5F;
        a->minus = equal(mode, "tf_half_pixel_for_nn") ? 0 : 0.5F;
        if (equal(mode, "half_pixel_symmetric")) a->base = (float)a->in / 2 * (1 - (float)a->out / width);
        if (equal(mode, "pytorch_half_pixel") && a->out <= 1) a->mul = 0, a->div = 1, a->minus = 0;
    }
}

/* As the kernel computes it. Coordinates lie between the first and the last. */
static bool coordinate_fits(const ResizeAxis *a, int64_t i) {
    float x = a->base + ((float)i + a->shift) * a->mul / a->div - a->minus;
    return fabsf(x) < 1e15F;
}

static double number_at(const Tensor *t, int64_t i) {
    return dtype_is_float(t->dtype) ? dtype_load_double(t->dtype, t->data, i)
                                    : (double)dtype_load_int(t->dtype, t->data, i);
}

static const Tensor *constant_input(const Node *node, int index) {
    return index < node->input_count && node->inputs[index] ? node->inputs[index]->constant : NULL;
}

/* The scale of each resized axis; sizes that keep_aspect_ratio_policy adapts give all the same one. */
static Status resize_scales(const Node *node, const int64_t *places, int count, ResizeAxis **axes) {
    const Tensor *scales = constant_input(node, 1), *region = constant_input(node, 2), *sizes = constant_input(node, 3),
                 *given = scales ? scales : sizes;
    bool larger = equal(attr_string(node, "keep_aspect_ratio_policy", ""), "not_smaller");
    int64_t named = attr_int(node, "named_axes", 0);
    double common = larger ? 0 : INFINITY;
    for (int i = 0; i < count; i++) {
        ResizeAxis *a = axes[i];
        a->scale = (double)a->out / (double)a->in;
        if (given && places[i] >= tensor_count(given)) return wrong(node, "scales or sizes has too few elements");
        if (given) a->scale = number_at(given, places[i]) / (scales ? 1 : (double)a->in);
        if (larger ? a->scale > common : a->scale < common) common = a->scale;
        if (!region) continue;
        if (tensor_count(region) != 2 * named) return wrong(node, "roi does not have two numbers for each axis");
        for (int k = 0; k < 2; k++) a->region[k] = (float)number_at(region, k * named + places[i]);
    }
    for (int i = 0; sizes && i < count; i++) axes[i]->scale = common;
    return NULL;
}

static Status complete_axis(const Node *node, ResizeAxis *a) {
    a->keep = a->scale == 1 && a->in == a->out && a->region[0] == 0 && a->region[1] == 1;
    if (a->keep) return NULL;
    if (!(a->scale > 0) || (a->out > 0 && a->in < 1)) return wrong(node, "an axis cannot be resized like this");
    set_coordinates(attr_string(node, "coordinate_transformation_mode", ""), a);
    if (a->out > 0 && (!coordinate_fits(a, 0) || !coordinate_fits(a, a->out - 1)))
        return wrong(node, "a coordinate of the region is not finite");
    return NULL;
}

/* axes [axis_count]: from the first resized one to the last. */
static Status resize_axes(const Node *node, const Tensor *x, const Tensor *y, int axis_count, ResizeAxis *axes,
                          int *out_last) {
    int count, place_count;
    const int64_t *axis = attr_ints(node, "axes", &count), *places = attr_ints(node, "places", &place_count);
    int first = (int)axis[0], last = first + axis_count - 1;
    ResizeAxis *resized[AXES];
    if (place_count != count || count > AXES || first < 0 || last >= x->rank || y->rank != x->rank)
        return wrong(node, "its axes do not fit the input");
    for (int i = 0; i < axis_count; i++) axes[i] = kept_axis(x->dims[first + i]);
    for (int i = 0; i < count; i++) {
        resized[i] = &axes[(int)axis[i] - first];
        resized[i]->out = y->dims[axis[i]];
    }
    TRY(resize_scales(node, places, count, resized));
    for (int i = 0; i < count; i++) TRY(complete_axis(node, resized[i]));
    for (int d = 0; d < x->rank; d++) {
        bool outside = d < first || d > last;
        if (y->dims[d] != (outside ? x->dims[d] : axes[d - first].out))
            return wrong(node, "the sizes of its tensors do not fit each other");
    }
    *out_last = last;
    return NULL;
}

/* An element of the extrapolation value, repeated over 8 bytes. */
static int64_t fill_bits(DType dtype, double fill) {
    char bytes[8];
    int64_t bits;
    int size = (int)dtype_size(dtype);
    if (dtype_is_float(dtype))
        dtype_store_double(dtype, bytes, 0, fill);
    else
        dtype_store_int(dtype, bytes, 0, (int64_t)fmax(-9e15, fmin(9e15, fill)));
    for (int i = size; i < 8; i++) bytes[i] = bytes[i - size];
    memcpy(&bits, bytes, sizeof bits);
    return bits;
}

static void put_nearest(const Node *node, DType dtype, GpuWindowLaunch *l) {
    const char *mode = attr_string(node, "nearest_mode", "");
    put(l, fill_bits(dtype, attr_float(node, "extrapolation_value", 0)));
    put_real(l, mode[0] == 'f' ? 2.0F : mode[0] == 'c' ? 0.0F : 0.5F);
    put(l, equal(mode, "round_prefer_ceil"));
}

static Status launch_resize(const Node *node, const Tensor *x, const Tensor *y, GpuWindowLaunch *l) {
    ResizeAxis axes[AXES];
    int64_t out[AXES];
    int last;
    bool far = false;
    TRY(resize_axes(node, x, y, l->program.axes, axes, &last));
    for (int i = 0; i < l->program.axes; i++) {
        out[i] = axes[i].out;
        far |= axes[i].in >= near_limit;
    }
    begin(l, x, y, product(x->dims, last + 1, x->rank), out, far);
    for (int i = 0; i < l->program.axes; i++) {
        const ResizeAxis *a = &axes[i];
        put(l, a->in);
        put(l, a->keep);
        const float reals[] = {a->base, a->shift, a->mul, a->div, a->minus};
        for (int k = 0; k < 5; k++) put_real(l, reals[k]);
    }
    put(l, is_crop(node));
    if (l->program.kind == GPU_WINDOW_NEAREST) {
        put_nearest(node, x->dtype, l);
        return NULL;
    }
    put_real(l, (float)attr_float(node, "extrapolation_value", 0));
    put(l, attr_int(node, "exclude_outside", 0) != 0);
    put_real(l, (float)attr_float(node, "cubic_coeff_a", -0.75));
    return NULL;
}

Status gpu_window_launch(GpuWindowOp op, const Node *node, const Tensor *const *inputs, const int64_t *symbols,
                         const Tensor *y, GpuWindowLaunch *l) {
    const Tensor *x = inputs[0];
    GpuWindowKind kind = kind_of(op, node);
    *l = (GpuWindowLaunch){.program = {kind, program_type(kind, x->dtype), axes_of(op, node), false, false}};
    TRY(op == GPU_WINDOW_RESIZE ? launch_resize(node, x, y, l) : launch_pool(node, x, symbols, y, l));
    if (!tensor_count(y)) l->grid = 0;
    return NULL;
}
