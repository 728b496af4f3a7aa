/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine can do at most, measured in a tenth of a second: the lines of a roofline. */
#ifndef ONNXFUSE_CLI_REPORT_MACHINE_H
#define ONNXFUSE_CLI_REPORT_MACHINE_H

typedef struct MachineLimits {
    double bytes_per_second; /* a[i] = b[i] + s * c[i] over arrays larger than the caches; 0: could not be measured */
    double operations_per_second; /* float32 multiply-adds, two operations each, on registers; likewise */
    int threads;
} MachineLimits;

MachineLimits machine_measure(int threads);

#endif
