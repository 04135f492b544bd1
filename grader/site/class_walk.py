"""A small class, from the release to its report: the commands of a section of TEACHING.md, run.

The students are made up. Each hands in the reference of one lab with known mistakes in it, and the
kit's own commands do the rest, in a folder of the build. So what the page says of them is what they
print, and a command that fails stops the build.
"""

from __future__ import annotations

import importlib.util
import io
import os
import random
import shlex
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from grader.author import wrong_answers
from grader.lab.manifest import Lab, Task, lab_ids, load_lab
from grader.sandbox import host_check
from grader.site import text_parts
from grader.site.site_pages import SiteFault
from grader.suite.model import Suite, load_suite
from grader.suite.splice import Misconception

SOURCE, SECTION = "TEACHING.md", "## A class, step by step"
LAB, COURSE, DOWNLOAD = "lab01", "course", "submissions.zip"
STUDENTS = 12
SEED = 10
_COMMAND_SECONDS = 900
COLUMNS = 76  # of the terminal
_HANDED_IN = datetime(2026, 3, 12, 9, 0)  # the first of them; the deadline is on that evening
_KNOWN = 2  # a task's mistakes that the class makes: few, so that students share them
_NEEDED = ("sqlalchemy", "polars", "jinja2")
_WALLED = ("intake", "grade")  # commands that ask for a tier


@dataclass(frozen=True)
class ClassWalk:
    """What came of it. folder: where the commands ran, with the course's folder in it; None where
    they did not run. printed: what each block of commands printed, by the block's text. missing:
    why nothing ran, as a sentence, or ""."""

    folder: Path | None = None
    printed: dict[str, str] = field(default_factory=dict)
    missing: str = ""


def walk(root: Path, folder: Path) -> ClassWalk:
    """Run the section's commands in `folder`. Raises SiteFault for one that fails."""
    if missing := cannot(root):
        return ClassWalk(missing=missing)
    section = text_parts.section(root / SOURCE, SECTION)
    tier = host_check.check_host().tier
    printed = {}
    for block in text_parts.code_blocks(section):
        language, _, body = block.strip("`").partition("\n")
        if language == "toml":
            _write_course(root, folder, body)
        elif language == "bash":
            lines = [_run(root, folder, line, tier) for line in body.splitlines() if line]
            printed[block] = "".join(lines)
    return ClassWalk(folder, printed)


def cannot(root: Path) -> str:
    """Why the class cannot be had here, as a sentence; "" where it can."""
    if LAB not in lab_ids(root):
        return f"This kit has no {LAB}, so the class of {SOURCE} was not graded."
    absent = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        return (
            f"No {absent[0]} here, so the class of {SOURCE} was not graded: "
            "pip install 'infralens-labs[classroom]'"
        )
    return ""


