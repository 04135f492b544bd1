"""SequentialOffload, ModelOffloadChain, GroupOffload: what is in fast memory when a unit runs, and
what crossed the link.

Movers and units are the suite's: they look at storages, in the learner's process. What they saw is
held against closed forms, against the allocator's own peak, and against outputs computed here.
"""

from __future__ import annotations

import pytest

from grader.suite import expect, task

from . import oracles_offload as oracles

DIM = 64
WEIGHT, BIAS, OWN = oracles.sizes(DIM)
UNIT = WEIGHT + BIAS + OWN
# Activations of 2 x 64 floats, and what the allocator rounds up.
SLACK = 12 * 1024


def _rows(rng, count):
    """(weight, bias, gain) of each unit, float32."""
    scale = DIM**-0.5
    return [
        (
            (scale * rng.normal(size=(DIM, DIM))).astype("float32"),
            rng.normal(size=DIM).astype("float32"),
            rng.normal(size=DIM).astype("float32"),
        )
        for _ in range(count)
    ]


def _part(rows, **more):
    """Arguments of the probe's Units, and the oracle's Row of the same numbers."""
    import torch

    made = [tuple(torch.from_numpy(part) for part in row) for row in rows]
    return {"weights": made, **more}, oracles.Row(rows, **more)


def _input(rng):
    return rng.normal(size=(2, DIM)).astype("float32")


def _run(student, kind, parts, calls, **settings):
    """The probe's report, its outputs judged against the oracle's. `parts`: label to (rows, more);
    `calls`: (label, x, skip)."""
    import torch

    made = {label: _part(rows, **more) for label, (rows, more) in parts.items()}
    got = student.probe.offload(
        kind,
        settings,
        [(label, arguments) for label, (arguments, _row) in made.items()],
        [(label, torch.from_numpy(x), tuple(skip)) for label, x, skip in calls],
    )
    wants = [made[label][1](x, skip) for label, x, skip in [*calls, *calls[:1]]]
    because = "what runs needs its weights in fast memory, and nothing that it needs may have left"
    expect.equal(got["stopped"], "", because=because, what="stopped")
    because = "offload moves weights and computes nothing, so every output is what it was"
    expect.close(
        list(got["outs"]), wants, because=because, n=8 * DIM, dtype="float32", what="outputs"
    )
    return got


# -- all three -------------------------------------------------------------------------------------

KINDS = ("SequentialOffload", "ModelOffloadChain", "GroupOffload")
LAYER = oracles.layer_bytes(DIM)
# Layers 0, 1 and 2 in this order; bytes that are in fast memory after a call, and that cross
# the link one way in it. In groups of two, layer 2 is a group of its own.
ORDER = {
    "SequentialOffload": ((0, 1, 0, 2), 0, 4 * LAYER),
    "ModelOffloadChain": ((0, 1, 1, 2), LAYER, 3 * LAYER),
    "GroupOffload": ((0, 1, 2), 0, 3 * LAYER),
}


