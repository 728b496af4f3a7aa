/* Regular expressions in linear time: patterns in RE2's syntax, matched against whole texts by simulating all threads
 * of the compiled program at once, so no pattern or text makes it slow (after K. Thompson, "Regular expression search
 * algorithm", 1968).
 *
 * Literals (UTF-8), . [..] [^..] [[:class:]], \d \w \s \D \W \S, \t \n \r \f \v \a \xHH \x{H..}, \Q..\E, groups (..),
 * (?:..),
 * (?P<name>..), (?flags) with i, s, m and U, |, * + ? {m} {m,} {m,n} also lazy, ^ $ \A \z \b \B. Not there: \p{..}, \C.
 */
#ifndef ONNXFUSE_OPS_TEXT_REGEX_H
#define ONNXFUSE_OPS_TEXT_REGEX_H

#include "base/text.h"

typedef struct Regex Regex;

/* STATUS_INVALID with the reason when the pattern is malformed or grows beyond the limit of the program. */
Status regex_compile(const char *pattern, size_t size, Arena *arena, Regex **out_regex);
bool regex_matches_all(const Regex *regex, const char *text, size_t size);

#endif
