/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: alpha * permute(a) x permute(b), permuted again. Permutes are strides; a factor moves only where its
 * rows are not contiguous. */
#include <math.h>
#include <string.h>
#include "runtime/device/cpu/matmul/dots.h"
#include "runtime/device/cpu/matmul/matmul.h"
#include "runtime/device/cpu/quads.h"
#include "runtime/device/cpu/matmul/rounded.h"
#include "runtime/device/matmul_shape.h"

static bool is_of_bits(const CpuAnchor *anchor) { return anchor_holds_bits(anchor->node); }

/* What came in few bits and comes with a run. */
static bool is_of_run(const CpuAnchor *anchor) { return strcmp(anchor->node->op, MATMUL_BLOCKS) == 0; }

/* What of a run came in few bits. */
static Status take_blocks(const CpuAnchor *anchor, const Tensor *const *inputs, WeightBlocks *out) {
    const Matmul *m = anchor->kind_data;
    *out = m->blocks;
    return is_of_run(anchor) ? weight_blocks_of(anchor->node, inputs, out) : NULL;
}

/* The matrix [K, N] that b stands for where it came in few bits; else b itself. */
static const Tensor *second_factor(const CpuAnchor *anchor, const Tensor *b, const WeightBlocks *blocks,
                                   Tensor *matrix) {
    if (!is_of_bits(anchor)) return b;
    *matrix = (Tensor){.dtype = DT_F32, .rank = 2, .dims = {blocks->k, blocks->n}};
    return matrix;
}

static Status matmul_check(const CpuAnchor *anchor, const Tensor *const *inputs, const int64_t *symbols,
                           const Tensor *output) {
    (void)symbols;
    MatmulShape shape = {0};
    int64_t dims[MAX_RANK];
    Tensor matrix;
    WeightBlocks blocks;
    TRY(take_blocks(anchor, inputs, &blocks));
    TRY(matmul_shape(anchor->node, inputs[0], second_factor(anchor, inputs[1], &blocks, &matrix), NULL, &shape, dims));
    bool fits = output->rank == shape.batch_rank + 2;
    for (int i = 0; fits && i < output->rank; i++) fits = output->dims[i] == dims[i];
    return fits ? NULL : anchor_wrong(anchor, "the inputs do not give a result of the planned shape");
}

/* The strides of dense tensors over a product's batches, of which those with a stride of 0 are not there. */
static int64_t dense_batch(const MatmulShape *s, int64_t each, int64_t *strides) {
    for (int i = s->batch_rank - 1; i >= 0; i--) {
        if (!strides[i]) continue;
        strides[i] = each;
        each *= s->batch[i];
    }
    return each;
}

static const int64_t one_tap[1] = {0};

Weight matmul_weight(const CpuAnchor *anchor, int64_t columns, int64_t depth) {
    return (Weight){
        .set = anchor_tiles(anchor, anchor->quads), .groups = 1, .columns = columns, .taps = 1, .depth = depth};
}

/* Elements of a sum of that depth. */
static int64_t elements_in(const CpuAnchor *anchor, int64_t depth) {
    return anchor->quads ? quads_in(depth, QUAD / anchor->quads) : depth;
}

/* ---- a constant b ---- */

/* What pack_constant made when the model was compiled, or for another anchor. */
static void take_packed(CpuAnchor *anchor, Matmul *m, const Weight *like, Weight *weights, int64_t count, void *data,
                        size_t bytes) {
    m->weights = weights;
    m->weight_count = count;
    for (int64_t i = 0; i < count; i++) {
        weights[i] = *like;
        weights[i].data = (char *)data + bytes * (size_t)i;
    }
    anchor_is_packed(anchor, bytes * (size_t)count, false, anchor->quads == QUAD / 2);
}

