/* onnxfuse inspect --html: a page about a plan, with the times of some profiled runs. */
#ifndef ONNXFUSE_CLI_REPORT_PAGE_H
#define ONNXFUSE_CLI_REPORT_PAGE_H

#include "cli/base/flags.h"

/* inputs, shapes: as `onnxfuse run` takes them. The file appears whole or not at all. */
Problem *page_write(const Options *options, const TextList *inputs, const TextList *shapes, const char *path);

#endif
