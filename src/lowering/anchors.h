/* SPDX-License-Identifier: Apache-2.0 */
/* The anchors: nodes that a device runs through its library. What they mean:
 *
 * "matmul"          inputs a, b and the epilogue's. attrs: ints perm_a, perm_b (missing: identity), ints perm_out, float
 *                   alpha (missing: 1). a' = permute(a, perm_a), b' = permute(b, perm_b), both of rank >= 2;
 *                   r = alpha * numpy.matmul(a', b') with batch axes broadcast; the result is permute(r, perm_out). The absorbed permutes are strides, no data moves. f32, f64, f16, bf16
 *                   (accumulated in f32), and integers of 16 bits and more (wrapping, the result has the inputs' dtype). a and b have
 *                   one dtype. Or a is u8 and b is i8: exact sums modulo 2^32, r is i32 (dtype_of_sums).
 * "conv"            inputs x [N, spatial..., C], w [O, C/group, kernel...], the epilogue's. attrs: ints strides, ints
 *                   dilations, dims pads (all befores, then all afters), int group. Result [N, spatial..., O].
 *                   Types as of "matmul"; of a u8 x attr int pad_value (missing: 0) is what its padding holds. Of one group and floats,
 *                   where a device says so: ints perm_x, perm_w (missing: identity); x is permute(x, perm_x), w permute(w, perm_w), and
 *                   x has one channel or keeps its last axis.
 * "conv_transpose"  inputs x [N, spatial..., C], w [C, O/group, kernel...], epilogue. attrs as conv, result's spatial
 *                   dims from its output value.
 *
 * All three may have attr int weight_precision: the form (Precision) in which the constant second input is held,
 * rounded as the device packs it; computation is as without. "conv" may have attr int winograd: 0 where no device
 * may take Winograd's algorithm.
 *
 * "matmul" and "matmul_bits" may have attr int rows_int8: not 0: where b is held in 4 or 2 bits, a device may round the elements of a to
 * whole numbers of i8, with a scale for each row and block of b.
 *
 * "matmul_bits"     inputs a, b and the epilogue's. As "matmul" without alpha of a [..., K], f32, and the constant matrix [K, N] that b
 *                   stands for, u8 [N, blocks, bytes]: column n's depths in blocks of attr int weight_block, attr int
 *                   weight_bits a number (2, 3, 4 or 8), attr int weight_depth: K. attr tensor weight_scales, and where
 *                   zero points are not in the middle weight_zeros, as lowering/anchor/weight_blocks.h has them: an
 *                   element is (number - zero point) * scale. attrs perm_a, perm_out. Where AnchorLimits.bits says so.
 *
 * "matmul_blocks"   inputs a, b, scales and, where they are not in the middle, zeros: "matmul_bits" whose b, scales and zero points come with the
 *                   run, with its other attrs, but perm_a and perm_out. No epilogue. Where AnchorLimits.bits says so.
 *
 * "matmul_grouped"  inputs a [lead..., K], b, groups and, where there is one, bias [G, N]. groups: i64 of the result's axes but the
 *                   last, to which a's leading axes broadcast; its numbers are in [0, G). attrs: ints perm_b (missing: identity).
 *                   b' = permute(b, perm_b) is [G, K, N], and each row is multiplied by its group's matrix alone:
 *                   r[i, n] = the sum over k of a[i, k] b'[groups[i], k, n], + bias[groups[i], n]. f32, f64. Or b is a constant
 *                   u8 [G, N, blocks, bytes] that stands for f32 matrices, column g * N + n of them as "matmul_bits" has its
 *                   columns, with its attrs weight_*, and there is no perm_b. No epilogue. Where AnchorLimits.grouped says so.
 *
 * Epilogue: where the node has a subgraph, its body of primitives is applied to the result. The body's first input is
 * the raw result as above (permuted by perm_out, in the inputs' type), the others are the node's inputs from the third
 * on, which lie over it as graph/broadcast.h says; all the body computes has the result's shape (elementwise primitives,
 * philox). The body's outputs are the node's, in any types. Where perm_out moves the last axis of r there is none. attr int epilogue_saves:
 * the bytes that it saves an element of the result, for who reads the graph.
 *
 * "attention"       inputs q, k, v and the steps'. attrs: ints perm_q, perm_k, perm_v, perm_out (missing: identity),
 *                   float scale (missing: 1), int empty (AttentionEmpty), steps as below.
 *                   q' = permute(q, perm_q) [lead..., s_q, d], k' [lead..., s_k, d], v' [lead..., s_k, d_v], all of one
 *                   rank, 2 to ATTENTION_RANK. Leading sizes agree or are 1; along the last leading axis, the heads,
 *                   those of k' and v' may also divide the result's: head h reads theirs at h / (heads / own heads). q'
 *                   may also have s_q = 1 where the steps' inputs have more. ints part_q, part_k, part_v (missing: all): first
 *                   and number of the heads of permute(q, perm_q) that are q'; not where there is a second output. x = scale * q' k'^T is changed by the steps
 *                   in order, p = softmax(x) along its last axis, r = p v', and the result is permute(r, perm_out). The
 *                   permutes are strides, no data moves. f32, f64, f16, bf16; all between the inputs and the result is
 *                   f32 (f64), whatever it is made of. No epilogue. A second output, where there is one, is for the gradient:
 *                   [lead..., s_q], of the type that is computed in, the logarithm of the sum of e^x over each row;
 *                   infinity where `empty` makes the row zero.
 *
 * "attention_backward"  inputs q, k, v, g, l, d and the steps', of which none is differentiated; attrs as the "attention"
 *                   whose gradients it makes. g: the gradient of the result, which lies as that does; l: its second
 *                   output; d [lead..., s_q]: the sum over a row of g times the result. Leading sizes are the result's, but
 *                   for the heads of k' and v', which have as many, and s_q is that of q'. With x and its steps as
 *                   there: p = e^(x - l), dv' = p^T g', ds = p (g' v'^T - d), dx = ds through the steps' derivatives,
 *                   dq' = scale dx k', dk' = scale dx^T q'. Outputs: dq, dk, dv, which lie as q, k and v do. The row of a
 *                   query that sees nothing gives NaN, as its result is under EMPTY_NAN, or 0, where a device leaves hidden keys out.
 *
 * Steps: attr ints steps: ScoreStep numbers; floats steps_alpha, steps_beta: one a step, 0 where unused; dims offset:
 * one size, for SCORE_CAUSAL and SCORE_CAUSAL_ADD. Steps that read a tensor take the node's inputs behind those named, in order; these
 * broadcast to [lead..., s_q, s_k] as in numpy and are f32, f16 or bf16 (f64), or bool; the input of SCORE_DROP is a seed, a u64 of no axes.
 * With that, p' = beta p where philox_half_u32 of the seed and of p's row-major index (over [lead..., s_q, s_k], of which q' and the values, but for their
 * heads, repeat none), without its last 8 bits, is at least alpha, else 0, and r = p' v'; of the gradients, dv' = p'^T g' and
 * ds = p (m g' v'^T - d), m being what p' has for a factor. Where AnchorLimits.attention_drop says so.
 * The input of SCORE_SINK broadcasts to [lead..., s_q, 1]: p = e^x / (e^input + the sum of e^x along the last axis), and the logarithm in
 * the second output is of all of that sum. A row whose x is -inf throughout is as `empty` has it. Where AnchorLimits.attention_sink says so. */
