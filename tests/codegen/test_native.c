/* SPDX-License-Identifier: Apache-2.0 */
/* The generator of our own: each instruction's bytes against LLVM's disassembler. What it makes of kernels is tested where
 * that is for all generators (test_render.c). */
#include <criterion/criterion.h>
#include <llvm-c/Disassembler.h>
#include <llvm-c/Target.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/plain.h"
#include "codegen/native/encode.h"
#include "codegen/native/native.h"
#include "handmade.h"

/* --- bytes --- */

static LLVMDisasmContextRef disassembler(const char *cpu) {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86Disassembler();
    LLVMDisasmContextRef context =
        LLVMCreateDisasmCPUFeatures("x86_64-unknown-linux-gnu", cpu, "", NULL, 0, NULL, NULL);
    cr_assert(context);
    LLVMSetDisasmOptions(context, LLVMDisassembler_Option_AsmPrinterVariant); /* Intel's syntax */
    return context;
}

/* The registers that a line names, in order, and its last number. */
static void operands_of(const char *line, char *out, size_t size) {
    size_t used = 0;
    while (*line && plain_is_space(*line)) line++;
    while (*line && !plain_is_space(*line)) line++; /* the mnemonic */
    while (*line) {
        size_t length = strspn(line, "abcdefghijklmnopqrstuvwxyz0123456789");
        if (!length) {
            line++;
            continue;
        }
        bool number = plain_is_digit(*line), reg = !number && length <= 5 && strncmp(line, "ptr", 3) &&
                                                   strncmp(line, "word", 4) && strncmp(line, "dword", 5) &&
                                                   strncmp(line, "qword", 5) && strncmp(line, "byte", 4) &&
                                                   !(length == 1 && *line == 'z');
        if (reg && used + length + 2 < size) {
            memcpy(out + used, line, length);
            used += length;
            out[used++] = ' ';
        }
        line += length;
    }
    out[used] = 0;
}

static RegClass class_of_operand(const Machine *m, const MachineRow *row, int op, int operand) {
    bool mask = row->name[0] == 'K',
         compares = m->avx512 && (strncmp(row->name, "VCMP", 4) == 0 || strncmp(row->name, "VPCMP", 5) == 0);
    bool from = op == X_KMOVQ_FROM || op == X_VMOVD_FROM || op == X_VMOVQ_FROM ||
                (op >= X_VCVTTSS2SI_D && op <= X_VCVTTSD2USI_Q);
    bool to = op == X_KMOVQ_TO || op == X_VMOVD_TO || op == X_VMOVQ_TO ||
              (op >= X_VPBROADCASTB_R && op <= X_VPBROADCASTQ_R) || (op >= X_VCVTSI2SS_D && op <= X_VCVTUSI2SD_Q);
    if (row->coding == PLAIN || (op >= X_SHLX && op <= X_SARX)) return CLASS_INTEGER;
    if (compares && operand == 0) return CLASS_MASK;
    bool moves_from = op == X_VMOVD_FROM || op == X_VMOVQ_FROM;
    if (moves_from) return operand == 2 ? CLASS_INTEGER : CLASS_VECTOR;
    if (from) return operand == 0 ? CLASS_INTEGER : mask ? CLASS_MASK : CLASS_VECTOR;
    if (to) return operand == 2 ? CLASS_INTEGER : mask ? CLASS_MASK : CLASS_VECTOR;
    return mask ? CLASS_MASK : CLASS_VECTOR;
}

static bool only_memory(int op) {
    static const short all[] = {
        X_LEA,          X_PREFETCHT0,      X_PREFETCHT1,      X_VMOVNTPS,         X_KMOVQ_STORE,     X_VGATHERQPS,
        X_VGATHERQPD,   X_VSCATTERQPS,     X_VSCATTERQPD,     X_VMOVSS_LOAD,      X_VMOVSS_STORE,    X_VMOVSD_LOAD,
        X_VMOVSD_STORE, X_VMASKMOVPS_LOAD, X_VMASKMOVPD_LOAD, X_VMASKMOVPS_STORE, X_VMASKMOVPD_STORE};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (all[n] == op) return true;
    return false;
}

