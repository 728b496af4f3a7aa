/* SPDX-License-Identifier: Apache-2.0 */
/* One machine instruction on real registers -> bytes. */
#ifndef ONNXFUSE_CODEGEN_NATIVE_ENCODE_H
#define ONNXFUSE_CODEGEN_NATIVE_ENCODE_H

#include "codegen/native/machine.h"

typedef struct Operand {
    bool memory, vector_index;
    int base;  /* the register, where it is none of memory */
    int index; /* -1: none */
    int scale, displacement;
    int pool; /* 1 + a constant's place */
} Operand;

typedef struct Encoded {
    int reg, second, mask; /* second: vvvv */
    Operand rm;
    int length;
    bool zeroing, broadcast;
    int classes[3]; /* of reg, second and rm, for the listing */
} Encoded;

typedef struct Place {
    RegClass class;
    int number;   /* -1: none */
    int slot;     /* bytes into the frame; -1: none */
    int constant; /* 1 + its place in the pool */
} Place;

void encode_one(Machine *m, int op, Encoded e, bool wide, int64_t imm);

#endif
