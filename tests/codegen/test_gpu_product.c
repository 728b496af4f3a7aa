/* SPDX-License-Identifier: Apache-2.0 */
/* Which variant, grid and split products of given sizes get; that whatever sizes a run brings were prepared for; and
 * the parts of two texts that variants differ in, against tests/codegen/gpu/NAME.txt. ONNXFUSE_WRITE_GOLDEN=1 writes
 * these. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "codegen/gpu/dialect.h"
#include "codegen/gpu/product/product.h"
#include "sass.h"

static const GpuLimits large_device = {
    .multiprocessors = 132, .block_threads = 1024, .shared_bytes = 48 << 10, .fp64 = true};

/* ---- choices ---- */

static GpuMatmul matmul_of(DType dtype, int64_t rows, int64_t columns, int64_t depth, int64_t batch) {
    return (GpuMatmul){.dtype = dtype,
                       .rows = rows,
                       .columns = columns,
                       .depth = depth,
                       .a_row = depth,
                       .a_depth = 1,
                       .b_depth = columns,
                       .b_column = 1,
                       .out_row = columns,
                       .out_column = 1,
                       .batch = {batch, 1, 1},
                       .a_batch = {rows * depth},
                       .b_batch = {depth * columns},
                       .out_batch = {rows * columns},
                       .alpha = 1,
                       .elements = batch * rows * columns,
                       .b_outer = true,
                       .a_alignment = 256,
                       .b_alignment = 256,
                       .out_alignment = 256};
}

typedef struct Choice {
    const char *name;
    DType dtype;
    int64_t rows, columns, depth, batch;
    GpuProductKind kind;
    GpuTile tile;
    int64_t grid, splits;
} Choice;

static const Choice choices[] = {
    {"a large product takes large tiles", DT_F32, 4096, 4096, 4096, 1, GPU_PRODUCT_MATMUL, GPU_TILE_LARGE, 1024, 1},
    {"8-byte elements take medium ones", DT_F64, 4096, 4096, 4096, 1, GPU_PRODUCT_MATMUL, GPU_TILE_MEDIUM, 4096, 1},
    {"large tiles must fill the device", DT_F32, 1024, 1024, 64, 1, GPU_PRODUCT_MATMUL, GPU_TILE_MEDIUM, 256, 1},
    {"batches fill it too", DT_F32, 128, 128, 64, 200, GPU_PRODUCT_MATMUL, GPU_TILE_LARGE, 200, 1},
    {"few tiles over a long depth are split", DT_F32, 64, 64, 8192, 1, GPU_PRODUCT_MATMUL, GPU_TILE_MEDIUM, 32, 32},
    {"a short depth is not", DT_F32, 64, 64, 256, 1, GPU_PRODUCT_MATMUL, GPU_TILE_MEDIUM, 1, 1},
    {"few columns take tall tiles", DT_F32, 100000, 10, 64, 1, GPU_PRODUCT_MATMUL, GPU_TILE_TALL, 782, 1},
    {"one row is narrow", DT_F32, 1, 32000, 4096, 1, GPU_PRODUCT_NARROW, GPU_TILE_ROW, 500, 1},
    {"one row by fewer columns is split", DT_F32, 1, 4096, 4096, 1, GPU_PRODUCT_NARROW, GPU_TILE_ROW, 512, 8},
    {"16 rows are narrow", DT_BF16, 16, 32000, 4096, 1, GPU_PRODUCT_NARROW, GPU_TILE_ROWS, 1000, 1},
    {"17 rows are not", DT_F32, 17, 32000, 4096, 1, GPU_PRODUCT_MATMUL, GPU_TILE_MEDIUM, 500, 1},
    {"no rows launch nothing", DT_F32, 0, 64, 64, 1, GPU_PRODUCT_NARROW, GPU_TILE_ROWS, 0, 1},
    {"no depth launches", DT_F32, 64, 64, 0, 1, GPU_PRODUCT_MATMUL, GPU_TILE_MEDIUM, 1, 1},
};

Test(gpu_product, choices) {
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const Choice *c = &choices[i];
        GpuMatmul m = matmul_of(c->dtype, c->rows, c->columns, c->depth, c->batch);
        GpuProductLaunch l;
        gpu_matmul_launch(&m, &large_device, NULL, &l);
        cr_expect(l.variant.kind == c->kind && l.variant.tile == c->tile && l.grid == c->grid && l.splits == c->splits,
                  "%s: kind %d tile %d grid %lld splits %lld", c->name, (int)l.variant.kind, (int)l.variant.tile,
                  (long long)l.grid, (long long)l.splits);
        cr_expect_leq(l.count, GPU_PRODUCT_ARGUMENTS);
    }
}

