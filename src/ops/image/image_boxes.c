/* SPDX-License-Identifier: Apache-2.0 */
/* RoiAlign and NonMaxSuppression: host kernels over boxes. */
#include "ops/image/image.h"

#include <math.h>
#include "lowering/gradient.h"
#include "lowering/sizes.h"

/* ---- RoiAlign ---- */

typedef struct RoiAlign {
    int64_t height, width, channels, out[2], sampling;
    float scale;
    bool half_pixel, maximum;
    const float *x, *rois; /* x [N, height, width, channels] */
    const int64_t *images;
    float *y; /* [rois, out, out, channels] */
} RoiAlign;

enum { MOST_SAMPLES = 1 << 12 }; /* a side of a bin; a region that would need more is refused */

typedef struct Region {
    float start[2], bin[2]; /* y, x */
    int64_t grid[2];        /* samples a bin */
} Region;

static Region region_of(const RoiAlign *r, int64_t i) {
    const float *roi = r->rois + 4 * i; /* x1, y1, x2, y2 */
    float offset = r->half_pixel ? 0.5f : 0;
    Region region;
    for (int k = 0; k < 2; k++) {
        float start = roi[1 - k] * r->scale - offset, length = roi[3 - k] * r->scale - offset - start;
        if (!r->half_pixel && !(length >= 1)) length = 1;
        region.start[k] = start;
        region.bin[k] = length / (float)r->out[k];
        float grid = r->sampling > 0 ? (float)r->sampling : ceilf(region.bin[k]);
        region.grid[k] = grid >= 0 && grid <= MOST_SAMPLES ? (int64_t)grid : -1;
    }
    return region;
}

/* Clamps a position to [0, size - 1] and splits it to two cells and the second's weight; false when it lies outside. */
static bool split(float at, int64_t size, int64_t *low, int64_t *high, float *fraction) {
    if (!(at >= -1 && at <= (float)size)) return false;
    if (at < 0) at = 0;
    *low = (int64_t)at;
    *high = *low + 1;
    if (*low >= size - 1) {
        *low = *high = size - 1;
        at = (float)*low;
    }
    *fraction = at - (float)*low;
    return true;
}

VECTORISED static void add_bilinear(const float *const *corner, const float *weight, float *y, int64_t n) {
    const float *a = corner[0], *b = corner[1], *c = corner[2], *d = corner[3];
    for (int64_t i = 0; i < n; i++) y[i] += weight[0] * a[i] + weight[1] * b[i] + weight[2] * c[i] + weight[3] * d[i];
}

/* The maximum is over the weighed corners, as the operator has always been computed. */
static void max_bilinear(const float *const *corner, const float *weight, bool first, float *y, int64_t n) {
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < n; i++) {
            float value = weight[k] * corner[k][i];
            if ((first && k == 0) || value > y[i]) y[i] = value;
        }
}

/* The cells of x around sample s of a bin, as numbers of rows of channels in their image, and their weights, which are 0 where it lies
 * outside; false: it does. */
static bool sample_of(const RoiAlign *r, const Region *region, int64_t bin, int64_t s, int64_t *corner, float *weight) {
    int64_t cell[] = {s / region->grid[1], s % region->grid[1]}, y0 = 0, y1 = 0, x0 = 0, x1 = 0;
    float at[2], fy = 0, fx = 0;
    for (int k = 0; k < 2; k++)
        at[k] = region->start[k] + (float)(k ? bin % r->out[1] : bin / r->out[1]) * region->bin[k] +
                ((float)cell[k] + 0.5f) * region->bin[k] / (float)region->grid[k];
    bool inside = split(at[0], r->height, &y0, &y1, &fy) && split(at[1], r->width, &x0, &x1, &fx);
    const int64_t corners[] = {y0 * r->width + x0, y0 * r->width + x1, y1 * r->width + x0, y1 * r->width + x1};
    const float weights[] = {(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx};
    for (int k = 0; k < 4; k++) {
        corner[k] = corners[k];
        weight[k] = inside ? weights[k] : 0;
    }
    return inside;
}

static void align_bin(const RoiAlign *r, const Region *region, int64_t image, int64_t bin, float *y) {
    const float *x = r->x + image * r->height * r->width * r->channels;
    int64_t samples = region->grid[0] * region->grid[1], place[4];
    float weight[4];
    for (int64_t i = 0; i < r->channels; i++) y[i] = 0;
    for (int64_t s = 0; s < samples; s++) {
        if (!sample_of(r, region, bin, s, place, weight) && !r->maximum) continue;
        const float *corner[] = {x + place[0] * r->channels, x + place[1] * r->channels, x + place[2] * r->channels,
                                 x + place[3] * r->channels};
        if (r->maximum)
            max_bilinear(corner, weight, s == 0, y, r->channels);
        else
            add_bilinear(corner, weight, y, r->channels);
    }
    float share = r->maximum || !samples ? 1 : 1 / (float)samples;
    for (int64_t i = 0; i < r->channels; i++) y[i] *= share;
}

static void align_regions(void *context, int64_t begin, int64_t end, int worker) {
    const RoiAlign *r = context;
    int64_t bins = r->out[0] * r->out[1];
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        Region region = region_of(r, i);
        for (int64_t b = 0; b < bins; b++) align_bin(r, &region, r->images[i], b, r->y + (i * bins + b) * r->channels);
    }
}

