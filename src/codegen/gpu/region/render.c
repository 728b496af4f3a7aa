/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel as a program: its functions, how threads find their place, stages and loops. */
#include "codegen/gpu/region/render.h"

#include <stdarg.h>
#include <stdio.h>

#include "codegen/gpu/dialect.h"
#include "codegen/gpu/region/divide.h"
#include "base/plain.h"

#define F(...) arena_format(r->arena, __VA_ARGS__)

enum { BOUND = 512 }; /* threads a block may have */

/* --- lines --- */
static void add_line(GpuRender *r, const char *format, va_list arguments, const char *end) {
    char few[512];
    va_list again;
    va_copy(again, arguments);
    int size = plain_vprint(few, sizeof few, format, arguments);
    char *line = few;
    if (size >= (int)sizeof few) {
        line = arena_alloc(r->arena, (size_t)size + 1);
        plain_vprint(line, (size_t)size + 1, format, again);
    }
    va_end(again);
    text_add(&r->body, "%*s%s%s\n", r->indent * 4, "", line, end);
}

void emit_line(GpuRender *r, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_line(r, format, arguments, "");
    va_end(arguments);
}

void emit_open(GpuRender *r, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_line(r, format, arguments, " {");
    va_end(arguments);
    r->indent++;
}

void emit_close(GpuRender *r) {
    r->indent--;
    emit_line(r, "}");
}

/* Of threads and blocks, which are below 2^31. */
static const char *small_quotient(GpuRender *r, const char *a, const char *b) {
    return F("(%s)((u32)%s / (u32)%s)", r->index, a, b);
}

static const char *quotient(GpuRender *r, const char *a, const char *b) {
    if (strcmp(b, "1") == 0) return a;
    if (r->narrow) return small_quotient(r, a, b);
    need_helper(r, "quotient", GPU_QUOTIENT_SOURCE "\n");
    return F("quotient(%s, %s)", a, b);
}

/* --- indices --- */
/* Declares the indices of the axes chosen, the last of them innermost, from the flat index `from`. */
static void emit_indices(GpuRender *r, uint32_t axes, const char *from) {
    const char *rest = from;
    int outermost = -1;
    for (int i = r->k->axis_count - 1; i >= 0; i--)
        if (axes >> i & 1) outermost = i;
    for (int i = r->k->axis_count - 1; i >= 0; i--) {
        if (!(axes >> i & 1)) continue;
        if (i == outermost) {
            emit_line(r, "const %s i%d = %s;", r->index, i, rest);
        } else {
            const char *next = F("rest%d", i), *size = size_text(r, i);
            emit_line(r, "const %s %s = %s;", r->index, next, quotient(r, rest, size));
            emit_line(r, "const %s i%d = %s - %s * %s;", r->index, i, rest, next, size);
            rest = next;
        }
        emit_line(r, "(void)i%d;", i);
    }
}

static uint32_t axes_of_role(const GpuRender *r, AxisRole role) {
    uint32_t axes = 0;
    for (int i = 0; i < r->k->axis_count; i++)
        if (r->k->axes[i].role == role) axes |= 1u << i;
    return axes;
}

const char *place_of_element(const GpuRender *r) {
    if (r->schedule.step == 1) return "j";
    return run_of(r) == 2 ? "(16 * (j >> 1) + (j & 1))" : "16 * j";
}

/* The first element of vector v along the vector axis. */
static const char *lane_of_vector(GpuRender *r, const char *v) {
    if (r->schedule.step > 1 && run_of(r) == 2) return F("(%s >> 3 << 6) + ((%s & 7) << 1)", v, v);
    if (r->schedule.step > 1) return F("(%s >> 4 << 6) + (%s & 15)", v, v); /* 16 vectors of 4 elements, 16 apart */
    return r->schedule.vector > 1 ? F("%s * %d", v, r->schedule.vector) : v;
}

static const char *lane_vectors(GpuRender *r) {
    const char *size = size_text(r, r->vector_axis);
    return r->schedule.vector > 1 ? F("(%s / %d)", size, r->schedule.vector) : size;
}

/* --- instructions --- */
static bool is_named(const GpuRender *r, int i) { /* has a place in the text */
    KernelOp op = inst_at(r, i)->op;
    return op != K_CONST && op != K_PARAM && op != K_INDEX;
}

