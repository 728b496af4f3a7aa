/* SPDX-License-Identifier: Apache-2.0 */
/* Every encoding of a tensor: raw bytes, typed lists, packed small elements, external files, coordinates of sparse
 * ones. */
#include "importer/importer.h"
#include "importer/tensor_proto.h"
#include "base/heap.h"

#include <errno.h>
#include <stdlib.h>

enum { LARGEST_DENSIFIED = 256 << 20 }; /* bytes: a few bytes of file can ask for any size */

Status dtype_from_proto(int64_t number, DType *out_dtype) {
    if (number == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT6E2M3 || number == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT6E3M2)
        return status_error(STATUS_UNSUPPORTED, "the 6-bit float types are not supported");
    if (number <= DT_NONE || number >= DTYPE_COUNT)
        return status_error(STATUS_INVALID, "%lld is not an element type", (long long)number);
    *out_dtype = (DType)number;
    return NULL;
}

/* ---- shapes ---- */

/* The tensor without data; count and bytes in memory are checked. */
static Status tensor_header(Arena *arena, int64_t type, size_t rank, const int64_t *dims, Tensor **out_tensor,
                            int64_t *out_count) {
    DType dtype = DT_NONE;
    TRY(dtype_from_proto(type, &dtype));
    if (rank > MAX_RANK) return status_error(STATUS_UNSUPPORTED, "it has %zu dimensions, more than %d", rank, MAX_RANK);
    TRY(tensor_size_of(dtype, (int)rank, dims, out_count, NULL));
    Tensor *tensor = ARENA_NEW(arena, Tensor);
    tensor->dtype = dtype;
    tensor->rank = (int)rank;
    if (rank) memcpy(tensor->dims, dims, rank * sizeof *dims);
    *out_tensor = tensor;
    return NULL;
}

/* Bytes that `count` elements take in a file. */
static size_t file_bytes(DType dtype, int64_t count) {
    size_t bits = (size_t)dtype_file_bits(dtype), n = (size_t)count;
    return bits >= 8 ? n * (bits / 8) : n / (8 / bits) + (n % (8 / bits) != 0);
}

/* Below, the copy costs less than to think of it again. */
enum { SMALLEST_UNALIGNED = 4096 };

static bool stays_unaligned(const TensorReader *reader, const Tensor *tensor, size_t size) {
    return reader->unaligned && size >= SMALLEST_UNALIGNED && (tensor->dtype == DT_F32 || tensor->dtype == DT_F64);
}

static Status wrong_size(const Tensor *tensor, size_t found, size_t wanted, const char *unit) {
    return status_error(STATUS_INVALID, "its shape and type %s ask for %zu %s, it holds %zu",
                        dtype_onnx_name(tensor->dtype), wanted, unit, found);
}

/* ---- small elements: several in a byte, the first in the low bits ---- */

static uint8_t unpack_element(DType dtype, int bits, uint8_t byte, int slot) {
    uint8_t mask = (uint8_t)((1 << bits) - 1), element = (uint8_t)(byte >> (slot * bits) & mask);
    bool negative = dtype_class(dtype) == DTYPE_SIGNED && element >> (bits - 1);
    return negative ? (uint8_t)(element | ~mask) : element;
}

/* Byte i of the packed form is source[i * stride] (the low byte of a list's little-endian number, or of raw data). */
static void *unpack_small(Arena *arena, DType dtype, const uint8_t *source, size_t stride, int64_t count) {
    int bits = dtype_file_bits(dtype), slots = 8 / bits;
    uint8_t *elements = arena_alloc(arena, (size_t)count + 1);
    for (int64_t i = 0; i < count; i++)
        elements[i] = unpack_element(dtype, bits, source[(size_t)(i / slots) * stride], (int)(i % slots));
    return elements;
}

static uint8_t *pack_small(Arena *arena, const Tensor *tensor, size_t size) {
    int bits = dtype_file_bits(tensor->dtype), slots = 8 / bits;
    const uint8_t *elements = tensor->data;
    uint8_t *packed = arena_alloc(arena, size + 1);
    for (int64_t i = 0, count = tensor_count(tensor); i < count; i++)
        packed[i / slots] |= (uint8_t)((elements[i] & ((1 << bits) - 1)) << (i % slots * bits));
    return packed;
}

