"""load_azure and load_mooncake: files as they are published, quirks included."""

from __future__ import annotations

import statistics
from datetime import datetime
from itertools import pairwise

import pytest
import workload_lab10 as workload

from grader.lab import datasets
from grader.suite import expect, task

from . import traces

AZURE, MOONCAKE = "AzureLLMInferenceTrace_conv.csv", "mooncake_conversation_trace.jsonl"


def _azure_rows(rng, n, unit=10**7):
    """Ticks from the file's start (which is no whole second), prompt, out."""
    ticks = int(rng.integers(1, unit)) + (rng.integers(0, 5 * unit, n).cumsum())
    # Neighbours of 100 ns, and two of the same time.
    ticks[3], ticks[5] = ticks[2] + 1, ticks[4]
    ticks.sort()
    return [
        (int(t), int(p), int(o))
        for t, p, o in zip(ticks, rng.integers(2, 9000, n), rng.integers(1, 999, n), strict=True)
    ]


def _write(path, lines, end="\r\n", last=False, encoding="utf-8"):
    path.write_bytes((end.join(lines) + (end if last else "")).encode(encoding))
    return path


def _same(got, rows, unit):
    """The requests are the rows, in seconds from the first."""
    because = "one request a row, the last one included"
    expect.equal(len(got), len(rows), because, "requests")
    for number, (req, (ticks, prompt, out)) in enumerate(zip(got, rows, strict=True)):
        expect.equal(req.prompt_tokens, prompt, "ContextTokens is the prompt", f"row {number + 2}")
        expect.equal(req.out_tokens, out, "GeneratedTokens is the output", f"row {number + 2}")
        because = "seconds from the first row, to 100 ns: 7 digits follow the decimal point"
        want = (ticks - rows[0][0]) / unit
        expect.close(req.t_arrival_s, want, because, floor=2e-9, what=f"row {number + 2}", unit="s")
    expect.equal([req.id for req in got], list(range(len(rows))), "ids count from 0", "ids")


@task("load_azure")
def test_the_file_as_published(student, rng, tmp_path):
    """CRLF, 7 digits, no end of the last line, over midnight.   Oracle: what was written."""
    rows = _azure_rows(rng, 60)
    lines = traces.azure_lines(rows, datetime(2023, 11, 16, 23, 59, 30))
    _same(student.load_azure(_write(tmp_path / "trace.csv", lines)), rows, 10**7)


