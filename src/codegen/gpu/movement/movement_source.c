/* SPDX-License-Identifier: Apache-2.0 */
/* The text of the movement programs. Macros before the bodies choose the unit T and the number of axes. Axis 0 is the
 * innermost. Keep the order of the parameters: movement.c gives them. */
#include "codegen/gpu/dialect.h"
#include "codegen/gpu/region/divide.h"
#include "codegen/gpu/movement/movement.h"

/* An index is taken apart along axes of sizes known at run time; near by divide.h. */
static const char common[] = GPU_DIVIDE_SOURCE
    "FUNCTION u128 words_128(u64 low, u64 high) {\n"
    "    u128 r; r.x = (u32)low; r.y = (u32)(low >> 32); r.z = (u32)high; r.w = (u32)(high >> 32); return r;\n"
    "}\n"
    /* an index as i64, counted from the start; -1 after a report when it is out of range */
    "FUNCTION i64 checked(GLOBAL const u8 *indices, i64 at, i64 wide, i64 limit, GLOBAL i64 *faults) {\n"
    "    i64 index = wide ? READ(i64, indices + at * 8) : (i64)READ(i32, indices + at * 4);\n"
    "    i64 place = index < 0 ? index + limit : index;\n"
    "    if (place >= 0 && place < limit) return place;\n"
    "    WRITE(i64, faults, 1); WRITE(i64, faults + 1, index); WRITE(i64, faults + 2, limit);\n"
    "    return -1;\n"
    "}\n"
    "#define SPLIT(d) c = DIVIDE(rest, size##d); at = (i64)(rest - c * (INDEX)size##d); rest = c;\n";

static const char near_words[] = "#define INDEX u32\n"
                                 "#define SIZE(name) i64 name, i64 name##_magic\n"
                                 "#define DIVIDE(x, name) divide(x, name##_magic)\n"
                                 "#define ITEMS 4\n"
                                 "#define EACH_AXIS(M) M(0) M(1) M(2) M(3)\n";
static const char far_words[] =
    "#define INDEX i64\n"
    "#define SIZE(name) i64 name\n"
    "#define DIVIDE(x, name) ((x) / name)\n"
    "#define ITEMS 1\n"
    "#define EACH_AXIS(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)\n";
/* A thread takes ITEMS units of the result, 256 apart: `setup` computes from the index `rest` where each comes
 * from, `read` reads it and says in put[k] where it goes; all are read before one is written. */
#define MOVE_LOOP(setup, read)                                                                                         \
    "    for (i64 chunk = BLOCK * (256 * ITEMS); chunk < n; chunk += BLOCKS * (256 * ITEMS)) {\n"                      \
    "        T v[ITEMS]; i64 put[ITEMS];\n"                                                                            \
    "        UNROLL\n"                                                                                                 \
    "        for (i32 k = 0; k < ITEMS; k++) {\n"                                                                      \
    "            i64 i = chunk + k * 256 + THREAD, at;\n"                                                              \
    "            put[k] = -1;\n"                                                                                       \
    "            if (i < n) {\n"                                                                                       \
    "                INDEX rest = (INDEX)i, c;\n" setup read "            }\n"                                         \
    "        }\n"                                                                                                      \
    "        UNROLL\n"                                                                                                 \
    "        for (i32 k = 0; k < ITEMS; k++) if (put[k] >= 0) WRITE(T, y + put[k], v[k]);\n"                           \
    "    }\n"

/* clang-format off */

static const char copy_body[] =
    "#define PARAM(d) , SIZE(size##d), i64 from##d, i64 to##d\n"
    "#define STEP(d) SPLIT(d) f += at * from##d; t += at * to##d;\n"
    "KERNEL_OF(256) copy(BUFFER_ARG(from), BUFFER_ARG(to), i64 n EACH_AXIS(PARAM)) {\n"
    "    BUFFER(const T, x, from);\n"
    "    BUFFER(T, y, to);\n"
    MOVE_LOOP("i64 f = 0, t = 0;\nEACH_AXIS(STEP)\n",
              "v[k] = READ(T, x + f); put[k] = t;\n")
    "}\n";

