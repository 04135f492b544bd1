"""Bytes by kind over a training step: closed forms, PyTorch's own tracker, attacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.checkpoint import checkpoint

from grader import meters
from grader.meters import MeasurementDisturbed, evidence

F32 = 4
KINDS = {"parameter", "gradient", "activation", "optimizer", "temporary"}


def nbytes(tensors: Any) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def mlp(wide: int = 32, narrow: int = 8) -> nn.Sequential:
    torch.default_generator.manual_seed(0)
    return nn.Sequential(nn.Linear(narrow, wide), nn.ReLU(), nn.Linear(wide, narrow))


def step(model: Any, optimizer: Any, x: Any, mark: Callable[[str], None] = lambda _: None) -> None:
    mark("forward")
    loss = model(x).square().mean()
    mark("backward")
    loss.backward()
    del loss
    mark("optimizer")
    optimizer.step()
    mark("idle")
    optimizer.zero_grad()


# --- closed forms --------------------------------------------------------------------------------


def test_a_step_of_adam_in_closed_form() -> None:
    model = mlp(2048, 512)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(64, 512)
    with meters.bytes_by_kind(model, optimizer) as m:
        step(model, optimizer, x, m.mark)
    size = 8_398_848  # 2 * 512 * 2048 weights and 2048 + 512 biases of 4 bytes
    state = 2 * size + 4 * F32  # two moments, and a step count for each of the four parameters
    saved = 64 * 2048 * F32 + 64 * 512 * F32 + F32  # the ReLU's output, the square's input, loss
    before, after = dict.fromkeys(KINDS, 0) | {"parameter": size}, {"optimizer": state}
    assert m.alive == before | after
    assert m.course[0] == (0, before)
    highs = m.peak_by_kind
    assert 512 * 2048 * F32 <= highs.pop("temporary") <= size  # one weight's, or all at once
    assert highs == {
        "parameter": size,
        "gradient": size,
        "activation": saved,
        "optimizer": state,
    }
    phases = m.peak_by_kind_by_phase
    assert list(phases) == ["start", "forward", "backward", "optimizer", "idle"]
    assert phases["backward"]["optimizer"] == phases["forward"]["gradient"] == 0
    assert (phases["forward"]["activation"], phases["idle"]["optimizer"]) == (saved, state)
    assert m.peak_by_phase["idle"] == before | after | {"gradient": size}
    assert m.peak_bytes == sum(m.peak.values()) == sum(m.peak_by_phase["optimizer"].values())
    assert set(m.peak) == KINDS


def test_phases_tell_the_course_with_the_phase_of_each_moment() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with meters.bytes_by_kind(model, optimizer) as m:
        step(model, optimizer, torch.randn(4, 8), m.mark)
    assert [now for _, now in m.phases] == [now for _, now in m.course]
    names = [phase for phase, _ in m.phases]
    assert list(dict.fromkeys(names)) == ["start", "forward", "backward", "optimizer", "idle"]
    assert names == sorted(names, key=list(dict.fromkeys(names)).index)
    for phase, row in m.peak_by_phase.items():
        totals = [sum(now.values()) for name, now in m.phases if name == phase]
        assert sum(row.values()) == max(totals)


def test_a_second_step_makes_no_new_state() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(4, 8)
    step(model, optimizer, x)
    size = nbytes(model.parameters())
    with meters.bytes_by_kind(model.parameters(), optimizer) as m:
        step(model, optimizer, x)
    assert m.course[0][1]["optimizer"] == m.alive["optimizer"] == 2 * size + 4 * F32
    assert m.peak_by_kind["optimizer"] == 2 * size + 4 * F32


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_are_freed_by_none_and_kept_by_zeros(to_none: bool) -> None:
    model = mlp()
    with meters.bytes_by_kind(model) as m:
        model(torch.randn(4, 8)).sum().backward()
        m.mark("cleared")
        model.zero_grad(set_to_none=to_none)
    size = nbytes(model.parameters())
    assert m.alive["gradient"] == (0 if to_none else size)
    assert m.peak_by_kind["gradient"] == size


def test_gradients_from_before_the_block_count() -> None:
    model = mlp()
    model(torch.randn(4, 8)).sum().backward()
    with meters.bytes_by_kind(model) as m:
        model(torch.randn(4, 8)).sum().backward()  # adds to what is there
    size = nbytes(model.parameters())
    assert [m.course[0][1]["gradient"], m.alive["gradient"]] == [size, size]
    assert m.peak_by_kind["gradient"] == size


def test_micro_batches_change_activations_only() -> None:
    def run(parts: int) -> Any:
        model = mlp()
        with meters.bytes_by_kind(model) as m:
            for x in torch.ones(64, 8).chunk(parts):
                model(x).square().sum().backward()
        return m.peak_by_kind

    whole, parts = run(1), run(8)
    assert (whole["activation"] - F32) == 8 * (parts["activation"] - F32) - 64 * 8 * F32 * 7
    assert whole["gradient"] == parts["gradient"]


def test_storages_count_once_tied_weights_and_views_too() -> None:
    embed, out = nn.Embedding(50, 16), nn.Linear(16, 50, bias=False)
    out.weight = embed.weight
    with meters.bytes_by_kind([*embed.parameters(), *out.parameters()]) as m:
        out(embed(torch.arange(10))).sum().backward()
    assert m.alive["parameter"] == m.alive["gradient"] == 50 * 16 * F32
    flat = torch.randn(100)
    views = [nn.Parameter(flat[:30]), nn.Parameter(flat[30:].view(7, 10))]
    with meters.bytes_by_kind(views) as m:
        pass
    assert m.alive["parameter"] == 100 * F32


def test_frozen_parameters_have_no_gradient() -> None:
    model = mlp()
    model[0].requires_grad_(False)
    with meters.bytes_by_kind(model, torch.optim.SGD(model.parameters(), 0.1)) as m:
        model(torch.randn(4, 8)).sum().backward()
    assert m.alive["parameter"] == nbytes(model.parameters())
    assert m.alive["gradient"] == nbytes(model[2].parameters())


def test_a_flat_buffer_of_gradients_counts_once() -> None:
    model = mlp()
    count = sum(p.numel() for p in model.parameters())
    with meters.bytes_by_kind(model) as m:
        flat, start = torch.zeros(count), 0
        for p in model.parameters():
            p.grad = flat[start : start + p.numel()].view_as(p)
            start += p.numel()
        model(torch.randn(4, 8)).sum().backward()
    assert m.alive["gradient"] == count * F32


def test_in_place_growth_counts() -> None:
    stash = torch.empty(0)
    with meters.bytes_by_kind([], lambda: stash) as m:
        stash.resize_(1000)
        m.mark("beside ATen")
        stash.untyped_storage().resize_(8000)
    assert m.peak_by_phase["start"]["optimizer"] == 4000
    assert m.alive["optimizer"] == 8000


def test_a_gradient_used_up_in_backward_is_seen() -> None:
    model = mlp(32, 32)

    def use(p: Any) -> None:
        with torch.no_grad():
            p -= 0.1 * p.grad
        p.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(use)
    with meters.bytes_by_kind(model) as m:
        model(torch.randn(4, 32)).sum().backward()
    assert m.alive["gradient"] == 0
    one = 32 * 32 * F32
    assert one <= m.peak_by_kind["gradient"] <= one + 2 * 32 * F32  # a weight's, and a bias's


# --- activations and temporaries -----------------------------------------------------------------


def test_checkpointing_recomputes_activations_in_backward() -> None:
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(6)])
    x = torch.randn(32, 16)

    def run(thrifty: bool) -> Any:
        layers.zero_grad()
        with meters.bytes_by_kind(layers) as m:
            m.mark("forward")
            y = x
            for layer in layers:
                y = checkpoint(layer, y, use_reentrant=False) if thrifty else layer(y)
            m.mark("backward")
            y.sum().backward()
        return m.peak_by_kind_by_phase

    one = 32 * 16 * F32
    plain, thrifty = run(False), run(True)
    # Each block keeps its output, which is the next one's input; a Tanh saves the same.
    assert plain["forward"]["activation"] == thrifty["forward"]["activation"] == 6 * one
    # Blocks in which a saved tensor is not the output gain: here a recomputed one comes on top.
    assert plain["backward"]["activation"] <= 6 * one + F32
    assert thrifty["backward"]["activation"] >= plain["backward"]["activation"] + one


def test_what_a_function_hides_on_ctx_is_an_activation() -> None:
    class Hides(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.scores = x[:, None] * x[None, :]
            return x.sum()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.scores.sum(0)

    x = torch.randn(100, requires_grad=True)
    with meters.bytes_by_kind([x]) as m:
        Hides.apply(x).backward()
    assert m.peak_by_kind["activation"] == 100 * 100 * F32 + F32


def test_what_autograd_saves_is_an_activation_without_a_backward() -> None:
    x = torch.randn(100, requires_grad=True)
    with meters.bytes_by_kind([x]) as m:
        y = (x * 2).exp()  # exp saves its output
        z = y.detach() + 1
    assert (m.alive["activation"], m.alive["temporary"]) == (400, 400)
    del y, z


def test_inputs_made_inside_are_activations_and_outside_nothing() -> None:
    w = torch.randn(10, 10, requires_grad=True)
    outside = torch.randn(5, 10)
    with meters.bytes_by_kind([w]) as m:
        (outside @ w).sum().backward()
    with meters.bytes_by_kind([w]) as n:
        (torch.randn(5, 10) @ w).sum().backward()
    assert n.peak_by_kind["activation"] - m.peak_by_kind["activation"] == 5 * 10 * F32


# --- state of an optimizer of one's own ----------------------------------------------------------


class Lists:
    """State in lists, made at the first step, replaced at each one."""

    def __init__(self, params: Any) -> None:
        self.params = list(params)
        self.m: list[Any] = []

    @torch.no_grad()
    def step(self) -> None:
        if not self.m:
            self.m = [torch.zeros_like(p) for p in self.params]
        self.m = [0.9 * m + p.grad for m, p in zip(self.m, self.params, strict=True)]
        for p, m in zip(self.params, self.m, strict=True):
            p -= 0.1 * m

    def zero_grad(self) -> None:
        for p in self.params:
            p.grad = None


class Nested(Lists):
    """State in an object with slots, in a dictionary by parameter, updated in place."""

    class Moments:
        __slots__ = ("first",)

        def __init__(self, first: Any) -> None:
            self.first = first

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.state: dict[Any, Any] = {}

    @torch.no_grad()
    def step(self) -> None:
        for p in self.params:
            moments = self.state.setdefault(p, self.Moments(torch.zeros_like(p)))
            moments.first.mul_(0.9).add_(p.grad)
            p.add_(moments.first, alpha=-0.1)


class Hidden(Lists):
    """State in a closure, which only a function can show."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        state: list[Any] = []
        self.holds = lambda: state

    @torch.no_grad()
    def step(self) -> None:
        state = self.holds()
        state += [] if state else [torch.zeros_like(p) for p in self.params]
        for p, m in zip(self.params, state, strict=True):
            p.sub_(m.mul_(0.9).add_(p.grad), alpha=0.1)


