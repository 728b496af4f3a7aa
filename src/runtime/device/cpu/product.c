/* SPDX-License-Identifier: Apache-2.0 */
/* Products cut into slices for threads, and slices into tiles.
 *
 * A slice is a chunk of rows and a range of panels, and of long sums of few rows a part of the depth (joined.h). Panel after panel, the panel's weight stays in the second-level
 * cache while the chunk's rows stream past it, a tile at a time. */
#include "runtime/device/cpu/product.h"

#include <math.h>
#include <string.h>
#include "base/integer.h"
#include "lowering/sizes.h"
#include "runtime/device/cpu/joined.h"
#include "runtime/device/cpu/wide_rows.h"

enum {
    /* Rows a chunk: a multiple of all tiles' heights; more where a row is short, so that what a chunk costs by itself
     * is not felt. Where a weight outgrows the second-level cache, each chunk reads it anew from the third or from
     * memory: then more rows share a reading, or a widening. */
    CHUNK_ROWS = 96,
    LARGE_CHUNK_ROWS = 240,
    SHORT_CHUNK_ROWS = 480,
    SHORT_CHUNK_WORK = 480 * 128, /* rows times their length */
    SOURCE_CHUNK_ROWS = 2048,
    WIDE_SOURCE_ROWS = 1 << 18, /* elements: such a chunk has fewer rows where they are widened, a megabyte */
    LARGE_WEIGHT_BYTES = 1 << 20,
    /* Of a chunk whose rows are made: they and what they are made of stay in the second-level cache beside a panel. */
    MADE_BYTES = 128 * 1024,
    LEAST_MADE_ROWS = 24,
    MAX_POINTERS = 1 << 15, /* a chunk's rows times taps */
    /* A panel of 64 columns is 256 kB then, half of the smallest second-level caches of today. */
    BLOCK_DEPTH = 1024,
    DIRECT_ROWS = 12,
    LINE = 64,                 /* bytes of a cache's line */
    FINISH_ROWS = 48,          /* of a block of raw results */
    FINISH_ELEMENTS = 48 * 96, /* likewise: 18 kB, half of the smallest first-level caches */
    SLICES_A_THREAD = 4,
    /* Panels make so many times more slices, where rows are cut, too: 9 chunks of rows are 5 for one of two threads and 4
     * for the other. A feed-forward network of 2048 rows took 40.5 ms on two cores, with whole chunks 44.8. */
    FINER_RANGES = 4,
    /* Of a slice at least where several chunks of rows are widened: 8 elements are read, widened and stored once, and then
     * multiplied 16 times by each panel of two vectors. Counted, not timed. */
    WIDE_PANELS = 4,
    ALONE_WORK = 1 << 16, /* multiply-adds that take 0.7 us or so on one core: less than waking another */
};

int row_block_interior(RowBlock *block, int count) {
    block->interior += count;
    return block->interior - count;
}

int row_block_edges(RowBlock *block, int count, int64_t first_tap, int64_t end_tap) {
    EdgeRun *run = block->run_count ? &block->runs[block->run_count - 1] : NULL;
    block->edges += count;
    int first = block->count - block->edges;
    if (!run || run->first_tap != first_tap || run->end_tap != end_tap) {
        run = &block->runs[block->run_count++];
        *run = (EdgeRun){.first_tap = first_tap, .end_tap = end_tap};
    }
    run->first = first;
    run->count += count;
    return first;
}

VECTORISED static void point(uintptr_t at, uintptr_t step, int64_t count, uintptr_t *to) {
    for (int64_t i = 0; i < count; i++, at += step) to[i] = at;
}

void point_rows(const void *at, int64_t step, int64_t count, const void **to) {
    point((uintptr_t)at, (uintptr_t)step, count, (uintptr_t *)to);
}

/* ---- slices ---- */

typedef struct Slice {
    const Product *product;
    const BoundEpilogue *epilogue;  /* of the sums */
    int64_t first_depth, end_depth; /* of them; all where there are several taps */
    const TileEnds *ends;           /* not NULL: the sums end in registers */
    int64_t joint;                  /* not 0: so many depths are a sum by itself (joined.h) */
    RowBlock block;
    int64_t weight_stride;
    Panel panel;
    const void *weight; /* of the panel, in the work type */
    const char *narrow; /* not NULL: this instead, widened block by block */
    float *wide;        /* room for that */
    void **raw_rows;    /* where a kernel or the last of several parts finishes: room for a block's rows */
    void *raw;          /* and for the block */
} Slice;

