/* SPDX-License-Identifier: Apache-2.0 */
/* Writing protobuf messages: fields one after the other into a growing buffer. */
#ifndef ONNXFUSE_EP_WIRE_H
#define ONNXFUSE_EP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Wire {
    unsigned char *bytes; /* malloc's */
    size_t size, capacity;
    bool failed; /* out of memory: everything after that is ignored */
} Wire;          /* zero-initialise */

void wire_int(Wire *wire, int field, int64_t value);
void wire_float(Wire *wire, int field, float value);
void wire_bytes(Wire *wire, int field, const void *bytes, size_t size);
void wire_string(Wire *wire, int field, const char *text);
/* A message inside: what is written between the two calls. begin gives what end needs. */
size_t wire_begin(Wire *wire, int field);
void wire_end(Wire *wire, size_t begin);
void wire_free(Wire *wire);

#endif
