/* SPDX-License-Identifier: Apache-2.0 */
/* Rows by the matrices of their groups, "matmul_grouped": a mixture of experts, where the run alone says which rows an expert gets.
 * Rows are put in the order of their groups, as pointers, and each group that has some is a product of its own: the weights of the
 * others are not read. A row's result depends on how many rows its group has, not on the number of threads. */
#include <string.h>

#include "runtime/device/cpu/matmul/matmul.h"
#include "runtime/device/matmul_shape.h"

enum { ROWS, MATRICES, GROUPS, BIAS }; /* inputs */

/* Sizes of one run. */
typedef struct GroupedShape {
    int64_t groups, depth, columns, rows;
    int64_t b_group, b_column, b_depth; /* strides of what is not packed */
} GroupedShape;

static Status grouped_shape(const CpuAnchor *anchor, const Tensor *const *inputs, GroupedShape *out) {
    const Tensor *b = inputs[MATRICES];
    *out = (GroupedShape){.rows = tensor_count(inputs[GROUPS])};
    if (anchor_holds_bits(anchor->node)) {
        const Matmul *m = anchor->kind_data;
        out->groups = m->weight_count;
        out->depth = m->blocks.k;
        out->columns = m->blocks.n / m->weight_count;
        return NULL;
    }
    int64_t dims[MAX_RANK], strides[MAX_RANK];
    if (b->rank != 3) return anchor_wrong(anchor, "the second factor is not a matrix a group");
    TRY(matmul_permuted(anchor->node, "perm_b", b->rank, b->dims, dims, strides));
    out->groups = dims[0], out->depth = dims[1], out->columns = dims[2];
    out->b_group = strides[0], out->b_depth = strides[1], out->b_column = strides[2];
    return NULL;
}

static Status grouped_check(const CpuAnchor *anchor, const Tensor *const *inputs, const int64_t *symbols,
                            const Tensor *output) {
    (void)symbols;
    GroupedShape s;
    TRY(grouped_shape(anchor, inputs, &s));
    const Tensor *a = inputs[ROWS], *groups = inputs[GROUPS],
                 *bias = anchor->node->input_count > BIAS ? inputs[BIAS] : NULL;
    int rank = output->rank;
    bool fits = groups->dtype == DT_I64 && groups->rank == rank - 1 && a->rank >= 1 && a->rank <= rank &&
                a->dims[a->rank - 1] == s.depth && output->dims[rank - 1] == s.columns;
    for (int i = 0; fits && i < rank - 1; i++) fits = groups->dims[i] == output->dims[i];
    for (int i = 2; fits && i <= a->rank; i++)
        fits = a->dims[a->rank - i] == 1 || a->dims[a->rank - i] == output->dims[rank - i];
    if (bias) fits = fits && bias->rank == 2 && bias->dims[0] == s.groups && bias->dims[1] == s.columns;
    return fits ? NULL : anchor_wrong(anchor, "the inputs do not give a result of the planned shape");
}

static Status grouped_prepare(CpuAnchor *anchor, const Tensor *const *constants, Pool *pool) {
    const Node *node = anchor->node;
    if (!is_work(anchor->dtype) || !dtype_is_float(anchor->dtype) || node->input_count <= GROUPS)
        return anchor_wrong(anchor, "rows in groups are f32 or f64, and have numbers of groups");
    TRY(matmul_prepare(anchor, constants, pool));
    bool kept = node->input_count > BIAS && constants[BIAS];
    return kept ? anchor_keep_bias(anchor, BIAS, constants[BIAS], pool) : NULL;
}

/* A group that has rows. */
typedef struct Group {
    const char *const *from; /* its rows */
    const int64_t *order;    /* and their places in the result */
    char *result;
    size_t row_bytes; /* of the result */
    BoundEpilogue epilogue;
    WeightSource source; /* of a matrix that is not packed */
} Group;

static void fill_group(const void *context, int64_t first, RowBlock *block) {
    const Group *g = context;
    int count = block->count, at = row_block_interior(block, count);
    for (int i = 0; i < count; i++) {
        block->rows[at + i] = g->from[first + i];
        block->results[at + i] = g->result + (size_t)g->order[first + i] * g->row_bytes;
    }
}

/* A run's rows in the order of their groups, within one as they come. */
typedef struct Sorted {
    const char **from; /* [rows] */
    int64_t *order;    /* [rows]: their places in the result */
    int64_t *ends;     /* [groups + 1]: where a group's rows begin, and the next's */
} Sorted;

/* Where the rows of a stand for each of the result's: a's leading axes broadcast. */
typedef struct RowWalk {
    int rank; /* of the leading axes */
    int64_t dims[MAX_RANK], steps[MAX_RANK], at[MAX_RANK], row;
} RowWalk;

static RowWalk walk_rows(const Tensor *a, const Tensor *groups) {
    RowWalk walk = {.rank = groups->rank};
    int64_t step = 1;
    for (int i = 1; i <= groups->rank; i++) {
        int64_t own = i < a->rank ? a->dims[a->rank - 1 - i] : 1;
        walk.dims[groups->rank - i] = groups->dims[groups->rank - i];
        walk.steps[groups->rank - i] = own == 1 ? 0 : step;
        step *= own;
    }
    return walk;
}

