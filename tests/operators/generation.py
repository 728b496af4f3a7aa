# SPDX-License-Identifier: Apache-2.0
"""Cases of com.microsoft's operators that hold a decoder and run it token after token: GreedySearch, Sampling and BeamSearch, against ONNX
Runtime. The decoder is a small one of GPT-2's form, written here, with weights of a seed."""

from dataclasses import replace

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from cases import MICROSOFT, Fill, by_onnxruntime, constant, data, f, f16, f32, i32, row, table

VOCABULARY, HEADS, SIZE, POSITIONS = 20, 2, 4, 64
WIDTH = HEADS * SIZE
END = 1
FEATURES, FRAMES = 2, 7  # of what Whisper hears
PAD = VOCABULARY  # has an embedding and no score: where it stands, nothing was chosen


class Builder:
    def __init__(self, seed, prefix=""):
        self.rng, self.prefix, self.nodes, self.weights = np.random.default_rng(seed), prefix, [], []
        self.first_tokens = False  # several tokens are read at once, each by itself and those before it

    def const(self, values):
        self.weights.append(numpy_helper.from_array(np.asarray(values), f"{self.prefix}w{len(self.weights)}"))
        return self.weights[-1].name

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def matrix(self, rows, columns, scale=None):
        return self.const((self.rng.standard_normal((rows, columns)) * (scale or rows**-0.5)).astype(np.float32))

    def op(self, kind, *inputs, outputs=1, name=None, **attributes):
        made = [name] if name else [f"{self.prefix}v{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), made, **attributes))
        return made[0] if outputs == 1 else made

    def linear(self, x, columns=WIDTH, rows=WIDTH, **named):
        return self.op("MatMul", x, self.matrix(rows, columns), **named)

    def heads(self, x, **named):
        return self.op("Transpose", self.op("Reshape", x, self.ints(0, 0, HEADS, SIZE)), perm=[0, 2, 1, 3], **named)

    def attend(self, x, query, keys, values, mask=None):
        """x and what is read."""
        scores = self.op("Mul", self.op("MatMul", query, self.op("Transpose", keys, perm=[0, 1, 3, 2])), self.const(np.float32(SIZE**-0.5)))
        read = self.op("MatMul", self.op("Softmax", self.op("Add", scores, mask) if mask else scores, axis=-1), values)
        read = self.op("Reshape", self.op("Transpose", read, perm=[0, 2, 1, 3]), self.ints(0, 0, WIDTH))
        return self.op("Add", x, self.linear(read))

    def feed(self, x):
        return self.op("Add", x, self.linear(self.op("Relu", self.linear(x, 2 * WIDTH)), rows=2 * WIDTH))

    def hide(self, seen):
        return self.op("Where", seen, self.const(np.float32(0)), self.const(np.float32(-1e4)))

    def given_mask(self, name):
        return self.op("Cast", self.op("Unsqueeze", name, self.ints(1, 2)), to=T.BOOL)

    def length(self, x):
        return self.op("Squeeze", self.op("Slice", self.op("Shape", x), self.ints(1), self.ints(2)), self.ints(0))

    def causal_mask(self):
        """[rows, 1, tokens, positions]: 0 where a token may look."""
        zero, one = self.const(np.int64(0)), self.const(np.int64(1))
        total, now = self.length("attention_mask"), self.length("input_ids")
        at = self.op("Add", self.op("Range", zero, now, one), self.op("Sub", total, now))
        seen = self.op("LessOrEqual", self.op("Range", zero, total, one), self.op("Unsqueeze", at, self.ints(1)))
        return self.hide(self.op("And", seen, self.given_mask("attention_mask")))

    def triangle(self):
        """[tokens, tokens]: 0 where a token of decoder_input_ids may look."""
        zero, one = self.const(np.int64(0)), self.const(np.int64(1))
        at = self.op("Range", zero, self.length("decoder_input_ids"), one)
        return self.hide(self.op("LessOrEqual", at, self.op("Unsqueeze", at, self.ints(1))))

    def gpt_layer(self, x, mask, number):
        parts = self.op("Split", self.linear(x, 3 * WIDTH), outputs=3, axis=2, num_outputs=3)
        query, *now = [self.heads(part) for part in parts]
        now = self.op("Concat", *[self.op("Unsqueeze", part, self.ints(0)) for part in now], axis=0)
        self.op("Concat", f"past_{number}", now, axis=3, name=f"present_{number}")
        keys, values = [self.op("Gather", f"present_{number}", self.const(np.int64(k)), axis=0) for k in range(2)]
        return self.feed(self.attend(x, query, keys, values, mask))

    def encoded_layer(self, x, mask, number, past, cross):
        """past: the decoder has caches; cross: the names of keys and values of the encoder."""
        query = self.heads(self.linear(x))
        now = []
        for part in ("key", "value"):
            named = {"name": f"present_{part}_self_{number}"}
            made = self.heads(self.linear(x), **({} if past else named))
            now.append(self.op("Concat", f"past_{part}_self_{number}", made, axis=2, **named) if past else made)
        x = self.attend(x, query, *now, self.triangle() if self.first_tokens else None)
        return self.feed(self.attend(x, self.heads(self.linear(x)), *cross, mask))

    def encoded_decoder(self, ids, layers, past, cross, masked=True):
        x = self.op("Gather", self.matrix(VOCABULARY + 1, WIDTH, 1.0), ids)
        mask = self.hide(self.given_mask("encoder_attention_mask")) if masked else None
        for number in range(layers):
            x = self.encoded_layer(x, mask, number, past, [f"{cross}_{part}_cross_{number}" for part in ("key", "value")])
        self.linear(x, VOCABULARY, name="logits")


def declared(name, dtype, *shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def decoder(seed=0, layers=2, vocabulary=VOCABULARY, without=None, called=None, past_type=T.FLOAT, ids_type=T.INT32, size=SIZE, heads=HEADS):
    """without: an output that it lacks; called: {name: another}; the types and sizes are those that it declares."""
    d = Builder(seed)
    x = d.op("Add", d.op("Gather", d.matrix(vocabulary + 1, WIDTH, 1.0), "input_ids"), d.op("Gather", d.matrix(POSITIONS, WIDTH, 1.0), "position_ids"))
    mask = d.causal_mask()
    for number in range(layers):
        x = d.gpt_layer(x, mask, number)
    d.linear(x, vocabulary, name="logits")
    inputs = [declared("input_ids", ids_type, "rows", "tokens"), declared("position_ids", T.INT32, "rows", "tokens"),
              declared("attention_mask", T.INT32, "rows", "positions")]
    inputs += [declared(f"past_{k}", past_type, 2, "rows", heads, "past", size) for k in range(layers)]
    outputs = [declared("logits", T.FLOAT, "rows", "tokens", vocabulary)]
    outputs += [declared(f"present_{k}", T.FLOAT, 2, "rows", HEADS, "positions", SIZE) for k in range(layers)]
    outputs = [o for o in outputs if o.name != without]
    for part in [*inputs, *outputs]:
        part.name = (called or {}).get(part.name, part.name)
    for node in d.nodes:
        for names in (node.input, node.output):
            names[:] = [(called or {}).get(name, name) for name in names]
    return helper.make_graph(d.nodes, "decoder", inputs, outputs, d.weights)


def caches(when, where, layers, length, size=SIZE):
    return [declared(f"{when}_{part}_{where}_{k}", T.FLOAT, "rows", HEADS, length, size) for k in range(layers) for part in ("key", "value")]


def t5_decoder(seed=0, layers=2, hidden=False, tokens=1, size=SIZE):
    d = Builder(seed)
    d.encoded_decoder("input_ids", layers, True, "past")
    inputs = [declared("input_ids", T.INT32, "rows", tokens), declared("encoder_attention_mask", T.INT32, "rows", "encoded")]
    if hidden:
        inputs.append(declared("encoder_hidden_states", T.FLOAT, "rows", "encoded", WIDTH))
    inputs += caches("past", "self", layers, "past", size) + caches("past", "cross", layers, "encoded")
    outputs = [declared("logits", T.FLOAT, "rows", 1, VOCABULARY), *caches("present", "self", layers, "positions")]
    return helper.make_graph(d.nodes, "decoder", inputs, outputs, d.weights)


def t5_encoder(seed=0, layers=2, starts=False):
    """starts: it takes the decoder's first step, too."""
    e = Builder(seed + 100, "encoder_")
    x = e.op("Add", e.op("Gather", e.matrix(VOCABULARY + 1, WIDTH, 1.0), "encoder_input_ids"),
             e.op("Slice", e.matrix(POSITIONS, WIDTH, 1.0), e.ints(0), e.op("Unsqueeze", e.length("encoder_input_ids"), e.ints(0))))
    x = e.attend(x, *[e.heads(e.linear(x)) for _ in range(3)], e.hide(e.given_mask("encoder_attention_mask")))
    e.op("Identity", x, name="encoder_hidden_states")
    for k in range(layers):
        for part in ("key", "value"):
            e.heads(e.linear(x), name=f"present_{part}_cross_{k}")
    inputs = [declared(f"encoder_{name}", T.INT32, "rows", "encoded") for name in ("input_ids", "attention_mask")]
    outputs = caches("present", "cross", layers, "encoded")
    if starts:
        d = Builder(seed)
        d.encoded_decoder("decoder_input_ids", layers, False, "present")
        e.nodes += d.nodes
        e.weights += d.weights
        inputs.append(declared("decoder_input_ids", T.INT32, "rows", 1))
        outputs = [declared("logits", T.FLOAT, "rows", 1, VOCABULARY), declared("encoder_hidden_states", T.FLOAT, "rows", "encoded", WIDTH),
                   *caches("present", "self", layers, 1), *outputs]
    return helper.make_graph(e.nodes, "encoder", inputs, outputs, e.weights)


def whisper_decoder(seed=0, layers=2, hidden=False, masked=False):
    """hidden: it declares the encoder's result, which none of its layers reads but through the caches; masked: and T5's mask."""
    d = Builder(seed)
    d.encoded_decoder("input_ids", layers, True, "past", masked)
    inputs = [declared("input_ids", T.INT32, "rows", 1)]
    if masked:
        inputs.append(declared("encoder_attention_mask", T.INT32, "rows", "encoded"))
    if hidden:
        inputs.append(declared("encoder_hidden_states", T.FLOAT, "rows", "encoded", WIDTH))
    inputs += caches("past", "self", layers, "past") + caches("past", "cross", layers, "encoded")
    outputs = [declared("logits", T.FLOAT, "rows", 1, VOCABULARY), *caches("present", "self", layers, "positions")]
    return helper.make_graph(d.nodes, "decoder", inputs, outputs, d.weights)


def whisper_encoder(seed=0, layers=2, features=T.FLOAT):
    """Frames by two features become states; the first tokens are read one after the other, each by those before it."""
    e = Builder(seed + 100, "encoder_")
    x = e.linear(e.op("Transpose", "encoder_input_ids", perm=[0, 2, 1]), rows=FEATURES)
    x = e.attend(x, *[e.heads(e.linear(x)) for _ in range(3)])
    e.op("Identity", x, name="encoder_hidden_states")
    for k in range(layers):
        for part in ("key", "value"):
            e.heads(e.linear(x), name=f"present_{part}_cross_{k}")
    d = Builder(seed)
    d.first_tokens = True
    d.encoded_decoder("decoder_input_ids", layers, False, "present", masked=False)
    e.nodes += d.nodes
    e.weights += d.weights
    inputs = [declared("encoder_input_ids", features, "rows", FEATURES, "encoded"), declared("decoder_input_ids", T.INT32, "rows", "tokens")]
    outputs = [declared("logits", T.FLOAT, "rows", "tokens", VOCABULARY), declared("encoder_hidden_states", T.FLOAT, "rows", "encoded", WIDTH),
               *caches("present", "self", layers, "tokens"), *caches("present", "cross", layers, "encoded")]
    return helper.make_graph(e.nodes, "encoder", inputs, outputs, e.weights)


# --- rows -------------------------------------------------------------------------------------------------------------
GREEDY = ["input_ids", "max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask", "presence_mask", "seed"]
BEAM = ["input_ids", "max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty", "repetition_penalty", "vocab_mask",
        "prefix_vocab_mask", "attention_mask", "decoder_input_ids", "logits_processor"]
FLOATS = {"length_penalty", "repetition_penalty"}
PROMPTS = [[3, 4, 5, 6], [PAD, PAD, 7, 8], [PAD, 9, 10, 11]]  # of different lengths


def prompt(batch, length=4):
    return [line[4 - length:] for line in PROMPTS][:batch]


def told(name, inputs, fixed, **rest):
    """A row whose inputs are told by name; those of `fixed` are initializers."""
    names = [key for key in ("seed_of_weights", "layers") if key in rest]
    graph = decoder(**{{"seed_of_weights": "seed"}.get(key, key): rest.pop(key) for key in names}) if "decoder" not in rest else rest.pop("decoder")
    fills = []
    for key in rest.pop("places"):
        value = inputs.get(key)
        fill = None if value is None else value if hasattr(value, "draw") else data(value, f32 if key in FLOATS else i32)
        fills.append(constant(fill) if fill and key in fixed else fill)
    while fills[-1] is None:
        fills.pop()
    attributes = {"eos_token_id": END, "pad_token_id": PAD, "decoder": graph, **rest}
    return row(name, fills, **{key: value for key, value in attributes.items() if value is not None})


def greedy(name, batch=2, length=4, most=14, inputs=None, fixed=(), **rest):
    return told(name, {"input_ids": prompt(batch, length), "max_length": most, **(inputs or {})}, fixed, places=GREEDY, **rest)


def beam(name, batch=2, length=4, most=14, beams=3, returned=1, inputs=None, fixed=(), outputs=(0, 1), **rest):
    given = {"input_ids": prompt(batch, length), "max_length": most, "min_length": 0, "num_beams": beams, "num_return_sequences": returned,
             "length_penalty": 1.0, **(inputs or {})}
    return told(name, given, fixed, places=BEAM, outputs=outputs, **rest)


def t5(name, seed=0, starts=False, hidden=False, **rest):
    """Sequences of an encoder and a decoder begin with a token of their own."""
    graphs = {"decoder": t5_decoder(seed, hidden=hidden), "encoder": t5_encoder(seed, starts=starts), "model_type": 1, "decoder_start_token_id": 2}
    return beam(name, **{**graphs, **rest})


def whisper(name, seed=0, batch=2, tokens=((2, 5, 7), (2, 6, 7), (2, 5, 8)), inputs=None, **rest):
    """Sequences of what is heard begin with tokens that are given, or with decoder_start_token_id."""
    graphs = {"decoder": whisper_decoder(seed), "encoder": whisper_encoder(seed), "model_type": 2, "decoder_start_token_id": 2}
    given = {"input_ids": f(batch, FEATURES, FRAMES), "decoder_input_ids": tokens and np.array(tokens[:batch], np.int32), **(inputs or {})}
    return beam(name, batch=batch, inputs=given, **{**graphs, **rest})


def narrowed(graph, logits=T.FLOAT16):
    """The graph in float16, its weights rounded; logits: their type."""
    made = graph.__class__.FromString(graph.SerializeToString())
    for k, weight in enumerate(made.initializer):
        if weight.data_type == T.FLOAT:
            made.initializer[k].CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype(f16), weight.name))
    for part in [*made.input, *made.output]:
        if part.type.tensor_type.elem_type == T.FLOAT:
            part.type.tensor_type.elem_type = T.FLOAT16
    if logits != T.FLOAT16:
        node = next(node for node in made.node if "logits" in node.output)
        node.output[0] = "narrow_logits"
        made.node.append(helper.make_node("Cast", ["narrow_logits"], ["logits"], to=logits))
        next(part for part in made.output if part.name == "logits").type.tensor_type.elem_type = logits
    return made


