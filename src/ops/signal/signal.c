/* SPDX-License-Identifier: Apache-2.0 */
/* Signal processing: window functions in primitives; DFT, STFT and MelWeightMatrix as host kernels. Complex numbers
 * that are not f64 are transformed in f32, all others in f64: the precisions of the standard's reference results. */
#include "lowering/build.h"
#include "ops/families.h"

#include <math.h>
#include "lowering/gradient.h"
#include "lowering/sizes.h"
#include "ops/signal/transform.h"

/* ---- window functions ---- */

/* a - b * cos(2 pi n / N) + c * cos(4 pi n / N), N less one when not periodic. */
static Status lower_cosine_window(Lowering *l, const Node *n, double a, double b, double c) {
    const Dim *size = size_from(l, in(l, n, 0), "window");
    if (!size) return l->error;
    const Dim *period = attr_int(n, "periodic", 1) ? size : size_sub(l, size, size_const(l, 1));
    Value *turn = divide(l, iota(l, &size, 1, 0, DT_F64), cast(l, dim_scalar(l, period), DT_F64));
    Value *first = unary(l, PRIM_COS, mul(l, turn, scalar(l, DT_F64, 2 * M_PI)));
    Value *y = sub(l, scalar(l, DT_F64, a), mul(l, first, scalar(l, DT_F64, b)));
    if (c != 0)
        y = add(l, y, mul(l, unary(l, PRIM_COS, mul(l, turn, scalar(l, DT_F64, 4 * M_PI))), scalar(l, DT_F64, c)));
    return out(l, n, 0, cast(l, y, attr_dtype(n, "output_datatype", DT_F32)));
}

static Status lower_hann_window(Lowering *l, const Node *n) { return lower_cosine_window(l, n, 0.5, 0.5, 0); }
static Status lower_hamming_window(Lowering *l, const Node *n) {
    return lower_cosine_window(l, n, 25.0 / 46, 21.0 / 46, 0);
}
static Status lower_blackman_window(Lowering *l, const Node *n) { return lower_cosine_window(l, n, 0.42, 0.5, 0.08); }

/* ---- loads and stores ---- */

static double load(const Tensor *t, int64_t i) {
    return t->dtype == DT_F32 ? (double)((const float *)t->data)[i] : dtype_load_double(t->dtype, t->data, i);
}

static void store(Tensor *t, int64_t i, double value) {
    if (t->dtype == DT_F32)
        ((float *)t->data)[i] = (float)value;
    else
        dtype_store_double(t->dtype, t->data, i, value);
}

/* ---- DFT ---- */

typedef struct Lines {
    const Tensor *x, *window;
    Tensor *y;
    const Transform *transform;
    bool wide, inverse, onesided; /* wide: lines are f64, else f32 */
    int64_t length;               /* of the transform */
    int64_t inner;                /* elements between neighbours of a line (DFT) */
    int64_t in, out;              /* a line's elements before and after */
    int64_t in_parts, out_parts;  /* 2 for complex numbers, 1 for real ones */
    int64_t frames, step;         /* STFT */
    char *buffers;                /* [workers][buffer_bytes]: a line, then scratch memory */
    size_t buffer_bytes, line_bytes;
} Lines;

static Status prepare_lines(HostCall *call, Lines *p, int64_t n) {
    if (n < 1 || n > MAX_TRANSFORM) return host_error(call, "a transform of length %lld is out of range", (long long)n);
    if (p->in_parts != 1 && p->in_parts != 2)
        return host_error(call, "the last dimension is %lld instead of 1 or 2", (long long)p->in_parts);
    p->length = n;
    p->wide = p->x->dtype == DT_F64 || p->in_parts == 1;
    p->transform = transform_make(call->arena, n, p->wide);
    p->line_bytes = (size_t)(2 * n) * (p->wide ? sizeof(double) : sizeof(float));
    p->buffer_bytes = (p->line_bytes + transform_scratch(p->transform) + 63) / 64 * 64;
    p->buffers = arena_array(call->arena, (size_t)pool_threads(call->pool), p->buffer_bytes);
    return NULL;
}

