/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products on the GPU device: permutes and broadcasts become strides, batch axes that follow each other become
 * one, and the product goes to the driver's library where it takes it, else to our own kernels. */
#include <stdlib.h>

#include "base/integer.h"
#include "base/log.h"
#include "runtime/device/gpu/anchor_parts.h"
#include "runtime/device/matmul_shape.h"

/* ---- shapes ---- */

/* Axes of size 1 go; an axis whose strides go on where the next one's end becomes one with it. */
static void merge_batches(MatmulShape *s) {
    int kept = 0;
    for (int i = 0; i < s->batch_rank; i++) {
        if (s->batch[i] == 1) continue;
        int last = kept - 1;
        bool joins = kept && s->a_batch[last] == s->a_batch[i] * s->batch[i] &&
                     s->b_batch[last] == s->b_batch[i] * s->batch[i] &&
                     s->out_batch[last] == s->out_batch[i] * s->batch[i];
        int to = joins ? last : kept++;
        s->batch[to] = joins ? s->batch[last] * s->batch[i] : s->batch[i];
        s->a_batch[to] = s->a_batch[i];
        s->b_batch[to] = s->b_batch[i];
        s->out_batch[to] = s->out_batch[i];
    }
    s->batch_rank = kept;
}

/* Matrices that share b are one of more rows where their rows follow each other. */
static void merge_rows(MatmulShape *s) {
    int last = s->batch_rank - 1;
    if (last < 0 || s->b_batch[last]) return;
    if (s->rows == 1) {
        s->a_row = s->a_batch[last];
        s->out_row = s->out_batch[last];
    } else if (s->a_batch[last] != s->a_row * s->rows || s->out_batch[last] != s->out_row * s->rows) {
        return;
    }
    s->rows *= s->batch[last];
    s->batch_rank--;
}

/* ---- the library ---- */

static bool library_type(DType t) { return t == DT_F32 || t == DT_F16 || t == DT_BF16 || t == DT_F64; }

/* Whether a library applies the epilogue. Its bias is one of columns. */
static bool folds(const DeviceAnchor *anchor, bool swapped) {
    return anchor->epilogue && anchor->library.whole && (anchor->library.plain.bias < 0 || !swapped);
}

/* Whether the library would take products of these sizes (-1 where not known), and the epilogue with them. */
static bool library_expected(const DeviceAnchor *anchor, const GpuMatmul *known, bool *out_whole) {
    const GpuDriver *driver = anchor->device->driver;
    if (!driver->gemm || !driver->gemm_supports || !library_type(anchor->dtype)) return false;
    enum { SOME_SIZE = 256 };
    void *somewhere = (void *)(uintptr_t)4096;
    GpuGemm gemm = {.dtype = anchor->dtype,
                    .m = known->rows > 0 ? known->rows : SOME_SIZE,
                    .n = known->columns > 0 ? known->columns : SOME_SIZE,
                    .k = known->depth > 0 ? known->depth : SOME_SIZE,
                    .batch = 1,
                    .alpha = 1,
                    .a = somewhere,
                    .b = somewhere,
                    .d = somewhere};
    gemm.lda = gemm.k;
    gemm.ldb = gemm.ldc = gemm.n;
    *out_whole = !anchor->epilogue;
    if (!driver->gemm_supports(anchor->device->context, &gemm)) return false;
    if (!folds(anchor, false)) return true;
    gemm.bias = anchor->library.plain.bias < 0 ? NULL : somewhere;
    gemm.c = anchor->library.plain.addend < 0 ? NULL : somewhere;
    gemm.beta = anchor->library.plain.addend < 0 ? 0 : 1;
    gemm.activation = anchor->library.activation;
    *out_whole = driver->gemm_supports(anchor->device->context, &gemm);
    return true;
}

/* One matrix among a, b: how many elements a row takes in memory, and whether it is turned. */
static bool library_matrix(int64_t rows, int64_t columns, int64_t row, int64_t column, bool *out_turned,
                           int64_t *out_line) {
    *out_turned = column != 1 && columns != 1;
    int64_t line = *out_turned ? column : row, width = *out_turned ? rows : columns,
            lines = *out_turned ? columns : rows;
    if (*out_turned && row != 1 && rows != 1) return false;
    *out_line = lines == 1 ? width : line;
    return *out_line >= width;
}

