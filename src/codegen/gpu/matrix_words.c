/* SPDX-License-Identifier: Apache-2.0 */
/* See matrix_words.h. Both texts define the same words, in the order of the header's list. */
#include "codegen/gpu/matrix_words.h"

/* clang-format off */

static const char cuda_words[] =
    "#define MATRIX_MEMORY\n"
    "#define EXCHANGE 0\n"
    "typedef u32 PLACE;\n"
    "#define PLACE_OF(pointer) ((u32)__cvta_generic_to_shared(pointer))\n"
    "#define LOAD_MATRIX_AS(form, r, place) asm volatile(\"ldmatrix.sync.aligned.m8n8.x4\" form \".shared.b16 {%0,%1,%2,%3}, [%4];\" \\\n"
    "    : \"=r\"((r)[0]), \"=r\"((r)[1]), \"=r\"((r)[2]), \"=r\"((r)[3]) : \"r\"(place) : \"memory\")\n"
    "#define LOAD_MATRIX(r, place) LOAD_MATRIX_AS(\"\", r, place)\n"
    "#define LOAD_MATRIX_ACROSS(r, place) LOAD_MATRIX_AS(\".trans\", r, place)\n"
    "#define MULTIPLY_AS(type, c, a, b0, b1) asm(\"mma.sync.aligned.m16n8k16.row.col.f32.\" type \".\" type \".f32 \" \\\n"
    "    \"{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\" \\\n"
    "    : \"+f\"((c)[0]), \"+f\"((c)[1]), \"+f\"((c)[2]), \"+f\"((c)[3]) \\\n"
    "    : \"r\"((a)[0]), \"r\"((a)[1]), \"r\"((a)[2]), \"r\"((a)[3]), \"r\"(b0), \"r\"(b1))\n"
    "#define MULTIPLY_f16(c, a, b0, b1) MULTIPLY_AS(\"f16\", c, a, b0, b1)\n"
    "#define MULTIPLY_bf16(c, a, b0, b1) MULTIPLY_AS(\"bf16\", c, a, b0, b1)\n"
    "FUNCTION u32 PACK_f16(f32 x, f32 y) { u32 r; asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(y), \"f\"(x)); return r; }\n"
    "FUNCTION u32 PACK_bf16(f32 x, f32 y) { u32 r; asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(y), \"f\"(x)); return r; }\n"
    "#define COPY_16(place, from, there) asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" \\\n"
    "    : : \"r\"(place), \"l\"(from), \"r\"((there) ? 16 : 0) : \"memory\")\n"
    "#define COPY_COMMIT asm volatile(\"cp.async.commit_group;\" : : : \"memory\")\n"
    "#define COPY_WAIT(n) asm volatile(\"cp.async.wait_group %0;\" : : \"n\"(n) : \"memory\")\n";

/* A barrier stands before each exchange, so that nobody overwrites what is still read; none behind it. */
static const char opencl_words[] =
    "#define MATRIX_MEMORY SHARED u32 fragments[THREADS * 6]; SHARED u64 exchange[THREADS];\n"
    "#define EXCHANGE exchange\n"
    "typedef SHARED_POINTER u8 *PLACE;\n"
    "#define PLACE_OF(pointer) ((PLACE)(pointer))\n"
    "#define LOAD_MATRIX(r, place) load_matrix(r, place, 0, exchange)\n"
    "#define LOAD_MATRIX_ACROSS(r, place) load_matrix(r, place, 1, exchange)\n"
    "FUNCTION void load_matrix(u32 *r, PLACE place, i32 across, SHARED_POINTER u64 *places) {\n"
    "    i32 thread = (i32)THREAD, l = thread % 32;\n"
    "    BARRIER;\n"
    "    places[thread] = (u64)place;\n"
    "    BARRIER;\n"
    "    for (i32 n = 0; n < 4; n++) {\n"
    "        SHARED_POINTER const u64 *rows = places + thread - l + n * 8;\n"
    "        SHARED_POINTER const u16 *a = (SHARED_POINTER const u16 *)rows[across ? l % 4 * 2 : l / 4];\n"
    "        SHARED_POINTER const u16 *b = (SHARED_POINTER const u16 *)rows[across ? l % 4 * 2 + 1 : l / 4];\n"
    "        r[n] = (u32)a[across ? l / 4 : l % 4 * 2] | (u32)b[across ? l / 4 : l % 4 * 2 + 1] << 16;\n"
    "    }\n"
    "}\n"
    "#define MULTIPLY_AS(load, c, a, b0, b1) { \\\n"
    "        i32 thread_ = (i32)THREAD, l_ = thread_ % 32; \\\n"
    "        BARRIER; \\\n"
    "        for (i32 r_ = 0; r_ < 4; r_++) fragments[thread_ * 6 + r_] = (a)[r_]; \\\n"
    "        fragments[thread_ * 6 + 4] = b0; fragments[thread_ * 6 + 5] = b1; \\\n"
    "        BARRIER; \\\n"
    "        SHARED_POINTER u32 *warp_ = fragments + (thread_ - l_) * 6; \\\n"
    "        for (i32 e_ = 0; e_ < 4; e_++) \\\n"
    "            for (i32 k_ = 0; k_ < 16; k_++) { \\\n"
    "                u32 x_ = warp_[(l_ / 4 * 4 + k_ % 8 / 2) * 6 + k_ / 8 * 2 + e_ / 2]; \\\n"
    "                u32 y_ = warp_[((l_ % 4 * 2 + e_ % 2) * 4 + k_ % 8 / 2) * 6 + 4 + k_ / 8]; \\\n"
    "                (c)[e_] += load((u16)(x_ >> k_ % 2 * 16)) * load((u16)(y_ >> k_ % 2 * 16)); \\\n"
    "            } \\\n"
    "    }\n"
    "#define MULTIPLY_f16(c, a, b0, b1) MULTIPLY_AS(load_f16, c, a, b0, b1)\n"
    "#define MULTIPLY_bf16(c, a, b0, b1) MULTIPLY_AS(load_bf16, c, a, b0, b1)\n"
    "#define PACK_f16(x, y) ((u32)store_f16(x) | (u32)store_f16(y) << 16)\n"
    "#define PACK_bf16(x, y) ((u32)store_bf16(x) | (u32)store_bf16(y) << 16)\n"
    "FUNCTION void copy_16(PLACE place, GLOBAL const u128 *from, bool there) {\n"
    "    u128 v; v.x = v.y = v.z = v.w = 0;\n"
    "    if (there) v = READ(u128, from);\n"
    "    *(SHARED_POINTER u128 *)place = v;\n"
    "}\n"
    "#define COPY_16(place, from, there) copy_16(place, (GLOBAL const u128 *)(from), there)\n"
    "#define COPY_COMMIT\n"
    "#define COPY_WAIT(n)\n";

/* clang-format on */

const char *gpu_fragment_words(GpuDialect dialect) { return dialect == GPU_CUDA ? cuda_words : opencl_words; }
