"""What is wrong with this code? Questions that every misconception of every lab makes.

The code shown is the reference with one misconception in it, without comments and docstrings, and
written out anew, so that nothing but the mistake tells it from any other. Its sentence is one of
the options. The others are sentences of misconceptions of the same task, each of which a case of
the suite refuses that accepts the code shown, which is found by running both; and that nothing is
wrong. What they speak of is shown as well, and the contract can be looked up.
"""

from __future__ import annotations

import ast
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from grader.errors import LabError
from grader.lab import skeleton
from grader.lab.manifest import Lab, Task
from grader.suite.model import Case, Suite
from grader.suite.replays import WholeReplays
from grader.suite.run import seed_of
from grader.suite.splice import Misconception, parsed

NOTHING = "Nothing: this keeps its contract."
OTHERS = 3  # wrong sentences beside the right one
RIGHT_CODE_IN = 8  # one question in so many shows the reference
MOST_LINES = 60  # of a class: beyond it its changed methods alone are shown
PATIENCE_S = 10.0  # of running misconceptions for one question
_SHOWN = (".py", ".cu")
_MEASURES = re.compile(r"process|memory|bytes|by_s|peak|alive|held").search  # large by design


@dataclass(frozen=True)
class BugAsk:
    """One question: code, the sentences to choose from, and which of them is right (from 0).
    contract: what the code shown is held to."""

    task: Task
    code: str
    options: tuple[str, ...]
    right: int
    contract: str = ""


def listed(lab: Lab) -> Iterator[tuple[str, str]]:
    """(task, name) of every misconception of a lab, read without running anything."""
    for task in lab.tasks:
        path = lab.suite / "misconceptions" / f"{task.id}.py"
        if not path.is_file() or Path(task.file).suffix not in _SHOWN:
            continue
        for name in _named(path.read_text(encoding="utf-8")):
            yield task.id, name


def _named(text: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Name) and function.id in ("lines", "block"):
                yield from (each.id for each in node.targets if isinstance(each, ast.Name))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            marks = (mark.func for mark in node.decorator_list if isinstance(mark, ast.Call))
            if any(isinstance(mark, ast.Name) and mark.id == "misconception" for mark in marks):
                yield node.name


class BugQuestions:
    """The questions of one lab's misconceptions."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self.replays = WholeReplays(suite)
        self._seen: dict[tuple[str, str], dict[str, bool]] = {}
        self._slow: set[str] = set()  # cases that took a second or more

    def ask(self, task_id: str, name: str, seed: int) -> BugAsk:
        """The question of that misconception. Raises LabError where it has no code to show, or
        where no other one was found that it does not make as well."""
        task = self.suite.lab.task(task_id)
        rows = self.suite.misconceptions_of(task_id)
        wrong = next((each for each in rows if each.name == name), None)
        if wrong is None:
            raise LabError(f"{task.name} has no misconception {name}.")
        draw = Random(f"{task.name} {name} {seed}")
        reference = (self.suite.lab.solution / wrong.file).read_text(encoding="utf-8")
        changed = wrong.text(reference)
        is_right_code = draw.randrange(RIGHT_CODE_IN) == 0 and seed > 0
        text = reference if is_right_code else changed
        if not shown_code(task, reference, [changed], text).strip():
            raise LabError(f"{task.name}/{name} has no code to show.")
        others = self.others(wrong, draw)
        if not others:
            raise LabError(f"{task.name}/{name}: no mistake was found that it does not make, too.")
        every = [changed, *(other.text(reference) for other in others)]
        code = shown_code(task, reference, every, text)
        if code.count("\n") > MOST_LINES:  # then those that speak of what is shown come first
            code = shown_code(task, reference, [changed], text)
            near = _changed(reference, (changed,)) if wrong.file.endswith(".py") else set()
            others = [
                other for other in others if near & _changed(reference, (other.text(reference),))
            ] or others[:1]
        sentences = [wrong.sentence, *(other.sentence for other in others)]
        draw.shuffle(sentences)
        options = (*sentences, NOTHING)
        right = NOTHING if is_right_code else wrong.sentence
        contract = contract_of(task, reference, every)
        return BugAsk(task, code, options, options.index(right), contract)

    def others(self, wrong: Misconception, draw: Random) -> list[Misconception]:
        """Up to `OTHERS` misconceptions of the task that this one does not make, as drawn."""
        rows = [
            each
            for each in self.suite.misconceptions_of(wrong.task)
            if each.name != wrong.name and each.file == wrong.file
        ]
        draw.shuffle(rows)
        until = time.monotonic() + PATIENCE_S
        found: list[Misconception] = []
        for other in rows:
            if len(found) == OTHERS or time.monotonic() > until:
                break
            if any(_reads_alike(other.sentence, one.sentence) for one in (wrong, *found)):
                continue
            if self.is_absent(other, wrong, until):
                found.append(other)
        return found

    def is_absent(self, other: Misconception, shown: Misconception, until: float) -> bool:
        """Whether a case of the suite, found in time, refuses one misconception of a task and
        accepts the other: then what is shown does not make the other mistake as well."""
        for case in self._cases(shown.task):
            if time.monotonic() > until:
                return False
            if self._passes(shown, case) and not self._passes(other, case):
                return True
        return False

    def _cases(self, task_id: str) -> list[Case]:
        """The scored cases of a task, those that take long last."""
        cases = [case for case in self.suite.cases_of(task_id) if case.test.scored]
        return sorted(cases, key=lambda case: case.id in self._slow or bool(_MEASURES(case.name)))

    def _passes(self, wrong: Misconception, case: Case) -> bool:
        known = self._seen.setdefault((wrong.task, wrong.name), {})
        if case.id not in known:
            began = time.monotonic()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a mistake may well deserve one
                outcome = self.replays.outcome(wrong, case, seed_of(case))
            known[case.id] = outcome.status.is_pass
            if time.monotonic() - began > 1.0:
                self._slow.add(case.id)
        return known[case.id]


def _reads_alike(one: str, other: str) -> bool:
    """Whether two sentences share most of their words: as options they would be one."""
    a, b = (set(re.findall(r"[a-z0-9]+", text.lower())) for text in (one, other))
    return len(a & b) > 0.7 * min(len(a), len(b))


# -- the code that is shown -----------------------------------------------------------------------


def shown_code(task: Task, reference: str, changed: Sequence[str], text: str) -> str:
    """Of `text` (the reference, or it with a misconception in it), the definitions in which any of
    the changed texts differs from the reference, without comments and docstrings."""
    if Path(task.file).suffix == ".cu":
        return _cuda(task, text)
    try:
        whole = _definitions(text)
        names = [name for name in whole if name in _changed(reference, tuple(changed))]
    except SyntaxError:
        return ""
    return "\n\n".join(whole[name] for name in names)


def _changed(reference: str, changed: tuple[str, ...]) -> set[str]:
    """Names of definitions in which a text differs from the reference."""
    before = _definitions(reference)
    found: set[str] = set()
    for text in changed:
        after = _definitions(text)
        found |= {name for name in after if after[name] != before.get(name)}
        found |= {name for name in before if name not in after}
    return found


def contract_of(task: Task, reference: str, changed: Sequence[str]) -> str:
    """What the reference says of the definitions that are shown: docstrings; of a kernel the
    comment above it and the file's own."""
    if Path(task.file).suffix == ".cu":
        return _cuda_contract(task, reference)
    try:
        names = {name.partition(".")[0] for name in _changed(reference, tuple(changed))}
        found = []
        for node in parsed(reference).body:
            kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            if isinstance(node, kinds) and node.name in names:
                found += [
                    f"{item.name}: {doc}"
                    for item in ast.walk(node)
                    if isinstance(item, kinds) and (doc := ast.get_docstring(item))
                ]
    except SyntaxError:
        return ""
    return "\n\n".join(found)


