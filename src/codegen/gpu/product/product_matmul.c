/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by tiles, and the narrow ones: their texts, and which of them suits which sizes. */
#include <string.h>
#include "codegen/gpu/product/product_parts.h"

/* clang-format off */

/* What all products by tiles share. A tile of a factor is `tile` elements wide, `TILE_DEPTH` deep; in shared memory the
 * depth is the slow axis. In global memory either axis may be the one with neighbours: outer_first says that it is the
 * tile's width. A thread takes LOADS packs of neighbours. Lines have four elements to spare, which keeps them aligned
 * for vector reads and most writes on banks of their own. */
const char product_tiles_text[] =
    "#define LOADS(tile) (((tile) * TILE_DEPTH + PACK * THREADS - 1) / (PACK * THREADS))\n"
    "#define LINE(tile) ((tile) + 4)\n"
    "#define ROW_AT(i) ((i) / 4 * (TILE_ROWS / (THREAD_ROWS / 4)) + (i) % 4)\n"
    "#define COLUMN_AT(j) ((j) / 4 * (TILE_COLUMNS / (THREAD_COLUMNS / 4)) + (j) % 4)\n"
    "#define PACK_OUTER(e, tile, outer_first) ((outer_first) ? (e) % ((tile) / PACK) * PACK : (e) / (TILE_DEPTH / PACK))\n"
    "#define PACK_DEPTH(e, tile, outer_first) ((outer_first) ? (e) / ((tile) / PACK) : (e) % (TILE_DEPTH / PACK) * PACK)\n"
    "FUNCTION void load_tile(GLOBAL const BITS *from, i64 outer_stride, i64 depth_stride, i32 outer_left, i32 depth_left,\n"
    "                        i32 whole, i32 outer_first, i32 tile, i32 thread, VALUE *next) {\n"
    "    UNROLL\n"
    "    for (i32 p = 0; p < LOADS(tile); p++) {\n"
    "        const i32 e = thread + p * THREADS;\n"
    "        const i32 o = PACK_OUTER(e, tile, outer_first), d = PACK_DEPTH(e, tile, outer_first);\n"
    "        i32 count = outer_first ? (d < depth_left ? outer_left - o : 0) : (o < outer_left ? depth_left - d : 0);\n"
    "        if (e >= tile * TILE_DEPTH / PACK) count = 0;\n"
    "        read_pack(from + o * outer_stride + d * depth_stride, outer_first ? outer_stride : depth_stride, count, whole,\n"
    "                  next + p * PACK);\n"
    "    }\n"
    "}\n"
    "FUNCTION void store_tile(SHARED_POINTER VALUE *to, i32 outer_first, i32 tile, i32 thread, const VALUE *next) {\n"
    "    UNROLL\n"
    "    for (i32 p = 0; p < LOADS(tile); p++) {\n"
    "        const i32 e = thread + p * THREADS;\n"
    "        const i32 o = PACK_OUTER(e, tile, outer_first), d = PACK_DEPTH(e, tile, outer_first);\n"
    "        if (e < tile * TILE_DEPTH / PACK) {\n"
    "            UNROLL\n"
    "            for (i32 i = 0; i < PACK; i++)\n"
    "                to[(outer_first ? d : d + i) * LINE(tile) + (outer_first ? o + i : o)] = next[p * PACK + i];\n"
    "        }\n"
    "    }\n"
    "}\n"
    "FUNCTION void multiply_tiles(SHARED_POINTER const VALUE *a, SHARED_POINTER const VALUE *b, i32 row, i32 column,\n"
    "                             VALUE *sums) {\n"
    "    UNROLL\n"
    "    for (i32 d = 0; d < TILE_DEPTH; d++) {\n"
    "        VALUE x[THREAD_ROWS], y[THREAD_COLUMNS];\n"
    "        UNROLL\n"
    "        for (i32 i = 0; i < THREAD_ROWS; i += PACK) read_sums(a + d * LINE(TILE_ROWS) + row + ROW_AT(i), x + i);\n"
    "        UNROLL\n"
    "        for (i32 j = 0; j < THREAD_COLUMNS; j += PACK)\n"
    "            read_sums(b + d * LINE(TILE_COLUMNS) + column + COLUMN_AT(j), y + j);\n"
    "        UNROLL\n"
    "        for (i32 i = 0; i < THREAD_ROWS; i++) {\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < THREAD_COLUMNS; j++)\n"
    "                sums[i * THREAD_COLUMNS + j] = MULTIPLY_ADD(x[i], y[j], sums[i * THREAD_COLUMNS + j]);\n"
    "        }\n"
    "    }\n"
    "}\n"
    TILE_AT;

