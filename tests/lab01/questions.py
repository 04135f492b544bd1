"""Lab 01: questions of an interview with figures that can be done on paper."""

from types_lab01 import ModelConfig

from grader.suite.questions import Ask, CaseAsk, CaseVerdict, Knob, question

SHAPES = {
    "a Llama-3-8B": (32, 4096, 32, 8, 128, 14_336, 128_256),
    "a Llama-3-70B": (80, 8192, 64, 8, 128, 28_672, 128_256),
    "a Mistral-7B-v0.3": (32, 4096, 32, 8, 128, 14_336, 32_768),  # v0.1 has a window of 4,096
    "a Qwen2.5-32B": (64, 5120, 40, 8, 128, 27_648, 152_064),
    "a Llama-2-7B": (32, 4096, 32, 32, 128, 11_008, 32_000),
    "a Llama-2-13B": (40, 5120, 40, 40, 128, 13_824, 32_000),
}


def _model(rng):
    name = rng.choice(sorted(SHAPES))
    layers, hidden, heads, kv, width, ffn, vocab = SHAPES[name]
    return name, ModelConfig("llama", vocab, hidden, layers, heads, kv, width, ffn)


def _kv_sentence(name, config):
    return (
        f"{name[0].upper()}{name[1:]} has {config.num_hidden_layers} layers, "
        f"{config.num_attention_heads} query heads and {config.num_key_value_heads} key/value "
        f"heads of {config.head_dim}"
    )


@question("kv_of_a_token", task="kv_bytes_per_token", unit="bytes", section="Line by line")
def kv_of_a_token(rng):
    """Two caches, layers, key/value heads, width of a head, bytes: multiply from left to right."""
    name, config = _model(rng)
    size, dtype = rng.choice([(2, "bf16"), (1, "fp8")])
    L, kv, D = config.num_hidden_layers, config.num_key_value_heads, config.head_dim
    return Ask(
        f"{_kv_sentence(name, config)}. Its cache is in {dtype}. How many bytes does one more "
        "token add to it?",
        lambda code: code.kv_bytes_per_token(config, size),
        working=[
            "K and V, in each layer, of each key/value head:",
            f"2 x {L} x {kv} x {D} x {size} = {2 * L * kv * D * size:,} bytes",
        ],
        check=2 * L * kv * D * size,
    )


@question("kv_of_a_deployment", task=("kv_cache_bytes", "kv_bytes_per_token"), unit="bytes")
def kv_of_a_deployment(rng):
    """Bytes of a token first, then tokens of all sequences."""
    name, config = _model(rng)
    batch, seq = rng.choice([8, 16, 32, 64]), rng.choice([2048, 4096, 8192])
    L, kv, D = config.num_hidden_layers, config.num_key_value_heads, config.head_dim
    token = 2 * L * kv * D * 2
    return Ask(
        f"{_kv_sentence(name, config)}. {batch} sequences of {seq:,} tokens are in its bf16 cache. "
        "How large is the cache?",
        lambda code: code.kv_cache_bytes(config, batch, seq),
        working=[
            f"a token: 2 x {L} x {kv} x {D} x 2 bytes = {token:,} bytes",
            f"tokens: {batch} x {seq:,} = {batch * seq:,}",
            f"{token:,} x {batch * seq:,} = {token * batch * seq:,} bytes, "
            f"{token * batch * seq / 2**30:g} GiB",
        ],
        check=token * batch * seq,
    )


