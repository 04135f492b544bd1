"""nsys_queries on exports with absent tables and absent names; roofline on kernels whose FLOPs and
bytes follow from what they compute."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import pytest
from types_lab09 import FLOP_COUNTER, KernelCounters, Peaks

from grader.lab import datasets
from grader.suite import expect, format, task

from . import nsys_db, traces
from . import oracles_tools as oracles

A100 = Peaks("A100-SXM4-80GB", {"h": 78e12, "f": 19.5e12, "d": 9.7e12}, 2.039e12)
NCCL, COUNTERS = "hta_nccl_data.json.gz", "hta_cupti_counters.json.gz"

# -- nsys_queries ---------------------------------------------------------------------------------


def _report(student, path, *top):
    """The Report that comes back, its lists as lists."""
    got = student.nsys_queries(path, *top)
    expect.equal(format.kind(got), "Report", "nsys_queries returns a Report", "what came back")
    because = "a Report has lists of kernels and of gaps"
    kernels = expect.sequence(got.kernels, because, "KernelSum", "kernels")
    gaps = expect.sequence(got.gaps, because, "Gap", "gaps")
    expect.equal(format.kind(got.ranges), "dict", "ranges: by name, their time", "ranges")
    return dataclasses.replace(got, kernels=kernels, gaps=gaps)


def _kernels(report, count=None):
    return [(k.name, k.count, k.total_us) for k in report.kernels][:count]


def _same_kernels(got, want, because):
    mine = _kernels(got)
    expect.equal([row[:2] for row in mine], [row[:2] for row in want], because, what="kernels")
    for (name, _, us), (_, _, right) in zip(mine, want, strict=True):
        expect.close(us, right, because, n=100, what=name[:40], unit="us")


@task(
    "nsys_queries",
    holds=("kernels", "latency", "bytes", "ranges", "in_ns", "ids", "demangled", "idle"),
)
@pytest.mark.parametrize("cause", ["pageable_copy", "exposed_comm"])
def test_an_export_says_what_its_trace_says(student, rng, tmp_path, cause):
    """Kernels, launch latency, bytes, idle time and ranges of a training run on three streams.
    Oracle: the simulation's own truth, counted tick by tick before there was a file."""
    made = traces.generate(cause, int(rng.integers(2**31)), style="floats", steps=3)
    truth = made.ranks[0].truth
    path = nsys_db.write(made.ranks[0].json, tmp_path / "run.sqlite")
    got = _report(student, path, 4)
    rows = [(name, count, us) for name, (count, us) in truth.kernels.items()]
    rows.sort(key=lambda row: (-row[2], row[0]))
    _same_kernels(got, rows[:4], "the export counts ns, and a us is 1,000 of them")
    expect.close(
        got.launch_latency_us,
        oracles.median(truth.latencies_us),
        "from the beginning of the call to the beginning of its kernel, joined by correlationId",
        n=20,
        what="launch_latency_us",
    )
    because = "copyKind 1 is host to device, and `bytes` says how many"
    expect.equal(got.h2d_bytes, truth.h2d_bytes, because, what="h2d_bytes")
    idle = truth.span_us - truth.busy_us
    because = "a gap is where no kernel, copy or memset runs on any stream"
    expect.close(got.idle_us, idle, because, n=1000, scale=truth.span_us, what="idle_us")
    lengths = sorted((length for _, length in truth.gaps_us), reverse=True)[:4]
    mine = [gap.length_us for gap in got.gaps]
    expect.close(mine, lengths, because, n=1000, scale=truth.span_us, what="gaps", unit="us")
    _ranges(got, oracles.host_ranges(made.ranks[0].json))


def _ranges(got, want):
    because = "a range's name is its text or, where that is NULL, the string that textId names"
    expect.equal(sorted(got.ranges), sorted(want), because, what="names of ranges")
    for name, us in want.items():
        expect.close(got.ranges[name], us, because, n=10_000, what=name, unit="us")


