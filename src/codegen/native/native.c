/* SPDX-License-Identifier: Apache-2.0 */
/* All passes in turn, and the object file. */
#include "codegen/native/native.h"

#include <elf.h>
#include <stdlib.h>
#include "codegen/llvm_plugin.h"
#include "codegen/native/machine.h"
#include "codegen/render/render.h"

/* One section of code and constants, and a symbol: no relocations, for all addresses are relative. */
static Status write_object(const Machine *m, void **out_object, size_t *out_size) {
    enum { NO_SECTION, TEXT, SYMBOLS, NAMES, SECTIONS };
    static const char names[] = "\0" KERNEL_SYMBOL "\0.text\0.symtab\0.strtab";
    size_t symbol_name = 1, text_name = sizeof KERNEL_SYMBOL + 1, code = (size_t)m->bytes.count;
    Elf64_Sym symbols[2] = {{0},
                            {.st_name = (Elf64_Word)symbol_name,
                             .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                             .st_shndx = TEXT,
                             .st_size = m->code_bytes}};
    size_t at_code = 64, at_symbols = at_code + (code + 63) / 64 * 64, at_names = at_symbols + sizeof symbols;
    size_t at_sections = (at_names + sizeof names + 7) / 8 * 8;
    Elf64_Shdr sections[SECTIONS] = {
        [TEXT] = {.sh_name = (Elf64_Word)text_name,
                  .sh_type = SHT_PROGBITS,
                  .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                  .sh_offset = at_code,
                  .sh_size = code,
                  .sh_addralign = 64},
        [SYMBOLS] = {.sh_name = (Elf64_Word)text_name + 6,
                     .sh_type = SHT_SYMTAB,
                     .sh_offset = at_symbols,
                     .sh_size = sizeof symbols,
                     .sh_link = NAMES,
                     .sh_info = 1,
                     .sh_addralign = 8,
                     .sh_entsize = sizeof *symbols},
        [NAMES] = {.sh_name = (Elf64_Word)text_name + 14,
                   .sh_type = SHT_STRTAB,
                   .sh_offset = at_names,
                   .sh_size = sizeof names,
                   .sh_addralign = 1},
    };
    Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_REL,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_shoff = at_sections,
        .e_ehsize = sizeof header,
        .e_shentsize = sizeof *sections,
        .e_shnum = SECTIONS,
        .e_shstrndx = NAMES,
    };
    char *object = calloc(1, at_sections + sizeof sections);
    if (!object) return status_out_of_memory();
    memcpy(object, &header, sizeof header);
    memcpy(object + at_code, m->bytes.items, code);
    memcpy(object + at_symbols, symbols, sizeof symbols);
    memcpy(object + at_names, names, sizeof names);
    memcpy(object + at_sections, sections, sizeof sections);
    *out_object = object;
    *out_size = at_sections + sizeof sections;
    return NULL;
}

static Status compile(Arena *arena, const Kernel *kernel, const Target *target, char **out_listing, void **out_object,
                      size_t *out_size, const char **out_reason) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
    Text *listing = out_listing ? ARENA_NEW(arena, Text) : NULL;
    if (listing) *listing = text_make(arena);
    IrBuilder *b = ARENA_NEW(arena, IrBuilder);
    Machine *m = ARENA_NEW(arena, Machine);
    Render *r = ARENA_NEW(arena, Render);
    *r = (Render){.kernel = kernel,
                  .arena = arena,
                  .isa = render_isa(target),
                  .cache_bytes = (int64_t)target->cache_bytes,
                  .builder = b};
    *m = (Machine){.ir = b, .arena = arena, .avx512 = r->isa.avx512, .listing = listing};
    ir_begin(b, arena, r->isa.avx512);
    render_analyse(r);
    render_kernel(r);
    if (!b->unsupported) optimise(b);
    if (!b->unsupported) select_code(m);
    if (!b->unsupported) allocate(m);
    if (!b->unsupported) encode(m);
    *out_reason = b->unsupported;
    if (b->unsupported) return NULL;
    if (out_listing && !(*out_listing = strdup(listing->data))) return status_out_of_memory();
    return write_object(m, out_object, out_size);
}

Status native_compile(const Kernel *kernel, const Target *target, char **out_listing, void **out_object,
                      size_t *out_size, const char **out_reason) {
    if (out_listing) *out_listing = NULL;
    *out_object = NULL;
    *out_size = 0;
    *out_reason = NULL;
    Isa isa = render_isa(target);
    if (!isa.avx2) {
        *out_reason = "a target without AVX2";
        return NULL;
    }
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Status status = compile(arena, kernel, target, out_listing, out_object, out_size, out_reason);
    arena_destroy(arena);
    return status;
}
