/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and transposed ones, channels last, of 1 to 3 spatial axes: preparation, checks of sizes, runs. walk.h
 * says how they become products. */
#include <limits.h>
#include <string.h>
#include "runtime/device/cpu/conv/walk.h"
#include "runtime/device/cpu/quads.h"
#include "runtime/device/cpu/row_parts.h"
#include "runtime/device/matmul_shape.h"

static int64_t product3(const int64_t *v) { return v[0] * v[1] * v[2]; }

/* ---- attributes and the weight's shape ---- */

static Status read_attributes(const CpuAnchor *anchor, int spatial, Conv *c) {
    int strides, dilations, pads;
    const int64_t *s = attr_ints(anchor->node, "strides", &strides),
                  *d = attr_ints(anchor->node, "dilations", &dilations);
    *c = (Conv){.transposed = anchor->kind == &conv_transpose_kind,
                .spatial = spatial,
                .group = attr_int(anchor->node, "group", 1),
                .pads = attr_dims(anchor->node, "pads", &pads),
                .tiled = 1,
                .turned = node_attr(anchor->node, "perm_x") || node_attr(anchor->node, "perm_w")};
    if (c->turned && (c->transposed || c->group != 1 || anchor->dtype == DT_U8))
        return anchor_wrong(anchor, "only ordinary convolutions of one group read turned tensors");
    if (spatial < 1 || spatial > AXES || strides != spatial || dilations != spatial || pads != 2 * spatial ||
        c->group < 1)
        return anchor_wrong(anchor, "attributes and ranks do not fit together");
    if (anchor->dtype == DT_U8) c->padding = (uint32_t)(attr_int(anchor->node, PAD_VALUE, 0) & 255) * 0x01010101u;
    for (int i = 0; i < AXES; i++) {
        int from = i - (AXES - spatial);
        c->strides[i] = from < 0 ? 1 : s[from];
        c->dilations[i] = from < 0 ? 1 : d[from];
        if (c->strides[i] < 1 || c->dilations[i] < 1 || c->strides[i] > MOST_STEP || c->dilations[i] > MOST_STEP)
            return anchor_wrong(anchor, "a stride or a dilation is out of range");
    }
    return NULL;
}

/* A transposed convolution's weight does not lie in lines of columns. */
static bool goes_along_lines(const CpuAnchor *anchor, const Conv *c) {
    return depthwise_groups(c->inputs) != LINE_ANY && !c->transposed && anchor->type == DT_F32 &&
           anchor->dtype != DT_U8;
}

static Status read_weight_shape(const CpuAnchor *anchor, const Tensor *w, Conv *c) {
    if (w->rank != c->spatial + 2) return anchor_wrong(anchor, "attributes and ranks do not fit together");
    int64_t total = 1, dims[MAX_RANK], steps[MAX_RANK];
    TRY(matmul_permuted(anchor->node, "perm_w", w->rank, w->dims, dims, steps));
    memcpy(c->weight_steps, steps, 2 * sizeof *steps);
    for (int i = 0; i < AXES; i++) {
        int from = i - (AXES - c->spatial);
        c->kernel[i] = from < 0 ? 1 : dims[2 + from];
        c->weight_steps[2 + i] = from < 0 ? 0 : steps[2 + from];
        if (c->kernel[i] < 0 || c->kernel[i] > INT_MAX || __builtin_mul_overflow(total, c->kernel[i], &total) ||
            total > INT_MAX)
            return anchor_wrong(anchor, "the kernel's size is out of range");
    }
    if (dims[0] < 0 || dims[1] < 0 || dims[0] % c->group)
        return anchor_wrong(anchor, "the weight's channels do not divide into the groups");
    c->inputs = c->transposed ? dims[0] / c->group : dims[1];
    c->outputs = c->transposed ? dims[1] : dims[0] / c->group;
    c->depthwise = c->group > 1 && c->inputs == c->outputs && (c->inputs == 1 || goes_along_lines(anchor, c));
    c->channels = c->inputs * c->group;
    return NULL;
}

/* Of a constant weight, where groups are of whole quads and nothing else is done with the numbers. */
static void take_quads(const CpuAnchor *anchor, Conv *c) {
    int quads = anchor_quads(anchor);
    if (!quads || (c->winograd && quads != QUAD) || c->depthwise || (c->group > 1 && c->inputs % quads)) return;
    c->quads = quads;
    c->inputs = quads_in(c->inputs, QUAD / quads);
}

