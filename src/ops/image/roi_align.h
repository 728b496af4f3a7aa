/* SPDX-License-Identifier: Apache-2.0 */
/* RoiAlign and its gradient in one precision, that of places between elements too; included by image_roi.c with REAL (the type), TYPE (its DType)
 * and NAMED(x) (x_f32, x_f64) set. */

typedef struct NAMED(RoiAlign) {
    int64_t height, width, channels, out[2], sampling;
    REAL scale;
    bool half_pixel, maximum;
    const REAL *x, *rois; /* x [N, height, width, channels] */
    const int64_t *images;
    REAL *y; /* [rois, out, out, channels] */
} NAMED(RoiAlign);

typedef struct NAMED(Region) {
    REAL start[2], bin[2]; /* y, x */
    int64_t grid[2];       /* samples a bin */
} NAMED(Region);

static NAMED(Region) NAMED(region_of)(const NAMED(RoiAlign) * r, int64_t i) {
    const REAL *roi = r->rois + 4 * i; /* x1, y1, x2, y2 */
    REAL offset = r->half_pixel ? (REAL)0.5 : 0;
    NAMED(Region) region;
    for (int k = 0; k < 2; k++) {
        REAL start = roi[1 - k] * r->scale - offset, length = roi[3 - k] * r->scale - offset - start;
        if (!r->half_pixel && !(length >= 1)) length = 1;
        region.start[k] = start;
        region.bin[k] = length / (REAL)r->out[k];
        REAL grid = r->sampling > 0 ? (REAL)r->sampling : (REAL)ceil((double)region.bin[k]);
        region.grid[k] = grid >= 0 && grid <= MOST_SAMPLES ? (int64_t)grid : -1;
    }
    return region;
}

/* Clamps a position to [0, size - 1] and splits it to two cells and the second's weight; false when it lies outside. */
static bool NAMED(split)(REAL at, int64_t size, int64_t *low, int64_t *high, REAL *fraction) {
    if (!(at >= -1 && at <= (REAL)size)) return false;
    if (at < 0) at = 0;
    *low = (int64_t)at;
    *high = *low + 1;
    if (*low >= size - 1) {
        *low = *high = size - 1;
        at = (REAL)*low;
    }
    *fraction = at - (REAL)*low;
    return true;
}

VECTORISED static void NAMED(add_bilinear)(const REAL *const *corner, const REAL *weight, REAL *y, int64_t n) {
    const REAL *a = corner[0], *b = corner[1], *c = corner[2], *d = corner[3];
    for (int64_t i = 0; i < n; i++) y[i] += weight[0] * a[i] + weight[1] * b[i] + weight[2] * c[i] + weight[3] * d[i];
}

/* The maximum is over the weighed corners, as the operator has always been computed. */
static void NAMED(max_bilinear)(const REAL *const *corner, const REAL *weight, bool first, REAL *y, int64_t n) {
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < n; i++) {
            REAL value = weight[k] * corner[k][i];
            if ((first && k == 0) || value > y[i]) y[i] = value;
        }
}

/* The cells of x around sample s of a bin, as numbers of rows of channels in their image, and their weights, which are 0 where it lies
 * outside; false: it does. */
