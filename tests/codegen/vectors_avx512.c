/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#define ISA avx512
#define ISA_TARGET "avx512f,avx512bw,avx512dq,avx512vl"
#define VECTOR_BYTES 64
#include "vector_cases.h"
#endif
typedef int vectors_avx512_is_for_x86_64;