@task(*KINDS, holds=("buffers", "passes_through", "second_name", "each_once", "in_every_call"))
def test_what_a_forward_changes_is_kept(student, rng, task):
    """Three calls of layers that have no bias, a parameter under two names, a buffer that each call
    counts up in place and one for which each call puts a new tensor; called with a keyword, and
    giving a tuple.   Oracle: the layers in NumPy, in float64; bytes added up from shapes."""
    import torch

    order, there, moved = ORDER[task]
    rows = [(weight, gain) for weight, _bias, gain in _rows(rng, 3)]
    xs = [_input(rng) for _ in range(3)]
    made = [tuple(torch.from_numpy(part) for part in row) for row in rows]
    tensors = [torch.from_numpy(x) for x in xs]
    got = student.probe.lasting(task, made, list(order), tensors, 0.5)
    because = "what runs needs its weights in fast memory, and nothing that it needs may have left"
    expect.equal(got["stopped"], "", because=because, what="stopped")
    layers = oracles.Layers(rows, order)
    because = "on construction everything leaves, each tensor once"
    expect.equal(list(got["first"]), [3 * LAYER, 0], because=because, what="bytes to slow, left")
    for place, (x, (out, counts, fast, *ways)) in enumerate(zip(xs, got["calls"], strict=True)):
        want, calls = layers(x, 0.5)
        because = "a buffer that a forward changes keeps its new value, also as a new tensor"
        expect.equal(list(counts), calls, because=because, what="how often each layer was called")
        expect.close(out, want, because=because, n=8 * DIM, dtype="float32", what=f"output {place}")
        because = "a new tensor under a buffer's name leaves fast memory as the old one would have"
        expect.bytes(fast, there, because=because, what=f"fast bytes after call {place}")
        left = moved - (there if place == 0 else 0)
        because = "what comes is what leaves, each tensor once: two names of one are one tensor"
        expect.equal(ways, [moved, left], because=because, what=f"bytes to fast and slow, {place}")
    for place, (total, calls) in enumerate(got["states"]):
        because = "remove() brings back what the buffers are now"
        expect.equal(calls, layers.calls[place], because=because, what=f"calls of layer {place}")
        want = layers.totals[place]
        expect.close(
            total, want, because=because, n=8 * DIM, dtype="float32", what=f"total of {place}"
        )
    expect.bytes(got["returned"], 3 * LAYER, because="all is there again", what="after remove()")


# -- SequentialOffload -----------------------------------------------------------------------------


def _sequential(student, rng, count=3, calls=2, **more):
    x = _input(rng)
    parts = {"": (_rows(rng, count), more)}
    return _run(student, "SequentialOffload", parts, [("", x, ())] * calls)


@task(
    "SequentialOffload", holds=("own_tensors", "leave", "construction", "with_children", "no_copy")
)
def test_a_modules_weights_are_there_while_it_runs(student, rng):
    """Fast memory holds the running layer's weights and what the modules around it hold
    themselves, nothing before, between and after.
    Oracle: bytes added up from shapes, storages looked at by the layers, the allocator."""
    got = _sequential(student, rng)
    because = "weights that nobody uses now have no storage in fast memory"
    expect.bytes(got["begin"], 0, because="on construction everything leaves")
    for place, seen in enumerate(got["seen"]):
        expect.bytes(seen, UNIT, because=because, what=f"fast bytes when layer {place} ran")
    for seen in got["idle"]:
        expect.bytes(seen, 0, because=because, what="fast bytes after a call")
    because = "what the movers give is all that there is: no copy is kept anywhere"
    expect.at_most(got["allocated"], UNIT + SLACK, because=because, what="allocated", unit="bytes")


@task("SequentialOffload", holds=("in_every_call", "each_a_copy", "buffers"))
def test_every_call_copies_every_weight_once(student, rng):
    """Three calls of three units: each tensor goes to fast memory three times, and back.
    Oracle: calls times bytes."""
    calls, count = 3, 3
    got = _sequential(student, rng, count, calls)
    because = "a module's own tensors come before its forward and leave after it, once each"
    for way in ("fast", "slow"):
        times = oracles.counted(got["moves"], way)
        expect.equal(sorted(set(times.values())), [calls], because=because, what=f"times to {way}")
        expect.equal(len(times), 4 * count, because=because, what=f"tensors that went to {way}")
        expect.bytes(
            oracles.travelled(got["moves"], way),
            calls * count * UNIT,
            because=because,
            what=f"bytes to {way}",
        )


@task("SequentialOffload", holds=("each_once", "in_every_call"))
def test_a_weight_of_two_neighbours_comes_with_each(student, rng):
    """Units 0 and 2 of three have one weight: it leaves once on construction, and then it comes
    with each of them and leaves with each, since between them nobody needs it.
    Oracle: storages when each layer ran, and counts."""
    calls = 2
    got = _sequential(student, rng, calls=calls, tie=(0, 2))
    because = "on construction each tensor leaves once, also one with two names"
    times = oracles.counted(got["built"], "slow")
    expect.equal(sorted(set(times.values())), [1], because=because, what="how often each left")
    because = "weights are there only while a module that holds them runs"
    want = [UNIT] * 3 * calls
    expect.equal(list(got["seen"]), want, because=because, what="fast bytes when layers ran")
    for way in ("fast", "slow"):
        expect.bytes(
            oracles.travelled(got["moves"], way),
            calls * 3 * UNIT,
            because=because,
            what=f"bytes to {way}",
        )