static bool NAMED(sample_of)(const NAMED(RoiAlign) * r, const NAMED(Region) * region, int64_t bin, int64_t s,
                             int64_t *corner, REAL *weight) {
    int64_t cell[] = {s / region->grid[1], s % region->grid[1]}, y0 = 0, y1 = 0, x0 = 0, x1 = 0;
    REAL at[2], fy = 0, fx = 0;
    for (int k = 0; k < 2; k++)
        at[k] = region->start[k] + (REAL)(k ? bin % r->out[1] : bin / r->out[1]) * region->bin[k] +
                ((REAL)cell[k] + (REAL)0.5) * region->bin[k] / (REAL)region->grid[k];
    bool inside = NAMED(split)(at[0], r->height, &y0, &y1, &fy) && NAMED(split)(at[1], r->width, &x0, &x1, &fx);
    const int64_t corners[] = {y0 * r->width + x0, y0 * r->width + x1, y1 * r->width + x0, y1 * r->width + x1};
    const REAL weights[] = {(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx};
    for (int k = 0; k < 4; k++) {
        corner[k] = corners[k];
        weight[k] = inside ? weights[k] : 0;
    }
    return inside;
}

static void NAMED(align_bin)(const NAMED(RoiAlign) * r, const NAMED(Region) * region, int64_t image, int64_t bin,
                             REAL *y) {
    const REAL *x = r->x + image * r->height * r->width * r->channels;
    int64_t samples = region->grid[0] * region->grid[1], place[4];
    REAL weight[4];
    for (int64_t i = 0; i < r->channels; i++) y[i] = 0;
    for (int64_t s = 0; s < samples; s++) {
        if (!NAMED(sample_of)(r, region, bin, s, place, weight) && !r->maximum) continue;
        const REAL *corner[] = {x + place[0] * r->channels, x + place[1] * r->channels, x + place[2] * r->channels,
                                x + place[3] * r->channels};
        if (r->maximum)
            NAMED(max_bilinear)(corner, weight, s == 0, y, r->channels);
        else
            NAMED(add_bilinear)(corner, weight, y, r->channels);
    }
    REAL share = r->maximum || !samples ? 1 : 1 / (REAL)samples;
    for (int64_t i = 0; i < r->channels; i++) y[i] *= share;
}

static void NAMED(align_regions)(void *context, int64_t begin, int64_t end, int worker) {
    const NAMED(RoiAlign) *r = context;
    int64_t bins = r->out[0] * r->out[1];
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        NAMED(Region) region = NAMED(region_of)(r, i);
        for (int64_t b = 0; b < bins; b++)
            NAMED(align_bin)(r, &region, r->images[i], b, r->y + (i * bins + b) * r->channels);
    }
}

/* The inputs x, rois and images, checked. */
static Status NAMED(roi_align_of)(HostCall *call, NAMED(RoiAlign) * out_roi) {
    const Tensor *x, *rois, *images;
    TRY(host_tensor(call, 0, TYPE, &x));
    TRY(host_tensor(call, 1, TYPE, &rois));
    TRY(host_tensor(call, 2, DT_I64, &images));
    if (x->rank != 4 || rois->rank != 2 || rois->dims[1] != 4 || images->rank != 1 || images->dims[0] != rois->dims[0])
        return host_error(call, "the regions do not fit together");
    NAMED(RoiAlign)
    r = {x->dims[1],
         x->dims[2],
         x->dims[3],
         {attr_int(call->node, "output_height", 1), attr_int(call->node, "output_width", 1)},
         attr_int(call->node, "sampling_ratio", 0)};
    r.scale = (REAL)attr_float(call->node, "spatial_scale", 1);
    r.half_pixel = attr_int(call->node, "half_pixel", 0) != 0;
    r.maximum = strcmp(attr_string(call->node, "mode", "avg"), "max") == 0;
    r.x = x->data, r.rois = rois->data, r.images = images->data;
    for (int64_t i = 0; i < rois->dims[0]; i++) {
        NAMED(Region) region = NAMED(region_of)(&r, i);
        if (r.images[i] < 0 || r.images[i] >= x->dims[0])
            return host_error(call, "region %lld names image %lld, which is out of range", (long long)i,
                              (long long)r.images[i]);
        if (region.grid[0] < 0 || region.grid[1] < 0 || !r.height || !r.width)
            return host_error(call, "region %lld is out of range", (long long)i);
    }
    *out_roi = r;
    return NULL;
}

