/* SPDX-License-Identifier: Apache-2.0 */
/* FusedRMSNorm: y = x / sqrt(mean(x^2) + epsilon) * scale (Zhang and Sennrich, Root Mean Square Layer Normalization,
 * 2019) as exporters write it, one kernel; and its backward, which is a fusion of its own.
 *
 * Forward is made of the nodes themselves, so its results are theirs, and it offers what they offer to a backward pass:
 * the inverse root, the normalised x, the root, x widened to float32, x + skip. Backward takes any of these:
 *
 *     normal = x inverse,  g = dy scale
 *     dx = inverse (g - normal mean(g normal)),  dscale = sum over rows of dy normal
 *
 * dx needs sums along rows and dscale sums over rows, which no single generated kernel has: it is an operator in C that
 * reads dy and x once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxfuse.h"

extern const OnnxfuseFusion fused_rms_norm, fused_rms_norm_backward;

/* --- forward ------------------------------------------------------------------------------------------------------ */
/* x - mean(x) normalised is a LayerNormalization, which is better left whole.
 * The inputs are x, scale, what is added to x before, and a bias added to that. The outputs are y, the inverse root,
 * the normalised x, the root, x as float32, and x + skip. A form names those that it has. */
#define FORWARD(outputs, nodes) "(x, scale, _, _) -> (" outputs ") { x != Sub " nodes "}"

/* What is squared, and what is normalised, is `wide`. */
#define MEAN_POW(wide) "square = Pow(" wide ", 2) "
#define MEAN_MUL(wide) "square = Mul(" wide ", " wide ") "
#define SHIFTED "mean = ReduceMean<axes=[-1], keepdims=1>(square) shifted = Add(mean, $epsilon) "

/* The ways to divide x; `to` is what the quotient is called. */
#define BY_RECIPROCAL(x, to) SHIFTED "root = Sqrt(shifted) inverse = Reciprocal(root) " to " = Mul(" x ", inverse) "
#define BY_ONE_OVER(x, to) SHIFTED "root = Sqrt(shifted) inverse = Div(1, root) " to " = Mul(" x ", inverse) "
#define BY_POWER(x, to) SHIFTED "inverse = Pow(shifted, -0.5) " to " = Mul(" x ", inverse) "
#define BY_ROOT(x, to) SHIFTED "root = Sqrt(shifted) " to " = Div(" x ", root) "

#define CAST "wide = Cast<to=\"float32\">(x) "
#define SCALED "y = Mul(normal, scale)"

/* x widened and the quotient narrowed before the scale, or after it, which may be widened too; x widened for the mean
 * alone; no casts. The first that fits is taken, so those with more nodes go before. inverse, root: "_" where the way
 * to divide has none. */
#define CASTS(mean, by, inverse, root)                                                                                 \
    FORWARD("y, " inverse ", normal, " root ", wide, _",                                                               \
            CAST mean("wide") by("wide", "exact") "normal = Cast(exact) " SCALED),                                     \
        FORWARD("y, " inverse ", normal, " root ", wide, _",                                                           \
                CAST mean("wide") by(                                                                                  \
                    "wide",                                                                                            \
                    "normal") "factor = Cast<to=\"float32\">(scale) scaled = Mul(normal, factor) y = Cast(scaled)"),   \
        FORWARD("y, " inverse ", normal, " root ", wide, _",                                                           \
                CAST mean("wide") by("wide", "normal") "scaled = Mul(normal, scale) y = Cast(scaled)"),                \
        FORWARD("y, " inverse ", normal, " root ", wide, _", CAST mean("wide") by("x", "normal") SCALED),              \
        FORWARD("y, " inverse ", normal, " root ", _, _", mean("x") by("x", "normal") SCALED)

#define WAYS(mean)                                                                                                     \
    CASTS(mean, BY_RECIPROCAL, "inverse", "root"), CASTS(mean, BY_ONE_OVER, "inverse", "root"),                        \
        CASTS(mean, BY_POWER, "inverse", "_"), CASTS(mean, BY_ROOT, "_", "root")