_Static_assert(BLOCK_DEPTH % MOST_BLOCK == 0, "tiles begin at blocks of narrow weights");

/* The weight of a call, from depth `first` of the panel on. Returns where the next call's is in memory, and how many bytes of
 * it are to be asked for. */
static const char *take_weight(const Slice *slice, TileCall *call, int64_t first, bool in_registers,
                               int64_t *out_bytes) {
    const Product *p = slice->product;
    int64_t count = call->taps * call->depth, width = slice->weight_stride;
    size_t row_bytes = (size_t)width * p->weight->set->size;
    if (!slice->narrow) {
        call->weight = (const char *)slice->weight + (size_t)first * row_bytes;
        *out_bytes = p->source ? 0 : count * (int64_t)row_bytes;
        return (const char *)call->weight + (size_t)count * row_bytes;
    }
    const WeightForm *form = &p->weight->form;
    const char *at = first ? slice->narrow + narrow_column_bytes(form, first) * (size_t)width : slice->narrow;
    *out_bytes = 0;
    if (in_registers) { /* such tiles ask for what they need themselves */
        call->weight = at;
        return NULL;
    }
    const char *next = slice->narrow + narrow_column_bytes(form, first + count) * (size_t)width;
    tile_isa()->widen(&(WidenCall){form, slice->narrow, width, first, first + count, slice->wide});
    call->weight = slice->wide;
    *out_bytes = next - at;
    return next;
}

/* taps and depths [taps of `call`][depth of `call`] of rows [first, first + count), to results [count]. */
static void run_tiles(const Slice *slice, TileCall *call, int64_t first_depth, const void *const *rows, int first,
                      int count, void *const *results) {
    const Weight *w = slice->product->weight;
    const TileSet *set = w->set;
    const ProductRows kind = slice->product->row_kind;
    /* Not by `count`, which depends on threads: sums of blocks are other sums than those of widened weights. */
    bool given = kind == ROWS_AS_GIVEN,
         narrow = !given || (slice->narrow && call->taps == 1 && slice->product->rows <= NARROW_ROWS);
    int64_t bytes;
    const char *next = take_weight(slice, call, first_depth, narrow, &bytes);
    call->form = &w->form;
    call->rows = rows + first;
    call->results = results;
    if (!narrow) {
        tile_products(set, slice->panel.vectors, count, call, next, bytes);
        return;
    }
    const TileBlocks *blocks = slice->product->blocks;
    if (kind == ROWS_DIGITS) {
        blocks->digits[w->form.kind](call);
        return;
    }
    const TileFunction *loops =
        given ? tile_isa()->narrow[w->form.kind][slice->panel.vectors] : blocks->products[w->form.kind];
    const TileFunction any = kind == ROWS_PARTS ? blocks->parts[w->form.kind] : NULL;
    const int highest = given ? NARROW_TILE_ROWS : blocks->rows;
    for (int tiles = count <= highest ? 1 : (count + highest - 1) / highest, m; tiles > 0; tiles--, count -= m) {
        m = tiles == 1 ? count : (count + tiles - 1) / tiles;
        call->row_count = m;
        (any ? any : loops[m])(call);
        call->rows += m;
        call->results += m;
    }
}

/* Long sums are cut into blocks, whose results add up in memory. */
static bool is_cut(const Product *p) {
    const Weight *w = p->weight;
    return p->follows || w->depth > BLOCK_DEPTH || (w->depth && w->taps > BLOCK_DEPTH / w->depth);
}

