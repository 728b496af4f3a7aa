/* SPDX-License-Identifier: Apache-2.0 */
/* What the renderer's files share:
 *   schedule.c    class, vectors, what is held; launches
 *   render.c      functions, threads, stages, loops
 *   memory.c      loads and stores
 *   arithmetic.c  expressions, and the helper functions that they call
 *   reduce.c      accumulators, and how a group's partial results meet
 *
 * Names in the text: a3 buffer argument, b3 its pointer, p3 parameter, i3 index along axis 3, x5 value of instruction
 * 5, l5 its loaded bits, s5 bits to store, r5 a reduction's result, h5 values held for later stages, k5 values of a
 * vector that outlive their loop; j counts the elements of a vector, e the vectors that a thread holds. */
#ifndef ONNXFUSE_CODEGEN_GPU_REGION_RENDER_H
#define ONNXFUSE_CODEGEN_GPU_REGION_RENDER_H

#include "codegen/gpu/gpu.h"

typedef struct GpuRender {
    Arena *arena;
    const Kernel *k;
    GpuSchedule schedule;
    const bool *hold;   /* [instruction] kept in registers by `held`; NULL in other functions */
    int vector_axis;    /* LANE or REDUCE_LANE */
    bool narrow;        /* indices are counted in 32 bits */
    const char *index;  /* their type */
    uint32_t reduced;   /* axes */
    uint32_t loop_axes; /* axes that the loops around a point run over: the reduced ones, or all without reductions */
    bool *needed;       /* [instruction] computed at a point of the present stage */
    bool *hoisted; /* [instruction] of `held`: loads of the present stage that are done before all else; else NULL */
    const bool
        *tiled;   /* [instruction] of transposes, behind the barrier: loads that have gone through a tile; else NULL */
    int stage;    /* the present one */
    Text body;    /* functions so far */
    Text helpers; /* functions that the body calls */
    VEC(const char *) known_helpers;
    int indent;
    bool inside; /* at a point: in the j loop */
    bool quick;  /* what divides whole rows has its inverse at hand: of x5, n5 and m5 */
} GpuRender;

/* --- schedule.c */
int gpu_vector_axis(const Kernel *kernel);
uint32_t gpu_reduced_axes(const Kernel *kernel);
/* TRANSPOSE: loads that are turned in shared memory; bytes that one takes there; bytes that there are, of the 48 KiB that
 * every device has for a block. */
enum { GPU_TILE_BYTES = 40 << 10 };
bool gpu_goes_through_tile(const Kernel *kernel, int inst);
size_t gpu_tile_bytes(const Kernel *kernel, int inst, int tile);
/* The kernel that `even` functions are of, over the same instructions, and its schedule. */
void gpu_even_kernel(Arena *arena, const Kernel *kernel, const GpuEven *even, Kernel *out_kernel);
GpuSchedule gpu_even_schedule(const GpuSchedule *schedule);
/* Whether random numbers are drawn: many instructions, whose order would take many registers. Then blocks have at most 256
 * threads, three beside each other. */
bool gpu_draws(const Kernel *kernel);
/* Of a function by its suffix. */
bool gpu_is_even(const char *suffix);
bool gpu_is_held(const char *suffix);
/* [instruction]: what later stages read of earlier ones, so that nothing is loaded or computed twice. */
const bool *gpu_held_values(Arena *arena, const Kernel *kernel);

/* --- render.c */
void emit_line(GpuRender *r, const char *format, ...) STATUS_FORMAT(2, 3);
void emit_open(GpuRender *r, const char *format, ...) STATUS_FORMAT(2, 3); /* a line that ends in " {" */
void emit_close(GpuRender *r);
static inline const KernelInst *inst_at(const GpuRender *r, int i) { return &r->k->insts.items[i]; }
static inline bool is_wide(const GpuRender *r, int i) { return inst_at(r, i)->axes >> r->vector_axis & 1; }
/* Neighbours that a vector has side by side, and where its element j stands from the first. */
static inline int run_of(const GpuRender *r) { return r->schedule.vector / (r->schedule.step > 1 ? 4 : 1); }
const char *place_of_element(const GpuRender *r);
static inline bool in_loop(const GpuRender *r, int i) { return inst_at(r, i)->axes & r->loop_axes; }

/* --- memory.c */
const char *memory_type(DType dtype);                                   /* "u16" of f16: as it stands in memory */
const char *compute_type(DType dtype);                                  /* "f32" of f32, "i32" of bool */
const char *size_text(GpuRender *r, int axis);                          /* of an axis: a parameter or a number */
const char *loaded_value(GpuRender *r, int inst, const char *bits);     /* expression: bits in memory -> value */
const char *stored_bits(GpuRender *r, DType memory, const char *value); /* and back */
const char *loaded_name(GpuRender *r, int inst);                        /* of the vector's bits: l5, or l5[e] */
void declare_loaded(GpuRender *r, int inst);                            /* wide ones */
int piece_bytes(const GpuRender *r, DType dtype);                       /* of an access of a vector */
const char *piece_type(int bytes);
void emit_load(GpuRender *r, int inst);                     /* wide: l[j]; else x */
void emit_store(GpuRender *r, int inst);                    /* wide: from s[j]; else from the value */
void emit_offset(GpuRender *r, int inst, const char *name); /* const i64 name = element offset at the point */

/* --- arithmetic.c */
const char *value_of(GpuRender *r, int inst);      /* how the present place in the text refers to a value */
const char *expression_of(GpuRender *r, int inst); /* of an instruction that computes */
/* Whether a quotient is one of many by a number of the row, known before the loop (base/math/divide.h). */
bool divides_row(const GpuRender *r, int inst);
void need_inverse(GpuRender *r);
void need_helper(GpuRender *r, const char *name, const char *text); /* once each; before the functions */

/* --- reduce.c */
bool is_position(KernelOp op);
int reduction_cells(const GpuRender *r,
                    int *out_bytes);  /* cells of scratch a unit and part takes; their size: 4 or 8 */
void emit_accumulators(GpuRender *r); /* of the present stage: declared, empty */
void emit_accumulate(GpuRender *r, int inst);
void emit_from_partials(GpuRender *r);
void emit_group_results(GpuRender *r); /* r5 from all threads of the group */
void emit_partials(GpuRender *r);
bool has_positions(const Kernel *kernel);

#endif
