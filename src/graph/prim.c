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

/* Multipliers and Weyl increments of Philox4x32: table 2 and section 4 of Salmon et al. 2011. */
uint32_t philox_u32(uint64_t seed, uint64_t index) {
    uint64_t block = index / 4;
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t first = (uint64_t)0xD2511F53u * counter[0], second = (uint64_t)0xCD9E8D57u * counter[2];
        uint32_t next[4] = {(uint32_t)(second >> 32) ^ counter[1] ^ key[0], (uint32_t)second,
                            (uint32_t)(first >> 32) ^ counter[3] ^ key[1], (uint32_t)first};
        memcpy(counter, next, sizeof counter);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return counter[index % 4];
}