/* Whether lines are tiled (Conv.tiled) whatever the input's size. */
static bool tiles_lines(const Node *node, const Conv *c) {
    int count, last = c->spatial;
    const Dim *const *pads = attr_dims(node, "pads", &count);
    const Value *x = node->inputs[0], *y = node->outputs[0];
    if (!c->transposed || c->group != 1 || c->kernel[AXES - 1] != c->strides[AXES - 1] || c->dilations[AXES - 1] != 1)
        return false;
    if (!dim_equals(pads[last - 1], 0) || !dim_equals(pads[2 * last - 1], 0) || x->rank != last + 2 ||
        y->rank != x->rank)
        return false;
    DimTable *dims = node->graph->dims;
    return dim_mul(dims, x->dims[last], dim_const(dims, c->strides[AXES - 1])) == y->dims[last];
}

/* ---- phases ---- */

/* Memory of phases: of the anchor when the weight is constant, else of the run. */
typedef struct PhaseMemory {
    CpuAnchor *anchor;
    Scratch *scratch; /* not NULL: a run */
} PhaseMemory;

static Status phase_allocate(const PhaseMemory *memory, size_t bytes, void **out_data) {
    return memory->scratch ? scratch_take(memory->scratch, bytes, out_data)
                           : anchor_allocate(memory->anchor, bytes, out_data);
}

typedef struct AxisPhases {
    PhaseAxis *items;
    int64_t count;
} AxisPhases;

/* Taps whose tap * dilation leaves the same remainder by the stride, which comes again after stride / gcd(stride,
 * dilation) taps. */
static Status axis_phases(const PhaseMemory *memory, const Conv *c, int axis, AxisPhases *out) {
    int64_t kernel = c->kernel[axis], dilation = c->dilations[axis], stride = c->transposed ? c->strides[axis] : 1;
    if (axis == AXES - 1 && c->tiled > 1) kernel = 1; /* the others are columns */
    int64_t period = stride / common_divisor(stride, dilation);
    void *items;
    TRY(phase_allocate(memory, (size_t)(kernel ? kernel : 1) * (sizeof(PhaseAxis) + sizeof(int64_t)), &items));
    out->items = items;
    out->count = kernel < period ? kernel : period;
    int64_t *index = (int64_t *)(out->items + out->count);
    for (int64_t i = 0; i < out->count; i++) {
        PhaseAxis *phase = &out->items[i];
        *phase = (PhaseAxis){
            .taps = (kernel - i - 1) / period + 1, .kernel_index = index, .remainder = i * dilation % stride};
        for (int64_t t = 0; t < phase->taps; t++) /* a transposed convolution's later taps meet earlier positions */
            *index++ = i + (c->transposed ? phase->taps - 1 - t : t) * period;
    }
    return NULL;
}

static const TileSet *conv_tiles(const CpuAnchor *anchor, const Conv *c) {
    return c->winograd && c->quads ? tile_winograd(anchor->dtype).set : anchor_tiles(anchor, c->quads);
}

/* The weight in the work type, in f16 where packing reads that (Conv.halves), or as quads of its inputs: [outputs, inputs a
 * group, kernel...]. */
static Status take_weight(const Conv *c, const Tensor *w, Pool *pool, Scratch *scratch, const void **out_data) {
    *out_data = w->data;
    if (c->halves || (c->winograd && c->quads)) return NULL;
    if (!c->quads) return work_take(w->dtype, w->data, tensor_count(w), 0, pool, scratch, out_data);
    int64_t outer = c->transposed ? c->group : w->dims[0], depth = c->transposed ? w->dims[0] / outer : w->dims[1];
    int64_t inner = product3(c->kernel) * (c->transposed ? c->outputs : 1);
    QuadSource source = {.from = w->data,
                         .size = QUAD / c->quads,
                         .rank = 1,
                         .dims = {outer},
                         .strides = {depth * inner},
                         .depth = depth,
                         .depth_stride = inner,
                         .inner = inner,
                         .inner_stride = 1};
    return quads_take(&source, pool, scratch, out_data);
}

