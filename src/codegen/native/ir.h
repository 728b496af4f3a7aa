/* SPDX-License-Identifier: Apache-2.0 */
/* The SSA form between the renderer's calls (render/builder.h) and machine code, and the state of building it:
 *   build.c, vector.c  what the renderer calls; a vector wider than a register is several instructions from here on
 *   optimise.c         variables to values, equal values once, what does not vary out of loops, what nobody needs away
 *   select.c           SSA -> machine instructions on virtual registers (machine.h)
 *   allocate.c         virtual registers -> registers or stack
 *   encode.c           bytes
 *   elf.c              an object file, as object.c reads it
 *   native.c           all of it in turn
 * What has no rule here makes the whole kernel fail with a reason (unsupported): then it is LLVM's. */
#ifndef ONNXFUSE_CODEGEN_NATIVE_IR_H
#define ONNXFUSE_CODEGEN_NATIVE_IR_H

#include "base/arena.h"
#include "codegen/render/builder.h"

enum { MOST_LANES = 64, MOST_PARTS = 8 };

/* In the comments x, y, z are args[0..2]. */
typedef enum InstOp {
    /* without arguments */
    I_CONST,  /* imm: integer scalar */
    I_VCONST, /* bits: a vector's, or a float */
    I_UNDEFINED,
    I_PARAMETER, /* imm: which */
    I_STACK,     /* address of imm bytes of the frame */
    I_PHI,
    I_GET, /* variable (before promotion alone) */
    /* arithmetic */
    I_BINOP, /* kind: IrOp */
    I_UNARY, /* kind: IrUnary */
    I_MIN,
    I_MAX,    /* x < y ? x : y (x > y); kind: whether integers have a sign */
    I_MULU32, /* of the low halves of 64-bit lanes */
    I_XOR3,   /* of vectors */
    I_FMA,    /* kind: FMA_NEG_PRODUCT, FMA_NEG_ADDEND */
    I_COMPARE, /* kind: IrCompare; of vectors: to a mask, or, on AVX2, to integers as wide as what is compared, -1 or 0 */
    I_CAST,    /* kind: IrCast */
    I_SELECT,
    I_SCALE,
    /* lanes */
    I_SPLAT,  /* of a scalar */
    I_PART,   /* lanes [imm, imm + lanes) of x */
    I_JOIN,   /* x and y, of the same size, one behind the other; masks too */
    I_PLACE,  /* x with y from lane imm on */
    I_UNPACK, /* x and y; kind: 0 low, 1 high halves interleaved within 16 bytes */
    I_GROUPS, /* the even (kind 0) or odd (1) groups of 16 bytes of x, then of y */
    I_PERMUTE, /* lanes of x and y by the constant indices z; on AVX2 of x by those of y, of bytes within 16 or of 32 bits */
    I_FIRST, /* lane 0 as a scalar */
    I_ANY,   /* i1: of a mask */
    /* memory: address x + y * scale + imm; y may be NULL */
    I_ADDRESS,
    I_LOAD,     /* z: mask or NULL */
    I_GATHER,   /* y: offsets of the lanes, z: mask */
    I_STORE,    /* args[3]: value; z: mask or NULL; kind: 1 past the caches */
    I_SCATTER,  /* args[3]: value */
    I_PREFETCH, /* kind: into which cache, 1 or 2 */
    I_FENCE,
    I_SET, /* variable := x (before promotion alone) */
    /* ends of blocks */
    I_BRANCH,
    I_IF,
    I_RETURN,
} InstOp;

enum { FMA_NEG_PRODUCT = 1, FMA_NEG_ADDEND = 2 };

typedef struct Inst Inst;
typedef struct IrBlockBody Block;

typedef struct PhiArg {
    Inst *value;
    Block *from;
} PhiArg;

struct Inst {
    unsigned char op, element, lanes, kind, scale;
    bool dead;
    int number; /* in the order of building */
    int uses;   /* select.c */
    int reg;    /* virtual register; 0: none yet */
    int64_t imm;
    Inst *args[4];
    Inst *variable;      /* GET, SET */
    Inst *forward;       /* what takes its place */
    const int64_t *bits; /* [lanes] of VCONST: each lane's */
    Block *block;
    VEC(PhiArg) incoming;
};

struct IrBlockBody {
    int number, order; /* order: in the code */
    VEC(Inst *) insts; /* phis first */
    VEC(Block *) before;
    Block *next[2];
    /* optimise.c */
    Block *dominator, *loop; /* loop: the header of the innermost one that it is in */
    Block *outer, *entry;    /* of a header: that of the loop around, and the block before the loop */
    int depth, tree_depth;
    bool reached;
    Inst **values; /* of variables at its end */
};

/* A value of the renderer: one instruction a register. On AVX2 the parts of conditions of lanes are integers, as wide as those that were
 * compared. */
struct IrNode {
    IrType type;
    int count;
    Inst *parts[MOST_PARTS];
};

struct IrBuilder {
    Arena *arena;
    bool avx512; /* else AVX2 */
    Block *at;
    VEC(Block *) blocks; /* from optimise on: those that are reached, in the order of the code */
    VEC(IrValue) parameters;
    int inst_count, variable_count;
    int64_t frame;           /* bytes of I_STACK */
    const char *unsupported; /* the first thing without a rule */
};

/* build.c */
void ir_begin(IrBuilder *b, Arena *arena, bool avx512);
void no_rule(IrBuilder *b, const char *what);
Inst *inst_new(IrBuilder *b, InstOp op, IrType type); /* not in a block yet */
Inst *inst_add(IrBuilder *b, InstOp op, IrType type, Inst *x, Inst *y, Inst *z);
IrValue native_value_new(IrBuilder *b, IrType type);
IrValue native_value(IrBuilder *b, IrType type, Inst *inst);
/* Of each part but a narrower last one: all are powers of two. Of conditions on AVX2: of integers of 32 bits. */
int part_lanes(const IrBuilder *b, IrType type);
int part_count(const IrBuilder *b, IrType type);
IrType part_type(const IrBuilder *b, IrType type);
static inline bool is_lane_condition(IrType type) { return ir_element(type) == IR_I1 && ir_lane_count(type) > 1; }
static inline IrType integer_of_bits(int bits) {
    return bits == 8 ? IR_I8 : bits == 16 ? IR_I16 : bits == 32 ? IR_I32 : IR_I64;
}
static inline bool is_float_element(int element) { return element >= IR_F16 && element <= IR_F64; }
static inline IrType inst_type(const Inst *i) { return ir_lanes(i->element, i->lanes); }
Inst *inst_constant(IrBuilder *b, IrType type, const int64_t *bits); /* vector or float */
/* vector.c */
Inst *part_of(IrBuilder *b, Inst *x, int from, int lanes);
Inst *join(IrBuilder *b, Inst **pieces, int count); /* a power of two */
/* The mask of a part of a value of that type. */
Inst *mask_part(IrBuilder *b, IrValue mask, IrType like, int part);
/* Conditions on AVX2, as integers of so many bits. */
IrValue condition_lanes(IrBuilder *b, IrValue condition, int bits);
/* Such integers as conditions. */
IrValue condition_of_lanes(IrBuilder *b, IrValue lanes);

/* optimise.c */
void optimise(IrBuilder *b);

#endif
