/* SPDX-License-Identifier: Apache-2.0 */
/* JSON through cJSON, whose numbers follow the locale: read and printed as in the C locale. cJSON does not tell why it
 * gives nothing; here what is not valid is told from what there was no memory for. */
#ifndef ONNXFUSE_POLICY_JSON_H
#define ONNXFUSE_POLICY_JSON_H

#include <cjson/cJSON.h>
#include "base/arena.h"

/* One value and white space, which lives as long as the arena. STATUS_INVALID with the line when it is not valid. */
Status json_parse(Arena *arena, const char *text, cJSON **out_item);
/* Without white space; lives as long as the arena. NULL: there is no such item. */
Status json_text(Arena *arena, const cJSON *item, const char **out_text);

#endif
