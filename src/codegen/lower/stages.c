/* SPDX-License-Identifier: Apache-2.0 */
/* Between stages: a value that varies along the reduced axes and is needed in several stages is either computed again
 * or kept in scratch memory. Loads are done again (the row is in L1 or L2 by then); what costs more than KEEP_COST is
 * kept. */
#include "codegen/lower/lower_region.h"

/* In vector instructions. A load that runs over all axes moves memory, or at least L2; one that lacks a kept axis (a
 * bias, a scale) stays in L1. Reading a kept value back is a load from L1 and was paid for by a store. So the sum of
 * two full rows and a bias is computed again; a third row, an exponential or a random number are not. */
enum {
    KEEP_COST = 12,
    COST_FULL_LOAD = 4,
    COST_LOAD = 1,
    COST_KEPT = 2,
    COST_DIVIDE = 8,
    COST_DIVIDE_ROW = 2,
    COST_REMAINDER = 30,
    COST_RANDOM = 40
};

typedef struct Stages {
    const Kernel *k;
    KernelInst *insts;
    uint32_t reduced, all;
    int count;
    bool **needed; /* [stage][instruction] */
} Stages;

static bool varies(const Stages *s, int i) { return s->insts[i].axes & s->reduced; }
static bool is_root(const KernelInst *i) { return i->op == K_STORE || kernel_op_is_reduce(i->op); }

/* What stage `stage` computes. */
static void find_needed(const Stages *s, int stage) {
    bool *needed = s->needed[stage];
    for (int i = 0; i < s->count; i++)
        needed[i] = s->insts[i].stage == stage && (is_root(&s->insts[i]) || s->insts[i].keep);
    for (int i = s->count - 1; i >= 0; i--) {
        const KernelInst *inst = &s->insts[i];
        if (!needed[i] || (inst->keep && inst->stage < stage)) continue;
        for (int n = 0; n < kernel_op_args(inst->op); n++)
            if (varies(s, inst->args[n])) needed[inst->args[n]] = true;
    }
}

int instruction_cost(const KernelInst *inst) {
    switch (inst->op) {
    case K_CONST:
    case K_PARAM:
    case K_BITCAST: return 0;
    case K_DIV: return inst->bits ? COST_DIVIDE_ROW : COST_DIVIDE;
    case K_SQRT: return COST_DIVIDE;
    case K_REM: return COST_REMAINDER;
    case K_RANDOM: return COST_RANDOM;
    default: return 1;
    }
}

static int own_cost(const Stages *s, const KernelInst *inst) {
    if (inst->op == K_LOAD) return inst->axes == s->all ? COST_FULL_LOAD : COST_LOAD;
    return instruction_cost(inst);
}

/* Of computing instruction `top` again in a later stage. */
static int recompute_cost(const Stages *s, int top, bool *seen) {
    int cost = 0;
    memset(seen, 0, (size_t)(top + 1) * sizeof *seen);
    seen[top] = true;
    for (int i = top; i >= 0; i--) {
        const KernelInst *inst = &s->insts[i];
        if (!seen[i]) continue;
        if (inst->keep) {
            cost += COST_KEPT;
            continue;
        }
        cost += own_cost(s, inst);
        for (int n = 0; n < kernel_op_args(inst->op); n++)
            if (varies(s, inst->args[n])) seen[inst->args[n]] = true;
    }
    return cost;
}

/* Whether something new in a later stage reads the value: the points where keeping it pays; what lies behind is
 * computed again with it. */
static bool feeds_later_stage(const Stages *s, int i) {
    for (int stage = s->insts[i].stage + 1; stage < s->k->stage_count; stage++) {
        if (!s->needed[stage][i]) continue;
        for (int user = i + 1; user < s->count; user++) {
            const KernelInst *inst = &s->insts[user];
            if (!s->needed[stage][user] || inst->stage != stage) continue;
            for (int n = 0; n < kernel_op_args(inst->op); n++)
                if (inst->args[n] == i) return true;
        }
    }
    return false;
}

static int stages_needing(const Stages *s, int i) {
    int stages = 0;
    for (int stage = 0; stage < s->k->stage_count; stage++) stages += s->needed[stage][i];
    return stages;
}

void choose_kept(Lowered *l) {
    Kernel *k = l->kernel;
    Stages s = {.k = k, .insts = k->insts.items, .reduced = l->emit.reduced, .count = k->insts.count};
    s.all = (1u << k->axis_count) - 1;
    if (k->stage_count < 2) return;
    s.needed = ARENA_ARRAY(l->arena, bool *, k->stage_count);
    bool *seen = ARENA_ARRAY(l->arena, bool, s.count + 1);
    for (int stage = 0; stage < k->stage_count; stage++) {
        s.needed[stage] = ARENA_ARRAY(l->arena, bool, s.count + 1);
        find_needed(&s, stage);
    }
    for (int i = 0; i < s.count; i++) {
        KernelInst *inst = &s.insts[i];
        bool whole = (inst->axes & s.reduced) == s.reduced && s.reduced;
        if (!whole || is_root(inst) || stages_needing(&s, i) < 2 || !feeds_later_stage(&s, i)) continue;
        if (recompute_cost(&s, i, seen) <= KEEP_COST) continue;
        inst->keep = true;
        for (int stage = 0; stage < k->stage_count; stage++) find_needed(&s, stage);
    }
}
