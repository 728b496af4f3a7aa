/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_isa.h: what attention does to a block of scores between its two products, a vector at a time
 * (ScoreCall, ScoreBlock in tile.h). Memory is read and written in whole vectors: the caller's rows have room for that.
 */

/* ---- steps ---- */

TILE_INLINE VF score_stepped(VF x, const ScoreStep kind, VF alpha, VF beta, VF value) {
    VF none = splat(-INFINITY);
    switch (kind) {
    case SCORE_SCALE: return x * alpha;
    case SCORE_TANH: return tanh_vector(x);
    case SCORE_CLIP: return f32_clamp(x, alpha, beta);
    case SCORE_ADD: return x + value;
    case SCORE_ADD_HIDING: return choose(value == none, none, x + value);
    case SCORE_KEEP: return choose(value != splat(0), x, alpha);
    case SCORE_HIDE: return choose(value != splat(0), alpha, x);
    default: return x;
    }
}

TILE_INLINE void score_rows(const ScoreCall *call, const ScoreStep kind) {
    VF alpha = splat(call->alpha), beta = splat(call->beta), value = {0};
    bool reads = score_step_reads_input(kind), many = reads && call->value_column;
    for (int64_t i = 0; i < call->rows; i++) {
        float *x = call->x + i * call->stride;
        const float *values = reads ? call->values + i * call->value_row : NULL;
        if (reads && !many) value = splat(*values);
        for (int64_t j = 0; j < call->columns; j += LANES) {
            if (many) value = (VF) * (const VFLoose *)(values + j);
            *(VFLoose *)(x + j) = score_stepped(*(VFLoose *)(x + j), kind, alpha, beta, value);
        }
    }
}

static void score_step(const ScoreCall *call) {
    switch (call->kind) {
#define CASE(which)                                                                                                    \
    case which: score_rows(call, which); break;
        CASE(SCORE_SCALE)
        CASE(SCORE_TANH)
        CASE(SCORE_CLIP)
        CASE(SCORE_ADD)
        CASE(SCORE_ADD_HIDING)
        CASE(SCORE_KEEP)
        CASE(SCORE_HIDE)
#undef CASE
    default: break;
    }
}

/* Row i of the block is key i; column j sees it where i <= last[j]. */
static void score_limit(const ScoreCall *call, const int32_t *last, bool adds) {
    typedef int32_t Loose __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
    VF alpha = splat(call->alpha);
    for (int64_t i = 0; i < call->rows; i++) {
        float *row = call->x + i * call->stride;
        VI key = (int32_t)i - (VI){0};
        for (int64_t j = 0; j < call->columns; j += LANES) {
            VF x = *(VFLoose *)(row + j);
            VI seen = key <= (VI) * (const Loose *)(last + j);
            *(VFLoose *)(row + j) = choose(seen, x, adds ? x + alpha : alpha);
        }
    }
}

/* ---- the softmax of columns: each is a query, each row a key ---- */

enum { SCORE_VECTORS = 4 }; /* whose exponentials are computed beside each other */

/* `count` vectors of columns: their greatest, then the exponentials and their sum. */
TILE_INLINE bool score_columns(const ScoreBlock *b, int64_t first, const int count) {
    VF top[SCORE_VECTORS], safe[SCORE_VECTORS], sum[SCORE_VECTORS], e[SCORE_VECTORS];
    VI changed = {0};
    const int64_t keys = b->keys, stride = b->stride;
    bool grows = false;
#define EACH_VECTOR                                                                                                    \
    TILE_UNROLL                                                                                                        \
    for (int v = 0; v < count; v++)
#define COLUMNS(at) (*(VFLoose *)((at) + first + v * LANES))
    EACH_VECTOR top[v] = splat(-INFINITY);
    for (int64_t i = 0; i < keys; i++) EACH_VECTOR top[v] = greater(COLUMNS(b->x + i * stride), top[v]);
    EACH_VECTOR {
        VF before = COLUMNS(b->top);
        top[v] = choose(top[v] > before + splat(SCORE_SLACK), top[v], before);
        COLUMNS(b->top) = top[v];
        safe[v] = choose(top[v] == splat(-INFINITY), splat(0), top[v]);
        e[v] = before - safe[v];
        sum[v] = splat(0);
    }
    exp_below_vectors(e, count);
    EACH_VECTOR {
        COLUMNS(b->factor) = e[v];
        COLUMNS(b->sum) *= e[v];
        changed |= e[v] != splat(1);
    }
    for (int i = 0; i < LANES; i++) grows |= changed[i] != 0;
    for (int64_t i = grows ? -b->earlier : 0; i < 0; i++) EACH_VECTOR COLUMNS(b->x + i * stride) *= COLUMNS(b->factor);
    float *x = b->x;
    for (int64_t i = 0; i < keys; i++, x += stride) {
        EACH_VECTOR e[v] = COLUMNS(x) - safe[v];
        exp_below_vectors(e, count);
        EACH_VECTOR COLUMNS(x) = e[v];
        EACH_VECTOR sum[v] += e[v];
    }
    EACH_VECTOR COLUMNS(b->sum) += sum[v];
#undef COLUMNS
#undef EACH_VECTOR
    return grows;
}

