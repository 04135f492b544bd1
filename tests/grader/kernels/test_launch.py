"""A launch that is wrong in itself is refused with a sentence; arguments arrive bit for bit."""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from grader import kernels
from grader.lab import capabilities
from grader.sandbox import codec

pytestmark = pytest.mark.skipif(
    bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx")
)

TYPES = {
    "c": ("char", np.int8),
    "h": ("unsigned char", np.uint8),
    "s": ("short", np.int16),
    "t": ("unsigned short", np.uint16),
    "i": ("int", np.int32),
    "j": ("unsigned int", np.uint32),
    "l": ("long long", np.int64),
    "m": ("unsigned long long", np.uint64),
    "z": ("size_t", np.uint64),
    "f": ("float", np.float32),
    "d": ("double", np.float64),
    "b": ("bool", np.bool_),
}

TEXT = r"""
extern "C" __global__ void fill(float *out, int n, float value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = value;
}
extern "C" __global__ void shared(float *out) {
    extern __shared__ float room[];
    room[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = room[threadIdx.x];
}
extern "C" __global__ void nothing() {}
extern "C" __global__ void where(int *out) {
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1000 * block + thread;
}
extern "C" __global__ void two(float *a, float *b) {
    a[threadIdx.x] += 1.0f;
    __syncthreads();
    b[threadIdx.x] += 10.0f;
}
extern "C" __global__ void halves(const float *from, float *to) {
    to[threadIdx.x] = from[threadIdx.x] + 1.0f;
}
extern "C" __global__ void is_null(const float *in, int *out) { out[0] = in == nullptr; }
extern "C" __global__ void vector_by_value(float4 v, float *out) { out[0] = v.x; }
extern "C" __global__ void says(int n) {
    if (threadIdx.x < n) printf("thread %d of %d\n", (int)threadIdx.x, (int)blockDim.x);
}
extern "C" __global__ void all(PARAMETERS) { BODY }
"""


@pytest.fixture(scope="module")
def module(cu: Callable[[str], kernels.Module]) -> kernels.Module:
    rows = [f"{kind} {name}, {kind} *to_{name}" for name, (kind, _) in TYPES.items()]
    body = " ".join(f"*to_{name} = {name};" for name in TYPES)
    return cu(TEXT.replace("PARAMETERS", ", ".join(rows)).replace("BODY", body))


X = np.zeros(8, np.float32)

