"""The figures of lab 09's page: closed forms, and what the reference says of real traces, which
`make_page_runs.py` keeps in `page_runs.json`. One of the traces is read again where it is there, so
a stale file is seen."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

from grader.author.page_claims import assumed, claim, fact, figures, measured, published, table
from grader.author.page_facts import FACTS
from grader.author.page_figures import plain
from grader.lab import datasets

from .make_page_runs import timeline

RUNS = json.loads(Path(__file__).with_name("page_runs.json").read_text(encoding="utf-8"))
DDP, ALEXNET = RUNS["hta_nccl_data"], RUNS["hta_alexnet"]
RANKS = RUNS["hta_sampled_rank-0"], RUNS["hta_sampled_rank-1"]
OF_DDP, OF_ALEXNET = "hta_nccl_data.json.gz", "hta_alexnet.json.gz"
OF_RANKS, OF_COUNTERS = "hta_sampled_rank-*.json.gz", "hta_cupti_counters.json.gz"
WORKED = ((0, 10), (5, 30), (8, 12), (14, 31), (40, 45))  # the page's intervals
MAMF = "Bekman, Machine Learning Engineering, maximum achievable matmul FLOPS: H100 SXM, bf16"


def peak_of(name):
    return Fraction(str(FACTS[f"{name} bf16 dense"].value))


def ridge(name):
    return peak_of(name) / Fraction(str(FACTS[f"{name} bandwidth"].value))


def shares(parts):
    """Idle, compute and non-compute in % of the span."""
    kinds = ("idle", "compute", "non_compute")
    return [100 * parts[kind] / sum(parts[k] for k in kinds) for kind in kinds]


@table("breakdowns")
def breakdowns(code):
    yield "trace", "span us", "idle", "compute", "non-compute", "communication hidden"
    rows = (
        ("DDP, 2 ranks, 3 steps, A100", DDP),
        ("recommender, rank 0 of 128", RANKS[0]),
        ("recommender, rank 1 of 128", RANKS[1]),
    )
    for name, run in rows:
        percents = [*shares(run), 100 * run["hidden"]]
        yield name, plain(run["span_us"]), *(f"{plain(share, 1)} %" for share in percents)


@figures
def read_first(code):
    where = "**Time is a set.**"
    yield assumed(10, "us", "two streams of the text's own", where=where)
    yield measured(RANKS[0]["summed_us"], "us", f"{OF_RANKS}: sum of durations", where=where)
    yield measured(RANKS[0]["busy_us"], "", f"{OF_RANKS}: busy time, us", where=where)
    counters = "**Counters come second.**"
    yield claim(ridge("A100"), "FLOPs/byte", "ridge of an A100", where=counters)
    yield fact("A100 bf16 dense", where=counters)
    yield fact("A100 bandwidth", where=counters)
    yield published(80, "GB", "NVIDIA A100 data sheet (A100 80 GB SXM)", where=counters)
    for name in ("H100", "H200"):
        yield claim(ridge(name), "", f"ridge of an {name}", where=counters)
        yield claim(peak_of(name), "", f"TFLOP/s of an {name}", where=counters)
        rate = Fraction(str(FACTS[f"{name} bandwidth"].value))
        yield claim(rate, "", f"TB/s of an {name}", where=counters)


@figures
def worked(code):
    where = "are busy, of a span of 45"
    busy = code.busy_time(WORKED)
    span = max(end for _, end in WORKED) - min(start for start, _ in WORKED)
    yield claim(busy, "us", "the union of the table's intervals", where=where)
    yield claim(span, "", "their span", where=where)
    yield claim(sum(end - start for start, end in WORKED), "us", "their durations", where=where)
    yield measured(DDP["first_us"], "us", f"{OF_DDP}: ts of the first work", where=where)


@figures
def judged(code):
    where = "`diagnose` has a threshold"
    yield claim(100 * code.SHARE_AT_LEAST, "%", "SHARE_AT_LEAST", where=where)
    yield assumed(15, "%", "MARGIN in tests/lab09/test_diagnose.py", where=where)


@figures
def owners(code):
    where = "**Backward belongs to another thread.**"
    stages = RUNS["stages"]
    for name, value in stages["gpu_us"].items():
        if name != code.UNATTRIBUTED:
            yield measured(value, "us", f"{OF_DDP}: attribute, {name}", where=where)
    yield claim(sum(stages["gpu_us"].values()), "us", "the three ranges", where=where)
    alone = stages["backward_of_the_same_thread_us"]
    yield measured(alone, "us", f"{OF_DDP}: launched by the range's own thread", where=where)
    for name, value in stages["host_us"].items():
        yield measured(value, "us", f"{OF_DDP}: durations of {name}", where=where)
    backward = "an NVTX range's own duration is the host's time"
    yield measured(stages["gpu_us"]["## backward ##"], "us", f"{OF_DDP}: backward", where=backward)
    yield measured(DDP["summed_us"], "us", f"{OF_DDP}: sum of durations", where=backward)


@figures
def real_finding(code):
    path = datasets.path(OF_ALEXNET)
    if path and timeline(code, code.load_trace(path)) != ALEXNET:  # where it has been fetched
        raise ValueError("page_runs.json is stale: python tests/lab09/make_page_runs.py")
    where = "**One real finding.**"
    evidence, share = RUNS["findings"]["pageable_copy"]
    gap, begins = ALEXNET["longest_gap"]
    yield measured(evidence, "us", f"{OF_ALEXNET}: diagnose", where=where)
    yield measured(RUNS["pageable"]["copies"], "", f"{OF_ALEXNET}: copies", where=where)
    yield measured(ALEXNET["busy_us"], "us", f"{OF_ALEXNET}: busy time", where=where)
    yield claim(100 * share, "%", "copies / busy time", where=where)
    yield measured(ALEXNET["span_us"], "us", f"{OF_ALEXNET}: span", where=where)
    yield claim(shares(ALEXNET)[0], "%", "idle", where=where)
    yield measured(gap, "us", f"{OF_ALEXNET}: longest gap", where=where)
    yield measured(begins, "us", f"{OF_ALEXNET}: from the first work to that gap", where=where)
    said = "Microseconds, and of what whole"
    yield measured(evidence, "us", f"{OF_ALEXNET}: diagnose", where=said)
    yield claim(100 * share, "%", "copies / busy time", where=said)


@figures
def waiting(code):
    where = "**Waiting looks like traffic.**"
    yield measured(RANKS[0]["exposed_us"], "us", f"{OF_RANKS}: overlap, rank 0", where=where)
    yield measured(RANKS[1]["exposed_us"], "", f"{OF_RANKS}: overlap, rank 1", where=where)
    beyond = RANKS[0]["exposed_us"] - RANKS[1]["exposed_us"]
    if [beyond, beyond / RANKS[0]["busy_us"]] != RUNS["findings"]["straggler"]:
        raise ValueError("the straggler is not what one rank exposes beyond the other")
    yield claim(beyond, "us", "exposed beyond rank 1", where=where)
    yield claim(100 * beyond / RANKS[0]["busy_us"], "%", "of its busy time", where=where)
    why = "**Tools disagree for three reasons.**"
    yield assumed(2, "us", "a short kernel, the text's own", where=why)
    rows = "**A third of a file takes no time.**"
    for name, count in RUNS["rows"].items():
        yield measured(count, "", f"{OF_DDP}: rows, {name}", where=rows)


@figures
def counters(code):
    where = "**Counters do not see tensor cores.**"
    found = RUNS["counters"]
    products = 128 * 4096 * 9216
    if found["gemm_fma"] != products:
        raise ValueError(f"the counters have {found['gemm_fma']} fma, m n k is {products}")
    yield claim(products, "", "m n k of AlexNet's first linear layer", where=where)
    for count in (found["tensor_core"][0], found["tensor_core"][-1]):
        how = f"{OF_COUNTERS}: add, mul and 2 fma of a convolution on tensor cores"
        yield measured(count, "parameters", how, where=where)
    rows = columns = inner = 4096
    yield claim(rows * columns, "", "one operation an element of the output", where=where)
    yield claim(2 * rows * columns * inner, "", "FLOPs of a product of 4096^3", where=where)
    half = "**Half counts in a float kernel.**"
    added = found["added_float_fma"]
    if found["added_half_fma"] != 2 * added:
        raise ValueError("the addition has not twice as many half fma")
    yield measured(added, "", f"{OF_COUNTERS}: float fma of the addition", where=half)


@figures
def gains(code):
    idle = shares(DDP)[0]
    where = "Only if the GPU is busy"
    yield measured(idle, "%", f"{OF_DDP}: idle", where=where)
    if not 0.1 < (1 - idle / 100) / 2 < 1 / 8:
        raise ValueError("half of the busy time is not just below an eighth")
    sync, said = 14, "A share says what could be gained at most"
    yield assumed(sync, "%", "the text's own share", where=said)
    yield claim(1 / (1 - Fraction(sync, 100)), "times", "1 / (1 - 0.14)", where=said)


@figures
def appendix(code):
    where = "In the DDP trace durations add up to"
    yield measured(DDP["summed_us"], "us", f"{OF_DDP}: sum of durations", where=where)
    yield measured(DDP["busy_us"], "", f"{OF_DDP}: busy time, us", where=where)
    hta, inward = "**Where HTA differs.**", RUNS["inward"]
    yield claim(shares(RANKS[0]["earlier"])[0], "%", "rank 0 without its last step", where=hta)
    yield claim(shares(RANKS[0])[0], "", "rank 0, %", where=hta)
    yield measured(DDP["pieces"], "", f"{OF_DDP}: pieces of work", where=hta)
    yield measured(inward["most_lost_us"], "us", f"{OF_DDP}: rounded inward", where=hta)
    yield measured(DDP["busy_us"], "us", f"{OF_DDP}: busy time", where=hta)
    yield measured(inward["busy_us"], "us", f"{OF_DDP}: rounded inward", where=hta)
    for share in shares(inward):
        yield claim(share, "%", "rounded inward, as HTA does", where=hta)
    for share in shares(DDP):
        yield claim(share, "", "not rounded, %", where=hta)
    base = "**A time needs its base kept apart.**"
    first, since = DDP["first_us"], DDP["base_ns"] / 1e3 + DDP["first_us"]
    yield measured(first, "us", f"{OF_DDP}: ts of the first work", where=base)
    yield claim(math.ulp(first), "us", "between neighbouring floats there", where=base)
    yield claim(since, "us", "with the base", where=base)
    yield claim(math.ulp(since), "us", "between neighbouring floats there", where=base)
    promise = "**A peak is a promise of the data sheet.**"
    reached = 794.5
    yield published(reached, "TFLOP/s", MAMF, where=promise)
    yield claim(100 * Fraction(str(reached)) / peak_of("H100"), "%", "of the peak", where=promise)
    rate = Fraction(str(FACTS["H100 bandwidth"].value))
    yield claim(Fraction(str(reached)) / rate, "", "the ridge that one can reach", where=promise)
