/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/value/samples.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool ends_with(const char *text, const char *ending) {
    size_t size = strlen(text), length = strlen(ending);
    return size >= length && strcasecmp(text + size - length, ending) == 0;
}

static bool is_folder(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* --- which sets there are --- */

static Problem *add_set(Samples *s, const char *folder, const char *name) {
    char *path, **sets = realloc(s->sets, sizeof *sets * ((size_t)s->set_count + 1));
    if (sets) s->sets = sets;
    if (!sets || (name ? asprintf(&path, "%s/%s", folder, name) : asprintf(&path, "%s", folder)) < 0)
        return problem_out_of_memory();
    s->sets[s->set_count++] = path;
    return NULL;
}

static int by_version(const void *a, const void *b) { return strverscmp(*(char *const *)a, *(char *const *)b); }

static Problem *list_folder(Samples *s, const char *path) {
    DIR *folder = opendir(path);
    if (!folder) return problem(ONNXFUSE_INVALID, "\"%s\" cannot be read: %s", path, strerror(errno));
    Problem *found = NULL;
    bool arrays = false;
    for (struct dirent *entry; !found && (entry = readdir(folder));) {
        arrays |= ends_with(entry->d_name, ".npy");
        if (strncmp(entry->d_name, "test_data_set_", 14) == 0 || ends_with(entry->d_name, ".npz"))
            found = add_set(s, path, entry->d_name);
    }
    closedir(folder);
    if (!found && s->set_count == 0 && arrays) found = add_set(s, path, NULL);
    if (!found && s->set_count == 0)
        found = problem(ONNXFUSE_INVALID, "\"%s\" holds neither test_data_set_N, nor NAME.npz, nor NAME.npy", path);
    if (!found) qsort(s->sets, (size_t)s->set_count, sizeof *s->sets, by_version);
    return found;
}

Problem *samples_open(const char *path, Samples *out_samples) {
    Samples samples = {0};
    Problem *found = is_folder(path) ? list_folder(&samples, path) : add_set(&samples, path, NULL);
    if (!found && !is_folder(path) && !ends_with(path, ".npz"))
        found = problem(ONNXFUSE_INVALID, "\"%s\" is neither a folder nor a .npz", path);
    if (found)
        samples_free(&samples);
    else
        *out_samples = samples;
    return found;
}

/* --- a set --- */

static void drop_slices(Samples *s) {
    for (int i = 0; s->slices && i < s->count; i++) {
        onnxfuse_value_free(s->slices[i]);
        s->slices[i] = NULL;
    }
}

static void drop_set(Samples *s) {
    drop_slices(s);
    for (int i = 0; s->arrays && i < s->count; i++) loaded_free(&s->arrays[i]);
    s->parts = s->part = 0;
}

void samples_free(Samples *s) {
    drop_set(s);
    for (int i = 0; i < s->set_count; i++) free(s->sets[i]);
    free(s->sets);
    free(s->arrays);
    free(s->slices);
    *s = (Samples){0};
}

static Problem *read_file(const char *path, const OnnxfuseValueInfo *info, Loaded *out_loaded) {
    Bytes bytes;
    TRY(file_read(path, &bytes));
    Problem *found =
        ends_with(path, ".npy")
            ? npy_parse(&bytes, info->dtype, out_loaded)
            : problem_from(onnxfuse_value_from_proto(info->kind, bytes.data, bytes.size, &out_loaded->value, NULL));
    free(bytes.data);
    return problem_at(found, "\"%s\"", path);
}

/* input_J.pb or NAME.npy; out_loaded stays empty where there is neither. */
static Problem *read_in_folder(const char *folder, int index, const OnnxfuseValueInfo *info, Loaded *out_loaded) {
    char *proto, *array = NULL;
    if (asprintf(&proto, "%s/input_%d.pb", folder, index) < 0) return problem_out_of_memory();
    Problem *found = asprintf(&array, "%s/%s.npy", folder, info->name) < 0 ? problem_out_of_memory() : NULL;
    if (!found && file_exists(proto)) found = read_file(proto, info, out_loaded);
    if (!found && !out_loaded->value && !strchr(info->name, '/') && file_exists(array))
        found = read_file(array, info, out_loaded);
    free(proto);
    free(array);
    return found;
}

static Problem *read_in_archive(const Bytes *archive, bool only, const OnnxfuseValueInfo *info, Loaded *out_loaded) {
    Bytes npy = {0};
    if (!only && !npz_has(archive, info->name)) return NULL;
    TRY(npz_member(archive, info->name, only, &npy));
    Problem *found = npy_parse(&npy, info->dtype, out_loaded);
    free(npy.data);
    return problem_at(found, "\"%s\"", info->name);
}

static Problem *read_inputs(Samples *s, const OnnxfuseSession *session, const char *path, const Bytes *archive) {
    for (int i = 0; i < s->count; i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(session, i);
        TRY(archive ? read_in_archive(archive, s->count == 1, info, &s->arrays[i])
                    : read_in_folder(path, i, info, &s->arrays[i]));
        if (!s->arrays[i].value && info->kind != ONNXFUSE_PROTO_OPTIONAL)
            return problem(ONNXFUSE_INVALID, "input \"%s\" is not there", info->name);
    }
    return NULL;
}

/* How many times the first axis holds what the model fixes it to; the same for all inputs. */
static Problem *count_parts(Samples *s, const OnnxfuseSession *session) {
    s->parts = 1;
    for (int i = 0; i < s->count; i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(session, i);
        const OnnxfuseValue *value = s->arrays[i].value;
        if (!value || onnxfuse_value_kind(value) != ONNXFUSE_TENSOR || info->rank < 1 || info->dims[0] < 1) continue;
        if (onnxfuse_value_rank(value) != info->rank) continue; /* which the run says better */
        int64_t size = onnxfuse_value_dims(value)[0];
        if (size > info->dims[0] && size % info->dims[0] == 0) s->parts = size / info->dims[0];
    }
    for (int i = 0; s->parts > 1 && i < s->count; i++) {
        const OnnxfuseValue *value = s->arrays[i].value;
        bool tensor = value && onnxfuse_value_kind(value) == ONNXFUSE_TENSOR && onnxfuse_value_rank(value) > 0;
        if (!tensor || onnxfuse_value_dims(value)[0] % s->parts)
            return problem(ONNXFUSE_INVALID, "input \"%s\" does not hold %lld sets of inputs, as others do",
                           onnxfuse_session_input(session, i)->name, (long long)s->parts);
    }
    return NULL;
}

static Problem *read_set(Samples *s, const OnnxfuseSession *session) {
    const char *path = s->sets[s->set];
    Bytes archive = {0};
    bool folder = is_folder(path);
    Problem *found = folder ? NULL : file_read(path, &archive);
    if (!found) found = read_inputs(s, session, path, folder ? NULL : &archive);
    free(archive.data);
    if (!found) found = count_parts(s, session);
    return problem_at(found, "\"%s\"", path);
}

static Problem *slice(Samples *s) {
    for (int i = 0; i < s->count; i++) {
        const OnnxfuseValue *all = s->arrays[i].value;
        int64_t dims[ONNXFUSE_MAX_RANK];
        memcpy(dims, onnxfuse_value_dims(all), sizeof *dims * (size_t)onnxfuse_value_rank(all));
        dims[0] /= s->parts;
        char *data = (char *)onnxfuse_value_data(all) + onnxfuse_value_bytes(all) / (size_t)s->parts * (size_t)s->part;
        TRY(problem_from(
            onnxfuse_value_tensor(onnxfuse_value_dtype(all), onnxfuse_value_rank(all), dims, data, &s->slices[i])));
    }
    return NULL;
}

static Problem *begin(Samples *s, const OnnxfuseSession *session) {
    drop_set(s);
    s->set = 0;
    if (s->arrays) return NULL;
    s->count = onnxfuse_session_input_count(session);
    s->arrays = calloc((size_t)s->count + 1, sizeof *s->arrays);
    s->slices = calloc((size_t)s->count + 1, sizeof *s->slices);
    return s->arrays && s->slices ? NULL : problem_out_of_memory();
}

Problem *samples_next(Samples *s, const OnnxfuseSession *session, int number, const OnnxfuseValue **out_inputs,
                      bool *out_there) {
    if (number == 0) TRY(begin(s, session));
    drop_slices(s);
    if (s->parts && ++s->part == s->parts) {
        drop_set(s);
        s->set++;
    }
    *out_there = s->set < s->set_count;
    if (!*out_there) return NULL;
    if (!s->parts) TRY(read_set(s, session));
    if (s->parts > 1) TRY(slice(s));
    for (int i = 0; i < s->count; i++) out_inputs[i] = s->parts > 1 ? s->slices[i] : s->arrays[i].value;
    return NULL;
}
