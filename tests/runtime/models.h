/* SPDX-License-Identifier: Apache-2.0 */
/* Models and values from text, for tests through the public interface. */
#ifndef ONNXFUSE_TESTS_RUNTIME_MODELS_H
#define ONNXFUSE_TESTS_RUNTIME_MODELS_H

#include "onnxfuse.h"

enum { MOST_VALUES = 8 };

/* The bytes of the model that a graph of ONNX nodes (graph/text/print.c) stands for; opset 21 unless the text says more.
 * free() them. */
void *model_bytes(const char *text, size_t *out_size);
/* options NULL: the defaults without a cache on disk. */
OnnxfuseStatus open_text(const char *text, const OnnxfuseOptions *options, OnnxfuseSession **out_session);
OnnxfuseSession *must_open(const char *text);

/* "f32[2] {1, 2}"; "map i64[1] {7} to f32[1] {1}"; "seq f32[1] {1} | f32[2] {1, 2}", maps likewise; "none". */
OnnxfuseValue *value_from(const char *text);
/* The same form of a value, so that they can be compared: value_text(value_from(t)). free() it. */
char *value_text(const OnnxfuseValue *value);

/* Runs a session; texts NULL where an input is left out or an output is not compared. What differs, or NULL; free() it.
 */
char *run_and_compare(OnnxfuseSession *session, const char *const *inputs, const char *const *outputs);

#endif