@task("nsys_queries", holds=("absent", "no_latency", "equal_kernels", "empty", "copy_kinds"))
@pytest.mark.parametrize("case", nsys_db.EDGES)
def test_absent_tables_are_empty_tables(student, tmp_path, case):
    """Exports in which tables are missing, launches without kernels, kernels without launches.
    Oracle: databases of a few rows, summed up by hand."""
    path, facts = nsys_db.EDGES[case](tmp_path / "edge.sqlite")
    got = _report(student, path)
    because = "a table is created when its first row needs it: an absent one is an empty one"
    rows = [(oracles.full_name(n), count, us) for n, (count, us) in facts["kernels"].items()]
    _same_kernels(got, sorted(rows, key=lambda row: (-row[2], row[0])), because)
    latency = oracles.median(facts["launch_us"]) if facts["launch_us"] else 0.0
    expect.close(got.launch_latency_us, latency, because, n=4, what="launch_latency_us")
    expect.equal(got.h2d_bytes, facts["h2d_bytes"], because, what="h2d_bytes")
    lengths = sorted(facts["gaps_us"], reverse=True)
    mine = [gap.length_us for gap in got.gaps]
    expect.close(mine, lengths, because, n=4, scale=10.0, what="gaps", unit="us")
    expect.close(got.idle_us, sum(lengths), because, n=4, scale=10.0, what="idle_us", unit="us")


@task("nsys_queries", holds=("text", "unnamed", "no_string", "nothing_left_out"))
def test_names_may_be_missing(student, tmp_path):
    """No StringIds, a NULL text, an id that nothing names: all of it is still counted.
    Oracle: databases of a few rows, summed up by hand."""
    got = _report(student, oracles.nameless(tmp_path / "nameless.sqlite"))
    because = "what has no name has taken time all the same"
    _same_kernels(got, [("<77>", 2, 7.0), ("<78>", 1, 0.1)], because)
    _ranges(got, {"step": 2.0, "<unnamed>": 0.1})
    path, _ = nsys_db.EDGES["null_text"](tmp_path / "null.sqlite")
    want = {"forward": 1.1, "backward": 1.5, "<unnamed>": 0.1}
    _ranges(_report(student, path), want)


@task("nsys_queries", holds=("idle",))
def test_gaps_are_those_of_the_whole_gpu(student, tmp_path):
    """Two streams that take turns, and a long kernel that covers short ones.
    Oracle: 2 us of 31 are idle, those from 12 to 14 us; then a memset, 3 us, a kernel: by hand."""
    got = _report(student, oracles.two_streams(tmp_path / "two.sqlite"))
    because = "while one stream is idle another may work, and a long kernel outlasts later ones"
    expect.close(got.idle_us, 2.0, because, n=4, scale=31.0, what="idle_us", unit="us")
    mine = [(gap.start_us, gap.length_us) for gap in got.gaps]
    expect.close(mine, [(12.0, 2.0)], because, n=4, what="gaps", unit="us")
    got = _report(student, oracles.a_memset_first(tmp_path / "memset.sqlite"))
    mine = [(gap.start_us, gap.length_us) for gap in got.gaps]
    because = "the first work may be a memset, and rows come in any order"
    expect.close(mine, [(1.0, 3.0)], because, n=4, what="gaps", unit="us")


@task("nsys_queries", gate=False, holds=("fine", "latency"))
def test_a_median_may_lie_between_two_nanoseconds(student, tmp_path):
    """Two launches, 1 and 2 ns before their kernels of 1 ns, with 3 ns between them.
    Oracle: a few rows by hand: the median is 1.5 ns."""
    got = _report(student, oracles.short_launches(tmp_path / "short.sqlite"))
    because = "an answer is not rounded: half a nanosecond is 0.0005 us"
    expect.close(got.launch_latency_us, 0.0015, because, n=4, what="launch_latency_us", unit="us")
    rows = [(oracles.full_name("gemm"), 2, 0.002)]
    _same_kernels(got, rows, because)
    expect.close(got.idle_us, 0.003, because, n=4, what="idle_us", unit="us")


@task("nsys_queries", gate=False, holds=("top", "equal_kernels"))
def test_top_is_the_longest_list(student, tmp_path):
    """top=1 and top=2 cut the lists, not the sums.   Oracle: the same database by hand."""
    path, _ = nsys_db.EDGES["graph_launch"](tmp_path / "edge.sqlite")
    for top in (1, 2):
        got = _report(student, path, top)
        want = [(oracles.full_name(name), 1, 1.0) for name in ("a", "b")][:top]
        _same_kernels(got, want, "of kernels with equal times the name decides")
        expect.close(got.idle_us, 0.5, "idle time is that of all gaps", scale=3.0, unit="us")


