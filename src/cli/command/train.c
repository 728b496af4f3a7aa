/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse train: steps of training on examples from files; the model with its new weights. */
#include "cli/command/commands.h"
#include "cli/base/session.h"
#include "cli/value/dataset.h"
#include "cli/command/policy_file.h"
#include "cli/value/show.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct TrainOptions {
    Options common;
    const char *data, *output, *loss, *optimizer, *schedule, *checkpoint;
    TextList of;
    double rate, weight_decay, clip_norm;
    int steps, batch, accumulation, warmup_steps, checkpoint_every, log_every, seed;
    bool resume;
} TrainOptions;

static const TrainOptions train_defaults = {.rate = -1,
                                            .weight_decay = -1,
                                            .clip_norm = -1,
                                            .warmup_steps = -1,
                                            .steps = -1,
                                            .checkpoint_every = 1000,
                                            .log_every = 100};

static const Flag train_flags[] = {
    {"data", "FOLDER|NPZ", FLAG_TEXT, offsetof(TrainOptions, data),
     "examples: an array for each input, NAME.npy in a folder or NAME in an archive; an example a row"},
    {"output", "FILE", FLAG_TEXT, offsetof(TrainOptions, output), "the model with its new weights; may be the old one"},
    {"loss", "WHAT", FLAG_TEXT, offsetof(TrainOptions, loss),
     "an output's name, cross_entropy:LOGITS,LABELS, mse:PREDICTION,TARGET; default: the only output"},
    {"of", "GLOB", FLAG_LIST, offsetof(TrainOptions, of),
     "names of weights to train; default: all that look like weights"},
    {"optimizer", "NAME", FLAG_TEXT, offsetof(TrainOptions, optimizer),
     "adam, adamw, sgd, momentum, adagrad; default: adam"},
    {"rate", "R", FLAG_REAL, offsetof(TrainOptions, rate), "learning rate; default: 0.001", 0, 1e6},
    {"schedule", "NAME", FLAG_TEXT, offsetof(TrainOptions, schedule),
     "constant, linear, cosine: how the rate falls over all steps"},
    {"warmup-steps", "N", FLAG_INTEGER, offsetof(TrainOptions, warmup_steps), "steps in which the rate rises from 0", 0,
     1e9},
    {"weight-decay", "D", FLAG_REAL, offsetof(TrainOptions, weight_decay), "default: 0", 0, 1},
    {"clip-norm", "N", FLAG_REAL, offsetof(TrainOptions, clip_norm), "most that the norm of all gradients may be", 0,
     1e12},
    {"steps", "N", FLAG_INTEGER, offsetof(TrainOptions, steps),
     "in all, those before a checkpoint too; default: the policy's, or 1000", 1, 1e9},
    {"batch", "N", FLAG_INTEGER, offsetof(TrainOptions, batch),
     "examples a step; default: the model's own number, else 32", 1, 1e9},
    {"accumulation", "N", FLAG_INTEGER, offsetof(TrainOptions, accumulation),
     "batches a step, which takes the mean of their gradients; default: 1", 1, 1e6},
    {"seed", "N", FLAG_INTEGER, offsetof(TrainOptions, seed), "of the order of the examples", 0, 1e9},
    {"checkpoint", "FILE", FLAG_TEXT, offsetof(TrainOptions, checkpoint),
     "weights, the optimizer's states and the number of steps, written now and then"},
    {"checkpoint-every", "N", FLAG_INTEGER, offsetof(TrainOptions, checkpoint_every), "steps; default: 1000", 1, 1e9},
    {"resume", NULL, FLAG_SWITCH, offsetof(TrainOptions, resume), "go on from the checkpoint, where there is one"},
    {"log-every", "N", FLAG_INTEGER, offsetof(TrainOptions, log_every), "steps a line of progress; default: 100", 1,
     1e9},
    {0},
};

/* --- flags over the policy --- */

static void set_text(cJSON *object, const char *key, const char *text) {
    if (text) cJSON_AddStringToObject(object, key, text);
}

static void set_number(cJSON *object, const char *key, double number) {
    if (number >= 0) cJSON_AddNumberToObject(object, key, number);
}

static void set_flags(const TrainOptions *o, cJSON *training) {
    set_text(training, "loss", o->loss);
    set_text(training, "optimizer", o->optimizer);
    set_text(training, "schedule", o->schedule);
    set_number(training, "rate", o->rate);
    set_number(training, "weight_decay", o->weight_decay);
    set_number(training, "clip_norm", o->clip_norm);
    set_number(training, "warmup_steps", o->warmup_steps);
    if (o->accumulation) set_number(training, "accumulation", o->accumulation);
    set_number(training, "steps", o->steps);
    if (!o->of.count) return;
    cJSON *globs = cJSON_AddArrayToObject(training, "of");
    for (int i = 0; i < o->of.count; i++) cJSON_AddItemToArray(globs, cJSON_CreateString(o->of.items[i]));
}