/* Outside of the input, the fill: an element of fill_size bytes, repeated over a unit. */
static const char pad_body[] =
    "#define PARAM(d) , SIZE(size##d), i64 before##d, i64 inner##d, i64 from##d\n"
    "#define STEP(d) SPLIT(d) at -= before##d; inside = inside && at >= 0 && at < inner##d; f += at * from##d;\n"
    "KERNEL_OF(256) pad(BUFFER_ARG(from), BUFFER_ARG(value), BUFFER_ARG(to), i64 n, i64 fill_size\n"
    "    EACH_AXIS(PARAM)) {\n"
    "    BUFFER(const T, x, from);\n"
    "    BUFFER(const u8, p, value);\n"
    "    BUFFER(T, y, to);\n"
    "    u64 low = 0, high;\n"
    "    if (fill_size == 1) low = READ(u8, p) * (u64)0x0101010101010101UL;\n"
    "    else if (fill_size == 2) low = READ(u16, p) * (u64)0x0001000100010001UL;\n"
    "    else if (fill_size == 4) low = READ(u32, p) * (u64)0x0000000100000001UL;\n"
    "    else low = READ(u64, p);\n"
    "    high = fill_size == 16 ? READ(u64, p + 8) : low;\n"
    "    T fill = WORDS(low, high);\n"
    MOVE_LOOP(
        "i64 f = 0; bool inside = true;\nEACH_AXIS(STEP)\n",
        "if (inside) v[k] = READ(T, x + f); else v[k] = fill;\nput[k] = i;\n")
    "}\n";

/* Up to 8 inputs side by side: of each row of the result (to_row units), the part of `window` units from to_start on.
 * Input K gives rowK units to a row, from startK of the window on. */
static const char concat_body[] =
    "#define CHOOSE(k) if (r >= start##k) { p = x##k; s = start##k; w = row##k; }\n"
    "KERNEL_OF(256) concat(BUFFER_ARG(in0), BUFFER_ARG(in1), BUFFER_ARG(in2), BUFFER_ARG(in3), BUFFER_ARG(in4),\n"
    "    BUFFER_ARG(in5), BUFFER_ARG(in6), BUFFER_ARG(in7), BUFFER_ARG(to), i64 n, SIZE(window), i64 to_row,\n"
    "    i64 to_start, i64 row0, i64 start1, i64 row1, i64 start2, i64 row2, i64 start3, i64 row3, i64 start4,\n"
    "    i64 row4, i64 start5, i64 row5, i64 start6, i64 row6, i64 start7, i64 row7) {\n"
    "    BUFFER(const T, x0, in0);\n"
    "    BUFFER(const T, x1, in1);\n"
    "    BUFFER(const T, x2, in2);\n"
    "    BUFFER(const T, x3, in3);\n"
    "    BUFFER(const T, x4, in4);\n"
    "    BUFFER(const T, x5, in5);\n"
    "    BUFFER(const T, x6, in6);\n"
    "    BUFFER(const T, x7, in7);\n"
    "    BUFFER(T, y, to);\n"
    MOVE_LOOP(
        "c = DIVIDE(rest, window);\n"
        "i64 r = (i64)(rest - c * (INDEX)window), s = 0, w = row0;\n"
        "GLOBAL const T *p = x0;\n"
        "CHOOSE(1) CHOOSE(2) CHOOSE(3) CHOOSE(4) CHOOSE(5) CHOOSE(6) CHOOSE(7)\n"
        "at = (i64)c;\n",
        "v[k] = READ(T, p + at * w + (r - s)); put[k] = at * to_row + to_start + r;\n")
    "}\n";

/* data [outer, limit, row], indices [count] -> [outer, count, row]. */
static const char gather_body[] =
    "KERNEL_OF(256) gather(BUFFER_ARG(from), BUFFER_ARG(index), BUFFER_ARG(to), BUFFER_ARG(fault), i64 n,\n"
    "    SIZE(row), SIZE(count), i64 limit, i64 wide) {\n"
    "    BUFFER(const T, x, from);\n"
    "    BUFFER(const u8, indices, index);\n"
    "    BUFFER(T, y, to);\n"
    "    BUFFER(i64, faults, fault);\n"
    MOVE_LOOP(
        "c = DIVIDE(rest, row);\n"
        "i64 r = (i64)(rest - c * (INDEX)row);\n"
        "rest = c; c = DIVIDE(rest, count);\n"
        "at = checked(indices, (i64)(rest - c * (INDEX)count), wide, limit, faults);\n",
        "if (at >= 0) { v[k] = READ(T, x + ((i64)c * limit + at) * row + r); put[k] = i; }\n")
    "}\n";

