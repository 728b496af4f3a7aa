/* SPDX-License-Identifier: Apache-2.0 */
/* Forward and backward apart: two sessions over the halves of one joint graph (optimize/apart.h), which is made twice, alike. */
#include "runtime/api/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "importer/importer.h"
#include "optimize/apart.h"
#include "optimize/training.h"
#include "runtime/api/model/model_file.h"

typedef enum Half { HALF_FORWARD, HALF_BACKWARD, HALVES } Half;

struct OnnxfusePasses {
    Arena *arena;
    Policy policy;
    OnnxfuseSession *sessions[HALVES];
    OnnxfuseValue **weights; /* [input_count] NULL for inputs of the model */
    int input_count, output_count, gradient_count, seed_count, saved_count;
    const int *gradient_of; /* [gradient_count] inputs */
    const int *seed_of;     /* [output_count] number of the output's gradient among the seeds, or -1 */
    atomic_ullong runs;
};

struct OnnxfuseSaved {
    OnnxfusePasses *passes;
    uint64_t run_number;          /* masks are drawn again */
    const OnnxfuseValue **inputs; /* [input_count] the caller's */
    OnnxfuseValue **values;       /* [saved_count] */
    OnnxfuseValue **
        nothing; /* [output_count] a tensor of the output's type and shape, without memory; NULL: no tensor of floats */
};

/* --- opening ------------------------------------------------------------------------------------------------------------- */

typedef struct Opening {
    OnnxfusePasses *passes;
    const char *path;
    const OnnxfuseOptions *options;
    Half half;
    Graph *graph, *twin;
    Apart apart;
} Opening;

static void split(void *user, Graph *graph) {
    Opening *o = user;
    o->apart.backward = o->half == HALF_BACKWARD;
    split_apart(graph, &o->apart);
}

static int input_named(const Graph *graph, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(graph->inputs.items[i]->name, name) == 0) return i;
    return -1;
}

static Status take_weight(OnnxfusePasses *p, const TrainedTensor *tensor, int input) {
    int64_t dims[MAX_RANK];
    const Value *like = tensor->like;
    for (int i = 0; i < like->rank; i++) dim_is_const(like->dims[i], &dims[i]); /* as weights are */
    TRY(onnxfuse_value_tensor((OnnxfuseDType)like->dtype, like->rank, dims, NULL, &p->weights[input]));
    size_t bytes = tensor_bytes(&p->weights[input]->item.tensor);
    if (bytes) memcpy(p->weights[input]->item.tensor.data, tensor->initial->data, bytes);
    return NULL;
}

/* What the passes know of the joint graph. */
static Status describe(Opening *o, const TrainingStep *step) {
    OnnxfusePasses *p = o->passes;
    int *gradient_of = ARENA_ARRAY(p->arena, int, step->tensor_count + 1),
        *seed_of = ARENA_ARRAY(p->arena, int, step->gradients + 1);
    p->input_count = step->seeds;
    p->output_count = step->gradients;
    p->gradient_count = step->tensor_count;
    p->seed_count = o->graph->inputs.count - step->seeds;
    p->weights = ARENA_ARRAY(p->arena, OnnxfuseValue *, p->input_count + 1);
    for (int i = 0; i < p->output_count; i++) seed_of[i] = step->seed_of[i] < 0 ? -1 : step->seed_of[i] - step->seeds;
    for (int i = 0; i < step->tensor_count; i++) {
        const TrainedTensor *tensor = &step->tensors[i];
        gradient_of[i] = input_named(o->graph, p->input_count, tensor->name);
        if (tensor->initial) TRY(take_weight(p, tensor, gradient_of[i]));
    }
    p->gradient_of = gradient_of;
    p->seed_of = seed_of;
    return NULL;
}

static Status open_half(Opening *o, jmp_buf *guard) {
    static const ImportOptions as_sessions = {.unaligned_weights = true};
    OnnxfusePasses *p = o->passes;
    TrainingOptions wanted = {.wanted = &p->policy.training, .kind = TRAIN_APART};
    TrainingStep step;
    OnnxfuseOptions given;
    TRY(session_options_of(o->options, o->path, p->arena, &given));
    TRY(model_file_import(o->path, &as_sessions, &o->graph));
    TRY(model_file_import(o->path, &as_sessions, &o->twin));
    wanted.twin = o->twin;
    arena_guard(o->graph->arena, guard);
    arena_guard(o->twin->arena, guard);
    TRY(policy_blamed(&p->policy, training_step(o->graph, &wanted, &step)));
    o->apart = (Apart){.seeds = step.seeds, .gradients = step.gradients};
    if (o->half == HALF_FORWARD) TRY(describe(o, &step));
    graph_destroy(o->twin);
    o->twin = NULL;
    Graph *taken = o->graph;
    taken->seeds = o->apart.seeds;
    o->graph = NULL;
    arena_guard(taken->arena, NULL);
    return session_open_graph(taken, (GraphChange){split, o}, &given, &p->sessions[o->half]);
}

