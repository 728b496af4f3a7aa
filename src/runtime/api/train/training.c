/* SPDX-License-Identifier: Apache-2.0 */
/* Training: a session over the graph of one step (optimize/training.h), and the tensors that it keeps from step to step. A step is given the
 * same memory for a tensor's old and new value, and writes it when all else is done (runtime/plan/states.c), so that a step that fails or is
 * cancelled changes nothing. */
#include "runtime/api/train/on_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "importer/files.h"
#include "importer/importer.h"
#include "lowering/subgraph.h"
#include "optimize/training.h"
#include "policy/json.h"
#include "runtime/api/model/model_file.h"

/* Keys of a checkpoint's metadata. */
static const char CHECKPOINT_STEPS[] = "onnxfuse.training.steps", CHECKPOINT_BATCHES[] = "onnxfuse.training.batches";

/* Updates running that are not made: a scale of 2^16 is 2^-24 by then, and gradients that are still too large are so by themselves. */
enum { MOST_SKIPPED = 40 };

typedef struct Kept {
    const char *name;
    bool is_state, is_sum;
    struct {
        int input, output;
    } in[TRAINING_GRAPHS]; /* of the sessions */
    OnnxfuseValue *now;    /* in the host's memory */
    OnnxfuseValue *there;  /* on the device; NULL: that has no memory of its own */
    bool newer_here, newer_there;
} Kept;

/* A graph of the step, and what it is called with. */
typedef struct Part {
    OnnxfuseSession *session;
    int numbers[TRAINING_NUMBERS];
    const OnnxfuseValue **inputs;
    OnnxfuseValue **outputs;
    int finite; /* output; -1: there is none */
} Part;

struct OnnxfuseTraining {
    Arena *arena;
    const char *path; /* of the model */
    Policy policy;
    Part parts[TRAINING_GRAPHS]; /* without accumulation there is no GRAPH_UPDATE: its session is NULL */
    int data_inputs;
    int64_t classes; /* of a loss of cross entropy, or -1 */
    Kept *kept;      /* [kept_count] */
    int kept_count;
    OnnxfuseValue *number_values[TRAINING_NUMBERS];
    int64_t steps;   /* done */
    int64_t batches; /* whose gradients are summed since */
    bool finite;     /* were those of the last update */
    int skipped;     /* updates running that were not made, as they were not */
};

/* --- opening -------------------------------------------------------------------------------------------------------------- */

/* To a tensor of as many elements; weights of f16 and bf16 are kept in f32 (optimize/training.h). */
static void convert(const Tensor *from, Tensor *to) {
    if (from->dtype == to->dtype && tensor_bytes(to)) memcpy(to->data, from->data, tensor_bytes(to));
    if (from->dtype == to->dtype) return;
    for (int64_t i = 0, count = tensor_count(to); i < count; i++)
        dtype_store_double(to->dtype, to->data, i, dtype_load_double(from->dtype, from->data, i));
}

static Status keep_tensor(const TrainedTensor *tensor, Arena *arena, Kept *kept) {
    int64_t dims[MAX_RANK];
    const Value *like = tensor->like;
    *kept = (Kept){.name = arena_string(arena, tensor->name), .is_state = tensor->is_state, .is_sum = tensor->is_sum};
    for (int i = 0; i < TRAINING_GRAPHS; i++) {
        kept->in[i].input = tensor->in[i].input;
        kept->in[i].output = tensor->in[i].output;
    }
    for (int i = 0; i < like->rank; i++) dim_is_const(like->dims[i], &dims[i]); /* as weights are */
    TRY(onnxfuse_value_tensor((OnnxfuseDType)like->dtype, like->rank, dims, NULL, &kept->now));
    Tensor *now = &kept->now->item.tensor;
    if (tensor->initial)
        convert(tensor->initial, now);
    else if (tensor_bytes(now))
        memset(now->data, 0, tensor_bytes(now));
    return NULL;
}

static Status keep_tensors(OnnxfuseTraining *t, const Graph *graph, const TrainingStep *step) {
    t->kept = ARENA_ARRAY(t->arena, Kept, step->tensor_count);
    for (int i = 0; i < step->tensor_count; i++) {
        TRY(keep_tensor(&step->tensors[i], t->arena, &t->kept[i]));
        t->kept_count = i + 1;
        if (step->tensors[i].initial) import_discard(graph, step->tensors[i].initial);
    }
    for (int i = 0; i < TRAINING_NUMBERS; i++)
        TRY(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 0, NULL, NULL, &t->number_values[i]));
    t->data_inputs = step->data_inputs;
    t->classes = step->classes;
    return NULL;
}