@task("load_azure")
@pytest.mark.parametrize(
    ("end", "last", "digits"),
    [("\n", True, 7), ("\n", False, 6), ("\r\n", True, 9), ("\n", True, 0)],
)
def test_other_line_ends_and_digits(student, rng, tmp_path, end, last, digits):
    """LF, an end of the last line, other numbers of digits.   Oracle: what was written."""
    rows = _azure_rows(rng, 12, 10**digits if digits else 2)
    if not digits:
        rows = [(ticks // 2, prompt, out) for ticks, prompt, out in rows]
    lines = traces.azure_lines(rows, datetime(2023, 11, 16, 18, 15, 46), digits)
    _same(student.load_azure(_write(tmp_path / "t.csv", lines, end, last)), rows, 10**digits)


def _refused(student, function, path, line, what):
    said = student.probe.refusal_of(function, path)
    because = "whoever has a broken file needs its name and the line"
    if said is None:
        lines = [f"{function} returned, expected ValueError", f"line {line}: {what}"]
        raise expect.Failure("raises", lines, None, because)
    expect.true(f"{path.name}:{line}" in said, because, f"{said!r} for {what} in line {line}")


@task("load_azure", gate=False)
def test_a_broken_row_is_named(student, rng, tmp_path):
    """A ValueError with the file's name and the line.   Oracle: where it was broken."""
    rows = _azure_rows(rng, 9)
    good = traces.azure_lines(rows, datetime(2023, 11, 16, 18, 15, 46))
    stamp = good[5].split(",")[0]
    for what, broken in (
        ("a field is missing", f"{stamp},374"),
        ("a field too many", f"{stamp},374,44,1"),
        ("no number", f"{stamp},abc,44"),
        ("half a token", f"{stamp},374.5,44"),
        ("no time", "yesterday,374,44"),
        ("the time of another format", f"{stamp.replace('-', '/')},374,44"),
        ("no token", f"{stamp},0,44"),
        ("a time before that of the row above", "2023-11-16 18:15:45.0000000,374,44"),
        ("an empty row", ""),
    ):
        lines = [*good[:5], broken, *good[6:]]
        path = _write(tmp_path / "broken.csv", lines)
        _refused(student, "load_azure", path, 6, what)
    _refused(student, "load_azure", _write(tmp_path / "x.csv", good[1:]), 1, "no header")


@task("load_azure", extra=(f"data:{AZURE}",))
def test_the_real_azure_trace(student):
    """19,366 requests, 22,361,870 and 4,088,665 tokens in 3,501.7 s.   Oracle: Splitwise's data."""
    got = student.load_azure(datasets.need(AZURE))
    expect.equal(len(got), 19_366, "every row, the last without an end too", "requests")
    prompt, out = sum(r.prompt_tokens for r in got), sum(r.out_tokens for r in got)
    expect.equal(prompt, 22_361_870, "the sum of ContextTokens", "prompt tokens")
    expect.equal(out, 4_088_665, "the sum of GeneratedTokens", "generated tokens")
    because = "from 18:15:46.6805900 to 19:14:08.4025270"
    expect.close(got[-1].t_arrival_s, 3501.721937, because, floor=2e-9, unit="s")
    drawn = workload.azure(workload.AZURE_CONVERSATION, seed=1)
    for what, f, rel in (
        ("mean prompt", lambda rows: statistics.mean(r.prompt_tokens for r in rows), 0.01),
        ("median prompt", lambda rows: statistics.median(r.prompt_tokens for r in rows), 0.01),
        ("mean output", lambda rows: statistics.mean(r.out_tokens for r in rows), 0.01),
        ("median output", lambda rows: statistics.median(r.out_tokens for r in rows), 0.01),
        ("CV of the gaps", _variation, 0.03),
        ("duration", lambda rows: rows[-1].t_arrival_s, 0.03),
    ):
        share = f(drawn) / f(got)
        expect.within(share, 1 - rel, 1 + rel, "the drawn trace is like the real one", what)


def _variation(rows):
    gaps = [b.t_arrival_s - a.t_arrival_s for a, b in pairwise(rows)]
    return statistics.pstdev(gaps) / statistics.mean(gaps)


def _same_mooncake(got, rows):
    expect.equal(len(got), len(rows), "one request a line, the last one included", "requests")
    for number, (req, want) in enumerate(zip(got, rows, strict=True)):
        what = f"line {number + 1}"
        because = "timestamp is in milliseconds, and times count from the first line's"
        seconds = want.t_arrival_s - rows[0].t_arrival_s
        expect.close(req.t_arrival_s, seconds, because, floor=1e-9, what=what, unit="s")
        expect.equal(req.prompt_tokens, want.prompt_tokens, "input_length is the prompt", what)
        expect.equal(req.out_tokens, want.out_tokens, "output_length is the output", what)
        because = "hash_ids are the prompt's blocks, as they stand"
        expect.equal(list(req.block_hashes), want.block_hashes, because, what)
    expect.equal([req.id for req in got], list(range(len(rows))), "ids count from 0", "ids")


@task("load_mooncake")
@pytest.mark.parametrize(("offset", "last"), [(0, True), (27_000, False)])
def test_a_line_is_a_request(student, rng, tmp_path, offset, last):
    """Milliseconds, hashes of 512-token blocks, a last line with and without an end.
    Oracle: what was written."""
    rows = workload.mooncake(40, int(rng.integers(10**6)))
    path = _write(tmp_path / "trace.jsonl", traces.mooncake_lines(rows, offset), "\n", last)
    _same_mooncake(student.load_mooncake(path), rows)


@task("load_mooncake", gate=False)
def test_a_broken_line_is_named(student, rng, tmp_path):
    """A ValueError with the file's name and the line.   Oracle: where it was broken."""
    good = traces.mooncake_lines(workload.mooncake(7, int(rng.integers(10**6))), 9000)
    for what, broken in (
        ("cut off", good[3][:-9]),
        ("no object", "[1, 2]"),
        ("a key is missing", '{"timestamp": 99000, "input_length": 5, "output_length": 1}'),
        ("no number", good[3].replace('"input_length": ', '"input_length": "x", "y": ')),
        ("a hash too many", good[3].replace('"hash_ids": [', '"hash_ids": [987654, ')),
        (
            "before the line above",
            '{"timestamp": 2, "input_length": 5, "output_length": 1, "hash_ids": [0]}',
        ),
        (
            "no token",
            '{"timestamp": 99000, "input_length": 5, "output_length": 0, "hash_ids": [0]}',
        ),
    ):
        path = _write(tmp_path / "broken.jsonl", [*good[:3], broken, *good[4:]], "\n", True)
        _refused(student, "load_mooncake", path, 4, what)


@task("load_mooncake", extra=(f"data:{MOONCAKE}",))
def test_the_real_mooncake_trace(student):
    """12,031 requests; 105,592 of 276,491 full blocks were there before.
    Oracle: counts on the published file; the drawn trace has the same rates within 2 points."""
    got = student.load_mooncake(datasets.need(MOONCAKE))
    expect.equal(len(got), 12_031, "a request a line", "requests")
    expect.close(got[-1].t_arrival_s, 3536.999, "milliseconds", floor=1e-9, unit="s")
    rates = traces.hit_rates(got)
    expect.close(rates[1], 105_592 / 276_491, "hits of full blocks", n=10)
    drawn = traces.hit_rates(workload.mooncake(seed=1))
    for mine, real, what in zip(drawn, rates, ("blocks", "full blocks", "tokens"), strict=True):
        expect.within(mine - real, -0.02, 0.02, "the drawn trace is like the real one", what)
