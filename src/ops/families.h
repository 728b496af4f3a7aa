/* SPDX-License-Identifier: Apache-2.0 */
/* The families of operators: one folder each. An array of rows is ended by a row without a name. */
#ifndef ONNXFUSE_OPS_FAMILIES_H
#define ONNXFUSE_OPS_FAMILIES_H

#include "lowering/ops.h"

extern const OpRow
    ops_elementwise[]; /* math/elementwise.c: arithmetic, comparison, logic, bits, Cast, Where, trigonometry */
extern const OpRow ops_activation[];    /* math/activation.c: Relu, Gelu, Softmax, ... */
extern const OpRow ops_reduction[];     /* math/reduction.c: ReduceSum, ..., ArgMax, CumSum, losses */
extern const OpRow ops_normalization[]; /* norm/normalization.c: LayerNormalization, BatchNormalization, ..., Dropout */
extern const OpRow ops_skip_norm[];     /* norm/skip_norm.c: normalisations with a residual, of embeddings */
extern const OpRow ops_linear[];    /* linear/linear.c: MatMul, Gemm, Einsum, Conv, ConvTranspose, integer forms, Det */
extern const OpRow ops_window[];    /* window/window.c: pooling, Col2Im, MaxUnpool */
extern const OpRow ops_attention[]; /* attention/attention.c: Attention, RotaryEmbedding and their relatives */
extern const OpRow ops_multi_head[]; /* attention/multi_head.c: com.microsoft's attention over heads */
extern const OpRow ops_recurrent[];  /* recurrent/recurrent.c: RNN, GRU, LSTM */
extern const OpRow
    ops_quantize[]; /* quantize/quantize.c: QuantizeLinear, DequantizeLinear, QLinearMatMul, QLinearConv */
extern const OpRow ops_qlinear[];       /* quantize/qlinear.c: com.microsoft's operators on quantized tensors */
extern const OpRow ops_matmul_nbits[];  /* quantize/matmul_nbits.c: MatMulNBits */
extern const OpRow ops_block_weights[]; /* quantize/block_weights.c: GatherBlockQuantized, MatMulBnb4 */
extern const OpRow ops_experts[];       /* quantize/experts.c: MoE, QMoE */
extern const OpRow ops_shape[];  /* shape/shape.c: Reshape, Transpose, Concat, Slice, Pad, Expand, Tile, Shape, ... */
extern const OpRow ops_index[];  /* index/index.c: Gather*, Scatter*, OneHot, NonZero, Compress, EyeLike, ... */
extern const OpRow ops_select[]; /* index/select.c: TopK, Unique, Sort-like */
extern const OpRow ops_random[]; /* random/random.c: RandomNormal, Bernoulli, Multinomial, ... */
extern const OpRow ops_image[];  /* image/image.c: Resize, Upsample, GridSample, RoiAlign, NonMaxSuppression, ... */
extern const OpRow ops_signal[]; /* signal/signal.c: windows of signal processing, DFT, STFT, MelWeightMatrix */
extern const OpRow ops_text[];   /* text/strings.c: strings, TfIdf */
extern const OpRow ops_ngram_repeat[]; /* text/ngram_repeat.c: NGramRepeatBlock */
extern const OpRow ops_generation[];   /* generation/search.c: GreedySearch, Sampling, BeamSearch */
extern const OpRow ops_search_parts[]; /* generation/search_parts.c: what these are told in */
extern const OpRow ops_control[];      /* control/control.c: If, Loop, Scan, SequenceMap */
extern const OpRow ops_sequence[];     /* sequence/sequence.c: sequences and optionals */
extern const OpRow ops_training[];     /* training/training.c: Adagrad, Adam, Momentum */
extern const OpRow ops_ml[];           /* ml/ml.c: ai.onnx.ml */

/* The host kernels that have a gradient or are part of one; the families as above. */
extern const HostRow hosts_window[], hosts_reduction[], hosts_select[], hosts_signal[], hosts_shape[], hosts_linear[],
    hosts_attention[], hosts_recurrent[], hosts_image[], hosts_sequence[], hosts_optional[];

#endif
