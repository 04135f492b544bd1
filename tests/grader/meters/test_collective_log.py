"""What a rank's log tells: every spelling, closed forms, the kernel's count, order, attacks."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._dynamo  # DDP imports it when it is first used: once here, not once a rank
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

from grader import meters, ranks
from grader.meters import MeasurementDisturbed, c10d, evidence
from grader.sandbox.backends import Limits
from grader.sandbox.client import Session as CallLine
from grader.sandbox.client import Student
from grader.sandbox.fork_server import ForkServer, ForkServerClient
from grader.sandbox.server import CodeSpec
from tests.grader.conftest import HERE, needs_sandbox

F32 = 4
MIB = 1 << 20


def plain(log: Any) -> list[dict[str, Any]]:
    return [dataclasses.asdict(call) for call in log.calls]


def kinds(log: Any, *left_out: str) -> list[tuple[str, int]]:
    return [(event.kind, event.index) for event in log.events if event.kind not in left_out]


# --- every spelling ------------------------------------------------------------------------------


def _spellings(rank: int, world_size: int) -> Any:
    n = world_size
    x = torch.ones(6)
    wide = torch.ones(6 * n)
    other = (rank + 1) % n
    world = dist.distributed_c10d._get_default_group()
    backend = world._get_backend(torch.device("cpu"))
    half = dist.new_group([0, 1])
    op, at_root = dist.P2POp, rank == 0

    def parts() -> list[Any]:
        return list(wide.clone().chunk(n))

    def pair() -> None:
        works = [dist.isend(x, other), dist.irecv(torch.ones(6), other)]
        for work in works:
            work.wait()

    def in_thread() -> None:
        thread = threading.Thread(target=lambda: dist.all_reduce(x))
        thread.start()
        thread.join()

    def then() -> None:
        future = dist.all_reduce(x, async_op=True).get_future()
        future.then(lambda f: f.value()[0] + 1).wait()

    spelled: dict[str, Any] = {
        "all_reduce": lambda: dist.all_reduce(x),
        "all_reduce of a group": lambda: dist.all_reduce(x, group=half),
        "all_reduce async": lambda: dist.all_reduce(x, async_op=True).wait(),
        "all_reduce bf16": lambda: dist.all_reduce(x.bfloat16()),
        "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([x, wide.clone()]),
        "all_reduce functional": lambda: functional.all_reduce(x, "sum", world) + 1,
        "all_reduce functional op": lambda: torch.ops._c10d_functional.wait_tensor(
            torch.ops._c10d_functional.all_reduce(x, "sum", world.group_name)
        ),
        "all_reduce of the group object": lambda: world.allreduce([x]).wait(),
        "all_reduce of the backend": lambda: backend.allreduce([x]).wait(),
        "all_reduce in a thread": in_thread,
        "all_reduce then": then,
        "all_reduce inference": lambda: _in_inference(x),
        "all_gather": lambda: dist.all_gather(parts(), x),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(wide.clone(), x),
        "all_gather functional": lambda: functional.all_gather_tensor(x, 0, world) + 1,
        "reduce_scatter": lambda: dist.reduce_scatter(torch.ones(6), parts()),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(torch.ones(6), wide),
        "all_to_all": lambda: dist.all_to_all(parts(), parts()),
        "all_to_all_single": lambda: dist.all_to_all_single(wide.clone(), wide),
        "broadcast": lambda: dist.broadcast(x, 1),
        "reduce": lambda: dist.reduce(x, 1),
        "gather": lambda: dist.gather(x, parts() if at_root else None, dst=0),
        "scatter": lambda: dist.scatter(torch.ones(6), parts() if at_root else None, src=0),
        "send": lambda: dist.send(x, 1) if at_root else dist.recv(torch.ones(6), 0),
        "any": lambda: dist.send(x, 1) if at_root else dist.recv(torch.ones(6)),
        "isend": pair,
        "batch": lambda: [
            work.wait()
            for work in dist.batch_isend_irecv(
                [op(dist.isend, x, other), op(dist.irecv, torch.ones(6), other)]
            )
        ],
        "barrier": lambda: dist.barrier(),
        "objects": lambda: dist.all_gather_object([None] * n, rank),
    }
    if hasattr(dist, "all_gather_single"):
        spelled["all_gather_single"] = lambda: dist.all_gather_single(wide.clone(), x)
        spelled["reduce_scatter_single"] = lambda: dist.reduce_scatter_single(torch.ones(6), wide)
    found = {}
    for name, call in spelled.items():
        before = {group.group_name: _count(group) for group in (world, half)}
        with meters.collectives() as log:
            call()
        counted = sum(_count(group) - before[group.group_name] for group in (world, half))
        found[name] = (plain(log), counted, kinds(log, "completed"))
    return found


def _in_inference(x: Any) -> None:
    with torch.inference_mode():
        dist.all_reduce(x)


def _count(group: Any) -> int:
    return int(group._get_sequence_number_for_group())


@pytest.fixture(scope="module", params=[True, False], ids=["checked", "unchecked"])
def spellings(request: pytest.FixtureRequest) -> Any:
    return ranks.run(_spellings, 2, timeout_s=60, checked=request.param)


def test_every_spelling_is_told_with_its_payload(spellings: Any) -> None:
    one, both = 6 * F32, 12 * F32
    payloads = {
        "all_reduce": one,
        "all_gather": both,
        "reduce_scatter": both,
        "all_to_all": both,
        "broadcast": one,
        "reduce": one,
        "barrier": 0,
    }
    special = {"all_reduce bf16": one // 2, "all_reduce_coalesced": one + both}
    for rank, found in enumerate(spellings):
        for name, (calls, _, _) in found.items():
            operation = next((o for o in payloads if name.startswith(o)), None)
            if operation is None:
                continue
            (call,) = calls
            want = special.get(name, payloads[operation])
            assert (call["operation"], call["payload_bytes"]) == (operation, want), name
            assert (call["group"], call["rank"], call["completed"]) == ((0, 1), rank, True), name
            assert call["dtype"] == {0: ""}.get(want, "bfloat16" if "bf16" in name else "float32")
            assert (call["where"], call["gradients_ready"]) == ("outside", 0)


def test_calls_between_two_ranks_name_the_other(spellings: Any) -> None:
    for rank, found in enumerate(spellings):
        for name in ("send", "any"):
            (call,) = found[name][0]
            operation = "send" if rank == 0 else "recv"
            peer = None if name == "any" and rank == 1 else 1 - rank
            assert (call["operation"], call["peer"]) == (operation, peer)
            assert (call["payload_bytes"], call["async_op"]) == (6 * F32, False)
        for name in ("isend", "batch"):
            calls = found[name][0]
            assert [call["operation"] for call in calls] == ["send", "recv"]
            assert [call["peer"] for call in calls] == [1 - rank] * 2
            assert calls[0]["async_op"]
        for name in ("broadcast", "reduce"):
            assert found[name][0][0]["peer"] == 1
        at_root = ["gather", "scatter"] if rank == 0 else []
        for name in at_root:
            assert found[name][0][0]["payload_bytes"] == 12 * F32


def test_objects_are_two_calls(spellings: Any) -> None:
    for found in spellings:
        calls = found["objects"][0]
        assert [(call["operation"], call["dtype"]) for call in calls] == [
            ("all_gather", "int64"),
            ("all_gather", "uint8"),
        ]
        assert [(call["index"], call["number"]) for call in calls] == [(0, 0), (1, 1)]


def test_waiting_is_told_whatever_it_is_called(spellings: Any) -> None:
    whole = [("issued", 0), ("waits", 0), ("waited", 0)]
    names = ("all_reduce", "all_reduce async", "all_reduce functional", "all_gather functional")
    for found in spellings:
        for name in (*names, "all_reduce of the backend", "barrier", "send"):
            assert found[name][2] == whole, name
        assert not found["all_reduce"][0][0]["async_op"]
        assert found["all_reduce async"][0][0]["async_op"]


def test_the_groups_own_count_agrees(spellings: Any) -> None:
    """c10d counts in C++. A list of two parts is two calls of gloo's."""
    for found in spellings:
        for name, (calls, counted, _) in found.items():
            more = 1 if name == "reduce_scatter" else 0
            assert counted == len(calls) + more, name


