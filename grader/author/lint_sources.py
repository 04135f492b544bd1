"""What `infralens lint` reads of a lab without running it: manifest, page, files, sources."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

from grader.author import answers_printed
from grader.author.new_lab import SECTIONS
from grader.errors import LabError
from grader.lab import lab_page, skeleton, task_hints
from grader.lab.manifest import Lab
from grader.sandbox.client import RESERVED
from grader.suite import known_outcomes

# What is sent along with a suite, and what it may import beside the standard library.
_SENT = {
    "models.py": ("numpy", "torch"),
    "probes.py": ("numpy", "torch", "grader.meters", "grader.ranks", "grader.kernels", "models"),
}

# Of pages that nobody has cut yet: the tasks come after everything that there is to read.
_FORMER_SECTIONS = (
    *("Concept goal", "Read first", "Mental model", "Starter preview", "Line by line"),
    *("What to notice", "Common misunderstandings", "How to say it out loud"),
    *("Additional intuition", "Further reading", "Tasks", "Run it"),
)
_FEWEST_POINTS = 3
# What measures in the process of student code.
_WITNESSES = ("grader.meters", "grader.kernels", "grader.ranks")
_FEWEST_ATTACKS = 4


def static_faults(lab: Lab) -> Iterator[str]:
    """Faults that show without running anything. LabError for a file that cannot be read."""
    stale = skeleton.stale(lab)
    task_hints.read(lab)
    if not lab.version:
        yield f'exercises/{lab.id}/lab.toml has no version: write version = "0.1.0" in it.'
    yield from _files(lab)
    yield from _page(lab)
    yield from _blocks(lab)
    yield from answers_printed.faults(lab)
    yield from _forbidden(lab)
    yield from _suite_sources(lab)
    yield from _names_of_misconceptions(lab)
    yield from _attacks(lab)
    for task in lab.tasks:
        if task.id in RESERVED:
            yield f"task `{task.id}`: that name belongs to the `student` proxy; choose another."
    if fault := known_outcomes.fault(lab):
        yield fault
    for name in stale:
        yield f"exercises/{lab.id}/{name} is not what its reference demands: infralens sync"


def _files(lab: Lab) -> Iterator[str]:
    yield from skeleton.misplaced(lab)
    expected = {
        lab.exercise: {
            *(*lab.edit, *lab.given, *lab_page.pictures(lab), task_hints.FILE),
            *(lab_page.FILE, "lab.toml", "reports"),
        },
        lab.solution: {*lab.edit, *lab.given},  # `misplaced` has said the latter
    }
    for folder, names in expected.items():
        for path in sorted(folder.iterdir()):
            if path.name not in names and path.name != "__pycache__":
                yield f"stray file {path.relative_to(lab.root)}: list it in lab.toml or remove it."
    found = variants(lab)
    if len(found) < 2:
        yield f"tests/{lab.id}/variants holds {len(found)} variants; it needs at least two."
    for folder in found:
        for path in sorted(folder.iterdir()):
            if path.name not in lab.edit and path.name != "__pycache__":
                yield f"stray file {path.relative_to(lab.root)}: a variant holds `edit` files only."


def variants(lab: Lab) -> list[Path]:
    folder = lab.suite / "variants"
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._")


def _page(lab: Lab) -> Iterator[str]:
    path = lab.exercise / "README.md"
    if not path.is_file():
        yield f"{path.relative_to(lab.root)} is missing: every lab has a page."
        return
    text = path.read_text(encoding="utf-8")
    headings = [line[3:].strip() for line in text.splitlines() if line.startswith("## ")]
    cut = answers_printed.Page(lab).is_cut
    wanted = list(SECTIONS if cut else _FORMER_SECTIONS)
    if cut:
        yield from _questions(lab, text)
    if [name for name in headings if name in wanted] != wanted:
        missing = [name for name in wanted if name not in headings]
        what = f"lacks the sections {missing}" if missing else "has its sections out of order"
        yield f"exercises/{lab.id}/README.md {what}; they are: {', '.join(wanted)}."
    if count := text.count("TODO(author)"):
        yield f"exercises/{lab.id}/README.md still has {count} TODO(author) marks."
    for name in lab_page.pictures(lab):
        if not (lab.exercise / name).is_file():
            yield f"exercises/{lab.id}/README.md shows {name}, which is missing: infralens sync"
    for task in lab.tasks:
        if f"`{task.id}`" not in text:
            yield f"exercises/{lab.id}/README.md does not mention the task `{task.id}`."


def _forbidden(lab: Lab) -> Iterator[str]:
    """What a manifest forbids is there, by the name of where it is defined."""
    for task in lab.tasks:
        for name in task.forbids:
            home = defined_at(name)
            if home != name:
                said = f"it is defined as {home}" if home else "there is nothing of that name"
                yield f"exercises/{lab.id}/lab.toml: task `{task.id}` forbids {name}: {said}."


def defined_at(name: str) -> str:
    """The name under which a module, class or function of a library is defined; itself for what is
    written in C, and "" where there is none."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        if found is None:
            return ""
        if count == len(parts) or not isinstance(found, FunctionType | type):
            return name
        module, own = found.__module__, found.__qualname__
        return name if module.partition(".")[2].startswith("_C") else f"{module}.{own}"
    return ""


