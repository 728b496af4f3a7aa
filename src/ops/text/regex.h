/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions in RE2's syntax, matched against whole texts. Patterns and texts are UTF-8: a byte of a text that
 * is none matches nothing but \C. Time is linear in the text, and memory is bounded, whatever the pattern is. */
#ifndef ONNXFUSE_OPS_TEXT_REGEX_H
#define ONNXFUSE_OPS_TEXT_REGEX_H

#include "base/arena.h"

typedef struct Regex Regex;

/* STATUS_INVALID with the reason when the pattern is malformed or too large; STATUS_FAULT when the plug-in is missing.
 * It lives as long as the arena. */
Status regex_compile(const char *pattern, size_t size, Arena *arena, Regex **out_regex);
Status regex_matches_all(const Regex *regex, const char *text, size_t size, bool *out_matches);

#endif
