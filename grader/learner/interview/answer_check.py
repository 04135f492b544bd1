"""Runs the suite's cases of one task on what was written in a blank file.

The answer is put into a copy of the lab whose other functions are the reference's, and the copy is
checked as `infralens check` checks the learner's own: in a process of its own, with its limits.
"""

from __future__ import annotations

import contextlib
import re
import select
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader import readable
from grader.errors import LabError
from grader.lab.manifest import Lab, Task, load_lab
from grader.learner.interview import blank_file
from grader.learner.watch.link import Link
from grader.learner.watch.watched_lab import WatchedLab, case_table
from grader.status import TaskStatus

MOST_TEXT = 4_000
_LINE = re.compile(r"(?P<before>{file}(?::|\", line |, line ))(?P<line>\d+)")


@dataclass(frozen=True)
class AnswerCheck:
    """What written code came to. points: of 1. state: in words. message: of the first case that
    fails, with the likely cause if one was found. verified: whether this machine could run its
    cases."""

    points: float
    state: str
    message: str = ""
    verified: bool = True


def check(lab: Lab, task: Task, answer: str) -> AnswerCheck:
    """The cases of a task on an answer. Raises LabError where the kit itself cannot run them."""
    if answer.strip() == blank_file.blank(lab, task).strip():
        return AnswerCheck(0.0, TaskStatus.NOT_STARTED.words)
    try:
        put = blank_file.put(lab, task, answer)
    except LabError as error:
        return AnswerCheck(0.0, "does not parse", str(error))
    with tempfile.TemporaryDirectory(
        prefix="infralens-interview-", ignore_cleanup_errors=True
    ) as folder:
        copy = _copy(lab, task, put.text, Path(folder))
        live = _run(copy, task)
        score = next(row for row in live.view().score.tasks if row.task.id == task.id)
        row = live.first_failing([task.id])
        message = _message(row, task, put, Path(folder)) if row else ""
        verified = score.status is not TaskStatus.NOT_VERIFIED
        points = score.points / task.points
        return AnswerCheck(points, score.status.words, message, verified)


def _copy(lab: Lab, task: Task, text: str, root: Path) -> Lab:
    """A kit with this lab alone, whose file has that text."""
    for name in ("solutions", "tests"):
        (root / name).symlink_to(lab.kit / name)
    (root / "pyproject.toml").symlink_to(lab.root / "pyproject.toml")
    folder = root / "exercises" / lab.id
    folder.mkdir(parents=True)
    for path in lab.exercise.iterdir():
        if path.name not in lab.edit and not path.name.startswith(("__", ".")):
            (folder / path.name).symlink_to(path)
    copy = load_lab(root, lab.id)
    copy.copy_to(folder)
    (folder / task.file).write_text(text, encoding="utf-8")
    return copy


def _run(lab: Lab, task: Task) -> WatchedLab:
    link = Link(lab)
    live: WatchedLab | None = None
    link.start()
    link.ask(only=[task.id])
    with contextlib.closing(link):
        while True:
            select.select([link.descriptor], [], [])
            for event in link.receive():
                kind = event["event"]
                if kind == "ready":
                    live = WatchedLab(lab, case_table(lab, event["cases"]))
                elif kind == "fault" or live is None:
                    raise LabError(f"{task.name} cannot be checked: {event.get('text', kind)}")
                else:
                    live.hear(event)
                    if kind in ("end", "lost"):
                        return live


def _message(row: Mapping[str, Any], task: Task, put: blank_file.Put, root: Path) -> str:
    """A case's message, with the candidate's own lines in the place of the whole file's."""
    name = re.escape(task.file)

    def own(match: re.Match[str]) -> str:
        line = put.in_answer(int(match["line"]))
        return match["before"] + (str(line) if line else "(the kit's part)")

    said = "\n".join(row["message"])[:MOST_TEXT]
    text = re.sub(_LINE.pattern.replace("{file}", name), own, said)
    return readable.text(text.replace(f"{root}/exercises/{task.lab}/", ""))
