/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse_compile: a model opened as a session, and written down. */
#include <stdlib.h>

#include "runtime/api/session.h"
#include "runtime/compiled/compiled.h"
#include "base/fork.h"

typedef struct Job {
    const char *path; /* or: */
    const void *bytes;
    size_t size;
    const char *folder;
    const OnnxfuseOptions *options;
    CompileTarget to;
    char **out_report; /* or NULL */
} Job;

static Status write_session(Arena *arena, const OnnxfuseSession *s, const Job *job) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
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

static Status compile(const Job *job) {
    OnnxfuseSession *session;
    TRY(session_open_to_compile(job->path, job->bytes, job->size, job->folder, job->options, &session));
    TRY(fork_enter());
    Arena *arena = arena_create(0);
    Status status = arena ? write_session(arena, session, job) : status_out_of_memory();
    arena_destroy(arena);
    fork_leave();
    onnxfuse_session_close(session);
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