static bool computes(const GpuRender *r, int i) {
    KernelOp op = inst_at(r, i)->op;
    return is_named(r, i) && op != K_LOAD && op != K_STORE && !kernel_op_is_reduce(op);
}

static void open_elements(GpuRender *r) {
    if (r->schedule.vector > 1) {
        emit_open(r, "UNROLL for (i32 j = 0; j < %d; j++)", r->schedule.vector);
    } else {
        emit_line(r, "{");
        r->indent++;
        emit_line(r, "const i32 j = 0;");
        emit_line(r, "(void)j;");
    }
    r->inside = true;
}

static void close_elements(GpuRender *r) {
    r->inside = false;
    emit_close(r);
}

/* Four words at once where the vector's elements share a counter; tested where its first element is known. Else one after
 * the other, in a loop: it is rare, and each word takes a hundred instructions. */
static void emit_shared_words(GpuRender *r, int i) {
    const KernelInst *inst = inst_at(r, i);
    int vector = r->schedule.vector, run = run_of(r);
    const char *seed = value_of(r, inst->args[0]), *place = inst->bits & RANDOM_HALVES ? "philox_half_place" : "";
    (void)expression_of(r, i); /* for its helper functions */
    emit_open(r, "if (j == 0)");
    emit_line(r, "const u64 begin = %s;", value_of(r, inst->args[1]));
    emit_open(r, "if (((i32)begin & %d) == 0)", 48 + run - 1);
    emit_line(r, "u32 words[4];");
    emit_line(r, "philox(%s, %s(begin), words);", seed, place);
    emit_line(r, "UNROLL for (i32 n = 0; n < %d; n++) w%d[n] = words[n / %d];", vector, i, run);
    emit_close(r);
    emit_open(r, "else");
    emit_open(r, "ROLLED for (i32 j = 0; j < %d; j++)", vector);
    emit_line(r, "const u32 word = philox_word(%s, %s(begin + %s));", seed, place, place_of_element(r));
    emit_line(r, "UNROLL for (i32 n = 0; n < %d; n++) w%d[n] = n == j ? word : w%d[n];", vector, i, i);
    emit_close(r);
    emit_close(r);
    emit_close(r);
}

static bool shares_words(const GpuRender *r, int i) {
    return inst_at(r, i)->op == K_RANDOM && r->schedule.step > 1 && inst_at(r, i)->bits & RANDOM_CONSECUTIVE &&
           is_wide(r, i);
}

/* In a j loop: `name` is what the value is called there, with its type where it is new. */
static void emit_element(GpuRender *r, int i, const char *name) {
    if (shares_words(r, i)) emit_shared_words(r, i);
    if (inst_at(r, i)->op == K_LOAD)
        emit_line(r, "%s = %s;", name, loaded_value(r, i, F("%s.e[j]", loaded_name(r, i))));
    else
        emit_line(r, "%s = %s;", name, expression_of(r, i));
}

static void declare_elements(GpuRender *r, int i) {
    if (!shares_words(r, i)) return;
    emit_line(r, "u32 w%d[%d] = {0};", i, r->schedule.vector);
}

/* Where a vector's bits stand until they are stored. */
static void declare_stored(GpuRender *r, int i) {
    DType dtype = r->k->buffers.items[inst_at(r, i)->buffer].dtype;
    int bytes = r->schedule.vector * (int)dtype_size(dtype), piece = piece_bytes(r, dtype);
    emit_line(r, "union { %s e[%d]; %s q[%d]; } s%d;", memory_type(dtype), r->schedule.vector, piece_type(piece),
              bytes / piece, i);
}

static void emit_stored_element(GpuRender *r, int i) {
    const KernelInst *inst = inst_at(r, i);
    DType dtype = r->k->buffers.items[inst->buffer].dtype;
    emit_line(r, "s%d.e[j] = %s;", i, stored_bits(r, dtype, value_of(r, inst->args[0])));
}

static bool stores_elements(const GpuRender *r, int i) {
    return inst_at(r, i)->op == K_STORE && inst_at(r, i)->access->kind[r->vector_axis] != STRIDE_ZERO;
}

