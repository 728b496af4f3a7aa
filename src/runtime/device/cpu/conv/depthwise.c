/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise convolutions: a channel is met by its own kernel alone, so there is nothing to share between columns of a
 * product. Those in groups of few channels are alike: products would leave most of a vector empty. The tiles go
 * along lines of positions instead (tile.h, LinesCall).
 *
 * A unit is a line of the result or a piece of a long one; a slice is a few units after each other and a range of
 * panels. Panel after panel, all units of the slice are computed, so that the lines that neighbouring units share are
 * still in the first-level cache. */
#include "base/integer.h"
#include "runtime/device/cpu/conv/walk.h"

enum {
    MOST_POSITIONS = 256,     /* of a unit */
    FINISH_POSITIONS = 64,    /* where a kernel finishes: raw results of 64 columns are 16 kB then */
    MOST_UNITS = 16,          /* of a slice */
    SLICE_BYTES = 256 * 1024, /* of the input: half of the smallest second-level caches of today */
    SLICES_A_THREAD = 4,
    ALONE_WORK = 1 << 16, /* as product.c */
};

/* A phase of this run, cut. */
typedef struct Cut {
    const Walk *walk;
    const Weight *weight;
    LineKind kind;
    int64_t tap_step;          /* pixels */
    int64_t pieces, positions; /* of a line; of a piece, but for the last */
    int64_t units, slice_units, chunks, ranges;
} Cut;

typedef struct Unit {
    int64_t first, count, kernel_rows;
    LineRow *rows;
    void **results;
} Unit;

typedef struct Loop {
    const Cut *cuts;
    int64_t count;
    const BoundEpilogue *epilogue;
    char *memory;
    /* A worker's memory: the units' rows and results, where a kernel finishes raw results and where they are, lines, a panel. */
    size_t worker_bytes, rows_bytes, results_bytes, raw_rows_bytes, raw_bytes, lines_bytes;
} Loop;

/* ---- one unit ---- */

/* The rows of the kernel that meet the input at the line q. */
static int64_t meet_rows(const Cut *cut, int64_t n, const int64_t *q, LineRow *rows) {
    const Walk *w = cut->walk;
    const Sizes *s = w->sizes;
    int64_t pixel = s->in_channels * w->x_size, count = 0;
    for (int64_t t0 = 0; t0 < w->taps[0]; t0++) {
        int64_t i0 = q[0] * w->input_step[0] + w->shift[0][t0];
        if (i0 < 0 || i0 >= s->in[0]) continue;
        for (int64_t t1 = 0; t1 < w->taps[1]; t1++) {
            int64_t i1 = q[1] * w->input_step[1] + w->shift[1][t1];
            if (i1 < 0 || i1 >= s->in[1]) continue;
            rows[count++] =
                (LineRow){w->x + walk_input_index(w, n, i0, i1, 0) * pixel, (t0 * w->taps[1] + t1) * w->taps[2]};
        }
    }
    return count;
}

/* `most` positions from the result's `position` on, or what is left of its line. */
static void take_unit(const Cut *cut, int64_t position, int64_t most, Unit *unit) {
    const Walk *w = cut->walk;
    int64_t line = position / w->count[2], q[AXES], n;
    q[2] = position % w->count[2];
    q[1] = line % w->count[1];
    q[0] = line / w->count[1] % w->count[0];
    n = line / w->count[1] / w->count[0];
    unit->count = least(most, w->count[2] - q[2]);
    unit->first = q[2] * w->input_step[2] + (w->taps[2] ? w->shift[2][0] : 0);
    unit->kernel_rows = meet_rows(cut, n, q, unit->rows);
    walk_results(w, n, q, unit->count, unit->results);
}

/* Columns [call->ends.column, + columns) of a unit, whose weights call->ends says. */
static void run_unit(const Cut *cut, const Unit *unit, LinesCall *call, int vectors, void *const *results) {
    const TileSet *set = cut->weight->set;
    call->rows = unit->rows;
    call->row_count = (int)unit->kernel_rows;
    call->first = unit->first * cut->walk->sizes->in_channels;
    call->count = unit->count;
    call->ends.results = results;
    LinesFunction run = set->lines[cut->kind][vectors];
    (run ? run : set->lines[LINE_ANY][vectors])(call);
}

