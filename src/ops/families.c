/* SPDX-License-Identifier: Apache-2.0 */
/* The table of operators: all families. The search in it is lowering's (lowering/rows.c). */
#include "ops/families.h"

#include "lowering/custom.h"

const OpRow *const op_families[] = {
    ops_elementwise,  ops_activation,    ops_reduction,  ops_normalization, ops_skip_norm,    ops_linear,
    ops_window,       ops_attention,     ops_multi_head, ops_recurrent,     ops_quantize,     ops_qlinear,
    ops_matmul_nbits, ops_block_weights, ops_experts,    ops_shape,         ops_index,        ops_select,
    ops_random,       ops_image,         ops_signal,     ops_text,          ops_ngram_repeat, ops_generation,
    ops_search_parts, ops_control,       ops_sequence,   ops_training,      ops_ml,           NULL,
};

const HostRow *const host_families[] = {
    hosts_window,    hosts_reduction, hosts_select,   hosts_signal,   hosts_shape,  hosts_linear, hosts_attention,
    hosts_recurrent, hosts_image,     hosts_sequence, hosts_optional, hosts_custom, NULL,
};
