/* Signal processing: window functions in primitives; DFT, STFT and MelWeightMatrix as host kernels. Transforms are
 * computed in f64: by radix 2 for powers of two, directly for short lengths, else as a convolution of power-of-two
 * length (Bluestein, "A linear filtering approach to the computation of discrete Fourier transform", 1970). */
#include "ops/window.h"

#include <math.h>
#include "ops/sizes.h"

/* ---- window functions ---- */

/* a - b * cos(2 pi n / N) + c * cos(4 pi n / N), N less one when not periodic. */
static Status lower_cosine_window(Lowering *l, const Node *n, double a, double b, double c) {
    int count;
    const Dim *const *size = sizes_of(l, in(l, n, 0), "window", &count);
    if (!size) return l->error;
    if (count != 1) return invalid(l, "the size must be one number");
    const Dim *period = attr_int(n, "periodic", 1) ? size[0] : size_sub(l, size[0], size_const(l, 1));
    Value *turn = divide(l, iota(l, size, 1, 0, DT_F64), cast(l, dim_scalar(l, period), DT_F64));
    Value *first = unary(l, PRIM_COS, mul(l, turn, scalar(l, DT_F64, 2 * M_PI)));
    Value *y = sub(l, scalar(l, DT_F64, a), mul(l, first, scalar(l, DT_F64, b)));
    if (c != 0)
        y = add(l, y, mul(l, unary(l, PRIM_COS, mul(l, turn, scalar(l, DT_F64, 4 * M_PI))), scalar(l, DT_F64, c)));
    return out(l, n, 0, cast(l, y, attr_dtype(n, "output_datatype", DT_F32)));
}

Status lower_hann_window(Lowering *l, const Node *n) { return lower_cosine_window(l, n, 0.5, 0.5, 0); }
Status lower_hamming_window(Lowering *l, const Node *n) { return lower_cosine_window(l, n, 25.0 / 46, 21.0 / 46, 0); }
Status lower_blackman_window(Lowering *l, const Node *n) { return lower_cosine_window(l, n, 0.42, 0.5, 0.08); }

/* ---- the transform ---- */

enum { DIRECT_LENGTH = 32 }; /* lengths that are no power of two and up to this are summed directly */

typedef struct Complex {
    double re, im;
} Complex;

