"""The figures of lab 10's page, each computed with the reference or in closed form.

What takes seconds to simulate stands in `page_runs.json`; one of those runs is made again here.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path

from grader.author.page_claims import assumed, claim, fact, figures, measured, published, table
from grader.author.page_facts import FACTS
from grader.author.page_figures import UNITS, plain

from .make_page_runs import SHOWN, key, run

GIB = 2**30
HERE = Path(__file__).parent
PUBLISHED = {
    row["id"]: row
    for row in json.loads((HERE / "published.json").read_text(encoding="utf-8"))
}
# Layers, key/value heads, width of a head.
SHAPES = {
    "OPT-13B": (40, 40, 128),
    "Llama-2-7B": (32, 32, 128),
    "Llama-2-13B": (40, 40, 128),
    "Llama-3-8B": (32, 8, 128),
    "Llama-3-70B": (80, 8, 128),
    "Qwen2.5-72B": (80, 8, 128),
    "Llama-3.1-405B": (126, 8, 128),
    "GPT-2 XL": (48, 25, 64),
    "Qwen3-235B": (94, 4, 128),
}
LLAMA = int(FACTS["Llama-3-8B parameters"].value)
MOONCAKE = "Mooncake's conversation trace, an LRU and full blocks counted over the whole file"
AZURE = "AzureLLMInferenceTrace_conv.csv, counted over the whole file"


def token_bytes(code, name, **options):
    layers, heads, width = SHAPES[name]
    model = code.Model(0, layers, heads, width)
    return code.capacity(model, GIB, 1, block_size=1, **options).kv_bytes_per_block


def of_fact(name):
    row = FACTS[name]
    return row.value * float(UNITS[row.unit][1])


@functools.cache
def runs():
    return json.loads((HERE / "page_runs.json").read_text(encoding="utf-8"))


def shown(code, config, speed=1.0):
    return runs()[key(config, speed)]


@table("configurations")
def configurations(code):
    again = SHOWN[4]
    if run(code, again) != shown(code, again):
        raise ValueError("page_runs.json is stale: python tests/lab10/make_page_runs.py")
    yield (
        "utilization", "tokens a step", "requests", "blocks", "preemptions", "throughput/s",
        "goodput/s", "mean TTFT ms", "mean TPOT ms", "p99 ITL ms",
    )  # fmt: skip
    for config in SHOWN:
        row = shown(code, config)
        utilization, budget, seqs = config
        yield (
            f"{utilization:g}", plain(budget), plain(seqs), plain(row["num_blocks"]),
            plain(row["preemptions"]), plain(row["request_throughput"], 2),
            plain(row["request_goodput"], 2), plain(row["mean_ttft_ms"]),
            plain(row["mean_tpot_ms"], 1), plain(row["p99_itl_ms"]),
        )  # fmt: skip


@table("bytes-a-token")
def bytes_a_token(code):
    yield "model", "bytes a token", ""
    said = {
        "OPT-13B": '"800 KB" in the PagedAttention paper: KiB',
        "Llama-3-8B": "8 of 32 heads have keys and values",
        "Qwen2.5-72B": "",
        "Llama-3.1-405B": "",
    }
    for name, text in said.items():
        yield name, plain(token_bytes(code, name)), text
    latent = 61 * (512 + 64) * 2
    yield "DeepSeek-V3", plain(latent), "one latent vector of 512 + 64 a layer, no factor 2"


# Llama-3.2-3B's shape, as benchmarks/gpu/model.py has it: the head sees one token a request.
LAYERS = 28 * (2 * 3072 * (24 + 8) * 128 + 3 * 3072 * 8192)
SHAPE_3B = LAYERS + 128_256 * 3072
STEPS = (  # what, tokens, tokens of context, and its row in the results: chunk, before, decodes
    ("1 request decodes, 1,024 tokens of context", 1, 1024, ("", "", "1", "1,024")),
    ("32 requests", 32, 32 * 1024, ("", "", "32", "1,024")),
    ("256 requests", 256, 256 * 1024, ("", "", "256", "1,024")),
    ("a prompt of 2,048 tokens", 2048, 2048, ("2,048", "", "", "")),
    ("a prompt of 8,192 tokens", 8192, 8192, ("8,192", "", "", "")),
    ("a chunk of 512, and 64 requests decode", 576, 64 * 1024 + 512, ("512", "", "64", "1,024")),
)
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "gpu-serving.md"


def results():
    """Of each measured step its milliseconds on an H100, and how many times the clock's."""
    text = RESULTS.read_text(encoding="utf-8").partition("NVIDIA H100")[2]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return {
        tuple(row[:4]): (float(row[5].split()[0]), float(row[6]))
        for row in rows
        if len(row) == 8 and row[6][:1].isdigit()
    }


