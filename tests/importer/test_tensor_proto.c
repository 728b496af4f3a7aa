/* SPDX-License-Identifier: Apache-2.0 */
/* Encodings of tensors, external data, recorded sequences and optionals. */
#include "graph/maps/map_value.h"
#include "messages.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void begin(void) { test_arena = arena_create(0); }
static void end(void) { arena_destroy(test_arena); }

/* ---- encodings: raw bytes, or one typed list ---- */

typedef struct Encoding {
    const char *must;
    DType dtype;
    int64_t count;
    const char *raw; /* in hex, or NULL: */
    const int32_t *int32s;
    size_t int32_count;
    const char *wanted; /* the tensor's text, or part of the error */
} Encoding;

#define INT32S(...) NULL, (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)
#define RAW(hex) hex, NULL, 0

static const Encoding encodings[] = {
    {"raw floats", DT_F32, 2, RAW("0000803f000000c0"), "[1, -2]"},
    {"raw 4-bit: the low nibble first, signed", DT_I4, 3, RAW("e10f"), "[1, -2, -1]"},
    {"raw unsigned 4-bit", DT_U4, 3, RAW("e10f"), "[1, 14, 15]"},
    {"raw 2-bit, signed", DT_I2, 5, RAW("e401"), "[0, 1, -2, -1, 1]"},
    {"raw 2-bit, unsigned", DT_U2, 5, RAW("e401"), "[0, 1, 2, 3, 1]"},
    {"any byte but 0 is true", DT_BOOL, 3, RAW("000207"), "[false, true, true]"},
    {"f16 as bits in int32_data", DT_F16, 2, INT32S(0x3c00, 0xc000), "[1, -2]"},
    {"bf16 as bits in int32_data", DT_BF16, 2, INT32S(0x3f80, 0xc000), "[1, -2]"},
    {"f8 as bits in int32_data", DT_F8E4M3FN, 2, INT32S(0x38, 0xc0), "[1, -2]"},
    {"i8 in int32_data", DT_I8, 2, INT32S(-1, 127), "[-1, 127]"},
    {"u16 in int32_data", DT_U16, 1, INT32S(65535), "[65535]"},
    {"4-bit in int32_data: two in a number", DT_I4, 3, INT32S(0xe1, 0x0f), "[1, -2, -1]"},
    {"bool in int32_data", DT_BOOL, 2, INT32S(0, 256), "[false, true]"},
    {"raw data too short", DT_F32, 2, RAW("00000000"), "8 bytes, it holds 4"},
    {"raw data too long", DT_I4, 2, RAW("0000"), "1 bytes, it holds 2"},
    {"a list too long", DT_I32, 1, INT32S(1, 2), "1 int32_data, it holds 2"},
    {"the list of another type", DT_I64, 1, INT32S(1), "1 int64_data, it holds 0"},
    {"6-bit floats", (DType)27, 1, INT32S(1), "6-bit"},
    {"no such type", (DType)99, 1, INT32S(1), "99 is not an element type"},
    {"no type", DT_NONE, 1, INT32S(1), "0 is not an element type"},
};

static ProtobufCBinaryData from_hex(const char *hex) {
    ProtobufCBinaryData bytes = {strlen(hex) / 2, arena_alloc(test_arena, strlen(hex) / 2)};
    for (size_t i = 0; i < bytes.len; i++) sscanf(hex + 2 * i, "%2hhx", &bytes.data[i]);
    return bytes;
}

static Onnx__TensorProto encoding_message(const Encoding *e) {
    Onnx__TensorProto proto = ONNX__TENSOR_PROTO__INIT;
    proto.has_data_type = 1;
    proto.data_type = (int32_t)e->dtype;
    proto.n_dims = 1;
    proto.dims = (int64_t *)(uintptr_t)&e->count;
    proto.has_raw_data = e->raw != NULL;
    if (e->raw) proto.raw_data = from_hex(e->raw);
    proto.int32_data = (int32_t *)(uintptr_t)e->int32s;
    proto.n_int32_data = e->int32_count;
    return proto;
}

