"""What student code replaces of the kit is noticed, and probes keep what they were made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.errors import Disturbed
from grader.sandbox.backends import Backend, Limits, LocalBackend
from grader.sandbox.client import Session, Student
from grader.sandbox.process import ProcessBackend
from grader.sandbox.server import CodeSpec

PROBES = """
from grader import meters

def helper():
    return 1

def kind(student):
    student.answer()
    return type(meters.numpy_bytes()).__module__

def helped(student):
    student.answer()
    return helper()
"""
HEAD = """
import importlib, sys
kit = lambda name: importlib.import_module("gra" + "der." + name)
"""
REPLACED = {
    "a factory, at import": """
kit("meters").numpy_bytes = lambda: 0
def answer(): pass
""",
    "a factory, in the call": """
def answer(): kit("meters").numpy_bytes = lambda: 0
""",
    "a method of a meter": """
def answer(): kit("meters.tracemalloc_meter").NumpyBytes.__enter__ = lambda self: self
""",
    "the code of a function": """
def forged(): return 0
def answer(): kit("meters").preload.__code__ = forged.__code__
""",
    "the code of a method": """
def forged(self): return self
def answer(): kit("meters.tracemalloc_meter").NumpyBytes.__enter__.__code__ = forged.__code__
""",
    "the code of what a property calls": """
def forged(self): return 0
def answer(): vars(kit("sandbox.channel").Channel)["pending"].fget.__code__ = forged.__code__
""",
    "a method that hides an inherited one": """
def answer(): kit("meters.tracemalloc_meter").NumpyBytes.__ne__ = lambda self, other: True
""",
    "an attribute that becomes a method": """
def answer(): kit("meters.tracemalloc_meter").NumpyBytes.__doc__ = lambda self: None
""",
    "a function that is deleted": """
def answer(): del kit("meters").numpy_bytes
""",
    "a module": """
def answer(): kit("meters.tracemalloc_meter"); sys.modules["grader"].meters = sys
""",
    "a function of the probes": """
def answer():
    frame = sys._getframe()
    while frame.f_globals.get("__name__") != "probes": frame = frame.f_back
    frame.f_globals["helper"] = lambda: 2
""",
    "a module that the probes hold": """
def answer():
    frame = sys._getframe()
    while frame.f_globals.get("__name__") != "probes": frame = frame.f_back
    frame.f_globals["meters"] = sys
""",
    "what a module that the probes hold has": """
def answer():
    frame = sys._getframe()
    while frame.f_globals.get("__name__") != "probes": frame = frame.f_back
    object.__setattr__(frame.f_globals["meters"], "_Bound__attributes", {})
""",
    "the look itself": """
kit("sandbox.kit_watch").KitWatch.problems = lambda self: []
kit("sandbox.server").Server.refuse_replaced = lambda self: None
def answer(): pass
""",
    "the server": """
server = kit("sandbox.server").Server
real = server.answer
server.answer = lambda self, op, *given: ("ok", 1, []) if op == "probe" else real(self, op, *given)
def answer(): pass
""",
    "what watches arguments": """
kit("sandbox.purity").Watch.same = lambda self: True
def answer(): pass
""",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "lab"
    made.mkdir()
    return made


def opened(folder: Path, source: str, local: bool = False) -> Backend:
    (folder / "mine.py").write_text(HEAD + source)
    spec = CodeSpec(folder, ("mine.py",), (), probes=PROBES)
    return (LocalBackend if local else ProcessBackend)(spec, Limits(60.0))


@pytest.fixture
def closing() -> Iterator[list[Backend]]:
    made: list[Backend] = []
    yield made
    for backend in made:
        backend.close()


@pytest.mark.parametrize("what", REPLACED)
def test_what_is_replaced_is_noticed(folder: Path, closing: list[Backend], what: str) -> None:
    backend = opened(folder, REPLACED[what])
    closing.append(backend)
    probe = Student(Session(backend, {}, {})).probe
    with pytest.raises(Disturbed, match="was replaced"):
        probe.helped()
    with pytest.raises(Disturbed, match="was replaced"):
        probe.helped()


@pytest.mark.parametrize("local", [False, True])
def test_honest_code_is_left_alone(folder: Path, closing: list[Backend], local: bool) -> None:
    backend = opened(folder, "def answer(): kit('meters')", local)
    closing.append(backend)
    probe = Student(Session(backend, {}, {})).probe
    assert probe.kind() == "grader.meters.tracemalloc_meter"
    assert probe.helped() == 1


def test_probes_keep_the_factories_that_they_were_made_with(
    folder: Path, closing: list[Backend]
) -> None:
    source = """
def answer():
    own = kit("meters")
    real = own.numpy_bytes
    def forged():
        own.numpy_bytes = real
        return 0
    own.numpy_bytes = forged
"""
    backend = opened(folder, source)
    closing.append(backend)
    with pytest.raises(Disturbed):  # the forged factory was never asked, so it is still there
        Student(Session(backend, {}, {})).probe.kind()


RESTORED = """
real = []

def replace():
    real.append(kit("meters").numpy_bytes)
    kit("meters").numpy_bytes = lambda: 0

def answer():
    if real:
        kit("meters").numpy_bytes = real.pop()

class Held:
    def __del__(self):
        replace()

def held():
    return Held()
"""


@pytest.mark.parametrize("by", ["a call", "what is forgotten"])
def test_what_is_replaced_between_probes_is_noticed_before_the_next(
    folder: Path, closing: list[Backend], by: str
) -> None:
    """The next probe's own student code puts it back before the look that follows."""
    backend = opened(folder, RESTORED)
    closing.append(backend)
    student = Student(Session(backend, {}, {}))
    for _ in range(2):
        assert student.probe.helped() == 1
    if by == "a call":
        student.replace()
    else:
        student.held()
        assert student.probe.helped() == 1
        backend.forget()
    with pytest.raises(Disturbed, match="numpy_bytes was replaced"):
        student.probe.helped()
