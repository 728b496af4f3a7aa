/* The driver table over CUDA: libcuda, NVRTC and cuBLASLt, all opened at run time. */
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
 *   inside the device, all on memory that lives as long as the recording. Host memory of a COPY_IN or COPY_OUT is read
 *   or written at each replay, so it lives as long, too, and is not to be touched between replay and synchronize.
 *   Products should have run once before they are recorded, since a library may load its kernels on first use. The
 *   recording keeps the library's workspace that it names. It may be replayed on any stream; replays of one recording
 *   follow each other.
 * - After a fault on the device (an address out of bounds, say) CUDA gives the whole context up: every call fails with
 *   the first message, and the device works again when all who opened it have closed it. */
extern const GpuDriver cuda_driver;

#endif
