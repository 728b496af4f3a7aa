/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of nodes, references of functions resolved. */
#include "importer/build.h"

#define TYPE(name) ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##name

/* The payloads that are there, as bits of their types. */
static unsigned payloads(const Onnx__AttributeProto *p) {
    return (unsigned)!!p->has_f << TYPE(FLOAT) | (unsigned)!!p->has_i << TYPE(INT) |
           (unsigned)!!p->has_s << TYPE(STRING) | (unsigned)!!p->t << TYPE(TENSOR) | (unsigned)!!p->g << TYPE(GRAPH) |
           (unsigned)!!p->sparse_tensor << TYPE(SPARSE_TENSOR) | (unsigned)!!p->tp << TYPE(TYPE_PROTO) |
           (unsigned)!!p->n_floats << TYPE(FLOATS) | (unsigned)!!p->n_ints << TYPE(INTS) |
           (unsigned)!!p->n_strings << TYPE(STRINGS) | (unsigned)!!p->n_tensors << TYPE(TENSORS) |
           (unsigned)!!p->n_graphs << TYPE(GRAPHS) | (unsigned)!!p->n_sparse_tensors << TYPE(SPARSE_TENSORS) |
           (unsigned)!!p->n_type_protos << TYPE(TYPE_PROTOS);
}

int attribute_type(const Onnx__AttributeProto *proto) {
    if (proto->has_type && proto->type != TYPE(UNDEFINED)) return (int)proto->type;
    unsigned found = payloads(proto);
    return found ? __builtin_ctz(found) : TYPE(UNDEFINED);
}

static Status check_payload(const Onnx__AttributeProto *proto) {
    int type = attribute_type(proto);
    if (type <= TYPE(UNDEFINED) || type > TYPE(TYPE_PROTOS))
        return status_error(STATUS_INVALID, "it has no type, or one that is none");
    unsigned found = payloads(proto), wanted = 1u << type;
    bool may_be_absent = type == TYPE(FLOAT) || type == TYPE(INT) || type == TYPE(STRING) || type == TYPE(FLOATS) ||
                         type == TYPE(INTS) || type == TYPE(STRINGS) || type == TYPE(TENSORS) || type == TYPE(GRAPHS) ||
                         type == TYPE(SPARSE_TENSORS) || type == TYPE(TYPE_PROTOS);
    if (found & ~wanted) return status_error(STATUS_INVALID, "it holds a value of another type than it declares");
    if (!found && !may_be_absent) return status_error(STATUS_INVALID, "it holds no value");
    return NULL;
}

Status resolve_attribute(Importer *im, const Frame *frame, const Onnx__AttributeProto *proto,
                         const Onnx__AttributeProto **out_proto) {
    const char *name = proto->name;
    if (!name || !*name) return status_error(STATUS_INVALID, "an attribute has no name");
    if (!proto->ref_attr_name || !*proto->ref_attr_name) {
        *out_proto = proto;
        return status_at(check_payload(proto), "attribute \"%s\"", shown(im, name));
    }
    if (!frame)
        return status_error(STATUS_INVALID, "attribute \"%s\" refers to \"%s\", but does not stand in a function",
                            shown(im, name), shown(im, proto->ref_attr_name));
    const Onnx__AttributeProto *target = map_get(&frame->attributes, proto->ref_attr_name);
    *out_proto = target;
    if (!target) return NULL;
    int type = attribute_type(target);
    if (proto->has_type && proto->type != TYPE(UNDEFINED) && (int)proto->type != type)
        return status_error(STATUS_INVALID, "attribute \"%s\" has another type than \"%s\", which it refers to",
                            shown(im, name), shown(im, proto->ref_attr_name));
    if (type == TYPE(GRAPH) || type == TYPE(GRAPHS))
        return status_error(STATUS_UNSUPPORTED, "attribute \"%s\": graphs as attributes of functions are not supported",
                            shown(im, name));
    return NULL;
}

/* ---- tensors, each read once ---- */