/* Rows of one run against one panel. */
static void add_up(const Slice *slice, const EdgeRun *run, bool interior, void *const *results) {
    const Product *p = slice->product;
    const Weight *w = p->weight;
    const BoundEpilogue *e = slice->epilogue;
    bool merge = interior && p->merged > 1;
    int64_t scale = merge ? p->merged : 1, t = run->first_tap / scale, end = run->end_tap / scale;
    int64_t depth = t < end ? slice->end_depth * scale : 0, k = t < end ? slice->first_depth : 0;
    const int64_t *offsets = merge ? p->merged_offsets : interior ? p->offsets : p->zeros;
    int64_t row_stride = interior ? 0 : slice->block.capacity;
    int64_t block_depth = slice->joint ? slice->joint : least(depth, BLOCK_DEPTH);
    int64_t block_taps = end - t <= 1 || block_depth < depth || !depth ? 1 : BLOCK_DEPTH / depth;
    TileCall call = {.row_stride = row_stride, .weight_stride = slice->weight_stride, .columns = slice->panel.columns};
    call.depth_gap = merge ? p->depth_gap : 0;
    call.column = slice->panel.group * w->columns + slice->panel.first;
    call.scale = p->scale;
    call.scales = p->scales;
    call.ends = slice->ends;
    int64_t group_offset = slice->panel.group * w->depth;
    bool begins = true;
    do { /* at least once: without taps or depth the result is the epilogue of 0 */
        const int64_t past = least(p->follows ? p->follows[t] : end - t, block_taps);
        call.taps = p->follows ? 1 : past;
        call.depth = p->follows ? past * depth : least(depth - k, block_depth);
        bool done = t + past >= end && k + call.depth >= depth;
        call.offsets = offsets + t;
        call.offset = group_offset + k * (1 + call.depth_gap);
        call.bias = begins ? e->bias : NULL;
        call.has_addend = !begins || e->addend;
        call.addend_shift = begins && e->addend ? (intptr_t)e->addend - (intptr_t)e->result : 0;
        if (done) call.bounds = e->bounds;
        run_tiles(slice, &call, t * depth + k, slice->block.rows + t * row_stride, run->first, run->count, results);
        k += call.depth;
        if (k >= depth) k = 0, t += past;
        begins = false;
    } while (t < end);
}

/* Whether the weight stays in the first-level cache beside a block of results. */
static bool is_resident(const Weight *w) {
    return !w->form.kind &&
           w->taps * w->depth * w->columns * w->groups * (int64_t)w->set->size <= RESIDENT_WEIGHT_BYTES;
}

/* A kernel that finishes gets so many raw results at once that they, and what it reads and writes beside them, stay in the
 * first-level cache; all of the run where sums add up in memory, or where each call would widen the weight again. Where the
 * weight stays there, too, it gets whole rows, which mostly are one run of memory, and not a panel's part of each. */
static bool finishes_whole_rows(const Product *p) {
    const Weight *w = p->weight;
    return w->groups == 1 && is_resident(w) && !p->source && w->columns <= FINISH_ELEMENTS / TILE_MAX_ROWS &&
           !is_cut(p);
}

/* Raw results in a row of a block, whole vectors. */
static int64_t block_width(const Product *p) {
    const Weight *w = p->weight;
    int64_t lanes = w->set->lanes, panel = w->set->vectors * lanes, all = ceil_div(w->columns, lanes) * lanes;
    return finishes_whole_rows(p) ? all : least(all, panel);
}

static int64_t block_rows(const Product *p, int64_t rows) {
    const Weight *w = p->weight;
    if (w->form.kind || is_cut(p)) return rows;
    int64_t height = w->set->rows[w->set->vectors];
    int64_t most_rows = most(1, FINISH_ELEMENTS / most(1, block_width(p)) / TILE_MAX_ROWS) * TILE_MAX_ROWS;
    most_rows = least(FINISH_ROWS, most_rows);
    return least(rows, most(most_rows - most_rows % height, height)); /* whole tiles */
}

static void take_panel(Slice *slice, int64_t index) {
    const Weight *w = slice->product->weight;
    slice->panel = weight_panel(w, index);
    slice->weight_stride = w->row ? w->row : (int64_t)slice->panel.vectors * w->set->lanes;
    slice->weight = (const char *)w->data + (w->row ? (size_t)slice->panel.first * w->set->size : slice->panel.at);
}

/* bf16 is made in registers, where no sums add up in memory. */
static bool ends_in_registers(const Slice *slice) {
    const Weight *w = slice->product->weight;
    const Finish *finish = slice->product->epilogue->finish;
    return finish && finish->rounded && finish->rounded->dtype == DT_BF16 && w->set->end_row && !w->form.kind &&
           !is_cut(slice->product) && (!slice->joint || slice->joint >= w->depth);
}

