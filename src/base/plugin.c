/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and opening plug-ins. One stands beside the file that this code is in (a build folder, a program with its own
 * copy), in the folder "onnxfuse" there (an installed library), or where this build is installed (a program that was
 * linked with the static library). Nothing is ever looked for in the current directory or along a search path: what is
 * opened is code. */
#include "base/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/plain.h"
#include "base/plugin_places.h"

static const char *const installed[] = {PLUGIN_PLACES};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what plugin.c keeps in each Plugin */

static char *format(const char *text, ...) __attribute__((format(printf, 1, 2)));
static char *format(const char *text, ...) {
    va_list arguments;
    va_start(arguments, text);
    int size = plain_vprint(NULL, 0, text, arguments);
    va_end(arguments);
    char *made = size < 0 ? NULL : malloc((size_t)size + 1);
    if (!made) return NULL;
    va_start(arguments, text);
    plain_vprint(made, (size_t)size + 1, text, arguments);
    va_end(arguments);
    return made;
}

/* The folder of the file that this code was mapped from, as the kernel knows it: neither a program's name nor the path
 * that a library was opened by need be absolute, and the current directory may have changed since. */
static bool own_folder(char *folder, size_t room) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps) return false;
    uintptr_t here = (uintptr_t)own_folder;
    char line[4096 + 128];
    bool found = false;
    while (!found && fgets(line, sizeof line, maps)) {
        unsigned long long begin, end;
        char *path = strchr(line, '/'), *slash = path ? strrchr(path, '/') : NULL;
        if (!path || sscanf(line, "%llx-%llx", &begin, &end) != 2 || here < begin || here >= end) continue;
        *slash = 0;
        found = (size_t)snprintf(folder, room, "%s", path) < room;
        break;
    }
    fclose(maps);
    return found;
}

static bool take_if_there(Plugin *plugin, const char *folder, const char *below) {
    struct stat file;
    char *path = format("%s%s/%s", folder, below, plugin->file);
    if (!path) plugin->found = false; /* for lack of memory: it is looked for again */
    if (!path || stat(path, &file) || !S_ISREG(file.st_mode)) {
        free(path);
        return false;
    }
    plugin->found = true;
    plugin->path = path;
    plugin->identity =
        format("%lld.%lld.%ld", (long long)file.st_size, (long long)file.st_mtim.tv_sec, (long)file.st_mtim.tv_nsec);
    return true;
}

static void find(Plugin *plugin) {
    char own[4096];
    if (plugin->found) return;
    plugin->found = true;
    bool known = own_folder(own, sizeof own);
    if (known && (take_if_there(plugin, own, "") || take_if_there(plugin, own, "/onnxfuse"))) return;
    for (size_t i = 0; i < sizeof installed / sizeof *installed; i++)
        if (take_if_there(plugin, installed[i], "")) return;
    free(plugin->places);
    plugin->places = known ? format("neither in %s, nor in %s", own, installed[0]) : format("not in %s", installed[0]);
}

void *library_open(const char *path, char *why, size_t room) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library) return library;
    const char *message = dlerror();
    if (why) snprintf(why, room, "%s", message ? message : path);
    (void)dlerror(); /* the C library keeps the message until it is asked again */
    return NULL;
}

static Status open_found(Plugin *plugin) {
    if (!plugin->path)
        return status_error(STATUS_FAULT, "%s: %s is %s; install it (on Debian: the package %s)", plugin->without,
                            plugin->file, plugin->places ? plugin->places : "nowhere", plugin->package);
    char why[512];
    void *library = library_open(plugin->path, why, sizeof why);
    if (!library)
        return status_error(STATUS_FAULT, "%s: %s; install what it needs (on Debian the package %s brings it along)",
                            plugin->without, why, plugin->package);
    PluginEntry entry = (PluginEntry)(uintptr_t)dlsym(library, plugin->entry);
    const void *table = entry ? entry() : NULL;
    if (!table || *(const int *)table != plugin->abi) {
        dlclose(library);
        return status_error(STATUS_FAULT,
                            "%s: %s is of another version than the onnxfuse library; install the two together",
                            plugin->without, plugin->path);
    }
    plugin->table = table;
    return NULL;
}

Status plugin_open(Plugin *plugin, const void **out_table) {
    Status status = NULL;
    pthread_mutex_lock(&lock);
    if (!plugin->table) {
        find(plugin);
        status = open_found(plugin);
    }
    *out_table = plugin->table;
    pthread_mutex_unlock(&lock);
    return status;
}

const char *plugin_identity(Plugin *plugin) {
    pthread_mutex_lock(&lock);
    find(plugin);
    const char *identity = plugin->identity ? plugin->identity : "any";
    pthread_mutex_unlock(&lock);
    return identity;
}
