/* SPDX-License-Identifier: Apache-2.0 */
/* Training: a session over the graph of one step (optimize/training.h), and the tensors that it keeps from step to step. A step is given the
 * same memory for a tensor's old and new value, and writes it when all else is done (runtime/plan/states.c), so that a step that fails or is
 * cancelled changes nothing. */
#include "runtime/api/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "importer/files.h"
#include "importer/importer.h"
#include "optimize/training.h"
#include "runtime/api/model_file.h"

static const char CHECKPOINT_STEPS[] = "onnxfuse.training.steps"; /* key of a checkpoint's metadata */

typedef struct Kept {
    const char *name;
    bool is_state;
    int input, output; /* of the session */
    OnnxfuseValue *now;
} Kept;

struct OnnxfuseTraining {
    Arena *arena;
    const char *path; /* of the model */
    Policy policy;
    OnnxfuseSession *session;
    int data_inputs;
    Kept *kept; /* [kept_count] */
    int kept_count;
    int numbers[TRAINING_NUMBERS];
    OnnxfuseValue *number_values[TRAINING_NUMBERS];
    int64_t steps; /* done */
    const OnnxfuseValue **inputs;
    OnnxfuseValue **outputs; /* of the session */
};

/* --- opening -------------------------------------------------------------------------------------------------------------- */

static Status keep_tensor(const TrainedTensor *tensor, Arena *arena, Kept *kept) {
    int64_t dims[MAX_RANK];
    const Value *like = tensor->like;
    *kept = (Kept){.name = arena_string(arena, tensor->name),
                   .is_state = tensor->is_state,
                   .input = tensor->input,
                   .output = tensor->output};
    for (int i = 0; i < like->rank; i++) dim_is_const(like->dims[i], &dims[i]); /* as weights are */
    TRY(onnxfuse_value_tensor((OnnxfuseDType)like->dtype, like->rank, dims, NULL, &kept->now));
    size_t bytes = tensor_bytes(&kept->now->item.tensor);
    if (tensor->initial && bytes) memcpy(kept->now->item.tensor.data, tensor->initial->data, bytes);
    if (!tensor->initial && bytes) memset(kept->now->item.tensor.data, 0, bytes);
    return NULL;
}

static Status keep_tensors(OnnxfuseTraining *t, const Graph *graph, const TrainingStep *step) {
    t->kept = ARENA_ARRAY(t->arena, Kept, step->tensor_count);
    for (int i = 0; i < step->tensor_count; i++) {
        TRY(keep_tensor(&step->tensors[i], t->arena, &t->kept[i]));
        t->kept_count = i + 1;
        if (step->tensors[i].initial) import_discard(graph, step->tensors[i].initial);
    }
    for (int i = 0; i < TRAINING_NUMBERS; i++) {
        t->numbers[i] = step->numbers[i];
        if (t->numbers[i] >= 0) TRY(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 0, NULL, NULL, &t->number_values[i]));
    }
    t->data_inputs = step->data_inputs;
    t->inputs = ARENA_ARRAY(t->arena, const OnnxfuseValue *, graph->inputs.count);
    t->outputs = ARENA_ARRAY(t->arena, OnnxfuseValue *, graph->outputs.count);
    return NULL;
}

static Status make_step(OnnxfuseTraining *t, Graph *graph, Graph *twin, jmp_buf *guard) {
    TrainingOptions wanted = {.wanted = &t->policy.training, .twin = twin};
    TrainingStep step;
    arena_guard(graph->arena, guard);
    arena_guard(twin->arena, guard);
    TRY(training_step(graph, &wanted, &step));
    TRY(keep_tensors(t, graph, &step));
    arena_guard(graph->arena, NULL);
    return NULL;
}

