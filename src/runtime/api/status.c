/* SPDX-License-Identifier: Apache-2.0 */
/* Statuses and the library's own memory, for the caller. */
#include <stdlib.h>

#include "base/status.h"
#include "onnxfuse.h"

const char *onnxfuse_version(void) { return ONNXFUSE_VERSION; }
OnnxfuseCode onnxfuse_status_code(OnnxfuseStatus status) { return (OnnxfuseCode)status_code(status); }
const char *onnxfuse_status_message(OnnxfuseStatus status) { return status_message(status); }
void onnxfuse_status_free(OnnxfuseStatus status) { status_free(status); }
void onnxfuse_free(void *memory) { free(memory); }
