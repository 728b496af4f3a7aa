/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel -> the facts that emission needs: where each value varies, the stages that need it, lanes and unrolling. */
#include "codegen/render/render.h"

/* Vectors done at once, by the vector instructions of the innermost body. Short bodies are unrolled against the loop's
 * own cost; long ones because their chains of dependent instructions outgrow the processor's window, so that only
 * copies side by side keep it busy (measured with AVX-512: 100 dependent multiply-adds run at 148, 183, 257 GFLOP/s
 * with 1, 2, 4 copies; from the second cache a softmax takes 3.4 ns a vector with two copies, 3.2 with four or eight).
 * 16 registers hold two copies. Of rows four are faster all the same, up to some 30 instructions (a masked softmax of
 * rows of 512, AVX2 on an AMD EPYC of family 25, two threads, 2026-11-23: 0.85 of the time with two). Long pointwise
 * bodies gain from eight, whatever the registers: with AVX-512 a chain of 110 instructions is 1.48 times as fast as
 * with four; with AVX2 it is 1.84 times as fast as with two, a GELU by tanh 1.28, one by erf 1.22. With AVX-512 these
 * are bound by memory where they do not come from a cache, and eight lines stored at once make the one by tanh 9 %
 * slower there (bench/kernels.c, `onnxfuse bench`, an AMD EPYC of family 26). */
static const struct {
    int weight, with_32_registers, with_16, rows_with_16;
} unrolling[] = {{12, 4, 4, 4}, {32, 4, 2, 4}, {400, 4, 2, 2}};
enum {
    MANY_COPIES = 8, /* of a pointwise body of at least so many instructions, with 16 and with 32 registers */
    MANY_LEAST = 13,
    MANY_LEAST_32 = 60,
    MANY_WEIGHT = 200,     /* beyond, it would take long to compile */
    STRAIGHT_WEIGHT = 256, /* instructions of a loop of known length that is written out whole */
    /* Of what draws random words: bias, GELU, dropout and their gradients with AVX2 take 47 ms with 4 and with 8 copies, 61 with 2; without
     * the bias's 40 with 2 and 4, 49 with 8; with residual and RMSNorm 16.0 with 2, 16.3 with 4, 17.7 with 8 (least of 6, one thread, a
     * shared AMD EPYC of family 25, 2026-11-26). */
    GROUP_COPIES = 4,
    GROUP_COPIES_32 = 8,
    ONE_LOOP_WEIGHT =
        400,            /* beyond, one masked loop serves body and tail: code size halves, the masks cost under 3 % */
    OUTER_WEIGHT = 192, /* instructions of an outer reduction's unrolled body */
};

Isa render_isa(const Target *target) {
    bool x86 = strncmp(target->cpu, "x86-64", 6) == 0;
    if (!x86) return (Isa){.half = true, .fma = true, .vector_bytes = target->vector_bytes};
    bool avx2 = target->vector_bytes >= 32;
    return (Isa){.x86 = true,
                 .avx512 = target->vector_bytes >= 64,
                 .avx2 = avx2,
                 .sse41 = avx2 || strcmp(target->cpu, "x86-64-v2") == 0,
                 .half = avx2,
                 .fma = avx2,
                 .vector_bytes = target->vector_bytes};
}

int render_op_args(KernelOp op) {
    static const signed char counts[] = {
#define X(enumerator, name, arguments, comment) arguments,
        KERNEL_OPS(X)
#undef X
    };
    return counts[op];
}

static bool is_reduced(const Kernel *k, int axis) {
    return k->axes[axis].role == AXIS_REDUCE || k->axes[axis].role == AXIS_REDUCE_LANE;
}