/* --- what does not vary in the loops --- */
static bool is_outside(const GpuRender *r, int i) {
    return is_named(r, i) && !in_loop(r, i) && inst_at(r, i)->stage == r->stage &&
           !kernel_op_is_reduce(inst_at(r, i)->op);
}

static void emit_outside_stores(GpuRender *r) {
    bool any = false;
    for (int i = 0; i < r->k->insts.count; i++) any |= is_outside(r, i) && inst_at(r, i)->op == K_STORE;
    if (!any) return;
    if (!r->reduced)
        emit_open(r, "if (BLOCK == 0 && THREAD == 0)");
    else
        emit_open(r, "if (live && g == 0%s)", r->hold ? "" : F(" && part == 0 && first <= %d", r->stage));
    for (int i = 0; i < r->k->insts.count; i++)
        if (is_outside(r, i) && inst_at(r, i)->op == K_STORE) emit_store(r, i);
    emit_close(r);
}

/* Once a thread: scalars, and, in outer reductions, values of its columns. */
static void emit_outside(GpuRender *r) {
    bool elements = false;
    for (int i = 0; i < r->k->insts.count; i++) {
        if (!is_outside(r, i)) continue;
        bool wide = is_wide(r, i) || stores_elements(r, i);
        elements |= wide;
        if (inst_at(r, i)->op == K_LOAD) {
            if (wide) declare_loaded(r, i);
            emit_load(r, i);
        }
        if (computes(r, i) && !wide)
            emit_line(r, "const %s x%d = %s;", compute_type(inst_at(r, i)->dtype), i, expression_of(r, i));
        if (wide && inst_at(r, i)->op == K_STORE) declare_stored(r, i);
        if (wide && inst_at(r, i)->op != K_STORE)
            emit_line(r, "%s k%d[%d];", compute_type(inst_at(r, i)->dtype), i, r->schedule.vector);
        if (wide) declare_elements(r, i);
    }
    if (elements) {
        open_elements(r);
        for (int i = 0; i < r->k->insts.count; i++) {
            if (!is_outside(r, i)) continue;
            if (stores_elements(r, i))
                emit_stored_element(r, i);
            else if (is_wide(r, i))
                emit_element(r, i, F("k%d[j]", i));
        }
        close_elements(r);
    }
    emit_outside_stores(r);
}

/* --- points --- */
/* What the present stage computes in its loop; false when it has none. */
static bool find_needed(GpuRender *r) {
    bool any = false;
    for (int i = 0; i < r->k->insts.count; i++) {
        const KernelInst *inst = inst_at(r, i);
        bool result = kernel_op_is_reduce(inst->op) && r->stage < r->k->stage_count - 1; /* of the last stage: unused */
        bool root = result || (inst->op == K_STORE && in_loop(r, i));
        bool kept = r->hold && r->hold[i];
        r->needed[i] = inst->stage == r->stage && (root || kept);
        any |= r->needed[i];
    }
    for (int i = r->k->insts.count - 1; i >= 0; i--) {
        const KernelInst *inst = inst_at(r, i);
        if (!r->needed[i]) continue;
        for (int n = 0; n < kernel_op_args(inst->op); n++) {
            int arg = inst->args[n];
            bool held = r->hold && r->hold[arg] && inst_at(r, arg)->stage < r->stage;
            if (in_loop(r, arg) && !held) r->needed[arg] = true;
        }
    }
    return any;
}

static bool is_point(const GpuRender *r, int i) { return r->needed[i] && is_named(r, i); }

static bool is_wide_load(const GpuRender *r, int i) { return inst_at(r, i)->op == K_LOAD && is_wide(r, i); }

static void emit_scalars(GpuRender *r) {
    for (int i = 0; i < r->k->insts.count; i++) {
        if (!is_point(r, i) || !in_loop(r, i) || is_wide(r, i)) continue;
        if (inst_at(r, i)->op == K_LOAD) emit_load(r, i);
        if (computes(r, i))
            emit_line(r, "const %s x%d = %s;", compute_type(inst_at(r, i)->dtype), i, expression_of(r, i));
        bool keeps = r->hold && r->hold[i] && inst_at(r, i)->stage == r->stage;
        if (keeps) emit_line(r, "h%d[e] = x%d;", i, i);
    }
}

