/* SPDX-License-Identifier: Apache-2.0 */
/* Det and Inverse of square matrices, and their gradients. */
#include "ops/linear/linear.h"

#include <math.h>
#include "lowering/gradient.h"
#include "lowering/sizes.h"

/* By elimination with the largest pivot of each column; a is overwritten. */
static double determinant(double *a, int64_t n) {
    double product = 1;
    for (int64_t c = 0; c < n; c++) {
        int64_t best = c;
        for (int64_t r = c + 1; r < n; r++)
            if (fabs(a[r * n + c]) > fabs(a[best * n + c])) best = r;
        double pivot = a[best * n + c];
        product *= best == c ? pivot : -pivot;
        if (pivot == 0) return product;
        for (int64_t k = c; k < n && best != c; k++) {
            double swap = a[c * n + k];
            a[c * n + k] = a[best * n + k];
            a[best * n + k] = swap;
        }
        for (int64_t r = c + 1; r < n; r++) {
            double factor = a[r * n + c] / pivot;
            for (int64_t k = c + 1; k < n; k++) a[r * n + k] -= factor * a[c * n + k];
        }
    }
    return product;
}

/* Of a [n, n], by elimination with the largest pivot of each column (Gauss-Jordan) in `work` [n, 2n], whose right half ends as the
 * inverse; the determinant through out_product. The least pivot over the largest; 0: singular. */
static double invert(const double *a, int64_t n, double *work, double *out_product) {
    double product = 1, least = INFINITY, most = 0;
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < 2 * n; k++) work[2 * n * r + k] = k < n ? a[r * n + k] : k - n == r;
    for (int64_t p = 0; p < n; p++) {
        int64_t best = p;
        for (int64_t r = p + 1; r < n; r++)
            if (fabs(work[2 * n * r + p]) > fabs(work[2 * n * best + p])) best = r;
        double *row = work + 2 * n * p, *other = work + 2 * n * best, pivot = other[p];
        product *= best == p ? pivot : -pivot;
        least = fmin(least, fabs(pivot));
        most = fmax(most, fabs(pivot));
        if (!(least > 0)) return 0;
        for (int64_t k = 0; k < 2 * n; k++) {
            double swap = row[k];
            row[k] = other[k] / pivot;
            if (other != row) other[k] = swap;
        }
        for (int64_t r = 0; r < n; r++) {
            double factor = work[2 * n * r + p];
            for (int64_t k = 0; r != p && k < 2 * n; k++) work[2 * n * r + k] -= factor * row[k];
        }
    }
    *out_product = product;
    return n ? least / most : 1;
}

/* c = det(a) a^-T. False where a is singular, or so nearly that the inverse has lost more than half of its digits. */
static bool cofactors_by_inverse(const double *a, int64_t n, double *work, double *c) {
    double product;
    if (!(invert(a, n, work, &product) > 1e-8)) return false;
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < n; k++) c[r * n + k] = product * work[2 * n * k + n + r];
    return true;
}

/* Each from the determinant of what is left without its row and column. */
static void cofactors_by_minors(const double *a, int64_t n, double *work, double *c) {
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < n; k++) {
            int64_t count = 0;
            for (int64_t i = 0; i < n * n; i++)
                if (i / n != r && i % n != k) work[count++] = a[i];
            c[r * n + k] = ((r + k) % 2 ? -1 : 1) * determinant(work, n - 1);
        }
}

Status host_cofactors(HostCall *call) {
    const Tensor *x;
    Tensor *y;
    TRY(host_tensor(call, 0, DT_NONE, &x));
    if (x->rank < 2 || x->dims[x->rank - 1] != x->dims[x->rank - 2])
        return host_error(call, "the input is not made of square matrices");
    TRY(host_output(call, 0, x->dtype, x->rank, x->dims, &y));
    if (!y || !tensor_count(y)) return NULL;
    int64_t n = x->dims[x->rank - 1], size = n * n;
    double *a = arena_array(call->arena, (size_t)n, 4 * (size_t)n * sizeof *a), *c = a + size, *work = c + size;
    for (int64_t i = 0; i < tensor_count(x) / size; i++) {
        for (int64_t k = 0; k < size; k++) a[k] = dtype_load_double(x->dtype, x->data, i * size + k);
        if (!cofactors_by_inverse(a, n, work, c)) cofactors_by_minors(a, n, work, c);
        for (int64_t k = 0; k < size; k++) dtype_store_double(y->dtype, y->data, i * size + k, c[k]);
    }
    return NULL;
}

