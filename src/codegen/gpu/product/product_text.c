/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of products: element types and packs of neighbours, around the epilogue and the bodies of product_matmul.c,
 * product_conv.c and product.c. What a variant decides stands in #defines before them. */
#include "codegen/gpu/dialect.h"
#include "codegen/gpu/matrix.h"
#include "codegen/gpu/product/product_parts.h"

/* An element: its bits in memory, the type that it is added up in, and the way between them. */
typedef struct ElementText {
    DType dtype;
    const char *bits, *value, *from_bits, *to_bits;
} ElementText;

#define SIGNED_BYTE "((u32)(i32)(i8)(b))"
static const ElementText elements[] = {
    {DT_F32, "u32", "f32", "FLOAT_u32(b)", "BITS_f32(v)"},
    {DT_F64, "u64", "f64", "FLOAT_u64(b)", "BITS_f64(v)"},
    {DT_F16, "u16", "f32", "load_f16(b)", "store_f16(v)"},
    {DT_BF16, "u16", "f32", "load_bf16(b)", "store_bf16(v)"},
    {DT_U8, "u8", "u32", "((u32)(b))", "((u8)(v))"},
    {DT_I8, "u8", "u32", SIGNED_BYTE, "((u8)(v))"},
    {DT_U4, "u8", "u32", "((u32)(b))", "((u8)(v))"},
    {DT_I4, "u8", "u32", SIGNED_BYTE, "((u8)(v))"},
    {DT_U2, "u8", "u32", "((u32)(b))", "((u8)(v))"},
    {DT_I2, "u8", "u32", SIGNED_BYTE, "((u8)(v))"},
    {DT_U16, "u16", "u32", "((u32)(b))", "((u16)(v))"},
    {DT_I16, "u16", "u32", "((u32)(i32)(i16)(b))", "((u16)(v))"},
    {DT_U32, "u32", "u32", "(b)", "(v)"},
    {DT_I32, "u32", "u32", "(b)", "(v)"},
    {DT_U64, "u64", "u64", "(b)", "(v)"},
    {DT_I64, "u64", "u64", "(b)", "(v)"},
};

static const ElementText *element_of(DType dtype) {
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        if (elements[i].dtype == dtype) return &elements[i];
    return NULL;
}

bool gpu_product_type(const GpuLimits *limits, DType dtype) {
    return element_of(dtype) && (dtype != DT_F64 || limits->fp64);
}

/* A pack in memory, by the size of an element: its type, and how elements go in and out. */
typedef struct PackText {
    size_t size;
    const char *word, *unpack, *pack;
} PackText;

static const PackText packs[] = {
    {1, "u32", "UNROLL for (i32 i = 0; i < 4; i++) v[i] = FROM_BITS((u8)(w >> (8 * i)));",
     "w = 0; UNROLL for (i32 i = 0; i < 4; i++) w |= (u32)TO_BITS(v[i]) << (8 * i);"},
    {2, "u64",
     "u32 low = (u32)w, high = (u32)(w >> 32); v[0] = FROM_BITS((u16)low); v[1] = FROM_HIGH(low); "
     "v[2] = FROM_BITS((u16)high); v[3] = FROM_HIGH(high);",
     "w = PAIR(v[0], v[1]) | (u64)PAIR(v[2], v[3]) << 32;"},
    {4, "u128", "v[0] = FROM_BITS(w.x); v[1] = FROM_BITS(w.y); v[2] = FROM_BITS(w.z); v[3] = FROM_BITS(w.w);",
     "w.x = TO_BITS(v[0]); w.y = TO_BITS(v[1]); w.z = TO_BITS(v[2]); w.w = TO_BITS(v[3]);"},
    {8, "u128", "v[0] = FROM_BITS((u64)w.x | (u64)w.y << 32); v[1] = FROM_BITS((u64)w.z | (u64)w.w << 32);",
     "u64 low = TO_BITS(v[0]), high = TO_BITS(v[1]); w.x = (u32)low; w.y = (u32)(low >> 32); w.z = (u32)high; "
     "w.w = (u32)(high >> 32);"},
};

/* NEAR: how many elements are left, as far as it matters. read_pack: elements from p on, `step` apart: the first
 * `count`, zeros for the rest; in one access where `whole` allows it. */