def widened(graph):
    """A graph of narrowed in float32, with its weights."""
    made = graph.__class__.FromString(graph.SerializeToString())
    for k, weight in enumerate(made.initializer):
        if weight.data_type == T.FLOAT16:
            made.initializer[k].CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype(f32), weight.name))
    for part in [*made.input, *made.output]:
        if part.type.tensor_type.elem_type == T.FLOAT16:
            part.type.tensor_type.elem_type = T.FLOAT
    return made


GRAPHS = ("decoder", "init_decoder", "encoder")


def halved(case, logits=T.FLOAT16):
    """A row whose graphs are of float16."""
    name, inputs, attributes, own = case
    attributes = {key: narrowed(value, logits) if key in GRAPHS else value for key, value in attributes.items()}
    return row(name, inputs, **attributes, **own)


def in_floats(case, inputs):
    """What ONNX Runtime gives where its decoder computes in float32, with the same weights: for the CPU it has none of float16. Rounding
    to float16 must choose no other token: a row is one of weights and prompts whose scores lie far enough apart."""
    attributes = {key: widened(value) if key in GRAPHS else value for key, value in case.attributes.items()}
    wide = replace(case, attributes=attributes, dtype=f32)
    return to_the_end(wide, inputs) if case.op != "BeamSearch" else by_onnxruntime(wide, inputs)


