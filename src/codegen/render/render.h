/* SPDX-License-Identifier: Apache-2.0 */
/* The renderer's state, shared by its files:
 *   analysis.c  what varies where, which stage needs what, how many lanes
 *   render.c    tasks, stages, loops
 *   memory.c    loads, stores, scratch
 *   arithmetic.c, convert.c   instructions that compute
 *   reduce.c    accumulators
 *   random.c    Philox
 *   special.c   what some instruction sets have: scaling, division of many by one
 *   transpose.c tiles
 *   pieces.c    the order of long bodies' instructions
 *   ahead.c     what will be read next
 *   bands.c     outer reductions in bands
 *   columns.c   sums of columns beside reductions of rows
 * What they build with is builder.h.
 *
 * Loops are numbered by level, outermost first: 0 the function's entry, 1 the task, then one level an axis that is not
 * numbered by tasks. An instruction is computed at the deepest level along which it varies. Those that vary along the
 * vector axis (LANE or REDUCE_LANE) are vectors, `unroll` of them at once; all others are scalars, splatted where they
 * are made. */
#ifndef ONNXFUSE_CODEGEN_RENDER_RENDER_H
#define ONNXFUSE_CODEGEN_RENDER_RENDER_H

#include "codegen/codegen.h"
#include "codegen/render/builder.h"

enum { CACHE_LINE = 64, MAX_UNROLL = 16, MAX_LEVELS = KERNEL_MAX_AXES + 2, MAX_LANES = 64, MAX_AHEAD_STAGES = 8 };
enum { RANDOM_WEIGHT = 48 }; /* vector instructions that draw a vector of random words */

/* What the instruction set offers, as far as the choice of IR depends on it. */
typedef struct Isa {
    bool x86, avx512, avx2, sse41, half, fma; /* half: conversions of f16 in hardware */
    int vector_bytes;
} Isa;

/* An instruction and where its value lives at the present point of emission. */
typedef struct Slot {
    const KernelInst *inst;
    uint32_t axes;    /* varies along them */
    int level, stage; /* stage: in which it can first be computed */
    bool vectorial;
    bool done;  /* emitted at a level whose values outlive the stage */
    bool tiled; /* a load that goes through a transposed tile */
    IrValue scalar, splat, vector[MAX_UNROLL];
    IrValue memory[MAX_UNROLL]; /* of stores: the values in the buffer's type */
    /* Of loads and stores: the address with the axes of that level and those before applied. */
    IrValue pointer[MAX_LEVELS];
    IrValue range_pointer;                                 /* at the start of the vector axis's range */
    IrValue accumulator[MAX_UNROLL], position[MAX_UNROLL]; /* of reductions: memory that is promoted to registers */
    IrValue total[MAX_UNROLL];               /* of sums of an outer reduction: what finished chunks come to */
    IrValue unordered[MAX_UNROLL];           /* of maxima and minima of floats in lanes: whether NaN was among them */
    IrValue tail_accumulator, tail_position; /* of an inner reduction's scalar tail */
    /* Of stores: i1, whether the output is large, and this task's part goes past the caches as whole vectors, or else in
     * pieces; NULL: never. */
    IrValue large, stream, pieces;
    IrValue keep;  /* where in scratch it is kept, or summed up */
    IrValue drawn; /* of random words: those of the present group of elements in memory, NULL: none */
    /* Of loads: the distance in bytes to what is prefetched, NULL: nothing; the address at the range's start. */
    IrValue ahead, ahead_pointer;
    int ahead_stage; /* in whose loop that is done */
    /* Of a tiled load: what was transposed for the present row, NULL: it is read directly. [unroll] */
    const IrValue *tile_row;
} Slot;

typedef enum KernelClass { CLASS_POINTWISE, CLASS_INNER, CLASS_OUTER, CLASS_TILE } KernelClass;

/* Where in a kernel with bands emission stands. */
typedef enum BandPhase { BANDS_NONE, BANDS_EMPTY, BANDS_SUM, BANDS_FINISH } BandPhase;

typedef struct Bands {
    BandPhase phase;
    IrValue count;    /* of bands */
    IrValue index;    /* of the present one */
    IrValue outer;    /* row-major over the TASK axes */
    IrValue rows;     /* of a pass */
    IrValue from, to; /* the rows of the present pass */
} Bands;

