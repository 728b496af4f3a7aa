/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a relocatable object, as a damaged disk cache could hold them. */
#include <stddef.h>
#include <stdint.h>
#include "codegen/object.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ObjectCode code;
    Status status = object_load(data, size, "onnxfuse_kernel", &code);
    if (!status) object_unload(&code);
    status_free(status);
    return 0;
}
