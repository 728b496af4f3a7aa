/* SPDX-License-Identifier: Apache-2.0 */
/* What each unit of tiles begins with; wants what tile_isa.h says. What follows is compiled for the set. */
#include "base/integer.h"
#include "runtime/device/cpu/tiles/tile.h"

#include "base/vectors/vector_math.h" /* last: what follows is compiled for the set */

#define TILE_JOIN_(a, b) a##_##b
#define TILE_JOIN(a, b) TILE_JOIN_(a, b)
#define TILE_INLINE VECTOR_INLINE
#define TILE_UNROLL VECTOR_UNROLL
/* The address is in a general register here, and what it leads to is read again from here on. Else GCC keeps addresses, and
 * all that a call says, in vector registers, where loops have no others left: there they wait for the products before. */
#define TILE_HOLD_ADDRESS(pointer) __asm__("" : "+r"(pointer))
#ifdef __clang__
#define TILE_UNROLL_COLUMNS TILE_UNROLL
#define TILE_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define TILE_UNROLL_COLUMNS _Pragma("GCC unroll 32")
#define TILE_NO_UNROLL _Pragma("GCC unroll 1")
#endif

/* The value is in a register from here on. */
#if defined(__x86_64__)
#define TILE_HOLD(value) __asm__("" : "+v"(value))
#else
#define TILE_HOLD(value) __asm__("" : "+w"(value))
#endif

/* How a product's loop adds (tile_type.h): a depth at a time; or pairs of vectors, of rows and weights whose depths are as far apart as the
 * call says; of rows without gaps; or likewise, by any other number, which is how far apart the weight's depths are. */
enum { NO_PAIRS, ANY_STEP, ANY_STRIDE };
enum { LINE_BYTES = 64 };      /* of a cache */
enum { TILE_PAIR_DEPTHS = 4 }; /* that are added in a round, whose numbers are literals */

/* What is done to a sum (Bounds); gates to f32 alone. */
typedef enum BoundKind { BOUND_NOT, BOUND_CLAMP, BOUND_GATE, BOUND_LONG_GATE } BoundKind;

/* Those that end the call's sums, wherever they are said. */
TILE_INLINE const Bounds *tile_bounds(const TileCall *call) { return call->ends ? &call->ends->bounds : &call->bounds; }

TILE_INLINE BoundKind bound_kind(const Bounds *b) {
    return !b->clamp ? BOUND_NOT : !b->gate ? BOUND_CLAMP : !b->then ? BOUND_GATE : BOUND_LONG_GATE;
}

/* Where columns that a tile of a line meets may be in the padding (tile_lines.h): among the first and the last ones, as many as all taps but one;
 * or anywhere. */
typedef enum Padded { NOT_PADDED, PADDED_ENDS, PADDED } Padded;

TILE_INLINE bool may_be_padding(const Padded padded, int column, int columns, int taps) {
    return padded == PADDED || (padded == PADDED_ENDS && (column < taps - 1 || column > columns - taps));
}
