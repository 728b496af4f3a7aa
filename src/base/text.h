/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows in an arena, and what parsing and printing numbers and hostile names needs. */
#ifndef ONNXFUSE_BASE_TEXT_H
#define ONNXFUSE_BASE_TEXT_H

#include <stdint.h>
#include "base/arena.h"

typedef struct Text {
    Arena *arena;
    char *data; /* terminated; "" when empty */
    size_t size, capacity;
} Text;

Text text_make(Arena *arena);
void text_add(Text *text, const char *format, ...) STATUS_FORMAT(2, 3);
void text_add_bytes(Text *text, const char *data, size_t size);
/* In double quotes, with \" \\ \n \t and \xHH for bytes that are not printable ASCII. */
void text_add_quoted(Text *text, const char *data, size_t size);
/* As a JSON string that may also stand in a script of a page: UTF-8 as it is, bytes that are none as if they were
 * Latin-1; control characters, <, > and & as \uXXXX. */
void text_add_json(Text *text, const char *data, size_t size);
/* How many of the bytes, which are at least one, are the UTF-8 form of a character (RFC 3629); 0: none begins here. out_point may
 * be NULL. */
size_t text_point(const char *data, size_t size, uint32_t *out_point);
/* The shortest decimal form that reads back as the same double; "inf", "-inf", "nan". */
void text_add_double(Text *text, double value);
/* As above for a float. */
void text_add_float(Text *text, float value);

#endif
