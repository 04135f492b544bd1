"""The figures of lab 12's page, each computed with the reference or in closed form."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from grader.author.page_claims import assumed, claim, fact, figures, measured, published, table
from grader.author.page_facts import FACTS
from grader.author.page_figures import plain, written

GIB = 2**30
SEQ = 8192
SC21 = "Narayanan et al. 2021 (SC21)"
H100_RUNS = "Megatron-LM README, table of H100 runs"
PLANNER = "benchmarks/results/planner.md"
TRAINING = "benchmarks/results/gpu-training.md"


def plan(code, tp, pp, cp, dp, gbs=128, micro=1, **more):
    return code.Plan(tp, pp, cp, dp, micro, gbs, **more)


def published_plan(code, **more):
    """Llama-3-70B's published layout for 64 GPUs: TP 4, PP 4, CP 2, DP 2."""
    return plan(code, 4, 4, 2, 2, **more)


def held(code, of, model=None):
    """The bytes of the most loaded GPU of a plan."""
    return max(stage.total for stage in code.memory(of, model or code.LLAMA3_70B))


def step(code, of, model=None):
    return code.step_time(of, model or code.LLAMA3_70B, code.H100_64)


def params(model):
    """All parameters of a dense model, its head and its embedding apart."""
    width = model.h // model.heads
    attention = 2 * model.h * width * (model.heads + model.kv_heads)
    mlp = 3 * model.h * model.ffn
    return model.L * (attention + mlp + 2 * model.h) + 2 * model.vocab * model.h + model.h


@table("pipelines")
def pipelines(code):
    yield (
        "PP, DP", "weights", "gradients", "optimizer", "activations", "first stage", "last stage",
    )  # fmt: skip
    for pp, dp in ((2, 4), (4, 2), (8, 1)):
        first, *_, last = code.memory(plan(code, 4, pp, 2, dp), code.LLAMA3_70B)
        parts = (first.param, first.grad, first.opt, first.act, first.total, last.total)
        yield f"{pp}, {dp}", *(plain(part / 1e9, 2) for part in parts)


@table("messages")
def messages(code):
    yield "axis", "what", "times", "MB each", "where", "seconds"
    for op in code.comm(published_plan(code), code.LLAMA3_70B, code.H100_64):
        once = code.coll_time(op.kind, op.bytes, op.ranks, op.per_node, code.H100_64)
        hidden = ", hidden" if op.axis in ("cp", "dp-cp") else ""
        size = op.bytes / 1e6
        yield (
            op.axis, op.kind, plain(op.count_per_step), plain(size, 1 if size < 100 else 0),
            "across" if op.spans_nodes else "node",
            plain(op.count_per_step * once, 3) + hidden,
        )  # fmt: skip


@table("one-layer")
def one_layer(code):
    s, h, a, t = 2048, 12_288, 96, 8
    sbh, square = s * h, 5 * a * s * s

    def gib(value, decimals):
        return written(value, "GiB", decimals).removesuffix(" GiB")

    yield "one layer", "closed form", "GiB"
    yield "one GPU", "sbh (34 + 5as/h)", gib(34 * sbh + square, 3)
    yield "TP 8", "sbh (10 + 24/t + 5as/ht)", gib(10 * sbh + (24 * sbh + square) / t, 3)
    yield "TP 8 with SP", "sbh/t (34 + 5as/h)", gib((34 * sbh + square) / t, 3)
    yield "and selective recompute", "34 sbh/t", gib(34 * sbh / t, 4)
    yield "full recompute (no SP)", "2 sbh", gib(2 * sbh, 4)