def to_the_end(case, inputs):
    """ONNX Runtime leaves open what stands behind the last token of all sequences."""
    found = by_onnxruntime(case, inputs)[0].copy()
    start = inputs[0].shape[1]
    for column in range(start, found.shape[1]):
        if (found[:, column] == case.attributes["pad_token_id"]).all():
            found[:, column:] = case.attributes["pad_token_id"]
    return [found]


def without_presence(vocabulary):
    """ONNX Runtime takes all of the penalty of presence from the first score of all. One that is the same for all tokens changes nothing; a great
    one leaves out what a mask of tokens does: vocabulary(presence_mask) of the first sequence."""

    def expect(case, inputs):
        mask, changed = inputs[7], list(inputs[:7])
        changed[4] = vocabulary(mask[0]).astype(np.int32)
        return to_the_end(replace(case, inputs=[Fill(None)] * 7, arrays=None), changed)

    return expect


def mask_of(*left_out, rows=None):
    mask = np.ones(VOCABULARY, np.int32)
    mask[list(left_out)] = 0
    return mask if rows is None else np.tile(mask, (rows, 1))


SHARED = {"domain": MICROSOFT}
ROWS = {"expect": to_the_end, **SHARED}
NARROW = {"expect": in_floats, "dtypes": [f16], **SHARED}
SCORES = {"rtol": 64, "atol": 64, **SHARED}  # sums of logarithms of a dozen tokens

