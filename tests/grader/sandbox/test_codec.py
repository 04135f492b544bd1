"""What crosses the wall comes back the same; what must not cross is refused, and nothing else."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader.errors import Refused
from grader.sandbox import codec
from grader.sandbox.client import Handle

QUICK = settings(
    max_examples=120,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
HELD: list[Any] = []


def _hold(value: object) -> int:
    HELD.append(value)
    return len(HELD) - 1


@dataclasses.dataclass(frozen=True)
class Known:
    width: int
    name: str = "x"

    @property
    def double(self) -> int:
        return 2 * self.width


RECORDS = {"Known": Known}
TRUSTED = codec.Side(RECORDS, None, lambda number, name: ("handle", number, name))
FAR = codec.Side(RECORDS, _hold, lambda number, name: HELD[number])


def cross(value: object, here: codec.Side = TRUSTED, there: codec.Side = FAR) -> Any:
    """A value on the other side, with the trip over the socket."""
    tree, buffers = codec.encode(value, here)
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(tree))
    return codec.decode(sent, [bytearray(buffer) for buffer in buffers], there)


def back(value: object) -> Any:
    return cross(value, FAR, TRUSTED)


def same(a: Any, b: Any) -> bool:
    """Equal in type, value and NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return math.copysign(1, a) == math.copysign(1, b) and (a == b or (a != a and b != b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**200), max_value=2**200)
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.binary()
)
KEYS = st.text() | st.integers() | st.booleans() | st.tuples(st.integers(), st.text()) | st.none()
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.frozensets(st.integers() | st.text())
    ),
    max_leaves=12,
)


@QUICK
@given(TREES)
def test_plain_data_comes_back_the_same_in_both_directions(value: Any) -> None:
    assert same(cross(value), value)
    assert same(back(value), value)


@pytest.mark.parametrize("value", [0, -1, 2**63 - 1, -(2**63), 2**63, 2**64, -(2**64), 3**5000])
def test_integers_of_every_size(value: int) -> None:
    assert same(back(value), value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324])
def test_special_floats(value: float) -> None:
    assert same(back([value])[0], value)


# -- arrays and tensors ---------------------------------------------------------------------------

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
VIEWS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.T,
    "every other": lambda x: x[::2, 1::2],
    "backwards": lambda x: x[::-1],
    "column": lambda x: x[:, 2],
    "zero size": lambda x: x[:0],
    "no dimension": lambda x: x[1, 2],
    "broadcast": lambda x: np.broadcast_to(x[0], (5, 6)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["<", ">"])
def test_arrays_of_every_dtype_and_layout(dtype: str, order: str) -> None:
    whole = (
        np.arange(24).reshape(4, 6) % 2 if dtype == "?" else np.arange(24).reshape(4, 6)
    ).astype(np.dtype(dtype).newbyteorder(order))
    for name, view in VIEWS.items():
        value = np.asarray(view(whole))
        got = cross(value)
        assert type(got) is np.ndarray, name
        assert got.shape == value.shape, name
        assert got.dtype == value.dtype.newbyteorder("="), name
        assert (got == value).all(), name
        if name in ("transposed", "every other") and order == "<":
            assert got.strides == value.strides, name


def test_arrays_arrive_writable_and_as_copies() -> None:
    value = np.zeros((3, 4)).T
    got = cross(value)
    got[0, 0] = 1
    assert value[0, 0] == 0
    tensor = torch.zeros(3, 4)
    cross(tensor)[0, 0] = 1
    assert tensor[0, 0] == 0


TORCH_DTYPES = sorted(name for name in codec.TORCH_DTYPES if hasattr(torch, name))


