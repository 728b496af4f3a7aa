/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse inspect --html: a page about a plan, with the times of some profiled runs. */
#ifndef ONNXFUSE_CLI_REPORT_PAGE_H
#define ONNXFUSE_CLI_REPORT_PAGE_H

#include "cli/value/inputs.h"

/* The file appears whole or not at all. With --json the last line of standard output tells sizes that were assumed. */
Problem *page_write(const InputOptions *options, const char *path);

#endif