static const char *const forward_patterns[] = {
    WAYS(MEAN_POW),
    WAYS(MEAN_MUL),
    "(x, scale, _, _) -> (y, _, _, _, _, _) { y = RMSNormalization<axis=-1, epsilon=$epsilon>(x, scale) }",
    "(x, scale, _, _) -> (y, inverse, _, _, _, _) {"
    "y, inverse = SimplifiedLayerNormalization<axis=-1, epsilon=$epsilon>(x, scale) }",
    "(x, scale, _, _) -> (y, inverse, _, _, _, _) {"
    "y, inverse = com.microsoft.SimplifiedLayerNormalization<axis=-1, epsilon=$epsilon>(x, scale) }",
    "(x, scale, skip, _) -> (y, inverse, _, _, _, sum) {"
    "y, _, inverse, sum = com.microsoft.SkipSimplifiedLayerNormalization(x, skip, scale) }",
    "(x, scale, skip, bias) -> (y, inverse, _, _, _, sum) {"
    "y, _, inverse, sum = com.microsoft.SkipSimplifiedLayerNormalization(x, skip, scale, bias) }",
    NULL,
};

const OnnxfuseFusion fused_rms_norm = {
    .size = sizeof(OnnxfuseFusion),
    .name = "FusedRMSNorm",
    .phase = ONNXFUSE_FORWARD,
    .patterns = forward_patterns,
};

/* --- backward --- */
/* The inputs are dy, x (or the normalised x), scale, the inverse root; without that, it is made again of x and the attribute epsilon. */
enum { DY, X, NORMAL, SCALE, INVERSE, DX = 0, DSCALE = 1 };

#define DSCALE_OVER(axes) "weighted = Mul(dy, normal) dscale = ReduceSum<axes=" axes ", keepdims=0>(weighted) "
#define DX_OF                                                                                                          \
    "g = Mul(dy, scale) product = Mul(g, normal) average = ReduceMean<axes=[-1], keepdims=1>(product) "                \
    "back = Mul(normal, average) rest = Sub(g, back) dx = Mul(rest, inverse)"
#define MADE "(dy, x, _, scale, inverse) -> "
#define SAVED "(dy, _, normal, scale, inverse) -> "
#define NORMAL_OF "normal = Mul(x, inverse) "
#define MADE_AGAIN "(dy, x, _, scale, _) -> "
#define INVERSE_OF MEAN_MUL("x") SHIFTED "root = Sqrt(shifted) inverse = Reciprocal(root) "

#define BACKWARD(axes)                                                                                                 \
    MADE "(dx, dscale) {" NORMAL_OF DSCALE_OVER(axes) DX_OF "}", SAVED "(dx, dscale) {" DSCALE_OVER(axes) DX_OF "}"

static const char *const backward_patterns[] = {
    BACKWARD("[0]"),
    BACKWARD("[0, 1]"),
    BACKWARD("[0, 1, 2]"),
    MADE "(dx, _) {" NORMAL_OF DX_OF "}", /* a scale that is not trained */
    SAVED "(dx, _) {" DX_OF "}",
    /* Where forward keeps no inverse root. */
    MADE_AGAIN "(dx, dscale) {" INVERSE_OF NORMAL_OF DSCALE_OVER("[0]") DX_OF "}",
    NULL,
};

/* --- numbers in the types of tensors ------------------------------------------------------------------------------ */

