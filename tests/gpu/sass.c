/* SPDX-License-Identifier: Apache-2.0 */
/* Liveness of registers. What an instruction reads is counted too wide and what it writes too narrow where its width is not
 * known, so a value that is found unread is. */
#include "sass.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GENERAL = 256,
    UNIFORM = 128,
    WORDS = (GENERAL + UNIFORM) / 64,
    MOST_OPERANDS = 12,
    MOST_NAME = 96,
    MOST_LINE = 400
};

typedef struct Registers {
    uint64_t bits[WORDS];
} Registers;

typedef struct Instruction {
    const char *line;              /* in the text, not terminated */
    Registers reads, writes, live; /* live: before it */
    bool judged, guarded, falls_through, reads_all;
    char target[MOST_NAME]; /* of a branch; "": none */
    int to;                 /* its instruction; -1: not known */
} Instruction;

typedef struct Label {
    char name[MOST_NAME];
    int at;
} Label;

typedef struct Code {
    Instruction *items;
    Label *labels;
    int count, capacity, label_count, label_capacity;
} Code;

static void *grown(void *items, int count, int *capacity, size_t size) {
    if (count < *capacity) return items;
    *capacity = *capacity ? *capacity * 2 : 256;
    items = realloc(items, (size_t)*capacity * size);
    if (!items) abort();
    return items;
}

/* --- one instruction ----------------------------------------------------------------------------------------------- */

static void add(Registers *set, bool uniform, long number, int width) {
    long most = uniform ? UNIFORM : GENERAL - 1; /* R255 is RZ */
    for (long i = number; i < number + width && i < most; i++) {
        long bit = uniform ? GENERAL + i : i;
        set->bits[bit / 64] |= (uint64_t)1 << bit % 64;
    }
}

/* All registers named in an operand; those with .64 are pairs. */
static int add_all(Registers *set, const char *operand, int width) {
    int found = 0;
    for (const char *c = operand; *c; c++) {
        bool begins = c == operand || !(isalnum((unsigned char)c[-1]) || c[-1] == '_');
        bool uniform = begins && c[0] == 'U' && c[1] == 'R' && isdigit((unsigned char)c[2]);
        if (!uniform && !(begins && c[0] == 'R' && isdigit((unsigned char)c[1]))) continue;
        char *end;
        long number = strtol(c + 1 + uniform, &end, 10);
        int own = strncmp(end, ".64", 3) == 0 ? 2 : 1;
        add(set, uniform, number, own > width ? own : width);
        found++;
        c = end - 1;
    }
    return found;
}

static bool is_one_of(const char *name, const char *const *names) {
    size_t length = strcspn(name, ".");
    for (; *names; names++)
        if (strlen(*names) == length && strncmp(name, *names, length) == 0) return true;
    return false;
}

static const char *const arithmetic[] = {"PRMT",  "F2FP", "F2F",   "HADD2", "HFMA2", "HMUL2", "FADD",
                                         "FMUL",  "FFMA", "FMNMX", "FSEL",  "SEL",   "LOP3",  "SHF",
                                         "IADD3", "IMAD", "LEA",   "I2FP",  "IABS",  "VIADD", NULL};
/* Of these, what works on elements; of addresses and conditions the compiler leaves parts over at times. */
static const char *const judged[] = {"PRMT", "F2FP", "F2F",  "HADD2", "HFMA2", "HMUL2",
                                     "FADD", "FMUL", "FFMA", "FMNMX", "FSEL",  NULL};
static const char *const without_result[] = {"ST",   "STG",      "STS",       "STL",    "RED",    "BAR",  "BRA",
                                             "EXIT", "BSSY",     "BSYNC",     "NOP",    "LDGSTS", "CALL", "RET",
                                             "JMP",  "WARPSYNC", "LDGDEPBAR", "DEPBAR", NULL};

/* Registers that a source of an arithmetic instruction takes; `last`: it is the last one. */
static int source_width(const char *name, bool last) {
    if (!is_one_of(name, arithmetic)) return 8;
    if (strstr(name, ".WIDE")) return last ? 2 : 1;
    return strstr(name, "64") && strncmp(name, "SHF", 3) ? 2 : 1;
}

static bool is_predicate(const char *operand) {
    operand += *operand == '!';
    operand += *operand == 'U';
    return operand[0] == 'P' && (isdigit((unsigned char)operand[1]) || operand[1] == 'T') && !operand[2];
}

static bool is_register(const char *operand) {
    operand += *operand == 'U';
    return operand[0] == 'R' && (isdigit((unsigned char)operand[1]) || operand[1] == 'Z');
}

/* Splits at commas outside of brackets. */
static int operands_of(char *text, char **operands) {
    int count = 0, depth = 0;
    for (char *c = text; *c && count < MOST_OPERANDS;) {
        while (*c == ' ') c++;
        if (!*c) break;
        operands[count++] = c;
        while (*c && (depth || *c != ',')) {
            depth += *c == '[';
            depth -= *c == ']';
            c++;
        }
        if (*c) *c++ = 0;
    }
    return count;
}

/* The name behind the backquote: `(.L_x_1). */
static void read_target(const char *text, char *out) {
    const char *from = strstr(text, "`("), *to = from ? strchr(from, ')') : NULL;
    out[0] = 0;
    if (!to || to - from - 2 >= MOST_NAME) return;
    memcpy(out, from + 2, (size_t)(to - from - 2));
    out[to - from - 2] = 0;
}