static bool score_softmax_columns(const ScoreBlock *b) {
    bool grows = false;
    int64_t first = 0;
    for (; first + SCORE_VECTORS * LANES <= b->columns; first += SCORE_VECTORS * LANES)
        grows |= score_columns(b, first, SCORE_VECTORS);
    for (; first < b->columns; first += LANES) grows |= score_columns(b, first, 1);
    return grows;
}

/* ---- the softmax of rows: each is a query, its columns are keys ---- */

TILE_INLINE VF score_masked(const float *x, int64_t left, float otherwise) {
    if (left >= LANES) return *(const VFLoose *)x;
    VF part = splat(otherwise);
    for (int64_t i = 0; i < left; i++) part[i] = x[i];
    return part;
}

/* `count` vectors of a row become exponentials, which are added to the sum; left: keys from x on. */
TILE_INLINE VF score_exponentials(float *x, int64_t left, VF safe, VF sum, const int count) {
    VF e[SCORE_VECTORS];
    TILE_UNROLL
    for (int v = 0; v < count; v++) e[v] = score_masked(x + v * LANES, left - v * LANES, -INFINITY) - safe;
    exp_below_vectors(e, count);
    TILE_UNROLL
    for (int v = 0; v < count; v++) {
        *(VFLoose *)(x + v * LANES) = e[v];
        sum += e[v];
    }
    return sum;
}

static bool score_softmax_rows(const ScoreBlock *b) {
    const int64_t step = SCORE_VECTORS * LANES;
    bool grows = false;
    for (int64_t r = 0; r < b->columns; r++) {
        float *x = b->x + r * b->stride, top = b->top[r], total = 0;
        VF most = splat(-INFINITY), sum = {0};
        int64_t i = 0;
        for (; i < b->keys; i += LANES) most = greater(score_masked(x + i, b->keys - i, -INFINITY), most);
        for (int l = 0; l < LANES; l++) top = most[l] > top ? most[l] : top;
        VF safe = splat(top == -INFINITY ? 0 : top), factor = splat(b->top[r]) - safe;
        exp_below_vectors(&factor, 1);
        for (i = 0; i + step <= b->keys; i += step)
            sum = score_exponentials(x + i, b->keys - i, safe, sum, SCORE_VECTORS);
        for (; i < b->keys; i += LANES) sum = score_exponentials(x + i, b->keys - i, safe, sum, 1);
        for (int l = 0; l < LANES; l++) total += sum[l];
        b->sum[r] = b->sum[r] * factor[0] + total;
        b->top[r] = top;
        b->factor[r] = factor[0];
        grows |= factor[0] != 1;
    }
    return grows;
}

/* `count` vectors of columns from j on. */
TILE_INLINE void score_gradient_columns(const ScoreGradient *b, int64_t i, int64_t j, const int count) {
    float *x = b->x + i * b->columns + j, *g = b->g + i * b->columns + j;
    const float *slopes = b->slopes ? b->slopes + i * b->columns + j : NULL;
    VF p[SCORE_VECTORS];
    TILE_UNROLL
    for (int v = 0; v < count; v++) p[v] = *(VFLoose *)(x + v * LANES) - *(const VFLoose *)(b->l + j + v * LANES);
    exp_below_vectors(p, count);
    TILE_UNROLL
    for (int v = 0; v < count; v++) {
        int64_t at = v * LANES;
        p[v] = choose(*(const VFLoose *)(b->l + j + at) == splat(INFINITY), splat(0), p[v]);
        VF ds = p[v] * (*(VFLoose *)(g + at) - *(const VFLoose *)(b->d + j + at));
        if (slopes) ds *= *(const VFLoose *)(slopes + at);
        *(VFLoose *)(x + at) = p[v];
        *(VFLoose *)(g + at) = ds;
    }
}

