"""Submissions with realistic mistakes, made from a lab's reference and its known misconceptions.

Each one is the reference with some tasks still to do and 0 to 5 tasks solved in a known wrong way;
of those in Python some print, and one in fifty does not parse. The same seed gives the same files.
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from grader.author import wrong_answers
from grader.lab.manifest import Lab, load_lab
from grader.suite.model import load_suite
from grader.suite.splice import Misconception, definition

SEED = 20260
MISTAKES = (0, 1, 1, 2, 2, 3, 3, 4, 5)
NOT_STARTED = (0, 0, 0, 0, 1, 1, 2, 3)
BROKEN_EVERY = 50
PRINTS = 0.25
_COLON = re.compile(r"^def \w+\(.*:$", re.MULTILINE)


class CorpusError(Exception):
    """The corpus is not what it should be; the text says in which respect."""


@dataclass
class Plan:
    """What was done to one submission."""

    student: str
    mistakes: list[str]
    not_started: list[str]
    prints: bool
    broken: bool


@dataclass
class Corpus:
    """A folder of submissions of one lab (`students/<student>/<lab>/<files>`). `file`: the one that
    names its student, and is distinct."""

    lab: str
    file: str
    students: Path
    plans: list[Plan]

    def files(self) -> list[Path]:
        return sorted(self.students.glob(f"*/{self.lab}/{self.file}"))


def make(root: Path, lab_id: str, folder: Path, count: int) -> Corpus:
    """Write `count` submissions of a lab, and check them."""
    lab = load_lab(root, lab_id)
    wrongs = _misconceptions(lab)
    students = folder / "students"
    plans = []
    for number in range(count):
        plan, texts = _submission(lab, wrongs, number)
        place = students / plan.student / lab_id
        place.mkdir(parents=True)
        for name, text in texts.items():
            (place / name).write_text(text, encoding="utf-8")
        plans.append(plan)
    rows = [asdict(plan) for plan in plans]
    (folder / "plan.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    made = Corpus(lab_id, lab.edit[0], students, plans)
    check(made, count)
    return made


def check(corpus: Corpus, count: int) -> None:
    """CorpusError unless there are `count` files, all distinct, of which exactly those parse that
    should."""
    files = corpus.files()
    if len(files) != count:
        raise CorpusError(f"{corpus.students} holds {len(files)} files, not {count}.")
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    if len(digests) != count:
        raise CorpusError(f"only {len(digests)} of {count} files are distinct.")
    for plan, path in zip(corpus.plans, files, strict=True):
        if plan.student != path.parts[-3] or plan.broken == _parses(path):
            raise CorpusError(f"{path} is not what was planned: {plan}.")


def contents(corpus: Corpus) -> int:
    """How many files differ in more than the first line, which names the student."""
    return len({path.read_text("utf-8").partition("\n")[2] for path in corpus.files()})


def _parses(path: Path) -> bool:
    """Whether a file of Python does; of one in another language no check is made."""
    if path.suffix != ".py":
        return True
    try:
        compile(path.read_text("utf-8"), path.name, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _misconceptions(lab: Lab) -> dict[str, list[Misconception]]:
    suite = load_suite(lab)
    found = {task.id: suite.misconceptions_of(task.id) for task in lab.tasks}
    return {task: rows for task, rows in found.items() if rows}


def _submission(
    lab: Lab, wrongs: dict[str, list[Misconception]], number: int
) -> tuple[Plan, dict[str, str]]:
    rng = random.Random(f"{SEED}/{lab.id}/{number}")
    tasks = [task.id for task in lab.tasks]
    # Learners work from the top, so what is left undone is near the end.
    undone = rng.choice(NOT_STARTED) if len(tasks) > 3 else rng.choice((0, 0, 0, 0, 0, 1))
    not_started = sorted(rng.sample(tasks[len(tasks) // 2 :], min(undone, len(tasks) // 2 or 1)))
    known = {t: w for t, w in wrongs.items() if t not in not_started}
    chosen, texts = _with_mistakes(lab, _chosen(rng, known), not_started)
    text = texts[lab.edit[0]]
    python = lab.edit[0].endswith(".py")
    prints = python and rng.random() < PRINTS
    broken = python and number % BROKEN_EVERY == BROKEN_EVERY // 2
    student = f"s{number:04d}"
    if python:
        for index, wrong in enumerate(wrong for wrong in chosen if wrong.file == lab.edit[0]):
            text = _as_handed_in(text, wrong, prints and not index)
    text = f"{'#' if python else '//'} Handed in by {student}\n{text}"
    if prints:
        text += f'\n\nprint("{student}: loaded", sorted(globals())[:3])\n'
    if broken:
        text = _without_colon(text, rng)
    names = [wrong.name for wrong in chosen]
    texts[lab.edit[0]] = text
    return Plan(student, names, not_started, prints, broken), texts


def _chosen(rng: random.Random, wrongs: dict[str, list[Misconception]]) -> list[Misconception]:
    """Misconceptions of different tasks."""
    tasks = rng.sample(sorted(wrongs), min(rng.choice(MISTAKES), len(wrongs)))
    return [rng.choice(wrongs[task]) for task in tasks]


def _with_mistakes(
    lab: Lab, wanted: list[Misconception], not_started: list[str]
) -> tuple[list[Misconception], dict[str, str]]:
    """The reference with these mistakes, but for those that do not go together with the ones before
    them, and with the placeholders of those tasks."""
    chosen: list[Misconception] = []
    files = wrong_answers.combined(lab, chosen, not_started)
    for wrong in wanted:
        if wrong.replaces and wrong.replaces in [other.replaces for other in chosen]:
            continue
        try:
            files = wrong_answers.combined(lab, [*chosen, wrong], not_started)
        except ValueError:
            continue
        chosen.append(wrong)
    return chosen, files


def _as_handed_in(text: str, wrong: Misconception, prints: bool) -> str:
    """Without the docstring of a definition that the mistake brought, which gives the diagnosis
    away; `prints`: with a print in a function."""
    name = wrong.replaces or wrong.task
    node = definition(text, name)
    if node is None:
        return text
    rows, first = text.split("\n"), node.body[0]
    said = [f'{" " * first.col_offset}print("in {name}")']
    said = said if prints and isinstance(node, ast.FunctionDef) else []
    begin = end = (
        (first.end_lineno or first.lineno) if ast.get_docstring(node) else first.lineno - 1
    )
    if wrong.replaces and ast.get_docstring(node) and len(node.body) > 1:
        begin = first.lineno - 1
    rows[begin:end] = said
    return "\n".join(rows)


def _without_colon(text: str, rng: random.Random) -> str:
    """The text with one function's colon forgotten."""
    found = list(_COLON.finditer(text))
    if not found:
        raise CorpusError("there is no one-line `def` whose colon could be forgotten.")
    end = rng.choice(found).end()
    return text[: end - 1] + text[end:]
