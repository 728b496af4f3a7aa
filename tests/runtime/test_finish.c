/* SPDX-License-Identifier: Apache-2.0 */
/* Which pieces of a block an epilogue's kernel is called on: every element of the block is finished with the elements of
 * an operand that belong to it, wherever the block lies, and nothing else is written. */
#include <criterion/criterion.h>
#include <math.h>
#include "kernel_eval.h"
#include "runtime/device/cpu/finish.h"

enum { MOST_ROWS = 4, MOST_ELEMENTS = 256 };

static const Kernel *running;

static void run(void *const *buffers, const int64_t *params, int64_t begin, int64_t end, void *scratch) {
    (void)scratch;
    cr_assert(begin == 0 && end == params[0]);
    kernel_eval(running, buffers, params);
}

static const struct {
    const char *must, *result, *operand; /* sizes */
    int64_t starts[MOST_ROWS];           /* the number of the element with which each row of the block begins */
    int rows;
    int64_t column, count, stride; /* of the block: from which element of its rows, how many; of the raw results */
} cases[] = {
    {"whole rows with a bias", "6, 8", "8", {0, 8, 16}, 3, 0, 8, 8},
    {"some columns with a bias", "6, 8", "8", {8, 16, 24}, 3, 2, 3, 5},
    {"rows that do not follow each other, with a bias", "6, 8", "8", {0, 16, 40}, 3, 1, 6, 6},
    {"rows backwards", "6, 8", "8", {40, 32, 8}, 3, 0, 8, 8},
    {"whole rows with a number a row", "6, 8", "6, 1", {16, 24, 32}, 3, 0, 8, 8},
    {"some columns with a number a row", "6, 8", "6, 1", {0, 24, 32, 40}, 4, 5, 3, 8},
    {"whole rows with a residual", "6, 8", "6, 8", {24, 32}, 2, 0, 8, 8},
    {"some columns with a residual", "6, 8", "6, 8", {0, 32}, 2, 4, 4, 16},
    {"whole rows with one number for all", "6, 8", "1", {8, 16}, 2, 0, 8, 8},
    {"rows over the end of what repeats", "2, 3, 8", "3, 8", {8, 16, 24, 32}, 4, 0, 8, 8},
    {"rows over the end of what each batch has", "2, 3, 8", "2, 1, 8", {8, 16, 24, 32}, 4, 0, 8, 9},
    {"some columns of what each batch has", "2, 3, 8", "2, 1, 8", {8, 16, 24, 32}, 4, 3, 4, 4},
    {"rows over the end of a number a batch", "2, 3, 8", "2, 1, 1", {8, 16, 24, 32}, 4, 0, 8, 8},
    {"a row that is several of the result", "4, 2, 4", "4", {0, 8, 16}, 3, 0, 8, 8},
    {"a row that is several, with a number each", "4, 2, 4", "4, 1, 1", {8, 16}, 2, 0, 8, 8},
    {"a row that is several, with a residual", "4, 2, 4", "4, 2, 4", {8, 16}, 2, 0, 8, 8},
    {"a part of a row that is several", "4, 2, 4", "4", {0, 8, 16}, 3, 4, 4, 4},
    {"a part that ends within one", "4, 2, 4", "4", {0, 8, 16}, 3, 2, 5, 5},
    {"a part that ends within one, with a residual", "4, 2, 4", "4, 2, 4", {0, 16}, 2, 3, 5, 7},
    {"short rows far apart with one number", "5, 16", "1", {64, 0, 32}, 3, 3, 2, 2},
    {"short rows far apart with a bias", "5, 16", "16", {64, 0, 32}, 3, 3, 2, 2},
    {"a single column", "7, 1", "1", {0, 1, 4}, 3, 0, 1, 1},
    {"a single column with a number a row", "7, 1", "7, 1", {0, 1, 2, 6}, 4, 0, 1, 1},
};

static int64_t operand_index(const Tensor *result, const Tensor *operand, int64_t element) {
    int64_t at = 0, step = 1;
    for (int i = 1; i <= result->rank; i++) {
        int64_t place = element % result->dims[result->rank - i];
        element /= result->dims[result->rank - i];
        if (i > operand->rank) continue;
        if (operand->dims[operand->rank - i] > 1) at += place * step;
        step *= operand->dims[operand->rank - i];
    }
    return at;
}

static Tensor *tensor_of(Arena *arena, const Value *v) {
    int64_t dims[MAX_RANK];
    for (int i = 0; i < v->rank; i++) dims[i] = dim_eval(v->dims[i], NULL);
    return tensor_new(arena, v->dtype, v->rank, dims);
}

Test(finish, each_element_of_a_block_once) {
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        Arena *arena = arena_create(0);
        Graph *graph;
        RegionKernel region;
        Finish f;
        Target target = {0};
        Status status = graph_parse(
            arena_format(arena,
                         "graph (x: f32[*], w: f32[*], b: f32[%s]) -> (y) {\ny: f32[%s] = anchor matmul x, w, b graph "
                         "(r: f32[%s], b: f32[%s]) -> (v) {\nv: f32[%s] = add r, b\n}\n}\n",
                         cases[n].operand, cases[n].result, cases[n].result, cases[n].operand, cases[n].result),
            &graph);
        if (!status) status = codegen_tile(arena, graph->last, NULL, DT_F32, &target, &region);
        cr_assert(!status, "%s: %s", cases[n].must, status_message(status));
        running = region.kernel;

        Tensor *result = tensor_of(arena, graph->last->outputs[0]), *operand = tensor_of(arena, graph->last->inputs[2]);
        float *got = result->data, *b = operand->data, raw[MOST_ELEMENTS], wanted[MOST_ELEMENTS];
        int64_t count = tensor_count(result);
        for (int64_t i = 0; i < tensor_count(operand); i++) b[i] = (float)(i + 1) * 1000;
        for (int64_t i = 0; i < count; i++) got[i] = wanted[i] = -1;
        for (int i = 0; i < MOST_ELEMENTS; i++) raw[i] = NAN;
        bool bound = finish_bind(&f, run, &region, sizeof *raw, (const Tensor *[]){NULL, NULL, operand}, result);
        cr_assert(bound, "%s", cases[n].must);

        void *rows[MOST_ROWS];
        for (int r = 0; r < cases[n].rows; r++) {
            rows[r] = (void *)((uintptr_t)f.base + (uintptr_t)cases[n].starts[r] * sizeof *raw);
            for (int64_t i = 0; i < cases[n].count; i++) {
                int64_t element = cases[n].starts[r] + cases[n].column + i;
                raw[r * cases[n].stride + i] = (float)element;
                wanted[element] = (float)element + b[operand_index(result, operand, element)];
            }
        }
        finish_rows(&f, rows, cases[n].rows, cases[n].column, cases[n].count, raw, cases[n].stride);
        for (int64_t i = 0; i < count; i++)
            cr_expect(got[i] == wanted[i], "%s: element %lld is %g, not %g", cases[n].must, (long long)i,
                      (double)got[i], (double)wanted[i]);
        graph_destroy(graph);
        arena_destroy(arena);
    }
}