/* Any byte but 0 is true; memory holds 0 and 1 alone. */
static const void *clean_bools(Arena *arena, const uint8_t *bytes, size_t size) {
    size_t at = 0;
    while (at < size && bytes[at] < 2) at++;
    if (at == size) return bytes;
    uint8_t *clean = arena_alloc(arena, size);
    for (size_t i = 0; i < size; i++) clean[i] = bytes[i] != 0;
    return clean;
}

/* ---- raw bytes ---- */

static void align(TensorReader *reader, Tensor *tensor, const MappedFile *file) {
    const void *bytes = tensor->data;
    size_t size = tensor_bytes(tensor);
    if (tensor_is_aligned(tensor)) return;
    tensor->data = bytes_copy_aligned(reader->arena, bytes, size);
    if (mapped_file_holds(file, bytes, size)) bytes_forget(bytes, size);
}

static Status set_raw(TensorReader *reader, Tensor *tensor, int64_t count, const MappedFile *file, const uint8_t *bytes,
                      size_t size) {
    size_t wanted = file_bytes(tensor->dtype, count);
    if (tensor->dtype == DT_STRING) return status_error(STATUS_INVALID, "strings cannot be given as raw bytes");
    if (size != wanted) return wrong_size(tensor, size, wanted, "bytes");
    tensor->data = (void *)(uintptr_t)bytes; /* tensors are written by their makers alone: never through this pointer */
    if (dtype_file_bits(tensor->dtype) < 8)
        tensor->data = unpack_small(reader->arena, tensor->dtype, bytes, 1, count);
    else if (tensor->dtype == DT_BOOL)
        tensor->data = (void *)(uintptr_t)clean_bools(reader->arena, bytes, size);
    else if (!stays_unaligned(reader, tensor, size))
        align(reader, tensor, file);
    return NULL;
}

void tensor_settle(TensorReader *reader, Tensor *tensor) { align(reader, tensor, &reader->source); }

static Status read_size(const char *key, const char *text, uint64_t *out_number) {
    char *end;
    errno = 0;
    *out_number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
        return status_error(STATUS_INVALID, "the %s \"%.40s\" of its data file is not a size", key, text);
    return NULL;
}

/* The data file is in memory, and is copied unless it may be borrowed; or in the model's folder. */
static Status find_external(TensorReader *reader, const char *location, MappedFile *out_file, bool *out_copy) {
    const ImportOptions *options = reader->options;
    *out_copy = false;
    if (options && options->external_data) {
        out_file->bytes = options->external_data(options->external_data_user, location, &out_file->size);
        *out_copy = !options->borrow_bytes;
        if (out_file->bytes) return NULL;
    }
    if (!reader->folder) return status_error(STATUS_INVALID, "its data cannot be in another file here");
    const MappedFile *file;
    *out_copy = false;
    TRY(folder_map(reader->folder, location, &file));
    *out_file = *file;
    return NULL;
}

static Status set_external(TensorReader *reader, Tensor *tensor, int64_t count, const Onnx__TensorProto *proto) {
    const char *location = NULL;
    uint64_t offset = 0, length = file_bytes(tensor->dtype, count), given = length;
    for (size_t i = 0; i < proto->n_external_data; i++) {
        const char *key = proto->external_data[i]->key, *value = proto->external_data[i]->value;
        if (!key || !value) return status_error(STATUS_INVALID, "an entry of its external_data is incomplete");
        if (strcmp(key, "location") == 0) location = value;
        if (strcmp(key, "offset") == 0) TRY(read_size(key, value, &offset));
        if (strcmp(key, "length") == 0) TRY(read_size(key, value, &given));
    }
    if (!location) return status_error(STATUS_INVALID, "its external_data names no location");
    if (given != length) return wrong_size(tensor, given, length, "bytes");
    MappedFile file;
    bool copy;
    TRY(find_external(reader, location, &file, &copy));
    if (offset > file.size || length > file.size - offset)
        return status_error(STATUS_INVALID, "it ends after its data file \"%.200s\" (%zu bytes)", location, file.size);
    if (copy)
        return set_raw(reader, tensor, count, &(MappedFile){0},
                       bytes_copy_aligned(reader->arena, file.bytes + offset, length), length);
    return set_raw(reader, tensor, count, &file, file.bytes + offset, length);
}

