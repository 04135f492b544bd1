"""Lab 08: one norm, one checkpoint, one master for all shards."""

from __future__ import annotations

import pytest
import torch

from grader.suite import expect, task

from . import oracles_state as oracles
from .oracles_sharding import normal, sharded
from .oracles_state import MOMENTS

# --- clip_grad_norm_sharded ----------------------------------------------------------------------


def _case(
    rng, numels, world_size, share=0.5, size=1.0, dtype=torch.float32, listed=None, filler=100.0
):
    """Whole gradients, and for each rank its padded shards of them; max_norm is that share of the
    norm. What stands in the padding would show. A list of dtypes has one for each gradient."""
    dtypes = dtype if isinstance(dtype, list) else [dtype] * len(numels)
    whole = [
        (normal(rng, n, size=size) * torch.linspace(1, 5, n)).to(kind)
        for n, kind in zip(numels, dtypes, strict=True)
    ]
    norm = float(oracles.clipped(whole, 1.0)[0])
    pieces = [oracles.cut(grad, world_size, filler=filler) for grad in whole]
    real = [oracles.counts(n, world_size) for n in numels]
    rows = [
        {
            "shards": [piece[rank] for piece in pieces],
            "real": [count[rank] for count in real],
            "listed": listed or list(range(len(numels))),
            "max_norm": share * norm,
            "strict": False,
        }
        for rank in range(world_size)
    ]
    return whole, rows


def _by_rank(cases):
    """[whole, rows by rank] a case, to a list of cases a rank."""
    return [list(rows) for rows in zip(*(rows for _, rows in cases), strict=True)]


def _rejoined(found, case, whole, members=None):
    """The gradients as a whole again: what the ranks hold of them, without the padding."""
    size = len(found) if members is None else len(members)
    out = []
    for i, grad in enumerate(whole):
        counts = oracles.counts(grad.numel(), size)
        parts = [found[rank][case]["shards"][i] for rank in members or range(size)]
        out.append(torch.cat([part[:n] for part, n in zip(parts, counts, strict=True)]))
    return out


def _expect_clipped(found, cases, members=None):
    """Norms, coefficients and gradients are those of torch on the whole."""
    members = members or list(range(len(found)))
    for number, (whole, rows) in enumerate(cases):
        max_norm = rows[0]["max_norm"]
        norm, want = oracles.clipped(whole, max_norm)
        n = sum(grad.numel() for grad in whole)
        for rank in members:
            what = f"norm as rank {rank} returned it"
            because = (
                "the norm is one float32 number without dimensions, whatever the gradients are"
            )
            expect.shape(found[rank][number]["norm"], (), because=because, what=what)
            expect.dtype(found[rank][number]["norm"], "float32", because=because, what=what)
            expect.close(
                found[rank][number]["norm"],
                norm,
                because="the norm is the root of the sum of squares over all ranks: every gradient "
                "once, padding never",
                n=min(n, 64),
                dtype="float32",
                what=f"norm of gradients of {list(map(len, whole))} elements, from rank {rank}",
            )
        for i, grad in enumerate(_rejoined(found, number, whole, members)):
            dtype = str(whole[i].dtype).removeprefix("torch.")
            expect.dtype(grad, dtype, because="gradients are clipped in place", what=f"{i}")
            expect.close(
                grad,
                want[i],
                because="every rank multiplies by max_norm / (norm of the whole + 1e-6), at most "
                "by 1, and each gradient once",
                n=n if dtype in ("float32", "float64") else 1,
                dtype="float32" if dtype == "float64" else dtype,
                what=f"gradient {i} of {list(map(len, whole))} elements, clipped to {max_norm:.3g}",
            )
        for rank in members[1:]:
            expect.equal(
                found[rank][number]["norm"],
                found[members[0]][number]["norm"],
                because="all ranks take one number, to the last bit",
                what=f"norm of rank {rank} against that of rank {members[0]}",
            )


@task(
    "clip_grad_norm_sharded",
    holds=("whole", "in_place", "tied", "real", "padding", "coefficient", "norm"),
)
def test_clips_as_if_nothing_were_sharded(student, rng):
    """Odd sizes, a tied parameter listed twice; then 4 elements, of which rank 2 of 3 has none.
    Oracle: torch.nn.utils.clip_grad_norm_ on the whole gradients, float64."""
    cases = [
        _case(rng, (23, 7, 5), 3, listed=[0, 1, 0, 2]),
        _case(rng, (4,), 3, share=0.1),
    ]
    _expect_clipped(expect.returned(student.probe.clip_shards(_by_rank(cases))), cases)


@task("clip_grad_norm_sharded", holds=("never_longer",))
def test_small_gradients_stay_as_they_are(student, rng):
    """A norm below max_norm.   Oracle: the gradients, bit for bit; torch's norm."""
    cases = [_case(rng, (9, 4), 2, share=3.0)]
    found = expect.returned(student.probe.clip_shards(_by_rank(cases)))
    for i, grad in enumerate(_rejoined(found, 0, cases[0][0])):
        expect.equal(
            grad,
            cases[0][0][i],
            because="clipping makes a gradient shorter, never longer",
            what=f"gradient {i}, whose norm is a third of max_norm",
        )
    _expect_clipped(found, cases)


