/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual registers -> real ones. Each has the ranges of positions where it is live; those that moves join and that are
 * never live at once are made one; then they choose in the order of their weight (uses, those in loops more, by length). A
 * real register's taken positions are bits, so that holes are found and filled. Who finds none lives on the stack, or,
 * a constant, in the pool: the encoder reads it from there, mostly as an instruction's memory operand. */
#include <stdlib.h>
#include "codegen/native/machine.h"

typedef struct Allocate {
    Machine *m;
    int count;      /* instructions */
    int *from, *to; /* of each block: its instructions */
    uint64_t **live_in, **live_out;
    int words; /* of a set of registers */
    int *open; /* [reg]: where its present range ends; 0: not live */
    uint64_t *taken[REG_CLASSES][32];
    size_t taken_words;
} Allocate;

typedef struct Slot {
    RegClass class;
    int offset; /* in the frame */
    uint64_t *taken;
} Slot;

typedef void (*Visit)(Allocate *a, int reg, int position, double weight);

static void each_use(Allocate *a, const Code *c, int at, double weight, Visit visit) {
    int past = c->early ? 2 * at + 2 : 2 * at + 1;
    for (int n = 0; n < c->count; n++)
        if (c->src[n]) visit(a, c->src[n], n ? past : 2 * at + 1, weight);
    if (c->mask) visit(a, c->mask, past, weight);
    if (c->base) visit(a, c->base, past, weight);
    if (c->index) visit(a, c->index, past, weight);
    for (int n = 0; c->op == X_P_MOVES && n < c->move_count; n++) visit(a, c->moves[n].from, 2 * at + 1, weight);
}

static void each_result(Allocate *a, const Code *c, int at, double weight, Visit visit) {
    if (c->dst) visit(a, c->dst, 2 * at + 1, weight);
    for (int n = 0; n < c->move_count; n++) visit(a, c->moves[n].to, 2 * at + 1, weight);
}

/* --- liveness --- */

static bool has(const uint64_t *set, int reg) { return set[reg / 64] >> (reg % 64) & 1; }

static _Thread_local uint64_t *walked;

static void add_live(Allocate *a, int reg, int position, double weight) {
    (void)a, (void)position, (void)weight;
    walked[reg / 64] |= (uint64_t)1 << reg % 64;
}

static void drop_live(Allocate *a, int reg, int position, double weight) {
    (void)a, (void)position, (void)weight;
    walked[reg / 64] &= ~((uint64_t)1 << reg % 64);
}

static void find_live(Allocate *a) {
    const IrBuilder *b = a->m->ir;
    int count = b->blocks.count;
    a->words = (a->m->regs.count + 63) / 64;
    a->live_in = ARENA_ARRAY(a->m->arena, uint64_t *, count);
    a->live_out = ARENA_ARRAY(a->m->arena, uint64_t *, count);
    for (int n = 0; n < count; n++) {
        a->live_in[n] = ARENA_ARRAY(a->m->arena, uint64_t, a->words);
        a->live_out[n] = ARENA_ARRAY(a->m->arena, uint64_t, a->words);
    }
    uint64_t *live = ARENA_ARRAY(a->m->arena, uint64_t, a->words);
    for (bool changed = true; changed;) {
        changed = false;
        for (int n = count - 1; n >= 0; n--) {
            const Block *block = b->blocks.items[n];
            const CodeBlock *code = &a->m->blocks[n];
            for (int e = 0; e < 2; e++)
                for (int w = 0; block->next[e] && w < a->words; w++)
                    a->live_out[n][w] |= a->live_in[block->next[e]->order][w];
            memcpy(live, a->live_out[n], (size_t)a->words * sizeof *live);
            walked = live;
            for (int k = code->code.count - 1; k >= 0; k--) {
                each_result(a, &code->code.items[k], 0, 0, drop_live);
                each_use(a, &code->code.items[k], 0, 0, add_live);
            }
            if (memcmp(live, a->live_in[n], (size_t)a->words * sizeof *live) == 0) continue;
            memcpy(a->live_in[n], live, (size_t)a->words * sizeof *live);
            changed = true;
        }
    }
}

