/* SPDX-License-Identifier: Apache-2.0 */
/* Machine instructions -> bytes (Intel's manual, volume 2). Values on the stack or in the pool are an instruction's memory
 * operand where its form has one, else they go through the registers that are kept for that. */
#include "codegen/native/encode.h"
#include "codegen/llvm_plugin.h"

#include <stdlib.h>

const MachineRow machine_rows[MACHINE_OP_COUNT] = {
#define X(name, coding, map, pp, w, opcode, form, extra, unit) {#name, coding, map, pp, w, opcode, form, extra, unit},
    MACHINE_OPS(X)
#undef X
};

/* --- bytes --- */

static void byte(Machine *m, unsigned value) { VEC_PUSH(m->arena, m->bytes, (unsigned char)value); }

static void word(Machine *m, uint64_t value, int bytes) {
    for (int n = 0; n < bytes; n++) byte(m, (unsigned)(value >> 8 * n & 255));
}

/* ModRM, SIB, displacement. step: what a short displacement counts in; 0: there is none. */
static void memory_bytes(Machine *m, int reg, const Operand *rm, int step, int behind) {
    int low = (reg & 7) << 3;
    if (rm->pool) {
        byte(m, (unsigned)low | 5);
        VEC_PUSH(m->arena, m->fixes, (Fix){m->bytes.count, rm->pool - 1, 4 + behind});
        word(m, 0, 4);
        return;
    }
    int d = rm->displacement;
    bool none = d == 0 && (rm->base & 7) != RBP;
    bool small = !none && step && d % step == 0 && d / step >= -128 && d / step <= 127;
    int mode = none ? 0 : small ? 0x40 : 0x80;
    if (rm->index < 0 && (rm->base & 7) != RSP) {
        byte(m, (unsigned)(mode | low | (rm->base & 7)));
    } else {
        int scale = rm->scale == 8 ? 3 : rm->scale == 4 ? 2 : rm->scale == 2 ? 1 : 0;
        byte(m, (unsigned)(mode | low | 4));
        byte(m, (unsigned)(scale << 6 | (rm->index < 0 ? 4 : rm->index & 7) << 3 | (rm->base & 7)));
    }
    if (!none) word(m, (uint64_t)(int64_t)(small ? d / step : d), small ? 1 : 4);
}

static void evex(Machine *m, const MachineRow *row, const Encoded *e) {
    const Operand *rm = &e->rm;
    bool memory = rm->memory, scatters = memory && rm->vector_index;
    unsigned r = (unsigned)e->reg, v = scatters ? (unsigned)(rm->index & 16) : (unsigned)e->second;
    unsigned x = memory ? (rm->index >= 0 ? (unsigned)rm->index >> 3 & 1 : 0) : (unsigned)rm->base >> 4 & 1;
    unsigned b = (unsigned)rm->base >> 3 & 1;
    if (rm->pool) b = x = 0;
    byte(m, 0x62);
    byte(m, (~r >> 3 & 1) << 7 | (~x & 1) << 6 | (~b & 1) << 5 | (~r >> 4 & 1) << 4 | row->map);
    byte(m, (unsigned)row->w << 7 | (~v & 15) << 3 | 4u | row->pp);
    byte(m, (unsigned)e->zeroing << 7 | (unsigned)e->length << 5 | (unsigned)e->broadcast << 4 | (~v >> 4 & 1) << 3 |
                (unsigned)e->mask);
    byte(m, row->opcode);
}

/* l: of vectors their length; 1 for instructions on three masks. */
static void vex(Machine *m, const MachineRow *row, const Encoded *e, bool w, unsigned l) {
    const Operand *rm = &e->rm;
    unsigned r = (unsigned)e->reg, x = rm->memory && rm->index >= 0 ? (unsigned)rm->index >> 3 & 1 : 0;
    unsigned b = rm->pool ? 0 : (unsigned)rm->base >> 3 & 1, rest = (~(unsigned)e->second & 15) << 3 | l << 2 | row->pp;
    bool ignores_w = row->map == 1 && row->coding == BOTH && row->opcode != 0x2A && row->opcode != 0x2C &&
                     row->opcode != 0x6E && row->opcode != 0x7E; /* but to and from integer registers */
    if (row->map == 1 && (!w || ignores_w) && !x && !b) {
        byte(m, 0xC5);
        byte(m, (~r >> 3 & 1) << 7 | rest);
    } else {
        byte(m, 0xC4);
        byte(m, (~r >> 3 & 1) << 7 | (~x & 1) << 6 | (~b & 1) << 5 | row->map);
        byte(m, (unsigned)w << 7 | rest);
    }
    byte(m, row->opcode);
}

static bool is_evex(const Machine *m, const MachineRow *row) {
    return row->coding == EVEX || (row->coding == BOTH && m->avx512);
}

static bool on_vectors(const MachineRow *row) { return row->coding <= AVX; }

static bool of_bytes(int op) { return op == X_MOV_STORE8 || op == X_MOVZX8 || op == X_MOVSX8; }