@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_tensors_of_every_dtype_and_layout(name: str) -> None:
    dtype = getattr(torch, name)
    raw = torch.arange(24 * dtype.itemsize, dtype=torch.uint8) % (2 if name == "bool" else 100)
    whole = raw.view(dtype).reshape(4, 6)
    views = [whole, whole.T, whole[::2, 1::2], whole[:, 2], whole[:0], whole[1, 2], whole[1:, 1:]]
    for value in [*views, whole[0].expand(5, 6)]:
        got = cross(value)
        assert (type(got), got.dtype, got.shape) == (torch.Tensor, dtype, value.shape)
        mine, theirs = (t.contiguous().reshape(-1).view(torch.uint8) for t in (got, value))
        assert torch.equal(mine, theirs)
        if value.numel():
            assert got.stride() == value.stride()
    assert back(dtype) is dtype


def test_what_lies_between_the_elements_of_a_view_stays_here() -> None:
    secret = np.full((4, 3), 7.0)
    secret[:, 0] = 1.0
    got = cross(secret[:, 0])
    assert got.strides == (24,)
    assert np.lib.stride_tricks.as_strided(got, (10,), (8,)).tolist() == [1, 0, 0] * 3 + [1]
    tensor = cross(torch.from_numpy(secret)[:, 0])
    assert tensor.as_strided((10,), (1,)).tolist() == [1, 0, 0] * 3 + [1]


def test_tensors_that_are_more_than_data_arrive_as_data() -> None:
    parameter = torch.nn.Parameter(torch.arange(3.0))
    got = back((parameter * 2, parameter, torch.tensor([1 + 2j]).conj()))
    assert [type(item) for item in got] == [torch.Tensor] * 3
    assert not any(item.requires_grad for item in got)
    assert got[2].tolist() == [1 - 2j]


def test_what_has_no_bytes_is_held() -> None:
    for value in (torch.empty(3, device="meta"), torch.eye(2).to_sparse()):
        assert back(value)[0] == "handle"
        with pytest.raises(Refused, match="cannot cross into student code; send plain data"):
            cross(value)
    assert back(np.array(["a"]))[0] == "handle"
    assert back(np.array([object()]))[0] == "handle"


def test_numpy_scalars_are_python_numbers() -> None:
    values = [np.int32(3), np.uint8(255), np.float16(0.5), np.float64(2.5), np.bool_(True)]
    values += [np.longdouble(1.5), np.complex64(1j)]
    assert same(back(values), [3, 255, 0.5, 2.5, True, 1.5, 1j])
    assert back(np.dtype("float32")) == np.dtype("float32")


# -- classes of the student's own -----------------------------------------------------------------


class Level(enum.IntEnum):
    LOW = 1


class Mode(str, enum.Enum):  # noqa: UP042
    FAST = "fast"


