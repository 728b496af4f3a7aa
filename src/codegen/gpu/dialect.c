/* SPDX-License-Identifier: Apache-2.0 */
/* The two preludes: the words of dialect.h in CUDA C for NVRTC, without a single include, and in OpenCL C 1.2 for any
 * device. Keep the order of the words: both texts define the same ones, in the order of the header's list. */
#include "codegen/gpu/dialect.h"

/* bf16 to nearest even by integers: adding 0x7fff plus the last kept bit carries into it exactly when the cut-off bits
 * are above a half, or a half and the last bit is odd. NaN keeps its sign and payload's head, and is quiet. */
#define BF16_BY_INTEGERS                                                                                               \
    "FUNCTION f32 load_bf16(u16 x) { return FLOAT_u32((u32)x << 16); }\n"                                              \
    "FUNCTION u16 store_bf16_bits(u32 u) {\n"                                                                          \
    "    if ((u & 0x7fffffffu) > 0x7f800000u) return (u16)((u >> 16) | 0x40u);\n"                                      \
    "    return (u16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);\n"                                                      \
    "}\n"

#define PACK_OF_TWO                                                                                                    \
    "#define pack_f16(x, y) ((u32)store_f16(x) | (u32)store_f16(y) << 16)\n"                                           \
    "#define pack_bf16(x, y) ((u32)store_bf16(x) | (u32)store_bf16(y) << 16)\n"

/* fmod by long division of the significands, `step` bits of the quotient at a time: exact, as C's. OpenCL's own fmod
 * goes through a rounded quotient on some devices. */
#define FMOD(f, u, bits, infinity, sign, hidden, step)                                                                 \
    "FUNCTION " f " fmod_" f "(" f " x, " f " y) {\n"                                                                  \
    "    " u " ux = BITS_" f "(x), uy = BITS_" f "(y), s = ux & " sign ";\n"                                           \
    "    ux ^= s; uy &= ~" sign ";\n"                                                                                  \
    "    if (ux > " infinity " || uy > " infinity " || ux == " infinity " || uy == 0) return NAN_" f ";\n"             \
    "    if (ux < uy) return x;\n"                                                                                     \
    "    i32 ex = (i32)(ux >> " bits "), ey = (i32)(uy >> " bits ");\n"                                                \
    "    u64 mx = ux & (" hidden " - 1), my = uy & (" hidden " - 1);\n"                                                \
    "    if (ex) mx |= " hidden "; else ex = 1;\n"                                                                     \
    "    if (ey) my |= " hidden "; else ey = 1;\n"                                                                     \
    "    i32 n = ex - ey;\n"                                                                                           \
    "    mx %= my;\n"                                                                                                  \
    "    while (n > 0 && mx) {\n"                                                                                      \
    "        i32 k = n < " step " ? n : " step ";\n"                                                                   \
    "        mx = (mx << k) % my; n -= k;\n"                                                                           \
    "    }\n"                                                                                                          \
    "    if (!mx) return FLOAT_" u "(s);\n"                                                                            \
    "    while (mx < " hidden " && ey > 1) { mx <<= 1; ey--; }\n"                                                      \
    "    return FLOAT_" u "(s | (mx < " hidden " ? (" u ")mx\n"                                                        \
    "                       : ((" u ")mx & (" hidden " - 1)) | ((" u ")ey << " bits ")));\n"                           \
    "}\n"
#define FMOD_F32 FMOD("f32", "u32", "23", "0x7f800000u", "0x80000000u", "0x800000u", "40")
#define FMOD_F64                                                                                                       \
    FMOD("f64", "u64", "52", "(u64)0x7ff0000000000000UL", "(u64)0x8000000000000000UL", "(u64)0x10000000000000UL", "11")

