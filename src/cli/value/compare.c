/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing values. */
#include "cli/value/compare.h"
#include "cli/value/show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* bfloat16 has 8 bits of precision: two units in the last place, since recorded outputs were rounded at other
 * places. */
static const double bfloat16_rtol = 0x1p-6;

/* All that is no floating-point number: integers, bools, strings. */
static bool is_discrete(OnnxfuseDType dtype) {
    switch (dtype) {
    case ONNXFUSE_BOOL:
    case ONNXFUSE_STRING:
    case ONNXFUSE_INT8:
    case ONNXFUSE_INT16:
    case ONNXFUSE_INT32:
    case ONNXFUSE_INT64:
    case ONNXFUSE_UINT8:
    case ONNXFUSE_UINT16:
    case ONNXFUSE_UINT32:
    case ONNXFUSE_UINT64:
    case ONNXFUSE_INT4:
    case ONNXFUSE_UINT4:
    case ONNXFUSE_INT2:
    case ONNXFUSE_UINT2: return true;
    default: return false;
    }
}

/* What the bounds are for elements of this type. */
static Tolerance tolerance_of(OnnxfuseDType dtype, Tolerance t) {
    if (dtype == ONNXFUSE_BFLOAT16) return (Tolerance){fmax(t.rtol, bfloat16_rtol), t.atol};
    if (is_discrete(dtype)) return (Tolerance){0, dtype == ONNXFUSE_BOOL ? 0 : t.step};
    return (Tolerance){t.rtol, t.atol};
}

static bool is_close(double got, double expected, Tolerance t) {
    if (isnan(got) || isnan(expected)) return isnan(got) && isnan(expected);
    if (isinf(got) || isinf(expected)) return got == expected;
    return fabs(got - expected) <= t.atol + t.rtol * fabs(expected);
}

/* Of complex numbers the distance counts, unless a part is no finite number. */
static bool is_close_complex(const double got[2], const double expected[2], Tolerance t) {
    if (!isfinite(got[0]) || !isfinite(got[1]) || !isfinite(expected[0]) || !isfinite(expected[1]))
        return is_close(got[0], expected[0], t) && is_close(got[1], expected[1], t);
    double distance = hypot(got[0] - expected[0], got[1] - expected[1]);
    return distance <= t.atol + t.rtol * hypot(expected[0], expected[1]);
}

static bool same_string(const OnnxfuseString *a, const OnnxfuseString *b) {
    return a->size == b->size && (!a->size || memcmp(a->data, b->data, a->size) == 0);
}

static bool same_element(const OnnxfuseValue *got, const OnnxfuseValue *expected, int64_t i, Tolerance t) {
    OnnxfuseDType dtype = onnxfuse_value_dtype(got);
    const char *a = onnxfuse_value_data(got), *b = onnxfuse_value_data(expected);
    size_t size = onnxfuse_dtype_size(dtype);
    if (dtype == ONNXFUSE_STRING)
        return same_string((const OnnxfuseString *)(const void *)a + i, (const OnnxfuseString *)(const void *)b + i);
    if (memcmp(a + (size_t)i * size, b + (size_t)i * size, size) == 0) return true;
    if (dtype == ONNXFUSE_COMPLEX64) {
        const float *x = (const float *)(const void *)a + 2 * i, *y = (const float *)(const void *)b + 2 * i;
        return is_close_complex((double[]){x[0], x[1]}, (double[]){y[0], y[1]}, t);
    }
    if (dtype == ONNXFUSE_COMPLEX128)
        return is_close_complex((const double *)(const void *)a + 2 * i, (const double *)(const void *)b + 2 * i, t);
    return is_close(onnxfuse_value_element(got, i), onnxfuse_value_element(expected, i), t);
}

/* --- saying what differs
 * ---------------------------------------------------------------------------------------------- */
typedef struct Report {
    char *text;
    size_t size;
    FILE *out; /* NULL when there is no memory */
} Report;

static void report_begin(Report *report) {
    *report = (Report){0};
    report->out = open_memstream(&report->text, &report->size);
}

static Problem *report_end(Report *report) {
    if (!report->out) return problem_out_of_memory();
    fclose(report->out);
    Problem *found = problem(ONNXFUSE_DIFFERENT, "%s", report->text ? report->text : "");
    free(report->text);
    return found;
}

