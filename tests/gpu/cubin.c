/* SPDX-License-Identifier: Apache-2.0 */
/* A cubin is a 64-bit ELF file: kernel K has a section .text.K and, when it has shared memory, .nv.shared.K; .nv.info
 * holds attributes of four-byte heads (format, attribute, size of what follows), among them the registers and the stack
 * frame of each symbol, and .nv.info.K those of K alone, among them the most threads of a block (the names are those that
 * cuobjdump prints: EIATTR_REGCOUNT, EIATTR_FRAME_SIZE, EIATTR_MAX_THREADS). */
#include "cubin.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

enum { FORMAT_BYTES = 4, ATTRIBUTE_THREADS = 0x05, ATTRIBUTE_FRAME = 0x11, ATTRIBUTE_REGISTERS = 0x2F };

typedef struct File {
    const unsigned char *bytes;
    size_t size;
    Elf64_Ehdr head;
    const unsigned char *names; /* of sections */
    size_t names_size;
} File;

static bool inside(const File *f, uint64_t at, uint64_t size) { return at <= f->size && size <= f->size - at; }

static bool section(const File *f, int index, Elf64_Shdr *out) {
    if (index >= f->head.e_shnum) return false;
    uint64_t at = f->head.e_shoff + (uint64_t)index * sizeof *out;
    if (!inside(f, at, sizeof *out)) return false;
    memcpy(out, f->bytes + at, sizeof *out);
    return out->sh_type == SHT_NOBITS || inside(f, out->sh_offset, out->sh_size);
}

static const char *name_in(const unsigned char *table, size_t size, uint32_t at) {
    return at < size && memchr(table + at, 0, size - at) ? (const char *)table + at : "";
}

static CubinKernel *kernel_named(Cubin *c, const char *name) {
    for (int i = 0; i < c->count; i++)
        if (!strcmp(c->kernels[i].name, name)) return &c->kernels[i];
    return NULL;
}

static void add_kernel(Cubin *c, const char *name) {
    if (c->count == CUBIN_KERNELS || strlen(name) >= sizeof c->kernels[0].name) return;
    CubinKernel *k = &c->kernels[c->count++];
    *k = (CubinKernel){.registers = 0};
    strcpy(k->name, name);
}

/* The kernel of a symbol's number. */
static CubinKernel *kernel_of_symbol(const File *f, Cubin *c, uint32_t number) {
    Elf64_Shdr table, names;
    for (int i = 0; section(f, i, &table); i++) {
        if (table.sh_type != SHT_SYMTAB || !section(f, (int)table.sh_link, &names)) continue;
        Elf64_Sym symbol;
        uint64_t at = (uint64_t)number * sizeof symbol;
        if (at + sizeof symbol > table.sh_size) return NULL;
        memcpy(&symbol, f->bytes + table.sh_offset + at, sizeof symbol);
        return kernel_named(c, name_in(f->bytes + names.sh_offset, names.sh_size, symbol.st_name));
    }
    return NULL;
}

/* Functions "$__internal_N_$NAME" stand in the section of the kernel that calls them. */
static void read_calls(const File *f, const Elf64_Shdr *table, Cubin *c) {
    static const char text[] = ".text.";
    Elf64_Shdr names, own;
    if (!section(f, (int)table->sh_link, &names)) return;
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table->sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        memcpy(&symbol, f->bytes + table->sh_offset + at, sizeof symbol);
        const char *name = name_in(f->bytes + names.sh_offset, names.sh_size, symbol.st_name);
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || !strstr(name, "$__internal_")) continue;
        if (!section(f, symbol.st_shndx, &own)) continue;
        name = name_in(f->names, f->names_size, own.sh_name);
        CubinKernel *k = strncmp(name, text, sizeof text - 1) ? NULL : kernel_named(c, name + sizeof text - 1);
        if (k) k->calls = true;
    }
}

/* own: the kernel whose section it is; NULL: .nv.info, of all kernels. */
static void read_attributes(const File *f, const Elf64_Shdr *s, Cubin *c, CubinKernel *own) {
    const unsigned char *at = f->bytes + s->sh_offset, *end = at + s->sh_size;
    while (end - at >= 4) {
        int format = at[0], attribute = at[1], size = at[2] | at[3] << 8;
        at += 4;
        if (format != FORMAT_BYTES) continue; /* the value stands in the head */
        if (size > end - at) return;
        uint32_t pair[2], threads[3];
        if (own && attribute == ATTRIBUTE_THREADS && size >= (int)sizeof threads) {
            memcpy(threads, at, sizeof threads);
            own->threads = (int)(threads[0] * threads[1] * threads[2]);
        }
        if (size >= 8 && (attribute == ATTRIBUTE_FRAME || attribute == ATTRIBUTE_REGISTERS)) {
            memcpy(pair, at, sizeof pair);
            CubinKernel *k = kernel_of_symbol(f, c, pair[0]);
            if (k && attribute == ATTRIBUTE_FRAME) k->stack = (int)pair[1];
            if (k && attribute == ATTRIBUTE_REGISTERS) k->registers = (int)pair[1];
        }
        at += size;
    }
}

bool cubin_read(const void *bytes, size_t size, Cubin *c) {
    static const char text[] = ".text.", shared[] = ".nv.shared.", info[] = ".nv.info.";
    File f = {.bytes = bytes, .size = size};
    Elf64_Shdr s;
    c->count = 0;
    if (size < sizeof f.head) return false;
    memcpy(&f.head, bytes, sizeof f.head);
    if (memcmp(f.head.e_ident, ELFMAG, SELFMAG) != 0 || f.head.e_ident[EI_CLASS] != ELFCLASS64) return false;
    if (!section(&f, f.head.e_shstrndx, &s)) return false;
    f.names = f.bytes + s.sh_offset;
    f.names_size = s.sh_size;
    for (int i = 0; section(&f, i, &s); i++) {
        const char *name = name_in(f.names, f.names_size, s.sh_name);
        if (!strncmp(name, text, sizeof text - 1)) add_kernel(c, name + sizeof text - 1);
    }
    for (int i = 0; section(&f, i, &s); i++) {
        const char *name = name_in(f.names, f.names_size, s.sh_name);
        if (s.sh_type == SHT_SYMTAB) read_calls(&f, &s, c);
        if (!strcmp(name, ".nv.info")) read_attributes(&f, &s, c, NULL);
        if (!strncmp(name, info, sizeof info - 1)) read_attributes(&f, &s, c, kernel_named(c, name + sizeof info - 1));
        CubinKernel *k = strncmp(name, shared, sizeof shared - 1) ? NULL : kernel_named(c, name + sizeof shared - 1);
        if (k) k->shared = (int)s.sh_size;
    }
    return c->count > 0;
}
