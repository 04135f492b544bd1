"""`solutions/` to `exercises/`: cuts every marked block out of a reference and leaves a TODO.

Python blocks become a comment and a `raise NotImplementedError("labNN.task")`; other languages get
the same two facts in their own comments, with a placeholder line that a suite recognises.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.errors import LabError
from grader.lab import handed_out
from grader.lab.manifest import Lab, Task

BEGIN = re.compile(r"^(?P<indent>[ \t]*)(?P<open>#|//|<!--)[ \t]*BEGIN SOLUTION (?P<task>\w+)\b.*$")
END = re.compile(r"^[ \t]*(#|//|<!--)[ \t]*END SOLUTION\b[ \t]*(?P<task>\w*).*$")
_MARKER = re.compile(r"^\s*(#|//|<!--) NOT STARTED ")
_SLASHES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp")
_COMMENTS = {".md": ("<!-- ", " -->"), **dict.fromkeys(_SLASHES, ("// ", ""))}


@dataclass(frozen=True)
class Block:
    """One marked block: `first` and `last` are the 1-based lines of its markers."""

    task: str
    first: int
    last: int
    indent: str


def blocks(path: Path) -> list[Block]:
    """The marked blocks of a reference file, in order; `LabError` names a marker out of place."""
    try:
        return _blocks(path.read_text(encoding="utf-8"))
    except LabError as error:
        raise LabError(f"{path}:{error}") from None


def _blocks(text: str) -> list[Block]:
    """The marked blocks of a text; `LabError` begins with the line of a marker out of place."""
    found: list[Block] = []
    opened: Block | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        if match := BEGIN.match(line):
            if opened:
                raise LabError(f"{number}: a block opens inside `{opened.task}`'s.")
            opened = Block(match["task"], number, 0, match["indent"])
        elif "BEGIN SOLUTION" in line:
            raise LabError(f"{number}: write `BEGIN SOLUTION <task>` in a comment of its own.")
        elif match := END.match(line):
            if not opened:
                raise LabError(f"{number}: END SOLUTION without a BEGIN SOLUTION.")
            if match["task"] not in ("", opened.task):
                raise LabError(f"{number}: END of `{match['task']}` in `{opened.task}`'s block.")
            found.append(Block(opened.task, opened.first, number, opened.indent))
            opened = None
    if opened:
        raise LabError(f"{opened.first}: the block of `{opened.task}` is never closed.")
    return found


def with_block(text: str, task: str, code: str) -> str:
    """A reference's text with other code in the blocks of one task: in the first of them, the
    others are emptied. Raises ValueError if it has none."""
    out: list[str] = []
    inside = found = False
    for line in text.split("\n"):
        begins = BEGIN.match(line)
        if begins and begins["task"] == task:
            out.append(line)
            out += code.strip("\n").split("\n") if code.strip() and not found else []
            inside = found = True
        elif inside and END.match(line):
            inside = False
        if not inside:
            out.append(line)
    if not found:
        raise ValueError(f"the text has no block of `{task}`")
    return "\n".join(out)


def changed(text: str, *pairs: tuple[str, str]) -> str:
    """A reference's text with each (old, new) exchanged. Raises ValueError where an old one does
    not stand there exactly once."""
    for old, new in pairs:
        if (found := text.count(old)) != 1:
            raise ValueError(f"{found} places in the reference read {old!r}")
        text = text.replace(old, new)
    return text


def changed_in(text: str, task: str, *pairs: tuple[str, str]) -> str:
    """`changed` in the blocks of one task, and nowhere else."""
    lines = text.splitlines(keepends=True)
    parts, position = [""], 0  # outside and inside of the task's blocks, by turns
    for block in _blocks(text):
        if block.task == task:
            parts[-1] += "".join(lines[position : block.first])
            parts += ["".join(lines[block.first : block.last - 1]), ""]
            position = block.last - 1
    parts[-1] += "".join(lines[position:])
    parts[1::2] = changed("\0".join(parts[1::2]), *pairs).split("\0")
    return "".join(parts)


def placeholder(lab: Lab, task_id: str, suffix: str, indent: str) -> list[str]:
    """The lines that stand in a skeleton where a solution stood."""
    task = lab.task(task_id)
    todo = f"TODO({task.name}): {task.title}"
    if suffix == ".py" and not indent:
        return [f"# {todo}"]  # a raise out here would keep the file from being imported
    if suffix == ".py":
        return [f"{indent}# {todo}", f'{indent}raise NotImplementedError("{task.name}")']
    opening, closing = _COMMENTS.get(suffix, ("# ", ""))
    return [
        f"{indent}{opening}{todo}{closing}",
        f"{indent}{opening}NOT STARTED {task.name}{closing}",
    ]


def handed_out_copy(lab: Lab, name: str) -> Path:
    """Where a release keeps the text of a skeleton that its learner may have written into."""
    return lab.root / handed_out.SKELETONS / lab.id / name


def can_be_made(lab: Lab) -> bool:
    """Whether its skeletons are known: from its references, or as a release brought them."""
    return lab.has_solution or all(handed_out_copy(lab, name).is_file() for name in lab.edit)


def skeleton(lab: Lab, name: str) -> str:
    """Text of `exercises/<lab>/<name>` as the reference file demands it, or as it was handed out
    where there is no reference."""
    path = lab.solution / name
    if not lab.has_solution:
        return handed_out_copy(lab, name).read_text(encoding="utf-8")
    try:
        return undone(lab, name, path.read_text(encoding="utf-8"))
    except LabError as error:
        raise LabError(f"{path}:{error}") from None


def undone(lab: Lab, name: str, text: str, tasks: Collection[str] | None = None) -> str:
    """The text of a reference file with placeholders in place of the blocks of some tasks, or of
    all. `LabError` begins with the line of a marker that is out of place."""
    lines = text.removesuffix("\n").split("\n")
    out: list[str] = []
    position = 0
    for block in _blocks(text):
        if tasks is not None and block.task not in tasks:
            continue
        out += lines[position : block.first - 1]
        try:
            out += placeholder(lab, block.task, Path(name).suffix, block.indent)
        except LabError as error:
            raise LabError(f"{block.first}: {error}") from None
        position = block.last
    out += lines[position:]
    return "\n".join(out) + "\n"


def wanted(lab: Lab) -> dict[str, str]:
    """Every generated file of a lab: name to text."""
    for name in lab.edit:
        path = lab.solution / name if lab.has_solution else handed_out_copy(lab, name)
        if not path.is_file():
            raise LabError(f"{path} is missing, but {lab.id}'s manifest lists it.")
    return {name: skeleton(lab, name) for name in lab.edit}


def misplaced(lab: Lab) -> Iterator[str]:
    """A sentence for each given file that is not in `exercises/`, or is in `solutions/` as well."""
    for name in lab.given:
        path, copy = lab.given_source(name), lab.solution / name
        if not path.is_file():
            yield (
                f"{path} is missing, but {lab.id}'s manifest lists it; "
                f"{lab.how_to_restore_given(name)}."
            )
        if copy.exists():
            yield f"{copy} is a second copy of a given file, and nothing reads it: remove it."


def stale(lab: Lab) -> list[str]:
    """Names of generated files that are missing in `exercises/` or differ from the reference's."""
    return [
        name
        for name, text in wanted(lab).items()
        if not (lab.exercise / name).is_file()
        or (lab.exercise / name).read_text(encoding="utf-8", errors="replace") != text
    ]


def write(lab: Lab, names: list[str]) -> None:
    """Write those generated files into `exercises/`."""
    texts = wanted(lab)
    for name in names:
        (lab.exercise / name).write_text(texts[name], encoding="utf-8")


def placeholder_line(task: Task, text: str) -> int | None:
    """The line at which a task's TODO still stands in a learner's file; None if it was deleted."""
    return next((number for number, _, _ in lines_with(f"TODO({task.name})", text)), None)


def marker_line(task_name: str, text: str) -> int | None:
    """The line at which the marker that stands for a raise outside of Python says that a task is
    not started; None if it was deleted."""
    for number, start, end in lines_with(f" NOT STARTED {task_name}", text):
        line = text[start:end]
        if _MARKER.match(line) and task_name in line.split():
            return number
    return None


def lines_with(word: str, text: str) -> Iterator[tuple[int, int, int]]:
    """Each line that holds a word without line ends: its number, and the positions where it begins
    and ends. Lines end in `\\n` alone. A hostile text costs the search for the word."""
    number, start = 1, 0
    while (at := text.find(word, start)) >= 0:
        number += text.count("\n", start, at)
        start = text.rfind("\n", start, at) + 1 or start
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield number, start, end
        number, start = number + 1, end + 1
