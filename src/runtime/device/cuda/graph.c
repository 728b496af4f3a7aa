/* Recordings: what a stream would do, captured as a CUDA graph. driver.h says what may be recorded. */
#include <stdlib.h>

#include "runtime/device/cuda/context.h"

typedef struct Recording {
    CuGraphExec exec;
    pthread_mutex_t lock;      /* the driver leaves the calls on one graph to us to order */
    CuDevicePointer workspace; /* that products of the recording use; 0: none */
    CuEvent done;              /* after the last use of the workspace; NULL where there is none */
    const CudaStream *last;    /* the stream of that use */
} Recording;

Status cuda_record_begin(CudaContext *c, CudaStream *s) {
    if (s->recording) return status_error(STATUS_FAULT, "CUDA: the stream is being recorded already");
    TRY(cuda_check(c, c->api->capture_begin(s->handle, CU_CAPTURE_THREAD_LOCAL), "cannot begin a recording"));
    s->recording = true;
    s->workspace_recorded = false;
    return NULL;
}

/* The graph names the stream's workspace: from now on it is the recording's, and the stream takes another. Work that
 * was queued before the recording may still use it. */
static Status take_workspace(CudaContext *c, CudaStream *s, Recording *r) {
    TRY(cuda_check(c, c->api->event_create(&r->done, CU_EVENT_WITHOUT_TIMING), "cannot create an event"));
    Status status = cuda_check(c, c->api->event_record(r->done, s->handle), "cannot record an event");
    if (status) {
        c->api->event_destroy(r->done);
        return status;
    }
    r->last = s;
    r->workspace = s->workspace;
    s->workspace = 0;
    return NULL;
}

static Status make_recording(CudaContext *c, CudaStream *s, CuGraph graph, void **out_recording) {
    Recording *r = calloc(1, sizeof *r);
    if (!r) return status_out_of_memory();
    Status status = cuda_check(c, c->api->graph_instantiate(&r->exec, graph, 0), "cannot make a recording ready");
    if (!status && s->workspace_recorded) {
        status = take_workspace(c, s, r);
        if (status) c->api->exec_destroy(r->exec);
    }
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
    if (!status) status = make_recording(c, s, graph, out_recording);
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

/* Keeps `done` behind the last use. */
static Status replay_with_workspace(CudaContext *c, CudaStream *s, Recording *r) {
    if (s != r->last) TRY(cuda_check(c, c->api->stream_wait(s->handle, r->done, 0), "cannot wait for an event"));
    TRY(cuda_check(c, c->api->exec_launch(r->exec, s->handle), "cannot replay a recording"));
    r->last = s;
    CuResult result = c->api->event_record(r->done, s->handle);
    if (result) c->api->stream_synchronize(s->handle); /* then there is nothing to wait for */
    return cuda_check(c, result, "cannot record an event");
}

Status cuda_replay(CudaContext *c, CudaStream *s, void *recording) {
    Recording *r = recording;
    if (s->recording) return status_error(STATUS_FAULT, "CUDA: a recording cannot be replayed into another");
    pthread_mutex_lock(&r->lock);
    Status status = r->workspace ? replay_with_workspace(c, s, r)
                                 : cuda_check(c, c->api->exec_launch(r->exec, s->handle), "cannot replay a recording");
    pthread_mutex_unlock(&r->lock);
    return status;
}

void cuda_record_free(CudaContext *c, void *recording) {
    Recording *r = recording;
    if (!r) return;
    c->api->exec_destroy(r->exec); /* one in flight ends first */
    if (r->workspace) {
        pthread_mutex_lock(&c->own.lock);
        if (c->api->stream_wait(c->own.handle, r->done, 0)) c->api->event_synchronize(r->done);
        cuda_release(c, &c->own, r->workspace);
        pthread_mutex_unlock(&c->own.lock);
        c->api->event_destroy(r->done);
    }
    pthread_mutex_destroy(&r->lock);
    free(r);
}
