/* SPDX-License-Identifier: Apache-2.0 */
/* cJSON between plain_enter and plain_leave. */
#include "policy/json.h"

#include "base/plain.h"

cJSON *json_parse(const char *text, const char **out_end) {
    const char *end;
    locale_t before = plain_enter();
    cJSON *item = cJSON_ParseWithOpts(text, out_end ? out_end : &end, 1);
    plain_leave(before);
    return item;
}

cJSON *json_parse_bytes(const void *data, size_t size) {
    locale_t before = plain_enter();
    cJSON *item = cJSON_ParseWithLength(data, size);
    plain_leave(before);
    return item;
}

char *json_text(const cJSON *item) {
    locale_t before = plain_enter();
    char *text = item ? cJSON_PrintUnformatted(item) : NULL;
    plain_leave(before);
    return text;
}
