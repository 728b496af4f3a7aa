/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions: a thread's accumulators, then the group's: by shuffles within 32 threads, through shared memory beyond,
 * in an order that depends on the shape alone. */
#include "codegen/gpu/region/render.h"

#include <math.h>

#define F(...) arena_format(r->arena, __VA_ARGS__)

bool is_position(KernelOp op) { return op == K_REDUCE_ARGMAX || op == K_REDUCE_ARGMIN; }
static bool wants_greater(KernelOp op) { return op == K_REDUCE_ARGMAX || op == K_REDUCE_MAX; }
static DType operand_dtype(const Kernel *k, const KernelInst *inst) { return k->insts.items[inst->args[0]].dtype; }

bool has_positions(const Kernel *k) {
    for (int i = 0; i < k->insts.count; i++)
        if (is_position(k->insts.items[i].op)) return true;
    return false;
}

/* Values of a reduction that a thread ends with: one, or one a column. */
static int results_of(const GpuRender *r) { return r->schedule.class == GPU_OUTER ? r->schedule.vector : 1; }

int reduction_cells(const GpuRender *r, int *out_bytes) {
    int cells = 0;
    *out_bytes = 4;
    for (int i = 0; i < r->k->insts.count; i++) {
        const KernelInst *inst = inst_at(r, i);
        if (!kernel_op_is_reduce(inst->op)) continue;
        cells += results_of(r) * (is_position(inst->op) ? 2 : 1);
        if (is_position(inst->op) || dtype_size(operand_dtype(r->k, inst)) == 8) *out_bytes = 8;
    }
    return cells;
}

static const char *neutral(GpuRender *r, const KernelInst *inst) {
    DType t = operand_dtype(r->k, inst);
    bool sum = inst->op == K_REDUCE_SUM, product = inst->op == K_REDUCE_PROD, greater = wants_greater(inst->op);
    if (sum || product) return product ? "1" : "0";
    if (dtype_is_float(t)) return F("%sINFINITY_%s", greater ? "-" : "", memory_type(t));
    int bits = 8 * (int)dtype_size(t);
    bool with_sign = dtype_class(t) == DTYPE_SIGNED;
    uint64_t most = UINT64_MAX >> (64 - bits) >> with_sign;
    if (!greater) return F("(%s)%lluul", compute_type(t), (unsigned long long)most);
    return with_sign ? F("(%s)(-%llul - 1)", compute_type(t), (unsigned long long)most) : "0";
}

/* Stands behind every real position in the order of preference. */
static const char *no_position(const KernelInst *inst) { return inst->bits ? "-1" : "9223372036854775807l"; }

/* --- two values become one --- */
static const char *name_of(GpuRender *r, const KernelInst *inst) {
    const char *op = kernel_op_name(inst->op) + strlen("reduce_");
    return F("%s%s_%s", op, inst->bits && is_position(inst->op) ? "_last" : "",
             compute_type(operand_dtype(r->k, inst)));
}

static const char *combine_text(GpuRender *r, const KernelInst *inst) {
    DType t = operand_dtype(r->k, inst);
    bool real = dtype_is_float(t);
    const char *type = compute_type(t), *u = dtype_size(t) == 8 ? "u64" : "u32";
    char relation = wants_greater(inst->op) ? '>' : '<';
    switch (inst->op) {
    case K_REDUCE_SUM: return real ? "a + b" : F("(%s)((%s)a + (%s)b)", type, u, u);
    case K_REDUCE_PROD: return real ? "a * b" : F("(%s)((%s)a * (%s)b)", type, u, u);
    default: return real ? F("(a %c b || a != a) ? a : b", relation) : F("a %c b ? a : b", relation);
    }
}

