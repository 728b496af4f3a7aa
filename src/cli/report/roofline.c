/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/report/roofline.h"

#include <stdlib.h>
#include <string.h>
#include "cli/value/show.h"

/* --- values --- */
static const cJSON *member(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* -1: there is none. */
static double number(const cJSON *object, const char *name) {
    const cJSON *item = member(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : -1;
}

static const char *string(const cJSON *object, const char *name) {
    const char *value = cJSON_GetStringValue(member(object, name));
    return value ? value : "";
}

typedef struct Cell {
    char text[24];
} Cell;

/* Three digits and a unit of thousands: "4.72 MB". */
static Cell scaled(double value, const char *unit) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    int p = 0;
    Cell cell = {"-"};
    if (!(value >= 0)) return cell;
    while (value >= 999.5 && p < 5) value /= 1000, p++;
    snprintf(cell.text, sizeof cell.text, "%.*f %s%s",
             p == 0 || value >= 99.95 ? 0
             : value >= 9.995         ? 1
                                      : 2,
             value, prefixes[p], unit);
    return cell;
}

static Cell microseconds(double us) {
    Cell cell = {"-"};
    if (us >= 0) snprintf(cell.text, sizeof cell.text, "%.*f", us < 9.995 ? 2 : us < 999.5 ? 1 : 0, us);
    return cell;
}

static Cell percent(double share) {
    Cell cell = {"-"};
    if (share >= 0) snprintf(cell.text, sizeof cell.text, "%.1f%%", 100 * share);
    return cell;
}

/* "603 Mflop", with the type where it is another than f32: "1.2 Mop int". */
static Cell work(const cJSON *row) {
    const cJSON *types = member(row, "work_by_type"), *most = NULL, *type;
    Cell cell = {"-"};
    cJSON_ArrayForEach(type, types) if (!most || type->valuedouble > most->valuedouble) most = type;
    if (!most) return cell;
    bool integer = strncmp(most->string, "int", 3) == 0, plain = strcmp(most->string, "f32") == 0;
    Cell amount = scaled(number(row, "work"), integer ? "op" : "flop");
    snprintf(cell.text, sizeof cell.text, "%.15s%s%.4s", amount.text, plain ? "" : " ", plain ? "" : most->string);
    return cell;
}

static double rate(double amount, double us) { return amount > 0 && us > 0 ? amount / us * 1e6 : -1; }

/* --- names --- */
enum { WHAT = 30, NODE = 32 };

static void print_what(FILE *out, const cJSON *row) {
    char what[128];
    const char *how = string(row, "how");
    snprintf(what, sizeof what, "%s %s%s%s%s", string(row, "kind"), string(row, "name"), *how ? " (" : "", how,
             *how ? ")" : "");
    what[WHAT] = 0;
    fprintf(out, "%6s  ", string(row, "step"));
    print_safe(out, what); /* names of custom operators are the model's */
    fprintf(out, "%*s", WHAT - (int)strlen(what), "");
}

/* The end of a long name tells more than its begin; a model's names are as hostile as the model. */
static void print_node(FILE *out, const cJSON *row) {
    const char *name = string(row, "node");
    size_t length = strlen(name);
    double nodes = number(row, "nodes");
    fputs("  ", out);
    if (length > NODE) fputs("...", out);
    print_safe(out, length > NODE ? name + length - (NODE - 3) : name);
    if (nodes > 1) fprintf(out, " and %.0f more", nodes - 1);
    fputc('\n', out);
}

/* --- the measure --- */
/* By more than a clock's doubt, and not for a moment alone. arithmetic: where that is the limit; data that is in a cache already comes faster
 * than memory gives it. */
static bool is_beyond_limit(const cJSON *roofline, bool arithmetic) {
    const cJSON *row;
    cJSON_ArrayForEach(row, member(roofline, "steps")) {
        if (arithmetic && *string(row, "bound") == 'm') continue;
        if (number(row, "of_limit") > 1.15 && number(row, "time_us") > 5) return true;
    }
    return false;
}

static Problem *take(OnnxfuseSession *session, const OnnxfuseValue *const *inputs, bool measure_again,
                     cJSON **out_roofline) {
    char *text;
    TRY(problem_from(onnxfuse_session_roofline_json(session, inputs, measure_again, &text)));
    *out_roofline = cJSON_Parse(text);
    onnxfuse_free(text);
    return *out_roofline ? NULL : problem_out_of_memory();
}

Problem *roofline_take(OnnxfuseSession *session, const OnnxfuseValue *const *inputs, bool measure_again,
                       cJSON **out_roofline) {
    TRY(take(session, inputs, measure_again, out_roofline));
    if (measure_again || !is_beyond_limit(*out_roofline, true)) return NULL;
    cJSON_Delete(*out_roofline); /* other programs were at work when the machine was measured */
    *out_roofline = NULL;
    return take(session, inputs, true, out_roofline);
}

/* --- the machine --- */
void roofline_print_machine(FILE *out, const cJSON *roofline) {
    const cJSON *machine = member(roofline, "machine"), *bandwidths = member(machine, "bandwidths"),
                *first = cJSON_GetArrayItem(bandwidths, 0),
                *last = cJSON_GetArrayItem(bandwidths, cJSON_GetArraySize(bandwidths) - 1),
                *products = member(machine, "products");
    if (!machine) {
        fputs("the limits of this device were not measured\n", out);
        return;
    }
    fputs("machine        ", out);
    print_safe(out, string(machine, "name"));
    fprintf(
        out,
        ": from memory %s (read) and %s (read and write), from caches up to %s; %s in f32, %s in bf16, %s in int8\n",
        scaled(number(last, "read"), "B/s").text, scaled(number(last, "copy"), "B/s").text,
        scaled(number(first, "read"), "B/s").text, scaled(number(products, "f32"), "flop/s").text,
        scaled(number(products, "bf16"), "flop/s").text, scaled(number(products, "int8"), "op/s").text);
    double scale = number(roofline, "scale");
    if (scale > 1)
        fprintf(out, "               counted %g times, for %g threads\n", scale, number(roofline, "threads"));
}

void roofline_limits(const cJSON *roofline, double *out_bytes, double *out_operations) {
    const cJSON *machine = member(roofline, "machine"), *bandwidths = member(machine, "bandwidths"),
                *last = cJSON_GetArrayItem(bandwidths, cJSON_GetArraySize(bandwidths) - 1);
    double scale = number(roofline, "scale");
    *out_bytes = machine ? scale * number(last, "copy") : 0;
    *out_operations = machine ? scale * number(member(machine, "products"), "f32") : 0;
}

/* --- times --- */
static int by_time(const void *a, const void *b) {
    double x = number(*(const cJSON *const *)a, "time_us"), y = number(*(const cJSON *const *)b, "time_us");
    return (x < y) - (x > y);
}

/* The rows, most time first; in new memory. */
static const cJSON **sorted_rows(const cJSON *roofline, int *out_count) {
    const cJSON *steps = member(roofline, "steps"), *row;
    const cJSON **rows = calloc((size_t)cJSON_GetArraySize(steps) + 1, sizeof *rows);
    *out_count = 0;
    if (!rows) return NULL;
    cJSON_ArrayForEach(row, steps) rows[(*out_count)++] = row;
    qsort(rows, (size_t)*out_count, sizeof *rows, by_time);
    return rows;
}

static void print_time_cells(FILE *out, const cJSON *row, double all, double limit) {
    double us = number(row, "time_us");
    const char *bound = string(row, "bound");
    fprintf(out, " %9s %6s %9s %10s %14s %13s %7s %s", microseconds(us).text, percent(all > 0 ? us / all : -1).text,
            scaled(number(row, "bytes"), "B").text, scaled(rate(number(row, "bytes"), us), "B/s").text, work(row).text,
            scaled(rate(number(row, "work"), us), "op/s").text, percent(limit).text,
            *bound == 'm' ? "bytes"
            : *bound      ? "work "
                          : "     ");
}

void roofline_print_times(FILE *out, cJSON *roofline, int top) {
    int count;
    const cJSON **rows = sorted_rows(roofline, &count), *totals = member(roofline, "totals");
    double all = number(totals, "time_us"), rest = 0, least = number(totals, "least_us");
    if (!rows) return;
    if (top > count) top = count;
    fprintf(out, "\n%6s  %-*s %9s %6s %9s %10s %14s %13s %7s %-5s\n", "step", WHAT, "what", "us", "share", "moves", "",
            "work", "", "limit", "by");
    for (int i = 0; i < top; i++) {
        print_what(out, rows[i]);
        print_time_cells(out, rows[i], all, number(rows[i], "of_limit"));
        print_node(out, rows[i]);
    }
    for (int i = top; i < count; i++) rest += number(rows[i], "time_us");
    if (top < count)
        fprintf(out, "%6s  %-*d %9s %6s\n", "others", WHAT, count - top, microseconds(rest).text,
                percent(all > 0 ? rest / all : -1).text);
    fprintf(out, "%6s  %-*d", "all", WHAT, count);
    print_time_cells(out, totals, all, least > 0 && all > 0 ? least / all : -1);
    fputc('\n', out);
    if (is_beyond_limit(roofline, false))
        fputs("a step is faster than the limit: other programs are at work while the machine is measured, perhaps; "
              "--measure-machine does so anew\n",
              out);
    free(rows);
}

/* A step's members as they are, but for its time, which is in milliseconds there. */
static cJSON *json_row(const cJSON *row) {
    cJSON *copy = cJSON_Duplicate(row, true);
    json_add_measure(copy, "time_ms", number(row, "time_us") / 1e3);
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "time_us");
    return copy;
}