static void plain(Machine *m, int op, const MachineRow *row, const Encoded *e, bool wide) {
    static const unsigned char prefixes[] = {0, 0x66, 0xF3, 0xF2};
    const Operand *rm = &e->rm;
    unsigned x = rm->memory && rm->index >= 0 ? (unsigned)rm->index >> 3 & 1 : 0, b = (unsigned)rm->base >> 3 & 1;
    if (rm->pool) b = x = 0;
    unsigned rex = (unsigned)(wide || row->w) << 3 | ((unsigned)e->reg >> 3 & 1) << 2 | x << 1 | b;
    if (row->pp) byte(m, prefixes[row->pp]);
    if (rex || of_bytes(op)) byte(m, 0x40 | rex);
    if (row->map) byte(m, 0x0F);
    byte(m, row->opcode);
}

static int step_of(const Machine *m, const MachineRow *row, const Encoded *e) {
    if (!is_evex(m, row)) return 1;
    if (row->unit == 0) return 0;
    if (row->unit == 1) return row->w ? 8 : 4;
    return e->broadcast ? row->unit : 16 << e->length;
}

static int immediate_bytes(int op, const MachineRow *row) {
    if (op >= X_ADD_I && op <= X_CMP_I) return 4;
    if (op == X_IMUL_I) return 4;
    if (op >= X_SHL_I && op <= X_SAR_I) return 1;
    return row->coding != PLAIN && (row->form == VM || row->extra) ? 1 : 0;
}

/* --- text --- */

static void list_register(Machine *m, int class, int number, int length, bool wide) {
    static const char *const names[] = {"ax", "cx", "dx", "bx", "sp", "bp", "si", "di"};
    if (class == CLASS_VECTOR)
        text_add(m->listing, "%cmm%d", "xyz"[length], number);
    else if (class == CLASS_MASK)
        text_add(m->listing, "k%d", number);
    else if (number < 8)
        text_add(m->listing, "%c%s", wide ? 'r' : 'e', names[number]);
    else
        text_add(m->listing, "r%d%s", number, wide ? "" : "d");
}

static void list_memory(Machine *m, const Operand *rm, bool broadcast) {
    if (rm->pool) {
        text_add(m->listing, "[constant %d]", rm->pool - 1);
    } else {
        text_add(m->listing, "[");
        list_register(m, CLASS_INTEGER, rm->base, 0, true);
        if (rm->index >= 0) {
            text_add(m->listing, " + ");
            list_register(m, rm->vector_index ? CLASS_VECTOR : CLASS_INTEGER, rm->index, 2, true);
            if (rm->scale > 1) text_add(m->listing, "*%d", rm->scale);
        }
        if (rm->displacement) text_add(m->listing, " %c %d", rm->displacement < 0 ? '-' : '+', abs(rm->displacement));
        text_add(m->listing, "]");
    }
    if (broadcast) text_add(m->listing, "{1toN}");
}

/* As VEX's instruction is called. */
static const char *own_name(const Machine *m, const MachineRow *row) {
    static const char *const others[][2] = {{"VRNDSCALEPS", "VROUNDPS"},
                                            {"VRNDSCALEPD", "VROUNDPD"},
                                            {"VRNDSCALESS", "VROUNDSS"},
                                            {"VRNDSCALESD", "VROUNDSD"},
                                            {"VPANDD", "VPAND"},
                                            {"VPANDQ", "VPAND"},
                                            {"VPORD", "VPOR"},
                                            {"VPORQ", "VPOR"},
                                            {"VPXORD", "VPXOR"},
                                            {"VPXORQ", "VPXOR"},
                                            {"VINSERTI32X4", "VINSERTI128"},
                                            {"VEXTRACTI32X4", "VEXTRACTI128"}};
    for (size_t n = 0; row->coding == BOTH && !m->avx512 && n < sizeof others / sizeof *others; n++)
        if (strcmp(row->name, others[n][0]) == 0) return others[n][1];
    return row->name;
}

static void list(Machine *m, int op, const Encoded *e, bool wide, int64_t imm) {
    const MachineRow *row = &machine_rows[op];
    char name[32];
    size_t length = 0;
    if (!m->listing) return;
    const char *own = own_name(m, row);
    for (; own[length] && own[length] != '_' && length < sizeof name - 1; length++)
        name[length] = (char)(own[length] >= 'A' ? own[length] | 0x20 : own[length]);
    name[length] = 0;
    text_add(m->listing, "    %-14s", name);
    bool first = true;
    bool masks_store = op == X_VMASKMOVPS_STORE || op == X_VMASKMOVPD_STORE;
    bool shown[3] = {row->form != VM && row->form != M, row->form == RVM || row->form == VM || masks_store, true};
    int order[] = {0, 1, 2};
    if (row->form == MR) order[0] = 2, order[1] = 1, order[2] = 0;
    for (int n = 0; n < 3; n++) {
        if (!shown[order[n]]) continue;
        if (!first) text_add(m->listing, ", ");
        if (order[n] == 2 && e->rm.memory)
            list_memory(m, &e->rm, e->broadcast);
        else
            list_register(m, e->classes[order[n]],
                          order[n] == 0   ? e->reg
                          : order[n] == 1 ? e->second
                                          : e->rm.base,
                          e->length, wide);
        if (first && e->mask && is_evex(m, row)) text_add(m->listing, " {k%d}%s", e->mask, e->zeroing ? "{z}" : "");
        first = false;
    }
    bool names_mask = op >= X_VBLENDVPS && op <= X_VPBLENDVB;
    if (names_mask) {
        text_add(m->listing, ", ");
        list_register(m, CLASS_VECTOR, (int)(imm >> 4), e->length, true);
    } else if (immediate_bytes(op, row)) {
        text_add(m->listing, ", %lld", (long long)imm);
    }
    text_add(m->listing, "\n");
}

