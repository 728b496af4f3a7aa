/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by CLBlast (Debian: libclblast1), for f32 and f64. Its f16 products are summed in f16, ours in f32,
 * so those stay with our own kernels. Declared here is what is used of its C interface, version 1.
 *
 * CLBlast links libOpenCL.so.1 itself: handles of another library of the policy's mean nothing to it. */
#include "runtime/device/opencl/clblast.h"

#include <dlfcn.h>
#include <string.h>
#include "base/log.h"
#include "base/plugin.h"

typedef int Code; /* 0, an error of OpenCL's, or one of CLBlast's own (below -1000) */
enum { ROW_MAJOR = 101, AS_STORED = 111, TRANSPOSED = 112 };

#define STRIDED_BATCHED(number)                                                                                        \
    Code (*)(int layout, int transpose_a, int transpose_b, size_t m, size_t n, size_t k, number alpha, cl_mem a,       \
             size_t a_offset, size_t a_ld, size_t a_stride, cl_mem b, size_t b_offset, size_t b_ld, size_t b_stride,   \
             number beta, cl_mem c, size_t c_offset, size_t c_ld, size_t c_stride, size_t batch,                       \
             cl_command_queue *queue, cl_event *event)
typedef __typeof__(STRIDED_BATCHED(float)) SingleProduct;
typedef __typeof__(STRIDED_BATCHED(double)) DoubleProduct;

static struct {
    pthread_once_t opened;
    SingleProduct single_product;
    DoubleProduct double_product;
    Code (*clear_cache)(void);
    bool here;
} clblast = {.opened = PTHREAD_ONCE_INIT};

static bool find(void *library, const char *name, void *out_function) {
    void *address = dlsym(library, name);
    if (address) memcpy(out_function, &address, sizeof address);
    return address != NULL;
}

static void open_clblast(void) {
    void *library = library_open("libclblast.so.1", NULL, 0);
    clblast.here = library && find(library, "CLBlastSgemmStridedBatched", &clblast.single_product) &&
                   find(library, "CLBlastDgemmStridedBatched", &clblast.double_product) &&
                   find(library, "CLBlastClearCache", &clblast.clear_cache);
    LOG(1, "OpenCL: matrix products by %s",
        clblast.here ? "CLBlast" : "our own kernels, as libclblast.so.1 is not here");
}

static bool is_here(const GpuContext *context) {
    if (strcmp(context->cl->path, OPENCL_USUAL_LIBRARY) != 0) return false;
    pthread_once(&clblast.opened, open_clblast);
    return clblast.here;
}

static size_t element_size(const GpuGemm *g) { return g->dtype == DT_F64 ? sizeof(double) : sizeof(float); }

static bool is_dense(const GpuGemm *g) { return g->ldc == g->n && (g->batch == 1 || g->stride_c == g->m * g->n); }

/* What CLBlast computes: c = alpha * op(a) op(b) + beta * c in place, with no epilogue. Another c is copied first, in
 * one piece. */
static bool is_plain(const GpuContext *context, const GpuGemm *g) {
    bool type = g->dtype == DT_F32 || (g->dtype == DT_F64 && context->limits.fp64);
    bool sizes = g->m > 0 && g->n > 0 && g->k > 0 && g->batch > 0;
    bool in_place = g->beta == 0 || g->c == g->d || is_dense(g);
    return type && sizes && in_place && !g->bias && g->activation == GPU_ACTIVATION_NONE &&
           (g->batch == 1 || g->stride_c > 0);
}

bool clblast_supports(GpuContext *context, const GpuGemm *gemm) {
    return !(context->device.type & CL_DEVICE_TYPE_CPU) && is_plain(context, gemm) && is_here(context);
}

/* Where a matrix begins, in elements. */
static Status find_matrix(GpuContext *context, const GpuGemm *g, const void *matrix, Place *out_place) {
    TRY(opencl_find(context, matrix, out_place));
    if (out_place->offset % element_size(g))
        return status_error(STATUS_UNSUPPORTED, "CLBlast: a matrix does not begin at an element's boundary");
    out_place->offset /= element_size(g);
    return NULL;
}

static Code product(const GpuGemm *g, Stream *stream, const Place *a, const Place *b, const Place *d) {
    int transpose_a = g->transpose_a ? TRANSPOSED : AS_STORED, transpose_b = g->transpose_b ? TRANSPOSED : AS_STORED;
    size_t m = (size_t)g->m, n = (size_t)g->n, k = (size_t)g->k, batch = (size_t)g->batch;
    size_t lda = (size_t)g->lda, ldb = (size_t)g->ldb, ldc = (size_t)g->ldc;
    size_t stride_a = (size_t)g->stride_a, stride_b = (size_t)g->stride_b, stride_c = (size_t)g->stride_c;
    if (g->dtype == DT_F64)
        return clblast.double_product(ROW_MAJOR, transpose_a, transpose_b, m, n, k, g->alpha, a->memory, a->offset, lda,
                                      stride_a, b->memory, b->offset, ldb, stride_b, g->beta, d->memory, d->offset, ldc,
                                      stride_c, batch, &stream->queue, NULL);
    return clblast.single_product(ROW_MAJOR, transpose_a, transpose_b, m, n, k, g->alpha, a->memory, a->offset, lda,
                                  stride_a, b->memory, b->offset, ldb, stride_b, g->beta, d->memory, d->offset, ldc,
                                  stride_c, batch, &stream->queue, NULL);
}

Status clblast_gemm(GpuContext *context, Stream *stream, const GpuGemm *g, size_t *out_workspace) {
    *out_workspace = 0; /* it takes what it needs itself */
    if (!is_plain(context, g) || !is_here(context))
        return status_error(STATUS_UNSUPPORTED, "CLBlast does not compute this product, or is not here");
    Place a, b, d;
    TRY(find_matrix(context, g, g->a, &a));
    TRY(find_matrix(context, g, g->b, &b));
    TRY(find_matrix(context, g, g->d, &d));
    if (g->beta != 0 && g->c != g->d)
        TRY(opencl_copy(context, stream, COPY_WITHIN, g->d, g->c, (size_t)(g->batch * g->m * g->n) * element_size(g)));
    Code code = product(g, stream, &a, &b, &d);
    if (code) return status_error(STATUS_UNSUPPORTED, "CLBlast: %s (%d)", opencl_error_name(code), code);
    return opencl_submitted(context, stream);
}

void clblast_forget(void) {
    if (clblast.here) clblast.clear_cache();
}
