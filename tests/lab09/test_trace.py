"""load_trace, busy_time, temporal_breakdown, overlap, attribute: the algebra of a trace."""

import gzip
import json
import math

import pytest
from types_lab09 import Ev, Trace

from grader.lab import datasets
from grader.suite import expect, format, property_settings, task

from . import oracles, traces
from .oracles import AUTOGRAD, LOADER, MAIN, RANGES, call, host, in_order, work

NCCL, ALEXNET = "hta_nccl_data.json.gz", "hta_alexnet.json.gz"
RANK0, RANK1 = "hta_sampled_rank-0.json.gz", "hta_sampled_rank-1.json.gz"
NS = 1e-3  # us: who works in nanoseconds or in seconds rounds, and is right all the same


def _job(rng, style):
    """A whole training job on one GPU, and what is true of it; style is the way of writing."""
    made = traces.generate("exposed_comm", int(rng.integers(2**31)), style=style, ranks=1)
    return made, made.ranks[0].json, made.ranks[0].truth


# -- busy_time ------------------------------------------------------------------------------------

BY_HAND = {
    "apart": ([(0, 10), (20, 25)], 15),
    "touching": ([(0, 10), (10, 30)], 30),
    "two_streams": ([(0, 10), (5, 30)], 30),
    "one_in_another": ([(0, 100), (10, 20), (15, 30), (90, 120)], 120),
    "a_late_one_after_a_short_one": ([(0, 50), (5, 10), (20, 30), (60, 61)], 51),
    "twice_the_same": ([(3, 8), (3, 8)], 5),
    "begin_together": ([(2, 6), (2, 11), (2, 4)], 9),
    "in_any_order": ([(50, 60), (0, 10), (5, 20)], 30),
    "short_gaps": ([(0, 1), (1.5, 2), (2.25, 3), (9, 10)], 3.25),
    "nothing_in_between": ([(1, 4), (6, 6), (9, 10)], 4),
}
FINE = 2.0**-22  # us: a quarter of a picosecond; floats hold it and its multiples exactly
FINELY = "times may be finer than a nanosecond: no answer is rounded"


@task("busy_time", holds=("union", "any_order", "overlap", "gaps"))
@pytest.mark.parametrize("case", BY_HAND)
def test_intervals_counted_by_hand(student, case):
    """A microsecond in which two streams work is one busy microsecond.
    Oracle: sums done by hand, each of two or three numbers."""
    intervals, want = BY_HAND[case]
    got = student.busy_time([(float(start), float(end)) for start, end in intervals])
    expect.close(
        got, want, "each microsecond counts once, whatever runs in it", floor=NS, unit="us"
    )


@task("busy_time", holds=("union", "overlap"))
def test_busy_time_is_what_painting_covers(student, rng):
    """Random work on several streams is busy where painting it leaves colour.
    Oracle: a row of boxes, one a microsecond, painted and counted."""
    for streams in (1, 2, 5):
        drawn = rng.integers(0, (300, 40), (8 * streams, 2))
        intervals = [(int(start), int(start + length)) for start, length in drawn]
        got = student.busy_time([(float(a), float(b)) for a, b in intervals])
        want = oracles.covered(intervals)
        expect.close(
            got, want, "each microsecond counts once, whatever runs in it", floor=NS, unit="us"
        )


