/* SPDX-License-Identifier: Apache-2.0 */
/* One walk over each message. The arrays of repeated fields grow as elements come, to powers of two, so a count says how
 * much room its array has. Format: https://protobuf.dev/programming-guides/encoding */
#include "importer/wire.h"

#include <limits.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are stored little-endian and are read in place"
#endif

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* Where messages go, and where strings and lists of numbers do. */
typedef struct Room {
    Arena *messages, *values;
} Room;

typedef struct Span {
    const uint8_t *at, *end;
} Span;

/* One key with what follows it. */
typedef struct Record {
    const ProtobufCFieldDescriptor *field; /* NULL: unknown to us */
    int wire;
    uint64_t number; /* the value of a varint */
    Span payload;    /* of the other wire types */
} Record;

static Status malformed(const ProtobufCMessageDescriptor *type, const char *what) {
    return status_error(STATUS_INVALID, "not a well-formed file: %s in a %s", what, type->short_name);
}

static bool read_varint(Span *in, uint64_t *out_value) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && in->at < in->end; shift += 7) {
        uint8_t byte = *in->at++;
        value |= (uint64_t)(byte & 127) << (shift < 64 ? shift : 63);
        if (byte < 128) {
            *out_value = value;
            return true;
        }
    }
    return false;
}

static int element_wire(const ProtobufCFieldDescriptor *field) {
    switch (field->type) {
    case PROTOBUF_C_TYPE_FLOAT: return WIRE_FIXED32;
    case PROTOBUF_C_TYPE_DOUBLE: return WIRE_FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE: return WIRE_BYTES;
    default: return WIRE_VARINT; /* onnx.proto has int32, int64, uint64 and enums besides */
    }
}

static size_t element_size(const ProtobufCFieldDescriptor *field) {
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_FLOAT: return 4;
    case PROTOBUF_C_TYPE_ENUM: return sizeof(int);
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    default: return 8; /* 64-bit numbers; pointers to strings and messages */
    }
}
_Static_assert(sizeof(void *) == 8, "pointers count as 8 bytes above");

static bool holds_pointers(const ProtobufCFieldDescriptor *field) {
    return field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE;
}

static Status read_record(const ProtobufCMessageDescriptor *type, Span *in, Record *r) {
    uint64_t key, size;
    if (!read_varint(in, &key) || key >> 3 == 0 || key >> 3 > 0x1fffffff) return malformed(type, "a broken field key");
    *r = (Record){.field = protobuf_c_message_descriptor_get_field(type, (unsigned)(key >> 3)), .wire = (int)(key & 7)};
    size_t left;
    switch (r->wire) {
    case WIRE_VARINT:
        if (!read_varint(in, &r->number)) return malformed(type, "a broken number");
        break;
    case WIRE_FIXED32:
    case WIRE_FIXED64: size = r->wire == WIRE_FIXED32 ? 4 : 8; goto payload;
    case WIRE_BYTES:
        if (!read_varint(in, &size)) return malformed(type, "a broken length");
    payload:
        left = (size_t)(in->end - in->at);
        if (size > left) return malformed(type, "a field that ends after its message");
        r->payload = (Span){in->at, in->at + size};
        in->at += size;
        break;
    default: return malformed(type, "an unknown wire type");
    }
    if (r->field) {
        int wire = element_wire(r->field);
        bool packed = r->wire == WIRE_BYTES && wire != WIRE_BYTES && r->field->label == PROTOBUF_C_LABEL_REPEATED;
        if (r->wire != wire && !packed)
            return status_error(STATUS_INVALID, "not a well-formed file: field %s of a %s has the wrong wire type",
                                r->field->name, type->short_name);
    }
    return NULL;
}

static bool is_packed(const Record *r) { return r->wire == WIRE_BYTES && element_wire(r->field) != WIRE_BYTES; }

/* Elements in a packed run; -1 when it is cut off. */
static int64_t packed_count(const Record *r) {
    size_t size = (size_t)(r->payload.end - r->payload.at);
    if (element_wire(r->field) != WIRE_VARINT) {
        size_t each = element_size(r->field);
        return size % each ? -1 : (int64_t)(size / each);
    }
    int64_t count = 0;
    for (const uint8_t *p = r->payload.at; p < r->payload.end; p++) count += *p < 128;
    return size && r->payload.end[-1] >= 128 ? -1 : count;
}

static Status unpack(const Room *room, const ProtobufCMessageDescriptor *type, Span in, int depth, void **out);

static void store_number(const ProtobufCFieldDescriptor *field, void *place, uint64_t number) {
    if (element_size(field) == 4) {
        int32_t low = (int32_t)(uint32_t)number;
        memcpy(place, &low, sizeof low);
    } else
        memcpy(place, &number, sizeof number);
}

