/* SPDX-License-Identifier: Apache-2.0 */
/* The reader on tests/policy/samples.json: what it takes, and what it says of the rest. The schema's side of the same
 * table is test_samples.py. */
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

static cJSON *read_samples(void) {
    enum { ROOM = 1 << 18 };
    FILE *file = fopen("tests/policy/samples.json", "rb");
    cr_assert_not_null(file, "the tests run in the project's folder");
    char *text = calloc(1, ROOM);
    size_t size = fread(text, 1, ROOM - 1, file);
    fclose(file);
    cr_assert(size > 0 && size < ROOM - 1);
    cJSON *samples = cJSON_Parse(text);
    free(text);
    cr_assert(cJSON_IsArray(samples), "the samples are a JSON array");
    return samples;
}

static void check_sample(const cJSON *sample) {
    const char *name = cJSON_GetObjectItem(sample, "name")->valuestring;
    const cJSON *error = cJSON_GetObjectItem(sample, "error");
    char *json = cJSON_PrintUnformatted(cJSON_GetObjectItem(sample, "policy"));
    Arena *arena = arena_create(0);
    Policy policy = policy_default();
    Status status = policy_parse(json, strlen(json), "p.json", arena, &policy);
    if (!error) {
        cr_expect(!status, "%s: %s", name, status_message(status));
    } else {
        const char *expected = arena_format(arena, "p.json: %s", error->valuestring);
        cr_expect(status_code(status) == STATUS_INVALID &&
                      strstr(status_message(status), expected) == status_message(status),
                  "%s: \"%s\", expected \"%s\"", name, status_message(status), expected);
    }
    if (!status) {
        Text text = text_make(arena);
        policy_print(&text, &policy);
        cr_expect(text.size > 0);
    }
    status_free(status);
    arena_destroy(arena);
    cJSON_free(json);
}

Test(samples, the_reader_takes_and_refuses_what_the_table_says) {
    cJSON *samples = read_samples();
    const cJSON *sample;
    cJSON_ArrayForEach(sample, samples) check_sample(sample);
    cr_expect(cJSON_GetArraySize(samples) > 50);
    cJSON_Delete(samples);
}