@figures
def two_wires(code):
    where = "**Two wires.**"
    cluster, model = code.H100_64, code.LLAMA3_70B
    yield fact("NVLink4 both ways", where=where)
    yield claim(cluster.intra_Bps / 1e9, "GB/s", "the lab's", where=where, of="NVLink4 one way")
    yield claim(
        cluster.inter_Bps / 1e9, "GB/s", "the lab's", where=where, of="InfiniBand NDR one way"
    )
    yield claim(cluster.inter_Bps, "bytes/s", "a network card", where=where)
    yield claim(model.seq, "tokens", "Llama-3-70B's sequence", where=where)
    tensor = 2 * model.seq * model.h
    yield claim(tensor, "bytes", "a micro-batch's activations", where=where)
    in_layer, passes = ("attention", "mlp"), ("forward", "backward")
    reduces = len(in_layer) * len(passes)
    yield claim(reduces, "times", "all-reduces a layer", where=where)
    each = reduces * model.L * 2 * Fraction(7, 8) * tensor / int(cluster.intra_Bps)
    yield claim(each, "s", "all-reduces of a micro-batch", where=where)
    both = "In both directions together"
    yield claim(each / 2, "s", "divided by both directions", where=both)
    yield claim(each, "", "seconds one way", where=both)
    across = "An eighth of every all-reduce now goes"
    free = dataclasses.replace(cluster, lat_s=0.0)
    two_nodes = 4 * model.L * code.coll_time("all_reduce", tensor, 16, 8, free)
    yield claim(two_nodes, "s", "all-reduces over two nodes", where=across)
    yield claim(each, "", "seconds in one node", where=across)
    leaves = "It spans two nodes: each network card"
    yield fact("InfiniBand NDR one way", where=leaves)
    small = "is a row of steps that wait"
    yield assumed(16, "KB", "a decode step's tensor", where=small)
    yield claim(cluster.lat_s, "s", "one latency", where=small)
    yield claim(tensor, "bytes", "a micro-batch's activations", where=small)
    whole = code.coll_time("all_reduce", tensor, 8, 8, cluster)
    yield claim(14 * cluster.lat_s, "s", "14 latencies", where=small)
    yield claim(whole, "s", "an all-reduce over 8 GPUs", where=small)
    flat = "- **`coll_time`.**"
    yield claim(tensor, "bytes", "a micro-batch's activations", where=flat)
    two = code.coll_time("all_reduce", tensor, 16, 8, free)
    ring = 2 * 15 / 16 * tensor / cluster.inter_Bps
    yield claim(two, "s", "16 GPUs on two nodes", where=flat)
    yield claim(ring, "s", "one flat ring over the cards", where=flat)
    late = code.coll_time("all_reduce", tensor, 16, 8, cluster)
    yield claim(1000 * late, "", "ms with latencies", where=flat)
    yield claim(1000 * (ring + 30 * cluster.lat_s), "", "ms of the ring", where=flat)


@figures
def memory_of_a_parameter(code):
    where = "**Memory.** A parameter takes"
    yield assumed(2, "bytes", "the width of bf16", where=where)
    moved = "each matrix crosses memory once"
    yield assumed(2, "bytes", "the width of bf16", where=moved)
    forward, backward = 2, 4  # a product is one of forward, two of backward
    for cost in ("Matrix products take", "- **`step_time`.**"):
        yield claim(forward + backward, "FLOPs", "a parameter and token", where=cost)
    sums = "They are summed in fp32"
    yield assumed(4, "bytes", "the width of fp32", where=sums)
    fsdp = "Once a micro-batch, and three times"
    gathers = 2 + 2 + 4
    yield claim(gathers, "bytes", "two gathers and a reduce-scatter", where=fsdp)
    yield claim(Fraction(16 * gathers, 4 + 2), "times", "with m = 16", where=fsdp)
    yield claim(gathers, "bytes", "the same", where="FSDP sends 8 bytes a parameter")
    yield claim(2 + 4 + 12, "bytes", "weight, gradient, optimizer", where="States are 18 bytes")
    yield assumed(4, "bytes", "the width of fp32", where="- **`comm`, the clocks.**")
    sp = "Without SP 10 of 34 bytes stay"
    rest = 2 + 2 + 2 + 2 + 1 + 1
    yield claim(rest, "bytes", "what TP leaves whole", where=sp)
    yield claim(rest + 24, "bytes", "of a GPT layer", where=sp)
    s, h, a, t = 2048, 12_288, 96, 8
    sbh, square = s * h, 5 * a * s * s
    yield claim(10 * sbh + (24 * sbh + square) / t, "bytes", "without SP", where=sp)
    yield claim((34 * sbh + square) / t / GIB, "", "GiB with SP", where=sp)