static void emit_elements(GpuRender *r) {
    open_elements(r);
    for (int i = 0; i < r->k->insts.count; i++) {
        if (!is_point(r, i)) continue;
        if (kernel_op_is_reduce(inst_at(r, i)->op)) {
            emit_accumulate(r, i);
        } else if (stores_elements(r, i)) {
            emit_stored_element(r, i);
        } else if (is_wide(r, i) && inst_at(r, i)->op != K_STORE) {
            emit_element(r, i, F("const %s x%d", compute_type(inst_at(r, i)->dtype), i));
            bool keeps = r->hold && r->hold[i] && inst_at(r, i)->stage == r->stage;
            if (keeps) emit_line(r, "h%d[e][j] = x%d;", i, i);
        }
    }
    close_elements(r);
}

/* One vector: loads, its elements, stores. */
static void emit_point(GpuRender *r) {
    emit_scalars(r);
    for (int i = 0; i < r->k->insts.count; i++) {
        if (!is_point(r, i)) continue;
        if (is_wide_load(r, i) && !(r->hoisted && r->hoisted[i])) {
            declare_loaded(r, i);
            emit_load(r, i);
        }
        if (stores_elements(r, i)) declare_stored(r, i);
        declare_elements(r, i);
    }
    emit_elements(r);
    for (int i = 0; i < r->k->insts.count; i++)
        if (is_point(r, i) && inst_at(r, i)->op == K_STORE) emit_store(r, i);
}

/* --- reductions --- */
/* Indices at vector v of a row, or at row v of a column. */
static void emit_place(GpuRender *r) {
    if (r->schedule.class == GPU_OUTER) {
        emit_indices(r, r->reduced, "v");
        return;
    }
    uint32_t outer = axes_of_role(r, AXIS_REDUCE);
    const char *along = "v";
    if (outer) {
        emit_line(r, "const %s around = %s, along = v - around * %s;", r->index, quotient(r, "v", lane_vectors(r)),
                  lane_vectors(r));
        along = "along";
    }
    emit_line(r, "const %s i%d = %s;", r->index, r->vector_axis, lane_of_vector(r, along));
    emit_line(r, "(void)i%d;", r->vector_axis);
    if (outer) emit_indices(r, outer, "around");
    if (has_positions(r->k)) {
        emit_line(r, "const i64 flat = %si%d;", outer ? F("around * %s + ", size_text(r, r->vector_axis)) : "",
                  r->vector_axis);
        emit_line(r, "(void)flat;");
    }
}

/* Loads that are all on their way before the first is used: as many as these registers take (of 4 bytes); a quarter beside random
 * numbers, which take registers of their own. tiled: [instruction], loads that go through a tile; NULL: none. */
enum { HOISTED_REGISTERS = 64 };

static bool hoist_loads(GpuRender *r, const bool *tiled) {
    int registers = 0;
    bool any = false;
    for (int i = 0; i < r->k->insts.count; i++) {
        r->hoisted[i] = false;
        if (!is_point(r, i) || !is_wide_load(r, i) || (tiled && tiled[i])) continue;
        size_t bytes = dtype_size(r->k->buffers.items[inst_at(r, i)->buffer].dtype);
        int own = (r->schedule.hold * r->schedule.vector * (int)bytes + 3) / 4;
        if (registers + own > (gpu_draws(r->k) ? HOISTED_REGISTERS / 4 : HOISTED_REGISTERS)) continue;
        registers += own;
        r->hoisted[i] = any = true;
    }
    return any;
}

static void open_held_loop(GpuRender *r) {
    emit_open(r, "UNROLL for (i32 e = 0; e < %d; e++)", r->schedule.hold);
    emit_line(r, "const %s v = g + e * group;", r->index);
    emit_open(r, "if (live && v < count)");
    emit_place(r);
}

static void close_held_loop(GpuRender *r) {
    emit_close(r);
    emit_close(r);
}

static void emit_held_loop(GpuRender *r) {
    bool ahead = hoist_loads(r, NULL);
    if (ahead) { /* in a scope of their own: another stage may load the same */
        emit_line(r, "{");
        r->indent++;
        for (int i = 0; i < r->k->insts.count; i++)
            if (r->hoisted[i]) declare_loaded(r, i);
        open_held_loop(r);
        for (int i = 0; i < r->k->insts.count; i++)
            if (r->hoisted[i]) emit_load(r, i);
        close_held_loop(r);
    }
    open_held_loop(r);
    emit_point(r);
    close_held_loop(r);
    if (ahead) emit_close(r);
}