typedef struct Render {
    const Kernel *kernel;
    Arena *arena;
    Isa isa;
    int64_t cache_bytes; /* of the target */
    IrBuilder *builder;

    /* analysis */
    KernelClass class;
    Slot *slots;
    bool **needed; /* [stage][instruction] */
    int vector_axis;
    int axis_level[KERNEL_MAX_AXES];
    int level_axis[MAX_LEVELS]; /* of levels above 1 */
    int levels;                 /* the deepest level */
    int outlive;                /* values of levels up to this one outlive a stage */
    int vector_lanes;           /* lanes of a vector */
    int main_unroll;
    int group;          /* elements whose random words are drawn at once, a multiple of the main loop's; 0: none */
    int accumulators;   /* a reduction */
    bool masked;        /* tails by masks, else by scalars */
    int64_t lane_block; /* elements of LANE in a task of the present phase */
    bool one_loop;      /* one masked loop does it all: for large programs */

    /* run-time facts */
    IrValue *params, *buffers, scratch;
    IrValue size[KERNEL_MAX_AXES];    /* i64 */
    IrValue index[KERNEL_MAX_AXES];   /* i64, at the present point; of the vector axis: of lane 0 of vector 0 */
    IrValue range_start, range_count; /* the vector axis in this task */
    int64_t constant_count;           /* range_count where it is known, else -1 */
    int64_t count_multiple;           /* divides range_count */
    IrValue flat[MAX_LEVELS];         /* row-major index over the reduced axes down to that level */

    /* the present form of vectorial instructions */
    int lanes, unroll;
    IrValue mask; /* of live lanes, NULL: all */
    IrValue live; /* their number, with a mask */
    Bands bands;
    int accumulator_base; /* of the present copy of an unrolled reduction loop */
    IrValue in_group;     /* elements from the group's first to the present ones */
} Render;

/* analysis.c */
Isa render_isa(const Target *target);
void render_analyse(Render *r);
int render_op_args(KernelOp op);               /* kernel_op_args of the library, which the plug-in does not link */
int render_weight(const Render *r, int stage); /* vector instructions of a stage's innermost body */
static inline const KernelInst *render_inst(const Render *r, int i) { return r->slots[i].inst; }

/* render.c */
void render_kernel(Render *r);
typedef struct Loop {
    IrBlock body, exit; /* NULL: it certainly runs exactly once */
    IrValue index, limit;
    int64_t step;
} Loop;
/* step 0: the body runs once if start < limit. */
Loop loop_begin(Render *r, IrValue start, IrValue limit, int64_t step);
void loop_end(Render *r, Loop *loop);
void render_level(Render *r, int stage, int level);                            /* the instructions of one level */
void render_advance(Render *r, int stage, int level, int axis, IrValue index); /* pointers: the axis applied */
bool render_has_inside(const Render *r, int stage, int level); /* whether the stage has anything below the level */
void reduce_range(Render *r, int stage, int level, IrValue start, IrValue limit);
void render_tasks(Render *r, IrValue from, IrValue to); /* which are numbered over the axes */
void render_task_begin(Render *r);                      /* once the indices stand: the range and the pointers */
void render_vector_range(Render *r, int stage, int level, IrValue start, IrValue limit, IrValue count);

/* Values of an instruction's argument in the present form. */
IrValue slot_value(Render *r, int inst, int copy);
void slot_set(Render *r, int inst, int copy, IrValue value);
IrValue slot_alloca(Render *r, IrType type);

/* Outer sums of floats are taken in chunks of this many rows, so that rounding errors grow with the number of chunks
 * and not of rows, as they do for inner ones, whose lanes are sums of their own. */
enum { REDUCE_CHUNK = 64 };
bool reduce_in_chunks(const Render *r, int stage, int level);
void reduce_flush(Render *r, int stage); /* adds the accumulators to the totals and empties them */

/* random.c: K_RANDOM */
/* Elements in a row that share counters, how many these are, and the most groups at once. */
enum { RANDOM_GROUP = 64, RANDOM_COUNTERS = 16, MOST_GROUPS = 2 };
bool random_in_groups(const Render *r, int inst); /* whether its words may be drawn for groups of elements */
bool random_in_stage(const Render *r, int stage); /* whether its main loop begins with such draws */
void random_begin(Render *r,
                  int stage); /* draws what the stage needs for the r->group elements from the present index on */
void random_end(Render *r);
void render_random(Render *r, int inst);

