"""Our own reading of a submission's text, in a process of its own with limits.

A parser, a regular expression or a `repr` can take hours and gigabytes over a text that somebody
wrote for that. So what reads such a text runs in a fork of this process, which may use
`CPU_SECONDS` of processor time and `MORE_BYTES` more memory than this process has, and sends back
plain data of at most `MOST_VALUES` values. A text that takes more is the submission's fault, and
`TooMuch` says so. The same reading of the same text is not done twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import resource
import select
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast

from grader.sandbox.address_space import limit_growth

T = TypeVar("T")
CPU_SECONDS = 4
WALL_SECONDS = 30.0  # a machine with much else to do
MORE_BYTES = 512 * 2**20
MOST_VALUES = 50_000
MOST_CHARACTERS = 2**20
MOST_SENT = 4 * 2**20
_REMEMBERED = 64

_known: OrderedDict[tuple[str, str], bytes] = OrderedDict()


class TooMuch(Exception):
    """A text that cannot be read within the limits; the text says which one."""


def read(reader: Callable[..., T], text: str, *more: Any) -> T:
    """`reader(text, *more)`, or what it raises; `TooMuch` for a text beyond the limits.

    reader: a function of a module, of the suite or the kit, whose result and exceptions can be
    pickled. more: small plain values. Where there is no `fork`, or a debugger watches, it runs
    here.
    """
    if not hasattr(os, "fork") or sys.gettrace() is not None:
        return reader(text, *more)
    name = f"{reader.__module__}.{reader.__qualname__}{more!r}"
    key = name, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    if key not in _known:
        _known[key] = _answer(reader, text, more)
        while len(_known) > _REMEMBERED:
            _known.popitem(last=False)
    kind, value = pickle.loads(_known[key])
    if kind == "value":
        return cast(T, value)
    if kind == "too much":
        raise TooMuch(value)
    error_type, arguments, state = value
    error = error_type.__new__(error_type, *arguments)
    error.args = arguments
    error.__dict__.update(state)
    raise error


def _answer(reader: Callable[..., Any], text: str, more: tuple[Any, ...]) -> bytes:
    """What a fork sends: (kind, value), pickled. It runs none but our own code, on text."""
    ours, theirs = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(ours)
            with os.fdopen(theirs, "wb") as line:
                line.write(_worked_out(reader, text, more))
            status = 0
        finally:
            os._exit(status)
    os.close(theirs)
    try:
        sent = _received(ours)
    finally:
        os.close(ours)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return sent or _too_much("it takes more time or memory to read than any answer needs")


def _too_much(text: str) -> bytes:
    return pickle.dumps(("too much", text))


def _received(line: int) -> bytes:
    """All that the child writes; nothing if that is not a whole answer in time."""
    end = time.monotonic() + WALL_SECONDS
    parts: list[bytes] = []
    while (left := end - time.monotonic()) > 0 and select.select([line], [], [], left)[0]:
        part = os.read(line, 2**16)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return b""


def _worked_out(reader: Callable[..., Any], text: str, more: tuple[Any, ...]) -> bytes:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    used = resource.getrusage(resource.RUSAGE_SELF)
    whole = int(used.ru_utime + used.ru_stime) + CPU_SECONDS + 1
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole))
    limit_growth(MORE_BYTES)
    try:
        value = reader(text, *more)
        _count(value)
        sent = pickle.dumps(("value", value))
    except TooMuch as error:
        return _too_much(str(error))
    except (MemoryError, RecursionError):
        return _too_much("it is nested or multiplied beyond what any answer needs")
    except Exception as error:
        state = {k: v for k, v in vars(error).items() if k not in ("__notes__",)}
        sent = pickle.dumps(("error", (type(error), error.args, state)))
    if len(sent) > MOST_SENT:
        return _too_much("what it says is longer than any answer")
    return sent


def _count(value: object) -> None:
    """Refuse a value that is large when every place where something stands counts. (Anchors of
    YAML make 10^9 values of 300 bytes.)"""
    values, characters, waiting = 0, 0, [value]
    while waiting:
        each = waiting.pop()
        values += 1
        if isinstance(each, str | bytes):
            characters += len(each)
        elif isinstance(each, dict):
            waiting += each.keys()
            waiting += each.values()
        elif isinstance(each, list | tuple | set | frozenset):
            waiting += each
        elif is_dataclass(each):
            waiting += [getattr(each, field.name) for field in fields(each)]
        if values + len(waiting) > MOST_VALUES or characters > MOST_CHARACTERS:
            raise TooMuch("it holds more values than any answer needs")