# --- bytes ---------------------------------------------------------------------------------------

_PART = 1 << 16


def _moves(rank: int, world_size: int, name: str) -> Any:
    part, wide = torch.ones(_PART), torch.ones(_PART * world_size)
    calls = {
        "all_reduce": lambda: [dist.all_reduce(part) for _ in range(3)],
        "all_gather": lambda: dist.all_gather_into_tensor(wide, part),
        "all_to_all": lambda: dist.all_to_all_single(wide.clone(), wide),
        "broadcast": lambda: dist.broadcast(part, 1),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, wide),
        "ring": lambda: _ring(part, rank, world_size),
    }
    with meters.collectives() as log:
        calls[name]()
    return log.sent_bytes, log.count(), sorted({call.operation for call in log.calls})


def _ring(flat: Any, rank: int, world_size: int) -> None:
    """An all-reduce by hand: reduce-scatter, then all-gather, each in world_size - 1 steps."""
    chunks = list(flat.tensor_split(world_size))
    for step in range(2 * (world_size - 1)):
        send = chunks[(rank - step) % world_size]
        into = chunks[(rank - step - 1) % world_size]
        heard = torch.empty_like(into)
        work = dist.isend(send.clone(), (rank + 1) % world_size)
        dist.recv(heard, (rank - 1) % world_size)
        work.wait()
        if step < world_size - 1:
            into += heard
        else:
            into.copy_(heard)


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize(
    "name", ["all_reduce", "all_gather", "all_to_all", "broadcast", "reduce_scatter", "ring"]
)
def test_bytes_sent_are_those_that_the_kernel_counted(name: str, world_size: int) -> None:
    results = ranks.run(_moves, world_size, (name,), checked=False)
    if results.sent_bytes[0] is None:
        pytest.skip("this system does not tell")
    w, size = world_size, _PART * F32
    closed = {
        "all_reduce": 3 * 2 * (w - 1) / w * size,
        "all_gather": (w - 1) * size,
        "all_to_all": (w - 1) * size,
        "broadcast": (w - 1) / w * size,  # a rank, on average
        "reduce_scatter": (w - 1) * size,
        "ring": 2 * (w - 1) / w * size,
    }
    told = sum(sent for sent, _, _ in results) / w
    assert told == pytest.approx(closed[name], rel=1e-4)
    moved = sum(results.sent_bytes) / w
    twice = 2 if name == "reduce_scatter" else 1  # gloo runs it as an all_reduce
    assert twice * told <= moved + 8 <= twice * told + 6 * 1024 + 8
    assert sum(results.sent_bytes) == sum(results.received_bytes)
    operations = ["recv", "send"] if name == "ring" else [name]
    assert all(row[2] == operations for row in results)
    assert all(row[1] == {"all_reduce": 3, "ring": 4 * (w - 1)}.get(name, 1) for row in results)