/* Each step loads the next tiles into registers, multiplies those in shared memory, and stores the next to the other half
 * of it: one barrier a step. */
const char product_matmul_text[] =
    "#define UNIT_DEPTH TILE_DEPTH\n"
    MATMUL_HEAD
    TILES_DECLARED
    "    SHARED i64 kept[4];\n"
    TILES_NAMED
    MATMUL_PLACE
    "    i64 row0, column0;\n"
    "    tile_at(tile, (u32)row_tiles, (u32)column_tiles, &row0, &column0);\n"
    /* What the end wants again, so that no registers hold it meanwhile. */
    "    if (thread == 0) {\n"
    "        kept[0] = row0;\n"
    "        kept[1] = column0;\n"
    "        kept[2] = out_at;\n"
    "        kept[3] = split;\n"
    "    }\n"
    "    BARRIER;\n"
    "    const i32 row = thread / (TILE_COLUMNS / THREAD_COLUMNS) * 4, column = thread % (TILE_COLUMNS / THREAD_COLUMNS) * 4;\n"
    "    GLOBAL const BITS *from_a = a + row0 * a_row + begin * a_depth, *from_b = b + column0 * b_column + begin * b_depth;\n"
    "    VALUE sums[THREAD_ROWS * THREAD_COLUMNS], next_a[LOADS(TILE_ROWS) * PACK], next_b[LOADS(TILE_COLUMNS) * PACK];\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < THREAD_ROWS * THREAD_COLUMNS; i++) sums[i] = 0;\n"
    "    const i32 rows_left = NEAR(rows - row0), columns_left = NEAR(columns - column0);\n"
    "    i32 now = 0;\n"
    /* Step -1 only loads. */
    "    for (i64 d = begin - TILE_DEPTH; d < end; d += TILE_DEPTH) {\n"
    "        const i32 ahead = NEAR(end - d - TILE_DEPTH);\n"
    "        if (ahead) {\n"
    "            load_tile(from_a, a_row, a_depth, rows_left, ahead, whole_a, A_OUTER, TILE_ROWS, thread, next_a);\n"
    "            load_tile(from_b, b_column, b_depth, columns_left, ahead, whole_b, B_OUTER, TILE_COLUMNS, thread, next_b);\n"
    "            from_a += TILE_DEPTH * a_depth;\n"
    "            from_b += TILE_DEPTH * b_depth;\n"
    "        }\n"
    "        if (d >= begin)\n"
    "            multiply_tiles(tiles_a + now * TILE_DEPTH * LINE(TILE_ROWS), tiles_b + now * TILE_DEPTH * LINE(TILE_COLUMNS),\n"
    "                           row, column, sums);\n"
    "        now = 1 - now;\n"
    "        if (ahead) {\n"
    "            store_tile(tiles_a + now * TILE_DEPTH * LINE(TILE_ROWS), A_OUTER, TILE_ROWS, thread, next_a);\n"
    "            store_tile(tiles_b + now * TILE_DEPTH * LINE(TILE_COLUMNS), B_OUTER, TILE_COLUMNS, thread, next_b);\n"
    "        }\n"
    "        BARRIER;\n"
    "    }\n"
    "#define OUT_AT(r) (out_at + (r) * out_row)\n"
    "    row0 = kept[0];\n"
    "    column0 = kept[1];\n"
    "    out_at = kept[2];\n"
    "    split = kept[3];\n"
    "    const i64 place0 = 0;\n"
    PRODUCT_STORE
    "}\n";

