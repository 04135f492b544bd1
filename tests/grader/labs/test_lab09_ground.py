"""What lab 09 stands on: the generator's truth is consistent, its traces are built as real ones
are, and the converter loses nothing."""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grader.lab import capabilities, datasets

SUITE = Path(__file__).resolve().parents[2] / "lab09"


def module_of(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"lab09_{name}", SUITE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


traces: Any = module_of("traces")
nsys_db: Any = module_of("nsys_db")
JOBS = [(cause, seed) for cause in (None, *traces.CAUSES) for seed in (1, 2, 3)]
PAIRS = [(None, 11), ("input", 12), ("pageable_copy", 13)]


def ranks() -> Iterator[tuple[str | None, int, int | None]]:
    yield from ((cause, seed, None) for cause, seed in JOBS)
    yield from ((cause, seed, 2) for cause, seed in PAIRS)


def real(name: str) -> dict[str, Any]:
    if reason := capabilities.missing(f"data:{name}"):
        pytest.skip(f"not verified here: {reason}")
    found: dict[str, Any] = json.loads(gzip.decompress(datasets.need(name).read_bytes()))
    return found


def complete(trace: dict[str, Any], *categories: str) -> list[dict[str, Any]]:
    return [
        event
        for event in trace["traceEvents"]
        if event["ph"] == "X" and (not categories or event["cat"] in categories)
    ]


def gpu_work(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return complete(trace, *traces.GPU_CATEGORIES)


# -- the generator --------------------------------------------------------------------------------


@pytest.mark.parametrize(("cause", "seed", "count"), list(ranks()))
def test_the_truth_adds_up(cause: str | None, seed: int, count: int | None) -> None:
    made = traces.generate(cause, seed, ranks=count)
    for rank in made.ranks:
        truth, events = rank.truth, gpu_work(rank.json)
        assert sum(truth.breakdown.values()) == pytest.approx(truth.span_us, abs=1e-6)
        assert truth.busy_us + truth.breakdown["idle"] == pytest.approx(truth.span_us, abs=1e-6)
        assert sum(length for _, length in truth.gaps_us) == pytest.approx(
            truth.breakdown["idle"], abs=1e-6
        )
        assert sum(truth.attributed.values()) == pytest.approx(truth.sum_us, abs=1e-6)
        assert sum(event["dur"] for event in events) == pytest.approx(truth.sum_us, abs=1e-6)
        assert Counter(event["cat"] for event in events) == {
            cat: number for cat, number in truth.counts.items() if number
        }
        assert truth.exposed_us == pytest.approx(truth.comm_us * (1 - truth.overlap_ratio))
        assert sum(truth.without_last.values()) < truth.span_us
        idle = ("input", "host_sync", "tiny_kernels", "launch_bound")
        assert sum(truth.costs[name] for name in idle) == pytest.approx(
            truth.breakdown["idle"], abs=1e-6
        )
        assert truth.costs["exposed_comm"] == truth.exposed_us


@pytest.mark.parametrize(("cause", "seed", "count"), list(ranks()))
def test_one_cause_is_plain_and_all_others_are_small(
    cause: str | None, seed: int, count: int | None
) -> None:
    made = traces.generate(cause, seed, ranks=count)
    assert made.cause == cause
    for index, rank in enumerate(made.ranks):
        shares = {name: rank.truth.share(name) for name in rank.truth.costs}
        if cause == "straggler":
            waits = index != made.rank
            assert (shares.pop("straggler") >= traces.PLANTED_AT_LEAST) is waits
            shares.pop("exposed_comm")
        elif cause is not None:
            assert traces.PLANTED_AT_LEAST <= shares.pop(cause) <= 0.6
        assert max(shares.values()) <= traces.BENIGN_AT_MOST


@pytest.mark.parametrize(("cause", "seed"), [job for job in JOBS if job[0]])
def test_what_a_cause_costs_is_what_its_absence_saves(cause: str, seed: int) -> None:
    """Two independent ways: cells of a raster, and the same job again without the cause."""
    made = traces.generate(cause, seed)
    if cause == "straggler":
        found = next(r.truth for i, r in enumerate(made.ranks) if i != made.rank)
        assert found.exposed_wait_us <= found.costs[cause] <= found.waited_us
    else:
        found = made.ranks[0].truth
    cost = found.costs[cause]
    if cause == "tiny_kernels":  # the kernels themselves go as well
        small = [e["dur"] for e in gpu_work(made.ranks[0].json) if e["dur"] <= traces.TINY_US]
        assert cost < made.saved_us <= (cost + sum(small)) * 1.05
    else:
        assert made.saved_us == pytest.approx(cost, rel=0.12)


def test_strengths_vary() -> None:
    shares = [traces.generate("input", seed).ranks[0].truth.share("input") for seed in range(8)]
    assert max(shares) > 1.5 * min(shares)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    first = traces.generate("straggler", 5).write(tmp_path)
    before = [path.read_bytes() for path in first]
    traces.generate.cache_clear()
    assert [path.read_bytes() for path in traces.generate("straggler", 5).write(tmp_path)] == before
    other = traces.generate("straggler", 6).write(tmp_path)
    assert [path.read_bytes() for path in other] != before


@pytest.mark.parametrize("cause", [name for name in traces.CAUSES if name != "input"])
def test_a_file_does_not_tell_its_cause(cause: str, tmp_path: Path) -> None:
    made = traces.generate(cause, 4)
    for path in made.write(tmp_path, gz=False):
        assert cause not in path.name
        assert cause not in path.read_text()


@pytest.mark.parametrize("cause", traces.CAUSES)
def test_names_alone_tell_nothing(cause: str) -> None:
    """Every kind of work that a planted cause brings is in clean traces, too."""
    clean = Counter[str]()
    for seed in range(12):
        for rank in traces.generate(None, seed, ranks=2 if seed % 2 else None).ranks:
            clean.update({kind(event) for event in complete(rank.json)})
    for rank in traces.generate(cause, 21).ranks:
        new = {kind(event) for event in complete(rank.json)} - clean.keys()
        # A chain of small operations has names of its own; they run kernels that all traces have.
        assert {text for text in new if not text.startswith("cpu_op aten::")} <= {
            "cuda_runtime cudaDeviceSynchronize",
            "cuda_sync Context Sync",
        }


def kind(event: dict[str, Any]) -> str:
    name = event["name"]
    if event["cat"] == "kernel":
        name = "nccl" if "nccl" in name else "compute"
    if event["cat"] in ("user_annotation", "gpu_user_annotation"):
        name = "range"
    return f"{event['cat']} {name}"


@pytest.mark.parametrize("style", traces.STYLES)
def test_streams_are_in_order_and_work_comes_after_its_launch(style: str) -> None:
    for cause in (None, "host_sync", "exposed_comm"):
        trace = traces.generate(cause, 7, style=style).ranks[0].json
        launches = {
            event["args"]["correlation"]: event for event in complete(trace, "cuda_runtime")
        }
        streams: dict[int, list[dict[str, Any]]] = {}
        for event in gpu_work(trace):
            streams.setdefault(event["args"]["stream"], []).append(event)
            assert event["ts"] > launches[event["args"]["correlation"]]["ts"]
            assert event["tid"] == event["args"]["stream"]
            assert event["pid"] == event["args"]["device"]
        for events in streams.values():
            events.sort(key=lambda event: event["ts"])
            for one, two in itertools.pairwise(events):
                assert one["ts"] + one["dur"] <= two["ts"]


@pytest.mark.parametrize("style", traces.STYLES)
def test_a_thread_does_one_thing_inside_another(style: str) -> None:
    for cause in (None, "tiny_kernels", "pageable_copy"):
        trace = traces.generate(cause, 8, style=style).ranks[0].json
        threads: dict[int, list[tuple[float, float]]] = {}
        for event in complete(trace, "cpu_op", "user_annotation", "cuda_runtime"):
            threads.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
        assert len(threads) == 2
        for spans in threads.values():
            open_until: list[float] = []
            for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
                while open_until and open_until[-1] <= start:
                    open_until.pop()
                assert not open_until or end <= open_until[-1]
                open_until.append(end)


def test_backward_is_launched_by_another_thread_and_runs_later() -> None:
    """Neither the launching thread nor the time on the GPU says what work belongs to."""
    rank = traces.generate(None, 9, style="floats").ranks[0]
    launches = {e["args"]["correlation"]: e for e in complete(rank.json, "cuda_runtime")}
    ranges = [e for e in complete(rank.json, "user_annotation") if e["name"] in rank.truth.ranges]
    forward, backward, _ = rank.truth.ranges
    at_launch, same_thread, on_gpu = Counter[str](), Counter[str](), Counter[str]()
    for event in gpu_work(rank.json):
        launch = launches[event["args"]["correlation"]]
        for found in ranges:
            end = found["ts"] + found["dur"]
            if found["ts"] <= launch["ts"] < end:
                at_launch[found["name"]] += event["dur"]
                if found["tid"] == launch["tid"]:
                    same_thread[found["name"]] += event["dur"]
            if found["ts"] <= event["ts"] < end:
                on_gpu[found["name"]] += event["dur"]
    for name in rank.truth.ranges:
        assert at_launch[name] == pytest.approx(rank.truth.attributed[name], abs=1e-6)
    assert same_thread[backward] == 0
    assert on_gpu[forward] < 0.9 * at_launch[forward]


def test_the_ranks_of_a_pair_have_clocks_and_processes_of_their_own() -> None:
    one, two = traces.generate("straggler", 3).ranks
    starts = [min(event["ts"] for event in gpu_work(rank.json)) for rank in (one, two)]
    assert abs(starts[0] - starts[1]) > max(one.truth.span_us, two.truth.span_us)
    collectives = [
        [event["name"] for event in gpu_work(rank.json) if "nccl" in event["name"]]
        for rank in (one, two)
    ]
    assert collectives[0] == collectives[1]
    assert len(collectives[0]) >= 6


def test_work_that_a_later_step_launched_is_not_in_the_shorter_scope() -> None:
    rank = traces.generate(None, 10, style="integers").ranks[0]
    steps = [e for e in complete(rank.json, "user_annotation") if e["name"].startswith("Profiler")]
    last = max(event["ts"] for event in steps)
    early = {
        event["args"]["correlation"]
        for event in complete(rank.json, "cuda_runtime")
        if event["ts"] < last
    }
    work = [event for event in gpu_work(rank.json) if event["args"]["correlation"] in early]
    assert 0 < len(work) < len(gpu_work(rank.json))
    spans = [(event["ts"], event["ts"] + event["dur"]) for event in work]
    whole = max(end for _, end in spans) - min(start for start, _ in spans)
    assert sum(rank.truth.without_last.values()) == pytest.approx(whole, abs=1e-6)
    assert whole - rank.truth.without_last["idle"] == pytest.approx(swept(spans), abs=1e-6)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="no cause is called 'slow'"):
        traces.generate("slow", 1)
    with pytest.raises(ValueError, match="pair of ranks"):
        traces.generate("straggler", 1, ranks=1)


# -- against real traces --------------------------------------------------------------------------


def shapes(trace: dict[str, Any]) -> dict[tuple[str, str | None], tuple[set[str], set[str]]]:
    """The keys of events and of their `args`, by phase and category."""
    found: dict[tuple[str, str | None], tuple[set[str], set[str]]] = {}
    for event in trace["traceEvents"]:
        keys, args = found.setdefault((event["ph"], event.get("cat")), (set(), set()))
        keys |= event.keys()
        args |= event.get("args", {}).keys()
    return found


@pytest.mark.parametrize(
    ("style", "name"),
    [
        ("floats", "hta_nccl_data.json.gz"),
        ("integers", "hta_alexnet.json.gz"),
        ("sampled", "hta_sampled_rank-0.json.gz"),
    ],
)
def test_generated_traces_have_the_fields_of_real_ones(style: str, name: str) -> None:
    theirs = real(name)
    ours = traces.generate("exposed_comm", 2, style=style).ranks[0].json
    assert set(ours) - {"traceEvents"} <= set(theirs)
    known, made = shapes(theirs), shapes(ours)
    # AlexNet's forward pass alone has no backward and so no arrows to it.
    assert set(made) - {("s", "fwdbwd"), ("f", "fwdbwd")} <= set(known)
    for key in made.keys() & known.keys():
        keys, args = made[key]
        assert keys == known[key][0]
        assert args <= known[key][1] | {"Fwd thread id", "Sequence number"}
        if key in (("X", "kernel"), ("X", "gpu_memcpy"), ("X", "cuda_runtime")):
            assert known[key][1] - args <= {
                *("In msg nelems", "Out msg nelems", "In split size", "Out split size"),
                *("Process Group Name", "Process Group Description", "Process Group Ranks"),
            }
    for key in ("ts", "dur"):
        for cat in ("kernel", "cpu_op"):
            mine = {type(event[key]) for event in complete(ours, cat)}
            assert mine == {type(event[key]) for event in complete(theirs, cat)}


def swept(spans: Iterable[tuple[float, float]]) -> float:
    """How long at least one span is open: a counter that goes up and down along the time."""
    changes = sorted(
        [(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans],
        key=lambda change: (change[0], -change[1]),
    )
    total, depth, since = 0.0, 0, 0.0
    for at, change in changes:
        if depth:
            total += at - since
        depth, since = depth + change, at
    return total


@pytest.mark.parametrize(
    ("name", "counts", "busy", "naive"),
    [
        ("hta_nccl_data.json.gz", (2700, 960, 114), 157_500, 165_186),
        ("hta_sampled_rank-0.json.gz", (1154, 40, 10), 547_656, 607_844),
        ("hta_sampled_rank-1.json.gz", (1104, 40, 10), None, None),
    ],
)
def test_the_real_traces_have_their_known_figures(
    name: str, counts: tuple[int, int, int], busy: float | None, naive: float | None
) -> None:
    events = gpu_work(real(name))
    seen = Counter(event["cat"] for event in events)
    assert tuple(seen[cat] for cat in traces.GPU_CATEGORIES) == counts
    if busy is not None:
        spans = [(event["ts"], event["ts"] + event["dur"]) for event in events]
        assert round(swept(spans)) == busy
        assert round(sum(event["dur"] for event in events)) == naive


def test_alexnet_spends_its_time_on_pageable_copies() -> None:
    events = gpu_work(real("hta_alexnet.json.gz"))
    copies = [event["dur"] for event in events if "Pageable" in event["name"]]
    assert sum(copies) == pytest.approx(55_500, abs=50)
    spans = [(event["ts"], event["ts"] + event["dur"]) for event in events]
    assert sum(copies) / swept(spans) == pytest.approx(0.839, abs=0.001)


# -- the converter --------------------------------------------------------------------------------


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def tables(path: Path) -> set[str]:
    return {name for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}


@pytest.mark.parametrize("style", traces.STYLES)
@pytest.mark.parametrize("cause", [None, "pageable_copy", "tiny_kernels"])
def test_an_export_says_what_the_trace_says(cause: str | None, style: str, tmp_path: Path) -> None:
    rank = traces.generate(cause, 6, style=style).ranks[0]
    path = nsys_db.write(rank.json, tmp_path / "run.sqlite")
    truth = rank.truth
    sums, spans = 0.0, []
    for table, cat in (("KERNEL", "kernel"), ("MEMCPY", "gpu_memcpy"), ("MEMSET", "gpu_memset")):
        found = rows(path, f"SELECT start, end FROM CUPTI_ACTIVITY_KIND_{table}")
        assert len(found) == truth.counts[cat]
        sums += sum(end - start for start, end in found) / 1000
        spans += found
    assert sums == pytest.approx(truth.sum_us, abs=1e-6)
    assert swept(spans) / 1000 == pytest.approx(truth.busy_us, abs=1e-6)
    named = rows(
        path,
        "SELECT value, COUNT(*), SUM(end - start) / 1000.0 FROM CUPTI_ACTIVITY_KIND_KERNEL "
        "JOIN StringIds ON id = demangledName GROUP BY value",
    )
    assert {name: count for name, count, _ in named} == {
        name: count for name, (count, _) in truth.kernels.items()
    }
    for name, _, us in named:
        assert us == pytest.approx(truth.kernels[name][1], abs=1e-6)
    late = rows(
        path,
        "SELECT (k.start - r.start) / 1000.0 FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)",
    )
    assert sorted(us for (us,) in late) == pytest.approx(sorted(truth.latencies_us), abs=1e-6)
    query = "SELECT SUM(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 1"
    assert rows(path, query) == [(truth.h2d_bytes,)]
    pageable = rows(
        path,
        "SELECT SUM(end - start) / 1000.0 FROM CUPTI_ACTIVITY_KIND_MEMCPY m "
        "JOIN ENUM_CUDA_MEM_KIND e ON e.id = m.srcKind "
        "WHERE copyKind = 1 AND label = 'Pageable'",
    )
    assert pageable[0][0] == pytest.approx(truth.pageable_us, abs=1e-6)


def test_threads_and_texts_are_coded_as_in_an_export(tmp_path: Path) -> None:
    rank = traces.generate(None, 6).ranks[0]
    path = nsys_db.write(rank.json, tmp_path / "run.sqlite")
    threads = {
        (tid // 0x1000000 % 0x1000000, tid % 0x1000000)
        for (tid,) in rows(path, "SELECT DISTINCT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME")
    }
    assert threads == {
        (event["pid"], event["tid"]) for event in complete(rank.json, "cuda_runtime")
    }
    ranges = complete(rank.json, "user_annotation")
    query = (
        "SELECT value, COUNT(*) FROM NVTX_EVENTS JOIN StringIds ON id = textId "
        "WHERE eventType = 59 AND text IS NULL GROUP BY value"
    )
    assert dict(rows(path, query)) == Counter(event["name"] for event in ranges)
    assert rows(path, "SELECT text, end, domainId FROM NVTX_EVENTS WHERE eventType = 75") == [
        ("NCCL", None, 1)
    ]
    with_text = nsys_db.write(rank.json, tmp_path / "text.sqlite", textless=False)
    query = "SELECT COUNT(*) FROM NVTX_EVENTS WHERE eventType = 59 AND text IS NULL"
    assert rows(with_text, query) == [(0,)]


def test_a_table_without_rows_is_absent(tmp_path: Path) -> None:
    trace = traces.edge_cases()["plain"]
    assert tables(nsys_db.write(trace, tmp_path / "plain.sqlite")) == {
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "StringIds",
    }
    assert tables(nsys_db.write({"traceEvents": []}, tmp_path / "none.sqlite")) == set()


@pytest.mark.parametrize("name", sorted(traces.edge_cases()))
def test_every_edge_case_can_be_exported(name: str, tmp_path: Path) -> None:
    trace = traces.edge_cases()[name]
    path = nsys_db.write(trace, tmp_path / "edge.sqlite")
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    if kernels:
        assert rows(path, "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL") == [(len(kernels),)]


@pytest.mark.parametrize("name", sorted(nsys_db.EDGES))
def test_the_facts_of_databases_by_hand_are_true(name: str, tmp_path: Path) -> None:
    """Counted on a raster of 100 ns from the rows themselves."""
    path, facts = nsys_db.EDGES[name](tmp_path / "edge.sqlite")
    here = tables(path)
    cells: set[int] = set()
    for table in ("KERNEL", "MEMCPY", "MEMSET"):
        if f"CUPTI_ACTIVITY_KIND_{table}" in here:
            for start, end in rows(path, f"SELECT start, end FROM CUPTI_ACTIVITY_KIND_{table}"):
                assert start % 100 == end % 100 == 0
                cells.update(range(start // 100, end // 100))
    assert len(cells) / 10 == facts["busy_us"]
    walk = sorted(cells)
    gaps = [(b - a - 1) / 10 for a, b in itertools.pairwise(walk) if b > a + 1]
    assert gaps == facts["gaps_us"]
    found: dict[str, tuple[int, float]] = {}
    if "CUPTI_ACTIVITY_KIND_KERNEL" in here:
        strings = dict(rows(path, "SELECT id, value FROM StringIds"))
        for short, long, us in rows(
            path,
            "SELECT shortName, demangledName, (end - start) / 1000.0 "
            "FROM CUPTI_ACTIVITY_KIND_KERNEL",
        ):
            assert nsys_db.short_name(strings[long]) == strings[short]
            count, total = found.get(strings[short], (0, 0.0))
            found[strings[short]] = (count + 1, total + us)
    assert found == facts["kernels"]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("hta_nccl_data.json.gz", (2700, 960, 114, 8740)),
        ("hta_sampled_rank-1.json.gz", (1104, 40, 10, 1154)),
    ],
)
def test_a_real_trace_is_exported_whole(
    name: str, counts: tuple[int, int, int, int], tmp_path: Path
) -> None:
    trace = real(name)
    path = nsys_db.write(datasets.need(name), tmp_path / "run.sqlite")
    for table, count in zip(("KERNEL", "MEMCPY", "MEMSET", "RUNTIME"), counts, strict=True):
        query = f"SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_{table}"
        assert rows(path, query) == [(count,)]
    total = sum(event["dur"] for event in complete(trace, "kernel"))
    query = "SELECT SUM(end - start) / 1000.0 FROM CUPTI_ACTIVITY_KIND_KERNEL"
    assert rows(path, query)[0][0] == pytest.approx(total, abs=0.001 * counts[0])


# -- recorded here --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", sorted((SUITE / "recorded").glob("*.json.gz")), ids=lambda p: p.name
)
def test_recorded_traces_are_small_and_tell_nothing_of_their_machine(path: Path) -> None:
    content = path.read_bytes()
    assert len(content) < 60_000
    trace = json.loads(gzip.decompress(content))
    assert set(trace) <= {
        *("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds", "traceEvents"),
        *("record_shapes", "profile_memory"),
    }
    text = json.dumps(trace)
    for word in ("/home/", "/root/", "/usr/", "/tmp/", "hostname", "@"):
        assert word not in text
    for event in trace["traceEvents"]:
        for key in ("pid", "tid"):
            assert isinstance(event[key], str) or event[key] == 0 or 1000 <= event[key] < 1010
    assert not gpu_work(trace)
    assert {"cpu_op", "user_annotation"} <= {event["cat"] for event in complete(trace)}


def test_three_traces_are_recorded() -> None:
    assert len(list((SUITE / "recorded").glob("*.json.gz"))) == 3