static Recipe matmul_recipe(const CpuAnchor *anchor, const Tensor *b, const int64_t *dims, const int64_t *strides,
                            const WeightSource *source) {
    Recipe recipe = anchor_recipe(anchor, b);
    recipe_add_all(&recipe, dims, b->rank);
    recipe_add_all(&recipe, strides, b->rank);
    recipe_add_factor(&recipe, source->scale);
    return recipe;
}

/* Matrices of narrow numbers [dims of `outer` axes][depth][columns] by strides as dense ones of quads. */
static Status take_quads(int quads, const void *from, const int64_t *dims, const int64_t *strides, int outer,
                         Pool *pool, Scratch *scratch, const void **out_data) {
    QuadSource source = {.from = from,
                         .size = QUAD / quads,
                         .rank = outer,
                         .depth = dims[outer],
                         .depth_stride = strides[outer],
                         .inner = dims[outer + 1],
                         .inner_stride = strides[outer + 1]};
    for (int i = 0; i < outer; i++) source.dims[i] = dims[i], source.strides[i] = strides[i];
    return quads_take(&source, pool, scratch, out_data);
}

/* Of the matrices of b, in the row-major order of b's own permuted batch axes. */
static Status pack_constant(CpuAnchor *anchor, Matmul *m, const Tensor *b, Pool *pool) {
    int64_t dims[MAX_RANK], strides[MAX_RANK], count = 1;
    TRY(matmul_permuted(anchor->node, "perm_b", b->rank, b->dims, dims, strides));
    for (int i = 0; i < b->rank - 2; i++) count *= dims[i];
    Weight like = matmul_weight(anchor, dims[b->rank - 1], elements_in(anchor, dims[b->rank - 2]));
    WeightSource source = {.column = strides[b->rank - 1],
                           .depth = strides[b->rank - 2],
                           .taps = one_tap,
                           .scale = anchor->quads ? 1 : (double)m->alpha};
    if (source.scale == 1) anchor_keep_halves(anchor, like.columns * like.depth);
    source.halves = anchor->dtype == DT_F16;
    like.form = anchor->form;
    size_t bytes, all;
    void *data, *weights;
    TRY(weight_bytes(&like, &bytes));
    bytes = (bytes + 63) / 64 * 64;
    if (__builtin_mul_overflow(bytes, (size_t)count, &all)) return status_out_of_memory();
    bool ready;
    Recipe recipe = matmul_recipe(anchor, b, dims, strides, &source);
    TRY(anchor_pack(anchor, &recipe, all, &data, &ready));
    TRY(anchor_allocate(anchor, (size_t)count * sizeof(Weight), &weights));
    if (ready) {
        take_packed(anchor, m, &like, weights, count, data, bytes);
        return NULL;
    }
    Scratch scratch = {0};
    const void *from = b->data;
    const size_t size = source.halves ? dtype_size(DT_F16) : like.set->size;
    Status status = NULL;
    if (anchor->quads)
        status = take_quads(anchor->quads, b->data, dims, strides, b->rank - 2, pool, &scratch, &from);
    else if (!source.halves)
        status = work_take(b->dtype, b->data, tensor_count(b), 0, pool, &scratch, &from);
    if (anchor->quads) { /* dense, with their own strides */
        dims[b->rank - 2] = like.depth;
        matmul_strides(b->rank, dims, strides);
        source.column = 1, source.depth = like.columns;
    }
    if (!status) status = anchor_check_weight(anchor, b, source.scale);
    for (int64_t i = 0; !status && i < count; i++) {
        int64_t offset = 0, rest = i;
        for (int axis = b->rank - 3; axis >= 0; axis--) {
            offset += rest % dims[axis] * strides[axis];
            rest /= dims[axis];
        }
        m->weights = weights;
        m->weights[i] = like;
        m->weights[i].data = (char *)data + bytes * (size_t)i;
        source.data = (const char *)from + (size_t)offset * size;
        status = weight_pack(&m->weights[i], &source, pool);
    }
    scratch_release(&scratch);
    TRY(status);
    m->weight_count = count;
    anchor_is_packed(anchor, all, false, anchor->quads == QUAD / 2);
    return NULL;
}