static Status make_phases(const PhaseMemory *memory, const CpuAnchor *anchor, Conv *c) {
    AxisPhases axes[AXES];
    void *phases;
    c->covers = product3(c->kernel) > 0;
    c->phase_count = 1;
    for (int i = 0; i < AXES; i++) {
        TRY(axis_phases(memory, c, i, &axes[i]));
        c->phase_count *= axes[i].count;
        if (c->transposed && axes[i].count * (i == AXES - 1 ? c->tiled : 1) < c->strides[i]) c->covers = false;
    }
    TRY(phase_allocate(memory, (size_t)(c->phase_count ? c->phase_count : 1) * sizeof(Phase), &phases));
    c->phases = phases;
    for (int64_t i = 0; i < c->phase_count; i++) {
        Phase *p = &c->phases[i];
        p->axes[0] = axes[0].items[i / (axes[1].count * axes[2].count)];
        p->axes[1] = axes[1].items[i / axes[2].count % axes[1].count];
        p->axes[2] = axes[2].items[i % axes[2].count];
        p->weight = (Weight){.set = conv_tiles(anchor, c),
                             .form = anchor->form,
                             .groups = c->group,
                             .columns = c->outputs * c->tiled,
                             .depth = c->winograd && c->quads ? 2 * c->inputs : c->inputs};
        if (c->depthwise) p->weight.groups = 1, p->weight.columns = c->group * c->outputs;
        p->weight.taps = c->winograd ? c->winograd : p->axes[0].taps * p->axes[1].taps * p->axes[2].taps;
        size_t bytes;
        TRY(weight_bytes(&p->weight, &bytes));
        c->weight_bytes += (bytes + 63) / 64 * 64;
    }
    return NULL;
}

/* [inputs, outputs, kernel...] turned to [inputs, kernel..., outputs]. */
static Status channels_last_weight(const CpuAnchor *anchor, const Conv *c, Scratch *scratch, Pool *pool,
                                   const void **w) {
    int64_t kernel = product3(c->kernel), dims[] = {c->inputs, kernel, c->outputs},
            strides[] = {c->outputs * kernel, 1, kernel};
    size_t size = dtype_size(anchor->type);
    void *turned;
    TRY(scratch_take(scratch, (size_t)(c->inputs * c->outputs * kernel) * size, &turned));
    strided_copy(size, 3, dims, strides, *w, turned, pool);
    *w = turned;
    return NULL;
}

/* What the packed weight depends on beside the weight itself: strides and dilations of a transposed convolution make the
 * phases. */
static Recipe conv_recipe(const CpuAnchor *anchor, const Conv *c, const Tensor *weight) {
    Recipe recipe = anchor_recipe(anchor, weight);
    recipe_add(&recipe, c->group);
    recipe_add(&recipe, c->tiled);
    recipe_add(&recipe, c->winograd);
    for (int i = 0; i < AXES && c->transposed; i++) {
        recipe_add(&recipe, c->strides[i]);
        recipe_add(&recipe, c->dilations[i]);
    }
    return recipe;
}

/* What pack_phases made when the model was compiled, or for another anchor. */
static Status take_packed(Conv *c, void *data) {
    for (int64_t i = 0; i < c->phase_count; i++) {
        size_t bytes;
        c->phases[i].weight.data = data;
        TRY(weight_bytes(&c->phases[i].weight, &bytes));
        data = (char *)data + (bytes + 63) / 64 * 64;
    }
    return NULL;
}

/* Where the phase's taps stand in the kernel. */
static void tap_places(const Conv *c, const Phase *p, int64_t *taps) {
    if (c->winograd) {
        for (int64_t t = 0; t < c->winograd; t++) taps[t] = t;
        return;
    }
    int64_t *at = taps;
    for (int64_t t0 = 0; t0 < p->axes[0].taps; t0++)
        for (int64_t t1 = 0; t1 < p->axes[1].taps; t1++)
            for (int64_t t2 = 0; t2 < p->axes[2].taps; t2++)
                *at++ = p->axes[0].kernel_index[t0] * c->weight_steps[2] +
                        p->axes[1].kernel_index[t1] * c->weight_steps[3] +
                        p->axes[2].kernel_index[t2] * c->weight_steps[4];
    for (int64_t t = 0; t < p->weight.taps && c->tiled > 1; t++) taps[t] *= c->outputs;
}

/* w: as take_weight gives it, [outputs, inputs a group, kernel...]; transposed [inputs, outputs a group, kernel...]. constant: whose
 * data that is; NULL in a run. */