/* The graph is the session's then. */
static Status open_step(OnnxfuseTraining *t, Graph *graph, const OnnxfuseOptions *options) {
    OnnxfuseOptions given = options ? *options : (OnnxfuseOptions){.size = sizeof given};
    const char *json = NULL;
    Status status = session_policy_json(options, t->path, t->arena, &json);
    if (status) {
        graph_destroy(graph);
        return status;
    }
    given.policy_file = NULL;
    given.policy_json = json ? json : "{}";
    TRY(session_open_graph(graph, &given, &t->session));
    const OnnxfuseValueInfo *loss = onnxfuse_session_output(t->session, 0);
    for (int i = 0; i < loss->rank; i++)
        if (loss->dims[i] != 1)
            return status_error(STATUS_USAGE, "training.loss: \"%s\" is no single number (reduce it, or name another)",
                                loss->name);
    return NULL;
}

static Status open_guarded(OnnxfuseTraining *t, const OnnxfuseOptions *options) {
    static const ImportOptions as_sessions = {.unaligned_weights = true};
    Graph *volatile graph = NULL, *volatile twin = NULL;
    jmp_buf guard;
    Status status;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(t->arena, &guard);
        status = session_policy(options, t->path, t->arena, &t->policy);
        if (!status) status = import_file(t->path, &as_sessions, (Graph **)&graph);
        if (!status) status = import_file(t->path, &as_sessions, (Graph **)&twin);
        if (!status) status = make_step(t, graph, twin, &guard);
        graph_destroy(twin);
        Graph *made = graph;
        graph = twin = NULL;
        if (status)
            graph_destroy(made);
        else
            status = open_step(t, made, options);
        arena_guard(t->arena, NULL);
    }
    graph_destroy(twin);
    graph_destroy(graph);
    return status;
}

OnnxfuseStatus onnxfuse_training_open(const char *path, const OnnxfuseOptions *options,
                                      OnnxfuseTraining **out_training) {
    TRY(fork_enter());
    OnnxfuseTraining *t = calloc(1, sizeof *t);
    Status status = NULL;
    if (!t || !(t->arena = arena_create(0))) {
        status = status_out_of_memory();
    } else {
        t->path = strdup(path);
        status = t->path ? open_guarded(t, options) : status_out_of_memory();
    }
    if (status)
        onnxfuse_training_close(t);
    else
        *out_training = t;
    fork_leave();
    return status;
}

void onnxfuse_training_close(OnnxfuseTraining *t) {
    if (!t) return;
    onnxfuse_session_close(t->session);
    for (int i = 0; i < t->kept_count; i++) onnxfuse_value_free(t->kept[i].now);
    for (int i = 0; i < TRAINING_NUMBERS; i++) onnxfuse_value_free(t->number_values[i]);
    free((char *)(uintptr_t)t->path);
    arena_destroy(t->arena);
    free(t);
}

int onnxfuse_training_input_count(const OnnxfuseTraining *t) { return t->data_inputs; }

const OnnxfuseValueInfo *onnxfuse_training_input(const OnnxfuseTraining *t, int index) {
    return index >= 0 && index < t->data_inputs ? onnxfuse_session_input(t->session, index) : NULL;
}

OnnxfuseSession *onnxfuse_training_session(OnnxfuseTraining *t) { return t->session; }
int64_t onnxfuse_training_steps(const OnnxfuseTraining *t) { return t->steps; }

/* --- steps ----------------------------------------------------------------------------------------------------------------- */

/* The rate rises from 0 over the first steps, and falls to 0 behind the last. */
double onnxfuse_training_rate(const OnnxfuseTraining *t) {
    const struct Training *wanted = &t->policy.training;
    double step = (double)t->steps + 1, warmup = (double)wanted->warmup_steps;
    if (step <= warmup) return wanted->rate * step / warmup;
    double length = (double)wanted->steps - warmup;
    if (wanted->schedule == SCHEDULE_CONSTANT || length <= 0) return wanted->rate;
    double done = fmin(1, (step - 1 - warmup) / length);
    return wanted->rate * (wanted->schedule == SCHEDULE_LINEAR ? 1 - done : 0.5 * (1 + cos(M_PI * done)));
}

static double number_of(const OnnxfuseTraining *t, TrainingNumber number) {
    const struct Training *wanted = &t->policy.training;
    double step = (double)t->steps + 1;
    switch (number) {
    case NUMBER_RATE: return onnxfuse_training_rate(t);
    case NUMBER_CORRECTION1: return 1 / (1 - pow(wanted->beta1, step));
    default: return 1 / (1 - pow(wanted->beta2, step));
    }
}

