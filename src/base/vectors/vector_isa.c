/* SPDX-License-Identifier: Apache-2.0 */
/* What the processor says that it runs. */
#include "base/vectors/vector_isa.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Not all compilers know the name. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

VectorIsa vector_isa(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return VECTOR_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) return VECTOR_AVX2;
#endif
    return VECTOR_BASE;
}

bool vector_has_vnni(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

/* Not all compilers know the name: bit 4 of leaf 7.1's EAX (Intel's manual, volume 2, CPUID). */
bool vector_has_avx_vnni(void) {
#if defined(__x86_64__)
    static _Atomic int known; /* 1: no, 2: yes; products ask each time, and on a virtual machine the host answers */
    int answer = known;
    unsigned a, b, c, d;
    if (!answer) known = answer = 1 + (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1));
    return answer == 2;
#else
    return false;
#endif
}

bool vector_has_bf16(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}