void print_index(FILE *out, const OnnxfuseValue *tensor, int64_t index) {
    int rank = onnxfuse_value_rank(tensor);
    const int64_t *dims = onnxfuse_value_dims(tensor);
    int64_t at[ONNXFUSE_MAX_RANK];
    for (int d = rank - 1; d >= 0; d--) at[d] = index % dims[d], index /= dims[d];
    fputc('[', out);
    for (int d = 0; d < rank; d++) fprintf(out, "%s%lld", d ? ", " : "", (long long)at[d]);
    fputc(']', out);
}

static Problem *report_element(const OnnxfuseValue *got, const OnnxfuseValue *expected, int64_t index,
                               int64_t different) {
    Report report;
    report_begin(&report);
    if (report.out) {
        print_index(report.out, got, index);
        fputs(": got ", report.out);
        print_element(report.out, got, index);
        fputs(", expected ", report.out);
        print_element(report.out, expected, index);
        fprintf(report.out, " (%lld of %lld elements differ)", (long long)different,
                (long long)onnxfuse_value_count(got));
    }
    return report_end(&report);
}

void print_kind(FILE *out, const OnnxfuseValue *value) {
    OnnxfuseKind kind = onnxfuse_value_kind(value);
    if (kind == ONNXFUSE_TENSOR) {
        fputs(onnxfuse_dtype_name(onnxfuse_value_dtype(value)), out);
        print_shape(out, value);
    } else {
        fprintf(out,
                kind == ONNXFUSE_SEQUENCE ? "a sequence of %lld"
                : kind == ONNXFUSE_MAP    ? "a map of %lld"
                                          : "nothing",
                (long long)onnxfuse_value_count(value));
    }
}

static Problem *report_kinds(const OnnxfuseValue *got, const OnnxfuseValue *expected) {
    Report report;
    report_begin(&report);
    if (report.out) {
        fputs("got ", report.out);
        print_kind(report.out, got);
        fputs(", expected ", report.out);
        print_kind(report.out, expected);
    }
    return report_end(&report);
}

/* --- comparing
 * --------------------------------------------------------------------------------------------------------------- */
static bool same_type(const OnnxfuseValue *got, const OnnxfuseValue *expected) {
    int rank = onnxfuse_value_rank(got);
    return onnxfuse_value_dtype(got) == onnxfuse_value_dtype(expected) && rank == onnxfuse_value_rank(expected) &&
           (!rank ||
            memcmp(onnxfuse_value_dims(got), onnxfuse_value_dims(expected), sizeof(int64_t) * (size_t)rank) == 0);
}

static Problem *compare_tensors(const OnnxfuseValue *got, const OnnxfuseValue *expected, Tolerance t, bool types_only) {
    if (!same_type(got, expected)) return report_kinds(got, expected);
    if (types_only) return NULL;
    t = tolerance_of(onnxfuse_value_dtype(got), t);
    int64_t first = -1, different = 0;
    for (int64_t i = 0; i < onnxfuse_value_count(got); i++) {
        if (same_element(got, expected, i, t)) continue;
        if (first < 0) first = i;
        different++;
    }
    return different ? report_element(got, expected, first, different) : NULL;
}

static const Tolerance exactly = {0};

static Problem *compare_maps(const OnnxfuseValue *got, const OnnxfuseValue *expected, Tolerance t, bool types_only) {
    const OnnxfuseValue *parts[] = {onnxfuse_value_keys(got), onnxfuse_value_keys(expected), onnxfuse_value_values(got),
                                    onnxfuse_value_values(expected)};
    for (int i = 0; i < 4; i++)
        if (!parts[i]) return problem_out_of_memory();
    TRY(problem_at(compare_tensors(parts[0], parts[1], exactly, types_only), "keys"));
    return problem_at(compare_tensors(parts[2], parts[3], t, types_only), "values");
}

Problem *compare_values(const OnnxfuseValue *got, const OnnxfuseValue *expected, Tolerance tolerance, bool types_only) {
    OnnxfuseKind kind = onnxfuse_value_kind(got);
    if (kind != onnxfuse_value_kind(expected)) return report_kinds(got, expected);
    if (kind == ONNXFUSE_TENSOR) return compare_tensors(got, expected, tolerance, types_only);
    if (kind == ONNXFUSE_MAP) return compare_maps(got, expected, tolerance, types_only);
    if (onnxfuse_value_count(got) != onnxfuse_value_count(expected))
        return types_only ? NULL : report_kinds(got, expected);
    for (int i = 0; i < onnxfuse_value_count(got); i++) {
        const OnnxfuseValue *a = onnxfuse_value_item(got, i), *b = onnxfuse_value_item(expected, i);
        if (!a || !b) return problem_out_of_memory();
        TRY(problem_at(compare_values(a, b, tolerance, types_only), "item %d", i));
    }
    return NULL;
}