/* 256 threads are 16 x 16. Where columns are neighbours, 16 threads share PACK columns each and take every 16th element
 * of the depth; where the depth is, 16 threads share four columns and take packs of it in turn. A step takes STEP elements
 * of the depth, for which the rows of a are shared. Sums meet in shared memory, CHUNK rows at a time. */
const char product_narrow_text[] =
    MATMUL_HEAD
    "#if B_OUTER\n"
    "#define STEP (4 * PARTS)\n"
    "#else\n"
    "#define STEP (PARTS * PACK)\n"
    "#endif\n"
    "    SHARED VALUE exchange[CHUNK * PARTS * (BLOCK_COLUMNS + 1)];\n"
    "    SHARED u128 words_a[2 * NARROW_ROWS * STEP / PACK];\n"
    "    SHARED_POINTER VALUE *rows_a = (SHARED_POINTER VALUE *)words_a;\n"
    MATMUL_PLACE
    "    const i32 x = thread % PARTS, y = thread / PARTS;\n"
    "    const i64 row0 = tile % row_tiles * NARROW_ROWS, column0 = tile / row_tiles * BLOCK_COLUMNS;\n"
    "    const i32 rows_left = NEAR(rows - row0), columns_left = NEAR(columns - column0);\n"
    "    VALUE sums[NARROW_ROWS * THREAD_COLUMNS], w[4 * PACK];\n"
    "    UNROLL\n"
    "    for (i32 i = 0; i < NARROW_ROWS * THREAD_COLUMNS; i++) sums[i] = 0;\n"
    "    a += row0 * a_row;\n"
    "    b += column0 * b_column;\n"
    "    i32 now = 0;\n"
    "    for (i64 d = begin; d < end; d += STEP, now = 1 - now) {\n"
    "        UNROLL\n"
    "        for (i32 u = 0; u < 4; u++) {\n"
    "#if B_OUTER\n"
    "            const i64 at = d + y + u * PARTS;\n"
    "            read_pack(b + x * PACK * b_column + at * b_depth, b_column, at < end ? columns_left - x * PACK : 0, whole_b,\n"
    "                      w + u * PACK);\n"
    "#else\n"
    "            const i64 at = d + x * PACK;\n"
    "            read_pack(b + (y + 16 * u) * b_column + at * b_depth, b_depth, y + 16 * u < columns_left ? NEAR(end - at) : 0,\n"
    "                      whole_b, w + u * PACK);\n"
    "#endif\n"
    "        }\n"
    "        for (i32 e = thread; e < NARROW_ROWS * STEP; e += THREADS) {\n"
    "            const i32 r = e / STEP;\n"
    "            const i64 at = d + e % STEP;\n"
    "            rows_a[now * NARROW_ROWS * STEP + e] =\n"
    "                r < rows_left && at < end ? FROM_BITS(READ(BITS, a + r * a_row + at * a_depth)) : (VALUE)0;\n"
    "        }\n"
    "        BARRIER;\n"
    "        UNROLL\n"
    "        for (i32 r = 0; r < NARROW_ROWS; r++) {\n"
    "            SHARED_POINTER const VALUE *line = rows_a + (now * NARROW_ROWS + r) * STEP;\n"
    "#if !B_OUTER\n"
    "            VALUE v[PACK];\n"
    "            read_sums(line + x * PACK, v);\n"
    "#endif\n"
    "            UNROLL\n"
    "            for (i32 u = 0; u < 4; u++) {\n"
    "                UNROLL\n"
    "                for (i32 i = 0; i < PACK; i++) {\n"
    "#if B_OUTER\n"
    "                    sums[r * PACK + i] = MULTIPLY_ADD(line[y + u * PARTS], w[u * PACK + i], sums[r * PACK + i]);\n"
    "#else\n"
    "                    sums[r * 4 + u] = MULTIPLY_ADD(v[i], w[u * PACK + i], sums[r * 4 + u]);\n"
    "#endif\n"
    "                }\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "#if B_OUTER\n"
    "#define PART y\n"
    "#define COLUMN(j) (x * PACK + (j))\n"
    "#else\n"
    "#define PART x\n"
    "#define COLUMN(j) (y + 16 * (j))\n"
    "#endif\n"
    "    UNROLL\n"
    "    for (i32 r0 = 0; r0 < NARROW_ROWS; r0 += CHUNK) {\n"
    "        UNROLL\n"
    "        for (i32 r = 0; r < CHUNK; r++) {\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < THREAD_COLUMNS; j++)\n"
    "                exchange[(r * PARTS + PART) * (BLOCK_COLUMNS + 1) + COLUMN(j)] = sums[(r0 + r) * THREAD_COLUMNS + j];\n"
    "        }\n"
    "        BARRIER;\n"
    "        for (i32 e = thread; e < CHUNK * BLOCK_COLUMNS; e += THREADS) {\n"
    "            const i32 r = e / BLOCK_COLUMNS, c = e % BLOCK_COLUMNS;\n"
    "            if (r0 + r < rows_left && c < columns_left) {\n"
    "                const i64 at = out_at + (row0 + r0 + r) * out_row + (column0 + c) * out_column;\n"
    "                i64 places[PACK];\n"
    "                VALUE v[PACK];\n"
    "                UNROLL\n"
    "                for (i32 k = 0; k < PACK; k++) { places[k] = column0 + c; v[k] = 0; }\n"
    "                for (i32 p = 0; p < PARTS; p++) v[0] += exchange[(r * PARTS + p) * (BLOCK_COLUMNS + 1) + c];\n"
    "                if (splits > 1) {\n"
    "                    WRITE(VALUE, partial + split * elements + at, v[0]);\n"
    "                } else {\n"
    "                    v[0] = SCALE(v[0], alpha);\n"
    "                    finish_pack(v, places, at, 0, 1, 0 STEP_PASSED);\n"
    "                    WRITE(BITS, out + at, TO_BITS(v[0]));\n"
    "                }\n"
    "            }\n"
    "        }\n"
    "        BARRIER;\n"
    "    }\n"
    "}\n";

