/* SPDX-License-Identifier: Apache-2.0 */
/* cJSON between plain_enter and plain_leave. */
#include "policy/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/plain.h"

/* --- whether a text is JSON, told without memory: RFC 8259, within cJSON's bounds --- */
enum { LONGEST_NUMBER = 63 };

static const char *blank(const char *at) { return at + strspn(at, " \t\r\n"); }

static const char *value_end(const char *at, int depth);

/* The four digits behind \u; -1: there are none. */
static int unit_of(const char *at) {
    int unit = 0;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF", *digit = at[i] ? strchr(digits, at[i]) : NULL;
        if (!digit) return -1;
        unit = unit * 16 + (int)(digit - digits) % 16;
    }
    return unit;
}

/* Behind the escape at the backslash. Halves of a UTF-16 pair come together. */
static const char *escape_end(const char *at) {
    if (at[1] != 'u') return at[1] && strchr("\"\\/bfnrt", at[1]) ? at + 2 : NULL;
    int unit = unit_of(at + 2);
    if (unit < 0 || (unit >= 0xdc00 && unit < 0xe000)) return NULL;
    if (unit < 0xd800 || unit >= 0xe000) return at + 6;
    int low = at[6] == '\\' && at[7] == 'u' ? unit_of(at + 8) : -1;
    return low >= 0xdc00 && low < 0xe000 ? at + 12 : NULL;
}

static const char *string_end(const char *at) {
    if (*at++ != '"') return NULL;
    while (at && *at && *at != '"') at = *at == '\\' ? escape_end(at) : at + 1;
    return at && *at ? at + 1 : NULL;
}

static const char *number_end(const char *at) {
    static const char digits[] = "0123456789";
    const char *start = at;
    at += *at == '-';
    if (!plain_is_digit(*at)) return NULL;
    at += *at == '0' ? 1 : strspn(at, digits);
    if (*at == '.') {
        if (!plain_is_digit(*++at)) return NULL;
        at += strspn(at, digits);
    }
    if (*at == 'e' || *at == 'E') {
        at += at[1] == '-' || at[1] == '+' ? 2 : 1;
        if (!plain_is_digit(*at)) return NULL;
        at += strspn(at, digits);
    }
    return at - start <= LONGEST_NUMBER ? at : NULL;
}

/* Of an array or object. */
static const char *group_end(const char *at, int depth) {
    char end = *at == '{' ? '}' : ']';
    at = blank(at + 1);
    if (*at == end) return at + 1;
    for (;;) {
        if (end == '}') {
            at = string_end(blank(at));
            if (!at || *(at = blank(at)) != ':') return NULL;
            at++;
        }
        at = value_end(at, depth + 1);
        if (!at) return NULL;
        at = blank(at);
        if (*at == end) return at + 1;
        if (*at++ != ',') return NULL;
    }
}

static const char *value_end(const char *at, int depth) {
    static const char *const words[] = {"true", "false", "null"};
    at = blank(at);
    if (*at == '"') return string_end(at);
    if (*at == '{' || *at == '[') return depth < CJSON_NESTING_LIMIT ? group_end(at, depth) : NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(at, words[i], strlen(words[i])) == 0) return at + strlen(words[i]);
    return number_end(at);
}

static bool is_valid(const char *text) {
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0) text += 3;
    const char *end = value_end(text, 0);
    return end && !*blank(end);
}

/* --- items and texts that an arena frees: what there is to free is noted before it is made --- */
static void delete_item(void *held) { cJSON_Delete(*(cJSON **)held); }

static void free_text(void *held) { free(*(char **)held); }

static void *holder(Arena *arena, void (*release)(void *)) {
    void **held = ARENA_NEW(arena, void *);
    *held = NULL;
    arena_defer(arena, release, held);
    return held;
}

Status json_parse(Arena *arena, const char *text, cJSON **out_item) {
    cJSON **held = holder(arena, delete_item);
    const char *end = text;
    locale_t before = plain_enter();
    *out_item = *held = cJSON_ParseWithOpts(text, &end, 1);
    plain_leave(before);
    if (*held) return NULL;
    if (is_valid(text)) return status_out_of_memory();
    int line = 1;
    for (const char *p = text; end && p < end; p++) line += *p == '\n';
    return status_error(STATUS_INVALID, "line %d: not valid JSON", line);
}

Status json_text(Arena *arena, const cJSON *item, const char **out_text) {
    *out_text = NULL;
    if (!item) return NULL;
    char **held = holder(arena, free_text);
    locale_t before = plain_enter();
    *out_text = *held = cJSON_PrintUnformatted(item);
    plain_leave(before);
    return *held ? NULL : status_out_of_memory();
}
