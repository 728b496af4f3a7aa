/* SPDX-License-Identifier: Apache-2.0 */
/* Which threads of a GPU take which elements, what they keep, and the launches of a run. */
#include "codegen/gpu/region/render.h"

/* A thread's access is at most 16 bytes, and a vector at most 8 elements. */
enum { ACCESS_BYTES = 16, MOST_VECTOR = 8, RANDOM_STEP = 16, RANDOM_VECTOR = 4, RANDOM_GROUP = 64 };
/* Registers (of 4 bytes) that held values may take, of the 128 a thread has in blocks of 512. */
enum { HELD_REGISTERS = 64, MOST_HOLD = 4 };
enum { BLOCK = 256, LARGE_BLOCK = 512, TILE = 32, WARP = 32 };
/* Blocks that keep a multiprocessor busy in a grid-stride loop; and in a reduction that is split. */
enum { WAVES = 32, SPLIT_WAVES = 4, MOST_SPLITS = 256, LONGEST_SUM = 1024 };
/* Elements of a column, vectors of a thread's row, that a split should have at least: what it leaves in scratch memory
 * is then below a hundredth of what it reads. */
enum { SPLIT_ROWS = 256, SPLIT_VECTORS = 4 };
/* Threads that stand beside each other along the lanes of an outer reduction: 32 fill whole cache lines of any type, 8
 * with 16 bytes each still do. */
enum { OUTER_LANES = 32, LEAST_OUTER_LANES = 8 };

/* --- the kernel's form --- */
int gpu_vector_axis(const Kernel *k) {
    for (int i = 0; i < k->axis_count; i++)
        if (k->axes[i].role == AXIS_LANE || k->axes[i].role == AXIS_REDUCE_LANE) return i;
    return 0;
}

uint32_t gpu_reduced_axes(const Kernel *k) {
    uint32_t axes = 0;
    for (int i = 0; i < k->axis_count; i++)
        if (k->axes[i].role == AXIS_REDUCE || k->axes[i].role == AXIS_REDUCE_LANE) axes |= 1u << i;
    return axes;
}

static GpuClass class_of(const Kernel *k) {
    if (k->axes[k->axis_count - 1].role == AXIS_REDUCE_LANE) return GPU_INNER;
    if (gpu_reduced_axes(k)) return GPU_OUTER;
    return k->tile_axis >= 0 ? GPU_TRANSPOSE : GPU_POINTWISE;
}

/* What is read again in a later stage, and is neither as cheap as an index nor a load that lacks the kept axes (a
 * scale, a bias: a few rows in the first cache). */
const bool *gpu_held_values(Arena *arena, const Kernel *k) {
    uint32_t reduced = gpu_reduced_axes(k), kept = ((1u << k->axis_count) - 1) & ~reduced;
    bool *held = ARENA_ARRAY(arena, bool, k->insts.count + 1);
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *user = &k->insts.items[i];
        for (int n = 0; n < kernel_op_args(user->op); n++) {
            const KernelInst *arg = &k->insts.items[user->args[n]];
            bool again = (user->axes & reduced || kernel_op_is_reduce(user->op)) && arg->axes & reduced;
            bool cheap = arg->op == K_INDEX || (arg->op == K_LOAD && !(arg->axes & kept) && kept);
            if (again && user->stage > arg->stage && !cheap) held[user->args[n]] = true;
        }
    }
    return held;
}

static int held_registers(const Kernel *k) {
    Arena *arena = arena_create(0);
    if (!arena) return HELD_REGISTERS + 1;
    const bool *held = gpu_held_values(arena, k);
    int registers = 0;
    for (int i = 0; i < k->insts.count; i++)
        if (held[i]) registers += dtype_size(k->insts.items[i].dtype) == 8 ? 2 : 1;
    arena_destroy(arena);
    return registers;
}

static int widest_access(const Kernel *k, int lane) {
    size_t bytes = 1;
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *inst = &k->insts.items[i];
        if ((inst->op != K_LOAD && inst->op != K_STORE) || inst->access->kind[lane] != STRIDE_ONE) continue;
        size_t own = dtype_size(k->buffers.items[inst->buffer].dtype);
        if (own > bytes) bytes = own;
    }
    return (int)bytes;
}