static Status pack_phases(const PhaseMemory *memory, Conv *c, const void *w, const Tensor *constant, Pool *pool) {
    void *data, *taps = NULL;
    int64_t kernel = product3(c->kernel);
    bool ready = false;
    Recipe recipe = constant ? conv_recipe(memory->anchor, c, constant) : (Recipe){0};
    TRY(memory->scratch ? scratch_take(memory->scratch, c->weight_bytes, &data)
                        : anchor_pack(memory->anchor, &recipe, c->weight_bytes, &data, &ready));
    if (ready) return take_packed(c, data);
    Scratch scratch = {0};
    Status status = NULL;
    if (c->winograd) {
        status = winograd_weight(c, &scratch, pool, &w);
        kernel = c->winograd;
    }
    if (!status) status = scratch_take(&scratch, (size_t)(kernel ? kernel : 1) * sizeof(int64_t), &taps);
    if (!status && c->tiled > 1) status = channels_last_weight(memory->anchor, c, &scratch, pool, &w);
    for (int64_t i = 0; !status && i < c->phase_count; i++) {
        Phase *p = &c->phases[i];
        tap_places(c, p, taps);
        WeightSource source = {.data = w, .halves = c->halves, .taps = taps, .scale = 1};
        source.group = c->inputs * c->outputs * kernel;
        source.column = c->transposed ? kernel : p->weight.depth * kernel;
        if (c->tiled > 1) source.column = 1;
        source.depth = c->transposed ? c->outputs * kernel : kernel;
        if (c->turned) source.column = c->weight_steps[0], source.depth = c->weight_steps[1];
        p->weight.data = data;
        size_t bytes = 0;
        status = weight_pack(&p->weight, &source, pool);
        if (!status) status = weight_bytes(&p->weight, &bytes);
        data = (char *)data + (bytes + 63) / 64 * 64;
    }
    scratch_release(&scratch);
    return status;
}

static void is_packed(CpuAnchor *anchor, const Conv *c) {
    anchor_is_packed(anchor, c->weight_bytes, c->depthwise, c->quads == QUAD / 2);
    if (c->winograd) anchor->how = "winograd";
}

static bool conv_packs(const Node *node) { return node->inputs[1]->rank - 2 <= AXES; }

static Status conv_prepare(CpuAnchor *anchor, const Tensor *const *constants, Pool *pool) {
    int spatial = anchor->node->inputs[1]->rank - 2;
    if (spatial > AXES && anchor->form.kind)
        return status_error(STATUS_UNSUPPORTED, "%s (%s): narrow weights of more than %d spatial axes",
                            node_origin_name(anchor->node), anchor->node->op, AXES);
    if (spatial > AXES) {
        anchor->plain = true;
        anchor->how = "plain";
        return NULL;
    }
    void *data;
    TRY(anchor_allocate(anchor, sizeof(Conv), &data));
    Conv *c = anchor->kind_data = data;
    TRY(read_attributes(anchor, spatial, c));
    const Tensor *w = c->turned ? NULL : constants[1];
    if (!w && anchor->dtype == DT_U8) anchor->plain = true;
    if (!w) return NULL;
    PhaseMemory memory = {anchor, NULL};
    Scratch scratch = {0};
    const void *work;
    TRY(read_weight_shape(anchor, w, c));
    c->winograd = winograd_fits(anchor, c);
    take_quads(anchor, c);
    if (c->quads) anchor->form = (WeightForm){0};
    if (anchor->dtype == DT_U8 && (!c->quads || c->transposed)) { /* the builder makes no such convolution of bytes */
        anchor->plain = true;
        anchor->how = "plain";
        return NULL;
    }
    if (tiles_lines(anchor->node, c)) c->tiled = c->strides[AXES - 1];
    if (!c->winograd) anchor_keep_halves(anchor, tensor_count(w));
    c->halves = anchor->dtype == DT_F16 && !c->winograd && c->tiled == 1;
    TRY(make_phases(&memory, anchor, c));
    if (anchor->given) {
        is_packed(anchor, c);
        return pack_phases(&memory, c, NULL, w, pool);
    }
    Status status = take_weight(c, w, pool, &scratch, &work);
    if (!status) status = anchor_check_weight(anchor, w, 1);
    if (!status) status = pack_phases(&memory, c, work, w, pool);
    scratch_release(&scratch);
    TRY(status);
    is_packed(anchor, c);
    return NULL;
}

/* ---- sizes of a run ---- */

