/* SPDX-License-Identifier: Apache-2.0 */
/* See loader.h. A library is one row of a table: the names of its file by CUDA version, where it may lie, and the
 * functions it must have. */
#include "runtime/device/cuda/loader.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/plugin.h"

enum { MOST_PATH = 4096, MOST_FUNCTIONS = 64, MOST_SYMBOL = 48 };

typedef struct LibraryFile {
    int cuda_major; /* 0: of any */
    const char *name;
} LibraryFile;

typedef struct LibraryKind {
    const LibraryFile *files;   /* the newest first; NULL name at the end */
    const char *const *folders; /* patterns (glob), NULL at the end */
    const char *wheel;          /* its folder in Python's package `nvidia`; NULL: no wheel has it */
    const char *companions;     /* pattern of files beside it that it opens by name later; NULL: none */
    const char *symbols;        /* names of MOST_SYMBOL characters each, in the order of the table's fields */
    int count;                  /* of symbols */
    const char *missing;        /* what to say when it is not found */
    const char *old;            /* and when it lacks a function */
} LibraryKind;

#define SYMBOL_ROW(result, field, symbol, parameters) #symbol,
static const char driver_symbols[][MOST_SYMBOL] = {CUDA_DRIVER_FUNCTIONS(SYMBOL_ROW)};
static const char nvrtc_symbols[][MOST_SYMBOL] = {CUDA_NVRTC_FUNCTIONS(SYMBOL_ROW)};
static const char blas_symbols[][MOST_SYMBOL] = {CUDA_BLAS_FUNCTIONS(SYMBOL_ROW)};
#undef SYMBOL_ROW
#define COUNT(rows) ((int)(sizeof(rows) / sizeof *(rows)))
_Static_assert(sizeof(CudaDriver) == COUNT(driver_symbols) * sizeof(void *) && COUNT(driver_symbols) <= MOST_FUNCTIONS,
               "a field a symbol");
_Static_assert(sizeof(CudaNvrtc) == COUNT(nvrtc_symbols) * sizeof(void *), "a field a symbol");
_Static_assert(sizeof(CudaBlasApi) == COUNT(blas_symbols) * sizeof(void *), "a field a symbol");

static const char *const driver_folders[] = {"/usr/lib/wsl/lib",     "/usr/lib/*-linux-gnu/nvidia/current",
                                             "/usr/lib/*-linux-gnu", "/usr/lib64",
                                             "/usr/lib64/nvidia",    NULL};
static const char *const toolkit_folders[] = {"/usr/local/cuda/lib64",
                                              "/usr/local/cuda-*/lib64",
                                              "/usr/local/cuda/targets/*-linux/lib",
                                              "/usr/local/cuda-*/targets/*-linux/lib",
                                              "/opt/cuda/lib64",
                                              "/usr/lib/*-linux-gnu",
                                              NULL};

static const LibraryKind driver_kind = {
    .files = (const LibraryFile[]){{0, "libcuda.so.1"}, {0}},
    .folders = driver_folders,
    .symbols = driver_symbols[0],
    .count = COUNT(driver_symbols),
    .missing = "no NVIDIA driver: libcuda.so.1 was not found",
    .old = "the NVIDIA driver is too old: one for CUDA 11.4 or newer is needed",
};
static const LibraryKind nvrtc_kind = {
    .files =
        (const LibraryFile[]){
            {14, "libnvrtc.so.14"}, {13, "libnvrtc.so.13"}, {12, "libnvrtc.so.12"}, {11, "libnvrtc.so.11.2"}, {0}},
    .folders = toolkit_folders,
    .wheel = "cuda_nvrtc",
    .companions = "libnvrtc-builtins.so.*",
    .symbols = nvrtc_symbols[0],
    .count = COUNT(nvrtc_symbols),
    .missing = "NVRTC was not found: install the CUDA toolkit or `pip install nvidia-cuda-nvrtc`",
    .old = "NVRTC is too old: install the CUDA toolkit 11.4 or newer, or `pip install nvidia-cuda-nvrtc`",
};
static const LibraryKind blas_kind = {
    .files = (const LibraryFile[]){{14, "libcublasLt.so.14"},
                                   {13, "libcublasLt.so.13"},
                                   {12, "libcublasLt.so.12"},
                                   {11, "libcublasLt.so.11"},
                                   {0}},
    .folders = toolkit_folders,
    .wheel = "cublas",
    .symbols = blas_symbols[0],
    .count = COUNT(blas_symbols),
    .missing = "cuBLASLt was not found: install the CUDA toolkit or `pip install nvidia-cublas`",
    .old = "cuBLASLt is too old: install the CUDA toolkit 11.4 or newer, or `pip install nvidia-cublas`",
};

