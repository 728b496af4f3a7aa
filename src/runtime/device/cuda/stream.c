/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: none of them waits for the default stream, which belongs to the embedder. */
#include "runtime/device/cuda/stream.h"

#include "runtime/device/cuda/graph.h"
#include "runtime/device/cuda/memory.h"

Status cuda_stream_open(CudaContext *c, CudaStream *s) {
    CuStream handle;
    TRY(cuda_check(c, c->api->stream_create(&handle, CU_STREAM_NONBLOCKING), "cannot create a stream"));
    pthread_mutex_init(&s->lock, NULL);
    s->handle = handle;
    return NULL;
}

void cuda_stream_close(CudaContext *c, CudaStream *s) {
    if (!s->handle) return;
    status_free(cuda_record_abandon(c, s));
    c->api->stream_synchronize(s->handle);
    cuda_staging_free(c, s);
    c->api->stream_destroy(s->handle);
    pthread_mutex_destroy(&s->lock);
    s->handle = NULL;
}