@task("busy_time", gate=False, holds=("any_order", "overlap"))
def test_cutting_and_repeating_change_nothing(student):
    """The order, a cut in two, a repeated interval: the same busy time. What lies apart adds up.
    Oracle: these laws, and a painted row."""
    from hypothesis import given
    from hypothesis import strategies as st

    pairs = st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda p: (p[0], p[0] + p[1]))

    @property_settings(30)
    @given(st.lists(pairs, min_size=1, max_size=12), st.randoms(use_true_random=False))
    def laws(intervals, random):
        shuffled = random.sample(intervals, len(intervals))
        cut = [piece for a, b in intervals for piece in ((a, (a + b) // 2), ((a + b) // 2, b))]
        moved = [(a + 1000, b + 1000) for a, b in intervals]
        rows = [intervals, shuffled, cut, intervals + intervals[::2], moved, moved + intervals]
        sent = [([(float(a), float(b)) for a, b in row],) for row in rows]
        want = oracles.covered(intervals)
        one, any_order, pieces, twice, later, both = student.map("busy_time", sent)
        expect.close(one, want, "each microsecond counts once", floor=NS, unit="us")
        expect.close(any_order, want, "the order of a list is no time", floor=NS, unit="us")
        expect.close(pieces, want, "a cut takes no time", floor=NS, unit="us")
        expect.close(twice, want, "a repeated interval adds no time", floor=NS, unit="us")
        expect.close(later, want, "a later start makes nothing longer", floor=NS, unit="us")
        expect.close(both, 2 * want, "parts that lie apart add up", floor=NS, unit="us")

    laws()


@task("busy_time", gate=False, holds=("nothing",))
def test_no_interval_is_no_time(student):
    """An empty list is busy for 0 us, and so are intervals without length.
    Oracle: the contract."""
    got = student.map("busy_time", [([],), ([(4.0, 4.0)],), ([(4.0, 6.0)],)])
    expect.close(got, [0.0, 0.0, 2.0], "nothing ran, so nothing was busy", floor=NS, unit="us")


@task("busy_time", gate=False, holds=("large_times",))
def test_timestamps_of_a_real_trace(student, rng):
    """Times of 4.5e12 us with three decimals, as new traces have them.
    Oracle: the same in whole nanoseconds, painted; a float there is 1 ns from the next."""
    zero = 4_458_676_416_788_066
    intervals = [(int(a), int(a + n)) for a, n in rng.integers((0, 1), (60_000, 9_000), (40, 2))]
    got = student.busy_time([((zero + a) / 1000, (zero + b) / 1000) for a, b in intervals])
    floor = 2 * len(intervals) * math.ulp(zero / 1000)
    want = oracles.covered(intervals) / 1000
    expect.close(got, want, "subtract first, add then: times are large", floor=floor, unit="us")


@task("busy_time", gate=False, holds=("gaps", "fine"))
@pytest.mark.parametrize("power", [5, 11, 20, 30])
def test_a_gap_is_idle_however_short(student, power):
    """1,000 stretches of a quarter of a us, 2^-power us apart: 250 us, and no gap among them.
    Oracle: fractions of powers of two, which floats hold exactly, as they do the sum."""
    step = 0.25 + 2.0**-power
    intervals = [(index * step, index * step + 0.25) for index in range(1000)]
    got = student.busy_time(intervals)
    why = "a gap is idle however short: nothing is rounded, and nothing is closed"
    expect.close(got, 250.0, why, floor=1e-7, unit="us")


@task("busy_time", gate=False, holds=("fine", "union"))
@pytest.mark.parametrize("power", [2, 11, 14, 22, 40])
def test_a_stretch_is_busy_however_short(student, power):
    """Three stretches of 5, 7 and 9 times 2^-power us, two of which overlap, and a whole us beside
    them.   Oracle: sums done by hand; floats hold these fractions exactly, as they do the sums."""
    unit = 2.0**-power
    rows = [(at * unit, (at + n) * unit) for at, n in ((0, 5), (3, 7), (20, 9))]
    alone, beside = student.map("busy_time", [(rows,), ([*rows, (4.0 * 2**8, 4.0 * 2**8 + 1)],)])
    expect.close(alone, 19 * unit, FINELY, floor=1e-9 * unit, unit="us")
    expect.close(beside, 1 + 19 * unit, FINELY, floor=1e-15, unit="us")


@task("busy_time", gate=False, holds=("backwards",))
def test_an_interval_that_ends_before_it_starts_is_refused(student):
    """(5, 3) is no interval; a file with one is broken.
    Oracle: the contract."""
    for wrong in (
        *([(5.0, 3.0)], [(0.0, 10.0), (5.0, 3.0)], [(9.0, 2.0), (0.0, 10.0)]),
        *([(5.0, 4.999)], [(2.0, 9.0), (7.0, 6.5)]),
    ):
        with expect.raises(ValueError, "an interval that ends before it starts hides a mistake"):
            student.busy_time(wrong)


@task("busy_time", gate=False, holds=("iterable",))
def test_intervals_may_come_one_by_one(student):
    """A generator of intervals is as good as a list.   Oracle: sums done by hand."""
    rows = [(5.0, 9.0), (0.0, 6.0), (20.0, 21.5)]
    got = student.probe.of_a_generator(rows)
    expect.close(got, 10.5, "intervals may be any iterable: go through it once", unit="us")


@task("busy_time", gate=False, holds=("below_zero",))
def test_times_below_zero_are_times(student):
    """Intervals before the trace's zero.   Oracle: sums done by hand."""
    got = student.map("busy_time", [([(-9.0, -4.0), (-5.0, 1.0)],), ([(-3.0, -2.0)],)])
    expect.close(got, [10.0, 1.0], "zero is a time like any other", unit="us")


# -- load_trace -----------------------------------------------------------------------------------

BASE_NS = 1_711_964_646_000_000_000


def _kineto(rng, integers):
    """The rows of a file, in no order, and the events in them that have a duration."""
    zero = 1_695_835_542_514_261_000 if integers else 4_458_676_522_690_655
    tick = 1000 if integers else 1

    def us(ns):
        return ns // 1000 if integers else ns / 1000

    rows, events = [], []

    def event(name, cat, at, ns, pid, tid, args):
        start, length = us(zero + at * tick), us(ns * tick)
        events.append(
            Ev(
                *(name, cat, float(start), float(length), pid, tid),
                *(args.get("stream"), args.get("correlation"), args),
            )
        )
        row = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
        rows.append(row | {"ts": start, "dur": length, "args": args})

    def other(ph, name, at, **more):
        row = {"ph": ph, "name": name, "pid": 4037, "tid": 4037, "ts": us(zero + at * tick)}
        rows.append(row | more)

    event("PyTorch Profiler (0)", "Trace", 0, 900_000, "Spans", "PyTorch Profiler", {"Op count": 0})
    event("ProfilerStep#4", "user_annotation", 10, 800_000, 4037, 4037, {"External id": 1})
    for corr in range(57_541, 57_549):
        at = int(rng.integers(20, 700_000))
        length = int(rng.integers(1, 40_000))
        stream = int(rng.integers(0, 24))
        gpu = {"stream": stream, "device": 0, "correlation": corr}
        name, cat = (
            ("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy"),
            ("Memset (Device)", "gpu_memset"),
            ("ampere_sgemm_128x64_tn", "kernel"),
        )[min(corr % 4, 2)]
        launch = {"cbid": 211, "correlation": corr}
        event("aten::linear", "cpu_op", at, length + 2000, 4037, 4037, {"External id": corr})
        event("aten::addmm", "cpu_op", at, length + 1000, 4037, 4037, {"External id": corr})
        event("cudaLaunchKernel", "cuda_runtime", at + 300, length, 4037, 4037, launch)
        event(name, cat, at + 50_000, length, 0, stream, gpu)
        if corr % 2:
            other("s", "ac2g", at + 300, cat="ac2g", id=corr)
            other("f", "ac2g", at + 50_000, cat="ac2g", id=corr, bp="e")
    for name in ("process_name", "process_labels", "thread_name"):
        other("M", name, 0, args={"name": "python"})
    other("i", "Iteration Start: PyTorch Profiler", 0, s="g")
    other("i", "Record Window End", 900_000, s="g")
    order = [int(i) for i in rng.permutation(len(rows))]
    inner = next(i for i, row in enumerate(rows) if row["name"] == "aten::addmm")
    order.sort(key=lambda i: i != inner)  # an inner event before the one that began with it
    return [rows[i] for i in order], events


def _write(folder, name, content, gz):
    """A file of that name; NaN as Python writes it."""
    text = json.dumps(content).encode()
    path = folder / name
    path.write_bytes(gzip.compress(text, 1) if gz else text)
    return path


def _events(got):
    """The events of what came back, in an order of their own, or a failure that says what it is."""
    expect.equal(format.kind(got), "Trace", "load_trace returns a Trace", "what came back")
    events = expect.sequence(got.events, "a Trace holds a list of Ev", "Ev", "events")
    return sorted(events, key=_place)


def _place(event):
    return str(event.name), str(event.corr), str(event.ts_us)


def _after(zero, time):
    """A large time, as far as it lies after another: so that a message shows its decimals."""
    return time - zero if isinstance(time, int | float) else time


def _same_times(got, want):
    got, want = _events(got), sorted(want, key=_place)
    why = "flows (s, f), instants (i) and metadata (M) have no duration; ph X has one"
    expect.equal(len(got), len(want), why, "events")
    why = "ts is in microseconds, and stays as the file has it"
    zero = min(event.ts_us for event in want)
    mine, theirs = ([_after(zero, e.ts_us) for e in events] for events in (got, want))
    expect.close(mine, theirs, why, floor=1e-3, what=f"ts_us - {zero}")
    why = "dur is in microseconds, with its decimals"
    expect.close([e.dur_us for e in got], [e.dur_us for e in want], why, floor=1e-4, what="dur_us")


def _same_fields(got, want, names):
    why = {
        "stream": "args['stream'] is the stream, an int, or None where there is none",
        "corr": "args['correlation'] joins a launch and its work: an int, or None for 0 or none",
        "pid": "an int for a whole number, otherwise the text",
        "tid": "an int for a whole number, otherwise the text",
        "cat": "the category says what an event is; an event without one is kept",
        "args": "args is kept as the file has it, {} where it has none",
    }
    got, want = _events(got), sorted(want, key=_place)
    for name in names:
        mine, theirs = ([getattr(event, name) for event in events] for events in (got, want))
        expect.equal(mine, theirs, why.get(name, "as the file has it"), name)


FILES = {
    "floats_gzipped": ("rank-0.pt.trace.json.gz", False, True),
    "integers_plain": ("worker.1695835542.json", True, False),
    "gzipped_without_suffix": ("trace.json", True, True),
}


@task("load_trace", holds=("complete", "gzipped", "both_ways"))
@pytest.mark.parametrize("form", FILES)
def test_only_complete_events_have_a_duration(student, rng, tmp_path, form):
    """Events with ph X come back with their times and ids, the other phases do not.
    Oracle: the events from which the file was written."""
    name, integers, gz = FILES[form]
    rows, events = _kineto(rng, integers)
    header = {"schemaVersion": 1, "displayTimeUnit": "ms"}
    header |= {} if integers else {"baseTimeNanoseconds": BASE_NS}
    got = student.load_trace(_write(tmp_path, name, header | {"traceEvents": rows}, gz))
    _same_times(got, events)
    _same_fields(got, events, ("name", "cat", "pid", "tid", "stream", "corr", "args"))


@task("load_trace", holds=("base",))
def test_the_base_is_kept_apart(student, rng, tmp_path):
    """`baseTimeNanoseconds` comes back exactly, and no nanosecond of an event is lost to it.
    Oracle: integers; a float of 1.7e15 us is 250 ns from the next."""
    start = 4_458_676_522_690_000 + int(rng.integers(1000))
    apart = [0, 1, 5, 30, 100, 240]
    rows = [
        {"ph": "X", "cat": "kernel", "name": f"k{i}", "pid": 0, "tid": 7, "dur": 0.5, "args": {}}
        | {"ts": (start + ns) / 1000}
        for i, ns in enumerate(apart)
    ]
    base = BASE_NS + 86_400_000_000_000 * int(rng.integers(50))
    content = {"baseTimeNanoseconds": base, "traceEvents": rows}
    got = student.load_trace(_write(tmp_path, "base.json.gz", content, True))
    times = {event.name: event.ts_us for event in _events(got)}
    want = [(start + ns) / 1000 for ns in apart]
    why = "as 1.7e15 us, events 5 ns apart would begin together: the base stays an int, apart"
    expect.close([times.get(f"k{i}") for i in range(6)], want, why, floor=1e-3, what="ts_us")
    expect.equal(got.base_ns, base, "an event's time since 1970 is base_ns + 1000 * ts_us")


@task("load_trace", holds=("no_dur", "no_cat", "no_args"))
def test_what_is_missing_has_a_default(student, tmp_path):
    """An event without cat, dur or args is still an event.
    Oracle: the contract, field by field."""
    rows = [
        {"ph": "X", "name": "a", "ts": 10, "dur": 4, "pid": 1, "tid": 2, "args": {"stream": 7}},
        {"ph": "X", "name": "b", "cat": "cpu_op", "ts": 11, "pid": 1, "tid": 2, "args": {"x": 1}},
        {"ph": "X", "name": "c", "cat": "cpu_op", "ts": 12, "dur": 2, "pid": 1, "tid": 2},
        {"ph": "X", "name": "d", "cat": "cpu_op", "ts": 13, "dur": None, "pid": 1, "tid": 2},
        {"ph": "X", "name": "e", "cat": "cpu_op", "ts": 14, "dur": math.nan, "pid": 1, "tid": 2},
        {"ph": "X", "name": "f", "ts": 15, "pid": 1, "tid": 2},
        {"ph": "X", "cat": "cpu_op", "ts": 16, "pid": 1, "tid": 2},
    ]
    got = student.load_trace(_write(tmp_path, "gaps.json", {"traceEvents": rows}, False))
    events = _events(got)
    why = "a missing field is no reason to drop an event"
    expect.equal([event.name for event in events], ["", *"abcdef"], why, "names")
    why = "an event without a duration took no time that anyone measured: 0.0"
    expect.close([event.dur_us for event in events], [0, 4, 0, 2, 0, 0, 0], why, what="dur_us")
    want = ["cpu_op", "", "cpu_op", "cpu_op", "cpu_op", "cpu_op", ""]
    expect.equal([event.cat for event in events], want, 'a missing category is ""', "cat")
    want = [{}, {"stream": 7}, {"x": 1}, {}, {}, {}, {}]
    expect.equal([event.args for event in events], want, "missing args are {}", "args")
    expect.equal(got.base_ns, 0, "without baseTimeNanoseconds, base_ns is 0", "base_ns")


@task("load_trace", holds=("ids", "places"))
def test_ids_are_ints_however_they_are_written(student, tmp_path):
    """7, 7.0 and "7" are one stream, and a correlation of 0 is none.
    Oracle: the contract, id by id."""
    written = [57541, 57541.0, "57541", 0, "0", None, "unknown"]
    rows = [
        {"ph": "X", "cat": "kernel", "name": str(i), "ts": 10 + i, "dur": 1, "pid": 0}
        | {"tid": value, "args": {"stream": value, "correlation": value}}
        for i, value in enumerate(written)
    ]
    row = {"ph": "X", "cat": "cpu_op", "name": "7", "ts": 20, "dur": 1, "pid": "1", "tid": 2}
    rows.append(row)
    got = _events(student.load_trace(_write(tmp_path, "ids.json", {"traceEvents": rows}, False)))
    expect.equal([e.name for e in got], list("01234567"), "every one of them is an event", "names")
    want = [57541, 57541, 57541, None, None, None, None, None]
    why = "a launch and its kernel must compare equal, and 0 joins nothing"
    expect.equal([e.corr for e in got], want, why, "corr")
    why = "stream 0 is a stream, the default one"
    want = [57541, 57541, 57541, 0, 0, None, None, None]
    expect.equal([e.stream for e in got], want, why, "stream")
    want = [57541, 57541, 57541, 0, 0]
    why = "threads are compared: 7 and '7' are one"
    expect.equal([e.tid for e in got[:5]], want, why, "tid")
    expect.equal(got[7].pid, 1, "a process is a number, also as text", "pid")
    kinds = [format.kind(value) for e in got[:3] for value in (e.corr, e.stream, e.tid)]
    expect.equal(kinds, ["int"] * 9, "an id is an int, however the file writes it", "types")


@task("load_trace", gate=False, holds=("ids", "places"))
def test_ids_of_any_size_and_places_that_are_not_whole(student, tmp_path):
    """A thread of 61 bits is exact; what is no whole number is no stream, and as a place a text.
    Oracle: the contract, id by id."""
    row = {"ph": "X", "cat": "kernel", "name": "k", "ts": 10, "dur": 1, "pid": 7.5}
    row |= {"tid": 2**60 + 1, "args": {"stream": 7.5, "correlation": 2**60 + 1}}
    (got,) = _events(student.load_trace(_write(tmp_path, "id.json", {"traceEvents": [row]}, False)))
    want = [2**60 + 1, 2**60 + 1]
    expect.equal([got.tid, got.corr], want, "an int of the file stays exact", "[tid, corr]")
    why = "half a stream is none, and a place that is no whole number is a text"
    expect.equal([got.stream, got.pid], [None, "7.5"], why, "[stream, pid]")


@task("load_trace", holds=("in_order", "longer_first"))
def test_events_are_in_order(student, rng, tmp_path):
    """Files have their events thread by thread; a Trace has them by time.
    Oracle: sorted numbers."""
    rows, events = _kineto(rng, True)
    got = student.load_trace(_write(tmp_path, "order.json", {"traceEvents": rows}, False))
    _same_times(got, events)
    zero = min(event.ts_us for event in events)
    mine = [(event.ts_us - zero, event.dur_us) for event in got.events]
    why = "by ts_us, and of two that begin together the longer, which encloses the other, first"
    want = sorted(mine, key=lambda times: (times[0], -times[1]))
    expect.equal(mine, want, why, f"(ts_us - {zero:.0f}, dur_us)")


@task("load_trace", holds=("cut_off",))
@pytest.mark.parametrize("gz", [True, False], ids=["gzipped", "plain"])
def test_a_file_that_is_cut_off_is_named(student, rng, tmp_path, gz):
    """A whole file is read; half of it is a ValueError that says which file.
    Oracle: the file's name in the sentence."""
    rows, events = _kineto(rng, True)
    name = f"rank-{int(rng.integers(100, 999))}.json" + ".gz" * gz
    path = _write(tmp_path, name, {"traceEvents": rows}, gz)
    _same_times(student.load_trace(path), events)
    whole = path.read_bytes()
    for length in (len(whole) // 2, len(whole) * 9 // 10):
        path.write_bytes(whole[:length])
        said = student.probe.refusal(path)
        why = "half a trace gives wrong times, so it is refused with a ValueError"
        got = "a trace" if said is None else "a ValueError"
        expect.equal(got, "a ValueError", why, "what came of the half of it")
        why = "who loads 128 ranks must read in the sentence which file it was"
        expect.true(name in said, why, said)
    if gz:  # its length is right, and a byte in the middle is not
        for at in (len(whole) // 3, len(whole) // 2, 20):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
            said = student.probe.refusal(path)
            why = "a damaged file is refused with a ValueError that says which"
            expect.true(said is not None and name in said, why, said or "a trace")


@task("load_trace", gate=False, holds=("complete",))
@pytest.mark.parametrize("style", ["floats", "integers", "sampled"])
def test_a_whole_job_is_read(student, rng, tmp_path, style):
    """Every kernel, copy and memset of a training job in each of three ways of writing.
    Oracle: the generator's own count, and the rows of the file with ph X."""
    made, content, truth = _job(rng, style)
    counts, base_ns = student.probe.counted(made.write(tmp_path)[0])
    got = {cat: counts.get(cat, 0) for cat in truth.counts}
    expect.equal(got, truth.counts, "each is one event", "GPU work")
    want = sum(row["ph"] == "X" for row in content["traceEvents"])
    expect.equal(sum(counts.values()), want, "events have ph X", "events")
    want = content.get("baseTimeNanoseconds", 0)
    expect.equal(base_ns, want, "the base is kept as an int", "base_ns")


@task("load_trace", gate=False, holds=("bare_list",))
def test_a_bare_list_is_a_trace(student, rng, tmp_path):
    """The Trace Event Format allows the list of events without anything around it.
    Oracle: the events from which the file was written."""
    rows, events = _kineto(rng, True)
    got = student.load_trace(_write(tmp_path, "list.json", rows, False))
    _same_times(got, events)
    header = (got.base_ns, got.rank, got.world_size)
    expect.equal(header, (0, None, None), "a list has no header", "(base_ns, rank, world_size)")


@task("load_trace", gate=False, holds=("nan",))
def test_a_nan_among_the_args(student, rng, tmp_path):
    """NaN and both infinities are no JSON, but are written: alone, in a list, in an object.
    Oracle: the events from which the file was written."""
    rows, events = _kineto(rng, False)
    odd = {"bandwidth": math.nan, "occupancy": math.inf, "least": -math.inf}
    odd |= {"each": [1.5, math.nan, [math.inf]], "of": {"L2": math.nan, "DRAM": [-math.inf, 0]}}
    for row in rows:
        if row["ph"] == "X" and row["tid"] != "PyTorch Profiler":
            row["args"].update(odd)  # the event's own, too
    content = {"baseTimeNanoseconds": BASE_NS, "traceEvents": rows}
    got = student.load_trace(_write(tmp_path, "nan.json.gz", content, True))
    _same_times(got, events)
    mine, theirs = ([_named(event.args) for event in _events(one)] for one in (got, Trace(events)))
    expect.equal(mine, theirs, "args is kept as the file has it, NaN and infinities too", "args")


def _named(value):
    """With NaN and infinities by their names: NaN does not equal itself."""
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_named(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@task("load_trace", gate=False, holds=("zeros", "no_args"))
def test_a_zero_is_a_value(student, tmp_path):
    """An event that begins at 0, takes 0 us, on process 0 and thread 0, with args that are 0, false
    or empty; and a base of 0.   Oracle: the contract, field by field."""
    args = {"stream": 0.0, "bytes": 0, "share": 0.0, "name": "", "grid": [], "of": {}, "on": False}
    args |= {"none": None, "External id": 0}
    rows = [
        {"ph": "X", "name": "", "cat": "", "ts": 0, "dur": 0, "pid": 0, "tid": 0, "args": args},
        {"ph": "X", "name": "b", "cat": "kernel", "ts": 0.0, "dur": 0.0, "pid": "0", "tid": 0.0}
        | {"args": {}},
    ]
    content = {"baseTimeNanoseconds": 0, "traceEvents": rows}
    got = student.load_trace(_write(tmp_path, "zeros.json", content, False))
    want = [Ev("", "", 0.0, 0.0, 0, 0, 0, None, args), Ev("b", "kernel", 0.0, 0.0, 0, 0)]
    _same_times(got, want)
    names = ("name", "cat", "ts_us", "dur_us", "pid", "tid", "stream", "corr", "args")
    _same_fields(got, want, names)
    expect.equal(got.base_ns, 0, "a base of 0 is a base", "base_ns")


@task("load_trace", gate=False, holds=("job",))
def test_the_rank_comes_with_it(student, rng, tmp_path):
    """`distributedInfo` says which rank of how many.
    Oracle: the numbers that were written."""
    rank, size = int(rng.integers(1, 64)), int(rng.integers(64, 128))
    for info, want in (
        ({"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": size}}, (rank, size)),
        ({"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": size}}, (0, size)),
        ({"distributedInfo": {"rank": 0, "world_size": 1}}, (0, 1)),
        ({"distributedInfo": {"world_size": size}}, (None, size)),
        ({"distributedInfo": {}}, (None, None)),
        ({"distributedInfo": {"rank": rank}}, (rank, None)),
        ({}, (None, None)),
    ):
        row = {"ph": "X", "name": "k", "ts": 1, "dur": 1, "pid": 0, "tid": 0}
        path = _write(tmp_path, "rank.json", info | {"traceEvents": [row]}, False)
        got = student.load_trace(path)
        expect.equal(len(_events(got)), 1, "the file has one event", "events")
        got, why = (got.rank, got.world_size), "what the file says; None where it says nothing"
        expect.equal(got, want, why, "(rank, world_size)")


@task("load_trace", gate=False, holds=("no_list",))
def test_what_is_no_trace_is_refused(student, tmp_path):
    """Other JSON is refused with its name.
    Oracle: the file's name in the sentence."""
    for content in ({"events": []}, {"traceEvents": None}, 3):
        said = student.probe.refusal(_write(tmp_path, "config.json", content, False))
        why = "what holds no list of events is a ValueError that says which file"
        expect.true(said is not None and "config.json" in said, why, said or "load_trace returned")


@task("load_trace", holds=("base_exact",))
def test_a_base_of_any_number_is_exact(student, tmp_path):
    """Bases of 19 digits; one is written with an exponent.   Oracle: integers."""
    for base in (1_711_964_646_000_000_001, 1_711_964_646_123_456_789, 7, 1.7e18):
        row = {"ph": "X", "name": "k", "ts": 1.5, "dur": 1, "pid": 0, "tid": 0}
        content = {"baseTimeNanoseconds": base, "traceEvents": [row]}
        got = student.load_trace(_write(tmp_path, "base.json", content, False))
        expect.equal(len(_events(got)), 1, "the file has one event", "events")
        why = "base_ns is an int and exact; through a float it would be up to 128 ns off"
        expect.equal([format.kind(got.base_ns), got.base_ns], ["int", int(base)], why, "base_ns")


@task("load_trace", gate=False, holds=("as_floats", "no_place"))
def test_times_are_floats_and_places_have_a_default(student, tmp_path):
    """Whole microseconds come back as floats; an event without pid and tid has "".
    Oracle: the contract, field by field."""
    rows = [
        {"ph": "X", "name": "a", "ts": 10, "dur": 4},
        {"ph": "X", "name": "b", "ts": 12, "dur": 4, "pid": "Spans", "tid": 7.0},
    ]
    got = student.load_trace(_write(tmp_path, "ints.json", {"traceEvents": rows}, False))
    events = _events(got)
    kinds = [[format.kind(event.ts_us), format.kind(event.dur_us)] for event in events]
    expect.equal(kinds, [["float"] * 2] * 2, "ts_us and dur_us are floats", "types")
    places = [[event.pid, event.tid] for event in events]
    expect.equal(places, [["", ""], ["Spans", 7]], 'a missing place is ""', "[pid, tid]")


@task("load_trace", gate=False, holds=("no_event",))
def test_what_is_no_event_is_refused(student, tmp_path):
    """Rows that are a number, a text, null, or a complete event without a time.
    Oracle: the file's name in the sentence."""
    good = {"ph": "X", "name": "k", "ts": 1, "dur": 1, "pid": 0, "tid": 0}
    late = {key: value for key, value in good.items() if key != "ts"}
    for row in (7, "X", None, [good], late, good | {"ts": "soon"}, good | {"ts": None}):
        path = _write(tmp_path, "broken.json", {"traceEvents": [good, row]}, False)
        said = student.probe.refusal(path)
        why = "a row that is no event is a ValueError with the file's name: the file is broken"
        said_of_it = said or f"load_trace returned; among its rows is {row!r}"
        expect.true(said is not None and "broken.json" in said, why, said_of_it)


COUNTED = {
    NCCL: (2700, 960, 114, 26_933, 1_711_964_646_000_000_000),
    RANK0: (1154, 40, 10, 4811, 0),
    RANK1: (1104, 40, 10, 4676, 0),
    ALEXNET: (79, 16, 3, 868, 0),
}


@task("load_trace", extra=(f"data:{NCCL}",))
def test_a_real_trace_of_two_ranks(student):
    """An A100 under DDP: 2,700 kernels, 960 copies and 114 memsets among 40,573 rows.
    Oracle: the file's rows, counted with grep."""
    _counted(student, NCCL)


@task("load_trace", extra=(f"data:{RANK0}", f"data:{RANK1}"))
def test_real_traces_of_a_recommender(student):
    """Two of 128 ranks, with whole microseconds: 1,154 and 1,104 kernels.
    Oracle: the files' rows, counted with grep."""
    _counted(student, RANK0)
    _counted(student, RANK1)


@task("load_trace", extra=(f"data:{ALEXNET}",))
def test_a_real_trace_of_inference(student):
    """79 kernels and 16 copies beside waits that have a stream, too.
    Oracle: the file's rows, counted with grep."""
    _counted(student, ALEXNET)


def _counted(student, name):
    counts, base_ns = student.probe.counted(datasets.need(name))
    *each, events, base = COUNTED[name]
    got = [counts.get(cat, 0) for cat in ("kernel", "gpu_memcpy", "gpu_memset")]
    expect.equal(got, each, "what grep counts in the file", f"{name}: kernels, copies, memsets")
    expect.equal(sum(counts.values()), events, "events with ph X", f"{name}: events")
    expect.equal(base_ns, base, "baseTimeNanoseconds of the file", f"{name}: base_ns")


def _us(ns):
    return ns / 1000


# -- temporal_breakdown ---------------------------------------------------------------------------

KEYS = ("idle", "compute", "non_compute")
# 40 us on four streams, and what to say of them.
RUNS = (
    "computation runs in [0, 10) and [20, 30), communication in [5, 14), [14, 18) and [18, 25), "
    "copies in [12, 16), [28, 36) and [38, 40)"
)
SMALL = (
    ("ampere_sgemm_128x64_tn", 0, 10, 7),
    ("triton_poi_fused_add_0", 20, 10, 7),
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long)", 5, 9, 24),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 14, 4, 24),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 18, 7, 24),
    ("Memcpy DtoD (Device -> Device)", 12, 4, 20),
    ("Memcpy HtoD (Pinned -> Device)", 28, 8, 20),
    ("Memset (Device)", 38, 2, 7),
)


def _small():
    """SMALL, 100 us after zero, amid events of the same time that are no GPU work."""
    events = [work(name, 100 + at, length, stream) for name, at, length, stream in SMALL]
    events.append(Ev("Stream Sync", "cuda_sync", 100.0, 39.0, 0, 7, 7, 55))
    events.append(Ev("## forward ##", "gpu_user_annotation", 90.0, 60.0, 0, 7))
    events += [host("ProfilerStep#3", 20, 200, MAIN), host("nccl:all_reduce", 96, 7, AUTOGRAD)]
    return in_order([*events, host("aten::copy_", 30, 170, MAIN, "cpu_op")])


def _breakdown(got, want, why, floor=NS):
    _three_parts(got)
    _same_parts(got, want, why, floor)


def _three_parts(got):
    expect.equal(format.kind(got), "dict", f"the answer is a dict of {', '.join(KEYS)}, in us")
    expect.equal(sorted(map(str, got)), sorted(KEYS), "these are the three parts", "keys")


def _same_parts(got, want, why, floor):
    """All values up to rounding; if not, the whole answer is shown, which says more than one."""
    numbers = all(isinstance(value, int | float) for value in got.values())
    if not numbers or any(not abs(got[key] - want[key]) <= floor for key in want):
        expect.equal(got, want, why, unit="us")


@task("temporal_breakdown", holds=("parts", "compute", "non_compute", "idle", "gpu_work"))
def test_a_breakdown_by_hand(student):
    """40 us: 20 of them compute, 18 communication or copies alone, 2 idle.
    Oracle: counted on the fingers, from eight intervals."""
    want = {"idle": 2, "compute": 20, "non_compute": 18}
    got = student.temporal_breakdown(_small())
    _breakdown(got, want, RUNS)


@task("temporal_breakdown", holds=("span", "compute", "gpu_work", "classes"))
def test_a_breakdown_is_what_painting_shows(student, rng):
    """Work of three classes on 2, 4 and 6 streams, with names of every kind.
    Oracle: a row of boxes for each class, painted and counted."""
    for streams in (2, 4, 6):
        made = oracles.steps(rng, streams)
        got = student.temporal_breakdown(made.trace)
        _breakdown(got, made.whole.breakdown, "where computation runs it is compute")


@task("temporal_breakdown", holds=("last_step", "shrinks", "default"))
def test_the_last_step_can_be_left_out(student, rng):
    """Without the last step there is no work that it launched, and all that earlier ones did.
    Oracle: the work of those steps, by how the trace was made, painted and counted."""
    for streams in (2, 4):
        made = oracles.steps(rng, streams)
        got = student.temporal_breakdown(made.trace, include_last_step=False)
        why = "work belongs to the step in which it was launched, however late it runs"
        _breakdown(got, made.without_last.breakdown, why)
        got = student.temporal_breakdown(made.trace, include_last_step=True)
        _breakdown(got, made.whole.breakdown, "with the last step, everything counts")


@task("temporal_breakdown", gate=False)
@pytest.mark.parametrize("style", ["floats", "integers"])
def test_the_breakdown_of_a_whole_job(student, rng, style):
    """A training job with some hundred kernels on several streams, with the last step and without.
    Oracle: the generator's raster of the time that it planted."""
    _made, content, truth = _job(rng, style)
    trace = oracles.read(content)
    floor = max(NS, oracles.nanoseconds(trace))
    why = "where computation runs it is compute"
    _breakdown(student.temporal_breakdown(trace), truth.breakdown, why, floor)
    got = student.temporal_breakdown(trace, include_last_step=False)
    _breakdown(got, truth.without_last, "without what the last step launched", floor)


@task("temporal_breakdown", gate=False, holds=("one_step",))
def test_one_step_is_counted_whole(student, rng):
    """With one step, or none, nothing is left out.
    Oracle: the same trace, painted and counted."""
    made = oracles.steps(rng)
    numbers = {event.name for event in made.trace.events if event.name.startswith("ProfilerStep")}
    for gone in (sorted(numbers)[1:], sorted(numbers)):
        events = [event for event in made.trace.events if event.name not in gone]
        got = student.temporal_breakdown(Trace(events), include_last_step=False)
        _breakdown(got, made.whole.breakdown, "without its only step a trace would be empty")


@task("temporal_breakdown", gate=False, holds=("no_work",))
def test_no_work_is_no_time(student):
    """A trace of the host alone has three parts of 0 us.
    Oracle: the contract."""
    hosts = in_order([host("aten::mm", 5, 20, MAIN, "cpu_op"), host("forward", 0, 30, MAIN)])
    for events in (Trace([]), hosts):
        _breakdown(student.temporal_breakdown(events), dict.fromkeys(KEYS, 0), "nothing ran")
    got = student.temporal_breakdown(in_order([work("gemm", 3, 4, 7)]))
    _breakdown(got, {"idle": 0, "compute": 4, "non_compute": 0}, "one kernel is never idle")


@task("temporal_breakdown", gate=False, holds=("add_up",))
def test_the_parts_add_up_to_the_span(student):
    """idle + compute + non_compute is the time from the first start to the last end, and no part is
    below 0.   Oracle: this law of conservation; a rounding error for each event is allowed."""
    from hypothesis import given
    from hypothesis import strategies as st

    names = st.sampled_from(oracles.COMPUTATION + oracles.COMMUNICATION + oracles.MEMORY)
    starts, lengths = (st.integers(0, ns).map(_us) for ns in (10_000_000, 1_000_000))
    row = st.tuples(names, starts, lengths, st.integers(7, 9))

    @property_settings(25)
    @given(st.lists(row, min_size=1, max_size=10), st.sampled_from([0.0, 4458676522690.655]))
    def adds_up(rows, zero):
        trace = in_order([work(name, zero + at, n, stream) for name, at, n, stream in rows])
        got = student.temporal_breakdown(trace)
        _three_parts(got)
        ends = [event.end_us for event in trace.events]
        span = max(ends) - min(event.ts_us for event in trace.events)
        floor = max(NS, oracles.nanoseconds(trace))
        expect.close(sum(got.values()), span, "each moment is in one part", floor=floor, unit="us")
        expect.at_least(min(got.values()), -floor, "a part of a time is not negative", unit="us")

    adds_up()


@task("temporal_breakdown", gate=False, holds=("fine", "parts"))
def test_the_parts_are_not_rounded(student):
    """The 40 us by hand, with a quarter of a picosecond for each us.
    Oracle: counted on the fingers; floats hold these fractions exactly."""
    rows = [(name, at * FINE, n * FINE, stream) for name, at, n, stream in SMALL]
    got = student.temporal_breakdown(in_order([work(*row) for row in rows]))
    want = {"idle": 2 * FINE, "compute": 20 * FINE, "non_compute": 18 * FINE}
    _breakdown(got, want, FINELY, 1e-9 * FINE)


NAMES = {
    "ncclDevKernel_AllReduce": "communication",
    "void fused::NCCLSendRecv(float*)": "communication",
    "Memcpy by nccl": "communication",
    "Memcpy HtoD (Pageable -> Device)": "memory",
    "Memset (Device)": "memory",
    "void at::native::memcpy_like_kernel<float>(int)": "computation",
    "memset_kernel": "computation",
    "triton_poi_fused_copy_relu_0": "computation",
    "": "computation",
}


@task("temporal_breakdown", holds=("classes",))
def test_each_name_has_its_class(student):
    """nccl in capitals or not, Memcpy and Memset as they are written, the rest.
    Oracle: the rule, name by name."""
    got = student.map("kernel_class", [(name,) for name in NAMES])
    for name, kind in zip(NAMES, got, strict=True):
        expect.equal(kind, NAMES[name], f"the class of {name!r}", "kernel_class")


@task("temporal_breakdown", holds=("launched_before", "no_launch"))
def test_who_belongs_to_the_last_step(student):
    """Launched just before the last step, at its very beginning, within it, or nowhere.
    Oracle: counted on the fingers."""
    events = [host("ProfilerStep#3", 0, 100, MAIN), host("ProfilerStep#4", 100, 100, MAIN)]
    for corr, at, start, length in ((1, 10, 20, 8), (2, 99, 120, 16), (3, 100, 150, 32)):
        events.append(call("cudaLaunchKernel", at, 3, MAIN, corr))
        events.append(work("gemm", start, length, 7, corr))
    events.append(call("cudaStreamSynchronize", 50, 3, MAIN, None))
    events += [work("gemm", 300, 64, 7, None), work("gemm", 400, 128, 7, 77)]
    events.append(work("gemm", 4, 2, 7, 78))
    events += [call("cudaLaunchKernel", 150, 3, MAIN, 4), work("gemm", 600, 256, 7, 4)]
    events.append(host("cudaLaunchKernel", 5, 3, MAIN, "cpu_op"))
    late = [call("cudaLaunchKernel", 90, 3, MAIN, 5), work("gemm", 1020, 4, 7, 5)]
    got = student.temporal_breakdown(in_order(events + late), include_last_step=False)
    because = "however late it runs, work belongs to the step in which it was launched"
    _breakdown(got, {"idle": 976, "compute": 28, "non_compute": 0}, because)
    got = student.temporal_breakdown(in_order(events), include_last_step=False)
    why = (
        "launched at 10 and 99 us, work of 8 and 16 us is not the last step's (100 us); "
        "what was launched then, later, or nowhere in the trace is left out"
    )
    _breakdown(got, {"idle": 92, "compute": 24, "non_compute": 0}, why)


@task("temporal_breakdown", gate=False, holds=("last_step", "launched_before", "no_launch"))
def test_the_first_and_the_last_event_count(student):
    """A step begins the trace or ends it, and so may a launch begin it.
    Oracle: counted on the fingers."""
    first = [host("ProfilerStep#3", 0, 100, MAIN), call("cudaLaunchKernel", 10, 3, MAIN, 1)]
    first += [work("gemm", 20, 8, 7, 1), work("gemm", 50, 16, 7, None)]
    events = [*first, host("ProfilerStep#4", 100, 100, MAIN)]
    got = student.temporal_breakdown(in_order(events), include_last_step=False)
    why = "two steps are two, though one begins the trace and the other ends it"
    _breakdown(got, {"idle": 0, "compute": 8, "non_compute": 0}, why)
    early = [call("cudaLaunchKernel", -9, 3, MAIN, 2), work("gemm", 1, 4, 7, 2)]
    got = student.temporal_breakdown(in_order([*early, *events]), include_last_step=False)
    why = "what was launched before the first step was launched before the last one"
    _breakdown(got, {"idle": 15, "compute": 12, "non_compute": 0}, why)


@task("temporal_breakdown", holds=("span",))
def test_the_span_ends_with_the_latest_end(student):
    """A kernel of 100 us, and on other streams short work that begins after it and ends before.
    Oracle: counted on the fingers; nothing is idle while the long one runs."""
    events = [host("ProfilerStep#3", 0, 50, MAIN), host("ProfilerStep#4", 50, 50, MAIN)]
    for corr, (name, start, length) in enumerate(
        (("Memset (Device)", 10, 4), ("gemm", 20, 100), ("gemm", 30, 10), (SMALL[2][0], 44, 5)), 1
    ):
        events.append(call("cudaLaunchKernel", corr, 1, MAIN, corr))
        events.append(work(name, start, length, 6 + corr, corr))
    for include in (True, False):
        got = student.temporal_breakdown(in_order(events), include_last_step=include)
        why = "the span ends with the latest end, whichever work began last"
        _breakdown(got, {"idle": 6, "compute": 100, "non_compute": 4}, why)


def _percent(parts):
    return [round(100 * parts[key] / sum(parts.values()), 2) for key in KEYS]


def _like_hta(student, name, inward, whole, without_last):
    trace = oracles.real(datasets.need(name), inward=inward)
    for include, want in ((True, whole), (False, without_last)):
        got = student.temporal_breakdown(trace, include_last_step=include)
        _three_parts(got)
        what = f"{name}, {'with' if include else 'without'} the last step: {', '.join(KEYS)}"
        why = "Holistic Trace Analysis 0.5.0, get_temporal_breakdown, in % of the span"
        expect.close(_percent(got), want, why, floor=0.011, what=what)


@task("temporal_breakdown", extra=(f"data:{RANK0}", f"data:{RANK1}"))
def test_the_breakdown_of_a_recommender(student):
    """Two of 128 ranks idle for more than half of the time.
    Oracle: Holistic Trace Analysis 0.5.0."""
    _like_hta(student, RANK0, False, [55.21, 17.20, 27.59], [53.56, 17.71, 28.74])
    _like_hta(student, RANK1, False, [52.89, 22.09, 25.02], [54.72, 22.57, 22.72])


@task("temporal_breakdown", extra=(f"data:{NCCL}",))
def test_the_breakdown_of_a_trace_in_nanoseconds(student):
    """DDP on an A100, idle for three quarters of the time.
    Oracle: Holistic Trace Analysis 0.5.0, which rounds starts up and ends down to whole us; so
    does this test, and then compares without that."""
    _like_hta(student, NCCL, True, [76.68, 17.11, 6.21], [77.78, 17.26, 4.97])
    got = student.temporal_breakdown(oracles.gpu_side(oracles.real(datasets.need(NCCL))))
    why = "as above, without rounding: kernels of 2 us lose much of their time by it"
    expect.close(_percent(got), [76.68, 17.11, 6.21], why, floor=1.0)


# -- overlap --------------------------------------------------------------------------------------


def _pair(got, want, why, floor=1e-6):
    ratio, exposed = _two(got)
    expect.close(ratio, want[0], why, floor=floor, what="ratio")
    expect.close(exposed, want[1], why, floor=max(NS, floor), what="exposed_us", unit="us")


def _two(got):
    """Two numbers, or a failure that says what came instead."""
    pair = isinstance(got, tuple | list) and len(got) == 2
    expect.true(pair, "overlap returns two numbers, (ratio, exposed_us)", got)
    return got


@task("overlap", holds=("pair", "ratio", "memory"))
def test_an_overlap_by_hand(student):
    """20 us of communication, 10 of them beside computation: half is hidden, 10 us are exposed.
    Oracle: counted on the fingers. A copy runs beside 4 of the others, and hides nothing."""
    got = student.overlap(_small())
    _pair(got, (0.5, 10), RUNS)


@task("overlap", holds=("one_time", "memory"))
def test_two_communications_at_once_are_one_time(student):
    """Two all-reduces on two streams, 30 us together, 10 of them at once; 12 us are hidden.
    Oracle: counted on the fingers: 12 of 30 is 0.4."""
    events = [
        work("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, 20, 24),
        work("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 20, 25),
        work("ampere_sgemm_128x64_tn", 24, 8, 7),
        work("ampere_sgemm_128x64_tn", 26, 10, 8),
        work("Memcpy DtoH (Device -> Pinned)", 0, 22, 20),
        work("Memset (Device)", 60, 4, 20),
    ]
    got = student.overlap(in_order(events))
    why = "communication runs in [10, 30) and [20, 40), computation in [24, 32) and [26, 36)"
    _pair(got, (0.4, 18), why)


@task("overlap", holds=("ratio", "exposed"))
def test_an_overlap_is_what_painting_shows(student, rng):
    """Communication on 2, 4 and 6 streams, with names of every kind.
    Oracle: a row of boxes for communication and one for computation, painted and counted."""
    for streams in (2, 4, 6):
        made = oracles.steps(rng, streams)
        hidden, total = made.whole.hidden, made.whole.communication
        why = "of the time with communication, that in which computation ran, too"
        _pair(student.overlap(made.trace), (hidden / total, total - hidden), why)


@task("overlap", gate=False)
@pytest.mark.parametrize("style", ["floats", "integers"])
def test_the_overlap_of_a_whole_job(student, rng, style):
    """A training job that waits for its collectives.
    Oracle: the generator's raster of the time that it planted."""
    _made, content, truth = _job(rng, style)
    trace = oracles.read(content)
    floor = max(NS, oracles.nanoseconds(trace))
    ratio, exposed = _two(student.overlap(trace))
    why = "communication with computation beside it, as a part of all communication"
    relative = max(1e-6, 2 * floor / truth.comm_us)
    expect.close(ratio, truth.overlap_ratio, why, floor=relative, what="ratio")
    why = "communication without computation beside it"
    expect.close(exposed, truth.exposed_us, why, floor=floor, what="exposed_us", unit="us")


@task("overlap", gate=False, holds=("none",))
def test_without_communication_nothing_is_exposed(student):
    """No communication is (0.0, 0.0); all of it hidden is 1, none of it 0.
    Oracle: the contract."""
    gemm, reduce = work("gemm", 10, 20, 7), work("ncclKernel_AllReduce", 12, 6, 24)
    alone = work("ncclKernel_AllReduce", 40, 5, 24)
    why = "a ratio of nothing has no value; here it is 0.0, as there is nothing to hide"
    _pair(student.overlap(in_order([gemm])), (0.0, 0.0), why)
    _pair(student.overlap(Trace([])), (0.0, 0.0), why)
    _pair(student.overlap(in_order([gemm, reduce])), (1.0, 0.0), "all of it is hidden")
    _pair(student.overlap(in_order([gemm, alone])), (0.0, 5.0), "none of it is hidden")


@task("overlap", gate=False, holds=("fine", "ratio", "exposed"))
def test_the_overlap_is_not_rounded(student):
    """13 parts of communication, 6 of them beside computation, each a quarter of a picosecond.
    Oracle: counted on the fingers; floats hold these fractions exactly."""
    rows = (("ncclDevKernel_AllReduce", 3, 13, 24), ("gemm", 0, 5, 7), ("gemm", 12, 40, 7))
    events = [work(name, at * FINE, n * FINE, stream) for name, at, n, stream in rows]
    ratio, exposed = _two(student.overlap(in_order(events)))
    expect.close(ratio, 6 / 13, FINELY, floor=1e-12, what="ratio")
    expect.close(exposed, 7 * FINE, FINELY, floor=1e-9 * FINE, what="exposed_us", unit="us")


@task("overlap", gate=False, holds=("ratio", "exposed"))
def test_a_ratio_lies_between_0_and_1(student):
    """Whatever runs, 0 <= ratio <= 1, and the exposed part is what the ratio leaves of the time.
    Oracle: these laws; a rounding error for each event is allowed."""
    from hypothesis import given
    from hypothesis import strategies as st

    names = st.sampled_from(oracles.COMPUTATION[:2] + oracles.COMMUNICATION[:2] + oracles.MEMORY)
    starts, lengths = (st.integers(n, 1_000_000).map(_us) for n in (0, 500))
    row = st.tuples(names, starts, lengths, st.integers(7, 9))

    @property_settings(25)
    @given(st.lists(row, max_size=10), st.sampled_from([0.0, 4458676522690.655]))
    def bounded(rows, zero):
        trace = in_order([work(name, zero + at, n, stream) for name, at, n, stream in rows])
        ratio, exposed = _two(student.overlap(trace))
        floor = max(NS, oracles.nanoseconds(trace)) if rows else NS
        expect.within(ratio, -4 * floor, 1 + 4 * floor, "a part is no more than the whole", "ratio")
        expect.at_least(exposed, -floor, "a part of a time is not negative", "exposed_us", "us")
        total = oracles.communication(trace)
        why = "hidden and exposed are all of the communication"
        expect.close(ratio * total + exposed, total, why, floor=4 * floor, unit="us")

    bounded()


@task("overlap", extra=(f"data:{RANK0}", f"data:{RANK1}"))
def test_the_overlap_of_a_recommender(student):
    """Most of the communication of two ranks of 128 is exposed.
    Oracle: Holistic Trace Analysis 0.5.0, get_comm_comp_overlap with the last step."""
    why = "Holistic Trace Analysis 0.5.0, in %"
    for name, want in ((RANK0, 14.95), (RANK1, 19.93)):
        ratio, _exposed = _two(student.overlap(oracles.gpu_side(oracles.real(datasets.need(name)))))
        expect.close(100 * ratio, want, why, floor=0.0051, what=name)


@task("overlap", extra=(f"data:{NCCL}",))
def test_the_overlap_of_a_trace_in_nanoseconds(student):
    """DDP on an A100 hides 15 % of its communication.
    Oracle: Holistic Trace Analysis 0.5.0, which rounds starts up and ends down to whole us; so
    does this test, and then compares without that."""
    why = "Holistic Trace Analysis 0.5.0, in %"
    rounded = oracles.gpu_side(oracles.real(datasets.need(NCCL), inward=True))
    ratio, _exposed = _two(student.overlap(rounded))
    expect.close(100 * ratio, 15.14, why, floor=0.0051)
    ratio, _exposed = _two(student.overlap(oracles.gpu_side(oracles.real(datasets.need(NCCL)))))
    expect.close(100 * ratio, 15.14, f"{why}, without rounding", floor=1.0)


@task("busy_time", extra=(f"data:{NCCL}", f"data:{RANK0}"))
def test_the_busy_time_of_real_traces(student):
    """157,500 us busy where the durations sum to 165,186; 547,656 where they sum to 607,844.
    Oracle: figures worked out with pandas' interval merging, as Holistic Trace Analysis does it."""
    for name, want, summed in ((NCCL, 157_500, 165_186), (RANK0, 547_656, 607_844)):
        events = oracles.gpu_side(oracles.real(datasets.need(name))).events
        expect.close(sum(e.dur_us for e in events), summed, "the suite's own reading", floor=0.5)
        got = student.busy_time([(event.ts_us, event.end_us) for event in events])
        expect.close(got, want, f"{name}: the union of all GPU work", floor=0.6, unit="us")


# -- attribute ------------------------------------------------------------------------------------


def _one_step():
    """A step by hand. Every duration is another power of two, so a sum says what is in it."""

    def launched(name, at, thread, runs, lengths, corr, cat="cuda_runtime"):
        what = "Memcpy HtoD (Pageable -> Device)" if "Memcpy" in name else "gemm"
        pieces = [work(what, runs + 100 * i, n, 7, corr) for i, n in enumerate(lengths)]
        return [call(name, at, 5, thread, corr, cat), *pieces]

    launch = "cudaLaunchKernel"
    events = [
        host("ProfilerStep#7", 0, 400, MAIN),
        host("forward", 10, 90, MAIN),
        host("embedding", 20, 20, MAIN),
        host("backward", 100, 160, MAIN),
        host("prefetch", 5, 145, LOADER),
        host("nccl:all_reduce", 118, 30, AUTOGRAD),
        host("forward", 130, 700, 7, "gpu_user_annotation"),
        host("backward", 265, 60, MAIN, "cpu_op"),
        *launched(launch, 12, MAIN, 110, [1], 201),  # runs while backward is open
        *launched(launch, 25, MAIN, 160, [2], 202),
        *launched(launch, 120, AUTOGRAD, 265, [4], 203),
        *launched(launch, 130, MAIN, 275, [8], 204),
        *launched("cudaMemcpyAsync", 30, LOADER, 60, [16], 205),
        *launched("cudaGraphLaunch", 256, MAIN, 290, [32, 64], 206),  # ends after backward has
        *launched(launch, 270, MAIN, 300, [128], 207),
        *launched("cuLaunchKernel", 50, MAIN, 500, [1024], 208, "cuda_driver"),
        work("gemm", 500, 256, 7, None),
        work("gemm", 1000, 512, 7, 77_000),
        call("cudaStreamSynchronize", 35, 5, MAIN, None),
        Ev("Stream Sync", "cuda_sync", 330.0, 9.0, 0, 7, 7, 204),
    ]
    return in_order(events)


def _owners(got, want, why, floor=NS):
    expect.equal(format.kind(got), "dict", "the answer is a dict of names and us")
    missing = [name for name in want if name not in got]
    expect.equal(missing, [], "each name of `ranges` and '<unattributed>' is a key", "missing keys")
    extra = [name for name in got if name not in want]
    expect.equal(extra, [], "no other name was asked for", "other keys")
    _same_parts(got, want, why, floor)


@task(
    "attribute",
    holds=("names", "from_the_launch", "by_correlation", "graph", "others", "unattributed", "zero"),
)
def test_a_step_attributed_by_hand(student):
    """Ten launches in and around four ranges; each piece of work has another power of two of us.
    Oracle: read off the table from which the trace is made."""
    want = {"forward": 1 + 1024, "embedding": 2, "backward": 4 + 8 + 32 + 64, "prefetch": 16}
    want |= {"evaluation": 0, "<unattributed>": 128 + 256 + 512}
    got = student.attribute(_one_step(), [name for name in want if name != "<unattributed>"])
    why = (
        "launched in forward: 1 and 1,024 us (the latter by the driver); in embedding: 2; in "
        "backward: 4 (by autograd's thread), 8, 32 and 64 (both by one graph); in prefetch, on its "
        "own thread: 16; after backward: 128; 256 and 512 have no launch in the trace"
    )
    _owners(got, want, why)


@task("attribute", holds=("annotations", "others", "innermost", "unattributed"))
def test_planted_owners_are_found(student, rng):
    """Three steps with ranges on three threads; the GPU runs all of it later.
    Oracle: who launched it was decided before any time was drawn."""
    for _ in range(2):
        trace, want = oracles.owned(rng)
        got = student.attribute(trace, list(RANGES))
        _owners(got, want, "work belongs to the innermost range in which it was launched")


@task("attribute", gate=False)
@pytest.mark.parametrize("style", ["floats", "integers"])
def test_the_owners_of_a_whole_job(student, rng, style):
    """A training job whose backward pass is launched by the autograd thread.
    Oracle: the generator, which knows what it launched in which range."""
    _made, content, truth = _job(rng, style)
    trace = oracles.read(content)
    got = student.attribute(trace, list(truth.ranges))
    floor = max(NS, oracles.nanoseconds(trace))
    _owners(got, truth.attributed, "work belongs to the range in which it was launched", floor)


@task("attribute", gate=False, holds=("one_owner",))
def test_nothing_is_lost_and_nothing_counted_twice(student, rng):
    """Whatever is asked for, the values add up to the durations of all GPU work.
    Oracle: this law of conservation, for five choices of names."""
    trace, truth = oracles.owned(rng)
    total = sum(truth.values())
    for ranges in (["forward"], ["ProfilerStep#9", "embedding"], list(RANGES), ["nccl:all_reduce"]):
        got = student.attribute(trace, ranges)
        expect.equal(format.kind(got), "dict", "the answer is a dict of names and us")
        expect.equal(sorted(got), sorted([*ranges, "<unattributed>"]), "one key a name", "keys")
        expect.close(sum(got.values()), total, "each piece has one owner", floor=NS, unit="us")
    got = student.attribute(trace, [])
    _owners(got, {"<unattributed>": total}, "without a range nobody owns anything")


@task("attribute", holds=("half_open",))
def test_a_range_ends_where_the_next_begins(student):
    """A launch at the very time at which one range ends and another begins belongs to the second.
    Oracle: the contract, start <= t < end."""
    events = [host("forward", 0, 50, MAIN), host("backward", 50, 50, MAIN)]
    for corr, at, length in ((1, 0, 1), (2, 50, 2), (3, 100, 4)):
        events.append(call("cudaLaunchKernel", at, 5, MAIN, corr))
        events.append(work("gemm", 200 + at, length, 7, corr))
    want = {"forward": 1, "backward": 2, "<unattributed>": 4}
    _owners(student.attribute(in_order(events), ["forward", "backward"]), want, "start <= t < end")


@task("attribute", holds=("own_first", "innermost", "together", "sequence"))
def test_the_innermost_owns_and_its_own_thread_comes_first(student):
    """Ranges that begin together, a later one on another thread, and one without length.
    Oracle: the contract, launch by launch; each duration is another power of two."""
    events = [
        host("outer", 0, 100, MAIN),
        host("inner", 0, 50, MAIN),
        host("elsewhere", 60, 30, AUTOGRAD),
        host("late", 200, 50, LOADER),
        host("later", 210, 20, 9),
        host("nothing", 70, 0, MAIN),
        work("gemm", -500, 128, 7, None),
    ]
    launches = (
        *((1, 0, 1, MAIN), (2, 70, 2, MAIN), (3, 70, 4, AUTOGRAD), (4, 80, 8, 5)),
        *((5, 215, 16, MAIN), (6, 240, 32, MAIN), (7, 95, 64, AUTOGRAD)),
    )
    for corr, at, length, thread in launches:
        events.append(call("cudaLaunchKernel", at, 5, thread, corr))
        events.append(work("gemm", 400 + 100 * corr, length, 7, corr))
    want = {"outer": 2 + 64, "inner": 1, "elsewhere": 4 + 8, "late": 32, "later": 16, "nothing": 0}
    got = student.attribute(in_order(events), tuple(want))
    why = (
        "of two that begin together the shorter is inner; a thread's own range comes before "
        "a later one of another thread; without an own one, the one that began last"
    )
    _owners(got, want | {"<unattributed>": 128}, why)


@task("attribute", gate=False, holds=("fine", "names"))
def test_owned_time_is_not_rounded(student):
    """Work of 3, 5 and 9 quarters of a picosecond, launched in two ranges and outside of them.
    Oracle: counted on the fingers; floats hold these fractions exactly."""
    events = [host("forward", 0, 50, MAIN), host("backward", 50, 50, MAIN)]
    for corr, at, parts in ((1, 10, 3), (2, 60, 5), (3, 150, 9)):
        events.append(call("cudaLaunchKernel", at, 5, MAIN, corr))
        events.append(work("gemm", 200 + at, parts * FINE, 7, corr))
    want = {"forward": 3 * FINE, "backward": 5 * FINE, "<unattributed>": 9 * FINE}
    got = student.attribute(in_order(events), ["forward", "backward"])
    _owners(got, want, FINELY, 1e-9 * FINE)


STAGES = ("## forward ##", "## backward ##", "## optimizer ##")


@task("attribute", extra=(f"data:{NCCL}",))
def test_the_owners_of_a_real_step(student):
    """Of 165,186 us in three steps of DDP, 124,340 belong to backward, and only 57 of these were
    launched by the thread that has the annotation.
    Oracle: figures worked out from the file with pandas, by correlation and time."""
    trace = oracles.real(datasets.need(NCCL))
    want = dict(zip(STAGES, (38_768, 124_340, 2_078), strict=True)) | {"<unattributed>": 0}
    _owners(student.attribute(trace, list(STAGES)), want, f"{NCCL}: by launch", floor=0.6)