typedef struct Opening {
    OnnxfuseTraining *training;
    const OnnxfuseOptions *given; /* by the caller */
    OnnxfuseOptions options;      /* of its sessions */
    Graph *graph, *twin;
    TrainingStep step;
} Opening;

static Status make_step(Opening *o, jmp_buf *guard) {
    static const ImportOptions as_sessions = {.unaligned_weights = true};
    OnnxfuseTraining *t = o->training;
    TrainingOptions wanted = {.wanted = &t->policy.training};
    TRY(model_file_import(t->path, &as_sessions, &o->graph));
    TRY(model_file_import(t->path, &as_sessions, &o->twin));
    wanted.twin = o->twin;
    arena_guard(o->graph->arena, guard);
    arena_guard(o->twin->arena, guard);
    TRY(training_step(o->graph, &wanted, &o->step));
    return keep_tensors(t, o->graph, &o->step);
}

/* *graph is the session's then. */
static Status open_part(Opening *o, TrainingGraph which, Graph **graph) {
    OnnxfuseTraining *t = o->training;
    Part *part = &t->parts[which];
    memcpy(part->numbers, o->step.numbers[which], sizeof part->numbers);
    part->finite = o->step.finite[which];
    part->inputs = ARENA_ARRAY(t->arena, const OnnxfuseValue *, (*graph)->inputs.count);
    part->outputs = ARENA_ARRAY(t->arena, OnnxfuseValue *, (*graph)->outputs.count);
    Graph *taken = *graph;
    *graph = NULL;
    arena_guard(taken->arena, NULL);
    return session_open_graph(taken, (GraphChange){0}, &o->options, &part->session);
}

static Status check_loss(const OnnxfuseTraining *t) {
    const OnnxfuseValueInfo *loss = onnxfuse_session_output(t->parts[GRAPH_STEP].session, 0);
    for (int i = 0; i < loss->rank; i++)
        if (loss->dims[i] != 1)
            return status_error(STATUS_USAGE, "training.loss: \"%s\" is no single number (reduce it, or name another)",
                                loss->name);
    return NULL;
}

static Status check_schedule(const struct Training *wanted) {
    if (wanted->schedule == SCHEDULE_CONSTANT || wanted->steps > wanted->warmup_steps) return NULL;
    return status_error(STATUS_USAGE,
                        "training.schedule: the rate falls over training.steps (%lld), which must be more than "
                        "training.warmup_steps (%lld)",
                        (long long)wanted->steps, (long long)wanted->warmup_steps);
}

/* What is kept stays on the device from step to step. */
static Status keep_on_device(OnnxfuseTraining *t) {
    OnnxfuseSession *session = t->parts[GRAPH_STEP].session;
    for (int i = 0; i < t->kept_count && session_has_memory(session); i++) {
        TRY(device_tensor_new(session, t->kept[i].now, &t->kept[i].there));
        t->kept[i].newer_here = true;
    }
    return NULL;
}

static Status open_all(Opening *o, jmp_buf *guard) {
    OnnxfuseTraining *t = o->training;
    TRY(training_options_of(o->given, t->path, t->arena, &o->options));
    TRY(session_policy(&o->options, NULL, t->arena, &t->policy));
    TRY(policy_blamed(&t->policy, check_schedule(&t->policy.training)));
    TRY(policy_blamed(&t->policy, make_step(o, guard)));
    graph_destroy(o->twin); /* what it holds is not needed while kernels are compiled */
    o->twin = NULL;
    TRY(open_part(o, GRAPH_STEP, &o->graph));
    TRY(policy_blamed(&t->policy, check_loss(t)));
    TRY(keep_on_device(t));
    return o->step.update ? open_part(o, GRAPH_UPDATE, &o->step.update) : NULL;
}

static Status open_guarded(Opening *o) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(o->training->arena, &guard);
    return open_all(o, &guard);
}

static Status open_training(OnnxfuseTraining *t, const OnnxfuseOptions *options) {
    Opening o = {.training = t, .given = options};
    Status status = open_guarded(&o);
    arena_guard(t->arena, NULL);
    graph_destroy(o.twin);
    graph_destroy(o.graph);
    graph_destroy(o.step.update);
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
        t->finite = true;
        status = t->path ? open_training(t, options) : status_out_of_memory();
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
    for (int i = 0; i < t->kept_count; i++) device_tensor_free(t->parts[GRAPH_STEP].session, t->kept[i].there);
    for (int i = 0; i < TRAINING_GRAPHS; i++) onnxfuse_session_close(t->parts[i].session);
    for (int i = 0; i < t->kept_count; i++) onnxfuse_value_free(t->kept[i].now);
    for (int i = 0; i < TRAINING_NUMBERS; i++) onnxfuse_value_free(t->number_values[i]);
    free((char *)(uintptr_t)t->path);
    arena_destroy(t->arena);
    free(t);
}

