/* SPDX-License-Identifier: Apache-2.0 */
/* How long the steps of runs took. */
#ifndef ONNXFUSE_RUNTIME_RUN_PROFILE_H
#define ONNXFUSE_RUNTIME_RUN_PROFILE_H

#include "runtime/plan/cost.h"

typedef struct Profile Profile;

Profile *profile_create(void);
void profile_destroy(Profile *profile);
double profile_now(void); /* microseconds */
void profile_add(Profile *profile, const Step *step, const char *name, const char *how, double start, double end,
                 const Cost *cost);
Status profile_json(Profile *profile, Text *text);
typedef struct StepTime {
    const Step *step;
    int count;                   /* how often it ran */
    double least, median, total; /* microseconds */
    Cost cost;                   /* of the latest of these runs */
} StepTime;
/* Of all steps that were recorded, by address; how many. */
int profile_times(Profile *profile, Arena *arena, StepTime **out_times);
/* Among these; NULL: the step was not recorded. */
const StepTime *profile_time_of(const StepTime *times, int count, const Step *step);

#endif