static Status open_guarded(Opening *o) {
    jmp_buf guard;
    OnnxfusePasses *p = o->passes;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(p->arena, &guard);
    TRY(session_policy(o->options, o->path, p->arena, &p->policy));
    for (o->half = HALF_FORWARD; o->half < HALVES; o->half++) {
        TRY(open_half(o, &guard));
        if (o->half == HALF_BACKWARD && o->apart.saved != p->saved_count)
            return status_error(STATUS_FAULT, "the model changed while it was opened");
        p->saved_count = o->apart.saved;
    }
    return NULL;
}

OnnxfuseStatus onnxfuse_passes_open(const char *path, const OnnxfuseOptions *options, OnnxfusePasses **out_passes) {
    TRY(fork_enter());
    OnnxfusePasses *p = calloc(1, sizeof *p);
    Status status = status_out_of_memory();
    if (p && (p->arena = arena_create(0))) {
        Opening o = {.passes = p, .path = path, .options = options};
        status = open_guarded(&o);
        arena_guard(p->arena, NULL);
        graph_destroy(o.twin);
        graph_destroy(o.graph);
    }
    if (status)
        onnxfuse_passes_close(p);
    else
        *out_passes = p;
    fork_leave();
    return status;
}

void onnxfuse_passes_close(OnnxfusePasses *p) {
    if (!p) return;
    for (int i = 0; i < HALVES; i++) onnxfuse_session_close(p->sessions[i]);
    for (int i = 0; i < p->input_count; i++) onnxfuse_value_free(p->weights[i]);
    arena_destroy(p->arena);
    free(p);
}

int onnxfuse_passes_input_count(const OnnxfusePasses *p) { return p->input_count; }
int onnxfuse_passes_output_count(const OnnxfusePasses *p) { return p->output_count; }
int onnxfuse_passes_gradient_count(const OnnxfusePasses *p) { return p->gradient_count; }

const OnnxfuseValueInfo *onnxfuse_passes_input(const OnnxfusePasses *p, int index) {
    return index < p->input_count ? onnxfuse_session_input(p->sessions[HALF_FORWARD], index) : NULL;
}

const OnnxfuseValueInfo *onnxfuse_passes_output(const OnnxfusePasses *p, int index) {
    return index < p->output_count ? onnxfuse_session_output(p->sessions[HALF_FORWARD], index) : NULL;
}

const OnnxfuseValue *onnxfuse_passes_weight(const OnnxfusePasses *p, int index) {
    return index >= 0 && index < p->input_count ? p->weights[index] : NULL;
}

int onnxfuse_passes_gradient_of(const OnnxfusePasses *p, int index) {
    return index >= 0 && index < p->gradient_count ? p->gradient_of[index] : -1;
}

/* --- what is saved ---------------------------------------------------------------------------------------------------------- */

static OnnxfuseSaved *new_saved(OnnxfusePasses *p) {
    OnnxfuseSaved *saved = calloc(1, sizeof *saved);
    if (!saved) return NULL;
    saved->passes = p;
    saved->inputs = calloc((size_t)p->input_count + 1, sizeof *saved->inputs);
    saved->values = calloc((size_t)p->saved_count + 1, sizeof *saved->values);
    saved->nothing = calloc((size_t)p->output_count + 1, sizeof *saved->nothing);
    if (saved->inputs && saved->values && saved->nothing) return saved;
    onnxfuse_saved_free(saved);
    return NULL;
}

void onnxfuse_saved_free(OnnxfuseSaved *saved) {
    if (!saved) return;
    for (int i = 0; saved->values && i < saved->passes->saved_count; i++) onnxfuse_value_free(saved->values[i]);
    for (int i = 0; saved->nothing && i < saved->passes->output_count; i++) onnxfuse_value_free(saved->nothing[i]);
    free(saved->inputs);
    free(saved->values);
    free(saved->nothing);
    free(saved);
}

int64_t onnxfuse_saved_bytes(const OnnxfuseSaved *saved) {
    int64_t bytes = 0;
    for (int i = 0; i < saved->passes->saved_count; i++) bytes += (int64_t)onnxfuse_value_bytes(saved->values[i]);
    return bytes;
}

/* --- passes --- */