static void fold_epilogue(const AnchorRun *run, int64_t out_offset, GpuGemm *gemm) {
    const DeviceAnchor *anchor = run->anchor;
    const PlainEpilogue *p = &anchor->library.plain;
    if (p->bias >= 0) gemm->bias = gpu_anchor_data(run, p->bias);
    if (p->addend >= 0) {
        gemm->c = (char *)gpu_anchor_data(run, p->addend) + out_offset * (int64_t)dtype_size(anchor->dtype);
        gemm->beta = 1;
    }
    gemm->activation = anchor->library.activation;
}

/* One call of the library for one of the matmul's batch axes; false where it cannot say it. */
static bool gemm_of(const AnchorRun *run, const GpuMatmul *m, char *a, char *b, int64_t out_offset, int axis,
                    bool *out_swapped, GpuGemm *gemm) {
    int64_t line_a, line_b;
    bool turned_a, turned_b, swapped = m->out_column != 1 && m->columns != 1;
    if (swapped && m->out_row != 1 && m->rows != 1) return false;
    if (!library_matrix(m->rows, m->depth, m->a_row, m->a_depth, &turned_a, &line_a) ||
        !library_matrix(m->depth, m->columns, m->b_depth, m->b_column, &turned_b, &line_b))
        return false;
    *gemm = (GpuGemm){.dtype = m->dtype, .m = m->rows, .n = m->columns, .k = m->depth, .batch = 1};
    gemm->alpha = (float)m->alpha;
    gemm->transpose_a = turned_a;
    gemm->transpose_b = turned_b;
    gemm->lda = line_a;
    gemm->ldb = line_b;
    gemm->ldc = m->rows == 1 ? m->columns : m->out_row;
    gemm->a = a;
    gemm->b = b;
    if (swapped) { /* the turned result is the product of the turned factors in the other order */
        gemm->m = m->columns;
        gemm->n = m->rows;
        gemm->transpose_a = !turned_b;
        gemm->transpose_b = !turned_a;
        gemm->lda = line_b;
        gemm->ldb = line_a;
        gemm->ldc = m->out_column;
        gemm->a = b;
        gemm->b = a;
    }
    if (gemm->ldc < gemm->n) return false;
    if (axis >= 0) {
        gemm->batch = m->batch[axis];
        gemm->stride_a = swapped ? m->b_batch[axis] : m->a_batch[axis];
        gemm->stride_b = swapped ? m->a_batch[axis] : m->b_batch[axis];
        gemm->stride_c = m->out_batch[axis];
    }
    gemm->d = (char *)run->output->data + out_offset * (int64_t)dtype_size(m->dtype);
    *out_swapped = swapped;
    return true;
}

static void index_of(const MatmulCall *call, int64_t flat, int64_t *a, int64_t *b, int64_t *out) {
    *a = *b = *out = 0;
    for (int i = call->loops - 1; i >= 0; i--) {
        int64_t at = flat % call->extent[i];
        flat /= call->extent[i];
        *a += at * call->a_step[i];
        *b += at * call->b_step[i];
        *out += at * call->out_step[i];
    }
}

static int64_t loop_count(const MatmulCall *call) {
    int64_t count = 1;
    for (int i = 0; i < call->loops; i++) count *= call->extent[i];
    return count;
}

/* More calls than this of the library for one product take longer than our own kernel, which needs one. */
enum { MOST_CALLS = 16 };

/* The call with all but one batch axis as loops. */
static MatmulCall unrolled(const MatmulCall *call, int *out_axis) {
    MatmulCall c = *call;
    *out_axis = -1;
    for (int i = 0; i < GPU_BATCH_AXES; i++)
        if (c.matmul.batch[i] > 1 && (*out_axis < 0 || c.matmul.batch[i] > c.matmul.batch[*out_axis])) *out_axis = i;
    for (int i = 0; i < GPU_BATCH_AXES; i++) {
        if (i == *out_axis || c.matmul.batch[i] == 1 || c.loops == MATMUL_LOOPS) continue;
        c.extent[c.loops] = c.matmul.batch[i];
        c.a_step[c.loops] = c.matmul.a_batch[i];
        c.b_step[c.loops] = c.matmul.b_batch[i];
        c.out_step[c.loops++] = c.matmul.out_batch[i];
    }
    return c;
}

