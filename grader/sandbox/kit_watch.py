"""Whether student code has replaced something of the kit's own in its process.

Probes hold what they import of the kit bound (`bind`): what a module's names mean later does not
reach them. And before and after each probe all functions and classes of the loaded modules of
`grader`, and of the probes, are compared with what they were before any student code ran; in the
process of a rank, which is a copy, once more when its function has returned. What is replaced and
put back between two looks is not seen: a figure that student code could forge that way
is crossed with one from outside.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from grader.sandbox import object_bytes
from grader.sandbox.modules import NewModules
from grader.sandbox.object_bytes import Reader

_PACKAGE = "grader"
_TRACKED = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    type,
    property,
    classmethod,
    staticmethod,
)
_running: list[Callable[[], list[str]]] = []
Names = dict[str, Any] | types.MappingProxyType[str, Any]


class _Namespace(NamedTuple):
    """The functions, classes and modules that a module, a class or the probes held."""

    place: str
    names: Names
    held: dict[str, Any]
    is_class: bool


class KitWatch:
    """Made before student code runs; `probes` is the namespace of the probes."""

    def __init__(self, probes: dict[str, Any]) -> None:
        self._bytes: list[tuple[Reader, bytes, Reader, bytes, _Namespace]] = []
        self._codes: list[tuple[types.FunctionType, types.CodeType, str, str]] = []
        self._bound: list[tuple[Callable[[], object], object, str, str]] = []
        self._classes: set[type] = set()
        self._see("the probes", probes)
        for name, module in modules_of_the_kit().items():
            self._see(name, vars(module))
        functions = {id(function): function for function, *_ in self._codes}.values()
        self._read_codes = list(map(object_bytes.code, functions)) if object_bytes.known() else []
        self._had_codes = b"".join([read() for read in self._read_codes])

    def _see(self, place: str, names: Names, is_class: bool = False) -> None:
        """Remember what a namespace's functions, classes and modules are."""
        held: dict[str, Any] = {
            n: v for n, v in list(names.items()) if isinstance(v, (*_TRACKED, _Bound))
        }
        for name, value in held.items():
            function = _function(value)
            if type(value) is _Bound:
                look = functools.partial(object.__getattribute__, value, "_Bound__attributes")
                self._bound.append((look, look(), name, place))
            elif isinstance(function, types.FunctionType):
                self._codes.append((function, function.__code__, name, place))
            if _is_own_class(value) and value not in self._classes:
                self._classes.add(value)
                self._see(f"{value.__module__}.{value.__qualname__}", vars(value), is_class=True)
        self._bytes.append((*_bytes_of(names), _Namespace(place, names, held, is_class)))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """A probe runs in the block; `problems_of_the_process` asks this watch."""
        problems = self.problems
        _running.append(problems)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):
                _running.remove(problems)

    def problems(self) -> list[str]:
        """One clause for each name that was replaced. It is asked before and after each probe, and
        calls no function of the kit's while nothing is.

        Only namespaces of which bytes have changed are looked through (`object_bytes`): a look at
        every name would copy 1,500 pages in each rank, and take 6 ms.
        """
        spaces = [
            space
            for place, had_place, table, had_table, space in self._bytes
            if place() != had_place or table() != had_table
        ]
        replaced = [
            (at, n)
            for at, names, held, _ in spaces
            for n, v in held.items()
            if names.get(n) is not v
        ]
        codes = b"".join([read() for read in self._read_codes])
        if not codes or codes != self._had_codes:
            replaced += [(at, n) for f, code, n, at in self._codes if f.__code__ is not code]
        replaced += [(at, n) for look, had, n, at in self._bound if look() is not had]
        replaced += [  # a class's new method hides an inherited one
            (at.rpartition(".")[2], n)
            for at, names, held, is_class in spaces
            if is_class
            for n, v in list(names.items())
            if n not in held and isinstance(v, _TRACKED)
        ]
        return [f"{place}.{name} was replaced" for place, name in replaced] if replaced else []


_modules: dict[str, types.ModuleType] = {}
_new = NewModules()


def modules_of_the_kit() -> dict[str, types.ModuleType]:
    """The kit's modules that are loaded. A process that forks others calls this first: they then
    look only at what they load themselves."""
    found = _new.take()
    _modules.update((n, m) for n, m in found if _is_kit(n) and type(m) is types.ModuleType)
    return _modules


def _bytes_of(names: Names) -> tuple[Reader, bytes, Reader, bytes]:
    """Readers of a namespace, and what they read; one that cannot be read always seems changed."""
    found = object_bytes.table(names)
    place, table = found or (bytes, bytes)
    return place, place() if found else b"unknown", table, table()


def problems_of_the_process() -> Callable[[], list[str]]:
    """`problems` of the watch whose probe this process runs, for a rank: taken before its function
    is called."""
    return _running[-1] if _running else list


def bind(names: dict[str, Any]) -> None:
    """Put in the place of each module of the kit an object that has its present attributes."""
    for name, value in list(names.items()):
        if type(value) is types.ModuleType and _is_kit(value.__name__):
            names[name] = _Bound(value)


class _Bound:
    """The attributes that a module had; it cannot be changed by assignment."""

    __slots__ = ("__attributes",)

    def __init__(self, module: types.ModuleType) -> None:
        object.__setattr__(self, "_Bound__attributes", types.MappingProxyType(dict(vars(module))))

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "_Bound__attributes")[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, _value: Any) -> None:
        raise AttributeError(f"{name} cannot be set: the kit's own is read-only")


def _is_own_class(value: Any) -> bool:
    return type(value) is type and (_is_kit(value.__module__) or value.__module__ == "probes")


def _is_kit(module: str) -> bool:
    return module.partition(".")[0] == _PACKAGE


def _function(value: Any) -> object:
    """What a property or a method of a class calls, or the value itself."""
    return getattr(value, "fget", None) or getattr(value, "__func__", None) or value