static bool draws_along_lanes(const Kernel *k) {
    for (int i = 0; i < k->insts.count; i++)
        if (k->insts.items[i].op == K_RANDOM && k->insts.items[i].bits & RANDOM_CONSECUTIVE) return true;
    return false;
}

GpuSchedule gpu_schedule(const Kernel *k) {
    GpuSchedule s = {.class = class_of(k), .vector = 1, .step = 1};
    int lane = gpu_vector_axis(k);
    int64_t multiple = k->axes[lane].multiple;
    if (s.class == GPU_TRANSPOSE) {
        s.tile = TILE;
        return s;
    }
    s.vector = ACCESS_BYTES / widest_access(k, lane);
    if (s.vector > MOST_VECTOR) s.vector = MOST_VECTOR;
    while (s.vector > 1 && multiple % s.vector) s.vector /= 2;
    if (draws_along_lanes(k) && s.class != GPU_OUTER && multiple % RANDOM_GROUP == 0) {
        s.vector = RANDOM_VECTOR;
        s.step = RANDOM_STEP;
    }
    if (s.class == GPU_POINTWISE) return s;
    int registers = held_registers(k) * s.vector;
    s.hold = MOST_HOLD;
    while (s.hold > 0 && registers * s.hold > HELD_REGISTERS) s.hold /= 2;
    return s;
}

const char *const *gpu_suffixes(const Kernel *k) {
    static const char *const one[] = {"", NULL}, *const both[] = {"_held", "_long", NULL},
                             *const only_long[] = {"_long", NULL};
    GpuSchedule s = gpu_schedule(k);
    if (s.class == GPU_POINTWISE || s.class == GPU_TRANSPOSE) return one;
    return s.hold ? both : only_long;
}

/* --- launches --- */
static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t power_above(int64_t n) {
    int64_t p = 1;
    while (p < n) p *= 2;
    return p;
}

static int64_t axis_size(const KernelAxis *axis, const int64_t *params) {
    return axis->param < 0 ? axis->size : params[axis->param];
}

typedef struct Extents {
    int64_t tasks, lane, reduced; /* products of TASK, of REDUCE and REDUCE_LANE; LANE alone (1 without) */
} Extents;

static Extents extents_of(const Kernel *k, const int64_t *params) {
    Extents x = {1, 1, 1};
    for (int i = 0; i < k->axis_count; i++) {
        int64_t size = axis_size(&k->axes[i], params);
        switch (k->axes[i].role) {
        case AXIS_TASK: x.tasks *= size; break;
        case AXIS_LANE: x.lane = size; break;
        default: x.reduced *= size;
        }
    }
    return x;
}

static void launch_pointwise(const GpuSchedule *s, const GpuLimits *limits, const Extents *x, GpuLaunches *out) {
    int64_t total = x->tasks * (x->lane / s->vector);
    out->count = total > 0;
    out->items[0] = (GpuLaunch){.suffix = "",
                                .grid = least(ceil_div(total, BLOCK), (int64_t)limits->multiprocessors * WAVES),
                                .block = BLOCK,
                                .extra_count = 1,
                                .extra = {total}};
}

static void launch_transpose(const Kernel *k, const int64_t *params, const Extents *x, GpuLaunches *out) {
    int64_t across = axis_size(&k->axes[k->tile_axis], params);
    int64_t tiles = across ? x->tasks / across * ceil_div(across, TILE) * ceil_div(x->lane, TILE) : 0;
    out->count = tiles > 0;
    out->items[0] = (GpuLaunch){.suffix = "", .grid = tiles, .block = BLOCK, .extra_count = 0};
}

/* One launch a stage where a row is shared by several blocks, else one for all. */
static void add_stages(const Kernel *k, GpuLaunch launch, int64_t splits, GpuLaunches *out) {
    out->count = splits > 1 ? k->stage_count : 1;
    launch.extra[launch.extra_count++] = splits;
    launch.extra[launch.extra_count] = 0;
    for (int i = 0; i < out->count; i++) {
        out->items[i] = launch;
        out->items[i].extra[launch.extra_count] = i;
        out->items[i].extra_count = launch.extra_count + 1;
    }
}

static size_t partial_bytes(const Kernel *k, const GpuSchedule *s, int64_t units, int64_t splits) {
    GpuRender r = {.k = k, .schedule = *s};
    int size, cells = reduction_cells(&r, &size);
    return splits > 1 ? (size_t)(units * splits * cells * size) : 0;
}