@task("clip_grad_norm_sharded", holds=("one_number",))
def test_one_number_travels(student, rng):
    """40,000 gradients on two ranks.
    Oracle: the log of the process group, the kernel's sockets, and torch's norm."""
    cases = [_case(rng, (40_000,), 2)]
    seen = student.probe.clip_shards(_by_rank(cases), checked=False)
    found = expect.returned(seen)
    _expect_clipped(found, cases)
    for rank, rows in enumerate(found):
        operations = [operation for operation, _ in rows[0]["calls"]]
        because = "the sum of squares is the one thing that the ranks have to tell each other"
        expect.equal(operations, ["all_reduce"], because=because, what=f"collectives, rank {rank}")
        payload = sum(size for _, size in rows[0]["calls"])
        expect.at_most(payload, 16, because=because, what=f"payload on rank {rank}", unit="bytes")
        if seen["sent_bytes"][rank] is not None:
            expect.at_most(
                seen["sent_bytes"][rank],
                16 << 10,
                because="a shard has 80,000 bytes, and stays where it is",
                what=f"sent by rank {rank}, by the kernel's count",
                unit="bytes",
            )


@task("clip_grad_norm_sharded", holds=("squares",))
def test_squares_of_bf16_gradients_are_added_in_float32(student, rng):
    """bfloat16 shards.   Oracle: the norm of the same numbers in float64."""
    cases = [_case(rng, sizes, 2, dtype=torch.bfloat16) for sizes in ((400, 31), (97,), (256,))]
    _expect_clipped(expect.returned(student.probe.clip_shards(_by_rank(cases))), cases)


@task("clip_grad_norm_sharded", holds=("dtypes", "squares", "norm"))
def test_any_floating_dtype(student, rng):
    """float16 whose squares it cannot hold, float64, and three dtypes in one list.
    Oracle: torch.nn.utils.clip_grad_norm_ in float64 on the same numbers."""
    three = [torch.float32, torch.bfloat16, torch.float64]
    cases = [
        _case(rng, (40, 9), 2, size=120.0, dtype=torch.float16),
        _case(rng, (17,), 2, dtype=torch.float64),
        _case(rng, (12, 30, 7), 2, dtype=three),
    ]
    _expect_clipped(expect.returned(student.probe.clip_shards(_by_rank(cases))), cases)


@task(
    "clip_grad_norm_sharded",
    holds=("epsilon", "zero", "padding", "finite", "never_longer"),
)
def test_ends_of_the_range(student, rng):
    """A norm of about 1e-6, where the 1e-6 beside it counts; max_norm 0 and infinity; no gradient
    but zeros; padding that is NaN; a norm that is asked to be finite, and is.
    Oracle: torch.nn.utils.clip_grad_norm_ in float64."""
    cases = [
        _case(rng, (9, 4), 2, size=1e-7),
        _case(rng, (7,), 2, share=0.0),
        _case(rng, (7,), 2, size=0.0),
        _case(rng, (7, 1), 2, filler=float("nan")),
        _case(rng, (5,), 2),
        _case(rng, (5,), 2, share=float("inf")),
    ]
    for row in cases[4][1]:
        row["strict"] = True
    for row in cases[2][1]:
        row["max_norm"] = 1.0
    _expect_clipped(expect.returned(student.probe.clip_shards(_by_rank(cases))), cases)


@task("clip_grad_norm_sharded", gate=False, holds=("at_max_norm",))
@pytest.mark.parametrize("share", [1.0, 1.3, 4.0])
def test_a_norm_of_about_max_norm(student, rng, share):
    """Norms of about 1e-6, and a max_norm that is as large, a third larger, four times as large:
    the quotient is about 0.5, 0.7, and held to 1.
    Oracle: torch.nn.utils.clip_grad_norm_ in float64."""
    cases = [_case(rng, (9, 4), 2, size=1e-7, share=share)]
    _expect_clipped(expect.returned(student.probe.clip_shards(_by_rank(cases))), cases)


@task("clip_grad_norm_sharded", gate=False, holds=("no_gradients",))
def test_a_rank_without_gradients_takes_part(student, rng):
    """Two of three ranks hold everything, in the order 0, 2.   Oracle: torch on the whole."""
    whole, rows = _case(rng, (9, 4), 2)
    nothing = rows[0] | {"shards": [], "real": [], "listed": []}
    found = expect.returned(student.probe.clip_shards([[rows[0]], [nothing], [rows[1]]]))
    _expect_clipped(found, [(whole, rows)], [0, 2])
    expect.equal(
        found[1][0]["norm"],
        found[0][0]["norm"],
        because="the norm is that of all gradients, also for a rank that has none of them",
        what="norm of rank 1 against that of rank 0",
    )


@task("clip_grad_norm_sharded", holds=("nonfinite", "everybody_raises"))
def test_one_bad_gradient_reaches_every_rank(student, rng):
    """An infinity on rank 1 of 2, then a NaN; each once more with error_if_nonfinite.
    Oracle: torch.nn.utils.clip_grad_norm_ on the whole; RuntimeError on all ranks."""
    wholes, data = [], [[], []]
    for value in (float("inf"), float("nan")):
        whole, rows = _case(rng, (9,), 2)
        whole[0][6] = value
        wholes.append(whole)
        for rank, piece in enumerate(oracles.cut(whole[0], 2)):
            case = rows[rank] | {"shards": [piece], "max_norm": 1.0}
            data[rank] += [case, case | {"strict": True}]
    found = expect.returned(student.probe.clip_shards(data))
    for number, whole in enumerate(wholes):
        norm, want = oracles.clipped(whole, 1.0)
        for rank, rows in enumerate(found):
            because = "no rank may go on as if nothing had happened: all see the same norm"
            got = rows[2 * number]["norm"]
            expect.close(got, norm, because=because, what=f"norm that rank {rank} returned")
        got = _rejoined(found, 2 * number, whole)[0]
        because = "torch multiplies all gradients by that coefficient, 0 or NaN"
        expect.close(got, want[0], because=because, dtype="float32", what="clipped gradients")
        expect.equal(
            [rows[2 * number + 1]["raised"] for rows in found],
            ["RuntimeError"] * 2,
            because="who raises before the all-reduce leaves the others waiting in it",
            what="raised with error_if_nonfinite=True, by rank",
        )
        because = "an error changes nothing"
        kept = _rejoined(found, 2 * number + 1, whole)[0]
        expect.close(kept, whole[0].double(), because=because, what="gradients after an error")


