/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a session as the common flags say. */
#ifndef ONNXFUSE_CLI_SESSION_H
#define ONNXFUSE_CLI_SESSION_H

#include "cli/base/flags.h"

/* Shows progress on standard error when that is a terminal and opening takes long. */
Problem *session_open(const Options *options, const char *model, OnnxfuseSession **out_session);
OnnxfuseOptions session_options(const Options *options);
double now_ms(void); /* of a clock that only moves forward */

#endif
