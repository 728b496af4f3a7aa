/* SPDX-License-Identifier: Apache-2.0 */
/* What anchor.c and the kinds of anchors (matmul.c, conv.c) share. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_PARTS_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_PARTS_H

#include "base/integer.h"
#include "lowering/anchor/plain_epilogue.h"
#include "runtime/device/cpu/anchor.h"
#include "runtime/device/cpu/product.h"
#include "runtime/device/cpu/work.h"

typedef struct AnchorRun AnchorRun;

typedef struct AnchorKind {
    const char *op;
    /* Packs constants and fills anchor->kind_data; sets the bits of inputs that runs do not read any more. */
    Status (*prepare)(CpuAnchor *anchor, const Tensor *const *constants, Pool *pool);
    /* STATUS_INVALID where the inputs' and the output's shapes do not fit each other. */
    Status (*check)(const CpuAnchor *anchor, const Tensor *const *inputs, const int64_t *symbols, const Tensor *output);
    Status (*run)(AnchorRun *run);
    /* Whether it packs a constant weight, of whatever alignment; NULL: it packs none. */
    bool (*packs)(const Node *node);
    bool alone; /* no product with an epilogue: `run` makes the output itself, inputs have types of their own */
} AnchorKind;

extern const AnchorKind matmul_kind, matmul_bits_kind, matmul_blocks_kind, matmul_grouped_kind, conv_kind,
    conv_transpose_kind, attention_kind, attention_backward_kind;

/* Whether `reader`, a convolution of 1x1, can have the rows of its first input made by `maker`, a depthwise one, or read them where what
 * `maker` joins stands. */
bool conv_is_prologue(const Node *maker, const Node *reader);

struct CpuAnchor {
    const Node *node; /* borrowed: the plan's graph outlives its anchors */
    const AnchorKind *kind;
    DType dtype, type;      /* of the tensors; what is computed in */
    int quads;              /* not 0: so many numbers are multiplied at a time: depths are of quads (quads.h) */
    WeightForm form;        /* of the packed weight */
    PlainEpilogue epilogue; /* what of it tiles have built in; where that is not all, a kernel does the rest */
    int column_axis;        /* of the result: which of its axes holds the columns of the product */
    void *kind_data;
    const void *bias;                   /* a constant one, in the work type with slack behind; NULL: none */
    Tensor shapes[EPILOGUE_INPUTS + 2]; /* of constants, without data; rank -1: not constant */
    uint32_t released;
    bool plain; /* the oracle computes it */
    size_t packed_bytes;
    struct AnchorMemory *memory; /* what anchor_allocate gave */
    Packed packed[2];            /* what is packed: the weight, a bias */
    Pack *packs[2];              /* whose data that is; NULL where it was given */
    int packed_count;
    PackStore *store;    /* NULL: nothing is shared */
    const Packed *given; /* not NULL: was packed before */
    int given_count;
    const char *how;
};

/* One call of cpu_anchor_run. */
struct AnchorRun {
    CpuAnchor *anchor;
    const Tensor *const *inputs;
    const int64_t *symbols; /* as dim_eval; NULL: none are bound */
    Tensor *output;         /* the result, or the first of the epilogue's, which has its shape */
    void *result; /* where the result goes, in the work type: the output's memory, or scratch; with a kernel that
                       finishes no memory */
    Pool *pool;
    Scratch scratch;
    BoundEpilogue epilogue;
    Finish finish; /* behind epilogue.finish */
    /* Not NULL: nothing is computed, this is to make the result's rows, as long as the run's scratch is held. */
    RowMaker *out_maker;
    const RowMaker *maker; /* not NULL: the first input's data is NULL, and this makes its rows */
    const Tensor *const
        *parts; /* not NULL: likewise, and its rows are those of these [part_count], one beside the other */
    int part_count;
};

/* Lives as long as the anchor; 64-byte aligned; not zeroed. */
Status anchor_allocate(CpuAnchor *anchor, size_t bytes, void **out_data);
/* Likewise, for what is packed of constants. *out_ready: it is there already, from a compiled model or another anchor, and
 * read-only. recipe: anchor_recipe of the constant, with all else that the bytes depend on. */
Status anchor_pack(CpuAnchor *anchor, const Recipe *recipe, size_t bytes, void **out_data, bool *out_ready);
/* Begins with the data, its type and shape, and the kind and form of the anchor. */
Recipe anchor_recipe(const CpuAnchor *anchor, const Tensor *constant);
Status anchor_wrong(const CpuAnchor *anchor, const char *what); /* STATUS_INVALID */
/* A constant bias of the anchor's input `input` to anchor->bias; runs do not read it any more. */
Status anchor_keep_bias(CpuAnchor *anchor, int input, const Tensor *bias, Pool *pool);
/* A constant weight of so many elements stays f16 if it came so; but one that lies in the first-level cache is widened once. */
void anchor_keep_halves(CpuAnchor *anchor, int64_t elements);
/* What a policy wants in a form narrower than f32: all numbers are finite. scale: as WeightSource.scale. */
Status anchor_check_weight(const CpuAnchor *anchor, const Tensor *weight, double scale);
/* pairs: of bf16, which are multiplied as such. */
void anchor_is_packed(CpuAnchor *anchor, size_t bytes, bool depthwise, bool pairs);
/* How many numbers of the factors go into a quad where they are multiplied so; else 0. */
int anchor_quads(const CpuAnchor *anchor);
/* The loops that it runs; quads: anchor_quads, or 0. */
const TileSet *anchor_tiles(const CpuAnchor *anchor, int quads);
int64_t dims_product(const int64_t *dims, int from, int to);

#endif