/* ---- slices ---- */

/* Memory of a worker. */
typedef struct SliceMemory {
    LineRow *rows;
    void **results, **raw_rows;
    void *raw;
    float *lines; /* of an input of f16: what the slice reads of it */
    float *wide;
} SliceMemory;

/* The vectors of the panel from `v` on that one call takes: their number. */
static int take_vectors(const Cut *cut, const Panel *panel, const void *weight, int v, LinesCall *call) {
    const TileSet *set = cut->weight->set;
    int vectors = (int)least(set->line_vectors, panel->vectors - v), first = v * set->lanes;
    call->ends.column = panel->first + first;
    call->ends.columns = (int)least((int64_t)vectors * set->lanes, panel->columns - first);
    call->ends.weight = (const char *)weight + (size_t)first * set->size;
    return vectors;
}

/* All columns of the panel, unit after unit, for a kernel to finish them. */
static void run_finished(const Cut *cut, const Unit *units, int64_t count, const BoundEpilogue *e, const Panel *panel,
                         const void *weight, LinesCall *call, const SliceMemory *memory) {
    const TileSet *set = cut->weight->set;
    int64_t stride = finish_stride(e->finish, panel->columns, (int64_t)panel->vectors * set->lanes);
    for (int64_t u = 0; u < count; u++) {
        finish_raw_rows(memory->raw, (int)units[u].count, stride, panel->first, (int64_t)set->size, memory->raw_rows);
        for (int v = 0; v < panel->vectors; v += set->line_vectors) {
            int vectors = take_vectors(cut, panel, weight, v, call);
            run_unit(cut, &units[u], call, vectors, memory->raw_rows);
        }
        finish_rows(e->finish, units[u].results, (int)units[u].count, panel->first, panel->columns, memory->raw,
                    stride);
    }
}

static void run_panel(const Cut *cut, const Unit *units, int64_t count, const BoundEpilogue *e, const Panel *panel,
                      const void *weight, const SliceMemory *memory) {
    const TileSet *set = cut->weight->set;
    const Sizes *s = cut->walk->sizes;
    int64_t width = (int64_t)panel->vectors * set->lanes, channels = s->in_channels;
    LinesCall call = {.limit = s->in[2] * channels,
                      .position_step = cut->walk->input_step[2] * channels,
                      .tap_step = cut->tap_step * channels};
    call.ends = (TileCall){.weight_stride = width,
                           .taps = cut->walk->taps[2],
                           .bias = e->bias,
                           .has_addend = e->addend != NULL,
                           .bounds = e->bounds};
    if (e->addend) call.ends.addend_shift = (intptr_t)e->addend - (intptr_t)e->result;
    if (e->finish) {
        run_finished(cut, units, count, e, panel, weight, &call, memory);
        return;
    }
    for (int v = 0; v < panel->vectors; v += set->line_vectors) {
        int vectors = take_vectors(cut, panel, weight, v, &call);
        for (int64_t u = 0; u < count; u++) run_unit(cut, &units[u], &call, vectors, units[u].results);
    }
}

static bool reads_halves(const Cut *cut) { return cut->walk->x_size != cut->walk->size && cut->weight->taps; }

/* Where the unit begins. */
static int64_t position_of(const Cut *cut, int64_t unit) {
    return unit / cut->pieces * cut->walk->count[2] + unit % cut->pieces * cut->positions;
}

/* What of the input units [first, first + count) read. */
static void units_reach(const Cut *cut, int64_t first, int64_t count, const char **out_begin, const char **out_end) {
    int64_t begin = position_of(cut, first), last = position_of(cut, first + count - 1),
            left = cut->walk->count[2] - last % cut->walk->count[2], end = last + least(left, cut->positions);
    walk_reach(cut->walk, begin, end - begin, out_begin, out_end);
}