void encode_one(Machine *m, int op, Encoded e, bool wide, int64_t imm) {
    const MachineRow *row = &machine_rows[op];
    int immediate = immediate_bytes(op, row);
    if (row->form == VM || row->form == M) e.reg = row->extra;
    list(m, op, &e, wide, imm);
    if (is_evex(m, row))
        evex(m, row, &e);
    else if (on_vectors(row))
        vex(m, row, &e, row->w, (unsigned)e.length);
    else if (row->coding == VEX)
        vex(m, row, &e, row->map == 2 ? wide : row->w, row->map == 1 && row->form == RVM);
    else
        plain(m, op, row, &e, wide);
    if (e.rm.memory)
        memory_bytes(m, e.reg, &e.rm, step_of(m, row, &e), immediate);
    else
        byte(m, 0xC0u | (unsigned)(e.reg & 7) << 3 | (unsigned)(e.rm.base & 7));
    word(m, (uint64_t)imm, immediate);
}

/* --- places of values --- */

enum { TEMPORARY = -128 }; /* below the stack, where a function that calls none may write */

static Place place_of(const Machine *m, int reg) {
    const Reg *r = &m->regs.items[reg_find(m, reg)];
    return (Place){r->class, r->place, r->slot, r->constant};
}

static Place real_place(RegClass class, int number) { return (Place){class, number, -1, 0}; }
static Operand in_register(int number) { return (Operand){.base = number, .index = -1}; }
static Operand in_frame(int displacement) {
    return (Operand){.memory = true, .base = RSP, .index = -1, .displacement = displacement};
}
static Operand in_pool(int constant) { return (Operand){.memory = true, .pool = constant, .index = -1}; }

static Encoded encoded(const Machine *m, RegClass class, int reg, Operand rm) {
    int length = class == CLASS_VECTOR ? whole_length(m) : 0;
    return (Encoded){.reg = reg, .rm = rm, .length = length, .classes = {class, class, class}};
}

static bool is_zero_constant(const Constant *c) {
    for (int n = 0; n < 8; n++)
        if (c->words[n]) return false;
    return true;
}

static void load_constant(Machine *m, int to, int constant) {
    const Constant *c = &m->pool.items[constant - 1];
    if (is_zero_constant(c)) {
        Encoded e = encoded(m, CLASS_VECTOR, to, in_register(to));
        e.second = to;
        encode_one(m, X_VPXORD, e, true, 0);
        return;
    }
    MachineOp eight = m->avx512 ? X_VPBROADCASTQ : X_VPBROADCASTQ_X;
    MachineOp op = c->bytes == 4 ? X_VBROADCASTSS : c->bytes == 8 ? eight : X_VMOVUPS_LOAD;
    encode_one(m, op, encoded(m, CLASS_VECTOR, to, in_pool(constant)), true, 0);
}

static void load_place(Machine *m, int to, Place from) {
    static const short moves[] = {X_MOV, X_VMOVUPS_LOAD, X_KMOVQ}, between[] = {X_MOV, X_VMOVAPS, X_KMOVQ};
    if (from.constant && from.number < 0)
        load_constant(m, to, from.constant);
    else if (from.number < 0)
        encode_one(m, moves[from.class], encoded(m, from.class, to, in_frame(from.slot)), true, 0);
    else if (from.number != to)
        encode_one(m, between[from.class], encoded(m, from.class, to, in_register(from.number)), true, 0);
}

static void store_place(Machine *m, Place to, int from) {
    static const short stores[] = {X_MOV_STORE, X_VMOVUPS_STORE, X_KMOVQ_STORE};
    if (to.number >= 0)
        load_place(m, to.number, real_place(to.class, from));
    else if (to.slot != -1)
        encode_one(m, stores[to.class], encoded(m, to.class, from, in_frame(to.slot)), true, 0);
}

/* Registers for values that have none, of one instruction. */
typedef struct Spare {
    int used[REG_CLASSES];
    bool taken[MOST_KEPT_VECTORS];
} Spare;

/* Of vectors the one that was asked for longest ago, for what it holds may be read again. */
static int spare_vector(Machine *m, Spare *s) {
    int oldest = -1;
    for (int n = 0; n < kept_vectors(m); n++)
        if (!s->taken[n] && (oldest < 0 || m->held[n].asked < m->held[oldest].asked)) oldest = n;
    if (oldest < 0) return -1;
    s->taken[oldest] = true;
    m->held[oldest] = (Held){.slot = -1, .asked = ++m->asked};
    return first_kept_vector(m) + oldest;
}

static int spare(Machine *m, Spare *s, RegClass class) {
    static const signed char all[REG_CLASSES][3] = {{RAX, RDX, -1}, {-1, -1, -1}, {KEPT_MASK, 0, -1}};
    int found = class == CLASS_VECTOR ? spare_vector(m, s) : s->used[class] < 3 ? all[class][s->used[class]] : -1;
    if (found < 0) {
        no_rule(m->ir, "an instruction with too many values on the stack");
        return 0;
    }
    s->used[class]++;
    return found;
}

