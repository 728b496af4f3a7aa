/* Tiles: loads that are contiguous along the tile axis come in as squares of lanes x lanes elements, read along the
 * tile axis and transposed in registers; the rest of the program then sees them as rows along LANE. What is left at the
 * edges is read element by element. */
#include "codegen/llvm/render.h"

enum {
    TILE_LANES = 16,
    STRAIGHT_TILE = 256 /* instructions of a square that is written out whole; larger ones loop over its rows */
};

static LLVMValueRef shuffle(Render *r, LLVMValueRef a, LLVMValueRef b, const int *from, int lanes) {
    LLVMValueRef mask[TILE_LANES];
    for (int i = 0; i < lanes; i++) mask[i] = LLVMConstInt(r->i32, (unsigned)from[i], 0);
    return LLVMBuildShuffleVector(r->builder, a, b, LLVMConstVector(mask, (unsigned)lanes), "");
}

/* Interleaves the low (high) halves of each `group` elements, as x86's unpack within 16 bytes and ARM's zip. */
static LLVMValueRef zip(Render *r, LLVMValueRef a, LLVMValueRef b, int lanes, int group, bool high) {
    int from[TILE_LANES];
    for (int i = 0; i < lanes; i++)
        from[i] = i / group * group + i % group / 2 + (high ? group / 2 : 0) + (i & 1) * lanes;
    return shuffle(r, a, b, from, lanes);
}

/* log2(group) rounds of zips turn `group` rows into their columns, within each group of lanes. */
static void transpose_groups(Render *r, LLVMValueRef *rows, int lanes, int group) {
    for (int first = 0; first < lanes; first += group)
        for (int round = 1; round < group; round *= 2) {
            LLVMValueRef next[TILE_LANES];
            for (int n = 0; n < group / 2; n++) {
                LLVMValueRef a = rows[first + n], b = rows[first + n + group / 2];
                next[2 * n] = zip(r, a, b, lanes, group, false);
                next[2 * n + 1] = zip(r, a, b, lanes, group, true);
            }
            memcpy(rows + first, next, (size_t)group * sizeof *next);
        }
}

/* Two of a's blocks, then two of b's (x86: shuf32x4): with blocks x y and x + distance. */
static LLVMValueRef join(Render *r, LLVMValueRef a, LLVMValueRef b, int lanes, int x, int y) {
    int from[TILE_LANES], block = lanes / 4;
    for (int i = 0; i < lanes; i++) {
        int which = i / block;
        from[i] = (which & 1 ? y : x) * block + i % block + (which >= 2 ? lanes : 0);
    }
    return shuffle(r, a, b, from, lanes);
}

/* rows[g * group + c] holds in block q column q * group + c of the group g of rows; four groups. */
static void transpose_four_blocks(Render *r, LLVMValueRef *rows, int lanes) {
    int group = lanes / 4;
    LLVMValueRef out[TILE_LANES];
    for (int c = 0; c < group; c++) {
        LLVMValueRef *g = rows + c;
        LLVMValueRef low01 = join(r, g[0], g[group], lanes, 0, 1), high01 = join(r, g[0], g[group], lanes, 2, 3);
        LLVMValueRef low23 = join(r, g[2 * group], g[3 * group], lanes, 0, 1);
        LLVMValueRef high23 = join(r, g[2 * group], g[3 * group], lanes, 2, 3);
        out[c] = join(r, low01, low23, lanes, 0, 2);
        out[group + c] = join(r, low01, low23, lanes, 1, 3);
        out[2 * group + c] = join(r, high01, high23, lanes, 0, 2);
        out[3 * group + c] = join(r, high01, high23, lanes, 1, 3);
    }
    memcpy(rows, out, (size_t)lanes * sizeof *out);
}

/* Any number of groups: exchanges of off-diagonal blocks, one power of two after the other. */
static void exchange_blocks(Render *r, LLVMValueRef *rows, int lanes, int distance) {
    int low[TILE_LANES], high[TILE_LANES];
    for (int i = 0; i < lanes; i++) {
        low[i] = i & distance ? lanes + i - distance : i;
        high[i] = i & distance ? lanes + i : i + distance;
    }
    for (int n = 0; n < lanes; n++) {
        if (n & distance) continue;
        LLVMValueRef a = rows[n], b = rows[n + distance];
        rows[n] = shuffle(r, a, b, low, lanes);
        rows[n + distance] = shuffle(r, a, b, high, lanes);
    }
}