/* The stream's scratch memory behind the first `taken` bytes, which are the result's where they are more than none. */
static void take_workspace(const GpuStream *s, size_t taken, GpuGemm *gemm) {
    bool more = s->scratch && s->scratch_bytes > taken;
    if (taken) gemm->d = s->scratch;
    gemm->workspace = more ? (char *)s->scratch + taken : NULL;
    gemm->workspace_bytes = more ? s->scratch_bytes - taken : 0;
}

/* One product by the library, with the workspace that it asks for, to `taken` bytes of scratch memory where these are not 0.
 * *out_refused: it was not done, and our own kernels are to do it; with the policy's `strict` that is an error. Only before
 * anything was done may it be refused. */
static Status ask_library(AnchorRun *run, GpuGemm *gemm, size_t taken, bool first, bool *out_refused) {
    GpuDevice *d = run->device;
    GpuStream *s = gpu_stream(run->stream);
    size_t wanted = 0;
    void *scratch;
    *out_refused = false;
    take_workspace(s, taken, gemm);
    Status status = d->driver->gemm(d->context, s->stream, gemm, &wanted);
    bool no_room = false;
    if (!status && wanted) {
        status = gpu_stream_scratch(&d->base, run->stream, taken + wanted, &scratch);
        no_room = status != NULL;
        take_workspace(s, taken, gemm);
        if (!status) status = d->driver->gemm(d->context, s->stream, gemm, &wanted);
    }
    bool refused = first && status && (no_room || status_code(status) == STATUS_UNSUPPORTED);
    if (!refused) return gpu_watch(d, status);
    if (d->strict) return status_at(status, "cuda.strict");
    if (no_room) LOG(1, "no workspace of %zu bytes for a product: %s", wanted, status_message(status));
    status_free(status);
    *out_refused = true;
    return NULL;
}

/* fused: with the epilogue. *out_done false: nothing was done. */
static Status run_gemms(AnchorRun *run, const MatmulCall *call, int axis, bool fused, bool *out_done) {
    const GpuDriver *driver = run->device->driver;
    GpuContext *context = run->device->context;
    int64_t size = (int64_t)dtype_size(run->anchor->dtype), count = loop_count(call), a, b, out;
    *out_done = false;
    for (int64_t i = 0; i < count; i++) {
        GpuGemm gemm;
        bool swapped;
        index_of(call, i, &a, &b, &out);
        if (!gemm_of(run, &call->matmul, (char *)call->a + a * size, (char *)call->b + b * size, out, axis, &swapped,
                     &gemm))
            return NULL;
        if (fused && !folds(run->anchor, swapped)) return NULL;
        if (fused) fold_epilogue(run, out, &gemm);
        if (!driver->gemm_supports(context, &gemm)) return NULL;
        bool refused;
        TRY(ask_library(run, &gemm, 0, i == 0, &refused));
        if (refused) return NULL;
        *out_done = true;
    }
    return NULL;
}

/* Products of 16-bit floats of as many columns as do not fill whole 16 bytes take the library several times as long (measured:
 * 115 of 690 TFLOP/s on an H100), which some columns of zeros and a copy do not; not worth it for little work. 0: as they are.
 * -1 among sizes: not known. */
static int64_t longer_line(const DeviceAnchor *anchor, int64_t rows, int64_t columns, int64_t depth) {
    enum { LEAST_DEPTH = 256, LEAST_COLUMNS = 64, LEAST_WORK = 1 << 22 }; /* multiplications a multiprocessor */
    if (dtype_size(anchor->dtype) != 2 || columns % 8 == 0 || columns < LEAST_COLUMNS || depth < LEAST_DEPTH) return 0;
    double work = (double)rows * (double)columns * (double)depth;
    bool enough = rows < 0 || work >= (double)anchor->device->limits->multiprocessors * LEAST_WORK;
    return enough ? round_up(columns, 8) : 0;
}

/* By so many rows that much of their result stays in a second-level cache: the weight is read again for the next ones.
 * *out_done false: nothing was done. */
