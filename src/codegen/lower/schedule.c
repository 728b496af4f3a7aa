/* SPDX-License-Identifier: Apache-2.0 */
/* Loop order and roles. Axes that run together in every access become one; the others are ordered as memory is, the
 * axis that is contiguous in most bytes becomes the lanes. */
#include "codegen/lower/lower_region.h"

/* Elements of LANE in a task, and the tile of a transpose; chosen by elements of the widest type, in bytes. Pointwise:
 * a block is long enough for the loop to run at full speed (1024 x 4 bytes are 64 vectors of AVX-512) and short enough
 * to share out. Outer reductions: the accumulators of a block stay in registers (256 x 4 bytes are 16 vectors of
 * AVX-512) while a row's piece still fills whole cache lines. Tiles: a row's piece fills whole lines on both
 * sides, and the source is prefetched for most of the tile (4096 x 4096 f32 plus another, of which a stream of the same
 * bytes takes 6.0 ms: 4.4 with 256 x 128, 4.9 with 256 x 64, 5.2 with 128 x 64, 5.8 with 64 x 256). */
enum { POINTWISE_BLOCK = 1024, OUTER_BYTES = 1024, OUTER_LEAST = 32, TILE = 128, TILE_ROWS = 256, TILE_OF_WIDE = 32 };
/* Bands of outer reductions: 64 rows are 1/64 of the input in partial results, and the number of terms after which sums
 * of floats begin anew. Fewer rows than four bands are not worth the second pass. */
enum { BAND_ROWS = 64, BAND_LEAST = 256 };
enum { MOST_MULTIPLE = 128, SMALL_LANE = 64, NARROW_LANES = 4 };

static bool is_const(const Dim *dim, int64_t value) { return dim_equals(dim, value); }

/* ---- merging ---- */

static bool run_together(const Lowered *l, int outer, int inner) {
    if (l->axes[outer].reduced != l->axes[inner].reduced) return false;
    for (int i = 0; i < l->accesses.count; i++) {
        const Access *a = &l->accesses.items[i];
        if (a->stride[outer] != dim_mul(l->dims, a->stride[inner], l->axes[inner].size)) return false;
    }
    return true;
}

static void remove_axis(Lowered *l, int axis) {
    int after = l->axis_count - axis - 1;
    memmove(l->axes + axis, l->axes + axis + 1, sizeof *l->axes * (size_t)after);
    for (int i = 0; i < l->accesses.count; i++) {
        const Dim **stride = l->accesses.items[i].stride;
        memmove(stride + axis, stride + axis + 1, sizeof *stride * (size_t)after);
        stride[l->axis_count - 1] = dim_const(l->dims, 0);
    }
    l->axis_count--;
}

static bool merge_one(Lowered *l) {
    for (int inner = l->axis_count - 1; inner >= 0; inner--)
        for (int outer = l->axis_count - 1; outer >= 0; outer--) {
            if (outer == inner || !run_together(l, outer, inner)) continue;
            l->axes[inner].size = dim_mul(l->dims, l->axes[outer].size, l->axes[inner].size);
            remove_axis(l, outer);
            return true;
        }
    return false;
}

/* ---- order ---- */

/* How much an access counts: the axes it runs over, then the bytes of an element; what an argmax counts by comes before
 * all. */
static int weight(const Lowered *l, const Access *a, bool reductions) {
    int axes = 0;
    for (int i = 0; i < l->axis_count; i++) axes += !is_const(a->stride[i], 0);
    bool leads = a->kind == (reductions ? ACCESS_LOAD : ACCESS_STORE);
    return axes * 64 + (leads ? 32 : 0) + (int)a->element;
}

static bool is_argument_index(const Access *a) {
    const Node *producer = a->value->producer;
    return a->kind == ACCESS_INDEX && (producer->prim == PRIM_ARGMAX || producer->prim == PRIM_ARGMIN);
}

/* The accesses whose memory decides, most important first. */
static int rank_accesses(const Lowered *l, bool reductions, const Access **ranked) {
    int count = 0;
    for (int i = 0; i < l->accesses.count; i++) {
        const Access *a = &l->accesses.items[i];
        if (a->kind == ACCESS_INDEX && !is_argument_index(a)) continue;
        int at = count++, own = is_argument_index(a) ? 1 << 20 : weight(l, a, reductions);
        for (; at > 0; at--) {
            const Access *before = ranked[at - 1];
            if ((is_argument_index(before) ? 1 << 20 : weight(l, before, reductions)) >= own) break;
            ranked[at] = before;
        }
        ranked[at] = a;
    }
    return count;
}

