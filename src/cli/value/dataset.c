/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays are read whole; a batch copies its examples' rows. */
#include "cli/value/dataset.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/value/inputs.h"

enum { USUAL_BATCH = 32 };

/* --- reading --- */

static Problem *read_array(const char *path, const Bytes *archive, const OnnxfuseValueInfo *info, Loaded *out_loaded) {
    Bytes bytes = {0};
    char *file = NULL;
    Problem *found;
    if (archive) {
        found = npz_member(archive, info->name, false, &bytes);
    } else if (strchr(info->name, '/') || asprintf(&file, "%s/%s.npy", path, info->name) < 0) {
        found = problem(ONNXFUSE_INVALID, "input \"%s\" cannot be a file's name (a .npz may hold it)", info->name);
    } else {
        found = file_read(file, &bytes);
    }
    if (!found) found = npy_parse(&bytes, info->dtype, out_loaded);
    free(bytes.data);
    free(file);
    return problem_at(found, "training data for \"%s\"", info->name);
}

static Problem *check_array(const OnnxfuseValueInfo *info, const OnnxfuseValue *array, int64_t *examples) {
    int rank = onnxfuse_value_rank(array);
    const int64_t *dims = onnxfuse_value_dims(array);
    if (onnxfuse_value_dtype(array) != info->dtype || info->dtype == ONNXFUSE_STRING)
        return problem(ONNXFUSE_INVALID, "training data for \"%s\" is %s, not %s", info->name,
                       onnxfuse_dtype_name(onnxfuse_value_dtype(array)), onnxfuse_dtype_name(info->dtype));
    bool fits = rank > 0 && (info->rank < 0 || rank == info->rank);
    for (int i = 1; fits && i < info->rank; i++) fits = info->dims[i] < 0 || info->dims[i] == dims[i];
    if (!fits) {
        char *text = NULL;
        size_t size;
        FILE *out = open_memstream(&text, &size);
        if (!out) return problem_out_of_memory();
        print_type(out, info);
        fclose(out);
        Problem *found = problem(
            ONNXFUSE_INVALID,
            "training data for \"%s\" has another shape than %s, with any number of examples along its first axis",
            info->name, text);
        free(text);
        return found;
    }
    if (*examples < 0) *examples = dims[0];
    if (*examples == dims[0]) return NULL;
    return problem(ONNXFUSE_INVALID, "training data: %lld examples of \"%s\", %lld of others", (long long)dims[0],
                   info->name, (long long)*examples);
}

static Problem *make_batch(const OnnxfuseValue *array, int64_t size, Loaded *out_batch) {
    int64_t dims[ONNXFUSE_MAX_RANK];
    int rank = onnxfuse_value_rank(array);
    memcpy(dims, onnxfuse_value_dims(array), (size_t)rank * sizeof *dims);
    dims[0] = size;
    return loaded_tensor(onnxfuse_value_dtype(array), rank, dims, out_batch);
}

static Problem *read_arrays(const OnnxfuseTraining *training, const char *path, const Bytes *archive, int64_t wanted,
                            Dataset *d) {
    int64_t fixed = 0;
    d->examples = -1;
    for (int i = 0; i < d->count; i++) {
        const OnnxfuseValueInfo *info = onnxfuse_training_input(training, i);
        if (info->kind != ONNXFUSE_PROTO_TENSOR)
            return problem(ONNXFUSE_UNSUPPORTED, "input \"%s\" is no tensor", info->name);
        TRY(read_array(path, archive, info, &d->arrays[i]));
        TRY(check_array(info, d->arrays[i].value, &d->examples));
        if (info->rank > 0 && info->dims[0] > 0) fixed = info->dims[0];
    }
    if (d->examples < 1) return problem(ONNXFUSE_INVALID, "training data: there are no examples");
    if (fixed && wanted && wanted != fixed)
        return problem(ONNXFUSE_USAGE, "the model takes batches of %lld, not of %lld", (long long)fixed,
                       (long long)wanted);
    d->batch_size = fixed ? fixed : wanted ? wanted : USUAL_BATCH;
    if (!fixed && !wanted && d->batch_size > d->examples) d->batch_size = d->examples;
    if (d->batch_size > d->examples)
        return problem(ONNXFUSE_USAGE, "a batch of %lld is more than the %lld examples", (long long)d->batch_size,
                       (long long)d->examples);
    for (int i = 0; i < d->count; i++) {
        TRY(make_batch(d->arrays[i].value, d->batch_size, &d->batch[i]));
        d->inputs[i] = d->batch[i].value;
    }
    d->order = malloc((size_t)d->examples * sizeof *d->order);
    return d->order ? NULL : problem_out_of_memory();
}

