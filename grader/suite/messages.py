"""What a learner reads about one test: the call, what came back, why that is wrong, where to go."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from grader.errors import LoadFailed, Missing
from grader.lab import skeleton
from grader.lab.manifest import Task
from grader.status import TestStatus
from grader.suite.run import Outcome


def sentence(text: str) -> str:
    """The text with a full stop, unless it ends a sentence already."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def message(outcome: Outcome) -> list[str]:
    """The lines of a failing test, without where to go next."""
    if outcome.status == TestStatus.NOT_STARTED:
        placeholder = f": its placeholder still stands at {outcome.where}" if outcome.where else ""
        return [f"{outcome.lines[0]}{placeholder}."]
    if isinstance(outcome.error, LoadFailed | Missing):
        return [sentence(outcome.lines[0]), *([f"    at {outcome.where}"] if outcome.where else [])]
    lines = [outcome.called] if outcome.called else []
    if outcome.status == TestStatus.TIMEOUT:
        lines.append(
            f"    {outcome.lines[0]}: a loop that does not end, or work that grows too fast"
        )
    else:
        lines += [f"    {line}" for line in outcome.lines]
    if outcome.where:
        lines.append(f"    at {outcome.where}")
    if outcome.because and not any(outcome.because in line for line in outcome.lines):
        lines.append(f"Why: {sentence(outcome.because)}")
    return lines + likely_causes(outcome)


def likely_causes(outcome: Outcome) -> list[str]:
    """The lines that name the likely cause of a failure, or both if it is one of two."""
    if len(outcome.causes) < 2:
        return [f"Likely cause: {cause}" for cause in outcome.causes]
    first, second = outcome.causes
    return [f"Likely cause, one of two: {first}", f"Or: {second}"]


def open_at(task: Task, folder: Path, where: str) -> str:
    """`path:line` to open for a task: where the student's code raised, or where the task starts."""
    name, _, line = where.partition(":")
    if name == task.file and line.isdigit():
        return f"{folder / task.file}:{line}"
    return f"{folder / task.file}:{line_of(task, folder)}"


def line_of(task: Task, folder: Path) -> int:
    """The line of a task's TODO, or of its definition (outside of Python: where its name stands
    first), or 1."""
    try:
        text = (folder / task.file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 1
    if line := skeleton.placeholder_line(task, text):
        return line
    if task.file.endswith(".py"):
        return definition_line(text, task.id)
    named = re.search(rf"\b{task.id}\b", text)
    return text.count("\n", 0, named.start()) + 1 if named else 1


def definition_line(text: str, name: str) -> int:
    """The line at the top level of a source that says what a name is, or 1: of several the last
    one, which counts. An assignment that has the name on its right side, too, wraps what there
    was."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return 1
    lines = [node.lineno for node in tree.body if _defines(node, name)]
    return lines[-1] if lines else 1


def _defines(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name == name
    if not isinstance(node, ast.Assign):
        return False
    used = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
    targets = {each.id for each in node.targets if isinstance(each, ast.Name)}
    return name in targets - used
