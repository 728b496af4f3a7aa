/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping the values of a run, and comparing another's with them. */
#include "cli/value/recording.h"
#include "cli/value/show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- copies --- */
static Problem *keep_text(Recording *r, char *text) {
    char **texts = text ? realloc(r->texts, sizeof *texts * ((size_t)r->text_count + 1)) : NULL;
    if (!texts) {
        free(text);
        return problem_out_of_memory();
    }
    r->texts = texts;
    texts[r->text_count++] = text;
    return NULL;
}

static Problem *copy_strings(Recording *r, const OnnxfuseString *from, OnnxfuseString *to, int64_t count) {
    size_t size = 1;
    for (int64_t i = 0; i < count; i++) size += from[i].size;
    char *text = malloc(size);
    TRY(keep_text(r, text));
    for (int64_t i = 0; i < count; i++) {
        if (from[i].size) memcpy(text, from[i].data, from[i].size);
        to[i] = (OnnxfuseString){text, from[i].size};
        text += from[i].size;
    }
    return NULL;
}

static Problem *copy_value(Recording *r, const OnnxfuseValue *from, OnnxfuseValue **out_copy);

static Problem *copy_sequence(Recording *r, const OnnxfuseValue *from, OnnxfuseValue **out_copy) {
    int count = (int)onnxfuse_value_count(from), made = 0;
    OnnxfuseValue **items = calloc((size_t)count + 1, sizeof *items);
    Problem *found = items ? NULL : problem_out_of_memory();
    for (; !found && made < count; made += !found) {
        const OnnxfuseValue *item = onnxfuse_value_item(from, made);
        found = item ? copy_value(r, item, &items[made]) : problem_out_of_memory();
    }
    if (!found) found = problem_from(onnxfuse_value_sequence(items, count, out_copy));
    for (int i = 0; found && i < made; i++) onnxfuse_value_free(items[i]);
    free(items);
    return found;
}

static Problem *copy_map(Recording *r, const OnnxfuseValue *from, OnnxfuseValue **out_copy) {
    const OnnxfuseValue *parts[] = {onnxfuse_value_keys(from), onnxfuse_value_values(from)};
    OnnxfuseValue *copies[2] = {NULL};
    Problem *found = parts[0] && parts[1] ? NULL : problem_out_of_memory();
    for (int i = 0; i < 2 && !found; i++) found = copy_value(r, parts[i], &copies[i]);
    if (!found) found = problem_from(onnxfuse_value_map(copies[0], copies[1], out_copy));
    for (int i = 0; i < 2 && found; i++) onnxfuse_value_free(copies[i]);
    return found;
}

static Problem *copy_value(Recording *r, const OnnxfuseValue *from, OnnxfuseValue **out_copy) {
    if (onnxfuse_value_kind(from) == ONNXFUSE_MAP) return copy_map(r, from, out_copy);
    if (onnxfuse_value_kind(from) == ONNXFUSE_SEQUENCE) return copy_sequence(r, from, out_copy);
    if (onnxfuse_value_kind(from) == ONNXFUSE_ABSENT) return problem_from(onnxfuse_value_absent(out_copy));
    OnnxfuseValue *copy;
    OnnxfuseDType dtype = onnxfuse_value_dtype(from);
    TRY(problem_from(onnxfuse_value_tensor(dtype, onnxfuse_value_rank(from), onnxfuse_value_dims(from), NULL, &copy)));
    Problem *found = NULL;
    if (dtype == ONNXFUSE_STRING)
        found = copy_strings(r, onnxfuse_value_data(from), onnxfuse_value_data(copy), onnxfuse_value_count(from));
    else if (onnxfuse_value_bytes(from))
        memcpy(onnxfuse_value_data(copy), onnxfuse_value_data(from), onnxfuse_value_bytes(from));
    if (found)
        onnxfuse_value_free(copy);
    else
        *out_copy = copy;
    return found;
}

/* --- recording --- */
static Problem *add_entry(Recording *r, const char *name, const char *node, OnnxfuseValue *value) {
    if (r->count == r->capacity) {
        int capacity = r->capacity ? 2 * r->capacity : 256;
        Entry *entries = realloc(r->entries, sizeof *entries * (size_t)capacity);
        if (!entries) return problem_out_of_memory();
        r->entries = entries;
        r->capacity = capacity;
    }
    Entry entry = {.name = strdup(name), .node = strdup(node ? node : ""), .value = value};
    if (!entry.name || !entry.node) {
        free(entry.name);
        free(entry.node);
        return problem_out_of_memory();
    }
    r->entries[r->count++] = entry;
    return NULL;
}

/* The library takes a status from a callback; what it says is kept beside it. */
typedef struct Watching {
    Recording *recording;
    Closeness closeness;
    Problem *problem;
} Watching;

