/* SPDX-License-Identifier: Apache-2.0 */
/* What a run has computed, kept to be compared: the values that its steps store, by name, and its outputs, by position.
 *
 * The other run's values are compared as they come, so that only one run's are in memory; a value that has been
 * compared is dropped, and a Finding stays. */
#ifndef ONNXFUSE_CLI_INPUT_RECORDING_H
#define ONNXFUSE_CLI_INPUT_RECORDING_H

#include <stdbool.h>
#include "cli/value/compare.h"

/* One comparison, in words: strings are the Finding's own, NULL where there is nothing to say. */
typedef struct Finding {
    bool compared, comparable;
    int item;
    int64_t count, different;
    double distance, ulps, excess;
    char *index, *got, *expected;   /* of the worst element */
    char *got_type, *expected_type; /* "float32[1, 3]" */
    long arrival;                   /* a number that rises from one comparison to the next */
} Finding;

typedef struct Entry {
    char *name, *node;
    int occurrence;       /* how many of that name came before: in a loop the iteration */
    OnnxfuseValue *value; /* until compared */
    Finding finding;
} Entry;

typedef struct Recording {
    Entry *entries;              /* in the order in which they were made; behind them the outputs */
    int count, capacity, values; /* values: entries that are no outputs */
    int *by_name;                /* [values] entry numbers, sorted by name and occurrence */
    int *next;                   /* [values] of by_name's groups: at the first of a name how many have been asked for */
    char **texts;                /* what copied strings point into */
    int text_count;
    int unmatched; /* of the other run's values */
    long arrivals;
} Recording;

/* How values are to agree. */
typedef struct Closeness {
    double rtol, atol; /* atol < 0: rtol times the scale of the expected value */
} Closeness;

/* Runs and keeps all. */
Problem *recording_make(OnnxfuseSession *session, const OnnxfuseValue *const *inputs, Recording *out_recording);
/* Runs, and compares with what was kept; outputs too. closeness_of tolerance; types_only: [outputs] where only types
 * count, or NULL. */
Problem *recording_compare_run(Recording *recording, OnnxfuseSession *session, const OnnxfuseValue *const *inputs,
                               Closeness closeness);
/* Compares one value with the entry: it is what is expected. */
Problem *recording_compare(Recording *recording, Entry *entry, const OnnxfuseValue *expected, Closeness closeness,
                           bool types_only);
Entry *recording_output(Recording *recording, int index);
void recording_free(Recording *recording);

#endif
