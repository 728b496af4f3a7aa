/* A string builder over an arena; the old buffer stays behind until the arena is destroyed. */
#include "base/text.h"

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
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length > 0) {
        reserve(text, (size_t)length);
        vsnprintf(text->data + text->size, (size_t)length + 1, format, args);
        text->size += (size_t)length;
    }
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
            snprintf(digits, sizeof digits, "%.*g", precision, value);
            if (single ? strtof(digits, NULL) == (float)value : strtod(digits, NULL) == value) break;
        }
        text_add(text, "%s", digits);
    }
}

void text_add_double(Text *text, double value) { add_number(text, value, false); }

void text_add_float(Text *text, float value) { add_number(text, value, true); }