/* --- opening one file --- */

typedef union Function {
    void *symbol;
    void (*function)(void);
} Function;

typedef struct Search {
    const LibraryKind *kind;
    Function *table;   /* filled when opened */
    char lacking[256]; /* a file that was there but could not be used, and why */
    bool old;
} Search;

static bool try_file(Search *search, const char *path) {
    bool whole = strchr(path, '/') != NULL;
    void *library = library_open(path, whole ? search->lacking : NULL, sizeof search->lacking);
    if (!library) return false;
    for (int i = 0; i < search->kind->count; i++) {
        const char *symbol = search->kind->symbols + (size_t)i * MOST_SYMBOL;
        search->table[i].symbol = dlsym(library, symbol);
        if (search->table[i].symbol) continue;
        snprintf(search->lacking, sizeof search->lacking, "%s has no %s", path, symbol);
        search->old = true;
        dlclose(library);
        return false;
    }
    LOG(1, "cuda: %s", path);
    return true;
}

/* What a library opens later by name alone, which it would not find outside of the loader's path: open already, it is
 * found by its name. */
static void open_companions(const char *folder, const char *pattern) {
    char path[MOST_PATH];
    glob_t found = {0};
    int length = snprintf(path, sizeof path, "%s/%s", folder, pattern);
    if (length > 0 && length < MOST_PATH && glob(path, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) (void)library_open(found.gl_pathv[i], NULL, 0);
    globfree(&found);
}

static bool try_in_folder(Search *search, const char *folder, const char *name) {
    char path[MOST_PATH];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length <= 0 || length >= MOST_PATH || access(path, R_OK) || !try_file(search, path)) return false;
    if (search->kind->companions) open_companions(folder, search->kind->companions);
    return true;
}

static bool try_pattern(Search *search, const char *pattern, const char *name) {
    glob_t found = {0};
    bool opened = false;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = found.gl_pathc; i > 0 && !opened; i--) /* cuda-12.8 before cuda-12.4 */
            opened = try_in_folder(search, found.gl_pathv[i - 1], name);
    globfree(&found);
    return opened;
}

/* --- Python's wheels -------------------------------------------------------------------------------------------------
 * Each NVIDIA package puts its libraries below site-packages/nvidia, those of one CUDA version in a folder cuNN from
 * CUDA 13 on.
 */

static bool try_prefix(Search *search, const char *prefix, const LibraryFile *file) {
    static const char *const packages[] = {"lib/python3*/site-packages", "lib/python3*/dist-packages",
                                           "local/lib/python3*/dist-packages", "lib64/python3*/site-packages"};
    for (int i = 0; i < COUNT(packages); i++) {
        char pattern[MOST_PATH];
        int length = snprintf(pattern, sizeof pattern, "%s/%s/nvidia/cu%d/lib", prefix, packages[i], file->cuda_major);
        if (length > 0 && length < MOST_PATH && try_pattern(search, pattern, file->name)) return true;
        length = snprintf(pattern, sizeof pattern, "%s/%s/nvidia/%s/lib", prefix, packages[i], search->kind->wheel);
        if (length > 0 && length < MOST_PATH && try_pattern(search, pattern, file->name)) return true;
    }
    return false;
}

/* bin/python3 -> the folder above bin: of the path itself (an environment) and of what it links to. */
static bool try_interpreter(Search *search, const char *folder, size_t size, const LibraryFile *file) {
    char path[MOST_PATH], real[MOST_PATH];
    int length = snprintf(path, sizeof path, "%.*s/python3", (int)size, folder);
    if (size == 0 || folder[0] != '/' || length >= MOST_PATH || access(path, X_OK)) return false;
    for (int links = 0; links < 2; links++) {
        if (links && (!realpath(path, real) || strcmp(real, path) == 0)) return false;
        char *at = links ? real : path, *bin = strrchr(at, '/');
        *bin = 0; /* the folder */
        char *up = strrchr(at, '/');
        if (up) *up = 0;
        bool opened = up && try_prefix(search, at, file);
        if (up) *up = '/';
        *bin = '/';
        if (opened) return true;
    }
    return false;
}

