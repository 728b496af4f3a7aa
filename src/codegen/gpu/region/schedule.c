/* SPDX-License-Identifier: Apache-2.0 */
/* Which threads of a GPU take which elements, what they keep, and the launches of a run. */
#include "codegen/gpu/region/render.h"

#include "base/integer.h"

/* A thread's access is at most 16 bytes, and a vector at most 8 elements. */
enum { ACCESS_BYTES = 16, MOST_VECTOR = 8, RANDOM_STEP = 16, RANDOM_VECTOR = 4, RANDOM_GROUP = 64 };
/* Registers (of 4 bytes) that held values may take, of the 128 a thread has in blocks of 512. */
enum { HELD_REGISTERS = 64, MOST_HOLD = 4 };
enum { BLOCK = 256, LARGE_BLOCK = 512, TILE = 32, LARGE_TILE = 64 };
/* Blocks that keep a multiprocessor busy in a grid-stride loop; and in a reduction that is split. */
enum { WAVES = 32, SPLIT_WAVES = 6, MOST_SPLITS = 256, LONGEST_SUM = 1024 };
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

bool gpu_draws(const Kernel *k) {
    for (int i = 0; i < k->insts.count; i++)
        if (k->insts.items[i].op == K_RANDOM) return true;
    return false;
}

static bool draws_along_lanes(const Kernel *k) {
    for (int i = 0; i < k->insts.count; i++)
        if (k->insts.items[i].op == K_RANDOM && k->insts.items[i].bits & RANDOM_CONSECUTIVE) return true;
    return false;
}

/* Whether all words are drawn for two neighbours each. */
static bool draws_halves(const Kernel *k) {
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *inst = &k->insts.items[i];
        if (inst->op == K_RANDOM && inst->bits & RANDOM_CONSECUTIVE && !(inst->bits & RANDOM_HALVES)) return false;
    }
    return true;
}

static int whole_vector(const Kernel *k) {
    int vector = ACCESS_BYTES / widest_access(k, gpu_vector_axis(k));
    return vector < MOST_VECTOR ? vector : MOST_VECTOR;
}

/* What a thread takes and keeps where the vector axis is a multiple of so many elements. */
static void choose_vectors(const Kernel *k, GpuClass class, int64_t multiple, int *vector, int *step, int *hold) {
    *vector = whole_vector(k);
    *step = 1;
    while (*vector > 1 && multiple % *vector) *vector /= 2;
    if (draws_along_lanes(k) && class != GPU_OUTER && multiple % RANDOM_GROUP == 0) {
        *vector = class == GPU_POINTWISE && draws_halves(k) ? 2 * RANDOM_VECTOR : RANDOM_VECTOR; /* registers of rows */
        *step = RANDOM_STEP;
    }
    *hold = 0;
    if (class == GPU_POINTWISE) return;
    int registers = held_registers(k) * *vector;
    *hold = MOST_HOLD;
    while (*hold > 0 && registers * *hold > HELD_REGISTERS) *hold /= 2;
}

/* Parameters that must be multiples of a vector so that accesses along the vector axis begin at such: of strides along
 * other axes, and offsets. False: there are too many parameters, or a constant stride is none. */
static bool uneven_params(const Kernel *k, int vector, uint64_t *out_params) {
    *out_params = 0;
    if (k->param_count > 64) return false;
    for (int i = 0; i < k->insts.count; i++) {
        const KernelAccess *a = k->insts.items[i].access;
        int lane = a && k->tile_axis >= 0 && gpu_goes_through_tile(k, i) ? k->tile_axis : gpu_vector_axis(k);
        if (!a || a->kind[lane] != STRIDE_ONE) continue;
        for (int axis = 0; axis <= k->axis_count; axis++) {
            if (axis == lane) continue;
            StrideKind kind = axis == k->axis_count ? a->offset_kind : a->kind[axis];
            int64_t value = axis == k->axis_count ? a->offset : a->stride[axis];
            if (kind == STRIDE_PARAM && (!k->param_multiples || k->param_multiples[value] % vector))
                *out_params |= (uint64_t)1 << value;
        }
    }
    return true;
}

static int partial_of(const Kernel *k, GpuClass class, int vector) {
    const GpuRender r = {.k = k, .schedule = {.class = class, .vector = vector}};
    int bytes, cells = reduction_cells(&r, &bytes);
    return cells * bytes;
}

