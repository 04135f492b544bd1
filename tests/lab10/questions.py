"""Lab 10: questions of an interview with figures that can be done on paper."""

from types_lab10 import CostModel, Model, Output, SchedulerConfig, Slo
from workload_lab10 import AZURE_CONVERSATION, PROBLEM, azure

from grader.suite.questions import Ask, CaseAsk, CaseVerdict, Knob, question

GIB = 2**30
# name: FLOP/s in dense bf16 and bytes/s, of NVIDIA's data sheets
GPUS = {
    "an A100 of 80 GB": (312e12, 2.04e12),
    "an H100": (989e12, 3.35e12),
    "an H200": (989e12, 4.8e12),
}
# name: weights in GB, layers, key/value heads, width of a head
MODELS = {
    "Llama-3-8B": (16, 32, 8, 128),
    "Qwen2.5-32B": (66, 64, 8, 128),
    "Llama-3-70B": (141, 80, 8, 128),
    "Mistral-7B-v0.3": (14, 32, 8, 128),
}


def _model(rng, names=tuple(MODELS)):
    name = rng.choice(names)
    gigabytes, layers, heads, width = MODELS[name]
    return name, gigabytes, Model(gigabytes * 10**9, layers, heads, width)


@question("bytes_of_a_block", task="capacity", unit="bytes", section="Line by line")
def bytes_of_a_block(rng):
    """A token's keys and values in every layer, times the tokens of a block, over the GPUs."""
    name, _, model = _model(rng)
    tp, dtype = rng.choice([1, 2, 4]), rng.choice([1, 2])
    token = 2 * model.num_hidden_layers * model.num_key_value_heads * model.head_dim * dtype
    kind = {1: "fp8", 2: "bf16"}[dtype]
    return Ask(
        f"{name}: {model.num_hidden_layers} layers, 8 key/value heads of 128, a cache in {kind}, "
        f"blocks of 16 tokens, tensor parallelism over {tp} GPU{'s' * (tp > 1)}. How many bytes "
        "does one block take on one GPU?",
        lambda code: code.capacity(model, 400 * GIB, 8192, 0.9, tp, dtype).kv_bytes_per_block,
        working=[
            f"a token: 2 x {model.num_hidden_layers} x 8 x 128 x {dtype} = {token:,} bytes",
            f"16 tokens{f', on each of {tp} GPUs' * (tp > 1)}: "
            f"16 x {token:,}{f' / {tp}' * (tp > 1)} = {16 * token // tp:,} bytes",
        ],
        check=16 * token // tp,
    )


