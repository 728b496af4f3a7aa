/* SPDX-License-Identifier: Apache-2.0 */
/* Loader of ELF64 relocatable objects as LLVM writes them for one function and its constants. All loaded sections lie
 * in one mapping, so that relative addresses always reach; it is writable until relocated, then executable, never both.
 */
#include "codegen/object.h"

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef EM_AARCH64
#define EM_AARCH64 183
#endif

enum { MOST_SECTIONS = 4096, MOST_ALIGN = 4096 };
static const size_t most_bytes = (size_t)64 << 20;

#ifdef __aarch64__
enum { MACHINE = EM_AARCH64 };
#else
enum { MACHINE = EM_X86_64 };
#endif

typedef struct Object {
    const unsigned char *data;
    size_t size;
    int section_count;
    Elf64_Shdr *sections;
    size_t *places;               /* offset of each section in the image; NOT_LOADED */
    const unsigned char *symbols; /* Elf64_Sym each, maybe unaligned */
    size_t symbol_count;
    const char *names;
    size_t names_size;
    unsigned char *image;
    size_t image_size, used; /* used: with the sections; slots of addresses follow */
    size_t slots;            /* bytes taken by slots */
} Object;

#define NOT_LOADED SIZE_MAX

static Status malformed(const char *what) { return status_error(STATUS_INVALID, "object file: %s", what); }

static bool inside(const Object *o, uint64_t at, uint64_t size) { return at <= o->size && size <= o->size - at; }

static Status read_header(Object *o) {
    Elf64_Ehdr h;
    if (o->size < sizeof h) return malformed("shorter than its header");
    memcpy(&h, o->data, sizeof h);
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB ||
        h.e_type != ET_REL)
        return malformed("not a relocatable ELF64 object");
    if (h.e_machine != MACHINE) return malformed("made for another machine");
    if (h.e_shentsize != sizeof(Elf64_Shdr) || h.e_shnum > MOST_SECTIONS ||
        !inside(o, h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr)))
        return malformed("its section table lies outside");
    o->section_count = h.e_shnum;
    o->sections = calloc((size_t)h.e_shnum + 1, sizeof *o->sections);
    o->places = calloc((size_t)h.e_shnum + 1, sizeof *o->places);
    if (!o->sections || !o->places) return status_out_of_memory();
    memcpy(o->sections, o->data + h.e_shoff, h.e_shnum * sizeof(Elf64_Shdr));
    for (int i = 0; i < o->section_count; i++) {
        const Elf64_Shdr *s = &o->sections[i];
        if (s->sh_type != SHT_NOBITS && s->sh_type != SHT_NULL && !inside(o, s->sh_offset, s->sh_size))
            return malformed("a section lies outside");
    }
    return NULL;
}

static Status find_symbols(Object *o) {
    for (int i = 0; i < o->section_count; i++) {
        const Elf64_Shdr *s = &o->sections[i];
        if (s->sh_type != SHT_SYMTAB) continue;
        if (o->symbols) return malformed("two symbol tables");
        if (s->sh_link >= (uint32_t)o->section_count || o->sections[s->sh_link].sh_type != SHT_STRTAB)
            return malformed("symbols without names");
        o->symbols = o->data + s->sh_offset;
        o->symbol_count = s->sh_size / sizeof(Elf64_Sym);
        o->names = (const char *)o->data + o->sections[s->sh_link].sh_offset;
        o->names_size = o->sections[s->sh_link].sh_size;
    }
    return o->symbols ? NULL : malformed("no symbols");
}

static bool needs_slot(uint32_t type) {
    return MACHINE == EM_X86_64 &&
           (type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX);
}

static Status place_sections(Object *o) {
    size_t at = 0, slots = 0;
    for (int i = 0; i < o->section_count; i++) {
        const Elf64_Shdr *s = &o->sections[i];
        o->places[i] = NOT_LOADED;
        if (s->sh_type == SHT_REL && s->sh_size) return malformed("relocations without addends");
        if (s->sh_type == SHT_RELA) slots += s->sh_size / sizeof(Elf64_Rela) * 8;
        if (!(s->sh_flags & SHF_ALLOC) || s->sh_type == SHT_NULL) continue;
        if (s->sh_flags & SHF_WRITE) return malformed("writable data");
        size_t align = s->sh_addralign ? s->sh_addralign : 1;
        if (align > MOST_ALIGN || (align & (align - 1))) return malformed("a section's alignment");
        at = (at + align - 1) / align * align;
        if (s->sh_size > most_bytes || at + s->sh_size > most_bytes) return malformed("too large");
        o->places[i] = at;
        at += s->sh_size;
    }
    o->used = (at + 7) / 8 * 8;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    o->image_size = (o->used + slots + page - 1) / page * page;
    return o->used ? NULL : malformed("no code");
}

