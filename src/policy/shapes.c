/* SPDX-License-Identifier: Apache-2.0 */
/* "shapes": sizes that are expected, and sizes that are rounded up. */
#include <stdlib.h>
#include <string.h>

#include "graph/dim.h"
#include "policy/reader.h"

static const double LARGEST = LARGEST_SIZE; /* of one size */
enum { MOST_HINTS = 16 };                   /* as many as sizes are remembered for (runtime/plan/bound_sizes.c) */

/* --- hints --- */
static Status read_hint(const Reader *r, const char *path, const cJSON *object, ShapeHint *hint) {
    const cJSON *item;
    TRY(reader_object(r, path, object));
    int count = cJSON_GetArraySize(object);
    if (!count) return reader_error(r, path, "names no size");
    const char **symbols = ARENA_ARRAY(r->arena, const char *, count);
    int64_t *sizes = ARENA_ARRAY(r->arena, int64_t, count);
    cJSON_ArrayForEach(item, object) {
        const char *at = arena_format(r->arena, "%s.%s", path, item->string);
        symbols[hint->count] = arena_string(r->arena, item->string);
        TRY(reader_whole(r, at, item, 0, LARGEST, &sizes[hint->count]));
        hint->count++;
    }
    hint->symbols = symbols;
    hint->sizes = sizes;
    return NULL;
}

Status read_hints(Reader *r, const char *path, const cJSON *array) {
    const cJSON *item;
    TRY(reader_array(r, path, array));
    int count = cJSON_GetArraySize(array), number = 0;
    if (count > MOST_HINTS) return reader_error(r, path, "%d hints (%d are possible)", count, MOST_HINTS);
    ShapeHint *hints = ARENA_ARRAY(r->arena, ShapeHint, count + 1);
    cJSON_ArrayForEach(item, array) {
        TRY(read_hint(r, arena_format(r->arena, "%s[%d]", path, number), item, &hints[number]));
        number++;
    }
    r->policy->shapes.hints = hints;
    r->policy->shapes.hint_count = count;
    return NULL;
}

void hints_print(Text *text, const Policy *policy) {
    for (int i = 0; i < policy->shapes.hint_count; i++) {
        const ShapeHint *hint = &policy->shapes.hints[i];
        text_add(text, "%s{", i ? ", " : "");
        for (int s = 0; s < hint->count; s++)
            text_add(text, "%s%s: %lld", s ? ", " : "", hint->symbols[s], (long long)hint->sizes[s]);
        text_add(text, "}");
    }
    if (!policy->shapes.hint_count) text_add(text, "none");
}

/* --- buckets --- */
static Status read_sizes(const Reader *r, const char *path, const cJSON *array, ShapeBucket *bucket) {
    const cJSON *item;
    TRY(reader_array(r, path, array));
    int count = cJSON_GetArraySize(array);
    if (!count) return reader_error(r, path, "is empty");
    int64_t *sizes = ARENA_ARRAY(r->arena, int64_t, count);
    cJSON_ArrayForEach(item, array) {
        int number = bucket->size_count;
        const char *at = arena_format(r->arena, "%s[%d]", path, number);
        TRY(reader_whole(r, at, item, 1, LARGEST, &sizes[number]));
        if (number && sizes[number] <= sizes[number - 1])
            return reader_error(r, at, "%lld is not above the size before it, %lld", (long long)sizes[number],
                                (long long)sizes[number - 1]);
        bucket->size_count++;
    }
    bucket->sizes = sizes;
    return NULL;
}

static Status read_pads(const Reader *r, const char *path, const cJSON *object, ShapeBucket *bucket) {
    const cJSON *item;
    TRY(reader_object(r, path, object));
    int count = cJSON_GetArraySize(object);
    if (!count) return reader_error(r, path, "names no input");
    const char **inputs = ARENA_ARRAY(r->arena, const char *, count);
    double *pads = ARENA_ARRAY(r->arena, double, count);
    cJSON_ArrayForEach(item, object) {
        const char *at = arena_format(r->arena, "%s.%s", path, item->string);
        inputs[bucket->pad_count] = arena_string(r->arena, item->string);
        if (cJSON_IsBool(item))
            pads[bucket->pad_count] = cJSON_IsTrue(item);
        else
            TRY(reader_number(r, at, item, &pads[bucket->pad_count]));
        bucket->pad_count++;
    }
    bucket->inputs = inputs;
    bucket->pads = pads;
    return NULL;
}

static Status read_bucket(const Reader *r, const char *path, const cJSON *object, ShapeBucket *bucket) {
    const cJSON *item;
    TRY(reader_object(r, path, object));
    bucket->symbol = arena_string(r->arena, object->string);
    cJSON_ArrayForEach(item, object) {
        const char *at = arena_format(r->arena, "%s.%s", path, item->string);
        if (strcmp(item->string, "sizes") == 0)
            TRY(read_sizes(r, at, item, bucket));
        else if (strcmp(item->string, "pad") == 0)
            TRY(read_pads(r, at, item, bucket));
        else
            return reader_error(r, at, "unknown key");
    }
    if (!bucket->sizes) return reader_error(r, path, "sizes is missing");
    return bucket->inputs ? NULL
                          : reader_error(r, path,
                                         "pad is missing: each input that has this size, and what it is "
                                         "filled up with");
}

Status read_buckets(Reader *r, const char *path, const cJSON *object) {
    const cJSON *item;
    TRY(reader_object(r, path, object));
    int count = cJSON_GetArraySize(object), number = 0;
    ShapeBucket *buckets = ARENA_ARRAY(r->arena, ShapeBucket, count + 1);
    cJSON_ArrayForEach(item, object)
        TRY(read_bucket(r, arena_format(r->arena, "%s.%s", path, item->string), item, &buckets[number++]));
    r->policy->shapes.buckets = buckets;
    r->policy->shapes.bucket_count = count;
    return NULL;
}

void buckets_print(Text *text, const Policy *policy) {
    for (int i = 0; i < policy->shapes.bucket_count; i++) {
        const ShapeBucket *bucket = &policy->shapes.buckets[i];
        text_add(text, "%s%s to", i ? "; " : "", bucket->symbol);
        for (int s = 0; s < bucket->size_count; s++)
            text_add(text, "%s %lld", s ? "," : "", (long long)bucket->sizes[s]);
        text_add(text, ", padding");
        for (int p = 0; p < bucket->pad_count; p++)
            text_add(text, "%s %s with %g", p ? "," : "", bucket->inputs[p], bucket->pads[p]);
    }
    if (!policy->shapes.bucket_count) text_add(text, "none");
}
