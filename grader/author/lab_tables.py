"""The tables of labs in `README.md` and `exercises/README.md`, made from manifests and pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from grader.lab.manifest import Lab, all_labs
from grader.suite.model import load_suite

BEGIN, END = "<!-- labs: written by infralens sync -->", "<!-- end of labs -->"
_SHORT = "| lab | topic | you write | points |\n|---|---|---|---|"
_LONG = (
    "| lab | topic | what you read | what you should be able to explain | points | minutes "
    "| what needs a GPU |\n|---|---|---|---|---|---|---|"
)


def expected(root: Path) -> dict[Path, str]:
    """Each file that has a table, with its table as manifests and pages demand it. A file that is
    missing, or without the two marks, is left alone."""
    labs = all_labs(root)
    tables = {
        root / "README.md": [_SHORT, *map(_short_row, labs)],
        root / "exercises" / "README.md": [_LONG, *map(_row, labs)],
    }
    return dict(_filled(tables))


def _filled(tables: dict[Path, list[str]]) -> Iterator[tuple[Path, str]]:
    for path, lines in tables.items():
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        before, begin, rest = text.partition(BEGIN)
        _, end, after = rest.partition(END)
        if begin and end:
            table = "\n".join(lines)
            yield path, f"{before}{BEGIN}\n{table}\n{END}{after}"


def stale(root: Path) -> list[Path]:
    """Files whose table is not up to date."""
    return [p for p, text in expected(root).items() if p.read_text(encoding="utf-8") != text]


def write(root: Path) -> None:
    """Bring the tables up to date."""
    for path, text in expected(root).items():
        path.write_text(text, encoding="utf-8")


def _short_row(lab: Lab) -> str:
    files = ", ".join(f"`{name}`" for name in lab.edit)
    link = f"[{lab.id}](exercises/{lab.id}/README.md)"
    return f"| {link} | {lab.title} | {files} | {_points(lab)} |"


def _row(lab: Lab) -> str:
    minutes = sum(task.minutes for task in lab.tasks if task.tier != "stretch")
    goal, reading = _sentence(lab, "Concept goal"), _sentence(lab, "Read first")
    link = f"[{lab.id}]({lab.id}/README.md)"
    return (
        f"| {link} | {lab.title} | {reading} | {goal} | {_points(lab)} | {minutes} | {_gpu(lab)} |"
    )


def _points(lab: Lab) -> str:
    points = sum(task.points for task in lab.tasks if task.tier != "stretch")
    more = sum(task.points for task in lab.tasks if task.tier == "stretch")
    return f"{points:g} + {more:g} stretch" if more else f"{points:g}"


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
    return re.split(r"(?<=[.!?])\s", paragraph)[0].replace("|", "/")
