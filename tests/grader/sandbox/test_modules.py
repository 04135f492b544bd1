"""Which modules were loaded since another look, without a look at all of them."""

from __future__ import annotations

import sys
import types

import pytest

from grader.sandbox.modules import NewModules


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, types.ModuleType]:
    """Three modules in the place of those that are loaded."""
    made = {name: types.ModuleType(name) for name in ("one", "two", "three")}
    monkeypatch.setattr(sys, "modules", made)
    return made


def _seen() -> NewModules:
    """What has looked at all that is loaded now."""
    new = NewModules()
    assert new.take() == list(reversed(sys.modules.items()))
    return new


def _since(new: NewModules) -> list[str]:
    found = new.take()
    assert all(sys.modules[name] is module for name, module in found)
    return sorted(name for name, _ in found)


def test_nothing_is_new_at_first(modules: dict[str, types.ModuleType]) -> None:
    assert _since(_seen()) == []


def test_what_came_later_is_new(modules: dict[str, types.ModuleType]) -> None:
    new = _seen()
    modules["four"], modules["five"] = types.ModuleType("four"), types.ModuleType("five")
    assert _since(new) == ["five", "four"]


@pytest.mark.parametrize("name", ["one", "three"])
def test_where_one_has_gone_all_are_looked_at(
    modules: dict[str, types.ModuleType], name: str
) -> None:
    new = _seen()
    modules["four"] = types.ModuleType("four")
    del modules[name]
    assert _since(new) == sorted(modules)


@pytest.mark.parametrize("name", ["one", "three"])
def test_where_one_has_moved_nothing_new_is_missed(
    modules: dict[str, types.ModuleType], name: str
) -> None:
    """It went and came back, behind what is new."""
    new = _seen()
    gone = modules.pop(name)
    modules["four"] = types.ModuleType("four")
    modules[name] = gone
    assert "four" in _since(new)


def test_where_none_was_loaded_all_are_new(modules: dict[str, types.ModuleType]) -> None:
    held = dict(modules)
    modules.clear()
    new = _seen()
    modules.update(held)
    assert _since(new) == sorted(held)


def test_another_module_of_the_last_ones_name_is_new(
    modules: dict[str, types.ModuleType],
) -> None:
    new = _seen()
    modules["three"] = types.ModuleType("three")
    assert "three" in _since(new)