/* Instructions of a vector above which four of them at once gain nothing and take long to compile. */
enum { FEW_INSTRUCTIONS = 160, RANDOM_INSTRUCTIONS = 100 };

static const char *unrolled(const GpuRender *r) {
    int count = 0;
    for (int i = 0; i < r->k->insts.count; i++)
        if (is_point(r, i)) count += inst_at(r, i)->op == K_RANDOM ? RANDOM_INSTRUCTIONS : r->schedule.vector;
    return count > FEW_INSTRUCTIONS ? "ROLLED" : "UNROLL_4";
}

static void emit_long_loop(GpuRender *r) {
    emit_open(r, "if (first <= %d && live)", r->stage);
    emit_open(r, "%s for (%s v = part * group + g; v < count; v += splits * group)", unrolled(r), r->index);
    emit_place(r);
    emit_point(r);
    emit_close(r);
    emit_close(r);
}

static void emit_loop(GpuRender *r) {
    if (r->hold)
        emit_held_loop(r);
    else
        emit_long_loop(r);
}

/* Inverses of what the present loop divides whole rows by: n5 and m5 of x5. Gives the condition under which all divisors have
 * one; NULL: there are none. */
static const char *emit_inverses(GpuRender *r) {
    Text safe = text_make(r->arena);
    bool *known = ARENA_ARRAY(r->arena, bool, r->k->insts.count + 1);
    for (int i = 0; i < r->k->insts.count; i++) {
        int by = inst_at(r, i)->args[1];
        if (!is_point(r, i) || !divides_row(r, i) || known[by]) continue;
        const char *value = value_of(r, by);
        known[by] = true;
        need_inverse(r);
        emit_line(r, "const f32 n%d = inverse_of(%s), m%d = rest_of_inverse(n%d, %s);", by, value, by, by, value);
        text_add(&safe, "%shas_inverse(%s)", safe.size ? " && " : "", value);
    }
    return safe.size ? safe.data : NULL;
}

/* Twice where it divides by numbers of the row, so that the usual way has no branch at each element. */
static void emit_loops(GpuRender *r) {
    const char *safe = emit_inverses(r);
    if (safe) {
        emit_open(r, "if (%s)", safe);
        r->quick = true;
        emit_loop(r);
        r->quick = false;
        emit_close(r);
        emit_open(r, "else");
    }
    emit_loop(r);
    if (safe) emit_close(r);
}

static void emit_stage(GpuRender *r) {
    bool last = r->stage == r->k->stage_count - 1;
    emit_outside(r);
    if (!last) emit_accumulators(r);
    if (find_needed(r)) {
        emit_line(r, "{");
        r->indent++;
        emit_loops(r);
        emit_close(r);
    }
    if (last) return;
    if (!r->hold) {
        emit_open(r, "if (first > %d && live)", r->stage);
        emit_from_partials(r);
        emit_close(r);
    }
    emit_group_results(r);
    if (r->hold) return;
    emit_open(r, "if (first == %d && splits > 1)", r->stage);
    emit_partials(r);
    emit_line(r, "live = false;");
    emit_close(r);
}

static void declare_held(GpuRender *r) {
    for (int i = 0; r->hold && i < r->k->insts.count; i++) {
        if (!r->hold[i]) continue;
        const char *type = compute_type(inst_at(r, i)->dtype);
        if (is_wide(r, i))
            emit_line(r, "%s h%d[%d][%d];", type, i, r->schedule.hold, r->schedule.vector);
        else
            emit_line(r, "%s h%d[%d];", type, i, r->schedule.hold);
    }
}

static const char *reduced_count(GpuRender *r) {
    Text text = text_make(r->arena);
    for (int i = 0; i < r->k->axis_count; i++) {
        if (!(r->reduced >> i & 1)) continue;
        text_add(&text, "%s%s", text.size ? " * " : "", i == r->vector_axis ? lane_vectors(r) : size_text(r, i));
    }
    return text.data;
}