static float from_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 1023, bits;
    float value;
    if (exponent == 31) {
        bits = sign | 0x7f800000 | mantissa << 13;
    } else if (exponent) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else { /* mantissa / 2^24 */
        value = (float)mantissa * 0x1p-24f;
        return sign ? -value : value;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest, ties to even. */
static uint16_t to_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t size = bits & 0x7fffffff;
    if (size > 0x7f800000) return sign | 0x7e00;
    if (size >= 0x477ff000) return sign | 0x7c00; /* 65520, half way beyond the largest */
    if (size < 0x38800000) {                      /* below 2^-14: a multiple of 2^-24 */
        float whole, scaled;
        memcpy(&scaled, &size, sizeof scaled);
        whole = scaled * 0x1p24f + 0x1p23f; /* rounds to a whole number */
        memcpy(&size, &whole, sizeof size);
        return sign | (uint16_t)(size & 0xffff);
    }
    return sign | (uint16_t)((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}

static float from_brain(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t to_brain(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static bool is_computable(OnnxfuseDType dtype) {
    return dtype == ONNXFUSE_FLOAT32 || dtype == ONNXFUSE_FLOAT64 || dtype == ONNXFUSE_FLOAT16 ||
           dtype == ONNXFUSE_BFLOAT16;
}

static const void *at(const void *data, OnnxfuseDType dtype, int64_t index) {
    return (const char *)data + (size_t)index * onnxfuse_dtype_size(dtype);
}

/* --- the kernel --- */

typedef struct Rows {
    const OnnxfuseValue *inputs[5]; /* one of X and NORMAL is NULL */
    void *dx, *dscale;              /* NULL: nobody reads it */
    int64_t rows, width;
    int64_t chunk; /* rows of one partial sum: depends on their number alone, and so do the results */
    int chunks;
    bool wide; /* computed in double */
    double epsilon;
    void *sums;   /* [chunks, width] */
    void *buffer; /* [chunks, LANES_BUFFERS, width]: rows in the type that is computed in */
} Rows;

enum { MOST_CHUNKS = 64, FEWEST_ROWS = 8, BUFFERS = 4, LANES = 16 };

/* The same text in float, for everything up to float32, and in double. Sums run in LANES parts. */
#define DEFINE_ROWS(real)                                                                                              \
    static void load_##real(const void *data, OnnxfuseDType dtype, int64_t count, real *out) {                         \
        switch (dtype) {                                                                                               \
        case ONNXFUSE_FLOAT64:                                                                                         \
            for (int64_t i = 0; i < count; i++) out[i] = (real)((const double *)data)[i];                              \
            return;                                                                                                    \
        case ONNXFUSE_FLOAT32:                                                                                         \
            for (int64_t i = 0; i < count; i++) out[i] = (real)((const float *)data)[i];                               \
            return;                                                                                                    \
        case ONNXFUSE_FLOAT16:                                                                                         \
            for (int64_t i = 0; i < count; i++) out[i] = (real)from_half(((const uint16_t *)data)[i]);                 \
            return;                                                                                                    \
        default:                                                                                                       \
            for (int64_t i = 0; i < count; i++) out[i] = (real)from_brain(((const uint16_t *)data)[i]);                \
        }                                                                                                              \
    }                                                                                                                  \
    static void store_##real(const real *values, OnnxfuseDType dtype, int64_t count, void *data) {                     \
        switch (dtype) {                                                                                               \
        case ONNXFUSE_FLOAT64:                                                                                         \
            for (int64_t i = 0; i < count; i++) ((double *)data)[i] = (double)values[i];                               \
            return;                                                                                                    \
        case ONNXFUSE_FLOAT32:                                                                                         \
            for (int64_t i = 0; i < count; i++) ((float *)data)[i] = (float)values[i];                                 \
            return;                                                                                                    \
        case ONNXFUSE_FLOAT16:                                                                                         \
            for (int64_t i = 0; i < count; i++) ((uint16_t *)data)[i] = to_half((float)values[i]);                     \
            return;                                                                                                    \
        default:                                                                                                       \
            for (int64_t i = 0; i < count; i++) ((uint16_t *)data)[i] = to_brain((float)values[i]);                    \
        }                                                                                                              \
    }                                                                                                                  \
    static const real *row_##real(const OnnxfuseValue *value, int64_t row, int64_t width, real *room) {                \
        OnnxfuseDType dtype = onnxfuse_value_dtype(value);                                                             \
        const void *data = at(onnxfuse_value_data(value), dtype, row * width);                                         \
        if (onnxfuse_dtype_size(dtype) == sizeof(real)) return data;                                                   \
        load_##real(data, dtype, width, room);                                                                         \
        return room;                                                                                                   \
    }                                                                                                                  \
    static void one_row_##real(const real *dy, const real *x, const real *scale, real factor, real inverse,            \
                               int64_t width, real *restrict dx, real *restrict sum) {                                 \
        real parts[LANES] = {0}, total = 0;                                                                            \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= width; i += LANES)                                                                         \
            for (int k = 0; k < LANES; k++) {                                                                          \
                real weighted = dy[i + k] * (x[i + k] * factor);                                                       \
                parts[k] += weighted * scale[i + k];                                                                   \
                sum[i + k] += weighted;                                                                                \
            }                                                                                                          \
        for (; i < width; i++) {                                                                                       \
            real weighted = dy[i] * (x[i] * factor);                                                                   \
            total += weighted * scale[i];                                                                              \
            sum[i] += weighted;                                                                                        \
        }                                                                                                              \
        for (int k = 0; k < LANES; k++) total += parts[k];                                                             \
        real average = total / (real)width;                                                                            \
        for (i = 0; i < width; i++) dx[i] = inverse * (dy[i] * scale[i] - x[i] * factor * average);                    \
    }                                                                                                                  \
    static real inverse_##real(const real *x, int64_t width, real epsilon) {                                           \
        real parts[LANES] = {0}, total = 0;                                                                            \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= width; i += LANES)                                                                         \
            for (int k = 0; k < LANES; k++) parts[k] += x[i + k] * x[i + k];                                           \
        for (; i < width; i++) total += x[i] * x[i];                                                                   \
        for (int k = 0; k < LANES; k++) total += parts[k];                                                             \
        return (real)1 / (real)sqrt((double)(total / (real)width + epsilon));                                          \
    }                                                                                                                  \
    static void some_rows_##real(const Rows *r, int chunk) {                                                           \
        const OnnxfuseValue *x = r->inputs[X] ? r->inputs[X] : r->inputs[NORMAL];                                      \
        int64_t first = chunk * r->chunk, end = first + r->chunk < r->rows ? first + r->chunk : r->rows;               \
        real *sum = (real *)r->sums + chunk * r->width, *room = (real *)r->buffer + chunk * BUFFERS * r->width;        \
        const real *scale = row_##real(r->inputs[SCALE], 0, r->width, room);                                           \
        OnnxfuseDType out = onnxfuse_value_dtype(r->inputs[DY]);                                                       \
        for (int64_t row = first; row < end; row++) {                                                                  \
            real inverse;                                                                                              \
            const real *dy = row_##real(r->inputs[DY], row, r->width, room + r->width);                                \
            const real *values = row_##real(x, row, r->width, room + 2 * r->width);                                    \
            real *dx = room + 3 * r->width;                                                                            \
            if (r->inputs[INVERSE])                                                                                    \
                inverse = *row_##real(r->inputs[INVERSE], row, 1, &inverse);                                           \
            else                                                                                                       \
                inverse = inverse_##real(values, r->width, (real)r->epsilon);                                          \
            one_row_##real(dy, values, scale, r->inputs[X] ? inverse : 1, inverse, r->width, dx, sum);                 \
            if (r->dx) store_##real(dx, out, r->width, (void *)at(r->dx, out, row * r->width));                        \
        }                                                                                                              \
    }                                                                                                                  \
    static void add_sums_##real(const Rows *r) {                                                                       \
        real *total = r->sums;                                                                                         \
        for (int k = 1; k < r->chunks; k++)                                                                            \
            for (int64_t i = 0; i < r->width; i++) total[i] += total[k * r->width + i];                                \
        store_##real(total, onnxfuse_value_dtype(r->inputs[SCALE]), r->width, r->dscale);                              \
    }