@task("SequentialOffload", holds=("until_the_outer", "own_tensors", "each_once"))
def test_a_tensor_held_above_stays_until_the_end(student, rng):
    """The whole multiplies by a weight of unit 0 at its end: tied, so it moves once a call and
    stays in between.   Oracle: storages when each layer ran, and counts."""
    got = _sequential(student, rng, keeps=True)
    because = "the outer module still needs the tied weight when the inner one is done"
    want = [UNIT, UNIT + WEIGHT, UNIT + WEIGHT] * 2
    expect.equal(list(got["seen"]), want, because=because, what="fast bytes when layers ran")
    for moves, count in ((got["built"], 1), (got["moves"], 2)):
        times = oracles.counted(moves, "slow")
        because = "a tensor with two holders is one tensor: it moves once"
        what = "how often each tensor left"
        expect.equal(sorted(set(times.values())), [count], because=because, what=what)
    times = oracles.counted(got["moves"], "fast")
    expect.equal(sorted(set(times.values())), [2], because=because, what="how often a weight came")


@task("SequentialOffload", holds=("until_the_outer", "own_tensors"))
def test_a_tensor_is_held_at_any_depth(student, rng):
    """The whole holds a weight of unit 0, and each unit holds the bias of its own dense layer,
    which it needs after that layer has run: three levels run at a time.
    Oracle: storages when each layer ran, and counts."""
    got = _sequential(student, rng, keeps=True, within=True)
    because = "a tensor stays until the outermost of the running modules that hold it is done"
    unit = UNIT - BIAS
    want = [unit, unit + WEIGHT, unit + WEIGHT] * 2
    expect.equal(list(got["seen"]), want, because=because, what="fast bytes when layers ran")
    for way in ("fast", "slow"):
        times = oracles.counted(got["moves"], way)
        what = f"how often each tensor went to {way}"
        expect.equal(sorted(set(times.values())), [2], because=because, what=what)


@task("SequentialOffload", gate=False, holds=("remove", "hooks_off"))
def test_what_was_built_comes_back(student, rng):
    """remove() brings each tensor back once, and later calls move nothing.   Oracle: counts."""
    got = _sequential(student, rng, keeps=True)
    _removed(got)


@task("SequentialOffload", extra=("accelerate",))
def test_accelerate_moves_the_same_modules(student, rng):
    """accelerate's cpu_offload leaves idle parameters on meta, and gives the same output.
    Oracle: accelerate.cpu_offload(execution_device="cpu", offload_buffers=True)."""
    import accelerate
    import torch

    rows = _rows(rng, 2)
    x = torch.from_numpy(_input(rng))
    layers = [torch.nn.Linear(DIM, DIM) for _ in rows]
    for layer, (weight, bias, _gain) in zip(layers, rows, strict=True):
        layer.weight.data, layer.bias.data = torch.from_numpy(weight), torch.from_numpy(bias)
    model = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1])
    theirs = accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    idle = {parameter.device.type for parameter in theirs.parameters()}
    expect.equal(sorted(idle), ["meta"], because="accelerate's idle parameters are on meta")
    with torch.no_grad():
        want = theirs(x)
    arguments = [tuple(torch.from_numpy(part) for part in row[:2]) for row in rows]
    outs, held = student.probe.offloaded_linear(arguments, x)
    expect.equal(held, [0, 0], because="idle weights have no storage")
    because = "moving weights changes no output"
    expect.close(outs, want.numpy(), because=because, n=DIM, dtype="float32")


# -- ModelOffloadChain -----------------------------------------------------------------------------

SEQ = "text->unet->vae"
SIZES = {"text": 2, "unet": 4, "vae": 3}


