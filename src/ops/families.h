/* The families of operators; each is an array of rows ended by a row without a name, in the file of that name. */
#ifndef ONNXFUSE_OPS_FAMILIES_H
#define ONNXFUSE_OPS_FAMILIES_H

#include "lowering/ops.h"

extern const OpRow ops_math[]; /* math.c: elementwise arithmetic, comparison, logic, bits, Cast, Where, trigonometry */
extern const OpRow ops_activation[];    /* activation.c: Relu, Gelu, Softmax, ... */
extern const OpRow ops_reduction[];     /* reduction.c: ReduceSum, ..., ArgMax, CumSum, losses */
extern const OpRow ops_normalization[]; /* normalization.c: LayerNormalization, BatchNormalization, ..., Dropout */
extern const OpRow ops_linear[];        /* linear.c: MatMul, Gemm, Einsum, Conv, ConvTranspose, integer forms, Det */
extern const OpRow ops_quantize[]; /* quantize.c: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, QLinear* */
extern const OpRow ops_random[];   /* random.c: RandomNormal, Bernoulli, Multinomial, ... */
extern const OpRow
    ops_shape[]; /* shape.c: Reshape, Transpose, Concat, Slice, Pad, Expand, Tile, Shape, Constant, Range, ... */
extern const OpRow ops_index[]; /* index.c: Gather*, Scatter*, OneHot, NonZero, Compress, EyeLike, ... */
extern const OpRow
    ops_window[]; /* window.c: pooling, Col2Im, LRN's window, MaxUnpool, windows of signal processing, DFT, STFT */
extern const OpRow
    ops_image[]; /* image.c: Resize, Upsample, GridSample, AffineGrid, RoiAlign, NonMaxSuppression, DepthToSpace, ... */
extern const OpRow ops_select[];    /* select.c: TopK, Unique, Sort-like */
extern const OpRow ops_recurrent[]; /* recurrent.c: RNN, GRU, LSTM */
extern const OpRow ops_control[];   /* control.c: If, Loop, Scan, SequenceMap */
extern const OpRow ops_sequence[];  /* sequence.c: sequences and optionals */
extern const OpRow ops_text[];      /* text.c: strings, TfIdf */
extern const OpRow ops_attention[]; /* attention.c: Attention, RotaryEmbedding and their relatives */
extern const OpRow ops_contrib[];   /* contrib.c: com.microsoft's composites */
extern const OpRow ops_training[];  /* training.c: Adagrad, Adam, Momentum */
extern const OpRow ops_ml[];        /* ml.c: ai.onnx.ml */

#endif
