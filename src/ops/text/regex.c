/* The compiler from pattern to program, and the simulation. */
#include "ops/text/regex.h"

#include <stdint.h>

enum {
    MOST_STEPS = 100000, /* of a program; counted repeats multiply */
    MOST_REPEATS = 1000, /* RE2's limit of {m,n} */
    MOST_DEPTH = 200,    /* of nested groups */
};

typedef enum StepKind { STEP_SET, STEP_SPLIT, STEP_JUMP, STEP_ASSERT, STEP_MATCH } StepKind;
typedef enum Assertion { AT_BEGIN, AT_END, AT_LINE_BEGIN, AT_LINE_END, AT_WORD_EDGE, NOT_AT_WORD_EDGE } Assertion;

typedef struct Range {
    uint32_t low, high;
} Range;

/* Code points; a text's invalid bytes stand for themselves beyond Unicode. */
typedef struct Set {
    VEC(Range) ranges;
    bool negated, fold; /* fold: ASCII letters match in either case */
} Set;

typedef struct Step {
    StepKind kind;
    int next, other; /* SPLIT: both; JUMP: next; the others go on to the step after them */
    Assertion assertion;
    const Set *set;
} Step;

struct Regex {
    VEC(Step) steps;
    int *scratch; /* [6 * steps + 2]: of the simulation; a Regex is used by one thread */
};

typedef struct Parser {
    Regex *regex;
    Arena *arena;
    const char *at, *end;
    int depth;
    bool fold, dot_all, multi_line;
    const char *error;
} Parser;

enum { BAD_BYTE = 0x110000 };

/* The code point at *at, which moves on; an invalid byte b is BAD_BYTE + b. */
static uint32_t next_point(const char **at, const char *end) {
    const unsigned char *s = (const unsigned char *)*at;
    size_t left = (size_t)(end - *at);
    int more = s[0] < 0x80                   ? 0
               : s[0] >= 0xC2 && s[0] < 0xE0 ? 1
               : (s[0] & 0xF0) == 0xE0       ? 2
               : s[0] >= 0xF0 && s[0] < 0xF5 ? 3
                                             : -1;
    uint32_t point = more <= 0 ? s[0] : s[0] & (0x3Fu >> more);
    bool valid = more >= 0 && left > (size_t)more;
    for (int i = 1; valid && i <= more; i++) {
        valid = (s[i] & 0xC0) == 0x80;
        point = point << 6 | (s[i] & 0x3F);
    }
    *at += valid ? more + 1 : 1;
    return valid ? point : (uint32_t)BAD_BYTE + s[0];
}

static int add_step(Parser *p, Step step) {
    if (p->regex->steps.count >= MOST_STEPS) {
        p->error = "it is too large";
        return 0;
    }
    VEC_PUSH(p->arena, p->regex->steps, step);
    return p->regex->steps.count - 1;
}

static Step *step_at(Parser *p, int index) { return &p->regex->steps.items[index]; }

static void add_range(Parser *p, Set *set, uint32_t low, uint32_t high) {
    VEC_PUSH(p->arena, set->ranges, (Range){low, high});
}

static Set *new_set(Parser *p) {
    Set *set = ARENA_NEW(p->arena, Set);
    set->fold = p->fold;
    return set;
}

static void add_set(Parser *p, const Set *set) { add_step(p, (Step){.kind = STEP_SET, .set = set}); }

static void add_point(Parser *p, uint32_t point) {
    Set *set = new_set(p);
    add_range(p, set, point, point);
    add_set(p, set);
}

/* ---- classes ---- */

