/* SPDX-License-Identifier: Apache-2.0 */
/* Machine instructions of x86-64 with AVX-512 (F, BW, CD, DQ, VL: x86-64-v4) or AVX2 (with FMA, F16C, BMI2: x86-64-v3), on virtual
 * registers until allocate.c has given them real ones. */
#ifndef ONNXFUSE_CODEGEN_NATIVE_MACHINE_H
#define ONNXFUSE_CODEGEN_NATIVE_MACHINE_H

#include "base/text.h"
#include "codegen/native/ir.h"

/* Encodings: after Intel's manual, volume 2. RVM: dst = reg, first source = vvvv, last = rm; RM: dst = reg; MR: dst, a
 * register or memory, = rm; VM: dst = vvvv, the opcode's extension in reg; M: extension, rm is both source and dst. */
typedef enum Coding {
    EVEX, /* AVX-512 alone has it so */
    BOTH, /* AVX2, too: there it is a VEX of the same fields */
    AVX,  /* VEX on vectors, for where there is no AVX-512 */
    VEX,  /* on masks and integers */
    PLAIN,
} Coding;
typedef enum Form { RVM, RM, MR, VM, M, NONE } Form;

/* pp: 0 none, 1 66, 2 F3, 3 F2. map: 1 0F, 2 0F38, 3 0F3A, 0 one byte. extra: for VM and M the opcode's extension, else 1:
 * an 8-bit immediate follows. unit: bytes of a broadcast element and of a short displacement's step; 64: the whole vector's
 * (and no broadcast); 0: no short displacements.
 * X(enumerator, coding, map, pp, w, opcode, form, extra, unit) */
