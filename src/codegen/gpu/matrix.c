/* SPDX-License-Identifier: Apache-2.0 */
/* The words of matrix.h in both dialects (PTX ISA, "Warp-level matrix instructions", "Asynchronous copy"). Keep the
 * order of the words: both texts define the same ones, in the order of the header's list. */
#include "codegen/gpu/matrix.h"

/* clang-format off */
static const char cuda_words[] =
    "#define MATRIX_MEMORY\n"
    "#define EXCHANGE 0\n"
    "#define COPIES_ARG\n"
    "#define COPIES\n"
    "#define MULTIPLY_MATRICES(c, a, b0, b1) asm(\"mma.sync.aligned.\" MATRIX_SHAPE \".row.col.f32.\" MATRIX_TYPE \".\" MATRIX_TYPE \".f32 \"\\\n"
    "    \"{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\" : \"+f\"((c)[0]), \"+f\"((c)[1]), \"+f\"((c)[2]), \"+f\"((c)[3]) \\\n"
    "    : \"r\"((a)[0]), \"r\"((a)[1]), \"r\"((a)[2]), \"r\"((a)[3]), \"r\"(b0), \"r\"(b1))\n"
    "#define PLACE_OF(tile, at, more) ((u32)__cvta_generic_to_shared(tile) + (u32)(at) * 16u + (u32)(more) * 16u)\n"
    "FUNCTION void load_matrices(u32 *r, u32 place) {\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\"\n"
    "                 : \"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]), \"=r\"(r[3]) : \"r\"(place) : \"memory\");\n"
    "}\n"
    "FUNCTION void load_turned(u32 *r, u32 place) {\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\"\n"
    "                 : \"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]), \"=r\"(r[3]) : \"r\"(place) : \"memory\");\n"
    "}\n"
    "#define LOAD_MATRICES(r, tile, at, more) load_matrices(r, PLACE_OF(tile, at, more))\n"
    "#define LOAD_TURNED(r, tile, at, more) load_turned(r, PLACE_OF(tile, at, more))\n"
    "FUNCTION u32 round_to_tf32(u32 bits) { u32 r; asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(r) : \"f\"(FLOAT_u32(bits))); return r; }\n"
    "#define FORGET(x) asm volatile(\"\" : \"+r\"(x))\n"
    "FUNCTION void copy_later(u32 place, const void *from, i32 bytes) {\n"
    "    asm volatile(\"cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\"\n"
    "                 : : \"r\"(place), \"l\"(from), \"r\"(bytes) : \"memory\");\n"
    "}\n"
    "#define COPY_LATER(tile, at, more, from, bytes) copy_later(PLACE_OF(tile, at, more), from, bytes)\n"
    "#define COPY_GROUP asm volatile(\"cp.async.commit_group;\" : : : \"memory\")\n"
    "#define COPY_WAIT(count) asm volatile(\"cp.async.wait_group %0;\" : : \"n\"(count) : \"memory\")\n";