static void add_range(Allocate *a, int reg, int from, int to) {
    Reg *r = &a->m->regs.items[reg];
    if (r->ranges.count && r->ranges.items[r->ranges.count - 1].from == to)
        r->ranges.items[r->ranges.count - 1].from = from;
    else
        VEC_PUSH(a->m->arena, r->ranges, (Range){from, to});
}

static void open_range(Allocate *a, int reg, int position, double weight) {
    a->m->regs.items[reg].weight += weight;
    if (a->open[reg] < position) a->open[reg] = position;
}

static void close_range(Allocate *a, int reg, int position, double weight) {
    a->m->regs.items[reg].weight += weight;
    add_range(a, reg, position, a->open[reg] > position ? a->open[reg] : position + 1);
    a->open[reg] = 0;
}

static double loop_weight(int depth) {
    double weight = 1;
    for (int n = 0; n < depth && n < 8; n++) weight *= 8;
    return weight;
}

/* Backwards, so ranges come last first. */
static void find_ranges(Allocate *a) {
    Machine *m = a->m;
    int blocks = m->ir->blocks.count;
    a->from = ARENA_ARRAY(m->arena, int, blocks + 1);
    a->to = ARENA_ARRAY(m->arena, int, blocks + 1);
    for (int n = 0; n < blocks; n++) {
        a->from[n] = a->count;
        a->count += m->blocks[n].code.count;
        a->to[n] = a->count;
    }
    a->open = ARENA_ARRAY(m->arena, int, m->regs.count);
    for (int n = blocks - 1; n >= 0; n--) {
        double weight = loop_weight(m->ir->blocks.items[n]->depth);
        for (int r = 0; r < m->regs.count; r++)
            if (has(a->live_out[n], r)) a->open[r] = 2 * a->to[n];
        for (int k = a->to[n] - 1; k >= a->from[n]; k--) {
            const Code *c = &m->blocks[n].code.items[k - a->from[n]];
            each_result(a, c, k, weight, close_range);
            each_use(a, c, k, weight, open_range);
        }
        for (int r = 0; r < m->regs.count; r++) {
            if (a->open[r]) add_range(a, r, 2 * a->from[n], a->open[r]);
            a->open[r] = 0;
        }
    }
    for (int r = 0; r < m->regs.count; r++) {
        Reg *reg = &m->regs.items[r];
        for (int l = 0, h = reg->ranges.count - 1; l < h; l++, h--) {
            Range swap = reg->ranges.items[l];
            reg->ranges.items[l] = reg->ranges.items[h];
            reg->ranges.items[h] = swap;
        }
    }
}

/* --- one of two --- */

static bool meet(const Reg *x, const Reg *y) {
    for (int n = 0, k = 0; n < x->ranges.count && k < y->ranges.count;) {
        const Range *u = &x->ranges.items[n], *v = &y->ranges.items[k];
        if (u->from < v->to && v->from < u->to) return true;
        if (u->to <= v->to)
            n++;
        else
            k++;
    }
    return false;
}

static void unite(Allocate *a, int to, int from) {
    Machine *m = a->m;
    to = reg_find(m, to);
    from = reg_find(m, from);
    Reg *x = &m->regs.items[to], *y = &m->regs.items[from];
    if (to == from || x->class != y->class || x->constant || y->constant || x->part || y->part || meet(x, y)) return;
    Reg all = *x;
    all.ranges.items = NULL;
    all.ranges.count = all.ranges.capacity = 0;
    for (int n = 0, k = 0; n < x->ranges.count || k < y->ranges.count;) {
        bool first = k == y->ranges.count || (n < x->ranges.count && x->ranges.items[n].from < y->ranges.items[k].from);
        Range next = first ? x->ranges.items[n++] : y->ranges.items[k++];
        if (all.ranges.count && all.ranges.items[all.ranges.count - 1].to == next.from)
            all.ranges.items[all.ranges.count - 1].to = next.to;
        else
            VEC_PUSH(m->arena, all.ranges, next);
    }
    all.weight += y->weight;
    *x = all;
    y->same = to;
    y->ranges.count = 0;
}

