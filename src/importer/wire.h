/* SPDX-License-Identifier: Apache-2.0 */
/* Protocol buffers' wire format -> the structs that protoc-c makes of onnx.proto.
 *
 * The library's own unpacking copies every bytes field, recurses as deep as the file says and keeps unknown fields.
 * This one leaves bytes fields where they are (so that weights stay in the mapped file), refuses what nests deeper than
 * MOST_NESTING, drops unknown fields, and allocates in an arena, so that nothing has to be freed. */
#ifndef ONNXFUSE_IMPORTER_WIRE_H
#define ONNXFUSE_IMPORTER_WIRE_H

#include "base/arena.h"
#include "onnx.pb-c.h"

/* protobuf's own default for readers. Three levels a nested graph: node, attribute, graph. */
enum { MOST_NESTING = 100 };

/* Messages go to `messages`, strings and lists of numbers to `values`, which may be the same: a graph keeps these and
 * needs the messages no longer than it takes to build it. The result's bytes fields point into `bytes`, which must live
 * as long as it does; strings are copied and terminated (one that holds a NUL is refused). *out_message is a struct of the descriptor's type. Errors are STATUS_INVALID. */
Status wire_unpack(Arena *messages, Arena *values, const ProtobufCMessageDescriptor *type, const void *bytes,
                   size_t size, void *out_message);

#endif
