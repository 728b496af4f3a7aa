/* SPDX-License-Identifier: Apache-2.0 */
/* NonMaxSuppression: a host kernel over boxes. */
#include "ops/image/image.h"

#include <math.h>
#include "lowering/gradient.h"
#include "lowering/sizes.h"

typedef struct Box {
    float low[2], high[2], area;
} Box;

typedef struct Candidate {
    float score;
    int64_t index;
} Candidate;

typedef struct Suppression {
    int64_t boxes, classes, most; /* most: boxes kept a class */
    float overlap, threshold;
    bool centred, has_threshold;
    const float *corners, *scores;
    Box *box;              /* [batches * boxes] */
    Candidate *candidates; /* [workers][boxes] */
    float *kept_boxes;     /* [workers][KEPT_NUMBERS][most] */
    int64_t *kept;         /* [batches * classes][most]: indices of boxes */
    int64_t *kept_count;   /* [batches * classes] */
} Suppression;

static Box box_of(const float *c, bool centred) {
    Box box;
    for (int k = 0; k < 2; k++) {
        float a = centred ? c[k] - c[2 + k] / 2 : c[k], b = centred ? c[k] + c[2 + k] / 2 : c[2 + k];
        bool ordered = centred || a <= b;
        box.low[k] = ordered ? a : b;
        box.high[k] = ordered ? b : a;
    }
    box.area = (box.high[0] - box.low[0]) * (box.high[1] - box.low[1]);
    return box;
}

/* Boxes that are kept, each number of all of them in a row. */
typedef struct Kept {
    float *low[2], *high[2], *area; /* [room] */
} Kept;

enum { KEPT_NUMBERS = 5, TOGETHER = 16 };

/* memory: KEPT_NUMBERS rows. */
static Kept kept_in(float *memory, int64_t room) {
    return (Kept){{memory, memory + room}, {memory + 2 * room, memory + 3 * room}, memory + 4 * room};
}

static void keep(Kept *kept, int64_t at, const Box *box) {
    for (int k = 0; k < 2; k++) kept->low[k][at] = box->low[k], kept->high[k][at] = box->high[k];
    kept->area[at] = box->area;
}

/* Whether the box shares more than `limit` of what both cover with one of `count` kept ones. Without branches within some of them, so that
 * they are compared by vectors. */
VECTORISED static bool overlaps_any(const Kept *kept, int64_t count, const Box *box, float limit) {
    const Box b = *box;
    for (int64_t first = 0; first < count; first += TOGETHER) {
        const int64_t end = count - first < TOGETHER ? count : first + TOGETHER;
        int more = 0;
        for (int64_t i = first; i < end; i++) {
            const float low0 = b.low[0] > kept->low[0][i] ? b.low[0] : kept->low[0][i],
                        low1 = b.low[1] > kept->low[1][i] ? b.low[1] : kept->low[1][i],
                        high0 = b.high[0] < kept->high[0][i] ? b.high[0] : kept->high[0][i],
                        high1 = b.high[1] < kept->high[1][i] ? b.high[1] : kept->high[1][i];
            const float shared = (high0 - low0) * (high1 - low1), together = b.area + kept->area[i] - shared;
            more |= (high0 > low0) & (high1 > low1) & (b.area > 0) & (kept->area[i] > 0) & (together > 0) &
                    (shared / together > limit);
        }
        if (more) return true;
    }
    return false;
}

/* Best score first, equal scores in the boxes' order. */
static bool better(Candidate a, Candidate b) { return a.score != b.score ? a.score > b.score : a.index < b.index; }

