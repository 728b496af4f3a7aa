/* SPDX-License-Identifier: Apache-2.0 */
/* The list of the built-in fusions: a line declares one, a line names it. */
#include "fusions/fusions.h"

extern const OnnxfuseFusion fused_no_repeat_ngram;                   /* no_repeat_ngram.c */
extern const OnnxfuseFusion fused_rms_norm, fused_rms_norm_backward; /* rms_norm.c */

const OnnxfuseFusion *const builtin_fusions[] = {
    &fused_no_repeat_ngram,
    &fused_rms_norm,
    &fused_rms_norm_backward,
    NULL,
};
