/* SPDX-License-Identifier: Apache-2.0 */
/* JSON through cJSON, whose numbers follow the locale: read and printed as in the C locale. */
#ifndef ONNXFUSE_POLICY_JSON_H
#define ONNXFUSE_POLICY_JSON_H

#include <cjson/cJSON.h>
#include <stddef.h>

/* One value and white space. NULL when it is not valid; *out_end (may be NULL) is then where. */
cJSON *json_parse(const char *text, const char **out_end);
/* The value at the beginning of bytes that need not be terminated. */
cJSON *json_parse_bytes(const void *data, size_t size);
/* Without white space; freed by the caller; NULL when there is no memory, or no item. */
char *json_text(const cJSON *item);

#endif