static double line_get(const Lines *p, const void *line, int64_t i) {
    return p->wide ? ((const double *)line)[i] : (double)((const float *)line)[i];
}

static void line_set(const Lines *p, void *line, int64_t i, double value) {
    if (p->wide)
        ((double *)line)[i] = value;
    else
        ((float *)line)[i] = (float)value;
}

/* Element i of x, times weight, becomes number `to` of the line. */
static void line_load(const Lines *p, void *line, int64_t to, int64_t i, double weight) {
    line_set(p, line, 2 * to, weight * load(p->x, i * p->in_parts));
    line_set(p, line, 2 * to + 1, p->in_parts == 2 ? weight * load(p->x, i * 2 + 1) : 0);
}

static void transform_lines(void *context, int64_t begin, int64_t end, int worker) {
    const Lines *p = context;
    char *line = p->buffers + (size_t)worker * p->buffer_bytes;
    int64_t n = p->length, given = p->in < n ? p->in : n;
    for (int64_t at = begin; at < end; at++) {
        int64_t outer = at / p->inner, offset = at % p->inner;
        memset(line, 0, p->line_bytes);
        for (int64_t i = 0; i < given; i++) line_load(p, line, i, (outer * p->in + i) * p->inner + offset, 1);
        for (int64_t i = n / 2 + 1; p->inverse && p->onesided && i < n; i++) { /* mirrors the half that is given */
            line_set(p, line, 2 * i, line_get(p, line, 2 * (n - i)));
            line_set(p, line, 2 * i + 1, -line_get(p, line, 2 * (n - i) + 1));
        }
        transform_run(p->transform, p->inverse, line, line + p->line_bytes);
        for (int64_t i = 0; i < p->out; i++) {
            int64_t to = ((outer * p->out + i) * p->inner + offset) * p->out_parts;
            for (int64_t part = 0; part < p->out_parts; part++) store(p->y, to + part, line_get(p, line, 2 * i + part));
        }
    }
}

/* The axis: an attribute, or input 1 where it is known only now. */
static Status axis_at_run(HostCall *call, int rank, int *out_axis) {
    const Tensor *given = host_input(call, 1);
    int64_t axis = given && tensor_count(given) == 1 ? dtype_load_int(given->dtype, given->data, 0)
                                                     : attr_int(call->node, "axis", rank);
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank - 1) return host_error(call, "axis %lld is out of range", (long long)axis);
    *out_axis = (int)axis;
    return NULL;
}

static Status host_dft(HostCall *call) {
    Lines p = {.inverse = attr_int(call->node, "inverse", 0), .onesided = attr_int(call->node, "onesided", 0)};
    int64_t length, dims[MAX_RANK], outer = 1;
    int axis = 0;
    TRY(host_tensor(call, 0, DT_NONE, &p.x));
    int rank = p.x->rank;
    TRY(axis_at_run(call, rank, &axis));
    p.in = p.x->dims[axis];
    p.in_parts = p.x->dims[rank - 1];
    length = p.inverse && p.onesided ? 2 * (p.in - 1) : p.in;
    if (node_attr(call->node, "length")) TRY(host_sizes(call, "length", 1, &length));
    TRY(prepare_lines(call, &p, length ? length : 1)); /* of nothing, one side has one number: 0 */
    p.out = p.onesided && !p.inverse ? length / 2 + 1 : length;
    p.out_parts = p.onesided && p.inverse ? 1 : 2;
    memcpy(dims, p.x->dims, sizeof dims);
    dims[axis] = p.out;
    dims[rank - 1] = p.out_parts;
    TRY(host_output(call, 0, p.x->dtype, rank, dims, &p.y));
    if (!p.y) return NULL;
    p.inner = 1;
    for (int i = 0; i < axis; i++) outer *= dims[i];
    for (int i = axis + 1; i < rank - 1; i++) p.inner *= dims[i];
    if (p.inner) pool_for(call->pool, outer * p.inner, 1 + 4096 / (length + 1), transform_lines, &p);
    return NULL;
}

