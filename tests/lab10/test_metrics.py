"""metrics: what `vllm bench serve` reports.

Oracles: the definitions in exact fractions; figures by hand; vLLM's own `calculate_metrics`, whose
answers stand in `vllm_metrics.json`, and live where it can be imported.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path

from types_lab10 import Output, Slo

from grader.suite import expect, task

from . import oracles_serving as oracles

WHY = {
    "completed": "requests without success count nowhere",
    "total_input_tokens": "prompts of requests with success",
    "total_output_tokens": "tokens of requests with success",
    "request_throughput": "requests with success a second",
    "request_goodput": "requests a second that keep every part of the SLO",
    "output_throughput": "generated tokens a second",
    "total_token_throughput": "prompt and generated tokens a second",
    "ttft": "one value a request",
    "tpot": "one value a request of two tokens or more: (latency - TTFT) / (tokens - 1)",
    "itl": "one value a gap, of all requests in one pool",
    "e2el": "one latency a request",
}
# Three requests of 10, 4 and 1 tokens in 10 s, for TTFT <= 200 ms and TPOT <= 50 ms.
THREE = [
    Output(100, 10, 0.1, [0.02] * 9, 0.28),
    Output(50, 4, 0.5, [0.01, 0.02, 0.19], 0.72),
    Output(7, 1, 0.1, [], 0.1),
]


def _agree(got, want, source=""):
    expect.true(isinstance(got, dict), "metrics returns a dict of numbers", type(got).__name__)
    for name, value in want.items():
        parts = name.split("_")
        because = WHY.get(name) or WHY[parts[1]]
        if name.startswith("p99"):
            because += "; p99 lies between the two nearest values, linearly"
        if name.startswith("std"):
            because += "; the population's standard deviation"
        if name not in got:
            line = f"the key {name!r} is missing"
            raise expect.Failure("property", [line], f"no {name}", because)
        because += source
        unit = "ms" if name.endswith("_ms") else None
        scale = max(abs(value), abs(want.get(f"p99_{parts[1]}_ms", 0.0) if unit else 0.0))
        expect.close(got[name], value, because, n=400, scale=scale, what=name, unit=unit)


def _drawn(rng, n=37):
    """Requests with bursts, failures, single tokens, and one number of tokens above the gaps."""
    outputs = []
    for index in range(n):
        tokens = int(rng.choice([1, 2, 3, 17, 60]))
        gaps = [float(g) for g in rng.gamma(0.7, 0.04, tokens - 1)]
        ttft = float(rng.gamma(1.5, 0.2))
        latency = ttft + math.fsum(gaps)
        if tokens == 17:  # two tokens came at once: fewer gaps than tokens say
            gaps = [*gaps[:5], gaps[5] + gaps[6], *gaps[7:]]
        prompt = int(rng.integers(1, 5000))
        outputs.append(Output(prompt, tokens, ttft, gaps, latency, bool(index % 9 != 4)))
    return outputs


@task("metrics", holds=("counts", "rates", "tpot", "itl", "p99", "good"))
def test_three_requests_by_hand(student):
    """10, 4 and 1 tokens: mean TPOT 46.67 ms, mean ITL 33.33 ms, goodput 0.2/s, p99 TTFT 492 ms.
    Oracle: by hand, and vLLM 0.33.0's calculate_metrics."""
    got = student.metrics(THREE, 10.0, Slo(200.0, 50.0))
    want = {
        "completed": 3,
        "total_input_tokens": 157,
        "total_output_tokens": 15,
        "mean_tpot_ms": (20 + 220 / 3) / 2,
        "mean_itl_ms": 400 / 12,
        "p99_ttft_ms": 492.0,
        "median_ttft_ms": 100.0,
        "request_goodput": 0.2,
        "request_throughput": 0.3,
        "output_throughput": 1.5,
        "total_token_throughput": 17.2,
    }
    _agree(got, want)