static Status map_image(Object *o) {
    void *image = mmap(NULL, o->image_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (image == MAP_FAILED) return status_out_of_memory();
    o->image = image;
    for (int i = 0; i < o->section_count; i++)
        if (o->places[i] != NOT_LOADED && o->sections[i].sh_type != SHT_NOBITS && o->sections[i].sh_size)
            memcpy(o->image + o->places[i], o->data + o->sections[i].sh_offset, o->sections[i].sh_size);
    return NULL;
}

static Status symbol_address(const Object *o, size_t index, Elf64_Sym *out_symbol, uint64_t *out_address) {
    if (index >= o->symbol_count) return malformed("no such symbol");
    memcpy(out_symbol, o->symbols + index * sizeof *out_symbol, sizeof *out_symbol);
    unsigned section = out_symbol->st_shndx;
    if (section == SHN_UNDEF) {
        size_t name = out_symbol->st_name;
        bool named = name < o->names_size && memchr(o->names + name, 0, o->names_size - name);
        return status_error(STATUS_INVALID, "object file: needs the symbol %.60s", named ? o->names + name : "?");
    }
    if (section >= (unsigned)o->section_count || o->places[section] == NOT_LOADED ||
        out_symbol->st_value > o->sections[section].sh_size)
        return malformed("a symbol lies outside");
    *out_address = (uint64_t)(uintptr_t)(o->image + o->places[section]) + out_symbol->st_value;
    return NULL;
}

static void put(unsigned char *at, uint64_t value, size_t bytes) { memcpy(at, &value, bytes); }

static bool fits(int64_t value, int bits) {
    return value >= -((int64_t)1 << (bits - 1)) && value < (int64_t)1 << (bits - 1);
}

/* How many bytes a relocation writes; 0: unknown. */
static size_t relocated_bytes(uint32_t type) {
    if (MACHINE == EM_X86_64) {
        switch (type) {
        case R_X86_64_NONE: return 1;
        case R_X86_64_64:
        case R_X86_64_PC64: return 8;
        case R_X86_64_PC32:
        case R_X86_64_PLT32:
        case R_X86_64_32:
        case R_X86_64_32S:
        case R_X86_64_GOTPCREL:
        case R_X86_64_GOTPCRELX:
        case R_X86_64_REX_GOTPCRELX: return 4;
        default: return 0;
        }
    }
    switch (type) {
    case R_AARCH64_NONE: return 1;
    case R_AARCH64_ABS64:
    case R_AARCH64_PREL64: return 8;
    case R_AARCH64_PREL32:
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC:
    case R_AARCH64_LDST16_ABS_LO12_NC:
    case R_AARCH64_LDST32_ABS_LO12_NC:
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LDST128_ABS_LO12_NC:
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26: return 4;
    default: return 0;
    }
}

/* S + A, P as in the processors' ABI supplements. */
static Status relocate_x86(Object *o, uint32_t type, unsigned char *at, uint64_t address) {
    uint64_t place = (uint64_t)(uintptr_t)at;
    int64_t relative = (int64_t)(address - place);
    (void)o;
    switch (type) {
    case R_X86_64_64: put(at, address, 8); return NULL;
    case R_X86_64_PC64: put(at, (uint64_t)relative, 8); return NULL;
    case R_X86_64_32:
        if (address >> 32) return malformed("an address out of reach");
        put(at, address, 4);
        return NULL;
    case R_X86_64_32S:
        if (!fits((int64_t)address, 32)) return malformed("an address out of reach");
        put(at, address, 4);
        return NULL;
    default:
        if (!fits(relative, 32)) return malformed("an address out of reach");
        put(at, (uint64_t)relative, 4);
        return NULL;
    }
}

static void merge_bits(unsigned char *at, uint32_t mask, uint32_t bits) {
    uint32_t word;
    memcpy(&word, at, 4);
    word = (word & ~mask) | (bits & mask);
    memcpy(at, &word, 4);
}

static Status relocate_arm(uint32_t type, unsigned char *at, uint64_t address) {
    uint64_t place = (uint64_t)(uintptr_t)at;
    int64_t relative = (int64_t)(address - place);
    uint32_t low = (uint32_t)(address & 0xfff);
    int scale = type == R_AARCH64_LDST16_ABS_LO12_NC    ? 1
                : type == R_AARCH64_LDST32_ABS_LO12_NC  ? 2
                : type == R_AARCH64_LDST64_ABS_LO12_NC  ? 3
                : type == R_AARCH64_LDST128_ABS_LO12_NC ? 4
                                                        : 0;
    switch (type) {
    case R_AARCH64_ABS64: put(at, address, 8); return NULL;
    case R_AARCH64_PREL64: put(at, (uint64_t)relative, 8); return NULL;
    case R_AARCH64_PREL32:
        if (!fits(relative, 32)) return malformed("an address out of reach");
        put(at, (uint64_t)relative, 4);
        return NULL;
    case R_AARCH64_ADR_PREL_PG_HI21: {
        int64_t pages = (int64_t)((address & ~(uint64_t)0xfff) - (place & ~(uint64_t)0xfff)) >> 12;
        if (!fits(pages, 21)) return malformed("an address out of reach");
        merge_bits(at, 0x60ffffe0, (uint32_t)(pages & 3) << 29 | (uint32_t)(pages >> 2 & 0x7ffff) << 5);
        return NULL;
    }
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26:
        if (relative & 3 || !fits(relative, 28)) return malformed("a jump out of reach");
        merge_bits(at, 0x03ffffff, (uint32_t)(relative >> 2));
        return NULL;
    default: /* the low 12 bits of an address, scaled by the size of the access */
        if (low & ((1u << scale) - 1)) return malformed("a misaligned address");
        merge_bits(at, 0x003ffc00, low >> scale << 10);
        return NULL;
    }
}

static Status apply(Object *o, int section, const Elf64_Rela *rela) {
    uint32_t type = (uint32_t)ELF64_R_TYPE(rela->r_info);
    size_t bytes = relocated_bytes(type), room = o->sections[section].sh_size;
    if (!bytes) return status_error(STATUS_INVALID, "object file: unknown relocation %u", (unsigned)type);
    if (rela->r_offset > room || bytes > room - rela->r_offset) return malformed("a relocation lies outside");
    if (type == 0) return NULL;
    Elf64_Sym symbol;
    uint64_t address;
    TRY(symbol_address(o, ELF64_R_SYM(rela->r_info), &symbol, &address));
    unsigned char *at = o->image + o->places[section] + rela->r_offset;
    if (needs_slot(type)) {
        unsigned char *slot = o->image + o->used + o->slots;
        o->slots += 8;
        put(slot, address, 8);
        address = (uint64_t)(uintptr_t)slot;
    }
    address += (uint64_t)rela->r_addend;
    return MACHINE == EM_X86_64 ? relocate_x86(o, type, at, address) : relocate_arm(type, at, address);
}

static Status relocate(Object *o) {
    for (int i = 0; i < o->section_count; i++) {
        const Elf64_Shdr *s = &o->sections[i];
        if (s->sh_type != SHT_RELA) continue;
        if (s->sh_info >= (uint32_t)o->section_count) return malformed("relocations of no section");
        if (o->places[s->sh_info] == NOT_LOADED) continue;
        for (size_t n = 0; n < s->sh_size / sizeof(Elf64_Rela); n++) {
            Elf64_Rela rela;
            memcpy(&rela, o->data + s->sh_offset + n * sizeof rela, sizeof rela);
            TRY(apply(o, (int)s->sh_info, &rela));
        }
    }
    return NULL;
}

static Status find_function(const Object *o, const char *name, void **out_function) {
    size_t length = strlen(name) + 1;
    for (size_t i = 0; i < o->symbol_count; i++) {
        Elf64_Sym symbol;
        uint64_t address;
        memcpy(&symbol, o->symbols + i * sizeof symbol, sizeof symbol);
        if (symbol.st_name >= o->names_size || length > o->names_size - symbol.st_name) continue;
        if (memcmp(o->names + symbol.st_name, name, length)) continue;
        TRY(symbol_address(o, i, &symbol, &address));
        const Elf64_Shdr *section = &o->sections[symbol.st_shndx];
        if (!(section->sh_flags & SHF_EXECINSTR) || symbol.st_value >= section->sh_size)
            return malformed("the function is no code");
        *out_function = (void *)(uintptr_t)address;
        return NULL;
    }
    return status_error(STATUS_INVALID, "object file: no function %s", name);
}

static Status load(Object *o, const char *symbol, ObjectCode *out_code) {
    TRY(read_header(o));
    TRY(find_symbols(o));
    TRY(place_sections(o));
    TRY(map_image(o));
    TRY(relocate(o));
    TRY(find_function(o, symbol, &out_code->function));
    if (mprotect(o->image, o->image_size, PROT_READ | PROT_EXEC))
        return status_error(STATUS_FAULT, "this system forbids making memory executable");
    __builtin___clear_cache((char *)o->image, (char *)o->image + o->image_size);
    out_code->memory = o->image;
    out_code->bytes = o->image_size;
    return NULL;
}

Status object_load(const void *data, size_t size, const char *symbol, ObjectCode *out_code) {
    Object o = {.data = data, .size = size};
    *out_code = (ObjectCode){0};
    Status status = load(&o, symbol, out_code);
    if (status && o.image) munmap(o.image, o.image_size);
    if (status) *out_code = (ObjectCode){0};
    free(o.sections);
    free(o.places);
    return status;
}

void object_unload(ObjectCode *code) {
    if (code->memory) munmap(code->memory, code->bytes);
    *code = (ObjectCode){0};
}