@task("clip_grad_norm_sharded", gate=False, holds=("group",))
def test_a_group_clips_for_itself(student, rng):
    """Ranks 1 and 2 of 3.   Oracle: torch on what those two hold."""
    whole, rows = _case(rng, (11, 2), 2)
    data = [[], [rows[0]], [rows[1]]]
    found = expect.returned(student.probe.clip_shards(data, members=[1, 2]))
    _expect_clipped(found, [(whole, rows)], [1, 2])


@task("clip_grad_norm_sharded", gate=False, holds=("negative",))
def test_a_negative_max_norm_is_refused(student):
    """Below 0, by much and by little, and 0 itself, on one rank.   Oracle: the contract."""
    bounds = [-1.0, -1e-9, 0.0]
    found = expect.returned(student.probe.clip_refuses(bounds))[0]
    expect.equal(
        found,
        ["ValueError", "ValueError", "nothing"],
        because="a negative max_norm would turn the gradient round, and 0 is none",
        what=f"raised with a max_norm of {bounds}",
    )


# --- full_state_dict -----------------------------------------------------------------------------


def _expect_full(full, want, names):
    """A checkpoint in the lab's format, with these numbers."""
    expect.true(
        isinstance(full, dict) and isinstance(full.get("model"), dict),
        because='rank 0 returns {"model": ..., "optimizer": ...}',
        observed=full,
    )
    expect.equal(
        list(full["model"]),
        list(want["model"]),
        because="a checkpoint has the keys of the model that nobody wrapped: also a tied weight's "
        "second name, buffers and frozen layers, and no unsaved buffer",
        what='keys of "model"',
    )
    for name, right in want["model"].items():
        kind = str(right.dtype).removeprefix("torch.")
        expect.shape(full["model"][name], right.shape, because=SHAPES, what=name)
        expect.dtype(full["model"][name], kind, because="a shard's dtype is kept", what=name)
        expect.equal(full["model"][name], right, because=PLACES, what=name)
    got, right = full.get("optimizer"), want["optimizer"]
    because = "AdamW's state is a step counter and two moments; without them the run starts anew"
    expect.true(isinstance(got, dict), because=because, observed=got)
    expect.equal(sorted(got), sorted(right), because=because, what='keys of "optimizer"')
    for key in MOMENTS:
        expect.true(
            isinstance(got[key], dict), because="moments are found by name", observed=got[key]
        )
        because = "each trainable parameter once, by its first name"
        expect.equal(list(got[key]), names, because=because, what=f"names in {key}")
        for name in names:
            what = f"{key} of {name}"
            kind = str(right[key][name].dtype).removeprefix("torch.")
            expect.shape(got[key][name], right[key][name].shape, because=SHAPES, what=what)
            expect.dtype(got[key][name], kind, because="moments keep their own dtype", what=what)
            expect.equal(got[key][name], right[key][name], because=PLACES, what=what)
    because = "bias correction divides by 1 - beta^step, so the count must go on"
    expect.equal(got["step"], right["step"], because=because, what="step")


SHAPES = "padding belongs to the layout of a run, not to a parameter"
PLACES = "shards lie end to end in the order of their ranks, cut at the parameters' sizes"


def _expect_the_same_run(run, whole, how):
    """After 8 steps, of which `whole` has made none yet."""
    for name, want in whole.steps(0, 8).parameters().items():
        expect.close(
            run.parameters()[name],
            want,
            because="with every number in its place, AdamW's moments and step among them, the run "
            "does not notice",
            n=1000,
            what=f"{name} after 8 steps {how}",
        )


def _others(run):
    """What a rank has besides its shard: buffers and frozen parameters."""
    names = [name for name, p in run.model.named_parameters() if not p.requires_grad]
    state = run.model.state_dict()
    names += [name for name, _ in run.model.named_buffers() if name in state]
    return {name: state[name].clone() for name in names}


def _gathered(student, run, world_size, go_on=False):
    """What each rank saw when the learner's function made a checkpoint of a run's shards."""
    data = [
        {"shard": shard, "others": _others(run), "wide": False, "go_on": go_on}
        for shard in run.shards(world_size, filler=100.0)
    ]
    return expect.returned(student.probe.full_state(data))


def _in_two_dtypes(run):
    """The run's checkpoint with bfloat16 parameters and float32 moments."""
    full = run.full()
    for name, value in full["model"].items():
        full["model"][name] = value.bfloat16() if value.is_floating_point() else value
    for key in MOMENTS:
        full["optimizer"][key] = {n: t.float() for n, t in full["optimizer"][key].items()}
    return full