/* One run of rows against one panel, or against all. */
static void run_rows(Slice *slice, const EdgeRun *run, bool interior, bool all) {
    const Product *p = slice->product;
    const Weight *w = p->weight;
    const Finish *finish = p->epilogue->finish;
    void **results = slice->block.results + run->first;
    if (!finish || slice->ends) {
        add_up(slice, run, interior, results);
        return;
    }
    int64_t size = (int64_t)w->set->size, columns = all ? w->columns : slice->panel.columns;
    int64_t stride = finish_stride(finish, columns, ceil_div(columns, w->set->lanes) * w->set->lanes);
    int64_t column = all ? 0 : slice->panel.group * w->columns + slice->panel.first, panels = weight_panels(w);
    int most_rows = (int)block_rows(p, run->count);
    EdgeRun part = *run;
    for (int left = run->count; left > 0; left -= part.count, part.first += part.count, results += part.count) {
        part.count = left < most_rows ? left : most_rows;
        finish_raw_rows(slice->raw, part.count, stride, column, size, slice->raw_rows);
        for (int64_t i = 0; all && i < panels; i++) {
            take_panel(slice, i);
            add_up(slice, &part, interior, slice->raw_rows);
        }
        if (!all) add_up(slice, &part, interior, slice->raw_rows);
        finish_rows(finish, results, part.count, column, columns, slice->raw, stride);
    }
}

/* Runs of rows at edges meet some of the taps alone, so that one block by block would widen the others' again. */
static bool widens_whole_panels(const Weight *w) { return w->taps > 1; }

/* The panel's weight, or what stands for it until a block of it is wanted. */
static void take_narrow_panel(Slice *slice, const char *panel, void *wide) {
    const Weight *w = slice->product->weight;
    WidenCall call = {&w->form, panel, slice->weight_stride, 0, w->taps * w->depth, wide};
    slice->wide = wide;
    slice->narrow = widens_whole_panels(w) ? NULL : panel;
    if (!slice->narrow) tile_isa()->widen(&call);
}

static size_t lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* Depths of a panel that a worker holds in the work type besides what is packed. */
static int64_t panel_depths(const Product *p) {
    const Weight *w = p->weight;
    int64_t depths = w->taps * w->depth;
    if (!p->source && !w->form.kind) return 0;
    return (p->source && !p->source->blocks) || widens_whole_panels(w) || depths < BLOCK_DEPTH ? depths : BLOCK_DEPTH;
}

/* Bytes of such panels, and of one in its narrow form that a worker packs itself, which stands behind. */
static size_t wide_panel_bytes(const Product *p) {
    const Weight *w = p->weight;
    return lines((size_t)panel_depths(p) * (size_t)(w->set->vectors * w->set->lanes) * w->set->size);
}

static size_t narrow_panel_bytes(const Product *p) {
    const Weight *w = p->weight;
    if (!p->source || !p->source->blocks) return 0;
    return narrow_column_bytes(&w->form, w->taps * w->depth) * (size_t)(w->set->vectors * w->set->lanes);
}

/* A weight that is not packed and read a few times only stays where it is. */
static bool reads_directly(const Product *p, const Panel *panel) {
    return p->source && !p->source->blocks && !p->source->halves && p->source->column == 1 && p->source->scale == 1 &&
           p->rows <= DIRECT_ROWS && p->weight->taps == 1 && panel->columns % p->weight->set->lanes == 0;
}

/* One part of the panel's sums. The thread that brings the last one finishes them. */
static void run_part(Slice *slice, const Joined *joined, int64_t part, int64_t first_row, _Atomic int *arrived) {
    static const BoundEpilogue none;
    RowBlock *block = &slice->block;
    EdgeRun interior = {0, block->interior, 0, slice->product->weight->taps};
    slice->epilogue = &none;
    for (int i = 0; i < block->count; i++) slice->raw_rows[i] = joined_row(joined, part, first_row + i);
    if (interior.count) add_up(slice, &interior, true, slice->raw_rows);
    for (int r = 0; r < block->run_count; r++)
        add_up(slice, &block->runs[r], false, slice->raw_rows + block->runs[r].first);
    if (atomic_fetch_add(arrived, 1) + 1 == joined->parts)
        joined_finish(joined, &slice->panel, first_row, block->count, block->results);
}