@figures
def the_clock(code):
    cache = 2 * 28 * 8 * 128 * 2
    cost = code.CostModel(2 * SHAPE_3B, 2 * LAYERS, cache, 989e12, of_fact("H100 bandwidth"))
    source = "benchmarks/results/gpu-serving.md, H100"
    for what, tokens, context, row in STEPS:
        where = f"| {what} |"
        milliseconds, factor = results()[row]
        yield claim(code.step_seconds(cost, tokens, context), "s", "step_seconds", where=where)
        yield measured(milliseconds, "ms", source, where=where)
        yield measured(factor, "", source, where=where)
        for part in (1024, 2048, 8192):
            if f"{part:,} tokens" in what:
                yield assumed(part, "tokens", "the step that is measured", where=where)
    after = "With an overhead of"
    decode, _ = results()[STEPS[0][3]]
    more = decode / 1000 - code.step_seconds(cost, 1, 1024)
    yield claim(more, "s", "what one decode has more", where=after)
    yield assumed(8192, "tokens", "the prompt that is measured", where=after)


@figures
def two_workloads(code):
    where = "A request is two workloads"
    moved = of_fact("H100 bandwidth")
    yield claim(2 * LLAMA, "bytes", "Llama-3-8B in bf16", where=where)
    yield fact("H100 bandwidth", where=where)
    yield fact("H100 bf16 dense", where=where)
    cost = code.CostModel(2 * LLAMA, 2 * LLAMA, 0, of_fact("H100 bf16 dense"), moved)
    yield claim(code.step_seconds(cost, 1, 0), "s", "reading the weights once", where=where)
    ridge = math.floor(code.step_seconds(cost, 1, 0) * cost.peak_flops / cost.flops_per_token)
    yield claim(ridge, "tokens", "tokens computed in that time", where=where)
    chunks = "In chunks of 512"
    yield claim(ridge, "tokens", "tokens computed in that time", where=chunks)
    yield claim(code.PROBLEM.cost.overhead_s, "s", "the overhead of a step", where=chunks)
    alone = "Alone on a GPU a token of Llama-3-8B"
    yield claim(token_bytes(code, "GPT-2 XL"), "bytes", "GPT-2 XL's cache", where=alone)
    yield fact("A100 bandwidth", where=alone)
    yield assumed(80, "GB", "the name of the card", where=alone)
    yield claim(2 * LLAMA / of_fact("A100 bandwidth"), "s", "A100", where=alone)
    for card in ("H100", "H200"):
        milliseconds = 2000 * LLAMA / of_fact(f"{card} bandwidth")
        yield claim(milliseconds, "", f"ms on an {card}", where=alone)
        yield claim(of_fact(f"{card} bandwidth") / 1e12, "", f"TB/s of an {card}", where=alone)
    yield assumed(2, "FLOPs", "of a product and a sum", where="Attention's own FLOPs")


