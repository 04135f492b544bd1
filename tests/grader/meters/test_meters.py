"""The meters: exact on closed forms, quiet on honest code, loud when tampered with."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import tracemalloc
import typing
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import typing_extensions
from torch.utils import _python_dispatch, _pytree
from torch.utils.checkpoint import checkpoint

from grader import meters, ranks
from grader.meters import MeasurementDisturbed, evidence, flops, tensors

ROOT = Path(__file__).resolve().parents[3]
F32 = 4


def test_import_loads_no_torch_and_no_numpy() -> None:
    code = "import sys, grader.meters, grader.ranks; print({'torch','numpy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


# --- tensors in a value --------------------------------------------------------------------------


class Pair(typing.NamedTuple):
    one: Any
    other: Any


class Several(list[Any]):
    """A list of one's own is a leaf, as it is for torch."""


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(2),
        torch.nn.Parameter(torch.ones(2)),
        (torch.ones(1), [torch.ones(2), None, 3, "text"], {"b": torch.ones(3), "a": (1.5,)}),
        ((torch.ones(1), torch.float32), {"device": torch.device("cpu"), "layout": torch.strided}),
        OrderedDict(b=torch.ones(1), a=torch.ones(2)),
        Pair(torch.ones(1), [torch.ones(2)]),
        deque([torch.ones(1)]),
        Several([torch.ones(1)]),
        torch.return_types.max((torch.ones(1), torch.ones(1, dtype=torch.long))),
        torch.Size([1, 2]),
        {1: {2: [[[torch.ones(1)], ()]]}, 0: torch.ones(4)},
        [],
        None,
        True,
        torch.memory_format,
        np.ones(3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_tensors_of_a_value_are_those_that_torch_finds(value: Any) -> None:
    """Oracle: the leaves of torch's own walk."""
    wanted = [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    assert list(map(id, tensors.tensors_in(value))) == list(map(id, wanted))


# --- saved_bytes ---------------------------------------------------------------------------------


def saved(run: Callable[[], Any], exclude: Any = ()) -> Any:
    with meters.saved_bytes(exclude=exclude) as meter:
        kept = run()
    del kept
    return meter


def test_linear_saves_its_input() -> None:
    layer = torch.nn.Linear(8, 3)
    x = torch.randn(5, 8)
    assert saved(lambda: layer(x), layer.parameters()).bytes == 5 * 8 * F32


def test_linear_saves_its_weight_too_when_the_input_needs_a_gradient() -> None:
    layer = torch.nn.Linear(8, 3)
    x = torch.randn(5, 8, requires_grad=True)
    assert saved(lambda: layer(x)).bytes == (5 * 8 + 3 * 8) * F32
    assert saved(lambda: layer(x), layer.parameters()).bytes == 5 * 8 * F32


@pytest.mark.parametrize(
    ("function", "storages"),
    [
        (lambda x: torch.softmax(x, -1), 1),  # its output
        (torch.relu, 1),  # its output
        (torch.exp, 1),  # its output
        (F.gelu, 1),  # its input
        (lambda x: x * x, 1),  # x, twice, one storage
        (lambda x: x + 1, 0),
        (lambda x: x.t() @ x, 1),  # two views of one storage
        (lambda x: torch.relu(x).relu(), 2),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_single_ops_save_their_closed_form(
    function: Any, storages: int, dtype: Any, device: str
) -> None:
    x = torch.zeros(6, 7, dtype=dtype, device=device, requires_grad=True)
    meter = saved(lambda: function(x))
    assert meter.bytes == storages * 6 * 7 * dtype.itemsize
    assert [row[1] for row in meter.tensors] == [dtype] * storages


def test_a_saved_view_counts_the_storage_that_it_keeps_alive() -> None:
    x = torch.randn(10, 100, requires_grad=True).clone()
    assert saved(lambda: x[0].exp().sum() + (x[1] * x[2]).sum()).bytes == (1000 + 100) * F32


def test_rows_of_tensors_add_up_and_name_the_shape_saved() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    meter = saved(lambda: x.exp().softmax(-1))
    assert meter.tensors == [((3, 4), torch.float32, 48), ((3, 4), torch.float32, 48)]
    assert sum(row[2] for row in meter.tensors) == meter.bytes


def test_checkpoint_keeps_only_its_input() -> None:
    x = torch.randn(4, 16, requires_grad=True)
    w = torch.nn.Parameter(torch.randn(16, 16))

    def block(x: Any) -> Any:
        return torch.relu(x @ w).exp() @ w

    plain = saved(lambda: block(x), [w]).bytes
    thrifty = saved(lambda: checkpoint(block, x, use_reentrant=False), [w]).bytes
    assert (plain, thrifty) == (3 * 4 * 16 * F32, 4 * 16 * F32)


def test_a_backward_inside_the_block_works_and_changes_nothing() -> None:
    x = torch.randn(4, 16, requires_grad=True)

    def run() -> None:
        checkpoint(lambda t: t.exp().exp(), x, use_reentrant=False).sum().backward()

    reference = x.exp().exp() * x.exp()
    saved(run)
    assert torch.allclose(x.grad, reference)


def test_what_inner_hooks_return_is_what_is_kept() -> None:
    x = torch.randn(64, requires_grad=True)

    def halved() -> Any:
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float())
        with hooks:
            return x.exp()

    def to_disk() -> Any:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: 7, lambda t: torch.zeros(64)):
            return x.exp()

    assert saved(halved).bytes == 64 * 2
    assert saved(to_disk).bytes == 0
    with torch.autograd.graph.save_on_cpu():
        outside = saved(lambda: x.exp())
    assert outside.bytes == 64 * F32


def test_autocast_saves_its_cast_copies() -> None:
    layer = torch.nn.Linear(8, 8, bias=False)
    x = torch.randn(4, 8)

    def run() -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x)

    assert saved(run, layer.parameters()).bytes == 4 * 8 * 2


def test_saved_meters_nest() -> None:
    x = torch.randn(10, requires_grad=True)
    with meters.saved_bytes() as outer:
        a = x.exp()
        with meters.saved_bytes() as inner:
            b = a.exp()
    del b
    assert (inner.bytes, outer.bytes) == (40, 80)


# --- live_bytes, allocated_bytes, numpy_bytes ----------------------------------------------------


def live(run: Callable[[], Any]) -> Any:
    with meters.live_bytes() as meter:
        kept = run()
    del kept
    return meter


def test_peak_of_a_known_sequence_is_exact() -> None:
    def run() -> Any:
        a = torch.zeros(1000)  # 4000
        b = a + 1  # 8000
        del a  # 4000
        c = torch.cat([b, b, b])  # 16000
        return c[:10]  # b goes, a view adds nothing

    meter = live(run)
    assert (meter.peak_bytes, meter.largest_bytes, meter.largest_shape) == (16000, 12000, (3000,))
    assert meter.alive_bytes == 12000


def test_inputs_views_and_in_place_operations_count_nothing() -> None:
    x = torch.randn(100, 100)

    def run() -> Any:
        x.add_(1).view(-1)[3:].t().mul_(2)
        torch.add(x, 1, out=x)
        return x.reshape(10, 1000)

    assert live(run).peak_bytes == 0


def test_an_out_argument_that_grows_counts_its_growth() -> None:
    inside = live(lambda: torch.add(torch.ones(100), 1, out=torch.empty(0)))
    assert inside.peak_bytes == 800
    outside = torch.empty(0)
    x = torch.ones(100)
    assert live(lambda: torch.add(x, 1, out=outside)).peak_bytes == 400


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_temporaries_of_composite_ops_are_seen(context: Any) -> None:
    x, w, b = torch.randn(3, 50, 10), torch.randn(50, 10), torch.randn(50)
    with context():
        meter = live(lambda: F.linear(x[0], w, b).sum())
    assert meter.largest_bytes == 50 * 50 * F32
    assert meter.largest_shape == (50, 50)


def test_tensors_from_data_count() -> None:
    assert live(lambda: torch.tensor([1.0] * 100)).peak_bytes == 400
    assert live(lambda: torch.tensor(np.ones(1 << 16))).peak_bytes == 1 << 19


def test_meta_tensors_have_bytes_but_allocate_none() -> None:
    meter = live(lambda: torch.empty(1 << 20, device="meta") + 1)
    assert meter.peak_bytes == 2 * F32 << 20
    assert meter.allocated_peak_bytes < 1024


def test_what_a_function_hides_on_ctx_is_still_alive() -> None:
    class Hides(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.scores = x[:, None] * x[None, :]
            return x.sum()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.scores.sum(0)

    x = torch.randn(100, requires_grad=True)
    with meters.live_bytes() as meter, meters.saved_bytes() as saving:
        y = Hides.apply(x)
    assert (saving.bytes, meter.alive_bytes) == (0, 100 * 100 * F32 + F32)
    del y


def test_the_allocator_sees_what_a_fused_kernel_hides() -> None:
    size = 512
    q = torch.randn(1, 1, size, 8)

    def math_kernel() -> Any:
        return torch.ops.aten._scaled_dot_product_attention_math.default(q, q, q)[0]

    with meters.allocated_bytes() as flash:
        F.scaled_dot_product_attention(q, q, q)
    with meters.allocated_bytes() as math:
        math_kernel()
    assert flash.peak_bytes < size * size * F32 <= math.peak_bytes
    # One op in whose kernel a buffer lives that no op returns: the dispatcher alone cannot see it.
    x = torch.randn(64, 3, 32, 32)
    weight = torch.randn(8, 3, 3, 3)
    with meters.live_bytes() as meter:
        out = torch.ops.aten._slow_conv2d_forward(x, weight, [3, 3], None, [1, 1], [1, 1])
    columns = 64 * 27 * 32 * 32 * F32
    assert meter.peak_bytes == out.nbytes
    assert meter.allocated_peak_bytes >= out.nbytes + columns


def test_allocator_and_tensors_agree_on_plain_code() -> None:
    def run() -> Any:
        a = torch.zeros(1000)
        b = a + 1
        del a
        return torch.cat([b, b, b])

    meter = live(run)
    with meters.allocated_bytes() as alone:
        run()
    assert meter.allocated_peak_bytes == alone.peak_bytes == meter.peak_bytes
    assert (alone.largest_bytes, alone.largest_op) == (12000, "aten::cat")


def test_blocks_from_an_earlier_measurement_do_not_lower_a_later_peak() -> None:
    stash = []
    with meters.allocated_bytes() as first:
        stash.append(torch.empty(1 << 16))
    with meters.allocated_bytes() as second:
        kept = torch.empty(1000)
        stash.clear()
        more = torch.empty(1000)
    assert (first.peak_bytes, second.peak_bytes) == (4 << 16, 8000)
    del kept, more


def test_memory_of_numpy_is_seen_by_its_own_meter() -> None:
    with meters.numpy_bytes() as meter:
        a = np.ones((1024, 1024))
        b = a + a
        del a
        b += 1
    assert 16 << 20 <= meter.peak_bytes < (16 << 20) + 65536
    assert 8 << 20 <= meter.alive_bytes < (8 << 20) + 65536
    assert not tracemalloc.is_tracing()


# --- op_log --------------------------------------------------------------------------------------


def log(run: Callable[[], Any]) -> Any:
    with meters.op_log() as meter:
        run()
    return meter


A, B, C = torch.randn(3, 5), torch.randn(5, 7), torch.randn(3, 7)
BATCH = torch.randn(2, 3, 5)
QUERY = torch.randn(2, 3, 11, 8)
KEYS = torch.randn(2, 3, 13, 8)
VALUES = torch.randn(2, 3, 13, 24)


@pytest.mark.parametrize(
    ("function", "flops"),
    [
        (lambda: A @ B, 2 * 3 * 5 * 7),
        (lambda: torch.mm(A, B, out=torch.empty(3, 7)), 2 * 3 * 5 * 7),
        (lambda: torch.addmm(C, A, B), 2 * 3 * 5 * 7),
        (lambda: C.clone().addmm_(A, B), 2 * 3 * 5 * 7),
        (lambda: BATCH @ B, 2 * 2 * 3 * 5 * 7),
        (lambda: torch.bmm(BATCH, BATCH.mT), 2 * 2 * 3 * 5 * 3),
        (lambda: torch.baddbmm(torch.zeros(2, 3, 3), BATCH, BATCH.mT), 2 * 2 * 3 * 5 * 3),
        (lambda: torch.einsum("bij,jk->bik", BATCH, B), 2 * 2 * 3 * 5 * 7),
        (lambda: A @ B[:, 0], 2 * 3 * 5),
        (lambda: torch.dot(A[0], A[1]), 2 * 5),
        (lambda: F.linear(A, B.t(), C[0]), 2 * 3 * 5 * 7),
        (lambda: F.scaled_dot_product_attention(QUERY, KEYS, KEYS), 2 * 6 * 11 * 13 * 16),
        (lambda: F.scaled_dot_product_attention(QUERY, KEYS, VALUES), 2 * 6 * 11 * 13 * 32),
        (lambda: F.conv1d(torch.ones(1, 2, 9), torch.ones(4, 2, 3)), 2 * 7 * 4 * 2 * 3),
        (lambda: A + 1, 0),
        (lambda: torch.softmax(A, -1), 0),
    ],
)
@pytest.mark.parametrize("context", [torch.enable_grad, torch.inference_mode])
def test_flops_equal_their_closed_form(function: Any, flops: int, context: Any) -> None:
    with context():
        meter = log(function)
    assert meter.matmul_flops == flops
    assert meter.unpriced == {}


def test_backward_of_attention_counts_five_products() -> None:
    q, k, v = (torch.randn(1, 2, 16, 8, requires_grad=True) for _ in range(3))
    forward = 2 * 2 * 16 * 16 * 16
    meter = log(lambda: F.scaled_dot_product_attention(q, k, v).sum().backward())
    assert meter.matmul_flops == forward + 2 * 2 * 16 * 16 * 8 * 5


def test_fused_attention_is_priced_by_both_head_dimensions() -> None:
    func = torch.ops.aten._scaled_dot_product_efficient_attention.default
    assert flops.flops(func, (QUERY, KEYS, VALUES, None, False), {}, None) == 2 * 6 * 11 * 13 * 32


def test_a_training_step_costs_three_times_its_forward() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    x = torch.randn(32, 8, requires_grad=True)
    forward = 2 * 32 * (8 * 16 + 16 * 4)
    assert log(lambda: layers(x)).matmul_flops == forward
    assert log(lambda: layers(x).sum().backward()).matmul_flops == 3 * forward


def test_ops_have_names_shapes_and_counts() -> None:
    meter = log(lambda: torch.relu(A @ B))
    assert meter.ops == [
        ("aten.mm.default", ((3, 5), (5, 7)), ((3, 7),)),
        ("aten.relu.default", ((3, 7),), ((3, 7),)),
    ]
    assert (meter.count("mm"), meter.count("aten.mm"), meter.count("aten.mm.default")) == (1, 1, 1)
    assert (meter.count("m"), meter.count("bmm")) == (0, 0)
    assert meter.flops_by_op == {"aten.mm.default": 210}


def test_a_fused_op_without_a_formula_is_named() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with torch.no_grad():
        meter = log(lambda: layer(torch.randn(1, 4, 8)))
    assert meter.unpriced == {"aten._transformer_encoder_layer_fwd.default": 1}


def test_a_custom_op_is_named() -> None:
    library = torch.library.Library("meters_test", "FRAGMENT")
    library.define("sneaky(Tensor a, Tensor b) -> Tensor")
    library.impl("sneaky", lambda a, b: a @ b, "CPU")
    meter = log(lambda: torch.ops.meters_test.sneaky(A, B))
    assert meter.unpriced == {"meters_test.sneaky.default": 1}


def test_upsampling_and_converting_are_not_taken_for_contractions() -> None:
    x = torch.randn(1, 1, 4)
    meter = log(lambda: (F.interpolate(x, scale_factor=2, mode="linear"), x.cummax(-1), x.mvlgamma))
    assert meter.unpriced == {}


def test_meters_nest_without_seeing_each_other() -> None:
    def run() -> Any:
        return torch.exp(A.clone().requires_grad_() @ B)

    def plain(meter: Any) -> Any:  # hooks spare the `detach` of a saved output
        return [row for row in meter.ops if row[0] != "aten.detach.default"]

    alone = (plain(log(run)), live(run).peak_bytes, saved(run).bytes)
    with meters.op_log() as a, meters.live_bytes() as b, meters.saved_bytes() as c:
        with meters.allocated_bytes() as d, meters.op_log() as e:
            kept = run()
        del kept
    assert (plain(a), b.peak_bytes, c.bytes) == alone
    assert (plain(e), d.peak_bytes) == (alone[0], alone[1])


def test_fake_and_mapped_tensors_are_measured() -> None:
    from torch._subclasses import FakeTensorMode

    def fake() -> None:
        with FakeTensorMode():
            layer = torch.nn.Linear(100, 100, bias=False)
            layer(torch.randn(3, 100)).sum().backward()

    assert log(fake).matmul_flops == 2 * 2 * 3 * 100 * 100
    assert live(fake).peak_bytes >= 2 * 100 * 100 * F32
    assert log(lambda: torch.func.vmap(lambda row: row @ B)(A)).matmul_flops == 2 * 3 * 5 * 7


# --- honest code is not accused ------------------------------------------------------------------


def _train() -> None:
    torch.default_generator.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(11, 32),
        torch.nn.TransformerEncoderLayer(32, 4, batch_first=True),
        torch.nn.LayerNorm(32),
        torch.nn.Linear(32, 11),
    )
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 11, (2, 5))
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def _mixed() -> None:
    x = torch.randn(64, 64, requires_grad=True)
    str(x), x.tolist(), x.sum().item(), x.detach().numpy().copy()
    torch.linalg.solve(x.detach(), x.detach())
    lstm = torch.nn.LSTM(4, 4)
    lstm(torch.randn(2, 1, 4))[0].sum().backward()
    checkpoint(lambda t: F.gelu(t @ t) @ t, x, use_reentrant=False).sum().backward()
    checkpoint(lambda t: (t @ t) @ t, x, use_reentrant=True).sum().backward()
    torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.ones(2), (2, 2)).to_dense()
    torch.tensor(np.ones(1 << 15)), torch.from_numpy(np.ones(1 << 15)).float()
    import copy

    copy.deepcopy(torch.nn.Linear(200, 200))
    torch.autograd.grad((x * x).sum(), x, create_graph=True)[0].sum().backward()


