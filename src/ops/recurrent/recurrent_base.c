/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of the recurrence for what every machine of the architecture has. */
#define ISA base
#define VECTOR_BYTES 16
#if defined(__aarch64__)
#define REGISTERS 32
#else
#define REGISTERS 16
#endif
#include "ops/recurrent/recurrent_isa.h"
