/* SPDX-License-Identifier: Apache-2.0 */
/* The renderer's calls that move lanes. */
#include "codegen/native/ir.h"

Inst *part_of(IrBuilder *b, Inst *x, int from, int lanes) {
    IrType type = ir_lanes(x->element, lanes);
    if (lanes == x->lanes) return x;
    if (x->op == I_VCONST) return inst_constant(b, type, x->bits + from);
    if (x->op == I_SPLAT && lanes > 1) return inst_add(b, I_SPLAT, type, x->args[0], NULL, NULL);
    if (x->op == I_JOIN && lanes == x->args[0]->lanes && from % lanes == 0) return x->args[from / lanes];
    Inst *i = inst_add(b, I_PART, type, x, NULL, NULL);
    i->imm = from;
    return i;
}

Inst *join(IrBuilder *b, Inst **pieces, int count) {
    Inst *all[MOST_PARTS];
    memcpy(all, pieces, (size_t)count * sizeof *all);
    for (; count > 1; count /= 2)
        for (int n = 0; n < count / 2; n++) {
            IrType type = ir_lanes(all[2 * n]->element, 2 * all[2 * n]->lanes);
            all[n] = inst_add(b, I_JOIN, type, all[2 * n], all[2 * n + 1], NULL);
        }
    return all[0];
}

Inst *mask_part(IrBuilder *b, IrValue mask, IrType like, int part) {
    if (!b->avx512) return condition_lanes(b, mask, ir_bits(like))->parts[part];
    int lanes = part_lanes(b, like);
    return part_of(b, mask->parts[0], part * lanes, lanes);
}

IrValue build_splat(IrBuilder *b, IrValue scalar, int lanes) {
    IrType type = ir_lanes(ir_element(scalar->type), lanes);
    Inst *x = scalar->parts[0];
    IrValue v = native_value_new(b, type);
    if (x->op == I_CONST || x->op == I_VCONST) return ir_int(b, type, x->op == I_CONST ? x->imm : x->bits[0]);
    if (x->op == I_UNDEFINED && !x->variable) return ir_undefined(b, type);
    if (is_lane_condition(type) && !b->avx512)
        return condition_of_lanes(b, build_splat(b, build_cast(b, IR_SEXT, scalar, IR_I32), lanes));
    for (int p = 0; p < v->count; p++) v->parts[p] = inst_add(b, I_SPLAT, part_type(b, type), x, NULL, NULL);
    return v;
}

IrValue build_extract(IrBuilder *b, IrValue vector, int lane) {
    if (is_lane_condition(vector->type) && !b->avx512)
        return build_cast(b, IR_CUT, build_extract(b, condition_lanes(b, vector, 32), lane), IR_I1);
    int own = part_lanes(b, vector->type);
    Inst *x = vector->parts[lane / own];
    lane %= own;
    if (x->op == I_SPLAT) return native_value(b, x->element, x->args[0]);
    if (x->op == I_VCONST) return ir_int(b, x->element, x->bits[lane]);
    Inst *one = lane || x->element == IR_I1 ? part_of(b, x, lane, 1) : x;
    return native_value(b, x->element, inst_add(b, I_FIRST, x->element, one, NULL, NULL));
}

static IrValue placed(IrBuilder *b, IrValue vector, Inst *piece, int lane) {
    IrValue v = native_value_new(b, vector->type);
    int own = part_lanes(b, vector->type);
    memcpy(v->parts, vector->parts, sizeof v->parts);
    Inst *i = inst_add(b, I_PLACE, part_type(b, v->type), vector->parts[lane / own], piece, NULL);
    i->imm = lane % own;
    v->parts[lane / own] = i;
    return v;
}

IrValue build_insert(IrBuilder *b, IrValue vector, IrValue scalar, int lane) {
    if (ir_element(vector->type) == IR_I1) no_rule(b, "a condition put into a mask");
    return placed(b, vector, scalar->parts[0], lane);
}