/* Memory of a worker. */
typedef struct SliceMemory {
    RowBlock block;
    void **raw_rows;
    void *raw, *panel;
    float *wide_rows;
    int64_t *held; /* whose rows those are: the number of the chunk and part */
} SliceMemory;

typedef struct Range {
    int64_t first, end;
} Range;

static void fill_block(const Product *p, Range rows, RowBlock *block) {
    block->count = (int)(rows.end - rows.first);
    block->interior = block->edges = block->run_count = 0;
    p->fill(p->context, rows.first, block);
}

static void make_rows(const Product *p, int64_t first, RowBlock *block, void *to, int worker) {
    const int64_t row = p->weight->depth * (int64_t)p->weight->set->size;
    p->maker->make(p->maker->context, first, block->count, to, worker);
    point_rows(to, row, block->count, block->rows);
}

/* part: of the depth, by itself; -1: all of them. number: of the chunk and part, among all products'. */
static void run_slice(const Joined *joined, int64_t chunk, Range rows, Range panels, int64_t part, int64_t number,
                      SliceMemory *memory, int worker) {
    const Product *p = joined->product;
    RowBlock *block = &memory->block;
    void *panel_memory = memory->panel;
    int64_t first_row = rows.first;
    int64_t depth = p->weight->depth, joint = joined->joint;
    Slice slice = {.product = p, .epilogue = p->epilogue, .end_depth = depth, .joint = joint};
    if (part >= 0) {
        slice.first_depth = part * joint;
        slice.end_depth = least(depth, slice.first_depth + joint);
        slice.joint = 0;
    }
    slice.raw_rows = memory->raw_rows;
    slice.raw = memory->raw;
    fill_block(p, rows, block);
    if (p->maker) make_rows(p, first_row, block, memory->wide_rows, worker);
    if (p->halves) {
        wide_rows_take(p, first_row, slice.first_depth, slice.end_depth, *memory->held == number, block,
                       memory->wide_rows);
        *memory->held = number;
    }
    slice.block = *block;
    EdgeRun interior = {0, block->interior, 0, p->weight->taps};
    if (part < 0 && ends_in_registers(&slice)) slice.ends = &p->epilogue->finish->ends;
    bool all = part < 0 && p->epilogue->finish && !slice.ends &&
               panels.end - panels.first == weight_panels(p->weight) && finishes_whole_rows(p);
    for (int64_t i = panels.first; i < (all ? panels.first + 1 : panels.end) && !pool_is_stopped(); i++) {
        take_panel(&slice, i);
        if (reads_directly(p, &slice.panel)) {
            slice.weight = (const char *)p->source->data + (size_t)slice.panel.first * p->weight->set->size;
            slice.weight_stride = p->source->depth;
        } else if (p->source && p->source->blocks) {
            char *narrow = (char *)panel_memory + wide_panel_bytes(p);
            slice.weight = panel_memory;
            blocks_panel(&p->weight->form, p->source->blocks, slice.panel.first, slice.panel.columns,
                         slice.weight_stride, narrow);
            take_narrow_panel(&slice, narrow, panel_memory);
        } else if (p->source) {
            slice.weight = panel_memory;
            panel_pack(p->weight, p->source, &slice.panel, panel_memory);
        } else if (p->weight->form.kind) {
            slice.weight = panel_memory;
            take_narrow_panel(&slice, (const char *)p->weight->data + slice.panel.at, panel_memory);
        }
        if (part >= 0) {
            run_part(&slice, joined, part, first_row, joined->arrived + chunk * weight_panels(p->weight) + i);
            continue;
        }
        if (interior.count) run_rows(&slice, &interior, true, all);
        for (int r = 0; r < block->run_count; r++) run_rows(&slice, &block->runs[r], false, all);
    }
}

/* ---- the cut into slices ---- */

typedef struct Grid {
    int64_t chunks, ranges; /* of rows, of panels */
    int64_t parts;          /* of the depth that are slices of their own; 1: none are */
} Grid;