/* --- which rule judged
 * ------------------------------------------------------------------------------------------------ */
unsigned compare_rules(const OnnxfuseValue *expected, Tolerance tolerance, bool types_only) {
    unsigned rules = 0;
    if (types_only) return RULE_TYPE;
    if (onnxfuse_value_kind(expected) == ONNXFUSE_TENSOR) {
        OnnxfuseDType dtype = onnxfuse_value_dtype(expected);
        Tolerance t = tolerance_of(dtype, tolerance);
        if (t.rtol > tolerance.rtol) return RULE_BFLOAT16;
        if (!is_discrete(dtype)) return RULE_CLOSE;
        return t.atol > 0 && dtype != ONNXFUSE_STRING ? RULE_STEP : RULE_EXACT;
    }
    if (onnxfuse_value_kind(expected) == ONNXFUSE_MAP) {
        const OnnxfuseValue *values = onnxfuse_value_values(expected);
        return RULE_EXACT | (values ? compare_rules(values, tolerance, false) : 0);
    }
    for (int i = 0; i < onnxfuse_value_count(expected); i++) {
        const OnnxfuseValue *item = onnxfuse_value_item(expected, i);
        if (item) rules |= compare_rules(item, tolerance, false);
    }
    return rules ? rules : RULE_EXACT; /* nothing, or an empty sequence */
}

void print_rules(FILE *out, unsigned rules, Tolerance t) {
    const char *before = "";
    if (rules & RULE_CLOSE) fprintf(out, "within %g + %g |expected|", t.atol, t.rtol), before = ", ";
    if (rules & RULE_BFLOAT16)
        fprintf(out, "%sbfloat16 within %g + %g |expected|", before, t.atol, fmax(t.rtol, bfloat16_rtol)),
            before = ", ";
    if (rules & RULE_EXACT) fprintf(out, "%sexact", before), before = ", ";
    if (rules & RULE_STEP) fprintf(out, "%sintegers within %g", before, t.step), before = ", ";
    if (rules & RULE_TYPE) fprintf(out, "%stype and shape alone", before);
}

/* --- measuring --- */
/* A float's bits as an integer in the order of the numbers: neighbours differ by one. */
static bool ordered(OnnxfuseDType dtype, const void *data, int64_t i, int64_t *out_place) {
    uint64_t bits, sign;
    switch (dtype) {
    case ONNXFUSE_FLOAT32: bits = ((const uint32_t *)data)[i], sign = 1u << 31; break;
    case ONNXFUSE_FLOAT64: bits = ((const uint64_t *)data)[i], sign = (uint64_t)1 << 63; break;
    case ONNXFUSE_FLOAT16:
    case ONNXFUSE_BFLOAT16: bits = ((const uint16_t *)data)[i], sign = 1u << 15; break;
    default: return false;
    }
    *out_place = bits & sign ? -(int64_t)(bits ^ sign) : (int64_t)bits;
    return true;
}

static double ulps_between(const OnnxfuseValue *got, const OnnxfuseValue *expected, int64_t i) {
    int64_t a, b;
    OnnxfuseDType dtype = onnxfuse_value_dtype(got);
    if (!isfinite(onnxfuse_value_element(got, i)) || !isfinite(onnxfuse_value_element(expected, i))) return NAN;
    if (!ordered(dtype, onnxfuse_value_data(got), i, &a) || !ordered(dtype, onnxfuse_value_data(expected), i, &b))
        return NAN;
    return fabs((double)a - (double)b);
}

static bool is_complex(OnnxfuseDType dtype) { return dtype == ONNXFUSE_COMPLEX64 || dtype == ONNXFUSE_COMPLEX128; }

/* A number as a point: complex ones have two parts. */
static void parts_of(const OnnxfuseValue *tensor, int64_t i, double out_parts[2]) {
    OnnxfuseDType dtype = onnxfuse_value_dtype(tensor);
    const void *data = onnxfuse_value_data(tensor);
    out_parts[1] = 0;
    if (dtype == ONNXFUSE_COMPLEX64)
        out_parts[0] = ((const float *)data)[2 * i], out_parts[1] = ((const float *)data)[2 * i + 1];
    else if (dtype == ONNXFUSE_COMPLEX128)
        out_parts[0] = ((const double *)data)[2 * i], out_parts[1] = ((const double *)data)[2 * i + 1];
    else
        out_parts[0] = onnxfuse_value_element(tensor, i);
}