WRONG: list[tuple[str, Any, Any, list[Any], dict[str, Any], str]] = [
    ("copy", 1, 1, [], {}, "k.cu has no kernel `copy`; it has: fill, shared, nothing, "),
    ("fill", 1, 1, [X], {}, "`fill` takes 3 arguments (float * out, int n, float value), 1 were"),
    ("nothing", 1, 1, [1], {}, "`nothing` takes 0 arguments (), 1 were given"),
    ("fill", 1, 1, [X, X, 1], {}, "argument `n` of `fill` is a int, not a pointer"),
    ("fill", 1, 1, [X, None, 1], {}, "argument `n` of `fill` is a int, not a pointer"),
    ("fill", 1, 1, [3, 8, 1], {}, "argument `out` of `fill` is a pointer: give a NumPy array"),
    ("fill", 1, 1, [[1.0], 8, 1], {}, "argument `out` of `fill` is a pointer: give a NumPy array"),
    ("fill", 1, 1, [X[::2], 4, 1], {}, "argument `out` of `fill` must be a contiguous array"),
    ("fill", 1, 1, [np.array([X], object), 1, 1], {}, "is an array of Python objects"),
    ("fill", 1, 1, [X, 2**31, 1], {}, "is a int, which cannot hold 2147483648"),
    ("fill", 1, 1, [X, -(2**31) - 1, 1], {}, "is a int, which cannot hold -2147483649"),
    ("fill", 1, 1, [X, np.int64(2**40), 1], {}, "is a int, which cannot hold 1099511627776"),
    ("fill", 1, 1, [X, 2.5, 1], {}, "argument `n` of `fill` is a int, which cannot hold 2.5"),
    ("fill", 1, 1, [X, np.float32(2), 1], {}, "is a int, which cannot hold 2.0"),
    ("fill", 1, 1, [X, "8", 1], {}, "argument `n` of `fill` is a int, which cannot hold '8'"),
    ("fill", 1, 1, [X, 8, "1"], {}, "argument `value` of `fill` is a float, which cannot hold '1'"),
    ("nothing", 1, 1025, [], {}, "block.x is 1025: it must lie in 1 to 1,024"),
    ("nothing", 1, (32, 33), [], {}, "a block of (32, 33, 1) threads is larger than 1024"),
    ("nothing", 1, (1, 1, 65), [], {}, "block.z is 65: it must lie in 1 to 64"),
    ("nothing", 0, 32, [], {}, "grid.x is 0: it must lie in 1 to 2,147,483,647"),
    ("nothing", (1, 65536), 32, [], {}, "grid.y is 65536: it must lie in 1 to 65,535"),
    ("nothing", -1, 32, [], {}, "grid.x is -1"),
    ("nothing", (1, 1, 1, 1), 32, [], {}, "grid is (1, 1, 1, 1): give one to three sizes"),
    ("nothing", 1.5, 32, [], {}, "grid is 1.5: give one to three sizes"),
    ("nothing", 1, (), [], {}, "block is (): give one to three sizes"),
    ("nothing", 1, "32", [], {}, "block is '32': give one to three sizes"),
    ("shared", 1, 1, [X], {"shared_bytes": 232449}, "shared_bytes is 232449: a block has at most"),
    ("shared", 1, 1, [X], {"shared_bytes": -4}, "shared_bytes is -4: a block has at most 232448"),
    (
        "vector_by_value",
        1,
        1,
        [1.0, X],
        {},
        "is a float4: give it as a NumPy scalar of up to 8 bytes",
    ),
]


@pytest.mark.parametrize(("name", "grid", "block", "args", "more", "said"), WRONG)
def test_a_launch_that_no_gpu_takes(
    module: kernels.Module,
    name: str,
    grid: Any,
    block: Any,
    args: list[Any],
    more: dict[str, Any],
    said: str,
) -> None:
    with pytest.raises(kernels.LaunchError) as caught:
        module.launch(name, grid, block, args, **more)
    assert said in str(caught.value)


def test_the_largest_of_everything(module: kernels.Module) -> None:
    x = np.zeros(1024, np.float32)
    assert not module.launch("shared", 1, 1024, [x], shared_bytes=232448).errors
    assert x.tolist() == list(range(1024))
    assert not module.launch("nothing", (1, 3, 5), (16, 2, 32), []).errors


# -- arguments ------------------------------------------------------------------------------------


def extremes(kind: Any) -> list[Any]:
    if kind == np.bool_:
        return [kind(False), kind(True)]
    if np.issubdtype(kind, np.integer):
        return [kind(np.iinfo(kind).min), kind(np.iinfo(kind).max), kind(77)]
    nan = {4: 0x7F800123, 8: 0x7FF0000000000123}[kind(0).nbytes]
    bits = np.array([nan], f"u{kind(0).nbytes}").view(kind)[0]
    return [kind(-0.0), kind(np.inf), bits, np.finfo(kind).smallest_subnormal]


@pytest.mark.parametrize("turn", range(4))
def test_scalars_arrive_bit_for_bit(module: kernels.Module, turn: int) -> None:
    values = [extremes(kind)[turn % len(extremes(kind))] for _, kind in TYPES.values()]
    places = [np.zeros(1, kind) for _, kind in TYPES.values()]
    args = [part for pair in zip(values, places, strict=True) for part in pair]
    assert not module.launch("all", 1, 1, args).errors
    assert [p.tobytes() for p in places] == [v.tobytes() for v in values]
    if turn != 2:  # Python's own floats keep no payload of a 4-byte NaN
        for place in places:
            place[:] = 0
        args[::2] = [value.item() for value in values]
        assert not module.launch("all", 1, 1, args).errors
        assert [p.tobytes() for p in places] == [v.tobytes() for v in values]