static void find_class(Render *r) {
    const Kernel *k = r->kernel;
    bool lane = false, reduce = false;
    r->vector_axis = -1;
    for (int a = 0; a < k->axis_count; a++) {
        if (k->axes[a].role == AXIS_LANE || k->axes[a].role == AXIS_REDUCE_LANE) r->vector_axis = a;
        lane |= k->axes[a].role == AXIS_LANE;
        reduce |= k->axes[a].role == AXIS_REDUCE;
    }
    r->class = !lane ? CLASS_INNER : reduce ? CLASS_OUTER : k->tile_axis >= 0 ? CLASS_TILE : CLASS_POINTWISE;
    r->levels = 1;
    for (int a = 0; a < k->axis_count; a++) {
        if (k->axes[a].role == AXIS_TASK && !(r->class == CLASS_TILE && a == k->tile_axis)) {
            r->axis_level[a] = 1;
        } else {
            r->axis_level[a] = ++r->levels;
            r->level_axis[r->levels] = a;
        }
    }
    r->outlive = r->class == CLASS_OUTER ? 2 : 1;
}

static uint32_t access_axes(const Render *r, const KernelAccess *access) {
    uint32_t axes = 0;
    for (int a = 0; a < r->kernel->axis_count; a++)
        if (access->kind[a] != STRIDE_ZERO) axes |= 1u << a;
    return axes;
}

static void analyse_slot(Render *r, int i) {
    const Kernel *k = r->kernel;
    Slot *s = &r->slots[i];
    const KernelInst *inst = s->inst = &k->insts.items[i];
    for (int n = 0; n < render_op_args(inst->op); n++) {
        const Slot *arg = &r->slots[inst->args[n]];
        bool reduction = kernel_op_is_reduce(arg->inst->op);
        int ready = reduction ? arg->inst->stage + 1 : arg->stage;
        s->axes |= arg->axes;
        if (!kernel_op_is_reduce(inst->op) && arg->level > s->level) s->level = arg->level;
        if (ready > s->stage) s->stage = ready;
    }
    if (inst->op == K_INDEX) s->axes = 1u << inst->axis;
    if (inst->op == K_LOAD || inst->op == K_STORE) s->axes |= access_axes(r, inst->access);
    if (kernel_op_is_reduce(inst->op)) {
        for (int a = 0; a < k->axis_count; a++)
            if (is_reduced(k, a)) s->axes &= ~(1u << a);
        if (r->class == CLASS_OUTER) s->axes |= 1u << r->vector_axis;
        s->level = r->outlive;
    }
    if (kernel_op_is_reduce(inst->op) || inst->op == K_STORE) s->stage = inst->stage;
    for (int a = 0; a < k->axis_count; a++)
        if (s->axes >> a & 1 && r->axis_level[a] > s->level) s->level = r->axis_level[a];
    s->vectorial = s->axes >> r->vector_axis & 1;
    s->tiled = r->class == CLASS_TILE && inst->op == K_LOAD && inst->access->kind[k->tile_axis] == STRIDE_ONE &&
               s->vectorial && inst->access->kind[r->vector_axis] != STRIDE_ONE;
}

/* What stage s computes: what its stores, reductions and kept values reach, up to what is there from earlier stages. */
static void find_needed(Render *r, int stage) {
    const Kernel *k = r->kernel;
    bool *needed = r->needed[stage] = ARENA_ARRAY(r->arena, bool, k->insts.count + 1);
    for (int i = k->insts.count - 1; i >= 0; i--) {
        const KernelInst *inst = &k->insts.items[i];
        bool root = inst->op == K_STORE || kernel_op_is_reduce(inst->op);
        if ((root || inst->keep) && inst->stage == stage) needed[i] = true;
        if (root && inst->stage != stage) needed[i] = false;
        if (!needed[i] || (inst->keep && inst->stage < stage)) continue;
        for (int n = 0; n < render_op_args(inst->op); n++) needed[inst->args[n]] = true;
    }
}

static int op_weight(KernelOp op, DType dtype) {
    if (op == K_CONST || op == K_PARAM) return 0;
    if (op == K_REM && dtype_is_float(dtype)) return 48;
    if ((op == K_DIV || op == K_REM) && !dtype_is_float(dtype)) return 8;
    if (op == K_REDUCE_ARGMAX || op == K_REDUCE_ARGMIN) return 6;
    if (op == K_RANDOM) return RANDOM_WEIGHT;
    return 1;
}