/* < 0: stride x is the outer one; 0: cannot tell. */
static int compare_strides(const Lowered *l, const Dim *x, const Dim *y) {
    int64_t a, b;
    if (x == y || is_const(x, 0) || is_const(y, 0)) return 0;
    if (dim_is_const(x, &a) && dim_is_const(y, &b)) {
        uint64_t p = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, q = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
        return p == q ? 0 : p > q ? -1 : 1;
    }
    if (dim_divides(l->dims, x, y, NULL)) return -1;
    return dim_divides(l->dims, y, x, NULL) ? 1 : 0;
}

static bool stands_before(const Lowered *l, const Access *const *ranked, int count, int x, int y) {
    if (l->axes[x].reduced != l->axes[y].reduced) return l->axes[y].reduced;
    for (int i = 0; i < count; i++) {
        int order = compare_strides(l, ranked[i]->stride[x], ranked[i]->stride[y]);
        if (order) return order < 0;
    }
    return x < y;
}

static void reorder(Lowered *l, const int *order) {
    SpaceAxis axes[SPACE_MAX_AXES];
    memcpy(axes, l->axes, sizeof axes);
    for (int i = 0; i < l->axis_count; i++) l->axes[i] = axes[order[i]];
    for (int k = 0; k < l->accesses.count; k++) {
        const Dim *stride[SPACE_MAX_AXES];
        memcpy(stride, l->accesses.items[k].stride, sizeof stride);
        for (int i = 0; i < l->axis_count; i++) l->accesses.items[k].stride[i] = stride[order[i]];
    }
}

/* Kept axes before reduced ones, each outermost first; `lane` goes last among its own. */
static int order_axes(Lowered *l, const Access *const *ranked, int count, int lane) {
    int order[SPACE_MAX_AXES], at = -1;
    for (int i = 0; i < l->axis_count; i++) {
        int to = i;
        for (; to > 0; to--) {
            int before = order[to - 1];
            bool same = l->axes[before].reduced == l->axes[i].reduced;
            bool stays = same && (before == lane || i == lane) ? i == lane : stands_before(l, ranked, count, before, i);
            if (stays) break;
            order[to] = before;
        }
        order[to] = i;
    }
    for (int i = 0; i < l->axis_count; i++)
        if (order[i] == lane) at = i;
    reorder(l, order);
    return at;
}

/* ---- lanes ---- */

static bool sums_columns(const Lowered *l) {
    bool sums = false;
    for (int i = 0; i < l->space->values.count; i++) sums |= l->space->values.items[i].column;
    return sums;
}

/* How much is contiguous along the axis. Without reductions stores decide before loads. */
static int64_t contiguous(const Lowered *l, const Access *const *ranked, int count, int axis, bool reductions) {
    int64_t score = 0;
    for (int i = 0; i < count; i++) {
        const Access *a = ranked[i];
        if (a->kind == ACCESS_INDEX || !is_const(a->stride[axis], 1)) continue;
        int64_t bytes = (int64_t)a->element;
        for (int k = 0; k < l->axis_count; k++) bytes *= is_const(a->stride[k], 0) ? 1 : 8;
        score += bytes * (a->kind == (reductions ? ACCESS_LOAD : ACCESS_STORE) ? 64 : 1);
    }
    return score;
}

/* The channels of a picture that become the last axis, say: no vector is as short, so elements would go one by one. Another axis
 * has vectors of what it reads, and stores their elements apart. */
static bool is_narrow(const Lowered *l, int axis) {
    int64_t size;
    return !l->for_gpu && dim_is_const(l->axes[axis].size, &size) && size < NARROW_LANES;
}

/* The axis along which most is contiguous, of those of a row where columns are summed; a narrow one where nothing is along any other. */
static int choose_lane(const Lowered *l, const Access *const *ranked, int count, bool reductions) {
    const int64_t wide = INT64_MAX / 2; /* more than any score */
    int64_t best = -1;
    int lane = -1;
    for (int axis = 0; axis < l->axis_count; axis++) {
        if (sums_columns(l) && !l->axes[axis].reduced) continue;
        int64_t score = contiguous(l, ranked, count, axis, reductions);
        if (score && (reductions || !is_narrow(l, axis))) score += wide;
        if (lane < 0 || score > best || (score == best && stands_before(l, ranked, count, lane, axis))) {
            best = score;
            lane = axis;
        }
    }
    return lane;
}

/* An argmax counts in the order of its axes: where lanes are reduced, they are the last of these. */
static int last_argument_axis(const Lowered *l) {
    for (int i = 0; i < l->accesses.count; i++)
        for (int axis = 0; axis < l->axis_count; axis++)
            if (is_argument_index(&l->accesses.items[i]) && is_const(l->accesses.items[i].stride[axis], 1)) return axis;
    return -1;
}