/* The transform of g the other way around, of n = `length` numbers, with real and imaginary parts. */
static Value *turned_back(Backward *w, const Node *n, Value *g, int axis, const Dim *length, bool inverse) {
    Lowering *l = w->l;
    if (!present(l, &g, 1)) return NULL;
    const Dim **dims = dims_copy(l, g, g->rank);
    dims[axis] = length;
    dims[g->rank - 1] = size_const(l, 2);
    Node *node = backward_host(w, n, "DFT", host_dft, &g, 1);
    if (!node) return NULL;
    node_set_int(node, "axis", axis);
    node_set_int(node, "inverse", !inverse);
    node_set_int(node, "onesided", 0);
    node_set_dims(node, "length", &length, 1);
    return host_result(l, node, g->dtype, g->rank, dims);
}

/* Zeros behind axis `axis`, or a cut, so that it is `size` long. */
static Value *resized(Lowering *l, Value *x, int axis, const Dim *size) {
    if (!present(l, &x, 1) || x->dims[axis] == size) return x;
    const Dim *before[MAX_RANK], *after[MAX_RANK];
    for (int i = 0; i < x->rank; i++) before[i] = after[i] = size_const(l, 0);
    after[axis] = size_sub(l, size, x->dims[axis]);
    return pad(l, x, before, after, like(l, x, 0));
}

static Value *times_size(Lowering *l, Value *x, const Dim *size, bool divided) {
    Value *factor = x ? cast_like(l, dim_scalar(l, size), x) : NULL;
    return divided ? divide(l, x, factor) : mul(l, x, factor);
}

/* The transform is linear. Its matrix is symmetric, so its conjugate transpose is that of the transform the other way around (Oppenheim and
 * Schafer, "Discrete-Time Signal Processing", 8.5), but for the factor 1 / n of the inverse. What was cut off gets zeros, and half of a
 * spectrum that stood for both halves takes what both would get. */
static void back_dft(Backward *w, const Node *n) {
    Lowering *l = w->l;
    bool inverse = attr_int(n, "inverse", 0), onesided = attr_int(n, "onesided", 0);
    int axis = (int)attr_int(n, "axis", 0), count;
    const Value *x = n->inputs[0];
    Value *g = dy(w, n, 0);
    const Dim *one = size_const(l, 1), *two = size_const(l, 2), *length = x->dims[axis];
    if (n->input_count > 1 && n->inputs[1]) {
        unsupported(l, "the gradient along an axis known only at run time");
        return;
    }
    if (inverse && onesided) length = size_mul(l, size_sub(l, length, one), two);
    if (node_attr(n, "length")) length = attr_dims(n, "length", &count)[0];
    const Dim *half = size_add(l, dim_div(l->dims, length, two), one);
    if (onesided && !inverse) g = resized(l, g, axis, length);
    Value *full = turned_back(w, n, g, axis, length, inverse);
    full = times_size(l, full, length, inverse);
    if (inverse && onesided && full) {
        Value *k = iota(l, (const Dim *const *)full->dims, full->rank, axis, DT_I64), *zero = scalar_int(l, DT_I64, 0);
        Value *mirrored = binary(l, PRIM_LT, k, dim_scalar(l, size_sub(l, length, dim_div(l->dims, length, two))));
        mirrored = binary(l, PRIM_AND, mirrored, binary(l, PRIM_GT, k, zero));
        full = mul(l, full, where(l, mirrored, like(l, full, 2), like(l, full, 1)));
        full = resized(l, full, axis, half);
    }
    full = resized(l, full, axis, x->dims[axis]);
    give(w, n, 0, resized(l, full, x->rank - 1, x->dims[x->rank - 1]));
}

/* The size of the transformed axis of `in` elements. */
static const Dim *transformed_size(const Lowering *l, const Dim *in, const Dim *given, bool inverse, bool onesided) {
    const Dim *one = size_const(l, 1), *two = size_const(l, 2);
    const Dim *length = given ? given : inverse && onesided ? size_mul(l, size_sub(l, in, one), two) : in;
    return onesided && !inverse ? size_add(l, dim_div(l->dims, length, two), one) : length;
}

