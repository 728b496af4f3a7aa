/* SPDX-License-Identifier: Apache-2.0 */
/* What a session's options ask of the provider. */
#ifndef ONNXFUSE_EP_OPTIONS_H
#define ONNXFUSE_EP_OPTIONS_H

#include "ep/common.h"

typedef struct EpOptions {
    Scratch scratch; /* of all strings */
    OnnxfuseOptions session;
    int log_level; /* -1: not asked for */
    struct {
        bool enable, embed;
        const char *path;   /* of the model that the runtime will write; "": beside the original, NAME_ctx.onnx */
        const char *prefix; /* of the nodes' names */
    } context;
} EpOptions;

/* Checks them as well: by opening a session on a model of one node. */
OrtStatus *options_read(const Ort *ort, const OrtSessionOptions *given, EpOptions *out_options);
void options_free(EpOptions *options);

#endif