static bool try_wheels(Search *search, const LibraryFile *file) {
    const char *path = secure_getenv("PATH");
    if (!search->kind->wheel || !path) return false;
    for (const char *end;; path = end + 1) {
        end = strchrnul(path, ':');
        if (try_interpreter(search, path, (size_t)(end - path), file)) return true;
        if (!*end) return false;
    }
}

/* --- the search --- */

static atomic_bool only_from_folder;

void cuda_load_only_from_folder(bool only) { atomic_store(&only_from_folder, only); }

static bool try_everywhere(Search *search, const char *folder, const LibraryFile *file) {
    if (folder && try_in_folder(search, folder, file->name)) return true;
    if (atomic_load(&only_from_folder)) return false;
    if (try_file(search, file->name)) return true;
    for (const char *const *pattern = search->kind->folders; *pattern; pattern++)
        if (try_pattern(search, *pattern, file->name)) return true;
    return try_wheels(search, file);
}

/* Versions that the driver can surely run come first: its own and older ones, then newer ones. */
static bool search_library(Search *search, const char *folder, int driver_major) {
    for (int newer = 0; newer < 2; newer++)
        for (const LibraryFile *file = search->kind->files; file->name; file++) {
            bool is_newer = driver_major && file->cuda_major > driver_major;
            if (is_newer == newer && try_everywhere(search, folder, file)) return true;
        }
    return false;
}

/* What was opened, never closed: handles of ours may be in use until the process ends. */
typedef struct Opened {
    const LibraryKind *kind;
    int driver_major;
    char *folder; /* NULL: none */
    Function table[MOST_FUNCTIONS];
    struct Opened *next;
} Opened;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Opened *opened_libraries;

static Status open_library(const LibraryKind *kind, const char *folder, int driver_major, Opened **out_opened) {
    Opened *opened = calloc(1, sizeof *opened);
    char *name = folder ? strdup(folder) : NULL;
    if (!opened || (folder && !name)) {
        free(opened);
        free(name);
        return status_out_of_memory();
    }
    Search search = {.kind = kind, .table = opened->table};
    if (!search_library(&search, folder, driver_major)) {
        free(opened);
        free(name);
        if (search.old) return status_error(STATUS_USAGE, "%s (%s)", kind->old, search.lacking);
        if (search.lacking[0]) return status_error(STATUS_USAGE, "%s (%s)", kind->missing, search.lacking);
        return status_error(STATUS_USAGE, "%s", kind->missing);
    }
    opened->kind = kind;
    opened->driver_major = driver_major;
    opened->folder = name;
    opened->next = opened_libraries;
    opened_libraries = opened;
    *out_opened = opened;
    return NULL;
}

static bool same_folder(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

static Status load(const LibraryKind *kind, const char *folder, int driver_major, const void **out_table) {
    if (folder && !folder[0]) folder = NULL;
    pthread_mutex_lock(&lock);
    Status status = NULL;
    Opened *opened = opened_libraries;
    while (opened &&
           (opened->kind != kind || opened->driver_major != driver_major || !same_folder(opened->folder, folder)))
        opened = opened->next;
    if (!opened) status = open_library(kind, folder, driver_major, &opened);
    if (!status) *out_table = opened->table;
    pthread_mutex_unlock(&lock);
    return status;
}

Status cuda_load_driver(const char *folder, const CudaDriver **out_driver) {
    const void *table;
    TRY(load(&driver_kind, folder, 0, &table));
    *out_driver = table;
    return NULL;
}

Status cuda_load_nvrtc(const char *folder, int driver_major, const CudaNvrtc **out_nvrtc) {
    const void *table;
    TRY(load(&nvrtc_kind, folder, driver_major, &table));
    *out_nvrtc = table;
    return NULL;
}

Status cuda_load_blas(const char *folder, int driver_major, const CudaBlasApi **out_blas) {
    const void *table;
    TRY(load(&blas_kind, folder, driver_major, &table));
    *out_blas = table;
    return NULL;
}
