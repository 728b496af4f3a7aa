/* Finding and opening the LLVM plug-in. It stands beside the file that this code is in (a build folder, a program with
 * its own copy), in the folder "onnxfuse" there (an installed library), or where this build is installed (a program
 * that was linked with the static library). Nothing is ever looked for in the current directory or along a search path:
 * what is opened is code. */
#include "codegen/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include "codegen/plugin_places.h"

static struct {
    pthread_once_t found, opened;
    char path[4096];   /* "" when it is nowhere */
    char beside[4096]; /* where it would be expected, for messages */
    char identity[64]; /* changes with the plug-in's build */
    const LlvmPlugin *plugin;
    char failure[9216];
} llvm = {.found = PTHREAD_ONCE_INIT, .opened = PTHREAD_ONCE_INIT};

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

static bool take_if_there(const char *folder) {
    struct stat file;
    char path[sizeof llvm.path];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, PLUGIN_FILE) >= sizeof path) return false;
    if (stat(path, &file) || !S_ISREG(file.st_mode)) return false;
    strcpy(llvm.path, path);
    snprintf(llvm.identity, sizeof llvm.identity, "%lld.%lld.%ld", (long long)file.st_size,
             (long long)file.st_mtim.tv_sec, (long)file.st_mtim.tv_nsec);
    return true;
}

static void find_plugin(void) {
    static const char *const installed[] = {PLUGIN_PLACES};
    char own[3072], below[3200];
    strcpy(llvm.identity, "any");
    if (own_folder(own, sizeof own)) {
        snprintf(llvm.beside, sizeof llvm.beside, "%s, ", own);
        snprintf(below, sizeof below, "%s/onnxfuse", own);
        if (take_if_there(own) || take_if_there(below)) return;
    }
    for (size_t i = 0; i < sizeof installed / sizeof *installed; i++)
        if (take_if_there(installed[i])) return;
}

static void open_plugin(void) {
    pthread_once(&llvm.found, find_plugin);
    if (!llvm.path[0]) {
        snprintf(llvm.failure, sizeof llvm.failure,
                 "kernels cannot be compiled: %s is neither in %snor in %s; install it (on Debian: the package "
                 "libonnxfuse-llvm)",
                 PLUGIN_FILE, llvm.beside, (const char *const[]){PLUGIN_PLACES}[0]);
        return;
    }
    void *library = dlopen(llvm.path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(llvm.failure, sizeof llvm.failure,
                 "kernels cannot be compiled: %s; install LLVM's shared library (on Debian: libllvm%d)", why,
                 PLUGIN_LLVM);
        return;
    }
    LlvmPluginEntry entry = (LlvmPluginEntry)(uintptr_t)dlsym(library, PLUGIN_ENTRY);
    const LlvmPlugin *plugin = entry ? entry() : NULL;
    if (plugin && plugin->abi == PLUGIN_ABI)
        llvm.plugin = plugin;
    else
        snprintf(llvm.failure, sizeof llvm.failure,
                 "%s is of another version than the onnxfuse library; install the two together", llvm.path);
}

Status plugin_get(const LlvmPlugin **out_plugin) {
    pthread_once(&llvm.opened, open_plugin);
    *out_plugin = llvm.plugin;
    return llvm.plugin ? NULL : status_error(STATUS_FAULT, "%s", llvm.failure);
}

const char *plugin_identity(void) {
    pthread_once(&llvm.found, find_plugin);
    return llvm.identity;
}
