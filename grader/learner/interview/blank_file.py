"""A task as an interview asks it: a file with its signature and contract alone; and that file, once
written, put back among the rest of the lab's, so that the suite can run it.

A blank file holds the definitions of one task as the skeleton has them, what the file gives and
they mention, and the imports that all of it needs. The lab's other functions are there when it is
checked, as the reference has them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.errors import LabError
from grader.lab import skeleton
from grader.lab.manifest import Lab, Task
from grader.learner.compare import name_of, span, with_tasks

MOST_BYTES = 256 * 1024
_FUTURE = re.compile(r"^from __future__ import [^\n]*\n", re.M)


@dataclass(frozen=True)
class Put:
    """A whole file of a lab with a candidate's text in it. That text begins after `above` lines,
    and has `rows` lines."""

    text: str
    above: int
    rows: int

    def in_answer(self, line: int) -> int | None:
        """The candidate's line for a line of the whole file; None: it is not the candidate's."""
        own = line - self.above
        return own if 1 <= own <= self.rows else None


def blank(lab: Lab, task: Task) -> str:
    """The text that a candidate begins with. Raises LabError for a task that cannot be asked
    alone: its definitions hold other tasks too, or it is not a program."""
    reference = _reference(lab, task)
    undone = skeleton.undone(lab, task.file, reference, {task.id})
    if Path(task.file).suffix == ".cu":
        header = undone.split("\n\n", 1)[0]
        return "\n\n".join([header, *(_cut(undone, one) for one in _kernels(lab, task))]) + "\n"
    tree = ast.parse(undone)
    names = _with_given(lab, task, tree, undone, _names(lab, task, reference))
    chosen = [node for node in tree.body if names & _names_of(node)]
    used = {
        name.id for node in chosen for name in ast.walk(node) if isinstance(name, ast.Name)
    }  # fmt: skip
    imports = [row for node in tree.body for row in _import_of(node, used)]
    head = ["from __future__ import annotations", *(["", *imports] if imports else [])]
    about = f'"""{task.name}: {task.title}."""'
    parts = [_source(undone, node) for node in chosen]
    return "\n\n".join([about, "\n".join(head)]) + "\n\n\n" + "\n\n\n".join(parts) + "\n"


def _with_given(lab: Lab, task: Task, tree: ast.Module, undone: str, names: set[str]) -> set[str]:
    """These names, and those of what the file gives and their signatures and contracts mention."""
    blocks = skeleton.blocks(lab.solution / task.file)
    tasks = set[str]()
    for node, inside in with_tasks(ast.parse(_reference(lab, task)), blocks):
        if inside:
            tasks |= _names_of(node)
    found = set(names)
    for _ in range(len(tree.body)):
        text = "\n".join(_source(undone, node) for node in tree.body if found & _names_of(node))
        words = set(re.findall(r"\w+", text))
        more = {
            name for node in tree.body for name in _names_of(node) & words
        } - tasks - found  # fmt: skip
        if not more:
            break
        found |= more
    return found


def put(lab: Lab, task: Task, answer: str) -> Put:
    """The reference's file with an answer in the place of the task's definitions: where the first
    of them stood. Raises LabError for an answer that does not parse."""
    reference = _reference(lab, task)
    rows = reference.split("\n")
    if Path(task.file).suffix == ".cu":
        spans = [one.span for one in _kernels(lab, task)]
    else:
        names = _names(lab, task, reference)
        spans = [span(node) for node in ast.parse(reference).body if name_of(node) in names]
        _check(answer, task)
        # it may stand at the beginning of a file only, where the reference's own stands
        answer = _FUTURE.sub("\n", answer)
    first = spans[0][0]
    left = [row for number, row in enumerate(rows, start=1) if not _inside(number, spans)]
    above = sum(not _inside(number, spans) for number in range(1, first))
    own = answer.split("\n")
    return Put("\n".join([*left[:above], *own, *left[above:]]), above, len(own))


def _check(answer: str, task: Task) -> None:
    try:
        ast.parse(answer)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        raise LabError(f"{task.file}{where}: {getattr(error, 'msg', error)}") from None


def _reference(lab: Lab, task: Task) -> str:
    path = lab.solution / task.file
    if not path.is_file():
        raise LabError(
            f"This copy of the kit holds no reference for {lab.id}, so no code can be asked and "
            "checked."
        )
    if path.suffix not in (".py", ".cu"):
        raise LabError(f"{task.name} is written in {task.file}: no code is asked there.")
    return path.read_text(encoding="utf-8")


# -- Python ---------------------------------------------------------------------------------------


def _names(lab: Lab, task: Task, reference: str) -> set[str]:
    """Names of the top-level definitions that hold the task's blocks."""
    blocks = skeleton.blocks(lab.solution / task.file)
    names: set[str] = set()
    for node, inside in with_tasks(ast.parse(reference), blocks):
        if task.id not in inside:
            continue
        if inside != {task.id} or not name_of(node):
            others = ", ".join(sorted(inside - {task.id}))
            raise LabError(f"{task.name} cannot be asked alone: its definition holds {others}.")
        names.add(name_of(node))
    if not names:
        raise LabError(f"{task.name} has no definition in {task.file}.")
    return names


def _names_of(node: ast.stmt) -> set[str]:
    """What a statement of a module defines: a function, a class, or constants."""
    if isinstance(node, ast.Assign):
        return {each.id for each in node.targets if isinstance(each, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return {name_of(node)} - {""}


def _source(text: str, node: ast.stmt) -> str:
    first, last = span(node)
    return "\n".join(text.split("\n")[first - 1 : last])


def _import_of(node: ast.stmt, used: set[str]) -> Iterator[str]:
    """An import statement, with the names that are used alone."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return
    node.names = [
        name for name in node.names if (name.asname or name.name.partition(".")[0]) in used
    ]
    if node.names:
        yield ast.unparse(node)


# -- CUDA -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kernel:
    """A function of a `.cu` file with the comment above it. span: its lines, from 1."""

    head: str
    span: tuple[int, int]


def _kernels(lab: Lab, task: Task) -> list[_Kernel]:
    """The functions that hold a task's blocks, of which each ends with a brace in column 0."""
    rows = (lab.solution / task.file).read_text(encoding="utf-8").split("\n")
    found: list[_Kernel] = []
    for block in skeleton.blocks(lab.solution / task.file):
        if block.task != task.id:
            continue
        head = next(at for at in range(block.first - 1, 0, -1) if _opens(rows[at - 1]))
        last = next(at for at in range(block.last, len(rows) + 1) if rows[at - 1] == "}")
        first = head
        while first > 1 and rows[first - 2].startswith("//"):
            first -= 1
        found.append(_Kernel(rows[head - 1], (first, last)))
    return found


def _opens(row: str) -> bool:
    return bool(row) and not row[0].isspace() and row.rstrip().endswith("{")


def _cut(undone: str, kernel: _Kernel) -> str:
    """That function in a text where its block is undone."""
    rows = undone.split("\n")
    head = rows.index(kernel.head)
    last = rows.index("}", head)
    while head > 0 and rows[head - 1].startswith("//"):
        head -= 1
    return "\n".join(rows[head : last + 1])


def _inside(number: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(first <= number <= last for first, last in spans)