GREEDY_CASES = [
    *table("GreedySearch",
           *[greedy(f"weights {seed}, a batch of {batch}", batch=batch, seed_of_weights=seed) for seed in range(4) for batch in (1, 3)],
           greedy("ends early", most=40, eos_token_id=13),
           greedy("no end", most=20, eos_token_id=-1),
           greedy("one token", most=5),
           greedy("a prompt of one", length=1),
           greedy("lengths as vectors", inputs={"max_length": [12], "min_length": [8]}),
           greedy("lengths known", inputs={"min_length": 8}, fixed=("max_length", "min_length")),
           greedy("at least", most=20, eos_token_id=13, inputs={"min_length": 12}),
           greedy("a penalty of repetition", inputs={"repetition_penalty": 1.7}),
           greedy("a reward of repetition", inputs={"repetition_penalty": 0.6}),
           greedy("no token twice", most=16, no_repeat_ngram_size=1),
           greedy("no pair twice", most=24, no_repeat_ngram_size=2),
           greedy("no triple twice", most=40, no_repeat_ngram_size=3),
           greedy("n-grams longer than the prompt", most=20, no_repeat_ngram_size=6),
           greedy("a mask of tokens", inputs={"vocab_mask": mask_of(13, 19, 12)}),
           greedy("a mask of the first token", inputs={"prefix_vocab_mask": mask_of(13, 19, 1, rows=2)}),
           greedy("a mask of the prompt", batch=3, inputs={"attention_mask": [[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 1]]}),
           greedy("everything", most=24, batch=3, no_repeat_ngram_size=2,
                  inputs={"min_length": 9, "repetition_penalty": 1.2, "vocab_mask": mask_of(4), "prefix_vocab_mask": mask_of(2, 3, rows=3),
                          "attention_mask": [[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 1]]}),
           greedy("another decoder for the prompt", init_decoder=decoder(seed=9)),
           greedy("a decoder of one layer", layers=1),
           greedy("attributes said", model_type=0, decoder_start_token_id=3, vocab_size=VOCABULARY), **ROWS),
    *table("GreedySearch",
           greedy("max_length of the prompt's length", most=4, refused="the prompt has 4 tokens already"),
           greedy("max_length beyond all memory", most=2**31 - 1, refused="max_length is 2147483647"),
           greedy("no prompt", inputs={"input_ids": np.zeros((2, 0), np.int32)}, refused="input_ids has no token"),
           greedy("no batch", inputs={"input_ids": np.zeros((0, 4), np.int32)}, refused="input_ids has no sequence"),
           greedy("tokens of another type", inputs={"input_ids": data(prompt(2), np.int64)}, refused="input_ids is no tensor of int32"),
           greedy("tokens of one axis", inputs={"input_ids": [3, 4, 5]}, refused="input_ids has 1 axes"),
           greedy("a mask of another shape", inputs={"attention_mask": [[1, 1, 1]]}, refused="attention_mask and input_ids differ"),
           greedy("a mask of fewer tokens", inputs={"vocab_mask": [1, 0, 1]}, refused="vocab_mask should have 1 x 20 elements"),
           greedy("a prefix mask of another batch", inputs={"prefix_vocab_mask": mask_of(rows=3)}, refused="prefix_vocab_mask should have 2 x 20"),
           greedy("no penalty at all", inputs={"repetition_penalty": 0.0}, refused="repetition_penalty"),
           greedy("two penalties", inputs={"repetition_penalty": [1.0, 2.0]}, refused="repetition_penalty"),
           greedy("another kind of model", model_type=1, encoder=decoder(), refused="model_type 1"),
           greedy("an encoder without use", encoder=decoder(), refused="attribute encoder"),
           greedy("no end told", eos_token_id=None, refused="attribute eos_token_id is missing"),
           greedy("more tokens than logits", vocab_size=30, refused="vocab_size is 30"),
           greedy("a decoder without caches", decoder=decoder(layers=0), refused="so no caches"),
           greedy("a decoder that lacks logits", decoder=decoder(without="logits"), refused="past and present in one memory"),
           greedy("a decoder that lacks a cache", decoder=decoder(without="present_1"), refused="past and present in one memory"),
           greedy("a decoder with other names", decoder=decoder(called={"position_ids": "positions"}), refused='input 1 of decoder is called "positions"'),
           greedy("a decoder with other outputs", decoder=decoder(called={"logits": "scores"}), refused='output 0 of decoder is called "scores"'),
           greedy("caches in another order", decoder=decoder(called={"past_0": "past_1", "past_1": "past_0"}), refused='input 3 of decoder is called "past_1"'),
           greedy("a decoder of other tokens", decoder=decoder(ids_type=T.INT64), refused='"input_ids" of decoder is not int32'),
           greedy("caches of integers", decoder=decoder(past_type=T.INT32), refused='"past_0" of decoder is not declared as float32'),
           greedy("caches of unknown size", decoder=decoder(size="size"), refused='"past_0" of decoder is not declared as float32'),
           greedy("a first decoder of fewer layers", init_decoder=decoder(layers=1), refused="init_decoder has 1 caches and decoder 2"),
           greedy("n-grams of less than nothing", no_repeat_ngram_size=-1, refused="no_repeat_ngram_size"), **SHARED),
]