@pytest.mark.parametrize("kind", [Lists, Nested, Hidden])
def test_state_of_any_optimizer_is_found(kind: Any) -> None:
    model = mlp()
    optimizer = kind(model.parameters())
    size = nbytes(model.parameters())
    with meters.bytes_by_kind(model, optimizer.holds if kind is Hidden else optimizer) as m:
        for _ in range(3):
            step(model, optimizer, torch.randn(4, 8), m.mark)
    assert m.peak_by_kind_by_phase["backward"]["optimizer"] == size
    assert m.course[0][1]["optimizer"] == 0
    assert m.alive["optimizer"] == size
    assert m.alive["gradient"] == 0
    # The first step of `Lists` has the zeros and what takes their place at once.
    assert m.peak_by_kind["optimizer"] <= (2 if kind is Lists else 1) * size


def test_states_that_come_and_go_between_marks_are_found() -> None:
    model = mlp()
    optimizer = Lists(model.parameters())
    size = nbytes(model.parameters())
    with meters.bytes_by_kind(model, optimizer) as m:
        for _ in range(4):
            step(model, optimizer, torch.randn(4, 8))
    before = [now["optimizer"] for _, now in m.course]
    assert before[0] == 0
    assert max(before) == 2 * size
    # From the second forward on the state is never away.
    first = before.index(size)
    assert min(before[first:]) == size