static void forget_held(Machine *m) {
    for (int n = 0; n < kept_vectors(m); n++) m->held[n] = (Held){.slot = -1};
}

/* The place of a source: a kept register that has just held what is on the stack, too. */
static Place source_place(Machine *m, Spare *s, int reg) {
    Place place = place_of(m, reg);
    if (place.class != CLASS_VECTOR || place.number >= 0 || place.constant) return place;
    for (int n = 0; n < kept_vectors(m); n++) {
        if (m->held[n].slot != place.slot) continue;
        m->held[n].asked = ++m->asked;
        s->taken[n] = true;
        place.number = first_kept_vector(m) + n;
        break;
    }
    return place;
}

static void hold(Machine *m, Place place, int reg) {
    if (place.class == CLASS_VECTOR && !place.constant && reg >= first_kept_vector(m))
        m->held[reg - first_kept_vector(m)].slot = place.slot;
}

static int bring(Machine *m, Spare *s, Place place) {
    int reg = spare(m, s, place.class);
    load_place(m, reg, place);
    hold(m, place, reg);
    return reg;
}

/* Its slot is written: what registers hold of it is of before. */
static void forget_slot(Machine *m, Place place) {
    for (int n = 0; n < kept_vectors(m); n++)
        if (place.class == CLASS_VECTOR && m->held[n].slot == place.slot) m->held[n].slot = -1;
}

/* An instruction's result that lives on the stack. */
static void keep_result(Machine *m, Place to, int from) {
    forget_slot(m, to);
    store_place(m, to, from);
    hold(m, to, from);
}

static void move_place(Machine *m, Place to, Place from) {
    Spare none = {0};
    forget_slot(m, to);
    if (to.number >= 0) {
        load_place(m, to.number, from);
    } else if (from.number >= 0) {
        store_place(m, to, from.number);
    } else {
        int through = spare(m, &none, to.class);
        load_place(m, through, from);
        store_place(m, to, through);
    }
}

static bool same_place(Place a, Place b) {
    if (a.class != b.class) return false;
    return a.number >= 0 ? a.number == b.number : b.number < 0 && a.slot == b.slot && a.constant == b.constant;
}

/* All at once: first those whose goal nobody reads any more; where a ring is left, one of its values waits below the
 * stack. */
static void moves_at_once(Machine *m, Place *to, Place *from, int count) {
    for (int left = count; left;) {
        bool moved = false;
        int kept = 0;
        for (int n = 0; n < left; n++) {
            bool read = false;
            for (int k = 0; k < left && !read; k++)
                read = k != n && same_place(from[k], to[n]) && !same_place(from[k], to[k]);
            if (same_place(to[n], from[n]) || !read) {
                if (!same_place(to[n], from[n])) move_place(m, to[n], from[n]);
                from[n] = to[n];
                moved = true;
            }
        }
        for (int n = 0; n < left; n++)
            if (!same_place(to[n], from[n])) {
                to[kept] = to[n];
                from[kept++] = from[n];
            }
        left = kept;
        if (moved || !left) continue;
        Place wait = {to[0].class, -1, TEMPORARY, 0};
        move_place(m, wait, to[0]);
        for (int k = 0; k < left; k++)
            if (same_place(from[k], to[0])) from[k] = wait;
    }
}

static void parallel_moves(Machine *m, const Code *c, bool parameters) {
    static const signed char arguments[] = {RDI, RSI, RDX, RCX, 8};
    Place *to = ARENA_ARRAY(m->arena, Place, c->move_count + 1),
          *from = ARENA_ARRAY(m->arena, Place, c->move_count + 1);
    int count = 0;
    for (int n = 0; n < c->move_count; n++) {
        Place goal = place_of(m, c->moves[n].to);
        if (goal.number < 0 && goal.slot == -1) continue; /* nobody reads it */
        to[count] = goal;
        from[count++] =
            parameters ? real_place(CLASS_INTEGER, arguments[c->moves[n].from]) : place_of(m, c->moves[n].from);
    }
    moves_at_once(m, to, from, count);
}

/* --- an instruction's operands --- */

static Operand memory_operand(Machine *m, const Code *c, Spare *s) {
    if (c->pool) return in_pool(c->pool);
    Operand rm = {.memory = true, .base = RSP, .index = -1, .scale = c->scale, .displacement = c->displacement};
    bool vector_index = false;
    if (!c->frame) {
        Place base = place_of(m, c->base);
        rm.base = base.number < 0 ? bring(m, s, base) : base.number;
    }
    if (c->index) {
        Place index = source_place(m, s, c->index);
        vector_index = index.class == CLASS_VECTOR;
        rm.index = index.number;
        if (rm.index < 0) {
            rm.index = bring(m, s, index);
            if (s->used[CLASS_INTEGER] == 2 && !vector_index) { /* both: their sum, so that one is free again */
                Operand sum = rm;
                sum.displacement = 0;
                encode_one(m, X_LEA, encoded(m, CLASS_INTEGER, RAX, sum), true, 0);
                rm.base = RAX;
                rm.index = -1;
                s->used[CLASS_INTEGER] = 1;
            }
        }
    }
    rm.vector_index = vector_index;
    return rm;
}

