/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as text in the C locale, over a locale object of the C library and the locale of the calling thread. */
#include "base/plain.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* glibc hands out one object that needs no memory. Where there is none, LC_GLOBAL_LOCALE leaves things as they are. */
static locale_t plain = LC_GLOBAL_LOCALE;

static void make_plain(void) {
    locale_t made = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (made) plain = made;
}

static locale_t plain_locale(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_plain);
    return plain;
}

locale_t plain_enter(void) { return uselocale(plain_locale()); }

void plain_leave(locale_t before) { uselocale(before); }

double plain_double(const char *text, char **out_end) {
    locale_t before = plain_enter();
    double value = strtod(text, out_end);
    plain_leave(before);
    return value;
}

float plain_float(const char *text, char **out_end) {
    locale_t before = plain_enter();
    float value = strtof(text, out_end);
    plain_leave(before);
    return value;
}

int plain_vprint(char *to, size_t size, const char *format, va_list args) {
    locale_t before = plain_enter();
    int length = vsnprintf(to, size, format, args);
    plain_leave(before);
    return length;
}

int plain_print(char *to, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = plain_vprint(to, size, format, args);
    va_end(args);
    return length;
}

const char *plain_error(int error) {
    locale_t before = plain_enter();
    const char *text = strerror(error);
    plain_leave(before);
    return text;
}

bool plain_equal(const char *data, size_t size, const char *word) {
    if (strlen(word) != size) return false;
    for (size_t i = 0; i < size; i++)
        if (plain_lower(data[i]) != plain_lower(word[i])) return false;
    return true;
}

bool plain_contains(const char *text, const char *part) {
    for (size_t size = strlen(part), left = strlen(text); left >= size; text++, left--)
        if (plain_equal(text, size, part)) return true;
    return false;
}
