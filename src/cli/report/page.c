/* SPDX-License-Identifier: Apache-2.0 */
/* One self-contained page: the template (report.html, built into the program) with the data of a session in the place
 * of @DATA@.
 *
 * Names in the data are as hostile as the model: they stand in a script element of type application/json, in which no
 * '<' remains, and the template's script puts them into the page as text alone. */
#include "cli/report/page.h"
#include "cli/report/roofline.h"
#include "cli/base/session.h"
#include "cli/value/show.h"
#include "cli/base/utf8.h"

#include <stdlib.h>
#include <string.h>

extern const char page_template[]; /* made of report.html by the build */
static const char mark[] = "@DATA@";

/* As many runs as fit into the time, but at least a few; the first ones, which are slower, are not among them. */
enum { WARM_RUNS = 2, LEAST_RUNS = 5, MOST_RUNS = 200, ENOUGH_MS = 400 };
enum { MOST_ASSEMBLY = 4 << 20 }; /* bytes of listings in a page */

typedef struct Page {
    const Options *options;
    OnnxfuseSession *session;
    Inputs inputs;
    cJSON *data;
} Page;

/* --- runs --- */
static Problem *run_once(Page *p) {
    int count = onnxfuse_session_output_count(p->session);
    OnnxfuseValue **outputs = calloc((size_t)count + 1, sizeof *outputs);
    if (!outputs) return problem_out_of_memory();
    Problem *found =
        inputs_explain(&p->inputs, problem_from(onnxfuse_session_run(p->session, p->inputs.values, outputs)));
    for (int o = 0; o < count; o++) onnxfuse_value_free(outputs[o]);
    free(outputs);
    return found;
}

static Problem *profile_runs(Page *p) {
    for (int i = 0; i < WARM_RUNS; i++) TRY(run_once(p));
    onnxfuse_session_profile(p->session, true);
    double begin = now_ms();
    for (int i = 0; i < MOST_RUNS && (i < LEAST_RUNS || now_ms() - begin < ENOUGH_MS); i++) TRY(run_once(p));
    onnxfuse_session_profile(p->session, false);
    return NULL;
}

/* --- data --- */
static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static Problem *add_report(Page *p) {
    char *text;
    TRY(problem_from(onnxfuse_session_report_json(p->session, &text)));
    cJSON *report = cJSON_Parse(text);
    onnxfuse_free(text);
    if (!report) return problem_out_of_memory();
    cJSON_AddItemToObject(p->data, "report", report);
    return NULL;
}

/* What a GPU can do is not measured: its fastest steps stand for it. */
static Problem *add_machine(Page *p) {
    cJSON *roofline, *machine = cJSON_AddObjectToObject(p->data, "machine");
    TRY(roofline_take(p->session, NULL, false, &roofline));
    double bytes = 0, operations = 0;
    roofline_limits(roofline, &bytes, &operations);
    cJSON_AddNumberToObject(machine, "bytes_per_second", bytes);
    cJSON_AddNumberToObject(machine, "operations_per_second", operations);
    cJSON_AddStringToObject(machine, "how",
                            bytes > 0
                                ? "The machine's limits are remembered from when they were measured (onnxfuse "
                                  "bench --measure-machine does so anew): copying from memory to memory, and "
                                  "float32 multiply-adds on registers, which steps of int8 and bf16 may be ahead of."
                                : "The lines are what the fastest of these steps reach, since the limits "
                                  "of this device were not measured.");
    cJSON_Delete(roofline);
    return NULL;
}

static bool is_stage(const char *name) {
    for (const char *const *stage = onnxfuse_inspect_stages(); *stage; stage++)
        if (strcmp(*stage, name) == 0) return true;
    return false;
}

static Problem *inspect_text(const Page *p, const char *stage, char **out_text) {
    OnnxfuseOptions options = session_options(p->options);
    return problem_from(onnxfuse_inspect(p->options->arguments.items[0], &options, stage, "text", out_text));
}