/* What came in few bits: the panels hold the same numbers. A matrix, or one a group. */
static Status pack_bits(CpuAnchor *anchor, Matmul *m, const Tensor *const *constants, Pool *pool) {
    const Tensor *b = constants[1];
    TRY(weight_blocks_of(anchor->node, constants, &m->blocks));
    int64_t count = b->rank == 4 ? b->dims[0] : 1;
    WeightBlocks part = m->blocks;
    part.n /= count;
    anchor->form = blocks_form(&m->blocks);
    Weight like = matmul_weight(anchor, part.n, part.k);
    like.form = anchor->form;
    WeightSource source = {.scale = 1, .blocks = &part};
    const Tensor *zeros = m->blocks.zeros;
    Recipe recipe = anchor_recipe(anchor, b);
    recipe_add_place(&recipe, m->blocks.scales->data);
    recipe_add(&recipe, m->blocks.scales->dtype);
    recipe_add_place(&recipe, zeros ? zeros->data : NULL);
    recipe_add(&recipe, zeros ? zeros->dtype : DT_NONE);
    recipe_add_all(&recipe, (int64_t[]){m->blocks.k, m->blocks.block, m->blocks.bits}, 3);
    size_t bytes, all;
    void *data, *weights;
    bool ready;
    TRY(weight_bytes(&like, &bytes));
    if (count > 1) bytes = (bytes + 63) / 64 * 64;
    if (__builtin_mul_overflow(bytes, (size_t)count, &all)) return status_out_of_memory();
    TRY(anchor_pack(anchor, &recipe, all, &data, &ready));
    TRY(anchor_allocate(anchor, (size_t)count * sizeof(Weight), &weights));
    take_packed(anchor, m, &like, weights, count, data, bytes);
    for (int64_t i = 0; !ready && i < count; i++) {
        part.first = i * part.n;
        TRY(weight_pack(&m->weights[i], &source, pool));
    }
    return NULL;
}

bool matmul_packs(const Node *node) { return node->inputs[1]->rank >= 2; }

Status matmul_prepare(CpuAnchor *anchor, const Tensor *const *constants, Pool *pool) {
    void *data;
    TRY(anchor_allocate(anchor, sizeof(Matmul), &data));
    Matmul *m = anchor->kind_data = data;
    if (!is_of_bits(anchor)) anchor->quads = anchor_quads(anchor);
    if (anchor->quads) anchor->form = (WeightForm){0};
    *m = (Matmul){.alpha = (float)attr_float(anchor->node, "alpha", 1)};
    const Tensor *b = constants[1];
    if (is_of_run(anchor)) return NULL;
    if (is_of_bits(anchor) && !b) return anchor_wrong(anchor, "its weight is no constant");
    if (is_of_bits(anchor))
        TRY(pack_bits(anchor, m, constants, pool));
    else if (b && b->rank >= 2 && tensor_count(b))
        TRY(pack_constant(anchor, m, b, pool));
    static const char *const rounded[WEIGHT_KINDS] = {[WEIGHT_INT8] = "packed, weights int8, rows int8",
                                                      [WEIGHT_INT4] = "packed, weights int4, rows int8",
                                                      [WEIGHT_INT2] = "packed, weights int2, rows int8"};
    m->rounds = attr_int(anchor->node, ROWS_INT8, 0) && m->weights && rounded[anchor->form.kind];
    if (m->rounds) anchor->how = rounded[anchor->form.kind];
    return NULL;
}

/* ---- runs ---- */

/* Rows of several matrices one after the other. */
typedef struct MatrixRows {
    const MatmulShape *shape;
    int64_t first_batch;
    const char *a;
    char *out;
    int64_t a_size, size; /* bytes of an element of a, of the result */
} MatrixRows;