Problem *dataset_read(const OnnxfuseTraining *training, const char *path, int64_t batch_size, uint64_t seed,
                      Dataset *d) {
    int count = onnxfuse_training_input_count(training);
    *d = (Dataset){.count = count, .epoch = -1, .seed = seed};
    d->arrays = calloc((size_t)count + 1, sizeof *d->arrays);
    d->batch = calloc((size_t)count + 1, sizeof *d->batch);
    d->inputs = calloc((size_t)count + 1, sizeof *d->inputs);
    struct stat about;
    Bytes archive = {0};
    bool folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    Problem *found = !d->arrays || !d->batch || !d->inputs ? problem_out_of_memory()
                     : folder                              ? NULL
                                                           : file_read(path, &archive);
    if (!found) found = read_arrays(training, path, folder ? NULL : &archive, batch_size, d);
    free(archive.data);
    if (found) dataset_free(d);
    return found;
}

/* classes: -1: not known. */
static Problem *wrong_label(const char *labels, int64_t example, double label, int64_t classes) {
    if (classes < 0)
        return problem(
            ONNXFUSE_INVALID,
            "training data for \"%s\": example %lld has the label %.0f; labels are 0 or more, or -100 for one "
            "that does not count",
            labels, (long long)example, label);
    return problem(
        ONNXFUSE_INVALID,
        "training data for \"%s\": example %lld has the label %.0f; of %lld classes labels are 0 to %lld, or "
        "-100 for one that does not count",
        labels, (long long)example, label, (long long)classes, (long long)classes - 1);
}

Problem *dataset_check_labels(const Dataset *d, const OnnxfuseTraining *training, const char *labels) {
    enum { DOES_NOT_COUNT = -100 };
    int64_t classes = onnxfuse_training_classes(training);
    for (int i = 0; i < d->count; i++) {
        if (strcmp(onnxfuse_training_input(training, i)->name, labels) != 0) continue;
        const OnnxfuseValue *array = d->arrays[i].value;
        int64_t all = onnxfuse_value_count(array);
        for (int64_t k = 0; k < all; k++) {
            double label = onnxfuse_value_element(array, k);
            bool counts = label != DOES_NOT_COUNT, above = classes >= 0 && label >= (double)classes;
            if (counts && (label < 0 || above)) return wrong_label(labels, k / (all / d->examples), label, classes);
        }
    }
    return NULL;
}

void dataset_free(Dataset *d) {
    for (int i = 0; i < d->count; i++) {
        if (d->arrays) loaded_free(&d->arrays[i]);
        if (d->batch) loaded_free(&d->batch[i]);
    }
    free(d->arrays);
    free(d->batch);
    free((void *)(uintptr_t)d->inputs);
    free(d->order);
    *d = (Dataset){0};
}

/* --- batches --- */

/* SplitMix64: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Fisher and Yates's shuffle (Knuth, "The Art of Computer Programming", volume 2, 3.4.2, algorithm P). */
static void shuffle(Dataset *d, int64_t epoch) {
    uint64_t state = d->seed * 0x9e3779b97f4a7c15u + (uint64_t)epoch;
    for (int64_t i = 0; i < d->examples; i++) d->order[i] = i;
    for (int64_t i = d->examples - 1; i > 0; i--) {
        int64_t other = (int64_t)(next_random(&state) % (uint64_t)(i + 1)), kept = d->order[i];
        d->order[i] = d->order[other];
        d->order[other] = kept;
    }
    d->epoch = epoch;
}

void dataset_batch(Dataset *d, int64_t batch) {
    int64_t batches = d->examples / d->batch_size, first = batch % batches * d->batch_size;
    if (d->epoch != batch / batches) shuffle(d, batch / batches);
    for (int i = 0; i < d->count; i++) {
        const OnnxfuseValue *array = d->arrays[i].value;
        size_t row = onnxfuse_value_bytes(array) / (size_t)d->examples;
        const char *from = onnxfuse_value_data(array);
        char *to = onnxfuse_value_data(d->batch[i].value);
        for (int64_t k = 0; k < d->batch_size; k++)
            memcpy(to + (size_t)k * row, from + (size_t)d->order[first + k] * row, row);
    }
}
