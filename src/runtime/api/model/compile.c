/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse_compile: a model opened as a session, and written down. */
#include <stdlib.h>

#include "runtime/api/session.h"
#include "runtime/compiled/compiled.h"

typedef struct Job {
    const char *path; /* or: */
    const void *bytes;
    size_t size;
    const char *folder;
    const OnnxfuseOptions *options;
    CompileTarget to;
    char **out_report; /* or NULL */
    OnnxfuseSession *session;
} Job;

static Status write_session(Arena *arena, void *context) {
    const Job *job = context;
    const OnnxfuseSession *s = job->session;
    CompileSource source = {.policy = &s->policy,
                            .graph = s->graph,
                            .plan = s->plan,
                            .outputs = s->outputs,
                            .kernels = &s->kernels,
                            .nodes = s->nodes,
                            .primitives = s->primitives};
    TRY(session_policy_json(job->options, job->path, arena, &source.policy_json));
    return compiled_write(arena, &source, &job->to, job->out_report);
}

static Status compile(Job *job) {
    TRY(session_open_to_compile(job->path, job->bytes, job->size, job->folder, job->options, &job->session));
    Status status = call_with_arena(write_session, job);
    onnxfuse_session_close(job->session);
    return status;
}

OnnxfuseStatus onnxfuse_compile(const char *path, const OnnxfuseOptions *options, const char *out_path,
                                char **out_report) {
    if (compiled_is_file(path)) return status_error(STATUS_USAGE, "\"%s\" is compiled already", path);
    return compile(&(Job){.path = path, .options = options, .to.path = out_path, .out_report = out_report});
}

OnnxfuseStatus onnxfuse_compile_memory(const void *bytes, size_t size, const char *folder,
                                       const OnnxfuseOptions *options, void **out_bytes, size_t *out_size) {
    if (compiled_is(bytes, size)) return status_error(STATUS_USAGE, "the model is compiled already");
    return compile(&(Job){.bytes = bytes,
                          .size = size,
                          .folder = folder,
                          .options = options,
                          .to = {.out_bytes = out_bytes, .out_size = out_size}});
}
