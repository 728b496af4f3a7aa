/* SPDX-License-Identifier: Apache-2.0 */
/* The text of pooling and resizing programs. Words before the bodies choose the type M that memory holds, the type A of
 * arithmetic, how many elements V a thread takes, and the integers that indices have. Axis 0 is the outermost. Keep the
 * order of the parameters: window.c gives them. */
#include "codegen/gpu/dialect.h"
#include "codegen/gpu/region/divide.h"
#include "codegen/gpu/window/window.h"

/* --- types --- */

/* load and store: functions between memory and arithmetic, "" for a conversion; pack and unpack: between a word of
 * `bits` and the type in memory. */
typedef struct WindowType {
    DType dtype;
    const char *memory, *value, *load, *store, *lowest;
    const char *unpack, *pack;
} WindowType;
static const WindowType types[GPU_WINDOW_TYPES] = {
    {DT_F32, "f32", "f32", "", "", "-INFINITY_f32", "FLOAT_u32", "BITS_f32"},
    {DT_F64, "f64", "f64", "", "", "-INFINITY_f64", "FLOAT_u64", "BITS_f64"},
    {DT_F16, "u16", "f32", "load_f16", "store_f16", "-INFINITY_f32", "(u16)", "(u32)"},
    {DT_BF16, "u16", "f32", "load_bf16", "store_bf16", "-INFINITY_f32", "(u16)", "(u32)"},
    {DT_I8, "i8", "i32", "", "", "-128", "(i8)", "(u32)(u8)"},
    {DT_U8, "u8", "i32", "", "", "0", "(u8)", "(u32)(u8)"},
    {DT_I32, "i32", "i32", "", "", "(-2147483647 - 1)", "(i32)", "(u32)"},
    {DT_I64, "i64", "i64", "", "", "(-9223372036854775807L - 1)", "(i64)", "(u64)"},
    {DT_U16, "u16", "u16", "", "", "0", "(u16)", "(u32)"},
    {DT_U32, "u32", "u32", "", "", "0", "(u32)", "(u32)"},
};

int gpu_window_type_number(DType dtype) {
    for (int i = 0; i < GPU_WINDOW_TYPES; i++)
        if (types[i].dtype == dtype) return i;
    return -1;
}

static void add(Text *text, const char *literal) { text_add_bytes(text, literal, strlen(literal)); }

/* 16 bytes as four words, or as two where elements have 8 bytes. */
static void add_unpack(Text *text, const WindowType *t, int size) {
    int count = 16 / size, each = 4 / size;
    add(text, "FUNCTION void load(GLOBAL const M *p, A *v) {\n    u128 w = READ(u128, p);\n");
    for (int k = 0; k < count; k++) {
        if (size == 8)
            text_add(text, "    v[%d] = (A)%s((u64)w.%c | (u64)w.%c << 32);\n", k, t->unpack, "xz"[k], "yw"[k]);
        else if (size == 4)
            text_add(text, "    v[%d] = (A)%s(w.%c);\n", k, t->unpack, "xyzw"[k]);
        else
            text_add(text, "    v[%d] = (A)%s(%s(w.%c >> %d));\n", k, t->load, t->unpack, "xyzw"[k / each],
                     8 * size * (k % each));
    }
    add(text, "}\n");
}

static void add_pack(Text *text, const WindowType *t, int size) {
    int each = size < 4 ? 4 / size : 1;
    add(text, "FUNCTION void store(GLOBAL M *p, const A *v) {\n    u128 w;\n");
    for (int word = 0; word < 4; word++) {
        if (size == 8) {
            if (word % 2 == 0) text_add(text, "    u64 b%d = %s(v[%d]);\n", word, t->pack, word / 2);
            text_add(text, "    w.%c = (u32)(b%d >> %d);\n", "xyzw"[word], word / 2 * 2, word % 2 * 32);
            continue;
        }
        text_add(text, "    w.%c =", "xyzw"[word]);
        for (int k = 0; k < each; k++)
            text_add(text, "%s %s(%s(v[%d])) << %d", k ? " |" : "", t->pack, t->store, word * each + k, 8 * size * k);
        add(text, ";\n");
    }
    add(text, "    WRITE(u128, p, w);\n}\n");
}

