/* What differs between CUDA C and OpenCL C: a prelude that defines the same words for both. The renderer, and all other
 * device code (matrix products, movement, attention), writes these words alone:
 *
 *   KERNEL                     before a kernel function: KERNEL name(arguments) { ... }
 *   BUFFER_ARG(b) BUFFER_ARG_LAST(b)   a buffer among the arguments (with / without a comma after it): a pointer in
 * CUDA; in OpenCL a __global pointer and a byte offset BUFFER(type, name, b)      declares `GLOBAL type *name` from it;
 * first thing in the body GLOBAL SHARED              address spaces: of pointers; SHARED also declares: SHARED float
 * tile[32]; FUNCTION                   before a device function THREAD BLOCK BLOCKS BLOCK_SIZE   i64: index in the
 * block, the block's index, blocks in the grid, threads in a block BARRIER                    all threads of the block,
 * shared memory visible UNROLL                     before a loop i8 u8 i16 u16 i32 u32 i64 u64 f32 f64     f64 only
 * where HAS_F64 is defined u128                       16 bytes, aligned, for vector accesses SHUFFLE_XOR_<t>(v, mask,
 * exchange)   t: u32, f32, u64, f64, i64...: the value of thread THREAD ^ mask, mask < 32; all threads of the block
 * take part; exchange: SHARED u64 [1024], used where the device has none load_f16(u16) store_f16(f32) load_bf16
 * store_bf16     bits <-> f32, to nearest even fma_f32 fma_f64 sqrt_f32 floor_.. ceil_.. trunc_.. rint_.. fabs_..
 * fmod_.. exp_f32 log_f32 tanh_f32   (the last three: as the device has them, for epilogues; kernels carry their own
 * polynomials) BITS_f32(x) FLOAT_u32(x) BITS_f64(x) FLOAT_u64(x)     bit casts mul_high_u32(a, b) */
#ifndef ONNXFUSE_CODEGEN_GPU_DIALECT_H
#define ONNXFUSE_CODEGEN_GPU_DIALECT_H

#include "codegen/gpu/gpu.h"

/* The prelude: what every program begins with. */
const char *gpu_prelude(GpuDialect dialect);

#endif