static bool no_memory(const Machine *m, const MachineRow *row, int op) {
    bool through_masks = row->name[0] == 'K' && op != X_KMOVQ && op != X_KMOVQ_STORE;
    bool shifts = !m->avx512 && row->form == VM;
    return through_masks || shifts || (op >= X_VPBROADCASTB_R && op <= X_VPBROADCASTQ_R) || op == X_TEST;
}

typedef struct Shape {
    int registers[3], mask;
    bool memory;
    int base, index, scale, displacement;
} Shape;

static void check_bytes(LLVMDisasmContextRef context, Machine *m, int op, const Shape *shape, int length) {
    const MachineRow *row = &machine_rows[op];
    Encoded e = {.length = length};
    int most[REG_CLASSES] = {16, vector_registers(m), 8}, numbers[3];
    for (int n = 0; n < 3; n++) {
        e.classes[n] = class_of_operand(m, row, op, n);
        numbers[n] = shape->registers[n] % most[e.classes[n]];
    }
    bool vector_index = op >= X_VGATHERQPS && op <= X_VSCATTERQPD;
    e.reg = numbers[0];
    bool stores_masked = op == X_VMASKMOVPS_STORE || op == X_VMASKMOVPD_STORE;
    e.second = row->form == RVM || row->form == VM || stores_masked ? numbers[1] : 0;
    e.rm = (Operand){.base = numbers[2], .index = -1};
    if (shape->memory)
        e.rm = (Operand){.memory = true,
                         .base = shape->base,
                         .index = vector_index ? 19 : shape->index,
                         .scale = shape->scale,
                         .displacement = shape->displacement,
                         .vector_index = vector_index};
    bool evex = m->avx512 && row->coding <= BOTH;
    bool can_mask = evex && !no_memory(m, row, op) && row->unit && row->unit != 1 && e.classes[0] == CLASS_VECTOR &&
                    row->form != VM && row->form != MR && op != X_VMOVNTPS;
    if (can_mask || vector_index) e.mask = vector_index ? 3 : shape->mask;
    e.broadcast = evex && shape->memory && (row->unit == 4 || row->unit == 8) && shape->mask == 5;
    bool wide = row->coding != PLAIN || row->w || shape->mask & 1;
    m->bytes.count = 0;
    m->listing->size = 0;
    encode_one(m, op, e, wide, 5);
    char text[256], ours[256], theirs[256];
    size_t taken = LLVMDisasmInstruction(context, m->bytes.items, (uint64_t)m->bytes.count, 0, text, sizeof text);
    cr_assert_eq(taken, (size_t)m->bytes.count, "%s: %d bytes, of which the disassembler takes %zu: %s", row->name,
                 m->bytes.count, taken, text);
    const char *name = text;
    while (plain_is_space(*name)) name++;
    size_t same = 0;
    const char *listed = m->listing->data;
    while (plain_is_space(*listed)) listed++;
    while (listed[same] && !plain_is_space(listed[same]) && listed[same] == name[same]) same++;
    bool whole = plain_is_space(listed[same]) || (row->coding == PLAIN && plain_is_digit(listed[same]));
    bool alias = strncmp(name, "vcmp", 4) == 0 || (m->avx512 && strncmp(name, "vpcmp", 5) == 0);
    cr_assert(whole || (alias && same >= 4), "%s is read as %s", m->listing->data, text);
    operands_of(m->listing->data, ours, sizeof ours);
    operands_of(text, theirs, sizeof theirs);
    /* what a narrower register is called is not ours to say; base and index may be printed in another order */
    bool blends = op >= X_VBLENDVPS && op <= X_VPBLENDVB; /* whose mask is in what these shapes have for a number */
    if (row->coding <= AVX && !e.rm.memory && length == whole_length(m) && row->unit >= 4 &&
        e.classes[0] == CLASS_VECTOR && !blends)
        cr_assert_str_eq(ours, theirs, "%s: \"%s\", read as \"%s\"", row->name, m->listing->data, text);
    if (e.rm.memory) {
        char number[16];
        snprintf(number, sizeof number, "%d", abs(shape->displacement));
        cr_assert(!shape->displacement || strstr(text, number), "%s: no displacement of %s in %s", row->name, number,
                  text);
    }
}