def test_scalars_are_converted_as_a_call_in_c_does(module: kernels.Module) -> None:
    for n, value in ((np.int64(8), np.float64(0.1)), (True, 3), (np.uint8(8), np.float16(0.5))):
        x = np.zeros(8, np.float32)
        assert not module.launch("fill", 1, 8, [x, n, value]).errors
        assert (x[: int(n)] == np.float32(value)).all()


def test_every_thread_knows_where_it_is(module: kernels.Module) -> None:
    out = np.zeros((2 * 3 * 4, 5 * 6 * 7), np.int32)
    assert not module.launch("where", (2, 3, 4), (5, 6, 7), [out]).errors
    np.testing.assert_array_equal(out, 1000 * np.arange(24)[:, None] + np.arange(210))


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 4)])
def test_arrays_come_back_in_their_shape(module: kernels.Module, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    assert not module.launch("fill", 1, 32, [x, x.size, 2.5]).errors
    assert x.shape == shape
    assert (x == 2.5).all()


def test_a_read_only_array_is_left_alone(module: kernels.Module) -> None:
    x = np.ones(8, np.float32)
    x.flags.writeable = False
    assert not module.launch("fill", 1, 8, [x, 8, 3]).errors
    assert (x == 1).all()


def test_one_array_twice(module: kernels.Module) -> None:
    x = np.zeros(32, np.float32)
    assert not module.launch("two", 1, 32, [x, x]).errors
    assert (x == 11).all()


def test_views_share_their_memory(module: kernels.Module) -> None:
    x = np.zeros(64, np.float32)
    assert not module.launch("two", 1, 32, [x[:48], x[16:]]).errors
    assert x.tolist() == [1.0] * 16 + [11.0] * 16 + [10.0] * 16 + [0.0] * 16
    y = np.zeros(64, np.float32)
    assert not module.launch("two", 1, 32, [y[:32], y]).errors
    assert y.tolist() == [11.0] * 32 + [0.0] * 32
    assert not module.launch("two", 1, 32, [y, y[:32]]).errors
    assert y.tolist() == [22.0] * 32 + [0.0] * 32


def test_a_pointer_into_an_array(module: kernels.Module) -> None:
    x = np.arange(64, dtype=np.float32)
    args = [kernels.Pointer(x, 8), kernels.Pointer(x, 32)]
    assert not module.launch("halves", 1, 8, args).errors
    assert x[32:40].tolist() == [float(n) for n in range(9, 17)]
    assert x[40:].tolist() == list(range(40, 64))


def test_empty_arrays_and_null_pointers(module: kernels.Module) -> None:
    empty, other = np.zeros(0, np.float32), np.zeros(0, np.float32)
    assert not module.launch("fill", 1, 8, [empty, 0, 1.0]).errors
    (error,) = module.launch("fill", 1, 8, [empty, 1, 1.0]).sentences
    assert "writes out[0]" in error
    assert "but out has 0 elements" in error
    (error,) = module.launch("halves", 1, 1, [empty, other]).sentences
    assert "reads from[0]" in error
    out = np.zeros(1, np.int32)
    assert not module.launch("is_null", 1, 1, [None, out]).errors
    assert out[0] == 1
    assert not module.launch("is_null", 1, 1, [empty, out]).errors
    assert out[0] == 0


# -- what is printed ------------------------------------------------------------------------------


def test_what_a_kernel_prints(module: kernels.Module) -> None:
    report = module.launch("says", 1, 64, [2])
    assert report.printed == "thread 0 of 64\nthread 1 of 64\n"
    long = module.launch("says", 200, 64, [64]).printed
    assert len(long) < 66_000
    assert long.endswith("\n(and more)")


# -- across the wall ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(module: kernels.Module) -> dict[str, Any]:
    report = module.launch("shared", 2, 64, [np.zeros(64, np.float32)], shared_bytes=256)
    assert report.accesses
    assert report.steps
    assert report.errors == []  # two blocks write the same values
    data = report.plain()
    again = kernels.Report.from_plain(copy.deepcopy(data))
    assert again == report
    assert str(again) == str(report)
    return data


def test_a_report_crosses_the_wall(plain: dict[str, Any]) -> None:
    side = codec.Side({}, None, lambda number, name: (number, name))
    tree, buffers = codec.encode(plain, side)
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(tree))
    there = codec.decode(sent, [bytearray(buffer) for buffer in buffers], side)
    assert kernels.Report.from_plain(there) == kernels.Report.from_plain(plain)