/* So many chunks of rows at most that all but the last are whole tiles. */
static int64_t whole_tiles(int64_t rows, int64_t height, int64_t chunks) {
    int64_t tiles = ceil_div(rows, height);
    return ceil_div(tiles, ceil_div(tiles, least(tiles, chunks)));
}

static int64_t row_pointers(const Product *p) { return p->inside ? 1 : most(1, p->weight->taps); }

/* Of rows that are made, a chunk: a few lines, or a part of a long one. */
static int64_t made_rows(int64_t line, int64_t row_bytes) {
    int64_t rows = most(LEAST_MADE_ROWS, least(LARGE_CHUNK_ROWS, MADE_BYTES / most(1, row_bytes)));
    if (line <= rows) return rows / line * line;
    return ceil_div(line, ceil_div(line, rows));
}

static int64_t slices_wanted(const Pool *pool) {
    int64_t threads = pool_threads(pool);
    return threads > 1 ? threads * SLICES_A_THREAD : 1;
}

bool product_makes_rows(int64_t rows, int64_t line, int64_t row_bytes, const Pool *pool) {
    return rows && line && ceil_div(rows, made_rows(line, row_bytes)) >= slices_wanted(pool);
}

static int64_t rows_of_maker(const Product *p) {
    return made_rows(p->line, p->weight->depth * (int64_t)p->weight->set->size);
}

static Grid cut(const Joined *joined, int64_t wanted) {
    const Product *p = joined->product;
    const Weight *w = p->weight;
    if (p->maker) return (Grid){ceil_div(p->rows, rows_of_maker(p)), 1, 1};
    int64_t panels = weight_panels(w);
    double bytes = (double)w->taps * (double)w->depth * (double)w->columns * (double)w->groups * (double)w->set->size;
    int64_t rows = bytes > LARGE_WEIGHT_BYTES || w->form.kind
                       ? LARGE_CHUNK_ROWS
                       : most(CHUNK_ROWS, least(SHORT_CHUNK_ROWS, SHORT_CHUNK_WORK / most(1, w->taps * w->depth)));
    rows = most(TILE_MAX_ROWS, least(rows, MAX_POINTERS / row_pointers(p)));
    int64_t height = w->set->rows[w->set->vectors];
    Grid grid = {ceil_div(p->rows, rows), 1, 1};
    if (p->source) { /* a slice packs its own panels, so rows are cut only where that does not make enough of them */
        int64_t wide_rows = most(LARGE_CHUNK_ROWS, WIDE_SOURCE_ROWS / most(1, w->depth));
        grid.chunks = ceil_div(p->rows, p->halves ? least(SOURCE_CHUNK_ROWS, wide_rows) : SOURCE_CHUNK_ROWS);
        grid.ranges = least(panels, wanted);
        if (grid.chunks * grid.ranges < wanted)
            grid.chunks = most(grid.chunks, least(ceil_div(p->rows, CHUNK_ROWS / 2), ceil_div(wanted, grid.ranges)));
        return grid;
    }
    if (is_resident(w)) grid.chunks = most(grid.chunks, whole_tiles(p->rows, height, wanted));
    int64_t fine = wanted > 1 && !is_resident(w) ? wanted * FINER_RANGES : wanted;
    if (grid.chunks < fine) grid.ranges = least(panels, ceil_div(fine, grid.chunks));
    if (p->halves && grid.chunks > 1) grid.ranges = least(grid.ranges, most(1, panels / WIDE_PANELS));
    if (grid.chunks * grid.ranges < wanted)
        grid.chunks = most(grid.chunks, whole_tiles(p->rows, height, ceil_div(wanted, grid.ranges)));
    if (2 * grid.chunks * grid.ranges < wanted) grid.parts = joined->parts; /* each by itself costs some percent more */
    return grid;
}

static int64_t chunk_rows(const Product *p, const Grid *grid) {
    if (p->maker) return rows_of_maker(p);
    int64_t rows = ceil_div(p->rows, grid->chunks), line = p->line;
    if (line > 1 && rows >= line / 2) rows = ceil_div(rows, line) * line;
    return rows;
}

