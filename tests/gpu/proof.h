/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels proven in processes of their own, so that a crash or a hang names its kernel and the rest goes on. */
#ifndef ONNXFUSE_TESTS_GPU_PROOF_H
#define ONNXFUSE_TESTS_GPU_PROOF_H

#include "cases.h"

typedef struct Tally {
    int64_t kernels, failed, skipped; /* skipped: no sizes within the budget */
    int64_t trials, launches;
    int64_t functions, functions_run; /* of the kernels that were not skipped; "" and "_held" and "_long" apart */
    int64_t split;                    /* launches of rows shared by several blocks */
} Tally;

typedef struct ProofOptions {
    const char *report; /* file to which failing kernels are written whole; NULL: none */
    int jobs, batch;
    int seconds;               /* most for one batch */
    const char *nvrtc;         /* folder or file of the NVRTC library; NULL: the usual places */
    const char *disassembler;  /* nvdisasm; NULL: machine code is not read */
    const char *architectures; /* "80,90,100" */
    bool in_turn;              /* each program is compiled for one of them alone, the next for the next */
    int turn;                  /* which one is the first's */
} ProofOptions;

typedef struct Proof Proof;
struct Proof {
    const Cases *cases;
    ProofOptions options;
    void *state; /* the mode's own */
    struct ProofShared *shared;
    int worker;
};

typedef struct ProofMode {
    const char *name;
    Status (*open)(Proof *proof);
    /* Proves cases->items[indices[i]]; calls proof_begin and proof_end around each. A failure of the whole is the
     * batch's. */
    Status (*prove)(Proof *proof, const int *indices, int count);
    void (*close)(Proof *proof);
} ProofMode;

extern const ProofMode proof_cpu, proof_run_device, proof_cuda, proof_traffic;

/* Runs all cases; true when none failed. */
bool proof_run(const Cases *cases, const ProofMode *mode, ProofOptions options, Tally *out_tally);

void proof_begin(Proof *proof, int index);
void proof_end(Proof *proof, int index);
Tally *proof_tally(Proof *proof);
/* A failure of a case: told in a line, and at length in the report; source (may be NULL) is its program. */
void proof_fail(Proof *proof, int index, const char *source, const char *format, ...) STATUS_FORMAT(4, 5);

#endif
