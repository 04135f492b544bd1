"""One course by typed lines, from an empty folder to marks handed back: 12 students, four systems'
downloads, late ones, an extension, a resubmission, a regrade after a corrected test, an adjustment,
every export."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
import subprocess
import sys
import traceback
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree

import pytest

from grader import cli
from grader.author.new_lab import new_lab
from tests.grader.classroom.conftest import RIGHT, WRONG
from tests.grader.conftest import MiniKit

FILE = "running_mean.py"
# What a right answer must not have to do: the test that is corrected later.
TOO_STRICT = '''

@task("running_mean")
def test_a_tuple_has_means(student, rng):
    """A tuple has means, too.   Oracle: by hand."""
    expect.equal(student.running_mean((1.0, 3.0)), [1.0, {second}], "any sequence will do")
'''
NAMES = ("Ann Lee", "Bob van Dijk", "Zoë Müller", "=Cal, Jr.", "Dee Ray", "Eve Fox", "Fay Gil",
         "Gus Hart", "Hal Ito", "Ida Jahn", "Jan Kos", "Kim Lund")  # fmt: skip
DUE = {"lab90": "2027-03-12T23:59:00", "lab91": "2027-03-19T23:59:00",
       "lab92": "2027-03-26T23:59:00", "lab93": "2027-04-02T23:59:00"}  # fmt: skip


@dataclass
class Desk:
    """An instructor's folder beside a kit of four labs."""

    kit: Path
    folder: Path

    def type(self, line: str, code: int = 0) -> str:
        """What the command says, in a fork of this process, which spares the imports."""
        output = self.folder / "output.txt"
        with output.open("wb") as out:
            child = os.fork()
            if child == 0:
                _run(line.split(), self.kit, out.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = output.read_text()
        assert status == code, said
        assert "Traceback" not in said, said
        return said

    @property
    def course(self) -> Path:
        return self.folder / "course"

    def pack(self, name: str, entries: Mapping[str, str]) -> Path:
        path = self.folder / name
        with zipfile.ZipFile(path, "w") as file:
            for entry, text in entries.items():
                file.writestr(entry, text)
        return path

    def marks(self, table: str = "marks.csv") -> dict[str, dict[str, str]]:
        rows = csv.DictReader(io.StringIO((self.folder / table).read_text(), newline=""))
        return {row["id"]: row for row in rows}


def _run(arguments: list[str], cwd: Path, out: int) -> NoReturn:
    code: Any = 99
    try:
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        os.chdir(cwd)
        os.environ["COLUMNS"] = "140"
        sys.argv = ["infralens", *arguments]
        cli.main()
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@pytest.fixture
def desk(kit: MiniKit, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    for lab in ("lab91", "lab92", "lab93"):
        new_lab(kit.root, lab)
    return Desk(kit.root, tmp_path_factory.mktemp("desk"))


def gradescope(desk: Desk) -> Path:
    """lab90: all hand in; u2 twice, wrong and then right, but late; u3 late with an extension."""
    rows, files = ["---"], {}
    for number, (student, at, text) in enumerate(
        [
            *((n, "2027-03-12 20:00:00", RIGHT) for n in (1, 4, 5, 6, 7, 8, 9, 10, 11)),
            (12, "2027-03-12 20:00:00", WRONG),
            (2, "2027-03-12 20:00:00", WRONG),
            (2, "2027-03-14 20:00:00", RIGHT),
            (3, "2027-03-15 20:00:00", RIGHT),
        ],
        start=1,
    ):
        rows += [
            f"submission_{number}:", "  :submitters:",
            f"  - :name: {json.dumps(NAMES[student - 1], ensure_ascii=False)}",
            f"    :sid: u{student}", f"    :email: u{student}@x.org", f"  :created_at: {at}.0 Z",
        ]  # fmt: skip
        files[f"export/submission_{number}/{FILE}"] = f"{text}\n# {number}\n"
    return desk.pack("gradescope.zip", {"export/submission_metadata.yml": "\n".join(rows), **files})


def canvas(desk: Desk) -> Path:
    """lab91: eleven hand in, and one whom the roster does not have."""
    files = {f"x_{500 + n}_{7000 + n}_{FILE}": f"{RIGHT}\n# {n}\n" for n in range(1, 12)}
    return desk.pack("canvas.zip", {**files, f"nobody_999_7999_{FILE}": RIGHT})


def moodle(desk: Desk) -> Path:
    """lab92: everybody."""
    return desk.pack("moodle.zip", {
        f"{name}_{9000 + n}_assignsubmission_file_/{FILE}": f"{RIGHT}\n# {n}\n"
        for n, name in enumerate(NAMES, start=1)
    })  # fmt: skip


def clones(desk: Desk) -> Path:
    """lab93: three of them, by their last commits; the second is a day late."""
    top = desk.folder / "clones"
    for n, day in ((1, "2027-04-02"), (2, "2027-04-03"), (3, "2027-04-01")):
        clone = top / f"mean-gh{n}"
        clone.mkdir(parents=True)
        (clone / FILE).write_text(f"{RIGHT}\n# {n}\n")
        who = {f"GIT_{role}_{what}": "x@y.z" for role in ("AUTHOR", "COMMITTER")
               for what in ("NAME", "EMAIL")}  # fmt: skip
        dates = {f"GIT_{role}_DATE": f"{day}T23:00:00+0200" for role in ("AUTHOR", "COMMITTER")}
        for call in (["init", "-q"], ["add", "."], ["commit", "-qm", "done"]):
            subprocess.run(
                ["git", *call], cwd=clone, check=True, env={**os.environ, **who, **dates}
            )
    return top


def test_from_an_empty_folder_to_handed_back(desk: Desk, url: str) -> None:
    course = f"--course {desk.course}"
    begin(desk, url)
    assert "12 students" in desk.type(f"course check {desk.course}")

    suite = next((desk.kit / "tests" / "lab90").glob("test_*.py"))
    right = suite.read_text()
    suite.write_text(right + TOO_STRICT.format(second="3.0"))

    said = desk.type(f"intake {gradescope(desk)} --lab lab90 {course} --tier process")
    assert "13 new attempts" in said
    path = canvas(desk)
    said = desk.type(f"intake {path} --lab lab91 --at 2027-03-19T20:00 {course} --tier process", 1)
    assert "Not matched: nobody_999" in said
    assert "11 new attempts" in said
    desk.type(f"intake {moodle(desk)} --lab lab92 {course} --tier process")
    desk.type(f"intake {clones(desk)} --lab lab93 --assignment mean {course} --tier process")
    again = desk.type(f"intake {desk.folder / 'gradescope.zip'} --lab lab90 {course}")
    assert "0 new attempts, 13 known already" in again

    assert "39 to grade" in desk.type(f"status {course}")
    said = desk.type(f"grade {course} --tier process --jobs 2")
    assert "39 attempts: 39 graded now" in said

    # nobody passes lab90 before its test is corrected; the second look grades nothing again
    suite.write_text(right + TOO_STRICT.format(second="2.0"))
    regrade = f"regrade --lab lab90 --why corrected {course} --tier process --jobs 2"
    said = desk.type(f"{regrade} --dry-run")
    assert "11 of 12 marks of lab90 change." in said
    assert "11 of these: running_mean/test_a_tuple_has_means: failed, now passed" in said
    desk.type(f"export csv {course} --out {desk.folder / 'before.csv'}")
    assert {row["lab90"] for row in desk.marks("before.csv").values()} == {"0"}
    said = desk.type(f"{regrade} --yes")
    assert "13 attempts: 0 graded now, 13 known by these tests already." in said
    assert "13 results count now" in said

    desk.type(f"adjust u12 lab90.running_mean +0.5 --why explained_it {course}")
    story = desk.type(f"history u2 lab90 {course}")
    assert "attempt 1 taken in from gradescope: submission_11: handed in" in story
    assert "2 days late" in story
    assert re.search(r"attempt 2 regraded by \S+: 0 became 2 of 2 points: corrected", story)
    assert "Now: 1.6 of 2 points." in story

    exports(desk, course)
    handed_back(desk)
    said = desk.type(
        f"similarity {course} --lab lab90 --out {desk.folder / 'alike.html'} --tier process"
    )
    assert "12 submissions, 66 pairs" in said


def begin(desk: Desk, url: str) -> None:
    """`course init`, and what an instructor writes into its files."""
    desk.type(f"course init {desk.course} --timezone UTC")
    file = desk.course / "course.toml"
    text = file.read_text()
    text = re.sub(r'database = ".*"', f'database = "{url}"', text)
    for lab, due in DUE.items():
        text, count = re.subn(rf"(\[lab\.{lab}\].*\ndue = ).*", rf"\g<1>{due}", text)
        assert count == 1
    text += '[[extension]]\nstudent = "u3"\nlab = "lab90"\nuntil = 2027-03-16T12:00:00\n'
    file.write_text(text + 'why = "ill"\n')
    rows = [
        f'u{n},"{name}",u{n}@x.org,gh{n},{500 + n},{9000 + n}'
        for n, name in enumerate(NAMES, start=1)
    ]
    head = "id,name,email,github,canvas_id,moodle_id\n"
    (desk.course / "roster.csv").write_text(head + "\n".join(rows) + "\n")


def exports(desk: Desk, course: str) -> None:
    """Each read back by rules of its own."""
    out = desk.folder
    for kind in ("csv", "canvas", "moodle"):
        desk.type(f"export {kind} {course} --out {out / kind}.csv")
    (out / "csv.csv").rename(out / "marks.csv")
    marks = desk.marks()
    expected = {"u2": "1.6", "u3": "2", "u12": "0.5"}
    assert {id: row["lab90"] for id, row in marks.items()} == {
        f"u{n}": expected.get(f"u{n}", "2") for n in range(1, 13)
    }
    assert [marks[f"u{n}"]["lab91"] for n in range(1, 13)] == ["2"] * 11 + [""]
    assert [marks[f"u{n}"]["lab93"] for n in (1, 2, 3, 4)] == ["2", "1.8", "2", ""]
    rows = list(csv.reader(io.StringIO((out / "canvas.csv").read_text(), newline="")))
    assert rows[0][:5] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    assert [row[0] for row in rows[2:]] == [n.replace("=Cal", "'=Cal") for n in NAMES]
    assert {row[1]: row[5] for row in rows[2:]}["502"] == "1.6"
    rows = list(csv.reader(io.StringIO((out / "moodle.csv").read_text(), newline="")))
    row = dict(zip(rows[0], rows[12], strict=True))
    assert row["lab90"] == "0.5"
    assert "+0.5 points by hand" in row["lab90 (feedback)"]

    for kind in ("gradescope", "github", "junit", "prairielearn"):
        desk.type(f"export {kind} {course} --out {out / kind}")
        assert len([path for path in (out / kind).rglob("*") if path.is_file()]) == 38
    assert json.loads((out / "gradescope" / "u2" / "lab90.json").read_text())["score"] == 2.0
    github = json.loads(base64.b64decode((out / "github" / "u12" / "lab90.txt").read_text()))
    assert sum(test["score"] for test in github["tests"]) == 0.0
    assert github["max_score"] == 2.0
    junit = ElementTree.parse(out / "junit" / "u12" / "lab90.xml").getroot()
    assert len(list(junit.iter("failure"))) > 0
    assert json.loads((out / "prairielearn" / "u1" / "lab90.json").read_text())["score"] == 1.0

    desk.type(f"adjust u12 lab91 +1 --why asked {course}")
    desk.type(f"export csv {course} --out {out / 'new.csv'} --changed-since {out / 'marks.csv'}")
    assert [n for n in desk.marks("new.csv")["u12"] if n.startswith("lab")] == [
        "lab91", "lab91 of", "lab91 late",
    ]  # fmt: skip


def handed_back(desk: Desk) -> None:
    pages = desk.course / "feedback"
    assert len(list(pages.rglob("*.md"))) == 38
    assert "2 days late" in (pages / "u2" / "lab90.md").read_text()
    assert "explained" in (pages / "u12" / "lab90.md").read_text()
    assert "late" not in (pages / "u3" / "lab90.md").read_text()
