/* SPDX-License-Identifier: Apache-2.0 */
/* What the renderer leaves to be done: variables to values (after M. Braun et al., "Simple and efficient construction of
 * static single assignment form", 2013), equal values once, what does not vary out of loops, what nobody needs away. */
#include "base/map.h"
#include "codegen/native/ir.h"

static Inst *resolved(Inst *i) {
    while (i && i->forward) i = i->forward;
    return i;
}

static void resolve_all(IrBuilder *b) {
    for (int n = 0; n < b->blocks.count; n++)
        for (int k = 0; k < b->blocks.items[n]->insts.count; k++) {
            Inst *i = b->blocks.items[n]->insts.items[k];
            for (int a = 0; a < 4; a++) i->args[a] = resolved(i->args[a]);
            for (int a = 0; a < i->incoming.count; a++)
                i->incoming.items[a].value = resolved(i->incoming.items[a].value);
        }
}

/* --- order and dominators --- */

static void visit(IrBuilder *b, Block *block, Block **order, int *at) {
    block->reached = true;
    for (int n = 1; n >= 0; n--) /* what follows a loop comes behind it */
        if (block->next[n] && !block->next[n]->reached) visit(b, block->next[n], order, at);
    order[--*at] = block;
}

static void order_blocks(IrBuilder *b) {
    int at = b->blocks.count, count = b->blocks.count;
    Block **order = ARENA_ARRAY(b->arena, Block *, count + 1);
    visit(b, b->blocks.items[0], order, &at);
    for (int n = 0; n < count - at; n++) order[n] = order[n + at];
    b->blocks.items = order;
    b->blocks.count = b->blocks.capacity = count - at;
    for (int n = 0; n < b->blocks.count; n++) {
        Block *block = order[n];
        int kept = 0;
        block->order = n;
        for (int p = 0; p < block->before.count; p++)
            if (block->before.items[p]->reached) block->before.items[kept++] = block->before.items[p];
        block->before.count = kept;
    }
}

static Block *common(Block *a, Block *c) {
    while (a != c) {
        while (a->order > c->order) a = a->dominator;
        while (c->order > a->order) c = c->dominator;
    }
    return a;
}

/* K. D. Cooper, T. J. Harvey, K. Kennedy, "A simple, fast dominance algorithm", 2001. */
static void find_dominators(IrBuilder *b) {
    Block *entry = b->blocks.items[0];
    entry->dominator = entry;
    for (bool changed = true; changed;) {
        changed = false;
        for (int n = 1; n < b->blocks.count; n++) {
            Block *block = b->blocks.items[n], *found = NULL;
            for (int p = 0; p < block->before.count; p++) {
                Block *before = block->before.items[p];
                if (before->dominator) found = found ? common(found, before) : before;
            }
            changed |= found != block->dominator;
            block->dominator = found;
        }
    }
}

static bool dominates(const Block *a, const Block *c) {
    while (c->order > a->order) c = c->dominator;
    return a == c;
}

static bool is_in(const Block *block, const Block *header) {
    const Block *loop = block->loop;
    while (loop && loop != header) loop = loop->outer;
    return loop == header;
}

static void mark_loop(IrBuilder *b, Block *header, Block *block, bool *seen) {
    if (seen[block->order]) return;
    seen[block->order] = true;
    if (block == header) return;
    for (int p = 0; p < block->before.count; p++) mark_loop(b, header, block->before.items[p], seen);
}

/* Outer loops first, for their headers come first. */
static void find_loops(IrBuilder *b) {
    bool *seen = ARENA_ARRAY(b->arena, bool, b->blocks.count);
    for (int n = 0; n < b->blocks.count; n++) {
        Block *header = b->blocks.items[n];
        bool found = false;
        memset(seen, 0, (size_t)b->blocks.count * sizeof *seen);
        seen[n] = true;
        for (int p = 0; p < header->before.count; p++)
            if (dominates(header, header->before.items[p])) {
                found = true;
                mark_loop(b, header, header->before.items[p], seen);
            }
        if (!found) continue;
        header->outer = header->loop;
        for (int p = 0; p < header->before.count; p++) {
            Block *before = header->before.items[p];
            if (!dominates(header, before)) header->entry = header->entry ? header : before;
        }
        if (header->entry == header) header->entry = NULL; /* several */
        for (int k = 0; k < b->blocks.count; k++)
            if (seen[k]) {
                b->blocks.items[k]->loop = header;
                b->blocks.items[k]->depth++;
            }
    }
}

/* --- variables --- */

static Inst *phi_at(IrBuilder *b, Block *block, const Inst *variable) {
    Inst *phi = inst_new(b, I_PHI, inst_type(variable));
    phi->block = block;
    phi->variable = (Inst *)(uintptr_t)variable; /* what it waits for */
    return phi;
}

