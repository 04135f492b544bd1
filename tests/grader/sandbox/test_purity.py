"""Arguments stay as they were: what is compared, what is found, and what is said.

Oracle of all of it: the functions below, each of which does one thing to one argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from grader.errors import MalformedReply, StudentError
from grader.sandbox import codec, purity
from grader.sandbox.backends import Backend, Limits, LocalBackend, unpack
from grader.sandbox.client import Session, Student
from grader.sandbox.fork_server import ForkServerClient as Zygote
from grader.sandbox.fork_server import SandboxBackend
from grader.sandbox.process import ProcessBackend
from grader.sandbox.server import CodeSpec

SOURCE = """
import dataclasses
import numpy as np
import torch
from pairs import Pair

def same(value, *more, **named):
    return None

def first(values):
    values[0] = -1

def grows(values):
    values.append(1)

def deep(rows):
    rows["a"][1].extend([4])

def drops(table):
    del table["a"]

def reorders(table):
    table["a"] = table.pop("a")

def sorts(values):
    values.sort()

def rebinds(values):
    values = [9]
    return values

def writes_equal(values):
    values[0] = float(str(values[0]))

def field(pair):
    pair.left = 7

def inner_field(pair):
    pair.left.append(7)

def scales(x):
    x *= 2

def one_element(x, at):
    x.reshape(-1)[at] += 1

def turns(x):
    x.resize_(3, 2) if isinstance(x, torch.Tensor) else setattr(x, "shape", (3, 2))

def transposes(x):
    x.t_()

def asks(x):
    x.requires_grad_()
    return x.sum().item()

def fills_gradient(x):
    x.requires_grad_()
    x.square().sum().backward()
    x.requires_grad_(False)

def empties(x):
    x.untyped_storage().resize_(0)

def rebinds_data(x):
    x.data = x.half()

def flips(x):
    x[:] = x[::-1].copy()

def adds_into(out, x):
    out += x

def renamed(buffer, x):
    buffer += x

def default(x, history=[]):
    history.append(x)
    return len(history)

def raises(values):
    values.append(1)
    raise ValueError("on purpose")

def view(x):
    return x[1:]

def itself(x):
    return x

def passes(x):
    return x

def inside(x):
    return {"parts": [x[0]]}

def copied(x):
    return x.clone() if isinstance(x, torch.Tensor) else x.copy()

class Hostile:
    def __eq__(self, other):
        raise RuntimeError("eq")
    __hash__ = None
    def __len__(self):
        raise RuntimeError("len")
    def __iter__(self):
        raise RuntimeError("iter")
    def __deepcopy__(self, memo):
        raise RuntimeError("deepcopy")
    def __reduce__(self):
        raise RuntimeError("reduce")
    def __repr__(self):
        raise RuntimeError("repr")
    def touch(self, values):
        values.append(1)
    def __call__(self, values):
        values.append(1)

class Key:
    def __hash__(self):
        return hash("a")
    def __eq__(self, other):
        raise RuntimeError("eq")

def hostile_item(values):
    values[0] = Hostile()

def hostile_key(table):
    table.clear()
    table[Key()] = 1

def lying_signature(values):
    values.append(1)

class _Lies:
    def __get__(self, *_):
        raise RuntimeError("signature")

lying_signature.__signature__ = 3

def takes_iterator(items):
    return sum(items)

def takes_object(thing, values):
    return len(values)

def star(*values):
    values[1].append(1)

def long_text(table):
    table["x" * 5000] = "\\x1b[31m" + "y" * 5000
"""

PROBES = """
def handed_on(student, values):
    student.grows(values)
    return len(values)

def identity(student):
    return [student.grows is student.grows, student.Hostile is student.Hostile,
            student.grows.__name__, isinstance(student.Hostile(), student.Hostile)]

def iterator(student):
    items = iter([1, 2, 3])
    return student.takes_iterator(items)

def object(student):
    return student.takes_object(student.Hostile(), [1])

