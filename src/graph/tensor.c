/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, construction and printing of dense tensors. */
#include "graph/tensor.h"

#include <inttypes.h>
#include "base/heap.h"

int64_t tensor_count(const Tensor *tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++) count *= tensor->dims[i];
    return count;
}

size_t tensor_bytes(const Tensor *tensor) { return (size_t)tensor_count(tensor) * dtype_size(tensor->dtype); }

/* A shape with a 0 has no elements whatever its other sizes are, but those must multiply without overflow all the same:
 * strides are computed from them. */
Status tensor_size_of(DType dtype, int rank, const int64_t *dims, int64_t *out_count, size_t *out_bytes) {
    if (rank < 0 || rank > MAX_RANK)
        return status_error(STATUS_UNSUPPORTED, "a tensor of rank %d; at most %d is supported", rank, (int)MAX_RANK);
    int64_t count = 1, extent = 1, bytes = 0;
    bool fits = true;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0) return status_error(STATUS_INVALID, "axis %d has the negative size %" PRId64, i, dims[i]);
        if (__builtin_mul_overflow(extent, dims[i] ? dims[i] : 1, &extent)) fits = false;
        if (dims[i] == 0) count = 0;
    }
    if (count) count = extent;
    if (!fits || __builtin_mul_overflow(extent, (int64_t)dtype_size(dtype), &bytes))
        return status_error(STATUS_INVALID, "a tensor of %s is too large for this machine", dtype_onnx_name(dtype));
    if (out_count) *out_count = count;
    if (out_bytes) *out_bytes = count ? (size_t)bytes : 0;
    return NULL;
}

bool tensor_same_shape(const Tensor *a, const Tensor *b) {
    return a->rank == b->rank && (a->rank == 0 || memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0);
}

static Tensor *tensor_make(Arena *arena, DType dtype, int rank, const int64_t *dims,
                           void *(*allocate)(Arena *, size_t)) {
    Tensor *tensor = ARENA_NEW(arena, Tensor);
    tensor->dtype = dtype;
    tensor->rank = rank;
    size_t bytes = 0;
    Status status = tensor_size_of(dtype, rank, dims, NULL, &bytes);
    if (status) bytes = SIZE_MAX; /* more than any arena has: unwinds to its guard */
    status_free(status);
    if (rank > 0 && bytes != SIZE_MAX) memcpy(tensor->dims, dims, (size_t)rank * sizeof *dims);
    tensor->data = allocate(arena, bytes);
    return tensor;
}

Tensor *tensor_new(Arena *arena, DType dtype, int rank, const int64_t *dims) {
    return tensor_make(arena, dtype, rank, dims, arena_alloc);
}

Tensor *tensor_new_unset(Arena *arena, DType dtype, int rank, const int64_t *dims) {
    return tensor_make(arena, dtype, rank, dims, arena_alloc_unset);
}

/* A tensor of less stays: a read of what lies beside it would bring it back, since the system maps 64 kB around a page
 * of a file at once. To give back 768 weights of 16 kB took 2.5 of the 34 ms in which stack_128 opened (an AMD EPYC of
 * family 26, Linux 6.18). */
void tensor_forget(const Tensor *tensor) {
    enum { LEAST = 64 << 10 };
    size_t bytes = tensor_bytes(tensor);
    if (bytes >= LEAST) bytes_forget(tensor->data, bytes);
}

bool tensor_is_aligned(const Tensor *tensor) {
    DType t = tensor->dtype;
    size_t size = t == DT_C64 ? 4 : t == DT_C128 ? 8 : t == DT_STRING ? _Alignof(StringView) : dtype_size(t);
    return size < 2 || (uintptr_t)tensor->data % size == 0;
}

void tensor_align(Arena *arena, Tensor *tensor) {
    if (!tensor_is_aligned(tensor)) tensor->data = arena_copy(arena, tensor->data, tensor_bytes(tensor));
}

Tensor *tensor_scalar_int(Arena *arena, DType dtype, int64_t value) {
    Tensor *tensor = tensor_new(arena, dtype, 0, NULL);
    dtype_store_int(dtype, tensor->data, 0, value);
    return tensor;
}

Tensor *tensor_scalar_double(Arena *arena, DType dtype, double value) {
    Tensor *tensor = tensor_new(arena, dtype, 0, NULL);
    dtype_store_double(dtype, tensor->data, 0, value);
    return tensor;
}

/* Elements may stand unaligned in a mapped file. */
static double part(const Tensor *tensor, int64_t index) {
    DType dtype = tensor->dtype == DT_C64 ? DT_F32 : DT_F64;
    return dtype_load_double(dtype, tensor->data, index);
}

static void add_float(Text *text, DType dtype, double value) {
    if (dtype == DT_F64)
        text_add_double(text, value);
    else
        text_add_float(text, (float)value);
}

static void print_element(Text *text, const Tensor *tensor, int64_t index) {
    DType dtype = tensor->dtype;
    if (dtype == DT_STRING) {
        StringView s = ((const StringView *)tensor->data)[index];
        text_add_quoted(text, s.data, s.size);
    } else if (dtype == DT_C64 || dtype == DT_C128) {
        DType of = dtype == DT_C64 ? DT_F32 : DT_F64;
        double imaginary = part(tensor, 2 * index + 1);
        add_float(text, of, part(tensor, 2 * index));
        text_add(text, imaginary < 0 ? "" : "+");
        add_float(text, of, imaginary);
        text_add(text, "i");
    } else if (dtype == DT_BOOL) {
        text_add(text, dtype_load_int(dtype, tensor->data, index) ? "true" : "false");
    } else if (dtype_is_float(dtype)) {
        add_float(text, dtype, dtype_load_double(dtype, tensor->data, index));
    } else if (dtype == DT_U64) {
        text_add(text, "%" PRIu64, (uint64_t)dtype_load_int(dtype, tensor->data, index));
    } else {
        text_add(text, "%" PRId64, dtype_load_int(dtype, tensor->data, index));
    }
}

/* Axes from `axis` on, beginning with element *index; stops with "..." when that reaches `most`. An axis of size 0
 * prints as []. */
static void print_axis(Text *text, const Tensor *tensor, int axis, int64_t most, int64_t *index) {
    if (axis == tensor->rank) {
        print_element(text, tensor, (*index)++);
        return;
    }
    text_add(text, "[");
    bool empty = tensor_count(tensor) == 0; /* then only the outermost brackets are of interest */
    for (int64_t i = 0; i < tensor->dims[axis] && !empty; i++) {
        text_add(text, i ? ", " : "");
        if (*index >= most) {
            text_add(text, "...");
            break;
        }
        print_axis(text, tensor, axis + 1, most, index);
    }
    text_add(text, "]");
}

void tensor_print(Text *text, const Tensor *tensor, int64_t most) {
    int64_t index = 0;
    print_axis(text, tensor, 0, most, &index);
}