# The random numbers are those of ONNX Runtime's builds for Linux, so that the tokens are the same.
SAMPLING_CASES = [
    *table("Sampling",
           *[greedy(f"weights {seed}, top_p {p}", batch=3, seed_of_weights=seed, top_p=p, inputs={"seed": seed + 5}) for seed in range(3) for p in (0.3, 0.9)],
           greedy("everything may be drawn", top_p=1.0, most=20),
           greedy("a seed known", top_p=0.9, inputs={"seed": 7}, fixed=("seed",)),
           greedy("the best first", top_p=0.6, custom=1, batch=3, most=20),
           greedy("next to greedy", top_p=1e-6, custom=1, batch=3, most=20),
           greedy("cold", top_p=0.95, temperature=0.2),
           greedy("hot", top_p=0.95, temperature=3.0, custom=1),
           greedy("at least five", top_p=0.1, min_tokens_to_keep=5, most=20),
           greedy("another value for what is left out", top_p=0.4, filter_value=-3.0, most=20),
           greedy("a penalty of presence for all", top_p=0.9, presence_penalty=2.5, inputs={"presence_mask": mask_of(rows=2)}, expect=without_presence(lambda mask: mask)),
           greedy("a penalty of presence for some", top_p=1e-6, custom=1, presence_penalty=1e6, inputs={"presence_mask": 1 - mask_of(0, 7, 11, 3, rows=2)},
                  expect=without_presence(lambda mask: 1 - mask)),
           greedy("everything", top_p=0.8, temperature=1.5, no_repeat_ngram_size=2, most=24,
                  inputs={"min_length": 9, "repetition_penalty": 1.2, "vocab_mask": mask_of(4), "prefix_vocab_mask": mask_of(2, 3, rows=2),
                          "attention_mask": [[1, 1, 1, 1], [1, 0, 1, 1]], "seed": 123456}),
           greedy("another decoder for the prompt", top_p=0.9, init_decoder=decoder(seed=9)),
           greedy("attributes said", top_p=0.9, model_type=0, decoder_start_token_id=3, vocab_size=VOCABULARY), **ROWS),
    *table("Sampling",
           greedy("a seed below zero", top_p=0.9, inputs={"seed": -1}, refused="seed is -1"),
           greedy("a presence mask of fewer tokens", inputs={"presence_mask": [[1], [1]]}, refused="presence_mask should have 2 x 20"),
           greedy("fewer than no tokens to keep", min_tokens_to_keep=-1, refused="min_tokens_to_keep"),
           greedy("logits that ONNX Runtime gives in debug builds alone", outputs=(0, 1), refused="output 1"),
           greedy("an encoder without use", encoder=decoder(), refused="attribute encoder"), **SHARED),
]