/* How far element i is from where it should be, and in relation to its bound. */
static double distance_of(const Difference *d, int64_t i, Tolerance t, double *out_excess) {
    double a[2], b[2];
    *out_excess = INFINITY;
    if (onnxfuse_value_dtype(d->got) == ONNXFUSE_STRING) return INFINITY;
    parts_of(d->got, i, a);
    parts_of(d->expected, i, b);
    double distance = hypot(a[0] - b[0], a[1] - b[1]), bound = t.atol + t.rtol * hypot(b[0], b[1]);
    if (!isfinite(distance) || !isfinite(bound)) return INFINITY;
    *out_excess = bound > 0 ? distance / bound : distance > 0 ? INFINITY : 0;
    return distance;
}

/* The bits are looked at first: nearly all elements of two runs are equal to the last. */
static void measure_elements(Difference *d, Tolerance t) {
    size_t size = onnxfuse_dtype_size(onnxfuse_value_dtype(d->got));
    bool plain = onnxfuse_value_dtype(d->got) != ONNXFUSE_STRING;
    const char *a = onnxfuse_value_data(d->got), *b = onnxfuse_value_data(d->expected);
    for (int64_t i = 0; i < d->count; i++) {
        if (plain && memcmp(a + (size_t)i * size, b + (size_t)i * size, size) == 0) continue;
        bool close = same_element(d->got, d->expected, i, t);
        double excess, distance = distance_of(d, i, t, &excess);
        if (close && !isfinite(distance)) continue; /* both not a number, or the same infinity; strings */
        d->different += !close;
        if (d->worst >= 0 && excess <= d->excess) continue;
        d->worst = i;
        d->distance = distance;
        d->excess = excess;
    }
}

static Difference measure_tensors(const OnnxfuseValue *got, const OnnxfuseValue *expected, Tolerance t) {
    Difference d = {.got = got, .expected = expected, .item = -1, .worst = -1, .ulps = NAN};
    OnnxfuseDType dtype = onnxfuse_value_dtype(got);
    if (!same_type(got, expected)) return d;
    t = tolerance_of(dtype, t);
    d.comparable = true;
    d.count = onnxfuse_value_count(got);
    measure_elements(&d, t);
    if (d.worst >= 0 && dtype != ONNXFUSE_STRING && !is_complex(dtype)) d.ulps = ulps_between(got, expected, d.worst);
    return d;
}

Difference compare_measure(const OnnxfuseValue *got, const OnnxfuseValue *expected, Tolerance tolerance) {
    OnnxfuseKind kind = onnxfuse_value_kind(got);
    Difference worst = {.got = got, .expected = expected, .item = -1, .worst = -1, .ulps = NAN};
    if (kind != onnxfuse_value_kind(expected) || onnxfuse_value_count(got) != onnxfuse_value_count(expected))
        return worst;
    if (kind == ONNXFUSE_TENSOR) return measure_tensors(got, expected, tolerance);
    if (kind == ONNXFUSE_MAP) {
        const OnnxfuseValue *keys = onnxfuse_value_keys(got), *others = onnxfuse_value_keys(expected);
        if (!keys || !others) return worst;
        Difference d = measure_tensors(keys, others, exactly);
        if (!d.comparable || d.different) return d;
        return measure_tensors(onnxfuse_value_values(got), onnxfuse_value_values(expected), tolerance);
    }
    worst.comparable = true;
    for (int i = 0; i < onnxfuse_value_count(got); i++) {
        const OnnxfuseValue *a = onnxfuse_value_item(got, i), *b = onnxfuse_value_item(expected, i);
        Difference d = a && b ? compare_measure(a, b, tolerance) : (Difference){.got = got, .expected = expected};
        if (d.item < 0) d.item = i;
        if (!d.comparable || d.different) return d;
        if (d.worst >= 0 && (worst.worst < 0 || d.excess > worst.excess)) worst = d;
    }
    return worst;
}

double compare_scale(const OnnxfuseValue *tensor) {
    OnnxfuseDType dtype = onnxfuse_value_dtype(tensor);
    bool real = dtype == ONNXFUSE_FLOAT32 || dtype == ONNXFUSE_FLOAT64 || dtype == ONNXFUSE_FLOAT16 ||
                dtype == ONNXFUSE_BFLOAT16 || is_complex(dtype);
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; real && i < onnxfuse_value_count(tensor); i++) {
        double parts[2];
        parts_of(tensor, i, parts);
        double square = parts[0] * parts[0] + parts[1] * parts[1];
        if (!isfinite(square)) continue;
        sum += square;
        count++;
    }
    return count ? sqrt(sum / (double)count) : 0;
}