static OnnxfuseStatus stop_with(Watching *w, Problem *found) {
    w->problem = found;
    return found ? onnxfuse_error(problem_code(found), problem_text(found)) : NULL;
}

static OnnxfuseStatus keep(void *user, const char *name, const char *node, const OnnxfuseValue *value) {
    Watching *w = user;
    OnnxfuseValue *copy;
    Problem *found = copy_value(w->recording, value, &copy);
    if (!found && (found = add_entry(w->recording, name, node, copy))) onnxfuse_value_free(copy);
    return stop_with(w, found);
}

typedef int (*Compare)(const void *, const void *, void *);

static int by_name(const void *a, const void *b, void *context) {
    const Entry *entries = context;
    int x = *(const int *)a, y = *(const int *)b, order = strcmp(entries[x].name, entries[y].name);
    return order ? order : x - y;
}

static Problem *index_entries(Recording *r) {
    r->values = r->count;
    r->by_name = calloc((size_t)r->count + 1, sizeof *r->by_name);
    r->next = calloc((size_t)r->count + 1, sizeof *r->next);
    if (!r->by_name || !r->next) return problem_out_of_memory();
    for (int i = 0; i < r->count; i++) r->by_name[i] = i;
    if (r->count) qsort_r(r->by_name, (size_t)r->count, sizeof *r->by_name, (Compare)by_name, r->entries);
    for (int i = 1; i < r->count; i++) {
        Entry *before = &r->entries[r->by_name[i - 1]], *entry = &r->entries[r->by_name[i]];
        if (strcmp(before->name, entry->name) == 0) entry->occurrence = before->occurrence + 1;
    }
    return NULL;
}

static Problem *run_watched(OnnxfuseSession *session, const OnnxfuseValue *const *inputs, OnnxfuseValue **outputs,
                            Watching *w,
                            OnnxfuseStatus (*observe)(void *, const char *, const char *, const OnnxfuseValue *)) {
    OnnxfuseRunOptions options = {.size = sizeof options, .observe = observe, .observe_user = w};
    OnnxfuseStatus status = onnxfuse_session_run_with(session, inputs, outputs, &options);
    if (!w->problem) return problem_from(status);
    onnxfuse_status_free(status);
    return w->problem;
}

static OnnxfuseValue **outputs_of(const OnnxfuseSession *session) {
    return calloc((size_t)onnxfuse_session_output_count(session) + 1, sizeof(OnnxfuseValue *));
}

static void free_outputs(const OnnxfuseSession *session, OnnxfuseValue **outputs) {
    for (int o = 0; o < onnxfuse_session_output_count(session); o++) onnxfuse_value_free(outputs[o]);
    free(outputs);
}

Problem *recording_make(OnnxfuseSession *session, const OnnxfuseValue *const *inputs, Recording *out_recording) {
    Recording r = {0};
    Watching w = {.recording = &r};
    OnnxfuseValue **outputs = outputs_of(session);
    if (!outputs) return problem_out_of_memory();
    Problem *found = run_watched(session, inputs, outputs, &w, keep);
    if (!found) found = index_entries(&r);
    for (int o = 0; !found && o < onnxfuse_session_output_count(session); o++) {
        found = add_entry(&r, onnxfuse_session_output(session, o)->name, "", outputs[o]);
        if (!found) outputs[o] = NULL;
    }
    free_outputs(session, outputs);
    if (found)
        recording_free(&r);
    else
        *out_recording = r;
    return found;
}

Entry *recording_output(Recording *r, int index) {
    return index >= 0 && r->values + index < r->count ? &r->entries[r->values + index] : NULL;
}

static void finding_free(Finding *f) {
    char *strings[] = {f->index, f->got, f->expected, f->got_type, f->expected_type};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) free(strings[i]);
}

void recording_free(Recording *r) {
    for (int i = 0; i < r->count; i++) {
        free(r->entries[i].name);
        free(r->entries[i].node);
        onnxfuse_value_free(r->entries[i].value);
        finding_free(&r->entries[i].finding);
    }
    for (int i = 0; i < r->text_count; i++) free(r->texts[i]);
    free(r->texts);
    free(r->entries);
    free(r->by_name);
    free(r->next);
    *r = (Recording){0};
}