@task("full_state_dict", holds=("moments", "dtypes"))
def test_bf16_parameters_and_float32_moments(student, rng):
    """Two dtypes in one shard.   Oracle: the unsharded tensors, bit for bit."""
    run = oracles.Run(rng, int(rng.integers(1000))).steps(0, 2)
    want = _in_two_dtypes(run)
    others = {name: want["model"][name] for name in _others(run)}
    shards = run.recut(want, 2, filler=100.0)
    data = [{"shard": s, "others": others, "wide": False, "go_on": False} for s in shards]
    found = expect.returned(student.probe.full_state(data))
    _expect_full(found[0]["full"], want, run.names())


@task("full_state_dict", gate=False, holds=("other_dtype", "dtypes"))
@pytest.mark.parametrize(
    ("model", "param", "moment"),
    [
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float32, torch.bfloat16, torch.float64),
    ],
    ids=["masters of a bfloat16 model", "bfloat16 shards of a float32 model"],
)
def test_shards_in_another_dtype_than_the_model(student, rng, model, param, moment):
    """The model has one dtype, its shards have others.   Oracle: the unsharded tensors, bit for
    bit, each in the dtype of where it comes from."""
    run = oracles.Run(rng, int(rng.integers(1000))).steps(0, 2)
    want, others = run.full(), _others(run)
    for name, value in want["model"].items():
        if value.is_floating_point():
            want["model"][name] = value.to(model if name in others else param)
    for key in MOMENTS:
        want["optimizer"][key] = {n: t.to(moment) for n, t in want["optimizer"][key].items()}
    others = {name: want["model"][name] for name in others}
    shards = run.recut(want, 2, filler=100.0)
    more = {"others": others, "wide": False, "go_on": False, "dtype": model}
    found = expect.returned(student.probe.full_state([{"shard": s} | more for s in shards]))
    _expect_full(found[0]["full"], want, run.names())


@task("full_state_dict", gate=False, holds=("no_tensor", "all_else"))
def test_what_a_module_saves_that_is_no_tensor(student, rng):
    """Modules whose get_extra_state returns a dict, a number, a text and a tensor; each rank has
    others.   Oracle: the state dict of rank 0's model."""
    flat = normal(rng, 23)
    tables = {key: flat * (number + 1) for number, key in enumerate(("param", *MOMENTS))}
    pieces = {key: oracles.cut(table, 2, filler=100.0) for key, table in tables.items()}
    extras = [
        {"dict": {"seen": 3 + rank, "of": ["rows", "tokens"]}, "number": 7 - rank}
        | {"text": f"rank {rank}", "tensor": torch.tensor([1.5, 2.5]) + rank}
        for rank in range(2)
    ]
    data = [
        {"shard": {"step": 4} | {k: v[rank] for k, v in pieces.items()}, "extras": extras[rank]}
        for rank in range(2)
    ]
    full = expect.returned(student.probe.full_state_of_extras(data))[0]
    expect.equal(
        list(full["model"]),
        [*EXTRA_PARAMS[:2], *(f"notes.{name}._extra_state" for name in extras[0]), "last.weight"],
        because="a checkpoint has the keys of the model's state dict, in its order",
        what='keys of "model"',
    )
    for name, value in extras[0].items():
        expect.equal(
            full["model"][f"notes.{name}._extra_state"],
            value,
            because="what get_extra_state returns is part of the state dict, tensor or not",
            what=f"a {name} that rank 0's model saves",
        )
    expect.equal(
        torch.cat([full["model"][name].reshape(-1) for name in EXTRA_PARAMS]),
        flat,
        because=PLACES,
        what="all parameters",
    )


EXTRA_PARAMS = ("first.weight", "first.bias", "last.weight")


@task(
    "full_state_dict",
    holds=(
        "any_number",
        "not_read",
        "keys",
        "from_shards",
        "all_else",
        "step",
        "names",
        "tied",
        "shapes",
        "no_padding",
        "two_names",
    ),
)
def test_a_run_goes_on_from_checkpoints_of_4_2_and_3_ranks(student, rng):
    """91 trainable parameters with a tie, 56 frozen ones, buffers; the padding holds 100. Two
    steps, a checkpoint, and so on; each is loaded into a plain model and torch.optim.AdamW.
    Oracle: state dicts of one process without shards; its run, not interrupted, in float64."""
    whole = oracles.Run(rng, int(rng.integers(1000)))
    run = whole.copy().steps(0, 2)
    for number, world_size in enumerate((4, 2, 3)):
        found = _gathered(student, run, world_size)
        _expect_full(found[0]["full"], run.full(), run.names())
        run = run.restored(found[0]["full"]).steps(2 * number + 2, 2 * number + 4)
    _expect_the_same_run(run, whole, "with 3 interruptions")


@task("full_state_dict", holds=("rank_0", "only_rank_0"))
def test_only_rank_0_receives(student, rng):
    """20,100 parameters on three ranks.
    Oracle: None elsewhere; the log of the process group and the kernel's count of bytes."""
    flats = {key: normal(rng, 20_100) for key in ("param", *MOMENTS)}
    pieces = {key: oracles.cut(flat, 3) for key, flat in flats.items()}
    data = [
        {"shard": {"step": 3} | {k: pieces[k][rank] for k in pieces}}
        | {"others": {}, "wide": True, "go_on": False}
        for rank in range(3)
    ]
    seen = student.probe.full_state(data)
    found = expect.returned(seen)
    expect.equal(
        [row["full"] is None for row in found],
        [False, True, True],
        because="one copy of the whole is enough; more may not fit",
        what="ranks that return None",
    )
    whole = {
        key: {"weight": flat[:20_000].view(100, 200), "bias": flat[20_000:]}
        for key, flat in flats.items()
    }
    want = {"model": whole.pop("param"), "optimizer": {"step": 3, **whole}}
    _expect_full(found[0]["full"], want, ["weight", "bias"])
    because = "a rank that only gives its shards receives nothing: all_gather would bring the whole"
    for rank, row in enumerate(found[1:], start=1):
        expect.at_most(
            sum(size for kind, size in row["calls"] if kind not in ("gather", "send")),
            1024,
            because=because + " to every rank, gather brings it to one",
            what=f"payload of collectives other than gather on rank {rank}",
            unit="bytes",
        )
        if seen["received_bytes"][rank] is not None:
            expect.at_most(
                seen["received_bytes"][rank],
                16 << 10,
                because=because,
                what=f"received by rank {rank}, by the kernel's count",
                unit="bytes",
            )