/* Copies are made at once, of f16, or as late as COPY_WAIT allows: a text must do with both. Late ones wait in a ring. */
static const char opencl_words[] =
    "#ifdef POCL_DEVICE_ADDRESS_BITS\n"
    "#undef UNROLL\n"
    "#define UNROLL _Pragma(\"nounroll\")\n"
    "#endif\n"
    "enum { COPIES_KEPT = 128, GROUPS_KEPT = 8 };\n"
    "typedef struct Copies {\n"
    "    __local u128 *to[COPIES_KEPT];\n"
    "    __global const u8 *from[COPIES_KEPT];\n"
    "    i32 bytes[COPIES_KEPT], ends[GROUPS_KEPT], made, asked, groups;\n"
    "} Copies;\n"
    "#define MATRIX_MEMORY SHARED u32 matrix_words[THREADS * 6]; SHARED u64 matrix_exchange[THREADS]; \\\n"
    "    Copies own_copies, *copies = &own_copies; copies->made = copies->asked = copies->groups = 0;\n"
    "#define EXCHANGE matrix_exchange\n"
    "#define COPIES_ARG , Copies *copies\n"
    "#define COPIES , copies\n"
    "#define MULTIPLY_MATRICES(c, a, b0, b1) multiply_matrices(c, a, b0, b1, matrix_words, (i32)THREAD)\n"
    "#define LOAD_MATRICES(r, tile, at, more) load_matrices(r, tile, (at) + (more), matrix_words, (i32)THREAD)\n"
    "#define LOAD_TURNED(r, tile, at, more) load_turned(r, tile, (at) + (more), matrix_words, (i32)THREAD)\n"
    "#define FORGET(x)\n"
    "#define COPY_LATER(tile, at, more, from, bytes) copy_later(copies, (tile) + (at) + (more), (__global const u8 *)(from), bytes)\n"
    "#define COPY_GROUP copies->ends[copies->groups++ % GROUPS_KEPT] = copies->asked\n"
    "#define COPY_WAIT(count) copy_wait(copies, count)\n"
    "FUNCTION f32 matrix_element(u32 word, i32 i) { return MATRIX_ELEMENT; }\n"
    "FUNCTION void multiply_matrices(f32 *c, const u32 *a, u32 b0, u32 b1, SHARED_POINTER u32 *all, i32 thread) {\n"
    "    BARRIER;\n"
    "    for (i32 r = 0; r < 4; r++) all[thread * 6 + r] = a[r];\n"
    "    all[thread * 6 + 4] = b0; all[thread * 6 + 5] = b1;\n"
    "    BARRIER;\n"
    "    SHARED_POINTER u32 *warp = all + thread / 32 * 32 * 6;\n"
    "    i32 l = thread % 32;\n"
    "    for (i32 e = 0; e < 4; e++)\n"
    "        for (i32 w = 0; w < 8; w++) {\n"
    "            u32 x = warp[(l / 4 * 4 + w % 4) * 6 + w / 4 * 2 + e / 2];\n"
    "            u32 y = warp[((l % 4 * 2 + e % 2) * 4 + w % 4) * 6 + 4 + w / 4];\n"
    "            for (i32 k = 0; k < MATRIX_DEPTH / 8; k++) c[e] += matrix_element(x, k) * matrix_element(y, k);\n"
    "        }\n"
    "}\n"
    "FUNCTION void load_matrices(u32 *r, SHARED_POINTER const u128 *tile, i32 at, SHARED_POINTER u32 *all, i32 thread) {\n"
    "    BARRIER;\n"
    "    all[thread] = (u32)at;\n"
    "    BARRIER;\n"
    "    SHARED_POINTER u32 *rows = all + thread / 32 * 32;\n"
    "    i32 l = thread % 32;\n"
    "    for (i32 m = 0; m < 4; m++) r[m] = ((SHARED_POINTER const u32 *)(tile + rows[m * 8 + l / 4]))[l % 4];\n"
    "}\n"
    "FUNCTION void load_turned(u32 *r, SHARED_POINTER const u128 *tile, i32 at, SHARED_POINTER u32 *all, i32 thread) {\n"
    "    BARRIER;\n"
    "    all[thread] = (u32)at;\n"
    "    BARRIER;\n"
    "    SHARED_POINTER u32 *rows = all + thread / 32 * 32;\n"
    "    i32 l = thread % 32;\n"
    "    for (i32 m = 0; m < 4; m++) {\n"
    "        SHARED_POINTER const u16 *low = (SHARED_POINTER const u16 *)(tile + rows[m * 8 + l % 4 * 2]);\n"
    "        SHARED_POINTER const u16 *high = (SHARED_POINTER const u16 *)(tile + rows[m * 8 + l % 4 * 2 + 1]);\n"
    "        r[m] = (u32)low[l / 4] | (u32)high[l / 4] << 16;\n"
    "    }\n"
    "}\n"
    /* To nearest, ties away from zero; a NaN stays one. */
    "FUNCTION u32 round_to_tf32(u32 bits) { return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffe000u : (bits + 0x1000u) & 0xffffe000u; }\n"
    "FUNCTION void copy_now(SHARED_POINTER u128 *to, __global const u8 *from, i32 bytes) {\n"
    "    SHARED_POINTER u8 *out = (SHARED_POINTER u8 *)to;\n"
    "    for (i32 i = 0; i < 16; i++) out[i] = i < bytes ? from[i] : 0;\n"
    "}\n"
    "FUNCTION void copy_later(Copies *c, SHARED_POINTER u128 *to, __global const u8 *from, i32 bytes) {\n"
    "#if COPIES_LATE\n"
    "    i32 at = c->asked++ % COPIES_KEPT;\n"
    "    c->to[at] = to; c->from[at] = from; c->bytes[at] = bytes;\n"
    "#else\n"
    "    copy_now(to, from, bytes);\n"
    "#endif\n"
    "}\n"
    "FUNCTION void copy_wait(Copies *c, i32 count) {\n"
    "    if (c->groups <= count) return;\n"
    "    for (i32 end = c->ends[(c->groups - count - 1) % GROUPS_KEPT]; c->made < end; c->made++) {\n"
    "        i32 at = c->made % COPIES_KEPT;\n"
    "        copy_now(c->to[at], c->from[at], c->bytes[at]);\n"
    "    }\n"
    "}\n";
/* clang-format on */

void gpu_matrix_words(Text *text, DType dtype, GpuDialect dialect) {
    bool wide = dtype == DT_F32;
    text_add(text,
             "#define MATRIX_DEPTH %d\n#define MATRIX_SHAPE \"%s\"\n#define MATRIX_TYPE \"%s\"\n"
             "#define MATRIX_ELEMENT %s%s%s\n#define COPIES_LATE %d\n",
             wide ? 8 : 16, wide ? "m16n8k8" : "m16n8k16", wide ? "tf32" : dtype_name(dtype),
             wide ? "FLOAT_u32(word)" : "load_", wide ? "" : dtype_name(dtype), wide ? "" : "((u16)(word >> (16 * i)))",
             dtype != DT_F16);
    text_add(text, "%s#define ROUND_TO_MATRIX(word) %s\n", dialect == GPU_CUDA ? cuda_words : opencl_words,
             wide ? "round_to_tf32(word)" : "(word)");
    if (wide) return;
    if (dialect == GPU_CUDA)
        text_add(text,
                 "FUNCTION u32 PACK(f32 x, f32 y) { u32 r; asm(\"cvt.rn.\" MATRIX_TYPE \"x2.f32 %%0, %%1, %%2;\" : "
                 "\"=r\"(r) : \"f\"(y), \"f\"(x)); return r; }\n");
    else
        text_add(text, "#define PACK(x, y) ((u32)store_%s(x) | (u32)store_%s(y) << 16)\n", dtype_name(dtype),
                 dtype_name(dtype));
}