def _generators() -> None:
    cache = [torch.zeros(1, 4, 0, 8)]
    for _ in range(5):
        cache[0] = torch.cat([cache[0], torch.randn(1, 4, 1, 8)], 2)
        F.scaled_dot_product_attention(cache[0][:, :, -1:], cache[0], cache[0])


@pytest.mark.parametrize("work", [_train, _mixed, _generators])
def test_honest_code_is_not_accused(work: Any) -> None:
    with meters.op_log(), meters.live_bytes(), meters.saved_bytes(), meters.allocated_bytes():
        work()
    with meters.numpy_bytes():
        work()


def test_an_exception_passes_and_leaves_nothing_behind() -> None:
    with pytest.raises(KeyError), meters.op_log(), meters.live_bytes(), meters.saved_bytes():
        raise KeyError
    assert torch._C._len_torch_dispatch_stack() == 0
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    assert not torch._C._autograd._profiler_enabled()


def test_a_meter_measures_one_block() -> None:
    meter = meters.op_log()
    with meter:
        pass
    with pytest.raises(RuntimeError, match="one block"), meter:
        pass


# --- attacks -------------------------------------------------------------------------------------

BIG = torch.randn(200, 200)


def pops_the_mode() -> None:
    _python_dispatch._pop_mode()
    BIG @ BIG