static const Choice unit_choices[] = {
    {"a large product of f16 takes large tiles", DT_F16, 4096, 4096, 4096, 1, GPU_PRODUCT_MATMUL, GPU_TILE_LARGE, 1024,
     1},
    {"f32 does, as tf32", DT_F32, 4096, 4096, 4096, 1, GPU_PRODUCT_MATMUL, GPU_TILE_LARGE, 1024, 1},
    {"64 columns take half tiles", DT_F16, 100352, 64, 576, 1, GPU_PRODUCT_MATMUL, GPU_TILE_HALF, 784, 1},
    {"tiles are such that all multiprocessors have as much", DT_F16, 25088, 128, 1152, 1, GPU_PRODUCT_MATMUL,
     GPU_TILE_HALF, 392, 1},
    {"few tiles over a long depth are split", DT_BF16, 64, 64, 8192, 1, GPU_PRODUCT_MATMUL, GPU_TILE_MEDIUM, 32, 32},
    {"lines of no whole chunks are gathered by medium tiles", DT_F16, 4096, 4096, 4095, 1, GPU_PRODUCT_MATMUL,
     GPU_TILE_MEDIUM, 4096, 1},
    {"16 rows are narrow", DT_BF16, 16, 32000, 4096, 1, GPU_PRODUCT_NARROW, GPU_TILE_ROWS, 1000, 1},
    {"f64 has no units", DT_F64, 4096, 4096, 4096, 1, GPU_PRODUCT_MATMUL, GPU_TILE_MEDIUM, 4096, 1},
};

Test(gpu_product, choices_on_matrix_units) {
    GpuLimits limits = large_device;
    limits.matrix = limits.tf32 = true;
    for (size_t i = 0; i < sizeof unit_choices / sizeof *unit_choices; i++) {
        const Choice *c = &unit_choices[i];
        GpuMatmul m = matmul_of(c->dtype, c->rows, c->columns, c->depth, c->batch);
        GpuProductLaunch l;
        gpu_matmul_launch(&m, &limits, NULL, &l);
        cr_expect(l.variant.kind == c->kind && l.variant.tile == c->tile && l.grid == c->grid && l.splits == c->splits,
                  "%s: kind %d tile %d grid %lld splits %lld", c->name, (int)l.variant.kind, (int)l.variant.tile,
                  (long long)l.grid, (long long)l.splits);
        cr_expect_eq(l.variant.matrix, c->kind == GPU_PRODUCT_MATMUL && c->dtype != DT_F64, "%s", c->name);
        cr_expect_eq(l.variant.gather, c->depth % 8 != 0, "%s", c->name);
    }
}

/* ---- packs ---- */

typedef struct Packs {
    const char *name;
    int64_t columns, depth, a_alignment, out_alignment;
    int64_t flags; /* 1: a, 2: b, 4: the result */
} Packs;

static const Packs packs[] = {
    {"lines at multiples of 16 bytes are read in packs", 128, 64, 256, 256, 7},
    {"an odd depth leaves the rows of a apart from them", 128, 65, 256, 256, 6},
    {"odd columns those of b and the result", 130, 64, 256, 256, 1},
    {"a begins between two packs", 128, 64, 4, 256, 6},
    {"the result does", 128, 64, 256, 8, 3},
};

Test(gpu_product, packs) {
    for (size_t i = 0; i < sizeof packs / sizeof *packs; i++) {
        GpuMatmul m = matmul_of(DT_F32, 128, packs[i].columns, packs[i].depth, 1);
        GpuProductLaunch l;
        m.a_alignment = packs[i].a_alignment;
        m.out_alignment = packs[i].out_alignment;
        gpu_matmul_launch(&m, &large_device, NULL, &l);
        cr_expect_eq(l.arguments[l.count - 2], packs[i].flags, "%s: %lld", packs[i].name,
                     (long long)l.arguments[l.count - 2]);
    }
}

/* ---- what is prepared ---- */

static uint64_t state = 1;
static int64_t draw(int64_t most) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return 1 + (int64_t)((state >> 33) % (uint64_t)most);
}
static int64_t draw_size(void) { return draw(draw(2) == 1 ? 40 : 5000); }

static bool prepared(const GpuVariant *variants, int count, const GpuVariant *v) {
    for (int i = 0; i < count; i++)
        if (memcmp(&variants[i], v, sizeof *v) == 0) return true;
    return false;
}