/* The last source from memory: a broadcast element, or all of it. */
static Operand spilled_operand(Machine *m, const MachineRow *row, Place from, bool *out_broadcast) {
    *out_broadcast = false;
    if (!from.constant) return in_frame(from.slot);
    Constant *c = &m->pool.items[from.constant - 1];
    if (is_evex(m, row) && ((row->unit == 4 && c->bytes == 4) || (row->unit == 8 && c->bytes <= 8)))
        *out_broadcast = true;
    else if (row->unit != 1 && c->bytes < whole_bytes(m))
        c->bytes = whole_bytes(m);
    return in_pool(from.constant);
}

/* Whether its last source may be a vector on the stack or a constant. */
static bool reads_memory(const Code *c) {
    const MachineRow *row = &machine_rows[c->op];
    return on_vectors(row) && (row->form == RVM || row->form == RM) && !c->memory &&
           !(c->op >= X_VMOVD_TO && c->op <= X_VMOVQ_TO);
}

/* For a result on the stack, which begins as that source or may take its register, where no other is left. */
static int result_register(Machine *m, Spare *s, Place result, Place source) {
    bool all = result.class == CLASS_VECTOR;
    for (int n = 0; n < kept_vectors(m); n++) all &= s->taken[n];
    return all && source.number >= first_kept_vector(m) ? source.number : spare(m, s, result.class);
}

static bool commutes(int op) {
    bool whole = op == X_ADD || op == X_IMUL || op == X_AND || op == X_OR || op == X_XOR;
    bool floats = op == X_VADDPS || op == X_VADDPD || op == X_VMULPS || op == X_VMULPD;
    bool words = (op >= X_VPADDB && op <= X_VPADDQ) || (op >= X_VPMULLW && op <= X_VPXORQ) ||
                 (op >= X_VPMINSB && op <= X_VPMAXUQ);
    return whole || floats || words;
}

static void swap_places(Place *places) {
    Place first = places[0];
    places[0] = places[1];
    places[1] = first;
}

static void encode_general(Machine *m, const Code *c) {
    const MachineRow *row = &machine_rows[c->op];
    Spare s = {0};
    int regs[3] = {-1, -1, -1}, dst = -1;
    Encoded e = {.length = c->length, .zeroing = c->zeroing, .rm = {.index = -1}};
    Place result = {0}, places[3];
    for (int n = 0; n < c->count; n++) places[n] = source_place(m, &s, c->src[n]);
    int64_t imm = c->imm;
    if (c->mask) {
        Place mask = source_place(m, &s, c->mask);
        int number = mask.number < 0 ? bring(m, &s, mask) : mask.number;
        if (is_evex(m, row))
            e.mask = number;
        else if (row->extra)
            imm = number << 4;
        else
            e.second = number;
    }
    if (c->memory) e.rm = memory_operand(m, c, &s);
    if (c->dst) {
        result = place_of(m, c->dst);
        dst = result.number;
        if (dst < 0 && c->tied) dst = result_register(m, &s, result, places[0]);
    }
    bool either = c->count == 2 && commutes(c->op);
    if (either && !c->tied && reads_memory(c) && places[0].number < 0 && places[1].number >= 0) swap_places(places);
    if (c->tied) {
        if (either && places[1].number == dst && places[0].number != dst) swap_places(places);
        load_place(m, dst, places[0]);
        regs[0] = dst;
    }
    for (int n = c->tied; n < c->count; n++) {
        regs[n] = places[n].number;
        if (regs[n] >= 0) continue;
        if (n == c->count - 1 && reads_memory(c) && places[n].class == CLASS_VECTOR && (n > 0 || row->form == RM)) {
            e.rm = spilled_operand(m, row, places[n], &e.broadcast);
            continue;
        }
        regs[n] = bring(m, &s, places[n]);
    }
    if (c->dst && dst < 0) {
        static const signed char again[] = {RAX, -1, KEPT_MASK};
        bool over = result.class != CLASS_VECTOR && s.used[result.class] && !c->early;
        Place first = real_place(CLASS_VECTOR, c->early ? -1 : regs[0]);
        dst = over ? again[result.class] : result_register(m, &s, result, first);
    }
    int last = c->count ? regs[c->count - 1] : -1;
    bool memory = e.rm.memory;
    for (int n = 0; n < 3; n++) e.classes[n] = c->dst || !c->count ? CLASS_VECTOR : places[0].class;
    if (c->dst) e.classes[row->form == MR ? 2 : row->form == VM ? 1 : 0] = result.class;
    if (c->count) e.classes[row->form == MR ? 0 : 2] = places[c->count - 1].class;
    if (row->form == RVM && c->count > 1 && !memory) e.classes[1] = places[c->count - 2].class;
    switch ((Form)row->form) {
    case RVM: { /* tied ones have the result for a source beside these; of a masked load the mask is all */
        int first = c->tied ? 1 : 0, own = c->count - first;
        e.reg = dst;
        if (c->count > first) e.second = regs[first];
        if (!memory) e.rm = in_register(own > 1 ? last : regs[first]);
        break;
    }
    case RM:
        e.reg = c->dst ? dst : regs[0];
        if (!memory) e.rm = in_register(last);
        break;
    case MR:
        e.reg = regs[0];
        if (!memory) e.rm = in_register(dst);
        break;
    case VM:
        e.second = dst;
        if (!memory) e.rm = in_register(last);
        break;
    case M:
        if (!memory) e.rm = in_register(c->dst ? dst : regs[0]);
        e.classes[2] = CLASS_INTEGER;
        break;
    case NONE: break;
    }
    encode_one(m, c->op, e, c->wide, imm);
    if (c->dst && result.number < 0) keep_result(m, result, dst);
}