static int64_t pad_at(const Conv *c, const int64_t *symbols, int index) {
    int64_t value;
    if (dim_is_const(c->pads[index], &value)) return value;
    return symbols ? dim_eval(c->pads[index], symbols) : UNBOUND_DIM;
}

/* The padding before axis `axis`. Where the symbols do not tell, the sizes do: such paddings come from SAME_UPPER and
 * SAME_LOWER, which pad just enough, one more at the end or at the beginning; the former is what exporters write. */
static int64_t pad_before(const Conv *c, const int64_t *symbols, int axis, int64_t in, int64_t out) {
    int from = axis - (AXES - c->spatial);
    if (from < 0) return 0;
    int64_t before = pad_at(c, symbols, from);
    if (before != UNBOUND_DIM) return before;
    int64_t extent = (c->kernel[axis] - 1) * c->dilations[axis] + 1;
    int64_t total =
        c->transposed ? (in - 1) * c->strides[axis] + extent - out : (out - 1) * c->strides[axis] + extent - in;
    return total > 0 ? total / 2 : 0;
}

/* What the formula gives for the convolution's result; UNBOUND_DIM when a padding is not known. */
static int64_t conv_extent(const Conv *c, const int64_t *symbols, int axis, int64_t in) {
    int from = axis - (AXES - c->spatial);
    if (from < 0) return 1;
    int64_t before = pad_at(c, symbols, from), after = pad_at(c, symbols, c->spatial + from), room;
    if (before == UNBOUND_DIM || after == UNBOUND_DIM) return UNBOUND_DIM;
    int64_t extent = (c->kernel[axis] - 1) * c->dilations[axis] + 1;
    if (__builtin_add_overflow(in, before, &room) || __builtin_add_overflow(room, after, &room)) return -1;
    room -= extent;
    return room < 0 ? 0 : room / c->strides[axis] + 1;
}

/* Each position meets its own pixel alone: then all of them are one line, which is walked at once. */
static void join_lines(const Conv *c, Sizes *s) {
    for (int i = 0; i < AXES; i++)
        if (c->kernel[i] != 1 || c->strides[i] != 1 || s->pads[i] || s->in[i] != s->out[i]) return;
    s->joined = s->out[AXES - 1];
    s->in[AXES - 1] = s->out[AXES - 1] = s->batch * product3(s->in);
    s->in[0] = s->in[1] = s->out[0] = s->out[1] = s->batch = 1;
}

static Status sizes_of(const CpuAnchor *anchor, const Conv *c, const Tensor *x, const Tensor *y, const int64_t *symbols,
                       Sizes *s) {
    int rank = c->spatial + 2;
    int64_t dims[MAX_RANK], steps[MAX_RANK];
    if (x->rank != rank || y->rank != rank) return anchor_wrong(anchor, "attributes and ranks do not fit together");
    if (c->turned)
        TRY(matmul_permuted(anchor->node, "perm_x", rank, x->dims, dims, steps));
    else
        memcpy(dims, x->dims, (size_t)rank * sizeof *dims);
    *s = (Sizes){.batch = dims[0], .in_channels = dims[rank - 1], .out_channels = c->outputs * c->group};
    if (c->turned && s->in_channels != 1 && steps[rank - 1] != 1)
        return anchor_wrong(anchor, "a turned input's channels are not neighbours");
    if (s->in_channels != c->channels)
        return anchor_wrong(anchor, "the input's channels do not fit the weight and its groups");
    s->in_channels = c->inputs * c->group;
    if (y->dims[0] != s->batch || y->dims[rank - 1] != s->out_channels)
        return anchor_wrong(anchor, "the inputs do not give a result of the planned shape");
    for (int i = 0; i < AXES; i++) {
        int from = i - (AXES - c->spatial);
        s->in[i] = from < 0 ? 1 : dims[1 + from];
        s->out[i] = from < 0 ? 1 : y->dims[1 + from];
        s->pads[i] = pad_before(c, symbols, i, s->in[i], s->out[i]);
        if (s->pads[i] < -INT_MAX || s->pads[i] > INT_MAX) return anchor_wrong(anchor, "a padding is out of range");
        if (i == AXES - 1 && c->tiled > 1 && s->out[i] / c->tiled != s->in[i])
            return anchor_wrong(anchor, "the inputs do not give a result of the planned shape");
        int64_t expected = c->transposed ? UNBOUND_DIM : conv_extent(c, symbols, i, s->in[i]);
        if (expected != UNBOUND_DIM && expected != s->out[i])
            return anchor_wrong(anchor, "the inputs do not give a result of the planned shape");
    }
    int64_t step = s->in_channels; /* of quads, where bytes are multiplied so */
    for (int i = AXES - 1; i >= 0; step *= s->in[i--]) s->x_steps[i] = step;
    s->x_batch = step;
    for (int i = 0; c->turned && i < c->spatial; i++) s->x_steps[AXES - c->spatial + i] = steps[1 + i];
    if (c->turned) s->x_batch = steps[0];
    if (!c->turned) join_lines(c, s);
    return NULL;
}