BEAM_CASES = [
    *table("BeamSearch",
           *[beam(f"weights {seed}, {beams} beams, a batch of {batch}", batch=batch, beams=beams, returned=beams, seed_of_weights=seed)
             for seed in range(3) for beams in (1, 2, 3, 4) for batch in (1, 3)],
           *[beam(f"weights {seed}, {beams} beams, stopping early", batch=1 + seed % 3, beams=beams, returned=beams - 1, seed_of_weights=seed, early_stopping=1, most=24)
             for seed in range(3) for beams in (2, 4)],
           *[beam(f"a penalty of length of {penalty}", most=24, inputs={"length_penalty": penalty}, batch=1, returned=3) for penalty in (0.0, 0.5, 2.0, -1.0)],
           beam("sequences alone", outputs=(0,)),
           beam("scores of each token", outputs=(0, 1, 2), eos_token_id=-1),
           beam("scores of one token", outputs=(0, 1, 2), most=5),
           beam("one token", most=5, returned=3),
           beam("a prompt of one", length=1),
           beam("numbers known", inputs={"min_length": 6}, fixed=("max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty")),
           beam("lengths as vectors", inputs={"max_length": [12], "num_beams": [2]}),
           beam("at least", batch=1, most=20, inputs={"min_length": 12}, returned=3),
           beam("a penalty of repetition", inputs={"repetition_penalty": 1.7}),
           beam("no token twice", most=16, no_repeat_ngram_size=1),
           beam("no pair twice", batch=1, most=24, no_repeat_ngram_size=2),
           beam("a mask of tokens", inputs={"vocab_mask": mask_of(13, 19, 12)}),
           beam("a mask of the first token", inputs={"prefix_vocab_mask": mask_of(13, 19, 1, rows=2)}),
           beam("a mask of the prompt", batch=3, inputs={"attention_mask": [[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 1]]}),
           beam("more beams than half of the tokens", beams=15, returned=9, batch=1),
           beam("another decoder for the prompt", init_decoder=decoder(seed=9)),
           beam("the usual processor", inputs={"logits_processor": 0}),
           beam("attributes said", model_type=0, decoder_start_token_id=3, vocab_size=VOCABULARY, early_stopping=0), **SCORES),
    *table("BeamSearch",
           beam("no beams", beams=0, refused="num_beams is 0"),
           beam("a billion beams", beams=10**9, refused="num_beams is 1000000000"),
           beam("a billion beams, known", beams=10**9, fixed=("num_beams",), refused="num_beams is 1000000000"),
           beam("more sequences than beams", returned=4, refused="num_return_sequences is 4"),
           beam("no sequences", returned=0, refused="num_return_sequences is 0"),
           beam("max_length of the prompt's length", most=4, refused="the prompt has 4 tokens already"),
           beam("beams told in floats", inputs={"num_beams": data(3.0, f32)}, refused="num_beams is no tensor of int32"),
           beam("features for no Whisper", inputs={"input_ids": data(np.zeros((1, 2, 3)), f32)}, refused="input_ids is no tensor of int32"),
           beam("another kind of model", model_type=3, refused="model_type 3"),
           beam("an encoder without use", encoder=decoder(), refused="attribute encoder"),
           beam("tokens for a Whisper", inputs={"decoder_input_ids": [[3], [4]]}, refused="decoder_input_ids"),
           beam("a processor for a Whisper", inputs={"logits_processor": 1}, refused="logits_processor 1"), **SHARED),
]

