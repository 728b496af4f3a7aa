/* SPDX-License-Identifier: Apache-2.0 */
/* Strided iteration, and elements widened to double, int64 or uint64 and narrowed again: what lets every primitive be
 * one loop a lane type instead of one a dtype. */
#include "graph/eval/eval_kernels.h"

#include <math.h>

/* ---- walks ---- */

void dense_strides(int rank, const int64_t *dims, int64_t *out_strides) {
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        out_strides[i] = stride;
        if (dims[i] > 0) stride *= dims[i];
    }
}

static bool axes_merge(const Walk *w, int outer, int inner) {
    for (int k = 0; k < w->operands; k++)
        if (w->strides[k][outer] != w->strides[k][inner] * w->dims[inner]) return false;
    return true;
}

static void copy_axis(Walk *w, int to, int from) {
    w->dims[to] = w->dims[from];
    for (int k = 0; k < w->operands; k++) w->strides[k][to] = w->strides[k][from];
}

bool walk_begin(Walk *w) {
    int kept = 0;
    for (int i = 0; i < w->rank; i++) {
        if (w->dims[i] <= 0) return false;
        if (w->dims[i] == 1) continue;
        copy_axis(w, kept, i);
        if (kept > 0 && axes_merge(w, kept - 1, kept)) {
            int64_t outer = w->dims[kept - 1];
            copy_axis(w, kept - 1, kept);
            w->dims[kept - 1] *= outer;
        } else {
            kept++;
        }
    }
    w->rank = kept;
    w->length = kept ? w->dims[kept - 1] : 1;
    for (int k = 0; k < w->operands; k++) w->step[k] = kept ? w->strides[k][kept - 1] : 0;
    memset(w->index, 0, sizeof w->index);
    return true;
}

bool walk_next(Walk *w) {
    for (int i = w->rank - 2; i >= 0; i--) {
        if (++w->index[i] < w->dims[i]) {
            for (int k = 0; k < w->operands; k++) w->offsets[k] += w->strides[k][i];
            return true;
        }
        for (int k = 0; k < w->operands; k++) w->offsets[k] -= w->strides[k][i] * (w->dims[i] - 1);
        w->index[i] = 0;
    }
    return false;
}

static void copy_run(size_t element, char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count) {
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, (size_t)count * element);
        return;
    }
#define COPY(size)                                                                                                     \
    case size:                                                                                                         \
        for (int64_t i = 0; i < count; i++) memcpy(to + i * to_step * size, from + i * from_step * size, size);        \
        break
    switch (element) {
        COPY(1);
        COPY(2);
        COPY(4);
        COPY(8);
        COPY(16);
    }
#undef COPY
}

void copy_strided(Walk *w, size_t element, void *to, const void *from) {
    int64_t size = (int64_t)element;
    for (bool more = walk_begin(w); more; more = walk_next(w))
        copy_run(element, (char *)to + w->offsets[0] * size, w->step[0], (const char *)from + w->offsets[1] * size,
                 w->step[1], w->length);
}

/* ---- loads ---- */

LaneClass lane_class(DType dtype) {
    switch (dtype_class(dtype)) {
    case DTYPE_FLOAT: return LANE_FLOAT;
    case DTYPE_SIGNED: return LANE_SIGNED;
    default: return LANE_UNSIGNED;
    }
}

/* Elements are read with memcpy: initializers in a mapped file need not be aligned. */
#define LOAD(ctype, member, expression)                                                                                \
    do {                                                                                                               \
        const char *at = (const char *)data + offset * (int64_t)sizeof(ctype);                                         \
        for (int64_t k = 0; k < count; k++) {                                                                          \
            ctype x;                                                                                                   \
            memcpy(&x, at + k * stride * (int64_t)sizeof x, sizeof x);                                                 \
            lanes[k].member = (expression);                                                                            \
        }                                                                                                              \
    } while (0)

static void load_contiguous(Lane *lanes, DType dtype, const void *data, int64_t offset, int64_t count) {
    const int64_t stride = 1;
    if (dtype == DT_F32)
        LOAD(float, f, (double)x);
    else if (dtype == DT_F64)
        LOAD(double, f, x);
    else
        LOAD(int64_t, i, x);
}

void lanes_load(Lane *lanes, DType dtype, const void *data, int64_t offset, int64_t stride, int64_t count) {
    if (stride == 1 && (dtype == DT_F32 || dtype == DT_F64 || dtype == DT_I64)) {
        load_contiguous(lanes, dtype, data, offset, count);
        return;
    }
    switch (dtype) {
    case DT_F32: LOAD(float, f, (double)x); break;
    case DT_F64: LOAD(double, f, x); break;
    case DT_F16: LOAD(uint16_t, f, (double)f16_to_f32(x)); break;
    case DT_BF16: LOAD(uint16_t, f, (double)bf16_to_f32(x)); break;
    case DT_I64: LOAD(int64_t, i, x); break;
    case DT_I32: LOAD(int32_t, i, x); break;
    case DT_I16: LOAD(int16_t, i, x); break;
    case DT_I8:
    case DT_I4:
    case DT_I2: LOAD(int8_t, i, x); break;
    case DT_U64: LOAD(uint64_t, u, x); break;
    case DT_U32: LOAD(uint32_t, u, x); break;
    case DT_U16: LOAD(uint16_t, u, x); break;
    case DT_U8:
    case DT_U4:
    case DT_U2: LOAD(uint8_t, u, x); break;
    case DT_BOOL: LOAD(uint8_t, u, x != 0); break;
    default: LOAD(uint8_t, f, (double)small_float_to_f32(dtype, x)); break;
    }
}

/* ---- stores ---- */

/* A float that rounds on to any narrower format as the double itself would: rounded to odd (Boldo and Melquiond, "When
 * double rounding is odd", 2005). */