static const char pack_functions[] =
    "FUNCTION i32 NEAR(i64 left) { return (i32)(left < 1 << 30 ? left < 0 ? 0 : left : 1 << 30); }\n"
    "FUNCTION void read_pack(GLOBAL const BITS *p, i64 step, i32 count, i32 whole, VALUE *v) {\n"
    "    if (whole && count >= PACK) {\n"
    "        WORD w = READ(WORD, p);\n"
    "        UNPACK(w, v)\n"
    "    } else {\n"
    "        UNROLL\n"
    "        for (i32 i = 0; i < PACK; i++) v[i] = i < count ? FROM_BITS(READ(BITS, p + i * step)) : (VALUE)0;\n"
    "    }\n"
    "}\n"
    /* PACK sums are 16 bytes. */
    "FUNCTION void read_sums(SHARED_POINTER const VALUE *p, VALUE *v) {\n"
    "    u128 w = *(SHARED_POINTER const u128 *)p;\n"
    "#if PACK == 4\n"
    "    v[0] = SUM_BITS(w.x); v[1] = SUM_BITS(w.y); v[2] = SUM_BITS(w.z); v[3] = SUM_BITS(w.w);\n"
    "#else\n"
    "    v[0] = SUM_BITS((u64)w.x | (u64)w.y << 32); v[1] = SUM_BITS((u64)w.z | (u64)w.w << 32);\n"
    "#endif\n"
    "}\n"
    "FUNCTION void write_pack(GLOBAL BITS *p, i64 step, i32 count, i32 whole, const VALUE *v) {\n"
    "    if (whole && count >= PACK) {\n"
    "        WORD w;\n"
    "        PACK_UP(w, v)\n"
    "        WRITE(WORD, p, w);\n"
    "    } else {\n"
    "        UNROLL\n"
    "        for (i32 i = 0; i < PACK; i++)\n"
    "            if (i < count) WRITE(BITS, p + i * step, TO_BITS(v[i]));\n"
    "    }\n"
    "}\n";

static void add_types(Text *t, const GpuVariant *v) {
    const ElementText *e = element_of(v->dtype);
    const PackText *p = packs;
    while (p->size != dtype_size(v->dtype)) p++;
    bool is_float = dtype_is_float(v->dtype);
    text_add(t, "#define BITS %s\n#define VALUE %s\n#define WORD %s\n#define PACK %d\n", e->bits, e->value, p->word,
             product_pack(v->dtype));
    text_add(t, "#define FROM_BITS(b) %s\n#define TO_BITS(v) %s\n", e->from_bits, e->to_bits);
    /* Floats are stored two at once: of words put together from halves, ptxas of CUDA 13 has lost one (sm_90). */
    if (p->size == 2)
        text_add(t, "#define FROM_HIGH(w) %s\n#define PAIR(x, y) %s\n",
                 v->dtype == DT_F16 ? "load_f16_high(w)" : "FROM_BITS((u16)((w) >> 16))",
                 !is_float            ? "((u32)TO_BITS(x) | (u32)TO_BITS(y) << 16)"
                 : v->dtype == DT_F16 ? "pack_f16(x, y)"
                                      : "pack_bf16(x, y)");
    text_add(t, "#define CLEAR(w) %s\n", p->size < 4 ? "w = 0;" : "w.x = w.y = w.z = w.w = 0;");
    text_add(t, "#define UNPACK(w, v) %s\n#define PACK_UP(w, v) %s\n", p->unpack, p->pack);
    text_add(t, "#define SUM_BITS(b) %s(b)\n", !is_float ? "" : v->dtype == DT_F64 ? "FLOAT_u64" : "FLOAT_u32");
    if (is_float)
        text_add(t, "#define MULTIPLY_ADD(x, y, sum) fma_%s(x, y, sum)\n#define SCALE(x, bits) ((x) * %s(bits)))\n",
                 e->value, v->dtype == DT_F64 ? "FLOAT_u64((u64)" : "FLOAT_u32((u32)");
    else
        text_add(t, "#define MULTIPLY_ADD(x, y, sum) ((x) * (y) + (sum))\n#define SCALE(x, bits) (x)\n");
    text_add(t, "%s", pack_functions);
}

/* ---- programs ---- */

/* Blocks that a multiprocessor should hold at once, which bounds the registers of a thread: as many as go without
 * spilling more than a few (ptxas -v over the samples for sm_80, sm_90 and sm_100: none to 16, of 128).
 * Where a convolution finds its rows takes too many beside 64 sums. */
static int beside(const GpuVariant *v, const TileShape *s) {
    if (v->kind == GPU_PRODUCT_NARROW) return dtype_size(v->dtype) == 8 || v->epilogue ? 2 : 3;
    if (v->kind == GPU_PRODUCT_CHANNELS) return v->depthwise && !v->transposed ? 2 : 1;
    if (v->kind == GPU_PRODUCT_CONV && s->beside == 2) return 1;
    return v->kind == GPU_PRODUCT_CONV && s->beside == 3 ? 2 : s->beside;
}

static void add_tile(Text *t, const GpuVariant *v) {
    TileShape s = product_tile(v->tile, v->dtype);
    text_add(t,
             "#define THREADS %d\n#define BLOCKS_BESIDE %d\n#define TILE_ROWS %d\n#define TILE_COLUMNS %d\n#define "
             "TILE_DEPTH %d\n"
             "#define THREAD_ROWS %d\n#define THREAD_COLUMNS %d\n",
             product_threads(&s), beside(v, &s), s.rows, s.columns, s.depth, s.thread_rows, s.thread_columns);
}

