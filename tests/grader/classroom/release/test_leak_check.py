"""A planted line is found wherever it stands, and byte code by what it is."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import marshal
import py_compile
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest

from grader.classroom.release import nested_files
from grader.classroom.release.byte_code import KnownCode
from grader.classroom.release.leak_check import LeakCheck
from grader.lab.manifest import load_lab
from grader.suite import secret_lines
from grader.suite.secret_lines import ALLOWED, NotSecret

from ...conftest import MiniKit

LINE = "total, means = 0.0, []  # both begin empty"
LONG = "means.append(total / (index + 1))"
SOURCE = """
def running_mean(values):
    total, means = 0.0, []
    for index, value in enumerate(values):
        total += value
        means.append(total / (index + 1))
    return means
"""


@pytest.fixture
def check(kit: MiniKit) -> LeakCheck:
    reference = kit.root / "reference.py"
    reference.write_text(SOURCE)
    lab = load_lab(kit.root, "lab90")
    secrets = list(secret_lines.of_reference(lab))
    return LeakCheck(secrets, {"lab90": NotSecret(lab, "public")}, KnownCode(iter([reference])))


def said(check: LeakCheck, name: str, data: bytes) -> list[str]:
    return [str(leak) for leak in check.leaks([(name, data)])]


def zipped(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return out.getvalue()


def tarred(name: str, data: bytes, mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        info = tarfile.TarInfo(name)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_a_file_without_a_secret_has_no_leak(check: LeakCheck) -> None:
    assert said(check, "README.md", b"A mean needs two facts about the past.\n") == []


@pytest.mark.parametrize(
    "text",
    [
        LONG,
        f"        {LONG}",
        f"\t\t{LONG}\r\n",
        f"{LONG}  # each prefix",
        "means.append(total/(index+1))",
        "means.append(\n    total / (index + 1)\n)",
        f"> + {LONG}",
        f"| a | `{LONG}` |",
        f"<pre>{LONG}</pre>",
    ],
    ids=[
        "as it is",
        "indented",
        "crlf",
        "comment",
        "closed up",
        "wrapped",
        "diff",
        "table",
        "html",
    ],
)
def test_a_line_is_found_whatever_stands_around_it(check: LeakCheck, text: str) -> None:
    (found,) = said(check, "exercises/lab90/README.md", f"# Page\n\n{text}\n".encode())
    assert found.startswith("exercises/lab90/README.md:3: 'means.append(total / (index + 1))' is")
    assert found.endswith("the reference's line (solutions/lab90/running_mean.py:15)")


def test_a_line_in_base64_or_in_entities_is_found(check: LeakCheck) -> None:
    whole = f"x = 1\n    {LONG}\n" * 3
    assert len(said(check, "a.txt", base64.encodebytes(whole.encode()))) == 1
    assert len(said(check, "a.html", LONG.replace("(", "&#40;").encode())) == 1


def test_a_line_in_a_notebook_is_found(check: LeakCheck) -> None:
    cell = {"source": [f'print("a")\n    {LONG}\n', "x"]}
    assert len(said(check, "a.ipynb", json.dumps({"cells": [cell]}).encode())) == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "latin-1"])
def test_a_line_is_found_in_other_encodings(check: LeakCheck, encoding: str) -> None:
    text = f"# eté\n{LONG}\n".encode(encoding)
    assert len(said(check, "notes.txt", text)) == 1


def test_a_line_is_found_between_other_bytes(check: LeakCheck) -> None:
    assert len(said(check, "picture.png", b"\x89PNG\xff\xfe\x00" + LONG.encode() + b"\xff")) == 1


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.zip", zipped("deep/notes.txt", LONG.encode())),
        ("a.tar", tarred("notes.txt", LONG.encode(), "w")),
        ("a.tar.gz", tarred("notes.txt", LONG.encode(), "w:gz")),
        ("a.tar.xz", tarred("notes.txt", LONG.encode(), "w:xz")),
        ("a.gz", gzip.compress(LONG.encode())),
        ("a.bz2", bz2.compress(LONG.encode())),
        ("a.xz", lzma.compress(LONG.encode())),
        ("an object", zlib.compress(LONG.encode())),
        ("two.gz", gzip.compress(b"first\n") + gzip.compress(LONG.encode())),
        ("b.zip", zipped("a.tar.gz", tarred("notes.txt", LONG.encode(), "w:gz"))),
        ("picture.png", zipped("notes.txt", LONG.encode())),
        ("self-extracting", b"#!/bin/sh\n" + zipped("notes.txt", LONG.encode())),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_line_is_found_in_archives(check: LeakCheck, name: str, data: bytes) -> None:
    *_, found = said(check, name, data)  # xz keeps a short text as it is, which is found as well
    assert found.startswith(f"{name}!")
    assert "is the reference's line" in found


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x28\xb5\x2f\xfd rest", "a Zstandard archive"),
        (b"7z\xbc\xaf\x27\x1c rest", "a 7-Zip archive"),
        (zipped("a", b"text")[:-9], "cannot be unpacked"),
        (gzip.compress(b"\0" * (nested_files.MOST_BYTES + 1)), "more than 512 MiB"),
    ],
    ids=["zstd", "7z", "cut off", "bomb"],
)
def test_what_cannot_be_looked_into_is_a_leak(check: LeakCheck, data: bytes, why: str) -> None:
    (found,) = said(check, "odd.bin", data)
    assert why in found
    assert "leave it out" in found


def test_archives_in_archives_have_an_end(check: LeakCheck) -> None:
    data = LONG.encode()
    for _ in range(9):
        data = zipped("inner", data)
    (found,) = said(check, "doll.zip", data)
    assert "at a depth of more than 6" in found


def byte_code(folder: Path) -> bytes:
    (folder / "reference.py").write_text(SOURCE)
    made = py_compile.compile(str(folder / "reference.py"), cfile=str(folder / "made"))
    assert made
    return Path(made).read_bytes()


@pytest.mark.parametrize("name", ["__pycache__/a.pyc", "data.bin", "a.zip"])
def test_byte_code_is_found_under_any_name(check: LeakCheck, tmp_path: Path, name: str) -> None:
    data = byte_code(tmp_path)
    (found,) = said(check, name, zipped("cached", data) if name == "a.zip" else data)
    assert "is Python's byte code, with the code of the function at" in found
    assert "reference.py:2" in found


def test_byte_code_without_its_sign_is_found_by_its_functions(
    check: LeakCheck, tmp_path: Path
) -> None:
    code = marshal.dumps(compile(SOURCE, "elsewhere.py", "exec"))
    (found,) = said(check, "weights.bin", b"header" + code)
    assert "holds the byte code of the function at" in found


def test_any_byte_code_is_refused(check: LeakCheck, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    made = py_compile.compile(str(tmp_path / "mine.py"), cfile=str(tmp_path / "made"))
    assert made
    (found,) = said(check, "cache", Path(made).read_bytes())
    assert found == "cache: is Python's byte code; a release holds none"


def test_a_line_may_stand_where_a_reason_is_given(kit: MiniKit) -> None:
    row = '[[shown]]\nwhy = "It is shown."\nin = ["exercises/lab90/README.md"]\n'
    (kit.suite / ALLOWED).write_text(f"{row}lines = ['{LONG}']\n")
    lab = load_lab(kit.root, "lab90")
    check = LeakCheck(
        list(secret_lines.of_reference(lab)),
        {"lab90": NotSecret(lab, "public")},
        KnownCode(iter([])),
    )
    assert said(check, "exercises/lab90/README.md", LONG.encode()) == []
    assert len(said(check, "exercises/lab91/README.md", LONG.encode())) == 1
    assert len(said(check, "a.zip!exercises/lab90/README.md", LONG.encode())) == 1
