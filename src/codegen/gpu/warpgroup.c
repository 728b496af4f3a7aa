/* SPDX-License-Identifier: Apache-2.0 */
/* The words of warpgroup.h in both dialects (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"). Keep the order
 * of the words: both texts define the same ones. */
#include "codegen/gpu/warpgroup.h"

/* clang-format off */
static const char both_words[] =
    "#define SWIZZLED(lines, r, c) (((c) / 8 * (lines) + (r)) * 8 + ((c) % 8 ^ (r) % 8))\n";

/* A place is the lower half of a matrix descriptor of rows of 128 bytes, swizzled likewise: the address, and from one 64
 * elements to the next where a product reads down the rows. The upper half says that 8 rows follow 8 rows. */
static const char cuda_words[] =
    "#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n"
    "#define HAS_GROUPS 1\n"
    "#else\n"
    "#define HAS_GROUPS 0\n"
    "#endif\n"
    "#define GROUP_ALIGNED(tile) ((tile) + (0u - (u32)__cvta_generic_to_shared(tile)) % 1024u / 16u)\n"
    "#define GROUP_PLACE u32\n"
    "#define GROUP_PLACE_OF(tile, lines) ((u32)__cvta_generic_to_shared(tile) / 16u + ((u32)(lines) * 8u << 16))\n"
    "FUNCTION u64 group_matrix(u32 place) { u64 r; asm(\"mov.b64 %0, {%1, %2};\" : \"=l\"(r) : \"r\"(place), \"r\"(0x40000040u)); return r; }\n"
    "#define GROUP_JOINED(a, b) a##b\n"
    "#define GROUP_NAME(a, b) GROUP_JOINED(a, b)\n"
    "#define GROUP_TIMES_ROWS(n, d, a, a_lines, b, b_lines, c, add) \\\n"
    "    GROUP_NAME(times_rows_, n)(d, group_matrix((a) + ((c) / 4 * (a_lines) * 8 + (c) % 4 * 2)), \\\n"
    "                               group_matrix((b) + ((c) / 4 * (b_lines) * 8 + (c) % 4 * 2)), add)\n"
    "#define GROUP_TIMES_TURNED(n, d, a, b, b_lines, c) GROUP_NAME(times_turned_, n)(d, a, group_matrix((b) + (c) * 128))\n"
    "#define GROUP_BEGIN asm volatile(\"wgmma.fence.sync.aligned;\" : : : \"memory\")\n"
    "#define GROUP_END asm volatile(\"wgmma.commit_group.sync.aligned;\" : : : \"memory\")\n"
    "#define GROUP_WAIT(count) asm volatile(\"wgmma.wait_group.sync.aligned %0;\" : : \"n\"(count) : \"memory\")\n"
    "#define GROUP_HELD(n, d) UNROLL for (i32 j = 0; j < (n) / 8; j++) UNROLL for (i32 e = 0; e < 4; e++) asm volatile(\"\" : \"+f\"((d)[j][e]) : : \"memory\")\n"
    "#define GROUP_SEES asm volatile(\"fence.proxy.async.shared::cta;\" : : : \"memory\")\n";