/* ---- typed lists ---- */

/* Keeps the low `size` bytes of each number: what a list of wider numbers holds for a narrower type. */
static void *narrow(Arena *arena, const void *list, size_t element, size_t count, size_t size) {
    char *narrowed = arena_array(arena, count + 1, size);
    for (size_t i = 0; i < count; i++) memcpy(narrowed + i * size, (const char *)list + i * element, size);
    return narrowed;
}

typedef struct List {
    const char *name;
    const void *items;
    size_t count;
    size_t element; /* bytes of a number in the list */
    size_t each;    /* numbers an element of the tensor takes */
} List;

/* The list that the standard gives to a type. */
static List list_of(const Onnx__TensorProto *p, DType dtype) {
    switch (dtype) {
    case DT_F32: return (List){"float_data", p->float_data, p->n_float_data, 4, 1};
    case DT_C64: return (List){"float_data", p->float_data, p->n_float_data, 4, 2};
    case DT_F64: return (List){"double_data", p->double_data, p->n_double_data, 8, 1};
    case DT_C128: return (List){"double_data", p->double_data, p->n_double_data, 8, 2};
    case DT_I64: return (List){"int64_data", p->int64_data, p->n_int64_data, 8, 1};
    case DT_U32:
    case DT_U64: return (List){"uint64_data", p->uint64_data, p->n_uint64_data, 8, 1};
    case DT_STRING: return (List){"string_data", p->string_data, p->n_string_data, sizeof *p->string_data, 1};
    default: return (List){"int32_data", p->int32_data, p->n_int32_data, 4, 1};
    }
}

static void *string_views(Arena *arena, const ProtobufCBinaryData *strings, size_t count) {
    StringView *views = ARENA_ARRAY(arena, StringView, count + 1);
    for (size_t i = 0; i < count; i++) views[i] = (StringView){(const char *)strings[i].data, strings[i].len};
    return views;
}

static Status set_list(Arena *arena, Tensor *tensor, int64_t count, const Onnx__TensorProto *proto) {
    DType dtype = tensor->dtype;
    List list = list_of(proto, dtype);
    bool small = dtype_file_bits(dtype) < 8;
    size_t wanted = small ? file_bytes(dtype, count) : (size_t)count * list.each;
    if (list.count != wanted) return wrong_size(tensor, list.count, wanted, list.name);
    if (small)
        tensor->data = unpack_small(arena, dtype, list.items, list.element, count);
    else if (dtype == DT_STRING)
        tensor->data = string_views(arena, list.items, list.count);
    else if (list.element * list.each != dtype_size(dtype)) {
        tensor->data = narrow(arena, list.items, list.element, list.count, dtype_size(dtype));
        if (dtype == DT_BOOL)
            for (size_t i = 0; i < list.count; i++) ((uint8_t *)tensor->data)[i] = proto->int32_data[i] != 0;
    } else
        tensor->data = list.count ? (void *)(uintptr_t)list.items : arena_alloc(arena, 64);
    return NULL;
}

