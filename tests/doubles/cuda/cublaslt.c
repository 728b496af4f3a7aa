/* SPDX-License-Identifier: Apache-2.0 */
/* The double of cuBLASLt: products by plain loops, in the library's own (column) order. An algorithm is bound to the
 * problem for which it was given, and checked when it is used. */
#include "books.h"

#include <math.h>
#include <string.h>

typedef struct Layout {
    Object object;
    LtDataType type;
    uint64_t rows, columns;
    int64_t leading, stride;
    int32_t batch;
} Layout;

typedef struct Desc {
    Object object;
    LtComputeType compute;
    LtDataType scale;
    int32_t transpose_a, transpose_b;
    uint32_t epilogue;
    CuDevicePointer bias;
} Desc;

typedef struct Preference {
    Object object;
    uint64_t workspace;
    uint32_t reduction, alignment[4]; /* of A, B, C, D */
} Preference;

/* What an algorithm of the double holds in its 64 bytes. */
typedef struct Algo {
    uint64_t magic, problem;
    uint32_t alignment[4], bias_alignment, unused_too;
    uint64_t workspace, unused[2];
} Algo;
_Static_assert(sizeof(Algo) == sizeof(LtAlgo), "64 bytes");
static const uint64_t algo_magic = 0x646f75626c650001;

#define DECLARE_API(result, field, symbol, parameters) result symbol parameters;
CUDA_BLAS_FUNCTIONS(DECLARE_API)

#define GIVE(value)                                                                                                    \
    do {                                                                                                               \
        LtStatus give_ = (LtStatus)(value);                                                                            \
        books_leave();                                                                                                 \
        return give_;                                                                                                  \
    } while (0)
#define ENTER()                                                                                                        \
    int injected = books_enter(LT_INTERNAL_ERROR);                                                                     \
    if (injected) GIVE(injected);
#define ENTER_RELEASE() int injected = books_enter(LT_INTERNAL_ERROR)

size_t cublasLtGetVersion(void) { return 130100; }

const char *cublasLtGetStatusName(LtStatus status) {
    return status == LT_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_OF_DOUBLE";
}

LtStatus cublasLtCreate(LtHandle *handle) {
    ENTER();
    if (!books_has_context(__func__)) GIVE(LT_NOT_INITIALIZED);
    if (books_lost() || !books_unsafe_call()) GIVE(LT_NOT_INITIALIZED);
    if (books_property(DOUBLE_BLAS_CREATE)) GIVE(books_property(DOUBLE_BLAS_CREATE));
    *handle = (LtHandle)books_new(OBJECT_LT_HANDLE, sizeof(Object), true);
    GIVE(LT_OK);
}

LtStatus cublasLtDestroy(LtHandle handle) {
    ENTER_RELEASE();
    books_has_context(__func__);
    GIVE(books_release(handle, OBJECT_LT_HANDLE, __func__) ? injected : LT_NOT_INITIALIZED);
}

/* --- descriptors --- */

LtStatus cublasLtMatmulDescCreate(LtDesc *desc, LtComputeType compute, LtDataType scale) {
    ENTER();
    Desc *d = books_new(OBJECT_LT_DESC, sizeof *d, false);
    d->compute = compute;
    d->scale = scale;
    d->epilogue = LT_EPILOGUE_NONE;
    *desc = (LtDesc)d;
    GIVE(LT_OK);
}

LtStatus cublasLtMatmulDescDestroy(LtDesc desc) {
    ENTER_RELEASE();
    GIVE(books_release(desc, OBJECT_LT_DESC, __func__) ? injected : LT_INVALID_VALUE);
}

static bool set(void *field, size_t field_size, const void *value, size_t size) {
    if (size != field_size) {
        books_violation("an attribute of %zu bytes is set by %zu", field_size, size);
        return false;
    }
    memcpy(field, value, size);
    return true;
}

