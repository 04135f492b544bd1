"""Which tasks a save touches, and in which order a round runs the cases."""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from grader.lab.manifest import Lab, Task
from grader.learner.compare import definitions_of
from grader.status import TestStatus
from grader.suite.model import Case, Suite

MOST_PARSED = 256 * 1024
"""Characters of a file that is compared by its syntax; any change of a longer one touches all."""


def touched(lab: Lab, name: str, before: str, after: str) -> list[str]:
    """Ids of the tasks of a file that a change of its text touches, in the manifest's order. What
    no task's definition holds (an import, a helper, another statement) touches all of them; a
    change that means nothing, such as a comment, touches none."""
    tasks = lab.tasks_of(name)
    if before == after:
        return []
    if max(len(before), len(after)) > MOST_PARSED:
        return [task.id for task in tasks]
    if name.endswith(".py"):
        return _touched_definitions(lab, tasks, before, after)
    return _touched_lines(tasks, before, after)


def _touched_definitions(lab: Lab, tasks: Sequence[Task], before: str, after: str) -> list[str]:
    everything = [task.id for task in tasks]
    try:
        old, new = _pieces(before), _pieces(after)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return everything
    changed = {
        name
        for name in old.keys() | new.keys()
        if old.get(name, []) != new.get(name, []) and _meaning(old, name) != _meaning(new, name)
    }
    homes = {task.id: _home(lab, task, _stamp(lab, task)) for task in tasks}
    known = {name for names in homes.values() for name in names}
    if changed - known:
        return everything
    return [task.id for task in tasks if changed & set(homes[task.id])]


@functools.lru_cache(maxsize=256)
def _home(lab: Lab, task: Task, stamp: int) -> tuple[str, ...]:
    return definitions_of(lab, task)


def _stamp(lab: Lab, task: Task) -> int:
    try:
        return (lab.solution / task.file).stat().st_mtime_ns
    except OSError:
        return 0


_Pieces = dict[str, list[str]]


@functools.lru_cache(maxsize=8)
def _pieces(text: str) -> _Pieces:
    """The text of each top-level definition by its name; of all other statements under ""."""
    found: _Pieces = {}
    rows = text.split("\n")
    for node in ast.parse(text).body:
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        name = node.name if named else ""  # type: ignore[attr-defined]
        marks = node.decorator_list if named else []  # type: ignore[attr-defined]
        first = min([node.lineno, *(mark.lineno for mark in marks)])
        found.setdefault(name, []).append("\n".join(rows[first - 1 : node.end_lineno]))
    return found


def _meaning(pieces: _Pieces, name: str) -> list[str] | None:
    """What the pieces of one name mean, without comments and layout; None if there is none."""
    if name not in pieces:
        return None
    return [ast.dump(ast.parse(piece)) for piece in pieces[name]]


def _touched_lines(tasks: Sequence[Task], before: str, after: str) -> list[str]:
    """Outside of Python: the task whose name stands last above the changed lines, if the change
    does not go past the next task's name; else all."""
    everything = [task.id for task in tasks]
    old, new = before.split("\n"), after.split("\n")
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    regions = _regions([task.id for task in tasks], new)
    end = max(first, len(new) - last - 1)
    for task_id, start, stop in regions:
        if start <= first and end < stop:
            return [task_id]
    return everything


def _regions(ids: Sequence[str], rows: Sequence[str]) -> list[tuple[str, int, int]]:
    """(task, its first line, the line behind its last) by where each task's name stands first."""
    found = []
    for task_id in ids:
        word = re.compile(rf"(?<!\w){re.escape(task_id)}(?!\w)")
        place = next((at for at, row in enumerate(rows) if word.search(row)), None)
        if place is not None:
            found.append((place, task_id))
    found.sort()
    ends = [*(place for place, _ in found), len(rows)][1:]
    return [(task_id, place, end) for (place, task_id), end in zip(found, ends, strict=False)]


SLOW_S = 0.02


def ordered(
    suite: Suite,
    first: Iterable[str],
    last: Mapping[str, str],
    only: Collection[str] = (),
    took: Mapping[str, float] | None = None,
) -> list[Case]:
    """The cases of a round: those of the tasks `first` before those of all others; of each task the
    quick ones before the slow ones (`took`: seconds by case id), so that a first verdict is there
    at once; and of those that take about as long, what did not pass last time (`last`: status by
    case id) before the rest. `only`: of these tasks alone."""
    seconds = took or {}
    tasks = [task.id for task in suite.lab.tasks if not only or task.id in only]
    ahead = [task_id for task_id in first if task_id in tasks]
    found: list[Case] = []
    for task_id in dict.fromkeys([*ahead, *tasks]):
        cases = suite.cases_of(task_id)
        found += sorted(
            cases,
            key=lambda case: (
                _slowness(seconds.get(case.id, 0.0)),
                not _failed(last.get(case.id)),
            ),
        )
    return found


def _slowness(seconds: float) -> int:
    """0 for up to `SLOW_S`, then one more for each time that it doubles."""
    return max(0, math.ceil(math.log2(max(seconds, SLOW_S) / SLOW_S)))


def _failed(status: str | None) -> bool:
    return status is not None and TestStatus(status).asks_for_work