class Plain(enum.Enum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


class Text(str):
    def __str__(self) -> str:
        return "a lie"


class Numbers(list[int]):
    def __iter__(self) -> Any:
        raise AssertionError("the student's __iter__ ran")


class Count(int):
    def __int__(self) -> int:
        return 99

    def __pos__(self) -> int:
        return 99


def test_subclasses_of_plain_data_are_plain_data() -> None:
    ordered = collections.OrderedDict(b=1, a=2)
    assert same(back(ordered), {"b": 1, "a": 2})
    assert same(back(collections.Counter("aab")), {"a": 2, "b": 1})
    assert same(back(collections.defaultdict(list, {1: [2]})), {1: [2]})
    assert same(back([Level.LOW, Mode.FAST, Point(1, 2.0)]), [1, "fast", (1, 2.0)])
    assert same(back([Text("true"), Numbers([1, 2]), Count(3)]), ["true", [1, 2], 3])
    assert back(Plain.RED)[0] == "handle"


def test_tricks_of_a_class_do_not_run_on_the_trusted_side() -> None:
    class Liar:
        ran: ClassVar[list[str]] = []

        def __eq__(self, other: object) -> bool:
            self.ran.append("eq")
            return True

        def __repr__(self) -> str:
            self.ran.append("repr")
            return "42"

        def __reduce__(self) -> Any:
            self.ran.append("reduce")
            return (print, ())

        __hash__ = None  # type: ignore[assignment]

    kind, number, name = back(Liar())
    assert (kind, name) == ("handle", "Liar")
    assert isinstance(HELD[number], Liar)
    assert Liar.ran == []

    class Disguised:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            return float

    assert back([Disguised()])[0][0] == "handle"


# -- records --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Own:
    rows: list[int]
    inner: Known
    array: Any = None


def test_known_records_arrive_as_their_type_in_both_directions() -> None:
    for got in (cross(Known(3)), back(Known(3))):
        assert type(got) is Known
        assert (got.double, got) == (6, Known(3))


def test_unknown_records_arrive_read_only() -> None:
    got = back(Own([1], Known(2), np.arange(3)))
    assert type(got) is codec.RemoteRecord
    assert (got.type_name, got.rows, got.inner.double) == ("Own", [1], 4)
    assert list(got) == ["rows", "inner", "array"]
    with pytest.raises(AttributeError, match="read-only"):
        got.rows = []
    with pytest.raises(AttributeError, match="Own has no field `colour`; it has: rows, inner"):
        _ = got.colour


def test_a_forged_known_record_is_a_record() -> None:
    got = codec.decode(["r", "Known", "width", 1, "secret", 2], [], TRUSTED)
    assert type(got) is codec.RemoteRecord


# -- handles --------------------------------------------------------------------------------------


def test_handles_cannot_be_compared_or_hashed() -> None:
    handle = Handle(None, 3, "Pool")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot be compared: read its fields"):
        _ = handle == 3
    with pytest.raises(TypeError):
        _ = handle in [1]
    with pytest.raises(TypeError):
        hash(handle)
    assert repr(handle) == "<Pool>"
    HELD.append("kept")
    number = len(HELD) - 1
    assert cross({"a": [Handle(None, number, "Pool")]}) == {"a": ["kept"]}  # type: ignore[arg-type]


# -- files ----------------------------------------------------------------------------------------


def test_paths_send_the_file_and_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    there = dataclasses.replace(FAR, folder=lambda: Path(_fresh(tmp_path)))
    paths = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paths.append(tmp_path / name / "data.bin")
        paths[-1].write_bytes(name.encode())
    got = cross(paths, TRUSTED, there)
    assert [path.name for path in got] == ["data.bin", "data.bin"]
    assert [path.read_bytes() for path in got] == [b"a", b"b"]
    assert not set(got) & set(paths)
    with pytest.raises(Refused, match="is not a file"):
        cross(tmp_path)
    assert back(Path("/etc/passwd")) == "/etc/passwd"
    for name in ("..", "/", ""):
        with pytest.raises(Refused):
            codec.decode(["p", 0, name], [bytearray(b"x")], there)
    got = codec.decode(["p", 0, "../../x"], [bytearray(b"x")], there)
    assert got.name == "x"
    with pytest.raises(Refused, match="takes none"):
        codec.decode(["p", 0, "x"], [bytearray(b"x")], TRUSTED)


def _fresh(folder: Path) -> str:
    import tempfile

    return tempfile.mkdtemp(dir=folder)


# -- caps and malformed trees ---------------------------------------------------------------------


def test_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: list[Any] = []
    for _ in range(codec.MAX_DEPTH + 2):
        deep = [deep]
    with pytest.raises(Refused, match="levels deep"):
        cross(deep)
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(Refused, match="levels deep"):
        cross(cycle)
    with pytest.raises(Refused, match="bits"):
        cross(1 << (codec.MAX_INT_BITS + 1))
    with pytest.raises(Refused, match="surrogate"):
        cross("\ud800")
    monkeypatch.setattr(codec, "MAX_BYTES", 1000)
    monkeypatch.setattr(codec, "MAX_NODES", 100)
    monkeypatch.setattr(codec, "MAX_BUFFERS", 10)
    with pytest.raises(Refused, match="larger than 1,000 bytes"):
        cross([np.zeros(100), np.zeros(100)])
    with pytest.raises(Refused, match="100 parts"):
        cross([[] for _ in range(200)])
    with pytest.raises(Refused, match="more than 10 arrays"):
        cross([b"x"] * 11)
    with pytest.raises(Refused, match="too many elements"):
        codec.decode(["a", 0, "<f8", [2**40], [0]], [bytearray(8)], TRUSTED)


def test_an_expanded_tensor_is_no_memory_bomb() -> None:
    for tag, dtype in (("a", "<f8"), ("T", "float64")):
        with pytest.raises(Refused, match="too many elements"):
            codec.decode([tag, 0, dtype, [2**50], [0]], [bytearray(8)], TRUSTED)


MALFORMED: list[Any] = [
    [],
    ["?"],
    [["l"]],
    ["d", 1],
    ["d", ["l"], 1],
    ["d", ["d"], 1],
    ["I", "zz"],
    ["I", 5],
    ["I"],
    ["c", "x", 1],
    ["b", 3],
    ["b", -1],
    ["b", True],
    ["b", "0"],
    ["N", "O"],
    ["N", "V8"],
    ["N", "i4,i4"],
    ["N", "(9)i4"],
    ["N", None],
    ["D", "Tensor"],
    ["D", "__class__"],
    ["D", []],
    ["T", 0, "Tensor", [1], []],
    ["a", 0, "O", [1], []],
    ["a", 0, "<f8", [2], []],
    ["a", 0, "<f8", [-1], []],
    ["a", 0, "<f8", [1.0], []],
    ["a", 0, "<f8", [1] * 40, []],
    ["a", 0, "<f8", [1], [-1]],
    ["a", 0, "<f8", [1, 1], [1]],
    ["a", 0, "<f8", [0], [1]],
    ["a", 0, "<f8", [1], [2**70]],
    ["a", 0, "<f8", [0, 2**63], []],
    ["a", 0, "<f8", "8", []],
    ["a", 0, "<f8"],
    ["T", 0, "float64", [0, 2**63], []],
    ["T", 1, "float64", [1], [2**70]],
    ["r"],
    ["r", "Known", 1, 2],
    ["r", "Known", "width"],
    ["r", ["x"], "width", 1],
    ["h"],
    ["h", "1", ""],
    ["h", 1],
    ["s", ["l"]],
    b"raw",
    {"a": 1},
]


def survives(tree: Any, buffers: list[bytearray]) -> None:
    try:
        codec.decode(tree, buffers, TRUSTED)
    except Refused:
        return


@pytest.mark.parametrize("tree", MALFORMED, ids=repr)
def test_malformed_trees_are_refused_and_nothing_else(tree: Any) -> None:
    survives(tree, [bytearray(8)])
    survives(["l", tree], [bytearray(8), bytearray()])


ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**64), max_value=2**64)
    | st.sampled_from([0, 1, 2, 8])
    | st.floats()
    | st.sampled_from([*"ltdIcsbDNaTrph", "<f8", "float32", "bfloat16", "Known", "width", ""])
    | st.text(max_size=4)
)
JUNK = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=6), max_leaves=20)


@settings(QUICK, max_examples=600)
@given(JUNK)
def test_junk_is_a_value_or_refused(tree: Any) -> None:
    survives(tree, [bytearray(8), bytearray(), bytearray(b"\x01\x00\x00\x00")])


@settings(QUICK, max_examples=150)
@given(st.data())
def test_a_good_tree_with_one_part_exchanged_is_a_value_or_refused(data: Any) -> None:
    value = [np.arange(6).reshape(2, 3).T, torch.ones(2, 2), Known(3), {"a": (1, 2**70)}, b"xy"]
    tree, buffers = codec.encode(value, FAR)
    node = tree
    while True:
        index = data.draw(st.integers(0, len(node) - 1))
        if type(node[index]) is list and node[index] and data.draw(st.booleans()):
            node = node[index]
            continue
        node[index] = data.draw(JUNK)
        break
    survives(tree, buffers)