int64_t onnxfuse_training_classes(const OnnxfuseTraining *t) { return t->classes; }
int onnxfuse_training_input_count(const OnnxfuseTraining *t) { return t->data_inputs; }

const OnnxfuseValueInfo *onnxfuse_training_input(const OnnxfuseTraining *t, int index) {
    return index >= 0 && index < t->data_inputs ? onnxfuse_session_input(t->parts[GRAPH_STEP].session, index) : NULL;
}

OnnxfuseSession *onnxfuse_training_session(OnnxfuseTraining *t) { return t->parts[GRAPH_STEP].session; }
int64_t onnxfuse_training_steps(const OnnxfuseTraining *t) { return t->steps; }
int64_t onnxfuse_training_batches(const OnnxfuseTraining *t) {
    return t->steps * t->policy.training.accumulation + t->batches;
}

/* --- steps ----------------------------------------------------------------------------------------------------------------- */

/* The rate rises from 0 over the first steps, and falls to 0 behind the last. */
double onnxfuse_training_rate(const OnnxfuseTraining *t) {
    const struct Training *wanted = &t->policy.training;
    double step = (double)t->steps + 1, warmup = (double)wanted->warmup_steps;
    if (step <= warmup) return wanted->rate * step / warmup;
    double length = (double)wanted->steps - warmup;
    if (wanted->schedule == SCHEDULE_CONSTANT) return wanted->rate;
    double done = fmin(1, (step - 1 - warmup) / length);
    return wanted->rate * (wanted->schedule == SCHEDULE_LINEAR ? 1 - done : 0.5 * (1 + cos(M_PI * done)));
}

static double number_of(const OnnxfuseTraining *t, TrainingNumber number) {
    const struct Training *wanted = &t->policy.training;
    double step = (double)t->steps + 1;
    switch (number) {
    case NUMBER_RATE: return onnxfuse_training_rate(t);
    case NUMBER_CORRECTION1: return 1 / (1 - pow(wanted->beta1, step));
    case NUMBER_CORRECTION2: return 1 / (1 - pow(wanted->beta2, step));
    default: return t->batches > 0;
    }
}

/* One memory for what a tensor was and what it becomes. */
static Status give_kept(OnnxfuseTraining *t, TrainingGraph which) {
    Part *part = &t->parts[which];
    for (int i = 0; i < TRAINING_NUMBERS; i++) {
        *(float *)t->number_values[i]->item.tensor.data = (float)number_of(t, (TrainingNumber)i);
        if (part->numbers[i] >= 0) part->inputs[part->numbers[i]] = t->number_values[i];
    }
    for (int i = 0; i < t->kept_count; i++) {
        Kept *kept = &t->kept[i];
        OnnxfuseValue *value = kept->there ? kept->there : kept->now;
        if (kept->in[which].input < 0) continue;
        if (kept->newer_here) TRY(device_tensor_copy(t->parts[GRAPH_STEP].session, COPY_IN, kept->there, kept->now));
        kept->newer_here = false;
        part->inputs[kept->in[which].input] = value;
        if (kept->in[which].output >= 0) part->outputs[kept->in[which].output] = value;
    }
    return NULL;
}

/* Behind a step that has come to its end. */
static void note_new(OnnxfuseTraining *t, TrainingGraph which) {
    for (int i = 0; i < t->kept_count; i++)
        t->kept[i].newer_there |= t->kept[i].there && t->kept[i].in[which].output >= 0;
}

/* Not a number where the tensor has none. */
static double take_number(Part *part, int output) {
    OnnxfuseValue *value = part->outputs[output];
    double number = onnxfuse_value_count(value) ? onnxfuse_value_element(value, 0) : NAN;
    onnxfuse_value_free(value);
    part->outputs[output] = NULL;
    return number;
}

static void note_finite(OnnxfuseTraining *t, Part *part) {
    if (part->finite >= 0) t->finite = take_number(part, part->finite) != 0;
}