typedef struct ProductLoop {
    const Joined *joined; /* [count] */
    const Grid *grids;
    const int64_t *before; /* [count + 1] slices of all earlier products */
    int64_t count;
    char *memory;
    /* A worker's memory: these in this order, a line that says what wide rows it holds, and a panel. */
    size_t rows_bytes, results_bytes, runs_bytes, raw_rows_bytes, raw_bytes, wide_rows_bytes;
    size_t worker_bytes;
    /* Not NULL: wide rows of the one product, `room` a chunk, which are there before the slices and which all workers read: that is less
     * than `room` a worker where there are no more chunks than workers. */
    float *shared;
    int64_t room;
} ProductLoop;

static int64_t product_of(const ProductLoop *loop, int64_t slice) {
    int64_t low = 0, high = loop->count;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (loop->before[middle] <= slice)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static SliceMemory memory_of(const ProductLoop *loop, int worker) {
    char *at = loop->memory + loop->worker_bytes * (size_t)worker;
    SliceMemory m = {0};
    m.block.rows = (const void **)(void *)at;
    m.block.results = (void **)(void *)(at += loop->rows_bytes);
    m.block.runs = (EdgeRun *)(void *)(at += loop->results_bytes);
    m.raw_rows = (void **)(void *)(at += loop->runs_bytes);
    m.raw = at += loop->raw_rows_bytes;
    m.wide_rows = (float *)(void *)(at += loop->raw_bytes);
    m.held = (int64_t *)(void *)(at += loop->wide_rows_bytes);
    m.panel = at + LINE;
    return m;
}

static void widen_chunks(void *context, int64_t begin, int64_t end, int worker) {
    const ProductLoop *loop = context;
    const Product *p = loop->joined[0].product;
    SliceMemory memory = memory_of(loop, worker);
    int64_t rows = chunk_rows(p, &loop->grids[0]);
    memory.block.capacity = rows;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        Range range = {chunk * rows, least((chunk + 1) * rows, p->rows)};
        if (range.first >= range.end) continue;
        fill_block(p, range, &memory.block);
        wide_rows_take(p, range.first, 0, p->weight->depth, false, &memory.block, loop->shared + chunk * loop->room);
    }
}

/* Which of `count` *index counts innermost; what it counts besides is left in it. Mostly there is one, and nothing to divide. */
static int64_t take_rest(int64_t *index, int64_t count) {
    if (count == 1) return 0;
    int64_t rest = *index % count;
    *index /= count;
    return rest;
}

static void run_slices(void *context, int64_t begin, int64_t end, int worker) {
    const ProductLoop *loop = context;
    SliceMemory memory = memory_of(loop, worker);
    for (int64_t slice = begin; slice < end; slice++) {
        int64_t at = product_of(loop, slice), index = slice - loop->before[at];
        const Joined *joined = &loop->joined[at];
        const Product *p = joined->product;
        const Grid *grid = &loop->grids[at];
        /* panel ranges outermost, so that a thread's consecutive slices read the same weights */
        int64_t part = take_rest(&index, grid->parts), chunk = take_rest(&index, grid->chunks), range = index,
                panels = weight_panels(p->weight);
        int64_t rows = chunk_rows(p, grid), first = chunk * rows;
        if (first >= p->rows) continue;
        memory.block.capacity = rows;
        int64_t number = loop->before[at] + chunk * grid->parts + part;
        if (loop->shared) memory.wide_rows = loop->shared + chunk * loop->room, *memory.held = number;
        run_slice(joined, chunk, (Range){first, least(first + rows, p->rows)},
                  (Range){range * panels / grid->ranges, (range + 1) * panels / grid->ranges},
                  grid->parts > 1 ? part : -1, number, &memory, worker);
    }
}

static void at_least(size_t *bytes, size_t wanted) {
    if (*bytes < lines(wanted)) *bytes = lines(wanted);
}

