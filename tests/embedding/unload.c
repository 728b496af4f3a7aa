/* SPDX-License-Identifier: Apache-2.0 */
/* unload LIBRARY MODEL: a program that opens the library as a plug-in, runs MODEL on two threads and closes it again, twenty times.
 * Threads that sessions share outlive these, so the library has to stay. */
#define _GNU_SOURCE /* RTLD_NOLOAD, usleep */
#include <dlfcn.h>
#include <onnxfuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ISO C has no conversion from void * to a pointer to a function. */
static void find(void *library, const char *name, void *out_function) {
    void *address = dlsym(library, name);
    if (!address) exit(3);
    memcpy(out_function, &address, sizeof address);
}

#define FIND(name)                                                                                                     \
    __typeof__(&name) name##_;                                                                                         \
    find(library, #name, &name##_)

static void run(void *library, const char *model) {
    FIND(onnxfuse_session_open);
    FIND(onnxfuse_session_run);
    FIND(onnxfuse_session_close);
    FIND(onnxfuse_value_tensor);
    FIND(onnxfuse_value_free);
    OnnxfuseOptions options = {.size = sizeof options, .threads = 2};
    OnnxfuseSession *session;
    OnnxfuseValue *input, *output = NULL;
    static float rows[512][16];
    if (onnxfuse_session_open_(model, &options, &session) ||
        onnxfuse_value_tensor_(ONNXFUSE_FLOAT32, 2, (int64_t[]){512, 16}, rows, &input) ||
        onnxfuse_session_run_(session, (const OnnxfuseValue *const[]){input}, &output))
        exit(4);
    onnxfuse_value_free_(output);
    onnxfuse_value_free_(input);
    onnxfuse_session_close_(session);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    for (int i = 0; i < 20; i++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!library) return fprintf(stderr, "%s\n", dlerror()), 5;
        run(library, argv[2]);
        dlclose(library);
        usleep(2000); /* as long as an idle thread may look for work before it sleeps */
    }
    if (!dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD))
        return fprintf(stderr, "the library went from under its threads\n"), 6;
    puts("still there");
    return 0;
}