#ifndef ONNXFUSE_LOWERING_ANCHORS_H
#define ONNXFUSE_LOWERING_ANCHORS_H

#include "graph/graph.h"

#define WEIGHT_PRECISION "weight_precision"
#define WEIGHT_SCALES "weight_scales"
#define WEIGHT_BLOCK "weight_block"
#define WEIGHT_ZEROS "weight_zeros"
#define WEIGHT_BITS "weight_bits"
#define WEIGHT_DEPTH "weight_depth"
#define ROWS_INT8 "rows_int8"
#define MATMUL_BITS "matmul_bits"
#define MATMUL_BLOCKS "matmul_blocks"
#define MATMUL_GROUPED "matmul_grouped"
#define PAD_VALUE "pad_value"
#define EPILOGUE_SAVES "epilogue_saves"

enum { ATTENTION_RANK = 5, ATTENTION_STEPS = 8, ATTENTION_HEAD = 256 }; /* most axes, steps, and elements a head */

typedef enum ScoreStep {
    SCORE_SCALE,      /* alpha * x */
    SCORE_TANH,       /* tanh(x) */
    SCORE_CLIP,       /* x < alpha ? alpha : x > beta ? beta : x */
    SCORE_ADD,        /* x + input */
    SCORE_ADD_HIDING, /* x + input, but -inf where the input is -inf, whatever x is */
    SCORE_KEEP,       /* input (bool) ? x : alpha */
    SCORE_HIDE,       /* input (bool) ? alpha : x */
    SCORE_CAUSAL,     /* key <= query + offset ? x : alpha; at most one step of this kind and the next */
    SCORE_CAUSAL_ADD, /* key <= query + offset ? x : x + alpha */
    SCORE_DROP,       /* of p, not of x; only the last step */
    SCORE_SINK,       /* of p: the softmax has one more score, the input, which has no value; only the last step */
    SCORE_COUNT,
} ScoreStep;

/* The row of a query whose x is -inf throughout. */
typedef enum AttentionEmpty {
    EMPTY_NAN,      /* NaN, as the formula has it */
    EMPTY_ZERO,     /* zeros */
    EMPTY_NAN_ZERO, /* zeros, and so are rows with a NaN */
} AttentionEmpty;

static inline int score_step_reads_input(ScoreStep step) {
    return (step >= SCORE_ADD && step <= SCORE_HIDE) || step == SCORE_DROP || step == SCORE_SINK;
}

static inline int score_step_is_causal(ScoreStep step) { return step == SCORE_CAUSAL || step == SCORE_CAUSAL_ADD; }

#define ATTENTION "attention"
#define ATTENTION_BACKWARD "attention_backward"
enum { ATTENTION_INPUTS = 3, ATTENTION_BACKWARD_INPUTS = 6 }; /* before the steps' */

/* Whether that is the anchor's last step. */
static inline bool attention_ends_with(const Node *node, ScoreStep step) {
    int count;
    const int64_t *steps = attr_ints(node, "steps", &count);
    return node->kind == NODE_ANCHOR && count && steps[count - 1] == (int64_t)step;
}

static inline bool attention_drops(const Node *node) { return attention_ends_with(node, SCORE_DROP); }
static inline bool attention_has_sink(const Node *node) { return attention_ends_with(node, SCORE_SINK); }

/* Whether a product's or a convolution's factors may have these types. */
static inline bool anchor_takes(DType a, DType b) { return a == DT_U8 ? b == DT_I8 : a == b && dtype_of_sums(a) == a; }

/* Whether a product's second factor stands for numbers of few bits. */
static inline bool anchor_holds_bits(const Node *node) { return node_attr(node, WEIGHT_BITS) != NULL; }

/* The type in which an anchor computes on elements of `dtype`. */
static inline DType anchor_work_type(DType dtype) {
    if (dtype_is_float(dtype)) return dtype == DT_F64 ? DT_F64 : DT_F32;
    return dtype_size(dtype) == 8 ? DT_U64 : DT_U32;
}

#endif
