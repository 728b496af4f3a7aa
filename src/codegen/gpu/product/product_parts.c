/* SPDX-License-Identifier: Apache-2.0 */
/* What all products are made of: tiles, packs, splits of the depth, arguments of launches. */
#include "codegen/gpu/product/product_parts.h"

#include <string.h>

size_t gpu_product_sum_bytes(DType dtype) { return dtype_size(dtype) == 8 ? 8 : 4; }
int product_pack(DType dtype) { return dtype_size(dtype) == 8 ? 2 : 4; }

/* Elements per thread and tile of 4-byte sums; 8-byte ones take half the depth, and no large tiles, for shared memory
 * and registers hold half as many. A tile takes at most 17 KB of shared memory (OpenCL devices have at least 32). */
static const TileShape tile_shapes[] = {
    [GPU_TILE_LARGE] = {128, 128, 8, 8, 8, 2},
    [GPU_TILE_MEDIUM] = {64, 64, 16, 4, 4, 3},
    [GPU_TILE_TALL] = {128, 16, 16, 4, 4, 4},
};

TileShape product_tile(GpuTile tile, DType dtype) {
    TileShape shape = tile_shapes[tile];
    if (dtype_size(dtype) == 8) shape.depth = 8, shape.beside = 2;
    return shape;
}

int product_threads(const TileShape *s) { return s->rows / s->thread_rows * (s->columns / s->thread_columns); }
int product_narrow_columns(const GpuVariant *v) { return v->b_outer ? 16 * product_pack(v->dtype) : 64; }

/* Parts of the depth shorter than this cost more in partial sums than they bring. */
enum { LEAST_PART = 256, MOST_SPLITS = 32 };

int64_t product_splits(const GpuLimits *limits, int64_t blocks, int64_t blocks_a_multiprocessor, int64_t depth) {
    int64_t room = limits->multiprocessors * blocks_a_multiprocessor;
    if (blocks < 1 || blocks * 2 > room) return 1;
    int64_t splits = room / blocks, most = depth / LEAST_PART;
    if (splits > most) splits = most;
    if (splits > MOST_SPLITS) splits = MOST_SPLITS;
    return splits < 1 ? 1 : splits;
}

void product_argument(GpuProductLaunch *launch, int64_t value) { launch->arguments[launch->count++] = value; }

int64_t product_scale(DType dtype, double alpha) {
    int64_t bits = 0;
    float narrow = (float)alpha;
    if (dtype == DT_F64)
        memcpy(&bits, &alpha, sizeof alpha);
    else
        memcpy(&bits, &narrow, sizeof narrow);
    return bits;
}

int product_add_variant(GpuVariant *variants, int count, const GpuVariant *variant) {
    for (int i = 0; i < count; i++)
        if (memcmp(&variants[i], variant, sizeof *variant) == 0) return count;
    if (count == GPU_MAX_VARIANTS) return count;
    variants[count] = *variant;
    return count + 1;
}
