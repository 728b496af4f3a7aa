/* SPDX-License-Identifier: Apache-2.0 */
/* Generates tokens with a decoder that is given its keys and values as inputs and gives them back as outputs, as exporters write language
 * models: inputs input_ids, attention_mask, position_ids (the last two where the model has them) and caches, the first output the logits.
 *
 *     decode MODEL [OPTION...] PROMPT...
 *
 * A prompt is token ids with commas between them; with --text it is text, whose bytes are the tokens. The session keeps the caches (the
 * policy's "state"): each prompt is a request with a state of its own, whatever its length, and the requests take turns, a token each. A
 * prompt is read piece by piece, so that its memory does not grow with its length. */
#include <math.h>
#include <onnxfuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: decode MODEL [OPTION...] PROMPT...\n"
    "  --steps N          tokens to generate for each prompt; default 32\n"
    "  --stop TOKEN       ends a request that comes to it\n"
    "  --temperature T    draw from the probabilities of logits / T; default 0: the most probable token\n"
    "  --top-k K          from the K most probable tokens\n"
    "  --top-p P          from the fewest tokens that have the probability P together\n"
    "  --seed S           of what is drawn; default 0\n"
    "  --room N           tokens that a cache holds; default 2048\n"
    "  --piece N          tokens of a prompt that one run reads; default 256\n"
    "  --past GLOB, --present GLOB    names of the caches; default past_key_values.*, present.*\n"
    "  --threads N        default: all cores\n"
    "  --text             prompts are text, and so is what follows: a token is a byte\n";

typedef struct Request {
    OnnxfuseState *state;
    int64_t *tokens, prompt, count; /* the prompt and what follows */
    uint64_t random;
    bool done;
} Request;

typedef struct Choice {
    double weight; /* e^((logit - largest) / temperature) */
    int64_t token;
} Choice;

static struct {
    int64_t steps, stop, top_k, seed, room, piece, threads;
    double temperature, top_p;
    const char *past, *present;
    bool text;
} option = {.steps = 32,
            .stop = -1,
            .top_p = 1,
            .room = 2048,
            .piece = 256,
            .past = "past_key_values.*",
            .present = "present.*"};

static OnnxfuseSession *session;
static Choice *choices;

static void check(OnnxfuseStatus status) {
    if (!status) return;
    fprintf(stderr, "decode: %s\n", onnxfuse_status_message(status));
    exit((int)onnxfuse_status_code(status));
}

