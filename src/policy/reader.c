/* SPDX-License-Identifier: Apache-2.0 */
/* JSON values with their types and ranges checked: every mistake is named with the file and the path in it. */
#include "policy/reader.h"
#include "base/plain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *kind_of(const cJSON *item) {
    if (cJSON_IsBool(item)) return "true or false";
    if (cJSON_IsNumber(item)) return "a number";
    if (cJSON_IsString(item)) return "a string";
    if (cJSON_IsArray(item)) return "an array";
    return cJSON_IsObject(item) ? "an object" : "null";
}

Status reader_error(const Reader *r, const char *path, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    plain_vprint(text, sizeof text, format, args);
    va_end(args);
    return status_error(STATUS_INVALID, "%s: %s: %s", r->name, path, text);
}

Status reader_wrong_type(const Reader *r, const char *path, const char *expected, const cJSON *item) {
    if (!*path) return status_error(STATUS_INVALID, "%s: expected %s, found %s", r->name, expected, kind_of(item));
    return reader_error(r, path, "expected %s, found %s", expected, kind_of(item));
}

/* Sorted, so that a large object of hostile making costs no quadratic time. */
static int by_key(const void *a, const void *b) {
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

Status reader_object(const Reader *r, const char *path, const cJSON *item) {
    if (!cJSON_IsObject(item)) return reader_wrong_type(r, path, "an object", item);
    int count = cJSON_GetArraySize(item), filled = 0;
    const cJSON **members = ARENA_ARRAY(r->arena, const cJSON *, count + 1), *member;
    cJSON_ArrayForEach(member, item) members[filled++] = member;
    qsort(members, (size_t)filled, sizeof *members, by_key);
    for (int i = 1; i < filled; i++)
        if (strcmp(members[i - 1]->string, members[i]->string) == 0)
            return status_error(STATUS_INVALID, "%s: %s%s%s: given twice", r->name, path, *path ? "." : "",
                                members[i]->string);
    return NULL;
}

Status reader_array(const Reader *r, const char *path, const cJSON *item) {
    return cJSON_IsArray(item) ? NULL : reader_wrong_type(r, path, "an array", item);
}

Status reader_string(const Reader *r, const char *path, const cJSON *item, const char **out_text) {
    if (!cJSON_IsString(item)) return reader_wrong_type(r, path, "a string", item);
    *out_text = arena_string(r->arena, item->valuestring);
    return NULL;
}

Status reader_filled_string(const Reader *r, const char *path, const cJSON *item, const char **out_text) {
    TRY(reader_string(r, path, item, out_text));
    return **out_text ? NULL : reader_error(r, path, "is empty");
}

/* Behind the set that begins at `at`; NULL: it is none, as *out_wrong says. A ] that comes first is an element; [: :] is a class of characters. */
static const char *set_end(const char *at, const char **out_wrong) {
    const char *first = at + 1 + (at[1] == '!' || at[1] == '^');
    for (const char *c = first; *c; c++) {
        if (*c == ']' && c > first) return c + 1;
        const char *close = c[0] == '[' && c[1] == ':' ? strstr(c + 2, ":]") : NULL;
        if (close) {
            c = close + 1;
            continue;
        }
        if (*c == '\\' && c[1]) c++;
        bool range = c[1] == '-' && c[2] && c[2] != ']' && c[2] != '[' && c[2] != '\\';
        if (range && (unsigned char)c[2] < (unsigned char)c[0])
            return *out_wrong = "a range that ends before it begins", NULL;
        if (range) c += 2;
    }
    return *out_wrong = "[ without ] (the character [ itself is [[])", NULL;
}

Status reader_glob(const Reader *r, const char *path, const cJSON *item, const char **out_glob) {
    const char *wrong = NULL;
    TRY(reader_filled_string(r, path, item, out_glob));
    for (const char *c = *out_glob; c && *c;) {
        if (*c == '[') {
            c = set_end(c, &wrong);
        } else if (*c == '\\' && !c[1]) {
            wrong = "\\ at its end, where no character follows";
            c = NULL;
        } else {
            c += *c == '\\' ? 2 : 1;
        }
    }
    return wrong ? reader_error(r, path, "no pattern for names: \"%s\" has %s", *out_glob, wrong) : NULL;
}

Status reader_bool(const Reader *r, const char *path, const cJSON *item, bool *out_value) {
    if (!cJSON_IsBool(item)) return reader_wrong_type(r, path, "true or false", item);
    *out_value = cJSON_IsTrue(item);
    return NULL;
}

Status reader_whole(const Reader *r, const char *path, const cJSON *item, double low, double high, int64_t *out_value) {
    if (!cJSON_IsNumber(item)) return reader_wrong_type(r, path, "a whole number", item);
    double value = item->valuedouble;
    if (value != floor(value)) return reader_error(r, path, "%g is not a whole number", value);
    if (!(value >= low && value <= high))
        return reader_error(r, path, "%.0f is not between %.0f and %.0f", value, low, high);
    *out_value = (int64_t)value;
    return NULL;
}

Status reader_number(const Reader *r, const char *path, const cJSON *item, double *out_value) {
    if (!cJSON_IsNumber(item)) return reader_wrong_type(r, path, "a number", item);
    *out_value = item->valuedouble;
    return isfinite(*out_value) ? NULL : reader_error(r, path, "is too large");
}

Status reader_choice(const Reader *r, const char *path, const cJSON *item, const char *const *names, int count,
                     int *out_index) {
    if (!cJSON_IsString(item)) return reader_wrong_type(r, path, "a string", item);
    Text known = text_make(r->arena);
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], item->valuestring) == 0) {
            *out_index = i;
            return NULL;
        }
        text_add(&known, "%s%s", !i ? "" : i + 1 == count ? " and " : ", ", names[i]);
    }
    return reader_error(r, path, "there is no \"%.100s\" (%s %s possible)", item->valuestring, known.data,
                        count == 1 ? "is" : "are");
}

Status reader_precision(const Reader *r, const char *path, const cJSON *item, int names, Precision *out_precision) {
    int index = 0;
    TRY(reader_choice(r, path, item, precision_names, names, &index));
    *out_precision = (Precision)(PRECISION_F32 + index);
    return NULL;
}

Status reader_activations(const Reader *r, const char *path, const cJSON *item, Precision *out_precision) {
    static const char *const names[] = {"f32", "int8"};
    int index = 0;
    TRY(reader_choice(r, path, item, names, 2, &index));
    *out_precision = index ? PRECISION_INT8 : PRECISION_F32;
    return NULL;
}

Status reader_tolerance(const Reader *r, const char *path, const cJSON *item, double *out_tolerance) {
    TRY(reader_number(r, path, item, out_tolerance));
    if (*out_tolerance > 0 && *out_tolerance <= 1) return NULL;
    return reader_error(r, path, "%g is not above 0 and at most 1", *out_tolerance);
}