/* The value at a block's begin; phis' arguments follow when all blocks have been seen. */
static Inst *value_before(IrBuilder *b, Block *block, const Inst *variable, Inst ***phis, int *count, int *room) {
    if (block->before.count == 0) {
        Inst *none = inst_new(b, I_UNDEFINED, inst_type(variable));
        none->block = block;
        return none;
    }
    if (block->before.count == 1 && block->before.items[0]->order < block->order) {
        Block *before = block->before.items[0];
        if (!before->values[variable->imm])
            before->values[variable->imm] = value_before(b, before, variable, phis, count, room);
        return before->values[variable->imm];
    }
    Inst *phi = phi_at(b, block, variable);
    if (*count == *room) *phis = vec_grow(b->arena, *phis, room, sizeof **phis);
    (*phis)[(*count)++] = phi;
    return phi;
}

static void remove_trivial(IrBuilder *b, Inst **phis, int count) {
    (void)b;
    for (bool changed = true; changed;) {
        changed = false;
        for (int n = 0; n < count; n++) {
            Inst *phi = phis[n], *only = NULL;
            bool trivial = !phi->forward;
            for (int k = 0; k < phi->incoming.count && trivial; k++) {
                Inst *value = resolved(phi->incoming.items[k].value);
                if (value == phi || value == only) continue;
                trivial = !only;
                only = value;
            }
            if (!trivial || !only) continue;
            phi->forward = only;
            changed = true;
        }
    }
}

static void promote(IrBuilder *b) {
    Inst **phis = NULL;
    int count = 0, room = 0;
    for (int n = 0; n < b->blocks.count; n++)
        b->blocks.items[n]->values = ARENA_ARRAY(b->arena, Inst *, b->variable_count + 1);
    for (int n = 0; n < b->blocks.count; n++) {
        Block *block = b->blocks.items[n];
        for (int k = 0; k < block->insts.count; k++) {
            Inst *i = block->insts.items[k];
            if (i->op == I_SET) block->values[i->variable->imm] = i->args[0];
            if (i->op != I_GET) continue;
            Inst **value = &block->values[i->variable->imm];
            if (!*value) *value = value_before(b, block, i->variable, &phis, &count, &room);
            i->forward = *value;
        }
    }
    for (int n = 0; n < count; n++) { /* grows as it is walked */
        Inst *phi = phis[n];
        const Inst *variable = phi->variable;
        if (!phi->block->values[variable->imm]) phi->block->values[variable->imm] = phi;
        for (int p = 0; p < phi->block->before.count; p++) {
            Block *from = phi->block->before.items[p];
            Inst **value = &from->values[variable->imm];
            if (!*value) *value = value_before(b, from, variable, &phis, &count, &room);
            VEC_PUSH(b->arena, phi->incoming, (PhiArg){*value, from});
        }
        phi->variable = NULL;
    }
    remove_trivial(b, phis, count);
    for (int n = 0; n < count; n++) {
        Block *block = phis[n]->block;
        if (phis[n]->forward) continue;
        VEC_PUSH(b->arena, block->insts, phis[n]);
        memmove(block->insts.items + 1, block->insts.items,
                (size_t)(block->insts.count - 1) * sizeof *block->insts.items);
        block->insts.items[0] = phis[n];
    }
}

/* Edges from blocks that are not reached are gone. */
static void trim_phis(IrBuilder *b) {
    for (int n = 0; n < b->blocks.count; n++)
        for (int k = 0; k < b->blocks.items[n]->insts.count; k++) {
            Inst *i = b->blocks.items[n]->insts.items[k];
            int kept = 0;
            if (i->op != I_PHI) continue;
            for (int a = 0; a < i->incoming.count; a++)
                if (i->incoming.items[a].from->reached) i->incoming.items[kept++] = i->incoming.items[a];
            i->incoming.count = kept;
            if (kept == 1) i->forward = i->incoming.items[0].value;
        }
}

/* --- equal values --- */

static bool is_pure(const Inst *i) {
    return (i->op <= I_STACK && i->op != I_PARAMETER) || (i->op >= I_BINOP && i->op <= I_ADDRESS);
}

static uint64_t hash_inst(const Inst *i) {
    int64_t key[6] = {i->op | i->element << 8 | i->lanes << 16 | (int64_t)i->kind << 24 | (int64_t)i->scale << 32,
                      i->imm};
    for (int a = 0; a < 4; a++) key[2 + a] = i->args[a] ? i->args[a]->number : -1;
    uint64_t hash = hash_bytes(key, sizeof key, 0);
    return i->bits ? hash_bytes(i->bits, (size_t)i->lanes * sizeof *i->bits, hash) : hash;
}