static void need_combine(GpuRender *r, const KernelInst *inst) {
    DType t = operand_dtype(r->k, inst);
    const char *type = compute_type(t), *name = name_of(r, inst);
    if (!is_position(inst->op)) {
        need_helper(
            r, F("combine_%s", name),
            F("FUNCTION %s combine_%s(%s a, %s b) { return %s; }\n\n", type, name, type, type, combine_text(r, inst)));
        return;
    }
    char relation = wants_greater(inst->op) ? '>' : '<', side = inst->bits ? '>' : '<';
    const char *wins = dtype_is_float(t) ? F("b %c a || (b != b && a == a)", relation) : F("b %c a", relation);
    const char *tie = dtype_is_float(t) ? "(a == b || (a != a && b != b))" : "a == b";
    need_helper(
        r, F("takes_%s", name),
        F("/* Whether b at its position takes the place of a. */\n"
          "FUNCTION bool takes_%s(%s a, i64 at_a, %s b, i64 at_b) {\n    return %s || (%s && at_b %c at_a);\n}\n\n",
          name, type, type, wins, tie, side));
}

/* c and q: accumulator and its position. */
static void emit_combine(GpuRender *r, const KernelInst *inst, const char *c, const char *q, const char *value,
                         const char *at) {
    const char *name = name_of(r, inst);
    need_combine(r, inst);
    if (is_position(inst->op))
        emit_line(r, "if (takes_%s(%s, %s, %s, %s)) %s = %s, %s = %s;", name, c, q, value, at, c, value, q, at);
    else
        emit_line(r, "%s = combine_%s(%s, %s);", c, name, c, value);
}

/* --- a thread --- */
static bool reduces_now(const GpuRender *r, int i) {
    return kernel_op_is_reduce(inst_at(r, i)->op) && inst_at(r, i)->stage == r->stage;
}

void emit_accumulators(GpuRender *r) {
    int vector = r->schedule.vector;
    for (int i = 0; i < r->k->insts.count; i++) {
        const KernelInst *inst = inst_at(r, i);
        if (!reduces_now(r, i)) continue;
        bool position = is_position(inst->op);
        emit_line(r, "%s c%d[%d];", compute_type(operand_dtype(r->k, inst)), i, vector);
        if (position) emit_line(r, "i64 q%d[%d];", i, vector);
        emit_line(r, "UNROLL for (i32 j = 0; j < %d; j++) c%d[j] = %s%s;", vector, i, neutral(r, inst),
                  position ? F(", q%d[j] = %s", i, no_position(inst)) : "");
    }
}

void emit_accumulate(GpuRender *r, int i) {
    const KernelInst *inst = inst_at(r, i);
    const char *at = r->schedule.class == GPU_OUTER ? "v" : F("(flat + %s)", place_of_element(r));
    emit_combine(r, inst, F("c%d[j]", i), F("q%d[j]", i), value_of(r, inst->args[0]), at);
}

/* --- the group --- */
static const char *to_cell(GpuRender *r, DType t, const char *value, const char *cell) {
    if (t == DT_F32) return F("(%s)BITS_f32(%s)", cell, value);
    if (t == DT_F64) return F("BITS_f64(%s)", value);
    return F("(%s)%s", cell, value);
}

static const char *from_cell(GpuRender *r, DType t, const char *cell) {
    if (t == DT_F32) return F("FLOAT_u32((u32)%s)", cell);
    if (t == DT_F64) return F("FLOAT_u64(%s)", cell);
    return F("(%s)%s", compute_type(t), cell);
}

/* The type in which a value is shuffled. */
static const char *shuffle_type(DType t) {
    if (dtype_is_float(t) || dtype_size(t) >= 4) return compute_type(t);
    return dtype_class(t) == DTYPE_SIGNED ? "i32" : "u32";
}

/* How the threads `stride` apart within `width` neighbours come to one value that all of them get. Where the device has
 * shuffles: within 32 threads by these, beyond through shared memory; where it has none, in two steps through shared
 * memory, of at most 32 values each. There no barrier stands in a branch or a loop: compilers that make loops of a
 * block's threads (PoCL) would repeat all that follows for each such place. */
typedef struct GroupText {
    const char *head, *shuffle, *write, *first, *next, *tail; /* first, next: read element n and take it in */
} GroupText;