/* Those of a machine with AVX-512, or of one with AVX2 alone, of whose registers all numbers are below 16. */
static void check_all(bool avx512) {
    static const Shape shapes[] = {
        {{1, 2, 3}, 0, false, 0, -1, 1, 0},     {{9, 12, 10}, 1, false, 0, -1, 1, 0},
        {{17, 25, 30}, 4, false, 0, -1, 1, 0},  {{31, 31, 31}, 7, false, 0, -1, 1, 0},
        {{1, 2, 3}, 0, true, RBX, -1, 1, 0},    {{9, 10, 11}, 1, true, RSP, -1, 1, 64},
        {{20, 21, 22}, 5, true, RBP, -1, 1, 0}, {{7, 6, 5}, 2, true, 13, 12, 8, -128},
        {{7, 6, 5}, 5, true, 12, RAX, 4, 1024}, {{30, 18, 5}, 0, true, 8, 15, 2, 4096},
        {{3, 14, 5}, 5, true, RDI, 9, 1, -8},   {{15, 16, 17}, 3, true, 13, -1, 1, 123456},
    };
    LLVMDisasmContextRef context = disassembler(avx512 ? "x86-64-v4" : "x86-64-v3");
    Arena *arena = arena_create(0);
    IrBuilder b;
    ir_begin(&b, arena, avx512);
    Text listing = text_make(arena);
    Machine m = {.ir = &b, .arena = arena, .avx512 = avx512, .listing = &listing};
    for (int op = 0; op < X_P_COPY; op++)
        for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
            for (int length = 0; length <= whole_length(&m); length++) {
                const MachineRow *row = &machine_rows[op];
                bool sized = row->coding <= AVX && row->unit != 1 && row->unit != 0, whole = length == whole_length(&m);
                if (row->coding == (avx512 ? AVX : EVEX) || (!avx512 && row->name[0] == 'K')) continue;
                if (!whole && !sized) continue;
                bool only_whole = op == X_VSHUFI32X4 || op == X_VPERM2I128 || op == X_VPERMD_Y;
                if (length == 0 && only_whole) continue; /* there is none of 16 bytes */
                if (shapes[n].memory ? no_memory(&m, row, op) : only_memory(op)) continue;
                if (row->unit == 0 && row->coding <= AVX && !shapes[n].memory && !whole) continue;
                bool small = strstr(row->name, "VPSRLDQ") || strncmp(row->name, "VMOVD_", 6) == 0 ||
                             strncmp(row->name, "VMOVQ_", 6) == 0 || strncmp(row->name, "VPEXTR", 6) == 0 ||
                             strncmp(row->name, "VCVTSI", 6) == 0 || strncmp(row->name, "VCVTUSI", 7) == 0 ||
                             strncmp(row->name, "VCVTTS", 6) == 0;
                check_bytes(context, &m, op, &shapes[n], small || row->unit == 1 ? 0 : length);
            }
    LLVMDisasmDispose(context);
    arena_destroy(arena);
}

Test(native, instructions_have_the_bytes_that_a_disassembler_reads) { check_all(true); }
Test(native, instructions_of_avx2_have_the_bytes_that_a_disassembler_reads) { check_all(false); }

/* --- what is not its own --- */

Test(native, leaves_other_machines_to_llvm) {
    Arena *arena = arena_create(0);
    Maker m = maker(arena, 128);
    axis(&m, AXIS_LANE, -1, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1), x);
    static const Target targets[] = {{.cpu = "x86-64-v2", .features = "", .vector_bytes = 16},
                                     {.cpu = "generic", .features = "", .vector_bytes = 16}};
    for (size_t n = 0; n < sizeof targets / sizeof *targets; n++) {
        void *object;
        size_t size;
        const char *reason;
        Status status = native_compile(m.kernel, &targets[n], NULL, &object, &size, &reason);
        cr_assert(!status && !object && reason);
    }
    arena_destroy(arena);
}