static void add_types(Text *text, const WindowType *t, bool wide) {
    int size = (int)dtype_size(t->dtype);
    text_add(text, "#define M %s\n#define A %s\n#define V %d\n#define LOWEST %s\n", t->memory, t->value,
             wide ? 16 / size : 1, t->lowest);
    text_add(text, "#define SQRT(x) %s\n",
             t->dtype == DT_F64         ? "sqrt_f64(x)"
             : dtype_is_float(t->dtype) ? "sqrt_f32(x)"
                                        : "(x)");
    text_add(text, "#define SIZE_OF(x) %s\n",
             t->dtype == DT_F64         ? "fabs_f64(x)"
             : dtype_is_float(t->dtype) ? "fabs_f32(x)"
                                        : "(x)");
    if (wide) {
        add_unpack(text, t, size);
        add_pack(text, t, size);
        return;
    }
    text_add(text, "FUNCTION void load(GLOBAL const M *p, A *v) { v[0] = (A)%s(READ(M, p)); }\n", t->load);
    text_add(text, "FUNCTION void store(GLOBAL M *p, const A *v) { WRITE(M, p, (M)%s(v[0])); }\n", t->store);
}

/* --- what all have in common --- */

static const char near_words[] = GPU_DIVIDE_SOURCE "#define INDEX u32\n"
                                                   "#define COORDINATE i32\n"
                                                   "#define SIZE(name) i64 name, i64 name##_magic\n"
                                                   "#define DIVIDE(x, name) divide(x, name##_magic)\n";
static const char far_words[] = "#define INDEX i64\n"
                                "#define COORDINATE i64\n"
                                "#define SIZE(name) i64 name\n"
                                "#define DIVIDE(x, name) ((x) / name)\n";
/* Element i of the result, in units of V, has the place `lane`, atD, and `rest` along the outer axis. */
static const char split_words[] =
    "#define SPLIT(name, at) c = DIVIDE(rest, name); INDEX at = rest - c * (INDEX)name; rest = c;\n"
    "#define EACH_ELEMENT for (i64 i = BLOCK * 256 + THREAD; i < n; i += BLOCKS * 256)\n"
    "#define EACH(k) UNROLL for (i32 k = 0; k < V; k++)\n";

/* --- pools --- */

/* Of each axis the taps [first, end) that lie in the source, and how many count for an average. The start of a sum is
 * -0, which changes no element, and the first tap is met twice by a maximum, which does not matter. */
/* clang-format off */
static const char pool_body[] =
    "FUNCTION COORDINATE over(COORDINATE a, COORDINATE b) { return b == 1 ? a : (a + b - 1) / b; }\n"
    "#define PARAM(d) , i64 in##d, i64 kernel##d, i64 stride##d, i64 dilation##d, i64 before##d, i64 after##d\n"
    "#define TAPS(d) \\\n"
    "    COORDINATE start##d = (COORDINATE)at##d * (COORDINATE)stride##d - (COORDINATE)before##d; \\\n"
    "    COORDINATE step##d = (COORDINATE)dilation##d; \\\n"
    "    COORDINATE first##d = start##d < 0 ? over(-start##d, step##d) : 0; \\\n"
    "    COORDINATE end##d = (COORDINATE)in##d > start##d ? over((COORDINATE)in##d - start##d, step##d) : 0; \\\n"
    "    COORDINATE room##d = (COORDINATE)in##d + (COORDINATE)after##d - start##d, counted##d; \\\n"
    "    if (end##d > (COORDINATE)kernel##d) end##d = (COORDINATE)kernel##d; \\\n"
    "    counted##d = end##d - first##d; \\\n"
    "    if (count_pads) { \\\n"
    "        counted##d = room##d > 0 ? over(room##d, step##d) : 0; \\\n"
    "        if (counted##d > (COORDINATE)kernel##d) counted##d = (COORDINATE)kernel##d; \\\n"
    "    } \\\n"
    "    if (counted##d < 0) counted##d = 0;\n"
    "KERNEL_OF(256) window(BUFFER_ARG(from), BUFFER_ARG(to), i64 n, SIZE(lanes), SIZE(out2), SIZE(out1), SIZE(out0)\n"
    "    PARAM(0) PARAM(1) PARAM(2), i64 count_pads) {\n"
    "    BUFFER(const M, x, from);\n"
    "    BUFFER(M, y, to);\n"
    "    EACH_ELEMENT {\n"
    "        INDEX rest = (INDEX)i, c;\n"
    "        SPLIT(lanes, lane) SPLIT(out2, at2) SPLIT(out1, at1) SPLIT(out0, at0)\n"
    "        TAPS(0) TAPS(1) TAPS(2)\n"
    "        A v[V], u[V];\n"
    "        i64 plane = (i64)rest * in0, by = step2 * lanes * V;\n"
    "        bool any = first0 < end0 && first1 < end1 && first2 < end2;\n"
    "        i64 divisor = (i64)counted0 * counted1 * counted2;\n"
    "#define ROW(a, b) (((plane + start0 + (i64)(a) * step0) * in1 + start1 + (i64)(b) * step1) * in2 + start2)\n"
    "#define TAP(row, e) (x + (((row) + (i64)(e) * step2) * lanes + lane) * V)\n"
    "        EACH(k) v[k] = BEGIN;\n"
    "        if (any) { BEGIN_ANY }\n"
    "        for (COORDINATE a = first0; a < end0; a++)\n"
    "            for (COORDINATE b = first1; b < end1; b++) {\n"
    "                GLOBAL const M *p = TAP(ROW(a, b), first2);\n"
    "                UNROLL_4\n"
    "                for (COORDINATE e = first2; e < end2; e++, p += by) { load(p, u); EACH(k) TAKE }\n"
    "            }\n"
    "        FINISH\n"
    "        store(y + i * V, v);\n"
    "    }\n"
    "}\n";

