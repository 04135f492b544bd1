"""`infralens similarity` from outside: hostile folders, and every wrong call a sentence."""

from __future__ import annotations

import csv
import io
import os
import re
import stat
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("copydetect")

from grader.classroom.similarity import fingerprint_reader
from grader.classroom.similarity.fingerprint_reader import FingerprintReader
from grader.classroom.similarity.fingerprints import FilePrint
from grader.classroom.similarity.source_text import NotCompared
from grader.sandbox.host_check import check_host

from ...conftest import MiniKit, needs_sandbox

OWN = """def running_mean(values):
    window, means = [], []
    for value in values:
        window.append(float(value))
        means.append(sum(window) / max(len(window), 1))
        if any(one != one for one in window):
            raise ValueError("not a number")
    return [mean for mean in means if mean is not None]
"""
OTHER = """def running_mean(values):
    import itertools
    totals = itertools.accumulate(values)
    return list(map(lambda pair: pair[1] / (pair[0] + 1), enumerate(totals)))
"""
HOSTILE = OWN.replace(
    "    window",
    "    # </td></table></details></article><script>alert(1)</script><img src=x onerror=alert(1)>\n"
    "    # \x1b[2J\x07 \u202e \u2066 &lt; \x00".replace("\x00", "")
    + "\n    window",
    1,
)