def pops_and_pushes_back() -> None:
    mode = _python_dispatch._pop_mode()
    BIG @ BIG
    _python_dispatch._push_mode(mode)


def turns_dispatch_off_for_a_while() -> None:
    with torch._C._DisableTorchDispatch():
        BIG @ BIG


def disables_current_modes() -> None:
    with _python_dispatch._disable_current_modes():
        BIG @ BIG


def leaves_a_mode_on_top() -> None:
    class Mine(_python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    Mine().__enter__()


def stops_the_profiler() -> None:
    torch._C._autograd._disable_profiler()


def cuts_the_profile() -> None:
    torch._C._autograd._disable_profiler()
    BIG @ BIG
    meters.live.profiler_events._begin()  # type: ignore[attr-defined]


def starts_a_thread() -> None:
    thread = threading.Thread(target=lambda: BIG @ BIG)
    thread.start()
    thread.join()


def searches_the_heap() -> None:
    import gc

    BIG @ BIG
    gc.get_objects()


def leaves_dispatch_off() -> None:
    _GUARDS.append(torch._C._DisableTorchDispatch())


def edits_the_table() -> None:
    BIG @ BIG
    for measurement in evidence._table.values():
        measurement.log._entries.clear()


def rewrites_a_record() -> None:
    BIG @ BIG
    for measurement in evidence._table.values():
        entries = measurement.log._entries
        entries[:] = [(i, (*row[:-1], 0), sign) for i, row, sign in entries]


def replaces_append() -> None:
    _PATCHES.setattr(evidence.SignedLog, "append", lambda self, *row: None)
    BIG @ BIG


def replaces_the_code_of_see() -> None:
    function = meters.ops.Calls.see  # type: ignore[attr-defined]
    _CODES.append((function, function.__code__))
    function.__code__ = (lambda self, func, args, kwargs: func(*args, **kwargs)).__code__
    BIG @ BIG


def replaces_the_stack_functions() -> None:
    _PATCHES.setattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)