def test_lists_are_taken_for_tuples(plain: dict[str, Any]) -> None:
    data = copy.deepcopy(plain)
    data["grid"], data["block"] = list(data["grid"]), list(data["block"])
    for row in data["accesses"]:
        row["worst_offsets"] = list(row["worst_offsets"])
    assert kernels.Report.from_plain(data) == kernels.Report.from_plain(plain)


class Odd(int):
    """An int that is none."""


GARBAGE: list[tuple[str, Any]] = [
    ("errors", 3),
    ("errors", [3]),
    ("errors", "text"),
    ("grid", (1, 1)),
    ("grid", (1, 1, "1")),
    ("block", 5),
    ("accesses", {}),
    ("accesses", [3]),
    ("accesses.line", "1"),
    ("accesses.kind", 1),
    ("accesses.requests", 0),
    ("accesses.requests", -1),
    ("accesses.sectors", 1.5),
    ("accesses.sectors", True),
    ("accesses.sectors", Odd(3)),
    ("accesses.ways", [1]),
    ("accesses.ways", {"1": 2}),
    ("accesses.worst_offsets", 4),
    ("accesses.worst_offsets", ("4",)),
    ("accesses.more", 1),
    ("steps", None),
    ("steps.epoch", None),
    ("steps.lanes", float("nan")),
    ("printed", b"text"),
    ("kernel", None),
    ("barriers", -1),
    ("barriers", [1]),
    ("flow_lanes", "many"),
    ("more", 1),
]


@pytest.mark.parametrize(("name", "value"), GARBAGE)
def test_garbage_is_no_report(plain: dict[str, Any], name: str, value: Any) -> None:
    data = copy.deepcopy(plain)
    outer, _, inner = name.partition(".")
    if inner:
        data[outer][0][inner] = value
    else:
        data[outer] = value
    with pytest.raises(ValueError, match="no report of a launch"):
        kernels.Report.from_plain(data)


@pytest.mark.parametrize(
    "data",
    [None, 3, "text", [], {}, {"errors": []}, kernels.Report("k", (1, 1, 1), (1, 1, 1))],
)
def test_nothing_of_a_report(data: Any) -> None:
    with pytest.raises(ValueError, match="no report of a launch"):
        kernels.Report.from_plain(data)


@pytest.mark.parametrize("name", ["kernel", "errors", "accesses", "races"])
def test_a_report_with_a_part_missing(plain: dict[str, Any], name: str) -> None:
    data = copy.deepcopy(plain)
    del data[name]
    with pytest.raises(ValueError, match="no report of a launch"):
        kernels.Report.from_plain(data)


def test_a_struct_of_the_wrong_size_is_refused(module: kernels.Module) -> None:
    """A type that this side does not know is checked by the side that does."""
    report = module.launch("vector_by_value", 1, 1, [np.float64(1.0), X.copy()])
    assert report.sentences == ["argument 1 has 16 bytes, 8 were given"]
    assert struct.calcsize("4f") == 16