Status read_tensor(Importer *im, const Onnx__TensorProto *proto, Tensor **out_tensor) {
    *out_tensor = map_get_id(&im->read, MAP_POINTER_KEY(proto));
    if (*out_tensor) return NULL;
    TRY(tensor_from_proto(&im->tensors, proto, out_tensor));
    map_set_id(&im->read, MAP_POINTER_KEY(proto), *out_tensor);
    return NULL;
}

Status read_sparse(Importer *im, const Onnx__SparseTensorProto *proto, Tensor **out_tensor) {
    *out_tensor = map_get_id(&im->read, MAP_POINTER_KEY(proto));
    if (*out_tensor) return NULL;
    TRY(tensor_from_sparse_proto(&im->tensors, proto, out_tensor));
    map_set_id(&im->read, MAP_POINTER_KEY(proto), *out_tensor);
    return NULL;
}

static Status read_tensors(Importer *im, const Onnx__AttributeProto *proto, Attr *attr) {
    bool sparse = attribute_type(proto) == TYPE(SPARSE_TENSORS);
    size_t count = sparse ? proto->n_sparse_tensors : proto->n_tensors;
    Tensor **tensors = ARENA_ARRAY(im->arena, Tensor *, count);
    for (size_t i = 0; i < count; i++)
        TRY(sparse ? read_sparse(im, proto->sparse_tensors[i], &tensors[i])
                   : read_tensor(im, proto->tensors[i], &tensors[i]));
    attr->kind = ATTR_TENSORS;
    attr->count = (int)count;
    attr->tensors = (const Tensor *const *)tensors;
    return NULL;
}

/* ---- the rest ---- */

static StringView terminated(Arena *arena, ProtobufCBinaryData bytes) {
    return (StringView){arena_string_n(arena, (const char *)bytes.data, bytes.len), bytes.len};
}

static StringView *strings_of(Arena *arena, const Onnx__AttributeProto *proto) {
    StringView *strings = ARENA_ARRAY(arena, StringView, proto->n_strings);
    for (size_t i = 0; i < proto->n_strings; i++) strings[i] = terminated(arena, proto->strings[i]);
    return strings;
}

static Status read_value(Importer *im, const Onnx__AttributeProto *proto, Attr *attr) {
    switch (attribute_type(proto)) {
    case TYPE(FLOAT):
        attr->kind = ATTR_FLOAT;
        attr->f = proto->f;
        return NULL;
    case TYPE(INT):
        attr->kind = ATTR_INT;
        attr->i = proto->i;
        return NULL;
    case TYPE(STRING):
        attr->kind = ATTR_STRING;
        attr->s = terminated(im->arena, proto->s);
        return NULL;
    case TYPE(FLOATS):
        attr->kind = ATTR_FLOATS;
        attr->count = (int)proto->n_floats;
        attr->floats = proto->floats;
        return NULL;
    case TYPE(INTS):
        attr->kind = ATTR_INTS;
        attr->count = (int)proto->n_ints;
        attr->ints = proto->ints;
        return NULL;
    case TYPE(STRINGS):
        attr->kind = ATTR_STRINGS;
        attr->count = (int)proto->n_strings;
        attr->strings = strings_of(im->arena, proto);
        return NULL;
    case TYPE(TENSORS):
    case TYPE(SPARSE_TENSORS): return read_tensors(im, proto, attr);
    case TYPE(TENSOR):
    case TYPE(SPARSE_TENSOR): {
        Tensor *tensor;
        TRY(proto->t ? read_tensor(im, proto->t, &tensor) : read_sparse(im, proto->sparse_tensor, &tensor));
        attr->kind = ATTR_TENSOR;
        attr->tensor = tensor;
        return NULL;
    }
    default: return status_error(STATUS_UNSUPPORTED, "lists of types are not supported");
    }
}

