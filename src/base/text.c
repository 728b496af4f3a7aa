/* SPDX-License-Identifier: Apache-2.0 */
/* A string builder over an arena; the old buffer stays behind until the arena is destroyed. */
#include "base/text.h"
#include "base/plain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

Text text_make(Arena *arena) { return (Text){arena, arena_alloc(arena, 64), 0, 64}; }

static void reserve(Text *text, size_t more) {
    if (text->size + more + 1 <= text->capacity) return;
    size_t capacity = (text->size + more + 1) * 2;
    char *data = arena_alloc(text->arena, capacity);
    memcpy(data, text->data, text->size);
    text->data = data;
    text->capacity = capacity;
}

void text_add_bytes(Text *text, const char *data, size_t size) {
    reserve(text, size);
    if (size) memcpy(text->data + text->size, data, size);
    text->size += size;
    text->data[text->size] = 0;
}

void text_add(Text *text, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t room = text->capacity - text->size; /* mostly it fits */
    int length = plain_vprint(text->data + text->size, room, format, again);
    va_end(again);
    if (length > 0 && (size_t)length >= room) {
        reserve(text, (size_t)length);
        plain_vprint(text->data + text->size, (size_t)length + 1, format, args);
    }
    if (length > 0) text->size += (size_t)length;
    text->data[text->size] = 0; /* of a failure nothing stays */
    va_end(args);
}

void text_add_quoted(Text *text, const char *data, size_t size) {
    text_add_bytes(text, "\"", 1);
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c == '"' || c == '\\')
            text_add(text, "\\%c", c);
        else if (c == '\n')
            text_add_bytes(text, "\\n", 2);
        else if (c == '\t')
            text_add_bytes(text, "\\t", 2);
        else if (c < 32 || c >= 127)
            text_add(text, "\\x%02x", c);
        else
            text_add_bytes(text, (const char *)&c, 1);
    }
    text_add_bytes(text, "\"", 1);
}

size_t text_point(const char *data, size_t size, uint32_t *out_point) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000}; /* what needs so many bytes more */
    const unsigned char *s = (const unsigned char *)data;
    size_t more = s[0] < 0x80 ? 0 : (s[0] & 0xe0) == 0xc0 ? 1 : (s[0] & 0xf0) == 0xe0 ? 2 : 3;
    if ((s[0] >= 0x80 && s[0] < 0xc0) || s[0] >= 0xf8 || more >= size) return 0;
    uint32_t point = more ? s[0] & (0x3fu >> more) : s[0];
    for (size_t i = 1; i <= more; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        point = point << 6 | (s[i] & 0x3f);
    }
    if (point < least[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return 0;
    if (out_point) *out_point = point;
    return more + 1;
}

void text_add_json(Text *text, const char *data, size_t size) {
    const unsigned char *bytes = (const unsigned char *)data;
    text_add_bytes(text, "\"", 1);
    for (size_t i = 0, length; i < size; i += length ? length : 1) {
        length = text_point(data + i, size - i, NULL);
        bool separator = length == 3 && bytes[i] == 0xe2 && bytes[i + 1] == 0x80 && (bytes[i + 2] & 0xfe) == 0xa8;
        if (bytes[i] == '"' || bytes[i] == '\\')
            text_add(text, "\\%c", bytes[i]);
        else if (separator)
            text_add(text, "\\u20%02x", bytes[i + 2] == 0xa8 ? 0x28 : 0x29);
        else if (!length || bytes[i] < ' ' || bytes[i] == 127 || strchr("<>&", bytes[i]))
            text_add(text, "\\u%04x", bytes[i]);
        else
            text_add_bytes(text, data + i, length);
    }
    text_add_bytes(text, "\"", 1);
}

static void add_number(Text *text, double value, bool single) {
    if (isnan(value)) {
        text_add(text, "nan");
    } else if (isinf(value)) {
        text_add(text, value < 0 ? "-inf" : "inf");
    } else {
        char digits[40];
        int least = 1; /* digits before the point, so that 10 is no 1e+01 */
        for (double size = fabs(value); size >= 10 && size < 1e10; size /= 10) least++;
        for (int precision = least < 10 ? least : 1; precision <= 17; precision++) {
            plain_print(digits, sizeof digits, "%.*g", precision, value);
            if (single ? plain_float(digits, NULL) == (float)value : plain_double(digits, NULL) == value) break;
        }
        text_add(text, "%s", digits);
    }
}

void text_add_double(Text *text, double value) { add_number(text, value, false); }

void text_add_float(Text *text, float value) { add_number(text, value, true); }
