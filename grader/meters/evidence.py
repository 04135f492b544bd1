"""What makes a witnessed figure tamper-evident. Imports no torch.

A meter's caller holds only a numbered, read-only `Meter`; the counts lie in an append-only
`SignedLog` in this module's private table. `IdentitySnapshot` compares, by identity, the functions
that a meter relies on. The alarm is an audit hook of the interpreter, which cannot be removed.
"""

from __future__ import annotations

import _thread
import contextlib
import hashlib
import itertools
import secrets
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from grader.errors import MeasurementDisturbed

Record = tuple[Any, ...]
_PREFIX = "Measurement disturbed: "

_THREAD = "a thread was started, and a meter sees its own thread only"
_AUDITED = {
    "_thread.start_new_thread": _THREAD,
    "_thread.start_joinable_thread": _THREAD,
    "gc.get_objects": "the objects of the interpreter were searched through gc",
    "gc.get_referrers": "the objects of the interpreter were searched through gc",
    "gc.get_referents": "the objects of the interpreter were searched through gc",
}


_WATCHERS = "a trace or profile function was set"


def refuse_students(frame: types.FrameType | None) -> None:
    """Raise unless a probe opens the meter that is opened from this frame: student code may have no
    part in it, be it by a library's function or by a function of the probe's own."""
    server: Any = sys.modules.get("grader.sandbox.server")
    folders = tuple(server.FOLDERS) if server else ()
    if not folders:
        return
    stack = _outward(frame)
    opener = next((each for each in stack if not _passes_on(each)), None)
    probed = any(id(each.f_code) in server.PROBES for each in stack)
    if opener is not None and probed:
        foreign = id(opener.f_code) not in server.PROBES
    else:
        foreign = opener is not None and opener.f_code.co_filename.startswith("<")
    if foreign or any(
        each.f_code.co_filename.startswith(folders) and id(each.f_code) not in server.GIVEN
        for each in stack
    ):
        raise MeasurementDisturbed(f"{_PREFIX}student code opened one of the kit's own meters")


def _outward(frame: types.FrameType | None) -> list[types.FrameType]:
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def _passes_on(frame: types.FrameType) -> bool:
    """Whether a frame is of a function of the kit, or of contextlib, that opens a meter for its
    caller: of the very one, not of one with that name."""
    name = frame.f_globals.get("__name__")
    if type(name) is not str or name.partition(".")[0] not in ("grader", "contextlib"):
        return False
    found: Any = sys.modules.get(name)
    if found is None or vars(found) is not frame.f_globals:
        return False
    for part in frame.f_code.co_qualname.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return _code(found) is frame.f_code


class SignedLog:
    """An append-only list of plain records; an edited one no longer verifies.

    Each record carries its index under a keyed hash, and a tally that cannot decrease has their
    number. The index is there because a finalizer may append in the middle of another append, the
    lock because it may do so in another thread.
    """

    __slots__ = ("_count", "_entries", "_key", "_lock", "_tally")

    def __init__(self) -> None:
        self._key = hashlib.blake2b(key=secrets.token_bytes(16), digest_size=16)
        self._tally = self._key.copy()
        self._count = itertools.count()
        self._entries: list[tuple[int, Record, bytes]] = []
        self._lock = threading.RLock()

    def append(self, *record: Any) -> None:
        with self._lock:
            index = next(self._count)
            self._entries.append((index, record, self._sign(index, record)))
            self._tally.update(b".")

    def _sign(self, index: int, record: Record) -> bytes:
        signature = self._key.copy()
        signature.update(repr((index, record)).encode())
        return signature.digest()

    def __len__(self) -> int:
        return len(self._entries)

    def since(self, length: int) -> list[Record]:
        """The records from that index on, unverified."""
        return [record for _, record, _ in self._entries[length:]]

    def __iter__(self) -> Iterator[Record]:
        """The records as written; raises MeasurementDisturbed if they were changed."""
        entries, there = self._snapshot()
        entries.sort(key=lambda entry: entry[0])
        tally = self._key.copy()
        tally.update(b"." * len(entries))
        same = all(
            place == index and signature == self._sign(index, record)
            for place, (index, record, signature) in enumerate(entries)
        )
        if not same or tally.digest() != there:
            text = "the meter's records were changed after they were written."
            raise MeasurementDisturbed(_PREFIX + text)
        return iter([record for _, record, _ in entries])

    def _snapshot(self) -> tuple[list[tuple[int, Record, bytes]], bytes]:
        """The entries, and the tally that belongs to them. A finalizer of this thread may append
        between the two, where the lock does not help."""
        with self._lock:
            while True:
                there = self._tally.digest()
                entries = list(self._entries)
                if self._tally.digest() == there:
                    return entries, there