def test_a_scaler_and_an_optimizer_are_searched_together() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    with meters.bytes_by_kind(model, [optimizer, {"more": torch.zeros(7)}]) as m:
        step(model, optimizer, torch.randn(4, 8))
    assert m.alive["optimizer"] == nbytes(model.parameters()) + 7 * F32


# --- the independent tracker ---------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 32)
        self.norm = nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 40, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x: Any) -> Any:
        h = self.embed(x)
        q, k, v = self.qkv(self.norm(h)).chunk(3, -1)
        return self.out(h + torch.softmax(q @ k.mT / math.sqrt(32), -1) @ v)


class Pictures(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))


MODELS = {
    "mlp": (lambda: mlp(2048, 512), lambda: torch.randn(16, 512)),  # 8,398,848 bytes
    "attention, tied weights": (Block, lambda: torch.randint(0, 40, (2, 24))),
    "pictures": (Pictures, lambda: torch.randn(4, 3, 8, 8)),
}
OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, foreach=False),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
}


@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_bytes_agree_with_the_tracker_of_pytorch(name: str, optimizer_name: str) -> None:
    """MemTracker is written by others, on other hooks. Its Optstate has the optimizer's temporaries
    in it, and its Activation the temporaries of the forward, so those are compared in sum."""

    def made() -> tuple[Any, Any, Any]:
        torch.default_generator.manual_seed(0)
        model = MODELS[name][0]()
        return model, OPTIMIZERS[optimizer_name](model.parameters()), MODELS[name][1]()

    model, optimizer, x = made()
    with meters.bytes_by_kind(model, optimizer) as m:
        step(model, optimizer, x, m.mark)
    model, optimizer, x = made()
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        step(model, optimizer, x)

    def told(kind: str) -> dict[str, int]:
        (rows,) = tracker.get_tracker_snapshot(kind).values()
        return {getattr(key, "value", str(key)): size for key, size in rows.items()}

    peak, end = told("peak"), told("current")
    assert m.peak_bytes == peak["Total"]
    assert sum(m.alive.values()) == end["Total"]
    assert m.alive["parameter"] == end["Parameter"] == peak["Parameter"]
    assert m.alive["optimizer"] == end["Optstate"]
    assert m.alive["gradient"] == end["Gradient"] == 0
    # Where the peak is in the optimizer's step, no activation is left and the split is the same.
    in_the_step = m.peak == m.peak_by_phase["optimizer"]
    assert in_the_step or name != "mlp"
    if in_the_step:
        assert m.peak["gradient"] == peak["Gradient"]
        assert m.peak["optimizer"] + m.peak["temporary"] == peak["Optstate"] + peak["Temp"]


