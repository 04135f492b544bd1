"""Calls a function whenever code of certain names starts to run, and costs nothing elsewhere.

A name stands for what a library defines: a module, a class, a function, and all that lies in it.
Functions that are there get their code replaced (Python 3.11), or are marked for `sys.monitoring`
(3.12 and later); modules that are imported later get it as they are loaded. All of it stays, also
in processes that are forked from this one. On Python 3.11 such code can neither be marshalled nor
traced by `torch.compile`. A generator tells when it begins, not when it goes on.
"""

from __future__ import annotations

import functools
import gc
import opcode
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, FrameType, FunctionType
from typing import Any

Told = Callable[[str, FrameType], None]
_TOOL = 4  # of `sys.monitoring`; 0 to 2 and 5 have a meaning
OPTIMIZED = 0x1  # functions have it, bodies of modules and classes have not

_NO_COLUMNS = 13  # how an entry of a table of lines begins that has a line alone, so many lines on

_names: list[str] = []
_told: list[Told] = []
_marked: dict[int, tuple[CodeType, str]] = {}


def tell(told: Told, names: Iterable[str]) -> bool:
    """From now on call `told` with the whole name and the frame of each function that starts and
    that one of the names stands for. False: this Python cannot, and nothing is told."""
    if not _can():
        return False
    if told not in _told:
        _told.append(told)
    fresh = [name for name in names if name not in _names]
    if fresh:
        _names.extend(fresh)
        if not any(isinstance(each, _Later) for each in sys.meta_path):
            sys.meta_path.insert(0, _Later())
        for function in _functions(fresh):
            _mark_function(function)
    return True


def stands_for(names: Iterable[str], full: str) -> bool:
    return any(full == name or full.startswith(f"{name}.") for name in names)


@functools.cache
def _can() -> bool:
    if sys.version_info[:2] == (3, 11):
        return True
    if sys.version_info < (3, 12):
        return False
    monitoring = sys.monitoring
    if monitoring.get_tool(_TOOL) is not None:
        return False
    monitoring.use_tool_id(_TOOL, "infralens")
    monitoring.register_callback(_TOOL, monitoring.events.PY_START, _started)
    return True


def _functions(names: Sequence[str]) -> Iterator[FunctionType]:
    """The functions of this process that the names stand for. The collector knows all of them, but
    shows what is frozen only while it is not."""
    frozen = gc.get_freeze_count()
    if frozen:
        gc.unfreeze()
    everything = gc.get_objects()
    if frozen:
        gc.freeze()
    for each in everything:
        if type(each) is FunctionType:
            module = each.__globals__.get("__name__")
            if type(module) is str and stands_for(names, f"{module}.{each.__code__.co_qualname}"):
                yield each


def _mark_function(function: FunctionType) -> None:
    if id(function.__code__) not in _marked:
        marked = _mark(function.__code__, function.__globals__["__name__"])
        if marked is not function.__code__:
            function.__code__ = marked


def _mark(code: CodeType, module: str) -> CodeType:
    """The code, and the code in it, such that starts of what has a name are told."""
    inside = [_mark(each, module) if _is_code(each) else each for each in code.co_consts]
    if any(new is not old for new, old in zip(inside, code.co_consts, strict=True)):
        code = code.replace(co_consts=tuple(inside))
    full = f"{module}.{code.co_qualname}"
    if code.co_flags & OPTIMIZED and stands_for(_names, full):
        if sys.version_info >= (3, 12):
            sys.monitoring.set_local_events(_TOOL, code, sys.monitoring.events.PY_START)
        else:
            code = with_call(code, functools.partial(_begun, full))
        _marked[id(code)] = (code, full)  # with the code, so that no other one gets its id
    return code


def _is_code(value: object) -> bool:
    return isinstance(value, CodeType)


def _begun(full: str) -> None:
    """What marked code calls first."""
    for told in _told:
        told(full, sys._getframe(1))


def _started(code: CodeType, _offset: int) -> Any:
    """What `sys.monitoring` calls."""
    if (marked := _marked.get(id(code))) is not None:
        for told in _told:
            told(marked[1], sys._getframe(1))