/* Of "cross_entropy:LOGITS,LABELS" the labels; NULL: another loss, or no memory. The caller frees it. */
static char *labels_of(const char *loss) {
    static const char begin[] = "cross_entropy:";
    const char *comma = loss && strncmp(loss, begin, sizeof begin - 1) == 0 ? strchr(loss, ',') : NULL;
    return comma ? strdup(comma + 1) : NULL;
}

/* Without the flag. What is no such number in the policy, the library says. */
static int steps_of(const cJSON *in_policy) {
    enum { DEFAULT_STEPS = 1000 };
    const cJSON *steps = cJSON_GetObjectItemCaseSensitive(in_policy, "steps");
    return cJSON_IsNumber(steps) && steps->valueint > 0 ? steps->valueint : DEFAULT_STEPS;
}

/* What the flags say beside the policy, where o->steps comes from without its flag. What is wrong with that, the library says. */
static Problem *flags_as_json(TrainOptions *o, const char *model, char **out_json, char **out_labels) {
    cJSON *policy, *root = cJSON_CreateObject(), *training = cJSON_AddObjectToObject(root, "training");
    Problem *found = policy_of(o->common.policy, model, &policy);
    const cJSON *in_policy = cJSON_GetObjectItemCaseSensitive(policy, "training");
    if (!found) {
        if (o->steps < 0) o->steps = steps_of(in_policy);
        set_flags(o, training);
        const char *loss = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(in_policy, "loss"));
        *out_labels = labels_of(o->loss ? o->loss : loss);
        if (!(*out_json = cJSON_PrintUnformatted(root))) found = problem_out_of_memory();
    }
    cJSON_Delete(policy);
    cJSON_Delete(root);
    return found;
}

static Problem *open_training(TrainOptions *o, const char *model, OnnxfuseTraining **out_training, char **out_labels) {
    char *json = NULL;
    TRY(flags_as_json(o, model, &json, out_labels));
    OnnxfuseOptions options = session_options(&o->common);
    options.overrides = json;
    Problem *found = problem_from(onnxfuse_training_open(model, &options, out_training));
    free(json);
    return found;
}

/* --- steps --- */

typedef struct Progress {
    double begin;  /* ms */
    int64_t first; /* step that this run began with */
    double sum;    /* of losses since the last line */
    int64_t count; /* of these */
    double loss;   /* of the last step */
    double shown;  /* mean of the last line of progress */
    double rate;   /* steps a second, all of them */
} Progress;

static double steps_per_second(const Progress *p, int64_t steps) {
    double ms = now_ms() - p->begin;
    return ms > 0 ? 1e3 * (double)(steps - p->first) / ms : 0;
}

static void show(Progress *p, int64_t steps, int64_t all, bool line) {
    bool terminal = isatty(STDERR_FILENO);
    if (!line && (!terminal || !p->count)) return;
    fprintf(stderr, "%sstep %lld of %lld  loss %.6g  %.3g steps/s%s", terminal ? "\r\033[K" : "", (long long)steps,
            (long long)all, p->count ? p->sum / (double)p->count : p->loss, steps_per_second(p, steps),
            line ? "\n" : "");
    fflush(stderr);
    if (!line) return;
    p->shown = p->sum / (double)p->count;
    p->rate = steps_per_second(p, steps);
    p->sum = 0;
    p->count = 0;
}

static Problem *save_checkpoint(OnnxfuseTraining *training, const TrainOptions *o) {
    return o->checkpoint ? problem_from(onnxfuse_training_save_checkpoint(training, o->checkpoint)) : NULL;
}

/* Those of one step. *out_loss: their mean. */
static Problem *run_batches(OnnxfuseTraining *training, Dataset *data, double *out_loss) {
    int64_t step = onnxfuse_training_steps(training), count = 0;
    for (*out_loss = 0; onnxfuse_training_steps(training) == step; count++) {
        double loss;
        dataset_batch(data, onnxfuse_training_batches(training));
        TRY(problem_from(onnxfuse_training_step(training, data->inputs, NULL, &loss)));
        *out_loss += loss;
    }
    *out_loss /= (double)count;
    return NULL;
}

/* What the weights have become by training may be to blame from the second step on. */
static Problem *no_loss(const Progress *p, int64_t step) {
    return problem(ONNXFUSE_FAULT, "the loss of step %lld is %s: %s", (long long)step + 1,
                   isnan(p->loss) ? "not a number" : "infinite",
                   step == p->first
                       ? "the examples or the weights hold such numbers, they are too large, or no label counts"
                       : "a lower rate, or clip-norm, may help");
}

/* ---- SIGINT and SIGTERM, where there is a checkpoint to write: the step ends, and what it has come to is kept ---- */

static volatile sig_atomic_t stopped_by; /* 0: none has come */

static void note_signal(int number) { stopped_by = number; }