T5_CASES = [
    *table("BeamSearch",
           *[t5(f"T5 {seed}, {beams} beams, {'the encoder starts' if starts else 'the decoder starts'}", seed=seed, starts=starts, beams=beams, returned=beams, batch=batch)
             for seed, beams, batch in ((0, 1, 1), (1, 2, 3), (2, 4, 2), (3, 3, 1)) for starts in (False, True)],
           t5("T5, the decoder reads the encoder's result", starts=True, hidden=True),
           t5("T5, stopping early", seed=1, early_stopping=1, most=30, batch=3),
           t5("T5, scores of each token", outputs=(0, 1, 2), eos_token_id=-1, most=8),
           t5("T5, two tokens", most=3),
           t5("T5, a prompt longer than max_length", most=4),
           t5("T5, a mask of the prompt", batch=3, inputs={"attention_mask": [[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 1]]}),
           t5("T5, padding behind", batch=2, inputs={"input_ids": [[3, 4, 5, 6], [7, 8, PAD, PAD]]}),
           t5("T5, everything", most=24, seed=1, batch=3, no_repeat_ngram_size=2,
              inputs={"min_length": 9, "repetition_penalty": 1.2, "length_penalty": 0.7, "vocab_mask": mask_of(4), "prefix_vocab_mask": mask_of(2, 3, rows=3)}), **SCORES),
    *table("BeamSearch",
           t5("T5 without an encoder", encoder=None, refused="attribute encoder is missing"),
           t5("T5 without a first token", decoder_start_token_id=None, refused="decoder_start_token_id"),
           t5("T5 and a first decoder", init_decoder=decoder(), refused="attribute init_decoder"),
           t5("T5, max_length of the first token alone", most=1, refused="the prompt has 1 tokens already"),
           t5("T5, an encoder of fewer layers", encoder=t5_encoder(layers=1), refused="encoder has 2 outputs where 4 are needed"),
           t5("T5, a decoder of sequences", decoder=t5_decoder(tokens="tokens"), refused='"input_ids" is not declared as [batch, 1]'),
           t5("T5, caches of unknown size", decoder=t5_decoder(size="size"), refused='"past_key_self_0" of decoder is not declared'),
           t5("T5, a result of the encoder that it does not give", hidden=True, refused="encoder_hidden_states"), **SHARED),
]

