/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool problem_memory(Problem *problem) {
    *problem = (Problem){500, "out of memory"};
    return false;
}

bool problem_say(Problem *problem, const char *format, ...) {
    problem->status = 400;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem->text, sizeof problem->text, format, arguments);
    va_end(arguments);
    return false;
}

static const DatatypeInfo datatypes[] = {
    {"BOOL", ONNXFUSE_BOOL, 1, 1},
    {"UINT8", ONNXFUSE_UINT8, 1, 1},
    {"UINT16", ONNXFUSE_UINT16, 2, alignof(uint16_t)},
    {"UINT32", ONNXFUSE_UINT32, 4, alignof(uint32_t)},
    {"UINT64", ONNXFUSE_UINT64, 8, alignof(uint64_t)},
    {"INT8", ONNXFUSE_INT8, 1, 1},
    {"INT16", ONNXFUSE_INT16, 2, alignof(int16_t)},
    {"INT32", ONNXFUSE_INT32, 4, alignof(int32_t)},
    {"INT64", ONNXFUSE_INT64, 8, alignof(int64_t)},
    {"FP16", ONNXFUSE_FLOAT16, 2, alignof(uint16_t)},
    {"BF16", ONNXFUSE_BFLOAT16, 2, alignof(uint16_t)},
    {"FP32", ONNXFUSE_FLOAT32, 4, alignof(float)},
    {"FP64", ONNXFUSE_FLOAT64, 8, alignof(double)},
    {"BYTES", ONNXFUSE_STRING, sizeof(OnnxfuseString), alignof(OnnxfuseString)},
};
enum { DATATYPES = sizeof datatypes / sizeof *datatypes };

const DatatypeInfo *datatype_of(OnnxfuseDType dtype) {
    for (int i = 0; i < DATATYPES; i++)
        if (datatypes[i].dtype == dtype) return &datatypes[i];
    return NULL;
}

const DatatypeInfo *datatype_named(const char *name) {
    for (int i = 0; i < DATATYPES; i++)
        if (strcmp(datatypes[i].name, name) == 0) return &datatypes[i];
    return NULL;
}

bool tensor_set_dims(Tensor *tensor, Problem *problem) {
    int64_t count = 1;
    bool empty = false;
    for (int i = 0; i < tensor->rank; i++) empty |= tensor->dims[i] == 0;
    for (int i = 0; i < tensor->rank; i++) {
        if (empty)
            count = 0;
        else if (__builtin_mul_overflow(count, tensor->dims[i], &count))
            return problem_say(problem, "input \"%.64s\": its shape has too many elements", tensor->name);
    }
    if (__builtin_mul_overflow((size_t)count, datatype_of(tensor->dtype)->size, &tensor->bytes))
        return problem_say(problem, "input \"%.64s\": its shape has too many elements", tensor->name);
    tensor->count = count;
    return true;
}

/* --- reading JSON --------------------------------------------------------------------------------------------- */
typedef struct Reader {
    char *at, *end; /* the byte before end is the array's own ']', so a number or a word always ends before end */
    Tensor *tensor;
    int64_t next; /* element */
    Problem *problem;
} Reader;

static void skip_space(Reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r')) r->at++;
}

static char peek(Reader *r) {
    skip_space(r);
    return r->at < r->end ? *r->at : 0;
}