_PATCHES = pytest.MonkeyPatch()
_CODES: list[tuple[Any, Any]] = []
_GUARDS: list[Any] = []


@pytest.fixture
def _undo() -> Any:
    yield
    _GUARDS.clear()
    _PATCHES.undo()
    while _CODES:
        function, code = _CODES.pop()
        function.__code__ = code


DISPATCH_ATTACKS: dict[Any, str] = {
    pops_the_mode: "not where it had been put",
    pops_and_pushes_back: "aten::mm ran while the meter was switched off",
    turns_dispatch_off_for_a_while: "aten::mm ran while the meter was switched off",
    disables_current_modes: "aten::mm ran while the meter was switched off",
    leaves_dispatch_off: "no longer saw the operations",
    leaves_a_mode_on_top: "not where it had been put",
    stops_the_profiler: "profiler .* was stopped",
    cuts_the_profile: "profiler .* was stopped",
    starts_a_thread: "a thread was started",
    searches_the_heap: "searched through gc",
    edits_the_table: "changed after they were written",
    rewrites_a_record: "changed after they were written",
    replaces_append: "SignedLog.append was replaced",
    replaces_the_stack_functions: "_len_torch_dispatch_stack was replaced",
}


@pytest.mark.usefixtures("_undo")
@pytest.mark.parametrize("meter", [meters.op_log, meters.live_bytes])
@pytest.mark.parametrize("attack", DISPATCH_ATTACKS)
def test_attacks_on_the_dispatch_meters_are_noticed(attack: Any, meter: Any) -> None:
    taken = meter()
    words = rf"^Measurement disturbed: .*{DISPATCH_ATTACKS[attack]}.*\.$"
    with pytest.raises(MeasurementDisturbed, match=words), taken:
        attack()
    name = "matmul_flops" if meter is meters.op_log else "peak_bytes"
    with pytest.raises(MeasurementDisturbed):
        getattr(taken, name)
    _PATCHES.undo()
    assert torch._C._len_torch_dispatch_stack() == 0
    assert not torch._C._autograd._profiler_enabled()