static const char cuda_prelude[] =
    "#pragma nv_diag_suppress 177, 550\n" /* declared and not used: `exchange`, words that a program has no need of */
    "#define KERNEL_OF(threads) extern \"C\" __global__ void __launch_bounds__(threads)\n"
    "#define KERNEL_BESIDE(threads, blocks) extern \"C\" __global__ void __launch_bounds__(threads, blocks)\n"
    "#define BUFFER_ARG(b) void *b##_buffer\n"
    "#define BUFFER(type, name, b) type *name = (type *)b##_buffer\n"
    "#define GLOBAL\n"
    "#define SHARED __shared__\n"
    "#define SHARED_ARG(name)\n"
    "#define SHARED_GIVEN(name) extern __shared__ u128 name[]\n"
    "#define SHARED_POINTER\n"
    "#define FUNCTION static __device__ __forceinline__\n"
    "#define THREAD ((i64)threadIdx.x)\n"
    "#define BLOCK ((i64)blockIdx.x)\n"
    "#define BLOCKS ((i64)gridDim.x)\n"
    "#define BLOCK_SIZE ((i64)blockDim.x)\n"
    "#define BARRIER __syncthreads()\n"
    "#define BARRIER_GLOBAL __syncthreads()\n"
    "#define UNROLL _Pragma(\"unroll\")\n"
    "#define ROLLED _Pragma(\"unroll 1\")\n"
    "#define UNROLL_4 _Pragma(\"unroll 4\")\n"
    "typedef signed char i8;\n"
    "typedef unsigned char u8;\n"
    "typedef short i16;\n"
    "typedef unsigned short u16;\n"
    "typedef int i32;\n"
    "typedef unsigned int u32;\n"
    "typedef long long i64;\n"
    "typedef unsigned long long u64;\n"
    "typedef float f32;\n"
    "typedef double f64;\n"
    "#define HAS_F64 1\n"
    "typedef uint4 u128;\n"
    "#define READ(type, pointer) (*(const type *)(pointer))\n"
    "#define WRITE(type, pointer, value) (*(type *)(pointer) = (value))\n"
    "#define HAS_SHUFFLE 1\n"
    "#define SHUFFLE_XOR_i32(v, mask, exchange) __shfl_xor_sync(0xffffffffu, (i32)(v), (int)(mask))\n"
    "#define SHUFFLE_XOR_u32(v, mask, exchange) __shfl_xor_sync(0xffffffffu, (u32)(v), (int)(mask))\n"
    "#define SHUFFLE_XOR_i64(v, mask, exchange) __shfl_xor_sync(0xffffffffu, (i64)(v), (int)(mask))\n"
    "#define SHUFFLE_XOR_u64(v, mask, exchange) __shfl_xor_sync(0xffffffffu, (u64)(v), (int)(mask))\n"
    "#define SHUFFLE_XOR_f32(v, mask, exchange) __shfl_xor_sync(0xffffffffu, (f32)(v), (int)(mask))\n"
    "#define SHUFFLE_XOR_f64(v, mask, exchange) __shfl_xor_sync(0xffffffffu, (f64)(v), (int)(mask))\n"
    "#define fma_f32(a, b, c) __fmaf_rn(a, b, c)\n"
    "#define fma_f64(a, b, c) __fma_rn(a, b, c)\n"
    "#define sqrt_f32(x) __fsqrt_rn(x)\n"
    "#define sqrt_f64(x) __dsqrt_rn(x)\n"
    "#define floor_f32(x) floorf(x)\n"
    "#define floor_f64(x) floor((f64)(x))\n"
    "#define ceil_f32(x) ceilf(x)\n"
    "#define ceil_f64(x) ceil((f64)(x))\n"
    "#define trunc_f32(x) truncf(x)\n"
    "#define trunc_f64(x) trunc((f64)(x))\n"
    "#define rint_f32(x) rintf(x)\n"
    "#define rint_f64(x) rint((f64)(x))\n"
    "#define fabs_f32(x) FLOAT_u32(BITS_f32(x) & 0x7fffffffu)\n"
    "#define fabs_f64(x) FLOAT_u64(BITS_f64(x) & 0x7fffffffffffffffUL)\n"
    "#define max_f32(a, b) fmaxf(a, b)\n"
    "FUNCTION f32 exp2_f32(f32 x) { f32 r; asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(x)); return r; }\n"
    "#define exp_f32(x) expf(x)\n"
    "#define log_f32(x) logf(x)\n"
    "#define tanh_f32(x) tanhf(x)\n"
    "#define erf_f32(x) erff(x)\n"
    "#define BITS_f32(x) __float_as_uint(x)\n"
    "#define FLOAT_u32(x) __uint_as_float(x)\n"
    "#define BITS_f64(x) ((u64)__double_as_longlong(x))\n"
    "#define FLOAT_u64(x) __longlong_as_double((i64)(x))\n"
    "#define MUL_HIGH_u32(a, b) __umulhi(a, b)\n"
    "#define INFINITY_f32 FLOAT_u32(0x7f800000u)\n"
    "#define NAN_f32 FLOAT_u32(0x7fc00000u)\n"
    "#define INFINITY_f64 FLOAT_u64(0x7ff0000000000000UL)\n"
    "#define NAN_f64 FLOAT_u64(0x7ff8000000000000UL)\n"
    "FUNCTION f32 load_f16(u16 x) { f32 r; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(x)); return r; }\n"
    "FUNCTION f32 load_f16_high(u32 x) {\n"
    "    f32 r;\n"
    "    asm(\"{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}\" : \"=f\"(r) : \"r\"(x));\n"
    "    return r;\n"
    "}\n"
    "FUNCTION u16 store_f16(f32 x) { u16 r; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(x)); return r; }\n"
    /* clang-format off */
    BF16_BY_INTEGERS
    "#if __CUDA_ARCH__ >= 800\n"
    "FUNCTION u16 store_bf16(f32 x) { u16 r; asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(x)); return r; }\n"
    "FUNCTION u32 pack_f16(f32 x, f32 y) { u32 r; asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(y), \"f\"(x)); return r; }\n"
    "FUNCTION u32 pack_bf16(f32 x, f32 y) { u32 r; asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(y), \"f\"(x)); return r; }\n"
    "#else\n"
    "FUNCTION u16 store_bf16(f32 x) { return store_bf16_bits(BITS_f32(x)); }\n"
    PACK_OF_TWO
    "#endif\n"
    FMOD_F32
    FMOD_F64;
