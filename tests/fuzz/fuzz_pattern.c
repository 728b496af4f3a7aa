/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as a pattern: it is refused, or it is sought at every node of a graph that has something of everything, and
 * what is found is of the graph. */
#include <stdint.h>
#include <stdlib.h>

#include "passes/pattern/pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ARENA_LIMIT = 256 << 20 };

static const char text[] =
    "opset 17\n"
    "graph (x: f32[b, 8], w: f32[8], c: bool[]) -> (y, z) {\n"
    "two = constant f32[] 2\neps = constant f32[1] {0.001}\naxes = constant i64[2] {0, -1}\n"
    "q = onnx Pow@17 x, two\nm = onnx ReduceMean@17 q {axes = [-1], keepdims = 1}\ns = onnx Add@17 m, eps\n"
    "r = onnx Sqrt@17 s\ni = onnx Reciprocal@17 r\nn = onnx Mul@17 x, i\ny = onnx Mul@17 n, w\n"
    "a = onnx Add@17 y, y\nd = onnx Add@17 a, a\ne = onnx Add@17 d, a\nf = onnx Mul@17 e, e\n"
    "g, h = onnx Split@17 f {axis = 0}\nk = onnx ReduceSum@17 h, axes\nl = onnx Clip@17 g, _, two\n"
    "o = onnx \"com.microsoft\" Gelu@1 l\np = onnx Cast@17 o {to = 10}\n"
    "t = onnx If@17 c, k captures 1 graph (u: f32[1, 1]) -> (v) {\nv = onnx Relu@17 u\n} graph (u: f32[1, 1]) -> (u) "
    "{\n}\n"
    "j = onnx Softmax@17 d {axis = 1}\nz = onnx Concat@17 j, t, p {axis = 0}\n}\n";

static Graph *graph;

static void seek(const Pattern *pattern, Arena *arena) {
    FOR_EACH_NODE(node, graph) {
        PatternMatch match;
        if (!pattern_match(pattern, arena, node, &match)) continue;
        if (match.nodes[match.node_count - 1] != node) abort();
        for (int i = 0; i < match.node_count; i++)
            if (match.nodes[i]->graph != graph) abort();
        for (int i = 0; i < pattern_output_count(pattern); i++)
            if (match.outputs[i] && match.outputs[i]->producer->graph != graph) abort();
        for (int i = 0; i < pattern_capture_count(pattern); i++)
            if (!pattern_capture_name(pattern, i)) abort();
    }
}

static void check(Arena *arena, const uint8_t *data, size_t size) {
    jmp_buf guard;
    if (setjmp(guard)) return;
    arena_guard(arena, &guard);
    const Pattern *pattern;
    Status status = pattern_parse(arena, arena_string_n(arena, (const char *)data, size), "pattern", &pattern);
    if (!status) seek(pattern, arena);
    status_free(status);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!graph && graph_parse(text, &graph)) abort();
    Arena *arena = arena_create(ARENA_LIMIT);
    if (arena) check(arena, data, size);
    arena_destroy(arena);
    return 0;
}
