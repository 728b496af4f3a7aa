/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the description of a DLPack tensor over memory that its shape and strides stay in: refused with a message,
 * or a value with the elements that the strides name, which is handed on as the same. What is not given memory for, a
 * producer may not hand over; such descriptions are given without any. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxfuse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MEMORY = 1 << 12, MOST_AXES = 20 };

static int deleted;
static void delete (OnnxfuseDlpack *self) {
    (void)self;
    deleted++;
}

static int64_t take(const uint8_t **data, size_t *size, size_t bytes) {
    int64_t value = 0;
    for (size_t i = 0; i < bytes && *size; i++, (*size)--) value |= (int64_t)((uint64_t) * (*data)++ << 8 * i);
    return bytes == 1 ? (int8_t)value : bytes == 2 ? (int16_t)value : value;
}

/* The bytes from the lowest to the highest element, and how far the first lies above the lowest; false: beyond MEMORY. */
static bool extent(const OnnxfuseDlpack *d, int64_t *out_bytes, int64_t *out_before) {
    __int128 low = 0, high = 0, dense = 1, element = (d->tensor.dtype.bits + 7) / 8;
    for (int i = d->tensor.rank - 1; i >= 0; i--) {
        int64_t dim = d->tensor.shape[i];
        if (dim == 0) return *out_bytes = *out_before = 0, true;
        if (dim < 0) return false;
        __int128 way = (__int128)(d->tensor.strides ? d->tensor.strides[i] : (int64_t)dense) * (dim - 1);
        *(way < 0 ? &low : &high) += way;
        dense *= dim;
        if (dense > MEMORY || high > MEMORY || low < -MEMORY) return false;
    }
    *out_bytes = (int64_t)((high - low + 1) * element);
    *out_before = (int64_t)(-low * element);
    return *out_bytes <= MEMORY;
}

static uint8_t expected(const OnnxfuseDlpack *d, const uint8_t *first, int64_t index, int element, int byte) {
    __int128 at = 0;
    for (int i = d->tensor.rank - 1, step; i >= 0; i--) {
        step = (int)(index % d->tensor.shape[i]);
        int64_t stride = 1;
        for (int k = i + 1; k < d->tensor.rank; k++) stride *= d->tensor.shape[k];
        at += (__int128)step * (d->tensor.strides ? d->tensor.strides[i] : stride);
        index /= d->tensor.shape[i];
    }
    return first[(int64_t)at * element + byte];
}

static void check(const OnnxfuseDlpack *d, const uint8_t *first, OnnxfuseValue *value) {
    int element = d->tensor.dtype.bits / 8;
    const uint8_t *got = onnxfuse_value_data(value);
    int64_t count = onnxfuse_value_count(value);
    for (int64_t i = 0; i < count; i++)
        for (int b = 0; b < element; b++)
            if (got[i * element + b] != expected(d, first, i, element, b)) abort();
    OnnxfuseDlpack *out = NULL;
    OnnxfuseStatus status = onnxfuse_value_to_dlpack(value, &out);
    if (status) abort();
    if (out->tensor.rank != d->tensor.rank || out->tensor.dtype.code != d->tensor.dtype.code ||
        out->tensor.dtype.bits != d->tensor.dtype.bits || out->tensor.data != (void *)got)
        abort();
    for (int i = 0; i < d->tensor.rank; i++)
        if (out->tensor.shape[i] != d->tensor.shape[i]) abort();
    out->deleter(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int64_t shape[MOST_AXES], strides[MOST_AXES], bytes = 0, before = 0;
    OnnxfuseDlpack d = {.version = {.major = take(&data, &size, 1) == 13 ? 2 : 1}, .deleter = delete};
    d.tensor.rank = (int32_t)take(&data, &size, 1);
    int axes = d.tensor.rank < 0 || d.tensor.rank > MOST_AXES ? 0 : d.tensor.rank;
    d.tensor.dtype.code = (uint8_t)(take(&data, &size, 1) & 15);
    d.tensor.dtype.bits = (uint8_t)(take(&data, &size, 1) & ~3);
    d.tensor.dtype.lanes = take(&data, &size, 1) == 7 ? 2 : 1;
    int64_t device = take(&data, &size, 1);
    d.tensor.device.type = device == 11 || device == 3 ? (int32_t)device : 1; /* memory of a GPU is not looked at */
    d.tensor.byte_offset = (uint64_t)take(&data, &size, 1) & 15;
    bool strided = take(&data, &size, 1) & 1;
    int width = take(&data, &size, 1) & 7 ? 1 : 8; /* of the sizes: small, or any */
    for (int i = 0; i < axes; i++) shape[i] = take(&data, &size, (size_t)width);
    for (int i = 0; i < axes; i++) strides[i] = take(&data, &size, (size_t)width);
    d.tensor.shape = shape;
    d.tensor.strides = strided ? strides : NULL;
    bool fits = axes == d.tensor.rank && extent(&d, &bytes, &before);
    uint8_t *memory = malloc(fits ? (size_t)bytes + d.tensor.byte_offset + 1 : 1);
    if (!memory) abort();
    for (int64_t i = 0; fits && i < bytes; i++) memory[d.tensor.byte_offset + (uint64_t)i] = (uint8_t)(i * 7 + 1);
    d.tensor.data = fits ? memory + before : NULL;
    deleted = 0;
    OnnxfuseValue *value = NULL;
    OnnxfuseStatus status = axes == d.tensor.rank || d.tensor.rank < 0 || d.tensor.rank > 16
                                ? onnxfuse_value_from_dlpack(&d, &value)
                                : NULL;
    if (status) {
        if (!*onnxfuse_status_message(status) || deleted) abort();
        onnxfuse_status_free(status);
    } else if (value) {
        if (fits)
            check(&d, memory + before + d.tensor.byte_offset, value);
        else
            onnxfuse_value_free(value);
        if (deleted != 1) abort();
    }
    free(memory);
    return 0;
}