static const char *group_text(GpuRender *r, const GroupText *g) {
    Text x = text_make(r->arena);
    text_add(&x,
             "%s"
             "    const i32 begin = (i32)THREAD & ~(width - 1);\n"
             "    i32 n;\n"
             "#if HAS_SHUFFLE\n"
             "    const i32 apart = stride > 32 ? stride : 32;\n"
             "    for (i32 mask = stride; mask < width && mask < 32; mask *= 2) {\n"
             "%s"
             "    }\n"
             "    if (width <= 32) {\n"
             "    %s"
             "    }\n"
             "#else\n"
             "    const i32 apart = width < 32 * stride ? width : 32 * stride, near = (i32)THREAD & ~(apart - 1);\n"
             "    %s;\n"
             "    BARRIER;\n"
             "    n = near + ((i32)THREAD & (stride - 1));\n"
             "    %s;\n"
             "    for (n += stride; n < near + apart; n += stride) {\n"
             "%s"
             "    }\n"
             "    BARRIER;\n"
             "#endif\n",
             g->head, g->shuffle, g->tail, g->write, g->first, g->next);
    text_add(&x,
             "    %s;\n"
             "    BARRIER;\n"
             "    n = begin + ((i32)THREAD & (apart - 1));\n"
             "    %s;\n"
             "    for (n += apart; n < begin + width; n += apart) {\n"
             "%s"
             "    }\n"
             "    BARRIER;\n"
             "%s"
             "}\n\n",
             g->write, g->first, g->next, g->tail);
    return x.data;
}

static void need_group(GpuRender *r, const KernelInst *inst) {
    DType t = operand_dtype(r->k, inst);
    const char *type = compute_type(t), *name = name_of(r, inst), *shuffle = shuffle_type(t);
    GroupText text = {
        .head =
            F("FUNCTION %s group_%s(%s a, i32 stride, i32 width, SHARED_POINTER u64 *exchange) {\n", type, name, type),
        .shuffle = F("        a = combine_%s(a, (%s)SHUFFLE_XOR_%s(a, mask, exchange));\n", name, type, shuffle),
        .write = F("exchange[THREAD] = %s", to_cell(r, t, "a", "u64")),
        .first = F("a = %s", from_cell(r, t, "exchange[n]")),
        .next = F("        a = combine_%s(a, %s);\n", name, from_cell(r, t, "exchange[n]")),
        .tail = "    return a;\n",
    };
    need_helper(r, F("group_%s", name), group_text(r, &text));
}

static void need_group_position(GpuRender *r, const KernelInst *inst) {
    DType t = operand_dtype(r->k, inst);
    const char *type = compute_type(t), *name = name_of(r, inst), *shuffle = shuffle_type(t);
    GroupText text = {
        .head = F("FUNCTION i64 group_%s(%s a, i64 at, i32 stride, i32 width, SHARED_POINTER u64 *exchange,\n"
                  "                      SHARED_POINTER i64 *positions, %s *best) {\n",
                  name, type, type),
        .shuffle = F("        const %s b = (%s)SHUFFLE_XOR_%s(a, mask, exchange);\n"
                     "        const i64 at_b = SHUFFLE_XOR_i64(at, mask, exchange);\n"
                     "        if (takes_%s(a, at, b, at_b)) a = b, at = at_b;\n",
                     type, type, shuffle, name),
        .write = F("exchange[THREAD] = %s, positions[THREAD] = at", to_cell(r, t, "a", "u64")),
        .first = F("a = %s, at = positions[n]", from_cell(r, t, "exchange[n]")),
        .next = F("        const %s b = %s;\n"
                  "        if (takes_%s(a, at, b, positions[n])) a = b, at = positions[n];\n",
                  type, from_cell(r, t, "exchange[n]"), name),
        .tail = "    *best = a;\n    return at;\n",
    };
    need_helper(r, F("group_%s", name), group_text(r, &text));
}