static GpuEven even_of(const Kernel *k, const GpuSchedule *s) {
    GpuEven even = {0}, none = {0};
    const KernelAxis *lane = &k->axes[gpu_vector_axis(k)];
    bool draws = draws_along_lanes(k) && s->class != GPU_OUTER;
    int unit = draws ? RANDOM_GROUP : whole_vector(k);
    if (unit == 1) return none;
    even.lane = lane->param < 0 || lane->multiple > unit ? (int)(lane->multiple < 64 ? lane->multiple : 64) : unit;
    choose_vectors(k, s->class, even.lane, &even.vector, &even.step, &even.hold);
    even.partial = partial_of(k, s->class, even.vector);
    if (even.vector == 1 || !uneven_params(k, even.vector, &even.params)) return none;
    bool same = even.vector == s->vector && even.step == s->step && !even.params;
    return same ? none : even;
}

bool gpu_goes_through_tile(const Kernel *k, int i) {
    const KernelInst *inst = &k->insts.items[i];
    if (inst->op != K_LOAD) return false;
    StrideKind along = inst->access->kind[gpu_vector_axis(k)];
    return along != STRIDE_ONE && along != STRIDE_ZERO && inst->access->kind[k->tile_axis] == STRIDE_ONE;
}

size_t gpu_tile_bytes(const Kernel *k, int i, int tile) {
    return (size_t)(tile * (tile + 1)) * dtype_size(k->buffers.items[k->insts.items[i].buffer].dtype);
}

/* The large one, whose rows of 16-bit numbers too are whole cache lines, where all loads that turn have one. */
static int tile_of(const Kernel *k) {
    size_t bytes = 0;
    for (int i = 0; i < k->insts.count; i++)
        if (gpu_goes_through_tile(k, i)) bytes += gpu_tile_bytes(k, i, LARGE_TILE);
    return bytes <= GPU_TILE_BYTES ? LARGE_TILE : TILE;
}

/* Rows of a tile that a thread has a vector of each of. */
static int rows_of_tile(int tile, int vector) { return tile * tile / vector / BLOCK; }

/* Elements of less than 4 bytes go by 8 bytes; larger ones would meet the same banks of the tile, and fill lines by
 * themselves. */
static GpuEven even_transpose(const Kernel *k, int tile) {
    const int axes[] = {gpu_vector_axis(k), k->tile_axis};
    const int bytes = (int)most(widest_access(k, axes[0]), widest_access(k, axes[1]));
    GpuEven even = {.vector = bytes < 4 ? 8 / bytes : 1, .step = 1}, none = {0};
    even.lane = even.vector;
    even.hold = rows_of_tile(tile, even.vector);
    for (int i = 0; i < 2; i++)
        if (k->axes[axes[i]].param < 0 && k->axes[axes[i]].size % even.vector) return none;
    return even.vector > 1 && even.hold && uneven_params(k, even.vector, &even.params) ? even : none;
}

GpuSchedule gpu_schedule(const Kernel *k) {
    GpuSchedule s = {.class = class_of(k), .vector = 1, .step = 1};
    if (s.class == GPU_TRANSPOSE) {
        s.tile = tile_of(k);
        s.hold = rows_of_tile(s.tile, 1);
        if (!k->general) s.even = even_transpose(k, s.tile);
        return s;
    }
    choose_vectors(k, s.class, k->general ? 1 : k->axes[gpu_vector_axis(k)].multiple, &s.vector, &s.step, &s.hold);
    s.block = gpu_draws(k) ? BLOCK : LARGE_BLOCK;
    s.partial = partial_of(k, s.class, s.vector);
    if (!k->general) s.even = even_of(k, &s);
    return s;
}

void gpu_even_kernel(Arena *arena, const Kernel *k, const GpuEven *even, Kernel *out) {
    int64_t *multiples = ARENA_ARRAY(arena, int64_t, k->param_count + 1);
    for (int p = 0; p < k->param_count; p++) {
        multiples[p] = k->param_multiples ? k->param_multiples[p] : 1;
        if (p < 64 && even->params >> p & 1) multiples[p] = even->vector;
    }
    *out = *k;
    out->axes[gpu_vector_axis(k)].multiple = even->lane;
    out->param_multiples = multiples;
}

GpuSchedule gpu_even_schedule(const GpuSchedule *s) {
    return (GpuSchedule){.class = s->class,
                         .vector = s->even.vector,
                         .step = s->even.step,
                         .hold = s->even.hold,
                         .tile = s->tile,
                         .block = s->block,
                         .partial = s->even.partial};
}

/* The parts that a name is made of: plain, even. */
enum { ONE, HELD, LONG };
static const char *const suffixes[2][3] = {{"", "_held", "_long"}, {"_even", "_even_held", "_even_long"}};

bool gpu_is_even(const char *suffix) { return strncmp(suffix, "_even", 5) == 0; }
bool gpu_is_held(const char *suffix) { return strstr(suffix, "_held") != NULL; }