static Status run_step(OnnxfuseTraining *t, const OnnxfuseValue *const *inputs, const OnnxfuseRunOptions *options,
                       double *out_loss) {
    Part *part = &t->parts[GRAPH_STEP];
    for (int i = 0; i < t->data_inputs; i++) part->inputs[i] = inputs[i];
    TRY(give_kept(t, GRAPH_STEP));
    /* Random draws follow the batches, so a resumed training draws the same. */
    TRY(session_run_as(part->session, part->inputs, part->outputs, options, (uint64_t)onnxfuse_training_batches(t)));
    double loss = take_number(part, 0);
    note_finite(t, part);
    note_new(t, GRAPH_STEP);
    t->batches++;
    if (out_loss) *out_loss = loss;
    return NULL;
}

/* Once all batches of a step are there. */
static Status update(OnnxfuseTraining *t) {
    Part *part = &t->parts[GRAPH_UPDATE];
    if (t->batches < t->policy.training.accumulation) return NULL;
    if (part->session) {
        TRY(give_kept(t, GRAPH_UPDATE));
        TRY(onnxfuse_session_run(part->session, part->inputs, part->outputs));
        note_finite(t, part);
        note_new(t, GRAPH_UPDATE);
    }
    t->batches = 0;
    t->steps += t->finite;
    t->skipped = t->finite ? 0 : t->skipped + 1;
    if (t->skipped < MOST_SKIPPED) return NULL;
    t->skipped = 0;
    return status_error(
        STATUS_FAULT,
        "gradients are not finite in float16, though the loss's scale was halved %d times running: a lower "
        "rate, clip_norm or bf16 may help",
        MOST_SKIPPED);
}

