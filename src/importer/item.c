/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded inputs and outputs: TensorProto, SequenceProto, OptionalProto, MapProto <-> Item. */
#include "graph/maps/map_value.h"
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

static Status read_map(TensorReader *reader, const Onnx__MapProto *proto, Item *out);

static Status read_sequence(TensorReader *reader, const Onnx__SequenceProto *proto, Item *out) {
    size_t counts[] = {proto->n_tensor_values, proto->n_sparse_tensor_values, proto->n_sequence_values,
                       proto->n_optional_values, proto->n_map_values};
    size_t total = counts[0] + counts[1] + counts[2] + counts[3] + counts[4], at = 0;
    for (int i = 0; i < 5; i++)
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
    for (size_t i = 0; i < counts[4]; i++)
        TRY(status_at(read_map(reader, proto->map_values[i], &out->items[at++]), "element %zu", i));
    return NULL;
}

static Status read_keys(TensorReader *reader, const Onnx__MapProto *proto, Tensor **out_keys) {
    DType dtype;
    TRY(dtype_from_proto(proto->key_type, &dtype));
    if (!map_takes_key(dtype)) return unsupported("maps whose keys are neither int64 nor strings");
    bool text = dtype == DT_STRING;
    if (text ? proto->n_keys : proto->n_string_keys)
        return status_error(STATUS_INVALID, "a map has keys of another type than it says");
    int64_t count = (int64_t)(text ? proto->n_string_keys : proto->n_keys);
    *out_keys = tensor_new_unset(reader->arena, dtype, 1, &count);
    for (int64_t i = 0; i < count; i++)
        if (text)
            ((StringView *)(*out_keys)->data)[i] =
                (StringView){(const char *)proto->string_keys[i].data, proto->string_keys[i].len};
        else
            ((int64_t *)(*out_keys)->data)[i] = proto->keys[i];
    return NULL;
}

/* Values are tensors of one element each, of any rank. */
static Status read_values(TensorReader *reader, const Onnx__SequenceProto *proto, int64_t count, Tensor **out_values) {
    DType dtype = DT_F32; /* of no values at all, which say nothing */
    Item values = {.kind = ITEM_SEQUENCE};
    if (proto) TRY(status_at(read_sequence(reader, proto, &values), "the values of a map"));
    if (values.count != count)
        return status_error(STATUS_INVALID, "a map has %lld keys and %d values", (long long)count, values.count);
    if (count) dtype = values.items[0].tensor.dtype;
    for (int64_t i = 0; i < count; i++) {
        const Item *value = &values.items[i];
        if (value->kind != ITEM_TENSOR || tensor_count(&value->tensor) != 1)
            return unsupported("maps to anything but one element a key");
        if (value->tensor.dtype != dtype)
            return status_error(STATUS_INVALID, "the values of a map are of several types");
    }
    *out_values = tensor_new_unset(reader->arena, dtype, 1, &count);
    size_t size = dtype_size(dtype);
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)(*out_values)->data + (size_t)i * size, values.items[i].tensor.data, size);
    return NULL;
}

static Status read_map(TensorReader *reader, const Onnx__MapProto *proto, Item *out) {
    Tensor *keys, *values;
    TRY(read_keys(reader, proto, &keys));
    TRY(read_values(reader, proto->values, keys->dims[0], &values));
    return map_make_item(reader->arena, keys, values, out);
}

static Status read_optional(TensorReader *reader, const Onnx__OptionalProto *proto, Item *out) {
    *out = (Item){.kind = ITEM_NONE};
    if (proto->map_value) return read_map(reader, proto->map_value, out);
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
    } else if (kind == VALUE_SEQUENCE || kind == VALUE_MAP_SEQUENCE) {
        Onnx__SequenceProto *proto;
        TRY(wire_unpack(arena, arena, &onnx__sequence_proto__descriptor, bytes.bytes, bytes.size, &proto));
        name = proto->name;
        status = read_sequence(&reader, proto, out);
    } else if (kind == VALUE_MAP) {
        Onnx__MapProto *proto;
        TRY(wire_unpack(arena, arena, &onnx__map_proto__descriptor, bytes.bytes, bytes.size, &proto));
        name = proto->name;
        status = read_map(&reader, proto, out);
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

static Onnx__MapProto *map_to_proto(Arena *arena, const Item *item, const char *name);

/* Elements are tensors, sequences or maps; where they are none of these alone, each is an optional. */
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
    case ITEM_MAP:
        proto->elem_type = ONNX__SEQUENCE_PROTO__DATA_TYPE__MAP;
        proto->n_map_values = count;
        proto->map_values = ARENA_ARRAY(arena, Onnx__MapProto *, count);
        for (size_t i = 0; i < count; i++) proto->map_values[i] = map_to_proto(arena, &item->items[i], NULL);
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

static Onnx__MapProto *map_to_proto(Arena *arena, const Item *item, const char *name) {
    const Tensor *keys = map_keys(item), *values = map_values(item);
    Onnx__MapProto *proto = ARENA_NEW(arena, Onnx__MapProto);
    onnx__map_proto__init(proto);
    proto->name = arena_string(arena, name);
    proto->has_key_type = 1;
    proto->key_type = (int32_t)keys->dtype;
    size_t count = (size_t)keys->dims[0];
    if (keys->dtype == DT_I64) {
        proto->n_keys = count;
        proto->keys = keys->data;
    } else {
        const StringView *views = keys->data;
        proto->n_string_keys = count;
        proto->string_keys = ARENA_ARRAY(arena, ProtobufCBinaryData, count);
        for (size_t i = 0; i < count; i++)
            proto->string_keys[i] = (ProtobufCBinaryData){views[i].size, (uint8_t *)(uintptr_t)views[i].data};
    }
    Item each = {.kind = ITEM_SEQUENCE, .items = ARENA_ARRAY(arena, Item, count), .count = (int)count};
    for (size_t i = 0; i < count; i++)
        each.items[i] =
            (Item){.kind = ITEM_TENSOR,
                   .tensor = {.dtype = values->dtype, .data = (char *)values->data + i * dtype_size(values->dtype)}};
    proto->values = sequence_to_proto(arena, &each, NULL);
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
    } else if (item->kind == ITEM_MAP) {
        proto->elem_type = ONNX__OPTIONAL_PROTO__DATA_TYPE__MAP;
        proto->map_value = map_to_proto(arena, item, NULL);
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
    else if ((kind == VALUE_SEQUENCE || kind == VALUE_MAP_SEQUENCE) && item->kind == ITEM_SEQUENCE)
        message = &sequence_to_proto(arena, item, name)->base;
    else if (kind == VALUE_MAP && item->kind == ITEM_MAP)
        message = &map_to_proto(arena, item, name)->base;
    else if (value_kind_is_optional(kind))
        message = &optional_to_proto(arena, item, name)->base;
    else
        return status_error(STATUS_INVALID, "the value is not of the kind that is to be written");
    *out_size = protobuf_c_message_get_packed_size(message);
    *out_bytes = arena_alloc(arena, *out_size);
    protobuf_c_message_pack(message, *out_bytes);
    return NULL;
}
