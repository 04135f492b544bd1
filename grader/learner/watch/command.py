"""`infralens watch [lab | lab.task]`: which lab, and which of the two screens."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from grader.errors import LabError
from grader.lab.manifest import Lab, load_lab
from grader.learner import hints, paint, progress
from grader.learner.watch import files

NARROWEST = 50


def run(root: Path, target: str, plain: bool) -> int:
    """Watch until the learner ends it; the exit status."""
    lab, task = _chosen(root, target)
    files.library()
    if plain or not _has_screen():
        from grader.learner.watch.plain import Plain

        return Plain(lab, task, paint.wants_colours(plain=plain)).run()
    from grader.learner.watch.screen import WatchScreen

    return WatchScreen(lab, task).run() or 0


def _chosen(root: Path, target: str) -> tuple[Lab, str]:
    """The lab and the task, if one is named; without a name, the lab of the next task."""
    if not target:
        row = progress.next_task(root)
        if row is None:
            raise LabError("Everything that can be verified here is done; name a lab to watch.")
        return load_lab(root, row.task.lab), ""
    if "." not in target and not target.startswith("lab"):
        lab, task = hints.find(root, target)
        return lab, task.id
    lab_id, dot, task_id = target.partition(".")
    lab = load_lab(root, lab_id)
    return lab, lab.task(task_id).id if dot else ""


def _has_screen() -> bool:
    """Whether there is a terminal that a screen can be drawn on, and what draws it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    if os.environ.get("TERM", "") in ("", "dumb") or paint.width() < NARROWEST:
        return False
    return importlib.util.find_spec("textual") is not None