IrValue build_insert_lanes(IrBuilder *b, IrValue vector, IrValue piece, int lane) {
    return placed(b, vector, piece->parts[0], lane);
}

/* --- shuffles --- */

static bool runs_from(const int *from, int lanes, int start) {
    for (int n = 0; n < lanes; n++)
        if (from[n] >= 0 && from[n] != start + n) return false;
    return true;
}

/* Interleaving of the low or high halves of each 16 bytes of x and y. */
static bool unpacks(const int *from, int lanes, int group, int all, bool high) {
    for (int n = 0; n < lanes; n++) {
        int at = n / group * group + n % group / 2 + (high ? group / 2 : 0) + (n & 1) * all;
        if (from[n] >= 0 && from[n] != at) return false;
    }
    return true;
}

/* The even or odd groups of 16 bytes of x, then of y. */
static bool takes_groups(const int *from, int lanes, int group, bool odd) {
    for (int n = 0; n < lanes; n++)
        if (from[n] >= 0 && from[n] != (n / group * 2 + odd) * group + n % group) return false;
    return true;
}

/* Lanes of one register as AVX2 has it: within 16 bytes by bytes, else by 32 bits. from[n] < 0: any. */
static Inst *permuted(IrBuilder *b, Inst *x, const int *from, IrType type) {
    int lanes = ir_lane_count(type), bytes = ir_bits(type) / 8, unit, count;
    bool stays = true, within = true;
    for (int n = 0; n < lanes; n++) {
        stays &= from[n] < 0 || from[n] == n;
        within &= from[n] < 0 || from[n] * bytes / 16 == n * bytes / 16;
    }
    if (stays) return x;
    if (!within && bytes < 4) {
        no_rule(b, "a shuffle of narrow lanes");
        return x;
    }
    unit = within ? 1 : 4;
    count = lanes * bytes / unit;
    int64_t indices[MOST_LANES];
    for (int n = 0; n < count; n++) {
        int lane = n * unit / bytes, at = from[lane] < 0 ? 0 : from[lane] * bytes / unit + n % (bytes / unit);
        indices[n] = within ? at % 16 : at;
    }
    Inst *by = inst_constant(b, ir_lanes(within ? IR_I8 : IR_I32, count), indices);
    return inst_add(b, I_PERMUTE, type, x, by, NULL);
}

/* Likewise of two, and then of both those that are wanted. */
static Inst *permuted_both(IrBuilder *b, Inst *x, Inst *y, const int *from, IrType type) {
    int lanes = ir_lane_count(type), own[2][MOST_LANES];
    int64_t second[MOST_LANES];
    bool used[2] = {false, false};
    for (int n = 0; n < lanes; n++) {
        bool of = from[n] >= lanes;
        own[of][n] = from[n] < 0 ? -1 : from[n] % lanes;
        own[!of][n] = -1;
        second[n] = -of;
        used[of] |= from[n] >= 0;
    }
    if (!used[1]) return permuted(b, x, own[0], type);
    Inst *v = permuted(b, y, own[1], type);
    if (!used[0]) return v;
    Inst *mask = inst_constant(b, ir_lanes(integer_of_bits(ir_bits(type)), lanes), second);
    return inst_add(b, I_SELECT, type, mask, v, permuted(b, x, own[0], type));
}

static Inst *shuffled(IrBuilder *b, Inst *x, Inst *y, const int *from, IrType type) {
    int lanes = ir_lane_count(type), group = 128 / ir_bits(type);
    if (x->lanes == lanes && lanes >= group && x->element != IR_I1)
        for (int kind = 0; kind < 2; kind++) {
            bool whole = lanes > group && takes_groups(from, lanes, group, kind);
            if (!whole && !unpacks(from, lanes, group, x->lanes, kind)) continue;
            Inst *i = inst_add(b, whole ? I_GROUPS : I_UNPACK, type, x, y, NULL);
            i->kind = (unsigned char)kind;
            return i;
        }
    if (x->lanes != lanes || (ir_bits(type) < 16 && b->avx512) || lanes < 2) {
        no_rule(b, "a shuffle");
        return x;
    }
    if (!b->avx512) return permuted_both(b, x, y, from, type);
    int64_t indices[MOST_LANES];
    for (int n = 0; n < lanes; n++) indices[n] = from[n] < 0 ? 0 : from[n];
    IrType integers = ir_lanes(integer_of_bits(ir_bits(type)), lanes);
    /* one below 16 bytes: the second source begins where the register's lanes end */
    int held = lanes * ir_bits(type) < 128 ? group : lanes;
    for (int n = 0; n < lanes; n++)
        if (indices[n] >= lanes) indices[n] += held - lanes;
    return inst_add(b, I_PERMUTE, type, x, y, inst_constant(b, integers, indices));
}