/* Inner loops' moves first. */
static void unite_moves(Allocate *a) {
    Machine *m = a->m;
    int deepest = 0;
    for (int n = 0; n < m->ir->blocks.count; n++)
        if (m->ir->blocks.items[n]->depth > deepest) deepest = m->ir->blocks.items[n]->depth;
    for (int depth = deepest; depth >= 0; depth--)
        for (int n = 0; n < m->ir->blocks.count; n++) {
            if (m->ir->blocks.items[n]->depth != depth) continue;
            for (int k = 0; k < m->blocks[n].code.count; k++) {
                const Code *c = &m->blocks[n].code.items[k];
                if (c->op == X_P_COPY) unite(a, c->dst, c->src[0]);
                for (int v = 0; c->op == X_P_MOVES && v < c->move_count; v++)
                    unite(a, c->moves[v].to, c->moves[v].from);
            }
        }
}

static void add_hint(Machine *m, int reg, int other) {
    if (!reg || !other) return;
    reg = reg_find(m, reg);
    other = reg_find(m, other);
    if (reg == other || m->regs.items[reg].class != m->regs.items[other].class) return;
    for (int n = 0; n < 2; n++) {
        Reg *r = &m->regs.items[n ? other : reg];
        if (r->hint_count < 4) r->hints[r->hint_count++] = n ? reg : other;
    }
}

static void find_hints(Allocate *a) {
    Machine *m = a->m;
    for (int n = 0; n < m->ir->blocks.count; n++)
        for (int k = 0; k < m->blocks[n].code.count; k++) {
            const Code *c = &m->blocks[n].code.items[k];
            if (c->tied || c->op == X_P_COPY) add_hint(m, c->dst, c->src[0]);
            for (int s = 2; c->op == X_P_FMA && s >= 0; s--) add_hint(m, c->dst, c->src[s]);
            for (int v = 0; c->op == X_P_MOVES && v < c->move_count; v++) add_hint(m, c->moves[v].to, c->moves[v].from);
        }
}

/* --- choosing --- */

static bool is_free(const uint64_t *taken, const Reg *r) {
    for (int n = 0; n < r->ranges.count; n++) {
        int from = r->ranges.items[n].from, last = r->ranges.items[n].to - 1;
        for (int w = from / 64; w <= last / 64; w++) {
            uint64_t mask = ~(uint64_t)0;
            if (w == from / 64) mask &= ~(uint64_t)0 << from % 64;
            if (w == last / 64) mask &= ~(uint64_t)0 >> (63 - last % 64);
            if (taken[w] & mask) return false;
        }
    }
    return true;
}

static void take(uint64_t *taken, const Reg *r) {
    for (int n = 0; n < r->ranges.count; n++)
        for (int at = r->ranges.items[n].from; at < r->ranges.items[n].to;) {
            if (at % 64 == 0 && at + 64 <= r->ranges.items[n].to) {
                taken[at / 64] = ~(uint64_t)0;
                at += 64;
            } else {
                taken[at / 64] |= (uint64_t)1 << at % 64;
                at++;
            }
        }
}

/* In the order in which they are given out; those that a function must give back last. */
static const signed char integers[] = {RCX, RSI, RDI, 8, 9, 10, 11, RBX, RBP, 12, 13, 14, 15};

static int real_register(const Machine *m, RegClass class, int number) {
    if (class == CLASS_INTEGER) return number < (int)sizeof integers ? integers[number] : -1;
    if (class == CLASS_MASK) return number + 1 < (m->spills[class] ? KEPT_MASK : 8) ? number + 1 : -1;
    return number < (m->spills[class] ? first_kept_vector(m) : vector_registers(m)) ? number : -1;
}

