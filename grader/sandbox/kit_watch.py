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
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

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


class KitWatch:
    """Made before student code runs; `probes` is the namespace of the probes."""

    def __init__(self, probes: dict[str, Any]) -> None:
        self._values: list[tuple[Callable[[str], Any], str, Any, str]] = []
        self._codes: list[tuple[types.FunctionType, types.CodeType, str, str]] = []
        self._bound: list[tuple[Callable[[], object], object, str, str]] = []
        self._classes: dict[type, tuple[Names, frozenset[str], frozenset[str]]] = {}
        self._others: list[tuple[Callable[[str], Any], str, Any]] = []
        self._see("the probes", probes)
        for name, module in list(sys.modules.items()):
            if _is_kit(name) and type(module) is types.ModuleType:
                self._see(name, vars(module))

    def _see(self, place: str, names: Names) -> None:
        """Remember what a namespace's functions, classes and modules are."""
        for name, value in list(names.items()):
            if not isinstance(value, (*_TRACKED, _Bound)):
                continue
            self._values.append((names.get, name, value, place))
            function = _function(value)
            if type(value) is _Bound:
                look = functools.partial(object.__getattribute__, value, "_Bound__attributes")
                self._bound.append((look, look(), name, place))
            elif isinstance(function, types.FunctionType):
                self._codes.append((function, function.__code__, name, place))
            if _is_own_class(value) and value not in self._classes:
                inside, held = vars(value), _held(value)
                self._classes[value] = (inside, frozenset(inside), held)
                self._others += [(inside.get, n, inside[n]) for n in inside if n not in held]
                self._see(f"{value.__module__}.{value.__qualname__}", inside)

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
        calls no function of the kit's while nothing is."""
        replaced = [(place, n) for get, n, value, place in self._values if get(n) is not value]
        replaced += [(place, n) for f, code, n, place in self._codes if f.__code__ is not code]
        replaced += [(place, n) for look, had, n, place in self._bound if look() is not had]
        changed = [1 for now, names, _ in self._classes.values() if now.keys() != names]
        changed += [1 for get, name, value in self._others if get(name) is not value]
        if changed:
            replaced += self._added()
        return [f"{place}.{name} was replaced" for place, name in replaced] if replaced else []

    def _added(self) -> list[tuple[str, str]]:
        """Methods that a class has now, and had not."""
        return [
            (kind.__name__, name)
            for kind, (_, _, held) in self._classes.items()
            for name in sorted(_held(kind) - held)
        ]


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


def _held(kind: type) -> frozenset[str]:
    """The names of a class's own methods: one more hides an inherited one."""
    return frozenset(n for n, value in list(vars(kind).items()) if isinstance(value, _TRACKED))


def _is_kit(module: str) -> bool:
    return module.partition(".")[0] == _PACKAGE


def _function(value: Any) -> object:
    """What a property or a method of a class calls, or the value itself."""
    return getattr(value, "fget", None) or getattr(value, "__func__", None) or value