static bool complain(Reader *r, const char *expected) {
    char found[24];
    int size = 0;
    for (char *p = r->at; p < r->end && size < 20 && *p > ' ' && *p < 127 && (size == 0 || !strchr(",]", *p)); p++)
        found[size++] = *p;
    found[size] = 0;
    return problem_say(r->problem, "input \"%.64s\": element %" PRId64 " of data: expected %s, found %s%s",
                       r->tensor->name, r->next, expected, size ? found : "something else", size == 20 ? "..." : "");
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A JSON number: its digits as far as they fit (most significant first), and the power of ten that they are to be
 * multiplied by. Leaves r->at behind it. */
typedef struct Number {
    const char *begin;
    bool negative, whole, cut; /* whole: neither fraction nor exponent; cut: not all digits are in `digits` */
    uint64_t digits;
    int64_t exponent;
} Number;

static void number_digit(Number *n, char c, bool fraction) {
    uint64_t digits;
    if (n->cut || __builtin_mul_overflow(n->digits, 10, &digits) ||
        __builtin_add_overflow(digits, (uint64_t)(c - '0'), &digits)) {
        n->cut = true;
        n->exponent += !fraction;
    } else {
        n->digits = digits;
        n->exponent -= fraction;
    }
}

static bool read_exponent(Reader *r, Number *n) {
    r->at++;
    bool negative = *r->at == '-';
    if (*r->at == '-' || *r->at == '+') r->at++;
    if (!is_digit(*r->at)) return false;
    int64_t value = 0;
    for (; is_digit(*r->at); r->at++)
        if (value < 100000) value = value * 10 + (*r->at - '0');
    n->exponent += negative ? -value : value;
    n->whole = false;
    return true;
}

static bool read_number(Reader *r, Number *n) {
    *n = (Number){.begin = r->at, .whole = true};
    if (*r->at == '-') n->negative = true, r->at++;
    if (!is_digit(*r->at)) return false;
    if (*r->at == '0' && is_digit(r->at[1])) return false;
    for (; is_digit(*r->at); r->at++) number_digit(n, *r->at, false);
    if (*r->at == '.') {
        r->at++;
        if (!is_digit(*r->at)) return false;
        n->whole = false;
        for (; is_digit(*r->at); r->at++) number_digit(n, *r->at, true);
    }
    return (*r->at != 'e' && *r->at != 'E') || read_exponent(r, n);
}

/* Up to 2^53 and 10^22 both factors are exact in a double, so that their product or quotient is rounded once, as it
 * must be (W. D. Clinger, How to Read Floating Point Numbers Accurately, 1990). All else is for strtod. */
static bool number_quick(const Number *n, double *out_value) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (n->cut || n->digits > UINT64_C(1) << 53 || n->exponent < -22 || n->exponent > 22) return false;
    double value = (double)n->digits;
    value = n->exponent < 0 ? value / powers[-n->exponent] : value * powers[n->exponent];
    *out_value = n->negative ? -value : value;
    return true;
}

static double number_double(const Number *n) {
    double value;
    return number_quick(n, &value) ? value : strtod(n->begin, NULL);
}

/* A double half-way between two floats may have been rounded to there, and would then be rounded a second time. */
static float number_float(const Number *n) {
    double value;
    if (!number_quick(n, &value)) return strtof(n->begin, NULL);
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x1FFFFFFF) == 0x10000000 || fabs(value) < FLT_MIN) return strtof(n->begin, NULL);
    return (float)value;
}

static bool read_fp32(Reader *r) {
    Number n;
    if (!read_number(r, &n)) return complain(r, "a number");
    float value = number_float(&n);
    if (!isfinite(value)) {
        r->at = (char *)n.begin;
        return complain(r, "a number in the range of FP32");
    }
    ((float *)r->tensor->data)[r->next] = value;
    return true;
}

static bool read_fp64(Reader *r) {
    Number n;
    if (!read_number(r, &n)) return complain(r, "a number");
    double value = number_double(&n);
    if (!isfinite(value)) {
        r->at = (char *)n.begin;
        return complain(r, "a number in the range of FP64");
    }
    ((double *)r->tensor->data)[r->next] = value;
    return true;
}

static const struct IntegerRange {
    OnnxfuseDType dtype;
    uint64_t below, above; /* the largest magnitudes below and above zero */
} integer_ranges[] = {
    {ONNXFUSE_INT8, 1u << 7, INT8_MAX},
    {ONNXFUSE_INT16, 1u << 15, INT16_MAX},
    {ONNXFUSE_INT32, UINT64_C(1) << 31, INT32_MAX},
    {ONNXFUSE_INT64, UINT64_C(1) << 63, INT64_MAX},
    {ONNXFUSE_UINT8, 0, UINT8_MAX},
    {ONNXFUSE_UINT16, 0, UINT16_MAX},
    {ONNXFUSE_UINT32, 0, UINT32_MAX},
    {ONNXFUSE_UINT64, 0, UINT64_MAX},
};

