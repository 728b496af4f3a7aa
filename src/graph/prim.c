/* SPDX-License-Identifier: Apache-2.0 */
/* The table of primitives, read from its macro, and the random bits behind `philox`. */
#include "graph/prim.h"

#include <string.h>

static const PrimInfo infos[PRIM_COUNT] = {{"none", PRIM_CLASS_NONE, 0},
#define X(enumerator, name, klass, inputs, comment) [enumerator] = {name, PRIM_CLASS_##klass, inputs},
                                           PRIMS(X)
#undef X
};

const PrimInfo *prim_info(Prim prim) {
    return &infos[(unsigned)prim < PRIM_COUNT ? (unsigned)prim : (unsigned)PRIM_NONE];
}

Prim prim_from_name(const char *name) {
    for (int i = PRIM_NONE + 1; name && i < PRIM_COUNT; i++)
        if (infos[i].name[0] == name[0] && strcmp(infos[i].name, name) == 0) return (Prim)i;
    return PRIM_NONE;
}

static bool is_number(DType t) { return dtype_is_float(t) || dtype_is_integer(t); }

static bool unary_accepts(Prim prim, DType t) {
    switch (prim) {
    case PRIM_NEG:
    case PRIM_ABS:
    case PRIM_SIGN:
    case PRIM_FLOOR:
    case PRIM_CEIL:
    case PRIM_ROUND:
    case PRIM_TRUNC: return is_number(t);
    case PRIM_NOT: return t == DT_BOOL || dtype_is_integer(t);
    default: return dtype_is_float(t);
    }
}

static bool binary_accepts(Prim prim, DType t) {
    switch (prim) {
    case PRIM_AND:
    case PRIM_OR:
    case PRIM_XOR: return t == DT_BOOL || dtype_is_integer(t);
    case PRIM_SHL:
    case PRIM_SHR: return dtype_is_integer(t);
    case PRIM_MIN:
    case PRIM_MAX: return t == DT_BOOL || is_number(t);
    default: return is_number(t);
    }
}

bool prim_accepts(Prim prim, DType t) {
    switch (prim_info(prim)->klass) {
    case PRIM_CLASS_UNARY: return unary_accepts(prim, t);
    case PRIM_CLASS_TEST: return dtype_is_float(t);
    case PRIM_CLASS_BINARY: return binary_accepts(prim, t);
    case PRIM_CLASS_COMPARE:
        return t == DT_BOOL || is_number(t) || (t == DT_STRING && (prim == PRIM_EQ || prim == PRIM_NE));
    case PRIM_CLASS_CAST: return prim == PRIM_BITCAST ? t != DT_NONE && t != DT_STRING : t == DT_BOOL || is_number(t);
    case PRIM_CLASS_REDUCE:
        return is_number(t) || (t == DT_BOOL && prim != PRIM_REDUCE_SUM && prim != PRIM_REDUCE_PROD);
    default: return t != DT_NONE;
    }
}

uint32_t philox_u32(uint64_t seed, uint64_t index) {
    uint64_t block = index / PHILOX_GROUP * PHILOX_COUNTERS + index % PHILOX_COUNTERS;
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t first = (uint64_t)PHILOX_FACTOR_0 * counter[0], second = (uint64_t)PHILOX_FACTOR_1 * counter[2];
        uint32_t next[4] = {(uint32_t)(second >> 32) ^ counter[1] ^ key[0], (uint32_t)second,
                            (uint32_t)(first >> 32) ^ counter[3] ^ key[1], (uint32_t)first};
        memcpy(counter, next, sizeof counter);
        key[0] += PHILOX_STEP_0;
        key[1] += PHILOX_STEP_1;
    }
    return counter[index / PHILOX_COUNTERS % 4];
}

uint32_t philox_half_u32(uint64_t seed, uint64_t index) {
    uint32_t word = philox_u32(seed, philox_half_place(index));
    return index & 1 ? word << 16 | word >> 16 : word;
}