const char *gpu_suffix(const GpuSchedule *s, int i) {
    bool one = s->class == GPU_POINTWISE || s->class == GPU_TRANSPOSE;
    for (int even = 0; even <= (s->even.vector > 0); even++)
        for (int part = one ? ONE : HELD; part <= (one ? ONE : LONG); part++) {
            if (part == HELD && !(even ? s->even.hold : s->hold)) continue;
            if (i-- == 0) return suffixes[even][part];
        }
    return NULL;
}

/* --- launches --- */

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
    out->items[0] = (GpuLaunch){.suffix = suffixes[0][ONE],
                                .grid = least(ceil_div(total, BLOCK), (int64_t)limits->multiprocessors * WAVES),
                                .block = BLOCK,
                                .extra_count = 1,
                                .extra = {total}};
}

static void launch_transpose(const Kernel *k, const GpuSchedule *s, const int64_t *params, const Extents *x,
                             GpuLaunches *out) {
    int64_t across = axis_size(&k->axes[k->tile_axis], params);
    int64_t tiles = across ? x->tasks / across * ceil_div(across, s->tile) * ceil_div(x->lane, s->tile) : 0;
    out->count = tiles > 0;
    out->items[0] = (GpuLaunch){.suffix = suffixes[0][ONE], .grid = tiles, .block = BLOCK, .extra_count = 0};
}

/* Whether a stage goes through rows or columns, or has only results to store. */
static bool has_loop(const Kernel *k, int stage) {
    uint32_t reduced = gpu_reduced_axes(k);
    bool any = stage < k->stage_count - 1;
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *inst = &k->insts.items[i];
        any |= inst->op == K_STORE && inst->stage == stage && inst->axes & reduced;
    }
    return any;
}

/* One launch a stage where a row is shared by several blocks, else one for all. A stage that only stores results takes
 * one block for each `splits` of the others. */
static void add_stages(const Kernel *k, GpuLaunch launch, int64_t blocks, int64_t splits, GpuLaunches *out) {
    out->count = splits > 1 ? k->stage_count : 1;
    launch.extra[launch.extra_count++] = splits;
    for (int i = 0; i < out->count; i++) {
        GpuLaunch *l = &out->items[i];
        int64_t parts = has_loop(k, i) ? splits : 1;
        *l = launch;
        l->grid = blocks * parts;
        l->extra[l->extra_count++] = i;
        l->extra[l->extra_count++] = parts;
    }
}

static size_t partial_bytes(const GpuSchedule *s, int64_t units, int64_t splits) {
    return splits > 1 ? (size_t)(units * splits * s->partial) : 0;
}

/* Blocks that share a row or a column: so that all of the device has work at once (one block more, and the others wait
 * for it), and no sum of a thread grows so long that its rounding errors do. */
static int64_t choose_splits(const Kernel *k, const GpuLimits *limits, int64_t blocks, int64_t most_useful,
                             int64_t a_thread) {
    int64_t wanted = (int64_t)limits->multiprocessors * SPLIT_WAVES, splits = 1;
    if (k->stage_count > GPU_MAX_LAUNCHES) return 1;
    if (blocks * 2 <= wanted) splits = least(wanted / blocks, most_useful);
    return least(most(splits, ceil_div(a_thread, LONGEST_SUM)), MOST_SPLITS);
}

static void launch_inner(const Kernel *k, const GpuSchedule *s, const GpuLimits *limits, const Extents *x,
                         GpuLaunches *out) {
    int64_t rows = x->tasks, vectors = x->reduced / s->vector, busy = (int64_t)limits->multiprocessors * 4 * BLOCK;
    if (rows <= 0) return;
    if (s->hold && vectors <= (int64_t)s->hold * s->block) {
        int64_t group = power_above(ceil_div(vectors, s->hold));
        while (group < s->block && group < vectors && rows * group < busy) group *= 2;
        int block = group > BLOCK ? s->block : BLOCK;
        out->count = 1;
        out->items[0] = (GpuLaunch){.suffix = suffixes[0][HELD],
                                    .grid = ceil_div(rows, block / group),
                                    .block = block,
                                    .extra_count = 2,
                                    .extra = {rows, group}};
        return;
    }
    int64_t group = least(power_above(vectors), BLOCK), blocks = ceil_div(rows, BLOCK / group);
    int64_t splits = choose_splits(k, limits, blocks, vectors / (group * SPLIT_VECTORS), vectors / group);
    GpuLaunch launch = {.suffix = suffixes[0][LONG], .block = BLOCK, .extra_count = 2, .extra = {rows, group}};
    add_stages(k, launch, blocks, splits, out);
    out->scratch_bytes = partial_bytes(s, rows, splits);
}

