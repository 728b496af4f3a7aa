/* SPDX-License-Identifier: Apache-2.0 */
/* What a device has made of constants, as bytes: a compiled model keeps them. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_PACKED_H
#define ONNXFUSE_RUNTIME_DEVICE_PACKED_H

#include <stddef.h>

typedef struct Packed {
    const void *data; /* aligned to 64 bytes */
    size_t bytes;
} Packed;

#endif