/* The axis is an attribute before version 20, then an input, which may even be known only at run time. */
static Status lower_dft(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *given = optional_in(l, n, 1), *axis_input = n->opset >= 20 ? optional_in(l, n, 2) : NULL;
    bool inverse = attr_int(n, "inverse", 0), onesided = attr_int(n, "onesided", 0);
    int64_t wanted = n->opset >= 20 ? -2 : attr_int(n, "axis", 1);
    const int64_t *values;
    int count = 1, axis = 0;
    if (!x) return l->error;
    if (x->rank < 2 || !dtype_is_float(x->dtype)) return invalid(l, "the input has rank %d and no float type", x->rank);
    bool known = !axis_input || constant_ints(l, axis_input, &values, &count);
    if (known && axis_input && count == 1) wanted = values[0];
    if (!known) count = 1;
    if (known) axis = axis_of(l, wanted, x->rank);
    const Dim *size = given ? size_from(l, given, "dft_length") : NULL;
    if (l->error) return l->error;
    if (count != 1) return invalid(l, "axis must be one number");
    if (axis == x->rank - 1) return invalid(l, "the last axis holds the parts of complex numbers");
    const Dim **dims = dims_copy(l, x, x->rank);
    for (int i = 0; i < x->rank - 1; i++) {
        const Dim *result = transformed_size(l, x->dims[i], size, inverse, onesided);
        if (known ? i == axis : result != x->dims[i]) dims[i] = known ? result : dim_fresh(l->dims, "transformed");
    }
    dims[x->rank - 1] = size_const(l, onesided && inverse ? 1 : 2);
    Node *host = host_node(l, n, host_dft, (Value *[]){x, axis_input}, known ? 1 : 2);
    node_set_int(host, "axis", axis);
    if (size) node_set_dims(host, "length", &size, 1);
    return out(l, n, 0, host_result(l, host, x->dtype, x->rank, dims));
}

/* ---- STFT ---- */

static void transform_frames(void *context, int64_t begin, int64_t end, int worker) {
    const Lines *p = context;
    char *line = p->buffers + (size_t)worker * p->buffer_bytes;
    for (int64_t frame = begin; frame < end; frame++) {
        int64_t start = frame / p->frames * p->in + frame % p->frames * p->step;
        for (int64_t i = 0; i < p->length; i++) line_load(p, line, i, start + i, p->window ? load(p->window, i) : 1);
        transform_run(p->transform, false, line, line + p->line_bytes);
        for (int64_t i = 0; i < 2 * p->out; i++) store(p->y, frame * p->out * 2 + i, line_get(p, line, i));
    }
}

static Status host_stft(HostCall *call) {
    Lines p = {.window = host_input(call, 1)};
    int64_t length;
    TRY(host_tensor(call, 0, DT_NONE, &p.x));
    TRY(host_sizes(call, "step", 1, &p.step));
    TRY(host_sizes(call, "length", 1, &length));
    p.in = p.x->dims[1];
    p.in_parts = p.x->dims[2];
    TRY(prepare_lines(call, &p, length));
    if (p.step < 1) return host_error(call, "frame_step is %lld", (long long)p.step);
    if (p.window && (p.window->rank != 1 || p.window->dims[0] != length))
        return host_error(call, "the window does not have frame_length elements");
    p.frames = length > p.in ? 0 : (p.in - length) / p.step + 1;
    p.out = attr_int(call->node, "onesided", 1) ? length / 2 + 1 : length;
    TRY(host_output(call, 0, p.x->dtype, 4, (int64_t[]){p.x->dims[0], p.frames, p.out, 2}, &p.y));
    if (p.y && p.frames) pool_for(call->pool, p.x->dims[0] * p.frames, 1 + 4096 / (length + 1), transform_frames, &p);
    return NULL;
}