@task("nsys_queries", gate=False, holds=("no_database", "below_one"))
def test_what_is_no_export_is_refused_by_name(student, tmp_path):
    """A text file, a path without a file, and a top of 0 and less.   Oracle: the contract."""
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"not a database, whatever its name " * 60)
    refused = "only the exported .sqlite can be queried"
    with expect.raises(ValueError, because=refused, names=("run.nsys-rep",)):
        _report(student, path)
    good, _ = nsys_db.EDGES["only_kernels"](tmp_path / "edge.sqlite")
    for top in (0, -1):
        with expect.raises(ValueError, because="at least one kernel is asked for"):
            _report(student, good, top)


@task("nsys_queries", gate=False, holds=("not_there", "none_made"))
def test_a_file_that_is_not_there_is_not_made(student):
    """A misspelt path.   Oracle: the sentence, and the folder's list of files."""
    said, files = student.probe.of_an_absent_file("rank-7.sqlite")
    refused = said.startswith("ValueError") and "rank-7.sqlite" in said
    because = "a path without a file is a ValueError with its name, not an empty report"
    expect.true(refused, because, said or "a report")
    expect.equal(files, [], "whoever only reads makes no file", what="files made")


@task("nsys_queries", gate=False, holds=("empty",))
def test_a_database_of_something_else_is_an_empty_report(student, tmp_path):
    """A file of no byte, and one with other tables.   Oracle: the contract."""
    (tmp_path / "empty.sqlite").write_bytes(b"")
    for path in (tmp_path / "empty.sqlite", oracles.other_tables(tmp_path / "other.sqlite")):
        got = _report(student, path)
        mine = (_kernels(got), got.launch_latency_us, got.h2d_bytes, got.idle_us, got.gaps)
        because = "no table is a report of nothing"
        expect.equal((*mine, got.ranges), ([], 0.0, 0, 0.0, [], {}), because, what="report")


@task("nsys_queries", holds=("since_the_first", "equal_gaps", "top", "default"))
def test_gaps_are_told_from_the_first_work(student, tmp_path):
    """Work begins 1 ms into the file; gaps of 2, 5, 2, 2, 1, 2, 0.6 and 0.001 us, one ended
    by a memset, one by a copy.   Oracle: a few rows by hand."""
    path = oracles.equal_gaps(tmp_path / "gaps.sqlite")
    want = [(7.0, 5.0), (1.0, 2.0), (16.0, 2.0), (22.0, 2.0), (32.0, 2.0), (27.0, 1.0)]
    want += [(35.4, 0.6), (35.0, 0.001)]
    because = "us since the first GPU work began; the longest first, of equal ones the earlier"
    for got, count in ((_report(student, path), 5), (_report(student, path, 9), 8)):
        mine = [(gap.start_us, gap.length_us) for gap in got.gaps]
        expect.close(mine, want[:count], because, n=4, scale=40.0, what="gaps", unit="us")
        expect.close(got.idle_us, 14.601, because, n=4, scale=40.0, what="idle_us", unit="us")
    rows = [(f"k{name}", 4.0) for name in (1, 3, 5)] + [(f"k{name}", 1.0) for name in (0, 6, 7, 8)]
    rows = [(oracles.full_name(name), 1, us) for name, us in [*rows, ("k9", 0.399), ("k91", 0.1)]]
    _same_kernels(
        _report(student, path, 9), rows, "of kernels with equal times the name decides"
    )
    expect.equal(got.h2d_bytes, 0, "none of the copies is to the device", what="h2d_bytes")
    counts = [len(_report(student, path).kernels), len(_report(student, path, 9).kernels)]
    expect.equal(counts, [5, 9], "at most top kernels, 5 unless told otherwise", "kernels")


@task("nsys_queries", holds=("pushed", "empty_text", "no_end"))
def test_ranges_are_those_that_were_pushed(student, tmp_path):
    """Ranges of type 60, one without an end, an empty text, and names that come twice.
    Oracle: a few rows by hand."""
    got = _report(student, oracles.many_ranges(tmp_path / "ranges.sqlite"))
    because = "eventType 59 alone is a range here, with its text, empty or not, or its textId's"
    expect.equal(sorted(got.ranges), sorted(["", "step", "load"]), because, what="names of ranges")
    want = {"": 3.0, "step": 5.5, "load": 0.25}
    for name, us in want.items():
        expect.close(got.ranges[name], us, because, n=10, what=repr(name), unit="us")


