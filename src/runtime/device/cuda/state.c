/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the driver, and which of them end a context. */
#include "runtime/device/cuda/state.h"

#include <stdio.h>

#include "base/plain.h"

/* After these the context is of no use any more ("sticky" errors). */
static bool ends_context(CuResult result) {
    switch (result) {
    case CU_DEVICE_UNAVAILABLE:
    case CU_ECC_UNCORRECTABLE:
    case CU_ILLEGAL_ADDRESS:
    case CU_LAUNCH_TIMEOUT:
    case CU_CONTEXT_IS_DESTROYED:
    case CU_ASSERT:
    case CU_HARDWARE_STACK_ERROR:
    case CU_ILLEGAL_INSTRUCTION:
    case CU_MISALIGNED_ADDRESS:
    case CU_INVALID_ADDRESS_SPACE:
    case CU_INVALID_PC:
    case CU_LAUNCH_FAILED: return true;
    default: return false;
    }
}

Status cuda_error(const CudaDriver *api, StatusCode code, CuResult result, const char *what) {
    const char *name = NULL, *text = NULL;
    if (api->error_name(result, &name) || !name) name = "unknown error";
    if (api->error_text(result, &text) || !text) text = "the driver has no text for it";
    return status_error(code, "CUDA: %s: %s (%s, %d)", what, text, name, (int)result);
}

Status cuda_check(CudaContext *c, CuResult result, const char *format, ...) {
    if (result == CU_OK) return NULL;
    if (ends_context(result)) {
        int none = CU_OK;
        atomic_compare_exchange_strong(&c->lost, &none, (int)result);
    }
    char what[256];
    va_list args;
    va_start(args, format);
    plain_vprint(what, sizeof what, format, args);
    va_end(args);
    return cuda_error(c->api, STATUS_FAULT, result, what);
}

Status cuda_lost(CudaContext *c) {
    int lost = atomic_load(&c->lost);
    if (!lost) return NULL;
    return cuda_error(c->api, STATUS_FAULT, (CuResult)lost,
                      "the GPU failed earlier and can be used again when all sessions on it are closed");
}