LtStatus cublasLtMatmulDescSetAttribute(LtDesc desc, LtDescAttribute attribute, const void *value, size_t size) {
    ENTER();
    Desc *d = books_check(desc, OBJECT_LT_DESC, __func__);
    bool done = false;
    if (!d) GIVE(LT_INVALID_VALUE);
    switch (attribute) {
    case LT_DESC_TRANSPOSE_A: done = set(&d->transpose_a, sizeof d->transpose_a, value, size); break;
    case LT_DESC_TRANSPOSE_B: done = set(&d->transpose_b, sizeof d->transpose_b, value, size); break;
    case LT_DESC_EPILOGUE: done = set(&d->epilogue, sizeof d->epilogue, value, size); break;
    case LT_DESC_BIAS: done = set(&d->bias, sizeof d->bias, value, size); break;
    default: books_violation("an unknown attribute of a product");
    }
    GIVE(done ? LT_OK : LT_INVALID_VALUE);
}

LtStatus cublasLtMatrixLayoutCreate(LtLayout *layout, LtDataType type, uint64_t rows, uint64_t columns,
                                    int64_t leading) {
    ENTER();
    Layout *l = books_new(OBJECT_LT_LAYOUT, sizeof *l, false);
    l->type = type;
    l->rows = rows;
    l->columns = columns;
    l->leading = leading;
    l->batch = 1;
    if (leading < (int64_t)rows) books_violation("a leading dimension below the rows");
    if (!rows || !columns) books_violation("a matrix of nothing");
    if (type != LT_F32 && type != LT_F64 && type != LT_F16 && type != LT_BF16)
        books_violation("a matrix of a type that the double does not know");
    *layout = (LtLayout)l;
    GIVE(LT_OK);
}

LtStatus cublasLtMatrixLayoutDestroy(LtLayout layout) {
    ENTER_RELEASE();
    GIVE(books_release(layout, OBJECT_LT_LAYOUT, __func__) ? injected : LT_INVALID_VALUE);
}

LtStatus cublasLtMatrixLayoutSetAttribute(LtLayout layout, LtLayoutAttribute attribute, const void *value,
                                          size_t size) {
    ENTER();
    Layout *l = books_check(layout, OBJECT_LT_LAYOUT, __func__);
    bool done = false;
    if (!l) GIVE(LT_INVALID_VALUE);
    switch (attribute) {
    case LT_LAYOUT_BATCH_COUNT: done = set(&l->batch, sizeof l->batch, value, size); break;
    case LT_LAYOUT_BATCH_STRIDE: done = set(&l->stride, sizeof l->stride, value, size); break;
    default: books_violation("an unknown attribute of a layout");
    }
    GIVE(done ? LT_OK : LT_INVALID_VALUE);
}

LtStatus cublasLtMatmulPreferenceCreate(LtPreference *preference) {
    ENTER();
    Preference *p = books_new(OBJECT_LT_PREFERENCE, sizeof *p, false);
    p->reduction = LT_REDUCTION_ALL;
    for (int i = 0; i < 4; i++) p->alignment[i] = 256;
    *preference = (LtPreference)p;
    GIVE(LT_OK);
}

LtStatus cublasLtMatmulPreferenceDestroy(LtPreference preference) {
    ENTER_RELEASE();
    GIVE(books_release(preference, OBJECT_LT_PREFERENCE, __func__) ? injected : LT_INVALID_VALUE);
}

static bool set_alignment(uint32_t *field, const void *value, size_t size) {
    if (!set(field, sizeof *field, value, size)) return false;
    if (*field && *field <= 256 && !(*field & (*field - 1))) return true;
    books_violation("an alignment of %u bytes", *field);
    return false;
}

LtStatus cublasLtMatmulPreferenceSetAttribute(LtPreference preference, LtPreferenceAttribute attribute,
                                              const void *value, size_t size) {
    ENTER();
    Preference *p = books_check(preference, OBJECT_LT_PREFERENCE, __func__);
    bool done = false;
    if (!p) GIVE(LT_INVALID_VALUE);
    if (attribute == LT_PREFER_WORKSPACE)
        done = set(&p->workspace, sizeof p->workspace, value, size);
    else if (attribute == LT_PREFER_REDUCTION)
        done = set(&p->reduction, sizeof p->reduction, value, size);
    else if (attribute >= LT_PREFER_ALIGNMENT_A && attribute <= LT_PREFER_ALIGNMENT_D)
        done = set_alignment(&p->alignment[attribute - LT_PREFER_ALIGNMENT_A], value, size);
    else
        books_violation("an unknown preference");
    GIVE(done ? LT_OK : LT_INVALID_VALUE);
}