Test(importer, tensor_encodings, .init = begin, .fini = end) {
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
        const Encoding *e = &encodings[i];
        Onnx__TensorProto proto = encoding_message(e);
        size_t size, written;
        void *bytes = pack(&proto.base, &size), *again;
        Item item;
        Status status = item_from_memory(test_arena, bytes, size, VALUE_TENSOR, &item, NULL);
        Text text = text_make(test_arena);
        if (status)
            text_add(&text, "%s", status_message(status));
        else
            tensor_print(&text, &item.tensor, 100);
        cr_expect(strstr(text.data, e->wanted), "%s: %s", e->must, text.data);
        if (!status) {
            cr_expect_null(item_to_memory(test_arena, &item, VALUE_TENSOR, "t", &again, &written));
            Item back;
            cr_expect_null(item_from_memory(test_arena, again, written, VALUE_TENSOR, &back, NULL));
            cr_expect(back.tensor.dtype == e->dtype && tensor_same_shape(&back.tensor, &item.tensor), "%s", e->must);
            cr_expect_arr_eq(back.tensor.data, item.tensor.data, tensor_bytes(&item.tensor), "%s", e->must);
        }
        status_free(status);
    }
}

/* ---- external data ---- */

typedef struct External {
    const char *must;
    const char *location, *offset, *length;
    const char *wanted; /* NULL: it loads */
} External;

static const External externals[] = {
    {"a file in the folder", "data.bin", "4", "8", NULL},
    {"offset and length may be left out", "short.bin", NULL, NULL, NULL},
    {"a file in a folder below", "./below/data.bin", NULL, "8", NULL},
    {"a link that stays inside", "inside", NULL, NULL, NULL},
    {"an absolute path", "/etc/passwd", NULL, NULL, "not inside the model's folder"},
    {"a path that climbs", "below/../../secret", NULL, NULL, "not inside the model's folder"},
    {"a link that leads out", "outside", NULL, NULL, "leaves the model's folder"},
    {"a missing file", "nothing", NULL, NULL, "cannot be read"},
    {"a folder", "below", NULL, NULL, "not a regular file"},
    {"an offset behind the end", "data.bin", "18446744073709551615", NULL, "ends after its data file"},
    {"a negative offset", "data.bin", "-4", NULL, "is not a size"},
    {"data that runs over the end", "data.bin", "8", NULL, "ends after its data file"},
    {"a length that does not fit the shape", "data.bin", "0", "12", "8 bytes, it holds 12"},
};

