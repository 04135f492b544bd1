"""A task whose answer is a text: `student.read` on files that people save in all sorts of ways."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grader.errors import LoadFailed, NotStarted
from grader.sandbox.client import MAX_TEXT_BYTES, Session, Student

TASK = "lab99.plan"


def _student(folder: Path, name: str, data: bytes) -> Student:
    path = folder / name
    path.write_bytes(data)
    backend: Any = SimpleNamespace()
    return Student(Session(backend, {}, {name: path}, TASK))


@pytest.mark.parametrize(
    "data", [b"a: 1\nb: 2\n", b"a: 1\r\nb: 2\r\n", b"\xef\xbb\xbfa: 1\nb: 2\n"]
)
def test_line_ends_and_byte_order_marks_do_not_matter(tmp_path: Path, data: bytes) -> None:
    assert _student(tmp_path, "plan.yaml", data).read("plan.yaml") == "a: 1\nb: 2\n"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a: 1\nb: \xe9\n", "plan.yaml is not UTF-8 text (byte 0xe9); save it as UTF-8"),
        ("a: 1\n".encode("utf-16-be"), "plan.yaml holds zero bytes"),
        (b"x" * (MAX_TEXT_BYTES + 1), "plan.yaml is larger than 256 KiB"),
    ],
)
def test_what_is_no_text_is_told_in_a_sentence(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(LoadFailed) as caught:
        _student(tmp_path, "plan.yaml", data).read("plan.yaml")
    assert said in caught.value.text


def test_the_line_of_a_bad_byte_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed) as caught:
        _student(tmp_path, "notes.md", b"one\ntwo \xff\n").read("notes.md")
    assert caught.value.where == "notes.md:2"


def test_a_compiler_judges_its_own_bytes(tmp_path: Path) -> None:
    text = _student(tmp_path, "k.cu", b"// caf\xe9\nint x;\n").read("k.cu")
    assert "int x;" in text


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("run.sh", f"  # NOT STARTED {TASK}"),
        ("plan.yaml", f"# NOT STARTED {TASK}"),
        ("plan.md", f"<!-- NOT STARTED {TASK} -->"),
    ],
)
def test_a_placeholder_in_any_language_is_not_started(tmp_path: Path, name: str, row: str) -> None:
    with pytest.raises(NotStarted) as caught:
        _student(tmp_path, name, f"first\n{row}\n".encode()).read(name)
    assert caught.value.where == f"{name}:2"