static bool same_inst(const Inst *i, const Inst *j) {
    if (i->op != j->op || inst_type(i) != inst_type(j) || i->kind != j->kind || i->scale != j->scale ||
        i->imm != j->imm)
        return false;
    for (int a = 0; a < 4; a++)
        if (i->args[a] != j->args[a]) return false;
    return !i->bits || memcmp(i->bits, j->bits, (size_t)i->lanes * sizeof *i->bits) == 0;
}

static bool is_placeless(const Inst *i) { return i->op <= I_STACK && i->op != I_PARAMETER; }

static void share(IrBuilder *b) {
    int room = 256;
    while (room < 2 * b->inst_count) room *= 2;
    Inst **table = ARENA_ARRAY(b->arena, Inst *, room);
    for (int n = 0; n < b->blocks.count; n++) {
        Block *block = b->blocks.items[n];
        int kept = 0;
        for (int k = 0; k < block->insts.count; k++) {
            Inst *i = block->insts.items[k];
            for (int a = 0; a < 4; a++) i->args[a] = resolved(i->args[a]);
            if (i->forward) continue;
            if (is_pure(i)) {
                uint64_t at = hash_inst(i);
                while (table[at & (uint64_t)(room - 1)]) {
                    Inst *j = table[at & (uint64_t)(room - 1)];
                    if (same_inst(i, j) && (is_placeless(i) || dominates(j->block, block))) {
                        i->forward = j;
                        break;
                    }
                    at++;
                }
                if (i->forward) continue;
                table[at & (uint64_t)(room - 1)] = i;
            }
            block->insts.items[kept++] = i;
        }
        block->insts.count = kept;
    }
    resolve_all(b);
}

/* --- out of loops --- */

static bool varies_in(const Inst *i, const Block *header) {
    for (int a = 0; a < 4; a++)
        if (i->args[a] && !is_placeless(i->args[a]) && is_in(i->args[a]->block, header)) return true;
    return false;
}

static void insert_last(IrBuilder *b, Block *block, Inst *i) {
    VEC_PUSH(b->arena, block->insts, i);
    Inst **end = &block->insts.items[block->insts.count - 1];
    end[0] = end[-1]; /* before what ends it */
    end[-1] = i;
    i->block = block;
}

static void hoist(IrBuilder *b) {
    for (int n = 0; n < b->blocks.count; n++) {
        Block *block = b->blocks.items[n];
        int kept = 0;
        for (int k = 0; k < block->insts.count; k++) {
            Inst *i = block->insts.items[k];
            Block *to = block;
            bool may = is_pure(i) && !is_placeless(i);
            while (may && to->loop && to->loop->entry && !varies_in(i, to->loop)) to = to->loop->entry;
            if (to == block)
                block->insts.items[kept++] = i;
            else
                insert_last(b, to, i);
        }
        block->insts.count = kept;
    }
}

/* --- what nobody needs --- */

static void need(IrBuilder *b, Inst *i, Inst ***stack, int *count, int *room) {
    if (!i || !i->dead) return;
    i->dead = false;
    if (*count == *room) *stack = vec_grow(b->arena, *stack, room, sizeof **stack);
    (*stack)[(*count)++] = i;
}

static void sweep(IrBuilder *b) {
    Inst **stack = NULL;
    int count = 0, room = 0;
    for (int n = 0; n < b->blocks.count; n++)
        for (int k = 0; k < b->blocks.items[n]->insts.count; k++) b->blocks.items[n]->insts.items[k]->dead = true;
    for (int n = 0; n < b->blocks.count; n++)
        for (int k = 0; k < b->blocks.items[n]->insts.count; k++) {
            Inst *i = b->blocks.items[n]->insts.items[k];
            if (i->op >= I_STORE && i->op != I_SET) need(b, i, &stack, &count, &room);
        }
    while (count) {
        Inst *i = stack[--count];
        for (int a = 0; a < 4; a++) need(b, i->args[a], &stack, &count, &room);
        for (int a = 0; a < i->incoming.count; a++) need(b, i->incoming.items[a].value, &stack, &count, &room);
    }
    for (int n = 0; n < b->blocks.count; n++) {
        Block *block = b->blocks.items[n];
        int kept = 0;
        for (int k = 0; k < block->insts.count; k++)
            if (!block->insts.items[k]->dead) block->insts.items[kept++] = block->insts.items[k];
        block->insts.count = kept;
    }
}

void optimise(IrBuilder *b) {
    order_blocks(b);
    find_dominators(b);
    find_loops(b);
    trim_phis(b);
    promote(b);
    resolve_all(b);
    share(b);
    hoist(b);
    share(b);
    sweep(b);
}