static bool read_integer(Reader *r) {
    const struct IntegerRange *range = integer_ranges;
    while (range->dtype != r->tensor->dtype) range++;
    Number n;
    char *begin = r->at;
    if (!read_number(r, &n) || !n.whole || n.cut || n.digits > (n.negative ? range->below : range->above)) {
        char expected[40];
        snprintf(expected, sizeof expected, "an integer of %s", datatype_of(range->dtype)->name);
        r->at = begin;
        return complain(r, expected);
    }
    uint64_t bits = n.negative ? 0 - n.digits : n.digits; /* two's complement: its low bytes are the narrower types */
    size_t size = datatype_of(range->dtype)->size;
    char *out = (char *)r->tensor->data + (size_t)r->next * size;
    memcpy(out, &bits, size); /* little-endian, as all that the library runs on */
    return true;
}

static bool read_bool(Reader *r) {
    bool value = r->end - r->at > 4 && memcmp(r->at, "true", 4) == 0;
    if (!value && !(r->end - r->at > 5 && memcmp(r->at, "false", 5) == 0)) return complain(r, "true or false");
    r->at += value ? 4 : 5;
    ((uint8_t *)r->tensor->data)[r->next] = value;
    return true;
}

static int hex_digit(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Four hexadecimal digits at p; -1: there are none. */
static int32_t read_hex(const char *p, const char *end) {
    int32_t value = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

static char *put_utf8(char *out, int32_t code) {
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xC0 | code >> 6);
        *out++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *out++ = (char)(0xE0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 63));
        *out++ = (char)(0x80 | (code & 63));
    } else {
        *out++ = (char)(0xF0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 63));
        *out++ = (char)(0x80 | (code >> 6 & 63));
        *out++ = (char)(0x80 | (code & 63));
    }
    return out;
}

/* The escape at r->at, behind its backslash, to *out: it is never longer than what it stands for. */
static bool read_escape(Reader *r, char **out) {
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (r->at >= r->end) return false;
    char c = *r->at++;
    const char *name = c ? strchr(names, c) : NULL;
    if (name) return *(*out)++ = meanings[name - names], true;
    int32_t code = c == 'u' ? read_hex(r->at, r->end) : -1;
    if (code < 0 || (code >= 0xDC00 && code <= 0xDFFF)) return false;
    r->at += 4;
    if (code >= 0xD800 && code <= 0xDBFF) { /* the first of a pair of surrogates (RFC 8259, section 7) */
        int32_t low = r->end - r->at > 6 && r->at[0] == '\\' && r->at[1] == 'u' ? read_hex(r->at + 2, r->end) : -1;
        if (low < 0xDC00 || low > 0xDFFF) return false;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        r->at += 6;
    }
    *out = put_utf8(*out, code);
    return true;
}

static bool read_string(Reader *r) {
    if (*r->at != '"') return complain(r, "a string");
    char *begin = ++r->at, *out = begin;
    for (;;) {
        if (r->at >= r->end || (unsigned char)*r->at < 0x20) return complain(r, "a string without control characters");
        char c = *r->at++;
        if (c == '"') break;
        if (c != '\\')
            *out++ = c;
        else if (!read_escape(r, &out))
            return complain(r, "an escape of JSON");
    }
    if (!text_is_utf8(begin, (size_t)(out - begin))) return complain(r, "UTF-8");
    ((OnnxfuseString *)r->tensor->data)[r->next] = (OnnxfuseString){begin, (size_t)(out - begin)};
    return true;
}

static bool (*element_reader(OnnxfuseDType dtype))(Reader *) {
    switch (dtype) {
    case ONNXFUSE_BOOL: return read_bool;
    case ONNXFUSE_FLOAT32: return read_fp32;
    case ONNXFUSE_FLOAT64: return read_fp64;
    case ONNXFUSE_STRING: return read_string;
    case ONNXFUSE_FLOAT16:
    case ONNXFUSE_BFLOAT16: return NULL;
    default: return read_integer;
    }
}

