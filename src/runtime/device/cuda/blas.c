/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cuBLASLt. The library counts in columns: a row-major matrix is its transpose there, so
 * D = A B becomes D' = B' A' with the operands exchanged, and our bias of a column is its bias of a row.
 *
 * How the library computes a product (its "algorithm") is asked once for a shape, type, epilogue and alignment, kept in
 * memory with the layouts, and on disk for the next process with the same GPU and library. */
#include "runtime/device/cuda/blas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "codegen/cache/disk.h"
#include "lowering/anchors.h"
#include "runtime/device/cuda/loader.h"

enum { BUCKETS = 1024, MOST_ENTRIES = 1 << 16, MOST_STORED = 1024, MOST_ALIGNMENT = 256 };

/* All that the choice of an algorithm depends on; compared as bytes, so that all fields have one size. */
typedef struct ProductKey {
    int64_t dtype, m, n, k, batch, transpose_a, transpose_b, lda, ldb, ldc, stride_a, stride_b, stride_c;
    int64_t epilogue;                                       /* LT_EPILOGUE_* */
    int64_t adds;                                           /* beta is not 0 */
    int64_t align_a, align_b, align_c, align_d, align_bias; /* bytes, at most MOST_ALIGNMENT; 0: not there */
} ProductKey;

typedef struct Product {
    ProductKey key;
    atomic_int refused; /* LtStatus: why the library does not compute it; 0: it does */
    LtAlgo algo;
    size_t workspace;
    LtLayout a, b, d; /* as the library names them; c has d's */
    struct Product *next;
} Product;

/* On disk. */
typedef struct StoredAlgo {
    LtAlgo algo;
    uint64_t workspace;
} StoredAlgo;

struct CudaBlas {
    const CudaBlasApi *api;
    LtHandle handle;
    size_t version;
    pthread_mutex_t lock;
    Product *buckets[BUCKETS]; /* entries stay until the library is closed */
    int count, stored;
    atomic_bool failed; /* some product has, for a reason that may pass, and the log says so */
};

/* --- the library --- */

static Status blas_open(CudaContext *c, CudaBlas **out_blas) {
    CudaBlas *blas = calloc(1, sizeof *blas);
    if (!blas) return status_out_of_memory();
    Status status = cuda_load_blas(c->folder, c->driver_version / 1000, &blas->api);
    if (!status) {
        LtStatus created = blas->api->create(&blas->handle);
        if (created) {
            blas->handle = NULL;
            status = status_error(STATUS_USAGE, "cuBLASLt cannot be used here: %s", blas->api->status_name(created));
        }
    }
    if (status) {
        free(blas);
        return status;
    }
    blas->version = blas->api->version();
    pthread_mutex_init(&blas->lock, NULL);
    *out_blas = blas;
    return NULL;
}

CudaBlas *cuda_blas(CudaContext *c) {
    CudaBlas *blas = atomic_load(&c->blas);
    if (blas) return blas;
    pthread_mutex_lock(&c->blas_lock);
    if (!c->blas_tried) {
        Status status = blas_open(c, &blas);
        if (status) {
            LOG(1, "cuda: %s; products run on onnxfuse's own kernels", status_message(status));
            snprintf(c->no_blas, sizeof c->no_blas, "%s", status_message(status));
        } else {
            atomic_store(&c->blas, blas);
        }
        status_free(status);
        c->blas_tried = true;
    }
    blas = atomic_load(&c->blas);
    pthread_mutex_unlock(&c->blas_lock);
    return blas;
}

Status cuda_blas_required(CudaContext *c) {
    return cuda_blas(c) ? NULL : status_error(STATUS_USAGE, "cuda.strict: %s", c->no_blas);
}

static void product_free(const CudaBlasApi *api, Product *p) {
    if (p->a) api->layout_destroy(p->a);
    if (p->b) api->layout_destroy(p->b);
    if (p->d) api->layout_destroy(p->d);
    free(p);
}

void cuda_blas_close(CudaContext *c) {
    CudaBlas *blas = atomic_load(&c->blas);
    if (!blas) return;
    for (int i = 0; i < BUCKETS; i++)
        for (Product *p = blas->buckets[i], *next; p; p = next) {
            next = p->next;
            product_free(blas->api, p);
        }
    blas->api->destroy(blas->handle);
    pthread_mutex_destroy(&blas->lock);
    free(blas);
    atomic_store(&c->blas, NULL);
}