static void step_row(RowWalk *walk) {
    for (int i = walk->rank - 1; i >= 0; i--) {
        walk->row += walk->steps[i];
        if (++walk->at[i] < walk->dims[i]) return;
        walk->row -= walk->steps[i] * walk->dims[i];
        walk->at[i] = 0;
    }
}

static Status sort_rows(const AnchorRun *run, const GroupedShape *s, Sorted *out) {
    const Tensor *a = run->inputs[ROWS], *groups = run->inputs[GROUPS];
    const int64_t *numbers = groups->data;
    size_t bytes = (size_t)s->depth * dtype_size(a->dtype);
    int64_t *ends = out->ends;
    memset(ends, 0, (size_t)(s->groups + 1) * sizeof *ends);
    for (int64_t i = 0; i < s->rows; i++) {
        if (numbers[i] < 0 || numbers[i] >= s->groups)
            return status_error(STATUS_INVALID, "%s (%s): row %lld is of group %lld, but there are %lld",
                                node_origin_name(run->anchor->node), run->anchor->node->op, (long long)i,
                                (long long)numbers[i], (long long)s->groups);
        ends[numbers[i] + 1]++;
    }
    for (int64_t g = 0; g < s->groups; g++) ends[g + 1] += ends[g];
    RowWalk walk = walk_rows(a, groups);
    for (int64_t i = 0; i < s->rows; i++, step_row(&walk)) {
        int64_t place = ends[numbers[i]]++; /* which thus becomes where the group ends */
        out->order[place] = i;
        out->from[place] = (const char *)a->data + (size_t)walk.row * bytes;
    }
    memmove(ends + 1, ends, (size_t)s->groups * sizeof *ends);
    ends[0] = 0;
    return NULL;
}

static const int64_t one_tap[1] = {0};

/* like: the weight of a matrix that is not packed. bias: of all groups, or NULL. */
static Product group_product(const AnchorRun *run, const GroupedShape *s, const Sorted *rows, int64_t g,
                             const Weight *like, const char *bias, Group *group) {
    const Matmul *m = run->anchor->kind_data;
    size_t size = dtype_size(run->anchor->type);
    int64_t first = rows->ends[g];
    *group = (Group){.from = rows->from + first, .order = rows->order + first, .epilogue = run->epilogue};
    group->result = run->result;
    group->row_bytes = (size_t)s->columns * size;
    if (bias) group->epilogue.bias = bias + (size_t)(g * s->columns) * size;
    if (!m->weights) {
        group->source = (WeightSource){.column = s->b_column, .depth = s->b_depth, .taps = one_tap, .scale = 1};
        group->source.data = (const char *)run->inputs[MATRICES]->data + (size_t)(g * s->b_group) * size;
    }
    return (Product){.rows = rows->ends[g + 1] - first,
                     .line = 1,
                     .fill = fill_group,
                     .context = group,
                     .weight = m->weights ? &m->weights[g] : like,
                     .source = m->weights ? NULL : &group->source,
                     .offsets = one_tap,
                     .zeros = one_tap,
                     .merged = 1,
                     .epilogue = &group->epilogue};
}

static Status take_bias(AnchorRun *run, const void **out_bias) {
    *out_bias = run->anchor->bias;
    if (*out_bias || run->anchor->node->input_count <= BIAS) return NULL;
    const Tensor *bias = run->inputs[BIAS];
    return work_take(bias->dtype, bias->data, tensor_count(bias), PANEL_SLACK, run->pool, &run->scratch, out_bias);
}

static Status grouped_run(AnchorRun *run) {
    GroupedShape s;
    TRY(grouped_shape(run->anchor, run->inputs, &s));
    if (s.rows > INT64_MAX / 1024 || s.groups > INT64_MAX / 1024) return status_out_of_memory();
    size_t most = (size_t)(s.groups < s.rows ? s.groups : s.rows), unused;
    size_t bytes = most * (sizeof(Product) + sizeof(Group)) + (size_t)s.rows * (sizeof(char *) + sizeof(int64_t)) +
                   (size_t)(s.groups + 1) * sizeof(int64_t);
    Weight like = matmul_weight(run->anchor, s.columns, s.depth);
    void *memory;
    const void *bias;
    TRY(weight_bytes(&like, &unused));
    TRY(scratch_take(&run->scratch, bytes, &memory));
    Product *products = memory;
    Group *groups = (Group *)(products + most);
    Sorted rows = {.from = (const char **)(groups + most)};
    rows.order = (int64_t *)(rows.from + s.rows);
    rows.ends = rows.order + s.rows;
    TRY(sort_rows(run, &s, &rows));
    TRY(take_bias(run, &bias));
    int64_t count = 0;
    for (int64_t g = 0; g < s.groups; g++) {
        if (rows.ends[g] == rows.ends[g + 1]) continue;
        products[count] = group_product(run, &s, &rows, g, &like, bias, &groups[count]);
        count++;
    }
    return product_run(products, count, run->pool, &run->scratch);
}

const AnchorKind matmul_grouped_kind = {MATMUL_GROUPED, grouped_prepare, grouped_check, grouped_run, matmul_packs};