static void fill_rows(const void *context, int64_t first, RowBlock *block) {
    const MatrixRows *m = context;
    const MatmulShape *s = m->shape;
    int64_t batch = m->first_batch + first / s->rows, row = first % s->rows;
    int count = block->count;
    for (int i = row_block_interior(block, count); i < count; batch++, row = 0) {
        const char *a = m->a + (matmul_batch_offset(s, s->a_batch, batch) + row * s->a_row) * m->a_size;
        char *out = m->out + (matmul_batch_offset(s, s->out_batch, batch) + row * s->out_row) * m->size;
        for (; i < count && row < s->rows; i++, row++, a += s->a_row * m->a_size, out += s->out_row * m->size) {
            block->rows[i] = a;
            block->results[i] = out;
        }
    }
}

/* Which of the packed matrices a batch uses. */
static int64_t packed_index(const MatmulShape *s, const Tensor *b, const CpuAnchor *anchor, int64_t flat) {
    int64_t index = 0, scale = 1, dims[MAX_RANK], strides[MAX_RANK];
    Status status = matmul_permuted(anchor->node, "perm_b", b->rank, b->dims, dims, strides);
    status_free(status); /* it held when b was packed */
    for (int i = s->batch_rank - 1; i >= 0; i--) {
        int64_t at = flat % s->batch[i];
        int axis = i - (s->batch_rank - (b->rank - 2));
        flat /= s->batch[i];
        if (axis < 0) continue;
        index += (dims[axis] == 1 ? 0 : at) * scale;
        scale *= dims[axis];
    }
    return index;
}

/* Makes a's rows contiguous where they are not. */
static Status straighten_a(AnchorRun *run, MatmulShape *s, const void **a) {
    if (s->a_depth == 1 || s->depth <= 1) return NULL;
    int64_t dims[MAX_RANK], strides[MAX_RANK], dense[MAX_RANK], count = 1;
    int rank = s->batch_rank + 2;
    for (int i = 0; i < s->batch_rank; i++) {
        dims[i] = s->a_batch[i] ? s->batch[i] : 1;
        strides[i] = s->a_batch[i];
    }
    dims[rank - 2] = s->rows, strides[rank - 2] = s->a_row;
    dims[rank - 1] = s->depth, strides[rank - 1] = s->a_depth;
    for (int i = 0; i < rank; i++) count *= dims[i];
    size_t size = dtype_size(run->anchor->type);
    void *copy;
    TRY(scratch_take(&run->scratch, (size_t)count * size, &copy));
    strided_copy(size, rank, dims, strides, *a, copy, run->pool);
    matmul_strides(rank, dims, dense);
    for (int i = 0; i < s->batch_rank; i++) s->a_batch[i] = s->a_batch[i] ? dense[i] : 0;
    s->a_row = dense[rank - 2];
    s->a_depth = 1;
    *a = copy;
    return NULL;
}

/* A result whose columns are not contiguous is computed aside. */
static Status straighten_result(AnchorRun *run, MatmulShape *s, void **result) {
    if (s->out_column == 1 || s->columns <= 1) return NULL;
    int64_t step = s->rows * s->columns;
    TRY(scratch_take(&run->scratch, (size_t)(step * s->batches) * dtype_size(run->anchor->type), result));
    for (int i = s->batch_rank - 1; i >= 0; i--) {
        s->out_batch[i] = step;
        step *= s->batch[i];
    }
    s->out_row = s->columns;
    s->out_column = 1;
    return NULL;
}

/* From the dense product to where its elements belong. */
static void permute_result(AnchorRun *run, const MatmulShape *dense, const void *from) {
    int64_t dims[MAX_RANK], strides[MAX_RANK], out[MAX_RANK];
    int rank = dense->batch_rank + 2, count;
    const int64_t *perm = attr_ints(run->anchor->node, "perm_out", &count);
    for (int i = 0; i < dense->batch_rank; i++) strides[i] = dense->out_batch[i];
    strides[rank - 2] = dense->out_row;
    strides[rank - 1] = 1;
    for (int i = 0; i < rank; i++) {
        dims[i] = run->output->dims[i];
        out[i] = strides[perm[i]];
    }
    strided_copy(dtype_size(run->anchor->type), rank, dims, out, from, run->result, run->pool);
}

