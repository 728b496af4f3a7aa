/* SPDX-License-Identifier: Apache-2.0 */
/* docs/policy.schema.json and the reader's table of keys say the same: each key of the one is a key of the other, and
 * values at, within and beyond the schema's bounds are taken and refused as it says. What keys say together is in
 * test_samples.c. */
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain.h"
#include "policy/policy.h"

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s: the tests run in the project's folder", path);
    char *text = calloc(1, 1 << 18);
    size_t size = fread(text, 1, (1 << 18) - 1, file);
    cr_assert(size > 0, "%s is empty", path);
    fclose(file);
    return text;
}

static cJSON *read_schema(void) {
    char *text = read_text("docs/policy.schema.json");
    cJSON *schema = cJSON_Parse(text);
    free(text);
    cr_assert_not_null(schema, "the schema is JSON");
    return schema;
}

/* Whether the reader takes {path: value}; section is NULL for a key of the outermost object. */
static bool is_taken(const char *section, const char *key, const char *value) {
    char json[512];
    if (section)
        snprintf(json, sizeof json, "{\"%s\": {\"%s\": %s}}", section, key, value);
    else
        snprintf(json, sizeof json, "{\"%s\": %s}", key, value);
    Arena *arena = arena_create(0);
    Policy policy = policy_default();
    Status status = policy_parse(json, strlen(json), "policy", arena, &policy);
    bool taken = !status;
    cr_expect(taken || status_code(status) == STATUS_INVALID, "%s: %s", json, status_message(status));
    status_free(status);
    arena_destroy(arena);
    return taken;
}

static void expect(const char *section, const char *key, const char *value, bool taken) {
    cr_expect_eq(is_taken(section, key, value), taken, "%s%s%s: %s is %s", section ? section : "", section ? "." : "",
                 key, value, taken ? "allowed by the schema" : "forbidden by the schema");
}

static void check_number(const char *section, const char *key, const cJSON *about, bool whole) {
    const cJSON *low = cJSON_GetObjectItem(about, "minimum"), *high = cJSON_GetObjectItem(about, "maximum");
    cr_assert(low && high, "%s: the schema gives the range", key);
    char text[64];
    const double values[] = {low->valuedouble, high->valuedouble, low->valuedouble - 1, 2 * high->valuedouble};
    for (int i = 0; i < 4; i++) {
        plain_print(text, sizeof text, "%.17g", values[i]);
        expect(section, key, text, i < 2);
    }
    if (whole) expect(section, key, "1.5", false);
    expect(section, key, "true", false);
}

/* Keys that are taken together with others alone: test_samples.c. */
static bool needs_others(const char *section, const char *key) {
    return (section && strcmp(section, "check") == 0) || strcmp(key, "tolerance") == 0;
}

static void check_key(const char *section, const cJSON *about) {
    const char *key = about->string;
    const cJSON *type = cJSON_GetObjectItem(about, "type"), *choice;
    const char *name = type ? type->valuestring : "choice";
    expect(section, key, "null", false);
    if (strcmp(name, "array") == 0) {
        expect(section, key, "[]", !cJSON_GetObjectItem(about, "minItems"));
        expect(section, key, "{}", false);
        return;
    }
    expect(section, key, "[]", false);
    if (strcmp(name, "object") == 0 || needs_others(section, key)) return;
    if (strcmp(name, "integer") == 0 || strcmp(name, "number") == 0) {
        check_number(section, key, about, strcmp(name, "integer") == 0);
    } else if (strcmp(name, "boolean") == 0) {
        expect(section, key, "true", true);
        expect(section, key, "false", true);
        expect(section, key, "1", false);
    } else if (strcmp(name, "string") == 0) {
        expect(section, key, "\"x\"", true);
        expect(section, key, "1", false);
    } else {
        char text[64];
        cJSON_ArrayForEach(choice, cJSON_GetObjectItem(about, "enum")) {
            snprintf(text, sizeof text, "\"%s\"", choice->valuestring);
            expect(section, key, text, true);
        }
        expect(section, key, "\"no such choice\"", false);
    }
}

Test(schema, values_are_taken_as_the_schema_says) {
    cJSON *schema = read_schema();
    const cJSON *key, *inner;
    cJSON_ArrayForEach(key, cJSON_GetObjectItem(schema, "properties")) {
        const cJSON *section = cJSON_GetObjectItem(key, "properties");
        cJSON_ArrayForEach(inner, section) check_key(key->string, inner);
        if (!section) check_key(NULL, key);
    }
    expect(NULL, "no_such_key", "1", false);
    expect("fusion", "no_such_key", "1", false);
    cJSON_Delete(schema);
}

/* The rows of the table in policy.c read {"path", KEY_TYPE, ...}. */
Test(schema, every_key_of_the_reader_is_in_the_schema_and_the_guide) {
    cJSON *schema = read_schema();
    char *source = read_text("src/policy/keys.c"), *guide = read_text("docs/policy.md");
    int count = 0;
    for (char *row = strstr(source, "{\""); row; row = strstr(row + 1, "{\"")) {
        char path[64] = "", type[16] = "", quoted[80];
        if (sscanf(row, "{\"%63[a-z_.]\", KEY_%15[A-Z0-9]", path, type) != 2) continue;
        char *dot = strchr(path, '.');
        snprintf(quoted, sizeof quoted, "`%s`", path);
        cr_expect(strstr(guide, quoted), "docs/policy.md explains %s", path);
        if (dot) *dot = 0;
        const cJSON *key = cJSON_GetObjectItem(cJSON_GetObjectItem(schema, "properties"), path);
        if (dot) key = cJSON_GetObjectItem(cJSON_GetObjectItem(key, "properties"), dot + 1);
        cr_expect_not_null(key, "the schema has %s%s%s", path, dot ? "." : "", dot ? dot + 1 : "");
        count++;
    }
    cr_expect(count > 5, "the table of keys was found");
    free(source);
    free(guide);
    cJSON_Delete(schema);
}