static Complex times(Complex a, Complex b) { return (Complex){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
static Complex turned(double part) { return (Complex){cos(2 * M_PI * part), sin(2 * M_PI * part)}; }

typedef struct Transform {
    int64_t n;       /* length */
    int64_t m;       /* the power of two that is transformed; n itself, or at least 2n - 1 for Bluestein; 0: direct */
    Complex *roots;  /* [m / 2] exp(-2 pi i k / m), or [n] of n when direct */
    Complex *chirp;  /* [n] exp(-pi i k^2 / n), or NULL */
    Complex *filter; /* [m] the transform of the chirp's conjugate */
} Transform;

/* In place, m a power of two. */
static void radix2(Complex *x, int64_t m, const Complex *roots) {
    for (int64_t i = 1, j = 0; i < m; i++) {
        int64_t bit = m >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j ^= bit;
        if (i >= j) continue;
        Complex swap = x[i];
        x[i] = x[j];
        x[j] = swap;
    }
    for (int64_t length = 2; length <= m; length <<= 1) {
        int64_t half = length / 2, step = m / length;
        for (int64_t start = 0; start < m; start += length) {
            for (int64_t k = 0; k < half; k++) {
                Complex even = x[start + k], odd = times(x[start + k + half], roots[k * step]);
                x[start + k] = (Complex){even.re + odd.re, even.im + odd.im};
                x[start + k + half] = (Complex){even.re - odd.re, even.im - odd.im};
            }
        }
    }
}

static void transform_make(Arena *arena, int64_t n, Transform *t) {
    bool power = (n & (n - 1)) == 0;
    *t = (Transform){.n = n, .m = n};
    if (!power && n <= DIRECT_LENGTH) {
        t->m = 0;
        t->roots = ARENA_ARRAY(arena, Complex, n);
        for (int64_t k = 0; k < n; k++) t->roots[k] = turned(-(double)k / (double)n);
        return;
    }
    if (!power)
        for (t->m = 1; t->m < 2 * n - 1;) t->m <<= 1;
    t->roots = ARENA_ARRAY(arena, Complex, t->m / 2 + 1);
    for (int64_t k = 0; k < t->m / 2; k++) t->roots[k] = turned(-(double)k / (double)t->m);
    if (power) return;
    t->chirp = ARENA_ARRAY(arena, Complex, n);
    t->filter = ARENA_ARRAY(arena, Complex, t->m);
    for (int64_t k = 0, square = 0; k < n; square = (square + 2 * k + 1) % (2 * n), k++) { /* square: k^2 mod 2n */
        t->chirp[k] = turned(-(double)square / (double)(2 * n));
        Complex conjugate = {t->chirp[k].re, -t->chirp[k].im};
        t->filter[k] = conjugate;
        if (k) t->filter[t->m - k] = conjugate;
    }
    radix2(t->filter, t->m, t->roots);
}

static int64_t transform_scratch(const Transform *t) { return t->chirp ? t->m : t->m ? 0 : t->n; }

static void transform_direct(const Transform *t, Complex *x, Complex *scratch) {
    for (int64_t k = 0; k < t->n; k++) {
        scratch[k] = (Complex){0, 0};
        for (int64_t i = 0; i < t->n; i++) {
            Complex term = times(x[i], t->roots[k * i % t->n]);
            scratch[k].re += term.re;
            scratch[k].im += term.im;
        }
    }
    memcpy(x, scratch, (size_t)t->n * sizeof *x);
}

/* x [n] becomes its forward transform; scratch [transform_scratch]. */
static void transform_forward(const Transform *t, Complex *x, Complex *scratch) {
    if (!t->m) {
        transform_direct(t, x, scratch);
        return;
    }
    if (!t->chirp) {
        radix2(x, t->n, t->roots);
        return;
    }
    memset(scratch, 0, (size_t)t->m * sizeof *scratch);
    for (int64_t i = 0; i < t->n; i++) scratch[i] = times(x[i], t->chirp[i]);
    radix2(scratch, t->m, t->roots);
    for (int64_t i = 0; i < t->m; i++) { /* conjugated, so that a forward transform brings it back */
        Complex value = times(scratch[i], t->filter[i]);
        scratch[i] = (Complex){value.re, -value.im};
    }
    radix2(scratch, t->m, t->roots);
    for (int64_t i = 0; i < t->n; i++) {
        Complex value = {scratch[i].re / (double)t->m, -scratch[i].im / (double)t->m};
        x[i] = times(value, t->chirp[i]);
    }
}

/* The inverse is the conjugate of the forward transform of the conjugate, over n. */
static void transform_run(const Transform *t, bool inverse, Complex *x, Complex *scratch) {
    for (int64_t i = 0; inverse && i < t->n; i++) x[i].im = -x[i].im;
    transform_forward(t, x, scratch);
    for (int64_t i = 0; inverse && i < t->n; i++) x[i] = (Complex){x[i].re / (double)t->n, -x[i].im / (double)t->n};
}

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

/* Element i of complex (parts 2) or real (parts 1) data. */
static Complex load_complex(const Tensor *t, int64_t i, int64_t parts) {
    return (Complex){load(t, i * parts), parts == 2 ? load(t, i * 2 + 1) : 0};
}

/* ---- DFT ---- */

typedef struct Lines {
    const Tensor *x, *window;
    Tensor *y;
    Transform transform;
    bool inverse, onesided;
    int64_t inner;   /* elements between neighbours of a line (DFT) */
    int64_t in, out; /* a line's elements before and after */
    int64_t in_parts, out_parts;
    int64_t frames, step; /* STFT */
    Complex *buffers;     /* [workers][n + scratch] */
} Lines;

enum { MAX_TRANSFORM = 1 << 28 };

static Status prepare_lines(HostCall *call, Lines *lines, int64_t n) {
    if (n < 1 || n > MAX_TRANSFORM) return host_error(call, "a transform of length %lld is out of range", (long long)n);
    transform_make(call->arena, n, &lines->transform);
    int64_t each = n + transform_scratch(&lines->transform);
    lines->buffers = arena_array(call->arena, (size_t)pool_threads(call->pool), (size_t)each * sizeof *lines->buffers);
    return NULL;
}

static Complex *buffer_of(const Lines *lines, int worker) {
    return lines->buffers + (lines->transform.n + transform_scratch(&lines->transform)) * worker;
}

static void transform_lines(void *context, int64_t begin, int64_t end, int worker) {
    const Lines *p = context;
    const Transform *t = &p->transform;
    Complex *x = buffer_of(p, worker), *scratch = x + t->n;
    for (int64_t line = begin; line < end; line++) {
        int64_t outer = line / p->inner, offset = line % p->inner, given = p->in < t->n ? p->in : t->n;
        for (int64_t i = 0; i < t->n; i++)
            x[i] =
                i < given ? load_complex(p->x, (outer * p->in + i) * p->inner + offset, p->in_parts) : (Complex){0, 0};
        if (p->inverse && p->onesided) /* the other half mirrors the one that is given */
            for (int64_t i = t->n / 2 + 1; i < t->n; i++) x[i] = (Complex){x[t->n - i].re, -x[t->n - i].im};
        transform_run(t, p->inverse, x, scratch);
        for (int64_t i = 0; i < p->out; i++) {
            int64_t at = ((outer * p->out + i) * p->inner + offset) * p->out_parts;
            store(p->y, at, x[i].re);
            if (p->out_parts == 2) store(p->y, at + 1, x[i].im);
        }
    }
}

Status host_dft(HostCall *call) {
    Lines p = {.inverse = attr_int(call->node, "inverse", 0), .onesided = attr_int(call->node, "onesided", 0)};
    int64_t length, dims[MAX_RANK], outer = 1;
    TRY(host_tensor(call, 0, DT_NONE, &p.x));
    TRY(host_sizes(call, "length", 1, &length));
    int axis = (int)attr_int(call->node, "axis", 0), rank = p.x->rank;
    TRY(prepare_lines(call, &p, length));
    p.in = p.x->dims[axis];
    p.out = p.onesided && !p.inverse ? length / 2 + 1 : length;
    p.in_parts = p.x->dims[rank - 1];
    p.out_parts = p.onesided && p.inverse ? 1 : 2;
    if (p.in_parts != 1 && p.in_parts != 2)
        return host_error(call, "the last dimension is %lld instead of 1 or 2", (long long)p.in_parts);
    memcpy(dims, p.x->dims, sizeof dims);
    dims[axis] = p.out;
    dims[rank - 1] = p.out_parts;
    TRY(host_output(call, 0, p.x->dtype, rank, dims, &p.y));
    if (!p.y) return NULL;
    p.inner = 1;
    for (int i = 0; i < axis; i++) outer *= dims[i];
    for (int i = axis + 1; i < rank - 1; i++) p.inner *= dims[i];
    pool_for(call->pool, outer * p.inner, 1 + 4096 / (length + 1), transform_lines, &p);
    return NULL;
}

Status lower_dft(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *given_length = optional_in(l, n, 1),
          *given_axis = n->opset >= 20 ? optional_in(l, n, 2) : NULL;
    if (!x) return l->error;
    int64_t wanted = n->opset >= 20 ? -2 : attr_int(n, "axis", 1);
    if (given_axis) {
        const int64_t *values;
        int count;
        if (!constant_ints(l, given_axis, &values, &count) || count != 1)
            return unsupported(l, "an axis known only at run time");
        wanted = values[0];
    }
    int axis = axis_of(l, wanted, x->rank), count = 1;
    if (l->error) return l->error;
    if (axis == x->rank - 1 || !dtype_is_float(x->dtype))
        return invalid(l, "the last axis holds the parts of complex numbers");
    bool inverse = attr_int(n, "inverse", 0), onesided = attr_int(n, "onesided", 0);
    const Dim *length = x->dims[axis], **dims = dims_copy(l, x, x->rank);
    if (given_length) {
        const Dim *const *sizes = sizes_of(l, given_length, "dft_length", &count);
        if (!sizes || count != 1) return l->error ? l->error : invalid(l, "dft_length must be one number");
        length = sizes[0];
    } else if (inverse && onesided) {
        length = size_mul(l, size_sub(l, length, size_const(l, 1)), size_const(l, 2));
    }
    Node *host = host_node(l, n, host_dft, &x, 1);
    node_set_int(host, "axis", axis);
    node_set_dims(host, "length", &length, 1);
    dims[axis] =
        onesided && !inverse ? size_add(l, dim_div(l->dims, length, size_const(l, 2)), size_const(l, 1)) : length;
    dims[x->rank - 1] = size_const(l, onesided && inverse ? 1 : 2);
    return out(l, n, 0, host_result(l, host, x->dtype, x->rank, dims));
}

/* ---- STFT ---- */

static void transform_frames(void *context, int64_t begin, int64_t end, int worker) {
    const Lines *p = context;
    const Transform *t = &p->transform;
    Complex *x = buffer_of(p, worker), *scratch = x + t->n;
    for (int64_t frame = begin; frame < end; frame++) {
        int64_t start = frame / p->frames * p->in + frame % p->frames * p->step;
        for (int64_t i = 0; i < t->n; i++) {
            double weight = p->window ? load(p->window, i) : 1;
            Complex value = load_complex(p->x, start + i, p->in_parts);
            x[i] = (Complex){value.re * weight, value.im * weight};
        }
        transform_run(t, false, x, scratch);
        for (int64_t i = 0; i < p->out; i++) {
            store(p->y, (frame * p->out + i) * 2, x[i].re);
            store(p->y, (frame * p->out + i) * 2 + 1, x[i].im);
        }
    }
}

Status host_stft(HostCall *call) {
    Lines p = {.window = host_input(call, 1)};
    int64_t length;
    TRY(host_tensor(call, 0, DT_NONE, &p.x));
    TRY(host_sizes(call, "step", 1, &p.step));
    TRY(host_sizes(call, "length", 1, &length));
    TRY(prepare_lines(call, &p, length));
    p.in = p.x->dims[1];
    p.in_parts = p.x->dims[2];
    if (p.step < 1) return host_error(call, "frame_step is %lld", (long long)p.step);
    if (p.in_parts != 1 && p.in_parts != 2)
        return host_error(call, "the last dimension is %lld instead of 1 or 2", (long long)p.in_parts);
    if (p.window && (p.window->rank != 1 || p.window->dims[0] != length))
        return host_error(call, "the window does not have frame_length elements");
    p.frames = length > p.in ? 0 : (p.in - length) / p.step + 1;
    p.out = attr_int(call->node, "onesided", 1) ? length / 2 + 1 : length;
    TRY(host_output(call, 0, p.x->dtype, 4, (int64_t[]){p.x->dims[0], p.frames, p.out, 2}, &p.y));
    if (p.y && p.frames) pool_for(call->pool, p.x->dims[0] * p.frames, 1 + 4096 / (length + 1), transform_frames, &p);
    return NULL;
}

Status lower_stft(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *given_step = in(l, n, 1), *window = optional_in(l, n, 2),
          *given_length = optional_in(l, n, 3);
    int count = 1, lengths = 1;
    if (!x || !given_step) return l->error;
    if (x->rank != 3 || !dtype_is_float(x->dtype)) return invalid(l, "the signal has rank %d instead of 3", x->rank);
    if (window && window->rank != 1) return invalid(l, "the window has rank %d instead of 1", window->rank);
    const Dim *const *step = sizes_of(l, given_step, "frame_step", &count);
    const Dim *length = window ? window->dims[0] : x->dims[1];
    if (given_length) {
        const Dim *const *sizes = sizes_of(l, given_length, "frame_length", &lengths);
        if (sizes && lengths == 1) length = sizes[0];
    }
    if (l->error) return l->error;
    if (count != 1 || lengths != 1 || dim_equals(step[0], 0))
        return invalid(l, "frame_step and frame_length must be one positive number");
    Node *host = host_node(l, n, host_stft, (Value *[]){x, window}, window ? 2 : 1);
    node_set_dims(host, "step", step, 1);
    node_set_dims(host, "length", &length, 1);
    const Dim *one = size_const(l, 1), *half = size_add(l, dim_div(l->dims, length, size_const(l, 2)), one);
    const Dim *frames = size_add(l, dim_div(l->dims, size_sub(l, x->dims[1], length), step[0]), one);
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
    return mel->low >= 0 && mel->low <= mel->high;
}

Status host_mel_weight_matrix(HostCall *call) {
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

Status lower_mel_weight_matrix(Lowering *l, const Node *n) {
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
    int bins, lengths;
    const Dim *const *bin = sizes_of(l, inputs[0], "num_mel_bins", &bins), *const *length = sizes_of(
                                                                               l, inputs[1], "dft_length", &lengths);
    if (l->error) return l->error;
    if (bins != 1 || lengths != 1) return invalid(l, "num_mel_bins and dft_length must be one number each");
    const Dim *dims[] = {size_add(l, dim_div(l->dims, length[0], size_const(l, 2)), size_const(l, 1)), bin[0]};
    return out(l, n, 0, host_result(l, host_node(l, n, host_mel_weight_matrix, inputs, 5), dtype, 2, dims));
}