void roofline_add_to(cJSON *object, cJSON *roofline, int top) {
    int count;
    const cJSON **rows = sorted_rows(roofline, &count);
    double rest = 0, least = number(member(roofline, "totals"), "least_us");
    cJSON *list = cJSON_AddArrayToObject(object, "steps");
    for (int i = 0; rows && i < count; i++) {
        if (i < top)
            cJSON_AddItemToArray(list, json_row(rows[i]));
        else
            rest += number(rows[i], "time_us");
    }
    free(rows);
    json_add_measure(object, "other_steps_ms", rest / 1e3);
    if (least >= 0) json_add_measure(object, "least_ms", least / 1e3);
    cJSON *machine = cJSON_DetachItemFromObjectCaseSensitive(roofline, "machine");
    if (machine) cJSON_AddItemToObject(object, "machine", machine);
}

/* --- estimates --- */
static Cell slices(const cJSON *row) {
    Cell cell = {"-"};
    double count = number(row, "slices");
    if (count >= 0) snprintf(cell.text, sizeof cell.text, "%.0f", count);
    return cell;
}

static void print_least_cells(FILE *out, const cJSON *row) {
    const char *bound = string(row, "bound");
    fprintf(out, " %9s %14s %9s %-5s %7s %7s %7s", scaled(number(row, "bytes"), "B").text, work(row).text,
            microseconds(number(row, "least_us")).text,
            *bound == 'm' ? "bytes"
            : *bound      ? "work"
                          : "",
            slices(row).text, percent(number(row, "serial")).text, percent(number(row, "idle")).text);
}