static void emit_group_result(GpuRender *r, int i) {
    const KernelInst *inst = inst_at(r, i);
    const char *type = compute_type(operand_dtype(r->k, inst)), *name = name_of(r, inst);
    bool outer = r->schedule.class == GPU_OUTER, columns = outer && is_wide(r, i);
    const char *stride = outer ? "lanes" : "1", *width = outer ? "BLOCK_SIZE" : "group";
    const char *from = columns ? "[j]" : "[0]", *to = columns ? "[j]" : "";
    need_combine(r, inst);
    if (!outer && r->schedule.vector > 1) {
        emit_open(r, "UNROLL for (i32 j = 1; j < %d; j++)", r->schedule.vector);
        emit_combine(r, inst, F("c%d[0]", i), F("q%d[0]", i), F("c%d[j]", i), F("q%d[j]", i));
        emit_close(r);
    }
    emit_line(r, "%s r%d%s;", is_position(inst->op) ? "i64" : type, i, columns ? F("[%d]", r->schedule.vector) : "");
    if (columns) emit_open(r, "UNROLL for (i32 j = 0; j < %d; j++)", r->schedule.vector);
    if (is_position(inst->op)) {
        need_group_position(r, inst);
        emit_line(r, "q%d%s = group_%s(c%d%s, q%d%s, %s, %s, exchange, positions, &c%d%s);", i, from, name, i, from, i,
                  from, stride, width, i, from);
        emit_line(r, "r%d%s = q%d%s == %s ? 0 : q%d%s;", i, to, i, from, no_position(inst), i, from);
    } else {
        need_group(r, inst);
        emit_line(r, "c%d%s = group_%s(c%d%s, %s, %s, exchange);", i, from, name, i, from, stride, width);
        emit_line(r, "r%d%s = c%d%s;", i, to, i, from);
    }
    if (columns) emit_close(r);
}

void emit_group_results(GpuRender *r) {
    for (int i = 0; i < r->k->insts.count; i++)
        if (reduces_now(r, i)) emit_group_result(r, i);
}

/* --- blocks that share a row --- */
/* Calls `each` with the first cell of every reduction of the present stage. */
static void each_partial(GpuRender *r, void (*each)(GpuRender *, int inst, int cell)) {
    int cell = 0;
    for (int i = 0; i < r->k->insts.count; i++) {
        const KernelInst *inst = inst_at(r, i);
        if (!kernel_op_is_reduce(inst->op)) continue;
        if (reduces_now(r, i)) each(r, i, cell);
        cell += results_of(r) * (is_position(inst->op) ? 2 : 1);
    }
}

static const char *cell_type(const GpuRender *r) {
    int bytes;
    reduction_cells(r, &bytes);
    return bytes == 8 ? "u64" : "u32";
}

static void write_partial(GpuRender *r, int i, int cell) {
    const KernelInst *inst = inst_at(r, i);
    int results = results_of(r);
    const char *type = cell_type(r), *from = F("c%d[j]", i);
    emit_line(r, "UNROLL for (i32 j = 0; j < %d; j++) WRITE(%s, partial + cell + %d + j, %s);", results, type, cell,
              to_cell(r, operand_dtype(r->k, inst), from, type));
    if (is_position(inst->op))
        emit_line(r, "UNROLL for (i32 j = 0; j < %d; j++) WRITE(%s, partial + cell + %d + j, (u64)q%d[j]);", results,
                  type, cell + results, i);
}

static void read_partial(GpuRender *r, int i, int cell) {
    const KernelInst *inst = inst_at(r, i);
    DType t = operand_dtype(r->k, inst);
    int results = results_of(r);
    const char *type = cell_type(r), *bits = F("READ(%s, partial + cell + %d + j)", type, cell);
    emit_open(r, "UNROLL for (i32 j = 0; j < %d; j++)", results);
    emit_line(r, "const %s y = %s;", compute_type(t), from_cell(r, t, bits));
    if (is_position(inst->op))
        emit_line(r, "const i64 at = (i64)READ(%s, partial + cell + %d + j);", type, cell + results);
    emit_combine(r, inst, F("c%d[j]", i), F("q%d[j]", i), "y", "at");
    emit_close(r);
}

void emit_partials(GpuRender *r) {
    int bytes, cells = reduction_cells(r, &bytes);
    emit_open(r, "if (live && g == 0)");
    emit_line(r, "const i64 cell = ((i64)unit * splits + part) * %d;", cells);
    each_partial(r, write_partial);
    emit_close(r);
}

void emit_from_partials(GpuRender *r) {
    int bytes, cells = reduction_cells(r, &bytes);
    emit_open(r, "for (%s n = g; n < splits; n += group)", r->index);
    emit_line(r, "const i64 cell = ((i64)unit * splits + n) * %d;", cells);
    each_partial(r, read_partial);
    emit_close(r);
}
