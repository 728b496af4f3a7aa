/* SPDX-License-Identifier: Apache-2.0 */
/* What print.c and parse.c must agree on; the grammar stands at the head of print.c. */
#ifndef ONNXFUSE_GRAPH_TEXT_FORM_H
#define ONNXFUSE_GRAPH_TEXT_FORM_H

#include "graph/graph.h"

enum { TEXT_FORM_ELEMENTS = 64 }; /* a literal with more is printed as its hash */

static inline bool text_form_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '/';
}
/* Whether a name needs no quotes. */
bool text_form_plain(const char *name);
/* Origins stand alone in their comment, so more characters are plain there. */
static inline bool text_form_origin_char(char c) { return c > ' ' && c < 127 && c != ',' && c != '"'; }
static inline bool text_form_plain_origin(const char *name) {
    const char *c = name;
    while (text_form_origin_char(*c)) c++;
    return *name && !*c;
}

#endif