def _chain(student, rng, steps=4, extra=None, again=False, seq=SEQ):
    """One run: text once, unet `steps` times, vae once."""
    x = _input(rng)
    parts = {label: (_rows(rng, count), {}) for label, count in SIZES.items()}
    if extra:
        parts.update(extra)
    calls = [("text", x, ()), *[("unet", x, ())] * steps, ("vae", x, ())]
    return _run(student, "ModelOffloadChain", parts, calls * (2 if again else 1), seq=seq)


@task("ModelOffloadChain", holds=("named_leave", "first_leaves", "whole", "finish", "stays"))
def test_one_component_is_there_at_a_time(student, rng):
    """Whichever runs is there whole, and no other: also while they change places.
    Oracle: bytes of the components, storages after every move, the allocator."""
    steps = 3
    got = _chain(student, rng, steps)
    expect.bytes(got["begin"], 0, because="on construction the whole chain leaves")
    want = [UNIT * n for n in (2, *[4] * steps, 3) for _ in range(n)]
    because = "the component that runs is there whole, and no other one"
    expect.equal(list(got["seen"]), want, because=because, what="fast bytes when layers ran")
    because = "the old one leaves before the new one comes, or both are there at once"
    expect.bytes(got["most"], 4 * UNIT, because=because, what="most fast bytes")
    expect.at_most(
        got["allocated"], 4 * UNIT + SLACK, because=because, what="allocated", unit="bytes"
    )
    because = "a component stays until another one is called, and finish() sends away the last"
    want = [UNIT * n for n in (2, *[4] * steps, 3, 0)]
    expect.equal(list(got["idle"]), want, because=because, what="fast bytes after each call")


@task("ModelOffloadChain", holds=("once_for_all", "stays"))
def test_a_component_comes_once_for_all_its_steps(student, rng):
    """One run moves each component in once and out once, with 2 steps as with 9.
    Oracle: the components' bytes, added up."""
    because = "the denoiser stays through its steps: that is what makes this mode cheap"
    for steps in (2, 9):
        got = _chain(student, rng, steps)
        back, there = (oracles.travelled(got["moves"], way) for way in ("slow", "fast"))
        expect.bytes(back, UNIT * 9, because=because, what=f"bytes to slow in {steps} steps")
        expect.bytes(there, UNIT * 9, because=because, what=f"bytes to fast in {steps} steps")


@task("ModelOffloadChain", holds=("distinct",))
def test_a_tied_weight_of_a_component_moves_once(student, rng):
    """Two units of one component share a weight.   Oracle: one storage, one copy each way."""
    x = _input(rng)
    parts = {
        "text": (_rows(rng, 3), {"tie": (0, 2), "keeps": True}),
        "unet": (_rows(rng, 2), {}),
    }
    calls = [("text", x, ()), ("unet", x, ()), ("unet", x, ())]
    got = _run(student, "ModelOffloadChain", parts, calls, seq="text->unet")
    for name, moves in (("on construction", got["built"]), ("in the run", got["moves"])):
        times = oracles.counted(moves, "slow")
        because = "a tied weight is one tensor under two names: it moves once"
        expect.equal(
            sorted(set(times.values())),
            [1],
            because=because,
            what=f"how often a weight left {name}",
        )
    back, there = (oracles.travelled(got["moves"], way) for way in ("slow", "fast"))
    expect.bytes(back, 5 * UNIT - WEIGHT, because=because, what="bytes to slow")
    expect.bytes(there, 5 * UNIT - WEIGHT, because=because, what="bytes to fast")


@task("ModelOffloadChain", gate=False, holds=("whichever", "first_leaves"))
def test_a_second_run_begins_as_the_first(student, rng):
    """The last component of a run makes room for the first of the next, in any order.
    Oracle: bytes of whichever runs."""
    got = _chain(student, rng, 2, again=True, seq="vae->text->unet")
    want = [UNIT * n for n in (2, 4, 4, 3) * 2] + [0]
    because = "whichever is there leaves, not only the one before it in seq"
    expect.equal(list(got["idle"]), want, because=because, what="fast bytes after each call")
    expect.bytes(got["most"], 4 * UNIT, because=because, what="most fast bytes")


