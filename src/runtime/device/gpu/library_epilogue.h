/* SPDX-License-Identifier: Apache-2.0 */
/* The epilogues that a library for matrix products applies by itself (GpuDriver.gemm). */
#ifndef ONNXFUSE_RUNTIME_DEVICE_GPU_LIBRARY_EPILOGUE_H
#define ONNXFUSE_RUNTIME_DEVICE_GPU_LIBRARY_EPILOGUE_H

#include "lowering/anchor/plain_epilogue.h"
#include "runtime/device/gpu/driver.h"

typedef struct LibraryEpilogue {
    bool whole;          /* bias, addend and activation are all of the epilogue; else the library does nothing of it */
    PlainEpilogue plain; /* its bias and addend */
    GpuActivation activation;
} LibraryEpilogue;

/* Of an anchor with an epilogue; raw: as codegen_tile. Memory from the arena. */
Status library_epilogue_of(Arena *arena, const Node *anchor, DType raw, LibraryEpilogue *out);

#endif