/* An array of dims[0] items, each an array of dims[1] and so on; its last level has the elements. */
static bool read_level(Reader *r, const int64_t *dims, int rank, bool (*read_element)(Reader *)) {
    if (peek(r) != '[') return complain(r, "an array, nested as the shape says");
    r->at++;
    for (int64_t i = 0; i < dims[0]; i++) {
        if (i > 0) {
            if (peek(r) != ',') return complain(r, "as many elements as the shape has");
            r->at++;
        }
        skip_space(r);
        if (rank > 1) {
            if (!read_level(r, dims + 1, rank - 1, read_element)) return false;
        } else {
            if (!read_element(r)) return false;
            r->next++;
        }
    }
    if (peek(r) != ']') return complain(r, "the end of an array as long as the shape says");
    r->at++;
    return true;
}

/* As many elements as the text can hold at most, before memory is asked for. */
static bool fits_text(const Tensor *tensor, size_t size, Problem *problem) {
    if ((uint64_t)tensor->count <= size / 2) return true;
    return problem_say(problem, "input \"%.64s\": data has fewer elements than its shape", tensor->name);
}

bool tensor_read_json(Tensor *tensor, char *json, size_t size, Problem *problem) {
    bool (*read_element)(Reader *) = element_reader(tensor->dtype);
    if (!read_element)
        return problem_say(problem, "input \"%.64s\": %s has no form in JSON; send it as binary tensor data",
                           tensor->name, datatype_of(tensor->dtype)->name);
    if (!fits_text(tensor, size, problem)) return false;
    tensor->data = malloc(tensor->bytes ? tensor->bytes : 1);
    tensor->owned = true;
    if (!tensor->data) return problem_memory(problem);
    Reader r = {.at = json, .end = json + size, .tensor = tensor, .problem = problem};
    Reader inner = {.at = json + 1, .end = json + size};
    bool nested = tensor->rank > 1 && (peek(&inner) == '[' || (tensor->dims[0] == 0 && peek(&inner) == ']'));
    if (!read_level(&r, nested ? tensor->dims : &tensor->count, nested ? tensor->rank : 1, read_element)) return false;
    return r.at == r.end || complain(&r, "nothing behind the array");
}

/* --- writing JSON --------------------------------------------------------------------------------------------- */
static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE 754 binary16. */
static float float_of_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    return float_of_bits(sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13);
}

static double float_element(OnnxfuseDType dtype, const void *data, int64_t i) {
    switch (dtype) {
    case ONNXFUSE_FLOAT64: return ((const double *)data)[i];
    case ONNXFUSE_FLOAT32: return ((const float *)data)[i];
    case ONNXFUSE_FLOAT16: return float_of_half(((const uint16_t *)data)[i]);
    default: return float_of_bits((uint32_t)((const uint16_t *)data)[i] << 16);
    }
}

static int write_integer(char *out, size_t room, OnnxfuseDType dtype, const void *data, int64_t i) {
    switch (dtype) {
    case ONNXFUSE_BOOL: return snprintf(out, room, "%s", ((const uint8_t *)data)[i] ? "true" : "false");
    case ONNXFUSE_UINT8: return snprintf(out, room, "%u", ((const uint8_t *)data)[i]);
    case ONNXFUSE_UINT16: return snprintf(out, room, "%u", ((const uint16_t *)data)[i]);
    case ONNXFUSE_UINT32: return snprintf(out, room, "%" PRIu32, ((const uint32_t *)data)[i]);
    case ONNXFUSE_UINT64: return snprintf(out, room, "%" PRIu64, ((const uint64_t *)data)[i]);
    case ONNXFUSE_INT8: return snprintf(out, room, "%d", ((const int8_t *)data)[i]);
    case ONNXFUSE_INT16: return snprintf(out, room, "%d", ((const int16_t *)data)[i]);
    case ONNXFUSE_INT32: return snprintf(out, room, "%" PRId32, ((const int32_t *)data)[i]);
    default: return snprintf(out, room, "%" PRId64, ((const int64_t *)data)[i]);
    }
}

