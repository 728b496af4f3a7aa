/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a model beside the machine's limits, as tables (onnxfuse_session_roofline_json has the numbers). */
#ifndef ONNXFUSE_CLI_REPORT_ROOFLINE_H
#define ONNXFUSE_CLI_REPORT_ROOFLINE_H

#include <cjson/cJSON.h>
#include "cli/base/problem.h"

/* inputs NULL: of the runs that were profiled. Freed by the caller. */
Problem *roofline_take(OnnxfuseSession *session, const OnnxfuseValue *const *inputs, bool measure_again,
                       cJSON **out_roofline);
/* The steps by the time that they took, most first: the first `top` of them, the others as one. */
void roofline_print_times(FILE *out, cJSON *roofline, int top);
/* All steps in their order, with the least time that they can take and how threads share them. */
void roofline_print_least(FILE *out, const cJSON *roofline);
/* The members of bench's --json: "steps" (the first `top`), "other_steps_ms", "least_ms", "machine". Takes what it needs
 * out of the roofline. */
void roofline_add_to(cJSON *object, cJSON *roofline, int top);
/* From memory, read and written, and f32 products, a second, on all threads; 0: not measured. */
void roofline_limits(const cJSON *roofline, double *out_bytes, double *out_operations);
/* One line on what was measured. */
void roofline_print_machine(FILE *out, const cJSON *roofline);

#endif
