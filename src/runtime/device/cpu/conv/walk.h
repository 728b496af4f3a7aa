/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a convolution share: what is known of it before a run, and a run's positions and the places of the
 * input that they meet.
 *
 * A position of the result is a row of a product: the taps are the elements of the kernel, the row at a tap is the
 * input's channels at the position that the tap meets, a row of zeros where that is padding. A transposed convolution
 * is, for each remainder of the (padded) position by the strides, an ordinary one of stride 1 with those taps that meet
 * the input there: a product each ("phases"; a convolution has one). */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_CONV_WALK_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_CONV_WALK_H

#include "runtime/device/cpu/parts.h"

enum {
    AXES = 3,            /* spatial axes; missing leading ones have extent 1 */
    MOST_STEP = 1 << 24, /* strides and dilations: products with any tensor's extent fit 64 bits */
};

/* One axis of a phase: its taps, in the order in which they meet rising positions of the input. */
typedef struct PhaseAxis {
    int64_t taps;
    int64_t *kernel_index; /* [taps] */
    int64_t remainder;
} PhaseAxis;

typedef struct Phase {
    PhaseAxis axes[AXES];
    Weight weight;
} Phase;

/* What does not depend on the input: from the attributes and the weight's shape. */
typedef struct Conv {
    bool transposed;
    int spatial;
    int64_t group, strides[AXES], dilations[AXES], kernel[AXES];
    const Dim *const *pads;         /* [2 spatial], the node's */
    uint32_t padding;               /* four bytes of what padding holds: of bytes alone no 0 */
    int64_t channels;               /* of the input */
    int64_t inputs, outputs;        /* channels of a group; inputs in quads where they are multiplied so */
    int64_t weight_steps[2 + AXES]; /* of the weight's axes as the attribute perm_w has them, in elements */
    bool turned;                    /* the input or the weight lies otherwise than its axes say (perm_x, perm_w) */
    int quads;                      /* as CpuAnchor has it */
    bool depthwise;                 /* computed by depthwise.c: groups of a channel, or of few (depthwise_groups) */
    int winograd;                   /* not 0: computed by winograd.c, in so many products */
    bool halves;                    /* the weight comes in f16 and is widened as it is packed */
    bool reads_halves;              /* so is the input, which is widened by slices */
    /* A transposed convolution whose kernel is as wide as its stride writes each stretch of a line once: then the
     * innermost kernel axis becomes columns of the product, which stand side by side in the result. That many; else 1.
     */
    int64_t tiled;
    Phase *phases;
    int64_t phase_count;
    bool covers;         /* the phases write every position of the result */
    size_t weight_bytes; /* of all phases */
} Conv;

typedef struct Sizes {
    int64_t batch, in[AXES], out[AXES], pads[AXES]; /* pads: before */
    int64_t in_channels, out_channels;
    int64_t x_batch, x_steps[AXES]; /* elements of the input from one image and one position to the next */
    int64_t joined;                 /* the extent of lines that are one here; 0: they are not */
} Sizes;

/* A phase over this run's tensors. Along an axis, the phase's position q is the result's first + q * step, and its tap
 * t meets the input's q * input_step + shift[t]. */
typedef struct Walk {
    const Sizes *sizes;
    int64_t count[AXES], first[AXES], step[AXES], input_step[AXES];
    int64_t taps[AXES], *shift[AXES];
    int64_t low[AXES], high[AXES]; /* positions whose taps all meet the input */
    int64_t x_size, size;          /* bytes of an element of the input, of the result */
    const char *x;
    char *y;
    const void *zeros;   /* in_channels of them, or of what else padding holds */
    bool counts_padding; /* it is not 0: no tap may be left out */
} Walk;

/* Fills w for the phase p of c; w->shift is set, each with room for the axis's taps. */
void walk_phase(const Conv *c, const Phase *p, const Sizes *s, Walk *w);
/* Pixels of the input before this one. */
int64_t walk_input_index(const Walk *w, int64_t n, int64_t i0, int64_t i1, int64_t i2);
/* The count positions from q on of a line of the result. */
void walk_results(const Walk *w, int64_t n, const int64_t *q, int64_t count, void **results);

/* As rows of a product: Product.fill, whose context is a Walk. */
void walk_fill(const void *context, int64_t first, RowBlock *block);
/* Product.reach, likewise. */
void walk_reach(const void *context, int64_t first, int64_t count, const char **out_begin, const char **out_end);
/* Offsets of the taps of interior rows, from the first; of those that begin a row of the kernel. */
void walk_offsets(const Walk *w, int64_t *offsets, int64_t *merged_offsets);
/* Whether the taps of a row of the kernel meet neighbours. */
bool walk_is_merged(const Walk *w);
/* Whether all taps meet the input from each position. */
bool walk_is_inside(const Walk *w);

/* Whether a product of f32 by walk_fill should have all that a position's taps meet in a row, next to each other: of few channels each
 * tap, or row of the kernel, is so short a product that finding its rows takes most of the time. */
bool walk_gathers(const Product *product, const Pool *pool);
/* Then its rows are made so (Product.maker), of one tap; what is taken of `scratch` is read until it has run. */
Status walk_gather(Product *product, Scratch *scratch);

/* How lines meet groups of so many channels of f32; LINE_ANY: not on this machine. */
LineKind depthwise_groups(int64_t channels);
/* Depthwise convolutions, a walk each, with weights of one row of `columns` a tap; of groups, a row for each of their channels. */
Status depthwise_run(const Walk *walks, const Phase *phases, int64_t count, const BoundEpilogue *epilogue, Pool *pool,
                     Scratch *scratch);
/* The same for a product that asks for rows (positions) as it needs them: nothing is computed yet. The phase and the epilogue are read
 * until then, and what is taken of `scratch`. */
Status depthwise_rows(const Walk *walk, const Phase *phase, const BoundEpilogue *epilogue, Pool *pool, Scratch *scratch,
                      RowMaker *out_maker);

/* In how many products Winograd's algorithm is used, by what is known before a run, or where the run brings the weight: then a phase's
 * weight has so many taps; 0: it is not. */
int winograd_fits(const CpuAnchor *anchor, const Conv *c);
int winograd_fits_run(const CpuAnchor *anchor, const Conv *c, const Sizes *s);
/* w: [outputs][inputs][3][3], becomes [outputs][inputs][products], of bytes words (a quad of inputs two elements); transposed likewise. */
Status winograd_weight(const Conv *c, Scratch *scratch, Pool *pool, const void **w);
Status winograd_run(const Walk *walk, const Phase *phase, const BoundEpilogue *epilogue, Pool *pool, Scratch *scratch);

#endif