@question("kv_with_windows", task="kv_cache_bytes", unit="bytes", minutes=1.5)
def kv_with_windows(rng):
    """A layer with a window stops growing; the others do not."""
    layers = rng.choice([24, 32, 48])
    window, seq = rng.choice([(1024, 8192), (4096, 16_384), (512, 4096)])
    config = ModelConfig(
        "gemma", 32_000, 4096, layers, 16, 8, 128, 14_336,
        sliding_window=window, layer_types=("sliding_attention", "full_attention") * (layers // 2),
    )  # fmt: skip
    long = sum(config.window(layer) is None for layer in range(layers))
    short = layers - long
    one = 2 * 8 * 128 * 2
    return Ask(
        f"A model has {layers} layers with 8 key/value heads of 128, in bf16. In {short} of them a "
        f"token sees the last {window:,} tokens only. How many bytes of cache does one sequence of "
        f"{seq:,} tokens need?",
        lambda code: code.kv_cache_bytes(config, 1, seq),
        working=[
            f"a token in one layer: 2 x 8 x 128 x 2 bytes = {one:,} bytes",
            f"{long} layers keep {seq:,} tokens, {short} keep {window:,}: "
            f"{long * seq + short * window:,} in all",
            f"{one:,} x {long * seq + short * window:,} = "
            f"{one * (long * seq + short * window):,} bytes",
        ],
        check=one * (long * seq + short * window),
    )


RECIPES = {
    "fp32": ("everything in float32, with Adam", (4, 4, 8)),
    "bf16_mixed": (
        "bf16 weights and gradients, and an Adam with a float32 master copy and float32 moments",
        (2, 2, 12),
    ),
    "bf16_fp32grads": (
        "bf16 weights, gradients kept in float32 (Megatron-LM), and an Adam with a float32 master "
        "copy and float32 moments",
        (2, 4, 12),
    ),
    "bf16_pure": ("torch.optim.AdamW on bf16 parameters, nothing kept in float32", (2, 2, 4)),
}


@question("states_of_training", task="training_state_bytes", unit="bytes", section="Read first")
def states_of_training(rng):
    """Weights, gradients, optimizer: bytes a parameter, then parameters."""
    recipe = rng.choice(sorted(RECIPES))
    said, (weights, gradients, optimizer) = RECIPES[recipe]
    billions = rng.choice([1, 3, 7, 8, 13, 30, 70])
    each = weights + gradients + optimizer
    return Ask(
        f"A model of {billions} billion parameters is trained with {said}. How many bytes do "
        "weights, gradients and optimizer states take, without activations?",
        lambda code: code.training_state_bytes(billions * 10**9, recipe).total,
        working=[
            f"weights {weights}, gradients {gradients}, optimizer {optimizer}: {each} bytes a "
            "parameter",
            f"{each} x {billions} billion = {each * billions} GB",
        ],
        check=each * billions * 10**9,
    )


@question("optimizer_of_training", task="training_state_bytes", unit="bytes")
def optimizer_of_training(rng):
    """The largest line of the ledger, and the first that is sharded."""
    billions = rng.choice([3, 7, 8, 13, 30, 70])
    return Ask(
        f"{billions} billion bf16 parameters are trained by an Adam that holds a float32 master "
        "copy of the weights and two float32 moments. How many bytes does the optimizer hold?",
        lambda code: code.training_state_bytes(billions * 10**9, "bf16_mixed").optimizer,
        working=[
            "master copy 4, first moment 4, second moment 4: 12 bytes a parameter",
            f"12 x {billions} billion = {12 * billions} GB",
        ],
        check=12 * billions * 10**9,
    )


@question("layer_of_attention", task="attention_params", minutes=1.5)
def layer_of_attention(rng):
    """Queries and output are as wide as all query heads, keys and values as all key/value heads."""
    hidden, heads, width = rng.choice([(4096, 32, 128), (2048, 16, 128), (1024, 16, 64)])
    kv = rng.choice([2, 4, 8])
    config = ModelConfig("llama", 32_000, hidden, 1, heads, kv, width, 4 * hidden)
    q, k = hidden * heads * width, hidden * kv * width
    return Ask(
        f"One attention layer: hidden size {hidden:,}, {heads} query heads and {kv} key/value "
        f"heads of {width}, no biases. How many parameters do its four matrices have?",
        lambda code: code.attention_params(config),
        working=[
            f"queries and output: 2 x {hidden:,} x {heads * width:,} = {2 * q:,}",
            f"keys and values: 2 x {hidden:,} x {kv * width:,} = {2 * k:,}",
            f"{2 * q:,} + {2 * k:,} = {2 * (q + k):,}",
        ],
        check=2 * (q + k),
    )


@question("layer_of_mlp", task="ffn_params")
def layer_of_mlp(rng):
    """A gated MLP has three matrices, a plain one two."""
    gated = rng.random() < 0.7
    hidden, ffn = rng.choice([(4096, 14_336), (4096, 11_008), (2048, 8192), (1024, 4096)])
    config = ModelConfig("llama", 32_000, hidden, 1, 16, 16, 64, ffn, gated_mlp=gated)
    count, kind = (3, "gated (SwiGLU)") if gated else (2, "plain (GELU)")
    return Ask(
        f"A {kind} MLP has hidden size {hidden:,} and inner width {ffn:,}, no biases. How many "
        "parameters does it have?",
        lambda code: code.ffn_params(config),
        working=[
            "gate, up and down: three matrices" if gated else "up and down: two matrices",
            f"{count} x {hidden:,} x {ffn:,} = {count * hidden * ffn:,}",
        ],
        check=count * hidden * ffn,
    )


@question("experts_of_a_token", task="ffn_params", minutes=1.5)
def experts_of_a_token(rng):
    """All experts are held; a few are used."""
    experts, used = rng.choice([(8, 2), (64, 6), (128, 8)])
    hidden, width = rng.choice([(4096, 14_336), (2048, 1408), (4096, 1536)])
    active = rng.random() < 0.5
    config = ModelConfig(
        "mixtral", 32_000, hidden, 1, 32, 8, 128, width,
        num_experts=experts, num_experts_per_tok=used, moe_intermediate_size=width,
    )  # fmt: skip
    counted = used if active else experts
    total = counted * 3 * hidden * width + hidden * experts
    what = "does one token use" if active else "does the layer hold"
    return Ask(
        f"A layer has {experts} gated experts (SwiGLU) of hidden size {hidden:,} and inner width "
        f"{width:,}, and a router matrix; a token goes to {used} of them. How many parameters "
        f"{what}, router included?",
        lambda code: code.ffn_params(config, 0, active),
        working=[
            f"an expert: 3 x {hidden:,} x {width:,} = {3 * hidden * width:,}",
            f"the router, for every token: {hidden:,} x {experts} = {hidden * experts:,}",
            f"{counted} x {3 * hidden * width:,} + {hidden * experts:,} = {total:,}",
        ],
        check=total,
    )


@question("activations_of_a_layer", task="activation_bytes", unit="bytes", minutes=2)
def activations_of_a_layer(rng):
    """s b h (34 + 5 a s / h), and which of the two parts is the larger."""
    seq, hidden, heads = rng.choice([(2048, 4096, 32), (4096, 4096, 32), (2048, 12_288, 96)])
    config = ModelConfig("gpt2", 50_257, hidden, 1, heads, heads, hidden // heads, 4 * hidden)
    linear, square = 34 * seq * hidden, 5 * heads * seq * seq
    return Ask(
        f"One GPT layer in 16-bit: hidden size {hidden:,}, {heads} heads, one sequence of {seq:,} "
        "tokens, dropout, scores kept in full. How many bytes does autograd keep for its backward?",
        lambda code: code.activation_bytes(config, 1, seq),
        working=[
            f"34 s b h = 34 x {seq:,} x {hidden:,} = {linear:,}",
            f"5 a s^2 b = 5 x {heads} x {seq:,}^2 = {square:,}",
            f"{linear:,} + {square:,} = {linear + square:,} bytes",
        ],
        check=linear + square,
    )


@question("batch_that_fits", task="max_batch", minutes=2)
def batch_that_fits(rng):
    """What the weights leave, over the cache of one sequence."""
    name, config = rng.choice(list(_fitting()))
    seq = rng.choice([2048, 4096, 8192])
    gib = 80
    return Ask(
        f"{_kv_sentence(name, config)}; hidden size {config.hidden_size:,}, gated MLPs of "
        f"{config.intermediate_size:,}, {config.vocab_size:,} words, a head of its own. Weights "
        f"and cache are in bf16. A card has {gib} GiB for weights, cache and float32 logits of the "
        f"last position. How many sequences of {seq:,} tokens fit?",
        lambda code: code.max_batch(config, gib * 2**30, seq),
        working=(found := _batch_working(config, seq, gib))[0],
        check=found[1],
        within=0.03,
    )


def _fitting():
    for name in ("a Llama-3-8B", "a Mistral-7B-v0.3", "a Llama-2-7B"):
        layers, hidden, heads, kv, width, ffn, vocab = SHAPES[name]
        yield name, ModelConfig("llama", vocab, hidden, layers, heads, kv, width, ffn)


def _batch_working(config, seq, gib):
    L, h, kv, D = (
        config.num_hidden_layers,
        config.hidden_size,
        config.num_key_value_heads,
        config.head_dim,
    )
    layer = 2 * h * (config.num_attention_heads + kv) * D + 3 * h * config.intermediate_size
    params = L * (layer + 2 * h) + 2 * config.vocab_size * h + h
    one = 2 * L * kv * D * 2 * seq + 4 * config.vocab_size
    fits = (gib * 2**30 - 2 * params) // one
    return (
        [
            f"weights: {params / 1e9:.3f} billion x 2 bytes = {2 * params / 2**30:.2f} GiB",
            f"a sequence: {2 * L * kv * D * 2:,} bytes a token x {seq:,} + 4 x "
            f"{config.vocab_size:,} bytes of logits = {one / 2**30:.5f} GiB",
            f"({gib} - {2 * params / 2**30:.2f}) / {one / 2**30:.5f}, rounded down: {fits}",
        ],
        fits,
    )


# -- designs ---------------------------------------------------------------------------------------


@question("users_of_a_card", task="kv_cache_bytes", minutes=4, kind="case")
def users_of_a_card(rng):
    """Weights first; what is left, by the bytes of one user's cache."""
    name, config = _model(rng)
    while name in ("a Llama-3-70B", "a Qwen2.5-32B"):
        name, config = _model(rng)
    context, card = rng.choice([4096, 8192, 16_384]), rng.choice([48, 80])
    room = card * 10**9
    batches = (1, 2, 4, 8, 16, 32, 64, 128, 256)

    def held(code, values):
        weights = 2 * code.total_params(config)
        cache = code.kv_cache_bytes(config, values["users"], context, values["cache_bytes"])
        return weights, cache

    def judge(code, values):
        weights, cache = held(code, values)
        fits = weights + cache <= room
        twice = 2 * values["users"]
        larger = [
            width
            for width in (2, 1)
            if twice in batches and sum(held(code, {"users": twice, "cache_bytes": width})) <= room
        ]
        wide = {**values, "cache_bytes": 2}
        needless = values["cache_bytes"] == 1 and fits and sum(held(code, wide)) <= room
        lines = [
            f"weights {weights / 1e9:.1f} GB, cache {cache / 1e9:.1f} GB, together "
            f"{(weights + cache) / 1e9:.1f} of {card} GB: it {'fits' if fits else 'does not fit'}."
        ]
        if larger:
            width = f"{larger[0]} byte{'s' * (larger[0] > 1)}"
            lines.append(f"Twice as many users fit with {width} a number.")
        if needless:
            lines.append("So many users would fit with 2 bytes a number, too.")
        return CaseVerdict(0.0 if not fits else 0.5 if larger or needless else 1.0, lines)

    def weights_of():
        hidden, ffn, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
        heads = config.num_attention_heads + config.num_key_value_heads
        layer = 2 * hidden * config.head_dim * heads + 3 * hidden * ffn + 2 * hidden
        return 2 * (layers * layer + 2 * config.vocab_size * hidden + hidden)

    def most(size):
        token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * size
        return max((b for b in batches if weights_of() + token * context * b <= room), default=0)

    return CaseAsk(
        f"{_kv_sentence(name, config)}. It is served in bf16 on a card of {card} GB (10^9 bytes), "
        f"each user with a context of {context:,} tokens; what else the card holds is left out. "
        "Choose the bytes of a number in the cache and how many users run at once: as many as fit, "
        "and 1 byte only where 2 would not do for so many.",
        knobs=[
            Knob("cache_bytes", (1, 2), "bytes of a number in the cache"),
            Knob("users", batches, "at once"),
        ],
        judge=judge,
        good=lambda _: (
            {"cache_bytes": 1, "users": most(1)}
            if most(1) > most(2)
            else {"cache_bytes": 2, "users": most(2)}
        ),
        poor={"cache_bytes": 2, "users": 256},
    )


@question("ranks_for_training", task="training_state_bytes", minutes=4, kind="case")
def ranks_for_training(rng):
    """States by the recipe, divided by the ranks; activations are not."""
    billions, recipe = rng.choice([7, 13, 30, 70]), rng.choice(["bf16_mixed", "bf16_fp32grads"])
    activations = rng.choice([10, 20, 30])
    ranks = (1, 2, 4, 8, 16, 32, 64, 128)
    said = RECIPES[recipe][0]

    def judge(code, values):
        states = code.training_state_bytes(billions * 10**9, recipe).total
        each = states / values["ranks"] + activations * 1e9
        half = 2 * states / values["ranks"] + activations * 1e9
        lines = [
            f"states {states / 1e9:,.0f} GB / {values['ranks']} + {activations} GB = "
            f"{each / 1e9:,.1f} GB a rank."
        ]
        if each > 80e9:
            return CaseVerdict(0.0, [*lines, "That is more than 80 GB."])
        if values["ranks"] > 1 and half <= 80e9:
            return CaseVerdict(0.5, [*lines, "Half as many ranks would do."])
        return CaseVerdict(1.0, lines)

    whole = sum(RECIPES[recipe][1]) * billions
    return CaseAsk(
        f"A model of {billions} billion parameters is trained with {said}, everything sharded "
        f"(FSDP). Activations take {activations} GB a rank, whatever the number of ranks. How many "
        "cards of 80 GB (10^9 bytes) does it take at least?",
        knobs=[Knob("ranks", ranks, "cards, each a rank of FSDP")],
        judge=judge,
        good=lambda _: {"ranks": next(n for n in ranks if whole / n + activations <= 80)},
        poor={"ranks": 1},
    )