static void launch_outer(const Kernel *k, const GpuSchedule *s, const GpuLimits *limits, const Extents *x,
                         GpuLaunches *out) {
    int64_t vectors = x->lane / s->vector, units = x->tasks * vectors, lanes = least(power_above(vectors), OUTER_LANES);
    if (units <= 0) return;
    int64_t fewest = least(lanes, LEAST_OUTER_LANES), block = BLOCK;
    if (s->hold && x->reduced <= s->hold * (s->block / fewest)) {
        while (lanes > fewest && s->hold * (block / lanes) < x->reduced) lanes /= 2;
        if (s->hold * (block / lanes) < x->reduced) block = s->block;
        out->count = 1;
        out->items[0] = (GpuLaunch){.suffix = suffixes[0][HELD],
                                    .grid = x->tasks * ceil_div(vectors, lanes),
                                    .block = (int)block,
                                    .extra_count = 2,
                                    .extra = {units, lanes}};
        return;
    }
    int64_t blocks = x->tasks * ceil_div(vectors, lanes), group = block / lanes;
    int64_t splits = choose_splits(k, limits, blocks, x->reduced / SPLIT_ROWS, x->reduced / group);
    GpuLaunch launch = {.suffix = suffixes[0][LONG], .block = BLOCK, .extra_count = 2, .extra = {units, lanes}};
    add_stages(k, launch, blocks, splits, out);
    out->scratch_bytes = partial_bytes(s, units, splits);
}

/* Elements from the first to the last that an access reads, at most. */
static bool reaches_far(const Kernel *k, const KernelAccess *a, const int64_t *params) {
    int64_t reach = a->offset_kind == STRIDE_ZERO ? 0 : a->offset_kind == STRIDE_PARAM ? params[a->offset] : a->offset;
    bool far = reach < -GPU_SMALL || reach > GPU_SMALL;
    for (int i = 0; i < k->axis_count && !far; i++) {
        int64_t stride = a->stride[i], way;
        if (a->kind[i] == STRIDE_ZERO) continue;
        if (a->kind[i] != STRIDE_CONST) stride = a->kind[i] == STRIDE_ONE ? 1 : params[stride];
        far = __builtin_mul_overflow(stride < 0 ? -stride : stride, axis_size(&k->axes[i], params), &way) ||
              __builtin_add_overflow(reach < 0 ? -reach : reach, way, &reach) || reach > GPU_SMALL;
    }
    return far;
}

int gpu_accesses(const Kernel *k, const KernelAccess **out_accesses) {
    int count = 0;
    for (int i = 0; i < k->insts.count; i++) {
        const KernelAccess *access = k->insts.items[i].access;
        int n = 0;
        if (!access) continue;
        while (n < count && !kernel_same_access(k, out_accesses[n], access)) n++;
        if (n == count) out_accesses[count++] = access;
    }
    return count;
}

bool gpu_is_small(const Kernel *k, const KernelAccess *const *accesses, int count, const int64_t *params) {
    int64_t points = 1;
    for (int i = 0; i < k->axis_count; i++)
        if (__builtin_mul_overflow(points, axis_size(&k->axes[i], params), &points) || points > GPU_SMALL) return false;
    for (int i = 0; i < count; i++)
        if (reaches_far(k, accesses[i], params)) return false;
    return true;
}

static bool is_even(const Kernel *k, const GpuEven *even, const int64_t *params) {
    if (!even->vector || axis_size(&k->axes[gpu_vector_axis(k)], params) % even->lane) return false;
    if (k->tile_axis >= 0 && axis_size(&k->axes[k->tile_axis], params) % even->lane) return false;
    for (uint64_t left = even->params; left; left &= left - 1)
        if (params[__builtin_ctzll(left)] % even->vector) return false;
    return true;
}

static void name_even(GpuLaunches *out) {
    for (int i = 0; i < out->count; i++)
        for (int part = 0; part < 3; part++)
            if (out->items[i].suffix == suffixes[0][part]) {
                out->items[i].suffix = suffixes[1][part];
                break;
            }
}

void gpu_launches(const Kernel *k, const GpuSchedule *schedule, const GpuLimits *limits, const int64_t *params,
                  GpuLaunches *out) {
    Extents x = extents_of(k, params);
    bool even = is_even(k, &schedule->even, params);
    const GpuSchedule s = even ? gpu_even_schedule(schedule) : *schedule;
    out->count = 0;
    out->scratch_bytes = 0;
    switch (s.class) {
    case GPU_POINTWISE: launch_pointwise(&s, limits, &x, out); break;
    case GPU_TRANSPOSE: launch_transpose(k, &s, params, &x, out); break;
    case GPU_INNER: launch_inner(k, &s, limits, &x, out); break;
    case GPU_OUTER: launch_outer(k, &s, limits, &x, out); break;
    }
    if (even) name_even(out);
}