/* --- problems --- */

typedef struct Problem {
    const Desc *desc;
    const Layout *a, *b, *c, *d;
} Problem;

/* The library's table of types, as far as it is for one type on all sides. */
static bool types_fit(const Problem *p) {
    LtDataType type = p->a->type;
    bool wide = type == LT_F64, tf32 = p->desc->compute == LT_COMPUTE_F32_TF32;
    bool same = p->b->type == type && p->c->type == type && p->d->type == type;
    bool compute = wide ? p->desc->compute == LT_COMPUTE_F64 : p->desc->compute == LT_COMPUTE_F32 || tf32;
    if (same && compute && (!tf32 || type == LT_F32) && p->desc->scale == (wide ? LT_F64 : LT_F32)) return true;
    books_violation("a product whose types, accumulator and scale do not go together");
    return false;
}

/* Batches of the result may not lie over each other; factors may be shared (a stride of 0). */
static bool batches_fit(const Problem *p) {
    const Layout *d = p->d;
    if (d->batch < 1) books_violation("a product of %d batches", d->batch);
    if (d->batch <= 1) return d->batch == 1;
    bool apart = d->stride >= (int64_t)(d->columns - 1) * d->leading + (int64_t)d->rows;
    if (!apart) books_violation("results of a batch over each other");
    bool backwards = p->a->stride < 0 || p->b->stride < 0;
    if (backwards) books_violation("a batch that goes backwards");
    return apart && !backwards;
}

static bool epilogue_fits(const Desc *desc) {
    uint32_t bits = desc->epilogue;
    bool known = bits == LT_EPILOGUE_NONE || bits == LT_EPILOGUE_BIAS ||
                 (bits & ~LT_EPILOGUE_BIAS) == LT_EPILOGUE_RELU || (bits & ~LT_EPILOGUE_BIAS) == LT_EPILOGUE_GELU;
    if (!known) books_violation("an epilogue of bits %u", bits);
    bool has_bias = !(bits & LT_EPILOGUE_BIAS) || bits == LT_EPILOGUE_NONE || desc->bias;
    if (!has_bias) books_violation("an epilogue that adds a bias, without one");
    return known && has_bias;
}

static bool problem_of(LtDesc desc, LtLayout a, LtLayout b, LtLayout c, LtLayout d, Problem *p) {
    *p = (Problem){books_check(desc, OBJECT_LT_DESC, "a product"), books_check(a, OBJECT_LT_LAYOUT, "A"),
                   books_check(b, OBJECT_LT_LAYOUT, "B"), books_check(c, OBJECT_LT_LAYOUT, "C"),
                   books_check(d, OBJECT_LT_LAYOUT, "D")};
    if (!p->desc || !p->a || !p->b || !p->c || !p->d) return false;
    uint64_t rows = p->desc->transpose_a ? p->a->columns : p->a->rows;
    uint64_t inner = p->desc->transpose_a ? p->a->rows : p->a->columns;
    uint64_t inner_b = p->desc->transpose_b ? p->b->columns : p->b->rows;
    uint64_t columns = p->desc->transpose_b ? p->b->rows : p->b->columns;
    bool fits = inner == inner_b && rows == p->d->rows && columns == p->d->columns && p->c->rows == rows &&
                p->c->columns == columns && p->a->batch == p->d->batch && p->b->batch == p->d->batch;
    if (!fits) books_violation("a product of matrices that do not fit");
    return types_fit(p) && batches_fit(p) && epilogue_fits(p->desc) && fits;
}

static size_t type_size(LtDataType type) { return type == LT_F64 ? 8 : type == LT_F32 ? 4 : 2; }

