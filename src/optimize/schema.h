/* SPDX-License-Identifier: Apache-2.0 */
/* What each version of each operator of the ONNX standard takes: inputs, outputs, their types, attributes. The data are
 * schema_table.h, which scripts/write_schemas.py writes from the standard's own schemas. */
#ifndef ONNXFUSE_OPTIMIZE_SCHEMA_H
#define ONNXFUSE_OPTIMIZE_SCHEMA_H

#include "graph/graph.h"

enum { SCHEMA_OLDEST = 7 }; /* of what came before, only the last version is known; keep OLDEST of write_schemas.py */
enum { VALUE_KINDS = VALUE_OPTIONAL_SEQUENCE + 1 }; /* those that the standard's own domain has: no maps */

typedef enum SchemaOption {
    ONE,
    MAYBE, /* may be left out */
    MANY,  /* any number, of one type */
    MIXED, /* any number, of any types */
} SchemaOption;

/* One input or output. */
typedef struct SchemaValue {
    uint8_t option;  /* SchemaOption */
    int8_t variable; /* inputs and outputs of the same number have the same type; -1: a type of its own */
    uint16_t types;
} SchemaValue;

/* Names of their own, as graphs are no attributes in our graph. */
typedef enum SchemaAttrKind {
    IS_INT = ATTR_INT,
    IS_FLOAT = ATTR_FLOAT,
    IS_STRING = ATTR_STRING,
    IS_INTS = ATTR_INTS,
    IS_FLOATS = ATTR_FLOATS,
    IS_STRINGS = ATTR_STRINGS,
    IS_TENSOR = ATTR_TENSOR,
    IS_TYPE_PROTO = ATTR_TYPE,
    IS_GRAPH = 64,
    IS_SPARSE_TENSOR,
} SchemaAttrKind;

typedef struct SchemaAttr {
    const char *name;
    uint8_t kind; /* SchemaAttrKind */
    bool required;
    const char *otherwise; /* its value when left out, as text; NULL: none, or a list */
} SchemaAttr;

typedef struct Schema {
    const char *op;
    uint8_t since; /* opset version; 1 also for the last version before SCHEMA_OLDEST where that was the only one */
    bool deprecated;
    uint8_t least_inputs;
    uint16_t first_input;
    uint8_t input_count;
    uint16_t first_output;
    uint8_t output_count;
    uint16_t first_attr;
    uint8_t attr_count;
} Schema;

int schema_newest(void); /* the newest opset version that is known */
/* The version that holds in an opset; NULL where the operator is not part of it. */
const Schema *schema_find(const char *op, int opset);
const Schema *schema_after(const Schema *schema);                      /* the operator's next version; NULL: none */
const Schema *schema_before(const Schema *schema);                     /* the one before; NULL: none, or not known */
const SchemaAttr *schema_attr(const Schema *schema, const char *name); /* NULL: none of that name */
const SchemaAttr *schema_attr_at(const Schema *schema, int index);
/* That of the index-th; the last one's when it may be repeated; NULL: there are fewer. */
const SchemaValue *schema_input(const Schema *schema, int index);
const SchemaValue *schema_output(const Schema *schema, int index);
bool schema_allows(const SchemaValue *value, ValueKind kind, DType dtype);
bool schema_covers(const SchemaValue *value, const SchemaValue *other); /* all types of the other are allowed */
/* The only type that is allowed, DT_NONE where there are several. */
DType schema_only_type(const SchemaValue *value, ValueKind *out_kind);
bool schema_is_default(const SchemaAttr *schema, const Attr *attr);

#endif