# --- evidence ------------------------------------------------------------------------------------


def test_honest_training_is_not_accused_and_other_meters_agree() -> None:
    torch.default_generator.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, batch_first=True)
    model = nn.Sequential(nn.Embedding(11, 32), layer, nn.LayerNorm(32), nn.Linear(32, 11))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(0, 11, (2, 5))
    with meters.live_bytes() as live, meters.bytes_by_kind(model, optimizer) as m:
        with meters.saved_bytes(exclude=model.parameters()) as saved:
            for _ in range(2):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        del loss
    assert saved.bytes > 0
    assert m.peak_bytes == live.peak_bytes + nbytes(model.parameters())
    assert m.alive["gradient"] == m.alive["activation"] == m.alive["temporary"] == 0
    assert sum(m.alive.values()) == live.alive_bytes + nbytes(model.parameters())


def test_meta_tensors_are_measured() -> None:
    model = nn.Linear(4096, 4096, device="meta")
    with meters.bytes_by_kind(model) as m:
        model(torch.empty(8, 4096, device="meta")).sum().backward()
    assert m.alive["parameter"] == m.alive["gradient"] == (4096 + 1) * 4096 * F32


def test_an_exception_leaves_nothing_behind() -> None:
    model = mlp()
    with pytest.raises(KeyError), meters.bytes_by_kind(model):
        raise KeyError
    assert torch._C._len_torch_dispatch_stack() == 0
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