/* The same by the operator Det: cofactor (r, c) is the determinant of the matrix whose row r is the unit vector c. */
static Value *cofactors_by_det(Backward *w, const Node *n, Value *x) {
    Lowering *l = w->l;
    int rank = x->rank + 2, axes[] = {x->rank - 2, x->rank - 1};
    Value *wide = unsqueeze(l, x, axes, 2), *at[4]; /* at: the numbers r, c, row and column */
    const Dim *dims[MAX_RANK];
    for (int i = 0; wide && i < rank; i++) dims[i] = i < rank - 4 ? size_const(l, 1) : x->dims[axes[(rank - i) % 2]];
    for (int i = 0; i < 4; i++) at[i] = wide ? iota(l, dims, rank, rank - 4 + i, DT_I64) : NULL;
    Value *unit = cast_like(l, binary(l, PRIM_EQ, at[1], at[3]), x);
    Value *replaced = where(l, binary(l, PRIM_EQ, at[0], at[2]), unit, wide);
    return host_result_like(l, backward_host(w, n, "Det", host_det, &replaced, 1), x);
}

/* d det(X) = sum of cofactor * dX (Jacobi's formula; Magnus and Neudecker, "Matrix Differential Calculus", 8.3), singular matrices
 * included. */
void back_det(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *x = n->inputs[0], *g = dy(w, n, 0);
    Value *cofactors = lowers_to_standard(l)
                           ? cofactors_by_det(w, n, x)
                           : host_result_like(l, backward_host(w, n, "Cofactors", host_cofactors, &x, 1), x);
    g = g ? unsqueeze(l, g, (int[]){x->rank - 2, x->rank - 1}, 2) : NULL;
    give(w, n, 0, mul(l, g, cofactors));
}

Status host_det(HostCall *call) {
    const Tensor *x;
    Tensor *y;
    TRY(host_tensor(call, 0, DT_NONE, &x));
    if (x->rank < 2 || x->dims[x->rank - 1] != x->dims[x->rank - 2])
        return host_error(call, "the input is not made of square matrices");
    TRY(host_output(call, 0, x->dtype, x->rank - 2, x->dims, &y));
    if (!y) return NULL;
    int64_t n = x->dims[x->rank - 1], count = tensor_count(y);
    double *matrix = arena_array(call->arena, (size_t)n, (size_t)n * sizeof *matrix + 1);
    for (int64_t i = 0; i < count; i++) {
        for (int64_t k = 0; k < n * n; k++) matrix[k] = dtype_load_double(x->dtype, x->data, i * n * n + k);
        dtype_store_double(y->dtype, y->data, i, determinant(matrix, n));
    }
    return NULL;
}

Status lower_det(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    if (x->rank < 2 || !sizes_agree(x->dims[x->rank - 1], x->dims[x->rank - 2]))
        return invalid(l, "the input is not made of square matrices");
    if (!dtype_is_float(x->dtype)) return invalid(l, "the input is not of a float type");
    Node *host = host_node(l, n, host_det, &x, 1);
    return out(l, n, 0, host_result(l, host, x->dtype, x->rank - 2, x->dims));
}

/* ---- Inverse ---- */

/* Of each matrix, in f64. */
Status host_inverse(HostCall *call) {
    const Tensor *x;
    Tensor *y;
    TRY(host_tensor(call, 0, DT_NONE, &x));
    if (x->rank < 2 || x->dims[x->rank - 1] != x->dims[x->rank - 2])
        return host_error(call, "the input is not made of square matrices");
    TRY(host_output(call, 0, x->dtype, x->rank, x->dims, &y));
    if (!y || !tensor_count(y)) return NULL;
    int64_t n = x->dims[x->rank - 1], size = n * n;
    double *a = arena_array(call->arena, (size_t)n, 3 * (size_t)n * sizeof *a), *work = a + size, product;
    for (int64_t i = 0; i < tensor_count(x) / size; i++) {
        for (int64_t k = 0; k < size; k++) a[k] = dtype_load_double(x->dtype, x->data, i * size + k);
        if (!(invert(a, n, work, &product) > 0)) return host_error(call, "matrix %lld has no inverse", (long long)i);
        for (int64_t k = 0; k < size; k++)
            dtype_store_double(y->dtype, y->data, i * size + k, work[2 * n * (k / n) + n + k % n]);
    }
    return NULL;
}

/* dX = -Y^T dY Y^T. */
void back_inverse(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *turned = swap_last(l, n->outputs[0]);
    give(w, n, 0, unary(l, PRIM_NEG, matmul(l, matmul(l, turned, dy(w, n, 0)), turned)));
}

Status lower_inverse(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    if (x->rank < 2 || !sizes_agree(x->dims[x->rank - 1], x->dims[x->rank - 2]))
        return invalid(l, "the input is not made of square matrices");
    if (!dtype_is_float(x->dtype)) return invalid(l, "the input is not of a float type");
    return out(l, n, 0, host_result_like(l, host_node(l, n, host_inverse, &x, 1), x));
}