def twice(student):
    values = [1]
    student.adds_into(values, values)
    return values

def autograd(student):
    import torch
    leaf = torch.ones(3, requires_grad=True)
    kept = leaf * 2
    result = student.passes(kept)
    result.sum().backward()
    return leaf.grad.tolist()

def method(student):
    values = [1]
    thing = student.Hostile()
    with student.unchanged("Hostile.touch", values=values):
        thing.touch(values)

def modes(student):
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    seen = []
    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))
    x, y = torch.ones(70_000), torch.ones(300, 300).T
    with Log():
        student.same(x, {'y': y})
    return seen

def scales_here(student):
    import torch
    x = torch.ones(3)
    student.scales(x)

def empties_here(student):
    import torch
    student.empties(torch.ones(3))

def ranked(student):
    import os
    read, write = os.pipe()
    values = [1]
    grows = student.grows
    if not os.fork():
        try:
            grows(values)
            os.write(write, b"nothing")
        except BaseException as error:
            os.write(write, f"{type(error).__qualname__}: {error}".encode())
        finally:
            os._exit(0)
    os.wait()
    return os.read(read, 1000).decode()
"""

PAIRS = """
import dataclasses
from typing import Any

@dataclasses.dataclass
class Pair:
    left: Any
    right: Any
"""

TIERS = ["local", "process", "sandbox"]


def spec_of(folder: Path, mutates: tuple[str, ...] = (), new: tuple[str, ...] = ()) -> CodeSpec:
    folder.mkdir(exist_ok=True)
    (folder / "solution.py").write_text(SOURCE)
    (folder / "pairs.py").write_text(PAIRS)
    return CodeSpec(
        folder,
        ("solution.py",),
        ("pairs.py",),
        PROBES,
        crossing=("pairs.py",),
        mutates=mutates,
        new=new,
    )


CONTRACT = {"mutates": ("adds_into.out", "renamed.out"), "new": ("view", "itself", "inside")}


@pytest.fixture(scope="module", params=TIERS)
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    spec = spec_of(tmp_path_factory.mktemp("purity") / "lab", **CONTRACT)
    made: Backend
    if request.param == "sandbox":
        zygote = Zygote(request.getfixturevalue("fork_server").address)
        made = SandboxBackend(spec, Limits(60.0), zygote)
    else:
        made = (LocalBackend if request.param == "local" else ProcessBackend)(spec, Limits(60.0))
    yield made
    made.close()


@pytest.fixture(scope="module")
def pair() -> Any:
    return make_dataclass("Pair", ["left", "right"])


Said = Callable[..., list[str]]


@pytest.fixture
def said(backend: Backend, pair: Any) -> Iterator[Said]:
    """What is said of one call: of a function, or of a probe named `probe.name`."""

    def of(name: str, *args: Any, **kwargs: Any) -> list[str]:
        session = Session(backend, {"Pair": pair}, {})
        student = Student(session)
        owner, _, probe = name.partition(".")
        function = getattr(student.probe, probe) if probe else getattr(student, owner)
        function(*args, **kwargs)
        return [noticed.change.sentence for noticed in session.noticed]

    yield of
    backend.forget()


X = np.arange(6.0).reshape(2, 3)
T = torch.arange(6.0).reshape(2, 3)
NAN = [float("nan"), 1.0]

UNTOUCHED: list[tuple[str, tuple[Any, ...]]] = [
    ("same", (1, "a", None, (1, [2]), {"a": {3}}, b"x")),
    ("same", (NAN, {"a": NAN}, np.array(NAN), torch.tensor(NAN), [float("nan")])),
    ("same", (X.T, X[:, ::2], np.zeros((0, 3)), np.float32(2), np.array(True))),
    ("same", (T.T, T[:, ::2], torch.zeros(0, 3), torch.tensor(2), T.bfloat16(), T.to(torch.bool))),
    ("same", (T.to(torch.complex128), T.to(torch.float8_e4m3fn), T.half(), T.expand(4, 2, 3))),
    ("same", (np.random.default_rng(0).normal(size=300_000), torch.ones(1000, 301).T)),
    ("rebinds", ([1, 2],)),
    ("writes_equal", ([1.5],)),
    ("reorders", ({"a": [1], "b": 2},)),
    ("default", ([1],)),
    ("adds_into", (X, X)),
    ("adds_into", (T.clone(), T)),
    ("renamed", (X, X)),
    ("copied", (T,)),
    ("itself", ((1, 2),)),
    ("probe.iterator", ()),
    ("probe.object", ()),
    ("probe.twice", ()),
    ("probe.autograd", ()),
    ("probe.identity", ()),
    ("probe.modes", ()),
]


@pytest.mark.parametrize(("name", "args"), UNTOUCHED)
def test_what_is_left_alone_or_allowed_is_not_reported(
    said: Said, name: str, args: tuple[Any, ...]
) -> None:
    assert said(name, *args) == []


CHANGED: list[tuple[str, tuple[Any, ...], str]] = [
    ("first", ([1, 2],), "`first` changed its argument `values`: values[0] was 1, is -1 now"),
    ("first", (np.ones(3),), "values[0] was 1, is -1 now"),
    ("first", (torch.ones(3, dtype=torch.bfloat16),), "values[0] was 1, is -1 now"),
    ("first", (torch.ones(200_000),), "values[0] was 1, is -1 now"),
    ("grows", ([],), "`grows` changed its argument `values`: it had 0 items, now it has 1"),
    ("deep", ({"a": [0, [3]]},), "rows['a'][1]: it had 1 item, now it has 2"),
    ("drops", ({"a": 1, "b": 2},), "the key 'a' is gone"),
    ("sorts", ([2, 1],), "values[0] was 2, is 1 now"),
    ("scales", (X,), "x[0, 1] was 1, is 2 now"),
    ("scales", (T,), "x[0, 1] was 1, is 2 now"),
    ("scales", (T.T,), "x[0, 1] was 3, is 6 now"),
    ("scales", (X[:, ::2],), "x[0, 1] was 2, is 4 now"),
    ("scales", (torch.tensor(3),), "x was 3, is 6 now"),
    ("turns", (X,), "its shape was (2, 3), now (3, 2)"),
    ("turns", (T,), "its shape was (2, 3), now (3, 2)"),
    ("transposes", (torch.ones(2, 2),), "its strides were (2, 1), now (1, 2)"),
    ("asks", (T,), "it requires a gradient now"),
    ("fills_gradient", (T,), "its .grad is filled now"),
    ("rebinds_data", (T,), "its dtype was float32, now float16"),
    ("one_element", (np.zeros(500_000), 333_333), "some of its elements differ"),
    ("one_element", (torch.zeros(500_000), 499_999), "some of its elements differ"),
    ("flips", (np.arange(1024 * 64),), "x[0] was 0, is 65535 now"),
    ("hostile_item", ([1, 2],), "values[0] was 1, is a Hostile now"),
    ("hostile_key", ({"a": 1},), "it cannot be compared any more"),
    ("lying_signature", ([1],), "`lying_signature` changed its argument `argument 1`"),
    ("star", (1, [1]), "`star` changed its argument `values[1]`"),
    ("view", (X,), "`view` returned its argument `x`, or a view of it"),
    ("view", (T,), "`view` returned its argument `x`, or a view of it"),
    ("itself", (T,), "`itself` returned its argument `x` itself"),
    ("itself", ([1],), "`itself` returned its argument `x` itself"),
    ("inside", (T,), "`inside` returned its argument `x`, or a view of it"),
    ("probe.handed_on", ([1],), "`grows` changed its argument `values`"),
    ("probe.scales_here", (), "`scales` changed its argument `x`: x[0] was 1, is 2 now"),
    ("probe.empties_here", (), "`empties` changed its argument `x`: its memory was resized"),
    ("probe.method", (), "`Hostile.touch` changed its argument `values`"),
]


@pytest.mark.parametrize(("name", "args", "sentence"), CHANGED)
def test_a_change_is_said_with_the_parameter_and_the_place(
    said: Said, name: str, args: tuple[Any, ...], sentence: str
) -> None:
    found = said(name, *args)
    assert len(found) == 1
    assert sentence in found[0]


def test_fields_of_known_records_are_compared(said: Said, pair: Any) -> None:
    assert "pair.left was 1, is 7 now" in said("field", pair(1, 2))[0]
    assert "pair.left: it had 0 items" in said("inner_field", pair([], 2))[0]
    assert said("same", pair([1], {"a": np.ones(2)})) == []


def test_an_array_is_changed_even_where_no_head_of_it_is(said: Said) -> None:
    """Each of a hundred elements of a large array, wherever it lies."""
    for at in range(0, 100_000, 999):
        assert said("one_element", np.zeros(100_000, np.uint8), at)


def test_every_row_of_a_map_is_compared(backend: Backend) -> None:
    session = Session(backend, {}, {})
    Student(session).map("grows", [([1],), ([2],)])
    assert [noticed.change.argument for noticed in session.noticed] == ["values", "values"]


def test_methods_of_handles_are_named_with_their_class(backend: Backend) -> None:
    session = Session(backend, {}, {})
    handle = Student(session).Hostile()
    handle.touch([1])
    handle([1])
    assert [noticed.change.function for noticed in session.noticed] == [
        "Hostile.touch",
        "Hostile.__call__",
    ]
    backend.forget()


def test_an_exception_stays_the_outcome(backend: Backend) -> None:
    session = Session(backend, {}, {})
    with pytest.raises(StudentError, match="on purpose"):
        Student(session).raises([1])
    assert session.noticed == []


def test_a_change_in_a_forked_process_is_raised_there(backend: Backend) -> None:
    got = Student(Session(backend, {}, {})).probe.ranked()
    assert got.startswith("ArgumentChanged: `grows` changed its argument `values`")


def test_probes_see_the_same_functions_and_no_operation(backend: Backend) -> None:
    student = Student(Session(backend, {}, {}))
    assert student.probe.identity() == [True, True, "grows", True]
    assert student.probe.autograd() == [2.0, 2.0, 2.0]
    assert student.probe.modes() == []


def test_what_is_said_is_short_and_plain(said: Said) -> None:
    found = said("long_text", {})
    assert len(found) == 1
    assert len(found[0]) < 400
    assert found[0].isprintable()


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        [[], 1],
        [[["f", "x", "changed"]], 1],
        [[["f", "x", "changed", 3]], 1],
        [[["f", "x", "changed", "d", "e"]], 1],
        ["text", 1],
        [{"a": 1}, 1],
        [[[["l"], "x", "changed", "d"]], 1],
    ],
)
def test_a_malformed_report_is_not_an_answer(tree: Any) -> None:
    side = codec.Side({}, None, lambda *_: None)
    with pytest.raises(MalformedReply):
        unpack(("changed", tree, []), side)


def test_a_forged_report_is_cut_and_cleaned() -> None:
    noticed: list[purity.Change] = []
    side = codec.Side({}, None, lambda *_: None, notice=noticed.extend)
    row = ["f\n\x1b[1m", "x" * 9999, "changed", "\x07\u202e"]
    assert unpack(("changed", [[row] * 50, 7], []), side) == 7
    assert len(noticed) == purity.MAX_NOTED
    assert all(text.isprintable() and len(text) <= purity.MAX_TEXT for text in noticed[0])


Widths = make_dataclass("Widths", [("hidden", int), ("kinds", tuple), ("tied", bool)], frozen=True)
Slotted = make_dataclass("Slotted", [("left", int), ("right", str)], slots=True)
Holder = make_dataclass("Holder", [("rows", list), ("name", str)])


class Opaque:
    """A class that nobody told the kit of."""


def _set(record: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(record, name, value)


# A value, what is done to it, and what the sentence says of it.
DONE: dict[str, tuple[Callable[[], Any], Callable[[Any], object], str]] = {
    "field": (
        lambda: Widths(64, ("a", "b"), True),
        lambda w: _set(w, hidden=65),
        "x.hidden was 64, is 65 now",
    ),
    "field that is equal and of another type": (
        lambda: Widths(1, (), True),
        lambda w: _set(w, hidden=True),
        "x.hidden was 1, is True now",
    ),
    "tuple in a field": (
        lambda: Widths(64, ("a", "b"), True),
        lambda w: _set(w, kinds=("a", "c")),
        "x.kinds[1] was 'b', is 'c' now",
    ),
    "field that is gone": (
        lambda: Widths(64, (), True),
        lambda w: object.__delattr__(w, "tied"),
        "x.tied was True",
    ),
    "field under another name": (
        lambda: Widths(64, (), True),
        lambda w: (object.__delattr__(w, "tied"), _set(w, other=True)),
        "x.tied was True",
    ),
    "field of a record with slots": (
        lambda: Slotted(1, "b"),
        lambda w: _set(w, right="c"),
        "x.right was 'b', is 'c' now",
    ),
    "record in a list": (
        lambda: [Widths(64, (), True)],
        lambda w: _set(w[0], tied=False),
        "x[0].tied was True, is False now",
    ),
    "list in a record": (
        lambda: Holder([1, 2], "h"),
        lambda h: h.rows.append(3),
        "x.rows: it had 2 items, now it has 3",
    ),
    "row of a list of tuples": (
        lambda: [(1, "a"), (2, "b")],
        lambda rows: rows.__setitem__(1, (2, "c")),
        "x[1][1] was 'b', is 'c' now",
    ),
    "row that became a list": (
        lambda: [(1, "a")],
        lambda rows: rows.__setitem__(0, [1, "a"]),
        "x[0]: it was a tuple, now it is a list",
    ),
    "rows in another order": (
        lambda: [(1, "a"), (2, "b")],
        lambda rows: rows.reverse(),
        "x[0][0] was 1, is 2 now",
    ),
}


@pytest.mark.parametrize("name", DONE)
def test_records_and_rows_that_are_seen_at_a_glance(name: str) -> None:
    make, act, sentence = DONE[name]
    purity.know([Widths, Slotted, Holder])
    value = make()
    watch = purity.Watch((value,), {})
    assert [*watch.changes(purity.Contract(), "f", lambda x: None, None)] == []
    act(value)
    assert not watch.same()
    [change] = watch.changes(purity.Contract(), "f", lambda x: None, None)
    assert sentence in change.sentence


@pytest.mark.parametrize(
    ("make", "act"),
    [
        (lambda: Widths(10**6, ("a", "b"), True), lambda w: _set(w, kinds=tuple("ab"))),
        (lambda: Widths(10**6, (), True), lambda w: _set(w, hidden=int("1000000"))),
        (lambda: [(1000, 1)], lambda rows: rows.__setitem__(0, (int("1000"), 1))),
    ],
    ids=["tuple", "number", "row"],
)
def test_an_equal_value_in_its_place_is_no_change(make: Any, act: Any) -> None:
    purity.know([Widths])
    value = make()
    watch = purity.Watch((value,), {})
    act(value)
    assert [*watch.changes(purity.Contract(), "f", lambda x: None, None)] == []


def test_what_is_not_looked_into_is_the_same() -> None:
    opaque = Opaque()
    for _ in range(2):  # the second time the class is remembered
        watch = purity.Watch((opaque, [1]), {})
        opaque.__dict__["seen"] = True
        assert watch.same()


def test_a_class_may_become_known_later() -> None:
    late = make_dataclass("Late", [("left", int)])(1)
    assert purity.Watch((late,), {}).same()
    purity.know([type(late)])
    watch = purity.Watch((late,), {})
    late.left = 2
    assert not watch.same()