@task("full_state_dict", holds=("own_memory", "stands_for_itself", "any_number"))
@pytest.mark.parametrize("world_size", [2, 1])
def test_every_tensor_owns_its_memory(student, rng, world_size):
    """What torch.save writes of one tensor; and what training does next to model and shards.
    Oracle: its bytes against those of its storage; its numbers before and after."""
    run = oracles.Run(rng, int(rng.integers(1000))).steps(0, 1)
    full = run.full()
    found = _gathered(student, run, world_size, go_on=True)
    for name, (behind, nbytes) in found[0]["behind"].items():
        because = "a view of the flat buffer is saved with all of that buffer, padding included"
        expect.bytes(behind, nbytes, because=because, what=f"memory behind {name}")
    count = len(full["model"]) + 2 * len(run.names())
    because = "all that is saved but the step are tensors"
    expect.equal(len(found[0]["behind"]), count, because=because, what="tensors saved")
    expect.equal(
        found[0]["moved"],
        [],
        because="a checkpoint is written while training goes on: what shares memory with the model "
        "or the shards is overwritten in it",
        what="tensors of the checkpoint that changed when model and shards did",
    )


@task("full_state_dict", gate=False, holds=("group", "rank_0"))
def test_a_group_saves_for_itself(student, rng):
    """Ranks 1 and 2 of 3: the checkpoint is on rank 1.   Oracle: the run that nobody sharded."""
    run = oracles.Run(rng, int(rng.integers(1000))).steps(0, 2)
    rows = [
        {"shard": shard, "others": _others(run), "wide": False, "go_on": False}
        for shard in run.shards(2, 100.0)
    ]
    found = expect.returned(student.probe.full_state([rows[0], *rows], members=[1, 2]))
    because = "rank 0 of the group returns it, the others None"
    expect.equal(found[2]["full"], None, because=because, what="what rank 2 returned")
    _expect_full(found[1]["full"], run.full(), run.names())


# --- reshard -------------------------------------------------------------------------------------


def _cut_by(student, full, world_size):
    """The learner's shards for that many ranks."""
    return student.map("reshard", [(full, rank, world_size) for rank in range(world_size)])


def _expect_shards(shards, want):
    """Shards of equal size, with these numbers."""
    for shard in shards:
        expect.true(
            isinstance(shard, dict) and set(shard) == {"step", "param", *MOMENTS},
            because="a rank needs the step, its parameters and both moments",
            observed=shard,
        )
    for key in ("param", *MOMENTS):
        expect.equal(
            [list(getattr(shard[key], "shape", ())) for shard in shards],
            [list(right[key].shape) for right in want],
            because="all shards have S = ceil(total / N) elements: ranks exchange equal pieces",
            what=f"shapes of {key} on {len(want)} ranks",
        )
    for rank, (shard, right) in enumerate(zip(shards, want, strict=True)):
        where = f"of rank {rank} of {len(want)}"
        for key in ("param", *MOMENTS):
            kind = str(right[key].dtype).removeprefix("torch.")
            because = "a checkpoint's dtypes are kept"
            expect.dtype(shard[key], kind, because=because, what=f"{key} {where}")
            expect.equal(
                shard[key],
                right[key],
                because="rank r has elements r S to (r + 1) S - 1 of the flat buffer, with zeros "
                "behind its end and nowhere else",
                what=f"{key} {where}",
            )
        because = "bias correction divides by 1 - beta^step, so the count must go on"
        expect.equal(shard["step"], right["step"], because=because, what=f"step {where}")


@task("reshard", holds=("flat", "size", "zeros", "any_number"))
@pytest.mark.parametrize("world_size", [1, 3, 4, 5, 9])
def test_every_rank_gets_its_slice(student, rng, world_size):
    """91 trainable parameters; a bias of 7, a tie, frozen ones and buffers in the checkpoint.
    Oracle: the flat buffer of one process, cut."""
    run = oracles.Run(rng, int(rng.integers(1000))).steps(0, 3)
    _expect_shards(_cut_by(student, run.full(), world_size), run.shards(world_size))


@task("reshard", holds=("dtypes",))
def test_dtypes_of_a_mixed_checkpoint(student, rng):
    """bfloat16 parameters, float32 moments.   Oracle: the unsharded tensors, bit for bit."""
    run = oracles.Run(rng, int(rng.integers(1000))).steps(0, 2)
    full = _in_two_dtypes(run)
    _expect_shards(_cut_by(student, full, 2), run.recut(full, 2))