static const char *const pool_words[] = {
    [GPU_WINDOW_MAX] =
        "#define BEGIN LOWEST\n"
        "#define BEGIN_ANY load(TAP(ROW(first0, first1), first2), v);\n"
        "#define TAKE v[k] = u[k] > v[k] ? u[k] : v[k];\n"
        "#define FINISH\n",
    [GPU_WINDOW_AVERAGE] =
        "#define BEGIN 0\n"
        "#define BEGIN_ANY EACH(k) v[k] = -(A)0;\n"
        "#define TAKE v[k] = v[k] + u[k];\n"
        "#define FINISH A factor = (A)1 / (A)(divisor > 0 ? divisor : 1); EACH(k) v[k] = v[k] * factor;\n",
    [GPU_WINDOW_LP1] =
        "#define BEGIN 0\n"
        "#define BEGIN_ANY\n"
        "#define TAKE v[k] = v[k] + SIZE_OF(u[k]);\n"
        "#define FINISH\n",
    [GPU_WINDOW_LP2] =
        "#define BEGIN 0\n"
        "#define BEGIN_ANY\n"
        "#define TAKE v[k] = v[k] + u[k] * u[k];\n"
        "#define FINISH EACH(k) v[k] = SQRT(v[k]);\n",
};

/* --- resizes --- */

/* Where index `at` lies in the source, in f32 as the host reckons: which neighbour is nearest hangs on the rounding.
 * pD is its floor, rD what is left. keepD: the axis stays as it is. Beyond the ends with `crop` stands the fill. */
static const char resize_words[] =
    "#define PARAM(d) , i64 in##d, i64 keep##d, f32 base##d, f32 shift##d, f32 mul##d, f32 div##d, f32 minus##d\n"
    "#define PLACE(d) \\\n"
    "    f32 x##d = base##d + ((f32)at##d + shift##d) * mul##d / div##d - minus##d, f##d = floor_f32(x##d); \\\n"
    "    i64 p##d = keep##d ? (i64)at##d : (i64)f##d; \\\n"
    "    f32 left##d = keep##d ? 0.0f : x##d - f##d; \\\n"
    "    if (crop && !keep##d && (x##d < 0.0f || p##d >= in##d || (p##d == in##d - 1 && left##d > 0.0f))) \\\n"
    "        outside = true;\n"
    "FUNCTION i64 inside(i64 p, i64 in) { return p < 0 ? 0 : p < in ? p : in - 1; }\n";

/* fill: the element, repeated over 8 bytes. `up`: the part behind the floor beyond which the next one is nearer,
 * at_least 1: from which on. */