/* They then read floats, of which `to` has no more than they reach. */
static void widen_lines(const Cut *cut, Unit *units, int64_t first, int64_t count, float *to) {
    const char *begin, *end;
    units_reach(cut, first, count, &begin, &end);
    tile_isa()->widen_f16(begin, to, (end - begin) / cut->walk->x_size);
    for (int64_t u = 0; u < count; u++)
        for (int64_t r = 0; r < units[u].kernel_rows; r++) {
            /* a line may begin before what is read of it */
            int64_t elements = ((intptr_t)units[u].rows[r].x - (intptr_t)begin) / cut->walk->x_size;
            units[u].rows[r].x = (const void *)((uintptr_t)to + (uintptr_t)(elements * (int64_t)sizeof *to));
        }
}

/* A unit of the slice or block, with its memory. */
static void put_unit(const Cut *cut, int64_t position, int64_t most, const SliceMemory *memory, int64_t index,
                     Unit *unit) {
    unit->rows = memory->rows + index * cut->walk->taps[0] * cut->walk->taps[1];
    unit->results = memory->results + index * cut->positions;
    take_unit(cut, position, most, unit);
}

static void run_panels(const Cut *cut, const Unit *units, int64_t count, int64_t first, int64_t end,
                       const BoundEpilogue *epilogue, const SliceMemory *memory) {
    const Weight *w = cut->weight;
    for (int64_t i = first; i < end; i++) {
        if (pool_is_stopped()) return;
        Panel panel = weight_panel(w, i);
        const void *weight = (const char *)w->data + panel.at;
        int64_t width = (int64_t)panel.vectors * w->set->lanes;
        if (w->form.kind) {
            tile_isa()->widen(&(WidenCall){&w->form, weight, width, 0, w->taps * w->depth, memory->wide});
            weight = memory->wide;
        }
        run_panel(cut, units, count, epilogue, &panel, weight, memory);
    }
}

static void run_slice(const Loop *loop, const Cut *cut, int64_t slice, const SliceMemory *memory) {
    int64_t chunk = slice % cut->chunks, range = slice / cut->chunks, panels = weight_panels(cut->weight),
            first = chunk * cut->slice_units, count = least(cut->slice_units, cut->units - first);
    Unit units[MOST_UNITS];
    for (int64_t u = 0; u < count; u++)
        put_unit(cut, position_of(cut, first + u), cut->positions, memory, u, &units[u]);
    if (reads_halves(cut)) widen_lines(cut, units, first, count, memory->lines);
    run_panels(cut, units, count, range * panels / cut->ranges, (range + 1) * panels / cut->ranges, loop->epilogue,
               memory);
}

static SliceMemory memory_of(const Loop *loop, int worker) {
    char *at = loop->memory + loop->worker_bytes * (size_t)worker;
    SliceMemory memory = {.rows = (LineRow *)(void *)at};
    memory.results = (void **)(void *)(at += loop->rows_bytes);
    memory.raw_rows = (void **)(void *)(at += loop->results_bytes);
    memory.raw = at += loop->raw_rows_bytes;
    memory.lines = (float *)(void *)(at += loop->raw_bytes);
    memory.wide = (float *)(void *)(at + loop->lines_bytes);
    return memory;
}

static void run_slices(void *context, int64_t begin, int64_t end, int worker) {
    const Loop *loop = context;
    SliceMemory memory = memory_of(loop, worker);
    for (int64_t slice = begin; slice < end; slice++) {
        int64_t rest = slice;
        const Cut *cut = loop->cuts;
        while (rest >= cut->chunks * cut->ranges) rest -= cut->chunks * cut->ranges, cut++;
        run_slice(loop, cut, rest, &memory);
    }
}

/* ---- the cut into slices ---- */

LineKind depthwise_groups(int64_t channels) {
    static const LineKind kinds[] = {[2] = LINE_PAIRS, [4] = LINE_FOURS, [8] = LINE_EIGHTS};
    const LineKind kind = channels >= 2 && channels <= 8 ? kinds[channels] : LINE_ANY;
    return tile_isa()->f32.lines[kind][1] ? kind : LINE_ANY;
}