/* Over the indices: fromD are the data's strides, 0 along the axis, which has `along`. */
static const char gather_elements_body[] =
    "#define PARAM(d) , SIZE(size##d), i64 from##d\n"
    "#define STEP(d) SPLIT(d) f += at * from##d;\n"
    "KERNEL_OF(256) gather_elements(BUFFER_ARG(from), BUFFER_ARG(index), BUFFER_ARG(to), BUFFER_ARG(fault),\n"
    "    i64 n, i64 along, i64 limit, i64 wide EACH_AXIS(PARAM)) {\n"
    "    BUFFER(const T, x, from);\n"
    "    BUFFER(const u8, indices, index);\n"
    "    BUFFER(T, y, to);\n"
    "    BUFFER(i64, faults, fault);\n"
    MOVE_LOOP(
        "i64 f = 0;\nEACH_AXIS(STEP)\nat = checked(indices, i, wide, limit, faults);\n",
        "if (at >= 0) { v[k] = READ(T, x + f + at * along); put[k] = i; }\n")
    "}\n";

/* A line: the updates along the axis at one place of all other axes; no two lines meet in the result. `lines`: a
 * thread takes a line, one update after the other. */
static const char scatter_lines_body[] =
    "#define PARAM(d) , SIZE(size##d), i64 from##d, i64 to##d\n"
    "#define STEP(d) SPLIT(d) f += at * from##d; t += at * to##d;\n"
    "KERNEL_OF(256) scatter_lines(BUFFER_ARG(update), BUFFER_ARG(index), BUFFER_ARG(to), BUFFER_ARG(fault),\n"
    "    i64 n, i64 count, i64 from_along, i64 to_along, i64 limit, i64 wide EACH_AXIS(PARAM)) {\n"
    "    BUFFER(const T, updates, update);\n"
    "    BUFFER(const u8, indices, index);\n"
    "    BUFFER(T, y, to);\n"
    "    BUFFER(i64, faults, fault);\n"
    "    for (i64 i = BLOCK * 256 + THREAD; i < n; i += BLOCKS * 256) {\n"
    "        INDEX rest = (INDEX)i, c;\n"
    "        i64 f = 0, t = 0, at;\n"
    "        EACH_AXIS(STEP)\n"
    "        for (i64 k = 0; k < count; k++, f += from_along) {\n"
    "            at = checked(indices, f, wide, limit, faults);\n"
    "            if (at < 0) continue;\n"
    "            GLOBAL T *p = y + t + at * to_along;\n"
    "            T u = READ(T, updates + f);\n"
    "            WRITE(T, p, COMBINE(p, u));\n"
    "        }\n"
    "    }\n"
    "}\n";

/* A block takes updates [chunk, chunk + m), m <= 256, at a time. dests: where each goes, -1 for nowhere. Unless the
 * places rise strictly, the first update of each place is its leader, which applies the later ones in their order. */
#define CHUNK_WORDS                                                                                                    \
    "    SHARED i64 dests[256];\n"                                                                                     \
    "    SHARED i32 leaders[256];\n"                                                                                   \
    "    SHARED i32 unordered[1];\n"