Status set_attribute(Importer *im, Node *node, const char *name, const Onnx__AttributeProto *proto) {
    Attr attr = {.name = name};
    if (node_attr(node, name)) return status_error(STATUS_INVALID, "attribute \"%s\" is given twice", shown(im, name));
    if (attribute_type(proto) == TYPE(TYPE_PROTO)) {
        DeclaredType type;
        TRY(status_at(read_type(im, proto->tp, name, &type), "attribute \"%s\"", shown(im, name)));
        if (value_kind_has_maps(type.kind))
            return status_error(STATUS_UNSUPPORTED, "attribute \"%s\": maps are not supported", shown(im, name));
        node_set_dtype(node, name, type.dtype);
        node_set_int(node, arena_format(im->arena, "%s_kind", name), type.kind);
        return NULL;
    }
    TRY(status_at(read_value(im, proto, &attr), "attribute \"%s\"", shown(im, name)));
    node_set_attr(node, attr);
    return NULL;
}

/* ---- Constant ---- */

/* data: in an arena of the graph's; a message does not live as long. */
static Tensor *constant_tensor(Arena *arena, DType dtype, int rank, size_t count, const void *data) {
    Tensor *tensor = ARENA_NEW(arena, Tensor);
    *tensor = (Tensor){.dtype = dtype, .rank = rank, .dims = {(int64_t)count}};
    tensor->data = count ? (void *)(uintptr_t)data : arena_alloc(arena, 16);
    return tensor;
}

static Status constant_value(Importer *im, const char *name, const Onnx__AttributeProto *p, Tensor **out) {
    static const struct {
        const char *name;
        int type;
    } forms[] = {
        {"value", TYPE(TENSOR)},        {"sparse_value", TYPE(SPARSE_TENSOR)},
        {"value_float", TYPE(FLOAT)},   {"value_floats", TYPE(FLOATS)},
        {"value_int", TYPE(INT)},       {"value_ints", TYPE(INTS)},
        {"value_string", TYPE(STRING)}, {"value_strings", TYPE(STRINGS)},
    };
    int type = attribute_type(p);
    bool known = false;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        known |= type == forms[i].type && strcmp(name, forms[i].name) == 0;
    if (!known) return status_error(STATUS_INVALID, "it is no value of a constant");
    Arena *arena = im->arena;
    switch (type) {
    case TYPE(TENSOR): return read_tensor(im, p->t, out);
    case TYPE(SPARSE_TENSOR): return read_sparse(im, p->sparse_tensor, out);
    case TYPE(FLOAT): *out = constant_tensor(arena, DT_F32, 0, 1, arena_copy(arena, &p->f, sizeof p->f)); break;
    case TYPE(FLOATS): *out = constant_tensor(arena, DT_F32, 1, p->n_floats, p->floats); break;
    case TYPE(INT): *out = constant_tensor(arena, DT_I64, 0, 1, arena_copy(arena, &p->i, sizeof p->i)); break;
    case TYPE(INTS): *out = constant_tensor(arena, DT_I64, 1, p->n_ints, p->ints); break;
    case TYPE(STRING): {
        StringView text = terminated(arena, p->s);
        *out = constant_tensor(arena, DT_STRING, 0, 1, arena_copy(arena, &text, sizeof text));
        break;
    }
    default: *out = constant_tensor(arena, DT_STRING, 1, p->n_strings, strings_of(arena, p)); break;
    }
    if (!(*out)->rank) (*out)->dims[0] = 0;
    return NULL;
}

Status read_constant(Importer *im, const Frame *frame, const Onnx__NodeProto *node, Tensor **out_tensor) {
    *out_tensor = NULL;
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__AttributeProto *proto;
        TRY(resolve_attribute(im, frame, node->attribute[i], &proto));
        if (!proto) continue;
        if (*out_tensor) return status_error(STATUS_INVALID, "a constant has one value, this one has several");
        const char *name = node->attribute[i]->name;
        TRY(charge(im, frame, proto->s.len));
        TRY(status_at(constant_value(im, name, proto, out_tensor), "attribute \"%s\"", shown(im, name)));
    }
    return *out_tensor ? NULL : status_error(STATUS_INVALID, "a constant without a value");
}