class _Later(MetaPathFinder):
    """Marks modules as they are imported. It finds none itself."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(
            stands_for((name,), fullname) or name.startswith(f"{fullname}.") for name in _names
        ):
            return None
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]
        for finder in later:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find else None
            if spec is not None:
                _mark_when_loaded(spec)
                return spec
        return None


def _mark_when_loaded(spec: ModuleSpec) -> None:
    """Have the spec's loader mark the code that it executes; a loader without any is left alone."""
    loader: Any = spec.loader
    original = getattr(loader, "get_code", None)
    if original is None or isinstance(loader, type):  # the loader of all frozen modules is a class
        return

    def get_code(fullname: str) -> CodeType | None:
        code = original(fullname)
        return code if code is None else _mark(code, fullname)

    try:
        loader.get_code = get_code
    except AttributeError:  # with slots, or in C
        return


# -- Python 3.11 ----------------------------------------------------------------------------------


def with_call(code: CodeType, function: Callable[[], object]) -> CodeType:
    """Python 3.11: the code, with a call of `function` before its first line. Its jumps are
    relative, and none of them leads across its start."""
    at = _after_resume(code.co_code)
    call = _call(len(code.co_consts))
    units = len(call) // 2
    return code.replace(
        co_code=code.co_code[:at] + call + code.co_code[at:],
        co_consts=(*code.co_consts, function),
        co_stacksize=max(code.co_stacksize, 2),
        co_linetable=_lines_with(code.co_linetable, at // 2, units),
        co_exceptiontable=_handlers_with(code.co_exceptiontable, at // 2, units),
    )


def _after_resume(code: bytes) -> int:
    resume = opcode.opmap["RESUME"]
    for at in range(0, len(code), 2):
        if code[at] == resume:
            return at + 2
    raise ValueError("a function's code has no RESUME")


def _call(const: int) -> bytes:
    """Bytecode that calls the constant of that number and drops what it returns."""
    given = const.to_bytes(4, "big").lstrip(b"\0") or b"\0"
    load = [("EXTENDED_ARG", byte) for byte in given[:-1]] + [("LOAD_CONST", given[-1])]
    rows = [("PUSH_NULL", 0), *load, ("PRECALL", 0), ("CALL", 0), ("POP_TOP", 0)]
    caches = {"PRECALL": 1, "CALL": 4}
    return b"".join(
        bytes([opcode.opmap[name], argument]) + bytes(2 * caches.get(name, 0))
        for name, argument in rows
    )


def _lines_with(table: bytes, at: int, units: int) -> bytes:
    """A table of lines with so many code units more, on the line of the one before them."""
    position = passed = 0
    while position < len(table) and passed < at:
        passed += (table[position] & 7) + 1
        position += 1
        while position < len(table) and not table[position] & 0x80:
            position += 1
    if passed != at:
        raise ValueError("an instruction lies across the start of a function")
    pieces = [min(8, units - done) for done in range(0, units, 8)]
    same = b"".join(bytes((0x80 | _NO_COLUMNS << 3 | piece - 1, 0)) for piece in pieces)
    return table[:position] + same + table[position:]


def _handlers_with(table: bytes, at: int, units: int) -> bytes:
    """A table of exception handlers whose places lie so many code units later."""
    numbers: list[int] = []
    goes_on = False
    for byte in table:
        if goes_on:
            numbers[-1] = numbers[-1] << 6 | byte & 63
        else:
            numbers.append(byte & 63)
        goes_on = bool(byte & 64)
    out = bytearray()
    for index, number in enumerate(numbers):
        place = index % 4 in (0, 2)  # start, length, target, depth
        out += _varint(number + units if place and number >= at else number, not index % 4)
    return bytes(out)


def _varint(number: int, first: bool) -> bytes:
    chunks = [number & 63]
    while number := number >> 6:
        chunks.append(64 | number & 63)
    chunks.reverse()
    chunks[0] |= 0x80 if first else 0
    return bytes(chunks)