static Status run_lines(AnchorRun *run, const MatmulCall *call, bool *out_done) {
    enum { CACHE = 512 << 10, UNIT = 128 }; /* bytes a multiprocessor */
    const GpuMatmul *m = &call->matmul;
    GpuDevice *d = run->device;
    int64_t size = (int64_t)dtype_size(m->dtype), line = longer_line(run->anchor, m->rows, m->columns, m->depth);
    bool one = m->batch[0] * m->batch[1] * m->batch[2] == 1 && loop_count(call) == 1 && m->out_column == 1 &&
               m->out_row == m->columns;
    *out_done = false;
    if (!line || !one) return NULL;
    int64_t most = (int64_t)d->limits->multiprocessors * CACHE / (line * size) / UNIT * UNIT,
            step = least(m->rows, most < UNIT ? UNIT : most);
    size_t bytes = (size_t)round_up(step * line * size, 256);
    void *scratch;
    Status no_room = gpu_stream_scratch(&d->base, run->stream, bytes, &scratch);
    if (no_room) {
        status_free(no_room);
        return NULL;
    }
    for (int64_t row = 0; row < m->rows; row += step) {
        MatmulCall part = *call;
        GpuGemm gemm;
        bool swapped, refused;
        part.matmul.rows = least(step, m->rows - row);
        part.matmul.out_row = line;
        if (run->anchor->kind == &gpu_matmul_kind && run->anchor->matmul.columns == line) part.matmul.columns = line;
        if (!gemm_of(run, &part.matmul, (char *)call->a + row * m->a_row * size, call->b, 0, -1, &swapped, &gemm) ||
            swapped)
            return NULL;
        gemm.d = gpu_stream(run->stream)->scratch;
        if (!d->driver->gemm_supports(d->context, &gemm)) return NULL;
        TRY(ask_library(run, &gemm, bytes, row == 0, &refused));
        if (refused) return NULL;
        *out_done = true;
        TRY(gpu_anchor_take_lines(run, gemm.d, part.matmul.rows * m->columns, m->columns, line, row * m->columns));
    }
    return NULL;
}

static Status run_library(AnchorRun *run, const MatmulCall *call, bool *out_done) {
    const DeviceAnchor *anchor = run->anchor;
    int axis;
    *out_done = false;
    if (!anchor->device->driver->gemm || !library_type(anchor->dtype) || call->matmul.depth < 1) return NULL;
    TRY(run_lines(run, call, out_done));
    if (*out_done) return NULL;
    MatmulCall c = unrolled(call, &axis);
    if (loop_count(&c) > MOST_CALLS) return NULL;
    if (anchor->epilogue) TRY(run_gemms(run, &c, axis, true, out_done));
    if (*out_done) return NULL;
    TRY(run_gemms(run, &c, axis, false, out_done));
    if (!*out_done || !anchor->epilogue) return NULL;
    return gpu_anchor_finish(run, 0, NULL, call->columns, call->column_stride, 1);
}

/* ---- products ---- */

/* The epilogue of a library's result, and what takes it from longer lines. */
static Status prepare_finish(DeviceAnchor *anchor, const GpuMatmul *known, bool whole) {
    GpuProductLaunch launch;
    if (longer_line(anchor, known->rows, known->columns, known->depth)) {
        gpu_lines_launch(anchor->dtype, 1, 1, 1, 1, anchor->device->limits, anchor->epilogue, &launch);
        TRY(gpu_anchor_programs(anchor, &launch.variant, 1));
    }
    if (whole) return NULL;
    gpu_finish_launch(anchor->dtype, 1, 0, 1, 1, 1, 1, anchor->device->limits, anchor->epilogue, &launch);
    return gpu_anchor_programs(anchor, &launch.variant, 1);
}

Status gpu_anchor_prepare_product(DeviceAnchor *anchor, const GpuMatmul *known, bool interleaved) {
    GpuVariant variants[GPU_MAX_VARIANTS];
    bool whole;
    if (library_expected(anchor, known, &whole)) {
        anchor->library_expected = true;
        TRY(prepare_finish(anchor, known, whole));
        if (!interleaved) return NULL;
    }
    int count = gpu_matmul_variants(known, anchor->device->limits, anchor->epilogue, variants);
    return gpu_anchor_programs(anchor, variants, count);
}

