/* SPDX-License-Identifier: Apache-2.0 */
/* What the processor says that it runs. */
#include "base/vectors/vector_isa.h"

#include <stdatomic.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

enum {
    ASKED = 1,
    HAS_AVX512 = 2,
    HAS_AVX2 = 4,
    HAS_F16C = 8,
    HAS_VNNI = 16,
    HAS_AVX_VNNI = 32,
    HAS_BF16 = 64,
    HAS_DOT_PRODUCT = 128,
    HAS_I8MM = 256
};

#if defined(__x86_64__)
#include <cpuid.h>

/* Not all compilers know all names: F16C is leaf 1's bit 29 of ECX, AVX-VNNI leaf 7.1's bit 4 of EAX (Intel's manual,
 * volume 2, CPUID). */
static unsigned ask(void) {
    unsigned has = ASKED, a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C)) has |= HAS_F16C;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1)) has |= HAS_AVX_VNNI;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && (has & HAS_F16C)) has |= HAS_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        has |= HAS_AVX512;
    if (__builtin_cpu_supports("avx512vnni")) has |= HAS_VNNI;
    if (__builtin_cpu_supports("avx512bf16")) has |= HAS_BF16;
    return has;
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

/* Not all C libraries know all names: ASIMDDP of AT_HWCAP, I8MM and BF16 of AT_HWCAP2 (Linux,
 * arch/arm64/include/uapi/asm/hwcap.h). */
static unsigned ask(void) {
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    return ASKED | (first >> 20 & 1 ? HAS_DOT_PRODUCT : 0) | (second >> 13 & 1 ? HAS_I8MM : 0) |
           (second >> 14 & 1 ? HAS_BF16 : 0);
}
#else
static unsigned ask(void) { return ASKED; }
#endif

/* Asked once: each tile asks for its instructions, and on a virtual machine the host answers cpuid, in the time of a
 * whole tile. */
static bool has(unsigned which) {
    static _Atomic unsigned known;
    unsigned answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (!answer) atomic_store_explicit(&known, answer = ask(), memory_order_relaxed);
    return answer & which;
}

VectorIsa vector_isa(void) { return has(HAS_AVX512) ? VECTOR_AVX512 : has(HAS_AVX2) ? VECTOR_AVX2 : VECTOR_BASE; }
bool vector_has_f16c(void) { return has(HAS_F16C); }
bool vector_has_vnni(void) { return has(HAS_VNNI); }
bool vector_has_avx_vnni(void) { return has(HAS_AVX_VNNI); }
bool vector_has_dot_product(void) { return has(HAS_DOT_PRODUCT); }
bool vector_has_i8mm(void) { return has(HAS_I8MM); }
bool vector_has_bf16(void) { return has(HAS_BF16); }

#if defined(__x86_64__) && defined(__linux__)
enum { AMX_BF16 = 1 << 22, AMX_TILES = 1 << 24, AMX_INT8 = 1 << 25 }; /* of leaf 7's EDX */

/* Which of them there are. The system saves the registers (bits 17 and 18 of XCR0) and gives a process leave to use them
 * (ARCH_REQ_XCOMP_PERM; Linux, Documentation/arch/x86/xstate.rst). */
static unsigned ask_for_amx(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18, SAVED = 3 << 17, OS_SAVES = 1 << 27 };
    unsigned a, b, c, d, has, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & OS_SAVES)) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &has) || !(has & AMX_TILES)) return 0;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(high) : "c"(0));
    return (a & SAVED) == SAVED && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 ? has : 0;
}

static bool has_amx(unsigned which) {
    static _Atomic unsigned known; /* 1: asked */
    unsigned answer = known;
    if (!answer) known = answer = 1 | ask_for_amx();
    return (answer & which) == which;
}
#endif

bool vector_has_amx_bf16(void) {
#if defined(__x86_64__) && defined(__linux__)
    return has_amx(AMX_BF16);
#else
    return false;
#endif
}

bool vector_has_amx_int8(void) {
#if defined(__x86_64__) && defined(__linux__)
    return has_amx(AMX_INT8);
#else
    return false;
#endif
}
