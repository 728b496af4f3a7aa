/* SPDX-License-Identifier: Apache-2.0 */
#define ISA base
#define VECTOR_BYTES 16
#include "vector_cases.h"
