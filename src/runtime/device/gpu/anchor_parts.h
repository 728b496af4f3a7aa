/* SPDX-License-Identifier: Apache-2.0 */
/* What anchor.c and the kinds of anchors (anchor_matmul.c, anchor_conv.c) share. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_GPU_ANCHOR_PARTS_H
#define ONNXFUSE_RUNTIME_DEVICE_GPU_ANCHOR_PARTS_H

#include <pthread.h>
#include "codegen/gpu/product/product.h"
#include "graph/broadcast.h"
#include "runtime/device/gpu/library_epilogue.h"
#include "runtime/device/gpu/anchor_attention.h"
#include "runtime/device/gpu/gpu.h"

/* Programs: all variants of an epilogue, and the epilogue of a library's result. */
enum { ANCHOR_INPUTS = EPILOGUE_INPUTS + 2, ANCHOR_PROGRAMS = 2 * GPU_MAX_VARIANTS + 1 };

typedef struct AnchorRun AnchorRun;

typedef struct AnchorKind {
    const char *op;
    bool (*runs)(const GpuDevice *device, const Node *node); /* beside what all kinds ask of types and epilogues */
    /* Copies a constant weight to the device. stream: for copies. One anchor of a device at a time. */
    Status (*prepare)(DeviceAnchor *anchor, Stream *stream, const Tensor *const *constants);
    Status (*get_programs)(DeviceAnchor *anchor); /* then; anchors beside each other */
    Status (*run)(AnchorRun *run);
} AnchorKind;

extern const AnchorKind gpu_matmul_kind, gpu_conv_kind, gpu_conv_transpose_kind;

typedef struct AnchorProgram {
    GpuVariant variant;
    GpuProgram *program;
    const GpuFunction *function;
} AnchorProgram;

/* Strides of a matmul's permuted b as it stands on the device, when it is constant. */
typedef struct MatmulWeight {
    bool a_outer, b_outer;     /* which axis has neighbours (GpuMatmul) */
    int64_t strides[MAX_RANK]; /* constant b: of its permuted axes; 0 along axes of size 1 */
    int64_t columns;           /* of one matrix with those of zeros behind the last; 0: there are none such */
} MatmulWeight;

typedef struct ConvWeight {
    bool pointwise; /* a matrix product: taps, strides, groups and paddings do nothing */
    bool known;     /* the kernel's and the channels' sizes below hold, the weight is constant */
    int64_t kernel[GPU_CONV_AXES], inputs, outputs;
    int64_t line; /* elements between two input channels of a tap: [taps][inputs of a group][line of all outputs] */
} ConvWeight;

enum { RAN_LIBRARY = 1, RAN_OWN = 2 };

struct DeviceAnchor {
    GpuDevice *device;
    const Node *node; /* borrowed: the plan's graph outlives its anchors */
    const AnchorKind *kind;
    GpuAttention *attention; /* the anchor "attention", which is all its own */
    DType dtype;
    Arena *arena;                   /* of the epilogue */
    GpuEpilogue *epilogue;          /* NULL: none */
    LibraryEpilogue library;        /* what of it a library applies */
    Tensor shapes[ANCHOR_INPUTS];   /* of constants, without data; rank -1: not constant */
    void *constants[ANCHOR_INPUTS]; /* on the device; NULL: given at run */
    size_t constant_bytes;
    uint32_t released;
    const char *how;       /* our own kernels, for profiles */
    bool library_expected; /* products go to the driver's library, as far as was known before a run */
    atomic_int ran;        /* bits of what products have run on so far */
    char both[48];         /* the library's name and our own, for profiles */
    union {
        MatmulWeight matmul;
        ConvWeight conv;
    };
    pthread_mutex_t lock; /* of what follows */
    AnchorProgram programs[ANCHOR_PROGRAMS];
    int program_count;
};

/* One call of gpu_anchor_run. */
struct AnchorRun {
    DeviceAnchor *anchor;
    GpuDevice *device;
    Stream *stream; /* a GpuStream */
    const Tensor *const *inputs;
    const int64_t *symbols;
    const Tensor *output;
    Broadcast over[EPILOGUE_INPUTS]; /* how the epilogue's operands lie over the result */
};

Status gpu_anchor_wrong(const DeviceAnchor *anchor, const char *what); /* STATUS_INVALID */
/* Takes `bytes` of device memory as the constant of input `index` and fills it. */
Status gpu_anchor_upload(DeviceAnchor *anchor, Stream *stream, int index, const void *data, size_t bytes);
/* Gets the programs of these variants, so that runs compile nothing. */
Status gpu_anchor_programs(DeviceAnchor *anchor, const GpuVariant *variants, int count);

/* Data of an input, constant or given. */
void *gpu_anchor_data(const AnchorRun *run, int index);
/* Bytes (up to 256) that divide the addresses of the result and of all tensors that the epilogue reads like it. */
int64_t gpu_anchor_alignment(const AnchorRun *run);
int64_t gpu_alignment(const void *data);

/* Runs a product at `a`, `b` and element `out_offset` of the result. partial: memory of splits x elements sums, or
 * NULL. */
Status gpu_anchor_launch(AnchorRun *run, const GpuProductLaunch *launch, void *a, void *b, int64_t out_offset,
                         void *partial);
/* The sum of splits, and the epilogue; with splits 0 the epilogue over the result in place. */
Status gpu_anchor_finish(AnchorRun *run, int64_t splits, void *partial, int64_t columns, int64_t column_stride,
                         double alpha);

/* The epilogue over a result of lines of `columns` elements that stand `line` apart in `lines`: `elements` of the result, from
 * element out_offset on. */
Status gpu_anchor_take_lines(AnchorRun *run, void *lines, int64_t elements, int64_t columns, int64_t line,
                             int64_t out_offset);

/* A product that may be done by the driver's library: base pointers, the loops that one call does not take. */
enum { MATMUL_LOOPS = MAX_RANK };
typedef struct MatmulCall {
    GpuMatmul matmul;
    void *a, *b;
    int loops; /* outer batch axes, outermost first */
    int64_t extent[MATMUL_LOOPS], a_step[MATMUL_LOOPS], b_step[MATMUL_LOOPS], out_step[MATMUL_LOOPS];
    int64_t columns, column_stride; /* of the result, for the bias */
} MatmulCall;

/* Programs for sizes of -1 where unknown. interleaved: the matrices of the result lie between each other, which
 * libraries may refuse. */
Status gpu_anchor_prepare_product(DeviceAnchor *anchor, const GpuMatmul *known, bool interleaved);
Status gpu_anchor_run_product(AnchorRun *run, const MatmulCall *call);

#endif