OnnxfuseStatus onnxfuse_training_step(OnnxfuseTraining *t, const OnnxfuseValue *const *inputs,
                                      const OnnxfuseRunOptions *options, double *out_loss) {
    TRY(update(t)); /* where that failed the last time */
    TRY(run_step(t, inputs, options, out_loss));
    return update(t);
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

/* Brings what the device has. */
static Status fetch(const OnnxfuseTraining *t, Kept *kept) {
    if (!kept->newer_there) return NULL;
    TRY(device_tensor_copy(t->parts[GRAPH_STEP].session, COPY_OUT, kept->there, kept->now));
    kept->newer_there = false;
    return NULL;
}

static Status fetch_all(const OnnxfuseTraining *t) {
    for (int i = 0; i < t->kept_count; i++) TRY(fetch(t, &t->kept[i]));
    return NULL;
}

const OnnxfuseValue *onnxfuse_training_tensor(const OnnxfuseTraining *t, int index) {
    if (!kept_at(t, index)) return NULL;
    Status failed = fetch(t, &t->kept[index]);
    status_free(failed);
    return failed ? NULL : t->kept[index].now;
}

static bool same_type(const Tensor *a, const Tensor *b) { return a->dtype == b->dtype && tensor_same_shape(a, b); }

/* Whether training has kept this constant as `kept`. */
static bool is_kept_as(const Tensor *constant, const Tensor *kept) {
    return kept->dtype == training_type(constant->dtype) && tensor_same_shape(constant, kept);
}

static Status set_kept(Kept *kept, const Tensor *tensor) {
    Tensor *own = &kept->now->item.tensor;
    if (!same_type(own, tensor))
        return status_error(STATUS_INVALID, "\"%s\" has another type or shape than what is given for it", kept->name);
    size_t bytes = tensor_bytes(own);
    if (bytes) memcpy(own->data, tensor->data, bytes);
    kept->newer_here = kept->there != NULL;
    kept->newer_there = false;
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

static bool is_kept_weight(void *context, const Value *inside, const char *name) {
    const OnnxfuseTraining *t = context;
    (void)inside;
    for (int i = 0; i < t->kept_count; i++)
        if (!t->kept[i].is_state && strcmp(t->kept[i].name, name) == 0) return true;
    return false;
}

static Status save_weights(OnnxfuseTraining *t, Graph *graph, ModelFile *file) {
    MappedFile original;
    TRY(fetch_all(t));
    TRY(file_map(graph->arena, t->path, &original));
    Map weights = map_make(graph->arena);
    for (int i = 0; i < t->kept_count; i++) {
        Value *value = t->kept[i].is_state ? NULL : map_get(&graph->names, t->kept[i].name);
        if (value && value->constant) map_set_id(&weights, MAP_POINTER_KEY(value->constant), value);
    }
    lift_constants(graph, is_kept_weight, t, &weights);
    capture_constants(graph, &weights); /* what bodies read is to be new, too */
    for (int i = 0; i < t->kept_count; i++) {
        const Kept *kept = &t->kept[i];
        if (kept->is_state) continue;
        Value *value = map_get(&graph->names, kept->name);
        const Tensor *now = &kept->now->item.tensor;
        if (!value || !value->constant || !is_kept_as(value->constant, now))
            return status_error(STATUS_INVALID, "\"%s\" changed while its weights were trained: \"%s\" is another",
                                t->path, kept->name);
        Tensor *copy = arena_copy(graph->arena, value->constant, sizeof *copy);
        copy->data = now->data;
        if (copy->dtype != now->dtype) {
            copy = tensor_new(graph->arena, copy->dtype, copy->rank, copy->dims);
            convert(now, copy);
        }
        value->constant = copy;
    }
    return write_graph(graph, &original, file);
}

OnnxfuseStatus onnxfuse_training_save_model(OnnxfuseTraining *t, const char *path) {
    Graph *graph;
    TRY(model_file_import(t->path, NULL, &graph));
    return with_graph(t, graph, save_weights, path);
}

/* Sums of gradients hold nothing between an update and the next batch. */
static bool is_worth_keeping(const Kept *kept, int64_t batches) { return !kept->is_sum || batches; }

/* A checkpoint is a model without nodes whose outputs are the tensors: any tool that reads ONNX shows it. */
static Status save_kept(OnnxfuseTraining *t, Graph *graph, ModelFile *file) {
    TRY(fetch_all(t));
    graph->name = "checkpoint";
    graph->info->ir_version = 8;
    VEC_PUSH(graph->arena, graph->info->opsets, (OpsetImport){"", 17});
    VEC_PUSH(graph->arena, graph->info->metadata,
             (Metadata){CHECKPOINT_STEPS, arena_format(graph->arena, "%lld", (long long)t->steps)});
    VEC_PUSH(graph->arena, graph->info->metadata,
             (Metadata){CHECKPOINT_BATCHES, arena_format(graph->arena, "%lld", (long long)t->batches)});
    for (int i = 0; i < t->kept_count; i++)
        if (is_worth_keeping(&t->kept[i], t->batches))
            graph_add_output(graph, graph_add_constant(graph, t->kept[i].name, &t->kept[i].now->item.tensor));
    return write_graph(graph, NULL, file);
}

OnnxfuseStatus onnxfuse_training_save_checkpoint(OnnxfuseTraining *t, const char *path) {
    return with_graph(t, graph_create(0), save_kept, path);
}

/* A whole number of a checkpoint's metadata; -1: it has none of that name. */
static int64_t number_in(const Graph *graph, const char *key) {
    for (int i = 0; i < graph->info->metadata.count; i++) {
        const Metadata *entry = &graph->info->metadata.items[i];
        char *end;
        if (strcmp(entry->key, key) != 0) continue;
        long long number = strtoll(entry->value, &end, 10);
        return *end || !*entry->value || number < 0 ? -1 : number;
    }
    return -1;
}

static Status load_kept(OnnxfuseTraining *t, Graph *graph, ModelFile *file) {
    const char *path = file->model.path;
    int64_t steps = number_in(graph, CHECKPOINT_STEPS), batches = number_in(graph, CHECKPOINT_BATCHES);
    if (steps < 0) return status_error(STATUS_INVALID, "\"%s\" is no checkpoint of a training", path);
    if (batches < 0) batches = 0;
    if (batches && batches >= t->policy.training.accumulation)
        return status_error(STATUS_INVALID, "checkpoint \"%s\" holds the sum of %lld batches, an update takes %lld",
                            path, (long long)batches, (long long)t->policy.training.accumulation);
    for (int i = 0; i < t->kept_count; i++) { /* all fit, or none is taken */
        const Value *value = map_get(&graph->names, t->kept[i].name);
        if (!is_worth_keeping(&t->kept[i], batches)) continue;
        if (!value || !value->constant || !same_type(value->constant, &t->kept[i].now->item.tensor))
            return status_error(STATUS_INVALID, "checkpoint \"%s\" has no \"%s\" of this model's type and shape", path,
                                t->kept[i].name);
    }
    for (int i = 0; i < t->kept_count; i++) {
        const Value *value = map_get(&graph->names, t->kept[i].name);
        if (is_worth_keeping(&t->kept[i], batches)) TRY(set_kept(&t->kept[i], value->constant));
    }
    t->steps = steps;
    t->batches = batches;
    return NULL;
}

OnnxfuseStatus onnxfuse_training_load_checkpoint(OnnxfuseTraining *t, const char *path) {
    Graph *graph;
    TRY(model_file_import(path, NULL, &graph));
    return with_graph(t, graph, load_kept, path);
}