@task("ModelOffloadChain", holds=("others_stay",))
def test_who_is_not_named_stays(student, rng):
    """A component that seq does not name is in fast memory from first to last, and a call of it
    moves nothing.   Oracle: its bytes."""
    x = _input(rng)
    parts = {label: (_rows(rng, count), {}) for label, count in (("a", 2), ("b", 1), ("c", 1))}
    calls = [("a", x, ()), ("c", x, ()), ("b", x, ())]
    got = _run(student, "ModelOffloadChain", parts, calls, seq="a->b")
    expect.equal(list(got["idle"]), [3 * UNIT, 3 * UNIT, 2 * UNIT, UNIT], because="c stays")


@task("ModelOffloadChain", gate=False, holds=("unknown", "twice", "before_anything"))
@pytest.mark.parametrize(
    ("seq", "name"),
    [
        ("ab->d", "d"),
        ("d->ab", "d"),
        ("ab->c->ab", "ab"),
        ("c->c", "c"),
        ("ab->", ""),
        ("a->c", "a"),
    ],
)
def test_a_wrong_order_is_refused_before_anything_moves(student, seq, name):
    """A name that is no component, one that is empty, a part of one, and one that stands there
    twice.   Oracle: the contract; copies counted."""
    text, copies = student.probe.refused_chain(["ab", "c"], seq)
    expect.true(
        text != "", because=f"{seq!r} is no order of 'ab' and 'c'", observed="no ValueError"
    )
    expect.true(name in text, because=f"the error names {name!r}", observed=text)
    because = "who is refused finds everything where it was: look at all names first"
    expect.equal(copies, 0, because=because, what="copies before the error")


@task("ModelOffloadChain", holds=("whichever", "stays", "finish", "again", "remove_before"))
def test_what_happens_after_the_end_of_a_run(student, rng):
    """finish() twice, calls after it, in another order, and remove() without it.
    Oracle: what moves in which order, by hand."""
    happens = [0, 0, "finish", "finish", 0, 2, 1, 0, "remove", 1, 2, 0]
    want = [
        ([("fast", 0)], [0, 3]),
        ([], [0, 3]),
        ([("slow", 0)], [3]),
        ([], [3]),
        ([("fast", 0)], [0, 3]),
        ([("slow", 0), ("fast", 2)], [2, 3]),
        ([("slow", 2), ("fast", 1)], [1, 3]),
        ([("slow", 1), ("fast", 0)], [0, 3]),
    ]
    got = _course(student, rng, "ModelOffloadChain", 4, happens, seq="part0->part1->part2")
    because = "whichever is there leaves, then the other comes; who is there already stays"
    expect.equal(got[:8], want, because=because, what="what moved, and what was there then")
    because = "remove() brings back all of the chain, also what was there when it was called"
    expect.equal(got[8][1], [0, 1, 2, 3], because=because, what="what is there after remove()")
    because = "remove() takes the hooks off: later calls move nothing"
    wants = [([], [0, 1, 2, 3])] * 3
    expect.equal(got[9:], wants, because=because, what="calls after remove()")


def _course(student, rng, kind, count, happens, **settings):
    """What moved and what was there, for each of these events."""
    import torch

    rows = [tuple(torch.from_numpy(part) for part in row) for row in _rows(rng, count)]
    got = student.probe.course(kind, rows, happens, settings)
    because = "what runs needs its weights in fast memory, and nothing that it needs may have left"
    expect.equal(got["stopped"], "", because=because, what="stopped")
    return [([tuple(move) for move in moves], list(there)) for moves, there in got["found"]]


@task("ModelOffloadChain", gate=False, holds=("remove", "back_once"))
def test_the_chain_comes_back(student, rng):
    """remove() brings each tensor back once, and later calls move nothing.   Oracle: counts."""
    _removed(_chain(student, rng, 2))


# -- GroupOffload ----------------------------------------------------------------------------------


