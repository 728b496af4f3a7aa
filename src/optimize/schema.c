/* SPDX-License-Identifier: Apache-2.0 */
/* Looking things up in schema_table.h. */
#include "optimize/schema.h"

#include <stdlib.h>

typedef struct SchemaTypes {
    uint32_t allowed[VALUE_KINDS]; /* [ValueKind]: bits of 1 << DType */
} SchemaTypes;

#include "optimize/schema_table.h"
#include "base/plain.h"

enum { SCHEMA_COUNT = sizeof schemas / sizeof *schemas };

int schema_newest(void) { return SCHEMA_NEWEST; }

/* The first row of an operator; rows are sorted by name, then by version. */
static int first_row(const char *op) {
    int low = 0, high = SCHEMA_COUNT;
    while (low < high) {
        int middle = (low + high) / 2;
        if (strcmp(schemas[middle].op, op) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const Schema *schema_find(const char *op, int opset) {
    const Schema *found = NULL;
    for (int i = first_row(op); i < SCHEMA_COUNT && strcmp(schemas[i].op, op) == 0; i++)
        if (schemas[i].since <= opset) found = &schemas[i];
    return found;
}

const Schema *schema_after(const Schema *schema) {
    const Schema *next = schema + 1;
    return next < schemas + SCHEMA_COUNT && strcmp(next->op, schema->op) == 0 ? next : NULL;
}

const Schema *schema_before(const Schema *schema) {
    return schema > schemas && strcmp(schema[-1].op, schema->op) == 0 ? schema - 1 : NULL;
}

const SchemaAttr *schema_attr_at(const Schema *schema, int index) { return &schema_attrs[schema->first_attr + index]; }

const SchemaAttr *schema_attr(const Schema *schema, const char *name) {
    for (int i = 0; i < schema->attr_count; i++)
        if (strcmp(schema_attrs[schema->first_attr + i].name, name) == 0) return &schema_attrs[schema->first_attr + i];
    return NULL;
}

static const SchemaValue *value_at(int first, int count, int index) {
    if (index < count) return &schema_values[first + index];
    const SchemaValue *last = count ? &schema_values[first + count - 1] : NULL;
    return last && last->option >= MANY ? last : NULL;
}

const SchemaValue *schema_input(const Schema *schema, int index) {
    return value_at(schema->first_input, schema->input_count, index);
}

const SchemaValue *schema_output(const Schema *schema, int index) {
    return value_at(schema->first_output, schema->output_count, index);
}

bool schema_allows(const SchemaValue *value, ValueKind kind, DType dtype) {
    return (int)kind < VALUE_KINDS && schema_types[value->types].allowed[kind] >> dtype & 1;
}

bool schema_covers(const SchemaValue *value, const SchemaValue *other) {
    for (int kind = 0; kind < VALUE_KINDS; kind++)
        if (schema_types[other->types].allowed[kind] & ~schema_types[value->types].allowed[kind]) return false;
    return true;
}

DType schema_only_type(const SchemaValue *value, ValueKind *out_kind) {
    DType found = DT_NONE;
    for (int kind = 0; kind < VALUE_KINDS; kind++)
        for (int dtype = 1; dtype < DTYPE_COUNT; dtype++) {
            if (!schema_allows(value, (ValueKind)kind, (DType)dtype)) continue;
            if (found != DT_NONE) return DT_NONE;
            found = (DType)dtype;
            *out_kind = (ValueKind)kind;
        }
    return found;
}

bool schema_is_default(const SchemaAttr *schema, const Attr *attr) {
    if (!schema->otherwise || (int)schema->kind != (int)attr->kind) return false;
    switch (attr->kind) {
    case ATTR_INT: return attr->i == strtoll(schema->otherwise, NULL, 10);
    case ATTR_FLOAT: return attr->f == plain_float(schema->otherwise, NULL);
    case ATTR_STRING:
        return attr->s.size == strlen(schema->otherwise) && memcmp(attr->s.data, schema->otherwise, attr->s.size) == 0;
    default: return false;
    }
}
