"""`infralens compare lab07.merge`: a learner's code beside the reference and beside other right
ways, with what each of them trades."""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.errors import LabError
from grader.lab import skeleton
from grader.lab.manifest import Lab, Task
from grader.learner import history, progress
from grader.status import TaskStatus


@dataclass(frozen=True)
class Shown:
    """One way to solve a task. `about`: what it trades, in its author's words."""

    title: str
    about: str
    code: str


def is_done(lab: Lab, task: Task) -> bool:
    """Whether the last run of the task, on the file as it is now, left it done."""
    row = next(row for row in progress.tasks_of(lab) if row.task.id == task.id)
    return row.status is TaskStatus.DONE and not row.changed


def refusal(lab: Lab, task: Task) -> str:
    """Why there is nothing to compare with; "" if there is something."""
    if not (lab.solution / task.file).is_file():
        return (
            f"This copy of the kit holds no reference for {lab.id}, so there is nothing to compare "
            "with. Your instructor decides when references are given out."
        )
    return ""


def ways(lab: Lab, task: Task) -> list[Shown]:
    """The learner's own code, the reference's, and that of each variant that solves the task."""
    if reason := refusal(lab, task):
        raise LabError(reason)
    mine = _code(lab.exercise / task.file, lab, task)
    found = [Shown("yours", "", mine or "(nothing: the task's definition is not in your file)")]
    reference = _code(lab.solution / task.file, lab, task)
    found.append(Shown("the reference", "", reference))
    for folder in sorted((lab.suite / "variants").glob("[!_]*")):
        path = folder / task.file
        if path.is_file() and (code := _code(path, lab, task)) and code != reference:
            found.append(Shown(folder.name.replace("_", " "), _about(path), code))
    return found


def note_reading(lab: Lab, task: Task) -> None:
    """Keep that the answer was read, if the task is not done."""
    if not is_done(lab, task):
        history.note_reading(task, lab.root)


def _about(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        doc = ast.get_docstring(ast.parse(text)) or ""
        return " ".join(doc.split())
    first = text.lstrip().split("\n", 1)[0]
    return first.strip("/#<!-> ") if first.lstrip().startswith(("//", "#", "<!--")) else ""


def _code(path: Path, lab: Lab, task: Task) -> str:
    """The part of a file that answers a task: in Python the definition that the reference's block
    belongs to, elsewhere what stands between the lines around that block, or the whole file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    if path.suffix == ".py":
        return _definitions(text, definitions_of(lab, task))
    if path.parent == lab.solution:
        blocks = [row for row in skeleton.blocks(path) if row.task == task.id]
        rows = text.split("\n")
        return "\n\n".join(
            textwrap.dedent("\n".join(rows[block.first : block.last - 1])) for block in blocks
        )
    return text


def definitions_of(lab: Lab, task: Task) -> tuple[str, ...]:
    """Names of the top-level definitions that hold a task's blocks in the reference; without a
    reference the task's own name."""
    path = lab.solution / task.file
    try:
        text = path.read_text(encoding="utf-8")
        blocks = skeleton.blocks(path)
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return (task.id,)
    found = [name_of(node) for node, inside in with_tasks(tree, blocks) if task.id in inside]
    return tuple(filter(None, found)) or (task.id,)


def with_tasks(
    tree: ast.Module, blocks: Sequence[skeleton.Block]
) -> Iterator[tuple[ast.stmt, set[str]]]:
    """Each top-level statement of a reference, and the ids of the tasks whose blocks it holds."""
    for node in tree.body:
        first, last = span(node)
        # a block's last line is a comment, and may stand behind the definition's last statement
        yield node, {row.task for row in blocks if first <= row.last and row.first <= last}


def name_of(node: ast.stmt) -> str:
    """The name of a function or a class; "" for another statement."""
    named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return node.name if named else ""  # type: ignore[attr-defined]


def span(node: ast.stmt) -> tuple[int, int]:
    """First and last line of a statement, from 1, its decorators with it."""
    marks = getattr(node, "decorator_list", [])
    return min([node.lineno, *(mark.lineno for mark in marks)]), node.end_lineno or node.lineno


def _definitions(text: str, names: tuple[str, ...]) -> str:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        return f"(the file does not parse: {error})"
    rows, found = text.split("\n"), []
    for node in tree.body:
        if name_of(node) in names:
            first, last = span(node)
            found.append("\n".join(rows[first - 1 : last]))
    return "\n\n".join(_without_markers(code) for code in found)


def _without_markers(code: str) -> str:
    return "\n".join(
        row
        for row in code.split("\n")
        if not (skeleton.BEGIN.match(row) or skeleton.END.match(row))
    )


def lines(shown: list[Shown], width: int, unicode: bool, pair: bool = True) -> list[str]:
    """The ways one after the other; the first two beside each other where both fit."""
    rule = "─" if unicode else "-"
    rest = shown
    found: list[str] = []
    if pair and len(shown) > 1 and (beside := _beside(shown[0], shown[1], width, unicode)):
        found += beside
        rest = shown[2:]
    for way in rest:
        found += ["", f"{rule * 2} {way.title} ".ljust(width, rule)]
        if way.about:
            found += [*textwrap.wrap(way.about, width), ""]
        found += way.code.split("\n")
    return found


def _beside(left: Shown, right: Shown, width: int, unicode: bool) -> list[str]:
    """Two ways in two columns, equal lines at one height; nothing if a line is cut."""
    half = (width - 3) // 2
    a, b = left.code.split("\n"), right.code.split("\n")
    if max(map(len, [*a, *b])) > half:
        return []
    bar = "│" if unicode else "|"
    found = [f"{left.title:<{half}} {bar} {right.title}"]
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    for _, a0, a1, b0, b1 in matcher.get_opcodes():
        one, other = a[a0:a1], b[b0:b1]
        for at in range(max(len(one), len(other))):
            mine = one[at] if at < len(one) else ""
            theirs = other[at] if at < len(other) else ""
            found.append(f"{mine:<{half}} {bar} {theirs}".rstrip())
    return found