DEFINE_ROWS(float)
DEFINE_ROWS(double)

static void some_rows(void *context, int index) {
    const Rows *r = context;
    if (r->wide)
        some_rows_double(r, index);
    else
        some_rows_float(r, index);
}

/* --- shapes ------------------------------------------------------------------------------------------------------- */

static OnnxfuseStatus complaint(const char *what) {
    char text[200];
    snprintf(text, sizeof text, "FusedRMSNorm.backward: %s", what);
    return onnxfuse_error(ONNXFUSE_UNSUPPORTED, text);
}

/* Where dscale is not asked for, the pattern cannot tell dy from scale, whose product it reads. The scale is the
 * vector.
 */
static bool are_swapped(int rank_of_dy, int rank_of_scale) { return rank_of_dy == 1 && rank_of_scale != 1; }

static OnnxfuseStatus infer_backward(void *user, OnnxfuseCall *call) {
    (void)user;
    OnnxfuseDim dims[ONNXFUSE_MAX_RANK], width;
    bool swapped = are_swapped(onnxfuse_call_input_rank(call, DY), onnxfuse_call_input_rank(call, SCALE));
    int dy = swapped ? SCALE : DY, scale = swapped ? DY : SCALE, rank = onnxfuse_call_input_rank(call, dy);
    for (int i = DY; i <= INVERSE; i++) {
        OnnxfuseDType dtype = onnxfuse_call_input_dtype(call, i);
        if (dtype != ONNXFUSE_NONE && !is_computable(dtype)) return complaint("only floating-point tensors");
    }
    if (rank < 1 || onnxfuse_call_input_rank(call, scale) != 1)
        return complaint("the scale has to be a vector along the last axis");
    for (int i = 0; i < rank; i++) dims[i] = onnxfuse_call_input_dim(call, dy, i);
    width = onnxfuse_call_input_dim(call, scale, 0);
    OnnxfuseStatus status = onnxfuse_call_set_type(call, DX, onnxfuse_call_input_dtype(call, dy), rank, dims);
    if (status || onnxfuse_call_output_count(call) <= DSCALE) return status;
    return onnxfuse_call_set_type(call, DSCALE, onnxfuse_call_input_dtype(call, scale), 1, &width);
}