/* --- comparing --- */
/* The next entry of that name; NULL: this run has none, or no more. */
static Entry *find_entry(Recording *r, const char *name) {
    int low = 0, high = r->values;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (strcmp(r->entries[r->by_name[middle]].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == r->values || strcmp(r->entries[r->by_name[low]].name, name) != 0) return NULL;
    int at = low + r->next[low]++;
    if (at >= r->values || strcmp(r->entries[r->by_name[at]].name, name) != 0) return NULL;
    return &r->entries[r->by_name[at]];
}

typedef struct Printing {
    char *text;
    size_t size;
    FILE *out;
} Printing;

static char *print_end(Printing *p) {
    if (!p->out) return NULL;
    fclose(p->out);
    return p->text;
}

static char *kind_text(const OnnxfuseValue *value) {
    Printing p = {0};
    if ((p.out = open_memstream(&p.text, &p.size))) print_kind(p.out, value);
    return print_end(&p);
}

static char *index_text(const OnnxfuseValue *tensor, int64_t index) {
    Printing p = {0};
    if ((p.out = open_memstream(&p.text, &p.size))) print_index(p.out, tensor, index);
    return print_end(&p);
}

/* Nine digits tell neighbouring float32 numbers apart. */
static char *element_text(const OnnxfuseValue *tensor, int64_t index) {
    Printing p = {0};
    if (!(p.out = open_memstream(&p.text, &p.size))) return NULL;
    if (onnxfuse_value_dtype(tensor) == ONNXFUSE_FLOAT32)
        fprintf(p.out, "%.9g", onnxfuse_value_element(tensor, index));
    else if (onnxfuse_value_dtype(tensor) == ONNXFUSE_FLOAT64)
        fprintf(p.out, "%.17g", onnxfuse_value_element(tensor, index));
    else
        print_element(p.out, tensor, index);
    return print_end(&p);
}

static Problem *describe(const Difference *d, Finding *f) {
    f->got_type = kind_text(d->got);
    f->expected_type = kind_text(d->expected);
    bool complete = f->got_type && f->expected_type;
    if (d->comparable && d->worst >= 0) {
        f->index = index_text(d->got, d->worst);
        f->got = element_text(d->got, d->worst);
        f->expected = element_text(d->expected, d->worst);
        complete &= f->index && f->got && f->expected;
    }
    return complete ? NULL : problem_out_of_memory();
}

static Tolerance tolerance_for(const OnnxfuseValue *expected, Closeness c) {
    static const double least_atol = 1e-7;
    if (c.atol >= 0) return (Tolerance){c.rtol, c.atol, c.atol};
    bool tensor = onnxfuse_value_kind(expected) == ONNXFUSE_TENSOR;
    return (Tolerance){c.rtol, fmax(least_atol, tensor ? c.rtol * compare_scale(expected) : 0)};
}

Problem *recording_compare(Recording *r, Entry *entry, const OnnxfuseValue *expected, Closeness closeness,
                           bool types_only) {
    if (!entry->value || entry->finding.compared) return NULL;
    Tolerance tolerance = tolerance_for(expected, closeness);
    if (types_only) tolerance = (Tolerance){INFINITY, INFINITY, INFINITY};
    Difference d = compare_measure(entry->value, expected, tolerance);
    if (types_only && d.comparable) d.different = 0, d.worst = -1, d.distance = d.excess = 0;
    entry->finding = (Finding){.compared = true,
                               .comparable = d.comparable,
                               .item = d.item,
                               .count = d.count,
                               .different = d.different,
                               .distance = d.worst >= 0 ? d.distance : 0,
                               .ulps = d.ulps,
                               .excess = !d.comparable  ? INFINITY
                                         : d.worst >= 0 ? d.excess
                                                        : 0,
                               .arrival = r->arrivals++};
    TRY(describe(&d, &entry->finding));
    onnxfuse_value_free(entry->value);
    entry->value = NULL;
    return NULL;
}

static OnnxfuseStatus compare_seen(void *user, const char *name, const char *node, const OnnxfuseValue *value) {
    Watching *w = user;
    (void)node;
    Entry *entry = find_entry(w->recording, name);
    w->recording->unmatched += !entry;
    return stop_with(w, entry ? recording_compare(w->recording, entry, value, w->closeness, false) : NULL);
}

static Problem *compare_outputs(Recording *r, const OnnxfuseSession *session, OnnxfuseValue *const *outputs,
                                Closeness closeness) {
    int count = onnxfuse_session_output_count(session);
    if (count != r->count - r->values)
        return problem(ONNXFUSE_DIFFERENT, "the two have %d and %d outputs", r->count - r->values, count);
    for (int o = 0; o < count; o++) TRY(recording_compare(r, recording_output(r, o), outputs[o], closeness, false));
    return NULL;
}

Problem *recording_compare_run(Recording *r, OnnxfuseSession *session, const OnnxfuseValue *const *inputs,
                               Closeness closeness) {
    Watching w = {.recording = r, .closeness = closeness};
    OnnxfuseValue **outputs = outputs_of(session);
    if (!outputs) return problem_out_of_memory();
    Problem *found = run_watched(session, inputs, outputs, &w, compare_seen);
    if (!found) found = compare_outputs(r, session, outputs, closeness);
    free_outputs(session, outputs);
    return found;
}