def test_bytes_beside_the_process_group_are_in_the_kernels_count_only() -> None:
    def sneaks(rank: int, world_size: int) -> Any:
        import socket

        with meters.collectives() as log:
            with socket.create_server(("127.0.0.1", 0)) as server:
                one = socket.create_connection(server.getsockname())
                other, _ = server.accept()
            one.sendall(bytes(50_000))
            got = 0
            while got < 50_000:
                got += len(other.recv(1 << 16))
        _kept.extend([one, other])
        return log.sent_bytes

    results = ranks.run(sneaks, 1)
    assert results == [0.0]
    if results.sent_bytes[0] is not None:
        assert results.sent_bytes == [50_000]


_kept: list[Any] = []


# --- order: overlapped or not --------------------------------------------------------------------


def _model() -> nn.Sequential:
    torch.default_generator.manual_seed(0)
    return nn.Sequential(*[nn.Linear(20, 20) for _ in range(3)])


class Averages:
    """All-reduces each gradient, in one of several ways."""

    def __init__(self, model: Any, way: str) -> None:
        self.parameters = list(model.parameters())
        self.way = way
        self.works: list[Any] = []
        if way != "after":
            for p in self.parameters:
                p.register_post_accumulate_grad_hook(self.ready)

    def ready(self, p: Any) -> None:
        if not self.works:
            torch.autograd.Variable._execution_engine.queue_callback(self.finish)
        self.works.append(dist.all_reduce(p.grad, async_op=True))
        work = self.works[-1]
        if self.way == "waits at once":
            work.wait()
        elif self.way == "waits for the future":
            work.get_future().wait()
        elif self.way == "asks until it is done":
            while not work.is_completed():
                pass

    def finish(self) -> None:
        for work in self.works:
            work.wait()
        self.works.clear()

    def step(self, model: Any, x: Any) -> None:
        model(x).sum().backward()
        if self.way == "after":
            for p in self.parameters:
                dist.all_reduce(p.grad)