static bool is_float(OnnxfuseDType dtype) {
    return dtype == ONNXFUSE_FLOAT16 || dtype == ONNXFUSE_BFLOAT16 || dtype == ONNXFUSE_FLOAT32 ||
           dtype == ONNXFUSE_FLOAT64;
}

static bool write_strings_json(Text *out, const OnnxfuseString *strings, int64_t count, Problem *problem) {
    for (int64_t i = 0; i < count; i++) {
        if (!text_is_utf8(strings[i].data, strings[i].size))
            return problem_say(problem, "element %" PRId64 " is not UTF-8, which JSON must be", i);
        if (i) text_append(out, ",", 1);
        text_json_string(out, strings[i].data, strings[i].size);
    }
    return true;
}

bool tensor_write_json(Text *out, OnnxfuseDType dtype, const void *data, int64_t count, Problem *problem) {
    enum { LONGEST = 26 }; /* of "-1.7976931348623157e+308," */
    text_append(out, "[", 1);
    if (dtype == ONNXFUSE_STRING && !write_strings_json(out, data, count, problem)) return false;
    int precision = dtype == ONNXFUSE_FLOAT64 ? 17 : 9; /* digits that lead back to the same number */
    for (int64_t i = 0; i < count && dtype != ONNXFUSE_STRING; i++) {
        if (!text_reserve(out, LONGEST)) break;
        char *at = out->data + out->size;
        if (i) *at++ = ',';
        if (is_float(dtype)) {
            double value = float_element(dtype, data, i);
            if (!isfinite(value))
                return problem_say(problem, "element %" PRId64 " is not finite, which JSON cannot tell", i);
            /* "-0" would be read as the integer 0. */
            at += value == 0 && signbit(value) ? snprintf(at, LONGEST, "-0.0")
                                               : snprintf(at, LONGEST, "%.*g", precision, value);
        } else {
            at += write_integer(at, LONGEST, dtype, data, i);
        }
        out->size = (size_t)(at - out->data);
    }
    text_append(out, "]", 1);
    return true;
}

/* --- binary strings --------------------------------------------------------------------------------------------- */
bool tensor_read_strings(Tensor *tensor, const char *bytes, size_t size, Problem *problem) {
    if ((uint64_t)tensor->count > size / 4)
        return problem_say(problem, "input \"%.64s\": its binary data has fewer elements than its shape", tensor->name);
    OnnxfuseString *strings = malloc(tensor->bytes ? tensor->bytes : 1);
    if (!strings) return problem_memory(problem);
    tensor->data = strings;
    tensor->owned = true;
    for (int64_t i = 0; i < tensor->count; i++) {
        uint32_t length;
        if (size < sizeof length)
            return problem_say(problem, "input \"%.64s\": its binary data ends early", tensor->name);
        memcpy(&length, bytes, sizeof length);
        bytes += sizeof length;
        size -= sizeof length;
        if (length > size)
            return problem_say(problem, "input \"%.64s\": element %" PRId64 " is longer than its binary data",
                               tensor->name, i);
        strings[i] = (OnnxfuseString){bytes, length};
        bytes += length;
        size -= length;
    }
    return size == 0 ||
           problem_say(problem, "input \"%.64s\": its binary data has more elements than its shape", tensor->name);
}

bool tensor_write_strings(Text *out, const OnnxfuseString *strings, int64_t count, Problem *problem) {
    for (int64_t i = 0; i < count; i++) {
        if (strings[i].size > UINT32_MAX) return problem_say(problem, "element %" PRId64 " is longer than 4 GiB", i);
        uint32_t length = (uint32_t)strings[i].size;
        text_append(out, (const char *)&length, sizeof length);
        text_append(out, strings[i].data, length);
    }
    return true;
}