@figures
def what_is_kept(code):
    where = "**What a request keeps.**"
    yield claim(token_bytes(code, "Llama-3-8B"), "bytes", "Llama-3-8B", where=where)
    yield claim(token_bytes(code, "Qwen2.5-72B"), "", "bytes of Qwen2.5-72B", where=where)
    for share in (20.4, 38.2):
        yield published(share, "%", "PagedAttention, figure 2", where=where)
    yield published(16, "tokens", "vLLM 0.33.0: block_size of CUDA", where=where)
    shared = "**What is shared.**"
    yield measured(100 * 105_592 / 276_491, "%", MOONCAKE, where=shared)
    yield published(512, "tokens", "Mooncake's trace: tokens of a block", where=shared)
    memory = "**What the memory is for.**"
    unit = code.Model(16 * GIB, 1, 1, 1)
    room = code.capacity(unit, 80 * GIB, 1, 0.9, other_bytes=6 * GIB)
    blocks = room.num_blocks * room.kv_bytes_per_block
    yield assumed(80, "GiB", "the card of the example", where=memory)
    yield assumed(16, "GiB", "its weights", where=memory)
    yield claim(blocks, "bytes", "what remains for blocks", where=memory)
    yield published(8, "GiB", "vLLM issue #13882: an RTX 4060", where=memory)
    busy = "It means that the engine may hold"
    yield assumed(90, "%", "the utilization of the example", where=busy)
    yield assumed(80, "GiB", "the card of the example", where=busy)
    wrong = 0.9 * (80 * GIB - unit.weight_bytes) - 6 * GIB
    yield claim(wrong, "bytes", "the utilization of what is free", where=busy)
    yield claim(blocks / GIB, "", "GiB that are right", where=busy)
    yield published(92, "%", "vLLM 0.33.0: default", where="Weights, activations and the context")
    rtx = 8.00 * 0.70 - 5.20 - 1.42 - 0.03
    last = "On the RTX 4060"
    yield claim(rtx, "GiB", "what remains of an RTX 4060", where=last)
    whole = token_bytes(code, "Qwen3-235B", tensor_parallel_size=8)
    yield claim(whole, "bytes", "Qwen3-235B on each of 8 GPUs", where=last)


@figures
def four_steps(code):
    where = "**Four steps by hand.**"
    size = 4
    prompts = [list(range(7)), [100 + n for n in range(7)], [*range(4), 50, 51]]
    yield assumed(size, "tokens", "a block of the example", where=where)
    yield assumed(12, "tokens", "a step of the example", where=where)
    engine = code.Scheduler(code.SchedulerConfig(7, size, 12, 8))
    for number, (prompt, out) in enumerate(zip(prompts, (5, 4, 4), strict=True)):
        engine.add(code.Req(number, 0.0, prompt, out))
    steps = [engine.step() for _ in range(6)]
    for number, step in enumerate(steps[:4]):
        row = f"| {number} | {', '.join(f'{r}: {n}' for r, n in step.scheduled.items())} |"
        for tokens in step.scheduled.values():
            yield claim(tokens, "tokens", f"scheduled in step {number}", where=row)
        yield claim(step.free_blocks, "", f"free after step {number}", where=row)
    left = 12 - steps[0].scheduled[0]
    yield claim(left, "tokens", "the budget's rest", where="request 1 fits whole, but the budget")
    again = steps[5].scheduled[2]
    back = "In step 4 both others"
    yield claim(again + size, "tokens", "known of request 2", where=back)
    yield claim(again, "", "computed of request 2", where=back)
    yield claim(steps[4].free_blocks, "", "free after step 4", where=back)


@figures
def one_value_of_what(code):
    where = "**One value of what?**"
    gaps = ([20.0] * 9, [10.0, 20.0, 190.0], [])
    outputs = [
        code.Output(1, len(row) + 1, 0.1, [ms / 1000 for ms in row], 0.1 + sum(row) / 1000)
        for row in gaps
    ]
    found = code.metrics(outputs, 10.0, code.Slo())
    for row in gaps:
        yield assumed(len(row) + 1, "tokens", "a request of the example", where=where)
    yield assumed(20, "ms", "the gaps of the first request", where=where)
    yield claim(found["mean_tpot_ms"] / 1000, "s", "mean TPOT", where=where)
    yield claim(found["mean_itl_ms"] / 1000, "s", "mean ITL", where=where)
    last = "- **`metrics`.**"
    first = [code.Output(1, 2, ms / 1000, [], 1.0) for ms in (100, 500, 100)]
    yield assumed(100, "ms", "TTFT of the first and third request", where=last)
    yield assumed(500, "ms", "TTFT of the second", where=last)
    yield claim(code.metrics(first, 10.0, code.Slo())["p99_ttft_ms"] / 1000, "s", "p99", where=last)
    yield claim(99 * 2 - 100, "%", "the place of the 99th of three values", where=last)
    yield assumed(200, "ms", "the limit of TTFT", where=last)
    yield assumed(50, "ms", "the limit of TPOT", where=last)
    yield assumed(10, "s", "the duration of the example", where=last)


