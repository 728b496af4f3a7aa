/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of a model as JSON, for commands that say something over it. */
#ifndef ONNXFUSE_CLI_COMMAND_POLICY_FILE_H
#define ONNXFUSE_CLI_COMMAND_POLICY_FILE_H

#include <cjson/cJSON.h>

#include "cli/base/problem.h"

/* The policy that a session of the model would read by itself: of the file `given`, else of MODEL.policy.json beside the model, else an
 * empty object. Its check.inputs is as seen from here, not from the file's folder. *out_policy is NULL where the file holds no JSON
 * object, which the library says better when it reads the file; the caller frees it. */
Problem *policy_of(const char *given, const char *model, cJSON **out_policy);

#endif
