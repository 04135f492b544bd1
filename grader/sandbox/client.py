"""`student`: a suite's only access to student code."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from grader.errors import LoadFailed, NotStarted, SuiteFault
from grader.lab import skeleton
from grader.sandbox import codec
from grader.sandbox.backends import Backend
from grader.sandbox.purity import MAX_NOTED, Change

MAX_TEXT_BYTES = 256 * 1024
MAX_FRAMES = 100
_COMPILED = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".py")  # their compilers read bytes
RESERVED = frozenset({"get", "map", "path", "probe", "read", "peak_memory"})


class Handle:
    """An object that stays on the server. `handle.name(...)` is one round trip; so is
    `handle(...)`. It cannot be compared, since a student's `__eq__` must never decide."""

    __slots__ = ("_line", "_number", "type_name")

    def __init__(self, line: Session, number: int, type_name: str) -> None:
        self._line = line
        self._number = number
        self.type_name = type_name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._line.ask(
            "method", name, args, kwargs, self._number, f"{self.type_name}.{name}"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._line.ask("method", "", args, kwargs, self._number, self.type_name)

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError(f"a {self.type_name} of the student's cannot be compared: read its fields")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.type_name}>"


class Session:
    """One test's connection to a backend; remembers the last call for the message, which calls
    changed their arguments, and which used what the test's task `forbids`."""

    def __init__(
        self,
        backend: Backend,
        records: Mapping[str, type],
        texts: Mapping[str, Path],
        task: str = "",
        forbids: tuple[str, ...] = (),
    ) -> None:
        self.backend = backend
        self.forbids = forbids
        self.texts = texts
        self.task = task
        self.last: ShownCall | None = None
        self.answer: Any = None
        self.side = codec.Side(
            records,
            None,
            lambda number, type_name: Handle(self, number, type_name),
            notice=self._notice,
        )
        self.noticed: list[Noticed] = []

    def _notice(self, changes: list[Change]) -> None:
        frames: list[tuple[str, int]] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and len(frames) < MAX_FRAMES:
            frames.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        left = MAX_NOTED - len(self.noticed)
        mine = [change for change in changes if self._concerns(change)]
        self.noticed += [Noticed(change, self.last, tuple(frames)) for change in mine[:left]]

    def _concerns(self, change: Change) -> bool:
        """What one task forbids another one of the lab may use."""
        if change.kind == "library":
            return change.argument in self.forbids
        return change.kind != "disturbed" or bool(self.forbids)

    def ask(
        self,
        op: str,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        handle: int = 0,
        shown: str = "",
    ) -> Any:
        if op == "probe":
            self.last = _probed(name, args, kwargs, self.task.partition(".")[2])
        else:
            self.last = ShownCall(shown or name, args, kwargs)
        self.answer = None
        self.answer = self.backend.request(op, name, handle, (args, kwargs), self.side)
        return self.answer


@dataclass(frozen=True)
class ShownCall:
    """What a test asked for last, as a learner reads it: a call of a function of theirs; or, with
    `by_test`, what a probe of the test's own did with that function, given these values."""

    function: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    by_test: bool = False


@dataclass(frozen=True)
class Noticed:
    """A change of an argument, the call that made it, and the frames (file, line) that it came
    from, the innermost first."""

    change: Change
    call: ShownCall | None
    frames: tuple[tuple[str, int], ...]


def _probed(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], function: str = ""
) -> ShownCall:
    """A probe's call. One whose arguments are a function's name and that function's arguments (a
    tuple, a dict with more, or a list of tuples for several calls) is shown as that call; so is one
    that is given pairs of such a tuple and dict, of `function`, which the test is about. Another is
    shown as what a test does with `function`: a learner knows no probe."""
    called, *given = args or ("",)
    if isinstance(called, str) and called.isidentifier():
        match given:
            case [tuple() as inner] | [[tuple() as inner]]:
                return ShownCall(called, inner)
            case [tuple() as inner, dict() as more, *_]:
                return ShownCall(called, inner, more)
            case [[tuple(), *_] as rows]:
                return ShownCall(f"{called} ({len(rows)} calls)")
        if called == function:
            args = args[1:]
    match args:
        case [[(tuple() as inner, dict() as more, *_)]]:
            return ShownCall(function or name, inner, more)
        case [[(tuple(), dict(), *_), *_] as rows]:
            return ShownCall(f"{function or name} ({len(rows)} calls)")
    return ShownCall(function or name, args, kwargs, by_test=True)


