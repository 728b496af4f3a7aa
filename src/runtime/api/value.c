/* SPDX-License-Identifier: Apache-2.0 */
/* The public values: tensors, sequences, maps and absent optionals. */
#include "runtime/api/session.h"

#include <math.h>
#include <stdlib.h>

#include "graph/maps/map_value.h"
#include "importer/importer.h"
#include "ops/image/image_file.h"

static Status new_value(OnnxfuseValue **out_value) {
    *out_value = calloc(1, sizeof **out_value);
    return *out_value ? NULL : status_out_of_memory();
}

static Status check_type(OnnxfuseDType dtype, int rank, const int64_t *dims, size_t *out_bytes) {
    if (rank < 0 || rank > MAX_RANK)
        return status_error(STATUS_INVALID, "a tensor of rank %d (at most %d are possible)", rank, MAX_RANK);
    if (!dtype_size((DType)dtype)) return status_error(STATUS_INVALID, "element type %d does not exist", (int)dtype);
    return tensor_size_of((DType)dtype, rank, dims, NULL, out_bytes);
}

static void set_tensor(OnnxfuseValue *value, OnnxfuseDType dtype, int rank, const int64_t *dims, void *data) {
    value->item = (Item){.kind = ITEM_TENSOR, .tensor = {.dtype = (DType)dtype, .rank = rank, .data = data}};
    if (rank) memcpy(value->item.tensor.dims, dims, sizeof *dims * (size_t)rank);
}

OnnxfuseStatus onnxfuse_value_tensor(OnnxfuseDType dtype, int rank, const int64_t *dims, void *data,
                                     OnnxfuseValue **out_value) {
    size_t bytes;
    TRY(check_type(dtype, rank, dims, &bytes));
    OnnxfuseValue *value;
    TRY(new_value(&value));
    Status status = NULL;
    if (data) {
        set_tensor(value, dtype, rank, dims, data);
    } else {
        value->owns = true;
        status = item_new_tensor(NULL, (DType)dtype, rank, dims, &value->item);
        if (!status && bytes) memset(value->item.tensor.data, 0, bytes);
    }
    if (status) {
        free(value);
        return status;
    }
    *out_value = value;
    return NULL;
}

OnnxfuseStatus onnxfuse_value_tensor_on_device(OnnxfuseDType dtype, int rank, const int64_t *dims, void *device_data,
                                               OnnxfuseValue **out_value) {
    size_t bytes;
    TRY(check_type(dtype, rank, dims, &bytes));
    if (dtype == ONNXFUSE_STRING) return status_error(STATUS_INVALID, "strings cannot be in device memory");
    if (!device_data && bytes) return status_error(STATUS_INVALID, "no device memory is given for %zu bytes", bytes);
    OnnxfuseValue *value;
    TRY(new_value(&value));
    set_tensor(value, dtype, rank, dims, device_data);
    value->on_device = true;
    *out_value = value;
    return NULL;
}

OnnxfuseStatus onnxfuse_value_sequence(OnnxfuseValue *const *items, int count, OnnxfuseValue **out_value) {
    if (count < 0) return status_error(STATUS_INVALID, "a sequence of %d values", count);
    for (int i = 0; i < count; i++)
        if (items[i]->on_device) return status_error(STATUS_INVALID, "a sequence's tensors cannot be in device memory");
    OnnxfuseValue *value;
    TRY(new_value(&value));
    value->owns = true;
    value->item.kind = ITEM_SEQUENCE;
    void *memory;
    Status status = memory_alloc(NULL, sizeof(Item) * (size_t)count, &memory);
    if (!status) {
        value->item.items = memory;
        for (int i = 0; i < count && !status; i++) {
            status = item_copy(NULL, &items[i]->item, &value->item.items[i]);
            if (!status) value->item.count++;
        }
    }
    if (status) {
        onnxfuse_value_free(value);
        return status;
    }
    for (int i = 0; i < count; i++) onnxfuse_value_free(items[i]);
    *out_value = value;
    return NULL;
}

static Status make_map(Arena *arena, const Item *keys, const Item *values, Item *out_item) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
    Item map;
    TRY(map_make_item(arena, &keys->tensor, &values->tensor, &map));
    return item_copy(NULL, &map, out_item);
}

OnnxfuseStatus onnxfuse_value_map(OnnxfuseValue *keys, OnnxfuseValue *values, OnnxfuseValue **out_value) {
    if (keys->item.kind != ITEM_TENSOR || values->item.kind != ITEM_TENSOR || keys->on_device || values->on_device)
        return status_error(STATUS_INVALID, "a map's keys and values are no tensors in the host's memory");
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    OnnxfuseValue *value;
    Status status = new_value(&value);
    if (!status) {
        value->owns = true;
        status = make_map(arena, &keys->item, &values->item, &value->item);
        if (status) onnxfuse_value_free(value);
    }
    arena_destroy(arena);
    if (status) return status;
    onnxfuse_value_free(keys);
    onnxfuse_value_free(values);
    *out_value = value;
    return NULL;
}

OnnxfuseStatus onnxfuse_value_absent(OnnxfuseValue **out_value) { return new_value(out_value); }

void value_release_views(OnnxfuseValue *value) {
    for (int i = 0; value->items && i < value->item.count; i++) {
        value->items[i]->owns = false;
        onnxfuse_value_free(value->items[i]);
    }
    free(value->items);
    value->items = NULL;
}