static Status run_own(AnchorRun *run, const MatmulCall *call) {
    DeviceAnchor *anchor = run->anchor;
    GpuMatmul m = call->matmul;
    GpuProductLaunch launch;
    void *partial = NULL;
    int64_t size = (int64_t)dtype_size(anchor->dtype), count = loop_count(call), a, b, out;
    m.a_alignment = gpu_alignment(call->a);
    m.b_alignment = gpu_alignment(call->b);
    m.out_alignment = gpu_anchor_alignment(run);
    for (int i = 0; i < call->loops; i++) { /* offsets keep what all of them share */
        int64_t steps_of[] = {call->a_step[i] * size, call->b_step[i] * size, call->out_step[i] * size};
        int64_t *alignments[] = {&m.a_alignment, &m.b_alignment, &m.out_alignment};
        for (int k = 0; k < 3; k++)
            while (steps_of[k] % *alignments[k]) *alignments[k] /= 2;
    }
    gpu_matmul_launch(&m, run->device->limits, anchor->epilogue, &launch);
    if (launch.splits > 1)
        TRY(gpu_stream_scratch(&run->device->base, run->stream,
                               (size_t)(launch.splits * m.elements) * gpu_product_sum_bytes(m.dtype), &partial));
    for (int64_t i = 0; i < count; i++) {
        index_of(call, i, &a, &b, &out);
        TRY(gpu_anchor_launch(run, &launch, (char *)call->a + a * size, (char *)call->b + b * size, out, partial));
    }
    if (!partial) return NULL;
    return gpu_anchor_finish(run, launch.splits, partial, call->columns, call->column_stride, m.alpha);
}

Status gpu_anchor_run_product(AnchorRun *run, const MatmulCall *call) {
    bool done;
    TRY(run_library(run, call, &done));
    atomic_fetch_or(&run->anchor->ran, done ? RAN_LIBRARY : RAN_OWN);
    return done ? NULL : run_own(run, call);
}

/* ---- a constant b ---- */

/* Where a packed constant's axes lie: lines of neighbours along `line_axis`, the other of the last two axes outside of
 * it, batch axes outside of these. */
typedef struct Packing {
    int rank, line_axis;
    int64_t dims[MAX_RANK], strides[MAX_RANK], packed[MAX_RANK]; /* permuted axes; in memory, on the device */
    int64_t line;                                                /* elements from one line to the next */
    bool more;                                                   /* there are lines of zeros behind the last */
    size_t bytes;
} Packing;

/* Lines that begin at multiples of 16 bytes are read in packs; short ones are not worth the memory. */
static int64_t padded_line(int64_t length, DType dtype) {
    enum { LEAST_PADDED = 64, BYTES = 16 };
    int64_t unit = BYTES / (int64_t)dtype_size(dtype);
    return length < LEAST_PADDED ? length : round_up(length, unit);
}

static Status pack_plan(DeviceAnchor *anchor, const Tensor *b, Packing *p) {
    int rank = p->rank = b->rank;
    TRY(matmul_permuted(anchor->node, "perm_b", rank, b->dims, p->dims, p->strides));
    bool deep = p->strides[rank - 1] != 1 && p->strides[rank - 2] == 1; /* [columns][depth] */
    p->line_axis = deep ? rank - 2 : rank - 1;
    p->line = padded_line(p->dims[p->line_axis], b->dtype);
    int64_t lines = 1, unused, columns = p->dims[rank - 1];
    int64_t held = rank == 2 ? longer_line(anchor, -1, columns, p->dims[0]) : 0;
    p->more = deep && held;
    anchor->matmul.columns = held;
    if (__builtin_mul_overflow(tensor_count(b) / (p->dims[p->line_axis] ? p->dims[p->line_axis] : 1), p->line,
                               &lines) ||
        __builtin_mul_overflow(lines, (int64_t)dtype_size(b->dtype), &unused))
        return status_out_of_memory();
    p->bytes = (size_t)unused;
    if (p->more &&
        __builtin_add_overflow(p->bytes, (size_t)((held - columns) * p->line) * dtype_size(b->dtype), &p->bytes))
        return status_out_of_memory();
    int other = deep ? rank - 1 : rank - 2;
    int64_t step = p->line;
    p->packed[p->line_axis] = 1;
    p->packed[other] = step;
    step *= p->dims[other];
    for (int i = rank - 3; i >= 0; i--) {
        p->packed[i] = step;
        step *= p->dims[i];
    }
    anchor->matmul.b_outer = !deep;
    return NULL;
}