class IdentitySnapshot:
    """Remembers the objects behind some names, and the code of those that are functions."""

    __slots__ = ("_codes", "_inside", "_outside")

    def __init__(
        self, owners: Iterable[object] = (), names: Iterable[tuple[Any, str]] = ()
    ) -> None:
        """`owners`: modules and classes, for each of their functions; `names`: single ones."""
        every = [(owner, name) for owner in owners for name in _functions_of(owner)]
        found = [(owner, name, _look(owner, name)) for owner, name in (*every, *names)]
        inside = [_is_inside(owner, name) for owner, name, _ in found]
        self._inside = tuple(
            (vars(owner).get, name, thing, owner)
            for (owner, name, thing), own in zip(found, inside, strict=True)
            if own
        )
        self._outside = tuple(row for row, own in zip(found, inside, strict=True) if not own)
        functions = [(_function(thing), owner, name) for owner, name, thing in found]
        self._codes = tuple(
            (function, function.__code__, owner, name)
            for function, owner, name in functions
            if isinstance(function, types.FunctionType)
        )

    def problems(self) -> list[str]:
        """One clause for each name that was replaced."""
        replaced = [(owner, n) for get, n, had, owner in self._inside if get(n) is not had]
        replaced += [(owner, n) for owner, n, had in self._outside if _look(owner, n) is not had]
        replaced += [(owner, n) for f, code, owner, n in self._codes if f.__code__ is not code]
        names = dict.fromkeys((getattr(owner, "__name__", owner), name) for owner, name in replaced)
        return [f"{owner}.{name} was replaced" for owner, name in names]


def _is_inside(owner: Any, name: str) -> bool:
    """Whether a name is a module's or a class's own, in a namespace that stays the same object."""
    return isinstance(owner, types.ModuleType | type) and name in vars(owner)


def _functions_of(owner: object) -> list[str]:
    kinds = (types.FunctionType, type, property, classmethod, staticmethod)
    return [name for name, value in vars(owner).items() if isinstance(value, kinds)]


def _look(owner: Any, name: str) -> object:
    inside = getattr(owner, "__dict__", {})
    return inside[name] if name in inside else getattr(owner, name, None)


def _function(thing: Any) -> object:
    """What a property or a method calls."""
    return getattr(thing, "fget", None) or getattr(thing, "__func__", None) or thing


def _code(thing: Any) -> object:
    return getattr(_function(thing), "__code__", None)


def snapshot_module(name: str, names: Iterable[tuple[Any, str]] = ()) -> IdentitySnapshot:
    """The snapshot of a loaded module of this package, its classes, and single names of torch."""
    module = sys.modules[name]
    own = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == name]
    return IdentitySnapshot([module, *own], names)


def _install_alarm() -> Callable[[], list[tuple[int, str]]]:
    """Installs the audit hook, once a process; returns the reader of what it noticed."""
    noticed: list[tuple[int, str]] = []

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in _AUDITED:
            noticed.append((threading.get_ident(), _AUDITED[event]))
        elif event in ("sys.settrace", "sys.setprofile"):
            noticed.append((threading.get_ident(), _WATCHERS))
        elif event == "object.__setattr__" and args[1] == "__code__":
            noticed.append((threading.get_ident(), "the code of a function was replaced"))

    sys.addaudithook(hook)
    if sys.version_info < (3, 12):  # no audit event yet for threads

        def start_new_thread(*args: Any, **kwargs: Any) -> Any:
            noticed.append((threading.get_ident(), _THREAD))
            return start(*args, **kwargs)

        start: Any = _thread.start_new_thread
        _thread.start_new_thread = start_new_thread
        threading._start_new_thread = start_new_thread  # type: ignore[attr-defined]
    return lambda: noticed


