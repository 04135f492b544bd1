"""Lab 02, the extra tier: what to keep in a checkpoint, and what an allocator holds."""

from __future__ import annotations

import pytest

from grader.suite import expect, task

from .models import through_waves, waves
from .oracles import normal

# --- selective_checkpoint ----------------------------------------------------------------------


@task("selective_checkpoint", holds=("gradients", "kept", "inputs_only", "recomputed"))
def test_products_are_kept_and_the_rest_runs_again(student, rng):
    """Gradients of the plain stack; no product twice, every sine twice; memory in between.
    Oracle: plain autograd in float64; 6 products a segment; the operator log and the live-bytes
    meter."""
    count, hidden, width, rows = 3, 6, 96, 40
    ups = [normal(rng, hidden, width, size=0.5) for _ in range(count)]
    downs = [normal(rng, width, hidden, size=0.2) for _ in range(count)]
    x, weight = normal(rng, rows, hidden), normal(rng, rows, hidden)
    plain, got = student.probe.selective(ups, downs, x, weight)
    stack = waves(ups, downs)
    grads = through_waves(stack, lambda segment, h: segment(h), x, weight)
    for index, right in enumerate(grads):
        name = f"gradient {index} (0 is the input's)"
        expect.close(got["grads"][index], right, because="the same function", n=900, what=name)
    expect.equal(
        got["calls"],
        [6 * count, 2 * count],
        because="two products forward, four backward and none again; each sine once more",
        what="products and sines",
    )
    wide, narrow = rows * width * 8, rows * hidden * 8
    expect.within(
        got["alive"],
        count * wide,
        count * (wide + 3 * narrow) + 4096 * count,
        because="one wide product a segment, and what is narrow",
        what="alive after the forward",
        unit="bytes",
    )
    expect.at_least(
        plain["alive"],
        3 * count * wide,
        because="a plain segment keeps three wide tensors",
        unit="bytes",
    )


@task("selective_checkpoint", holds=("four_products", "dropout", "several"))
def test_each_kind_of_product_runs_once(student, rng):
    """mm, addmm, bmm and baddbmm, with dropout, two inputs and two outputs.
    Oracle: plain autograd after the same seed, bitwise, and its own operator log."""
    plain, got = student.probe.selective_products(5, 6, int(rng.integers(1000)))
    expect.equal(got["out"], plain["out"], because="the function's own result")
    expect.equal(got["count"], plain["count"], because="the function's second result")
    for index, right in enumerate(plain["grads"]):
        name = ("x", "shift", "the parameter of mm", "the weight", "the bias")[index]
        expect.close(
            got["grads"][index],
            right,
            because="the second run draws the dropout mask of the first",
            n=200,
            what=f"gradient of {name}",
        )
    for name in ("mm", "addmm", "bmm", "baddbmm"):
        expect.equal(
            got["calls"][name],
            plain["calls"][name],
            because="a product of the forward is saved, and not computed again",
            what=f"calls of aten.{name}",
        )
    expect.equal(
        got["calls"]["sin"],
        2 * plain["calls"]["sin"],
        because="what is no product is computed again",
        what="calls of aten.sin",
    )


@task("selective_checkpoint", gate=False, holds=("recomputed", "others"))
def test_only_the_four_products_are_kept(student, rng):
    """lgamma and digamma, which have mm in their names, products of a vector, a softmax and fused
    attention between two mm.
    Oracle: calls in a plain forward and backward; plain autograd after the same seed."""
    plain, got = student.probe.selective_others(6, int(rng.integers(1000)))
    forward, later = plain["forward"], plain["backward"]
    missing = [name for name, count in forward.items() if count == 0]
    expect.equal(missing, [], because="the function calls all of them", what="not called")
    want = {name: later[name] + (0 if name == "mm" else forward[name]) for name in forward}
    expect.equal(
        got["backward"],
        want,
        because="kept are mm, addmm, bmm and baddbmm; all else runs again, whatever its name",
        what="calls in the backward",
    )
    for index, right in enumerate(plain["grads"]):
        expect.close(
            got["grads"][index],
            right,
            because="the same function",
            n=400,
            dtype="float32",
            what=f"gradient {index}",
        )


# --- summarize_snapshot ------------------------------------------------------------------------

STATES = ("active_allocated", "active_pending_free", "active_awaiting_free", "inactive")