/* unit: the row, or the vector of columns; g: which of the group that shares it; live: whether there is one. */
static void emit_units(GpuRender *r) {
    bool outer = r->schedule.class == GPU_OUTER;
    const char *block = r->hold ? "BLOCK" : "block";
    if (!r->hold) { /* every other launch goes the other way: what the one before read last is in the cache */
        emit_line(r, "const %s turn = first & 1 ? BLOCKS - 1 - BLOCK : BLOCK;", r->index);
        emit_line(r, "const %s block = %s, part = turn - block * parts;", r->index, small_quotient(r, "turn", "parts"));
    }
    if (!outer) {
        emit_line(r, "const %s g = THREAD & (group - 1), own = %s * %s + %s;", r->index, block,
                  small_quotient(r, "BLOCK_SIZE", "group"), small_quotient(r, "THREAD", "group"));
        emit_line(r, "bool live = own < units;");
        emit_line(r, "const %s unit = live ? own : 0;", r->index);
        emit_indices(r, axes_of_role(r, AXIS_TASK), "unit");
        emit_line(r, "(void)unit;");
    } else {
        emit_line(r, "const %s group = %s, g = %s, vectors = %s;", r->index, small_quotient(r, "BLOCK_SIZE", "lanes"),
                  small_quotient(r, "THREAD", "lanes"), lane_vectors(r));
        emit_line(r, "const %s across = %s, task = %s;", r->index, small_quotient(r, "(vectors + lanes - 1)", "lanes"),
                  small_quotient(r, block, "across"));
        emit_line(r, "const %s own = (%s - task * across) * lanes + (THREAD & (lanes - 1));", r->index, block);
        emit_line(r, "bool live = own < vectors && task * vectors + own < units;");
        emit_line(r, "const %s i%d = live ? %s : 0, unit = task * vectors + own;", r->index, r->vector_axis,
                  lane_of_vector(r, "own"));
        emit_line(r, "(void)i%d, (void)unit;", r->vector_axis);
        emit_indices(r, axes_of_role(r, AXIS_TASK), "task");
    }
    emit_line(r, "const %s count = %s;", r->index, reduced_count(r));
    emit_line(r, "(void)count;");
}

static void emit_reduction(GpuRender *r) {
    emit_line(r, "SHARED u64 exchange[%d];", BOUND);
    if (has_positions(r->k)) emit_line(r, "SHARED i64 positions[%d];", BOUND);
    if (!r->hold) {
        int bytes;
        reduction_cells(r, &bytes);
        emit_line(r, "BUFFER(%s, partial, scratch);", bytes == 8 ? "u64" : "u32");
    }
    emit_units(r);
    declare_held(r);
    for (r->stage = 0; r->stage < r->k->stage_count; r->stage++) emit_stage(r);
}

/* --- pointwise --- */
static void emit_pointwise(GpuRender *r) {
    uint32_t tasks = axes_of_role(r, AXIS_TASK);
    r->stage = 0;
    emit_outside(r);
    if (!find_needed(r)) return;
    emit_open(r, "for (%s at = BLOCK * BLOCK_SIZE + THREAD; at < total; at += BLOCKS * BLOCK_SIZE)", r->index);
    const char *along = "at";
    if (tasks) {
        emit_line(r, "const %s task = %s, along = at - task * %s;", r->index, quotient(r, "at", lane_vectors(r)),
                  lane_vectors(r));
        along = "along";
    }
    emit_line(r, "const %s i%d = %s;", r->index, r->vector_axis, lane_of_vector(r, along));
    emit_line(r, "(void)i%d;", r->vector_axis);
    if (tasks) emit_indices(r, tasks, "task");
    emit_point(r);
    emit_close(r);
}

/* --- transpose --- */
static const bool *choose_tiled(GpuRender *r) {
    bool *tiled = ARENA_ARRAY(r->arena, bool, r->k->insts.count + 1);
    size_t used = 0;
    for (int i = 0; i < r->k->insts.count; i++) {
        if (!gpu_goes_through_tile(r->k, i)) continue;
        size_t bytes = gpu_tile_bytes(r->k, i, r->schedule.tile);
        tiled[i] = used + bytes <= GPU_TILE_BYTES;
        if (tiled[i]) used += bytes;
    }
    return tiled;
}