/* ---- runs ---- */

/* Memory for a phase: the walk's shifts and three lists of offsets. */
static int64_t phase_words(const Phase *p) {
    return 3 * p->weight.taps + p->axes[0].taps + p->axes[1].taps + p->axes[2].taps;
}

/* Neighbours' channels: one after the other, or one of each at equal distances. */
static bool follow_each_other(const Sizes *s) { return s->in_channels == 1 || s->x_steps[2] == s->in_channels; }

static void phase_product(AnchorRun *run, const Conv *c, const Phase *p, const Sizes *s, const void *x,
                          const void *zeros, int64_t *words, Walk *w, Product *product) {
    int64_t *offsets = words, *merged = offsets + p->weight.taps, *no_offsets = merged + p->weight.taps;
    *w = (Walk){.sizes = s,
                .x_size = (int64_t)(c->reads_halves ? dtype_size(DT_F16) : p->weight.set->size),
                .size = (int64_t)p->weight.set->size,
                .x = x,
                .y = run->result,
                .zeros = zeros,
                .counts_padding = c->padding != 0};
    words = no_offsets + p->weight.taps;
    for (int i = 0; i < AXES; i++) {
        w->shift[i] = words;
        words += p->axes[i].taps;
    }
    walk_phase(c, p, s, w);
    walk_offsets(w, offsets, merged);
    memset(no_offsets, 0, (size_t)p->weight.taps * sizeof *no_offsets);
    *product = (Product){.rows = s->batch * w->count[0] * w->count[1] * w->count[2],
                         .line = s->joined ? s->joined : w->count[2],
                         .fill = walk_fill,
                         .context = w,
                         .weight = &p->weight,
                         .offsets = offsets,
                         .zeros = no_offsets,
                         .merged = c->group == 1 && walk_is_merged(w) && follow_each_other(s) ? w->taps[2] : 1,
                         .merged_offsets = merged,
                         .depth_gap = s->in_channels == 1 ? s->x_steps[2] - 1 : 0,
                         .inside = walk_is_inside(w),
                         .maker = run->maker,
                         .epilogue = &run->epilogue};
    if (!c->reads_halves || !p->weight.taps) return;
    product->reach = walk_reach;
    product->halves = x;
    product->halves_end = (const char *)x + tensor_bytes(run->inputs[0]);
}

/* Where no tap reaches some positions, all begin as the epilogue of 0. */
static Status fill_uncovered(AnchorRun *run, const Conv *c, const Sizes *s, const void *zeros) {
    const Conv none = {.group = 1, .padding = c->padding, .strides = {1, 1, 1}, .dilations = {1, 1, 1}};
    Phase phase = {.weight = {.set = conv_tiles(run->anchor, c), .groups = 1, .columns = c->outputs * c->group}};
    Walk walk;
    Product product;
    int64_t words[1];
    phase_product(run, &none, &phase, s, zeros, zeros, words, &walk, &product);
    return product_run(&product, 1, run->pool, &run->scratch);
}