static LineKind kind_of(const Cut *cut) {
    int64_t taps = cut->walk->taps[2], step = cut->walk->input_step[2];
    static const LineKind kinds[LINE_TAPS + 1][3] = {
        [3] = {LINE_ANY, LINE_3X1, LINE_3X2}, [5] = {LINE_ANY, LINE_5X1, LINE_5X2}, [7] = {LINE_ANY, LINE_7X1}};
    int64_t stride = step / cut->tap_step;
    if (cut->weight->depth > 1) return depthwise_groups(cut->weight->depth);
    bool shared = taps <= LINE_TAPS && step % cut->tap_step == 0 && stride >= 1 && stride <= 2;
    return shared ? kinds[taps][stride] : LINE_ANY;
}

static Cut cut_phase(const Walk *walk, const Phase *phase, int64_t longest, int64_t wanted) {
    Cut cut = {.walk = walk, .weight = &phase->weight, .tap_step = 1};
    const int64_t *shift = walk->shift[2];
    if (walk->taps[2] > 1) cut.tap_step = shift[1] - shift[0];
    cut.kind = kind_of(&cut);
    if (!walk->count[2]) return cut;
    int64_t lines = walk->sizes->batch * walk->count[0] * walk->count[1];
    cut.pieces = ceil_div(walk->count[2], longest);
    if (lines * cut.pieces < wanted)
        cut.pieces = least(ceil_div(wanted, most(1, lines)), ceil_div(walk->count[2], LINE_TILE));
    cut.positions = ceil_div(walk->count[2], cut.pieces);
    cut.pieces = ceil_div(walk->count[2], cut.positions);
    cut.units = lines * cut.pieces;
    int64_t bytes = cut.positions * walk->input_step[2] * walk->input_step[1] * walk->sizes->in_channels * walk->size;
    cut.slice_units = most(1, least(MOST_UNITS, least(SLICE_BYTES / most(1, bytes), ceil_div(cut.units, wanted))));
    cut.chunks = ceil_div(cut.units, cut.slice_units);
    cut.ranges = most(1, least(weight_panels(cut.weight), ceil_div(wanted, most(1, cut.chunks))));
    return cut;
}

static size_t lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

static void size_memory(Loop *loop) {
    size_t panel = 0;
    for (int64_t i = 0; i < loop->count; i++) {
        const Cut *cut = &loop->cuts[i];
        const Weight *w = cut->weight;
        size_t units = (size_t)cut->slice_units;
        size_t rows = lines(units * (size_t)(cut->walk->taps[0] * cut->walk->taps[1]) * sizeof(LineRow)),
               results = lines(units * (size_t)cut->positions * sizeof(void *)),
               wide = w->form.kind ? (size_t)(w->taps * w->depth * w->set->vectors * w->set->lanes) * sizeof(float) : 0;
        if (rows > loop->rows_bytes) loop->rows_bytes = rows;
        if (results > loop->results_bytes) loop->results_bytes = results;
        if (wide > panel) panel = wide;
        for (int64_t first = 0; reads_halves(cut) && first < cut->units; first += cut->slice_units) {
            const char *begin, *end;
            units_reach(cut, first, least(cut->slice_units, cut->units - first), &begin, &end);
            size_t bytes = lines((size_t)(end - begin) / (size_t)cut->walk->x_size * sizeof(float));
            if (bytes > loop->lines_bytes) loop->lines_bytes = bytes;
        }
        if (!loop->epilogue->finish) continue;
        size_t raw_rows = lines((size_t)cut->positions * sizeof(void *)),
               raw = (size_t)cut->positions * (size_t)(w->set->vectors * w->set->lanes) * w->set->size;
        if (raw_rows > loop->raw_rows_bytes) loop->raw_rows_bytes = raw_rows;
        if (lines(raw) > loop->raw_bytes) loop->raw_bytes = lines(raw);
    }
    loop->worker_bytes = loop->rows_bytes + loop->results_bytes + loop->raw_rows_bytes + loop->raw_bytes +
                         loop->lines_bytes + lines(panel);
}

