"""The bytes of namespaces and functions change where what they hold does, and only there."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from grader.sandbox import kit_watch, object_bytes

SOURCE = """
import types

count = 0

def first(): return 1
def second(): return 2

class Meter:
    def read(self): return 0
    @property
    def figure(self): return 0
    @staticmethod
    def made(): return 0
    limit = 1

class Empty:
    pass
"""
# Each change with what the watch reports. It reports functions, classes and modules only.
CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "nothing": (lambda m: m.first(), ""),
    "a number": (lambda m: setattr(m, "count", 1), ""),
    "a new name": (lambda m: setattr(m, "third", m.first), ""),
    "many new names": (lambda m: vars(m).update((f"n{i}", i) for i in range(1000)), ""),
    "a number of a class": (lambda m: setattr(m.Meter, "limit", 2), ""),
    "replaced and put back": (lambda m: [setattr(m, "first", f) for f in (m.second, m.first)], ""),
    "a function": (lambda m: setattr(m, "first", m.second), "fake.first was replaced"),
    "a function among many new names": (
        lambda m: vars(m).update({**{f"n{i}": i for i in range(1000)}, "first": m.second}),
        "fake.first was replaced",
    ),
    "a deleted function": (lambda m: delattr(m, "first"), "fake.first was replaced"),
    "code": (
        lambda m: setattr(m.first, "__code__", m.second.__code__),
        "fake.first was replaced",
    ),
    "code of a property": (
        lambda m: setattr(m.Meter.figure.fget, "__code__", m.first.__code__),
        "Meter.figure was replaced",
    ),
    "code of a static method": (
        lambda m: setattr(m.Meter.made, "__code__", m.first.__code__),
        "Meter.made was replaced",
    ),
    "a method": (lambda m: setattr(m.Meter, "read", m.first), "Meter.read was replaced"),
    "a method more": (lambda m: setattr(m.Empty, "__eq__", m.first), "Empty.__eq__ was replaced"),
    "a number that becomes a method": (
        lambda m: setattr(m.Meter, "limit", m.first),
        "Meter.limit was replaced",
    ),
    "a class": (lambda m: setattr(m, "Meter", m.Empty), "fake.Meter was replaced"),
    "a module": (lambda m: setattr(m, "types", sys), "fake.types was replaced"),
}


@pytest.fixture
def fake() -> Iterator[types.ModuleType]:
    """A loaded module of the kit."""
    made = types.ModuleType("grader.fake")
    exec(SOURCE, vars(made))
    sys.modules["grader.fake"] = made
    yield made
    del sys.modules["grader.fake"]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_a_watch_sees_what_was_replaced(
    fake: Any, change: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By bytes, and where the interpreter's layout is not known, name by name."""
    monkeypatch.setattr(object_bytes, "known", lambda: known)
    watch = kit_watch.KitWatch({})
    assert watch.problems() == []
    make, says = CHANGES[change]
    make(fake)
    for _ in range(2):
        found = watch.problems()
        assert bool(found) == bool(says), found
        assert all(says in each for each in found), found


def test_the_layout_of_the_interpreters_that_the_kit_supports_is_known() -> None:
    assert object_bytes.known()


def test_bytes_change_with_what_they_are_of(fake: Any) -> None:
    found = object_bytes.table(vars(fake))
    assert found is not None
    place, table = found
    code = object_bytes.code(fake.first)
    had = place(), table(), code()
    assert id(fake.first).to_bytes(8, sys.byteorder) in had[1]
    assert had == (place(), table(), code())
    fake.first.__code__ = fake.second.__code__
    assert had[2] != code()
    assert had[:2] == (place(), table())
    fake.first = fake.second
    assert had[1] != table()
    assert had[0] == place()
    vars(fake).update((f"n{i}", i) for i in range(1000))
    assert had[0] != place()


def test_values_apart_from_their_table_are_not_read() -> None:
    class Held:
        def __init__(self) -> None:
            self.one, self.two = 1, 2

    held, _other = Held(), Held()
    assert object_bytes.table(vars(held)) is None


def test_an_empty_namespace_is_read() -> None:
    names: dict[str, Any] = {}
    found = object_bytes.table(names)
    assert found is not None
    place, table = found
    had = place(), table()
    assert had == (place(), table())
    names["first"] = 1
    assert had[0] != place()