@pytest.mark.usefixtures("_undo")
def test_replaced_code_of_a_meter_is_noticed() -> None:
    with pytest.raises(MeasurementDisturbed, match="code of a function"), meters.op_log():
        replaces_the_code_of_see()


def test_a_large_block_taken_with_the_mode_off_is_noticed() -> None:
    def attack() -> None:
        mode = _python_dispatch._pop_mode()
        torch.empty(1 << 20)
        _python_dispatch._push_mode(mode)

    with pytest.raises(MeasurementDisturbed, match="aten::empty allocated"), meters.live_bytes():
        attack()


def test_a_forged_record_of_a_free_is_noticed() -> None:
    kept = []

    def attack() -> None:
        kept.append(torch.ones(1000))
        list(evidence._table.values())[-1].log.append("free", 1)

    words = "storages that are alive"
    with pytest.raises(MeasurementDisturbed, match=words), meters.live_bytes():
        attack()


@pytest.mark.usefixtures("_undo")
def test_a_replaced_figure_is_noticed() -> None:
    meters.preload()
    kind = sys.modules["grader.meters.live"].LiveBytes
    with pytest.raises(MeasurementDisturbed, match="peak_bytes was replaced"), meters.live_bytes():
        _PATCHES.setattr(kind, "peak_bytes", property(lambda self: 0))