/* ---- rows for a product ---- */

typedef struct Rows {
    Cut cut;
    Loop loop; /* of the one cut */
    Walk walk;
    Sizes sizes;
} Rows;

/* Positions [first, first + count) of the result, as rows one after the other from `to` on. */
static void make_rows(const void *context, int64_t first, int64_t count, void *to, int worker) {
    const Rows *rows = context;
    const int64_t row_bytes = rows->cut.weight->columns * rows->cut.walk->size,
                  panels = weight_panels(rows->cut.weight);
    const SliceMemory memory = memory_of(&rows->loop, worker);
    Walk walk = *rows->cut.walk;
    Cut cut = rows->cut;
    BoundEpilogue epilogue = *rows->loop.epilogue;
    Finish finish;
    cut.walk = &walk;
    if (epilogue.finish) {
        finish = *epilogue.finish;
        finish_move(&finish, first, to);
        epilogue.finish = &finish;
    } else { /* the result would begin so far before `to` */
        walk.y = (char *)((uintptr_t)to - (uintptr_t)(first * row_bytes));
        epilogue.result = walk.y;
    }
    for (int64_t end = first + count; first < end;) {
        Unit units[MOST_UNITS];
        int64_t unit = 0;
        for (; unit < cut.slice_units && first < end; first += units[unit++].count)
            put_unit(&cut, first, least(cut.positions, end - first), &memory, unit, &units[unit]);
        run_panels(&cut, units, unit, 0, panels, &epilogue, &memory);
    }
}

Status depthwise_rows(const Walk *walk, const Phase *phase, const BoundEpilogue *epilogue, Pool *pool, Scratch *scratch,
                      RowMaker *out_maker) {
    void *memory;
    TRY(scratch_take(scratch, sizeof(Rows), &memory));
    Rows *rows = memory;
    rows->walk = *walk;
    rows->sizes = *walk->sizes;
    rows->walk.sizes = &rows->sizes;
    rows->cut = cut_phase(&rows->walk, phase, epilogue->finish ? FINISH_POSITIONS : MOST_POSITIONS, 1);
    rows->loop = (Loop){.cuts = &rows->cut, .count = 1, .epilogue = epilogue};
    size_memory(&rows->loop);
    TRY(scratch_take(scratch, rows->loop.worker_bytes * (size_t)pool_threads(pool), &memory));
    rows->loop.memory = memory;
    *out_maker = (RowMaker){make_rows, rows};
    return NULL;
}

/* ---- the whole ---- */

Status depthwise_run(const Walk *walks, const Phase *phases, int64_t count, const BoundEpilogue *epilogue, Pool *pool,
                     Scratch *scratch) {
    double work = 0;
    int64_t slices = 0;
    for (int64_t i = 0; i < count; i++)
        work += (double)(walks[i].sizes->batch * walks[i].count[0] * walks[i].count[1] * walks[i].count[2]) *
                (double)(phases[i].weight.columns * most(1, phases[i].weight.taps * phases[i].weight.depth));
    if (work < ALONE_WORK) pool = NULL;
    int64_t wanted = pool ? ceil_div(pool_threads(pool) * SLICES_A_THREAD, count) : 1;
    void *memory;
    TRY(scratch_take(scratch, (size_t)count * sizeof(Cut), &memory));
    Cut *cuts = memory;
    for (int64_t i = 0; i < count; i++) {
        cuts[i] = cut_phase(&walks[i], &phases[i], epilogue->finish ? FINISH_POSITIONS : MOST_POSITIONS, wanted);
        slices += cuts[i].chunks * cuts[i].ranges;
    }
    Loop loop = {.cuts = cuts, .count = count, .epilogue = epilogue};
    size_memory(&loop);
    TRY(scratch_take(scratch, loop.worker_bytes * (size_t)pool_threads(pool), &memory));
    loop.memory = memory;
    pool_for(pool, slices, 1, run_slices, &loop);
    return NULL;
}