WAYS = [
    "overlaps",
    "waits at once",
    "waits for the future",
    "asks until it is done",
    "after",
]


def _orders(rank: int, world_size: int) -> Any:
    x = torch.ones(2, 20)
    found: dict[str, Any] = {}
    for way in WAYS:
        model = _model()
        averages = Averages(model, way)
        with meters.collectives() as log:
            for _ in range(2):
                averages.step(model, x)
        found[way] = (plain(log), kinds(log, "completed"))
    model = _model()
    ddp = DDP(model, bucket_cap_mb=0.0015)  # from the second backward on a bucket a layer
    with meters.collectives() as log:
        ddp(x).sum().backward()
        ddp(x).sum().backward()
        with ddp.no_sync():
            ddp(x).sum().backward()
        ddp(x).sum().backward()
    found["ddp"] = (plain(log), kinds(log))
    ddp = DDP(_model(), bucket_cap_mb=0.0015)
    ddp.register_comm_hook(None, _halves)
    with meters.collectives(model.parameters()) as log:
        ddp(x).sum().backward()
    found["hook"] = (plain(log), kinds(log))
    ddp = DDP(_model())
    with meters.collectives() as log, Join([ddp]):
        for _ in range(1 + rank):
            ddp(x).sum().backward()
    found["join"] = (plain(log), [])
    return found


def _halves(state, bucket):  # type: ignore[no-untyped-def]  # DDP reads annotations as they stand
    half = bucket.buffer().half()
    future = dist.all_reduce(half, async_op=True).get_future()
    return future.then(lambda f: f.value()[0].float() / dist.get_world_size())


@pytest.fixture(scope="module")
def orders() -> Any:
    return ranks.run(_orders, 2, timeout_s=60)