/* clang-format on */

/* ---- which variant ---- */

/* Rows and columns are counted in 32 bits there. */
static bool on_matrix(const GpuMatmul *m, const GpuLimits *limits) {
    if (product_exact(limits, m->dtype) &&
        (m->a_outer || !m->b_outer || m->columns <= product_tile(GPU_TILE_TALL, m->dtype).columns))
        return false;
    return product_on_matrix(limits, m->dtype) && m->rows > NARROW_MOST_ROWS && m->rows < INT32_MAX &&
           m->columns < INT32_MAX;
}

static GpuTile tile_of(const GpuMatmul *m, const GpuLimits *limits, int64_t batches) {
    if (m->rows <= NARROW_MOST_ROWS) return m->rows == 1 ? GPU_TILE_ROW : GPU_TILE_ROWS;
    if (on_matrix(m, limits))
        return product_matrix_tile(limits, m->rows, m->columns, batches, product_exact(limits, m->dtype));
    if (m->columns <= product_tile(GPU_TILE_TALL, m->dtype).columns) return GPU_TILE_TALL;
    int64_t large = ceil_div(m->rows, 128) * ceil_div(m->columns, 128) * batches;
    bool fills = m->rows > 64 && m->columns > 64 && large >= limits->multiprocessors;
    return fills && dtype_size(m->dtype) < 8 ? GPU_TILE_LARGE : GPU_TILE_MEDIUM;
}