class _Probes:
    def __init__(self, line: Session) -> None:
        self._line = line

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self._line.ask("probe", name, args, kwargs)


class PeakMemory:
    """What a `peak_memory` block measured. `available`: whether the system reports it."""

    def __init__(self) -> None:
        self.available = False
        self.growth_bytes = 0


class Student:
    """Calls into student code: `student.f(...)`, `student.probe.g(...)`, `student.get(h, "x")`,
    `student.map("f", rows)`, `student.read(file)`, `student.peak_memory()`."""

    def __init__(self, line: Session) -> None:
        self._line = line

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"suites call public names only, not `{name}`")
        return lambda *args, **kwargs: self._line.ask("call", name, args, kwargs)

    @property
    def probe(self) -> _Probes:
        return _Probes(self._line)

    def get(self, handle: Handle, name: str) -> Any:
        """One attribute of an object on the server."""
        return self._line.ask("get", name, (), {}, handle._number, f"{handle.type_name}.{name}")

    def map(self, name: str, rows: Iterable[Iterable[Any]]) -> list[Any]:
        """`[f(*row) for row in rows]` in one round trip."""
        packed = [list(row) for row in rows]
        self._line.last = ShownCall(f"{name} ({len(packed)} calls)")
        self._line.answer = None
        answers = self._line.backend.request("map", name, 0, packed, self._line.side)
        self._line.answer = answers
        return list(answers)

    def read(self, name: str) -> str:
        """Text of one of the learner's files. Raises NotStarted if it still holds the placeholder
        of the task that is tested."""
        line = self._line
        line.last, line.answer = ShownCall(f"(the text of {name})"), None
        if name not in line.texts:
            raise SuiteFault(f"`{name}` is not a file that learners edit: {', '.join(line.texts)}")
        text = _text(line.texts[name], name)
        if line.task and (number := skeleton.marker_line(line.task, text)):
            raise NotStarted(line.task, f"{name}:{number}")
        line.answer = text
        return text

    @contextmanager
    def peak_memory(self) -> Iterator[PeakMemory]:
        """How far the resident memory of the student's process rose above its level at the start
        of the block, as the kernel reports it to this side (Linux). Code that runs for the first
        time and gaps in the heap add 20 to 35 MiB: make the same call once before the block, and
        choose sizes at which a wrong answer takes far more."""
        peak = PeakMemory()
        status = Path(f"/proc/{self._line.backend.pid()}")
        before = _reset_peak(status)
        yield peak
        after = _field(status, "VmHWM")
        if before is not None and after is not None:
            peak.available = True
            peak.growth_bytes = max(0, after - before)


def _text(path: Path, name: str) -> str:
    """A file that people write, its line ends as `\\n`; raises LoadFailed for what is not text."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEXT_BYTES + 1)
    except OSError:
        raise LoadFailed(f"{name} is missing", name) from None
    if len(data) > MAX_TEXT_BYTES:
        limit = f"{MAX_TEXT_BYTES // 1024} KiB"
        raise LoadFailed(f"{name} is larger than {limit}, which no answer needs", name)
    code = name.endswith(_COMPILED)
    try:
        text = data.decode("utf-8-sig", "replace" if code else "strict")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        text = f"{name} is not UTF-8 text (byte 0x{data[error.start]:02x}); save it as UTF-8"
        raise LoadFailed(text, f"{name}:{number}") from None
    if "\0" in text and not code:
        raise LoadFailed(f"{name} holds zero bytes: save it as UTF-8 text, not UTF-16", name)
    return text.replace("\r\n", "\n")


def _reset_peak(process: Path) -> int | None:
    """Reset the kernel's high-water mark to the present level; returns that level in bytes."""
    if sys.platform != "linux":
        return None
    try:
        (process / "clear_refs").write_text("5")
    except OSError:
        return None
    return _field(process, "VmRSS")


def _field(process: Path, name: str) -> int | None:
    try:
        for line in (process / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None
