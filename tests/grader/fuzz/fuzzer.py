"""A fuzzer of what the trusted side reads from student code: frames, headers, trees, buffers.

Inputs are mutated as bytes and as MessagePack trees; one that reaches lines in a new order joins
the pool. Whatever comes in, reading it must end in a value of plain types or in one of the
exceptions that a backend expects, and take memory and time in proportion to what came.

An input is one file: `F` and the bytes of a frame, or `T`, a header and its buffers, each with its
length as four little-endian bytes.

`python tests/grader/fuzz/fuzzer.py CORPUS --seconds 60 --keep` adds to a corpus and then drops the
inputs that reach nothing new.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec
import numpy
import torch

import grader
from grader.errors import Refused
from grader.sandbox import channel, codec
from grader.sandbox.channel import Arena, Channel, Closed

MAX_INPUT_BYTES = 64 * 1024
MAX_KEPT_BYTES = 2048
MAX_KEPT = 90
GROWTH_BYTES = 96 * 2**20
CPU_SECONDS = 10.0
ADDRESS_SPACE_BYTES = 2**31
HANG_SECONDS = 60
_LENGTH = struct.Struct("<I")
_WATCHED = frozenset(str(Path(module.__file__)) for module in (codec, channel) if module.__file__)


@dataclasses.dataclass(frozen=True)
class Crash:
    """An input that broke an invariant: how, and the file that has it."""

    reason: str
    path: Path


@dataclasses.dataclass(frozen=True)
class Report:
    """What one run did. `new`: inputs that reached something new; `lines`: lines reached in all."""

    executions: int
    seconds: float
    lines: int
    new: int
    crashes: tuple[Crash, ...]

    @property
    def per_second(self) -> float:
        return self.executions / self.seconds if self.seconds else 0.0


class Broken(Exception):
    """An invariant does not hold."""


def run(seconds: float, seed: int, corpus: Path, keep: bool = False) -> Report:
    """Fuzz for `seconds`, starting from the inputs in `corpus`.

    `keep`: inputs that reach something new are added to `corpus`, and so are those that broke an
    invariant (`crash-...`). Otherwise the corpus stays as it is and the latter go to a new
    temporary folder. The work is done in a process of its own with limited memory; an input that
    ends that process, or hangs it, is a crash like any other."""
    found = corpus if keep else Path(tempfile.mkdtemp(prefix="infralens-fuzz-"))
    total = Report(0, 0.0, 0, 0, ())
    started = time.monotonic()
    while (left := seconds - (time.monotonic() - started)) > 0 and len(total.crashes) < 10:
        part = _in_child(left, seed, corpus, found, keep)
        total = _joined(total, part)
        seed += 1
        if not part.crashes:
            break
    if not keep and not total.crashes:
        found.rmdir()
    return total


def _joined(one: Report, two: Report) -> Report:
    return Report(
        one.executions + two.executions,
        one.seconds + two.seconds,
        max(one.lines, two.lines),
        one.new + two.new,
        (*one.crashes, *two.crashes),
    )


def _in_child(seconds: float, seed: int, corpus: Path, found: Path, keep: bool) -> Report:
    root = str(Path(grader.__file__).parents[1])
    with tempfile.TemporaryDirectory(prefix="infralens-fuzz-") as scratch:
        current = Path(scratch) / "current"
        command = [sys.executable, __file__, str(corpus), "--child", str(current)]
        command += ["--seconds", str(seconds), "--seed", str(seed), "--found", str(found)]
        command += ["--keep"] if keep else []
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        )
        try:
            out, _ = child.communicate(timeout=seconds + 3 * HANG_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return _ended(current, found, "the process did not end")
        if child.returncode:
            return _ended(current, found, f"the process ended with status {child.returncode}")
    data = json.loads(out)
    crashes = tuple(Crash(reason, Path(path)) for reason, path in data.pop("crashes"))
    return Report(**data, crashes=crashes)


def _ended(current: Path, found: Path, reason: str) -> Report:
    """The report of a run that its last input ended."""
    if not current.is_file():
        raise RuntimeError(f"the fuzzer did not start: {reason}")
    return Report(0, 0.0, 0, 0, (_reproducer(current.read_bytes(), reason, found),))


def _reproducer(data: bytes, reason: str, found: Path) -> Crash:
    path = found / f"crash-{_name(data)}"
    path.write_bytes(data)
    return Crash(reason, path)


def _name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


# -- one execution ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Held:
    """What a handle becomes here."""

    number: int
    name: str


@dataclasses.dataclass(frozen=True)
class Pair:
    """A record that both sides know."""

    left: Any
    right: Any = None


SIDE = codec.Side({"Pair": Pair}, None, Held)
_numbers = itertools.count()
_FAR = codec.Side({"Pair": Pair}, lambda value: next(_numbers), Held)
_SCALARS = (bool, int, float, str, bytes, complex, type(None), torch.dtype)


def unexpected(value: Any) -> str:
    """What in a decoded value is of no allow-listed exact type; empty if all is."""
    kind = type(value)
    if kind in _SCALARS or kind is Held or isinstance(value, numpy.dtype):
        return ""
    if kind is numpy.ndarray:
        return "" if value.flags.writeable else "a read-only array"
    if kind is torch.Tensor:
        return "a tensor with history" if value.requires_grad else ""
    if kind is list or kind is tuple or kind is frozenset:
        return next(filter(None, map(unexpected, value)), "")
    if kind is dict:
        return next(filter(None, map(unexpected, [*value, *value.values()])), "")
    if kind is Pair:
        return unexpected([value.left, value.right])
    if kind is codec.RemoteRecord:
        return unexpected([getattr(value, "_fields")[name] for name in value])  # noqa: B009
    return f"a {kind.__name__}"


def same(one: Any, two: Any) -> bool:
    """Equal in type, value, layout and NaN."""
    if type(one) is not type(two):
        return False
    if isinstance(one, float):
        nan = one != one and two != two
        return nan or (one == two and math.copysign(1, one) == math.copysign(1, two))
    if isinstance(one, complex):
        return same(one.real, two.real) and same(one.imag, two.imag)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return same(list(one), list(two)) and same(list(one.values()), list(two.values()))
    if isinstance(one, frozenset):
        return len(one) == len(two)
    if isinstance(one, Pair):
        return same([one.left, one.right], [two.left, two.right])
    if isinstance(one, numpy.ndarray):
        return same([one.dtype, one.shape, one.tobytes()], [two.dtype, two.shape, two.tobytes()])
    if isinstance(one, torch.Tensor):
        bits = torch.equal(_bits(one), _bits(two))
        return bits and same([one.dtype, tuple(one.shape)], [two.dtype, tuple(two.shape)])
    return bool(one == two)


def _bits(tensor: Any) -> Any:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def execute(data: bytes, arena: Arena | None = None) -> None:
    """Read one input as the trusted side does; raises `Broken` if an invariant does not hold."""
    before, cpu = _peak_bytes(), time.process_time()
    try:
        value = _frame(data[1:], arena) if data[:1] == b"F" else _tree(data[1:])
    except (Refused, Closed, TimeoutError) as error:
        if isinstance(error.__cause__, MemoryError):
            raise Broken("it asked for more memory than there is") from error
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error}"[:300]) from error
    else:
        if odd := unexpected(value):
            raise Broken(f"{odd} came out")
        _crosses_again(value)
    # Shared memory that nobody wrote to becomes real when it is read, and once more as a copy.
    shared = 2 * channel.HALF_BYTES if arena is not None and data[:1] == b"F" else 0
    if _peak_bytes() - before > GROWTH_BYTES + 128 * len(data) + shared:
        raise Broken(f"{len(data)} bytes made the process {_peak_bytes() - before:,} bytes larger")
    if time.process_time() - cpu > CPU_SECONDS:
        raise Broken(f"{len(data)} bytes took {time.process_time() - cpu:.1f} s")


def _crosses_again(value: Any) -> None:
    """What came out can be sent, and arrives as it is."""
    if _size(value) > 2**20:
        return
    try:
        tree, buffers = codec.encode(value, _FAR)
        again = codec.decode(codec.parsed(msgspec.msgpack.encode(tree)), buffers, SIDE)
    except Refused as error:
        raise Broken(f"a value that came out cannot be sent: {error.text}") from error
    if "Held(" not in (text := repr(value)) and "Record" not in text and not same(value, again):
        raise Broken("a value that came out arrives as another one")


def _size(value: Any) -> int:
    """Bytes of the largest array in a value, as far as its elements go."""
    if isinstance(value, numpy.ndarray | torch.Tensor):
        return int(value.nbytes)
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, Pair):
        value = [value.left, value.right]
    if isinstance(value, codec.RemoteRecord):
        return 2**21  # becomes a handle, which says nothing
    return max(map(_size, value), default=0) if isinstance(value, list | tuple) else 0


def _tree(data: bytes) -> Any:
    header, *buffers = _parts(data)
    return codec.decode(codec.parsed(header), [bytearray(part) for part in buffers], SIDE)


def _frame(data: bytes, arena: Arena | None) -> Any:
    ours, theirs = socket.socketpair()
    line = Channel(ours, arena)
    try:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_INPUT_BYTES)
        theirs.sendall(data[:MAX_INPUT_BYTES])
        theirs.close()
        message, buffers = line.receive(time.monotonic() + 30)
        if type(message) is not list or len(message) != 2:
            raise Refused("a malformed reply came across")
        return codec.decode(message[1], buffers, SIDE)
    finally:
        line.arena = None  # it serves the next input too
        line.close()


def _parts(data: bytes) -> list[bytes]:
    """Header and buffers of a `T` input; a length that is too large takes what there is."""
    parts: list[bytes] = []
    while len(data) >= _LENGTH.size:
        end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        parts.append(data[_LENGTH.size : end])
        data = data[end:]
    return parts or [b""]


def _joined_parts(parts: list[bytes]) -> bytes:
    return b"T" + b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def _peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# -- coverage --------------------------------------------------------------------------------------


class Coverage:
    """Steps from line to line in the codec and the channel that have been seen."""

    def __init__(self) -> None:
        self.seen: set[tuple[CodeType, int, int]] = set()
        self.last: dict[FrameType, int] = {}
        self.fresh: set[tuple[CodeType, int, int]] = set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.fresh = set()
        self.last = {}
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(None)

    @property
    def lines(self) -> int:
        return len({(code, line) for code, _, line in self.seen})

    def _called(self, frame: FrameType, _event: str, _arg: Any) -> Callable[..., Any] | None:
        return self._stepped if frame.f_code.co_filename in _WATCHED else None

    def _stepped(self, frame: FrameType, event: str, _arg: Any) -> Callable[..., Any]:
        if event == "line":
            line = frame.f_lineno
            step = (frame.f_code, self.last.get(frame, 0), line)
            self.last[frame] = line
            if step not in self.seen:
                self.fresh.add(step)
        elif event == "return":
            self.last.pop(frame, None)
        return self._stepped

    def take(self) -> bool:
        """Whether the last input reached something new; counts it as seen."""
        self.seen |= self.fresh
        return bool(self.fresh)


# -- mutation --------------------------------------------------------------------------------------

_NUMBERS = (
    *(0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 33, 64, 127, 128, 255, 256, 4095, 65535, 65536, 65537),
    *(2**27, 2**28, 2**31 - 1, 2**31, 2**32 - 1, 2**61 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1),
    *(-1, -(2**63)),
)
_ATOMS = (
    *_NUMBERS,
    *(None, True, False, 0.0, -0.0, 1.0, 8.0, math.nan, math.inf, "", "0", "-1", "x" * 40),
    *("<f8", ">f8", "|b1", "|u1", "<f16", "<c32", "<i3", "|O", "float32", "bool", "bfloat16"),
    *("float8_e5m2", "qint8", "Pair", "left", "right", "__class__", "_fields", "type_name", "é"),
    *("f" * 16400, "../x", "a\0b", "1_0", b"raw"),
)
_TAGS = tuple("ltdIcsbDNaTrph")


class Mutator:
    """Makes new inputs out of the pool."""

    def __init__(self, rng: random.Random, pool: list[bytes]) -> None:
        self.rng = rng
        self.pool = pool

    def next(self) -> bytes:
        data = self.rng.choice(self.pool[-64:] if self.rng.random() < 0.5 else self.pool)
        if data[:1] != b"F" and self.rng.random() < 0.7:
            data = self.reshaped(data)
        if data[:1] == b"F" or self.rng.random() < 0.4:
            for _ in range(self.rng.choice((1, 1, 1, 2, 4, 8))):
                data = data[:1] + self.scrambled(data[1:])
        return data[:MAX_INPUT_BYTES]

    # bytes

    def scrambled(self, data: bytes) -> bytes:
        rng, size = self.rng, len(data)
        at = rng.randrange(size + 1)
        end = min(size, at + rng.choice((1, 1, 2, 4, 8, 32)))
        way = rng.randrange(8)
        if way == 0 and at < size:
            return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        if way == 1:
            return data[:at] + rng.randbytes(end - at) + data[end:]
        if way == 2:
            return data[:at] + data[end:]
        if way == 3:
            return data[:end] + data[at:end] * rng.choice((1, 2, 100)) + data[end:]
        if way == 4:
            other = rng.choice(self.pool)[1:]
            return data[:at] + other[rng.randrange(len(other) + 1) :]
        if way == 5:
            return data[:at]
        return self.numbered(data, at)

    def numbered(self, data: bytes, at: int) -> bytes:
        """A telling number in place of some bytes, as lengths are written."""
        form = self.rng.choice(("<B", "<I", "<Q", ">H", ">I", ">Q"))
        number = self.rng.choice(_NUMBERS) % 256 ** struct.calcsize(form)
        return data[:at] + struct.pack(form, number) + data[at + struct.calcsize(form) :]

    # trees

    def reshaped(self, data: bytes) -> bytes:
        parts = _parts(data[1:])
        try:
            tree = msgspec.msgpack.decode(parts[0])
            for _ in range(self.rng.choice((1, 1, 2, 3))):
                tree = self.exchanged(tree)
            parts[0] = msgspec.msgpack.encode(tree)
        except (ValueError, TypeError, OverflowError, RecursionError):
            return data
        if self.rng.random() < 0.3:
            parts[1:] = self.rebuffered(parts[1:])
        return _joined_parts(parts)

    def rebuffered(self, buffers: list[bytes]) -> list[bytes]:
        rng = self.rng
        if not buffers or rng.random() < 0.3:
            return [*buffers, rng.randbytes(rng.choice((0, 1, 2, 4, 8, 16, 48)))]
        at = rng.randrange(len(buffers))
        changed = rng.choice((buffers[at][:-1], buffers[at] * 2, b"", buffers[at] + b"\0"))
        return [*buffers[:at], changed, *buffers[at + 1 :]]

    def exchanged(self, tree: Any) -> Any:
        """The tree with one node changed."""
        if type(tree) is not list or not tree or self.rng.random() < 0.15:
            return self.grown(tree)
        at = self.rng.randrange(len(tree))
        if self.rng.random() < 0.6:
            return [*tree[:at], self.exchanged(tree[at]), *tree[at + 1 :]]
        return self.replaced(tree, at)

    def replaced(self, tree: list[Any], at: int) -> list[Any]:
        rng = self.rng
        way = rng.randrange(6)
        if way == 0:
            return tree[:at] + tree[at + 1 :]
        if way == 1:
            return tree[:at] + [tree[at]] * rng.choice((2, 3, 70)) + tree[at + 1 :]
        if way == 2:
            return [rng.choice(_TAGS), *tree[1:]]
        if way == 3:
            other = rng.randrange(len(tree))
            swapped = list(tree)
            swapped[at], swapped[other] = swapped[other], swapped[at]
            return swapped
        new = rng.choice(_ATOMS) if way == 4 else self.borrowed()
        return [*tree[:at], new, *tree[at + 1 :]]

    def grown(self, tree: Any) -> Any:
        rng = self.rng
        way = rng.randrange(4)
        if way == 0:
            return rng.choice(_ATOMS)
        if way == 1:
            for _ in range(rng.choice((1, 2, 70))):
                tree = [rng.choice("lts"), tree]
            return tree
        if way == 2:
            return [rng.choice(_TAGS), *[rng.choice(_ATOMS) for _ in range(rng.randrange(6))]]
        return self.borrowed()

    def borrowed(self) -> Any:
        """A part of another input."""
        other = self.rng.choice(self.pool)
        try:
            tree = msgspec.msgpack.decode(_parts(other[1:])[0])
        except (ValueError, RecursionError):
            return self.rng.choice(_ATOMS)
        while type(tree) is list and tree and self.rng.random() < 0.5:
            tree = self.rng.choice(tree)
        return tree


def seeds() -> list[bytes]:
    """An input of every kind of value, as a tree and as a frame, to start a corpus with."""
    array = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    tensor = torch.arange(12).reshape(3, 4)
    values: list[Any] = [
        [1, -1, 2**64 - 1, 2.5, None, True, "é", b"raw", (1, 2)],
        {"a": 1, 2: [3.5], (1, "x"): {}, None: frozenset({1, 2, "three"})},
        [3**200, -(7**50), 1 + 2j, torch.bfloat16, numpy.dtype("int8")],
        [array, array.T, array[:, ::2], array[:0], numpy.array(2.5), numpy.ones(3, bool)],
        [numpy.broadcast_to(array[0], (5, 4)), array.astype(numpy.complex128)],
        [tensor, tensor.T.bfloat16(), tensor[:, 1].bool(), tensor.float().to(torch.float8_e5m2)],
        [Pair(1, [2]), Pair(object()), object()],
        {str(i): i for i in range(70)},
    ]
    made = []
    for value in values:
        tree, buffers = codec.encode(value, _FAR)
        made.append(_joined_parts([msgspec.msgpack.encode(tree), *map(bytes, buffers)]))
        made.append(b"F" + _sent(["ok", tree], buffers))
    made.append(_joined_parts([msgspec.msgpack.encode(["r", "Other", "x", 1, "y", ["l"]])]))
    header = msgspec.msgpack.encode(["ok", ["l", ["b", 0], ["a", 1, "|u1", [64], []]]])
    shared = struct.pack("<IIQQQQ", len(header), 2, 64, 0, 64, 64)  # both lie in the arena
    return [*made, b"F" + shared + header]


def _sent(message: Any, buffers: list[codec.Buffer]) -> bytes:
    """The bytes of a frame on a socket."""
    ours, theirs = socket.socketpair()
    Channel(ours).send(message, buffers)
    ours.close()
    with theirs:
        return b"".join(iter(lambda: theirs.recv(MAX_INPUT_BYTES), b""))


# -- the process that does it ----------------------------------------------------------------------


def _inputs(corpus: Path) -> list[bytes]:
    files = sorted(path for path in corpus.glob("*") if path.is_file())
    return [path.read_bytes() for path in files if not path.name.startswith("crash-")]


def fuzz(seconds: float, seed: int, corpus: Path, current: Path, found: Path, keep: bool) -> Report:
    """The work of `run`, in this process. `current` has the input that is being read."""
    coverage, crashes, new, done = Coverage(), [], 0, 0
    arena = _arena()
    known = _inputs(corpus)
    pool = known or seeds()
    mutator = Mutator(random.Random(seed), pool)
    started = time.monotonic()
    queue = list(pool) if known else seeds()
    kept = len(known)
    with current.open("wb", buffering=0) as file:
        while queue or time.monotonic() - started < seconds:
            data = queue.pop() if queue else mutator.next()
            file.seek(0)
            file.truncate()
            file.write(data)
            done += 1
            signal.alarm(HANG_SECONDS)  # ends this process, which `run` reports
            try:
                with coverage.watching():
                    execute(data, arena)
            except Broken as error:
                crashes.append(_reproducer(data, str(error), found))
                if len(crashes) >= 10:
                    break
            if coverage.take() and done > len(pool):
                pool.append(data)
                new += 1
                if keep and len(data) <= MAX_KEPT_BYTES and kept < 10 * MAX_KEPT:
                    kept += 1
                    (found / _name(data)).write_bytes(data)
    signal.alarm(0)
    return Report(done, time.monotonic() - started, coverage.lines, new, tuple(crashes))


def _arena() -> Arena | None:
    """Shared memory whose other half has a few bytes in it; None where there is none."""
    if not hasattr(os, "memfd_create"):
        return None
    arena = Arena(Arena.create(), trusted=True)
    arena.theirs[:4096] = bytes(range(256)) * 16
    return arena


def minimise(corpus: Path) -> int:
    """Drop the inputs that reach nothing which smaller ones do not; returns how many stay."""
    coverage, arena, kept = Coverage(), _arena(), 0
    for path in sorted(corpus.glob("*"), key=lambda path: (path.stat().st_size, path.name)):
        if path.name.startswith("crash-"):
            continue
        with coverage.watching(), contextlib.suppress(Broken):
            execute(path.read_bytes(), arena)
        if coverage.take() and kept < MAX_KEPT:
            kept += 1
        else:
            path.unlink()
    return kept


def _main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python tests/grader/fuzz/fuzzer.py")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--found", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        _limit_memory()
        report = fuzz(given.seconds, given.seed, given.corpus, given.child, given.found, given.keep)
        data = dataclasses.asdict(report)
        data["crashes"] = [(crash.reason, str(crash.path)) for crash in report.crashes]
        print(json.dumps(data))
        return 0
    given.corpus.mkdir(parents=True, exist_ok=True)
    report = run(given.seconds, given.seed, given.corpus, given.keep)
    rate = f"{report.executions:,} inputs, {report.per_second:,.0f} a second"
    print(f"{rate}, {report.lines} lines, {report.new} new inputs, {len(report.crashes)} crashes")
    for crash in report.crashes:
        print(f"{crash.path}: {crash.reason}")
    if given.keep:
        print(f"{minimise(given.corpus)} inputs stay in {given.corpus}")
    return 1 if report.crashes else 0


def _limit_memory() -> None:
    """An input that asks for gigabytes gets a MemoryError, which `execute` notices."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    limit = pages * resource.getpagesize() + ADDRESS_SPACE_BYTES
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
