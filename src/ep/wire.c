/* SPDX-License-Identifier: Apache-2.0 */
/* Writing protobuf messages. */
#include "ep/wire.h"

#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, LENGTH = 2, FIXED32 = 5, MOST_VARINT = 10 };

static unsigned char *room(Wire *wire, size_t size) {
    if (wire->failed) return NULL;
    if (wire->capacity - wire->size < size) {
        size_t capacity = 2 * (wire->size + size) + 4096;
        unsigned char *larger = realloc(wire->bytes, capacity);
        if (!larger) {
            wire->failed = true;
            return NULL;
        }
        wire->bytes = larger;
        wire->capacity = capacity;
    }
    return wire->bytes + wire->size;
}

static int encode(unsigned char *to, uint64_t value) {
    int count = 0;
    for (; value >= 0x80; value >>= 7) to[count++] = (unsigned char)(value | 0x80);
    to[count++] = (unsigned char)value;
    return count;
}

static void put(Wire *wire, uint64_t value) {
    unsigned char *to = room(wire, MOST_VARINT);
    if (to) wire->size += (size_t)encode(to, value);
}

static void put_tag(Wire *wire, int field, int kind) { put(wire, (uint64_t)field << 3 | (uint64_t)kind); }

static void put_bytes(Wire *wire, const void *bytes, size_t size) {
    unsigned char *to = room(wire, size);
    if (!to) return;
    if (size) memcpy(to, bytes, size);
    wire->size += size;
}

void wire_int(Wire *wire, int field, int64_t value) {
    put_tag(wire, field, VARINT);
    put(wire, (uint64_t)value);
}

void wire_float(Wire *wire, int field, float value) {
    put_tag(wire, field, FIXED32);
    put_bytes(wire, &value, sizeof value);
}

void wire_bytes(Wire *wire, int field, const void *bytes, size_t size) {
    put_tag(wire, field, LENGTH);
    put(wire, size);
    put_bytes(wire, bytes, size);
}

void wire_string(Wire *wire, int field, const char *text) { wire_bytes(wire, field, text, strlen(text)); }

size_t wire_begin(Wire *wire, int field) {
    put_tag(wire, field, LENGTH);
    return wire->size;
}

/* The size is known only now, and stands before what it counts. */
void wire_end(Wire *wire, size_t begin) {
    unsigned char length[MOST_VARINT];
    if (wire->failed || !room(wire, MOST_VARINT)) return;
    size_t size = wire->size - begin;
    int count = encode(length, size);
    memmove(wire->bytes + begin + count, wire->bytes + begin, size);
    memcpy(wire->bytes + begin, length, (size_t)count);
    wire->size += (size_t)count;
}

void wire_free(Wire *wire) {
    free(wire->bytes);
    *wire = (Wire){0};
}