Status tensor_from_proto(TensorReader *reader, const Onnx__TensorProto *proto, Tensor **out_tensor) {
    if (proto->segment) return status_error(STATUS_UNSUPPORTED, "tensors in segments are not supported");
    Tensor *tensor;
    int64_t count;
    TRY(tensor_header(reader->arena, proto->data_type, proto->n_dims, proto->dims, &tensor, &count));
    if (proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        TRY(set_external(reader, tensor, count, proto));
    else if (proto->has_raw_data && (proto->raw_data.len || !list_of(proto, tensor->dtype).count) &&
             tensor->dtype != DT_STRING)
        TRY(set_raw(reader, tensor, count, &reader->source, proto->raw_data.data, proto->raw_data.len));
    else
        TRY(set_list(reader->arena, tensor, count, proto));
    *out_tensor = tensor;
    return NULL;
}

/* ---- sparse tensors ---- */

/* The flat position that row i of the indices names; -1 when it lies outside. */
static int64_t sparse_position(const Tensor *dense, const Tensor *indices, int64_t i, int64_t count) {
    const int64_t *index = indices->data;
    if (indices->rank == 1) return index[i] >= 0 && index[i] < count ? index[i] : -1;
    int64_t position = 0;
    for (int axis = 0; axis < dense->rank; axis++) {
        int64_t at = index[i * dense->rank + axis];
        if (at < 0 || at >= dense->dims[axis]) return -1;
        position = position * dense->dims[axis] + at;
    }
    return position;
}

Status tensor_from_sparse_proto(TensorReader *reader, const Onnx__SparseTensorProto *proto, Tensor **out_tensor) {
    if (!proto->values || !proto->indices) return status_error(STATUS_INVALID, "it lacks its values or its indices");
    Tensor *values, *indices, *dense;
    int64_t count;
    size_t bytes;
    TRY(status_at(tensor_from_proto(reader, proto->values, &values), "its values"));
    TRY(status_at(tensor_from_proto(reader, proto->indices, &indices), "its indices"));
    TRY(tensor_header(reader->arena, values->dtype, proto->n_dims, proto->dims, &dense, &count));
    TRY(tensor_size_of(dense->dtype, dense->rank, dense->dims, NULL, &bytes));
    bool flat = indices->rank == 1, rows = indices->rank == 2 && indices->dims[1] == dense->rank;
    if (values->rank != 1 || indices->dtype != DT_I64 || !(flat || rows) || indices->dims[0] != values->dims[0])
        return status_error(STATUS_INVALID, "its indices do not fit its values and shape");
    if (bytes > LARGEST_DENSIFIED)
        return status_error(STATUS_UNSUPPORTED, "it is sparse and would take %zu bytes in full", bytes);
    size_t each = dtype_size(dense->dtype);
    char *data = dense->data = arena_alloc(reader->arena, bytes + 1);
    for (int64_t i = 0; i < values->dims[0]; i++) {
        int64_t position = sparse_position(dense, indices, i, count);
        if (position < 0) return status_error(STATUS_INVALID, "index %lld lies outside its shape", (long long)i);
        memcpy(data + (size_t)position * each, (const char *)values->data + (size_t)i * each, each);
    }
    *out_tensor = dense;
    return NULL;
}

/* ---- writing ---- */

Onnx__TensorProto *tensor_to_proto(Arena *arena, const Tensor *tensor, const char *name) {
    Onnx__TensorProto *proto = ARENA_NEW(arena, Onnx__TensorProto);
    onnx__tensor_proto__init(proto);
    proto->name = arena_string(arena, name);
    proto->has_data_type = 1;
    proto->data_type = (int32_t)tensor->dtype;
    proto->n_dims = (size_t)tensor->rank;
    proto->dims = arena_copy(arena, tensor->dims, proto->n_dims * sizeof *tensor->dims);
    int64_t count = tensor_count(tensor);
    size_t size = file_bytes(tensor->dtype, count);
    if (tensor->dtype == DT_STRING) {
        const StringView *views = tensor->data;
        proto->n_string_data = (size_t)count;
        proto->string_data = ARENA_ARRAY(arena, ProtobufCBinaryData, count + 1);
        for (int64_t i = 0; i < count; i++)
            proto->string_data[i] = (ProtobufCBinaryData){views[i].size, (uint8_t *)(uintptr_t)views[i].data};
        return proto;
    }
    proto->has_raw_data = 1;
    proto->raw_data.len = size;
    proto->raw_data.data =
        dtype_file_bits(tensor->dtype) < 8 ? pack_small(arena, tensor, size) : (uint8_t *)tensor->data;
    return proto;
}
