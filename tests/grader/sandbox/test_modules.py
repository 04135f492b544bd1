"""Which modules were loaded since another look, without a look at all of them."""

from __future__ import annotations

import sys
import types

import pytest

from grader.sandbox.modules import LoadedSoFar


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, types.ModuleType]:
    """Three modules in the place of those that are loaded."""
    made = {name: types.ModuleType(name) for name in ("one", "two", "three")}
    monkeypatch.setattr(sys, "modules", made)
    return made


def _since(so_far: LoadedSoFar) -> list[str]:
    found = so_far.since()
    assert all(sys.modules[name] is module for name, module in found)
    return sorted(name for name, _ in found)


def test_nothing_is_new_at_first(modules: dict[str, types.ModuleType]) -> None:
    assert _since(LoadedSoFar()) == []


def test_what_came_later_is_new(modules: dict[str, types.ModuleType]) -> None:
    so_far = LoadedSoFar()
    modules["four"], modules["five"] = types.ModuleType("four"), types.ModuleType("five")
    assert _since(so_far) == ["five", "four"]


@pytest.mark.parametrize("name", ["one", "three"])
def test_where_one_has_gone_all_are_looked_at(
    modules: dict[str, types.ModuleType], name: str
) -> None:
    so_far = LoadedSoFar()
    modules["four"] = types.ModuleType("four")
    del modules[name]
    assert _since(so_far) == sorted(modules)


@pytest.mark.parametrize("name", ["one", "three"])
def test_where_one_has_moved_nothing_new_is_missed(
    modules: dict[str, types.ModuleType], name: str
) -> None:
    """It went and came back, behind what is new."""
    so_far = LoadedSoFar()
    gone = modules.pop(name)
    modules["four"] = types.ModuleType("four")
    modules[name] = gone
    assert "four" in _since(so_far)


def test_where_none_was_loaded_all_are_new(modules: dict[str, types.ModuleType]) -> None:
    held = dict(modules)
    modules.clear()
    so_far = LoadedSoFar()
    modules.update(held)
    assert _since(so_far) == sorted(held)


def test_another_module_of_the_last_ones_name_is_new(
    modules: dict[str, types.ModuleType],
) -> None:
    so_far = LoadedSoFar()
    modules["three"] = types.ModuleType("three")
    assert "three" in _since(so_far)