@task(
    "metrics",
    holds=(
        "counts",
        "rates",
        "success",
        "ttft_e2el",
        "tpot",
        "itl",
        "std",
        "p99",
        "milliseconds",
        "each_part",
    ),
)
def test_drawn_requests(student, rng):
    """All names, for requests with failures, bursts and single tokens.
    Oracle: vLLM's definitions in exact fractions."""
    for asked in ("ttft and tpot", "e2el", "all"):
        outputs = _drawn(rng)
        # Limits that lie between two requests' values, and so far from each.
        slo = Slo(
            None if asked == "e2el" else _between(o.ttft_s for o in outputs),
            None if asked == "e2el" else _between(_tpots(outputs)),
            None if asked == "ttft and tpot" else _between(o.latency_s for o in outputs),
        )
        duration = float(rng.uniform(3, 90))
        _agree(student.metrics(outputs, duration, slo), oracles.metrics(outputs, duration, slo))


def _tpots(outputs):
    return [
        (o.latency_s - o.ttft_s) / (o.output_tokens - 1) for o in outputs if o.output_tokens > 1
    ]


def _between(values):
    """A limit in ms amid the widest gap among the middle values."""
    ordered = sorted(values)
    third = len(ordered) // 3
    pairs = list(zip(ordered[third : 2 * third], ordered[third + 1 :], strict=False))
    low, high = max(pairs, key=lambda pair: pair[1] - pair[0])
    return 1000 * (low + high) / 2


@task("metrics", holds=("vllm",))
def test_what_vllm_said(student):
    """The same requests as vLLM's own function was given.
    Oracle: vLLM 0.33.0, calculate_metrics; make_metrics.py."""
    source = f" (vLLM {_recorded()['vllm']})"
    for case in _recorded()["cases"]:
        outputs = [Output(*row) for row in case["outputs"]]
        got = student.metrics(outputs, case["duration_s"], Slo(*case["slo"]))
        _agree(got, case["metrics"], source)


@functools.cache
def _recorded():
    return json.loads(Path(__file__).with_name("vllm_metrics.json").read_text(encoding="utf-8"))


# Limits in ms whose seconds, times 1000, come out above them by the last bit: 63.7, 127.4, 2007.
MISSED = [ms for ms in (tenth / 10 for tenth in range(1, 21_000)) if ms / 1000 * 1000 > ms]


@task("metrics", holds=("in_seconds", "equal_is_good"))
def test_a_limit_is_compared_in_seconds(student):
    """TTFT, TPOT and latency of exactly 70 ms for a limit of 70 ms, and so on; a microsecond more.
    Oracle: the limit divided by 1000 is the float that the value is; by hand for what is more."""
    rows = []
    for ms in [70.0, *MISSED[::6]]:
        limit, over = ms / 1000, ms / 1000 + 1e-6
        for value, good in ((limit, 1), (over, 0)):
            ttft = Output(9, 2, value, [9.0 - value], 9.0)
            rows.append((ttft, Slo(ttft_ms=ms), good, "TTFT"))
            tpot = Output(9, 2, 0.0, [value], value)
            rows.append((tpot, Slo(tpot_ms=ms), good, "TPOT"))
            rows.append((tpot, Slo(1e6, e2el_ms=ms), good, "latency"))
    got = student.map("metrics", [([row[0]], 1.0 + i, row[1]) for i, row in enumerate(rows)])
    for i, (report, (out, slo, good, name)) in enumerate(zip(got, rows, strict=True)):
        value = out.ttft_s if name == "TTFT" else out.latency_s
        because = f", with a {name} of {value!r} s and {slo}: equal is good, 1 us more is not"
        _agree(report, {"request_goodput": good / (1.0 + i)}, because)


@task("metrics", holds=("zero_limit", "one_token"))
def test_a_limit_of_zero_is_a_limit(student):
    """0 ms asks for something, None does not; a single token keeps a TPOT of 0 ms.
    Oracle: by hand."""
    outputs = [Output(9, 1, 0.0, [], 0.5), Output(9, 2, 0.25, [0.25], 0.5)]
    rows = (
        (Slo(250.0, 0.0), 1),
        (Slo(0.0), 1),
        (Slo(None, 0.0), 1),
        (Slo(None, None, 0.0), 0),
        (Slo(0.0, 0.0), 1),
        (Slo(0.0, None, 500.0), 1),
        (Slo(250.0, 250.0, 0.0), 0),
        (Slo(None, 250.0), 2),
    )
    for seconds, (slo, good) in enumerate(rows, start=1):
        because = f", with {slo}: 0 ms is a limit"
        got = student.metrics(outputs, float(seconds), slo)
        _agree(got, {"request_goodput": good / seconds}, because)