@task("nsys_queries", extra=(f"data:{NCCL}",))
def test_the_export_of_a_real_trace(student, tmp_path):
    """3 steps of DDP on an A100: 2,700 kernels, of 660,551 us 157,500 busy.
    Oracle: the span of the trace, less its busy time as Holistic Trace Analysis 0.5.0 has it."""
    path = nsys_db.write(datasets.need(NCCL), tmp_path / "nccl.sqlite")
    got = _report(student, path, 10_000)
    expect.equal(sum(k.count for k in got.kernels), 2700, "every launch is a row", what="kernels")
    expect.within(got.idle_us, 503_000.0, 503_100.0, "span less busy time", "idle_us", "us")
    expect.equal(got.h2d_bytes, 0, "these steps copied nothing from the host", what="h2d_bytes")


# -- roofline -------------------------------------------------------------------------------------


def _points(student, rows, peaks):
    """The list of points that comes back."""
    because = "roofline returns a list, a point for each row"
    return expect.sequence(student.roofline(rows, peaks), because, "Point", "points")


@task("roofline", holds=("in_order", "flops", "fma", "halves", "bytes", "not_asked"))
def test_flops_and_bytes_of_known_kernels(student, rng):
    """Element-wise kernels, matrix products and packed halves.
    Oracle: what the kernels compute and move, from their shapes."""
    rows = oracles.shapes(rng)
    got = _points(student, [row for row, _, _ in rows], A100)
    expect.equal([p.name for p in got], [row.name for row, _, _ in rows], "in the rows' order")
    for point, (row, flops, moved) in zip(got, rows, strict=True):
        fma = "a fused multiply-add is two operations, and a packed half does two at once"
        expect.close(point.flops, flops, fma, n=8, what=f"{row.name}: flops", unit="FLOP")
        dram = "the roofline's bytes are those of DRAM, not those asked of the caches"
        expect.close(point.bytes, moved, dram, n=4, what=f"{row.name}: bytes", unit="bytes")
        because = "intensity is FLOPs a byte of DRAM"
        what = f"{row.name}: intensity"
        expect.close(point.intensity, flops / moved, because, n=16, what=what)


@task("roofline", holds=("ridge",))
@pytest.mark.parametrize("row", oracles.PUBLISHED.values(), ids=lambda row: row["id"])
def test_the_bound_changes_at_the_published_ridge(student, row):
    """With a peak as the only roof, kernels turn from memory to compute bound at the ridge.
    Oracle: published.json, peaks divided by bandwidths."""
    peak, bandwidth = row["inputs"]["tflops"] * 1e12, row["inputs"]["TBps"] * 1e12
    peaks = Peaks(row["id"], {"f": peak}, bandwidth)
    tried = [row["expected"] * (1 + step / 50_000) for step in range(-100, 101)]
    rows = [oracles.launch("k", 10**9, fadd=ridge * 1e9) for ridge in tried]
    bounds = [point.bound for point in _points(student, rows, peaks)]
    because = "above the ridge, peak / bandwidth, FLOPs take longer than bytes"
    expect.equal(set(bounds), {"memory", "compute"}, because, what="bounds around the ridge")
    expect.published(tried[bounds.index("compute")], row)
    turns = sum(a != b for a, b in itertools.pairwise(bounds))
    expect.equal(turns, 1, because, what="changes of the bound")


@task("roofline", holds=("bound",))
def test_each_precision_has_a_peak_of_its_own(student, rng):
    """Doubles at 9.7 TFLOP/s bind where floats at 19.5 do not; mixed kernels add their times.
    Oracle: seconds of FLOPs and of bytes, compared as fractions."""
    from fractions import Fraction

    rows, want = [], []
    while len(rows) < 40:
        counts = {f"{p}{op}": int(rng.integers(0, 10**6)) for p in "hfd" for op in ("add", "fma")}
        for key in rng.choice(list(counts), 3, replace=False):
            counts[str(key)] = 0
        seconds = sum(
            Fraction(counts[f"{p}add"] + 2 * counts[f"{p}fma"], int(peak))
            for p, peak in A100.flops_per_s.items()
        )
        moved = int(seconds * int(A100.bytes_per_s) * Fraction(int(rng.integers(50, 150)), 100))
        compute = seconds / Fraction(moved, int(A100.bytes_per_s)) if moved else Fraction(2)
        if abs(compute - 1) < Fraction(1, 50):
            continue  # too near to the ridge to be anybody's mistake
        rows.append(oracles.launch("mixed", moved, **counts))
        want.append("compute" if compute > 1 else "memory")
    got = [point.bound for point in _points(student, rows, A100)]
    because = "each precision's FLOPs take their time at their own peak"
    expect.equal(got, want, because, what="bounds")