static float float_to_odd(double x) {
    float near = (float)x;
    if ((double)near == x || isnan(x) || isinf(near)) return near;
    float down = fabs((double)near) > fabs(x) ? nextafterf(near, 0.0f) : near;
    uint32_t bits;
    memcpy(&bits, &down, sizeof bits);
    bits |= 1;
    memcpy(&down, &bits, sizeof bits);
    return down;
}

static int64_t to_signed(double x, int bits) {
    double limit = ldexp(1.0, bits - 1);
    if (isnan(x)) return 0;
    if (x >= limit) return (int64_t)((UINT64_C(1) << (bits - 1)) - 1);
    return x <= -limit ? -(int64_t)((UINT64_C(1) << (bits - 1)) - 1) - 1 : (int64_t)x;
}

static uint64_t to_unsigned(double x, int bits) {
    if (!(x > 0)) return 0;
    return x >= ldexp(1.0, bits) ? UINT64_MAX >> (64 - bits) : (uint64_t)x;
}

static int8_t wrap_signed(uint64_t x, int bits) {
    uint64_t sign = UINT64_C(1) << (bits - 1), low = x & (2 * sign - 1);
    return (int8_t)((int64_t)(low ^ sign) - (int64_t)sign);
}

#define STORE(ctype, expression)                                                                                       \
    do {                                                                                                               \
        ctype *to_data = (ctype *)data + offset;                                                                       \
        for (int64_t k = 0; k < count; k++) to_data[k] = (ctype)(expression);                                          \
    } while (0)

static void store_float(const Lane *l, DType to, bool saturate, void *data, int64_t offset, int64_t count) {
    switch (to) {
    case DT_F32: STORE(float, l[k].f); break;
    case DT_F64: STORE(double, l[k].f); break;
    case DT_F16: STORE(uint16_t, f32_to_f16(float_to_odd(l[k].f))); break;
    case DT_BF16: STORE(uint16_t, f32_to_bf16(float_to_odd(l[k].f))); break;
    case DT_I64: STORE(int64_t, to_signed(l[k].f, 64)); break;
    case DT_I32: STORE(int32_t, to_signed(l[k].f, 32)); break;
    case DT_I16: STORE(int16_t, to_signed(l[k].f, 16)); break;
    case DT_I8: STORE(int8_t, to_signed(l[k].f, 8)); break;
    case DT_I4: STORE(int8_t, to_signed(l[k].f, 4)); break;
    case DT_I2: STORE(int8_t, to_signed(l[k].f, 2)); break;
    case DT_U64: STORE(uint64_t, to_unsigned(l[k].f, 64)); break;
    case DT_U32: STORE(uint32_t, to_unsigned(l[k].f, 32)); break;
    case DT_U16: STORE(uint16_t, to_unsigned(l[k].f, 16)); break;
    case DT_U8: STORE(uint8_t, to_unsigned(l[k].f, 8)); break;
    case DT_U4: STORE(uint8_t, to_unsigned(l[k].f, 4)); break;
    case DT_U2: STORE(uint8_t, to_unsigned(l[k].f, 2)); break;
    case DT_BOOL: STORE(uint8_t, l[k].f != 0); break;
    default: STORE(uint8_t, f32_to_small_float(to, float_to_odd(l[k].f), saturate)); break;
    }
}

/* Both integer lane types: MEMBER is i or u, so that the value's sign is right where it turns into a float. */
#define STORE_INTEGER(member)                                                                                          \
    switch (to) {                                                                                                      \
    case DT_F32: STORE(float, l[k].member); break;                                                                     \
    case DT_F64: STORE(double, l[k].member); break;                                                                    \
    case DT_F16: STORE(uint16_t, f32_to_f16(float_to_odd((double)l[k].member))); break;                                \
    case DT_BF16: STORE(uint16_t, f32_to_bf16(float_to_odd((double)l[k].member))); break;                              \
    case DT_I64:                                                                                                       \
    case DT_U64: STORE(uint64_t, l[k].u); break;                                                                       \
    case DT_I32:                                                                                                       \
    case DT_U32: STORE(uint32_t, l[k].u); break;                                                                       \
    case DT_I16:                                                                                                       \
    case DT_U16: STORE(uint16_t, l[k].u); break;                                                                       \
    case DT_I8:                                                                                                        \
    case DT_U8: STORE(uint8_t, l[k].u); break;                                                                         \
    case DT_I4: STORE(int8_t, wrap_signed(l[k].u, 4)); break;                                                          \
    case DT_I2: STORE(int8_t, wrap_signed(l[k].u, 2)); break;                                                          \
    case DT_U4: STORE(uint8_t, l[k].u & 15); break;                                                                    \
    case DT_U2: STORE(uint8_t, l[k].u & 3); break;                                                                     \
    case DT_BOOL: STORE(uint8_t, l[k].u != 0); break;                                                                  \
    default: STORE(uint8_t, f32_to_small_float(to, float_to_odd((double)l[k].member), saturate)); break;               \
    }

static void store_signed(const Lane *l, DType to, bool saturate, void *data, int64_t offset, int64_t count) {
    STORE_INTEGER(i)
}

static void store_unsigned(const Lane *l, DType to, bool saturate, void *data, int64_t offset, int64_t count) {
    STORE_INTEGER(u)
}

void lanes_store(const Lane *lanes, LaneClass from, DType to, bool saturate, void *data, int64_t offset,
                 int64_t count) {
    switch (from) {
    case LANE_FLOAT: store_float(lanes, to, saturate, data, offset, count); break;
    case LANE_SIGNED: store_signed(lanes, to, saturate, data, offset, count); break;
    case LANE_UNSIGNED: store_unsigned(lanes, to, saturate, data, offset, count); break;
    }
}
