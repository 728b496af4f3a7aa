/* The anchors: nodes that a device runs through its library, with an epilogue. What they mean:
 *
 * "matmul"  inputs a, b and the epilogue's. attrs: ints perm_a, perm_b (missing: identity), ints perm_out, float alpha
 * (missing: 1). a' = permute(a, perm_a), b' = permute(b, perm_b), both of rank >= 2; r = alpha * numpy.matmul(a', b')
 * with batch axes broadcast; the epilogue is applied to r; the result is permute(r', perm_out). The absorbed permutes
 * are strides, no data moves. f32, f64, f16, bf16 (accumulated in f32), and all integers (wrapping, the result has the
 * inputs' dtype). a and b have one dtype. "conv"  inputs x [N, spatial..., C], w [O, C/group, kernel...], the
 * epilogue's. attrs: ints strides, ints dilations, dims pads (all befores, then all afters), int group. Result [N,
 * spatial..., O]. "conv_transpose"  inputs x [N, spatial..., C], w [C, O/group, kernel...], epilogue. attrs as conv,
 * result's spatial dims from its output value.
 *
 * Epilogue: attr ints epilogue: EpilogueKind numbers, applied in order; kinds that read a tensor take the node's
 * further inputs in order. attr floats epilogue_alpha: one a kind (slope of leaky ReLU, bounds of clip: see below), 0
 * where unused; epilogue_beta likewise. */
#ifndef ONNXFUSE_OPS_ANCHORS_H
#define ONNXFUSE_OPS_ANCHORS_H

typedef enum EpilogueKind {
    EPILOGUE_BIAS, /* + input [N] (matmul: along the last axis of r; conv: along channels) */
    EPILOGUE_ADD,  /* + input of the result's shape; only where perm_out is the identity */
    EPILOGUE_RELU,
    EPILOGUE_LEAKY_RELU, /* alpha: slope */
    EPILOGUE_CLIP,       /* alpha: low, beta: high */
    EPILOGUE_GELU_ERF,
    EPILOGUE_GELU_TANH,
    EPILOGUE_SIGMOID,
    EPILOGUE_TANH,
    EPILOGUE_SWISH,        /* x * sigmoid(alpha * x) */
    EPILOGUE_HARD_SWISH,   /* x * clip(alpha * x + beta, 0, 1) */
    EPILOGUE_HARD_SIGMOID, /* clip(alpha * x + beta, 0, 1) */
    EPILOGUE_LINEAR,       /* alpha * x + beta */
    EPILOGUE_COUNT,
} EpilogueKind;

static inline int epilogue_reads_input(EpilogueKind kind) { return kind == EPILOGUE_BIAS || kind == EPILOGUE_ADD; }

#endif