/* Whether packs along the contiguous axis (stride `inner`) start at multiples of their size. */
static bool in_packs(const GpuMatmul *m, int64_t pack, int64_t inner, int64_t other, int64_t others,
                     const int64_t *batch, int64_t alignment) {
    bool fits =
        inner == 1 && alignment % (pack * (int64_t)dtype_size(m->dtype)) == 0 && (others == 1 || other % pack == 0);
    for (int i = 0; i < GPU_BATCH_AXES; i++) fits &= m->batch[i] == 1 || batch[i] % pack == 0;
    return fits;
}

static int64_t flags_of(const GpuMatmul *m, const GpuVariant *v) {
    int64_t flags = 0, pack = product_pack(m->dtype), unit = v->matrix ? 16 / (int64_t)dtype_size(m->dtype) : pack;
    bool a_outer = v->a_outer && v->kind == GPU_PRODUCT_MATMUL;
    if (a_outer ? in_packs(m, unit, m->a_row, m->a_depth, m->depth, m->a_batch, m->a_alignment)
                : in_packs(m, unit, m->a_depth, m->a_row, m->rows, m->a_batch, m->a_alignment))
        flags |= WHOLE_A;
    if (v->b_outer ? in_packs(m, unit, m->b_column, m->b_depth, m->depth, m->b_batch, m->b_alignment)
                   : in_packs(m, unit, m->b_depth, m->b_column, m->columns, m->b_batch, m->b_alignment))
        flags |= WHOLE_B;
    if (in_packs(m, pack, m->out_column, m->out_row, m->rows, m->out_batch, m->out_alignment)) flags |= WHOLE_OUT;
    return flags;
}

static void add_arguments(GpuProductLaunch *l, const int64_t *values, int count) {
    for (int i = 0; i < count; i++) product_argument(l, values[i]);
}

void gpu_matmul_launch(const GpuMatmul *m, const GpuLimits *limits, const GpuEpilogue *epilogue, GpuProductLaunch *l) {
    memset(l, 0, sizeof *l);
    GpuVariant *v = &l->variant;
    v->epilogue = epilogue;
    int64_t batches = m->batch[0] * m->batch[1] * m->batch[2];
    v->dtype = m->dtype;
    v->tile = tile_of(m, limits, batches);
    v->kind = v->tile == GPU_TILE_ROW || v->tile == GPU_TILE_ROWS ? GPU_PRODUCT_NARROW : GPU_PRODUCT_MATMUL;
    bool narrow = v->kind == GPU_PRODUCT_NARROW;
    v->a_outer = m->a_outer && !narrow; /* the narrow kernel does not ask */
    v->b_outer = m->b_outer;
    v->matrix = on_matrix(m, limits);
    v->exact = v->matrix && product_exact(limits, m->dtype);
    int64_t flags = flags_of(m, v);
    v->gather = v->matrix && (flags & (WHOLE_A | WHOLE_B)) != (WHOLE_A | WHOLE_B);
    if (v->gather) v->tile = GPU_TILE_MEDIUM;
    int64_t tile_rows, tile_columns;
    if (narrow) {
        tile_rows = v->tile == GPU_TILE_ROW ? 1 : 8;
        tile_columns = product_narrow_columns(v);
        l->block = NARROW_THREADS;
    } else if (v->matrix) {
        MatrixShape shape = product_matrix_shape(v->tile);
        tile_rows = shape.rows;
        tile_columns = shape.columns;
        l->block = product_matrix_threads(&shape);
    } else {
        TileShape shape = product_tile(v->tile, m->dtype);
        tile_rows = shape.rows;
        tile_columns = shape.columns;
        l->block = product_threads(&shape);
    }
    int64_t row_tiles = ceil_div(m->rows, tile_rows), column_tiles = ceil_div(m->columns, tile_columns);
    int64_t blocks = row_tiles * column_tiles * batches;
    l->splits = product_splits(limits, blocks, narrow ? 4 : 2, m->depth);
    l->grid = blocks * l->splits;
    add_arguments(l,
                  (int64_t[]){m->rows, m->columns, m->depth, m->a_row, m->a_depth, m->b_depth, m->b_column, m->out_row,
                              m->out_column, m->batch[1], m->batch[2]},
                  11);
    add_arguments(l, m->a_batch, GPU_BATCH_AXES);
    add_arguments(l, m->b_batch, GPU_BATCH_AXES);
    add_arguments(l, m->out_batch, GPU_BATCH_AXES);
    add_arguments(
        l, (int64_t[]){row_tiles, column_tiles, l->splits, m->elements, flags, product_scale(m->dtype, m->alpha)}, 6);
}

