"""load_azure and load_mooncake: files as they are published, quirks included."""

from __future__ import annotations

import json
import statistics
from datetime import datetime
from itertools import pairwise

import pytest
import workload_lab10 as workload
from types_lab10 import Req

from grader.lab import datasets
from grader.suite import expect, task

from . import traces

AZURE, MOONCAKE = "AzureLLMInferenceTrace_conv.csv", "mooncake_conversation_trace.jsonl"


def _azure_rows(rng, n, unit=10**7):
    """Ticks from the file's start (which is not a whole second), prompt, out."""
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
    expect.true(isinstance(got, list), "a trace is a list of requests", type(got).__name__)
    because = "one request a row, the last one included"
    expect.equal(len(got), len(rows), because, "requests")
    for number, (req, (ticks, prompt, out)) in enumerate(zip(got, rows, strict=True)):
        expect.equal(req.prompt_tokens, prompt, "ContextTokens is the prompt", f"row {number + 2}")
        expect.equal(req.out_tokens, out, "GeneratedTokens is the output", f"row {number + 2}")
        because = "seconds from the first row, to 100 ns: 7 digits follow the decimal point"
        want = (ticks - rows[0][0]) / unit
        expect.close(req.t_arrival_s, want, because, floor=1e-9, what=f"row {number + 2}", unit="s")
    expect.equal([req.id for req in got], list(range(len(rows))), "ids count from 0", "ids")


@task("load_azure", holds=("crlf", "no_end", "seven_digits", "both_numbers", "ids", "first_row"))
def test_the_file_as_published(student, rng, tmp_path):
    """CRLF, 7 digits, no end of the last line, over midnight.   Oracle: what was written."""
    rows = _azure_rows(rng, 60)
    lines = traces.azure_lines(rows, datetime(2023, 11, 16, 23, 59, 30))
    _same(student.load_azure(_write(tmp_path / "trace.csv", lines)), rows, 10**7)


