/* SPDX-License-Identifier: Apache-2.0 */
/* Both preludes define every word of codegen/gpu/dialect.h, each once in a dialect's way, and nothing is included. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <string.h>
#include "codegen/gpu/dialect.h"

static const char *const words[] = {
    "KERNEL_OF",
    "KERNEL_BESIDE",
    "BUFFER_ARG",
    "BUFFER",
    "GLOBAL",
    "SHARED",
    "SHARED_POINTER",
    "FUNCTION",
    "THREAD",
    "BLOCK",
    "BLOCKS",
    "BLOCK_SIZE",
    "BARRIER",
    "BARRIER_GLOBAL",
    "UNROLL",
    "i8",
    "u8",
    "i16",
    "u16",
    "i32",
    "u32",
    "i64",
    "u64",
    "f32",
    "f64",
    "HAS_F64",
    "u128",
    "READ",
    "WRITE",
    "SHUFFLE_XOR_i32",
    "SHUFFLE_XOR_u32",
    "SHUFFLE_XOR_i64",
    "SHUFFLE_XOR_u64",
    "SHUFFLE_XOR_f32",
    "SHUFFLE_XOR_f64",
    "load_f16",
    "load_f16_high",
    "store_f16",
    "load_bf16",
    "store_bf16",
    "pack_f16",
    "pack_bf16",
    "fma_f32",
    "fma_f64",
    "sqrt_f32",
    "sqrt_f64",
    "floor_f32",
    "floor_f64",
    "ceil_f32",
    "ceil_f64",
    "trunc_f32",
    "trunc_f64",
    "rint_f32",
    "rint_f64",
    "fabs_f32",
    "fabs_f64",
    "fmod_f32",
    "fmod_f64",
    "exp_f32",
    "log_f32",
    "tanh_f32",
    "erf_f32",
    "BITS_f32",
    "FLOAT_u32",
    "BITS_f64",
    "FLOAT_u64",
    "MUL_HIGH_u32",
    "INFINITY_f32",
    "NAN_f32",
    "INFINITY_f64",
    "NAN_f64",
};

static bool part_of_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* A word is defined by "#define WORD", "typedef ... WORD;" or "FUNCTION type WORD(". */
static bool line_defines(const char *line, size_t size, const char *word) {
    static const char *const begins[] = {"#define ", "typedef ", "FUNCTION "};
    size_t length = strlen(word);
    for (size_t b = 0; b < sizeof begins / sizeof *begins; b++) {
        if (strncmp(line, begins[b], strlen(begins[b])) != 0) continue;
        for (size_t at = strlen(begins[b]); at + length <= size; at++) {
            bool whole = !part_of_word(line[at - 1]) && !part_of_word(line[at + length]);
            bool placed = b == 0   ? at == strlen(begins[b])
                          : b == 1 ? line[at + length] == ';'
                                   : line[at + length] == '(';
            if (whole && placed && !strncmp(line + at, word, length)) return true;
        }
    }
    return false;
}

static bool defines(const char *text, const char *word) {
    for (const char *line = text; *line;) {
        size_t size = strcspn(line, "\n");
        if (line_defines(line, size, word)) return true;
        line += size + (line[size] != 0);
    }
    return false;
}

Test(gpu_dialect, every_word_is_defined) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        cr_expect(defines(gpu_prelude(GPU_CUDA), words[i]), "CUDA C: %s", words[i]);
        cr_expect(defines(gpu_prelude(GPU_OPENCL), words[i]), "OpenCL C: %s", words[i]);
    }
}

Test(gpu_dialect, nothing_is_included) {
    cr_expect(!strstr(gpu_prelude(GPU_CUDA), "#include"));
    cr_expect(!strstr(gpu_prelude(GPU_OPENCL), "#include"));
}