/* Blocks that share a row or a column: so that all of the device has work, and no sum of a thread grows so long that
 * its rounding errors do. */
static int64_t choose_splits(const Kernel *k, const GpuLimits *limits, int64_t blocks, int64_t most_useful,
                             int64_t a_thread) {
    int64_t wanted = (int64_t)limits->multiprocessors * SPLIT_WAVES, splits = 1;
    if (k->stage_count > GPU_MAX_LAUNCHES) return 1;
    if (blocks * 2 < wanted) splits = least(ceil_div(wanted, blocks), most_useful);
    return least(most(splits, ceil_div(a_thread, LONGEST_SUM)), MOST_SPLITS);
}

static void launch_inner(const Kernel *k, const GpuSchedule *s, const GpuLimits *limits, const Extents *x,
                         GpuLaunches *out) {
    int64_t rows = x->tasks, vectors = x->reduced / s->vector, busy = (int64_t)limits->multiprocessors * 4 * BLOCK;
    if (rows <= 0) return;
    if (s->hold && vectors <= (int64_t)s->hold * LARGE_BLOCK) {
        int64_t group = power_above(ceil_div(vectors, s->hold));
        while (group < LARGE_BLOCK && group < vectors && rows * group < busy) group *= 2;
        int block = group > BLOCK ? LARGE_BLOCK : BLOCK;
        out->count = 1;
        out->items[0] = (GpuLaunch){.suffix = "_held",
                                    .grid = ceil_div(rows, block / group),
                                    .block = block,
                                    .extra_count = 2,
                                    .extra = {rows, group}};
        return;
    }
    int64_t group = least(power_above(vectors), BLOCK), blocks = ceil_div(rows, BLOCK / group);
    int64_t splits = choose_splits(k, limits, blocks, vectors / (group * SPLIT_VECTORS), vectors / group);
    GpuLaunch launch = {
        .suffix = "_long", .grid = blocks * splits, .block = BLOCK, .extra_count = 2, .extra = {rows, group}};
    add_stages(k, launch, splits, out);
    out->scratch_bytes = partial_bytes(k, s, rows, splits);
}

static void launch_outer(const Kernel *k, const GpuSchedule *s, const GpuLimits *limits, const Extents *x,
                         GpuLaunches *out) {
    int64_t vectors = x->lane / s->vector, units = x->tasks * vectors, lanes = least(power_above(vectors), OUTER_LANES);
    if (units <= 0) return;
    int64_t fewest = least(lanes, LEAST_OUTER_LANES), block = BLOCK;
    if (s->hold && x->reduced <= s->hold * (LARGE_BLOCK / fewest)) {
        while (lanes > fewest && s->hold * (block / lanes) < x->reduced) lanes /= 2;
        if (s->hold * (block / lanes) < x->reduced) block = LARGE_BLOCK;
        out->count = 1;
        out->items[0] = (GpuLaunch){.suffix = "_held",
                                    .grid = x->tasks * ceil_div(vectors, lanes),
                                    .block = (int)block,
                                    .extra_count = 2,
                                    .extra = {units, lanes}};
        return;
    }
    int64_t blocks = x->tasks * ceil_div(vectors, lanes), group = block / lanes;
    int64_t splits = choose_splits(k, limits, blocks, x->reduced / SPLIT_ROWS, x->reduced / group);
    GpuLaunch launch = {
        .suffix = "_long", .grid = blocks * splits, .block = BLOCK, .extra_count = 2, .extra = {units, lanes}};
    add_stages(k, launch, splits, out);
    out->scratch_bytes = partial_bytes(k, s, units, splits);
}

void gpu_launches(const Kernel *k, const GpuSchedule *s, const GpuLimits *limits, const int64_t *params,
                  GpuLaunches *out) {
    Extents x = extents_of(k, params);
    out->count = 0;
    out->scratch_bytes = 0;
    switch (s->class) {
    case GPU_POINTWISE: launch_pointwise(s, limits, &x, out); break;
    case GPU_TRANSPOSE: launch_transpose(k, params, &x, out); break;
    case GPU_INNER: launch_inner(k, s, limits, &x, out); break;
    case GPU_OUTER: launch_outer(k, s, limits, &x, out); break;
    }
}