/* The inputs x, rois and images, checked. */
static Status roi_align_of(HostCall *call, RoiAlign *out_roi) {
    const Tensor *x, *rois, *images;
    TRY(host_tensor(call, 0, DT_F32, &x));
    TRY(host_tensor(call, 1, DT_F32, &rois));
    TRY(host_tensor(call, 2, DT_I64, &images));
    if (x->rank != 4 || rois->rank != 2 || rois->dims[1] != 4 || images->rank != 1 || images->dims[0] != rois->dims[0])
        return host_error(call, "the regions do not fit together");
    RoiAlign r = {x->dims[1],
                  x->dims[2],
                  x->dims[3],
                  {attr_int(call->node, "output_height", 1), attr_int(call->node, "output_width", 1)},
                  attr_int(call->node, "sampling_ratio", 0)};
    r.scale = (float)attr_float(call->node, "spatial_scale", 1);
    r.half_pixel = attr_int(call->node, "half_pixel", 0) != 0;
    r.maximum = strcmp(attr_string(call->node, "mode", "avg"), "max") == 0;
    r.x = x->data, r.rois = rois->data, r.images = images->data;
    for (int64_t i = 0; i < rois->dims[0]; i++) {
        Region region = region_of(&r, i);
        if (r.images[i] < 0 || r.images[i] >= x->dims[0])
            return host_error(call, "region %lld names image %lld, which is out of range", (long long)i,
                              (long long)r.images[i]);
        if (region.grid[0] < 0 || region.grid[1] < 0 || !r.height || !r.width)
            return host_error(call, "region %lld is out of range", (long long)i);
    }
    *out_roi = r;
    return NULL;
}

Status host_roi_align(HostCall *call) {
    RoiAlign r;
    Tensor *y;
    TRY(roi_align_of(call, &r));
    int64_t count = host_input(call, 1)->dims[0];
    TRY(host_output(call, 0, DT_F32, 4, (int64_t[]){count, r.out[0], r.out[1], r.channels}, &y));
    if (!y) return NULL;
    r.y = y->data;
    pool_for(call->pool, count, 1, align_regions, &r);
    return NULL;
}

enum { BLOCK = 16 }; /* channels that one task adds to: regions share cells */

typedef struct RoiGradient {
    RoiAlign r;
    const float *dy;
    float *dx;
    int64_t regions, cells; /* cells: of all images */
} RoiGradient;

/* Back to the corners of all samples, or for each channel to the one that is the maximum: the first of these. */
static void give_bin(const RoiGradient *b, const Region *region, int64_t image, int64_t bin, const float *dy,
                     int64_t from, int64_t count) {
    const RoiAlign *r = &b->r;
    int64_t samples = region->grid[0] * region->grid[1], corner[4], best[BLOCK] = {0};
    int64_t first = image * r->height * r->width;
    float weight[4], most[BLOCK] = {0}, share[BLOCK] = {0};
    for (int64_t s = 0; s < samples; s++) {
        if (!sample_of(r, region, bin, s, corner, weight) && !r->maximum) continue;
        for (int k = 0; k < 4; k++) {
            int64_t at = (first + corner[k]) * r->channels + from;
            for (int64_t i = 0; i < count; i++) {
                float value = weight[k] * r->x[at + i];
                if (!r->maximum)
                    b->dx[at + i] += weight[k] / (float)samples * dy[i];
                else if ((s == 0 && k == 0) || value > most[i])
                    most[i] = value, best[i] = at + i, share[i] = weight[k];
            }
        }
    }
    for (int64_t i = 0; r->maximum && samples && i < count; i++) b->dx[best[i]] += share[i] * dy[i];
}

static void give_regions(void *context, int64_t begin, int64_t end, int worker) {
    const RoiGradient *b = context;
    int64_t channels = b->r.channels, bins = b->r.out[0] * b->r.out[1];
    (void)worker;
    for (int64_t task = begin; task < end; task++) {
        int64_t from = task * BLOCK, count = channels - from < BLOCK ? channels - from : BLOCK;
        for (int64_t i = 0; i < b->cells; i++) memset(b->dx + i * channels + from, 0, (size_t)count * sizeof *b->dx);
        for (int64_t i = 0; i < b->regions; i++) {
            Region region = region_of(&b->r, i);
            for (int64_t bin = 0; bin < bins; bin++)
                give_bin(b, &region, b->r.images[i], bin, b->dy + (i * bins + bin) * channels + from, from, count);
        }
    }
}

