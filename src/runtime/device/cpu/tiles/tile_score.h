/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_isa.h: what attention does to a block of scores between its two products, a vector at a time
 * (ScoreCall, ScoreBlock in tile.h). Memory is read and written in whole vectors: the caller's rows have room for that.
 */

/* The greater; NaN in x are left out. */
TILE_INLINE VF score_greater(VF x, VF than) {
#if VECTOR_BYTES == 64
    return _mm512_max_ps(x, than);
#elif VECTOR_BYTES == 32
    return _mm256_max_ps(x, than);
#elif defined(__x86_64__)
    return _mm_max_ps(x, than);
#else
    return (VF)SELECT((VI)(x > than), (VI)x, (VI)than);
#endif
}

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

enum { KEYS_A_SUM = 16 }; /* are added up before they join the others: one long sum rounds several times as much */

/* `count` vectors of columns: their greatest, then the exponentials and their sum. */
TILE_INLINE bool score_columns(const ScoreBlock *b, int64_t first, const int count) {
    VF top[TILE_MAX_VECTORS], safe[TILE_MAX_VECTORS], sum[TILE_MAX_VECTORS];
    VI changed = {0};
    bool grows = false;
    TILE_UNROLL
    for (int v = 0; v < count; v++) top[v] = splat(-INFINITY);
    for (int64_t i = 0; i < b->keys; i++) {
        const float *x = b->x + i * b->stride + first;
        TILE_UNROLL
        for (int v = 0; v < count; v++) top[v] = score_greater(*(const VFLoose *)(x + v * LANES), top[v]);
    }
    TILE_UNROLL
    for (int v = 0; v < count; v++) {
        VF before = *(VFLoose *)(b->top + first + v * LANES);
        top[v] = score_greater(before, top[v]);
        *(VFLoose *)(b->top + first + v * LANES) = top[v];
        safe[v] = choose(top[v] == splat(-INFINITY), splat(0), top[v]);
        VF factor = exp_below_vector(before - safe[v]);
        *(VFLoose *)(b->factor + first + v * LANES) = factor;
        changed |= factor != splat(1);
        sum[v] = *(VFLoose *)(b->sum + first + v * LANES) * factor;
    }
    for (int64_t i = 0, end; i < b->keys;) {
        VF part[TILE_MAX_VECTORS];
        end = i + KEYS_A_SUM < b->keys ? i + KEYS_A_SUM : b->keys;
        TILE_UNROLL
        for (int v = 0; v < count; v++) part[v] = splat(0);
        for (; i < end; i++) {
            float *x = b->x + i * b->stride + first;
            TILE_UNROLL
            for (int v = 0; v < count; v++) {
                VF e = exp_below_vector(*(VFLoose *)(x + v * LANES) - safe[v]);
                *(VFLoose *)(x + v * LANES) = e;
                part[v] += e;
            }
        }
        TILE_UNROLL
        for (int v = 0; v < count; v++) sum[v] += part[v];
    }
    TILE_UNROLL
    for (int v = 0; v < count; v++) *(VFLoose *)(b->sum + first + v * LANES) = sum[v];
    for (int i = 0; i < LANES; i++) grows |= changed[i] != 0;
    return grows;
}

static bool score_softmax_columns(const ScoreBlock *b) {
    bool grows = false;
    int64_t first = 0;
    for (; first + 4 * LANES <= b->columns; first += 4 * LANES) grows |= score_columns(b, first, 4);
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

static bool score_softmax_rows(const ScoreBlock *b) {
    bool grows = false;
    for (int64_t r = 0; r < b->columns; r++) {
        float *x = b->x + r * b->stride, top = b->top[r], total = 0;
        VF most = splat(-INFINITY), sum = {0};
        for (int64_t i = 0; i < b->keys; i += LANES)
            most = score_greater(score_masked(x + i, b->keys - i, -INFINITY), most);
        for (int i = 0; i < LANES; i++) top = most[i] > top ? most[i] : top;
        VF safe = splat(top == -INFINITY ? 0 : top);
        float factor = exp_below_vector(splat(b->top[r]) - safe)[0];
        for (int64_t i = 0; i < b->keys; i += LANES) {
            VF e = exp_below_vector(score_masked(x + i, b->keys - i, -INFINITY) - safe);
            *(VFLoose *)(x + i) = e;
            sum += e;
        }
        for (int i = 0; i < LANES; i++) total += sum[i];
        b->sum[r] = b->sum[r] * factor + total;
        b->top[r] = top;
        b->factor[r] = factor;
        grows |= factor != 1;
    }
    return grows;
}

static void score_gradient(const ScoreGradient *b) {
    for (int64_t i = 0; i < b->keys; i++) {
        float *x = b->x + i * b->columns, *g = b->g + i * b->columns;
        for (int64_t j = 0; j < b->columns; j += LANES) {
            VF l = *(const VFLoose *)(b->l + j), d = *(const VFLoose *)(b->d + j);
            VF p = choose(l == splat(INFINITY), splat(0), exp_below_vector(*(VFLoose *)(x + j) - l));
            VF ds = p * (*(VFLoose *)(g + j) - d);
            if (b->slopes) ds *= *(const VFLoose *)(b->slopes + i * b->columns + j);
            *(VFLoose *)(x + j) = p;
            *(VFLoose *)(g + j) = ds;
        }
    }
}

/* rows[i][j] *= factor[i] for j < columns (whole vectors) */
static void score_scale(float *rows, int64_t count, int64_t columns, const float *factor) {
    for (int64_t i = 0; i < count; i++, rows += columns)
        for (int64_t j = 0; j < columns; j += LANES) *(VFLoose *)(rows + j) *= splat(factor[i]);
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