OnnxfuseStatus onnxfuse_training_step(OnnxfuseTraining *t, const OnnxfuseValue *const *inputs,
                                      const OnnxfuseRunOptions *options, double *out_loss) {
    for (int i = 0; i < t->data_inputs; i++) t->inputs[i] = inputs[i];
    for (int i = 0; i < TRAINING_NUMBERS; i++) {
        if (t->numbers[i] < 0) continue;
        *(float *)t->number_values[i]->item.tensor.data = (float)number_of(t, (TrainingNumber)i);
        t->inputs[t->numbers[i]] = t->number_values[i];
    }
    t->outputs[0] = NULL;
    for (int i = 0; i < t->kept_count; i++) {
        t->inputs[t->kept[i].input] = t->kept[i].now;
        t->outputs[t->kept[i].output] = t->kept[i].now;
    }
    atomic_store(
        &t->session->runs,
        (unsigned long long)t->steps); /* random draws follow the steps, so a resumed training draws the same */
    TRY(onnxfuse_session_run_with(t->session, t->inputs, t->outputs, options));
    double loss = onnxfuse_value_count(t->outputs[0]) ? onnxfuse_value_element(t->outputs[0], 0) : NAN;
    onnxfuse_value_free(t->outputs[0]);
    t->steps++;
    if (out_loss) *out_loss = loss;
    return NULL;
}

/* --- what is kept ------------------------------------------------------------------------------------------------------------ */

int onnxfuse_training_tensor_count(const OnnxfuseTraining *t) { return t->kept_count; }

static const Kept *kept_at(const OnnxfuseTraining *t, int index) {
    return index >= 0 && index < t->kept_count ? &t->kept[index] : NULL;
}

const char *onnxfuse_training_tensor_name(const OnnxfuseTraining *t, int index) {
    const Kept *kept = kept_at(t, index);
    return kept ? kept->name : NULL;
}

bool onnxfuse_training_tensor_is_state(const OnnxfuseTraining *t, int index) {
    const Kept *kept = kept_at(t, index);
    return kept && kept->is_state;
}

const OnnxfuseValue *onnxfuse_training_tensor(const OnnxfuseTraining *t, int index) {
    const Kept *kept = kept_at(t, index);
    return kept ? kept->now : NULL;
}

