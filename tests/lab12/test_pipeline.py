"""simulate_pipeline: who does what when, and how long nobody does anything."""

import itertools

import pytest

from grader.suite import expect, task

from . import oracles

RECORDED = [(row["schedule"], row["p"], row["m"], row["v"]) for row in oracles.SCHEDULES]
SMALL = [case for case in RECORDED if case[1] * case[2] * case[3] <= 128]


def _ranks(run, p):
    return [[slot for slot in run.slots if slot.stage == s] for s in range(p)]


@task(
    "simulate_pipeline",
    holds=(
        "schedules",
        "both_ascend",
        "warm_up",
        "gpipe",
        "one_f_one_b",
        "interleaved",
        "virtual",
    ),
)
@pytest.mark.parametrize("case", RECORDED, ids=lambda case: "-".join(map(str, case)))
def test_work_is_done_in_torch_s_order(student, case):
    """Each rank's forwards and backwards, by micro-batch and chunk.
    Oracle: torch.distributed.pipelining's schedules, witnessed (schedules.json)."""
    schedule, p, m, v = case
    run = student.simulate_pipeline(*case, 1.0, 2.0)
    why = {
        "gpipe": "all forwards come first, then all backwards",
        "1f1b": "p - s - 1 forwards, then one forward and one backward in turn",
        "interleaved": "p micro-batches go through each chunk before the next p, and the warm-up "
        "is 2(p - s - 1) + (v - 1)p chunks",
    }[schedule]
    for s, (mine, want) in enumerate(
        zip(_ranks(run, p), oracles.torch_order(schedule, p, m, v), strict=True)
    ):
        got = [(slot.kind, slot.micro, slot.chunk) for slot in mine]
        expect.equal(got, want, why, f"rank {s} of {schedule}, p {p}, m {m}, v {v}")


@task("simulate_pipeline", holds=("rank_by_rank",))
@pytest.mark.parametrize("case", [("gpipe", 3, 4, 1), ("1f1b", 4, 6, 1), ("interleaved", 2, 4, 3)])
def test_slots_come_rank_by_rank(student, case):
    """All of rank 0, then all of rank 1, and so on, each rank's in the order of time.
    Oracle: 2 m v pieces of work a rank; starts that rise within each."""
    _schedule, p, m, v = case
    run = student.simulate_pipeline(*case, 2.0, 3.0)
    rows = [list(row) for _s, row in itertools.groupby(run.slots, key=lambda slot: slot.stage)]
    found = [(row[0].stage, len(row)) for row in rows]
    because = "slots hold all work rank by rank, in the order in which a rank does it"
    expect.equal(found, [(s, 2 * m * v) for s in range(p)], because, "(rank, its slots in a row)")
    for row in rows:
        starts = [slot.start for slot in row]
        rises = all(a <= b for a, b in itertools.pairwise(starts))
        expect.equal(rises, True, because, f"starts of rank {row[0].stage} rise")


@task(
    "simulate_pipeline",
    holds=(
        "soon",
        "needs",
        "chunk_time",
        "no_sending",
        "virtual",
    ),
)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: "-".join(map(str, case)))
def test_work_starts_as_soon_as_it_can(student, case):
    """Every start is the later of two ends: the rank's own work before, and what it waits for.
    Oracle: the dependencies of a forward and a backward, looked up slot by slot."""
    _schedule, p, m, v = case
    tf, tb = 1.5, 2.25
    run = student.simulate_pipeline(*case, tf, tb)
    ends = {(slot.kind, slot.micro, slot.chunk * p + slot.stage): slot.end for slot in run.slots}
    expect.equal(len(ends), 2 * m * p * v, "each chunk is done once forward and once backward")
    for row in _ranks(run, p):
        before = 0.0
        for slot in row:
            stage = slot.chunk * p + slot.stage
            if slot.kind == "F":
                ready = ends["F", slot.micro, stage - 1] if stage else 0.0
            elif stage < p * v - 1:
                ready = ends["B", slot.micro, stage + 1]
            else:
                ready = ends["F", slot.micro, stage]
            what = f"{slot.kind} of micro-batch {slot.micro}, virtual stage {stage}"
            early = "nothing starts before what it needs is there, and nothing waits longer"
            expect.close(slot.start, max(before, ready), early, n=64, what=f"start of {what}")
            long = (tf if slot.kind == "F" else tb) / v
            part = "a chunk takes tf / v forward and tb / v backward"
            took = f"duration of {what}"
            expect.close(slot.end - slot.start, long, part, n=64, what=took, scale=200)
            before = slot.end