/* --- what is more than one instruction --- */

/* a * b + c in the form that overwrites the operand whose register the result has: 132 (a = a * c' + b'), 213, 231. */
static void encode_fma(Machine *m, const Code *c) {
    static const int kinds[] = {X_VFMADD132PS, X_VFMSUB132PS, X_VFNMADD132PS, X_VFNMSUB132PS};
    int variant = (int)c->imm & 15, flags = (int)c->imm >> 4;
    int kind = kinds[(flags & FMA_NEG_PRODUCT ? 2 : 0) + (flags & FMA_NEG_ADDEND ? 1 : 0)] + variant;
    const MachineRow *row = &machine_rows[kind];
    Spare s = {0};
    Place places[3] = {0}, result = place_of(m, c->dst);
    int memory = c->memory_at, dst = result.number, regs[3];
    Encoded e = {.length = c->length, .rm = {.index = -1}, .classes = {CLASS_VECTOR, CLASS_VECTOR, CLASS_VECTOR}};
    for (int n = 0; n < 3; n++)
        if (n != c->memory_at) places[n] = source_place(m, &s, c->src[n]);
    if (c->memory) e.rm = memory_operand(m, c, &s);
    if (dst < 0) dst = result_register(m, &s, result, places[2]);
    for (int n = 2; n >= 0 && memory == 3; n--)
        if (places[n].number < 0) { /* one of them may stay where it is */
            memory = n;
            e.rm = spilled_operand(m, row, places[n], &e.broadcast);
        }
    if (memory == 3) memory = -1;
    for (int n = 0; n < 3; n++) regs[n] = n == memory ? -1 : places[n].number;
    /* which operand the result overwrites: one that has its register, else one is brought there */
    int over = -1;
    for (int n = 2; n >= 0; n--)
        if (n != memory && regs[n] == dst) over = n;
    if (over < 0) {
        over = memory == 2 ? 0 : 2;
        for (int n = 2; n >= 0; n--)
            if (n != memory && regs[n] < 0) over = n; /* has to be loaded anyway */
        load_place(m, dst, places[over]);
        regs[over] = dst;
    }
    for (int n = 0; n < 3; n++)
        if (n != memory && regs[n] < 0) regs[n] = bring(m, &s, places[n]);
    int order; /* 0: 132, 1: 213, 2: 231 */
    int second, last;
    if (over == 2) {
        order = 2;
        last = memory >= 0 ? memory : 1;
        second = 1 - last;
    } else if (memory == 1 - over) {
        order = 0;
        last = memory;
        second = 2;
    } else {
        order = 1;
        last = 2;
        second = 1 - over;
    }
    e.reg = dst;
    e.second = regs[second];
    if (memory < 0) e.rm = in_register(regs[last]);
    encode_one(m, kind + 4 * order, e, true, 0);
    if (result.number < 0) keep_result(m, result, dst);
}

static void encode_constant(Machine *m, const Code *c) {
    Place result = place_of(m, c->dst);
    unsigned to = result.number < 0 ? RAX : (unsigned)result.number;
    if (m->listing) {
        text_add(m->listing, "    %-14s", "mov");
        list_register(m, CLASS_INTEGER, (int)to, 0, true);
        text_add(m->listing, ", %lld\n", (long long)c->imm);
    }
    bool low = (uint64_t)c->imm >> 32 == 0, negative = c->imm == (int32_t)c->imm;
    if (low) {
        if (to > 7) byte(m, 0x41);
        byte(m, 0xB8 | (to & 7));
        word(m, (uint64_t)c->imm, 4);
    } else {
        byte(m, 0x48 | (to > 7));
        byte(m, negative ? 0xC7 : 0xB8 | (to & 7));
        if (negative) byte(m, 0xC0 | (to & 7));
        word(m, (uint64_t)c->imm, negative ? 4 : 8);
    }
    if (result.number < 0) store_place(m, result, (int)to);
}

static void list_text(Machine *m, const char *text) {
    if (m->listing) text_add(m->listing, "    %s\n", text);
}

static void encode_set(Machine *m, const Code *c) {
    Place result = place_of(m, c->dst);
    int to = result.number < 0 ? RAX : result.number;
    list_text(m, "setcc");
    byte(m, 0x40 | (to > 7));
    byte(m, 0x0F);
    byte(m, 0x90u | c->condition);
    byte(m, 0xC0u | (unsigned)(to & 7));
    encode_one(m, X_MOVZX8, encoded(m, CLASS_INTEGER, to, in_register(to)), false, 0);
    if (result.number < 0) store_place(m, result, to);
}