static bool same_type(const Tensor *a, const Tensor *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

static Status set_kept(Kept *kept, const Tensor *tensor) {
    Tensor *own = &kept->now->item.tensor;
    if (!same_type(own, tensor))
        return status_error(STATUS_INVALID, "\"%s\" has another type or shape than what is given for it", kept->name);
    size_t bytes = tensor_bytes(own);
    if (bytes) memcpy(own->data, tensor->data, bytes);
    return NULL;
}

OnnxfuseStatus onnxfuse_training_set_tensor(OnnxfuseTraining *t, int index, const OnnxfuseValue *value) {
    if (!kept_at(t, index)) return status_error(STATUS_USAGE, "there is no tensor %d", index);
    if (value->item.kind != ITEM_TENSOR || value->on_device)
        return status_error(STATUS_INVALID, "\"%s\": a tensor in the host's memory is expected", t->kept[index].name);
    return set_kept(&t->kept[index], &value->item.tensor);
}

/* --- files --------------------------------------------------------------------------------------------------------------------- */

static Status write_graph(const Graph *graph, const MappedFile *original, ModelFile *file) {
    ExportOptions options = {0};
    if (original) {
        options.original = original->bytes;
        options.original_size = original->size;
    }
    TRY(model_file_write(file, graph, false, options));
    return model_file_publish(file);
}

/* Work on a graph, with all its memory guarded: it was read from file->model.path, or is written there. */
typedef Status (*GraphFn)(OnnxfuseTraining *t, Graph *graph, ModelFile *file);

static Status guarded(OnnxfuseTraining *t, Graph *graph, GraphFn work, const char *path, ModelFile *file) {
    jmp_buf guard;
    if (!graph || setjmp(guard)) return status_out_of_memory();
    arena_guard(graph->arena, &guard);
    model_file_at(file, graph->arena, path);
    Status status = work(t, graph, file);
    arena_guard(graph->arena, NULL);
    return status;
}

/* Destroys the graph. */
static Status with_graph(OnnxfuseTraining *t, Graph *graph, GraphFn work, const char *path) {
    ModelFile file = model_file_none();
    Status status = guarded(t, graph, work, path, &file);
    model_file_abandon(&file);
    graph_destroy(graph);
    return status;
}

static Status save_weights(OnnxfuseTraining *t, Graph *graph, ModelFile *file) {
    MappedFile original;
    TRY(file_map(graph->arena, t->path, &original));
    for (int i = 0; i < t->kept_count; i++) {
        const Kept *kept = &t->kept[i];
        if (kept->is_state) continue;
        Value *value = map_get(&graph->names, kept->name);
        if (!value || !value->constant || !same_type(value->constant, &kept->now->item.tensor))
            return status_error(STATUS_INVALID, "\"%s\" changed while its weights were trained: \"%s\" is another",
                                t->path, kept->name);
        Tensor *copy = arena_copy(graph->arena, value->constant, sizeof *copy);
        copy->data = kept->now->item.tensor.data;
        value->constant = copy;
    }
    return write_graph(graph, &original, file);
}

OnnxfuseStatus onnxfuse_training_save_model(OnnxfuseTraining *t, const char *path) {
    Graph *graph;
    TRY(import_file(t->path, NULL, &graph));
    return with_graph(t, graph, save_weights, path);
}

/* A checkpoint is a model without nodes whose outputs are the tensors: any tool that reads ONNX shows it. */
static Status save_kept(OnnxfuseTraining *t, Graph *graph, ModelFile *file) {
    graph->name = "checkpoint";
    graph->info->ir_version = 8;
    VEC_PUSH(graph->arena, graph->info->opsets, (OpsetImport){"", 17});
    VEC_PUSH(graph->arena, graph->info->metadata,
             (Metadata){CHECKPOINT_STEPS, arena_format(graph->arena, "%lld", (long long)t->steps)});
    for (int i = 0; i < t->kept_count; i++)
        graph_add_output(graph, graph_add_constant(graph, t->kept[i].name, &t->kept[i].now->item.tensor));
    return write_graph(graph, NULL, file);
}

OnnxfuseStatus onnxfuse_training_save_checkpoint(OnnxfuseTraining *t, const char *path) {
    return with_graph(t, graph_create(0), save_kept, path);
}

static Status load_kept(OnnxfuseTraining *t, Graph *graph, ModelFile *file) {
    const char *path = file->model.path;
    long long steps = -1;
    for (int i = 0; i < graph->info->metadata.count; i++) {
        const Metadata *entry = &graph->info->metadata.items[i];
        char *end;
        if (strcmp(entry->key, CHECKPOINT_STEPS) != 0) continue;
        steps = strtoll(entry->value, &end, 10);
        if (*end || !*entry->value) steps = -1;
    }
    if (steps < 0) return status_error(STATUS_INVALID, "\"%s\" is no checkpoint of a training", path);
    for (int i = 0; i < t->kept_count; i++) { /* all fit, or none is taken */
        const Value *value = map_get(&graph->names, t->kept[i].name);
        if (!value || !value->constant || !same_type(value->constant, &t->kept[i].now->item.tensor))
            return status_error(STATUS_INVALID, "checkpoint \"%s\" has no \"%s\" of this model's type and shape", path,
                                t->kept[i].name);
    }
    for (int i = 0; i < t->kept_count; i++) {
        const Value *value = map_get(&graph->names, t->kept[i].name);
        TRY(set_kept(&t->kept[i], value->constant));
    }
    t->steps = steps;
    return NULL;
}

OnnxfuseStatus onnxfuse_training_load_checkpoint(OnnxfuseTraining *t, const char *path) {
    Graph *graph;
    TRY(import_file(path, NULL, &graph));
    return with_graph(t, graph, load_kept, path);
}