@task("reshard", holds=("flat", "step", "any_number"))
def test_a_run_goes_on_at_4_2_and_3_ranks(student, rng):
    """Two steps on each number of ranks, every shard with an AdamW of its own.
    Oracle: the run that nobody sharded or interrupted, float64."""
    whole = oracles.Run(rng, int(rng.integers(1000)))
    run = whole.copy().steps(0, 2)
    full = run.full()
    for number, world_size in enumerate((4, 2, 3)):
        shards = _cut_by(student, full, world_size)
        _expect_shards(shards, run.recut(full, world_size))
        first = 2 * number + 2
        full = run.merged(run.go_on_in_shards(shards, first, first + 2))
    _expect_the_same_run(run, whole, "on 1, 4, 2 and 3 ranks")


@task("reshard", holds=("own_memory",))
def test_a_shard_keeps_nothing_else_alive(student, rng):
    """The memory behind each shard.   Oracle: S elements; the numbers, as above."""
    run = oracles.Run(rng, int(rng.integers(1000))).steps(0, 1)
    found = [student.probe.behind_shards(run.full(), rank, 4) for rank in range(4)]
    _expect_shards([shard for shard, _ in found], run.shards(4))
    for rank, (_, behind) in enumerate(found):
        for key in ("param", *MOMENTS):
            expect.bytes(
                behind[key],
                8 * -(-oracles.TOTAL // 4),
                because="a slice is a view: the whole flat buffer stays in memory behind it",
                what=f"memory behind {key} of rank {rank} of 4",
            )


@task("reshard", gate=False, holds=("more_ranks", "zeros"))
def test_fewer_elements_than_ranks(student):
    """Three elements for 2, 4 and 8 ranks.   Oracle: by hand."""
    numbers = {"bias": torch.tensor([1.0, 2.0, 3.0])}
    moments = {"exp_avg": {"bias": numbers["bias"] * 2}, "exp_avg_sq": {"bias": numbers["bias"]}}
    full = {"model": numbers, "optimizer": {"step": 5, **moments}}
    for world_size, want in (
        (2, [[1, 2], [3, 0]]),
        (4, [[1], [2], [3], [0]]),
        (8, [[1], [2], [3], [0], [0], [0], [0], [0]]),
    ):
        for shard, right in zip(_cut_by(student, full, world_size), want, strict=True):
            expect.equal(
                shard["param"],
                torch.tensor(right, dtype=torch.float32),
                because="a rank behind the end holds S zeros, and takes part like the others",
                what=f"param on {world_size} ranks",
            )


@task("reshard", gate=False, holds=("order",))
def test_the_moments_tell_the_order(student, rng):
    """The model's keys and the second moments in other orders, a tied name.
    Oracle: the parameters in the order of exp_avg, by hand."""
    shapes = {"late": (3, 4), "early": (5,), "wide": (2, 3)}
    tables = {
        key: {name: normal(rng, *shape) for name, shape in shapes.items()}
        for key in ("param", *MOMENTS)
    }
    flats = {
        key: torch.cat([t.reshape(-1) for t in table.values()]) for key, table in tables.items()
    }
    model = {"early": tables["param"]["early"], "mean": normal(rng, 9)}
    model |= {"wide": tables["param"]["wide"], "again": tables["param"]["wide"]}
    model |= {"late": tables["param"]["late"], "note._extra_state": {"seen": 3}}
    second = dict(reversed(tables["exp_avg_sq"].items()))
    full = {
        "model": model,
        "optimizer": {"step": 4, "exp_avg_sq": second, "exp_avg": tables["exp_avg"]},
    }
    for world_size in (1, 2):
        pieces = {key: oracles.cut(flat, world_size) for key, flat in flats.items()}
        want = [
            {"step": 4} | {key: pieces[key][rank] for key in pieces} for rank in range(world_size)
        ]
        _expect_shards(_cut_by(student, full, world_size), want)


@task("reshard", gate=False, holds=("outside",))
def test_a_rank_outside_is_refused(student):
    """Ranks -1 and 2 of 2.   Oracle: the contract."""
    moments = {key: {"bias": torch.ones(4)} for key in MOMENTS}
    full = {"model": {"bias": torch.ones(4)}, "optimizer": {"step": 1, **moments}}
    for rank in (-1, 2):
        with expect.raises(ValueError, because=f"2 ranks have no rank {rank}"):
            student.reshard(full, rank, 2)


# --- MasterWeights -------------------------------------------------------------------------------


def _bf16(tensor):
    return tensor.bfloat16()


def _poisoned(params, rank, world_size):
    """The parameters with NaN wherever another rank is the owner."""
    flat = torch.cat([p.reshape(-1) for p in params])
    each = -(-flat.numel() // world_size)
    shown = torch.full_like(flat, float("nan"))
    shown[rank * each : (rank + 1) * each] = flat[rank * each : (rank + 1) * each]
    pieces = shown.split([p.numel() for p in params])
    return [piece.view_as(p).clone() for piece, p in zip(pieces, params, strict=True)]


def _course(params, grads, world_size, **adamw):
    """A case of the probe `mastered`: what each rank is given, and what should come of it."""
    shards = [
        oracles.cut(torch.cat([g.reshape(-1) for g in step]), world_size, filler=float("nan"))
        for step in grads
    ]
    rows = [
        {
            "params": _poisoned(params, rank, world_size),
            "grads": [step[rank] for step in shards],
            "adamw": adamw,
        }
        for rank in range(world_size)
    ]
    named = {"lr": adamw["lr"], "weight_decay": adamw["wd"], "betas": adamw["betas"]}
    return rows, list(oracles.master_course(params, grads, **named))


def _expect_mastered(found, number, want, members=None):
    """The master follows AdamW in float32; parameters are, on every rank, the rounded master."""
    members = members or list(range(len(found)))
    total = want[0].numel()
    counts = oracles.counts(total, len(members))
    for step, right in enumerate(want):
        rows = [found[rank][number]["rows"][step] for rank in members]
        for rank, row in zip(members, rows, strict=True):
            what = f"the master of rank {rank} after step {step + 1}"
            shape = (-(-total // len(members)),)
            expect.shape(row["master"], shape, because="a rank owns one flat shard", what=what)
            expect.dtype(row["master"], "float32", because="sums are kept in float32", what=what)
            expect.equal(
                row["changed"],
                "",
                because="the gradient belongs to the caller",
                what=f"what step(grad) should not have changed on rank {rank}",
            )
        master = torch.cat([row["master"][:n] for row, n in zip(rows, counts, strict=True)])
        expect.close(
            master,
            right,
            because="the master takes AdamW's steps in float32, and nothing of it is lost between "
            "steps",
            n=8,
            dtype="float32",
            what=f"the masters of all ranks after step {step + 1}",
        )
        for rank, row in zip(members, rows, strict=True):
            expect.dtype(row["params"], "bfloat16", because="the parameters stay bfloat16")
            expect.equal(
                row["params"],
                master.bfloat16(),
                because="after a step every rank has all parameters, each the rounded master of "
                "its owner",
                what=f"parameters on rank {rank} after step {step + 1}",
            )


@task(
    "MasterWeights",
    holds=(
        "one_shard",
        "own_slice",
        "padding",
        "adamw",
        "rounded",
        "grads",
        "anything",
        "grad_stays",
    ),
)
def test_every_rank_has_the_rounded_master(student, rng):
    """Eight steps on 3 ranks; of each rank's parameters, what others own is NaN. 23 elements with
    gradients in bfloat16, then 4 with gradients in float32, where rank 2 has padding only.
    Oracle: torch.optim.AdamW on the whole master in float64."""
    cases = []
    for shapes, dtype in ((((5, 3), (7,), (1,)), torch.bfloat16), (((4,),), torch.float32)):
        params = [_bf16(normal(rng, *shape)) for shape in shapes]
        grads = [[normal(rng, *shape).to(dtype) for shape in shapes] for _ in range(8)]
        cases.append(_course(params, grads, 3, lr=0.1, wd=0.3, betas=(0.8, 0.99)))
    data = [list(rows) for rows in zip(*(rows for rows, _ in cases), strict=True)]
    found = expect.returned(student.probe.mastered(data))
    for number, (_, want) in enumerate(cases):
        _expect_mastered(found, number, want)


@task("MasterWeights", holds=("small",))
def test_updates_smaller_than_a_bf16_step_add_up(student, rng):
    """Ten steps of 0.001 on numbers between 1 and 2, where bfloat16 has one in 1/128.
    Oracle: AdamW in float64: every number is 0.01 away in the end."""
    start = _bf16(1.1 + 0.8 * torch.from_numpy(rng.random(12)))
    sign = torch.from_numpy(rng.choice([-1.0, 1.0], size=12)).float()
    rows, want = _course([start], [[sign]] * 10, 2, lr=1e-3, wd=0.0, betas=(0.9, 0.999))
    found = expect.returned(student.probe.mastered([[row] for row in rows]))
    _expect_mastered(found, 0, want)
    moved = (found[0][0]["rows"][-1]["params"] != start).sum().item()
    expect.equal(moved, 12, because="0.01 is more than a step of bfloat16", what="numbers moved")


SHAPES_24K = [(120, 150), (5_000,), (993,), (7,)]


@task("MasterWeights", holds=("bytes",))
def test_two_bytes_a_parameter_and_twelve_an_element_of_the_shard(student):
    """24,000 parameters on 3 ranks, after two steps: 2 P + (4 + 8) P / 3 = 144,000 bytes.
    Oracle: that product; the meter of live tensors; the parameters' numbers."""
    grad = torch.full((8_000,), 1.0, dtype=torch.bfloat16)
    data = [{"shapes": SHAPES_24K, "value": 3.0, "grad": grad, "steps": 2} for _ in range(3)]
    found = expect.returned(student.probe.held_by_master(data))
    for rank, row in enumerate(found):
        _expect_ends(row["ends"])
        expect.within(
            row["alive_bytes"],
            144_000,
            144_000 + 1024,
            because="2 bytes a parameter on every rank; master and moments, 4 + 8, for the rank's "
            "own elements only",
            what=f"memory of all tensors on rank {rank} of 3 after two steps",
            unit="bytes",
        )


def _expect_ends(ends):
    """Two steps of 0.25 from 3.0, at both ends of the flat buffer."""
    for end, where in zip(ends, ("first", "last"), strict=True):
        expect.equal(
            end.float(),
            torch.full((4,), 2.5),
            because="two steps of AdamW with one gradient are two times lr, on every rank",
            what=f"the {where} four parameters",
        )


@task("MasterWeights", holds=("bytes",))
def test_the_process_grows_by_no_more(student):
    """6,291,456 parameters on 3 ranks, seen from outside.
    Oracle: the memory of each rank's process as its parent reads it; the parameters' numbers."""
    p, size = 6 << 20, 3
    data = [{"numel": p, "value": 3.0, "steps": 2} for _ in range(size)]
    seen = student.probe.growth_with_master(data)
    for rank, row in enumerate(expect.returned(seen)):
        _expect_ends(row["ends"])
        if seen["growth_bytes"][rank] is not None:
            # parameters, three buffers of a gather (gloo has two of its own), the shards, and
            # 56 MiB for a step's temporaries and what a process touches for the first time
            limit = 2 * 4 * p + 12 * p // size + (56 << 20)
            expect.at_most(
                seen["growth_bytes"][rank],
                limit,
                because="a third of 12 bytes a parameter is 24 MiB; master and moments of the "
                "whole would be 72",
                what=f"growth of rank {rank}'s process",
                unit="bytes",
                noise=expect.GROWTH_NOISE,
            )


@task("MasterWeights", holds=("travels",))
def test_two_bytes_travel_for_a_parameter(student, rng):
    """60,001 parameters on two ranks.
    Oracle: the log of the process group, the kernel's sockets; the master in float64."""
    shapes, size = ((300, 200), (1,)), 2
    params = [_bf16(normal(rng, *shape)) for shape in shapes]
    grads = [[_bf16(normal(rng, *shape)) for shape in shapes] for _ in range(2)]
    rows, want = _course(params, grads, size, lr=0.1, wd=0.0, betas=(0.9, 0.99))
    seen = student.probe.mastered([[row] for row in rows])
    found = expect.returned(seen)
    _expect_mastered(found, 0, want)
    each = -(-60_001 // size)
    for rank, row in enumerate(found):
        because = "what is sent is what is computed with: bfloat16; the master stays at home"
        expect.equal(
            row[0]["calls"],
            [["all_gather", 2 * size * each]],
            because=because,
            what=f"collectives of a step on rank {rank}, with their payload in bytes",
        )
        if seen["sent_bytes"][rank] is not None:
            expect.at_most(
                seen["sent_bytes"][rank],
                2 * 2 * (size - 1) * each + (32 << 10),
                because=because,
                what=f"sent by rank {rank} in two steps, by the kernel's count",
                unit="bytes",
            )


@task("MasterWeights", holds=("arguments", "no_more", "float32", "in_place", "strides", "adamw"))
def test_each_argument_and_both_moments(student, rng):
    """All of lr, betas, eps and wd differ from their defaults; the first parameter is transposed.
    What the parameters hold is NaN before each step, and is looked at where it was before.
    Oracle: torch.optim.AdamW on the whole in float64, with its state."""
    params = [_bf16(normal(rng, 3, 4)), _bf16(normal(rng, 5)), _bf16(normal(rng, 2, 3))]
    grads = [normal(rng, 23) for _ in range(4)]
    keywords = {"lr": 0.03, "betas": (0.7, 0.95), "eps": 0.3, "wd": 0.5}
    shards = [oracles.cut(grad, 2, filler=float("nan")) for grad in grads]
    data = [
        {"params": params, "grads": [step[rank] for step in shards], "adamw": keywords}
        for rank in range(2)
    ]
    found = expect.returned(student.probe.master_in_place(data))
    whole = torch.cat([p.reshape(-1) for p in params]).float()
    for step, right in enumerate(sharded(whole, grads, keywords)):
        rows = [seen[step] for seen in found]
        for name, want in zip(("master", *MOMENTS), right, strict=True):
            for rank, row in enumerate(rows):
                because = "master and moments are this rank's shards, in float32"
                expect.shape(row[name], (12,), because=because, what=f"{name} on rank {rank}")
                expect.dtype(row[name], "float32", because=because, what=f"{name} on rank {rank}")
            expect.close(
                torch.cat([row[name] for row in rows])[:23],
                want,
                because="AdamW with these lr, betas, eps and wd, from its own state alone: what "
                "the parameters hold after the constructor is not read",
                n=8,
                dtype="float32",
                what=f"{name} after step {step + 1}, both ranks' end to end",
            )
        master = torch.cat([row["master"] for row in rows])[:23]
        for rank, row in enumerate(rows):
            expect.equal(
                row["params"],
                master.bfloat16(),
                because="parameters are written in place, each the rounded master of its owner",
                what=f"parameters on rank {rank}, in their old memory, after step {step + 1}",
            )


@task("MasterWeights", gate=False, holds=("group",))
def test_a_group_has_a_master_of_its_own(student, rng):
    """Ranks 1 and 2 of 3.   Oracle: AdamW in float64 on the shards of those two."""
    params = [_bf16(normal(rng, 3, 3))]
    grads = [[_bf16(normal(rng, 3, 3))] for _ in range(3)]
    rows, want = _course(params, grads, 2, lr=0.1, wd=0.1, betas=(0.9, 0.99))
    data = [[], [rows[0]], [rows[1]]]
    found = expect.returned(student.probe.mastered(data, members=[1, 2]))
    _expect_mastered(found, 0, want, [1, 2])


@task("reshard", holds=("flat", "size", "step"))
def test_six_elements_for_two_ranks_by_hand(student):
    """Two parameters of four and two elements: three for each rank.   Oracle: counted by hand."""
    names = {"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "b": torch.tensor([5.0, 6.0])}
    twice = {name: 2 * tensor for name, tensor in names.items()}
    moments = {"step": 7, "exp_avg": names, "exp_avg_sq": twice}
    shard = student.reshard({"model": twice, "optimizer": moments}, 1, 2)
    because = "rank 1 has the second half of the flat buffer, w and then b"
    expect.equal(shard["exp_avg"].tolist(), [4.0, 5.0, 6.0], because, "exp_avg of rank 1")
    expect.equal(shard["param"].tolist(), [8.0, 10.0, 12.0], because, "param of rank 1")
    expect.equal(shard["step"], 7, because="bias correction goes on from it", what="step")