static void wrong(const char *what, const char *which) {
    fprintf(stderr, "decode: %s \"%s\"\n%s", what, which, usage);
    exit(ONNXFUSE_USAGE);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* --- the command line --- */
static double number(const char *text, double least, double most) {
    char *end;
    double value = strtod(text, &end);
    if (!*text || *end || !(value >= least && value <= most)) wrong("not a number, or out of range:", text);
    return value;
}

static int64_t whole(const char *text, int64_t least) {
    double value = number(text, (double)least, 1e15);
    if (value != floor(value)) wrong("not a whole number:", text);
    return (int64_t)value;
}

static bool take_option(const char *name, const char *value) {
    if (strcmp(name, "--temperature") == 0)
        option.temperature = number(value, 0, 1e6);
    else if (strcmp(name, "--top-p") == 0)
        option.top_p = number(value, 1e-9, 1);
    else if (strcmp(name, "--past") == 0)
        option.past = value;
    else if (strcmp(name, "--present") == 0)
        option.present = value;
    else {
        const struct {
            const char *name;
            int64_t *to, least;
        } wholes[] = {{"--steps", &option.steps, 1},    {"--stop", &option.stop, 0}, {"--top-k", &option.top_k, 1},
                      {"--seed", &option.seed, 0},      {"--room", &option.room, 1}, {"--piece", &option.piece, 1},
                      {"--threads", &option.threads, 1}};
        size_t i = 0, count = sizeof wholes / sizeof *wholes;
        while (i < count && strcmp(wholes[i].name, name) != 0) i++;
        if (i == count) return false;
        *wholes[i].to = whole(value, wholes[i].least);
    }
    return true;
}

static void read_prompt(Request *r, const char *text) {
    size_t most = strlen(text) + (size_t)option.steps;
    r->tokens = calloc(most, sizeof *r->tokens);
    if (!r->tokens) exit(ONNXFUSE_FAULT);
    if (option.text) {
        for (; text[r->prompt]; r->prompt++) r->tokens[r->prompt] = (unsigned char)text[r->prompt];
    } else {
        for (const char *at = text;; at++) {
            char *end;
            r->tokens[r->prompt] = strtoll(at, &end, 10);
            if (end == at || r->tokens[r->prompt++] < 0 || (*end && *end != ',')) wrong("not token ids:", text);
            if (!*(at = end)) break;
        }
    }
    if (!r->prompt) wrong("an empty prompt:", text);
    r->count = r->prompt;
}

/* --- a run --- */

/* Tokens [from, to) of the request; the logits behind the last of them, to be freed. */
static OnnxfuseValue *run(Request *r, int64_t from, int64_t to) {
    OnnxfuseValue *inputs[3], *outputs[1] = {NULL};
    int count = onnxfuse_session_input_count(session);
    for (int i = 0; i < count; i++) {
        const char *name = onnxfuse_session_input(session, i)->name;
        bool ids = strcmp(name, "input_ids") == 0, positions = strcmp(name, "position_ids") == 0;
        int64_t length = ids || positions ? to - from : to;
        check(onnxfuse_value_tensor(ONNXFUSE_INT64, 2, (int64_t[]){1, length}, NULL, &inputs[i]));
        int64_t *data = onnxfuse_value_data(inputs[i]);
        for (int64_t t = 0; t < length; t++) data[t] = ids ? r->tokens[from + t] : positions ? from + t : 1;
    }
    OnnxfuseRunOptions options = {.size = sizeof options, .state = r->state};
    check(onnxfuse_session_run_with(session, (const OnnxfuseValue *const *)inputs, outputs, &options));
    for (int i = 0; i < count; i++) onnxfuse_value_free(inputs[i]);
    return outputs[0];
}

/* --- the next token --- */

/* SplitMix64 (Steele, Lea, Flood, 2014): 53 bits in [0, 1). */
static double draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* The most probable first; of equal ones the lower token. */
static int order(const void *a, const void *b) {
    const Choice *x = a, *y = b;
    if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
    return x->token < y->token ? -1 : 1;
}

static int64_t choose(Request *r, const OnnxfuseValue *logits) {
    int64_t vocabulary = onnxfuse_value_dims(logits)[onnxfuse_value_rank(logits) - 1], best = 0;
    int64_t last = onnxfuse_value_count(logits) - vocabulary, kept = 0;
    double largest = -INFINITY, all = 0, sum = 0;
    if (!choices) choices = malloc((size_t)vocabulary * sizeof *choices);
    if (!choices) exit(ONNXFUSE_FAULT);
    for (int64_t i = 0; i < vocabulary; i++) {
        choices[i] = (Choice){onnxfuse_value_element(logits, last + i), i};
        if (choices[i].weight > largest) largest = choices[best = i].weight;
    }
    if (option.temperature == 0) return best;
    for (int64_t i = 0; i < vocabulary; i++)
        choices[i].weight = exp((choices[i].weight - largest) / option.temperature);
    qsort(choices, (size_t)vocabulary, sizeof *choices, order);
    if (option.top_k && option.top_k < vocabulary) vocabulary = option.top_k;
    for (int64_t i = 0; i < vocabulary; i++) all += choices[i].weight;
    while (kept < vocabulary && sum < option.top_p * all) sum += choices[kept++].weight;
    double place = draw(&r->random) * sum;
    for (int64_t i = 0; i + 1 < kept; i++)
        if ((place -= choices[i].weight) < 0) return choices[i].token;
    return choices[kept - 1].token;
}

static void show(const Request *r, int64_t from) {
    for (int64_t t = from; t < r->count; t++) {
        if (option.text)
            putchar((int)r->tokens[t]);
        else
            printf("%s%lld", t ? " " : "", (long long)r->tokens[t]);
    }
    fflush(stdout);
}

/* The request's tokens but the last are in its state. Whether there is a next one. */
static void step(Request *r, bool shown) {
    int64_t from = r->count == r->prompt ? 0 : r->count - 1;
    OnnxfuseValue *logits = NULL;
    while (from < r->count) {
        int64_t to = r->count - from > option.piece ? from + option.piece : r->count;
        onnxfuse_value_free(logits);
        logits = run(r, from, to);
        from = to;
    }
    r->tokens[r->count++] = choose(r, logits);
    onnxfuse_value_free(logits);
    r->done = r->count == r->prompt + option.steps || r->tokens[r->count - 1] == option.stop;
    if (shown) show(r, r->count - 1);
}

static void open_model(const char *path) {
    char policy[1024];
    int length =
        snprintf(policy, sizeof policy, "{\"state\": [{\"input\": \"%s\", \"output\": \"%s\", \"capacity\": %lld}]}",
                 option.past, option.present, (long long)option.room);
    if (length >= (int)sizeof policy) wrong("too long a name:", option.past);
    OnnxfuseOptions options = {.size = sizeof options, .policy_json = policy, .threads = (int)option.threads};
    check(onnxfuse_session_open(path, &options, &session));
    int inputs = onnxfuse_session_input_count(session);
    bool known = inputs >= 1 && inputs <= 3 && onnxfuse_session_output_count(session) == 1;
    for (int i = 0; i < inputs && known; i++) {
        const char *name = onnxfuse_session_input(session, i)->name;
        known =
            strcmp(name, "input_ids") == 0 || strcmp(name, "attention_mask") == 0 || strcmp(name, "position_ids") == 0;
    }
    if (!known)
        wrong("beside its caches the model has more than input_ids, attention_mask, position_ids and logits:", path);
}

/* All requests' prompts, then a token each in turn. */
static void generate(Request *requests, int count) {
    bool alone = count == 1, terminal = alone && isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO);
    int64_t read = 0, made = 0;
    double begun = seconds(), prompted;
    if (alone) show(&requests[0], 0);
    for (int i = 0; i < count; i++) {
        read += requests[i].prompt;
        step(&requests[i], alone);
    }
    prompted = seconds();
    for (int64_t busy = 1; busy;) {
        busy = 0;
        for (int i = 0; i < count; i++) {
            if (requests[i].done) continue;
            step(&requests[i], alone);
            made++, busy++;
        }
        if (terminal) fprintf(stderr, "\r%.1f tokens/s", (double)made / (seconds() - prompted));
    }
    double end = seconds();
    for (int i = 0; i < count && !alone; i++) {
        show(&requests[i], 0);
        putchar('\n');
    }
    if (alone) putchar('\n');
    fflush(stdout);
    fprintf(stderr, "%sprompts: %lld tokens in %.1f ms, %.1f tokens/s", terminal ? "\r" : "", (long long)read,
            (prompted - begun) * 1e3, (double)read / (prompted - begun));
    if (made) fprintf(stderr, "; then %lld tokens, %.1f tokens/s", (long long)made, (double)made / (end - prompted));
    fprintf(stderr, "\n");
}

int main(int argc, char **argv) {
    int at = 2, count;
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        if (strcmp(argv[at], "--text") == 0)
            option.text = true;
        else if (at + 1 == argc || !take_option(argv[at], argv[at + 1]))
            wrong("an unknown option, or one without its value:", argv[at]);
        else
            at++;
    }
    if ((count = argc - at) < 1) wrong("no prompt for", argc > 1 ? argv[1] : "a model");
    Request *requests = calloc((size_t)count, sizeof *requests);
    if (!requests) return ONNXFUSE_FAULT;
    for (int i = 0; i < count; i++) {
        read_prompt(&requests[i], argv[at + i]);
        requests[i].random = (uint64_t)option.seed + (uint64_t)i * 0x632be59bd9b4e019; /* each draws its own row */
    }
    open_model(argv[1]);
    for (int i = 0; i < count; i++) check(onnxfuse_state_create(session, &requests[i].state));
    generate(requests, count);
    for (int i = 0; i < count; i++) {
        onnxfuse_state_free(requests[i].state);
        free(requests[i].tokens);
    }
    free(requests);
    free(choices);
    onnxfuse_session_close(session);
    return 0;
}