static void score_gradient(const ScoreGradient *b) {
    for (int64_t i = 0; i < b->keys; i++) {
        int64_t j = 0;
        for (; j + SCORE_VECTORS * LANES <= b->columns; j += SCORE_VECTORS * LANES)
            score_gradient_columns(b, i, j, SCORE_VECTORS);
        for (; j < b->columns; j += LANES) score_gradient_columns(b, i, j, 1);
    }
}

static void score_scale(const float *rows, int64_t count, int64_t columns, const float *factor, void *const *to) {
    for (int64_t i = 0; i < count; i++, rows += columns) {
        float *row = to[i];
        for (int64_t j = 0; j < columns; j += LANES)
            *(VFLoose *)(row + j) = *(const VFLoose *)(rows + j) * splat(factor[i]);
    }
}

/* ---- what is dropped ---- */

typedef uint64_t VW __attribute__((vector_size(VECTOR_BYTES)));

/* The low words' products. */
TILE_INLINE VW draw_product(VW x, uint32_t by) {
    VW factor = (uint64_t)by - (VW){0};
#if VECTOR_BYTES == 64
    return (VW)_mm512_mul_epu32((__m512i)x, (__m512i)factor);
#elif VECTOR_BYTES == 32
    return (VW)_mm256_mul_epu32((__m256i)x, (__m256i)factor);
#elif defined(__x86_64__)
    return (VW)_mm_mul_epu32((__m128i)x, (__m128i)factor);
#else
    return (x & 0xffffffff) * factor;
#endif
}

/* As codegen/render/random.c: each word in the low half of a 64-bit lane, whatever is above it. Both halves of the group at once, for their
 * rounds hide each other's latency. */
static void score_draw(uint64_t seed, uint64_t group, uint32_t limit, float kept, float *to) {
    enum { COUNTERS = PHILOX_COUNTERS / 2 };
    static const uint64_t places[COUNTERS] = {0, 1, 2, 3, 4, 5, 6, 7};
    VW own;
    memcpy(&own, places, sizeof own);
    for (int v = 0; v < COUNTERS; v += LANES / 2) {
        uint64_t counter = group * PHILOX_COUNTERS + (uint64_t)v;
        uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
        VW c[2][4];
        for (int half = 0; half < 2; half++) {
            c[half][0] = own + (counter + (uint64_t)half * COUNTERS);
            c[half][1] = (counter >> 32) - (VW){0};
            c[half][2] = c[half][3] = (VW){0};
        }
        for (int round = 0; round < PHILOX_ROUNDS; round++, key0 += PHILOX_STEP_0, key1 += PHILOX_STEP_1) {
            TILE_UNROLL
            for (int half = 0; half < 2; half++) {
                VW *w = c[half], first = draw_product(w[0], PHILOX_FACTOR_0),
                   second = draw_product(w[2], PHILOX_FACTOR_1);
                w[0] = second >> 32 ^ w[1] ^ ((uint64_t)key0 - (VW){0});
                w[2] = first >> 32 ^ w[3] ^ ((uint64_t)key1 - (VW){0});
                w[1] = second;
                w[3] = first;
            }
        }
        TILE_UNROLL
        for (int n = 0; n < 2 * 4; n++) { /* the word, then its halves swapped */
            VW word = c[n / 4][n % 4] & 0xffffffff;
            VI words = (VI)(word | word << 48 | word >> 16 << 32);
            VI keeps = (words >> 8 & 0xffffff) >= (int32_t)limit - (VI){0};
            *(VFLoose *)(to + n * PHILOX_COUNTERS + 2 * v) = choose(keeps, splat(kept), splat(0));
        }
    }
}