def _grouped(student, rng, count, k, steps=2, skip=(), **more):
    x = _input(rng)
    parts = {"": (_rows(rng, count), more)}
    return _run(student, "GroupOffload", parts, [("", x, skip)] * steps, k=k)


@task("GroupOffload", holds=("k_in_a_row", "smaller", "construction", "leaves", "comes", "whole"))
def test_k_blocks_are_there_at_a_time(student, rng):
    """Seven blocks by three: at each block its group is there and nothing else, the last group is
    one block, and after a call nothing is.   Oracle: bytes of each group, the allocator."""
    count, k, steps = 7, 3, 2
    got = _grouped(student, rng, count, k, steps)
    expect.bytes(got["begin"], 0, because="on construction everything leaves")
    want = [UNIT * n for n in (3, 3, 3, 3, 3, 3, 1)] * steps
    because = "a block's group is there while it runs, and no other"
    expect.equal(list(got["seen"]), want, because=because, what="fast bytes when blocks ran")
    because = "a group leaves after its last block, before the next one comes"
    expect.bytes(got["most"], k * UNIT, because=because, what="most fast bytes")
    expect.at_most(
        got["allocated"], k * UNIT + SLACK, because=because, what="allocated", unit="bytes"
    )
    because = "after the forward of its last block a group has left"
    expect.equal(list(got["idle"]), [0] * steps, because=because, what="fast bytes after a call")


