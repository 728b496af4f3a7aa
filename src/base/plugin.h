/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins: shared libraries of ours that are opened when something first needs them, so that the library itself needs
 * none of the libraries that they stand on. */
#ifndef ONNXFUSE_BASE_PLUGIN_H
#define ONNXFUSE_BASE_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

/* One a plug-in, static, in the file that uses it. */
typedef struct Plugin {
    const char *file;    /* "libonnxfuse-NAME.so" */
    const char *entry;   /* its one symbol: a function without parameters that returns its table, a PluginEntry */
    const char *package; /* Debian's package that brings it and what it needs */
    const char *without; /* what cannot be done without it; begins the messages */
    int abi;             /* must be the table's first member, an int */
    /* Of plugin.c alone; zero at first. */
    bool found;
    char *path, *places, *identity;
    const void *table;
} Plugin;

typedef const void *(*PluginEntry)(void);

/* Opens it on the first call; STATUS_FAULT that says where it was looked for or what it lacks. Safe to call from several
 * threads at once. */
Status plugin_open(Plugin *plugin, const void **out_table);
/* Any shared library, its symbols for whoever asks its handle alone; NULL: it cannot be opened, and `why` (NULL, or `room` bytes) says why. */
void *library_open(const char *path, char *why, size_t room);
/* Changes with the plug-in's build, for cache keys; the plug-in is found, not opened. "any" when it is nowhere. */
const char *plugin_identity(Plugin *plugin);

#endif