def test_records_edited_after_the_block_are_noticed() -> None:
    meter = log(lambda: A @ B)
    evidence._table[meter._number].log._entries.pop()
    with pytest.raises(MeasurementDisturbed, match="changed after they were written"):
        _ = meter.matmul_flops


def test_a_meter_in_the_callers_frame_holds_no_figure_and_takes_none() -> None:
    with meters.op_log() as meter, pytest.raises(AttributeError, match="read-only"):
        meter.matmul_flops = 0
    assert not hasattr(meter, "__dict__")
    assert type(meter._number) is str


def pops_the_hooks() -> None:
    torch._C._autograd._pop_saved_tensors_default_hooks()
    torch.ones(3, requires_grad=True).exp()


_POP, _PUSH, _TOP = (
    torch._C._autograd._pop_saved_tensors_default_hooks,
    torch._C._autograd._push_saved_tensors_default_hooks,
    torch._C._autograd._top_saved_tensors_default_hooks,
)


def pops_the_hooks_with_a_kept_function() -> None:
    _POP()


def swaps_the_hooks() -> None:
    _POP()
    _PUSH(lambda t: t, lambda t: t)


def replaces_push() -> None:
    torch._C._autograd._push_saved_tensors_default_hooks = _PUSH


def leaves_hooks_behind() -> None:
    _PUSH(lambda t: 0, lambda t: t)


