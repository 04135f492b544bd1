"""The table of labs in `exercises/README.md`, made from manifests and pages."""

from __future__ import annotations

import re
from pathlib import Path

from grader.labs import Lab, all_labs
from grader.suite import load_suite

BEGIN, END = "<!-- labs: written by infralens sync -->", "<!-- end of labs -->"
_HEAD = (
    "| lab | topic | what you read | what you should be able to explain | points | minutes "
    "| what needs a GPU |\n|---|---|---|---|---|---|---|"
)


def expected(root: Path) -> str | None:
    """Text of `exercises/README.md` with its table as manifests and pages demand it; None if the
    file or its two marks are missing."""
    path = root / "exercises" / "README.md"
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return None
    rows = "\n".join(_row(lab) for lab in all_labs(root))
    return f"{before}{BEGIN}\n{_HEAD}\n{rows}\n{END}{after}"


def is_stale(root: Path) -> bool:
    wanted = expected(root)
    path = root / "exercises" / "README.md"
    return wanted is not None and path.read_text(encoding="utf-8") != wanted


def write(root: Path) -> None:
    """Bring the table up to date."""
    wanted = expected(root)
    if wanted is not None:
        (root / "exercises" / "README.md").write_text(wanted, encoding="utf-8")


def _row(lab: Lab) -> str:
    points = sum(task.points for task in lab.tasks if task.tier != "stretch")
    more = sum(task.points for task in lab.tasks if task.tier == "stretch")
    minutes = sum(task.minutes for task in lab.tasks if task.tier != "stretch")
    worth = f"{points:g} + {more:g} stretch" if more else f"{points:g}"
    goal, reading = _sentence(lab, "Concept goal"), _sentence(lab, "Read first")
    link = f"[{lab.id}]({lab.id}/README.md)"
    return f"| {link} | {lab.title} | {reading} | {goal} | {worth} | {minutes} | {_gpu(lab)} |"


def _gpu(lab: Lab) -> str:
    """What of a lab only a GPU verifies: tasks that need one, and unscored checks."""
    tasks = [f"`{task.id}`" for task in lab.tasks if "gpu" in task.needs]
    extra = {case.test.task for case in load_suite(lab).cases if "gpu" in case.test.extra}
    checks = [f"unscored check of `{name}`" for name in sorted(extra)]
    return ", ".join([*tasks, *checks]) or "nothing"


def _sentence(lab: Lab, section: str) -> str:
    """The first sentence of a section of the lab's page, on one line, without bars."""
    path = lab.exercise / "README.md"
    if not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8")
    match = re.search(rf"^## {re.escape(section)}\n+(.+?)(?=\n\n|\n#|\Z)", text, re.S | re.M)
    paragraph = " ".join(match[1].split()) if match else ""
    first = re.split(r"(?<=[.!?:])\s", paragraph)[0]
    return first.rstrip(":").replace("|", "/")