/* Frames f of x, times the window, are transformed: y = DFT(x[f step + i] window[i]). */
static void back_stft(Backward *w, const Node *n) {
    Lowering *l = w->l;
    int count;
    Value *x = n->inputs[0], *window = n->input_count > 1 ? n->inputs[1] : NULL;
    const Dim *step = attr_dims(n, "step", &count)[0], *length = attr_dims(n, "length", &count)[0];
    const Dim *dims[] = {n->outputs[0]->dims[1], length};
    Value *frames = turned_back(w, n, resized(l, dy(w, n, 0), 2, length), 2, length, false);
    frames = resized(l, times_size(l, frames, length, false), 3, x->dims[2]);
    Value *at = mul(l, iota(l, dims, 2, 0, DT_I64), dim_scalar(l, step));
    at = add(l, at, iota(l, dims, 2, 1, DT_I64));
    if (window && wants(w, n, 1)) {
        Value *products = mul(l, frames, gather(l, x, at, 1));
        give(w, n, 1, products ? reduce(l, PRIM_REDUCE_SUM, products, (int[]){0, 1, 3}, 3, false) : NULL);
    }
    if (window) frames = mul(l, frames, unsqueeze(l, cast_like(l, window, x), (int[]){1}, 1));
    if (wants(w, n, 0)) give(w, n, 0, added_at(l, x, gather(l, places_of(l, x), at, 1), frames));
}

static Status lower_stft(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *given_step = in(l, n, 1), *window = optional_in(l, n, 2),
          *given_length = optional_in(l, n, 3);
    if (!x || !given_step) return l->error;
    if (x->rank != 3 || !dtype_is_float(x->dtype)) return invalid(l, "the signal has rank %d instead of 3", x->rank);
    if (window && window->rank != 1) return invalid(l, "the window has rank %d instead of 1", window->rank);
    const Dim *step = size_from(l, given_step, "frame_step");
    const Dim *length = given_length ? size_from(l, given_length, "frame_length")
                        : window     ? window->dims[0]
                                     : x->dims[1];
    if (l->error) return l->error;
    if (dim_equals(step, 0)) return invalid(l, "frame_step is 0");
    Node *host = host_node(l, n, host_stft, (Value *[]){x, window}, window ? 2 : 1);
    node_set_dims(host, "step", &step, 1);
    node_set_dims(host, "length", &length, 1);
    const Dim *one = size_const(l, 1), *half = size_add(l, dim_div(l->dims, length, size_const(l, 2)), one);
    const Dim *frames = size_add(l, dim_div(l->dims, size_sub(l, x->dims[1], length), step), one);
    const Dim *dims[] = {x->dims[0], frames, attr_int(n, "onesided", 1) ? half : length, size_const(l, 2)};
    return out(l, n, 0, host_result(l, host, x->dtype, 4, dims));
}

/* ---- MelWeightMatrix ---- */

typedef struct Mel {
    int64_t bins, length, rate;
    double low, high; /* hertz */
} Mel;

/* The cell in which edge `index` of the evenly spaced mel triangles falls; mel(f) = 2595 log10(1 + f / 700). */
static int64_t mel_cell(const Mel *mel, int64_t index) {
    double low = 2595 * log10(1 + mel->low / 700), high = 2595 * log10(1 + mel->high / 700);
    double at = low + (double)index * (high - low) / (double)(mel->bins + 2);
    double cell = floor((double)(mel->length + 1) * 700 * (pow(10, at / 2595) - 1) / (double)mel->rate);
    return cell < -1e9 ? -1000000000 : cell > 1e9 ? 1000000000 : (int64_t)cell;
}