/* Sizes that were not known, one bit of `unknown` each. */
Test(gpu_product, matmuls_of_unknown_sizes_find_their_programs) {
    static const DType dtypes[] = {DT_F32, DT_F64, DT_BF16, DT_I8};
    static const GpuEpilogue any; /* which is the programs' own matter */
    for (int i = 0; i < 4000; i++) {
        GpuMatmul m = matmul_of(dtypes[draw(4) - 1], draw_size(), draw_size(), draw_size(), draw(64)), known = m;
        GpuLimits limits = large_device;
        GpuVariant variants[GPU_MAX_VARIANTS];
        GpuProductLaunch l;
        int64_t unknown = draw(16) - 1;
        const GpuEpilogue *epilogue = i % 2 ? &any : NULL;
        limits.multiprocessors = (int)draw(160);
        limits.matrix = draw(2) == 1;
        limits.tf32 = limits.matrix && draw(2) == 1;
        if (unknown & 1) known.rows = -1;
        if (unknown & 2) known.columns = -1;
        if (unknown & 4) known.depth = -1;
        if (unknown & 8) known.batch[0] = -1;
        int count = gpu_matmul_variants(&known, &limits, epilogue, variants);
        gpu_matmul_launch(&m, &limits, epilogue, &l);
        cr_assert(prepared(variants, count, &l.variant), "%lld x %lld x %lld, batch %lld on %d: unknown %lld",
                  (long long)m.rows, (long long)m.columns, (long long)m.depth, (long long)m.batch[0],
                  limits.multiprocessors, (long long)unknown);
        if (l.splits < 2) continue;
        gpu_finish_launch(m.dtype, m.elements, l.splits, m.columns, 1, 1, 256, &limits, epilogue, &l);
        cr_assert(prepared(variants, count, &l.variant));
    }
}

Test(gpu_product, convolutions_of_unknown_sizes_find_their_programs) {
    for (int i = 0; i < 4000; i++) {
        static const DType dtypes[] = {DT_F64, DT_F32, DT_F32, DT_F16};
        GpuConv c = {.dtype = dtypes[draw(4) - 1], .transposed = draw(3) == 1, .images = draw(8)}, known;
        GpuLimits limits = large_device;
        GpuVariant variants[GPU_MAX_VARIANTS];
        GpuProductLaunch l;
        c.group = draw(3) == 1 ? draw(64) : 1;
        c.inputs = c.group > 1 && draw(2) == 1 ? 1 : draw(300);
        c.outputs = c.inputs == 1 && draw(2) == 1 ? 1 : draw(300);
        for (int k = 0; k < GPU_CONV_AXES; k++) {
            c.in[k] = c.out[k] = draw(30);
            c.kernel[k] = draw(4);
            c.strides[k] = draw(2);
            c.dilations[k] = draw(2);
        }
        if (c.inputs == 1 && c.outputs == 1 && draw(2) == 1) { /* of taps that there are programs for */
            c.group = 4 * draw(40);
            c.kernel[0] = c.dilations[1] = c.dilations[2] = 1;
            c.kernel[1] = c.kernel[2] = 1 + 2 * draw(4);
            c.strides[1] = c.strides[2];
        }
        limits.multiprocessors = (int)draw(160);
        limits.matrix = draw(2) == 1;
        limits.tf32 = limits.matrix && draw(2) == 1;
        c.x_alignment = c.w_alignment = c.out_alignment = 256;
        c.w_output = 1;
        c.w_input = c.outputs * c.group;
        c.w_tap = c.inputs * c.w_input;
        c.w_group = c.outputs;
        known = c;
        int64_t unknown = draw(4) - 1;
        if (unknown & 1) known.images = known.in[1] = known.out[1] = -1;
        if (unknown & 2) known.inputs = known.outputs = known.kernel[2] = -1;
        int count = gpu_conv_variants(&known, &limits, NULL, variants);
        gpu_conv_launch(&c, &limits, NULL, &l);
        cr_assert(prepared(variants, count, &l.variant), "kind %d tile %d, unknown %lld", (int)l.variant.kind,
                  (int)l.variant.tile, (long long)unknown);
        cr_assert_leq(l.count, GPU_PRODUCT_ARGUMENTS);
        if (l.splits < 2) continue;
        gpu_finish_launch(c.dtype, 1, l.splits, 1, 1, 1, 256, &limits, NULL, &l);
        cr_assert(prepared(variants, count, &l.variant), "splits of tile %d on %d, unknown %lld", (int)l.variant.tile,
                  limits.multiprocessors, (long long)unknown);
    }
}

/* ---- texts ---- */

static char *read_golden(Arena *arena, const char *path) {
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s: the tests run in the project's folder", path);
    char *text = ARENA_ARRAY(arena, char, 1 << 18);
    text[fread(text, 1, (1 << 18) - 1, file)] = 0;
    fclose(file);
    return text;
}

static void check_golden(Arena *arena, const char *path, const char *text) {
    if (getenv("ONNXFUSE_WRITE_GOLDEN")) {
        FILE *file = fopen(path, "wb");
        cr_assert_not_null(file);
        fputs(text, file);
        fclose(file);
        return;
    }
    cr_expect_str_eq(text, read_golden(arena, path), "%s is another text:\n%s", path, text);
}