/* Stores one element of the record's field at `place`. */
static Status store(const Room *room, const ProtobufCMessageDescriptor *type, const Record *r, int depth, void *place) {
    const uint8_t *data = r->payload.at;
    size_t size = (size_t)(r->payload.end - data);
    switch (r->field->type) {
    case PROTOBUF_C_TYPE_STRING:
        if (size && memchr(data, 0, size)) return malformed(type, "a name that holds a NUL byte");
        *(char **)place = arena_string_n(room->values, (const char *)data, size);
        return NULL;
    case PROTOBUF_C_TYPE_BYTES:
        *(ProtobufCBinaryData *)place = (ProtobufCBinaryData){size, (uint8_t *)data};
        return NULL;
    case PROTOBUF_C_TYPE_MESSAGE: return unpack(room, r->field->descriptor, r->payload, depth + 1, (void **)place);
    default:
        if (r->wire == WIRE_VARINT)
            store_number(r->field, place, r->number);
        else
            memcpy(place, data, size);
        return NULL;
    }
}

static Status store_packed(const ProtobufCMessageDescriptor *type, const Record *r, char *place, size_t *count) {
    size_t each = element_size(r->field), size = (size_t)(r->payload.end - r->payload.at);
    if (!size) return NULL;
    place += *count * each;
    if (element_wire(r->field) != WIRE_VARINT) {
        memcpy(place, r->payload.at, size);
        *count += size / each;
        return NULL;
    }
    for (Span in = r->payload; in.at < in.end; place += each, ++*count) {
        uint64_t number;
        if (!read_varint(&in, &number)) return malformed(type, "a broken number");
        store_number(r->field, place, number);
    }
    return NULL;
}

/* How many elements the array of a repeated field with `count` of them has room for. */
static size_t room_for(size_t count) { return count <= 1 ? count : (size_t)1 << (64 - __builtin_clzl(count - 1)); }

/* Room for `more` elements behind the `count` that a repeated field has. */
static Status reserve(const Room *room, const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                      size_t count, size_t more, char **items) {
    if (count + more > INT_MAX) return malformed(type, "a list of more than 2^31 elements");
    if (count + more <= room_for(count)) return NULL;
    size_t each = element_size(field);
    char *grown =
        arena_alloc_unset(holds_pointers(field) ? room->messages : room->values, room_for(count + more) * each);
    if (count) memcpy(grown, *items, count * each);
    *items = grown;
    return NULL;
}

static Status store_record(const Room *room, const ProtobufCMessageDescriptor *type, const Record *r, int depth,
                           char *message) {
    char *place = message + r->field->offset;
    if (r->field->label == PROTOBUF_C_LABEL_REPEATED) {
        size_t *count = (size_t *)(void *)(message + r->field->quantifier_offset), each = element_size(r->field);
        char **items = (char **)(void *)place;
        int64_t more = is_packed(r) ? packed_count(r) : 1;
        if (more < 0) return malformed(type, "a list that is cut off");
        TRY(reserve(room, type, r->field, *count, (size_t)more, items));
        if (is_packed(r)) return store_packed(type, r, *items, count);
        char *element = *items + (*count)++ * each;
        memset(element, 0, each);
        return store(room, type, r, depth, element);
    }
    if (r->field->type == PROTOBUF_C_TYPE_MESSAGE) {
        if (*(void **)(void *)place)
            return status_error(STATUS_INVALID, "not a well-formed file: field %s occurs twice in a %s", r->field->name,
                                type->short_name);
    } else if (r->field->type != PROTOBUF_C_TYPE_STRING)
        *(protobuf_c_boolean *)(void *)(message + r->field->quantifier_offset) = 1;
    return store(room, type, r, depth, place);
}

static Status unpack(const Room *room, const ProtobufCMessageDescriptor *type, Span in, int depth, void **out) {
    if (depth > MOST_NESTING)
        return status_error(STATUS_UNSUPPORTED, "the file nests deeper than %d messages", MOST_NESTING);
    char *message = arena_alloc_struct(room->messages, type->sizeof_message);
    type->message_init((ProtobufCMessage *)(void *)message);
    Record r;
    while (in.at < in.end) {
        TRY(read_record(type, &in, &r));
        if (r.field) TRY(store_record(room, type, &r, depth, message));
    }
    *out = message;
    return NULL;
}

Status wire_unpack(Arena *messages, Arena *values, const ProtobufCMessageDescriptor *type, const void *bytes,
                   size_t size, void *out_message) {
    void *message = NULL;
    if (!size) bytes = "";
    TRY(unpack(&(Room){messages, values}, type, (Span){bytes, (const uint8_t *)bytes + size}, 1, &message));
    memcpy(out_message, &message, sizeof message);
    return NULL;
}