static void print_totals(FILE *out, const cJSON *totals, double threads) {
    double least = number(totals, "least_us"), unknown = number(totals, "unknown");
    fprintf(out, "%6s  %-*.0f", "all", WHAT, number(totals, "steps"));
    print_least_cells(out, totals);
    fputc('\n', out);
    if (least >= 0)
        fprintf(out,
                "at least %s us, %s of it by bytes; with %.0f threads that wait for the one with most to do %s us\n",
                microseconds(least).text, percent(least > 0 ? number(totals, "least_memory_us") / least : 0).text,
                threads, microseconds(number(totals, "waiting_us")).text);
    if (unknown > 0) fprintf(out, "%.0f steps are not counted: their sizes are known in a run alone\n", unknown);
}

void roofline_print_least(FILE *out, const cJSON *roofline) {
    const cJSON *row;
    fprintf(out, "%6s  %-*s %9s %14s %9s %-5s %7s %7s %7s\n", "step", WHAT, "what", "moves", "work", "least us", "by",
            "slices", "serial", "idle");
    cJSON_ArrayForEach(row, member(roofline, "steps")) {
        print_what(out, row);
        print_least_cells(out, row);
        print_node(out, row);
    }
    print_totals(out, member(roofline, "totals"), number(roofline, "threads"));
}