/* A compiled model has none to tell. */
static void add_policy(Page *p) {
    char *text;
    Problem *found = is_stage("policy") ? inspect_text(p, "policy", &text) : problem_told(ONNXFUSE_USAGE);
    if (!found) {
        cJSON_AddStringToObject(p->data, "policy", text);
        onnxfuse_free(text);
    }
    problem_free(found);
}

/* The listing comes as "# kernel K, first for ..." and the kernel's lines, K rising by one, as in the report. */
static void split_listing(char *text, cJSON *kernels) {
    char heading[40];
    snprintf(heading, sizeof heading, "# kernel %d,", 0);
    char *at = strncmp(text, heading, strlen(heading)) == 0 ? text : NULL;
    for (int k = 1; at; k++) {
        snprintf(heading, sizeof heading, "\n# kernel %d,", k);
        char *body = strchr(at + 1, '\n'), *next = strstr(at + 1, heading);
        if (next) *next = 0;
        cJSON_AddItemToArray(kernels, cJSON_CreateString(body && (!next || body < next) ? body + 1 : ""));
        at = next ? next + 1 : NULL;
    }
}

/* Left out where it cannot be had: on a GPU, without the compiler, and where it would make the page too large. */
static void add_assembly(Page *p) {
    char *text;
    if (strcmp(onnxfuse_session_device_name(p->session), "cpu") != 0) return;
    Problem *found = inspect_text(p, "assembly", &text);
    if (!found) {
        if (strlen(text) < MOST_ASSEMBLY) split_listing(text, cJSON_AddArrayToObject(p->data, "assembly"));
        onnxfuse_free(text);
    }
    problem_free(found);
}

/* --- the file
 * ----------------------------------------------------------------------------------------------------------
 */
/* '<', '>' and '&' can stand in strings alone, and so can bytes that are no UTF-8, which become U+FFFD. */
static void write_json(FILE *out, const char *json) {
    const unsigned char *at = (const unsigned char *)json, *end = at + strlen(json);
    while (at < end) {
        const unsigned char *begin = at;
        uint32_t point = utf8_decode(&at, end);
        if (point == 0xfffd || point == '<' || point == '>' || point == '&')
            fprintf(out, "\\u%04x", (unsigned)point);
        else
            fwrite(begin, 1, (size_t)(at - begin), out);
    }
}

static Problem *write_page(const Page *p, const char *path) {
    const char *place = strstr(page_template, mark);
    char *json = cJSON_PrintUnformatted(p->data);
    if (!json || !place) {
        cJSON_free(json);
        return problem_out_of_memory();
    }
    NewFile file;
    Problem *found = file_begin(path, &file);
    if (!found) {
        fwrite(page_template, 1, (size_t)(place - page_template), file.stream);
        write_json(file.stream, json);
        fputs(place + sizeof mark - 1, file.stream);
        found = file_finish(&file);
    }
    cJSON_free(json);
    return found;
}

static Problem *make_page(Page *p, const char *path) {
    p->data = cJSON_CreateObject();
    if (!p->data) return problem_out_of_memory();
    cJSON_AddStringToObject(p->data, "model", file_name(p->options->arguments.items[0]));
    TRY(profile_runs(p));
    TRY(add_report(p));
    TRY(add_machine(p));
    add_policy(p);
    add_assembly(p);
    return write_page(p, path);
}

static void tell_json(const Page *p, const char *path) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "html", path);
    inputs_json(&p->inputs, object);
    print_json(object);
}

Problem *page_write(const InputOptions *options, const char *path) {
    Page p = {.options = &options->common};
    InputRequest request;
    TRY(request_read(options, &request));
    Problem *found = session_open(p.options, p.options->arguments.items[0], &p.session);
    if (!found) found = inputs_make(p.session, &request, NULL, &p.inputs);
    if (!found) found = make_page(&p, path);
    if (!found && options->common.json) tell_json(&p, path);
    cJSON_Delete(p.data);
    inputs_free(&p.inputs);
    onnxfuse_session_close(p.session);
    request_free(&request);
    return found;
}
