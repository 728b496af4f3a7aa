/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_free(Text *text) {
    free(text->data);
    *text = (Text){0};
}

bool text_reserve(Text *text, size_t more) {
    if (text->failed) return false;
    if (more >= SIZE_MAX / 4 - text->size) return text->failed = true, false;
    size_t need = text->size + more + 1;
    if (need <= text->capacity) return true;
    size_t capacity = text->capacity ? text->capacity * 2 : 256;
    if (capacity < need) capacity = need;
    char *data = realloc(text->data, capacity);
    if (!data) return text->failed = true, false;
    text->data = data;
    text->capacity = capacity;
    return true;
}

void text_append(Text *text, const char *bytes, size_t size) {
    if (!text_reserve(text, size)) return;
    if (size) memcpy(text->data + text->size, bytes, size);
    text->size += size;
    text->data[text->size] = 0;
}

void text_format(Text *text, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int size = vsnprintf(NULL, 0, format, arguments);
    if (size >= 0 && text_reserve(text, (size_t)size)) {
        vsnprintf(text->data + text->size, (size_t)size + 1, format, again);
        text->size += (size_t)size;
    }
    va_end(again);
    va_end(arguments);
}

void text_json_string(Text *text, const char *bytes, size_t size) {
    text_append(text, "\"", 1);
    size_t plain = 0; /* begin of what needs no escape */
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        text_append(text, bytes + plain, i - plain);
        plain = i + 1;
        if (c == '"' || c == '\\')
            text_format(text, "\\%c", c);
        else
            text_format(text, "\\u%04x", c);
    }
    text_append(text, bytes + plain, size - plain);
    text_append(text, "\"", 1);
}

/* RFC 3629: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
bool text_is_utf8(const char *bytes, size_t size) {
    static const struct {
        unsigned char low, high, second_low, second_high, more;
    } leads[] = {{0xC2, 0xDF, 0x80, 0xBF, 1}, {0xE0, 0xE0, 0xA0, 0xBF, 2}, {0xE1, 0xEC, 0x80, 0xBF, 2},
                 {0xED, 0xED, 0x80, 0x9F, 2}, {0xEE, 0xEF, 0x80, 0xBF, 2}, {0xF0, 0xF0, 0x90, 0xBF, 3},
                 {0xF1, 0xF3, 0x80, 0xBF, 3}, {0xF4, 0xF4, 0x80, 0x8F, 3}};
    const unsigned char *p = (const unsigned char *)bytes, *end = p + size;
    while (p < end) {
        unsigned char c = *p++;
        if (c < 0x80) continue;
        size_t lead = 0;
        while (lead < sizeof leads / sizeof *leads && (c < leads[lead].low || c > leads[lead].high)) lead++;
        if (lead == sizeof leads / sizeof *leads || end - p < leads[lead].more) return false;
        if (*p < leads[lead].second_low || *p > leads[lead].second_high) return false;
        for (int i = 1; i < leads[lead].more; i++)
            if ((p[i] & 0xC0) != 0x80) return false;
        p += leads[lead].more;
    }
    return true;
}