@question("blocks_of_a_card", task="capacity", minutes=2, section="Read first")
def blocks_of_a_card(rng):
    """The engine's part of the card, minus weights and the rest, over the bytes of a block."""
    name, gigabytes, model = _model(rng, ("Llama-3-8B", "Mistral-7B-v0.3"))
    card, part, rest = rng.choice([(80, 0.9, 4), (40, 0.9, 4), (80, 0.95, 6), (24, 0.9, 2)])
    block = 16 * 2 * model.num_hidden_layers * 8 * 128 * 2
    left = part * card * GIB - gigabytes * 10**9 - rest * GIB
    return Ask(
        f"{name} in bf16 has {gigabytes} GB of weights; a KV block of 16 tokens is {block:,} bytes "
        f"(2 MiB). On a card of {card} GiB gpu_memory_utilization is {part}; activations and the "
        f"rest take {rest} GiB. How many blocks are there?",
        lambda code: (
            code.capacity(model, card * GIB, 8192, part, other_bytes=rest * GIB).num_blocks
        ),
        working=[
            f"the engine's part: {part} x {card} GiB = {part * card:g} GiB",
            f"weights: {gigabytes} GB = {gigabytes * 10**9 / GIB:.2f} GiB",
            f"left: {part * card:g} - {gigabytes * 10**9 / GIB:.2f} - {rest} = "
            f"{left / GIB:.2f} GiB",
            f"over {block / 2**20:g} MiB, whole blocks: {int(left // block):,}",
        ],
        check=int(left // block),
        within=0.005,
    )


@question("requests_at_once", task="capacity", minutes=1.5)
def requests_at_once(rng):
    """Each request takes whole blocks; their ratio is not rounded down."""
    _, gigabytes, model = _model(rng, ("Llama-3-8B", "Mistral-7B-v0.3"))
    length = rng.choice([4000, 8192, 8200, 1000])
    block = 16 * 2 * model.num_hidden_layers * 8 * 128 * 2
    blocks = rng.choice([8000, 16_000, 24_000])
    card = blocks * block + gigabytes * 10**9
    each = -(-length // 16)
    return Ask(
        f"An engine has {blocks:,} blocks of 16 tokens. Which maximum concurrency does vLLM print "
        f"for requests of {length:,} tokens? Give two decimals.",
        lambda code: code.capacity(model, card, length, 1.0).max_concurrency,
        working=[
            f"a request: {length:,} / 16, in whole blocks: {each:,}",
            f"{blocks:,} / {each:,} = {blocks / each:.2f}",
        ],
        check=blocks / each,
        within=0.005,
    )


@question("tpot_of_a_request", task="metrics", unit="s")
def tpot_of_a_request(rng):
    """The first token is not one of the gaps."""
    tokens = rng.choice([11, 21, 51, 101, 201])
    gap, first = rng.choice([10, 20, 25, 40]), rng.choice([200, 300, 500])
    total = first + gap * (tokens - 1)
    out = Output(100, tokens, first / 1000, [gap / 1000] * (tokens - 1), total / 1000)
    return Ask(
        f"A request was answered after {total:,} ms with {tokens} tokens; the first came after "
        f"{first} ms. What is its TPOT?",
        lambda code: code.metrics([out], 10.0, Slo())["mean_tpot_ms"] / 1000,
        working=[
            f"after the first token: {total:,} - {first} = {total - first:,} ms",
            f"for {tokens} - 1 = {tokens - 1} tokens: {total - first:,} / {tokens - 1} = {gap} ms",
        ],
        check=gap / 1000,
        within=1e-9,
    )


@question("tpot_and_itl", task="metrics", unit="s", minutes=2, section="Line by line")
def tpot_and_itl(rng):
    """One value a request, or one value a gap."""
    a, b = rng.choice([(10, 20), (20, 40), (10, 30)])
    na, nb = rng.choice([(9, 2), (19, 1), (4, 1)])
    outs = [
        Output(10, na + 1, 0.1, [a / 1000] * na, 0.1 + na * a / 1000),
        Output(10, nb + 1, 0.1, [b / 1000] * nb, 0.1 + nb * b / 1000),
    ]
    which = rng.choice(["tpot", "itl"])
    said = "TPOT" if which == "tpot" else "ITL (inter-token latency)"
    mean = (a + b) / 2 if which == "tpot" else (na * a + nb * b) / (na + nb)
    steps = {
        "tpot": [f"one value a request: ({a} + {b}) / 2 = {mean:g} ms"],
        "itl": [
            f"one value a gap: ({na} x {a} + {nb} x {b}) / {na + nb} = "
            f"{na * a + nb * b} / {na + nb} = {mean:.4g} ms"
        ],
    }
    return Ask(
        f"Two requests: one has {na} gap{'s' * (na > 1)} of {a} ms between its tokens, the other "
        f"{nb} gap{'s' * (nb > 1)} of {b} ms. What is the mean {said}?",
        lambda code: code.metrics(outs, 10.0, Slo())[f"mean_{which}_ms"] / 1000,
        working=steps[which],
        check=mean / 1000,
        within=1e-6,
    )


@question("goodput", task="metrics", minutes=1.5)
def goodput(rng):
    """Requests a second that keep every part of the promise."""
    seconds, total = rng.choice([10, 20, 50]), rng.choice([40, 100, 200])
    late, slow = rng.choice([0.1, 0.2]), rng.choice([0.25, 0.3])
    late, slow = int(late * total), int(slow * total)
    outs = []
    for index in range(total):
        ttft = 2.0 if index < late else 0.5
        gap = 0.08 if late <= index < late + slow else 0.03
        outs.append(Output(10, 11, ttft, [gap] * 10, ttft + 10 * gap))
    good = total - late - slow
    return Ask(
        f"{total} requests end in a benchmark of {seconds} s. {late} of them break the limit of "
        f"TTFT alone and {slow} others that of TPOT alone. What is the goodput in requests a "
        "second?",
        lambda code: code.metrics(outs, float(seconds), Slo(ttft_ms=1000.0, tpot_ms=50.0))[
            "request_goodput"
        ],
        working=[
            f"those that keep both: {total} - {late} - {slow} = {good}",
            f"{good} / {seconds} = {good / seconds:g} a second",
        ],
        check=good / seconds,
        within=1e-9,
    )


@question("decode_step", task="simulate", unit="s", minutes=1.5, section="Read first")
def decode_step(rng):
    """Decode reads all weights and all contexts; compute hides behind that."""
    name, gigabytes, model = _model(rng, ("Llama-3-8B", "Qwen2.5-32B"))
    gpu = rng.choice(sorted(GPUS))
    peak, bandwidth = GPUS[gpu]
    batch, context = rng.choice([(1, 0), (8, 4096), (16, 2048)])
    token = 2 * model.num_hidden_layers * 8 * 128 * 2
    cost = CostModel(model.weight_bytes, model.weight_bytes, token, peak, bandwidth)
    read = model.weight_bytes + batch * context * token
    held = (
        f"{batch} requests with {context:,} tokens of context each ({token:,} bytes a token)"
        if context
        else "one request with next to no context"
    )
    return Ask(
        f"{name} has {gigabytes} GB of bf16 weights. {gpu[0].upper()}{gpu[1:]} reads "
        f"{bandwidth / 1e12:g} TB/s and computes {peak / 1e12:g} TFLOP/s. It decodes one token for "
        f"{held}. How long does the step take at least?",
        lambda code: code.step_seconds(cost, batch, batch * context),
        working=[
            f"read: {gigabytes} GB of weights"
            + (f" and {batch * context * token / 1e9:.2f} GB of cache" if context else ""),
            f"{read / 1e9:.2f} GB / {bandwidth / 1e12:g} TB/s = {read / bandwidth * 1e3:.2f} ms; "
            f"computing {batch} token{'s' * (batch > 1)} takes less",
        ],
        check=read / bandwidth,
        within=0.01,
    )


@question("prefill_step", task="simulate", unit="s", minutes=1.5, section="Read first")
def prefill_step(rng):
    """Two FLOPs a parameter and token; the weights are read once meanwhile."""
    name, gigabytes, model = _model(rng, ("Llama-3-8B", "Qwen2.5-32B", "Mistral-7B-v0.3"))
    tokens = rng.choice([2048, 4096, 8192])
    gpu = rng.choice(sorted(GPUS))
    peak, bandwidth = GPUS[gpu]
    cost = CostModel(model.weight_bytes, model.weight_bytes, 0.0, peak, bandwidth)
    flops = tokens * model.weight_bytes
    return Ask(
        f"A prompt of {tokens:,} tokens is prefilled in one step by {name} "
        f"({gigabytes // 2} billion parameters), attention's own FLOPs left out. "
        f"{gpu[0].upper()}{gpu[1:]} computes {peak / 1e12:g} TFLOP/s and reads "
        f"{bandwidth / 1e12:g} TB/s. How long does the step take at least?",
        lambda code: code.step_seconds(cost, tokens, 0),
        working=[
            f"2 x {gigabytes // 2} billion x {tokens:,} = {flops / 1e12:.3f} TFLOPs",
            f"{flops / 1e12:.3f} TFLOPs / {peak / 1e12:g} TFLOP/s = {flops / peak * 1e3:.1f} ms; "
            "reading the weights takes less",
        ],
        check=flops / peak,
        within=0.01,
    )


@question("prefix_hit", task="match_prefix", minutes=1.5, section="Line by line")
def prefix_hit(rng):
    """Full blocks only, and the last token is computed in any case."""
    size = 16
    blocks = rng.choice([2, 3, 4, 8])
    more = rng.choice([0, 0, 5, 16])
    tokens = blocks * size + more
    found = (tokens - 1) // size
    return Ask(
        f"A prompt has {tokens} tokens, in blocks of {size}. An equal prompt was computed before "
        "and all its full blocks are still cached. How many tokens does the engine take from the "
        "cache?",
        lambda code: size * len(_matched(code, tokens, size)),
        working=[
            f"full blocks: {tokens} // {size} = {tokens // size}",
            f"the last token must be computed, so at most {tokens} - 1 = {tokens - 1} count: "
            f"{found} block{'s' * (found > 1)}",
            f"{found} x {size} = {found * size} tokens",
        ],
        check=found * size,
    )


def _matched(code, tokens, size):
    pool = code.BlockPool(100)
    hashes = code.block_hashes(list(range(tokens)), size)
    for hash, block in zip(hashes, pool.alloc(len(hashes)), strict=True):
        pool.cache(block, hash)
    return code.match_prefix(pool, hashes, tokens, size)


@question("tokens_of_a_first_step", task="Scheduler", minutes=2, section="Line by line")
def tokens_of_a_first_step(rng):
    """One budget of tokens, in the order of arrival; the last one gets a chunk."""
    budget = rng.choice([512, 1024, 2048])
    prompts = [rng.choice([200, 300, 400, 700]) for _ in range(rng.choice([3, 4]))]
    cfg = SchedulerConfig(10_000, 16, budget, 64)
    left, shares = budget, []
    for prompt in prompts:
        shares.append(min(prompt, left))
        left -= shares[-1]
    which = rng.randrange(1, len(prompts))
    return Ask(
        f"{len(prompts)} requests wait, in this order, with prompts of "
        f"{', '.join(map(str, prompts))} tokens; memory does not limit them. "
        f"max_num_batched_tokens is {budget:,}, chunked prefill is on. How many tokens of the "
        f"{('second', 'third', 'fourth')[which - 1]} request does the first step compute?",
        lambda code: _first_step(code, cfg, prompts).get(which, 0),
        working=[
            f"before it: {' + '.join(map(str, shares[:which]))} = {sum(shares[:which])} of "
            f"{budget:,}",
            f"left: {budget - sum(shares[:which])}; its prompt has {prompts[which]}: "
            f"{shares[which]}",
        ],
        check=shares[which],
    )


def _first_step(code, cfg, prompts):
    scheduler = code.Scheduler(cfg)
    for index, prompt in enumerate(prompts):
        scheduler.add(code.Req(index, 0.0, prompt, 4))
    return scheduler.step().scheduled


# -- designs ---------------------------------------------------------------------------------------


@question("config_for_a_chat", task="simulate", minutes=6, kind="case")
def config_for_a_chat(rng):
    """Which limit binds? Tokens a step say how long a step lasts, seats and blocks how many run."""
    seed, speed = rng.randrange(100), rng.choice([1.0, 1.3, 1.6])
    ttft, tpot = rng.choice([(1000, 40), (500, 40), (2000, 30)])
    trace = azure(AZURE_CONVERSATION, 120, seed, speed)
    problem, slo = PROBLEM, Slo(ttft_ms=float(ttft), tpot_ms=float(tpot))
    budgets, seats = (256, 512, 1024, 2048, 8192), (16, 32, 64, 128, 256)
    every = [{"max_num_batched_tokens": b, "max_num_seqs": s} for b in budgets for s in seats]

    def served(code, budget, seqs):
        room = code.capacity(
            problem.model,
            problem.gpu_bytes,
            32_768,
            0.92,
            activation_bytes=problem.activation_bytes(budget, seqs),
            other_bytes=problem.other_bytes,
        )
        config = SchedulerConfig(room.num_blocks, 16, budget, seqs)
        results = code.simulate(trace, config, problem.cost)
        return code.metrics(*code.as_outputs(trace, results), slo)

    def judge(code, values):
        mine = served(code, values["max_num_batched_tokens"], values["max_num_seqs"])
        best = max(served(code, *each.values())["request_goodput"] for each in every)
        share = mine["request_goodput"] / best if best else 1.0
        lines = [
            f"goodput {mine['request_goodput']:.2f} requests a second of "
            f"{mine['request_throughput']:.2f}; the best of all choices has {best:.2f}.",
            f"TTFT mean {mine['mean_ttft_ms']:,.0f} ms, p99 {mine['p99_ttft_ms']:,.0f} ms; TPOT "
            f"mean {mine['mean_tpot_ms']:.1f} ms, p99 {mine['p99_tpot_ms']:.1f} ms.",
        ]
        return CaseVerdict(1.0 if share >= 0.95 else 0.5 if share >= 0.8 else 0.0, lines)

    return CaseAsk(
        f"{problem.name} on one H100; {len(trace)} requests of a chat (prompts of about 1,000 "
        f"tokens, answers of about 130), {len(trace) / trace[-1].t_arrival_s:.1f} a second. Users "
        f"were promised a TTFT of {ttft:,} ms and a TPOT of {tpot} ms. Choose the configuration "
        "with the highest goodput; within 5 % of the best is right.",
        knobs=[
            Knob("max_num_batched_tokens", budgets, "tokens a step"),
            Knob("max_num_seqs", seats, "requests that run at once"),
        ],
        judge=judge,
        good=lambda code: max(
            every,
            key=lambda values: served(code, *values.values())["request_goodput"],
        ),
        poor={"max_num_batched_tokens": 8192, "max_num_seqs": 16},
    )


@question("gpus_for_a_context", task="capacity", minutes=4, kind="case")
def gpus_for_a_context(rng):
    """Weights and key/value heads are split over the GPUs; what is left of each holds blocks."""
    name, gigabytes, model = _model(rng)
    length, wanted = rng.choice([8192, 16_384, 32_768]), rng.choice([4, 8, 16, 32])
    sizes = (1, 2, 4, 8)

    def room(code, values):
        found = code.capacity(
            model, 80 * GIB, length, 0.9, values["tensor_parallel_size"], values["kv_dtype_bytes"],
            other_bytes=4 * GIB,
        )  # fmt: skip
        return found.max_concurrency

    def judge(code, values):
        found = room(code, values)
        size = values["tensor_parallel_size"]
        gpus = f"{size} GPU{'s' * (size > 1)}"
        lines = [f"{found:.1f} requests of {length:,} tokens at once on {gpus}."]
        if found < wanted:
            return CaseVerdict(0.0, [*lines, f"That is fewer than {wanted}."])
        fewer = size > 1 and any(
            room(code, {"tensor_parallel_size": size // 2, "kv_dtype_bytes": width}) >= wanted
            for width in (1, 2)
        )
        wide = {"tensor_parallel_size": size, "kv_dtype_bytes": 2}
        if fewer:
            return CaseVerdict(0.5, [*lines, "Half as many GPUs would do, with one width or both."])
        if values["kv_dtype_bytes"] == 1 and room(code, wide) >= wanted:
            return CaseVerdict(0.5, [*lines, "A cache of 2 bytes would do on as many."])
        return CaseVerdict(1.0, lines)

    def concurrency(size, width):
        left = (0.9 * 80 - 4) * GIB - gigabytes * 10**9 / size
        block = 16 * 2 * model.num_hidden_layers * max(1, 8 // size) * 128 * width
        return max(0, left // block) / -(-length // 16)

    plans = [(size, width) for size in sizes for width in (2, 1)]
    size, width = next((each for each in plans if concurrency(*each) >= wanted), (8, 1))
    return CaseAsk(
        f"{name} ({gigabytes} GB of weights, {model.num_hidden_layers} layers, 8 key/value heads "
        f"of 128) is to run at least {wanted} requests of {length:,} tokens at once, on GPUs of 80 "
        "GiB of which the engine may use 0.9, with 4 GiB a GPU for the rest. Choose the fewest "
        "GPUs, and a cache of 1 byte a number only where 2 will not do on them.",
        knobs=[
            Knob("tensor_parallel_size", sizes, "GPUs"),
            Knob("kv_dtype_bytes", (1, 2), "bytes of a number in the cache"),
        ],
        judge=judge,
        good=lambda _: {"tensor_parallel_size": size, "kv_dtype_bytes": width},
        poor={"tensor_parallel_size": 8, "kv_dtype_bytes": 1}
        if (size, width) != (8, 1)
        else {"tensor_parallel_size": 1, "kv_dtype_bytes": 2},
    )