static Status run_phases(AnchorRun *run, const Conv *c, const Sizes *s, const void *x) {
    void *memory, *zeros;
    size_t size = dtype_size(run->anchor->type), zero_bytes = ((size_t)s->in_channels + PANEL_SLACK) * size;
    int64_t words = 0, count = c->phase_count;
    for (int64_t i = 0; i < count; i++) words += phase_words(&c->phases[i]);
    TRY(scratch_take(&run->scratch, zero_bytes, &zeros));
    memset(zeros, 0, zero_bytes);
    for (int64_t i = 0; c->padding && i < s->in_channels; i++) ((uint32_t *)zeros)[i] = c->padding;
    if (!c->covers) TRY(fill_uncovered(run, c, s, zeros));
    TRY(scratch_take(&run->scratch, (size_t)count * (sizeof(Product) + sizeof(Walk)) + (size_t)words * sizeof(int64_t),
                     &memory));
    Product *products = memory;
    Walk *walks = (Walk *)(products + count);
    int64_t *at = (int64_t *)(walks + count);
    for (int64_t i = 0; i < count; i++) {
        phase_product(run, c, &c->phases[i], s, x, zeros, at, &walks[i], &products[i]);
        at += phase_words(&c->phases[i]);
    }
    const bool may_gather = run->anchor->type == DT_F32 && !run->maker && !run->out_maker && !run->parts &&
                            !c->reads_halves && !c->quads && !c->depthwise && !c->winograd;
    for (int64_t i = 0; may_gather && i < count; i++)
        if (walk_gathers(&products[i], run->pool)) TRY(walk_gather(&products[i], &run->scratch));
    if (run->parts) TRY(row_parts_read(run->parts, run->part_count, run->result, &run->scratch, products));
    if (run->out_maker)
        return depthwise_rows(walks, c->phases, &run->epilogue, run->pool, &run->scratch, run->out_maker);
    if (c->winograd) return winograd_run(walks, c->phases, &run->epilogue, run->pool, &run->scratch);
    return c->depthwise ? depthwise_run(walks, c->phases, count, &run->epilogue, run->pool, &run->scratch)
                        : product_run(products, count, run->pool, &run->scratch);
}

/* The prepared form, or one made of this run's weight. */
static Status conv_of(const CpuAnchor *anchor, const Tensor *w, Conv *c) {
    *c = *(const Conv *)anchor->kind_data;
    return c->phases ? NULL : read_weight_shape(anchor, w, c);
}

static Status conv_check(const CpuAnchor *anchor, const Tensor *const *inputs, const int64_t *symbols,
                         const Tensor *output) {
    Conv c;
    Sizes sizes;
    TRY(conv_of(anchor, inputs[1], &c));
    return sizes_of(anchor, &c, inputs[0], output, symbols, &sizes);
}

/* The product's columns hold the channels several times. */
static Status repeat_bias(AnchorRun *run, const Conv *c) {
    size_t size = dtype_size(run->anchor->type), bytes = (size_t)c->outputs * size;
    void *repeated;
    const void *bias = run->finish.rounded ? run->finish.ends.bias : run->epilogue.bias;
    if (!bias) return NULL;
    TRY(scratch_take(&run->scratch, bytes * (size_t)c->tiled + PANEL_SLACK * size, &repeated));
    for (int64_t t = 0; t < c->tiled; t++) memcpy((char *)repeated + bytes * (size_t)t, bias, bytes);
    memset((char *)repeated + bytes * (size_t)c->tiled, 0, PANEL_SLACK * size);
    if (run->finish.rounded)
        run->finish.ends.bias = repeated;
    else
        run->epilogue.bias = repeated;
    return NULL;
}

/* The input where it lies, if its pixels are whole quads. */
static Status take_pixels_of_quads(AnchorRun *run, const Conv *c, const Tensor *x, const void **out_data) {
    *out_data = x->data;
    if (c->channels % c->quads == 0 && (uintptr_t)x->data % QUAD == 0) return NULL;
    QuadSource source = {.from = x->data,
                         .size = QUAD / c->quads,
                         .rank = 1,
                         .dims = {dims_product(x->dims, 0, x->rank - 1)},
                         .strides = {c->channels},
                         .depth = c->channels,
                         .depth_stride = 1,
                         .inner = 1};
    return quads_take(&source, run->pool, &run->scratch, out_data);
}

/* A weight whose outputs are neighbours and whole vectors, and whose taps lie in their order: as a panel, so it is read where it is. */
static bool lies_as_panel(const Conv *c) {
    int64_t row = c->outputs;
    if (!c->turned || c->phase_count != 1 || c->outputs % c->phases[0].weight.set->lanes || c->weight_steps[0] != 1)
        return false;
    if (c->inputs != 1 && c->weight_steps[1] != row) return false;
    row *= c->inputs;
    for (int i = AXES - 1; i >= 0; row *= c->kernel[i--])
        if (c->kernel[i] != 1 && c->weight_steps[2 + i] != row) return false;
    return true;
}