@figures
def nine_configurations(code):
    problem = code.PROBLEM
    where = "One problem, nine configurations"
    yield claim(problem.gpu_bytes, "bytes", "the card of PROBLEM", where=where)
    trace = problem.trace()
    span = max(req.t_arrival_s for req in trace) - min(req.t_arrival_s for req in trace)
    yield claim(span, "s", "the drawn requests", where=where)
    yield claim(problem.slo.ttft_ms, "ms", "the limit of TTFT", where=where)
    yield claim(problem.slo.tpot_ms, "ms", "the limit of TPOT", where=where)
    yield claim(len(trace), "", "requests", where=where)
    three = "Three hundredths of the card"
    more = (0.95 - 0.92) * problem.gpu_bytes
    yield claim(more, "bytes", "0.95 over 0.92 of the card", where=three)
    one, other = shown(code, (0.95, 512, 64)), shown(code, (0.92, 512, 64))
    share = 100 * (one["num_blocks"] / other["num_blocks"] - 1)
    yield claim(share, "%", "more blocks", where=three)
    large = "A larger budget helps TTFT"
    yield assumed(8192, "tokens", "the largest budget of the table", where=large)
    slow = [shown(code, (0.95, budget, 64), 0.1)["mean_ttft_ms"] for budget in (8192, 256)]
    yield claim(slow[0] / 1000, "s", "mean TTFT at a tenth of the load", where=large)
    yield claim(slow[1], "", "ms of TTFT with 256 tokens", where=large)
    yield claim(code.step_seconds(problem.cost, 8192, 0), "s", "a full step", where=large)
    smaller = "Tokens, at full load"
    for budget in (2048, 512):
        yield assumed(budget, "tokens", "a row of the table", where=smaller)
        mean = shown(code, (0.95, budget, 64))["mean_ttft_ms"]
        yield claim(mean / 1000, "s", f"mean TTFT with {budget} tokens a step", where=smaller)
    stays = "Three of `max_model_len` tokens"
    yield assumed(512, "tokens", "a row of the table", where=stays)
    yield claim(one["mean_e2el_ms"] / 1000, "s", "how long a request stays", where=stays)
    average = one["request_throughput"] * one["mean_e2el_ms"] / 1000
    yield claim(average, "", "requests at once", where=stays)
    first = shown(code, SHOWN[0])
    yield claim(first["mean_tpot_ms"] / 1000, "s", "first row", where="An average keeps no promise")
    yield assumed(8192, "tokens", "the question's prompt", where="A prompt of 8,192 tokens in one")
    gap = code.step_seconds(problem.cost, 512, 0)
    yield claim(gap, "s", "a step of 512 tokens", where="A token then comes every")
    answer = "is the answer's neighbourhood"
    yield assumed(512, "tokens", "a row of the table", where=answer)
    replay = "A replay is only as good as its clock"
    per_token = 4 * 64 * 40 * 128  # attention of Qwen2.5-32B, for each token of context
    weights = problem.cost.flops_per_token
    yield measured(85_000, "tokens", "Mooncake's trace, p99 of prompts", where=replay)
    yield claim(per_token * 85_000 / weights, "times", "attention over weights", where=replay)
    mean = sum(req.prompt_tokens for req in trace) / len(trace)
    yield claim(mean, "tokens", "the mean prompt", where=replay)
    yield claim(100 * per_token * mean / weights, "%", "attention's share there", where=replay)
    yield claim(weights, "", "FLOPs of the weights", where=replay)
    yield claim(per_token * 85_000, "", "FLOPs of attention", where=replay)


@figures
def hits(code):
    where = "**Hit rate belongs to a trace"
    for share in (4.4, 21.1, 35.5, 36.6):
        yield measured(share, "%", MOONCAKE, where=where)
    yield assumed(16, "tokens", "a step of the example", where=where)
    yield claim(anomaly(code, 6), "tokens", "computed with 6 blocks", where=where)
    yield claim(anomaly(code, 7), "", "tokens computed with 7 blocks", where=where)
    lists = "hits of blocks, full blocks, tokens"
    for share in (36.6, 38.2, 37.3, 37.0, 38.4, 37.6):
        yield measured(share, "%", f"{MOONCAKE}; and the drawn one, seed 0", where=lists)
    lru = "| LRU of 1k, 10k, 50k blocks |"
    for share in (4.4, 21.1, 35.5, 6.8, 27.3, 36.6):
        yield measured(share, "%", f"{MOONCAKE}; and the drawn one, seed 0", where=lru)
    yield measured(3, "s", MOONCAKE, where="groups every 3 s")
    code_trace = "Of the code trace only medians"
    for tokens in (2048, 28):
        yield published(tokens, "tokens", "Azure's code trace: mean lengths", where=code_trace)
    counted = "**Hits in Mooncake's trace.**"
    yield measured(100 * 105_592 / 276_491, "%", MOONCAKE, where=counted)
    for share in (37.34, 36.64):
        yield measured(share, "%", MOONCAKE, where=counted)