static bool try_place(Allocate *a, Reg *r, int place) {
    uint64_t **taken = &a->taken[r->class][place];
    if (!*taken) *taken = ARENA_ARRAY(a->m->arena, uint64_t, a->taken_words);
    if (!is_free(*taken, r)) return false;
    take(*taken, r);
    r->place = place;
    a->m->used[r->class] |= 1u << place;
    return true;
}

/* A place where `other`, which an instruction makes of r, can follow. */
static bool place_both(Allocate *a, Reg *r, const Reg *other) {
    for (int n = 0, place; (place = real_register(a->m, r->class, n)) >= 0; n++) {
        const uint64_t *taken = a->taken[r->class][place];
        if ((!taken || is_free(taken, other)) && try_place(a, r, place)) return true;
    }
    return false;
}

static bool choose(Allocate *a, Reg *r) {
    Machine *m = a->m;
    for (int n = 0; n < r->hint_count; n++) {
        int place = m->regs.items[reg_find(m, r->hints[n])].place;
        if (place >= 0 && try_place(a, r, place)) return true;
    }
    for (int n = 0; n < r->hint_count; n++) {
        const Reg *other = &m->regs.items[reg_find(m, r->hints[n])];
        if (other->place < 0 && !other->constant && !meet(r, other) && place_both(a, r, other)) return true;
    }
    for (int n = 0; real_register(m, r->class, n) >= 0; n++)
        if (try_place(a, r, real_register(m, r->class, n))) return true;
    return false;
}

static _Thread_local const Machine *sorted;

static int by_weight(const void *x, const void *y) {
    int u = *(const int *)x, v = *(const int *)y;
    double a = sorted->regs.items[u].weight, b = sorted->regs.items[v].weight;
    return a > b ? -1 : a < b ? 1 : u - v;
}

static void forget_places(Allocate *a, RegClass class) {
    for (int r = 1; r < a->m->regs.count; r++)
        if (a->m->regs.items[r].class == class) a->m->regs.items[r].place = -1;
    memset(a->taken[class], 0, sizeof a->taken[class]);
    a->m->used[class] = 0;
}

static bool place_class(Allocate *a, const int *order, int count, RegClass class) {
    bool all = true;
    for (int n = 0; n < count; n++) {
        Reg *r = &a->m->regs.items[order[n]];
        if (r->class == class && !choose(a, r)) all = false;
    }
    return all;
}

/* --- the stack --- */

static bool is_on_stack(const Reg *r) { return r->place < 0 && !r->constant && r->ranges.count; }

static int by_begin(const void *x, const void *y) {
    int u = *(const int *)x, v = *(const int *)y;
    int a = sorted->regs.items[u].ranges.items[0].from, b = sorted->regs.items[v].ranges.items[0].from;
    return a != b ? a - b : u - v;
}

/* Registers that are never live at once share a slot, so that what is on the stack takes little of the first cache. */
static void give_slots(Allocate *a) {
    Machine *m = a->m;
    int *order = ARENA_ARRAY(m->arena, int, m->regs.count), count = 0, slots = 0;
    Slot *all = ARENA_ARRAY(m->arena, Slot, m->regs.count);
    for (int r = 1; r < m->regs.count; r++)
        if (m->regs.items[r].same == r && is_on_stack(&m->regs.items[r])) order[count++] = r;
    sorted = m;
    qsort(order, (size_t)count, sizeof *order, by_begin);
    m->frame = (m->ir->frame + 63) & -64;
    for (int n = 0; n < count; n++) {
        Reg *reg = &m->regs.items[order[n]];
        int at = 0, bytes = reg->class == CLASS_VECTOR ? whole_bytes(m) : 8;
        while (at < slots && (all[at].class != reg->class || !is_free(all[at].taken, reg))) at++;
        if (at == slots) {
            m->frame = (m->frame + bytes - 1) & -bytes;
            all[slots++] = (Slot){reg->class, (int)m->frame, ARENA_ARRAY(m->arena, uint64_t, a->taken_words)};
            m->frame += bytes;
        }
        take(all[at].taken, reg);
        reg->slot = all[at].offset;
    }
    m->frame = (m->frame + 63) & -64;
}