#define CHUNK(locate, rows, active, first, source)                                                                       \
    "        for (i64 chunk = 0; chunk < count; chunk += 256) {\n"                                                     \
    "            i32 m = (i32)(count - chunk < 256 ? count - chunk : 256), me = (i32)THREAD;\n"                        \
    "            i64 dest = -1;\n"                                                                                     \
    "            if (me < m) {\n" locate "            }\n"                                                             \
    "            dests[me] = dest;\n"                                                                                  \
    "            if (me == 0) unordered[0] = 0;\n"                                                                     \
    "            BARRIER;\n"                                                                                           \
    "            if (me + 1 < m && dests[me + 1] <= dest) unordered[0] = 1;\n"                                         \
    "            BARRIER;\n"                                                                                           \
    "            i32 mixed = unordered[0], leader = dest >= 0;\n"                                                      \
    "            if (mixed && me < m) for (i32 j = 0; j < me; j++) if (dests[j] == dest) leader = 0;\n"                \
    "            leaders[me] = leader;\n"                                                                              \
    "            BARRIER;\n"                                                                                           \
    "            for (i32 e = " first "; e < m; e += " rows ") {\n"                                                    \
    "                if (!(" active ")) continue;\n"                                                      \
    "                i64 place = dests[e];\n"                                                                          \
    "                i64 f = chunk + e;\n"                                                                             \
    "                T u = READ(T, updates + " source ");\n"                                                           \
    "                GLOBAL T *p = y + place;\n"                                                                       \
    "                T r = COMBINE(p, u);\n"                                                                           \
    "                if (mixed) for (i32 j = e + 1; j < m; j++) if (dests[j] == place) {\n"                            \
    "                    f = chunk + j;\n"                                                                             \
    "                    u = READ(T, updates + " source ");\n"                                                         \
    "                    r = COMBINE_VALUES(r, u);\n"                                                                  \
    "                }\n"                                                                                              \
    "                WRITE(T, p, r);\n"                                                                                \
    "            }\n"                                                                                                  \
    "            BARRIER_GLOBAL;\n"                                                                                    \
    "        }\n"

static const char scatter_long_body[] =
    "KERNEL_OF(256) scatter_long(BUFFER_ARG(update), BUFFER_ARG(index), BUFFER_ARG(to), BUFFER_ARG(fault),\n"
    "    i64 n, i64 count, i64 from_along, i64 to_along, i64 limit, i64 wide EACH_AXIS(PARAM)) {\n" CHUNK_WORDS
    "    BUFFER(const T, updates, update);\n"
    "    BUFFER(const u8, indices, index);\n"
    "    BUFFER(T, y, to);\n"
    "    BUFFER(i64, faults, fault);\n"
    "    for (i64 i = BLOCK; i < n; i += BLOCKS) {\n"
    "        INDEX rest = (INDEX)i, c;\n"
    "        i64 f = 0, t = 0, at;\n"
    "        EACH_AXIS(STEP)\n"
    "        i64 base = f;\n"
    CHUNK(
        "                at = checked(indices, base + (chunk + me) * from_along, wide, limit, faults);\n"
        "                if (at >= 0) dest = t + at * to_along;\n",
        "256", "leaders[e]", "me", "base + f * from_along")
    "    }\n"
    "}\n";

/* updates [count, run]; indices [count, depth]; a block has `lanes` (a power of two) of the run's units. */
static const char scatter_nd_body[] =
    "#define PARAM(d) , i64 limit##d, i64 step##d\n"
    "#define PLACE(d) if (d < depth && dest >= 0) { \\\n"
    "    i64 at = checked(indices, (chunk + me) * depth + d, wide, limit##d, faults); \\\n"
    "    dest = at < 0 ? -1 : dest + at * step##d; }\n"
    "KERNEL_OF(256) scatter_nd(BUFFER_ARG(update), BUFFER_ARG(index), BUFFER_ARG(to), BUFFER_ARG(fault),\n"
    "    i64 count, i64 run, i64 depth, i64 lanes, i64 wide EACH_AXIS(PARAM)) {\n" CHUNK_WORDS
    "    BUFFER(const T, updates, update);\n"
    "    BUFFER(const u8, indices, index);\n"
    "    BUFFER(T, y, to);\n"
    "    BUFFER(i64, faults, fault);\n"
    "    i32 rows = 256 / (i32)lanes;\n"
    "    for (i64 tile = BLOCK * lanes; tile < run; tile += BLOCKS * lanes) {\n"
    "        i64 lane = tile + (THREAD & (lanes - 1));\n"
    "        y += lane;\n"
    CHUNK("                dest = 0;\n"
          "                EACH_AXIS(PLACE)\n",
          "rows", "leaders[e] && lane < run", "me / (i32)lanes", "f * run + lane")
    "        y -= lane;\n"
    "    }\n"
    "}\n";

/* clang-format on */

/* --- programs --- */