static void encode_cmov(Machine *m, const Code *c) {
    Place result = place_of(m, c->dst), yes = place_of(m, c->src[1]);
    int to = result.number < 0 ? RAX : result.number, from = yes.number < 0 ? RDX : yes.number;
    load_place(m, to, place_of(m, c->src[0]));
    if (yes.number < 0) load_place(m, from, yes);
    list_text(m, "cmovcc");
    byte(m, 0x40u | (unsigned)c->wide << 3 | (unsigned)(to > 7) << 2 | (from > 7));
    byte(m, 0x0F);
    byte(m, 0x40u | c->condition);
    byte(m, 0xC0u | (unsigned)(to & 7) << 3 | (unsigned)(from & 7));
    if (result.number < 0) store_place(m, result, to);
}

static void encode_divide(Machine *m, const Code *c) {
    bool is_signed = c->imm == IR_SDIV || c->imm == IR_SREM, quotient = c->imm == IR_SDIV || c->imm == IR_UDIV;
    Place by = place_of(m, c->src[1]);
    Operand rm = by.number < 0 ? in_frame(by.slot) : in_register(by.number);
    load_place(m, RAX, place_of(m, c->src[0]));
    if (is_signed) {
        if (c->wide) byte(m, 0x48);
        byte(m, 0x99);
        list_text(m, "cqo");
    } else {
        encode_one(m, X_XOR, encoded(m, CLASS_INTEGER, RDX, in_register(RDX)), false, 0);
    }
    list_text(m, is_signed ? "idiv" : "div");
    byte(m, 0x40u | (unsigned)c->wide << 3 | (unsigned)(rm.base > 7));
    byte(m, 0xF7);
    if (rm.memory)
        memory_bytes(m, is_signed ? 7 : 6, &rm, 1, 0);
    else
        byte(m, 0xC0u | (is_signed ? 7u : 6u) << 3 | (unsigned)(rm.base & 7));
    store_place(m, place_of(m, c->dst), quotient ? RAX : RDX);
}

/* --- control --- */

static bool emits_nothing(const Machine *m, const Block *block) {
    const CodeBlock *codes = &m->blocks[block->order];
    if (!codes->code.count || codes->code.items[codes->code.count - 1].op != X_P_JUMP) return false;
    for (int k = 0; k < codes->code.count - 1; k++) {
        const Code *c = &codes->code.items[k];
        if (c->op == X_P_COPY && same_place(place_of(m, c->dst), place_of(m, c->src[0]))) continue;
        if (c->op != X_P_MOVES) return false;
        for (int n = 0; n < c->move_count; n++)
            if (!same_place(place_of(m, c->moves[n].to), place_of(m, c->moves[n].from))) return false;
    }
    return true;
}

static const Block *goal(const Machine *m, const Block *block) {
    for (int n = 0; n < 64 && emits_nothing(m, block); n++)
        block = m->blocks[block->order].code.items[m->blocks[block->order].code.count - 1].to;
    return block;
}

static bool follows(const Machine *m, const Block *block, const Block *next) {
    int n = block->order + 1;
    while (n < next->order && emits_nothing(m, m->ir->blocks.items[n])) n++;
    return n == next->order;
}

static void jump(Machine *m, const Block *to, int condition) {
    static const char *const names[] = {"", "", "jb", "jae", "je", "jne", "jbe", "ja",
                                        "", "", "",   "",    "jl", "jge", "jle", "jg"};
    if (m->listing) text_add(m->listing, "    %-14sblock_%d\n", condition < 0 ? "jmp" : names[condition], to->order);
    if (condition < 0) {
        byte(m, 0xE9);
    } else {
        byte(m, 0x0F);
        byte(m, 0x80u | (unsigned)condition);
    }
    VEC_PUSH(m->arena, m->jumps, (Jump){m->bytes.count, to->order});
    word(m, 0, 4);
}

static void encode_if(Machine *m, const Block *block, const Code *c) {
    const Block *yes = goal(m, c->to), *no = goal(m, c->other);
    if (yes != no && follows(m, block, yes)) {
        jump(m, no, c->condition ^ 1);
        return;
    }
    if (yes != no) jump(m, yes, c->condition);
    if (!follows(m, block, no)) jump(m, no, NO_CONDITION);
}

static const signed char kept[] = {RBX, RBP, 12, 13, 14, 15}; /* for the caller */

static void push_or_pop(Machine *m, int reg, bool pop) {
    if (m->listing) {
        text_add(m->listing, "    %-14s", pop ? "pop" : "push");
        list_register(m, CLASS_INTEGER, reg, 0, true);
        text_add(m->listing, "\n");
    }
    if (reg > 7) byte(m, 0x41);
    byte(m, (pop ? 0x58u : 0x50u) | (unsigned)(reg & 7));
}

/* The frame lies on a multiple of 64 bytes; the caller's stack pointer above it. */
static void prologue(Machine *m) {
    for (size_t n = 0; n < sizeof kept; n++)
        if (m->used[CLASS_INTEGER] >> kept[n] & 1) push_or_pop(m, kept[n], false);
    if (!m->frame) return;
    encode_one(m, X_MOV, encoded(m, CLASS_INTEGER, RAX, in_register(RSP)), true, 0);
    encode_one(m, X_AND_I, encoded(m, CLASS_INTEGER, 0, in_register(RSP)), true, -64);
    encode_one(m, X_SUB_I, encoded(m, CLASS_INTEGER, 0, in_register(RSP)), true, m->frame + 64);
    encode_one(m, X_MOV_STORE, encoded(m, CLASS_INTEGER, RAX, in_frame((int)m->frame)), true, 0);
}

