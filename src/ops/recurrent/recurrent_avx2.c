/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of the recurrence for AVX2 with FMA and F16C. */
#if defined(__x86_64__)
#define ISA avx2
#define ISA_TARGET "avx2,fma,f16c"
#define VECTOR_BYTES 32
#define REGISTERS 16
#include "ops/recurrent/recurrent_isa.h"
#endif
typedef int recurrent_avx2_is_for_x86_64;
