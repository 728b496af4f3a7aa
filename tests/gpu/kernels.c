/* SPDX-License-Identifier: Apache-2.0 */
/* Every GPU kernel of some models, proven without a GPU, or on one.
 *
 *   kernels --opencl|--on-cuda|--cuda|--traffic|--cpu|--list [FLAG...] [MODEL.onnx|FOLDER...]
 *
 *   --opencl     runs each kernel on the OpenCL device with sizes of many kinds and compares with an interpreter
 *   --on-cuda    the same on a GPU, through CUDA
 *   --cuda       compiles each for CUDA with NVRTC, for several architectures, and with them all programs beside those of
 *                regions, and those that the runtime asks for (programs.h): no warnings, no spills, few registers
 *   --traffic    counts what each reads and writes
 *   --cpu        as --opencl with the CPU's kernels: proves the proof
 *   --list       prints each kernel's text
 *   --random N   also the kernels of random graphs of seeds 1 to N
 *   --sizes S    "n=4096,m=64": these values for the models' symbols
 *   --work N     most instructions times elements of a run
 *   --jobs N     processes;  --batch N  kernels a program;  --seconds N  most for a batch
 *   --arch A,B   architectures for --cuda: 80,90,100
 *   --in-turn N  each program is compiled for one of the architectures, in turn, beginning with the Nth modulo their number;
 *                with ONNXFUSE_TEST_SHARE=M (tests/base/share.h) one of M programs; the machine code of a third of them is read
 *   --nvrtc P    the folder with the NVRTC library
 *   --disassembler P   nvdisasm: the machine code is read as well (sass.h)
 *   --report F   writes failing kernels with their programs to F */
#include <stdio.h>
#include <stdlib.h>

#include "programs.h"
#include "proof.h"

static const struct {
    const char *flag;
    const ProofMode *mode;
    DeviceKind device;
    int batch;
} modes[] = {
    {"--opencl", &proof_run_device, DEVICE_OPENCL, 4},
    {"--on-cuda", &proof_run_device, DEVICE_CUDA, 16},
    {"--cuda", &proof_cuda, DEVICE_CUDA, 8},
    {"--traffic", &proof_traffic, DEVICE_OPENCL, 1},
    {"--cpu", &proof_cpu, DEVICE_CPU, 32},
    {"--list", NULL, DEVICE_CUDA, 1},
};

static void complain(Status status) {
    if (!status) return;
    fprintf(stderr, "kernels: %s\n", status_message(status));
    exit(2);
}

static const char *value_of(char **argv, int *i) {
    if (!argv[*i + 1]) complain(status_error(STATUS_USAGE, "%s needs a value", argv[*i]));
    return argv[++*i];
}

static int list(const Cases *cases) {
    for (int i = 0; i < cases->items.count; i++)
        printf("# %s, %d sets of sizes\n%s\n", cases->items.items[i]->origin, cases->items.items[i]->bindings.count,
               cases->items.items[i]->text);
    return 0;
}

int main(int argc, char **argv) {
    int mode = -1, random = 0, paths = 0;
    const char *sizes = NULL;
    int64_t work = 6000000;
    ProofOptions options = {.jobs = 2, .seconds = 300, .architectures = "80,90,100"};
    for (int i = 1; i < argc; i++) {
        int m = 0, count = sizeof modes / sizeof *modes;
        while (m < count && strcmp(modes[m].flag, argv[i]) != 0) m++;
        if (m < count)
            mode = m;
        else if (!strcmp(argv[i], "--random"))
            random = atoi(value_of(argv, &i));
        else if (!strcmp(argv[i], "--sizes"))
            sizes = value_of(argv, &i);
        else if (!strcmp(argv[i], "--work"))
            work = strtoll(value_of(argv, &i), NULL, 10);
        else if (!strcmp(argv[i], "--jobs"))
            options.jobs = atoi(value_of(argv, &i));
        else if (!strcmp(argv[i], "--batch"))
            options.batch = atoi(value_of(argv, &i));
        else if (!strcmp(argv[i], "--seconds"))
            options.seconds = atoi(value_of(argv, &i));
        else if (!strcmp(argv[i], "--nvrtc"))
            options.nvrtc = value_of(argv, &i);
        else if (!strcmp(argv[i], "--disassembler"))
            options.disassembler = value_of(argv, &i);
        else if (!strcmp(argv[i], "--arch"))
            options.architectures = value_of(argv, &i);
        else if (!strcmp(argv[i], "--in-turn"))
            options.in_turn = true, options.turn = atoi(value_of(argv, &i));
        else if (!strcmp(argv[i], "--report"))
            options.report = value_of(argv, &i);
        else if (argv[i][0] == '-')
            complain(status_error(STATUS_USAGE, "unknown flag %s (see the head of tests/gpu/kernels.c)", argv[i]));
        else
            argv[1 + paths++] = argv[i];
    }
    if (mode < 0)
        complain(status_error(STATUS_USAGE, "one of --opencl, --on-cuda, --cuda, --traffic, --cpu, --list is needed"));
    if (options.batch < 1) options.batch = modes[mode].batch;
    if (options.jobs < 1) options.jobs = 1;

    Cases *cases;
    complain(cases_create(modes[mode].device, work, &cases));
    if (modes[mode].mode == &proof_cuda) {
        complain(program_recorder_open(cases, &cases->recorder));
        programs_add_all(cases);
    }
    for (int i = 0; i < paths; i++) complain(cases_add(cases, argv[1 + i], sizes));
    complain(cases_add_random(cases, random));
    int programs = 0;
    for (int i = 0; i < cases->items.count; i++) programs += cases->items.items[i]->program;
    printf("%d models (%d that nothing runs), %d regions, %d kernels, %d programs\n", cases->models, cases->refused,
           cases->regions, cases->items.count - programs, programs);
    if (!cases->items.count) complain(status_error(STATUS_USAGE, "there is no kernel to prove"));
    if (!modes[mode].mode) return list(cases);
    Tally t;
    bool good = proof_run(cases, modes[mode].mode, options, &t);
    printf("%s: %lld kernels, %lld trials, %lld launches (%lld of shared rows), %lld of %lld functions run, %lld "
           "skipped\n",
           modes[mode].mode->name, (long long)t.kernels, (long long)t.trials, (long long)t.launches, (long long)t.split,
           (long long)t.functions_run, (long long)t.functions, (long long)t.skipped);
    printf("%lld failed\n", (long long)t.failed);
    cases_destroy(cases);
    return good ? 0 : 1;
}
