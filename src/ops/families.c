/* The table of operators: all families. The search in it is lowering's (lowering/rows.c). */
#include "ops/families.h"

const OpRow *const op_families[] = {
    ops_math,     ops_activation, ops_reduction, ops_normalization, ops_linear,   ops_quantize,  ops_random,
    ops_shape,    ops_index,      ops_window,    ops_image,         ops_select,   ops_recurrent, ops_control,
    ops_sequence, ops_text,       ops_attention, ops_contrib,       ops_training, ops_ml,        NULL,
};
