/* SPDX-License-Identifier: Apache-2.0 */
/* What is said when a plug-in cannot be opened, and that it can be. The file of each stands beside the test's program or
 * is made there. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/plugin.h"
#include "codegen/llvm_plugin.h"

static void beside_the_program(char *path, size_t room, const char *file) {
    ssize_t size = readlink("/proc/self/exe", path, room - 1);
    cr_assert(size > 0);
    path[size] = 0;
    char *slash = strrchr(path, '/');
    snprintf(slash + 1, room - (size_t)(slash + 1 - path), "%s", file);
}

Test(plugin, errors_name_the_file_and_the_package) {
    static const struct {
        const char *name;
        Plugin plugin;
        const char *parts[3];
    } rows[] = {
        {"not there",
         {.file = "libonnxfuse-nothing.so",
          .entry = "none",
          .package = "libonnxfuse-nothing",
          .without = "nothing is done"},
         {"nothing is done: libonnxfuse-nothing.so is neither in /", ", nor in /", "the package libonnxfuse-nothing)"}},
        {"no library",
         {.file = "test_plugin_no_library",
          .entry = "none",
          .package = "libonnxfuse-text",
          .without = "nothing is done"},
         {"nothing is done: /", "test_plugin_no_library", "the package libonnxfuse-text brings it along"}},
        {"without its entry",
         {.file = LLVM_PLUGIN_FILE, .entry = "none", .package = "libonnxfuse-llvm", .without = "nothing is done"},
         {"nothing is done: /", "libonnxfuse-llvm.so is of another version", "install the two together"}},
        {"of another version",
         {.file = LLVM_PLUGIN_FILE,
          .entry = LLVM_PLUGIN_ENTRY,
          .package = "p",
          .without = "nothing is done",
          .abi = -1},
         {"nothing is done: /", "libonnxfuse-llvm.so is of another version", "install the two together"}},
    };
    char path[4096];
    beside_the_program(path, sizeof path, "test_plugin_no_library");
    FILE *text = fopen(path, "w");
    cr_assert(text && fputs("a text\n", text) >= 0 && !fclose(text));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Plugin plugin = rows[i].plugin;
        for (int time = 0; time < 2; time++) {
            const void *table;
            Status status = plugin_open(&plugin, &table);
            cr_expect(status_code(status) == STATUS_FAULT && !table, "%s", rows[i].name);
            for (int part = 0; part < 3; part++)
                cr_expect(strstr(status_message(status), rows[i].parts[part]), "%s: \"%s\" should hold \"%s\"",
                          rows[i].name, status_message(status), rows[i].parts[part]);
            status_free(status);
        }
    }
    unlink(path);
}

Test(plugin, opens_once) {
    static Plugin plugin = {.file = LLVM_PLUGIN_FILE, .entry = LLVM_PLUGIN_ENTRY, .abi = LLVM_PLUGIN_ABI};
    const void *table = NULL, *again = NULL;
    cr_assert(!plugin_open(&plugin, &table) && !plugin_open(&plugin, &again));
    cr_expect(table && table == again);
    cr_expect(strcmp(plugin_identity(&plugin), "any") != 0);
    static Plugin nowhere = {.file = "libonnxfuse-nothing.so"};
    cr_expect(strcmp(plugin_identity(&nowhere), "any") == 0);
}

/* What is opened is code: a good plug-in where the program happens to be is none. */
Test(plugin, never_in_the_current_directory_nor_along_a_path) {
    char folder[] = "/tmp/onnxfuse-plugin-XXXXXX", there[4096], here[4096];
    cr_assert(mkdtemp(folder));
    beside_the_program(there, sizeof there, LLVM_PLUGIN_FILE);
    snprintf(here, sizeof here, "%s/libonnxfuse-nothing.so", folder);
    cr_assert(symlink(there, here) == 0 && chdir(folder) == 0);
    setenv("LD_LIBRARY_PATH", folder, 1);
    setenv("PATH", folder, 1);
    Plugin plugin = {.file = "libonnxfuse-nothing.so",
                     .entry = LLVM_PLUGIN_ENTRY,
                     .abi = LLVM_PLUGIN_ABI,
                     .package = "p",
                     .without = "nothing is done"};
    const void *table = NULL;
    Status status = plugin_open(&plugin, &table);
    cr_expect(status && !table, "a plug-in of the current directory is opened");
    cr_expect(strstr(status_message(status), "is neither in "), "%s", status_message(status));
    status_free(status);
    unlink(here);
    rmdir(folder);
}