@task("roofline", holds=("tensor",))
def test_tensor_cores_are_not_in_these_counters(student):
    """A bf16 GEMM of 4096^3 counts 0.1 % of its FLOPs here and looks memory bound.
    Oracle: 2 x 4096^3 FLOPs, and the scalar epilogue that the counters see."""
    n = 4096
    row = oracles.launch("bf16_gemm", 3 * 2 * n * n, fmul=n * n, hfma=0)
    row.counters["sm__inst_executed_pipe_tensor.sum"] = 2.0 * n**3 / 4096
    got = _points(student, [row], A100)[0]
    because = "the counters of add, mul and fma do not see what tensor cores do"
    expect.close(got.flops, n * n, because, n=4, what="flops", unit="FLOP")
    expect.equal(got.bound, "memory", because, what="bound")


@task("roofline", holds=("both_ways",))
def test_reads_and_writes_add_up_to_the_traffic(student, rng):
    """Rows with dram__bytes_read.sum and dram__bytes_write.sum alone.   Oracle: their sum."""
    read, written = (int(rng.integers(1, 10**9)) for _ in range(2))
    row = oracles.launch("copy", 0, fadd=5)
    counters = {k: v for k, v in row.counters.items() if k != "dram__bytes.sum"}
    counters |= {"dram__bytes_read.sum": float(read), "dram__bytes_write.sum": float(written)}
    got = _points(student, [KernelCounters("copy", counters)], A100)[0]
    expect.close(got.bytes, read + written, "traffic goes both ways", n=4, what="bytes")


@task("roofline", gate=False, holds=("corners",))
def test_corners_of_the_plane(student):
    """No byte, no FLOP, neither.   Oracle: the contract: inf, 0.0, 0.0."""
    rows = [oracles.launch(name, moved, fadd=n) for name, moved, n in _CORNERS]
    got = _points(student, rows, A100)
    want = [math.inf, 0.0, 0.0]
    because = "FLOPs without bytes are infinitely intense, and nothing at all is 0.0"
    expect.equal([point.intensity for point in got], want, because, what="intensity")
    expect.equal([p.bound for p in got], ["compute", "memory", "memory"], because, what="bound")


_CORNERS = [("registers only", 0, 10**6), ("copy", 10**6, 0), ("empty", 0, 0)]


@task("roofline", gate=False, holds=("without", "none_of_nine", "lanes", "no_peak"))
def test_what_cannot_be_placed_is_refused(student):
    """No counters, no bytes, no peak, half_lanes of 4.   Oracle: the contract."""
    good = oracles.launch("k", 100, fadd=5)
    without = {k: v for k, v in good.counters.items() if k != "dram__bytes.sum"}
    no_flops = {"dram__bytes.sum": 100.0}
    double = oracles.launch("k", 100, dadd=5)
    for row, peaks, because in (
        (KernelCounters("k", without), A100, "bytes that nobody counted are not 0"),
        (KernelCounters("k", no_flops), A100, "FLOPs that nobody counted are not 0"),
        (double, Peaks("GPU", {"f": 1e12}, 1e12), "doubles need the peak of doubles"),
        (KernelCounters("k", good.counters, 4), A100, "an instruction holds one half or two"),
    ):
        with expect.raises(ValueError, because=because):
            _points(student, [row], peaks)