static uint32_t alignment_of(CuDevicePointer address) {
    uint32_t low = (uint32_t)(address | 256);
    return low & -low;
}

static uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x9e3779b97f4a7c15u + (hash >> 29); }

static uint64_t layout_hash(uint64_t hash, const Layout *l) {
    const uint64_t values[] = {l->type,           l->rows, l->columns, (uint64_t)l->leading, (uint64_t)l->stride,
                               (uint64_t)l->batch};
    for (int i = 0; i < 6; i++) hash = mix(hash, values[i]);
    return hash;
}

static uint64_t problem_hash(const Problem *p) {
    uint64_t hash = mix(p->desc->compute, p->desc->epilogue);
    hash = mix(mix(hash, (uint64_t)p->desc->transpose_a), (uint64_t)p->desc->transpose_b);
    return layout_hash(layout_hash(layout_hash(layout_hash(hash, p->a), p->b), p->c), p->d);
}

LtStatus cublasLtMatmulAlgoGetHeuristic(LtHandle handle, LtDesc desc, LtLayout a, LtLayout b, LtLayout c, LtLayout d,
                                        LtPreference preference, int requested, LtHeuristic *results, int *count) {
    ENTER();
    Problem p;
    const Preference *wanted = books_check(preference, OBJECT_LT_PREFERENCE, __func__);
    if (!books_check(handle, OBJECT_LT_HANDLE, __func__) || !wanted || requested < 1 ||
        !problem_of(desc, a, b, c, d, &p))
        GIVE(LT_INVALID_VALUE);
    books_count_heuristic((int)wanted->reduction);
    *count = 0;
    if (books_property(DOUBLE_BLAS_REFUSES)) GIVE(LT_NOT_SUPPORTED);
    Algo algo = {
        .magic = algo_magic, .problem = problem_hash(&p), .workspace = (uint64_t)books_property(DOUBLE_BLAS_WORKSPACE)};
    memcpy(algo.alignment, wanted->alignment, sizeof algo.alignment);
    algo.bias_alignment = p.desc->bias ? alignment_of(p.desc->bias) : 0;
    if (algo.workspace > wanted->workspace) GIVE(LT_OK); /* nothing found */
    memcpy(&results[0].algo, &algo, sizeof algo);
    results[0].workspaceSize = algo.workspace;
    results[0].state = LT_OK;
    *count = 1;
    GIVE(LT_OK);
}

static bool algo_fits(const LtAlgo *stored, const Problem *p, Algo *out) {
    memcpy(out, stored, sizeof *out);
    return out->magic == algo_magic && out->problem == problem_hash(p);
}

LtStatus cublasLtMatmulAlgoCheck(LtHandle handle, LtDesc desc, LtLayout a, LtLayout b, LtLayout c, LtLayout d,
                                 const LtAlgo *stored, LtHeuristic *result) {
    ENTER();
    Problem p;
    Algo algo;
    if (!books_check(handle, OBJECT_LT_HANDLE, __func__) || !problem_of(desc, a, b, c, d, &p)) GIVE(LT_INVALID_VALUE);
    if (!algo_fits(stored, &p, &algo)) GIVE(LT_INVALID_VALUE);
    result->workspaceSize = algo.workspace;
    result->state = LT_OK;
    GIVE(LT_OK);
}

/* --- computing --- */

typedef struct Work {
    LtDataType type;
    uint64_t rows, columns, inner;
    int64_t a_row, a_column, b_row, b_column, leading_c, leading_d, stride_a, stride_b, stride_c, stride_d;
    int batch;
    uint32_t epilogue;
    double alpha, beta;
    const char *a, *b, *c, *bias;
    char *d;
} Work;

static double half_value(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 31 ? fraction ? NAN : INFINITY
                   : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                  : ldexp(fraction, -24);
    return bits >> 15 ? -value : value;
}

static uint16_t half_bits(double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    if (isnan(size)) return sign | 0x7e00;
    if (size >= 65520) return sign | 0x7c00;
    int exponent = size < 0x1p-14 ? -14 : ilogb(size);
    double steps = nearbyint(ldexp(size, 10 - exponent)); /* may carry into the exponent, as it should */
    return (uint16_t)(sign | (uint16_t)((exponent + 14) * 1024 + (int)steps));
}