/* --- what the library can take --- */

static LtDataType data_type(DType dtype) {
    switch (dtype) {
    case DT_F64: return LT_F64;
    case DT_F16: return LT_F16;
    case DT_BF16: return LT_BF16;
    default: return LT_F32;
    }
}

static bool sizes_fit(const GpuGemm *g) {
    const int64_t positive[] = {g->m, g->n, g->k, g->batch, g->lda, g->ldb, g->ldc};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i] <= 0 || positive[i] > INT32_MAX) return false;
    const int64_t a_row = g->transpose_a ? g->m : g->k, b_row = g->transpose_b ? g->k : g->n;
    return g->lda >= a_row && g->ldb >= b_row && g->ldc >= g->n;
}

static bool strides_fit(const GpuGemm *g) {
    if (g->batch == 1) return true;
    return g->stride_a >= 0 && g->stride_b >= 0 && g->stride_c >= (g->m - 1) * g->ldc + g->n;
}

static bool aligned(const GpuGemm *g) {
    const void *const used[] = {g->a, g->b, g->c, g->d, g->bias};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        if ((uintptr_t)used[i] % dtype_size(g->dtype)) return false;
    return true;
}

bool cuda_gemm_possible(const GpuGemm *g) {
    bool typed = g->dtype == DT_F32 || g->dtype == DT_F64 || g->dtype == DT_F16 || g->dtype == DT_BF16;
    return typed && sizes_fit(g) && strides_fit(g) && aligned(g);
}

static uint32_t epilogue_of(const GpuGemm *g) {
    uint32_t bits = g->bias ? LT_EPILOGUE_BIAS : 0;
    if (g->activation == GPU_ACTIVATION_RELU) bits |= LT_EPILOGUE_RELU;
    if (g->activation == GPU_ACTIVATION_GELU_TANH) bits |= LT_EPILOGUE_GELU; /* the library's is the one by tanh */
    return bits ? bits : LT_EPILOGUE_NONE;
}

static bool adds(const GpuGemm *g) { return g->c && g->beta != 0; }

/* The largest power of two, up to MOST_ALIGNMENT, that divides the address; 0 for NULL. */
static int64_t alignment_of(const void *data) {
    uintptr_t address = (uintptr_t)data | MOST_ALIGNMENT;
    return data ? (int64_t)(address & -address) : 0;
}

static ProductKey key_of(const GpuGemm *g) {
    bool many = g->batch > 1;
    return (ProductKey){
        .dtype = g->dtype,
        .m = g->m,
        .n = g->n,
        .k = g->k,
        .batch = g->batch,
        .transpose_a = g->transpose_a,
        .transpose_b = g->transpose_b,
        .lda = g->lda,
        .ldb = g->ldb,
        .ldc = g->ldc,
        .stride_a = many ? g->stride_a : 0,
        .stride_b = many ? g->stride_b : 0,
        .stride_c = many ? g->stride_c : 0,
        .epilogue = epilogue_of(g),
        .adds = adds(g),
        .align_a = alignment_of(g->a),
        .align_b = alignment_of(g->b),
        .align_c = alignment_of(adds(g) ? g->c : g->d),
        .align_d = alignment_of(g->d),
        .align_bias = alignment_of(g->bias),
    };
}

/* --- descriptors --- */