def test_overlapped_calls_are_issued_before_and_waited_for_after_the_last_gradient(
    orders: Any,
) -> None:
    for found in orders:
        calls, events = found["overlaps"]
        assert [call["where"] for call in calls] == ["backward"] * 12
        assert [call["backward"] for call in calls] == [1] * 6 + [2] * 6
        # A gradient is ready before the hooks that it sets off, whichever was there first.
        assert [call["gradients_ready"] for call in calls] == [1, 2, 3, 4, 5, 6] * 2
        assert [call["gradients_when_waited"] for call in calls] == [6] * 12
        first = events[: len(events) // 2]
        assert first[:3] == [("backward", 1), ("gradient", 5), ("issued", 0)]
        assert first[-1] == ("backward ended", 1)
        gradients = [place for place, (kind, _) in enumerate(first) if kind == "gradient"]
        waits = [place for place, (kind, _) in enumerate(first) if kind == "waits"]
        assert len(gradients) == len(waits) == 6
        assert max(gradients) < min(waits)


@pytest.mark.parametrize("way", WAYS[1:4])
def test_waiting_in_the_hook_is_no_overlap(orders: Any, way: str) -> None:
    for found in orders:
        calls, _ = found[way]
        assert [call["gradients_ready"] for call in calls] == [1, 2, 3, 4, 5, 6] * 2
        assert all(c["gradients_when_waited"] == c["gradients_ready"] for c in calls)
        assert all(call["async_op"] and call["where"] == "backward" for call in calls)


def test_a_blocking_call_after_backward_is_outside_with_every_gradient_ready(orders: Any) -> None:
    for found in orders:
        calls, events = found["after"]
        assert [call["where"] for call in calls] == ["outside"] * 12
        assert [call["gradients_ready"] for call in calls] == [6] * 12
        assert not any(call["async_op"] for call in calls)
        assert events.index(("backward ended", 1)) < events.index(("issued", 0))


def test_the_reducer_of_ddp_is_told_with_its_buckets(orders: Any) -> None:
    layer = (20 * 20 + 20) * F32
    for found in orders:
        calls, events = found["ddp"]
        reduced = [call for call in calls if call["operation"] == "all_reduce"]
        by_backward = [
            [c["payload_bytes"] for c in reduced if c["backward"] == b] for b in (1, 2, 3, 4)
        ]
        assert [sum(sizes) for sizes in by_backward] == [3 * layer, 3 * layer, 0, 3 * layer]
        assert by_backward[1] == by_backward[3] == [layer] * 3
        assert {call["where"] for call in reduced} == {"backward"}
        second = [call for call in reduced if call["backward"] == 2]
        assert [call["gradients_ready"] for call in second] == [2, 4, 6]
        assert all(call["gradients_when_waited"] is None and call["completed"] for call in second)
        for call in second:
            assert events.index(("issued", call["index"])) < events.index(
                ("completed", call["index"])
            )
        then = events[events.index(("backward", 2)) :]
        assert then.index(("issued", second[0]["index"])) < then.index(("gradient", 0))
        # DDP shows its new buckets to the other ranks as the next forward begins.
        shown = [call for call in calls if call["operation"] == "broadcast"]
        assert {call["where"] for call in shown} == {"forward"}


def test_a_communication_hook_is_told_with_what_it_sends(orders: Any) -> None:
    for found in orders:
        calls, _ = found["hook"]
        reduced = [call for call in calls if call["operation"] == "all_reduce"]
        assert {call["dtype"] for call in reduced} == {"float16"}
        assert sum(call["payload_bytes"] for call in reduced) == 3 * (20 * 20 + 20) * 2
        # The parameters watched are those of another model.
        assert {(call["where"], call["gradients_ready"]) for call in reduced} == {("backward", 0)}


def test_shadowed_calls_of_join_are_told(orders: Any) -> None:
    short, long = (found["join"][0] for found in orders)
    size = 3 * (20 * 20 + 20) * F32
    for calls, in_backward in ((short, 1), (long, 2)):
        reduced = [c for c in calls if c["operation"] == "all_reduce" and c["payload_bytes"] > 64]
        assert sum(call["payload_bytes"] for call in reduced) >= 2 * size
        assert sum(call["where"] == "backward" for call in reduced) >= in_backward


def test_a_rank_that_overlaps_goes_on_while_its_peer_is_late() -> None:
    """The cause, not the log: rank 1 begins its backward when rank 0 has all its gradients."""

    def trains(rank: int, world_size: int) -> Any:
        store = dist.distributed_c10d._get_default_store()
        model = _model()
        averages = Averages(model, "overlaps")
        first = averages.parameters[0]
        if rank == 0:
            first.register_post_accumulate_grad_hook(lambda _: store.set("all there", "yes"))
        with meters.collectives() as log:
            loss = model(torch.ones(2, 20)).sum()
            if rank == 1:
                store.wait(["all there"])
            loss.backward()
        return kinds(log), first.grad

    results = ranks.run(trains, 2, checked=False)
    events = results[0][0]
    gradients = [place for place, (kind, _) in enumerate(events) if kind == "gradient"]
    complete = [place for place, (kind, _) in enumerate(events) if kind == "completed"]
    assert len(gradients) == len(complete) == 6
    assert max(gradients) < min(complete)
    assert torch.equal(results[0][1], results[1][1])


def test_a_backward_that_raised_is_over_and_final_callbacks_belong_to_theirs() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            raise ValueError("no")

    def trains(rank: int, world_size: int) -> Any:
        layer = nn.Linear(3, 3, bias=False)
        x = torch.ones(2, 3, requires_grad=True)
        asked: list[int] = []

        def ready(p: Any) -> None:
            if not asked:
                asked.append(1)
                engine = torch.autograd.Variable._execution_engine
                engine.queue_callback(lambda: dist.all_reduce(p.grad))

        layer.weight.register_post_accumulate_grad_hook(ready)
        with meters.collectives() as log:
            layer(x).sum().backward()
            try:
                layer(Fails.apply(x)).sum().backward()
            except ValueError:
                dist.all_reduce(x.detach())
            layer(x).sum().backward()
            dist.all_reduce(x.detach())
        return [(call.where, call.backward) for call in log.calls]

    told = [("backward", 1), ("outside", 2), ("outside", 3)]
    assert ranks.run(trains, 2) == [told, told]


def test_calls_of_another_thread_belong_to_the_backward_that_goes_on() -> None:
    def trains(rank: int, world_size: int) -> Any:
        model = nn.Linear(4, 4, bias=False)

        def ready(p: Any) -> None:
            thread = threading.Thread(target=lambda: dist.all_reduce(p.grad))
            thread.start()
            thread.join()

        model.weight.register_post_accumulate_grad_hook(ready)
        with meters.collectives() as log:
            model(torch.ones(1, 4)).sum().backward()
        return [(call.where, call.gradients_ready) for call in log.calls]

    assert ranks.run(trains, 2) == [[("backward", 1)]] * 2


# --- groups, other meters, refusals --------------------------------------------------------------


def test_groups_are_told_in_ranks_of_the_world_and_numbered_apart() -> None:
    def talks(rank: int, world_size: int) -> Any:
        odd = dist.new_group([1, 2])
        with meters.collectives() as log:
            dist.all_reduce(torch.ones(3))
            if rank:
                dist.broadcast(torch.ones(3), 2, group=odd)
                dist.all_reduce(torch.ones(3), group=odd)
            dist.all_reduce(torch.ones(3))
        return [(call.group, call.number, call.peer) for call in log.calls]

    results = ranks.run(talks, 3)
    assert results[0] == [((0, 1, 2), 0, None), ((0, 1, 2), 1, None)]
    inner = [((1, 2), 0, 2), ((1, 2), 1, None)]
    assert results[1] == results[2] == [results[0][0], *inner, results[0][1]]


def test_other_meters_work_around_and_inside() -> None:
    def trains(rank: int, world_size: int) -> Any:
        ddp = DDP(_model())
        with meters.bytes_by_kind(ddp) as m, meters.op_log(), meters.collectives() as log:
            ddp(torch.ones(2, 20)).sum().backward()
        return log.count("all_reduce"), m.alive["gradient"], sorted(m.alive)

    size = 3 * (20 * 20 + 20) * F32
    for calls, gradient, names in ranks.run(trains, 2, timeout_s=40):
        assert (calls, gradient) == (1, size)
        assert len(names) == 5


def test_nothing_is_kept_alive_that_was_sent() -> None:
    def sends(rank: int, world_size: int) -> Any:
        alive = []
        ddp = DDP(_model())
        with meters.collectives() as log:
            for way in ("sync", "async", "future", "functional", "ddp"):
                block = torch.ones(1000)
                if way == "sync":
                    dist.all_reduce(block)
                elif way == "async":
                    dist.all_reduce(block, async_op=True).wait()
                elif way == "future":
                    dist.all_reduce(block, async_op=True).get_future().wait()
                elif way == "functional":
                    block = functional.all_reduce(block, "sum", dist.group.WORLD) + 1
                else:
                    ddp(torch.ones(2, 20)).sum().backward()
                    block = ddp.module[0].weight.grad
                    ddp.zero_grad()
                alive.append(weakref.ref(block.untyped_storage()))
                del block
                for _ in range(200):  # a thread of the group may hold it a moment longer
                    if alive[-1]() is None:
                        break
                    threading.Event().wait(0.005)
        return [reference() is None for reference in alive], log.count()

    for gone, calls in ranks.run(sends, 2, timeout_s=40):
        assert gone == [True] * 5
        assert calls == 5


def test_outside_a_rank_there_is_nothing_to_log() -> None:
    with pytest.raises(RuntimeError, match="no process group here"), meters.collectives():
        pass


# --- attacks -------------------------------------------------------------------------------------


def takes_the_kernels_off() -> None:
    c10d.TAP._library._destroy()
    dist.all_reduce(torch.ones(3))


def empties_the_list() -> None:
    listeners = list(c10d.TAP.listeners)
    c10d.TAP.listeners.clear()
    dist.all_reduce(torch.ones(3))
    c10d.TAP.listeners.extend(listeners)


def replaces_wait() -> None:
    torch._C._distributed_c10d.Work.wait = lambda self, *more: True


def goes_to_the_backend_with_a_kept_method() -> None:
    original = c10d.TAP._patches[torch._C._distributed_c10d.Backend, "allreduce"][0]
    group = dist.distributed_c10d._get_default_group()
    original(group._get_backend(torch.device("cpu")), [torch.ones(3)]).wait()


def sends_past_the_tap() -> None:
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    kept = c10d.TAP._patches[torch._C._distributed_c10d.Backend, "send"][0]
    into = c10d.TAP._patches[torch._C._distributed_c10d.Backend, "recv"][0]
    if dist.get_rank() == 0:
        kept(backend, [torch.ones(3)], 1, 0).wait()
    else:
        into(backend, [torch.ones(3)], 0, 0).wait()


def forgets_a_call() -> None:
    dist.all_reduce(torch.ones(3))
    list(evidence._table.values())[-1].log._entries.pop()


def takes_the_gradient_hooks_off() -> None:
    model = _model()
    y = model(torch.ones(2, 20)).sum()
    model[0].weight._post_accumulate_grad_hooks.clear()
    y.backward()


def takes_the_module_hooks_off() -> None:
    nn.modules.module._global_forward_hooks.clear()


def rewrites_a_method() -> None:
    type(list(evidence._table.values())[-1]).calls = lambda self: []  # type: ignore[attr-defined]


ATTACKS: dict[Any, str] = {
    takes_the_kernels_off: "kernel of c10d::.* was taken off",
    empties_the_list: "1 collectives of a group ran that the meter did not see",
    replaces_wait: "wait of a process group's objects was replaced",
    goes_to_the_backend_with_a_kept_method: "1 collectives of a group ran",
    sends_past_the_tap: "1 collectives of a group ran",
    forgets_a_call: "changed after they were written",
    takes_the_gradient_hooks_off: "hook was taken off a parameter",
    takes_the_module_hooks_off: "hook on the call of modules was taken off",
    rewrites_a_method: "CollectiveCalls.calls was replaced",
}


def _is_attacked(rank: int, world_size: int, attack: Any) -> str:
    taken = meters.collectives()
    try:
        with taken:
            attack()
    except MeasurementDisturbed as error:
        try:
            taken.calls  # noqa: B018
        except MeasurementDisturbed:
            return str(error)
    return "nothing noticed"


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_on_the_log_are_noticed(attack: Any) -> None:
    import re

    for text in ranks.run(_is_attacked, 2, (attack,), checked=False):
        assert re.match(rf"Measurement disturbed: .*{ATTACKS[attack]}", text), text


# --- the sandbox ---------------------------------------------------------------------------------

PROBES = """
import torch
import torch.distributed as dist

from grader import meters, ranks


def reduces(student):
    def measured(rank, world_size):
        layer = torch.nn.Linear(64, 64, bias=False)
        with meters.bytes_by_kind(layer) as m, meters.collectives() as log:
            layer(torch.ones(1, 64)).sum().backward()
            dist.all_reduce(layer.weight.grad)
        call = log.calls[0]
        return [m.alive["gradient"], call.payload_bytes, call.where, log.sent_bytes]

    found = ranks.run(measured, world_size=2, timeout_s=60.0, checked=False)
    return list(found), found.sent_bytes


def hangs(student):
    def skips(rank, world_size):
        if rank == 0:
            dist.all_reduce(torch.ones(7))

    try:
        ranks.run(skips, world_size=2, timeout_s=3.0)
    except ranks.RanksError as error:
        return error.sentences
"""


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Student]:
    """A worker of the sandbox tier, with PyTorch and the probes above."""
    folder = tmp_path_factory.mktemp("collectives")
    unit = folder / "lab00"
    unit.mkdir()
    (unit / "student.py").write_text("def nothing(): pass\n")
    with ForkServer(folder, ["numpy", "torch", "grader.meters:preload"], [HERE]) as fork_server:
        fork_server.wait()
        from grader.sandbox.fork_server import SandboxBackend

        backend = SandboxBackend(
            CodeSpec(unit, ("student.py",), (), PROBES),
            Limits(60.0),
            ForkServerClient(fork_server.address),
        )
        yield Student(CallLine(backend, {}, {}))
        backend.close()


@needs_sandbox
def test_the_sandbox_lets_ranks_be_measured(inside: Student) -> None:
    rows, sent = inside.probe.reduces()
    size = 64 * 64 * F32
    assert [list(row) for row in rows] == [[size, size, "outside", float(size)]] * 2
    assert all(size <= moved <= size + 2048 for moved in sent)


@needs_sandbox
def test_the_sandbox_lets_ranks_be_explained(inside: Student) -> None:
    (text,) = inside.probe.hangs()
    assert text.startswith("Rank 1 never joined all_reduce number 1 (float32, shape (7,))")
