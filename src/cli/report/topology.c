/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a session's report. */
#include "cli/report/topology.h"

#include <stdlib.h>
#include <string.h>

static const char *string_of(const cJSON *object, const char *key) {
    const char *string = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return string ? string : "";
}

/* --- nodes --- */
static void count_nodes(const cJSON *nodes, int *count, int *outputs) {
    const cJSON *node, *graph;
    cJSON_ArrayForEach(node, nodes) {
        ++*count;
        *outputs += cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(node, "outputs"));
        cJSON_ArrayForEach(graph, cJSON_GetObjectItemCaseSensitive(node, "graphs")) count_nodes(graph, count, outputs);
    }
}

static void add_nodes(Topology *t, const cJSON *nodes, int outermost) {
    const cJSON *node, *graph, *output;
    int number = 0;
    cJSON_ArrayForEach(node, nodes) {
        int place = outermost < 0 ? number++ : outermost;
        cJSON_ArrayForEach(graph, cJSON_GetObjectItemCaseSensitive(node, "graphs")) add_nodes(t, graph, place);
        cJSON_ArrayForEach(output, cJSON_GetObjectItemCaseSensitive(node, "outputs")) {
            if (cJSON_IsString(output)) t->makers[t->maker_count++] = (Maker){output->valuestring, t->count};
        }
        t->nodes[t->count] = (ModelNode){string_of(node, "name"),
                                         string_of(node, "op"),
                                         string_of(node, "domain"),
                                         cJSON_GetObjectItemCaseSensitive(node, "inputs"),
                                         place,
                                         t->count};
        t->count++;
    }
}

static int by_value(const void *a, const void *b) {
    return strcmp(((const Maker *)a)->value, ((const Maker *)b)->value);
}

Problem *topology_read(OnnxfuseSession *session, Topology *out_topology) {
    Topology t = {0};
    char *text;
    TRY(problem_from(onnxfuse_session_report_json(session, &text)));
    t.report = cJSON_Parse(text);
    onnxfuse_free(text);
    if (!t.report) return problem_out_of_memory();
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(t.report, "model");
    int nodes = 0, outputs = 0;
    count_nodes(model, &nodes, &outputs);
    t.nodes = calloc((size_t)nodes + 1, sizeof *t.nodes);
    t.makers = calloc((size_t)outputs + 1, sizeof *t.makers);
    if (!t.nodes || !t.makers) {
        topology_free(&t);
        return problem_out_of_memory();
    }
    add_nodes(&t, model, -1);
    if (t.maker_count) qsort(t.makers, (size_t)t.maker_count, sizeof *t.makers, by_value);
    *out_topology = t;
    return NULL;
}

void topology_free(Topology *t) {
    cJSON_Delete(t->report);
    free(t->nodes);
    free(t->makers);
    *t = (Topology){0};
}

const ModelNode *topology_maker(const Topology *t, const char *value) {
    Maker key = {value, 0};
    const Maker *maker = t->maker_count ? bsearch(&key, t->makers, (size_t)t->maker_count, sizeof key, by_value) : NULL;
    return maker ? &t->nodes[maker->node] : NULL;
}

/* --- steps --- */
static bool has_string(const cJSON *array, const char *string) {
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        if (cJSON_IsString(item) && strcmp(item->valuestring, string) == 0) return true;
    }
    return false;
}

static bool has_number(const cJSON *array, int number) {
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        if (cJSON_IsNumber(item) && item->valueint == number) return true;
    }
    return false;
}

/* A value that is a view is stored by who stores what it views. */
static int stored_in(const cJSON *plan, const char *value) {
    const cJSON *buffer;
    cJSON_ArrayForEach(buffer, cJSON_GetObjectItemCaseSensitive(plan, "buffers")) {
        if (!has_string(cJSON_GetObjectItemCaseSensitive(buffer, "values"), value)) continue;
        const cJSON *root = cJSON_GetObjectItemCaseSensitive(buffer, "root");
        return root ? root->valueint : cJSON_GetObjectItemCaseSensitive(buffer, "buffer")->valueint;
    }
    return -1;
}

static const cJSON *find_step(const cJSON *plan, const char *value, int *out_step) {
    int buffer = stored_in(plan, value), number = 0;
    const cJSON *step, *nested;
    cJSON_ArrayForEach(step, cJSON_GetObjectItemCaseSensitive(plan, "steps")) {
        if (buffer >= 0 && has_number(cJSON_GetObjectItemCaseSensitive(step, "outputs"), buffer)) {
            *out_step = number;
            return plan;
        }
        cJSON_ArrayForEach(nested, cJSON_GetObjectItemCaseSensitive(step, "plans")) {
            const cJSON *found = find_step(nested, value, out_step);
            if (found) return found;
        }
        number++;
    }
    return NULL;
}

const cJSON *topology_step(const Topology *t, const char *value, int *out_step) {
    return find_step(cJSON_GetObjectItemCaseSensitive(t->report, "plan"), value, out_step);
}

enum { MOST_NAMES = 6 };

static void print_step(FILE *out, const cJSON *step) {
    const cJSON *nodes = cJSON_GetObjectItemCaseSensitive(step, "nodes"), *node;
    const char *how = string_of(step, "how");
    int printed = 0, count = cJSON_GetArraySize(nodes);
    fprintf(out, "%s %s%s%s%s on %s: ", string_of(step, "kind"), string_of(step, "name"), *how ? " (" : "", how,
            *how ? ")" : "", string_of(step, "device"));
    cJSON_ArrayForEach(node, nodes) {
        if (printed == MOST_NAMES) break;
        fprintf(out, "%s%s", printed++ ? ", " : "", cJSON_GetStringValue(node));
    }
    if (count > MOST_NAMES) fprintf(out, " and %d more", count - MOST_NAMES);
}

char *topology_step_text(const cJSON *plan, int number) {
    const cJSON *step = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(plan, "steps"), number);
    char *text = NULL;
    size_t size;
    FILE *out = step ? open_memstream(&text, &size) : NULL;
    if (!out) return NULL;
    fprintf(out, "%d ", number);
    print_step(out, step);
    fclose(out);
    return text;
}
