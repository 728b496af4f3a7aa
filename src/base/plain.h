/* SPDX-License-Identifier: Apache-2.0 */
/* Text as in the C locale, whatever locale the program or its threads have set: numbers are read and printed with a
 * point, and only ASCII has letters, digits and white space. The C library's own functions follow LC_NUMERIC and
 * LC_CTYPE, so only these are used (tests/base/plain_text.sh looks for others). */
#ifndef ONNXFUSE_BASE_PLAIN_H
#define ONNXFUSE_BASE_PLAIN_H

#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* As strtod, strtof, vsnprintf and snprintf. */
double plain_double(const char *text, char **out_end);
float plain_float(const char *text, char **out_end);
int plain_vprint(char *to, size_t size, const char *format, va_list args) __attribute__((format(printf, 3, 0)));
int plain_print(char *to, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* As strerror, which answers in the locale's language and character set. */
const char *plain_error(int error);

/* Code of others that reads or prints numbers runs between these two; the second takes what the first returned. */
locale_t plain_enter(void);
void plain_leave(locale_t before);

static inline bool plain_is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool plain_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
/* Of a name: a letter, a digit or an underscore. */
static inline bool plain_is_word(char c) { return plain_is_letter(c) || plain_is_digit(c) || c == '_'; }
static inline bool plain_is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static inline char plain_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c; }
/* Whether the bytes are those of `word`, in any case. */
bool plain_equal(const char *data, size_t size, const char *word);
/* Whether `part` stands somewhere in the text, in any case. */
bool plain_contains(const char *text, const char *part);

#endif