static double load(LtDataType type, const char *data, int64_t index) {
    float single;
    double wide;
    uint16_t bits;
    switch (type) {
    case LT_F64: memcpy(&wide, data + index * 8, 8); return wide;
    case LT_F32: memcpy(&single, data + index * 4, 4); return single;
    default: break;
    }
    memcpy(&bits, data + index * 2, 2);
    if (type == LT_F16) return half_value(bits);
    uint32_t word = (uint32_t)bits << 16;
    memcpy(&single, &word, 4);
    return single;
}

static void put(LtDataType type, char *data, int64_t index, double value) {
    float single = (float)value;
    uint32_t word;
    uint16_t bits;
    switch (type) {
    case LT_F64: memcpy(data + index * 8, &value, 8); return;
    case LT_F32: memcpy(data + index * 4, &single, 4); return;
    default: break;
    }
    memcpy(&word, &single, 4);
    bits = type == LT_F16 ? half_bits(single) : (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
    memcpy(data + index * 2, &bits, 2);
}

static double finish(const Work *w, double value, uint64_t row) {
    if (w->epilogue & LT_EPILOGUE_BIAS) value += load(w->type, w->bias, (int64_t)row);
    if (w->epilogue & LT_EPILOGUE_RELU) value = value > 0 ? value : 0;
    if (w->epilogue & LT_EPILOGUE_GELU)
        value = 0.5 * value * (1 + tanh(0.7978845608028654 * (value + 0.044715 * value * value * value)));
    return value;
}

static void run_matmul(void *data) {
    const Work *w = data;
    for (int batch = 0; batch < w->batch; batch++)
        for (uint64_t i = 0; i < w->rows; i++)
            for (uint64_t j = 0; j < w->columns; j++) {
                double sum = 0;
                for (uint64_t k = 0; k < w->inner; k++)
                    sum += load(w->type, w->a, batch * w->stride_a + (int64_t)i * w->a_row + (int64_t)k * w->a_column) *
                           load(w->type, w->b, batch * w->stride_b + (int64_t)k * w->b_row + (int64_t)j * w->b_column);
                double value = w->alpha * sum;
                if (w->beta != 0)
                    value +=
                        w->beta * load(w->type, w->c, batch * w->stride_c + (int64_t)i + (int64_t)j * w->leading_c);
                put(w->type, w->d, batch * w->stride_d + (int64_t)i + (int64_t)j * w->leading_d, finish(w, value, i));
            }
}

static size_t layout_bytes(const Layout *l) {
    return ((size_t)(l->batch - 1) * (size_t)l->stride + (size_t)(l->columns - 1) * (size_t)l->leading + l->rows) *
           type_size(l->type);
}

static char *matrix(const void *device, const Layout *l, uint32_t alignment, const char *what) {
    CuDevicePointer address = (CuDevicePointer)(uintptr_t)device;
    if (address % alignment) books_violation("%s is aligned to less than was promised", what);
    if (address % type_size(l->type)) books_violation("%s does not begin at an element", what);
    return books_memory(address, layout_bytes(l), what);
}

static LtStatus bind(const Problem *p, const Algo *algo, const void *const *operands, void *d, Work *w) {
    const Desc *desc = p->desc;
    w->type = p->d->type;
    w->rows = p->d->rows;
    w->columns = p->d->columns;
    w->inner = desc->transpose_a ? p->a->rows : p->a->columns;
    w->batch = p->d->batch;
    w->epilogue = desc->epilogue == LT_EPILOGUE_NONE ? 0 : desc->epilogue;
    w->a_row = desc->transpose_a ? p->a->leading : 1;
    w->a_column = desc->transpose_a ? 1 : p->a->leading;
    w->b_row = desc->transpose_b ? p->b->leading : 1;
    w->b_column = desc->transpose_b ? 1 : p->b->leading;
    w->leading_c = p->c->leading;
    w->leading_d = p->d->leading;
    w->stride_a = p->a->stride;
    w->stride_b = p->b->stride;
    w->stride_c = p->c->stride;
    w->stride_d = p->d->stride;
    w->a = matrix(operands[0], p->a, algo->alignment[0], "A");
    w->b = matrix(operands[1], p->b, algo->alignment[1], "B");
    w->c = matrix(operands[2], p->c, algo->alignment[2], "C");
    w->d = matrix(d, p->d, algo->alignment[3], "D");
    if (w->epilogue & LT_EPILOGUE_BIAS) {
        w->bias = books_memory(desc->bias, w->rows * type_size(w->type), "bias");
        if (!w->bias) return LT_INVALID_VALUE;
    }
    return w->a && w->b && w->c && w->d ? LT_OK : LT_INVALID_VALUE;
}

static void read_scale(const Desc *desc, const void *value, double *out) {
    float single;
    if (desc->scale == LT_F64) {
        memcpy(out, value, sizeof *out);
    } else {
        memcpy(&single, value, sizeof single);
        *out = single;
    }
}

LtStatus cublasLtMatmul(LtHandle handle, LtDesc desc, const void *alpha, const void *a, LtLayout a_layout,
                        const void *b, LtLayout b_layout, const void *beta, const void *c, LtLayout c_layout, void *d,
                        LtLayout d_layout, const LtAlgo *stored, void *workspace, size_t workspace_bytes,
                        CuStream stream) {
    ENTER();
    Problem p;
    Algo algo;
    Work w = {0};
    if (!books_check(handle, OBJECT_LT_HANDLE, __func__) || !books_has_context(__func__) ||
        !problem_of(desc, a_layout, b_layout, c_layout, d_layout, &p))
        GIVE(LT_INVALID_VALUE);
    if (books_lost()) GIVE(LT_EXECUTION_FAILED);
    if (books_property(DOUBLE_BLAS_MATMUL)) GIVE(books_property(DOUBLE_BLAS_MATMUL));
    if (books_property(DOUBLE_BLAS_LOADS) && !books_unsafe_call()) GIVE(LT_EXECUTION_FAILED);
    if (!algo_fits(stored, &p, &algo)) {
        books_violation("an algorithm for another problem");
        GIVE(LT_INVALID_VALUE);
    }
    if (algo.workspace > workspace_bytes) {
        books_violation("a workspace that is too small");
        GIVE(LT_INVALID_VALUE);
    }
    if ((uintptr_t)workspace % 256) books_violation("a workspace that is not at a multiple of 256");
    if (workspace_bytes && !books_memory((CuDevicePointer)(uintptr_t)workspace, workspace_bytes, "the workspace"))
        GIVE(LT_INVALID_VALUE);
    if (p.desc->bias && alignment_of(p.desc->bias) < algo.bias_alignment)
        books_violation("the bias is aligned to less than when the algorithm was asked for");
    if (c == d && c_layout != d_layout) books_violation("C in D's place with a layout of its own");
    if (!alpha || !beta) GIVE(LT_INVALID_VALUE);
    books_note_compute((int)p.desc->compute);
    read_scale(p.desc, alpha, &w.alpha);
    read_scale(p.desc, beta, &w.beta);
    LtStatus bound = bind(&p, &algo, (const void *const[]){a, b, c}, d, &w);
    if (bound) GIVE(bound);
    CuDevicePointer touched[6] = {(CuDevicePointer)(uintptr_t)a, (CuDevicePointer)(uintptr_t)b,
                                  (CuDevicePointer)(uintptr_t)c, (CuDevicePointer)(uintptr_t)d};
    int count = 4;
    if (w.bias) touched[count++] = p.desc->bias;
    CuDevicePointer exclusive = algo.workspace ? (CuDevicePointer)(uintptr_t)workspace : 0;
    if (exclusive) touched[count++] = exclusive;
    GIVE(books_enqueue(stream, "a product", run_matmul, &w, sizeof w, touched, count, exclusive) ? LT_EXECUTION_FAILED
                                                                                                 : LT_OK);
}
