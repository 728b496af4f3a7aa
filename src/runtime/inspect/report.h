/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as counts, text and JSON. */
#ifndef ONNXFUSE_RUNTIME_INSPECT_REPORT_H
#define ONNXFUSE_RUNTIME_INSPECT_REPORT_H

#include "runtime/plan/plan.h"
#include "runtime/run/profile.h"

/* Counts for statistics, nested plans included. */
typedef struct PlanCounts {
    int regions, anchors, host_steps, copies, steps, kernels; /* host_steps: all others */
    int on_device;                                            /* steps on a device of its own memory */
    int64_t weight_bytes;
} PlanCounts;
void plan_count(const Plan *plan, PlanCounts *counts);
void plan_print(Text *text, const Plan *plan, int indent);
/* A line on whether runs are replayed, or why not; nothing on devices that never do. */
void plan_print_recorded(Text *text, const Plan *plan);
/* A line on what is kept from the forward to the backward steps of a graph that has such. */
void plan_print_saved(Text *text, const Plan *plan);
/* A line for each graph so large that an order of its steps was not tried. */
void plan_print_orders(Text *text, const Plan *plan);

/* The plan as JSON (report.c), for `inspect` and pages; profile may be NULL. */
void plan_report(Text *text, const Plan *plan, Profile *profile);

#endif