int render_weight(const Render *r, int stage) {
    int weight = 0;
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        bool inside = s->vectorial || (kernel_op_is_reduce(s->inst->op) && s->inst->stage == stage);
        if (r->needed[stage][i] && inside)
            weight += random_in_groups(r, i) ? 1 : op_weight(s->inst->op, s->inst->dtype);
    }
    return weight;
}

static int64_t low_power(int64_t value) { return value ? value & -value : (int64_t)1 << 40; }

static void find_count(Render *r) {
    const Kernel *k = r->kernel;
    const KernelAxis *axis = &k->axes[r->vector_axis];
    bool lane = axis->role == AXIS_LANE;
    int64_t block = k->lane_block;
    r->constant_count = -1;
    if (axis->param < 0) {
        if (!lane || axis->size <= block)
            r->constant_count = axis->size;
        else if (axis->size % block == 0)
            r->constant_count = block;
    }
    int64_t multiple = axis->param < 0 ? low_power(axis->size) : axis->multiple > 0 ? axis->multiple : 1;
    if (lane && low_power(block) < multiple) multiple = low_power(block);
    r->count_multiple = r->constant_count >= 0 ? r->constant_count : multiple;
}

/* 32-bit values decide where there are any, else the widest. */
static int lane_bytes(const Render *r) {
    bool seen[9] = {0};
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (!s->vectorial && !kernel_op_is_reduce(s->inst->op)) continue;
        if (s->inst->op == K_INDEX || s->inst->dtype == DT_BOOL) continue;
        seen[dtype_size(s->inst->dtype) & 15] = true;
    }
    return seen[4] ? 4 : seen[8] ? 8 : seen[2] ? 2 : seen[1] ? 1 : r->isa.avx512 ? 1 : 4;
}

/* Whether masks serve every access: AVX-512 has them for all but scattered bytes and words, AVX2 for words of 4 and 8
 * bytes. */
static bool can_mask(const Render *r) {
    if (!r->isa.avx2) return false;
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (!s->vectorial) continue;
        if (s->inst->op == K_LOAD || s->inst->op == K_STORE) {
            bool wide = access_bytes(r, s->inst) >= 4, strided = s->inst->access->kind[r->vector_axis] > STRIDE_ONE;
            if (strided && s->inst->op == K_STORE && !(wide && r->isa.avx512)) return false;
            if (!strided && !wide && !r->isa.avx512) return false;
        }
        if (s->inst->keep && !r->isa.avx512 && (s->inst->dtype == DT_BOOL || dtype_size(s->inst->dtype) < 4))
            return false;
    }
    return true;
}

static void choose_lanes(Render *r) {
    r->masked = can_mask(r);
    int lanes = r->isa.vector_bytes / lane_bytes(r);
    if (lanes > MAX_LANES) lanes = MAX_LANES;
    if (r->class == CLASS_TILE && lanes > 16) lanes = 16;
    if (r->constant_count >= 0)
        while (lanes > 1 &&
               (r->masked ? lanes / 2 : lanes) >= (r->constant_count > 0 ? r->constant_count : 1) + (r->masked ? 0 : 1))
            lanes /= 2;
    r->vector_lanes = lanes;
}

static void choose_outer(Render *r, int weight) {
    const Kernel *k = r->kernel;
    int most = 1; /* registers of accumulators for each vector of the block */
    for (int s = 0; s < k->stage_count; s++) {
        int count = 0;
        for (int i = 0; i < k->insts.count; i++) {
            const KernelInst *inst = &k->insts.items[i];
            if (!kernel_op_is_reduce(inst->op) || inst->stage != s) continue;
            bool pair = inst->op >= K_REDUCE_ARGMAX;
            int bytes = (pair ? 8 : 0) + (int)dtype_size(r->slots[inst->args[0]].inst->dtype);
            int registers = bytes * r->vector_lanes / r->isa.vector_bytes;
            count += registers > 0 ? registers : 1;
        }
        if (count > most) most = count;
    }
    int budget = (render_has_32_registers(r) ? 16 : 8) / most, block = 16;
    if (budget < 1) budget = 1;
    if (block > budget) block = budget;
    while (block > 1 && block * weight > OUTER_WEIGHT) block--;
    int64_t columns = r->constant_count >= 0 ? r->constant_count : k->lane_block;
    int vectors = (int)((columns / r->vector_lanes) > 0 ? columns / r->vector_lanes : 1);
    if (block > vectors) block = vectors;
    for (int b = block; b > block / 2; b--)
        if (vectors % b == 0) {
            block = b;
            break;
        }
    r->main_unroll = block;
    int rows = 1; /* several only where every column is summed that way, so that equal columns have equal sums */
    while (block == 1 && rows < 4 && rows * 2 * block <= budget && rows * 2 * block * weight <= OUTER_WEIGHT / 2)
        rows *= 2;
    r->accumulators = block * rows;
}

