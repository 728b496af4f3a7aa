/* SPDX-License-Identifier: Apache-2.0 */
/* FusedNoRepeatNGram: scores [batch, vocabulary] with minus infinity at every token that would end an n-gram which the
 * row of input_ids [batch, sequence] has already: what keeps generation from repeating itself. The operator
 * NGramRepeatBlock of ONNX Runtime, and its usual form in operators of the standard, become one kernel.
 *
 * The kernel compares the last n - 1 tokens of each row with what stands before every other token: one pass over the
 * row, which ends at the first token that differs. Rows are shared out to the session's threads. */
#include "onnxfuse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What one call works on. */
typedef struct Rows {
    const int64_t *ids;                               /* [id_rows, length] */
    const float *scores;                              /* [count, vocabulary] */
    float *out;                                       /* likewise; may be `scores` */
    int64_t id_rows, length, count, vocabulary, size; /* size: of an n-gram */
    int tasks;
    int64_t *wrong; /* [tasks]: a token that is no index, or -1 for none and -2 for a negative one */
} Rows;

enum { NO_TOKEN = -1, NEGATIVE_TOKEN = -2 };

/* Bans what would repeat in one row; the token that is out of range, if any. */
static int64_t block_row(const Rows *r, const int64_t *ids, float *scores) {
    int64_t before = r->size - 1;
    const int64_t *last = ids + r->length - before;
    for (int64_t at = before; at < r->length; at++) {
        const int64_t *window = ids + at - before;
        int64_t k = before - 1; /* from the end: neighbours in a sentence differ soonest there */
        while (k >= 0 && window[k] == last[k]) k--;
        if (k >= 0) continue;
        if (ids[at] < 0) return NEGATIVE_TOKEN;
        if (ids[at] >= r->vocabulary) return ids[at];
        scores[ids[at]] = -INFINITY;
    }
    return NO_TOKEN;
}

static void block_rows(void *context, int task) {
    const Rows *r = context;
    int64_t begin = r->count * task / r->tasks, end = r->count * (task + 1) / r->tasks;
    r->wrong[task] = NO_TOKEN;
    for (int64_t row = begin; row < end; row++) {
        float *out = r->out + row * r->vocabulary;
        const float *scores = r->scores + row * r->vocabulary;
        if (out != scores) memcpy(out, scores, (size_t)r->vocabulary * sizeof *out);
        if (r->length < r->size) continue;
        int64_t wrong = block_row(r, r->ids + (r->id_rows == 1 ? 0 : row) * r->length, out);
        if (wrong != NO_TOKEN) r->wrong[task] = wrong;
    }
}

/* What the patterns have found: n itself, or the n - 1 tokens before the one that is banned. */
static bool ngram_size(const OnnxfuseCall *call, int64_t *out_size) {
    double number, before;
    if (!onnxfuse_call_float(call, "ngram_size", &number)) {
        if (!onnxfuse_call_float(call, "tokens_before", &before)) return false;
        number = before + 1;
    }
    if (number != floor(number) || number < 1 || number > 1e6) return false;
    *out_size = (int64_t)number;
    return true;
}

static OnnxfuseStatus infer(void *user, OnnxfuseCall *call) {
    int64_t size;
    (void)user;
    if (onnxfuse_call_input_dtype(call, 0) != ONNXFUSE_INT64 || onnxfuse_call_input_dtype(call, 1) != ONNXFUSE_FLOAT32)
        return onnxfuse_error(ONNXFUSE_UNSUPPORTED, "int64 input_ids and float32 scores are needed");
    if (onnxfuse_call_input_rank(call, 0) != 2 || onnxfuse_call_input_rank(call, 1) != 2)
        return onnxfuse_error(ONNXFUSE_INVALID, "input_ids and scores need 2 axes");
    if (!ngram_size(call, &size)) return onnxfuse_error(ONNXFUSE_INVALID, "ngram_size is not between 1 and a million");
    OnnxfuseDim dims[] = {onnxfuse_call_input_dim(call, 1, 0), onnxfuse_call_input_dim(call, 1, 1)};
    return onnxfuse_call_set_type(call, 0, ONNXFUSE_FLOAT32, 2, dims);
}

enum { MOST_TASKS = 64, SMALLEST_TASK = 1 << 14 /* elements copied or compared */ };

