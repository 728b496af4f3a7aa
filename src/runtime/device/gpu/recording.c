/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings on a GPU: the driver's, with what the device adds to a stream's work: memory that steps share, and
 * faults, which a kernel reports when it is replayed as well. */
#include <stdlib.h>

#include "runtime/device/gpu/gpu.h"

struct DeviceRecording {
    void *recorded; /* the driver's */
    void *scratch;  /* that its kernels use */
    bool may_fault;
    const Node *suspect;
};

Status gpu_not_recorded(const char *what) { return status_error(STATUS_FAULT, "%s cannot be recorded", what); }

/* --- memory that steps share --- */

Status gpu_stream_scratch(Device *device, Stream *stream, size_t bytes, void **out_data) {
    GpuStream *s = gpu_stream(stream);
    void *grown;
    size_t rounded = 1 << 16; /* powers of two, so that growing sizes ask seldom */
    *out_data = s->scratch;
    if (s->scratch && s->scratch_bytes >= bytes) return NULL;
    if (bytes > SIZE_MAX / 4) return status_out_of_memory();
    while (rounded < bytes) rounded *= 2;
    TRY(gpu_allocate(device, stream, NULL, rounded, &grown));
    gpu_release(device, stream, NULL, s->scratch); /* after the work that uses it */
    *out_data = s->scratch = grown;
    s->scratch_bytes = rounded;
    return NULL;
}

/* --- recordings --- */

bool gpu_records(const Device *device) {
    const GpuDriver *driver = gpu_device(device)->driver;
    return driver->record_begin && driver->record_end && driver->record_abandon && driver->replay &&
           driver->record_free;
}

Status gpu_record_begin(Device *device, Stream *stream) {
    GpuDevice *d = gpu_device(device);
    GpuStream *s = gpu_stream(stream);
    TRY(gpu_watch(d, d->driver->record_begin(d->context, s->stream)));
    s->recording = true;
    s->may_fault = false; /* what came before was waited for */
    return NULL;
}

/* The kernels of the recording name the stream's scratch: it is the recording's from now on. */
Status gpu_record_end(Device *device, Stream *stream, DeviceRecording **out_recording) {
    GpuDevice *d = gpu_device(device);
    GpuStream *s = gpu_stream(stream);
    DeviceRecording *r = calloc(1, sizeof *r);
    s->recording = false;
    if (!r) {
        gpu_record_abandon(device, stream);
        return status_out_of_memory();
    }
    *r = (DeviceRecording){.may_fault = s->may_fault, .suspect = s->suspect};
    s->may_fault = false;
    Status status = gpu_watch(d, d->driver->record_end(d->context, s->stream, &r->recorded));
    if (status) {
        free(r);
        return status;
    }
    r->scratch = s->scratch;
    s->scratch = NULL;
    s->scratch_bytes = 0;
    *out_recording = r;
    return NULL;
}

void gpu_record_abandon(Device *device, Stream *stream) {
    GpuDevice *d = gpu_device(device);
    GpuStream *s = gpu_stream(stream);
    s->recording = false;
    s->may_fault = false; /* nothing was done */
    status_free(gpu_watch(d, d->driver->record_abandon(d->context, s->stream)));
}

Status gpu_replay(Device *device, Stream *stream, DeviceRecording *r) {
    GpuDevice *d = gpu_device(device);
    GpuStream *s = gpu_stream(stream);
    TRY(gpu_watch(d, d->driver->replay(d->context, s->stream, r->recorded)));
    if (r->may_fault) {
        s->may_fault = true;
        s->suspect = r->suspect;
    }
    return NULL;
}

void gpu_record_free(Device *device, DeviceRecording *r) {
    GpuDevice *d = gpu_device(device);
    if (!r) return;
    d->driver->record_free(d->context, r->recorded);
    gpu_release(device, NULL, NULL, r->scratch);
    free(r);
}