/* Inputs x, rois, images and dy; the gradient of x. */
Status host_roi_align_gradient(HostCall *call) {
    RoiGradient b;
    const Tensor *x = host_input(call, 0), *dy;
    Tensor *dx;
    TRY(roi_align_of(call, &b.r));
    TRY(host_tensor(call, 3, DT_F32, &dy));
    b.regions = host_input(call, 1)->dims[0];
    b.cells = x->dims[0] * b.r.height * b.r.width;
    if (tensor_count(dy) != b.regions * b.r.out[0] * b.r.out[1] * b.r.channels)
        return host_error(call, "the gradient does not fit the regions");
    TRY(host_output(call, 0, DT_F32, 4, x->dims, &dx));
    if (!dx) return NULL;
    b.dy = dy->data, b.dx = dx->data;
    pool_for(call->pool, (b.r.channels + BLOCK - 1) / BLOCK, 1, give_regions, &b);
    return NULL;
}

/* To the image alone. The regions are taken as given, as where the operator comes from: they are proposals, trained by a loss of their own (He et
 * al., "Mask R-CNN", 2017, sections 3 and 3.1). */
void back_roi_align(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *inputs[] = {n->inputs[0], n->inputs[1], n->inputs[2], dy(w, n, 0)};
    Node *node = backward_host(w, n, "RoiAlignGradient", host_roi_align_gradient, inputs, 4);
    give(w, n, 0, host_result_like(l, node, n->inputs[0]));
}

/* With respect to dy: averages are linear, so that it is RoiAlign. */
void back_roi_align_gradient(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *inputs[] = {dy(w, n, 0), n->inputs[1], n->inputs[2]};
    if (strcmp(attr_string(n, "mode", "avg"), "max") == 0) unsupported(l, "the gradient of the gradient of maxima");
    give(w, n, 3, host_result_like(l, backward_host(w, n, "RoiAlign", host_roi_align, inputs, 3), n->inputs[3]));
}

/* Before version 16 positions were not shifted by half a pixel (ONNX RoiAlign-16, coordinate_transformation_mode). */
Status lower_roi_align(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *rois = in(l, n, 1), *images = in(l, n, 2);
    if (!x || !rois || !images) return l->error;
    const char *mode = attr_string(n, "mode", "avg");
    const char *shift =
        attr_string(n, "coordinate_transformation_mode", n->opset < 16 ? "output_half_pixel" : "half_pixel");
    int64_t height = attr_int(n, "output_height", 1), width = attr_int(n, "output_width", 1),
            sampling = attr_int(n, "sampling_ratio", 0);
    if (x->rank != 4 || rois->rank != 2 || images->rank != 1)
        return invalid(l, "the inputs have ranks %d, %d and %d", x->rank, rois->rank, images->rank);
    if (height < 1 || width < 1 || height > INT32_MAX || width > INT32_MAX || sampling < 0 || sampling > MOST_SAMPLES)
        return invalid(l, "output_height, output_width or sampling_ratio is out of range");
    if (strcmp(mode, "avg") != 0 && strcmp(mode, "max") != 0) return invalid(l, "mode \"%s\" is not known", mode);
    Value *inputs[] = {to_channels_last(l, cast(l, x, DT_F32)), cast(l, rois, DT_F32), cast(l, images, DT_I64)};
    if (l->error) return l->error;
    Node *host = host_node(l, n, host_roi_align, inputs, 3);
    node_set_int(host, "half_pixel", strcmp(shift, "half_pixel") == 0);
    const Dim *dims[] = {rois->dims[0], size_const(l, height), size_const(l, width), x->dims[1]};
    return out(l, n, 0, cast_like(l, from_channels_last(l, host_result(l, host, DT_F32, 4, dims)), x));
}

/* ---- NonMaxSuppression ---- */

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

static bool overlap_more(const Box *a, const Box *b, float limit) {
    float shared = 1;
    for (int k = 0; k < 2; k++) {
        float low = a->low[k] > b->low[k] ? a->low[k] : b->low[k],
              high = a->high[k] < b->high[k] ? a->high[k] : b->high[k];
        if (!(high > low)) return false;
        shared *= high - low;
    }
    float together = a->area + b->area - shared;
    return a->area > 0 && b->area > 0 && together > 0 && shared / together > limit;
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
            bool free = true;
            candidates[0] = candidates[--count];
            if (count) sink(candidates, count, 0);
            for (int64_t k = 0; free && k < chosen; k++)
                free = !overlap_more(&boxes[best], &boxes[kept[k]], s->overlap);
            if (free) kept[chosen++] = best;
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