void onnxfuse_value_free(OnnxfuseValue *value) {
    if (!value) return;
    value_release_views(value);
    if (value->owns) item_free(value->memory, &value->item);
    if (value->managed && value->managed->deleter) value->managed->deleter(value->managed);
    free(value->name);
    free(value);
}

OnnxfuseKind onnxfuse_value_kind(const OnnxfuseValue *value) { return (OnnxfuseKind)value->item.kind; }

OnnxfuseDType onnxfuse_value_dtype(const OnnxfuseValue *value) {
    return value->item.kind == ITEM_TENSOR ? (OnnxfuseDType)value->item.tensor.dtype : ONNXFUSE_NONE;
}

int onnxfuse_value_rank(const OnnxfuseValue *value) {
    return value->item.kind == ITEM_TENSOR ? value->item.tensor.rank : 0;
}

const int64_t *onnxfuse_value_dims(const OnnxfuseValue *value) { return value->item.tensor.dims; }

int64_t onnxfuse_value_count(const OnnxfuseValue *value) {
    return value->item.kind == ITEM_TENSOR     ? tensor_count(&value->item.tensor)
           : value->item.kind == ITEM_SEQUENCE ? value->item.count
           : value->item.kind == ITEM_MAP      ? tensor_count(map_keys(&value->item))
                                               : 0;
}

size_t onnxfuse_value_bytes(const OnnxfuseValue *value) {
    return value->item.kind == ITEM_TENSOR ? tensor_bytes(&value->item.tensor) : 0;
}

void *onnxfuse_value_data(const OnnxfuseValue *value) {
    return value->item.kind == ITEM_TENSOR ? value->item.tensor.data : NULL;
}

static const OnnxfuseValue *item_view(const OnnxfuseValue *value, ItemKind kind, int index) {
    if (value->item.kind != kind || index < 0 || index >= value->item.count) return NULL;
    OnnxfuseValue *s = (OnnxfuseValue *)(uintptr_t)value;
    if (!s->items) {
        s->items = calloc((size_t)s->item.count, sizeof *s->items);
        if (!s->items) return NULL;
        for (int i = 0; i < s->item.count; i++) {
            s->items[i] = calloc(1, sizeof **s->items);
            if (!s->items[i]) {
                while (i--) free(s->items[i]);
                free(s->items);
                s->items = NULL;
                return NULL;
            }
            s->items[i]->item = s->item.items[i];
        }
    }
    return s->items[index];
}

const OnnxfuseValue *onnxfuse_value_item(const OnnxfuseValue *sequence, int index) {
    return item_view(sequence, ITEM_SEQUENCE, index);
}

const OnnxfuseValue *onnxfuse_value_keys(const OnnxfuseValue *map) { return item_view(map, ITEM_MAP, 0); }

const OnnxfuseValue *onnxfuse_value_values(const OnnxfuseValue *map) { return item_view(map, ITEM_MAP, 1); }

const char *onnxfuse_dtype_name(OnnxfuseDType dtype) { return dtype_onnx_name((DType)dtype); }

size_t onnxfuse_dtype_size(OnnxfuseDType dtype) { return dtype_size((DType)dtype); }

bool onnxfuse_value_is_on_device(const OnnxfuseValue *value) { return value->on_device; }

double onnxfuse_value_element(const OnnxfuseValue *tensor, int64_t index) {
    if (tensor->on_device) return NAN;
    return dtype_load_double(tensor->item.tensor.dtype, tensor->item.tensor.data, index);
}

static Status read_proto(Arena *arena, OnnxfuseProto proto, const void *bytes, size_t size, OnnxfuseValue *value) {
    static const ValueKind kinds[] = {VALUE_TENSOR, VALUE_SEQUENCE, VALUE_OPTIONAL, VALUE_MAP};
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
    const char *name = NULL;
    Item item;
    TRY(item_from_memory(arena, bytes, size, kinds[proto], &item, &name));
    TRY(item_copy(NULL, &item, &value->item));
    value->owns = true;
    value->name = name && *name ? strdup(name) : NULL;
    return name && *name && !value->name ? status_out_of_memory() : NULL;
}

OnnxfuseStatus onnxfuse_value_from_proto(OnnxfuseProto proto, const void *bytes, size_t size, OnnxfuseValue **out_value,
                                         const char **out_name) {
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    OnnxfuseValue *value;
    Status status = new_value(&value);
    if (!status) {
        status = read_proto(arena, proto, bytes, size, value);
        if (status) onnxfuse_value_free(value);
    }
    arena_destroy(arena);
    if (status) return status;
    if (out_name) *out_name = value->name ? value->name : "";
    *out_value = value;
    return NULL;
}

OnnxfuseStatus onnxfuse_value_from_image(const void *bytes, size_t size, const char *pixel_format,
                                         OnnxfuseValue **out_value) {
    PixelFormat format = PIXELS_RGB;
    if (pixel_format && !pixel_format_named(pixel_format, &format))
        return status_error(STATUS_USAGE, "pixel format \"%s\" is none of RGB, BGR and Grayscale", pixel_format);
    Pixels pixels;
    TRY(image_read((ImageBytes){bytes, size}, &pixels));
    int64_t dims[] = {pixels.height, pixels.width, pixel_format_channels(format)};
    OnnxfuseValue *value;
    Status status = new_value(&value);
    if (!status) {
        status = item_new_tensor(NULL, DT_U8, 3, dims, &value->item);
        value->owns = !status;
        if (status) free(value);
    }
    if (!status) {
        pixels_convert(&pixels, format, value->item.tensor.data);
        *out_value = value;
    }
    pixels_free(&pixels);
    return status;
}