/* Triangle i rises from edge i to edge i + 1 and falls to edge i + 2; y [length / 2 + 1, bins]. */
static void mel_fill(const Mel *mel, Tensor *y) {
    int64_t rows = mel->length / 2 + 1;
    for (int64_t k = 0; k < rows * mel->bins; k++) store(y, k, 0);
    for (int64_t i = 0; i < mel->bins; i++) {
        int64_t left = mel_cell(mel, i), centre = mel_cell(mel, i + 1), right = mel_cell(mel, i + 2);
        for (int64_t k = left < 0 ? 0 : left; k <= right && k < rows; k++) {
            if (k < centre || (k == centre && centre != right))
                store(y, k * mel->bins + i, k == centre ? 1 : (double)(k - left) / (double)(centre - left));
            else if (k == centre)
                store(y, k * mel->bins + i, 1);
            else if (k < right)
                store(y, k * mel->bins + i, (double)(right - k) / (double)(right - centre));
        }
    }
}

static double number(const Tensor *t) { return tensor_count(t) == 1 ? dtype_load_double(t->dtype, t->data, 0) : NAN; }

static bool mel_of(const Tensor *const *inputs, Mel *mel) {
    double values[5];
    for (int i = 0; i < 5; i++) values[i] = number(inputs[i]);
    *mel = (Mel){0};
    if (!(values[0] >= 1 && values[0] < 1 << 20 && values[1] >= 0 && values[1] < MAX_TRANSFORM && values[2] >= 1 &&
          values[2] < 1e15))
        return false;
    *mel = (Mel){(int64_t)values[0], (int64_t)values[1], (int64_t)values[2], values[3], values[4]};
    return mel->low >= 0 && mel->low <= mel->high && mel->high < 1e12;
}

static Status host_mel_weight_matrix(HostCall *call) {
    const Tensor *inputs[5];
    Tensor *y;
    Mel mel;
    for (int i = 0; i < 5; i++) TRY(host_tensor(call, i, DT_NONE, &inputs[i]));
    if (!mel_of(inputs, &mel)) return host_error(call, "an input is out of range");
    DType dtype = attr_dtype(call->node, "output_datatype", DT_F32);
    TRY(host_output(call, 0, dtype, 2, (int64_t[]){mel.length / 2 + 1, mel.bins}, &y));
    if (y) mel_fill(&mel, y);
    return NULL;
}

static Status lower_mel_weight_matrix(Lowering *l, const Node *n) {
    Value *inputs[5];
    const Tensor *known[5];
    DType dtype = attr_dtype(n, "output_datatype", DT_F32);
    bool constant_all = true;
    for (int i = 0; i < 5; i++) {
        inputs[i] = in(l, n, i);
        known[i] = constant_of(inputs[i]);
        constant_all &= known[i] != NULL;
    }
    if (l->error) return l->error;
    if (!dtype_is_float(dtype) && !dtype_is_integer(dtype)) return invalid(l, "output_datatype is not a number type");
    if (constant_all) {
        Mel mel;
        if (!mel_of(known, &mel)) return invalid(l, "an input is out of range");
        Tensor *y = tensor_new(l->arena, dtype, 2, (int64_t[]){mel.length / 2 + 1, mel.bins});
        mel_fill(&mel, y);
        return out(l, n, 0, constant(l, y));
    }
    const Dim *bins = size_from(l, inputs[0], "num_mel_bins"), *length = size_from(l, inputs[1], "dft_length");
    if (l->error) return l->error;
    const Dim *dims[] = {size_add(l, dim_div(l->dims, length, size_const(l, 2)), size_const(l, 1)), bins};
    return out(l, n, 0, host_result(l, host_node(l, n, host_mel_weight_matrix, inputs, 5), dtype, 2, dims));
}

const OpRow ops_signal[] = {
    {"", "HannWindow", 17, 0, lower_hann_window},
    {"", "HammingWindow", 17, 0, lower_hamming_window},
    {"", "BlackmanWindow", 17, 0, lower_blackman_window},
    {"", "DFT", 17, 0, lower_dft, host_dft},
    {"", "STFT", 17, 0, lower_stft, host_stft},
    {"", "MelWeightMatrix", 17, 0, lower_mel_weight_matrix, host_mel_weight_matrix},
    {0},
};

const HostRow hosts_signal[] = {
    {"DFT", host_dft, back_dft},
    {"STFT", host_stft, back_stft},
    {0},
};
