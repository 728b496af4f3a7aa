/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#define ISA avx2
#define ISA_TARGET "avx2,fma,f16c"
#define VECTOR_BYTES 32
#include "vector_cases.h"
#endif
typedef int vectors_avx2_is_for_x86_64;