def _questions(lab: Lab, text: str) -> Iterator[str]:
    """Each question of an interview has key points that can be ticked."""
    where = f"exercises/{lab.id}/README.md: *How to say it out loud*"
    questions = list(lab_page.spoken(text))
    if not questions:
        yield f'{where} has no question; write each as `### "..."`.'
    for heading, points in questions:
        if (number := len(points)) < _FEWEST_POINTS:
            yield f"{where}: {heading} has {number} key points (`- [ ] ...`); give at least three."


def _blocks(lab: Lab) -> Iterator[str]:
    for name in lab.edit:
        known = {task.id for task in lab.tasks_of(name)}
        path = lab.solution / name
        marked = {block.task for block in skeleton.blocks(path)}
        for task_id in sorted(marked - known):
            yield f"solutions/{lab.id}/{name} marks `{task_id}`, which is not a task of that file."
        for task_id in sorted(known - marked):
            yield f"solutions/{lab.id}/{name} has no SOLUTION block of `{task_id}`."
        if name.endswith(".py"):
            yield from _docstrings(lab, name)


def _docstrings(lab: Lab, name: str) -> Iterator[str]:
    for node in _tree(lab, lab.solution / name).body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        text = ast.get_docstring(node) or ""
        if len(text.split()) < 5:
            yield f"solutions/{lab.id}/{name}: `{node.name}` has no docstring that is a contract."


def _tree(lab: Lab, path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), path.name)
    except (SyntaxError, ValueError) as error:
        raise LabError(f"{path.relative_to(lab.root)} is not Python: {error}.") from error


def _suite_sources(lab: Lab) -> Iterator[str]:
    for path in sorted(lab.suite.glob("test_*.py")):
        tree = _tree(lab, path)
        where = f"tests/{lab.id}/{path.name}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert):
                yield f"{where}:{node.lineno}: a bare assert explains nothing; use expect."
            if isinstance(node, ast.Attribute) and node.attr in ("allclose", "assert_close"):
                yield f"{where}:{node.lineno}: {node.attr} has no error model; use expect.close."
            if isinstance(node, ast.Attribute) and node.attr in ("sleep", "perf_counter"):
                yield f"{where}:{node.lineno}: {node.attr}: tests never judge wall-clock time."
    for name, allowed in _SENT.items():
        if (lab.suite / name).is_file():
            yield from _imports(lab, name, allowed)


def _attacks(lab: Lab) -> Iterator[str]:
    """A lab with a figure that is witnessed beside student code has attacks on that figure, where
    the kit has its own tests."""
    probes, folder = lab.suite / "probes.py", lab.root / "tests" / "grader" / "attacks"
    if not (probes.is_file() and folder.is_dir()):
        return
    imported = [
        name
        for node in ast.walk(_tree(lab, probes))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _names(node)
    ]
    if not any(name.startswith(_WITNESSES) for name in imported):
        return
    path = folder / f"{lab.id}.py"
    number = 0
    for node in _tree(lab, path).body if path.is_file() else ():
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "ATTACKS" for target in node.targets
        ):
            number = len(node.value.elts) if isinstance(node.value, ast.List) else 0
    if number < _FEWEST_ATTACKS:
        yield (
            f"tests/{lab.id}/probes.py opens a meter beside student code, and "
            f"{path.relative_to(lab.root)} has {number} attacks in ATTACKS on what it measures; "
            f"give {_FEWEST_ATTACKS} at least."
        )


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The dotted names that an import gives, as in `grader.meters` or `.oracles.WANT`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    start = "." * node.level + (node.module or "")
    return [f"{start}.{alias.name}" for alias in node.names]


def _imports(lab: Lab, name: str, allowed: tuple[str, ...]) -> Iterator[str]:
    """What a file that is sent along imports at its top; no other file of the kit goes with it."""
    files = (*lab.edit, *lab.given)
    if name == "models.py" and name in files:
        yield f"tests/{lab.id}/models.py has the name of a file of the lab; rename that one."
    beside = allowed if name == "models.py" else (*allowed, *(Path(n).stem for n in lab.given))
    for node in _tree(lab, lab.suite / name).body:
        for module in _names(node) if isinstance(node, ast.Import | ast.ImportFrom) else ():
            known = any(f"{module}.".startswith(f"{part}.") for part in beside)
            if not known and module.partition(".")[0] not in sys.stdlib_module_names:
                yield (
                    f"tests/{lab.id}/{name}:{node.lineno}: imports {module}; beside the learner's "
                    f"code there are the standard library, {', '.join(allowed)}."
                )


def _names_of_misconceptions(lab: Lab) -> Iterator[str]:
    """Each wrong answer of a lab has a name of its own: the folder that it is written to."""
    known: dict[str, str] = {}
    for path in sorted((lab.suite / "misconceptions").glob("[!_]*.py")):
        for node in _tree(lab, path).body:
            names = [getattr(node, "name", "")]
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                names = [ast.unparse(target) for target in node.targets]
            where = f"tests/{lab.id}/misconceptions/{path.name}:{node.lineno}"
            for name in filter(None, names):
                if name in known:
                    yield f"{where}: {name} is already the name of what stands at {known[name]}."
                known[name] = where