typedef struct Golden {
    const char *name, *sample;
} Golden;

static const Golden goldens[] = {
    {"product_finish", "the sum of partial sums"},
    {"product_finish_bf16", "the epilogue of a result of bf16"},
};

Test(gpu_product, texts) {
    GpuVariant v;
    const char *name;
    Arena *arena = arena_create(0);
    int count = 0;
    for (; gpu_product_sample(arena, count, &v, &name); count++) {
        Text cuda = text_make(arena), opencl = text_make(arena);
        gpu_product_render(&cuda, &v, GPU_CUDA, "product");
        gpu_product_render(&opencl, &v, GPU_OPENCL, "product");
        const char *tail = strstr(cuda.data, "#define NAME "); /* behind the dialect's words */
        cr_expect_str_eq(tail, strstr(opencl.data, "#define NAME "), "%s: one text for both dialects", name);
        for (size_t k = 0; k < sizeof goldens / sizeof *goldens; k++)
            if (strcmp(goldens[k].sample, name) == 0)
                check_golden(arena, arena_format(arena, "tests/codegen/gpu/%s.txt", goldens[k].name), tail);
    }
    cr_expect_geq(count, 43, "%d samples: a body of an epilogue may not read", count);
    arena_destroy(arena);
}

/* ---- machine code (tests/gpu/sass.h), as nvdisasm prints it ---- */

typedef struct MachineCode {
    const char *name, *text, *unread;
} MachineCode;

#define LINE(text) "        /*0000*/                   " text " ;\n"
static const MachineCode codes[] = {
    {"what ptxas 13.0 made of four f16", /* R2 was to be R3 */
     LINE("F2FP.F16.F32.PACK_AB R5, RZ, R5") LINE("PRMT R2, R5, 0x5410, R3") LINE("F2FP.F16.F32.PACK_AB R2, R4, R19")
         LINE("PRMT R7, R2.reuse, 0x7632, R7") LINE("PRMT R2, R2, 0x5410, R7") LINE("STG.E.64 desc[UR4][R8.64], R2")
             LINE("STG.E.64 desc[UR4][R8.64], R7") LINE("EXIT"),
     "PRMT R2, R5, 0x5410, R3"},
    {"the same as it should be",
     LINE("F2FP.F16.F32.PACK_AB R5, RZ, R5") LINE("PRMT R3, R5, 0x5410, R3") LINE("F2FP.F16.F32.PACK_AB R2, R4, R19")
         LINE("PRMT R7, R2.reuse, 0x7632, R7") LINE("PRMT R2, R2, 0x5410, R7") LINE("STG.E.64 desc[UR4][R8.64], R2")
             LINE("EXIT"),
     NULL},
    {"the second register of a pair is read",
     LINE("FADD R3, R4, R5") LINE("STG.E.64 desc[UR4][R8.64], R2") LINE("EXIT"), NULL},
    {"a guarded one leaves what was there",
     LINE("FADD R2, R4, R5") LINE("@P0 FADD R2, R6, R7") LINE("STG.E desc[UR4][R8.64], R2") LINE("EXIT"), NULL},
    {"a loop reads it in its next turn",
     LINE("CS2R R2, SRZ") ".L_x_0:\n" LINE("FADD R3, R3, R2") LINE("FFMA R2, R4, R5, R4") LINE("@P0 BRA `(.L_x_0)")
         LINE("STG.E desc[UR4][R8.64], R3") LINE("EXIT"),
     NULL},
    {"a branch leads to where nothing reads it",
     LINE("FADD R2, R4, R5") LINE("BRA `(.L_x_0)") LINE("STG.E desc[UR4][R8.64], R2") ".L_x_0:\n" LINE("EXIT"),
     "FADD R2, R4, R5"},
    {"a function that is called may read it", LINE("FADD R2, R4, R5") LINE("CALL.REL.NOINC `($divide)") LINE("EXIT"),
     NULL},
    {"each function by itself",
     LINE("FADD R2, R4, R5") LINE("EXIT") "\t.section\t.text.other\n" LINE("STG.E desc[UR4][R8.64], R2") LINE("EXIT"),
     "FADD R2, R4, R5"},
    {"copies, constants and addresses are left over at times",
     LINE("MOV R2, R4") LINE("HFMA2.MMA R3, -RZ, RZ, 0, 0") LINE("IADD3 R5, R4, R6, RZ") LINE("EXIT"), NULL},
};

Test(gpu_product, arithmetic_that_nothing_reads_is_found_in_machine_code) {
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        char found[100] = "nothing";
        const char *expected = codes[i].unread ? codes[i].unread : "nothing";
        sass_unread(codes[i].text, found, sizeof found);
        cr_expect(strncmp(found, expected, strlen(expected)) == 0, "%s: %s", codes[i].name, found);
    }
}