def _cuda_contract(task: Task, text: str) -> str:
    rows = text.split("\n")
    file = rows[: next((at for at, row in enumerate(rows) if not row.startswith("//")), 0)]
    at = 0
    for number, row in enumerate(rows):
        if (begins := skeleton.BEGIN.match(row)) and begins["task"] == task.id:
            at = number
            break
    while at > 0 and not rows[at].startswith("//"):
        at -= 1
    first = at
    while first > 0 and rows[first - 1].startswith("//"):
        first -= 1
    shown = [*rows[first : at + 1], "//", *file] if first else file
    return "\n".join(re.sub(r"^// ?", "", row) for row in shown)


@lru_cache(maxsize=64)
def _definitions(text: str) -> dict[str, str]:
    """Each top-level definition by name, written out anew; of a long class each method by itself;
    assignments by their targets."""
    found: dict[str, str] = {}
    for node in parsed(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            plain = _without_docstrings(node)
            code = ast.unparse(plain)
            if isinstance(plain, ast.ClassDef) and code.count("\n") >= MOST_LINES:
                found |= _methods(plain)
            else:
                found[node.name] = code
        elif isinstance(node, ast.Assign):
            found[ast.unparse(node.targets[0])] = ast.unparse(node)
    return found


def _methods(node: ast.ClassDef) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            body = "\n".join("    " + row for row in ast.unparse(item).split("\n"))
            found[f"{node.name}.{item.name}"] = f"class {node.name}:\n    ...\n\n{body}"
    return found


def _without_docstrings(node: ast.stmt) -> ast.stmt:
    """A copy of a definition without docstrings and annotations: a misconception has none."""
    copy = ast.parse(ast.unparse(node)).body[0]
    _Tidied().visit(copy)
    ast.fix_missing_locations(copy)
    for item in ast.walk(copy):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = item.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                item.body = item.body[1:] or [ast.Pass()]
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            item.returns = None
        if isinstance(item, ast.arg):
            item.annotation = None
    return copy


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and len(test.ops) == 1:
        return ast.Compare(test.left, [ast.NotEq()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


class _Tidied(ast.NodeTransformer):
    """Code without the traces of an exchange: a branch that is never taken, an `if True`, an empty
    branch before an `else`, a `pass` beside other statements."""

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return (node.body if node.test.value else node.orelse) or ast.Pass()
        if node.orelse and all(isinstance(row, ast.Pass) for row in node.body):
            return ast.If(_negated(node.test), node.orelse, [])
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            rows = getattr(node, name, None)
            if isinstance(rows, list) and len(rows) > 1:
                kept = [row for row in rows if not isinstance(row, ast.Pass)]
                setattr(node, name, kept or [ast.Pass()])
        return node


def _cuda(task: Task, text: str) -> str:
    """The kernel around the task's blocks, without comments."""
    rows = text.split("\n")
    shown, kernel = list[str](), list[str]()
    inside = False
    for row in rows:
        begins, ends = skeleton.BEGIN.match(row), skeleton.END.match(row)
        if begins:
            inside = begins["task"] == task.id
            if inside:
                shown += kernel[-1:]
        elif ends:
            if inside:
                shown.append("}")
            inside = False
        elif inside:
            shown.append(row)
        elif "(" in row and row.rstrip().endswith("{"):
            kernel = [row]
    code = re.sub(r"/\*.*?\*/", "", "\n".join(shown), flags=re.DOTALL)
    plain = [re.sub(r"\s*//.*", "", row) for row in code.split("\n")]
    return "\n".join(row for row in plain if row.strip())