/* --- uses near each other --- */

/* Uses of a register or a constant, none of which is far from the one before: of a block, in the order of their first ones. They get a register
 * of their own from the first to the last, whose life is short, so that there is one to be found. */
typedef struct LifePart {
    int first, last, uses, value;
    bool makes; /* it begins where the value is made */
    int reg;
} LifePart;

typedef struct LifeParts {
    bool constants; /* values are constants */
    VEC(LifePart) items;
} LifeParts;

enum { LONGEST = 96 }; /* instructions from a part's first use to its last */

/* At instruction k; a part ends where the next use is more than `near` instructions behind. open: [value] 1 + the number of its
 * latest part. */
static void note_use(Machine *m, LifeParts *parts, int *open, int value, int k, int near) {
    LifePart *part = open[value] ? &parts->items.items[open[value] - 1] : NULL;
    if (part && k - part->last <= near && k - part->first <= LONGEST) {
        part->last = k;
        part->uses++;
        return;
    }
    VEC_PUSH(m->arena, parts->items, (LifePart){k, k, 1, value, false, 0});
    open[value] = parts->items.count;
}

/* The value of source n as parts number it; 0: none. */
static int part_value(const Machine *m, const LifeParts *parts, const Code *c, int n) {
    return !parts->constants ? c->src[n] : c->src[n] ? m->regs.items[c->src[n]].constant : 0;
}

static Code copy_code(int to, int from) {
    return (Code){.op = X_P_COPY, .dst = to, .src = {from}, .count = 1, .scale = 1};
}

static void take_part(Machine *m, const LifeParts *parts, CodeBlock *block, LifePart *part) {
    part->reg = reg_new(m, CLASS_VECTOR);
    if (parts->constants)
        m->regs.items[part->reg].constant = part->value;
    else
        m->regs.items[part->reg].part = true;
    for (int k = part->first + part->makes; k <= part->last; k++) {
        Code *c = &block->code.items[k];
        for (int n = 0; n < c->count; n++)
            if (part_value(m, parts, c, n) == part->value) c->src[n] = part->reg;
    }
    if (part->makes) block->code.items[part->first].dst = part->reg;
}

/* least: uses that are worth a part; of one in which its value is made two are. */
static void take_parts(Machine *m, LifeParts *parts, CodeBlock *block, int least) {
    VEC(Code) code = {0};
    for (int k = 0, next = 0; k < block->code.count; k++) {
        int begin = next;
        for (; next < parts->items.count && parts->items.items[next].first == k; next++) {
            LifePart *part = &parts->items.items[next];
            if (part->uses < (part->makes ? 2 : least)) continue;
            take_part(m, parts, block, part);
            if (parts->constants)
                VEC_PUSH(m->arena, code, (Code){.op = X_P_VECTOR, .dst = part->reg, .length = 2, .scale = 1});
            else if (!part->makes)
                VEC_PUSH(m->arena, code, copy_code(part->reg, part->value));
        }
        VEC_PUSH(m->arena, code, block->code.items[k]);
        for (int n = begin; n < next; n++) {
            const LifePart *part = &parts->items.items[n];
            if (part->reg && part->makes) VEC_PUSH(m->arena, code, copy_code(part->value, part->reg));
        }
    }
    block->code.items = code.items;
    block->code.count = code.count;
    block->code.capacity = code.capacity;
}

/* The copies of an unrolled body ask for a constant one after the other. In memory it would cost each use a load, and where the
 * instruction has another operand there, an instruction. One that all of a long body asks for, as Philox for its factors, is in
 * several parts: somewhere in such a body there is no register, and the whole would get none. */
