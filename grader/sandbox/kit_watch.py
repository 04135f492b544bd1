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
Row = tuple[dict[str, Any] | types.MappingProxyType[str, Any], str, str, Any, Any]


class KitWatch:
    """Made before student code runs; `probes` is the namespace of the probes."""

    def __init__(self, probes: dict[str, Any]) -> None:
        self._seen: list[Row] = list(_rows("the probes", probes))
        for name, module in list(sys.modules.items()):
            if _is_kit(name) and type(module) is types.ModuleType:
                self._seen += _rows(name, vars(module))
        classes = {id(row[3]): row[3] for row in self._seen if _is_own_class(row[3])}
        self._classes = [(kind, _held(kind)) for kind in classes.values()]

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
        """One clause for each name that was replaced."""
        replaced = [
            f"{place}.{name} was replaced"
            for names, place, name, value, code in self._seen
            if names.get(name) is not value or _code(value) is not code
        ]
        added = [
            f"{kind.__name__}.{name} was replaced"
            for kind, held in self._classes
            for name in sorted(_held(kind) - held)
        ]
        return replaced + added


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


def _rows(place: str, names: dict[str, Any]) -> Iterator[Row]:
    for name, value in list(names.items()):
        if not isinstance(value, (*_TRACKED, _Bound)):
            continue
        yield names, place, name, value, _code(value)
        if _is_own_class(value) and value.__module__ in (place, names.get("__name__")):
            inside = vars(value)
            for part, held in list(inside.items()):
                if isinstance(held, _TRACKED):
                    yield inside, f"{place}.{name}", part, held, _code(held)


def _code(value: Any) -> object:
    if type(value) is _Bound:
        return object.__getattribute__(value, "_Bound__attributes")
    function = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
    return getattr(function, "__code__", None)