/* The tile's corner, and the indices of the other axes. */
static void emit_corner(GpuRender *r) {
    int tile = r->schedule.tile, across = r->k->tile_axis, lane = r->vector_axis;
    uint32_t others = axes_of_role(r, AXIS_TASK) & ~(1u << across);
    emit_line(r, "const %s lane_tiles = (%s + %d) / %d, across_tiles = (%s + %d) / %d;", r->index, size_text(r, lane),
              tile - 1, tile, size_text(r, across), tile - 1, tile);
    emit_line(r, "const %s upper = %s, lane_from = (BLOCK - upper * lane_tiles) * %d;", r->index,
              quotient(r, "BLOCK", "lane_tiles"), tile);
    emit_line(r, "const %s task = %s, across_from = (upper - task * across_tiles) * %d;", r->index,
              quotient(r, "upper", "across_tiles"), tile);
    if (others) emit_indices(r, others, "task");
    int threads = tile / r->schedule.vector; /* of a row */
    emit_line(r, "const %s x = (THREAD & %d) * %d, y0 = THREAD / %d;", r->index, threads - 1, r->schedule.vector,
              threads);
}

static void open_tile_rows(GpuRender *r, int axis_x, const char *from_x, int axis_y, const char *from_y) {
    emit_line(r, "const %s i%d = %s + x;", r->index, axis_x, from_x);
    emit_open(r, "UNROLL for (i32 e = 0; e < %d; e++)", r->schedule.hold);
    emit_line(r, "const %s y = y0 + e * %d, i%d = %s + y;", r->index, r->schedule.tile / r->schedule.hold, axis_y,
              from_y);
    emit_open(r, "if (i%d < %s && i%d < %s)", axis_x, size_text(r, axis_x), axis_y, size_text(r, axis_y));
}

/* Loads that are contiguous across, to the tiles. */
static void fill_tiles(GpuRender *r, const bool *tiled) {
    int tile = r->schedule.tile, across = r->k->tile_axis, lane = r->vector_axis;
    r->vector_axis = across;
    open_tile_rows(r, across, "across_from", lane, "lane_from");
    for (int i = 0; i < r->k->insts.count; i++) {
        if (!tiled[i]) continue;
        declare_loaded(r, i);
        emit_load(r, i);
        emit_line(r, "UNROLL for (i32 j = 0; j < %d; j++) t%d[y * %d + x + j] = l%d.e[j];", r->schedule.vector, i,
                  tile + 1, i);
    }
    emit_close(r);
    emit_close(r);
    r->vector_axis = lane;
}

/* All loads are on their way before the barrier: behind it each would wait for the store before it, which it may not
 * overtake. */
static void emit_transpose(GpuRender *r) {
    int tile = r->schedule.tile, across = r->k->tile_axis, lane = r->vector_axis;
    const bool *tiled = choose_tiled(r);
    for (int i = 0; i < r->k->insts.count; i++)
        if (tiled[i])
            emit_line(r, "SHARED %s t%d[%d];", memory_type(r->k->buffers.items[inst_at(r, i)->buffer].dtype), i,
                      tile * (tile + 1));
    r->stage = 0;
    emit_outside(r);
    emit_corner(r);
    bool any = find_needed(r), ahead = hoist_loads(r, tiled);
    for (int i = 0; i < r->k->insts.count; i++)
        if (r->hoisted[i]) declare_loaded(r, i);
    if (ahead) {
        emit_line(r, "{");
        r->indent++;
        open_tile_rows(r, lane, "lane_from", across, "across_from");
        for (int i = 0; i < r->k->insts.count; i++)
            if (r->hoisted[i]) emit_load(r, i);
        emit_close(r);
        emit_close(r);
        emit_close(r);
    }
    emit_line(r, "{");
    r->indent++;
    fill_tiles(r, tiled);
    emit_close(r);
    emit_line(r, "BARRIER;");
    r->tiled = tiled;
    open_tile_rows(r, lane, "lane_from", across, "across_from");
    if (any) emit_point(r);
    emit_close(r);
    emit_close(r);
}

/* --- functions --- */
static const char *const *extra_arguments(const GpuRender *r) {
    static const char *const one[] = {"total", NULL}, *const none[] = {NULL},
                             *const texts[2][2][6] = {
                                 {{"units", "group", "splits", "first", "parts"}, {"units", "group"}},
                                 {{"units", "lanes", "splits", "first", "parts"}, {"units", "lanes"}}};
    switch (r->schedule.class) {
    case GPU_POINTWISE: return one;
    case GPU_TRANSPOSE: return none;
    default: return texts[r->schedule.class == GPU_OUTER][r->hold != NULL];
    }
}