/* clang-format off */
#define FLOATS(X, n, opcode)                                                                                           \
    X(n##PS, BOTH, 1, 0, 0, opcode, RVM, 0, 4) X(n##PD, BOTH, 1, 1, 1, opcode, RVM, 0, 8)                              \
    X(n##SS, BOTH, 1, 2, 0, opcode, RVM, 0, 1) X(n##SD, BOTH, 1, 3, 1, opcode, RVM, 0, 1)
#define FLOATS_38(X, n, coding, opcode)                                                                                \
    X(n##PS, coding, 2, 1, 0, opcode, RVM, 0, 4) X(n##PD, coding, 2, 1, 1, opcode, RVM, 0, 8)                          \
    X(n##SS, coding, 2, 1, 0, (opcode + 1), RVM, 0, 1) X(n##SD, coding, 2, 1, 1, (opcode + 1), RVM, 0, 1)
#define FUSED(X, n, opcode)                                                                                            \
    FLOATS_38(X, n##132, BOTH, opcode) FLOATS_38(X, n##213, BOTH, (opcode + 0x10))                                     \
    FLOATS_38(X, n##231, BOTH, (opcode + 0x20))

#define MACHINE_OPS(X)                                                                                                 \
    FLOATS(X, VADD, 0x58) FLOATS(X, VMUL, 0x59) FLOATS(X, VSUB, 0x5C) FLOATS(X, VDIV, 0x5E)                            \
    FLOATS(X, VMIN, 0x5D) FLOATS(X, VMAX, 0x5F)                                                                        \
    X(VSQRTPS, BOTH, 1, 0, 0, 0x51, RM, 0, 4) X(VSQRTPD, BOTH, 1, 1, 1, 0x51, RM, 0, 8)                                \
    X(VSQRTSS, BOTH, 1, 2, 0, 0x51, RVM, 0, 1) X(VSQRTSD, BOTH, 1, 3, 1, 0x51, RVM, 0, 1)                              \
    FLOATS_38(X, VSCALEF, EVEX, 0x2C)                                                                                  \
    FUSED(X, VFMADD, 0x98) FUSED(X, VFMSUB, 0x9A) FUSED(X, VFNMADD, 0x9C) FUSED(X, VFNMSUB, 0x9E)                      \
    X(VRNDSCALEPS, BOTH, 3, 1, 0, 0x08, RM, 1, 4) X(VRNDSCALEPD, BOTH, 3, 1, 1, 0x09, RM, 1, 8)                        \
    X(VRNDSCALESS, BOTH, 3, 1, 0, 0x0A, RVM, 1, 1) X(VRNDSCALESD, BOTH, 3, 1, 1, 0x0B, RVM, 1, 1)                      \
    X(VCMPPS, BOTH, 1, 0, 0, 0xC2, RVM, 1, 4) X(VCMPPD, BOTH, 1, 1, 1, 0xC2, RVM, 1, 8)                                \
    X(VCMPSS, BOTH, 1, 2, 0, 0xC2, RVM, 1, 1) X(VCMPSD, BOTH, 1, 3, 1, 0xC2, RVM, 1, 1)                                \
    X(VPCMPB, EVEX, 3, 1, 0, 0x3F, RVM, 1, 64) X(VPCMPW, EVEX, 3, 1, 1, 0x3F, RVM, 1, 64)                              \
    X(VPCMPD, EVEX, 3, 1, 0, 0x1F, RVM, 1, 4) X(VPCMPQ, EVEX, 3, 1, 1, 0x1F, RVM, 1, 8)                                \
    X(VPCMPUB, EVEX, 3, 1, 0, 0x3E, RVM, 1, 64) X(VPCMPUW, EVEX, 3, 1, 1, 0x3E, RVM, 1, 64)                            \
    X(VPCMPUD, EVEX, 3, 1, 0, 0x1E, RVM, 1, 4) X(VPCMPUQ, EVEX, 3, 1, 1, 0x1E, RVM, 1, 8)                              \
    X(VPADDB, BOTH, 1, 1, 0, 0xFC, RVM, 0, 64) X(VPADDW, BOTH, 1, 1, 0, 0xFD, RVM, 0, 64)                              \
    X(VPADDD, BOTH, 1, 1, 0, 0xFE, RVM, 0, 4) X(VPADDQ, BOTH, 1, 1, 1, 0xD4, RVM, 0, 8)                                \
    X(VPSUBB, BOTH, 1, 1, 0, 0xF8, RVM, 0, 64) X(VPSUBW, BOTH, 1, 1, 0, 0xF9, RVM, 0, 64)                              \
    X(VPSUBD, BOTH, 1, 1, 0, 0xFA, RVM, 0, 4) X(VPSUBQ, BOTH, 1, 1, 1, 0xFB, RVM, 0, 8)                                \
    X(VPMULLW, BOTH, 1, 1, 0, 0xD5, RVM, 0, 64) X(VPMULLD, BOTH, 2, 1, 0, 0x40, RVM, 0, 4)                             \
    X(VPMULLQ, EVEX, 2, 1, 1, 0x40, RVM, 0, 8) X(VPMULUDQ, BOTH, 1, 1, 1, 0xF4, RVM, 0, 8)                             \
    X(VPANDD, BOTH, 1, 1, 0, 0xDB, RVM, 0, 4) X(VPANDQ, BOTH, 1, 1, 1, 0xDB, RVM, 0, 8)                                \
    X(VPORD, BOTH, 1, 1, 0, 0xEB, RVM, 0, 4) X(VPORQ, BOTH, 1, 1, 1, 0xEB, RVM, 0, 8)                                  \
    X(VPXORD, BOTH, 1, 1, 0, 0xEF, RVM, 0, 4) X(VPXORQ, BOTH, 1, 1, 1, 0xEF, RVM, 0, 8)                                \
    X(VPSLLVW, EVEX, 2, 1, 1, 0x12, RVM, 0, 64) X(VPSLLVD, BOTH, 2, 1, 0, 0x47, RVM, 0, 4)                             \
    X(VPSLLVQ, BOTH, 2, 1, 1, 0x47, RVM, 0, 8)                                                                         \
    X(VPSRLVW, EVEX, 2, 1, 1, 0x10, RVM, 0, 64) X(VPSRLVD, BOTH, 2, 1, 0, 0x45, RVM, 0, 4)                             \
    X(VPSRLVQ, BOTH, 2, 1, 1, 0x45, RVM, 0, 8)                                                                         \
    X(VPSRAVW, EVEX, 2, 1, 1, 0x11, RVM, 0, 64) X(VPSRAVD, BOTH, 2, 1, 0, 0x46, RVM, 0, 4)                             \
    X(VPSRAVQ, EVEX, 2, 1, 1, 0x46, RVM, 0, 8)                                                                         \
    X(VPSLLW, BOTH, 1, 1, 0, 0x71, VM, 6, 64) X(VPSLLD, BOTH, 1, 1, 0, 0x72, VM, 6, 4)                                 \
    X(VPSLLQ, BOTH, 1, 1, 1, 0x73, VM, 6, 8)                                                                           \
    X(VPSRLW, BOTH, 1, 1, 0, 0x71, VM, 2, 64) X(VPSRLD, BOTH, 1, 1, 0, 0x72, VM, 2, 4)                                 \
    X(VPSRLQ, BOTH, 1, 1, 1, 0x73, VM, 2, 8)                                                                           \
    X(VPSRAW, BOTH, 1, 1, 0, 0x71, VM, 4, 64) X(VPSRAD, BOTH, 1, 1, 0, 0x72, VM, 4, 4)                                 \
    X(VPSRAQ, EVEX, 1, 1, 1, 0x72, VM, 4, 8)                                                                           \
    X(VPMINSB, BOTH, 2, 1, 0, 0x38, RVM, 0, 64) X(VPMINSW, BOTH, 1, 1, 0, 0xEA, RVM, 0, 64)                            \
    X(VPMINSD, BOTH, 2, 1, 0, 0x39, RVM, 0, 4) X(VPMINSQ, EVEX, 2, 1, 1, 0x39, RVM, 0, 8)                              \
    X(VPMINUB, BOTH, 1, 1, 0, 0xDA, RVM, 0, 64) X(VPMINUW, BOTH, 2, 1, 0, 0x3A, RVM, 0, 64)                            \
    X(VPMINUD, BOTH, 2, 1, 0, 0x3B, RVM, 0, 4) X(VPMINUQ, EVEX, 2, 1, 1, 0x3B, RVM, 0, 8)                              \
    X(VPMAXSB, BOTH, 2, 1, 0, 0x3C, RVM, 0, 64) X(VPMAXSW, BOTH, 1, 1, 0, 0xEE, RVM, 0, 64)                            \
    X(VPMAXSD, BOTH, 2, 1, 0, 0x3D, RVM, 0, 4) X(VPMAXSQ, EVEX, 2, 1, 1, 0x3D, RVM, 0, 8)                              \
    X(VPMAXUB, BOTH, 1, 1, 0, 0xDE, RVM, 0, 64) X(VPMAXUW, BOTH, 2, 1, 0, 0x3E, RVM, 0, 64)                            \
    X(VPMAXUD, BOTH, 2, 1, 0, 0x3F, RVM, 0, 4) X(VPMAXUQ, EVEX, 2, 1, 1, 0x3F, RVM, 0, 8)                              \
    X(VPLZCNTD, EVEX, 2, 1, 0, 0x44, RM, 0, 4) X(VPLZCNTQ, EVEX, 2, 1, 1, 0x44, RM, 0, 8)                              \
    X(VPUNPCKLBW, BOTH, 1, 1, 0, 0x60, RVM, 0, 64) X(VPUNPCKLWD, BOTH, 1, 1, 0, 0x61, RVM, 0, 64)                      \
    X(VPUNPCKLDQ, BOTH, 1, 1, 0, 0x62, RVM, 0, 4) X(VPUNPCKLQDQ, BOTH, 1, 1, 1, 0x6C, RVM, 0, 8)                       \
    X(VPUNPCKHBW, BOTH, 1, 1, 0, 0x68, RVM, 0, 64) X(VPUNPCKHWD, BOTH, 1, 1, 0, 0x69, RVM, 0, 64)                      \
    X(VPUNPCKHDQ, BOTH, 1, 1, 0, 0x6A, RVM, 0, 4) X(VPUNPCKHQDQ, BOTH, 1, 1, 1, 0x6D, RVM, 0, 8)                       \
    X(VPERMT2W, EVEX, 2, 1, 1, 0x7D, RVM, 0, 64) X(VPERMT2D, EVEX, 2, 1, 0, 0x7E, RVM, 0, 4)                           \
    X(VPERMT2Q, EVEX, 2, 1, 1, 0x7E, RVM, 0, 8)                                                                        \
    X(VBLENDMPS, EVEX, 2, 1, 0, 0x65, RVM, 0, 4) X(VBLENDMPD, EVEX, 2, 1, 1, 0x65, RVM, 0, 8)                          \
    X(VPBLENDMB, EVEX, 2, 1, 0, 0x66, RVM, 0, 64) X(VPBLENDMW, EVEX, 2, 1, 1, 0x66, RVM, 0, 64)                        \
    X(VPBLENDMD, EVEX, 2, 1, 0, 0x64, RVM, 0, 4) X(VPBLENDMQ, EVEX, 2, 1, 1, 0x64, RVM, 0, 8)                          \
    X(VEXTRACTI32X4, BOTH, 3, 1, 0, 0x39, MR, 1, 0) X(VEXTRACTI64X4, EVEX, 3, 1, 1, 0x3B, MR, 1, 0)                    \
    X(VINSERTI32X4, BOTH, 3, 1, 0, 0x38, RVM, 1, 0) X(VINSERTI64X4, EVEX, 3, 1, 1, 0x3A, RVM, 1, 0)                    \
    X(VPSRLDQ, BOTH, 1, 1, 0, 0x73, VM, 3, 0) X(VPSHUFD, BOTH, 1, 1, 0, 0x70, RM, 1, 4)                                \
    X(VSHUFI32X4, EVEX, 3, 1, 0, 0x43, RVM, 1, 4) X(VPTERNLOGQ, EVEX, 3, 1, 1, 0x25, RVM, 1, 8)                        \
    X(VBROADCASTSS, BOTH, 2, 1, 0, 0x18, RM, 0, 0) X(VPBROADCASTQ, EVEX, 2, 1, 1, 0x59, RM, 0, 0)                      \
    X(VPBROADCASTB, BOTH, 2, 1, 0, 0x78, RM, 0, 0) X(VPBROADCASTW, BOTH, 2, 1, 0, 0x79, RM, 0, 0)                      \
    X(VPBROADCASTD, BOTH, 2, 1, 0, 0x58, RM, 0, 0)                                                                     \
    X(VPBROADCASTB_R, EVEX, 2, 1, 0, 0x7A, RM, 0, 0) X(VPBROADCASTW_R, EVEX, 2, 1, 0, 0x7B, RM, 0, 0)                  \
    X(VPBROADCASTD_R, EVEX, 2, 1, 0, 0x7C, RM, 0, 0) X(VPBROADCASTQ_R, EVEX, 2, 1, 1, 0x7C, RM, 0, 0)                  \
    X(VPMOVZXBW, BOTH, 2, 1, 0, 0x30, RM, 0, 0) X(VPMOVZXBD, BOTH, 2, 1, 0, 0x31, RM, 0, 0)                            \
    X(VPMOVZXBQ, BOTH, 2, 1, 0, 0x32, RM, 0, 0) X(VPMOVZXWD, BOTH, 2, 1, 0, 0x33, RM, 0, 0)                            \
    X(VPMOVZXWQ, BOTH, 2, 1, 0, 0x34, RM, 0, 0) X(VPMOVZXDQ, BOTH, 2, 1, 0, 0x35, RM, 0, 0)                            \
    X(VPMOVSXBW, BOTH, 2, 1, 0, 0x20, RM, 0, 0) X(VPMOVSXBD, BOTH, 2, 1, 0, 0x21, RM, 0, 0)                            \
    X(VPMOVSXBQ, BOTH, 2, 1, 0, 0x22, RM, 0, 0) X(VPMOVSXWD, BOTH, 2, 1, 0, 0x23, RM, 0, 0)                            \
    X(VPMOVSXWQ, BOTH, 2, 1, 0, 0x24, RM, 0, 0) X(VPMOVSXDQ, BOTH, 2, 1, 0, 0x25, RM, 0, 0)                            \
    X(VPMOVWB, EVEX, 2, 2, 0, 0x30, MR, 0, 0) X(VPMOVDB, EVEX, 2, 2, 0, 0x31, MR, 0, 0)                                \
    X(VPMOVQB, EVEX, 2, 2, 0, 0x32, MR, 0, 0) X(VPMOVDW, EVEX, 2, 2, 0, 0x33, MR, 0, 0)                                \
    X(VPMOVQW, EVEX, 2, 2, 0, 0x34, MR, 0, 0) X(VPMOVQD, EVEX, 2, 2, 0, 0x35, MR, 0, 0)                                \
    X(VCVTDQ2PS, BOTH, 1, 0, 0, 0x5B, RM, 0, 4) X(VCVTUDQ2PS, EVEX, 1, 3, 0, 0x7A, RM, 0, 4)                           \
    X(VCVTQQ2PS, EVEX, 1, 0, 1, 0x5B, RM, 0, 0) X(VCVTUQQ2PS, EVEX, 1, 3, 1, 0x7A, RM, 0, 0)                           \
    X(VCVTDQ2PD, BOTH, 1, 2, 0, 0xE6, RM, 0, 0) X(VCVTUDQ2PD, EVEX, 1, 2, 0, 0x7A, RM, 0, 0)                           \
    X(VCVTQQ2PD, EVEX, 1, 2, 1, 0xE6, RM, 0, 8) X(VCVTUQQ2PD, EVEX, 1, 2, 1, 0x7A, RM, 0, 8)                           \
    X(VCVTTPS2DQ, BOTH, 1, 2, 0, 0x5B, RM, 0, 4) X(VCVTTPS2UDQ, EVEX, 1, 0, 0, 0x78, RM, 0, 4)                         \
    X(VCVTTPS2QQ, EVEX, 1, 1, 0, 0x7A, RM, 0, 0) X(VCVTTPS2UQQ, EVEX, 1, 1, 0, 0x78, RM, 0, 0)                         \
    X(VCVTTPD2DQ, BOTH, 1, 1, 1, 0xE6, RM, 0, 0) X(VCVTTPD2UDQ, EVEX, 1, 0, 1, 0x78, RM, 0, 0)                         \
    X(VCVTTPD2QQ, EVEX, 1, 1, 1, 0x7A, RM, 0, 8) X(VCVTTPD2UQQ, EVEX, 1, 1, 1, 0x78, RM, 0, 8)                         \
    X(VCVTPS2PD, BOTH, 1, 0, 0, 0x5A, RM, 0, 0) X(VCVTPD2PS, BOTH, 1, 1, 1, 0x5A, RM, 0, 0)                            \
    X(VCVTPH2PS, BOTH, 2, 1, 0, 0x13, RM, 0, 0) X(VCVTPS2PH, BOTH, 3, 1, 0, 0x1D, MR, 1, 0)                            \
    X(VCVTSS2SD, BOTH, 1, 2, 0, 0x5A, RVM, 0, 1) X(VCVTSD2SS, BOTH, 1, 3, 1, 0x5A, RVM, 0, 1)                          \
    X(VCVTSI2SS_D, BOTH, 1, 2, 0, 0x2A, RVM, 0, 0) X(VCVTSI2SS_Q, BOTH, 1, 2, 1, 0x2A, RVM, 0, 0)                      \
    X(VCVTSI2SD_D, BOTH, 1, 3, 0, 0x2A, RVM, 0, 0) X(VCVTSI2SD_Q, BOTH, 1, 3, 1, 0x2A, RVM, 0, 0)                      \
    X(VCVTUSI2SS_D, EVEX, 1, 2, 0, 0x7B, RVM, 0, 0) X(VCVTUSI2SS_Q, EVEX, 1, 2, 1, 0x7B, RVM, 0, 0)                    \
    X(VCVTUSI2SD_D, EVEX, 1, 3, 0, 0x7B, RVM, 0, 0) X(VCVTUSI2SD_Q, EVEX, 1, 3, 1, 0x7B, RVM, 0, 0)                    \
    X(VCVTTSS2SI_D, BOTH, 1, 2, 0, 0x2C, RM, 0, 0) X(VCVTTSS2SI_Q, BOTH, 1, 2, 1, 0x2C, RM, 0, 0)                      \
    X(VCVTTSD2SI_D, BOTH, 1, 3, 0, 0x2C, RM, 0, 0) X(VCVTTSD2SI_Q, BOTH, 1, 3, 1, 0x2C, RM, 0, 0)                      \
    X(VCVTTSS2USI_D, EVEX, 1, 2, 0, 0x78, RM, 0, 0) X(VCVTTSS2USI_Q, EVEX, 1, 2, 1, 0x78, RM, 0, 0)                    \
    X(VCVTTSD2USI_D, EVEX, 1, 3, 0, 0x78, RM, 0, 0) X(VCVTTSD2USI_Q, EVEX, 1, 3, 1, 0x78, RM, 0, 0)                    \
    /* moves */                                                                                                        \
    X(VMOVAPS, BOTH, 1, 0, 0, 0x28, RM, 0, 64)                                                                         \
    X(VMOVUPS_LOAD, BOTH, 1, 0, 0, 0x10, RM, 0, 64) X(VMOVUPS_STORE, BOTH, 1, 0, 0, 0x11, MR, 0, 64)                   \
    X(VMOVUPD_LOAD, BOTH, 1, 1, 1, 0x10, RM, 0, 64) X(VMOVUPD_STORE, BOTH, 1, 1, 1, 0x11, MR, 0, 64)                   \
    X(VMOVDQU8_LOAD, EVEX, 1, 3, 0, 0x6F, RM, 0, 64) X(VMOVDQU8_STORE, EVEX, 1, 3, 0, 0x7F, MR, 0, 64)                 \
    X(VMOVDQU16_LOAD, EVEX, 1, 3, 1, 0x6F, RM, 0, 64) X(VMOVDQU16_STORE, EVEX, 1, 3, 1, 0x7F, MR, 0, 64)               \
    X(VMOVNTPS, BOTH, 1, 0, 0, 0x2B, MR, 0, 64)                                                                        \
    X(VMOVSS_LOAD, BOTH, 1, 2, 0, 0x10, RM, 0, 1) X(VMOVSS_STORE, BOTH, 1, 2, 0, 0x11, MR, 0, 1)                       \
    X(VMOVSD_LOAD, BOTH, 1, 3, 1, 0x10, RM, 0, 1) X(VMOVSD_STORE, BOTH, 1, 3, 1, 0x11, MR, 0, 1)                       \
    X(VPEXTRB, BOTH, 3, 1, 0, 0x14, MR, 1, 0) X(VPEXTRW, BOTH, 3, 1, 0, 0x15, MR, 1, 0)                                \
    X(VMOVD_TO, BOTH, 1, 1, 0, 0x6E, RM, 0, 0) X(VMOVQ_TO, BOTH, 1, 1, 1, 0x6E, RM, 0, 0)                              \
    X(VMOVD_FROM, BOTH, 1, 1, 0, 0x7E, MR, 0, 0) X(VMOVQ_FROM, BOTH, 1, 1, 1, 0x7E, MR, 0, 0)                          \
    X(VGATHERQPS, EVEX, 2, 1, 0, 0x93, RM, 0, 0) X(VGATHERQPD, EVEX, 2, 1, 1, 0x93, RM, 0, 0)                          \
    X(VSCATTERQPS, EVEX, 2, 1, 0, 0xA3, MR, 0, 0) X(VSCATTERQPD, EVEX, 2, 1, 1, 0xA3, MR, 0, 0)                        \
    /* instead of masks, and of what AVX2 has otherwise; a mask is the last of VBLENDV's operands, the second of VMASKMOV's */ \
    X(VPCMPEQB, AVX, 1, 1, 0, 0x74, RVM, 0, 64) X(VPCMPEQW, AVX, 1, 1, 0, 0x75, RVM, 0, 64)                            \
    X(VPCMPEQD, AVX, 1, 1, 0, 0x76, RVM, 0, 64) X(VPCMPEQQ, AVX, 2, 1, 0, 0x29, RVM, 0, 64)                            \
    X(VPCMPGTB, AVX, 1, 1, 0, 0x64, RVM, 0, 64) X(VPCMPGTW, AVX, 1, 1, 0, 0x65, RVM, 0, 64)                            \
    X(VPCMPGTD, AVX, 1, 1, 0, 0x66, RVM, 0, 64) X(VPCMPGTQ, AVX, 2, 1, 0, 0x37, RVM, 0, 64)                            \
    X(VBLENDVPS, AVX, 3, 1, 0, 0x4A, RVM, 1, 64) X(VBLENDVPD, AVX, 3, 1, 0, 0x4B, RVM, 1, 64)                          \
    X(VPBLENDVB, AVX, 3, 1, 0, 0x4C, RVM, 1, 64) X(VPBLENDD, AVX, 3, 1, 0, 0x02, RVM, 1, 64)                           \
    X(VMASKMOVPS_LOAD, AVX, 2, 1, 0, 0x2C, RVM, 0, 64) X(VMASKMOVPD_LOAD, AVX, 2, 1, 0, 0x2D, RVM, 0, 64)              \
    X(VMASKMOVPS_STORE, AVX, 2, 1, 0, 0x2E, MR, 0, 64) X(VMASKMOVPD_STORE, AVX, 2, 1, 0, 0x2F, MR, 0, 64)              \
    X(VPERM2I128, AVX, 3, 1, 0, 0x46, RVM, 1, 64) X(VPERMD_Y, AVX, 2, 1, 0, 0x36, RVM, 0, 64)                          \
    X(VPSHUFB, AVX, 2, 1, 0, 0x00, RVM, 0, 64) X(VPTEST, AVX, 2, 1, 0, 0x17, RM, 0, 64)                                \
    X(VPANDN, AVX, 1, 1, 0, 0xDF, RVM, 0, 64) X(VPBROADCASTQ_X, AVX, 2, 1, 0, 0x59, RM, 0, 0)                          \
    /* masks */                                                                                                        \
    X(KMOVQ, VEX, 1, 0, 1, 0x90, RM, 0, 0) X(KMOVQ_STORE, VEX, 1, 0, 1, 0x91, MR, 0, 0)                                \
    X(KMOVQ_TO, VEX, 1, 3, 1, 0x92, RM, 0, 0) X(KMOVQ_FROM, VEX, 1, 3, 1, 0x93, RM, 0, 0)                              \
    X(KANDQ, VEX, 1, 0, 1, 0x41, RVM, 0, 0) X(KORQ, VEX, 1, 0, 1, 0x45, RVM, 0, 0)                                     \
    X(KXORQ, VEX, 1, 0, 1, 0x47, RVM, 0, 0) X(KSHIFTRQ, VEX, 3, 1, 1, 0x31, RM, 1, 0)                                  \
    X(KSHIFTLQ, VEX, 3, 1, 1, 0x33, RM, 1, 0) X(KUNPCKBW, VEX, 1, 1, 0, 0x4B, RVM, 0, 0)                               \
    X(KUNPCKWD, VEX, 1, 0, 0, 0x4B, RVM, 0, 0) X(KUNPCKDQ, VEX, 1, 0, 1, 0x4B, RVM, 0, 0)                              \
    X(KORTESTQ, VEX, 1, 0, 1, 0x98, RM, 0, 0)                                                                          \
    /* integers; w: 64 bits, else as the instruction says (Code.wide) */                                               \
    X(MOV, PLAIN, 0, 0, 0, 0x8B, RM, 0, 0) X(MOV_STORE, PLAIN, 0, 0, 0, 0x89, MR, 0, 0)                                \
    X(MOV_STORE16, PLAIN, 0, 1, 0, 0x89, MR, 0, 0) X(MOV_STORE8, PLAIN, 0, 0, 0, 0x88, MR, 0, 0)                       \
    X(MOVZX8, PLAIN, 1, 0, 0, 0xB6, RM, 0, 0) X(MOVZX16, PLAIN, 1, 0, 0, 0xB7, RM, 0, 0)                               \
    X(MOVSX8, PLAIN, 1, 0, 0, 0xBE, RM, 0, 0) X(MOVSX16, PLAIN, 1, 0, 0, 0xBF, RM, 0, 0)                               \
    X(MOVSXD, PLAIN, 0, 0, 1, 0x63, RM, 0, 0) X(LEA, PLAIN, 0, 0, 1, 0x8D, RM, 0, 0)                                   \
    X(ADD, PLAIN, 0, 0, 0, 0x03, RM, 0, 0) X(SUB, PLAIN, 0, 0, 0, 0x2B, RM, 0, 0)                                      \
    X(AND, PLAIN, 0, 0, 0, 0x23, RM, 0, 0) X(OR, PLAIN, 0, 0, 0, 0x0B, RM, 0, 0)                                       \
    X(XOR, PLAIN, 0, 0, 0, 0x33, RM, 0, 0) X(CMP, PLAIN, 0, 0, 0, 0x3B, RM, 0, 0)                                      \
    X(IMUL, PLAIN, 1, 0, 0, 0xAF, RM, 0, 0) X(TEST, PLAIN, 0, 0, 0, 0x85, RM, 0, 0)                                    \
    X(ADD_I, PLAIN, 0, 0, 0, 0x81, M, 0, 0) X(SUB_I, PLAIN, 0, 0, 0, 0x81, M, 5, 0)                                    \
    X(AND_I, PLAIN, 0, 0, 0, 0x81, M, 4, 0) X(OR_I, PLAIN, 0, 0, 0, 0x81, M, 1, 0)                                     \
    X(XOR_I, PLAIN, 0, 0, 0, 0x81, M, 6, 0) X(CMP_I, PLAIN, 0, 0, 0, 0x81, M, 7, 0)                                    \
    X(SHL_I, PLAIN, 0, 0, 0, 0xC1, M, 4, 0) X(SHR_I, PLAIN, 0, 0, 0, 0xC1, M, 5, 0)                                    \
    X(SAR_I, PLAIN, 0, 0, 0, 0xC1, M, 7, 0) X(NEG, PLAIN, 0, 0, 0, 0xF7, M, 3, 0)                                      \
    X(IMUL_I, PLAIN, 0, 0, 0, 0x69, RM, 0, 0) X(LZCNT, PLAIN, 1, 2, 0, 0xBD, RM, 0, 0)                                 \
    X(SHLX, VEX, 2, 1, 0, 0xF7, RVM, 0, 0) X(SHRX, VEX, 2, 3, 0, 0xF7, RVM, 0, 0) X(SARX, VEX, 2, 2, 0, 0xF7, RVM, 0, 0)  \
    X(PREFETCHT0, PLAIN, 1, 0, 0, 0x18, M, 1, 0) X(PREFETCHT1, PLAIN, 1, 0, 0, 0x18, M, 2, 0)                          \
    /* more than one instruction, or not quite one (encode.c) */                                                       \
    X(P_COPY, PLAIN, 0, 0, 0, 0, NONE, 0, 0)     /* registers of one class; gone where both are the same */            \
    X(P_CONSTANT, PLAIN, 0, 0, 0, 0, NONE, 0, 0) /* imm */                                                             \
    X(P_VECTOR, PLAIN, 0, 0, 0, 0, NONE, 0, 0)   /* of the pool */                                                     \
    X(P_MOVES, PLAIN, 0, 0, 0, 0, NONE, 0, 0)    /* all at once */                                                     \
    X(P_PARAMETERS, PLAIN, 0, 0, 0, 0, NONE, 0, 0)                                                                     \
    X(P_FMA, PLAIN, 0, 0, 0, 0, NONE, 0, 0)      /* in the form that the registers allow; imm: FMA_* */                \
    X(P_SET, PLAIN, 0, 0, 0, 0, NONE, 0, 0)      /* 0 or 1 by the flags */                                             \
    X(P_CMOV, PLAIN, 0, 0, 0, 0, NONE, 0, 0)                                                                           \
    X(P_DIVIDE, PLAIN, 0, 0, 0, 0, NONE, 0, 0)   /* imm: IrOp */                                                       \
    X(P_JUMP, PLAIN, 0, 0, 0, 0, NONE, 0, 0) X(P_IF, PLAIN, 0, 0, 0, 0, NONE, 0, 0)                                    \
    X(P_RETURN, PLAIN, 0, 0, 0, 0, NONE, 0, 0) X(P_FENCE, PLAIN, 0, 0, 0, 0, NONE, 0, 0)
/* clang-format on */

typedef enum MachineOp {
#define X(name, ...) X_##name,
    MACHINE_OPS(X)
#undef X
        MACHINE_OP_COUNT
} MachineOp;

typedef struct MachineRow {
    const char *name;
    unsigned char coding, map, pp, w, opcode, form, extra, unit;
} MachineRow;
extern const MachineRow machine_rows[MACHINE_OP_COUNT];

/* Real registers that are never given out: rsp, and rax and rdx for moves, divisions and values on the stack; those of
 * vectors and masks where there are such values. */
enum { RAX = 0, RCX, RDX, RBX, RSP, RBP, RSI, RDI, MOST_KEPT_VECTORS = 3, KEPT_MASK = 7 };

typedef enum RegClass { CLASS_INTEGER, CLASS_VECTOR, CLASS_MASK, REG_CLASSES } RegClass;

enum {
    NO_CONDITION = -1,
    COND_B = 2,
    COND_AE,
    COND_E,
    COND_NE,
    COND_BE,
    COND_A,
    COND_L = 12,
    COND_GE,
    COND_LE,
    COND_G
};

typedef struct Move {
    int to, from; /* virtual registers */
} Move;

typedef struct Code {
    short op;
    unsigned char length;                      /* of vectors: 0, 1, 2 for 128, 256, 512 bits */
    bool wide;                                 /* integers of 64 bits */
    bool memory;                               /* the last source (of MR: the result) is memory */
    bool early;                                /* the result must not share a register with a source but the first */
    bool tied;                                 /* the result begins as the first source */
    bool zeroing, broadcast;                   /* of masks; of memory */
    unsigned char scale, condition, memory_at; /* memory_at: of P_FMA, which operand it is */
    int dst, src[3], count;                    /* virtual registers, 0: none; count: of src */
    int mask;                                  /* of AVX2 a vector, whose lanes have all bits set or none */
    int base, index;
    int pool;   /* memory is 1 + the place of a constant in the pool */
    bool frame; /* base is the frame */
    int displacement;
    int64_t imm;
    Block *to, *other;
    Move *moves;
    int move_count;
} Code;

typedef struct Range {
    int from, to; /* positions: 2 * number of the instruction reads, + 1 writes */
} Range;

typedef struct Reg {
    RegClass class;
    int constant; /* 1 + its place in the pool, of vectors that are loaded from there; else 0 */
    bool part;    /* of another one's life, which is on the stack beside it: not to be made one with that */
    int same;     /* the register that it was made one with, or itself */
    int place;    /* the real register; -1: the stack, or the pool */
    int slot;     /* bytes into the frame */
    double weight;
    int hints[4], hint_count;
    VEC(Range) ranges; /* rising */
} Reg;

typedef struct Constant {
    int64_t words[8];
    int bytes;  /* that repeat: 4, 8, or all of a register's; 64 of a table */
    int offset; /* in the object */
    int reg;    /* holds it as a vector; 0: none */
} Constant;

/* Relative addresses that follow when all is placed: of blocks, and of constants from `behind` bytes after `at`. */
typedef struct Jump {
    int at, block;
} Jump;
typedef struct Fix {
    int at, constant, behind;
} Fix;

typedef struct CodeBlock {
    VEC(Code) code;
} CodeBlock;

/* What a register that is kept for values on the stack holds: a copy of that slot; -1: of none. */
typedef struct Held {
    int slot, asked; /* asked: when last, in any unit */
} Held;

typedef struct Machine {
    IrBuilder *ir;
    Arena *arena;
    bool avx512;       /* else AVX2 */
    CodeBlock *blocks; /* by order */
    VEC(Reg) regs;     /* 0 is none */
    VEC(Constant) pool;
    VEC(Code) entry; /* constants to be loaded at the begin */
    int64_t frame;
    unsigned used[REG_CLASSES]; /* real registers */
    bool spills[REG_CLASSES];   /* some registers are kept for values on the stack */
    VEC(unsigned char) bytes;
    size_t code_bytes; /* before the pool */
    Text *listing;     /* or NULL */
    /* encode.c */
    VEC(Jump) jumps;
    VEC(Fix) fixes;
    int *block_at; /* by order */
    Held held[MOST_KEPT_VECTORS];
    int asked;
} Machine;

static inline int whole_length(const Machine *m) { return m->avx512 ? 2 : 1; } /* Code.length of all of a register */
static inline int whole_bytes(const Machine *m) { return 16 << whole_length(m); }
static inline int vector_registers(const Machine *m) { return m->avx512 ? 32 : 16; }
static inline int kept_vectors(const Machine *m) { return m->avx512 ? MOST_KEPT_VECTORS : 2; }
static inline int first_kept_vector(const Machine *m) { return vector_registers(m) - kept_vectors(m); }

int reg_new(Machine *m, RegClass class);
static inline int reg_find(const Machine *m, int reg) {
    while (m->regs.items[reg].same != reg) reg = m->regs.items[reg].same;
    return reg;
}
void select_code(Machine *m);
void allocate(Machine *m);
void encode(Machine *m);

#endif
