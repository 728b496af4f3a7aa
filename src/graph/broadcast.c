/* SPDX-License-Identifier: Apache-2.0 */
/* The form of a broadcast: kept axes, repeated axes, kept axes. */
#include "graph/broadcast.h"

typedef enum Phase { TRAILING, REPEATED, LEADING } Phase;

/* same: the sizes agree; one: the part's is 1. An axis that is both says nothing. False: a fourth change. */
static bool step(Phase *phase, bool same, bool one) {
    if (same && one) return true;
    if (same && *phase == REPEATED) *phase = LEADING;
    if (!same && one && *phase == TRAILING) *phase = REPEATED;
    return same || (one && *phase == REPEATED);
}

bool broadcast_of(int rank, const int64_t *dims, int whole_rank, const int64_t *whole_dims, Broadcast *out) {
    Phase phase = TRAILING;
    *out = (Broadcast){1, 1};
    if (rank > whole_rank) return false;
    for (int i = whole_rank - 1; i >= 0; i--) {
        int at = i - (whole_rank - rank);
        int64_t whole = whole_dims[i], own = at < 0 ? 1 : dims[at];
        if (!step(&phase, own == whole, own == 1)) return false;
        if (phase == TRAILING) out->inner *= whole;
        if (phase != LEADING) out->period *= whole;
    }
    if (out->period < 1) *out = (Broadcast){1, 1}; /* of nothing */
    return true;
}

bool broadcast_fits(const Value *part, const Value *whole) {
    Phase phase = TRAILING;
    if (part->rank < 0 || part->rank > whole->rank) return false;
    for (int i = whole->rank - 1; i >= 0; i--) {
        int at = i - (whole->rank - part->rank);
        bool one = at < 0 || dim_equals(part->dims[at], 1);
        bool same = at < 0 ? dim_equals(whole->dims[i], 1) : part->dims[at] == whole->dims[i];
        if (!step(&phase, same, one)) return false;
    }
    return true;
}

bool broadcast_keeps_last(const Value *part) { return part->rank > 0 && !dim_equals(part->dims[part->rank - 1], 1); }

bool broadcast_is_row(const Value *part) {
    for (int i = 0; i < part->rank - 1; i++)
        if (!dim_equals(part->dims[i], 1)) return false;
    return true;
}