/* ---- rows of i8 ---- */

typedef struct Rounding {
    const MatmulShape *shape;
    const WeightForm *form;
    const float *a;
    char *to;
    int64_t row_bytes;
    void (*round)(const WeightForm *form, const float *row, int64_t depth, void *to);
} Rounding;

static void round_rows(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Rounding *r = context;
    const MatmulShape *s = r->shape;
    for (int64_t i = begin; i < end; i++)
        r->round(r->form, r->a + matmul_batch_offset(s, s->a_batch, i / s->rows) + i % s->rows * s->a_row, s->depth,
                 r->to + i * r->row_bytes);
}

/* What a product's factors are. */
typedef enum Factors {
    FACTORS_AS_COMPUTED, /* of the type that is computed in, or quads */
    FACTORS_HALVES,      /* of f16 */
    FACTORS_ROUNDED,     /* a is, b is held in few bits */
    FACTORS_DIGITS,      /* likewise, a is one row of digits */
    FACTORS_PARTS,       /* likewise, a is parts of bf16 */
} Factors;

/* lying: b is multiplied where it lies. One row by weights of few bits is arithmetic before it is memory: three products of bytes are two
 * thirds of f32's instructions. Many rows are three products of bf16 where a machine has some for large matrices. */
static Factors factors_of(const CpuAnchor *anchor, const MatmulShape *s, bool lying) {
    const Matmul *m = anchor->kind_data;
    const bool in_blocks = m->weights && m->weight_count == 1 && weight_in_blocks(&anchor->form);
    if (in_blocks && m->rounds) return FACTORS_ROUNDED;
    if (in_blocks && tile_blocks()->digits[anchor->form.kind] && s->rows * s->batches == 1) return FACTORS_DIGITS;
    if (in_blocks && tile_blocks()->parts[anchor->form.kind] && s->rows * s->batches > NARROW_ROWS)
        return FACTORS_PARTS;
    const bool halves = !lying && anchor->dtype == DT_F16 && (s->a_depth == 1 || s->depth <= 1);
    return halves ? FACTORS_HALVES : FACTORS_AS_COMPUTED;
}

/* The rows' distances become those of what they are rounded to, in elements of 4 bytes. */
static Status round_factor(AnchorRun *run, MatmulShape *s, Factors factors, const void **a) {
    const WeightForm *form = &run->anchor->form;
    int64_t rows = s->rows * s->batches;
    Rounding r = {s, form, *a, NULL, rounded_row_bytes(form, s->depth), rounded_row};
    if (factors == FACTORS_DIGITS) r.row_bytes *= ROW_DIGITS, r.round = digits_row;
    if (factors == FACTORS_PARTS) r.row_bytes = parts_row_bytes(form, s->depth), r.round = parts_row;
    size_t bytes;
    void *to;
    if (__builtin_mul_overflow((size_t)rows, (size_t)r.row_bytes, &bytes)) return status_out_of_memory();
    TRY(scratch_take(&run->scratch, bytes, &to));
    r.to = to;
    double work = (double)rows * (double)s->depth;
    pool_tell(work);
    pool_for(work < 65536 ? NULL : run->pool, rows, 1 + 16384 / (1 + s->depth), round_rows, &r);
    *a = to;
    s->a_row = r.row_bytes / (int64_t)sizeof(float);
    dense_batch(s, s->a_row * s->rows, s->a_batch); /* b is one matrix: the batches are a's own */
    return NULL;
}

