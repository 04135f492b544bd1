"""Answers that solve nothing: each must earn nothing at every task of every lab."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from grader.sandbox.backends import LocalBackend
from grader.suite import format

Fake = Callable[[Any], Any]


def fakes(name: str) -> Iterator[tuple[str, Callable[[ModuleType], None]]]:
    """(what it does, how it takes the place of `name` in a fresh reference module)."""
    for label, make in _MAKERS.items():
        yield label, _replacing(name, make)


def put_in(backend: LocalBackend, patch: Callable[[ModuleType], None]) -> None:
    """Load the files of a backend and put a fake into them."""
    backend.load()
    for module in backend.server.sound:
        patch(module)


def _replacing(name: str, make: Fake) -> Callable[[ModuleType], None]:
    def patch(module: ModuleType) -> None:
        real = getattr(module, name, None)
        if real is None:
            return
        if isinstance(real, type):
            fake: Any = _hollow(name, make(lambda *_a, **_k: 0))
        elif getattr(real, "__annotations__", {}).get("return", real) in (None, "None"):
            # What it does is its answer: a fake that called it would be the reference.
            fake = _none(real)
        else:
            fake = make(real)
        fake.__module__ = module.__name__  # what the kit itself made is refused before it is judged
        setattr(module, name, fake)

    return patch


def _hollow(name: str, answer: Callable[..., Any]) -> type:
    """A class of that name that takes anything, does nothing and holds the fake's answer."""

    def nothing(self: Any, *_args: Any, **_kwargs: Any) -> None:
        return None

    def attribute(self: Any, _name: str) -> Any:
        return answer()

    body = {
        "__init__": nothing,
        "__enter__": lambda self: self,
        "__exit__": nothing,
        "__getattr__": attribute,
    }
    return type(name, (), body)


def _none(_real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_args, **_kwargs: None


def _number(value: float) -> Fake:
    return lambda _real: lambda *_args, **_kwargs: value


def _first_argument(_real: Callable[..., Any]) -> Callable[..., Any]:
    def fake(*args: Any, **kwargs: Any) -> Any:
        return args[0] if args else next(iter(kwargs.values()), None)

    return fake


def _shaped(number: float) -> Fake:
    """The right answer's form with every number replaced."""

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: _filled(real(*args, **kwargs), number)

    return make


def _constant(real: Callable[..., Any]) -> Callable[..., Any]:
    """The right answer to the first question, for ever."""
    known: list[Any] = []

    def fake(*args: Any, **kwargs: Any) -> Any:
        if not known:
            known.append(real(*args, **kwargs))
        return known[0]

    return fake


def _filled(value: Any, number: float) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        return ""
    if isinstance(value, bool):
        return bool(number) if number == number else number
    if isinstance(value, int):
        return int(number) if number == number else number
    if isinstance(value, float):
        return number
    if type(value).__name__ == "Future":
        return value.then(lambda done: _filled(done.value(), number))
    if format.is_array(value):
        array: Any = value
        if hasattr(array, "new_full"):
            real = array.is_floating_point() or number == number
            return array.new_full(array.shape, number if real else 0)
        real = array.dtype.kind == "f" or number == number
        return array * 0 + (number if real else 0)
    if isinstance(value, list | tuple):
        return type(value)([_filled(item, number) for item in value])
    if isinstance(value, dict):
        return {key: _filled(item, number) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {
            item.name: _filled(getattr(value, item.name), number)
            for item in dataclasses.fields(value)
            if item.init
        }
        return dataclasses.replace(value, **changes)
    return value


_MAKERS: dict[str, Fake] = {
    "returns None": _none,
    "returns 0": _number(0),
    "returns 1.0": _number(1.0),
    "returns NaN": _number(float("nan")),
    "returns its first argument": _first_argument,
    "returns zeros of the right form": _shaped(0),
    "returns ones of the right form": _shaped(1),
    "returns NaN of the right form": _shaped(float("nan")),
    "returns its first answer for ever": _constant,
}
