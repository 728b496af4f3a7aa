/* SPDX-License-Identifier: Apache-2.0 */
/* Machine code of NVIDIA GPUs as nvdisasm prints it: which arithmetic on elements has a result that nothing reads. A compiler
 * removes such, so one that is left tells that another value has taken its register: ptxas of CUDA 13.0 to 13.2 for sm_90 lost half
 * of a pack of f16 so, where its input, the PTX, was right. */
#ifndef ONNXFUSE_TESTS_GPU_SASS_H
#define ONNXFUSE_TESTS_GPU_SASS_H

#include <stdbool.h>
#include <stddef.h>

/* The first such instruction of the text, an nvdisasm -c of a cubin, as it stands there; false when there is none. */
bool sass_unread(const char *text, char *out, size_t size);

#endif
