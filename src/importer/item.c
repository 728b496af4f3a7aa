/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded inputs and outputs: TensorProto, SequenceProto, OptionalProto <-> Item. */
#include "importer/importer.h"
#include "importer/tensor_proto.h"

static Status unsupported(const char *what) {
    return status_error(STATUS_UNSUPPORTED, "%s as recorded data are not supported", what);
}

/* ---- reading ---- */

static Status read_tensor_item(TensorReader *reader, const Onnx__TensorProto *proto, Item *out) {
    Tensor *tensor;
    TRY(tensor_from_proto(reader, proto, &tensor));
    *out = (Item){.kind = ITEM_TENSOR, .tensor = *tensor};
    return NULL;
}

static Status read_sparse_item(TensorReader *reader, const Onnx__SparseTensorProto *proto, Item *out) {
    Tensor *tensor;
    TRY(tensor_from_sparse_proto(reader, proto, &tensor));
    *out = (Item){.kind = ITEM_TENSOR, .tensor = *tensor};
    return NULL;
}

static Status read_optional(TensorReader *reader, const Onnx__OptionalProto *proto, Item *out);

static Status read_sequence(TensorReader *reader, const Onnx__SequenceProto *proto, Item *out) {
    if (proto->n_map_values) return unsupported("maps");
    size_t counts[] = {proto->n_tensor_values, proto->n_sparse_tensor_values, proto->n_sequence_values,
                       proto->n_optional_values};
    size_t total = counts[0] + counts[1] + counts[2] + counts[3], at = 0;
    for (int i = 0; i < 4; i++)
        if (counts[i] && counts[i] != total)
            return status_error(STATUS_INVALID, "a sequence holds values of several kinds");
    *out = (Item){.kind = ITEM_SEQUENCE, .count = (int)total};
    out->items = ARENA_ARRAY(reader->arena, Item, total);
    for (size_t i = 0; i < counts[0]; i++)
        TRY(status_at(read_tensor_item(reader, proto->tensor_values[i], &out->items[at++]), "element %zu", i));
    for (size_t i = 0; i < counts[1]; i++)
        TRY(status_at(read_sparse_item(reader, proto->sparse_tensor_values[i], &out->items[at++]), "element %zu", i));
    for (size_t i = 0; i < counts[2]; i++) TRY(read_sequence(reader, proto->sequence_values[i], &out->items[at++]));
    for (size_t i = 0; i < counts[3]; i++) TRY(read_optional(reader, proto->optional_values[i], &out->items[at++]));
    return NULL;
}

static Status read_optional(TensorReader *reader, const Onnx__OptionalProto *proto, Item *out) {
    *out = (Item){.kind = ITEM_NONE};
    if (proto->map_value) return unsupported("maps");
    if (proto->tensor_value) return read_tensor_item(reader, proto->tensor_value, out);
    if (proto->sparse_tensor_value) return read_sparse_item(reader, proto->sparse_tensor_value, out);
    if (proto->sequence_value) return read_sequence(reader, proto->sequence_value, out);
    return proto->optional_value ? read_optional(reader, proto->optional_value, out) : NULL;
}

static Status read_item(Arena *arena, MappedFile bytes, bool mapped, ValueKind kind, Item *out, const char **out_name) {
    Folder nowhere = folder_open(arena, NULL);
    TensorReader reader = {.arena = arena, .folder = &nowhere};
    if (mapped) reader.source = bytes;
    const char *name = NULL;
    Status status;
    if (kind == VALUE_TENSOR) {
        Onnx__TensorProto *proto;
        TRY(wire_unpack(arena, arena, &onnx__tensor_proto__descriptor, bytes.bytes, bytes.size, &proto));
        name = proto->name;
        status = read_tensor_item(&reader, proto, out);
    } else if (kind == VALUE_SEQUENCE) {
        Onnx__SequenceProto *proto;
        TRY(wire_unpack(arena, arena, &onnx__sequence_proto__descriptor, bytes.bytes, bytes.size, &proto));
        name = proto->name;
        status = read_sequence(&reader, proto, out);
    } else {
        Onnx__OptionalProto *proto;
        TRY(wire_unpack(arena, arena, &onnx__optional_proto__descriptor, bytes.bytes, bytes.size, &proto));
        name = proto->name;
        status = read_optional(&reader, proto, out);
    }
    if (out_name) *out_name = name ? name : "";
    return status;
}