/* As above: none spills on sm_80, sm_90 and sm_100, which takes more registers (ptxas 13.0). */
static int beside_on_matrix(const GpuVariant *v, const MatrixShape *s, bool sm_100) {
    bool conv = v->kind == GPU_PRODUCT_CONV;
    int count = s->beside - sm_100;
    if (s->beside > 2) count -= (conv || v->exact) + (v->transposed && (v->exact || v->gather));
    return count < 1 ? 1 : count;
}

static void add_matrix_tile(Text *t, const GpuVariant *v) {
    MatrixShape s = product_matrix_shape(v->tile);
    text_add(t,
             "#define THREADS %d\n#if __CUDA_ARCH__ >= 1000\n#define BLOCKS_BESIDE %d\n#else\n#define BLOCKS_BESIDE "
             "%d\n#endif\n#define TILE_ROWS %d\n#define TILE_COLUMNS %d\n"
             "#define WARP_ROWS %d\n#define WARP_COLUMNS %d\n#define UNIT %d\n#define GATHER %d\n#define EXACT %d\n",
             product_matrix_threads(&s), beside_on_matrix(v, &s, true), beside_on_matrix(v, &s, false), s.rows,
             s.columns, s.warp_rows, s.warp_columns, 16 / (int)dtype_size(v->dtype), v->gather, v->exact);
}

static void add_narrow(Text *t, const GpuVariant *v) {
    bool row = v->tile == GPU_TILE_ROW;
    text_add(t,
             "#define THREADS %d\n#define BLOCKS_BESIDE %d\n#define PARTS %d\n#define UNIT_DEPTH %d\n#define "
             "NARROW_ROWS %d\n#define CHUNK %d\n"
             "#define BLOCK_COLUMNS %d\n#define THREAD_COLUMNS %d\n",
             NARROW_THREADS, beside(v, NULL), NARROW_PARTS, NARROW_UNIT, row ? 1 : 8,
             row                         ? 1
             : dtype_size(v->dtype) == 8 ? 2
                                         : 4,
             product_narrow_columns(v), v->b_outer ? product_pack(v->dtype) : 4);
}

/* Whether a depthwise convolution's lines are unrolled: the weights of all taps stay in registers, and loads run ahead
 * of sums. Otherwise a thread would take more than the 128 registers that it has (ptxas 13.0, sm_80 to sm_100). */
static bool unrolls_lines(const GpuVariant *v) {
    const GpuEpilogue *e = v->epilogue;
    bool bias = !e || (e->operand_count == 1 && e->forms[0] == GPU_OPERAND_COLUMN) || !e->operand_count;
    return v->window == 3 && bias && dtype_is_float(v->dtype) && dtype_size(v->dtype) < 8;
}

void gpu_product_render(Text *t, const GpuVariant *v, GpuDialect dialect, const char *name) {
    text_add(t, "%s", gpu_prelude(dialect));
    if (v->matrix) gpu_matrix_words(t, v->dtype, dialect);
    text_add(t, "#define NAME %s\n", name);
    add_types(t, v);
    product_add_epilogue(t, v);
    text_add(t, "#define A_OUTER %d\n#define B_OUTER %d\n#define TRANSPOSED %d\n#define DEPTHWISE %d\n", v->a_outer,
             v->b_outer, v->transposed, v->depthwise);
    switch (v->kind) {
    case GPU_PRODUCT_MATMUL:
    case GPU_PRODUCT_CONV:
        if (v->matrix) {
            add_matrix_tile(t, v);
            text_add(t, "%s", v->kind == GPU_PRODUCT_CONV ? product_matrix_conv_text : product_matrix_matmul_text);
            break;
        }
        add_tile(t, v);
        text_add(t, "%s%s", product_tiles_text, v->kind == GPU_PRODUCT_CONV ? product_conv_text : product_matmul_text);
        break;
    case GPU_PRODUCT_NARROW:
        add_narrow(t, v);
        text_add(t, "%s", product_narrow_text);
        break;
    case GPU_PRODUCT_CHANNELS:
        if (v->window) {
            text_add(t, "#define THREADS %d\n#define BLOCKS_BESIDE %d\n#define WINDOW %d\n#define STRIDE %d\n",
                     CHANNELS_THREADS, beside(v, NULL), v->window, v->stride);
            text_add(t, "#define BY_LINES %s\n%s", unrolls_lines(v) ? "UNROLL" : "ROLLED", product_depthwise_text);
            break;
        }
        text_add(t, "#define THREADS %d\n#define BLOCKS_BESIDE %d\n#define THREAD_ROWS %d\n%s", CHANNELS_THREADS,
                 beside(v, NULL), CHANNELS_ROWS, product_channels_text);
        break;
    case GPU_PRODUCT_FINISH:
        text_add(t, "#define THREADS %d\n#define PARTIAL %d\n#define LINES %d\n%s", FINISH_THREADS, v->partial,
                 v->lines, product_finish_text);
        break;
    }
}
