/* SPDX-License-Identifier: Apache-2.0 */
/* Lowers models and writes them in the standard's operators. Standard input: a line "MODEL<tab>WRITTEN" each; standard output: the
 * line of each, "written", "not lowered", or "refused: " and why. */
#include <stdio.h>
#include <stdlib.h>

#include "autodiff/autodiff.h"
#include "importer/importer.h"
#include "lowering/ops.h"
#include "optimize/standard/standard.h"

static Status write_file(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    bool written = file && fwrite(bytes, 1, size, file) == size;
    if (file && fclose(file) != 0) written = false;
    return written ? NULL : status_error(STATUS_INVALID, "%s cannot be written", path);
}

static Status rewrite(Graph *graph, const char *out_path, bool *out_lowered) {
    jmp_buf guard;
    Policy usual = policy_default(), policy = standard_policy(&usual);
    Graph *written;
    void *bytes;
    size_t size;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(graph->arena, &guard);
    graph_name_results(graph);
    TRY(prepare_gradients(graph, &policy));
    TRY(lower_graph(graph, &policy));
    TRY(expand_gradients(graph, &policy));
    *out_lowered = true;
    TRY(standard_form(graph, &written));
    TRY(graph_verify(written, LEVEL_ONNX));
    TRY(export_model(written, graph->arena, &bytes, &size));
    return write_file(out_path, bytes, size);
}

static void report(const char *path, const char *out_path) {
    Graph *graph = NULL;
    bool lowered = false;
    Status status = import_file(path, NULL, &graph);
    if (!status) status = rewrite(graph, out_path, &lowered);
    if (!status)
        puts("written");
    else if (!lowered)
        puts("not lowered");
    else
        printf("refused: %s\n", status_message(status));
    fflush(stdout);
    status_free(status);
    graph_destroy(graph);
}

int main(void) {
    char line[8192];
    while (fgets(line, sizeof line, stdin)) {
        char *tab = strchr(line, '\t');
        if (!tab) return EXIT_FAILURE;
        *tab = 0;
        tab[1 + strcspn(tab + 1, "\n")] = 0;
        report(line, tab + 1);
    }
    return EXIT_SUCCESS;
}