Status item_from_file(Arena *arena, const char *path, ValueKind kind, Item *out_item, const char **out_name) {
    MappedFile file;
    TRY(file_map(arena, path, &file));
    return status_at(read_item(arena, file, true, kind, out_item, out_name), "%s", path);
}

Status item_from_memory(Arena *arena, const void *bytes, size_t size, ValueKind kind, Item *out_item,
                        const char **out_name) {
    MappedFile copy = {arena_copy(arena, bytes, size), size};
    return read_item(arena, copy, false, kind, out_item, out_name);
}

/* ---- writing ---- */

static Onnx__OptionalProto *optional_to_proto(Arena *arena, const Item *item, const char *name);

/* Elements are tensors, or sequences; where they are neither alone, each is an optional. */
static ItemKind element_kind(const Item *item) {
    ItemKind kind = item->count ? item->items[0].kind : ITEM_TENSOR;
    for (int i = 1; i < item->count; i++)
        if (item->items[i].kind != kind) return ITEM_NONE;
    return kind;
}

static Onnx__SequenceProto *sequence_to_proto(Arena *arena, const Item *item, const char *name) {
    Onnx__SequenceProto *proto = ARENA_NEW(arena, Onnx__SequenceProto);
    onnx__sequence_proto__init(proto);
    proto->name = arena_string(arena, name);
    proto->has_elem_type = 1;
    size_t count = (size_t)item->count;
    switch (element_kind(item)) {
    case ITEM_TENSOR:
        proto->elem_type = ONNX__SEQUENCE_PROTO__DATA_TYPE__TENSOR;
        proto->n_tensor_values = count;
        proto->tensor_values = ARENA_ARRAY(arena, Onnx__TensorProto *, count);
        for (size_t i = 0; i < count; i++)
            proto->tensor_values[i] = tensor_to_proto(arena, &item->items[i].tensor, NULL);
        break;
    case ITEM_SEQUENCE:
        proto->elem_type = ONNX__SEQUENCE_PROTO__DATA_TYPE__SEQUENCE;
        proto->n_sequence_values = count;
        proto->sequence_values = ARENA_ARRAY(arena, Onnx__SequenceProto *, count);
        for (size_t i = 0; i < count; i++) proto->sequence_values[i] = sequence_to_proto(arena, &item->items[i], NULL);
        break;
    case ITEM_NONE:
        proto->elem_type = ONNX__SEQUENCE_PROTO__DATA_TYPE__OPTIONAL;
        proto->n_optional_values = count;
        proto->optional_values = ARENA_ARRAY(arena, Onnx__OptionalProto *, count);
        for (size_t i = 0; i < count; i++) proto->optional_values[i] = optional_to_proto(arena, &item->items[i], NULL);
        break;
    }
    return proto;
}

static Onnx__OptionalProto *optional_to_proto(Arena *arena, const Item *item, const char *name) {
    Onnx__OptionalProto *proto = ARENA_NEW(arena, Onnx__OptionalProto);
    onnx__optional_proto__init(proto);
    proto->name = arena_string(arena, name);
    proto->has_elem_type = 1;
    if (item->kind == ITEM_TENSOR) {
        proto->elem_type = ONNX__OPTIONAL_PROTO__DATA_TYPE__TENSOR;
        proto->tensor_value = tensor_to_proto(arena, &item->tensor, NULL);
    } else if (item->kind == ITEM_SEQUENCE) {
        proto->elem_type = ONNX__OPTIONAL_PROTO__DATA_TYPE__SEQUENCE;
        proto->sequence_value = sequence_to_proto(arena, item, NULL);
    }
    return proto;
}

Status item_to_memory(Arena *arena, const Item *item, ValueKind kind, const char *name, void **out_bytes,
                      size_t *out_size) {
    const ProtobufCMessage *message;
    if (kind == VALUE_TENSOR && item->kind == ITEM_TENSOR)
        message = &tensor_to_proto(arena, &item->tensor, name)->base;
    else if (kind == VALUE_SEQUENCE && item->kind == ITEM_SEQUENCE)
        message = &sequence_to_proto(arena, item, name)->base;
    else if (kind == VALUE_OPTIONAL || kind == VALUE_OPTIONAL_SEQUENCE)
        message = &optional_to_proto(arena, item, name)->base;
    else
        return status_error(STATUS_INVALID, "the value is not of the kind that is to be written");
    *out_size = protobuf_c_message_get_packed_size(message);
    *out_bytes = arena_alloc(arena, *out_size);
    protobuf_c_message_pack(message, *out_bytes);
    return NULL;
}