def _run(root: Path, folder: Path, line: str, tier: str) -> str:
    """One command, and what it printed. It imports the kit in `root`; its clock is this machine's,
    and no colour or width of a terminal is in what it prints."""
    name, *arguments = shlex.split(line, comments=True)
    if name != "infralens":
        raise _fault(line, "it is not a command of the kit")
    said = ""
    if arguments[0] in _WALLED and tier != "sandbox":
        arguments += ["--tier", tier]
        said = f"(with --tier {tier}, the highest that this machine reaches)\n"
    call = [sys.executable, "-m", "grader.cli", *arguments]
    known = {key: value for key, value in os.environ.items() if key != "FORCE_COLOR"}
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    more = {"PYTHONPATH": path, "COLUMNS": str(COLUMNS), "NO_COLOR": "1", "PYTHONUTF8": "1"}
    temporary = folder / ".temporary"  # goes with the folder, also what a killed command leaves
    temporary.mkdir(exist_ok=True)
    more["TMPDIR"] = str(temporary)
    try:
        done = subprocess.run(
            call, cwd=folder, env=known | more, capture_output=True, text=True,
            timeout=_COMMAND_SECONDS, check=False, stdin=subprocess.DEVNULL, encoding="utf-8",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _fault(line, f"it ran for more than {_COMMAND_SECONDS} s") from None
    if done.returncode:
        why = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        raise _fault(line, why)
    return said + "\n".join(_wrapped(line) for line in done.stdout.splitlines()) + "\n"


def _wrapped(line: str) -> str:
    """A line as a terminal shows it, but broken between words."""
    return textwrap.fill(line, COLUMNS) if len(line) > COLUMNS else line


def _fault(line: str, why: str) -> SiteFault:
    return SiteFault([f"{SOURCE}: `{line}`, run for the page on teaching, failed: {why}"])


# -- the class ------------------------------------------------------------------------------------


def _write_course(root: Path, folder: Path, text: str) -> None:
    """What the instructor decides, who the students are, and what they handed in. The course's key
    is a fixed one: the tests' inputs, and so the pages, are the same in every build."""
    course = folder / COURSE
    (course / "course.toml").write_text(text, encoding="utf-8")
    (course / "course.key").write_text("the key of a class that is made up\n", encoding="utf-8")
    names = [f"s{number:02}" for number in range(1, STUDENTS + 1)]
    rows = [f"{id},Student {id[1:]},,,{'AB'[place % 2]}" for place, id in enumerate(names)]
    roster = "\n".join(["id,name,email,github,section", *rows, ""])
    (course / "roster.csv").write_text(roster, encoding="utf-8")
    found = submissions(load_lab(root, LAB))
    (folder / DOWNLOAD).write_bytes(_download(dict(zip(names, found, strict=True))))


def submissions(lab: Lab) -> list[dict[str, str]]:
    """What each student hands in, files by name: the first knows little, the last almost all."""
    suite = load_suite(lab)
    rng = random.Random(SEED)
    return [
        _submission(lab, suite, place / (STUDENTS - 1), rng)
        for place in rng.sample(range(STUDENTS), STUDENTS)
    ]


def _submission(lab: Lab, suite: Suite, ability: float, rng: random.Random) -> dict[str, str]:
    """The reference with some mistakes, and without some of its last tasks."""
    while True:
        wrongs, undone = [], []
        for place, task in enumerate(lab.tasks):
            late = place / len(lab.tasks)
            if rng.random() < 0.35 * late * (1 - ability):
                undone.append(task.id)
            elif rng.random() < 0.5 * (1 - ability) and (known := _common(suite, task)):
                wrongs.append(rng.choice(known))
        try:
            return wrong_answers.combined(lab, wrongs, undone)
        except ValueError:  # mistakes that do not go together
            continue


def _common(suite: Suite, task: Task) -> list[Misconception]:
    known = suite.misconceptions_of(task.id)
    return [wrong for wrong in known if wrong.gate and wrong.replaces is None][:_KNOWN]


def _download(found: dict[str, dict[str, str]]) -> bytes:
    """The class's files as Gradescope's export, one zip."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, text in _export(found):
            file.writestr(zipfile.ZipInfo(f"assignment_1_export/{name}"), text)
    return packed.getvalue()


def _export(found: dict[str, dict[str, str]]) -> Iterator[tuple[str, str]]:
    listed = ["---"]
    for number, (student, files) in enumerate(found.items(), start=1):
        late = timedelta(days=1) if number % 7 == 0 else timedelta()
        at = _HANDED_IN + timedelta(minutes=47 * number) + late
        listed += [
            f"submission_{number}:", "  :submitters:", f"  - :name: Student {student[1:]}",
            f"    :sid: {student}", f"  :created_at: {at:%Y-%m-%d %H:%M:%S}.000000000 Z",
        ]  # fmt: skip
        for name, text in files.items():
            yield f"submission_{number}/{name}", text
    yield "submission_metadata.yml", "\n".join([*listed, ""])
