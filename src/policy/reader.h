/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of the policy's sections share. Internal to src/policy.
 *   keys.c     keys with one value, and the list of all sections
 *   rules.c    "rules", and what of it holds for the whole model
 *   shapes.c   "shapes"
 *   state.c    "state"
 *   fusions.c  "fusions" */
#ifndef ONNXFUSE_POLICY_READER_H
#define ONNXFUSE_POLICY_READER_H

#include <cjson/cJSON.h>

#include "policy/policy.h"

typedef struct Reader {
    const char *name;   /* of the file, for messages */
    const char *folder; /* of the file; NULL: where the process works */
    Arena *arena;
    Policy *policy;
    Rule whole; /* "precision", "weights", "activations" and "tolerance" of the whole model */
} Reader;

/* "NAME: PATH: ..." */
Status reader_error(const Reader *r, const char *path, const char *format, ...) STATUS_FORMAT(3, 4);
Status reader_wrong_type(const Reader *r, const char *path, const char *expected, const cJSON *item);
Status reader_object(const Reader *r, const char *path, const cJSON *item); /* an object, each key once */
Status reader_array(const Reader *r, const char *path, const cJSON *item);
Status reader_string(const Reader *r, const char *path, const cJSON *item, const char **out_text);
Status reader_filled_string(const Reader *r, const char *path, const cJSON *item, const char **out_text);
/* A pattern over names, as fnmatch takes it; refused where no name could be meant. */
Status reader_glob(const Reader *r, const char *path, const cJSON *item, const char **out_glob);
Status reader_bool(const Reader *r, const char *path, const cJSON *item, bool *out_value);
Status reader_whole(const Reader *r, const char *path, const cJSON *item, double low, double high, int64_t *out_value);
Status reader_number(const Reader *r, const char *path, const cJSON *item, double *out_value); /* finite */
/* One of the names [count]. */
Status reader_choice(const Reader *r, const char *path, const cJSON *item, const char *const *names, int count,
                     int *out_index);

/* In the order of DeviceKind. */
enum { DEVICE_NAMES = 4 };
extern const char *const device_names[];
/* Takes an integer enum's number, in the order of the names below. */
enum { PRECISION_NAMES = 3, WEIGHT_NAMES = 5 };
extern const char *const precision_names[]; /* f32, f16, bf16, int8, int4 */
Status reader_precision(const Reader *r, const char *path, const cJSON *item, int names, Precision *out_precision);
Status reader_activations(const Reader *r, const char *path, const cJSON *item, Precision *out_precision);
Status reader_tolerance(const Reader *r, const char *path, const cJSON *item, double *out_tolerance);

/* --- rules.c --- */
Status read_rules(Reader *r, const char *path, const cJSON *item);
/* After all keys: the whole model's rule goes before the others; what contradicts the rest of the policy. */
Status finish_rules(Reader *r);
void rules_print(Text *text, const Policy *policy);

/* --- shapes.c --- */
Status read_hints(Reader *r, const char *path, const cJSON *item);
Status read_buckets(Reader *r, const char *path, const cJSON *item);
void hints_print(Text *text, const Policy *policy);
void buckets_print(Text *text, const Policy *policy);

/* --- state.c --- */
Status read_states(Reader *r, const char *path, const cJSON *item);
void states_print(Text *text, const Policy *policy);

#endif
