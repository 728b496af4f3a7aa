/* SPDX-License-Identifier: Apache-2.0 */
/* Where a long body of many copies is cut: a piece of one copy, the same of the next, and so on, before the next piece. The processor's
 * window holds a piece of all copies, and what lives within one needs a register in one copy at a time; what lives from one piece to the
 * next needs one in each. So pieces have some ten instructions and end where little lives.
 *
 * Pieces of 8 instructions are up to 7 % faster than single ones, of 10 in the longest bodies 2 % faster than of 8, and of 32 up to 40 % slower.
 * Against pieces of 10 wherever they end, a chain of twenty functions takes 0.91, with half of the stack's reads and writes, a GELU by tanh 0.93,
 * by erf 1.01, a swish 1.00; a value that lives on weighed half or twice as much, or pieces of 8 or 12, are no better. (An AMD EPYC of family 25,
 * AVX2, two threads, `bench_kernels` in the second cache, least of 6 rounds, November 2026.) */
#include <limits.h>
#include "codegen/render/render.h"

/* LIVING: what a value costs that lives from one piece to the next, in squares of a piece's instructions more or less than PIECE. */
enum { PIECE = 10, LONGEST = 24, LIVING = 10 };

/* How many vectors live before each instruction of the run, and behind the last. */
static int *count_living(Render *r, const int *run, int count) {
    const KernelInst *insts = r->kernel->insts.items;
    const int all = r->kernel->insts.count, end = run[count - 1];
    int *living = ARENA_ARRAY(r->arena, int, count + 1);
    /* From where on in the run a value is there, and where it is asked for last; 0: before the run, or not at all. */
    int *made = ARENA_ARRAY(r->arena, int, all), *asked = ARENA_ARRAY(r->arena, int, all);
    for (int n = 0; n < count; n++) made[run[n]] = n + 1;
    for (int i = 0; i < all; i++) {
        const int at = i > end ? count : made[i] - 1;
        for (int n = 0; n < render_op_args(insts[i].op); n++)
            if (at > asked[insts[i].args[n]]) asked[insts[i].args[n]] = at;
    }
    for (int i = 0; i <= end; i++)
        for (int n = made[i]; r->slots[i].vectorial && n <= asked[i]; n++) living[n]++;
    return living;
}

int render_pieces(Render *r, const int *run, int count, int *out_ends) {
    const int *living = count_living(r, run, count);
    int *begin = ARENA_ARRAY(r->arena, int, count + 1), *cost = ARENA_ARRAY(r->arena, int, count + 1), pieces = 0;
    for (int end = 1; end <= count; end++) {
        cost[end] = INT_MAX;
        for (int from = end > LONGEST ? end - LONGEST : 0; from < end; from++) {
            const int over = end - from - PIECE, last = end == count;
            const int more = (last ? 0 : LIVING * living[end]) + (last && over < 0 ? 0 : over * over);
            if (cost[from] + more >= cost[end]) continue;
            cost[end] = cost[from] + more;
            begin[end] = from;
        }
    }
    for (int end = count; end; end = begin[end]) pieces++;
    for (int end = count, n = pieces; end; end = begin[end]) out_ends[--n] = end;
    return pieces;
}