@task(
    "simulate_pipeline",
    holds=(
        "bubbles",
        "total",
    ),
)
def test_bubbles_have_closed_forms(student):
    """Of the ideal time (p - 1) / (v m), whatever tf and tb; of the total that over 1 more.
    Oracle: published.json, bubble_examples; (p - 1) / (v m + p - 1)."""
    cases = [("1f1b", 4, 8, 1), ("gpipe", 8, 8, 1), ("1f1b", 4, 32, 1), ("interleaved", 8, 32, 4)]
    cases += [("gpipe", 3, 5, 1), ("1f1b", 8, 8, 1), ("1f1b", 5, 3, 1), ("interleaved", 2, 6, 3)]
    got = student.probe.bubbles(cases, 1.0, 2.5)
    for (schedule, p, m, v), (ideal, of_total, total, _peaks) in zip(cases, got, strict=True):
        where = f"{schedule}, p {p}, m {m}, v {v}"
        expect.close(
            ideal,
            (p - 1) / (v * m),
            "(p - 1) / (v m) is a share of the work, the ideal time",
            n=1000,
            what=f"bubble_of_ideal, {where}",
        )
        expect.close(
            of_total,
            (p - 1) / (v * m + p - 1),
            "(p - 1) / (v m + p - 1) is a share of the total time",
            n=1000,
            what=f"bubble_of_total, {where}",
        )
        want = (m + (p - 1) / v) * 3.5
        expect.close(total, want, "work, and p - 1 vths of it", n=1000, what=f"total, {where}")
    expect.published([row[0] for row in got[:4]], oracles.PUBLISHED["bubble_examples"])


@task("simulate_pipeline", holds=("peak",))
def test_chunks_in_flight(student):
    """GPipe holds m, 1F1B p - s, interleaving 2(p - s - 1) + (v - 1)p + 1 chunks.
    Oracle: forwards less backwards along torch's recorded order."""
    cases = RECORDED[::-1]
    got = student.probe.bubbles(cases, 1.0, 2.0)
    for (schedule, p, m, v), (_ideal, _of_total, _total, peaks) in zip(cases, got, strict=True):
        want = []
        for work in oracles.torch_order(schedule, p, m, v):
            held = [0]
            for kind, _micro, _chunk in work:
                held.append(held[-1] + (1 if kind == "F" else -1))
            want.append(max(held))
        expect.equal(
            list(peaks),
            want,
            "a chunk is held from its forward to its backward",
            f"peak_in_flight, {schedule}, p {p}, m {m}, v {v}",
        )


@task("simulate_pipeline", gate=False, holds=("largest",))
def test_long_pipelines_of_a_paper(student):
    """32 stages with 128 micro-batches and 128 with 512: a quarter of the ideal time again.
    Oracle: published.json, bubble_sc21_fig6: (n - d) / b' with d = 1."""
    cases = [("1f1b", 32, 128, 1), ("1f1b", 128, 512, 1)]
    shares = [round(row[0], 2) for row in student.probe.bubbles(cases, 1.0, 2.0)]
    expect.published(shares, oracles.PUBLISHED["bubble_sc21_fig6"])


@task(
    "simulate_pipeline",
    gate=False,
    holds=(
        "few",
        "times",
    ),
)
def test_fewer_micro_batches_than_ranks(student):
    """1, 2 and 3 micro-batches on 4 ranks, forwards and backwards of other lengths; one rank alone.
    Oracle: the longest chain of dependencies, (m + p - 1)(tf + tb)."""
    for schedule in ("gpipe", "1f1b"):
        for p, m, tf, tb in (
            (4, 2, 1.0, 3.0),
            (4, 1, 3.0, 1.0),
            (4, 3, 2.0, 3.0),
            (1, 5, 2.0, 1.0),
        ):
            run = student.simulate_pipeline(schedule, p, m, 1, tf, tb)
            where = f"{schedule}, p {p}, m {m}"
            want = (m + p - 1) * (tf + tb)
            expect.close(run.total, want, "(m + p - 1)(tf + tb)", n=64, what=f"total, {where}")
            most = m if schedule == "gpipe" else min(m, p)
            expect.equal(
                run.peak_in_flight[0], most, "never more than m", f"peak of rank 0, {where}"
            )
            because = "a forward and a backward of each micro-batch on each rank"
            expect.equal(len(run.slots), 2 * p * m, because, f"slots, {where}")


@task(
    "simulate_pipeline",
    gate=False,
    holds=(
        "other_schedule",
        "below_one",
        "chunks_outside",
        "interleaved_limits",
    ),
)
def test_pipelines_that_cannot_run_are_refused(student):
    """Another schedule, no ranks, chunks without interleaving, 6 micro-batches in rounds of 4.
    Oracle: the contract."""
    for schedule, p, m, v in (
        ("zigzag", 2, 2, 1),
        ("1f1b", 0, 2, 1),
        ("1f1b", 2, 0, 1),
        ("gpipe", -1, 2, 1),
        ("1f1b", 2, -2, 1),
        ("1f1b", 2, 2, 0),
        ("gpipe", 2, 2, 0),
        ("interleaved", 2, 2, 0),
        ("interleaved", 2, 0, 2),
        ("interleaved", 0, 4, 2),
        ("1f1b", 2, 2, 2),
        ("gpipe", 2, 2, 2),
        ("interleaved", 4, 6, 2),
        ("interleaved", 1, 4, 2),
        ("interleaved", 4, 4, 1),
    ):
        with expect.raises(ValueError, f"{schedule} with p {p}, m {m}, v {v} is no pipeline"):
            student.simulate_pipeline(schedule, p, m, v, 1.0, 2.0)