/* blocks: of what is held in few bits. */
static Status run_products(AnchorRun *run, const MatmulShape *s, const void *a, const void *b,
                           const WeightBlocks *blocks, Factors factors, void *result) {
    const CpuAnchor *anchor = run->anchor;
    const bool halves = factors == FACTORS_HALVES;
    static const ProductRows row_kinds[] = {
        [FACTORS_ROUNDED] = ROWS_ROUNDED, [FACTORS_DIGITS] = ROWS_DIGITS, [FACTORS_PARTS] = ROWS_PARTS};
    const Matmul *m = anchor->kind_data;
    bool shared = true; /* one b for all batches: their rows are rows of one product */
    for (int i = 0; i < s->batch_rank; i++) shared &= s->b_batch[i] == 0 || s->batch[i] == 1;
    int64_t count = shared ? 1 : s->batches;
    size_t size = dtype_size(anchor->type), from_size = halves ? dtype_size(DT_F16) : size;
    void *memory;
    if ((size_t)count > SIZE_MAX / 1024) return status_out_of_memory();
    TRY(scratch_take(&run->scratch, (size_t)count * (sizeof(Product) + sizeof(MatrixRows) + sizeof(WeightSource)),
                     &memory));
    Product *products = memory;
    MatrixRows *rows = (MatrixRows *)(products + count);
    WeightSource *sources = (WeightSource *)(rows + count);
    Weight like = matmul_weight(anchor, s->columns, s->depth);
    if (is_of_run(anchor)) like.form = blocks_form(blocks);
    size_t unused;
    TRY(weight_bytes(&like, &unused));
    for (int64_t i = 0; i < count; i++) {
        rows[i] = (MatrixRows){s, i, a, result, (int64_t)from_size, (int64_t)size};
        products[i] = (Product){
            .rows = shared ? s->rows * s->batches : s->rows,
            .line = 1,
            .fill = fill_rows,
            .context = &rows[i],
            .weight =
                m->weights ? &m->weights[is_of_bits(anchor) ? 0 : packed_index(s, run->inputs[1], anchor, i)] : &like,
            .offsets = one_tap,
            .zeros = one_tap,
            .merged = 1,
            .row_kind = row_kinds[factors],
            .blocks = row_kinds[factors] ? tile_blocks() : NULL,
            .scales = anchor->quads && m->alpha != 1,
            .scale = m->alpha,
            .epilogue = &run->epilogue};
        if (halves) products[i].halves = a, products[i].halves_end = (const char *)a + tensor_bytes(run->inputs[0]);
        if (m->weights) continue;
        sources[i] =
            (WeightSource){.halves = halves, .column = s->b_column, .depth = s->b_depth, .taps = one_tap, .scale = 1};
        if (!anchor->quads) sources[i].scale = (double)m->alpha;
        if (is_of_run(anchor))
            sources[i].blocks = blocks;
        else
            sources[i].data = (const char *)b + (size_t)matmul_batch_offset(s, s->b_batch, i) * from_size;
        products[i].source = &sources[i];
    }
    return product_run(products, count, run->pool, &run->scratch);
}

/* Whether vectors of `depth` numbers are whole quads where they lie: neighbours of one are so far apart, vectors and
 * matrices of them so far. Then their distances become those of quads. */
static bool lie_as_quads(int quads, const MatmulShape *s, const void *data, int64_t step, int64_t *vector,
                         int64_t *batch) {
    bool whole = step == 1 && s->depth % quads == 0 && *vector % quads == 0 && (uintptr_t)data % QUAD == 0;
    for (int i = 0; i < s->batch_rank; i++) whole &= batch[i] % quads == 0;
    if (!whole) return false;
    *vector /= quads;
    for (int i = 0; i < s->batch_rank; i++) batch[i] /= quads;
    return true;
}