static bool has_shape_of(const OnnxfuseValue *value, const OnnxfuseValue *model) {
    int rank = onnxfuse_value_rank(model);
    return !value ||
           (onnxfuse_value_rank(value) == rank &&
            memcmp(onnxfuse_value_dims(value), onnxfuse_value_dims(model), (size_t)rank * sizeof(int64_t)) == 0);
}

static OnnxfuseStatus take_inputs(OnnxfuseCall *call, Rows *r) {
    for (int i = DY; i <= INVERSE; i++) r->inputs[i] = onnxfuse_call_input(call, i);
    if (are_swapped(onnxfuse_value_rank(r->inputs[DY]), onnxfuse_value_rank(r->inputs[SCALE]))) {
        const OnnxfuseValue *scale = r->inputs[DY];
        r->inputs[DY] = r->inputs[SCALE];
        r->inputs[SCALE] = scale;
    }
    const OnnxfuseValue *dy = r->inputs[DY];
    int rank = onnxfuse_value_rank(dy);
    onnxfuse_call_float(call, "epsilon", &r->epsilon);
    r->width = onnxfuse_value_dims(dy)[rank - 1];
    r->rows = r->width ? onnxfuse_value_count(dy) / r->width : 0;
    if (!has_shape_of(r->inputs[X], dy) || !has_shape_of(r->inputs[NORMAL], dy))
        return complaint("dy and x have different shapes");
    if (onnxfuse_value_count(r->inputs[SCALE]) != r->width) return complaint("the scale does not fit the last axis");
    if (r->width && r->inputs[INVERSE] && onnxfuse_value_count(r->inputs[INVERSE]) != r->rows)
        return complaint("the inverse root does not fit the rows");
    for (int i = DY; i <= INVERSE; i++)
        r->wide |= r->inputs[i] && onnxfuse_value_dtype(r->inputs[i]) == ONNXFUSE_FLOAT64;
    return NULL;
}

static OnnxfuseStatus make_outputs(OnnxfuseCall *call, Rows *r) {
    const OnnxfuseValue *dy = r->inputs[DY];
    OnnxfuseStatus status = onnxfuse_call_output(call, DX, onnxfuse_value_rank(dy), onnxfuse_value_dims(dy), &r->dx);
    if (status || onnxfuse_call_output_count(call) <= DSCALE) return status;
    return onnxfuse_call_output(call, DSCALE, 1, onnxfuse_value_dims(r->inputs[SCALE]), &r->dscale);
}

static OnnxfuseStatus compute_backward(void *user, OnnxfuseCall *call) {
    (void)user;
    Rows r = {0};
    OnnxfuseStatus status = take_inputs(call, &r);
    if (!status) status = make_outputs(call, &r);
    if (status) return status;
    size_t real = r.wide ? sizeof(double) : sizeof(float);
    r.chunk = (r.rows + MOST_CHUNKS - 1) / MOST_CHUNKS;
    if (r.chunk < FEWEST_ROWS) r.chunk = FEWEST_ROWS;
    r.chunks = r.rows ? (int)((r.rows + r.chunk - 1) / r.chunk) : 1;
    r.sums = calloc((size_t)r.chunks * (size_t)r.width + 1, real);
    r.buffer = malloc((size_t)r.chunks * BUFFERS * (size_t)r.width * real + 1);
    if (r.sums && r.buffer) {
        onnxfuse_call_parallel(call, r.chunks, some_rows, &r);
        if (r.dscale && r.wide) add_sums_double(&r);
        if (r.dscale && !r.wide) add_sums_float(&r);
    } else {
        status = onnxfuse_error(ONNXFUSE_FAULT, "out of memory");
    }
    free(r.sums);
    free(r.buffer);
    return status;
}

static const OnnxfuseOperator backward_kernel = {
    .size = sizeof(OnnxfuseOperator),
    .domain = "onnxfuse",
    .name = "FusedRMSNormBackward",
    .since = 1,
    .infer = infer_backward,
    .compute = compute_backward,
};

const OnnxfuseFusion fused_rms_norm_backward = {
    .size = sizeof(OnnxfuseFusion),
    .name = "FusedRMSNorm",
    .phase = ONNXFUSE_BACKWARD,
    .patterns = backward_patterns,
    .kernel = &backward_kernel,
};