/* Restores the heap whose root is the best, below `at`. */
static void sink(Candidate *heap, int64_t count, int64_t at) {
    Candidate moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && better(heap[child + 1], heap[child])) child++;
        if (!better(heap[child], moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void suppress_classes(void *context, int64_t begin, int64_t end, int worker) {
    const Suppression *s = context;
    Candidate *candidates = s->candidates + worker * s->boxes;
    Kept taken = kept_in(s->kept_boxes + worker * KEPT_NUMBERS * s->most, s->most);
    for (int64_t c = begin; c < end; c++) {
        const Box *boxes = s->box + c / s->classes * s->boxes;
        int64_t *kept = s->kept + c * s->most, count = 0, chosen = 0;
        for (int64_t i = 0; i < s->boxes; i++) {
            float score = s->scores[c * s->boxes + i];
            if (score != score || (s->has_threshold && !(score > s->threshold))) continue;
            candidates[count++] = (Candidate){score, i};
        }
        for (int64_t at = count / 2; count && at >= 0; at--) sink(candidates, count, at);
        while (count && chosen < s->most) {
            int64_t best = candidates[0].index;
            candidates[0] = candidates[--count];
            if (count) sink(candidates, count, 0);
            if (overlaps_any(&taken, chosen, &boxes[best], s->overlap)) continue;
            keep(&taken, chosen, &boxes[best]);
            kept[chosen++] = best;
        }
        s->kept_count[c] = chosen;
    }
}

static double number_of(const Tensor *t, double otherwise) {
    return t && tensor_count(t) > 0 ? dtype_load_double(t->dtype, t->data, 0) : otherwise;
}

static Status write_kept(HostCall *call, const Suppression *s, int64_t groups) {
    int64_t total = 0;
    Tensor *y;
    for (int64_t c = 0; c < groups; c++) total += s->kept_count[c];
    TRY(host_output(call, 0, DT_I64, 2, (int64_t[]){total, 3}, &y));
    if (!y) return NULL;
    int64_t *to = y->data;
    for (int64_t c = 0; c < groups; c++)
        for (int64_t i = 0; i < s->kept_count[c]; i++) {
            *to++ = c / s->classes;
            *to++ = c % s->classes;
            *to++ = s->kept[c * s->most + i];
        }
    return NULL;
}

Status host_non_max_suppression(HostCall *call) {
    const Tensor *boxes, *scores, *most = host_input(call, 2), *overlap = host_input(call, 3),
                                  *threshold = host_input(call, 4);
    TRY(host_tensor(call, 0, DT_F32, &boxes));
    TRY(host_tensor(call, 1, DT_F32, &scores));
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 || boxes->dims[0] != scores->dims[0] ||
        boxes->dims[1] != scores->dims[2])
        return host_error(call, "boxes and scores do not fit together");
    Suppression s = {
        .boxes = boxes->dims[1], .classes = scores->dims[1], .corners = boxes->data, .scores = scores->data};
    int64_t wanted = most && tensor_count(most) > 0 ? dtype_load_int(most->dtype, most->data, 0) : 0;
    int64_t groups = boxes->dims[0] * s.classes;
    s.most = wanted < 0 ? 0 : wanted > s.boxes ? s.boxes : wanted;
    s.overlap = (float)number_of(overlap, 0);
    s.has_threshold = threshold && tensor_count(threshold) > 0;
    s.threshold = (float)number_of(threshold, 0);
    s.centred = attr_int(call->node, "center_point_box", 0) != 0;
    s.box = ARENA_ARRAY(call->arena, Box, boxes->dims[0] * s.boxes);
    s.candidates =
        arena_array(call->arena, (size_t)pool_threads(call->pool), (size_t)s.boxes * sizeof *s.candidates + 1);
    s.kept_boxes = arena_array(call->arena, (size_t)pool_threads(call->pool),
                               (size_t)s.most * KEPT_NUMBERS * sizeof *s.kept_boxes + 1);
    s.kept = arena_array(call->arena, (size_t)groups, (size_t)s.most * sizeof *s.kept + 1);
    s.kept_count = ARENA_ARRAY(call->arena, int64_t, groups);
    for (int64_t i = 0; i < boxes->dims[0] * s.boxes; i++) s.box[i] = box_of(s.corners + 4 * i, s.centred);
    if (s.most) pool_for(call->pool, groups, 1, suppress_classes, &s);
    return write_kept(call, &s, groups);
}

Status lower_non_max_suppression(Lowering *l, const Node *n) {
    Value *inputs[5] = {in(l, n, 0), in(l, n, 1), optional_in(l, n, 2), optional_in(l, n, 3), optional_in(l, n, 4)};
    if (l->error) return l->error;
    if (inputs[0]->rank != 3 || inputs[1]->rank != 3)
        return invalid(l, "boxes have rank %d, scores %d; both need 3", inputs[0]->rank, inputs[1]->rank);
    for (int i = 0; i < 2; i++) inputs[i] = cast(l, inputs[i], DT_F32);
    if (l->error) return l->error;
    const Dim *dims[] = {dim_fresh(l->dims, "selected"), size_const(l, 3)};
    return out(l, n, 0, host_result(l, host_node(l, n, host_non_max_suppression, inputs, 5), DT_I64, 2, dims));
}
