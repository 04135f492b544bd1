"""Whatever crosses the wall, from either side: a value, or a refusal, and no more memory or time
than what came is worth."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from grader.errors import Crashed, Refused, RemoteError, SuiteFault
from grader.sandbox import codec
from grader.sandbox.backends import Backend, Limits, LocalBackend
from grader.sandbox.channel import HALF_BYTES, Arena, Channel, Closed
from grader.sandbox.client import Handle, Session, Student
from grader.sandbox.process import ProcessBackend, RemoteBackend
from grader.sandbox.server import CodeSpec

from . import fuzzer as fuzz
from .fuzzer import Held, Pair, same, unexpected

CORPUS = Path(__file__).parent / "corpus"
QUICK = settings(
    max_examples=100,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
MIB = 2**20
TRUSTED = fuzz.SIDE
FAR = codec.Side({"Pair": Pair}, lambda value: 7, Held)


def crossed(value: object, here: codec.Side, there: codec.Side) -> Any:
    tree, buffers = codec.encode(value, here)
    return codec.decode(codec.parsed(msgspec.msgpack.encode(tree)), buffers, there)


# -- what is accepted arrives the same, in both directions ----------------------------------------

FLOATS = st.floats(width=64, allow_nan=True, allow_infinity=True) | st.sampled_from([-0.0, 5e-324])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**400), 2**400)
    | st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64])
    | FLOATS
    | st.complex_numbers()
    | st.text(st.characters(exclude_categories=("Cs",)))
    | st.binary()
    | st.sampled_from([torch.bfloat16, torch.float8_e4m3fn, np.dtype("int8"), np.dtype(">f4")])
)
DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "g", "F", "D"]


@st.composite
def arrays(draw: Any) -> Any:
    """Arrays of every dtype that crosses, most of them views: reversed, stepped, transposed."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    data = draw(st.binary(min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    array = (np.frombuffer(data, np.uint8) % 100).astype(dtype).reshape(shape)
    steps = st.sampled_from([slice(None), slice(None, None, 2), slice(None, None, -1), slice(1, 3)])
    array = np.asarray(array[tuple(draw(steps) for _ in shape)])
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    if array.ndim and draw(st.booleans()):
        array = np.broadcast_to(array, (2, *array.shape))
    return array


def tensor_of(array: Any) -> Any:
    tensor = torch.from_numpy(np.ascontiguousarray(array).astype(np.float32))
    return tensor.permute(*range(tensor.ndim)[::-1])


TENSORS = (
    arrays()
    .filter(lambda x: x.dtype.kind in "iu")
    .flatmap(
        lambda array: st.sampled_from(sorted(codec.TORCH_DTYPES)).map(
            lambda name: tensor_of(array).to(getattr(torch, name))
        )
    )
)
KEYS = st.text(max_size=3) | st.integers() | st.booleans() | st.none() | st.binary(max_size=3)
VALUES = st.recursive(
    SCALARS | arrays() | TENSORS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.frozensets(KEYS, max_size=4)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=8,
)


@QUICK
@given(VALUES)
def test_what_is_accepted_arrives_the_same_in_both_directions(value: Any) -> None:
    for here, there in ((TRUSTED, FAR), (FAR, TRUSTED)):
        got = crossed(value, here, there)
        assert unexpected(got) == ""
        assert same(got, value), (got, value)


@QUICK
@given(arrays())
def test_the_strides_of_an_array_are_kept_or_it_is_contiguous(array: Any) -> None:
    got = crossed(array, TRUSTED, FAR)
    forward = all(stride >= 0 for stride in array.strides)
    if array.size and forward and not array.flags.c_contiguous:
        assert got.strides == array.strides
    else:
        assert got.flags.c_contiguous


def test_a_dimension_of_one_may_have_any_stride() -> None:
    array = np.arange(4.0).reshape(2, 2, 1).transpose(1, 0, 2)[:, :, ::-1]
    assert array.flags.f_contiguous
    assert array.strides[2] < 0
    assert same(crossed(array, TRUSTED, FAR), array)


@QUICK
@given(st.lists(st.integers(-(2**70), 2**70)).map(set), st.binary())
def test_sets_and_bytearrays_arrive_as_what_cannot_change(members: set[int], data: bytes) -> None:
    assert same(crossed(members, FAR, TRUSTED), frozenset(members))
    assert crossed(members, FAR, TRUSTED) == members
    assert same(crossed(bytearray(data), FAR, TRUSTED), data)


# -- arguments are copies -------------------------------------------------------------------------