@figures
def a_llama_layer(code):
    where = "A Llama-3-70B layer has"
    model = dataclasses.replace(code.LLAMA3_70B, L=2)  # one layer a stage, one micro-batch
    first = code.memory(plan(code, 1, 2, 1, 1, gbs=1), model)[0]
    rate = first.act / (model.seq * model.h)
    masks = 2 * 1
    yield published(34, "", "Korthikanti et al. 2022, table 2", where=where)
    yield claim(rate, "", "bytes of a Llama layer", where=where)
    yield claim(rate - masks, "", "bytes without its two masks", where=where)


@figures
def bubbles(code):
    where = "GPipe and 1F1B have the same bubble"
    for schedule, v in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2)):
        run = code.simulate_pipeline(schedule, 4, 8, v, 1.0, 2.0)
        yield claim(100 * run.bubble_of_ideal, "%", schedule, where=where)
        for chunks in run.peak_in_flight:
            yield claim(chunks / v, "", f"held under {schedule}", where=where)
    two = "A bubble has two denominators"
    run = code.simulate_pipeline("1f1b", 8, 8, 1, 1.0, 2.0)
    yield claim(run.bubble_of_ideal, "", "of the work", where=two)
    yield claim(run.bubble_of_total, "", "of the step", where=two)
    yield assumed(10, "%", "a target of the answer", where="Micro-batches until the bubble")


@figures
def the_published_layout(code):
    model, of = code.LLAMA3_70B, published_plan(code)
    where = "The optimizer grows"
    yield claim(code.H100_64.hbm_bytes - held(code, of), "bytes", "what is free", where=where)
    average = Fraction(params(model), 16)
    yield claim(average, "parameters", "a GPU's on average", where=where)
    yield claim(average * (6 + Fraction(12, 4)), "bytes", "states at d = 4", where=where)
    else_ = "**What else moves its"
    yield claim(held(code, of), "bytes", "the published layout", where=else_)
    for more, what in (
        ({"sp": False}, "without SP"),
        ({"zero": 0}, "without the distributed optimizer"),
        ({"recompute": "none"}, "with the scores kept"),
        ({"recompute": "full"}, "with full recompute"),
        ({"vpp": 2}, "VPP 2"),
        ({"vpp": 5}, "VPP 5"),
    ):
        size = held(code, published_plan(code, **more)) / 1e9
        yield claim(size, "", f"GB {what}", where=else_)
    goes = "**Where the step of that layout goes.**"
    time = step(code, of)
    yield claim(time.compute_s, "s", "kernels", where=goes)
    for seconds, what in (
        (time.tp_s, "TP"), (time.pp_s, "sends"), (time.pp_bubble_s, "bubble"),
    ):  # fmt: skip
        yield claim(seconds, "", f"seconds of {what}", where=goes)
    yield claim(time.total_s, "s", "the step", where=goes)
    yield claim(100 * time.mfu, "%", "MFU", where=goes)
    four = published_plan(code, vpp=4)
    later = step(code, four)
    yield claim(later.pp_bubble_s, "s", "bubble with more chunks", where=goes)
    yield claim(later.pp_s, "", "seconds of sends", where=goes)
    yield claim(later.total_s, "s", "the step with more chunks", where=goes)
    yield claim(held(code, of), "bytes", "the published layout", where=goes)
    yield claim(held(code, four), "bytes", "with more chunks", where=goes)
    slow = "**DP over the slow card"
    ops = code.comm(of, model, code.H100_64)
    tp = sum(op.bytes * op.count_per_step for op in ops if op.axis == "tp")
    dp = {op.kind: op for op in ops if op.axis == "dp-cp"}
    scatter = dp["reduce_scatter"]
    yield claim(scatter.bytes, "bytes", "gradients", where=slow)
    takes = code.coll_time(
        scatter.kind, scatter.bytes, scatter.ranks, scatter.per_node, code.H100_64
    )
    yield claim(takes, "s", "the reduce-scatter", where=slow)
    both = sum(op.bytes for op in dp.values())
    yield claim(tp / both, "times", "TP over DP", where=slow)
    yield claim(tp, "bytes", "TP's tensors", where=slow)
    yield claim(both / 1e9, "", "GB of DP's", where=slow)
    nothing = "**Bytes over GPUs prove nothing.**"
    yield claim(params(model), "parameters", "Llama-3-70B", where=nothing,
                of="Llama-3-70B parameters")  # fmt: skip
    yield claim(params(model) * 18 / 64, "bytes", "states over 64 GPUs", where=nothing)
    first = code.memory(plan(code, 4, 2, 2, 4), model)[0]
    yield claim(first.total, "bytes", "PP 2, DP 4", where=nothing)
    yield claim(first.act / 1e9, "", "GB of activations", where=nothing)
    yield claim(model.seq, "tokens", "Llama-3-70B", where="TP x CP stays within the node")


