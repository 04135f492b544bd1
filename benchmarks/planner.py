"""How long lab 12's planner takes, and how far its memory and times are from published runs.

Two tables. The first: `plan_search` of the reference for the three models of the worksheet on 64
and on 4,096 GPUs, in processor time of this process; beside it, at 64 GPUs, brute force by the
suite's second planner in the same process, and whether both find the same front. The second: memory
and step time of the model against published end-to-end rows. Its errors are figures, not limits.
Memory is given twice: as the model counts it, which keeps what Megatron keeps, and as torchtitan's
own checkpointing, loss and allocator have it (`titan_bytes`).
Each machine has one number, `reach`, the share of its peak that large products reach: it is set by
one run of such a machine that is not in the table, and by nothing else. `--write` puts both into
`benchmarks/results/planner.md`. Exit status 1: the fronts differ, or a search of 4,096 GPUs took
4 s or more.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import results_page

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "planner.md"
GIB = 1024**3
LIMIT_S = 4.0
sys.path[:0] = [str(ROOT), str(ROOT / "solutions/lab12"), str(ROOT / "exercises/lab12")]

cases: Any = importlib.import_module("cases_lab12")
types: Any = importlib.import_module("types_lab12")
reference: Any = importlib.import_module("parallelism")
oracle: Any = importlib.import_module("tests.lab12.oracle_planner")
Cluster, Model, Plan = types.Cluster, types.Model, types.Plan


# -- how long -------------------------------------------------------------------------------------


def searched(runs: int) -> tuple[list[str], list[str]]:
    """Rows of the first table, and faults."""
    rows = [
        "| model | GPUs | plans that fit | on the front | plan_search | brute force | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    faults = []
    for name, (model, gbs) in cases.CASES.items():
        for nodes in (8, 512):
            cluster, batch = Cluster(nodes=nodes), gbs * nodes // 8
            seconds = []
            for _run in range(runs):
                started = time.process_time()
                front = reference.plan_search(model, cluster, batch)
                seconds.append(time.process_time() - started)
            own = statistics.median(seconds)
            fits = brute = ratio = "not run"
            if nodes == 8:
                started = time.process_time()
                every = oracle.every(model, cluster, batch)
                took = time.process_time() - started
                fits, brute, ratio = f"{len(every):,}", f"{took:.2f} s", f"{took / own:.1f}"
                if {plan for plan, _cost in oracle.front(model, cluster, batch)} != set(front):
                    faults.append(f"{name} on 64 GPUs: the fronts differ")
            elif own >= LIMIT_S:
                faults.append(f"{name} on 4,096 GPUs took {own:.2f} s")
            rows.append(
                f"| {name} | {8 * nodes:,} | {fits} | {len(front)} | {own:.2f} s | {brute} "
                f"| {ratio} |"
            )
    return rows, faults


# -- how far --------------------------------------------------------------------------------------

LLAMA_8B = Model(32, 4096, 32, 8, 14336, 128256, 8192)
LLAMA_70B = cases.LLAMA3_70B
LLAMA_405B = Model(126, 16384, 128, 8, 53248, 128256, 8192)
ENDS = {"count_embedding": True, "count_loss": True}


def _h100(gpus: int) -> Any:
    """A DGX H100."""
    return Cluster(nodes=gpus // 8, reach=reach("DGX H100"))


def _teton(gpus: int) -> Any:
    """Meta's Grand Teton as torchtitan describes it: 2.4 TB/s, 500 W, and a peak between those of
    the SXM (989) and the NVL card (835 TFLOP/s), of which this is the middle."""
    return Cluster(nodes=gpus // 8, flops=912e12, hbm_Bps=2.4e12, reach=reach("Grand Teton"))


def _a100(gpus: int) -> Any:
    """300 GB/s one way by NVLink, a 200 Gb/s card a GPU."""
    links = {"intra_Bps": 300e9, "inter_Bps": 25e9}
    card = {"flops": 312e12, "hbm_Bps": 2.04e12, "sms": 108, "reach": reach("A100")}
    return Cluster(gpus // 8, 8, 80e9, **links, **card)


def alone() -> dict[str, tuple[str, Any, Any, Any, float]]:
    """By machine: the run that sets its reach: (what, plan, model, cluster, tokens/s of a GPU)."""
    mpt, gpt = _gpt(80, 8192, 64, 50368), _gpt(128, 25600, 160)
    # SC21 counts recompute: 96 B s l h^2 (1 + s/6h + V/16lh) FLOPs a step.
    counted = 96 * gpt.L * gpt.h**2 * (1 + gpt.seq / 6 / gpt.h + gpt.vocab / 16 / gpt.L / gpt.h)
    return {
        "DGX H100": (
            "MPT-70B, 64 GPUs, FSDP, full recompute (llm-foundry, table of H100 in bf16)",
            Plan(1, 1, 1, 64, 8, 512, recompute="full", zero=3),
            mpt,
            Cluster(),
            66523 / 64,
        ),
        "Grand Teton": (
            "Llama 3.1 70B in bf16, 256 GPUs, FSDP 32 TP 8 (torchtitan, June 2025)",
            Plan(8, 1, 1, 32, 16, 512, recompute="full", zero=3),
            LLAMA_70B,
            Cluster(nodes=32, flops=912e12, hbm_Bps=2.4e12),
            597.3,
        ),
        "A100": (
            "GPT 1T, 3,072 GPUs, TP 8 PP 64 DP 6, batch 3,072 (SC21, table 1: 163 TFLOP/s)",
            Plan(8, 64, 1, 6, 1, 3072, sp=False, recompute="full", zero=0),
            gpt,
            Cluster(384, 8, 80e9, 300e9, 25e9, 5e-6, 312e12, 0.6, 2.04e12, 108),
            163e12 / counted,
        ),
    }


@functools.cache
def reach(machine: str) -> float:
    """To two digits: with it the model gives the speed of the machine's own run."""
    _what, plan, model, cluster, speed = alone()[machine]
    low, high = 0.1, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        if _speed(plan, model, replace(cluster, reach=middle)) < speed:
            low = middle
        else:
            high = middle
    return round(low, 2)