/* ---- what may come ---- */

/* Sizes on both sides of every limit above, for those that are not known. */
static const int64_t some_sizes[] = {1, 2, NARROW_MOST_ROWS + 1, 65, 1 << 20};
enum { SOME_SIZES = sizeof some_sizes / sizeof *some_sizes };

static int64_t size_or(int64_t known, int i) { return known >= 0 ? known : some_sizes[i]; }

/* Strides are not known here: lines begin at multiples of 16 bytes, but those of dense matrices where their sizes do
 * not. */
static GpuMatmul with_strides(const GpuMatmul *known) {
    GpuMatmul m = *known;
    m.a_row = m.a_outer;
    m.a_depth = !m.a_outer;
    m.b_column = m.b_outer;
    m.b_depth = !m.b_outer;
    memset(m.a_batch, 0, sizeof m.a_batch);
    memset(m.b_batch, 0, sizeof m.b_batch);
    m.a_alignment = m.b_alignment = 16;
    return m;
}

static int add_matrix(const GpuMatmul *known, const GpuVariant *variant, GpuVariant *out, int count) {
    GpuVariant v = *variant;
    int64_t unit = 16 / (int64_t)dtype_size(v.dtype), line_a = known->a_outer ? known->rows : known->depth,
            line_b = known->b_outer ? known->columns : known->depth;
    count = product_add_variant(out, count, &v);
    if (known->rows < 0 || known->columns < 0 || known->batch[0] < 0) count = product_add_matrix_tiles(out, count, &v);
    v.gather = true;
    v.tile = GPU_TILE_MEDIUM;
    return line_a < 0 || line_b < 0 || line_a % unit || line_b % unit ? product_add_variant(out, count, &v) : count;
}

int gpu_matmul_variants(const GpuMatmul *known, const GpuLimits *limits, const GpuEpilogue *epilogue, GpuVariant *out) {
    int count = 0;
    for (int i = 0; i < SOME_SIZES * SOME_SIZES * 4; i++) {
        GpuMatmul m = with_strides(known);
        GpuProductLaunch launch;
        m.rows = size_or(known->rows, i % SOME_SIZES);
        m.columns = size_or(known->columns, i / SOME_SIZES % SOME_SIZES);
        int high = i / (SOME_SIZES * SOME_SIZES);
        m.batch[0] = size_or(known->batch[0], high & 1 ? SOME_SIZES - 1 : 0);
        m.batch[1] = m.batch[2] = 1;
        m.depth = size_or(known->depth, high & 2 ? SOME_SIZES - 1 : 0);
        if (m.rows < 1 || m.columns < 1) continue;
        gpu_matmul_launch(&m, limits, epilogue, &launch);
        if (launch.variant.matrix)
            count = add_matrix(known, &launch.variant, out, count);
        else
            count = product_add_variant(out, count, &launch.variant);
        if (launch.splits < 2) continue;
        gpu_finish_launch(m.dtype, 1, launch.splits, 1, 1, 1, 1, limits, epilogue, &launch);
        count = product_add_variant(out, count, &launch.variant);
    }
    return count;
}