static bool already_packed(const Packing *p) {
    if (p->more) return false;
    for (int i = 0; i < p->rank; i++)
        if (p->dims[i] != 1 && p->strides[i] != p->packed[i]) return false;
    return true;
}

static void pack_line(const char *from, int64_t stride, char *to, int64_t count, size_t size) {
    if (stride == 1) {
        memcpy(to, from, (size_t)count * size);
        return;
    }
    for (int64_t i = 0; i < count; i++) memcpy(to + (size_t)i * size, from + (size_t)(i * stride) * size, size);
}

static void pack(const Packing *p, const Tensor *b, char *to) {
    size_t size = dtype_size(b->dtype);
    int64_t length = p->dims[p->line_axis], lines = length ? tensor_count(b) / length : 0, at[MAX_RANK] = {0};
    for (int64_t i = 0; i < lines; i++) {
        int64_t from = 0, out = 0;
        for (int k = 0; k < p->rank; k++) {
            from += at[k] * p->strides[k];
            out += at[k] * p->packed[k];
        }
        pack_line((const char *)b->data + (size_t)from * size, p->strides[p->line_axis], to + (size_t)out * size,
                  length, size);
        for (int k = p->rank - 1; k >= 0; k--) {
            if (k == p->line_axis) continue;
            if (++at[k] < p->dims[k]) break;
            at[k] = 0;
        }
    }
}

static Status upload_weight(DeviceAnchor *anchor, Stream *stream, const Tensor *b) {
    Packing p = {0};
    TRY(pack_plan(anchor, b, &p));
    memcpy(anchor->matmul.strides, p.packed, sizeof p.packed);
    if (already_packed(&p)) return gpu_anchor_upload(anchor, stream, 1, b->data, tensor_bytes(b));
    char *packed = calloc(p.bytes ? p.bytes : 1, 1);
    if (!packed) return status_out_of_memory();
    pack(&p, b, packed);
    Status status = gpu_anchor_upload(anchor, stream, 1, packed, p.bytes);
    free(packed);
    return status;
}

/* ---- the kind ---- */

/* Which of the last two permuted axes has neighbours, as far as the permute tells: the last when it stays the last. */
static bool last_axis_is_inner(const Node *node, const char *attr, int rank, int from_end) {
    int count;
    const int64_t *perm = attr_ints(node, attr, &count);
    if (!perm) return from_end == 1;
    return count == rank && rank >= from_end && perm[rank - from_end] == rank - 1;
}

/* The permuted axes [first, end) together, first counted from the front; -1 when some size is not known. */
static int64_t sizes_of(const Value *v, const Node *node, const char *attr, int first, int end) {
    int count;
    const int64_t *perm = attr_ints(node, attr, &count);
    int64_t product = 1, size;
    for (int i = first; i < end; i++) {
        int64_t axis = perm && count == v->rank ? perm[i] : i;
        if (axis < 0 || axis >= v->rank || !dim_is_const(v->dims[axis], &size)) return -1;
        if (__builtin_mul_overflow(product, size, &product)) return -1;
    }
    return product;
}

/* What is known of the sizes before a run. Where b is shared, batches become rows, unless permutes keep them apart. */
static Status prepare_programs(DeviceAnchor *anchor) {
    const Node *node = anchor->node;
    const Value *a = node->inputs[0], *b = node->inputs[1];
    int ra = a->rank, rb = b->rank;
    int64_t batches_a = sizes_of(a, node, "perm_a", 0, ra - 2), batches_b = sizes_of(b, node, "perm_b", 0, rb - 2);
    GpuMatmul known = {.dtype = anchor->dtype,
                       .rows = sizes_of(a, node, "perm_a", ra - 2, ra - 1),
                       .columns = sizes_of(b, node, "perm_b", rb - 1, rb),
                       .depth = sizes_of(a, node, "perm_a", ra - 1, ra),
                       .batch = {-1, 1, 1},
                       .a_outer = anchor->matmul.a_outer,
                       .b_outer = anchor->matmul.b_outer};
    bool interleaved = node_attr(node, "perm_out") && (ra > 2 || rb > 2);
    if (batches_b == 1) {
        GpuMatmul merged = known;
        merged.batch[0] = 1;
        if (known.rows < 0 || batches_a < 0 || __builtin_mul_overflow(known.rows, batches_a, &merged.rows))
            merged.rows = -1;
        TRY(gpu_anchor_prepare_product(anchor, &merged, interleaved));
        if (ra == 2 || (!node_attr(node, "perm_a") && !node_attr(node, "perm_out"))) return NULL;
    } else if (batches_a == 1 || batches_a == batches_b) {
        known.batch[0] = batches_b;
    }
    return gpu_anchor_prepare_product(anchor, &known, interleaved);
}

