/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: what a stream would do, captured as a CUDA graph. driver.h says what may be recorded. */
#include "runtime/device/cuda/graph.h"

#include <stdlib.h>

typedef struct Recording {
    CuGraphExec exec;
    pthread_mutex_t lock; /* the driver leaves the calls on one graph to us to order */
} Recording;

Status cuda_record_begin(CudaContext *c, CudaStream *s) {
    if (s->recording) return status_error(STATUS_FAULT, "CUDA: the stream is being recorded already");
    TRY(cuda_check(c, c->api->capture_begin(s->handle, CU_CAPTURE_THREAD_LOCAL), "cannot begin a recording"));
    s->recording = true;
    return NULL;
}

static Status make_recording(CudaContext *c, CuGraph graph, void **out_recording) {
    Recording *r = calloc(1, sizeof *r);
    if (!r) return status_out_of_memory();
    Status status = cuda_check(c, c->api->graph_instantiate(&r->exec, graph, 0), "cannot make a recording ready");
    if (status) {
        free(r);
        return status;
    }
    pthread_mutex_init(&r->lock, NULL);
    *out_recording = r;
    return NULL;
}

Status cuda_record_end(CudaContext *c, CudaStream *s, void **out_recording) {
    if (!s->recording) return status_error(STATUS_FAULT, "CUDA: the stream is not being recorded");
    CuGraph graph = NULL;
    s->recording = false;
    CuResult result = c->api->capture_end(s->handle, &graph);
    if (!result && !graph) result = CU_CAPTURE_INVALIDATED;
    Status status = cuda_check(c, result, "cannot end a recording");
    if (!status) status = make_recording(c, graph, out_recording);
    if (graph) c->api->graph_destroy(graph);
    return status;
}

Status cuda_record_abandon(CudaContext *c, CudaStream *s) {
    if (!s->recording) return NULL;
    CuGraph graph = NULL;
    s->recording = false;
    CuResult result = c->api->capture_end(s->handle, &graph);
    if (graph) c->api->graph_destroy(graph);
    /* That the capture failed is why it is abandoned. */
    if (result == CU_CAPTURE_INVALIDATED) return NULL;
    return cuda_check(c, result, "cannot end a recording");
}

Status cuda_replay(CudaContext *c, CudaStream *s, void *recording) {
    Recording *r = recording;
    if (s->recording) return status_error(STATUS_FAULT, "CUDA: a recording cannot be replayed into another");
    pthread_mutex_lock(&r->lock);
    Status status = cuda_check(c, c->api->exec_launch(r->exec, s->handle), "cannot replay a recording");
    pthread_mutex_unlock(&r->lock);
    return status;
}

void cuda_record_free(CudaContext *c, void *recording) {
    Recording *r = recording;
    if (!r) return;
    c->api->exec_destroy(r->exec); /* one in flight ends first */
    pthread_mutex_destroy(&r->lock);
    free(r);
}