@task("GroupOffload", holds=("k_in_a_row", "smaller", "comes", "leaves", "one_block"))
def test_onloads_are_groups_times_steps(student, rng):
    """40 blocks by 2 are 20 onloads a step; 5 by 2 are 3, and 4 by 9 one.
    Oracle: ceil(L / k) * steps, and every byte once a step."""
    because = "a group comes when its first block is called, and each step brings all groups again"
    for count, k, steps in ((40, 2, 1), (5, 2, 3), (4, 9, 2), (3, 1, 2)):
        got = _grouped(student, rng, count, k, steps)
        waves = sum(
            row[0] == "fast" and (place == 0 or got["moves"][place - 1][0] == "slow")
            for place, row in enumerate(got["moves"])
        )
        what = f"onloads of {count} blocks by {k} in {steps} steps"
        expect.equal(waves, -(-count // k) * steps, because=because, what=what)
        for way in ("fast", "slow"):
            expect.bytes(
                oracles.travelled(got["moves"], way),
                count * UNIT * steps,
                because=because,
                what=f"bytes to {way}, {count} blocks by {k}",
            )


@task("GroupOffload", holds=("shared", "construction"))
def test_a_tied_weight_of_a_group_moves_once(student, rng):
    """Blocks that share a weight: in one group it moves once, in two groups with each of them.
    Oracle: bytes of the groups with one storage counted once."""
    because = "two blocks of a group with one weight hold one tensor: it moves once"
    for tie, groups in (((0, 1), ((0, 1), (2, 3))), ((1, 2), ((0, 1), (2, 3)))):
        got = _grouped(student, rng, 4, 2, tie=tie)
        want = 2 * sum(oracles.group_bytes(groups, DIM, tie))
        what = f"bytes to fast, blocks {tie[0]} and {tie[1]} tied"
        expect.bytes(oracles.travelled(got["moves"], "fast"), want, because=because, what=what)
        times = oracles.counted(got["built"], "slow")
        expect.equal(
            sorted(set(times.values())),
            [1],
            because=because,
            what="how often a weight left at first",
        )


@task("GroupOffload", holds=("iterables",))
@pytest.mark.parametrize("container", ["list", "tuple", "ModuleList", "iterator", "generator"])
def test_blocks_come_from_any_iterable(student, rng, container):
    """Five blocks by two, from what can be walked once and from what can be walked again.
    Oracle: what moves in which order, by hand."""
    got = _course(student, rng, "GroupOffload", 5, [0, 1, 2, 3, 4], k=2, container=container)
    first, second, last = [("fast", 0), ("fast", 1)], [("fast", 2), ("fast", 3)], [("fast", 4)]
    want = [
        (first, [0, 1]),
        ([("slow", 0), ("slow", 1)], []),
        (second, [2, 3]),
        ([("slow", 2), ("slow", 3)], []),
        ([*last, ("slow", 4)], []),
    ]
    because = "a group comes with its first block and leaves after its last one"
    expect.equal(_sorted(got), want, because=because, what="what moved, and what was there then")


def _sorted(got):
    """In a group one may come before the other."""
    found = []
    for moves, there in got:
        ways = list(dict.fromkeys(way for way, _place in moves))
        found.append(([move for way in ways for move in sorted(moves) if move[0] == way], there))
    return found


@task("GroupOffload", holds=("whichever", "comes", "skipped", "remove", "hooks_off"))
def test_blocks_in_another_order(student, rng):
    """Calls that begin within a group, end in one, come back to one and repeat a block; remove()
    while a group is there.   Oracle: what moves in which order, by hand."""
    happens = [1, 0, 2, 2, 5, 5, 3, 1, 4, "remove", 0, 3, 7]
    one, two = ([("fast", at), ("fast", at + 1), ("fast", at + 2)] for at in (0, 3))
    away, gone = ([("slow", at), ("slow", at + 1), ("slow", at + 2)] for at in (0, 3))
    want = [
        (one, [0, 1, 2]),  # 1
        ([], [0, 1, 2]),  # 0
        (away, []),  # 2, the last of its group
        ([*one, *away], []),  # 2
        ([*two, *gone], []),  # 5
        ([*two, *gone], []),  # 5
        (two, [3, 4, 5]),  # 3
        ([*gone, *one], [0, 1, 2]),  # 1
        ([*away, *two], [3, 4, 5]),  # 4
    ]
    got = _course(student, rng, "GroupOffload", 8, happens, k=3, container="list")
    because = (
        "a group comes for whichever block is called, leaves after its last or for another one"
    )
    expect.equal(_sorted(got)[:9], want, because=because, what="what moved, and what was there")
    because = "remove() brings all blocks back, also those that were there when it was called"
    expect.equal(got[9][1], list(range(8)), because=because, what="what is there after remove()")
    because = "remove() takes the hooks off: later calls move nothing"
    wants = [([], list(range(8)))] * 3
    expect.equal(got[10:], wants, because=because, what="calls after remove()")


@task("GroupOffload", holds=("skipped",))
def test_a_skipped_last_block_leaves_no_second_group(student, rng):
    """Blocks 1 and 4 of six by two: one is the last of its group, and never runs.
    Oracle: at most one group's bytes at any moment."""
    got = _grouped(student, rng, 6, 2, skip=(1, 4))
    because = "a group whose last block was skipped leaves before the next one comes"
    expect.bytes(got["most"], 2 * UNIT, because=because, what="most fast bytes")
    want = [2 * UNIT] * 4 * 2
    expect.equal(list(got["seen"]), want, because=because, what="fast bytes when blocks ran")


@task("GroupOffload", gate=False, holds=("remove", "back_once", "hooks_off", "no_group"))
def test_the_blocks_come_back(student, rng):
    """remove() brings each tensor back once, also while a group is there and with a weight that
    two groups share, and later calls move nothing; k below 1 is refused.
    Oracle: counts; ValueError."""
    for more in ({}, {"tie": (1, 2)}):
        _removed(_grouped(student, rng, 4, 2, skip=(3,), steps=1, **more))
    for k in (0, -2):
        with expect.raises(ValueError, because="a group holds one block at least"):
            _grouped(student, rng, 3, k)


def _removed(got):
    because = "without hooks a tensor that is not there stays away: remove() brings all back"
    expect.bytes(got["returned"], got["total"], because=because, what="fast bytes after remove()")
    times = oracles.counted(got["back"], "fast")
    expect.equal(
        sorted(set(times.values())),
        [1],
        because="each comes back once",
        what="how often a weight came",
    )
    expect.equal(got["after"], 0, because="a hook that is still there moves on", what="moves")