static Status matmul_prepare(DeviceAnchor *anchor, Stream *stream, const Tensor *const *constants) {
    const Node *node = anchor->node;
    MatmulWeight *w = &anchor->matmul;
    w->a_outer = last_axis_is_inner(node, "perm_a", node->inputs[0]->rank, 2);
    w->b_outer = !last_axis_is_inner(node, "perm_b", node->inputs[1]->rank, 2);
    return constants[1] ? upload_weight(anchor, stream, constants[1]) : NULL;
}

static bool matmul_runs(const GpuDevice *device, const Node *node) {
    (void)device;
    return node->inputs[0]->rank >= 2 && node->inputs[1]->rank >= 2;
}

static MatmulCall call_of(AnchorRun *run, const MatmulShape *s) {
    const DeviceAnchor *anchor = run->anchor;
    MatmulCall call = {.a = gpu_anchor_data(run, 0), .b = gpu_anchor_data(run, 1)};
    GpuMatmul *m = &call.matmul;
    *m = (GpuMatmul){.dtype = anchor->dtype,
                     .rows = s->rows,
                     .columns = s->columns,
                     .depth = s->depth,
                     .a_row = s->a_row,
                     .a_depth = s->a_depth,
                     .b_depth = s->b_depth,
                     .b_column = s->b_column,
                     .out_row = s->out_row,
                     .out_column = s->out_column,
                     .batch = {1, 1, 1},
                     .alpha = attr_float(anchor->node, "alpha", 1),
                     .elements = tensor_count(run->output),
                     .a_outer = anchor->matmul.a_outer,
                     .b_outer = anchor->matmul.b_outer};
    call.columns = s->columns;
    call.column_stride = s->out_column;
    call.loops = s->batch_rank > GPU_BATCH_AXES ? s->batch_rank - GPU_BATCH_AXES : 0;
    for (int i = 0; i < s->batch_rank; i++) {
        int to = i - call.loops + (s->batch_rank < GPU_BATCH_AXES ? GPU_BATCH_AXES - s->batch_rank : 0);
        *(i < call.loops ? &call.extent[i] : &m->batch[to]) = s->batch[i];
        *(i < call.loops ? &call.a_step[i] : &m->a_batch[to]) = s->a_batch[i];
        *(i < call.loops ? &call.b_step[i] : &m->b_batch[to]) = s->b_batch[i];
        *(i < call.loops ? &call.out_step[i] : &m->out_batch[to]) = s->out_batch[i];
    }
    return call;
}

static Status matmul_run(AnchorRun *run) {
    const DeviceAnchor *anchor = run->anchor;
    const Tensor *output = run->output;
    MatmulShape s;
    int64_t dims[MAX_RANK];
    TRY(matmul_shape(anchor->node, run->inputs[0], run->inputs[1], anchor->constants[1] ? anchor->matmul.strides : NULL,
                     &s, dims));
    bool fits = output->rank == s.batch_rank + 2;
    for (int i = 0; fits && i < output->rank; i++) fits = output->dims[i] == dims[i];
    if (!fits) return gpu_anchor_wrong(anchor, "the inputs do not give a result of the planned shape");
    if (!tensor_count(output)) return NULL;
    merge_batches(&s);
    merge_rows(&s);
    MatmulCall call = call_of(run, &s);
    return gpu_anchor_run_product(run, &call);
}

const AnchorKind gpu_matmul_kind = {"matmul", matmul_runs, matmul_prepare, prepare_programs, matmul_run};