static const struct Class {
    const char *name;
    Range ranges[5]; /* ended by {0, 0} after the first */
} classes[] = {
    {"d", {{'0', '9'}}},
    {"s", {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}}},
    {"w", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
    {"[:alnum:]", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
    {"[:alpha:]", {{'A', 'Z'}, {'a', 'z'}}},
    {"[:ascii:]", {{0, 0x7F}}},
    {"[:blank:]", {{'\t', '\t'}, {' ', ' '}}},
    {"[:cntrl:]", {{0, 0x1F}, {0x7F, 0x7F}}},
    {"[:digit:]", {{'0', '9'}}},
    {"[:graph:]", {{'!', '~'}}},
    {"[:lower:]", {{'a', 'z'}}},
    {"[:print:]", {{' ', '~'}}},
    {"[:punct:]", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
    {"[:space:]", {{'\t', '\r'}, {' ', ' '}}},
    {"[:upper:]", {{'A', 'Z'}}},
    {"[:word:]", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
    {"[:xdigit:]", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}},
};

static void add_class(Parser *p, Set *set, const struct Class *class, bool negated) {
    uint32_t from = 0;
    for (int i = 0; i < 5 && (i == 0 || class->ranges[i].high); i++) {
        Range r = class->ranges[i];
        if (!negated) add_range(p, set, r.low, r.high);
        if (negated && r.low > from) add_range(p, set, from, r.low - 1);
        from = r.high + 1;
    }
    if (negated) add_range(p, set, from, UINT32_MAX);
}

/* \d, \W, ...: true when `letter` names a class. */
static bool add_letter_class(Parser *p, Set *set, char letter) {
    char lower = (char)(letter | 0x20);
    for (int i = 0; i < 3; i++) {
        if (classes[i].name[0] != lower) continue;
        add_class(p, set, &classes[i], letter != lower);
        return true;
    }
    return false;
}

static bool add_named_class(Parser *p, Set *set) {
    for (size_t i = 3; i < sizeof classes / sizeof *classes; i++) {
        size_t size = strlen(classes[i].name);
        bool negated = p->end - p->at > (ptrdiff_t)size && p->at[2] == '^';
        bool same = negated ? strncmp(p->at + 3, classes[i].name + 2, size - 2) == 0
                            : (size_t)(p->end - p->at) >= size && strncmp(p->at, classes[i].name, size) == 0;
        if (!same) continue;
        add_class(p, set, &classes[i], negated);
        p->at += size + negated;
        return true;
    }
    return false;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* After "\x": HH or {H..}. */
static uint32_t hex_escape(Parser *p) {
    uint32_t value = 0;
    bool braces = p->at < p->end && *p->at == '{';
    p->at += braces;
    for (int i = 0; braces ? p->at < p->end && *p->at != '}' : i < 2; i++) {
        int digit = p->at < p->end ? hex_digit(*p->at) : -1;
        if (digit < 0 || value > 0x10FFFF) {
            p->error = "a bad \\x";
            return 0;
        }
        value = value * 16 + (uint32_t)digit;
        p->at++;
    }
    if (braces && p->at++ == p->end) p->error = "a bad \\x";
    return value;
}

/* A single character after a backslash, which has been read. */
static uint32_t escaped_point(Parser *p) {
    static const char letters[] = "tnrfva", points[] = "\t\n\r\f\v\a";
    if (p->at == p->end) {
        p->error = "a backslash at its end";
        return 0;
    }
    const char *known = strchr(letters, *p->at);
    if (known && *p->at) {
        p->at++;
        return (uint32_t)points[known - letters];
    }
    if (*p->at == 'x') {
        p->at++;
        return hex_escape(p);
    }
    if (*p->at >= '0' && *p->at <= '7') {
        uint32_t value = 0;
        for (int i = 0; i < 3 && p->at < p->end && *p->at >= '0' && *p->at <= '7'; i++)
            value = value * 8 + (uint32_t)(*p->at++ - '0');
        return value;
    }
    if ((*p->at | 0x20) >= 'a' && (*p->at | 0x20) <= 'z') p->error = "an unknown escape";
    return next_point(&p->at, p->end);
}

static uint32_t set_point(Parser *p) {
    if (*p->at != '\\') return next_point(&p->at, p->end);
    p->at++;
    return escaped_point(p);
}

/* [...] after the bracket. */
static void parse_set(Parser *p) {
    Set *set = new_set(p);
    if (p->at < p->end && *p->at == '^') set->negated = true, p->at++;
    for (bool first = true; !p->error; first = false) {
        if (p->at == p->end) {
            p->error = "a [ without its ]";
            return;
        }
        if (*p->at == ']' && !first) break;
        if (*p->at == '[' && p->end - p->at > 1 && p->at[1] == ':' && add_named_class(p, set)) continue;
        if (*p->at == '\\' && p->end - p->at > 1 && add_letter_class(p, set, p->at[1])) {
            p->at += 2;
            continue;
        }
        uint32_t low = set_point(p), high = low;
        if (p->end - p->at > 1 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            high = set_point(p);
        }
        if (high < low) p->error = "a range backwards";
        add_range(p, set, low, high);
    }
    p->at++;
    add_set(p, set);
}

/* ---- grammar ---- */

static void parse_alternatives(Parser *p);

static void add_assertion(Parser *p, Assertion assertion) {
    add_step(p, (Step){.kind = STEP_ASSERT, .assertion = assertion});
}

static void parse_quoted(Parser *p) {
    while (p->at < p->end && !(p->end - p->at >= 2 && p->at[0] == '\\' && p->at[1] == 'E'))
        add_point(p, next_point(&p->at, p->end));
    if (p->at < p->end) p->at += 2;
}

static void parse_escape(Parser *p) {
    Set *set = new_set(p);
    char letter = p->at < p->end ? *p->at : 0;
    if (letter && add_letter_class(p, set, letter)) {
        p->at++;
        add_set(p, set);
        return;
    }
    switch (letter) {
    case 'A': add_assertion(p, AT_BEGIN); break;
    case 'z': add_assertion(p, AT_END); break;
    case 'b': add_assertion(p, AT_WORD_EDGE); break;
    case 'B': add_assertion(p, NOT_AT_WORD_EDGE); break;
    case 'Q':
        p->at++;
        parse_quoted(p);
        return;
    default: add_point(p, escaped_point(p)); return;
    }
    p->at++;
}

/* (?flags) and (?flags:  -- true when the group goes on. */
static bool parse_flags(Parser *p) {
    for (bool on = true; p->at < p->end; p->at++) {
        switch (*p->at) {
        case '-': on = false; break;
        case 'i': p->fold = on; break;
        case 's': p->dot_all = on; break;
        case 'm': p->multi_line = on; break;
        case 'U': break; /* swaps greedy and lazy: no matter for a whole match */
        case ':': p->at++; return true;
        case ')': return false;
        default: p->error = "unknown flags of a group"; return false;
        }
    }
    return true;
}

static void parse_group(Parser *p) {
    bool fold = p->fold, dot_all = p->dot_all, multi_line = p->multi_line, goes_on = true;
    if (++p->depth > MOST_DEPTH) p->error = "its groups are nested too deeply";
    if (!p->error && p->end - p->at >= 2 && p->at[0] == '?') {
        p->at++;
        bool named = *p->at == 'P' || *p->at == '<';
        if (named) {
            while (p->at < p->end && *p->at != '>') p->at++;
            if (p->at < p->end) p->at++;
        } else {
            goes_on = parse_flags(p);
        }
    }
    if (goes_on && !p->error) parse_alternatives(p);
    if (!p->error && (p->at == p->end || *p->at != ')')) p->error = "a ( without its )";
    if (!p->error) p->at++;
    if (goes_on) p->fold = fold, p->dot_all = dot_all, p->multi_line = multi_line;
    p->depth--;
}

static void parse_atom(Parser *p) {
    char c = *p->at;
    if (c == '(' || c == '[' || c == '\\') p->at++;
    if (c == '(') {
        parse_group(p);
    } else if (c == '[') {
        parse_set(p);
    } else if (c == '\\') {
        parse_escape(p);
    } else if (c == '.') {
        Set *any = new_set(p);
        any->negated = true;
        if (!p->dot_all) add_range(p, any, '\n', '\n');
        p->at++;
        add_set(p, any);
    } else if (c == '^' || c == '$') {
        p->at++;
        add_assertion(p, c == '^' ? (p->multi_line ? AT_LINE_BEGIN : AT_BEGIN) : p->multi_line ? AT_LINE_END : AT_END);
    } else if (c == '*' || c == '+' || c == '?') {
        p->error = "a repeat of nothing";
    } else {
        add_point(p, next_point(&p->at, p->end));
    }
}

/* {m}, {m,}, {m,n}: false (nothing read) when it is no repeat and so stands for itself. most: -1 without limit. */
static bool parse_counts(Parser *p, int *least, int *most) {
    const char *at = p->at + 1;
    int values[2] = {0, -1}, given = 0;
    for (; given < 2; given++) {
        const char *start = at;
        int value = 0;
        for (; at < p->end && *at >= '0' && *at <= '9'; at++)
            value = value > MOST_REPEATS ? value : value * 10 + *at - '0';
        if (at > start) values[given] = value;
        if (at == start && given == 0) return false;
        if (at == p->end || (*at != ',' && *at != '}')) return false;
        if (*at == '}') break;
        if (given == 1) return false;
        at++;
    }
    if (given == 2) return false;
    *least = values[0];
    *most = given == 0 ? values[0] : values[1];
    p->at = at + 1;
    if (*least > MOST_REPEATS || *most > MOST_REPEATS || (*most >= 0 && *most < *least))
        p->error = "a repeat count out of range";
    return true;
}

/* Appends a copy of the steps [from, to), which stand for themselves: their jumps stay inside. */
static void copy_steps(Parser *p, int from, int to) {
    int shift = p->regex->steps.count - from;
    for (int i = from; i < to && !p->error; i++) {
        Step step = *step_at(p, i);
        if (step.kind == STEP_SPLIT || step.kind == STEP_JUMP) step.next += shift, step.other += shift;
        add_step(p, step);
    }
}

/* Opens room for one step before `at`. */
static void insert_split(Parser *p, int at) {
    add_step(p, (Step){0});
    if (p->error) return;
    int count = p->regex->steps.count;
    memmove(step_at(p, at + 1), step_at(p, at), (size_t)(count - 1 - at) * sizeof(Step));
    for (int i = at + 1; i < count; i++) {
        Step *step = step_at(p, i);
        if (step->kind == STEP_SPLIT || step->kind == STEP_JUMP) step->next++, step->other++;
    }
    *step_at(p, at) = (Step){.kind = STEP_SPLIT, .next = at + 1};
}

/* x? : the steps from `at` to the end may be left out. */
static void make_optional(Parser *p, int at) {
    insert_split(p, at);
    if (!p->error) step_at(p, at)->other = p->regex->steps.count;
}

/* x* : they may be left out and repeated. */
static void make_star(Parser *p, int at) {
    insert_split(p, at);
    add_step(p, (Step){.kind = STEP_JUMP, .next = at, .other = at});
    if (!p->error) step_at(p, at)->other = p->regex->steps.count;
}

static void repeat(Parser *p, int atom, int least, int most) {
    int size = p->regex->steps.count - atom;
    if (least == 0 && most == 0) {
        p->regex->steps.count = atom;
        return;
    }
    /* The atom stands there once; then the other mandatory ones, each a copy. */
    for (int i = 1; i < least && !p->error; i++) copy_steps(p, atom, atom + size);
    if (most < 0 && least == 0) make_star(p, atom);
    if (most < 0 && least > 0) {
        int last = atom + (least - 1) * size;
        add_step(p, (Step){.kind = STEP_SPLIT, .next = last, .other = p->regex->steps.count + 1});
    }
    if (most < 0) return;
    if (least == 0) make_optional(p, atom);
    int length = size + (least == 0);
    for (int i = least ? least : 1; i < most && !p->error; i++) {
        int start = p->regex->steps.count;
        copy_steps(p, atom, atom + length);
        if (least > 0 && !p->error) make_optional(p, start);
    }
}

static void parse_repeats(Parser *p, int atom) {
    while (!p->error && p->at < p->end) {
        int least = 0, most = -1;
        if (*p->at == '*')
            p->at++;
        else if (*p->at == '+')
            p->at++, least = 1;
        else if (*p->at == '?')
            p->at++, most = 1;
        else if (*p->at != '{' || !parse_counts(p, &least, &most))
            return;
        if (p->at < p->end && *p->at == '?') p->at++;
        if (!p->error) repeat(p, atom, least, most);
    }
}

static void parse_sequence(Parser *p) {
    while (!p->error && p->at < p->end && *p->at != '|' && *p->at != ')') {
        int atom = p->regex->steps.count;
        parse_atom(p);
        parse_repeats(p, atom);
    }
}

static void parse_alternatives(Parser *p) {
    int start = p->regex->steps.count;
    VEC(int) exits = {0};
    parse_sequence(p);
    while (!p->error && p->at < p->end && *p->at == '|') {
        p->at++;
        insert_split(p, start);
        VEC_PUSH(p->arena, exits, add_step(p, (Step){.kind = STEP_JUMP}));
        if (p->error) return;
        step_at(p, start)->other = p->regex->steps.count;
        /* A later split goes in before this alternative: the steps and exits of the earlier ones stay where they are.
         */
        start = p->regex->steps.count;
        parse_sequence(p);
    }
    for (int i = 0; i < exits.count && !p->error; i++)
        *step_at(p, exits.items[i]) =
            (Step){.kind = STEP_JUMP, .next = p->regex->steps.count, .other = p->regex->steps.count};
}

Status regex_compile(const char *pattern, size_t size, Arena *arena, Regex **out_regex) {
    Regex *regex = ARENA_NEW(arena, Regex);
    Parser p = {.regex = regex, .arena = arena, .at = pattern, .end = pattern + size};
    parse_alternatives(&p);
    if (!p.error && p.at < p.end) p.error = "a ) without its (";
    if (!p.error) add_step(&p, (Step){.kind = STEP_MATCH});
    if (p.error) return status_error(STATUS_INVALID, "the pattern has %s", p.error);
    regex->scratch = ARENA_ARRAY(arena, int, 6 * (size_t)regex->steps.count + 2);
    *out_regex = regex;
    return NULL;
}

/* ---- matching ---- */

static bool in_set(const Set *set, uint32_t point) {
    uint32_t other = point;
    if (set->fold && ((point | 0x20) >= 'a' && (point | 0x20) <= 'z')) other = point ^ 0x20;
    for (int i = 0; i < set->ranges.count; i++) {
        Range r = set->ranges.items[i];
        if ((point >= r.low && point <= r.high) || (other >= r.low && other <= r.high)) return !set->negated;
    }
    return set->negated;
}

static bool is_word(const char *text, size_t size, ptrdiff_t at) {
    if (at < 0 || (size_t)at >= size) return false;
    char c = text[at];
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool holds(Assertion assertion, const char *text, size_t size, size_t at) {
    bool edge = is_word(text, size, (ptrdiff_t)at - 1) != is_word(text, size, (ptrdiff_t)at);
    switch (assertion) {
    case AT_BEGIN: return at == 0;
    case AT_END: return at == size;
    case AT_LINE_BEGIN: return at == 0 || text[at - 1] == '\n';
    case AT_LINE_END: return at == size || text[at] == '\n';
    case AT_WORD_EDGE: return edge;
    case NOT_AT_WORD_EDGE: return !edge;
    }
    return false;
}

typedef struct Threads {
    int *steps; /* the SET and MATCH steps that are live */
    int count;
    uint32_t *seen; /* [steps]: the round in which the step was reached last */
} Threads;

/* Follows splits and jumps from `start`; stack: [steps]. */
static void reach(const Regex *regex, Threads *threads, uint32_t round, int start, int *stack, const char *text,
                  size_t size, size_t at) {
    int depth = 0;
    stack[depth++] = start;
    while (depth) {
        int index = stack[--depth];
        if (threads->seen[index] == round) continue;
        threads->seen[index] = round;
        const Step *step = &regex->steps.items[index];
        if (step->kind == STEP_SPLIT || step->kind == STEP_JUMP) {
            stack[depth++] = step->next;
            if (step->kind == STEP_SPLIT) stack[depth++] = step->other;
        } else if (step->kind == STEP_ASSERT) {
            if (holds(step->assertion, text, size, at)) stack[depth++] = index + 1;
        } else {
            threads->steps[threads->count++] = index;
        }
    }
}

bool regex_matches_all(const Regex *regex, const char *text, size_t size) {
    int count = regex->steps.count;
    int *memory = regex->scratch;
    memset(memory, 0, (6 * (size_t)count + 2) * sizeof *memory);
    Threads now = {memory, 0, (uint32_t *)memory + 2 * count}, next = {memory + count, 0, now.seen};
    int *stack = memory + 3 * count;
    uint32_t round = 1;
    const char *at = text, *end = text + size;
    reach(regex, &now, round, 0, stack, text, size, 0);
    while (at < end && now.count) {
        uint32_t point = next_point(&at, end);
        next.count = 0;
        round++;
        for (int i = 0; i < now.count; i++) {
            const Step *step = &regex->steps.items[now.steps[i]];
            if (step->kind == STEP_SET && in_set(step->set, point))
                reach(regex, &next, round, now.steps[i] + 1, stack, text, size, (size_t)(at - text));
        }
        Threads swap = now;
        now = next;
        next = swap;
    }
    for (int i = 0; i < now.count; i++)
        if (regex->steps.items[now.steps[i]].kind == STEP_MATCH) return true;
    return false;
}