/* Whether each register of the result has lanes of those at its place of x and y alone. */
static bool takes_own_parts(const int *from, int lanes, int own, int all) {
    for (int n = 0; n < lanes; n++)
        if (from[n] >= 0 && from[n] % all / own != n / own) return false;
    return true;
}

IrValue build_shuffle(IrBuilder *b, IrValue x, IrValue y, const int *from, int lanes) {
    if (is_lane_condition(x->type) && !b->avx512) {
        IrValue u = condition_lanes(b, x, 32), v = condition_lanes(b, y, 32);
        return condition_of_lanes(b, build_shuffle(b, u, v, from, lanes));
    }
    IrType type = ir_lanes(ir_element(x->type), lanes);
    int own = part_lanes(b, x->type), all = ir_lane_count(x->type), start = from[0] < 0 ? 0 : from[0];
    if (part_count(b, type) == 1 && runs_from(from, lanes, start) && start % own + lanes <= own)
        return native_value(b, type, part_of(b, (start < all ? x : y)->parts[start % all / own], start % own, lanes));
    if (runs_from(from, lanes, start) && start % own == 0 && lanes % own == 0) {
        IrValue v = native_value_new(b, type);
        if (v->count == lanes / own) {
            for (int p = 0; p < v->count; p++) {
                int at = start + p * own;
                v->parts[p] = (at < all ? x : y)->parts[at % all / own];
            }
            return v;
        }
        Inst *pieces[MOST_PARTS] = {0};
        for (int p = 0; p < lanes / own && p < MOST_PARTS; p++) {
            int at = start + p * own;
            pieces[p] = (at < all ? x : y)->parts[at % all / own];
        }
        if (part_count(b, type) == 1) return native_value(b, type, join(b, pieces, lanes / own));
    }
    if (!b->avx512 && x->count > 1 && x->count == part_count(b, type) && takes_own_parts(from, lanes, own, all)) {
        IrValue v = native_value_new(b, type);
        for (int p = 0; p < v->count; p++) {
            int part[MOST_LANES];
            for (int n = 0; n < own; n++) {
                int at = from[p * own + n];
                part[n] = at < 0 ? -1 : at % own + (at >= all ? own : 0);
            }
            v->parts[p] = shuffled(b, x->parts[p], y->parts[p], part, part_type(b, type));
        }
        return v;
    }
    if (x->count > 1 || part_count(b, type) > 1) {
        no_rule(b, "a shuffle of several registers");
        return ir_undefined(b, type);
    }
    return native_value(b, type, shuffled(b, x->parts[0], y->parts[0], from, type));
}

IrValue build_any(IrBuilder *b, IrValue condition) {
    if (!b->avx512) {
        IrValue lanes = condition_lanes(b, condition, ir_bits(condition->parts[0]->element));
        Inst *any = lanes->parts[0];
        for (int p = 1; p < lanes->count; p++) {
            any = inst_add(b, I_BINOP, inst_type(any), any, lanes->parts[p], NULL);
            any->kind = IR_OR;
        }
        return native_value(b, IR_I1, inst_add(b, I_ANY, IR_I1, any, NULL, NULL));
    }
    return native_value(b, IR_I1, inst_add(b, I_ANY, IR_I1, condition->parts[0], NULL, NULL));
}