@task("metrics", gate=False, holds=("each_part", "equal_is_good", "nothing_asked", "one_token"))
def test_each_part_of_the_slo(student):
    """A limit that is just reached is good, each part counts, none at all is no goodput.
    Oracle: by hand, with times that floats have exactly."""
    outputs = [
        Output(9, 3, 0.5, [0.25, 0.25], 1.0),
        Output(9, 3, 0.25, [0.5, 0.5], 1.25),
        Output(9, 1, 1.0, [], 1.0),
        Output(9, 1, 0.0, [], 0.0, False),  # without success it keeps nothing
    ]
    for slo, good in (
        (Slo(500.0, 250.0), 1),
        (Slo(500.0), 2),
        (Slo(None, 250.0), 2),
        (Slo(None, None, 1000.0), 2),
        (Slo(None, 499.0, 1250.0), 2),
        (Slo(999.0, 500.0, 1250.0), 2),
        (Slo(1000.0, 500.0, 1250.0), 3),
        (Slo(), 0),
    ):
        because = f", with {slo}"
        _agree(student.metrics(outputs, 4.0, slo), {"request_goodput": good / 4}, because)


@task("metrics", holds=("tpot",))
def test_tokens_that_all_come_at_once(student):
    """Two tokens at one time have a TPOT of 0, which counts in mean, median and p99.
    Oracle: by hand, with times that floats have exactly."""
    outputs = [Output(9, 2, 0.5, [0.0], 0.5), Output(9, 3, 0.5, [0.25, 0.25], 1.0)]
    got = student.metrics(outputs, 4.0, Slo(500.0))
    want = {"mean_tpot_ms": 125.0, "median_tpot_ms": 125.0, "std_tpot_ms": 125.0}
    _agree(got, {**want, "mean_itl_ms": 500.0 / 3}, ": 0 is a value, a missing one is not")


@task("metrics", gate=False, holds=("success", "none_is_zero", "no_time", "short_time"))
def test_nothing_to_count(student):
    """No success, or single tokens only: 0.0, and no time is refused.   Oracle: the contract."""
    failed = [Output(9, 3, 0.5, [0.25, 0.25], 1.0, False)]
    for outputs in ([], failed):
        got = student.metrics(outputs, 4.0, Slo(500.0))
        _agree(got, oracles.metrics(outputs, 4.0, Slo(500.0)))
    got = student.metrics([Output(9, 1, 0.5, [], 0.5)], 4.0, Slo(500.0))
    _agree(got, {"mean_tpot_ms": 0.0, "request_goodput": 0.25}, " (a single token here)")
    for figure in ("mean", "median", "std", "p99"):
        _agree(got, {f"{figure}_tpot_ms": 0.0, f"{figure}_itl_ms": 0.0}, " (a single token here)")
    for duration in (0.0, 0, -1.0, -0.0, float("-inf")):
        with expect.raises(ValueError, because=f"nothing is measured in {duration} s"):
            student.metrics(THREE, duration, Slo())
    with expect.raises(ValueError, because="nothing is measured in nan s, which is not above 0"):
        student.metrics(THREE, float("nan"), Slo())
    for duration in (0.5, 1e-9, 1):
        want = {"request_throughput": 3 / duration, "output_throughput": 15 / duration}
        _agree(student.metrics(THREE, duration, Slo()), want, f" (in {duration} s)")
    got = student.metrics(tuple(THREE), 10.0, Slo(200.0, 50.0))
    _agree(got, {"completed": 3, "request_goodput": 0.2}, " (the outputs are in a tuple)")


@task("metrics", extra=("vllm",))
def test_vllm_itself(student, rng):
    """The same requests through vLLM's own function.   Oracle: vLLM's calculate_metrics, live."""
    from . import make_metrics

    outputs = _drawn(rng)
    want = make_metrics.ask(outputs, 12.5, Slo(300.0, 40.0))
    _agree(student.metrics(outputs, 12.5, Slo(300.0, 40.0)), want)