@figures
def rivals(code):
    where = "**TP 16 starts, and is slow.**"
    wide = step(code, plan(code, 16, 2, 1, 2))
    node = step(code, plan(code, 8, 2, 1, 4))
    best = step(code, published_plan(code))
    yield claim(wide.tp_s, "s", "TP 16", where=where)
    yield claim(wide.total_s, "s", "the step", where=where)
    yield claim(100 * wide.mfu, "%", "MFU", where=where)
    yield claim(node.tp_s, "s", "TP 8", where=where)
    yield claim(node.total_s, "", "seconds of TP 8's step", where=where)
    yield claim(best.tp_s, "s", "TP 4", where=where)
    yield claim(best.total_s, "", "seconds of the published step", where=where)
    aloud = "For Llama-3-70B TP goes from"
    yield claim(node.tp_s, "s", "TP 8", where=aloud)
    yield claim(wide.tp_s, "s", "TP 16", where=aloud)
    fsdp = "**FSDP is the rival of a pipeline.**"
    rival = plan(code, 2, 1, 2, 16, zero=3)
    yield claim(step(code, rival).total_s, "s", "FSDP", where=fsdp)
    yield claim(held(code, rival), "bytes", "FSDP", where=fsdp)
    yield claim(100 * (best.total_s / step(code, rival).total_s - 1), "%", "longer", where=fsdp)
    short = plan(code, 1, 1, 8, 8, zero=3)
    yield claim(code.LLAMA3_70B.seq // 8, "tokens", "a GPU's of CP 8", where=fsdp)
    yield claim(step(code, short).dp_exposed_s, "s", "exposed gathers", where=fsdp)
    yield claim(step(code, short).total_s, "", "seconds of that step", where=fsdp)
    inside = plan(code, 2, 1, 2, 16, zero=3, shard=4)
    yield claim(held(code, inside), "bytes", "sharded in the node", where=fsdp)
    units = "**FSDP's units can outweigh its shards.**"
    small = dataclasses.replace(code.LLAMA3_8B_LONG, seq=8192)
    yield claim(18 * params(small) / 64, "bytes", "Llama-3-8B's shards", where=units)
    yield claim((2 + 2 + 4) * small.vocab * small.h, "bytes", "two tables, a gradient", where=units)
    rings = "**Attention pays for long rings.**"
    long = code.LLAMA3_8B_LONG
    yield claim(long.seq, "tokens", "Llama-3-8B's long case", where=rings)
    for model in (long, code.LLAMA3_70B):
        weights = 6 * (params(model) - model.vocab * model.h)
        square = 12 * model.L * model.h * model.seq
        yield claim(100 * square / (weights + square), "%", "attention's FLOPs", where=rings)
    ring = plan(code, 2, 1, 16, 2, gbs=32)
    sends = sum(
        op.count_per_step
        * code.coll_time(op.kind, op.bytes, op.ranks, op.per_node, code.H100_64)
        for op in code.comm(ring, long, code.H100_64)
        if op.axis == "cp"
    )
    yield claim(sends, "s", "the ring's sends", where=rings)


@figures
def experts(code):
    where = "**EP inside a node, and what PP is for.**"
    model = code.MIXTRAL_8X7B

    def mixtral(**more):
        fields = {"pp": 1, "dp": 64, **more}
        return code.Plan(1, fields.pop("pp"), 1, fields.pop("dp"), 1, 256, ep=8, **fields)

    for of in (mixtral(), mixtral(pp=2, dp=32, vpp=4)):
        yield claim(step(code, of, model).total_s, "s", "Mixtral", where=where)
        yield claim(held(code, of, model), "bytes", "Mixtral", where=where)
    sharded = mixtral(zero=3)
    yield claim(held(code, sharded, model), "bytes", "FSDP", where=where)
    yield claim(step(code, sharded, model).total_s, "", "seconds of FSDP", where=where)
    yield claim(model.seq, "tokens", "Mixtral's sequence", where=where)
    megatron = mixtral(pp=4, dp=16)
    plain_ = step(code, megatron, model)
    yield claim(plain_.total_s, "s", "Megatron's, 1F1B", where=where)
    yield claim(100 * plain_.pp_bubble_s / plain_.total_s, "%", "its bubble", where=where)
    yield claim(step(code, mixtral(pp=4, dp=16, vpp=4), model).total_s, "s", "vpp 4", where=where)
    away = "**EP takes replicas away"
    for ep in (8, 1):
        first = code.memory(code.Plan(1, 4, 1, 16, 1, 256, ep=ep), model)[0]
        yield claim(first.param / 2, "parameters", f"a first stage with EP {ep}", where=away)
        yield claim(first.total, "bytes", f"a first stage with EP {ep}", where=away)
        yield claim(first.opt, "bytes", f"its optimizer with EP {ep}", where=away)


@figures
def appendix(code):
    cluster = code.H100_64
    between = "**Between the products**"
    flops = cluster.reach * cluster.flops / cluster.hbm_Bps
    yield claim(flops, "FLOPs", "what a byte costs", where=between)
    tables = "**Two tables that agree on sizes"
    for billions, source in (
        (1.7, f"{SC21}, table 1"), (1008, f"{SC21}, table 1"),
        (7.1, H100_RUNS), (462, H100_RUNS),
    ):  # fmt: skip
        yield published(billions, "billion", source, where=tables)
    model = code.LLAMA3_70B
    for pp, dp, gib in ((4, 2, 25.3745), (2, 4, 36.9609)):
        yield published(gib, "GiB", "Megatron-LM, theoretical_memory_usage.py", where=tables)
        first = code.memory(plan(code, 8, pp, 1, dp), model)[0]
        ours = first.param + first.grad + first.opt - gib * GIB
        yield claim(ours, "bytes", "what ours are more", where=tables)
    wrong = "**One row of a famous table is wrong.**"
    yield claim(4 * 16 * code.LLAMA3_8B_LONG.seq, "tokens", "DP 4, 16 sequences", where=wrong)
    yield published(16e6, "tokens", "The Llama 3 Herd of Models, table 4", where=wrong)
    trillion = "| 502 PFLOP/s, 1T"
    yield published(502, "PFLOP/s", f"{SC21}, table 1", where=trillion)
    yield published(163, "TFLOP/s", f"{SC21}, table 1", where=trillion)
    yield claim(163 * 3072 / 1000, "", "PFLOP/s of 3,072 GPUs", where=trillion)
    days = "| 34 days, GPT-3"
    yield published(34, "days", f"{SC21}, section 5.1", where=days)
    yield published(84, "days", f"{SC21}, section 5.1", where=days)
    gpt3 = 300e9 * 175e9 / (1024 * 140e12) / 86_400
    one_t = 450e9 * 1008e9 / (3072 * 163e12) / 86_400
    for value in (8 * gpt3, 8 * one_t, 6 * gpt3):
        yield claim(value, "", "days", where=days)
    mfu = "| MFU 47, 42, 44, 47 %"
    peak = FACTS["H100 bf16 dense"].value
    for share, tflops in ((47, 465.9), (42, 419.7), (44, 432.8), (47, 459.9)):
        yield published(tflops, "TFLOP/s", H100_RUNS, where=mfu)
        yield published(share, "%", H100_RUNS, where=mfu)
        if abs(100 * tflops / peak - share) > 0.8:
            raise ValueError(f"{tflops} of {peak} TFLOP/s are not {share} %")
    whole = "| 44.7, 322.3, 997.2, 2,825.6 PFLOP/s"
    for tflops, gpus in ((465.9, 96), (419.7, 768), (432.8, 2304), (459.9, 6144)):
        yield claim(tflops * gpus / 1000, "PFLOP/s", f"{gpus} GPUs", where=whole)
    old = "| MFU 41.5, 51.4, 56.0, 56.3 %"
    for share in (41.5, 51.4, 56.0, 56.3):
        yield published(share, "%", "Megatron-LM README, 2022", where=old)
    for seconds in (1.10, 13.75, 37.83, 71.49):
        yield published(seconds, "s", "Korthikanti et al. 2022, table 5", where=old)
    yield fact("A100 bf16 dense", where=old)
    runs = (
        (4, 48, 6144, 8, 1.10), (64, 96, 12_288, 64, 13.75),
        (280, 105, 20_480, 280, 37.83), (512, 128, 25_600, 512, 71.49),
    )  # fmt: skip
    for batch, layers, h, gpus, seconds in runs:
        s, vocab = 2048, 51_200
        done = 72 * batch * layers * s * h**2 * (1 + s / (6 * h) + vocab / (12 * h * layers))
        yield claim(100 * done / (gpus * 312e12 * seconds), "", "% MFU", where=old)
    llama = "| 8,192 and 16,384 GPUs"
    yield claim(16 * 128 * 8192, "tokens", "16 x 128 sequences", where=llama)
    yield published(430, "TFLOP/s", "The Llama 3 Herd of Models, table 4", where=llama)
    yield fact("H100 bf16 dense", where=llama)
    yield claim(100 * 430 / peak, "%", "430 over the dense peak", where=llama)
    yield claim(100 * 400 / peak, "", "% of 400 TFLOP/s", where=llama)
    total = "| 3.8e25 FLOPs, 405B"
    yield published(3.8e25, "FLOPs", "The Llama 3 Herd of Models, section 1", where=total)
    yield claim(6 * 405e9 * 15.6e12, "", "6 N D", where=total)
    layer = "| 8 bsh (t - 1)/t elements"
    yield claim(2 * 8 * 8192 * 8192 * 7 / 8, "bytes", "70B's h on TP 8", where=layer)
    good = "**How good is such a model?**"
    for share in (14, 32, 16, 23, 4, 29):
        yield measured(share, "%", PLANNER, where=good)
    for rate in (128, 100):
        yield measured(rate, "tokens/s", PLANNER, where=good)
    gpu = "On one GPU, where nothing is sent"
    yield assumed(8192, "tokens", "what is measured", where=gpu)
    yield measured(0.828, "s", f"{TRAINING}, H100", where=gpu)
