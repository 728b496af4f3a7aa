/* SPDX-License-Identifier: Apache-2.0 */
/* Permutes become strides; batch axes are broadcast as numpy does. */
#include "runtime/device/matmul_shape.h"

static Status wrong(const Node *node, const char *what) {
    return status_error(STATUS_INVALID, "%s (%s): %s", node_origin_name(node), node->op, what);
}

void matmul_strides(int rank, const int64_t *dims, int64_t *strides) {
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = step;
        step *= dims[i];
    }
}

Status matmul_permuted(const Node *node, const char *attr, int rank, const int64_t *dims, int64_t *out_dims,
                       int64_t *out_strides) {
    int count;
    const int64_t *perm = attr_ints(node, attr, &count);
    int64_t strides[MAX_RANK];
    bool seen[MAX_RANK] = {0};
    matmul_strides(rank, dims, strides);
    if (perm && count != rank) return wrong(node, "a permute does not fit its tensor's rank");
    for (int i = 0; i < rank; i++) {
        int64_t from = perm ? perm[i] : i;
        if (from < 0 || from >= rank || seen[from]) return wrong(node, "a permute is not a permutation");
        seen[from] = true;
        out_dims[i] = dims[from];
        out_strides[i] = strides[from];
    }
    return NULL;
}

/* dims: the result's before it is permuted. */
static Status result_strides(const Node *node, int rank, const int64_t *dims, MatmulShape *s, int64_t *out_dims) {
    int64_t strides[MAX_RANK], unused[MAX_RANK];
    int count;
    TRY(matmul_permuted(node, "perm_out", rank, dims, out_dims, unused));
    matmul_strides(rank, out_dims, strides);
    const int64_t *perm = attr_ints(node, "perm_out", &count);
    for (int i = 0; i < rank; i++) {
        int64_t axis = perm ? perm[i] : i;
        if (axis < rank - 2)
            s->out_batch[axis] = strides[i];
        else if (axis == rank - 2)
            s->out_row = strides[i];
        else
            s->out_column = strides[i];
    }
    return NULL;
}

Status matmul_shape(const Node *node, const Tensor *a, const Tensor *b, const int64_t *b_strides, MatmulShape *s,
                    int64_t *out_dims) {
    int64_t ad[MAX_RANK], as[MAX_RANK], bd[MAX_RANK], bs[MAX_RANK], rd[MAX_RANK];
    if (a->rank < 2 || b->rank < 2) return wrong(node, "a factor has a rank below 2");
    TRY(matmul_permuted(node, "perm_a", a->rank, a->dims, ad, as));
    TRY(matmul_permuted(node, "perm_b", b->rank, b->dims, bd, bs));
    if (b_strides) memcpy(bs, b_strides, sizeof *bs * (size_t)b->rank);
    int rank = a->rank > b->rank ? a->rank : b->rank;
    *s = (MatmulShape){.batch_rank = rank - 2, .batches = 1};
    s->rows = ad[a->rank - 2];
    s->depth = ad[a->rank - 1];
    s->columns = bd[b->rank - 1];
    if (bd[b->rank - 2] != s->depth) return wrong(node, "the inner dimensions of the factors differ");
    for (int i = 0; i < rank - 2; i++) {
        int ai = i - (rank - a->rank), bi = i - (rank - b->rank);
        int64_t da = ai >= 0 ? ad[ai] : 1, db = bi >= 0 ? bd[bi] : 1;
        if (da != db && da != 1 && db != 1)
            return wrong(node, "the leading dimensions of the factors cannot be broadcast");
        s->batch[i] = rd[i] = da == 1 ? db : da;
        s->a_batch[i] = da == 1 ? 0 : as[ai];
        s->b_batch[i] = db == 1 ? 0 : bs[bi];
    }
    rd[rank - 2] = s->rows;
    rd[rank - 1] = s->columns;
    s->a_row = as[a->rank - 2];
    s->a_depth = as[a->rank - 1];
    s->b_depth = bs[b->rank - 2];
    s->b_column = bs[b->rank - 1];
    TRY(tensor_size_of(a->dtype, rank, rd, NULL, NULL));
    for (int i = 0; i < rank - 2; i++) s->batches *= s->batch[i];
    return result_strides(node, rank, rd, s, out_dims);
}

int64_t matmul_batch_offset(const MatmulShape *s, const int64_t *strides, int64_t flat) {
    int64_t offset = 0;
    for (int i = s->batch_rank - 1; i >= 0; i--) {
        offset += flat % s->batch[i] * strides[i];
        flat /= s->batch[i];
    }
    return offset;
}