static void epilogue(Machine *m) {
    if (m->frame) encode_one(m, X_MOV, encoded(m, CLASS_INTEGER, RSP, in_frame((int)m->frame)), true, 0);
    for (int n = (int)sizeof kept - 1; n >= 0; n--)
        if (m->used[CLASS_INTEGER] >> kept[n] & 1) push_or_pop(m, kept[n], true);
    list_text(m, "vzeroupper");
    byte(m, 0xC5), byte(m, 0xF8), byte(m, 0x77);
    list_text(m, "ret");
    byte(m, 0xC3);
}

static void encode_code(Machine *m, const Block *block, const Code *c) {
    switch ((MachineOp)c->op) {
    case X_P_COPY: {
        Place to = place_of(m, c->dst), from = place_of(m, c->src[0]);
        if (to.number < 0 && to.slot == -1) return;
        if (!same_place(to, from)) move_place(m, to, from);
        return;
    }
    case X_P_CONSTANT: encode_constant(m, c); return;
    case X_P_VECTOR: {
        Place to = place_of(m, c->dst);
        if (to.number >= 0) load_constant(m, to.number, m->regs.items[c->dst].constant);
        return;
    }
    case X_P_MOVES: parallel_moves(m, c, false); return;
    case X_P_PARAMETERS: parallel_moves(m, c, true); return;
    case X_P_FMA: encode_fma(m, c); return;
    case X_P_SET: encode_set(m, c); return;
    case X_P_CMOV: encode_cmov(m, c); return;
    case X_P_DIVIDE: encode_divide(m, c); return;
    case X_P_JUMP: {
        const Block *to = goal(m, c->to);
        if (!follows(m, block, to)) jump(m, to, NO_CONDITION);
        return;
    }
    case X_P_IF: encode_if(m, block, c); return;
    case X_P_RETURN: epilogue(m); return;
    case X_P_FENCE:
        list_text(m, "sfence");
        byte(m, 0x0F), byte(m, 0xAE), byte(m, 0xF8);
        return;
    default: encode_general(m, c);
    }
}

/* Loops begin on a multiple of 32 bytes, for the processor fetches as many at once. */
static void align_loop(Machine *m) {
    static const unsigned char nops[][9] = {{0x90},
                                            {0x66, 0x90},
                                            {0x0F, 0x1F, 0},
                                            {0x0F, 0x1F, 0x40, 0},
                                            {0x0F, 0x1F, 0x44, 0, 0},
                                            {0x66, 0x0F, 0x1F, 0x44, 0, 0},
                                            {0x0F, 0x1F, 0x80, 0, 0, 0, 0},
                                            {0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0},
                                            {0x66, 0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0}};
    for (int left = -m->bytes.count & 31; left;) {
        int take = left < 9 ? left : 9;
        for (int n = 0; n < take; n++) byte(m, nops[take - 1][n]);
        left -= take;
    }
}

static void place_constants(Machine *m) {
    while (m->bytes.count % 64) byte(m, 0xCC);
    for (int size = 64; size >= 8; size /= 2) /* the small ones take eight bytes, for both sizes of broadcasts */
        for (int n = 0; n < m->pool.count; n++) {
            Constant *c = &m->pool.items[n];
            if ((c->bytes < 8 ? 8 : c->bytes) != size) continue;
            c->offset = m->bytes.count;
            for (int w = 0; w < size / 8; w++) word(m, (uint64_t)c->words[w], 8);
        }
}

static void patch(Machine *m, int at, int value) { memcpy(m->bytes.items + at, &value, sizeof value); }

void encode(Machine *m) {
    const IrBuilder *b = m->ir;
    m->block_at = ARENA_ARRAY(m->arena, int, b->blocks.count + 1);
    if (m->listing) text_add(m->listing, "%s:\n", KERNEL_SYMBOL);
    prologue(m);
    for (int n = 0; n < b->blocks.count; n++) {
        const Block *block = b->blocks.items[n];
        bool silent = emits_nothing(m, block);
        if (block->loop == block) align_loop(m);
        m->block_at[n] = m->bytes.count;
        if (silent) continue;
        if (m->listing) text_add(m->listing, "block_%d:\n", n);
        forget_held(m);
        for (int k = 0; k < m->blocks[n].code.count; k++) encode_code(m, block, &m->blocks[n].code.items[k]);
    }
    m->code_bytes = (size_t)m->bytes.count;
    place_constants(m);
    for (int n = 0; n < m->jumps.count; n++) {
        Jump *j = &m->jumps.items[n];
        patch(m, j->at, m->block_at[j->block] - j->at - 4);
    }
    for (int n = 0; n < m->fixes.count; n++) {
        Fix *f = &m->fixes.items[n];
        patch(m, f->at, m->pool.items[f->constant].offset - f->at - f->behind);
    }
}