static void write_file(const char *folder, const char *name, size_t size) {
    char *path = arena_format(test_arena, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    cr_assert(file);
    for (size_t i = 0; i < size; i++) fputc((int)(i % 4 == 3 ? 0x40 : 0), file); /* 2.0f, 2.0f, ... */
    fclose(file);
}

static void add_entry(Onnx__TensorProto *tensor, const char *key, const char *value) {
    if (!value) return;
    if (!tensor->external_data) tensor->external_data = ARENA_ARRAY(test_arena, Onnx__StringStringEntryProto *, 3);
    Onnx__StringStringEntryProto *entry = ARENA_NEW(test_arena, Onnx__StringStringEntryProto);
    onnx__string_string_entry_proto__init(entry);
    entry->key = arena_string(test_arena, key);
    entry->value = arena_string(test_arena, value);
    tensor->external_data[tensor->n_external_data++] = entry;
}

static const void *external_model(const External *e, size_t *out_size) {
    Model *model = make_model(10, "=21");
    Onnx__TensorProto *w = make_floats("w", "2", NULL, 0);
    w->has_data_location = 1;
    w->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    add_entry(w, "location", e->location);
    add_entry(w, "offset", e->offset);
    add_entry(w, "length", e->length);
    add_initializer(model->graph, w);
    add_output(model->graph, "w");
    return pack(&model->base, out_size);
}

Test(importer, external_data, .init = begin, .fini = end) {
    char root[] = "/tmp/onnxfuse-test-XXXXXX";
    cr_assert(mkdtemp(root));
    char *folder = arena_format(test_arena, "%s/model", root), *below = arena_format(test_arena, "%s/below", folder);
    char *command = arena_format(test_arena, "mkdir -p %s && ln -s ../secret %s/outside && ln -s short.bin %s/inside",
                                 below, folder, folder);
    cr_assert_eq(system(command), 0);
    write_file(root, "secret", 8);
    write_file(folder, "data.bin", 12);
    write_file(folder, "short.bin", 8);
    write_file(below, "data.bin", 8);
    for (size_t i = 0; i < sizeof externals / sizeof *externals; i++) {
        const External *e = &externals[i];
        size_t size;
        const void *bytes = external_model(e, &size);
        Graph *graph;
        Status status = import_memory(bytes, size, folder, NULL, &graph);
        if (e->wanted) {
            cr_expect_eq(status_code(status), STATUS_INVALID, "%s", e->must);
            cr_expect(strstr(status_message(status), e->wanted), "%s: %s", e->must, status_message(status));
        } else {
            cr_expect_null(status, "%s: %s", e->must, status_message(status));
            if (!status) cr_expect_eq(((float *)graph->outputs.items[0]->constant->data)[1], 2.0f, "%s", e->must);
        }
        status_free(status);
        graph_destroy(graph);
        status = import_memory(bytes, size, NULL, NULL, &graph);
        cr_expect_eq(status_code(status), STATUS_INVALID, "without a folder");
        status_free(status);
    }
    cr_assert_eq(system(arena_format(test_arena, "rm -r %s", root)), 0);
}

/* ---- sequences, optionals and maps ---- */

static Item tensor_item(int64_t value) {
    return (Item){.kind = ITEM_TENSOR, .tensor = *tensor_scalar_int(test_arena, DT_I64, value)};
}

static void print_item(Text *text, const Item *item) {
    if (item->kind == ITEM_NONE) text_add(text, "none");
    if (item->kind == ITEM_TENSOR) tensor_print(text, &item->tensor, 9);
    if (item->kind == ITEM_MAP) {
        tensor_print(text, map_keys(item), 9);
        text_add(text, " to ");
        tensor_print(text, map_values(item), 9);
    }
    if (item->kind != ITEM_SEQUENCE) return;
    text_add(text, "[");
    for (int i = 0; i < item->count; i++) {
        if (i) text_add(text, " ");
        print_item(text, &item->items[i]);
    }
    text_add(text, "]");
}

Test(importer, recorded_items_read_back_as_written, .init = begin, .fini = end) {
    Item two[] = {tensor_item(1), tensor_item(2)}, holes[] = {tensor_item(1), {.kind = ITEM_NONE}};
    Item pair = {.kind = ITEM_SEQUENCE, .items = two, .count = 2}, empty = {.kind = ITEM_SEQUENCE};
    Item nested[] = {pair, empty};
    int64_t numbers[] = {-4, 9};
    float floats[] = {0.5f, -2};
    StringView words[] = {{"a", 1}, {"b\0", 2}};
    const Tensor keys = {.dtype = DT_I64, .rank = 1, .dims = {2}, .data = numbers},
                 text_keys = {.dtype = DT_STRING, .rank = 1, .dims = {2}, .data = words},
                 values = {.dtype = DT_F32, .rank = 1, .dims = {2}, .data = floats},
                 no_keys = {.dtype = DT_STRING, .rank = 1}, no_values = {.dtype = DT_F32, .rank = 1};
    Item map = map_of(test_arena, &keys, &values), text_map = map_of(test_arena, &text_keys, &text_keys),
         empty_map = map_of(test_arena, &no_keys, &no_values);
    Item maps[] = {map, text_map, empty_map};
    const struct {
        Item item;
        ValueKind kind;
        const char *wanted;
    } rows[] = {
        {two[0], VALUE_TENSOR, "1"},
        {pair, VALUE_SEQUENCE, "[1 2]"},
        {empty, VALUE_SEQUENCE, "[]"},
        {{.kind = ITEM_SEQUENCE, .items = nested, .count = 2}, VALUE_SEQUENCE, "[[1 2] []]"},
        {{.kind = ITEM_SEQUENCE, .items = holes, .count = 2}, VALUE_SEQUENCE, "[1 none]"},
        {{.kind = ITEM_NONE}, VALUE_OPTIONAL, "none"},
        {two[1], VALUE_OPTIONAL, "2"},
        {pair, VALUE_OPTIONAL_SEQUENCE, "[1 2]"},
        {map, VALUE_MAP, "[-4, 9] to [0.5, -2]"},
        {text_map, VALUE_MAP, "[\"a\", \"b\\x00\"] to [\"a\", \"b\\x00\"]"},
        {empty_map, VALUE_MAP, "[] to []"},
        {map, VALUE_OPTIONAL, "[-4, 9] to [0.5, -2]"},
        {{.kind = ITEM_SEQUENCE, .items = maps, .count = 3},
         VALUE_MAP_SEQUENCE,
         "[[-4, 9] to [0.5, -2] [\"a\", \"b\\x00\"] to [\"a\", \"b\\x00\"] [] to []]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *bytes;
        size_t size;
        Item back;
        const char *name;
        cr_assert_null(item_to_memory(test_arena, &rows[i].item, rows[i].kind, "it", &bytes, &size));
        cr_assert_null(item_from_memory(test_arena, bytes, size, rows[i].kind, &back, &name));
        cr_expect_str_eq(name, "it");
        Text text = text_make(test_arena);
        print_item(&text, &back);
        cr_expect_str_eq(text.data, rows[i].wanted);
    }
}

/* A map of two keys and `values` tensors [count] each, of which the last has another type. */
static Onnx__MapProto *map_message(DType key, int values, int count, bool mixed) {
    static float floats[4];
    Onnx__MapProto *map = ARENA_NEW(test_arena, Onnx__MapProto);
    Onnx__SequenceProto *list = ARENA_NEW(test_arena, Onnx__SequenceProto);
    onnx__map_proto__init(map);
    onnx__sequence_proto__init(list);
    map->values = list;
    map->has_key_type = 1;
    map->key_type = (int32_t)key;
    map->n_keys = 2;
    map->keys = arena_copy(test_arena, (int64_t[]){5, 3}, 2 * sizeof(int64_t));
    list->n_tensor_values = (size_t)values;
    list->tensor_values = ARENA_ARRAY(test_arena, Onnx__TensorProto *, values);
    for (int i = 0; i < values; i++) {
        Tensor one = {.dtype = mixed && i + 1 == values ? DT_I32 : DT_F32, .rank = 1, .dims = {count}, .data = floats};
        list->tensor_values[i] = tensor_to_proto(test_arena, &one, NULL);
    }
    return map;
}

Test(importer, recorded_maps_that_make_no_sense_are_refused, .init = begin, .fini = end) {
    Onnx__MapProto *twice = map_message(DT_I64, 2, 1, false), *both = map_message(DT_I64, 2, 1, false);
    twice->keys[1] = 5;
    both->n_string_keys = 1;
    both->string_keys = ARENA_ARRAY(test_arena, ProtobufCBinaryData, 1);
    const struct {
        const Onnx__MapProto *map;
        StatusCode code;
        const char *message;
    } rows[] = {
        {map_message(DT_I64, 1, 1, false), STATUS_INVALID, "2 keys and 1 values"},
        {map_message(DT_I64, 2, 2, false), STATUS_UNSUPPORTED, "one element a key"},
        {map_message(DT_I64, 2, 0, false), STATUS_UNSUPPORTED, "one element a key"},
        {map_message(DT_I64, 2, 1, true), STATUS_INVALID, "of several types"},
        {map_message(DT_STRING, 2, 1, false), STATUS_INVALID, "keys of another type"},
        {map_message(DT_I32, 2, 1, false), STATUS_UNSUPPORTED, "neither int64 nor strings"},
        {map_message((DType)99, 2, 1, false), STATUS_INVALID, "99"},
        {both, STATUS_INVALID, "keys of another type"},
        {twice, STATUS_INVALID, "twice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t size;
        Item back;
        const void *bytes = pack(&rows[i].map->base, &size);
        Status status = item_from_memory(test_arena, bytes, size, VALUE_MAP, &back, NULL);
        cr_expect_eq(status_code(status), rows[i].code, "%zu: %s", i, status_message(status));
        cr_expect(status && strstr(status_message(status), rows[i].message), "%zu: %s", i, status_message(status));
        status_free(status);
    }
}
