"""Functions tell when they start: those that were there, those that are imported later, whatever
way they are called; and they go on as they were."""

from __future__ import annotations

import asyncio
import dis
import functools
import importlib
import sys
import textwrap
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grader.sandbox import code_starts

SOURCE = '''
import contextlib, functools

def plain(value, *, twice=False):
    """What it says."""
    return value * 2 if twice else value

def raises(value):
    try:
        return 1 // value
    except ZeroDivisionError as error:
        raise ValueError("no zero") from error

def generator(count):
    for at in range(count):
        yield at

def closure(value):
    def inner(more):
        return value + more
    return inner

@functools.lru_cache
def cached(value):
    return value + 1

@contextlib.contextmanager
def context():
    yield "inside"

async def later(value):
    return value + 1

def fallback(value, depth=3):
    return value if depth == 0 else fallback(value, depth - 1)

class Kind:
    def __init__(self, value):
        self.value = value
    @property
    def double(self):
        return self.value * 2
    @classmethod
    def made(cls, value):
        return cls(value)
    @staticmethod
    def told(value):
        return [each for each in (lambda: [value])()]
'''

CALLS = {
    "plain": lambda m: m.plain(2, twice=True),
    "raises": lambda m: m.raises(2),
    "generator": lambda m: list(m.generator(3)),
    "closure": lambda m: m.closure(1)(2),
    "closure.<locals>.inner": lambda m: m.closure(1)(2),
    "cached": lambda m: m.cached(3),
    "context": lambda m: m.context().__enter__(),
    "later": lambda m: asyncio.run(m.later(1)),
    "fallback": lambda m: m.fallback(1),
    "Kind.__init__": lambda m: m.Kind(1).value,
    "Kind.double": lambda m: m.Kind(1).double,
    "Kind.made": lambda m: m.Kind.made(1).value,
    "Kind.told": lambda m: m.Kind.told(1),
}


@pytest.fixture
def module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> types.ModuleType:
    """A module of its own for each test: what is marked stays so."""
    name = f"told_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module(name)


@pytest.fixture
def told() -> Iterator[list[str]]:
    seen: list[str] = []

    def note(full: str, frame: types.FrameType) -> None:
        assert full.endswith(f".{frame.f_code.co_qualname}")
        seen.append(full)

    code_starts._told.append(note)
    yield seen
    code_starts._told.remove(note)


def nothing(_full: str, _frame: types.FrameType) -> None:
    """Listens to nothing."""


def begin(*names: str) -> None:
    assert code_starts.tell(nothing, names)


@pytest.mark.parametrize("name", CALLS)
def test_a_function_tells_and_does_what_it_did(
    module: types.ModuleType, told: list[str], name: str
) -> None:
    before = CALLS[name](module)
    if name == "cached":
        module.cached.cache_clear()
    begin(module.__name__)
    assert CALLS[name](module) == before
    assert f"{module.__name__}.{name}" in told


@pytest.mark.parametrize("name", CALLS)
def test_so_does_one_that_is_imported_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str], name: str
) -> None:
    package = tmp_path / f"later_{abs(hash(name))}"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "deep" / "__init__.py").touch()
    (package / "deep" / "parts.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    begin(f"{package.name}.deep")
    loaded = importlib.import_module(f"{package.name}.deep.parts")
    CALLS[name](loaded)
    assert f"{package.name}.deep.parts.{name}" in [
        full.replace(f"{loaded.__name__}.", f"{package.name}.deep.parts.") for full in told
    ]


def test_only_what_a_name_stands_for_tells(module: types.ModuleType, told: list[str]) -> None:
    begin(f"{module.__name__}.Kind", f"{module.__name__}.plai")
    module.plain(1)
    module.Kind.made(1)
    assert set(told) == {f"{module.__name__}.Kind.made", f"{module.__name__}.Kind.__init__"}


def test_it_tells_once_a_call(module: types.ModuleType, told: list[str]) -> None:
    begin(f"{module.__name__}.fallback")
    begin(f"{module.__name__}.fallback", module.__name__)
    module.fallback(1)
    assert told == [f"{module.__name__}.fallback"] * 4


def test_an_error_shows_the_lines_that_it_came_from(module: types.ModuleType) -> None:
    def places() -> list[tuple[str, int | None, int | None]]:
        with pytest.raises(ValueError, match="no zero") as caught:
            module.raises(0)
        first, second = caught.value, caught.value.__cause__
        assert second is not None
        return [
            (frame.name, frame.lineno, frame.colno)
            for error in (first, second)
            for frame in traceback.TracebackException.from_exception(error).stack
            if frame.filename == module.__file__
        ]

    before = places()
    begin(module.__name__)
    assert places() == before


def test_signature_and_documentation_stay(module: types.ModuleType) -> None:
    begin(module.__name__)
    assert module.plain.__doc__ == "What it says."
    assert module.plain.__kwdefaults__ == {"twice": False}
    with pytest.raises(TypeError, match="unexpected keyword argument 'thrice'"):
        module.plain(1, thrice=True)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="newer Pythons tell by themselves")
def test_code_with_a_call_is_the_same_code_otherwise() -> None:
    """Instructions, lines and handlers of functions of the standard library.   Oracle: `dis`."""
    seen = 0
    for module in (textwrap, functools, asyncio.tasks, traceback, importlib, dis):
        for value in vars(module).values():
            if isinstance(value, types.FunctionType):
                seen += 1
                _compare(value.__code__)
    assert seen > 60


def _compare(code: types.CodeType) -> None:
    at = code_starts._after_resume(code.co_code)
    changed = code_starts.with_call(code, lambda: None)
    more = len(changed.co_code) - len(code.co_code)

    def moved(offset: int) -> int:
        return offset + more if offset >= at else offset

    def rows(each: types.CodeType) -> list[tuple[Any, ...]]:
        return [(i.offset, i.opname, i.arg, i.positions) for i in dis.get_instructions(each)]

    old = [(moved(offset), *rest) for offset, *rest in rows(code)]
    assert old == [row for row in rows(changed) if not at <= row[0] < at + more]

    def handlers(each: types.CodeType) -> list[tuple[int, ...]]:
        entries = dis._parse_exception_table(each)  # type: ignore[attr-defined]
        return [(e.start, e.end, e.target, e.depth, e.lasti) for e in entries]

    assert [(moved(a), moved(b), moved(c), *rest) for a, b, c, *rest in handlers(code)] == handlers(
        changed
    )


def test_a_constant_beyond_the_first_256() -> None:
    names: dict[str, Any] = {}
    lines = "\n".join(f"    total += {1000 + at}" for at in range(400))
    exec(f"def many(total):\n{lines}\n    return total", names)
    want = names["many"](1)
    seen: list[int] = []
    if sys.version_info < (3, 12):
        names["many"].__code__ = code_starts.with_call(
            names["many"].__code__, functools.partial(seen.append, 1)
        )
        assert names["many"](1) == want
        assert seen == [1]