/* A second one ends the process at once, as any does without a checkpoint. */
static void take_signals(const TrainOptions *o) {
    const struct sigaction action = {.sa_handler = note_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    if (!o->checkpoint) return;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static Problem *stop(OnnxfuseTraining *training, const TrainOptions *o) {
    TRY(save_checkpoint(training, o));
    fprintf(stderr, "%sstopped after step %lld, which ", isatty(STDERR_FILENO) ? "\r\033[K" : "",
            (long long)onnxfuse_training_steps(training));
    print_safe(stderr, o->checkpoint);
    fputs(" holds: --resume goes on from there\n", stderr);
    signal(stopped_by, SIG_DFL);
    raise(stopped_by);
    return NULL;
}

static Problem *run_steps(OnnxfuseTraining *training, const TrainOptions *o, Dataset *data, Progress *p) {
    *p = (Progress){.begin = now_ms(), .first = onnxfuse_training_steps(training), .loss = NAN, .shown = NAN};
    double shown = p->begin;
    take_signals(o);
    for (int64_t step = p->first; step < o->steps; step++) {
        if (stopped_by) return stop(training, o);
        TRY(run_batches(training, data, &p->loss));
        if (!isfinite(p->loss)) return no_loss(p, step);
        p->sum += p->loss;
        p->count++;
        bool line = (step + 1) % o->log_every == 0 || step + 1 == o->steps;
        if (line || now_ms() - shown > 200) {
            show(p, step + 1, o->steps, line);
            shown = now_ms();
        }
        if ((step + 1) % o->checkpoint_every == 0 && step + 1 < o->steps) TRY(save_checkpoint(training, o));
    }
    return save_checkpoint(training, o);
}

static void report(const OnnxfuseTraining *training, const TrainOptions *o, const Dataset *data, const Progress *p) {
    int64_t steps = onnxfuse_training_steps(training);
    if (!o->common.json) {
        if (steps == p->first)
            printf("%lld steps were made before, none was left: ", (long long)steps);
        else
            printf("%lld steps of %lld examples, loss %.6g, %.3g steps/s: ", (long long)steps,
                   (long long)data->batch_size, p->loss, p->rate);
        print_safe(stdout, o->output);
        putchar('\n');
        return;
    }
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "steps", (double)steps);
    cJSON_AddNumberToObject(object, "examples", (double)data->examples);
    cJSON_AddNumberToObject(object, "batch", (double)data->batch_size);
    if (isfinite(p->shown)) cJSON_AddNumberToObject(object, "loss", p->shown);
    json_add_measure(object, "steps_per_second", p->rate);
    cJSON_AddStringToObject(object, "output", o->output);
    print_json(object);
}

static Problem *train_on(OnnxfuseTraining *training, const TrainOptions *o, const char *labels) {
    Dataset data;
    Progress progress;
    if (o->resume && file_exists(o->checkpoint))
        TRY(problem_from(onnxfuse_training_load_checkpoint(training, o->checkpoint)));
    TRY(dataset_read(training, o->data, o->batch, (uint64_t)o->seed, &data));
    Problem *found = labels ? dataset_check_labels(&data, training, labels) : NULL;
    if (!found) found = run_steps(training, o, &data, &progress);
    if (!found) found = problem_from(onnxfuse_training_save_model(training, o->output));
    if (!found) report(training, o, &data, &progress);
    dataset_free(&data);
    return found;
}

/* What is written may take the old model's place, and that of nothing else that is read; found out before the first step, not after the last. */
static Problem *check_files(const TrainOptions *o, const char *model) {
    const struct {
        const char *flag, *path, *what, *other;
    } pairs[] = {{"output", o->output, "the examples", o->data},
                 {"checkpoint", o->checkpoint, "the examples", o->data},
                 {"checkpoint", o->checkpoint, "the output", o->output}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].path && file_is_same(pairs[i].path, pairs[i].other))
            return problem(ONNXFUSE_USAGE, "--%s \"%s\" is the file of %s: it would take that file's place",
                           pairs[i].flag, pairs[i].path, pairs[i].what);
    TRY(file_may_be_written(o->output));
    return o->checkpoint ? file_may_stand_beside(model, "checkpoint", o->checkpoint) : NULL;
}

static Problem *train(void *given) {
    TrainOptions *o = given;
    if (!o->data) return problem(ONNXFUSE_USAGE, "train needs --data FOLDER or --data FILE.npz");
    if (!o->output) return problem(ONNXFUSE_USAGE, "train needs --output FILE");
    if (o->resume && !o->checkpoint) return problem(ONNXFUSE_USAGE, "--resume needs --checkpoint FILE");
    const char *model = o->common.arguments.items[0];
    TRY(check_files(o, model));
    OnnxfuseTraining *training = NULL;
    char *labels = NULL;
    Problem *found = open_training(o, model, &training, &labels);
    if (!found) found = train_on(training, o, labels);
    onnxfuse_training_close(training);
    free(labels);
    return found;
}

const Command train_command = {
    .name = "train",
    .arguments = "MODEL --data D -o FILE",
    .summary = "train a model's weights on examples",
    .details = "Flags override the section \"training\" of the policy. A checkpoint is an ONNX model that holds "
               "tensors alone; a training that goes\n"
               "on from it ends with the same bits as one that was never interrupted. See docs/training.md.\n",
    .flag_tables = (const Flag *const[]){train_flags, model_flags, common_flags, NULL},
    .options_size = sizeof(TrainOptions),
    .defaults = &train_defaults,
    .least = 1,
    .most = 1,
    .run = train,
};
