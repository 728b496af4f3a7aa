/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between CUDA C and OpenCL C: a prelude that defines the same words for both. All device code (kernels of
 * regions, matrix products, movement, attention) is written in these words alone. */
/* clang-format off
 *
 * KERNEL_OF(n)                 begins a kernel function: KERNEL_OF(n) name(arguments) { ... }; for blocks of at most n threads
 *                              (so that registers suffice)
 * KERNEL_BESIDE(n, blocks)     the same; a multiprocessor should hold `blocks` of them at once
 * BUFFER_ARG(b)                a buffer among the arguments, no comma after it: a pointer in CUDA; in OpenCL a __global
 *                              pointer and an i64 byte offset (GPU_ARG_BUFFER fills both)
 * BUFFER(type, name, b)        declares `GLOBAL type *name` from argument b; first thing in the body
 * GLOBAL                       address space of pointers to global memory: GLOBAL const f32 *p
 * SHARED                       declares an array of the block at the top of a kernel's body: SHARED f32 tile[32];
 * SHARED_ARG(name)             shared memory whose size the launch chooses (GPU_ARG_SHARED), the last of the arguments, no comma
 *                              before it; at most one. Such may be more than what SHARED can declare
 * SHARED_GIVEN(name)           declares `SHARED_POINTER u128 *name` from it in the body
 * SHARED_POINTER               address space of pointers to such arrays, in functions: SHARED_POINTER u64 *exchange
 * FUNCTION                     begins a device function (static, inlined)
 * THREAD BLOCK BLOCKS BLOCK_SIZE   i64: index in the block, the block's index, blocks in the grid, threads in a block
 * BARRIER                      waits for all threads of the block; shared memory is visible after it. Statement, with ;
 * BARRIER_GLOBAL               the same; what the block wrote to global memory is visible in the block as well
 * UNROLL                       before a loop
 * ROLLED                       before a loop that is to stay one
 * UNROLL_4                     before a loop whose length is known at run time: four steps at once
 * i8 u8 i16 u16 i32 u32 i64 u64 f32 f64   types; f64 and what needs it only where HAS_F64 is defined
 *                              64-bit constants are written with L or UL
 * u128                         16 bytes, 16-byte aligned, for vector accesses: u32 x, y, z, w
 * READ(type, pointer)          one access of global memory; device code reads and writes through these two alone
 * WRITE(type, pointer, value)
 * SHUFFLE_XOR_<t>(v, mask, exchange)   <t>: i32 u32 i64 u64 f32 f64. The value of thread THREAD ^ mask, mask < 32 and a
 *                              constant or uniform; all threads of the block take part. exchange: SHARED u64 [1024],
 *                              used where the device has no shuffles
 * HAS_SHUFFLE                  1 where shuffles are the device's own, else 0: then barriers outside of branches and loops
 *                              serve better
 * load_f16(u16) -> f32, store_f16(f32) -> u16, load_bf16, store_bf16      to nearest even, NaN stays NaN
 * load_f16_high(u32) -> f32     of the upper half of a word
 * pack_f16(f32, f32) -> u32, pack_bf16     both stored, the first in the word's lower half
 * fma_<f> sqrt_<f> floor_<f> ceil_<f> trunc_<f> rint_<f> fabs_<f> fmod_<f>   <f>: f32 f64. Correctly rounded, no contraction
 * max_f32(a, b)                the number where one is NaN
 * exp2_f32(x)                  within 2^-22, results below the normal ones may be 0
 * exp_f32 log_f32 tanh_f32 erf_f32   as the device's library has them, for epilogues; kernels carry polynomials of their own
 * BITS_f32(x) -> u32, FLOAT_u32(x) -> f32, BITS_f64(x) -> u64, FLOAT_u64(x) -> f64   the same bits
 * MUL_HIGH_u32(a, b)           the high word of the product
 * INFINITY_f32 NAN_f32 INFINITY_f64 NAN_f64
 *
 * clang-format on */
#ifndef ONNXFUSE_CODEGEN_GPU_DIALECT_H
#define ONNXFUSE_CODEGEN_GPU_DIALECT_H

#include "codegen/gpu/gpu.h"

/* The prelude: what every program begins with. */
const char *gpu_prelude(GpuDialect dialect);

#endif