_noticed: Callable[[], list[tuple[int, str]]] | None = None


def alarm_position() -> int:
    """Where the alarm's list ends now; installs the alarm on first use."""
    global _noticed
    if _noticed is None:
        _noticed = _install_alarm()
    return len(_noticed())


def alarm_problems(position: int) -> list[str]:
    """What this thread did since `position` that measured code never needs to do."""
    return [text for text in _since(position) if text != _WATCHERS]


def _since(position: int) -> list[str]:
    assert _noticed is not None
    return [text for thread, text in _noticed()[position:] if thread == threading.get_ident()]


@contextlib.contextmanager
def alarm() -> Iterator[None]:
    """For what a probe measures itself: MeasurementDisturbed if the block did what measured code
    never needs to do, or set a trace or profile function."""
    refuse_students(sys._getframe(1))
    position = alarm_position()
    try:
        yield
    finally:
        noticed = list(dict.fromkeys(_since(position)))
    if noticed:
        raise MeasurementDisturbed(f"{_PREFIX}{'; '.join(noticed)}.")


class Measurement:
    """The working side of one meter. A subclass opens and closes its sources."""

    snapshots: tuple[IdentitySnapshot, ...] = ()
    sees_all_threads = False

    def __init__(self) -> None:
        refuse_students(sys._getframe(1))
        self.log = SignedLog()
        self.problem = ""
        self.used = False
        self._alarm = 0

    def open(self) -> None:
        """Start to measure."""
        raise NotImplementedError

    def close(self) -> list[str]:
        """Stop, restore everything, and return signs of tampering."""
        raise NotImplementedError

    def start(self) -> None:
        if self.used:
            raise RuntimeError("A meter measures one block; make a new one for the next.")
        self.used = True
        refuse_students(sys._getframe(1))
        self.complain(self._replaced())
        self._alarm = alarm_position()
        self.open()

    def stop(self) -> None:
        try:
            problems = self.close()
            list(self.log)
        except MeasurementDisturbed as error:
            problems = [str(error).removeprefix(_PREFIX).rstrip(".")]
        noticed = alarm_problems(self._alarm)
        problems += [text for text in noticed if not (self.sees_all_threads and text == _THREAD)]
        problems += self._replaced()
        self.complain(problems)

    def _replaced(self) -> list[str]:
        return [p for snapshot in (_SNAPSHOT, *self.snapshots) for p in snapshot.problems()]

    def complain(self, problems: Iterable[str]) -> None:
        unique = list(dict.fromkeys(problems))
        if unique:
            self.problem = _PREFIX + "; ".join(unique) + "."
            raise MeasurementDisturbed(self.problem)


M = TypeVar("M", bound=Measurement)
_table: dict[str, Measurement] = {}


class Meter(Generic[M]):
    """What `with ... as m` gives: read-only, with a number by which the figures are found."""

    __slots__ = ("__weakref__", "_number")
    _number: str

    def __init__(self, measurement: M) -> None:
        number = secrets.token_hex(8)
        object.__setattr__(self, "_number", number)
        _table[number] = measurement
        weakref.finalize(self, _table.pop, number, None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"A meter is read-only; {name} cannot be set.")

    def __enter__(self) -> Any:
        _table[self._number].start()
        return self

    def __exit__(self, *error: object) -> None:
        _table[self._number].stop()

    def _read(self) -> M:
        """The measurement behind this meter; raises MeasurementDisturbed if it was disturbed."""
        found: Any = _table.get(self._number)
        if found is None:
            raise MeasurementDisturbed(f"{_PREFIX}the meter's records are missing.")
        if found.problem:
            raise MeasurementDisturbed(found.problem)
        return found  # type: ignore[no-any-return]


_SNAPSHOT = snapshot_module(__name__)