def run(kit: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grader.cli", "similarity", *map(str, words)]
    return subprocess.run(command, cwd=kit, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "handed in"
    path.mkdir()
    return path


def hand_in(folder: Path, student: str, data: str | bytes, name: str = "running_mean.py") -> None:
    place = folder / student / "lab90"
    place.mkdir(parents=True)
    (place / name).write_bytes(data if isinstance(data, bytes) else data.encode())


class Tags(HTMLParser):
    """The tags of a page, whether each is closed in order, and what refers to elsewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.elsewhere: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        names = {name for name, _ in attrs}
        assert not [name for name in names if name.startswith("on")]
        for name, value in attrs:
            if name in ("href", "src") and not (value or "").startswith("#pair"):
                self.elsewhere.append(value or "")
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("tier", ["sandbox" if check_host().tier == "sandbox" else "process"])
def test_a_hostile_folder_gives_a_page_that_holds(
    kit: MiniKit, folder: Path, tmp_path: Path, tier: str
) -> None:
    hand_in(folder, "alice", OWN)
    hand_in(folder, "twin", OWN)
    hand_in(folder, "bob", OTHER)
    hand_in(folder, "<script>alert(1)<b>", HOSTILE)
    hand_in(folder, '=HYPERLINK("x")', HOSTILE)
    hand_in(folder, "\x1b[31mred\u202e", HOSTILE)
    hand_in(folder, "empty", b"")
    hand_in(folder, "binary", os.urandom(3000) + b"\0")
    hand_in(folder, "ten-megabytes", b"x = 1\n" * 1_700_000)
    hand_in(folder, "one-line", b"x = " + b"+".join([b"a"] * 500_000))
    hand_in(folder, "long-line", b"x = " + b"+".join([b"f(a)"] * 25_000))
    hand_in(folder, "deep", b"(" * 60_000 + b")" * 60_000)
    hand_in(folder, "latin", OWN.encode() + b"# \xe9\xff\n")
    hand_in(folder, "skeleton", kit.main.read_bytes())
    reference = (kit.solution / kit.main.name).read_text()
    hand_in(folder, "reference", reference.replace("total", "amount").replace("means", "found"))
    hand_in(folder, "comments", "# " + OWN.replace("\n", "\n# "))
    hand_in(folder, "misnamed", OWN, "mean.py")
    (folder / "broken.zip").write_bytes(b"PK\3\4 and no more")
    (folder / "notes.txt").write_text("not a submission")
    out, table = tmp_path / "report.html", tmp_path / "pairs.csv"
    words = (folder, "--lab", "lab90", "--out", out, "--csv", table, "--tier", tier)
    done = run(kit.root, *words)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", done.stdout)
    page = out.read_text()
    tags = Tags(page)
    assert not {"script", "img", "iframe", "link", "form"} & tags.seen
    assert set(tags.elsewhere) <= {"#pairs"}
    assert "default-src 'none'" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\u2066]", page.replace("\t", ""))
    for student, sentence in (
        ("binary", "running_mean.py is not text"),
        ("empty", "running_mean.py is empty"),
        ("ten-megabytes", "is larger than 1 MiB"),
        ("one-line", "at most 128 KiB are compared"),
        ("skeleton", "nothing to compare but comments, strings and the skeleton"),
        ("comments", "nothing to compare but comments, strings and the skeleton"),
        ("reference", "All that was written stands in the kit&#x27;s reference or its variants"),
        ("misnamed", "Nothing was handed in for lab90"),
        ("broken", "broken.zip is not a zip"),
    ):
        assert re.search(rf"<li><bdi>{student}</bdi>: [^<]*{sentence}", page), student
    assert "notes.txt was skipped" in page
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert {rows[0]["student"], rows[0]["other"]} <= {"alice", "twin", "latin"} | {
        row[key] for row in rows for key in ("student", "other") if row[key].startswith("%")
    }
    names = {row[key] for row in rows for key in ("student", "other")}
    assert not [name for name in names if name.startswith(("=", "+", "-", "@"))]
    twins = next(row for row in rows if {row["student"], row["other"]} == {"alice", "twin"})
    assert (twins["share"], twins["share of the other"]) == ("1.000", "1.000")
    again = tmp_path / "again.html"
    assert run(kit.root, folder, "--lab", "lab90", "--out", again, "--tier", tier).returncode == 0
    assert again.read_bytes() == out.read_bytes()


@pytest.mark.parametrize(
    ("prepare", "words", "sentence"),
    [
        (None, ["--lab", "lab91", "--out", "r.html"], "No lab `lab91` here"),
        (None, ["--lab", "lab90", "--out", "r.html", "--tier", "local"], "--tier is 'local'"),
        (None, ["--lab", "lab90", "--out", "no/r.html"], "there is no folder"),
        (None, ["--lab", "lab90", "--out", "."], "is a folder: give the name of a file"),
        (
            None,
            ["--lab", "lab90", "--out", "r.html", "--csv", "r.html"],
            "--out and --csv are both",
        ),
        ("alone", ["--lab", "lab90", "--out", "r.html"], "Two submissions of lab90 are needed"),
        ("empty", ["--lab", "lab90", "--out", "r.html"], "holds no student's folder or archive"),
        ("same", ["--lab", "lab90", "--out", "r.html"], "is given twice"),
        ("inside", ["--lab", "lab90"], "lies in the submissions: write it elsewhere"),
        ("gone", ["--lab", "lab90", "--out", "r.html"], "There is no folder"),
    ],
)
def test_a_wrong_call_is_a_sentence_and_status_2(
    kit: MiniKit, folder: Path, prepare: str | None, words: list[str], sentence: str
) -> None:
    if prepare != "empty":
        hand_in(folder, "alice", OWN)
    if prepare not in ("empty", "alone"):
        hand_in(folder, "bob", OWN)
    more = {
        "same": ["--earlier", str(folder)],
        "inside": ["--out", str(folder / "r.html")],
        "gone": ["--earlier", str(folder / "nowhere")],
    }.get(prepare or "", [])
    done = run(kit.root, folder, *words, *more, *(["--tier", "process"] * ("--tier" not in words)))
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (kit.root / "r.html").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_a_sentence(
    kit: MiniKit, folder: Path, tmp_path: Path
) -> None:
    hand_in(folder, "alice", OWN)
    hand_in(folder, "bob", OWN)
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(stat.S_IRUSR | stat.S_IXUSR)
    done = run(kit.root, folder, "--lab", "lab90", "--out", closed / "r.html", "--tier", "process")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr


def test_an_earlier_year_by_its_folder_s_name(kit: MiniKit, folder: Path, tmp_path: Path) -> None:
    hand_in(folder, "alice", OWN)
    hand_in(folder, "bob", OTHER)
    for year in ("2024", "2025"):
        hand_in(tmp_path / year, "carol", OWN if year == "2025" else OTHER)
        hand_in(tmp_path / year, "alice", OWN)
    out, table = tmp_path / "r.html", tmp_path / "r.csv"
    years = ("--earlier", tmp_path / "2024", "--earlier", tmp_path / "2025")
    words = ("--out", out, "--csv", table, "--tier", "process")
    done = run(kit.root, folder, "--lab", "lab90", *years, *words)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert len(rows) == 1 + 2 * 4
    assert all(row["student"] in ("alice", "bob") for row in rows)
    assert "carol (2025)" in out.read_text()
    assert "it may be one person who takes the course again" in out.read_text()


MISBEHAVING = f"""
import os
from grader.classroom.similarity import tokens as real

{fingerprint_reader._INSIDE}

def answer(_, data, lexer):
    if data.startswith(b"hang"):
        while True:
            pass
    if data.startswith(b"hog"):
        kept = [bytes(2**24) for _ in range(100)]
    if data.startswith(b"crash"):
        os.abort()
    if data.startswith(b"nest"):
        def nested(): return nested()
        nested()
    found = real.answer(data, lexer)
    return {{**found, "hashes": b""}} if data.startswith(b"lie") else found
"""


@pytest.mark.parametrize("tier", [pytest.param("sandbox", marks=needs_sandbox), "process"])
def test_a_file_beyond_the_limits_costs_that_file_alone(
    tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint_reader, "SECONDS", 3.0)
    monkeypatch.setattr(
        fingerprint_reader, "_KIT", replace(fingerprint_reader._KIT, probes=MISBEHAVING)
    )
    reasons = {
        "hang": "takes too long to tokenize",
        "hog": "needs more memory than 512 MiB to tokenize",
        "crash": "ended the process that tokenized it",
        "nest": "is nested too deeply to tokenize",
        "lie": "could not be tokenized",
    }
    files = {f"{name}.py": f"{name} = 1\n{OWN}".encode() for name in reasons}
    between = {f"{name}-good.py": OWN.encode() for name in reasons}
    with FingerprintReader(tier) as reader:
        found = reader.read(files | between)
    for name, reason in reasons.items():
        one = found[f"{name}.py"]
        assert isinstance(one, NotCompared)
        assert one.reason == reason
        assert isinstance(found[f"{name}-good.py"], FilePrint)


def test_without_copydetect_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fingerprint_reader, "find_spec", lambda _: None)
    with pytest.raises(Exception, match=r"pip install -e '\.\[classroom\]'"):
        FingerprintReader("process")