static void read_flow(Instruction *i, const char *name, const char *rest) {
    i->falls_through = true;
    if (strcmp(name, "EXIT") == 0) {
        i->falls_through = i->guarded;
    } else if (strncmp(name, "BRA", 3) == 0 && strchr("., ", name[3])) {
        read_target(rest, i->target);
        i->reads_all = !i->target[0];
        i->falls_through = i->guarded || strchr(rest, 'P') || strchr(name, '.');
    } else if (strncmp(name, "CALL", 4) == 0 || strncmp(name, "RET", 3) == 0 || strncmp(name, "BRX", 3) == 0 ||
               strncmp(name, "JMP", 3) == 0) {
        i->reads_all = true;
    }
}

static void read_instruction(Code *code, const char *line, char *text) {
    char *operands[MOST_OPERANDS];
    code->items = grown(code->items, code->count, &code->capacity, sizeof *code->items);
    Instruction *i = &code->items[code->count++];
    *i = (Instruction){.line = line, .to = -1};
    while (*text == '@') { /* a guard */
        i->guarded = true;
        text += strcspn(text, " ");
        text += strspn(text, " ");
    }
    char *name = text, *rest = text + strcspn(text, " ");
    if (*rest) *rest++ = 0;
    read_flow(i, name, rest);
    int count = operands_of(rest, operands), first = 0, sources = 0;
    bool writes = count && is_register(operands[0]) && !is_one_of(name, without_result);
    if (writes) {
        add_all(&i->writes, operands[0], 1);
        first = 1;
    }
    int last = count - 1;
    while (last > first && is_predicate(operands[last])) last--;
    for (int n = first; n < count; n++) sources += add_all(&i->reads, operands[n], source_width(name, n == last));
    bool pair = strstr(name, "64") != NULL;
    i->judged = writes && operands[0][0] == 'R' && operands[0][1] != 'Z' && is_one_of(name, judged) && sources && !pair;
}

/* --- a function ---------------------------------------------------------------------------------------------------- */

static void find_targets(Code *code) {
    for (int i = 0; i < code->count; i++) {
        Instruction *own = &code->items[i];
        for (int l = 0; own->target[0] && l < code->label_count; l++)
            if (strcmp(code->labels[l].name, own->target) == 0) own->to = code->labels[l].at;
        own->reads_all |= own->target[0] && own->to < 0;
    }
}

static Registers live_behind(const Code *code, int i) {
    const Instruction *own = &code->items[i];
    Registers live = {{0}};
    for (int w = 0; w < WORDS; w++) {
        if (own->reads_all) live.bits[w] = UINT64_MAX;
        if (own->falls_through && i + 1 < code->count) live.bits[w] |= code->items[i + 1].live.bits[w];
        if (own->to >= 0 && own->to < code->count) live.bits[w] |= code->items[own->to].live.bits[w];
    }
    return live;
}

static void find_live(Code *code) {
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = code->count - 1; i >= 0; i--) {
            Instruction *own = &code->items[i];
            Registers live = live_behind(code, i);
            for (int w = 0; w < WORDS; w++) {
                if (!own->guarded) live.bits[w] &= ~own->writes.bits[w];
                live.bits[w] |= own->reads.bits[w] | (own->reads_all ? UINT64_MAX : 0);
            }
            changed |= memcmp(&live, &own->live, sizeof live) != 0;
            own->live = live;
        }
    }
}

static const char *first_unread(Code *code) {
    find_targets(code);
    find_live(code);
    for (int i = 0; i < code->count; i++) {
        const Instruction *own = &code->items[i];
        Registers behind = live_behind(code, i);
        bool read = !own->judged;
        for (int w = 0; w < WORDS; w++) read |= (behind.bits[w] & own->writes.bits[w]) != 0;
        if (!read) return own->line;
    }
    return NULL;
}

/* --- the text ------------------------------------------------------------------------------------------------------ */

static void read_label(Code *code, const char *line, size_t length) {
    code->labels = grown(code->labels, code->label_count, &code->label_capacity, sizeof *code->labels);
    Label *l = &code->labels[code->label_count];
    if (length >= sizeof l->name) return;
    memcpy(l->name, line, length);
    l->name[length] = 0;
    l->at = code->count;
    code->label_count++;
}

/* "  / *0010* /  @P0 IADD3 R0, R1.reuse, R2, RZ ;": what stands between. */
static void read_line(Code *code, const char *line, size_t length) {
    char text[MOST_LINE];
    const char *from = memchr(line, '*', length), *end = memchr(line, ';', length);
    from = from && end ? strstr(from, "*/") : NULL;
    if (!from || from >= end) return;
    from += 2;
    size_t size = 0;
    for (const char *c = from + strspn(from, " \t"); c < end && size + 1 < sizeof text; c++) {
        if (strncmp(c, ".reuse", 6) == 0)
            c += 5;
        else
            text[size++] = *c;
    }
    while (size && text[size - 1] == ' ') size--;
    text[size] = 0;
    read_instruction(code, from + strspn(from, " \t"), text);
}

bool sass_unread(const char *text, char *out, size_t size) {
    Code code = {0};
    const char *found = NULL;
    for (const char *line = text; *line && !found;) {
        size_t length = strcspn(line, "\n");
        bool section = strncmp(line, "\t.section", 9) == 0;
        if (section) {
            found = first_unread(&code);
            code.count = code.label_count = 0;
        } else if (length > 1 && line[length - 1] == ':' && line[0] != ' ' && line[0] != '\t') {
            read_label(&code, line, length - 1);
        } else {
            read_line(&code, line, length);
        }
        line += length + (line[length] == '\n');
    }
    if (!found) found = first_unread(&code);
    if (found) snprintf(out, size, "%.*s", (int)strcspn(found, ";\n"), found);
    free(code.items);
    free(code.labels);
    return found != NULL;
}
