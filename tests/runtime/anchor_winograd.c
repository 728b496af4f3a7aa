/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices and magnitudes of Winograd's algorithm. */
#include "anchor_winograd.h"

#include <math.h>
#include <string.h>

/* Toom-Cook: row i of A^T's transpose and of G are powers of point i, G's divided by the product of its differences to
 * the other points; row i of B^T has the coefficients of the polynomial whose roots are the other points. The last point
 * is infinity. */
WinogradMatrices winograd_matrices(void) {
    static const double points[5] = {0, 0.75, -0.75, 1.5, -1.5};
    WinogradMatrices m = {{{0}}};
    for (int i = 0; i < 6; i++) {
        double divisor = 1, polynomial[7] = {1};
        for (int j = 0, degree = 0; j < 5; j++) {
            if (j == i) continue;
            if (i < 5) divisor *= points[i] - points[j];
            degree++;
            for (int k = degree; k >= 0; k--) polynomial[k] = (k ? polynomial[k - 1] : 0) - points[j] * polynomial[k];
        }
        for (int k = 0; k < 6; k++) m.input[i][k] = polynomial[k];
        for (int k = 0; k < 4; k++) m.output[k][i] = i < 5 ? pow(points[i], k) : k == 3;
        for (int k = 0; k < 3; k++) m.kernel[i][k] = i < 5 ? pow(points[i], k) / divisor : k == 2;
    }
    return m;
}

/* |left| in |left^T|, of [size][size] numbers that are not negative. */
static void both_sides(const double *left, int rows, int size, const double *in, double *out) {
    double half[36];
    for (int i = 0; i < rows; i++)
        for (int x = 0; x < size; x++) {
            half[i * size + x] = 0;
            for (int y = 0; y < size; y++) half[i * size + x] += fabs(left[i * size + y]) * in[y * size + x];
        }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < rows; j++) {
            out[i * rows + j] = 0;
            for (int x = 0; x < size; x++) out[i * rows + j] += half[i * size + x] * fabs(left[j * size + x]);
        }
}

typedef struct Piece {
    const Tensor *x;
    int64_t n, top, left; /* of the 6x6 pixels */
} Piece;

static void piece_magnitudes(const Piece *p, int64_t channel, double *out) {
    const int64_t *dims = p->x->dims;
    for (int64_t i = 0; i < 36; i++) {
        int64_t y = p->top + i / 6, x = p->left + i % 6;
        bool inside = y >= 0 && y < dims[1] && x >= 0 && x < dims[2];
        int64_t at = ((p->n * dims[1] + y) * dims[2] + x) * dims[3] + channel;
        out[i] = inside ? fabs(dtype_load_double(p->x->dtype, p->x->data, at)) : 0;
    }
}

/* The transformed magnitudes of all kernels, [outputs][inputs][36]. */
static double *kernel_magnitudes(const WinogradMatrices *m, const Tensor *w, Arena *arena) {
    int64_t count = w->dims[0] * w->dims[1];
    double *out = ARENA_ARRAY(arena, double, count * 36 + 1), kernel[9];
    for (int64_t k = 0; k < count; k++) {
        for (int64_t i = 0; i < 9; i++) kernel[i] = fabs(dtype_load_double(w->dtype, w->data, k * 9 + i));
        both_sides(m->kernel[0], 6, 3, kernel, out + k * 36);
    }
    return out;
}

const double *winograd_magnitudes(const AnchorCase *c, const int64_t *pads, const int64_t *result, Arena *arena) {
    const WinogradMatrices m = winograd_matrices();
    const Tensor *x = c->tensors[0], *w = c->tensors[1];
    int64_t inputs = w->dims[1], outputs = w->dims[0], channels = x->dims[3], groups = channels / inputs;
    const double *kernels = kernel_magnitudes(&m, w, arena);
    double *magnitudes = ARENA_ARRAY(arena, double, result[0] * result[1] * result[2] * outputs + 1);
    double *pieces = ARENA_ARRAY(arena, double, channels * 36 + 1), raw[36], sums[36], block[16];
    for (int64_t n = 0; n < result[0]; n++)
        for (int64_t y = 0; y < result[1]; y += 4)
            for (int64_t q = 0; q < result[2]; q += 4) {
                Piece piece = {x, n, y - pads[0], q - pads[1]};
                for (int64_t k = 0; k < channels; k++) {
                    piece_magnitudes(&piece, k, raw);
                    both_sides(m.input[0], 6, 6, raw, pieces + k * 36);
                }
                for (int64_t o = 0; o < outputs; o++) {
                    const double *own = pieces + o / (outputs / groups) * inputs * 36;
                    memset(sums, 0, sizeof sums);
                    for (int64_t k = 0; k < inputs; k++)
                        for (int i = 0; i < 36; i++) sums[i] += kernels[(o * inputs + k) * 36 + i] * own[k * 36 + i];
                    both_sides(m.output[0], 4, 6, sums, block);
                    for (int64_t i = 0; i < 16; i++)
                        if (y + i / 4 < result[1] && q + i % 4 < result[2])
                            magnitudes[((n * result[1] + y + i / 4) * result[2] + q + i % 4) * outputs + o] = block[i];
                }
            }
    return magnitudes;
}