/* An argument is 64 bits long and called `name_`; what indices are computed of is as wide as they are. */
static void add_argument(GpuRender *r, Text *head, Text *narrowed, const char *name) {
    text_add(head, ", i64 %s%s", name, r->narrow ? "_" : "");
    if (r->narrow) text_add(narrowed, "    const i32 %s = (i32)%s_;\n    (void)%s;\n", name, name, name);
}

static void emit_function(GpuRender *r, const char *name, const char *suffix) {
    Text head = text_make(r->arena), narrowed = text_make(r->arena);
    bool draws = r->reduced && gpu_draws(r->k);
    text_add(&head, draws ? "KERNEL_BESIDE(%d, 3) %s%s(" : "KERNEL_OF(%d) %s%s(",
             r->reduced && !draws ? BOUND : BOUND / 2, name, suffix);
    for (int i = 0; i < r->k->buffers.count; i++) text_add(&head, "BUFFER_ARG(a%d), ", i);
    text_add(&head, "BUFFER_ARG(scratch)");
    for (int i = 0; i < r->k->param_count; i++) add_argument(r, &head, &narrowed, F("p%d", i));
    for (const char *const *extra = extra_arguments(r); *extra; extra++) add_argument(r, &head, &narrowed, *extra);
    emit_open(r, "%s)", head.data);
    for (int i = 0; i < r->k->buffers.count; i++)
        emit_line(r, "BUFFER(%s, b%d, a%d);", memory_type(r->k->buffers.items[i].dtype), i, i);
    text_add_bytes(&r->body, narrowed.data, narrowed.size);
    if (r->schedule.class == GPU_POINTWISE)
        emit_pointwise(r);
    else if (r->schedule.class == GPU_TRANSPOSE)
        emit_transpose(r);
    else
        emit_reduction(r);
    emit_close(r);
    emit_line(r, "%s", "");
}

static void begin_kernel(GpuRender *r, const Kernel *kernel, const GpuSchedule *schedule) {
    r->k = kernel;
    r->schedule = *schedule;
    r->narrow = !kernel->general;
    r->index = r->narrow ? "i32" : "i64";
    r->vector_axis = gpu_vector_axis(kernel);
    r->reduced = gpu_reduced_axes(kernel);
    r->loop_axes = r->reduced ? r->reduced : (1u << kernel->axis_count) - 1;
    r->needed = ARENA_ARRAY(r->arena, bool, kernel->insts.count + 1);
    r->tiled = NULL;
}

static void render_one(GpuRender *r, const Kernel *kernel, const char *name) {
    GpuSchedule schedule = gpu_schedule(kernel), even_schedule = gpu_even_schedule(&schedule);
    Kernel even;
    gpu_even_kernel(r->arena, kernel, &schedule.even, &even);
    for (int i = 0; gpu_suffix(&schedule, i); i++) {
        const char *suffix = gpu_suffix(&schedule, i);
        if (gpu_is_even(suffix))
            begin_kernel(r, &even, &even_schedule);
        else
            begin_kernel(r, kernel, &schedule);
        r->hold = gpu_is_held(suffix) ? gpu_held_values(r->arena, kernel) : NULL;
        r->hoisted =
            r->hold || schedule.class == GPU_TRANSPOSE ? ARENA_ARRAY(r->arena, bool, kernel->insts.count + 1) : NULL;
        emit_function(r, name, suffix);
    }
}

void gpu_render_all(Text *text, const Kernel *const *kernels, const char *const *names, int count, GpuDialect dialect) {
    GpuRender render = {.arena = text->arena, .body = text_make(text->arena), .helpers = text_make(text->arena)};
    for (int i = 0; i < count; i++) render_one(&render, kernels[i], names[i]);
    text_add(text, "%s\n", gpu_prelude(dialect));
    text_add_bytes(text, render.helpers.data, render.helpers.size);
    text_add_bytes(text, render.body.data, render.body.size);
}

void gpu_render(Text *text, const Kernel *kernel, GpuDialect dialect, const char *name) {
    gpu_render_all(text, &kernel, &name, 1, dialect);
}