static const char nearest_body[] =
    "#define NEAR(d) i64 q##d = keep##d ? p##d : \\\n"
    "    inside(p##d + (left##d > up || (at_least && left##d == up) ? 1 : 0), in##d);\n"
    "KERNEL_OF(256) window(BUFFER_ARG(from), BUFFER_ARG(to), i64 n, SIZE(lanes), SIZES EACH_AXIS(PARAM),\n"
    "    i64 crop, i64 fill, f32 up, i64 at_least) {\n"
    "    BUFFER(const T, x, from);\n"
    "    BUFFER(T, y, to);\n"
    "    EACH_ELEMENT {\n"
    "        INDEX rest = (INDEX)i, c;\n"
    "        bool outside = false;\n"
    "        SPLIT(lanes, lane) SPLIT_AXES\n"
    "        EACH_AXIS(PLACE)\n"
    "        EACH_AXIS(NEAR)\n"
    "        T v;\n"
    "        if (outside) v = FILL;\n"
    "        else v = READ(T, x + ROW_NEAR * lanes + lane);\n"
    "        WRITE(T, y + i, v);\n"
    "    }\n"
    "}\n";

/* Keys, "Cubic convolution interpolation for digital image processing", 1981, equation 4; beyond a distance of 1 as
 * a (x - 1) (x - 2)^2, which loses no digits in f32. */
static const char cubic_taps[] =
    "#define TAPS 4\n"
    "FUNCTION A cubic_near(A x, A a) { return ((a + 2) * x - (a + 3)) * x * x + 1; }\n"
    "FUNCTION A cubic_far(A x, A rest, A a) { return a * x * rest * rest; }\n"
    "#define WEIGHT(k, r) (k == 0 ? cubic_far(r, 1 - (r), (A)cubic_a) : k == 1 ? cubic_near(r, (A)cubic_a) : \\\n"
    "    k == 2 ? cubic_near(1 - (r), (A)cubic_a) : cubic_far(1 - (r), r, (A)cubic_a))\n";
static const char linear_taps[] =
    "#define TAPS 2\n"
    "#define WEIGHT(k, r) (k == 0 ? 1 - (r) : (r))\n";

/* Taps beyond the ends take the end's value, or with `exclude` are left out. */
static const char blend_words[] =
    "FUNCTION void taps(i64 p, A r, i64 in, i64 exclude, f32 cubic_a, i64 *q, A *w) {\n"
    "    A sum = 0;\n"
    "    UNROLL\n"
    "    for (i32 k = 0; k < TAPS; k++) {\n"
    "        i64 at = p - (TAPS / 2 - 1) + k;\n"
    "        w[k] = exclude && (at < 0 || at >= in) ? 0 : WEIGHT(k, r);\n"
    "        q[k] = inside(at, in);\n"
    "        sum = sum + w[k];\n"
    "    }\n"
    "    if (!exclude || sum == 0) return;\n"
    "    UNROLL\n"
    "    for (i32 k = 0; k < TAPS; k++) w[k] = w[k] / sum;\n"
    "}\n"
    "#define TAKE_TAPS(d) i64 q##d[TAPS]; A w##d[TAPS]; \\\n"
    "    taps(p##d, keep##d ? 0 : (A)x##d - (A)f##d, in##d, exclude, cubic_a, q##d, w##d); \\\n"
    "    if (keep##d) q##d[0] = p##d;\n"
    "#define EACH_TAP(d, k) UNROLL for (i32 k = 0; k < TAPS; k++) if (k == 0 || !keep##d)\n"
    "#define BLEND(d, t, sum, term) EACH(k) sum[k] = \\\n"
    "    t == 0 ? (keep##d ? term[k] : w##d[0] * term[k]) : sum[k] + w##d[t] * term[k];\n";

static const char blend_body[] =
    "KERNEL_OF(256) window(BUFFER_ARG(from), BUFFER_ARG(to), i64 n, SIZE(lanes), SIZES EACH_AXIS(PARAM),\n"
    "    i64 crop, f32 fill, i64 exclude, f32 cubic_a) {\n"
    "    BUFFER(const M, x, from);\n"
    "    BUFFER(M, y, to);\n"
    "    EACH_ELEMENT {\n"
    "        INDEX rest = (INDEX)i, c;\n"
    "        bool outside = false;\n"
    "        SPLIT(lanes, lane) SPLIT_AXES\n"
    "        EACH_AXIS(PLACE)\n"
    "        EACH_AXIS(TAKE_TAPS)\n"
    "        A u[V];\n"
    "        INTERPOLATE\n"
    "        if (outside) { EACH(k) s0[k] = (A)fill; }\n"
    "        store(y + i * V, s0);\n"
    "    }\n"
    "}\n";