static LtStatus make_layout(const CudaBlasApi *api, const ProductKey *key, int64_t rows, int64_t columns,
                            int64_t leading, int64_t stride, LtLayout *out_layout) {
    int32_t batch = (int32_t)key->batch;
    LtStatus status =
        api->layout_create(out_layout, data_type((DType)key->dtype), (uint64_t)rows, (uint64_t)columns, leading);
    if (status) {
        *out_layout = NULL;
        return status;
    }
    if (batch == 1) return LT_OK;
    status = api->layout_set(*out_layout, LT_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    if (!status) status = api->layout_set(*out_layout, LT_LAYOUT_BATCH_STRIDE, &stride, sizeof stride);
    return status; /* the product's owner destroys it */
}

/* The library's A is our b and its B our a; what stands in memory by rows it reads by columns. */
static LtStatus make_layouts(const CudaBlasApi *api, const ProductKey *key, Product *p) {
    bool ta = key->transpose_a, tb = key->transpose_b;
    LtStatus status = make_layout(api, key, tb ? key->k : key->n, tb ? key->n : key->k, key->ldb, key->stride_b, &p->a);
    if (!status)
        status = make_layout(api, key, ta ? key->m : key->k, ta ? key->k : key->m, key->lda, key->stride_a, &p->b);
    if (!status) status = make_layout(api, key, key->n, key->m, key->ldc, key->stride_c, &p->d);
    return status;
}

static LtStatus make_desc(const CudaContext *c, const CudaBlasApi *api, const GpuGemm *g, LtDesc *out_desc) {
    bool wide = g->dtype == DT_F64;
    LtComputeType compute = wide                            ? LT_COMPUTE_F64
                            : c->tf32 && g->dtype == DT_F32 ? LT_COMPUTE_F32_TF32
                                                            : LT_COMPUTE_F32;
    int32_t transpose_a = g->transpose_b ? LT_TRANSPOSE : LT_KEEP,
            transpose_b = g->transpose_a ? LT_TRANSPOSE : LT_KEEP;
    uint32_t epilogue = epilogue_of(g);
    LtStatus status = api->desc_create(out_desc, compute, wide ? LT_F64 : LT_F32);
    if (status) {
        *out_desc = NULL;
        return status;
    }
    status = api->desc_set(*out_desc, LT_DESC_TRANSPOSE_A, &transpose_a, sizeof transpose_a);
    if (!status) status = api->desc_set(*out_desc, LT_DESC_TRANSPOSE_B, &transpose_b, sizeof transpose_b);
    if (!status) status = api->desc_set(*out_desc, LT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (!status && g->bias) status = api->desc_set(*out_desc, LT_DESC_BIAS, &g->bias, sizeof g->bias);
    return status; /* the caller destroys it */
}

/* --- the choice of an algorithm --- */

static LtStatus set_u32(const CudaBlasApi *api, LtPreference p, LtPreferenceAttribute attribute, int64_t value) {
    uint32_t word = (uint32_t)value;
    return api->preference_set(p, attribute, &word, sizeof word);
}

/* Parts of a long sum (split-k) are kept in the type of the accumulator: those in the output's would round each to 16
 * bits. For f32 and f64 both are the same, but only the former has its fixed order documented. */
static int64_t reductions(const CudaContext *c, const ProductKey *key) {
    bool narrow = key->dtype == DT_F16 || key->dtype == DT_BF16;
    return narrow || c->deterministic ? LT_REDUCTION_COMPUTE_TYPE : LT_REDUCTION_ALL;
}

static LtStatus fill_preference(const CudaContext *c, const CudaBlasApi *api, const ProductKey *key, LtPreference p) {
    uint64_t workspace = CUDA_WORKSPACE_BYTES;
    LtStatus status = api->preference_set(p, LT_PREFER_WORKSPACE, &workspace, sizeof workspace);
    if (!status) status = set_u32(api, p, LT_PREFER_REDUCTION, reductions(c, key));
    if (!status) status = set_u32(api, p, LT_PREFER_ALIGNMENT_A, key->align_b);
    if (!status) status = set_u32(api, p, LT_PREFER_ALIGNMENT_B, key->align_a);
    if (!status) status = set_u32(api, p, LT_PREFER_ALIGNMENT_C, key->align_c);
    if (!status) status = set_u32(api, p, LT_PREFER_ALIGNMENT_D, key->align_d);
    return status;
}

/* These say that the product is not for the library; others that it failed now. */
static bool is_refusal(LtStatus status) {
    return status == LT_NOT_SUPPORTED || status == LT_INVALID_VALUE || status == LT_ARCH_MISMATCH;
}

static LtStatus ask(const CudaContext *c, const CudaBlas *blas, LtDesc desc, Product *p) {
    const CudaBlasApi *api = blas->api;
    LtPreference preference;
    LtHeuristic found = {0};
    int count = 0;
    LtStatus status = api->preference_create(&preference);
    if (status) return status;
    status = fill_preference(c, api, &p->key, preference);
    if (!status) status = api->heuristic(blas->handle, desc, p->a, p->b, p->d, p->d, preference, 1, &found, &count);
    api->preference_destroy(preference);
    if (!status && (count < 1 || found.workspaceSize > CUDA_WORKSPACE_BYTES)) status = LT_NOT_SUPPORTED;
    if (!status) status = found.state;
    p->algo = found.algo;
    p->workspace = found.workspaceSize;
    return status;
}

static int stored_key(const CudaContext *c, const CudaBlas *blas, const ProductKey *key, char *out, int size) {
    int64_t values[sizeof *key / sizeof(int64_t)];
    memcpy(values, key, sizeof *key);
    int length =
        snprintf(out, (size_t)size, "cublasLt algorithm\n%s, sm_%d, %d multiprocessors\n%zu\n%d %d %d\n", c->name,
                 c->arch, c->limits.multiprocessors, blas->version, CUDA_WORKSPACE_BYTES, c->tf32, c->deterministic);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        length += snprintf(out + length, (size_t)(size - length), "%lld ", (long long)values[i]);
    return length;
}

/* From the disk, if the library still takes it. */
static bool recall(const CudaContext *c, const CudaBlas *blas, LtDesc desc, Product *p) {
    char key[1024];
    void *object;
    size_t size;
    StoredAlgo stored;
    LtHeuristic checked = {0};
    if (!c->cache_directory) return false;
    int length = stored_key(c, blas, &p->key, key, sizeof key);
    if (!disk_read(c->cache_directory, key, (size_t)length, &object, &size)) return false;
    bool whole = size == sizeof stored;
    if (whole) memcpy(&stored, object, sizeof stored);
    free(object);
    if (!whole || blas->api->check(blas->handle, desc, p->a, p->b, p->d, p->d, &stored.algo, &checked)) return false;
    if (checked.workspaceSize > CUDA_WORKSPACE_BYTES) return false;
    p->algo = stored.algo;
    p->workspace = checked.workspaceSize;
    return true;
}

static void store(const CudaContext *c, CudaBlas *blas, const Product *p) {
    char key[1024];
    pthread_mutex_lock(&blas->lock);
    bool room = blas->stored < MOST_STORED;
    blas->stored += room;
    pthread_mutex_unlock(&blas->lock);
    if (!room || !c->cache_directory) return;
    StoredAlgo stored = {p->algo, p->workspace};
    int length = stored_key(c, blas, &p->key, key, sizeof key);
    disk_write(c->cache_directory, key, (size_t)length, &stored, sizeof stored);
}

static LtStatus choose(const CudaContext *c, CudaBlas *blas, LtDesc desc, Product *p) {
    LtStatus status = make_layouts(blas->api, &p->key, p);
    if (status || recall(c, blas, desc, p)) return status;
    status = ask(c, blas, desc, p);
    if (!status) store(c, blas, p);
    return status;
}

/* --- remembered products --- */

/* FNV-1a by words: every product of every run comes here. */
static Product **bucket_of(CudaBlas *blas, const ProductKey *key) {
    uint64_t words[sizeof *key / sizeof(uint64_t)], hash = 0xcbf29ce484222325u;
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) hash = (hash ^ words[i]) * 0x100000001b3u;
    return &blas->buckets[(hash ^ hash >> 32) % BUCKETS];
}

static Product *find(CudaBlas *blas, const ProductKey *key) {
    pthread_mutex_lock(&blas->lock);
    Product *p = *bucket_of(blas, key);
    while (p && memcmp(&p->key, key, sizeof *key)) p = p->next;
    pthread_mutex_unlock(&blas->lock);
    return p;
}

/* Another thread may have been faster, or the table be full: *out_kept says whether the table owns it now. */
static Product *keep(CudaBlas *blas, Product *p, bool *out_kept) {
    pthread_mutex_lock(&blas->lock);
    Product **bucket = bucket_of(blas, &p->key), *same = *bucket;
    while (same && memcmp(&same->key, &p->key, sizeof p->key)) same = same->next;
    *out_kept = true;
    if (same) {
        product_free(blas->api, p);
        p = same;
    } else if (blas->count < MOST_ENTRIES) {
        p->next = *bucket;
        *bucket = p;
        blas->count++;
    } else {
        *out_kept = false;
    }
    pthread_mutex_unlock(&blas->lock);
    return p;
}

/* One that is not remembered, or was refused. */
static Status unsupported(const CudaBlas *blas, const ProductKey *key, LtStatus status) {
    return status_error(
        STATUS_UNSUPPORTED,
        "cuBLASLt does not compute a product of %lld x %lld x %lld of %s, %lld at once, epilogue %lld: %s",
        (long long)key->m, (long long)key->n, (long long)key->k, dtype_name((DType)key->dtype), (long long)key->batch,
        (long long)key->epilogue, blas->api->status_name(status));
}

/* Once for each product. */
static void refuse(const CudaBlas *blas, Product *p, LtStatus reason) {
    int none = 0;
    if (!atomic_compare_exchange_strong(&p->refused, &none, (int)reason)) return;
    Status status = unsupported(blas, &p->key, reason);
    LOG(1, "cuda: %s", status_message(status));
    status_free(status);
}

static Status get_product(const CudaContext *c, CudaBlas *blas, LtDesc desc, const ProductKey *key, Product **out,
                          bool *out_kept) {
    *out_kept = true;
    *out = find(blas, key);
    if (*out) return NULL;
    Product *p = calloc(1, sizeof *p);
    if (!p) return status_out_of_memory();
    p->key = *key;
    LtStatus status = choose(c, blas, desc, p);
    if (status && !is_refusal(status)) {
        Status failed = unsupported(blas, key, status);
        product_free(blas->api, p);
        if (!atomic_exchange(&blas->failed, true)) LOG(1, "cuda: %s", status_message(failed));
        return failed;
    }
    if (status) refuse(blas, p, status);
    *out = keep(blas, p, out_kept);
    return NULL;
}

/* --- running --- */

static Status run_product(CudaStream *s, CudaBlas *blas, LtDesc desc, const GpuGemm *g, Product *p) {
    double alpha_wide = g->alpha, beta_wide = adds(g) ? g->beta : 0;
    float alpha_single = g->alpha, beta_single = adds(g) ? g->beta : 0;
    const void *alpha = g->dtype == DT_F64 ? (const void *)&alpha_wide : &alpha_single;
    const void *beta = g->dtype == DT_F64 ? (const void *)&beta_wide : &beta_single;
    LtStatus status =
        blas->api->matmul(blas->handle, desc, alpha, g->b, p->a, g->a, p->b, beta, adds(g) ? g->c : g->d, p->d, g->d,
                          p->d, &p->algo, p->workspace ? g->workspace : NULL, p->workspace, s->handle);
    if (!status) return NULL;
    if (is_refusal(status)) {
        refuse(blas, p, status);
        return unsupported(blas, &p->key, status);
    }
    return status_error(STATUS_FAULT, "cuBLASLt: a product of %lld x %lld x %lld failed: %s", (long long)g->m,
                        (long long)g->n, (long long)g->k, blas->api->status_name(status));
}

static Status prepare_and_run(CudaContext *c, CudaStream *s, CudaBlas *blas, const GpuGemm *g, size_t *out_workspace) {
    ProductKey key = key_of(g);
    LtDesc desc;
    Product *p = NULL;
    bool kept = true;
    LtStatus made = make_desc(c, blas->api, g, &desc);
    Status status = made ? unsupported(blas, &key, made) : get_product(c, blas, desc, &key, &p, &kept);
    LtStatus refused = status ? LT_OK : (LtStatus)atomic_load(&p->refused);
    if (refused)
        status = unsupported(blas, &key, refused);
    else if (!status && p->workspace > g->workspace_bytes)
        *out_workspace = p->workspace;
    else if (!status)
        status = run_product(s, blas, desc, g, p);
    if (desc) blas->api->desc_destroy(desc);
    if (p && !kept) product_free(blas->api, p);
    return status;
}

Status cuda_gemm(CudaContext *c, CudaStream *s, const GpuGemm *g, size_t *out_workspace) {
    *out_workspace = 0;
    if (!cuda_gemm_possible(g)) return status_error(STATUS_UNSUPPORTED, "cuBLASLt does not take this product");
    /* What the library does on first use (loading a kernel, taking memory) is no part of a recording; the thread's
     * strict mode would make it fail. */
    CuCaptureMode mode = CU_CAPTURE_RELAXED;
    if (s->recording) TRY(cuda_check(c, c->api->capture_mode(&mode), "cannot record a product"));
    CudaBlas *blas = cuda_blas(c);
    Status status =
        blas ? prepare_and_run(c, s, blas, g, out_workspace) : status_error(STATUS_UNSUPPORTED, "%s", c->no_blas);
    if (s->recording) {
        Status restored = cuda_check(c, c->api->capture_mode(&mode), "cannot record a product");
        if (status)
            status_free(restored);
        else
            status = restored;
    }
    return status;
}