def anomaly(code, blocks):
    """Tokens that the engine computes of the page's five requests with so many blocks, the null
    block among them."""
    engine = code.Scheduler(code.SchedulerConfig(blocks, 4, 16, 5))
    prompts = {name: [ord(name) * 100 + n for n in range(8)] for name in "ABC"}
    rows = (
        (prompts["A"], 2), (prompts["B"], 1), ([*prompts["B"], 1], 4), (prompts["C"], 4),
        ([*prompts["C"], 2], 4),
    )  # fmt: skip
    for number, (prompt, out) in enumerate(rows):
        engine.add(code.Req(number, 0.0, prompt, out))
    computed = 0
    while engine.num_unfinished:
        computed += sum(engine.step().scheduled.values())
    return computed


@figures
def defaults_and_logs(code):
    where = "**Defaults.**"
    yield published(8192, "tokens", "vLLM 0.33.0, get_batch_defaults: H100, server", where=where)
    wrong = "**Published figures, and two that are wrong.**"
    for name in ("Llama-3-8B", "Llama-3-70B"):
        for tokens in (1024, 16_000, 128_000):
            size = token_bytes(code, name) * tokens / GIB
            yield claim(size, "", f"GiB of {name} at {tokens}", where=wrong)
    _, heads, _ = SHAPES["Llama-3.1-405B"]
    for tokens in (1024, 16_000, 128_000):
        right = token_bytes(code, "Llama-3.1-405B") * tokens / GIB
        yield claim(right, "", f"GiB of 405B at {tokens}", where=wrong)
        yield claim(2 * right, "", f"with {2 * heads} heads", where=wrong)
    llama2 = token_bytes(code, "Llama-2-7B") * 4 * 4096
    yield claim(llama2 / 2, "bytes", "K without V", where=wrong)
    yield claim(llama2 / GIB, "", "GiB of both", where=wrong)
    yield published(4 * 4096, "tokens", "EleutherAI, calc_transformer_mem.py", where=wrong)
    logs = "**What logs say.**"
    yield published(2048, "tokens", "vLLM PR #12569, max_model_len", where=logs)
    yield claim(33_660 * 16 / 4096, "times", "blocks of 16 over 4,096", where=logs)
    yield claim(107_824 / 32_768, "times", "tokens over 32,768", where=logs)
    yield published(107_824, "tokens", "vLLM issue #15928", where=logs)
    yield published(52.89, "times", "vLLM issue #9802", where=logs)
    yield published(40_000, "tokens", "vLLM issue #9802, max_model_len", where=logs)
    each = token_bytes(code, "Llama-3-8B", tensor_parallel_size=4)
    yield claim(52.89 * 40_000 * each, "bytes", "a GPU's cache", where=logs)
    yield published(367_404, "tokens", "vLLM issue #21348, SGLang's log", where=logs)
    yield claim(2 * LLAMA, "bytes", "Llama-3-8B's weights", where=logs)
    yield claim(2 * 8192 * 64 * 2, "bytes", "cosines and sines of 8,192 positions", where=logs)
    yield published(4, "GiB", "vLLM, swap_space of old versions", where=logs)
    for name in ("Llama-3-8B", "Llama-2-7B", "Llama-2-13B"):
        blocks = 4 * GIB // (16 * token_bytes(code, name))
        yield claim(blocks, "", f"CPU blocks of {name}", where=logs)
    prefix = "- **`match_prefix`.**"
    source = PUBLISHED["prefix_cache_full_blocks"]["source"]
    yield claim(99 // 16 * 16, "tokens", "found of 100 in blocks of 16", where=prefix)
    yield published(100, "tokens", source, where=prefix)