def _speed(plan: Any, model: Any, cluster: Any) -> float:
    """Tokens a second of one GPU."""
    gpus = plan.tp * plan.pp * plan.cp * plan.dp
    return float(plan.gbs * model.seq / reference.step_time(plan, model, cluster).total_s / gpus)


def _gpt(layers: int, h: int, heads: int, vocab: int = 51200) -> Any:
    return Model(layers, h, heads, heads, 4 * h, vocab, 2048, gated=False)


def _long(model: Any, seq: int) -> Any:
    return Model(model.L, model.h, model.heads, model.kv_heads, model.ffn, model.vocab, seq)


def published() -> list[tuple[str, Any, Any, Any, str, float, float | None, str]]:
    """(what, plan, model, cluster, what was measured, its value, GiB of the fullest GPU, notes)."""
    titan, fp8 = "torchtitan, December 2024", "float8 products"
    rows: list[tuple[str, Any, Any, Any, str, float, float | None, str]] = []
    for gpus, gbs, pairs in (
        (8, 16, ((5762, 82.4, ""), (6667, 77.0, "compiled"))),
        (128, 256, ((5605, 67.0, ""), (6514, 62.0, "compiled"))),
    ):
        for speed, gib, note in pairs:
            plan = Plan(1, 1, 1, gpus, 2, gbs, zero=3)
            text = f"Llama 3.1 8B, {gpus} H100, FSDP"
            rows.append((text, plan, LLAMA_8B, _teton(gpus), titan, speed, gib, note))
    for cp, speed, gib in ((1, 3890, 83.9), (2, 2540, 84.2), (4, 1071, 84.0), (8, 548, 84.5)):
        plan = Plan(1, 1, cp, 8 // cp, 1, 8 // cp, recompute="full", zero=3)
        model = _long(LLAMA_8B, 32768 * cp)
        text = f"Llama 3.1 8B, 8 H100, {model.seq:,} tokens, FSDP {8 // cp} CP {cp}"
        rows.append((text, plan, model, _teton(8), titan, speed, gib, fp8))
    plan = Plan(8, 1, 1, 32, 16, 512, recompute="full", zero=3)
    text = "Llama 3.1 70B, 256 H100, TP 8"
    rows.append((text, plan, LLAMA_70B, _teton(256), titan, 829, 71.9, fp8))
    for vpp, speed, gib in ((1, 100, 82.5), (2, 128, 72.7)):
        plan = Plan(8, 8, 1, 8, 4, 256, vpp=vpp, recompute="full", **ENDS)
        text = f"Llama 3.1 405B, 512 H100, TP 8 PP 8, {'interleaved' if vpp > 1 else '1F1B'}"
        note = f"{fp8}, 8 micro-batches" + (", 2 chunks assumed" if vpp > 1 else "")
        rows.append((text, plan, LLAMA_405B, _teton(512), titan, speed, gib, note))
    for cp, speed, gib in ((1, 76, 75.3), (2, 47, 75.9), (4, 31, 77.1), (8, 16, 84.9)):
        dp = 8 // cp
        plan = Plan(8, 8, cp, dp, 1, 8 * dp, recompute="full", **ENDS)
        model = _long(LLAMA_405B, 32768 * cp)
        text = f"Llama 3.1 405B, 512 H100, TP 8 PP 8, {model.seq:,} tokens, CP {cp}"
        note = f"{fp8}, 8 micro-batches"
        rows.append((text, plan, model, _teton(512), titan, speed, gib, note))
    sizes = {  # table 3: 175B and 530B in three chunks a stage, 22B with micro-batches of 4
        "22B": (_gpt(48, 6144, 64), 8, 1, 4, 4, 1, 1.10),
        "175B": (_gpt(96, 12288, 96), 64, 8, 64, 1, 3, 13.75),
        "530B": (_gpt(105, 20480, 128), 280, 35, 280, 1, 3, 37.83),
        "1T": (_gpt(128, 25600, 160), 512, 64, 512, 1, 1, 71.49),
    }
    for name, (model, gpus, pp, gbs, micro, vpp, seconds) in sizes.items():
        plan = Plan(8, pp, 1, 1, micro, gbs, vpp=vpp)
        rate = gbs * model.seq / seconds / gpus
        text = f"GPT {name}, {gpus} A100, TP 8 PP {pp}, {seconds} s"
        source = "Korthikanti et al. 2022, table 5"
        rows.append((text, plan, model, _a100(gpus), source, rate, None, ""))
    for dp, each, tflops in ((64, 32, 430), (128, 16, 400)):
        gpus = 8 * 16 * dp
        plan = Plan(8, 16, 1, dp, 1, each * dp, vpp=2, **ENDS)
        flops = 3 * sum(_model_flops(LLAMA_405B))
        text = f"Llama 3 405B, {gpus:,} H100, TP 8 PP 16 DP {dp}, {tflops} TFLOP/s"
        source, note = "Llama 3, table 4", "interleaved; 2 chunks assumed"
        rate = tflops * 1e12 / flops
        rows.append((text, plan, LLAMA_405B, _h100(gpus), source, rate, None, note))
    return rows


def titan_bytes(plan: Any, model: Any) -> float:
    """What torchtitan (commit 9dec370, December 2024) reserves on the fullest GPU, in bytes, at the
    moment of a step when most is held: when the loss starts its way back.

    States: a fp32 weight and two moments, sharded; the gradients' place, which the stream of the
    reduce-scatters keeps although they come later. FSDP's buffers: bf16 weights of the last layer
    and of the root (embedding, head), which are not sharded again after the forward pass, and the
    fp32 gradients of the root on their way. With a pipeline all weights stay whole in bf16, and so
    do the gradients of a step's micro-batches in fp32.
    Activations of a layer: its input; with its selective checkpointing ("op") also every second
    product's result (q, v, the MLP's first, its last) and attention's result with a fp32 number a
    head. The loss: logits in fp32 as log-probabilities, the gradient of these and that of the
    logits: cross_entropy's three copies, 12 bytes a logit. Nothing is added for pieces that the
    allocator cannot use.
    Source: torchtitan, parallelize_llama.py (_save_list, apply_fsdp), train.py (loss_fn).
    """
    t, shards = plan.tp, plan.dp * plan.cp
    tokens = model.seq / plan.cp * plan.micro
    kept = model.h / t
    if plan.recompute == "selective":
        heads = model.heads / t
        kv = model.h / model.heads * model.kv_heads / t
        kept += (3 * model.h + model.ffn) / t + kv + 2 * heads
    held = []
    stages = reference.memory(replace(plan, zero=0), model)
    layers = oracle.layers_of(plan, model)
    for stage, (bytes_, own) in enumerate(zip(stages, layers, strict=True)):
        params, last = bytes_.param / 2, stage == plan.pp - 1
        ends = model.vocab * model.h / t * ((stage == 0) + last)
        root = 2 * (ends + (params - ends) / own) + 4 * ends
        buffers = 6 * params if plan.pp > 1 else root
        flying = min(plan.gbs // (plan.micro * plan.dp), plan.pp - stage)
        if plan.vpp > 1:
            chunks = 2 * (plan.pp - stage - 1) + (plan.vpp - 1) * plan.pp + 1
            flying = min(plan.gbs // (plan.micro * plan.dp) * plan.vpp, chunks) / plan.vpp
        loss = 12 * tokens * model.vocab / t if last else 0
        held.append(16 * params / shards + buffers + 2 * tokens * kept * own * flying + loss)
    return max(held)


def _model_flops(model: Any) -> tuple[float, float]:
    """A token's forward: all layers, the head."""
    products, attention, head = oracle.token_flops(model)
    return model.L * (products + attention), head


def compared() -> list[str]:
    """Rows of the second table, and their mean errors."""
    rows = [
        "| run | source | tokens/s/GPU | predicted | error | GiB | model | error "
        "| as torchtitan keeps | error | |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    kinds = ("bf16", "float8")
    errors: dict[str, list[float]] = {kind: [] for kind in kinds}
    for what in ("memory by the model", "memory as torchtitan keeps"):
        errors |= {f"{what}, {kind}": [] for kind in kinds}
    for text, plan, model, cluster, source, speed, gib, note in published():
        mine = _speed(plan, model, cluster)
        off = mine / speed - 1
        kind = "float8" if "float8" in note else "bf16"
        errors[kind].append(abs(off))
        space = "| | | | | "
        if gib is not None:
            held = max(stage.total for stage in reference.memory(plan, model)) / GIB
            theirs = titan_bytes(plan, model) / GIB
            errors[f"memory by the model, {kind}"].append(abs(held / gib - 1))
            errors[f"memory as torchtitan keeps, {kind}"].append(abs(theirs / gib - 1))
            space = f"| {gib:.1f} | {held:.1f} | {held / gib - 1:+.0%} "
            space += f"| {theirs:.1f} | {theirs / gib - 1:+.0%} "
        rows.append(
            f"| {text} | {source} | {speed:,.0f} | {mine:,.0f} | {off:+.0%} {space}| {note} |"
        )
    said = "; ".join(
        f"{name}: mean {statistics.mean(found):.0%}, at most {max(found):.0%} ({len(found)} rows)"
        for name, found in errors.items()
    )
    rows += ["", f"Absolute errors. {said}.", "", *_states()]
    return rows


def _states() -> list[str]:
    """What Megatron's own tool says of states, against `memory`."""
    rows = [
        "| states of Llama-3-70B, fullest GPU | Megatron's tool | here | error |",
        "|---|---|---|---|",
    ]
    for tp, pp, dp, gib in ((8, 4, 2, 25.3745), (8, 2, 4, 36.9609)):
        one = reference.memory(Plan(tp, pp, 1, dp, 1, 64), LLAMA_70B)
        held = max(stage.param + stage.grad + stage.opt for stage in one) / GIB
        text = f"TP {tp} PP {pp} DP {dp}"
        rows.append(f"| {text} | {gib:.4f} GiB | {held:.4f} GiB | {held / gib - 1:+.3%} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows, faults = searched(options.runs)
    command = f"python benchmarks/planner.py --runs {options.runs}"
    lines = [
        "# A planner of parallelism",
        "",
        results_page.made(command),
        "",
        "## All plans of 64 and of 4,096 GPUs",
        "",
        "Median processor time of the reference's `plan_search`; brute force is the suite's "
        "second planner, which costs every plan that fits. The batch grows with the GPUs.",
        "",
        *rows,
        "",
        "## Beside published runs",
        "",
        "Kernels take what their shapes ask for (`exercises/lab12/kernels_lab12.py`): waves of "
        "tiles, bytes between the products, and one number a machine, `reach`, set by one run that "
        "is not in the table:",
        "",
        *(f"- {name} {reach(name):.2f}: {row[0]}" for name, row in alone().items()),
        "",
        "FSDP is zero 3; beside a pipeline torchtitan keeps what it gathered: zero 1 here. "
        "Times are for bf16: rows with float8 products were run on faster ones. A step of a "
        "pipeline has as many micro-batches as stages, torchtitan's default. Memory is "
        "torchtitan's figure, what its allocator had reserved, beside two predictions. The model "
        "keeps what Megatron keeps of a layer, and the logits once. `titan_bytes` keeps what "
        "torchtitan's checkpointing, loss and FSDP keep, read off its source; no number in it is "
        "fitted. Its float8 rows leave out what float8 adds, and with tensor parallelism the "
        "copies of the loss over a split vocabulary.",
        "",
        *compared(),
    ]
    return results_page.told(lines, faults, RESULTS if options.write else None)


if __name__ == "__main__":
    sys.exit(main())