def _segments(rng, count):
    """Segments cut into blocks of random states: every number is drawn, the totals follow."""
    made = []
    for _ in range(count):
        blocks = []
        for _ in range(int(rng.integers(1, 7))):
            size = 512 * int(rng.integers(1, 4000))
            state = STATES[int(rng.integers(4))]
            asked = size - int(rng.integers(0, 512))
            blocks.append({"address": 0, "size": size, "requested_size": asked, "state": state})
        made.append({"total_size": sum(b["size"] for b in blocks), "blocks": blocks})
    return made


def _size(segments, *states):
    return sum(b["size"] for s in segments for b in s["blocks"] if b["state"] in states)


@task("summarize_snapshot", holds=("sums", "states", "size", "both_names", "requested", "largest"))
@pytest.mark.parametrize("count", [0, 1, 12])
def test_every_byte_of_every_segment_is_somewhere(student, rng, count):
    """allocated + pending + free = reserved.   Oracle: sums of a snapshot made by hand."""
    segments = _segments(rng, count)
    got = student.summarize_snapshot(segments)
    used = [b for s in segments for b in s["blocks"] if b["state"] == "active_allocated"]
    free = [b["size"] for s in segments for b in s["blocks"] if b["state"] == "inactive"]
    want = {
        "reserved": (sum(s["total_size"] for s in segments), "segments are what is reserved"),
        "allocated": (_size(segments, "active_allocated"), "blocks that tensors use"),
        "requested": (sum(b["requested_size"] for b in used), "before rounding, in used blocks"),
        "pending": (_size(segments, *STATES[1:3]), "freed, but another stream is not done"),
        "free": (sum(free), "inactive blocks"),
        "largest_free": (max(free, default=0), "the largest tensor that needs no cudaMalloc"),
    }
    for name, (size, why) in want.items():
        expect.bytes(getattr(got, name), size, because=why, what=name)


@task("summarize_snapshot", gate=False, holds=("unknown_state", "adds_up"))
def test_what_no_snapshot_says_is_an_error(student):
    """An unknown state, and blocks that do not add up.   Oracle: the contract."""
    block = {"size": 512, "requested_size": 500, "state": "inactive_split"}
    with expect.raises(ValueError, because="inactive_split is a counter of memory_stats"):
        student.summarize_snapshot([{"total_size": 512, "blocks": [block]}])
    likely = ("active", "pending", "free", "", "active_free", "active_awaiting", "active_pending")
    for state in (*likely, "active_", "active_allocated_", "inactive_free", "Inactive"):
        with expect.raises(ValueError, because="a block has one of four states"):
            student.summarize_snapshot([{"total_size": 512, "blocks": [block | {"state": state}]}])
    block = {"size": 512, "requested_size": 500, "state": "inactive"}
    right = {"total_size": 512, "blocks": [block]}
    for total, blocks in ((1024, [block]), (511, [block]), (500, [block]), (1, [])):
        wrong = {"total_size": total, "blocks": blocks}
        for segments in ([wrong], [right, wrong]):
            with expect.raises(ValueError, because="a segment is the sum of its blocks"):
                student.summarize_snapshot(segments)
    balance = {"total_size": 1024, "blocks": [block]}, {"total_size": 512, "blocks": [block] * 2}
    with expect.raises(ValueError, because="each segment is the sum of its own blocks"):
        student.summarize_snapshot(list(balance))


@task("summarize_snapshot", extra=("gpu",))
@pytest.mark.gpu
def test_a_gpus_snapshot_adds_up_to_its_statistics(student):
    """The allocator's own counters, from a live snapshot and from a dumped one with its history.
    Oracle: torch.cuda.memory_stats; the sizes of four tensors, of which one was freed."""
    got = student.probe.gpu_snapshot()
    said = got["said"]
    for how in ("live", "dumped"):
        one = got[how]
        expect.bytes(one.reserved, said["reserved_bytes"], "segments", f"{how}: reserved")
        expect.bytes(one.allocated, said["allocated_bytes"], "used", f"{how}: allocated")
        expect.bytes(one.requested, said["requested_bytes"], "asked for", f"{how}: requested")
        expect.bytes(
            one.allocated + one.pending, said["active_bytes"], "used or waiting", f"{how}: active"
        )
    expect.equal(got["kept"], 3, because="three of four tensors are kept")
    asked = [4 * n for n in (1, 1000, 300_000, 5_000_000)]
    expect.equal(len(got["made"]), 4, because="an event for each allocation", what="allocations")
    for size, least in zip(got["made"], asked, strict=True):
        # as it was asked for, or as a block of whole 512 bytes
        expect.within(size, least, -(-least // 512) * 512, because="in order", what="allocated")
    expect.true(
        got["made"][2] in got["freed"],
        because="the history has the free of the tensor that was deleted",
        observed=got["freed"],
    )