/* Whether steps of so many elements leave little to loops of single vectors: all of the lanes' axis is cut into blocks, or each
 * row consists of such steps. */
static bool takes_steps(const Render *r, int64_t elements) {
    const Kernel *k = r->kernel;
    return r->count_multiple % elements == 0 || (k->axis_count == 1 && k->lane_block % elements == 0);
}

static void choose_group(Render *r) {
    bool any = false;
    for (int i = 0; i < r->kernel->insts.count; i++) any |= random_in_groups(r, i);
    if (!any) return;
    r->one_loop = false;
    r->group = (takes_steps(r, MOST_GROUPS * RANDOM_GROUP) ? MOST_GROUPS : 1) * RANDOM_GROUP;
    r->main_unroll = render_has_32_registers(r) ? GROUP_COPIES_32 : GROUP_COPIES;
    while (r->group / r->vector_lanes % r->main_unroll) r->main_unroll /= 2;
}

static void choose_unroll(Render *r) {
    int weight = 0;
    for (int s = 0; s < r->kernel->stage_count; s++) {
        int w = render_weight(r, s);
        if (w > weight) weight = w;
    }
    if (weight < 1) weight = 1;
    if (r->class == CLASS_OUTER && !r->kernel->band) {
        choose_outer(r, weight);
        return;
    }
    bool many = render_has_32_registers(r);
    r->main_unroll = 1;
    for (size_t n = sizeof unrolling / sizeof *unrolling; n-- > 0;)
        if (weight <= unrolling[n].weight)
            r->main_unroll = many                      ? unrolling[n].with_32_registers
                             : r->class == CLASS_INNER ? unrolling[n].rows_with_16
                                                       : unrolling[n].with_16;
    if (r->class == CLASS_POINTWISE && weight >= (many ? MANY_LEAST_32 : MANY_LEAST) && weight <= MANY_WEIGHT &&
        takes_steps(r, (int64_t)MANY_COPIES * r->vector_lanes))
        r->main_unroll = MANY_COPIES;
    if (r->constant_count >= 0) {
        int64_t vectors = r->constant_count / r->vector_lanes;
        if (vectors <= MAX_UNROLL && vectors * weight <= STRAIGHT_WEIGHT)
            r->main_unroll = vectors > 0 ? (int)vectors : 1;
        while (r->main_unroll > vectors && r->main_unroll > 1) r->main_unroll /= 2;
    }
    bool whole = r->count_multiple % r->vector_lanes == 0;
    r->one_loop = r->masked && r->isa.avx512 && ((!whole && weight > ONE_LOOP_WEIGHT) || r->class == CLASS_TILE);
    if (r->class == CLASS_TILE) r->main_unroll = 1; /* edges only */
    choose_group(r);
    if (r->one_loop) r->main_unroll = 1;
    r->accumulators = r->main_unroll;
}

void render_analyse(Render *r) {
    const Kernel *k = r->kernel;
    find_class(r);
    r->lane_block = k->lane_block;
    r->slots = ARENA_ARRAY(r->arena, Slot, k->insts.count + 1);
    for (int i = 0; i < k->insts.count; i++) analyse_slot(r, i);
    r->needed = ARENA_ARRAY(r->arena, bool *, k->stage_count + 1);
    for (int s = 0; s < k->stage_count; s++) find_needed(r, s);
    find_count(r);
    choose_lanes(r);
    choose_unroll(r);
}
