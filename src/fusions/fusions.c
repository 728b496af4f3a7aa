/* The list of the built-in fusions: a line declares one, a line names it. */
#include "fusions/fusions.h"

const OnnxfuseFusion *const builtin_fusions[] = {
    NULL,
};