/* The shapes of outputs, for gradients that are left out. */
static Status keep_shapes(OnnxfuseSaved *saved, OnnxfuseValue *const *outputs) {
    static char no_memory;
    const OnnxfusePasses *p = saved->passes;
    for (int i = 0; i < p->output_count; i++) {
        if (p->seed_of[i] < 0) continue;
        const Tensor *t = &outputs[i]->item.tensor;
        TRY(onnxfuse_value_tensor((OnnxfuseDType)t->dtype, t->rank, t->dims, &no_memory, &saved->nothing[i]));
    }
    return NULL;
}

static Status run_forward(OnnxfusePasses *p, const OnnxfuseValue *const *inputs, OnnxfuseValue **outputs,
                          const OnnxfuseRunOptions *options, OnnxfuseSaved *saved, OnnxfuseValue **all) {
    memcpy(all, outputs, (size_t)p->output_count * sizeof *all);
    saved->run_number = atomic_fetch_add(&p->runs, 1);
    for (int i = 0; i < p->input_count; i++) saved->inputs[i] = inputs[i];
    TRY(session_run_as(p->sessions[HALF_FORWARD], inputs, all, options, saved->run_number));
    memcpy(saved->values, all + p->output_count, (size_t)p->saved_count * sizeof *all);
    Status status = keep_shapes(saved, all);
    for (int i = 0; i < p->output_count; i++) {
        if (status && !outputs[i]) onnxfuse_value_free(all[i]);
        if (!status) outputs[i] = all[i];
    }
    return status;
}

OnnxfuseStatus onnxfuse_passes_forward(OnnxfusePasses *p, const OnnxfuseValue *const *inputs, OnnxfuseValue **outputs,
                                       const OnnxfuseRunOptions *options, OnnxfuseSaved **out_saved) {
    OnnxfuseSaved *saved = new_saved(p);
    OnnxfuseValue **all = calloc((size_t)(p->output_count + p->saved_count) + 1, sizeof *all);
    Status status = saved && all ? run_forward(p, inputs, outputs, options, saved, all) : status_out_of_memory();
    free(all);
    if (status || !out_saved)
        onnxfuse_saved_free(saved);
    else
        *out_saved = saved;
    return status;
}

/* zeros [output_count]: made for gradients that are left out. */
static Status run_backward(const OnnxfuseSaved *saved, const OnnxfuseValue *const *output_gradients,
                           OnnxfuseValue **gradients, const OnnxfuseRunOptions *options, const OnnxfuseValue **inputs,
                           OnnxfuseValue **zeros) {
    const OnnxfusePasses *p = saved->passes;
    const OnnxfuseValue **seeds = inputs + p->input_count, **values = seeds + p->seed_count;
    memcpy(inputs, saved->inputs, (size_t)p->input_count * sizeof *inputs);
    for (int i = 0; i < p->output_count; i++) {
        if (p->seed_of[i] < 0) continue;
        const Tensor *like = &saved->nothing[i]->item.tensor;
        if (!output_gradients[i]) {
            TRY(onnxfuse_value_tensor((OnnxfuseDType)like->dtype, like->rank, like->dims, NULL, &zeros[i]));
            memset(zeros[i]->item.tensor.data, 0, tensor_bytes(like));
        } else if (!tensor_same_shape(like, &output_gradients[i]->item.tensor)) {
            return status_error(STATUS_INVALID, "the gradient of output \"%s\" has another shape than the output",
                                onnxfuse_passes_output(p, i)->name);
        }
        seeds[p->seed_of[i]] = output_gradients[i] ? output_gradients[i] : zeros[i];
    }
    for (int i = 0; i < p->saved_count; i++) values[i] = saved->values[i];
    return session_run_as(p->sessions[HALF_BACKWARD], inputs, gradients, options, saved->run_number);
}

OnnxfuseStatus onnxfuse_passes_backward(const OnnxfuseSaved *saved, const OnnxfuseValue *const *output_gradients,
                                        OnnxfuseValue **gradients, const OnnxfuseRunOptions *options) {
    const OnnxfusePasses *p = saved->passes;
    const OnnxfuseValue **inputs =
        calloc((size_t)(p->input_count + p->seed_count + p->saved_count) + 1, sizeof *inputs);
    OnnxfuseValue **zeros = calloc((size_t)p->output_count + 1, sizeof *zeros);
    Status status = inputs && zeros ? run_backward(saved, output_gradients, gradients, options, inputs, zeros)
                                    : status_out_of_memory();
    for (int i = 0; zeros && i < p->output_count; i++) onnxfuse_value_free(zeros[i]);
    free(zeros);
    free(inputs);
    return status;
}
