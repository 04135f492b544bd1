"""Who may stand between a probe and the meter that it opens: the kit's given files, and no code of
a student's, whatever file it says that it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.errors import Disturbed
from grader.sandbox.backends import Limits, LocalBackend
from grader.sandbox.client import Session, Student
from grader.sandbox.server import CodeSpec

GIVEN = "def through(call):\n    return call()\n"
STUDENT = """
import toy

def through(call):
    return call()

names = {}
exec(compile("def through(call):\\n    return call()\\n", toy.__file__, "exec"), names)
disguised = names["through"]
"""
PROBES = """
from grader import meters

def _opened():
    with meters.op_log() as log:
        pass
    return len(log.ops)

def by_the_given_file(student):
    import toy
    return toy.through(_opened)

def by_the_student(student, name):
    return getattr(student, name)(_opened)
"""


@pytest.fixture
def student(tmp_path: Path) -> Student:
    (tmp_path / "mine.py").write_text(STUDENT, encoding="utf-8")
    (tmp_path / "toy.py").write_text(GIVEN, encoding="utf-8")
    spec = CodeSpec(tmp_path, ("mine.py",), ("toy.py",), PROBES)
    return Student(Session(LocalBackend(spec, Limits(20.0)), {}, {}))


def test_a_given_file_may_call_what_opens_a_meter(student: Student) -> None:
    assert student.probe.by_the_given_file() == 0


@pytest.mark.parametrize("name", ["through", "disguised"])
def test_student_code_may_not(student: Student, name: str) -> None:
    with pytest.raises(Disturbed, match="student code opened"):
        student.probe.by_the_student(name)
