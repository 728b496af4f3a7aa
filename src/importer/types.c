/* SPDX-License-Identifier: Apache-2.0 */
/* Declared types of inputs. */
#include "importer/build.h"

#include "graph/maps/map_value.h"

/* Some exporters write these for sizes that need not agree with each other. */
static bool is_named(const char *symbol) {
    static const char *const unknown[] = {"?", "-1", "None", "unk"};
    if (!symbol || !*symbol) return false;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (strcmp(symbol, unknown[i]) == 0) return false;
    return true;
}

static Status read_shape(Importer *im, const Onnx__TensorShapeProto *shape, const char *name, DeclaredType *out) {
    if (!shape) return NULL;
    if (shape->n_dim > MAX_RANK)
        return status_error(STATUS_UNSUPPORTED, "it has %zu dimensions, more than %d", shape->n_dim, MAX_RANK);
    out->rank = (int)shape->n_dim;
    for (int i = 0; i < out->rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];
        if (dim->has_dim_value && dim->dim_value >= 0) /* some exporters write -1 for an unknown size */
            out->dims[i] = dim_const(im->graph->dims, dim->dim_value);
        else if (is_named(dim->dim_param))
            out->dims[i] = dim_symbol(im->graph->dims, dim->dim_param);
        else
            out->dims[i] = dim_fresh(im->graph->dims, arena_format(im->arena, "%s_%d", name, i));
    }
    return NULL;
}

static int kinds_set(const Onnx__TypeProto *type) {
    return !!type->tensor_type + !!type->sequence_type + !!type->map_type + !!type->opaque_type +
           !!type->sparse_tensor_type + !!type->optional_type;
}

static Status unsupported(const char *what) { return status_error(STATUS_UNSUPPORTED, "%s are not supported", what); }

/* What maps' values look like beyond their type is the same for all: one element a key. */
static Status read_map(const Onnx__TypeProto__Map *map, DeclaredType *out) {
    const Onnx__TypeProto *value = map->value_type;
    if (!value || !value->tensor_type || kinds_set(value) != 1) return unsupported("maps to anything but tensors");
    out->kind = VALUE_MAP;
    TRY(dtype_from_proto(map->key_type, &out->key));
    TRY(dtype_from_proto(value->tensor_type->elem_type, &out->dtype));
    if (map_takes_key(out->key) && map_takes_value(out->dtype)) return NULL;
    return status_error(STATUS_UNSUPPORTED, "maps from %s to %s are not supported", dtype_onnx_name(out->key),
                        dtype_onnx_name(out->dtype));
}

static Status read_sequence(Importer *im, const Onnx__TypeProto *element, const char *name, DeclaredType *out) {
    out->kind = VALUE_SEQUENCE;
    if (!element) return NULL;
    if (kinds_set(element) > 1) return status_error(STATUS_INVALID, "its type is several types at once");
    if (element->map_type) {
        TRY(read_map(element->map_type, out));
        out->kind = VALUE_MAP_SEQUENCE;
        return NULL;
    }
    if (!element->tensor_type)
        return kinds_set(element) ? unsupported("sequences of anything but tensors and maps") : NULL;
    TRY(read_type(im, element, name, out));
    out->kind = VALUE_SEQUENCE;
    for (int i = 0; i < out->rank; i++) /* elements may differ in what is not a constant */
        if (!dim_is_const(out->dims[i], NULL)) out->dims[i] = dim_symbol(im->graph->dims, "$any");
    return NULL;
}

Status read_type(Importer *im, const Onnx__TypeProto *type, const char *name, DeclaredType *out) {
    *out = (DeclaredType){.kind = VALUE_TENSOR, .dtype = DT_NONE, .rank = -1};
    if (!type || !kinds_set(type)) return NULL;
    if (kinds_set(type) > 1) return status_error(STATUS_INVALID, "its type is several types at once");
    if (type->map_type) return read_map(type->map_type, out);
    if (type->opaque_type) return unsupported("values of opaque type");
    if (type->sparse_tensor_type) return unsupported("values of type sparse tensor");
    if (type->tensor_type) {
        if (type->tensor_type->elem_type) TRY(dtype_from_proto(type->tensor_type->elem_type, &out->dtype));
        return read_shape(im, type->tensor_type->shape, name, out);
    }
    if (type->sequence_type) return read_sequence(im, type->sequence_type->elem_type, name, out);
    const Onnx__TypeProto *element = type->optional_type->elem_type;
    if (element && element->optional_type) return unsupported("optionals of optionals");
    TRY(read_type(im, element, name, out));
    if (value_kind_has_maps(out->kind)) return unsupported("optional maps");
    out->kind = out->kind == VALUE_SEQUENCE ? VALUE_OPTIONAL_SEQUENCE : VALUE_OPTIONAL;
    return NULL;
}

void declare_dims(Importer *im, const Onnx__TypeProto *type) {
    while (type && (type->optional_type || type->sequence_type))
        type = type->optional_type ? type->optional_type->elem_type : type->sequence_type->elem_type;
    const Onnx__TensorShapeProto *shape = type && type->tensor_type ? type->tensor_type->shape : NULL;
    for (size_t i = 0; shape && i < shape->n_dim; i++)
        if (is_named(shape->dim[i]->dim_param)) dim_symbol(im->graph->dims, shape->dim[i]->dim_param);
}