WHISPER_CASES = [
    *table("BeamSearch",
           *[whisper(f"Whisper {seed}, {beams} beams, a batch of {batch}", seed=seed, beams=beams, returned=beams, batch=batch)
             for seed, beams, batch in ((0, 1, 1), (1, 2, 3), (2, 4, 2), (3, 3, 1))],
           whisper("Whisper, one token given", tokens=[[2], [3]]),
           whisper("Whisper, no tokens given", tokens=None),
           whisper("Whisper, an encoder's result declared", decoder=whisper_decoder(hidden=True)),
           whisper("Whisper, stopping early", seed=1, early_stopping=1, most=30, batch=3),
           whisper("Whisper, scores of each token", outputs=(0, 1, 2), eos_token_id=-1, most=9),
           whisper("Whisper, tokens that are padding", tokens=[[PAD, 2, 5], [2, PAD, 5]]),
           whisper("Whisper, a decoder of one layer", decoder=whisper_decoder(layers=1), encoder=whisper_encoder(layers=1)),
           whisper("Whisper, everything", most=24, seed=1, batch=3, no_repeat_ngram_size=2,
                   inputs={"min_length": 9, "repetition_penalty": 1.2, "length_penalty": 0.7, "vocab_mask": mask_of(4), "prefix_vocab_mask": mask_of(2, 3, rows=3)}), **SCORES),
    *table("BeamSearch",
           whisper("Whisper without an encoder", encoder=None, refused="attribute encoder is missing, which model_type 2 needs"),
           whisper("Whisper without a first token", tokens=None, decoder_start_token_id=None, refused="decoder_start_token_id"),
           whisper("Whisper and tokens alone", inputs={"input_ids": [[3, 4]]}, refused="input_ids is no tensor of floats"),
           whisper("Whisper and a mask", inputs={"attention_mask": [[1, 1], [1, 1]]}, refused="attention_mask beside the features"),
           whisper("Whisper, tokens of another batch", tokens=[[2, 5]], refused="decoder_input_ids has 1 sequences"),
           whisper("Whisper, max_length of the tokens", most=3, refused="the prompt has 3 tokens already"),
           whisper("Whisper, no token", inputs={"decoder_input_ids": np.zeros((2, 0), np.int32)}, refused="decoder_input_ids has no token"),
           whisper("Whisper, features of another type", encoder=whisper_encoder(features=T.FLOAT16), refused='"encoder_input_ids" of encoder is not declared'),
           whisper("Whisper, T5's encoder", encoder=t5_encoder(starts=True), refused='input 1 of encoder is called "encoder_attention_mask"'),
           whisper("Whisper, T5's decoder", decoder=whisper_decoder(masked=True), refused="decoder with 10 inputs for 5 outputs where 9 are needed"),
           whisper("Whisper, the rules of time stamps", inputs={"logits_processor": 1}, refused="logits_processor 1"),
           whisper("Whisper, its cross attention", outputs=(0, 1, 2, 3), refused="output 3"), **SHARED),
]

HALF_CASES = [
    *table("GreedySearch",
           *[halved(greedy(f"float16, weights {seed}", batch=1 + seed % 3, seed_of_weights=seed)) for seed in (0, 1, 3)],
           halved(greedy("float16, another decoder for the prompt", init_decoder=decoder(seed=9))),
           halved(greedy("float16, logits of float32", batch=3), logits=T.FLOAT),
           halved(greedy("float16, everything", most=24, batch=3, no_repeat_ngram_size=2,
                         inputs={"min_length": 9, "repetition_penalty": 1.2, "vocab_mask": mask_of(4), "prefix_vocab_mask": mask_of(2, 3, rows=3),
                                 "attention_mask": [[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 1]]})), **NARROW),
    *table("Sampling",
           *[halved(greedy(f"float16, weights {seed}, top_p 0.5", batch=2, seed_of_weights=seed, top_p=0.5, inputs={"seed": seed + 5})) for seed in range(2)], **NARROW),
    *table("BeamSearch",
           *[halved(beam(f"float16, weights {seed}, {beams} beams", batch=batch, beams=beams, returned=beams, seed_of_weights=seed))
             for seed, beams, batch in ((0, 2, 3), (1, 3, 2), (2, 4, 1))],
           halved(beam("float16, logits of float32"), logits=T.FLOAT),
           halved(t5("float16, T5, the decoder starts", batch=2, seed=1)),
           halved(t5("float16, T5, the encoder starts", batch=2, seed=1, starts=True)),
           halved(whisper("float16, Whisper", batch=2, seed=1)), half=16, **NARROW),
]

CASES = [*T5_CASES, *WHISPER_CASES, *GREEDY_CASES, *SAMPLING_CASES, *BEAM_CASES, *HALF_CASES]