static void size_memory(ProductLoop *loop) {
    size_t panel = 0;
    for (int64_t i = 0; i < loop->count; i++) {
        const Product *p = loop->joined[i].product;
        const Weight *w = p->weight;
        size_t rows = (size_t)chunk_rows(p, &loop->grids[i]);
        size_t raw = (size_t)block_rows(p, (int64_t)rows);
        at_least(&loop->rows_bytes, rows * (size_t)row_pointers(p) * sizeof(void *));
        at_least(&loop->results_bytes, rows * sizeof(void *));
        at_least(&loop->runs_bytes, rows * sizeof(EdgeRun));
        at_least(&loop->raw_rows_bytes, loop->grids[i].parts > 1 ? rows * sizeof(void *) : 0);
        at_least(&loop->raw_rows_bytes, p->epilogue->finish ? raw * sizeof(void *) : 0);
        at_least(&loop->raw_bytes, p->epilogue->finish ? raw * (size_t)block_width(p) * w->set->size : 0);
        at_least(&loop->wide_rows_bytes,
                 p->rows && !loop->shared ? (size_t)wide_rows_room(p, (int64_t)rows) * sizeof(float) : 0);
        at_least(&panel, wide_panel_bytes(p) + narrow_panel_bytes(p));
    }
    loop->worker_bytes = loop->rows_bytes + loop->results_bytes + loop->runs_bytes + loop->raw_rows_bytes +
                         loop->raw_bytes + loop->wide_rows_bytes + LINE + panel;
}

/* Room for the parts' sums, and for who has brought how many. */
static Status take_sums(Joined *joined, const Grid *grids, int64_t count, Scratch *scratch) {
    size_t bytes = 0, arrivals = 0;
    void *memory;
    for (int pass = 0; pass < 2; pass++) {
        char *sums = NULL;
        _Atomic int *arrived = NULL;
        if (pass) {
            if (!bytes) return NULL;
            TRY(scratch_take(scratch, bytes + arrivals * sizeof *arrived, &memory));
            sums = memory;
            arrived = (_Atomic int *)(void *)(sums + bytes);
            memset(sums + bytes, 0, arrivals * sizeof *arrived);
        }
        bytes = arrivals = 0;
        for (int64_t i = 0; i < count; i++) {
            const Weight *w = joined[i].product->weight;
            if (grids[i].parts == 1) continue;
            if (pass) joined[i].sums = sums + bytes, joined[i].arrived = arrived + arrivals;
            bytes += lines((size_t)(joined[i].parts * joined[i].product->rows * w->columns) * w->set->size);
            arrivals += (size_t)(grids[i].chunks * weight_panels(w));
        }
    }
    return NULL;
}

/* Multiply-adds. */
static double work_of(const Product *p) {
    const Weight *w = p->weight;
    return (double)p->rows * (double)(w->groups * w->columns) * (double)most(1, w->taps * w->depth);
}

Status product_run(const Product *products, int64_t count, Pool *pool, Scratch *scratch) {
    double work = 0;
    for (int64_t i = 0; i < count; i++) work += work_of(&products[i]);
    if (work == 0) return NULL;
    if (work < ALONE_WORK) pool = NULL;
    void *memory;
    size_t each = sizeof(Joined) + sizeof(Grid) + sizeof(int64_t);
    TRY(scratch_take(scratch, (size_t)count * each + sizeof(int64_t), &memory));
    Joined *joined = memory;
    Grid *grids = (Grid *)(joined + count);
    int64_t *before = (int64_t *)(grids + count), threads = pool_threads(pool), wanted = slices_wanted(pool);
    before[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        joined[i] = joined_of(&products[i], count);
        int64_t own = (int64_t)ceil((double)wanted * work_of(&products[i]) / work);
        grids[i] = products[i].rows ? cut(&joined[i], own) : (Grid){1, 1, 1};
        before[i + 1] = before[i] + grids[i].chunks * grids[i].ranges * grids[i].parts;
    }
    ProductLoop loop = {.joined = joined, .grids = grids, .before = before, .count = count};
    TRY(take_sums(joined, grids, count, scratch));
    if (count == 1 && products->halves && grids->chunks <= threads) {
        loop.room = wide_rows_room(products, chunk_rows(products, grids));
        TRY(scratch_take(scratch, (size_t)(grids->chunks * loop.room) * sizeof(float), &memory));
        loop.shared = memory;
    }
    size_memory(&loop);
    TRY(scratch_take(scratch, loop.worker_bytes * (size_t)pool_threads(pool), &memory));
    loop.memory = memory;
    for (int64_t i = 0; i < threads; i++) *memory_of(&loop, (int)i).held = -1;
    if (loop.shared) pool_for(pool, grids->chunks, 1, widen_chunks, &loop);
    pool_tell(work);
    pool_for(pool, before[count], 1, run_slices, &loop);
    return NULL;
}
