/* SPDX-License-Identifier: Apache-2.0 */
/* The driver table over CUDA: libcuda, NVRTC and cuBLASLt, all opened at run time. Every call leaves the thread with the
 * context that was current on it before, none included. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CUDA_DRIVER_H
#define ONNXFUSE_RUNTIME_DEVICE_CUDA_DRIVER_H

#include "runtime/device/gpu/driver.h"

/* Beside the words of GpuDriver:
 * - A NULL stream means now: the work is done when the call returns. Nothing may be pending on memory that is released
 *   without a stream.
 * - `to` of a COPY_OUT stays valid until `synchronize` or `stream_destroy`, also after a failure between;
 * stream_destroy does not finish copies that were not waited for.
 * - A recording begins and ends on the same thread, which allocates, loads and releases nothing between, on other
 *   streams neither. What may be recorded: launches, products, fill_zero and copies
 *   inside the device, all on memory (a product's workspace, too) that lives as long as the recording.
 *   Products should have run once before they are recorded, since a library may load its kernels on first use. A
 *   recording may be replayed on any stream; replays of one recording follow each other.
 * - After a fault on the device (an address out of bounds, say) CUDA gives the whole context up: every call fails with
 *   the first message, and the device works again when all who opened it have closed it. */
extern const GpuDriver cuda_driver;

#endif