SIZES = [8, codec.BIG_BYTES // 8, 2 * MIB // 8]
KEEPS = """
KEPT = []

def keep(array):
    KEPT.append(array)
    return array

def spoil():
    for array in KEPT:
        array[...] = -1
"""


def spec_of(folder: Path, text: str) -> CodeSpec:
    folder.mkdir()
    (folder / "main_file.py").write_text(text, encoding="utf-8")
    return CodeSpec(folder, ("main_file.py",), ())


def student_of(backend: Backend) -> Student:
    return Student(Session(backend, {}, {}))


@pytest.mark.parametrize("maker", [LocalBackend, ProcessBackend])
@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_arguments_and_results_are_copies_at_every_tier(
    maker: Callable[[CodeSpec, Limits], Backend], make: Callable[[int], Any], tmp_path: Path
) -> None:
    backend = maker(spec_of(tmp_path / "lab", KEEPS), Limits(30.0))
    student = student_of(backend)
    sent = [make(size) for size in SIZES]
    got = [student.keep(array) for array in sent]
    student.spoil()
    assert not any(array.any() for array in [*sent, *got])
    for array in got:
        array[...] = 1  # writable
    backend.close()


@pytest.mark.parametrize("size", SIZES)
def test_a_buffer_of_shared_memory_is_copied_and_a_private_one_taken_over(size: int) -> None:
    array = np.ones(size)
    tree, (buffer,) = codec.encode(array, FAR)
    assert type(buffer) is (memoryview if array.nbytes >= codec.BIG_BYTES else bytearray)
    shared = memoryview(bytearray(buffer))
    got = codec.decode(tree, [shared], TRUSTED)
    shared[:] = bytes(len(shared))
    assert (got == 1).all()
    private = bytearray(buffer)
    got = codec.decode(tree, [private], TRUSTED)
    private[:8] = bytes(8)
    assert got[0] == 0


def test_a_big_array_is_not_copied_to_be_sent() -> None:
    array = np.ones(4 * MIB)
    for value in (array, torch.from_numpy(array), array.tobytes()):
        assert peak_of(lambda value=value: codec.encode(value, FAR)) < MIB
    assert peak_of(lambda: codec.encode(array[::2], FAR)) > 8 * MIB


def peak_of(work: Callable[[], object]) -> int:
    """Bytes that Python and NumPy allocated at most."""
    with_it = tracemalloc.is_tracing()
    tracemalloc.start()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not with_it:
            tracemalloc.stop()


# -- trees that mean harm -------------------------------------------------------------------------


def nested(depth: int, tag: str = "l") -> Any:
    tree: Any = 1
    for _ in range(depth):
        tree = [tag, tree]
    return tree


def colliding(count: int) -> list[Any]:
    """Integers whose hashes are all equal."""
    return [["I", format(i * sys.hash_info.modulus, "x")] for i in range(1, count + 1)]


def pairs(keys: list[Any]) -> list[Any]:
    return [part for key in keys for part in (key, None)]


BYTES = bytes(MIB)
BOMBS: dict[str, tuple[Any, list[bytes]]] = {
    "a buffer used a thousand times": (["l", *[["b", 0]] * 1000], [BYTES]),
    "an array used twice": (["l", *[["a", 0, "|u1", [MIB], []]] * 2], [BYTES]),
    "elements out of nothing": (["a", 0, "<f8", [2**40], [0]], [bytes(8)]),
    "many arrays of much out of nothing": (
        ["l", *[["a", i, "<f8", [2**27], [0]] for i in range(64)]],
        [bytes(8)] * 64,
    ),
    "a dimension of zero that hides a large one": (["a", 0, "<f8", [0, 2**40], []], [b""]),
    "dimensions whose product wraps around": (["a", 0, "|u1", [2**32, 2**32], []], [b""]),
    "a span that wraps around": (["a", 0, "|u1", [2, 2], [2**63, 2**63]], [bytes(4)]),
    "33 dimensions": (["a", 0, "|u1", [1] * 33, []], [b"x"]),
    "a shape of a million": (["a", 0, "|u1", [1] * 10**6, []], [b"x"]),
    "a negative dimension": (["a", 0, "|u1", [-1], []], [b"x"]),
    "a bool for a dimension": (["a", 0, "|u1", [True], []], [b"x"]),
    "a float for a dimension": (["a", 0, "|u1", [1.0], []], [b"x"]),
    "a bool for a stride": (["a", 0, "|u1", [1], [True]], [b"x"]),
    "a negative stride": (["a", 0, "|u1", [2], [-1]], [b"xy"]),
    "a text for a shape": (["a", 0, "|u1", "", []], [b"x"]),
    "more bytes than elements": (["a", 0, "<f8", [1], []], [bytes(16)]),
    "more bytes than a view spans": (["T", 0, "int8", [2], [2]], [bytes(4)]),
    "strides of fewer dimensions": (["a", 0, "|u1", [1, 1], [1]], [b"x"]),
    "a foreign byte order": (["a", 0, ">f8", [1], []], [bytes(8)]),
    "objects": (["a", 0, "|O8", [1], []], [bytes(8)]),
    "a bool for a buffer": (["b", False], [b"x"]),
    "deep": (nested(900), []),
    "deep tuples for a key": (["d", nested(80, "t"), 1], []),
    "colliding keys": (["d", *pairs(colliding(3000))], []),
    "colliding members": (["s", *colliding(3000)], []),
    "colliding tuples": (["s", *[["t", key, 1] for key in colliding(3000)]], []),
    "colliding complex numbers": (
        # The hash of a complex number is that of re + 1000003 * im.
        ["s", *[["c", -1000003.0 * i, float(i)] for i in range(1, 3000)]],
        [],
    ),
    "more keys than any value has": (["s", *range(codec.MAX_KEYS + 1)], []),
    "keys in many sets": (["l", *[["s", *range(1000)]] * (codec.MAX_KEYS // 1000 + 1)], []),
    "one key twice": (["d", "a", 1, "a", 2], []),
    "one key twice, as two types": (["d", 1, 1, True, 2], []),
    "a member twice": (["s", 1, 1.0], []),
    "a field twice": (["r", "Pair", "left", 1, "left", 2], []),
    "a key that is a list": (["d", ["l"], 1], []),
    "a key that is an array": (["d", ["a", 0, "|u1", [], []], 1], [b"x"]),
    "a key that is a record of lists": (["d", ["r", "Pair", "left", ["l"], "right", 1], 1], []),
    "a key that is an unknown record of lists": (["d", ["r", "Other", "x", ["l"]], 1], []),
    "an integer of megabytes": (["I", "f" * MIB], []),
    "a record that is not named": (["r", ["l", *[1] * 1000], "x", 1], []),
    "a handle that is not named": (["h", 1, nested(300)], []),
    "a file": (["p", 0, "x"], [b"x"]),
    "a complex number of texts": (["c", "1", "2"], []),
    "a complex number of integers": (["c", 1, 2], []),
    "a time": (msgspec.msgpack.decode(b"\xd6\xff\x00\x00\x00\x01"), []),
    "an extension": (msgspec.msgpack.Ext(5, b"x"), []),
    "a map": ({"a": 1}, []),
    "raw bytes": (b"x", []),
    "a subclass": (collections.OrderedDict(a=1), []),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_tree_that_means_harm_is_refused_and_costs_little(name: str) -> None:
    tree, data = BOMBS[name]
    buffers = [bytearray(part) for part in data]
    weight = sum(map(len, data)) + len(repr(tree)) if name != "deep" else 0

    def read() -> None:
        with pytest.raises(Refused) as caught:
            codec.decode(tree, buffers, TRUSTED)
        assert len(str(caught.value)) < 400

    assert peak_of(read) < 2 * MIB + 4 * weight


def test_a_record_cannot_be_made_with_fields_that_its_class_has_not() -> None:
    for name in ("__class__", "__dict__", "_fields", "type_name", "double", "__init__"):
        got = codec.decode(["r", "Pair", "left", 1, name, 2], [], TRUSTED)
        assert type(got) is codec.RemoteRecord
        assert got.left == 1
        assert type(got.type_name) is str
        assert got.__class__ is codec.RemoteRecord
    got = codec.decode(["r", "Pair", "left", ["l"], "right", "x"], [], TRUSTED)
    assert type(got) is Pair


def test_records_that_differ_are_not_looked_up_one_after_another() -> None:
    records = [codec.RemoteRecord("Point", {"x": i}) for i in range(1000)]
    assert len(set(map(hash, records))) == 1000
    assert records[3] == codec.RemoteRecord("Point", {"x": 3})
    assert hash(records[3]) == hash(codec.RemoteRecord("Point", {"x": 3}))


def test_a_truth_value_is_zero_or_one() -> None:
    got = codec.decode(["a", 0, "|b1", [4], []], [bytearray(b"\0\1\2\xff")], TRUSTED)
    assert got.view(np.uint8).tolist() == [0, 1, 1, 1]
    got = codec.decode(["T", 0, "bool", [2, 2], [1, 2]], [bytearray(b"\0\1\2\xff")], TRUSTED)
    assert got.view(torch.uint8).tolist() == [[0, 1], [1, 1]]


def test_honest_keys_with_equal_hashes_pass() -> None:
    grid = {(i, j): i for i in range(-40, 40) for j in range(-40, 40)}  # hash(-1) == hash(-2)
    assert crossed(grid, FAR, TRUSTED) == grid
    nans = {float("nan"): 1, float("nan"): 2}
    assert len(crossed(nans, FAR, TRUSTED)) == 2
    halves = {i / 64: i for i in range(20_000)}
    assert crossed(halves, FAR, TRUSTED) == halves


# -- headers --------------------------------------------------------------------------------------


def array_header(count: int) -> bytes:
    return b"\xdd" + struct.pack(">I", count)


MALFORMED_HEADERS = {
    "nothing": b"",
    "an array that is not there": b"\xdd\xff\xff\xff\xff",
    "a map that is not there": b"\xdf\xff\xff\xff\xff",
    "a text that is not there": b"\xdb\xff\xff\xff\xffx",
    "no unicode": b"\xa1\xff",
    "more than one value": b"\xc0\xc0",
    "the byte that means nothing": b"\xc1",
    "lists in lists": b"\x91" * 5000 + b"\xc0",
    "maps in maps": b"\x81" * 5000 + b"\xc0",
    "a time of no year": b"\xd7\xff" + b"\xff" * 8,
    "a million empty lists": array_header(1_000_000) + b"\x90" * 1_000_000,
    "a million empty maps": array_header(1_000_000) + b"\x80" * 1_000_000,
    "a million small numbers": array_header(1_000_000) + b"\xf0" * 1_000_000,
    "texts and lists": array_header(400_000) + b"\xa1x\x90" * 200_000,
    "a map of many keys": b"\xdf" + struct.pack(">I", 9000) + b"\x92\x01\x02\xc0" * 9000,
    "a map of keys in 16 bits": b"\xde" + struct.pack(">H", 4000) + b"\x92\xcd01\x02\xc0" * 4000,
    "too long": b"\xdb" + struct.pack(">I", codec.MAX_HEADER) + bytes(codec.MAX_HEADER),
}


@pytest.mark.parametrize("name", MALFORMED_HEADERS)
def test_a_malformed_header_is_refused_before_it_grows(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "MAX_NODES", 20_000)
    header = MALFORMED_HEADERS[name]

    def read() -> None:
        with pytest.raises(Refused):
            codec.parsed(header)

    assert peak_of(read) < 2 * MIB


@settings(QUICK, max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_refused(data: bytes) -> None:
    try:
        tree = codec.parsed(data)
        assert unexpected(codec.decode(tree, [bytearray(8)], TRUSTED)) == ""
    except Refused:
        return


def test_every_kind_of_part_is_counted_as_long_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[Any] = [0, 127, 128, 2**16, 2**32, 2**64 - 1, -1, -32, -33, -(2**15), -(2**31)]
    values += [-(2**63), 1.5, None, True, False, [], [1], [0] * 20, [0] * 70_000]
    values += ["", "x" * 31, "x" * 32, "x" * 300, "é" * 70_000]
    values += [b"", b"x" * 300, b"x" * 70_000, {}, {"a": 1}, {str(i): i for i in range(100)}]
    monkeypatch.setattr(codec, "_ENVELOPE", 0)
    for value in values:
        encoded = msgspec.msgpack.encode([value, 5])
        monkeypatch.setattr(codec, "MAX_NODES", parts([value, 5]))
        codec._count(encoded)
        with pytest.raises(Refused, match="kind that no value needs"):
            codec._count(encoded[:-1] + b"\xc1")
        monkeypatch.setattr(codec, "MAX_NODES", parts([value, 5]) - 1)
        with pytest.raises(Refused, match="more than"):
            codec._count(encoded)


def parts(value: Any) -> int:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return 1 + sum(map(parts, value)) if isinstance(value, list) else 1


def test_what_is_written_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer counts no fewer parts than the reader of a header does."""
    value: list[Any] = [[1.5] * 50, {"a": (1, 2**80)}, np.ones((2,) * 20), torch.ones(2, 3).T]
    value += [b"x", 1j, {1, 2}, torch.int8, Pair(1, 2), object(), "x" * 100] * 5
    writer = codec._Encoder(FAR)
    header = msgspec.msgpack.encode(writer.tree(value, 0))
    monkeypatch.setattr(codec, "_ENVELOPE", 1)
    monkeypatch.setattr(codec, "MAX_NODES", writer.nodes)
    codec._count(header)


# -- frames ---------------------------------------------------------------------------------------

FRAME = struct.Struct("<II")
ROW = struct.Struct("<QQ")
INLINE = 2**64 - 1


def received(data: bytes, arena: Arena | None = None, whole: bool = True) -> Any:
    """What a channel makes of those bytes and, if they are `whole`, the end of the stream."""
    ours, theirs = socket.socketpair()
    sender = threading.Thread(target=feed, args=(theirs, data, whole))
    sender.start()
    line = Channel(ours, arena)
    try:
        return line.receive(time.monotonic() + (20 if whole else 0.2))
    finally:
        line.arena = None
        line.close()
        theirs.close()
        sender.join()


def feed(sock: socket.socket, data: bytes, whole: bool) -> None:
    try:
        sock.sendall(data)
        if whole:
            sock.shutdown(socket.SHUT_WR)
    except OSError:
        return


def frame(message: Any, rows: list[tuple[int, int]], inline: bytes = b"") -> bytes:
    header = msgspec.msgpack.encode(message)
    table = b"".join(ROW.pack(*row) for row in rows)
    return FRAME.pack(len(header), len(rows)) + table + header + inline


def test_a_frame_that_is_whole_is_received() -> None:
    assert received(frame([1], [(2, INLINE), (0, INLINE)], b"xy")) == ([1], [b"xy", b""])


CLAIMS = {
    "a header of 64 MiB": FRAME.pack(codec.MAX_HEADER, 0),
    "a header of 4 GiB": FRAME.pack(2**32 - 1, 0),
    "65536 buffers": FRAME.pack(1, 65536),
    "4 billion buffers": FRAME.pack(1, 2**32 - 1),
    "a buffer of 2 GiB": frame(1, [(2**31, INLINE)]),
    "a buffer of 2 GiB that begins": frame(1, [(2**31, INLINE)], bytes(MIB)),
    "a buffer of 16 EiB": frame(1, [(2**64 - 1, INLINE)]),
    "buffers whose sum wraps around": frame(1, [(2**63, INLINE)] * 2),
    "shared memory that is not there": frame(1, [(8, 0)]),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_what_a_frame_claims_is_not_allocated_before_it_arrives(name: str) -> None:
    def read() -> None:
        with pytest.raises((Refused, Closed)):
            received(CLAIMS[name])

    assert peak_of(read) < 4 * MIB + 3 * len(CLAIMS[name])


def test_big_maps_are_refused_where_frames_are_read() -> None:
    keys = b"".join(b"\x92\xcd" + struct.pack(">H", i) + b"\x01\xc0" for i in range(9000))
    header = b"\xdf" + struct.pack(">I", 9000) + keys
    with pytest.raises(Refused):
        received(FRAME.pack(len(header), 0) + header)
    header = array_header(3_000_000) + b"\x90" * 3_000_000
    with pytest.raises(Refused):
        received(FRAME.pack(len(header), 0) + header)


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    if not hasattr(os, "memfd_create"):
        pytest.skip("this system has no anonymous shared files")
    made = Arena(Arena.create(), trusted=True)
    yield made
    made.close()


OUTSIDE = {
    "beyond the half": [(8, HALF_BYTES - 4)],
    "at the end of numbers": [(8, INLINE - 4)],
    "larger than the half": [(HALF_BYTES + 1, 0)],
    "the same half, eight times": [(HALF_BYTES, 0)] * 8,
    "the same part, many times": [(MIB, 0)] * 100,
    "parts that overlap": [(128, 0), (128, 64)],
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_shared_memory_is_taken_once_and_within_its_half(arena: Arena, name: str) -> None:
    def read() -> None:
        with pytest.raises(Refused):
            received(frame(1, OUTSIDE[name]), arena)

    assert peak_of(read) < 8 * MIB


def test_the_deadline_holds_for_a_frame_that_drips() -> None:
    ours, theirs = socket.socketpair()
    stop = threading.Event()

    def drip() -> None:
        for byte in frame([1], [(2**20, INLINE)], bytes(2**20)):
            theirs.send(bytes([byte]))
            if stop.wait(0.005):
                return

    dripping = threading.Thread(target=drip)
    dripping.start()
    line = Channel(ours)
    with pytest.raises(TimeoutError):
        line.receive(time.monotonic() + 0.3)
    stop.set()
    dripping.join()
    line.close()
    theirs.close()


@settings(QUICK, max_examples=60)
@given(st.data())
def test_a_frame_that_is_cut_or_changed_is_refused_or_closed(data: Any) -> None:
    tree, buffers = codec.encode([np.arange(6.0), {"a": b"xy"}, torch.ones(2, 2).T], FAR)
    rows = [(len(buffer), INLINE) for buffer in buffers]
    whole = bytearray(frame(["ok", tree], rows, b"".join(map(bytes, buffers))))
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    for _ in range(data.draw(st.integers(0, 3))):
        if whole:
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        message, parts = received(bytes(whole))
        _, got = message
        assert unexpected(codec.decode(got, parts, TRUSTED)) == ""
    except (Refused, Closed):
        return
    except (TypeError, ValueError):  # a message that is no pair: a backend checks that
        assert not isinstance(message, list) or len(message) != 2


# -- a worker that means harm ---------------------------------------------------------------------

ANSWERS = """
import os, socket, sys
sock = socket.socket(fileno=int(sys.argv[1]))
answer = open(sys.argv[2], "rb").read()
sock.recv(1 << 20)
sock.sendall(bytes.fromhex(sys.argv[3]))
sock.recv(1 << 20)
try:
    sock.sendall(answer)
except OSError:
    pass
os._exit(0)
"""


class Hostile:
    """A worker that loads, and then answers one request with given bytes and ends."""

    def __init__(self, answer: Path, load: Any = ("ok", None)) -> None:
        ours, theirs = socket.socketpair()
        loaded = frame(list(load), []).hex()
        self.process = subprocess.Popen(
            [sys.executable, "-ISc", ANSWERS, str(theirs.fileno()), str(answer), loaded],
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self.channel = Channel(ours)
        self.opening: list[Any] | None = None

    def pid(self) -> int:
        return self.process.pid

    def end(self, grace: float) -> Crashed:
        self.channel.close()
        self.process.kill()
        self.process.wait()
        return Crashed("the process of this code ended")

    def printed(self) -> bytes:
        return b""


def deep_list(depth: int) -> bytes:
    return b"\x91" * depth + b"\x01"


def raw_frame(header: bytes) -> bytes:
    return FRAME.pack(len(header), 0) + header


ERROR_REPLIES: list[Any] = [
    None,
    [],
    ["raised"],
    [["raised"], "E", "text", [], "", []],
    [{}, "E", "text", [], "", []],
    ["raised", 1, 2, 3, 4, 5],
    ["raised", "E", "text", "bases", "", {"a": 1}],
    ["raised", "E", "text", [[]] * 10, [], [None]],
    ["disturbed", "E", "text", [], "", []],
    ["refused", b"E", "text", [], "", []],
    ["raised", "E", "x" * 10**6, ["y" * 10**6] * 2, "z" * 10**6, ["t" * 10**6]],
]


def answers() -> list[bytes]:
    """Random bytes, mutated replies, and replies that are wrong in ways of their own."""
    rng = random.Random(1)
    made = [raw_frame(msgspec.msgpack.encode(["error", reply])) for reply in ERROR_REPLIES]
    head = msgspec.msgpack.encode(["error", 0])[:-1]
    for depth in (300, 600, 900, 985):
        made.append(raw_frame(head + b"\x96" + deep_list(depth) * 6))
        made.append(raw_frame(head + deep_list(depth)))
    for reply in (None, [], ["ok"], ["ok", 1, 2], [["ok"], 1], [{}, 1], {"ok": 1}, ["error"]):
        made.append(raw_frame(msgspec.msgpack.encode(reply)))
    made += CLAIMS.values()
    frames = [data for data in fuzz.seeds() if data[:1] == b"F"]
    mutator = fuzz.Mutator(rng, frames)
    made += [mutator.next()[1:] for _ in range(40)]
    return [*made, *[rng.randbytes(rng.randrange(200)) for _ in range(10)]]


def test_a_worker_that_breaks_the_protocol_as_it_loads_is_not_ready(tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    answer.write_bytes(frame(["ok", 1], []))
    spec = spec_of(tmp_path / "lab", "x = 1\n")
    backend = RemoteBackend(spec, Limits(20.0), lambda _: Hostile(answer, ("error", None)))
    with pytest.raises(Refused, match="malformed error report"):
        backend.load()
    assert backend.worker is None


def test_a_hostile_worker_ends_its_own_call_only(tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    kit = spec_of(tmp_path / "lab", "def echo(value):\n    return value\n")
    backend = RemoteBackend(kit, Limits(20.0), lambda kit: Hostile(answer))
    before = fuzz._peak_bytes()
    for data in answers():
        answer.write_bytes(data)
        try:
            got = backend.request("call", "echo", 0, ((), {}), TRUSTED)
        except RemoteError as error:
            assert type(error.text) is str  # noqa: PT017
            assert len(error.text) < 5000  # noqa: PT017
        else:
            assert unexpected(got) == ""
        backend.close()
    assert fuzz._peak_bytes() - before < 256 * MIB
    honest = ProcessBackend(kit, Limits(30.0))
    assert student_of(honest).echo(5) == 5
    honest.close()


@pytest.mark.parametrize(
    ("first", "goes_on"),
    [
        (["error", None], False),
        (["error", ["raised", 1, 2, 3, 4, 5]], False),
        (["ok", ["no such tag", 1]], False),
        (["neither", 1], False),
        (["error", ["refused", "Refused", "an open file", [], "", []]], True),
        (["error", ["raised", "ValueError", "text", [], "", []]], True),
    ],
)
def test_who_breaks_the_protocol_gets_no_second_word(
    tmp_path: Path, first: Any, goes_on: bool
) -> None:
    """What else it has sent ahead does not answer the next call, however early that comes."""
    answer = tmp_path / "answer"
    forged = ["error", ["disturbed", "E", "forged", [], "", []]]
    answer.write_bytes(frame(first, []) + frame(forged, []))
    started: list[Hostile] = []

    def start(_: CodeSpec) -> Hostile:
        started.append(Hostile(answer))
        return started[-1]

    backend = RemoteBackend(spec_of(tmp_path / "lab", "x = 1\n"), Limits(20.0), start)
    side = codec.Side({}, None, lambda *_: None)
    with pytest.raises(RemoteError):
        backend.request("call", "f", 0, ((), {}), side)
    assert (backend.worker is started[0]) is goes_on
    backend.close()


# -- what suites send -----------------------------------------------------------------------------

ECHO = """
import os

def echo(value):
    return value

def pid():
    return os.getpid()
"""
CYCLE: list[Any] = []
CYCLE.append(CYCLE)


class Slotted:
    __slots__ = ()


REFUSED: dict[str, Any] = {
    "an object": Slotted(),
    "a class": Slotted,
    "a cycle": CYCLE,
    "a function": functools.partial(print),
    "half a surrogate": "\ud800",
    "half a surrogate as a key": {"\ud800": 1},
    "a number of 100,000 bits": 1 << 100_000,
    "33 dimensions": np.ones((1,) * 33),
    "objects": np.array([object()]),
    "texts": np.array(["a"]),
    "times": np.array(["2020-01-01"], "M8[s]"),
    "a time": np.datetime64(0, "s"),
    "structures": np.zeros(2, "i4,i4"),
    "a meta tensor": torch.empty(2, device="meta"),
    "a sparse tensor": torch.eye(2).to_sparse(),
    "a tensor of tensors": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
    "no file": Path("nowhere"),
    "too many keys": dict.fromkeys(range(codec.MAX_KEYS + 1)),
    "too many parts": [0] * codec.MAX_NODES,
    "too many elements": torch.zeros(1).expand(2**30),
    "a memoryview": memoryview(b"x"),
    "an iterator": iter([1]),
}
ODD: dict[str, Any] = {
    "the largest integer": (1 << codec.MAX_INT_BITS) - 1,
    "nan keys": {math.nan: 1, -0.0: 2, math.inf: 3},
    "empty arrays": [np.empty((0, 3)), torch.empty(3, 0), np.empty(()), b"", "", [], {}, ()],
    "nested to the limit": functools.reduce(lambda x, _: [x], range(codec.MAX_DEPTH - 3), 1),
    "a long text": "é" * 10**6,
    "many small arrays": [np.ones(1)] * 2000,
    "keys that look like tags": {"l": ["l"], "h": ("h", 1, "x"), "_number": 3},
    "masked": np.ma.masked_array([1.0, 2.0], [True, False]),
    "a read-only array": np.broadcast_to(np.ones(2), (3, 2)),
    "a parameter": torch.nn.Parameter(torch.ones(2)),
    "a foreign order": np.arange(3, dtype=">i8"),
}


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Student]:
    backend = ProcessBackend(
        spec_of(tmp_path_factory.mktemp("backend") / "lab", ECHO), Limits(60.0)
    )
    yield student_of(backend)
    backend.close()


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_suite_cannot_send_is_its_fault_and_the_worker_stays(
    name: str, echo: Student
) -> None:
    before = echo.pid()
    with pytest.raises(SuiteFault):
        echo.echo(REFUSED[name])
    assert echo.pid() == before


@pytest.mark.parametrize("name", ODD)
def test_odd_values_reach_the_worker_and_come_back(name: str, echo: Student) -> None:
    before = echo.pid()
    echo.echo(ODD[name])
    assert echo.pid() == before


def test_keys_that_collide_and_foreign_handles_cost_the_call_only(echo: Student) -> None:
    before = echo.pid()
    keys = {i * sys.hash_info.modulus: 1 for i in range(200)}
    with pytest.raises(Refused, match="same hash"):
        echo.echo(keys)
    for number in (0, -1, 2**63 - 1, 2**63, 2**64 - 1):
        with pytest.raises(Refused, match="from another test"):
            echo.echo(Handle(None, number, "Pool"))  # type: ignore[arg-type]
    assert echo.pid() == before


def test_files_with_odd_names_arrive(tmp_path: Path, echo: Student) -> None:
    for name in ("a b", "é", "-rf", "...", "x" * 200, "a\\b", "%00", "~"):
        (tmp_path / name).write_text(name, encoding="utf-8")
        assert Path(echo.echo(tmp_path / name)).name == name
    bad = tmp_path / os.fsdecode(b"\xff")
    bad.write_text("x")
    with pytest.raises(SuiteFault, match="surrogate"):
        echo.echo(bad)


# -- what student code returns --------------------------------------------------------------------

RAN: list[str] = []


class Trapped(BaseException):
    """What `except Exception` lets by."""


def trap(name: str) -> Callable[..., Any]:
    def trapped(*args: Any, **kwargs: Any) -> Any:
        RAN.append(name)
        raise Trapped(name)

    return trapped


TRAPS = (
    *("__array__", "__array_interface__", "__array_struct__", "__reduce__", "__reduce_ex__"),
    *("__iter__", "__len__", "__getitem__", "__eq__", "__bool__", "__int__", "__float__"),
    *("__index__", "__complex__", "__bytes__", "__repr__", "__str__", "__format__", "__pos__"),
    *("__getattr__", "__call__", "__enter__", "__fspath__", "__torch_function__", "__dlpack__"),
    *("__array_ufunc__", "__array_function__", "__array_finalize__", "items", "keys", "values"),
    *("dtype", "shape", "strides", "tolist", "item", "numpy", "detach", "cpu", "data", "__dict__"),
    *("real", "imag", "is_file", "name", "_number", "_asdict", "__iter__", "__contains__"),
)


def hostile(*bases: type) -> type:
    """A subclass that overrides whatever can be; each raises what `except Exception` lets by."""
    body: dict[str, Any] = {name: trap(name) for name in TRAPS}
    for name in ("dtype", "shape", "strides", "data", "real", "imag", "_number", "__class__"):
        body[name] = property(trap(name))
    body["__hash__"] = object.__hash__
    body["__torch_function__"] = classmethod(trap("__torch_function__"))
    body.pop("__array_finalize__")  # NumPy calls it before the value is the student's to return
    body.pop("__dict__")
    return type("Hostile", bases, body)


PLAIN: list[tuple[type, Any, Any]] = [
    (int, 5, 5),
    (float, 2.5, 2.5),
    (str, "text", "text"),
    (bytes, b"raw", b"raw"),
    (bytearray, b"raw", b"raw"),
    (list, [1, 2], [1, 2]),
    (tuple, (1, 2), (1, 2)),
    (dict, {"a": 1}, {"a": 1}),
    (set, {1}, frozenset({1})),
    (frozenset, {1}, frozenset({1})),
    (complex, 1 + 2j, 1 + 2j),
    (np.float64, 2.5, 2.5),
    (np.int64, 5, 5),
    (np.complex128, 1j, 1j),
]


@pytest.mark.parametrize(("base", "made", "want"), PLAIN, ids=lambda x: getattr(x, "__name__", ""))
def test_nothing_that_a_subclass_overrides_runs(base: type, made: Any, want: Any) -> None:
    value = hostile(base)(made)
    RAN.clear()
    assert same(crossed([value], FAR, TRUSTED), [want])
    assert RAN == []


def test_nothing_that_an_array_or_a_tensor_overrides_runs() -> None:
    array = np.arange(6.0).reshape(2, 3).T.view(hostile(np.ndarray))
    tensor = torch.arange(6.0).reshape(2, 3).T.as_subclass(hostile(torch.Tensor))
    RAN.clear()
    got = crossed([array, tensor], FAR, TRUSTED)
    assert RAN == []
    assert same(got, [np.arange(6.0).reshape(2, 3).T, torch.arange(6.0).reshape(2, 3).T])
    assert got[0].strides == (8, 24)


def test_nothing_of_an_object_that_is_held_runs() -> None:
    RAN.clear()
    assert crossed([hostile()()], FAR, TRUSTED) == [Held(7, "Hostile")]
    assert RAN == []


class Meta(type):
    """A class of a class that makes up all it can."""

    def __hash__(cls) -> int:
        return hash(float)

    def __eq__(cls, other: object) -> bool:
        return True

    @property
    def __name__(cls) -> Any:
        RAN.append("name")
        return ["no text"]

    def __instancecheck__(cls, value: object) -> bool:
        return True

    def __subclasscheck__(cls, kind: type) -> bool:
        return True


def test_what_a_metaclass_makes_up_is_not_believed() -> None:
    class Liar(metaclass=Meta):
        pass

    class Number(float, metaclass=Meta):
        pass

    class Fields(metaclass=Meta):
        __module__ = "grader.sandbox.client"
        _number = 3

    @dataclasses.dataclass
    class Point(metaclass=Meta):
        """Without a docstring, `dataclass` would ask for the name."""

        x: int = 1

    assert crossed(Point(), FAR, TRUSTED).type_name == "Point"
    for _ in range(2):
        got = crossed([Liar(), Number(2.5), 1.5, Fields(), [Liar]], FAR, TRUSTED)
        assert got[:4] == [Held(7, "Liar"), 2.5, 1.5, Held(7, "Fields")]
        assert [type(item) for item in got[1:3]] == [float, float]


def test_forged_fields_of_a_dataclass_cost_the_call_only() -> None:
    class Forged:
        __dataclass_fields__ = {"x": 1}  # noqa: RUF012

    class Endless:
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(AttributeError):
        codec.encode(Forged(), FAR)
    assert crossed(Endless(), FAR, TRUSTED) == Held(7, "Endless")


def test_tensors_without_memory_of_their_own_are_held() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, (3,), dtype=torch.float32)

        @classmethod
        def __torch_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise SystemError("no")

    with FakeTensorMode():
        fake = torch.ones(3)
    nested_ = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
    for value in (fake, Wrapper(), nested_):
        assert crossed(value, FAR, TRUSTED) == Held(7, type(value).__name__)


def test_honest_subclasses_arrive_as_their_data() -> None:
    class Vector(np.ndarray):
        pass

    class Logged(torch.Tensor):
        pass

    class Point(collections.namedtuple("Point", "x y")):
        __slots__ = ()

    array, tensor = np.arange(3.0), torch.arange(3.0)
    got = crossed([array.view(Vector), tensor.as_subclass(Logged), Point(1, 2)], FAR, TRUSTED)
    assert same(got, [array, tensor, (1, 2)])
    assert same(crossed(np.matrix([[1, 2]]), FAR, TRUSTED), np.array([[1, 2]]))
    assert same(crossed(torch.nn.Parameter(tensor), FAR, TRUSTED), tensor)
    assert same(crossed(tensor.requires_grad_().sum(), FAR, TRUSTED), torch.tensor(3.0))


def test_the_plan_of_a_class_does_not_outlive_it_or_serve_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codec, "_MAX_PLANS", 50)
    for i in range(200):
        kind = dataclasses.make_dataclass(f"Made{i}", [(f"x{i}", int)])
        got = crossed(kind(i), FAR, TRUSTED)
        assert (got.type_name, list(got)) == (f"Made{i}", [f"x{i}"])
        del kind
    assert len(codec._PLANS) <= 50


# -- the fuzzer and its corpus --------------------------------------------------------------------


def corpus() -> list[Path]:
    return sorted(CORPUS.iterdir())


@pytest.mark.parametrize("path", corpus(), ids=lambda path: path.name)
def test_the_kept_inputs_break_nothing(path: Path, arena: Arena) -> None:
    fuzz.execute(path.read_bytes(), arena)


def test_the_corpus_is_small_and_reaches_both_layers() -> None:
    files = corpus()
    assert 20 < len(files) < 100
    assert sum(path.stat().st_size for path in files) < 200_000
    assert {path.read_bytes()[:1] for path in files} == {b"F", b"T"}
    assert not [path.name for path in files if path.name.startswith("crash")]


def test_a_run_reports_what_it_did_and_leaves_the_corpus_alone(tmp_path: Path) -> None:
    copy = tmp_path / "corpus"
    shutil.copytree(CORPUS, copy)
    report = fuzz.run(1.0, 3, copy)
    assert report.executions >= len(corpus())
    assert report.lines > 200
    assert report.crashes == ()
    assert sorted(path.name for path in copy.iterdir()) == [path.name for path in corpus()]


def test_the_fuzzer_notices_what_it_is_there_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = codec._Decoder
    data = fuzz._joined_parts([msgspec.msgpack.encode(["D", "x"])])

    def plant(broken: Callable[..., Any], data: bytes, match: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(reader, "value", broken)
            with pytest.raises(fuzz.Broken, match=match):
                fuzz.execute(data)

    def raises(*_: Any) -> Any:
        raise BrokenPipeError("planted")

    monkeypatch.setattr(fuzz.codec, "decode", lambda tree, _, side: reader(side, []).value(tree, 0))
    plant(raises, data, "BrokenPipeError: planted")
    plant(lambda *_: Slotted(), data, "a Slotted came out")
    plant(lambda *_: [bytearray(b"x")], data, "a bytearray came out")
    plant(lambda *_: 1 << 100_000, data, "cannot be sent")
    peaks = iter([0, fuzz.GROWTH_BYTES + MIB, fuzz.GROWTH_BYTES + MIB])
    monkeypatch.setattr(fuzz, "_peak_bytes", lambda: next(peaks))
    plant(lambda *_: None, data, "bytes larger")


def test_an_input_that_ends_the_process_is_a_crash(tmp_path: Path) -> None:
    current, found = tmp_path / "current", tmp_path / "found"
    found.mkdir()
    current.write_bytes(b"Tx")
    (crash,) = fuzz._ended(current, found, "the process ended with status -11").crashes
    assert crash.path.read_bytes() == b"Tx"
    assert "-11" in crash.reason