static Status NAMED(host_roi_align)(HostCall *call) {
    NAMED(RoiAlign) r;
    Tensor *y;
    TRY(NAMED(roi_align_of)(call, &r));
    int64_t count = host_input(call, 1)->dims[0];
    TRY(host_output(call, 0, TYPE, 4, (int64_t[]){count, r.out[0], r.out[1], r.channels}, &y));
    if (!y) return NULL;
    r.y = y->data;
    pool_for(call->pool, count, 1, NAMED(align_regions), &r);
    return NULL;
}

typedef struct NAMED(RoiGradient) {
    NAMED(RoiAlign) r;
    const REAL *dy;
    REAL *dx;
    int64_t regions, cells; /* cells: of all images */
} NAMED(RoiGradient);

/* Back to the corners of all samples, or for each channel to the one that is the maximum: the first of these. */
static void NAMED(give_bin)(const NAMED(RoiGradient) * b, const NAMED(Region) * region, int64_t image, int64_t bin,
                            const REAL *dy, int64_t from, int64_t count) {
    const NAMED(RoiAlign) *r = &b->r;
    int64_t samples = region->grid[0] * region->grid[1], corner[4], best[BLOCK] = {0};
    int64_t first = image * r->height * r->width;
    REAL weight[4], most[BLOCK] = {0}, share[BLOCK] = {0};
    for (int64_t s = 0; s < samples; s++) {
        if (!NAMED(sample_of)(r, region, bin, s, corner, weight) && !r->maximum) continue;
        for (int k = 0; k < 4; k++) {
            int64_t at = (first + corner[k]) * r->channels + from;
            for (int64_t i = 0; i < count; i++) {
                REAL value = weight[k] * r->x[at + i];
                if (!r->maximum)
                    b->dx[at + i] += weight[k] / (REAL)samples * dy[i];
                else if ((s == 0 && k == 0) || value > most[i])
                    most[i] = value, best[i] = at + i, share[i] = weight[k];
            }
        }
    }
    for (int64_t i = 0; r->maximum && samples && i < count; i++) b->dx[best[i]] += share[i] * dy[i];
}

static void NAMED(give_regions)(void *context, int64_t begin, int64_t end, int worker) {
    const NAMED(RoiGradient) *b = context;
    int64_t channels = b->r.channels, bins = b->r.out[0] * b->r.out[1];
    (void)worker;
    for (int64_t task = begin; task < end; task++) {
        int64_t from = task * BLOCK, count = channels - from < BLOCK ? channels - from : BLOCK;
        for (int64_t i = 0; i < b->cells; i++) memset(b->dx + i * channels + from, 0, (size_t)count * sizeof *b->dx);
        for (int64_t i = 0; i < b->regions; i++) {
            NAMED(Region) region = NAMED(region_of)(&b->r, i);
            for (int64_t bin = 0; bin < bins; bin++) {
                const REAL *dy = b->dy + (i * bins + bin) * channels + from;
                NAMED(give_bin)(b, &region, b->r.images[i], bin, dy, from, count);
            }
        }
    }
}

/* Inputs x, rois, images and dy; the gradient of x. */
static Status NAMED(host_roi_align_gradient)(HostCall *call) {
    NAMED(RoiGradient) b;
    const Tensor *x = host_input(call, 0), *dy;
    Tensor *dx;
    TRY(NAMED(roi_align_of)(call, &b.r));
    TRY(host_tensor(call, 3, TYPE, &dy));
    b.regions = host_input(call, 1)->dims[0];
    b.cells = x->dims[0] * b.r.height * b.r.width;
    if (tensor_count(dy) != b.regions * b.r.out[0] * b.r.out[1] * b.r.channels)
        return host_error(call, "the gradient does not fit the regions");
    TRY(host_output(call, 0, TYPE, 4, x->dims, &dx));
    if (!dx) return NULL;
    b.dy = dy->data, b.dx = dx->data;
    pool_for(call->pool, (b.r.channels + BLOCK - 1) / BLOCK, 1, NAMED(give_regions), &b);
    return NULL;
}

#undef REAL
#undef TYPE
#undef NAMED
