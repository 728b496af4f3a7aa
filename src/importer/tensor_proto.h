/* SPDX-License-Identifier: Apache-2.0 */
/* TensorProto and SparseTensorProto <-> Tensor. */
#ifndef ONNXFUSE_IMPORTER_TENSOR_PROTO_H
#define ONNXFUSE_IMPORTER_TENSOR_PROTO_H

#include "graph/tensor.h"
#include "importer/files.h"
#include "importer/wire.h"

typedef struct TensorReader {
    Arena *arena;                        /* of the tensors */
    MappedFile source;                   /* what the messages were unpacked from; size 0 unless it is a mapped file */
    Folder *folder;                      /* of external data */
    const struct ImportOptions *options; /* external data in memory; may be NULL */
    bool unaligned;                      /* large float tensors are not copied for their alignment */
} TensorReader;

/* An element type that this library has: STATUS_UNSUPPORTED for the standard's others, STATUS_INVALID for a number that
 * is none. */
Status dtype_from_proto(int64_t number, DType *out_dtype);
/* The tensor's data lies in the message's own bytes or a mapped file where type and alignment allow, else in the arena.
 * Errors do not name the tensor. */
Status tensor_from_proto(TensorReader *reader, const Onnx__TensorProto *proto, Tensor **out_tensor);
/* Aligns one that was left unaligned. */
void tensor_settle(TensorReader *reader, Tensor *tensor);
/* The dense tensor; refuses one of more than 256 MiB. */
Status tensor_from_sparse_proto(TensorReader *reader, const Onnx__SparseTensorProto *proto, Tensor **out_tensor);
/* The message borrows the tensor's data, except where elements are packed or strings. */
Onnx__TensorProto *tensor_to_proto(Arena *arena, const Tensor *tensor, const char *name);

#endif