/* Narrow numbers as quads: where they lie, if they are whole quads along the summed axis; else gathered. */
static Status take_factors_of_quads(AnchorRun *run, MatmulShape *s, const void **a, const void **b) {
    int64_t dims[MAX_RANK + 2], strides[MAX_RANK + 2], depth = elements_in(run->anchor, s->depth);
    int batch = s->batch_rank, quads = run->anchor->quads;
    if (!lie_as_quads(quads, s, *a, s->a_depth, &s->a_row, s->a_batch)) { /* rows are outer axes, of one column each */
        for (int i = 0; i < batch; i++) dims[i] = s->a_batch[i] ? s->batch[i] : 1, strides[i] = s->a_batch[i];
        dims[batch] = s->rows, strides[batch] = s->a_row;
        dims[batch + 1] = s->depth, strides[batch + 1] = s->a_depth;
        dims[batch + 2] = 1, strides[batch + 2] = 0;
        TRY(take_quads(quads, *a, dims, strides, batch + 1, run->pool, &run->scratch, a));
        dense_batch(s, s->rows * depth, s->a_batch);
        s->a_row = depth, s->a_depth = 1;
    }
    if (*b && !lie_as_quads(quads, s, *b, s->b_depth, &s->b_column, s->b_batch)) {
        for (int i = 0; i < batch; i++) dims[i] = s->b_batch[i] ? s->batch[i] : 1, strides[i] = s->b_batch[i];
        dims[batch] = s->depth, strides[batch] = s->b_depth;
        dims[batch + 1] = s->columns, strides[batch + 1] = s->b_column;
        TRY(take_quads(quads, *b, dims, strides, batch, run->pool, &run->scratch, b));
        dense_batch(s, depth * s->columns, s->b_batch);
        s->b_depth = s->columns, s->b_column = 1;
    }
    s->depth = depth;
    return NULL;
}

static Status matmul_run(AnchorRun *run) {
    const CpuAnchor *anchor = run->anchor;
    const Matmul *m = anchor->kind_data;
    Tensor matrix;
    WeightBlocks blocks;
    TRY(take_blocks(anchor, run->inputs, &blocks));
    const Tensor *ta = run->inputs[0], *tb = second_factor(anchor, run->inputs[1], &blocks, &matrix);
    MatmulShape s = {0};
    int64_t dims[MAX_RANK];
    const void *a, *b = NULL;
    void *result = run->result;
    TRY(matmul_shape(anchor->node, ta, tb, NULL, &s, dims));
    const bool lying = is_of_run(anchor) && dots_take_blocks(&s, &blocks);
    bool dots = !m->weights && anchor->type == DT_F32 && !anchor->quads && dots_take(&s);
    const Factors factors = factors_of(anchor, &s, lying);
    const bool halves = factors == FACTORS_HALVES;
    if (anchor->quads || halves) a = ta->data, b = m->weights ? NULL : tb->data;
    if (anchor->quads) {
        TRY(take_factors_of_quads(run, &s, &a, &b));
    } else if (!halves) {
        TRY(work_take(ta->dtype, ta->data, tensor_count(ta), 0, run->pool, &run->scratch, &a));
        if (!m->weights && !is_of_bits(anchor))
            TRY(work_take(tb->dtype, tb->data, tensor_count(tb), 0, run->pool, &run->scratch, &b));
    }
    TRY(straighten_a(run, &s, &a));
    TRY(straighten_result(run, &s, &result));
    if (run->epilogue.finish && result != run->result) return anchor_wrong(anchor, "an epilogue of a turned result");
    run->epilogue.result = result;
    if (factors >= FACTORS_ROUNDED) TRY(round_factor(run, &s, factors, &a));
    if (lying)
        TRY(dots_run_blocks(run, &s, a, &blocks, result, m->alpha));
    else if (dots)
        TRY(dots_run(run, &s, a, b, halves, result, m->alpha));
    else
        TRY(run_products(run, &s, a, b, &blocks, factors, result));
    if (result != run->result) permute_result(run, &s, result);
    return NULL;
}

const AnchorKind matmul_kind = {"matmul", matmul_prepare, matmul_check, matmul_run, matmul_packs};
const AnchorKind matmul_bits_kind = {MATMUL_BITS, matmul_prepare, matmul_check, matmul_run, matmul_packs};
const AnchorKind matmul_blocks_kind = {MATMUL_BLOCKS, matmul_prepare, matmul_check, matmul_run, NULL};