static OnnxfuseStatus compute(void *user, OnnxfuseCall *call) {
    const OnnxfuseValue *ids = onnxfuse_call_input(call, 0), *scores = onnxfuse_call_input(call, 1);
    const int64_t *id_dims = onnxfuse_value_dims(ids), *dims = onnxfuse_value_dims(scores);
    int64_t wrong[MOST_TASKS];
    void *out;
    Rows r = {onnxfuse_value_data(ids), onnxfuse_value_data(scores), NULL, id_dims[0], id_dims[1], dims[0], dims[1]};
    (void)user;
    if (r.id_rows != 1 && r.id_rows != r.count)
        return onnxfuse_error(ONNXFUSE_INVALID, "input_ids and scores have different batches");
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, 2, dims, &out);
    if (status || !out) return status;
    ngram_size(call, &r.size);
    r.out = out;
    r.wrong = wrong;
    int64_t tasks = r.count * (r.vocabulary + r.length) / SMALLEST_TASK;
    r.tasks = (int)(tasks < 1 ? 1 : tasks > MOST_TASKS ? MOST_TASKS : tasks);
    onnxfuse_call_parallel(call, r.tasks, block_rows, &r);
    for (int i = 0; i < r.tasks; i++) {
        if (wrong[i] == NO_TOKEN) continue;
        char text[100];
        snprintf(text, sizeof text, "token %lld is out of range for %lld scores", (long long)wrong[i],
                 (long long)r.vocabulary);
        return onnxfuse_error(ONNXFUSE_INVALID, wrong[i] == NEGATIVE_TOKEN ? "a token is negative" : text);
    }
    return NULL;
}

static const OnnxfuseOperator kernel = {
    .size = sizeof kernel,
    .domain = "onnxfuse",
    .name = "FusedNoRepeatNGram",
    .since = 1,
    .in_place = 1 + 1,
    .infer = infer,
    .compute = compute,
};

/* The operator itself; then what stands for it in the standard's operators: windows compared with the last tokens, each
 * a column of slices, and the least of score and minus infinity scattered. Those are told for n-grams of 2, 3 and 4. */
static const char *const patterns[] = {
    "(input_ids, scores) -> (y) {\n"
    "    y = com.microsoft.NGramRepeatBlock<ngram_size=$ngram_size>(input_ids, scores)\n"
    "}\n",
    "(input_ids, scores) -> (y) {\n"
    "    window0 = Slice<starts=[0], ends=[-1], axes=[1]>(input_ids)\n"
    "    last0 = Slice<starts=[-1], ends=[9223372036854775807], axes=[1]>(input_ids)\n"
    "    same0 = Equal(window0, last0)\n"
    "    token = Slice<starts=$tokens_before, ends=[9223372036854775807], axes=[1]>(input_ids)\n"
    "    banned = Where(same0, -inf, inf)\n"
    "    y = ScatterElements<axis=1, reduction=\"min\">(scores, token, banned)\n"
    "}\n",
    "(input_ids, scores) -> (y) {\n"
    "    window0 = Slice<starts=[0], ends=[-2], axes=[1]>(input_ids)\n"
    "    last0 = Slice<starts=[-2], ends=[-1], axes=[1]>(input_ids)\n"
    "    same0 = Equal(window0, last0)\n"
    "    window1 = Slice<starts=[1], ends=[-1], axes=[1]>(input_ids)\n"
    "    last1 = Slice<starts=[-1], ends=[9223372036854775807], axes=[1]>(input_ids)\n"
    "    same1 = Equal(window1, last1)\n"
    "    all1 = And(same0, same1)\n"
    "    token = Slice<starts=$tokens_before, ends=[9223372036854775807], axes=[1]>(input_ids)\n"
    "    banned = Where(all1, -inf, inf)\n"
    "    y = ScatterElements<axis=1, reduction=\"min\">(scores, token, banned)\n"
    "}\n",
    "(input_ids, scores) -> (y) {\n"
    "    window0 = Slice<starts=[0], ends=[-3], axes=[1]>(input_ids)\n"
    "    last0 = Slice<starts=[-3], ends=[-2], axes=[1]>(input_ids)\n"
    "    same0 = Equal(window0, last0)\n"
    "    window1 = Slice<starts=[1], ends=[-2], axes=[1]>(input_ids)\n"
    "    last1 = Slice<starts=[-2], ends=[-1], axes=[1]>(input_ids)\n"
    "    same1 = Equal(window1, last1)\n"
    "    all1 = And(same0, same1)\n"
    "    window2 = Slice<starts=[2], ends=[-1], axes=[1]>(input_ids)\n"
    "    last2 = Slice<starts=[-1], ends=[9223372036854775807], axes=[1]>(input_ids)\n"
    "    same2 = Equal(window2, last2)\n"
    "    all2 = And(all1, same2)\n"
    "    token = Slice<starts=$tokens_before, ends=[9223372036854775807], axes=[1]>(input_ids)\n"
    "    banned = Where(all2, -inf, inf)\n"
    "    y = ScatterElements<axis=1, reduction=\"min\">(scores, token, banned)\n"
    "}\n",
    NULL,
};

extern const OnnxfuseFusion fused_no_repeat_ngram;
const OnnxfuseFusion fused_no_repeat_ngram = {
    .size = sizeof fused_no_repeat_ngram,
    .name = "FusedNoRepeatNGram",
    .phase = ONNXFUSE_FORWARD,
    .patterns = patterns,
    .kernel = &kernel,
};