static void transpose_square(Render *r, LLVMValueRef *rows, int lanes, int element_bytes) {
    int group = 16 / element_bytes;
    if (group > lanes) group = lanes;
    transpose_groups(r, rows, lanes, group);
    if (lanes / group == 4) {
        transpose_four_blocks(r, rows, lanes);
        return;
    }
    for (int distance = group; distance < lanes; distance *= 2) exchange_blocks(r, rows, lanes, distance);
}

/* --- one square ------------------------------------------------------------------------------------------------------
 */

typedef struct Square {
    LLVMValueRef rows[TILE_LANES];
    LLVMValueRef memory; /* the rows, when they are looped over */
} Square;

static LLVMTypeRef row_type(Render *r, const Slot *s) {
    return type_memory(r, r->kernel->buffers.items[s->inst->buffer].dtype, r->vector_lanes);
}

static void load_square(Render *r, const Slot *s, LLVMValueRef row, LLVMValueRef lane, Square *square) {
    int lanes = r->vector_lanes;
    int64_t bytes = access_bytes(r, s->inst);
    LLVMTypeRef type = row_type(r, s);
    LLVMValueRef stride = access_stride(r, s->inst, r->vector_axis);
    LLVMValueRef along = LLVMBuildMul(r->builder, row, constant_i64(r, bytes), "");
    LLVMValueRef across = LLVMBuildMul(r->builder, lane, stride, "");
    LLVMValueRef offset = LLVMBuildAdd(r->builder, along, across, "");
    LLVMValueRef base = LLVMBuildGEP2(r->builder, r->i8, s->pointer[1], &offset, 1, "");
    for (int n = 0; n < lanes; n++) {
        LLVMValueRef step = LLVMBuildMul(r->builder, stride, constant_i64(r, n), "");
        LLVMValueRef at = LLVMBuildGEP2(r->builder, r->i8, base, &step, 1, "");
        square->rows[n] = LLVMBuildLoad2(r->builder, type, at, "");
        LLVMSetAlignment(square->rows[n], (unsigned)bytes);
    }
    transpose_square(r, square->rows, lanes, (int)bytes);
}

static LLVMValueRef row_address(Render *r, const Slot *s, const Square *square, LLVMValueRef row) {
    return LLVMBuildGEP2(r->builder, row_type(r, s), square->memory, &row, 1, "");
}

static void render_row(Render *r, LLVMValueRef row, LLVMValueRef lane) {
    int axis = r->kernel->tile_axis;
    r->index[axis] = row;
    render_advance(r, 0, 2, axis, row);
    render_level(r, 0, 2);
    LLVMValueRef limit = LLVMBuildNSWAdd(r->builder, lane, constant_i64(r, r->vector_lanes), "");
    (void)limit;
    r->index[r->vector_axis] = LLVMBuildNSWAdd(r->builder, r->range_start, lane, "");
    render_advance(r, 0, 3, r->vector_axis, r->index[r->vector_axis]);
    render_level(r, 0, 3);
}