@task("roofline", gate=False, holds=("named", "without", "lanes", "no_peak"))
def test_a_refused_row_is_named(student):
    """Of three rows the second is wrong: which, and for what.   Oracle: names in the sentence."""
    good = oracles.launch("fine_kernel", 100, fadd=5)
    parts = {k: v for k, v in good.counters.items() if k != "dram__bytes.sum"}
    read, write = {"dram__bytes_read.sum": 5.0}, {"dram__bytes_write.sum": 5.0}
    double = oracles.launch("odd_kernel", 100, dadd=5).counters
    no_double = Peaks("GPU", {"f": 1e12}, 1e12)
    for counters, lanes, peaks, because in (
        (parts, 1, A100, "bytes that nobody counted are not 0"),
        (parts | read, 1, A100, "what was read is half of the traffic"),
        (parts | write, 1, A100, "what was written is half of the traffic"),
        ({"dram__bytes.sum": 100.0}, 1, A100, "FLOPs that nobody counted are not 0"),
        (good.counters, 0, A100, "an instruction holds one half or two"),
        (good.counters, 3, A100, "an instruction holds one half or two"),
        (double, 1, no_double, "doubles need the peak of doubles"),
        (double, 1, Peaks("GPU", {"f": 1e12, "d": 0.0}, 1e12), "a peak of 0 is none"),
        (double, 1, Peaks("GPU", {"f": 1e12, "d": -1.0}, 1e12), "a peak below 0 is none"),
    ):
        row = KernelCounters("odd_kernel", counters, lanes)
        try:
            with expect.raises(ValueError, because=because, names=("odd_kernel",)):
                _points(student, [good, row, good], peaks)
        except expect.Failure as failure:  # which row was taken is what tells mistakes apart
            failure.observed = [because, failure.observed]
            raise


@task("roofline", holds=("absent_is_zero", "bytes", "halves", "as_long"))
def test_what_is_enough_to_place_a_kernel(student):
    """One counter of the nine, a peak that nobody needs, both ways of counting bytes, packed code
    without halves, a kernel on the ridge.   Oracle: a few numbers by hand."""
    counter = FLOP_COUNTER.format
    one = KernelCounters("one", {counter("d", "fma"): 4.0, "dram__bytes.sum": 16.0})
    both = {counter("f", "add"): 6.0, "dram__bytes.sum": 3.0}
    both |= {"dram__bytes_read.sum": 50.0, "dram__bytes_write.sum": 50.0}
    packed = {counter("f", "mul"): 8.0, counter("h", "add"): 1.0, "dram__bytes.sum": 5.0}
    rows = [one, KernelCounters("both", both), KernelCounters("packed", packed, 2)]
    got = _points(student, rows, A100)
    because = "a counter that is not in the row is 0; dram__bytes.sum comes first; halves pack"
    mine = [(point.flops, point.bytes) for point in got]
    expect.close(mine, [(8.0, 16.0), (6.0, 3.0), (10.0, 5.0)], because, n=4, what="(flops, bytes)")
    got = _points(
        student, [oracles.launch("on the ridge", 4096, fadd=8192)], Peaks("", {"f": 2.0}, 1.0)
    )
    because = "compute is what takes longer than the bytes, not as long"
    expect.equal(got[0].bound, "memory", because, what="bound on the ridge")
    no_floats = Peaks("", {"d": 1.0}, 1.0)
    got = _points(student, [one], no_floats)
    expect.equal(got[0].bound, "memory", "only a precision with FLOPs needs its peak", what="bound")
    expect.equal(_points(student, [], A100), [], "no row, no point", what="points")


@task("roofline", extra=(f"data:{COUNTERS}",))
def test_the_counters_of_a_real_run(student):
    """AlexNet's first two fully connected layers on an A100: 128 x 4096 x 9216 and 128 x 4096^2.
    Oracle: 2mnk, which CUPTI's counters exceed by the epilogue, below 0.1 %."""
    import gzip

    with gzip.open(datasets.need(COUNTERS)) as file:
        events = json.load(file)["traceEvents"]
    sgemm = [e for e in events if e.get("name") == "ampere_sgemm_32x32_sliced1x4_tn"][:2]
    for event, (m, n, k) in zip(sgemm, ((128, 4096, 9216), (128, 4096, 4096)), strict=True):
        counters = {name: float(value) for name, value in event["args"].items()}
        counters["dram__bytes.sum"] = 4.0 * (m * k + k * n + m * n)
        flops = 2 * m * n * k
        got = _points(student, [KernelCounters("sgemm", counters)], A100)[0].flops
        because = f"fma counts {int(counters[FLOP_COUNTER.format('f', 'fma')]):,} = m n k"
        expect.within(got, flops, 1.002 * flops, because, "flops", "FLOP")
