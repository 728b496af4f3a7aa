/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 <-> code points. */
#ifndef ONNXFUSE_CLI_UTF8_H
#define ONNXFUSE_CLI_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Writes at most 4 bytes and returns how many; what is no code point becomes U+FFFD. */
size_t utf8_encode(uint32_t point, char *out);
/* The code point at *at, which is before end, and moves *at behind it; a byte that begins none is U+FFFD. */
uint32_t utf8_decode(const unsigned char **at, const unsigned char *end);

#endif
