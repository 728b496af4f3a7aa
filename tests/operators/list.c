/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the table of operators, a row a line: domain (that of the standard is "ai.onnx"), operator, first and last version of
 * the domain's operator set (0: to the newest). */
#include "lowering/ops.h"

#include <stdio.h>

static void print_row(const OpRow *row, void *context) {
    (void)context;
    printf("%s\t%s\t%d\t%d\n", row->domain[0] ? row->domain : "ai.onnx", row->name, row->since, row->until);
}

int main(void) {
    ops_each(print_row, NULL);
    return 0;
}