/* Types and constants; lanes = 1 means a scalar. `like` takes lanes from another type. */
IrType type_lanes(IrType element, int lanes);
IrType type_compute(Render *r, DType dtype, int lanes);
IrType type_integer(Render *r, int bits, IrType like);
IrType type_element(IrType type);
int type_lane_count(IrType type);
IrValue constant_int(Render *r, IrType type, int64_t value);
IrValue constant_real(Render *r, IrType type, double value);
IrValue constant_i64(Render *r, int64_t value);
IrValue splat(Render *r, IrValue scalar, int lanes);
IrValue lane_iota(Render *r, IrType element, int lanes);
static inline IrValue zero_of(Render *r, IrType type) { return constant_int(r, type, 0); }
static inline IrValue ones_of(Render *r, IrType type) { return constant_int(r, type, -1); }
bool is_zero(IrValue value); /* the constant integer */
bool constant_value(IrValue value, int64_t *out_value);
IrValue any_lane(Render *r, IrValue condition);

/* transpose.c: vectors along LANE of a strip of whole lines: those of the widest access are a line or more. */
int tile_vectors(const Render *r);

/* memory.c */
IrType type_memory(Render *r, DType dtype, int lanes);
IrValue load_line(Render *r, IrType type, IrValue pointer, int64_t align); /* in the present form */
void store_line(Render *r, IrValue value, IrValue pointer, int64_t align);
void prefetch(Render *r, IrValue address, IrValue bytes, int cache); /* what is that far behind the address */
/* Bits of the addresses at which runs of the access along an axis begin in this task, wherever its other axes are: what power of two
 * divides these (is_multiple) divides all of them. */
IrValue place_bits(Render *r, const Slot *s, int along);
IrValue is_multiple(Render *r, IrValue bits, int64_t power);
void render_load(Render *r, int inst);
void render_store(Render *r, int inst);
void render_keep(Render *r, int inst, bool store);
IrValue render_scratch(Render *r); /* lays out the kept values and sums of columns; their bytes */
void stream_setup(Render *r);      /* at the entry: which outputs are large */
void stream_task(Render *r);       /* in a task: whether its part is aligned */
void stream_end(Render *r);        /* before the return */
IrValue lane_mask(Render *r, IrValue live, int lanes);
int64_t access_bytes(const Render *r, const KernelInst *inst);
IrValue access_stride(Render *r, const KernelInst *inst, int axis); /* in bytes */

/* arithmetic.c; `values` are the arguments, constants among them are found by their instructions */
IrValue render_arithmetic(Render *r, const KernelInst *inst, IrValue *values);
IrValue vector_index(Render *r, int axis, int copy); /* i64, in the present form */

IrValue fused(Render *r, IrValue *v); /* v[0] * v[1] + v[2] rounded once */

/* special.c */
IrValue special_scale(Render *r, const KernelInst *inst, IrValue a, IrValue b);
void render_divide_row(Render *r, int inst); /* K_DIV with bits = 1, all copies */

/* convert.c */
IrValue render_cast(Render *r, IrValue value, DType from, DType to);
IrValue convert_from_memory(Render *r, IrValue value, DType dtype);
IrValue convert_to_memory(Render *r, IrValue value, DType dtype);
IrValue render_round(Render *r, IrValue value, KernelOp op); /* floor, ceil, trunc, rint */
IrValue convert_fmod(Render *r, IrValue x, IrValue y);

/* reduce.c */
void reduce_begin(Render *r, int inst);
void reduce_step(Render *r, int inst, int level);
void reduce_finish(Render *r, int inst);

void reduce_take(Render *r, int inst, int copy, IrValue value); /* into that copy's accumulator; no positions */

/* bands.c */
void render_bands(Render *r, IrValue begin, IrValue end); /* all tasks of the launch */
void bands_body(Render *r, int level);                    /* the present columns, in the present phase */
IrValue bands_ahead(Render *r, const KernelInst *load);   /* bytes to what the next pass loads; NULL: not known */

/* ahead.c */
void ahead_setup(Render *r);                          /* at the entry */
void ahead_range(Render *r, int stage);               /* before the loop over a task's range */
void ahead_body(Render *r, int stage, IrValue index); /* in it */

/* columns.c */
void render_columns(Render *r, IrValue begin, IrValue end); /* all tasks of the launch */

/* Of vectors; else 16. */
static inline bool render_has_32_registers(const Render *r) { return r->isa.avx512 || !r->isa.x86; }

/* pieces.c: where pieces of a run of `count` instructions end, which stand one after the other on vectors alone: out_ends [count], in rising
 * order; their number. */
int render_pieces(Render *r, const int *run, int count, int *out_ends);

/* transpose.c */
void render_tiles(Render *r);

#endif