/* clang-format on */

/* Buffers are a pointer and an offset, for OpenCL 1.2 has no pointers into buffers on the host. Shuffles go through
 * local memory; the barrier behind the read lets the next one write at once. NVIDIA's compiler takes PTX. */
static const char opencl_prelude[] =
    "#if defined(cl_khr_fp64)\n"
    "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
    "#define HAS_F64 1\n"
    "#elif defined(__opencl_c_fp64)\n"
    "#define HAS_F64 1\n"
    "#endif\n"
    "#pragma OPENCL FP_CONTRACT OFF\n"
    "#define KERNEL_OF(threads) __kernel void\n"
    "#define KERNEL_BESIDE(threads, blocks) __kernel void\n"
    "#define BUFFER_ARG(b) __global u8 *b##_buffer, i64 b##_offset\n"
    "#define BUFFER(type, name, b) __global type *name = (__global type *)(b##_buffer + b##_offset)\n"
    "#define GLOBAL __global\n"
    "#define SHARED __local\n"
    "#define SHARED_ARG(name) , __local u128 *name##_shared\n"
    "#define SHARED_GIVEN(name) __local u128 *name = name##_shared\n"
    "#define SHARED_POINTER __local\n"
    "#define FUNCTION static inline __attribute__((always_inline))\n"
    "#define THREAD ((i64)get_local_id(0))\n"
    "#define BLOCK ((i64)get_group_id(0))\n"
    "#define BLOCKS ((i64)get_num_groups(0))\n"
    "#define BLOCK_SIZE ((i64)get_local_size(0))\n"
    "#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)\n"
    "#define BARRIER_GLOBAL barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)\n"
    /* PoCL (which defines the first word) takes twice as long to compile what is unrolled for registers. */
    "#if !defined(POCL_DEVICE_ADDRESS_BITS) && (defined(__clang__) || defined(cl_nv_pragma_unroll))\n"
    "#define UNROLL _Pragma(\"unroll\")\n"
    "#else\n"
    "#define UNROLL\n"
    "#endif\n"
    "#define ROLLED\n"
    "#define UNROLL_4\n"
    "typedef char i8;\n"
    "typedef uchar u8;\n"
    "typedef short i16;\n"
    "typedef ushort u16;\n"
    "typedef int i32;\n"
    "typedef uint u32;\n"
    "typedef long i64;\n"
    "typedef ulong u64;\n"
    "typedef float f32;\n"
    "#ifdef HAS_F64\n"
    "typedef double f64;\n"
    "#endif\n"
    "typedef uint4 u128;\n"
    "#define READ(type, pointer) (*(const __global type *)(pointer))\n"
    "#define WRITE(type, pointer, value) (*(__global type *)(pointer) = (value))\n"
    "#define BITS_f32(x) as_uint((f32)(x))\n"
    "#define FLOAT_u32(x) as_float((u32)(x))\n"
    "#define BITS_f64(x) as_ulong((f64)(x))\n"
    "#define FLOAT_u64(x) as_double((u64)(x))\n"
    "#define HAS_SHUFFLE 0\n"
    "FUNCTION u32 SHUFFLE_XOR_u32(u32 v, i32 mask, __local u64 *exchange) {\n"
    "#ifdef __NV_CL_C_VERSION\n"
    "    u32 r;\n"
    "    asm volatile(\"shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;\" : \"=r\"(r) : \"r\"(v), \"r\"(mask));\n"
    "    return r;\n"
    "#else\n"
    "    __local u32 *words = (__local u32 *)exchange;\n"
    "    words[THREAD] = v;\n"
    "    BARRIER;\n"
    "    u32 r = words[THREAD ^ mask];\n"
    "    BARRIER;\n"
    "    return r;\n"
    "#endif\n"
    "}\n"
    "FUNCTION u64 SHUFFLE_XOR_u64(u64 v, i32 mask, __local u64 *exchange) {\n"
    "#ifdef __NV_CL_C_VERSION\n"
    "    u64 low = SHUFFLE_XOR_u32((u32)v, mask, exchange);\n"
    "    return low | (u64)SHUFFLE_XOR_u32((u32)(v >> 32), mask, exchange) << 32;\n"
    "#else\n"
    "    exchange[THREAD] = v;\n"
    "    BARRIER;\n"
    "    u64 r = exchange[THREAD ^ mask];\n"
    "    BARRIER;\n"
    "    return r;\n"
    "#endif\n"
    "}\n"
    "#define SHUFFLE_XOR_i32(v, mask, exchange) ((i32)SHUFFLE_XOR_u32((u32)(v), mask, exchange))\n"
    "#define SHUFFLE_XOR_i64(v, mask, exchange) ((i64)SHUFFLE_XOR_u64((u64)(v), mask, exchange))\n"
    "#define SHUFFLE_XOR_f32(v, mask, exchange) FLOAT_u32(SHUFFLE_XOR_u32(BITS_f32(v), mask, exchange))\n"
    "#define SHUFFLE_XOR_f64(v, mask, exchange) FLOAT_u64(SHUFFLE_XOR_u64(BITS_f64(v), mask, exchange))\n"
    "#define fma_f32(a, b, c) fma((f32)(a), (f32)(b), (f32)(c))\n"
    "#define fma_f64(a, b, c) fma((f64)(a), (f64)(b), (f64)(c))\n"
    "#define sqrt_f32(x) sqrt((f32)(x))\n"
    "#define sqrt_f64(x) sqrt((f64)(x))\n"
    "#define floor_f32(x) floor((f32)(x))\n"
    "#define floor_f64(x) floor((f64)(x))\n"
    "#define ceil_f32(x) ceil((f32)(x))\n"
    "#define ceil_f64(x) ceil((f64)(x))\n"
    "#define trunc_f32(x) trunc((f32)(x))\n"
    "#define trunc_f64(x) trunc((f64)(x))\n"
    "#define rint_f32(x) rint((f32)(x))\n"
    "#define rint_f64(x) rint((f64)(x))\n"
    "#define fabs_f32(x) fabs((f32)(x))\n"
    "#define fabs_f64(x) fabs((f64)(x))\n"
    "#define max_f32(a, b) fmax((f32)(a), (f32)(b))\n"
    "#define exp2_f32(x) exp2((f32)(x))\n"
    "#define exp_f32(x) exp((f32)(x))\n"
    "#define log_f32(x) log((f32)(x))\n"
    "#define tanh_f32(x) tanh((f32)(x))\n"
    "#define erf_f32(x) erf((f32)(x))\n"
    "#define MUL_HIGH_u32(a, b) mul_hi((u32)(a), (u32)(b))\n"
    "#define INFINITY_f32 FLOAT_u32(0x7f800000u)\n"
    "#define NAN_f32 FLOAT_u32(0x7fc00000u)\n"
    "#define INFINITY_f64 FLOAT_u64(0x7ff0000000000000UL)\n"
    "#define NAN_f64 FLOAT_u64(0x7ff8000000000000UL)\n"
    /* f16 by integers and by float arithmetic on normal numbers alone, for devices may flush subnormal ones. Loading
     * a subnormal m * 2^-24: put m behind the leading one of 2^-14 and take that away again. Storing below 2^-14: 0.5
     * has a last place of 2^-24, so the sum rounds to what is wanted and has it in its low bits. */
    "#ifdef __NV_CL_C_VERSION\n"
    "FUNCTION f32 load_f16(u16 x) { f32 r; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(x)); return r; }\n"
    "FUNCTION u16 store_f16(f32 x) { u16 r; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(x)); return r; }\n"
    "#else\n"
    "FUNCTION f32 load_f16(u16 x) {\n"
    "    u32 sign = (u32)(x & 0x8000) << 16, m = (u32)(x & 0x7fff) << 13, e = m & 0x0f800000u;\n"
    "    u32 normal = m + 0x38000000u + (e == 0x0f800000u ? 0x38000000u : 0u);\n"
    "    u32 small = BITS_f32(FLOAT_u32(m + 0x38800000u) - FLOAT_u32(0x38800000u));\n"
    "    return FLOAT_u32(sign | (e ? normal : small));\n"
    "}\n"
    "FUNCTION u16 store_f16(f32 x) {\n"
    "    u32 u = BITS_f32(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;\n"
    "    u32 small = BITS_f32(FLOAT_u32(a) + 0.5f) - 0x3f000000u;\n"
    "    u32 normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;\n"
    "    u32 r = a < 0x38800000u ? small : a < 0x47800000u ? normal : a > 0x7f800000u ? 0x7e00u : 0x7c00u;\n"
    "    return (u16)(sign | r);\n"
    "}\n"
    "#endif\n"
    "#define load_f16_high(x) load_f16((u16)((u32)(x) >> 16))\n"
    /* clang-format off */
    BF16_BY_INTEGERS
    "FUNCTION u16 store_bf16(f32 x) { return store_bf16_bits(BITS_f32(x)); }\n"
    PACK_OF_TWO
    FMOD_F32
    "#ifdef HAS_F64\n"
    FMOD_F64
    "#endif\n";
/* clang-format on */

const char *gpu_prelude(GpuDialect dialect) { return dialect == GPU_CUDA ? cuda_prelude : opencl_prelude; }