/* The weight of this run, packed if it has to be. */
static Status take_phases(AnchorRun *run, Conv *c, const Sizes *s, const Tensor *w) {
    PhaseMemory memory = {run->anchor, &run->scratch};
    const void *data;
    c->winograd = winograd_fits_run(run->anchor, c, s);
    TRY(make_phases(&memory, run->anchor, c));
    c->halves = run->anchor->dtype == DT_F16 && !c->winograd && !lies_as_panel(c);
    TRY(take_weight(c, w, run->pool, &run->scratch, &data));
    if (!lies_as_panel(c)) return pack_phases(&memory, c, data, NULL, run->pool);
    c->phases[0].weight.row = c->outputs;
    c->phases[0].weight.data = (void *)(uintptr_t)data;
    return NULL;
}

static Status conv_run(AnchorRun *run) {
    CpuAnchor *anchor = run->anchor;
    const Tensor *tx = run->inputs[0], *tw = run->inputs[1];
    Conv c;
    Sizes sizes;
    const void *x;
    TRY(conv_of(anchor, tw, &c));
    TRY(sizes_of(anchor, &c, tx, run->output, run->symbols, &sizes));
    if (!c.phases) TRY(take_phases(run, &c, &sizes, tw));
    c.reads_halves = anchor->dtype == DT_F16 && !c.turned;
    if (c.quads)
        TRY(take_pixels_of_quads(run, &c, tx, &x));
    else if (run->maker || run->parts)
        x = run->output->data; /* never read: its rows are made, or stand elsewhere */
    else if (c.reads_halves)
        x = tx->data;
    else
        TRY(work_take(tx->dtype, tx->data, tensor_count(tx), 0, run->pool, &run->scratch, &x));
    if (c.tiled > 1) TRY(repeat_bias(run, &c));
    return run_phases(run, &c, &sizes, x);
}

/* ---- what a 1x1 convolution reads without that being there ---- */

static bool is_plain_conv(const Node *node) {
    if (node->kind != NODE_ANCHOR || strcmp(node->op, conv_kind.op) != 0 || node->output_count != 1) return false;
    if (node_attr(node, "perm_x") || node_attr(node, "perm_w")) return false;
    const Value *x = node->inputs[0], *w = node->inputs[1];
    return w->constant && x->dtype == DT_F32 && node->outputs[0]->dtype == DT_F32 && x->rank == w->rank &&
           w->rank > 2 && w->rank <= 2 + AXES;
}

static bool all_are(const Node *node, const char *name, int64_t wanted) {
    int count;
    const int64_t *values = attr_ints(node, name, &count);
    for (int i = 0; i < count; i++)
        if (values[i] != wanted) return false;
    return true;
}

/* Each position of the result meets one of the input, all channels of it. */
static bool is_pointwise(const Node *node) {
    const Tensor *w = node->inputs[1]->constant;
    int count;
    const Dim *const *pads = attr_dims(node, "pads", &count);
    for (int i = 0; i < count; i++)
        if (!dim_equals(pads[i], 0)) return false;
    for (int i = 2; i < w->rank; i++)
        if (w->dims[i] != 1) return false;
    return attr_int(node, "group", 1) == 1 && all_are(node, "strides", 1);
}

static bool is_depthwise(const Node *node) {
    const Tensor *w = node->inputs[1]->constant;
    return w->dims[0] > 1 && w->dims[1] == 1 && w->dims[0] == attr_int(node, "group", 1);
}

/* Tensors of f32 that are joined along their channels. */
static bool joins_channels(const Node *node) {
    int64_t channels[MOST_ROW_PARTS];
    if (node->kind != NODE_PRIM || node->prim != PRIM_CONCAT || node->input_count > MOST_ROW_PARTS) return false;
    const int last = node->outputs[0]->rank - 1;
    if (attr_int(node, "axis", 0) != last || node->outputs[0]->dtype != DT_F32) return false;
    for (int i = 0; i < node->input_count; i++)
        if (!dim_is_const(node->inputs[i]->dims[last], &channels[i])) return false;
    return row_parts_piece(channels, node->input_count) > 0;
}

bool conv_is_prologue(const Node *maker, const Node *reader) {
    if (!is_plain_conv(reader) || !is_pointwise(reader)) return false;
    return joins_channels(maker) || (is_plain_conv(maker) && is_depthwise(maker));
}

const AnchorKind conv_kind = {"conv", conv_prepare, conv_check, conv_run, conv_packs};
const AnchorKind conv_transpose_kind = {"conv_transpose", conv_prepare, conv_check, conv_run, conv_packs};