static int64_t known_multiple(const Lowered *l, const Dim *size) {
    for (int64_t m = MOST_MULTIPLE; m > 1; m /= 2)
        if (dim_divides(l->dims, size, dim_const(l->dims, m), NULL)) return m;
    return 1;
}

static KernelAxis make_axis(Lowered *l, int axis, AxisRole role) {
    const Dim *size = l->axes[axis].size;
    KernelAxis to = {.role = role, .param = -1, .multiple = 1};
    bool lane = role == AXIS_LANE || role == AXIS_REDUCE_LANE;
    if (lane && !is_const(size, 0)) to.multiple = known_multiple(l, size);
    if (lane && dim_is_const(size, &to.size) && to.size >= 1 && to.size <= SMALL_LANE) return to;
    to.size = 0;
    to.param = access_param(l, size);
    return to;
}

static void add_unit_lane(Lowered *l) {
    l->axes[0] = (SpaceAxis){.size = dim_const(l->dims, 1)};
    l->axis_count = 1;
}

Status schedule_axes(Lowered *l) {
    while (merge_one(l)) {}
    bool reductions = false;
    for (int i = 0; i < l->axis_count; i++) reductions |= l->axes[i].reduced;
    if (l->axis_count == 0) add_unit_lane(l);
    if (l->axis_count > KERNEL_MAX_AXES)
        return status_error(STATUS_FAULT, "a region of %d axes that do not merge", l->axis_count);
    const Access **ranked = ARENA_ARRAY(l->arena, const Access *, l->accesses.count + 1);
    int count = rank_accesses(l, reductions, ranked), lane = choose_lane(l, ranked, count, reductions);
    if (l->axes[lane].reduced && last_argument_axis(l) >= 0) lane = last_argument_axis(l);
    lane = order_axes(l, ranked, count, lane);
    l->kernel->axis_count = l->axis_count;
    for (int i = 0; i < l->axis_count; i++) {
        AxisRole role = l->axes[i].reduced ? AXIS_REDUCE : AXIS_TASK;
        if (i == lane) role = l->axes[i].reduced ? AXIS_REDUCE_LANE : AXIS_LANE;
        l->kernel->axes[i] = make_axis(l, i, role);
    }
    return NULL;
}

/* ---- blocks ---- */

/* The task axis along which a load is contiguous that is not along the lanes; -1 when there is none. */
static int transposed_axis(const Kernel *k, int lane) {
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *inst = &k->insts.items[i];
        if (inst->op != K_LOAD || inst->access->kind[lane] == STRIDE_ONE || inst->access->kind[lane] == STRIDE_ZERO)
            continue;
        for (int axis = 0; axis < k->axis_count; axis++)
            if (axis != lane && inst->access->kind[axis] == STRIDE_ONE && k->axes[axis].role == AXIS_TASK) return axis;
    }
    return -1;
}

static int widest(const Kernel *k) {
    size_t bytes = 1;
    for (int i = 0; i < k->buffers.count; i++) {
        size_t own = dtype_size(compute_dtype(k->buffers.items[i].dtype));
        if (own > bytes) bytes = own;
    }
    return (int)bytes;
}

static int reduction_count(const Kernel *k) {
    int count = 0;
    for (int i = 0; i < k->insts.count; i++) count += kernel_op_is_reduce(k->insts.items[i].op);
    return count;
}

void schedule_blocks(Lowered *l) {
    Kernel *k = l->kernel;
    int lane = -1;
    k->tile_axis = -1;
    for (int i = 0; i < k->axis_count; i++)
        if (k->axes[i].role == AXIS_LANE) lane = i;
    if (lane < 0) {
        if (kernel_can_band(k)) k->band = BAND_ROWS;
        return;
    }
    int reductions = reduction_count(k), bytes = widest(k);
    if (k->axes[k->axis_count - 1].role == AXIS_REDUCE) {
        int64_t rows;
        bool few = dim_is_const(l->axes[k->axis_count - 1].size, &rows) && rows < BAND_LEAST;
        if (!l->for_gpu && !few && kernel_can_band(k)) k->band = BAND_ROWS;
        int block = OUTER_BYTES / bytes / (reductions > 2 ? 2 : 1);
        k->lane_block = block > OUTER_LEAST ? block : OUTER_LEAST;
        return;
    }
    k->lane_block = POINTWISE_BLOCK;
    k->tile_axis = transposed_axis(k, lane);
    if (k->tile_axis >= 0) {
        k->lane_block = bytes > 4 ? TILE_OF_WIDE : TILE;
        k->tile_block = bytes > 4 ? TILE_OF_WIDE : TILE_ROWS;
    }
}