@pytest.mark.parametrize(
    "attack",
    [
        pops_the_hooks,
        pops_the_hooks_with_a_kept_function,
        swaps_the_hooks,
        replaces_push,
        leaves_hooks_behind,
        starts_a_thread,
    ],
)
def test_attacks_on_saved_bytes_are_noticed(attack: Any) -> None:
    with pytest.raises(MeasurementDisturbed), meters.saved_bytes():
        attack()
    assert _TOP(True) is None
    assert torch._C._autograd._push_saved_tensors_default_hooks is _PUSH
    assert torch._C._autograd._pop_saved_tensors_default_hooks is _POP


def stops_and_starts_tracing() -> None:
    tracemalloc.stop()
    tracemalloc.start()


@pytest.mark.parametrize(
    "attack", [tracemalloc.stop, stops_and_starts_tracing, tracemalloc.clear_traces]
)
def test_attacks_on_numpy_bytes_are_noticed(attack: Any) -> None:
    with pytest.raises(MeasurementDisturbed, match="tracemalloc"), meters.numpy_bytes():
        attack()
    tracemalloc.stop()


# --- other threads ---------------------------------------------------------------------------


def test_a_record_of_another_thread_does_not_look_like_a_deaf_meter() -> None:
    """gloo's threads free tensors whenever they get to it, also while the meter asks itself."""
    from grader.meters import dispatch, evidence

    records = evidence.SignedLog()

    def see(func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    class Noisy(dispatch.MeterMode):
        def __torch_dispatch__(self, *args: Any, **kwargs: Any) -> Any:
            records.append("free", 1)
            answer = super().__torch_dispatch__(*args, **kwargs)
            records.append("free", 2)
            return answer

    with Noisy(see, records) as mode:
        assert mode.self_check()
    assert not mode.self_check()


def test_what_another_thread_is_about_to_let_go_is_not_alive() -> None:
    """As gloo's do with the tensors of a call that has ended."""

    def lets_go(held: list[torch.Tensor], seconds: float) -> None:
        while not held:
            time.sleep(0.001)
        time.sleep(seconds)
        held.clear()

    def rank_does(rank: int, world_size: int) -> tuple[int, int]:
        helds: list[list[torch.Tensor]] = [[], [], []]
        for held, seconds in zip(helds, (0.01, 0.03, 0.05), strict=True):
            threading.Thread(target=lets_go, args=(held, seconds), daemon=True).start()
        with meters.live_bytes() as meter:
            kept = torch.ones(1000)
            for held in helds:
                held.append(torch.ones(500))
        return meter.alive_bytes, kept.nbytes

    assert ranks.run(rank_does, 1) == [(4000, 4000)]


def test_records_of_many_threads_verify_at_every_moment() -> None:
    from grader.meters import evidence

    records = evidence.SignedLog()
    going = threading.Event()
    going.set()

    def writes() -> None:
        while going.is_set() and len(records) < 20_000:
            records.append("free", 1)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=writes) for _ in range(4)]
        for thread in threads:
            thread.start()
        seen = [len(list(records)) for _ in range(100)]
    finally:
        going.clear()
        sys.setswitchinterval(before)
        for thread in threads:
            thread.join()
    assert seen == sorted(seen)
    assert len(list(records)) == len(records)


def test_the_place_of_a_collective_is_not_a_library_s_wrapper() -> None:
    from grader.meters import c10d

    wrapped = typing_extensions.deprecated("as torch's all_gather_into_tensor is")(c10d.place)
    with pytest.warns(DeprecationWarning, match="all_gather"):
        assert wrapped().startswith("test_meters.py, line ")


def _set_and_put_back() -> None:
    before = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    sys.settrace(before[0])
    sys.setprofile(before[1])


def test_an_alarm_hears_of_watchers_that_were_set_and_put_back() -> None:
    with meters.alarm():
        sum(range(9))
    words = "a trace or profile function was set"
    with pytest.raises(MeasurementDisturbed, match=words), meters.alarm():
        _set_and_put_back()


def test_an_alarm_lets_an_error_through() -> None:
    with pytest.raises(ZeroDivisionError), meters.alarm():
        raise ZeroDivisionError


def test_a_trace_function_does_not_disturb_a_meter() -> None:
    with meters.numpy_bytes():
        _set_and_put_back()
