/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows, for messages, JSON and metrics. A text that ran out of memory stays so: its user asks once, at the
 * end. */
#ifndef SERVE_TEXT_H
#define SERVE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Text {
    char *data; /* terminated where size > 0; NULL: empty */
    size_t size, capacity;
    bool failed;
} Text;

void text_free(Text *text);
bool text_reserve(Text *text, size_t more); /* room for `more` bytes and a terminator */
void text_append(Text *text, const char *bytes, size_t size);
void text_format(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A JSON string with its quotes. The bytes must be UTF-8. */
void text_json_string(Text *text, const char *bytes, size_t size);
bool text_is_utf8(const char *bytes, size_t size);

#endif