static void render_square(Render *r, LLVMValueRef row, LLVMValueRef lane) {
    int count = r->kernel->insts.count, lanes = r->vector_lanes;
    Square *squares = ARENA_ARRAY(r->arena, Square, count);
    bool straight = render_weight(r, 0) * lanes <= STRAIGHT_TILE;
    LLVMValueRef element = LLVMBuildNSWAdd(r->builder, r->range_start, lane, "");
    r->lanes = lanes, r->unroll = 1, r->mask = r->live = NULL;
    for (int i = 0; i < count; i++) {
        Slot *s = &r->slots[i];
        if (!s->tiled || !r->needed[0][i]) continue;
        load_square(r, s, row, element, &squares[i]);
        if (straight) continue;
        squares[i].memory = slot_alloca(r, LLVMArrayType(row_type(r, s), (unsigned)lanes), "square");
        for (int n = 0; n < lanes; n++)
            LLVMBuildStore(r->builder, squares[i].rows[n], row_address(r, s, &squares[i], constant_i64(r, n)));
    }
    Loop loop = {.index = constant_i64(r, 0)};
    if (!straight) loop = loop_begin(r, constant_i64(r, 0), constant_i64(r, lanes), 1);
    for (int n = 0; n < (straight ? lanes : 1); n++) {
        LLVMValueRef at = straight ? constant_i64(r, n) : loop.index;
        for (int i = 0; i < count; i++)
            if (squares[i].memory)
                r->slots[i].tile_row = LLVMBuildLoad2(r->builder, row_type(r, &r->slots[i]),
                                                      row_address(r, &r->slots[i], &squares[i], at), "");
            else
                r->slots[i].tile_row = squares[i].rows[n];
        render_row(r, LLVMBuildNSWAdd(r->builder, row, at, ""), lane);
    }
    if (!straight) loop_end(r, &loop);
    for (int i = 0; i < count; i++) r->slots[i].tile_row = NULL;
}

/* --- the tile --------------------------------------------------------------------------------------------------------
 */

static bool divides(const KernelAxis *axis, int64_t block, int64_t by) {
    int64_t multiple = axis->param < 0 ? axis->size : axis->multiple;
    return multiple % by == 0 && block % by == 0;
}

static LLVMValueRef smaller(Render *r, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(r->builder, LLVMBuildICmp(r->builder, LLVMIntSLT, a, b, ""), a, b, "");
}

static LLVMValueRef whole_lanes(Render *r, LLVMValueRef count) {
    return LLVMBuildAnd(r->builder, count, constant_i64(r, -(int64_t)r->vector_lanes), "");
}

/* Rows that the squares leave out whole, and the ends of the others. */
static void render_edges(Render *r, LLVMValueRef first, LLVMValueRef rows, LLVMValueRef whole_rows,
                         LLVMValueRef whole) {
    int axis = r->kernel->tile_axis;
    LLVMValueRef none = LLVMBuildICmp(r->builder, LLVMIntEQ, whole, r->range_count, "");
    LLVMValueRef start = LLVMBuildSelect(r->builder, none, whole_rows, constant_i64(r, 0), "");
    Loop loop = loop_begin(r, start, rows, 1);
    LLVMValueRef covered = LLVMBuildICmp(r->builder, LLVMIntSLT, loop.index, whole_rows, "");
    LLVMValueRef lane = LLVMBuildSelect(r->builder, covered, whole, constant_i64(r, 0), "");
    r->index[axis] = LLVMBuildNSWAdd(r->builder, first, loop.index, "");
    render_advance(r, 0, 2, axis, r->index[axis]);
    render_level(r, 0, 2);
    render_vector_range(r, 0, 3, lane, r->range_count, NULL);
    loop_end(r, &loop);
}

void render_tiles(Render *r) {
    const Kernel *k = r->kernel;
    int axis = k->tile_axis;
    int64_t lanes = r->vector_lanes;
    LLVMValueRef block = constant_i64(r, k->tile_block), zero = constant_i64(r, 0);
    LLVMValueRef first = LLVMBuildNSWMul(r->builder, r->index[axis], block, "");
    LLVMValueRef rows = smaller(r, LLVMBuildSub(r->builder, r->size[axis], first, ""), block);
    LLVMValueRef whole_rows = zero, whole = zero;
    if (lanes > 1) {
        whole_rows = whole_lanes(r, rows);
        whole = whole_lanes(r, r->range_count);
        Loop outer = loop_begin(r, zero, whole_rows, lanes);
        LLVMValueRef row = LLVMBuildNSWAdd(r->builder, first, outer.index, "");
        Loop inner = loop_begin(r, zero, whole, lanes);
        render_square(r, row, inner.index);
        loop_end(r, &inner);
        loop_end(r, &outer);
    }
    bool even =
        divides(&k->axes[axis], k->tile_block, lanes) && divides(&k->axes[r->vector_axis], k->lane_block, lanes);
    if (!even) render_edges(r, first, rows, whole_rows, whole);
}