static const char opencl_words[] =
    "#define HAS_GROUPS 1\n"
    "#define GROUP_ALIGNED(tile) (tile)\n"
    "typedef SHARED_POINTER const u128 *GroupPlace;\n"
    "#define GROUP_PLACE GroupPlace\n"
    "#define GROUP_PLACE_OF(tile, lines) (tile)\n"
    "FUNCTION f32 group_element(SHARED_POINTER const u128 *tile, i32 lines, i32 r, i32 c) {\n"
    "    return matrix_element(((SHARED_POINTER const u16 *)(tile + SWIZZLED(lines, r, c / 8)))[c % 8], 0);\n"
    "}\n"
    "FUNCTION void times_rows(f32 (*d)[4], i32 n, SHARED_POINTER const u128 *a, i32 a_lines, SHARED_POINTER const u128 *b,\n"
    "                         i32 b_lines, i32 c, bool add, i32 thread) {\n"
    "    i32 l = thread % 32, row = thread / 32 % 4 * 16 + l / 4;\n"
    "    for (i32 j = 0; j < n / 8; j++)\n"
    "        for (i32 e = 0; e < 4; e++) {\n"
    "            f32 sum = add ? d[j][e] : 0;\n"
    "            for (i32 k = c * 16; k < c * 16 + 16; k++)\n"
    "                sum += group_element(a, a_lines, row + e / 2 * 8, k) * group_element(b, b_lines, j * 8 + l % 4 * 2 + e % 2, k);\n"
    "            d[j][e] = sum;\n"
    "        }\n"
    "}\n"
    "FUNCTION void times_turned(f32 (*d)[4], i32 n, const u32 *a, SHARED_POINTER const u128 *b, i32 b_lines, i32 c,\n"
    "                           SHARED_POINTER u32 *all, i32 thread) {\n"
    "    BARRIER;\n"
    "    for (i32 r = 0; r < 4; r++) all[thread * 4 + r] = a[r];\n"
    "    BARRIER;\n"
    "    SHARED_POINTER u32 *warp = all + thread / 32 * 32 * 4;\n"
    "    i32 l = thread % 32;\n"
    "    for (i32 j = 0; j < n / 8; j++)\n"
    "        for (i32 e = 0; e < 4; e++)\n"
    "            for (i32 k = 0; k < 16; k++) {\n"
    "                u32 x = warp[(l / 4 * 4 + k / 2 % 4) * 4 + k / 8 * 2 + e / 2];\n"
    "                d[j][e] += matrix_element(x, k % 2) * group_element(b, b_lines, c * 16 + k, j * 8 + l % 4 * 2 + e % 2);\n"
    "            }\n"
    "}\n"
    "#define GROUP_TIMES_ROWS(n, d, a, a_lines, b, b_lines, c, add) times_rows(d, n, a, a_lines, b, b_lines, c, add, (i32)THREAD)\n"
    "#define GROUP_TIMES_TURNED(n, d, a, b, b_lines, c) times_turned(d, n, a, b, b_lines, c, matrix_words, (i32)THREAD)\n"
    "#define GROUP_BEGIN\n"
    "#define GROUP_END\n"
    "#define GROUP_WAIT(count)\n"
    "#define GROUP_HELD(n, d)\n"
    "#define GROUP_SEES\n";
/* clang-format on */

static void add_registers(Text *text, int first, int count) {
    for (int i = first; i < first + count; i++) text_add(text, i == first ? "{%%%d" : ",%%%d", i);
    text_add(text, "}");
}

static void add_sums(Text *text, int n) {
    for (int i = 0; i < n / 2; i++) text_add(text, "%s\"+f\"(d[%d][%d])", i ? ", " : "", i / 4, i % 4);
}

/* The products of n columns, `turned` or not: an instruction each, with all registers of d. */
static void add_product(Text *text, const char *type, int n, bool turned) {
    int sums = n / 2;
    text_add(text, "FUNCTION void times_%s_%d(f32 (*d)[4], %s, u64 b%s) {\n", turned ? "turned" : "rows", n,
             turned ? "const u32 *a" : "u64 a", turned ? "" : ", i32 add");
    text_add(text, "    asm volatile(\"{.reg .pred p; setp.ne.b32 p, %s%d, 0; ", turned ? "" : "%",
             turned ? 1 : sums + 2);
    text_add(text, "wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s ", n, type, type);
    add_registers(text, 0, sums);
    text_add(text, ", ");
    if (turned)
        add_registers(text, sums, 4);
    else
        text_add(text, "%%%d", sums);
    text_add(text, ", %%%d, p, 1, 1, %s;}\"\n        : ", sums + (turned ? 4 : 1), turned ? "1" : "0, 0");
    add_sums(text, n);
    text_add(text, turned
                       ? "\n        : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b) : \"memory\");\n}\n"
                       : "\n        : \"l\"(a), \"l\"(b), \"r\"(add) : \"memory\");\n}\n");
}

void gpu_warpgroup_words(Text *text, DType dtype, GpuDialect dialect) {
    text_add(text, "%s%s", both_words, dialect == GPU_CUDA ? cuda_words : opencl_words);
    for (int n = 64; n <= 128 && dialect == GPU_CUDA; n += 64)
        for (int turned = 0; turned <= 1; turned++) add_product(text, dtype_name(dtype), n, turned);
}