@task("load_azure", holds=("crlf", "no_end", "other_digits"))
@pytest.mark.parametrize(
    ("end", "last", "digits"),
    [
        ("\n", True, 7),
        ("\n", False, 6),
        ("\r\n", True, 9),
        ("\n", True, 0),
        ("\r\n", False, 1),
        ("\n", False, 8),
    ],
)
def test_other_line_ends_and_digits(student, rng, tmp_path, end, last, digits):
    """LF, an end of the last line, other numbers of digits.   Oracle: what was written."""
    rows = _azure_rows(rng, 12, 10**digits if digits else 2)
    if not digits:
        rows = [(ticks // 2, prompt, out) for ticks, prompt, out in rows]
    lines = traces.azure_lines(rows, datetime(2023, 11, 16, 18, 15, 46), digits)
    _same(student.load_azure(_write(tmp_path / "t.csv", lines, end, last)), rows, 10**digits)


# Time zones that change their clocks, as POSIX writes them: no table of zones is needed.
ZONES = {
    "new_york_in_autumn": ("EST5EDT,M3.2.0,M11.1.0", datetime(2023, 11, 5, 0, 50)),
    "berlin_in_autumn": ("CET-1CEST,M3.5.0,M10.5.0/3", datetime(2023, 10, 29, 1, 50)),
    "berlin_in_spring": ("CET-1CEST,M3.5.0,M10.5.0/3", datetime(2023, 3, 26, 1, 50)),
    "kathmandu": ("<+0545>-5:45", datetime(2023, 11, 16, 18, 0)),
}


@task("load_azure", holds=("utc",))
@pytest.mark.parametrize("zone", ZONES)
def test_the_machines_time_zone_does_not_matter(student, tmp_path, zone):
    """A row every ten minutes over the night in which the machine's clock changes.
    Oracle: what was written; the file's times are UTC, and UTC has no such night."""
    posix, start = ZONES[zone]
    rows = [(10**7 * 600 * place + 1, 100 + place, 9 + place) for place in range(22)]
    path = _write(tmp_path / "night.csv", traces.azure_lines(rows, start))
    _same(student.probe.loaded_in("load_azure", path, posix), rows, 10**7)


@task("load_azure", holds=("to_a_nanosecond", "first_row"))
@pytest.mark.parametrize(
    "start",
    [datetime(2023, 12, 30, 23, 59, 59), datetime(2024, 2, 27, 12), datetime(1970, 1, 1)],
)
def test_days_later_it_is_as_exact(student, rng, tmp_path, start):
    """A week of rows, neighbours 1 ns and 100 ns apart, over a new year, a 29th of February, and
    from the second on that computers count from.
    Oracle: what was written."""
    ticks = sorted(int(t) for t in rng.integers(1, 7 * 86_400 * 10**9, 20))
    ticks = sorted([0, *ticks, ticks[9] + 1, ticks[15] + 100, ticks[19] + 999_999_999])
    rows = [(tick, 9 + place, 5) for place, tick in enumerate(ticks)]
    _same(
        student.load_azure(_write(tmp_path / "week.csv", traces.azure_lines(rows, start, 9))),
        rows,
        10**9,
    )


@task("load_azure", holds=("same_time", "one_token", "header_alone"))
def test_what_is_just_in_order(student, tmp_path):
    """One token each, rows of the same time, one row, no row.   Oracle: what was written."""
    start = datetime(2023, 11, 16, 18, 15, 46)
    for rows in ([(5, 1, 1), (5, 1, 1), (6, 1, 2), (6, 2, 1)], [(7, 1, 1)], []):
        path = _write(tmp_path / f"{len(rows)}.csv", traces.azure_lines(rows, start))
        _same(student.load_azure(path), rows, 10**7)


def _refused(student, function, path, line, what):
    said = student.probe.refusal_of(function, path)
    because = "whoever has a broken file needs its name and the line"
    if said is None:
        lines = [f"{function} returned, expected ValueError", f"line {line}: {what}"]
        raise expect.Failure("raises", lines, what, because)
    named = said.startswith(f"{path.name}:{line}:")
    expect.true(named, because, f"{said!r} for {what} in line {line} of {path.name}")


@task(
    "load_azure",
    gate=False,
    holds=("another_form", "digits_alone", "ten_digits", "fewer_tokens", "named"),
)
def test_a_broken_row_is_named(student, rng, tmp_path):
    """A ValueError with the file's name and the line.   Oracle: where it was broken."""
    good = traces.azure_lines(_azure_rows(rng, 9), datetime(2023, 11, 16, 18, 15, 46))
    stamp = good[5].split(",")[0]
    whole = stamp.partition(".")[0]
    for what, broken in (
        ("a field is missing", f"{stamp},374"),
        ("a field too many", f"{stamp},374,44,1"),
        ("no number", f"{stamp},abc,44"),
        ("half a token", f"{stamp},374.5,44"),
        ("no time", "yesterday,374,44"),
        ("the time of another format", f"{stamp.replace('-', '/')},374,44"),
        ("no prompt token", f"{stamp},0,44"),
        ("no generated token", f"{stamp},374,0"),
        ("a negative number", f"{stamp},374,-44"),
        ("a sign", f"{stamp},+374,44"),
        ("an underscore", f"{stamp},3_74,44"),
        ("a blank before the number", f"{stamp}, 374,44"),
        ("digits of another script", f"{stamp},٣٧٤,44"),
        ("an empty field", f"{stamp},,44"),
        ("an exponent", f"{stamp},374,1e3"),
        ("ten digits of a second", f"{whole}.6805900123,374,44"),
        ("a fraction that is not a number", f"{whole}.68x5900,374,44"),
        ("a T between date and time", f"{stamp.replace(' ', 'T')},374,44"),
        ("an offset from UTC", f"{stamp}+00:00,374,44"),
        ("no seconds", f"{whole[:-3]},374,44"),
        ("a 30th of February", "2024-02-30 18:15:46.0000000,374,44"),
        ("an hour 25", f"{whole[:11]}25:15:46.0000000,374,44"),
        ("no time at all", ",374,44"),
        ("an empty row", ""),
    ):
        lines = [*good[:5], broken, *good[6:]]
        path = _write(tmp_path / "broken.csv", lines)
        _refused(student, "load_azure", path, 6, what)


@task("load_azure", gate=False, holds=("row_above", "named"))
def test_a_time_before_that_of_the_row_above(student, tmp_path):
    """Earlier than the first row, than the row above alone, by a nanosecond, over a new year.
    Oracle: the times, as they are written."""
    for *above, below in (
        ("2023-11-16 18:15:46", "2023-11-16 18:15:47", "2023-11-16 18:15:45"),
        ("2023-11-16 18:15:46", "2023-11-16 18:15:48", "2023-11-16 18:15:47"),
        ("2023-11-16 18:15:46.680590001", "2023-11-16 18:15:46.68059"),
        ("1970-01-01 00:00:00", "1969-12-31 23:59:59"),
        ("2024-01-01 00:00:00", "2023-12-31 23:59:59.999999999"),
    ):
        lines = [traces.HEADER, *(f"{stamp},5,5" for stamp in (*above, below))]
        path = _write(tmp_path / "back.csv", lines)
        _refused(student, "load_azure", path, len(lines), f"{below} below {above[-1]}")


@task("load_azure", gate=False, holds=("first_of_several", "named", "another_form"))
def test_which_line_is_named(student, rng, tmp_path):
    """The first row, the last one, the first of two, an empty row at the end, the header, an empty
    file.
    Oracle: where it was broken."""
    good = traces.azure_lines(_azure_rows(rng, 9), datetime(2023, 11, 16, 18, 15, 46))
    for line in (2, 10):  # the first row and the last one
        lines = [*good[: line - 1], f"{good[line - 1]},", *good[line:]]
        _refused(student, "load_azure", _write(tmp_path / "c.csv", lines), line, "a field too many")
    lines = [*good[:4], "first", *good[5:7], "second", *good[8:]]
    _refused(student, "load_azure", _write(tmp_path / "two.csv", lines), 5, "the first of two")
    lines = [*good[:4], good[1].replace("2023", "2022", 1), *good[5:7], "second", *good[8:]]
    what = "a time before the row above, and a broken row further down"
    _refused(student, "load_azure", _write(tmp_path / "both.csv", lines), 5, what)
    lines = [*good, ""]
    _refused(student, "load_azure", _write(tmp_path / "e.csv", lines, "\n", True), 11, "empty row")
    for what, lines in (
        ("no header", good[1:]),
        ("no line", []),
        ("the columns in another order", ["TIMESTAMP,GeneratedTokens,ContextTokens", *good[1:]]),
        ("a column too many", [f"{good[0]},Model", *good[1:]]),
    ):
        _refused(student, "load_azure", _write(tmp_path / "x.csv", lines), 1, what)


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
    expect.true(isinstance(got, list), "a trace is a list of requests", type(got).__name__)
    expect.equal(len(got), len(rows), "one request a line, the last one included", "requests")
    for number, (req, want) in enumerate(zip(got, rows, strict=True)):
        what = f"line {number + 1}"
        because = "timestamp is in milliseconds, and times count from the first line's"
        seconds = (round(1000 * want.t_arrival_s) - round(1000 * rows[0].t_arrival_s)) / 1000
        expect.close(req.t_arrival_s, seconds, because, floor=1e-9, what=what, unit="s")
        expect.equal(req.prompt_tokens, want.prompt_tokens, "input_length is the prompt", what)
        expect.equal(req.out_tokens, want.out_tokens, "output_length is the output", what)
        because = "hash_ids are the prompt's blocks, as they stand"
        expect.equal(list(req.block_hashes), want.block_hashes, because, what)
    expect.equal([req.id for req in got], list(range(len(rows))), "ids count from 0", "ids")


@task("load_mooncake", holds=("milliseconds", "hashes", "no_end", "first_line", "numbers", "ids"))
@pytest.mark.parametrize(("offset", "last"), [(0, True), (27_000, False)])
def test_a_line_is_a_request(student, rng, tmp_path, offset, last):
    """Milliseconds, hashes of 512-token blocks, a last line with and without an end.
    Oracle: what was written."""
    rows = workload.mooncake(40, int(rng.integers(10**6)))
    path = _write(tmp_path / "trace.jsonl", traces.mooncake_lines(rows, offset), "\n", last)
    _same_mooncake(student.load_mooncake(path), rows)


NUMBERS = ("timestamp", "input_length", "output_length")


def _mooncake_line(**changed):
    """A line with some values changed; a key whose value is `...` is left out."""
    row = {"timestamp": 99_000, "input_length": 5, "output_length": 1, "hash_ids": [0]}
    row |= changed
    return json.dumps({key: value for key, value in row.items() if value is not ...})


# (times in ms, and for each line: prompt, out_tokens, hashes, other keys)
BY_HAND = {
    "single_milliseconds": ([27_001, 27_002, 27_999, 9_027_001], 600, 2, [5, 9], {}),
    "two_of_one_time": ([3000, 3000, 6000, 6000], 600, 2, [5, 9], {}),
    "one_token": ([0, 7], 1, 1, [0], {}),
    "exactly_512": ([0, 7], 512, 3, [0], {}),
    "exactly_1024": ([0, 7], 1024, 3, [7, 8], {}),
    "513": ([0, 7], 513, 3, [0, -7], {}),
    "long_hashes_that_repeat": ([0, 7], 1025, 1, [2**53 + 1, 3, 2**53 + 1], {}),
    "keys_that_nobody_asked_for": ([0, 7], 600, 2, [5, 9], {"type": "text", "turn": None}),
    "ends_of_a_line_within_a_text": ([0, 7], 600, 2, [5, 9], {"text": "a\u2028b\u0085c\u2029"}),
}


@task("load_mooncake", holds=("milliseconds", "hashes", "one_token", "same_time", "other_keys"))
@pytest.mark.parametrize("case", BY_HAND)
def test_lines_by_hand(student, tmp_path, case):
    """Single milliseconds, lines of one time, one token, exactly 512 and 513 of them, hashes of 0,
    below 0 and above 2**53, keys in another order, keys that nobody asked for.
    Oracle: what was written."""
    times, prompt, out, hashes, others = BY_HAND[case]
    row = {"hash_ids": hashes, "output_length": out, **others, "input_length": prompt}
    lines = [json.dumps({**row, "timestamp": time}, ensure_ascii=False) for time in times]
    want = [Req(i, time / 1000, prompt, out, hashes) for i, time in enumerate(times)]
    path = _write(tmp_path / "by_hand.jsonl", lines, "\n", True)
    _same_mooncake(student.load_mooncake(path), want)


@task("load_mooncake", gate=False, holds=("empty_file", "no_end"))
def test_a_file_of_one_line_and_of_none(student, tmp_path):
    """One request, with and without a line end, and none.   Oracle: what was written."""
    line = '{"timestamp": 5, "input_length": 3, "output_length": 2, "hash_ids": [4]}'
    for last in (True, False):
        path = _write(tmp_path / f"{last}.jsonl", [line], "\n", last)
        _same_mooncake(student.load_mooncake(path), [Req(0, 0.0, 3, 2, [4])])
    _same_mooncake(student.load_mooncake(_write(tmp_path / "empty.jsonl", [])), [])


@task(
    "load_mooncake",
    gate=False,
    holds=("such_an_object", "fewer_tokens", "wrong_number", "named"),
)
def test_a_broken_line_is_named(student, rng, tmp_path):
    """A ValueError with the file's name and the line.   Oracle: where it was broken."""
    good = traces.mooncake_lines(workload.mooncake(12, int(rng.integers(10**6))), 9000)
    line = _mooncake_line
    for what, broken in (
        ("cut off", good[3][:-9]),
        ("a list", "[1, 2]"),
        ("null", "null"),
        ("a number", "7"),
        ("a text", '"timestamp"'),
        ("empty", ""),
        ("no hash for a token", line(hash_ids=[])),
        ("a hash too many", line(hash_ids=[0, 1])),
        ("a hash too few", line(input_length=513)),
        ("512 tokens and two hashes", line(input_length=512, hash_ids=[0, 1])),
        ("hashes that are a text", line(hash_ids="7")),
        ("hashes that are an object", line(hash_ids={"7": 1})),
        ("hashes that are a number", line(hash_ids=7)),
        ("no prompt token", line(input_length=0, hash_ids=[])),
        ("fewer than none", line(input_length=-5, hash_ids=[])),
        ("no generated token", line(output_length=0)),
        ("fewer generated than none", line(output_length=-1)),
        *((f"no {key}", line(**{key: ...})) for key in (*NUMBERS, "hash_ids")),
    ):
        path = _write(tmp_path / "broken.jsonl", [*good[:3], broken], "\n", True)
        _refused(student, "load_mooncake", path, 4, what)


@task("load_mooncake", gate=False, holds=("integers",))
def test_numbers_are_integers(student, tmp_path):
    """A text, true, null, a list, 1.0, 1.5 and NaN for each of the numbers.
    Oracle: JSON's types; in Python true is an int."""
    good, line = [_mooncake_line(timestamp=1)], _mooncake_line
    for value in ("1", True, None, [1], 1.0, 1.5, float("nan")):
        rows = [(f"{key} is {value!r}", line(**{key: value})) for key in NUMBERS]
        for what, broken in [*rows, (f"a hash is {value!r}", line(hash_ids=[value]))]:
            path = _write(tmp_path / "broken.jsonl", [*good, broken], "\n", True)
            _refused(student, "load_mooncake", path, 2, what)


@task("load_mooncake", gate=False, holds=("line_above", "first_of_several", "named"))
def test_which_line_is_named_of_mooncake(student, rng, tmp_path):
    """Times that go back, not only behind the first, a first and a last line, the first of two, an
    empty line at the end.
    Oracle: where it was broken."""
    good = traces.mooncake_lines(workload.mooncake(12, int(rng.integers(10**6))), 9000)
    line = _mooncake_line
    rising = [line(timestamp=at) for at in (1000, 3000, 2000, 4000)]
    for what, lines, number in (
        ("before the first line", [*good[:3], line(timestamp=2)], 4),
        ("before the line above, not before the first", rising, 3),
        ("a millisecond before", [line(timestamp=at) for at in (7, 9, 8)], 3),
        ("before a first line at 0", [line(timestamp=at) for at in (0, -5)], 2),
        ("the first line", ["{}", *good], 1),
        ("the last line, without an end", [*good, "{"], len(good) + 1),
        ("the first of two", [*good[:2], "{", good[2], "}"], 3),
        ("a time that goes back, then a broken line", [*rising, "{"], 3),
        ("an empty line at the end", [*good, "", ""], len(good) + 1),
    ):
        path = _write(tmp_path / "lines.jsonl", lines, "\n")
        _refused(student, "load_mooncake", path, number, what)


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