typedef struct Body {
    GpuMoveKind kind;
    const char *text[2];
} Body;
static const Body bodies[] = {
    {GPU_MOVE_COPY, {copy_body}},
    {GPU_MOVE_PAD, {pad_body}},
    {GPU_MOVE_CONCAT, {concat_body}},
    {GPU_MOVE_GATHER, {gather_body}},
    {GPU_MOVE_GATHER_ELEMENTS, {gather_elements_body}},
    {GPU_MOVE_SCATTER_ELEMENTS, {scatter_lines_body, scatter_long_body}},
    {GPU_MOVE_SCATTER_ND, {scatter_nd_body}},
};

/* The type that memory holds, the type of arithmetic, and the conversions between. */
typedef struct Arithmetic {
    DType dtype;
    const char *memory, *value, *load, *store;
} Arithmetic;
static const Arithmetic arithmetics[] = {
    {DT_F32, "f32", "f32", "", ""},
    {DT_F64, "f64", "f64", "", ""},
    {DT_F16, "u16", "f32", "load_f16", "store_f16"},
    {DT_BF16, "u16", "f32", "load_bf16", "store_bf16"},
    {DT_I8, "i8", "i8", "", ""},
    {DT_U8, "u8", "u8", "", ""},
    {DT_I16, "i16", "i16", "", ""},
    {DT_U16, "u16", "u16", "", ""},
    {DT_I32, "i32", "i32", "", ""},
    {DT_U32, "u32", "u32", "", ""},
    {DT_I64, "i64", "i64", "", ""},
    {DT_U64, "u64", "u64", "", ""},
    {DT_BOOL, "u8", "u8", "0 != ", ""},
};

static const Arithmetic *arithmetic(DType dtype) {
    for (size_t i = 0; i < sizeof arithmetics / sizeof *arithmetics; i++)
        if (arithmetics[i].dtype == dtype) return &arithmetics[i];
    return NULL;
}

/* Integers wrap: they are added and multiplied without a sign, in a type that is not narrower than int. */
static void add_combine(Text *text, GpuMoveProgram program) {
    const Arithmetic *a = arithmetic(program.dtype);
    bool real = dtype_is_float(program.dtype);
    const char *wide = real ? a->value : dtype_size(program.dtype) == 8 ? "u64" : "u32";
    text_add(text, "FUNCTION %s combine(%s old, %s update) {\n    %s a = (%s)(%s(old)), b = (%s)(%s(update));\n",
             a->memory, a->memory, a->memory, a->value, a->value, a->load, a->value, a->load);
    switch (program.combine) {
    case PRIM_ADD: text_add(text, "    a = (%s)((%s)a + (%s)b);\n", a->value, wide, wide); break;
    case PRIM_MUL: text_add(text, "    a = (%s)((%s)a * (%s)b);\n", a->value, wide, wide); break;
    default:
        text_add(text, "    a = %sa %s b ? a : b;\n", real ? "a != a || " : "",
                 program.combine == PRIM_MIN ? "<" : ">");
    }
    text_add(text, "    return (%s)(%s(a));\n}\n#define COMBINE_VALUES(a, b) combine(a, b)\n", a->memory, a->store);
    text_add(text, "#define COMBINE(pointer, update) combine(READ(T, pointer), update)\n");
}

void gpu_move_source(Text *text, GpuDialect dialect, GpuMoveProgram program) {
    static const char *const types[] = {[1] = "u8", [2] = "u16", [4] = "u32", [8] = "u64", [16] = "u128"};
    const Body *body = bodies;
    while (body->kind != program.kind) body++;
    text_add(text, "%s%s%s", gpu_prelude(dialect), common, program.far ? far_words : near_words);
    text_add(text, "#define T %s\n#define WORDS(low, high) %s\n",
             program.combine ? arithmetic(program.dtype)->memory : types[program.unit],
             program.unit == 16 ? "words_128(low, high)" : "(T)(low)");
    if (program.combine)
        add_combine(text, program);
    else
        text_add(text, "#define COMBINE(pointer, update) (update)\n#define COMBINE_VALUES(old, update) (update)\n");
    for (int i = 0; i < 2 && body->text[i]; i++) text_add_bytes(text, body->text[i], strlen(body->text[i]));
}

bool gpu_move_combines(DType dtype) { return arithmetic(dtype) != NULL; }