static void gather_constants(Machine *m, CodeBlock *block) {
    enum { NEAR = 48, LEAST = 3 }; /* instructions between two uses of a part; how many are worth one more */
    int *open = ARENA_ARRAY(m->arena, int, m->pool.count + 1);
    LifeParts parts = {.constants = true};
    for (int k = 0; k < block->code.count; k++) {
        const Code *c = &block->code.items[k];
        for (int n = 0; n < c->count; n++) {
            int constant = part_value(m, &parts, c, n);
            if (constant) note_use(m, &parts, open, constant, k, NEAR);
        }
    }
    take_parts(m, &parts, block, LEAST);
}

/* A value that finds no register is stored as well as loaded; a constant is in memory already. (With AVX-512 a GELU by tanh is as fast or a few
 * percent faster by 4 than by 1: an AMD EPYC of family 26. With 16 registers one of family 25 waits for loads: by 1 a chain of twenty
 * functions takes .89 of the time.) */
static double constant_weight(const Machine *m) { return m->avx512 ? 4 : 1; }

static bool is_stacked(const Machine *m, int reg) {
    const Reg *r = &m->regs.items[reg_find(m, reg)];
    return reg && r->class == CLASS_VECTOR && is_on_stack(r);
}

/* A value on the stack that is asked for several times within a few instructions, for all of whose life there was no register. Two uses take
 * it from memory themselves. */
static void split_lives(Machine *m, CodeBlock *block) {
    enum { NEAR = 12, LEAST = 3 };
    int *open = ARENA_ARRAY(m->arena, int, m->regs.count + 1);
    LifeParts parts = {0};
    for (int k = 0; k < block->code.count; k++) {
        const Code *c = &block->code.items[k];
        if (c->op == X_P_COPY) continue;
        for (int n = 0; n < c->count; n++)
            if (is_stacked(m, c->src[n])) note_use(m, &parts, open, c->src[n], k, NEAR);
        if (!is_stacked(m, c->dst)) continue;
        VEC_PUSH(m->arena, parts.items, (LifePart){k, k, 0, c->dst, true, 0});
        open[c->dst] = parts.items.count;
    }
    take_parts(m, &parts, block, LEAST);
}

/* --- all --- */

static Allocate find_places(Machine *m) {
    Allocate a = {.m = m};
    for (int r = 1; r < m->regs.count; r++) {
        const Reg *was = &m->regs.items[r];
        m->regs.items[r] = (Reg){
            .class = was->class, .constant = was->constant, .part = was->part, .same = r, .place = -1, .slot = -1};
    }
    memset(m->used, 0, sizeof m->used);
    memset(m->spills, 0, sizeof m->spills);
    find_live(&a);
    find_ranges(&a);
    unite_moves(&a);
    find_hints(&a);
    a.taken_words = (size_t)(2 * a.count + 63) / 64 + 1;
    int *order = ARENA_ARRAY(m->arena, int, m->regs.count), count = 0;
    for (int r = 1; r < m->regs.count; r++) {
        Reg *reg = &m->regs.items[r];
        int length = 0;
        if (reg->same != r || !reg->ranges.count) continue;
        for (int n = 0; n < reg->ranges.count; n++) length += reg->ranges.items[n].to - reg->ranges.items[n].from;
        if (reg->constant) reg->weight /= constant_weight(m);
        reg->weight /= length;
        order[count++] = r;
    }
    sorted = m;
    qsort(order, (size_t)count, sizeof *order, by_weight);
    for (RegClass class = 0; class < REG_CLASSES; class ++) {
        if (place_class(&a, order, count, class) || class == CLASS_INTEGER) continue;
        m->spills[class] = true;
        forget_places(&a, class);
        place_class(&a, order, count, class);
    }
    return a;
}

void allocate(Machine *m) {
    for (int n = 0; n < m->ir->blocks.count; n++)
        if (m->ir->blocks.items[n]->depth) gather_constants(m, &m->blocks[n]);
    Allocate a = find_places(m);
    if (m->spills[CLASS_VECTOR] && !m->avx512) {
        for (int n = 0; n < m->ir->blocks.count; n++)
            if (m->ir->blocks.items[n]->depth) split_lives(m, &m->blocks[n]);
        a = find_places(m);
    }
    give_slots(&a);
}