def test_a_meter_of_kinds_cannot_be_written_to() -> None:
    with meters.bytes_by_kind([]) as m, pytest.raises(AttributeError, match="read-only"):
        m.peak = {}


def test_phases_are_marked_inside_the_block() -> None:
    m = meters.bytes_by_kind([])
    with pytest.raises(RuntimeError, match="inside the block"):
        m.mark("early")
    with m:
        m.mark("twice")
        m.mark("between")
        kept = torch.zeros(5)
        m.mark("twice")
    with pytest.raises(RuntimeError, match="inside the block"):
        m.mark("late")
    assert list(m.peak_by_phase) == ["start", "twice", "between"]
    assert m.peak_by_phase["twice"]["temporary"] == kept.nbytes


def takes_hooks_off(model: Any, loss: Any) -> None:
    loss.backward()
    next(model.parameters())._post_accumulate_grad_hooks.clear()


def switches_the_mode_off(model: Any, loss: Any) -> None:
    loss.backward()
    with torch._C._DisableTorchDispatch():
        torch.zeros(1 << 20)


def pops_the_saved_hooks(model: Any, loss: Any) -> None:
    loss.backward()
    torch._C._autograd._pop_saved_tensors_default_hooks()


def rewrites_a_kind(model: Any, loss: Any) -> None:
    loss.backward()
    log = list(evidence._table.values())[-1].log
    log._entries[:] = [
        (i, ("kind", 1, "temporary") if row[0] == "kind" else row, sign)
        for i, row, sign in log._entries
    ]


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        (takes_hooks_off, "hook was taken off a parameter"),
        (switches_the_mode_off, "allocated 4194304 bytes while the meter was switched off"),
        (pops_the_saved_hooks, "saved-tensor hooks were not where"),
        (rewrites_a_kind, "changed after they were written"),
    ],
)
def test_attacks_are_noticed(attack: Any, words: str) -> None:
    model = mlp()
    taken = meters.bytes_by_kind(model)
    loss = model(torch.randn(4, 8)).sum()
    with pytest.raises(MeasurementDisturbed, match=words), taken:
        attack(model, loss)
    with pytest.raises(MeasurementDisturbed):
        _ = taken.peak


def test_an_optimizer_may_hold_arrays_of_numpy() -> None:
    """An array in an optimizer is not asked to add itself to a list of tensors; one of objects is
    searched for them."""
    parameters = [nn.Parameter(torch.ones(4))]

    class Holder:
        def __init__(self) -> None:
            self.first = parameters[0]
            self.indices = [numpy.arange(5), numpy.ones((), dtype=numpy.float32)]
            self.inside = numpy.array([None, torch.zeros(3)], dtype=object)

    made: list[Holder] = []
    with meters.bytes_by_kind(parameters, made) as m:
        made.append(Holder())
    assert m.alive["optimizer"] == 3 * F32
