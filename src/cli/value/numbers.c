/* SPDX-License-Identifier: Apache-2.0 */
/* Storing numbers as a tensor's elements, and drawing them. */
#include "cli/value/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_WORD = 8 };

/* The bits of the nearest float of so many bits of exponent and mantissa, ties to even. */
static uint16_t narrow(double value, int exponent_bits, int mantissa_bits) {
    uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits, bits;
    int least = 2 - (1 << (exponent_bits - 1)), exponent = 0; /* least: the smallest normal number's exponent */
    if (isnan(value)) {
        bits = infinity | 1u << (mantissa_bits - 1);
    } else if (isinf(value)) {
        bits = infinity;
    } else {
        frexp(fabs(value), &exponent); /* value = f * 2^exponent, f in 1/2..1 */
        exponent = value == 0 || exponent - 1 < least ? least : exponent - 1;
        /* Steps of 2^(exponent - mantissa_bits); a normal number's leading one adds one to the exponent's field. */
        double steps = nearbyint(ldexp(fabs(value), mantissa_bits - exponent));
        bits = exponent > -least + 1 ? infinity : ((uint32_t)(exponent - least) << mantissa_bits) + (uint32_t)steps;
    }
    return (uint16_t)(bits | (signbit(value) ? 1u << (exponent_bits + mantissa_bits) : 0));
}

bool number_store(OnnxfuseDType dtype, void *data, int64_t i, double value) {
    switch (dtype) {
    case ONNXFUSE_FLOAT32: ((float *)data)[i] = (float)value; return true;
    case ONNXFUSE_FLOAT64: ((double *)data)[i] = value; return true;
    case ONNXFUSE_FLOAT16: ((uint16_t *)data)[i] = narrow(value, 5, 10); return true;
    case ONNXFUSE_BFLOAT16: ((uint16_t *)data)[i] = narrow(value, 8, 7); return true;
    case ONNXFUSE_BOOL: ((uint8_t *)data)[i] = value != 0; return true;
    case ONNXFUSE_INT8:
    case ONNXFUSE_UINT8: ((uint8_t *)data)[i] = (uint8_t)value; return true;
    case ONNXFUSE_INT16:
    case ONNXFUSE_UINT16: ((uint16_t *)data)[i] = (uint16_t)value; return true;
    case ONNXFUSE_INT32:
    case ONNXFUSE_UINT32: ((uint32_t *)data)[i] = (uint32_t)value; return true;
    case ONNXFUSE_INT64:
    case ONNXFUSE_UINT64: ((uint64_t *)data)[i] = (uint64_t)value; return true;
    default: return false;
    }
}

/* --- drawing --- */
typedef struct Draw {
    uint64_t state;
} Draw;

/* splitmix64 */
static uint64_t draw(Draw *d) {
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double unit_of(uint64_t bits) { return (double)(bits >> 11) * 0x1p-52 - 1; } /* -1..1 */

static Problem *draw_words(Draw *d, Loaded *tensor) {
    int64_t count = onnxfuse_value_count(tensor->value);
    OnnxfuseString *words = tensor->data;
    char *at = tensor->text = calloc((size_t)count + 1, LONGEST_WORD);
    if (!at) return problem_out_of_memory();
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = draw(d);
        words[i] = (OnnxfuseString){at, 1 + bits % LONGEST_WORD};
        for (size_t k = 0; k < words[i].size; k++) *at++ = (char)('a' + (bits >> (8 + 6 * k)) % 26);
    }
    return NULL;
}

/* row: the size of the last axis. */
static void draw_number(OnnxfuseDType dtype, void *data, int64_t i, int64_t row, Draw *d) {
    uint64_t bits = draw(d);
    uint8_t bit = (bits & 1) || i % row == 0;
    switch (dtype) {
    case ONNXFUSE_FLOAT32:
    case ONNXFUSE_FLOAT64:
    case ONNXFUSE_FLOAT16:
    case ONNXFUSE_BFLOAT16: number_store(dtype, data, i, unit_of(bits)); break;
    case ONNXFUSE_COMPLEX64:
    case ONNXFUSE_COMPLEX128:
        for (int part = 0; part < 2; part++)
            number_store(dtype == ONNXFUSE_COMPLEX64 ? ONNXFUSE_FLOAT32 : ONNXFUSE_FLOAT64, data, 2 * i + part,
                         unit_of(part ? draw(d) : bits));
        break;
    /* Of every 8-bit float format these bits are a small normal number. */
    case ONNXFUSE_FLOAT8E4M3FN:
    case ONNXFUSE_FLOAT8E4M3FNUZ:
    case ONNXFUSE_FLOAT8E5M2:
    case ONNXFUSE_FLOAT8E5M2FNUZ: ((uint8_t *)data)[i] = (uint8_t)(0x30 | (bits & 0x87)); break;
    case ONNXFUSE_FLOAT8E8M0: ((uint8_t *)data)[i] = (uint8_t)(0x7e + (bits & 1)); break;
    default:
        if (!number_store(dtype, data, i, bit)) ((uint8_t *)data)[i] = bit; /* 2 and 4 bits */
    }
}

Problem *numbers_draw(uint64_t seed, Loaded *tensor) {
    Draw d = {seed};
    OnnxfuseDType dtype = onnxfuse_value_dtype(tensor->value);
    int rank = onnxfuse_value_rank(tensor->value);
    int64_t row = rank ? onnxfuse_value_dims(tensor->value)[rank - 1] : 1;
    if (dtype == ONNXFUSE_STRING) return draw_words(&d, tensor);
    for (int64_t i = 0; i < onnxfuse_value_count(tensor->value); i++) draw_number(dtype, tensor->data, i, row, &d);
    return NULL;
}