/* clang-format on */

/* The row of lanes that lies at q0, q1, ... in the source; taps: at the tap tD of each. */
static void add_row(Text *text, int axes, bool taps) {
    for (int d = 0; d < axes; d++) add(text, "(");
    add(text, "(i64)rest");
    for (int d = 0; d < axes; d++) {
        text_add(text, " * in%d + q%d", d, d);
        if (taps) text_add(text, "[t%d]", d);
        add(text, ")");
    }
}

static void add_axes(Text *text, int axes) {
    add(text, "#define EACH_AXIS(X)");
    for (int d = 0; d < axes; d++) text_add(text, " X(%d)", d);
    add(text, "\n#define SPLIT_AXES");
    for (int d = axes - 1; d >= 0; d--) text_add(text, " SPLIT(out%d, at%d)", d, d);
    add(text, "\n#define SIZES");
    for (int d = axes - 1; d >= 0; d--) text_add(text, " SIZE(out%d)%s", d, d ? "," : "");
    add(text, "\n#define ROW_NEAR ");
    add_row(text, axes, false);
    add(text, "\n");
}

/* Loops over the taps of all axes; sL is what loop L adds up. As the host has it: axes go in pairs from the last on,
 * and of a pair the outer axis is blended first, in the inner loop. */
static void add_interpolation(Text *text, int axes) {
    int order[GPU_WINDOW_AXES], count = 0;
    if (axes % 2) order[count++] = 0;
    for (int d = axes % 2; d < axes; d += 2) {
        order[count++] = d + 1;
        order[count++] = d;
    }
    add(text, "#define INTERPOLATE");
    for (int l = 0; l < axes; l++) text_add(text, " A s%d[V];", l);
    for (int l = 0; l < axes; l++) text_add(text, " EACH_TAP(%d, t%d) {", order[l], order[l]);
    add(text, " load(x + (");
    add_row(text, axes, true);
    add(text, " * lanes + lane) * V, u);");
    for (int l = axes - 1; l >= 0; l--) {
        text_add(text, " BLEND(%d, t%d, s%d, ", order[l], order[l], l);
        if (l == axes - 1)
            add(text, "u) }");
        else
            text_add(text, "s%d) }", l + 1);
    }
    add(text, "\n");
}

static void add_nearest(Text *text, const GpuWindowProgram *program) {
    static const char *const units[] = {[1] = "u8", [2] = "u16", [4] = "u32", [8] = "u64"};
    text_add(text, "#define T %s\n", program->wide ? "u128" : units[dtype_size(program->dtype)]);
    if (program->wide)
        add(text, "FUNCTION u128 words(u64 w) { u128 r; r.x = r.z = (u32)w; r.y = r.w = (u32)(w >> 32); return r; }\n"
                  "#define FILL words((u64)fill)\n");
    else
        add(text, "#define FILL ((T)(u64)fill)\n");
    add(text, resize_words);
    add_axes(text, program->axes);
    add(text, nearest_body);
}

void gpu_window_source(Text *text, GpuDialect dialect, GpuWindowProgram program) {
    add(text, gpu_prelude(dialect));
    add(text, program.far ? far_words : near_words);
    add(text, split_words);
    if (program.kind == GPU_WINDOW_NEAREST) {
        add_nearest(text, &program);
        return;
    }
    add_types(text, &types[gpu_window_type_number(program.dtype)], program.wide);
    if (program.kind < GPU_WINDOW_NEAREST) {
        add(text, pool_words[program.kind]);
        add(text, pool_body);
        return;
    }
    add(text, resize_words);
    add(text, program.kind == GPU_WINDOW_CUBIC ? cubic_taps : linear_taps);
    add(text, blend_words);
    add_axes(text, program.axes);
    add_interpolation(text, program.axes);
    add(text, blend_body);
}
